//! One life of the proxy: from its start to its end or to a crash.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use humboldt_base::counters::Counter;
use humboldt_conf::HttpPort;
use humboldt_exchange::memory;
use humboldt_logs::access::{AccessFormat, LogFormat};
use humboldt_logs::{Destination, LineSink, LogService, SinkOptions};
use humboldt_net::connect::ConnectError;
use humboldt_net::dns::{DnsError, NameCache};
use humboldt_proxy::AccessLog;
use humboldt_proxy::core::Core;
use humboldt_proxy::cut::Cut;
use humboldt_proxy::shared::Shared;
use humboldt_proxy::snapshot::Snapshot;
use humboldt_schemes::simulated::Disk;
use humboldt_store::{Cache, NoEvents};
use humboldt_stores::Stores;
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinHandle;

use crate::bump::{self, Tunnels};
use crate::chance::Chance;
use crate::client;
use crate::operator;
use crate::origin;
use crate::plan::Plan;
use crate::site::Site;
use crate::stores::{self, Dirs};
use crate::trace;

/// The network that rules deny.
const DENIED: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

/// Time after which nothing of the last requests is left.
const QUIET: Duration = Duration::from_secs(4 * 3600);

/// Everything that one life consists of.
pub(crate) struct World {
    pub(crate) plan: Rc<Plan>,
    pub(crate) site: Rc<Site>,
    pub(crate) life: u64,
    pub(crate) cores: Vec<Rc<Core>>,
    pub(crate) port: Arc<HttpPort>,
    pub(crate) shared: Arc<Shared>,
    /// Servers that are being asked.
    asking: Rc<Cell<usize>>,
    chance: Rc<RefCell<Chance>>,
    pub(crate) disk: Arc<Disk>,
    /// Those that are configured.
    pub(crate) dirs: RefCell<Dirs>,
    /// Those that are open.
    pub(crate) stores: Mutex<Stores>,
    /// Where the directories are.
    pub(crate) root: PathBuf,
    /// Tunnels, and the servers at their ends.
    pub(crate) tunnels: Option<Rc<Tunnels>>,
    crash: Rc<Notify>,
    logs: LogService,
    sink: Arc<LineSink>,
}

/// How a life ends.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    InOrder,
    InACrash,
}

/// The number of requests that began, and whose line in access.log must be there.
pub(crate) struct Log<'a> {
    pub(crate) folder: &'a Path,
}

impl World {
    pub(crate) fn new(
        plan: &Rc<Plan>,
        site: &Rc<Site>,
        life: u64,
        log: &Log<'_>,
        disk: &Arc<Disk>,
    ) -> Rc<Self> {
        let dirs = stores::all(plan);
        let tunnels = plan.bump.as_ref();
        let tunnels = tunnels.map(|bump| Tunnels::new(plan.seed, bump, life, log.folder));
        let snapshot = configure(plan, tunnels.as_deref(), plan.cache_mem, &dirs, log.folder);
        let config = &snapshot.config;
        let logs = LogService::start().expect("a log thread");
        let options = SinkOptions { cores: plan.cores, ..SinkOptions::default() };
        let destination = Destination::File(log.folder.join("access.log"));
        let sink = logs.open(destination, options).expect("a log");
        let mut stores = Stores::default();
        let open = stores::open(&mut stores, config, disk);
        let settings = humboldt_stores::settings(config);
        let cache = Cache::new(settings, plan.cores, open, Arc::new(NoEvents));
        stores.keep_purges(config, &cache);
        let port = Arc::new(snapshot.config.http_port[0].clone());
        let names = Arc::new(NameCache::new(10));
        let shared = Shared::new(snapshot, vec![access_log(&sink)], cache, names, plan.cores);
        let cores = (0..plan.cores).map(|id| Core::new(id, Arc::clone(&shared))).collect();
        let chance = Rc::new(RefCell::new(Chance::new(plan.seed, 100 + life)));
        let asking = Rc::new(Cell::new(0));
        let (plan, site) = (Rc::clone(plan), Rc::clone(site));
        let (disk, crash) = (Arc::clone(disk), Rc::default());
        let world = Rc::new(Self {
            plan,
            site,
            life,
            cores,
            port,
            shared,
            asking,
            chance,
            disk,
            dirs: dirs.into(),
            stores: stores.into(),
            root: log.folder.to_owned(),
            tunnels,
            crash,
            logs,
            sink,
        });
        world.cores.iter().for_each(|core| world.connect(core));
        world
    }

    /// Gives a core its network and its names.
    fn connect(&self, core: &Core) {
        let (plan, site) = (Rc::clone(&self.plan), Rc::clone(&self.site));
        let (chance, asking) = (Rc::clone(&self.chance), Rc::clone(&self.asking));
        core.use_network(Box::new(move |peer| {
            if peer.ip() == DENIED {
                site.wrong(format!("connected to {peer}, which the rules deny"));
            }
            let mut chance = chance.borrow_mut();
            if chance.per_mille(plan.server_fails_per_mille / 4) {
                site.host_is_in_trouble(&host_at(peer.ip()));
                return Err(ConnectError::Refused(peer));
            }
            let own = Chance::new(chance.below(u64::MAX), 3);
            let (exchange, server) = memory::server(peer);
            let serving = origin::serve(Rc::clone(&site), Rc::clone(&plan), peer, server, own);
            let asking = Rc::clone(&asking);
            asking.set(asking.get() + 1);
            tokio::task::spawn_local(async move {
                serving.await;
                asking.set(asking.get() - 1);
            });
            Ok(exchange)
        }));
        if let Some(tunnels) = &self.tunnels {
            tunnels.connect(core, &self.site, &self.plan);
        }
        let (plan, site) = (Rc::clone(&self.plan), Rc::clone(&self.site));
        let (chance, tunnels) = (Rc::clone(&self.chance), self.tunnels.clone());
        core.use_names(Box::new(move |host| {
            let mut chance = chance.borrow_mut();
            let wait = chance.delay(plan.server_ms.min(2_000));
            let fails = chance.per_mille(plan.names_fail_per_mille);
            let is_bad = plan.egress && host == "h2.sim" && chance.per_mille(500);
            let number = host.as_bytes().get(1).map_or(0, |digit| digit - b'0');
            let (site, host, tunnels) = (Rc::clone(&site), host.to_owned(), tunnels.clone());
            Box::pin(async move {
                tokio::time::sleep(wait).await;
                if fails {
                    site.host_is_in_trouble(&host);
                    if let Some(tunnels) = &tunnels {
                        tunnels.name_fails(&host);
                    }
                    return Err(DnsError::Timeout);
                }
                if let Some(ip) = tunnels.as_ref().and_then(|tunnels| tunnels.address_of(&host)) {
                    return Ok(Arc::from([IpAddr::V4(ip)]));
                }
                let good = IpAddr::V4(Ipv4Addr::new(192, 0, 2, number));
                Ok(Arc::from([if is_bad { DENIED } else { good }]))
            })
        }));
    }

    /// Puts another configuration into force, the directories behind everything else.
    pub(crate) async fn reload(&self, cache_mem: &str, dirs: Option<Dirs>) {
        if let Some(dirs) = dirs {
            self.dirs.replace(dirs);
        }
        if let Some(tunnels) = &self.tunnels {
            tunnels.change_rules();
        }
        let tunnels = self.tunnels.as_deref();
        let snapshot = configure(&self.plan, tunnels, cache_mem, &self.dirs.borrow(), &self.root);
        self.shared.replace(Arc::clone(&snapshot), vec![access_log(&self.sink)]);
        self.cores.iter().for_each(|core| core.reconfigure());
        stores::reconfigure(self, &snapshot.config).await;
    }

    /// Whether directories may fail.
    pub(crate) fn disks_fail(&self) -> bool {
        self.plan.disk_fails || self.disk.is_off() || self.plan.disk_ms > 100
    }

    /// Whether all directories of the plan are open. One that is away obeys nobody, and one that is
    /// leaving may be closed before it has obeyed.
    pub(crate) fn has_all_dirs(&self) -> bool {
        let open = self.stores.try_lock().map_or(0, |stores| stores.open_count());
        open == self.plan.dirs.len()
    }

    /// Waits a little for the power to fail, and ends the life in any case.
    pub(crate) async fn crash_soon(&self, chance: &mut Chance) {
        tokio::time::sleep(chance.delay(5_000)).await;
        self.disk.cut_power();
        self.crash.notify_one();
    }

    /// Serves all clients, and ends.
    pub(crate) async fn live(self: &Rc<Self>) -> Ends {
        trace::line(|| format!("life {}", self.life));
        let (disk, crash) = (Arc::clone(&self.disk), Rc::clone(&self.crash));
        tokio::task::spawn_local(stores::drive(disk, Rc::clone(&self.plan), self.life, crash));
        tokio::select! {
            biased;
            () = self.crash.notified() => Ends::InACrash,
            () = self.serve() => {
                // The power may have failed without anybody noticing.
                if self.disk.is_off() { Ends::InACrash } else { Ends::InOrder }
            }
        }
    }

    async fn serve(self: &Rc<Self>) {
        let helpers = [
            tokio::task::spawn_local(maintain(Arc::clone(&self.shared))),
            tokio::task::spawn_local(operator::run(Rc::clone(self))),
            tokio::task::spawn_local(stores::watch(Rc::clone(self))),
        ];
        let clients: Vec<JoinHandle<()>> = (0..self.plan.clients as u64)
            .map(|number| tokio::task::spawn_local(client::run(Rc::clone(self), number)))
            .collect();
        let tunnels = self.tunnels.iter().flat_map(|tunnels| {
            let count = self.plan.bump.as_ref().map_or(0, |bump| bump.clients);
            (0..count).map(|number| {
                let (world, tunnels) = (Rc::clone(self), Rc::clone(tunnels));
                tokio::task::spawn_local(bump::run(world, tunnels, number))
            })
        });
        let clients: Vec<JoinHandle<()>> = clients.into_iter().chain(tunnels).collect();
        for client in clients {
            if let Err(error) = client.await {
                self.site.wrong(format!("the simulation failed: {error}"));
            }
        }
        if !self.plan.stops_at_once {
            self.become_quiet().await;
        }
        helpers.iter().for_each(JoinHandle::abort);
        self.shared.cache.settled().await;
        humboldt_stores::prepare_close(&self.shared.cache).await;
        self.shared.cache.close();
    }

    /// Whatever was done for the clients ends with them.
    async fn become_quiet(&self) {
        if let Some(tunnels) = &self.tunnels {
            self.cores.iter().for_each(|core| _ = core.pool.clear());
            let quiet = async {
                while tunnels.check_end(&self.cores).is_err() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            };
            let is_late = tokio::time::timeout(QUIET, quiet).await.is_err();
            if let (true, Err(what)) = (is_late, tunnels.check_end(&self.cores)) {
                self.site.wrong(what);
            }
        }
        let cache = &self.shared.cache;
        let bytes = || cache.mem().in_flight_bytes();
        let is_quiet = || cache.in_flight().is_empty() && self.asking.get() == 0 && bytes() == 0;
        let quiet = async {
            while !is_quiet() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        if tokio::time::timeout(QUIET, quiet).await.is_err() {
            let (fetches, servers) = (cache.in_flight().len(), self.asking.get());
            self.site.wrong(format!(
                "left at the end: {fetches} fetches, {servers} servers asked, {} bytes in flight",
                bytes()
            ));
        }
        let used = cache.mem().used_bytes();
        if used > cache.mem().limit() {
            let limit = cache.mem().limit();
            self.site.wrong(format!("{used} bytes in memory, of {limit}"));
        }
    }

    /// Adds what the proxy itself has counted.
    pub(crate) fn count(&self) {
        let totals = &self.site.totals;
        let left = self.shared.total(Counter::ClientLeftFetch);
        totals.add("clients that left their fetch", left);
        totals.add("clients cut off as others waited", self.shared.times.cuts(Cut::HeldUp));
    }

    /// Every request has one line, whatever became of it.
    pub(crate) fn check_log(&self, log: &Log<'_>) {
        if !self.logs.flush(Duration::from_secs(60)) {
            return self.site.wrong("access.log is not written".into());
        }
        let text = std::fs::read_to_string(log.folder.join("access.log")).unwrap_or_default();
        let mut lines = BTreeMap::<u64, usize>::new();
        let mut told: Vec<&str> = text.lines().collect();
        told.sort_unstable();
        for line in told {
            trace::line(|| format!("log: {line}"));
            if let Some(Ok(id)) = line.split_whitespace().next().map(str::parse) {
                *lines.entry(id).or_default() += 1;
            }
        }
        for (id, count) in lines.iter().filter(|(_, count)| **count > 1) {
            self.site.wrong(format!("request {id} has {count} lines in access.log"));
        }
        for id in self.site.take_begun() {
            let count = lines.get(&id).copied().unwrap_or(0);
            if count == 0 {
                self.site.wrong(format!("request {id} has 0 lines in access.log"));
            }
        }
    }
}

/// The host that has this address.
fn host_at(address: IpAddr) -> String {
    let last = match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(_) => 0,
    };
    format!("h{last}.sim")
}

async fn maintain(shared: Arc<Shared>) {
    let mut interval = tokio::time::interval(Duration::from_secs(1));
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        shared.cache.maintain().await;
    }
}

/// A log with the number of each request, and how it ended.
fn access_log(sink: &Arc<LineSink>) -> AccessLog {
    let format =
        LogFormat::compile("%{X-Id}>h %Ss/%>Hs %err_detail %ssl::bump_mode").expect("a format");
    AccessLog {
        sink: Some(Arc::clone(sink)),
        format: AccessFormat::Template(format),
        condition: None,
        strip_query_terms: false,
    }
}

/// The configuration of a plan.
fn configure(
    plan: &Plan,
    tunnels: Option<&Tunnels>,
    cache_mem: &str,
    dirs: &Dirs,
    root: &Path,
) -> Arc<Snapshot> {
    let (port, rules) = match tunnels {
        Some(tunnels) => tunnels.lines(root),
        None => ("http_port 3128\n".to_owned(), String::new()),
    };
    let mut text = port + "visible_hostname proxy.sim\n" + &rules;
    text += &format!("cache_mem {cache_mem}\n");
    text += &format!("maximum_object_size_in_memory {}\n", plan.in_memory_max);
    text += "maximum_object_size 8 MB\n";
    text += &format!("purge_log {}\n", root.join("humboldt.purges").display());
    text += &stores::lines(dirs, root);
    text += if plan.collapsed { "collapsed_forwarding on\n" } else { "collapsed_forwarding off\n" };
    if plan.quick_abort {
        text += "quick_abort_min -1 KB\n";
    }
    text += "acl purge method PURGE\nacl denied dst 10.0.0.0/8\n";
    text += "acl staff src 198.51.100.0/24\nreply_header_access X-Secret deny !staff\n";
    text += "http_access allow purge\n";
    if plan.egress {
        text += "http_access deny denied\n";
    }
    text += "http_access allow all\n";
    let (config, diagnostics) = humboldt_conf::parse_str("simulated", &text);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    Snapshot::compile(config).unwrap_or_else(|_| panic!("compiles: {text}"))
}
