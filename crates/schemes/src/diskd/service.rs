//! The helper as the rest of the scheme sees it: hand in calls, stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use super::call::Call;
use super::exchange::{Exchange, Phase};
use super::keeper::Keeper;

/// The helper of one directory. Started when it is needed first.
pub(super) struct Service {
    pub(super) exchange: Arc<Exchange>,
    end_limit: Duration,
    is_started: AtomicBool,
    keeper: Mutex<Thread>,
}

enum Thread {
    Wanted(Box<Keeper>),
    Running(JoinHandle<()>),
    None,
}

impl Service {
    pub(super) fn new(keeper: Keeper) -> Self {
        Self {
            exchange: Arc::clone(&keeper.exchange),
            end_limit: keeper.pace.end_limit,
            is_started: AtomicBool::new(false),
            keeper: Mutex::new(Thread::Wanted(Box::new(keeper))),
        }
    }

    /// Hands in a call.
    pub(super) fn submit(&self, call: Call) {
        if !self.is_started.load(Ordering::Acquire) {
            self.start();
        }
        self.exchange.submit(call);
    }

    #[cold]
    fn start(&self) {
        let mut thread = self.keeper.lock();
        if !matches!(*thread, Thread::Wanted(_)) {
            return; // another core was faster
        }
        let Thread::Wanted(keeper) = std::mem::replace(&mut *thread, Thread::None) else { return };
        let path = keeper.path.clone();
        match keeper.start() {
            Ok(handle) => *thread = Thread::Running(handle),
            Err(error) => {
                tracing::error!(
                    "{}: cannot start a thread for diskd: {error}; not used",
                    path.display()
                );
                self.exchange.enter(Phase::Gone);
            }
        }
        self.is_started.store(true, Ordering::Release);
    }

    /// Ends helper and threads. Operations under way have `drain` to finish, and fail then. Blocks.
    /// A helper that the system does not let end (a disk that hangs) is left behind after 2 ×
    /// `end_limit`.
    pub(super) fn stop(&self, drain: Duration) {
        let thread = std::mem::replace(&mut *self.keeper.lock(), Thread::None);
        let Thread::Running(thread) = thread else {
            self.exchange.enter(Phase::Gone);
            return;
        };
        self.exchange.enter(Phase::Closing);
        self.exchange.wait_until_quiet(drain);
        self.exchange.enter(Phase::Closed);
        let link = self.exchange.link();
        link.iter().for_each(|link| link.remove_queues());
        self.exchange.wait_for_phase(Phase::Gone, self.end_limit);
        if self.exchange.phase() != Phase::Gone {
            tracing::warn!("the diskd helper does not end; it is killed");
            link.iter().for_each(|link| link.cut());
            self.exchange.wait_for_phase(Phase::Gone, self.end_limit);
        }
        if self.exchange.phase() == Phase::Gone {
            let _ = thread.join();
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}
