//! A cache directory that hangs: requests that wait for it, and requests that do not.

use humboldt_tests::wait::{Gate, until};
use humboldt_tests::{Client, Reply, World};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LINES: &str = "cache_mem 1 MB\nmaximum_object_size_in_memory 1 KB\nacl purge method PURGE\nhttp_access allow purge\n";

/// The helper of a `diskd`, which does nothing as long as this exists. So nothing that the
/// directory has to do is ever done.
struct Stopped(Pid);

impl Stopped {
    /// Stops the process that the proxy has started.
    fn helper_of(world: &World) -> Self {
        let own = world.proxy.id().to_string();
        let is_child = |stat: &str| {
            stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1))
                == Some(own.as_str())
        };
        let helper =
            fs::read_dir("/proc").expect("/proc").filter_map(Result::ok).find_map(|entry| {
                let pid = entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
                is_child(&fs::read_to_string(entry.path().join("stat")).ok()?).then_some(pid)
            });
        let helper = helper.expect("a helper");
        kill_process(helper, Signal::STOP).expect("our own child's child");
        Self(helper)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

fn cache(world: &World, path: &str) -> String {
    world.get(path).expect(200).cache().to_owned()
}

/// A world with `/x` and `/y` in a `diskd`, and nowhere else.
fn world() -> World {
    let world = World::forward(&format!("cache_dir diskd {{dir}}/store 64 4 4\n{LINES}"));
    for path in ["/x", "/y"] {
        world.origin.on(path, Reply::ok("x".repeat(5_000)).cachable(3_600));
        assert_eq!(cache(&world, path), "MISS");
        until("a hit", || (cache(&world, path) == "HIT").then_some(()));
    }
    world
}

#[test]
fn a_purge_is_answered_though_the_directory_hangs() {
    let world = world();
    let stopped = Stopped::helper_of(&world);
    let answer = world.ask("PURGE", "/x", &[]).expect(503);
    assert!(answer.text().contains("Purged for now only"), "{}", answer.text());
    assert_eq!(cache(&world, "/x"), "MISS");
    drop(stopped);
    until("a purge that is written down", || {
        (world.ask("PURGE", "/x", &[]).status() != 503).then_some(())
    });
    until("a directory in service", || (cache(&world, "/y") == "HIT").then_some(()));
}

/// RFC 9111 4.4: an answer that a POST makes void is void at once, and no request waits for a disk.
#[test]
fn a_post_waits_for_no_disk() {
    let world = world();
    let _stopped = Stopped::helper_of(&world);
    for _ in 0..100 {
        let _ = world.ask("POST", "/x", &[("Content-Length", "0")]).expect(200);
    }
    assert_eq!(cache(&world, "/x"), "MISS");
}

/// Memory gives an answer up before the directory has written it. It is at hand all the same.
#[test]
fn a_hit_does_not_wait_until_it_is_stored() {
    let world = World::forward("cache_dir diskd {dir}/store 64 4 4\ncache_mem 1 MB\n");
    let reply = || Reply::ok("x".repeat(10_000)).cachable(3_600);
    let fetch = |path: &str| {
        world.origin.on(path, reply());
        assert_eq!(cache(&world, path), "MISS");
    };
    world.proxy.wait_for_directory();
    fetch("/first");
    let file = world.proxy.path("store/00/00/00000000");
    until("a helper that has written", || file.exists().then_some(()));
    let stopped = Stopped::helper_of(&world);
    let tagged = Reply::ok("x".repeat(10_000)).with("Cache-Control", "no-cache");
    world.origin.on("/tagged", tagged.with("ETag", "\"a\""));
    assert_eq!(cache(&world, "/tagged"), "MISS");
    fetch("/new");
    (0..200).for_each(|number| fetch(&format!("/others/{number}")));
    let stores = || world.metric("humboldt_memory_stores_total");
    let before = stores();
    assert_eq!(cache(&world, "/new"), "HIT");
    assert_eq!(world.origin.count("/new"), 1);
    assert_eq!(stores() - before, 1, "it had left memory");
    // An answer that has to be confirmed waits until it is stored.
    let mut client = world.client();
    client.request("GET", &world.target("/tagged"), &[], b"");
    until("a request that waits", || (stores() - before >= 2).then_some(()));
    drop(stopped);
    assert_eq!(client.response().expect(200).body.len(), 10_000);
    assert_eq!(world.origin.last("/tagged").field("If-None-Match"), Some("\"a\""));
}

/// The contents of the logs of removals of a `ring`.
fn removals(store: &Path) -> Vec<Vec<u8>> {
    (0..2)
        .map(|log| fs::read(store.join(format!("ring.removed.{log}"))).unwrap_or_default())
        .collect()
}

#[test]
fn a_post_to_what_was_never_stored_writes_nothing() {
    let world = World::forward(&format!("cache_dir ring {{dir}}/store 64\n{LINES}"));
    world.origin.on("/never", Reply::ok("done"));
    world.origin.on("/stored", Reply::ok("x".repeat(5_000)).cachable(3_600));
    until("a hit", || (cache(&world, "/stored") == "HIT").then_some(()));
    let store = world.proxy.path("store");
    let before = removals(&store);
    assert!(before.iter().any(|log| !log.is_empty()), "there are such files");
    for _ in 0..300 {
        let _ = world.ask("POST", "/never", &[("Content-Length", "0")]).expect(200);
    }
    assert!(removals(&store) == before, "nothing is written");
    // The removal of a stored object is written down, so that a crash does not bring it back: this
    // is seen here.
    let _ = world.ask("POST", "/stored", &[("Content-Length", "0")]).expect(200);
    until("a removal", || (removals(&store) != before).then_some(()));
}

/// A world whose `diskd` may have few messages away.
fn narrow(overload: &str) -> World {
    narrow_with(overload, "")
}

fn narrow_with(overload: &str, lines: &str) -> World {
    let world = World::forward(&format!(
        "cache_dir diskd {{dir}}/store 64 4 4 Q1=4 Q2=4 overload={overload}\n{LINES}{lines}"
    ));
    world.origin.on("/first", Reply::ok("x".repeat(5_000)).cachable(3_600));
    assert_eq!(cache(&world, "/first"), "MISS");
    until("a hit", || (cache(&world, "/first") == "HIT").then_some(()));
    world
}

/// More than half of the directory's queue takes.
const MANY: usize = 30;

/// Sends requests for new objects to a directory that stands still, until all have arrived; returns
/// their paths and clients.
fn many_new(world: &World, round: usize) -> Vec<(String, Client)> {
    let all = (0..MANY).map(|number| {
        let path = format!("/{round}/{number}");
        world.origin.on(&path, Reply::ok("x".repeat(5_000)).cachable(3_600));
        let mut client = world.client();
        client.request("GET", &world.target(&path), &[], b"");
        (path, client)
    });
    let all: Vec<_> = all.collect();
    until("all requests at the origin", || {
        all.iter().all(|(path, _)| world.origin.count(path) == 1).then_some(())
    });
    all
}

/// The disk stands still and goes on: whoever waited has a place then, and no more than find room
/// have one before.
#[test]
fn with_wait_clients_wait_for_a_slow_disk_and_all_that_they_fetch_is_stored() {
    let world = narrow("wait");
    let waits = || world.metric("humboldt_store_waits_total");
    // A place is waited for for a second. If this machine is too slow for that, once more.
    let mut too_late = 0;
    for round in 0.. {
        assert!(round < 20, "too slow a machine");
        let stopped = Stopped::helper_of(&world);
        let (start, before) = (Instant::now(), waits());
        let shed = world.metric("humboldt_store_shed_total");
        let all = many_new(&world, round);
        until("clients that wait", || (waits() - before > MANY as u64 / 2).then_some(()));
        drop(stopped);
        let is_in_time = start.elapsed() < Duration::from_millis(500);
        let mut paths = Vec::new();
        for (path, mut client) in all {
            assert_eq!(client.response().expect(200).body.len(), 5_000);
            paths.push(path);
        }
        // An answer whose wait was in vain came a second after its beginning at the earliest. With
        // half a second left that is this machine's fault a few times only.
        if start.elapsed() >= Duration::from_secs(1) {
            too_late += usize::from(is_in_time);
            assert!(too_late < 5, "a client that could go on waits for its second");
            continue;
        }
        for path in &paths {
            until("a stored object", || (cache(&world, path) == "HIT").then_some(()));
            assert_eq!(world.origin.count(path), 1, "{path} was not stored at once");
        }
        assert_eq!(world.metric("humboldt_store_shed_total"), shed);
        break;
    }
}

/// A client that has a place and leaves gives it to others. Two stores are under way meanwhile, and
/// the disk stands still: nothing else makes room.
#[test]
fn with_wait_a_client_that_leaves_leaves_no_place_behind() {
    let world = narrow_with("wait", "quick_abort_min 0 KB\nquick_abort_max 0 KB\n");
    let waits = || world.metric("humboldt_store_waits_total");
    let _stopped = Stopped::helper_of(&world);
    let on = |path: &str| world.origin.on(path, Reply::ok("x".repeat(5_000)).cachable(3_600));
    for path in ["/1", "/2"] {
        on(path);
        assert_eq!(cache(&world, path), "MISS");
    }
    // These have the three places that are left; their bodies never come.
    let ended = Arc::new(AtomicUsize::new(0));
    let slow = ["/slow/1", "/slow/2", "/slow/3"].map(|path| {
        let ended = Arc::clone(&ended);
        world.origin.handle(path, move |_, wire| {
            wire.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\n");
            wire.send("Content-Length: 5000\r\n\r\nbegun");
            let _ = wire.reader.head(); // there is none: it ends with the connection
            ended.fetch_add(1, Ordering::SeqCst);
        });
        let mut client = world.client();
        client.request("GET", &world.target(path), &[], b"");
        assert_eq!(client.head().word(1), "200");
        client
    });
    assert_eq!(waits(), 0);
    on("/next");
    let mut next = world.client();
    next.request("GET", &world.target("/next"), &[], b"");
    until("a client that waits", || (waits() == 1).then_some(()));
    slow.into_iter().for_each(Client::abort);
    until("fetches that are over", || (ended.load(Ordering::SeqCst) == 3).then_some(()));
    assert_eq!(next.response().expect(200).cache(), "MISS");
    on("/last");
    assert_eq!(cache(&world, "/last"), "MISS");
    assert_eq!(waits(), 1, "there was a place for it");
}

/// Clients that ask at one time.
const CROWD: usize = 150;

/// The answer of the server to one of them. That to the first one comes in several pieces.
fn body_for(number: usize) -> String {
    format!("{number:05}").repeat(if number == 0 { 40_000 } else { 400 })
}

/// A crowd asks; the server answers nobody before all have asked. All have their answers when this
/// returns. Returns the most memory of the proxy meanwhile, in bytes.
fn crowd(world: &World, kind: &str, cache_control: &str) -> usize {
    let (asked, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Gate::default()));
    let all = (0..CROWD).map(|number| {
        let path = format!("/{kind}/{number}");
        let (asked, gate) = (Arc::clone(&asked), Arc::clone(&gate));
        let (field, body) = (format!("Cache-Control: {cache_control}"), body_for(number));
        world.origin.handle(&path, move |_, wire| {
            asked.fetch_add(1, Ordering::SeqCst);
            gate.pass();
            let length = body.len();
            wire.send(format!(
                "HTTP/1.1 200 OK\r\n{field}\r\nContent-Length: {length}\r\n\r\n{body}"
            ));
        });
        let mut client = world.client();
        client.request("GET", &world.target(&path), &[], b"");
        client
    });
    let all: Vec<_> = all.collect();
    until("all requests", || (asked.load(Ordering::SeqCst) == CROWD).then_some(()));
    gate.open();
    world.proxy.most_anonymous_bytes(|| {
        for (number, mut client) in all.into_iter().enumerate() {
            assert!(client.response().expect(200).text() == body_for(number), "wrong bytes");
        }
    })
}

#[test]
fn those_who_wait_for_a_slow_disk_hold_what_has_come_and_no_read_buffers() {
    let world = narrow("wait");
    let usual = crowd(&world, "passes", "no-store");
    assert_eq!(world.metric("humboldt_store_waits_total"), 0);
    // The first time, buffers may be of pages that nobody has touched, and cost nothing.
    for round in ["first", "second"] {
        let before = world.metric("humboldt_store_waits_total");
        let stopped = Stopped::helper_of(&world);
        let most = crowd(&world, round, "max-age=3600");
        drop(stopped);
        let waited = world.metric("humboldt_store_waits_total") - before;
        assert!(waited > 100, "{waited}");
        // A read buffer for each would be 64 KiB.
        let more = most.saturating_sub(usual);
        assert!(more < 100 * 32 * 1024, "{round}: {more} bytes more than {usual}");
    }
}

#[test]
fn with_shed_nobody_waits_for_a_slow_disk_and_some_objects_are_not_stored() {
    let world = narrow("shed");
    let stopped = Stopped::helper_of(&world);
    for (_, mut client) in many_new(&world, 0) {
        assert_eq!(client.response().expect(200).body.len(), 5_000, "while the disk stands still");
    }
    until("objects that are not stored", || {
        (world.metric("humboldt_store_shed_total") >= MANY as u64 - 10).then_some(())
    });
    drop(stopped);
    assert_eq!(world.metric("humboldt_store_waits_total"), 0);
    world.origin.on("/last", Reply::ok("x".repeat(5_000)).cachable(3_600));
    until("a hit", || (cache(&world, "/last") == "HIT").then_some(()));
}
