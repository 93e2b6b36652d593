//! Which of two answers for one URL is the newer one.
//!
//! **The rule**: a request that arrives after an answer was complete never gets an older one. So
//! all code that puts an answer where requests find it looks here first: memory, directories, and
//! the table of fetches that can be joined.
//!
//! An answer belongs to the time between sending its request and receiving its head. Of two answers
//! whose times do not overlap the later one is newer, whatever their fields. Of two that overlap
//! the one that was requested later is newer, if its Date is later (RFC 9111 4), or the same second
//! and its head arrived later too. If these disagree it cannot be decided, and neither is kept
//! ([`Standing::Unclear`]).
//!
//! A record that was read from a directory has no such time. It goes to memory only if no answer of
//! its key has arrived, or is being written, since it was opened.
//!
//! A URL has an entry here while it is being fetched or read. An answer that arrived during another
//! fetch or read is noted there for as long as that lasts. Times are numbers of one counter, not of
//! a clock.

mod voiding;

pub use voiding::Voiding;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;
use humboldt_freshness::Times;
use tokio::sync::Notify;

use crate::key::Key;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard};

/// Shards of the table, a power of two.
const SHARDS: usize = 64;

/// Most answers of one URL, one for each key, that are remembered while older fetches or reads go
/// on. With more, the oldest is forgotten, and answers requested before it are not stored.
const NOTES_MAX: usize = 256;

/// When an answer was asked for, when its head came, and its Date.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    pub(crate) date: i64,
    /// Made of its strong entity tag, 0 without: answers with the same are the same version.
    pub(crate) tag: u64,
}

/// The place of an answer among those of its key.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It is the newest one.
    Newest,
    /// There is a newer one: this one is only for the requests that wait for it.
    Outdated,
    /// It may be older or newer than another one: nothing of the URL is to be kept.
    Unclear,
}

impl Stamp {
    /// The place of this one beside another.
    fn beside(&self, other: &Self) -> Standing {
        use std::cmp::Ordering::{Greater, Less};
        if self.tag != 0 && self.tag == other.tag {
            return Standing::Newest;
        }
        if self.asked > other.answered {
            return Standing::Newest;
        }
        if other.asked > self.answered {
            return Standing::Outdated;
        }
        // A Date cannot order answers of one second. A purge between their requests cannot either:
        // the server may have answered the earlier one long after it.
        let heads = self.date.cmp(&other.date).then(self.answered.cmp(&other.answered));
        match (self.asked.cmp(&other.asked), heads) {
            (Less, Less) => Standing::Outdated,
            (Greater, Greater) => Standing::Newest,
            _ => Standing::Unclear,
        }
    }

    /// An answer newer than the result is newer than both.
    fn join(&self, other: &Self) -> Self {
        if self.asked > other.answered {
            return *self;
        }
        if other.asked > self.answered {
            return *other;
        }
        Self {
            asked: self.asked.max(other.asked),
            answered: self.answered.max(other.answered),
            date: self.date.max(other.date),
            tag: if self.tag == other.tag { self.tag } else { 0 },
        }
    }
}

/// The progress of an answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    /// Its body comes in.
    Coming,
    /// Its body is complete; it may not be in all places yet, and older ones may still be there.
    Complete,
    /// It was complete, and all that was to be written or removed for it was, at this time.
    Settled(u64),
}

#[derive(Copy, Clone, Debug)]
struct Note {
    key: Key,
    /// Of a Vary marker: answers of one marker stand beside each other. 0 for an answer.
    generation: u64,
    stamp: Stamp,
    identity: Option<Identity>,
    state: State,
    /// It is on its way into a directory, and nothing but the directory holds it up any more.
    is_committing: bool,
}

impl Note {
    /// The place of another answer beside this one. An answer that is still arriving may never be
    /// complete: until it is, it makes no other outdated.
    fn judge(&self, stamp: &Stamp) -> Standing {
        match stamp.beside(&self.stamp) {
            Standing::Outdated if self.state == State::Coming => Standing::Newest,
            standing => standing,
        }
    }
}

/// The facts about a URL.
#[derive(Debug, Default)]
struct Known {
    /// Fetches and reads that are on their way.
    holders: usize,
    /// An answer requested before this time is not stored.
    floor: u64,
    /// Tasks that remove the URL from directories now, those of them that have not reached all
    /// indexes yet, and the time of the last removal.
    voidings: usize,
    hidings: usize,
    voided: u64,
    notes: Vec<Note>,
}

impl Known {
    fn standing(&self, key: &Key, generation: u64, stamp: &Stamp) -> Standing {
        if stamp.asked < self.floor {
            return Standing::Outdated;
        }
        let others = self.notes.iter().filter(|note| {
            note.key == *key
                && note.stamp.answered != stamp.answered
                && (generation == 0 || note.generation != generation)
        });
        others.map(|note| note.judge(stamp)).max().unwrap_or(Standing::Newest)
    }

    fn change(&mut self, stamp: &Stamp, from: State, to: State) {
        let is_own = |note: &&mut Note| note.stamp.answered == stamp.answered && note.state == from;
        self.notes.iter_mut().filter(is_own).for_each(|note| note.state = to);
    }

    /// Turns the notes of an answer into the remembered ones, for those who were on their way
    /// meanwhile. Without any of these there are none: later requests get newer answers anyway.
    fn settle(&mut self, answered: u64, at: u64) {
        if self.holders == 1 {
            return self.notes.retain(|note| {
                note.stamp.answered != answered || matches!(note.state, State::Settled(_))
            });
        }
        let mut settled: Vec<Note> = Vec::new();
        self.notes.retain(|note| {
            let is_own =
                note.stamp.answered == answered && !matches!(note.state, State::Settled(_));
            if is_own {
                settled.push(*note);
            }
            !is_own
        });
        for note in settled.into_iter().filter(|note| note.state == State::Complete) {
            let Note { key, generation, stamp, .. } = note;
            let is_known = |note: &&mut Note| {
                note.key == key
                    && note.generation == generation
                    && matches!(note.state, State::Settled(_))
            };
            match self.notes.iter_mut().find(is_known) {
                Some(known) => {
                    let joint = known.stamp.join(&stamp);
                    if joint != known.stamp {
                        known.identity = note.identity.filter(|_| joint == stamp);
                    }
                    (known.stamp, known.state) = (joint, State::Settled(at));
                }
                None => {
                    self.notes.push(Note {
                        state: State::Settled(at),
                        is_committing: false,
                        ..note
                    });
                }
            }
        }
        self.shorten();
    }

    fn shorten(&mut self) {
        let is_settled = |note: &Note| matches!(note.state, State::Settled(_));
        while self.notes.iter().filter(|note| is_settled(note)).count() > NOTES_MAX {
            let settled = self.notes.iter().enumerate().filter(|(_, note)| is_settled(note));
            let Some((at, _)) = settled.min_by_key(|(_, note)| note.stamp.answered) else { return };
            let forgotten = self.notes.swap_remove(at);
            let State::Settled(time) = forgotten.state else { return };
            self.floor = self.floor.max(time.max(forgotten.stamp.answered) + 1);
        }
    }
}

/// Whether an answer may be made visible in a directory now.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Commit {
    Begun,
    /// Another one of its key is about to be, and would take its place.
    Waits,
    Outdated,
}

/// The answers of URLs that are being fetched or read. Shared by all cores.
#[derive(Debug)]
pub(crate) struct Versions {
    shards: Box<[Mutex<HashMap<Key, Known>>]>,
    time: AtomicU64,
    /// Told whenever an answer has been settled, or its commit has ended, or is not going to be
    /// after all.
    settled: Notify,
}

impl Default for Versions {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            time: AtomicU64::new(1),
            settled: Notify::new(),
        }
    }
}

impl Versions {
    fn shard(&self, primary: &Key) -> MutexGuard<'_, HashMap<Key, Known>> {
        self.shards[primary.low64() as usize & (SHARDS - 1)].lock()
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
    }

    /// A time that nothing else has.
    fn now(&self) -> u64 {
        self.time.fetch_add(1, Ordering::SeqCst)
    }

    fn hold(&self, primary: Key) -> u64 {
        let mut shard = self.shard(&primary);
        shard.entry(primary).or_default().holders += 1;
        self.now()
    }

    fn release(&self, primary: &Key) {
        let mut shard = self.shard(primary);
        let Some(known) = shard.get_mut(primary) else { return };
        known.holders -= 1;
        let forgotten = if known.holders == 0 { shard.remove(primary) } else { None };
        drop(shard);
        drop(forgotten);
    }

    /// Whether more than one fetch or read of the URL is on its way.
    pub(crate) fn has_others(&self, primary: &Key) -> bool {
        self.shard(primary).get(primary).is_some_and(|known| known.holders > 1)
    }

    /// Whether every complete answer has reached all its places, and nothing is being removed.
    fn is_settled(&self) -> bool {
        let is_at_rest = |known: &Known| {
            known.voidings == 0 && known.notes.iter().all(|note| note.state != State::Complete)
        };
        self.shards.iter().all(|shard| shard.lock().values().all(is_at_rest))
    }

    /// Resolves when that is so.
    pub(crate) async fn settled(&self) {
        loop {
            let mut settled = pin!(self.settled.notified());
            settled.as_mut().enable();
            if self.is_settled() {
                return;
            }
            settled.await;
        }
    }

    /// Runs `put` if an answer is the newest one of its key; no other is put in its place
    /// meanwhile. Without a stamp it is.
    pub(crate) fn while_newest<R>(
        &self,
        primary: &Key,
        key: &Key,
        generation: u64,
        stamp: Option<&Stamp>,
        put: impl FnOnce() -> R,
    ) -> Option<R> {
        let shard = self.shard(primary);
        let standing = shard
            .get(primary)
            .zip(stamp)
            .map_or(Standing::Newest, |(known, stamp)| known.standing(key, generation, stamp));
        (standing == Standing::Newest).then(put)
    }

    /// Runs `remove` while nothing of the URL is put anywhere.
    pub(crate) fn alone<R>(&self, primary: &Key, remove: impl FnOnce() -> R) -> R {
        let _shard = self.shard(primary);
        remove()
    }

    /// The answer is going to be made visible in a directory, if it is the newest one of its key.
    /// Another that is newer and comes later is not read from a directory before this one is
    /// settled, or its commit has ended, and does not get there before.
    pub(crate) fn begin_commit(
        &self,
        primary: &Key,
        key: &Key,
        generation: u64,
        stamp: &Stamp,
    ) -> Commit {
        let mut shard = self.shard(primary);
        let Some(known) = shard.get_mut(primary) else { return Commit::Begun };
        if known.standing(key, generation, stamp) != Standing::Newest {
            return Commit::Outdated;
        }
        let is_own = |note: &Note| note.stamp.answered == stamp.answered;
        if known.notes.iter().any(|note| note.key == *key && note.is_committing && !is_own(note)) {
            return Commit::Waits;
        }
        let own = known.notes.iter_mut().filter(|note| note.key == *key && is_own(note));
        own.for_each(|note| note.is_committing = true);
        Commit::Begun
    }

    /// The same, after those that have begun before.
    pub(crate) async fn commit_in_turn(
        &self,
        primary: &Key,
        key: &Key,
        generation: u64,
        stamp: &Stamp,
    ) -> Commit {
        loop {
            let mut settled = pin!(self.settled.notified());
            settled.as_mut().enable();
            match self.begin_commit(primary, key, generation, stamp) {
                Commit::Waits => settled.await,
                commit => return commit,
            }
        }
    }

    /// It is visible in a directory, or never will be, and whether it still was the newest one has
    /// been looked at since. The body of the fetch may take much longer, as that of a variant whose
    /// marker this was.
    pub(crate) fn end_commit(&self, primary: &Key, key: &Key, stamp: &Stamp) {
        if let Some(known) = self.shard(primary).get_mut(primary) {
            let is_own =
                |note: &&mut Note| note.key == *key && note.stamp.answered == stamp.answered;
            known.notes.iter_mut().filter(is_own).for_each(|note| note.is_committing = false);
        }
        self.settled.notify_waiters();
    }

    /// The records of a key that directories may show now.
    pub(crate) fn shown(&self, primary: &Key, key: &Key) -> Shown {
        let shard = self.shard(primary);
        let Some(known) = shard.get(primary) else { return Shown::All };
        if known.hidings > 0 {
            return Shown::Nothing;
        }
        let of_key = || known.notes.iter().filter(|note| note.key == *key);
        let is_unsettled = of_key().any(|note| match note.state {
            State::Complete => true,
            State::Settled(_) => of_key().any(|other| {
                other.is_committing && other.stamp.beside(&note.stamp) != Standing::Newest
            }),
            State::Coming => false,
        });
        if !is_unsettled {
            return Shown::All;
        }
        let mut newest = of_key().filter(|note| {
            note.state != State::Coming && known.standing(key, 0, &note.stamp) == Standing::Newest
        });
        match (newest.next().and_then(|note| note.identity), newest.next()) {
            (Some(identity), None) => Shown::Only(identity),
            _ => Shown::Nothing,
        }
    }
}

/// The records of a key that may be read from directories.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    All,
    /// The newest answer, which is complete. There may be older ones.
    Only(Identity),
    /// There may be older or void answers.
    Nothing,
}

impl Shown {
    pub(crate) fn has(&self, times: &Times) -> bool {
        match self {
            Self::All => true,
            Self::Only(identity) => Some(*identity) == identity_of(times),
            Self::Nothing => false,
        }
    }
}

/// Response time and serial number of a stored answer.
pub(crate) type Identity = (i64, u32);

pub(crate) fn identity_of(times: &Times) -> Option<Identity> {
    (times.serial != 0).then_some((times.response_time, times.serial))
}

/// A fetch, as far as its version goes. It belongs to the flow.
#[derive(Debug)]
pub(crate) struct Fetch {
    versions: Arc<Versions>,
    primary: Key,
    asked: AtomicU64,
    stamp: Mutex<Option<Stamp>>,
    is_announced: AtomicBool,
    /// Number of tasks that still have to write or remove a record for its answer.
    writing: AtomicUsize,
}

impl Fetch {
    pub(crate) fn new(versions: &Arc<Versions>, primary: Key) -> Self {
        Self {
            asked: AtomicU64::new(versions.hold(primary)),
            versions: Arc::clone(versions),
            primary,
            stamp: Mutex::new(None),
            is_announced: AtomicBool::new(false),
            writing: AtomicUsize::new(0),
        }
    }

    /// The request is sent now. Answers to earlier ones do not count, unless they have been
    /// announced.
    pub(crate) fn ask(&self) {
        if !self.is_announced() {
            self.asked.store(self.versions.now(), Ordering::SeqCst);
            *self.stamp.lock() = None;
        }
    }

    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// The head of the answer has come, with this Date and strong entity tag. The first one counts.
    pub(crate) fn answer(&self, date: i64, tag: Option<&[u8]>) -> Stamp {
        let tag = tag.map_or(0, |tag| Key::primary(tag).low64() | 1);
        let now = || Stamp { asked: self.asked(), answered: self.versions.now(), date, tag };
        *self.stamp.lock().get_or_insert_with(now)
    }

    pub(crate) fn stamp(&self) -> Option<Stamp> {
        *self.stamp.lock()
    }

    pub(crate) fn is_announced(&self) -> bool {
        self.is_announced.load(Ordering::SeqCst)
    }

    /// Notes an answer that is the newest one of all `keys`, each with the generation of a Vary
    /// marker or 0.
    pub(crate) fn announce(&self, keys: &[(Key, u64)]) -> Standing {
        let Some(stamp) = self.stamp() else { return Standing::Newest };
        let mut shard = self.versions.shard(&self.primary);
        let Some(known) = shard.get_mut(&self.primary) else { return Standing::Newest };
        let standings =
            keys.iter().map(|(key, generation)| known.standing(key, *generation, &stamp));
        let standing = standings.max().unwrap_or(Standing::Newest);
        if standing == Standing::Newest {
            let note = |&(key, generation): &(Key, u64)| Note {
                key,
                generation,
                stamp,
                identity: None,
                state: State::Coming,
                is_committing: false,
            };
            known.notes.extend(keys.iter().map(note));
            self.is_announced.store(true, Ordering::SeqCst);
        }
        standing
    }

    /// Its answer is complete, and later requests get nothing older. `remove` is called if it is
    /// the newest one of this key.
    pub(crate) fn complete(&self, key: &Key, remove: impl FnOnce()) {
        let (Some(stamp), true) = (self.stamp(), self.is_announced()) else { return };
        let mut shard = self.versions.shard(&self.primary);
        let Some(known) = shard.get_mut(&self.primary) else { return };
        known.change(&stamp, State::Coming, State::Complete);
        if known.standing(key, 0, &stamp) == Standing::Newest {
            remove();
        }
    }

    /// It is not complete after all.
    pub(crate) fn go_on(&self) {
        let Some(stamp) = self.stamp() else { return };
        if let Some(known) = self.versions.shard(&self.primary).get_mut(&self.primary) {
            known.change(&stamp, State::Complete, State::Coming);
            let own = known.notes.iter_mut().filter(|note| note.stamp.answered == stamp.answered);
            own.for_each(|note| note.is_committing = false);
        }
        self.versions.settled.notify_waiters();
    }

    /// The identity of its record in a directory.
    pub(crate) fn identify(&self, key: &Key, times: &Times) {
        let (Some(stamp), true) = (self.stamp(), self.is_announced()) else { return };
        let mut shard = self.versions.shard(&self.primary);
        let notes = shard.get_mut(&self.primary).into_iter().flat_map(|known| &mut known.notes);
        let own = notes.filter(|note| note.stamp.answered == stamp.answered && note.key == *key);
        own.for_each(|note| note.identity = identity_of(times));
    }

    pub(crate) fn begin_writing(&self) {
        self.writing.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn end_writing(&self) {
        if self.writing.fetch_sub(1, Ordering::SeqCst) > 1 || !self.is_announced() {
            return;
        }
        if let Some(stamp) = self.stamp() {
            let mut shard = self.versions.shard(&self.primary);
            let now = self.versions.now();
            if let Some(known) = shard.get_mut(&self.primary) {
                known.settle(stamp.answered, now);
            }
            drop(shard);
            self.versions.settled.notify_waiters();
        }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.versions.release(&self.primary);
    }
}

/// A read from a directory. Answers that arrive meanwhile are remembered.
#[derive(Debug)]
pub(crate) struct Reading {
    versions: Arc<Versions>,
    primary: Key,
    since: u64,
}

impl Reading {
    pub(crate) fn new(versions: &Arc<Versions>, primary: Key) -> Self {
        Self { since: versions.hold(primary), versions: Arc::clone(versions), primary }
    }

    /// Another one that began when this one did.
    pub(crate) fn again(&self) -> Self {
        _ = self.versions.hold(self.primary);
        Self { versions: Arc::clone(&self.versions), ..*self }
    }

    /// Runs `put` unless another answer of this key has come since, or comes now, or the URL was
    /// purged; none of that happens meanwhile.
    pub(crate) fn while_newest<R>(&self, key: &Key, put: impl FnOnce() -> R) -> Option<R> {
        let shard = self.versions.shard(&self.primary);
        let is_newest = shard.get(&self.primary).is_none_or(|known| {
            let mut of_key = known.notes.iter().filter(|note| note.key == *key);
            known.floor <= self.since
                && known.voidings == 0
                && known.voided <= self.since
                && of_key.all(|note| matches!(note.state, State::Settled(at) if at < self.since))
        });
        is_newest.then(put)
    }

    /// Whether another answer of this key has become complete since.
    pub(crate) fn is_outdated(&self, key: &Key) -> bool {
        let shard = self.versions.shard(&self.primary);
        shard.get(&self.primary).is_some_and(|known| {
            known.notes.iter().filter(|note| note.key == *key).any(|note| match note.state {
                State::Coming => false,
                State::Complete => true,
                State::Settled(at) => at > self.since,
            })
        })
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.versions.release(&self.primary);
    }
}

#[cfg(test)]
mod tests;
