//! The figures between two moments: rates, ratios, percentiles.

use humboldt_base::counters::Counter;
use humboldt_logs::access::Tag;
use humboldt_proxy::shared::{TIME_BUCKETS, TimeCounts, TimesOf};

use crate::totals::Totals;

/// Two moments, the earlier one first.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Interval<'a> {
    /// The beginning.
    pub from: &'a Totals,
    /// The end.
    pub to: &'a Totals,
}

impl Interval<'_> {
    /// Its length in seconds; 0 when the clock went backwards.
    pub(crate) fn secs(&self) -> f64 {
        self.to.at.since_ms(self.from.at) as f64 / 1000.0
    }

    /// Growth of a figure. A figure that became smaller (a log or cache directory was replaced) did
    /// not grow.
    pub(crate) fn grown(&self, read: impl Fn(&Totals) -> u64) -> u64 {
        read(self.to).saturating_sub(read(self.from))
    }

    /// Growth of a figure per second; 0 for an empty interval.
    pub(crate) fn rate(&self, read: impl Fn(&Totals) -> u64) -> f64 {
        ratio(self.grown(read) as f64, self.secs()).unwrap_or(0.0)
    }

    fn share(&self, part: impl Fn(&Totals) -> u64, whole: Counter) -> Option<f64> {
        ratio(self.grown(part) as f64, self.grown(|t| t.count(whole)) as f64)
    }

    /// Hits among all requests; `None` when there was no request.
    pub(crate) fn hit_ratio(&self) -> Option<f64> {
        self.share(|t| t.count(Counter::ClientHits), Counter::ClientRequests)
    }

    /// Bytes sent as part of hits among all bytes sent to clients; `None` when none were sent.
    pub(crate) fn byte_hit_ratio(&self) -> Option<f64> {
        self.share(|t| t.count(Counter::ClientHitOutBytes), Counter::ClientOutBytes)
    }

    /// Hits from memory among all hits.
    pub(crate) fn memory_hit_ratio(&self) -> Option<f64> {
        self.share(|t| t.count(Counter::ClientMemoryHits), Counter::ClientHits)
    }

    /// Hits from a cache directory among all hits.
    pub(crate) fn disk_hit_ratio(&self) -> Option<f64> {
        self.share(|t| t.result(Tag::Hit).requests, Counter::ClientHits)
    }

    /// Requests to servers that failed among all.
    pub(crate) fn failure_ratio(&self) -> Option<f64> {
        self.share(|t| t.count(Counter::ServerErrors), Counter::ServerRequests)
    }

    /// Processor time used, in seconds.
    pub(crate) fn cpu_secs(&self) -> f64 {
        self.to.cpu.saturating_sub(self.from.cpu).as_secs_f64()
    }

    /// Processor time used per time passed.
    pub(crate) fn cpu_ratio(&self) -> f64 {
        ratio(self.cpu_secs(), self.secs()).unwrap_or(0.0)
    }

    /// The service time in seconds below which `fraction` of the answers stayed; 0 without answers,
    /// as in Squid.
    pub(crate) fn percentile(&self, of: TimesOf, fraction: f64) -> f64 {
        let (from, to) = (self.from.times(of), self.to.times(of));
        let mut grown = TimeCounts::default();
        for (cell, (to, from)) in grown.buckets.iter_mut().zip(to.buckets.iter().zip(&from.buckets))
        {
            *cell = to.saturating_sub(*from);
        }
        percentile(&grown.buckets, fraction)
    }
}

/// `part / whole`, unless there is no whole.
pub(crate) fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// Bounds of a bucket in ms: from the first to below the second. The last bucket has no upper bound
/// and counts as its lower one; a time below a millisecond counts as 0.
fn bounds_ms(bucket: usize) -> (f64, f64) {
    let low = if bucket == 0 { 0.0 } else { (1_u64 << (bucket - 1)) as f64 };
    let is_exact = bucket == 0 || bucket == TIME_BUCKETS - 1;
    (low, if is_exact { low } else { low * 2.0 })
}

/// Takes times to be spread evenly within their bucket.
fn percentile(buckets: &[u64; TIME_BUCKETS], fraction: f64) -> f64 {
    let rank = buckets.iter().sum::<u64>() as f64 * fraction;
    let mut below = 0.0;
    for (bucket, &count) in buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
        if below + count as f64 >= rank {
            let (low, high) = bounds_ms(bucket);
            return (low + (high - low) * (rank - below) / count as f64) / 1000.0;
        }
        below += count as f64;
    }
    0.0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use humboldt_base::clock::UnixMillis;

    use super::*;

    fn at(ms: i64) -> Totals {
        Totals::at_start(UnixMillis(ms))
    }

    #[test]
    fn percentiles_lie_within_their_bucket() {
        let mut buckets = [0; TIME_BUCKETS];
        assert_eq!(percentile(&buckets, 0.5), 0.0);
        buckets[0] = 50; // below 1 ms
        buckets[7] = 50; // 64 to 128 ms
        assert_eq!(percentile(&buckets, 0.5), 0.0);
        assert_eq!(percentile(&buckets, 0.75), 0.096);
        assert_eq!(percentile(&buckets, 1.0), 0.128);
        buckets[TIME_BUCKETS - 1] = 900;
        assert_eq!(percentile(&buckets, 0.95), (1_u64 << (TIME_BUCKETS - 2)) as f64 / 1000.0);
    }

    #[test]
    fn ratios_are_about_the_interval_only() {
        let from = at(1000).with(Counter::ClientRequests, 100).with(Counter::ClientHits, 100);
        let mut to = at(11_000).with(Counter::ClientRequests, 140).with(Counter::ClientHits, 110);
        to = to.with(Counter::ClientMemoryHits, 4).with_result(Tag::Hit, 5, 0);
        to.cpu = Duration::from_secs(1);
        let interval = Interval { from: &from, to: &to };
        assert_eq!(interval.secs(), 10.0);
        assert_eq!(interval.rate(|t| t.count(Counter::ClientRequests)), 4.0);
        assert_eq!((interval.hit_ratio(), interval.byte_hit_ratio()), (Some(0.25), None));
        assert_eq!(
            (interval.memory_hit_ratio(), interval.disk_hit_ratio()),
            (Some(0.4), Some(0.5))
        );
        assert_eq!(interval.cpu_ratio(), 0.1);
    }

    #[test]
    fn nothing_is_negative_when_time_or_figures_go_backwards() {
        let from = at(5000).with(Counter::AccessLogDropped, 9);
        let to = at(1000);
        let interval = Interval { from: &from, to: &to };
        assert_eq!((interval.secs(), interval.cpu_ratio()), (0.0, 0.0));
        assert_eq!(interval.rate(|t| t.count(Counter::AccessLogDropped)), 0.0);
    }
}
