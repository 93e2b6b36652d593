//! The state that all cores share: cache, configuration, counters, logs.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};

use arc_swap::ArcSwap;
use humboldt_base::clock::UnixMillis;
use humboldt_base::counters::{self, Counter, Counters};
use humboldt_conf::{Config, HttpPort};
use humboldt_helpers::Helpers;
use humboldt_logs::access::Tag;
use humboldt_net::dns::NameCache;
use humboldt_store::Cache;
use tokio::sync::Notify;

use crate::budgets::Budgets;
use crate::client_counts::ClientCounts;
use crate::config::snapshot::Snapshot;
use crate::cut::Cut;
use crate::leaf_turns::LeafTurns;
use crate::outcome::{AccessLog, Outcome};

/// Buckets of a histogram of service times: bucket `n` counts times below 2^n ms.
pub const TIME_BUCKETS: usize = 24;

/// A page of the proxy itself.
pub struct Page {
    /// Media type.
    pub content_type: &'static str,
    /// The page.
    pub body: Vec<u8>,
}

/// Makes the proxy's own pages.
pub trait InternalPages: Send + Sync {
    /// The page called `name` (`info`, `counters`, `metrics`, …); `None` if there is none.
    fn page(&self, name: &str) -> Option<Page>;
}

/// Brings a configuration into force: its number, its counters and its logins.
fn begin(snapshot: &Snapshot, cores: usize, earlier: Option<&Snapshot>) {
    let generation = 1 + earlier.map_or(0, Snapshot::generation);
    snapshot.begin(generation, cores, earlier);
    if has_private_keys(&snapshot.config)
        && let Err(error) = humboldt_sys::core_dumps::forbid()
    {
        tracing::warn!("a core dump of this process may have keys in it: {error}");
    }
    if let Some(logins) = &snapshot.logins {
        let earlier = earlier.and_then(|earlier| earlier.logins.as_ref());
        logins.logins.begin(earlier.map(|earlier| &earlier.logins));
    }
}

/// Whether the program has private keys of certificates in its memory.
fn has_private_keys(config: &Config) -> bool {
    let mut peers = config.cache_peer.iter().filter_map(|peer| peer.tls.as_ref());
    let signs = |port: &HttpPort| port.bump.as_ref().is_some_and(|bump| bump.certificate.is_some());
    !config.https_port.is_empty()
        || config.http_port.iter().any(signs)
        || config.tls_outgoing_options.certificate.is_some()
        || peers.any(|tls| tls.certificate.is_some())
}

/// Whether a page is closed to everybody (`cachemgr_passwd`).
pub fn closes_page(config: &Config, name: &str) -> bool {
    // The directory of the pages is their index.
    let name = if name.is_empty() { "index" } else { name };
    let mut lines = config.cachemgr_passwd.iter();
    let line = lines.find(|line| line.pages.iter().any(|page| page == name || page == "all"));
    line.is_some_and(|line| !line.is_open)
}

/// Shared by all cores and the control thread.
pub struct Shared {
    snapshot: ArcSwap<Snapshot>,
    access_logs: ArcSwap<Vec<AccessLog>>,
    /// The one cache.
    pub cache: Arc<Cache>,
    /// Names that all cores have looked up.
    pub names: Arc<NameCache>,
    counters: Vec<Arc<Counters>>,
    /// Service times, and requests and bytes by result code.
    pub times: ServiceTimes,
    /// When the program started.
    pub started: UnixMillis,
    in_force_since: AtomicI64,
    failed_reconfigurations: AtomicU64,
    /// Connections by client, if a rule counts them.
    pub(crate) client_counts: Arc<ClientCounts>,
    /// What clients have used of their budgets.
    pub budgets: Arc<Budgets>,
    /// Turns of clients that need certificates made for them.
    pub(crate) leaf_turns: LeafTurns,
    connections: AtomicUsize,
    /// One for each core: notified when another core needs descriptors.
    room_wanted: Vec<Notify>,
    /// Processes of helper programs.
    pub helpers: Helpers,
    internal: OnceLock<Box<dyn InternalPages>>,
}

impl Shared {
    /// The state for `cores` cores.
    pub fn new(
        snapshot: Arc<Snapshot>,
        access_logs: Vec<AccessLog>,
        cache: Arc<Cache>,
        names: Arc<NameCache>,
        cores: usize,
    ) -> Arc<Self> {
        begin(&snapshot, cores, None);
        Arc::new(Self {
            snapshot: ArcSwap::new(snapshot),
            access_logs: ArcSwap::from_pointee(access_logs),
            cache,
            names,
            counters: (0..cores.max(1)).map(|_| Arc::new(Counters::default())).collect(),
            times: ServiceTimes::new(cores),
            started: UnixMillis::now(),
            in_force_since: AtomicI64::new(UnixMillis::now().0),
            failed_reconfigurations: AtomicU64::new(0),
            client_counts: Arc::default(),
            budgets: Arc::default(),
            leaf_turns: LeafTurns::default(),
            connections: AtomicUsize::new(0),
            room_wanted: (0..cores.max(1)).map(|_| Notify::new()).collect(),
            helpers: Helpers::default(),
            internal: OnceLock::new(),
        })
    }

    /// The newest configuration.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Since when the newest configuration is in force.
    pub fn in_force_since(&self) -> UnixMillis {
        UnixMillis(self.in_force_since.load(Relaxed))
    }

    /// Notes that a configuration could not be used, and the old one stays in force.
    pub fn reconfiguration_failed(&self) {
        self.failed_reconfigurations.fetch_add(1, Relaxed);
    }

    /// How many configurations could not be used.
    pub fn failed_reconfigurations(&self) -> u64 {
        self.failed_reconfigurations.load(Relaxed)
    }

    /// The logs of the newest configuration.
    pub fn access_logs(&self) -> Arc<Vec<AccessLog>> {
        self.access_logs.load_full()
    }

    /// Replaces the configuration. Cores switch to it when they are told.
    pub fn replace(&self, snapshot: Arc<Snapshot>, access_logs: Vec<AccessLog>) {
        begin(&snapshot, self.cores(), Some(&self.snapshot.load()));
        let lines: Vec<u64> = snapshot.budgets.iter().map(|line| line.id).collect();
        snapshot.delays.begin(&self.snapshot.load().delays);
        self.in_force_since.store(UnixMillis::now().0, Relaxed);
        self.snapshot.store(snapshot);
        self.budgets.keep(&lines);
        self.access_logs.store(Arc::new(access_logs));
    }

    /// Sets the maker of the proxy's own pages. Only the first call counts.
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

    /// Asks the other cores to make room, because `core` has nothing to close.
    pub(crate) fn ask_for_room(&self, core: usize) {
        let others = self.room_wanted.iter().enumerate().filter(|(other, _)| *other != core);
        others.for_each(|(_, wanted)| wanted.notify_one());
    }

    /// Ends when another core has asked this one to make room.
    pub async fn room_is_needed(&self, core: usize) {
        self.room_wanted[core % self.room_wanted.len()].notified().await;
    }

    pub(crate) fn connection_opened(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    pub(crate) fn connection_closed(&self) {
        self.connections.fetch_sub(1, Relaxed);
    }
}

/// Sums over finished transactions: histograms of service times in ms, one for each kind of answer,
/// and requests and bytes by result code. Also the connections that were cut off, by reason.
pub struct ServiceTimes {
    cores: Vec<CoreTimes>,
}

/// One core's part of [`ServiceTimes`]: only that core adds. Aligned so that two cores never write
/// to the same cache line.
#[derive(Default)]
#[repr(align(128))]
struct CoreTimes {
    histograms: [Histogram; TimesOf::ALL.len()],
    results: [ResultCells; Tag::ALL.len()],
    aborted: AtomicU64,
    cuts: [AtomicU64; Cut::ALL.len()],
}

/// Counts of times, in buckets of powers of two of a millisecond.
#[derive(Default)]
struct Histogram {
    buckets: [AtomicU64; TIME_BUCKETS],
    sum_ms: AtomicU64,
}

#[derive(Default)]
struct ResultCells {
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// A histogram of service times, summed over all cores.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct TimeCounts {
    /// Answers by bucket, see [`TIME_BUCKETS`]. The last one also counts all longer times.
    pub buckets: [u64; TIME_BUCKETS],
    /// The sum of their times in ms.
    pub sum_ms: u64,
}

/// Answers with one result code, summed over all cores.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultCounts {
    /// Finished requests.
    pub requests: u64,
    /// Bytes sent to clients.
    pub bytes: u64,
}

/// The kind of answers that a histogram counts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TimesOf {
    /// All requests, also tunnels and refusals.
    All = 0,
    /// Answers from a server.
    Misses = 1,
    /// Answers from the cache without asking a server.
    Hits = 2,
    /// Answers from the cache after a server was asked.
    NearHits = 3,
    /// Answers from the cache to the client's own conditions.
    NotModified = 4,
}

impl TimesOf {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::All, Self::Misses, Self::Hits, Self::NearHits, Self::NotModified];

    /// The kind of an answer; `None` if it counts among [`TimesOf::All`] only.
    pub fn of(tag: Tag) -> Option<Self> {
        match tag {
            Tag::Hit | Tag::MemHit | Tag::NegativeHit | Tag::OfflineHit | Tag::Refresh => {
                Some(Self::Hits)
            }
            Tag::RefreshUnmodified | Tag::RefreshFailOld => Some(Self::NearHits),
            Tag::ImsHit | Tag::InmHit => Some(Self::NotModified),
            Tag::Miss
            | Tag::ClientRefreshMiss
            | Tag::SwapfailMiss
            | Tag::RefreshModified
            | Tag::RefreshFailErr => Some(Self::Misses),
            Tag::None | Tag::Denied | Tag::DeniedReply | Tag::Redirect | Tag::Tunnel => None,
            Tag::UdpHit | Tag::UdpMiss | Tag::UdpDenied | Tag::UdpInvalid => None,
        }
    }
}

/// Adds without a locked instruction: only the owning core may.
fn add(cell: &AtomicU64, n: u64) {
    cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
}

impl ServiceTimes {
    fn new(cores: usize) -> Self {
        Self { cores: (0..cores.max(1)).map(|_| CoreTimes::default()).collect() }
    }

    pub(crate) fn record(&self, core: usize, outcome: &Outcome, elapsed_ms: u64) {
        let Some(own) = self.cores.get(core) else { return };
        let bucket = ((u64::BITS - elapsed_ms.leading_zeros()) as usize).min(TIME_BUCKETS - 1);
        for of in [Some(TimesOf::All), TimesOf::of(outcome.tag)].into_iter().flatten() {
            let histogram = &own.histograms[of as usize];
            add(&histogram.buckets[bucket], 1);
            add(&histogram.sum_ms, elapsed_ms);
        }
        let result = &own.results[outcome.tag as usize];
        add(&result.requests, 1);
        add(&result.bytes, outcome.bytes_out);
        if outcome.is_aborted() {
            add(&own.aborted, 1);
        }
    }

    /// Counts a connection that was cut off.
    pub(crate) fn record_cut(&self, core: usize, cut: Cut) {
        if let Some(own) = self.cores.get(core) {
            add(&own.cuts[cut as usize], 1);
        }
    }

    /// Connections that were cut off for this reason, summed over all cores.
    pub fn cuts(&self, cut: Cut) -> u64 {
        self.cores.iter().map(|core| core.cuts[cut as usize].load(Relaxed)).sum()
    }

    /// Service times of one kind of answer, summed over all cores.
    pub fn counts(&self, of: TimesOf) -> TimeCounts {
        let mut sums = TimeCounts::default();
        for histogram in self.cores.iter().map(|core| &core.histograms[of as usize]) {
            for (sum, cell) in sums.buckets.iter_mut().zip(&histogram.buckets) {
                *sum += cell.load(Relaxed);
            }
            sums.sum_ms = sums.sum_ms.wrapping_add(histogram.sum_ms.load(Relaxed));
        }
        sums
    }

    /// Answers with one result code, summed over all cores.
    pub fn results(&self, tag: Tag) -> ResultCounts {
        let cells = self.cores.iter().map(|core| &core.results[tag as usize]);
        cells.fold(ResultCounts::default(), |sum, cell| ResultCounts {
            requests: sum.requests + cell.requests.load(Relaxed),
            bytes: sum.bytes + cell.bytes.load(Relaxed),
        })
    }

    /// Answers that did not reach the client whole, summed over all cores.
    pub fn aborted(&self) -> u64 {
        self.cores.iter().map(|core| core.aborted.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_numbered_in_order() {
        assert!(TimesOf::ALL.iter().enumerate().all(|(index, of)| *of as usize == index));
        assert!(Tag::ALL.iter().enumerate().all(|(index, tag)| *tag as usize == index));
    }

    #[test]
    fn transactions_are_counted_by_kind_and_by_result_code() {
        let times = ServiceTimes::new(2);
        let outcome = |tag, bytes_out, cut| Outcome { bytes_out, cut, ..Outcome::local(tag, 200) };
        times.record(0, &outcome(Tag::MemHit, 100, None), 0);
        times.record(1, &outcome(Tag::MemHit, 50, Some(Cut::ClientGone)), 3);
        times.record(1, &outcome(Tag::Denied, 7, None), u64::MAX);
        times.record(9, &outcome(Tag::MemHit, 1000, Some(Cut::ClientGone)), 1);
        assert_eq!(times.results(Tag::MemHit), ResultCounts { requests: 2, bytes: 150 });
        assert_eq!(times.results(Tag::Denied), ResultCounts { requests: 1, bytes: 7 });
        assert_eq!(times.results(Tag::Miss), ResultCounts::default());
        assert_eq!(times.aborted(), 1);
        times.record_cut(0, Cut::HeldUp);
        times.record_cut(1, Cut::HeldUp);
        assert_eq!((times.cuts(Cut::HeldUp), times.cuts(Cut::ClientGone)), (2, 0));
        let hits = times.counts(TimesOf::Hits);
        assert_eq!((hits.buckets[0], hits.buckets[2], hits.sum_ms), (1, 1, 3));
        let all = times.counts(TimesOf::All);
        assert_eq!((all.buckets[TIME_BUCKETS - 1], all.buckets.iter().sum::<u64>()), (1, 3));
    }
}
