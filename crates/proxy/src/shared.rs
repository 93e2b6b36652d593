//! What all cores share: the cache, the configuration, the counters, the logs.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use arc_swap::ArcSwap;
use humboldt_base::clock::UnixMillis;
use humboldt_base::counters::{self, Counter, Counters};
use humboldt_net::dns::NameCache;
use humboldt_store::Cache;

use crate::internal::InternalPages;
use crate::log::{AccessLog, Outcome};
use crate::snapshot::Snapshot;

/// Buckets of a histogram of service times: bucket `n` counts times below 2^n ms.
pub const TIME_BUCKETS: usize = 24;

/// Shared by all cores and the control thread.
pub struct Shared {
    snapshot: ArcSwap<Snapshot>,
    access_logs: ArcSwap<Vec<AccessLog>>,
    /// The one cache.
    pub cache: Arc<Cache>,
    /// Names that all cores have looked up.
    pub names: Arc<NameCache>,
    counters: Vec<Arc<Counters>>,
    /// Service times.
    pub times: ServiceTimes,
    /// When the program started.
    pub started: UnixMillis,
    connections: AtomicUsize,
    internal: OnceLock<Box<dyn InternalPages>>,
}

impl Shared {
    /// For `cores` cores.
    pub fn new(snapshot: Arc<Snapshot>, access_logs: Vec<AccessLog>, cache: Arc<Cache>, names: Arc<NameCache>, cores: usize) -> Arc<Self> {
        Arc::new(Self {
            snapshot: ArcSwap::new(snapshot),
            access_logs: ArcSwap::from_pointee(access_logs),
            cache,
            names,
            counters: (0..cores.max(1)).map(|_| Arc::new(Counters::default())).collect(),
            times: ServiceTimes::new(cores),
            started: UnixMillis::now(),
            connections: AtomicUsize::new(0),
            internal: OnceLock::new(),
        })
    }

    /// The newest configuration.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// The logs that the newest configuration asks for.
    pub fn access_logs(&self) -> Arc<Vec<AccessLog>> {
        self.access_logs.load_full()
    }

    /// Replaces the configuration; cores take it over when they are told.
    pub fn replace(&self, snapshot: Arc<Snapshot>, access_logs: Vec<AccessLog>) {
        self.snapshot.store(snapshot);
        self.access_logs.store(Arc::new(access_logs));
    }

    /// Sets who answers requests for the proxy's own pages. Once.
    pub fn set_internal_pages(&self, pages: Box<dyn InternalPages>) {
        _ = self.internal.set(pages);
    }

    pub(crate) fn internal_pages(&self) -> Option<&dyn InternalPages> {
        self.internal.get().map(|pages| &**pages)
    }

    /// Counters of one core.
    pub fn counters(&self, core: usize) -> &Arc<Counters> {
        &self.counters[core % self.counters.len()]
    }

    /// A counter summed over all cores.
    pub fn total(&self, counter: Counter) -> u64 {
        counters::sum(self.counters.iter().map(|counters| &**counters), counter)
    }

    /// Number of cores.
    pub fn cores(&self) -> usize {
        self.counters.len()
    }

    /// Connections open to clients.
    pub fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    pub(crate) fn connection_opened(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    pub(crate) fn connection_closed(&self) {
        self.connections.fetch_sub(1, Relaxed);
    }
}

/// Histograms of service times in ms, one for each kind of answer.
pub struct ServiceTimes {
    cores: Vec<[Histogram; 3]>,
}

/// Times in powers of two of a millisecond.
#[derive(Default)]
#[repr(align(128))]
pub struct Histogram([AtomicU64; TIME_BUCKETS]);

/// Which answers a histogram is about.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TimesOf {
    /// All requests.
    All = 0,
    /// Hits of any kind.
    Hits = 1,
    /// Misses.
    Misses = 2,
}

impl ServiceTimes {
    fn new(cores: usize) -> Self {
        Self { cores: (0..cores.max(1)).map(|_| Default::default()).collect() }
    }

    pub(crate) fn record(&self, core: usize, outcome: &Outcome, elapsed_ms: u64) {
        let bucket = ((u64::BITS - elapsed_ms.leading_zeros()) as usize).min(TIME_BUCKETS - 1);
        let kind = if outcome.tag.is_hit() { TimesOf::Hits } else { TimesOf::Misses };
        let Some(histograms) = self.cores.get(core) else { return };
        for index in [TimesOf::All as usize, kind as usize] {
            // Only the owning core adds.
            let cell = &histograms[index].0[bucket];
            cell.store(cell.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }

    /// Counts by bucket, summed over all cores.
    pub fn counts(&self, of: TimesOf) -> [u64; TIME_BUCKETS] {
        let mut sums = [0; TIME_BUCKETS];
        for histograms in &self.cores {
            for (sum, cell) in sums.iter_mut().zip(&histograms[of as usize].0) {
                *sum += cell.load(Relaxed);
            }
        }
        sums
    }
}

