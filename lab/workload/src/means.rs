//! Mean sizes and numbers under a choice that prefers small objects.

use crate::distribution::{Distribution, MEAN_POINTS};
use crate::plan::{EMBEDDED_MAX, Names};

/// The sizes of a type of object, in bytes.
pub(crate) struct Size {
    pub(crate) distribution: Distribution,
    pub(crate) min: u64,
    pub(crate) max: u64,
}

/// How the sizes of the *requested* objects of a type come from those of all its objects.
pub(crate) struct SizeChoice {
    /// Share of requests that go to the smallest of several objects.
    chosen: f64,
    /// Probability that a neighbour takes part: that it is cachable.
    cachable: f64,
    /// Number of neighbours.
    neighbours: i32,
}

impl SizeChoice {
    /// Every object alike.
    pub(crate) const NONE: Self = Self { chosen: 0.0, cachable: 0.0, neighbours: 0 };

    /// Of requests for a directly requested type.
    pub(crate) fn of(names: &Names, cachable: f64) -> Self {
        match names {
            Names::Window { recurrence, pick, .. } => pick.small.map_or(Self::NONE, |small| Self {
                chosen: recurrence * small.share * cachable,
                cachable,
                neighbours: i32::try_from(2 * small.reach).unwrap_or(i32::MAX),
            }),
            Names::Fixed { .. } => Self::NONE,
        }
    }

    /// The share of requested objects of at least a size, from the share of all objects: the
    /// smallest is as large if all that take part are.
    fn at_least(&self, of_all: f64) -> f64 {
        let others = (1.0 - self.cachable + self.cachable * of_all).powi(self.neighbours);
        of_all * (1.0 - self.chosen + self.chosen * others)
    }
}

impl Size {
    /// Mean size of the requested objects, in bytes.
    pub(crate) fn mean(&self, choice: &SizeChoice) -> f64 {
        let points = f64::from(MEAN_POINTS);
        let part = |point: u32| {
            let bytes =
                self.distribution.whole_at((f64::from(point) + 0.5) / points, self.min, self.max);
            let larger = |point: u32| choice.at_least(1.0 - f64::from(point) / points);
            bytes as f64 * (larger(point) - larger(point + 1))
        };
        (0..MEAN_POINTS).map(part).sum()
    }

    /// The share of all objects of at least this size.
    fn share_from(&self, bytes: u64) -> f64 {
        match bytes {
            _ if bytes <= self.min => 1.0,
            _ if bytes > self.max => 0.0,
            // Sizes are rounded.
            _ => 1.0 - self.distribution.share_below(bytes as f64 - 0.5),
        }
    }

    /// Mean number of objects in a requested page of this size: as many as `count` says, and as
    /// have room if each takes `tag_bytes`.
    pub(crate) fn mean_count(
        &self,
        count: Distribution,
        tag_bytes: u64,
        choice: &SizeChoice,
    ) -> f64 {
        let wanted = Self { distribution: count, min: 0, max: EMBEDDED_MAX };
        let share = |number: u64| {
            wanted.share_from(number) * choice.at_least(self.share_from(number * tag_bytes))
        };
        (1..=EMBEDDED_MAX).map(share).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::Luck;

    #[track_caller]
    fn assert_close(got: f64, expected: f64) {
        assert!((got / expected - 1.0).abs() < 0.01, "{got} instead of {expected}");
    }

    #[test]
    fn means_are_those_of_many_draws() {
        let exponential = Distribution::Exponential { mean: 8_704.0 };
        let size = Size { distribution: exponential, min: 1, max: u64::MAX };
        let choice = SizeChoice { chosen: 0.5, cachable: 0.9, neighbours: 8 };
        let count = Distribution::zipf(13.0);
        let mut luck = Luck::new(3);
        let (mut bytes, mut numbers, mut all_numbers) = (0.0, 0.0, 0.0);
        const DRAWS: u32 = 200_000;
        for _ in 0..DRAWS {
            let mut draw = || size.distribution.whole_at(luck.draw_unit(), 1, u64::MAX);
            let (own, others) = (draw(), [(); 8].map(|()| draw()));
            let mut requested = own;
            if luck.draw_unit() < 0.5 {
                let part = others.into_iter().filter(|_| luck.draw_unit() < 0.9);
                requested = part.chain([own]).min().unwrap_or(own);
            }
            let wanted = count.whole_at(luck.draw_unit(), 0, 255);
            bytes += requested as f64;
            numbers += wanted.min(requested / 68) as f64;
            all_numbers += wanted.min(own / 68) as f64;
        }
        assert_close(size.mean(&choice), bytes / f64::from(DRAWS));
        assert_close(size.mean_count(count, 68, &choice), numbers / f64::from(DRAWS));
        assert_close(size.mean_count(count, 68, &SizeChoice::NONE), all_numbers / f64::from(DRAWS));
        assert_close(size.mean_count(count, 0, &choice), count.whole_mean(0, 255));
    }
}
