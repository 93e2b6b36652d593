//! Options of `coss`.

use crate::common::{self, THREADS};
use crate::option::{DirOption, OutOfRange, Step, Value, at, check, number, position, small};
use crate::{Io, Overload};

/// Most stripes in memory: 1 GiB.
const MEMBUFS_MAX: u64 = 1024;

/// Full stripes that may wait, if nothing is written and there are more stripes in memory.
const MAXFULLBUFS: u32 = 4;

/// Options of `coss`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CossOptions {
    /// `threads=`: threads that do I/O where io_uring is not used.
    pub threads: u32,
    /// `io=`: how the device is used.
    pub io: Io,
    /// `overload=`: what happens while the disk cannot keep up.
    pub overload: Overload,
    /// `block-size=`: unit of location in bytes; `None` for the smallest that will do.
    pub block_bytes: Option<u32>,
    /// `membufs=`: stripes in memory.
    pub membufs: u32,
    /// `maxfullbufs=`: see [`CossOptions::full_stripes_max`].
    pub maxfullbufs: Option<u32>,
    /// `overwrite-percent=`: a hit on an object that lies in the oldest part of the file, this many
    /// percent of it, is written again to the current stripe.
    pub overwrite_percent: u32,
    /// `max-stripe-waste=`: room at the end of a stripe that may be given up, in bytes; `None` for
    /// any.
    pub max_stripe_waste_bytes: Option<u32>,
}

impl Default for CossOptions {
    /// Squid's, and ours where Squid has none.
    fn default() -> Self {
        Self {
            threads: THREADS,
            io: Io::default(),
            overload: Overload::default(),
            block_bytes: None,
            membufs: 10,
            maxfullbufs: None,
            overwrite_percent: 50,
            max_stripe_waste_bytes: None,
        }
    }
}

pub(crate) const OPTIONS: &[DirOption<CossOptions>] = &[
    common::threads(
        |options, count| options.threads = small(count),
        |options| Some(options.threads.into()),
    ),
    common::io(|options, word| options.io = at(word), |options| position(options.io)),
    common::overload(
        |options, word| options.overload = at(word),
        |options| position(options.overload),
    ),
    DirOption {
        name: "block-size",
        value: Value::Number { unit: "bytes", min: 512, max: 8192, step: Step::PowerOfTwo },
        unset: "by the capacity",
        doc: "Unit of location; the capacity is at most 2^24 of it.",
        set: |options, bytes| options.block_bytes = Some(small(bytes)),
        get: |options| options.block_bytes.map(u64::from),
    },
    DirOption {
        name: "membufs",
        value: number("stripes", 2, MEMBUFS_MAX),
        unset: "",
        doc: "Stripes in memory.",
        set: |options, count| options.membufs = small(count),
        get: |options| Some(options.membufs.into()),
    },
    DirOption {
        name: "maxfullbufs",
        value: number("stripes", 1, MEMBUFS_MAX - 1),
        unset: "4",
        doc: "Full stripes that may wait to be written, fewer than `membufs`; beyond it nothing is stored. With fewer than five `membufs`, the default is one less than they are.",
        set: |options, count| options.maxfullbufs = Some(small(count)),
        get: |options| options.maxfullbufs.map(u64::from),
    },
    DirOption {
        name: "overwrite-percent",
        value: number("percent", 0, 100),
        unset: "",
        doc: "A hit in the part of the file that is overwritten next, so large, is written again to the current stripe.",
        set: |options, percent| options.overwrite_percent = small(percent),
        get: |options| Some(options.overwrite_percent.into()),
    },
    DirOption {
        name: "max-stripe-waste",
        value: number("bytes", 0, 1 << 20),
        unset: "any",
        doc: "Room at the end of a stripe that may be given up for an object that does not fit.",
        set: |options, bytes| options.max_stripe_waste_bytes = Some(small(bytes)),
        get: |options| options.max_stripe_waste_bytes.map(u64::from),
    },
];

impl CossOptions {
    /// Full stripes that may wait to be written, fewer than there are in memory.
    pub fn full_stripes_max(&self) -> u32 {
        self.maxfullbufs.unwrap_or(MAXFULLBUFS.min(self.membufs.saturating_sub(1)))
    }

    /// Options that are valid one by one, and contradict each other: the reason.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let (full, membufs) = (self.full_stripes_max(), self.membufs);
        (full >= membufs).then(|| format!("`maxfullbufs={full}` is not below `membufs={membufs}`"))
    }

    /// Refuses what is out of range.
    ///
    /// # Errors
    /// [`OutOfRange`].
    pub fn check(&self) -> Result<(), OutOfRange> {
        check(OPTIONS, self)?;
        if self.full_stripes_max() < self.membufs {
            return Ok(());
        }
        Err(OutOfRange::new("maxfullbufs", "below membufs"))
    }
}
