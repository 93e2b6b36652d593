//! Stores, replacement and freshness rules.

use std::path::PathBuf;
use std::time::Duration;

/// A storage scheme that Humboldt can open.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// No disk.
    Null,
    /// One file per object in a tree of directories.
    Ufs,
}

impl Scheme {
    /// The name in squid.conf.
    pub fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Ufs => "ufs",
        }
    }
}

/// One `cache_dir`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheDir {
    /// The scheme that will be used. `aufs` and `diskd` become `ufs` (with a warning) until they exist: the layout
    /// on disk is the same.
    pub scheme: Scheme,
    /// The scheme's name as written.
    pub written_scheme: String,
    /// Directory.
    pub path: PathBuf,
    /// Capacity in bytes; 0 for `null`.
    pub size_bytes: u64,
    /// First-level directories, at least 1.
    pub l1: u32,
    /// Second-level directories in each, at least 1.
    pub l2: u32,
    /// `min-size=`: smaller objects are not stored here, in bytes.
    pub min_size_bytes: u64,
    /// `max-size=`: larger objects are not stored here, in bytes; `None` takes `maximum_object_size`.
    pub max_size_bytes: Option<u64>,
    /// `no-store`: nothing new is stored.
    pub read_only: bool,
    /// Other options, `name=value` split; they belong to schemes that do not exist yet.
    pub other: Vec<(String, String)>,
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
    /// `max-stale=`: longest staleness that may be served on errors; `None` takes the directive `max_stale`.
    pub max_stale: Option<Duration>,
    /// `refresh-ims`: a client's If-Modified-Since validates with the server.
    pub refresh_ims: bool,
    /// `store-stale`: answers that are stale on arrival are stored.
    pub store_stale: bool,
}
