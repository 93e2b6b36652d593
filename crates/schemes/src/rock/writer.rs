//! Writing objects.
//!
//! An object is collected in memory in the form that it has on disk. One of up to about a megabyte
//! is written when it is committed, with one write for each run of slots, mostly one. Of a longer
//! one each megabyte is written when it is full, all but its first slot, which is kept back: a
//! chain without its first slot is no object. So an object that is given up, or cut off by a crash,
//! leaves no trace.

use std::ops::Range;
use std::sync::Arc;

use humboldt_store::index::{FileEntry, IndexKey};
use humboldt_store::scheme::{Extent, IoFuture, Place, Record, RecordKind, SchemeError, Writer};
use humboldt_sys::append_buffer::{AppendBuffer, Region};

use super::chain::{self, Chain, Part, Publication};
use super::device::{Device, Pass, Stored};
use super::dir::{Dir, flags};
use super::format::{
    self, EXTENTS_MAX, Geometry, META_BYTES, Meta, SLOT_HEADER_BYTES, Shape, SlotHeader,
    encode_table,
};
use super::purge;
use super::reader::WHOLE_BYTES_MAX;
use super::slots::Run;
use crate::block::replied;

/// Longest body that is written when it is complete, instead of being followed while it arrives.
pub(crate) const WHOLE_AT_END_BYTES_MAX: u64 = 128 * 1024;

/// Slots in memory, in the form that they have on disk: full ones and one that is being filled.
struct Slab {
    /// `None` in place of a slab that has been handed over.
    stored: Option<Arc<Stored>>,
    buffer: Arc<AppendBuffer>,
    region: Region,
    /// Position in the chain of the first slot here.
    base: u32,
    /// Full slots.
    full: usize,
    /// Payload bytes in the slot behind them.
    fill: usize,
}

impl Slab {
    fn new(device: &Arc<Device>, slots: usize, base: u32) -> Result<Self, SchemeError> {
        let slots = slots.clamp(1, most_slots(device.geometry));
        let bytes = slots * device.geometry.slot_bytes;
        let is_long = slots > first_slots(device.geometry);
        let stored = Some(Stored::take(device, bytes, is_long)?);
        Ok(Self { stored, ..Self::uncounted(bytes, base)? })
    }

    fn uncounted(bytes: usize, base: u32) -> Result<Self, SchemeError> {
        let buffer = AppendBuffer::new(bytes);
        let region = buffer.reserve(bytes).ok_or(SchemeError::Busy("no memory"))?;
        Ok(Self { stored: None, buffer, region, base, full: 0, fill: 0 })
    }

    fn slots(&self, geometry: Geometry) -> usize {
        self.region.len() / geometry.slot_bytes
    }

    /// The payload of the slot being filled, with the rest of its room.
    fn current(&mut self, geometry: Geometry) -> &mut [u8] {
        let start = self.full * geometry.slot_bytes;
        let end = start + geometry.slot_bytes;
        self.region.get_mut(start + SLOT_HEADER_BYTES..end).unwrap_or_default()
    }

    /// Twice the room, with everything in it, but no more slots than are `wanted` in all.
    fn grow(&mut self, device: &Arc<Device>, wanted: usize) -> Result<(), SchemeError> {
        let slots = self.slots(device.geometry);
        let mut larger = Self::new(device, (slots * 2).min(wanted.max(slots + 1)), self.base)?;
        let len = self.region.len().min(larger.region.len());
        larger.region[..len].copy_from_slice(&self.region[..len]);
        (larger.full, larger.fill) = (self.full, self.fill);
        *self = larger;
        Ok(())
    }
}

/// Most slots that a writer has in memory.
fn most_slots(geometry: Geometry) -> usize {
    (WHOLE_BYTES_MAX / geometry.slot_bytes).max(2)
}

/// Slots with which the collection of an object begins: room for one that comes when it is
/// complete. A longer one has as much as has come of it, so that slow ones do not keep others
/// waiting.
fn first_slots(geometry: Geometry) -> usize {
    WHOLE_AT_END_BYTES_MAX as usize / geometry.slot_bytes + 1
}

/// An object being written.
pub(crate) struct RockWriter {
    dir: Arc<Dir>,
    geometry: Geometry,
    record: Record,
    id: u64,
    chain: Arc<Chain>,
    /// Slots that the object will take; `usize::MAX` if that is not known.
    slots_wanted: usize,
    slab: Slab,
    /// The first slot of an object that is longer than a slab, payload and room for the header.
    first: Option<Vec<u8>>,
    /// The last slot that has been submitted.
    last_slot: u32,
    extents: Vec<Extent>,
    /// Until it is being written.
    place: Option<Place>,
}

impl RockWriter {
    /// Starts an object; `Busy` if it does not fit.
    pub(crate) fn create(
        dir: &Arc<Dir>,
        record: Record,
        body_bytes: Option<u64>,
    ) -> Result<Self, SchemeError> {
        dir.device.in_service()?;
        if !dir.rebuild.may_store() {
            return Err(SchemeError::Busy("the index is being read"));
        }
        let geometry = dir.device.geometry;
        let record_bytes =
            format::record_bytes(&record).ok_or(SchemeError::Busy("head or URL is too long"))?;
        let options = &dir.options;
        if body_bytes.is_some_and(|bytes| !(options.min_bytes..=options.max_bytes).contains(&bytes))
        {
            return Err(SchemeError::Busy("min-size or max-size"));
        }
        let stream_bytes = body_bytes.unwrap_or(0).saturating_add(record_bytes as u64);
        let slots = Shape::new(geometry, stream_bytes).slots();
        if !slots.is_some_and(|slots| dir.admits(slots)) {
            return Err(SchemeError::Busy("larger than the directory"));
        }
        dir.device.check_timeout()?;
        dir.device.check_writes()?;
        let device = &dir.device;
        if record.kind == RecordKind::Object
            && device.turns.refuses(&record.key, || device.is_half_full())
            && dir.index.peek(IndexKey::from(&record.key)).is_none()
        {
            return Err(device.shed("many writes are waiting, and it comes for the first time"));
        }
        let slots = slots.and_then(|slots| usize::try_from(slots).ok()).unwrap_or(usize::MAX);
        let mut writer = Self {
            id: dir.new_id()?,
            chain: Chain::new(dir, IndexKey::from(&record.key)),
            slots_wanted: if body_bytes.is_some() { slots } else { usize::MAX },
            slab: Slab::new(&dir.device, slots.min(first_slots(geometry)), 0)?,
            dir: Arc::clone(dir),
            geometry,
            record,
            first: None,
            last_slot: 0,
            extents: Vec::new(),
            place: None,
        };
        writer.begin()?;
        Ok(writer)
    }

    /// Puts the record in front, with a place for its fixed part, which is known at the end only.
    fn begin(&mut self) -> Result<(), SchemeError> {
        let url = std::mem::take(&mut self.record.url);
        let head = std::mem::take(&mut self.record.head);
        for part in [&[0; META_BYTES][..], &url, &head] {
            let mut rest = part;
            while !rest.is_empty() {
                rest = self.fill(rest);
                // A record is never longer than a slab.
                if !rest.is_empty() && !self.next_slot()? {
                    return Err(SchemeError::Busy("head or URL is too long"));
                }
            }
        }
        (self.record.url, self.record.head) = (url, head);
        Ok(())
    }

    /// Puts the bytes that have room into the current slot; returns the rest.
    fn fill<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let fill = self.slab.fill;
        let room = self.slab.current(self.geometry).get_mut(fill..).unwrap_or_default();
        let (now, later) = bytes.split_at(bytes.len().min(room.len()));
        room[..now.len()].copy_from_slice(now);
        self.slab.fill += now.len();
        later
    }

    /// Goes on with the slot behind a full one; `false` if the slab is full.
    fn next_slot(&mut self) -> Result<bool, SchemeError> {
        let geometry = self.geometry;
        if self.slab.full + 1 == self.slab.slots(geometry) {
            if self.slab.slots(geometry) >= most_slots(geometry) {
                return Ok(false);
            }
            self.slab.grow(&self.dir.device, self.slots_wanted)?;
        }
        let is_first = self.slab.base == 0 && self.slab.full == 0;
        // The first of several slots leaves some room for a longer head: the excess moves on.
        let keep = if is_first { Shape::first_of_many(geometry) as usize } else { self.slab.fill };
        let moved = self.slab.current(geometry).get(keep..).unwrap_or_default().to_vec();
        (self.slab.full, self.slab.fill) = (self.slab.full + 1, 0);
        self.fill(&moved);
        Ok(true)
    }

    async fn append(&mut self, offset: u64, parts: &[&[u8]]) -> Result<(), SchemeError> {
        self.dir.device.in_service()?;
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes == 0 {
            return Ok(());
        }
        let end =
            offset.checked_add(bytes as u64).ok_or(SchemeError::Busy("offset out of range"))?;
        if end > self.dir.options.max_bytes {
            return Err(SchemeError::Busy("max-size"));
        }
        self.extend(offset, end)?;
        for part in parts {
            self.put(part).await?;
        }
        Ok(())
    }

    /// Appends to the stream.
    async fn put(&mut self, bytes: &[u8]) -> Result<(), SchemeError> {
        let mut rest = self.fill(bytes);
        while !rest.is_empty() {
            if !self.next_slot()? {
                self.write_slab().await?;
            }
            rest = self.fill(rest);
        }
        Ok(())
    }

    /// Enters `start..end` into the extents.
    fn extend(&mut self, start: u64, end: u64) -> Result<(), SchemeError> {
        let is_full = self.extents.len() == EXTENTS_MAX;
        match self.extents.last_mut() {
            Some(last) if last.end == start => last.end = end,
            Some(last) if last.end > start => return Err(SchemeError::Busy("offsets must grow")),
            _ if is_full => return Err(SchemeError::Busy("too many extents")),
            _ => self.extents.push(Extent { start, end }),
        }
        Ok(())
    }

    /// Writes a full slab and begins another one.
    async fn write_slab(&mut self) -> Result<(), SchemeError> {
        self.dir.device.check_timeout()?;
        self.dir.device.wait_for_turn().await?;
        let base = self.slab.base + self.slab.slots(self.geometry) as u32;
        let next = Slab::new(&self.dir.device, usize::MAX, base)?;
        let mut slab = std::mem::replace(&mut self.slab, next);
        // All slots of it are full.
        slab.full += 1;
        slab.fill = 0;
        let skipped = usize::from(slab.base == 0);
        if skipped == 1 {
            self.first =
                Some(slab.region.get(..self.geometry.slot_bytes).unwrap_or_default().to_vec());
        }
        let written = {
            let dir = Arc::clone(&self.dir);
            let pass = dir.device.pass()?;
            let parts = self.place(&pass, slab, skipped, 0)?;
            chain::write(&self.chain, &pass, parts, None)
        };
        self.place = None;
        replied(&*self.dir.device.file, written).await.unwrap_or(Err(SchemeError::Down))
    }

    /// Finds slots for those of a slab, without the first `skipped`, and seals them. `chain` is the
    /// length of the chain if it is known.
    fn place(
        &mut self,
        pass: &Pass<'_>,
        mut slab: Slab,
        skipped: usize,
        chain: u32,
    ) -> Result<Vec<Part>, SchemeError> {
        let geometry = self.geometry;
        let count = slab.full + usize::from(slab.fill > 0);
        let taken = self.dir.take(pass, u32::try_from(count - skipped).unwrap_or(u32::MAX))?;
        self.chain.append(&taken);
        let last_taken = taken.runs.last().map_or(0, |run| run.start + run.len - 1);
        let mut at = skipped;
        let mut ranges: Vec<(Run, Range<usize>)> = Vec::new();
        for run in &taken.runs {
            let start = at * geometry.slot_bytes;
            let mut end = start;
            for slot in run.start..run.start + run.len {
                let position = slab.base + at as u32;
                // All but the last slot of a chain are written, and read, whole.
                let (payload_bytes, disk_bytes) = match () {
                    () if at == slab.full => (slab.fill, geometry.disk_bytes(slab.fill)),
                    () if position == 0 => {
                        (Shape::first_of_many(geometry) as usize, geometry.slot_bytes)
                    }
                    () => (geometry.payload_bytes_max(), geometry.slot_bytes),
                };
                let header = match position {
                    0 => self.header(0, last_taken, chain, payload_bytes),
                    _ => self.header(position, self.last_slot, 0, payload_bytes),
                };
                let place = at * geometry.slot_bytes;
                end = place + disk_bytes;
                let bytes =
                    slab.region.get_mut(place..place + geometry.slot_bytes).unwrap_or_default();
                geometry.seal(slot, &header, bytes);
                self.last_slot = slot;
                at += 1;
            }
            ranges.push((*run, start..end));
        }
        let _ = slab.region.publish();
        let part = |(run, range)| {
            let stored = slab.stored.clone();
            Part { run, data: Arc::clone(&slab.buffer), range, stored }
        };
        Ok(ranges.into_iter().map(part).collect())
    }

    fn header(&self, position: u32, link: u32, chain: u32, payload_bytes: usize) -> SlotHeader {
        let (key, id, payload_bytes) = (self.record.key, self.id, payload_bytes as u32);
        SlotHeader { key, id, position, link, chain, payload_bytes }
    }

    async fn finish(mut self, body_bytes: Option<u64>) -> Result<(), SchemeError> {
        self.dir.device.in_service()?;
        let stored_end = self.extents.last().map_or(0, |extent| extent.end);
        if body_bytes.is_some_and(|bytes| bytes < stored_end) {
            return Err(SchemeError::Busy("more was written than the length of the body"));
        }
        if body_bytes.is_some_and(|bytes| bytes < self.dir.options.min_bytes) {
            return Err(SchemeError::Busy("min-size"));
        }
        let mut table = Vec::new();
        encode_table(&self.extents, &mut table);
        self.put(&table).await?;
        self.dir.device.check_timeout()?;
        self.dir.device.wait_for_turn().await?;
        let dir = Arc::clone(&self.dir);
        let written = {
            let pass = dir.device.pass()?;
            purge::tidy(&dir, &pass, IndexKey::from(&self.record.key));
            self.submit(&pass, body_bytes)?
        };
        self.place = None;
        replied(&*self.dir.device.file, written).await.unwrap_or(Err(SchemeError::Down))
    }

    /// Writes the rest, and the first slot, and has the object published when that is done.
    fn submit(
        &mut self,
        pass: &Pass<'_>,
        body_bytes: Option<u64>,
    ) -> Result<chain::Written, SchemeError> {
        let meta = Meta::new(&self.record, &self.extents, body_bytes);
        let shape = Shape::new(self.geometry, meta.stream_bytes());
        let too_long = SchemeError::Busy("too long for a chain");
        let (Some(slots), Some(size_units)) = (shape.slots(), shape.size_units()) else {
            return Err(too_long);
        };
        let empty = Slab::uncounted(1, 0)?;
        let mut slab = std::mem::replace(&mut self.slab, empty);
        let parts = match self.first.take() {
            None => {
                put_meta(&mut slab.region, &meta);
                self.place(pass, slab, 0, slots)?
            }
            Some(mut first) => {
                put_meta(&mut first, &meta);
                self.place_long(pass, slab, first, slots)?
            }
        };
        let first = parts.first().map_or(0, |part| part.run.start);
        let entry = FileEntry { file: first, size_units, flags: flags(&meta) };
        let object_bytes = meta.record_bytes() - META_BYTES as u64 + meta.stored_bytes;
        let publication =
            Publication { key: IndexKey::from(&self.record.key), entry, object_bytes };
        Ok(chain::write(&self.chain, pass, parts, Some(publication)))
    }

    /// The last parts of an object that is longer than a slab, its first slot before the others.
    fn place_long(
        &mut self,
        pass: &Pass<'_>,
        slab: Slab,
        mut first: Vec<u8>,
        slots: u32,
    ) -> Result<Vec<Part>, SchemeError> {
        let rest = self.place(pass, slab, 0, 0)?;
        let taken = self.dir.take(pass, 1)?;
        self.chain.put_first(&taken);
        let run = *taken.runs.first().ok_or(SchemeError::Busy("directory is full"))?;
        let payload_bytes = Shape::first_of_many(self.geometry) as usize;
        let header = self.header(0, self.last_slot, slots, payload_bytes);
        self.geometry.seal(run.start, &header, &mut first);
        let data = AppendBuffer::new(first.len());
        let mut region = data.reserve(first.len()).ok_or(SchemeError::Busy("no memory"))?;
        region.copy_from_slice(&first);
        let _ = region.publish();
        let first = Part { run, data, range: 0..self.geometry.slot_bytes, stored: None };
        Ok(std::iter::once(first).chain(rest).collect())
    }
}

/// Puts the fixed part of the record into its place in the first slot.
fn put_meta(slot: &mut [u8], meta: &Meta) {
    if let Some(place) = slot.get_mut(SLOT_HEADER_BYTES..SLOT_HEADER_BYTES + META_BYTES) {
        place.copy_from_slice(&meta.encode());
    }
}

impl Writer for RockWriter {
    fn write<'a>(&'a mut self, offset: u64, parts: &'a [&'a [u8]]) -> IoFuture<'a, ()> {
        Box::pin(self.append(offset, parts))
    }

    fn hold(&mut self, place: Place) {
        self.place = Some(place);
    }

    fn commit(self: Box<Self>, body_bytes: Option<u64>) -> IoFuture<'static, ()> {
        Box::pin((*self).finish(body_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::battery::{record, run, wait_for_rebuild};
    use crate::rock::{DirOptions, Rock};

    /// Or it would be copied for each slot that it grows by.
    #[test]
    fn an_object_of_unknown_length_doubles_its_memory() {
        let folder = tempfile::tempdir().expect("a directory");
        let rock = Rock::open(&DirOptions::new(folder.path(), 16 << 20)).expect("a new directory");
        wait_for_rebuild(&rock);
        let mut writer = RockWriter::create(&rock.dir, record("http://a/", 1), None).expect("room");
        let (piece, mut sizes) = ([0; 4096], Vec::new());
        for at in 0..200 {
            run(writer.append(at * piece.len() as u64, &[&piece])).expect("room");
            sizes.push(writer.slab.slots(writer.geometry));
        }
        sizes.dedup();
        assert_eq!(sizes, [1, 2, 4, 8, 16, 32, 64]);
    }
}
