//! A small seeded generator for decisions that must be repeatable in tests (sampling, back-off,
//! spreading). Not for secrets.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

thread_local! {
    static SIMULATED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Makes [`secret`] follow from a seed on this thread.
// tidy: public, because the simulation uses it
pub fn simulate(seed: u64) {
    SIMULATED.set(Some(seed));
}

/// A number that no outsider can guess, another one at each call; in a simulation, numbers that
/// follow from its seed.
pub fn secret() -> u64 {
    match SIMULATED.get() {
        None => RandomState::new().hash_one(0),
        Some(seed) => {
            let mut rng = Rng::new(seed);
            let secret = rng.next_u64();
            SIMULATED.set(Some(secret));
            secret
        }
    }
}

/// SplitMix64: one addition and two multiplications a number, full period, any seed.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that always gives the same sequence for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 pseudo-random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`, or 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_sequence_and_in_bounds() {
        let (mut a, mut b) = (Rng::new(7), Rng::new(7));
        for _ in 0..1000 {
            let n = a.below(10);
            assert_eq!(n, b.below(10));
            assert!(n < 10);
        }
        assert_eq!(a.below(0), 0);
    }
}
