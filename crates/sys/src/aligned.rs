//! Buffers for direct I/O: start and capacity are multiples of 4096 bytes.
//!
//! A thread takes its buffers from an arena of its own, and they return to it wherever they are
//! dropped. So pages are touched once and then reused while warm. The arena is divided by the buddy
//! method, lowest addresses first: used buffers gather at its start, and the thread's I/O ring can
//! register that part with the kernel. A buffer that does not fit has memory of its own, which it
//! frees.

#![allow(unsafe_code, reason = "memory with an alignment of its own is handed out by hand")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::mapping::{self, HUGE_BYTES};
use crate::sync::Mutex;

/// Alignment in memory, and the unit of capacity.
pub const ALIGN_BYTES: usize = 4096;

/// Memory that one thread keeps for its buffers. It is mapped when first used, and a page costs
/// nothing before it is used. Buffers beyond it have memory of their own.
pub const ARENA_BYTES: usize = 8 << 20;

/// Largest buffer that comes from an arena.
pub const POOLED_BYTES_MAX: usize = 2 << 20;

/// First part of an arena that an I/O ring registers with the kernel; it is locked in memory then.
pub(crate) const FIXED_BYTES: usize = 2 << 20;

/// Pages of an arena that are touched together when they are used for the first time.
const FRESH_BATCH_BYTES: usize = 64 << 10;

/// Sizes of blocks: 4 KiB, 8 KiB, … 2 MiB.
const ORDERS: usize = POOLED_BYTES_MAX.ilog2() as usize - ALIGN_BYTES.ilog2() as usize + 1;

/// Owned memory for direct I/O. It reads as `len` bytes; content is unspecified until it has been
/// written.
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
    /// `None`: from the allocator, or mapped for it alone.
    home: Option<Arc<Arena>>,
}

// SAFETY: a buffer owns its memory; the arena it returns to is behind a lock.
unsafe impl Send for Buffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A buffer of `len` bytes from the arena of this thread.
    ///
    /// When the system has no memory, the process ends, as with a `Vec`.
    pub fn new(len: usize) -> Self {
        if len > POOLED_BYTES_MAX {
            return Self::alone(len);
        }
        let capacity = len.max(ALIGN_BYTES).next_power_of_two();
        // A thread that is being torn down has no arena any more.
        let pooled = HOME.try_with(|home| Arena::take(home.as_ref()?, capacity)).ok().flatten();
        let Some(mut buffer) = pooled else { return Self::alone(len) };
        buffer.len = len;
        buffer
    }

    /// A buffer of `len` bytes, all zero, that belongs to no arena: in huge pages if it fills them.
    pub(crate) fn alone(len: usize) -> Self {
        let capacity = len.max(1).next_multiple_of(ALIGN_BYTES);
        let layout = layout(capacity);
        let start = match fills_huge_pages(capacity) {
            true => mapping::map_huge(capacity),
            // SAFETY: the size is not zero.
            false => NonNull::new(unsafe { alloc_zeroed(layout) }),
        };
        let Some(start) = start else { handle_alloc_error(layout) };
        Self { start, len, capacity, home: None }
    }

    /// Bytes that it can hold without another allocation: at least its length.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes how many bytes it reads as. Bytes that come into view are unspecified.
    ///
    /// # Panics
    /// If that is more than its capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "longer than the capacity of a buffer");
        self.len = len;
    }

    /// Its first byte, for I/O and for sharing by hand.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Whether it lies in the part of `arena` that a ring registers.
    pub(crate) fn is_fixed_in(&self, arena: &Arc<Arena>) -> bool {
        self.home.as_ref().is_some_and(|home| {
            let end = self.start.as_ptr() as usize + self.capacity;
            Arc::ptr_eq(home, arena) && end - arena.base.as_ptr() as usize <= FIXED_BYTES
        })
    }
}

fn fills_huge_pages(capacity: usize) -> bool {
    capacity.is_multiple_of(HUGE_BYTES)
}

/// # Panics
/// If `capacity` is more than an address space: no such buffer is asked for.
fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, ALIGN_BYTES)
        .unwrap_or_else(|_| panic!("a buffer of {capacity} bytes"))
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len <= capacity` bytes are ours and were initialised, by zeros at first.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` is the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            home.give_back(self.start, self.capacity);
        } else if fills_huge_pages(self.capacity) {
            mapping::unmap(self.start, self.capacity);
        } else {
            // SAFETY: allocated with this layout in `alone`, and nobody else has it.
            unsafe { dealloc(self.start.as_ptr(), layout(self.capacity)) }
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} of {} bytes)", self.len, self.capacity)
    }
}

thread_local! {
    /// The arena of this thread; `None` when the system had no room for it.
    static HOME: Option<Arc<Arena>> = Arena::map().map(Arc::new);
}

/// The arena of this thread, for registering it.
pub(crate) fn home() -> Option<Arc<Arena>> {
    HOME.try_with(Option::clone).ok().flatten()
}

/// Memory from which buffers are cut. It lives as long as its thread or the last of its buffers.
pub(crate) struct Arena {
    base: NonNull<u8>,
    state: Mutex<State>,
}

// SAFETY: the memory behind `base` is handed out in disjoint blocks, and which are free is behind a
// lock.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    fn map() -> Option<Self> {
        let base = mapping::map(ARENA_BYTES)?;
        Some(Self { base, state: Mutex::new(State { blocks: Blocks::new(), touched_bytes: 0 }) })
    }

    /// Its first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn take(home: &Arc<Self>, capacity: usize) -> Option<Buffer> {
        let offset = home.state.lock().take(home.base, capacity)?;
        // SAFETY: blocks lie inside the mapping.
        let start = unsafe { home.base.add(offset) };
        Some(Buffer { start, len: 0, capacity, home: Some(Arc::clone(home)) })
    }

    fn give_back(&self, start: NonNull<u8>, capacity: usize) {
        let offset = start.as_ptr() as usize - self.base.as_ptr() as usize;
        self.state.lock().blocks.give_back(offset / capacity, order_of(capacity));
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        mapping::unmap(self.base, ARENA_BYTES);
    }
}

struct State {
    blocks: Blocks,
    /// Pages below it have been used at least once.
    touched_bytes: usize,
}

impl State {
    fn take(&mut self, base: NonNull<u8>, capacity: usize) -> Option<usize> {
        let offset = self.blocks.take(order_of(capacity))? * capacity;
        let end = offset + capacity;
        if end > self.touched_bytes {
            let from = self.touched_bytes;
            self.touched_bytes = end.next_multiple_of(FRESH_BATCH_BYTES).min(ARENA_BYTES);
            // SAFETY: `from` is inside the mapping.
            mapping::fault_in(unsafe { base.add(from) }, self.touched_bytes - from);
        }
        Some(offset)
    }
}

/// Which block size a capacity is: 0 for 4 KiB.
fn order_of(capacity: usize) -> usize {
    (capacity / ALIGN_BYTES).ilog2() as usize
}

/// Free blocks: one bit for each block of each order.
struct Blocks([Box<[u64]>; ORDERS]);

impl Blocks {
    fn new() -> Self {
        let mut orders = std::array::from_fn(|order| {
            let blocks = ARENA_BYTES / (ALIGN_BYTES << order);
            vec![0_u64; blocks.div_ceil(64)].into_boxed_slice()
        });
        let largest = ARENA_BYTES / POOLED_BYTES_MAX;
        orders[ORDERS - 1][0] = (1 << largest) - 1;
        Self(orders)
    }

    /// The index of a free block of `order`; larger ones are split for it.
    fn take(&mut self, order: usize) -> Option<usize> {
        let (found, mut index) =
            (order..ORDERS).find_map(|order| Some((order, self.pop(order)?)))?;
        for smaller in (order..found).rev() {
            index *= 2;
            self.0[smaller][(index + 1) / 64] |= 1 << ((index + 1) % 64);
        }
        Some(index)
    }

    /// Removes the free block of `order` with the lowest address.
    fn pop(&mut self, order: usize) -> Option<usize> {
        let words = &mut self.0[order];
        let at = words.iter().position(|word| *word != 0)?;
        let bit = words[at].trailing_zeros() as usize;
        words[at] &= words[at] - 1;
        Some(at * 64 + bit)
    }

    /// Frees a block and joins it with its neighbour as often as that is free too.
    fn give_back(&mut self, mut index: usize, mut order: usize) {
        while order + 1 < ORDERS {
            let buddy = index ^ 1;
            let (word, bit) = (&mut self.0[order][buddy / 64], 1 << (buddy % 64));
            if *word & bit == 0 {
                break;
            }
            *word &= !bit;
            index /= 2;
            order += 1;
        }
        self.0[order][index / 64] |= 1 << (index % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(buffer: &Buffer) -> usize {
        buffer.start.as_ptr() as usize - home().expect("an arena").base.as_ptr() as usize
    }

    /// Bits that are set in a fresh arena, and in one to which everything has returned.
    fn is_whole(arena: &Arena) -> bool {
        let state = arena.state.lock();
        let (largest, rest) = state.blocks.0.split_last().expect("orders");
        largest[0] == 0b1111 && rest.iter().all(|words| words.iter().all(|word| *word == 0))
    }

    #[test]
    fn buffers_are_aligned_and_as_long_as_asked() {
        for len in [0, 1, 511, 4096, 4097, 13_000, 1 << 20, POOLED_BYTES_MAX, POOLED_BYTES_MAX + 1]
        {
            let mut buffer = Buffer::new(len);
            assert_eq!((buffer.len(), buffer.as_ptr() as usize % ALIGN_BYTES), (len, 0));
            assert_eq!((buffer.capacity() >= len, buffer.capacity() % ALIGN_BYTES), (true, 0));
            assert_eq!(buffer.home.is_some(), len <= POOLED_BYTES_MAX);
            buffer.fill(7);
            buffer.set_len(buffer.capacity());
            // An interpreter would need minutes for all of them.
            let step = if cfg!(miri) { 1021 } else { 1 };
            assert!(buffer[..len].iter().step_by(step).all(|byte| *byte == 7));
        }
        assert!(is_whole(&home().expect("an arena")));
    }

    #[test]
    #[should_panic(expected = "longer than the capacity")]
    fn no_longer_than_the_capacity() {
        Buffer::new(1).set_len(ALIGN_BYTES + 1);
    }

    #[test]
    fn buffers_of_mixed_sizes_never_overlap_and_all_room_comes_back() {
        let mut rng = humboldt_base::rng::Rng::new(7);
        let mut held: Vec<Buffer> = Vec::new();
        for _ in 0..if cfg!(miri) { 100 } else { 5000 } {
            if rng.below(5) < 2 && !held.is_empty() {
                held.swap_remove(rng.below(held.len() as u64) as usize);
                continue;
            }
            let new = Buffer::new(1 << rng.below(20));
            let (from, to) = (new.as_ptr() as usize, new.as_ptr() as usize + new.capacity());
            for other in &held {
                let start = other.as_ptr() as usize;
                assert!(
                    to <= start || start + other.capacity() <= from,
                    "{new:?} overlaps {other:?}"
                );
            }
            held.push(new);
        }
        let was_full = held.iter().any(|buffer| buffer.home.is_none());
        assert!(was_full || cfg!(miri), "the arena was full once");
        held.clear();
        assert!(is_whole(&home().expect("an arena")));
    }

    #[test]
    fn the_lowest_room_is_used_first_and_is_fixed() {
        let first = Buffer::new(16 << 10);
        let second = Buffer::new(16 << 10);
        assert_eq!((offset(&first), offset(&second)), (0, 16 << 10));
        drop(first);
        assert_eq!(offset(&Buffer::new(10_000)), 0);
        let arena = home().expect("an arena");
        assert!(second.is_fixed_in(&arena));
        let large = Buffer::new(POOLED_BYTES_MAX);
        assert!(!large.is_fixed_in(&arena));
        assert!(
            !std::thread::spawn(|| Buffer::new(1)).join().expect("a buffer").is_fixed_in(&arena)
        );
    }

    #[test]
    fn a_full_arena_is_not_the_end() {
        let held: Vec<Buffer> = (0..5).map(|_| Buffer::new(POOLED_BYTES_MAX)).collect();
        assert_eq!(held.iter().filter(|buffer| buffer.home.is_some()).count(), 4);
    }

    #[test]
    fn a_buffer_may_be_dropped_on_another_thread_and_outlive_its_own() {
        let arena = home().expect("an arena");
        let buffer = Buffer::new(1);
        assert!(!is_whole(&arena));
        std::thread::spawn(move || drop(buffer)).join().expect("dropped");
        assert!(is_whole(&arena));
        let mut orphan = std::thread::spawn(|| Buffer::new(5000)).join().expect("a buffer");
        orphan.fill(1);
        assert_eq!(orphan.iter().map(|byte| usize::from(*byte)).sum::<usize>(), 5000);
    }
}
