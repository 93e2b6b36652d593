//! Turns on a clock that stands still.

use super::*;
use std::task::Waker;
use tokio::task::{JoinHandle, LocalSet, spawn_local};

fn poll<T>(future: &mut IoFuture<'_, T>) -> Poll<Result<T, SchemeError>> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn run(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
    LocalSet::new().block_on(&runtime, test);
}

/// A queue whose first half has room for `half`, and the number of stores under way.
fn turns_of(overload: Overload, half: u64) -> (Turns, Arc<AtomicU64>) {
    let under_way = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&under_way);
    let room = move || Room::beside(count.load(Ordering::Relaxed), half);
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
fn a_large_object_takes_what_room_there_is_and_keeps_nobody_waiting_for_more() {
    run(async {
        let (turns, under_way) = turns_of(Overload::Wait, 10);
        let Poll::Ready(Ok(small)) = poll(&mut turns.turn(1).expect("a turn")) else {
            panic!("there is room")
        };
        // Larger than what is left, and than the whole half.
        let Poll::Ready(Ok(large)) = poll(&mut turns.turn(20).expect("a turn")) else {
            panic!("there is room for one more")
        };
        let (mut second, mut third) = (turns.turn(20).expect("a turn"), turns.turn(1));
        let third = third.as_mut().expect("a turn");
        assert!(poll(&mut second).is_pending() && poll(third).is_pending());
        drop(small);
        assert!(poll(&mut second).is_pending(), "the large one has taken all");
        under_way.store(9, Ordering::Relaxed);
        drop(large);
        let Poll::Ready(Ok(_second)) = poll(&mut second) else { panic!("it is the next") };
        assert!(poll(third).is_pending());
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

/// A slow server, whose objects come all at once, lets no more in than find room.
#[test]
fn places_are_kept_while_the_disk_has_enough_to_do() {
    run(async {
        let (turns, under_way) = turns_of(Overload::Wait, 8);
        under_way.store(2, Ordering::Relaxed);
        let mut all: Vec<Wait<'_>> = (0..20).map(|_| turns.turn(1).expect("a turn")).collect();
        let slow = places(&mut all);
        assert_eq!((slow.len(), all.len()), (6, 14));
        tokio::time::advance(5 * PLACE_AGE_MAX).await;
        turns.look();
        assert_eq!((places(&mut all).len(), turns.kept()), (0, (6, 6)));
        // The end of a store makes it quiet.
        under_way.store(1, Ordering::Relaxed);
        turns.look();
        let more = places(&mut all);
        assert_eq!((more.len(), turns.kept()), (7, (7, 7)));
        drop(slow);
        assert_eq!(turns.kept(), (7, 7), "theirs have lapsed");
    });
}

/// As the end of a store has the line looked at.
#[test]
fn those_who_wait_beside_a_busy_disk_look_seldom() {
    run(async {
        let (turns, under_way) = turns_of(Overload::Wait, 8);
        under_way.store(2, Ordering::Relaxed);
        let mut all: Vec<Wait<'_>> = (0..6).map(|_| turns.turn(1).expect("a turn")).collect();
        let _slow = places(&mut all);
        tokio::time::advance(PLACE_AGE_MAX / 2).await;
        assert_eq!(turns.queue.next_look(), Instant::now() + PLACE_AGE_MAX / 2);
        tokio::time::advance(PLACE_AGE_MAX / 2).await;
        assert_eq!(turns.queue.next_look(), Instant::now() + PLACE_AGE_MAX);
    });
}

/// Waits for its turn in a task of its own; with the place comes how long it has taken.
fn in_a_task(turns: &Arc<Turns>) -> JoinHandle<(Place, Duration)> {
    let (turns, start) = (Arc::clone(turns), Instant::now());
    spawn_local(async move {
        let place = turns.turn(1).expect("a turn").await.expect("a place");
        (place, start.elapsed())
    })
}

/// The places that keep them waiting are given after they have begun to sleep.
#[test]
fn nobody_sleeps_beside_a_disk_that_has_become_idle() {
    run(async {
        let (turns, under_way) = turns_of(Overload::Wait, 8);
        under_way.store(8, Ordering::Relaxed);
        let turns = Arc::new(turns);
        let tasks: Vec<_> = (0..12).map(|_| in_a_task(&turns)).collect();
        tokio::time::sleep(PLACE_AGE_MAX / 2).await;
        assert_eq!((turns.waits(), turns.kept()), (12, (0, 0)));
        // The stores end, and nothing else does: the servers of the next are slow.
        under_way.store(0, Ordering::Relaxed);
        turns.look();
        let mut slow = Vec::new();
        for task in tasks {
            let (place, waited) = task.await.expect("no panic");
            assert!(waited < 2 * PLACE_AGE_MAX, "{waited:?}");
            slow.push(place);
        }
    });
}

#[test]
fn the_line_is_looked_at_once_more_before_somebody_gives_up() {
    run(async {
        let (turns, under_way) = turns_of(Overload::Wait, 1);
        under_way.store(1, Ordering::Relaxed);
        let turns = Arc::new(turns);
        let task = in_a_task(&turns);
        tokio::time::sleep(WAIT_MAX - LOOK_STEP / 2).await;
        under_way.store(0, Ordering::Relaxed); // which nobody tells
        let (_place, waited) = task.await.expect("no panic");
        assert!(waited >= WAIT_MAX, "{waited:?}");
    });
}

#[test]
fn the_disk_is_quiet_below_a_quarter_of_its_half_and_if_nothing_else_is_to_be_done() {
    assert!(Room::beside(79, 320).is_quiet() && !Room::beside(80, 320).is_quiet());
    assert!(Room::beside(0, 1).is_quiet() && !Room::beside(1, 1).is_quiet());
    assert!(!Room::beside(0, 0).is_quiet() && !Room::beside(9, 1).is_quiet());
    let full_of_unlinks = Room::beside(0, 65).at_most(6);
    assert!(!full_of_unlinks.is_quiet() && full_of_unlinks.free == 6);
    assert!(Room::beside(23, 320).at_most(297).is_quiet(), "it does not bind");
    assert!(!Room::beside(23, 320).at_most(296).is_quiet());
}

#[test]
fn nobody_is_let_in_beyond_what_stands_behind_the_queue() {
    run(async {
        let (turns, _) = turns_of(Overload::Wait, 10);
        let most = Arc::new(AtomicU64::new(3));
        let limit = Arc::clone(&most);
        turns.limit(move || limit.load(Ordering::Relaxed));
        let mut all: Vec<Wait<'_>> = (0..20).map(|_| turns.turn(1).expect("a turn")).collect();
        let first = places(&mut all);
        assert_eq!(first.len(), 3);
        most.store(0, Ordering::Relaxed);
        drop(first);
        tokio::time::advance(2 * PLACE_AGE_MAX).await;
        turns.look();
        assert_eq!(places(&mut all).len(), 0, "it would be refused");
        most.store(20, Ordering::Relaxed);
        turns.look();
        assert_eq!(places(&mut all).len(), 10, "the room decides again");
    });
}

/// A full directory: those who were let in wait for unlinks, and are no stores yet.
#[test]
fn places_do_not_lapse_while_something_else_bounds_the_room() {
    run(async {
        let (turns, _) = turns_of(Overload::Wait, 10);
        turns.limit(|| 4);
        let mut all: Vec<Wait<'_>> = (0..20).map(|_| turns.turn(1).expect("a turn")).collect();
        let slow = places(&mut all);
        assert_eq!(slow.len(), 4);
        tokio::time::advance(2 * PLACE_AGE_MAX).await;
        turns.look();
        assert_eq!((places(&mut all).len(), turns.kept()), (0, (4, 4)));
        drop(slow);
        assert_eq!(places(&mut all).len(), 4);
    });
}

/// One that was let in, and counts behind the queue already, has its place all the same.
#[test]
fn of_what_may_wait_behind_the_queue_half_is_let_in() {
    run(async {
        let (turns, _) = turns_of(Overload::Wait, 320);
        let behind = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&behind);
        turns.limit(move || 64_u64.saturating_sub(count.load(Ordering::Relaxed)));
        let mut let_in = Vec::new();
        while let Poll::Ready(place) = poll(&mut turns.turn(1).expect("a turn")) {
            let_in.push(place.expect("a place"));
            behind.fetch_add(1, Ordering::Relaxed);
        }
        assert_eq!(let_in.len(), 32);
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
