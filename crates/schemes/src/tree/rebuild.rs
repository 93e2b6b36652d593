//! The state of finding the stored objects (`refill.rs`), for those who store and remove meanwhile.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use humboldt_store::index::IndexKey;
use parking_lot::Mutex;
use rustix::io::Errno;

use super::log::{FoundLog, LogHeader, RECORD_BYTES};
use crate::simulated::Background;

/// A log of up to this many records is read while the directory is opened (some tenths of a
/// second).
const INLINE_RECORDS_MAX: u64 = 262_144;
/// Removals remembered during a rebuild; beyond it, further ones are refused.
const FORGOTTEN_MAX: usize = 1 << 20;

const READING: u8 = 0;
pub(super) const SEARCHING: u8 = 1;
const DONE: u8 = 2;

/// The next work.
pub(crate) enum Job {
    /// Read the log.
    ReadLog(ReadLog),
    /// Look at all files that the index does not have.
    Search,
    /// Unlink all files that the index does not have.
    UnlinkStrays,
}

/// A log to be read.
pub(crate) struct ReadLog {
    pub(super) file: OwnedFd,
    pub(super) header: LogHeader,
    pub(super) len: u64,
    pub(super) is_clean: bool,
}

impl ReadLog {
    pub(crate) fn new(found: &FoundLog) -> Result<Self, Errno> {
        let file = rustix::io::fcntl_dupfd_cloexec(&found.file, 0)?;
        Ok(Self { file, header: found.header, len: found.len, is_clean: found.is_clean })
    }

    pub(super) fn is_short(&self) -> bool {
        self.len / RECORD_BYTES as u64 <= INLINE_RECORDS_MAX
    }
}

/// State of the rebuild.
pub(crate) struct Rebuild {
    pub(super) phase: AtomicU8,
    percent: AtomicU8,
    is_stopped: AtomicBool,
    /// There are object files that neither index nor log knows: perhaps, before all directories
    /// have been looked at; and if some could not be unlinked, or not be read.
    pub(super) may_have_strays: AtomicBool,
    has_strays: AtomicBool,
    /// Keys that must not be found again: removed since the rebuild began.
    pub(super) forgotten: Mutex<HashSet<IndexKey>>,
    pub(super) job: Mutex<Option<Job>>,
    pub(super) thread: Mutex<Option<Background>>,
}

impl Rebuild {
    /// With nothing to do, the rebuild is done.
    pub(crate) fn new(job: Option<Job>) -> Self {
        Self {
            phase: AtomicU8::new(if job.is_none() { DONE } else { READING }),
            percent: AtomicU8::new(0),
            is_stopped: AtomicBool::new(false),
            may_have_strays: AtomicBool::new(job.is_some()),
            has_strays: AtomicBool::new(false),
            forgotten: Mutex::default(),
            job: Mutex::new(job),
            thread: Mutex::new(None),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.phase.load(Ordering::Acquire) == DONE
    }

    /// Whether there may be object files that neither index nor log knows: if the log were damaged,
    /// a search would find them.
    pub(crate) fn has_strays(&self) -> bool {
        self.may_have_strays.load(Ordering::Acquire) || self.has_strays.load(Ordering::Acquire)
    }

    /// A file could not be unlinked or read.
    pub(crate) fn left_a_stray(&self) {
        self.has_strays.store(true, Ordering::Release);
    }

    /// Whether the free file numbers are known.
    pub(crate) fn may_store(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= SEARCHING
    }

    /// Progress of the work: 100 when all is done.
    pub(crate) fn percent(&self) -> u8 {
        if self.is_done() { 100 } else { self.percent.load(Ordering::Relaxed).min(99) }
    }

    /// Whether no more removals can be remembered.
    pub(crate) fn is_memory_full(&self) -> bool {
        self.forgotten.lock().len() >= FORGOTTEN_MAX
    }

    /// Does `removal` of `key` in such a way that the rebuild cannot bring the key back.
    pub(crate) fn forget_while<T>(&self, key: IndexKey, removal: impl FnOnce() -> T) -> T {
        if self.is_done() {
            return removal();
        }
        let mut forgotten = self.forgotten.lock();
        if !self.is_done() {
            forgotten.insert(key);
        }
        removal()
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    pub(super) fn set_percent(&self, done: u64, of: u64) {
        let percent = done.saturating_mul(100) / of.max(1);
        self.percent.store(percent.min(99) as u8, Ordering::Relaxed);
    }

    pub(super) fn set_done(&self) {
        let mut forgotten = self.forgotten.lock();
        *forgotten = HashSet::new();
        self.phase.store(DONE, Ordering::Release);
    }

    /// Stops the thread, if there is one, and waits for its end.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the rebuild of a cache_dir failed");
        }
    }
}
