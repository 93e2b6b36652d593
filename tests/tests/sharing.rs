//! One object in flight, many clients: collapsed forwarding, early first bytes, slow readers, aborts.

use humboldt_tests::wait::{Gate, until};
use humboldt_tests::{Reply, World};
use std::sync::Arc;

const SIZED: &str = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: ";

#[test]
fn a_hundred_clients_for_one_new_object_cost_one_fetch() {
    let world = World::forward("collapsed_forwarding on\n");
    let gate = Arc::new(Gate::default());
    let at_origin = Arc::clone(&gate);
    world.origin.handle("/new", move |_, wire| {
        at_origin.pass();
        wire.send(format!("{SIZED}5\r\n\r\nhello"));
    });
    let mut clients: Vec<_> = (0..100).map(|_| world.client()).collect();
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
fn requests_collapse_without_any_directive() {
    let world = World::forward("");
    let gate = Arc::new(Gate::default());
    let at_origin = Arc::clone(&gate);
    world.origin.handle("/new", move |_, wire| {
        wire.send(format!("{SIZED}10\r\n\r\nhello"));
        at_origin.pass();
        wire.send("world");
    });
    let mut first = world.client();
    first.request("GET", &world.target("/new"), &[], b"");
    let _ = first.head();
    assert_eq!(first.bytes(5), b"hello", "the first byte does not wait for the last");
    let mut second = world.client();
    second.request("GET", &world.target("/new"), &[], b"");
    let _ = second.head();
    assert_eq!(second.bytes(5), b"hello", "a late client gets what is there already");
    gate.open();
    assert_eq!((first.bytes(5), second.bytes(5)), (b"world".to_vec(), b"world".to_vec()));
    assert_eq!(world.origin.count("/new"), 1);
}

#[test]
fn a_reload_waits_for_no_fetch_that_began_before_it() {
    let world = World::forward("");
    let gate = Arc::new(Gate::default());
    let at_origin = Arc::clone(&gate);
    world.origin.handle("/new", move |head, wire| {
        let is_reload = head.field("Cache-Control").is_some();
        if !is_reload {
            at_origin.pass();
        }
        wire.send(format!("{SIZED}5\r\n\r\n{}", if is_reload { "newer" } else { "older" }));
    });
    let mut first = world.client();
    first.request("GET", &world.target("/new"), &[], b"");
    world.origin.wait_for("/new", 1);
    let mut second = world.client();
    second.request("GET", &world.target("/new"), &[("Cache-Control", "no-cache")], b"");
    assert_eq!(second.response().expect(200).text(), "newer");
    gate.open();
    assert_eq!(first.response().expect(200).text(), "older");
}

#[test]
fn requests_that_waited_for_an_uncachable_answer_get_their_own() {
    let world = World::forward("collapsed_forwarding on\n");
    let gate = Arc::new(Gate::default());
    let at_origin = Arc::clone(&gate);
    world.origin.handle("/own", move |head, wire| {
        at_origin.pass();
        let own = head.field("Cookie").unwrap_or_default();
        wire.send(format!(
            "HTTP/1.1 200 OK\r\nCache-Control: private\r\nContent-Length: {}\r\n\r\n{own}",
            own.len()
        ));
    });
    let mut clients: Vec<_> = (0..10).map(|_| world.client()).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.request("GET", &world.target("/own"), &[("Cookie", &format!("user={index}"))], b"");
    }
    world.origin.wait_for("/own", 1);
    gate.open();
    for (index, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.response().expect(200).text(), format!("user={index}"), "somebody else's answer");
    }
}

#[test]
fn one_slow_client_slows_nobody() {
    let world = World::forward("maximum_object_size 64 MB\nmaximum_object_size_in_memory 64 MB\n");
    let body = vec![b'a'; 16_000_000];
    world.origin.on("/big", Reply::ok(&body).cachable(60));
    let mut slow = world.client();
    slow.request("GET", &world.target("/big"), &[], b"");
    let _ = slow.head(); // and then reads nothing
    let fast = world.get("/big").expect(200);
    assert!(fast.is_complete && fast.body.len() == body.len());
    assert_eq!(slow.bytes(body.len()), body, "the slow client has lost nothing either");
}

#[test]
fn a_client_that_leaves_does_not_take_the_fetch_from_the_others() {
    let world = World::forward("");
    let gate = Arc::new(Gate::default());
    let at_origin = Arc::clone(&gate);
    world.origin.handle("/new", move |_, wire| {
        wire.send(format!("{SIZED}10\r\n\r\nhello"));
        at_origin.pass();
        wire.send("world");
    });
    let mut first = world.client();
    first.request("GET", &world.target("/new"), &[], b"");
    let _ = first.head();
    let mut second = world.client();
    second.request("GET", &world.target("/new"), &[], b"");
    let _ = second.head();
    first.abort();
    gate.open();
    assert_eq!(second.bytes(10), b"helloworld");
    assert_eq!(world.get("/new").expect(200).cache(), "HIT");
}

#[test]
fn quick_abort_decides_whether_an_abandoned_fetch_goes_on() {
    for (lines, is_completed) in
        [("quick_abort_min -1 KB\n", true), ("quick_abort_min 0 KB\nquick_abort_max 0 KB\n", false)]
    {
        let world = World::forward(lines);
        let (gate, ended) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
        let (at_origin, ended_at_origin) = (Arc::clone(&gate), Arc::clone(&ended));
        world.origin.handle("/new", move |_, wire| {
            wire.send(format!("{SIZED}100000\r\n\r\nhello"));
            at_origin.pass();
            wire.send(vec![b'x'; 99_995]);
            ended_at_origin.open();
        });
        let mut client = world.client();
        client.request("GET", &world.target("/new"), &[], b"");
        let _ = client.head();
        client.abort();
        until("the abort in access.log", || world.proxy.text("access.log").contains("ABORTED").then_some(()));
        gate.open();
        ended.pass();
        world.origin.on("/new", Reply::ok("again").cachable(60));
        let status = until("a settled fetch", || Some(world.get("/new").expect(200).text()));
        assert_eq!(status != "again", is_completed, "{lines}");
    }
}

#[test]
fn a_fetch_that_breaks_off_breaks_off_for_everybody_and_is_not_stored() {
    let world = World::forward("");
    let gate = Arc::new(Gate::default());
    let at_origin = Arc::clone(&gate);
    world.origin.handle("/new", move |_, wire| {
        wire.send(format!("{SIZED}10\r\n\r\nhello"));
        at_origin.pass();
    });
    let mut clients: Vec<_> = (0..5).map(|_| world.client()).collect();
    for client in &mut clients {
        client.request("GET", &world.target("/new"), &[], b"");
    }
    world.origin.wait_for("/new", 1);
    gate.open();
    for client in &mut clients {
        let answer = client.response();
        assert!(!answer.is_complete || answer.status() >= 500, "{:?}", answer.head);
    }
    world.origin.on("/new", Reply::ok("whole").cachable(60));
    assert_eq!(world.get("/new").expect(200).text(), "whole");
}

/// 32 MB in which every 8 bytes are different.
fn large_body() -> Vec<u8> {
    (0..4_000_000_u64).flat_map(u64::to_be_bytes).collect()
}

/// A fast and a slow client of one large object: the fast one is not held up, and both get every byte.
fn fast_and_slow(world: &World) {
    let mut slow = world.client();
    slow.request("GET", &world.target("/large"), &[], b"");
    let _ = slow.head();
    let mut fast = world.client();
    fast.request("GET", &world.target("/large"), &[], b"");
    assert!(fast.response().expect(200).body == large_body(), "the fast client");
    assert!(slow.bytes(32_000_000) == large_body(), "the slow client");
}

#[test]
fn a_slow_client_of_a_large_object_goes_on_from_the_server() {
    let world = World::forward(
        "cache_mem 16 MB
",
    );
    world.origin.handle("/large", move |head, wire| {
        let asked = head
            .field("Range")
            .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
        let (status, from) = asked.map_or(("200 OK", 0), |from: usize| ("206 Partial Content", from));
        let body = large_body();
        wire.send(format!(
            "HTTP/1.1 {status}\r\nCache-Control: max-age=600\r\nETag: \"1\"\r\nContent-Length: {}\r\n\
             Content-Range: bytes {from}-31999999/32000000\r\n\r\n",
            body.len() - from
        ));
        wire.send(&body[from..]);
    });
    fast_and_slow(&world);
    assert_eq!(world.origin.count("/large"), 2, "the whole, and the rest for the slow one");
}

#[test]
fn a_slow_client_of_a_large_object_goes_on_from_the_disk() {
    let world =
        World::forward("cache_mem 16 MB\nmaximum_object_size 100 MB\ncache_dir ufs {dir}/cache 200 16 256\n");
    until("the store", || world.proxy.text("cache.log").contains("objects found").then_some(()));
    world.origin.on("/large", Reply::ok(large_body()).cachable(600));
    fast_and_slow(&world);
    assert_eq!(world.origin.count("/large"), 1, "no validator: it can only come from the disk");
}
