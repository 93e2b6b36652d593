//! The choice of a directory whose disk cannot keep up (`overload=`).
//!
//! With `shed`, an object that finds the queue of stores full is not stored. From half of it on, an
//! object is stored only if it comes for the second time: where not all can be stored, those are
//! worth more that are asked for again.
//!
//! With `wait`, an object that finds the queue half full waits for its turn before its body is
//! fetched: so its client waits, and holds no memory meanwhile. With its turn it gets a place,
//! which counts like a store that is under way until the object is handed to the disk: however many
//! begin at once, no more of them are let in than find room. A place that is given up, because the
//! client has left or the fetch has failed, goes to the next in line. Whatever makes room has the
//! line looked at. A place whose object has not come within [`PLACE_AGE_MAX`] counts no longer:
//! that is how long one can wait beside an idle disk. Nobody waits longer than [`WAIT_MAX`] in all:
//! a new object then goes on without a place, and is stored if the queue takes it; a hit that waits
//! for as long becomes a miss.

use std::collections::VecDeque;
use std::future::{Future, ready};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use humboldt_runtime::mailbox::Waiting;
use humboldt_store::scheme::{IoFuture, Place, SchemeError};
use humboldt_store::{Doorkeeper, Key};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use crate::Overload;

/// Longest time that a client waits for the disk with `overload=wait`.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(1);

/// Longest time that a place is kept for an object which has not come: behind a slow server others
/// would wait beside an idle disk.
pub(crate) const PLACE_AGE_MAX: Duration = Duration::from_millis(100);

/// Most objects that wait for their turn in one directory. Further ones do not wait.
pub(crate) const TURNS_WAITING_MAX: usize = 1024;

/// About as long is an object whose length is not known, for queues that are measured in bytes.
const OBJECT_BYTES_ABOUT: u64 = 13 * 1024;

/// A longer object comes piece by piece, and gets a place for as much.
const PLACE_BYTES_MAX: u64 = 1024 * 1024;

/// Those who wait look for places that were kept too long no more often than this.
const LOOK_STEP: Duration = Duration::from_millis(20);

/// The place that an object takes in a queue which is measured in bytes.
pub(crate) fn place_bytes(body_bytes: Option<u64>) -> u64 {
    body_bytes.unwrap_or(OBJECT_BYTES_ABOUT).clamp(1, PLACE_BYTES_MAX)
}

/// Those who wait for their turn to store, or are turned away.
pub(crate) struct Turns {
    overload: Overload,
    capacity_bytes: u64,
    /// Objects that were turned away; there since the first one.
    seen: OnceLock<Doorkeeper>,
    queue: Arc<Queue>,
    waits: AtomicU64,
    /// Hits that were given up after [`WAIT_MAX`].
    late_hits: AtomicU64,
}

/// Room in the first half of the queue, beside what is under way. Asked with the line locked.
type Room = Box<dyn Fn() -> u64 + Send + Sync>;

/// The first half of a directory's queue of stores, and the line in front of it. Both are measured
/// in the scheme's unit: objects or bytes.
struct Queue {
    room: Room,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    last: u64,
    /// In ascending order of their numbers.
    waiting: VecDeque<InLine>,
    /// The same; so the one that was given first is in front.
    places: VecDeque<Kept>,
    /// Sum of these places.
    kept: u64,
}

struct InLine {
    number: u64,
    units: u64,
    waiting: Waiting,
}

/// A place that has been given to an object, which has not been handed to the disk yet.
struct Kept {
    number: u64,
    units: u64,
    until: Instant,
}

/// Gives a place back when dropped.
struct Holder {
    queue: Arc<Queue>,
    number: u64,
}

/// Somebody in the line, until it is its turn.
struct Turn<'a> {
    queue: &'a Arc<Queue>,
    units: u64,
    number: Option<u64>,
}

impl Turns {
    /// For a directory of this size. `room` says how much may be begun to be stored beside what is
    /// under way, before the queue is half full.
    pub(crate) fn new(
        overload: Overload,
        capacity_bytes: u64,
        room: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        Self {
            overload,
            capacity_bytes,
            seen: OnceLock::new(),
            queue: Arc::new(Queue { room: Box::new(room), line: Mutex::default() }),
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

    /// The turn of a new object that takes `units` of the queue; `None` if it needs none, or may
    /// not wait.
    pub(crate) fn turn(&self, units: u64) -> Option<IoFuture<'_, Place>> {
        if !self.is_waited() {
            return None;
        }
        match self.queue.place_now(units) {
            Ok(place) => return Some(Box::pin(ready(Ok(place)))),
            Err(in_line) if in_line >= TURNS_WAITING_MAX => return None,
            Err(_) => {}
        }
        self.waits.fetch_add(1, Ordering::Relaxed);
        Some(Box::pin(async move {
            let end = Instant::now() + WAIT_MAX;
            let mut turn = pin!(Turn { queue: &self.queue, units, number: None });
            loop {
                let next = self.queue.next_lapse().map(|at| at.max(Instant::now() + LOOK_STEP));
                match timeout_at(next.map_or(end, |at| at.min(end)), turn.as_mut()).await {
                    Ok(place) => return Ok(place),
                    Err(_) if Instant::now() < end => self.queue.look(),
                    Err(_) => return Err(SchemeError::Busy("the disk cannot keep up")),
                }
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

    /// There may be more room than before: lets in those who find some. To be called after whatever
    /// makes room.
    pub(crate) fn look(&self) {
        if self.is_waited() {
            self.queue.look();
        }
    }

    #[cfg(test)]
    fn kept(&self) -> (u64, usize) {
        let line = self.queue.line.lock();
        (line.kept, line.places.len())
    }
}

impl Queue {
    /// A place at once, if there is room and nobody in line; otherwise how many there are.
    fn place_now(self: &Arc<Self>, units: u64) -> Result<Place, usize> {
        let mut line = self.line.lock();
        let now = Instant::now();
        line.lapse(now);
        if !line.waiting.is_empty() || !line.fits(units, (self.room)()) {
            return Err(line.waiting.len());
        }
        line.last += 1;
        let number = line.last;
        line.keep(number, units, now);
        Ok(self.place(number))
    }

    fn place(self: &Arc<Self>, number: u64) -> Place {
        Place::new(Holder { queue: Arc::clone(self), number })
    }

    /// Gives places that were kept too long to others, and lets in those who find room.
    fn look(&self) {
        let let_in = {
            let mut line = self.line.lock();
            if line.waiting.is_empty() {
                return;
            }
            let now = Instant::now();
            line.lapse(now);
            let mut let_in = Vec::new();
            while let Some(InLine { number, units, .. }) = line.waiting.front() {
                let (number, units) = (*number, *units);
                if !line.fits(units, (self.room)()) {
                    break;
                }
                line.keep(number, units, now);
                let_in.extend(line.waiting.pop_front());
            }
            let_in
        };
        let_in.into_iter().for_each(|first| first.waiting.wake());
    }

    /// When the place that was given first lapses.
    fn next_lapse(&self) -> Option<Instant> {
        self.line.lock().places.front().map(|kept| kept.until)
    }

    /// A place is not needed any more: the object has been handed to the disk, or will not come.
    fn give_back(&self, number: u64) {
        self.line.lock().forget(number);
        self.look();
    }
}

impl Line {
    /// Whether `units` more find room beside the places that were given. An object that is larger
    /// than half of the queue goes alone.
    fn fits(&self, units: u64, room: u64) -> bool {
        self.kept + units <= room || self.kept == 0 && room > 0
    }

    fn keep(&mut self, number: u64, units: u64, now: Instant) {
        self.kept += units;
        self.places.push_back(Kept { number, units, until: now + PLACE_AGE_MAX });
    }

    fn forget(&mut self, number: u64) {
        if let Ok(at) = self.places.binary_search_by_key(&number, |kept| kept.number) {
            self.kept -= self.places.remove(at).map_or(0, |kept| kept.units);
        }
    }

    fn lapse(&mut self, now: Instant) {
        while let Some(kept) = self.places.pop_front_if(|kept| kept.until <= now) {
            self.kept -= kept.units;
        }
    }

    fn find(&self, number: u64) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&number, |in_line| in_line.number)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.queue.give_back(self.number);
    }
}

impl Future for Turn<'_> {
    type Output = Place;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Place> {
        let (queue, units) = (self.queue, self.units);
        let number = match self.number {
            Some(number) => number,
            None => {
                let mut line = queue.line.lock();
                line.last += 1;
                let number = line.last;
                line.waiting.push_back(InLine { number, units, waiting: Waiting::of(context) });
                drop(line);
                self.number = Some(number);
                // Room may have come since.
                queue.look();
                number
            }
        };
        let mut line = queue.line.lock();
        match line.find(number) {
            Ok(at) => {
                if let Some(in_line) = line.waiting.get_mut(at)
                    && !in_line.waiting.is_of(context)
                {
                    in_line.waiting = Waiting::of(context);
                }
                Poll::Pending
            }
            Err(_) => {
                drop(line);
                self.number = None;
                Poll::Ready(queue.place(number))
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut line = self.queue.line.lock();
        if let Ok(at) = line.find(number) {
            line.waiting.remove(at);
        }
        drop(line);
        // It was its turn perhaps, or its place in line kept others from theirs.
        self.queue.give_back(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn poll<T>(future: &mut IoFuture<'_, T>) -> Poll<Result<T, SchemeError>> {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    fn run(test: impl Future<Output = ()>) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
        runtime.block_on(test);
    }

    /// A queue whose first half has room for `half`, and the number of stores under way.
    fn turns_of(overload: Overload, half: u64) -> (Turns, Arc<AtomicU64>) {
        let under_way = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&under_way);
        let room = move || half.saturating_sub(count.load(Ordering::Relaxed));
        (Turns::new(overload, 1 << 30, room), under_way)
    }

    type Wait<'a> = IoFuture<'a, Place>;

    /// Polls all; returns the places of those whose turn it is.
    fn places(turns: &mut Vec<Wait<'_>>) -> Vec<Place> {
        let mut places = Vec::new();
        turns.retain_mut(|turn| match poll(turn) {
            Poll::Ready(place) => {
                places.push(place.expect("a place"));
                false
            }
            Poll::Pending => true,
        });
        places
    }

    #[test]
    fn with_shed_nobody_waits_and_what_comes_again_is_stored() {
        let (own, _) = turns_of(Overload::Shed, 0);
        assert!(own.turn(1).is_none());
        assert_eq!(own.waits(), 0);
        let (first, second) = (Key::primary(b"http://a/"), Key::primary(b"http://b/"));
        assert!(!own.refuses(&first, || false), "there is room");
        assert!(own.refuses(&first, || true) && own.refuses(&second, || true));
        assert!(!own.refuses(&first, || true), "the second time");
        let (waits, _) = turns_of(Overload::Wait, 0);
        assert!(!waits.refuses(&second, || true), "it has waited");
    }

    #[test]
    fn of_many_that_begin_at_once_as_many_are_let_in_as_find_room() {
        run(async {
            let (turns, under_way) = turns_of(Overload::Wait, 10);
            let mut all: Vec<Wait<'_>> = (0..100).map(|_| turns.turn(1).expect("a turn")).collect();
            let mut first = places(&mut all);
            assert_eq!((first.len(), all.len(), turns.waits()), (10, 90, 90));
            // They are handed to the disk: a place becomes a store.
            for place in first.drain(..) {
                under_way.fetch_add(1, Ordering::Relaxed);
                drop(place);
            }
            assert_eq!((places(&mut all).len(), turns.kept()), (0, (0, 0)));
            // Three stores end.
            under_way.fetch_sub(3, Ordering::Relaxed);
            turns.look();
            let next = places(&mut all);
            assert_eq!((next.len(), turns.kept()), (3, (3, 3)));
        });
    }

    #[test]
    fn nobody_overtakes_and_a_place_that_is_given_up_goes_to_the_next() {
        run(async {
            let (turns, under_way) = turns_of(Overload::Wait, 2);
            under_way.store(2, Ordering::Relaxed);
            let turn = || turns.turn(1).expect("a turn");
            let (mut first, mut second) = (turn(), turn());
            assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
            under_way.store(1, Ordering::Relaxed);
            let mut third = turn();
            assert!(poll(&mut third).is_pending(), "others were there before");
            let Poll::Ready(Ok(place)) = poll(&mut first) else { panic!("there is room") };
            assert!(poll(&mut second).is_pending(), "but for one");
            drop(place);
            drop(second); // it was its turn, and nobody has told it yet
            let Poll::Ready(Ok(place)) = poll(&mut third) else { panic!("it is the next") };
            assert!(poll(&mut turn()).is_pending(), "its place is kept");
            drop(place);
            assert!(poll(&mut turn()).is_ready());
            assert_eq!(turns.kept(), (0, 0));
        });
    }

    #[test]
    fn a_large_object_waits_for_as_much_room_and_goes_alone_if_there_is_never_as_much() {
        run(async {
            let (turns, under_way) = turns_of(Overload::Wait, 10);
            let Poll::Ready(Ok(small)) = poll(&mut turns.turn(6).expect("a turn")) else {
                panic!("there is room")
            };
            let mut large = turns.turn(6).expect("a turn");
            let mut larger = turns.turn(20).expect("a turn");
            assert!(poll(&mut large).is_pending() && poll(&mut larger).is_pending());
            drop(small);
            let Poll::Ready(Ok(large)) = poll(&mut large) else { panic!("there is room") };
            assert!(poll(&mut larger).is_pending());
            under_way.store(9, Ordering::Relaxed);
            drop(large);
            assert!(poll(&mut larger).is_ready());
        });
    }

    #[test]
    fn a_place_that_is_kept_too_long_goes_to_others() {
        run(async {
            let (turns, _) = turns_of(Overload::Wait, 1);
            let slow = turns.turn(1).expect("a turn").await.expect("a place");
            tokio::time::advance(PLACE_AGE_MAX / 2).await;
            let start = Instant::now();
            let other = turns.turn(1).expect("a turn").await.expect("a place");
            assert!(start.elapsed() < PLACE_AGE_MAX / 2 + 2 * LOOK_STEP, "{:?}", start.elapsed());
            drop(slow);
            assert_eq!(turns.kept(), (1, 1), "that of the other");
            drop(other);
            assert_eq!(turns.kept(), (0, 0));
        });
    }

    #[test]
    fn room_that_comes_meanwhile_is_seen() {
        run(async {
            let (turns, under_way) = turns_of(Overload::Wait, 1);
            under_way.store(1, Ordering::Relaxed);
            let mut turn = turns.turn(1).expect("a turn");
            under_way.store(0, Ordering::Relaxed);
            assert!(poll(&mut turn).is_ready());
        });
    }

    #[test]
    fn nobody_waits_for_longer_than_the_limit_and_the_line_is_bounded() {
        run(async {
            let (turns, _) = turns_of(Overload::Wait, 0);
            let start = Instant::now();
            let turn = turns.turn(1).expect("waits");
            assert!(matches!(turn.await, Err(SchemeError::Busy(_))));
            assert!(start.elapsed() < 2 * WAIT_MAX);
            let never = turns.in_time(Box::pin(std::future::pending::<Result<(), _>>()));
            assert!(matches!(never.await, Err(SchemeError::Busy(_))));
            assert_eq!(turns.late_hits(), 1);
            let mut all: Vec<_> =
                (0..TURNS_WAITING_MAX).map(|_| turns.turn(1).expect("waits")).collect();
            assert!(all.iter_mut().all(|turn| poll(turn).is_pending()));
            assert!(turns.turn(1).is_none(), "the line is full");
            drop(all);
            assert!(turns.turn(1).is_some() && turns.queue.line.lock().waiting.is_empty());
        });
    }
}
