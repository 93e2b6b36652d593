//! Checkpoints: the index and the table of segments as they were at one moment, in two files that
//! are written in turn.
//!
//! The parts of the index are written first, each with the number of the checkpoint, and made
//! lasting; then the head, which makes them count. A crash in between leaves the other file as the
//! newest.

use std::io;
use std::sync::Arc;

use humboldt_base::xxh3::xxh3_64;

use super::format::{Corrupt, u32_at, u64_at};
use super::geometry::CAPACITY_BYTES_MAX;
use super::index::{IMAGE_PREFIX_BYTES, MalformedIndex, RingIndex, image_bytes};
use super::segments::{SEGMENT_BYTES_MIN, SegmentEntry, Use};
use crate::block::BlockFile;

const MAGIC: u64 = u64::from_le_bytes(*b"HUMrchk1");
/// Length of the head without the table of segments.
const HEAD_BYTES: usize = 80;
const SEGMENT_BYTES: usize = 16;
/// Parts begin at the first multiple of this behind the head.
const ALIGN_BYTES: u64 = 4096;
/// Parts are written together until they are so long: a small index has many short ones.
const WRITE_BYTES: usize = 1024 * 1024;
/// Most segments: the largest ring, of the shortest segments. A ring that was small once and has
/// grown has those.
const SEGMENTS_MAX: u64 = CAPACITY_BYTES_MAX / SEGMENT_BYTES_MIN;

/// The contents of a checkpoint besides the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// Number of the checkpoint; its lower bit chooses the file.
    pub(crate) number: u64,
    pub(crate) store_id: u64,
    pub(crate) segment_bytes: u64,
    /// All operations before this one are in the checkpoint.
    pub(crate) sequence: u64,
    pub(crate) next_generation: u64,
    /// Parts of the index.
    pub(crate) parts: u32,
    pub(crate) segments: Vec<SegmentEntry>,
}

impl Head {
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEAD_BYTES];
        let words = [
            MAGIC,
            self.number,
            self.store_id,
            self.segment_bytes,
            self.sequence,
            self.next_generation,
            u64::from(self.parts),
            self.segments.len() as u64,
        ];
        for (place, word) in out.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        for segment in &self.segments {
            let state: u64 = match segment.is {
                Use::Free => 0,
                Use::Open => 1,
                Use::Closed => 2,
            };
            out.extend_from_slice(&segment.generation.to_le_bytes());
            out.extend_from_slice(&state.to_le_bytes());
        }
        let sum = xxh3_64(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let (body, sum) =
            bytes.split_last_chunk::<8>().ok_or(Corrupt("head of a checkpoint is short"))?;
        if xxh3_64(body) != u64::from_le_bytes(*sum) || u64_at(body, 0) != MAGIC {
            return Err(Corrupt("head of a checkpoint"));
        }
        let decode = |part: &[u8]| {
            let is = match u64_at(part, 8) {
                0 => Use::Free,
                1 => Use::Open,
                2 => Use::Closed,
                _ => return Err(Corrupt("state of a segment")),
            };
            Ok(SegmentEntry { generation: u64_at(part, 0), is })
        };
        let table = body.get(HEAD_BYTES..).unwrap_or_default();
        Ok(Self {
            number: u64_at(body, 8),
            store_id: u64_at(body, 16),
            segment_bytes: u64_at(body, 24),
            sequence: u64_at(body, 32),
            next_generation: u64_at(body, 40),
            parts: u32_at(body, 48),
            segments: table.chunks_exact(SEGMENT_BYTES).map(decode).collect::<Result<_, _>>()?,
        })
    }
}

/// Length of the head for `segments`, and the start of the parts behind it.
fn head_bytes(segments: usize) -> (usize, u64) {
    let bytes = HEAD_BYTES + segments * SEGMENT_BYTES + 8;
    (bytes, (bytes as u64).next_multiple_of(ALIGN_BYTES))
}

/// Reads the head of a checkpoint file; `None` if there is no valid one.
pub(crate) fn read_head(file: &dyn BlockFile) -> io::Result<Option<Head>> {
    let mut first = [0; HEAD_BYTES];
    if file.len()? < HEAD_BYTES as u64 {
        return Ok(None);
    }
    file.read_blocking(0, &mut first)?;
    let segments = u64_at(&first, 56);
    if u64_at(&first, 0) != MAGIC || segments > SEGMENTS_MAX {
        return Ok(None);
    }
    let (bytes, _) = head_bytes(segments as usize);
    if file.len()? < bytes as u64 {
        return Ok(None);
    }
    let mut whole = vec![0; bytes];
    file.read_blocking(0, &mut whole)?;
    Ok(Head::decode(&whole).ok())
}

/// Writes a checkpoint; returns its length in bytes. The head's `parts` is set here.
pub(crate) fn write(
    file: &dyn BlockFile,
    head: Head,
    index: Option<&RingIndex>,
) -> io::Result<u64> {
    let (_, start) = head_bytes(head.segments.len());
    let parts = index.map_or(0, RingIndex::shards);
    let mut at = start;
    let mut image = Vec::with_capacity(WRITE_BYTES);
    for part in 0..parts {
        if let Some(index) = index {
            index.write_shard(part, head.number, &mut image);
        }
        if image.len() >= WRITE_BYTES || part + 1 == parts {
            file.write_blocking(at, &image)?;
            at += image.len() as u64;
            image.clear();
        }
    }
    file.sync_blocking()?;
    let head = Head { parts: parts as u32, ..head };
    file.write_blocking(0, &head.encode())?;
    file.sync_blocking()?;
    Ok(at)
}

/// Reads the index of a checkpoint, which may grow for `objects_max` objects.
pub(crate) fn read_index(
    file: &dyn BlockFile,
    head: &Head,
    objects_max: u64,
) -> Result<RingIndex, MalformedIndex> {
    let mut at = head_bytes(head.segments.len()).1;
    let mut left = head.parts;
    let next = || {
        if left == 0 {
            return Ok(None);
        }
        left -= 1;
        let mut prefix = [0; IMAGE_PREFIX_BYTES];
        file.read_blocking(at, &mut prefix)?;
        let bytes = image_bytes(&prefix)
            .filter(|bytes| at.saturating_add(*bytes) <= file.len().unwrap_or(0));
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        let mut image = vec![0; bytes.ok_or(io::ErrorKind::InvalidData)?];
        file.read_blocking(at, &mut image)?;
        at += image.len() as u64;
        Ok(Some(image))
    };
    RingIndex::from_shards(head.number, objects_max, next)
}

/// Operations of a run have higher numbers than those of all runs before, also those that no
/// checkpoint contains: between two checkpoints there are fewer than this.
pub(crate) const SEQUENCE_GAP: u64 = 1 << 32;

/// The newest valid head; and whether the other file has an unreadable one, which may have been
/// newer.
pub(crate) fn newest(
    store_id: u64,
    segment_bytes: u64,
    files: &[Arc<dyn BlockFile>; 2],
) -> io::Result<(Option<Head>, bool)> {
    let mut found: Option<Head> = None;
    let mut is_doubtful = false;
    for file in files {
        let head = read_head(&**file)?
            .filter(|head| head.store_id == store_id && head.segment_bytes == segment_bytes);
        is_doubtful |= head.is_none() && file.len()? > 0;
        if let Some(head) = head
            && found.as_ref().is_none_or(|found| found.number < head.number)
        {
            found = Some(head);
        }
    }
    Ok((found, is_doubtful))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_survives_and_every_bit_of_it_counts() {
        let segments = [Use::Free, Use::Open, Use::Closed]
            .into_iter()
            .map(|is| SegmentEntry { generation: 77, is })
            .collect();
        let head = Head {
            number: 3,
            store_id: 4,
            segment_bytes: 5,
            sequence: 6,
            next_generation: 7,
            parts: 8,
            segments,
        };
        let bytes = head.encode();
        assert_eq!(bytes.len(), head_bytes(3).0);
        assert_eq!(Head::decode(&bytes), Ok(head));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Head::decode(&bad).is_err(), "bit {bit}");
        }
        assert!((0..bytes.len()).all(|end| Head::decode(&bytes[..end]).is_err()));
    }

    #[test]
    fn a_ring_of_many_short_segments_has_checkpoints_too() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("checkpoint");
        let options = crate::block::OpenBlock {
            path: &path,
            io: crate::Io::Threads,
            direct: false,
            lasting: false,
            threads: 1,
            create: true,
            read_only: false,
        };
        let file = crate::block::open(&options).expect("a file");
        // 1 TiB and more, in segments of 1 MiB.
        let segments = vec![SegmentEntry { generation: 1, is: Use::Closed }; (1 << 20) + 1];
        let head = Head {
            number: 3,
            store_id: 4,
            segment_bytes: 1 << 20,
            sequence: 6,
            next_generation: 7,
            parts: 0,
            segments,
        };
        write(&*file, head.clone(), None).expect("written");
        assert!(read_head(&*file).expect("readable") == Some(head));
    }
}
