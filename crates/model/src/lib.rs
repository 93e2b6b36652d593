//! For tests only: locks and atomics whose threads `loom` takes through all interleavings.
//!
//! A crate takes its locks from a module `sync`: those of `parking_lot` in the program, those of
//! this crate in its tests. The latter behave like the former, except for what is made inside
//! [`check`]: that belongs to a model. There `loom` runs one thread at a time, and repeats the
//! course with every other choice of the next thread at every lock and atomic, as far as the bound
//! of preemptions allows. A thread that waits for ever is an error, and so is an access to memory
//! that another thread may be writing.
//!
//! So the code of the program itself is examined, not a copy. What takes no lock of this crate is
//! one step to the model, and memory orders count for [`AtomicU64`] only.

mod atomics;
mod locks;
mod tasks;

use std::cell::Cell;
use std::sync::Arc;

pub use atomics::{AtomicU64, WordBool, WordU32, WordU64, WordUsize};
pub use locks::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use tasks::{Bell, block_on};

/// Stack of a thread in a model, in words of eight bytes.
const STACK_WORDS: usize = 64 << 10;

/// Most locks taken and atomics used in one course: with more, a thread goes round in a circle.
const STEPS_MAX: usize = 10_000;

/// This many more preemptions than usual are tried: for long runs. Each takes some ten times as
/// long.
const MORE: &str = "HUMBOLDT_MODEL_MORE";

thread_local! {
    /// All threads of a model are coroutines of one thread.
    static IS_MODEL: Cell<bool> = const { Cell::new(false) };
}

/// Whether a model runs on this thread.
pub fn is_model() -> bool {
    IS_MODEL.get()
}

/// Resets [`IS_MODEL`], also when the model has found an error.
struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        IS_MODEL.set(false);
    }
}

/// Runs `course` in every interleaving of its threads with at most this many preemptions: switches
/// to another thread although the present one could go on. Most errors need one or two.
///
/// # Panics
/// In the first interleaving in which the course panics, or waits for ever.
pub fn check(preemptions: usize, course: impl Fn() + Send + Sync + 'static) {
    let more = std::env::var(MORE).ok().and_then(|more| more.parse().ok()).unwrap_or(0);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions + more);
    model.max_branches = STEPS_MAX;
    let course = Arc::new(course);
    IS_MODEL.set(true);
    let _running = Running;
    model.check(move || {
        atomics::begin();
        let course = Arc::clone(&course);
        // The stack of the first thread is too small for it.
        spawn(move || course()).join();
        atomics::end();
    });
}

/// A thread of a model.
#[must_use = "a course ends with its threads"]
pub struct Thread<T>(loom::thread::JoinHandle<T>);

/// Begins another thread, of which a course can have three beside its own.
///
/// # Panics
/// Outside a model, and when there are too many.
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Thread<T> {
    let thread = loom::thread::Builder::new().stack_size(STACK_WORDS).spawn(work);
    Thread(thread.expect("a thread of the model"))
}

impl<T> Thread<T> {
    /// Waits for its end.
    ///
    /// # Panics
    /// If it has.
    pub fn join(self) -> T {
        self.0.join().expect("no panic in the thread")
    }
}
