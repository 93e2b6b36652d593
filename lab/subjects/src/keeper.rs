//! A process that cleans up after the laboratory, even if that is killed.
//!
//! Before the laboratory changes the machine it sends the keeper a line `+ID UNDO`; after it has
//! undone the change itself, `-ID`. A later `+ID` with the same number replaces the earlier. The
//! pipe can be read even if the writer is dead, so no answer is needed. When the pipe ends, the
//! keeper undoes all remaining changes, last ones first.

use crate::command::run_command;
use crate::processes::MARK;
use crate::undo::Undo;
use crate::{Host, SubjectError, disk};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

/// Most changes to undo at once.
const KEPT_MAX: usize = 4096;
/// The longest line that the keeper reads, in bytes.
const LINE_BYTES_MAX: u64 = 256 * 1024;
/// Time for the keeper to be ready.
const READY_WITHIN: Duration = Duration::from_secs(5);
/// A laboratory that is killed while it starts a program leaves a process that has no mark yet,
/// because it is not yet that program. After this time it is.
const BEFORE_END: Duration = Duration::from_millis(200);
/// The keeper's message when it is ready.
const READY: &str = "ready\n";

/// The laboratory's end of the line to its keeper. Cheap to clone; when the last one is dropped,
/// the keeper undoes the registered changes, and ends.
#[derive(Clone, Debug)]
pub struct Keeper {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// `None` once the end has begun.
    line: Mutex<Option<ChildStdin>>,
    child: Mutex<Child>,
    next_id: AtomicU64,
    kept: AtomicU64,
    /// Marks the commands of the laboratory that are under way.
    mark: String,
    /// What started it: its program, and its arguments.
    started_by: Vec<OsString>,
}

impl Keeper {
    /// Starts the keeper. `command` must end up in [`keeper_main`]: usually this program with the
    /// argument `keeper`.
    ///
    /// # Errors
    /// If it cannot be started, or does not say within 5 s that it is ready.
    pub fn start(mut command: Command) -> Result<Self, SubjectError> {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let started_by = words.map(OsStr::to_owned).collect();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| SubjectError::Keeper(format!("cannot be started: {error}")))?;
        let line = child.stdin.take();
        let is_ready = child.stdout.take().is_some_and(says_ready);
        let shared = Shared {
            line: Mutex::new(line),
            mark: format!("keeper{}", child.id()),
            child: Mutex::new(child),
            next_id: 1.into(),
            kept: 1.into(),
            started_by,
        };
        if is_ready {
            let keeper = Self { shared: Arc::new(shared) };
            // Never retracted: there may be commands under way at any time.
            keeper.send(&format!("+0 {}\n", keeper.commands().to_line()))?;
            return Ok(keeper);
        }
        // It may be anything: it must not make the end of this program wait.
        let _ = lock(&shared.child).kill();
        Err(SubjectError::Keeper("does not say that it is ready".to_owned()))
    }

    /// Registers a change before it is made.
    pub(crate) fn keep(&self, host: &Host, undo: Undo) -> Result<Kept, SubjectError> {
        if self.shared.kept.fetch_add(1, Ordering::Relaxed) >= KEPT_MAX as u64 {
            self.shared.kept.fetch_sub(1, Ordering::Relaxed);
            return Err(SubjectError::Keeper(format!(
                "has {KEPT_MAX} things to undo and takes no more"
            )));
        }
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let kept = Kept { id, undo, host: host.clone(), keeper: self.clone(), is_open: true };
        kept.tell()?;
        Ok(kept)
    }

    /// Starts the same program again: [`keeper_main`] does something else if its environment says
    /// so.
    pub(crate) fn sibling(&self) -> Command {
        let mut words = self.shared.started_by.iter();
        let mut command = Command::new(words.next().map_or(OsStr::new(""), OsString::as_os_str));
        command.args(words);
        command
    }

    /// Commands that must not go on when the laboratory is dead: a mount after the unmount would
    /// stay for ever.
    fn commands(&self) -> Undo {
        let mark = self.shared.mark.clone();
        Undo::End { mark, root: None, pids: BTreeSet::new(), patience_ms: 0 }
    }

    /// Runs a program that changes the machine, and returns its standard output.
    pub(crate) fn run<I, S>(
        &self,
        program: &Path,
        arguments: I,
        limit: Duration,
    ) -> Result<String, SubjectError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = Command::new(program);
        command.args(arguments).env(MARK, &self.shared.mark);
        run_command(command, limit).map(|(out, _)| out)
    }

    fn send(&self, line: &str) -> Result<(), SubjectError> {
        let mut pipe = lock(&self.shared.line);
        let sent = match pipe.as_mut() {
            Some(pipe) => pipe.write_all(line.as_bytes()),
            None => return Err(SubjectError::Keeper("has ended".to_owned())),
        };
        sent.map_err(|error| SubjectError::Keeper(format!("does not listen any more: {error}")))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Its standard input ends: it undoes the remaining changes, in bounded time, and exits.
        *lock(&self.line) = None;
        let _ = lock(&self.child).wait();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the keeper's one word in a thread of its own, because a program that is no keeper may say
/// nothing for ever.
pub(crate) fn says_ready(mut output: impl Read + Send + 'static) -> bool {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut word = [0; READY.len()];
        let _ = sender.send(output.read_exact(&mut word).is_ok() && word == *READY.as_bytes());
    });
    receiver.recv_timeout(READY_WITHIN).unwrap_or(false)
}

/// Something that will be undone: by [`Kept::undo`], else when dropped, else by the keeper.
#[derive(Debug)]
pub(crate) struct Kept {
    id: u64,
    undo: Undo,
    host: Host,
    keeper: Keeper,
    is_open: bool,
}

impl Kept {
    fn tell(&self) -> Result<(), SubjectError> {
        self.keeper.send(&format!("+{} {}\n", self.id, self.undo.to_line()))
    }

    /// Replaces the registered undoing by a more precise one.
    pub(crate) fn replace(&mut self, undo: Undo) -> Result<(), SubjectError> {
        self.undo = undo;
        self.tell()
    }

    /// Undoes it. If that fails, it stays with the keeper, which tries again at the end.
    pub(crate) fn undo(mut self) -> Result<(), SubjectError> {
        self.undo_now()
    }

    fn undo_now(&mut self) -> Result<(), SubjectError> {
        if !std::mem::take(&mut self.is_open) {
            return Ok(());
        }
        self.undo.perform(&self.host).map_err(SubjectError::Environment)?;
        self.retract();
        Ok(())
    }

    fn retract(&self) {
        self.keeper.shared.kept.fetch_sub(1, Ordering::Relaxed);
        // A keeper that does not listen any more can do no harm either.
        let _ = self.keeper.send(&format!("-{}\n", self.id));
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.undo_now();
    }
}

/// Neither Ctrl-C nor the end of a terminal or session ends this process from now on. Returns
/// whether that is so.
pub(crate) fn outlive_signals() -> bool {
    let _ = rustix::process::setsid();
    let ignored = Arc::new(AtomicBool::new(false));
    let signals =
        [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP];
    signals
        .into_iter()
        .all(|signal| signal_hook::flag::register(signal, Arc::clone(&ignored)).is_ok())
}

/// Tells the laboratory that this process does its work from now on.
pub(crate) fn say_ready() -> std::io::Result<()> {
    let mut output = std::io::stdout();
    output.write_all(READY.as_bytes())?;
    output.flush()
}

/// The keeper's whole life: reads changes from standard input until that ends; then undoes them. Or
/// the life of a simulated disk, if the environment says so.
#[must_use]
pub fn keeper_main() -> ExitCode {
    if let Some(order) = std::env::var_os(disk::ORDER) {
        return disk::serve_main(&order);
    }
    if !outlive_signals() || say_ready().is_err() {
        return ExitCode::FAILURE;
    }
    let left = read_all(std::io::stdin().lock());
    let host = Host::current();
    std::thread::sleep(BEFORE_END);
    // First whatever could still do something; then the rest, last things first.
    let (ends, others): (Vec<Undo>, Vec<Undo>) =
        left.into_values().rev().partition(|undo| matches!(undo, Undo::End { .. }));
    let mut status = ExitCode::SUCCESS;
    for undo in ends.into_iter().chain(others) {
        if let Err(what) = undo.perform(&host) {
            // The laboratory's parent may still be there to read it.
            let _ = writeln!(std::io::stderr(), "humboldt-lab keeper: {what}");
            status = ExitCode::FAILURE;
        }
    }
    status
}

/// The remaining changes when the input ends. An incomplete line is none.
fn read_all(mut input: impl BufRead) -> BTreeMap<u64, Undo> {
    let mut kept = BTreeMap::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return kept,
            Ok(_) => {}
        }
        let Some(text) = line.strip_suffix(b"\n").and_then(|line| std::str::from_utf8(line).ok())
        else {
            continue;
        };
        if let Some(id) = text.strip_prefix('-').and_then(|id| id.parse().ok()) {
            kept.remove(&id);
        } else if let Some((id, undo)) = text.strip_prefix('+').and_then(registration)
            && (kept.len() < KEPT_MAX || kept.contains_key(&id))
        {
            kept.insert(id, undo);
        }
    }
}

fn registration(text: &str) -> Option<(u64, Undo)> {
    let (id, undo) = text.split_once(' ')?;
    Some((id.parse().ok()?, Undo::from_line(undo)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn what_is_registered_and_not_retracted_is_left() {
        let input = "+0 umount /a\n+1 umount /b\n-0\n+1 umount /c\nnonsense\n+2 dance /x\n+3 umount /d\n+4 umount /half";
        let left = read_all(input.as_bytes());
        let expected =
            [(1, "/c"), (3, "/d")].map(|(id, path)| (id, Undo::Unmount(PathBuf::from(path))));
        assert_eq!(left, BTreeMap::from(expected));
    }

    #[test]
    fn a_program_that_is_no_keeper_is_an_error() {
        let error = Keeper::start(Command::new("true")).expect_err("true is no keeper").to_string();
        assert!(error.contains("ready"), "{error}");
        let error =
            Keeper::start(Command::new("/no/such/program")).expect_err("nothing there").to_string();
        assert!(error.contains("cannot be started"), "{error}");
    }
}
