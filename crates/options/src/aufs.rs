//! Options of `aufs`.

use crate::Levels;
use crate::common::{self, THREADS};
use crate::option::{DirOption, OutOfRange, check, small};

/// Options of `aufs`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct AufsOptions {
    /// Its directories.
    pub levels: Levels,
    /// `threads=`: threads that do I/O.
    pub threads: u32,
}

impl Default for AufsOptions {
    fn default() -> Self {
        Self { levels: Levels::default(), threads: THREADS }
    }
}

pub(crate) const OPTIONS: &[DirOption<AufsOptions>] = &[common::threads(
    |options, count| options.threads = small(count),
    |options| Some(options.threads.into()),
)];

impl AufsOptions {
    /// Refuses what is out of range.
    ///
    /// # Errors
    /// [`OutOfRange`].
    pub fn check(&self) -> Result<(), OutOfRange> {
        check(OPTIONS, self)
    }
}
