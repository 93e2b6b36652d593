//! Bytes of the slot file: file header, slot headers, the record in front of a body. See
//! `docs/formats/rock.md`.
//!
//! Everything decoded here came from a disk: each number is checked before it is used, and a
//! contradiction is a [`Corrupt`] with its reason.

use humboldt_base::xxh3::{Xxh3, xxh3_64};
use humboldt_freshness::Times;
use humboldt_store::Key;
use humboldt_store::scheme::{Extent, Record, RecordKind};

/// Slots begin here; the file header lies before them.
pub(crate) const FILE_HEADER_BYTES: u64 = 16 * 1024;
/// Length of one copy of the file header; there are two in sequence.
pub(crate) const HEADER_COPY_BYTES: usize = 4096;
/// Length of a slot's header.
pub(crate) const SLOT_HEADER_BYTES: usize = 64;
/// Length of the record without URL, head and table.
pub(crate) const META_BYTES: usize = 96;
/// Most extents of one object; a writer that needs more gives up.
pub(crate) const EXTENTS_MAX: usize = 1024;
/// Longest record (URL and head included); they are far shorter in practice.
pub(crate) const RECORD_BYTES_MAX: usize = 1024 * 1024;
/// Room for a longer head that the first slot of a chain keeps, at most.
pub(crate) const SLACK_BYTES: usize = 512;
/// Unit of the sizes in the index.
pub(crate) const UNIT_BYTES: usize = 512;

const EXTENT_BYTES: usize = 16;
const FILE_MAGIC: &[u8; 8] = b"HUMrock\0";
const SLOT_MAGIC: &[u8; 4] = b"HUrS";
const VERSION: u32 = 1;

/// The reason why bytes are not valid.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Corrupt(pub(crate) &'static str);

/// A fixed-size part of a slice; zeros where the slice is too short.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(part) = bytes.get(at..at + N) {
        out.copy_from_slice(part);
    }
    out
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

/// The header of the slot file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileHeader {
    /// Random; part of every checksum, so that slots of another store never verify here.
    pub(crate) store_id: u64,
    pub(crate) slot_bytes: u32,
    /// For information: how many slots there were when it was written.
    pub(crate) slots: u32,
    /// Object ids below it may have been given out.
    pub(crate) ids_end: u64,
    /// The snapshot of the index that is complete, 0 if there is none.
    pub(crate) snapshot: u64,
    /// Grows with each writing, so that the newer of two copies is known.
    pub(crate) writes: u64,
}

impl FileHeader {
    pub(crate) fn encode(&self) -> [u8; HEADER_COPY_BYTES] {
        let mut bytes = [0; HEADER_COPY_BYTES];
        bytes[..8].copy_from_slice(FILE_MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.slot_bytes.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.slots.to_le_bytes());
        for (at, word) in
            [(24, self.store_id), (32, self.ids_end), (40, self.snapshot), (48, self.writes)]
        {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let sum = xxh3_64(&bytes[..56]);
        bytes[56..64].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The newer of the copies that verify.
    pub(crate) fn decode(both: &[u8]) -> Option<Self> {
        both.chunks(HEADER_COPY_BYTES)
            .take(2)
            .filter_map(Self::decode_copy)
            .max_by_key(|header| header.writes)
    }

    fn decode_copy(bytes: &[u8]) -> Option<Self> {
        let is_ours = bytes.get(..8)? == FILE_MAGIC
            && u32_at(bytes, 8) == VERSION
            && xxh3_64(bytes.get(..56)?) == u64_at(bytes, 56);
        is_ours.then(|| Self {
            slot_bytes: u32_at(bytes, 12),
            slots: u32_at(bytes, 16),
            store_id: u64_at(bytes, 24),
            ids_end: u64_at(bytes, 32),
            snapshot: u64_at(bytes, 40),
            writes: u64_at(bytes, 48),
        })
    }
}

/// The header of one slot.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotHeader {
    pub(crate) key: Key,
    /// Which object: never the same twice in a store, larger for a younger one.
    pub(crate) id: u64,
    /// Place in the chain, 0 for the first.
    pub(crate) position: u32,
    /// The slot before this one in the chain; in the first slot: the last one.
    pub(crate) link: u32,
    /// Slots in the chain; in the first slot only.
    pub(crate) chain: u32,
    pub(crate) payload_bytes: u32,
}

/// Store and slot size, which are needed to read and write slots.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) store_id: u64,
    pub(crate) slot_bytes: usize,
}

impl Geometry {
    /// Most payload of a slot.
    pub(crate) fn payload_bytes_max(&self) -> usize {
        self.slot_bytes.saturating_sub(SLOT_HEADER_BYTES)
    }

    /// Reads and writes are multiples of this.
    pub(crate) fn io_unit_bytes(&self) -> usize {
        if self.slot_bytes.is_multiple_of(4096) { 4096 } else { UNIT_BYTES }
    }

    /// The start of a slot in the file.
    pub(crate) fn offset(&self, slot: u32) -> u64 {
        FILE_HEADER_BYTES + u64::from(slot) * self.slot_bytes as u64
    }

    /// Number of slots in a file of `bytes`.
    pub(crate) fn slots_in(&self, bytes: u64) -> u32 {
        let slots = bytes.saturating_sub(FILE_HEADER_BYTES) / (self.slot_bytes as u64).max(1);
        u32::try_from(slots).unwrap_or(u32::MAX).min(SLOTS_MAX)
    }

    /// The bytes of a slot with this much payload that are read and written.
    pub(crate) fn disk_bytes(&self, payload_bytes: usize) -> usize {
        (SLOT_HEADER_BYTES + payload_bytes)
            .next_multiple_of(self.io_unit_bytes())
            .min(self.slot_bytes)
    }

    fn checksum(&self, slot: u32, header: &[u8], payload: &[u8]) -> u64 {
        let mut hash =
            Xxh3::with_seed(self.store_id ^ u64::from(slot).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        hash.update(header);
        hash.update(payload);
        hash.digest()
    }

    /// Completes the slot in `bytes`, whose payload is in place: header in front of it, zeros
    /// behind it.
    pub(crate) fn seal(&self, slot: u32, header: &SlotHeader, bytes: &mut [u8]) {
        let Some((head, payload)) = bytes.split_at_mut_checked(SLOT_HEADER_BYTES) else { return };
        let end = (header.payload_bytes as usize).min(payload.len());
        let (payload, padding) = payload.split_at_mut(end);
        padding.fill(0);
        head.fill(0);
        head[..4].copy_from_slice(SLOT_MAGIC);
        head[4..8].copy_from_slice(&header.payload_bytes.to_le_bytes());
        head[8..16].copy_from_slice(&header.id.to_le_bytes());
        head[16..32].copy_from_slice(&header.key.to_bytes());
        head[32..36].copy_from_slice(&header.position.to_le_bytes());
        head[36..40].copy_from_slice(&header.link.to_le_bytes());
        head[40..44].copy_from_slice(&header.chain.to_le_bytes());
        let sum = self.checksum(slot, &head[..56], payload);
        head[56..64].copy_from_slice(&sum.to_le_bytes());
    }

    /// Verifies the bytes of `slot`; returns its header and payload.
    pub(crate) fn unseal<'a>(
        &self,
        slot: u32,
        bytes: &'a [u8],
    ) -> Result<(SlotHeader, &'a [u8]), Corrupt> {
        let (head, rest) =
            bytes.split_at_checked(SLOT_HEADER_BYTES).ok_or(Corrupt("slot is short"))?;
        if &head[..4] != SLOT_MAGIC {
            return Err(Corrupt("no slot header"));
        }
        let payload_bytes = u32_at(head, 4);
        let payload = rest.get(..payload_bytes as usize).ok_or(Corrupt("length of a slot"))?;
        if payload.len() > self.payload_bytes_max() {
            return Err(Corrupt("length of a slot"));
        }
        if self.checksum(slot, &head[..56], payload) != u64_at(head, 56) {
            return Err(Corrupt("checksum of a slot"));
        }
        let header = SlotHeader {
            payload_bytes,
            id: u64_at(head, 8),
            key: Key::from_bytes(array(head, 16)),
            position: u32_at(head, 32),
            link: u32_at(head, 36),
            chain: u32_at(head, 40),
        };
        Ok((header, payload))
    }
}

/// Most slots of a file; slot numbers above it have other meanings in memory.
pub(crate) const SLOTS_MAX: u32 = u32::MAX - 16;

/// The distribution of an object's stream (record, stored bytes, table) over the slots of its
/// chain.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) geometry: Geometry,
    /// Payload of the first slot.
    pub(crate) first_bytes: u64,
    /// Length of the stream.
    pub(crate) stream_bytes: u64,
}

impl Shape {
    /// The shape of an object to be written: a chain of one slot if that is enough, else with slack
    /// in the first.
    pub(crate) fn new(geometry: Geometry, stream_bytes: u64) -> Self {
        let max = geometry.payload_bytes_max() as u64;
        let first_bytes =
            if stream_bytes <= max { stream_bytes } else { Self::first_of_many(geometry) };
        Self { geometry, first_bytes, stream_bytes }
    }

    /// Payload of the first slot of a chain of more than one.
    pub(crate) fn first_of_many(geometry: Geometry) -> u64 {
        let max = geometry.payload_bytes_max();
        (max - SLACK_BYTES.min(max / 4)) as u64
    }

    /// Slots in the chain; `None` if it is too long for any file.
    pub(crate) fn slots(&self) -> Option<u32> {
        let rest = self.stream_bytes.saturating_sub(self.first_bytes);
        let slots = 1 + rest.div_ceil(self.geometry.payload_bytes_max().max(1) as u64);
        u32::try_from(slots).ok().filter(|slots| *slots <= SLOTS_MAX)
    }

    /// Payload of the slot at `position`.
    pub(crate) fn payload_bytes(&self, position: u32) -> usize {
        if position == 0 {
            return self.first_bytes as usize;
        }
        let max = self.geometry.payload_bytes_max() as u64;
        let before = self.first_bytes.saturating_add(u64::from(position - 1).saturating_mul(max));
        self.stream_bytes.saturating_sub(before).min(max) as usize
    }

    /// Position and offset in the payload of byte `at` of the stream.
    pub(crate) fn locate(&self, at: u64) -> (u32, usize) {
        let max = self.geometry.payload_bytes_max().max(1) as u64;
        match at.checked_sub(self.first_bytes) {
            None => (0, at as usize),
            Some(behind) => (
                u32::try_from(behind / max).unwrap_or(u32::MAX).saturating_add(1),
                (behind % max) as usize,
            ),
        }
    }

    /// Size for the index: the bytes to read of the whole chain, in units of 512 bytes. `None` if
    /// that is too much.
    pub(crate) fn size_units(&self) -> Option<u32> {
        let slots = self.slots()?;
        let full = u64::from(slots - 1) * self.geometry.slot_bytes as u64;
        let bytes = full + self.geometry.disk_bytes(self.payload_bytes(slots - 1)) as u64;
        u32::try_from(bytes / UNIT_BYTES as u64).ok()
    }
}

/// The decoded fixed part of a record, which describes the stream of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Meta {
    pub(crate) kind: RecordKind,
    pub(crate) times: Times,
    pub(crate) url_bytes: u32,
    pub(crate) head_bytes: u32,
    pub(crate) extents: u32,
    pub(crate) body_bytes: Option<u64>,
    pub(crate) stored_bytes: u64,
    pub(crate) first_start: u64,
}

/// Length of a record with this URL and head; `None` if it is too long to be stored.
pub(crate) fn record_bytes(record: &Record) -> Option<usize> {
    let bytes = META_BYTES.checked_add(record.url.len())?.checked_add(record.head.len())?;
    (bytes <= RECORD_BYTES_MAX).then_some(bytes)
}

impl Meta {
    /// The meta of a record with these extents; the record is not longer than [`RECORD_BYTES_MAX`].
    pub(crate) fn new(record: &Record, extents: &[Extent], body_bytes: Option<u64>) -> Self {
        Self {
            kind: record.kind,
            times: record.times,
            url_bytes: record.url.len() as u32,
            head_bytes: record.head.len() as u32,
            extents: extents.len() as u32,
            body_bytes,
            stored_bytes: extents.iter().map(|extent| extent.end - extent.start).sum(),
            first_start: extents.first().map_or(0, |extent| extent.start),
        }
    }

    pub(crate) fn encode(&self) -> [u8; META_BYTES] {
        let mut bytes = [0; META_BYTES];
        bytes[0] = match self.kind {
            RecordKind::Object => 1,
            RecordKind::Vary => 2,
        };
        bytes[4..8].copy_from_slice(&self.url_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.head_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.extents.to_le_bytes());
        bytes[16..16 + Times::BYTES].copy_from_slice(&self.times.to_bytes());
        let words = [self.body_bytes.unwrap_or(u64::MAX), self.stored_bytes, self.first_start];
        for (place, word) in bytes[64..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes the start of a stream.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let bytes = bytes.get(..META_BYTES).ok_or(Corrupt("record is short"))?;
        let kind = match bytes[0] {
            1 => RecordKind::Object,
            2 => RecordKind::Vary,
            _ => return Err(Corrupt("kind of record")),
        };
        let body_bytes = u64_at(bytes, 64);
        let meta = Self {
            kind,
            times: Times::from_bytes(&array(bytes, 16)),
            url_bytes: u32_at(bytes, 4),
            head_bytes: u32_at(bytes, 8),
            extents: u32_at(bytes, 12),
            body_bytes: (body_bytes != u64::MAX).then_some(body_bytes),
            stored_bytes: u64_at(bytes, 72),
            first_start: u64_at(bytes, 80),
        };
        let is_sane = meta.record_bytes() <= RECORD_BYTES_MAX as u64
            && meta.extents as usize <= EXTENTS_MAX
            && (meta.extents == 0) == (meta.stored_bytes == 0)
            && meta.checked_stream_bytes().is_some()
            && meta.first_start.checked_add(meta.stored_bytes).is_some();
        is_sane.then_some(meta).ok_or(Corrupt("numbers in the record"))
    }

    /// Length of the fixed part, URL and head.
    pub(crate) fn record_bytes(&self) -> u64 {
        META_BYTES as u64 + u64::from(self.url_bytes) + u64::from(self.head_bytes)
    }

    /// Length of the table of extents: a single extent needs none.
    pub(crate) fn table_bytes(&self) -> usize {
        if self.extents > 1 { self.extents as usize * EXTENT_BYTES } else { 0 }
    }

    fn checked_stream_bytes(&self) -> Option<u64> {
        self.record_bytes().checked_add(self.stored_bytes)?.checked_add(self.table_bytes() as u64)
    }

    /// Length of the whole stream.
    pub(crate) fn stream_bytes(&self) -> u64 {
        self.checked_stream_bytes().unwrap_or(u64::MAX)
    }

    /// The head, if `stream` reaches that far.
    pub(crate) fn head<'a>(&self, stream: &'a [u8]) -> Option<&'a [u8]> {
        stream.get(META_BYTES + self.url_bytes as usize..self.record_bytes() as usize)
    }

    /// The record, from the first [`Meta::record_bytes`] of the stream.
    pub(crate) fn record(&self, key: Key, stream: &[u8]) -> Result<Record, Corrupt> {
        let text = stream
            .get(META_BYTES..self.record_bytes() as usize)
            .ok_or(Corrupt("record is short"))?;
        let (url, head) =
            text.split_at_checked(self.url_bytes as usize).ok_or(Corrupt("record is short"))?;
        Ok(Record { key, kind: self.kind, url: url.into(), head: head.into(), times: self.times })
    }

    /// The extents, from the table behind the stored bytes.
    pub(crate) fn extents(&self, table: &[u8]) -> Result<Vec<Extent>, Corrupt> {
        let extents: Vec<Extent> = match self.extents {
            0 => Vec::new(),
            1 => {
                vec![Extent { start: self.first_start, end: self.first_start + self.stored_bytes }]
            }
            _ => table
                .chunks_exact(EXTENT_BYTES)
                .map(|part| Extent { start: u64_at(part, 0), end: u64_at(part, 8) })
                .collect(),
        };
        let mut stored = 0_u64;
        let mut previous_end = None;
        for extent in &extents {
            if extent.start >= extent.end || previous_end.is_some_and(|end| end >= extent.start) {
                return Err(Corrupt("order of extents"));
            }
            stored = stored.saturating_add(extent.end - extent.start);
            previous_end = Some(extent.end);
        }
        let is_whole = extents.len() == self.extents as usize && stored == self.stored_bytes;
        if !is_whole
            || self.body_bytes.is_some_and(|bytes| previous_end.is_some_and(|end| end > bytes))
        {
            return Err(Corrupt("lengths of extents"));
        }
        Ok(extents)
    }

    /// Whether the whole body is stored.
    pub(crate) fn is_complete(&self) -> bool {
        self.extents <= 1 && self.first_start == 0 && self.body_bytes == Some(self.stored_bytes)
    }
}

/// Appends the table of several extents; one needs none.
pub(crate) fn encode_table(extents: &[Extent], out: &mut Vec<u8>) {
    for extent in extents.iter().filter(|_| extents.len() > 1) {
        out.extend_from_slice(&extent.start.to_le_bytes());
        out.extend_from_slice(&extent.end.to_le_bytes());
    }
}

/// The place of offset `at` of the body among the stored bytes, and the number of bytes that follow
/// it in its extent.
pub(crate) fn locate(extents: &[Extent], at: u64) -> Option<(u64, u64)> {
    let mut stored = 0;
    for extent in extents {
        if at < extent.start {
            return None;
        }
        if at < extent.end {
            return Some((stored + (at - extent.start), extent.end - at));
        }
        stored += extent.end - extent.start;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::battery::record;

    const GEOMETRY: Geometry = Geometry { store_id: 77, slot_bytes: 4096 };

    #[test]
    fn every_bit_of_a_slot_counts_and_its_place_too() {
        let header =
            SlotHeader { key: Key(9), id: 5, position: 0, link: 3, chain: 4, payload_bytes: 200 };
        let mut bytes = vec![0xAA; 4096];
        GEOMETRY.seal(8, &header, &mut bytes);
        let (found, payload) = GEOMETRY.unseal(8, &bytes).expect("it verifies");
        assert_eq!((found, payload), (header, &[0xAA; 200][..]));
        assert!(
            bytes[264..].iter().all(|byte| *byte == 0),
            "nothing of other objects gets to the disk"
        );
        for bit in 0..264 * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(GEOMETRY.unseal(8, &bad).is_err(), "bit {bit}");
        }
        assert!((0..264).all(|end| GEOMETRY.unseal(8, &bytes[..end]).is_err()));
        assert!(GEOMETRY.unseal(9, &bytes).is_err(), "another slot");
        assert!(Geometry { store_id: 78, ..GEOMETRY }.unseal(8, &bytes).is_err(), "another store");
    }

    #[test]
    fn the_newer_copy_of_the_file_header_counts() {
        let old = FileHeader {
            store_id: 1,
            slot_bytes: 4096,
            slots: 9,
            ids_end: 7,
            snapshot: 3,
            writes: 4,
        };
        let new = FileHeader { snapshot: 0, writes: 5, ..old };
        let both = |a: &FileHeader, b: &FileHeader| [a.encode(), b.encode()].concat();
        assert_eq!(FileHeader::decode(&both(&old, &new)), Some(new));
        assert_eq!(FileHeader::decode(&both(&new, &old)), Some(new));
        let mut torn = both(&new, &old);
        torn[30] ^= 1;
        assert_eq!(FileHeader::decode(&torn), Some(old));
        torn[4096 + 30] ^= 1;
        assert_eq!(FileHeader::decode(&torn), None);
        assert_eq!(FileHeader::decode(&[]), None);
    }

    #[test]
    fn shapes_cover_the_stream_without_gaps() {
        for stream_bytes in [0, 1, 4031, 4032, 4033, 7552, 7553, 100_000] {
            let shape = Shape::new(GEOMETRY, stream_bytes);
            let slots = shape.slots().expect("not too long");
            let total: usize = (0..slots).map(|position| shape.payload_bytes(position)).sum();
            assert_eq!(total as u64, stream_bytes, "{slots} slots");
            assert_eq!(shape.payload_bytes(slots), 0);
            let mut expected =
                (0..slots).flat_map(|p| (0..shape.payload_bytes(p)).map(move |at| (p, at)));
            assert!((0..stream_bytes).all(|at| Some(shape.locate(at)) == expected.next()));
        }
        assert_eq!(Shape::new(GEOMETRY, u64::MAX).slots(), None);
        assert_eq!(Shape::new(GEOMETRY, 2 << 40).size_units(), None);
    }

    #[test]
    fn records_and_tables_survive_and_nonsense_is_refused() {
        let record = record("http://a/", 3);
        let extents = [Extent { start: 5, end: 9 }, Extent { start: 20, end: 50 }];
        let meta = Meta::new(&record, &extents, Some(60));
        assert_eq!(Meta::decode(&meta.encode()), Ok(meta.clone()));
        assert!(!meta.is_complete() && meta.stored_bytes == 34);
        let mut table = Vec::new();
        encode_table(&extents, &mut table);
        assert_eq!(meta.extents(&table), Ok(extents.to_vec()));
        assert!(meta.extents(&table[..16]).is_err());
        assert!(Meta { body_bytes: Some(49), ..meta.clone() }.extents(&table).is_err());
        table.rotate_left(16);
        assert!(meta.extents(&table).is_err(), "order");
        for bad in [
            Meta { url_bytes: u32::MAX, ..meta.clone() },
            Meta { extents: EXTENTS_MAX as u32 + 1, ..meta.clone() },
            Meta { stored_bytes: u64::MAX, ..meta.clone() },
            Meta { first_start: u64::MAX, ..meta.clone() },
            Meta { extents: 0, ..meta.clone() },
        ] {
            assert!(Meta::decode(&bad.encode()).is_err(), "{bad:?}");
        }
        assert_eq!(locate(&extents, 4), None);
        assert_eq!(locate(&extents, 8), Some((3, 1)));
        assert_eq!(locate(&extents, 9), None);
        assert_eq!(locate(&extents, 21), Some((5, 29)));
    }
}
