//! The thread that keeps house: it reads the index at the start, reclaims segments and writes checkpoints, so that no core
//! waits for any of it.

use std::collections::HashSet;
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use humboldt_sys::aligned::Buffer;
use parking_lot::{Condvar, Mutex};

use super::checkpoint::{self, Head};
use super::format::{self, FooterEntry, Kind, UNIT_BYTES};
use super::index::{Entry, Hash64, RingIndex};
use super::log::Job;
use super::memory;
use super::purges::{Removal, Unlogged};
use super::reader::{self, Loaded};
use super::recover::{self, Listing};
use super::store::Store;
use crate::PageCache;

/// How often it is seen how much memory there is.
const MEMORY_INTERVAL: Duration = Duration::from_secs(1);

/// How often it is seen to that what went through the page cache is on the device, and whether the device took it. The system has written most of it by
/// then (after 30 s, unless told otherwise), so that this costs next to nothing.
const WRITE_BACK_INTERVAL: Duration = Duration::from_secs(60);

/// Reads leave the page cache when what is stored is more than this share of the memory that there is for it, in percent ...
const MEMORY_SHARE_PCT: u64 = 80;

/// ... and come back to it when it is less than this.
const MEMORY_SHARE_AGAIN_PCT: u64 = 60;

/// Of the records of a segment that is reclaimed, the places in the index of so many are fetched ahead: nearly all are in no cache.
const EXPECTED_AHEAD: usize = 8;

/// When the keeper works, and its thread.
#[derive(Default)]
pub(crate) struct Keeper {
    orders: Mutex<Orders>,
    given: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Orders {
    is_wanted: bool,
    is_working: bool,
    stop: bool,
}

impl Keeper {
    fn wake(&self) {
        self.orders.lock().is_wanted = true;
        self.given.notify_one();
    }

    /// Whether all that was wanted has been done.
    pub(crate) fn is_idle(&self) -> bool {
        let orders = self.orders.lock();
        orders.stop || !orders.is_wanted && !orders.is_working
    }

    fn is_stopped(&self) -> bool {
        self.orders.lock().stop
    }

    /// Waits for something to do; `false` at the end.
    fn wait(&self) -> bool {
        let mut orders = self.orders.lock();
        while !orders.is_wanted && !orders.stop {
            self.given.wait(&mut orders);
        }
        (orders.is_wanted, orders.is_working) = (false, true);
        !orders.stop
    }

    /// Ends the thread after what it is doing.
    pub(crate) fn stop(&self) {
        self.orders.lock().stop = true;
        self.given.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of the thread has been reported already.
            let _ = thread.join();
        }
    }
}

impl Store {
    /// Starts the keeper, if that has not been done: with the first operation, as no thread may exist before privileges are dropped.
    pub(crate) fn start_keeper(self: &Arc<Self>) {
        if self.may_store.load(Ordering::Acquire) {
            return;
        }
        let mut thread = self.keeper.thread.lock();
        if thread.is_some() || self.keeper.is_stopped() {
            return;
        }
        let store = Arc::clone(self);
        match thread::Builder::new().name("ring keeper".to_owned()).spawn(move || store.keep()) {
            Ok(started) => *thread = Some(started),
            Err(error) => drop(self.failed("start a thread for", &error)),
        }
    }

    /// There may be something to reclaim.
    pub(crate) fn wake_keeper(&self) {
        self.keeper.wake();
    }

    fn keep(self: Arc<Self>) {
        recover::recover(&self);
        if self.checkpoint() {
            self.may_store.store(true, Ordering::Release);
        } else {
            self.health.give_up(self.options.path.display(), "no checkpoint can be written");
        }
        self.progress.notify_waiters();
        let mut looked_at_memory: Option<Instant> = None;
        let mut written_back = Instant::now();
        while self.keeper.wait() {
            if looked_at_memory.is_none_or(|at| at.elapsed() >= MEMORY_INTERVAL) {
                self.look_at_memory();
                looked_at_memory = Some(Instant::now());
            }
            if written_back.elapsed() >= WRITE_BACK_INTERVAL {
                self.write_back();
                written_back = Instant::now();
            }
            self.keep_house();
            self.keeper.orders.lock().is_working = false;
            self.progress.notify_waiters();
        }
    }

    /// With `page-cache=auto`, reads go through the page cache while all that is stored fits into it. When it does not, pages come and go,
    /// and cost more than they save (`cargo xtask bench page-cache`).
    fn look_at_memory(&self) {
        if self.options.tuning.page_cache != PageCache::Auto {
            return;
        }
        let Some(available_bytes) = memory::available_bytes() else { return };
        let used_bytes = u64::from(self.segments.used()) * self.geometry.segment_bytes;
        let is_cached = self.fits_page_cache.load(Ordering::Relaxed);
        let share_pct = if is_cached { MEMORY_SHARE_PCT } else { MEMORY_SHARE_AGAIN_PCT };
        let fits = used_bytes <= available_bytes / 100 * share_pct;
        self.fits_page_cache.store(fits, Ordering::Relaxed);
    }

    /// Writes back what went through the page cache, on a thread of its own, because a slow device may take minutes. Without it, a device that fails
    /// would not be noticed before it is read.
    fn write_back(self: &Arc<Self>) {
        if self.data.alignment_bytes() != 1 || !self.is_written_back.swap(false, Ordering::AcqRel) {
            return;
        }
        let store = Arc::clone(self);
        let written = thread::Builder::new().name("ring write-back".to_owned()).spawn(move || {
            if let Err(error) = store.data.sync_blocking() {
                store.failed("write back", &error);
            }
            store.is_written_back.store(true, Ordering::Release);
        });
        if let Err(error) = written {
            self.is_written_back.store(true, Ordering::Release);
            self.failed("start a thread for", &error);
        }
    }

    /// Sees to it that there are free segments, and that the log of removals stays short.
    pub(crate) fn keep_house(self: &Arc<Self>) {
        while !self.keeper.is_stopped() && !self.health.is_down() {
            let wanted = self.segments.to_reclaim();
            if wanted > 0 && self.reclaim_oldest(wanted) {
                continue;
            }
            let is_due = self.segments.wants_checkpoint() || self.purges.is_long();
            if !is_due || !self.checkpoint() {
                return;
            }
        }
    }

    /// Writes a checkpoint: what was written before may be reclaimed after it. `false` if that failed.
    pub(crate) fn checkpoint(&self) -> bool {
        let number = self.checkpoint.load(Ordering::Acquire) + 1;
        let Some(file) = self.checkpoints.get((number % 2) as usize) else { return false };
        if let Err(error) = self.purges.prepare(number) {
            self.failed("begin a log of removals of", &error);
            return false;
        }
        let head = {
            let _settled = self.log.settling.write();
            let (segments, next_generation) = self.segments.begin_checkpoint();
            self.purges.switch(number);
            Head {
                number,
                store_id: self.store_id,
                segment_bytes: self.geometry.segment_bytes,
                sequence: self.log.sequence(),
                next_generation,
                parts: 0,
                segments,
            }
        };
        let next_generation = head.next_generation;
        match checkpoint::write(&**file, head, self.index.get()) {
            Ok(bytes) => {
                self.counts.write(bytes);
                self.checkpoint.store(number, Ordering::Release);
                self.segments.end_checkpoint(next_generation);
                true
            }
            Err(error) => {
                self.failed("write a checkpoint of", &error);
                false
            }
        }
    }

    /// Empties the oldest segments; what is still in demand is copied to the open one. `false` if there is none.
    fn reclaim_oldest(self: &Arc<Self>, count: u32) -> bool {
        let mut oldest = self.segments.oldest(count);
        if let Some(unwritten) =
            oldest.iter().position(|(number, _)| self.log.is_pending_in(&self.part(*number)))
        {
            oldest.truncate(unwritten);
        }
        let Some(index) = self.index.get().filter(|_| !oldest.is_empty()) else { return false };
        // What was in them must not come back after a crash: what replaced it elsewhere may be gone by then.
        let ends: Vec<_> =
            oldest.iter().map(|(_, generation)| Removal::Segment { generation: *generation }).collect();
        match block_on(self.purges.log(&ends)) {
            Ok(()) => {}
            // A checkpoint begins a new file.
            Err(Unlogged::Full) => return false,
            Err(Unlogged::Failed(kind)) => {
                self.failed("log the end of segments of", &kind.into());
                return false;
            }
        }
        for (number, generation) in oldest {
            self.reclaim(index, number, generation);
        }
        self.progress.notify_waiters();
        true
    }

    /// Where a segment lies in the data, in bytes.
    fn part(&self, number: u32) -> Range<u64> {
        let start = u64::from(number) * self.geometry.segment_bytes;
        start..start + self.geometry.segment_bytes
    }

    fn reclaim(self: &Arc<Self>, index: &RingIndex, number: u32, generation: u64) {
        let first_unit = u64::from(number) * self.geometry.segment_units();
        let found = recover::entries(self, number, generation);
        let listing = found.unwrap_or_else(|error| {
            self.failed("read a segment of", &error);
            Listing { entries: Vec::new(), is_complete: false }
        });
        let mut parents = HashSet::new();
        for (at, entry) in listing.entries.iter().enumerate() {
            if let Some(later) = listing.entries.get(at + EXPECTED_AHEAD) {
                index.expect(Hash64(later.hash));
            }
            self.reclaim_record(index, *entry, first_unit + u64::from(entry.unit), &mut parents);
        }
        if !listing.is_complete {
            // Whatever the list did not know: one pass over all is dear, but this is rare.
            let end = first_unit + self.geometry.segment_units();
            let dropped = index.retain(|entry| !(first_unit..end).contains(&entry.location));
            self.counts.evictions.fetch_add(dropped, Ordering::Relaxed);
        }
        self.segments.reclaimed(number);
    }

    fn reclaim_record(
        self: &Arc<Self>,
        index: &RingIndex,
        listed: FooterEntry,
        location: u64,
        parents: &mut HashSet<u64>,
    ) {
        let hash = Hash64(listed.hash);
        let Some(entry) = index.get(hash) else { return };
        if listed.kind == Kind::Fragment {
            if entry.kind == Kind::Large as u8 && parents.insert(listed.hash) {
                self.reclaim_parent(index, hash, entry, location);
            }
            return;
        }
        if entry.location != location {
            return;
        }
        if entry.freq > 0 && self.log.may_copy(entry.length.bytes_max()) && self.copy(index, hash, entry) {
            return;
        }
        if index.remove_if(hash, location) {
            self.counts.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A fragment goes: so does its object, unless the fragment is of an older one with the same key.
    fn reclaim_parent(self: &Arc<Self>, index: &RingIndex, hash: Hash64, entry: Entry, fragment: u64) {
        let segment = fragment / self.geometry.segment_units();
        let uses = |loaded: &Loaded| {
            let lies_there = |location: u64| location / self.geometry.segment_units() == segment;
            loaded.found.fragments.iter().any(|fragment| lies_there(fragment.location))
        };
        let is_other = reader::load_blocking(self, entry).is_ok_and(|loaded| !uses(&loaded));
        if !is_other && index.remove_if(hash, entry.location) {
            self.counts.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Copies a record to the open segment. `false` if it cannot be, or does not verify.
    fn copy(self: &Arc<Self>, index: &RingIndex, hash: Hash64, entry: Entry) -> bool {
        let Ok(loaded) = reader::load_blocking(self, entry) else { return false };
        let Some(record) = loaded.record_bytes() else { return false };
        let surroundings_bytes = loaded.found.bytes();
        let job =
            Job { kind: loaded.found.kind, hash: hash.0, record_bytes: record.len(), from: entry.location };
        let appended = self.append(
            job,
            |place, out| {
                out.copy_from_slice(record);
                out.get_mut(..surroundings_bytes).map_or(0, |front| format::set_place(front, place))
            },
            |new| {
                index.replace_if(hash, entry.location, Entry { freq: entry.freq - 1, ..new });
            },
        );
        appended.is_ok()
    }
}

/// Reads `bytes` at `offset` of the data, both multiples of the device's blocks, on this thread.
pub(crate) fn read_data(store: &Store, offset: u64, bytes: usize) -> std::io::Result<Buffer> {
    let mut buffer = Buffer::new(bytes);
    let read = store.data.read_blocking(offset, &mut buffer)?;
    store.counts.read(read as u64);
    buffer.set_len(read);
    Ok(buffer)
}

/// Length of the units' area of a record of this class at this location, as it is to be read: offset in bytes, and length.
pub(crate) fn span(store: &Store, location: u64, record_bytes: u64) -> (u64, usize) {
    let offset = location * UNIT_BYTES;
    let start = offset - offset % format::IO_BYTES;
    let end = (offset + record_bytes).next_multiple_of(format::IO_BYTES).min(store.geometry.bytes());
    (start, end.saturating_sub(start) as usize)
}

/// Waits for a future on a thread that is no core.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}
