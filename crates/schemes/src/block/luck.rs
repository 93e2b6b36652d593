//! Whether it is worth trying the page cache before reading.
//!
//! Bytes in the page cache are read at once, at the lowest cost. But a try in vain begins a read,
//! with an operation of its own for the device, and the bytes are then read again in the usual way:
//! io_uring hands over many reads together. So when most tries are in vain, only some reads still
//! try, to learn when that changes.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Luck in the beginning, and most of it.
const LUCK_MAX: u32 = 32;

/// Cost of a try in vain, where a success gains 1: with less than three of four successes the luck
/// runs out.
const NO_COSTS: u32 = 3;

/// Without luck, one read in this many asks.
const ASK_ONE_IN: u32 = 16;

/// The recent results, of all cores together: it may be a little off.
pub(crate) struct Luck {
    left: AtomicU32,
    skipped: AtomicU32,
}

impl Default for Luck {
    fn default() -> Self {
        Self { left: AtomicU32::new(LUCK_MAX), skipped: AtomicU32::new(0) }
    }
}

impl Luck {
    /// Whether this read should try the page cache.
    pub(crate) fn may_ask(&self) -> bool {
        self.left.load(Relaxed) > 0
            || self.skipped.fetch_add(1, Relaxed) % ASK_ONE_IN == ASK_ONE_IN - 1
    }

    /// The result of the try.
    pub(crate) fn note(&self, was_yes: bool) {
        let left = self.left.load(Relaxed);
        let now = if was_yes { (left + 1).min(LUCK_MAX) } else { left.saturating_sub(NO_COSTS) };
        // Nearly always nothing changes, and no core takes the line from the others.
        if now != left {
            self.left.store(now, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of tries in 1600 reads, if every `no_one_in`th try is in vain.
    fn asked(luck: &Luck, no_one_in: usize) -> usize {
        let ask = |read: &usize| {
            let may_ask = luck.may_ask();
            if may_ask {
                luck.note(!read.is_multiple_of(no_one_in));
            }
            may_ask
        };
        (1..=1600).filter(ask).count()
    }

    #[test]
    fn what_is_cached_is_always_asked_for_and_what_is_not_rarely() {
        let luck = Luck::default();
        assert_eq!(asked(&luck, usize::MAX), 1600);
        assert_eq!(asked(&luck, 10), 1600, "some misses do no harm");
        let few = asked(&luck, 1);
        assert!((100..=115).contains(&few), "{few} of 1600 asked for nothing");
    }

    #[test]
    fn when_things_get_better_all_ask_again() {
        let luck = Luck::default();
        asked(&luck, 1);
        assert!(asked(&luck, usize::MAX) >= 1600 - ASK_ONE_IN as usize);
    }
}
