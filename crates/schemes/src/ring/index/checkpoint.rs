//! The index as bytes, shard by shard. The layout is in `docs/formats/ring-index.md`.

use std::io;

use humboldt_base::xxh3::xxh3_64;

use super::slot::Slot;
use super::table::{BUCKET_SLOTS, BUCKETS_MAX, Bucket, DOUBLINGS_MAX, Table};
use super::{RingIndex, SHARDS};

/// This many bytes of an image are enough for [`image_bytes`].
pub(crate) const IMAGE_PREFIX_BYTES: usize = 16;

const MAGIC: [u8; 8] = *b"HUMrgIDX";
const FORMAT: u32 = 1;
const HEADER_BYTES: usize = 64;
const CHECKSUM_BYTES: usize = 8;
const SLOT_BYTES: usize = 8;

/// The shortest image: an empty shard.
const IMAGE_BYTES_MIN: u64 = (HEADER_BYTES + CHECKSUM_BYTES) as u64;

/// The longest image: a full shard of the most buckets.
const IMAGE_BYTES_MAX: u64 = IMAGE_BYTES_MIN + BUCKETS_MAX * (1 + BUCKET_SLOTS * SLOT_BYTES) as u64;

/// Why a checkpoint cannot be used. The index has to be made from the log then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MalformedIndex {
    /// The bytes are not those that were written, or not of this checkpoint.
    #[error("shard {shard} of the index: {reason}")]
    Shard {
        /// Number of the shard, from 0.
        shard: usize,
        /// The fault.
        reason: &'static str,
    },
    /// It could not be read.
    #[error("shard {shard} of the index cannot be read: {source}")]
    Read {
        /// Number of the shard, from 0.
        shard: usize,
        /// The system's reason.
        source: io::Error,
    },
}

/// Length of an image in bytes, from its first [`IMAGE_PREFIX_BYTES`]; at most 260 MiB. `None` when
/// it is none.
pub(crate) fn image_bytes(prefix: &[u8]) -> Option<u64> {
    let bytes = u64_at(prefix, 8)?;
    let is_possible = (IMAGE_BYTES_MIN..=IMAGE_BYTES_MAX).contains(&bytes);
    (prefix.starts_with(&MAGIC) && is_possible).then_some(bytes)
}

impl RingIndex {
    /// Appends the image of a shard to `out`: all its objects at one moment. `stamp` is a number of
    /// the checkpoint's own, the same for all its shards. Nothing is appended if there is no such
    /// shard.
    pub(crate) fn write_shard(&self, shard: usize, stamp: u64, out: &mut Vec<u8>) {
        let Some(table) = self.shards.get(shard) else { return };
        let table = table.0.read();
        let buckets = if table.objects == 0 { &[][..] } else { &table.buckets };
        let start = out.len();
        let bytes =
            HEADER_BYTES + buckets.len() + table.objects as usize * SLOT_BYTES + CHECKSUM_BYTES;
        out.reserve(bytes);
        out.extend(MAGIC);
        out.extend((bytes as u64).to_le_bytes());
        for word in
            [FORMAT, shard as u32, self.shards.len() as u32, table.base, buckets.len() as u32]
        {
            out.extend(word.to_le_bytes());
        }
        out.extend([table.doublings, 0, 0, 0]);
        out.extend(table.objects.to_le_bytes());
        out.extend(stamp.to_le_bytes());
        out.extend([0; 8]);
        for bucket in buckets {
            write_bucket(bucket, out);
        }
        let checksum = xxh3_64(out.get(start..).unwrap_or_default());
        out.extend(checksum.to_le_bytes());
    }

    /// The index whose shards' images `next` returns, in their order, and `None` behind the last.
    /// It may grow for `objects_max` objects.
    pub(crate) fn from_shards(
        stamp: u64,
        objects_max: u64,
        mut next: impl FnMut() -> io::Result<Option<Vec<u8>>>,
    ) -> Result<Self, MalformedIndex> {
        let mut tables: Vec<Table> = Vec::new();
        let mut shards = None;
        loop {
            let shard = tables.len();
            let malformed = |reason| MalformedIndex::Shard { shard, reason };
            let image = next().map_err(|source| MalformedIndex::Read { shard, source })?;
            let Some(image) = image else { break };
            let Image { header, table } = Image::parse(&image).map_err(malformed)?;
            if header.shard as usize != shard || header.stamp != stamp {
                return Err(malformed("it belongs elsewhere, or to another checkpoint"));
            }
            let of_first = *shards.get_or_insert(header.shards);
            if header.shards != of_first
                || tables.first().is_some_and(|first| first.base != table.base)
            {
                return Err(malformed("it does not fit the first one"));
            }
            tables.push(table);
        }
        if shards.is_none_or(|shards| shards as usize != tables.len()) {
            return Err(MalformedIndex::Shard { shard: tables.len(), reason: "it is missing" });
        }
        Ok(Self::of_tables(tables, objects_max))
    }
}

/// A byte whose bits show the used slots, and these slots.
fn write_bucket(bucket: &Bucket, out: &mut Vec<u8>) {
    // Without a branch for each slot: whether it is empty is as good as random.
    let mut image = [0; 1 + BUCKET_SLOTS * SLOT_BYTES];
    let (mut mask, mut used) = (0_u8, 0);
    for (at, slot) in bucket.slots().enumerate() {
        let place = 1 + used * SLOT_BYTES;
        image[place..place + SLOT_BYTES].copy_from_slice(&slot.0.to_le_bytes());
        let is_used = !slot.is_empty();
        mask |= u8::from(is_used) << at;
        used += usize::from(is_used);
    }
    image[0] = mask;
    out.extend_from_slice(&image[..1 + used * SLOT_BYTES]);
}

/// The header of an image, besides the table.
struct Header {
    shard: u32,
    shards: u32,
    stamp: u64,
}

/// An image that has been looked through.
struct Image {
    header: Header,
    table: Table,
}

impl Image {
    fn parse(image: &[u8]) -> Result<Self, &'static str> {
        if image_bytes(image) != Some(image.len() as u64) {
            return Err("it does not begin like one, or has another length");
        }
        let (content, checksum) = image.split_last_chunk().ok_or("it is too short")?;
        if xxh3_64(content) != u64::from_le_bytes(*checksum) {
            return Err("its checksum is wrong");
        }
        Self::parse_content(content).ok_or("its numbers contradict each other")
    }

    /// The rest. Its checksum is valid, so it is as written, unless it was forged.
    fn parse_content(content: &[u8]) -> Option<Self> {
        let (header, mut body) = content.split_at_checked(HEADER_BYTES)?;
        if u32_at(header, 16)? != FORMAT {
            return None;
        }
        let (shard, shards) = (u32_at(header, 20)?, u32_at(header, 24)?);
        let (base, buckets) = (u32_at(header, 28)?, u32_at(header, 32)?);
        let doublings = *header.get(36)?;
        let objects = u64_at(header, 40)?;
        let stamp = u64_at(header, 48)?;
        if !SHARDS.contains(&u64::from(shards)) || !shards.is_power_of_two() || shard >= shards {
            return None;
        }
        if base == 0 || doublings > DOUBLINGS_MAX || u64::from(base) << doublings > BUCKETS_MAX {
            return None;
        }
        let has_all = buckets == base << doublings || buckets == 0 && objects == 0;
        let bytes = u64::from(buckets).checked_add(objects.checked_mul(SLOT_BYTES as u64)?)?;
        if !has_all || bytes != body.len() as u64 {
            return None;
        }
        let mut table =
            Table { buckets: Vec::with_capacity(buckets as usize), base, doublings, objects };
        for number in 0..buckets as usize {
            table.buckets.push(read_bucket(&mut body, |slot| table.may_hold(number, slot.tag()))?);
        }
        body.is_empty().then_some(Self { header: Header { shard, shards, stamp }, table })
    }
}

fn read_bucket(body: &mut &[u8], may_hold: impl Fn(Slot) -> bool) -> Option<Bucket> {
    let mask = *body.split_off_first()?;
    let mut bucket = Bucket::default();
    for at in (0..BUCKET_SLOTS).filter(|at| mask >> at & 1 == 1) {
        let (bytes, rest) = body.split_first_chunk()?;
        *body = rest;
        let slot = Slot(u64::from_le_bytes(*bytes));
        if slot.is_empty() || !may_hold(slot) {
            return None;
        }
        bucket.set(at, slot);
    }
    Some(bucket)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
