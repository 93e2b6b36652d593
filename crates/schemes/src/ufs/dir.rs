//! One open cache directory: the state that readers, writers, eviction and the rebuild share.
//!
//! Two rules keep index, log and files together, whatever runs at the same time:
//!
//! - Changes of one key are made, and logged, under its key lock (one of [`KEY_LOCKS`]), so that their order in the log is
//!   the order in the index. Taking the oldest object out of the index needs no lock; logging its removal does.
//! - A file number is given back only when its file is unlinked and its removal (or its replacement) is in the log.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use humboldt_store::Key;
use humboldt_store::index::{FileEntry, FileIndex, IndexKey};
use humboldt_store::scheme::{SchemeError, SchemeStats};
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;

use super::files::Tree;
use super::format::{Corrupt, UNIT_BYTES};
use super::log::{LogRecord, NO_FILE, SwapLog};
use super::numbers::Numbers;
use super::rebuild::Rebuild;
use super::space::{Health, Space};
use crate::DirOptions;

/// Number of key locks.
const KEY_LOCKS: usize = 64;

/// Most objects evicted at once to make room for one that is to be, or has just been, stored.
const EVICTIONS_PER_STORE: usize = 64;

/// Most objects evicted by one call of `maintain`.
const EVICTIONS_PER_ROUND: u64 = 4096;

/// Objects whose log records one call of `maintain` rewrites, about.
const REWRITE_OBJECTS_PER_ROUND: usize = 32_768;

/// Flag in the index: a Vary list.
pub(crate) const FLAG_VARY: u8 = 1;
/// Flag in the index: a part of the body is missing, or its length is not known.
pub(crate) const FLAG_PARTIAL: u8 = 2;

/// Counters since the start.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    evictions: AtomicU64,
}

/// An open cache directory.
pub(crate) struct Dir {
    pub(crate) options: DirOptions,
    pub(crate) tree: Tree,
    pub(crate) index: FileIndex,
    pub(crate) log: SwapLog,
    pub(crate) space: Space,
    pub(crate) health: Health,
    pub(crate) rebuild: Rebuild,
    pub(crate) counts: Counts,
    numbers: Mutex<Numbers>,
    key_locks: [Mutex<()>; KEY_LOCKS],
    open_files: AtomicU32,
    is_closed: AtomicBool,
    /// Holds the lock on the directory until it is closed.
    lock: Mutex<Option<OwnedFd>>,
}

/// Length in bytes of the file of an index entry.
pub(crate) fn file_bytes(entry: FileEntry) -> u64 {
    u64::from(entry.size_units) * UNIT_BYTES as u64
}

impl Dir {
    pub(crate) fn new(
        options: DirOptions,
        tree: Tree,
        lock: OwnedFd,
        log: SwapLog,
        rebuild: Rebuild,
        fs_block_bytes: u64,
    ) -> Self {
        Self {
            space: Space::new(&options, fs_block_bytes),
            index: FileIndex::sized(options.policy, options.objects_expected()),
            options,
            tree,
            log,
            rebuild,
            health: Health::default(),
            counts: Counts::default(),
            numbers: Mutex::default(),
            key_locks: std::array::from_fn(|_| Mutex::new(())),
            open_files: AtomicU32::new(0),
            is_closed: AtomicBool::new(false),
            lock: Mutex::new(Some(lock)),
        }
    }

    /// The lock under which changes of this key are made and logged.
    pub(crate) fn lock_key(&self, key: IndexKey) -> MutexGuard<'_, ()> {
        self.key_locks[key.to_bytes()[0] as usize % KEY_LOCKS].lock()
    }

    /// The set of taken file numbers.
    pub(crate) fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock()
    }

    /// Whether it can be used at all.
    pub(crate) fn in_service(&self) -> Result<(), SchemeError> {
        if self.health.is_down() || self.is_closed.load(Ordering::Acquire) {
            return Err(SchemeError::Down);
        }
        Ok(())
    }

    /// Nothing is stored or read from now on.
    pub(crate) fn set_closed(&self) -> bool {
        self.is_closed.swap(true, Ordering::AcqRel)
    }

    /// Path of a file for messages.
    pub(crate) fn display(&self, file: u32) -> String {
        let path: PathBuf = self.options.path.join(self.tree.name(file).as_str());
        path.display().to_string()
    }

    /// Turns what the system said about file `file` into the error for the caller, and counts it.
    pub(crate) fn failed(&self, operation: &str, file: u32, error: Errno) -> SchemeError {
        match error {
            Errno::NOSPC | Errno::DQUOT => {
                self.space.disk_is_full();
                self.health.disk_full(&self.display(file));
                SchemeError::Busy("disk full")
            }
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => SchemeError::Busy("no descriptors or memory"),
            error => {
                let path = self.display(file);
                self.health.failure(operation, &path, error);
                SchemeError::Io { operation: format!("{operation} {path}"), source: error.into() }
            }
        }
    }

    /// Counts one more open file, unless there are too many.
    pub(crate) fn count_open_file(&self) -> Result<(), SchemeError> {
        let open = self.open_files.fetch_add(1, Ordering::Relaxed);
        if self.options.max_open_files != 0 && open >= self.options.max_open_files {
            self.open_files.fetch_sub(1, Ordering::Relaxed);
            return Err(SchemeError::Busy("max_open_disk_fds"));
        }
        Ok(())
    }

    /// One file less is open.
    pub(crate) fn count_closed_file(&self) {
        self.open_files.fetch_sub(1, Ordering::Relaxed);
    }

    /// Makes a written file the object of `key`. Its bytes are counted already.
    pub(crate) fn publish(&self, key: IndexKey, entry: FileEntry) {
        let replaced = {
            let _order = self.lock_key(key);
            let replaced = self.index.insert(key, entry);
            self.log.append(self.tree.root(), LogRecord::Add(key, entry));
            replaced
        };
        if let Some(old) = replaced {
            self.release(old);
        }
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        if self.rebuild.is_done() {
            for _ in 0..EVICTIONS_PER_STORE {
                if !self.space.is_above_high() || !self.evict_one() {
                    break;
                }
            }
        }
    }

    /// Evicts until a file of `file_bytes` has room; `false` if that would take too long.
    pub(crate) fn make_room(&self, file_bytes: u64) -> bool {
        for _ in 0..EVICTIONS_PER_STORE {
            if self.space.has_room(file_bytes) {
                return true;
            }
            if !self.rebuild.is_done() || !self.evict_one() {
                return false;
            }
        }
        self.space.has_room(file_bytes)
    }

    /// Drops what `key` has in file `entry.file`, if it is still there: the file is missing or does not verify.
    pub(crate) fn drop_bad(&self, key: IndexKey, entry: FileEntry) {
        self.health.corrupt();
        self.rebuild.forget_while(key, || {
            if let Some(entry) = self.index.remove_if(key, entry.file) {
                self.retire(key, entry);
            }
        });
    }

    /// Removes a key: neither a reader nor a crash brings it back.
    pub(crate) fn remove(&self, key: &Key) -> Result<bool, SchemeError> {
        self.in_service()?;
        let key = IndexKey::from(key);
        if self.rebuild.is_done() {
            return Ok(self.purge(key));
        }
        if self.rebuild.is_memory_full() {
            return Err(SchemeError::Busy("too many removals during the rebuild"));
        }
        self.rebuild.forget_while(key, || {
            let was_there = self.purge(key);
            if !was_there {
                let _order = self.lock_key(key);
                self.log.append(self.tree.root(), LogRecord::Remove(key, NO_FILE));
            }
            self.log.flush(self.tree.root()).map_err(|e| self.failed("log removal of", 0, e))?;
            Ok(was_there)
        })
    }

    fn purge(&self, key: IndexKey) -> bool {
        let Some(entry) = self.index.remove(key) else { return false };
        self.retire(key, entry);
        // A failure is harmless here: the file is gone, and the record is kept for the next flush.
        let _ = self.log.flush(self.tree.root());
        true
    }

    /// Unlinks and logs an object that has just been taken out of the index.
    fn retire(&self, key: IndexKey, entry: FileEntry) {
        let is_unlinked = self.unlink(entry);
        {
            let _order = self.lock_key(key);
            self.log.append(self.tree.root(), LogRecord::Remove(key, entry.file));
        }
        self.give_back(entry, is_unlinked);
    }

    /// Unlinks a file whose key has another one, and gives its number back.
    pub(crate) fn release(&self, entry: FileEntry) {
        let is_unlinked = self.unlink(entry);
        self.give_back(entry, is_unlinked);
    }

    fn unlink(&self, entry: FileEntry) -> bool {
        if self.is_closed.load(Ordering::Acquire) {
            // The number may belong to another object of another instance by now.
            return false;
        }
        let outcome = self.tree.unlink(entry.file);
        outcome.map_err(|error| self.failed("unlink", entry.file, error)).is_ok()
    }

    /// A file that could not be unlinked keeps its number and its bytes until the next start.
    fn give_back(&self, entry: FileEntry, is_unlinked: bool) {
        if is_unlinked {
            self.space.resize(file_bytes(entry), 0);
            self.numbers().give_back(entry.file);
        }
    }

    fn evict_one(&self) -> bool {
        let Some((key, entry)) = self.index.pop_victim() else { return false };
        self.retire(key, entry);
        self.counts.evictions.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// One round of housekeeping.
    pub(crate) fn maintain(&self) {
        let root = self.tree.root();
        let _ = self.log.flush(root); // tried again in the next round
        self.space.recover();
        if !self.rebuild.is_done() {
            return;
        }
        for _ in 0..self.space.eviction_quota().min(EVICTIONS_PER_ROUND) {
            if !self.space.is_above_low() || !self.evict_one() {
                break;
            }
        }
        if self.log.wants_rewrite(self.index.len()) {
            let outcome = self.log.rewrite_some(root, &self.index, REWRITE_OBJECTS_PER_ROUND, false);
            if let Err(error) = outcome {
                tracing::debug!("rewriting the swap log put off: {error}");
            }
        }
    }

    /// Writes a complete log and the mark of a clean stop, then gives the directory free.
    pub(crate) fn close(&self) -> Result<(), Errno> {
        let outcome = self.write_clean_log();
        self.lock.lock().take();
        outcome
    }

    fn write_clean_log(&self) -> Result<(), Errno> {
        let root = self.tree.root();
        if self.health.is_down() || !self.rebuild.is_done() {
            return self.log.flush(root);
        }
        while !self.log.rewrite_some(root, &self.index, usize::MAX, true)? {}
        self.log.mark_clean(root)
    }

    pub(crate) fn stats(&self) -> SchemeStats {
        let index_bytes = self.index.memory_bytes() + self.numbers().memory_bytes();
        SchemeStats {
            objects: self.index.len() as u64,
            used_bytes: self.space.used_bytes(),
            capacity_bytes: self.options.capacity_bytes,
            index_bytes: index_bytes as u64,
            open_files: u64::from(self.open_files.load(Ordering::Relaxed)),
            reads: self.counts.reads.load(Ordering::Relaxed),
            writes: self.counts.writes.load(Ordering::Relaxed),
            evictions: self.counts.evictions.load(Ordering::Relaxed),
            errors: self.health.errors(),
            shed: 0,
            read_ops: 0,
            read_bytes: 0,
            write_ops: 0,
            write_bytes: 0,
            object_bytes: 0,
            rebuild_percent: self.rebuild.percent(),
            down: self.health.is_down(),
        }
    }
}

/// A corrupt record as the caller sees it.
impl From<Corrupt> for SchemeError {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt.0)
    }
}
