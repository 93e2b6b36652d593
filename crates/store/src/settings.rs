//! Settings of a cache that can be changed while it runs.

pub use humboldt_options::{DirSelect, InTransit, MemoryMode};
use humboldt_policy::Policy;

/// Settings that can be changed while the cache runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// `cache_mem` in bytes.
    pub cache_mem_bytes: u64,
    /// `memory_replacement_policy`.
    pub memory_policy: Policy,
    /// `memory_cache_mode`.
    pub memory_mode: MemoryMode,
    /// `maximum_object_size_in_memory` in bytes.
    pub memory_object_bytes_max: u64,
    /// `maximum_object_size` in bytes.
    pub disk_object_bytes_max: u64,
    /// `read_ahead_gap` in bytes.
    pub read_ahead_bytes: u64,
    /// `store_dir_select_algorithm`.
    pub dir_select: DirSelect,
    /// `in_transit`.
    pub in_transit: InTransit,
}

impl CacheSettings {
    /// A small cache, for tests.
    // tidy: public, because tests use it
    pub const SMALL: Self = Self {
        cache_mem_bytes: 1 << 20,
        memory_policy: Policy::Lru,
        memory_mode: MemoryMode::Auto,
        memory_object_bytes_max: 1 << 16,
        disk_object_bytes_max: 1 << 20,
        read_ahead_bytes: 1 << 14,
        dir_select: DirSelect::LeastLoad,
        in_transit: InTransit::Auto,
    };
}
