//! Options of `ring`.

use crate::common::{self, PAGE_CACHE_WORDS, THREADS};
use crate::option::{DirOption, OutOfRange, Value, at, check, position, small};
use crate::{Io, Overload, PageCache};

/// Options of `ring`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RingOptions {
    /// `threads=`: threads that do I/O where io_uring is not used.
    pub threads: u32,
    /// `io=`: how the device is used.
    pub io: Io,
    /// `overload=`: what happens while the disk cannot keep up.
    pub overload: Overload,
    /// `page-cache=`: what goes through the page cache.
    pub page_cache: PageCache,
}

impl Default for RingOptions {
    fn default() -> Self {
        Self {
            threads: THREADS,
            io: Io::default(),
            overload: Overload::default(),
            page_cache: PageCache::default(),
        }
    }
}

pub(crate) const OPTIONS: &[DirOption<RingOptions>] = &[
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
        name: "page-cache",
        value: Value::Words(PAGE_CACHE_WORDS),
        unset: "",
        doc: "The use of the system's page cache, which takes unused memory only: nothing, reads, or writes too; `auto` is `reads` \
              while all stored objects fit into that memory, or a read of the device takes more than 1 to 2 ms, `off` otherwise.",
        set: |options, word| options.page_cache = at(word),
        get: |options| position(options.page_cache),
    },
];

impl RingOptions {
    /// Refuses what is out of range.
    ///
    /// # Errors
    /// [`OutOfRange`].
    pub fn check(&self) -> Result<(), OutOfRange> {
        check(OPTIONS, self)
    }
}
