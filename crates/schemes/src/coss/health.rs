//! Counts errors, decides when it is enough, and keeps the log quiet.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// After this many I/O errors without a success between them, the store is taken out of service.
const ERRORS_TO_DOWN: u32 = 10;

/// The same kind of complaint is logged once in this many seconds.
const COMPLAINT_INTERVAL_S: i64 = 60;

/// Errors since the start.
#[derive(Default)]
pub(super) struct Health {
    in_a_row: AtomicU32,
    errors: AtomicU64,
    is_down: AtomicBool,
    /// When the last complaint about I/O, and about contents, was logged; unix seconds.
    last_complaint_s: [AtomicI64; 2],
}

impl Health {
    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    pub(super) fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// An operation went well.
    pub(super) fn success(&self) {
        if self.in_a_row.load(Ordering::Relaxed) != 0 {
            self.in_a_row.store(0, Ordering::Relaxed);
        }
    }

    /// Something read did not verify: an error to count, but the disk did as it was told.
    pub(super) fn corrupt(&self, path: &Path, why: &str) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        if self.may_complain(1) {
            tracing::warn!("{}: an object does not verify ({why}), it is dropped", path.display());
        }
    }

    /// The operating system refused `operation`. A full disk is no reason to give up what can still be read.
    pub(super) fn failure(&self, operation: &str, path: &Path, error: &io::Error) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        if self.may_complain(0) {
            tracing::warn!("{operation} {}: {error}", path.display());
        }
        if [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded].contains(&error.kind()) {
            return;
        }
        let in_a_row = self.in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
        if in_a_row >= ERRORS_TO_DOWN {
            self.give_up(path, &format!("{in_a_row} errors in a row"));
        }
    }

    /// Takes the store out of service.
    pub(super) fn give_up(&self, path: &Path, why: &str) {
        if !self.is_down.swap(true, Ordering::Relaxed) {
            tracing::error!("{}: {why}, this cache_dir is out of service", path.display());
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
    fn only_errors_in_a_row_take_a_store_down() {
        let (health, path) = (Health::default(), Path::new("x"));
        let error = io::Error::from(io::ErrorKind::InvalidInput);
        (1..ERRORS_TO_DOWN).for_each(|_| health.failure("read", path, &error));
        health.success();
        (1..ERRORS_TO_DOWN).for_each(|_| health.failure("read", path, &error));
        (1..100).for_each(|_| health.failure("write", path, &io::ErrorKind::StorageFull.into()));
        assert!(!health.is_down());
        health.failure("read", path, &error);
        assert!(health.is_down() && health.errors() == 118);
    }
}
