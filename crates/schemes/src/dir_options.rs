//! The options of one directory.

use std::path::PathBuf;

use humboldt_options::SchemeOptions;
use humboldt_store::Policy;

use crate::open_error::OpenError;

/// The options of one directory: those that every scheme has, from its `cache_dir` line and from a
/// few other directives, and those of its scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirOptions<O = SchemeOptions> {
    /// The directory.
    pub path: PathBuf,
    /// Size in bytes; stored objects stay below it.
    pub capacity_bytes: u64,
    /// Smallest body that is stored (`min-size=`), in bytes.
    pub min_bytes: u64,
    /// Largest body that is stored (`max-size=`), in bytes; `u64::MAX` for no limit.
    pub max_bytes: u64,
    /// `cache_swap_low`: eviction aims at this share of the size, in percent.
    pub swap_low_pct: u8,
    /// `cache_swap_high`: eviction keeps use below this share of the size, in percent.
    pub swap_high_pct: u8,
    /// Most files held open by this directory at a time (`max_open_disk_fds`); 0 for no limit of
    /// its own.
    pub max_open_files: u32,
    /// `cache_replacement_policy`, for the schemes that choose victims.
    pub policy: Policy,
    /// `store_avg_object_size`: expected mean size of an object in bytes, by which an index is
    /// sized at first.
    pub object_bytes_avg: u64,
    /// The options of the scheme.
    pub own: O,
}

impl<O> DirOptions<O> {
    /// Squid's defaults for a directory of `capacity_bytes` at `path`.
    pub fn of(own: O, path: impl Into<PathBuf>, capacity_bytes: u64) -> Self {
        Self {
            path: path.into(),
            capacity_bytes,
            min_bytes: 0,
            max_bytes: u64::MAX,
            swap_low_pct: 90,
            swap_high_pct: 95,
            max_open_files: 0,
            policy: Policy::default(),
            object_bytes_avg: 13 * 1024,
            own,
        }
    }

    /// The same directory, and its scheme's own options in another form.
    pub(crate) fn map<P>(&self, own: impl FnOnce(O) -> P) -> DirOptions<P>
    where
        O: Clone,
    {
        DirOptions {
            path: self.path.clone(),
            capacity_bytes: self.capacity_bytes,
            min_bytes: self.min_bytes,
            max_bytes: self.max_bytes,
            swap_low_pct: self.swap_low_pct,
            swap_high_pct: self.swap_high_pct,
            max_open_files: self.max_open_files,
            policy: self.policy,
            object_bytes_avg: self.object_bytes_avg,
            own: own(self.own.clone()),
        }
    }

    /// About how many objects the directory will hold when it is full.
    pub(crate) fn objects_expected(&self) -> u64 {
        self.capacity_bytes / self.object_bytes_avg.max(1)
    }

    /// These options cannot be.
    pub(crate) fn bad(&self, reason: impl ToString) -> OpenError {
        OpenError::BadOption { path: self.path.clone(), reason: reason.to_string() }
    }

    /// Refuses water marks that contradict each other.
    pub(crate) fn check_water_marks(&self) -> Result<(), OpenError> {
        if self.swap_low_pct > self.swap_high_pct || self.swap_high_pct > 100 {
            let reason = "cache_swap_low must not be above cache_swap_high, nor that above 100";
            return Err(self.bad(reason));
        }
        Ok(())
    }
}

impl<O: Default> DirOptions<O> {
    /// The same for a scheme whose own options are not written.
    pub fn new(path: impl Into<PathBuf>, capacity_bytes: u64) -> Self {
        Self::of(O::default(), path, capacity_bytes)
    }
}
