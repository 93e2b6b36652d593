//! Removals that a directory owes, and keys that nobody may find in it.

use std::collections::BTreeSet;
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

/// So many hidden keys are removed at the same time.
const HIDDEN_AT_ONCE: usize = 256;

/// Keys that a directory has yet to remove, because it was down or not configured. It is not used
/// before it has removed them: a purged object must not return.
#[derive(Default)]
pub(super) struct Debts {
    /// In an order that repeats: a simulation's seed must decide which key is removed first.
    pub(super) keys: Mutex<BTreeSet<Key>>,
    pub(super) count: AtomicUsize,
    pub(super) overflowed: AtomicBool,
    pub(super) hidden: Hidden,
    /// Removals from its disk without a waiting request.
    pub(super) voids: AtomicUsize,
}

/// Keys for which a newer answer arrived while the index was being read, or the directory was out
/// of service or not configured, and did not get into the directory: no request finds the older
/// records that the reading finds. They are removed when the index is complete, or before the
/// directory is closed.
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
