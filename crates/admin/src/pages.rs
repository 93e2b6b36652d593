//! The pages and the functions that make them.

use std::fmt::Write;
use std::sync::{Arc, Weak};

use humboldt_base::clock::UnixMillis;
use humboldt_base::counters::Counter;
use humboldt_helpers::Kind;
use humboldt_proxy::cut::Cut;
use humboldt_proxy::shared::Shared;
use humboldt_proxy::{InternalPages, Page};
use humboldt_sys::process_stats::ProcessStats;
use parking_lot::Mutex;

use crate::figures::Figures;
use crate::history::History;
use crate::totals::Totals;
use crate::{
    averages, budgets, counters, delay, descriptors, helpers, info, memory, metrics, rules,
    service_times, storedir,
};

/// Media type of the manager's pages, as Squid sends it.
const PLAIN: &str = "text/plain;charset=utf-8";

/// One page.
pub(crate) struct AdminPage {
    /// Its name in the URL.
    pub name: &'static str,
    /// Its description in the menu.
    pub description: &'static str,
    content_type: &'static str,
    render: fn(&Figures) -> String,
}

const fn page(
    name: &'static str,
    description: &'static str,
    render: fn(&Figures) -> String,
) -> AdminPage {
    AdminPage { name, description, content_type: PLAIN, render }
}

const fn of_helpers(kind: Kind, render: fn(&Figures) -> String) -> AdminPage {
    page(kind.name(), kind.title(), render)
}

/// All pages. Where Squid has a page of this name, name and description are Squid's.
pub(crate) const PAGES: &[AdminPage] = &[
    page("index", "Cache Manager Interface", menu),
    page("menu", "Cache Manager Menu", menu),
    page("mem", "Memory Utilization", memory::render),
    page("info", "General Runtime Information", info::render),
    page("service_times", "Service Times (Percentiles)", service_times::render),
    page("filedescriptors", "Process Filedescriptor Allocation", descriptors::render),
    page("counters", "Traffic and Resource Counters", counters::render),
    page("5min", "5 Minute Average of Counters", averages::render_five),
    page("60min", "60 Minute Average of Counters", averages::render_sixty),
    page("storedir", "Store Directory Stats", storedir::render),
    of_helpers(Kind::BasicAuthenticator, |f| helpers::render(f, Kind::BasicAuthenticator)),
    of_helpers(Kind::DigestAuthenticator, |f| helpers::render(f, Kind::DigestAuthenticator)),
    of_helpers(Kind::NegotiateAuthenticator, |f| helpers::render(f, Kind::NegotiateAuthenticator)),
    of_helpers(Kind::NtlmAuthenticator, |f| helpers::render(f, Kind::NtlmAuthenticator)),
    of_helpers(Kind::ExternalAcl, |f| helpers::render(f, Kind::ExternalAcl)),
    of_helpers(Kind::Redirector, |f| helpers::render(f, Kind::Redirector)),
    of_helpers(Kind::StoreId, |f| helpers::render(f, Kind::StoreId)),
    page("budgets", "Budgets of Clients", budgets::render),
    page("delay", "Delay Pool Levels", delay::render),
    page("cuts", "Connections Cut Off", cuts),
    page("rules", "Decisions of Access Rules", rules::render),
    page("events", "Event Queue", events),
    page("openfd_objects", "Objects with Swapout files open", open_objects),
    page("active_requests", "Client-side Active Requests", active_requests),
    AdminPage {
        name: "metrics",
        description: "Metrics for Prometheus",
        content_type: metrics::CONTENT_TYPE,
        render: metrics::render,
    },
];

fn menu(figures: &Figures) -> String {
    let mut out = String::new();
    for page in PAGES {
        let access = if figures.closed_pages.contains(&page.name) { "disabled" } else { "public" };
        _ = writeln!(out, " {:<22}\t{:<32}\t{access}", page.name, page.description);
    }
    out
}

/// One line for each reason, also for those that did not occur.
fn cuts(figures: &Figures) -> String {
    let mut out = String::new();
    for cut in Cut::ALL {
        _ = writeln!(out, "{} = {}\t{}", cut.name(), figures.totals.cut(*cut), cut.help());
    }
    _ = writeln!(
        out,
        "\npanics = {}\t{}",
        figures.totals.count(Counter::Panics),
        Counter::Panics.help()
    );
    out
}

fn events(_: &Figures) -> String {
    "There is no queue of events: each core has its own timers, and they are not listed.\n"
        .to_owned()
}

fn open_objects(_: &Figures) -> String {
    "Objects are not listed by their open files; `filedescriptors` says how many files are open.\n"
        .to_owned()
}

fn active_requests(figures: &Figures) -> String {
    let (connections, fetches) = (figures.connections, figures.fetches);
    format!(
        "Requests are not listed. {connections} client connections are open, and {fetches} fetches can be joined.\n"
    )
}

/// The proxy's own pages. Cloning gives another handle: one for [`Shared::set_internal_pages`], one
/// to call [`AdminPages::tick`] with.
#[derive(Clone)]
pub struct AdminPages {
    // Weak, because `Shared` owns a handle.
    shared: Weak<Shared>,
    history: Arc<Mutex<History>>,
}

impl AdminPages {
    /// Pages about `shared`. Averages begin with the start of the program.
    pub fn new(shared: &Arc<Shared>) -> Self {
        let history = History::new(Totals::at_start(shared.started));
        Self { shared: Arc::downgrade(shared), history: Arc::new(Mutex::new(history)) }
    }

    /// Feeds the averages over 5 and 60 minutes. To be called every few seconds (at least once a
    /// minute) from a thread that serves no requests; most calls return at once, one in 30 s reads
    /// all counters.
    pub fn tick(&self, now: UnixMillis) {
        let Some(shared) = self.shared.upgrade() else { return };
        self.history.lock().tick(now, || Totals::gather(&shared, &ProcessStats::read(), now));
    }
}

impl InternalPages for AdminPages {
    fn page(&self, name: &str) -> Option<Page> {
        // The directory of the pages itself is their index.
        let name = if name.is_empty() { "index" } else { name };
        let page = PAGES.iter().find(|page| page.name == name)?;
        let shared = self.shared.upgrade()?;
        let names = PAGES.iter().map(|page| page.name);
        let figures = Figures::gather(&shared, &self.history.lock(), names);
        Some(Page { content_type: page.content_type, body: (page.render)(&figures).into_bytes() })
    }
}

#[cfg(test)]
mod tests {
    use humboldt_base::counters::Counter;
    use humboldt_net::dns::NameCache;
    use humboldt_proxy::snapshot::Snapshot;
    use humboldt_store::{Cache, CacheSettings, NoEvents};

    use super::*;

    fn shared() -> Arc<Shared> {
        let (config, diagnostics) = humboldt_conf::parse_str("test", "http_port 3128\n");
        assert!(!diagnostics.has_errors());
        let cache = Cache::new(CacheSettings::SMALL, 2, Vec::new(), Arc::new(NoEvents));
        let snapshot = Snapshot::compile(config).unwrap_or_else(|_| panic!("compiles"));
        Shared::new(snapshot, Vec::new(), cache, Arc::new(NameCache::new(10)), 2)
    }

    fn text(pages: &AdminPages, name: &str) -> String {
        String::from_utf8(pages.page(name).expect(name).body).expect("text")
    }

    #[test]
    fn every_page_of_the_menu_exists_and_no_other() {
        let shared = shared();
        let pages = AdminPages::new(&shared);
        let menu = text(&pages, "menu");
        assert!(
            menu.contains(" info                  \tGeneral Runtime Information     \tpublic\n"),
            "{menu}"
        );
        for line in menu.lines() {
            let name = line.split('\t').next().expect("a column").trim();
            let page = pages.page(name).expect(name);
            assert!(page.body.ends_with(b"\n") && page.content_type.starts_with("text/plain"));
        }
        assert_eq!(text(&pages, ""), menu);
        assert!(pages.page("nosuch").is_none() && pages.page("INFO").is_none());
    }

    #[test]
    fn pages_show_what_the_cores_count_and_averages_what_was_sampled() {
        let shared = shared();
        let pages = AdminPages::new(&shared);
        shared.set_internal_pages(Box::new(pages.clone()));
        shared.counters(0).add(Counter::ClientRequests, 40);
        shared.counters(1).add(Counter::ClientHits, 10);
        assert!(
            text(&pages, "counters")
                .contains("\nclient_http.requests = 40\nclient_http.hits = 10\n")
        );
        assert!(
            text(&pages, "info")
                .contains("\tHits as % of all requests:\t5min: 25.0%, 60min: 25.0%\n")
        );
        assert!(text(&pages, "metrics").contains("\nhumboldt_client_http_requests_total 40\n"));
        // A sample of the far past: from it on, all requests are hits.
        pages.history.lock().tick(UnixMillis(0), || {
            Totals::gather(&shared, &ProcessStats::default(), UnixMillis(0))
        });
        shared.counters(0).add(Counter::ClientRequests, 5);
        shared.counters(0).add(Counter::ClientHits, 5);
        assert!(
            text(&pages, "info")
                .contains("\tHits as % of all requests:\t5min: 100.0%, 60min: 100.0%\n")
        );
    }

    #[test]
    fn a_tick_takes_a_sample_when_it_is_due() {
        let shared = shared();
        let pages = AdminPages::new(&shared);
        shared.counters(0).add(Counter::ClientRequests, 40);
        let later = UnixMillis(shared.started.0 + 30_000);
        pages.tick(later);
        let history = pages.history.lock();
        let sample = history.before(UnixMillis(later.0 + 400_000), 5);
        assert_eq!((sample.at, sample.count(Counter::ClientRequests)), (later, 40));
    }

    #[test]
    fn pages_do_not_keep_what_they_are_about_alive() {
        let shared = shared();
        let pages = AdminPages::new(&shared);
        shared.set_internal_pages(Box::new(pages.clone()));
        drop(shared);
        pages.tick(UnixMillis::now());
        assert!(pages.page("info").is_none());
    }
}
