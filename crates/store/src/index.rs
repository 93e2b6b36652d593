//! The common index of the file schemes: key → file number, size, flags, in the order of a
//! replacement policy.
//!
//! At most 48 bytes an object with any policy, everything included, from a million objects on
//! (`cargo run --release -p humboldt-store --example index_memory`): a slot of 32 bytes in a
//! chunked slab, 5 bytes a bucket in a hash table of slot numbers, and at most 5 bytes of the
//! policy's own.
//!
//! The index is split into 8 to 128 parts by key ([`FileIndex::sized`]), each under its own short
//! lock and with an order of its own. The victim is the first candidate of all parts while there
//! are few objects, and of a few parts when there are many. A part of a few dozen objects has
//! little to choose from: `s3fifo`, `sieve` and `tinylfu` lose hits then.
//!
//! A slot holds 96 of the 128 bits of a key: a record on disk carries all of them and is compared
//! on every open. The lowest three bits of the third word follow from the part; in the slot their
//! place belongs to the policy's mark.

use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashTable;
use humboldt_policy::{Clock, NONE, Nodes, Order, Policy};

use crate::key::Key;
use crate::sync::{Mutex, MutexGuard};

/// Slots are allocated in chunks of this many (4 KiB).
const CHUNK_SLOTS: usize = 128;

/// Up to this many objects, the order is that of all parts together.
const EXACT_OBJECTS_MAX: usize = 4096;

/// With more objects, the victim is sought in this many parts.
const VICTIM_SHARDS: usize = 4;

/// Uses are counted modulo 2^24.
const STAMP_BITS: u32 = 24;

/// Bits of the third word of a key that are the same for a whole part, however few parts there are.
/// In a slot they are the lower bits of the mark.
const IMPLIED_BITS: u32 = 3;
const IMPLIED_MASK: u32 = (1 << IMPLIED_BITS) - 1;

/// Bits of a link; above it are the upper bits of the mark.
const LINK_BITS: u32 = 28;
const LINK_MASK: u32 = (1 << LINK_BITS) - 1;

/// Most slots of a part: the number after them means "none".
const SLOTS_MAX: usize = LINK_MASK as usize;

/// Objects that a part should have at least, in the end.
const OBJECTS_PER_SHARD: u64 = 256;

/// Bytes of one of [`FileEntry::size_units`].
const UNIT_BYTES: u64 = 512;

/// The part of a [`Key`] that the index keeps: its lower 96 bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndexKey([u32; 3]);

impl IndexKey {
    /// Length of the serialised form.
    pub const BYTES: usize = 12;

    /// The 96 bits, little-endian.
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (part, word) in bytes.chunks_exact_mut(4).zip(self.0) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The reverse of [`IndexKey::to_bytes`].
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let mut words = [0; 3];
        for (word, part) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes([part[0], part[1], part[2], part[3]]);
        }
        Self(words)
    }

    /// A key is a hash already.
    fn hash(self) -> u64 {
        u64::from(self.0[0]) << 32 | u64::from(self.0[1])
    }
}

impl From<&Key> for IndexKey {
    fn from(key: &Key) -> Self {
        Self([key.0 as u32, (key.0 >> 32) as u32, (key.0 >> 64) as u32])
    }
}

/// The facts about one object in the index.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FileEntry {
    /// Number of its file in the directory.
    pub file: u32,
    /// Length of the file in units of 512 bytes.
    pub size_units: u32,
    /// For the scheme's use.
    pub flags: u8,
}

/// An index of file numbers by key. Shared by all cores.
pub struct FileIndex {
    shards: Box<[Mutex<Shard>]>,
    /// The next part for [`FileIndex::pop_victim`].
    next_victim_shard: AtomicUsize,
    /// Counts uses.
    clock: Clock,
    objects: AtomicUsize,
}

impl FileIndex {
    /// Most independently locked parts.
    pub const SHARDS: usize = 128;

    /// An empty index for any number of objects.
    pub fn new(policy: Policy) -> Self {
        Self::sized(policy, u64::MAX)
    }

    /// An empty index for about `objects_expected`. It grows as needed, up to 2^28 − 1 objects in
    /// each part; one more is refused. With few objects it has few parts, so that each has some to
    /// choose from.
    pub fn sized(policy: Policy, objects_expected: u64) -> Self {
        let wanted = usize::try_from(objects_expected / OBJECTS_PER_SHARD).unwrap_or(Self::SHARDS);
        // The largest power of two that leaves each part enough.
        let parts = 1 << wanted.clamp(1 << IMPLIED_BITS, Self::SHARDS).ilog2();
        let shards = (0..parts).map(|_| Mutex::new(Shard::new(policy))).collect();
        Self {
            shards,
            next_victim_shard: AtomicUsize::new(0),
            clock: Clock::default(),
            objects: AtomicUsize::new(0),
        }
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.objects.load(Ordering::Relaxed)
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory in use, heap included. Takes every lock in turn.
    pub fn memory_bytes(&self) -> usize {
        let heap: usize = self.shards.iter().map(|shard| shard.lock().heap_bytes()).sum();
        size_of::<Self>() + size_of_val(&*self.shards) + heap
    }

    /// Looks a key up and counts a use.
    pub fn get(&self, key: IndexKey) -> Option<FileEntry> {
        let mut shard = self.shard(key);
        let at = shard.find(key)?;
        self.clock.tick();
        shard.touch(at, &self.clock);
        Some(shard.slots.slot(at).entry())
    }

    /// Looks a key up without counting it as a use.
    pub fn peek(&self, key: IndexKey) -> Option<FileEntry> {
        let shard = self.shard(key);
        shard.find(key).map(|at| shard.slots.slot(at).entry())
    }

    /// Makes `entry` the object of `key`; returns the one that it replaces, whose uses it inherits.
    pub fn insert(&self, key: IndexKey, entry: FileEntry) -> Option<FileEntry> {
        let mut shard = self.shard(key);
        self.clock.tick();
        if let Some(at) = shard.find(key) {
            let old = shard.set(at, entry);
            shard.touch(at, &self.clock);
            return Some(old);
        }
        if shard.add(key, entry, &self.clock) {
            self.objects.fetch_add(1, Ordering::Relaxed);
        }
        None
    }

    /// Removes a key.
    pub fn remove(&self, key: IndexKey) -> Option<FileEntry> {
        self.remove_where(key, |_| true)
    }

    /// Removes a key if its object is still in file `file`.
    pub fn remove_if(&self, key: IndexKey, file: u32) -> Option<FileEntry> {
        self.remove_where(key, |entry| entry.file == file)
    }

    /// Replaces `old` by `new`, if the object of `key` is still exactly `old`; this is not a use.
    pub fn replace_if(&self, key: IndexKey, old: FileEntry, new: FileEntry) -> bool {
        let mut shard = self.shard(key);
        let Some(at) = shard.find(key).filter(|at| shard.slots.slot(*at).entry() == old) else {
            return false;
        };
        shard.set(at, new);
        true
    }

    /// Removes and returns the object that leaves first: exactly that one of each part's order. Of
    /// all parts together it is exact up to 4096 objects, and nearly so beyond.
    pub fn pop_victim(&self) -> Option<(IndexKey, FileEntry)> {
        let parts = self.shards.len();
        let looked_at = if self.len() <= EXACT_OBJECTS_MAX { parts } else { VICTIM_SHARDS };
        let first = self.next_victim_shard.fetch_add(looked_at, Ordering::Relaxed);
        let urgency = |at: &usize| self.shards[at % parts].lock().urgency(&self.clock);
        let most = (first..first + looked_at)
            .filter_map(|at| urgency(&at).map(|urgency| (urgency, at)))
            .max();
        // Between two looks the part may have been emptied: then any other will do.
        let start = most.map_or(first, |(_, at)| at);
        (start..start + parts).find_map(|at| self.pop_victim_of(at % parts))
    }

    fn pop_victim_of(&self, shard: usize) -> Option<(IndexKey, FileEntry)> {
        let victim = self.shards[shard].lock().evict(shard, &self.clock)?;
        self.objects.fetch_sub(1, Ordering::Relaxed);
        Some(victim)
    }

    /// Appends the objects of part `shard` (below [`FileIndex::SHARDS`]) to `out`, those first that
    /// would leave first: to insert them into a new index in this sequence restores the order
    /// nearly. Counts of uses are lost.
    pub fn snapshot(&self, shard: usize, out: &mut Vec<(IndexKey, FileEntry)>) {
        let Some(part) = self.shards.get(shard) else { return };
        let part = part.lock();
        out.reserve(part.table.len());
        part.order.for_each(&part.slots, &self.clock, |at| {
            let slot = part.slots.slot(at);
            out.push((slot.key(shard), slot.entry()));
        });
    }

    fn remove_where(
        &self,
        key: IndexKey,
        condition: impl Fn(FileEntry) -> bool,
    ) -> Option<FileEntry> {
        let mut shard = self.shard(key);
        let at = shard.find(key)?;
        let entry = shard.slots.slot(at).entry();
        if !condition(entry) {
            return None;
        }
        shard.remove(at, &self.clock);
        self.objects.fetch_sub(1, Ordering::Relaxed);
        Some(entry)
    }

    fn shard(&self, key: IndexKey) -> MutexGuard<'_, Shard> {
        // The number of parts is a power of two.
        self.shards[key.0[2] as usize & (self.shards.len() - 1)].lock()
    }
}

/// One object. A free slot is linked by `older`.
#[derive(Copy, Clone)]
struct Slot {
    key: [u32; 2],
    /// The third word of the key, with the lower bits of the mark in place of those that follow
    /// from the part.
    key_and_mark: u32,
    file: u32,
    size_units: u32,
    older: u32,
    /// A link, and the upper bits of the mark.
    newer_and_mark: u32,
    /// The lower 24 bits of when it was last used, and 8 bits of flags.
    stamp_and_flags: u32,
}

const _: () = assert!(
    size_of::<Slot>() == 32
        && humboldt_policy::MARK_MAX as u32 >> IMPLIED_BITS <= NONE >> LINK_BITS
);

impl Slot {
    const EMPTY: Self = Self {
        key: [0; 2],
        key_and_mark: 0,
        file: 0,
        size_units: 0,
        older: NONE,
        newer_and_mark: LINK_MASK,
        stamp_and_flags: 0,
    };

    fn entry(&self) -> FileEntry {
        FileEntry {
            file: self.file,
            size_units: self.size_units,
            flags: self.stamp_and_flags as u8,
        }
    }

    fn set(&mut self, entry: FileEntry) {
        self.file = entry.file;
        self.size_units = entry.size_units;
        self.stamp_and_flags = self.stamp_and_flags & !0xFF | u32::from(entry.flags);
    }

    fn key(&self, shard: usize) -> IndexKey {
        IndexKey([
            self.key[0],
            self.key[1],
            self.key_and_mark & !IMPLIED_MASK | shard as u32 & IMPLIED_MASK,
        ])
    }

    /// Whether this is the slot of a key that belongs to this part.
    fn is(&self, key: IndexKey) -> bool {
        let [first, second, third] = key.0;
        self.key == [first, second] && (self.key_and_mark ^ third) & !IMPLIED_MASK == 0
    }

    /// [`IndexKey::hash`]
    fn hash(&self) -> u64 {
        IndexKey([self.key[0], self.key[1], 0]).hash()
    }
}

#[derive(Default)]
struct Slots(Vec<Box<[Slot; CHUNK_SLOTS]>>);

impl Slots {
    fn slot(&self, at: u32) -> &Slot {
        &self.0[at as usize / CHUNK_SLOTS][at as usize % CHUNK_SLOTS]
    }

    fn slot_mut(&mut self, at: u32) -> &mut Slot {
        &mut self.0[at as usize / CHUNK_SLOTS][at as usize % CHUNK_SLOTS]
    }
}

impl Nodes for Slots {
    const STAMP_BITS: u32 = STAMP_BITS;

    fn newer(&self, at: u32) -> u32 {
        match self.slot(at).newer_and_mark & LINK_MASK {
            LINK_MASK => NONE,
            link => link,
        }
    }
    fn set_newer(&mut self, at: u32, to: u32) {
        let slot = self.slot_mut(at);
        slot.newer_and_mark = slot.newer_and_mark & !LINK_MASK | to & LINK_MASK;
    }
    fn older(&self, at: u32) -> u32 {
        self.slot(at).older
    }
    fn set_older(&mut self, at: u32, to: u32) {
        self.slot_mut(at).older = to;
    }
    fn stamp(&self, at: u32) -> u32 {
        self.slot(at).stamp_and_flags >> (32 - STAMP_BITS)
    }
    fn set_stamp(&mut self, at: u32, to: u32) {
        let slot = self.slot_mut(at);
        slot.stamp_and_flags = to << (32 - STAMP_BITS) | slot.stamp_and_flags & 0xFF;
    }
    fn mark(&self, at: u32) -> u8 {
        let slot = self.slot(at);
        (slot.newer_and_mark >> LINK_BITS << IMPLIED_BITS | slot.key_and_mark & IMPLIED_MASK) as u8
    }
    fn set_mark(&mut self, at: u32, to: u8) {
        let (slot, to) = (self.slot_mut(at), u32::from(to));
        slot.key_and_mark = slot.key_and_mark & !IMPLIED_MASK | to & IMPLIED_MASK;
        slot.newer_and_mark = slot.newer_and_mark & LINK_MASK | to >> IMPLIED_BITS << LINK_BITS;
    }
    fn cost_bytes(&self, at: u32) -> u64 {
        u64::from(self.slot(at).size_units) * UNIT_BYTES
    }
    fn hash(&self, at: u32) -> u64 {
        self.slot(at).hash()
    }
}

struct Shard {
    /// Slot numbers by key.
    table: HashTable<u32>,
    slots: Slots,
    order: Order,
    free: u32,
}

impl Shard {
    fn new(policy: Policy) -> Self {
        Self {
            table: HashTable::new(),
            slots: Slots::default(),
            order: Order::new(policy),
            free: NONE,
        }
    }

    fn find(&self, key: IndexKey) -> Option<u32> {
        self.table.find(key.hash(), |at| self.slots.slot(*at).is(key)).copied()
    }

    /// Adds a key that is known not to be there, unless all slots that there may be are taken.
    fn add(&mut self, key: IndexKey, entry: FileEntry, clock: &Clock) -> bool {
        if self.free == NONE {
            self.grow();
        }
        let at = self.free;
        if at == NONE {
            return false;
        }
        let slot = self.slots.slot_mut(at);
        self.free = slot.older;
        let [first, second, third] = key.0;
        (slot.key, slot.key_and_mark) = ([first, second], third & !IMPLIED_MASK);
        slot.set(entry);
        self.order.admit(&mut self.slots, at, clock);
        let Self { table, slots, .. } = self;
        table.insert_unique(key.hash(), at, |other| slots.slot(*other).hash());
        true
    }

    /// Gives the object of a slot another file, and returns the former one.
    fn set(&mut self, at: u32, entry: FileEntry) -> FileEntry {
        let (old, before_bytes) = (self.slots.slot(at).entry(), self.slots.cost_bytes(at));
        self.slots.slot_mut(at).set(entry);
        self.order.resize(&self.slots, at, before_bytes);
        old
    }

    fn touch(&mut self, at: u32, clock: &Clock) {
        self.order.touch(&mut self.slots, at, clock);
    }

    fn remove(&mut self, at: u32, clock: &Clock) {
        self.order.remove(&mut self.slots, at, clock);
        self.free(at);
    }

    fn evict(&mut self, shard: usize, clock: &Clock) -> Option<(IndexKey, FileEntry)> {
        let at = self.order.evict(&mut self.slots, clock)?;
        let slot = self.slots.slot(at);
        let victim = (slot.key(shard), slot.entry());
        self.free(at);
        Some(victim)
    }

    /// Frees a slot that the order knows no more.
    fn free(&mut self, at: u32) {
        let hash = self.slots.slot(at).hash();
        if let Ok(found) = self.table.find_entry(hash, |other| *other == at) {
            found.remove();
        }
        *self.slots.slot_mut(at) = Slot { older: self.free, ..Slot::EMPTY };
        self.free = at;
    }

    fn grow(&mut self) {
        let first = self.slots.0.len() * CHUNK_SLOTS;
        if first + CHUNK_SLOTS > SLOTS_MAX {
            return;
        }
        let mut chunk = Box::new([Slot::EMPTY; CHUNK_SLOTS]);
        for (i, slot) in chunk.iter_mut().enumerate().take(CHUNK_SLOTS - 1) {
            slot.older = (first + i + 1) as u32;
        }
        self.slots.0.push(chunk);
        self.free = first as u32;
    }

    fn urgency(&self, clock: &Clock) -> Option<u64> {
        self.order.rank(&self.slots).urgency(clock)
    }

    fn heap_bytes(&self) -> usize {
        self.table.allocation_size()
            + self.slots.0.len() * size_of::<[Slot; CHUNK_SLOTS]>()
            + self.slots.0.capacity() * size_of::<Box<[Slot; CHUNK_SLOTS]>>()
            + self.order.heap_bytes()
    }
}

#[cfg(test)]
mod models;
#[cfg(test)]
mod tests;
