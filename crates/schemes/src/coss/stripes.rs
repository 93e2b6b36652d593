//! The stripes in memory: one is filled, full ones wait to be written, written ones are still read
//! from.
//!
//! Everything here happens under one short lock ([`Log`] is inside of it). The worker does longer
//! work (`worker.rs`), one job at a time. An object enters the index in the same critical section
//! that gives it its place, so the order of records in the log is the order of changes of a key.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::Context;

use humboldt_runtime::mailbox::Waiting;
use humboldt_store::index::{FileEntry, IndexKey};
use parking_lot::RwLock;

use super::dir::Dir;
use super::format::{
    Purge, STRIPE_BYTES, StripeName, TableEntry, UNIT_BYTES, encode_table, table_bytes,
};
use super::purges::Purges;
use super::record::Encoded;
use crate::health::is_disk_full;

/// A stripe in memory.
pub(super) struct Membuf {
    pub(super) name: StripeName,
    pub(super) bytes: RwLock<Box<[u8]>>,
}

/// A stripe that is not on disk yet, or not all of it.
pub(super) struct Filling {
    pub(super) buf: Arc<Membuf>,
    /// Sequence number of the stripe that it replaces on disk, 0 for none.
    pub(super) replaces_seq: u64,
    /// Objects evicted when it was begun. They are on disk until its first table is.
    evicted: Vec<IndexKey>,
    data_end: usize,
    pub(super) entries: Vec<TableEntry>,
    /// The length of the data, and the number of entries, on disk.
    written_end: usize,
    written_entries: usize,
}

/// The part of a stripe that has to be written.
pub(super) struct Unwritten {
    pub(super) buf: Arc<Membuf>,
    pub(super) start: usize,
    pub(super) end: usize,
    /// Table and trailer, for the end of the stripe.
    pub(super) table: Vec<u8>,
    entries: usize,
}

impl Filling {
    /// Whether a record of `bytes` fits behind the present ones.
    fn has_room(&self, bytes: usize) -> bool {
        self.data_end + bytes.next_multiple_of(UNIT_BYTES) + table_bytes(self.entries.len() + 1)
            <= STRIPE_BYTES
    }

    fn free_bytes(&self) -> usize {
        STRIPE_BYTES.saturating_sub(self.data_end + table_bytes(self.entries.len() + 1))
    }

    pub(super) fn has_unwritten(&self) -> bool {
        self.entries.len() > self.written_entries
    }

    /// The part that is not on disk yet; `None` if all is.
    pub(super) fn unwritten(&self, id: u64) -> Option<Unwritten> {
        self.has_unwritten().then(|| Unwritten {
            buf: Arc::clone(&self.buf),
            start: self.written_end,
            end: self.data_end.min(STRIPE_BYTES - table_bytes(self.entries.len())),
            table: encode_table(id, self.buf.name, &self.entries),
            entries: self.entries.len(),
        })
    }
}

/// Index entries in the slot that will be overwritten next.
pub(super) type Victims = Vec<(IndexKey, u32)>;

/// When a record may enter the index.
#[derive(Copy, Clone)]
pub(super) enum Condition {
    /// It is a new object.
    Always,
    /// It is another form of this one, which must still be there.
    IfStill(FileEntry),
}

/// The result of an attempt to append a record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Appended,
    /// The condition did not hold.
    Changed,
    /// The worker has to do something first, and will wake the task.
    Wait,
    /// It is not stored.
    Refused(&'static str),
}

/// Everything that the lock protects.
pub(super) struct Log {
    pub(super) filling: Option<Filling>,
    /// Full ones, oldest first; the first may be being written.
    pub(super) full: VecDeque<Filling>,
    /// Written ones that are still in memory, oldest first.
    recent: VecDeque<Arc<Membuf>>,
    spare: Vec<Box<[u8]>>,
    /// The stripe that will be begun next.
    pub(super) next: StripeName,
    /// Slots that are used in turn: all, or those in front of the first for which a full disk had
    /// no room.
    pub(super) slots_end: u32,
    /// The contents of its slot and of those behind it, as far as they have been read: at most
    /// `maxfullbufs` of them, so that full stripes can pile up while the worker writes.
    pub(super) victims: VecDeque<Victims>,
    /// Calls of `maintain` so far, and those whose flush is done.
    pub(super) flushes_asked: u64,
    pub(super) flushes_done: u64,
    pub(super) purges: Purges,
    /// Removals before the index was complete; as many as the purge log has room for.
    pub(super) early: Vec<Purge>,
    /// Stripes whose tables could not be cleared, and whether that is to be tried again.
    pub(super) to_clear: Vec<StripeName>,
    pub(super) clears_again: bool,
    /// Sequence number of the newest stripe that could not be written, 0 for none.
    lost_seq: u64,
    pub(super) is_stopped: bool,
    waiting: Vec<Waiting>,
}

impl Log {
    pub(super) fn new(purges: Purges, first_seq: u64, stripes: u32) -> Self {
        Self {
            filling: None,
            full: VecDeque::new(),
            recent: VecDeque::new(),
            spare: Vec::new(),
            next: StripeName { seq: first_seq, slot: 0 },
            slots_end: stripes,
            victims: VecDeque::new(),
            flushes_asked: 0,
            flushes_done: 0,
            purges,
            early: Vec::new(),
            to_clear: Vec::new(),
            clears_again: false,
            lost_seq: 0,
            is_stopped: false,
            waiting: Vec::new(),
        }
    }

    /// The task wants to look again when the worker has done something.
    pub(super) fn register(&mut self, context: &Context<'_>) {
        if !self.waiting.iter().any(|known| known.is_of(context)) {
            self.waiting.push(Waiting::of(context));
        }
    }

    /// All tasks that wait; to be woken without the lock.
    pub(super) fn take_waiting(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.waiting)
    }

    /// The position of the next record: sequence number and offset in units.
    pub(super) fn position(&self) -> (u64, u32) {
        let filling = self.filling.as_ref();
        filling.map_or((self.next.seq, 0), |f| (f.buf.name.seq, (f.data_end / UNIT_BYTES) as u32))
    }

    /// Whether a scan could find an object of this key, which the index does not have: one that has
    /// been evicted and not been overwritten yet, or anything that a lost stripe has left there.
    pub(super) fn may_return(&self, dir: &Dir, key: IndexKey) -> bool {
        self.unwritten_stripes().any(|filling| filling.evicted.contains(&key))
            || self.lost_seq != 0 && dir.oldest_seq() <= self.lost_seq
    }

    /// Stripes that are not on disk.
    pub(super) fn unwritten_stripes(&self) -> impl Iterator<Item = &Filling> {
        self.full.iter().chain(&self.filling)
    }

    /// The slot whose victims should be read next. That of a stripe which is not on disk has to
    /// wait.
    pub(super) fn wanted_victims(&self, dir: &Dir) -> Option<u32> {
        let ahead = self.victims.len() as u32;
        if ahead >= (dir.geometry.full_max as u32).min(self.slots_end - 1) {
            return None;
        }
        let slot = (self.next.slot + ahead) % self.slots_end;
        self.unwritten_stripes().all(|filling| filling.buf.name.slot != slot).then_some(slot)
    }

    /// Gives a record its place, and enters it into the index.
    pub(super) fn append(
        &mut self,
        dir: &Dir,
        key: IndexKey,
        object: &mut Encoded,
        when: Condition,
    ) -> Step {
        if let Condition::IfStill(entry) = when
            && dir.index.peek(key) != Some(entry)
        {
            return Step::Changed;
        }
        let fits =
            self.filling.as_ref().is_some_and(|filling| filling.has_room(object.bytes.len()));
        if !fits && let Err(step) = self.begin_stripe(dir) {
            return step;
        }
        let Some(filling) = &mut self.filling else { return Step::Wait };
        let (offset, name) = (filling.data_end, filling.buf.name);
        let Some(file) = dir.geometry.file(name.slot, offset) else {
            return Step::Refused("no place for it");
        };
        object.bind(name.seq, dir.id);
        let end = offset + object.bytes.len();
        filling.buf.bytes.write()[offset..end].copy_from_slice(&object.bytes);
        filling.data_end = end.next_multiple_of(dir.geometry.block_bytes as usize);
        let (size_units, flags) = (object.size_units(), object.flags);
        let offset_units = (offset / UNIT_BYTES) as u16;
        filling.entries.push(TableEntry { key, offset_units, size_units, flags });
        dir.enter(key, FileEntry { file, size_units: size_units.into(), flags });
        Step::Appended
    }

    /// Begins the next stripe, if it may begin.
    fn begin_stripe(&mut self, dir: &Dir) -> Result<(), Step> {
        if let Some(filling) = &self.filling {
            if filling.free_bytes() > dir.geometry.waste_bytes_max {
                return Err(Step::Refused("max-stripe-waste"));
            }
            if self.full.len() >= dir.geometry.full_max {
                return Err(Step::Refused("maxfullbufs"));
            }
        }
        let Some(victims) = self.victims.pop_front() else {
            dir.work.ring();
            return Err(Step::Wait);
        };
        let evicted = victims.into_iter().filter(|(key, file)| dir.evict(*key, *file));
        let evicted = evicted.map(|(key, _)| key).collect();
        let name = self.next;
        let bytes = self.take_buffer(dir);
        let buf = Arc::new(Membuf { name, bytes: RwLock::new(bytes) });
        dir.memory.write().insert(name.slot, Arc::clone(&buf));
        let replaces_seq = dir.set_seq(name.slot, name.seq);
        let new = Filling {
            buf,
            replaces_seq,
            evicted,
            data_end: 0,
            entries: Vec::new(),
            written_end: 0,
            written_entries: 0,
        };
        self.full.extend(self.filling.replace(new));
        dir.count_full(self.full.len());
        self.next = StripeName { seq: name.seq + 1, slot: (name.slot + 1) % self.slots_end };
        dir.work.ring();
        Ok(())
    }

    /// A buffer for a stripe. There are at most `membufs`: the oldest written one makes room.
    fn take_buffer(&mut self, dir: &Dir) -> Box<[u8]> {
        let unwritten = self.full.len() + usize::from(self.filling.is_some()) + 1;
        while self.recent.len() + unwritten > dir.geometry.membufs {
            let Some(oldest) = self.recent.pop_front() else { break };
            self.forget(dir, oldest);
        }
        let Some(mut bytes) = self.spare.pop() else { return vec![0; STRIPE_BYTES].into() };
        bytes.fill(0); // what is between records is written too
        bytes
    }

    /// Takes a stripe out of memory; its buffer is used again if no reader uses it now.
    fn forget(&mut self, dir: &Dir, buf: Arc<Membuf>) {
        let mut memory = dir.memory.write();
        if memory.get(&buf.name.slot).is_some_and(|known| known.name == buf.name) {
            memory.remove(&buf.name.slot);
        }
        drop(memory);
        if self.spare.is_empty() {
            self.spare.extend(Arc::into_inner(buf).map(|buf| buf.bytes.into_inner()));
        }
    }

    /// A part of a stripe is on disk.
    pub(super) fn set_written(&mut self, written: &Unwritten) {
        let mut unwritten = self.full.iter_mut().chain(&mut self.filling);
        if let Some(filling) = unwritten.find(|filling| filling.buf.name == written.buf.name) {
            filling.written_end = written.end;
            filling.written_entries = written.entries;
            filling.evicted = Vec::new();
        }
    }

    /// The oldest full stripe is on disk, or has been given up. Returns stripes whose tables are to
    /// be cleared, without the lock.
    pub(super) fn finish_full(&mut self, dir: &Dir, written: &io::Result<()>) -> Vec<StripeName> {
        let mut to_clear = Vec::new();
        let Some(done) = self.full.pop_front() else { return to_clear };
        match written {
            Ok(()) => self.recent.push_back(done.buf),
            Err(error) => {
                let (slot, is_new) = (done.buf.name.slot, done.replaces_seq == 0);
                to_clear.extend(self.give_up(dir, done));
                if is_new && is_disk_full(error) {
                    to_clear.extend(self.end_at(dir, slot));
                }
            }
        }
        dir.count_full(self.full.len());
        to_clear
    }

    /// The disk is full, and had no room for the stripe in `slot`, where none was before: until the
    /// next start the slots in front of it are used in turn. Stripes that were begun behind it are
    /// lost too. Nothing may stay there: it would be found after a crash, however old. Returns
    /// stripes whose tables are to be cleared.
    pub(super) fn end_at(&mut self, dir: &Dir, slot: u32) -> Vec<StripeName> {
        let begun: Vec<(u32, u64)> = self
            .unwritten_stripes()
            .map(|filling| (filling.buf.name.slot, filling.replaces_seq))
            .filter(|(other, _)| *other >= slot)
            .collect();
        let is_begun = |other: u32| begun.iter().any(|(begun, _)| *begun == other);
        let is_empty = |other: u32| other == slot || dir.seq(other) == 0 || is_begun(other);
        // One is read while another is written.
        let is_possible = (2..self.slots_end).contains(&slot)
            && begun.iter().all(|(_, replaces_seq)| *replaces_seq == 0)
            && (slot..self.slots_end).all(is_empty);
        if !is_possible {
            return Vec::new();
        }
        self.slots_end = slot;
        let (stay, mut lost): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.full)
            .into_iter()
            .partition(|filling| filling.buf.name.slot < slot);
        self.full = stay;
        lost.extend(self.filling.take_if(|filling| filling.buf.name.slot >= slot));
        let to_clear = lost.into_iter().filter_map(|lost| self.give_up(dir, lost)).collect();
        if self.next.slot >= slot {
            self.next.slot = 0;
        }
        self.victims.clear();
        tracing::warn!(
            "{}: the disk is full: {slot} MB of {} are used until the next start",
            dir.path().display(),
            dir.geometry.stripes
        );
        to_clear
    }

    /// A stripe could not be written: its records are lost. Returns its name if a part of it is on
    /// disk, where nothing was before.
    fn give_up(&mut self, dir: &Dir, lost: Filling) -> Option<StripeName> {
        let name = lost.buf.name;
        self.lost_seq = name.seq;
        for entry in &lost.entries {
            if let Some(file) =
                dir.geometry.file(name.slot, usize::from(entry.offset_units) * UNIT_BYTES)
            {
                dir.evict(entry.key, file);
            }
        }
        // A scan would find there as old a record as before: removals that concern it must be kept.
        let is_to_clear = lost.replaces_seq == 0 && lost.written_entries > 0;
        if !is_to_clear {
            dir.set_seq(name.slot, lost.replaces_seq);
        }
        self.forget(dir, lost.buf);
        is_to_clear.then_some(name)
    }
}
