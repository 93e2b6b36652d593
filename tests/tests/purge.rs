//! Purging by tag and by prefix: at once, on every core, whatever is on its way, and also after a
//! crash.

#[path = "purge/events.rs"]
mod events;
#[path = "purge/load.rs"]
mod load;

use events::{wait_for_writes, wait_until_ready};
use humboldt_tests::wait::{Gate, until};
use humboldt_tests::{Reply, World};
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// The schemes that all of this holds for.
const SCHEMES: &[&str] = &["ufs", "aufs", "diskd", "coss", "rock", "ring"];

/// The rules about purges that a scenario begins with.
const ALLOW: &str = "acl purge method PURGE\nhttp_access allow purge\n";

/// Lines without which objects would be answered from memory.
const NO_MEMORY: &str = "cache_mem 1 MB\nmaximum_object_size_in_memory 1 KB\n";

const TAG: (&str, &str) = ("Surrogate-Key", "news");
const PREFIX: (&str, &str) = ("X-Purge-Method", "prefix");

/// Purges, and returns the proxy's answer.
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
        if !scheme.is_empty() {
            wait_until_ready(&world);
        }
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
    // Without a rule for it, it is forbidden to all.
    let closed = World::forward("acl purge method PURGE\nhttp_access deny purge\n");
    let _ = closed.ask("PURGE", "/a", &[TAG]).expect(403);
    // A configuration that lets everybody in has not thought of it.
    let open = World::forward("");
    for field in [TAG, PREFIX] {
        let _ = open.ask("PURGE", "/", &[field]).expect(403);
    }
}

/// An origin's path whose first answer waits: its head for one gate, its body for another. Later
/// ones come at once.
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
        // The head is not there yet: the tags may be any. Then it is there, with its tags.
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
            // The last answer is from before the purge, and was not stored.
            assert_eq!(
                (text(&world, &path), world.origin.count(&path)),
                ("new".into(), 2),
                "{path}"
            );
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
    assert_eq!(
        (before.join().expect("an answer"), &after.bytes(3)[..]),
        ("old".into(), &b"old"[..])
    );
    until("it is stored", || (cache(&world, "/a") == "HIT").then_some(()));
    assert_eq!(world.origin.count("/a"), 1);
}

#[test]
fn what_is_purged_is_neither_validated_nor_served_stale() {
    let world = World::forward(ALLOW);
    let stale = |lines: &str| {
        Reply::ok("old").with("ETag", "\"1\"").with("Cache-Control", lines).with(TAG.0, TAG.1)
    };
    for (path, lines) in [
        ("/validated", "max-age=0"),
        ("/swr", "max-age=0, stale-while-revalidate=600"),
        ("/sie", "max-age=0, stale-if-error=600"),
    ] {
        world.origin.on(path, stale(lines));
        assert_eq!((text(&world, path), text(&world, path)), ("old".into(), "old".into()));
        world.origin.wait_for(path, 2);
        assert_eq!(
            world.origin.last(path).field("If-None-Match"),
            Some("\"1\""),
            "{path} is stored"
        );
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
        if !disk.is_empty() {
            wait_until_ready(&world);
        }
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
            until("it is on disk", || {
                world.proxy.text("store.log").contains("SWAPOUT").then_some(())
            });
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

/// A path whose answers tell how often it was asked for.
fn versions(world: &World, path: &str, bytes: usize, key: &str) {
    let (asked, key) = (AtomicUsize::new(0), key.to_owned());
    world.origin.handle(path, move |_, wire| {
        let version = format!("{:03} ", asked.fetch_add(1, Ordering::SeqCst)).repeat(bytes / 4);
        wire.send(format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nSurrogate-Key: {key}\r\nContent-Length: {}\r\n\r\n{version}",
            version.len()
        ));
    });
}

/// Waits until a path is answered from the cache without changing that.
fn wait_until_stored(world: &World, path: &str) {
    until(&format!("{path} in the cache"), || {
        let answer = world.ask("GET", path, &[("Cache-Control", "only-if-cached")]);
        (answer.status() == 200).then_some(())
    });
}

/// Each scheme with objects from disk only, and with memory in front.
fn with_each_scheme(play: impl Fn(&mut World, &str)) {
    for scheme in humboldt_tests::schemes(SCHEMES) {
        for memory in [NO_MEMORY, ""] {
            let lines = format!("{ALLOW}cache_dir {scheme} {{dir}}/cache 24 4 4\n{memory}");
            let mut world = World::forward(&lines);
            wait_until_ready(&world);
            play(&mut world, &format!("{scheme} {memory}"));
            let log = world.proxy.text("cache.log");
            assert!(!log.contains("going on without"), "{log}");
        }
    }
}

const STORED: [(&str, usize, &str); 5] = [
    ("/tagged/small", 3_000, "x news"),
    ("/tagged/large", 600_000, "news"),
    ("/below/small", 3_000, "y"),
    ("/below/large", 600_000, "y"),
    ("/kept", 3_000, "z"),
];

fn store_all(world: &World) {
    for (path, bytes, key) in STORED {
        versions(world, path, bytes, key);
        assert_eq!(cache(world, path), "MISS");
        wait_until_stored(world, path);
    }
    wait_for_writes(world, STORED.len());
}

/// Kills the program and starts it again.
fn crash(world: &mut World) {
    world.proxy.kill();
    world.proxy.launch();
}

/// All but the last were purged, and none of them comes as it was.
fn all_but_one_are_new(world: &World, what: &str) {
    for (path, ..) in &STORED[..4] {
        let answer = world.ask("GET", path, &[("Cache-Control", "only-if-cached")]);
        assert_eq!(answer.status(), 504, "{what}: {path}, before the directory is ready");
    }
    // Until then nothing new is stored.
    wait_until_ready(world);
    wait_until_stored(world, "/kept");
    for (path, ..) in &STORED[..4] {
        let range = world.ask("GET", path, &[("Range", "bytes=0-2")]);
        assert_eq!(range.text().get(..3), Some("001"), "{what}: a part of {path}");
        let answer = world.get(path).expect(200);
        assert_ne!(answer.text().get(..3), Some("000"), "{what}: {path}");
        wait_until_stored(world, path);
        assert_eq!(cache(world, path), "HIT", "{what}: {path}");
    }
    assert_eq!((cache(world, "/kept"), world.origin.count("/kept")), ("HIT".into(), 1), "{what}");
}

#[test]
fn what_is_on_disk_is_purged_at_once() {
    with_each_scheme(|world, scheme| {
        store_all(world);
        let part = world.ask("GET", "/tagged/large", &[("Range", "bytes=4-6")]).expect(206);
        assert_eq!((part.cache(), part.text().as_str()), ("HIT", "000"));
        purge(world, "/", TAG);
        purge(world, "/below/", PREFIX);
        all_but_one_are_new(world, scheme);
    });
}

/// The log of purges: in the directory, or beside it where that is a file.
fn log_of(world: &World) -> PathBuf {
    let folder = if world.proxy.path("cache").is_dir() { "cache" } else { "." };
    world.proxy.path(folder).join("humboldt.purges")
}

#[test]
fn a_purge_holds_after_a_crash() {
    with_each_scheme(|world, scheme| {
        store_all(world);
        // A store may lose its last writes. So that it has all of them:
        world.proxy.restart();
        for (path, ..) in STORED {
            wait_until_stored(world, path);
        }
        purge(world, "/below/", PREFIX);
        purge(world, "/", TAG);
        crash(world);
        all_but_one_are_new(world, scheme);
        // An object stored after it is not affected, now and later.
        wait_for_writes(world, STORED.len() - 1);
        world.proxy.restart();
        for (path, ..) in STORED {
            wait_until_stored(world, path);
        }
        world.proxy.kill();
        let mut log = File::options().append(true).open(log_of(world)).expect("the log");
        log.write_all(b"0123456789abcdef tag 1").expect("what was being written at the end");
        world.proxy.launch();
        wait_until_stored(world, "/kept");
        purge(world, "/tagged/small", PREFIX);
        crash(world);
        wait_until_stored(world, "/tagged/large");
        assert_eq!(world.get("/tagged/small").expect(200).cache(), "MISS", "{scheme}");
    });
}

#[test]
fn what_is_being_written_is_purged_too() {
    with_each_scheme(|world, scheme| {
        let gate = Arc::new(Gate::default());
        let (door, first) = (Arc::clone(&gate), AtomicBool::new(true));
        world.origin.handle("/a", move |_, wire| {
            let text = if first.swap(false, Ordering::SeqCst) { "old " } else { "new " };
            wire.send(format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nCache-Tag: news\r\nContent-Length: 800000\r\n\r\n{}", text.repeat(150_000)));
            if text == "old " {
                door.pass();
            }
            wire.send(text.repeat(50_000));
        });
        let mut before = world.client();
        before.request("GET", &world.target("/a"), &[], b"");
        assert_eq!(before.head().word(1), "200");
        assert_eq!(before.bytes(500_000).len(), 500_000);
        purge(world, "/", TAG);
        gate.open();
        assert_eq!(
            before.bytes(300_000).get(299_996..),
            Some(&b"old "[..]),
            "{scheme}: it is not cut off"
        );
        assert_eq!(text(world, "/a"), "new", "{scheme}");
        wait_until_stored(world, "/a");
        crash(world);
        assert_eq!(text(world, "/a"), "new", "{scheme}");
    });
}

#[test]
fn a_purge_holds_under_load() {
    load::play(&World::forward(&format!("workers 2\n{ALLOW}")), "memory");
    with_each_scheme(|world, scheme| load::play(world, scheme));
}

#[test]
fn every_core_sees_a_purge_that_was_acknowledged() {
    let world = World::forward(&format!("workers 2\n{ALLOW}"));
    let mut connections: Vec<_> =
        (0..16).map(|number| (format!("/{number}"), world.client())).collect();
    for (path, _) in &connections {
        world.origin.on(path, Reply::ok("x").cachable(600).with(TAG.0, TAG.1));
    }
    for round in 0..20 {
        let field = if round % 2 == 0 { TAG } else { PREFIX };
        for expected in ["MISS", "HIT"] {
            for (path, client) in &mut connections {
                let answer =
                    client.request("GET", &world.target(path), &[], b"").response().expect(200);
                assert_eq!(answer.cache(), expected, "round {round}: {path}");
            }
        }
        purge(&world, "/", field);
    }
}

#[test]
fn beyond_the_bound_more_is_purged_and_never_less() {
    let mut world =
        World::forward(&format!("{ALLOW}cache_dir ring {{dir}}/cache 100\n{NO_MEMORY}"));
    wait_until_ready(&world);
    versions(&world, "/first", 3_000, "first");
    versions(&world, "/later", 3_000, "later");
    let _ = world.get("/first");
    wait_until_stored(&world, "/first");
    let tags = |request: usize| (0..250).map(|n| format!("t{request}-{n} ")).collect::<String>();
    for request in 0..40 {
        if request == 20 {
            assert_eq!(cache(&world, "/first"), "HIT", "5,000 purges of something else");
            assert_eq!(cache(&world, "/later"), "MISS");
            wait_until_stored(&world, "/later");
        }
        purge(&world, "/", ("Surrogate-Key", &tags(request)));
    }
    assert_eq!(cache(&world, "/first"), "HIT", "10,000 purges of something else");
    world.proxy.restart();
    wait_until_stored(&world, "/later");
    assert_eq!(
        cache(&world, "/first"),
        "HIT",
        "10,000 purges of something else, read from the log"
    );
    purge(&world, "/", ("Surrogate-Key", "one-more"));
    crash(&mut world);
    wait_until_stored(&world, "/later");
    assert_eq!((cache(&world, "/first"), cache(&world, "/later")), ("MISS".into(), "HIT".into()));
    purge(&world, "/", ("Surrogate-Key", "later"));
    assert_eq!(cache(&world, "/later"), "MISS");
}

#[test]
fn a_purge_that_cannot_be_written_down_is_refused() {
    let lines =
        format!("{ALLOW}cache_dir ufs {{dir}}/cache 24 4 4\npurge_log {{dir}}/none/purges\n");
    let mut world = World::forward(&lines);
    world.origin.on("/a", Reply::ok("x").cachable(600).with(TAG.0, TAG.1));
    is_fetched_anew(&world, "/a");
    let answer = world.ask("PURGE", "/", &[TAG]).expect(500);
    assert!(answer.text().contains("/none/purges: "), "{}", answer.text());
    until("an error", || world.proxy.text("cache.log").contains("ERROR: not purged").then_some(()));
    assert_eq!(cache(&world, "/a"), "HIT");
    let _ = world.ask("PURGE", "/a", &[]).expect(200);
    is_fetched_anew(&world, "/a");
    fs::create_dir(world.proxy.path("none")).expect("a directory");
    fs::set_permissions(world.proxy.path("none"), Permissions::from_mode(0o777)).expect("our own");
    purge(&world, "/", TAG);
    is_fetched_anew(&world, "/a");
    wait_until_stored(&world, "/a");
    world.proxy.restart();
    wait_until_stored(&world, "/a");
    assert_eq!(cache(&world, "/a"), "HIT");
}

#[test]
fn a_directory_that_was_away_comes_back_without_what_was_purged() {
    let both = format!(
        "{ALLOW}store_dir_select_algorithm round-robin\ncache_dir ufs {{dir}}/a 20 4 4\ncache_dir rock {{dir}}/b 20\n\
         {NO_MEMORY}"
    );
    // Both orders: the log moves with the first directory.
    for away in ["cache_dir ufs {dir}/a 20 4 4\n", "cache_dir rock {dir}/b 20\n"] {
        let world = World::forward(&both);
        wait_until_ready(&world);
        for number in 0..10 {
            versions(
                &world,
                &format!("/{number}"),
                5_000,
                if number < 8 { "news" } else { "other" },
            );
            assert_eq!(cache(&world, &format!("/{number}")), "MISS");
            wait_until_stored(&world, &format!("/{number}"));
        }
        wait_for_writes(&world, 10);
        world.proxy.reconfigure(&both.replace(away, ""));
        purge(&world, "/", TAG);
        world.proxy.reconfigure(&both);
        wait_until_stored(&world, "/8");
        wait_until_stored(&world, "/9");
        (0..8)
            .for_each(|number| assert_eq!(cache(&world, &format!("/{number}")), "MISS", "{away}"));
        let logs = ["a", "b"].map(|dir| world.proxy.path(dir).join("humboldt.purges").exists());
        assert_eq!(logs, [true, false], "one log");
    }
}

#[test]
fn a_directory_that_was_away_for_a_whole_life_comes_back_without_what_was_purged() {
    let lines = |dirs: &str| format!("{ALLOW}purge_log {{dir}}/purges\n{dirs}{NO_MEMORY}");
    let mut world = World::forward(&lines("cache_dir ufs {dir}/a 20 4 4\n"));
    wait_until_ready(&world);
    for (path, key) in [("/gone", "news"), ("/sport", "sport"), ("/kept", "other")] {
        versions(&world, path, 5_000, key);
        assert_eq!(cache(&world, path), "MISS");
        wait_until_stored(&world, path);
    }
    for (dirs, key) in [("cache_dir rock {dir}/b 20\n", "news"), ("", "sport")] {
        world.proxy.write_configuration("", &lines(dirs));
        assert!(
            humboldt_tests::proxy::run(&["-z", "-N", "-f", &world.proxy.configuration()])
                .status
                .success()
        );
        world.proxy.restart();
        purge(&world, "/", ("Cache-Tag", key));
    }
    world.proxy.write_configuration("", &lines("cache_dir ufs {dir}/a 20 4 4\n"));
    world.proxy.restart();
    wait_until_stored(&world, "/kept");
    assert_eq!((cache(&world, "/gone"), cache(&world, "/sport")), ("MISS".into(), "MISS".into()));
}
