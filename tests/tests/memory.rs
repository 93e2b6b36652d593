//! Memory while everything else goes on: reconfigurations that change `cache_mem`, slow clients, what is kept for whom.
//!
//! `HUMBOLDT_TEST_RELOADS=1000` reads the configuration so often.

use humboldt_tests::wait::until;
use humboldt_tests::{Reply, Response, World};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A number from the environment, or the one for every day.
fn scaled(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// So many bytes, of which each place differs by `seed`.
fn body(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251 + seed * 13) as u8).collect()
}

/// Every scheme that stores something.
const SCHEMES: &[&str] = &["ufs", "aufs", "diskd", "coss", "rock", "ring"];

/// The largest body that `coss` takes.
const COSS_BODY_BYTES_MAX: usize = 960 * 1024;

/// Whether an answer says that it is stored.
fn says_stored(answer: &Response) -> bool {
    answer.field("Cache-Status").unwrap_or_default().contains("; stored")
}

/// Whether an answer says that it is being stored, which may come to nothing.
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
        let world = World::forward(&format!("cache_dir {scheme} {{dir}}/cache 200 4 4\ncache_mem 0\n"));
        until("the directory", || (world.metric("humboldt_store_rebuild_ratio") == 1).then_some(()));
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
                assert_eq!(world.origin.count(&path), if is_taken { 1 } else { 2 }, "{scheme} {path}");
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
            let again = world.get(&path).expect(200);
            assert_eq!(again.cache(), if is_taken { "HIT" } else { "MISS" }, "{lines} {path}");
        }
    }
}

#[test]
fn cache_mem_is_lowered_and_raised_under_load_and_no_answer_is_harmed() {
    const OBJECTS: usize = 20;
    let reloads = scaled("HUMBOLDT_TEST_RELOADS", 200);
    let lines = |megabytes: usize| format!("cache_mem {megabytes} MB\n");
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
                    let answer =
                        client.request("GET", &world.target(&format!("/{object}")), fields, b"").response();
                    assert!(answer.status() == 200 && answer.is_complete, "{:?}", answer.head);
                    assert!(answer.body == bodies[object], "wrong bytes of {object}");
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Whatever happens, the others end.
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

/// Sets a flag when it goes.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
