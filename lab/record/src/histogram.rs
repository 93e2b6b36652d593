//! Durations in microseconds, with three significant digits from 1 µs to an hour.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Beyond this a duration is counted as this long. One hour.
const LONGEST_US: u64 = 3_600_000_000;

/// Three significant digits: an error of at most 0.1 %.
const SIGNIFICANT_DIGITS: u8 = 3;

/// A distribution of durations, in µs. Mean, count and percentiles are those of all values ever
/// recorded or merged.
///
/// Written as a list of `[value_us, count]` pairs: any program can read it, and merging two loses
/// nothing.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Counts,
    /// The exact sum, since the buckets know values only to 0.1 %.
    sum_us: u128,
}

/// Recording wants all buckets (190 KB); keeping thousands of samples wants only those that hold
/// something.
#[derive(Clone, Debug)]
enum Counts {
    /// Buckets that hold values, in ascending order: (largest value of the bucket in µs, count).
    Few(Vec<(u64, u64)>),
    All(Box<hdrhistogram::Histogram<u64>>),
}

impl Default for Counts {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

fn all_buckets() -> hdrhistogram::Histogram<u64> {
    hdrhistogram::Histogram::new_with_bounds(1, LONGEST_US, SIGNIFICANT_DIGITS)
        .expect("the bounds are constants that the crate accepts")
}

impl Histogram {
    /// Counts one duration. A duration of more than an hour counts as an hour.
    pub fn record_us(&mut self, duration_us: u64) {
        let duration_us = duration_us.min(LONGEST_US);
        self.all().saturating_record(duration_us);
        self.sum_us += u128::from(duration_us);
    }

    /// Adds all values of another.
    pub fn merge(&mut self, other: &Self) {
        self.sum_us += other.sum_us;
        match (&mut self.counts, &other.counts) {
            (_, Counts::Few(buckets)) if buckets.is_empty() => {}
            (Counts::Few(mine), Counts::Few(others)) => *mine = together(mine, others),
            (_, Counts::Few(buckets)) => {
                let all = self.all();
                buckets
                    .iter()
                    .for_each(|(value_us, count)| all.saturating_record_n(*value_us, *count));
            }
            // Both have the same bounds, so this cannot fail.
            (_, Counts::All(counts)) => self.all().add(&**counts).unwrap_or_default(),
        }
    }

    /// Forgets all values, and keeps the memory.
    pub fn clear(&mut self) {
        match &mut self.counts {
            Counts::Few(buckets) => buckets.clear(),
            Counts::All(counts) => counts.reset(),
        }
        self.sum_us = 0;
    }

    /// Frees memory that only recording needs. Nothing is lost, and recording can go on.
    pub fn compact(&mut self) {
        if let Counts::All(_) = self.counts {
            self.counts = Counts::Few(self.buckets().collect());
        }
    }

    /// The same count, mean and maximum, and the same values at exactly these `percentiles` (0 to
    /// 100, ascending); values between are moved up to the next of them. A few dozen bytes in place
    /// of thousands.
    #[must_use]
    pub fn thinned(&self, percentiles: &[f64]) -> Self {
        let total = self.count();
        let mut buckets: Vec<(u64, u64)> = Vec::with_capacity(percentiles.len() + 1);
        let mut counted = 0;
        for percentile in percentiles.iter().copied().chain([100.0]) {
            let upto = rank(percentile, total).min(total);
            if upto <= counted {
                continue;
            }
            let value_us = self.percentile_us(percentile);
            match buckets.last_mut() {
                Some((last_us, count)) if *last_us == value_us => *count += upto - counted,
                _ => buckets.push((value_us, upto - counted)),
            }
            counted = upto;
        }
        Self { counts: Counts::Few(buckets), sum_us: self.sum_us }
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        match &self.counts {
            Counts::Few(buckets) => buckets.iter().map(|(_, count)| count).sum(),
            Counts::All(counts) => counts.len(),
        }
    }

    /// The mean in µs; 0 without values.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum_us as f64 / self.count() as f64 }
    }

    /// The sum of all values in µs.
    #[must_use]
    pub fn sum_us(&self) -> u128 {
        self.sum_us
    }

    /// The value below which `percentile` (0 to 100) per cent of all values are, in µs; 0 without
    /// values.
    #[must_use]
    pub fn percentile_us(&self, percentile: f64) -> u64 {
        match &self.counts {
            Counts::All(counts) if counts.is_empty() => 0,
            Counts::All(counts) => counts.value_at_percentile(percentile),
            Counts::Few(buckets) => {
                let wanted = rank(percentile, self.count());
                let mut seen = 0;
                let found = buckets.iter().find(|(_, count)| {
                    seen += count;
                    seen >= wanted
                });
                found.or(buckets.last()).map_or(0, |(value_us, _)| *value_us)
            }
        }
    }

    /// The longest duration in µs; 0 without values.
    #[must_use]
    pub fn max_us(&self) -> u64 {
        match &self.counts {
            Counts::All(counts) if counts.is_empty() => 0,
            Counts::All(counts) => counts.max(),
            Counts::Few(buckets) => buckets.last().map_or(0, |(value_us, _)| *value_us),
        }
    }

    /// Every bucket that holds values: (largest value of the bucket in µs, count), in ascending
    /// order.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (few, all) = match &self.counts {
            Counts::Few(buckets) => (Some(buckets), None),
            Counts::All(counts) => (None, Some(counts)),
        };
        let few = few.into_iter().flatten().copied();
        let all = all.into_iter().flat_map(|counts| {
            counts
                .iter_recorded()
                .map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()))
        });
        few.chain(all)
    }

    fn all(&mut self) -> &mut hdrhistogram::Histogram<u64> {
        if let Counts::Few(buckets) = &self.counts {
            let mut counts = all_buckets();
            buckets
                .iter()
                .for_each(|(value_us, count)| counts.saturating_record_n(*value_us, *count));
            self.counts = Counts::All(Box::new(counts));
        }
        match &mut self.counts {
            Counts::All(counts) => counts,
            Counts::Few(_) => unreachable!("made above"),
        }
    }
}

/// Number of `total` values at or below this percentile; at least one.
fn rank(percentile: f64, total: u64) -> u64 {
    ((percentile / 100.0).clamp(0.0, 1.0) * total as f64).ceil().max(1.0) as u64
}

/// The buckets of two ascending lists as one.
fn together(one: &[(u64, u64)], other: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut buckets = [one, other].concat();
    // Two sorted runs: the stable sort merges them in one pass.
    buckets.sort_by_key(|(value_us, _)| *value_us);
    buckets.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        kept.1 += if same { later.1 } else { 0 };
        same
    });
    buckets
}

#[derive(Serialize, Deserialize)]
struct Written {
    sum_us: u64,
    buckets: Vec<(u64, u64)>,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sum_us = u64::try_from(self.sum_us).unwrap_or(u64::MAX);
        Written { sum_us, buckets: self.buckets().collect() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        let mut histogram = Self::default();
        if !written.buckets.is_empty() {
            let all = histogram.all();
            for (value_us, count) in written.buckets {
                all.saturating_record_n(value_us.min(LONGEST_US), count);
            }
            // Files of other programs may be in any order; the buckets are in theirs.
            histogram.compact();
        }
        histogram.sum_us = u128::from(written.sum_us);
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_merged_and_compacted_is_the_same() {
        let mut one = Histogram::default();
        (1..=10_000).for_each(|value| one.record_us(value * 7));
        let text = serde_json::to_string(&one).unwrap();
        let mut two: Histogram = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (two.count(), two.sum_us(), two.max_us()),
            (one.count(), one.sum_us(), one.max_us())
        );
        for percentile in [0.0, 0.01, 50.0, 95.0, 99.0, 99.9, 100.0] {
            assert_eq!(
                two.percentile_us(percentile),
                one.percentile_us(percentile),
                "{percentile}"
            );
        }
        assert!(two.buckets().eq(one.buckets()));
        two.merge(&one);
        two.compact();
        two.record_us(1);
        assert_eq!(two.count(), 20_001);
        assert_eq!(two.percentile_us(99.0), one.percentile_us(99.0));
    }

    #[test]
    fn thinned_and_merged_few_say_the_same_as_the_counters() {
        let mut one = Histogram::default();
        (1..=10_001).for_each(|value| one.record_us(value * value / 7));
        let kept = [1.0, 50.0, 95.0, 99.0];
        let thin = one.thinned(&kept);
        assert!(thin.buckets().count() <= kept.len() + 1);
        assert_eq!(
            (thin.count(), thin.sum_us(), thin.max_us()),
            (one.count(), one.sum_us(), one.max_us())
        );
        for percentile in kept {
            assert_eq!(thin.percentile_us(percentile), one.percentile_us(percentile));
        }
        one.compact();
        let mut twice = one.clone();
        twice.merge(&one);
        assert_eq!((twice.count(), twice.buckets().count()), (20_002, one.buckets().count()));
        assert_eq!(
            (twice.sum_us(), twice.percentile_us(95.0)),
            (2 * one.sum_us(), one.percentile_us(95.0))
        );
        assert_eq!(Histogram::default().thinned(&kept).count(), 0);
    }

    #[test]
    fn an_hour_is_the_longest() {
        let mut one = Histogram::default();
        assert_eq!((one.percentile_us(50.0), one.max_us(), one.mean_us()), (0, 0, 0.0));
        one.record_us(u64::MAX);
        assert_eq!(one.sum_us(), u128::from(LONGEST_US));
        assert!(one.max_us() >= LONGEST_US);
        one.clear();
        assert_eq!((one.percentile_us(50.0), one.max_us(), one.count()), (0, 0, 0));
    }
}
