//! `overload=wait`: stripes that wait for the disk, and objects that wait for stripes.

use std::task::{Context, Poll, Waker};

use humboldt_store::scheme::Scheme;

use super::{Store, poll_put, wait_until};
use crate::Overload;
use crate::battery::run;

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
