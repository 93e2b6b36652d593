//! Helpers that are killed, that lie, that are left alone.

mod given_up;
mod under_load;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use humboldt_sys::sysv::{self, MessageQueue};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use super::STALL_LIMIT;
use super::call::{Call, Outcome};
use super::exchange::{Exchange, Figures, Limits, Phase};
use super::keeper::{Keeper, Pace};
use super::link::Link;
use super::protocol::{MESSAGE_BYTES, Message, Op};
use super::record;
use super::service::Service;
use crate::Overload;
use crate::battery::run;
use crate::tree::{EngineError, Operation};

/// Set for the process that is to be a helper: its arguments, one a line.
pub(super) const HELPER_VARIABLE: &str = "HUMBOLDT_TEST_DISKD";

/// Nothing here takes as long, also on a machine that has much else to do.
const LIMIT: Duration = Duration::from_secs(60);

/// Set when it is dropped, so that threads end also if their test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// As fast as a test wants it.
const PACE: Pace = Pace {
    rest_min: Duration::from_millis(1),
    rest_max: Duration::from_millis(5),
    calm: Duration::from_secs(60),
    end_limit: Duration::from_secs(5),
};

/// Does nothing, unless this process was started by a test to be a helper.
#[test]
fn helper_process() {
    let Ok(arguments) = std::env::var(HELPER_VARIABLE) else { return };
    let arguments = arguments.lines().skip(1).map(Into::into);
    let status = match super::serve_as_helper(arguments) {
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

fn service(path: &Path, q1: u32, q2: u32) -> Service {
    service_of(path, q1, q2, None)
}

fn service_of(path: &Path, q1: u32, q2: u32, program: Option<&str>) -> Service {
    let root = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    Service::new(Keeper {
        exchange: Arc::new(Exchange::new(
            path,
            Limits { q1, q2, stall: STALL_LIMIT },
            Overload::Wait,
            0,
        )),
        path: path.to_owned(),
        root: root.expect("the directory"),
        l1: 1,
        l2: 1,
        program: program.map(Into::into),
        pace: PACE,
    })
}

impl Desk {
    fn new(q1: u32, q2: u32) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("humboldt.lock"), "held by a store").expect("a file");
        Self { service: service(dir.path(), q1, q2), dir }
    }

    /// Hands in a call, and does not wait.
    fn begin(&self, message: Message, adapt: impl FnOnce(Call) -> Call) -> Operation<Vec<u8>> {
        let (completer, operation) = Operation::read(None, self.service.exchange.given_up());
        let is_read = matches!(message.op, Op::Read | Op::ReadFile);
        let is_wanted = is_read.then(|| completer.interest());
        let call = Call::new(message, |outcome| completer.complete(outcome));
        let call = match is_wanted {
            Some(is_wanted) => call.only_if(is_wanted),
            None => call,
        };
        self.service.submit(adapt(call));
        operation
    }

    fn write_file(&self, number: u32, bytes: Vec<u8>) -> Outcome {
        run(self
            .begin(Message { number, ..Message::new(Op::WriteFile) }, |call| call.writing(bytes)))
    }

    fn read_file(&self, number: u32, length: usize) -> Outcome {
        let message = Message { number, ..Message::new(Op::ReadFile) };
        run(self.begin(message, |call| call.reading(length, Vec::new())))
    }

    fn simple(&self, message: Message) -> Outcome {
        run(self.begin(message, |call| call))
    }

    fn begin_read(&self, op: Op) -> Operation<Vec<u8>> {
        self.begin(Message { number: 1, ..Message::new(op) }, |call| call.reading(100, Vec::new()))
    }

    fn figures(&self) -> &Figures {
        &self.service.exchange.figures
    }

    /// The connection with a helper that runs.
    fn link(&self) -> Arc<Link> {
        let start = Instant::now();
        loop {
            // Files to be unlinked wait for the next helper, so one runs afterwards.
            let _ = self.simple(Message::new(Op::Unlink));
            if let Some(link) = self.service.exchange.link().filter(|link| link.process().is_some())
            {
                return link;
            }
            assert!(start.elapsed() < LIMIT, "no helper");
        }
    }

    /// Stops the helper in the middle of an operation.
    fn freeze(&self) -> Pid {
        let process = self.link().process().expect("it runs");
        freeze(process);
        process
    }
}

/// Stops a process; it does nothing any more when this returns. Its threads stop at different
/// moments.
fn freeze(process: Pid) {
    rustix::process::kill_process(process, Signal::STOP).expect("it is ours");
    let is_stopped =
        |stat: &Path| std::fs::read_to_string(stat).is_ok_and(|stat| stat.contains(") T "));
    wait_for(|| {
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
        threads.flatten().all(|thread| is_stopped(&thread.path().join("stat"))).then_some(())
    });
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
    assert_eq!(desk.read_file(2, 10), Err(EngineError::System(Errno::NOENT)));
    assert_eq!(
        desk.simple(Message { number: 2, ..Message::new(Op::Unlink) }),
        Ok(vec![]),
        "it may be missing"
    );
}

#[test]
fn long_files_are_written_and_read_by_handle() {
    let desk = Desk::new(64, 72);
    let handle = desk.service.exchange.new_handle();
    let of = |op, offset| Message { handle, number: 5, offset, ..Message::new(op) };
    assert_eq!(desk.simple(of(Op::Create, 0)), Ok(vec![]));
    for part in 0..3_u32 {
        let written = desk
            .begin(of(Op::Write, u64::from(part) * 1000), |call| call.writing(content(part, 1000)));
        assert_eq!(run(written), Ok(vec![]));
    }
    assert_eq!(
        desk.simple(of(Op::Create, 0)),
        Err(EngineError::System(Errno::INVAL)),
        "the handle is in use"
    );
    assert_eq!(desk.simple(of(Op::Close, 0)), Ok(vec![]));
    assert_eq!(desk.simple(of(Op::Close, 0)), Err(EngineError::System(Errno::BADF)));
    assert_eq!(desk.simple(of(Op::OpenToUpdate, 0)), Ok(vec![]));
    let read = desk.begin(of(Op::Read, 2000), |call| call.reading(5000, Vec::new()));
    assert_eq!(run(read), Ok(content(2, 1000)));
    let read = desk.begin(of(Op::Read, u64::MAX), |call| call.reading(10, Vec::new()));
    assert_eq!(run(read), Err(EngineError::System(Errno::INVAL)));
}

#[test]
fn with_more_than_q1_away_nothing_is_stored_later_no_hit_is_read_and_the_rest_waits() {
    let desk = Desk::new(3, 5);
    assert_eq!(desk.write_file(1, content(1, 100)), Ok(vec![]));
    let exchange = &desk.service.exchange;
    assert_eq!((exchange.load(), exchange.admits()), (0, true));
    let process = desk.freeze();
    let unlinks: Vec<_> = (0..10)
        .map(|number| {
            let message = Message { number: 50 + number, ..Message::new(Op::Unlink) };
            desk.begin(message, |call| call)
        })
        .collect();
    assert_eq!((exchange.load(), exchange.admits()), (0, true), "unlinks take no place");
    let store = |number: u32| Message { number: 10 + number, ..Message::new(Op::WriteFile) };
    let stores: Vec<_> = (0..9)
        .map(|number| desk.begin(store(number), |call| call.writing(content(1, 100))))
        .collect();
    assert!(!exchange.admits());
    let hits: Vec<_> = (0..12).map(|_| desk.begin_read(Op::ReadFile)).collect();
    let going_on: Vec<_> = (0..20).map(|_| desk.begin_read(Op::Read)).collect();
    let link = exchange.link().expect("a helper");
    let messages = link.requests.info().expect("info").messages;
    assert_eq!(messages, 6);
    rustix::process::kill_process(process, Signal::CONT).expect("it goes on");
    assert!(unlinks.into_iter().map(run).all(|outcome| outcome == Ok(vec![])));
    let stores: Vec<Outcome> = stores.into_iter().map(run).collect();
    assert!(stores[..7].iter().all(|outcome| *outcome == Ok(vec![])));
    assert!(stores[7..].iter().all(|outcome| *outcome == Err(EngineError::Shed)), "behind seven");
    let hits: Vec<Outcome> = hits.into_iter().map(run).collect();
    assert!(hits[..6].iter().all(|outcome| *outcome == Ok(content(1, 100))));
    assert!(hits[6..].iter().all(|outcome| *outcome == Err(EngineError::Shed)), "behind thirteen");
    for wait in going_on {
        assert_eq!(
            run(wait),
            Err(EngineError::System(Errno::BADF)),
            "answered, though there is no such handle"
        );
    }
    exchange.wait_until_quiet(LIMIT);
    assert_eq!((exchange.load(), exchange.admits()), (0, true));
}

/// With `overload=wait`.
#[test]
fn whatever_ends_lets_those_in_who_wait() {
    let desk = Desk::new(3, 5);
    assert_eq!(desk.write_file(1, content(1, 100)), Ok(vec![]));
    let turns = &desk.service.exchange.turns;
    turns.be_patient();
    for is_killed in [false, true] {
        let process = desk.freeze();
        // As many as are half of the bound, none of which stores.
        let hits: Vec<_> = (0..4).map(|_| desk.begin_read(Op::ReadFile)).collect();
        assert!(desk.service.exchange.is_half_full());
        let waited = turns.waits();
        let place = run(async {
            let mut turn = turns.turn(1).expect("a turn");
            tokio::select! {
                biased;
                _ = &mut turn => panic!("there is no room"),
                () = tokio::task::yield_now() => {}
            }
            let signal = if is_killed { Signal::KILL } else { Signal::CONT };
            rustix::process::kill_process(process, signal).expect("it is there");
            hits.into_iter().for_each(drop);
            turn.await.expect("the reads have ended")
        });
        assert_eq!(turns.waits() - waited, 1);
        drop(place);
        drop(desk.link());
        desk.service.exchange.wait_until_quiet(LIMIT);
    }
}

#[test]
fn look_ups_that_were_given_up_leave_the_line() {
    let desk = Desk::new(3, 5);
    assert_eq!(desk.write_file(1, content(1, 100)), Ok(vec![]));
    let exchange = &desk.service.exchange;
    let process = desk.freeze();
    // Six are with the helper; of those in line nobody wants any, and of others no more came.
    let sent: Vec<_> = (0..6).map(|_| desk.begin_read(Op::ReadFile)).collect();
    (0..100).for_each(|_| drop(desk.begin_read(Op::ReadFile)));
    assert!((1..=7).contains(&exchange.in_line()), "{}", exchange.in_line());
    let wanted: Vec<_> = (0..3).map(|_| desk.begin_read(Op::ReadFile)).collect();
    drop(desk.begin_read(Op::ReadFile));
    rustix::process::kill_process(process, Signal::CONT).expect("it goes on");
    for wait in sent.into_iter().chain(wanted) {
        assert_eq!(run(wait), Ok(content(1, 100)));
    }
    exchange.wait_until_quiet(LIMIT);
    assert_eq!((exchange.in_line(), exchange.load()), (0, 0));
}

#[test]
fn what_cannot_be_sent_to_a_helper_is_unlinked_by_the_next_one() {
    let desk = Desk::new(64, 72);
    assert_eq!(desk.write_file(1, content(1, 100)), Ok(vec![]));
    let _process = desk.freeze();
    let link = desk.service.exchange.link().expect("a helper");
    link.requests.remove().expect("the queue was there");
    assert_eq!(desk.simple(Message { number: 1, ..Message::new(Op::Unlink) }), Ok(vec![]));
    assert_eq!(desk.read_file(1, 100), Err(EngineError::System(Errno::NOENT)));
}

#[test]
fn without_a_future_a_call_is_done_all_the_same() {
    let desk = Desk::new(64, 72);
    let message = Message { number: 9, ..Message::new(Op::WriteFile) };
    drop(desk.begin(message, |call| call.writing(content(9, 500))));
    assert_eq!(desk.read_file(9, 500), Ok(content(9, 500)));
}

#[test]
fn a_killed_helper_fails_what_is_under_way_at_once_and_another_follows() {
    let desk = Desk::new(64, 72);
    desk.write_file(1, content(1, 100)).expect("written");
    for round in 0..20_u32 {
        let link = desk.link();
        let process = desk.freeze();
        let waits: Vec<_> = (0..10).map(|_| desk.begin_read(Op::ReadFile)).collect();
        let unlinked = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&unlinked);
        let number = 100 + round;
        let path = desk.dir.path().join(format!("00/00/{number:08X}"));
        std::fs::write(&path, "x").expect("a file");
        desk.service.submit(Call::new(
            Message { number, ..Message::new(Op::Unlink) },
            move |outcome| {
                seen.store(outcome.is_ok(), Ordering::SeqCst);
            },
        ));
        rustix::process::kill_process(process, Signal::KILL).expect("it is ours");
        for wait in waits {
            assert_eq!(run(wait), Err(EngineError::Gone));
        }
        drop(desk.link()); // a new one has answered
        assert!(unlinked.load(Ordering::SeqCst) && !path.exists(), "the next helper unlinks");
        assert!(
            link.requests.info().is_err() && link.replies.info().is_err(),
            "the queues have gone"
        );
    }
    assert_eq!(desk.read_file(1, 100), Ok(content(1, 100)));
    assert_eq!(desk.figures().helpers.load(Ordering::Relaxed), 21);
}

/// Numbers from a seed.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 20
}

/// A reply that may be garbage, or nearly right.
fn lie(state: &mut u64) -> [u8; MESSAGE_BYTES] {
    if random(state).is_multiple_of(4) {
        return std::array::from_fn(|_| random(state) as u8);
    }
    let ops = [Op::Hello, Op::ReadFile, Op::WriteFile, Op::Read, Op::Close, Op::Unlink];
    Message {
        id: ((random(state) % 200) << 32) | (random(state) % 4),
        offset: random(state) % 2,
        number: random(state) as u32 % 4,
        handle: random(state) as u32 % 2,
        slot: random(state) as u32 % 128,
        length: random(state) as u32 % 200_000,
        status: [0, 0, 0, 2, 4096, -1, i32::MAX][random(state) as usize % 7],
        op: ops[random(state) as usize % ops.len()],
    }
    .encode()
}

#[test]
fn a_helper_that_lies_is_ended_and_nothing_hangs_or_is_longer_than_asked() {
    let desk = Desk::new(64, 72);
    let is_over = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    std::thread::scope(|threads| {
        for thread in 1..3_u32 {
            let (desk, is_over, done) = (&desk, &is_over, &done);
            threads.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = desk.write_file(thread, content(thread, 3000));
                    if let Ok(bytes) = desk.read_file(thread, 2000) {
                        assert!(bytes.len() <= 2000);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let _over = Over(&is_over);
        let mut state = 7;
        let start = Instant::now();
        while desk.figures().violations.load(Ordering::Relaxed) < 20
            || done.load(Ordering::Relaxed) < 200
        {
            assert!(start.elapsed() < LIMIT, "no progress");
            let Some(link) = desk.service.exchange.link() else { continue };
            match random(&mut state) % 8 {
                0 => drop(link.replies.send(&lie(&mut state), false)),
                1 => drop(link.replies.send(&[0; 5], false)),
                _ => std::thread::yield_now(),
            }
        }
    });
    drop(desk.link());
    assert_eq!(desk.write_file(1, content(1, 3000)), Ok(vec![]));
    assert_eq!(desk.read_file(1, 3000), Ok(content(1, 3000)));
}

#[test]
fn nothing_is_left_when_it_stops() {
    let desk = Desk::new(64, 72);
    desk.service.stop(LIMIT);
    assert_eq!(desk.write_file(1, vec![]), Err(EngineError::Gone), "it never ran");
    let desk = Desk::new(64, 72);
    let link = desk.link();
    let process = link.process().expect("it runs");
    let segment = link.memory.id();
    assert!(desk.dir.path().join(record::FILE).exists());
    let waits: Vec<_> = (0..10).map(|_| desk.begin_read(Op::ReadFile)).collect();
    desk.service.stop(LIMIT);
    for wait in waits {
        assert_eq!(
            run(wait),
            Err(EngineError::System(Errno::NOENT)),
            "what was under way is finished"
        );
    }
    assert!(link.requests.info().is_err() && link.replies.info().is_err());
    assert_eq!(rustix::process::test_kill_process(process), Err(Errno::SRCH));
    assert_eq!(sysv::segment_info(segment).expect("we have it attached").attached, 1);
    drop(link);
    assert!(sysv::segment_info(segment).is_err());
    assert!(!desk.dir.path().join(record::FILE).exists());
    assert_eq!(desk.write_file(1, vec![]), Err(EngineError::Gone));
    assert_eq!(desk.service.exchange.phase(), Phase::Gone);
}

#[test]
fn it_stops_also_if_several_threads_needed_it_first_at_the_same_time() {
    for _ in 0..20 {
        let desk = Desk::new(64, 72);
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|threads| {
            for number in 0..4 {
                let (desk, start) = (&desk, &start);
                threads.spawn(move || {
                    start.wait();
                    desk.write_file(number, content(number, 10)).expect("written");
                });
            }
        });
        desk.service.stop(LIMIT);
        assert_eq!(desk.service.exchange.phase(), Phase::Gone);
        assert!(!desk.dir.path().join(record::FILE).exists(), "the keeper has cleaned up");
    }
}

#[test]
fn a_helper_that_hangs_is_killed_when_it_stops() {
    let desk = Desk::new(64, 72);
    let process = desk.freeze();
    let wait = desk.begin_read(Op::ReadFile);
    desk.service.stop(Duration::from_millis(10));
    assert_eq!(run(wait), Err(EngineError::Gone));
    assert_eq!(rustix::process::test_kill_process(process), Err(Errno::SRCH));
}

#[test]
fn a_helper_that_answers_nothing_for_too_long_is_ended() {
    let desk = Desk::new(64, 72);
    let process = desk.freeze();
    let wait = desk.begin_read(Op::ReadFile);
    let exchange = &desk.service.exchange;
    let begun = Instant::now();
    exchange.end_stalled_at(begun + STALL_LIMIT / 2);
    assert!(rustix::process::test_kill_process(process).is_ok(), "not yet");
    exchange.end_stalled_at(begun + STALL_LIMIT + Duration::from_millis(1));
    assert_eq!(run(wait), Err(EngineError::Gone));
    drop(desk.link());
    exchange.end_stalled_at(Instant::now() + 2 * STALL_LIMIT);
    assert_eq!(desk.read_file(1, 1), Err(EngineError::System(Errno::NOENT)), "idle is not stalled");
}

#[test]
fn a_program_that_is_no_helper_makes_calls_fail_and_not_hang() {
    for program in ["/nonexistent", "/bin/false", "/bin/true"] {
        let dir = tempfile::tempdir().expect("a directory");
        let desk = Desk { service: service_of(dir.path(), 64, 72, Some(program)), dir };
        for _ in 0..5 {
            assert_eq!(desk.write_file(1, vec![0; 10]), Err(EngineError::Gone), "{program}");
        }
        desk.service.stop(LIMIT);
    }
}

/// Set for the process that is to be a proxy: its directory.
const PROXY_VARIABLE: &str = "HUMBOLDT_TEST_DISKD_PROXY";

/// Does nothing, unless this process was started by a test to be a proxy. Then it prints its helper
/// and queues, and waits.
#[test]
fn proxy_process() {
    let Some(path) = std::env::var_os(PROXY_VARIABLE) else { return };
    let path = Path::new(&path);
    // dies with this process: no code removes it
    let dir = tempfile::tempdir_in(path).expect("a directory");
    let desk = Desk { service: service(path, 64, 72), dir };
    let link = desk.link();
    let process = link.process().expect("it runs").as_raw_nonzero();
    let report =
        format!("{process} {} {} {}", link.requests.id(), link.replies.id(), link.memory.id());
    std::fs::write(path.join("report.part"), report).expect("written");
    std::fs::rename(path.join("report.part"), path.join("report")).expect("renamed");
    let _ = std::io::Read::read_to_end(&mut std::io::stdin(), &mut Vec::new());
}

/// A proxy in a process of its own, its helper's process, its queues and its segment.
fn start_proxy(dir: &Path) -> (Child, Pid, [MessageQueue; 2], i32) {
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["--exact", "diskd::tests::proxy_process", "--nocapture"])
        .env(PROXY_VARIABLE, dir);
    let proxy = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let report = wait_for(|| std::fs::read_to_string(dir.join("report")).ok());
    let numbers: Vec<i32> = report.split(' ').map(|n| n.parse().expect("a number")).collect();
    let helper = Pid::from_raw(numbers[0]).expect("a process");
    (
        proxy.expect("started"),
        helper,
        [numbers[1], numbers[2]].map(MessageQueue::with_id),
        numbers[3],
    )
}

fn wait_for<T>(mut find: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "it never happens");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_killed_proxys_helper_cleans_up_and_ends() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut proxy, helper, queues, segment) = start_proxy(dir.path());
    assert!(queues.iter().all(|queue| queue.info().is_ok()));
    // The signals that a terminal or a service manager sends to all are not for the helper.
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        rustix::process::kill_process(helper, signal).expect("it runs");
    }
    let name =
        std::fs::read_to_string(format!("/proc/{helper}/cmdline")).expect("its command line");
    assert!(name.contains("diskd"), "{name}");
    proxy.kill().expect("killed");
    proxy.wait().expect("ended");
    wait_for(|| sysv::segment_info(segment).is_err().then_some(()));
    assert!(queues.iter().all(|queue| queue.info().is_err()));
    record::clear(std::fs::File::open(dir.path()).expect("the directory"))
        .expect("the helper has ended");
}

#[test]
fn what_a_killed_proxy_and_its_killed_helper_left_goes_at_the_next_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let (mut proxy, helper, queues, segment) = start_proxy(dir.path());
    freeze(Pid::from_child(&proxy));
    rustix::process::kill_process(helper, Signal::KILL).expect("it runs");
    proxy.kill().expect("killed");
    proxy.wait().expect("ended");
    // it goes with its users
    wait_for(|| sysv::segment_info(segment).is_err().then_some(()));
    assert!(queues.iter().all(|queue| queue.info().is_ok()), "nobody was left to remove them");
    record::clear(std::fs::File::open(dir.path()).expect("the directory")).expect("cleared");
    assert!(queues.iter().all(|queue| queue.info().is_err()));
    assert!(!dir.path().join(record::FILE).exists());
}
