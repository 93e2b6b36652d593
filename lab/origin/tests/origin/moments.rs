//! When answers come.

use crate::client::Client;
use crate::world::{BIG, BIG_BYTES, World, of_kind, page};
use std::time::{Duration, Instant};

/// How much later than due is still right on a busy machine.
const LATE: Duration = Duration::from_millis(400);

fn time(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

/// Tries after which a busy machine is no excuse any more.
const TRIES: usize = 5;

/// Never early; and not late each time.
fn assert_takes(due_ms: u64, what: &str, mut work: impl FnMut() -> Duration) {
    let due = Duration::from_millis(due_ms);
    for left in (0..TRIES).rev() {
        let took = work();
        assert!(took >= due, "{what}: {took:?} instead of {due:?}");
        if took < due + LATE {
            return;
        }
        assert!(left > 0, "{what}: {took:?} instead of {due:?}, each time");
    }
}

#[test]
fn the_server_thinks_as_long_as_the_workload_says() {
    let running =
        World { think: "uniform(1 s, 9 s)", time_scale: 0.01, ..World::default() }.start();
    let (path, mut client) = (running.path(page(1)), Client::connect(running.address()));
    let mut asks = 0;
    for id in 1..6_u64 {
        let due_us = running.workload.think_us(crate::world::SEED, id) / 100;
        assert!(due_us >= 10_000, "{due_us}");
        assert_takes(due_us / 1000, "think time", || {
            asks += 1;
            time(|| {
                client.ask("GET", &path, &format!("Lab-Request: {id:016x}\r\n"));
            })
        });
    }
    let tally = running.origin.sample();
    assert_eq!(tally.lag.count(), asks);
    // The lag is that behind the think time of 10 to 90 ms: on a busy machine of one answer.
    let least_us = tally.lag.percentile_us(1.0);
    assert!(least_us < 10_000, "{least_us}");
    assert_takes(0, "health", || time(|| assert_eq!(client.get("/health").status, 200)));
}

#[test]
fn thinking_begins_when_the_whole_request_is_there() {
    let running = World { think: "constant(10 s)", time_scale: 0.01, ..World::default() }.start();
    let head = format!("POST {} HTTP/1.1\r\nContent-Length: 2\r\n\r\n1", running.path(page(1)));
    assert_takes(100, "think time of a POST", || {
        let mut client = Client::connect(running.address());
        client.send(head.as_bytes());
        std::thread::sleep(Duration::from_millis(60));
        time(|| {
            client.send(b"2");
            client.answer("POST");
        })
    });
}

#[test]
fn the_link_delays_the_first_byte_and_paces_the_rest() {
    // Half a second each way, scaled to 10 ms round trip.
    let running = World { delay: "500 ms", time_scale: 0.01, ..World::default() }.start();
    let path = running.path(page(1));
    assert_takes(20, "handshake and round trip", || {
        let mut client = Client::connect(running.address());
        time(|| drop(client.get(&path)))
    });
    let mut client = Client::connect(running.address());
    drop(client.get(&path));
    assert_takes(10, "round trip", || time(|| drop(client.get(&path))));
    let steps = running.workload.server_link().delivery(BIG_BYTES, 0).steps().count() as u64;
    assert!(steps > 5, "{steps} windows");
    let big = running.path(of_kind(BIG, 1));
    assert_takes(10 * steps, "all windows of a large object", || {
        time(|| assert_eq!(client.get(&big).body.len() as u64, BIG_BYTES))
    });
}

#[test]
fn without_thinking_there_is_none() {
    let world = World { think: "constant(1 h)", ..World::default() };
    let mut plan = world.plan();
    plan.think = false;
    let origin = humboldt_lab_origin::Origin::start(plan).unwrap();
    let mut client = Client::connect(origin.addresses()[0]);
    assert_eq!(client.get("/l/0/0/1.html").status, 200);
}

#[test]
fn the_time_of_day_is_that_of_all_agents() {
    let world = World::default();
    let day_s = 86_400;
    let mut plan = world.plan();
    plan.clock_offset_us = day_s as i64 * 1_000_000;
    let origin = humboldt_lab_origin::Origin::start(plan).unwrap();
    let here = world.start();
    let dates = [origin.addresses()[0], here.address()].map(|address| {
        let got = Client::connect(address).get("/health");
        humboldt_lab_wire::parse_http_date(got.field("Date").unwrap().as_bytes()).unwrap()
    });
    assert!((dates[0] - dates[1]).abs_diff(day_s) <= 60, "{dates:?}");
}
