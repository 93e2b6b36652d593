//! Tasks and their wakers in a model.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::sync::{Condvar, Mutex};

/// A waker of the model: a task that waits for it and is not woken waits for ever, which the model
/// reports.
#[derive(Debug)]
pub struct Bell {
    rings: Mutex<usize>,
    rung: Condvar,
}

impl Bell {
    /// One that has not been rung. Only inside a model.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { rings: Mutex::new(0), rung: Condvar::new() })
    }

    /// The waker that rings it.
    pub fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// How often it was rung since it was last asked.
    ///
    /// # Panics
    /// If a thread has panicked.
    pub fn take(&self) -> usize {
        std::mem::take(&mut *self.rings.lock().expect("no panic under the lock"))
    }

    /// Waits until it is rung.
    ///
    /// # Panics
    /// If a thread has panicked.
    pub fn wait(&self) {
        let mut rings = self.rings.lock().expect("no panic under the lock");
        while *rings == 0 {
            rings = self.rung.wait(rings).expect("no panic under the lock");
        }
        *rings = 0;
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.rings.lock().expect("no panic under the lock") += 1;
        self.rung.notify_one();
    }
}

/// Runs a task to its end. It is polled only when it has been woken.
pub fn block_on<F: Future>(task: F) -> F::Output {
    let mut task = pin!(task);
    let bell = Bell::new();
    let waker = bell.waker();
    let mut context = Context::from_waker(&waker);
    loop {
        match task.as_mut().poll(&mut context) {
            Poll::Ready(result) => return result,
            Poll::Pending => bell.wait(),
        }
    }
}
