//! Reading the configuration again, on a thread of its own: lists of a million entries take
//! seconds, and a file may be on a disk that hangs. Signals are obeyed meanwhile.

use std::sync::Arc;

use humboldt_conf::Severity;
use humboldt_proxy::snapshot::Snapshot;
use humboldt_sys::cpu;
use tokio::sync::oneshot;

use crate::cli::Cli;
use crate::configuration::{Loaded, Source};
use crate::error::StartError;

/// Most readings in a row that are passed over because another one was asked for meanwhile. The
/// next one is applied: otherwise frequent signals would keep an old configuration for ever.
const OVERTAKEN_MAX: u32 = 3;

/// The reading that is under way, if any.
#[derive(Default)]
pub(crate) struct Reload {
    running: Option<oneshot::Receiver<Result<Loaded, StartError>>>,
    /// It was asked for once more: what has been read by now may have changed since.
    is_due: bool,
    /// Readings in a row that were passed over.
    overtaken: u32,
}

impl Reload {
    /// Begins, or sees to it that it begins when the one before has ended.
    pub(crate) fn begin(&mut self, source: &Source, cli: &Cli, earlier: Arc<Snapshot>) {
        if self.running.is_some() {
            tracing::warn!("the configuration is still being read; it will be read once more then");
            self.is_due = true;
            return;
        }
        let (done, is_done) = oneshot::channel();
        let (source, cli) = (source.clone(), cli.clone());
        let work = move || {
            cpu::work_in_batches(); // it may be refused
            let loaded = source.load(&cli, Severity::Warning, Some(&earlier));
            let _ = done.send(loaded); // the service may be ending
        };
        match std::thread::Builder::new().name("load".into()).spawn(work) {
            Ok(_) => self.running = Some(is_done),
            Err(error) => tracing::error!("not reconfigured, there is no thread for it: {error}"),
        }
    }

    /// Resolves when the configuration has been read and compiled: with `None` if that reading was
    /// overtaken, and is to be begun once more instead of being applied. May be dropped and called
    /// again; pending while there is nothing to wait for.
    pub(crate) async fn ended(&mut self) -> Option<Result<Loaded, StartError>> {
        let Some(running) = &mut self.running else { return std::future::pending().await };
        let loaded = running.await;
        self.running = None;
        if self.is_due && self.overtaken < OVERTAKEN_MAX {
            self.overtaken += 1;
            return None;
        }
        self.overtaken = 0;
        let failed = || Err(StartError::Vital("the thread that reads the configuration"));
        Some(loaded.unwrap_or_else(|_| failed()))
    }

    /// Whether it has to begin once more.
    pub(crate) fn take_due(&mut self) -> bool {
        std::mem::take(&mut self.is_due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_many_overtaken_readings_one_is_applied() {
        let mut reload = Reload::default();
        let mut applied = Vec::new();
        for _ in 0..2 * (OVERTAKEN_MAX + 1) {
            let (done, is_done) = oneshot::channel();
            assert!(done.send(Err(StartError::Vital("a test"))).is_ok());
            (reload.running, reload.is_due) = (Some(is_done), true);
            applied.push(reload.ended().await.is_some());
        }
        assert_eq!(applied, [false, false, false, true, false, false, false, true]);
    }
}
