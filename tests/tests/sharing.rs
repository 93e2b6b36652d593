//! One object in flight, many clients: collapsed forwarding, early first bytes, slow readers,
//! aborts.

#[path = "sharing/held_up.rs"]
mod held_up;

use humboldt_tests::origin::Wire;
use humboldt_tests::wait::{Gate, LIMIT, until};
use humboldt_tests::{Client, Reply, World};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
        assert_eq!(
            client.response().expect(200).text(),
            format!("user={index}"),
            "somebody else's answer"
        );
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
    // The client may have all bytes a moment before memory has the answer.
    until("a hit", || (world.get("/new").expect(200).cache() == "HIT").then_some(()));
    assert_eq!(world.origin.count("/new"), 1);
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
        until("the abort in access.log", || {
            world.proxy.text("access.log").contains("ABORTED").then_some(())
        });
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

/// A fast and a slow client of one large object: the fast one is not held up, and both get every
/// byte.
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
fn a_slow_client_does_not_wait_for_the_disk_either() {
    let world = World::forward(
        "cache_mem 16 MB\nmaximum_object_size 100 MB\ncache_dir ufs {dir}/cache 200 16 256\n",
    );
    until("the store", || world.proxy.text("cache.log").contains("objects found").then_some(()));
    world.origin.on("/large", Reply::ok(large_body()).cachable(600));
    fast_and_slow(&world);
    assert_eq!(world.origin.count("/large"), 2, "no validator: all of it once more");
}

/// Bytes in which every 8 are different.
fn body_of(bytes: usize) -> Vec<u8> {
    (0..bytes.div_ceil(8) as u64).flat_map(u64::to_be_bytes).take(bytes).collect()
}

/// The framing of an origin that knows no validator and no ranges of a body.
#[derive(Copy, Clone, Debug)]
enum Framed {
    Length,
    Chunked,
}

/// Sends `body` in this framing.
fn send_plain(wire: &mut Wire, framed: Framed, body: &[u8]) {
    match framed {
        Framed::Length => {
            wire.send(format!("{SIZED}{}\r\n\r\n", body.len()));
            wire.send(body);
        }
        Framed::Chunked => {
            wire.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n");
            for part in body.chunks(100_000) {
                wire.send(format!("{:x}\r\n", part.len()));
                wire.send(part);
                wire.send("\r\n");
            }
            wire.send("0\r\n\r\n");
        }
    }
}

fn line_of(answer: &mut impl BufRead) -> String {
    let mut line = String::new();
    answer.read_line(&mut line).expect("a line");
    line.trim_end().to_ascii_lowercase()
}

/// Reads an answer in pieces of `piece` bytes, with a pause after each. Every byte is checked, and
/// none is kept.
fn read_slowly(stream: TcpStream, body: &[u8], piece: usize, pause: Duration) {
    stream.set_read_timeout(Some(3 * LIMIT)).expect("a read limit");
    let mut answer = BufReader::with_capacity(64 * 1024, stream);
    assert!(line_of(&mut answer).contains(" 200 "));
    let head: Vec<_> =
        std::iter::from_fn(|| Some(line_of(&mut answer)).filter(|line| !line.is_empty())).collect();
    let is_chunked = head.iter().any(|line| line == "transfer-encoding: chunked");
    assert!(is_chunked || head.contains(&format!("content-length: {}", body.len())), "{head:?}");
    let (mut at, mut chunk_bytes, mut got) = (0, body.len(), vec![0; piece]);
    while at < body.len() {
        if is_chunked && (at == 0 || chunk_bytes == 0) {
            chunk_bytes =
                usize::from_str_radix(&line_of(&mut answer), 16).expect("the length of a chunk");
        }
        let got = &mut got[..piece.min(chunk_bytes)];
        answer.read_exact(got).unwrap_or_else(|error| panic!("cut off behind {at} bytes: {error}"));
        assert!(body.get(at..at + got.len()) == Some(got), "other bytes behind {at}");
        (at, chunk_bytes) = (at + got.len(), chunk_bytes - got.len());
        if is_chunked && chunk_bytes == 0 {
            assert_eq!(line_of(&mut answer), "");
        }
        std::thread::sleep(pause);
    }
    if is_chunked {
        assert_eq!((line_of(&mut answer).as_str(), line_of(&mut answer).as_str()), ("0", ""));
    }
}

/// Clients that request one new object at the same time, each with a speed of its own, from an
/// origin that knows neither validators nor ranges: each gets every byte.
fn clients_of_all_speeds(cache_mem: &str, framed: Framed, clients: usize, bytes: usize) {
    let world = World::forward(&format!("cache_mem {cache_mem}\n"));
    let (gate, body) = (Arc::new(Gate::default()), Arc::new(body_of(bytes)));
    let (at_origin, sent) = (Arc::clone(&gate), Arc::clone(&body));
    world.origin.handle("/large", move |_, wire| {
        at_origin.pass();
        send_plain(wire, framed, &sent);
    });
    std::thread::scope(|scope| {
        for number in 0..clients {
            let mut client = TcpStream::connect(world.proxy.address()).expect("a connection");
            let target = world.target("/large");
            write!(client, "GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", world.host())
                .expect("sent");
            let body = &body;
            scope.spawn(move || {
                // Every other one reads at full speed, and each fourth a sixteenth of the next
                // one's bytes at a time.
                let (piece, pause_ms) =
                    [(1 << 20, 0), (64 << 10, 1), (1 << 20, 0), (16 << 10, 1)][number % 4];
                read_slowly(client, body, piece, Duration::from_millis(pause_ms));
            });
        }
        until("all to have joined", || {
            (world.metric("humboldt_client_http_collapsed_total") == clients as u64 - 1)
                .then_some(())
        });
        gate.open();
    });
}

#[test]
fn six_clients_of_all_speeds_get_every_byte_with_any_memory() {
    for framed in [Framed::Length, Framed::Chunked] {
        clients_of_all_speeds("0", framed, 6, 65_636);
        clients_of_all_speeds("0", framed, 6, 3_000_000);
        clients_of_all_speeds("8 MB", framed, 6, 20_000_000);
        clients_of_all_speeds("256 MB", framed, 6, 20_000_000);
    }
}

#[test]
fn sixty_clients_of_all_speeds_get_every_byte_with_any_memory() {
    clients_of_all_speeds("0", Framed::Length, 60, 300_000);
    clients_of_all_speeds("8 MB", Framed::Chunked, 60, 12_000_000);
    clients_of_all_speeds("256 MB", Framed::Length, 60, 12_000_000);
}

/// `cargo test -p humboldt-tests --test sharing a_thousand -- --ignored`
#[test]
#[ignore = "takes about a minute, and 4000 descriptors"]
fn a_thousand_clients_of_all_speeds_get_every_byte_with_any_memory() {
    for (cache_mem, framed) in
        [("0", Framed::Length), ("8 MB", Framed::Chunked), ("256 MB", Framed::Length)]
    {
        clients_of_all_speeds(
            cache_mem,
            framed,
            1000,
            if cache_mem == "0" { 300_000 } else { 9_000_000 },
        );
    }
}

#[test]
fn who_asks_again_while_a_directory_still_writes_gets_a_hit() {
    for scheme in ["aufs {dir}/cache 100 4 4", "diskd {dir}/cache 100 4 4", "rock {dir}/cache 100"]
    {
        let world = World::forward(&format!("cache_mem 0\ncache_dir {scheme}\n"));
        if !scheme.starts_with("rock") {
            until("the store", || {
                world.proxy.text("cache.log").contains("objects found").then_some(())
            });
        }
        let mut client = world.client();
        for number in 0..60 {
            let path = format!("/{number}");
            let body = body_of([1000, 17_000, 65_000, 300_000][number % 4]);
            world.origin.on(&path, Reply::ok(&body).cachable(600));
            for expected in ["MISS", "HIT"] {
                let answer =
                    client.request("GET", &world.target(&path), &[], b"").response().expect(200);
                assert!(answer.body == body && answer.is_complete);
                assert_eq!(answer.cache(), expected, "{scheme}: {number}");
            }
        }
    }
}

#[test]
fn what_a_directory_cannot_read_further_comes_from_the_server_if_that_has_the_same() {
    for (is_same, fields) in [(true, ""), (true, "ETag: W/\"1\"\r\n"), (false, "")] {
        let world = World::forward("cache_mem 0\ncache_dir ufs {dir}/cache 100 4 4\n");
        until("the store", || {
            world.proxy.text("cache.log").contains("objects found").then_some(())
        });
        let body = body_of(3_000_000);
        let answer = |body: &[u8]| {
            let mut bytes =
                format!("{}{fields}Content-Length: {}\r\n\r\n", &SIZED[..44], body.len())
                    .into_bytes();
            bytes.extend_from_slice(body);
            Reply::raw(bytes)
        };
        world.origin.on("/large", answer(&body));
        assert!(world.get("/large").expect(200).body == body);
        let path = world.proxy.path("cache/00/00/00000000");
        let stored = until("the file", || {
            std::fs::read(&path).ok().filter(|bytes| bytes.len() > body.len())
        });
        let mut damaged = stored.clone();
        damaged[stored.len() / 2] ^= 1;
        std::fs::write(&path, damaged).expect("a damaged file");
        let mut newer = body.clone();
        newer[0] ^= u8::from(!is_same);
        world.origin.on("/large", answer(&newer));
        let got = world.get("/large").expect(200);
        assert_eq!(got.is_complete, is_same, "{fields}");
        assert!(body.starts_with(&got.body), "never a mixture");
        assert_eq!(world.origin.count("/large"), 2);
    }
}

/// A core whose own clients have left goes on with its fetches for those of other cores.
#[test]
fn who_shares_a_fetch_gets_all_of_it_while_the_proxy_ends() {
    // The kernel chooses a client's core: of this many pairs, some are apart.
    const PAIRS: usize = 8;
    let body = body_of(100_000);
    std::thread::scope(|scope| {
        let pair = || {
            let mut world = World::forward("workers 2\nshutdown_lifetime 1 minute\n");
            let gate = Arc::new(Gate::default());
            let (at_origin, sent) = (Arc::clone(&gate), body.clone());
            world.origin.handle("/a", move |_, wire| {
                wire.send(format!("{SIZED}{}\r\n\r\n", sent.len()));
                wire.send(&sent[..1000]);
                at_origin.pass();
                wire.send(&sent[1000..]);
            });
            let mut first = world.client();
            first.request("GET", &world.target("/a"), &[], b"");
            let _ = first.head();
            let mut second = world.client();
            second.request("GET", &world.target("/a"), &[], b"");
            let _ = second.head();
            first.abort();
            until("the first to be gone", || {
                world.proxy.text("access.log").contains("ABORTED").then_some(())
            });
            world.proxy.signal(rustix::process::Signal::TERM);
            until("the end to begin", || {
                std::net::TcpStream::connect(world.proxy.address()).is_err().then_some(())
            });
            gate.open();
            assert!(second.bytes(body.len()) == body);
            assert!(world.proxy.wait_end().success());
        };
        (0..PAIRS).for_each(|_| drop(scope.spawn(pair)));
    });
}
