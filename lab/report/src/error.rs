//! Errors of folders of results and of the page in the browser.

use crate::stored::SUMMARY_JSON;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The reason why a report was not written, read or served. Each is one line: the problem, its
/// place, the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The folder holds something that no run wrote.
    #[error("{}: not empty and not the folder of a run; choose another or a new folder", .0.display())]
    ForeignFolder(PathBuf),
    /// The folder holds the result of a run.
    #[error("{}: holds the result of a run; choose another folder, or remove this one", .0.display())]
    HasRun(PathBuf),
    /// No room on the file system.
    #[error("{}: the disk is full; make room or choose another folder (earlier files are kept)", .0.display())]
    DiskFull(PathBuf),
    /// A file or folder could not be written.
    #[error("{}: cannot be written: {error}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file could not be read.
    #[error("{}: cannot be read: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The folder has no result.
    #[error("{}: not a folder of a run: it has no {SUMMARY_JSON}", .0.display())]
    NoRun(PathBuf),
    /// The file was not written by a run.
    #[error("{}: not the summary.json of a run: {reason}", path.display())]
    NotARun {
        /// Which.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// The file was written by a later version of this program.
    #[error("{}: format {found} is newer than {known}; read it with a newer humboldt-lab", path.display())]
    TooNew {
        /// Which.
        path: PathBuf,
        /// The format of the file.
        found: u32,
        /// The newest that this program knows.
        known: u32,
    },
    /// The page has no figures beside it that it could be made of again.
    #[error("{}: published without samples; its runs must be repeated and published again", .0.display())]
    WithoutSamples(PathBuf),
    /// The file does not describe an experiment.
    #[error("{}: not the experiment.json of an experiment: {reason}", path.display())]
    NotAnExperiment {
        /// Which.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// There is nothing to compare.
    #[error("nothing to compare: give the folder of at least one run")]
    NoRuns,
    /// The live page cannot be served there.
    #[error(
        "{address}: the live page cannot be served there: {error}; choose another address or port"
    )]
    Serve {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
}

impl ReportError {
    /// A failed write, with a full disk told apart from everything else.
    pub(crate) fn write(path: impl Into<PathBuf>, error: io::Error) -> Self {
        let path = path.into();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull(path),
            _ => Self::Write { path, error },
        }
    }

    /// A failed read.
    pub(crate) fn read(path: impl Into<PathBuf>, error: io::Error) -> Self {
        Self::Read { path: path.into(), error }
    }
}
