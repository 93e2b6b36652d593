//! The reasons for which a directory cannot be used.

use std::io;
use std::path::PathBuf;

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
