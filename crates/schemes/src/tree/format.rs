//! Bytes of an object file: header block, table, footer. See `docs/formats/ufs.md`.
//!
//! Everything decoded here came from a disk: each length is checked before it is used, and a
//! contradiction is a [`Corrupt`] with its reason.

use humboldt_base::xxh3::{Xxh3, xxh3_64, xxh3_64_with_seed};
use humboldt_freshness::Times;
use humboldt_store::Key;
use humboldt_store::scheme::{Extent, Record, RecordKind};

/// Stored bytes are verified in blocks of this many.
pub(crate) const BLOCK_BYTES: usize = 64 * 1024;

/// Files up to this length are read with one system call, and no descriptor is kept.
pub(crate) const WHOLE_FILE_BYTES_MAX: u64 = BLOCK_BYTES as u64 + 16 * 1024;
/// Lengths of files are multiples of this.
pub(crate) const UNIT_BYTES: usize = 512;
/// Length of a header block without URL and head.
pub(crate) const HEADER_BYTES: usize = 128;
/// Length of the footer.
pub(crate) const FOOTER_BYTES: usize = 96;
/// Most extents of one object; a writer that needs more gives up.
pub(crate) const EXTENTS_MAX: usize = 1024;
/// Longest header block: URL and head are far shorter in practice.
pub(crate) const HEADER_BLOCK_BYTES_MAX: usize = 1024 * 1024;

const VERSION: u16 = 1;
const HEADER_MAGIC: &[u8; 8] = b"HUMufsOB";
const FOOTER_MAGIC: &[u8; 8] = b"HUMufsEN";
const EXTENT_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 8;

/// The reason why bytes are not valid.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Corrupt(pub(crate) &'static str);

/// Checksum of a block of stored bytes.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// A fixed-size part of a slice that is known to be long enough.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(part) = bytes.get(at..at + N) {
        out.copy_from_slice(part);
    }
    out
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

/// A decoded header block.
#[derive(Debug, PartialEq)]
pub(crate) struct Header {
    pub(crate) record: Record,
    /// Nanoseconds since 1970; tells which of two files of one key is newer.
    pub(crate) stamp_ns: u64,
    /// Number of the file that it was written to.
    pub(crate) file: u32,
}

/// Length of the header block of `record`; `None` if it is too long to be stored.
pub(crate) fn header_block_bytes(record: &Record) -> Option<usize> {
    let bytes = HEADER_BYTES.checked_add(record.url.len())?.checked_add(record.head.len())?;
    (bytes <= HEADER_BLOCK_BYTES_MAX).then_some(bytes)
}

/// Appends the header block of `record` to `out`; returns its checksum.
pub(crate) fn encode_header(record: &Record, file: u32, stamp_ns: u64, out: &mut Vec<u8>) -> u64 {
    let mut fixed = [0; HEADER_BYTES];
    fixed[..8].copy_from_slice(HEADER_MAGIC);
    fixed[8..10].copy_from_slice(&VERSION.to_le_bytes());
    fixed[10] = match record.kind {
        RecordKind::Object => 1,
        RecordKind::Vary => 2,
    };
    fixed[12..16].copy_from_slice(&(record.url.len() as u32).to_le_bytes());
    fixed[16..20].copy_from_slice(&(record.head.len() as u32).to_le_bytes());
    fixed[20..24].copy_from_slice(&file.to_le_bytes());
    fixed[24..40].copy_from_slice(&record.key.to_bytes());
    fixed[40..48].copy_from_slice(&stamp_ns.to_le_bytes());
    fixed[48..48 + Times::BYTES].copy_from_slice(&record.times.to_bytes());
    let sum = header_checksum(&fixed, &record.url, &record.head);
    fixed[120..].copy_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(&fixed);
    out.extend_from_slice(&record.url);
    out.extend_from_slice(&record.head);
    sum
}

fn header_checksum(fixed: &[u8; HEADER_BYTES], url: &[u8], head: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&fixed[..120]);
    hash.update(url);
    hash.update(head);
    hash.digest()
}

/// The key in a header block, before anything is known to be valid.
pub(crate) fn claimed_key(header: &[u8; HEADER_BYTES]) -> Result<Key, Corrupt> {
    if &header[..8] != HEADER_MAGIC {
        return Err(Corrupt("no object header"));
    }
    Ok(Key::from_bytes(array(header, 24)))
}

/// Decodes a whole header block, whose checksum must be `expected`.
pub(crate) fn decode_header(block: &[u8], expected: u64) -> Result<Header, Corrupt> {
    let Some((fixed, text)) = block.split_first_chunk::<HEADER_BYTES>() else {
        return Err(Corrupt("header block is short"));
    };
    let key = claimed_key(fixed)?;
    if u16::from_le_bytes(array(fixed, 8)) != VERSION {
        return Err(Corrupt("header of another format"));
    }
    let url_bytes = u32_at(fixed, 12) as usize;
    let head_bytes = u32_at(fixed, 16) as usize;
    if url_bytes.checked_add(head_bytes) != Some(text.len()) {
        return Err(Corrupt("lengths in the header"));
    }
    let (url, head) = text.split_at(url_bytes);
    let sum = u64_at(fixed, 120);
    if sum != expected || header_checksum(fixed, url, head) != sum {
        return Err(Corrupt("header checksum"));
    }
    let kind = match fixed[10] {
        1 => RecordKind::Object,
        2 => RecordKind::Vary,
        _ => return Err(Corrupt("kind of record")),
    };
    let times = Times::from_bytes(&array(fixed, 48));
    let record = Record { key, kind, url: url.into(), head: head.into(), times };
    Ok(Header { record, stamp_ns: u64_at(fixed, 40), file: u32_at(fixed, 20) })
}

/// The decoded footer. [`Footer::decode`] has checked its numbers against the length of the file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) header_offset: u64,
    pub(crate) header_bytes: u64,
    pub(crate) header_checksum: u64,
    pub(crate) data_offset: u64,
    pub(crate) stored_bytes: u64,
    /// Length of the whole body when it is known.
    pub(crate) body_bytes: Option<u64>,
    pub(crate) table_offset: u64,
    pub(crate) table_checksum: u64,
    pub(crate) extents: u32,
    pub(crate) blocks: u32,
}

fn footer_seed(key: Key) -> u64 {
    key.high64() ^ key.low64()
}

impl Footer {
    /// Length of the table.
    pub(crate) fn table_bytes(&self) -> u64 {
        u64::from(self.extents) * EXTENT_BYTES as u64
            + u64::from(self.blocks) * CHECKSUM_BYTES as u64
    }

    /// Appends the footer to `out`.
    pub(crate) fn encode(&self, key: Key, out: &mut Vec<u8>) {
        let mut fixed = [0; FOOTER_BYTES];
        fixed[..8].copy_from_slice(FOOTER_MAGIC);
        let words = [
            self.header_offset,
            self.data_offset,
            self.stored_bytes,
            self.body_bytes.unwrap_or(u64::MAX),
            self.table_offset,
            u64::from(self.extents) | u64::from(self.blocks) << 32,
            self.header_bytes,
            self.header_checksum,
            self.table_checksum,
        ];
        for (place, word) in fixed[8..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let sum = xxh3_64_with_seed(&fixed[..88], footer_seed(key));
        fixed[88..].copy_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&fixed);
    }

    /// Decodes the footer of the file of `key` that is `file_bytes` long.
    pub(crate) fn decode(
        bytes: &[u8; FOOTER_BYTES],
        key: Key,
        file_bytes: u64,
    ) -> Result<Self, Corrupt> {
        if &bytes[..8] != FOOTER_MAGIC {
            return Err(Corrupt("no footer: not committed or truncated"));
        }
        if xxh3_64_with_seed(&bytes[..88], footer_seed(key)) != u64_at(bytes, 88) {
            return Err(Corrupt("footer checksum"));
        }
        let body_bytes = u64_at(bytes, 32);
        let footer = Self {
            header_offset: u64_at(bytes, 8),
            data_offset: u64_at(bytes, 16),
            stored_bytes: u64_at(bytes, 24),
            body_bytes: (body_bytes != u64::MAX).then_some(body_bytes),
            table_offset: u64_at(bytes, 40),
            extents: u32_at(bytes, 48),
            blocks: u32_at(bytes, 52),
            header_bytes: u64_at(bytes, 56),
            header_checksum: u64_at(bytes, 64),
            table_checksum: u64_at(bytes, 72),
        };
        footer.fits(file_bytes).then_some(footer).ok_or(Corrupt("numbers in the footer"))
    }

    fn fits(&self, file_bytes: u64) -> bool {
        let end = file_bytes.saturating_sub(FOOTER_BYTES as u64);
        let ends_before =
            |at: u64, bytes: u64, end: u64| at.checked_add(bytes).is_some_and(|to| to <= end);
        self.extents as usize <= EXTENTS_MAX
            && u64::from(self.blocks) == self.stored_bytes.div_ceil(BLOCK_BYTES as u64)
            && (HEADER_BYTES as u64..=HEADER_BLOCK_BYTES_MAX as u64).contains(&self.header_bytes)
            && ends_before(self.header_offset, self.header_bytes, end)
            && ends_before(self.data_offset, self.stored_bytes, self.table_offset)
            && ends_before(self.table_offset, self.table_bytes(), end)
    }
}

/// The stored parts of the body, and the checksums of their blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) extents: Vec<Extent>,
    pub(crate) block_checksums: Vec<u64>,
}

impl Table {
    /// Length when encoded.
    pub(crate) fn encoded_bytes(&self) -> usize {
        self.extents.len() * EXTENT_BYTES + self.block_checksums.len() * CHECKSUM_BYTES
    }

    /// Appends the table to `out`; returns its checksum.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> u64 {
        let start = out.len();
        for extent in &self.extents {
            out.extend_from_slice(&extent.start.to_le_bytes());
            out.extend_from_slice(&extent.end.to_le_bytes());
        }
        for sum in &self.block_checksums {
            out.extend_from_slice(&sum.to_le_bytes());
        }
        checksum(&out[start..])
    }

    /// Decodes the table that `footer` describes.
    pub(crate) fn decode(bytes: &[u8], footer: &Footer) -> Result<Self, Corrupt> {
        if bytes.len() as u64 != footer.table_bytes() || checksum(bytes) != footer.table_checksum {
            return Err(Corrupt("table checksum"));
        }
        let (extents, sums) = bytes.split_at(footer.extents as usize * EXTENT_BYTES);
        let extents: Vec<Extent> = extents
            .chunks_exact(EXTENT_BYTES)
            .map(|part| Extent { start: u64_at(part, 0), end: u64_at(part, 8) })
            .collect();
        let mut stored = 0_u64;
        for (i, extent) in extents.iter().enumerate() {
            let previous_end =
                i.checked_sub(1).and_then(|i| extents.get(i)).map(|extent| extent.end);
            if extent.start >= extent.end || previous_end.is_some_and(|end| end >= extent.start) {
                return Err(Corrupt("order of extents"));
            }
            stored = stored.saturating_add(extent.end - extent.start);
        }
        let body_end = extents.last().map_or(0, |extent| extent.end);
        if stored != footer.stored_bytes || footer.body_bytes.is_some_and(|bytes| bytes < body_end)
        {
            return Err(Corrupt("lengths of extents"));
        }
        let block_checksums =
            sums.chunks_exact(CHECKSUM_BYTES).map(|part| u64_at(part, 0)).collect();
        Ok(Self { extents, block_checksums })
    }

    /// The place of offset `at` of the body among the stored bytes, and the number of bytes that
    /// follow it in its extent.
    pub(crate) fn locate(&self, at: u64) -> Option<(u64, u64)> {
        let mut stored = 0;
        for extent in &self.extents {
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
}

/// Appends the padding that makes the length of a file, `file_bytes` before `out` was begun, such
/// that it is a multiple of [`UNIT_BYTES`] once the footer follows.
pub(crate) fn pad_for_footer(file_bytes: u64, out: &mut Vec<u8>) {
    let with_footer = file_bytes + out.len() as u64 + FOOTER_BYTES as u64;
    let padding = with_footer.next_multiple_of(UNIT_BYTES as u64) - with_footer;
    out.resize(out.len() + padding as usize, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::battery::record;

    #[test]
    fn a_header_survives_and_every_bit_of_it_counts() {
        let record = record("http://a/b", 3);
        let mut block = Vec::new();
        let sum = encode_header(&record, 77, 5, &mut block);
        assert_eq!(Some(block.len()), header_block_bytes(&record));
        assert_eq!(decode_header(&block, sum), Ok(Header { record, stamp_ns: 5, file: 77 }));
        for bit in 0..block.len() * 8 {
            let mut bad = block.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_header(&bad, sum).is_err(), "bit {bit}");
        }
        assert!((0..block.len()).all(|end| decode_header(&block[..end], sum).is_err()));
    }

    fn footer() -> Footer {
        Footer {
            header_offset: 0,
            header_bytes: 200,
            header_checksum: 9,
            data_offset: 200,
            stored_bytes: 10,
            body_bytes: None,
            table_offset: 210,
            table_checksum: 0,
            extents: 1,
            blocks: 1,
        }
    }

    #[test]
    fn a_footer_is_bound_to_its_key_and_to_the_length_of_the_file() {
        let mut bytes = Vec::new();
        footer().encode(Key(7), &mut bytes);
        let bytes: [u8; FOOTER_BYTES] = bytes.try_into().expect("as long as it says");
        assert_eq!(Footer::decode(&bytes, Key(7), 512), Ok(footer()));
        assert!(Footer::decode(&bytes, Key(8), 512).is_err());
        assert!(Footer::decode(&bytes, Key(7), 300).is_err(), "parts lie behind the end");
        for wrong in [
            Footer { blocks: 2, ..footer() },
            Footer { extents: EXTENTS_MAX as u32 + 1, ..footer() },
            Footer { data_offset: u64::MAX, ..footer() },
            Footer { header_offset: u64::MAX - 5, ..footer() },
            Footer { stored_bytes: u64::MAX, blocks: u32::MAX, ..footer() },
        ] {
            let mut bytes = Vec::new();
            wrong.encode(Key(7), &mut bytes);
            let bytes: [u8; FOOTER_BYTES] = bytes.try_into().expect("as long as it says");
            assert!(Footer::decode(&bytes, Key(7), 512).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn tables_locate_bytes_and_refuse_disorder() {
        let extent = |start, end| Extent { start, end };
        let table =
            Table { extents: vec![extent(10, 14), extent(20, 26)], block_checksums: vec![1] };
        assert_eq!(table.locate(9), None);
        assert_eq!(table.locate(13), Some((3, 1)));
        assert_eq!(table.locate(14), None);
        assert_eq!(table.locate(21), Some((5, 5)));
        assert_eq!(table.locate(26), None);
        for (extents, good) in [
            (vec![extent(0, 4), extent(5, 11)], true),
            (vec![extent(0, 4), extent(4, 10)], false),
            (vec![extent(6, 10), extent(0, 6)], false),
            (vec![extent(4, 4), extent(5, 15)], false),
            (vec![extent(0, 5), extent(6, 10)], false),
        ] {
            let table = Table { extents, block_checksums: vec![1] };
            let mut bytes = Vec::new();
            let table_checksum = table.encode(&mut bytes);
            let extents = table.extents.len() as u32;
            let footer = Footer { extents, table_checksum, ..footer() };
            assert_eq!(Table::decode(&bytes, &footer).is_ok(), good, "{table:?}");
        }
    }
}
