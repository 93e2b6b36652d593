//! A core's I/O ring: one for each thread, made when first used, shared by all files.
//!
//! Operations of several tasks go to the kernel with one system call. A task of the core does that,
//! behind the tasks that are ready before it, and waits for the ring's descriptor to become
//! readable. So the more a core has to do, the longer an operation waits, and the more go together.
//! The task belongs to the runtime and ends with it. The ring belongs to the thread, and
//! starts another task when it is used from another runtime.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use humboldt_sys::uring::{RING_DEPTH, Ring, Transfer};
use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, Id, RuntimeFlavor};

use super::ticket::{Ticket, queue_full};

/// Most reads, and most writes, of a core that wait for room in its ring; further ones fail with
/// `WouldBlock`.
pub(crate) const WAITING_MAX: usize = 1024;

/// Most reads, and most writes, in a ring: the other places are for the other kind. So clients do
/// not wait behind all writes, and purges, which write, not behind all reads.
pub(crate) const ONE_KIND_MAX: usize = RING_DEPTH / 4 * 3;

/// How long a thread waits for its operations at its end.
const END_WAIT: Duration = Duration::from_secs(30);

thread_local! {
    static DRIVER: RefCell<State> = const { RefCell::new(State::Untried) };
}

enum State {
    Untried,
    /// The system refuses, or the ring broke: threads do the work.
    Missing,
    Ready(Rc<Driver>),
}

/// The ring of this thread.
struct Driver {
    ring: RefCell<Ring<Ticket>>,
    waiting: RefCell<Waiting>,
    /// Reads and writes in the ring.
    under_way: [Cell<usize>; 2],
    /// The task that looks after the ring.
    watcher: RefCell<Option<(Id, Arc<Watched>)>>,
    /// Whether that task has been woken to submit.
    is_woken: Cell<bool>,
}

/// Operations that wait for room in the ring, in their order. Reads go first: clients wait for
/// them.
#[derive(Default)]
struct Waiting {
    reads: VecDeque<(Ticket, u64, Transfer)>,
    writes: VecDeque<(Ticket, u64, Transfer)>,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.writes.is_empty()
    }

    /// Reads that were given up leave.
    fn forget_unwanted(&mut self) {
        self.reads.retain(|(ticket, ..)| ticket.is_wanted());
    }

    fn like(&mut self, transfer: &Transfer) -> &mut VecDeque<(Ticket, u64, Transfer)> {
        if is_write(transfer) { &mut self.writes } else { &mut self.reads }
    }
}

fn is_write(transfer: &Transfer) -> bool {
    matches!(transfer, Transfer::Append(..))
}

/// The state that the ring and its task share.
#[derive(Default)]
struct Watched {
    has_ended: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// Begins an operation on this core's ring. Gives it back if this thread has none, or is no core:
/// it has no runtime, or one of several threads.
pub(crate) fn begin(
    ticket: Ticket,
    offset: u64,
    transfer: Transfer,
) -> Result<(), (Ticket, Transfer)> {
    match here() {
        Some(driver) => {
            driver.push(ticket, offset, transfer);
            Ok(())
        }
        None => Err((ticket, transfer)),
    }
}

/// Sees to it that a task of the current runtime looks after this thread's ring.
pub(crate) fn watch() {
    // With a ring there is nothing else to do, and without one nothing to look after.
    let _ = here();
}

/// Reads of this thread that were given up, and wait for room in its ring, leave.
pub(crate) fn forget_unwanted() {
    if let Some(driver) = ready_driver() {
        driver.waiting.borrow_mut().forget_unwanted();
    }
}

/// Blocks until an operation of this thread's ring has ended, or for `step`. `false`: there is none
/// under way.
pub(crate) fn drive(step: Duration) -> bool {
    let Some(driver) = ready_driver() else { return false };
    if driver.is_idle() {
        return false;
    }
    driver.turn();
    if !driver.is_idle() {
        driver.wait(step);
        driver.turn();
    }
    true
}

/// The reads and the writes of this thread that wait for room in its ring.
#[cfg(test)]
pub(crate) fn waiting_here() -> (usize, usize) {
    ready_driver().map_or((0, 0), |driver| {
        let waiting = driver.waiting.borrow();
        (waiting.reads.len(), waiting.writes.len())
    })
}

fn ready_driver() -> Option<Rc<Driver>> {
    // A thread that is being torn down has no ring any more.
    let found = DRIVER.try_with(|state| match &*state.borrow() {
        State::Ready(driver) => Some(Rc::clone(driver)),
        State::Untried | State::Missing => None,
    });
    found.ok().flatten()
}

/// This thread's ring, with a task of the current runtime to look after it.
fn here() -> Option<Rc<Driver>> {
    let runtime = Handle::try_current().ok()?;
    if runtime.runtime_flavor() != RuntimeFlavor::CurrentThread {
        return None;
    }
    let driver = ready_driver().or_else(make_driver)?;
    driver.watch(&runtime).ok()?;
    Some(driver)
}

fn make_driver() -> Option<Rc<Driver>> {
    let made = DRIVER.try_with(|state| {
        if !matches!(*state.borrow(), State::Untried) {
            return None;
        }
        let driver = Driver::new().map(Rc::new).inspect_err(say_missing).ok();
        *state.borrow_mut() = driver.clone().map_or(State::Missing, State::Ready);
        driver
    });
    made.ok().flatten()
}

fn say_missing(error: &io::Error) {
    static SAID: Once = Once::new();
    SAID.call_once(|| tracing::warn!("no I/O ring for a core ({error}): threads do its disk I/O"));
}

impl Driver {
    fn new() -> io::Result<Self> {
        Ok(Self {
            ring: RefCell::new(Ring::new()?),
            waiting: RefCell::default(),
            under_way: Default::default(),
            watcher: RefCell::default(),
            is_woken: Cell::new(false),
        })
    }

    fn is_idle(&self) -> bool {
        self.ring.borrow().in_flight() == 0 && self.waiting.borrow().is_empty()
    }

    fn push(&self, ticket: Ticket, offset: u64, transfer: Transfer) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.reads.len() >= WAITING_MAX {
            waiting.forget_unwanted();
        }
        let line = waiting.like(&transfer);
        if line.len() >= WAITING_MAX {
            drop(waiting);
            return ticket.complete(transfer, Err(queue_full()));
        }
        // No operation overtakes the waiting ones of its kind.
        let refused = if line.is_empty() {
            self.enter(ticket, offset, transfer)
        } else {
            Some((ticket, transfer))
        };
        line.extend(refused.map(|(ticket, transfer)| (ticket, offset, transfer)));
        drop(waiting);
        self.wake();
    }

    /// Puts an operation into the ring; gives it back if it has to wait.
    fn enter(&self, ticket: Ticket, offset: u64, transfer: Transfer) -> Option<(Ticket, Transfer)> {
        let like_it = self.like(&transfer);
        if like_it.get() >= ONE_KIND_MAX {
            return Some((ticket, transfer));
        }
        let refused = self.ring.borrow_mut().push(ticket, offset, transfer).err();
        if refused.is_none() {
            like_it.set(like_it.get() + 1);
        }
        refused
    }

    /// The number of operations of this kind in the ring.
    fn like(&self, transfer: &Transfer) -> &Cell<usize> {
        let [reads, writes] = &self.under_way;
        if is_write(transfer) { writes } else { reads }
    }

    /// Lets the task submit, behind those that are ready.
    fn wake(&self) {
        if !self.is_woken.replace(true)
            && let Some((_, watched)) = &*self.watcher.borrow()
            && let Some(waker) = &*watched.waker.lock()
        {
            waker.wake_by_ref();
        }
    }

    /// Submits pushed operations, completes ended ones, and moves waiting ones up.
    fn turn(&self) {
        self.is_woken.set(false);
        let submitted = self.ring.borrow_mut().submit();
        loop {
            // The receiver may begin another operation, so nothing is borrowed at that moment.
            let ended = self.ring.borrow_mut().complete();
            let Some((ticket, transfer, result)) = ended else { break };
            let like_it = self.like(&transfer);
            like_it.set(like_it.get().saturating_sub(1));
            ticket.complete(transfer, result);
        }
        self.refill();
        if let Err(error) = submitted.and_then(|()| self.ring.borrow_mut().submit()) {
            return give_up(&error);
        }
        if self.ring.borrow_mut().has_unsubmitted() {
            self.wake();
        }
    }

    fn refill(&self) {
        let mut waiting = self.waiting.borrow_mut();
        let Waiting { reads, writes } = &mut *waiting;
        for line in [reads, writes] {
            while let Some((ticket, offset, transfer)) = line.pop_front() {
                if !ticket.is_wanted() {
                    continue;
                }
                if let Some((ticket, transfer)) = self.enter(ticket, offset, transfer) {
                    line.push_front((ticket, offset, transfer));
                    break;
                }
            }
        }
    }

    fn wait(&self, step: Duration) {
        let waited = self.ring.borrow_mut().wait(step);
        if let Err(error) = waited {
            give_up(&error);
        }
    }

    /// Starts a task in `runtime` unless there is one.
    fn watch(&self, runtime: &Handle) -> io::Result<()> {
        let mut watcher = self.watcher.borrow_mut();
        let is_watched = |(id, watched): &(Id, Arc<Watched>)| {
            *id == runtime.id() && !watched.has_ended.load(Ordering::Relaxed)
        };
        if watcher.as_ref().is_some_and(is_watched) {
            return Ok(());
        }
        let readiness = self.ring.borrow().readiness()?;
        #[allow(
            deprecated,
            reason = "its successor is unsafe; an owned descriptor meets the conditions"
        )]
        let readiness = AsyncFd::with_interest(readiness, Interest::READABLE)?;
        let watched = Arc::new(Watched::default());
        runtime.spawn(Watcher { readiness, watched: Arc::clone(&watched) });
        *watcher = Some((runtime.id(), watched));
        Ok(())
    }
}

/// The ring broke, which should not happen: operations under way are given up, and threads do the
/// work from now on.
fn give_up(error: &io::Error) {
    tracing::error!("the I/O ring of a core failed ({error}): threads do its disk I/O from now on");
    // Dropped outside of the borrow.
    let state = DRIVER.try_with(|state| state.replace(State::Missing));
    drop(state);
}

impl Drop for Driver {
    fn drop(&mut self) {
        let deadline = Instant::now() + END_WAIT;
        self.turn();
        while !self.is_idle() && Instant::now() < deadline {
            if self.ring.borrow_mut().wait(Duration::from_millis(100)).is_err() {
                break;
            }
            self.turn();
        }
    }
}

/// The task that looks after a ring. It could move between threads, for all the compiler knows, so
/// it finds the ring where it runs.
struct Watcher {
    readiness: AsyncFd<OwnedFd>,
    watched: Arc<Watched>,
}

impl Future for Watcher {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        {
            let mut waker = self.watched.waker.lock();
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        }
        loop {
            let Some(driver) = ready_driver() else { return Poll::Ready(()) };
            let is_ours = |(_, watched): &(Id, Arc<Watched>)| Arc::ptr_eq(watched, &self.watched);
            if !driver.watcher.borrow().as_ref().is_some_and(is_ours) {
                return Poll::Ready(());
            }
            driver.turn();
            match ready!(self.readiness.poll_read_ready(cx)) {
                Ok(mut guard) => guard.clear_ready(),
                Err(_) => return Poll::Ready(()),
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.watched.has_ended.store(true, Ordering::Relaxed);
    }
}
