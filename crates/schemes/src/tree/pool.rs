//! Threads for work that may block.
//!
//! Three queues: reads, for which clients wait; writes, of answers that clients have already; and
//! chores, for which nothing waits (unlinking, closing, the log). Writes and chores are *changes*.
//! On a slow disk a change may take as long as the system needs to write what others have changed,
//! while most reads come from the page cache. So changes never occupy all threads
//! ([`changes_max`]), and reads go first, but for a change in [`CHANGE_EVERY`] jobs. Writes and
//! chores take turns: a full directory needs one unlink for each write, and if unlinks fell behind,
//! writes would wait for room. Threads are started when there is work for them, and not before.
//!
//! One sleeping thread is woken at a time; it wakes the next if there is more to do than its own
//! job. So where the first one gets on quickly it does several jobs, and where it has to wait for
//! the disk, others follow at once.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use humboldt_sys::give_back;
use parking_lot::{Condvar, Mutex};

/// Something to be done. Dropped undone when the pool is stopped, or has no thread and cannot start
/// one.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Whether a task still waits for a job. Asked with the pool locked.
pub(crate) type IsWanted = Box<dyn Fn() -> bool + Send>;

/// At least one job in this many is a change, while there are changes and threads for them.
const CHANGE_EVERY: u32 = 4;

/// One thread in this many, and at least one of several, does nothing but read.
const READER_EVERY: usize = 4;

/// Room for the calls of a thread: system calls, and messages when they fail.
const STACK_BYTES: usize = 256 * 1024;

/// A pool of threads. They end when it is closed or stopped; its creator must do one of both.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    name: &'static str,
    threads_max: usize,
}

struct Shared {
    state: Mutex<State>,
    has_work: Condvar,
    /// Chores that wait or are being done.
    chores: AtomicUsize,
    /// Reads that were given up since those were dropped for which nobody waits.
    given_up: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    reads: VecDeque<(Job, IsWanted)>,
    writes: VecDeque<Job>,
    chores: VecDeque<Job>,
    /// Changes that are being done.
    changing: usize,
    changes_max: usize,
    threads: Vec<JoinHandle<()>>,
    /// Threads that wait for work, and the one that was woken and does not run yet.
    sleeping: usize,
    /// Whether a thread is waking up.
    is_waking: bool,
    /// Jobs since the last change.
    since_change: u32,
    /// The last change was a write.
    was_write: bool,
    /// Nothing is taken on any more; threads end when nothing is left.
    is_closed: bool,
}

#[derive(Copy, Clone)]
enum Queue {
    Reads,
    Writes,
    Chores,
}

impl Queue {
    fn is_change(self) -> bool {
        !matches!(self, Self::Reads)
    }
}

/// Most of `threads_max` threads that write or do chores at one time.
fn changes_max(threads_max: usize) -> usize {
    match threads_max {
        0 | 1 => 1,
        several => several - (several / READER_EVERY).max(1),
    }
}

impl Pool {
    /// A pool of at most `threads_max` threads called `name`; none of them exists yet.
    pub(crate) fn new(name: &'static str, threads_max: usize) -> Self {
        let state = State { changes_max: changes_max(threads_max), ..State::default() };
        let shared = Shared {
            state: Mutex::new(state),
            has_work: Condvar::new(),
            chores: AtomicUsize::new(0),
            given_up: Arc::default(),
        };
        Self { shared: Arc::new(shared), name, threads_max: threads_max.max(1) }
    }

    /// Chores that wait or are being done.
    pub(crate) fn chores(&self) -> usize {
        self.shared.chores.load(Ordering::Relaxed)
    }

    /// Takes on a job that only reads. Once it is not wanted any more it need not be done.
    pub(crate) fn read(&self, job: Job, is_wanted: IsWanted) {
        self.submit(Queue::Reads, job, Some(is_wanted));
    }

    /// Counts reads that are given up.
    pub(crate) fn given_up(&self) -> &Arc<AtomicUsize> {
        &self.shared.given_up
    }

    /// Drops reads that nobody waits for, as far as they have not begun, if at least `least` were
    /// given up since the last time: the threads stand still while all reads are looked at.
    pub(crate) fn forget_unwanted(&self, least: usize) {
        if self.shared.given_up.load(Ordering::Relaxed) < least.max(1) {
            return;
        }
        self.shared.given_up.store(0, Ordering::Relaxed);
        let mut state = self.shared.state.lock();
        let reads = std::mem::take(&mut state.reads);
        let (kept, unwanted): (VecDeque<_>, VecDeque<_>) =
            reads.into_iter().partition(|(_, is_wanted)| is_wanted());
        state.reads = kept;
        drop(state);
        drop(unwanted); // they may have something to say to the engine
    }

    /// Takes on a job that writes, and for which a task waits.
    pub(crate) fn write(&self, job: Job) {
        self.submit(Queue::Writes, job, None);
    }

    /// Takes on a job for which nothing waits.
    pub(crate) fn chore(&self, job: Job) {
        self.submit(Queue::Chores, job, None);
    }

    fn submit(&self, queue: Queue, job: Job, is_wanted: Option<IsWanted>) {
        let mut state = self.shared.state.lock();
        if state.is_closed {
            drop(state);
            return drop(job); // it may have something to say to the engine, so not under the lock
        }
        if let Queue::Chores = queue {
            self.shared.chores.fetch_add(1, Ordering::Relaxed);
        }
        match queue {
            Queue::Reads => {
                state.reads.push_back((job, is_wanted.unwrap_or_else(|| Box::new(|| true))));
            }
            Queue::Writes => state.writes.push_back(job),
            Queue::Chores => state.chores.push_back(job),
        }
        if state.ready() > state.sleeping && state.threads.len() < self.threads_max {
            self.start_thread(state);
        } else if state.ready() > 0 {
            self.shared.wake_one(&mut state);
        }
    }

    fn start_thread(&self, mut state: parking_lot::MutexGuard<'_, State>) {
        let shared = Arc::clone(&self.shared);
        let builder =
            std::thread::Builder::new().name(self.name.to_owned()).stack_size(STACK_BYTES);
        match builder.spawn(move || {
            _ = give_back::keep_no_freed_blocks();
            shared.work();
        }) {
            Ok(thread) => state.threads.push(thread),
            Err(error) if state.threads.is_empty() => {
                tracing::warn!("cannot start a thread '{}': {error}", self.name);
                let undone = self.shared.take_all(&mut state);
                drop(state);
                drop(undone);
            }
            Err(_) => {} // those that there are will do it
        }
    }

    /// Takes nothing on any more, and waits until all is done. Not to be called on a thread of the
    /// pool.
    pub(crate) fn close(&self) {
        let threads = {
            let mut state = self.shared.state.lock();
            state.is_closed = true;
            std::mem::take(&mut state.threads)
        };
        self.shared.has_work.notify_all();
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread '{}' has failed", self.name);
            }
        }
    }

    /// The same, but waiting jobs are dropped undone.
    pub(crate) fn stop(&self) {
        let undone = {
            let mut state = self.shared.state.lock();
            state.is_closed = true;
            self.shared.take_all(&mut state)
        };
        drop(undone);
        self.close();
    }
}

impl State {
    fn pop(&mut self, queue: Queue) -> Option<Job> {
        match queue {
            Queue::Reads => self.reads.pop_front().map(|(job, _)| job),
            Queue::Writes => self.writes.pop_front(),
            Queue::Chores => self.chores.pop_front(),
        }
    }

    /// Waiting jobs that may begin now.
    fn ready(&self) -> usize {
        let changes = self.writes.len() + self.chores.len();
        self.reads.len() + changes.min(self.changes_max.saturating_sub(self.changing))
    }

    fn next(&mut self) -> Option<(Queue, Job)> {
        let changes = match self.was_write {
            true => [Queue::Chores, Queue::Writes],
            false => [Queue::Writes, Queue::Chores],
        };
        let is_changes_turn = self.since_change + 1 >= CHANGE_EVERY;
        let order = match (self.changing < self.changes_max, is_changes_turn) {
            (false, _) => [Some(Queue::Reads), None, None],
            (true, true) => [Some(changes[0]), Some(changes[1]), Some(Queue::Reads)],
            (true, false) => [Some(Queue::Reads), Some(changes[0]), Some(changes[1])],
        };
        let mut order = order.into_iter().flatten();
        let (queue, job) = order.find_map(|queue| self.pop(queue).map(|job| (queue, job)))?;
        if queue.is_change() {
            self.changing += 1;
            self.since_change = 0;
            self.was_write = matches!(queue, Queue::Writes);
        } else {
            self.since_change = self.since_change.saturating_add(1);
        }
        Some((queue, job))
    }
}

impl Shared {
    /// Wakes a sleeping thread, unless one is waking up.
    fn wake_one(&self, state: &mut State) {
        if state.sleeping > 0 && !state.is_waking {
            state.is_waking = self.has_work.notify_one();
        }
    }

    /// All jobs that wait, to be dropped without the lock.
    fn take_all(&self, state: &mut State) -> Vec<Job> {
        self.chores.fetch_sub(state.chores.len(), Ordering::Relaxed);
        let mut all: Vec<Job> = state.reads.drain(..).map(|(job, _)| job).collect();
        all.extend(state.writes.drain(..));
        all.extend(state.chores.drain(..));
        all
    }

    /// The life of a thread.
    fn work(&self) {
        humboldt_sys::signal_mask::block_all_signals();
        // Nothing depends on it.
        _ = humboldt_sys::cpu::work_in_batches();
        loop {
            let (queue, job) = {
                let mut state = self.state.lock();
                loop {
                    if let Some(next) = state.next() {
                        if state.ready() > 0 {
                            self.wake_one(&mut state);
                        }
                        break next;
                    }
                    if state.is_closed {
                        return;
                    }
                    state.sleeping += 1;
                    self.has_work.wait(&mut state);
                    state.sleeping -= 1;
                    state.is_waking = false;
                }
            };
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("an operation on a cache_dir has failed");
            }
            if let Queue::Chores = queue {
                self.chores.fetch_sub(1, Ordering::Relaxed);
            }
            if queue.is_change() {
                self.state.lock().changing -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    /// Far longer than anything here takes.
    const LIMIT: Duration = Duration::from_secs(20);

    fn wanted() -> IsWanted {
        Box::new(|| true)
    }

    /// A job that waits for its signal.
    fn held(order: &mpsc::Sender<u32>, number: u32) -> (mpsc::Sender<()>, Job) {
        let (release, held) = mpsc::channel();
        let order = order.clone();
        let job = move || {
            let _ = held.recv();
            order.send(number).expect("the test listens");
        };
        (release, Box::new(job))
    }

    #[test]
    fn reads_go_first_and_changes_are_not_forgotten() {
        let pool = Pool::new("test", 1);
        assert_eq!(pool.shared.state.lock().threads.len(), 0, "no thread without work");
        let (order, done) = mpsc::channel();
        let (release, first) = held(&order, 0);
        pool.read(first, wanted());
        for number in 1..=8 {
            let order = order.clone();
            let job = Box::new(move || order.send(number).expect("the test listens"));
            match number {
                1 | 2 => pool.chore(job),
                3 | 4 => pool.write(job),
                _ => pool.read(job, wanted()),
            }
        }
        assert_eq!(pool.chores(), 2);
        release.send(()).expect("held");
        pool.close();
        assert_eq!(done.try_iter().collect::<Vec<_>>(), [0, 5, 6, 3, 7, 8, 1, 4, 2]);
        assert_eq!(pool.chores(), 0);
        pool.read(Box::new(|| panic!("taken on after the end")), wanted());
    }

    #[test]
    fn threads_keep_no_freed_blocks() {
        let pool = Pool::new("test", 1);
        let (told, kept) = mpsc::channel();
        let ask = move || told.send(give_back::keep_no_freed_blocks()).expect("the test listens");
        pool.chore(Box::new(ask));
        pool.close();
        assert_eq!(kept.recv(), Ok(false));
    }

    #[test]
    fn changes_leave_threads_for_reads() {
        assert_eq!([1, 2, 3, 4, 16, 256].map(changes_max), [1, 1, 2, 3, 12, 192]);
        let pool = Pool::new("test", 4);
        let (order, done) = mpsc::channel();
        let held: Vec<_> = (0..6)
            .map(|number| {
                let (release, job) = held(&order, number);
                if number % 2 == 0 {
                    pool.write(job)
                } else {
                    pool.chore(job)
                }
                release
            })
            .collect();
        let changing = || pool.shared.state.lock().changing;
        let deadline = Instant::now() + LIMIT;
        while changing() < 3 {
            assert!(Instant::now() < deadline, "three changes at a time");
            std::thread::yield_now();
        }
        let read = order.clone();
        pool.read(Box::new(move || read.send(9).expect("the test listens")), wanted());
        assert_eq!(done.recv_timeout(LIMIT), Ok(9), "while all changes are held");
        assert_eq!(changing(), 3, "no more than three");
        drop(held);
        let mut changes: Vec<_> = done.iter().take(6).collect();
        changes.sort_unstable();
        assert_eq!(changes, [0, 1, 2, 3, 4, 5]);
        pool.close();
        assert_eq!(changing(), 0);
    }

    #[test]
    fn as_many_threads_as_there_is_work_up_to_the_bound() {
        let pool = Pool::new("test", 3);
        let (order, done) = mpsc::channel();
        let held: Vec<_> = (0..5)
            .map(|number| {
                let (release, job) = held(&order, number);
                pool.read(job, wanted());
                release
            })
            .collect();
        assert_eq!(pool.shared.state.lock().threads.len(), 3);
        held[2].send(()).expect("held");
        assert_eq!(done.recv(), Ok(2), "three at a time");
        drop(held);
        pool.close();
    }

    #[test]
    fn all_that_sleep_are_woken_for_as_much_work() {
        let pool = Pool::new("test", 3);
        let (order, done) = mpsc::channel();
        let begun: Vec<_> = (0..3)
            .map(|number| {
                let (release, job) = held(&order, number);
                pool.read(job, wanted());
                release
            })
            .collect();
        drop(begun);
        assert_eq!(done.iter().take(3).count(), 3);
        while pool.shared.state.lock().sleeping < 3 {
            std::thread::yield_now();
        }
        let (begins, has_begun) = mpsc::channel();
        let begun: Vec<_> = (0..3)
            .map(|number| {
                let (release, job) = held(&order, number);
                let begins = begins.clone();
                pool.read(
                    Box::new(move || {
                        begins.send(()).expect("the test listens");
                        job();
                    }),
                    wanted(),
                );
                release
            })
            .collect();
        for _ in 0..3 {
            has_begun.recv_timeout(LIMIT).expect("all three at a time");
        }
        drop(begun);
        pool.close();
    }

    #[test]
    fn a_stop_drops_what_waits_and_ends_what_is_being_done() {
        let pool = Pool::new("test", 1);
        let (order, done) = mpsc::channel();
        let (release, first) = held(&order, 0);
        let (started, has_started) = mpsc::channel();
        pool.read(
            Box::new(move || {
                started.send(()).expect("the test listens");
                first();
            }),
            wanted(),
        );
        has_started.recv().expect("the first runs");
        pool.read(held(&order, 1).1, wanted());
        pool.chore(held(&order, 2).1);
        release.send(()).expect("held");
        pool.stop();
        drop(order);
        assert_eq!(done.iter().collect::<Vec<_>>()[..1], [0]);
        assert_eq!(pool.chores(), 0);
    }

    #[test]
    fn its_threads_get_no_signals() {
        let pool = Pool::new("test", 1);
        let (status, done) = mpsc::channel();
        pool.read(
            Box::new(move || {
                let text = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
                status.send(text).expect("the test listens");
            }),
            wanted(),
        );
        let status = done.recv().expect("the job runs");
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("a mask");
        let blocked = u64::from_str_radix(blocked.trim(), 16).expect("hexadecimal");
        let signals = [
            libc_signal::HUP,
            libc_signal::INT,
            libc_signal::USR1,
            libc_signal::TERM,
            libc_signal::CHLD,
        ];
        assert!(signals.into_iter().all(|number| blocked >> (number - 1) & 1 == 1), "{blocked:x}");
        pool.close();
    }

    /// Numbers of signals on Linux.
    mod libc_signal {
        pub(super) const HUP: u32 = 1;
        pub(super) const INT: u32 = 2;
        pub(super) const USR1: u32 = 10;
        pub(super) const TERM: u32 = 15;
        pub(super) const CHLD: u32 = 17;
    }

    #[test]
    fn a_job_that_panics_costs_no_thread() {
        let pool = Pool::new("test", 1);
        pool.read(Box::new(|| panic!("as it should")), wanted());
        let (order, done) = mpsc::channel();
        pool.read(Box::new(move || order.send(1).expect("the test listens")), wanted());
        assert_eq!(done.recv(), Ok(1));
        pool.close();
    }
}
