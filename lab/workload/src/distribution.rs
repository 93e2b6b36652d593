//! Distributions, by their quantiles: one share of luck gives one value, the same everywhere.

use std::f64::consts::LN_2;

use crate::math::{exp, ln, normal_quantile, pow};

/// Points of a mean that has no closed form.
pub(crate) const MEAN_POINTS: u32 = 16_384;

/// Halvings of the interval in which a share is looked for: it is then known to 10⁻¹².
const SHARE_STEPS: u32 = 40;

/// Largest N of `zipf(N)`.
pub(crate) const ZIPF_MAX: f64 = 1_000_000.0;

/// The distribution of a quantity, in its own unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Distribution {
    Constant(f64),
    /// Evenly between two values.
    Uniform {
        min: f64,
        max: f64,
    },
    Exponential {
        mean: f64,
    },
    Normal {
        mean: f64,
        deviation: f64,
    },
    /// `mu` and `sigma` belong to the logarithm; files give the real mean and deviation.
    LogNormal {
        mu: f64,
        sigma: f64,
    },
    /// Whole numbers from 1 to N as floor((N + 1)^u): Polygraph's `zipf(N)`.
    Zipf {
        ln_n1: f64,
        max: f64,
    },
}

impl Distribution {
    pub(crate) fn log_normal(mean: f64, deviation: f64) -> Self {
        let variance = ln(1.0 + (deviation / mean) * (deviation / mean));
        Self::LogNormal { mu: ln(mean) - variance / 2.0, sigma: variance.sqrt() }
    }

    pub(crate) fn zipf(max: f64) -> Self {
        Self::Zipf { ln_n1: ln(max + 1.0), max }
    }

    /// The value below which `share` (0 < share < 1) of all values are.
    #[inline]
    pub(crate) fn at(&self, share: f64) -> f64 {
        match *self {
            Self::Constant(value) => value,
            Self::Uniform { min, max } => min + (max - min) * share,
            Self::Exponential { mean } => -mean * ln(1.0 - share),
            Self::Normal { mean, deviation } => mean + deviation * normal_quantile(share),
            Self::LogNormal { mu, sigma } => exp(mu + sigma * normal_quantile(share)),
            Self::Zipf { ln_n1, max } => exp(ln_n1 * share).floor().clamp(1.0, max),
        }
    }

    /// The share of values below this one.
    pub(crate) fn share_below(&self, value: f64) -> f64 {
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..SHARE_STEPS {
            let middle = (low + high) / 2.0;
            if self.at(middle) < value {
                low = middle;
            } else {
                high = middle;
            }
        }
        (low + high) / 2.0
    }

    /// A whole number, rounded, cut to `min` to `max`.
    #[inline]
    pub(crate) fn whole_at(&self, share: f64, min: u64, max: u64) -> u64 {
        // `as` saturates, and turns a negative value into 0.
        ((self.at(share) + 0.5) as u64).clamp(min, max)
    }

    /// Mean of [`Distribution::whole_at`].
    pub(crate) fn whole_mean(&self, min: u64, max: u64) -> f64 {
        let sum: f64 = (0..MEAN_POINTS)
            .map(|point| (f64::from(point) + 0.5) / f64::from(MEAN_POINTS))
            .map(|share| self.whole_at(share, min, max) as f64)
            .sum();
        sum / f64::from(MEAN_POINTS)
    }

    /// Largest possible value, if there is one.
    pub(crate) fn max(&self) -> Option<f64> {
        match *self {
            Self::Constant(value) => Some(value),
            Self::Uniform { max, .. } | Self::Zipf { max, .. } => Some(max),
            Self::Exponential { .. } | Self::Normal { .. } | Self::LogNormal { .. } => None,
        }
    }
}

/// Popularity by rank: the r-th of `count` is asked for with a probability near r^−exponent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ranks {
    exponent: f64,
}

impl Ranks {
    pub(crate) fn new(exponent: f64) -> Self {
        Self { exponent }
    }

    /// A rank below `count` (0 is the most popular one). The continuous power law from 1 to count +
    /// 1, cut to whole numbers: with exponent 1 it is [`Distribution::Zipf`], and it needs no table
    /// for millions of objects.
    pub(crate) fn rank(&self, count: u64, share: f64) -> u64 {
        let end = count as f64 + 1.0;
        let flatness = 1.0 - self.exponent;
        let place = if flatness.abs() < LN_2 * 1e-6 {
            pow(end, share)
        } else {
            pow(1.0 + share * (pow(end, flatness) - 1.0), 1.0 / flatness)
        };
        (place as u64).clamp(1, count.max(1)) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::Luck;

    fn mean_and_deviation(distribution: Distribution) -> (f64, f64) {
        let mut luck = Luck::new(5);
        let values: Vec<f64> = (0..200_000).map(|_| distribution.at(luck.draw_unit())).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance =
            values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
        (mean, variance.sqrt())
    }

    #[track_caller]
    fn assert_close(got: f64, expected: f64, relative: f64) {
        assert!((got - expected).abs() <= relative * expected.abs(), "{got} instead of {expected}");
    }

    #[test]
    fn means_and_deviations_are_the_real_ones() {
        let (mean, deviation) = mean_and_deviation(Distribution::log_normal(300.0, 300.0));
        assert_close(mean, 300.0, 0.01);
        assert_close(deviation, 300.0, 0.05);
        let (mean, deviation) = mean_and_deviation(Distribution::Exponential { mean: 4_608.0 });
        assert_close(mean, 4_608.0, 0.01);
        assert_close(deviation, 4_608.0, 0.02);
        let (mean, deviation) =
            mean_and_deviation(Distribution::Normal { mean: 2.5, deviation: 1.0 });
        assert_close(mean, 2.5, 0.01);
        assert_close(deviation, 1.0, 0.01);
        let (mean, deviation) = mean_and_deviation(Distribution::Uniform { min: 1.0, max: 13.0 });
        assert_close(mean, 7.0, 0.01);
        assert_close(deviation, 12.0 / 12_f64.sqrt(), 0.01);
    }

    #[test]
    fn zipf_has_the_means_that_polygraph_has() {
        for (max, mean) in [(13.0, 4.45), (16.0, 5.17), (64.0, 14.85)] {
            let zipf = Distribution::zipf(max);
            assert_close(zipf.whole_mean(1, 1_000), mean, 0.002);
            assert_eq!((zipf.at(1e-12), zipf.at(1.0 - 1e-12)), (1.0, max));
        }
    }

    #[test]
    fn ranks_follow_the_power_law() {
        for exponent in [0.7, 1.0, 1.3] {
            let ranks = Ranks::new(exponent);
            let mut luck = Luck::new(6);
            let mut counts = [0_u32; 1_000];
            for _ in 0..400_000 {
                counts[ranks.rank(1_000, luck.draw_unit()) as usize] += 1;
            }
            let decade = |from: usize| f64::from(counts[from..2 * from].iter().sum::<u32>());
            // A range twice as far away has twice the ranks, each 2^exponent times less popular.
            assert_close(decade(64) / decade(128), 2_f64.powf(exponent - 1.0), 0.05);
            assert!(counts[0] > counts[1] && counts[999] > 0);
        }
        assert_eq!(Ranks::new(0.9).rank(1, 0.999), 0);
        assert_eq!(Ranks::new(0.9).rank(0, 0.5), 0);
    }
}
