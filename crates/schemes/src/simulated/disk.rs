//! The disk: operations under way, work in the background, faults, power.

use std::cell::RefCell;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use humboldt_base::rng::Rng;
use humboldt_base::xxh3::xxh3_64_with_seed;
use parking_lot::Mutex;
use rustix::io::Errno;

use super::background::{Next, Step};
use super::images::{FileId, Images, Write};

/// The time on the disk's clock in the beginning, and how much later it is after each step.
const CLOCK_START_NS: u64 = 1_700_000_000_000_000_000;
const CLOCK_STEP_NS: u64 = 1000;

/// Whether any thread has entered a disk: in the product, none ever does.
static IS_SIMULATING: AtomicBool = AtomicBool::new(false);

thread_local! {
    static CURRENT: RefCell<Option<Arc<Disk>>> = const { RefCell::new(None) };
}

/// The disk that this thread has entered.
#[inline]
pub(crate) fn current() -> Option<Arc<Disk>> {
    if !IS_SIMULATING.load(Ordering::Relaxed) {
        return None;
    }
    CURRENT.try_with(|disk| disk.borrow().clone()).ok().flatten()
}

/// The time on the clock of the disk that this thread has entered: later at each call.
pub(crate) fn now_ns() -> Option<u64> {
    current().map(|disk| {
        let mut inner = disk.inner.lock();
        inner.now_ns += 1;
        inner.now_ns
    })
}

/// An id for a new store, from the seed of the disk that this thread has entered.
pub(crate) fn store_id() -> Option<u64> {
    current().map(|disk| disk.inner.lock().rng.next_u64())
}

/// The chances that operations fail, in millionths.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Reads that fail.
    pub read_fails_ppm: u32,
    /// Writes, and syncs, that fail. A part of the bytes may have been written.
    pub write_fails_ppm: u32,
    /// Writes to block files that go astray: to another place of the same file, at a sector.
    pub misdirected_ppm: u32,
    /// There is no room: writes that make a file longer, and all writes to block files, fail.
    pub is_full: bool,
}

/// A simulated disk. See the module.
pub struct Disk {
    inner: Mutex<Inner>,
    /// Number of the present life: the disk's power, or the process, has ended so often.
    life: AtomicU64,
}

struct Inner {
    rng: Rng,
    is_off: bool,
    operations: u64,
    operations_left: Option<u64>,
    faults: Faults,
    faults_of: Vec<(PathBuf, Faults)>,
    jobs: Vec<Job>,
    chores: Vec<Chore>,
    last_id: u64,
    images: Images,
    now_ns: u64,
    trace: u64,
    waiting: Vec<Waker>,
}

/// An operation under way.
struct Job {
    owner: u64,
    /// What may be on the disk if the power fails before the end.
    write: Option<Write>,
    end: Box<dyn FnOnce() + Send>,
}

/// Work in the background.
struct Chore {
    id: u64,
    is_ready: bool,
    /// `None` while it is being done.
    step: Option<Step>,
}

/// An open file of the disk.
pub(crate) struct Target {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    id: FileId,
    life: u64,
    /// A write that has ended is on the device.
    is_lasting: bool,
    /// Writes may go astray.
    is_block: bool,
}

/// The disk is the thread's as long as this lives.
pub struct Guard {
    before: Option<Arc<Disk>>,
    _here: PhantomData<*const ()>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let before = self.before.take();
        let _ = CURRENT.try_with(|disk| disk.replace(before));
    }
}

fn failed() -> io::Error {
    Errno::IO.into()
}

impl Inner {
    fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.rng.below(1_000_000) < u64::from(ppm)
    }

    fn faults(&self, path: &Path) -> Faults {
        let of_path = self.faults_of.iter().rev().find(|(prefix, _)| path.starts_with(prefix));
        of_path.map_or(self.faults, |(_, faults)| *faults)
    }

    /// Counts an operation; an error if there is no power, or it fails now.
    fn operate(&mut self) -> io::Result<()> {
        if self.is_off {
            return Err(failed());
        }
        self.operations += 1;
        if let Some(left) = &mut self.operations_left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.turn_off();
                return Err(failed());
            }
        }
        Ok(())
    }

    fn turn_off(&mut self) {
        if !self.is_off {
            self.is_off = true;
            let Self { jobs, images, .. } = self;
            jobs.iter_mut().filter_map(|job| job.write.take()).for_each(|w| images.interrupted(w));
            self.trace("off", Path::new(""), 0, 0, true);
        }
    }

    fn trace(&mut self, what: &str, path: &Path, offset: u64, len: usize, is_good: bool) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let line = format!("{what} {name} {offset} {len} {is_good}");
        tracing::trace!("{line}");
        self.trace = xxh3_64_with_seed(line.as_bytes(), self.trace);
    }

    fn wake(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.waiting)
    }

    fn has_work(&self) -> bool {
        !self.jobs.is_empty() || self.chores.iter().any(Chore::is_due)
    }

    fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

impl Chore {
    fn is_due(&self) -> bool {
        self.is_ready && self.step.is_some()
    }
}

impl Disk {
    /// A disk on which everything follows from `seed`.
    // tidy: public, because the simulation of the whole proxy is a test.
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner {
                rng: Rng::new(seed),
                is_off: false,
                operations: 0,
                operations_left: None,
                faults: Faults::default(),
                faults_of: Vec::new(),
                jobs: Vec::new(),
                chores: Vec::new(),
                last_id: 0,
                images: Images::default(),
                now_ns: CLOCK_START_NS,
                trace: 0,
                waiting: Vec::new(),
            }),
            life: AtomicU64::new(1),
        })
    }

    /// The thread's files lie on this disk until the guard is dropped: for the whole simulation.
    // tidy: public, because the simulation of the whole proxy is a test.
    pub fn enter(self: &Arc<Self>) -> Guard {
        IS_SIMULATING.store(true, Ordering::Relaxed);
        let before = CURRENT.with(|disk| disk.replace(Some(Arc::clone(self))));
        Guard { before, _here: PhantomData }
    }

    /// Ends one operation, or does a piece of work in the background: any of them. `false`: there
    /// is none.
    // tidy: public, because the simulation of the whole proxy is a test.
    pub fn step(self: &Arc<Self>) -> bool {
        let mut inner = self.inner.lock();
        inner.now_ns += CLOCK_STEP_NS;
        let due: Vec<u64> = inner.chores.iter().filter(|c| c.is_due()).map(|c| c.id).collect();
        let count = inner.jobs.len() + due.len();
        if count == 0 {
            return false;
        }
        let at = inner.rng.below(count as u64) as usize;
        let Some(chore) = at.checked_sub(inner.jobs.len()) else {
            let job = inner.jobs.swap_remove(at);
            drop(inner);
            self.end(job);
            return true;
        };
        drop(inner);
        self.do_chore(due[chore]);
        true
    }

    /// Ends one operation, any of them, for somebody who has to wait. `false`: there is none.
    pub(crate) fn end_one(self: &Arc<Self>) -> bool {
        let mut inner = self.inner.lock();
        inner.now_ns += CLOCK_STEP_NS;
        let count = inner.jobs.len() as u64;
        if count == 0 {
            return false;
        }
        let at = inner.rng.below(count) as usize;
        let job = inner.jobs.swap_remove(at);
        drop(inner);
        self.end(job);
        true
    }

    fn end(self: &Arc<Self>, job: Job) {
        let _guard = self.enter();
        (job.end)();
    }

    fn do_chore(self: &Arc<Self>, id: u64) {
        let find = |inner: &mut Inner| inner.chores.iter().position(|chore| chore.id == id);
        let mut step = {
            let mut inner = self.inner.lock();
            let Some(at) = find(&mut inner) else { return };
            inner.trace("work", Path::new(""), id, 0, true);
            inner.chores[at].is_ready = false;
            let Some(step) = inner.chores[at].step.take() else { return };
            step
        };
        let guard = self.enter();
        let next = step();
        drop(guard);
        let mut inner = self.inner.lock();
        let Some(at) = find(&mut inner) else {
            drop(inner);
            return drop(step); // it was stopped meanwhile
        };
        if next == Next::Ended {
            inner.chores.remove(at);
            drop(inner);
            return drop(step);
        }
        inner.chores[at].is_ready |= next == Next::Again;
        inner.chores[at].step = Some(step);
    }

    /// Resolves when there is something to do for [`Disk::step`].
    // tidy: public, because the simulation of the whole proxy is a test.
    pub async fn wanted(&self) {
        poll_fn(|context| {
            let mut inner = self.inner.lock();
            if inner.has_work() {
                return Poll::Ready(());
            }
            if !inner.waiting.iter().any(|known| known.will_wake(context.waker())) {
                inner.waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// From now on operations fail with these chances, but for paths with chances of their own.
    // tidy: public, because the simulation of the whole proxy is a test.
    pub fn set_faults(&self, faults: Faults) {
        self.inner.lock().faults = faults;
    }

    /// The same for a file, or for all files below a directory; what was said last counts. `None`:
    /// it has no chances of its own any more.
    // tidy: public, because the simulation of the whole proxy is a test.
    pub fn set_faults_of(&self, path: &Path, faults: Option<Faults>) {
        let mut inner = self.inner.lock();
        inner.faults_of.retain(|(of, _)| of != path);
        inner.faults_of.extend(faults.map(|faults| (path.to_owned(), faults)));
    }

    /// The power fails, or the process ends: all operations fail from now on, those under way too.
    // tidy: public, because the simulation of the whole proxy is a test.
    pub fn cut_power(&self) {
        let wakers = {
            let mut inner = self.inner.lock();
            inner.turn_off();
            inner.wake()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The power fails in the middle of the `operations`th operation from now on.
    // tidy: public, because the simulation of the whole proxy is a test.
    pub fn lose_power_after(&self, operations: u64) {
        self.inner.lock().operations_left = Some(operations.max(1));
    }

    /// Whether the power has failed.
    // tidy: public, because the simulation of the whole proxy is a test.
    pub fn is_off(&self) -> bool {
        self.inner.lock().is_off
    }

    /// The power is back: writes that were not synced are there whole, torn or not at all. All
    /// that used the disk before must have been dropped.
    // tidy: public, because the simulation of the whole proxy is a test.
    pub fn power_up(&self) {
        self.begin_life(true);
    }

    /// The end of the process alone, after [`Disk::cut_power`] or without it: the system keeps all
    /// writes that have ended; those under way are there whole, torn or not at all.
    // tidy: public, because the simulation of the whole proxy is a test.
    pub fn restart(&self) {
        self.begin_life(false);
    }

    fn begin_life(&self, has_lost_power: bool) {
        let (jobs, chores) = {
            let mut inner = self.inner.lock();
            inner.turn_off();
            (std::mem::take(&mut inner.jobs), std::mem::take(&mut inner.chores))
        };
        // They may have something to say to the disk, so not under the lock.
        drop((jobs, chores));
        let mut inner = self.inner.lock();
        let Inner { images, rng, .. } = &mut *inner;
        images.begin_life(rng, has_lost_power);
        (inner.is_off, inner.operations_left) = (false, None);
        self.life.fetch_add(1, Ordering::Relaxed);
    }

    /// Operations so far.
    // tidy: public, because the simulation of the whole proxy is a test.
    pub fn operations(&self) -> u64 {
        self.inner.lock().operations
    }

    /// A hash of all operations so far, with their outcomes: equal for equal seeds.
    // tidy: public, because the simulation of the whole proxy is a test.
    pub fn trace(&self) -> u64 {
        self.inner.lock().trace
    }

    /// A name for the owner of operations, or for work in the background.
    pub(crate) fn new_id(&self) -> u64 {
        self.inner.lock().new_id()
    }

    pub(crate) fn rng_below(&self, bound: u64) -> u64 {
        self.inner.lock().rng.below(bound)
    }

    /// Number of the present life.
    pub(crate) fn life(&self) -> u64 {
        self.life.load(Ordering::Relaxed)
    }

    /// Begins an operation: `end` carries it out. Dropped undone when its owner takes it back, or
    /// when the disk begins a new life.
    pub(crate) fn begin(&self, owner: u64, write: Option<Write>, end: Box<dyn FnOnce() + Send>) {
        let wakers = {
            let mut inner = self.inner.lock();
            let write = write.filter(|_| !inner.is_off);
            inner.jobs.push(Job { owner, write, end });
            inner.wake()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Drops all operations of an owner.
    pub(crate) fn take_back(&self, owner: u64) {
        let undone: Vec<Job> = {
            let mut inner = self.inner.lock();
            let jobs = std::mem::take(&mut inner.jobs);
            let (mine, others) = jobs.into_iter().partition(|job| job.owner == owner);
            inner.jobs = others;
            mine
        };
        drop(undone);
    }

    /// Adds work in the background, to be begun at once.
    pub(super) fn add_chore(&self, id: u64, step: Step) {
        let wakers = {
            let mut inner = self.inner.lock();
            inner.chores.push(Chore { id, is_ready: true, step: Some(step) });
            inner.wake()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// There is something to do for this work.
    pub(super) fn rouse(&self, id: u64) {
        let wakers = {
            let mut inner = self.inner.lock();
            let Some(chore) = inner.chores.iter_mut().find(|chore| chore.id == id) else { return };
            chore.is_ready = true;
            inner.wake()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends it.
    pub(super) fn remove_chore(&self, id: u64) {
        let chore = {
            let mut inner = self.inner.lock();
            let at = inner.chores.iter().position(|chore| chore.id == id);
            at.map(|at| inner.chores.remove(at))
        };
        drop(chore);
    }

    /// Whether an operation that changes a directory, or opens a file, can be done now.
    pub(super) fn change(&self, what: &str, path: &Path, is_write: bool) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let outcome = inner.operate().and_then(|()| {
            let faults = inner.faults(path);
            let ppm = if is_write { faults.write_fails_ppm } else { faults.read_fails_ppm };
            if inner.chance(ppm) { Err(failed()) } else { Ok(()) }
        });
        inner.trace(what, path, 0, 0, outcome.is_ok());
        outcome
    }

    fn operate_on(&self, inner: &mut Inner, target: &Target) -> io::Result<Faults> {
        if target.life != self.life() {
            return Err(failed());
        }
        inner.operate()?;
        Ok(inner.faults(&target.path))
    }

    /// Reads until `into` is full or the file ends.
    pub(crate) fn read(&self, target: &Target, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut inner = self.inner.lock();
        let outcome = self.operate_on(&mut inner, target).and_then(|faults| {
            if inner.chance(faults.read_fails_ppm) {
                return Err(failed());
            }
            super::images::read_fully(&target.file, offset, into)
        });
        inner.trace("read", &target.path, offset, into.len(), outcome.is_ok());
        outcome
    }

    /// Writes all of `bytes`.
    pub(crate) fn write(&self, target: &Target, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let outcome = self.write_under(&mut inner, target, offset, bytes);
        inner.trace("write", &target.path, offset, bytes.len(), outcome.is_ok());
        outcome
    }

    fn write_under(
        &self,
        inner: &mut Inner,
        target: &Target,
        offset: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        let had_power = !inner.is_off && target.life == self.life();
        let faults = match self.operate_on(inner, target) {
            Ok(faults) => faults,
            Err(error) => {
                if had_power {
                    inner.images.interrupted(target.to_write(offset, bytes)?);
                }
                return Err(error);
            }
        };
        let len = target.file.metadata()?.len();
        if faults.is_full && (target.is_block || offset + bytes.len() as u64 > len) {
            return Err(Errno::NOSPC.into());
        }
        let (mut offset, mut bytes) = (offset, bytes);
        if target.is_block && inner.chance(faults.misdirected_ppm) {
            offset = super::images::sectors_down(inner.rng.below(len));
            let room = usize::try_from(len.saturating_sub(offset)).unwrap_or(usize::MAX);
            bytes = &bytes[..bytes.len().min(room)];
        }
        let is_failed = inner.chance(faults.write_fails_ppm);
        let Inner { images, rng, .. } = inner;
        let part = if is_failed { super::images::fate(rng, bytes.len()) } else { 0..bytes.len() };
        let write = target.to_write(offset + part.start as u64, &bytes[part])?;
        images.write(write, target.is_lasting)?;
        if is_failed { Err(failed()) } else { Ok(()) }
    }

    /// Waits until all writes to the file are lasting.
    pub(crate) fn sync(&self, target: &Target) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let outcome = self.operate_on(&mut inner, target).and_then(|faults| {
            if inner.chance(faults.write_fails_ppm) {
                return Err(failed());
            }
            inner.images.synced(target.id);
            Ok(())
        });
        inner.trace("sync", &target.path, 0, 0, outcome.is_ok());
        outcome
    }

    /// The file has been emptied, and is so after a loss of power too.
    pub(super) fn emptied(&self, target: &Target) {
        self.inner.lock().images.synced(target.id);
    }

    /// Waits for a future that operations of the disk will end.
    pub(crate) fn block_on<T>(self: &Arc<Self>, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(value) =
                future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            {
                return value;
            }
            assert!(self.end_one(), "a thread waits for an event that does not come");
        }
    }

    /// Makes the file this long.
    pub(crate) fn set_len(&self, target: &Target, len: u64) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let outcome = self.operate_on(&mut inner, target).and_then(|faults| {
            if faults.is_full && len > target.file.metadata()?.len() {
                return Err(Errno::NOSPC.into());
            }
            target.file.set_len(len)?;
            inner.images.has_length(target.id, len);
            Ok(())
        });
        inner.trace("set_len", &target.path, len, 0, outcome.is_ok());
        outcome
    }
}

impl Target {
    pub(crate) fn new(
        disk: &Disk,
        file: File,
        path: PathBuf,
        is_lasting: bool,
        is_block: bool,
    ) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let id = (metadata.dev(), metadata.ino());
        Ok(Self { file, path, id, life: disk.life(), is_lasting, is_block })
    }

    /// A write to this file.
    pub(crate) fn to_write(&self, offset: u64, bytes: &[u8]) -> io::Result<Write> {
        Ok(Write { id: self.id, file: self.file.try_clone()?, offset, bytes: bytes.to_vec() })
    }
}
