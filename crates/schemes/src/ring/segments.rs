//! The state of each segment: free, being filled, or full.
//!
//! The states of a segment follow each other in one direction: free → open → closed → (its end is
//! in the log of removals) → free. Only segments older than the newest checkpoint are reclaimed, so
//! each is used again at most once before the next one. That makes recovery simple: every location
//! in the checkpoint is valid, or the log says that it is not.
//!
//! **Held segments.** Who has begun to read a large object can read it to its end: a segment with a
//! part of it that is reclaimed meanwhile becomes free when the last such reader has ended. Some
//! segments at most wait for readers ([`HELD_ONE_IN`]): beyond it they become free at once, and the
//! reader cannot go on.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Smallest segment in bytes.
pub(crate) const SEGMENT_BYTES_MIN: u64 = 256 * 1024;
/// Largest segment in bytes.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Fewest segments that a ring can turn with.
pub(crate) const SEGMENTS_MIN: u32 = 6;
/// Number of segments of a new store, where the bounds above allow it.
const SEGMENTS_WANTED: u64 = 64;
/// One segment in this many is kept free, so that writing need not wait for reclaiming …
const FREE_ONE_IN: u32 = 16;
/// … at least and at most this many.
const FREE_MIN: u32 = 2;
const FREE_MAX: u32 = 64;
/// When one segment in this many has been reclaimed, a checkpoint is due: it costs time for the
/// whole index, and operations since the last one have to be searched after a crash.
const CHECKPOINT_ONE_IN: u32 = 8;
/// Of the segments beyond [`SEGMENTS_MIN`], one in this many may wait for readers: clients that
/// read slowly leave most of the ring to stored objects.
const HELD_ONE_IN: u32 = 4;

/// Size of the segments of a new store of `capacity_bytes`.
pub(crate) fn segment_bytes_for(capacity_bytes: u64) -> u64 {
    let wanted = (capacity_bytes / SEGMENTS_WANTED).max(1);
    let power_of_two = 1 << wanted.ilog2();
    u64::clamp(power_of_two, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
}

/// The state of a segment in a checkpoint.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Free,
    /// Being filled. It is not gone on with after a restart.
    Open,
    Closed,
}

/// One line of a checkpoint's table of segments.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentEntry {
    pub(crate) generation: u64,
    pub(crate) is: Use,
}

/// A segment that is full.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) number: u32,
    pub(crate) generation: u64,
    /// Parts of large objects are in it, or may be. The index does not know where they lie: the
    /// footer tells whose they are.
    pub(crate) has_fragments: bool,
}

/// The table of segments.
pub(crate) struct Segments {
    generations: Box<[AtomicU64]>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: VecDeque<u32>,
    /// Segments reclaimed since the last checkpoint.
    reclaimed: u32,
    /// The newest checkpoint knows the generations below this one.
    known_below: u64,
    /// Full, the one that was begun first in front.
    closed: VecDeque<Closed>,
    open: Option<u32>,
    next_generation: u64,
    /// Number of readers that hold a segment, by its generation.
    readers: HashMap<u64, u32>,
    /// Reclaimed segments that are free when their readers have ended, by generation.
    waiting: HashMap<u64, u32>,
}

impl State {
    /// Whether a segment has this content, and cannot be overwritten.
    fn is_in_use(&self, generation: u64) -> bool {
        // The open one is the newest.
        self.open.is_some() && generation + 1 == self.next_generation
            || self.closed.binary_search_by_key(&generation, |closed| closed.generation).is_ok()
    }

    fn waiting_max(&self, count: u32) -> usize {
        (count.saturating_sub(SEGMENTS_MIN) / HELD_ONE_IN) as usize
    }
}

impl Segments {
    /// All free. Generations begin with `first_generation`.
    pub(crate) fn new(count: u32, first_generation: u64) -> Self {
        let generations = (0..count).map(|_| AtomicU64::new(0)).collect();
        let state = State {
            free: (0..count).collect(),
            next_generation: first_generation,
            ..State::default()
        };
        Self { generations, state: Mutex::new(state) }
    }

    /// From a checkpoint and the operations after it. Lines beyond the number of segments are
    /// ignored; segments without a line are free.
    pub(crate) fn restore(&self, entries: &[SegmentEntry], next_generation: u64) {
        let mut state = self.state.lock();
        let mut closed: Vec<Closed> = Vec::new();
        state.free.clear();
        state.open = None;
        for (number, generation) in (0..).zip(&self.generations) {
            let entry = entries.get(number as usize);
            generation.store(entry.map_or(0, |entry| entry.generation), Ordering::Release);
            match entry.map(|entry| entry.is) {
                None | Some(Use::Free) => state.free.push_back(number),
                Some(Use::Open | Use::Closed) => closed.push(Closed {
                    number,
                    generation: entry.map_or(0, |entry| entry.generation),
                    has_fragments: true,
                }),
            }
        }
        closed.sort_unstable_by_key(|closed| closed.generation);
        state.closed = closed.into();
        state.next_generation = next_generation;
    }

    /// Their number.
    pub(crate) fn count(&self) -> u32 {
        self.generations.len() as u32
    }

    /// Number of segments that should be free.
    pub(crate) fn free_wanted(&self) -> u32 {
        (self.count() / FREE_ONE_IN).clamp(FREE_MIN, FREE_MAX)
    }

    /// Segments that can be written now.
    pub(crate) fn free(&self) -> u32 {
        self.state.lock().free.len() as u32
    }

    /// Segments that hold something.
    pub(crate) fn used(&self) -> u32 {
        self.count() - self.free()
    }

    /// Generation of a segment's present content; 0 if it has none or there is no such segment.
    pub(crate) fn generation(&self, number: u64) -> u64 {
        let generation =
            usize::try_from(number).ok().and_then(|number| self.generations.get(number));
        generation.map_or(0, |generation| generation.load(Ordering::Acquire))
    }

    /// Takes a free segment, which gets a new generation. The last one is left for copies of
    /// reclaimed objects, unless `for_copy`.
    pub(crate) fn open(&self, for_copy: bool) -> Option<(u32, u64)> {
        let mut state = self.state.lock();
        if state.free.len() <= usize::from(!for_copy) {
            return None;
        }
        let number = state.free.pop_front()?;
        let generation = state.next_generation;
        state.next_generation += 1;
        state.open = Some(number);
        if let Some(place) = self.generations.get(number as usize) {
            place.store(generation, Ordering::Release);
        }
        Some((number, generation))
    }

    /// The open segment is full.
    pub(crate) fn close(&self, has_fragments: bool) {
        let mut state = self.state.lock();
        if let Some(number) = state.open.take() {
            let generation = self.generation(number.into());
            state.closed.push_back(Closed { number, generation, has_fragments });
        }
    }

    /// Number of segments to reclaim now. Several are reclaimed together, when half of those that
    /// should be free are taken: then their end is logged once.
    pub(crate) fn to_reclaim(&self) -> u32 {
        let (free, wanted) = (self.free(), self.free_wanted());
        if free <= wanted.div_ceil(2) { wanted - free } else { 0 }
    }

    /// Whether a checkpoint is due, or needed before any segment can be reclaimed.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let is_needed = self.to_reclaim() > 0 && self.oldest(1).is_empty();
        let state = self.state.lock();
        is_needed && !state.closed.is_empty()
            || state.reclaimed >= (self.count() / CHECKPOINT_ONE_IN).max(1)
    }

    /// The segments that were begun first, at most `count`; only those that the newest checkpoint
    /// contains.
    pub(crate) fn oldest(&self, count: u32) -> Vec<Closed> {
        let state = self.state.lock();
        let oldest = state.closed.iter().take(count as usize);
        oldest.take_while(|closed| closed.generation < state.known_below).copied().collect()
    }

    /// The oldest segment is empty now, and the log of removals has its end.
    pub(crate) fn reclaimed(&self, number: u32) {
        let mut state = self.state.lock();
        let Some(oldest) = state.closed.front().copied().filter(|oldest| oldest.number == number)
        else {
            return;
        };
        state.closed.pop_front();
        let may_wait = state.waiting.len() < state.waiting_max(self.count());
        if may_wait && state.readers.contains_key(&oldest.generation) {
            state.waiting.insert(oldest.generation, number);
        } else {
            state.free.push_back(number);
        }
        state.reclaimed += 1;
    }

    /// A reader uses the segments of these generations: until as many calls of
    /// [`Segments::release`] they are not overwritten, within the bound. `false`, and nothing has
    /// happened, if one of them is not in use any more.
    pub(crate) fn hold(&self, generations: &[u64]) -> bool {
        let mut state = self.state.lock();
        let is_there = generations.iter().all(|generation| state.is_in_use(*generation));
        for generation in generations.iter().filter(|_| is_there) {
            *state.readers.entry(*generation).or_default() += 1;
        }
        is_there
    }

    /// A reader has ended. Says whether a segment has become free.
    pub(crate) fn release(&self, generations: &[u64]) -> bool {
        let mut state = self.state.lock();
        let mut has_freed = false;
        for generation in generations {
            let Some(readers) = state.readers.get_mut(generation) else { continue };
            *readers -= 1;
            if *readers > 0 {
                continue;
            }
            state.readers.remove(generation);
            if let Some(number) = state.waiting.remove(generation) {
                state.free.push_back(number);
                has_freed = true;
            }
        }
        has_freed
    }

    /// The generation that a segment got last.
    #[cfg(test)]
    pub(crate) fn newest_generation(&self) -> u64 {
        self.state.lock().next_generation - 1
    }

    /// The table for a checkpoint that begins now, and the next generation.
    pub(crate) fn begin_checkpoint(&self) -> (Vec<SegmentEntry>, u64) {
        let state = self.state.lock();
        let mut entries: Vec<SegmentEntry> = (0..u64::from(self.count()))
            .map(|number| SegmentEntry { generation: self.generation(number), is: Use::Free })
            .collect();
        for Closed { number, .. } in &state.closed {
            if let Some(entry) = entries.get_mut(*number as usize) {
                entry.is = Use::Closed;
            }
        }
        if let Some(entry) = state.open.and_then(|number| entries.get_mut(number as usize)) {
            entry.is = Use::Open;
        }
        (entries, state.next_generation)
    }

    /// The checkpoint that knows the generations below `next_generation` is on disk.
    pub(crate) fn end_checkpoint(&self, next_generation: u64) {
        let mut state = self.state.lock();
        (state.reclaimed, state.known_below) = (0, next_generation);
    }
}

/// Some of the segments. To ask it costs next to nothing: it is asked for every object of the
/// index.
pub(crate) struct SegmentSet {
    is_in: Box<[bool]>,
    /// A segment is 2 to the power of this many units long.
    units_log2: u32,
    is_empty: bool,
}

impl SegmentSet {
    /// Of `count` segments of `segment_units` units, a power of two, those with these numbers.
    pub(crate) fn new(
        count: u32,
        segment_units: u64,
        numbers: impl IntoIterator<Item = u32>,
    ) -> Self {
        let mut is_in = vec![false; count as usize].into_boxed_slice();
        let mut is_empty = true;
        for number in numbers {
            if let Some(place) = is_in.get_mut(number as usize) {
                (*place, is_empty) = (true, false);
            }
        }
        Self { is_in, units_log2: segment_units.trailing_zeros(), is_empty }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty
    }

    pub(crate) fn has(&self, number: u64) -> bool {
        usize::try_from(number).is_ok_and(|number| self.is_in.get(number) == Some(&true))
    }

    /// Whether the record at this unit is in one of them.
    pub(crate) fn holds(&self, location: u64) -> bool {
        self.has(location >> self.units_log2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(segments: &Segments) {
        let (_, next_generation) = segments.begin_checkpoint();
        segments.end_checkpoint(next_generation);
    }

    #[test]
    fn a_segment_is_reclaimed_only_if_a_checkpoint_knows_it() {
        let segments = Segments::new(6, 10);
        for generation in 10..15 {
            assert_eq!(segments.open(false).map(|(_, found)| found), Some(generation));
            segments.close(false);
        }
        assert_eq!(segments.open(false), None, "the last one is for copies");
        assert_eq!((segments.oldest(1), segments.wants_checkpoint()), (Vec::new(), true));
        let (entries, next) = segments.begin_checkpoint();
        assert_eq!((entries[0].is, entries[5].is, next), (Use::Closed, Use::Free, 15));
        assert_eq!(segments.open(true), Some((5, 15)), "while the checkpoint is being written");
        segments.close(false);
        segments.end_checkpoint(next);
        let known = (0..5).zip(10..15).map(|(number, generation)| Closed {
            number,
            generation,
            has_fragments: false,
        });
        assert_eq!(segments.oldest(9), known.collect::<Vec<_>>());
        (0..5).for_each(|number| segments.reclaimed(number));
        assert_eq!((segments.free(), segments.used()), (5, 1));
        assert_eq!((segments.oldest(1), segments.wants_checkpoint()), (Vec::new(), true));
        assert_eq!(segments.open(false), Some((0, 16)), "at once");
    }

    #[test]
    fn a_checkpoint_restores_the_order_also_with_another_number_of_segments() {
        let segments = Segments::new(8, 1);
        (0..4).for_each(|_| {
            segments.open(false);
            segments.close(false);
        });
        checkpoint(&segments);
        segments.reclaimed(0);
        segments.open(false);
        let (entries, next) = segments.begin_checkpoint();
        for count in [8, 12, 6, 3] {
            let again = Segments::new(count, 1);
            again.restore(&entries, next);
            checkpoint(&again);
            let oldest = Closed { number: 1, generation: 2, has_fragments: true };
            assert_eq!(again.oldest(1), [oldest], "nobody knows what is in it");
            assert_eq!(again.used(), if count == 3 { 2 } else { 4 });
            assert_eq!(again.generation(4), if count > 4 { 5 } else { 0 });
        }
    }

    #[test]
    fn several_are_reclaimed_at_once_and_more_of_them_for_one_checkpoint() {
        let segments = Segments::new(112, 1);
        let fill_until = |free| {
            while segments.free() > free {
                segments.open(true);
                segments.close(false);
            }
        };
        fill_until(5);
        assert_eq!((segments.free_wanted(), segments.to_reclaim()), (7, 0));
        fill_until(4);
        assert_eq!((segments.to_reclaim(), segments.wants_checkpoint()), (3, true));
        checkpoint(&segments);
        for turn in 1..=5 {
            assert_eq!((segments.to_reclaim(), segments.wants_checkpoint()), (3, false), "{turn}");
            let oldest = segments.oldest(3);
            assert_eq!(oldest.len(), 3);
            oldest.into_iter().for_each(|oldest| segments.reclaimed(oldest.number));
            assert_eq!((segments.free(), segments.to_reclaim()), (7, 0));
            assert_eq!(segments.wants_checkpoint(), turn == 5, "{turn}");
            fill_until(4);
        }
        checkpoint(&segments);
        assert!(!segments.wants_checkpoint());
        assert_eq!(Segments::new(4096, 1).free_wanted(), FREE_MAX);
    }

    #[test]
    fn a_reclaimed_segment_is_free_when_its_readers_have_ended() {
        let segments = Segments::new(SEGMENTS_MIN + 2 * HELD_ONE_IN, 1);
        for _ in 1..=5 {
            segments.open(true);
            segments.close(true);
        }
        segments.open(true);
        checkpoint(&segments);
        assert!(!segments.hold(&[1, 7]) && !segments.hold(&[0]), "not there");
        assert!(segments.hold(&[1, 2, 3]) && segments.hold(&[1, 6]), "the open one too");
        let free = segments.free();
        (0..4).for_each(|number| segments.reclaimed(number));
        assert_eq!(segments.free(), free + 2, "the third is one too many, nobody holds the fourth");
        assert!(!segments.hold(&[2]), "reclaimed");
        assert!(segments.release(&[1, 2, 3]) && segments.free() == free + 3);
        assert!(segments.release(&[1, 6]) && segments.free() == free + 4);
        assert!(!segments.release(&[1, 6]), "nothing happens");
        let state = segments.state.lock();
        assert!(state.readers.is_empty() && state.waiting.is_empty());
    }

    #[test]
    fn segments_have_a_size_that_suits_the_store() {
        let sizes = [3 << 20, 32 << 20, 8 << 30, 1 << 40].map(segment_bytes_for);
        assert_eq!(sizes, [256 << 10, 512 << 10, 32 << 20, 32 << 20]);
        assert_eq!(segment_bytes_for(0), SEGMENT_BYTES_MIN);
    }
}
