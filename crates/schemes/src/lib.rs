//! The storage schemes, one folder each, behind the [`Scheme`] trait of the store.
//!
//! [`open`] gives a running scheme, [`create`] prepares a directory as `humboldt -z` does. Which
//! schemes there are, and which options each has, says `humboldt_options`. Every scheme passes the
//! same battery of tests (`battery.rs`).

mod aufs;
#[cfg(test)]
mod battery;
mod block;
mod coss;
mod diskd;
mod health;
mod lock;
mod null;
mod ring;
mod rock;
#[doc(hidden)]
pub mod simulated;
mod sync;
mod tree;
mod ufs;

pub use self::diskd::{HELPER_COMMAND, HelperError, serve_as_helper};
pub use self::ring::promise_memory;
#[doc(hidden)]
pub use block::example as block_example;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use humboldt_options::LEVEL_DIRS_MAX;
pub use humboldt_options::{
    AufsOptions, CossOptions, DiskdOptions, Io, Levels, PageCache, RingOptions, RockOptions,
    Scheme as SchemeKind, SchemeOptions,
};
use humboldt_store::Policy;
use humboldt_store::scheme::Scheme;

/// What `cache_dir` says about one directory, and the few global directives that matter to it: what
/// every scheme has, and the options of its own.
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

/// Why a directory cannot be used. Nothing in it has been touched, unless it was ours.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A number is out of range.
    #[error("{path}: {reason}")]
    BadOption {
        /// The directory.
        path: PathBuf,
        /// Which number and its range.
        reason: String,
    },
    /// The directory belongs to another program.
    #[error(
        "{path} is not a Humboldt cache directory: {reason}; it was left as it is, give an empty directory"
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// The sign of that.
        reason: String,
    },
    /// The directory was made with other options, and is of no use with these.
    #[error(
        "{path} was made with {found}, but the configuration says {wanted}; use the same, or an empty directory"
    )]
    Mismatch {
        /// The directory.
        path: PathBuf,
        /// The directory's value.
        found: String,
        /// The configuration's value.
        wanted: String,
    },
    /// Another process uses the directory.
    #[error("{path} is in use by another process (its lock file {lock} is locked)")]
    Locked {
        /// The directory.
        path: PathBuf,
        /// Name of the lock file in it.
        lock: &'static str,
    },
    /// The operating system refused.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// The operation.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// Opens a directory, and creates missing parts. It belongs to this process until the scheme is
/// dropped.
///
/// Reading a long swap log, and looking for files when there is none, goes on in the background; it
/// starts with the first call of [`Scheme::maintain`], so that no thread exists before privileges
/// are dropped.
pub fn open(options: &DirOptions) -> Result<Arc<dyn Scheme>, OpenError> {
    Ok(match &options.own {
        SchemeOptions::Null => Arc::new(null::Null::new(&options.path)),
        SchemeOptions::Ufs(own) => Arc::new(ufs::open(&options.map(|_| *own))?),
        SchemeOptions::Aufs(own) => Arc::new(aufs::open(&options.map(|_| *own))?),
        SchemeOptions::Diskd(own) => Arc::new(diskd::open(&options.map(|_| own.clone()))?),
        SchemeOptions::Coss(own) => Arc::new(coss::Coss::open(&options.map(|_| *own))?),
        SchemeOptions::Rock(own) => Arc::new(rock::Rock::open(&options.map(|_| *own))?),
        SchemeOptions::Ring(own) => Arc::new(ring::Ring::open(&options.map(|_| *own))?),
    })
}

/// Name of the log of purges, where it is kept in the directory of a store.
pub const PURGE_LOG: &str = "humboldt.purges";

/// Whether a file of this name may be beside a store, without making its directory foreign. Such a
/// file comes with the file system, or with the log of purges, which may be the only file left, or
/// be written again, if a store was deleted while it was in use; so may the keys of a helper of
/// diskd.
pub(crate) fn may_be_beside(name: &str) -> bool {
    name == "lost+found"
        || name == diskd::RECORD_FILE
        || name.strip_prefix(PURGE_LOG).is_some_and(|rest| ["", ".new"].contains(&rest))
}

/// Creates a directory and its subdirectories. Nothing happens to those that exist already.
pub fn create(options: &DirOptions) -> Result<(), OpenError> {
    match &options.own {
        SchemeOptions::Null => Ok(()),
        SchemeOptions::Ufs(levels)
        | SchemeOptions::Aufs(AufsOptions { levels, .. })
        | SchemeOptions::Diskd(DiskdOptions { levels, .. }) => {
            tree::create(&options.map(|_| *levels))
        }
        SchemeOptions::Coss(own) => coss::create(&options.map(|_| *own)),
        SchemeOptions::Rock(own) => rock::create(&options.map(|_| *own)),
        SchemeOptions::Ring(own) => ring::create(&options.map(|_| *own)),
    }
}
