//! Which of two answers for one URL everybody gets from then on: with slow fetches, reloads,
//! validations and changed clocks of servers.

use humboldt_tests::origin::http_date;
use humboldt_tests::wait::{Gate, until};
use humboldt_tests::{Client, Reply, World, schemes};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The reason why the older fetch is slow.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Slow {
    Head,
    /// With a Date from when it was asked for.
    HeadWithEarlyDate,
    Body,
}

const ALL: [Slow; 3] = [Slow::Head, Slow::HeadWithEarlyDate, Slow::Body];

/// An origin whose first request is answered with version 1, late, and all later ones with version
/// 2, at once.
struct Origin {
    half: Arc<Gate>,
    whole: Arc<Gate>,
}

fn head(date: &str, body_bytes: usize) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nDate: {date}\r\nCache-Control: max-age=1000\r\nContent-Length: {body_bytes}\r\n\r\n"
    )
}

impl Origin {
    fn new(world: &World, path: &str, slow: Slow, body_bytes: usize) -> Self {
        let (half, whole) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
        let asked = AtomicUsize::new(0);
        let gates = (Arc::clone(&half), Arc::clone(&whole));
        world.origin.handle(path, move |_, wire| {
            if asked.fetch_add(1, Ordering::SeqCst) > 0 {
                wire.send(head(&http_date(-5), body_bytes));
                wire.send("2".repeat(body_bytes));
                return;
            }
            let body = "1".repeat(body_bytes);
            if slow == Slow::Body {
                wire.send(head(&http_date(-10), body_bytes));
                wire.send(&body[..body_bytes / 2]);
                gates.0.open();
                gates.1.pass();
                wire.send(&body[body_bytes / 2..]);
            } else {
                gates.0.open();
                gates.1.pass();
                let date = if slow == Slow::Head { http_date(0) } else { http_date(-10) };
                wire.send(head(&date, body_bytes));
                wire.send(&body);
            }
        });
        Self { half, whole }
    }
}

/// The version in an answer that has come whole.
fn version(world: &World, path: &str, fields: &[(&str, &str)]) -> char {
    let text = world.ask("GET", path, fields).expect(200).text();
    let version = text.chars().next().expect("a body");
    assert!(text.chars().all(|c| c == version), "a mixture");
    version
}

fn a_slow_fetch_that_began_before_a_reload(
    world: &World,
    path: &str,
    slow: Slow,
    body_bytes: usize,
) {
    let origin = Origin::new(world, path, slow, body_bytes);
    let mut first: Client = world.client();
    first.request("GET", &world.target(path), &[], b"");
    origin.half.pass();
    assert_eq!(
        version(world, path, &[("Cache-Control", "no-cache")]),
        '2',
        "{slow:?}: it joins nobody"
    );
    assert_eq!(version(world, path, &[]), '2', "{slow:?}: after the reload");
    origin.whole.open();
    assert!(first.response().expect(200).text().starts_with('1'));
    // Any part of the first one that was to be stored is stored now, or not.
    let fetches = until(&format!("{path} has settled"), || {
        let before = world.origin.count(path);
        assert_eq!(version(world, path, &[]), '2', "{slow:?}: when the slow fetch has ended");
        (world.origin.count(path) == before || body_bytes > 1_000_000).then_some(before)
    });
    assert!(fetches <= 5, "{fetches}");
    for _ in 0..3 {
        assert_eq!(version(world, path, &[]), '2', "{slow:?}: from then on");
    }
}

const SIZES: [(&str, usize); 2] = [("small", 2_000), ("large", 900_000)];

#[test]
fn a_slow_fetch_does_not_come_after_a_reload_in_memory() {
    let world = World::forward("maximum_object_size_in_memory 100 KB\n");
    for slow in ALL {
        a_slow_fetch_that_began_before_a_reload(&world, &format!("/small-{slow:?}"), slow, 2_000);
        // Too large for memory, and no directory: nothing of it is stored, and no request joins the
        // older fetch.
        let path = format!("/large-{slow:?}");
        let origin = Origin::new(&world, &path, slow, 900_000);
        let mut first = world.client();
        first.request("GET", &world.target(&path), &[], b"");
        origin.half.pass();
        assert_eq!(version(&world, &path, &[("Cache-Control", "no-cache")]), '2');
        assert_eq!(version(&world, &path, &[]), '2', "{slow:?}: nobody joins what is older");
        origin.whole.open();
        assert!(first.response().expect(200).text().starts_with('1'));
        assert_eq!(version(&world, &path, &[]), '2');
    }
}

#[test]
fn a_slow_fetch_does_not_come_after_a_reload_in_a_directory() {
    for scheme in schemes(&["ring", "aufs", "rock"]) {
        let world = World::forward(&format!(
            "cache_mem 1 MB\nmaximum_object_size_in_memory 100 KB\ncache_dir {scheme} {{dir}}/store 100\n"
        ));
        for slow in ALL {
            for (name, body_bytes) in SIZES {
                let path = format!("/{name}-{slow:?}");
                a_slow_fetch_that_began_before_a_reload(&world, &path, slow, body_bytes);
            }
        }
    }
}

#[test]
fn a_reload_joins_no_fetch_that_was_asked_for_before() {
    let world = World::forward("");
    let origin = Origin::new(&world, "/a", Slow::Head, 100);
    let mut first = world.client();
    first.request("GET", &world.target("/a"), &[], b"");
    origin.half.pass();
    for field in [("Cache-Control", "no-cache"), ("Pragma", "no-cache")] {
        assert_eq!(version(&world, "/a", &[field]), '2', "{field:?}");
    }
    origin.whole.open();
    assert!(first.response().expect(200).text().starts_with('1'));
}

#[test]
fn a_newer_answer_that_may_not_be_stored_takes_the_older_one_away() {
    let world = World::forward("");
    let replies = vec![
        Reply::ok("1").cachable(1000),
        Reply::ok("2").with("Cache-Control", "no-store"),
        Reply::ok("3"),
    ];
    world.origin.on_each("/a", replies);
    assert_eq!(world.get("/a").text(), "1");
    assert_eq!(world.ask("GET", "/a", &[("Cache-Control", "no-cache")]).text(), "2");
    assert_eq!(world.get("/a").text(), "3", "not the first one, which was still fresh");
}

#[test]
fn a_304_for_another_version_leaves_the_stored_one_for_when_the_server_fails() {
    let world = World::forward("");
    let asked = AtomicUsize::new(0);
    world.origin.handle("/a", move |head, wire| {
        let old = http_date(-100_000);
        match (asked.fetch_add(1, Ordering::SeqCst), head.field("If-Modified-Since")) {
            (0, _) => wire.send(format!(
                "HTTP/1.1 200 OK\r\nDate: {}\r\nLast-Modified: {old}\r\n\
                 Cache-Control: max-age=0, stale-if-error=1000\r\nContent-Length: 3\r\n\r\nold",
                http_date(0)
            )),
            (_, Some(_)) => wire.send(format!(
                "HTTP/1.1 304 Not Modified\r\nDate: {}\r\nLast-Modified: {}\r\n\r\n",
                http_date(0),
                http_date(-50_000)
            )),
            // Without a condition it fails: the connection is closed.
            _ => {}
        }
    });
    assert_eq!(world.get("/a").expect(200).text(), "old");
    for _ in 0..2 {
        assert_eq!(
            world.get("/a").expect(200).text(),
            "old",
            "it covers for the server, and stays stored"
        );
    }
    let fields: Vec<_> = world
        .origin
        .requests("/a")
        .iter()
        .map(|request| request.field("If-Modified-Since").is_some())
        .collect();
    assert_eq!(&fields[..3], [false, true, false], "validated, then fetched");
}

#[test]
fn a_304_for_another_version_is_followed_by_a_fetch_of_that_version() {
    let world = World::forward("");
    let asked = AtomicUsize::new(0);
    world.origin.handle("/a", move |head, wire| {
        let (version, age, max_age) = match asked.fetch_add(1, Ordering::SeqCst) {
            0 => ("old", -100_000, 0),
            _ => ("new", -50_000, 1000),
        };
        let fields = format!(
            "Date: {}\r\nLast-Modified: {}\r\nCache-Control: max-age={max_age}\r\n",
            http_date(0),
            http_date(age)
        );
        match head.field("If-Modified-Since") {
            Some(_) => wire.send(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n")),
            None => {
                wire.send(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 3\r\n\r\n{version}"))
            }
        }
    });
    assert_eq!(world.get("/a").expect(200).text(), "old");
    assert_eq!(world.get("/a").expect(200).text(), "new");
    let hit = world.get("/a").expect(200);
    assert_eq!((hit.cache(), hit.text().as_str()), ("HIT", "new"));
    assert_eq!(world.origin.count("/a"), 3);
}
