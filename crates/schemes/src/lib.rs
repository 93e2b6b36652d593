//! The storage schemes, one folder each, behind the [`Scheme`] trait of the store.
//!
//! [`open`] gives a running scheme, [`create`] prepares a directory as `humboldt -z` does. Which kinds there are is
//! said in one place, [`KINDS`]. Every scheme passes the same battery of tests (`battery.rs`).

#[cfg(test)]
mod battery;
mod null;
mod ufs;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use humboldt_store::scheme::Scheme;

/// The schemes that [`open`] knows, by their names in squid.conf.
pub const KINDS: [&str; 2] = [null::NAME, ufs::NAME];

/// Most numbered subdirectories on one level (`L1`, `L2`): their names have two hexadecimal digits.
pub const LEVEL_DIRS_MAX: u32 = 256;

/// What `cache_dir` says about one directory, and the few global directives that matter to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirOptions {
    /// The directory.
    pub path: PathBuf,
    /// Size in bytes; what is stored stays below it.
    pub capacity_bytes: u64,
    /// Directories on the first level, 1 to [`LEVEL_DIRS_MAX`].
    pub l1: u32,
    /// Directories on the second level, 1 to [`LEVEL_DIRS_MAX`].
    pub l2: u32,
    /// Smallest body that is stored (`min-size=`), in bytes.
    pub min_bytes: u64,
    /// Largest body that is stored (`max-size=`), in bytes; `u64::MAX` for no limit.
    pub max_bytes: u64,
    /// `cache_swap_low`: eviction aims at this share of the size, in percent.
    pub swap_low_pct: u8,
    /// `cache_swap_high`: eviction keeps use below this share of the size, in percent.
    pub swap_high_pct: u8,
    /// Most files held open by this directory at a time (`max_open_disk_fds`); 0 for no limit of its own.
    pub max_open_files: u32,
}

impl DirOptions {
    /// Squid's defaults for a directory of `capacity_bytes` at `path`.
    pub fn new(path: impl Into<PathBuf>, capacity_bytes: u64) -> Self {
        Self {
            path: path.into(),
            capacity_bytes,
            l1: 16,
            l2: 256,
            min_bytes: 0,
            max_bytes: u64::MAX,
            swap_low_pct: 90,
            swap_high_pct: 95,
            max_open_files: 0,
        }
    }
}

/// Why a directory cannot be used. Nothing in it has been touched, unless it was ours.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// `cache_dir` names a scheme that does not exist here.
    #[error("unknown storage scheme '{0}' (known: {known})", known = KINDS.join(", "))]
    UnknownScheme(String),
    /// A number is out of range.
    #[error("{path}: {reason}")]
    BadOption {
        /// The directory.
        path: PathBuf,
        /// Which number and its range.
        reason: &'static str,
    },
    /// The directory belongs to somebody else.
    #[error(
        "{path} is not a Humboldt cache directory: {reason}; it was left as it is, give an empty directory"
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// How that was seen.
        reason: String,
    },
    /// The directory was made with other options, and is of no use with these.
    #[error(
        "{path} was made with {found}, but the configuration says {wanted}; use the same, or an empty directory"
    )]
    Mismatch {
        /// The directory.
        path: PathBuf,
        /// What the directory says.
        found: String,
        /// What the configuration says.
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
        /// What was being done.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// Opens a directory, and creates what is missing in it. It belongs to this process until the scheme is dropped.
///
/// Reading a long swap log, and looking for files when there is none, goes on in the background; it starts with
/// the first call of [`Scheme::maintain`], so that no thread exists before privileges are dropped.
pub fn open(kind: &str, options: &DirOptions) -> Result<Arc<dyn Scheme>, OpenError> {
    match kind {
        null::NAME => Ok(Arc::new(null::Null::new(options))),
        ufs::NAME => Ok(Arc::new(ufs::Ufs::open(options)?)),
        other => Err(OpenError::UnknownScheme(other.to_owned())),
    }
}

/// Creates a directory and its subdirectories. Nothing happens to those that exist already.
pub fn create(kind: &str, options: &DirOptions) -> Result<(), OpenError> {
    match kind {
        null::NAME => Ok(()),
        ufs::NAME => ufs::create(options),
        other => Err(OpenError::UnknownScheme(other.to_owned())),
    }
}
