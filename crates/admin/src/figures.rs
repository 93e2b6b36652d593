//! Everything that pages show, gathered once per page.

use humboldt_base::clock::UnixMillis;
use humboldt_helpers::Statistics;
use humboldt_proxy::closes_page;
use humboldt_proxy::config::rule_counts::RuleCount;
use humboldt_proxy::delays::PoolFigures;
use humboldt_proxy::shared::Shared;
use humboldt_store::mem::MemStats;
use humboldt_store::scheme::SchemeStats;
use humboldt_sys::descriptors;
use humboldt_sys::process_stats::ProcessStats;

use crate::budgets::BudgetFigures;
use crate::history::History;
use crate::interval::Interval;
use crate::totals::Totals;

/// The state of the program at one moment.
pub(crate) struct Figures {
    /// When the program started.
    pub started: UnixMillis,
    /// Figures that only grow.
    pub totals: Totals,
    /// These figures about 5 minutes ago.
    pub five_minutes_ago: Totals,
    /// These figures about 60 minutes ago.
    pub sixty_minutes_ago: Totals,
    /// The system's figures of the process.
    pub process: ProcessStats,
    /// Most descriptors allowed.
    pub descriptors_max: u64,
    /// The memory tier.
    pub mem: MemStats,
    /// Fetches that other requests can join now.
    pub fetches: u64,
    /// Cache directories.
    pub dirs: Vec<DirFigures>,
    /// Connections open to clients.
    pub connections: u64,
    /// Names in the name cache.
    pub dns_names: u64,
    /// Threads that serve requests.
    pub cores: u64,
    /// Helper programs.
    pub helpers: Vec<Statistics>,
    /// Budgets of clients.
    pub budgets: BudgetFigures,
    /// Delay pools.
    pub delay_pools: Vec<PoolFigures>,
    /// Unused pages.
    pub closed_pages: Vec<&'static str>,
    /// How often each rule has decided.
    pub rules: Vec<RuleCount>,
    /// Number of the configuration in force.
    pub generation: u64,
    /// Since when it is in force.
    pub in_force_since: UnixMillis,
    /// Configurations that could not be used.
    pub failed_reconfigurations: u64,
}

/// One cache directory.
pub(crate) struct DirFigures {
    /// Position in the configuration.
    pub index: usize,
    /// Its scheme.
    pub scheme: &'static str,
    /// Its path.
    pub path: String,
    /// Its load, 0 to 1000.
    pub load: u16,
    /// The rest.
    pub stats: SchemeStats,
}

impl Figures {
    /// Reads all of them. `pages` are the names of the pages.
    pub(crate) fn gather(
        shared: &Shared,
        history: &History,
        pages: impl Iterator<Item = &'static str>,
    ) -> Self {
        let (now, mut process) = (UnixMillis::now(), ProcessStats::read());
        // The kernel keeps the maximum up to date now and then only.
        process.resident_max_bytes = process.resident_max_bytes.max(process.resident_bytes);
        let dirs = shared.cache.dirs();
        let snapshot = shared.snapshot();
        let config = &snapshot.config;
        Self {
            started: shared.started,
            totals: Totals::gather(shared, &process, now),
            five_minutes_ago: history.before(now, 5).clone(),
            sixty_minutes_ago: history.before(now, 60).clone(),
            process,
            descriptors_max: descriptors::limit(),
            mem: shared.cache.mem().stats(),
            fetches: shared.cache.in_flight().len() as u64,
            dirs: dirs.iter().map(|dir| DirFigures::gather(dir)).collect(),
            connections: shared.connections() as u64,
            dns_names: shared.names.len() as u64,
            cores: shared.cores() as u64,
            helpers: shared.helpers.statistics(),
            budgets: BudgetFigures::gather(shared),
            delay_pools: snapshot.delay_pools(),
            closed_pages: pages.filter(|name| closes_page(config, name)).collect(),
            rules: snapshot.rule_counts(),
            generation: snapshot.generation(),
            in_force_since: shared.in_force_since(),
            failed_reconfigurations: shared.failed_reconfigurations(),
        }
    }

    /// The last 5 minutes.
    pub(crate) fn five_minutes(&self) -> Interval<'_> {
        Interval { from: &self.five_minutes_ago, to: &self.totals }
    }

    /// The last 60 minutes.
    pub(crate) fn sixty_minutes(&self) -> Interval<'_> {
        Interval { from: &self.sixty_minutes_ago, to: &self.totals }
    }

    /// A figure of the cache directories, added up.
    pub(crate) fn disk(&self, read: impl Fn(&SchemeStats) -> u64) -> u64 {
        self.dirs.iter().map(|dir| read(&dir.stats)).sum()
    }

    /// Entries in memory and in the indexes of the directories. An object in both counts twice.
    pub(crate) fn store_entries(&self) -> u64 {
        self.mem.entries + self.disk(|dir| dir.objects)
    }
}

impl DirFigures {
    /// Bytes written for each byte of objects stored; `None` before the first.
    pub(crate) fn write_amplification(&self) -> Option<f64> {
        crate::interval::ratio(self.stats.write_bytes as f64, self.stats.object_bytes as f64)
    }

    /// Memory of the index for each object; `None` without objects.
    pub(crate) fn index_bytes_per_object(&self) -> Option<f64> {
        crate::interval::ratio(self.stats.index_bytes as f64, self.stats.objects as f64)
    }

    fn gather(dir: &humboldt_store::Dir) -> Self {
        let mut stats = dir.scheme.stats();
        stats.down |= !dir.is_in_service();
        Self {
            index: dir.index,
            scheme: dir.scheme.name(),
            path: dir.scheme.path().to_string_lossy().into_owned(),
            load: dir.scheme.load(),
            stats,
        }
    }
}

#[cfg(test)]
impl Figures {
    /// For tests: a program that has just started and done nothing.
    pub(crate) fn idle() -> Self {
        let start = Totals::at_start(UnixMillis(1_700_000_000_000));
        Self {
            started: start.at,
            totals: start.clone(),
            five_minutes_ago: start.clone(),
            sixty_minutes_ago: start,
            process: ProcessStats::default(),
            descriptors_max: 1024,
            mem: MemStats::default(),
            fetches: 0,
            dirs: Vec::new(),
            connections: 0,
            dns_names: 0,
            cores: 2,
            helpers: Vec::new(),
            budgets: BudgetFigures::default(),
            delay_pools: Vec::new(),
            closed_pages: Vec::new(),
            rules: Vec::new(),
            generation: 1,
            in_force_since: UnixMillis(1_700_000_000_000),
            failed_reconfigurations: 0,
        }
    }

    /// For tests: a program that has been busy for 100 s, with awkward names.
    pub(crate) fn busy() -> Self {
        use humboldt_base::counters::Counter;
        use humboldt_logs::access::Tag;
        use humboldt_proxy::shared::{TIME_BUCKETS, TimeCounts, TimesOf};
        let mut figures = Self::idle();
        let mut totals = Totals::at_start(UnixMillis(figures.started.0 + 100_000));
        totals.uptime = std::time::Duration::from_secs(100);
        totals.cpu = std::time::Duration::from_millis(2500);
        totals = Counter::ALL.iter().fold(totals, |totals, c| totals.with(*c, 10_000 + *c as u64));
        totals = totals.with(Counter::ClientHits, 7500).with(Counter::ClientRequests, 10_000);
        totals = Tag::ALL
            .iter()
            .fold(totals, |totals, tag| totals.with_result(*tag, 5 + *tag as u64, 1 << 40));
        for of in TimesOf::ALL {
            let buckets = std::array::from_fn(|bucket| (bucket as u64 + 1) % (TIME_BUCKETS as u64));
            totals = totals.with_times(of, TimeCounts { buckets, sum_ms: 123_456 });
        }
        figures.totals = totals;
        figures.mem = MemStats {
            entries: 12,
            used_bytes: 100_000,
            page_bytes: 81_920,
            stored_page_bytes: 40_960,
            reserved_bytes: 8192,
            waiting_bytes: 4096,
            limit_bytes: 1 << 20,
            stores: 20,
            evictions: 8,
        };
        let stats = SchemeStats {
            objects: 30,
            used_bytes: 1 << 20,
            capacity_bytes: 1 << 22,
            write_bytes: 1300,
            object_bytes: 1000,
            read_ops: 7,
            shed: 3,
            ..SchemeStats::default()
        };
        let dir = |index, scheme| DirFigures {
            index,
            scheme,
            path: "/a \"b\"\\c\nd".into(),
            load: 500,
            stats,
        };
        figures.dirs = vec![dir(0, "ufs"), dir(1, "ufs")];
        figures.rules = crate::rules::for_tests();
        figures.generation = 3;
        figures.failed_reconfigurations = 1;
        figures
    }
}
