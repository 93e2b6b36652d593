//! `aufs`: the tree of `ufs`, with all file operations done by threads. The common part is in
//! `tree`.
//!
//! A directory has up to `threads=` threads of its own. As in Squid, up to [`REQUESTS_PER_THREAD`]
//! requests may be under way for each: beyond that a hit is a miss, and an object is not stored.
//! The same holds beyond [`OUTCOMES_PER_THREAD`] operations that are under way, or done with an
//! outcome that no task has fetched: a core that stands still does not pile up memory, nor does it
//! soon block the requests of others. Unlinking is never refused, but no eviction and no new store
//! begins while [`CHORES_MAX`] files wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::tree::{
    Closer, Completer, Counted, Engine, EngineError, File, Handle, Keep, OpenFor, Operation,
    Unlinked, Work,
};
use crate::tree::{Pool, Simulated, Tree, TreeScheme, blocking};
use crate::{AufsOptions, DirOptions, OpenError, simulated};

#[cfg(test)]
mod tests;

/// Name in squid.conf.
pub(crate) const NAME: &str = "aufs";

/// Requests that may be under way for each thread, before others are turned away. Squid's factor.
const REQUESTS_PER_THREAD: usize = 20;

/// Requests that may be under way, or done and not taken, for each thread.
const OUTCOMES_PER_THREAD: usize = 4 * REQUESTS_PER_THREAD;

/// With this many chores waiting, nearly all of them files to be unlinked, nothing is evicted and
/// no object is begun to be stored.
const CHORES_MAX: usize = 4096;

/// Opens a directory.
pub(crate) fn open(options: &DirOptions<AufsOptions>) -> Result<TreeScheme, OpenError> {
    let AufsOptions { levels, threads } = options.own;
    options.own.check().map_err(|error| options.bad(error))?;
    let engine = |tree| match simulated::current() {
        Some(disk) => Arc::new(Simulated::new(disk, tree)) as Arc<dyn Engine>,
        None => Arc::new(Aufs::new(tree, threads as usize)),
    };
    TreeScheme::open(NAME, &options.map(|_| levels), engine)
}

/// The engine.
struct Aufs {
    tree: Arc<Tree>,
    threads: Arc<Threads>,
    /// Requests that wait for a thread or are being done.
    requests: Arc<AtomicUsize>,
    requests_max: usize,
    /// The same, and those whose outcome has not been fetched.
    outcomes: Arc<AtomicUsize>,
    outcomes_max: usize,
}

/// The part of the engine that open files know.
struct Threads(Pool);

impl Aufs {
    fn new(tree: Arc<Tree>, threads: usize) -> Self {
        let pool = Pool::new("aufs", threads);
        Self {
            tree,
            threads: Arc::new(Threads(pool)),
            requests: Arc::default(),
            requests_max: threads * REQUESTS_PER_THREAD,
            outcomes: Arc::default(),
            outcomes_max: threads * OUTCOMES_PER_THREAD,
        }
    }

    fn is_full(&self) -> bool {
        self.requests.load(Ordering::Relaxed) >= self.requests_max
            || self.outcomes.load(Ordering::Relaxed) >= self.outcomes_max
    }

    /// Has `work` done by a thread. `begins`: it may be turned away when too much is under way.
    fn submit<T: Send + 'static>(
        &self,
        begins: bool,
        work: impl FnOnce(&Completer<T>) -> Result<T, EngineError> + Send + 'static,
    ) -> Operation<T> {
        if begins && self.is_full() {
            return Operation::done(Err(EngineError::Shed));
        }
        let (completer, operation) = Operation::counted(Counted::new(&self.outcomes));
        let request = Counted::new(&self.requests);
        self.threads.0.request(Box::new(move || {
            let outcome = work(&completer);
            drop(request);
            completer.complete(outcome);
        }));
        operation
    }
}

impl Closer for Threads {
    fn close(&self, file: File, keep: Keep) {
        self.0.chore(Box::new(move || {
            drop(file);
            drop(keep);
        }));
    }
}

impl Engine for Aufs {
    fn admits(&self) -> bool {
        !self.is_full() && !self.unlinks_are_full()
    }

    /// Squid's: how far the requests under way are on their way to the bound.
    fn load(&self) -> u16 {
        let requests = self.requests.load(Ordering::Relaxed).min(self.requests_max);
        u16::try_from(requests * 1000 / self.requests_max).unwrap_or(1000)
    }

    fn read_file(&self, number: u32, len: usize) -> Operation<Vec<u8>> {
        let tree = Arc::clone(&self.tree);
        self.submit(true, move |waiting| match waiting.is_abandoned() {
            true => Err(EngineError::Gone),
            false => blocking::read_file(&tree, number, len),
        })
    }

    fn write_file(&self, number: u32, bytes: Vec<u8>, keep: Keep) -> Operation<()> {
        let tree = Arc::clone(&self.tree);
        self.submit(true, move |waiting| {
            let outcome = match waiting.is_abandoned() {
                true => Err(EngineError::Gone),
                false => blocking::write_file(&tree, number, &bytes),
            };
            drop(keep);
            outcome
        })
    }

    fn open(&self, number: u32, purpose: OpenFor, keep: Keep) -> Operation<Handle> {
        let (tree, closer) = (Arc::clone(&self.tree), Arc::clone(&self.threads));
        self.submit(true, move |waiting| {
            if waiting.is_abandoned() {
                return Err(EngineError::Gone);
            }
            let file = blocking::open(&tree, number, purpose)?;
            Ok(Handle::new(file, keep, Some(closer)))
        })
    }

    fn read(
        &self,
        handle: &Handle,
        offset: u64,
        len: usize,
        buffer: Vec<u8>,
    ) -> Operation<Vec<u8>> {
        let handle = handle.clone();
        self.submit(false, move |waiting| match waiting.is_abandoned() {
            true => Err(EngineError::Gone),
            false => blocking::read_buffer(&handle, offset, len, buffer),
        })
    }

    fn write(&self, handle: &Handle, offset: u64, bytes: Vec<u8>) -> Operation<Vec<u8>> {
        let handle = handle.clone();
        self.submit(false, move |_| blocking::write_buffer(&handle, offset, bytes))
    }

    fn unlink(&self, number: u32, then: Unlinked) {
        let tree = Arc::clone(&self.tree);
        self.threads
            .0
            .chore(Box::new(move || then.done(tree.unlink(number).map_err(EngineError::from))));
    }

    fn unlinks_are_full(&self) -> bool {
        self.threads.0.chores() >= CHORES_MAX
    }

    fn later(&self, work: Work) -> Operation<()> {
        let (completer, operation) = Operation::under_way();
        self.threads.0.chore(Box::new(move || completer.complete(work())));
        operation
    }

    fn close(&self) {
        self.threads.0.close();
    }

    fn stop(&self) {
        self.threads.0.stop();
    }
}
