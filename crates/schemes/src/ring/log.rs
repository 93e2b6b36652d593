//! Appending to the log: one open segment, filled through buffers that all cores share.
//!
//! A core reserves room under a short lock, copies its record without one, and makes it findable.
//! Who completes a sealed buffer hands it to the device. Until that has written it, the record is
//! read from the buffer.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use humboldt_store::{Borrowed, Lender};
use humboldt_sys::append_buffer::{AppendBuffer, Progress, Region};
use parking_lot::{Mutex, RwLock};

use super::format::{
    self, FROM_NOWHERE, FooterEntry, IO_BYTES, Kind, Place, SEGMENT_HEADER_BYTES, UNIT_BYTES,
};
use super::index::Entry;
use super::length::LengthClass;
use super::store::Store;
use crate::overload::Room;

/// Usual length of a buffer, which is written with one operation. It fills a huge page.
const BUFFER_BYTES: u64 = 2 * 1024 * 1024;

/// Most bytes in buffers that are full, or being written; beyond it nothing is stored.
pub(crate) const PENDING_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Lower bound of the share when memory is short: a buffer that is filled, one that is written, and
/// two that wait.
pub(crate) const PENDING_BYTES_LEAST: u64 = 4 * BUFFER_BYTES;

/// Buffers take this part of the memory that this process can have beyond its memory cache.
const PENDING_SHARE: u64 = 4;

/// That many rings may each have their part of the memory. More rings share it, but each has the
/// lower bound.
const WHOLE_SHARES_MAX: u64 = 3;

/// The rings of this process.
static RINGS: AtomicUsize = AtomicUsize::new(0);

/// Objects that are longer than [`PUT_NOW_BYTES_MAX`](super::writer::PUT_NOW_BYTES_MAX) are
/// gathered by their writers first, up to 1 MiB of each. All writers of a ring take this part of
/// that memory for it; beyond it an object is not stored.
const GATHERED_SHARE: u64 = 16;

/// Lower bound of that share when memory is short: two such objects.
pub(crate) const GATHERED_BYTES_LEAST: u64 = 2 * 1024 * 1024;

/// Most bytes in the buffers of each of `rings` rings, and with its writers, if this process can
/// have `room_bytes` beyond its memory cache.
fn shares(room_bytes: u64, rings: usize) -> (u64, u64) {
    let rings = (rings as u64).max(WHOLE_SHARES_MAX);
    let room_bytes =
        u64::try_from(u128::from(room_bytes) * u128::from(WHOLE_SHARES_MAX) / u128::from(rings))
            .unwrap_or(room_bytes);
    let pending = (room_bytes / PENDING_SHARE).clamp(PENDING_BYTES_LEAST, PENDING_BYTES_MAX);
    (pending, (room_bytes / GATHERED_SHARE).max(GATHERED_BYTES_LEAST))
}

/// Of every stored byte, this part may be spent on copying objects in demand: 1/4, so that write
/// amplification stays below 1.3.
const COPY_ONE_IN: i64 = 4;

/// Why nothing could be appended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// All segments wait to be reclaimed.
    Segments,
    /// The device is slower than the arriving data.
    Pending,
    /// It does not fit into a segment.
    TooLong,
    /// The directory has been closed: another may have its files open.
    Closed,
}

/// A record to be appended.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Job {
    pub(crate) kind: Kind,
    pub(crate) hash: u64,
    pub(crate) record_bytes: usize,
    /// Location that this is a copy of, or [`FROM_NOWHERE`].
    pub(crate) from: u64,
}

/// An appended record.
pub(crate) struct Appended {
    pub(crate) place: Place,
    /// Checksum of its surroundings.
    pub(crate) checksum: u64,
    /// Where it waits for the device.
    buffer: Arc<Pending>,
    /// Its start in the buffer.
    at: usize,
}

impl Appended {
    /// A part of the record, where it waits for the device.
    pub(crate) fn lend(self, part: Range<usize>) -> Option<Borrowed> {
        Borrowed::new(self.buffer, self.at + part.start..self.at + part.end)
    }
}

/// A buffer on its way to the device.
pub(crate) struct Pending {
    /// Its destination, in bytes.
    start: u64,
    data: Arc<AppendBuffer>,
    is_sealed: AtomicBool,
    amounts: Arc<Amounts>,
}

/// What waits for the device, in bytes.
struct Amounts {
    /// In buffers that are on their way to it.
    sealed: AtomicU64,
    /// Most in all buffers.
    most: AtomicU64,
}

/// What has been appended stays as it is, also when it has been written.
impl Lender for Pending {
    fn lent(&self, part: Range<usize>) -> &[u8] {
        self.data.read(part).unwrap_or_default()
    }
}

impl Pending {
    fn new(start: u64, data: Arc<AppendBuffer>, log: &Log) -> Arc<Self> {
        let (is_sealed, amounts) = (AtomicBool::new(false), Arc::clone(&log.amounts));
        Arc::new(Self { start, data, is_sealed, amounts })
    }

    /// Nothing more goes into it. `true`: it is complete.
    fn seal(&self) -> bool {
        self.amounts.sealed.fetch_add(self.data.capacity() as u64, Ordering::Relaxed);
        self.is_sealed.store(true, Ordering::Relaxed);
        self.data.seal().1 == Progress::Complete
    }
}

/// The open segment.
struct Open {
    /// Its first unit, and its generation.
    first_unit: u64,
    generation: u64,
    /// Start of the next buffer, in units from the beginning of the segment.
    next_unit: u64,
    buffer: Option<Arc<Pending>>,
    /// Units reserved in the buffer.
    used_units: u64,
    entries: Vec<FooterEntry>,
}

/// The log's own state.
pub(crate) struct Log {
    open: Mutex<Option<Open>>,
    pending: RwLock<Vec<Arc<Pending>>>,
    pending_bytes: AtomicU64,
    amounts: Arc<Amounts>,
    gathered_bytes: AtomicU64,
    gathered_bytes_max: AtomicU64,
    sequence: AtomicU64,
    /// Held for reading from the reservation of a record until it is in the index; for writing by a
    /// checkpoint, for a moment.
    pub(crate) settling: RwLock<()>,
    /// Bytes that may be copied.
    copy_tokens: AtomicI64,
    /// Logs that share the memory.
    rings: &'static AtomicUsize,
}

impl Drop for Log {
    fn drop(&mut self) {
        self.rings.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Log {
    pub(crate) fn new(first_sequence: u64) -> Self {
        Self::beside(first_sequence, &RINGS)
    }

    /// The same, counted among these.
    fn beside(first_sequence: u64, rings: &'static AtomicUsize) -> Self {
        rings.fetch_add(1, Ordering::Relaxed);
        Self {
            open: Mutex::new(None),
            pending: RwLock::default(),
            pending_bytes: AtomicU64::new(0),
            amounts: Arc::new(Amounts {
                sealed: AtomicU64::new(0),
                most: AtomicU64::new(PENDING_BYTES_MAX),
            }),
            gathered_bytes: AtomicU64::new(0),
            gathered_bytes_max: AtomicU64::new(PENDING_BYTES_MAX),
            sequence: AtomicU64::new(first_sequence),
            settling: RwLock::new(()),
            copy_tokens: AtomicI64::new(0),
            rings,
        }
    }

    /// The number of the next operation.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::AcqRel)
    }

    /// The number that the next operation will have.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }

    /// Continues behind the state that a checkpoint or a search has found.
    pub(crate) fn restore(&self, sequence: u64) {
        self.sequence.fetch_max(sequence, Ordering::AcqRel);
    }

    /// Most bytes in buffers, as memory is now.
    pub(crate) fn pending_bytes_max(&self) -> u64 {
        self.amounts.most.load(Ordering::Relaxed)
    }

    /// This process can have this much memory beyond its memory cache. If the system does not tell,
    /// shares stay at 64 MiB.
    pub(crate) fn fit_into(&self, room_bytes: u64) {
        let rings = self.rings.load(Ordering::Relaxed);
        let (pending, gathered) = shares(room_bytes, rings);
        self.amounts.most.store(pending, Ordering::Relaxed);
        self.gathered_bytes_max.store(gathered, Ordering::Relaxed);
    }

    /// A writer takes memory for `bytes`, until [`Log::give_back`]. `false`: writers have too much
    /// already.
    pub(crate) fn gather(&self, bytes: u64) -> bool {
        let most = self.gathered_bytes_max.load(Ordering::Relaxed);
        let take = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= most);
        self.gathered_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    /// A writer has given up memory for `bytes`.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.gathered_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes in buffers that are on their way to the device.
    pub(crate) fn sealed_bytes(&self) -> u64 {
        self.amounts.sealed.load(Ordering::Relaxed)
    }

    /// Room until half of what may wait for the device is on its way to it.
    pub(crate) fn room(&self) -> impl Fn() -> Room + Send + Sync + 'static {
        let amounts = Arc::clone(&self.amounts);
        move || {
            let half = amounts.most.load(Ordering::Relaxed) / 2;
            Room::beside(amounts.sealed.load(Ordering::Relaxed), half)
        }
    }

    /// Whether some buffer is under way to the device.
    pub(crate) fn has_sealed(&self) -> bool {
        self.pending.read().iter().any(|pending| pending.is_sealed.load(Ordering::Relaxed))
    }

    /// Whether a write to this part of the data, in bytes, is under way to the device. It would
    /// overwrite later contents.
    pub(crate) fn is_pending_in(&self, part: &Range<u64>) -> bool {
        self.pending.read().iter().any(|pending| part.contains(&pending.start))
    }

    /// The committed bytes at `offset` of the data, as many of them as `read` wants; `None` if they
    /// are on the device already, or will never be there.
    pub(crate) fn read_pending<T>(
        &self,
        offset: u64,
        read: impl FnOnce(&AppendBuffer, usize) -> Option<T>,
    ) -> Option<T> {
        let pending = self.pending.read();
        let found = pending.iter().find(|pending| {
            // Not its capacity: behind a buffer that was sealed early, the next one begins.
            offset.checked_sub(pending.start).is_some_and(|at| at < pending.data.reserved() as u64)
        });
        let found = Arc::clone(found?);
        drop(pending);
        read(&found.data, usize::try_from(offset - found.start).ok()?)
    }

    /// Takes the right to copy `bytes`, if enough was stored since.
    pub(crate) fn may_copy(&self, bytes: u64) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let take = |tokens: i64| (tokens >= bytes).then(|| tokens - bytes);
        self.copy_tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }

    fn earn_copies(&self, bytes: u64, most: u64) {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let earned = i64::try_from(bytes).unwrap_or(0) / COPY_ONE_IN;
        let add = |tokens: i64| Some(tokens.saturating_add(earned).min(most));
        let _ = self.copy_tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

/// Room for one record.
struct Reserved {
    region: Region,
    pending: Arc<Pending>,
    place: Place,
    length: LengthClass,
}

impl Store {
    /// Appends a record: `fill` writes it and returns its checksum, `settle` makes it findable.
    pub(crate) fn append(
        self: &Arc<Self>,
        job: Job,
        fill: impl FnOnce(Place, &mut [u8]) -> u64,
        settle: impl FnOnce(Entry),
    ) -> Result<Appended, Full> {
        let _settling = self.log.settling.read();
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Full::Closed);
        }
        let mut sealed = Vec::new();
        let reserved = self.reserve(job, &mut sealed);
        sealed.into_iter().for_each(|pending| self.submit(pending));
        let mut reserved = reserved?;
        let checksum = fill(reserved.place, &mut reserved.region);
        let at = reserved.region.offset();
        let progress = reserved.region.publish();
        settle(Entry {
            location: reserved.place.location,
            length: reserved.length,
            freq: 0,
            kind: job.kind as u8,
        });
        if progress == Progress::Complete {
            self.submit(Arc::clone(&reserved.pending));
        }
        if job.from == FROM_NOWHERE {
            self.log.earn_copies(job.record_bytes as u64, self.geometry.segment_bytes);
        }
        Ok(Appended { place: reserved.place, checksum, buffer: reserved.pending, at })
    }

    fn reserve(&self, job: Job, sealed: &mut Vec<Arc<Pending>>) -> Result<Reserved, Full> {
        let length = LengthClass::of_bytes(job.record_bytes as u64).ok_or(Full::TooLong)?;
        let units = (job.record_bytes as u64).div_ceil(UNIT_BYTES);
        if units > self.geometry.record_units_max() {
            return Err(Full::TooLong);
        }
        let mut guard = self.log.open.lock();
        loop {
            let open = match &mut *guard {
                Some(open) => open,
                none => none.insert(self.open_segment(job.from != FROM_NOWHERE)?),
            };
            if !open.has_room(units, self.geometry.segment_units()) {
                self.finish_segment(open, sealed);
                *guard = None;
                continue;
            }
            let pending = match &open.buffer {
                Some(buffer) => Arc::clone(buffer),
                None => self.open_buffer(open, units)?,
            };
            let Some(region) = pending.data.reserve(job.record_bytes) else {
                open.seal(sealed);
                continue;
            };
            let unit = open.next_unit + open.used_units;
            open.used_units += units;
            let place = Place {
                location: open.first_unit + unit,
                generation: open.generation,
                sequence: self.log.next_sequence(),
                from: job.from,
            };
            open.entries.push(FooterEntry {
                hash: job.hash,
                sequence: place.sequence,
                from: job.from,
                unit: unit as u32,
                length_class: length.to_bits(),
                kind: job.kind,
            });
            return Ok(Reserved { region, pending, place, length });
        }
    }

    fn open_segment(&self, for_copy: bool) -> Result<Open, Full> {
        let opened = self.segments.open(for_copy);
        if self.segments.to_reclaim() > 0 {
            self.wake_keeper();
        }
        let (number, generation) = opened.ok_or(Full::Segments)?;
        Ok(Open {
            first_unit: u64::from(number) * self.geometry.segment_units(),
            generation,
            next_unit: 0,
            buffer: None,
            used_units: 0,
            entries: Vec::new(),
        })
    }

    /// A new buffer with room for `units`; the first one of a segment begins with the segment's
    /// header.
    fn open_buffer(&self, open: &mut Open, units: u64) -> Result<Arc<Pending>, Full> {
        let is_first = open.next_unit == 0;
        let needed = ((units + u64::from(is_first)) * UNIT_BYTES).next_multiple_of(IO_BYTES);
        let rest = (self.geometry.segment_units() - open.next_unit) * UNIT_BYTES;
        let bytes = needed.max(BUFFER_BYTES.min(rest));
        let before = self.log.pending_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > self.log.pending_bytes_max() {
            self.log.pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Full::Pending);
        }
        let data = AppendBuffer::new(bytes as usize);
        open.used_units = 0;
        if is_first && let Some(mut header) = data.reserve(SEGMENT_HEADER_BYTES) {
            let number = open.first_unit / self.geometry.segment_units();
            format::encode_segment_header(
                self.store_id,
                number as u32,
                open.generation,
                &mut header,
            );
            // Not complete: it is not sealed yet.
            let _ = header.publish();
            open.used_units = 1;
        }
        let start = (open.first_unit + open.next_unit) * UNIT_BYTES;
        let pending = Pending::new(start, data, &self.log);
        self.log.pending.write().push(Arc::clone(&pending));
        open.buffer = Some(Arc::clone(&pending));
        Ok(pending)
    }

    /// Seals the last buffer of a segment and adds the footer.
    fn finish_segment(&self, open: &mut Open, sealed: &mut Vec<Arc<Pending>>) {
        open.seal(sealed);
        let bytes = format::footer_bytes(open.entries.len());
        let data = AppendBuffer::new(bytes as usize);
        if let Some(mut region) = data.reserve(bytes as usize) {
            format::encode_footer(self.store_id, open.generation, &open.entries, &mut region);
            let _ = region.publish();
        }
        let end = (open.first_unit + self.geometry.segment_units()) * UNIT_BYTES;
        let pending = Pending::new(end - bytes, data, &self.log);
        self.log.pending_bytes.fetch_add(pending.data.capacity() as u64, Ordering::Relaxed);
        self.log.pending.write().push(Arc::clone(&pending));
        if pending.seal() {
            sealed.push(pending);
        }
        self.segments.close(open.entries.iter().any(|entry| entry.kind == Kind::Fragment));
    }

    /// Hands buffers to the device, also those that are not full.
    pub(crate) fn flush(self: &Arc<Self>) {
        let mut sealed = Vec::new();
        if let Some(open) = &mut *self.log.open.lock() {
            open.seal(&mut sealed);
        }
        sealed.into_iter().for_each(|pending| self.submit(pending));
    }

    /// The same, and ends the open segment.
    pub(crate) fn finish(self: &Arc<Self>) {
        let mut sealed = Vec::new();
        let mut guard = self.log.open.lock();
        if let Some(mut open) = guard.take() {
            self.finish_segment(&mut open, &mut sealed);
        }
        drop(guard);
        sealed.into_iter().for_each(|pending| self.submit(pending));
    }

    fn submit(self: &Arc<Self>, pending: Arc<Pending>) {
        let (store, written) = (Arc::clone(self), Arc::clone(&pending));
        let range = 0..pending.data.reserved();
        self.counts.write(range.len() as u64);
        let done = Box::new(move |outcome: std::io::Result<()>| {
            match outcome {
                Ok(()) => store.health.success(),
                Err(error) => _ = store.failed("write", &error),
            }
            store.written(&written);
        });
        self.data.write(pending.start, Arc::clone(&pending.data), range, done);
    }

    fn written(&self, done: &Arc<Pending>) {
        self.log.pending.write().retain(|pending| !Arc::ptr_eq(pending, done));
        let bytes = done.data.capacity() as u64;
        self.log.pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.log.amounts.sealed.fetch_sub(bytes, Ordering::Relaxed);
        self.turns.look();
        if self.segments.to_reclaim() > 0 {
            // It may have waited for this.
            self.wake_keeper();
        }
        self.progress.notify_waiters();
    }
}

impl Open {
    /// Whether `units` more leave room for the footer.
    fn has_room(&self, units: u64, segment_units: u64) -> bool {
        let per_io = IO_BYTES / UNIT_BYTES;
        let begin = match self.next_unit + self.used_units {
            0 => 1,
            unit => unit,
        };
        // If the buffer is full, the record goes to the next multiple.
        let end = (begin.next_multiple_of(per_io) + units).next_multiple_of(per_io);
        end + format::footer_bytes(self.entries.len() + 1) / UNIT_BYTES <= segment_units
    }

    fn seal(&mut self, sealed: &mut Vec<Arc<Pending>>) {
        let Some(buffer) = self.buffer.take() else { return };
        let per_io = IO_BYTES / UNIT_BYTES;
        self.next_unit = (self.next_unit + self.used_units).next_multiple_of(per_io);
        self.used_units = 0;
        if buffer.seal() {
            sealed.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn buffers_follow_memory() {
        assert_eq!(shares(0, 1), (PENDING_BYTES_LEAST, GATHERED_BYTES_LEAST));
        assert_eq!(shares(32 * MIB, 1), (8 * MIB, 2 * MIB));
        assert_eq!(shares(64 * MIB, 1), (16 * MIB, 4 * MIB));
        assert_eq!(shares(256 * MIB, 1), (PENDING_BYTES_MAX, 16 * MIB));
        assert_eq!(shares(u64::MAX, 1), (PENDING_BYTES_MAX, u64::MAX / GATHERED_SHARE));
    }

    #[test]
    fn many_rings_share_the_memory() {
        let all: &'static AtomicUsize = Box::leak(Box::default());
        let log = Log::beside(1, all);
        assert_eq!(log.pending_bytes_max(), PENDING_BYTES_MAX);
        let fitted = |room_bytes| {
            log.fit_into(room_bytes);
            log.pending_bytes_max()
        };
        assert_eq!(fitted(64 * MIB), 16 * MIB);
        let others: Vec<_> = (0..5).map(|_| Log::beside(1, all)).collect();
        assert_eq!(fitted(128 * MIB), 16 * MIB, "an eighth, as there are six");
        assert_eq!(fitted(1024 * MIB), PENDING_BYTES_MAX);
        assert!(!log.gather(32 * MIB + 1) && log.gather(32 * MIB));
        drop(others);
        assert_eq!(fitted(128 * MIB), 32 * MIB);
    }

    #[test]
    fn what_writers_gather_is_bounded() {
        let log = Log::new(1);
        log.fit_into(0);
        assert!(log.gather(GATHERED_BYTES_LEAST - 1) && log.gather(1));
        assert!(!log.gather(1) && !log.gather(u64::MAX));
        log.give_back(1);
        assert!(log.gather(1) && !log.gather(1));
    }
}
