//! One shard: a cuckoo table of buckets of eight slots.
//!
//! A key has two buckets. The number of each follows from that of the other and the tag, so that an
//! object can be moved between them without its key. Before the table has grown, bucket `i` and
//! bucket `(c(tag) - i) mod m` belong together. Each growth doubles it: bucket `b` becomes `2b` and
//! `2b + 1`, and the next bit of the tag chooses one of these for an object. After `k` of them a
//! bucket's number is `i * 2^k + (first k bits of the tag)`, and the same rule holds for `i`.
//!
//! Buckets are allocated with the first object.

use std::sync::atomic::Ordering::Relaxed;

use humboldt_sys::prefetch::prefetch;

use crate::sync::AtomicU64;

use super::slot::{Entry, Slot, TAG_BITS};

/// Slots in a bucket: a line of the processor's cache.
pub(super) const BUCKET_SLOTS: usize = 8;

/// Most growths of a table. Each takes a bit of the tag that then tells keys of a bucket apart no
/// more.
pub(super) const DOUBLINGS_MAX: u8 = 6;

/// Most buckets of a table: 256 MiB.
pub(super) const BUCKETS_MAX: u64 = 1 << 22;

/// An insertion looks into this many buckets for a free slot before the table grows, or an object
/// is dropped.
const SEARCH_BUCKETS_MAX: usize = 128;

/// A table that may not grow is searched for a free slot while fewer of its slots are in use, in
/// percent. Otherwise an insertion drops an object if the key's own buckets are full.
const SEARCH_PCT_MAX: u64 = 98;

/// Eight slots on a cache line.
#[repr(align(64))]
#[derive(Default)]
pub(super) struct Bucket([AtomicU64; BUCKET_SLOTS]);

impl Bucket {
    fn slot(&self, at: usize) -> Slot {
        Slot(self.0[at].load(Relaxed))
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.0.iter().map(|slot| Slot(slot.load(Relaxed)))
    }

    pub(super) fn set(&mut self, at: usize, slot: Slot) {
        *self.0[at].get_mut() = slot.0;
    }

    fn find(&self, wanted: impl Fn(Slot) -> bool) -> Option<usize> {
        self.slots().position(wanted)
    }

    fn free_slots(&self) -> usize {
        self.slots().filter(|slot| slot.is_empty()).count()
    }
}

/// The place of a key: its hash without the part that chose the shard.
#[derive(Copy, Clone)]
pub(super) struct Place {
    /// Chooses the bucket, evenly among however many there are.
    pub(super) spread: u32,
    /// Less than 2^[`TAG_BITS`].
    pub(super) tag: u32,
}

/// A slot of the table.
#[derive(Copy, Clone)]
struct At {
    bucket: u32,
    slot: usize,
}

/// The effect of an insertion on other objects.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inserted {
    /// The object of the same key before, or of another key that the index cannot tell from it.
    pub(crate) replaced: Option<Entry>,
    /// The object that had to go, since the index is full.
    pub(crate) dropped: Option<Entry>,
}

/// The objects of a shard.
pub(super) struct Table {
    /// Empty, or `base << doublings` of them.
    pub(super) buckets: Vec<Bucket>,
    /// Buckets before the first growth, at least 1.
    pub(super) base: u32,
    /// Growths so far, at most [`DOUBLINGS_MAX`].
    pub(super) doublings: u8,
    /// Objects in it.
    pub(super) objects: u64,
}

impl Table {
    /// An empty table that will have `base` buckets.
    pub(super) fn new(base: u32) -> Self {
        Self { buckets: Vec::new(), base: base.max(1), doublings: 0, objects: 0 }
    }

    /// Slots that there are, or will be with the first object.
    pub(super) fn slots(&self) -> u64 {
        (u64::from(self.base) << self.doublings) * BUCKET_SLOTS as u64
    }

    /// The slot with the object of this key. Bumping needs no more than a shared reference.
    pub(super) fn find(&self, place: Place) -> Option<(&AtomicU64, Slot)> {
        self.both_buckets(place).into_iter().find_map(|number| {
            let bucket = self.buckets.get(number as usize)?;
            let at = bucket.find(|slot| slot.has(place.tag))?;
            Some((&bucket.0[at], bucket.slot(at)))
        })
    }

    /// A look-up of the key is about to begin.
    pub(super) fn expect(&self, place: Place) {
        for number in self.both_buckets(place) {
            if let Some(bucket) = self.buckets.get(number as usize) {
                prefetch(bucket);
            }
        }
    }

    /// Removes the object of this key if it meets the condition.
    pub(super) fn remove(
        &mut self,
        place: Place,
        condition: impl Fn(Entry) -> bool,
    ) -> Option<Entry> {
        let (slot, found) = self.find(place)?;
        let entry = found.entry();
        if !condition(entry) {
            return None;
        }
        slot.store(Slot::EMPTY.0, Relaxed);
        self.objects -= 1;
        Some(entry)
    }

    /// Of the objects at locations that `is_there` names, removes those that `keep` does not want;
    /// returns how many.
    pub(super) fn sweep(
        &mut self,
        is_there: impl Fn(u64) -> bool,
        mut keep: impl FnMut(&Entry) -> bool,
    ) -> u64 {
        let before = self.objects;
        for bucket in &mut self.buckets {
            for slot in &mut bucket.0 {
                let found = Slot(*slot.get_mut());
                // Empty slots are distributed as if at random: testing for them first would cost
                // more than all the rest.
                if is_there(found.location()) && !found.is_empty() && !keep(&found.entry()) {
                    *slot = AtomicU64::new(Slot::EMPTY.0);
                    self.objects -= 1;
                }
            }
        }
        before - self.objects
    }

    /// Makes `entry` the object of this key. The table grows while it has fewer than `slots_wanted`
    /// slots.
    pub(super) fn insert(
        &mut self,
        place: Place,
        entry: Entry,
        slots_wanted: u64,
        is_dropping: impl FnOnce(),
    ) -> Inserted {
        let new = Slot::new(place.tag, entry);
        if let Some((slot, old)) = self.find(place) {
            slot.store(new.0, Relaxed);
            return Inserted { replaced: Some(old.entry()), dropped: None };
        }
        if self.buckets.is_empty() {
            let buckets = u64::from(self.base) << self.doublings;
            self.buckets = (0..buckets).map(|_| Bucket::default()).collect();
        }
        loop {
            let may_grow = self.slots() < slots_wanted && self.may_double();
            // In a full table that stays as it is, a long search would find nothing every time.
            let may_move = may_grow || self.objects * 100 < self.slots() * SEARCH_PCT_MAX;
            let own = self.free_slot(place);
            let moved = || if may_move { self.move_others(place) } else { None };
            if let Some(free) = own.or_else(moved) {
                self.set(free, new);
                self.objects += 1;
                return Inserted::default();
            }
            if !may_grow {
                is_dropping();
                let (victim, old) = self.victim(place);
                self.set(victim, new);
                return Inserted { replaced: None, dropped: Some(old.entry()) };
            }
            self.double();
        }
    }

    /// The two buckets of a key; they may be one.
    pub(super) fn both_buckets(&self, place: Place) -> [u32; 2] {
        let row = share_of(self.base, place.spread);
        let first = row << self.doublings | prefix(place.tag, self.doublings);
        [first, self.other_bucket(first, place.tag)]
    }

    /// The other bucket of an object in `bucket`.
    fn other_bucket(&self, bucket: u32, tag: u32) -> u32 {
        let row = bucket >> self.doublings;
        // A product with the golden ratio spreads tags that differ in a few bits.
        let centre = share_of(self.base, tag.wrapping_mul(0x9E37_79B1));
        let other = if centre >= row { centre - row } else { centre + self.base - row };
        other << self.doublings | prefix(tag, self.doublings)
    }

    /// Whether an object with this tag may lie in `bucket`, according to the tag.
    pub(super) fn may_hold(&self, bucket: usize, tag: u32) -> bool {
        bucket as u32 % (1 << self.doublings) == prefix(tag, self.doublings)
    }

    fn set(&mut self, at: At, slot: Slot) {
        self.buckets[at.bucket as usize].set(at.slot, slot);
    }

    fn get(&self, at: At) -> Slot {
        self.bucket(at.bucket).slot(at.slot)
    }

    fn bucket(&self, number: u32) -> &Bucket {
        &self.buckets[number as usize]
    }

    /// A free slot in the emptier of the key's buckets. Filled evenly, fewer of them are full.
    fn free_slot(&self, place: Place) -> Option<At> {
        let [first, second] =
            self.both_buckets(place).map(|number| (number, self.bucket(number).free_slots()));
        let (bucket, _) = if first.1 >= second.1 { first } else { second };
        let slot = self.bucket(bucket).find(Slot::is_empty)?;
        Some(At { bucket, slot })
    }

    /// Frees a slot in one of the key's buckets, which are full, by the shortest chain of moves of
    /// others to their other buckets, found breadth first.
    fn move_others(&mut self, place: Place) -> Option<At> {
        let mut search = Search::from(self.both_buckets(place));
        let mut next = 0;
        while next < search.len {
            let bucket = search.steps[next].bucket;
            if let Some(slot) = self.bucket(bucket).find(Slot::is_empty) {
                return Some(self.move_along(&search, next, At { bucket, slot }));
            }
            for slot in 0..BUCKET_SLOTS {
                let tag = self.get(At { bucket, slot }).tag();
                search.add(Step { bucket: self.other_bucket(bucket, tag), before: next, slot });
            }
            next += 1;
        }
        None
    }

    /// Moves objects along the steps that lead to `last`, where `free` is; returns the slot that
    /// can be overwritten then.
    ///
    /// No object is moved away from under its own feet, as the steps do not come to the same bucket
    /// twice: from there a shorter way would have been found before.
    fn move_along(&mut self, search: &Search, mut last: usize, mut free: At) -> At {
        while let Some(Step { before, slot, .. }) = search.get(last) {
            let from = At { bucket: search.steps[before].bucket, slot };
            let moved = self.get(from);
            self.set(free, moved);
            (last, free) = (before, from);
        }
        free
    }

    /// The least frequently used object in the key's buckets. Among equals the first in an order
    /// that is not the same for all keys, as otherwise the newest object would always give way to
    /// the next one.
    fn victim(&self, place: Place) -> (At, Slot) {
        let buckets = self.both_buckets(place);
        let all = (0..2 * BUCKET_SLOTS).map(|i| {
            let i = (i + place.tag as usize) % (2 * BUCKET_SLOTS);
            let at = At { bucket: buckets[i / BUCKET_SLOTS], slot: i % BUCKET_SLOTS };
            (at, self.get(at))
        });
        let first = At { bucket: buckets[0], slot: 0 };
        all.min_by_key(|(_, slot)| slot.freq()).unwrap_or((first, self.get(first)))
    }

    pub(super) fn may_double(&self) -> bool {
        self.doublings < DOUBLINGS_MAX && 2 * self.slots() <= BUCKETS_MAX * BUCKET_SLOTS as u64
    }

    /// Splits every bucket in two by the next bit of the tags.
    pub(super) fn double(&mut self) {
        let next_bit = TAG_BITS - 1 - u32::from(self.doublings);
        let mut grown = Vec::with_capacity(2 * self.buckets.len());
        for bucket in &self.buckets {
            let mut halves = [Bucket::default(), Bucket::default()];
            for (at, slot) in bucket.slots().enumerate().filter(|(_, slot)| !slot.is_empty()) {
                halves[(slot.tag() >> next_bit & 1) as usize].set(at, slot);
            }
            grown.extend(halves);
        }
        self.buckets = grown;
        self.doublings += 1;
    }
}

/// A number below `end` that is as far on the way to it as `part` is to 2^32.
fn share_of(end: u32, part: u32) -> u32 {
    ((u64::from(part) * u64::from(end)) >> 32) as u32
}

/// The first `bits` bits of a tag.
fn prefix(tag: u32, bits: u8) -> u32 {
    tag >> (TAG_BITS - u32::from(bits))
}

/// A bucket that can be reached by moving objects.
#[derive(Copy, Clone, Default)]
struct Step {
    bucket: u32,
    /// The step before: number …
    before: usize,
    /// … and slot in its bucket, whose object can be moved here.
    slot: usize,
}

/// The buckets that an insertion has found so far, in the order of finding. The first ones are the
/// key's own.
struct Search {
    steps: [Step; SEARCH_BUCKETS_MAX],
    len: usize,
    own: usize,
}

impl Search {
    fn from(buckets: [u32; 2]) -> Self {
        let mut steps = [Step::default(); SEARCH_BUCKETS_MAX];
        for (step, bucket) in steps.iter_mut().zip(buckets) {
            step.bucket = bucket;
        }
        let own = if buckets[0] == buckets[1] { 1 } else { 2 };
        Self { steps, len: own, own }
    }

    /// Step `at`, unless it is a bucket of the key's own.
    fn get(&self, at: usize) -> Option<Step> {
        (at >= self.own).then(|| self.steps[at])
    }

    /// Adds a step if there is room.
    fn add(&mut self, step: Step) {
        if let Some(free) = self.steps.get_mut(self.len) {
            *free = step;
            self.len += 1;
        }
    }
}
