//! How much may be written and not on a device yet. It holds for the whole machine, so a test that
//! changes it must be alone, and leave it as it was.

use std::fs;

const FOLDER: &str = "/proc/sys/vm";

/// The limit: one of the kernel's two numbers holds, the other one reads 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirtyLimit {
    Bytes(u64),
    /// Per cent of the memory that there is for it.
    Ratio(u64),
}

impl DirtyLimit {
    /// What holds now.
    pub(crate) fn now() -> Self {
        match read("dirty_bytes") {
            0 => Self::Ratio(read("dirty_ratio")),
            bytes => Self::Bytes(bytes),
        }
    }
}

/// The limit of before a test. It is written back when this is dropped: a test that fails leaves
/// none of its own.
pub(crate) struct LimitBefore {
    limit: DirtyLimit,
}

impl LimitBefore {
    pub(crate) fn note() -> Self {
        Self { limit: DirtyLimit::now() }
    }

    /// One that is not that of before, in MB: else nobody would see whether it is set and taken
    /// back.
    pub(crate) fn another_mb(&self) -> u64 {
        if self.limit == DirtyLimit::Bytes(8 << 20) { 16 } else { 8 }
    }

    /// It must be what it was.
    #[track_caller]
    pub(crate) fn assert_back(&self) {
        assert_eq!(DirtyLimit::now(), self.limit, "the limit is not what it was");
    }
}

impl Drop for LimitBefore {
    fn drop(&mut self) {
        let (name, value) = match self.limit {
            DirtyLimit::Bytes(bytes) => ("dirty_bytes", bytes),
            DirtyLimit::Ratio(ratio) => ("dirty_ratio", ratio),
        };
        // Writing one clears the other.
        let _ = fs::write(format!("{FOLDER}/{name}"), value.to_string());
    }
}

fn read(name: &str) -> u64 {
    let text = fs::read_to_string(format!("{FOLDER}/{name}")).expect("every kernel has it");
    text.trim().parse().expect("a number")
}
