//! Totals of the last hour, for averages.

use std::collections::VecDeque;

use humboldt_base::clock::UnixMillis;

use crate::totals::Totals;

/// Time between samples, in ms: an average over 5 minutes covers at most this much more.
const SAMPLE_EVERY_MS: u64 = 30_000;

/// The longest average, in minutes.
const LONGEST_MINUTES: u64 = 60;

/// Most samples kept: the oldest one lies before the longest average's beginning. About 200 KB.
const SAMPLES_MAX: usize = (LONGEST_MINUTES * 60_000 / SAMPLE_EVERY_MS) as usize + 2;

/// Samples, the oldest first; never empty.
pub(crate) struct History {
    samples: VecDeque<Totals>,
    oldest: Totals,
}

impl History {
    /// The first sample has the figures at the start of the program.
    pub(crate) fn new(first: Totals) -> Self {
        Self { oldest: first, samples: VecDeque::new() }
    }

    /// Takes a sample if the last one is old enough. When the clock went backwards, earlier samples
    /// are dropped: nothing can be said about how long ago they were.
    pub(crate) fn tick(&mut self, now: UnixMillis, gather: impl FnOnce() -> Totals) {
        let last = self.samples.back().unwrap_or(&self.oldest).at;
        if now < last {
            self.samples.clear();
            self.oldest = gather();
        } else if now.since_ms(last) >= SAMPLE_EVERY_MS {
            self.samples.push_back(gather());
            if self.samples.len() >= SAMPLES_MAX
                && let Some(next) = self.samples.pop_front()
            {
                self.oldest = next;
            }
        }
    }

    /// The newest sample that is at least `minutes` older than `now`; the oldest one when there is
    /// none.
    pub(crate) fn before(&self, now: UnixMillis, minutes: u64) -> &Totals {
        let is_old = |sample: &&Totals| now.since_ms(sample.at) >= minutes * 60_000;
        self.samples.iter().rev().find(is_old).unwrap_or(&self.oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Totals {
        Totals::at_start(UnixMillis(secs * 1000))
    }

    fn run(secs: std::ops::Range<i64>) -> History {
        let mut history = History::new(at(secs.start));
        for now in secs {
            history.tick(UnixMillis(now * 1000), || at(now));
        }
        history
    }

    fn before(history: &History, now: i64, minutes: u64) -> i64 {
        history.before(UnixMillis(now * 1000), minutes).at.secs()
    }

    #[test]
    fn young_programs_average_since_their_start() {
        let history = run(1000..1100);
        assert_eq!((before(&history, 1100, 5), before(&history, 1100, 60)), (1000, 1000));
    }

    #[test]
    fn averages_begin_where_they_should_and_samples_are_bounded() {
        let history = run(0..10_000);
        assert_eq!(history.samples.len(), SAMPLES_MAX - 1);
        for now in [10_000, 10_017] {
            for minutes in [5, 60] {
                let length = now - before(&history, now, minutes);
                let wanted = minutes as i64 * 60;
                assert!(
                    (wanted..wanted + 30).contains(&length),
                    "{length} s for {minutes} minutes at {now}"
                );
            }
        }
    }

    #[test]
    fn a_clock_set_back_starts_again() {
        let mut history = run(5000..6000);
        history.tick(UnixMillis(100_000), || at(100));
        assert_eq!((before(&history, 130, 5), history.samples.len()), (100, 0));
        history.tick(UnixMillis(130_000), || at(130));
        assert_eq!(history.samples.len(), 1);
    }
}
