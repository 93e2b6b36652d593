//! A thread for what may block and is not the helper's: writing the swap log, choosing what is evicted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;

use humboldt_sys::signal_mask;
use parking_lot::{Condvar, Mutex};

use crate::tree::{Completer, EngineError, Operation, Work};

/// Most work that waits. There is one round of housekeeping at a time, and one write of the log for each removal under way.
const QUEUE_MAX: usize = 65_536;

/// Stack of the thread.
const STACK_BYTES: usize = 256 * 1024;

/// The thread, started with the first work.
#[derive(Default)]
pub(super) struct Worker {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Work, Completer<()>)>,
    is_started: bool,
    is_closed: bool,
}

impl Worker {
    /// Does `work` after all that was given before.
    pub(super) fn submit(&self, work: Work) -> Operation<()> {
        let (completer, operation) = Operation::under_way();
        let mut queue = self.shared.queue.lock();
        let refusal = match () {
            () if queue.is_closed => Some(EngineError::Gone),
            () if queue.waiting.len() >= QUEUE_MAX => Some(EngineError::Shed),
            () => None,
        };
        if let Some(refusal) = refusal {
            drop(queue);
            completer.complete(Err(refusal));
            return operation;
        }
        queue.waiting.push_back((work, completer));
        let is_first = !std::mem::replace(&mut queue.is_started, true);
        drop(queue);
        self.shared.changed.notify_one();
        if is_first {
            self.start();
        }
        operation
    }

    fn start(&self) {
        let shared = Arc::clone(&self.shared);
        let builder = std::thread::Builder::new().name("diskd log".to_owned()).stack_size(STACK_BYTES);
        let mut thread = self.thread.lock();
        match builder.spawn(move || shared.work()) {
            Ok(handle) => *thread = Some(handle),
            Err(error) => {
                tracing::error!("cannot start a thread for the swap log: {error}; tried again");
                let mut queue = self.shared.queue.lock();
                queue.is_started = false;
                let waiting = std::mem::take(&mut queue.waiting);
                drop(queue);
                drop(waiting); // fails what waits
            }
        }
    }

    /// Takes nothing any more, and returns when all is done that was taken.
    pub(super) fn close(&self) {
        self.shared.queue.lock().is_closed = true;
        self.shared.changed.notify_all();
        let thread = self.thread.lock().take();
        // The last one to let go of a directory may be this thread itself.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn work(&self) {
        signal_mask::block_control_signals();
        let mut queue = self.queue.lock();
        loop {
            match queue.waiting.pop_front() {
                Some((work, completer)) => {
                    drop(queue);
                    completer.complete(work());
                    queue = self.queue.lock();
                }
                None if queue.is_closed => return,
                None => self.changed.wait(&mut queue),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::battery::run;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn work_is_done_in_order_also_if_nobody_waits_and_before_the_end() {
        let worker = Worker::default();
        let count = Arc::new(AtomicU32::new(0));
        for number in 0..100 {
            let count = Arc::clone(&count);
            drop(worker.submit(Box::new(move || {
                assert_eq!(count.fetch_add(1, Ordering::SeqCst), number);
                Ok(())
            })));
        }
        assert_eq!(run(worker.submit(Box::new(|| Err(EngineError::Short)))), Err(EngineError::Short));
        assert_eq!(count.load(Ordering::SeqCst), 100);
        let late = Arc::clone(&count);
        drop(worker.submit(Box::new(move || {
            late.store(7, Ordering::SeqCst);
            Ok(())
        })));
        worker.close();
        assert_eq!(count.load(Ordering::SeqCst), 7);
        assert_eq!(run(worker.submit(Box::new(|| Ok(())))), Err(EngineError::Gone));
        Worker::default().close();
    }

    #[test]
    fn more_than_the_bound_is_refused() {
        let worker = Worker::default();
        let held = Arc::new(Mutex::new(()));
        let hold = held.lock();
        let waiting = Arc::clone(&held);
        drop(worker.submit(Box::new(move || {
            drop(waiting.lock());
            Ok(())
        })));
        for _ in 0..QUEUE_MAX {
            drop(worker.submit(Box::new(|| Ok(()))));
        }
        let outcomes: Vec<_> = (0..2).map(|_| worker.submit(Box::new(|| Ok(())))).collect();
        drop(hold);
        // One may have been taken already when the others came.
        assert_eq!(outcomes.into_iter().map(run).next_back(), Some(Err(EngineError::Shed)));
    }
}
