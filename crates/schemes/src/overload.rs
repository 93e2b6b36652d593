//! The choice of a directory whose disk cannot keep up (`overload=`).
//!
//! With `shed`, an object that finds the queue of stores full is not stored. From half of it on, an
//! object is stored only if it comes for the second time: where not all can be stored, those are
//! worth more that are asked for again.
//!
//! With `wait`, an object that finds the queue half full waits for its turn before its body is
//! fetched: so its client waits, and holds no more meanwhile than what came with the head. With its
//! turn it gets a place, which counts like a store that is under way until the object is handed to
//! the disk: however many begin at once, no more of them are let in than find room. A place that is
//! given up, because the client has left or the fetch has failed, goes to the next in line.
//! Whatever makes room has the line looked at. Nobody waits longer than [`WAIT_MAX`] in all: a new
//! object then goes on without a place, and is stored if the queue takes it; a hit that waits for
//! as long becomes a miss.
//!
//! Places of objects that come slowly would keep others waiting beside an idle disk. So while
//! little is under way ([`BUSY_SHARE`]), a place whose object has not come within [`PLACE_AGE_MAX`]
//! counts no longer. While more is under way, or something else than stores bounds the room, each
//! place counts: the disk has enough to do.

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

/// Longest time that a place is kept for an object which has not come while the disk has little to
/// do.
pub(crate) const PLACE_AGE_MAX: Duration = Duration::from_millis(100);

/// The disk has little to do while less than this share of the first half of its queue is under
/// way.
const BUSY_SHARE: u64 = 4;

/// Most objects that wait for their turn in one directory. Further ones do not wait.
pub(crate) const TURNS_WAITING_MAX: usize = 1024;

/// About as long is an object whose length is not known.
pub(crate) const OBJECT_BYTES_ABOUT: u64 = 13 * 1024;

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

/// How much of the first half of a queue is taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Room beside what is under way; none while what would come were refused.
    pub(crate) free: u64,
    /// Stores that are under way.
    pub(crate) under_way: u64,
    /// The first half of the queue.
    pub(crate) half: u64,
}

impl Room {
    /// In a half of this size.
    pub(crate) fn beside(under_way: u64, half: u64) -> Self {
        Self { free: half.saturating_sub(under_way), under_way, half }
    }

    /// The same, but with no more than `most` free.
    pub(crate) fn at_most(self, most: u64) -> Self {
        Self { free: self.free.min(most), ..self }
    }

    /// Whether the disk has so little to do that nobody should wait for objects that do not come.
    /// Not while something else than stores bounds the room: that is work for the disk too.
    fn is_quiet(self) -> bool {
        self.under_way < self.half.div_ceil(BUSY_SHARE) && self.free == self.half - self.under_way
    }
}

/// Asked with the line locked, on any thread: it must neither lock nor wake anything.
type AskRoom = Box<dyn Fn() -> Room + Send + Sync>;

/// A further bound of the room, see [`Turns::limit`].
type Limit = Box<dyn Fn() -> u64 + Send + Sync>;

/// The first half of a directory's queue of stores, and the line in front of it. Both are measured
/// in the scheme's unit: objects or bytes.
struct Queue {
    room: AskRoom,
    limit: OnceLock<Limit>,
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
    /// Nobody's time is up, and places do not lapse, for tests.
    #[cfg(test)]
    is_patient: bool,
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
        room: impl Fn() -> Room + Send + Sync + 'static,
    ) -> Self {
        let (room, limit) = (Box::new(room), OnceLock::new());
        Self {
            overload,
            capacity_bytes,
            seen: OnceLock::new(),
            queue: Arc::new(Queue { room, limit, line: Mutex::default() }),
            waits: AtomicU64::default(),
            late_hits: AtomicU64::default(),
        }
    }

    /// There is never more room than `limit` says. It is for what stands behind the queue, and is
    /// asked like the room. There is one such limit.
    pub(crate) fn limit(&self, limit: impl Fn() -> u64 + Send + Sync + 'static) {
        if self.is_waited() {
            _ = self.queue.limit.set(Box::new(limit));
        }
    }

    /// From now on nobody's time is up before minutes have passed, nor that of a place: tests wait
    /// for events.
    #[cfg(test)]
    pub(crate) fn be_patient(&self) {
        self.queue.line.lock().is_patient = true;
    }

    fn wait_max(&self) -> Duration {
        #[cfg(test)]
        if self.queue.line.lock().is_patient {
            return 600 * WAIT_MAX;
        }
        WAIT_MAX
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
            let end = Instant::now() + self.wait_max();
            let mut turn = pin!(Turn { queue: &self.queue, units, number: None });
            loop {
                let is_last = end <= Instant::now();
                match timeout_at(self.queue.next_look().min(end), turn.as_mut()).await {
                    Ok(place) => return Ok(place),
                    Err(_) if is_last => return Err(SchemeError::Busy("the disk cannot keep up")),
                    Err(_) => self.queue.look(),
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
            match timeout(self.wait_max(), look_up).await {
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
        let (now, room) = (Instant::now(), self.room());
        line.lapse(now, room);
        if !line.waiting.is_empty() || !line.fits(room) {
            return Err(line.waiting.len());
        }
        line.last += 1;
        let number = line.last;
        line.keep(number, units, now);
        Ok(self.place(number))
    }

    fn room(&self) -> Room {
        let room = (self.room)();
        self.limit.get().map_or(room, |limit| room.at_most(limit()))
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
            let (now, room) = (Instant::now(), self.room());
            line.lapse(now, room);
            let mut let_in = Vec::new();
            while line.fits(room)
                && let Some(first) = line.waiting.pop_front()
            {
                line.keep(first.number, first.units, now);
                let_in.push(first);
            }
            let_in
        };
        let_in.into_iter().for_each(|first| first.waiting.wake());
    }

    /// When those in line look at the latest, as the next place may lapse then. Beside places that
    /// might have lapsed before, the disk has enough to do, and the end of a store has the line
    /// looked at. But that may give places to those in front, which lapse in their turn without
    /// another end; so nobody sleeps for longer than a place may last.
    fn next_look(&self) -> Instant {
        let line = self.line.lock();
        let now = Instant::now();
        let next = line.places.partition_point(|kept| kept.until <= now);
        let latest = now + PLACE_AGE_MAX;
        let lapses = line.places.get(next).map_or(latest, |kept| kept.until.min(latest));
        lapses.max(now + LOOK_STEP)
    }

    /// A place is not needed any more: the object has been handed to the disk, or will not come.
    fn give_back(&self, number: u64) {
        self.line.lock().forget(number);
        self.look();
    }
}

impl Line {
    /// Whether there is room for one more beside the places that were given. If it is larger than
    /// the room, it takes some of the queue's second half: so a large object never keeps small ones
    /// waiting behind it for room that is there.
    fn fits(&self, room: Room) -> bool {
        self.kept < room.free
    }

    fn keep(&mut self, number: u64, units: u64, now: Instant) {
        self.kept += units;
        self.places.push_back(Kept { number, units, until: now + self.place_age() });
    }

    fn place_age(&self) -> Duration {
        #[cfg(test)]
        if self.is_patient {
            return 600 * PLACE_AGE_MAX;
        }
        PLACE_AGE_MAX
    }

    fn forget(&mut self, number: u64) {
        if let Ok(at) = self.places.binary_search_by_key(&number, |kept| kept.number) {
            self.kept -= self.places.remove(at).map_or(0, |kept| kept.units);
        }
    }

    fn lapse(&mut self, now: Instant, room: Room) {
        if !room.is_quiet() {
            return;
        }
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
mod tests;
