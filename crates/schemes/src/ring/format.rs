//! Bytes of a segment: its header, records, and the footer that lists them. See
//! `docs/formats/ring.md`.
//!
//! Everything decoded here came from a disk: each length is checked before it is used, and a
//! contradiction is a [`Corrupt`] with its reason.

use humboldt_base::xxh3::{Xxh3, xxh3_64, xxh3_64_with_seed};
use humboldt_freshness::Times;
use humboldt_store::Key;
use humboldt_store::scheme::{Extent, Record, RecordKind};

/// Unit of location: records begin at multiples of this.
pub(crate) const UNIT_BYTES: u64 = 512;
/// Reads and writes begin and end at multiples of this.
pub(crate) const IO_BYTES: u64 = 4096;
/// Bodies are verified in blocks of this many bytes.
pub(crate) const BLOCK_BYTES: usize = 64 * 1024;
/// Length of the header of a record alone.
pub(crate) const HEADER_BYTES: usize = 160;
/// Longest URL, head and tables of one record together.
pub(crate) const SURROUNDINGS_BYTES_MAX: usize = 1024 * 1024;
/// Most extents of one object; a writer that needs more gives up.
pub(crate) const EXTENTS_MAX: usize = 1024;
/// Most fragments of one object; a writer that needs more gives up.
pub(crate) const FRAGMENTS_MAX: usize = 16 * 1024;
/// Length of an entry in a footer.
pub(crate) const ENTRY_BYTES: usize = 32;
/// Length of the trailer that ends a footer.
pub(crate) const TRAILER_BYTES: usize = 64;
/// Length of a segment's header; the rest of its first unit is empty.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 64;
/// `from` of a record that is not a copy of an older one.
pub(crate) const FROM_NOWHERE: u64 = u64::MAX;

const RECORD_MAGIC: u64 = u64::from_le_bytes(*b"HUMring1");
const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"HUMrseg1");
const TRAILER_MAGIC: u64 = u64::from_le_bytes(*b"HUMrfoo1");
const EXTENT_BYTES: usize = 16;
const FRAGMENT_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 8;

/// The reason why bytes are not valid.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Corrupt(pub(crate) &'static str);

/// A fixed-size part of a slice that is known to be long enough.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
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

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

/// The kind of a record. The index uses the same numbers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// An answer whose stored bytes are all in its record.
    Object = 1,
    /// A Vary list.
    Vary = 2,
    /// An answer with fragments in other places.
    Large = 3,
    /// A part of a large answer; never in the index.
    Fragment = 4,
}

impl Kind {
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        [Self::Object, Self::Vary, Self::Large, Self::Fragment]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }

    fn record_kind(self) -> RecordKind {
        if self == Self::Vary { RecordKind::Vary } else { RecordKind::Object }
    }
}

/// The place of a record, and the time of its writing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// In units from the beginning of the data.
    pub(crate) location: u64,
    /// Generation of the segment.
    pub(crate) generation: u64,
    /// Number of the operation: of two records of one key the one with the higher number is newer.
    pub(crate) sequence: u64,
    /// Location of the record that this one is a copy of, or [`FROM_NOWHERE`].
    pub(crate) from: u64,
}

/// The place of a fragment.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// In units.
    pub(crate) location: u64,
    /// Generation of its segment.
    pub(crate) generation: u64,
    /// Its stored bytes.
    pub(crate) bytes: u32,
    /// Length of its record.
    pub(crate) record_bytes: u32,
    /// Checksum of its surroundings, which contain those of its blocks.
    pub(crate) checksum: u64,
}

/// The contents of a record besides the body.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Surroundings {
    pub(crate) kind: Kind,
    pub(crate) place: Place,
    pub(crate) record: Record,
    /// Length of the whole body when it is known.
    pub(crate) body_bytes: Option<u64>,
    pub(crate) extents: Vec<Extent>,
    pub(crate) fragments: Vec<Fragment>,
    /// Position of a fragment among those of its object.
    pub(crate) fragment_number: u32,
    pub(crate) block_checksums: Vec<u64>,
    /// Bytes of the body in this very record.
    pub(crate) inline_bytes: usize,
    /// Checksum of all this.
    pub(crate) checksum: u64,
}

/// A record to be written: lengths are known before the first byte is.
pub(crate) struct Plan<'a> {
    pub(crate) kind: Kind,
    pub(crate) key: Key,
    pub(crate) url: &'a [u8],
    pub(crate) head: &'a [u8],
    pub(crate) times: &'a Times,
    pub(crate) body_bytes: Option<u64>,
    pub(crate) extents: &'a [Extent],
    pub(crate) fragments: &'a [Fragment],
    pub(crate) fragment_number: u32,
    pub(crate) inline_bytes: usize,
}

impl Plan<'_> {
    /// Length of everything in front of the body.
    pub(crate) fn surroundings_bytes(&self) -> usize {
        surroundings_bytes(
            self.url.len(),
            self.head.len(),
            self.extents.len(),
            self.fragments.len(),
            self.inline_bytes,
        )
    }

    /// Length of the record; `None` if it is too long to be stored.
    pub(crate) fn record_bytes(&self) -> Option<usize> {
        let fits = self.surroundings_bytes() <= SURROUNDINGS_BYTES_MAX
            && self.extents.len() <= EXTENTS_MAX
            && self.fragments.len() <= FRAGMENTS_MAX;
        fits.then(|| self.surroundings_bytes() + self.inline_bytes)
    }

    /// Writes the record to `out`, which has its length, with the body in `parts`; returns the
    /// checksum of the surroundings.
    pub(crate) fn encode<'p>(
        &self,
        place: Place,
        parts: impl Iterator<Item = &'p [u8]>,
        out: &mut [u8],
    ) -> u64 {
        let Some((front, body)) = out.split_at_mut_checked(self.surroundings_bytes()) else {
            return 0;
        };
        let mut at = 0;
        for part in parts {
            put(body, at, part);
            at += part.len();
        }
        debug_assert_eq!(at, self.inline_bytes, "the parts are as long as the plan says");
        self.encode_front(place, front, body)
    }

    fn encode_front(&self, place: Place, front: &mut [u8], body: &[u8]) -> u64 {
        put(front, 0, &RECORD_MAGIC.to_le_bytes());
        put(front, 8, &[self.kind as u8, 0]);
        put(front, 10, &(self.extents.len() as u16).to_le_bytes());
        put(front, 12, &(self.url.len() as u32).to_le_bytes());
        put(front, 16, &(self.head.len() as u32).to_le_bytes());
        put(front, 20, &(self.fragments.len() as u32).to_le_bytes());
        put(front, 24, &(self.inline_bytes as u32).to_le_bytes());
        put(front, 28, &self.fragment_number.to_le_bytes());
        put(front, 32, &self.key.to_bytes());
        put(front, 80, &self.body_bytes.unwrap_or(u64::MAX).to_le_bytes());
        put(front, 88, &self.times.to_bytes());
        let mut at = HEADER_BYTES;
        let mut append = |bytes: &[u8]| {
            put(front, at, bytes);
            at += bytes.len();
        };
        append(self.url);
        append(self.head);
        for extent in self.extents {
            append(&extent.start.to_le_bytes());
            append(&extent.end.to_le_bytes());
        }
        for fragment in self.fragments {
            append(&fragment.location.to_le_bytes());
            append(&fragment.generation.to_le_bytes());
            append(&fragment.bytes.to_le_bytes());
            append(&fragment.record_bytes.to_le_bytes());
            append(&fragment.checksum.to_le_bytes());
        }
        for block in body.chunks(BLOCK_BYTES) {
            append(&xxh3_64(block).to_le_bytes());
        }
        set_place(front, place)
    }
}

/// Gives an encoded record, or the surroundings at its beginning, another place; returns the new
/// checksum.
pub(crate) fn set_place(front: &mut [u8], place: Place) -> u64 {
    put(front, 48, &place.generation.to_le_bytes());
    put(front, 56, &place.location.to_le_bytes());
    put(front, 64, &place.sequence.to_le_bytes());
    put(front, 72, &place.from.to_le_bytes());
    let sum = surroundings_checksum(front);
    put(front, HEADER_BYTES - CHECKSUM_BYTES, &sum.to_le_bytes());
    sum
}

fn surroundings_checksum(front: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(front.get(..HEADER_BYTES - CHECKSUM_BYTES).unwrap_or_default());
    hash.update(front.get(HEADER_BYTES..).unwrap_or_default());
    hash.digest()
}

fn surroundings_bytes(
    url: usize,
    head: usize,
    extents: usize,
    fragments: usize,
    inline: usize,
) -> usize {
    HEADER_BYTES
        + url
        + head
        + extents * EXTENT_BYTES
        + fragments * FRAGMENT_BYTES
        + inline.div_ceil(BLOCK_BYTES) * CHECKSUM_BYTES
}

/// Lengths that a record claims for itself.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lengths {
    pub(crate) surroundings_bytes: usize,
    pub(crate) record_bytes: usize,
}

/// Reads lengths, generation and location from the beginning of a record, before anything is known
/// to be valid; `None` if it is not the beginning of a record.
pub(crate) fn claimed(front: &[u8]) -> Option<(Lengths, u64, u64)> {
    if front.len() < HEADER_BYTES || u64_at(front, 0) != RECORD_MAGIC {
        return None;
    }
    let inline = u32_at(front, 24) as usize;
    let extents = u16::from_le_bytes(array(front, 10)) as usize;
    let surroundings = surroundings_bytes(
        u32_at(front, 12) as usize,
        u32_at(front, 16) as usize,
        extents,
        u32_at(front, 20) as usize,
        inline,
    );
    let lengths = Lengths { surroundings_bytes: surroundings, record_bytes: surroundings + inline };
    (surroundings <= SURROUNDINGS_BYTES_MAX)
        .then(|| (lengths, u64_at(front, 48), u64_at(front, 56)))
}

impl Surroundings {
    /// Decodes and verifies the surroundings of a record that begins with `bytes`; they may be
    /// longer. The caller compares place and key with the expected ones.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let (lengths, generation, location) = claimed(bytes).ok_or(Corrupt("no record"))?;
        let front = bytes.get(..lengths.surroundings_bytes).ok_or(Corrupt("record is short"))?;
        let checksum = u64_at(front, HEADER_BYTES - CHECKSUM_BYTES);
        if surroundings_checksum(front) != checksum {
            return Err(Corrupt("checksum of the head"));
        }
        let kind = front
            .get(8)
            .and_then(|number| Kind::from_number(*number))
            .ok_or(Corrupt("kind of record"))?;
        let body_bytes = Some(u64_at(front, 80)).filter(|bytes| *bytes != u64::MAX);
        let mut rest = front.get(HEADER_BYTES..).unwrap_or_default();
        let mut take = |bytes: usize| {
            let (now, later) =
                rest.split_at_checked(bytes).ok_or(Corrupt("lengths in the record"))?;
            rest = later;
            Ok::<&[u8], Corrupt>(now)
        };
        let url = take(u32_at(front, 12) as usize)?.into();
        let head = take(u32_at(front, 16) as usize)?.into();
        let extents = take(u16::from_le_bytes(array(front, 10)) as usize * EXTENT_BYTES)?
            .chunks_exact(EXTENT_BYTES)
            .map(|part| Extent { start: u64_at(part, 0), end: u64_at(part, 8) })
            .collect();
        let fragments = take(u32_at(front, 20) as usize * FRAGMENT_BYTES)?
            .chunks_exact(FRAGMENT_BYTES)
            .map(decode_fragment)
            .collect();
        let block_checksums =
            rest.chunks_exact(CHECKSUM_BYTES).map(|part| u64_at(part, 0)).collect();
        let key = Key::from_bytes(array(front, 32));
        let times = Times::from_bytes(&array(front, 88));
        let found = Self {
            kind,
            place: Place {
                location,
                generation,
                sequence: u64_at(front, 64),
                from: u64_at(front, 72),
            },
            record: Record { key, kind: kind.record_kind(), url, head, times },
            body_bytes,
            extents,
            fragments,
            fragment_number: u32_at(front, 28),
            block_checksums,
            inline_bytes: u32_at(front, 24) as usize,
            checksum,
        };
        found.check()
    }

    /// Extents ascend without touching, and hold as many bytes as are stored.
    fn check(self) -> Result<Self, Corrupt> {
        let mut stored = 0_u64;
        let mut end = None;
        for extent in &self.extents {
            if extent.start >= extent.end || end.is_some_and(|end| end >= extent.start) {
                return Err(Corrupt("order of extents"));
            }
            stored = stored.saturating_add(extent.end - extent.start);
            end = Some(extent.end);
        }
        let is_beyond = self.body_bytes.is_some_and(|bytes| end.is_some_and(|end| end > bytes));
        if self.kind != Kind::Fragment && (stored != self.stored_bytes() || is_beyond) {
            return Err(Corrupt("lengths of extents"));
        }
        Ok(self)
    }

    /// Bytes of the body that are stored, in fragments and here.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.fragments.iter().map(|fragment| u64::from(fragment.bytes)).sum::<u64>()
            + self.inline_bytes as u64
    }

    /// Length in bytes of the part before the body.
    pub(crate) fn bytes(&self) -> usize {
        surroundings_bytes(
            self.record.url.len(),
            self.record.head.len(),
            self.extents.len(),
            self.fragments.len(),
            self.inline_bytes,
        )
    }

    /// The same record for another place, perhaps with another head.
    pub(crate) fn plan<'a>(&'a self, record: &'a Record) -> Plan<'a> {
        Plan {
            kind: self.kind,
            key: record.key,
            url: &record.url,
            head: &record.head,
            times: &record.times,
            body_bytes: self.body_bytes,
            extents: &self.extents,
            fragments: &self.fragments,
            fragment_number: self.fragment_number,
            inline_bytes: self.inline_bytes,
        }
    }

    /// Checks block `block` of the body in this record.
    pub(crate) fn verify_block(&self, block: usize, bytes: &[u8]) -> Result<(), Corrupt> {
        match self.block_checksums.get(block) {
            Some(expected) if *expected == xxh3_64(bytes) => Ok(()),
            _ => Err(Corrupt("checksum of the body")),
        }
    }
}

fn decode_fragment(part: &[u8]) -> Fragment {
    Fragment {
        location: u64_at(part, 0),
        generation: u64_at(part, 8),
        bytes: u32_at(part, 16),
        record_bytes: u32_at(part, 20),
        checksum: u64_at(part, 24),
    }
}

/// The header at the beginning of a segment.
pub(crate) fn encode_segment_header(store_id: u64, segment: u32, generation: u64, out: &mut [u8]) {
    put(out, 0, &SEGMENT_MAGIC.to_le_bytes());
    put(out, 8, &generation.to_le_bytes());
    put(out, 16, &u64::from(segment).to_le_bytes());
    let sum = xxh3_64_with_seed(out.get(..24).unwrap_or_default(), store_id);
    put(out, 24, &sum.to_le_bytes());
}

/// The generation of segment `segment`, if it has been written at all since the store was made.
pub(crate) fn decode_segment_header(store_id: u64, segment: u32, bytes: &[u8]) -> Option<u64> {
    let is_ours = bytes.len() >= SEGMENT_HEADER_BYTES
        && u64_at(bytes, 0) == SEGMENT_MAGIC
        && u64_at(bytes, 16) == u64::from(segment)
        && u64_at(bytes, 24) == xxh3_64_with_seed(bytes.get(..24).unwrap_or_default(), store_id);
    is_ours.then(|| u64_at(bytes, 8))
}

/// One record as a footer lists it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct FooterEntry {
    /// Hash of the key.
    pub(crate) hash: u64,
    /// See [`Place::sequence`].
    pub(crate) sequence: u64,
    /// See [`Place::from`].
    pub(crate) from: u64,
    /// Start of the record in the segment, in units.
    pub(crate) unit: u32,
    /// Length class of the record.
    pub(crate) length_class: u8,
    pub(crate) kind: Kind,
}

/// Length of a footer with `entries` entries: they begin at a multiple of [`IO_BYTES`] and the
/// trailer ends the segment.
pub(crate) fn footer_bytes(entries: usize) -> u64 {
    ((entries * ENTRY_BYTES + TRAILER_BYTES) as u64).next_multiple_of(IO_BYTES)
}

/// Writes the footer of a segment to `out`, which is [`footer_bytes`] long.
pub(crate) fn encode_footer(
    store_id: u64,
    generation: u64,
    entries: &[FooterEntry],
    out: &mut [u8],
) {
    for (place, entry) in out.chunks_exact_mut(ENTRY_BYTES).zip(entries) {
        put(place, 0, &entry.hash.to_le_bytes());
        put(place, 8, &entry.sequence.to_le_bytes());
        put(place, 16, &entry.from.to_le_bytes());
        put(place, 24, &entry.unit.to_le_bytes());
        put(place, 28, &[entry.length_class, entry.kind as u8, 0, 0]);
    }
    let sum =
        xxh3_64_with_seed(out.get(..entries.len() * ENTRY_BYTES).unwrap_or_default(), generation);
    let at = out.len().saturating_sub(TRAILER_BYTES);
    let Some(trailer) = out.get_mut(at..) else { return };
    put(trailer, 0, &TRAILER_MAGIC.to_le_bytes());
    put(trailer, 8, &generation.to_le_bytes());
    put(trailer, 16, &(entries.len() as u64).to_le_bytes());
    put(trailer, 24, &sum.to_le_bytes());
    let sum = xxh3_64_with_seed(trailer.get(..32).unwrap_or_default(), store_id);
    put(trailer, 32, &sum.to_le_bytes());
}

/// The contents of a trailer: number of entries, and their checksum. `None` if it is not that of
/// `generation`.
pub(crate) fn decode_trailer(
    store_id: u64,
    generation: u64,
    trailer: &[u8],
) -> Option<(usize, u64)> {
    let is_valid = trailer.len() == TRAILER_BYTES
        && u64_at(trailer, 0) == TRAILER_MAGIC
        && u64_at(trailer, 8) == generation
        && u64_at(trailer, 32)
            == xxh3_64_with_seed(trailer.get(..32).unwrap_or_default(), store_id);
    let entries = usize::try_from(u64_at(trailer, 16)).ok()?;
    is_valid.then(|| (entries, u64_at(trailer, 24)))
}

/// Decodes the entries of a footer.
pub(crate) fn decode_entries(
    bytes: &[u8],
    generation: u64,
    checksum: u64,
) -> Result<Vec<FooterEntry>, Corrupt> {
    if xxh3_64_with_seed(bytes, generation) != checksum {
        return Err(Corrupt("checksum of a footer"));
    }
    let decode = |part: &[u8]| {
        Some(FooterEntry {
            hash: u64_at(part, 0),
            sequence: u64_at(part, 8),
            from: u64_at(part, 16),
            unit: u32_at(part, 24),
            length_class: *part.get(28)?,
            kind: Kind::from_number(*part.get(29)?)?,
        })
    };
    bytes
        .chunks_exact(ENTRY_BYTES)
        .map(decode)
        .collect::<Option<_>>()
        .ok_or(Corrupt("entry of a footer"))
}
