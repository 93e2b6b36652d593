//! Going into the background.

use std::fs::OpenOptions;
use std::io;

use rustix::process::{chdir, setpgid, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

/// Detaches from the terminal: forks, the parent ends with status 0, the child gets a session of
/// its own, forks again so that it can never acquire a terminal, leads a process group of its own,
/// changes to `/`, and reads and writes `/dev/null`.
///
/// Must be called before any thread is started (a fork copies only the calling thread); it refuses
/// when there are several. Report errors of the configuration before: standard error is closed
/// afterwards.
pub fn daemonize() -> io::Result<()> {
    if thread_count() > 1 {
        return Err(io::Error::other("threads are running already"));
    }
    detach()
}

fn detach() -> io::Result<()> {
    fork_and_leave()?;
    setsid()?;
    fork_and_leave()?;
    // Scripts end a daemon and its children with `kill -- -PID`: the number of the daemon is that
    // of its process group.
    setpgid(None, None)?;
    chdir("/")?;
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    Ok(())
}

fn thread_count() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

#[allow(unsafe_code)]
fn fork_and_leave() -> io::Result<()> {
    // SAFETY: there is only one thread (checked by `daemonize`), so the child may do anything; the
    // parent leaves without running exit handlers, which are the child's to run.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(()),
        // SAFETY: ends the process; no memory is touched.
        _ => unsafe { libc::_exit(0) },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn refuses_when_threads_are_running() {
        // The test harness is a thread of its own.
        assert!(daemonize().is_err());
    }

    /// Run by the test below in a process of its own. The harness's other thread does nothing but
    /// wait, and is left behind by the fork.
    #[test]
    fn child_goes_into_the_background() {
        let Some(report) = std::env::var_os("HUMBOLDT_TEST_DAEMON") else { return };
        detach().expect("in the background");
        let process = rustix::process::getpid();
        let session = rustix::process::getsid(None).expect("a session");
        let directory = std::env::current_dir().expect("a directory");
        let output = fs::read_link("/proc/self/fd/1").expect("standard output");
        let group = rustix::process::getpgrp();
        let leads = (process == session, process == group);
        let text = format!("leads session and group: {leads:?} dir={directory:?} out={output:?}");
        let unfinished = std::path::PathBuf::from(&report).with_extension("part");
        fs::write(&unfinished, text).expect("written");
        fs::rename(unfinished, report).expect("renamed");
        std::process::exit(0); // not back into the harness, which is not in this process
    }

    #[test]
    fn the_caller_returns_and_the_daemon_has_no_terminal() {
        let dir = tempfile::tempdir().expect("a directory");
        let report = dir.path().join("report");
        let status = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "daemon::tests::child_goes_into_the_background", "--nocapture"])
            .env("HUMBOLDT_TEST_DAEMON", &report)
            .stdout(std::process::Stdio::null())
            .status()
            .expect("run");
        assert!(status.success());
        let start = Instant::now();
        while !report.exists() {
            assert!(start.elapsed() < Duration::from_secs(30), "the daemon never reported");
            std::thread::sleep(Duration::from_millis(10));
        }
        let text = fs::read_to_string(report).expect("read");
        assert_eq!(text, "leads session and group: (false, true) dir=\"/\" out=\"/dev/null\"");
    }
}
