//! Doubts whether recovery could find objects that the index does not have.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts entries that left the index without a line in the log of removals, and removals that
/// could not be logged.
///
/// Code that takes an entry out of the index counts it **under the lock that the removal needs**: a
/// removal that does not find the key there sees the doubt, and a checkpoint that writes the key
/// does not settle it.
#[derive(Default)]
pub(crate) struct Doubts {
    counted: AtomicU64,
    /// This many of them the newest checkpoint has settled.
    settled: AtomicU64,
}

impl Doubts {
    /// A key is missing in the index, and no log has its removal.
    pub(crate) fn count(&self) {
        self.counted.fetch_add(1, Ordering::AcqRel);
    }

    /// The doubts that a checkpoint that begins now settles when it is complete.
    pub(crate) fn counted(&self) -> u64 {
        self.counted.load(Ordering::Acquire)
    }

    /// A checkpoint that began with this count is complete.
    pub(crate) fn settle(&self, counted: u64) {
        self.settled.store(counted, Ordering::Release);
    }

    /// Whether there are doubts that no checkpoint has settled.
    pub(crate) fn are_any(&self) -> bool {
        let settled = self.settled.load(Ordering::Acquire);
        self.counted.load(Ordering::Acquire) != settled
    }
}
