//! Choices for the cache as a whole.

use crate::Words;

/// `store_dir_select_algorithm`: the directory that takes an object.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum DirSelect {
    /// The one with the least load, then the most free space.
    #[default]
    LeastLoad,
    /// One after the other.
    RoundRobin,
}

/// `in_transit`: the place of an object that is coming in and will be written to a directory.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum InTransit {
    /// In memory until it is complete, if it is not larger than `maximum_object_size_in_memory`;
    /// otherwise on disk.
    #[default]
    Auto,
    /// In memory until it is complete, also if it is larger, within bounds.
    Memory,
    /// Written as it arrives, at any size; memory holds the bytes that some reader has not read
    /// yet.
    Disk,
}

/// `memory_cache_mode`: the objects that memory keeps although a directory has them too.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum MemoryMode {
    /// All objects while there is room, then those with a second request.
    #[default]
    Auto,
    /// Everything that was fetched or hit.
    Always,
    /// Hits on disk.
    Disk,
    /// Fetched objects.
    Network,
}

impl Words for DirSelect {
    const WORDS: &'static [(&'static str, Self)] =
        &[("least-load", Self::LeastLoad), ("round-robin", Self::RoundRobin)];
}

impl Words for InTransit {
    const WORDS: &'static [(&'static str, Self)] =
        &[("memory", Self::Memory), ("disk", Self::Disk), ("auto", Self::Auto)];
}

impl Words for MemoryMode {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("always", Self::Always),
        ("disk", Self::Disk),
        ("network", Self::Network),
    ];
}
