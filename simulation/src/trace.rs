//! The course of a simulation: its hash, which tells two courses apart, and its lines on demand.

use std::cell::{Cell, RefCell};
use std::hash::Hasher;

use twox_hash::XxHash3_64;

thread_local! {
    static IS_SHOWN: Cell<bool> = const { Cell::new(false) };
    static HASH: RefCell<XxHash3_64> = RefCell::new(XxHash3_64::new());
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Shows the lines on standard error.
pub(crate) fn show() {
    IS_SHOWN.set(true);
}

/// An event, with its time.
pub(crate) fn line(text: impl FnOnce() -> String) {
    let text = format!("{:>9} {}", crate::clock::elapsed_ms(), text());
    HASH.with_borrow_mut(|hash| hash.write(text.as_bytes()));
    COUNT.set(COUNT.get() + 1);
    if IS_SHOWN.get() {
        #[expect(clippy::print_stderr, reason = "asked for on the command line")]
        {
            eprintln!("{text}");
        }
    }
}

/// How many events there were, and their hash.
pub(crate) fn sum() -> (u64, u64) {
    (COUNT.get(), HASH.with_borrow(XxHash3_64::finish))
}
