//! The parts of one ring, shared by cores and keeper.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use humboldt_store::Key;
use humboldt_store::scheme::{SchemeError, SchemeStats};
use humboldt_sys::aligned::Buffer;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::checkpoint;
use super::device_reads::DeviceReads;
use super::doubts::Doubts;
use super::format::{self, FROM_NOWHERE, Kind, Plan, UNIT_BYTES};
use super::geometry::Geometry;
use super::index::{Entry, Hash64, RingIndex};
use super::keeper::Keeper;
use super::layout::Claimed;
use super::log::{Appended, Full, Job, Log};
use super::purges::{Purges, Removal, Turn, Unlogged};
use super::segments::{SegmentSet, Segments};
use crate::block::BlockFile;
use crate::block::Luck;
use crate::health::{DISK_FULL, Health, is_disk_full};
use crate::overload::Turns;
use crate::{DirOptions, PageCache, RingOptions};

/// Most removals that are remembered while the index is being read.
const EARLY_REMOVALS_MAX: usize = 1 << 20;

/// Counters since the start.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) shed: AtomicU64,
    pub(crate) shed_hits: AtomicU64,
    read_ops: AtomicU64,
    read_bytes: AtomicU64,
    write_ops: AtomicU64,
    write_bytes: AtomicU64,
    pub(crate) object_bytes: AtomicU64,
}

impl Counts {
    pub(crate) fn read(&self, bytes: u64) {
        self.read_ops.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn write(&self, bytes: u64) {
        self.write_ops.fetch_add(1, Ordering::Relaxed);
        self.write_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// One ring.
pub(crate) struct Store {
    pub(crate) options: DirOptions<RingOptions>,
    pub(crate) geometry: Geometry,
    pub(crate) store_id: u64,
    pub(crate) data: Arc<dyn BlockFile>,
    /// The same file, through which objects are read for clients while `uses_page_cache`.
    pub(crate) cached: Arc<dyn BlockFile>,
    pub(crate) uses_page_cache: AtomicBool,
    /// Whether the page cache, which clients read through, has room for all that is stored
    /// (`page-cache=auto`). Then it keeps what has been read.
    pub(crate) is_all_cached: AtomicBool,
    pub(crate) device_reads: DeviceReads,
    luck: Luck,
    /// `false` while a thread waits until the page cache's part is on the device.
    pub(crate) is_written_back: AtomicBool,
    pub(crate) checkpoints: [Arc<dyn BlockFile>; 2],
    pub(crate) purges: Arc<Purges>,
    pub(crate) segments: Segments,
    pub(crate) log: Log,
    /// There once it has been read.
    pub(crate) index: OnceLock<RingIndex>,
    /// Removals while it was not there.
    pub(crate) early: Mutex<Vec<u64>>,
    /// Whether recovery may find objects that the index does not have.
    pub(crate) doubts: Arc<Doubts>,
    /// Number of the newest checkpoint.
    pub(crate) checkpoint: AtomicU64,
    pub(crate) counts: Counts,
    pub(crate) health: Health,
    pub(crate) keeper: Keeper,
    /// Told when buffers have been written and when segments have become free.
    pub(crate) progress: Notify,
    /// Those who wait until a buffer is written.
    pub(crate) turns: Turns,
    pub(crate) may_store: AtomicBool,
    pub(crate) is_closed: AtomicBool,
    /// Holds the lock on the directory until it is closed.
    pub(crate) lock: Mutex<Option<OwnedFd>>,
}

impl Store {
    /// Puts together the parts found in a directory.
    pub(crate) fn new(options: &DirOptions<RingOptions>, claimed: Claimed) -> io::Result<Self> {
        let Claimed { lock, store_id, geometry, files } = claimed;
        let (head, _) = checkpoint::newest(store_id, geometry.segment_bytes, &files.checkpoints)?;
        let number = head.as_ref().map_or(0, |head| head.number);
        let now = now_ns();
        let sequence = head.map_or(now, |head| now.max(head.sequence + checkpoint::SEQUENCE_GAP));
        let doubts = Arc::new(Doubts::default());
        let log = Log::new(sequence);
        let room = log.room();
        Ok(Self {
            options: options.clone(),
            geometry,
            store_id,
            purges: Arc::new(Purges::new(store_id, files.purges, number, Arc::clone(&doubts))?),
            data: files.data,
            cached: files.cached,
            uses_page_cache: AtomicBool::new(options.own.page_cache != PageCache::Off),
            is_all_cached: AtomicBool::new(false),
            device_reads: DeviceReads::of(&options.path),
            luck: Luck::default(),
            is_written_back: AtomicBool::new(true),
            checkpoints: files.checkpoints,
            segments: Segments::new(geometry.segments, now),
            log,
            index: OnceLock::new(),
            early: Mutex::default(),
            doubts,
            checkpoint: AtomicU64::new(number),
            counts: Counts::default(),
            health: Health::default(),
            keeper: Keeper::default(),
            progress: Notify::new(),
            turns: Turns::new(options.own.overload, options.capacity_bytes, room),
            may_store: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            lock: Mutex::new(Some(lock)),
        })
    }

    /// The way to the data by which objects are read for clients.
    pub(crate) fn file_for_reads(&self) -> &dyn BlockFile {
        if self.uses_page_cache.load(Ordering::Relaxed) { &*self.cached } else { &*self.data }
    }

    /// Fills `into` from the page cache, if that may be asked, is likely to have it, and has it.
    pub(crate) fn read_now(&self, offset: u64, into: &mut [u8]) -> Option<io::Result<usize>> {
        if !self.uses_page_cache.load(Ordering::Relaxed) || !self.luck.may_ask() {
            return None;
        }
        let read = self.cached.read_now(offset, into);
        self.luck.note(read.is_some());
        read
    }

    /// Objects for which the index is made.
    pub(crate) fn objects_expected(&self) -> u64 {
        self.geometry.bytes() / self.options.object_bytes_avg.max(UNIT_BYTES)
    }

    /// Most objects that there can be.
    pub(crate) fn objects_max(&self) -> u64 {
        self.geometry.bytes() / UNIT_BYTES
    }

    /// The segments with these numbers.
    pub(crate) fn segment_set(&self, numbers: impl IntoIterator<Item = u32>) -> SegmentSet {
        SegmentSet::new(self.geometry.segments, self.geometry.segment_units(), numbers)
    }

    /// Longest body that is stored: one that does not push out most of the rest.
    pub(crate) fn body_bytes_max(&self) -> u64 {
        self.geometry.bytes() / 3
    }

    /// A generation that no segment of this run or one before has had, if the clock was right.
    pub(crate) fn first_generation(&self) -> u64 {
        now_ns()
    }

    /// Resolves when all that was sealed by now is on the device, and the keeper has nothing to do.
    pub(crate) async fn settled(&self) {
        loop {
            let progress = self.progress.notified();
            let mut progress = std::pin::pin!(progress);
            progress.as_mut().enable();
            if !self.log.has_sealed() && self.keeper.is_idle() {
                return;
            }
            progress.await;
        }
    }

    /// The hash by which the index knows a key. Which keys meet in a bucket differs from store to
    /// store.
    pub(crate) fn hash(&self, key: &Key) -> Hash64 {
        let product = u128::from(key.low64() ^ self.store_id) * u128::from(key.high64() | 1);
        Hash64((product as u64) ^ (product >> 64) as u64)
    }

    /// Whether it can be used at all.
    pub(crate) fn in_service(&self) -> Result<(), SchemeError> {
        if self.health.is_down() || self.is_closed.load(Ordering::Acquire) {
            return Err(SchemeError::Down);
        }
        Ok(())
    }

    /// Whether objects can be stored now.
    pub(crate) fn may_store(&self) -> bool {
        self.may_store.load(Ordering::Acquire) && self.in_service().is_ok()
    }

    /// The segment of a location, and the generation that it has now.
    pub(crate) fn generation_at(&self, location: u64) -> u64 {
        self.segments.generation(location / self.geometry.segment_units())
    }

    /// Counts an error of the system, and logs it now and then.
    pub(crate) fn failed(&self, operation: &str, error: &io::Error) -> SchemeError {
        if error.kind() == io::ErrorKind::WouldBlock {
            return SchemeError::Busy("too many reads and writes wait");
        }
        let path = self.options.path.display();
        self.health.failure(operation, self.options.path.display(), error);
        if is_disk_full(error) {
            return SchemeError::Busy(DISK_FULL);
        }
        let code = error.raw_os_error();
        let source = code.map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
        SchemeError::Io { operation: format!("{operation} {path}"), source }
    }

    /// Appends a record and makes it the object of its key; a fragment is only appended.
    pub(crate) fn put<'p>(
        self: &Arc<Self>,
        plan: &Plan<'_>,
        parts: impl Iterator<Item = &'p [u8]>,
    ) -> Result<Appended, Full> {
        let record_bytes = plan.record_bytes().ok_or(Full::TooLong)?;
        let hash = self.hash(&plan.key);
        let job = Job { kind: plan.kind, hash: hash.0, record_bytes, from: FROM_NOWHERE };
        let index = self.index.get().filter(|_| plan.kind != Kind::Fragment);
        index.inspect(|index| index.expect(hash));
        self.append(
            job,
            |place, out| plan.encode(place, parts, out),
            |entry| index.into_iter().for_each(|index| self.insert(index, hash, entry)),
        )
    }

    fn insert(&self, index: &RingIndex, hash: Hash64, entry: Entry) {
        let inserted = index.insert_telling(hash, entry, || self.doubts.count());
        if inserted.dropped.is_some() {
            self.counts.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Drops a record that does not verify.
    pub(crate) fn drop_bad(&self, hash: Hash64, location: u64, why: format::Corrupt) {
        self.health.corrupt(self.options.path.display(), why.0);
        if let Some(index) = self.index.get() {
            self.drop_unlogged(index, hash, location);
        }
    }

    /// Takes an object out of the index. No log has that: until the next checkpoint recovery may
    /// find it.
    pub(crate) fn drop_unlogged(&self, index: &RingIndex, hash: Hash64, location: u64) {
        index.remove_if_telling(hash, location, || self.doubts.count());
    }

    /// Removes a key: neither a reader nor a crash brings it back.
    pub(crate) async fn remove(self: &Arc<Self>, key: &Key) -> Result<bool, SchemeError> {
        self.in_service()?;
        let hash = self.hash(key);
        let (was_there, blocks) = {
            let turn = self.purges.turn();
            let forgotten = self.forget(&turn, hash)?;
            let blocks = if forgotten == Forgotten::Unknown {
                // Nothing to log; but it may have been removed a moment ago.
                Ok(turn.waiting())
            } else {
                turn.log(&[Removal::Key { hash: hash.0, sequence: self.log.next_sequence() }])
            };
            (forgotten == Forgotten::Found, blocks)
        };
        let logged = match blocks {
            Ok(blocks) => self.purges.ended(blocks).await,
            Err(error) => Err(error),
        };
        if self.purges.wants_checkpoint() || logged.is_err() {
            self.wake_keeper();
        }
        match logged {
            // The directory may be another's by now, which does not know of it.
            Ok(()) => self.in_service().map(|()| was_there),
            Err(Unlogged::Full) => Err(SchemeError::Busy("too many removals")),
            Err(Unlogged::Failed(kind)) => Err(self.failed("log a removal in", &kind.into())),
        }
    }

    /// Takes a key out of the index, while no other task can look for it and find neither the key
    /// nor its removal in the log.
    fn forget(&self, _: &Turn<'_>, hash: Hash64) -> Result<Forgotten, SchemeError> {
        let mut early = self.early.lock();
        if let Some(index) = self.index.get() {
            drop(early);
            return Ok(match index.remove(hash) {
                Some(_) => Forgotten::Found,
                None if !self.may_store.load(Ordering::Acquire) || self.doubts.are_any() => {
                    Forgotten::Perhaps
                }
                None => Forgotten::Unknown,
            });
        }
        if early.len() >= EARLY_REMOVALS_MAX {
            return Err(SchemeError::Busy("too many removals while the index is being read"));
        }
        early.push(hash.0);
        Ok(Forgotten::Perhaps)
    }

    pub(crate) fn stats(&self) -> SchemeStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (index, counts) = (self.index.get(), &self.counts);
        SchemeStats {
            objects: index.map_or(0, RingIndex::len),
            used_bytes: u64::from(self.segments.used()) * self.geometry.segment_bytes,
            capacity_bytes: self.options.capacity_bytes,
            index_bytes: index.map_or(0, RingIndex::memory_bytes),
            open_files: 0,
            reads: get(&counts.reads),
            writes: get(&counts.writes),
            evictions: get(&counts.evictions),
            errors: self.health.errors(),
            shed: get(&counts.shed) + self.turns.late_hits(),
            shed_hits: get(&counts.shed_hits) + self.turns.late_hits(),
            waits: self.turns.waits(),
            read_ops: get(&counts.read_ops),
            read_bytes: get(&counts.read_bytes),
            write_ops: get(&counts.write_ops),
            write_bytes: get(&counts.write_bytes),
            object_bytes: get(&counts.object_bytes),
            rebuild_percent: if self.may_store.load(Ordering::Acquire) || self.health.is_down() {
                100
            } else {
                0
            },
            down: self.health.is_down(),
        }
    }
}

/// The facts about a key that was to be removed.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Forgotten {
    /// It was in the index.
    Found,
    /// It was not, but recovery may find it.
    Perhaps,
    /// It was not, and recovery cannot find it.
    Unknown,
}

/// Reads `bytes` at `offset` of the data, both multiples of the device's blocks, on this thread.
pub(crate) fn read_data(store: &Store, offset: u64, bytes: usize) -> std::io::Result<Buffer> {
    let mut buffer = Buffer::new(bytes);
    let read = store.data.read_blocking(offset, &mut buffer)?;
    store.counts.read(read as u64);
    buffer.set_len(read);
    Ok(buffer)
}

/// The area of `bytes` bytes at `offset` of the data, as it is to be read: offset and length.
pub(crate) fn span(store: &Store, offset: u64, bytes: u64) -> (u64, usize) {
    let start = offset - offset % format::IO_BYTES;
    let end = (offset + bytes).next_multiple_of(format::IO_BYTES).min(store.geometry.bytes());
    (start, end.saturating_sub(start) as usize)
}

/// Nanoseconds since 1970.
fn now_ns() -> u64 {
    if let Some(now) = crate::simulated::now_ns() {
        return now;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(0)
}

/// The error for the caller when something cannot be appended.
impl From<Full> for SchemeError {
    fn from(full: Full) -> Self {
        Self::Busy(match full {
            Full::Segments => "segments wait to be reclaimed",
            Full::Pending => "the device cannot keep up",
            Full::TooLong => "too long for this directory",
            Full::Closed => return Self::Down,
        })
    }
}

impl From<format::Corrupt> for SchemeError {
    fn from(corrupt: format::Corrupt) -> Self {
        Self::Corrupt(corrupt.0)
    }
}
