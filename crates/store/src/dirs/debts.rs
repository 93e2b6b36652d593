//! Removals that a directory owes, and keys that nobody may find in it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize};

use humboldt_base::clock::UnixMillis;
use humboldt_freshness::{AHEAD_S_MAX, Times};
use parking_lot::Mutex;

use crate::key::Key;

/// Most removals that a directory may owe. One that owes more stays out of service until it is
/// emptied.
pub const DEBTS_MAX: usize = 65_536;

/// Most keys that are hidden in a directory. Further ones are removed from it at once, which costs
/// a write each. Where that is impossible, because the directory is out of service or not
/// configured, nothing that it has now is found any more.
pub const HIDDEN_MAX: usize = 65_536;

/// This many hidden keys are removed at the same time.
const HIDDEN_AT_ONCE: usize = 256;

/// As many of the newest answers of a directory are remembered, for the case that it fails. No
/// scheme has more of them in memory only: an object has at least a head.
const RECENT_MAX: usize = 65_536;

/// Keys that a directory has yet to remove, because it was down or not configured. It is not used
/// before it has removed them: a purged object must not return.
#[derive(Default)]
pub(super) struct Debts {
    /// In an order that repeats: a simulation's seed must decide which key is removed first.
    pub(super) keys: Mutex<BTreeSet<Key>>,
    pub(super) count: AtomicUsize,
    pub(super) overflowed: AtomicBool,
    pub(super) hidden: Hidden,
    pub(super) recent: Recent,
    /// Removals from its disk without a waiting request.
    pub(super) voids: AtomicUsize,
}

/// The keys of the newest answers that the directory has: it may not have written them yet.
#[derive(Default)]
pub(super) struct Recent {
    keys: Mutex<VecDeque<Key>>,
}

impl Recent {
    pub(super) fn add(&self, key: Key) {
        let mut keys = self.keys.lock();
        if keys.len() == RECENT_MAX {
            keys.pop_front();
        }
        keys.push_back(key);
    }
}

/// Keys that nobody finds in the directory. A newer answer has replaced them while its index was
/// being read, or while it was out of service or not configured; it may have the older record. They
/// are removed when the index is complete, or before the directory is closed.
#[derive(Default)]
pub(super) struct Hidden {
    /// In an order that repeats, as those of [`Debts`].
    pub(super) keys: Mutex<BTreeSet<Key>>,
    pub(super) count: AtomicUsize,
    /// There were too many: records that arrived until then are hidden too, in unix seconds. 0 if
    /// there never were.
    pub(super) until_s: AtomicI64,
}

impl Hidden {
    /// Hides a key, and all keys if there are too many.
    pub(super) fn add_or_all(&self, key: Key) {
        if !self.add(key) {
            self.hide_all();
        }
    }

    /// Hides all that the directory has now.
    pub(super) fn hide_all(&self) {
        let until_s = UnixMillis::now().secs().saturating_add(AHEAD_S_MAX);
        self.until_s.fetch_max(until_s, Relaxed);
    }

    /// Whether all records are hidden that arrived when this one did.
    pub(super) fn holds_all(&self, times: &Times) -> bool {
        let until_s = self.until_s.load(Relaxed);
        until_s != 0 && times.response_time <= until_s
    }

    /// `false`: there are too many.
    pub(super) fn add(&self, key: Key) -> bool {
        let mut keys = self.keys.lock();
        let has_room = keys.len() < HIDDEN_MAX || keys.contains(&key);
        if has_room {
            keys.insert(key);
        }
        self.count.store(keys.len(), Relaxed);
        has_room
    }

    pub(super) fn remove(&self, key: &Key) {
        if self.count.load(Relaxed) > 0 {
            let mut keys = self.keys.lock();
            keys.remove(key);
            self.count.store(keys.len(), Relaxed);
        }
    }

    pub(super) fn holds(&self, key: &Key) -> bool {
        self.count.load(Relaxed) > 0 && self.keys.lock().contains(key)
    }

    pub(super) fn some(&self) -> Vec<Key> {
        self.keys.lock().iter().copied().take(HIDDEN_AT_ONCE).collect()
    }
}

impl Debts {
    /// Hides the newest answers, as they may be lost, and older ones be there instead.
    pub(super) fn doubt_recent(&self) {
        let recent = std::mem::take(&mut *self.recent.keys.lock());
        recent.into_iter().for_each(|key| self.hidden.add_or_all(key));
    }

    pub(super) fn add(&self, key: Key) {
        let mut keys = self.keys.lock();
        if keys.len() < DEBTS_MAX {
            keys.insert(key);
        } else {
            self.overflowed.store(true, Relaxed);
        }
        self.count.store(keys.len(), Relaxed);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }
}
