//! Files that are no block files: object files, logs and snapshots. Code that works on one asks
//! here first.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

use rustix::io::Errno;

use super::disk::{Disk, Target, current};

/// A link to an open file or directory.
fn link(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

fn path(file: impl AsFd) -> PathBuf {
    std::fs::read_link(link(file)).unwrap_or_default()
}

fn target(disk: &Disk, file: impl AsFd) -> Result<Target, Errno> {
    let path = path(&file);
    // Opened anew: the disk must not share the lock on it.
    let opened = File::options().read(true).write(true).open(link(file));
    opened.and_then(|file| Target::new(disk, file, path, false, false)).map_err(|e| errno(&e))
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Whether a file of this directory can be created, renamed or deleted now.
pub(crate) fn may_change(root: impl AsFd, name: &str) -> Result<(), Errno> {
    let Some(disk) = current() else { return Ok(()) };
    disk.change("change", &path(root).join(name), true).map_err(|error| errno(&error))
}

/// Whether a file of this directory can be opened now.
pub(crate) fn may_open(root: impl AsFd, name: &str) -> Result<(), Errno> {
    let Some(disk) = current() else { return Ok(()) };
    disk.change("open", &path(root).join(name), false).map_err(|error| errno(&error))
}

/// Whether an open file can be read now.
pub(crate) fn may_read(file: impl AsFd) -> Result<(), Errno> {
    let Some(disk) = current() else { return Ok(()) };
    disk.change("read", &path(file), false).map_err(|error| errno(&error))
}

/// A file has been emptied.
pub(crate) fn emptied(file: impl AsFd) -> Result<(), Errno> {
    let Some(disk) = current() else { return Ok(()) };
    disk.emptied(&target(&disk, file)?);
    Ok(())
}

/// Writes all of `bytes`. `None`: nothing is simulated, and nothing has happened.
pub(crate) fn write(file: impl AsFd, bytes: &[u8], offset: u64) -> Option<Result<(), Errno>> {
    let disk = current()?;
    Some(
        target(&disk, file)
            .and_then(|target| disk.write(&target, offset, bytes).map_err(|error| errno(&error))),
    )
}

/// Waits until all writes to a file are lasting. `None`: as before.
pub(crate) fn sync(file: impl AsFd) -> Option<Result<(), Errno>> {
    let disk = current()?;
    let synced = |target| disk.sync(&target).map_err(|error| errno(&error));
    Some(target(&disk, file).and_then(synced))
}

/// Makes a file this long. `None`: as before.
pub(crate) fn set_len(file: impl AsFd, len: u64) -> Option<Result<(), Errno>> {
    let disk = current()?;
    let set = |target| disk.set_len(&target, len).map_err(|error| errno(&error));
    Some(target(&disk, file).and_then(set))
}
