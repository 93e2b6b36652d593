//! When visits begin: a Poisson process that knows nothing of answers.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Two visits are never further apart than this; it keeps the sums of microseconds in their type.
/// One year.
const GAP_US_MAX: f64 = 3.2e13;

/// The moments of visits, in µs of the world's clock.
#[derive(Debug)]
pub(crate) struct Arrivals {
    luck: StdRng,
    mean_gap_us: f64,
    /// Kept in fractions of a µs, so that rounding does not change the load.
    next_us: f64,
}

impl Arrivals {
    pub(crate) fn new(seed: u64, world: u32, visits_per_s: f64) -> Self {
        let luck =
            StdRng::seed_from_u64(seed ^ u64::from(world).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut arrivals = Self { luck, mean_gap_us: f64::INFINITY, next_us: f64::INFINITY };
        arrivals.set_rate(visits_per_s, 0);
        arrivals
    }

    /// From `now_us` on there are this many visits per second. The process has no memory, so the
    /// next gap is drawn again.
    pub(crate) fn set_rate(&mut self, visits_per_s: f64, now_us: u64) {
        self.mean_gap_us = if visits_per_s > 0.0 { 1e6 / visits_per_s } else { f64::INFINITY };
        self.next_us = now_us as f64;
        self.draw();
    }

    /// The moment of the next visit; `u64::MAX` if there is none.
    pub(crate) fn next_us(&self) -> u64 {
        // The cast saturates, and infinity becomes the largest number.
        self.next_us as u64
    }

    /// The next visit if its moment has come.
    pub(crate) fn take_due(&mut self, now_us: u64) -> Option<u64> {
        let due_us = self.next_us();
        if due_us > now_us {
            return None;
        }
        self.draw();
        Some(due_us)
    }

    fn draw(&mut self) {
        if self.mean_gap_us.is_finite() {
            let luck: f64 = self.luck.random();
            self.next_us += (-(1.0 - luck).ln() * self.mean_gap_us).min(GAP_US_MAX);
        } else {
            self.next_us = f64::INFINITY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visits_come_at_the_rate_and_as_irregularly_as_poisson_says() {
        let mut arrivals = Arrivals::new(1, 0, 1000.0);
        let mut per_10_ms = vec![0_f64; 10_000];
        while let Some(due_us) = arrivals.take_due(99_999_999) {
            per_10_ms[(due_us / 10_000) as usize] += 1.0;
        }
        let mean = per_10_ms.iter().sum::<f64>() / 10_000.0;
        let variance = per_10_ms.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / 10_000.0;
        assert!((9.8..10.2).contains(&mean), "{mean}");
        assert!((9.4..10.6).contains(&variance), "{variance}");
    }

    #[test]
    fn the_same_seed_gives_the_same_moments() {
        let moments = |seed, world| {
            let mut arrivals = Arrivals::new(seed, world, 10.0);
            (0..100).map(|_| arrivals.take_due(u64::MAX - 1).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(moments(7, 3), moments(7, 3));
        assert_ne!(moments(7, 3), moments(8, 3));
        assert_ne!(moments(7, 3), moments(7, 4));
    }

    #[test]
    fn no_load_means_no_visits_until_there_is_load_again() {
        let mut arrivals = Arrivals::new(1, 0, 0.0);
        assert_eq!((arrivals.next_us(), arrivals.take_due(u64::MAX - 1)), (u64::MAX, None));
        arrivals.set_rate(1e6, 5_000_000);
        assert!((5_000_000..5_001_000).contains(&arrivals.take_due(6_000_000).unwrap()));
    }
}
