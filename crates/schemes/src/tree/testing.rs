//! An engine for tests: operations wait until the test completes them, in an order, and with
//! failures, that a seed decides. And an executor that polls a task only when it was woken, so that
//! a lost wake-up is a test that hangs.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use rustix::io::Errno;

use super::blocking;
use super::dir::Unlinked;
use super::engine::{Closer, Engine, EngineError, File, Handle, Keep, OpenFor, Work};
use super::files::Tree;
use super::operation::Operation;

/// A small random generator.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// Chances of failures, in percent.
#[derive(Copy, Clone, Default)]
pub(crate) struct Faults {
    pub(crate) io_pct: usize,
    pub(crate) unlink_pct: usize,
    pub(crate) shed_pct: usize,
}

/// Carries out the operation, or fails with the given error.
type Job = Box<dyn FnOnce(Option<EngineError>) + Send>;

/// The engine.
pub(crate) struct Scripted {
    tree: Arc<Tree>,
    queue: Arc<Queue>,
}

struct Queue(Mutex<State>);

struct State {
    jobs: Vec<(Job, bool)>,
    dice: Dice,
    faults: Faults,
    is_closed: bool,
}

impl Queue {
    fn push(&self, is_unlink: bool, job: Job) {
        let mut state = self.0.lock();
        if state.is_closed {
            drop(state);
            return drop(job);
        }
        state.jobs.push((job, is_unlink));
    }
}

impl Closer for Queue {
    fn close(&self, file: File, keep: Keep) {
        self.push(
            false,
            Box::new(move |_| {
                drop(file);
                drop(keep);
            }),
        );
    }
}

impl Scripted {
    pub(crate) fn new(tree: Arc<Tree>, seed: u64, faults: Faults) -> Self {
        let state = State { jobs: Vec::new(), dice: Dice(seed), faults, is_closed: false };
        Self { tree, queue: Arc::new(Queue(Mutex::new(state))) }
    }

    /// Has one job done, any one; `false` if there is none.
    pub(crate) fn step(&self) -> bool {
        let mut state = self.queue.0.lock();
        let count = state.jobs.len();
        if count == 0 {
            return false;
        }
        let at = state.dice.below(count);
        let (job, is_unlink) = state.jobs.swap_remove(at);
        let pct = if is_unlink { state.faults.unlink_pct } else { state.faults.io_pct };
        let errors =
            [EngineError::System(Errno::IO), EngineError::System(Errno::NOSPC), EngineError::Gone];
        let error = (state.dice.below(100) < pct).then(|| errors[state.dice.below(errors.len())]);
        drop(state);
        job(error);
        true
    }

    /// No failures from now on, and all jobs done.
    pub(crate) fn calm_down(&self) {
        self.queue.0.lock().faults = Faults::default();
        while self.step() {}
    }

    fn submit<T: Send + 'static>(
        &self,
        may_be_shed: bool,
        work: impl FnOnce(Option<EngineError>) -> Result<T, EngineError> + Send + 'static,
    ) -> Operation<T> {
        {
            let mut state = self.queue.0.lock();
            let pct = state.faults.shed_pct;
            if may_be_shed && state.dice.below(100) < pct {
                return Operation::done(Err(EngineError::Shed));
            }
        }
        let (completer, operation) = Operation::under_way();
        self.queue.push(false, Box::new(move |error| completer.complete(work(error))));
        operation
    }
}

fn or<T>(
    error: Option<EngineError>,
    work: impl FnOnce() -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    error.map_or_else(work, Err)
}

impl Engine for Scripted {
    fn admits(&self) -> bool {
        true
    }

    fn load(&self) -> u16 {
        0
    }

    fn read_file(&self, number: u32, len: usize) -> Operation<Vec<u8>> {
        let tree = Arc::clone(&self.tree);
        self.submit(true, move |error| or(error, || blocking::read_file(&tree, number, len)))
    }

    /// A failed write has written a part, or all of it.
    fn write_file(&self, number: u32, bytes: Vec<u8>, keep: Keep) -> Operation<()> {
        let tree = Arc::clone(&self.tree);
        self.submit(true, move |error| {
            let part = if error == Some(EngineError::System(Errno::NOSPC)) {
                bytes.len() / 2
            } else {
                bytes.len()
            };
            let outcome = blocking::write_file(&tree, number, &bytes[..part]);
            drop(keep);
            or(error, || outcome)
        })
    }

    fn open(&self, number: u32, purpose: OpenFor, keep: Keep) -> Operation<Handle> {
        let (tree, closer) = (Arc::clone(&self.tree), Arc::clone(&self.queue));
        self.submit(true, move |error| {
            or(error, || {
                Ok(Handle::new(blocking::open(&tree, number, purpose)?, keep, Some(closer)))
            })
        })
    }

    fn read(
        &self,
        handle: &Handle,
        offset: u64,
        len: usize,
        buffer: Vec<u8>,
    ) -> Operation<Vec<u8>> {
        let handle = handle.clone();
        self.submit(true, move |error| {
            or(error, || blocking::read_buffer(&handle, offset, len, buffer))
        })
    }

    fn write(&self, handle: &Handle, offset: u64, mut bytes: Vec<u8>) -> Operation<Vec<u8>> {
        let handle = handle.clone();
        self.submit(true, move |error| {
            bytes.truncate(if error.is_some() { bytes.len() / 2 } else { bytes.len() });
            let outcome = blocking::write_buffer(&handle, offset, bytes);
            or(error, || outcome)
        })
    }

    fn unlink(&self, number: u32, then: Unlinked) {
        let tree = Arc::clone(&self.tree);
        self.queue
            .push(true, Box::new(move |error| then.done(or(error, || Ok(tree.unlink(number)?)))));
    }

    fn unlinks_are_full(&self) -> bool {
        self.queue.0.lock().jobs.len() > 200
    }

    fn later(&self, work: Work) -> Operation<()> {
        self.submit(false, move |error| or(error, work))
    }

    fn close(&self) {
        self.calm_down();
        self.queue.0.lock().is_closed = true;
    }

    fn stop(&self) {
        let undone = {
            let mut state = self.queue.0.lock();
            state.is_closed = true;
            std::mem::take(&mut state.jobs)
        };
        drop(undone);
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// A task of the executor.
pub(crate) struct Task<'a> {
    future: Pin<Box<dyn Future<Output = ()> + 'a>>,
    woken: Arc<Woken>,
    has_ended: bool,
}

impl<'a> Task<'a> {
    pub(crate) fn new(future: impl Future<Output = ()> + 'a) -> Self {
        Self {
            future: Box::pin(future),
            woken: Arc::new(Woken(AtomicBool::new(true))),
            has_ended: false,
        }
    }

    /// Polls it if it was woken; `None` if it was not, else whether it has ended.
    pub(crate) fn poll(&mut self) -> Option<bool> {
        if !self.woken.0.swap(false, Ordering::AcqRel) {
            return None;
        }
        let waker = Waker::from(Arc::clone(&self.woken));
        self.has_ended =
            self.future.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(());
        Some(self.has_ended)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }
}

/// Runs one future to its end.
pub(crate) fn finish<T>(engine: &Scripted, future: impl Future<Output = T>) -> T {
    let mut output = None;
    let mut task = Task::new(async { output = Some(future.await) });
    loop {
        match task.poll() {
            Some(true) => break,
            Some(false) => {}
            None => assert!(engine.step(), "it waits, and nothing is under way"),
        }
    }
    drop(task);
    output.expect("it has ended")
}
