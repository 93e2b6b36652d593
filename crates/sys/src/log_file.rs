//! Opening files that are appended to.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// Opens a file to be appended to, or makes it with this mode. Waits for nobody: a named pipe that
/// nobody reads is an error that [`is_without_reader`] knows. What is written to the file may wait,
/// as usual.
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

/// Whether nobody reads the pipe that was to be opened.
pub fn is_without_reader(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NXIO)
}
