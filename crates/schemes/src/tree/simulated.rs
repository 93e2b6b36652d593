//! The engine on a simulated disk: operations wait until the disk ends them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::blocking;
use super::dir::Unlinked;
use super::engine::{Closer, Engine, EngineError, File, Handle, Keep, OpenFor, Work};
use super::files::Tree;
use super::operation::{Completer, Counted, Operation};
use crate::Overload;
use crate::overload::{Room, Turns};
use crate::simulated::Disk;

/// With as many operations under way nothing new is begun.
const REQUESTS_MAX: usize = 320;

/// With as many, those who may wait do: few, so that simulations see it.
const WAIT_FROM: usize = 8;

/// The engine.
pub(crate) struct Simulated {
    tree: Arc<Tree>,
    queue: Arc<Queue>,
}

/// The part of the engine that open files know.
struct Queue {
    disk: Arc<Disk>,
    owner: u64,
    life: u64,
    under_way: Arc<AtomicUsize>,
    turns: Arc<Turns>,
    is_closed: AtomicBool,
}

impl Queue {
    fn half(&self) -> usize {
        if self.turns.is_waited() { WAIT_FROM } else { REQUESTS_MAX / 2 }
    }

    fn push(&self, job: impl FnOnce() + Send + 'static) {
        if self.is_closed.load(Ordering::Relaxed) || self.life != self.disk.life() {
            return drop(job);
        }
        let counted = Counted::new(&self.under_way);
        let turns = Arc::clone(&self.turns);
        let job = move || {
            job();
            drop(counted);
            turns.look();
        };
        self.disk.begin(self.owner, None, Box::new(job));
    }
}

impl Closer for Queue {
    fn close(&self, file: File, keep: Keep) {
        self.push(move || {
            drop(file);
            drop(keep);
        });
    }
}

impl Simulated {
    pub(crate) fn new(
        disk: Arc<Disk>,
        tree: Arc<Tree>,
        overload: Overload,
        capacity_bytes: u64,
    ) -> Self {
        let (owner, life) = (disk.new_id(), disk.life());
        let under_way = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&under_way);
        let room = move || Room::beside(count.load(Ordering::Relaxed) as u64, WAIT_FROM as u64);
        let turns = Turns::new(overload, capacity_bytes, room);
        let queue = Queue {
            disk,
            owner,
            life,
            under_way,
            turns: Arc::new(turns),
            is_closed: AtomicBool::new(false),
        };
        Self { tree, queue: Arc::new(queue) }
    }

    fn under_way(&self) -> usize {
        self.queue.under_way.load(Ordering::Relaxed)
    }

    fn submit<T: Send + 'static>(
        &self,
        begins: bool,
        work: impl FnOnce(&Completer<T>) -> Result<T, EngineError> + Send + 'static,
    ) -> Operation<T> {
        if begins && !self.admits() {
            return Operation::done(Err(EngineError::Shed));
        }
        let (completer, operation) = Operation::under_way();
        self.queue.push(move || {
            let outcome = work(&completer);
            completer.complete(outcome);
        });
        operation
    }
}

impl Engine for Simulated {
    fn admits(&self) -> bool {
        self.under_way() < REQUESTS_MAX
    }

    fn load(&self) -> u16 {
        (self.under_way() * 1000 / REQUESTS_MAX).min(1000) as u16
    }

    fn turns(&self) -> Option<&Turns> {
        Some(&self.queue.turns)
    }

    fn is_half_full(&self) -> bool {
        self.under_way() >= self.queue.half()
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
        let (tree, closer) = (Arc::clone(&self.tree), Arc::clone(&self.queue));
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
        self.queue.push(move || then.done(tree.unlink(number).map_err(EngineError::from)));
    }

    fn later(&self, work: Work) -> Operation<()> {
        self.submit(false, move |_| work())
    }

    fn close(&self) {
        self.queue.is_closed.store(true, Ordering::Relaxed);
        while self.under_way() > 0 && self.queue.disk.end_one() {}
    }

    fn stop(&self) {
        self.queue.is_closed.store(true, Ordering::Relaxed);
        self.queue.disk.take_back(self.queue.owner);
    }
}
