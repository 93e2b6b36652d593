//! The flows that requests can join, by key.

use std::sync::Arc;

use hashbrown::HashMap;

use super::Flow;
use crate::key::Key;
use crate::sync::{Mutex, MutexGuard};

/// Shards of the table, a power of two.
const SHARDS: usize = 64;

type Shard = HashMap<Key, Arc<Flow>>;

/// Flows by key. Shared by all cores.
#[derive(Debug)]
pub(crate) struct Table {
    shards: Box<[Mutex<Shard>]>,
}

impl Default for Table {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl Table {
    /// The part of the table that has this key.
    pub(crate) fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        self.shards[key.high64() as usize & (SHARDS - 1)].lock()
    }

    /// There is an answer: no request joins another flow of this key that was requested before this
    /// time.
    pub(super) fn retire(&self, key: &Key, newer: &Arc<Flow>, time: u64) {
        let mut shard = self.shard(key);
        let is_older = |found: &Arc<Flow>| !Arc::ptr_eq(found, newer) && found.is_from_before(time);
        let retired = if shard.get(key).is_some_and(is_older) { shard.remove(key) } else { None };
        drop(shard);
        drop(retired);
    }

    /// Removes a flow, unless another one has taken its place.
    pub(super) fn remove(&self, flow: &Arc<Flow>) {
        let mut shard = self.shard(&flow.key());
        let removed = match shard.get(&flow.key()) {
            Some(found) if Arc::ptr_eq(found, flow) => shard.remove(&flow.key()),
            _ => None,
        };
        drop(shard);
        drop(removed);
    }

    /// Flows that can be joined now.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}
