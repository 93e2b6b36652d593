//! Options of `diskd`.

use std::path::PathBuf;

use crate::common;
use crate::option::{DirOption, OutOfRange, at, check, number, position, small};
use crate::{Levels, Overload};

/// Options of `diskd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskdOptions {
    /// Its directories.
    pub levels: Levels,
    /// `Q1=`: with more messages under way, nothing is stored that comes for the first time; with
    /// twice as many, nothing; with four times as many, nothing is read.
    pub q1: u32,
    /// `Q2=`: with more messages under way, requests wait.
    pub q2: u32,
    /// `overload=`: what happens while the disk cannot keep up.
    pub overload: Overload,
    /// The program that can be a helper; `None` for the program that runs now. Not in squid.conf.
    pub program: Option<PathBuf>,
}

impl Default for DiskdOptions {
    /// Squid's.
    fn default() -> Self {
        Self {
            levels: Levels::default(),
            q1: 64,
            q2: 72,
            overload: Overload::default(),
            program: None,
        }
    }
}

/// Largest `Q1` and `Q2`: with more, more slots would be needed than there are numbers for.
const Q_MAX: u64 = 3000;

pub(crate) const OPTIONS: &[DirOption<DiskdOptions>] = &[
    DirOption {
        name: "Q1",
        value: number("messages", 1, Q_MAX),
        unset: "",
        doc: "With more messages under way to the helper, not counting files to be unlinked, nothing is stored that comes for the first time; with twice as many, nothing; with four times as many, nothing is read.",
        set: |options, count| options.q1 = small(count),
        get: |options| Some(options.q1.into()),
    },
    DirOption {
        name: "Q2",
        value: number("messages", 1, Q_MAX),
        unset: "",
        doc: "With more messages under way to the helper, requests wait.",
        set: |options, count| options.q2 = small(count),
        get: |options| Some(options.q2.into()),
    },
    common::overload(
        |options, word| options.overload = at(word),
        |options| position(options.overload),
    ),
];

impl DiskdOptions {
    /// Refuses what is out of range.
    ///
    /// # Errors
    /// [`OutOfRange`].
    pub fn check(&self) -> Result<(), OutOfRange> {
        check(OPTIONS, self)
    }
}
