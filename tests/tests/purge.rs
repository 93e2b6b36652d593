//! Purging by tag and by prefix: at once, on every core, whatever is on its way, and also after a crash.

use humboldt_tests::wait::{Gate, until};
use humboldt_tests::{Reply, World};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// The schemes that all of this holds for.
const SCHEMES: &[&str] = &["ufs", "aufs", "diskd", "coss", "rock", "ring"];

/// Who may purge: the rules that a scenario begins with.
const ALLOW: &str = "acl purge method PURGE\nhttp_access allow purge\n";

/// Lines without which objects would be answered from memory.
const NO_MEMORY: &str = "cache_mem 1 MB\nmaximum_object_size_in_memory 1 KB\n";

const TAG: (&str, &str) = ("Surrogate-Key", "news");
const PREFIX: (&str, &str) = ("X-Purge-Method", "prefix");

/// Purges, and returns what the proxy says about it.
fn purge(world: &World, path: &str, field: (&str, &str)) -> String {
    world.ask("PURGE", path, &[field]).expect(200).text()
}

fn cache(world: &World, path: &str) -> String {
    world.get(path).expect(200).cache().to_owned()
}

/// Asks twice: a miss, then a hit.
fn is_fetched_anew(world: &World, path: &str) {
    assert_eq!((cache(world, path), cache(world, path)), ("MISS".into(), "HIT".into()), "{path}");
}

#[test]
fn a_tag_is_purged_in_memory_and_everything_else_stays() {
    let world = World::forward(ALLOW);
    let tagged = |name, value| Reply::ok("x").cachable(600).with(name, value);
    world.origin.on("/key", tagged("Surrogate-Key", "top news sport"));
    world.origin.on("/tag", tagged("cache-tag", "top, news,sport"));
    world.origin.on("/two", tagged("Surrogate-Key", "top").with("SURROGATE-KEY", "news"));
    world.origin.on("/like", tagged("Surrogate-Key", "news-2 News newsx"));
    world.origin.on("/name", tagged("X-Surrogate-Key", "news"));
    let paths = ["/key", "/tag", "/two", "/like", "/name"];
    paths.iter().for_each(|path| is_fetched_anew(&world, path));
    let answer = purge(&world, "/whatever", TAG);
    assert_eq!(answer, "Purged tag: news\n");
    paths[..3].iter().for_each(|path| is_fetched_anew(&world, path));
    assert!(paths.iter().all(|path| cache(&world, path) == "HIT"));
    purge(&world, "/", ("Cache-Tag", "none, top,\tNews"));
    paths[..4].iter().for_each(|path| is_fetched_anew(&world, path));
    assert_eq!(cache(&world, "/name"), "HIT");
    assert!(world.proxy.logged("PURGE").contains("NONE/200"), "{}", world.proxy.text("access.log"));
}

#[test]
fn a_prefix_is_purged_in_memory_and_everything_else_stays() {
    let world = World::forward(ALLOW);
    let paths = ["/a/b", "/a/b?q=1", "/a/bc", "/a/b/c", "/a", "/a/", "/b/a/b"];
    for path in paths {
        world.origin.on(path, Reply::ok("x").cachable(600));
        is_fetched_anew(&world, path);
    }
    let answer = purge(&world, "/a/b", PREFIX);
    assert_eq!(answer, format!("Purged prefix: {}\n", world.origin.url("/a/b")));
    paths[..4].iter().for_each(|path| is_fetched_anew(&world, path));
    assert!(paths.iter().all(|path| cache(&world, path) == "HIT"));
    purge(&world, "", PREFIX);
    paths.iter().for_each(|path| is_fetched_anew(&world, path));
}

#[test]
fn a_url_is_purged_with_all_its_variants() {
    for scheme in [""].into_iter().chain(humboldt_tests::schemes(SCHEMES)) {
        let disk = if scheme.is_empty() {
            String::new()
        } else {
            format!("cache_dir {scheme} {{dir}}/cache 24 4 4\n{NO_MEMORY}")
        };
        let world = World::forward(&format!("{ALLOW}{disk}"));
        let body = "v".repeat(3_000);
        world.origin.on("/v", Reply::ok(&body).cachable(600).with("Vary", "Accept-Language"));
        let ask = |language| {
            let answer = world.ask("GET", "/v", &[("Accept-Language", language)]).expect(200);
            answer.cache().to_owned()
        };
        for language in ["de", "en"] {
            assert_eq!(ask(language), "MISS", "{scheme}");
            until("the variant", || (ask(language) == "HIT").then_some(()));
        }
        _ = world.ask("PURGE", "/v", &[]).expect(200);
        assert_eq!((ask("de"), ask("en")), ("MISS".into(), "MISS".into()), "{scheme}");
        // A tag and a prefix reach them too.
        for field in [PREFIX, ("X-Purge-Method", "exact")] {
            until("the variants", || (ask("de") == "HIT" && ask("en") == "HIT").then_some(()));
            purge(&world, "/v", field);
            assert_eq!((ask("de"), ask("en")), ("MISS".into(), "MISS".into()), "{scheme}");
        }
    }
}

#[test]
fn what_is_not_clear_is_refused_and_purges_nothing() {
    let world = World::forward(ALLOW);
    world.origin.on("/a", Reply::ok("x").cachable(600).with("Surrogate-Key", "a"));
    is_fetched_anew(&world, "/a");
    let long = "a ".repeat(300);
    let refused: &[&[(&str, &str)]] = &[
        &[("Surrogate-Key", "")],
        &[("Cache-Tag", " , ,")],
        &[("Surrogate-Key", "a"), PREFIX],
        &[("Surrogate-Key", "a"), ("X-Purge-Method", "exact")],
        &[("X-Purge-Method", "regex")],
        &[("X-Purge-Method", "")],
        &[PREFIX, PREFIX],
        &[("Surrogate-Key", &long)],
        &[("Surrogate-Key", &long[..2]), ("Cache-Tag", &"x".repeat(5_000))],
    ];
    for fields in refused {
        let answer = world.ask("PURGE", "/a", fields).expect(400);
        let text = answer.text();
        assert!(text.starts_with("Not purged: ") && text.lines().count() == 1, "{text}");
    }
    assert_eq!(cache(&world, "/a"), "HIT");
    // Without a rule for it nobody may.
    let closed = World::forward("acl purge method PURGE\nhttp_access deny purge\n");
    _ = closed.ask("PURGE", "/a", &[TAG]).expect(403);
}

/// An origin's path whose first answer waits: its head for one gate, its body for another. Later ones come at once.
fn slow_once(world: &World, path: &str) -> (Arc<Gate>, Arc<Gate>) {
    let (head, body) = (Arc::new(Gate::default()), Arc::new(Gate::default()));
    let (first, gates) = (AtomicBool::new(true), (head.clone(), body.clone()));
    world.origin.handle(path, move |_, wire| {
        let is_first = first.swap(false, Ordering::SeqCst);
        let text = if is_first { "old" } else { "new" };
        if is_first {
            gates.0.pass();
        }
        wire.send(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nSurrogate-Key: news\r\nContent-Length: 3000\r\n\r\n",
        );
        if is_first {
            gates.1.pass();
        }
        wire.send(text.repeat(1_000));
    });
    (head, body)
}

/// A request on its way, and the text that it ends with.
fn ask_in_background(world: &World, path: &str) -> JoinHandle<String> {
    let (mut client, target) = (world.client(), world.target(path));
    std::thread::spawn(move || {
        client.request("GET", &target, &[], b"").response().expect(200).text()[..3].to_owned()
    })
}

fn text(world: &World, path: &str) -> String {
    world.get(path).expect(200).text()[..3].to_owned()
}

#[test]
fn a_request_after_a_purge_does_not_join_a_fetch_from_before() {
    let world = World::forward(ALLOW);
    for (number, field) in [TAG, PREFIX].into_iter().enumerate() {
        // The head is not there yet: the tags may be any. Then it is there, and says them.
        for has_head in [false, true] {
            let path = format!("/{number}/{has_head}");
            let (head, body) = slow_once(&world, &path);
            let before = ask_in_background(&world, &path);
            world.origin.wait_for(&path, 1);
            if has_head {
                head.open();
                let mut client = world.client();
                client.request("GET", &world.target(&path), &[], b"");
                assert_eq!(client.head().word(1), "200", "the head has come");
            }
            purge(&world, &path, field);
            assert_eq!(text(&world, &path), "new", "{path}");
            head.open();
            body.open();
            assert_eq!(before.join().expect("an answer"), "old");
            // What came last is from before the purge, and was not stored.
            assert_eq!((text(&world, &path), world.origin.count(&path)), ("new".into(), 2), "{path}");
        }
    }
}

#[test]
fn a_purge_of_something_else_does_not_part_those_who_share_a_fetch() {
    let world = World::forward(ALLOW);
    let (head, body) = slow_once(&world, "/a");
    let before = ask_in_background(&world, "/a");
    world.origin.wait_for("/a", 1);
    head.open();
    let mut client = world.client();
    client.request("GET", &world.target("/a"), &[], b"");
    assert_eq!(client.head().word(1), "200", "the head has come");
    purge(&world, "/b", PREFIX);
    purge(&world, "/a", ("Cache-Tag", "sport"));
    let mut after = world.client();
    after.request("GET", &world.target("/a"), &[], b"");
    assert_eq!(after.head().word(1), "200", "the same head");
    body.open();
    assert_eq!((before.join().expect("an answer"), &after.bytes(3)[..]), ("old".into(), &b"old"[..]));
    until("it is stored", || (cache(&world, "/a") == "HIT").then_some(()));
    assert_eq!(world.origin.count("/a"), 1);
}

#[test]
fn what_is_purged_is_neither_validated_nor_served_stale() {
    let world = World::forward(ALLOW);
    let stale =
        |lines: &str| Reply::ok("old").with("ETag", "\"1\"").with("Cache-Control", lines).with(TAG.0, TAG.1);
    for (path, lines) in [
        ("/validated", "max-age=0"),
        ("/swr", "max-age=0, stale-while-revalidate=600"),
        ("/sie", "max-age=0, stale-if-error=600"),
    ] {
        world.origin.on(path, stale(lines));
        assert_eq!((text(&world, path), text(&world, path)), ("old".into(), "old".into()));
        world.origin.wait_for(path, 2);
        assert_eq!(world.origin.last(path).field("If-None-Match"), Some("\"1\""), "{path} is stored");
    }
    purge(&world, "/", TAG);
    world.origin.on("/sie", Reply::status("503 Service Unavailable", "down"));
    assert_eq!(world.get("/sie").status(), 503);
    for path in ["/validated", "/swr"] {
        let asked = world.origin.count(path);
        assert_eq!(text(&world, path), "old", "what the origin has");
        assert_eq!(world.origin.count(path), asked + 1);
        assert_eq!(world.origin.last(path).field("If-None-Match"), None, "{path}");
    }
}

#[test]
fn a_304_from_before_a_purge_does_not_bring_back_what_it_confirms() {
    for disk in [
        String::new(),
        format!("cache_dir ring {{dir}}/cache 100\ncache_store_log {{dir}}/store.log\n{NO_MEMORY}"),
    ] {
        let world = World::forward(&format!("{ALLOW}{disk}"));
        let (gate, asked) = (Arc::new(Gate::default()), AtomicUsize::new(0));
        let door = Arc::clone(&gate);
        world.origin.handle("/a", move |_, wire| {
            let fields = "Surrogate-Key: news\r\nETag: \"1\"\r\n";
            match asked.fetch_add(1, Ordering::SeqCst) {
                0 => wire.send(format!(
                    "HTTP/1.1 200 OK\r\n{fields}Cache-Control: max-age=0\r\nContent-Length: 3000\r\n\r\n{}",
                    "old".repeat(1_000)
                )),
                1 => {
                    door.pass();
                    wire.send(format!(
                        "HTTP/1.1 304 Not Modified\r\n{fields}Cache-Control: max-age=600\r\n\r\n"
                    ));
                }
                _ => wire.send(format!(
                    "HTTP/1.1 200 OK\r\n{fields}Cache-Control: max-age=600\r\nContent-Length: 3000\r\n\r\n{}",
                    "new".repeat(1_000)
                )),
            }
        });
        assert_eq!(text(&world, "/a"), "old");
        if !disk.is_empty() {
            until("it is on disk", || world.proxy.text("store.log").contains("SWAPOUT").then_some(()));
        }
        let validating = ask_in_background(&world, "/a");
        world.origin.wait_for("/a", 2);
        assert_eq!(world.origin.last("/a").field("If-None-Match"), Some("\"1\""));
        purge(&world, "/", TAG);
        gate.open();
        assert_eq!(validating.join().expect("an answer"), "old");
        assert_eq!((text(&world, "/a"), text(&world, "/a")), ("new".into(), "new".into()));
        until("it is stored", || (cache(&world, "/a") == "HIT").then_some(()));
    }
}
