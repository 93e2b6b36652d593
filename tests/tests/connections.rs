//! Connections on both sides: kept, pipelined, half-closed, pooled, retried, and ended by time
//! limits.

use humboldt_tests::wait::{Gate, until};
use humboldt_tests::{Client, Reply, World};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

#[test]
fn one_client_connection_serves_many_requests() {
    let world = World::forward("");
    let mut client = world.client();
    for index in 0..20 {
        let path = format!("/{index}");
        world.origin.on(&path, Reply::ok(&path));
        let answer = client.request("GET", &world.target(&path), &[], b"").response().expect(200);
        assert_eq!(answer.text(), path);
    }
    assert_eq!(world.origin.connections(), 1, "the connection to the origin is kept as well");
}

#[test]
fn pipelined_requests_are_answered_in_their_order() {
    let world = World::forward("");
    let slow = Arc::new(Gate::default());
    let slow_at_origin = Arc::clone(&slow);
    world.origin.handle("/slow", move |_, wire| {
        slow_at_origin.pass();
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow");
    });
    world.origin.on("/fast", Reply::ok("fast"));
    let mut client = world.client();
    client.request("GET", &world.target("/slow"), &[], b"");
    client.request("GET", &world.target("/fast"), &[], b"");
    client.request("POST", &world.target("/fast"), &[], b"body");
    slow.open();
    assert_eq!(client.response().expect(200).text(), "slow");
    assert_eq!(client.response().expect(200).text(), "fast");
    assert_eq!(client.response().expect(200).text(), "fast");
    assert_eq!(world.origin.last("/fast").body.bytes, b"body");
}

/// The sockets take a part of a head, or all of it and no byte of the body, again and again: what
/// was not taken must be sent the next time.
#[test]
fn pipelined_answers_are_whole_however_little_the_client_takes_at_a_time() {
    const REQUESTS: usize = 500;
    let world = World::forward("");
    let (long_field, body) =
        ("x".repeat(2000), |number: usize| format!("{number:08}").repeat(1000));
    world.origin.on("/hit", Reply::ok(body(0)).with("X-Long", &long_field).cachable(600));
    let _ = world.get("/hit").expect(200);
    for number in 0..REQUESTS {
        let sized = Reply::ok(body(number)).with("X-Long", &long_field);
        world.origin.on(&format!("/sized/{number}"), sized);
        let long_field = long_field.clone();
        world.origin.handle(&format!("/chunked/{number}"), move |_, wire| {
            let fields = format!("Transfer-Encoding: chunked\r\nX-Long: {long_field}");
            let body = body(number);
            let chunk = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
            wire.send(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{chunk}"));
        });
    }
    for kind in ["hit", "sized", "chunked"] {
        let mut client = Client::with_receive_buffer(world.proxy.address(), 8192);
        let of = |number| if kind == "hit" { 0 } else { number };
        let target = |number| match kind {
            "hit" => world.target("/hit"),
            _ => world.target(&format!("/{kind}/{number}")),
        };
        for number in 0..REQUESTS {
            client.request("GET", &target(number), &[], b"");
        }
        for number in 0..REQUESTS {
            // All buffers on the way are full now and then.
            if number % 50 == 0 {
                sleep(Duration::from_millis(50));
            }
            let answer = client.response().expect(200);
            assert!(answer.is_complete, "{kind} {number}");
            assert_eq!(answer.text(), body(of(number)), "{kind} {number}");
        }
    }
}

#[test]
fn connection_close_is_obeyed_in_both_versions() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("x"));
    let mut client = world.client();
    let answer = client
        .request("GET", &world.target("/a"), &[("Connection", "close")], b"")
        .response()
        .expect(200);
    assert!(
        answer.field("Connection").is_some_and(|value| value.eq_ignore_ascii_case("close")),
        "{:?}",
        answer.head
    );
    assert!(client.closes());

    let mut client = world.client();
    let old = format!("GET {} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", world.target("/a"));
    let _ = client.send(&old).response().expect(200);
    let _ = client.send(&old).response().expect(200);
}

#[test]
fn a_client_that_half_closes_still_gets_its_answer() {
    let world = World::forward("half_closed_clients on\n");
    world.origin.on("/a", Reply::ok("hello"));
    let mut client = world.client();
    client.request("GET", &world.target("/a"), &[], b"").half_close();
    assert_eq!(client.response().expect(200).text(), "hello");
    assert!(client.closes());
}

#[test]
fn a_get_is_sent_again_when_a_kept_connection_turns_out_dead() {
    // The kept connection is none of the new ones that may be tried.
    let world = World::forward("forward_max_tries 1\n");
    let connections = AtomicUsize::new(0);
    // The first connection looks kept, but closes on the next request, as in every keep-alive race.
    world.origin.handle("/a", move |_, wire| {
        wire.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        if connections.fetch_add(1, Ordering::Relaxed) == 0 {
            let _ = wire.reader.head();
        }
    });
    let mut client = world.client();
    assert_eq!(
        client.request("GET", &world.target("/a"), &[], b"").response().expect(200).text(),
        "ok"
    );
    assert_eq!(
        client.request("GET", &world.target("/a"), &[], b"").response().expect(200).text(),
        "ok"
    );
}

#[test]
fn a_post_is_never_sent_twice() {
    let world = World::forward("");
    world.origin.on("/warm", Reply::ok("x"));
    world.origin.handle("/a", |_, wire| wire.close());
    let mut client = world.client();
    let _ = client.request("GET", &world.target("/warm"), &[], b"").response().expect(200);
    let answer = client.request("POST", &world.target("/a"), &[], b"pay").response();
    assert_eq!(answer.status(), 502);
    assert_eq!(world.origin.count("/a"), 1);
}

#[test]
fn many_clients_share_few_connections_to_the_origin() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("x").with("Cache-Control", "no-store"));
    for _ in 0..30 {
        let _ = world.get("/a").expect(200);
    }
    assert_eq!(world.origin.count("/a"), 30);
    let connections = world.origin.connections();
    assert!(connections <= 8, "{connections} connections for 30 requests one after the other");
}

#[test]
fn an_idle_client_connection_is_closed_after_its_time() {
    let world = World::forward("client_idle_pconn_timeout 1 second\n");
    world.origin.on("/a", Reply::ok("x"));
    let mut client = world.client();
    let start = Instant::now();
    let _ = client.request("GET", &world.target("/a"), &[], b"").response().expect(200);
    assert!(client.closes());
    assert!(start.elapsed() >= Duration::from_millis(800), "closed after {:?}", start.elapsed());
}

#[test]
fn a_head_that_never_ends_is_given_up() {
    let world = World::forward("request_start_timeout 1 second\nrequest_timeout 1 second\n");
    let mut client = world.client();
    client.send("GET http://a.test/ HTTP/1.1\r\nHost: a");
    assert_eq!(client.response().status(), 408);
    assert!(client.closes());
}

#[test]
fn a_head_that_trickles_in_is_given_up_as_well() {
    let world = World::forward("request_start_timeout 2 seconds\nrequest_timeout 2 seconds\n");
    let mut client = world.client();
    client.send("GET http://a.test/ HTTP/1.1\r\nHost: a\r\n");
    // A byte now and then must not extend the limit of the whole head: they come for as long as
    // there is no answer.
    until("the head to be given up", || {
        client.send("x");
        client.has_input().then_some(())
    });
    assert_eq!(client.response().status(), 408);
}

#[test]
fn a_body_that_stops_coming_is_given_up() {
    let world = World::forward("read_timeout 1 second\nrequest_timeout 1 second\n");
    world.origin.on("/a", Reply::ok("x"));
    let mut client = world.client();
    client.send(format!(
        "POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nstart",
        world.target("/a")
    ));
    assert_eq!(client.response_to("POST").status(), 408);
    assert!(client.closes());
    assert_eq!(world.origin.count("/a"), 0, "the origin saw a whole request");
}

#[test]
fn an_origin_that_does_not_answer_becomes_504() {
    let world = World::forward("read_timeout 1 second\n");
    let done = Arc::new(Gate::default());
    let done_at_origin = Arc::clone(&done);
    world.origin.handle("/a", move |_, _| done_at_origin.pass());
    let status = world.get("/a").status();
    done.open();
    assert_eq!(status, 504);
}

/// `connect_timeout` alone would let each try go on for half a minute.
#[test]
fn forward_timeout_ends_what_does_not_get_through() {
    let world = World::forward(
        "connect_timeout 30 seconds\nread_timeout 1 second\nforward_timeout 2 seconds\n",
    );
    let nobody_accepts = TcpListener::bind("127.0.0.1:0").expect("an address");
    rustix::net::listen(&nobody_accepts, 0).expect("a shorter queue");
    let address = nobody_accepts.local_addr().expect("an address");
    // Its queue is full: it answers no other client.
    let _first = TcpStream::connect(address).expect("room for one");
    let mut client = world.client();
    let answer = client.request("GET", &format!("http://{address}/"), &[], b"").response();
    assert_eq!(answer.status(), 504);
    assert!(answer.text().contains("forward_timeout"), "{}", answer.text());
}

#[test]
fn an_origin_that_stops_in_its_body_truncates_the_answer() {
    let world = World::forward("read_timeout 1 second\n");
    let done = Arc::new(Gate::default());
    let done_at_origin = Arc::clone(&done);
    world.origin.handle("/a", move |_, wire| {
        wire.send(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\nhello",
        );
        done_at_origin.pass();
    });
    let answer = world.get("/a").expect(200);
    done.open();
    assert!(!answer.is_complete);
}

#[test]
fn two_hundred_connections_at_once_all_get_their_own_answer() {
    let world = World::forward("");
    for index in 0..200 {
        world.origin.on(&format!("/{index}"), Reply::ok(format!("body {index}")));
    }
    let mut clients: Vec<_> = (0..200).map(|_| world.client()).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.request("GET", &world.target(&format!("/{index}")), &[], b"");
    }
    for (index, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.response().expect(200).text(), format!("body {index}"));
    }
}

#[test]
fn an_answer_that_comes_before_the_body_was_read_says_that_the_connection_ends() {
    let world = World::forward("");
    world
        .origin
        .handle("/early", |_, wire| wire.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno"));
    world.origin.on("/late", Reply::ok("ok"));
    let mut client = world.client();
    let answer =
        client.request("POST", &world.target("/late"), &[], b"all of it").response().expect(200);
    assert_eq!(answer.field("Connection"), None);
    client.request("POST", &world.target("/early"), &[("Content-Length", "10")], b"");
    let answer = client.send("he").response().expect(200);
    assert_eq!((answer.field("Connection"), answer.text().as_str()), (Some("close"), "no"));
    assert!(answer.is_complete && client.closes());
}
