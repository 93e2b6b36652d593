//! A buffer that several threads fill at once, each a part of its own, and that is then written to
//! disk whole.
//!
//! Room is handed out by a single atomic addition, in units of 512 bytes. A part ([`Region`]) is
//! exclusive until it is published; from then on it never changes, and any thread may read it. When
//! the buffer is sealed and the last region is done, exactly one caller is told
//! ([`Progress::Complete`]): that caller should write the buffer.

#![allow(unsafe_code, reason = "disjoint parts of one buffer are written by several threads")]

mod watch;

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use self::watch::Watch;
use crate::aligned::{ALIGN_BYTES, Buffer};
use crate::sync::{AtomicU64, Mutex};

/// Unit of room: every region starts at a multiple of it.
pub const UNIT_BYTES: usize = 512;

/// Largest append buffer. Sizes are 32-bit numbers of units, so this is a guard against mistakes,
/// not a need.
pub const APPEND_BYTES_MAX: usize = 1 << 30;

/// Memory of dropped buffers that is kept, of all threads together, since touching fresh pages
/// would cost more than filling them.
pub const SPARE_BYTES_MAX: usize = 16 << 20;

/// Less when memory is short.
static SPARE_BYTES: AtomicUsize = AtomicUsize::new(SPARE_BYTES_MAX);

/// Set in [`AppendBuffer::state`] when nothing more is handed out.
const SEALED: u64 = 1 << 63;
/// Set when a caller has been told that the buffer is complete.
const NOTICED: u64 = 1 << 62;
/// One region that is not done, in [`AppendBuffer::state`]; the units handed out are in the lower
/// 32 bits.
const ONE_OPEN: u64 = 1 << 32;
/// All regions that are not done: 30 bits, and there are never more than units.
const OPEN: u64 = NOTICED - ONE_OPEN;
/// Units handed out.
const UNITS: u64 = ONE_OPEN - 1;

/// Memory of dropped buffers.
static SPARE: Mutex<Vec<Buffer>> = Mutex::new(Vec::new());

/// Of the memory of dropped buffers no more is kept from now on, [`SPARE_BYTES_MAX`] at most.
pub fn limit_spare(bytes: usize) {
    let most = bytes.min(SPARE_BYTES_MAX);
    if SPARE_BYTES.swap(most, Ordering::Relaxed) <= most {
        return;
    }
    let mut spare = SPARE.lock();
    let mut kept: usize = spare.iter().map(Buffer::capacity).sum();
    spare.retain(|buffer| {
        let stays = kept <= most;
        kept -= if stays { 0 } else { buffer.capacity() };
        stays
    });
}

/// The result of an operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[must_use = "a completed buffer must be written"]
pub enum Progress {
    /// Regions are under way, or the buffer is not sealed, or a caller has been told already.
    Pending,
    /// The buffer is sealed and every region is done. Said once.
    Complete,
}

/// Memory that is filled by many and then read by many.
pub struct AppendBuffer {
    /// Only its memory: all access is through pointers to disjoint parts. At least `capacity_units`
    /// long, and never empty until dropped.
    memory: Option<Buffer>,
    capacity_units: usize,
    state: AtomicU64,
    /// One bit for each unit that will not change any more.
    committed: Box<[AtomicU64]>,
    watch: Watch,
}

impl AppendBuffer {
    /// An empty buffer of `capacity` bytes, rounded up to a multiple of 4096. Its content is
    /// unspecified.
    ///
    /// # Panics
    /// Beyond [`APPEND_BYTES_MAX`].
    pub fn new(capacity: usize) -> Arc<Self> {
        assert!(capacity <= APPEND_BYTES_MAX, "an append buffer of {capacity} bytes");
        let capacity = capacity.max(1).next_multiple_of(ALIGN_BYTES);
        let memory_bytes = size_class(capacity);
        let mut spare = SPARE.lock();
        // The one dropped last may still be in the processor's cache.
        let found = spare.iter().rposition(|buffer| buffer.capacity() == memory_bytes);
        let memory = found.map(|at| spare.remove(at));
        drop(spare);
        let units = capacity / UNIT_BYTES;
        Arc::new(Self {
            memory: Some(memory.unwrap_or_else(|| Buffer::alone(memory_bytes))),
            capacity_units: units,
            state: AtomicU64::new(0),
            committed: (0..units.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            watch: Watch::new(units),
        })
    }

    /// Bytes that it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity_units * UNIT_BYTES
    }

    /// Room for `len` bytes of the caller's own. `None` when there is not as much left, or when it
    /// is sealed.
    pub fn reserve(self: &Arc<Self>, len: usize) -> Option<Region> {
        let units = len.div_ceil(UNIT_BYTES);
        let room = |state: u64| {
            let free = self.capacity_units - (state & UNITS) as usize;
            (state & SEALED == 0 && 0 < units && units <= free)
                .then(|| state + units as u64 + ONE_OPEN)
        };
        let before = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(self.region((before & UNITS) as usize * UNIT_BYTES, len))
    }

    fn region(self: &Arc<Self>, start: usize, len: usize) -> Region {
        Region { buffer: Arc::clone(self), start, len, is_done: false }
    }

    /// Ends reservations. Returns how many bytes there are to be written, a multiple of 4096 (the
    /// rest behind the last region is zeroed); a second call returns the same.
    pub fn seal(self: &Arc<Self>) -> (usize, Progress) {
        let align = (ALIGN_BYTES / UNIT_BYTES) as u64;
        // The padding is a region like others, so that no caller sees a complete buffer without it.
        let close = |state: u64| {
            let units = (state & UNITS).next_multiple_of(align);
            (state & SEALED == 0).then_some(((state & !UNITS) + units + ONE_OPEN) | SEALED)
        };
        match self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, close) {
            Ok(before) => {
                let start = (before & UNITS) as usize * UNIT_BYTES;
                let end = start.next_multiple_of(ALIGN_BYTES);
                (end, self.region(start, end - start).abandon())
            }
            Err(state) => ((state & UNITS) as usize * UNIT_BYTES, Progress::Pending),
        }
    }

    /// Bytes handed out so far, a multiple of 512.
    pub fn reserved(&self) -> usize {
        (self.state.load(Ordering::Relaxed) & UNITS) as usize * UNIT_BYTES
    }

    /// Whether the buffer is sealed and every region is done. Then all of it can be read.
    pub fn is_complete(&self) -> bool {
        let state = self.state.load(Ordering::Acquire);
        state & SEALED != 0 && state & OPEN == 0
    }

    /// Asks whether the buffer is complete and no caller has been told yet. This happens when the
    /// last region was dropped instead of published, because a drop returns nothing.
    pub fn notice(&self) -> Progress {
        let claim =
            |state: u64| (state & (SEALED | OPEN | NOTICED) == SEALED).then_some(state | NOTICED);
        // Acquire: all regions were done before.
        match self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, claim) {
            Ok(_) => Progress::Complete,
            Err(_) => Progress::Pending,
        }
    }

    /// The bytes of a range, if all its units are published (or abandoned: zeros).
    pub fn read(&self, range: Range<usize>) -> Option<&[u8]> {
        let memory = self.memory.as_ref()?;
        if range.start > range.end || range.end > self.capacity() {
            return None;
        }
        let units = range.start / UNIT_BYTES..range.end.div_ceil(UNIT_BYTES);
        if !masks(units).all(|(at, mask)| self.committed[at].load(Ordering::Acquire) & mask == mask)
        {
            return None;
        }
        self.watch.reads(range.clone());
        // SAFETY: inside the memory, and committed units are never written again while the buffer
        // lives. The loads above synchronise with the releases that followed the last writes.
        Some(unsafe {
            std::slice::from_raw_parts(memory.start().as_ptr().add(range.start), range.len())
        })
    }

    /// Pointer to a byte. The caller makes sure that no other access happens there at the same
    /// time.
    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.capacity());
        // Only a buffer that is being dropped has no memory.
        self.memory
            .as_ref()
            .map_or(std::ptr::null_mut(), |memory| memory.start().as_ptr().wrapping_add(offset))
    }
}

/// Size of the memory for `capacity` bytes. There are few sizes, four to each doubling, so that
/// freed memory fits again.
fn size_class(capacity: usize) -> usize {
    capacity.next_multiple_of((capacity.next_power_of_two() / 8).max(ALIGN_BYTES))
}

/// Words of a bit map that `units` touch, each with the bits in it. None for an empty range.
fn masks(units: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let words = if units.is_empty() { 0..0 } else { units.start / 64..units.end.div_ceil(64) };
    words.map(move |word| {
        let low = units.start.saturating_sub(word * 64);
        let high = (units.end - word * 64).min(64);
        (word, u64::MAX >> (64 - (high - low)) << low)
    })
}

impl Drop for AppendBuffer {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        let mut spare = SPARE.lock();
        let kept: usize = spare.iter().map(Buffer::capacity).sum();
        if kept + memory.capacity() <= SPARE_BYTES.load(Ordering::Relaxed) {
            spare.push(memory);
        }
    }
}

impl fmt::Debug for AppendBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.load(Ordering::Relaxed);
        f.debug_struct("AppendBuffer")
            .field("reserved", &self.reserved())
            .field("open", &((state & OPEN) / ONE_OPEN))
            .field("sealed", &(state & SEALED != 0))
            .finish_non_exhaustive()
    }
}

/// A part of an [`AppendBuffer`] that only its owner can see. Its content is unspecified at first:
/// fill all of it.
///
/// Dropped without being published, it is zeroed and counts as done.
#[derive(Debug)]
pub struct Region {
    buffer: Arc<AppendBuffer>,
    start: usize,
    len: usize,
    is_done: bool,
}

impl Region {
    /// Where it starts in the buffer, a multiple of 512.
    pub fn offset(&self) -> usize {
        self.start
    }

    /// Makes the region readable for all threads. The rest of its last unit is zeroed.
    pub fn publish(mut self) -> Progress {
        self.finish(self.len);
        self.buffer.notice()
    }

    /// Zeroes it and makes it readable.
    pub fn abandon(mut self) -> Progress {
        self.finish(0);
        self.buffer.notice()
    }

    /// Zeroes the region from `keep` to the end of its last unit and gives it up.
    fn finish(&mut self, keep: usize) {
        let end = self.len.next_multiple_of(UNIT_BYTES);
        self.buffer.watch.writes(self.start + keep..self.start + end);
        // SAFETY: the units of this region belong to it alone until they are committed below, and
        // `keep <= end`.
        unsafe { std::ptr::write_bytes(self.buffer.at(self.start + keep), 0, end - keep) };
        self.is_done = true;
        let first = self.start / UNIT_BYTES;
        for (at, mask) in masks(first..first + end / UNIT_BYTES) {
            self.buffer.committed[at].fetch_or(mask, Ordering::Release);
        }
        // Release: a thread that sees the buffer complete sees the bits and bytes above.
        self.buffer.state.fetch_sub(ONE_OPEN, Ordering::Release);
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buffer.watch.reads(self.start..self.start + self.len);
        // SAFETY: inside the memory, which was initialised; this region alone has these units.
        unsafe { std::slice::from_raw_parts(self.buffer.at(self.start), self.len) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buffer.watch.writes(self.start..self.start + self.len);
        // SAFETY: as above, and `&mut self` is the only access to the region.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.at(self.start), self.len) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if !self.is_done {
            self.finish(0);
        }
    }
}

#[cfg(all(test, not(miri)))]
mod models;
#[cfg(test)]
mod tests;
