//! Health of a directory: errors are counted, complained about now and then, and repeated ones take
//! it out of service.

use std::fmt::Display;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// After this many I/O errors without a success between them, the directory is taken out of
/// service.
pub(crate) const ERRORS_TO_DOWN: u32 = 10;

/// The same complaint is logged once in this many seconds.
const COMPLAINT_INTERVAL_S: i64 = 60;

/// The reason of [`SchemeError::Busy`](humboldt_store::scheme::SchemeError::Busy) when the file
/// system has no room.
pub(crate) const DISK_FULL: &str = "disk full";

/// The subject of a complaint.
#[derive(Copy, Clone)]
enum Subject {
    Device,
    Room,
    Contents,
}

/// Counts errors and decides when it is enough.
#[derive(Default)]
pub(crate) struct Health {
    in_a_row: AtomicU32,
    errors: AtomicU64,
    is_down: AtomicBool,
    /// When the last complaint about each [`Subject`] was logged; unix seconds.
    last_complaint_s: [AtomicI64; 3],
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
        if self.in_a_row.load(Ordering::Relaxed) != 0 {
            self.in_a_row.store(0, Ordering::Relaxed);
        }
    }

    /// Something read from `path` did not verify: an error to count, but the disk did as it was
    /// told.
    pub(crate) fn corrupt(&self, path: impl Display, why: impl Display) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        if self.may_complain(Subject::Contents) {
            tracing::warn!("{path}: an object does not verify ({why}), it is dropped");
        }
    }

    /// The operating system refused `operation` on `path`. A full disk is no reason to give up
    /// reading.
    pub(crate) fn failure(&self, operation: &str, path: impl Display, error: &io::Error) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        if is_disk_full(error) {
            if self.may_complain(Subject::Room) {
                tracing::warn!("no space for {path}: storing less than configured");
            }
            return;
        }
        let in_a_row = self.in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
        if self.may_complain(Subject::Device) {
            tracing::warn!("{operation} {path}: {error}");
        }
        if in_a_row >= ERRORS_TO_DOWN {
            self.give_up(path, format_args!("{in_a_row} errors in a row"));
        }
    }

    /// Takes the directory out of service.
    pub(crate) fn give_up(&self, path: impl Display, why: impl Display) {
        if !self.is_down.swap(true, Ordering::Relaxed) {
            tracing::error!("{path}: {why}, this cache_dir is out of service");
        }
    }

    fn may_complain(&self, subject: Subject) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let last_s = &self.last_complaint_s[subject as usize];
        let is_due = now_s - last_s.load(Ordering::Relaxed) >= COMPLAINT_INTERVAL_S;
        if is_due {
            last_s.store(now_s, Ordering::Relaxed);
        }
        is_due
    }
}

/// Whether the file system, or a quota, has no room.
pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_in_a_row_take_a_directory_down_and_a_full_disk_is_none() {
        let health = Health::default();
        let error = io::Error::from(io::ErrorKind::InvalidInput);
        (1..ERRORS_TO_DOWN).for_each(|_| health.failure("read", "x", &error));
        health.success();
        (1..ERRORS_TO_DOWN).for_each(|_| health.failure("read", "x", &error));
        (1..100).for_each(|_| health.failure("write", "x", &io::ErrorKind::StorageFull.into()));
        assert!(!health.is_down());
        health.failure("read", "x", &error);
        assert!(health.is_down() && health.errors() == 118);
    }
}
