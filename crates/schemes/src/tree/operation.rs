//! The immediate result of an engine: the outcome of an operation, or a place where it will appear.
//!
//! An operation owns everything that it needs. So its future may be dropped at any time: the
//! operation then ends by itself, and its completer drops the outcome.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use rustix::io::Errno;

use humboldt_runtime::mailbox::Waiting;

use crate::overload::Turns;

/// Why an operation was not done.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum EngineError {
    /// The operating system refused.
    System(Errno),
    /// The file ends before the requested bytes.
    Short,
    /// Too much is waiting already; nothing was begun.
    Shed,
    /// The engine is closed, or its thread or process has died. Whether the operation was done is
    /// not known, but it is not under way any more.
    Gone,
}

impl From<Errno> for EngineError {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

/// An operation that is done, or under way.
pub(crate) struct Operation<T>(State<T>);

enum State<T> {
    Done(Option<Result<T, EngineError>>),
    UnderWay(Ticket<T>),
}

/// The side that waits.
struct Ticket<T>(Arc<Shared<T>>);

/// The side that does the work. If dropped, the outcome is [`EngineError::Gone`].
pub(crate) struct Completer<T>(Option<Arc<Shared<T>>>);

/// The state of both sides.
struct Shared<T> {
    progress: Mutex<Progress<T>>,
    /// Grows when the operation is given up before it is done.
    given_up: Option<Arc<AtomicUsize>>,
    _counted: Option<Counted>,
}

/// One in a count, until it is dropped.
pub(crate) struct Counted {
    count: Arc<AtomicUsize>,
    /// Those who may have their turn once the count is no higher than this.
    told: Option<(Arc<Turns>, usize)>,
}

enum Progress<T> {
    Waiting(Option<Waiting>),
    Done(Option<Result<T, EngineError>>),
    /// Nobody waits any more.
    Abandoned,
}

impl Counted {
    /// Adds one to `count`, until it is dropped.
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self { count: Arc::clone(count), told: None }
    }

    /// The same. With its end the line of `turns` is looked at, if there were more than `from`.
    pub(crate) fn telling(count: &Arc<AtomicUsize>, turns: &Arc<Turns>, from: usize) -> Self {
        let mut counted = Self::new(count);
        counted.told = Some((Arc::clone(turns), from));
        counted
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let before = self.count.fetch_sub(1, Ordering::Relaxed);
        if let Some((turns, from)) = &self.told
            && before > *from
        {
            turns.look();
        }
    }
}

impl<T> Operation<T> {
    /// An operation that is done already.
    pub(crate) fn done(outcome: Result<T, EngineError>) -> Self {
        Self(State::Done(Some(outcome)))
    }

    /// An operation, and its completer, which works from any thread.
    pub(crate) fn under_way() -> (Completer<T>, Self) {
        Self::pair(None, None)
    }

    /// The same, counted until it is done and the operation was dropped: outcomes that were not
    /// fetched take memory like operations.
    pub(crate) fn counted(counted: Counted) -> (Completer<T>, Self) {
        Self::pair(Some(counted), None)
    }

    /// The same; `given_up` grows if nobody waits any more before it is done.
    pub(crate) fn read(
        counted: Option<Counted>,
        given_up: &Arc<AtomicUsize>,
    ) -> (Completer<T>, Self) {
        Self::pair(counted, Some(Arc::clone(given_up)))
    }

    fn pair(counted: Option<Counted>, given_up: Option<Arc<AtomicUsize>>) -> (Completer<T>, Self) {
        let progress = Mutex::new(Progress::Waiting(None));
        let shared = Arc::new(Shared { progress, given_up, _counted: counted });
        (Completer(Some(Arc::clone(&shared))), Self(State::UnderWay(Ticket(shared))))
    }
}

impl<T> Unpin for Operation<T> {}

impl<T> Future for Operation<T> {
    type Output = Result<T, EngineError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ticket = match &mut self.0 {
            State::Done(outcome) => {
                return Poll::Ready(outcome.take().unwrap_or(Err(EngineError::Gone)));
            }
            State::UnderWay(ticket) => ticket,
        };
        match &mut *ticket.0.progress.lock() {
            Progress::Waiting(waiting) => {
                match waiting {
                    Some(waiting) if waiting.is_of(context) => {}
                    _ => *waiting = Some(Waiting::of(context)),
                }
                Poll::Pending
            }
            Progress::Done(outcome) => {
                Poll::Ready(outcome.take().unwrap_or(Err(EngineError::Gone)))
            }
            Progress::Abandoned => Poll::Ready(Err(EngineError::Gone)),
        }
    }
}

impl<T> Drop for Ticket<T> {
    fn drop(&mut self) {
        // The former value is dropped after the lock: its drop may call the engine.
        let before = std::mem::replace(&mut *self.0.progress.lock(), Progress::Abandoned);
        if let (Progress::Waiting(_), Some(given_up)) = (&before, &self.0.given_up) {
            given_up.fetch_add(1, Ordering::Relaxed);
        }
        drop(before);
    }
}

impl<T> Completer<T> {
    /// Whether no task waits any more, so that a mere question need not be answered.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.as_ref().is_none_or(|shared| matches!(*shared.progress.lock(), Progress::Abandoned))
    }

    /// The question whether a task waits, for the one who keeps the operation in a queue.
    pub(crate) fn interest(&self) -> Box<dyn Fn() -> bool + Send>
    where
        T: Send + 'static,
    {
        let shared = self.0.as_ref().map(Arc::downgrade);
        Box::new(move || {
            let shared = shared.as_ref().and_then(Weak::upgrade);
            shared.is_some_and(|shared| !matches!(*shared.progress.lock(), Progress::Abandoned))
        })
    }

    /// Gives the outcome to the waiting task; drops it if there is none.
    pub(crate) fn complete(mut self, outcome: Result<T, EngineError>) {
        self.finish(outcome);
    }

    fn finish(&mut self, outcome: Result<T, EngineError>) {
        let Some(shared) = self.0.take() else { return };
        let mut guard = shared.progress.lock();
        if let Progress::Waiting(waiting) = &mut *guard {
            let waiting = waiting.take();
            *guard = Progress::Done(Some(outcome));
            drop(guard);
            if let Some(waiting) = waiting {
                waiting.wake();
            }
        }
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        self.finish(Err(EngineError::Gone));
    }
}

/// The output of a future whose engine does everything at once; `None` if it waits nevertheless.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    let future = std::pin::pin!(future);
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_arrive_or_are_dropped_by_the_one_who_completes() {
        assert!(matches!(at_once(Operation::done(Ok(5))), Some(Ok(5))));
        let (completer, mut operation) = Operation::under_way();
        assert!(at_once(&mut operation).is_none() && !completer.is_abandoned());
        completer.complete(Ok(7));
        assert!(matches!(at_once(&mut operation), Some(Ok(7))));

        let (completer, operation) = Operation::<u8>::under_way();
        drop(completer);
        assert!(matches!(at_once(operation), Some(Err(EngineError::Gone))));

        let count = Arc::new(());
        let (completer, operation) = Operation::under_way();
        drop(operation);
        assert!(completer.is_abandoned());
        completer.complete(Ok(Arc::clone(&count)));
        let (completer, operation) = Operation::under_way();
        completer.complete(Ok(Arc::clone(&count)));
        drop(operation);
        assert_eq!(Arc::strong_count(&count), 1, "nothing is kept");
    }
}
