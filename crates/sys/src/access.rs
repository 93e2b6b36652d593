//! Whether the user of the process may read a file or list a directory, without opening it: a FIFO
//! would wait for its writer, and a device might do something.

use std::io;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};

/// Whether the file may be read.
///
/// # Errors
/// It may not, or there is none.
pub fn may_read(file: impl AsRef<Path>) -> io::Result<()> {
    Ok(asked(file.as_ref(), Access::READ_OK)?)
}

/// Whether the directory may be listed and its files opened.
///
/// # Errors
/// It may not, or there is none.
pub fn may_list(directory: impl AsRef<Path>) -> io::Result<()> {
    let directory = directory.as_ref();
    asked(directory, Access::READ_OK | Access::EXEC_OK)?;
    match std::fs::metadata(directory)?.is_dir() {
        true => Ok(()),
        false => Err(io::ErrorKind::NotADirectory.into()),
    }
}

/// Asks for the effective user: the real one stays root when privileges are dropped.
fn asked(path: &Path, access: Access) -> rustix::io::Result<()> {
    accessat(CWD, path, access, AtFlags::EACCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_would_wait_for_its_writer_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        may_read(&fifo).unwrap();
        may_list(directory.path()).unwrap();
        may_list(&fifo).unwrap_err();
        let missing = directory.path().join("none");
        assert_eq!(may_read(missing).map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
    }
}
