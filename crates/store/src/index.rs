//! The common index of the file schemes: key → file number, size, flags, in LRU order.
//!
//! At most 48 bytes an object, everything included (`cargo run --release -p humboldt-store --example index_memory`):
//! a slot of 32 bytes in a chunked slab, and 5 bytes a bucket in a hash table of slot numbers. All operations are O(1).
//! The index is split into [`FileIndex::SHARDS`] parts by key, each under its own short lock and with its own exact
//! LRU list. The victim is the oldest of the oldest of all parts while there are few objects, and of a few parts when there
//! are many.
//!
//! A slot holds 96 of the 128 bits of a key: a record on disk carries all of them and is compared on every open.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use hashbrown::HashTable;
use parking_lot::Mutex;

use crate::key::Key;

/// Slots are allocated in chunks of this many (4 KiB).
const CHUNK_SLOTS: usize = 128;

/// No slot: the end of a list.
const NONE: u32 = u32::MAX;

/// Up to this many objects, LRU order is exact over all parts.
const EXACT_OBJECTS_MAX: usize = 4096;

/// With more objects, the victim is sought in this many parts.
const VICTIM_SHARDS: usize = 4;

/// Uses are counted modulo 2^24.
const STAMP_BITS: u32 = 24;

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

    fn shard(self) -> usize {
        self.0[2] as usize % FileIndex::SHARDS
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

/// What the index knows about one object.
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
    /// Where [`FileIndex::pop_oldest`] goes on.
    next_victim_shard: AtomicUsize,
    /// Counts uses, to compare the ages of objects of different parts.
    uses: AtomicU32,
    objects: AtomicUsize,
}

impl Default for FileIndex {
    fn default() -> Self {
        Self::new()
    }
}

impl FileIndex {
    /// Number of independently locked parts.
    pub const SHARDS: usize = 128;

    /// An empty index; it grows as needed, up to 2^32 − 1 objects in each part.
    pub fn new() -> Self {
        let shards = (0..Self::SHARDS).map(|_| Mutex::new(Shard::default())).collect();
        Self {
            shards,
            next_victim_shard: AtomicUsize::new(0),
            uses: AtomicU32::new(0),
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

    /// Looks a key up and makes it the most recently used.
    pub fn get(&self, key: IndexKey) -> Option<FileEntry> {
        let mut shard = self.shard(key);
        let slot = shard.find(key)?;
        shard.unlink(slot);
        shard.link_newest(slot, self.next_stamp());
        Some(shard.slot(slot).entry())
    }

    /// Looks a key up without counting it as a use.
    pub fn peek(&self, key: IndexKey) -> Option<FileEntry> {
        let shard = self.shard(key);
        shard.find(key).map(|slot| shard.slot(slot).entry())
    }

    /// Makes `entry` the object of `key`, as the most recently used; returns the one that it replaces.
    pub fn insert(&self, key: IndexKey, entry: FileEntry) -> Option<FileEntry> {
        let mut shard = self.shard(key);
        if let Some(slot) = shard.find(key) {
            let old = shard.slot(slot).entry();
            shard.slot_mut(slot).set(entry);
            shard.unlink(slot);
            shard.link_newest(slot, self.next_stamp());
            return Some(old);
        }
        shard.add(key, entry, self.next_stamp());
        self.objects.fetch_add(1, Ordering::Relaxed);
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

    /// Replaces `old` by `new`, if the object of `key` is still exactly `old`; its place in LRU order stays.
    pub fn replace_if(&self, key: IndexKey, old: FileEntry, new: FileEntry) -> bool {
        let mut shard = self.shard(key);
        let Some(slot) = shard.find(key).filter(|slot| shard.slot(*slot).entry() == old) else {
            return false;
        };
        shard.slot_mut(slot).set(new);
        true
    }

    /// Removes and returns the least recently used object: exactly that one among up to 4096, nearly so among more.
    pub fn pop_oldest(&self) -> Option<(IndexKey, FileEntry)> {
        let looked_at = if self.len() <= EXACT_OBJECTS_MAX { Self::SHARDS } else { VICTIM_SHARDS };
        let first = self.next_victim_shard.fetch_add(looked_at, Ordering::Relaxed);
        let now = self.uses.load(Ordering::Relaxed);
        let age = |at: &usize| self.shards[at % Self::SHARDS].lock().age_of_oldest(now);
        let oldest = (first..first + looked_at).filter_map(|at| age(&at).map(|age| (age, at))).max();
        // Between two looks the part may have been emptied: then any other will do.
        let start = oldest.map_or(first, |(_, at)| at);
        (start..start + Self::SHARDS).find_map(|at| self.pop_oldest_of(at % Self::SHARDS))
    }

    fn pop_oldest_of(&self, shard: usize) -> Option<(IndexKey, FileEntry)> {
        let mut shard = self.shards[shard].lock();
        let oldest = shard.oldest;
        if oldest == NONE {
            return None;
        }
        let (key, entry) = (shard.slot(oldest).key, shard.slot(oldest).entry());
        shard.discard(oldest);
        self.objects.fetch_sub(1, Ordering::Relaxed);
        Some((key, entry))
    }

    fn next_stamp(&self) -> u32 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    /// Appends the objects of part `shard` (below [`FileIndex::SHARDS`]) to `out`, least recently used first.
    pub fn snapshot(&self, shard: usize, out: &mut Vec<(IndexKey, FileEntry)>) {
        let Some(shard) = self.shards.get(shard) else { return };
        let shard = shard.lock();
        out.reserve(shard.table.len());
        let mut at = shard.oldest;
        while at != NONE {
            let slot = shard.slot(at);
            out.push((slot.key, slot.entry()));
            at = slot.newer;
        }
    }

    fn remove_where(&self, key: IndexKey, condition: impl Fn(FileEntry) -> bool) -> Option<FileEntry> {
        let mut shard = self.shard(key);
        let slot = shard.find(key)?;
        let entry = shard.slot(slot).entry();
        if !condition(entry) {
            return None;
        }
        shard.discard(slot);
        self.objects.fetch_sub(1, Ordering::Relaxed);
        Some(entry)
    }

    fn shard(&self, key: IndexKey) -> parking_lot::MutexGuard<'_, Shard> {
        self.shards[key.shard()].lock()
    }
}

/// One object. A free slot is linked by `older`.
#[derive(Copy, Clone)]
struct Slot {
    key: IndexKey,
    file: u32,
    size_units: u32,
    older: u32,
    newer: u32,
    /// The lower 24 bits of when it was last used, and 8 bits of flags.
    stamp_and_flags: u32,
}

impl Slot {
    const EMPTY: Self =
        Self { key: IndexKey([0; 3]), file: 0, size_units: 0, older: NONE, newer: NONE, stamp_and_flags: 0 };

    fn entry(&self) -> FileEntry {
        FileEntry { file: self.file, size_units: self.size_units, flags: self.stamp_and_flags as u8 }
    }

    fn set(&mut self, entry: FileEntry) {
        self.file = entry.file;
        self.size_units = entry.size_units;
        self.stamp_and_flags = self.stamp_and_flags & !0xFF | u32::from(entry.flags);
    }
}

struct Shard {
    /// Slot numbers by key.
    table: HashTable<u32>,
    chunks: Vec<Box<[Slot; CHUNK_SLOTS]>>,
    newest: u32,
    oldest: u32,
    free: u32,
}

impl Default for Shard {
    fn default() -> Self {
        Self { table: HashTable::new(), chunks: Vec::new(), newest: NONE, oldest: NONE, free: NONE }
    }
}

impl Shard {
    fn find(&self, key: IndexKey) -> Option<u32> {
        self.table.find(key.hash(), |slot| self.slot(*slot).key == key).copied()
    }

    fn slot(&self, at: u32) -> &Slot {
        slot(&self.chunks, at)
    }

    fn slot_mut(&mut self, at: u32) -> &mut Slot {
        &mut self.chunks[at as usize / CHUNK_SLOTS][at as usize % CHUNK_SLOTS]
    }

    /// Adds a key that is known not to be there.
    fn add(&mut self, key: IndexKey, entry: FileEntry, stamp: u32) {
        if self.free == NONE {
            self.grow();
        }
        let at = self.free;
        self.free = self.slot(at).older;
        let slot = self.slot_mut(at);
        slot.key = key;
        slot.set(entry);
        self.link_newest(at, stamp);
        let Self { table, chunks, .. } = self;
        table.insert_unique(key.hash(), at, |other| slot_key(chunks, *other).hash());
    }

    fn discard(&mut self, at: u32) {
        let key = self.slot(at).key;
        let Self { table, .. } = self;
        if let Ok(found) = table.find_entry(key.hash(), |slot| *slot == at) {
            found.remove();
        }
        self.unlink(at);
        let free = self.free;
        *self.slot_mut(at) = Slot { older: free, ..Slot::EMPTY };
        self.free = at;
    }

    fn grow(&mut self) {
        let first = self.chunks.len() * CHUNK_SLOTS;
        let mut chunk = Box::new([Slot::EMPTY; CHUNK_SLOTS]);
        for (i, slot) in chunk.iter_mut().enumerate().take(CHUNK_SLOTS - 1) {
            slot.older = (first + i + 1) as u32;
        }
        self.chunks.push(chunk);
        self.free = first as u32;
    }

    fn unlink(&mut self, at: u32) {
        let Slot { older, newer, .. } = *self.slot(at);
        match older {
            NONE => self.oldest = newer,
            older => self.slot_mut(older).newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.slot_mut(newer).older = older,
        }
    }

    fn link_newest(&mut self, at: u32, stamp: u32) {
        let before = self.newest;
        let slot = self.slot_mut(at);
        slot.older = before;
        slot.newer = NONE;
        slot.stamp_and_flags = stamp << (32 - STAMP_BITS) | slot.stamp_and_flags & 0xFF;
        match before {
            NONE => self.oldest = at,
            before => self.slot_mut(before).newer = at,
        }
        self.newest = at;
    }

    /// Uses of any object since the least recently used one of this part was used, modulo 2^24.
    fn age_of_oldest(&self, now: u32) -> Option<u32> {
        let shift = 32 - STAMP_BITS;
        let slot = (self.oldest != NONE).then(|| self.slot(self.oldest))?;
        Some((now << shift).wrapping_sub(slot.stamp_and_flags & (!0 << shift)))
    }

    fn heap_bytes(&self) -> usize {
        self.table.allocation_size()
            + self.chunks.len() * size_of::<[Slot; CHUNK_SLOTS]>()
            + self.chunks.capacity() * size_of::<Box<[Slot; CHUNK_SLOTS]>>()
    }
}

fn slot(chunks: &[Box<[Slot; CHUNK_SLOTS]>], at: u32) -> &Slot {
    &chunks[at as usize / CHUNK_SLOTS][at as usize % CHUNK_SLOTS]
}

fn slot_key(chunks: &[Box<[Slot; CHUNK_SLOTS]>], at: u32) -> IndexKey {
    slot(chunks, at).key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(i: u64) -> IndexKey {
        IndexKey::from(&Key::primary(&i.to_le_bytes()))
    }

    fn entry(file: u32) -> FileEntry {
        FileEntry { file, size_units: file + 1, flags: (file % 4) as u8 }
    }

    #[test]
    fn agrees_with_a_plain_map_under_random_operations() {
        let index = FileIndex::new();
        let mut model = std::collections::HashMap::new();
        let mut state = 7_u64;
        for step in 0..200_000_u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let k = key((state >> 33) % 5000);
            match (state >> 20) % 5 {
                0 | 1 => assert_eq!(index.insert(k, entry(step)), model.insert(k, entry(step))),
                2 => assert_eq!(index.get(k), model.get(&k).copied()),
                3 => assert_eq!(index.remove(k), model.remove(&k)),
                _ if step % 7 == 0 => {
                    let popped = index.pop_oldest();
                    assert_eq!(popped.map(|(k, _)| model.remove(&k)), popped.map(|(_, e)| Some(e)));
                }
                _ => assert_eq!(index.peek(k), model.get(&k).copied()),
            }
            assert_eq!(index.len(), model.len());
        }
        let mut all = Vec::new();
        (0..FileIndex::SHARDS).for_each(|shard| index.snapshot(shard, &mut all));
        assert_eq!(all.into_iter().collect::<std::collections::HashMap<_, _>>(), model);
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let index = FileIndex::new();
        let keys: Vec<IndexKey> = (0..4).map(key).collect();
        for (i, k) in keys.iter().enumerate() {
            index.insert(*k, entry(i as u32));
        }
        index.get(keys[0]);
        index.peek(keys[1]);
        index.insert(keys[2], entry(9));
        let order: Vec<u32> = std::iter::from_fn(|| index.pop_oldest()).map(|(_, e)| e.file).collect();
        assert_eq!(order, [1, 3, 0, 9]);
        assert!(index.is_empty());
    }

    #[test]
    fn among_many_the_victim_is_nearly_the_oldest() {
        let index = FileIndex::new();
        for i in 0..20_000_u32 {
            index.insert(key(i.into()), entry(i));
        }
        let victims: Vec<u32> = (0..2000).filter_map(|_| index.pop_oldest()).map(|(_, e)| e.file).collect();
        assert_eq!(victims.len(), 2000);
        assert!(victims.iter().all(|file| *file < 6000), "{:?}", victims.iter().max());
    }

    #[test]
    fn conditional_changes_look_at_what_is_there_now() {
        let index = FileIndex::new();
        index.insert(key(1), entry(5));
        assert_eq!(index.remove_if(key(1), 6), None);
        assert!(!index.replace_if(key(1), entry(6), entry(7)));
        assert!(index.replace_if(key(1), entry(5), FileEntry { size_units: 99, ..entry(5) }));
        assert_eq!(index.remove_if(key(1), 5).map(|e| e.size_units), Some(99));
        assert!(!index.replace_if(key(1), entry(5), entry(7)));
    }

    #[test]
    fn index_keys_survive_serialisation() {
        for i in 0..100 {
            assert_eq!(IndexKey::from_bytes(key(i).to_bytes()), key(i));
        }
        let only_high_bits_differ = (Key(5), Key(5 | 1 << 127));
        assert_eq!(IndexKey::from(&only_high_bits_differ.0), IndexKey::from(&only_high_bits_differ.1));
        assert_ne!(IndexKey::from(&Key(5)), IndexKey::from(&Key(5 | 1 << 95)));
    }

    #[test]
    fn a_million_objects_need_at_most_48_bytes_each_while_growing() {
        let index = FileIndex::new();
        for i in 0..1_000_000_u64 {
            index.insert(key(i), entry(i as u32));
            if i >= 100_000 && i % 20_000 == 0 {
                let per_object = index.memory_bytes() as f64 / (i + 1) as f64;
                assert!(per_object <= 48.0, "{per_object} bytes an object with {i} objects");
            }
        }
    }
}
