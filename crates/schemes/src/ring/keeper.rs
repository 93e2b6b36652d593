//! When the thread that keeps house works.

use parking_lot::Mutex;

use crate::simulated::{Background, Bell};

/// A checkpoint that failed is tried again after one round of upkeep, two, four, and at most this
/// many.
const PATIENCE_ROUNDS_MAX: u32 = 64;

/// When the keeper works, and its thread.
#[derive(Default)]
pub(crate) struct Keeper {
    pub(super) orders: Mutex<Orders>,
    pub(crate) given: Bell,
    pub(super) thread: Mutex<Option<Background>>,
    patience: Mutex<Patience>,
}

/// Checkpoints that fail are not tried again at once: each writes the whole index.
#[derive(Default)]
struct Patience {
    /// Rounds of housekeeping until the next try.
    rounds: u32,
    /// The number of rounds the last time.
    last_rounds: u32,
}

#[derive(Default)]
pub(super) struct Orders {
    pub(super) is_wanted: bool,
    pub(super) is_working: bool,
    pub(super) stop: bool,
}

impl Keeper {
    pub(super) fn wake(&self) {
        self.orders.lock().is_wanted = true;
        self.given.ring();
    }

    /// A round of housekeeping has begun.
    pub(crate) fn be_patient(&self) {
        let mut patience = self.patience.lock();
        patience.rounds = patience.rounds.saturating_sub(1);
    }

    pub(super) fn may_try(&self) -> bool {
        self.patience.lock().rounds == 0
    }

    pub(super) fn tried(&self, is_done: bool) {
        let mut patience = self.patience.lock();
        let rounds =
            if is_done { 0 } else { (2 * patience.last_rounds).clamp(1, PATIENCE_ROUNDS_MAX) };
        *patience = Patience { rounds, last_rounds: rounds };
    }

    /// Whether all requested work has been done.
    pub(crate) fn is_idle(&self) -> bool {
        let orders = self.orders.lock();
        orders.stop || !orders.is_wanted && !orders.is_working
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.orders.lock().stop
    }

    /// Waits for something to do; `false` at the end.
    pub(super) fn wait(&self) -> bool {
        let mut orders = self.orders.lock();
        while !orders.is_wanted && !orders.stop {
            self.given.wait(&mut orders);
        }
        (orders.is_wanted, orders.is_working) = (false, true);
        !orders.stop
    }

    /// Ends the thread after its present job.
    pub(crate) fn stop(&self) {
        self.orders.lock().stop = true;
        self.given.ring();
        // Nobody has to wait for the lock while this waits for the thread.
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A panic of the thread has been reported already.
            let _ = thread.join();
        }
    }
}
