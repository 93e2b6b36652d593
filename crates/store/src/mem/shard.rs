//! One part of the memory tier: a table, its entries and their order of replacement, behind one lock.

use hashbrown::HashTable;

use crate::key::Key;

use super::Entry;
use super::policy::{MemoryPolicy, NONE, Policy};

/// One entry with its place in the policy's lists. 64 bytes.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) key: Key,
    /// `None` while the slot is free.
    entry: Option<Entry>,
    boxed_bytes: u32,
    page_bytes: u32,
    pub(super) newer: u32,
    pub(super) older: u32,
    /// Logical time of the last access that the policy cares about.
    pub(super) stamp: u32,
    pub(super) frequency: u8,
    pub(super) in_main: bool,
}

impl Slot {
    /// Memory that removing the entry frees.
    pub(super) fn cost(&self) -> u64 {
        u64::from(self.boxed_bytes) + u64::from(self.page_bytes)
    }
}

/// What left a shard, to be dropped outside its lock.
#[derive(Debug)]
pub(super) struct Removed {
    pub(super) entry: Entry,
    pub(super) boxed_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Shard {
    table: HashTable<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    policy: Policy,
}

impl Shard {
    pub(super) fn new(policy: MemoryPolicy) -> Self {
        Self { table: HashTable::new(), slots: Vec::new(), free: Vec::new(), policy: Policy::new(policy) }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    fn find(&self, hash: u64, key: &Key) -> Option<u32> {
        self.table.find(hash, |&index| self.slots[index as usize].key == *key).copied()
    }

    pub(super) fn contains(&self, hash: u64, key: &Key) -> bool {
        self.find(hash, key).is_some()
    }

    /// A look-up that counts as an access. Also says whether [`Shard::oldest_stamp`] may have changed.
    pub(super) fn get(&mut self, hash: u64, key: &Key, now: u32) -> Option<(Entry, bool)> {
        let index = self.find(hash, key)?;
        let was_oldest = self.policy.oldest() == Some(index);
        self.policy.touch(&mut self.slots, index, now);
        Some((self.slots[index as usize].entry.clone()?, was_oldest))
    }

    /// Adds an entry; returns the one it replaces.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        key: Key,
        entry: Entry,
        now: u32,
        rehash: impl Fn(&Key) -> u64,
    ) -> Option<Removed> {
        let replaced = self.remove(hash, &key);
        let slot = Slot {
            key,
            // Objects are bounded far below 4 GiB by the tier's limits.
            boxed_bytes: u32::try_from(entry.boxed_bytes()).unwrap_or(u32::MAX),
            page_bytes: u32::try_from(entry.page_bytes()).unwrap_or(u32::MAX),
            entry: Some(entry),
            newer: NONE,
            older: NONE,
            stamp: now,
            frequency: 0,
            in_main: false,
        };
        let index = match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        };
        let slots = &self.slots;
        self.table.insert_unique(hash, index, |&index| rehash(&slots[index as usize].key));
        self.policy.admit(&mut self.slots, index);
        replaced
    }

    pub(super) fn remove(&mut self, hash: u64, key: &Key) -> Option<Removed> {
        let slots = &self.slots;
        let found = self.table.find_entry(hash, |&index| slots[index as usize].key == *key).ok()?;
        let (index, _) = found.remove();
        self.policy.remove(&mut self.slots, index);
        self.release(index)
    }

    /// Removes what the policy likes least.
    pub(super) fn evict(&mut self, now: u32, rehash: impl Fn(&Key) -> u64) -> Option<Removed> {
        let index = self.policy.evict(&mut self.slots, self.table.len(), now)?;
        let hash = rehash(&self.slots[index as usize].key);
        if let Ok(found) = self.table.find_entry(hash, |&other| other == index) {
            found.remove();
        }
        self.release(index)
    }

    fn release(&mut self, index: u32) -> Option<Removed> {
        let slot = &mut self.slots[index as usize];
        let entry = slot.entry.take()?;
        let boxed_bytes = u64::from(slot.boxed_bytes);
        self.free.push(index);
        if self.table.is_empty() {
            // An empty shard gives back what a full one needed.
            self.slots = Vec::new();
            self.free = Vec::new();
            self.table = HashTable::new();
        }
        Some(Removed { entry, boxed_bytes })
    }

    /// Logical time of the entry that would leave first.
    pub(super) fn oldest_stamp(&self) -> Option<u32> {
        self.policy.oldest().map(|index| self.slots[index as usize].stamp)
    }

    /// Changes the policy and keeps the entries in their order.
    pub(super) fn set_policy(&mut self, policy: MemoryPolicy) {
        let order = self.policy.newest_first(&self.slots);
        self.policy = Policy::new(policy);
        for index in order.into_iter().rev() {
            self.policy.admit(&mut self.slots, index);
        }
    }
}
