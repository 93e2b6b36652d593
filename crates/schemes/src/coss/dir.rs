//! One open store: the state that readers, writers, the worker and the rebuild share.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use humboldt_runtime::mailbox::Waiting;
use humboldt_store::Key;
use humboldt_store::index::{FileEntry, FileIndex, IndexKey};
use humboldt_store::scheme::{SchemeError, SchemeStats};
use parking_lot::{Mutex, RwLock};

use super::data::DataFile;
use super::format::{Purge, STRIPE_BYTES, StripeName, Superblock};
use super::geometry::Geometry;
use super::purges::Fate;
use super::record::{Decoded, Encoded};
use super::stripes::{Condition, Filling, Log, Membuf, Step};
use crate::health::Health;
use crate::overload::{Room, Turns};
use crate::share::Share;
use crate::simulated::{Background, Bell};
use crate::{CossOptions, DirOptions};

/// Most bytes of objects in the hands of readers and writers at a time.
const IN_HAND_BYTES_MAX: u64 = 64 << 20;

/// Where memory is short they take this part of the directory's share of it.
const IN_HAND_SHARE: u64 = 2;

/// Lower bound of that part: sixteen objects of the longest. Stores begin only while less than half
/// of it is taken.
const IN_HAND_BYTES_LEAST: u64 = 16 << 20;

/// With more than this part of it in the hands of both, nothing more is stored: hits outlast
/// stores.
const STORED_PART: u64 = 2;

/// Most bytes of objects in the hands of readers and writers of a directory with this part of the
/// memory.
fn in_hand_bytes_max(part_bytes: u64) -> u64 {
    (part_bytes / IN_HAND_SHARE).clamp(IN_HAND_BYTES_LEAST, IN_HAND_BYTES_MAX)
}

/// Counters since the start.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) reads: AtomicU64,
    pub(super) writes: AtomicU64,
    pub(super) shed: AtomicU64,
    pub(super) shed_hits: AtomicU64,
    pub(super) object_bytes: AtomicU64,
    pub(super) relocations: AtomicU64,
    evictions: AtomicU64,
}

/// The remaining work before the index is complete.
pub(super) struct Job {
    pub(super) kind: JobKind,
    /// All that the purge log said when the store was opened.
    pub(super) purges: Vec<Purge>,
}

/// The source of the index.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum JobKind {
    /// There is nothing.
    Nothing,
    /// From the snapshot.
    Load,
    /// From the stripes.
    Scan,
}

/// An open store.
pub(super) struct Dir {
    pub(super) options: DirOptions<CossOptions>,
    pub(super) geometry: Geometry,
    pub(super) data: DataFile,
    pub(super) id: u64,
    /// The superblock as the store was opened with; the rebuild reads the data that it describes.
    pub(super) found: Superblock,
    pub(super) index: FileIndex,
    pub(super) health: Health,
    pub(super) counts: Counts,
    /// Those who wait until a stripe is written.
    pub(super) turns: Turns,
    pub(super) log: Mutex<Log>,
    /// The worker has something to do.
    pub(super) work: Bell,
    /// Stripes in memory by slot.
    pub(super) memory: RwLock<HashMap<u32, Arc<Membuf>>>,
    /// Sequence number of each slot, 0 for an empty one; also of slots that the size configured no
    /// longer has.
    seqs: Box<[AtomicU64]>,
    used_bytes: AtomicU64,
    in_hand_bytes: AtomicU64,
    /// What the directory may have of the memory.
    pub(super) share: Arc<Share>,
    full_stripes: Arc<AtomicUsize>,
    /// The remaining work before the index is complete.
    pub(super) job: Mutex<Option<Job>>,
    is_rebuilt: AtomicBool,
    percent: AtomicU8,
    is_closed: AtomicBool,
    is_stopping: AtomicBool,
    pub(super) worker: Mutex<Option<Background>>,
    pub(super) has_worker: AtomicBool,
    lock: Mutex<Option<File>>,
}

/// Bytes in the hands of a reader or writer.
pub(super) struct Hold {
    dir: Arc<Dir>,
    bytes: u64,
    /// Most bytes of all.
    bytes_max: u64,
}

impl Hold {
    /// Bytes of an object that is read.
    pub(super) fn to_read(dir: &Arc<Dir>, bytes: u64) -> Result<Self, SchemeError> {
        Self::new(dir, bytes, in_hand_bytes_max(dir.share.part_bytes())).inspect_err(|_| {
            dir.counts.shed_hits.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// Bytes of an object that is stored.
    pub(super) fn to_store(dir: &Arc<Dir>, bytes: u64) -> Result<Self, SchemeError> {
        Self::new(dir, bytes, in_hand_bytes_max(dir.share.part_bytes()) / STORED_PART)
    }

    fn new(dir: &Arc<Dir>, bytes: u64, bytes_max: u64) -> Result<Self, SchemeError> {
        let mut hold = Self { dir: Arc::clone(dir), bytes: 0, bytes_max };
        hold.grow_to(bytes)?;
        Ok(hold)
    }

    /// Counts more; `Busy` beyond the bound of the store.
    pub(super) fn grow_to(&mut self, bytes: u64) -> Result<(), SchemeError> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        if self.dir.in_hand_bytes.fetch_add(more, Ordering::Relaxed) + more > self.bytes_max {
            self.dir.in_hand_bytes.fetch_sub(more, Ordering::Relaxed);
            return Err(self.dir.shed("too many objects in hand"));
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.dir.in_hand_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Dir {
    pub(super) fn new(
        options: DirOptions<CossOptions>,
        geometry: Geometry,
        data: DataFile,
        lock: File,
        found: Superblock,
        log: Log,
        job: Job,
    ) -> Self {
        let slots = found.stripes.max(geometry.stripes);
        let full_stripes = Arc::<AtomicUsize>::default();
        // Half of those with which nothing is stored any more.
        let (full, half) = (Arc::clone(&full_stripes), geometry.full_max.div_ceil(2));
        let bytes = |stripes: usize| (stripes * STRIPE_BYTES) as u64;
        let room = move || Room::beside(bytes(full.load(Ordering::Relaxed)), bytes(half));
        Self {
            index: FileIndex::sized(options.policy, options.objects_expected()),
            turns: Turns::new(options.own.overload, options.capacity_bytes, room),
            options,
            geometry,
            data,
            id: found.id,
            found,
            health: Health::default(),
            counts: Counts::default(),
            log: Mutex::new(log),
            work: Bell::default(),
            memory: RwLock::default(),
            seqs: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            used_bytes: AtomicU64::new(0),
            in_hand_bytes: AtomicU64::new(0),
            share: Arc::new(Share::new()),
            full_stripes,
            job: Mutex::new(Some(job)),
            is_rebuilt: AtomicBool::new(false),
            percent: AtomicU8::new(0),
            is_closed: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            worker: Mutex::new(None),
            has_worker: AtomicBool::new(false),
            lock: Mutex::new(Some(lock)),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.options.path
    }

    /// Whether it can be used at all.
    pub(super) fn in_service(&self) -> Result<(), SchemeError> {
        if self.health.is_down() || self.is_closed.load(Ordering::Acquire) {
            return Err(SchemeError::Down);
        }
        Ok(())
    }

    pub(super) fn is_rebuilt(&self) -> bool {
        self.is_rebuilt.load(Ordering::Acquire)
    }

    /// The index is complete.
    pub(super) fn set_rebuilt(&self) {
        self.is_rebuilt.store(true, Ordering::Release);
    }

    pub(super) fn set_percent(&self, done: u64, of: u64) {
        let percent = done.saturating_mul(100) / of.max(1);
        self.percent.store(percent.min(99) as u8, Ordering::Relaxed);
    }

    /// Whether threads should end as soon as they can.
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Counts something that was not done because too much was waiting.
    pub(super) fn shed(&self, why: &'static str) -> SchemeError {
        self.counts.shed.fetch_add(1, Ordering::Relaxed);
        SchemeError::Busy(why)
    }

    /// The superblock while the store is open and resized.
    pub(super) fn superblock(&self) -> Superblock {
        let opens = self.found.opens.saturating_add(1);
        Superblock { opens, stripes: self.geometry.stripes, snapshot_bytes: 0, ..self.found }
    }

    /// The start of a slot's stripe.
    pub(super) fn stripe_offset(&self, slot: u32) -> u64 {
        self.found.stripes_offset() + u64::from(slot) * STRIPE_BYTES as u64
    }

    /// Sequence number of a slot, 0 for an empty one.
    pub(super) fn seq(&self, slot: u32) -> u64 {
        self.seqs.get(slot as usize).map_or(0, |seq| seq.load(Ordering::Acquire))
    }

    /// Changes it; returns the old one.
    pub(super) fn set_seq(&self, slot: u32, seq: u64) -> u64 {
        self.seqs.get(slot as usize).map_or(0, |old| old.swap(seq, Ordering::AcqRel))
    }

    /// There is nothing in the slot of this stripe, unless another has been begun there.
    pub(super) fn set_empty(&self, name: StripeName) {
        if let Some(seq) = self.seqs.get(name.slot as usize) {
            let _ = seq.compare_exchange(name.seq, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Smallest sequence number of all slots; `u64::MAX` if all are empty.
    pub(super) fn oldest_seq(&self) -> u64 {
        let all = (0..self.geometry.stripes).map(|slot| self.seq(slot)).filter(|seq| *seq != 0);
        all.min().unwrap_or(u64::MAX)
    }

    /// Number of full stripes that wait, for [`Dir::load`].
    pub(super) fn count_full(&self, stripes: usize) {
        let before = self.full_stripes.swap(stripes, Ordering::Relaxed);
        if stripes < before {
            self.turns.look();
        }
    }

    /// Whether a new object may be begun, as far as waiting stripes are concerned.
    pub(super) fn has_free_membuf(&self) -> bool {
        self.full_stripes.load(Ordering::Relaxed) < self.geometry.full_max
    }

    /// Waiting stripes, 0 to 1000 of the allowed ones.
    pub(super) fn load(&self) -> u16 {
        let stripes =
            self.full_stripes.load(Ordering::Relaxed) * 1000 / self.geometry.full_max.max(1);
        stripes.max(self.data.load()).min(1000) as u16
    }

    /// Enters a record into the index. Under the lock of the log, or during the rebuild.
    pub(super) fn enter(&self, key: IndexKey, entry: FileEntry) {
        self.used_bytes
            .fetch_add(self.geometry.occupied_bytes(entry.size_units), Ordering::Relaxed);
        self.left(self.index.insert(key, entry));
    }

    /// An object has left the index.
    pub(super) fn left(&self, old: Option<FileEntry>) -> bool {
        let bytes = old.map_or(0, |old| self.geometry.occupied_bytes(old.size_units));
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        old.is_some()
    }

    /// Evicts the record of `key` at `file`, if it is still there.
    pub(super) fn evict(&self, key: IndexKey, file: u32) -> bool {
        let was_there = self.left(self.index.remove_if(key, file));
        self.counts.evictions.fetch_add(was_there.into(), Ordering::Relaxed);
        was_there
    }

    /// Makes an object visible and, with the stripe it gets into, lasting. Waits for the worker
    /// where it must.
    pub(super) async fn store(
        self: &Arc<Self>,
        key: IndexKey,
        mut object: Encoded,
        when: Condition,
    ) -> Result<Step, SchemeError> {
        let step = self.wait(|log| match log.append(self, key, &mut object, when) {
            Step::Wait => None,
            step => Some(Ok(step)),
        });
        let step = step.await?;
        match step {
            Step::Appended => self.count_stored(&object),
            Step::Refused(_) => drop(self.counts.shed.fetch_add(1, Ordering::Relaxed)),
            Step::Changed | Step::Wait => {}
        }
        Ok(step)
    }

    /// The same without waiting, giving the record back. `None`: that is not possible now, and
    /// nothing has happened.
    pub(super) fn store_now(
        self: &Arc<Self>,
        key: IndexKey,
        mut object: Encoded,
    ) -> Option<Encoded> {
        self.start_worker().ok()?;
        let is_stored = {
            let mut log = self.log.lock();
            // Under the lock: a thread that closes looks at the stripes afterwards.
            self.in_service().is_ok()
                && log.append(self, key, &mut object, Condition::Always) == Step::Appended
        };
        is_stored.then(|| {
            self.count_stored(&object);
            object
        })
    }

    fn count_stored(&self, object: &Encoded) {
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        self.counts.object_bytes.fetch_add(object.object_bytes(), Ordering::Relaxed);
    }

    /// Copies a hit to the current stripe if its own will soon be overwritten, and if that can be
    /// done now.
    pub(super) fn relocate(&self, key: IndexKey, entry: FileEntry, found: &Decoded) {
        let (slot, _) = self.geometry.locate(entry.file);
        let mut log = self.log.lock();
        if slot >= log.slots_end {
            return; // nothing is written there
        }
        let stripes_left = (slot + log.slots_end - log.next.slot) % log.slots_end;
        let is_written = log.unwritten_stripes().all(|filling| filling.buf.name.slot != slot);
        if stripes_left < self.geometry.relocated_stripes && is_written && self.in_service().is_ok()
        {
            let mut copy = found.to_encoded(entry.flags);
            if log.append(self, key, &mut copy, Condition::IfStill(entry)) == Step::Appended {
                self.counts.relocations.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Drops a record that does not verify, and makes sure that a scan does not bring back an older
    /// one.
    pub(super) fn drop_bad(&self, key: IndexKey, entry: FileEntry, why: &str) {
        self.health.corrupt(self.data.path.display(), why);
        let mut log = self.log.lock();
        if self.left(self.index.remove_if(key, entry.file)) {
            // Without room in the purge log a scan may find it again, and it will not verify again.
            let _ = self.add_purge(&mut log, key);
            self.work.ring();
        }
    }

    /// Logs that all that there is of a key now is gone; returns the ticket to wait with.
    fn add_purge(&self, log: &mut Log, key: IndexKey) -> Result<u64, SchemeError> {
        let (seq, offset_units) = log.position();
        let purge = Purge { key, offset_units, seq };
        let is_rebuilt = self.is_rebuilt();
        // Stripes that only are in memory have not replaced anything on disk yet.
        let replaced = log.unwritten_stripes().map(|filling| filling.replaces_seq);
        let replaced = replaced.filter(|seq| *seq != 0).min().unwrap_or(u64::MAX);
        let oldest = || if is_rebuilt { self.oldest_seq().min(replaced) } else { 0 };
        let ticket = log.purges.add(purge, oldest);
        if !is_rebuilt && ticket.is_ok() {
            log.early.push(purge);
        }
        ticket.map_err(|_| {
            SchemeError::Busy("the purge log is full, the removal will not survive a crash")
        })
    }

    /// Removes a key: neither a reader nor a crash brings it back.
    pub(super) async fn remove(self: &Arc<Self>, key: &Key) -> Result<bool, SchemeError> {
        self.in_service()?;
        self.start_worker()?;
        let key = IndexKey::from(key);
        let (was_there, ticket) = {
            let mut log = self.log.lock();
            let was_there = self.left(self.index.remove(key));
            let is_unknown = self.is_rebuilt() && !log.may_return(self, key);
            let ticket = match was_there || !is_unknown {
                true => self.add_purge(&mut log, key)?,
                false => log.purges.last_ticket(), // it may have been dropped a moment ago
            };
            self.work.ring();
            (was_there, ticket)
        };
        self.wait(|log| match log.purges.fate(ticket) {
            Fate::Waiting => None,
            Fate::Written => Some(Ok(was_there)),
            Fate::Failed => {
                Some(Err(self.io_error("log a removal in", std::io::ErrorKind::Other.into())))
            }
        })
        .await
    }

    /// One round of upkeep: objects stored before it survive a crash after it.
    pub(super) async fn maintain(self: &Arc<Self>) -> Result<(), SchemeError> {
        if self.in_service().is_err() {
            return Ok(());
        }
        self.start_worker()?;
        let ask = {
            let mut log = self.log.lock();
            log.purges.retry();
            log.clears_again = !log.to_clear.is_empty();
            let has_unwritten = log.unwritten_stripes().any(Filling::has_unwritten);
            log.flushes_asked += u64::from(has_unwritten);
            self.work.ring();
            has_unwritten.then_some(log.flushes_asked)
        };
        self.share.look_from_core().await;
        let Some(ask) = ask else { return Ok(()) };
        match self.wait(|log| (log.flushes_done >= ask).then_some(Ok(()))).await {
            Err(SchemeError::Down) | Ok(()) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Looks at the log now and whenever the worker has done something, until `look` has an answer.
    async fn wait<T>(
        self: &Arc<Self>,
        mut look: impl FnMut(&mut Log) -> Option<Result<T, SchemeError>>,
    ) -> Result<T, SchemeError> {
        self.start_worker()?;
        std::future::poll_fn(move |context: &mut Context<'_>| {
            let mut log = self.log.lock();
            // Under the lock: a thread that closes looks at the stripes afterwards.
            if let Err(down) = self.in_service() {
                return Poll::Ready(Err(down));
            }
            match look(&mut log) {
                Some(answer) => Poll::Ready(answer),
                None => {
                    log.register(context);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// An error of the system as callers see it.
    pub(super) fn io_error(&self, operation: &str, source: std::io::Error) -> SchemeError {
        SchemeError::Io { operation: format!("{operation} {}", self.data.path.display()), source }
    }

    /// Nothing is stored or read from now on; all threads end after their present job. `false` if
    /// it was stopped already.
    pub(super) fn stop(&self) -> bool {
        let was_closed = self.is_closed.swap(true, Ordering::AcqRel);
        self.share.leave();
        self.is_stopping.store(true, Ordering::Relaxed);
        let waiting = {
            let mut log = self.log.lock();
            log.is_stopped = true;
            log.take_waiting()
        };
        self.work.ring();
        waiting.into_iter().for_each(Waiting::wake);
        let worker = self.worker.lock().take();
        if let Some(worker) = worker
            && worker.join().is_err()
        {
            tracing::error!("{}: the thread of this cache_dir failed", self.path().display());
        }
        !was_closed
    }

    #[cfg(test)]
    pub(super) fn in_hand_bytes(&self) -> u64 {
        self.in_hand_bytes.load(Ordering::Relaxed)
    }

    /// The store can be opened again.
    pub(super) fn release_lock(&self) {
        if let Some(lock) = self.lock.lock().take() {
            crate::lock::release(lock);
        }
    }

    pub(super) fn stats(&self) -> SchemeStats {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let purge_bytes = self.log.lock().purges.memory_bytes();
        let index_bytes = self.index.memory_bytes() + size_of_val(&*self.seqs) + purge_bytes;
        SchemeStats {
            objects: self.index.len() as u64,
            used_bytes: get(&self.used_bytes),
            capacity_bytes: self.options.capacity_bytes,
            index_bytes: index_bytes as u64,
            open_files: 0,
            reads: get(&self.counts.reads),
            writes: get(&self.counts.writes),
            evictions: get(&self.counts.evictions),
            errors: self.health.errors(),
            shed: get(&self.counts.shed) + self.turns.late_hits(),
            shed_hits: get(&self.counts.shed_hits) + self.turns.late_hits(),
            waits: self.turns.waits(),
            read_ops: get(&self.data.read_ops),
            read_bytes: get(&self.data.read_bytes),
            write_ops: get(&self.data.write_ops),
            write_bytes: get(&self.data.write_bytes),
            object_bytes: get(&self.counts.object_bytes),
            rebuild_percent: if self.is_rebuilt() {
                100
            } else {
                self.percent.load(Ordering::Relaxed).min(99)
            },
            down: self.health.is_down(),
        }
    }
}
