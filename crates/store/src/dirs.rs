//! The cache directories of a configuration, and which of them takes a new object.
//!
//! Facts that requests need again and again (rebuilding, down, room) are read from a scheme once a
//! second and kept beside it, because a scheme may take every lock of its index for its figures.

mod debts;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::future::poll_fn;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize};
use std::task::Poll;

use humboldt_freshness::Times;

use debts::Debts;
pub use debts::{DEBTS_MAX, HIDDEN_MAX};

use crate::doorkeeper::Doorkeeper;
use crate::gate::Gate;
use crate::key::Key;
use crate::scheme::{Scheme, SchemeError};
use crate::settings::{CacheSettings, DirSelect};
use crate::together;

/// Most removals from a directory's disk that nobody waits for. Of more, it owes the next one, and
/// is out of service until it has made up for that. The same bound holds for removals that wait for
/// something of a void URL on its way to some directory: of more, all directories owe the next one,
/// and are out of service until nothing of the URL is on its way any more and they have removed it.
pub(crate) const VOIDS_MAX: usize = 4096;

/// Most directories, once configured and now not, whose removals are remembered; the oldest is
/// forgotten.
const ABSENT_MAX: usize = 64;

/// A directory with more load is skipped.
const LOAD_MAX: u16 = 1000;

/// A place among those of a bounded number, until it is dropped.
pub(crate) struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    /// `None`: the limit is reached.
    pub(crate) fn take(taken: &'a AtomicUsize, most: usize) -> Option<Self> {
        let place = Self(taken);
        // Dropped, it gives the place back also where there was none.
        (taken.fetch_add(1, Relaxed) < most).then_some(place)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// One round of housekeeping.
struct Round<'a>(&'a AtomicBool);

impl<'a> Round<'a> {
    /// `None`: another one is under way.
    fn begin(is_under_way: &'a AtomicBool) -> Option<Self> {
        (!is_under_way.swap(true, Acquire)).then_some(Self(is_under_way))
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

/// A directory as the configuration has it.
#[derive(Clone)]
pub struct DirConfig {
    /// Position in the configuration.
    pub index: usize,
    /// The directory.
    pub scheme: Arc<dyn Scheme>,
    /// `max-size=` in bytes; `u64::MAX` for no limit.
    pub object_bytes_max: u64,
    /// `no-store`: it takes nothing new.
    pub read_only: bool,
}

/// A cache directory in use.
pub struct Dir {
    /// Position in the configuration, as store.log shows it.
    pub index: usize,
    /// The directory.
    pub scheme: Arc<dyn Scheme>,
    object_bytes_max: u64,
    read_only: bool,
    /// It is leaving the configuration: only its present users read and write, and removals still
    /// reach it.
    is_leaving: bool,
    debts: Arc<Debts>,
    /// The index does not know everything yet.
    rebuilding: AtomicBool,
    down: AtomicBool,
    /// Room at the last reading, minus later assignments: may fall below zero.
    free_bytes: AtomicI64,
    /// Somebody does its housekeeping.
    is_maintained: AtomicBool,
}

/// The result of a purge. From now on no request gets a purged answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purged {
    /// There was nothing.
    Absent,
    /// There was something.
    Found,
    /// A directory could not note it. It removes the key before it is used again; but if the
    /// process ends before that, it may have it.
    Owed,
}

impl Dir {
    fn new(config: DirConfig, debts: Arc<Debts>, is_leaving: bool) -> Arc<Self> {
        let DirConfig { index, scheme, object_bytes_max, read_only } = config;
        let (rebuilding, down) = (AtomicBool::new(true), AtomicBool::new(false));
        let free_bytes = AtomicI64::new(0);
        let dir = Self {
            index,
            scheme,
            object_bytes_max,
            read_only,
            is_leaving,
            debts,
            rebuilding,
            down,
            free_bytes,
            is_maintained: AtomicBool::new(false),
        };
        dir.refresh();
        Arc::new(dir)
    }

    /// Reads the facts that may have changed.
    fn refresh(&self) {
        let stats = self.scheme.stats();
        self.rebuilding.store(stats.rebuild_percent < 100, Relaxed);
        self.down.store(stats.down, Relaxed);
        let free = stats.capacity_bytes.saturating_sub(stats.used_bytes);
        self.free_bytes.store(i64::try_from(free).unwrap_or(i64::MAX), Relaxed);
    }

    /// Whether objects may be read from it and written to it: it is not down, and owes no removals.
    pub fn is_in_service(&self) -> bool {
        !self.down.load(Relaxed) && self.debts.is_empty()
    }

    /// Whether it is configured, and not leaving the configuration.
    pub(crate) fn is_configured(&self) -> bool {
        !self.is_leaving
    }

    /// Whether it may have the key.
    pub(crate) fn has(&self, key: &Key) -> bool {
        !self.is_leaving
            && self.is_in_service()
            && self.scheme.contains(key)
            && !self.debts.hidden.holds(key)
    }

    fn takes(&self, body_bytes: Option<u64>) -> bool {
        !self.read_only
            && !self.is_leaving
            && self.is_in_service()
            && body_bytes.is_none_or(|bytes| bytes <= self.object_bytes_max)
            && self.scheme.admits(body_bytes)
    }

    /// Notes that it refused to work; [`Dir::maintain`] finds out whether that is still so.
    pub(crate) fn note(&self, error: &SchemeError) {
        if matches!(error, SchemeError::Down) {
            self.down.store(true, Relaxed);
        }
    }

    /// Removes a key because there is a newer answer, now or before the directory is used again.
    pub(crate) async fn forget(&self, key: &Key) -> bool {
        // An index that is being read does not know yet, and one that is out of service, or being
        // closed, has no answer. It may become so at any time.
        let knows = || self.scheme.knows_all() && !self.is_leaving;
        let knew = knows();
        if !self.scheme.contains(key) {
            let is_known = knew && knows();
            if is_known || self.debts.hidden.add(*key) {
                return false;
            }
        }
        match self.scheme.remove(key).await {
            Ok(found) => found,
            // The index may have lost the key, and its removal be nowhere.
            Err(error @ SchemeError::Down) => {
                self.note(&error);
                self.debts.hidden.add_or_all(*key);
                false
            }
            Err(_) => {
                self.debts.add(*key);
                false
            }
        }
    }

    /// Whether a record of it is hidden, as more newer answers have come than can be remembered.
    pub(crate) fn hides(&self, times: &Times) -> bool {
        self.debts.hidden.holds_all(times)
    }

    /// It has got the newest answer itself.
    pub(crate) fn has_newest(&self, key: &Key) {
        self.debts.hidden.remove(key);
        self.debts.recent.add(*key);
    }

    /// It has failed, and may have lost answers that it had not written yet. Older ones that the
    /// next opening finds instead are not shown.
    pub(crate) fn doubt(&self) {
        self.debts.doubt_recent();
    }

    /// Removes hidden records: after the index has been read, and before a clean stop, because the
    /// next start does not know of them.
    pub async fn remove_hidden(&self) {
        loop {
            let keys = self.debts.hidden.some();
            let begin = |key: Key| -> Pin<Box<dyn Future<Output = ()> + '_>> {
                Box::pin(async move {
                    // A newer one may be there by now.
                    if self.debts.hidden.holds(&key) && self.scheme.remove(&key).await.is_ok() {
                        self.debts.hidden.remove(&key);
                    }
                })
            };
            let before = self.debts.hidden.count.load(Relaxed);
            together::all(keys.into_iter().map(begin).collect()).await;
            if self.debts.hidden.count.load(Relaxed) >= before {
                return; // there are none, or it cannot do it now
            }
        }
    }

    /// Removes a key without asking the index, which may be unknown while the directory is down.
    /// Now, or before the directory is used again.
    pub(crate) async fn remove(&self, key: &Key) -> Purged {
        match self.scheme.remove(key).await {
            Ok(true) => Purged::Found,
            Ok(false) => Purged::Absent,
            Err(error) => {
                self.note(&error);
                self.debts.add(*key);
                // Closed meanwhile, it counts as one that is not configured.
                let is_away = self.is_leaving && matches!(error, SchemeError::Down);
                if is_away { Purged::Absent } else { Purged::Owed }
            }
        }
    }

    /// The same without a waiting request: after the first poll, the index does not have the key.
    /// If [`VOIDS_MAX`] wait for the disk, the directory owes the next one.
    pub(crate) async fn remove_behind(&self, key: &Key) {
        let mut removal = pin!(self.remove(key));
        if poll_fn(|cx| Poll::Ready(removal.as_mut().poll(cx).is_ready())).await {
            return;
        }
        match Counted::take(&self.debts.voids, VOIDS_MAX) {
            Some(_place) => _ = removal.await,
            None => self.owe(*key),
        }
    }

    /// Is not used again before it has removed a key.
    pub(crate) fn owe(&self, key: Key) {
        self.debts.add(key);
    }

    /// Upkeep; then removals that are still owed. Does nothing while an earlier call is running.
    /// `commits` knows the records under way to directories.
    pub(crate) async fn maintain(&self, commits: &Gate) {
        let Some(_round) = Round::begin(&self.is_maintained) else { return };
        if let Err(error) = self.scheme.maintain().await {
            tracing::debug!(path = %self.scheme.path().display(), %error, "maintenance");
        }
        self.refresh();
        if !self.debts.is_empty() && !self.down.load(Relaxed) {
            self.pay(commits).await;
        }
        let has_hidden = self.debts.hidden.count.load(Relaxed) > 0;
        if has_hidden && !self.rebuilding.load(Relaxed) && !self.down.load(Relaxed) {
            self.remove_hidden().await;
        }
    }

    /// A removal that is owed while a record of its URL is under way stays owed until the record
    /// has arrived: it may be the one to remove.
    async fn pay(&self, commits: &Gate) {
        if self.debts.overflowed.load(Relaxed) {
            return;
        }
        let owed: Vec<Key> = self.debts.keys.lock().iter().copied().collect();
        for key in owed {
            if !commits.is_clear(&key) {
                continue;
            }
            if self.scheme.remove(&key).await.is_err() {
                return;
            }
            let mut keys = self.debts.keys.lock();
            keys.remove(&key);
            self.debts.count.store(keys.len(), Relaxed);
        }
    }

    /// The order in a choice by load: the smallest wins.
    fn rank(&self, body_bytes: Option<u64>) -> (u16, u64, Reverse<i64>) {
        // An object of unknown length may become large.
        let fit = if body_bytes.is_some() { self.object_bytes_max } else { !self.object_bytes_max };
        (self.scheme.load(), fit, Reverse(self.free_bytes.load(Relaxed)))
    }
}

/// Settings and directories of one configuration, in its order.
pub(crate) struct Table {
    pub(crate) settings: CacheSettings,
    /// Objects that were read from a directory recently and are not in memory.
    pub(crate) doorkeeper: Doorkeeper,
    pub(crate) dirs: Vec<Arc<Dir>>,
    /// Removals owed by formerly configured directories, oldest first.
    absent: Vec<(PathBuf, Arc<Debts>)>,
}

impl Table {
    /// `leaving` are those that are no longer configured as they are, and not closed yet; `missing`
    /// are the paths of those that are configured and could not be opened.
    pub(crate) fn new(
        settings: CacheSettings,
        configs: Vec<DirConfig>,
        leaving: Vec<DirConfig>,
        missing: Vec<PathBuf>,
        before: Option<&Self>,
    ) -> Self {
        let mut absent = before.map_or_else(Vec::new, |before| before.absent.clone());
        let left = before.into_iter().flat_map(|before| &before.dirs);
        absent.extend(left.map(|dir| (dir.scheme.path().to_owned(), dir.debts.clone())));
        let configs = configs.into_iter().map(|config| (config, false));
        let configs = configs.chain(leaving.into_iter().map(|config| (config, true)));
        let dirs = configs.map(|(config, is_leaving)| {
            let known = absent.iter().position(|(path, _)| path == config.scheme.path());
            let debts = known.map(|at| absent.remove(at).1).unwrap_or_default();
            if debts.overflowed.load(Relaxed) {
                let path = config.scheme.path().display();
                tracing::error!(
                    "cache_dir {path}: more than {DEBTS_MAX} objects were to be removed while it \
                     was out of service; it stays so until it is empty and the program is started \
                     again"
                );
            }
            Dir::new(config, debts, is_leaving)
        });
        let dirs = dirs.collect();
        // What is in a directory that could not be opened is not known.
        for path in missing {
            if !absent.iter().any(|(known, _)| *known == path) {
                absent.push((path, Arc::default()));
            }
        }
        absent.drain(..absent.len().saturating_sub(ABSENT_MAX));
        Self { settings, doorkeeper: Doorkeeper::new(settings.cache_mem_bytes), dirs, absent }
    }

    /// The first directory from position `from` on that may have the key, and its position.
    pub(crate) fn holder(&self, key: &Key, from: usize) -> Option<(usize, Arc<Dir>)> {
        let mut rest = self.dirs.iter().enumerate().skip(from);
        rest.find(|(_, dir)| dir.has(key)).map(|(at, dir)| (at, Arc::clone(dir)))
    }

    /// The directory that should take an object. `turn` counts selections.
    pub(crate) fn select(
        &self,
        body_bytes: Option<u64>,
        turn: usize,
        tried: &[Arc<Dir>],
    ) -> Option<Arc<Dir>> {
        let first = turn % self.dirs.len().max(1);
        let (before, from) = self.dirs.split_at_checked(first)?;
        let mut in_turn = from.iter().chain(before).filter(|dir| {
            dir.takes(body_bytes)
                && dir.scheme.load() <= LOAD_MAX
                && !tried.iter().any(|tried| Arc::ptr_eq(tried, dir))
        });
        let chosen = match self.settings.dir_select {
            DirSelect::LeastLoad => in_turn.min_by_key(|dir| dir.rank(body_bytes)),
            DirSelect::RoundRobin => in_turn.next(),
        }?;
        let assigned = i64::try_from(body_bytes.unwrap_or(0).max(1)).unwrap_or(i64::MAX);
        _ = chosen
            .free_bytes
            .fetch_update(Relaxed, Relaxed, |free| Some(free.saturating_sub(assigned)));
        Some(Arc::clone(chosen))
    }

    /// Whether a directory that was configured is not configured now.
    pub(crate) fn has_absent(&self) -> bool {
        !self.absent.is_empty()
    }

    /// A newer answer replaces that of a directory too that is not configured now.
    pub(crate) fn hide_absent(&self, key: Key) {
        self.absent.iter().for_each(|(_, debts)| debts.hidden.add_or_all(key));
    }

    /// A purge concerns directories too that are not configured now.
    pub(crate) fn purge_absent(&self, key: Key) {
        self.absent.iter().for_each(|(_, debts)| debts.add(key));
    }
}
