//! Stores, replacement and freshness rules.

use std::path::PathBuf;
use std::time::Duration;

use humboldt_options::{DirLimits, Scheme, SchemeOptions};

/// One `cache_dir`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheDir {
    /// Directory; `coss` also takes a file or a device.
    pub path: PathBuf,
    /// Capacity in bytes; 0 for `null`.
    pub size_bytes: u64,
    /// What is stored there at all.
    pub limits: DirLimits,
    /// The scheme and its own options.
    pub options: SchemeOptions,
}

impl CacheDir {
    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.options.scheme()
    }
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
