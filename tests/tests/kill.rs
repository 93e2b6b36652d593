//! `kill -9` under load, again and again: no wrong byte, no purged object that comes back, and
//! always another start.
//!
//! `HUMBOLDT_TEST_KILLS=200` kills each scheme so often (10 otherwise), `HUMBOLDT_TEST_SEED=7`
//! chooses another course.

#![allow(clippy::print_stdout, reason = "shown when a test fails")]

#[path = "kill/content.rs"]
mod content;
#[path = "kill/worker.rs"]
mod worker;

use content::Random;
use humboldt_tests::World;
use humboldt_tests::wait::{LIMIT, until};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use worker::{Life, Worker};

/// Clients that ask at the same time.
const CLIENTS: usize = 3;

/// Most answers from the start, or from the end of the rebuild, until the kill.
const ANSWERS_MAX: usize = 150;

/// A number from the environment.
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name)
        .ok()
        .map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// A proxy that is killed again and again, and its clients.
struct Stage {
    world: World,
    scheme: &'static str,
    workers: Vec<Worker>,
    random: Random,
    /// Versions that were asked for so far.
    version: u64,
    /// Keys of SysV queues and segments that the proxy had at any time.
    keys: BTreeSet<i64>,
}

impl Stage {
    fn new(scheme: &'static str, seed: u64) -> Self {
        let world = World::forward(&format!(
            "cache_dir {scheme} {{dir}}/cache 24 4 4\ncache_mem 1 MB\nmaximum_object_size_in_memory 1 KB\n\
             maximum_object_size 4 MB\nacl purge method PURGE\nhttp_access allow purge\n"
        ));
        content::serve(&world.origin);
        let own = scheme.bytes().fold(seed, |seed, byte| seed.wrapping_mul(257) + u64::from(byte));
        let workers = (0..CLIENTS).map(|client| {
            let paths = content::paths().into_iter().skip(client).step_by(CLIENTS);
            Worker::new(paths, own.wrapping_add(client as u64 + 1))
        });
        let workers = workers.collect();
        Self { world, scheme, workers, random: Random(own), version: 0, keys: BTreeSet::new() }
    }

    /// One life of the proxy, under load, up to its sudden end. Every other one ends before the
    /// directory is ready, or a little later; every third one takes the proxy's helpers with it.
    fn live(&mut self, round: u64) {
        let life = self.life();
        let (answered, answers) = channel();
        let Self { world, workers, random, .. } = self;
        let wanted = random.below(ANSWERS_MAX);
        let pause = Duration::from_micros(random.next() % 3_000); // any moment between two answers
        std::thread::scope(|threads| {
            let _end = EndOnDrop(&life.ended);
            for worker in workers {
                let (life, answered) = (&life, answered.clone());
                threads.spawn(move || worker.run(life, &answered));
            }
            drop(answered);
            if round.is_multiple_of(2) {
                wait_until_ready(world);
                for _ in answers.try_iter() {} // those after this moment count
            }
            wait_for_answers(&answers, wanted);
            std::thread::sleep(pause);
            life.ended.store(true, Ordering::SeqCst);
            if round.is_multiple_of(3) {
                kill_children(world.proxy.id());
            }
            world.proxy.kill();
        });
        self.version = life.versions.into_inner();
        self.keys.extend(ipc_keys(&self.world));
    }

    fn life(&self) -> Life {
        Life {
            proxy: self.world.proxy.address(),
            origin: self.world.origin.url(""),
            ended: AtomicBool::new(false),
            versions: AtomicU64::new(self.version),
            version_before: self.version,
        }
    }

    /// The last start: everything is asked for once more.
    fn end(mut self) {
        wait_until_ready(&self.world);
        self.keys.extend(ipc_keys(&self.world));
        let life = self.life();
        self.workers.iter_mut().for_each(|worker| worker.sweep(&life));
        assert!(self.world.proxy.stop().success());
        self.check_what_is_left();
        let count = |of: fn(&worker::Counts) -> usize| -> usize {
            self.workers.iter().map(|worker| of(&worker.counts)).sum()
        };
        let (answers, purges) = (count(|counts| counts.answers), count(|counts| counts.purges));
        let (survivors, older) = (count(|counts| counts.survivors), count(|counts| counts.older));
        let log = self.world.proxy.text("access.log");
        let (hits, renewed) =
            (log.matches("TCP_HIT/").count(), log.matches("REFRESH_UNMODIFIED/").count());
        let seen = format!(
            "{}: {answers} answers, {purges} purges, {renewed} renewed heads, {hits} TCP_HIT, {survivors} hits on objects \
             older than the last kill, {older} answers older than one before",
            self.scheme
        );
        println!("{seen}");
        assert!(purges > 0 && hits > 0 && survivors > 0, "too little seen. {seen}");
    }

    fn check_what_is_left(&self) {
        let log = self.world.proxy.text("cache.log");
        assert_eq!(
            log.matches("going on without it").count(),
            0,
            "{}: a directory was left out",
            self.scheme
        );
        assert_eq!(
            log.matches("panicked").count() + self.world.proxy.output().matches("panicked").count(),
            0
        );
        assert_eq!(self.keys.is_empty(), self.scheme != "diskd", "{}: queues", self.scheme);
        for table in ["/proc/sysvipc/msg", "/proc/sysvipc/shm"] {
            let left = |line: &&str| first_number(line).is_some_and(|key| self.keys.contains(&key));
            let text = fs::read_to_string(table).unwrap_or_default();
            assert_eq!(text.lines().find(left), None, "{}: left in {table}", self.scheme);
        }
    }
}

/// Lets the clients end also when the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn wait_for_answers(answers: &Receiver<()>, wanted: usize) {
    for _ in 0..wanted {
        // An error: a client has found a fault, or waits for longer than allowed, and reports it.
        if answers.recv_timeout(2 * LIMIT).is_err() {
            return;
        }
    }
}

/// Waits until the directory is open and knows its objects.
fn wait_until_ready(world: &World) {
    until("the directory", || {
        let target = world.proxy.page("metrics");
        let page = world.client().request("GET", &target, &[], b"").response().expect(200).text();
        let has = |name: &str, value: &str| {
            page.lines()
                .any(|line| line.starts_with(name) && line.rsplit(' ').next() == Some(value))
        };
        (has("humboldt_store_rebuild_ratio", "1") && has("humboldt_store_down", "0")).then_some(())
    });
}

/// Kills the processes that a process has started.
fn kill_children(parent: u32) {
    for entry in fs::read_dir("/proc").expect("/proc").filter_map(Result::ok) {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let of = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        let pid =
            entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        if let (true, Some(pid)) = (of == Some(parent), pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn first_number(line: &str) -> Option<i64> {
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Keys of queues and shared memory that `diskd` has written down (docs/formats/diskd.md).
fn ipc_keys(world: &World) -> Vec<i64> {
    let text = world.proxy.text("cache/humboldt.diskd");
    let key = |line: &str| i64::from_str_radix(line.rsplit_once(" 0x")?.1, 16).ok();
    text.lines().filter_map(key).collect()
}

fn survives(scheme: &'static str) {
    let (seed, kills) = (number("HUMBOLDT_TEST_SEED", 1), number("HUMBOLDT_TEST_KILLS", 10));
    println!("HUMBOLDT_TEST_SEED={seed} HUMBOLDT_TEST_KILLS={kills} {scheme}"); // shown if it fails
    let mut stage = Stage::new(scheme, seed);
    for round in 0..kills {
        println!("kill {round}, after version {}", stage.version);
        stage.live(round);
        stage.world.proxy.launch();
    }
    stage.end();
}

#[test]
fn ufs_survives_kills() {
    survives("ufs");
}

#[test]
fn aufs_survives_kills() {
    survives("aufs");
}

#[test]
fn diskd_survives_kills() {
    survives("diskd");
}

#[test]
fn coss_survives_kills() {
    survives("coss");
}

#[test]
fn rock_survives_kills() {
    survives("rock");
}

#[test]
fn ring_survives_kills() {
    survives("ring");
}
