//! Answers that vary: many variants, asked for by many clients at once, and never one for another.

use humboldt_tests::wait::Gate;
use humboldt_tests::{Client, Reply, World, schemes};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Clients at the same time.
const CLIENTS: u64 = 6;

/// Requests of each.
const REQUESTS: u64 = 400;

/// An origin that varies by `X-Who` and Accept-Encoding, names both in Vary on every path, and puts
/// both into the body, whose length depends on them. On `/changing` it varies by one of them at a
/// time, in turns.
fn serve(world: &World) {
    let turns = AtomicU64::new(0);
    let answer = move |path: &'static str, head: &humboldt_tests::message::Head| {
        let who = head.field("X-Who").unwrap_or("-").to_owned();
        let encoding = head.field("Accept-Encoding").unwrap_or("-").to_owned();
        let (vary, body) = match (path, turns.fetch_add(1, Ordering::Relaxed) % 3) {
            ("/changing", 0) => ("X-Who", body(&who, "any")),
            ("/changing", 1) => ("Accept-Encoding", body("any", &encoding)),
            _ => ("X-Who, Accept-Encoding", body(&who, &encoding)),
        };
        format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nVary: {vary}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let answer = std::sync::Arc::new(answer);
    for path in ["/many", "/changing"] {
        let answer = std::sync::Arc::clone(&answer);
        world.origin.handle(path, move |head, wire| wire.send(answer(path, head)));
    }
}

fn body(who: &str, encoding: &str) -> String {
    let words = who.bytes().map(usize::from).sum::<usize>() * 7 % 3000;
    format!("who={who}\nencoding={encoding}\n{}", format!("{who}/{encoding} ").repeat(words / 8))
}

/// The answer's own account of its selection must match the request.
#[track_caller]
fn check(text: &str, who: &str, encoding: &str) {
    let line =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).expect("a line for it");
    let (for_who, for_encoding) = (line("who="), line("encoding="));
    assert!(for_who == who || for_who == "any", "asked as {who}, got the answer for {for_who}");
    assert!(
        for_encoding == encoding || for_encoding == "any",
        "asked for {encoding}, got {for_encoding}"
    );
    assert_eq!(text, body(for_who, for_encoding), "the body is another one");
}

fn ask(client: &mut Client, target: &str, who: &str, encoding: &str) {
    client.request("GET", target, &[("X-Who", who), ("Accept-Encoding", encoding)], b"");
    check(&client.response().expect(200).text(), who, encoding);
}

fn run(world: &World, path: &str, variants: u64) {
    let target = world.target(path);
    std::thread::scope(|threads| {
        for number in 0..CLIENTS {
            let target = &target;
            threads.spawn(move || {
                let mut client = world.client();
                let mut state = number + 1;
                for _ in 0..REQUESTS {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let who = ((state >> 33) % variants).to_string();
                    let encoding = ["gzip", "br", "gzip, br"][(state >> 20) as usize % 3];
                    ask(&mut client, target, &who, encoding);
                }
            });
        }
    });
}

#[test]
fn many_clients_get_each_its_own_variant() {
    for lines in [
        "",
        "cache_mem 1 MB\ncache_dir ring {dir}/cache 64\n",
        "cache_mem 1 MB\ncache_dir ufs {dir}/cache 64 4 4\n",
    ] {
        let world = World::forward(lines);
        serve(&world);
        run(&world, "/many", 40);
        assert!(world.origin.count("/many") < (CLIENTS * REQUESTS) as usize, "nothing was cached");
    }
}

#[test]
fn an_answer_that_varies_by_something_else_each_time_is_never_mixed_up() {
    let world = World::forward("cache_mem 1 MB\ncache_dir ring {dir}/cache 64\n");
    serve(&world);
    run(&world, "/changing", 8);
}

#[test]
fn a_thousand_variants_of_one_url_are_all_kept() {
    let world = World::forward("");
    world.origin.on("/a", Reply::ok("hello").cachable(600).with("Vary", "X-Who"));
    let mut client = world.client();
    for round in 0..2 {
        for who in 0..1000 {
            client.request("GET", &world.target("/a"), &[("X-Who", &who.to_string())], b"");
            let cache = if round == 0 { "MISS" } else { "HIT" };
            assert_eq!(client.response().expect(200).cache(), cache, "{who}");
        }
    }
    assert_eq!(world.origin.count("/a"), 1000);
}

#[test]
fn one_encoding_stands_for_many_if_that_is_configured() {
    let world = World::forward("normalize_accept_encoding on\n");
    world.origin.on("/a", Reply::ok("hello").cachable(600).with("Vary", "Accept-Encoding"));
    let ask = |value: &str| world.ask("GET", "/a", &[("Accept-Encoding", value)]).expect(200);
    assert_eq!(ask("gzip, deflate, br, zstd").cache(), "MISS");
    assert_eq!(world.origin.last("/a").field("Accept-Encoding"), Some("br"));
    assert_eq!(ask("br;q=0.9, gzip").cache(), "HIT");
    assert_eq!(ask("deflate, gzip;q=0.5").cache(), "MISS");
    assert_eq!(world.origin.last("/a").field("Accept-Encoding"), Some("gzip"));
    assert_eq!(ask("zstd").cache(), "MISS");
    assert_eq!(world.origin.last("/a").field("Accept-Encoding"), None);
    assert_eq!(world.get("/a").cache(), "HIT");
}

/// Answers `slow` with the half of a body until the gate opens, and all others at once. The list of
/// fields by which it varies is the same one each time, or another.
fn serve_slow_variant(
    world: &World,
    path: &str,
    has_one_list: bool,
    body_bytes: usize,
) -> Arc<Gate> {
    let (gate, asked) = (Arc::new(Gate::default()), AtomicU64::new(0));
    let open = Arc::clone(&gate);
    world.origin.handle(path, move |head, wire| {
        let who = head.field("X-Who").unwrap_or("-").to_owned();
        let number = if has_one_list { 0 } else { asked.fetch_add(1, Ordering::SeqCst) };
        wire.send(format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nVary: X-Who, X-{number}\r\n\
             Content-Length: {body_bytes}\r\n\r\n"
        ));
        let body = who[..1].repeat(body_bytes);
        wire.send(&body[..body_bytes / 2]);
        if who == "slow" {
            open.pass();
        }
        wire.send(&body[body_bytes / 2..]);
    });
    gate
}

#[test]
fn a_variant_that_comes_slowly_holds_up_no_other_and_no_purge() {
    // More than a flow may be ahead of its directory.
    const BODY_BYTES: usize = 6 << 20;
    for scheme in schemes(&["aufs", "ring"]) {
        let world = World::forward(&format!(
            "maximum_object_size 16 MB\ncache_dir {scheme} {{dir}}/store 200\nacl purge method PURGE\n\
             http_access allow purge\n"
        ));
        for (path, has_one_list) in [("/one", true), ("/changing", false)] {
            let gate = serve_slow_variant(&world, path, has_one_list, BODY_BYTES);
            let mut slow = world.client();
            slow.request("GET", &world.target(path), &[("X-Who", "slow")], b"");
            assert_eq!(slow.head().word(1), "200");
            for who in ["a", "b", "c"] {
                let answer = world.ask("GET", path, &[("X-Who", who)]).expect(200);
                assert!(
                    answer.is_complete && answer.body.len() == BODY_BYTES,
                    "{scheme} {path} {who}"
                );
                assert!(
                    answer.body.iter().all(|byte| *byte == who.as_bytes()[0]),
                    "{scheme} {path} {who}"
                );
            }
            _ = world.ask("PURGE", path, &[]).expect(200);
            gate.open();
            assert!(slow.bytes(BODY_BYTES).iter().all(|byte| *byte == b's'), "{scheme} {path}");
        }
    }
}
