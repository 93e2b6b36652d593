//! The time of a simulation: that of tokio's clock, which stands still until everybody waits, and
//! jumps of the proxy's clock.

use std::cell::Cell;

use humboldt_base::clock::UnixMillis;
use tokio::time::Instant;

/// The beginning of all simulations.
const BEGIN_MS: i64 = 1_800_000_000_000;

thread_local! {
    static START: Cell<Option<Instant>> = const { Cell::new(None) };
    static OFF_MS: Cell<i64> = const { Cell::new(0) };
}

/// Begins; to be called in the runtime.
pub(crate) fn start() {
    START.set(Some(Instant::now()));
    OFF_MS.set(0);
    humboldt_base::clock::simulate(proxy);
}

/// Milliseconds since the beginning.
pub(crate) fn elapsed_ms() -> i64 {
    START.get().map_or(0, |start| start.elapsed().as_millis() as i64)
}

/// The true time, which servers have.
pub(crate) fn truth() -> UnixMillis {
    UnixMillis(BEGIN_MS + elapsed_ms())
}

/// The time that the proxy has.
fn proxy() -> UnixMillis {
    UnixMillis(truth().0 + OFF_MS.get())
}

/// How far the proxy's clock is off.
pub(crate) fn off_ms() -> i64 {
    OFF_MS.get()
}

/// Moves the proxy's clock.
pub(crate) fn jump(by_ms: i64) {
    OFF_MS.set(OFF_MS.get() + by_ms);
}
