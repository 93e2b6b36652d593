//! One open cache directory: the state that readers, writers, eviction and the rebuild share.
//!
//! Rules that keep index, slots and file together, whatever runs at the same time:
//!
//! - Changes of one key are made under its key lock (one of [`KEY_LOCKS`]). Locks are taken in this
//!   order: key, slots, index.
//! - Whatever leaves the index without being overwritten becomes stale (see `slots`) under the same
//!   lock, so that a purge finds an object in the index, or among the stale ones, or knows that
//!   there is none.
//! - Slots are given back only when no write to them is under way, and those of a long object not
//!   while it is being read (see `held`).

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use humboldt_store::index::{FileEntry, FileIndex, IndexKey};
use humboldt_store::scheme::{RecordKind, SchemeError, SchemeStats};
use humboldt_sys::append_buffer::AppendBuffer;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::device::{Device, Pass};
use super::format::{Corrupt, FileHeader, HEADER_COPY_BYTES, Meta, UNIT_BYTES};
use super::held::Hold;
use super::rebuild::Rebuild;
use super::slots::{Run, Slots, Tag, Taken};
use crate::health::DISK_FULL;
use crate::{DirOptions, RockOptions};

/// Number of key locks.
const KEY_LOCKS: usize = 64;

/// Most objects evicted at once to make room for a part of one.
const EVICTIONS_PER_TAKE: usize = 256;

/// Most objects evicted after one has been stored.
const EVICTIONS_PER_STORE: usize = 64;

/// Most objects evicted by one call of `maintain`.
const EVICTIONS_PER_ROUND: u64 = 4096;

/// After the disk was full, the directory gets back 1/1024 of its size with each call of
/// `maintain`.
const RECOVERY_SHARE: u32 = 1024;

/// Ids of objects that each start reserves in the file header: enough for five years of 100,000
/// objects a second, and for a million starts. Without ids left nothing is stored until the next
/// start.
const IDS_RESERVED: u64 = 1 << 44;

/// Flag in the index: a Vary list.
pub(crate) const FLAG_VARY: u8 = 1;
/// Flag in the index: a part of the body is missing, or its length is not known.
pub(crate) const FLAG_PARTIAL: u8 = 2;

/// Counters since the start.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) object_bytes: AtomicU64,
    evictions: AtomicU64,
}

/// An open cache directory.
pub(crate) struct Dir {
    pub(crate) options: DirOptions<RockOptions>,
    pub(crate) root: OwnedFd,
    pub(crate) device: Arc<Device>,
    pub(crate) index: FileIndex,
    pub(crate) slots: Mutex<Slots>,
    pub(crate) rebuild: Rebuild,
    pub(crate) counts: Counts,
    /// Told whenever slots may have become free, or an object findable.
    pub(crate) changed: Notify,
    /// Overwrites the beginning of a slot.
    pub(crate) zeros: Arc<AppendBuffer>,
    header: Mutex<FileHeader>,
    /// The id of the next object.
    next_id: AtomicU64,
    /// Ids must stay below.
    ids_reserved: u64,
    /// Changes of keys, counted under their locks.
    key_locks: [Mutex<u64>; KEY_LOCKS],
    /// [`Slots::end`]: fewer than there are for some time after the disk was found full.
    usable_slots: AtomicU32,
    /// Holds the lock on the directory until it is closed.
    lock: Mutex<Option<OwnedFd>>,
}

/// Flags that the index keeps for an object.
pub(crate) fn flags(meta: &Meta) -> u8 {
    let vary = if meta.kind == RecordKind::Vary { FLAG_VARY } else { 0 };
    vary | if meta.is_complete() { 0 } else { FLAG_PARTIAL }
}

fn share(slots: u32, percent: u8) -> u32 {
    (u64::from(slots) * u64::from(percent) / 100) as u32
}

impl Dir {
    pub(crate) fn new(
        options: DirOptions<RockOptions>,
        (root, lock): (OwnedFd, OwnedFd),
        device: Device,
        header: FileHeader,
        slots: Slots,
        rebuild: Rebuild,
    ) -> Self {
        let zeros = AppendBuffer::new(device.geometry.io_unit_bytes());
        if let Some(mut region) = zeros.reserve(device.geometry.io_unit_bytes()) {
            region.fill(0);
            let _ = region.publish();
        }
        Self {
            usable_slots: AtomicU32::new(slots.total()),
            next_id: AtomicU64::new(header.ids_end.saturating_sub(IDS_RESERVED)),
            ids_reserved: header.ids_end,
            index: FileIndex::sized(options.policy, options.objects_expected()),
            options,
            root,
            device: Arc::new(device),
            slots: Mutex::new(slots),
            rebuild,
            counts: Counts::default(),
            changed: Notify::new(),
            zeros,
            header: Mutex::new(header),
            key_locks: std::array::from_fn(|_| Mutex::new(0)),
            lock: Mutex::new(Some(lock)),
        }
    }

    /// The lock under which this key is changed, and the number of changes so far.
    pub(crate) fn lock_key(&self, key: IndexKey) -> MutexGuard<'_, u64> {
        self.key_locks[key.to_bytes()[0] as usize % KEY_LOCKS].lock()
    }

    /// Number of slots of an object.
    pub(crate) fn slots_of(&self, entry: FileEntry) -> u32 {
        let slot_units = (self.device.geometry.slot_bytes / UNIT_BYTES).max(1) as u32;
        entry.size_units.div_ceil(slot_units).max(1)
    }

    /// The id of a new object.
    pub(crate) fn new_id(&self) -> Result<u64, SchemeError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        if id < self.ids_reserved { Ok(id) } else { Err(SchemeError::Busy("no object ids left")) }
    }

    /// All ids given out so far are below this.
    pub(crate) fn ids_end(&self) -> u64 {
        self.next_id.load(Ordering::Relaxed)
    }

    /// Takes slots for a part of an object; evicts others if need be.
    pub(crate) fn take(&self, _pass: &Pass<'_>, wanted: u32) -> Result<Taken, SchemeError> {
        let mut slots = self.slots.lock();
        for _ in 0..EVICTIONS_PER_TAKE {
            if let Some(taken) = slots.take(wanted) {
                return Ok(taken);
            }
            if !self.rebuild.is_done() || !self.evict_one(&mut slots) {
                break;
            }
        }
        Err(SchemeError::Busy("directory is full"))
    }

    /// Whether an object of `slots` may be begun: all the rest could make way for it.
    pub(crate) fn admits(&self, slots: u32) -> bool {
        slots <= share(self.usable(), self.options.swap_high_pct)
    }

    /// Evicts the policy's first candidate. The slots stay locked meanwhile, so that a purge misses
    /// nothing.
    fn evict_one(&self, slots: &mut Slots) -> bool {
        let Some((key, entry)) = self.index.pop_victim() else { return false };
        self.retire(slots, key, entry);
        self.counts.evictions.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Gives back the slots of an object that has just been taken out of the index, or never was in
    /// it.
    pub(crate) fn retire(&self, slots: &mut Slots, key: IndexKey, entry: FileEntry) {
        let runs = slots.runs(entry.file, self.slots_of(entry));
        slots.give_back_stale(entry.file, Tag::from(key));
        slots.give_back_chain(&runs);
    }

    /// Begins to read a long chain in pieces, if the index still has it: its slots, and the right
    /// to find them unchanged.
    pub(crate) fn hold(&self, key: IndexKey, entry: FileEntry) -> Option<(Vec<Run>, Hold)> {
        let mut slots = self.slots.lock();
        let runs = slots.runs(entry.file, self.slots_of(entry));
        // A removal from the index gives the slots back afterwards, under this lock.
        let is_there = self.index.peek(key) == Some(entry);
        let hold = if is_there { slots.held.hold(&runs) } else { None };
        hold.map(|hold| (runs, hold))
    }

    /// Somebody has ended to read a chain.
    pub(crate) fn release(&self, hold: &Hold) {
        let unread = self.slots.lock().held.release(hold);
        if !unread.is_empty() {
            self.rebuild.give_back(&self.slots, &unread);
            self.changed.notify_waiters();
        }
    }

    /// Makes a written chain the object of its key; `runs` is all of it. Called when the last write
    /// is done. The slots of the object that it replaces are returned: they are among the stale
    /// ones, and to be overwritten before they are free, or else a crash could bring the older one
    /// back when the younger has been evicted.
    pub(crate) fn publish(
        &self,
        key: IndexKey,
        entry: FileEntry,
        runs: &[Run],
    ) -> Option<(u32, Vec<Run>)> {
        let tag = Tag::from(key);
        let mut changes = self.lock_key(key);
        *changes += 1;
        let mut slots = self.slots.lock();
        slots.chain(runs);
        slots.set_written(runs.iter().map(|run| run.start + run.len).max().unwrap_or(0));
        slots.overtake(tag, entry.file);
        let replaced = self.index.insert(key, entry).map(|old| {
            slots.add_stale(tag, old.file);
            (old.file, slots.runs(old.file, self.slots_of(old)))
        });
        slots.forget_stale(tag, entry.file);
        if self.rebuild.is_done() {
            let high = share(self.usable(), self.options.swap_high_pct);
            for _ in 0..EVICTIONS_PER_STORE {
                if slots.used() <= high || !self.evict_one(&mut slots) {
                    break;
                }
            }
        }
        drop(slots);
        drop(changes);
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        replaced
    }

    /// Drops the record of `key` at `entry.file`, if it is still there, since it does not verify.
    pub(crate) fn drop_bad(&self, key: IndexKey, entry: FileEntry, corrupt: Corrupt) {
        let Ok(_pass) = self.device.pass() else { return };
        let mut changes = self.lock_key(key);
        if self.index.peek(key) != Some(entry) {
            return; // replaced, evicted or removed while it was being read: nothing is wrong
        }
        *changes += 1;
        self.device.health.corrupt(&self.device.name, corrupt.0);
        let mut slots = self.slots.lock();
        if let Some(entry) = self.index.remove_if(key, entry.file) {
            self.retire(&mut slots, key, entry);
        }
    }

    /// The disk is full, with less in the directory than configured: go on with the slots that have
    /// their place there.
    pub(crate) fn note_failure(&self, error: &SchemeError) {
        if matches!(error, SchemeError::Busy(DISK_FULL)) {
            let mut slots = self.slots.lock();
            let end = slots.written_end().min(slots.end());
            self.set_usable(&mut slots, end);
        }
    }

    fn set_usable(&self, slots: &mut Slots, end: u32) {
        slots.set_end(end);
        self.usable_slots.store(slots.end(), Ordering::Relaxed);
    }

    fn usable(&self) -> u32 {
        self.usable_slots.load(Ordering::Relaxed)
    }

    /// One round of housekeeping: eviction down to the low water mark.
    pub(crate) fn evict_some(&self) {
        let Ok(_pass) = self.device.pass() else { return };
        let mut slots = self.slots.lock();
        let (usable, total) = (self.usable(), slots.total());
        if usable < total {
            let more = usable.saturating_add(total / RECOVERY_SHARE + 1);
            self.set_usable(&mut slots, more);
        }
        if !self.rebuild.is_done() {
            return;
        }
        let (low, high) =
            (share(usable, self.options.swap_low_pct), share(usable, self.options.swap_high_pct));
        // Squid's 300 f + 20, where f is the position of the use between the low and the high water
        // mark.
        let above = u64::from(slots.used().saturating_sub(low));
        let quota = 300 * above / u64::from(high.saturating_sub(low).max(1)) + 20;
        for _ in 0..quota.min(EVICTIONS_PER_ROUND) {
            if slots.used() <= low || !self.evict_one(&mut slots) {
                break;
            }
            // Readers and writers get their turn in between.
            MutexGuard::bump(&mut slots);
        }
    }

    /// Changes the file header, on this thread.
    pub(crate) fn write_header(
        &self,
        change: impl FnOnce(&mut FileHeader),
    ) -> Result<(), SchemeError> {
        let mut header = self.header.lock();
        let mut new = *header;
        change(&mut new);
        new.writes += 1;
        write_header_copies(&self.device, &new)?;
        *header = new;
        Ok(())
    }

    /// The header as it is in the file.
    pub(crate) fn header(&self) -> FileHeader {
        *self.header.lock()
    }

    /// Gives the directory free.
    pub(crate) fn unlock(&self) {
        if let Some(lock) = self.lock.lock().take() {
            crate::lock::release(lock);
        }
    }

    pub(crate) fn stats(&self) -> SchemeStats {
        let slot_bytes = self.device.geometry.slot_bytes as u64;
        let (used, slots_bytes) = {
            let slots = self.slots.lock();
            (u64::from(slots.used()), slots.memory_bytes())
        };
        let io = &self.device.counts;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SchemeStats {
            objects: self.index.len() as u64,
            used_bytes: used * slot_bytes,
            capacity_bytes: self.options.capacity_bytes,
            index_bytes: (self.index.memory_bytes() + slots_bytes) as u64,
            open_files: 0,
            reads: load(&self.counts.reads),
            writes: load(&self.counts.writes),
            evictions: load(&self.counts.evictions),
            errors: self.device.health.errors(),
            shed: load(&io.shed) + self.device.turns.late_hits(),
            shed_hits: load(&io.shed_hits) + self.device.turns.late_hits(),
            waits: self.device.turns.waits(),
            read_ops: load(&io.read_ops),
            read_bytes: load(&io.read_bytes),
            write_ops: load(&io.write_ops),
            write_bytes: load(&io.write_bytes),
            object_bytes: load(&self.counts.object_bytes),
            rebuild_percent: self.rebuild.percent(),
            down: self.device.health.is_down(),
        }
    }
}

/// Writes both copies of the header and waits for each, so that one of them is whole at any time.
pub(crate) fn write_header_copies(device: &Device, header: &FileHeader) -> Result<(), SchemeError> {
    let bytes = header.encode();
    for offset in [0, HEADER_COPY_BYTES as u64] {
        device.write_blocking(offset, &bytes)?;
        device.judge("sync", device.file.sync_blocking())?;
    }
    Ok(())
}

/// An id for a new store. Ids only have to differ: without random numbers the time must do.
fn new_id() -> u64 {
    if let Some(store_id) = crate::simulated::store_id() {
        return store_id;
    }
    let mut id = [0; 8];
    if rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty()).is_err() {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        return since.unwrap_or_default().as_nanos() as u64;
    }
    u64::from_le_bytes(id)
}

/// A header for this start: more ids reserved, and no snapshot that holds.
pub(crate) fn header_for_start(
    found: Option<FileHeader>,
    slot_bytes: u32,
    slots: u32,
) -> FileHeader {
    let fresh =
        || FileHeader { store_id: new_id(), slot_bytes, slots, ids_end: 1, snapshot: 0, writes: 0 };
    let before = found.filter(|header| header.slot_bytes == slot_bytes).unwrap_or_else(fresh);
    FileHeader {
        slots,
        ids_end: before.ids_end.saturating_add(IDS_RESERVED),
        snapshot: 0,
        writes: before.writes.saturating_add(1),
        ..before
    }
}
