//! The lock on a directory or file of a store.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::simulated::plain;

/// An exclusive lock that other processes, and other opens in this one, respect.
pub(crate) struct Lock(OwnedFd);

impl Lock {
    /// Locks `file`; `WOULDBLOCK` if another process has locked it.
    pub(crate) fn take(file: impl Into<OwnedFd>) -> Result<Self, Errno> {
        let file = file.into();
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self(file))
    }

    /// The file that is locked.
    pub(crate) fn file(&self) -> &OwnedFd {
        &self.0
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        release(&self.0);
    }
}

/// Writes the text that names the owner of a new directory, and waits until it is on the device:
/// without it, all that is created afterwards would seem to be another program's.
pub(crate) fn write_claim(file: impl AsFd, text: &str) -> Result<(), Errno> {
    let write = || match rustix::io::pwrite(&file, text.as_bytes(), 0)? {
        written if written < text.len() => Err(Errno::NOSPC),
        _ => Ok(()),
    };
    plain::write(&file, text.as_bytes(), 0).unwrap_or_else(write)?;
    plain::sync(&file).unwrap_or_else(|| rustix::fs::fdatasync(&file))
}

/// Gives a locked file free. Closing is not enough: a process that another thread is just starting
/// has the descriptor too, for a moment, and the directory may be opened again within it.
pub(crate) fn release(file: impl AsFd) {
    // Unlocking a file without a lock fails, which does not matter.
    let _ = rustix::fs::flock(file, FlockOperation::Unlock);
}
