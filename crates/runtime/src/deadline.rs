//! Coarse deadlines, cheap enough to set and clear for every read of every connection.
//!
//! Squid's timeouts are seconds to days, so a deadline here is two stores into a table: no
//! allocation, no timer-wheel entry. One sweeper task per core looks through the table every
//! [`TICK`] while any slot is armed, and sleeps otherwise. A deadline fires up to two ticks late,
//! and early only by as much as something kept the whole core from running.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use humboldt_base::vital::Vital;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How often the sweeper looks, while anything is armed.
pub const TICK: Duration = Duration::from_millis(250);

/// Instead of a neighbour in the line.
const NOBODY: u32 = u32::MAX;

/// `due_ms` of a slot that is not armed.
const NEVER_MS: u64 = u64::MAX;

/// The time that was allowed has passed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the time allowed has passed")]
pub struct Elapsed;

/// All deadlines of one core. Clones share one table.
///
/// Bounded by the owners of slots: a few per connection, and one per fetch that waits for its head.
#[derive(Clone)]
pub struct Deadlines {
    core: Rc<Core>,
}

struct Core {
    start: Instant,
    /// Time of the last sweep in ms since `start`, from which `arm` counts, so that it reads no
    /// clock.
    now_ms: Cell<u64>,
    /// No armed slot is due before this; lets a sweep skip the table.
    earliest_ms: Cell<u64>,
    sweeping: Cell<bool>,
    /// Shared with the sweeper, which must not keep the table alive while it sleeps.
    wake_sweeper: Rc<Notify>,
    table: RefCell<Table>,
    /// Wakers of the sweep in progress; kept for its capacity.
    to_wake: RefCell<Vec<Waker>>,
}

struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slots that give way ([`DeadlineSlot::arm_in_line`]), the longest waiting first.
    first: u32,
    last: u32,
}

struct Slot {
    due_ms: u64,
    expired: bool,
    /// It has expired before its time.
    gave_way: bool,
    in_line: bool,
    before: u32,
    behind: u32,
    waker: Option<Waker>,
}

impl Default for Table {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), first: NOBODY, last: NOBODY }
    }
}

impl Table {
    /// The neighbour's link, or the end of the line where there is no neighbour.
    fn behind_of(&mut self, index: u32) -> &mut u32 {
        match self.slots.get_mut(index as usize) {
            Some(slot) => &mut slot.behind,
            None => &mut self.first,
        }
    }

    fn before_of(&mut self, index: u32) -> &mut u32 {
        match self.slots.get_mut(index as usize) {
            Some(slot) => &mut slot.before,
            None => &mut self.last,
        }
    }

    fn enter_line(&mut self, index: u32) {
        self.leave_line(index);
        let last = self.last;
        *self.behind_of(last) = index;
        self.last = index;
        let slot = &mut self.slots[index as usize];
        (slot.in_line, slot.before, slot.behind) = (true, last, NOBODY);
    }

    fn leave_line(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if std::mem::replace(&mut slot.in_line, false) {
            let (before, behind) = (slot.before, slot.behind);
            *self.behind_of(before) = behind;
            *self.before_of(behind) = before;
        }
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        Self::new()
    }
}

impl Deadlines {
    /// An empty table and its sweeper task. Call it inside the core's runtime. The sweeper ends
    /// with the last clone and slot.
    pub fn new() -> Self {
        let wake_sweeper = Rc::new(Notify::new());
        let core = Rc::new(Core {
            start: Instant::now(),
            now_ms: Cell::new(0),
            earliest_ms: Cell::new(NEVER_MS),
            sweeping: Cell::new(false),
            wake_sweeper: Rc::clone(&wake_sweeper),
            table: RefCell::default(),
            to_wake: RefCell::default(),
        });
        tokio::task::spawn_local(sweep_forever(Rc::downgrade(&core), wake_sweeper));
        Self { core }
    }

    /// A new slot, not armed; it is freed when dropped.
    pub fn slot(&self) -> DeadlineSlot {
        let mut table = self.core.table.borrow_mut();
        let empty = Slot {
            due_ms: NEVER_MS,
            expired: false,
            gave_way: false,
            in_line: false,
            before: NOBODY,
            behind: NOBODY,
            waker: None,
        };
        let index = match table.free.pop() {
            Some(index) => {
                table.slots[index as usize] = empty;
                index
            }
            None => {
                table.slots.push(empty);
                (table.slots.len() - 1) as u32
            }
        };
        DeadlineSlot { core: Rc::clone(&self.core), index }
    }

    /// Lets the deadline that has been in line for longest expire now. `false` when nobody is in
    /// line.
    pub fn expire_first_in_line(&self) -> bool {
        let waker = {
            let mut table = self.core.table.borrow_mut();
            loop {
                let first = table.first;
                if first == NOBODY {
                    return false;
                }
                table.leave_line(first);
                let slot = &mut table.slots[first as usize];
                if !slot.expired {
                    (slot.due_ms, slot.expired, slot.gave_way) = (NEVER_MS, true, true);
                    break slot.waker.take();
                }
            }
        };
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// Wakes everybody who waits for a deadline, so that they look at what else has changed.
    pub fn wake_all(&self) {
        let wakers: Vec<Waker> = {
            let table = self.core.table.borrow();
            table.slots.iter().filter_map(|slot| slot.waker.clone()).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    #[cfg(test)]
    fn slots_in_use(&self) -> usize {
        let table = self.core.table.borrow();
        table.slots.len() - table.free.len()
    }
}

/// One deadline of one task. At most one task may wait on it at a time.
pub struct DeadlineSlot {
    core: Rc<Core>,
    index: u32,
}

impl DeadlineSlot {
    /// Sets the deadline to `after` from now, replacing an earlier one. Fires between `after` and
    /// `after` plus two ticks from now.
    pub fn arm(&self, after: Duration) {
        let due_ms = self.core.due_ms(after);
        let mut table = self.core.table.borrow_mut();
        table.leave_line(self.index);
        let slot = &mut table.slots[self.index as usize];
        slot.due_ms = due_ms;
        slot.expired = false;
        slot.gave_way = false;
        if due_ms < self.core.earliest_ms.get() {
            self.core.earliest_ms.set(due_ms);
        }
    }

    /// Sets the deadline to `after` from now if it was later. One that has passed stays so.
    pub fn shorten(&self, after: Duration) {
        let is_later = |slot: &Slot| !slot.expired && slot.due_ms > self.core.due_ms(after);
        if self.core.table.borrow().slots.get(self.index as usize).is_some_and(is_later) {
            self.arm(after);
        }
    }

    /// As [`DeadlineSlot::arm`], for a wait that gives way when room is needed: it may expire at
    /// any time, after all that were armed in this way before it
    /// ([`Deadlines::expire_first_in_line`]).
    pub fn arm_in_line(&self, after: Duration) {
        self.arm(after);
        self.core.table.borrow_mut().enter_line(self.index);
    }

    /// The wait does not give way any more; the deadline stays.
    pub fn leave_line(&self) {
        self.core.table.borrow_mut().leave_line(self.index);
    }

    /// Whether it has expired to give way.
    pub fn gave_way(&self) -> bool {
        self.core.table.borrow().slots[self.index as usize].gave_way
    }

    /// Another slot of the same core.
    pub fn another(&self) -> Self {
        Deadlines { core: Rc::clone(&self.core) }.slot()
    }

    /// Clears the deadline, and the mark that it passed.
    pub fn disarm(&self) {
        let mut table = self.core.table.borrow_mut();
        table.leave_line(self.index);
        let slot = &mut table.slots[self.index as usize];
        slot.due_ms = NEVER_MS;
        slot.expired = false;
        slot.waker = None;
    }

    /// Whether the deadline has passed since it was armed.
    pub fn is_expired(&self) -> bool {
        self.core.table.borrow().slots[self.index as usize].expired
    }

    /// Ready once the deadline has passed; otherwise the task of `cx` is woken when it does.
    pub fn poll_expired(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut table = self.core.table.borrow_mut();
        let slot = &mut table.slots[self.index as usize];
        if slot.expired {
            return Poll::Ready(());
        }
        match &slot.waker {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            _ => slot.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Runs `future` until it ends or the deadline, armed before or meanwhile, has passed. A future
    /// that is ready at the deadline wins. The deadline stays armed.
    pub async fn guard<F: Future>(&self, future: F) -> Result<F::Output, Elapsed> {
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Ok(value)),
            Poll::Pending => self.poll_expired(cx).map(|()| Err(Elapsed)),
        })
        .await
    }
}

impl Drop for DeadlineSlot {
    fn drop(&mut self) {
        self.disarm();
        self.core.table.borrow_mut().free.push(self.index);
    }
}

impl Core {
    /// The time at which a deadline of `after` from now is due. While the sweeper ticks, its last
    /// reading is used and made up for with one tick; otherwise the clock is read and the sweeper
    /// started.
    fn due_ms(&self, after: Duration) -> u64 {
        let after_ms = u64::try_from(after.as_millis()).unwrap_or(NEVER_MS);
        let base_ms = if self.sweeping.get() {
            self.now_ms.get() + TICK.as_millis() as u64
        } else {
            self.sweeping.set(true);
            self.wake_sweeper.notify_one();
            self.read_clock()
        };
        base_ms.saturating_add(after_ms).min(NEVER_MS - 1)
    }

    fn read_clock(&self) -> u64 {
        let now_ms = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(NEVER_MS - 1);
        self.now_ms.set(now_ms);
        now_ms
    }

    /// Marks and wakes due deadlines. Returns whether any is still armed.
    fn sweep(&self) -> bool {
        let now_ms = self.read_clock();
        if self.earliest_ms.get() > now_ms {
            return self.earliest_ms.get() != NEVER_MS;
        }
        let mut to_wake = self.to_wake.take();
        let mut earliest_ms = NEVER_MS;
        for slot in &mut self.table.borrow_mut().slots {
            if slot.due_ms > now_ms {
                earliest_ms = earliest_ms.min(slot.due_ms);
                continue;
            }
            slot.due_ms = NEVER_MS;
            slot.expired = true;
            to_wake.extend(slot.waker.take());
        }
        self.earliest_ms.set(earliest_ms);
        to_wake.drain(..).for_each(Waker::wake);
        self.to_wake.replace(to_wake);
        // A waker may have run code that armed a slot.
        self.earliest_ms.get() != NEVER_MS
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.wake_sweeper.notify_one();
    }
}

/// The sweeper. It holds the table only while it works, so that it ends with the last other owner.
async fn sweep_forever(core: Weak<Core>, wake: Rc<Notify>) {
    let _vital = Vital::new("the timers of a core");
    loop {
        let Some(strong) = core.upgrade() else { return };
        let armed = strong.sweep();
        strong.sweeping.set(armed);
        drop(strong);
        if armed {
            tokio::time::sleep(TICK).await;
        } else {
            wake.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::task::LocalSet;
    use tokio::time::{advance, sleep};

    use super::*;

    /// Runs `test` with a clock that stands still and is moved by hand or when all tasks sleep.
    fn with_paused_clock<F: Future>(test: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        LocalSet::new().block_on(&runtime, test)
    }

    #[test]
    fn fires_after_the_time_and_within_two_ticks() {
        with_paused_clock(async {
            let deadlines = Deadlines::new();
            for after_ms in [0, 1, 900, 60_000, 86_400_000] {
                let slot = deadlines.slot();
                let after = Duration::from_millis(after_ms);
                let start = Instant::now();
                slot.arm(after);
                assert_eq!(slot.guard(pending::<()>()).await, Err(Elapsed));
                let took = start.elapsed();
                assert!(took >= after && took <= after + 2 * TICK, "{after:?} took {took:?}");
                assert!(slot.is_expired());
            }
        });
    }

    #[test]
    fn rearming_moves_the_deadline_and_disarming_removes_it() {
        with_paused_clock(async {
            let deadlines = Deadlines::new();
            let slot = deadlines.slot();
            slot.arm(Duration::from_secs(1));
            slot.arm(Duration::from_secs(10));
            assert_eq!(slot.guard(sleep(Duration::from_secs(9))).await, Ok(()));
            slot.disarm();
            assert_eq!(slot.guard(sleep(Duration::from_secs(100))).await, Ok(()));
            assert!(!slot.is_expired());
        });
    }

    #[test]
    fn a_deadline_is_shortened_but_never_extended() {
        with_paused_clock(async {
            for (armed_s, shortened_s, due_s) in [(60, 5, 5), (5, 60, 5)] {
                let slot = Deadlines::new().slot();
                slot.arm(Duration::from_secs(armed_s));
                slot.shorten(Duration::from_secs(shortened_s));
                let before = Duration::from_secs(due_s) - Duration::from_millis(1);
                assert_eq!(slot.guard(sleep(before)).await, Ok(()), "{due_s}");
                assert_eq!(slot.guard(sleep(Duration::from_secs(1))).await, Err(Elapsed));
            }
        });
    }

    #[test]
    fn those_who_wait_can_be_woken_before_their_time() {
        with_paused_clock(async {
            let deadlines = Deadlines::new();
            let slot = deadlines.slot();
            slot.arm(Duration::from_secs(60));
            let polls = Rc::new(Cell::new(0));
            let counted = Rc::clone(&polls);
            let waiting = tokio::task::spawn_local(async move {
                poll_fn(|cx| {
                    counted.set(counted.get() + 1);
                    slot.poll_expired(cx)
                })
                .await;
            });
            tokio::task::yield_now().await;
            assert_eq!(polls.get(), 1);
            deadlines.wake_all();
            tokio::task::yield_now().await;
            assert_eq!((polls.get(), waiting.is_finished()), (2, false));
        });
    }

    #[test]
    fn a_deadline_armed_while_waiting_counts() {
        with_paused_clock(async {
            let deadlines = Deadlines::new();
            let (slot, arming) = (Rc::new(deadlines.slot()), deadlines.slot());
            let other = Rc::clone(&slot);
            let waiting =
                tokio::task::spawn_local(async move { other.guard(pending::<()>()).await });
            assert_eq!(arming.guard(sleep(Duration::from_secs(5))).await, Ok(()));
            slot.arm(Duration::from_secs(2));
            assert_eq!(waiting.await.expect("joined"), Err(Elapsed));
        });
    }

    #[test]
    fn the_sweeper_sleeps_when_nothing_is_armed_and_ends_with_its_users() {
        with_paused_clock(async {
            let deadlines = Deadlines::new();
            let slot = deadlines.slot();
            slot.arm(Duration::from_secs(1));
            slot.disarm();
            advance(Duration::from_secs(2)).await;
            sleep(Duration::from_secs(1)).await;
            assert!(!deadlines.core.sweeping.get(), "nothing armed, nothing swept");
            let weak = Rc::downgrade(&deadlines.core);
            drop((deadlines, slot));
            assert!(weak.upgrade().is_none());
        });
    }

    #[test]
    fn those_in_line_expire_in_the_order_in_which_they_were_armed_and_nobody_else() {
        with_paused_clock(async {
            let deadlines = Deadlines::new();
            assert!(!deadlines.expire_first_in_line());
            let slots: Vec<_> = (0..6).map(|_| deadlines.slot()).collect();
            let long = Duration::from_secs(1000);
            slots.iter().for_each(|slot| slot.arm_in_line(long));
            slots[1].leave_line();
            slots[0].arm_in_line(long);
            slots[5].arm(long);
            slots[3].arm_in_line(Duration::from_secs(1));
            assert_eq!(slots[3].guard(pending::<()>()).await, Err(Elapsed));
            assert!(!slots[3].gave_way(), "its time was over");
            let mut order = Vec::new();
            while deadlines.expire_first_in_line() {
                let newest =
                    (0..6).find(|index| slots[*index].gave_way() && !order.contains(index));
                order.extend(newest);
            }
            assert_eq!(order, [2, 4, 0], "3 has expired already");
            assert!(slots[2].is_expired() && !slots[1].is_expired() && !slots[5].is_expired());
            drop(slots);
            let anew = deadlines.slot();
            anew.arm_in_line(long);
            assert!(!anew.gave_way() && deadlines.expire_first_in_line() && anew.gave_way());
        });
    }

    #[test]
    fn slots_are_reused() {
        with_paused_clock(async {
            let deadlines = Deadlines::new();
            drop(deadlines.slot());
            let slots: Vec<_> = (0..100).map(|_| deadlines.slot()).collect();
            assert_eq!(deadlines.slots_in_use(), 100);
            slots[3].arm(Duration::ZERO);
            assert_eq!(slots[3].guard(pending::<()>()).await, Err(Elapsed));
            drop(slots);
            assert_eq!(deadlines.slots_in_use(), 0);
            let fresh = deadlines.slot();
            assert!(!fresh.is_expired(), "a reused slot starts clean");
        });
    }
}
