//! Options of `aufs`.

use crate::common::{self, THREADS};
use crate::option::{DirOption, OutOfRange, at, check, position, small};
use crate::{Levels, Overload};

/// Options of `aufs`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct AufsOptions {
    /// Its directories.
    pub levels: Levels,
    /// `threads=`: threads that do I/O.
    pub threads: u32,
    /// `overload=`: what happens while the disk cannot keep up.
    pub overload: Overload,
}

impl Default for AufsOptions {
    fn default() -> Self {
        Self { levels: Levels::default(), threads: THREADS, overload: Overload::default() }
    }
}

pub(crate) const OPTIONS: &[DirOption<AufsOptions>] = &[
    common::threads(
        |options, count| options.threads = small(count),
        |options| Some(options.threads.into()),
    ),
    common::overload(
        |options, word| options.overload = at(word),
        |options| position(options.overload),
    ),
];

impl AufsOptions {
    /// Refuses what is out of range.
    ///
    /// # Errors
    /// [`OutOfRange`].
    pub fn check(&self) -> Result<(), OutOfRange> {
        check(OPTIONS, self)
    }
}
