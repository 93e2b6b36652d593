//! All figures that only grow, read at one moment: the difference of two of them covers the time
//! between.

use std::time::Duration;

use humboldt_base::clock::UnixMillis;
use humboldt_base::counters::Counter;
use humboldt_logs::access::Tag;
use humboldt_proxy::cut::Cut;
use humboldt_proxy::shared::{ResultCounts, Shared, TimeCounts, TimesOf};
use humboldt_sys::process_stats::ProcessStats;

/// Totals since the start.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Totals {
    /// When they were read.
    pub at: UnixMillis,
    /// Running time of the program.
    pub uptime: Duration,
    /// Processor time used.
    pub cpu: Duration,
    /// Page faults that needed the disk.
    pub major_faults: u64,
    /// Answers that did not reach the client whole.
    pub aborted: u64,
    counters: [u64; Counter::ALL.len()],
    cuts: [u64; Cut::ALL.len()],
    results: [ResultCounts; Tag::ALL.len()],
    times: [TimeCounts; TimesOf::ALL.len()],
}

impl Totals {
    /// The figures at the start of the program.
    pub(crate) fn at_start(started: UnixMillis) -> Self {
        Self {
            at: started,
            uptime: Duration::ZERO,
            cpu: Duration::ZERO,
            major_faults: 0,
            aborted: 0,
            counters: [0; Counter::ALL.len()],
            cuts: [0; Cut::ALL.len()],
            results: [ResultCounts::default(); Tag::ALL.len()],
            times: [TimeCounts::default(); TimesOf::ALL.len()],
        }
    }

    /// The present figures.
    pub(crate) fn gather(shared: &Shared, process: &ProcessStats, now: UnixMillis) -> Self {
        let mut totals = Self {
            uptime: Duration::from_millis(now.since_ms(shared.started)),
            cpu: process.user + process.system,
            major_faults: process.major_faults,
            aborted: shared.times.aborted(),
            ..Self::at_start(now)
        };
        for (cell, counter) in totals.counters.iter_mut().zip(Counter::ALL) {
            *cell = shared.total(*counter).saturating_add(counted_elsewhere(shared, *counter));
        }
        for (cell, cut) in totals.cuts.iter_mut().zip(Cut::ALL) {
            *cell = shared.times.cuts(*cut);
        }
        for (cell, tag) in totals.results.iter_mut().zip(Tag::ALL) {
            *cell = shared.times.results(*tag);
        }
        for (cell, of) in totals.times.iter_mut().zip(TimesOf::ALL) {
            *cell = shared.times.counts(of);
        }
        totals
    }

    /// A counter.
    pub(crate) fn count(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// Connections that were cut off for this reason.
    pub(crate) fn cut(&self, cut: Cut) -> u64 {
        self.cuts[cut as usize]
    }

    /// Answers with a result code.
    pub(crate) fn result(&self, tag: Tag) -> ResultCounts {
        self.results[tag as usize]
    }

    /// Service times.
    pub(crate) fn times(&self, of: TimesOf) -> TimeCounts {
        self.times[of as usize]
    }
}

/// Counters outside of the cores, because they do not belong to a request: evictions are counted by
/// the cache, lost log lines and panics by the logs.
fn counted_elsewhere(shared: &Shared, counter: Counter) -> u64 {
    match counter {
        Counter::MemoryEvictions => shared.cache.mem().stats().evictions,
        Counter::SwapEvictions => {
            shared.cache.dirs().iter().map(|dir| dir.scheme.stats().evictions).sum()
        }
        Counter::AccessLogDropped => shared
            .access_logs()
            .iter()
            .filter_map(|log| log.sink.as_ref())
            .map(|sink| sink.dropped_lines())
            .sum(),
        Counter::Panics => humboldt_logs::panics::count(),
        _ => 0,
    }
}

#[cfg(test)]
impl Totals {
    /// For tests: sets a counter.
    pub(crate) fn with(mut self, counter: Counter, value: u64) -> Self {
        self.counters[counter as usize] = value;
        self
    }

    /// For tests: sets a result code's figures.
    pub(crate) fn with_result(mut self, tag: Tag, requests: u64, bytes: u64) -> Self {
        self.results[tag as usize] = ResultCounts { requests, bytes };
        self
    }

    /// For tests: sets a histogram.
    pub(crate) fn with_times(mut self, of: TimesOf, counts: TimeCounts) -> Self {
        self.times[of as usize] = counts;
        self
    }
}
