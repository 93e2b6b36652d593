//! Recently seen keys, in a few bytes each. An answer may be wrong now and then; that only costs
//! time.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::key::Key;

/// One slot for this many bytes of memory: about as many slots as memory holds objects. An object
/// that is requested again after more others than that would have left memory by then.
const MEMORY_BYTES_PER_SLOT: u64 = 16 * 1024;

/// Fewest and most slots: 4 KiB and 4 MiB.
const SLOTS_MIN: u64 = 1 << 10;
const SLOTS_MAX: u64 = 1 << 20;

/// A table of fingerprints, each of which forgets the one before it.
#[derive(Debug)]
pub struct Doorkeeper {
    /// A power of two of them. 0: empty.
    slots: Box<[AtomicU32]>,
}

impl Doorkeeper {
    /// For a memory, or a directory, of `memory_bytes`.
    pub fn new(memory_bytes: u64) -> Self {
        let slots =
            (memory_bytes / MEMORY_BYTES_PER_SLOT).clamp(SLOTS_MIN, SLOTS_MAX).next_power_of_two();
        Self { slots: (0..slots).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Whether the key was seen recently. It is remembered.
    pub fn comes_again(&self, key: &Key) -> bool {
        let at = key.low64() as usize & (self.slots.len() - 1);
        let print = (key.high64() >> 32) as u32 | 1;
        let Some(slot) = self.slots.get(at) else { return false };
        let seen = slot.load(Relaxed) == print;
        if !seen {
            slot.store(print, Relaxed);
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::key;

    #[test]
    fn the_second_time_is_known_and_the_first_is_not() {
        let doorkeeper = Doorkeeper::new(0);
        for number in 0..20 {
            assert!(!doorkeeper.comes_again(&key(number)), "{number} comes for the first time");
        }
        // The keys are the same in each run; those of no two share one of the 1024 slots.
        let known = (0..20).filter(|&number| doorkeeper.comes_again(&key(number))).count();
        assert_eq!(known, 20);
    }

    #[test]
    fn whoever_stays_away_for_too_long_is_forgotten() {
        let doorkeeper = Doorkeeper::new(0);
        assert!(!doorkeeper.comes_again(&key(1)));
        // The chance that none of them falls into its slot is e^-16.
        (2..16_000).for_each(|number| _ = doorkeeper.comes_again(&key(number)));
        assert!(!doorkeeper.comes_again(&key(1)));
    }

    #[test]
    fn its_size_follows_memory_within_bounds() {
        let slots = |bytes| Doorkeeper::new(bytes).slots.len() as u64;
        assert_eq!((slots(0), slots(256 << 20), slots(u64::MAX)), (SLOTS_MIN, 1 << 14, SLOTS_MAX));
        assert_eq!(slots(100 << 20), 1 << 13, "a power of two");
    }
}
