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
