//! Purges by tag and by prefix. A purge searches nothing: stored answers are checked when they are
//! looked up.
//!
//! Purges are numbered. A stored answer has the number of the newest purge at its request
//! ([`Times::purge_number`](humboldt_freshness::Times)); a purge applies to answers with a smaller
//! number than its own and the tag or prefix that it names. So an answer that was under way to
//! memory or disk at the time of the purge is as old as a stored one.
//!
//! A purge is on the disk before it counts, and counts before it is acknowledged:
//! [`Purges::register`].

mod list;
mod log;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use humboldt_base::clock::UnixMillis;
use humboldt_freshness::Times;
use parking_lot::{Mutex, RwLock};

use crate::flow::Flow;
use crate::head::StoredHead;
use crate::object::Object;

use list::{List, Subject};
pub use list::{PURGE_BYTES_MAX, PURGES_BYTES_MAX, PURGES_MAX, Purge, cache_tags, surrogate_keys};
use log::Log;

/// A log without a predecessor begins with the number of this second: this many numbers for each
/// second since 1970. As long as there were fewer purges than that, its numbers are above all of an
/// earlier log that was lost.
const NUMBERS_PER_SECOND: u64 = 1 << 14;

/// Highest beginning of the log, whatever the clock, so that there are always numbers left.
const BASE_MAX: u64 = Times::PURGE_NUMBER_MAX / 2;

/// Why a purge was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum PurgeError {
    /// It would not outlast a crash.
    #[error("{path}: {source}; `purge_log` names another place")]
    Log {
        /// The log.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The last number has been given.
    #[error("no purge numbers are left: stop, remove all stores and the purge log, start")]
    Exhausted,
    /// The program is ending.
    #[error("the program is ending")]
    Ending,
}

/// The places of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgePlaces {
    /// The log.
    pub log: PathBuf,
    /// Its possible places under other configurations. A log that is found there is taken over, and
    /// removed.
    pub former: Vec<PathBuf>,
}

#[derive(Debug, Default)]
struct State {
    /// `None`: nothing is stored on disk, and purges are only remembered.
    places: Option<PurgePlaces>,
    /// `None` also when it cannot be written: the next purge tries again.
    log: Option<Log>,
    /// A log could not be read, for which everything that was there has been purged.
    is_unread: bool,
}

/// All purges by tag and by prefix. Shared by all cores.
#[derive(Debug, Default)]
pub struct Purges {
    /// The newest of `list`.
    newest: AtomicU64,
    list: RwLock<List>,
    /// Also makes purges sequential.
    state: Mutex<State>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Purges {
    /// The number of the newest purge.
    pub fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    /// Whether an object in memory is purged. One comparison if there was no purge since its last
    /// request.
    #[inline]
    pub(crate) fn has_purged(&self, object: &Object) -> bool {
        object.clean_to() != self.newest() && self.look_closer(object)
    }

    #[cold]
    fn look_closer(&self, object: &Object) -> bool {
        let list = self.list.read();
        let number = object.clean_to();
        let is_purged =
            list.concerns(&Subject { number, url: &object.url, head: Some(&object.head) });
        if !is_purged {
            object.set_clean_to(list.newest);
        }
        is_purged
    }

    /// Whether a stored answer is purged.
    pub(crate) fn concerns(&self, times: &Times, url: &[u8], head: &StoredHead) -> bool {
        let number = times.purge_number;
        number != self.newest()
            && self.list.read().concerns(&Subject { number, url, head: Some(head) })
    }

    /// Whether there may have been purges up to this number.
    pub(crate) fn are_any_up_to(&self, number: u64) -> bool {
        number > 0 && self.list.read().are_any_up_to(number)
    }

    /// Whether an answer in flight may be purged: as long as its head is not there, its tags may be
    /// any.
    pub(crate) fn may_concern(&self, flow: &Flow, url: &[u8]) -> bool {
        let number = flow.purge_number();
        if number == self.newest() {
            return false;
        }
        let published = flow.published();
        let head = published.as_ref().map(|published| &*published.head);
        self.list.read().concerns(&Subject { number, url, head })
    }

    /// Makes purges apply to all answers that were requested before now. When the future resolves
    /// they are on the disk, and no look-up on any core finds a purged answer; after an error no
    /// purge was made that was not requested.
    ///
    /// # Errors
    /// [`PurgeError`].
    pub async fn register(self: &Arc<Self>, purges: Vec<Purge>) -> Result<(), PurgeError> {
        // However many come at once, one thread waits for the disk.
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let this = Arc::clone(self);
        let written = humboldt_runtime::turns::blocking(move || {
            let _turn = turn;
            this.register_now(&purges)
        });
        written.await.map_err(|_| PurgeError::Ending)?
    }

    pub(crate) fn register_now(&self, purges: &[Purge]) -> Result<(), PurgeError> {
        let mut state = self.state.lock();
        if state.log.as_ref().is_none_or(|log| !log.is_in_place()) {
            self.open(&mut state)?;
        }
        let newest = self.newest();
        if newest.saturating_add(purges.len() as u64) > Times::PURGE_NUMBER_MAX {
            return Err(PurgeError::Exhausted);
        }
        let numbered: Vec<_> = (newest + 1..).zip(purges.iter().cloned()).collect();
        if let Some(log) = &mut state.log
            && let Err(source) = log.append(&numbered)
        {
            let path = log.path().to_owned();
            state.log = None;
            return Err(PurgeError::Log { path, source });
        }
        let mut list = self.list.write();
        for (number, purge) in numbered {
            list.add(number, purge);
        }
        self.newest.store(list.newest, Ordering::Release);
        drop(list);
        self.shorten(&mut state);
        Ok(())
    }

    /// Writes a log again when later lines replace much of it. If that fails, the next purge
    /// reports it.
    fn shorten(&self, state: &mut State) {
        let Some(log) = state.log.take_if(|log| log.is_long(&self.list.read())) else { return };
        let path = log.path().to_owned();
        drop(log);
        let written = Log::create(&path, &self.list.read());
        state.log = written.inspect_err(|error| tracing::warn!("{}: {error}", path.display())).ok();
    }

    /// Sets the places of the log, and takes over an existing one; `None` when nothing is stored on
    /// disk, and then an open log stays. Call it before the directories serve. Blocking.
    ///
    /// # Errors
    /// The log cannot be read or written. Purges are refused until it can.
    pub fn keep_in(&self, places: Option<PurgePlaces>) -> Result<(), PurgeError> {
        let Some(PurgePlaces { log, mut former }) = places else { return Ok(()) };
        let mut state = self.state.lock();
        let is_open = state.log.as_ref().is_some_and(|open| open.path() == log);
        let is_settled = is_open && !former.iter().any(|path| *path != log && path.exists());
        if let Some(before) = state.places.take() {
            former.push(before.log);
        }
        former.retain(|path| *path != log);
        state.places = Some(PurgePlaces { log, former });
        if is_settled { Ok(()) } else { self.open(&mut state) }
    }

    /// Reads existing logs, joins them with the known purges, and writes the result to the log.
    fn open(&self, state: &mut State) -> Result<(), PurgeError> {
        state.log = None;
        let Some(places) = state.places.clone() else { return Ok(()) };
        let known = self.list.read().clone();
        let (mut list, mut is_changed) = (known.clone(), false);
        let mut unread = None;
        // A former place may belong to another program now.
        let former: Vec<_> = places.former.iter().filter(|path| !Log::is_taken(path)).collect();
        for path in std::iter::once(&places.log).chain(former.iter().copied()) {
            match Log::read(path) {
                Ok(Some(contents)) => {
                    list = list.joined_with(contents.list);
                    if contents.is_damaged {
                        tracing::error!(
                            "{}: damaged, purges may be lost: everything that is stored is purged",
                            path.display()
                        );
                        list.purge_all(first_number());
                    }
                    is_changed = true;
                }
                Ok(None) => {}
                Err(source) => {
                    if !std::mem::replace(&mut state.is_unread, true) {
                        list.purge_all(first_number());
                        is_changed = true;
                    }
                    unread.get_or_insert(PurgeError::Log { path: path.clone(), source });
                }
            }
        }
        let begun = if list.base == 0 { list.begun_at(first_number()) } else { list.clone() };
        let created = match unread {
            Some(error) => Err(error),
            None => Log::create(&places.log, &begun)
                .map_err(|source| PurgeError::Log { path: places.log.clone(), source }),
        };
        match created {
            Ok(log) => {
                self.replace(begun);
                state.log = Some(log);
                state.is_unread = false;
                former.iter().for_each(|path| forget(path));
                Ok(())
            }
            Err(error) => {
                if is_changed {
                    self.replace(list);
                }
                Err(error)
            }
        }
    }

    fn replace(&self, list: List) {
        let mut known = self.list.write();
        *known = list;
        self.newest.store(known.newest, Ordering::Release);
    }
}

/// The first number without a list to continue.
fn first_number() -> u64 {
    let seconds = u64::try_from(UnixMillis::now().secs()).unwrap_or(0);
    seconds.saturating_mul(NUMBERS_PER_SECOND).clamp(1, BASE_MAX)
}

/// Removes a log whose contents are in another one now.
fn forget(path: &Path) {
    match std::fs::remove_file(path) {
        Ok(()) => tracing::info!("{}: its purges are in another log now", path.display()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!("{}: {error}", path.display()),
    }
}

#[cfg(test)]
mod tests;
