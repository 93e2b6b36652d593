//! One object as it lies in a stripe: header, URL, head, stored bytes of the body, extents.

use std::ops::Range;

use humboldt_base::xxh3::Xxh3;
use humboldt_freshness::Times;
use humboldt_store::Key;
use humboldt_store::scheme::{Extent, Record, RecordKind, SchemeError};
use humboldt_sys::aligned::Buffer;

use super::format::{STRIPE_BYTES, UNIT_BYTES, array, checksum, table_bytes, u32_at, u64_at};

/// Flag in the index: a Vary list.
pub(super) const FLAG_VARY: u8 = 1;
/// Flag in the index: a part of the body is missing, or its length is not known.
pub(super) const FLAG_PARTIAL: u8 = 2;

/// Most extents of one object; a writer that needs more gives up.
pub(super) const EXTENTS_MAX: usize = 1024;

/// Longest record: a stripe that holds nothing else.
pub(super) const RECORD_BYTES_MAX: usize = STRIPE_BYTES - table_bytes(1) - UNIT_BYTES;

/// Longest body that is stored, whatever `max-size`: a stripe, less room for URL, head and extents.
pub(super) const BODY_BYTES_MAX: u64 = (STRIPE_BYTES - 64 * 1024) as u64;

const VERSION: u16 = 1;
const MAGIC: &[u8; 8] = b"HUMcosRC";
const HEADER_BYTES: usize = 128;
const EXTENT_BYTES: usize = 16;
const SEQ_AT: usize = 40;
const SUM_AT: usize = 120;

/// A record in memory, complete but for the stripe that it will lie in.
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    pub(super) flags: u8,
    /// Length of header, URL and head.
    front_bytes: usize,
    /// Length of the stored bytes behind them.
    stored_bytes: usize,
}

/// A record that grows.
pub(super) struct Builder {
    bytes: Vec<u8>,
    front_bytes: usize,
    extents: Vec<Extent>,
    is_vary: bool,
}

impl Builder {
    /// Begins with everything but the body; `None` if that is too long for a stripe.
    pub(super) fn new(record: &Record, body_bytes_expected: usize) -> Option<Self> {
        let front_bytes =
            HEADER_BYTES.checked_add(record.url.len())?.checked_add(record.head.len())?;
        if front_bytes > RECORD_BYTES_MAX {
            return None;
        }
        let mut bytes = Vec::with_capacity(front_bytes + body_bytes_expected + EXTENT_BYTES);
        bytes.resize(HEADER_BYTES, 0);
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10] = match record.kind {
            RecordKind::Object => 1,
            RecordKind::Vary => 2,
        };
        bytes[12..16].copy_from_slice(&(record.url.len() as u32).to_le_bytes());
        bytes[16..20].copy_from_slice(&(record.head.len() as u32).to_le_bytes());
        bytes[24..40].copy_from_slice(&record.key.to_bytes());
        bytes[48..48 + Times::BYTES].copy_from_slice(&record.times.to_bytes());
        bytes.extend_from_slice(&record.url);
        bytes.extend_from_slice(&record.head);
        Some(Self {
            bytes,
            front_bytes,
            extents: Vec::new(),
            is_vary: record.kind == RecordKind::Vary,
        })
    }

    /// Appends to the body at `offset`; the record must still fit into a stripe.
    pub(super) fn append(&mut self, offset: u64, parts: &[&[u8]]) -> Result<(), SchemeError> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes == 0 {
            return Ok(());
        }
        let end =
            offset.checked_add(bytes as u64).ok_or(SchemeError::Busy("offset out of range"))?;
        let after = self.bytes.len() + bytes + (self.extents.len() + 1) * EXTENT_BYTES;
        if after > RECORD_BYTES_MAX {
            return Err(SchemeError::Busy("longer than a stripe"));
        }
        let is_full = self.extents.len() == EXTENTS_MAX;
        match self.extents.last_mut() {
            Some(last) if last.end == offset => last.end = end,
            Some(last) if last.end > offset => return Err(SchemeError::Busy("offsets must grow")),
            _ if is_full => return Err(SchemeError::Busy("too many extents")),
            _ => self.extents.push(Extent { start: offset, end }),
        }
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        Ok(())
    }

    /// Length so far.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn stored_bytes(&self) -> usize {
        self.bytes.len() - self.front_bytes
    }

    /// Offset behind the last byte of the body that was written.
    pub(super) fn body_end(&self) -> u64 {
        self.extents.last().map_or(0, |extent| extent.end)
    }

    /// Adds extents and the checksum of the body. `body_bytes` is not below [`Builder::body_end`].
    pub(super) fn finish(mut self, body_bytes: Option<u64>, id: u64) -> Encoded {
        let stored_bytes = self.stored_bytes();
        let sum = checksum(&self.bytes[self.front_bytes..], id);
        self.bytes[20..24].copy_from_slice(&(self.extents.len() as u32).to_le_bytes());
        self.bytes[92..96].copy_from_slice(&(stored_bytes as u32).to_le_bytes());
        self.bytes[96..104].copy_from_slice(&body_bytes.unwrap_or(u64::MAX).to_le_bytes());
        self.bytes[104..112].copy_from_slice(&sum.to_le_bytes());
        for extent in &self.extents {
            self.bytes.extend_from_slice(&extent.start.to_le_bytes());
            self.bytes.extend_from_slice(&extent.end.to_le_bytes());
        }
        let is_partial = body_bytes.is_none() || body_bytes != Some(stored_bytes as u64);
        let flags =
            if self.is_vary { FLAG_VARY } else { 0 } | if is_partial { FLAG_PARTIAL } else { 0 };
        Encoded { bytes: self.bytes, flags, front_bytes: self.front_bytes, stored_bytes }
    }
}

impl Encoded {
    /// Where the bytes of the body lie.
    pub(super) fn stored_range(&self) -> Range<usize> {
        self.front_bytes..self.front_bytes + self.stored_bytes
    }

    /// Binds the record to the stripe that it will lie in.
    pub(super) fn bind(&mut self, seq: u64, id: u64) {
        self.bytes[SEQ_AT..SEQ_AT + 8].copy_from_slice(&seq.to_le_bytes());
        let sum = header_checksum(&self.bytes, self.front_bytes, self.stored_bytes, id);
        self.bytes[SUM_AT..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    }

    /// Length in units of [`UNIT_BYTES`].
    pub(super) fn size_units(&self) -> u16 {
        self.bytes.len().div_ceil(UNIT_BYTES) as u16
    }

    /// Bytes of URL, head and body.
    pub(super) fn object_bytes(&self) -> u64 {
        (self.front_bytes - HEADER_BYTES + self.stored_bytes) as u64
    }
}

/// Checksum of header, URL, head and extents of a record whose lengths have been checked.
fn header_checksum(bytes: &[u8], front_bytes: usize, stored_bytes: usize, id: u64) -> u64 {
    let mut hash = Xxh3::with_seed(id);
    hash.update(&bytes[..SUM_AT]);
    hash.update(&bytes[HEADER_BYTES..front_bytes]);
    hash.update(&bytes[front_bytes + stored_bytes..]);
    hash.digest()
}

/// A verified record.
pub(super) struct Decoded {
    pub(super) record: Record,
    pub(super) extents: Vec<Extent>,
    pub(super) body_bytes: Option<u64>,
    /// The bytes read, without the padding.
    bytes: Buffer,
    front_bytes: usize,
    stored_bytes: usize,
}

/// Verifies a record that should be that of `key` in stripe `seq`.
pub(super) fn decode(
    mut bytes: Buffer,
    key: Key,
    seq: u64,
    id: u64,
) -> Result<Decoded, &'static str> {
    let header = bytes.first_chunk::<HEADER_BYTES>().ok_or("record is short")?;
    if !header.starts_with(MAGIC) || u16::from_le_bytes(array(header, 8)) != VERSION {
        return Err("no record");
    }
    if Key::from_bytes(array(header, 24)) != key || u64_at(header, SEQ_AT) != seq {
        return Err("record of another key or stripe");
    }
    let kind = match header[10] {
        1 => RecordKind::Object,
        2 => RecordKind::Vary,
        _ => return Err("kind of record"),
    };
    let [url_bytes, head_bytes, extents, stored_bytes] =
        [12, 16, 20, 92].map(|at| u32_at(header, at) as usize);
    let (times, sum, body_sum) =
        (Times::from_bytes(&array(header, 48)), u64_at(header, SUM_AT), u64_at(header, 104));
    let body_bytes = Some(u64_at(header, 96)).filter(|bytes| *bytes != u64::MAX);
    if url_bytes.max(head_bytes).max(stored_bytes) > STRIPE_BYTES || extents > EXTENTS_MAX {
        return Err("lengths in the record");
    }
    let front_bytes = HEADER_BYTES + url_bytes + head_bytes;
    let end = front_bytes + stored_bytes + extents * EXTENT_BYTES;
    if end > bytes.len() {
        return Err("record is short");
    }
    bytes.set_len(end);
    if header_checksum(&bytes, front_bytes, stored_bytes, id) != sum {
        return Err("checksum of the record");
    }
    let body_end = front_bytes + stored_bytes;
    if checksum(&bytes[front_bytes..body_end], id) != body_sum {
        return Err("checksum of the body");
    }
    let extents = decode_extents(&bytes[body_end..], stored_bytes as u64, body_bytes)?;
    let (url, head) = bytes[HEADER_BYTES..front_bytes].split_at(url_bytes);
    let record = Record { key, kind, url: url.into(), head: head.into(), times };
    Ok(Decoded { record, extents, body_bytes, bytes, front_bytes, stored_bytes })
}

fn decode_extents(
    bytes: &[u8],
    stored: u64,
    body_bytes: Option<u64>,
) -> Result<Vec<Extent>, &'static str> {
    let (parts, _) = bytes.as_chunks::<EXTENT_BYTES>();
    let mut extents: Vec<Extent> = Vec::with_capacity(parts.len());
    let mut sum = 0_u64;
    for part in parts {
        let extent = Extent { start: u64_at(part, 0), end: u64_at(part, 8) };
        let is_behind = extents.last().is_none_or(|last| last.end < extent.start);
        if !is_behind || extent.start >= extent.end {
            return Err("order of extents");
        }
        sum = sum.saturating_add(extent.end - extent.start);
        extents.push(extent);
    }
    let end = extents.last().map_or(0, |last| last.end);
    if sum != stored || body_bytes.is_some_and(|bytes| bytes < end) {
        return Err("lengths of extents");
    }
    Ok(extents)
}

impl Decoded {
    /// The stored bytes from `offset` of the body to the end of its extent; empty outside of all
    /// extents.
    pub(super) fn body_at(&self, offset: u64) -> &[u8] {
        let mut stored = self.front_bytes as u64;
        for extent in &self.extents {
            if offset < extent.start {
                break;
            }
            if offset < extent.end {
                let range = stored + (offset - extent.start)..stored + (extent.end - extent.start);
                return self
                    .bytes
                    .get(range.start as usize..range.end as usize)
                    .unwrap_or_default();
            }
            stored += extent.end - extent.start;
        }
        &[]
    }

    /// The same record, for another stripe.
    pub(super) fn to_encoded(&self, flags: u8) -> Encoded {
        let Self { front_bytes, stored_bytes, .. } = *self;
        Encoded { bytes: self.bytes.to_vec(), flags, front_bytes, stored_bytes }
    }

    /// The same body with another head and other times; `None` if it does not fit any more.
    pub(super) fn with(&self, record: &Record, id: u64) -> Option<Encoded> {
        let mut builder = Builder::new(record, self.stored_bytes)?;
        for extent in &self.extents {
            builder.append(extent.start, &[self.body_at(extent.start)]).ok()?;
        }
        Some(builder.finish(self.body_bytes, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::battery::record;

    fn buffer(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::new(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    fn encoded(pieces: &[(u64, &[u8])], body_bytes: Option<u64>) -> Encoded {
        let mut builder = Builder::new(&record("http://a/", 3), 10).expect("it fits");
        pieces.iter().for_each(|(at, bytes)| builder.append(*at, &[bytes]).expect("it fits"));
        let mut encoded = builder.finish(body_bytes, 9);
        encoded.bind(5, 9);
        encoded
    }

    #[test]
    fn a_record_survives_and_every_bit_of_it_counts() {
        let key = record("http://a/", 3).key;
        let whole = encoded(&[(0, b"abc"), (3, b"de"), (7, b"fgh")], Some(20));
        assert_eq!(whole.flags, FLAG_PARTIAL);
        let mut padded = whole.bytes.clone();
        padded.resize(512, 0xAA);
        let decoded = decode(buffer(&padded), key, 5, 9).expect("it verifies");
        assert_eq!(decoded.record, record("http://a/", 3));
        assert_eq!(decoded.extents, [Extent { start: 0, end: 5 }, Extent { start: 7, end: 10 }]);
        assert_eq!(
            (decoded.body_bytes, decoded.body_at(1), decoded.body_at(8)),
            (Some(20), &b"bcde"[..], &b"gh"[..])
        );
        assert!(decoded.body_at(5).is_empty() && decoded.body_at(10).is_empty());
        for bit in 0..whole.bytes.len() * 8 {
            let mut bad = whole.bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(buffer(&bad), key, 5, 9).is_err(), "bit {bit}");
        }
        assert!(
            (0..whole.bytes.len())
                .all(|end| decode(buffer(&whole.bytes[..end]), key, 5, 9).is_err())
        );
        assert!(decode(buffer(&whole.bytes), key, 6, 9).is_err(), "another stripe");
        assert!(decode(buffer(&whole.bytes), key, 5, 8).is_err(), "another store");
        assert!(
            decode(buffer(&whole.bytes), record("http://b/", 3).key, 5, 9).is_err(),
            "another key"
        );
    }

    #[test]
    fn a_new_head_keeps_the_body() {
        let old = encoded(&[(2, b"abc"), (7, b"fgh")], None);
        let key = record("http://a/", 3).key;
        let decoded = decode(buffer(&old.bytes), key, 5, 9).expect("it verifies");
        let mut new = decoded.with(&record("http://a/", 200), 9).expect("it fits");
        new.bind(6, 9);
        let again = decode(buffer(&new.bytes), key, 6, 9).expect("it verifies");
        assert_eq!(again.record, record("http://a/", 200));
        assert_eq!(
            (again.extents.as_slice(), again.body_bytes),
            (decoded.extents.as_slice(), None)
        );
        assert_eq!(again.body_at(7), b"fgh");
    }

    #[test]
    fn bounds_of_a_record() {
        let mut builder = Builder::new(&record("http://a/", 0), 0).expect("it fits");
        assert!(builder.append(0, &[&[0; STRIPE_BYTES]]).is_err(), "longer than a stripe");
        for i in 0..EXTENTS_MAX as u64 {
            builder.append(i * 2, &[b"x"]).expect("an extent");
        }
        assert!(builder.append(5000, &[b"x"]).is_err(), "too many extents");
        assert!(builder.append(0, &[b"x"]).is_err() && builder.append(u64::MAX, &[b"x"]).is_err());
        let huge = Record { head: vec![b'x'; STRIPE_BYTES].into(), ..record("http://a/", 0) };
        assert!(Builder::new(&huge, 0).is_none());
        let body = vec![1; BODY_BYTES_MAX as usize];
        assert!(
            usize::from(encoded(&[(0, &body)], Some(BODY_BYTES_MAX)).size_units()) * 512
                < STRIPE_BYTES
        );
    }
}
