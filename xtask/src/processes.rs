//! Processes that a command starts: watched as a tree, and ended by their own ids, however the
//! command itself ends.

use crate::Outcome;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashSet;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(20);
const STOP_LIMIT: Duration = Duration::from_secs(10);
const POLL_PAUSE: Duration = Duration::from_millis(5);

/// The guard waits for the end of its input, which comes at the latest when this program ends in
/// any way, and then ends the whole process group that it was given. The signal has a `-s`, because
/// Debian's shell does not know `--`.
const GUARD: &str = "read -r _; kill -s KILL -- \"-$0\" 2>/dev/null";

/// A running program; dropping it ends it, and so does the end of this program by any signal.
pub(crate) struct Running {
    name: String,
    child: Child,
    guard: Child,
}

impl Running {
    /// Starts `command` on one core with its output in `log`.
    pub(crate) fn pinned(
        name: &str,
        core: usize,
        command: &mut Command,
        log: &Path,
    ) -> Outcome<Self> {
        let mut pinned = Command::new("taskset");
        pinned.arg("-c").arg(core.to_string()).arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            if let Some(value) = value {
                pinned.env(key, value);
            }
        }
        if let Some(folder) = command.get_current_dir() {
            pinned.current_dir(folder);
        }
        Self::start(name, &mut pinned, log)
    }

    /// Starts `command` on whatever core is free, with its output in `log`.
    pub(crate) fn start(name: &str, command: &mut Command, log: &Path) -> Outcome<Self> {
        let file = fs::File::create(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.process_group(0).spawn()?;
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, &child.id().to_string()]).stdin(Stdio::piped()).process_group(0);
        Ok(Self { name: name.to_owned(), child, guard: guard.spawn()? })
    }

    /// Waits until the program accepts connections.
    pub(crate) fn wait_ready(&mut self, address: SocketAddr) -> Outcome {
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("{} ended at once: {status}", self.name).into());
            }
            if Instant::now() > deadline {
                return Err(format!("{} does not listen on {address}", self.name).into());
            }
            std::thread::sleep(POLL_PAUSE);
        }
        Ok(())
    }

    /// Waits for the end of a program that ends by itself.
    pub(crate) fn wait_end(&mut self, limit: Duration) -> Outcome<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                return Err(format!("{} takes longer than {} s", self.name, limit.as_secs()).into());
            }
            std::thread::sleep(POLL_PAUSE);
        }
    }

    /// Ends the process as a crash would; its children are left to find out.
    pub(crate) fn kill(&mut self) -> Outcome {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// CPU time of the process, its threads and its descendants so far, user and system, in µs.
    pub(crate) fn cpu_us(&self) -> Outcome<u64> {
        let us_per_tick = 1_000_000 / rustix::param::clock_ticks_per_second();
        let ticks = tree(self.child.id())?.iter().map(|process| process.ticks).sum::<u64>();
        Ok(ticks * us_per_tick)
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory of the process and its descendants, in bytes.
    pub(crate) fn resident_bytes(&self) -> Outcome<u64> {
        let page_bytes = rustix::param::page_size() as u64;
        Ok(tree(self.child.id())?.iter().map(|process| process.resident_pages).sum::<u64>()
            * page_bytes)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
        // Only now: the guard knows the process by its number.
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}

impl Running {
    fn end(&mut self) {
        // The id of an ended process may belong to another one now.
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let processes = tree(self.child.id()).unwrap_or_default();
        signal(self.child.id(), Signal::TERM);
        let deadline = Instant::now() + STOP_LIMIT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(POLL_PAUSE);
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            processes.iter().for_each(|process| signal(process.id, Signal::KILL));
            let _ = self.child.wait();
        }
    }
}

fn signal(id: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// One line of /proc/PID/stat, as far as it matters here.
struct Process {
    id: u32,
    parent: u32,
    ticks: u64,
    resident_pages: u64,
}

/// The process `root` and all its descendants.
fn tree(root: u32) -> Outcome<Vec<Process>> {
    let mut all: Vec<Process> = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(id) = entry?.file_name().to_string_lossy().parse() else { continue };
        // A process may end while the list is read.
        all.extend(
            fs::read_to_string(format!("/proc/{id}/stat"))
                .ok()
                .and_then(|line| parse_stat(id, &line)),
        );
    }
    let mut members = HashSet::from([root]);
    loop {
        let before = members.len();
        members.extend(
            all.iter()
                .filter(|process| members.contains(&process.parent))
                .map(|p| p.id)
                .collect::<Vec<_>>(),
        );
        if members.len() == before {
            break;
        }
    }
    Ok(all.into_iter().filter(|process| members.contains(&process.id)).collect())
}

/// Fields are counted behind the command's closing parenthesis, since a command may contain blanks.
fn parse_stat(id: u32, line: &str) -> Option<Process> {
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
    // utime, stime, and the same of children that have ended: fields 14 to 17 of proc(5).
    let ticks = (11..15).map(number).sum::<Option<u64>>()?;
    Some(Process { id, parent: fields.get(1)?.parse().ok()?, ticks, resident_pages: number(21)? })
}

/// The first two cores that this process may run on.
pub(crate) fn two_cores() -> Outcome<(usize, usize)> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let mut cores = (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    match (cores.next(), cores.next()) {
        (Some(server), Some(load)) => Ok((server, load)),
        _ => Err("benchmarks need two cores: one for the server, one for the load".into()),
    }
}

/// A port that is free now on 127.0.0.1.
pub(crate) fn free_address() -> Outcome<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_sees_itself() {
        let own = tree(std::process::id()).unwrap();
        assert!(
            own.iter()
                .any(|process| process.id == std::process::id() && process.resident_pages > 0)
        );
    }

    #[test]
    fn the_guard_ends_what_this_program_leaves_behind() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut running =
            Running::start("sleep", Command::new("sleep").arg("60"), log.path()).unwrap();
        // The effect of this program's end on it.
        drop(running.guard.stdin.take());
        let status = running.wait_end(Duration::from_secs(20)).unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    }

    #[test]
    fn a_command_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let line = "7 (a) b) S 3 7 7 0 -1 0 1 2 3 4 10 20 30 40 20 0 1 0 99 1000 55 0";
        let process = parse_stat(7, line).unwrap();
        assert_eq!((process.parent, process.ticks, process.resident_pages), (3, 100, 55));
    }
}
