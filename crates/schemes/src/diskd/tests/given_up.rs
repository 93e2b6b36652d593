//! Look-ups that were given up, and those who wait behind them with `overload=wait`.

use super::*;
use crate::diskd::engine::Remote;
use crate::diskd::exchange::UNLINKS_MAX;
use crate::tree::{Engine, OpenFor};

#[test]
fn look_ups_of_long_objects_that_were_given_up_leave_the_line_too() {
    let desk = Desk::new(3, 5);
    assert_eq!(desk.write_file(1, content(1, 100)), Ok(vec![]));
    let process = desk.freeze();
    let Desk { service, dir } = desk;
    let exchange = Arc::clone(&service.exchange);
    let remote = Remote::new(service);
    let open = || remote.open(1, OpenFor::Reading, Arc::new(()));
    let sent: Vec<_> = (0..6).map(|_| open()).collect();
    (0..100).for_each(|_| drop(open()));
    assert!((1..=7).contains(&exchange.in_line()), "{}", exchange.in_line());
    let wanted = open();
    rustix::process::kill_process(process, Signal::CONT).expect("it goes on");
    assert!(sent.into_iter().chain([wanted]).map(run).all(|opened| opened.is_ok()));
    exchange.wait_until_quiet(LIMIT);
    remote.close();
    drop(dir);
}

/// Polls it once.
fn is_ready<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    std::pin::Pin::new(future).poll(&mut context).is_ready()
}

/// With `overload=wait`: what they wait behind was given up, and that is found out by a refusal.
#[test]
fn look_ups_that_leave_the_line_let_others_in() {
    let desk = Desk::new(8, 5);
    assert_eq!(desk.write_file(1, content(1, 100)), Ok(vec![]));
    let exchange = &desk.service.exchange;
    exchange.turns.be_patient();
    let process = desk.freeze();
    run(async {
        let sent: Vec<_> = (0..6).map(|_| desk.begin_read(Op::ReadFile)).collect();
        let given_up: Vec<_> = (0..27).map(|_| desk.begin_read(Op::ReadFile)).collect();
        assert_eq!(exchange.in_line(), 27);
        let mut turn = exchange.turns.turn(1).expect("a turn");
        assert!(!is_ready(&mut turn), "there is no room");
        drop(given_up);
        assert!(!is_ready(&mut turn), "and nobody has looked");
        let _refused = desk.begin_read(Op::ReadFile);
        assert!(is_ready(&mut turn), "though the helper stands still");
        drop(sent);
    });
    rustix::process::kill_process(process, Signal::CONT).expect("it goes on");
    exchange.wait_until_quiet(LIMIT);
}

/// With `overload=wait`: such an object would be refused.
#[test]
fn nobody_is_let_in_while_too_many_files_wait_to_be_unlinked() {
    let desk = Desk::new(8, 5);
    let exchange = &desk.service.exchange;
    exchange.turns.be_patient();
    let process = desk.freeze();
    run(async {
        let unlink = |number| Message { number, ..Message::new(Op::Unlink) };
        let unlinks: Vec<_> =
            (0..UNLINKS_MAX as u32).map(|number| desk.begin(unlink(number), |call| call)).collect();
        assert!(!exchange.takes_unlinks() && !exchange.is_half_full());
        let mut turn = exchange.turns.turn(1).expect("a turn");
        assert!(!is_ready(&mut turn));
        rustix::process::kill_process(process, Signal::CONT).expect("it goes on");
        drop(turn.await.expect("a place"));
        drop(unlinks);
    });
    exchange.wait_until_quiet(LIMIT);
}

/// With `overload=wait`: the bound of unlinks is no reason to keep places while there are none.
#[test]
fn places_lapse_though_the_queue_is_longer_than_unlinks_may_wait() {
    let desk = Desk::new(UNLINKS_MAX as u32 + 100, UNLINKS_MAX as u32 + 200);
    let turns = &desk.service.exchange.turns;
    run(async {
        let mut slow = Vec::new();
        for _ in 0..UNLINKS_MAX {
            slow.push(turns.turn(1).expect("a turn").await.expect("a place"));
        }
        assert_eq!(turns.waits(), 0);
        turns.turn(1).expect("a turn").await.expect("that of a slow one");
        assert_eq!(turns.waits(), 1);
    });
}
