//! Clients that hold up others who share their fetch.

use super::*;

/// An origin whose answer is another one each time that it is asked: its first byte counts.
/// `fields` are more of its head, with `{}` for that number. No body comes before the gate is open.
fn changing(world: &World, fields: &'static str, gate: &Arc<Gate>) -> Vec<u8> {
    let body = body_of(20_000_000);
    let (asked, gate) = (AtomicU8::new(0), Arc::clone(gate));
    let mut sent = body.clone();
    sent[0] = 1;
    world.origin.handle("/large", move |_, wire| {
        let number = asked.fetch_add(1, Relaxed) + 1;
        let fields = fields.replace("{}", &number.to_string());
        wire.send(format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n{fields}Content-Length: "
        ));
        wire.send(format!("{}\r\n\r\n", body.len()));
        gate.pass();
        wire.send([number]);
        wire.send(&body[1..]);
    });
    sent
}

/// A client that has the head and reads nothing more, and another that is going to read all and
/// shares its fetch; then the gate is opened.
fn stalled_and_fast(world: &World, gate: &Gate) -> (Client, Client) {
    let mut stalled = world.client();
    stalled.request("GET", &world.target("/large"), &[], b"");
    let _ = stalled.head();
    let mut fast = world.client();
    fast.request("GET", &world.target("/large"), &[], b"");
    until("one to have joined", || {
        (world.metric("humboldt_client_http_collapsed_total") == 1).then_some(())
    });
    gate.open();
    (stalled, fast)
}

#[test]
fn who_holds_up_others_goes_on_with_a_fetch_of_its_own_if_that_gives_the_same() {
    // Without a validator; with one, from a server that knows no ranges.
    for fields in ["", "ETag: \"1\"\r\n"] {
        let world = World::forward("cache_mem 16 MB\n");
        let (gate, body) = (Arc::new(Gate::default()), body_of(32_000_000));
        let (at_origin, sent) = (Arc::clone(&gate), body.clone());
        world.origin.handle("/large", move |_, wire| {
            wire.send(format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n{fields}"));
            wire.send(format!("Content-Length: {}\r\n\r\n", sent.len()));
            at_origin.pass();
            wire.send(&sent);
        });
        let (mut stalled, mut fast) = stalled_and_fast(&world, &gate);
        assert!(fast.response().expect(200).body == body, "the fast client");
        assert!(stalled.bytes(body.len()) == body, "the slow client");
        assert!(world.origin.count("/large") >= 2, "{fields}");
    }
}

#[test]
fn who_holds_up_others_stays_if_the_answer_has_changed_and_nobody_is_cut_off() {
    for fields in ["", "ETag: \"{}\"\r\n", "Last-Modified: Mon, 01 Jan 2024 00:00:0{} GMT\r\n"] {
        let world = World::forward("cache_mem 8 MB\n");
        let gate = Arc::default();
        let body = changing(&world, fields, &gate);
        let (mut stalled, mut fast) = stalled_and_fast(&world, &gate);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(fast.response().expect(200).body == body, "the fast client: {fields}")
            });
            // It has looked for the rest, and found another answer.
            world.origin.wait_for("/large", 2);
            assert!(stalled.bytes(body.len()) == body, "the slow client: {fields}");
        });
    }
}

#[test]
fn a_client_that_leaves_lets_the_others_go_on_at_once() {
    let world = World::forward("cache_mem 8 MB\n");
    let gate = Arc::default();
    let body = changing(&world, "", &gate);
    let (stalled, mut fast) = stalled_and_fast(&world, &gate);
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(fast.response().expect(200).body == body));
        world.origin.wait_for("/large", 2);
        stalled.abort();
    });
}

#[test]
fn a_client_that_reads_nothing_stops_the_others_no_longer_than_write_timeout() {
    let world = World::forward("cache_mem 8 MB\nwrite_timeout 2 seconds\n");
    let gate = Arc::default();
    let body = changing(&world, "", &gate);
    let (_stalled, mut fast) = stalled_and_fast(&world, &gate);
    assert!(fast.response().expect(200).body == body);
    let _ = world.proxy.logged("ABORTED");
}

/// A connection on which `/large` has been asked for.
fn asks(world: &World) -> TcpStream {
    let mut client = TcpStream::connect(world.proxy.address()).expect("a connection");
    let target = world.target("/large");
    write!(client, "GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", world.host()).expect("sent");
    client
}

/// The connections that were cut off because they held up others.
fn cut_off(world: &World) -> u64 {
    world.metric("humboldt_client_connections_cut_total{reason=\"client_held_up_others\"}")
}

/// Waits for `count` requests to share the fetch of another.
fn wait_for_joined(world: &World, count: u64) {
    until("all to have joined", || {
        (world.metric("humboldt_client_http_collapsed_total") == count).then_some(())
    });
}

#[test]
fn who_takes_nothing_is_cut_off_where_a_server_that_takes_one_request_at_a_time_answers_no_search()
{
    std::thread::scope(|scope| {
        // With and without a way to ask for a range.
        for fields in ["", "ETag: \"1\"\r\n"] {
            scope.spawn(move || {
                let world = World::forward("cache_mem 8 MB\n");
                let (gate, body) = (Arc::new(Gate::default()), body_of(30_000_000));
                let (at_origin, sent, one) = (Arc::clone(&gate), body.clone(), Mutex::new(()));
                world.origin.handle("/large", move |_, wire| {
                    let _alone = one.lock();
                    wire.send(format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n{fields}"));
                    wire.send(format!("Content-Length: {}\r\n\r\n", sent.len()));
                    at_origin.pass();
                    wire.send(&sent);
                });
                let mut stalled = world.client();
                stalled.request("GET", &world.target("/large"), &[], b"");
                let _ = stalled.head();
                let fast = asks(&world);
                wait_for_joined(&world, 1);
                gate.open();
                read_slowly(fast, &body, 1 << 20, Duration::ZERO);
                assert_eq!(cut_off(&world), 1, "{fields}");
                let _ = world.proxy.logged("ABORTED");
            });
        }
    });
}

#[test]
fn who_takes_nothing_of_an_answer_that_changes_each_time_keeps_nobody_waiting_for_write_timeout() {
    let world = World::forward("cache_mem 8 MB\n");
    let gate = Arc::default();
    let body = changing(&world, "", &gate);
    let mut stalled = world.client();
    stalled.request("GET", &world.target("/large"), &[], b"");
    let _ = stalled.head();
    let fast = [asks(&world), asks(&world), asks(&world)];
    wait_for_joined(&world, 3);
    gate.open();
    std::thread::scope(|scope| {
        for one in fast {
            scope.spawn(|| read_slowly(one, &body, 1 << 20, Duration::ZERO));
        }
    });
    assert_eq!(cut_off(&world), 1);
}

#[test]
fn who_takes_bytes_slowly_is_not_cut_off_however_long_others_wait() {
    let world = World::forward("cache_mem 8 MB\n");
    let gate = Arc::default();
    let body = changing(&world, "", &gate);
    let (slow, fast) = (asks(&world), asks(&world));
    wait_for_joined(&world, 1);
    gate.open();
    std::thread::scope(|scope| {
        // Twenty seconds.
        scope.spawn(|| read_slowly(slow, &body, 1 << 19, Duration::from_millis(500)));
        scope.spawn(|| read_slowly(fast, &body, 1 << 20, Duration::ZERO));
    });
    assert_eq!(cut_off(&world), 0);
}

#[test]
fn a_reload_that_replaces_the_copy_on_disk_cuts_nobody_off_who_shares_the_older_fetch() {
    let world = World::forward(
        "cache_mem 256 MB\nmaximum_object_size 100 MB\ncache_dir aufs {dir}/cache 200 4 4\n",
    );
    until("the store", || world.proxy.text("cache.log").contains("objects found").then_some(()));
    let (gate, reloaded) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let (at_origin, until_reloaded) = (Arc::clone(&gate), Arc::clone(&reloaded));
    let mut body = body_of(20_000_000);
    let (sent, asked) = (body.clone(), AtomicU8::new(0));
    body[0] = 1;
    world.origin.handle("/large", move |_, wire| {
        let number = asked.fetch_add(1, Relaxed) + 1;
        wire.send(format!("{SIZED}{}\r\n\r\n", sent.len()));
        at_origin.pass();
        wire.send([number]);
        wire.send(&sent[1..18_000_000]);
        if number == 1 {
            until_reloaded.pass();
        }
        wire.send(&sent[18_000_000..]);
    });
    let (mut stalled, mut fast) = stalled_and_fast(&world, &gate);
    let got = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = fast.head();
            for part in body.chunks(1_000_000) {
                assert!(fast.bytes(part.len()) == part, "the fast client");
                got.fetch_add(part.len(), Relaxed);
            }
        });
        until("the slow one to look for the rest", || {
            (world.origin.count("/large") >= 2 || got.load(Relaxed) > 12_000_000).then_some(())
        });
        let newer = world.ask("GET", "/large", &[("Cache-Control", "no-cache")]).expect(200);
        assert!(newer.is_complete && newer.body[1..] == body[1..] && newer.body[0] > 1);
        reloaded.open();
        assert!(stalled.bytes(body.len()) == body, "the slow client");
    });
}

#[test]
fn who_holds_up_others_gets_the_rest_from_the_server_if_the_url_is_purged_meanwhile() {
    let world = World::forward(
        "cache_mem 16 MB\nmaximum_object_size 100 MB\ncache_dir ufs {dir}/cache 200 4 4\n\
         acl PURGE method PURGE\nhttp_access allow PURGE\n",
    );
    until("the store", || world.proxy.text("cache.log").contains("objects found").then_some(()));
    let (gate, purged) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let (at_origin, until_purged) = (Arc::clone(&gate), Arc::clone(&purged));
    let body = body_of(32_000_000);
    let sent = body.clone();
    world.origin.handle("/large", move |_, wire| {
        wire.send(format!("{SIZED}{}\r\n\r\n", sent.len()));
        at_origin.pass();
        wire.send(&sent[..31_000_000]);
        until_purged.pass();
        wire.send(&sent[31_000_000..]);
    });
    let (mut stalled, mut fast) = stalled_and_fast(&world, &gate);
    let _ = fast.head();
    // So far it can only come when it waits for the other one no more.
    assert!(fast.bytes(31_000_000) == body[..31_000_000]);
    assert_eq!(world.ask("PURGE", "/large", &[]).status() / 100, 2);
    purged.open();
    assert!(fast.bytes(1_000_000) == body[31_000_000..], "the fast client");
    assert!(stalled.bytes(body.len()) == body, "the slow client");
}

#[test]
fn a_client_of_a_range_that_holds_up_others_goes_on_by_itself_too() {
    let world = World::forward("cache_mem 16 MB\nrange_offset_limit none\n");
    let (gate, body) = (Arc::new(Gate::default()), body_of(32_000_000));
    let (at_origin, sent) = (Arc::clone(&gate), body.clone());
    world.origin.handle("/large", move |_, wire| {
        at_origin.pass();
        send_plain(wire, Framed::Length, &sent);
    });
    let (mut stalled, mut fast) = (world.client(), world.client());
    stalled.request("GET", &world.target("/large"), &[("Range", "bytes=1000001-")], b"");
    fast.request("GET", &world.target("/large"), &[], b"");
    until("one to have joined", || {
        (world.metric("humboldt_client_http_collapsed_total") == 1).then_some(())
    });
    gate.open();
    assert!(fast.response().expect(200).body == body, "the fast client");
    assert!(stalled.head().start.contains("206"));
    assert!(stalled.bytes(body.len() - 1_000_001) == body[1_000_001..], "the slow client");
}
