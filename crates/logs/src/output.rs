//! The writing side of a log: the open file, its rotation, and the handling of errors.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use humboldt_sys::log_file;

use crate::{Destination, LineSink};

/// A failing log is reported at most once in this time.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// A write buffer larger than this, in bytes, is given back when it was mostly unused.
const SPARE_BYTES_KEPT: usize = 64 * 1024;

/// Permissions of a new log: its lines are private.
const FILE_MODE: u32 = 0o640;

/// Most old files that rotation keeps, even if `logfile_rotate` is higher.
pub(crate) const KEEP_MAX: u32 = 1000;

pub(crate) struct Output {
    sink: Arc<LineSink>,
    /// Set when it can be reopened: a named file.
    path: Option<PathBuf>,
    file: Option<File>,
    spare: Vec<u8>,
    /// The last write ended within a line: the next begins with a newline.
    torn: bool,
    reported: Option<Instant>,
}

/// Opens a destination; `None` for nowhere.
pub(crate) fn open(destination: &Destination) -> io::Result<Option<File>> {
    match destination {
        Destination::None => Ok(None),
        Destination::File(path) => open_file(path).map(Some),
        Destination::Stdout => Ok(Some(File::from(io::stdout().as_fd().try_clone_to_owned()?))),
        Destination::Stderr => Ok(Some(File::from(io::stderr().as_fd().try_clone_to_owned()?))),
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    log_file::open_to_append(path, FILE_MODE)
}

impl Output {
    pub(crate) fn new(sink: Arc<LineSink>, destination: Destination, file: Option<File>) -> Self {
        let path = match destination {
            Destination::File(path) => Some(path),
            _ => None,
        };
        Self { sink, path, file, spare: Vec::new(), torn: false, reported: None }
    }

    pub(crate) fn has_lines(&self) -> bool {
        self.sink.has_lines()
    }

    /// Whether all lines are written and no other owner is left that could append one.
    pub(crate) fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.sink) == 1 && !self.sink.has_lines()
    }

    /// Writes everything that waits. Returns whether there was anything.
    pub(crate) fn write_out(&mut self) -> bool {
        let mut spare = std::mem::take(&mut self.spare);
        let mut any = false;
        let mut most = 0;
        let sink = Arc::clone(&self.sink);
        sink.drain(&mut spare, |lines| {
            any = true;
            most = most.max(lines.len());
            self.write_lines(lines);
        });
        if spare.capacity() > SPARE_BYTES_KEPT && most < spare.capacity() / 4 {
            spare = Vec::new();
        }
        self.spare = spare;
        any
    }

    fn write_lines(&mut self, lines: &[u8]) {
        if self.file.is_none() {
            self.reopen();
        }
        let Some(file) = &mut self.file else {
            self.sink.count_dropped(count_lines(lines));
            return;
        };
        if let Err((written, error)) = write_counted(file, lines, self.torn) {
            self.torn = self.torn && written == 0 || written > 0 && lines[written - 1] != b'\n';
            self.sink.count_dropped(count_lines(&lines[written..]));
            self.report("write to", &error);
        } else {
            self.torn = false;
        }
    }

    /// Opens the file again, so that a renamed or removed file is created. Standard streams stay.
    pub(crate) fn reopen(&mut self) {
        let Some(path) = &self.path else { return };
        match open_file(path) {
            Ok(file) => {
                self.file = Some(file);
                self.torn = false;
            }
            Err(error) => self.report("open", &error),
        }
    }

    /// The file that rotation renames, if it is a regular file.
    pub(crate) fn rotatable_path(&self) -> Option<&Path> {
        let path = self.path.as_deref()?;
        fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file()).then_some(path)
    }

    pub(crate) fn report(&mut self, action: &str, error: &io::Error) {
        if self.reported.is_some_and(|at| at.elapsed() < REPORT_EVERY) {
            return;
        }
        self.reported = Some(Instant::now());
        let name = self.path.as_deref().map_or("standard output".into(), Path::to_string_lossy);
        let lost = self.sink.dropped_lines();
        tracing::error!("cannot {action} log {name}: {error}; {lost} lines lost so far");
    }
}

/// Writes everything, or returns the number of bytes of `lines` written before the error.
fn write_counted(
    file: &mut impl Write,
    lines: &[u8],
    torn: bool,
) -> Result<(), (usize, io::Error)> {
    if torn {
        file.write_all(b"\n").map_err(|error| (0, error))?;
    }
    let mut written = 0;
    while written < lines.len() {
        match file.write(&lines[written..]) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

fn count_lines(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// `path` becomes `path.0`, `path.0` becomes `path.1`, and so on; `keep` old files stay
/// (`logfile_rotate`; with 0 nothing is renamed: something else has done so).
pub(crate) fn shift_files(path: &Path, keep: u32) -> io::Result<()> {
    let keep = keep.min(KEEP_MAX);
    let numbered = |n: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{n}"));
        PathBuf::from(name)
    };
    for n in (1..keep).rev() {
        rename_if_there(&numbered(n - 1), &numbered(n))?;
    }
    if keep > 0 { rename_if_there(path, &numbered(0)) } else { Ok(()) }
}

fn rename_if_there(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts this many bytes; then the disk is full.
    struct SmallDisk {
        content: Vec<u8>,
        room: usize,
    }

    impl Write for SmallDisk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room).min(3);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= count;
            self.content.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_says_how_much_was_written() {
        let mut disk = SmallDisk { content: Vec::new(), room: 5 };
        let (written, error) = write_counted(&mut disk, b"one\ntwo\n", false).unwrap_err();
        assert_eq!((written, error.kind()), (5, io::ErrorKind::StorageFull));
        disk.room = 100;
        write_counted(&mut disk, b"three\n", true).unwrap();
        assert_eq!(disk.content, b"one\nt\nthree\n");
    }

    #[test]
    fn rotation_keeps_as_many_as_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        for round in 0..5 {
            fs::write(&path, round.to_string()).unwrap();
            shift_files(&path, 3).unwrap();
        }
        let read = |n: u32| fs::read_to_string(dir.path().join(format!("access.log.{n}"))).ok();
        assert_eq!(
            (read(0), read(1), read(2)),
            (Some("4".into()), Some("3".into()), Some("2".into()))
        );
        assert_eq!(read(3), None);
        fs::write(&path, "now").unwrap();
        shift_files(&path, 0).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "now");
    }
}
