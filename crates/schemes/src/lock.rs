//! The lock on a directory or file of a store.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

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

/// Gives a locked file free. Closing is not enough: a process that another thread is just starting
/// has the descriptor too, for a moment, and the directory may be opened again within it.
pub(crate) fn release(file: impl AsFd) {
    // Unlocking a file without a lock fails, which does not matter.
    let _ = rustix::fs::flock(file, FlockOperation::Unlock);
}
