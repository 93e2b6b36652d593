//! Doubts whether recovery could find what the index does not have.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts what left the index without a line in the log of removals, and removals that could not be
/// logged.
///
/// Who takes something out of the index counts it **under the lock that the removal needs**:
/// whoever does not find it there sees the doubt, and a checkpoint that writes it does not settle
/// that.
#[derive(Default)]
pub(crate) struct Doubts {
    counted: AtomicU64,
    /// So many of them the newest checkpoint has settled.
    settled: AtomicU64,
}

impl Doubts {
    /// Something is missing in the index, and no log says so.
    pub(crate) fn count(&self) {
        self.counted.fetch_add(1, Ordering::AcqRel);
    }

    /// What a checkpoint that begins now settles when it is complete.
    pub(crate) fn counted(&self) -> u64 {
        self.counted.load(Ordering::Acquire)
    }

    /// A checkpoint is complete that began with so many.
    pub(crate) fn settle(&self, counted: u64) {
        self.settled.store(counted, Ordering::Release);
    }

    /// Whether there are any that no checkpoint has settled.
    pub(crate) fn are_any(&self) -> bool {
        let settled = self.settled.load(Ordering::Acquire);
        self.counted.load(Ordering::Acquire) != settled
    }
}
