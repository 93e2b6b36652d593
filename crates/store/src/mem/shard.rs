//! One part of the memory tier: a table, its entries and their order of replacement, behind one
//! lock.

use hashbrown::HashTable;

use humboldt_policy::{Clock, NONE, Nodes, Order, Policy, Rank};

use crate::key::Key;

use super::Entry;

/// One entry with its place in the order of replacement. 64 bytes.
#[derive(Debug)]
struct Slot {
    key: Key,
    /// `None` while the slot is free.
    entry: Option<Entry>,
    boxed_bytes: u32,
    page_bytes: u32,
    newer: u32,
    older: u32,
    stamp: u32,
    mark: u8,
}

impl Slot {
    fn new(key: Key, entry: Entry) -> Self {
        Self {
            key,
            // Objects are bounded far below 4 GiB by the tier's limits.
            boxed_bytes: u32::try_from(entry.boxed_bytes()).unwrap_or(u32::MAX),
            page_bytes: u32::try_from(entry.page_bytes()).unwrap_or(u32::MAX),
            entry: Some(entry),
            newer: NONE,
            older: NONE,
            stamp: 0,
            mark: 0,
        }
    }

    /// Memory that removing the entry frees.
    fn cost_bytes(&self) -> u64 {
        u64::from(self.boxed_bytes) + u64::from(self.page_bytes)
    }
}

#[derive(Debug, Default)]
struct Slots(Vec<Slot>);

impl Slots {
    fn slot(&self, at: u32) -> &Slot {
        &self.0[at as usize]
    }

    fn slot_mut(&mut self, at: u32) -> &mut Slot {
        &mut self.0[at as usize]
    }
}

impl Nodes for Slots {
    fn newer(&self, at: u32) -> u32 {
        self.slot(at).newer
    }
    fn set_newer(&mut self, at: u32, to: u32) {
        self.slot_mut(at).newer = to;
    }
    fn older(&self, at: u32) -> u32 {
        self.slot(at).older
    }
    fn set_older(&mut self, at: u32, to: u32) {
        self.slot_mut(at).older = to;
    }
    fn stamp(&self, at: u32) -> u32 {
        self.slot(at).stamp
    }
    fn set_stamp(&mut self, at: u32, to: u32) {
        self.slot_mut(at).stamp = to;
    }
    fn mark(&self, at: u32) -> u8 {
        self.slot(at).mark
    }
    fn set_mark(&mut self, at: u32, to: u8) {
        self.slot_mut(at).mark = to;
    }
    fn cost_bytes(&self, at: u32) -> u64 {
        self.slot(at).cost_bytes()
    }
    fn hash(&self, at: u32) -> u64 {
        self.slot(at).key.low64()
    }
}

/// Entries that left a shard, to be dropped outside its lock.
#[derive(Debug)]
pub(super) struct Removed {
    pub(super) entry: Entry,
    pub(super) boxed_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Shard {
    table: HashTable<u32>,
    slots: Slots,
    free: Vec<u32>,
    order: Order,
}

impl Shard {
    pub(super) fn new(policy: Policy) -> Self {
        Self {
            table: HashTable::new(),
            slots: Slots::default(),
            free: Vec::new(),
            order: Order::new(policy),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    fn find(&self, hash: u64, key: &Key) -> Option<u32> {
        self.table.find(hash, |&at| self.slots.slot(at).key == *key).copied()
    }

    pub(super) fn contains(&self, hash: u64, key: &Key) -> bool {
        self.find(hash, key).is_some()
    }

    /// A look-up that does not count as an access.
    pub(super) fn peek(&self, hash: u64, key: &Key) -> Option<&Entry> {
        self.slots.slot(self.find(hash, key)?).entry.as_ref()
    }

    /// A look-up that counts as an access. Also returns whether [`Shard::rank`] may have changed.
    pub(super) fn get(&mut self, hash: u64, key: &Key, clock: &Clock) -> Option<(Entry, bool)> {
        let at = self.find(hash, key)?;
        let has_changed = self.order.touch(&mut self.slots, at, clock);
        Some((self.slots.slot(at).entry.clone()?, has_changed))
    }

    /// Adds an entry; returns the one it replaces. A new entry of a known key is a use of it.
    pub(super) fn insert(
        &mut self,
        hash: u64,
        key: Key,
        entry: Entry,
        clock: &Clock,
        rehash: impl Fn(&Key) -> u64,
    ) -> Option<Removed> {
        if let Some(at) = self.find(hash, &key) {
            return self.replace(at, entry, clock);
        }
        let slot = Slot::new(key, entry);
        let at = match self.free.pop() {
            Some(at) => {
                *self.slots.slot_mut(at) = slot;
                at
            }
            None => {
                self.slots.0.push(slot);
                (self.slots.0.len() - 1) as u32
            }
        };
        let slots = &self.slots;
        self.table.insert_unique(hash, at, |&at| rehash(&slots.slot(at).key));
        self.order.admit(&mut self.slots, at, clock);
        None
    }

    fn replace(&mut self, at: u32, entry: Entry, clock: &Clock) -> Option<Removed> {
        let slot = self.slots.slot_mut(at);
        let (before_bytes, boxed_bytes) = (slot.cost_bytes(), u64::from(slot.boxed_bytes));
        let Slot { newer, older, stamp, mark, .. } = *slot;
        let new = Slot { newer, older, stamp, mark, ..Slot::new(slot.key, entry) };
        let old = std::mem::replace(slot, new);
        self.order.resize(&self.slots, at, before_bytes);
        self.order.touch(&mut self.slots, at, clock);
        Some(Removed { entry: old.entry?, boxed_bytes })
    }

    pub(super) fn remove(&mut self, hash: u64, key: &Key, clock: &Clock) -> Option<Removed> {
        let slots = &self.slots;
        let found = self.table.find_entry(hash, |&at| slots.slot(at).key == *key).ok()?;
        let (at, _) = found.remove();
        self.order.remove(&mut self.slots, at, clock);
        self.release(at)
    }

    /// Removes the entry that the policy ranks lowest.
    pub(super) fn evict(&mut self, clock: &Clock, rehash: impl Fn(&Key) -> u64) -> Option<Removed> {
        let at = self.order.evict(&mut self.slots, clock)?;
        let hash = rehash(&self.slots.slot(at).key);
        if let Ok(found) = self.table.find_entry(hash, |&other| other == at) {
            found.remove();
        }
        self.release(at)
    }

    fn release(&mut self, at: u32) -> Option<Removed> {
        let slot = self.slots.slot_mut(at);
        let entry = slot.entry.take()?;
        let boxed_bytes = u64::from(slot.boxed_bytes);
        self.free.push(at);
        if self.table.is_empty() {
            // An empty shard gives back the memory that a full one needed.
            self.slots = Slots::default();
            self.free = Vec::new();
            self.table = HashTable::new();
        }
        Some(Removed { entry, boxed_bytes })
    }

    /// How urgently the entry that would leave first should leave.
    pub(super) fn rank(&self) -> Rank {
        self.order.rank(&self.slots)
    }

    /// Changes the policy and keeps the entries in their order.
    pub(super) fn set_policy(&mut self, policy: Policy, clock: &Clock) {
        let mut slots = Vec::with_capacity(self.len());
        self.order.for_each(&self.slots, clock, |at| slots.push(at));
        self.order = Order::new(policy);
        for at in slots {
            self.order.admit(&mut self.slots, at, clock);
        }
    }
}
