//! The scan after a crash: all slots are read in their order, with large reads.
//!
//! A slot that does not verify is free at once. An object of one slot is found at once, a longer
//! one as soon as all slots of its chain have been seen, at the latest at the end. Of two objects
//! of a key the younger one stays. A slot that has been given free is never looked at again, so
//! that new objects may use it.

use std::sync::Arc;

use humboldt_base::xxh3::xxh3_64_with_seed;
use humboldt_store::index::{FileEntry, IndexKey};

use super::dir::{Dir, flags};
use super::format::{FILE_HEADER_BYTES, Meta, Shape, SlotHeader};
use super::slots::{END, Run, Slots, Tag};

/// Bytes that are read at once; at least a slot.
const READ_BYTES: usize = 1 << 20;

/// Slots that are given free under one lock.
const FREE_BATCH: u32 = 64 * 1024;

/// The contents of the first slot of an object.
#[derive(Copy, Clone)]
struct Candidate {
    first: u32,
    header: SlotHeader,
    entry: FileEntry,
}

/// The facts about slots without an owner so far.
struct Seen {
    /// For each slot a hash of object and position, 0 if nothing is seen or it has found its owner.
    /// The slot before it in its chain is in the link of the slot.
    marks: Vec<u32>,
    /// First slots whose chain was not complete when they were seen.
    pending: Vec<u32>,
}

/// Frees the slots behind the end of the file; returns the number of slots to scan. From now on new
/// objects are stored.
pub(crate) fn begin(dir: &Dir) -> u32 {
    let total = dir.slots.lock().total();
    let geometry = dir.device.geometry;
    let len = dir.device.file.len().unwrap_or(0);
    let behind = len.saturating_sub(FILE_HEADER_BYTES).div_ceil(geometry.slot_bytes as u64);
    let end = u32::try_from(behind).unwrap_or(total).min(total);
    free_where(dir, total, |slot| slot >= end);
    dir.rebuild.set_scanning();
    end
}

/// Looks at the first `end` slots.
pub(crate) fn scan(dir: &Arc<Dir>, end: u32) {
    let geometry = dir.device.geometry;
    let mut seen = Seen { marks: vec![0; end as usize], pending: Vec::new() };
    let per_read = (READ_BYTES / geometry.slot_bytes).max(1);
    let mut buffer = vec![0; per_read * geometry.slot_bytes];
    let mut at = 0;
    while at < end && !dir.rebuild.is_stopped() {
        let slots = (end - at).min(per_read as u32);
        let wanted = slots as usize * geometry.slot_bytes;
        let read = read_slots(dir, at, buffer.get_mut(..wanted).unwrap_or_default());
        look_at(dir, &mut seen, at, slots, buffer.get(..read).unwrap_or_default());
        at += slots;
        dir.rebuild.set_percent(at.into(), end.into());
    }
    if dir.rebuild.is_stopped() {
        return;
    }
    for first in std::mem::take(&mut seen.pending) {
        let mut buffer = vec![0; geometry.slot_bytes];
        let read = read_slots(dir, first, &mut buffer);
        let found = candidate(dir, first, buffer.get(..read).unwrap_or_default());
        if let Some(found) = found
            && !try_chain(dir, &mut seen, &found)
        {
            reject(dir, &mut seen, &found);
        }
    }
    free_where(dir, end, |slot| seen.marks.get(slot as usize).is_some_and(|mark| *mark != 0));
}

/// Reads slots. A part that cannot be read is tried again slot by slot, and then given up.
fn read_slots(dir: &Dir, first: u32, buffer: &mut [u8]) -> usize {
    let geometry = dir.device.geometry;
    if let Ok(read) = dir.device.read_blocking(geometry.offset(first), buffer) {
        return read;
    }
    buffer.fill(0);
    for (nth, slot) in buffer.chunks_mut(geometry.slot_bytes).enumerate() {
        if dir.device.read_blocking(geometry.offset(first + nth as u32), slot).is_err() {
            slot.fill(0);
        }
    }
    buffer.len()
}

fn look_at(dir: &Arc<Dir>, seen: &mut Seen, first: u32, slots: u32, bytes: &[u8]) {
    let geometry = dir.device.geometry;
    let mut found = Vec::new();
    let mut bad = Vec::new();
    let mut links = Vec::new();
    let mut parts = bytes.chunks(geometry.slot_bytes);
    for slot in first..first + slots {
        let part = parts.next().unwrap_or_default();
        match geometry.unseal(slot, part) {
            Err(_) => bad.push(Run { start: slot, len: 1 }),
            Ok((header, _)) => {
                set_mark(seen, slot, mark(&header, header.position));
                links.push((slot, header.link));
                if header.position == 0 {
                    match candidate(dir, slot, part) {
                        Some(candidate) => found.push(candidate),
                        // whatever it is, it belongs to no chain
                        None => set_mark(seen, slot, u32::MAX),
                    }
                }
            }
        }
    }
    {
        let mut slots = dir.slots.lock();
        slots.give_back(&bad);
        links.into_iter().for_each(|(slot, link)| slots.set_link(slot, link));
    }
    for candidate in found {
        if !try_chain(dir, seen, &candidate) {
            seen.pending.push(candidate.first);
        }
    }
}

fn set_mark(seen: &mut Seen, slot: u32, mark: u32) {
    if let Some(place) = seen.marks.get_mut(slot as usize) {
        *place = mark;
    }
}

/// The mark of the slot at a position of this object.
fn mark(header: &SlotHeader, position: u32) -> u32 {
    let mut bytes = [0; 20];
    bytes[..16].copy_from_slice(&header.key.to_bytes());
    bytes[16..].copy_from_slice(&position.to_le_bytes());
    (xxh3_64_with_seed(&bytes, header.id) as u32).clamp(1, u32::MAX - 1)
}

/// The object that begins in a slot.
fn candidate(dir: &Dir, slot: u32, bytes: &[u8]) -> Option<Candidate> {
    let geometry = dir.device.geometry;
    let (header, payload) = geometry.unseal(slot, bytes).ok()?;
    let meta = Meta::decode(payload).ok()?;
    let shape =
        Shape { geometry, first_bytes: payload.len() as u64, stream_bytes: meta.stream_bytes() };
    if header.position != 0 || shape.slots() != Some(header.chain) {
        return None;
    }
    let entry = FileEntry { file: slot, size_units: shape.size_units()?, flags: flags(&meta) };
    Some(Candidate { first: slot, header, entry })
}

/// Enters an object whose whole chain has been seen. `false` if it has not.
fn try_chain(dir: &Arc<Dir>, seen: &mut Seen, found: &Candidate) -> bool {
    let Some(chain) = whole_chain(&dir.slots.lock(), seen, found) else { return false };
    accept(dir, seen, found, &chain);
    true
}

/// All slots of a chain in order, if they have been seen: from the last one, which the first one
/// names, backwards.
fn whole_chain(slots: &Slots, seen: &Seen, found: &Candidate) -> Option<Vec<u32>> {
    let chain = found.header.chain;
    if chain as usize > seen.marks.len() {
        return None;
    }
    let mut order = Vec::new();
    let mut slot = slots.link(found.first);
    for position in (1..chain).rev() {
        if seen.marks.get(slot as usize) != Some(&mark(&found.header, position)) {
            return None;
        }
        order.push(slot);
        slot = slots.link(slot);
    }
    order.push(found.first);
    order.reverse();
    Some(order)
}

/// Enters an object, or rejects it. No lock is held while the disk is used.
fn accept(dir: &Arc<Dir>, seen: &mut Seen, found: &Candidate, chain: &[u32]) {
    let key = IndexKey::from(&found.header.key);
    let known = dir.index.peek(key);
    let older = known.filter(|known| is_older(dir, *known, found.header.id));
    let is_entered =
        dir.rebuild.unless_forgotten(Tag::from(key), found.header.id, |is_forgotten| {
            let mut changes = dir.lock_key(key);
            let now = dir.index.peek(key);
            if is_forgotten || (now.is_some() && now != older) {
                return false;
            }
            *changes += 1;
            let mut slots = dir.slots.lock();
            let next = chain.iter().skip(1).copied().chain([END]);
            chain.iter().zip(next).for_each(|(slot, next)| slots.set_link(*slot, next));
            chain.iter().for_each(|slot| set_mark(seen, *slot, 0));
            dir.index.insert(key, found.entry);
            true
        });
    let dead = if is_entered { older } else { Some(found.entry) };
    let Some(dead) = dead else { return };
    overwrite(dir, dead.file);
    if is_entered {
        let mut slots = dir.slots.lock();
        let runs = slots.runs(dead.file, dir.slots_of(dead));
        slots.give_back_chain(&runs);
    } else {
        // The rest of the chain is freed at the end.
        set_mark(seen, dead.file, 0);
        dir.slots.lock().give_back(&[Run { start: dead.file, len: 1 }]);
    }
}

/// Gives back the first slot of an object that must not be found; the others are freed at the end.
fn reject(dir: &Dir, seen: &mut Seen, found: &Candidate) {
    set_mark(seen, found.first, 0);
    let tag = Tag::from(IndexKey::from(&found.header.key));
    dir.slots.lock().give_back_stale(found.first, tag);
}

/// Whether an object in the index is older than `id`.
fn is_older(dir: &Dir, known: FileEntry, id: u64) -> bool {
    let geometry = dir.device.geometry;
    let mut bytes = vec![0; geometry.slot_bytes];
    let read = dir.device.read_blocking(geometry.offset(known.file), &mut bytes).unwrap_or(0);
    let header = geometry.unseal(known.file, bytes.get(..read).unwrap_or_default());
    header.is_ok_and(|(header, _)| header.id < id)
}

/// Overwrites the beginning of a slot, so that no other scan finds its object again.
pub(crate) fn overwrite(dir: &Dir, slot: u32) {
    let zeros = dir.zeros.read(0..dir.zeros.reserved()).unwrap_or_default();
    // A failure is counted and logged. The log of purges is gone after the rebuild, so this object
    // could return once.
    let _ = dir.device.write_blocking(dir.device.geometry.offset(slot), zeros);
}

/// Gives free, in batches, the slots for which `is_free`.
pub(crate) fn free_where(dir: &Dir, total: u32, mut is_free: impl FnMut(u32) -> bool) {
    let mut at = 0;
    while at < total {
        let end = at.saturating_add(FREE_BATCH).min(total);
        let mut slots = dir.slots.lock();
        for slot in (at..end).filter(|slot| is_free(*slot)) {
            slots.give_back(&[Run { start: slot, len: 1 }]);
        }
        drop(slots);
        at = end;
    }
}
