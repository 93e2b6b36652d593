//! The division of a ring, and its files.

use std::sync::Arc;

use super::format::UNIT_BYTES;
use crate::block::BlockFile;

/// Locations have 34 bits.
pub(crate) const CAPACITY_BYTES_MAX: u64 = 8 << 40;

/// Longest body that is kept in one record.
const INLINE_BYTES_MAX: u64 = 1024 * 1024;
/// Fragments of the first [`SHORT_FRAGMENTS`] are this long, so that a short range of a long object
/// costs little …
const SHORT_FRAGMENT_BYTES: u64 = 256 * 1024;
/// … and later ones are longer, so that there are not too many.
const SHORT_FRAGMENTS: usize = 256;

/// The division of the data.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Geometry {
    pub(crate) segment_bytes: u64,
    pub(crate) segments: u32,
}

impl Geometry {
    pub(crate) fn segment_units(&self) -> u64 {
        self.segment_bytes / UNIT_BYTES
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.segment_bytes * u64::from(self.segments)
    }

    /// Longest record.
    pub(crate) fn record_units_max(&self) -> u64 {
        self.segment_units() / 2
    }

    /// Longest body in one record.
    pub(crate) fn inline_bytes_max(&self) -> usize {
        INLINE_BYTES_MAX.min(self.segment_bytes / 4) as usize
    }

    /// Length of the next fragment of an object that has `fragments` already.
    pub(crate) fn fragment_bytes(&self, fragments: usize) -> usize {
        match fragments {
            0..SHORT_FRAGMENTS => SHORT_FRAGMENT_BYTES.min(self.segment_bytes / 4) as usize,
            _ => self.inline_bytes_max(),
        }
    }
}

/// The files of a ring.
pub(crate) struct Files {
    pub(crate) data: Arc<dyn BlockFile>,
    /// The same file through the page cache, if reads or writes may use it.
    pub(crate) cached: Arc<dyn BlockFile>,
    pub(crate) checkpoints: [Arc<dyn BlockFile>; 2],
    pub(crate) purges: [Arc<dyn BlockFile>; 2],
}
