//! Options that several schemes have.

use crate::Words;
use crate::option::{DirOption, Value, number};

/// Threads that a scheme uses if nothing is written.
pub(crate) const THREADS: u32 = 16;

/// `io=`: how reads and writes reach the device.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// io_uring where the system allows it, threads elsewhere.
    #[default]
    Auto,
    /// io_uring; opening fails where the system forbids it.
    Uring,
    /// Blocking calls on threads of their own.
    Threads,
}

/// `overload=`: what happens while a directory's disk cannot keep up.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Overload {
    /// New objects are not stored: fast answers, fewer hits.
    #[default]
    Shed,
    /// Clients that get new objects wait a little for the disk.
    Wait,
}

/// `page-cache=`: the use of the system's page cache; other I/O goes past it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum PageCache {
    /// Reads, as long as all stored objects would fit into memory that nobody else needs, or the
    /// device is slow.
    #[default]
    Auto,
    /// Nothing: the memory tier is the only copy in memory.
    Off,
    /// Reads. Written objects, perhaps never requested, take no memory.
    Reads,
    /// Reads and writes.
    On,
}

impl Words for Io {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("uring", Self::Uring), ("threads", Self::Threads)];
}

impl Words for Overload {
    const WORDS: &'static [(&'static str, Self)] = &[("shed", Self::Shed), ("wait", Self::Wait)];
}

impl Words for PageCache {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("off", Self::Off), ("reads", Self::Reads), ("on", Self::On)];
}

/// The words alone.
const fn words<W: Words, const N: usize>() -> [&'static str; N] {
    let mut out = [""; N];
    let mut at = 0;
    while at < N {
        out[at] = W::WORDS[at].0;
        at += 1;
    }
    out
}

const OVERLOAD_WORDS: &[&str] = &words::<Overload, { Overload::WORDS.len() }>();
const IO_WORDS: &[&str] = &words::<Io, { Io::WORDS.len() }>();
pub(crate) const PAGE_CACHE_WORDS: &[&str] = &words::<PageCache, { PageCache::WORDS.len() }>();

/// `threads=`, for a scheme that keeps their number in a field.
pub(crate) const fn threads<T>(set: fn(&mut T, u64), get: fn(&T) -> Option<u64>) -> DirOption<T> {
    DirOption {
        name: "threads",
        value: number("threads", 1, 256),
        unset: "",
        doc: "Threads that do the I/O; `rock`, `ring` and `coss` need them where io_uring is not used.",
        set,
        get,
    }
}

/// `io=`, likewise.
pub(crate) const fn io<T>(set: fn(&mut T, u64), get: fn(&T) -> Option<u64>) -> DirOption<T> {
    DirOption {
        name: "io",
        value: Value::Words(IO_WORDS),
        unset: "",
        doc: "How the device is used: by io_uring or by threads; `auto` takes io_uring where the system allows it.",
        set,
        get,
    }
}

/// `overload=`, likewise.
pub(crate) const fn overload<T>(set: fn(&mut T, u64), get: fn(&T) -> Option<u64>) -> DirOption<T> {
    DirOption {
        name: "overload",
        value: Value::Words(OVERLOAD_WORDS),
        unset: "",
        doc: "While the disk cannot keep up: `shed` does not store new objects, at first only those that come for the first time; `wait` lets their clients wait a little. \
              Hits are turned away after stores only.",
        set,
        get,
    }
}
