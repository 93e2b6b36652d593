//! The pid file, and signals to the process it names.
//!
//! The file is locked for as long as the process lives, so that a number left behind by a crash is never
//! taken for a running process, and two processes cannot both own it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, kill_process, test_kill_process};

pub use rustix::process::Signal;

/// Longest pid file that is read, in bytes.
const PID_FILE_BYTES_MAX: u64 = 64;

/// Why there is no pid file, or no process to send a signal to.
#[derive(Debug, thiserror::Error)]
pub enum PidError {
    /// A process holds the file.
    #[error("already running: process {pid} holds {path}")]
    Running {
        /// That process (0 if it has not written its number yet).
        pid: i32,
        /// The file.
        path: PathBuf,
    },
    /// No process holds the file, or there is no file.
    #[error("not running: no process holds {path}")]
    NotRunning {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read or written, or the signal not sent.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A pid file that this process owns; removed when dropped.
#[derive(Debug)]
pub struct PidFile {
    file: File,
    path: PathBuf,
}

impl PidFile {
    /// Creates the file with this process's number, or takes over one that no living process holds. Call it
    /// after daemonizing: the number changes then.
    pub fn create(path: &Path) -> Result<Self, PidError> {
        let failed = |source| PidError::Io { path: path.into(), source };
        loop {
            let mut options = OpenOptions::new();
            let mut file =
                options.read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(PidError::Running {
                        pid: read_pid(&mut file).unwrap_or(0),
                        path: path.into(),
                    });
                }
                Err(error) => return Err(failed(error.into())),
            }
            if !is_still_at(&file, path) {
                continue; // its owner removed it between our open and our lock
            }
            file.set_len(0).map_err(failed)?;
            writeln!(file, "{}", std::process::id()).map_err(failed)?;
            return Ok(Self { file, path: path.into() });
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Without the permission any more (privileges were dropped) leave an empty file rather than a
        // number that some other process will get.
        if fs::remove_file(&self.path).is_err() {
            let _ = self.file.set_len(0);
        }
    }
}

/// The living process that holds the file.
pub fn running(path: &Path) -> Result<i32, PidError> {
    let not_running = || PidError::NotRunning { path: path.into() };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(not_running()),
        Err(source) => return Err(PidError::Io { path: path.into(), source }),
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Err(not_running()),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let pid = read_pid(&mut file).ok_or_else(not_running)?;
            if is_alive(pid) { Ok(pid) } else { Err(not_running()) }
        }
        Err(error) => Err(PidError::Io { path: path.into(), source: error.into() }),
    }
}

/// Sends `signal` to the process that holds the file, and returns its number.
pub fn signal(path: &Path, signal: Signal) -> Result<i32, PidError> {
    let pid = running(path)?;
    let process = Pid::from_raw(pid).ok_or_else(|| PidError::NotRunning { path: path.into() })?;
    kill_process(process, signal)
        .map_err(|error| PidError::Io { path: path.into(), source: error.into() })?;
    Ok(pid)
}

fn is_still_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

fn read_pid(file: &mut File) -> Option<i32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(PID_FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok().filter(|pid| *pid > 1)
}

/// Whether the process exists, even if we may not send it signals.
fn is_alive(pid: i32) -> bool {
    let Some(process) = Pid::from_raw(pid) else { return false };
    !matches!(test_kill_process(process), Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_holds_the_file_until_it_drops_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("humboldt.pid");
        assert!(matches!(running(&path), Err(PidError::NotRunning { .. })));
        let held = PidFile::create(&path).expect("created");
        let own = std::process::id() as i32;
        assert_eq!(running(&path).expect("running"), own);
        assert!(matches!(PidFile::create(&path), Err(PidError::Running { pid, .. }) if pid == own));
        drop(held);
        assert!(!path.exists());
        assert!(matches!(signal(&path, Signal::TERM), Err(PidError::NotRunning { .. })));
    }

    #[test]
    fn a_file_left_behind_is_taken_over_and_never_trusted() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("humboldt.pid");
        fs::write(&path, "1\n123456 and rubbish").expect("written");
        assert!(matches!(running(&path), Err(PidError::NotRunning { .. })));
        let _held = PidFile::create(&path).expect("taken over");
        assert_eq!(fs::read_to_string(&path).expect("read"), format!("{}\n", std::process::id()));
    }

    #[test]
    fn the_signal_arrives_at_the_holder() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("humboldt.pid");
        let _held = PidFile::create(&path).expect("created");
        // SIGWINCH is ignored by default: that it can be sent is what counts.
        assert_eq!(signal(&path, Signal::WINCH).expect("sent"), std::process::id() as i32);
    }
}
