//! The running service: cores, signals, reconfiguration, the end.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use humboldt_admin::AdminPages;
use humboldt_base::clock::UnixMillis;
use humboldt_base::vital::{self, Vital};
use humboldt_conf::HttpPort;
use humboldt_logs::LogService;
use humboldt_logs::cache_log::{CacheLog, DebugLevel};
use humboldt_net::listener::Listener;
use humboldt_proxy::core::Core;
use humboldt_proxy::serve_connection;
use humboldt_proxy::shared::Shared;
use humboldt_runtime::broadcast::{Broadcast, Notice, Subscription};
use humboldt_runtime::cores::{self, CoreError, CoreId, Cores};
use humboldt_stores::Stores;
use humboldt_sys::{give_back, signal_mask};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::cli::Cli;
use crate::configuration::{Loaded, Source, debug_level};
use crate::control::{Control, End, Signals};
use crate::disks::{self, Reconfiguration};
use crate::error::StartError;
use crate::log_files::{self, StoreLog};
use crate::ports::{CorePort, Place, Ports};
use crate::query_port::QueryPort;
use crate::reload::Reload;

/// Time between two looks for free descriptors, on a core that accepts nothing for want of them.
const HOLD_BACK: Duration = Duration::from_millis(20);

/// Time between two searches of a core for idle server connections to close.
const POOL_SWEEP: Duration = Duration::from_secs(5);

/// Time between two rounds of the cache directories' upkeep.
const MAINTENANCE: Duration = Duration::from_secs(1);

/// Time between two checks of the control thread for cores that ended unexpectedly; it also feeds
/// the averages.
const WATCH: Duration = Duration::from_secs(1);

/// The memory that only the start needed is given back at each of the first looks: the cores may
/// still begin during the first.
const START_LOOKS: u32 = 2;

/// Looks behind a reconfiguration at which free memory is given back. Requests hold the old
/// configuration for a while, and the allocator keeps what became free for ten seconds.
const RELOAD_LOOKS: u32 = 15;

/// How often a core whose own connections have ended looks whether those of the others have.
const OTHERS_STEP: Duration = Duration::from_millis(20);

/// How long logs may take to be written at the end.
const LOG_FLUSH_MAX: Duration = Duration::from_secs(5);

/// Everything that the service consists of.
pub(crate) struct Service {
    /// The command line.
    pub cli: Cli,
    /// The source of the configuration.
    pub source: Source,
    /// The data that cores share.
    pub shared: Arc<Shared>,
    /// Open ports.
    pub ports: Arc<Ports>,
    /// Open cache directories.
    pub stores: Arc<Mutex<Stores>>,
    /// store.log.
    pub store_log: Arc<StoreLog>,
    /// The log thread.
    pub logs: LogService,
    /// cache.log.
    pub cache_log: CacheLog,
    /// The manager pages, for their averages.
    pub admin: AdminPages,
}

/// Runs until a signal ends it.
pub(crate) fn run(mut service: Service, mut control: Control) -> Result<(), StartError> {
    let broadcast = Broadcast::new();
    let ended = match control.wait(disks::indexes_read(&service.shared)) {
        Err(end) => {
            tracing::info!("Shutting down before cache directories have been read");
            Ended { service: Ok(end.word()), cores: Ok(()) }
        }
        Ok(()) => serve(&mut service, &mut control, &broadcast)
            .inspect_err(|_| service.shared.helpers.end())?,
    };
    service.shared.helpers.end();
    let grace = service.shared.snapshot().config.shutdown_lifetime;
    disks::close(&service.shared.cache, grace);
    end_logs(&service.logs, &service.cache_log, &ended.service);
    ended.service?;
    ended.cores.map_err(StartError::from)
}

/// The last word.
pub(crate) fn end_logs(
    logs: &LogService,
    cache_log: &CacheLog,
    ended: &Result<&'static str, StartError>,
) {
    match ended {
        Ok(why) => tracing::info!("Humboldt ends: {why}"),
        Err(error) => tracing::error!("Humboldt ends: {error}"),
    }
    logs.flush(LOG_FLUSH_MAX);
    cache_log.attach(None, None);
}

/// The end of the service and its cores.
struct Ended {
    /// The reason, where there was one in order.
    service: Result<&'static str, StartError>,
    cores: Result<(), CoreError>,
}

/// Serves until a signal ends it.
fn serve(
    service: &mut Service,
    control: &mut Control,
    broadcast: &Broadcast,
) -> Result<Ended, StartError> {
    let Control { runtime, signals } = control;
    let cores = start_cores(service, broadcast)?;
    let controlled = || runtime.block_on(service.control(signals, broadcast, &cores));
    let ended = catch_unwind(AssertUnwindSafe(controlled)).unwrap_or_else(|_| {
        broadcast.send(Notice::Shutdown(Duration::ZERO));
        Err(StartError::Vital("the control thread"))
    });
    Ok(Ended { service: ended, cores: cores.join() })
}

fn start_cores(service: &Service, broadcast: &Broadcast) -> Result<Cores, StartError> {
    let (shared, ports, broadcast) =
        (Arc::clone(&service.shared), Arc::clone(&service.ports), broadcast.clone());
    let count = shared.cores();
    let main = move |id: CoreId| {
        let (shared, ports, subscription) =
            (Arc::clone(&shared), Arc::clone(&ports), broadcast.subscribe());
        core_main(id, shared, ports, subscription)
    };
    cores::spawn_cores(count, main).map_err(StartError::from)
}

impl Service {
    /// Obeys signals until one of them ends the service; returns the reason.
    async fn control(
        &mut self,
        signals: &mut Signals,
        broadcast: &Broadcast,
        cores: &Cores,
    ) -> Result<&'static str, StartError> {
        signal_mask::unblock_control_signals();
        let mut reload = Reload::default();
        let mut directories = Reconfiguration::default();
        let mut watch = tokio::time::interval(WATCH);
        let mut start_looks = START_LOOKS;
        let mut reload_looks = 0;
        loop {
            tokio::select! {
                _ = signals.hup.recv() => reload.begin(&self.source, &self.cli, self.shared.snapshot()),
                loaded = reload.ended() => {
                    if let Some(loaded) = loaded {
                        self.reconfigure(loaded, broadcast, &mut directories).await;
                    }
                    if reload.take_due() {
                        reload.begin(&self.source, &self.cli, self.shared.snapshot());
                    }
                }
                is_done = directories.ended() => {
                    self.reconfigured(is_done, &mut directories);
                    reload_looks = RELOAD_LOOKS;
                }
                _ = signals.usr1.recv() => self.rotate(),
                _ = signals.usr2.recv() => self.toggle_debug(),
                _ = signals.term.recv() => return Ok(self.end(End::Ordered, broadcast, signals).await),
                _ = signals.int.recv() => return Ok(self.end(End::AtOnce, broadcast, signals).await),
                _ = watch.tick() => {
                    if start_looks > 0 {
                        start_looks -= 1;
                        forget_start();
                    } else if reload_looks > 0 {
                        reload_looks -= 1;
                        forget_reload(reload_looks);
                    }
                    self.admin.tick(UnixMillis::now());
                    disks::end_leaving(&self.stores, &self.shared);
                    if let Some(what) = vital::failed() {
                        tracing::error!("{what} has failed: shutting down");
                        self.end(End::Ordered, broadcast, signals).await;
                        return Err(StartError::Vital(what));
                    }
                    if cores.any_finished() {
                        tracing::error!("a core has ended unexpectedly: shutting down");
                        broadcast.send(Notice::Shutdown(Duration::ZERO));
                        return Ok("a core failed");
                    }
                }
            }
        }
    }

    /// Ends the cores; returns the reason.
    async fn end(&self, end: End, broadcast: &Broadcast, signals: &mut Signals) -> &'static str {
        self.ports.close();
        let End::Ordered = end else {
            broadcast.send(Notice::Shutdown(Duration::ZERO));
            return end.word();
        };
        let grace = self.shared.snapshot().config.shutdown_lifetime;
        tracing::info!("Shutting down: waiting up to {} s for open requests", grace.as_secs());
        broadcast.send(Notice::Shutdown(grace));
        tokio::select! {
            () = broadcast.settled() => {}
            _ = signals.int.recv() => broadcast.send(Notice::Shutdown(Duration::ZERO)),
            _ = signals.term.recv() => broadcast.send(Notice::Shutdown(Duration::ZERO)),
        }
        end.word()
    }

    /// Takes over a configuration that has been read again. If it has errors, the old one stays in
    /// force. All of it is in force at once, except the parts that may wait for a disk: the
    /// directories follow ([`Service::reconfigured`]).
    async fn reconfigure(
        &mut self,
        loaded: Result<Loaded, StartError>,
        broadcast: &Broadcast,
        directories: &mut Reconfiguration,
    ) {
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                self.shared.reconfiguration_failed();
                tracing::error!("not reconfigured, the old configuration stays");
                each_line(&error.to_string(), |line| tracing::error!("{line}"));
                return;
            }
        };
        let snapshot = loaded.snapshot;
        if let Err(error) = snapshot.helpers.start(&self.shared.helpers) {
            self.shared.reconfiguration_failed();
            tracing::error!("not reconfigured, there is no thread for helper programs: {error}");
            return;
        }
        each_line(&loaded.report, |line| tracing::warn!("{line}"));
        let config = &snapshot.config;
        self.cache_log.set_level(debug_level(&self.cli, config));
        let cores = self.shared.cores();
        self.store_log.reopen(&self.logs, config, cores);
        let access_logs = log_files::open_access_logs(&self.logs, &snapshot, cores);
        self.ports.reconfigure(config);
        self.shared.replace(Arc::clone(&snapshot), access_logs);
        broadcast.send(Notice::Reconfigure);
        broadcast.settled().await;
        directories.begin(snapshot, &self.stores, &self.shared);
    }

    /// The directories have been reconfigured too, or have failed to.
    fn reconfigured(&self, is_done: bool, directories: &mut Reconfiguration) {
        if is_done {
            let generation = self.shared.snapshot().generation();
            let ports = self.ports.describe().join(" ");
            tracing::info!("Reconfigured, generation {generation}; listening on {ports}");
        }
        if let Some(snapshot) = directories.take_next() {
            directories.begin(snapshot, &self.stores, &self.shared);
        }
    }

    fn rotate(&self) {
        let keep = self.shared.snapshot().config.logfile_rotate;
        self.logs.rotate(keep);
        tracing::info!("Logs rotated, {keep} old ones kept");
    }

    fn toggle_debug(&self) {
        let usual = debug_level(&self.cli, &self.shared.snapshot().config);
        let next = if self.cache_log.level() == usual { DebugLevel::DETAILED } else { usual };
        self.cache_log.set_level(next);
        tracing::info!("Debug level changed: {next:?}");
    }
}

/// Gives the memory back that only the start needed.
fn forget_start() {
    give_back::give_free_pages_back();
    forget_program_pages();
}

/// Gives the memory back that only a reconfiguration needed, and at the last look the parser's part
/// of the program.
fn forget_reload(looks_left: u32) {
    give_back::give_old_pages_back();
    if looks_left == 0 {
        forget_program_pages();
    }
}

fn forget_program_pages() {
    if let Err(error) = give_back::forget_program_pages() {
        tracing::debug!("pages of the program stay in memory: {error}");
    }
}

/// Messages of several lines become as many lines of the log.
fn each_line(text: &str, log: impl Fn(&str)) {
    text.lines().filter(|line| !line.trim().is_empty()).for_each(log);
}

/// A port on which one core listens: the settings, which a reconfiguration may change, and the
/// accepting task.
struct Listening {
    port: Rc<RefCell<Arc<HttpPort>>>,
    task: JoinHandle<()>,
}

/// The life of one core.
async fn core_main(
    id: CoreId,
    shared: Arc<Shared>,
    ports: Arc<Ports>,
    mut subscription: Subscription,
) {
    let core = Core::new(id.0, shared);
    let mut listening = HashMap::new();
    listen(&core, ports.of_core(id.0), &mut listening);
    let mut queries = QueryPort::default();
    queries.open(&core).await;
    let making_room = tokio::task::spawn_local(make_room(Rc::clone(&core)));
    let sweeper = tokio::task::spawn_local(sweep_pool(Rc::clone(&core)));
    let maintenance = (id.0 == 0).then(|| tokio::task::spawn_local(maintain(Rc::clone(&core))));
    let grace = loop {
        match subscription.next().await {
            Notice::Reconfigure => {
                core.reconfigure();
                listen(&core, ports.of_core(id.0), &mut listening);
                queries.open(&core).await;
            }
            Notice::Shutdown(grace) => break grace,
        }
    };
    listening.values().for_each(|listening| listening.task.abort());
    drop(listening);
    drain(&core, &mut subscription, grace).await;
    sweeper.abort();
    making_room.abort();
    maintenance.inspect(JoinHandle::abort);
}

/// Waits for open requests, at most `grace`; a second order to shut down shortens that.
async fn drain(core: &Rc<Core>, subscription: &mut Subscription, grace: Duration) {
    core.io.start_draining();
    let drained = async {
        while core.connections() > 0 {
            core.connection_ended.notified().await;
        }
        // Clients of other cores may be reading this core's fetches.
        while core.shared.connections() > 0 {
            tokio::time::sleep(OTHERS_STEP).await;
        }
        core.shared.cache.settled().await;
    };
    let hurried = async {
        loop {
            if let Notice::Shutdown(Duration::ZERO) = subscription.next().await {
                return;
            }
        }
    };
    if grace > Duration::ZERO {
        tokio::select! {
            () = drained => {}
            () = hurried => {}
            () = tokio::time::sleep(grace) => {
                let left = core.connections();
                if left > 0 {
                    tracing::info!("{left} connections cut off");
                }
            }
        }
    }
}

/// Listens on new ports, takes over changed settings, stops listening on removed ports.
fn listen(core: &Rc<Core>, ports: Vec<CorePort>, listening: &mut HashMap<Place, Listening>) {
    listening.retain(|place, known| {
        let keep = ports.iter().any(|port| port.place == *place);
        if !keep {
            known.task.abort();
        }
        keep
    });
    for CorePort { place, port, socket } in ports {
        if let Some(known) = listening.get(&place) {
            known.port.replace(port);
        } else if let Some(socket) = socket {
            match Listener::new(socket) {
                Ok(listener) => {
                    let port = Rc::new(RefCell::new(port));
                    let task = tokio::task::spawn_local(accept(
                        Rc::clone(core),
                        listener,
                        Rc::clone(&port),
                    ));
                    listening.insert(place, Listening { port, task });
                }
                Err(error) => tracing::error!("cannot listen on port {place}: {error}"),
            }
        }
    }
}

async fn accept(core: Rc<Core>, mut listener: Listener, port: Rc<RefCell<Arc<HttpPort>>>) {
    let _vital = Vital::new("a task that accepts connections");
    loop {
        let (stream, client) = listener.accept_or(|| core.make_room()).await;
        let number = u64::try_from(stream.as_raw_fd()).unwrap_or(0);
        core.note_descriptor(number);
        let port = Arc::clone(&port.borrow());
        tokio::task::spawn_local(serve_connection(Rc::clone(&core), stream, client, port));
        if core.is_out_of_room(Some(number)) {
            hold_back(&core, &listener).await;
        }
    }
}

/// Leaves new connections in the kernel's backlog while only those descriptors are free that
/// requests need to get on.
async fn hold_back(core: &Core, listener: &Listener) {
    while core.is_out_of_room(listener.next_descriptor()) {
        core.make_room();
        tokio::time::sleep(HOLD_BACK).await;
    }
}

/// Makes room when a core needs some that has nothing to close itself.
async fn make_room(core: Rc<Core>) {
    loop {
        core.shared.room_is_needed(core.id).await;
        core.make_own_room();
    }
}

async fn sweep_pool(core: Rc<Core>) {
    let mut interval = tokio::time::interval(POOL_SWEEP);
    let _vital = Vital::new("the task that closes idle connections to servers");
    loop {
        interval.tick().await;
        core.pool.sweep();
        core.io.close_spare_pipes();
    }
}

async fn maintain(core: Rc<Core>) {
    let mut interval = tokio::time::interval(MAINTENANCE);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let shared = Arc::clone(&core.shared);
        // A failure of one directory is reported by its panic, and tried again. A directory that
        // hangs does not stop the others.
        drop(tokio::task::spawn_local(async move { shared.cache.maintain().await }));
    }
}
