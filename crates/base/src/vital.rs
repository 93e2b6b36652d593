//! Threads and tasks that others wait for. If one of them panics, the program has to end in order,
//! because the others would wait for ever.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The first that failed.
static FAILED: OnceLock<&'static str> = OnceLock::new();

/// Whether any has failed. It is asked often.
static HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Held by a thread or task as long as it lives.
#[derive(Debug)]
pub struct Vital(&'static str);

impl Vital {
    /// Guards the thread or task called `name`, as in "the accepting task".
    pub fn new(name: &'static str) -> Self {
        Self(name)
    }
}

impl Drop for Vital {
    fn drop(&mut self) {
        if std::thread::panicking() {
            fail(self.0);
        }
    }
}

/// Notes that something has failed without which the program is not to go on.
pub fn fail(name: &'static str) {
    let _ = FAILED.set(name); // an earlier one is reason enough
    HAS_FAILED.store(true, Relaxed);
}

/// The first that has failed, if any.
pub fn failed() -> Option<&'static str> {
    if HAS_FAILED.load(Relaxed) { FAILED.get().copied() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_something_vital_is_noticed_if_it_is_a_panic() {
        std::thread::spawn(|| drop(Vital::new("one that ends well")))
            .join()
            .expect("it ended well");
        assert_eq!(failed(), None);
        let panics = || {
            let _vital = Vital::new("one that does not");
            panic!("as it should");
        };
        assert!(std::thread::spawn(panics).join().is_err());
        assert_eq!(failed(), Some("one that does not"));
    }
}
