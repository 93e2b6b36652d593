//! Work on cache directories that may wait for a disk, each on a thread of its own: the control
//! thread waits for none.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use humboldt_conf::Config;
use humboldt_net::dns::NameCache;
use humboldt_proxy::shared::Shared;
use humboldt_proxy::snapshot::Snapshot;
use humboldt_store::Cache;
use humboldt_store::dirs::Dir;
use humboldt_stores::Stores;
use tokio::sync::{Mutex, oneshot};
use tokio::time::Instant;

use crate::control::{Control, End};
use crate::error::StartError;
use crate::log_files::StoreLog;

/// How long the first request waits for the indexes of the cache directories.
const INDEXES_WAIT_MAX: Duration = Duration::from_secs(2);

/// Time between two looks at whether they have been read.
const INDEXES_STEP: Duration = Duration::from_millis(5);

/// A reconfiguration of the directories that takes longer is told of.
const RECONFIGURE_TOLD: Duration = Duration::from_secs(5);

/// Least time that cache directories have to be closed, however short `shutdown_lifetime` is.
const CLOSE_MIN: Duration = Duration::from_secs(30);

/// The things opened from disks at the start.
pub(crate) struct Opened {
    /// Open cache directories.
    pub stores: Stores,
    /// The cache over them.
    pub cache: Arc<Cache>,
    /// Names, with those of the hosts file.
    pub names: Arc<NameCache>,
}

/// Opens stores, names and purges from disks at the start, for this many cores. Signals that end
/// the program are obeyed meanwhile: parts that have not been opened within `shutdown_lifetime` are
/// left as they are then. Returns the order to end instead of the opened things, if there was one.
pub(crate) fn open(
    control: &mut Control,
    snapshot: &Arc<Snapshot>,
    store_log: &Arc<StoreLog>,
    cores: usize,
) -> Result<Result<Opened, End>, StartError> {
    let (done, mut is_done) = oneshot::channel();
    let (grace, snapshot, store_log) =
        (snapshot.config.shutdown_lifetime, Arc::clone(snapshot), Arc::clone(store_log));
    let work = move || {
        let _ = done.send(open_now(&snapshot.config, store_log, cores)); // it may be too late
    };
    std::thread::Builder::new()
        .name("open".into())
        .spawn(work)
        .map_err(StartError::system("start a thread that opens cache directories"))?;
    let end = match control.wait(&mut is_done) {
        Ok(Ok(opened)) => return Ok(Ok(opened)),
        Ok(Err(_)) => return Err(StartError::Vital("the thread that opens cache directories")),
        Err(end) => end,
    };
    tracing::info!("Shutting down before cache directories have been opened");
    if let End::Ordered = end
        && let Ok(Ok(Ok(opened))) =
            control.wait(async { tokio::time::timeout(grace, is_done).await })
    {
        close(&opened.cache, grace);
    }
    Ok(Err(end))
}

fn open_now(config: &Config, store_log: Arc<StoreLog>, cores: usize) -> Opened {
    let mut stores = Stores::default();
    let schemes = stores.open(config);
    let cache = Cache::new(humboldt_stores::settings(config), cores, schemes, store_log);
    stores.tell_missing(config, &cache);
    stores.keep_purges(config, &cache);
    let names = Arc::new(NameCache::new(config.ipcache_size as usize));
    load_hosts(&names, config);
    Opened { stores, cache, names }
}

/// Resolves when the directories have read their indexes. After a clean stop this takes
/// milliseconds, so that the first request can be a hit. After [`INDEXES_WAIT_MAX`] the rest is
/// read while requests are served.
pub(crate) async fn indexes_read(shared: &Arc<Shared>) {
    let (done, is_done) = oneshot::channel();
    let shared = Arc::clone(shared);
    let begin = Instant::now();
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let read = async {
            tokio::time::timeout_at(begin + INDEXES_WAIT_MAX, read_indexes(&shared)).await
        };
        if runtime.is_ok_and(|runtime| runtime.block_on(read).is_ok()) {
            let _ = done.send(()); // nobody may wait any more
        }
    };
    let thread = std::thread::Builder::new().name("indexes".into()).spawn(work);
    let read = tokio::time::timeout_at(begin + INDEXES_WAIT_MAX, is_done).await;
    if thread.is_err() || !matches!(read, Ok(Ok(()))) {
        tracing::info!("Serving while cache directories are still being read");
    }
}

async fn read_indexes(shared: &Shared) {
    let mut step = tokio::time::interval(INDEXES_STEP);
    loop {
        // it begins the reading, and does a part of it with some schemes
        shared.cache.maintain().await;
        let is_read = |dir: &Arc<Dir>| dir.scheme.stats().rebuild_percent == 100;
        if shared.cache.dirs().iter().all(is_read) {
            return shared.cache.maintain().await; // what is kept beside the scheme
        }
        step.tick().await;
    }
}

/// Closes the cache directories: one whose disk hangs does not keep the process. `grace` is
/// `shutdown_lifetime`.
pub(crate) fn close(cache: &Arc<Cache>, grace: Duration) {
    let limit = grace.max(CLOSE_MIN);
    let (done, is_done) = std::sync::mpsc::sync_channel(1);
    let to_close = Arc::clone(cache);
    let closing = std::thread::Builder::new().name("close".into()).spawn(move || {
        if let Err(error) = wait_on_this_thread(humboldt_stores::prepare_close(&to_close)) {
            tracing::error!("what was replaced may be found again: {error}");
        }
        to_close.close();
        let _ = done.send(()); // nobody may wait any more
    });
    match closing {
        Ok(_) if is_done.recv_timeout(limit).is_err() => {
            tracing::error!(
                "cache directories are not closed within {} s: they are left as they are",
                limit.as_secs()
            );
        }
        Ok(_) => {}
        Err(_) => cache.close(),
    }
}

/// Waits on a thread that may block.
///
/// # Errors
/// No descriptors for an event loop; nothing was done.
fn wait_on_this_thread<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(work))
}

/// Closes directories whose last readers have ended, and opens them as they are configured now.
pub(crate) fn end_leaving(stores: &Arc<Mutex<Stores>>, shared: &Arc<Shared>) {
    // The holder of the lock does it itself, or another round does.
    if !stores.try_lock().is_ok_and(|stores| stores.has_left()) {
        return;
    }
    let (stores, shared) = (Arc::clone(stores), Arc::clone(shared));
    let work = move || {
        let ended = async { stores.lock().await.end_leaving(&shared.cache).await };
        if let Err(error) = wait_on_this_thread(ended) {
            tracing::error!("cache directories are not closed yet: {error}");
        }
    };
    if let Err(error) = std::thread::Builder::new().name("reconfigure".into()).spawn(work) {
        tracing::error!("cache directories are not closed: no thread for that: {error}");
    }
}

/// The reconfiguration of the directories, behind that of everything else.
#[derive(Default)]
pub(crate) struct Reconfiguration {
    running: Option<Running>,
    /// The newest configuration, for when the present work has ended: one thread at a time.
    next: Option<Arc<Snapshot>>,
}

struct Running {
    is_done: oneshot::Receiver<()>,
    /// When it is told that it takes long, if it has not been.
    told_at: Option<Instant>,
}

impl Reconfiguration {
    /// Begins, or sees to it that it begins when the one before has ended.
    pub(crate) fn begin(
        &mut self,
        snapshot: Arc<Snapshot>,
        stores: &Arc<Mutex<Stores>>,
        shared: &Arc<Shared>,
    ) {
        if self.running.is_some() {
            self.next = Some(snapshot);
            return;
        }
        let (done, is_done) = oneshot::channel();
        let (stores, shared) = (Arc::clone(stores), Arc::clone(shared));
        let work = move || {
            let reconfigured = wait_on_this_thread(async {
                stores.lock().await.reconfigure(&snapshot.config, &shared.cache).await;
            });
            load_hosts(&shared.names, &snapshot.config);
            match reconfigured {
                Ok(()) => _ = done.send(()), // the service may be ending
                Err(error) => tracing::error!("cache directories: {error}"),
            }
        };
        if let Err(error) = std::thread::Builder::new().name("reconfigure".into()).spawn(work) {
            tracing::error!("cache directories are not reconfigured: no thread for that: {error}");
        }
        self.running = Some(Running { is_done, told_at: Some(Instant::now() + RECONFIGURE_TOLD) });
    }

    /// Resolves when it has ended, with whether it was done. While a disk hangs, that is told once.
    /// May be dropped and called again; pending while there is nothing to wait for.
    pub(crate) async fn ended(&mut self) -> bool {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        if let Some(told_at) = running.told_at {
            match tokio::time::timeout_at(told_at, &mut running.is_done).await {
                Ok(outcome) => return self.note(outcome.is_ok()),
                Err(_) => tracing::error!(
                    "cache directories are not reconfigured within {} s, as when a disk does not \
                     answer: everything else of the new configuration is in force, and the rest \
                     follows as soon as that is possible",
                    RECONFIGURE_TOLD.as_secs()
                ),
            }
            running.told_at = None;
        }
        let outcome = (&mut running.is_done).await;
        self.note(outcome.is_ok())
    }

    fn note(&mut self, is_done: bool) -> bool {
        self.running = None;
        if !is_done {
            tracing::error!(
                "cache directories are not reconfigured: the thread for that has failed; the next \
                 reconfiguration tries again"
            );
        }
        is_done
    }

    /// The configuration that came meanwhile.
    pub(crate) fn take_next(&mut self) -> Option<Arc<Snapshot>> {
        self.next.take()
    }
}

/// Reads the hosts file; without it names come from the name servers alone.
fn load_hosts(names: &NameCache, config: &Config) {
    let path = config.hosts_file.as_deref().map(Path::new);
    if let Err(error) = names.load_hosts(path, config.append_domain.as_deref()) {
        tracing::warn!("hosts_file {}: {error}", config.hosts_file.as_deref().unwrap_or("none"));
    }
}
