//! The memory tier: complete answers in memory, and the budget that they share with bodies in
//! flight.
//!
//! `cache_mem` counts real memory: pages in use (stored or in flight), allocations rounded up to
//! what the allocator takes, and a fixed overhead for each entry.
//!
//! Of the budget, bodies in flight may have their share, and stored objects have all the rest
//! ([`IN_FLIGHT_PART`]). Within the share a body in flight that needs a page evicts stored objects.
//! Beyond it, clients that do not read would take all of memory. There, stored objects lose nothing
//! any more, and each body in flight has a minimum beyond the budget, so that traffic goes on with
//! any setting: see [`FLOW_PAGES_GUARANTEED`].

mod reserved;
mod shard;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use humboldt_base::limits::PAGE_BYTES;
use humboldt_base::rng;
use humboldt_policy::{Clock, Policy, Rank};
use humboldt_sys::pages::{PageMut, PagePool};
use parking_lot::Mutex;

use crate::events::{StoreEvent, StoreEventKind, StoreEvents};
use crate::key::Key;
use crate::object::{Object, allocated_bytes};
use crate::vary::VaryMarker;

pub(crate) use reserved::Reserved;
pub use reserved::Waiting;
use shard::{Removed, Shard};

/// The part of `cache_mem` for bodies in flight, one half: pages that are being received, or still
/// sent after their object had to leave, and lent bodies. Stored objects always have the other
/// half.
pub const IN_FLIGHT_PART: u64 = 2;

/// Bodies lent from where a directory has them may take this many bytes together, whatever
/// `cache_mem` is.
pub const LENT_BYTES_MIN: u64 = 8 * 1024 * 1024;

/// Pages that each body in flight may hold even when the share is spent: 16 KiB, Squid's
/// `read_ahead_gap`.
pub const FLOW_PAGES_GUARANTEED: usize = 4;

/// The same in bytes.
pub const FLOW_BYTES_GUARANTEED: u64 = (FLOW_PAGES_GUARANTEED * PAGE_BYTES) as u64;

/// Hard bound on pages beyond `cache_mem` for all bodies in flight together, in bytes: of the
/// guarantee, for 32,768 of them. At the bound a transfer that needs a page fails at once.
pub const IN_FLIGHT_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Most entries evicted to make room once. Objects that are being sent keep their pages until then,
/// so evicting more of them may free nothing.
const EVICTIONS_PER_CALL_MAX: usize = 64;

/// Fixed cost of an entry that is not an object.
const SMALL_ENTRY_BYTES: u64 = 160;

/// Shards for each core, so that two cores rarely want the same one.
const SHARDS_PER_CORE: usize = 4;

/// Most shards.
const SHARDS_MAX: usize = 256;

/// The value of a key.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A complete answer.
    Object(Arc<Object>),
    /// Answers vary: look up the variant's key.
    Vary(Arc<VaryMarker>),
    /// Look up another key: its object may do as well, which the caller must check.
    SeeAlso(Key),
    /// The last answer was not storable: do not collapse requests before this second.
    HitForMiss {
        /// Unix seconds.
        until: i64,
    },
}

impl Entry {
    fn boxed_bytes(&self) -> u64 {
        match self {
            Self::Object(object) => object.boxed_bytes(),
            Self::Vary(marker) => {
                SMALL_ENTRY_BYTES
                    + allocated_bytes(marker.url.len())
                    + allocated_bytes(marker.fields.len())
            }
            Self::HitForMiss { .. } | Self::SeeAlso(_) => SMALL_ENTRY_BYTES,
        }
    }

    fn page_bytes(&self) -> u64 {
        match self {
            Self::Object(object) => object.page_bytes(),
            _ => 0,
        }
    }
}

/// Figures of the memory tier.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct MemStats {
    /// Entries of any kind.
    pub entries: u64,
    /// Memory in use: pages stored and in flight, and everything else that is stored.
    pub used_bytes: u64,
    /// Pages in use, stored and in flight, in bytes.
    pub page_bytes: u64,
    /// Of these, pages of stored bodies, in bytes. The others are being received, or still being
    /// sent after their object has left.
    pub stored_page_bytes: u64,
    /// Bodies that lie elsewhere and are lent to their clients, and pages that are promised to
    /// bodies being read, in bytes; not in `used_bytes`.
    pub reserved_bytes: u64,
    /// Parts of bodies whose answers wait for something, in bytes; not in `used_bytes`.
    pub waiting_bytes: u64,
    /// `cache_mem`.
    pub limit_bytes: u64,
    /// Entries stored since the start.
    pub stores: u64,
    /// Entries evicted to make room since the start.
    pub evictions: u64,
}

/// No page for a body in flight.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageShortage {
    /// The share of bodies in flight is spent, and so is the flow's guaranteed minimum: it must
    /// give pages back first.
    Wait,
    /// The hard bound is reached, or the system has no memory.
    Exhausted,
}

/// What an entry takes the place of.
#[derive(Copy, Clone)]
enum Replaces {
    Anything,
    AllButObjects,
    Nothing,
}

/// The memory tier. Shared by all cores.
pub struct MemTier {
    shards: Box<[ShardCell]>,
    seeds: [u64; 2],
    pool: PagePool,
    limit_bytes: AtomicU64,
    /// Everything stored that is not pages.
    boxed_bytes: AtomicU64,
    /// Pages of stored objects.
    stored_page_bytes: AtomicU64,
    /// See [`Reserved`].
    reserved_bytes: AtomicU64,
    /// See [`Waiting`].
    waiting_bytes: AtomicU64,
    /// Logical time: insertions so far. Hits only read it.
    clock: Clock,
    stores: AtomicU64,
    evictions: AtomicU64,
    events: Arc<dyn StoreEvents>,
}

#[repr(align(128))]
struct ShardCell {
    shard: Mutex<Shard>,
    /// [`Rank`] of the entry that would leave first.
    first: AtomicU64,
}

impl MemTier {
    /// A tier of `cache_mem` bytes for `cores` threads.
    pub fn new(
        cache_mem_bytes: u64,
        cores: usize,
        policy: Policy,
        events: Arc<dyn StoreEvents>,
    ) -> Self {
        let shards =
            (cores.saturating_mul(SHARDS_PER_CORE)).clamp(1, SHARDS_MAX).next_power_of_two();
        let tier = Self {
            shards: (0..shards)
                .map(|_| ShardCell {
                    shard: Mutex::new(Shard::new(policy)),
                    first: AtomicU64::new(Rank::NOTHING.to_bits()),
                })
                .collect(),
            seeds: [rng::secret(), rng::secret()],
            pool: PagePool::new(0),
            limit_bytes: AtomicU64::new(0),
            boxed_bytes: AtomicU64::new(0),
            stored_page_bytes: AtomicU64::new(0),
            reserved_bytes: AtomicU64::new(0),
            waiting_bytes: AtomicU64::new(0),
            clock: Clock::default(),
            stores: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            events,
        };
        tier.set_limit(cache_mem_bytes);
        tier
    }

    /// Seeded, so that no outsider can choose URLs that fall into one bucket.
    fn hash(&self, key: &Key) -> u64 {
        let product =
            u128::from(key.low64() ^ self.seeds[0]) * u128::from(key.high64() ^ self.seeds[1]);
        (product as u64) ^ (product >> 64) as u64
    }

    fn cell(&self, hash: u64) -> &ShardCell {
        &self.shards[(hash >> 40) as usize & (self.shards.len() - 1)]
    }

    /// Looks up a key and counts an access.
    pub fn get(&self, key: &Key) -> Option<Entry> {
        let hash = self.hash(key);
        let cell = self.cell(hash);
        let mut shard = cell.shard.lock();
        let (found, first_changed) = shard.get(hash, key, &self.clock)?;
        if first_changed {
            cell.publish_first(&shard);
        }
        Some(found)
    }

    /// Whether the key is there; not an access.
    pub fn contains(&self, key: &Key) -> bool {
        let hash = self.hash(key);
        self.cell(hash).shard.lock().contains(hash, key)
    }

    /// Stores an entry in place of any other of this key and evicts entries that no longer fit.
    /// Returns whether it was stored: not when it is larger than half of the budget.
    pub fn insert(&self, key: Key, entry: Entry) -> bool {
        self.put(key, entry, Replaces::Anything)
    }

    /// The same, unless an object is there.
    pub(crate) fn insert_unless_object(&self, key: Key, entry: Entry) -> bool {
        self.put(key, entry, Replaces::AllButObjects)
    }

    /// The same, unless any entry is there.
    pub(crate) fn insert_if_absent(&self, key: Key, entry: Entry) -> bool {
        self.put(key, entry, Replaces::Nothing)
    }

    fn put(&self, key: Key, entry: Entry, replaces: Replaces) -> bool {
        let (boxed, pages) = (entry.boxed_bytes(), entry.page_bytes());
        if !self.takes(boxed + pages) {
            if let Replaces::Anything = replaces {
                self.remove(&key);
            }
            return false;
        }
        let hash = self.hash(&key);
        let cell = self.cell(hash);
        let replaced = {
            let mut shard = cell.shard.lock();
            let may_come = match (replaces, shard.peek(hash, &key)) {
                (Replaces::Anything, _) | (_, None) => true,
                (Replaces::AllButObjects, Some(there)) => !matches!(there, Entry::Object(_)),
                (Replaces::Nothing, Some(_)) => false,
            };
            if !may_come {
                return false;
            }
            self.clock.tick();
            self.boxed_bytes.fetch_add(boxed, Relaxed);
            self.stored_page_bytes.fetch_add(pages, Relaxed);
            let replaced = shard.insert(hash, key, entry, &self.clock, |key| self.hash(key));
            cell.publish_first(&shard);
            replaced
        };
        self.stores.fetch_add(1, Relaxed);
        replaced.map(|removed| self.account(removed));
        self.make_room(0);
        true
    }

    /// Removes a key; returns its entry.
    pub fn remove(&self, key: &Key) -> Option<Entry> {
        let hash = self.hash(key);
        let cell = self.cell(hash);
        let removed = {
            let mut shard = cell.shard.lock();
            let removed = shard.remove(hash, key, &self.clock)?;
            cell.publish_first(&shard);
            removed
        };
        Some(self.account(removed))
    }

    /// Removes an object, unless another has taken its place. Returns whether it was there.
    pub(crate) fn remove_object(&self, object: &Arc<Object>) -> bool {
        let hash = self.hash(&object.key);
        let cell = self.cell(hash);
        let removed = {
            let mut shard = cell.shard.lock();
            let is_there = matches!(shard.peek(hash, &object.key), Some(Entry::Object(found)) if Arc::ptr_eq(found, object));
            let removed =
                if is_there { shard.remove(hash, &object.key, &self.clock) } else { None };
            cell.publish_first(&shard);
            removed
        };
        removed.map(|removed| self.account(removed)).is_some()
    }

    fn account(&self, removed: Removed) -> Entry {
        self.boxed_bytes.fetch_sub(removed.boxed_bytes, Relaxed);
        self.stored_page_bytes.fetch_sub(removed.entry.page_bytes(), Relaxed);
        removed.entry
    }

    /// Memory in use now, in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.pool.in_use() * PAGE_BYTES as u64 + self.boxed_bytes.load(Relaxed)
    }

    /// Most bytes that one entry may take: half of the budget.
    pub(crate) fn object_bytes_max(&self) -> u64 {
        self.limit_bytes.load(Relaxed) / 2
    }

    /// Whether an entry of `bytes` is stored at all.
    pub(crate) fn takes(&self, bytes: u64) -> bool {
        bytes <= self.object_bytes_max()
    }

    /// Memory in flight: pages that are not those of a stored object, reservations, and what has
    /// come of bodies whose answers wait, in bytes.
    pub fn in_flight_bytes(&self) -> u64 {
        let pages = self.pool.in_use() * PAGE_BYTES as u64;
        pages.saturating_sub(self.stored_page_bytes.load(Relaxed))
            + self.reserved_bytes.load(Relaxed)
            + self.waiting_bytes.load(Relaxed)
    }

    /// The share of the budget for bodies in flight, in bytes.
    pub fn in_flight_share(&self) -> u64 {
        self.limit_bytes.load(Relaxed) / IN_FLIGHT_PART
    }

    /// Whether `bytes` more may be in flight.
    pub fn has_in_flight_room(&self, bytes: u64) -> bool {
        self.in_flight_bytes() + bytes <= self.in_flight_share()
    }

    /// Whether `bytes` more fit into the budget without eviction. Bodies in flight beyond their
    /// share do not count: they take no room from stored objects.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let stored = self.stored_page_bytes.load(Relaxed) + self.boxed_bytes.load(Relaxed);
        let in_flight = self.in_flight_bytes().min(self.in_flight_share());
        stored + in_flight + bytes <= self.limit_bytes.load(Relaxed)
    }

    /// Evicts until `bytes` more fit into the budget; returns whether they do.
    pub(crate) fn make_room(&self, bytes: u64) -> bool {
        for _ in 0..EVICTIONS_PER_CALL_MAX {
            if self.has_room(bytes) {
                return true;
            }
            if !self.evict_one() {
                return false;
            }
        }
        self.has_room(bytes)
    }

    /// Evicts from the shard whose first candidate is the most urgent, which makes the shards'
    /// order nearly a common one.
    fn evict_one(&self) -> bool {
        let urgency =
            |cell: &&ShardCell| Rank::from_bits(cell.first.load(Relaxed)).urgency(&self.clock);
        let Some(cell) =
            self.shards.iter().filter(|cell| urgency(cell).is_some()).max_by_key(urgency)
        else {
            return false;
        };
        let removed = {
            let mut shard = cell.shard.lock();
            let removed = shard.evict(&self.clock, |key| self.hash(key));
            cell.publish_first(&shard);
            removed
        };
        // `None`: another core was faster. The caller looks again.
        if let Some(removed) = removed {
            self.evictions.fetch_add(1, Relaxed);
            if let Entry::Object(object) = self.account(removed) {
                self.tell_release(&object);
            }
        }
        true
    }

    pub(crate) fn tell_release(&self, object: &Object) {
        self.events.event(&StoreEvent {
            kind: StoreEventKind::Release,
            dir: None,
            key: object.key,
            url: &object.url,
            status: object.head.status,
            times: Some(&object.times),
            content_type: object.head.content_type().unwrap_or_default(),
            body_bytes: object.body_bytes(),
        });
    }

    /// A page for a body in flight that holds `held` pages now.
    pub(crate) fn alloc_page(&self, held: usize) -> Result<PageMut, PageShortage> {
        // Beyond its share no entry has to leave for it.
        let has_room =
            self.has_in_flight_room(PAGE_BYTES as u64) && self.make_room(PAGE_BYTES as u64);
        if !has_room && held >= FLOW_PAGES_GUARANTEED {
            return Err(PageShortage::Wait);
        }
        self.pool.alloc().ok_or(PageShortage::Exhausted)
    }

    /// Bytes that a body in flight with `held` pages gets for certain, unless others are faster.
    pub(crate) fn page_bytes_at_hand(&self, held: usize) -> u64 {
        let guaranteed = (FLOW_PAGES_GUARANTEED.saturating_sub(held) * PAGE_BYTES) as u64;
        guaranteed.max(self.in_flight_share().saturating_sub(self.in_flight_bytes()))
    }

    /// `cache_mem` in bytes.
    pub fn limit(&self) -> u64 {
        self.limit_bytes.load(Relaxed)
    }

    /// Changes `cache_mem`. A lower limit evicts at once and gives the memory back to the system.
    pub fn set_limit(&self, cache_mem_bytes: u64) {
        let before = self.limit_bytes.swap(cache_mem_bytes, Relaxed);
        self.pool
            .set_limit(cache_mem_bytes.saturating_add(IN_FLIGHT_BYTES_MAX) / PAGE_BYTES as u64);
        if cache_mem_bytes < before {
            while !self.has_room(0) && self.evict_one() {}
            self.pool.release_free();
        }
    }

    /// Changes the policy; entries stay.
    pub fn set_policy(&self, policy: Policy) {
        for cell in &self.shards {
            let mut shard = cell.shard.lock();
            shard.set_policy(policy, &self.clock);
            cell.publish_first(&shard);
        }
    }

    /// Figures.
    pub fn stats(&self) -> MemStats {
        MemStats {
            entries: self.shards.iter().map(|cell| cell.shard.lock().len() as u64).sum(),
            used_bytes: self.used_bytes(),
            page_bytes: self.pool.in_use() * PAGE_BYTES as u64,
            stored_page_bytes: self.stored_page_bytes.load(Relaxed),
            reserved_bytes: self.reserved_bytes.load(Relaxed),
            waiting_bytes: self.waiting_bytes.load(Relaxed),
            limit_bytes: self.limit(),
            stores: self.stores.load(Relaxed),
            evictions: self.evictions.load(Relaxed),
        }
    }
}

impl ShardCell {
    fn publish_first(&self, shard: &Shard) {
        self.first.store(shard.rank().to_bits(), Relaxed);
    }
}

impl std::fmt::Debug for MemTier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.stats().fmt(f)
    }
}

#[cfg(test)]
mod tests;
