//! The pid file, and signals to the process that holds it.
//!
//! The file is locked for as long as the process lives. The lock is one of `fcntl(F_SETLK)`,
//! exclusive: taking it needs write permission, and the system itself knows its holder. The number
//! in the file is for people only. So a number that was left behind or forged is never taken for a
//! running process, and a user who may only read the file cannot pretend that one runs.
//!
//! Such a lock goes when its process closes the file, by whatever descriptor: nothing else here
//! opens it.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{
    Flock, FlockOffsetType, FlockType, Pid, PidfdFlags, fcntl_getlk, kill_process, pidfd_open,
    pidfd_send_signal,
};

pub use rustix::process::Signal;

/// How often the file is tried again when others remove or lock it at the same time.
const TRIES_MAX: usize = 16;

/// Why there is no pid file, or no process to send a signal to.
#[derive(Debug, thiserror::Error)]
pub enum PidError {
    /// A process holds the file.
    #[error("already running: process {pid} holds {path}")]
    Running {
        /// That process (0 if it is in another container).
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
        /// The system's error.
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
    /// Creates the file with this process's number, or takes over one that no living process holds.
    /// Call it after daemonizing: the number changes then.
    ///
    /// # Errors
    /// [`PidError::Running`] if a process holds it. It is neither followed nor written to where it
    /// is a link, has a second name, or is no file.
    pub fn create(path: &Path) -> Result<Self, PidError> {
        let failed = |source| PidError::Io { path: path.into(), source };
        for _ in 0..TRIES_MAX {
            let Some(mut file) = open_or_make(path).map_err(failed)? else { continue };
            match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::AGAIN | Errno::ACCESS) => {
                    if let Some(pid) = holder(&file).map_err(failed)? {
                        return Err(PidError::Running { pid, path: path.into() });
                    }
                    // A process that may only read the file has locked it. It keeps a file that is
                    // no pid file any more.
                    if is_still_at(&file, path) {
                        fs::remove_file(path).map_err(failed)?;
                    }
                    continue;
                }
                Err(error) => return Err(failed(error.into())),
            }
            if !is_still_at(&file, path) {
                continue; // its owner removed it between our open and our lock
            }
            file.set_len(0).map_err(failed)?;
            writeln!(file, "{}", std::process::id()).map_err(failed)?;
            file.set_permissions(Permissions::from_mode(0o644)).map_err(failed)?;
            return Ok(Self { file, path: path.into() });
        }
        Err(failed(io::Error::other("others keep removing or locking it")))
    }
}

/// Opens the file that is there, or makes one that only its owner can open until it is locked.
/// `None` if it came or went meanwhile.
fn open_or_make(path: &Path) -> io::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(flags());
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match options.create_new(true).open(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
                made => made.map(Some),
            };
        }
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            return Err(io::Error::other("it is a symbolic link, which is not followed"));
        }
        Err(error) => return Err(error),
    };
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    if facts.nlink() > 1 {
        return Err(io::Error::other("it has a second name, so it may be somebody else's file"));
    }
    Ok(Some(file))
}

/// Neither a link is followed nor a pipe waited for.
fn flags() -> i32 {
    (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()
}

/// The process with the exclusive lock, as the system reports it; 0 if it lives in another name
/// space of processes.
fn holder(file: &File) -> io::Result<Option<i32>> {
    // A shared lock is hindered by an exclusive one alone.
    let asked = Flock {
        start: 0,
        length: 0,
        pid: None,
        typ: FlockType::ReadLock,
        offset_type: FlockOffsetType::Set,
    };
    let lock = fcntl_getlk(file, &asked)?;
    Ok(lock.map(|lock| Pid::as_raw(lock.pid)))
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Without the permission any more (privileges were dropped) leave an empty file rather than
        // a number that some other process will get.
        if fs::remove_file(&self.path).is_err() {
            let _ = self.file.set_len(0);
        }
    }
}

/// The living process that holds the file.
pub fn running(path: &Path) -> Result<i32, PidError> {
    find(path).map(|(_, pid)| pid)
}

fn find(path: &Path) -> Result<(File, i32), PidError> {
    let not_running = || PidError::NotRunning { path: path.into() };
    let failed = |source| PidError::Io { path: path.into(), source };
    let file = match OpenOptions::new().read(true).custom_flags(flags()).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(not_running()),
        Err(source) => return Err(failed(source)),
    };
    match holder(&file).map_err(failed)? {
        None => Err(not_running()),
        Some(0) => {
            Err(failed(io::Error::other("the process that holds it is in another container")))
        }
        Some(pid) => Ok((file, pid)),
    }
}

/// Sends `signal` to the process that holds the file, and returns its number.
pub fn signal(path: &Path, signal: Signal) -> Result<i32, PidError> {
    let not_running = || PidError::NotRunning { path: path.into() };
    let failed = |error: Errno| match error {
        Errno::SRCH => not_running(),
        error => PidError::Io { path: path.into(), source: error.into() },
    };
    let (file, pid) = find(path)?;
    let process = Pid::from_raw(pid).ok_or_else(not_running)?;
    let sent = match pidfd_open(process, PidfdFlags::empty()) {
        // It still holds the file, so this is no other process that got its number.
        Ok(handle) => match holder(&file) {
            Ok(Some(still)) if still == pid => pidfd_send_signal(&handle, signal),
            _ => return Err(not_running()),
        },
        Err(Errno::NOSYS | Errno::PERM) => kill_process(process, signal),
        Err(error) => Err(error),
    };
    sent.map_err(failed)?;
    Ok(pid)
}

fn is_still_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Run by the tests below in a process of its own, as a process does not see its own locks.
    #[test]
    fn child_holds_a_file() {
        let Some(path) = std::env::var_os("HUMBOLDT_TEST_PID_FILE") else { return };
        let path = Path::new(&path);
        if std::env::var_os("HUMBOLDT_TEST_ONLY_READS").is_some() {
            let file = File::open(path).expect("opened");
            fcntl_lock(&file, FlockOperation::NonBlockingLockShared).expect("locked");
            wait(file);
        } else {
            wait(PidFile::create(path));
        }
    }

    /// Prints the held value, and keeps it until standard input ends.
    fn wait<T: std::fmt::Debug>(held: T) {
        println!("\nholding {held:?}");
        let _ = io::stdin().lines().next();
        drop(held);
        std::process::exit(0);
    }

    struct Holder(Child);

    impl Holder {
        fn start(path: &Path, only_reads: bool) -> Self {
            let mut command = Command::new(std::env::current_exe().expect("this test"));
            command.args(["--exact", "pid_file::tests::child_holds_a_file", "--nocapture"]);
            command
                .env("HUMBOLDT_TEST_PID_FILE", path)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            if only_reads {
                command.env("HUMBOLDT_TEST_ONLY_READS", "1");
            }
            let mut child = command.spawn().expect("started");
            let output = BufReader::new(child.stdout.take().expect("its output"));
            let said =
                output.lines().map_while(Result::ok).find(|line| line.starts_with("holding"));
            assert!(said.is_some(), "it ended");
            Self(child)
        }

        fn pid(&self) -> i32 {
            self.0.id().cast_signed()
        }

        fn end(mut self) {
            drop(self.0.stdin.take());
            self.0.wait().expect("ended");
        }
    }

    impl Drop for Holder {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn one_process_holds_the_file_until_it_ends() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("humboldt.pid");
        assert!(matches!(running(&path), Err(PidError::NotRunning { .. })));
        let held = Holder::start(&path, false);
        let pid = held.pid();
        assert_eq!(running(&path).expect("running"), pid);
        assert_eq!(fs::read_to_string(&path).expect("read"), format!("{pid}\n"));
        assert!(
            matches!(PidFile::create(&path), Err(PidError::Running { pid: other, .. }) if other == pid)
        );
        // SIGWINCH is ignored by default. Only the sending is tested.
        assert_eq!(signal(&path, Signal::WINCH).expect("sent"), pid);
        held.end();
        assert!(!path.exists());
        assert!(matches!(signal(&path, Signal::TERM), Err(PidError::NotRunning { .. })));
    }

    #[test]
    fn a_file_left_behind_is_taken_over_and_its_number_never_believed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("humboldt.pid");
        // The number of a process that lives, so that a signal would arrive.
        fs::write(&path, format!("{}\n", std::process::id())).expect("written");
        assert!(matches!(running(&path), Err(PidError::NotRunning { .. })));
        assert!(matches!(signal(&path, Signal::WINCH), Err(PidError::NotRunning { .. })));
        let held = Holder::start(&path, false);
        fs::write(&path, "1\n").expect("written");
        assert_eq!(
            running(&path).expect("running"),
            held.pid(),
            "what is written there does not matter"
        );
    }

    #[test]
    fn who_may_only_read_the_file_can_neither_hinder_a_start_nor_be_taken_for_the_program() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("humboldt.pid");
        fs::write(&path, format!("{}\n", std::process::id())).expect("written");
        let reader = Holder::start(&path, true);
        assert!(matches!(running(&path), Err(PidError::NotRunning { .. })));
        assert!(matches!(signal(&path, Signal::WINCH), Err(PidError::NotRunning { .. })));
        let held = PidFile::create(&path).expect("created all the same");
        assert_eq!(fs::read_to_string(&path).expect("read"), format!("{}\n", std::process::id()));
        drop((reader, held));
    }

    #[test]
    fn nothing_of_somebody_else_is_written_to() {
        let dir = tempfile::tempdir().expect("a directory");
        let other = dir.path().join("precious");
        fs::write(&other, "precious\n").expect("written");
        for (name, second) in [("link", false), ("name", true)] {
            let path = dir.path().join(name);
            match second {
                false => std::os::unix::fs::symlink(&other, &path).expect("linked"),
                true => fs::hard_link(&other, &path).expect("linked"),
            }
            assert!(matches!(PidFile::create(&path), Err(PidError::Io { .. })), "{name}");
            assert_eq!(fs::read_to_string(&other).expect("read"), "precious\n");
        }
        let nowhere = dir.path().join("nowhere");
        std::os::unix::fs::symlink(dir.path().join("made"), &nowhere).expect("linked");
        assert!(PidFile::create(&nowhere).is_err() && !dir.path().join("made").exists());
    }
}
