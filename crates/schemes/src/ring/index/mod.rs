//! The index of `ring`: where the record of a key lies, in eight bytes an object.
//!
//! A map from hashes of keys to [`Entry`]s. It keeps 18 bits of a hash and the choice of two
//! buckets: two keys that agree in them are one to it. That happens to about 6 of 100,000 look-ups
//! of a key that is not there (twice as many after each doubling), and costs a cached object at
//! worst: every record on disk carries its whole key, and the caller compares it.
//!
//! The index has 64 to 4096 shards, each under its own lock; look-ups need it shared only. A shard
//! is sized for the objects that are expected, and doubles when it is full, at about 98 %, until it
//! has slots for its share of `objects_max`. With that reached, an insertion drops the least used
//! object of the key's buckets.

mod checkpoint;
mod slot;
mod table;
#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering::Relaxed;

use crate::sync::RwLock;

use self::slot::{Slot, TAG_BITS};
use self::table::{BUCKET_SLOTS, BUCKETS_MAX, Bucket, DOUBLINGS_MAX, Place, Table};

pub(crate) use self::checkpoint::{IMAGE_PREFIX_BYTES, MalformedIndex, image_bytes};
pub(crate) use self::slot::Entry;
use self::slot::LOCATION_END;
pub(crate) use self::table::Inserted;

/// Fewest and most shards.
const SHARDS: std::ops::RangeInclusive<u64> = 64..=1 << SHARD_BITS;

/// Bits of a hash that can choose a shard, the highest ones.
const SHARD_BITS: u32 = 12;

/// Objects that are expected in a shard, at most, while there can be more shards.
const SHARD_OBJECTS: u64 = 1 << 17;

/// Fewest buckets of a shard at first. After it has grown, this many of them are a table of their
/// own, and small ones differ much in how full they are.
const BASE_BUCKETS_MIN: u64 = 32;

/// Share of slots that is in use when a shard has as many objects as can be expected, in percent.
const FULL_PCT: u64 = 97;

/// Bits of a key that are as good as random and never change.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hash64(pub(crate) u64);

impl Hash64 {
    fn place(self) -> Place {
        Place { spread: self.0 as u32, tag: (self.0 >> 32) as u32 % (1 << TAG_BITS) }
    }
}

/// A shard, on cache lines of its own.
#[repr(align(64))]
struct Shard(RwLock<Table>);

/// An index of records by hash of key. Shared by all cores.
pub(crate) struct RingIndex {
    /// A power of two in [`SHARDS`].
    shards: Box<[Shard]>,
    /// A shard grows while it has fewer slots.
    shard_slots_wanted: u64,
}

impl RingIndex {
    /// An empty index for `objects_expected` objects, but for no fewer than a 64th of
    /// `objects_max`.
    ///
    /// It takes about 8.4 bytes for each of them (more if they are few), from the first objects on.
    /// It grows as far as needed for `objects_max` objects (at most [`LOCATION_END`]), and then has
    /// room for fewer than twice as many.
    pub(crate) fn new(objects_expected: u64, objects_max: u64) -> Self {
        let expected = objects_expected.max(objects_max >> DOUBLINGS_MAX).min(LOCATION_END);
        let shards =
            (expected / SHARD_OBJECTS).next_power_of_two().clamp(*SHARDS.start(), *SHARDS.end());
        let buckets = slots_for(expected, shards).div_ceil(BUCKET_SLOTS as u64);
        let base = buckets.clamp(BASE_BUCKETS_MIN, BUCKETS_MAX) as u32;
        Self::of_tables((0..shards).map(|_| Table::new(base)).collect(), objects_max)
    }

    fn of_tables(tables: Vec<Table>, objects_max: u64) -> Self {
        let shard_slots_wanted = slots_for(objects_max.min(LOCATION_END), tables.len() as u64);
        let shards = tables.into_iter().map(|table| Shard(RwLock::new(table))).collect();
        Self { shards, shard_slots_wanted }
    }

    /// Looks a key up.
    pub(crate) fn get(&self, hash: Hash64) -> Option<Entry> {
        let table = self.shard(hash).read();
        table.find(hash.place()).map(|(_, slot)| slot.entry())
    }

    /// Counts a use of the object of this key, if it is still at that location.
    pub(crate) fn bump(&self, hash: Hash64, location: u64) {
        let table = self.shard(hash).read();
        let Some((slot, _)) = table.find(hash.place()) else { return };
        // Others that bump it are all that can interfere, as changes need the lock exclusively.
        let used = |old| Some(Slot(old)).filter(|old| old.location() == location)?.bumped();
        let _ = slot.fetch_update(Relaxed, Relaxed, |old| used(old).map(|new| new.0));
    }

    /// The key will be looked for or inserted soon: memory is fetched meanwhile, unless that would
    /// have to wait.
    pub(crate) fn expect(&self, hash: Hash64) {
        if let Some(table) = self.shard(hash).try_read() {
            table.expect(hash.place());
        }
    }

    /// Makes `entry` the object of a key.
    pub(crate) fn insert(&self, hash: Hash64, entry: Entry) -> Inserted {
        self.insert_telling(hash, entry, || ())
    }

    /// The same. If another object has to leave for it, `is_dropping` is called before any look-up
    /// can miss it. `is_dropping` may not use the index.
    pub(crate) fn insert_telling(
        &self,
        hash: Hash64,
        entry: Entry,
        is_dropping: impl FnOnce(),
    ) -> Inserted {
        self.shard(hash).write().insert(hash.place(), entry, self.shard_slots_wanted, is_dropping)
    }

    /// Makes `new` the object of a key if the one there is at `old_location`.
    pub(crate) fn replace_if(&self, hash: Hash64, old_location: u64, new: Entry) -> bool {
        let table = self.shard(hash).write();
        let place = hash.place();
        let Some((slot, old)) = table.find(place) else { return false };
        let is_there = old.location() == old_location;
        if is_there {
            slot.store(Slot::new(place.tag, new).0, Relaxed);
        }
        is_there
    }

    /// Removes the object of a key.
    pub(crate) fn remove(&self, hash: Hash64) -> Option<Entry> {
        self.shard(hash).write().remove(hash.place(), |_| true)
    }

    /// Removes the object of a key if it is at that location.
    pub(crate) fn remove_if(&self, hash: Hash64, location: u64) -> bool {
        self.remove_if_telling(hash, location, || ())
    }

    /// The same; `is_going` is called before any look-up can miss the object. `is_going` may not
    /// use the index.
    pub(crate) fn remove_if_telling(
        &self,
        hash: Hash64,
        location: u64,
        is_going: impl Fn(),
    ) -> bool {
        let is_it = |entry: Entry| {
            let is_there = entry.location == location;
            if is_there {
                is_going();
            }
            is_there
        };
        self.shard(hash).write().remove(hash.place(), is_it).is_some()
    }

    /// Of the objects at locations that `is_there` names, removes those that `keep` does not want;
    /// returns how many. `is_there` is asked for each slot of the index and should be quick. Shard
    /// by shard, each locked for a tenth of a millisecond or so; neither may use the index.
    pub(crate) fn sweep(
        &self,
        is_there: impl Fn(u64) -> bool,
        mut keep: impl FnMut(&Entry) -> bool,
    ) -> u64 {
        self.shards.iter().map(|shard| shard.0.write().sweep(&is_there, &mut keep)).sum()
    }

    /// Number of objects.
    pub(crate) fn len(&self) -> u64 {
        self.shards.iter().map(|shard| shard.0.read().objects).sum()
    }

    /// Bytes of memory in use, heap included. While a shard doubles, it needs half as much again as
    /// after it.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let heap = |shard: &Shard| shard.0.read().buckets.capacity() * size_of::<Bucket>();
        let heap: usize = self.shards.iter().map(heap).sum();
        (size_of::<Self>() + size_of_val(&*self.shards) + heap) as u64
    }

    /// Objects by slots, 0 to 1.
    pub(crate) fn occupancy(&self) -> f64 {
        let slots: u64 = self.shards.iter().map(|shard| shard.0.read().slots()).sum();
        self.len() as f64 / slots as f64
    }

    /// Number of shards: a power of two.
    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    fn shard(&self, hash: Hash64) -> &RwLock<Table> {
        // There are at most 2^12, and always a power of two of them.
        let number = (hash.0 >> (u64::BITS - SHARD_BITS)) as usize & (self.shards.len() - 1);
        &self.shards[number].0
    }
}

/// Slots of a shard that hold its part of `objects`.
fn slots_for(objects: u64, shards: u64) -> u64 {
    let mean = objects.div_ceil(shards.max(1));
    // Shards differ by chance: four standard deviations are as many more as are to be expected.
    (mean + 4 * mean.isqrt()) * 100 / FULL_PCT
}
