//! The load is open: nothing that a server does changes what is asked when, and all waiting is
//! measured.

#![allow(clippy::unwrap_used, reason = "clippy does not know that helpers of tests are tests")]

mod common;

use common::{Deed, Server, plan, run_until, workload};
use humboldt_lab_record::{FaultKind, Tally};
use humboldt_lab_robots::{Bang, BangTarget, Robots, Route};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A server that answers at once, but does nothing at all between two moments after its start.
fn stalling(from: Duration, to: Duration) -> Server {
    let begin = Instant::now();
    Server::start(workload("fixed-1k"), move |_, reply| {
        let now = begin.elapsed();
        if now >= from && now < to {
            thread::sleep(to - now);
        }
        Deed::Say(reply.bytes())
    })
}

#[test]
fn a_stall_does_not_slow_the_load_down_and_all_who_wait_are_counted() {
    let per_s = 200.0;
    let server = stalling(Duration::from_millis(1_000), Duration::from_millis(4_500));
    let mut settings = plan("fixed-1k", server.address, per_s);
    settings.connections_max = 20;
    let robots = Robots::start(settings).unwrap();
    let mut seconds: Vec<Tally> = Vec::new();
    for _ in 0..5 {
        thread::sleep(Duration::from_secs(1));
        seconds.push(robots.sample());
    }
    let mut sum = Tally::default();
    seconds.iter().for_each(|second| sum.merge_later(second));
    // Poisson: 1,000 ± 32 in all of them. A closed loop would have asked for 320.
    let due_per_s = sum.due as f64 * 1e6 / sum.period_us as f64;
    assert!((160.0..240.0).contains(&due_per_s), "{due_per_s} due per second");
    // Seen after 3 s of the stall, or somewhat less on a busy machine.
    let most = |of: fn(&Tally) -> u64| seconds.iter().map(of).max().unwrap_or(0);
    assert!(most(|second| second.backlog) > 250, "{seconds:?}");
    assert!(most(|second| second.waiting) > 230, "{seconds:?}");
    assert!(most(|second| second.oldest_us) > 1_500_000, "{seconds:?}");
    sum.merge_later(&run_until(&robots, |tally| tally.backlog < 5));
    assert_eq!(sum.faults_total(), 0, "{:?}", sum.fault_samples);
    let response = sum.response();
    assert!(response.max_us() > 1_900_000, "the longest response took {} µs", response.max_us());
    assert!(response.percentile_us(99.0) > 1_500_000, "p99 is {} µs", response.percentile_us(99.0));
    // 70 of 100 requests come in the stall and wait for half of it on average: 1.2 s over all of
    // them.
    assert!(response.mean_us() > 300_000.0, "the mean is {} µs", response.mean_us());
    // Nothing is lost: what was due was answered, but for the last few.
    assert!(sum.due - sum.answers() < 10, "{} due, {} answered", sum.due, sum.answers());
}

#[test]
fn a_closed_loop_would_have_said_otherwise() {
    let server = stalling(Duration::from_secs(1), Duration::from_secs(3));
    let url = format!("http://{}/l/0/0/1.bin", server.address);
    let mut bang = Bang::new(Route::Direct);
    bang.connections_max = 1;
    bang.keep_alive = true;
    let begin = Instant::now();
    let targets = std::iter::from_fn(|| {
        // The same 200 per second, but each only after the answer to the one before.
        thread::sleep(Duration::from_millis(5));
        (begin.elapsed() < Duration::from_secs(4)).then(|| BangTarget::Url(url.clone()))
    });
    let report = bang.run(targets, &mut |_| true).unwrap();
    assert!(report.answers > 50, "{report:?}");
    let p95_us = report.service.percentile_us(95.0);
    assert!(
        p95_us < 1_000_000,
        "one of {} requests saw the stall, but p95 is {p95_us} µs",
        report.answers
    );
    assert!(report.service.max_us() > 1_500_000);
}

/// Request ids and URLs of the first requests, some of which were sent twice.
fn first_urls(seed: u64, load_per_s: f64, spoil: bool) -> Vec<String> {
    let server = Server::start(workload("polymix-4"), move |request, reply| {
        match spoil && request.number % 3 == 0 {
            true => Deed::SayAndClose(Vec::new()),
            false => Deed::Say(reply.bytes()),
        }
    });
    let mut settings = plan("polymix-4", server.address, load_per_s);
    settings.seed = seed;
    settings.time_scale = 0.001;
    let robots = Robots::start(settings).unwrap();
    run_until(&robots, |tally| tally.due >= 300 && server.seen.lock().unwrap().len() >= 300);
    drop(robots);
    let mut urls: Vec<_> = server.seen.lock().unwrap().clone();
    urls.sort();
    urls.dedup();
    urls
}

#[test]
fn the_same_seed_asks_for_the_same_urls_whatever_the_server_does() {
    let (calm, spoilt, other) =
        (first_urls(1, 500.0, false), first_urls(1, 900.0, true), first_urls(2, 500.0, false));
    let common =
        |one: &[String], two: &[String]| one.iter().filter(|url| two.contains(url)).count();
    // The runs end at different moments, so one of them may have got further; but the shorter is
    // within the longer.
    let shorter = calm.len().min(spoilt.len());
    assert!(
        shorter > 100 && common(&calm, &spoilt) * 100 >= shorter * 90,
        "{} of {shorter}",
        common(&calm, &spoilt)
    );
    assert_eq!(common(&calm, &other), 0);
}

#[test]
fn a_change_of_load_takes_effect_both_ways_and_surplus_connections_close() {
    let server = Server::start(workload("fixed-1k"), |_, reply| Deed::Say(reply.bytes()));
    let robots = Robots::start(plan("fixed-1k", server.address, 50.0)).unwrap();
    let rate = |robots: &Robots| {
        let _ = robots.sample();
        thread::sleep(Duration::from_millis(800));
        let tally = robots.sample();
        (tally.due as f64 * 1e6 / tally.period_us as f64, tally.connections)
    };
    robots.set_load(800.0);
    let (high, many) = rate(&robots);
    assert!((500.0..1100.0).contains(&high), "{high}");
    robots.set_load(10.0);
    run_until(&robots, |tally| tally.connections <= many / 2);
    let (low, few) = rate(&robots);
    assert!(low < 60.0, "{low}");
    assert!(few < many, "{few} connections left of {many}");
    robots.set_load(0.0);
    let _ = robots.sample();
    thread::sleep(Duration::from_millis(200));
    assert_eq!(robots.stop().due, 0);
}

/// Bundled requests are due for a while before they are sent. A load that is set again meanwhile,
/// as after every sample, forgets none of them.
#[test]
fn what_is_due_when_the_load_is_set_is_asked_for() {
    const LOAD_PER_S: f64 = 5_000.0;
    let server = Server::start(workload("fixed-1k"), |_, reply| Deed::Say(reply.bytes()));
    let mut settings = plan("fixed-1k", server.address, LOAD_PER_S);
    settings.bundle_us = 10_000;
    let robots = Robots::start(settings).unwrap();
    for _ in 0..200 {
        thread::sleep(Duration::from_millis(10));
        robots.set_load(LOAD_PER_S);
    }
    let tally = robots.stop();
    let due_per_s = tally.due as f64 * 1e6 / tally.period_us as f64;
    assert!((4_000.0..6_000.0).contains(&due_per_s), "{due_per_s} due per second");
}

#[test]
fn the_backlog_has_an_end_and_what_is_beyond_it_counts() {
    let server = Server::start(workload("fixed-1k"), |_, _| Deed::Silence);
    let mut settings = plan("fixed-1k", server.address, 5_000.0);
    settings.backlog_max = 100;
    settings.connections_max = 10;
    let robots = Robots::start(settings).unwrap();
    let tally = run_until(&robots, |tally| tally.due > 1_000);
    assert_eq!((tally.backlog, tally.waiting), (100, 90));
    assert_eq!(tally.faults.get(&FaultKind::TimedOut), Some(&(tally.due - 100)));
    assert_eq!(tally.fault_samples[0].fault.got, "never sent: too many are waiting");
    assert_eq!(tally.connections, 10);
}

#[test]
fn a_request_that_met_a_closing_connection_goes_again_on_a_new_one() {
    // Every connection is closed on its second request, without a word.
    let known = Arc::new(Mutex::new(std::collections::HashSet::new()));
    let server = Server::start(workload("fixed-1k"), move |request, reply| {
        let fresh = known.lock().unwrap().insert(request.id.clone());
        match fresh && request.number % 2 == 1 {
            true => Deed::SayAndClose(Vec::new()),
            false => Deed::Say(reply.bytes()),
        }
    });
    let robots = Robots::start(plan("fixed-1k", server.address, 200.0)).unwrap();
    let seen = || server.seen.lock().unwrap().len() as u64;
    let tally = run_until(&robots, |tally| tally.answers() > 100 && seen() > tally.sent + 20);
    let lost = tally.faults.get(&FaultKind::Disconnected).copied().unwrap_or(0);
    // Only first requests of new connections may be lost for good.
    assert!(lost < tally.connects, "{lost} lost on {} connections", tally.connects);
}
