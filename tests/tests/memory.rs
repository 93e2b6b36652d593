//! Memory while everything else goes on: reconfigurations that change `cache_mem`, slow clients,
//! shares.
//!
//! `HUMBOLDT_TEST_RELOADS=1000` reads the configuration so often.

use humboldt_tests::wait::{Ending, LIMIT, until};
use humboldt_tests::{Reply, Response, World};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A number from the environment, or the one for every day.
fn scaled(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// This many bytes, of which each place differs by `seed`.
fn body(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251 + seed * 13) as u8).collect()
}

/// Every scheme that stores something.
const SCHEMES: &[&str] = &["ufs", "aufs", "diskd", "coss", "rock", "ring"];

/// The largest body that `coss` takes.
const COSS_BODY_BYTES_MAX: usize = 960 * 1024;

/// Whether an answer claims that it is stored.
fn says_stored(answer: &Response) -> bool {
    answer.field("Cache-Status").unwrap_or_default().contains("; stored")
}

/// Whether an answer claims that it is being stored, which may fail.
fn says_storing(answer: &Response) -> bool {
    answer.field("Cache-Status").unwrap_or_default().contains("; detail=storing")
}

/// Bodies of all sizes, of which each comes to the proxy in one piece or in several.
const SIZES: &[usize] =
    &[0, 1_000, 16_000, 17_000, 33_000, 65_000, 65_636, 100_000, 300_000, 524_288, 1_000_000];

/// Serves a body in pieces, which end in the middle of pages.
fn in_pieces(world: &World, path: &str, body: Vec<u8>) {
    world.origin.handle(path, move |_, wire| {
        wire.send(format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: {}\r\n\r\n",
            body.len()
        ));
        body.chunks(10_001).for_each(|piece| wire.send(piece));
    });
}

#[test]
fn a_cache_without_memory_stores_bodies_of_every_size_and_says_so_only_when_it_is_true() {
    for scheme in humboldt_tests::schemes(SCHEMES) {
        let world =
            World::forward(&format!("cache_dir {scheme} {{dir}}/cache 200 4 4\ncache_mem 0\n"));
        world.proxy.wait_for_directory();
        let mut stored = 0;
        for (number, &size) in SIZES.iter().enumerate() {
            for way in ["whole", "pieces"] {
                let (path, content) = (format!("/{way}/{size}"), body(number, size));
                match way {
                    "whole" => world.origin.on(&path, Reply::ok(&content).cachable(600)),
                    _ => in_pieces(&world, &path, content.clone()),
                }
                let miss = world.get(&path).expect(200);
                assert!(miss.cache() == "MISS" && miss.body == content, "{scheme} {path}");
                let is_taken = scheme != "coss" || size <= COSS_BODY_BYTES_MAX;
                assert_eq!(
                    says_stored(&miss) || says_storing(&miss),
                    is_taken,
                    "{scheme} {path}: {:?}",
                    miss.head
                );
                if says_stored(&miss) {
                    assert!(is_taken, "{scheme} {path}: {:?}", miss.head);
                } else if is_taken {
                    until(&format!("{path} in {scheme}"), || {
                        (world.metric("humboldt_store_objects") > stored).then_some(())
                    });
                }
                stored = world.metric("humboldt_store_objects");
                let again = world.get(&path).expect(200);
                let expected = if is_taken { "HIT" } else { "MISS" };
                assert!(
                    again.cache() == expected && again.body == content,
                    "{scheme} {path}: {:?}",
                    again.head
                );
                assert_eq!(
                    world.origin.count(&path),
                    if is_taken { 1 } else { 2 },
                    "{scheme} {path}"
                );
            }
        }
    }
}

#[test]
fn neither_memory_nor_a_directory_is_said_to_store_what_it_does_not_take() {
    for (lines, size, is_taken) in [
        ("cache_mem 0", 1_000, false),
        ("cache_mem 64 KB", 30_000, true),
        ("cache_mem 64 KB", 33_000, false),
        ("maximum_object_size_in_memory 20 KB", 20_481, false),
        ("maximum_object_size_in_memory 20 KB", 20_480, true),
    ] {
        let world = World::forward(lines);
        let content = body(1, size);
        for way in ["whole", "pieces"] {
            let path = format!("/{way}");
            match way {
                "whole" => world.origin.on(&path, Reply::ok(&content).cachable(600)),
                _ => in_pieces(&world, &path, content.clone()),
            }
            let miss = world.get(&path).expect(200);
            assert_eq!(
                says_stored(&miss) || says_storing(&miss),
                is_taken,
                "{lines} {path}: {:?}",
                miss.head
            );
            let again = || world.get(&path).expect(200).cache().to_owned();
            match is_taken {
                // The client has the last byte a moment before memory has the object.
                true => {
                    until(&format!("a hit, {lines} {path}"), || (again() == "HIT").then_some(()))
                }
                false => assert_eq!(again(), "MISS", "{lines} {path}"),
            }
        }
    }
}

/// A client that asks, and reads nothing before it is told to. The kernel takes some megabytes for
/// it.
fn lazy_reader(world: &World, paths: &[String]) -> TcpStream {
    let mut stream = TcpStream::connect(world.proxy.address()).expect("the proxy listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    for path in paths {
        write!(stream, "GET {} HTTP/1.1\r\nHost: x\r\n\r\n", world.target(path)).expect("sent");
    }
    stream
}

/// Reads one answer and compares its body.
fn read_answer(stream: &mut TcpStream, content: &[u8]) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
    let mut body = vec![0; content.len()];
    stream.read_exact(&mut body).expect("the whole body");
    assert!(body == content, "wrong bytes");
}

const MIB: u64 = 1 << 20;

/// Bytes that each transfer may hold beyond the share of bodies in flight.
const GUARANTEED_BYTES: u64 = 16 * 1024;

/// Requests a small object again and again until `is_settled`: it is a hit every time, and bodies
/// in flight keep to their bound.
fn hot_object_stays(world: &World, in_flight_max: u64, mut is_settled: impl FnMut() -> bool) {
    let mut client = world.client();
    let deadline = std::time::Instant::now() + 3 * LIMIT;
    let mut rounds = 0;
    while !is_settled() || rounds < 20 {
        assert!(std::time::Instant::now() < deadline, "they do not come to rest");
        for _ in 0..10 {
            let answer =
                client.request("GET", &world.target("/hot"), &[], b"").response().expect(200);
            assert!(answer.cache() == "HIT" && answer.body == body(99, 2000), "{:?}", answer.head);
        }
        // A small new answer comes through as always.
        let (fresh, content) = (format!("/fresh/{rounds}"), body(rounds, 3000));
        world.origin.on(&fresh, Reply::ok(&content).cachable(600));
        let answer = client.request("GET", &world.target(&fresh), &[], b"").response().expect(200);
        assert!(answer.body == content, "{:?}", answer.head);
        let in_flight = world.metric("humboldt_memory_bytes{use=\"in_flight\"}");
        assert!(in_flight <= in_flight_max, "{in_flight} bytes in flight");
        rounds += 1;
    }
    assert_eq!(world.origin.count("/hot"), 1);
}

#[test]
fn clients_that_read_nothing_take_no_memory_from_what_is_stored() {
    const READERS: usize = 60;
    const LARGE: usize = 10_000_000;
    let world = World::forward("cache_mem 2 MB\n");
    world.origin.on("/hot", Reply::ok(body(99, 2000)).cachable(600));
    let _ = world.get("/hot").expect(200);
    let (content, sent) = (Arc::new(body(5, LARGE)), Arc::new(AtomicUsize::new(0)));
    let paths: Vec<String> = (0..READERS).map(|number| format!("/large/{number}")).collect();
    for path in &paths {
        let (content, sent) = (Arc::clone(&content), Arc::clone(&sent));
        world.origin.handle(path, move |_, wire| {
            wire.send(format!(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: {LARGE}\r\n\r\n"
            ));
            for piece in content.chunks(20_000) {
                if !wire.try_send(piece) {
                    return;
                }
                sent.fetch_add(piece.len(), Ordering::Relaxed);
            }
        });
    }
    let mut readers: Vec<TcpStream> =
        paths.iter().map(|path| lazy_reader(&world, std::slice::from_ref(path))).collect();
    let mut before = 0;
    hot_object_stays(&world, MIB + READERS as u64 * GUARANTEED_BYTES, || {
        let now = sent.load(Ordering::Relaxed);
        std::mem::replace(&mut before, now) == now
            && paths.iter().all(|path| world.origin.count(path) == 1)
    });
    assert!(sent.load(Ordering::Relaxed) < READERS * LARGE, "nobody had to wait");
    readers.iter_mut().take(3).for_each(|reader| read_answer(reader, &content));
}

#[test]
fn clients_that_do_not_read_what_directories_have_take_no_memory_from_what_is_stored() {
    const READERS: usize = 8;
    const PIPELINED: usize = 16;
    const OBJECTS: usize = READERS * PIPELINED;
    for scheme in humboldt_tests::schemes(SCHEMES) {
        let world =
            World::forward(&format!("cache_dir {scheme} {{dir}}/cache 200 4 4\ncache_mem 2 MB\n"));
        world.proxy.wait_for_directory();
        // Such as lie at hand when they have been opened, and such as have to be read.
        let content = |number: usize| body(number, if number % 4 == 1 { 60_000 } else { 500_000 });
        for number in 0..OBJECTS {
            world.origin.on(&format!("/{number}"), Reply::ok(content(number)).cachable(600));
            let _ = world.get(&format!("/{number}")).expect(200);
        }
        until("all objects", || {
            (world.metric("humboldt_store_objects") >= OBJECTS as u64).then_some(())
        });
        world.origin.on("/hot", Reply::ok(body(99, 2000)).cachable(600));
        let _ = world.get("/hot").expect(200);
        let asked = |reader: usize| reader * PIPELINED..(reader + 1) * PIPELINED;
        let mut readers: Vec<TcpStream> = (0..READERS)
            .map(|reader| {
                lazy_reader(&world, &asked(reader).map(|n| format!("/{n}")).collect::<Vec<_>>())
            })
            .collect();
        let mut before = 0;
        // An object that had to leave while it was being sent was in the other half before.
        hot_object_stays(&world, 2 * MIB + READERS as u64 * GUARANTEED_BYTES, || {
            let log = world.proxy.text("access.log");
            let now = log
                .lines()
                .filter(|line| !line.contains("/hot ") && !line.contains("/metrics "))
                .count();
            std::mem::replace(&mut before, now) == now
        });
        for (reader, stream) in readers.iter_mut().enumerate().take(3) {
            asked(reader).for_each(|number| read_answer(stream, &content(number)));
        }
        assert!(
            (0..OBJECTS).all(|number| world.origin.count(&format!("/{number}")) == 1),
            "{scheme}"
        );
    }
}

#[test]
fn cache_mem_is_lowered_and_raised_under_load_and_no_answer_is_harmed() {
    const OBJECTS: usize = 20;
    let reloads = scaled("HUMBOLDT_TEST_RELOADS", 200);
    // The policy changes, too: all that is stored gets a new place in its order.
    let lines = |megabytes: usize| {
        let policy = if megabytes == 8 { "lru" } else { "heap GDSF" };
        format!("cache_mem {megabytes} MB\nmemory_replacement_policy {policy}\n")
    };
    let mut world = World::forward(&lines(256));
    let bodies: Vec<Vec<u8>> = (0..OBJECTS).map(|object| body(object, 500_000)).collect();
    for (object, body) in bodies.iter().enumerate() {
        world.origin.on(&format!("/{object}"), Reply::ok(body).cachable(600));
    }
    let (done, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for user in 0..4 {
            let (world, done, answers, bodies) = (&world, &done, &answers, &bodies);
            scope.spawn(move || {
                let mut client = world.client();
                for turn in user.. {
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                    // Fetched again, so that pages come and go by the hundred.
                    let fields = &[("Cache-Control", "no-cache")];
                    let object = turn * 7 % OBJECTS;
                    let answer = client
                        .request("GET", &world.target(&format!("/{object}")), fields, b"")
                        .response();
                    assert!(answer.status() == 200 && answer.is_complete, "{:?}", answer.head);
                    assert!(answer.body == bodies[object], "wrong bytes of {object}");
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // In any case the others end.
        let _ending = Ending(&done);
        for reload in 0..reloads {
            let megabytes = if reload % 2 == 0 { 8 } else { 256 };
            world.proxy.write_configuration("", &lines(megabytes));
            world.proxy.signal(Signal::HUP);
            let before = answers.load(Ordering::Relaxed);
            until("the new cache_mem, and answers", || {
                (world.metric("humboldt_cache_mem_limit_bytes") == (megabytes << 20) as u64
                    && answers.load(Ordering::Relaxed) > before)
                    .then_some(())
            });
        }
    });
    assert!(world.proxy.stop().success());
}

/// A control group with a bound on memory; it is removed when dropped, and must be empty then.
struct Group(PathBuf);

impl Group {
    /// `None` where none can be made: without the rights, or where the system has no such groups.
    fn of(bytes: usize) -> Option<Self> {
        let name = format!("humboldt-test-{}", std::process::id());
        [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
            .iter()
            .find_map(|(root, limit)| {
                let folder = Path::new(root).join(&name);
                fs::create_dir(&folder).ok()?;
                let group = Self(folder);
                fs::write(group.0.join(limit), bytes.to_string()).ok()?;
                let set = fs::read_to_string(group.0.join(limit)).ok()?;
                (set.trim() == bytes.to_string()).then_some(group)
            })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_ring_lives_with_32_mb_of_cache_mem_in_a_control_group_of_64_mb() {
    const GROUP_BYTES: usize = 64 << 20;
    const CLIENTS: usize = 40;
    const LENGTHS: &[usize] = &[10_000, 30_000, 100_000, 300_000, 1_000_000];
    let Some(group) = Group::of(GROUP_BYTES) else {
        eprintln!("not tested: no control group with a bound on memory can be made here");
        return;
    };
    let mut world = World::forward("workers 2\ncache_mem 32 MB\ncache_dir ring {dir}/cache 2000\n");
    world.proxy.stop();
    world.proxy.launch_in(&group.0);
    world.proxy.wait_for_directory();
    let content: Arc<[u8]> = body(1, 1_000_000).into();
    let path_of = |client: usize, round: usize| format!("/{client}/{round}");
    let length_of = |client: usize, round: usize| LENGTHS[(client + round) % LENGTHS.len()];
    let rounds = scaled("HUMBOLDT_TEST_ROUNDS", 25);
    for (client, round) in
        (0..CLIENTS).flat_map(|client| (0..rounds).map(move |round| (client, round)))
    {
        let (content, length) = (Arc::clone(&content), length_of(client, round));
        world.origin.handle(&path_of(client, round), move |_, wire| {
            wire.send(format!(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: {length}\r\n\r\n"
            ));
            wire.send(&content[..length]);
        });
    }
    let world = &world;
    let ask = |client: usize| {
        for round in 0..rounds {
            let answer = world.get(&path_of(client, round)).expect(200);
            assert_eq!(answer.body, content[..length_of(client, round)]);
        }
    };
    let most = world.proxy.most_anonymous_bytes(|| {
        std::thread::scope(|scope| {
            let clients: Vec<_> =
                (0..CLIENTS).map(|client| scope.spawn(move || ask(client))).collect();
            let ends: Vec<_> =
                clients.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            assert!(
                ends.iter().all(Result::is_ok),
                "it ended, as the control group has no memory for it"
            );
        });
    });
    assert!((32 << 20..GROUP_BYTES).contains(&most), "{most} bytes");
    assert!(world.metric("humboldt_store_objects") > 100, "and objects get to the disk");
}
