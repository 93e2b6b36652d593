//! Health of a directory: repeated errors take it out of service.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

/// After this many I/O errors without a success between them, the directory is taken out of service.
pub(crate) const ERRORS_TO_DOWN: u32 = 10;

/// The same complaint is logged once in this many seconds.
const COMPLAINT_INTERVAL_S: i64 = 60;

/// Counts errors and decides when it is enough.
#[derive(Default)]
pub(crate) struct Health {
    consecutive_errors: AtomicU32,
    errors: AtomicU64,
    is_down: AtomicBool,
    /// When the last complaint about errors, and about a full disk, was logged; unix seconds.
    last_complaint_s: [AtomicI64; 2],
}

impl Health {
    pub(crate) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// An operation on the disk went well.
    pub(crate) fn success(&self) {
        if self.consecutive_errors.load(Ordering::Relaxed) != 0 {
            self.consecutive_errors.store(0, Ordering::Relaxed);
        }
    }

    /// Something read did not verify: an error to count, but the disk did as it was told.
    pub(crate) fn corrupt(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    /// The operating system refused `operation` on `path`.
    pub(crate) fn failure(&self, operation: &str, path: &str, error: Errno) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let in_a_row = self.consecutive_errors.fetch_add(1, Ordering::Relaxed) + 1;
        if self.may_complain(0) {
            tracing::warn!("{operation} {path}: {error}");
        }
        if in_a_row >= ERRORS_TO_DOWN && !self.is_down.swap(true, Ordering::Relaxed) {
            tracing::error!("{path}: {in_a_row} errors in a row, this cache_dir is out of service");
        }
    }

    /// The directory is of no use, for a reason that has been logged.
    pub(crate) fn give_up(&self, path: &str) {
        if !self.is_down.swap(true, Ordering::Relaxed) {
            tracing::error!("{path}: this cache_dir is out of service");
        }
    }

    /// There is no room on the disk for `path`.
    pub(crate) fn disk_full(&self, path: &str) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        if self.may_complain(1) {
            tracing::warn!("no space for {path}: storing less than configured");
        }
    }

    fn may_complain(&self, subject: usize) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let last_s = self.last_complaint_s[subject].load(Ordering::Relaxed);
        let is_due = now_s - last_s >= COMPLAINT_INTERVAL_S;
        if is_due {
            self.last_complaint_s[subject].store(now_s, Ordering::Relaxed);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_in_a_row_take_a_directory_down() {
        let health = Health::default();
        (1..ERRORS_TO_DOWN).for_each(|_| health.failure("read", "x", Errno::IO));
        health.success();
        (1..ERRORS_TO_DOWN).for_each(|_| health.failure("read", "x", Errno::IO));
        assert!(!health.is_down());
        health.failure("read", "x", Errno::IO);
        assert!(health.is_down());
    }
}
