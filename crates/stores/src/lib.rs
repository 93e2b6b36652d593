//! The cache directories of a configuration: opened, kept in a reconfiguration, left by their last
//! readers, and closed. The program calls it from threads that may wait for disks; the simulation
//! in the time of its disks.

mod config;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use humboldt_conf::{CacheDir, Config};
use humboldt_schemes::{self as schemes, DirOptions, OpenError};
use humboldt_store::Cache;
use humboldt_store::dirs::DirConfig;
use humboldt_store::scheme::Scheme;
use tokio::time::Instant;

pub use config::{create, folder, settings};
use config::{dirs, options, purge_places};

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
pub const LAST_READERS_MAX: Duration = Duration::from_secs(600);

/// Directories that are open, by path, so that a reconfiguration keeps them.
#[derive(Default)]
pub struct Stores {
    /// In an order that repeats, for simulations.
    open: BTreeMap<PathBuf, Open>,
    leaving: Vec<Leaving>,
    /// The configuration of the last reconfiguration.
    wanted: Option<Config>,
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
    pub fn open(&mut self, config: &Config) -> Vec<DirConfig> {
        humboldt_schemes::promise_memory(config.cache_mem);
        for (index, dir) in dirs(config) {
            if self.leaving.iter().any(|leaving| leaving.path == dir.path) {
                let (path, limit) = (dir.path.display(), LAST_READERS_MAX.as_secs());
                tracing::warn!(
                    "cache_dir {path}: still read from as it was configured before; it is opened \
                     again when the last of its readers has ended, after {limit} s at the latest"
                );
                continue;
            }
            let known = self.open.contains_key(&dir.path);
            if !known && let Err(error) = self.open_one(config, index, dir) {
                tracing::error!(
                    "cache_dir {}: {error}; going on without it until a reconfiguration tries \
                     again",
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
    /// ([`LAST_READERS_MAX`]). Waits for disks, so not for a core.
    pub async fn reconfigure(&mut self, config: &Config, cache: &Cache) {
        self.wanted = Some(config.clone());
        let is_wanted = |path: &PathBuf, open: &Open| {
            let same = dirs(config)
                .any(|(_, dir)| dir.path == *path && options(config, dir) == open.options);
            same && !open.scheme.stats().down
        };
        // One that was to leave may be wanted again.
        for back in self.leaving.extract_if(.., |leaving| is_wanted(&leaving.path, &leaving.open)) {
            self.open.insert(back.path, back.open);
        }
        for (path, open) in self.open.extract_if(.., |path, open| !is_wanted(path, open)) {
            self.leaving.push(Leaving { path, index: open.index, open, since: Instant::now() });
        }
        if !self.leaving.is_empty() {
            // Nobody may find a directory any more when it is closed.
            self.publish(config, cache);
            self.wait_for_readers().await;
        }
        self.close_left(cache).await;
        self.open(config);
        self.keep_purges(config, cache);
        self.publish(config, cache);
    }

    /// Whether a directory that is leaving can be closed now.
    pub fn has_left(&self) -> bool {
        let now = Instant::now();
        self.leaving.iter().any(|leaving| leaving.is_to_end(now))
    }

    /// Closes the directories whose last readers have ended, and opens them as they are configured
    /// now. Waits for disks, as [`Stores::reconfigure`].
    pub async fn end_leaving(&mut self, cache: &Cache) {
        let Some(config) = &self.wanted.clone() else { return };
        let closed = self.close_left(cache).await;
        if closed.is_empty() {
            return; // another round was first
        }
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

    /// Opens the log of purges, before anything that is stored is served.
    pub fn keep_purges(&self, config: &Config, cache: &Cache) {
        if let Err(error) =
            cache.purges().keep_in(purge_places(config, |path| self.open.contains_key(path)))
        {
            tracing::error!(
                "{error}; purges by tag and prefix are refused until it can be written"
            );
        }
    }

    /// Whether a directory is open, or still read from as it was configured before.
    pub fn is_there(&self, path: &Path) -> bool {
        self.open.contains_key(path) || self.leaving.iter().any(|leaving| leaving.path == path)
    }

    /// Directories that are open, without those that are leaving.
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Tells a new cache over the directories that [`Stores::open`] returned which of the
    /// configured ones are missing.
    pub fn tell_missing(&self, config: &Config, cache: &Cache) {
        if self.open.len() < dirs(config).count() {
            self.publish(config, cache);
        }
    }

    fn publish(&self, config: &Config, cache: &Cache) {
        let leaving = self.leaving.iter().map(|leaving| DirConfig {
            index: leaving.index,
            scheme: Arc::clone(&leaving.open.scheme),
            object_bytes_max: 0,
            read_only: true,
        });
        let missing = dirs(config).filter(|(_, dir)| !self.is_there(&dir.path));
        let missing = missing.map(|(_, dir)| dir.path.clone()).collect();
        let (settings, listed) = (settings(config), self.listed(config));
        cache.reconfigure_leaving(settings, listed, leaving.collect(), missing);
    }

    /// Waits for the last readers; most have ended before one can look.
    async fn wait_for_readers(&self) {
        let deadline = Instant::now() + LAST_READERS_WAIT;
        // A directory that is down has nothing to give.
        let is_waited_for =
            |leaving: &Leaving| leaving.is_in_use() && !leaving.open.scheme.stats().down;
        while self.leaving.iter().any(is_waited_for) && Instant::now() < deadline {
            tokio::time::sleep(LAST_READERS_STEP).await;
        }
    }

    /// Closes those that have no readers any more; returns their paths.
    async fn close_left(&mut self, cache: &Cache) -> Vec<PathBuf> {
        let now = Instant::now();
        let is_to_end =
            |leaving: &mut Leaving| leaving.is_to_end(now) || leaving.open.scheme.stats().down;
        let left: Vec<Leaving> = self.leaving.extract_if(.., is_to_end).collect();
        if !left.is_empty() {
            prepare_close(cache).await;
        }
        for Leaving { path, open, .. } in &left {
            let has_failed = open.scheme.stats().down;
            let closed = open.scheme.close();
            if has_failed || closed.is_err() {
                cache.doubt(path);
            }
            match closed {
                Ok(()) => tracing::info!("cache_dir {}: closed", path.display()),
                Err(error) => {
                    tracing::warn!("cache_dir {}: not closed cleanly: {error}", path.display())
                }
            }
        }
        left.into_iter().map(|left| left.path).collect()
    }
}

/// The work that precedes the closing of directories, for a bounded time.
pub async fn prepare_close(cache: &Cache) {
    if tokio::time::timeout(PREPARE_CLOSE_MAX, cache.prepare_close()).await.is_err() {
        tracing::warn!(
            "what was replaced while a cache_dir was being read may be found in it again"
        );
    }
}

#[cfg(test)]
mod tests {
    use humboldt_conf::Scheme as SchemeKind;

    use super::*;

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
}
