//! Stripes that wait for the disk, objects that wait for stripes (`overload=wait`), and the memory
//! that all may take.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use humboldt_store::scheme::Scheme;

use super::{Store, poll_put, url, wait_until};
use crate::Overload;
use crate::battery::{record, run, settle};
use crate::coss::dir::Hold;

/// With `overload=wait`: objects so small that none of them fills a stripe.
#[test]
fn a_stripe_that_was_written_lets_all_in_who_find_room() {
    let store = Store::new(16, |options| {
        options.own.overload = Overload::Wait;
        (options.own.membufs, options.own.maxfullbufs) = (3, Some(2));
    });
    store.put("http://first/", 1, 10);
    let coss = store.coss();
    wait_until("victims are known", || coss.dir.log.lock().victims.len() == 2);
    let gate = coss.dir.data.gate.lock();
    while coss.dir.log.lock().full.is_empty() {
        assert!(poll_put(coss, "http://large/", 400_000).is_some_and(|stored| stored.is_ok()));
    }
    coss.dir.turns.be_patient();
    run(async {
        let mut turns: Vec<_> = (0..300).map(|_| coss.turn(Some(100)).expect("a turn")).collect();
        let mut context = Context::from_waker(Waker::noop());
        assert!(turns.iter_mut().all(|turn| turn.as_mut().poll(&mut context).is_pending()));
        drop(gate);
        let mut placed = Vec::new();
        for turn in turns {
            placed.push(turn.await.expect("there is room"));
        }
    });
    assert_eq!(coss.stats().waits, 300);
}

/// With `overload=wait`: what fills a stripe has its place before it comes.
#[test]
fn no_more_are_let_in_than_find_room_in_stripes() {
    let store = Store::new(16, |options| {
        options.own.overload = Overload::Wait;
        (options.own.membufs, options.own.maxfullbufs) = (3, Some(2));
    });
    run(async {
        let mut turns: Vec<_> =
            (0..60).map(|_| store.coss().turn(Some(100_000)).expect("a turn")).collect();
        let mut context = Context::from_waker(Waker::noop());
        let mut places = Vec::new();
        turns.retain_mut(|turn| match turn.as_mut().poll(&mut context) {
            Poll::Ready(place) => {
                places.push(place.expect("a place"));
                false
            }
            Poll::Pending => true,
        });
        assert_eq!(
            (places.len(), turns.len()),
            (11, 49),
            "half of two stripes, and one that begins"
        );
    });
}

#[test]
fn what_readers_and_writers_hold_is_bounded() {
    let store = Store::new(8, |_| ());
    let share = Arc::clone(&store.coss().dir.share);
    share.set_whole(u64::MAX);
    let create = |i| run(store.coss().create(record(&url(i), 1), Some(900_000))).ok();
    let writers: Vec<_> = (0..100).map_while(create).collect();
    assert!((35..38).contains(&writers.len()), "32 MiB: {}", writers.len());
    assert!(store.coss().stats().shed > 0);
    assert!(Hold::to_read(&store.coss().dir, 30 << 20).is_ok(), "hits outlast stores");
    assert!(Hold::to_read(&store.coss().dir, 34 << 20).is_err());
    assert_eq!(store.coss().stats().shed_hits, 1);
    drop(writers);
    assert_eq!(store.coss().dir.in_hand_bytes(), 0);
    // Where memory is short it is less.
    share.set_whole(0);
    let writers: Vec<_> = (0..100).map_while(create).collect();
    assert_eq!(writers.len(), 9, "8 MiB");
    assert!(Hold::to_read(&store.coss().dir, 9 << 20).is_err());
    // Once a second it looks at the memory of this machine.
    settle(store.coss(), |_| {
        run(store.coss().maintain()).expect("maintenance");
        share.part_bytes() > 0
    });
    store.coss().close().expect("closed");
    assert!(share.has_left());
}
