//! Messages that many requests may cause: one in a minute is written, with the number of those that
//! were not.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Time between two messages, in seconds.
const INTERVAL_S: i64 = 60;

/// Lets a message pass once in a minute.
#[derive(Debug)]
pub struct Seldom {
    /// When the last one has passed, in Unix seconds.
    last_s: AtomicI64,
    /// Those held back since.
    held_back: AtomicU64,
}

impl Seldom {
    /// Nothing has passed yet.
    pub const fn new() -> Self {
        Self { last_s: AtomicI64::new(i64::MIN), held_back: AtomicU64::new(0) }
    }

    /// Whether a message passes at this time: `Some` number of those that were held back since the
    /// last one, or `None`.
    pub fn pass(&self, now_s: i64) -> Option<u64> {
        let last_s = self.last_s.load(Relaxed);
        let is_time = now_s.saturating_sub(last_s) >= INTERVAL_S || now_s < last_s;
        if is_time && self.last_s.compare_exchange(last_s, now_s, Relaxed, Relaxed).is_ok() {
            return Some(self.held_back.swap(0, Relaxed));
        }
        self.held_back.fetch_add(1, Relaxed);
        None
    }
}

impl Default for Seldom {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_minute_passes_and_says_how_many_did_not() {
        let seldom = Seldom::new();
        assert_eq!(seldom.pass(1000), Some(0));
        assert_eq!((seldom.pass(1000), seldom.pass(1059)), (None, None));
        assert_eq!(seldom.pass(1060), Some(2));
        assert_eq!(seldom.pass(1061), None);
        assert_eq!(seldom.pass(500), Some(1), "the clock was set back");
    }
}
