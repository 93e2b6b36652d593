//! `aufs`: the tree of `ufs`, with all file operations done by threads. The common part is in
//! `tree`.
//!
//! A directory has up to `threads=` threads of its own, and bounds for what may be under way for
//! them ([`Bounds`]): beyond as many stores as the threads and the memory bear, an object is not
//! stored. A hit is a miss only beyond a larger number of operations that are under way, or done
//! with an outcome that no task has fetched: a core that stands still does not pile up memory, nor
//! does it soon block the requests of others. Before it comes to that, nothing is stored any more.
//! Unlinking is never refused, but no eviction and no new store begins while [`CHORES_MAX`] files
//! wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::bounds::{Bounds, Stores};
use crate::overload::{Room, Turns};
use crate::tree::{BLOCK_BYTES, Pool, Simulated, Tree, TreeScheme, blocking};
use crate::tree::{
    Closer, Completer, Counted, Engine, EngineError, File, Handle, Keep, OpenFor, Operation,
    Unlinked, Work,
};
use crate::{AufsOptions, DirOptions, OpenError, Overload, simulated};

#[cfg(test)]
mod tests;

/// Name in squid.conf.
pub(crate) const NAME: &str = "aufs";

/// Operations that store may be under way for each thread, before others are turned away. From half
/// of it on, Squid's bound, objects wait or are turned away that come for the first time.
const STORES_PER_THREAD: usize = 40;

/// If a store has waited longer than this for a thread, and others are waiting still, objects that
/// come for the first time are turned away, as if half of the bound were reached. A shorter queue
/// keeps a slow disk as busy, and what waits takes memory from the objects that are fetched.
const STORE_WAIT_MAX: Duration = Duration::from_millis(100);

/// Operations that may be under way, or done and not taken, for each thread, before nothing is
/// stored.
const OUTCOMES_TO_STORE_PER_THREAD: usize = 60;

/// The same, before nothing is read: hits outlast stores.
const OUTCOMES_PER_THREAD: usize = 80;

/// At the bounds, look-ups that were given up are dropped if they are at least this share of it:
/// fewer are not worth looking at all of them.
const GIVEN_UP_SHARE: usize = 8;

/// With this many chores waiting, nearly all of them files to be unlinked, nothing is evicted and
/// no object is begun to be stored.
const CHORES_MAX: usize = 4096;

/// Opens a directory.
pub(crate) fn open(options: &DirOptions<AufsOptions>) -> Result<TreeScheme, OpenError> {
    let AufsOptions { levels, threads, overload } = options.own;
    options.own.check().map_err(|error| options.bad(error))?;
    let bytes = options.capacity_bytes;
    let engine = |tree| match simulated::current() {
        Some(disk) => Arc::new(Simulated::new(disk, tree, overload, bytes)) as Arc<dyn Engine>,
        None => Arc::new(Aufs::new(tree, threads as usize, overload, bytes)),
    };
    TreeScheme::open(NAME, &options.map(|_| levels), engine)
}

/// The engine.
struct Aufs {
    tree: Arc<Tree>,
    threads: Arc<Threads>,
    readers: Arc<Readers>,
    threads_max: usize,
    /// With this many operations under way, no object is stored.
    outcomes_to_store_max: usize,
    /// With this many, none is read either.
    outcomes_max: usize,
    bounds: Arc<Bounds>,
    stores: Stores,
    /// Those who wait until there are fewer of these.
    turns: Arc<Turns>,
    /// All operations that are under way, or whose outcome has not been fetched.
    outcomes: Arc<AtomicUsize>,
}

/// An operation that stores, until it has ended, in whatever way.
struct Storing {
    stores: Stores,
    bytes: u64,
    turns: Arc<Turns>,
}

impl Storing {
    fn new(stores: &Stores, bytes: u64, turns: &Arc<Turns>) -> Self {
        stores.begin(bytes);
        Self { stores: stores.clone(), bytes, turns: Arc::clone(turns) }
    }
}

impl Drop for Storing {
    fn drop(&mut self) {
        self.stores.end(self.bytes);
        self.turns.look();
    }
}

/// The part of the engine that open files know.
struct Threads(Pool);

/// The same for files that were opened to be read.
struct Readers(Arc<Threads>);

/// Room for objects that are all stored: nothing refuses them either, as [`Engine::admits`] would.
fn room(
    threads: &Arc<Threads>,
    stores: &Stores,
    outcomes: &Arc<AtomicUsize>,
    bounds: &Arc<Bounds>,
    outcomes_to_store_max: usize,
) -> impl Fn() -> Room + Send + Sync + 'static {
    let (threads, stores, outcomes) = (threads.clone(), stores.clone(), outcomes.clone());
    let bounds = bounds.clone();
    move || {
        let outcomes_left = outcomes_to_store_max.saturating_sub(outcomes.load(Ordering::Relaxed));
        // Chores bound the room only if there are any.
        let chores_left = match threads.0.chores() {
            0 => usize::MAX,
            chores => CHORES_MAX.saturating_sub(chores),
        };
        bounds.room(&stores).at_most(outcomes_left.min(chores_left) as u64)
    }
}

impl Aufs {
    fn new(tree: Arc<Tree>, threads_max: usize, overload: Overload, capacity_bytes: u64) -> Self {
        let threads = Arc::new(Threads(Pool::new("aufs", threads_max)));
        let stores = Stores::default();
        let outcomes = Arc::<AtomicUsize>::default();
        let bounds = Arc::new(Bounds::new(threads_max * STORES_PER_THREAD));
        let outcomes_to_store_max = threads_max * OUTCOMES_TO_STORE_PER_THREAD;
        let room = room(&threads, &stores, &outcomes, &bounds, outcomes_to_store_max);
        let turns = Turns::new(overload, capacity_bytes, room);
        Self {
            tree,
            readers: Arc::new(Readers(Arc::clone(&threads))),
            threads,
            threads_max,
            outcomes_to_store_max,
            outcomes_max: threads_max * OUTCOMES_PER_THREAD,
            bounds,
            stores,
            turns: Arc::new(turns),
            outcomes,
        }
    }

    /// Whether stores wait too long, as far as those show that have begun. When no more are left
    /// than threads, the queue is nearly empty, however long the last one had to wait.
    fn is_late(&self) -> bool {
        self.stores.count() > self.threads_max && self.stores.wait() > STORE_WAIT_MAX
    }

    fn may_read(&self) -> bool {
        self.has_outcomes_left(self.outcomes_max)
    }

    fn may_store(&self) -> bool {
        self.bounds.may_begin(&self.stores) && self.has_outcomes_left(self.outcomes_to_store_max)
    }

    /// Look-ups that were given up keep nobody from theirs.
    fn has_outcomes_left(&self, most: usize) -> bool {
        let are_left = || self.outcomes.load(Ordering::Relaxed) < most;
        if !are_left() {
            self.threads.0.forget_unwanted(most / GIVEN_UP_SHARE);
        }
        are_left()
    }

    /// One outcome more. Its end may make room, where outcomes are scarcer than stores.
    fn outcome(&self) -> Counted {
        if !self.turns.is_waited() {
            return Counted::new(&self.outcomes);
        }
        let from = self.outcomes_to_store_max - self.bounds.half();
        Counted::telling(&self.outcomes, &self.turns, from)
    }

    /// Has `work`, which only reads, done by a thread.
    fn reading<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Completer<T>) -> Result<T, EngineError> + Send + 'static,
    ) -> Operation<T> {
        let given_up = self.threads.0.given_up();
        let (completer, operation) = Operation::read(Some(self.outcome()), given_up);
        let is_wanted = completer.interest();
        let job = move || {
            let outcome = work(&completer);
            completer.complete(outcome);
        };
        self.threads.0.read(Box::new(job), is_wanted);
        operation
    }

    /// Has `work`, which stores and holds `bytes` of memory, done by a thread.
    fn storing<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce(&Completer<T>) -> Result<T, EngineError> + Send + 'static,
    ) -> Operation<T> {
        let (completer, operation) = Operation::counted(self.outcome());
        let store = Storing::new(&self.stores, bytes as u64, &self.turns);
        let (bounds, turns) = (Arc::clone(&self.bounds), Arc::clone(&self.turns));
        let queued = Instant::now();
        self.threads.0.write(Box::new(move || {
            store.stores.note_wait(queued.elapsed());
            let outcome = work(&completer);
            drop(store);
            completer.complete(outcome);
            if bounds.share.look() {
                turns.look();
            }
        }));
        operation
    }
}

/// A file that was written may have to wait for the device.
impl Closer for Threads {
    fn close(&self, file: File, keep: Keep) {
        self.0.chore(Box::new(move || {
            drop(file);
            drop(keep);
        }));
    }
}

/// What reads open is closed by reads: otherwise open files would pile up while the device stands
/// still and hits go on.
impl Closer for Readers {
    fn close(&self, file: File, keep: Keep) {
        let close = move || {
            drop(file);
            drop(keep);
        };
        self.0.0.read(Box::new(close), Box::new(|| true));
    }
}

impl Engine for Aufs {
    fn admits(&self) -> bool {
        self.may_store() && !self.unlinks_are_full()
    }

    /// Squid's: how far the operations that store are on their way to the bound.
    fn load(&self) -> u16 {
        self.bounds.load(&self.stores)
    }

    fn turns(&self) -> Option<&Turns> {
        Some(&self.turns)
    }

    fn is_half_full(&self) -> bool {
        self.bounds.is_half_full(&self.stores) || self.is_late()
    }

    fn read_file(&self, number: u32, len: usize) -> Operation<Vec<u8>> {
        if !self.may_read() {
            return Operation::done(Err(EngineError::Shed));
        }
        let tree = Arc::clone(&self.tree);
        self.reading(move |waiting| match waiting.is_abandoned() {
            true => Err(EngineError::Gone),
            false => blocking::read_file(&tree, number, len),
        })
    }

    fn write_file(&self, number: u32, bytes: Vec<u8>, keep: Keep) -> Operation<()> {
        if !self.may_store() {
            return Operation::done(Err(EngineError::Shed));
        }
        let tree = Arc::clone(&self.tree);
        self.storing(bytes.capacity(), move |waiting| {
            let outcome = match waiting.is_abandoned() {
                true => Err(EngineError::Gone),
                false => blocking::write_file(&tree, number, &bytes),
            };
            drop(keep);
            outcome
        })
    }

    fn open(&self, number: u32, purpose: OpenFor, keep: Keep) -> Operation<Handle> {
        let is_store = purpose != OpenFor::Reading;
        if !(if is_store { self.may_store() } else { self.may_read() }) {
            return Operation::done(Err(EngineError::Shed));
        }
        let tree = Arc::clone(&self.tree);
        let closer: Arc<dyn Closer> =
            if is_store { self.threads.clone() } else { self.readers.clone() };
        let work = move |waiting: &Completer<Handle>| {
            if waiting.is_abandoned() {
                return Err(EngineError::Gone);
            }
            let file = blocking::open(&tree, number, purpose)?;
            Ok(Handle::new(file, keep, Some(closer)))
        };
        match purpose {
            OpenFor::Reading => self.reading(work),
            // Its writer waits with a block of the body.
            OpenFor::Creating => self.storing(BLOCK_BYTES, work),
            OpenFor::Updating => self.storing(0, work),
        }
    }

    fn read(
        &self,
        handle: &Handle,
        offset: u64,
        len: usize,
        buffer: Vec<u8>,
    ) -> Operation<Vec<u8>> {
        let handle = handle.clone();
        self.reading(move |waiting| match waiting.is_abandoned() {
            true => Err(EngineError::Gone),
            false => blocking::read_buffer(&handle, offset, len, buffer),
        })
    }

    fn write(&self, handle: &Handle, offset: u64, bytes: Vec<u8>) -> Operation<Vec<u8>> {
        let handle = handle.clone();
        self.storing(bytes.capacity(), move |_| blocking::write_buffer(&handle, offset, bytes))
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
        let (bounds, turns) = (Arc::clone(&self.bounds), Arc::clone(&self.turns));
        self.threads.0.chore(Box::new(move || {
            completer.complete(work());
            bounds.share.look();
            turns.look(); // there may be more room, or chores were too many
        }));
        operation
    }

    fn close(&self) {
        self.bounds.share.leave();
        self.threads.0.close();
    }

    fn stop(&self) {
        self.bounds.share.leave();
        self.threads.0.stop();
    }
}
