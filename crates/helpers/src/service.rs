//! The thread that owns the processes, and the helpers of the configuration in force.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use humboldt_base::vital::Vital;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::definition::Definition;
use crate::keeper;
use crate::pool::{Helper, Lease, Pool};
use crate::state::Phase;
use crate::statistics::Statistics;

/// Longest time that the end of all processes may take at the end of the program.
const END_TIME_MAX: Duration = Duration::from_secs(5);

/// The helpers of the program. Clones are the same.
#[derive(Clone, Default)]
pub struct Helpers(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// There is none before the first definition, and after the end.
    thread: Option<Thread>,
    /// Those in use by a configuration that a request may still have.
    pools: Vec<Arc<Pool>>,
    has_ended: bool,
}

struct Thread {
    /// A message for each new helper.
    new: mpsc::UnboundedSender<Arc<Pool>>,
    handle: JoinHandle<()>,
}

impl Helpers {
    /// Takes over the definitions of a configuration, and returns their helpers in the same order.
    /// All of them start new processes, as in Squid: helpers read their own files again. Those of
    /// the configuration before answer the requests that still hold them, and end then. Call it
    /// after privileges have been dropped.
    pub fn adopt(&self, definitions: Vec<Definition>) -> io::Result<Vec<Helper>> {
        let mut inner = self.0.lock();
        inner.pools.retain(|pool| !pool.with_state(|state, _| state.is_over()));
        let before = inner.pools.len();
        let mut helpers = Vec::with_capacity(definitions.len());
        for definition in definitions {
            helpers.push(inner.begin(definition)?);
        }
        inner.pools.iter().take(before).for_each(|pool| pool.enter(Phase::Leaving));
        Ok(helpers)
    }

    /// Figures of all helpers that have processes or a definition in force.
    pub fn statistics(&self) -> Vec<Statistics> {
        let inner = self.0.lock();
        let in_use = inner.pools.iter().filter(|pool| {
            pool.with_state(|state, _| state.phase == Phase::Serving || !state.slots.is_empty())
        });
        in_use.map(|pool| pool.statistics()).collect()
    }

    /// Ends all processes and waits for them, at most five seconds. Nothing is answered any more.
    pub fn end(&self) {
        let thread = {
            let mut inner = self.0.lock();
            inner.has_ended = true;
            inner.pools.drain(..).for_each(|pool| pool.enter(Phase::Hurrying));
            inner.thread.take()
        };
        if let Some(Thread { new, handle }) = thread {
            drop(new);
            if handle.join().is_err() {
                tracing::error!("the thread of the helper programs has failed");
            }
        }
    }
}

impl Inner {
    fn begin(&mut self, definition: Definition) -> io::Result<Helper> {
        let pool = Pool::new(definition);
        if self.has_ended {
            pool.enter(Phase::Hurrying);
        } else {
            let thread = match self.thread.take() {
                Some(thread) => thread,
                None => Thread::start()?,
            };
            // It receives as long as this sender lives.
            _ = thread.new.send(Arc::clone(&pool));
            self.thread = Some(thread);
        }
        self.pools.push(Arc::clone(&pool));
        Ok(Helper(Arc::new(Lease(pool))))
    }
}

impl Thread {
    fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (new, mut pools) = mpsc::unbounded_channel();
        let work = async move {
            let mut keepers = JoinSet::new();
            loop {
                tokio::select! {
                    pool = pools.recv() => match pool {
                        Some(pool) => drop(keepers.spawn(keeper::keep(pool))),
                        None => break,
                    },
                    Some(_) = keepers.join_next() => {}
                }
            }
            let ended = async { while keepers.join_next().await.is_some() {} };
            if tokio::time::timeout(END_TIME_MAX, ended).await.is_err() {
                tracing::error!("some helper processes have not ended");
            }
        };
        let handle = thread::Builder::new().name("helpers".to_owned()).spawn(move || {
            let _vital = Vital::new("the thread of the helper programs");
            runtime.block_on(work);
        })?;
        Ok(Self { new, handle })
    }
}
