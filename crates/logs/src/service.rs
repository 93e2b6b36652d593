//! The thread that writes all logs that are files, and those of logs that may wait for somebody:
//! helper programs, syslog, receivers in the network.
//!
//! While lines arrive it writes them every [`WRITE_EVERY`], in large pieces; when nothing came for
//! that long it sleeps until something does.

use std::collections::HashSet;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use humboldt_sys::log_file::is_without_reader;
use parking_lot::{Condvar, Mutex};

use crate::output::{self, Output};
use crate::panics::LOG_THREAD;
use crate::target::{Target, line_bytes_max};
use crate::{Destination, LineSink, SinkOptions};

/// A line waits at most this long (and the time of the write before it).
const WRITE_EVERY: Duration = Duration::from_millis(100);

/// A thread with a log of its own looks this often whether the log is still used.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Time between two looks whether the threads have ended, at the end of the service.
const END_STEP: Duration = Duration::from_millis(2);

/// How long the end of the service takes: the last lines, and the end of helper programs.
const LAST_WRITE_MAX: Duration = Duration::from_secs(5);

/// How long lines are written in this time, and helper programs have to end by themselves.
const LAST_LINES_MAX: Duration = Duration::from_millis(3500);

enum Command {
    Add(Box<Output>),
    Rotate { keep: u32 },
    Flushed(mpsc::SyncSender<()>),
    Stop,
}

/// The signal that tells the writer to work.
#[derive(Default)]
pub(crate) struct Inbox {
    /// The writer sleeps until it is woken, not just until the next interval.
    sleeping: AtomicBool,
    state: Mutex<InboxState>,
    changed: Condvar,
    /// Set at the end of the service: no line is written later.
    stop_until: OnceLock<Instant>,
}

#[derive(Default)]
struct InboxState {
    commands: Vec<Command>,
    woken: bool,
}

impl Inbox {
    /// Called after a line was put into a buffer. One load when the writer is awake anyway.
    pub(crate) fn notice_line(&self, urgent: bool) {
        if self.sleeping.load(Ordering::Relaxed) || urgent {
            self.sleeping.store(false, Ordering::Relaxed);
            self.state.lock().woken = true;
            self.changed.notify_one();
        }
    }

    fn send(&self, command: Command) {
        self.state.lock().commands.push(command);
        self.changed.notify_one();
    }

    /// The writer is to end. One that waits for a receiver finds that out too.
    fn stop(&self, until: Instant) {
        self.stop_until.get_or_init(|| until);
        self.send(Command::Stop);
    }

    pub(crate) fn stop_until(&self) -> Option<Instant> {
        self.stop_until.get().copied()
    }

    /// Waits to be woken, for `limit` at most if there is one, and takes the commands.
    fn wait(&self, limit: Option<Duration>) -> Vec<Command> {
        let mut state = self.state.lock();
        let nothing_new = |state: &mut InboxState| !state.woken && state.commands.is_empty();
        match limit {
            Some(limit) => {
                self.changed.wait_while_for(&mut state, nothing_new, limit);
            }
            None => self.changed.wait_while(&mut state, nothing_new),
        }
        state.woken = false;
        mem::take(&mut state.commands)
    }
}

/// Owns the writing thread; dropping it writes the remaining lines and ends the thread. Lines
/// appended later are never written: [`crate::cache_log::CacheLog::attach`] standard error again
/// before.
///
/// Start it after going into the background (threads do not survive that), and open logs after
/// privileges were dropped (rotation opens them again, with the rights of that time).
pub struct LogService {
    /// The thread that writes files.
    files: WriterThread,
    /// Those with a log of their own.
    receivers: Mutex<Vec<WriterThread>>,
}

/// A thread that writes logs.
struct WriterThread {
    inbox: Arc<Inbox>,
    thread: thread::JoinHandle<()>,
}

impl WriterThread {
    /// `ends`: as soon as no log is left.
    fn start(ends: bool) -> io::Result<Self> {
        let inbox = Arc::<Inbox>::default();
        let mut writer =
            Writer { inbox: Arc::clone(&inbox), outputs: Vec::new(), ends, has_begun: false };
        let run = move || {
            // If one log makes it panic, the others go on.
            while catch_unwind(AssertUnwindSafe(|| writer.run())).is_err() {
                tracing::error!("the log thread panicked, and goes on");
                thread::sleep(WRITE_EVERY);
            }
        };
        let thread = thread::Builder::new().name(LOG_THREAD.into()).spawn(run)?;
        Ok(Self { inbox, thread })
    }

    /// Asks for a sign when everything before is written and done. `None`: the thread has ended.
    fn flushing(&self) -> Option<mpsc::Receiver<()>> {
        if self.thread.is_finished() {
            return None;
        }
        let (done, is_done) = mpsc::sync_channel(1);
        self.inbox.send(Command::Flushed(done));
        Some(is_done)
    }
}

impl LogService {
    /// Starts the thread, named `logs`.
    pub fn start() -> io::Result<Self> {
        Ok(Self { files: WriterThread::start(false)?, receivers: Mutex::default() })
    }

    /// Opens a log; fails when its file cannot be opened, or its helper program cannot be started,
    /// now. A named pipe without a reader is opened when a reader appears: lines until then are
    /// lost, and counted. A receiver in the network is reached when there are lines for it. The log
    /// is closed when the last `Arc` is dropped and its lines are written.
    pub fn open(
        &self,
        destination: Destination,
        options: SinkOptions,
    ) -> io::Result<Arc<LineSink>> {
        let (target, later) = match &destination {
            Destination::Syslog { .. } | Destination::Udp(_) | Destination::Tcp(_) => (None, None),
            _ => match Target::open(&destination, options.told()) {
                Err(error) if is_without_reader(&error) => (None, Some(error)),
                opened => (opened?, None),
            },
        };
        let discard = destination == Destination::None;
        let own = destination.is_receiver().then(|| WriterThread::start(true)).transpose()?;
        let inbox = Arc::clone(&own.as_ref().unwrap_or(&self.files).inbox);
        let sink = Arc::new(LineSink::new(
            options.clone(),
            discard,
            line_bytes_max(&destination),
            Arc::clone(&inbox),
        ));
        if !discard {
            let mut output = Output::new(Arc::clone(&sink), destination, options, target);
            later.inspect(|error| output.report("open", error));
            inbox.send(Command::Add(Box::new(output)));
        }
        let mut receivers = self.receivers.lock();
        receivers.retain(|one| !one.thread.is_finished());
        receivers.extend(own);
        drop(receivers);
        Ok(sink)
    }

    /// Rotates all logs that are regular files, keeping `keep` old ones of each (`logfile_rotate`);
    /// with 0 the files are only opened again. Lines appended before this call go to the old files;
    /// lines appended before it is done (see [`Self::flush`]) may. Returns at once.
    /// Helper programs are told to do the same.
    pub fn rotate(&self, keep: u32) {
        self.files.inbox.send(Command::Rotate { keep });
        let receivers = self.receivers.lock();
        receivers.iter().for_each(|one| one.inbox.send(Command::Rotate { keep }));
    }

    /// Waits until everything appended and asked for before is written and done, or `limit` has
    /// passed. Returns whether it was done. Blocks: not for cores that serve.
    pub fn flush(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut waiting: Vec<_> = self.files.flushing().into_iter().collect();
        waiting.extend(self.receivers.lock().iter().filter_map(WriterThread::flushing));
        let left = || until.saturating_duration_since(Instant::now());
        let done = |is_done: mpsc::Receiver<()>| match is_done.recv_timeout(left()) {
            // A thread that has ended has nothing left to write.
            Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => true,
            Err(mpsc::RecvTimeoutError::Timeout) => false,
        };
        waiting.into_iter().all(done)
    }
}

impl Drop for LogService {
    fn drop(&mut self) {
        let now = Instant::now();
        let receivers = std::mem::take(self.receivers.get_mut());
        let threads = || std::iter::once(&self.files).chain(&receivers);
        threads().for_each(|one| one.inbox.stop(now + LAST_LINES_MAX));
        // A writer stuck in a write is left behind: the process is ending.
        let until = now + LAST_WRITE_MAX;
        while threads().any(|one| !one.thread.is_finished()) && Instant::now() < until {
            thread::sleep(END_STEP);
        }
    }
}

struct Writer {
    inbox: Arc<Inbox>,
    outputs: Vec<Output>,
    /// It ends when no log is left.
    ends: bool,
    /// It has had one.
    has_begun: bool,
}

impl Writer {
    fn run(&mut self) {
        let mut busy = false;
        loop {
            let commands = if busy { self.inbox.wait(Some(WRITE_EVERY)) } else { self.sleep() };
            busy = self.write_out();
            for command in commands {
                match command {
                    Command::Add(output) => {
                        self.outputs.push(*output);
                        self.has_begun = true;
                    }
                    Command::Rotate { keep } => self.rotate(keep),
                    Command::Flushed(done) => {
                        self.write_out(); // of outputs added in between
                        let _ = done.try_send(());
                    }
                    Command::Stop => {
                        self.outputs.iter_mut().for_each(Output::end);
                        return;
                    }
                }
                busy = true; // look again before sleeping
            }
            if self.ends && self.outputs.is_empty() && self.has_begun {
                return;
            }
        }
    }

    /// Waits without limit, unless a line came in before everybody could see that we sleep.
    fn sleep(&self) -> Vec<Command> {
        self.inbox.sleeping.store(true, Ordering::Relaxed);
        // The locks of the buffers order this: a line that we do not see here was put in after, by
        // a core that sees `sleeping`.
        let missed = self.outputs.iter().any(Output::has_lines);
        let limit = self.ends.then_some(LOOK_EVERY);
        let commands = self.inbox.wait(if missed { Some(Duration::ZERO) } else { limit });
        self.inbox.sleeping.store(false, Ordering::Relaxed);
        commands
    }

    fn write_out(&mut self) -> bool {
        let mut any = false;
        self.outputs.retain_mut(|output| {
            any |= output.write_out();
            let is_done = output.is_done();
            if is_done {
                output.give_up();
            }
            !is_done
        });
        any
    }

    fn rotate(&mut self, keep: u32) {
        self.write_out();
        let mut shifted = HashSet::new();
        for output in &mut self.outputs {
            output.order_rotation();
            let Some(path) = output.rotatable_path().map(PathBuf::from) else { continue };
            if shifted.insert(path.clone())
                && let Err(error) = output::shift_files(&path, output.kept(keep))
            {
                output.report("rotate", &error);
            }
        }
        self.outputs.iter_mut().for_each(Output::reopen);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::BUFFER_BYTES_MAX;

    const LIMIT: Duration = Duration::from_secs(30);

    fn open(service: &LogService, path: &std::path::Path, cores: usize) -> Arc<LineSink> {
        let options = SinkOptions { cores, ..SinkOptions::default() };
        service.open(Destination::File(path.into()), options).unwrap()
    }

    #[test]
    fn lines_of_all_cores_arrive_whole_and_in_each_cores_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let service = LogService::start().unwrap();
        let sink = open(&service, &path, 4);
        thread::scope(|scope| {
            for core in 0..4 {
                let sink = &sink;
                scope.spawn(move || {
                    for n in 0..5000 {
                        sink.append(core, |out| {
                            out.extend_from_slice(format!("{core} {n}").as_bytes())
                        });
                    }
                });
            }
        });
        sink.append_shared(|out| out.extend_from_slice(b"9 0\n"));
        drop(sink);
        drop(service);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 20_001);
        let mut next = [0_usize; 10];
        for line in text.lines() {
            let (core, n) = line.split_once(' ').unwrap();
            let core: usize = core.parse().unwrap();
            assert_eq!(n.parse::<usize>().unwrap(), next[core], "core {core}");
            next[core] += 1;
        }
    }

    #[test]
    fn a_line_is_written_without_anybody_asking_and_again_after_sleeping() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let service = LogService::start().unwrap();
        let sink = open(&service, &path, 1);
        for expected in ["x\n", "x\nx\n"] {
            while !service.files.inbox.sleeping.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            sink.append(0, |out| out.push(b'x'));
            let start = std::time::Instant::now();
            while fs::read_to_string(&path).unwrap() != expected {
                assert!(start.elapsed() < LIMIT, "never written");
                thread::sleep(Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn rotation_separates_the_lines_before_from_those_after() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let service = LogService::start().unwrap();
        let (sink, twin) = (open(&service, &path, 1), open(&service, &path, 1));
        sink.append(0, |out| out.extend_from_slice(b"before"));
        service.rotate(2);
        assert!(service.flush(LIMIT));
        sink.append(0, |out| out.extend_from_slice(b"after"));
        twin.append(0, |out| out.extend_from_slice(b"twin"));
        assert!(service.flush(LIMIT));
        let read = |name: &str| fs::read_to_string(dir.path().join(name));
        assert_eq!(read("a.log.0").unwrap(), "before\n");
        assert_eq!(read("a.log").unwrap(), "after\ntwin\n");
        assert!(read("a.log.1").is_err(), "two logs of one file rotate it once");
        // Renamed by something else: only reopened.
        fs::rename(&path, dir.path().join("moved")).unwrap();
        service.rotate(0);
        assert!(service.flush(LIMIT));
        sink.append(0, |out| out.extend_from_slice(b"new"));
        assert!(service.flush(LIMIT));
        assert_eq!(
            (read("moved").unwrap(), read("a.log").unwrap()),
            ("after\ntwin\n".into(), "new\n".into())
        );
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_the_service_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let service = LogService::start().unwrap();
        let told = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&told);
        let on_dropped: crate::line_sink::OnDropped = Arc::new(move |lines| {
            counter.fetch_add(lines, Ordering::SeqCst);
        });
        let on_dropped = Some(on_dropped);
        let options = SinkOptions { cores: 1, on_dropped, ..SinkOptions::default() };
        let full = service.open(Destination::File("/dev/full".into()), options).unwrap();
        let good = open(&service, &path, 1);
        for _ in 0..3 {
            full.append(0, |out| out.extend_from_slice(b"lost"));
            good.append(0, |out| out.extend_from_slice(b"kept"));
        }
        assert!(service.flush(LIMIT));
        assert_eq!((full.dropped_lines(), told.load(Ordering::SeqCst)), (3, 3));
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept\nkept\nkept\n");
        assert_eq!(good.dropped_lines(), 0);
    }

    #[test]
    fn a_stalled_reader_costs_lines_but_never_blocks_and_memory_is_bounded() {
        let (reader, pipe) = io::pipe().unwrap();
        let path =
            PathBuf::from(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&pipe)));
        let service = LogService::start().unwrap();
        let sink = open(&service, &path, 1);
        let line = [b'x'; 1000];
        let lines = 3 * BUFFER_BYTES_MAX / line.len();
        for _ in 0..lines {
            sink.append(0, |out| out.extend_from_slice(&line));
        }
        assert!(sink.dropped_lines() > 0, "nobody reads, and yet everything was taken");
        assert!(!service.flush(Duration::from_millis(50)), "the writer is stuck, and we are not");
        drop((pipe, reader)); // the write fails now, and the thread goes on
        assert!(service.flush(LIMIT));
        let kept = lines - sink.dropped_lines() as usize;
        assert!((1..=65_536 / 1001).contains(&kept), "all lost but what the pipe held: {kept}");
    }

    #[test]
    fn nowhere_takes_no_memory_and_a_missing_directory_is_an_error() {
        let service = LogService::start().unwrap();
        let none = service.open(Destination::None, SinkOptions::default()).unwrap();
        assert!(none.is_none());
        none.append(0, |_| panic!("formatted for nobody"));
        let missing = Destination::File("/no-such-directory/a.log".into());
        assert_eq!(
            service.open(missing, SinkOptions::default()).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn a_log_nobody_uses_any_more_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let service = LogService::start().unwrap();
        let sink = open(&service, &dir.path().join("a.log"), 1);
        sink.append(0, |out| out.extend_from_slice(b"last words"));
        let weak = Arc::downgrade(&sink);
        drop(sink);
        assert!(service.flush(LIMIT));
        assert!(weak.upgrade().is_none());
        assert_eq!(fs::read_to_string(dir.path().join("a.log")).unwrap(), "last words\n");
    }
}
