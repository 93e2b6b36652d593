//! Reading objects.
//!
//! An object of up to about a megabyte is read whole when it is opened, with one read for each run
//! of slots, and verified; so most hits are one read. Of a longer one the first slot is read, and
//! then the requested parts, some slots ahead. Every slot is verified to belong to this very
//! object: slots may be used again during a read, though those of a long object are kept for it
//! within a bound (see `held`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use humboldt_store::Key;
use humboldt_store::index::{FileEntry, IndexKey};
use humboldt_store::scheme::{Extent, IoFuture, OpenObject, Reader, Record, SchemeError};
use humboldt_sys::aligned::Buffer;

use super::device::Failure;
use super::dir::Dir;
use super::format::{
    Corrupt, Geometry, META_BYTES, Meta, SLOT_HEADER_BYTES, Shape, UNIT_BYTES, locate,
};
use super::held::Hold;
use super::slots::Run;

/// How often an open starts again because the object was replaced while it was being read.
const OPEN_TRIES: usize = 8;

/// Objects that take no more than this on disk are read whole: 1 MiB and room for head and slot
/// headers.
pub(crate) const WHOLE_BYTES_MAX: usize = (1 << 20) + (64 << 10);

/// The part of a longer object that is read at once; a reader keeps no more in memory, except two
/// slots.
const WINDOW_BYTES: usize = 256 << 10;

/// The same for a reader that keeps none of it.
const THRIFTY_BYTES: usize = 16 << 10;

/// Opens the object of `key`.
pub(crate) async fn open(dir: &Arc<Dir>, key: &Key) -> Result<Option<OpenObject>, SchemeError> {
    dir.device.in_service()?;
    let index_key = IndexKey::from(key);
    let mut failed = None;
    for _ in 0..OPEN_TRIES {
        let Some(entry) = dir.index.get(index_key) else { return Ok(None) };
        let corrupt = match RockReader::open(dir, key, entry).await {
            Ok(mut reader) => {
                dir.counts.reads.fetch_add(1, Ordering::Relaxed);
                let record = reader.record.take();
                return Ok(Some(OpenObject { record, reader: Box::new(reader) }));
            }
            Err(Failure::Refused(error)) => return Err(error),
            Err(Failure::Corrupt(corrupt)) => corrupt,
        };
        if dir.index.peek(index_key) != Some(entry) {
            continue;
        }
        // An update may have rewritten the first slot during the read, and be done: look again.
        if failed.replace(entry) == Some(entry) {
            dir.drop_bad(index_key, entry, corrupt);
            return Err(SchemeError::Corrupt(corrupt.0));
        }
    }
    Err(SchemeError::Busy("the object keeps changing"))
}

/// Consecutive positions of a chain in memory, verified.
struct Part {
    position: u32,
    slots: u32,
    bytes: Buffer,
}

/// An open object.
pub(crate) struct RockReader {
    dir: Arc<Dir>,
    entry: FileEntry,
    id: u64,
    runs: Vec<Run>,
    shape: Shape,
    meta: Meta,
    record: Record,
    extents: Vec<Extent>,
    /// All slots of a short object. Of a long one the first slot, then the current window.
    parts: Vec<Part>,
    /// It keeps only the first slot from one read to the next.
    is_thrifty: bool,
    /// Of a long object, and of one that is read again.
    held: Option<Held>,
}

/// A chain whose slots are not used again while it is being read.
struct Held {
    dir: Arc<Dir>,
    hold: Hold,
}

impl Held {
    /// The slots of an object, if it is still there.
    fn take(dir: &Arc<Dir>, key: &Key, entry: FileEntry) -> Option<(Vec<Run>, Self)> {
        let (runs, hold) = dir.hold(IndexKey::from(key), entry)?;
        Some((runs, Self { dir: Arc::clone(dir), hold }))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.dir.release(&self.hold);
    }
}

/// Which runs of a chain hold positions `from..to`, with the position of each.
fn runs_of(runs: &[Run], from: u32, to: u32) -> impl Iterator<Item = (u32, Run)> {
    let mut position = 0;
    runs.iter().filter_map(move |run| {
        let (start, end) = (position, position + run.len);
        position = end;
        let (low, high) = (start.max(from), end.min(to));
        (low < high).then(|| (low, Run { start: run.start + (low - start), len: high - low }))
    })
}

impl RockReader {
    async fn open(dir: &Arc<Dir>, key: &Key, entry: FileEntry) -> Result<Self, Failure> {
        let geometry = dir.device.geometry;
        let slots = dir.slots_of(entry);
        let disk_bytes = entry.size_units as usize * UNIT_BYTES;
        let at_first = if disk_bytes <= WHOLE_BYTES_MAX { slots } else { 1 };
        let (runs, held) = match slots {
            1 => (vec![Run { start: entry.file, len: 1 }], None),
            _ if at_first == slots => (dir.slots.lock().runs(entry.file, slots), None),
            _ => {
                let (runs, held) = Held::take(dir, key, entry).ok_or(Corrupt("replaced"))?;
                (runs, Some(held))
            }
        };
        // Until the record has been seen, the length of the last slot is that of the index.
        let last_bytes = disk_bytes.saturating_sub((slots as usize - 1) * geometry.slot_bytes);
        let parts = load(dir, &runs, 0, at_first, slots, last_bytes).await?;
        let first = parts.first().ok_or(Corrupt("chain is broken"))?;
        let (header, payload) = geometry.unseal(entry.file, slot(geometry, first, 0))?;
        if header.key != *key || header.position != 0 || header.chain != slots {
            return Err(Corrupt("slot of another object").into());
        }
        let meta = Meta::decode(payload)?;
        let shape = Shape {
            geometry,
            first_bytes: payload.len() as u64,
            stream_bytes: meta.stream_bytes(),
        };
        if shape.slots() != Some(slots) || shape.size_units() != Some(entry.size_units) {
            return Err(Corrupt("length of the chain").into());
        }
        // Nearly always the first slot has all of the record.
        let is_in_first = meta.record_bytes() <= payload.len() as u64;
        let record = match is_in_first {
            true => meta.record(*key, payload)?,
            false => Record {
                key: *key,
                kind: meta.kind,
                url: Box::default(),
                head: Box::default(),
                times: meta.times,
            },
        };
        let mut reader = Self {
            dir: Arc::clone(dir),
            entry,
            id: header.id,
            runs,
            shape,
            meta,
            record,
            extents: Vec::new(),
            parts,
            is_thrifty: false,
            held,
        };
        for (nth, part) in reader.parts.iter().enumerate() {
            // The very first slot is verified.
            reader.verify(part, u32::from(nth == 0))?;
        }
        if !is_in_first {
            let stream = reader.stream(0, reader.meta.record_bytes() as usize).await?;
            reader.record = reader.meta.record(*key, &stream)?;
        }
        reader.read_extents().await?;
        Ok(reader)
    }

    async fn read_extents(&mut self) -> Result<(), Failure> {
        let table_bytes = self.meta.table_bytes();
        let table = match table_bytes {
            0 => Vec::new(),
            _ => self.stream(self.shape.stream_bytes - table_bytes as u64, table_bytes).await?,
        };
        self.extents = self.meta.extents(&table)?;
        Ok(())
    }

    /// Checks that the slots of a part, from the `first` on, are those of this object.
    fn verify(&self, part: &Part, first: u32) -> Result<(), Corrupt> {
        let geometry = self.shape.geometry;
        let mut place = runs_of(&self.runs, part.position, part.position + part.slots);
        let (_, run) = place.next().ok_or(Corrupt("chain is broken"))?;
        for nth in first..part.slots {
            let position = part.position + nth;
            let (header, payload) = geometry.unseal(run.start + nth, slot(geometry, part, nth))?;
            let is_ours = header.id == self.id
                && header.key == self.record.key
                && header.position == position
                && payload.len() == self.shape.payload_bytes(position);
            if !is_ours {
                return Err(Corrupt("slot of another object"));
            }
        }
        Ok(())
    }

    /// The part that holds a position, if it is in memory.
    fn part(&self, position: u32) -> Option<&Part> {
        self.parts
            .iter()
            .find(|part| (part.position..part.position + part.slots).contains(&position))
    }

    /// Sees to it that a position is in memory.
    async fn need(&mut self, position: u32) -> Result<(), Failure> {
        if self.part(position).is_some() {
            return Ok(());
        }
        let slots = self.dir.slots_of(self.entry);
        let window_bytes = if self.is_thrifty { THRIFTY_BYTES } else { WINDOW_BYTES };
        let ahead = (window_bytes / self.shape.geometry.slot_bytes).max(1) as u32;
        let end = position.saturating_add(ahead).min(slots);
        self.parts.truncate(1); // the first slot stays
        let last = self.shape.geometry.disk_bytes(self.shape.payload_bytes(slots - 1));
        let parts = load(&self.dir, &self.runs, position, end, slots, last).await?;
        for part in &parts {
            self.verify(part, 0)?;
        }
        self.parts.extend(parts);
        Ok(())
    }

    /// Bytes of the stream, for record and table.
    async fn stream(&mut self, from: u64, len: usize) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = from + bytes.len() as u64;
            let (position, _) = self.shape.locate(at);
            self.need(position).await?;
            let have = self.in_memory(at);
            if have.is_empty() {
                return Err(Corrupt("record is short").into());
            }
            bytes.extend_from_slice(
                have.get(..have.len().min(len - bytes.len())).unwrap_or_default(),
            );
        }
        Ok(bytes)
    }

    /// The part of the stream in memory, from `at` to the end of its slot.
    fn in_memory(&self, at: u64) -> &[u8] {
        let (position, offset) = self.shape.locate(at);
        let Some(part) = self.part(position) else { return &[] };
        let payload =
            slot(self.shape.geometry, part, position - part.position).get(SLOT_HEADER_BYTES..);
        let payload = payload.and_then(|payload| payload.get(..self.shape.payload_bytes(position)));
        payload.and_then(|payload| payload.get(offset..)).unwrap_or_default()
    }

    async fn read_some(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Failure> {
        let Some((stored_at, in_extent)) = locate(&self.extents, offset) else { return Ok(0) };
        let start = self.meta.record_bytes() + stored_at;
        let wanted = usize::try_from(in_extent).unwrap_or(usize::MAX).min(buf.len());
        if wanted == 0 {
            return Ok(0);
        }
        let (position, _) = self.shape.locate(start);
        if self.part(position).is_none() {
            self.dir.device.in_service()?;
            self.need(position).await?;
        }
        let mut done = 0;
        while done < wanted {
            let have = self.in_memory(start + done as u64);
            let bytes = have.len().min(wanted - done);
            if bytes == 0 {
                break;
            }
            buf[done..done + bytes].copy_from_slice(&have[..bytes]);
            done += bytes;
        }
        if done == 0 { Err(Corrupt("chain is short").into()) } else { Ok(done) }
    }
}

/// The bytes of the `nth` slot of a part.
fn slot(geometry: Geometry, part: &Part, nth: u32) -> &[u8] {
    let start = nth as usize * geometry.slot_bytes;
    let end = (start + geometry.slot_bytes).min(part.bytes.len());
    part.bytes.get(start..end).unwrap_or_default()
}

/// Reads positions `from..to` of a chain of `slots`, whose last slot has `last_bytes` on disk.
/// Nothing is verified yet.
async fn load(
    dir: &Arc<Dir>,
    runs: &[Run],
    from: u32,
    to: u32,
    slots: u32,
    last_bytes: usize,
) -> Result<Vec<Part>, Failure> {
    let geometry = dir.device.geometry;
    let places: Vec<(u32, Run)> = runs_of(runs, from, to).collect();
    if places.iter().map(|(_, run)| run.len).sum::<u32>() != to - from {
        return Err(Corrupt("chain is broken").into());
    }
    let range = |(position, run): &(u32, Run)| {
        let full = run.len as usize * geometry.slot_bytes;
        let has_last = position + run.len == slots;
        let len = if has_last {
            full - geometry.slot_bytes + last_bytes.min(geometry.slot_bytes)
        } else {
            full
        };
        (geometry.offset(run.start), len)
    };
    let ranges: Vec<(u64, usize)> = places.iter().map(range).collect();
    let buffers = dir.device.read(&ranges).await?;
    let part =
        |((position, run), bytes): ((u32, Run), Buffer)| Part { position, slots: run.len, bytes };
    Ok(places.into_iter().zip(buffers).map(part).collect())
}

impl Reader for RockReader {
    fn body_bytes(&self) -> Option<u64> {
        self.meta.body_bytes
    }

    fn extents(&self) -> &[Extent] {
        &self.extents
    }

    fn memory_bytes(&self) -> u64 {
        let kept = self.parts.iter().map(|part| part.bytes.len() as u64).sum::<u64>();
        let is_whole =
            self.parts.iter().map(|part| part.slots).sum::<u32>() == self.dir.slots_of(self.entry);
        kept + if is_whole || self.is_thrifty { 0 } else { WINDOW_BYTES as u64 }
    }

    fn let_go(&mut self) {
        if self.is_thrifty {
            return;
        }
        if self.held.is_none() {
            // Its slots are read again only if they are not used for something else meanwhile.
            let Some((_, held)) = Held::take(&self.dir, &self.record.key, self.entry) else {
                return;
            };
            self.held = Some(held);
        }
        // The first slot is not held: a purge overwrites it.
        let first = self.parts.first().map(|part| slot(self.shape.geometry, part, 0));
        let Some(first) = first.filter(|bytes| !bytes.is_empty()) else { return };
        let mut bytes = Buffer::new(first.len());
        bytes.copy_from_slice(first);
        self.parts = vec![Part { position: 0, slots: 1, bytes }];
        self.is_thrifty = true;
    }

    fn read<'a>(&'a mut self, offset: u64, buf: &'a mut [u8]) -> IoFuture<'a, usize> {
        Box::pin(async move {
            let outcome = self.read_some(offset, buf).await;
            if self.is_thrifty {
                self.parts.truncate(1);
            }
            match outcome {
                Ok(read) => Ok(read),
                Err(Failure::Refused(error)) => Err(error),
                Err(Failure::Corrupt(corrupt)) => {
                    self.parts.truncate(1);
                    self.dir.drop_bad(IndexKey::from(&self.record.key), self.entry, corrupt);
                    Err(SchemeError::Corrupt(corrupt.0))
                }
            }
        })
    }

    fn at_hand(&self, offset: u64) -> &[u8] {
        let Some((stored_at, in_extent)) = locate(&self.extents, offset) else { return &[] };
        let in_slot = self.in_memory(self.meta.record_bytes() + stored_at);
        let bytes = in_slot.len().min(usize::try_from(in_extent).unwrap_or(usize::MAX));
        in_slot.get(..bytes).unwrap_or_default()
    }
}

/// The first slot of an object, for an update: its header and payload.
pub(crate) async fn first_slot(
    dir: &Arc<Dir>,
    entry: FileEntry,
) -> Result<(super::format::SlotHeader, Vec<u8>), Failure> {
    let geometry = dir.device.geometry;
    let disk_bytes = entry.size_units as usize * UNIT_BYTES;
    let ranges = [(geometry.offset(entry.file), disk_bytes.min(geometry.slot_bytes))];
    let buffers = dir.device.read(&ranges).await?;
    let bytes = buffers.first().ok_or(Corrupt("slot is short"))?;
    let (header, payload) = geometry.unseal(entry.file, bytes)?;
    if payload.len() < META_BYTES {
        return Err(Corrupt("record is short").into());
    }
    Ok((header, payload.to_vec()))
}
