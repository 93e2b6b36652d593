//! One open cache directory: the state that readers, writers, eviction and the rebuild share.
//!
//! Rules that keep index, log and files together, whatever runs at the same time and in whatever
//! order an engine ends its operations:
//!
//! - Changes of one key are made, and logged, under its key lock (one of [`KEY_LOCKS`]), so that
//!   their order in the log is the order in the index. Taking the oldest object out of the index
//!   needs no key lock, but that of evictions; logging its removal needs both.
//! - A key whose file is to be unlinked is *leaving* from the moment in which it is taken out of
//!   the index, or gets another file, until the file is gone. Who removes the key waits for that.
//! - A file number is given back only when its file is unlinked and its removal (or its
//!   replacement) is in the log. A new file has its number as long as any operation on it may be
//!   under way ([`super::new_file`]).
//! - No lock is held while an engine is asked, or while bytes go to the log.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use humboldt_store::Key;
use humboldt_store::index::{FileEntry, FileIndex, IndexKey};
use humboldt_store::scheme::{SchemeError, SchemeStats};
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;

use super::blocking::Blocking;
use super::engine::{Engine, EngineError};
use super::files::Tree;
use super::format::{Corrupt, UNIT_BYTES};
use super::log::{LogRecord, NO_FILE, SwapLog};
use super::numbers::Numbers;
use super::rebuild::Rebuild;
use super::space::Space;
use super::waiters::Waiters;
use crate::health::{self, Health};
use crate::lock::Lock;
use crate::overload::Turns;
use crate::{DirOptions, Levels};

/// Number of key locks.
const KEY_LOCKS: usize = 64;

/// Most objects evicted by one call of `maintain`.
const EVICTIONS_PER_ROUND: u64 = 4096;

/// The same while objects are stored: the directory comes to its low water mark all the same, if
/// there are fewer of them than this.
const EVICTIONS_BESIDE_STORES: u64 = 16;

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
    pub(crate) shed: AtomicU64,
    pub(crate) shed_hits: AtomicU64,
    pub(crate) object_bytes: AtomicU64,
    pub(super) evictions: AtomicU64,
    read_ops: AtomicU64,
    read_bytes: AtomicU64,
    write_ops: AtomicU64,
    write_bytes: AtomicU64,
}

impl Counts {
    /// A read from a file returned `bytes`.
    pub(crate) fn read(&self, bytes: usize) {
        self.read_ops.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A write to an object file took `bytes`.
    pub(crate) fn written(&self, bytes: usize) {
        self.write_ops.fetch_add(1, Ordering::Relaxed);
        self.write_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Operations on the keys of one key lock. As many as there are under way.
#[derive(Default)]
pub(crate) struct KeyState {
    /// Keys that have a file which is to be unlinked, once for each such file.
    pub(crate) leaving: Vec<IndexKey>,
    /// Keys whose file is being updated.
    pub(crate) updating: Vec<IndexKey>,
}

/// Takes one `key` out of a list.
pub(crate) fn take_key(keys: &mut Vec<IndexKey>, key: IndexKey) {
    if let Some(at) = keys.iter().position(|other| *other == key) {
        keys.swap_remove(at);
    }
}

/// An open cache directory.
pub(crate) struct Dir {
    pub(crate) options: DirOptions<Levels>,
    pub(crate) tree: Arc<Tree>,
    /// Does file operations for requests.
    pub(crate) engine: Arc<dyn Engine>,
    /// Does them for threads that may block.
    pub(crate) blocking: Arc<Blocking>,
    pub(crate) index: FileIndex,
    pub(crate) log: SwapLog,
    pub(crate) space: Arc<Space>,
    pub(crate) health: Health,
    pub(crate) rebuild: Rebuild,
    pub(crate) counts: Counts,
    /// Something is not leaving, or not being updated, any more.
    pub(crate) changed: Waiters,
    numbers: Mutex<Numbers>,
    key_locks: [Mutex<KeyState>; KEY_LOCKS],
    /// Held from taking a victim out of the index until its removal is in the log.
    pub(super) evicting: Mutex<()>,
    is_flush_queued: AtomicBool,
    /// Objects stored before the last round of upkeep.
    stored_before: AtomicU64,
    /// Objects that wait until files are unlinked.
    pub(super) waiting_for_room: Arc<AtomicUsize>,
    open_files: AtomicU32,
    is_closed: AtomicBool,
    /// Holds the lock on the directory until it is closed.
    lock: Mutex<Option<Lock>>,
}

/// Length in bytes of the file of an index entry.
pub(crate) fn file_bytes(entry: FileEntry) -> u64 {
    u64::from(entry.size_units) * UNIT_BYTES as u64
}

/// Counts as one open file until it is dropped.
pub(crate) struct Permit(Arc<Dir>);

impl Permit {
    /// One more open file, unless there are too many.
    pub(crate) fn take(dir: &Arc<Dir>) -> Result<Self, SchemeError> {
        let open = dir.open_files.fetch_add(1, Ordering::Relaxed);
        let permit = Self(Arc::clone(dir));
        if dir.options.max_open_files != 0 && open >= dir.options.max_open_files {
            return Err(SchemeError::Busy("max_open_disk_fds"));
        }
        Ok(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.open_files.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The steps after the unlinking of a file: its number and its bytes are given back. If it could
/// not be unlinked, it keeps both until the next start.
pub(crate) struct Unlinked {
    dir: Arc<Dir>,
    key: IndexKey,
    number: u32,
    file_bytes: u64,
    outcome: Result<(), EngineError>,
    /// Set when the file could not be unlinked.
    has_failed: Option<Arc<AtomicBool>>,
}

impl Unlinked {
    /// The engine has unlinked the file, or has failed to. Dropping it undone is the same as
    /// [`EngineError::Gone`].
    pub(crate) fn done(mut self, outcome: Result<(), EngineError>) {
        self.outcome = outcome;
    }
}

impl Drop for Unlinked {
    fn drop(&mut self) {
        let dir = &self.dir;
        dir.space.has_left(self.file_bytes);
        match self.outcome {
            Ok(()) => {
                dir.space.resize(self.file_bytes, 0);
                dir.numbers().give_back(self.number);
            }
            Err(error) => {
                if let Some(has_failed) = &self.has_failed {
                    has_failed.store(true, Ordering::Release);
                }
                // A closed engine did not get the operation, and the closing thread takes care of
                // the file.
                if error != EngineError::Gone {
                    dir.rebuild.left_a_stray();
                    dir.failed("unlink", self.number, error);
                    dir.flush_soon(); // the log alone says now that the object is gone
                }
            }
        }
        take_key(&mut dir.lock_key(self.key).leaving, self.key);
        dir.room_has_changed();
    }
}

impl Dir {
    #[allow(clippy::too_many_arguments, reason = "the parts of a directory, made by one function")]
    pub(crate) fn new(
        options: DirOptions<Levels>,
        tree: Arc<Tree>,
        engine: Arc<dyn Engine>,
        lock: Lock,
        log: SwapLog,
        rebuild: Rebuild,
        fs_block_bytes: u64,
    ) -> Self {
        Self {
            space: Arc::new(Space::new(&options, fs_block_bytes)),
            index: FileIndex::sized(options.policy, options.objects_expected()),
            options,
            blocking: Arc::new(Blocking::new(Arc::clone(&tree))),
            tree,
            engine,
            log,
            rebuild,
            health: Health::default(),
            counts: Counts::default(),
            changed: Waiters::default(),
            numbers: Mutex::default(),
            key_locks: std::array::from_fn(|_| Mutex::default()),
            evicting: Mutex::new(()),
            is_flush_queued: AtomicBool::new(false),
            stored_before: AtomicU64::new(0),
            waiting_for_room: Arc::default(),
            open_files: AtomicU32::new(0),
            is_closed: AtomicBool::new(false),
            lock: Mutex::new(Some(lock)),
        }
    }

    /// The lock under which changes of this key are made and logged.
    pub(crate) fn lock_key(&self, key: IndexKey) -> MutexGuard<'_, KeyState> {
        self.key_locks[key.to_bytes()[0] as usize % KEY_LOCKS].lock()
    }

    /// The set of taken file numbers.
    pub(crate) fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock()
    }

    /// Whether it can be used at all.
    pub(crate) fn in_service(&self) -> Result<(), SchemeError> {
        if self.health.is_down() || self.is_closed() {
            return Err(SchemeError::Down);
        }
        Ok(())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Path of a file for messages.
    pub(crate) fn display(&self, file: u32) -> String {
        let path: PathBuf = self.options.path.join(self.tree.name(file).as_str());
        path.display().to_string()
    }

    /// Turns an error of the engine or the system on file `file` into the error for the caller, and
    /// counts it.
    pub(crate) fn failed(
        &self,
        operation: &str,
        file: u32,
        error: impl Into<EngineError>,
    ) -> SchemeError {
        let error = match error.into() {
            EngineError::System(error) => error,
            EngineError::Short => return Corrupt("file is short").into(),
            EngineError::Shed => return self.shed(),
            EngineError::Gone if self.is_closed() => return SchemeError::Down,
            EngineError::Gone => return SchemeError::Busy("what does the I/O has gone"),
        };
        match error {
            Errno::NOSPC | Errno::DQUOT => {
                self.space.disk_is_full(0);
                self.health.failure(operation, self.display(file), &error.into());
                SchemeError::Busy(health::DISK_FULL)
            }
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => {
                SchemeError::Busy("no descriptors, threads or memory")
            }
            error => {
                let path = self.display(file);
                let source = error.into();
                self.health.failure(operation, &path, &source);
                SchemeError::Io { operation: format!("{operation} {path}"), source }
            }
        }
    }

    /// An object is not stored or read, because too much is waiting.
    pub(crate) fn shed(&self) -> SchemeError {
        self.counts.shed.fetch_add(1, Ordering::Relaxed);
        SchemeError::Busy("too many operations are waiting")
    }

    /// Makes a written file the object of `key`. Its bytes are counted already.
    pub(crate) fn publish(
        self: &Arc<Self>,
        key: IndexKey,
        entry: FileEntry,
    ) -> Result<(), SchemeError> {
        let (replaced, wants_flush) = {
            let mut state = self.lock_key(key);
            if self.is_closed() {
                return Err(SchemeError::Down);
            }
            let replaced = self.index.insert(key, entry);
            if replaced.is_some() {
                state.leaving.push(key);
            }
            (replaced, self.log.append(LogRecord::Add(key, entry)))
        };
        self.flush_if(wants_flush);
        if let Some(old) = replaced {
            self.unlink(key, old, None);
        }
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        if self.rebuild.is_done() {
            self.evict_for_store();
        }
        Ok(())
    }

    /// Drops the record of `key` in file `entry.file`, if it is still there: the file is missing or
    /// does not verify.
    pub(crate) fn drop_bad(self: &Arc<Self>, key: IndexKey, entry: FileEntry, why: &str) {
        self.health.corrupt(self.options.path.display(), why);
        let taken = self.rebuild.forget_while(key, || self.take_out(key, Some(entry.file)));
        if let Some((entry, wants_flush)) = taken {
            self.flush_if(wants_flush);
            self.unlink(key, entry, None);
        }
    }

    /// Takes `key` out of the index, if its file is `file` or any will do; logs that, and marks the
    /// key as leaving.
    fn take_out(&self, key: IndexKey, file: Option<u32>) -> Option<(FileEntry, bool)> {
        let mut state = self.lock_key(key);
        let entry = match file {
            Some(file) => self.index.remove_if(key, file)?,
            None => self.index.remove(key)?,
        };
        state.leaving.push(key);
        Some((entry, self.log.append(LogRecord::Remove(key, entry.file))))
    }

    /// Removes a key: neither a reader nor a crash brings it back.
    pub(crate) async fn remove(self: &Arc<Self>, key: &Key) -> Result<bool, SchemeError> {
        self.in_service()?;
        let key = IndexKey::from(key);
        let is_rebuilding = !self.rebuild.is_done();
        if is_rebuilding && self.rebuild.is_memory_full() {
            return Err(SchemeError::Busy("too many removals during the rebuild"));
        }
        let taken = self.rebuild.forget_while(key, || {
            let taken = self.take_out(key, None);
            if taken.is_none() && is_rebuilding {
                let _order = self.lock_key(key);
                self.log.append(LogRecord::Remove(key, NO_FILE));
            }
            taken
        });
        if taken.is_none() && !is_rebuilding {
            // It may just be moving from the index to the leaving files.
            drop(self.evicting.lock());
            if !self.lock_key(key).leaving.contains(&key) && !self.rebuild.has_strays() {
                return Ok(false);
            }
        }
        let has_strays = self.rebuild.has_strays();
        if has_strays {
            self.log_unknown(key);
        }
        let has_failed = Arc::new(AtomicBool::new(false));
        let was_there = taken.is_some();
        if let Some((entry, _)) = taken {
            self.unlink(key, entry, Some(Arc::clone(&has_failed)));
        }
        let mut flushed = self.flush().await;
        self.changed.until(|| (!self.lock_key(key).leaving.contains(&key)).then_some(())).await;
        if self.is_closed() {
            return Err(SchemeError::Down);
        }
        if has_failed.load(Ordering::Acquire) {
            self.log_unknown(key);
            flushed = self.flush().await;
        }
        // If the file is gone, the record may wait for the next flush.
        match flushed {
            Err(error) if is_rebuilding || has_strays || has_failed.load(Ordering::Acquire) => {
                Err(self.failed("log removal of", 0, error))
            }
            _ => Ok(was_there),
        }
    }

    /// Logs that all files of a key are gone, also those that nobody knows.
    fn log_unknown(&self, key: IndexKey) {
        let _order = self.lock_key(key);
        self.log.append(LogRecord::Remove(key, NO_FILE));
    }

    /// Unlinks a file that is not in the index any more, and whose key is marked as leaving; then
    /// gives its number back.
    pub(crate) fn unlink(
        self: &Arc<Self>,
        key: IndexKey,
        entry: FileEntry,
        has_failed: Option<Arc<AtomicBool>>,
    ) {
        self.unlink_file(key, entry.file, file_bytes(entry), has_failed);
    }

    /// The same for a file of `file_bytes` that was never in the index.
    pub(crate) fn unlink_file(
        self: &Arc<Self>,
        key: IndexKey,
        number: u32,
        file_bytes: u64,
        has_failed: Option<Arc<AtomicBool>>,
    ) {
        self.space.is_leaving(file_bytes);
        let outcome = Err(EngineError::Gone);
        let dir = Arc::clone(self);
        self.engine.unlink(number, Unlinked { dir, key, number, file_bytes, outcome, has_failed });
    }

    /// One round of housekeeping.
    pub(crate) async fn maintain(self: &Arc<Self>) {
        if self.engine.blocks() {
            return self.maintain_now();
        }
        let dir = Arc::clone(self);
        let round = self.engine.later(Box::new(move || {
            dir.maintain_now();
            Ok(())
        }));
        let _ = round.await; // closed meanwhile
    }

    fn maintain_now(self: &Arc<Self>) {
        let root = self.tree.root();
        let _ = self.log.flush(root); // tried again in the next round
        self.space.recover();
        if !self.rebuild.is_done() {
            return;
        }
        let stored = self.counts.writes.load(Ordering::Relaxed);
        let were_stores = self.stored_before.swap(stored, Ordering::Relaxed) != stored;
        // Stores evict for themselves, one by one: for all of its second, a round would hold up
        // everything else.
        let quota = match were_stores && !self.space.is_above_high() {
            true => EVICTIONS_BESIDE_STORES,
            false => self.space.eviction_quota(),
        };
        for _ in 0..quota.min(EVICTIONS_PER_ROUND) {
            if !self.space.is_above_low() || !self.evict_one() {
                break;
            }
        }
        if self.log.wants_rewrite(self.index.len()) {
            let outcome =
                self.log.rewrite_some(root, &self.index, REWRITE_OBJECTS_PER_ROUND, false);
            if let Err(error) = outcome {
                tracing::debug!("rewriting the swap log put off: {error}");
            }
        }
    }

    pub(crate) fn flush_if(self: &Arc<Self>, wants_flush: bool) {
        if wants_flush {
            self.flush_soon();
        }
    }

    /// Writes the log soon, where blocking is allowed. Failed writes are tried again with the next
    /// records.
    fn flush_soon(self: &Arc<Self>) {
        if self.engine.blocks() {
            let _ = self.log.flush(self.tree.root());
        } else if !self.is_flush_queued.swap(true, Ordering::AcqRel) {
            let dir = Arc::clone(self);
            drop(self.engine.later(Box::new(move || {
                dir.is_flush_queued.store(false, Ordering::Release);
                Ok(dir.log.flush(dir.tree.root())?)
            })));
        }
    }

    /// Writes the log.
    async fn flush(self: &Arc<Self>) -> Result<(), EngineError> {
        if self.engine.blocks() {
            return Ok(self.log.flush(self.tree.root())?);
        }
        let dir = Arc::clone(self);
        self.engine.later(Box::new(move || Ok(dir.log.flush(dir.tree.root())?))).await
    }

    /// Stops everything, writes a complete log and the mark of a clean stop, then gives the
    /// directory free.
    pub(crate) fn close(&self) -> Result<(), Errno> {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // A holder of one of these has not seen yet that it is closed; all others will.
        self.key_locks.iter().for_each(|lock| drop(lock.lock()));
        self.rebuild.stop();
        self.engine.close();
        let outcome = self.write_clean_log();
        self.log.seal();
        self.lock.lock().take();
        outcome
    }

    fn write_clean_log(&self) -> Result<(), Errno> {
        let root = self.tree.root();
        if self.health.is_down() || !self.rebuild.is_done() {
            return self.log.flush(root);
        }
        self.unlink_unknown();
        while !self.log.rewrite_some(root, &self.index, usize::MAX, true)? {}
        self.log.mark_clean(root)
    }

    /// Unlinks the files that are not in the index: those of writers that were not committed, and
    /// those that were to be unlinked. After a clean stop no search for them is made.
    fn unlink_unknown(&self) {
        let mut unknown = self.numbers().clone();
        let mut objects = Vec::new();
        for shard in 0..FileIndex::SHARDS {
            objects.clear();
            self.index.snapshot(shard, &mut objects);
            objects.iter().for_each(|(_, entry)| unknown.give_back(entry.file));
        }
        for number in unknown.iter() {
            if let Err(error) = self.tree.unlink(number) {
                self.failed("unlink", number, error);
            }
        }
    }

    pub(crate) fn stats(&self) -> SchemeStats {
        let index_bytes = self.index.memory_bytes() + self.numbers().memory_bytes();
        let counts = &self.counts;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (log_writes, log_bytes) = self.log.written();
        let turns = self.engine.turns();
        SchemeStats {
            objects: self.index.len() as u64,
            used_bytes: self.space.used_bytes(),
            capacity_bytes: self.options.capacity_bytes,
            index_bytes: index_bytes as u64,
            open_files: u64::from(self.open_files.load(Ordering::Relaxed)),
            reads: load(&counts.reads),
            writes: load(&counts.writes),
            evictions: load(&counts.evictions),
            errors: self.health.errors(),
            shed: load(&counts.shed) + turns.map_or(0, Turns::late_hits),
            shed_hits: load(&counts.shed_hits) + turns.map_or(0, Turns::late_hits),
            waits: turns.map_or(0, Turns::waits),
            read_ops: load(&counts.read_ops),
            read_bytes: load(&counts.read_bytes),
            write_ops: load(&counts.write_ops) + log_writes,
            write_bytes: load(&counts.write_bytes) + log_bytes,
            object_bytes: load(&counts.object_bytes),
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
