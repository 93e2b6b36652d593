//! Caches are compared at the same age only: over the same fill ratios. An empty cache is faster
//! than a full one, so a comparison of two ages says nothing about the caches.

use crate::format::number;
use humboldt_lab_record::{AT_LOAD_MAX, LAST_QUARTER, Run, Sample};

/// A cache that was filled to this has begun to replace what it stored.
const FULL: f64 = 1.0;

/// A window of a smaller part of the fill ratio says too little.
const SHARE_MIN: f64 = 0.1;

/// A part of a run's course: from one fill ratio to another.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Ages {
    pub(crate) from: f64,
    pub(crate) to: f64,
}

impl Ages {
    /// The last quarter of a run.
    pub(crate) fn of(run: &Run) -> Self {
        Self { from: run.summary.from_fill_ratio, to: run.summary.to_fill_ratio }
    }

    /// The ages that the last quarters of all these runs have in common. `None`: there are none, or
    /// too few of them.
    pub(crate) fn overlap<'a>(runs: impl Iterator<Item = &'a Run> + Clone) -> Option<Self> {
        let from = runs.clone().map(|run| Self::of(run).from).fold(0.0, f64::max);
        let to = runs.map(|run| Self::of(run).to).fold(f64::INFINITY, f64::min);
        let is_wide = to.is_finite() && to > 0.0 && to - from >= to * SHARE_MIN;
        is_wide.then_some(Self { from, to })
    }

    /// The ages at which all these runs can be compared: where their last quarters overlap, or
    /// else the last quarter of the least filled one. `None`: a run of nothing is among them.
    pub(crate) fn common<'a>(runs: impl Iterator<Item = &'a Run> + Clone) -> Option<Self> {
        let overlap = Self::overlap(runs.clone());
        let to = runs.map(|run| Self::of(run).to).fold(f64::INFINITY, f64::min);
        let least_filled = Self { from: to * LAST_QUARTER, to };
        (to.is_finite() && to > 0.0).then(|| overlap.unwrap_or(least_filled))
    }

    /// Whether a cache at these ages was full once.
    pub(crate) fn is_full(self) -> bool {
        self.to >= FULL
    }

    /// "1.50–2.00", or "0.41–0.55, never full".
    pub(crate) fn words(self) -> String {
        let never = if self.is_full() { "" } else { ", never full" };
        format!("{}–{}{never}", number(self.from, 2), number(self.to, 2))
    }

    /// The good samples of a run at these ages.
    fn samples(self, run: &Run) -> impl Iterator<Item = &Sample> + Clone {
        let is_within = move |sample: &&Sample| {
            !sample.is_spoiled()
                && sample.fill_ratio >= self.from
                // The sample that reached the end is part of it.
                && sample.fill_ratio <= self.to + f64::EPSILON
        };
        run.samples.iter().filter(is_within)
    }

    /// Whether the rate at these ages is the cache's limit: not if it found none in the whole run,
    /// or was at the highest load that it was allowed for more than half of the time. `None`: an
    /// older laboratory did not look for the limit.
    pub(crate) fn limit_reached(self, run: &Run) -> Option<bool> {
        let samples = self.samples(run);
        let at_load_max = samples.clone().filter(|sample| sample.verdict.state == AT_LOAD_MAX);
        Some(run.summary.limit_reached? && 2 * at_load_max.count() <= samples.count())
    }

    /// Answers per second of a run at these ages, and the share of hits in answers to plain GETs.
    pub(crate) fn rates(self, run: &Run) -> Option<(f64, f64)> {
        let (mut answers, mut period_us, mut hits, mut plain) = (0, 0, 0, 0);
        for Sample { tally, .. } in self.samples(run) {
            answers += tally.answers();
            period_us += tally.period_us;
            hits += tally.hits.answers;
            plain += tally.hits.answers + tally.misses.answers;
        }
        let per_s = answers as f64 * 1e6 / period_us as f64;
        (period_us > 0).then_some((per_s, hits as f64 / (plain.max(1)) as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_lab_record::Tally;

    /// A run that answered `rate(fill)` per second, filled to `end` in twenty samples of 1 s.
    fn run(end: f64, rate: fn(f64) -> u64) -> Run {
        let mut run = Run::default();
        for index in 1..=20 {
            let fill_ratio = end * f64::from(index) / 20.0;
            let mut tally = Tally { period_us: 1_000_000, ..Tally::default() };
            (0..rate(fill_ratio)).for_each(|_| tally.misses.add(1, 1, 1));
            run.samples.push(Sample { fill_ratio, tally, ..Sample::default() });
        }
        (run.summary.from_fill_ratio, run.summary.to_fill_ratio) = (end * 0.75, end);
        run
    }

    #[test]
    fn a_full_cache_is_not_compared_with_an_empty_one() {
        // Both are as fast as each other at every age, and slower when they are full.
        let rate = |fill: f64| if fill < 1.0 { 1000 } else { 500 };
        let (full, empty) = (run(2.0, rate), run(0.8, rate));
        let ages = Ages::common([&full, &empty].into_iter()).expect("ages");
        assert_eq!((ages.from, ages.to, ages.is_full()), (0.8 * 0.75, 0.8, false));
        assert!(ages.words().ends_with("never full"));
        let rates = [&full, &empty].map(|run| ages.rates(run).expect("samples").0);
        assert_eq!(rates, [1000.0, 1000.0]);
        let other = run(1.9, rate);
        let ages = Ages::common([&full, &other].into_iter()).expect("ages");
        assert_eq!((ages.from, ages.to), (1.5, 1.9));
        assert_eq!(Ages::common([&full, &Run::default()].into_iter()), None);
    }

    #[test]
    fn a_rate_at_the_highest_load_is_no_limit() {
        let mut run = run(2.0, |_| 100);
        let late = Ages { from: 1.5, to: 2.0 };
        assert_eq!(late.limit_reached(&run), None, "an older laboratory");
        run.summary.limit_reached = Some(true);
        assert_eq!(late.limit_reached(&run), Some(true));
        for sample in run.samples.iter_mut().filter(|sample| sample.fill_ratio <= 1.0) {
            sample.verdict.state = AT_LOAD_MAX.to_owned();
        }
        assert_eq!(late.limit_reached(&run), Some(true), "that was before");
        assert_eq!(Ages { from: 0.5, to: 1.2 }.limit_reached(&run), Some(false));
        run.summary.limit_reached = Some(false);
        assert_eq!(late.limit_reached(&run), Some(false));
    }
}
