//! The schemes that keep a file for each object have directories of two levels.

use crate::option::{DirOption, OutOfRange, check, number, small};

/// Most numbered subdirectories on one level (`L1`, `L2`): their names have two hexadecimal digits.
pub const LEVEL_DIRS_MAX: u32 = 256;

/// The numbers of directories of a `cache_dir ufs`, `aufs` or `diskd`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Directories on the first level, 1 to [`LEVEL_DIRS_MAX`].
    pub l1: u32,
    /// Directories on the second level, 1 to [`LEVEL_DIRS_MAX`].
    pub l2: u32,
}

impl Default for Levels {
    /// Squid's.
    fn default() -> Self {
        Self { l1: 16, l2: 256 }
    }
}

/// They are written without names, behind the capacity.
const NUMBERS: &[DirOption<Levels>] = &[
    DirOption {
        name: "L1",
        value: number("directories", 1, LEVEL_DIRS_MAX as u64),
        unset: "",
        doc: "Directories on the first level.",
        set: |levels, count| levels.l1 = small(count),
        get: |levels| Some(levels.l1.into()),
    },
    DirOption {
        name: "L2",
        value: number("directories", 1, LEVEL_DIRS_MAX as u64),
        unset: "",
        doc: "Directories on the second level, in each on the first.",
        set: |levels, count| levels.l2 = small(count),
        get: |levels| Some(levels.l2.into()),
    },
];

impl Levels {
    /// Refuses what is out of range.
    ///
    /// # Errors
    /// [`OutOfRange`].
    pub fn check(&self) -> Result<(), OutOfRange> {
        check(NUMBERS, self)
    }
}
