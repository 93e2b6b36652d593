//! Luck: 64-bit words that look random and are the same everywhere for the same seed.

/// Odd number nearest to 2^64 divided by the golden ratio: steps by it visit the whole range
/// evenly.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// One-to-one scrambling of a word (the finaliser of SplitMix64); 0 stays 0.
#[inline]
pub(crate) const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Independent luck for one `purpose` out of one word.
#[inline]
pub(crate) const fn luck(word: u64, purpose: u64) -> u64 {
    mix(word.wrapping_add(purpose.wrapping_mul(GOLDEN)))
}

/// A share in (0, 1): never exactly 0 or 1, so that logarithms of it are finite.
#[inline]
pub(crate) fn unit(luck: u64) -> f64 {
    // 52 bits and half a step fit a double exactly; the half keeps away from 0.
    ((luck >> 12) as f64 + 0.5) * (1.0 / 4_503_599_627_370_496.0)
}

/// A whole number below `bound`, evenly; 0 if `bound` is 0.
#[inline]
pub(crate) const fn below(luck: u64, bound: u64) -> u64 {
    ((luck as u128 * bound as u128) >> 64) as u64
}

/// A probability, ready to be tried. 0 never happens, 1 always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Chance(u64);

impl Chance {
    /// The probability of `share`, cut to 0 to 1.
    pub(crate) fn new(share: f64) -> Self {
        Self((share.clamp(0.0, 1.0) * (1_u64 << 63) as f64) as u64)
    }

    #[inline]
    pub(crate) const fn happens(self, luck: u64) -> bool {
        luck >> 1 < self.0
    }
}

/// An endless source of luck (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Luck {
    state: u64,
}

impl Luck {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    #[inline]
    pub(crate) const fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    #[inline]
    pub(crate) fn draw_unit(&mut self) -> f64 {
        unit(self.draw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_stay_inside_their_range() {
        assert!(unit(0) > 0.0);
        assert!(unit(u64::MAX) < 1.0);
        assert_eq!(below(u64::MAX, 10), 9);
        assert_eq!(below(0, 10), 0);
        assert_eq!(below(u64::MAX, 0), 0);
    }

    #[test]
    fn certain_and_impossible_are_exact() {
        for luck in [0, 1, u64::MAX / 2, u64::MAX] {
            assert!(Chance::new(1.0).happens(luck));
            assert!(!Chance::new(0.0).happens(luck));
        }
        assert!(
            Chance::new(0.5).happens(u64::MAX / 2) && !Chance::new(0.5).happens(u64::MAX / 2 + 2)
        );
    }

    #[test]
    fn luck_is_even() {
        let mut source = Luck::new(1);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[below(source.draw(), 10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_700..10_300).contains(count)), "{counts:?}");
    }
}
