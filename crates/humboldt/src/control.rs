//! The control thread and the signals that it obeys. Before there are cores, whatever it waits for,
//! an order to end is obeyed.

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use humboldt_sys::signal_mask;

use crate::error::StartError;

/// The thread that obeys signals: the one that was there first.
pub(crate) struct Control {
    /// The event loop in which it waits.
    pub runtime: Runtime,
    /// The signals that it obeys.
    pub signals: Signals,
}

/// The signals that the program understands, as Squid does.
pub(crate) struct Signals {
    pub hup: Signal,
    pub usr1: Signal,
    pub usr2: Signal,
    pub term: Signal,
    pub int: Signal,
}

/// How the service ends.
#[derive(Copy, Clone, Debug)]
pub(crate) enum End {
    /// Open requests have `shutdown_lifetime`.
    Ordered,
    /// Nothing is waited for.
    AtOnce,
}

impl End {
    /// In a word, for the log.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ordered => "shut down",
            Self::AtOnce => "interrupted",
        }
    }
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            hup: signal(SignalKind::hangup())?,
            usr1: signal(SignalKind::user_defined1())?,
            usr2: signal(SignalKind::user_defined2())?,
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        })
    }
}

impl Control {
    /// Signals that have been held back so far wait until [`Control::wait`].
    pub(crate) fn new() -> Result<Self, StartError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(StartError::system("start the control thread"))?;
        let signals = runtime
            .block_on(async { Signals::new() })
            .map_err(StartError::system("watch signals"))?;
        Ok(Self { runtime, signals })
    }

    /// Waits before there are cores, for as long as nobody orders the end.
    pub(crate) fn wait<T>(&mut self, wait: impl Future<Output = T>) -> Result<T, End> {
        let Self { runtime, signals } = self;
        signal_mask::unblock_control_signals();
        let waited = runtime.block_on(async {
            tokio::select! {
                biased;
                _ = signals.term.recv() => Err(End::Ordered),
                _ = signals.int.recv() => Err(End::AtOnce),
                done = wait => Ok(done),
            }
        });
        // Other threads are started by this one, and do not obey signals.
        signal_mask::block_control_signals();
        waited
    }
}
