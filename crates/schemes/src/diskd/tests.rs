//! Helpers that are killed, that lie, that are left alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use humboldt_sys::sysv::{self, MessageQueue};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Signal;
use tempfile::TempDir;

use super::call::{Call, Failure, Outcome};
use super::exchange::{Exchange, Limits, Phase};
use super::keeper::{Keeper, Pace};
use super::link::Link;
use super::protocol::{Message, Op};
use super::service::Service;
use crate::battery::run;

/// Set for the process that is to be a helper: its arguments, one a line.
pub(super) const HELPER_VARIABLE: &str = "HUMBOLDT_TEST_DISKD";

/// Nothing here takes as long on a machine that works.
const LIMIT: Duration = Duration::from_secs(20);

/// Does nothing, unless this process was started by a test to be a helper.
#[test]
fn helper_process() {
    let Ok(arguments) = std::env::var(HELPER_VARIABLE) else { return };
    let arguments = arguments.lines().skip(1).map(Into::into);
    let status = match super::serve(arguments) {
        Ok(()) => 0,
        Err(_) => 1,
    };
    std::process::exit(status); // not back into the harness, whose descriptors are closed
}

/// A helper of its own for a directory of its own.
struct Desk {
    service: Service,
    dir: TempDir,
}

impl Desk {
    fn new(q1: u32, q2: u32) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let root = rustix::fs::open(dir.path(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let keeper = Keeper {
            exchange: Arc::new(Exchange::new(Limits { q1, q2 })),
            path: dir.path().to_owned(),
            root: root.expect("the directory"),
            l1: 1,
            l2: 1,
            program: None,
            pace: Pace { rest_min: Duration::from_millis(1), rest_max: Duration::from_millis(5), ..Pace::default() },
        };
        Self { service: Service::new(keeper), dir }
    }

    fn write_file(&self, number: u32, bytes: Vec<u8>) -> Outcome {
        let (call, wait) = Call::writing(Message { number, ..Message::new(Op::WriteFile) }, bytes);
        self.service.submit(call);
        run(wait)
    }

    fn read_file(&self, number: u32, length: usize) -> Outcome {
        let (call, wait) = Call::reading(Message { number, ..Message::new(Op::ReadFile) }, length);
        self.service.submit(call);
        run(wait)
    }

    fn simple(&self, message: Message) -> Outcome {
        let (call, wait) = Call::waiting(message);
        self.service.submit(call);
        run(wait)
    }

    /// The connection with a helper that runs.
    fn link(&self) -> Arc<Link> {
        let _ = self.simple(Message::new(Op::Unlink));
        let start = Instant::now();
        loop {
            if let Some(link) = self.service.exchange.link().filter(|link| link.process().is_some()) {
                return link;
            }
            assert!(start.elapsed() < LIMIT, "no helper");
            std::thread::yield_now();
        }
    }

    fn signal(&self, signal: Signal) {
        let process = self.link().process().expect("it runs");
        rustix::process::kill_process(process, signal).expect("it is ours");
    }
}

fn content(number: u32, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u32).wrapping_mul(31).wrapping_add(number) as u8).collect()
}

#[test]
fn files_are_written_read_and_unlinked() {
    let desk = Desk::new(64, 72);
    for (number, length) in [(0, 0), (1, 1), (2, 13_000), (3, 81_920)] {
        assert_eq!(desk.write_file(number, content(number, length)), Ok(vec![]));
        assert_eq!(desk.read_file(number, length), Ok(content(number, length)));
    }
    let path = desk.dir.path().join("00/00/00000002");
    assert_eq!(std::fs::read(&path).expect("the file"), content(2, 13_000));
    assert_eq!(desk.read_file(2, 20_000), Ok(content(2, 13_000)), "shorter than wanted");
    assert_eq!(desk.simple(Message { number: 2, ..Message::new(Op::Unlink) }), Ok(vec![]));
    assert!(!path.exists());
    assert_eq!(desk.read_file(2, 10), Err(Failure::Errno(Errno::NOENT)));
    assert_eq!(desk.simple(Message { number: 2, ..Message::new(Op::Unlink) }), Ok(vec![]), "it may be missing");
}
