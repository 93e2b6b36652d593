//! One thread per core, each with a tokio `LocalRuntime`.
//!
//! A core runs the future it is given until that future ends; whatever it spawned with
//! `tokio::task::spawn_local` and is still running then is dropped. Nothing moves between cores.
//!
//! The tasks of a core belong to its runtime itself. In a `LocalSet` they would be the second layer
//! of tasks within one, and each wake would pass through both.

use std::future::Future;
use std::io;
use std::sync::mpsc;
use std::thread;

use humboldt_base::limits::CORES_MAX;
use tokio::runtime::{Builder, LocalOptions};

use crate::mailbox::with_mailbox;

/// The number of a core, counted from 0. An index into per-core tables.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct CoreId(pub usize);

/// Why the cores could not be started, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// The number of cores is 0 or more than `CORES_MAX`.
    #[error("{0} cores asked for: between 1 and {CORES_MAX} are possible")]
    Count(usize),
    /// The thread or its runtime could not be created. Cores already started keep running: end the
    /// process.
    #[error("cannot start core {core}: {source}")]
    Start {
        /// Which core.
        core: usize,
        /// The system's error.
        source: io::Error,
    },
    /// A core panicked.
    #[error("core {0} panicked")]
    Panicked(usize),
}

/// The running cores.
#[derive(Debug)]
pub struct Cores {
    threads: Vec<thread::JoinHandle<()>>,
}

/// Starts `count` threads named `core-0`, `core-1`, … and runs `main(CoreId)` on each.
///
/// `main` is cloned for each thread and called there, so the future it makes need not be `Send`.
pub fn spawn_cores<F, Fut>(count: usize, main: F) -> Result<Cores, CoreError>
where
    F: Fn(CoreId) -> Fut + Send + Clone + 'static,
    Fut: Future<Output = ()> + 'static,
{
    if count == 0 || count > CORES_MAX {
        return Err(CoreError::Count(count));
    }
    let mut threads = Vec::with_capacity(count);
    for core in 0..count {
        let failed = |source| CoreError::Start { core, source };
        let main = main.clone();
        let (started, has_started) = mpsc::channel();
        let run = move || {
            // It belongs to the thread that makes it.
            let runtime =
                Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
            match runtime {
                Ok(runtime) => {
                    _ = started.send(Ok(()));
                    runtime.block_on(with_mailbox(main(CoreId(core))));
                }
                Err(error) => _ = started.send(Err(error)),
            }
        };
        let thread =
            thread::Builder::new().name(format!("core-{core}")).spawn(run).map_err(failed)?;
        let ended = |_| Err(io::Error::other("its thread has ended"));
        has_started.recv().unwrap_or_else(ended).map_err(failed)?;
        threads.push(thread);
    }
    Ok(Cores { threads })
}

impl Cores {
    /// Waits until every core's future has ended. Reports the first core that panicked, after all
    /// ended.
    pub fn join(self) -> Result<(), CoreError> {
        let mut first_panic = Ok(());
        for (core, thread) in self.threads.into_iter().enumerate() {
            if thread.join().is_err() && first_panic.is_ok() {
                first_panic = Err(CoreError::Panicked(core));
            }
        }
        first_panic
    }

    /// Whether a core has ended already. Before a shutdown that is a fault.
    pub fn any_finished(&self) -> bool {
        self.threads.iter().any(thread::JoinHandle::is_finished)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn every_core_runs_its_own_local_tasks() {
        let sum = Arc::new(AtomicUsize::new(0));
        let shared = Arc::clone(&sum);
        let cores = spawn_cores(3, move |id| {
            let sum = Arc::clone(&shared);
            async move {
                let local = Rc::new(Cell::new(id.0));
                let task_local = Rc::clone(&local);
                let named = thread::current().name() == Some(format!("core-{}", id.0).as_str());
                tokio::task::spawn_local(async move { task_local.set(task_local.get() + 10) })
                    .await
                    .unwrap();
                if named {
                    sum.fetch_add(local.get(), Ordering::SeqCst);
                }
            }
        })
        .unwrap();
        cores.join().unwrap();
        assert_eq!(sum.load(Ordering::SeqCst), 10 + 11 + 12);
    }

    #[test]
    fn a_panic_is_reported_with_its_core() {
        let cores = spawn_cores(2, |id| async move { assert_ne!(id.0, 1, "on purpose") }).unwrap();
        assert!(matches!(cores.join(), Err(CoreError::Panicked(1))));
    }

    #[test]
    fn the_number_of_cores_is_bounded() {
        assert!(matches!(spawn_cores(0, |_| async {}), Err(CoreError::Count(0))));
        assert!(matches!(spawn_cores(CORES_MAX + 1, |_| async {}), Err(CoreError::Count(_))));
    }
}
