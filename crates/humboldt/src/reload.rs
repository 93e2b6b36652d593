//! Reading the configuration again, on a thread of its own: lists of a million entries take
//! seconds, and a file may be on a disk that hangs. Signals are obeyed meanwhile.

use humboldt_conf::Severity;
use humboldt_sys::cpu;
use tokio::sync::oneshot;

use crate::cli::Cli;
use crate::configuration::{Loaded, Source};
use crate::error::StartError;

/// The reading that is under way, if any.
#[derive(Default)]
pub(crate) struct Reload {
    running: Option<oneshot::Receiver<Result<Loaded, StartError>>>,
    /// It was asked for once more: what has been read by now may have changed since.
    is_due: bool,
}

impl Reload {
    /// Begins, or sees to it that it begins when the one before has ended.
    pub(crate) fn begin(&mut self, source: &Source, cli: &Cli) {
        if self.running.is_some() {
            tracing::warn!("the configuration is still being read; it will be read once more then");
            self.is_due = true;
            return;
        }
        let (done, is_done) = oneshot::channel();
        let (source, cli) = (source.clone(), cli.clone());
        let work = move || {
            cpu::work_in_batches(); // it may be refused
            let _ = done.send(source.load(&cli, Severity::Warning)); // the service may be ending
        };
        match std::thread::Builder::new().name("load".into()).spawn(work) {
            Ok(_) => self.running = Some(is_done),
            Err(error) => tracing::error!("not reconfigured, there is no thread for it: {error}"),
        }
    }

    /// Resolves when the configuration has been read and compiled. May be dropped and called again;
    /// pending while there is nothing to wait for.
    pub(crate) async fn ended(&mut self) -> Result<Loaded, StartError> {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        let loaded = running.await;
        self.running = None;
        loaded.unwrap_or(Err(StartError::Vital("the thread that reads the configuration")))
    }

    /// Whether it has to begin once more.
    pub(crate) fn take_due(&mut self) -> bool {
        std::mem::take(&mut self.is_due)
    }
}
