//! Opening files that are appended to.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// Opens a file for appending, or creates it with this mode. It never waits: a named pipe without a
/// reader is an error that [`is_without_reader`] recognises. Writes to the file may wait, as usual.
pub fn open_to_append(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .append(true)
        .create(true)
        .mode(mode)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path)?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Whether the pipe that was opened has no reader.
pub fn is_without_reader(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NXIO)
}
