//! Panics: one line each in cache.log, and a count.

use std::cell::Cell;
use std::io::Write as _;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The thread that writes the logs. It may hold their locks.
pub(crate) const LOG_THREAD: &str = "logs";

/// Panics since the start of the program.
static COUNT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread holds locks of the logs now: a panic there cannot be logged from inside.
    static IS_LOGGING: Cell<bool> = const { Cell::new(false) };
}

/// Number of panics so far.
pub fn count() -> u64 {
    COUNT.load(Relaxed)
}

/// From now on each panic is counted, and reported in one line of cache.log: thread, place and
/// reason. With `RUST_BACKTRACE` standard error gets the backtrace too. The owner of the panicking
/// task decides whether anything else ends.
pub(crate) fn install() {
    std::panic::set_hook(Box::new(report));
}

/// Set while this thread holds locks of the logs.
pub(crate) struct Logging(());

impl Logging {
    /// `None` inside of another one.
    pub(crate) fn begin() -> Option<Self> {
        // At the end of a thread its variables may be gone already; then assume the inside.
        let was_logging =
            IS_LOGGING.try_with(|is_logging| is_logging.replace(true)).unwrap_or(true);
        (!was_logging).then_some(Self(()))
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let _ = IS_LOGGING.try_with(|is_logging| is_logging.set(false)); // see `begin`
    }
}

fn report(info: &PanicHookInfo<'_>) {
    COUNT.fetch_add(1, Relaxed);
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    let _begun = if name == LOG_THREAD { Logging::begin() } else { None };
    let place = info.location().map_or_else(|| "somewhere".to_owned(), ToString::to_string);
    let why = info.payload_as_str().unwrap_or("no reason given");
    tracing::error!("a fault of the program: thread {name} panicked at {place}: {why}");
    let backtrace = std::backtrace::Backtrace::capture();
    if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
        // Nowhere left to complain to when this fails.
        let _ = writeln!(std::io::stderr(), "{backtrace}");
    }
}
