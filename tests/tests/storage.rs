//! Objects on disk: hits after a restart, after a crash, and with stores that cannot be used.

use humboldt_tests::wait::{LIMIT, until, until_within};
use humboldt_tests::{Proxy, Reply, World};
use std::fs;

const UFS: &str =
    "cache_dir ufs {dir}/cache 100 16 256\ncache_mem 1 MB\nmaximum_object_size_in_memory 1 KB\n";

fn body(index: usize) -> String {
    format!("object {index} ").repeat(1_000)
}

/// Requests `count` objects, so that they are stored.
fn fill(world: &World, count: usize) {
    for index in 0..count {
        let path = format!("/{index}");
        world.origin.on(&path, Reply::ok(body(index)).cachable(3_600));
        assert!(world.get(&path).expect(200).text() == body(index));
    }
}

/// The same, and then waits for their files. Objects fetched before the store was ready are
/// requested again.
fn fill_disk(world: &World, count: usize) {
    fill(world, count);
    until(&format!("{count} files"), || {
        if stored_files(&world.proxy) >= count {
            return Some(());
        }
        let _ = hits(world, count);
        None
    });
}

/// Number of objects that still come without the origin. Every answer must be right, from any
/// place.
fn hits(world: &World, count: usize) -> usize {
    let answers = (0..count).map(|index| {
        let answer = world.get(&format!("/{index}")).expect(200);
        assert!(
            answer.text() == body(index),
            "object {index}: {} bytes, not those of the origin",
            answer.body.len()
        );
        usize::from(answer.cache() == "HIT")
    });
    answers.sum()
}

/// Number of files below a store's directory with Squid's names.
fn stored_files(proxy: &Proxy) -> usize {
    let is_name = |name: &str| name.len() == 8 && name.chars().all(|c| c.is_ascii_hexdigit());
    let mut folders = vec![proxy.path("cache")];
    let mut count = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else if is_name(&entry.file_name().to_string_lossy()) {
                count += 1;
            }
        }
    }
    count
}

#[test]
fn objects_are_hits_from_disk_after_a_clean_restart() {
    let mut world = World::forward(UFS);
    fill_disk(&world, 30);
    world.proxy.restart();
    until("the rebuilt index", || (world.get("/0").cache() == "HIT").then_some(()));
    assert_eq!(hits(&world, 30), 30);
    until("a hit from disk in access.log", || {
        world.proxy.text("access.log").contains("TCP_HIT/200").then_some(())
    });
}

#[test]
fn objects_are_hits_from_disk_after_a_crash() {
    let mut world = World::forward(UFS);
    fill_disk(&world, 30);
    // The log is written once a second: later changes are lost.
    let log_bytes =
        || fs::metadata(world.proxy.path("cache/swap.state")).map_or(0, |found| found.len());
    until("the log of 30 objects", || (log_bytes() >= 31 * 32).then_some(()));
    world.proxy.kill();
    let _ = fs::remove_file(world.proxy.path("pid"));
    world.proxy.launch();
    world.proxy.wait_for_directory();
    assert!(hits(&world, 30) >= 28);
}

#[test]
fn the_layout_is_squids() {
    let world = World::forward(UFS);
    fill_disk(&world, 3);
    for part in ["cache/00/00", "cache/0F/FF", "cache/swap.state"] {
        assert!(world.proxy.path(part).exists(), "{part} is missing");
    }
}

#[test]
fn a_crash_while_writing_never_leaves_a_wrong_answer() {
    let mut world = World::forward(UFS);
    for round in 0..3 {
        let mut clients: Vec<_> = (0..40).map(|_| world.client()).collect();
        for (index, client) in clients.iter_mut().enumerate() {
            let path = format!("/{index}");
            world.origin.on(&path, Reply::ok(body(index)).cachable(3_600));
            client.request("GET", &world.target(&path), &[], b"");
        }
        let _ = clients[round * 10].response(); // somewhere in the middle of the others
        world.proxy.kill();
        let _ = fs::remove_file(world.proxy.path("pid"));
        world.proxy.launch();
        let _ = hits(&world, 40);
    }
}

#[test]
fn damaged_files_are_misses_and_not_wrong_answers() {
    let mut world = World::forward(UFS);
    fill_disk(&world, 10);
    world.proxy.stop();
    for index in 0..10 {
        let path = world.proxy.path(&format!("cache/00/00/{index:08X}"));
        let Ok(bytes) = fs::read(&path) else { continue };
        let damaged = match index % 3 {
            0 => bytes[..bytes.len() / 2].to_vec(),
            1 => vec![0; bytes.len()],
            _ => Vec::new(),
        };
        fs::write(&path, damaged).expect("a damaged file");
    }
    world.proxy.launch();
    let _ = hits(&world, 10);
    let _ = hits(&world, 10);
}

#[test]
fn the_water_marks_hold() {
    let lines =
        "cache_dir ufs {dir}/cache 2 4 4\ncache_mem 1 MB\nmaximum_object_size_in_memory 1 KB\n";
    let world = World::forward(lines);
    fill(&world, 400); // about five times the store
    until("room", || {
        let used: u64 = walk_bytes(&world.proxy.path("cache"));
        (used < 3 << 20).then_some(())
    });
    // The newest are still there. All of them in turn would each push out the one that is asked for
    // last.
    let newest =
        (390..400).filter(|index| world.get(&format!("/{index}")).cache() == "HIT").count();
    assert!(newest > 0);
}

fn walk_bytes(folder: &std::path::Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => walk_bytes(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

#[test]
fn the_null_store_is_accepted_and_memory_still_works() {
    let world = World::forward("cache_dir null /tmp\n");
    fill(&world, 3);
    assert_eq!(hits(&world, 3), 3);
}

#[test]
fn a_purge_survives_a_restart() {
    let mut world =
        World::forward(&format!("{UFS}acl purge method PURGE\nhttp_access allow purge\n"));
    fill_disk(&world, 2);
    let _ = world.ask("PURGE", "/0", &[]).expect(200);
    let _ = world.ask("PURGE", "/missing", &[]).expect(404);
    world.proxy.restart();
    until("the rebuilt index", || (world.get("/1").cache() == "HIT").then_some(()));
    assert_eq!(world.get("/0").expect(200).cache(), "MISS", "a purged object came back");
}

#[test]
fn variants_survive_a_restart() {
    let mut world = World::forward(UFS);
    fill_disk(&world, 1); // the store is ready
    for language in ["de", "en"] {
        let text = language.repeat(2_000);
        world.origin.on("/a", Reply::ok(&text).cachable(3_600).with("Vary", "Accept-Language"));
        let _ = world.ask("GET", "/a", &[("Accept-Language", language)]).expect(200);
    }
    until("3 files", || (stored_files(&world.proxy) >= 3).then_some(()));
    world.proxy.restart();
    until("the rebuilt index", || {
        (world.ask("GET", "/a", &[("Accept-Language", "en")]).cache() == "HIT").then_some(())
    });
    assert_eq!(
        world.ask("GET", "/a", &[("Accept-Language", "de")]).expect(200).text(),
        "de".repeat(2_000)
    );
}

const RING: &str = "cache_dir ring {dir}/cache 100\ncache_mem 1 MB\n";

/// A world with an empty ring that stores all answers.
fn ring(lines: &str) -> World {
    let world = World::forward(lines);
    let mut number = 0;
    until("a ring that stores", || {
        let path = format!("/probe/{number}.");
        world.origin.on(&path, Reply::ok("probe").cachable(3_600));
        let _ = world.get(&path).expect(200);
        number += 1;
        (world.metric("humboldt_store_objects") > 0).then_some(())
    });
    world
}

/// 80 objects of half again as much as memory has room for, all of them stored in a ring, with the
/// first ones in memory.
fn more_than_memory_holds() -> World {
    let world = ring(RING);
    store_80(&world);
    world
}

/// Has 80 objects stored.
fn store_80(world: &World) {
    let before = world.metric("humboldt_store_objects");
    for index in 0..80 {
        let path = format!("/{index}");
        let reply = Reply::ok(body(index).repeat(2)).with("ETag", "\"v1\"").cachable(3_600);
        world.origin.on(&path, reply);
        let _ = world.get(&path).expect(200);
    }
    until("all objects", || (world.metric("humboldt_store_objects") >= before + 80).then_some(()));
}

/// The same, after a restart: the last ones fill memory, and of the first ones only their places
/// are known.
fn more_on_disk_than_memory_holds() -> World {
    let mut world = more_than_memory_holds();
    world.proxy.restart();
    until("the index", || (world.get("/79").cache() == "HIT").then_some(()));
    for index in 20..79 {
        assert_eq!(world.get(&format!("/{index}")).expect(200).cache(), "HIT");
    }
    world
}

/// The tags of the requests for a path that were logged, in their order.
fn tags(world: &World, path: &str, count: usize) -> Vec<String> {
    let lines = world.proxy.logged_times(&format!("{path} "), count);
    lines.iter().filter_map(|line| line.split_whitespace().nth(3).map(str::to_owned)).collect()
}

#[test]
fn with_a_full_memory_the_second_request_moves_an_object_there() {
    let world = more_than_memory_holds();
    let _ = world.proxy.logged("/79 ");
    let mut client = world.client();
    for _ in 0..2 {
        let answer = client.request("GET", &world.target("/79"), &[], b"").response().expect(200);
        assert!(answer.cache() == "HIT" && answer.text() == body(79).repeat(2));
    }
    assert_eq!(tags(&world, "/79", 3), ["TCP_MISS/200", "TCP_HIT/200", "TCP_MEM_HIT/200"]);
}

#[test]
fn memory_cache_mode_says_what_memory_keeps() {
    // For an object that is asked for at once again, and for one that memory would have lost
    // meanwhile.
    let modes = [
        ("always", ["TCP_MEM_HIT/200", "TCP_MEM_HIT/200"], ["TCP_HIT/200", "TCP_MEM_HIT/200"]),
        ("disk", ["TCP_HIT/200", "TCP_MEM_HIT/200"], ["TCP_HIT/200", "TCP_MEM_HIT/200"]),
        ("network", ["TCP_MEM_HIT/200", "TCP_MEM_HIT/200"], ["TCP_HIT/200", "TCP_HIT/200"]),
    ];
    for (mode, at_once, later) in modes {
        let world =
            ring(&format!("{RING}memory_cache_mode {mode}\nmemory_replacement_policy lru\n"));
        store_80(&world);
        for (path, expected) in [("/79", at_once), ("/0", later)] {
            let _ = world.proxy.logged(&format!("{path} "));
            let mut client = world.client();
            for _ in 0..2 {
                let answer =
                    client.request("GET", &world.target(path), &[], b"").response().expect(200);
                assert_eq!(answer.cache(), "HIT");
            }
            assert_eq!(tags(&world, path, 3)[1..], expected, "memory_cache_mode {mode}: {path}");
        }
    }
}

#[test]
fn with_a_full_memory_the_second_hit_on_disk_moves_an_object_there() {
    let world = more_on_disk_than_memory_holds();
    // Another core may have served it, whose lines may be written later.
    let _ = world.proxy.logged("/0 ");
    let mut client = world.client();
    for _ in 0..3 {
        let answer = client.request("GET", &world.target("/0"), &[], b"").response().expect(200);
        assert!(answer.cache() == "HIT" && answer.text() == body(0).repeat(2));
    }
    let expected = ["TCP_MISS/200", "TCP_HIT/200", "TCP_HIT/200", "TCP_MEM_HIT/200"];
    assert_eq!(tags(&world, "/0", 4), expected);
}

#[test]
fn whatever_is_asked_of_an_object_on_disk_is_answered_from_where_it_was_read_to() {
    let world = more_on_disk_than_memory_holds();
    let text = |index: usize| body(index).repeat(2);
    let ask = |index: usize, field: (&str, &str)| world.ask("GET", &format!("/{index}"), &[field]);
    let whole = ask(1, ("If-None-Match", "\"v2\"")).expect(200);
    assert_eq!((whole.cache(), whole.text()), ("HIT", text(1)));
    assert!(ask(2, ("If-None-Match", "\"v1\"")).expect(304).body.is_empty());
    assert_eq!(ask(3, ("Range", "bytes=9000-9099")).expect(206).text(), text(3)[9000..9100]);
    assert_eq!(ask(4, ("Range", "bytes=-7")).expect(206).text(), text(4)[text(4).len() - 7..]);
    let _ = ask(5, ("Range", "bytes=999999-")).expect(416);
    let parts = ask(6, ("Range", "bytes=0-9,100-109")).expect(206).text();
    assert!(parts.contains(&text(6)[..10]) && parts.contains(&text(6)[100..110]));
    let head = world.ask("HEAD", "/7", &[]).expect(200);
    let length = text(7).len().to_string();
    assert_eq!((head.cache(), head.field("Content-Length")), ("HIT", Some(&*length)));
    assert!(
        (1..=7).all(|index| world.origin.count(&format!("/{index}")) == 1),
        "nothing was asked again"
    );
}

/// Far more answers than sockets take, which come whole with their heads.
const LENT_ANSWERS: usize = 400;

fn slow_requests(world: &World) -> usize {
    (0..LENT_ANSWERS).filter(|index| world.origin.count(&format!("/slow/{index}")) > 0).count()
}

#[test]
fn a_client_that_reads_slowly_gets_all_of_what_was_lent_from_where_it_was_stored() {
    let world = more_than_memory_holds();
    let content = |index: usize| body(index).repeat(3);
    for index in 0..LENT_ANSWERS {
        world.origin.on(&format!("/slow/{index}"), Reply::ok(content(index)).cachable(3_600));
    }
    let mut client = world.client();
    for index in 0..LENT_ANSWERS {
        client.request("GET", &world.target(&format!("/slow/{index}")), &[], b"");
    }
    // It reads nothing until nothing goes on any more, while another reads other things.
    let mut asked = 0;
    until_within(6 * LIMIT, "full sockets", || {
        for index in 0..80 {
            assert!(world.get(&format!("/{index}")).expect(200).text() == body(index).repeat(2));
        }
        let before = std::mem::replace(&mut asked, slow_requests(&world));
        (0 < before && before == asked).then_some(())
    });
    assert!(asked < LENT_ANSWERS);
    for index in 0..LENT_ANSWERS {
        let answer = client.response().expect(200);
        assert!(answer.text() == content(index), "object {index}");
    }
    for index in 0..LENT_ANSWERS {
        let answer = world.get(&format!("/slow/{index}")).expect(200);
        assert!(answer.cache() == "HIT" && answer.text() == content(index), "object {index}");
    }
}

#[test]
fn a_client_that_reads_slowly_gets_all_of_what_was_read_from_disk() {
    const OBJECTS: usize = 60;
    let world = ring(RING);
    let before = world.metric("humboldt_store_objects");
    // Far more than sockets take, in objects that a ring reads in one piece.
    let content = |index: usize| body(index).repeat(17);
    for index in 0..OBJECTS {
        let path = format!("/slow/{index}");
        world.origin.on(&path, Reply::ok(content(index)).cachable(3_600));
        let _ = world.get(&path).expect(200);
    }
    until("all objects", || {
        (world.metric("humboldt_store_objects") >= before + OBJECTS as u64).then_some(())
    });
    let mut client = world.client();
    for index in 0..OBJECTS {
        client.request("GET", &world.target(&format!("/slow/{index}")), &[], b"");
    }
    // It reads nothing while another reads other objects, which take the memory.
    fill(&world, 80);
    for index in 0..OBJECTS {
        let answer = client.response().expect(200);
        assert!(answer.text() == content(index), "object {index}");
    }
    assert!((0..OBJECTS).all(|index| world.origin.count(&format!("/slow/{index}")) == 1));
}

/// Far more than sockets take.
const HUGE_BYTES: usize = 8 << 20;

/// A body of which no two parts are alike.
fn huge(number: u64) -> Vec<u8> {
    (0..HUGE_BYTES as u64 / 8).flat_map(|at| (at << 16 | number).to_be_bytes()).collect()
}

#[test]
fn what_a_client_has_begun_to_get_from_disk_it_gets_whole_whatever_becomes_of_the_object() {
    for (scheme, levels) in
        [("ufs", " 4 4"), ("aufs", " 4 4"), ("diskd", " 4 4"), ("rock", ""), ("ring", "")]
    {
        let world = ring(&format!(
            "cache_dir {scheme} {{dir}}/cache 64{levels}\ncache_mem 1 MB\n\
             maximum_object_size 32 MB\nacl purge method PURGE\nhttp_access allow purge\n"
        ));
        let store = |path: &str, number| {
            world.origin.on(path, Reply::ok(huge(number)).cachable(3_600));
            let answer = world.ask("GET", path, &[("Cache-Control", "no-cache")]);
            assert!(answer.expect(200).body == huge(number), "{scheme}: {path}");
        };
        for what in ["purged", "replaced"] {
            let path = format!("/{what}");
            store(&path, 1);
            until("a hit", || (world.get(&path).cache() == "HIT").then_some(()));
            let mut client = world.client();
            client.request("GET", &world.target(&path), &[], b"");
            assert!(client.head().start.contains(" 200 "));
            let mut got = client.bytes(1 << 20);
            // The server has another version only, and no validator could say that it has not.
            match what {
                "purged" => _ = world.ask("PURGE", &path, &[]).expect(200),
                _ => store(&path, 2),
            }
            // Others fill the whole directory.
            (3..12).for_each(|number| store(&format!("/other/{number}"), number));
            got.extend(client.bytes(HUGE_BYTES - got.len()));
            assert!(got == huge(1), "{scheme}: {what}");
        }
    }
}
