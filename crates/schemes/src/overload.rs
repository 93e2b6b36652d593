//! The choice of a directory whose disk cannot keep up (`overload=`).
//!
//! With `shed`, an object that finds the queue of stores full is not stored. From half of it on, an
//! object is stored only if it comes for the second time: where not all can be stored, those are
//! worth more that are asked for again.
//!
//! With `wait`, an object that finds the queue half full waits for its turn before its body is
//! fetched: so its client waits, and holds no memory meanwhile. Every store that ends lets another
//! one in, in the order in which they came. Nobody waits longer than [`WAIT_MAX`]: a new object
//! then goes on without a turn, and is stored if the queue takes it; a hit that waits for as long
//! becomes a miss.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use humboldt_runtime::mailbox::Waiting;
use humboldt_store::scheme::{IoFuture, SchemeError};
use humboldt_store::{Doorkeeper, Key};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::Overload;

/// Longest time that a client waits for the disk with `overload=wait`.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(1);

/// Most objects that wait for their turn in one directory. Further ones do not wait.
pub(crate) const TURNS_WAITING_MAX: usize = 1024;

/// About as long is an object, for schemes whose disk takes more than one with each write.
pub(crate) const OBJECT_BYTES_ABOUT: usize = 13 * 1024;

/// Those who wait for their turn to store, or are turned away.
pub(crate) struct Turns {
    overload: Overload,
    capacity_bytes: u64,
    /// Objects that were turned away; there since the first one.
    seen: OnceLock<Doorkeeper>,
    line: Mutex<Line>,
    waits: AtomicU64,
    /// Hits that were given up after [`WAIT_MAX`].
    late_hits: AtomicU64,
}

#[derive(Default)]
struct Line {
    last: u64,
    /// In ascending order of their numbers.
    waiting: VecDeque<(u64, Waiting)>,
}

/// A place in the line, until it is its turn.
struct Turn<'a, F> {
    turns: &'a Turns,
    is_full: F,
    number: Option<u64>,
}

impl Turns {
    /// For a directory of this size.
    pub(crate) fn new(overload: Overload, capacity_bytes: u64) -> Self {
        Self {
            overload,
            capacity_bytes,
            seen: OnceLock::new(),
            line: Mutex::default(),
            waits: AtomicU64::default(),
            late_hits: AtomicU64::default(),
        }
    }

    /// Whether objects wait rather than being turned away.
    pub(crate) fn is_waited(&self) -> bool {
        self.overload == Overload::Wait
    }

    /// New objects that have waited since the start.
    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Hits that became misses since the start because they would have waited too long.
    pub(crate) fn late_hits(&self) -> u64 {
        self.late_hits.load(Ordering::Relaxed)
    }

    /// Whether an object is to be turned away, as it is new and the queue is half full.
    pub(crate) fn refuses(&self, key: &Key, is_half_full: impl Fn() -> bool) -> bool {
        if self.is_waited() || !is_half_full() {
            return false;
        }
        !self.seen.get_or_init(|| Doorkeeper::new(self.capacity_bytes)).comes_again(key)
    }

    /// The turn of a new object; `None` if it need not wait, or may not.
    pub(crate) fn turn<'a>(&'a self, is_full: impl Fn() -> bool + 'a) -> Option<IoFuture<'a, ()>> {
        if !self.is_waited() {
            return None;
        }
        let in_line = self.line.lock().waiting.len();
        if in_line >= TURNS_WAITING_MAX || in_line == 0 && !is_full() {
            return None;
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        let turn = Turn { turns: self, is_full, number: None };
        Some(Box::pin(async move {
            match timeout(WAIT_MAX, turn).await {
                Ok(()) => Ok(()),
                Err(_) => Err(SchemeError::Busy("the disk cannot keep up")),
            }
        }))
    }

    /// A look-up, which with `wait` takes no longer than [`WAIT_MAX`].
    pub(crate) fn in_time<'a, T: 'a>(&'a self, look_up: IoFuture<'a, T>) -> IoFuture<'a, T> {
        if !self.is_waited() {
            return look_up;
        }
        Box::pin(async move {
            match timeout(WAIT_MAX, look_up).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    self.late_hits.fetch_add(1, Ordering::Relaxed);
                    Err(SchemeError::Busy("the disk takes too long"))
                }
            }
        })
    }

    /// A store has ended; `under_way` others have not, of which half of the queue may be `half`.
    /// Those who were let in need a while to begin, so with few under way more are let in.
    pub(crate) fn store_ended(&self, under_way: usize, half: usize) {
        if self.is_waited() {
            self.let_in(match under_way {
                0 => half.max(1),
                few if few < half / 2 => 2,
                _ => 1,
            });
        }
    }

    /// There is room for this many more.
    pub(crate) fn let_in(&self, objects: usize) {
        if !self.is_waited() {
            return;
        }
        let first = {
            let mut line = self.line.lock();
            let objects = objects.min(line.waiting.len());
            line.waiting.drain(..objects).collect::<Vec<_>>()
        };
        first.into_iter().for_each(|(_, waiting)| waiting.wake());
    }
}

impl<F> Unpin for Turn<'_, F> {}

impl<F: Fn() -> bool> Future for Turn<'_, F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let turns = self.turns;
        let number = match self.number {
            Some(number) => number,
            None => {
                let mut line = turns.line.lock();
                line.last += 1;
                let number = line.last;
                line.waiting.push_back((number, Waiting::of(context)));
                drop(line);
                self.number = Some(number);
                // The last store may have ended since.
                if !(self.is_full)() {
                    turns.let_in(1);
                }
                number
            }
        };
        let mut line = turns.line.lock();
        match line.waiting.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(at) => {
                if let Some((_, waiting)) = line.waiting.get_mut(at)
                    && !waiting.is_of(context)
                {
                    *waiting = Waiting::of(context);
                }
                Poll::Pending
            }
            Err(_) => {
                drop(line);
                self.number = None;
                Poll::Ready(())
            }
        }
    }
}

impl<F> Drop for Turn<'_, F> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut line = self.turns.line.lock();
        match line.waiting.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(at) => drop(line.waiting.remove(at)),
            Err(_) => {
                // It was its turn, and it has gone: the next one gets it.
                drop(line);
                self.turns.let_in(1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::task::Waker;

    fn poll<T>(future: &mut IoFuture<'_, T>) -> Poll<Result<T, SchemeError>> {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    fn run(test: impl Future<Output = ()>) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
        runtime.block_on(test);
    }

    fn turns_of(overload: Overload) -> Turns {
        Turns::new(overload, 1 << 30)
    }

    #[test]
    fn with_shed_nobody_waits_and_what_comes_again_is_stored() {
        let own = turns_of(Overload::Shed);
        assert!(own.turn(|| true).is_none());
        assert_eq!(own.waits(), 0);
        let (first, second) = (Key::primary(b"http://a/"), Key::primary(b"http://b/"));
        assert!(!own.refuses(&first, || false), "there is room");
        assert!(own.refuses(&first, || true) && own.refuses(&second, || true));
        assert!(!own.refuses(&first, || true), "the second time");
        assert!(!turns_of(Overload::Wait).refuses(&second, || true), "it has waited");
    }

    #[test]
    fn each_store_that_ends_lets_one_in_and_nobody_overtakes() {
        run(async {
            let (turns, is_full) = (turns_of(Overload::Wait), Cell::new(true));
            let turn = || turns.turn(|| is_full.get());
            let (mut first, mut second) = (turn().expect("waits"), turn().expect("waits"));
            assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
            is_full.set(false);
            let mut third = turn().expect("others were there before");
            is_full.set(true);
            assert!(poll(&mut third).is_pending());
            turns.store_ended(30, 40);
            assert!(poll(&mut second).is_pending() && poll(&mut first).is_ready());
            turns.store_ended(30, 40);
            drop(second); // it was its turn
            assert!(poll(&mut third).is_ready());
            is_full.set(false);
            assert!(turn().is_none(), "there is room, and nobody in line");
            assert_eq!(turns.waits(), 3);
        });
    }

    #[test]
    fn with_nothing_under_way_as_many_as_fit_are_let_in() {
        run(async {
            let turns = turns_of(Overload::Wait);
            let mut all: Vec<_> = (0..9).map(|_| turns.turn(|| true).expect("waits")).collect();
            assert!(all.iter_mut().all(|turn| poll(turn).is_pending()));
            turns.store_ended(0, 5);
            let ready = all.iter_mut().map(|turn| u32::from(poll(turn).is_ready())).sum::<u32>();
            assert_eq!(ready, 5);
        });
    }

    #[test]
    fn room_that_comes_meanwhile_is_seen() {
        run(async {
            let (turns, is_full) = (turns_of(Overload::Wait), Cell::new(true));
            let mut turn = turns.turn(|| is_full.get()).expect("waits");
            is_full.set(false);
            assert!(poll(&mut turn).is_ready());
        });
    }

    #[test]
    fn nobody_waits_for_longer_than_the_limit_and_the_line_is_bounded() {
        run(async {
            let turns = turns_of(Overload::Wait);
            let start = tokio::time::Instant::now();
            let turn = turns.turn(|| true).expect("waits");
            assert!(matches!(turn.await, Err(SchemeError::Busy(_))));
            assert!(start.elapsed() < 2 * WAIT_MAX);
            let never = turns.in_time(Box::pin(std::future::pending::<Result<(), _>>()));
            assert!(matches!(never.await, Err(SchemeError::Busy(_))));
            assert_eq!(turns.late_hits(), 1);
            let mut all: Vec<_> =
                (0..TURNS_WAITING_MAX).map(|_| turns.turn(|| true).expect("waits")).collect();
            assert!(all.iter_mut().all(|turn| poll(turn).is_pending()));
            assert!(turns.turn(|| true).is_none(), "the line is full");
            drop(all);
            assert!(turns.turn(|| true).is_some() && turns.line.lock().waiting.is_empty());
        });
    }
}
