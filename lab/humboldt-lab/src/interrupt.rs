//! Being told to stop: by Ctrl-C, by `kill`, or by a terminal that closes.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How soon a pause notices that it is to end.
const POLL_PAUSE: Duration = Duration::from_millis(20);

/// Whether the program should stop. The first signal ends the experiment in order, the second the
/// program: the keeper undoes its changes even then.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens for signals from now on.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the first signal finds the flag unset.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                130,
                Arc::clone(&interrupt.0),
            )?;
            signal_hook::flag::register(signal, Arc::clone(&interrupt.0))?;
        }
        Ok(interrupt)
    }

    /// Whether a signal arrived.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits until a moment, or until a signal arrives or `is_over` is true.
    pub(crate) fn wait_until(&self, moment: Instant, mut is_over: impl FnMut() -> bool) {
        while !self.is_set() && !is_over() {
            let left = moment.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(POLL_PAUSE));
        }
    }
}
