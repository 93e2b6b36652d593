//! Stores, replacement and freshness rules.

use std::path::PathBuf;
use std::time::Duration;

/// A storage scheme.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// No disk.
    Null,
    /// One file per object in a tree of directories, blocking I/O.
    Ufs,
    /// The same files, I/O by threads.
    Aufs,
    /// The same files, I/O by a process.
    Diskd,
    /// One file of stripes that are overwritten in turn.
    Coss,
    /// One file of fixed slots.
    Rock,
    /// A cyclic log of segments.
    Ring,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Null, Self::Ufs, Self::Aufs, Self::Diskd, Self::Coss, Self::Rock, Self::Ring];

    /// The name in squid.conf.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Ufs => "ufs",
            Self::Aufs => "aufs",
            Self::Diskd => "diskd",
            Self::Coss => "coss",
            Self::Rock => "rock",
            Self::Ring => "ring",
        }
    }

    /// Whether it keeps a file per object, in directories of two levels.
    pub fn is_tree(self) -> bool {
        matches!(self, Self::Ufs | Self::Aufs | Self::Diskd)
    }
}

/// One `cache_dir`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheDir {
    /// The scheme.
    pub scheme: Scheme,
    /// Directory; `coss` also takes a file or a device.
    pub path: PathBuf,
    /// Capacity in bytes; 0 for `null`.
    pub size_bytes: u64,
    /// First-level directories, at least 1.
    pub l1: u32,
    /// Second-level directories in each, at least 1.
    pub l2: u32,
    /// `min-size=`: smaller objects are not stored here, in bytes.
    pub min_size_bytes: u64,
    /// `max-size=`: larger objects are not stored here, in bytes; `None` takes
    /// `maximum_object_size`.
    pub max_size_bytes: Option<u64>,
    /// `no-store`, `read-only`: nothing new is stored.
    pub read_only: bool,
    /// Options of single schemes.
    pub tuning: DirTuning,
}

/// Options of single schemes, within the ranges of the table (`docs/squid.conf.md`). `None` where
/// nothing was written: the scheme's default.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct DirTuning {
    /// `threads=`
    pub threads: Option<u32>,
    /// `Q1=`: messages.
    pub q1: Option<u32>,
    /// `Q2=`: messages.
    pub q2: Option<u32>,
    /// `block-size=` in bytes.
    pub block_bytes: Option<u32>,
    /// `membufs=`: stripes.
    pub membufs: Option<u32>,
    /// `maxfullbufs=`: stripes.
    pub maxfullbufs: Option<u32>,
    /// `overwrite-percent=`
    pub overwrite_percent: Option<u32>,
    /// `max-stripe-waste=` in bytes.
    pub max_stripe_waste_bytes: Option<u32>,
    /// `slot-size=` in bytes.
    pub slot_bytes: Option<u32>,
    /// `max-swap-rate=`: writes a second; 0 for no limit.
    pub max_swap_rate: Option<u32>,
    /// `swap-timeout=` in milliseconds; 0 for no limit.
    pub swap_timeout_ms: Option<u32>,
    /// `io=`
    pub io: Option<DirIo>,
    /// `page-cache=`
    pub page_cache: Option<DirPageCache>,
}

/// `page-cache=`: the use of the system's page cache.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum DirPageCache {
    /// Reads, while all stored objects fit.
    Auto,
    /// Nothing.
    Off,
    /// Reads.
    Reads,
    /// Reads and writes.
    On,
}

/// `io=`: how a directory's reads and writes reach the device.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum DirIo {
    /// io_uring where the system allows it, threads elsewhere.
    Auto,
    /// io_uring.
    Uring,
    /// Threads.
    Threads,
}

/// `store_dir_select_algorithm`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum DirSelect {
    /// The directory with the least load, then the most free space.
    #[default]
    LeastLoad,
    /// One after the other.
    RoundRobin,
}

/// `in_transit`: where an object is that is coming in.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum InTransit {
    /// By its size.
    #[default]
    Auto,
    /// In memory until it is complete.
    Memory,
    /// On disk as it arrives.
    Disk,
}

/// `memory_cache_mode`: objects that memory keeps although a store has them.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum MemoryMode {
    /// All objects while there is room, then those with a second request.
    #[default]
    Auto,
    /// Fetched objects and hits.
    Always,
    /// Hits on disk.
    Disk,
    /// Fetched objects.
    Network,
}

/// One `refresh_pattern`.
#[derive(Clone, Debug)]
pub struct RefreshPattern {
    /// The compiled expression; it is matched against the URL.
    pub regex: regex::bytes::Regex,
    /// True for `-i`.
    pub case_insensitive: bool,
    /// An answer without explicit lifetime is fresh at least this long, in seconds.
    pub min_s: u32,
    /// Heuristic lifetime in percent of the time since the last modification; may exceed 100.
    pub percent: f64,
    /// Upper bound of the heuristic lifetime, in seconds.
    pub max_s: u32,
    /// Options.
    pub options: RefreshOptions,
}

impl PartialEq for RefreshPattern {
    fn eq(&self, other: &Self) -> bool {
        self.regex.as_str() == other.regex.as_str()
            && (self.case_insensitive, self.min_s, self.max_s)
                == (other.case_insensitive, other.min_s, other.max_s)
            && self.percent == other.percent
            && self.options == other.options
    }
}

/// Options of `refresh_pattern`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefreshOptions {
    /// `override-expire`: the minimum age wins over explicit lifetimes.
    pub override_expire: bool,
    /// `override-lastmod`: the minimum age wins over the heuristic.
    pub override_lastmod: bool,
    /// `reload-into-ims`: a client's reload becomes a validation.
    pub reload_into_ims: bool,
    /// `ignore-reload`: a client's reload is ignored.
    pub ignore_reload: bool,
    /// `ignore-no-store`: the answer's no-store is ignored.
    pub ignore_no_store: bool,
    /// `ignore-private`: the answer's private is ignored.
    pub ignore_private: bool,
    /// `max-stale=`: longest staleness that may be served on errors; `None` takes the directive
    /// `max_stale`.
    pub max_stale: Option<Duration>,
    /// `refresh-ims`: a client's If-Modified-Since validates with the server.
    pub refresh_ims: bool,
    /// `store-stale`: answers that are stale on arrival are stored.
    pub store_stale: bool,
}
