//! The keeper: a thread that starts the helper, waits for its end, and starts another.
//!
//! It is the only one that starts processes and takes note of their end. A second thread per
//! helper, the clerk, receives replies (see `exchange`).

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use humboldt_base::vital::Vital;
use humboldt_sys::signal_mask;
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions};

use super::exchange::{Exchange, Phase};
use super::helper::{self, Assignment};
use super::link::{Link, SLOT_BYTES, slots};
use super::record::{self, Keys};

/// Stack of the threads: they hold little more than a message.
const STACK_BYTES: usize = 128 * 1024;

/// Keys are random; after as many that are taken there is something wrong.
const KEY_TRIES: usize = 16;

/// The pace at which helpers replace each other.
#[derive(Copy, Clone, Debug)]
pub(super) struct Pace {
    /// Rest before the second start; the first follows at once. Doubled each time.
    pub(super) rest_min: Duration,
    /// Longest rest.
    pub(super) rest_max: Duration,
    /// A helper that has lived this long counts as the first again.
    pub(super) calm: Duration,
    /// Time for the helper's last operation before it is killed, and after.
    pub(super) end_limit: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            rest_min: Duration::from_millis(100),
            rest_max: Duration::from_secs(30),
            calm: Duration::from_secs(60),
            end_limit: Duration::from_secs(5),
        }
    }
}

/// The facts needed to start a helper.
pub(super) struct Keeper {
    pub(super) exchange: Arc<Exchange>,
    pub(super) path: PathBuf,
    pub(super) root: OwnedFd,
    pub(super) l1: u32,
    pub(super) l2: u32,
    /// The program that can be a helper; `None` for this one.
    pub(super) program: Option<PathBuf>,
    pub(super) pace: Pace,
}

impl Keeper {
    /// Starts the thread.
    pub(super) fn start(self) -> io::Result<JoinHandle<()>> {
        let thread =
            std::thread::Builder::new().name("diskd keeper".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || self.keep())
    }

    fn keep(self) {
        let _vital = Vital::new("the keeper of a diskd cache_dir");
        signal_mask::block_all_signals();
        let mut rest = Duration::ZERO;
        while self.exchange.enter(Phase::Starting) {
            let start = Instant::now();
            let end = self.run_one();
            if self.exchange.phase() >= Phase::Closing {
                break;
            }
            if start.elapsed() >= self.pace.calm {
                rest = Duration::ZERO;
            }
            let path = self.path.display();
            let when = if rest.is_zero() {
                "now".to_owned()
            } else {
                format!("in {} ms", rest.as_millis())
            };
            match end {
                Ok(ended) => tracing::error!("{path}: {ended}; the next one starts {when}"),
                Err(error) => {
                    tracing::error!(
                        "{path}: cannot start a diskd helper: {error}; tried again {when}"
                    )
                }
            }
            if !rest.is_zero() && self.exchange.enter(Phase::Resting) {
                self.exchange.wait_for_phase(Phase::Closing, rest);
            }
            rest = (rest * 2).clamp(self.pace.rest_min, self.pace.rest_max);
        }
        self.exchange.enter(Phase::Closed);
        record::remove(&self.root);
        self.exchange.enter(Phase::Gone);
    }

    /// The life of one helper; returns how it ended.
    fn run_one(&self) -> io::Result<String> {
        let link = Arc::new(create_link(&self.root, self.exchange.limits().q2)?);
        let mut child = self.spawn(&link)?;
        let number = child.id();
        let process = i32::try_from(number).ok().and_then(Pid::from_raw);
        link.set_process(process);
        if !self.exchange.attach(&link) {
            link.cut();
        }
        let clerk = {
            let (exchange, link) = (Arc::clone(&self.exchange), Arc::clone(&link));
            let thread =
                std::thread::Builder::new().name("diskd clerk".to_owned()).stack_size(STACK_BYTES);
            thread.spawn(move || {
                let _vital = Vital::new("the thread that takes the answers of a diskd helper");
                exchange.receive_replies(&link);
            })
        };
        if clerk.is_err() {
            link.cut();
        }
        let status = wait(&mut child, process, &link);
        link.remove_queues();
        match clerk {
            Ok(clerk) => drop(clerk.join()),
            Err(error) => {
                self.exchange.fail_all();
                return Err(error);
            }
        }
        Ok(format!("the diskd helper (process {number}) has ended: {}", describe(status)))
    }

    fn spawn(&self, link: &Link) -> io::Result<Child> {
        let assignment = Assignment {
            path: self.path.clone(),
            l1: self.l1,
            l2: self.l2,
            request_queue: link.requests.id(),
            reply_queue: link.replies.id(),
            memory: link.memory.id(),
            slots: slots(self.exchange.limits().q2),
            slot_bytes: SLOT_BYTES,
        };
        let mut command = self.command(&assignment);
        // A process group of its own: Ctrl-C at a terminal is not for the helper.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0).spawn()
    }

    #[cfg(not(test))]
    fn command(&self, assignment: &Assignment) -> Command {
        // The link, not its target: it leads to this very program, also when the file has been
        // replaced or lies where this user may not look.
        let own = PathBuf::from("/proc/self/exe");
        let mut command = Command::new(self.program.as_ref().unwrap_or(&own));
        command.arg0("humboldt").arg(helper::HELPER_COMMAND).args(assignment.arguments());
        command
    }

    /// In unit tests the test program is the helper, by way of a test that does nothing otherwise.
    #[cfg(test)]
    fn command(&self, assignment: &Assignment) -> Command {
        let own = PathBuf::from("/proc/self/exe");
        let mut command = Command::new(self.program.as_ref().unwrap_or(&own));
        let arguments: Vec<_> =
            assignment.arguments().iter().map(|a| a.to_string_lossy().into_owned()).collect();
        command.args(["--exact", "diskd::tests::helper_process", "--nocapture"]);
        command.env(
            super::tests::HELPER_VARIABLE,
            [&[helper::HELPER_COMMAND.to_owned()], &arguments[..]].concat().join("\n"),
        );
        command.stderr(Stdio::null());
        command
    }
}

/// Makes queues and segment under keys that are not taken, and writes the keys down before.
pub(super) fn create_link(root: &OwnedFd, q2: u32) -> io::Result<Link> {
    let mut tries = 0;
    loop {
        let keys = Keys::random();
        record::write(root, keys)?;
        match Link::create(keys, q2) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < KEY_TRIES => {
                tries += 1
            }
            other => return other,
        }
    }
}

/// Waits for the end of the helper. Its number is not given to another process before `link` has
/// forgotten it.
fn wait(child: &mut Child, process: Option<Pid>, link: &Link) -> io::Result<ExitStatus> {
    if let Some(process) = process {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(rustix::process::waitid(WaitId::Pid(process), options), Err(Errno::INTR)) {}
    }
    link.set_process(None);
    child.wait()
}

fn describe(status: io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(0), _) => "its queues were removed".to_owned(),
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "for an unknown reason".to_owned(),
        },
        Err(error) => error.to_string(),
    }
}
