//! Memory while everything else goes on: reconfigurations that change `cache_mem`, slow clients, what is kept for whom.
//!
//! `HUMBOLDT_TEST_RELOADS=1000` reads the configuration so often.

use humboldt_tests::Reply;
use humboldt_tests::World;
use humboldt_tests::wait::until;
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
