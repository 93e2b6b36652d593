//! The options in stripes and blocks, and the refusal of invalid ones.

use super::format::{BLOCK_BYTES, PURGES_BYTES_MAX, PURGES_OFFSET, STRIPE_BYTES, UNIT_BYTES};
use super::record::BODY_BYTES_MAX;
use crate::{CossOptions, DirOptions, OpenError};

/// Most blocks in a store: a file number has 24 bits, as in Squid.
const BLOCKS_MAX: u64 = 1 << 24;

/// What `block-size=` may be.
const BLOCK_BYTES_MIN: u32 = 512;
const BLOCK_BYTES_MAX: u32 = 8192;

/// Share of the size that is kept for the purge log of a new store, and its lower bound.
const PURGES_SHARE: u64 = 256;
const PURGES_BYTES_MIN: u64 = 56 * 1024;

/// Share of the size that is kept for the index snapshot: enough for a mean object of 3 KiB.
const SNAPSHOT_SHARE: u64 = 128;

/// The options of one store, checked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Number of stripes on disk.
    pub(super) stripes: u32,
    /// Unit of location.
    pub(super) block_bytes: u32,
    /// Stripes in memory.
    pub(super) membufs: usize,
    /// Full stripes that may wait.
    pub(super) full_max: usize,
    /// A hit in one of this many stripes that will be overwritten next is relocated.
    pub(super) relocated_stripes: u32,
    /// Most bytes at the end of a stripe that are given up for an object that does not fit.
    pub(super) waste_bytes_max: usize,
    /// Longest body.
    pub(super) body_bytes_max: u64,
}

/// Length of the purge log of a new store.
pub(super) fn new_purge_bytes(capacity_bytes: u64) -> u64 {
    let bytes = (capacity_bytes / PURGES_SHARE).clamp(PURGES_BYTES_MIN, PURGES_BYTES_MAX);
    bytes / BLOCK_BYTES as u64 * BLOCK_BYTES as u64
}

impl Geometry {
    /// Checks the options for a store whose purge log has `purge_bytes`.
    pub(super) fn new(
        options: &DirOptions<CossOptions>,
        purge_bytes: u64,
    ) -> Result<Self, OpenError> {
        let own = &options.own;
        own.check().map_err(|error| options.bad(error))?;
        let bad = |reason| options.bad(reason);
        if options.min_bytes > BODY_BYTES_MAX {
            return Err(bad(
                "min-size is above 983040, the most that coss stores: nothing could be stored",
            ));
        }
        let tables = PURGES_OFFSET + purge_bytes + options.capacity_bytes / SNAPSHOT_SHARE;
        let stripes = options.capacity_bytes.saturating_sub(tables) / STRIPE_BYTES as u64;
        if stripes < 2 {
            return Err(bad(
                "too small for coss: two stripes of 1 MB and its tables need at least 3 MB",
            ));
        }
        let block_bytes = block_bytes(options.capacity_bytes, own.block_bytes).map_err(bad)?;
        let stripes =
            u32::try_from(stripes).map_err(|_| bad("coss holds at most 128 GB a directory"))?;
        let share = u64::from(stripes) * u64::from(own.overwrite_percent);
        Ok(Self {
            stripes,
            block_bytes,
            membufs: own.membufs as usize,
            full_max: own.full_stripes_max() as usize,
            relocated_stripes: share.div_ceil(100) as u32,
            waste_bytes_max: own
                .max_stripe_waste_bytes
                .map_or(STRIPE_BYTES, |bytes| bytes as usize),
            body_bytes_max: options.max_bytes.min(BODY_BYTES_MAX),
        })
    }

    /// Blocks in a stripe.
    fn stripe_blocks(&self) -> u32 {
        STRIPE_BYTES as u32 / self.block_bytes
    }

    /// Slot of the stripe that block `file` lies in, and its offset there.
    pub(super) fn locate(&self, file: u32) -> (u32, usize) {
        let offset = file % self.stripe_blocks() * self.block_bytes;
        (file / self.stripe_blocks(), offset as usize)
    }

    /// Number of the block at `offset` in a stripe; `None` if there is none, or no such slot.
    pub(super) fn file(&self, slot: u32, offset: usize) -> Option<u32> {
        let is_inside = slot < self.stripes && offset < STRIPE_BYTES;
        let is_aligned = offset.is_multiple_of(self.block_bytes as usize);
        (is_inside && is_aligned)
            .then(|| slot * self.stripe_blocks() + offset as u32 / self.block_bytes)
    }

    /// Bytes occupied by a record of `units`.
    pub(super) fn occupied_bytes(&self, units: u32) -> u64 {
        (u64::from(units) * UNIT_BYTES as u64).next_multiple_of(u64::from(self.block_bytes))
    }
}

/// The unit of location: as configured, or the smallest that will do.
fn block_bytes(capacity_bytes: u64, configured: Option<u32>) -> Result<u32, &'static str> {
    let mut sizes = (0..).map(|i| BLOCK_BYTES_MIN << i).take_while(|size| *size <= BLOCK_BYTES_MAX);
    let needed = sizes.find(|size| u64::from(*size) * BLOCKS_MAX >= capacity_bytes);
    let needed = needed.ok_or("coss holds at most 128 GB a directory; use several")?;
    let block_bytes = configured.unwrap_or(needed);
    if block_bytes >= needed {
        return Ok(block_bytes);
    }
    Err(match needed {
        1024 => "2^24 blocks of this block-size are less than the size: it needs block-size=1024",
        2048 => "2^24 blocks of this block-size are less than the size: it needs block-size=2048",
        4096 => "2^24 blocks of this block-size are less than the size: it needs block-size=4096",
        _ => "2^24 blocks of this block-size are less than the size: it needs block-size=8192",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CossOptions;
    use crate::coss::DirOptions;

    fn geometry(
        capacity_bytes: u64,
        adapt: impl FnOnce(&mut CossOptions),
    ) -> Result<Geometry, String> {
        let mut options = DirOptions::new("/x", capacity_bytes);
        adapt(&mut options.own);
        Geometry::new(&options, new_purge_bytes(capacity_bytes)).map_err(|e| e.to_string())
    }

    #[test]
    fn the_block_size_caps_the_capacity() {
        let gib = 1_u64 << 30;
        for (size, cap) in [(512, 8), (1024, 16), (2048, 32), (4096, 64), (8192, 128)] {
            assert!(geometry(cap * gib, |t| t.block_bytes = Some(size)).is_ok());
            let above =
                geometry(cap * gib + 1, |t| t.block_bytes = Some(size)).expect_err("refused");
            let hint =
                if size == 8192 { "128 GB".to_owned() } else { format!("block-size={}", size * 2) };
            assert!(above.contains(&hint), "{above}");
            let chosen = geometry(cap * gib, |t| t.block_bytes = None).expect("chosen");
            assert_eq!(chosen.block_bytes, size);
            let last =
                chosen.file(chosen.stripes - 1, STRIPE_BYTES - size as usize).expect("a block");
            assert!(u64::from(last) < BLOCKS_MAX);
        }
    }

    #[test]
    fn blocks_are_found_again() {
        let geometry = geometry(64 << 20, |t| t.block_bytes = Some(2048)).expect("good options");
        for (slot, offset) in
            [(0, 0), (0, 2048), (7, STRIPE_BYTES - 2048), (geometry.stripes - 1, 4096)]
        {
            let file = geometry.file(slot, offset).expect("a block");
            assert_eq!(geometry.locate(file), (slot, offset));
        }
        for (slot, offset) in [(0, 512), (geometry.stripes, 0), (0, STRIPE_BYTES)] {
            assert_eq!(geometry.file(slot, offset), None);
        }
        assert_eq!((geometry.occupied_bytes(1), geometry.occupied_bytes(5)), (2048, 4096));
    }

    #[test]
    fn nonsense_is_refused_with_the_reason() {
        type Adapt = fn(&mut CossOptions);
        let bad: [(Adapt, &str); 7] = [
            (|t| t.membufs = 1, "membufs"),
            (|t| t.maxfullbufs = Some(0), "maxfullbufs"),
            (|t| t.maxfullbufs = Some(t.membufs), "maxfullbufs"),
            (|t| t.overwrite_percent = 101, "overwrite-percent"),
            (|t| t.threads = 0, "threads"),
            (|t| t.block_bytes = Some(1000), "block-size"),
            (|t| t.block_bytes = Some(16_384), "block-size"),
        ];
        for (adapt, word) in bad {
            let message = geometry(64 << 20, adapt).expect_err("refused");
            assert!(message.contains(word), "{message}");
        }
        assert!(geometry(2 << 20, |_| ()).is_err() && geometry(3 << 20, |_| ()).is_ok());
        for (percent, stripes) in [(0, 0), (1, 1), (50, 32), (100, 63)] {
            let chosen =
                geometry(64 << 20, |t| t.overwrite_percent = percent).expect("good options");
            assert_eq!((chosen.stripes, chosen.relocated_stripes), (63, stripes));
        }
    }
}
