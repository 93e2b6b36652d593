//! More clients than there are descriptors, and many at once.
//! `cargo test -p humboldt-tests --test crowd -- --ignored --nocapture` plays the large ones, with
//! as many clients as `ulimit -Hn` allows, and says how many. That takes a minute on a quiet
//! machine, several on a busy one. 20,000 idle and 2,000 slow clients need 23,124 descriptors here,
//! and as many in the proxy.

use humboldt_tests::wait::{Gate, until, until_within};
use humboldt_tests::{Client, Proxy, Reply, World, note, skip};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const GIVEN_WAY: &str = "humboldt_client_connections_given_way_total";

/// Descriptors that the clients of a large test leave: those that the proxy keeps free
/// (`DESCRIPTORS_FREE_MAX` in docs/limits.md), and a hundred for files, the origin and others.
const RESERVED: usize = 1_024 + 100;

/// Memory of the proxy for each idle client, at most.
const IDLE_CLIENT_BYTES_MAX: u64 = 8 << 10;

/// With fewer clients the memory of each is lost in that of everything else.
const CLIENTS_TO_MEASURE: usize = 5_000;

/// Held by a large test: two of them at once would not have enough descriptors.
static LARGE: Mutex<()> = Mutex::new(());

/// Number of idle clients that are still connected.
fn connected(clients: &[Client]) -> usize {
    clients.iter().filter(|client| !client.has_input()).count()
}

#[test]
fn idle_clients_give_way_to_new_ones_the_oldest_first_and_busy_ones_stay() {
    const IDLE: usize = 400;
    let world = World::forward("max_filedescriptors 256\n");
    world.origin.on("/a", Reply::ok("hello").cachable(600));
    let gate = Arc::new(Gate::default());
    let at_origin = Arc::clone(&gate);
    world.origin.handle("/slow", move |_, wire| {
        at_origin.pass();
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow");
    });
    let mut busy = world.client();
    busy.request("GET", &world.target("/slow"), &[], b"");
    world.origin.wait_for("/slow", 1);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut tunnel = world.client();
    let server = listener.local_addr().expect("an address");
    tunnel.send(format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n"));
    assert_eq!(tunnel.response_to("CONNECT").status(), 200);
    let mut idle = Vec::new();
    for number in 0..IDLE {
        let mut client = world.client();
        match number % 3 {
            // Nothing, a part of a head, and a connection that is kept.
            0 => {}
            1 => drop(client.send("GET http://a.test/ HTTP/1.1\r\nHost")),
            _ => {
                let answer = client.request("GET", &world.target("/a"), &[], b"").response();
                assert_eq!(answer.expect(200).text(), "hello", "client {number}");
            }
        }
        idle.push(client);
    }
    assert_eq!(world.get("/a").expect(200).text(), "hello");
    assert!(world.proxy.descriptors() < 256);
    assert!(world.metric(GIVEN_WAY) >= (IDLE - 256) as u64, "{}", world.metric(GIVEN_WAY));
    until("the first ones to be closed", || (connected(&idle[..100]) == 0).then_some(()));
    assert!(connected(&idle[IDLE - 50..]) > 40, "the last ones stay");
    gate.open();
    assert_eq!(busy.response().expect(200).text(), "slow");
    assert!(!tunnel.has_input(), "a tunnel does not give way");
}

/// Many silent clients hinder no request that needs a descriptor for the client and one for the
/// server.
fn silent_clients_leave_room(lines: &str) {
    let world = World::forward(&format!("max_filedescriptors 256\nworkers 2\n{lines}"));
    world.origin.on("/new", Reply::ok("hello"));
    let idle: Vec<Client> = (0..245).map(|_| world.client()).collect();
    for _ in 0..20 {
        assert_eq!(world.get("/new").expect(200).text(), "hello");
    }
    assert!(connected(&idle) > 150, "only as many give way as it takes");
}

#[test]
fn clients_that_say_nothing_leave_room_for_requests() {
    silent_clients_leave_room("");
}

#[test]
fn clients_that_say_nothing_leave_room_for_requests_also_where_half_closed_ones_are_served() {
    silent_clients_leave_room("half_closed_clients on\n");
}

/// A request takes a descriptor without any client being accepted: idle ones give way to it too.
#[test]
fn idle_clients_give_way_to_connections_to_servers() {
    const ASKING: usize = 80;
    let world = World::forward("max_filedescriptors 256\nworkers 2\n");
    let gate = Arc::new(Gate::default());
    let at_origin = Arc::clone(&gate);
    world.origin.handle("/slow", move |_, wire| {
        at_origin.pass();
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow");
    });
    let idle: Vec<Client> = (0..100).map(|_| world.client()).collect();
    let mut asking: Vec<Client> = (0..ASKING).map(|_| world.client()).collect();
    until("the connections to be accepted", || (world.proxy.descriptors() > 180).then_some(()));
    for client in &mut asking {
        client.request("POST", &world.target("/slow"), &[], b"");
    }
    world.origin.wait_for("/slow", ASKING);
    gate.open();
    for client in &mut asking {
        assert_eq!(client.response().expect(200).text(), "slow");
    }
    assert!((1..100).contains(&connected(&idle)), "{}", connected(&idle));
}

/// Each holds two descriptors, and looks like one that still reads. All come at once, so that the
/// proxy accepts many before it sees that any has left.
#[test]
fn clients_that_leave_a_silent_server_make_room_where_half_closed_ones_are_served() {
    let world = World::forward("max_filedescriptors 256\nworkers 2\nhalf_closed_clients on\n");
    world.origin.on("/new", Reply::ok("hello"));
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = silent.local_addr().expect("an address");
    let mut clients: Vec<Client> = (0..100).map(|_| world.client()).collect();
    for round in 0..3 {
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(match number % 3 {
                0 => format!("GET http://{server}/{round}/{number} HTTP/1.1\r\nHost: {server}\r\n\r\n"),
                1 => {
                    format!("POST http://{server}/ HTTP/1.1\r\nHost: {server}\r\nContent-Length: 1\r\n\r\nx")
                }
                _ => format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\n"),
            });
        }
        // The old ones close as the new ones come.
        clients = (0..100).map(|_| world.client()).collect();
        assert_eq!(world.get("/new").expect(200).text(), "hello");
    }
    drop(clients);
    for _ in 0..8 {
        assert_eq!(world.get("/new").expect(200).text(), "hello");
    }
}

/// Their FIN is behind bytes that the proxy does not read.
#[test]
fn clients_that_send_too_much_and_leave_give_way() {
    let (world, silent) =
        (World::forward("max_filedescriptors 96\n"), TcpListener::bind("127.0.0.1:0"));
    let silent = silent.expect("a port");
    let server = silent.local_addr().expect("an address");
    world.origin.on("/a", Reply::ok("hello"));
    let mut held = Vec::new();
    for number in 0..80 {
        let mut client = world.client();
        client.send(format!("GET http://{server}/{number} HTTP/1.1\r\nHost: {server}\r\n\r\n"));
        held.push(silent.accept().expect("a connection"));
        assert!(client.stuff(64 << 20) < 64 << 20, "all of it was taken");
    }
    assert_eq!(world.get("/a").expect(200).text(), "hello");
    assert!(world.metric(GIVEN_WAY) > 0);
}

/// A herd asks for one new object, beside idle clients.
fn herd(size: usize, proxy_lines: &str) {
    let world = World::forward(proxy_lines);
    let gate = Arc::new(Gate::default());
    let at_origin = Arc::clone(&gate);
    world.origin.handle("/new", move |_, wire| {
        at_origin.pass();
        wire.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello");
    });
    let mut clients: Vec<Client> = (0..size).map(|_| world.client()).collect();
    for client in &mut clients {
        client.request("GET", &world.target("/new"), &[], b"");
    }
    world.origin.wait_for("/new", 1);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().expect(200).text(), "hello");
    }
    assert_eq!(world.origin.count("/new"), 1);
}

#[test]
fn a_small_herd_costs_one_fetch() {
    herd(200, "");
}

#[test]
#[ignore = "a thousand clients: a few seconds"]
fn a_herd_of_a_thousand_costs_one_fetch() {
    let _alone = LARGE.lock().unwrap_or_else(PoisonError::into_inner);
    herd(1_000, "");
}

/// Connections that have each had an answer, and wait.
fn idle_ones(world: &World, count: usize) -> Vec<Client> {
    let ask = |_| {
        let mut client = world.client();
        let _ = client.request("GET", &world.target("/a"), &[], b"").response().expect(200);
        client
    };
    (0..count).map(ask).collect()
}

/// `idle` clients that keep their connections and cost the proxy little, `slow` ones that send a
/// head of which a byte comes now and then, and others who are served as if they were alone: each
/// of them within the limit of every client.
fn crowd(idle: usize, slow: usize) {
    let world =
        World::forward("client_idle_pconn_timeout 10 minutes\nrequest_timeout 10 minutes\n");
    world.origin.on("/a", Reply::ok("hello").cachable(600));
    assert_eq!(world.get("/a").expect(200).text(), "hello");
    let before_kib = world.proxy.memory_kib("VmRSS");
    let idle_ones = idle_ones(&world, idle);
    let grown_kib = world.proxy.memory_kib("VmRSS").saturating_sub(before_kib);
    let each_bytes = grown_kib * 1024 / idle as u64;
    note(&format!("{idle} idle clients, {each_bytes} bytes of memory each, and {slow} slow ones"));
    assert!(idle < CLIENTS_TO_MEASURE || each_bytes <= IDLE_CLIENT_BYTES_MAX, "{each_bytes}");
    let mut slow_ones: Vec<Client> = (0..slow).map(|_| world.client()).collect();
    for client in &mut slow_ones {
        client.send(format!("GET {} HTTP/1.1\r\nHost: a.test\r\nX: ", world.target("/a")));
    }
    let start = Instant::now();
    for _ in 0..1_000 {
        assert_eq!(world.get("/a").expect(200).text(), "hello");
        let client = &mut slow_ones[start.elapsed().subsec_nanos() as usize % slow];
        client.send("x");
    }
    note(&format!("a thousand new clients beside them were served in {:?}", start.elapsed()));
    for client in &mut slow_ones {
        client.send("\r\n\r\n");
        assert_eq!(client.response().expect(200).text(), "hello");
    }
    assert_eq!(connected(&idle_ones), idle, "nobody gave way");
    assert_eq!(world.metric(GIVEN_WAY), 0);
    drop((idle_ones, slow_ones));
    until_within(Duration::from_secs(60), "their descriptors", || {
        (world.proxy.descriptors() < 100).then_some(())
    });
}

#[test]
fn a_few_idle_and_slow_clients_hinder_nobody() {
    crowd(500, 50);
}

/// Twenty thousand idle clients beside the slow ones, or as many as the limit of descriptors
/// allows. A client has one descriptor here, and one in the proxy.
fn large_crowd(slow: usize) {
    const IDLE: usize = 20_000;
    let _alone = LARGE.lock().unwrap_or_else(PoisonError::into_inner);
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("what is allowed");
    let limit = maximum.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let idle = limit.saturating_sub(RESERVED + slow).min(IDLE);
    if idle < IDLE {
        let missing = IDLE - idle;
        skip(&format!("{missing} of {IDLE} idle clients: `ulimit -Hn` is {limit}"));
    }
    if idle > 0 {
        crowd(idle, slow);
    }
}

#[test]
#[ignore = "20,000 clients: half a minute, and most of the descriptors of the machine"]
fn twenty_thousand_idle_clients_cost_little_and_hinder_nobody() {
    large_crowd(50);
}

#[test]
#[ignore = "22,000 clients: half a minute, and most of the descriptors of the machine"]
fn twenty_thousand_idle_and_two_thousand_slow_clients_hinder_nobody() {
    large_crowd(2_000);
}

#[test]
fn a_proxy_at_its_limit_ends_in_order() {
    let mut proxy = Proxy::forward("workers 1\nmax_filedescriptors 64\n");
    let clients: Vec<Client> = (0..100).map(|_| proxy.client()).collect();
    until("connections that gave way", || (connected(&clients) < 64).then_some(()));
    let status = proxy.stop();
    assert!(status.success(), "{status}:\n{}{}", proxy.text("cache.log"), proxy.output());
}
