//! Bytes of everything but the records: superblock, table and trailer of a stripe, purges. See
//! `docs/formats/coss.md`.
//!
//! The decoded bytes came from a disk: they verify, or the result is `None`.

use humboldt_base::xxh3::xxh3_64_with_seed;
use humboldt_store::index::IndexKey;

/// Length of a stripe, which is written in one piece.
pub(super) const STRIPE_BYTES: usize = 1 << 20;
/// Unit of offsets and lengths in tables.
pub(super) const UNIT_BYTES: usize = 512;
/// Length of one copy of the superblock, and of a block of the purge log.
pub(super) const BLOCK_BYTES: usize = 4096;
/// Start of the purge log.
pub(super) const PURGES_OFFSET: u64 = 2 * BLOCK_BYTES as u64;
/// Length of a table entry.
pub(super) const ENTRY_BYTES: usize = 32;
/// Length of the trailer of a stripe.
pub(super) const TRAILER_BYTES: usize = 64;
/// Length of a record of the purge log.
pub(super) const PURGE_BYTES: usize = 32;

/// Most stripes in a store: 128 GiB.
pub(super) const STRIPES_MAX: u32 = 1 << 17;
/// Longest purge log.
pub(super) const PURGES_BYTES_MAX: u64 = 16 << 20;

const VERSION: u32 = 1;
const SUPERBLOCK_MAGIC: &[u8; 8] = b"HUMcosSB";
const TRAILER_MAGIC: &[u8; 8] = b"HUMcosST";
/// A superblock without the padding.
const SUPERBLOCK_BYTES: usize = 64;
/// Most table entries that a stripe can have: records are at least one unit long.
const ENTRIES_MAX: usize = STRIPE_BYTES / (UNIT_BYTES + ENTRY_BYTES);

/// A checksum of this store.
pub(super) fn checksum(bytes: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(bytes, seed)
}

/// A fixed-size part of a slice; zeros where the slice is too short.
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(part) = bytes.get(at..at + N) {
        out.copy_from_slice(part);
    }
    out
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

/// Whether these bytes begin with our magic, valid or not.
pub(super) fn has_our_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(SUPERBLOCK_MAGIC)
}

/// The description of the file at its start.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    /// Number of stripes, at least 2.
    pub(super) stripes: u32,
    /// Random number that all checksums of this store depend on.
    pub(super) id: u64,
    /// How often the store was opened.
    pub(super) opens: u32,
    /// Length of the purge log.
    pub(super) purge_bytes: u64,
    /// Length of the snapshot, 0 for none.
    pub(super) snapshot_bytes: u64,
}

impl Superblock {
    /// Start of the stripes.
    pub(super) fn stripes_offset(&self) -> u64 {
        PURGES_OFFSET + self.purge_bytes
    }

    /// Start of the snapshot.
    pub(super) fn snapshot_offset(&self) -> u64 {
        self.stripes_offset() + u64::from(self.stripes) * STRIPE_BYTES as u64
    }

    /// One copy.
    pub(super) fn encode(&self) -> [u8; BLOCK_BYTES] {
        let mut out = [0; BLOCK_BYTES];
        out[..8].copy_from_slice(SUPERBLOCK_MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&self.stripes.to_le_bytes());
        out[16..24].copy_from_slice(&self.id.to_le_bytes());
        out[24..32].copy_from_slice(&u64::from(self.opens).to_le_bytes());
        out[32..40].copy_from_slice(&self.purge_bytes.to_le_bytes());
        out[40..48].copy_from_slice(&self.snapshot_bytes.to_le_bytes());
        let sum = checksum(&out[..56], 0);
        out[56..SUPERBLOCK_BYTES].copy_from_slice(&sum.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..SUPERBLOCK_BYTES)?;
        let is_valid = has_our_magic(bytes)
            && u32_at(bytes, 8) == VERSION
            && u64_at(bytes, 56) == checksum(&bytes[..56], 0);
        let found = Self {
            stripes: u32_at(bytes, 12),
            id: u64_at(bytes, 16),
            opens: u32::try_from(u64_at(bytes, 24)).ok()?,
            purge_bytes: u64_at(bytes, 32),
            snapshot_bytes: u64_at(bytes, 40),
        };
        let has_purges = (1..=PURGES_BYTES_MAX).contains(&found.purge_bytes)
            && found.purge_bytes.is_multiple_of(BLOCK_BYTES as u64);
        (is_valid && has_purges && (2..=STRIPES_MAX).contains(&found.stripes)).then_some(found)
    }

    /// The newest valid one of both copies at the start of `bytes`.
    pub(super) fn newest(bytes: &[u8]) -> Option<Self> {
        let (first, second) =
            (Self::decode(bytes), bytes.get(BLOCK_BYTES..).and_then(Self::decode));
        match (first, second) {
            (Some(first), Some(second)) if second.opens > first.opens => Some(second),
            (first, second) => first.or(second),
        }
    }
}

/// One record in the table of a stripe.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct TableEntry {
    pub(super) key: IndexKey,
    /// Offset in the stripe, in units of [`UNIT_BYTES`].
    pub(super) offset_units: u16,
    /// Length, in the same units.
    pub(super) size_units: u16,
    pub(super) flags: u8,
}

/// Bytes that a table of `entries` takes at the end of a stripe, trailer included.
pub(super) const fn table_bytes(entries: usize) -> usize {
    TRAILER_BYTES + entries * ENTRY_BYTES
}

/// Which stripe it is, and where.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct StripeName {
    /// Sequence number: larger is younger.
    pub(super) seq: u64,
    /// Place in the file.
    pub(super) slot: u32,
}

/// The end of a stripe: its table and trailer.
pub(super) fn encode_table(id: u64, name: StripeName, entries: &[TableEntry]) -> Vec<u8> {
    let mut out = vec![0; table_bytes(entries.len())];
    for (i, entry) in entries.iter().enumerate() {
        let at = (entries.len() - 1 - i) * ENTRY_BYTES;
        let bytes = &mut out[at..at + ENTRY_BYTES];
        bytes[0] = entry.flags;
        bytes[4..6].copy_from_slice(&entry.offset_units.to_le_bytes());
        bytes[6..8].copy_from_slice(&entry.size_units.to_le_bytes());
        bytes[8..20].copy_from_slice(&entry.key.to_bytes());
        bytes[20..24].copy_from_slice(&(i as u32).to_le_bytes());
        let sum = checksum(&bytes[..24], id ^ name.seq);
        bytes[24..].copy_from_slice(&sum.to_le_bytes());
    }
    let trailer = &mut out[entries.len() * ENTRY_BYTES..];
    trailer[..8].copy_from_slice(TRAILER_MAGIC);
    trailer[8..12].copy_from_slice(&VERSION.to_le_bytes());
    trailer[12..16].copy_from_slice(&(entries.len() as u32).to_le_bytes());
    trailer[16..24].copy_from_slice(&name.seq.to_le_bytes());
    trailer[24..28].copy_from_slice(&name.slot.to_le_bytes());
    let sum = checksum(&trailer[..56], id);
    trailer[56..].copy_from_slice(&sum.to_le_bytes());
    out
}

/// Decodes the trailer at the end of `bytes`: sequence number and number of entries of the stripe
/// in `slot`.
pub(super) fn decode_trailer(bytes: &[u8], id: u64, slot: u32) -> Option<(u64, usize)> {
    let trailer = bytes.last_chunk::<TRAILER_BYTES>()?;
    let (seq, entries) = (u64_at(trailer, 16), u32_at(trailer, 12) as usize);
    let is_valid = trailer.starts_with(TRAILER_MAGIC)
        && u32_at(trailer, 8) == VERSION
        && u32_at(trailer, 24) == slot
        && u64_at(trailer, 56) == checksum(&trailer[..56], id)
        && seq != 0
        && entries <= ENTRIES_MAX;
    is_valid.then_some((seq, entries))
}

/// The entries that verify in `bytes`, the end of stripe `seq` with its trailer and room for
/// `entries`; oldest first.
pub(super) fn decode_table(bytes: &[u8], id: u64, seq: u64, entries: usize) -> Vec<TableEntry> {
    let Some(table) = bytes.len().checked_sub(table_bytes(entries)).and_then(|at| bytes.get(at..))
    else {
        return Vec::new();
    };
    let (parts, _) = table.as_chunks::<ENTRY_BYTES>();
    let numbered = parts.iter().take(entries).rev().enumerate();
    numbered.filter_map(|(i, bytes)| decode_entry(bytes, i, id ^ seq)).collect()
}

fn decode_entry(bytes: &[u8; ENTRY_BYTES], number: usize, seed: u64) -> Option<TableEntry> {
    let is_valid =
        u32_at(bytes, 20) as usize == number && u64_at(bytes, 24) == checksum(&bytes[..24], seed);
    let entry = TableEntry {
        key: IndexKey::from_bytes(array(bytes, 8)),
        offset_units: u16_at(bytes, 4),
        size_units: u16_at(bytes, 6),
        flags: bytes[0],
    };
    let end = (usize::from(entry.offset_units) + usize::from(entry.size_units)) * UNIT_BYTES;
    (is_valid && entry.size_units > 0 && end < STRIPE_BYTES).then_some(entry)
}

/// A removed key: its records in stripes before `seq`, or in that one before the offset, are gone.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Purge {
    pub(super) key: IndexKey,
    pub(super) offset_units: u32,
    pub(super) seq: u64,
}

impl Purge {
    pub(super) fn encode(&self, id: u64) -> [u8; PURGE_BYTES] {
        let mut out = [0; PURGE_BYTES];
        out[..12].copy_from_slice(&self.key.to_bytes());
        out[12..16].copy_from_slice(&self.offset_units.to_le_bytes());
        out[16..24].copy_from_slice(&self.seq.to_le_bytes());
        let sum = checksum(&out[..24], id);
        out[24..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    pub(super) fn decode(bytes: &[u8; PURGE_BYTES], id: u64) -> Option<Self> {
        let found = Self {
            key: IndexKey::from_bytes(array(bytes, 0)),
            offset_units: u32_at(bytes, 12),
            seq: u64_at(bytes, 16),
        };
        (u64_at(bytes, 24) == checksum(&bytes[..24], id)).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_store::Key;

    fn entry(i: u16) -> TableEntry {
        let key = IndexKey::from(&Key::primary(&i.to_le_bytes()));
        TableEntry { key, offset_units: i * 3, size_units: 3, flags: (i % 4) as u8 }
    }

    fn superblock(opens: u32) -> Superblock {
        Superblock { stripes: 9, id: 77, opens, purge_bytes: 8192, snapshot_bytes: 100 }
    }

    #[test]
    fn the_newer_valid_superblock_counts() {
        let both = |a: u32, b: u32| [superblock(a).encode(), superblock(b).encode()].concat();
        assert_eq!(Superblock::newest(&both(4, 5)), Some(superblock(5)));
        assert_eq!(Superblock::newest(&both(6, 5)), Some(superblock(6)));
        for bit in 0..SUPERBLOCK_BYTES * 8 {
            let mut bytes = both(6, 5);
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Superblock::newest(&bytes), Some(superblock(5)), "bit {bit}");
        }
        assert_eq!(Superblock::newest(&superblock(1).encode()), Some(superblock(1)), "cut off");
        assert_eq!(Superblock::newest(&[0; 2 * BLOCK_BYTES]), None);
    }

    #[test]
    fn a_table_survives_and_a_flipped_bit_costs_one_entry() {
        let name = StripeName { seq: 5 << 32, slot: 3 };
        let entries: Vec<_> = (0..50).map(entry).collect();
        let bytes = encode_table(77, name, &entries);
        assert_eq!(decode_trailer(&bytes, 77, 3), Some((name.seq, 50)));
        assert_eq!(decode_table(&bytes, 77, name.seq, 50), entries);
        assert_eq!(decode_trailer(&bytes, 78, 3), None, "another store");
        assert_eq!(decode_trailer(&bytes, 77, 4), None, "another slot");
        assert!(decode_table(&bytes, 77, name.seq + 1, 50).is_empty(), "another stripe");
        assert!(decode_table(&bytes[1..], 77, name.seq, 50).is_empty(), "cut off");
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            match decode_trailer(&bad, 77, 3) {
                None => assert!(bit / 8 >= 50 * ENTRY_BYTES),
                Some((seq, count)) => {
                    let left = decode_table(&bad, 77, seq, count);
                    assert_eq!(left.len(), 49, "bit {bit}");
                    assert!(left.iter().all(|e| entries.contains(e)));
                }
            }
        }
    }

    #[test]
    fn entries_outside_of_the_stripe_are_refused() {
        let name = StripeName { seq: 1, slot: 0 };
        for bad in [
            TableEntry { size_units: 0, ..entry(1) },
            TableEntry { offset_units: 2046, ..entry(1) },
        ] {
            let bytes = encode_table(7, name, &[bad]);
            assert!(decode_table(&bytes, 7, 1, 1).is_empty(), "{bad:?}");
        }
    }

    #[test]
    fn every_bit_of_a_purge_counts() {
        let purge = Purge { key: entry(4).key, offset_units: 2047, seq: u64::MAX - 3 };
        let bytes = purge.encode(9);
        assert_eq!(Purge::decode(&bytes, 9), Some(purge));
        assert_eq!(Purge::decode(&bytes, 8), None);
        for bit in 0..PURGE_BYTES * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Purge::decode(&bad, 9), None, "bit {bit}");
        }
        assert_eq!(Purge::decode(&[0; PURGE_BYTES], 9), None);
    }
}
