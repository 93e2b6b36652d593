//! Cache directories and settings of the store, from the configuration.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use humboldt_conf::{CacheDir, Config, Scheme as SchemeKind};
use humboldt_proxy::snapshot::Snapshot;
use humboldt_schemes::{self as schemes, DirOptions, OpenError};
use humboldt_store::dirs::DirConfig;
use humboldt_store::purges::PurgePlaces;
use humboldt_store::scheme::Scheme;
use humboldt_store::{Cache, CacheSettings};

use crate::error::StartError;

/// Time that directories have, before they are closed, to remove objects that were replaced while
/// their indexes were being read.
const PREPARE_CLOSE_MAX: Duration = Duration::from_secs(10);

/// Time that a reconfiguration waits for readers and writers of a directory that it closes. Slower
/// ones go on afterwards: the directory is closed when the last of them has ended.
const LAST_READERS_WAIT: Duration = Duration::from_secs(1);

/// Time between two looks at whether they have ended.
const LAST_READERS_STEP: Duration = Duration::from_millis(5);

/// Their time in all. Then the directory is closed, and readers that cannot go on without it are
/// cut off.
pub(crate) const LAST_READERS_MAX: Duration = Duration::from_secs(600);

/// Directories that are open, by path, so that a reconfiguration keeps them.
#[derive(Default)]
pub(crate) struct Stores {
    open: HashMap<PathBuf, Open>,
    leaving: Vec<Leaving>,
    /// The configuration of the last reconfiguration.
    wanted: Option<Arc<Snapshot>>,
}

/// A directory that is no longer configured in this way, while readers or writers use it.
struct Leaving {
    path: PathBuf,
    index: usize,
    open: Open,
    since: Instant,
}

impl Leaving {
    /// Whether it has owners other than the list here and the table of the cache.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.open.scheme) > 2
    }

    fn is_to_end(&self, now: Instant) -> bool {
        !self.is_in_use() || now.saturating_duration_since(self.since) >= LAST_READERS_MAX
    }
}

/// An open directory and its options.
struct Open {
    /// Position in the configuration with which it was opened.
    index: usize,
    options: DirOptions,
    scheme: Arc<dyn Scheme>,
}

impl Stores {
    /// Opens the directories of a configuration. One that cannot be opened is reported and left
    /// out: the service goes on with the others.
    pub(crate) fn open(&mut self, config: &Config) -> Vec<DirConfig> {
        humboldt_schemes::promise_memory(config.cache_mem);
        for (index, dir) in dirs(config) {
            if self.leaving.iter().any(|leaving| leaving.path == dir.path) {
                let (path, limit) = (dir.path.display(), LAST_READERS_MAX.as_secs());
                tracing::warn!(
                    "cache_dir {path}: still read from as it was configured before; it is opened again when the last of \
                     its readers has ended, after {limit} s at the latest"
                );
                continue;
            }
            let known = self.open.contains_key(&dir.path);
            if !known && let Err(error) = self.open_one(config, index, dir) {
                tracing::error!(
                    "cache_dir {}: {error}; going on without it until a reconfiguration tries again",
                    dir.path.display()
                );
            }
        }
        self.listed(config)
    }

    /// Those of a configuration that are open.
    fn listed(&self, config: &Config) -> Vec<DirConfig> {
        let listed = dirs(config).filter_map(|(index, dir)| {
            let open = self.open.get(&dir.path)?;
            Some(DirConfig {
                index,
                scheme: Arc::clone(&open.scheme),
                object_bytes_max: open.options.max_bytes,
                read_only: dir.limits.read_only,
            })
        });
        listed.collect()
    }

    fn open_one(&mut self, config: &Config, index: usize, dir: &CacheDir) -> Result<(), OpenError> {
        let options = options(config, dir);
        let scheme = schemes::open(&options)?;
        self.open.insert(dir.path.clone(), Open { index, options, scheme });
        Ok(())
    }

    /// Takes over a new configuration: directories that are the same and in service are not
    /// touched; one that is gone, has other options, or is down is closed; one that is new or was
    /// closed is opened. Who still reads from one that is to be closed reads on
    /// ([`LAST_READERS_MAX`]). Blocks, so not for a core.
    pub(crate) fn reconfigure(&mut self, snapshot: &Arc<Snapshot>, cache: &Cache) {
        self.wanted = Some(Arc::clone(snapshot));
        let config = &snapshot.config;
        let is_wanted = |path: &PathBuf, open: &Open| {
            let same = dirs(config)
                .any(|(_, dir)| dir.path == *path && options(config, dir) == open.options);
            same && !open.scheme.stats().down
        };
        // One that was to leave may be wanted again.
        for back in self.leaving.extract_if(.., |leaving| is_wanted(&leaving.path, &leaving.open)) {
            self.open.insert(back.path, back.open);
        }
        for (path, open) in self.open.extract_if(|path, open| !is_wanted(path, open)) {
            self.leaving.push(Leaving { path, index: open.index, open, since: Instant::now() });
        }
        if !self.leaving.is_empty() {
            // Nobody may find a directory any more when it is closed.
            self.publish(config, cache);
            self.wait_for_readers();
        }
        self.close_left(cache);
        self.open(config);
        self.keep_purges(config, cache);
        self.publish(config, cache);
    }

    /// Whether a directory that is leaving can be closed now.
    pub(crate) fn has_left(&self) -> bool {
        let now = Instant::now();
        self.leaving.iter().any(|leaving| leaving.is_to_end(now))
    }

    /// Closes the directories whose last readers have ended, and opens them as they are configured
    /// now. Blocks.
    pub(crate) fn end_leaving(&mut self, cache: &Cache) {
        let Some(snapshot) = self.wanted.clone() else { return };
        let config = &snapshot.config;
        let closed = self.close_left(cache);
        for (index, dir) in dirs(config).filter(|(_, dir)| closed.contains(&dir.path)) {
            match self.open_one(config, index, dir) {
                Ok(()) => tracing::info!("cache_dir {}: opened again", dir.path.display()),
                Err(error) => {
                    tracing::error!(
                        "cache_dir {}: {error}; going on without it",
                        dir.path.display()
                    )
                }
            }
        }
        self.keep_purges(config, cache);
        self.publish(config, cache);
    }

    fn publish(&self, config: &Config, cache: &Cache) {
        let leaving = self.leaving.iter().map(|leaving| DirConfig {
            index: leaving.index,
            scheme: Arc::clone(&leaving.open.scheme),
            object_bytes_max: 0,
            read_only: true,
        });
        cache.reconfigure_leaving(settings(config), self.listed(config), leaving.collect());
    }

    /// Waits for the last readers; most have ended before one can look.
    fn wait_for_readers(&self) {
        let deadline = Instant::now() + LAST_READERS_WAIT;
        // A directory that is down has nothing to give.
        let is_waited_for =
            |leaving: &Leaving| leaving.is_in_use() && !leaving.open.scheme.stats().down;
        while self.leaving.iter().any(is_waited_for) && Instant::now() < deadline {
            std::thread::sleep(LAST_READERS_STEP);
        }
    }

    /// Closes those that have no readers any more; returns their paths.
    fn close_left(&mut self, cache: &Cache) -> Vec<PathBuf> {
        let now = Instant::now();
        let is_to_end =
            |leaving: &mut Leaving| leaving.is_to_end(now) || leaving.open.scheme.stats().down;
        let left: Vec<Leaving> = self.leaving.extract_if(.., is_to_end).collect();
        if !left.is_empty() {
            prepare_close(cache.prepare_close());
        }
        for Leaving { path, open, .. } in &left {
            match open.scheme.close() {
                Ok(()) => tracing::info!("cache_dir {}: closed", path.display()),
                Err(error) => {
                    tracing::warn!("cache_dir {}: not closed cleanly: {error}", path.display())
                }
            }
        }
        left.into_iter().map(|left| left.path).collect()
    }
}

/// Waits, on a thread that may block, for the work that precedes the closing of directories.
pub(crate) fn prepare_close(removals: impl Future<Output = ()>) {
    let waited =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map(|runtime| {
            runtime
                .block_on(async { tokio::time::timeout(PREPARE_CLOSE_MAX, removals).await.is_ok() })
        });
    if !waited.unwrap_or(false) {
        tracing::warn!(
            "what was replaced while a cache_dir was being read may be found in it again"
        );
    }
}

impl Stores {
    /// Opens the log of purges, before anything that is stored is served.
    pub(crate) fn keep_purges(&self, config: &Config, cache: &Cache) {
        if let Err(error) = cache.purges().keep_in(self.purge_places(config)) {
            tracing::error!(
                "{error}; purges by tag and prefix are refused until it can be written"
            );
        }
    }

    /// The place of the log of purges: `purge_log`, or beside the first open directory. Nowhere if
    /// there is none.
    fn purge_places(&self, config: &Config) -> Option<PurgePlaces> {
        let open = dirs(config).filter(|(_, dir)| self.open.contains_key(&dir.path));
        let mut beside: Vec<PathBuf> = open.map(|(_, dir)| purge_log_beside(dir)).collect();
        let log = match config.purge_log.as_str() {
            "" => match beside.first() {
                Some(first) => first.clone(),
                None => purge_log_beside(dirs(config).next()?.1),
            },
            path => PathBuf::from(path),
        };
        beside.retain(|path| *path != log);
        Some(PurgePlaces { log, former: beside })
    }
}

/// In the directory of a store, or where the one file or device lies that it consists of.
fn purge_log_beside(dir: &CacheDir) -> PathBuf {
    let folder = folder(dir).filter(|folder| folder.is_dir() || !folder.exists());
    folder.or(dir.path.parent()).unwrap_or(Path::new("")).join(schemes::PURGE_LOG)
}

/// The directories of a configuration with their positions.
fn dirs(config: &Config) -> impl Iterator<Item = (usize, &CacheDir)> {
    config.cache_dir.iter().filter(|dir| dir.scheme() != SchemeKind::Null).enumerate()
}

/// Creates the directories of a configuration (`-z`).
pub(crate) fn create(config: &Config) -> Result<Vec<PathBuf>, StartError> {
    let mut created = Vec::new();
    for dir in &config.cache_dir {
        schemes::create(&options(config, dir)).map_err(StartError::Store)?;
        created.push(dir.path.clone());
    }
    Ok(created)
}

fn options(config: &Config, dir: &CacheDir) -> DirOptions {
    DirOptions {
        min_bytes: dir.limits.min_bytes.max(config.minimum_object_size),
        max_bytes: dir.limits.max_bytes.unwrap_or(u64::MAX),
        swap_low_pct: config.cache_swap_low,
        swap_high_pct: config.cache_swap_high,
        max_open_files: config.max_open_disk_fds,
        policy: config.cache_replacement_policy,
        object_bytes_avg: config.store_avg_object_size.max(1),
        ..DirOptions::of(dir.options.clone(), &dir.path, dir.size_bytes)
    }
}

/// The directory in which a store makes its files: its path, unless that names the one file of a
/// `coss`.
pub(crate) fn folder(dir: &CacheDir) -> Option<&Path> {
    let is_file =
        dir.scheme() == SchemeKind::Coss && !dir.path.as_os_str().as_bytes().ends_with(b"/");
    if is_file { dir.path.parent() } else { Some(&dir.path) }
}

/// Settings of the cache as a whole.
pub(crate) fn settings(config: &Config) -> CacheSettings {
    CacheSettings {
        cache_mem_bytes: config.cache_mem,
        memory_policy: config.memory_replacement_policy,
        memory_object_bytes_max: config.maximum_object_size_in_memory,
        disk_object_bytes_max: config.maximum_object_size,
        read_ahead_bytes: config.read_ahead_gap,
        dir_select: config.store_dir_select_algorithm,
        memory_mode: config.memory_cache_mode,
        in_transit: config.in_transit,
    }
}

#[cfg(test)]
mod tests {
    use humboldt_schemes::{Io, RockOptions, SchemeOptions};

    use super::*;

    #[test]
    fn what_the_parser_takes_for_q1_and_q2_the_scheme_takes_too() {
        let dir = tempfile::tempdir().expect("a directory");
        let parse = |most: u32| {
            let path = dir.path().display();
            let text =
                format!("http_port 1\ncache_dir diskd {path}/d 10 1 1 Q1={most} Q2={most}\n");
            humboldt_conf::parse_str("t", &text)
        };
        let (config, found) = parse(3000);
        assert!(!found.has_errors(), "{}", found.render(false));
        create(&config).expect("the scheme takes them");
        assert!(parse(3001).1.has_errors());
        assert!(parse(0).1.has_errors());
    }

    #[test]
    fn a_directory_leaves_with_its_last_reader_or_at_the_limit() {
        let options = DirOptions::of(SchemeKind::Null.defaults(), "/no/such/place", 1 << 30);
        let scheme = schemes::open(&options).expect("nothing to open");
        let in_the_table = Arc::clone(&scheme);
        let reader = Arc::clone(&scheme);
        let open = Open { index: 0, options, scheme };
        let since = Instant::now();
        let leaving = Leaving { path: PathBuf::new(), index: 0, open, since };
        assert!(!leaving.is_to_end(since), "somebody reads");
        assert!(leaving.is_to_end(since + LAST_READERS_MAX), "for too long");
        drop(reader);
        assert!(leaving.is_to_end(since));
        drop(in_the_table);
    }

    #[test]
    fn what_is_written_reaches_the_scheme() {
        let text = "http_port 1\nstore_avg_object_size 1 KB\nminimum_object_size 20\n\
                    cache_dir rock /r 100 slot-size=32768 max-swap-rate=0 swap-timeout=300 io=threads threads=9 \
                    min-size=10 no-store";
        let (config, _) = humboldt_conf::parse_str("t", text);
        let options = options(&config, &config.cache_dir[0]);
        let own = RockOptions {
            slot_bytes: 32_768,
            max_swap_rate: None,
            swap_timeout: Some(Duration::from_millis(300)),
            io: Io::Threads,
            threads: 9,
        };
        assert_eq!(options.own, SchemeOptions::Rock(own));
        assert_eq!((options.min_bytes, options.max_bytes), (20, u64::MAX));
        assert_eq!(options.object_bytes_avg, 1024);
    }
}
