//! Replacement policies of the memory tier: which object leaves first.
//!
//! Each shard runs its own instance. The lists are threaded through the shard's slots, so that a policy allocates
//! nothing per object.

use crate::key::Key;

use super::shard::Slot;

/// Share of a shard's bytes that S3-FIFO's probation queue may hold: one part in this many.
const S3_SMALL_PART: u64 = 10;

/// Highest access count that S3-FIFO keeps.
const S3_FREQ_MAX: u8 = 3;

/// Fewest cells of the table of ghosts, a power of two.
const GHOST_CELLS_MIN: usize = 64;

/// No slot: end of a list.
pub(super) const NONE: u32 = u32::MAX;

/// The policies that the memory tier implements.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// Least recently used.
    #[default]
    Lru,
    /// S3-FIFO: a small probation queue, a main queue and the memory of what left probation; an access only
    /// counts, it moves nothing.
    S3Fifo,
}

/// A doubly linked list through slots; `head` is the newest.
#[derive(Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
    bytes: u64,
}

impl Default for List {
    fn default() -> Self {
        Self { head: NONE, tail: NONE, bytes: 0 }
    }
}

impl List {
    fn push(&mut self, slots: &mut [Slot], index: u32) {
        let slot = &mut slots[index as usize];
        (slot.newer, slot.older) = (NONE, self.head);
        self.bytes += slot.cost();
        match self.head {
            NONE => self.tail = index,
            head => slots[head as usize].newer = index,
        }
        self.head = index;
    }

    fn remove(&mut self, slots: &mut [Slot], index: u32) {
        let slot = &slots[index as usize];
        let (newer, older) = (slot.newer, slot.older);
        self.bytes -= slot.cost();
        match newer {
            NONE => self.head = older,
            newer => slots[newer as usize].older = older,
        }
        match older {
            NONE => self.tail = newer,
            older => slots[older as usize].newer = newer,
        }
    }

    fn oldest(&self) -> Option<u32> {
        (self.tail != NONE).then_some(self.tail)
    }
}

/// Fingerprints of objects that left probation, in a direct-mapped table: a later one may displace an earlier one,
/// and one older than as many insertions as there are cells no longer counts.
#[derive(Debug, Default)]
pub(super) struct Ghosts {
    cells: Vec<(u32, u32)>,
    sequence: u32,
}

impl Ghosts {
    fn cell(&self, key: Key) -> (usize, u32) {
        ((key.low64() as usize) & (self.cells.len().wrapping_sub(1)), (key.high64() >> 32) as u32)
    }

    fn remember(&mut self, key: Key, objects: usize) {
        let wanted = objects.next_power_of_two().max(GHOST_CELLS_MIN);
        if self.cells.len() < wanted {
            // Growing forgets, which costs a few second chances while a cache fills for the first time.
            self.cells = vec![(0, 0); wanted];
            self.sequence = 0;
        }
        let (cell, print) = self.cell(key);
        self.sequence = self.sequence.wrapping_add(1);
        self.cells[cell] = (print, self.sequence);
    }

    fn forget(&mut self, key: Key) -> bool {
        if self.cells.is_empty() {
            return false;
        }
        let (cell, print) = self.cell(key);
        let (found, when) = std::mem::take(&mut self.cells[cell]);
        found == print && when != 0 && self.sequence.wrapping_sub(when) as usize <= self.cells.len()
    }
}

/// The state of one shard's policy.
#[derive(Debug)]
pub(super) enum Policy {
    Lru(List),
    S3Fifo { small: List, main: List, ghosts: Ghosts },
}

impl Policy {
    pub(super) fn new(kind: MemoryPolicy) -> Self {
        match kind {
            MemoryPolicy::Lru => Self::Lru(List::default()),
            MemoryPolicy::S3Fifo => {
                Self::S3Fifo { small: List::default(), main: List::default(), ghosts: Ghosts::default() }
            }
        }
    }

    /// A new object.
    pub(super) fn admit(&mut self, slots: &mut [Slot], index: u32) {
        slots[index as usize].frequency = 0;
        match self {
            Self::Lru(list) => list.push(slots, index),
            Self::S3Fifo { small, main, ghosts } => {
                let returned = ghosts.forget(slots[index as usize].key);
                slots[index as usize].in_main = returned;
                if returned { main.push(slots, index) } else { small.push(slots, index) }
            }
        }
    }

    /// An access at the logical time `now`.
    pub(super) fn touch(&mut self, slots: &mut [Slot], index: u32, now: u32) {
        match self {
            Self::Lru(list) => {
                // Nothing was stored since its last move: moving it again would change nothing that matters.
                let before = std::mem::replace(&mut slots[index as usize].stamp, now);
                if before != now && list.head != index {
                    list.remove(slots, index);
                    list.push(slots, index);
                }
            }
            Self::S3Fifo { .. } => {
                let frequency = &mut slots[index as usize].frequency;
                *frequency = frequency.saturating_add(1).min(S3_FREQ_MAX);
            }
        }
    }

    /// An object that is removed for another reason than room.
    pub(super) fn remove(&mut self, slots: &mut [Slot], index: u32) {
        match self {
            Self::Lru(list) => list.remove(slots, index),
            Self::S3Fifo { small, main, .. } => {
                let list = if slots[index as usize].in_main { main } else { small };
                list.remove(slots, index);
            }
        }
    }

    /// Takes the object that leaves first out of the lists. `objects` is how many the shard holds.
    pub(super) fn evict(&mut self, slots: &mut [Slot], objects: usize, now: u32) -> Option<u32> {
        match self {
            Self::Lru(list) => {
                let index = list.oldest()?;
                list.remove(slots, index);
                Some(index)
            }
            // Each turn moves an object out of probation for good or lowers a count, so the loop ends.
            Self::S3Fifo { small, main, ghosts } => loop {
                let from_small =
                    small.bytes * S3_SMALL_PART > small.bytes + main.bytes || main.oldest().is_none();
                let list = if from_small { &mut *small } else { &mut *main };
                let index = list.oldest()?;
                list.remove(slots, index);
                let slot = &mut slots[index as usize];
                if slot.frequency == 0 {
                    if from_small {
                        ghosts.remember(slot.key, objects);
                    }
                    return Some(index);
                }
                slot.frequency = if from_small { 0 } else { slot.frequency - 1 };
                slot.in_main = true;
                slot.stamp = now;
                main.push(slots, index);
            },
        }
    }

    /// The object that would be looked at first.
    pub(super) fn oldest(&self) -> Option<u32> {
        match self {
            Self::Lru(list) => list.oldest(),
            Self::S3Fifo { small, main, .. } => {
                let from_small = small.bytes * S3_SMALL_PART > small.bytes + main.bytes;
                if from_small { small.oldest() } else { main.oldest().or(small.oldest()) }
            }
        }
    }

    /// All objects, those first that would leave last.
    pub(super) fn newest_first(&self, slots: &[Slot]) -> Vec<u32> {
        let lists = match self {
            Self::Lru(list) => [Some(list), None],
            Self::S3Fifo { small, main, .. } => [Some(main), Some(small)],
        };
        let mut order = Vec::new();
        for list in lists.into_iter().flatten() {
            let mut index = list.head;
            while let Some(slot) = slots.get(index as usize) {
                order.push(index);
                index = slot.older;
            }
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ghosts_are_met_once_and_not_after_too_long() {
        let mut ghosts = Ghosts::default();
        let key = |n: u64| Key::primary(&n.to_le_bytes());
        assert!(!ghosts.forget(key(1)));
        ghosts.remember(key(1), 10);
        assert!(!ghosts.forget(Key(key(1).0 ^ (1 << 100))));
        ghosts.remember(key(2), 10);
        assert!(ghosts.forget(key(2)));
        assert!(!ghosts.forget(key(2)));
        ghosts.remember(key(3), 10);
        (0..10 * GHOST_CELLS_MIN as u64).for_each(|n| ghosts.remember(key(1000 + n), 10));
        assert!(!ghosts.forget(key(3)));
    }
}
