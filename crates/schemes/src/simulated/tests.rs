//! Every scheme on a simulated disk: a course of operations that follows from a seed.
//!
//! No byte is ever wrong. Without a crash a key holds its newest version or nothing. After a crash
//! it may hold an older one, but none from before an acknowledged removal; only after a loss of
//! power may a scheme that does not sync removals bring one back.
//!
//! `HUMBOLDT_DISK_SEEDS=from..to` runs other seeds than the usual ones, `HUMBOLDT_DISK_SEEDS=17` a
//! single one. `HUMBOLDT_DISK_KEY=6` prints what happens to a key.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use humboldt_base::rng::Rng;
use humboldt_store::scheme::{Confirmed, OpenObject, Scheme};

use super::{Disk, Faults};
use crate::battery::{body, key, record};
use crate::{DirOptions, Levels, SchemeKind};

const KEYS: u64 = 24;
const LIVES: u64 = 4;
const STEPS_PER_LIFE: u64 = 80;
const NO_FAULTS: Faults =
    Faults { read_fails_ppm: 0, write_fails_ppm: 0, misdirected_ppm: 0, is_full: false };
/// Far longer than anything takes, on a clock that runs when there is nothing else to do.
const STUCK: Duration = Duration::from_secs(3600);

/// A version of a key: of its head, and of its body.
type Version = (u8, u8);

/// The possible values of a key.
#[derive(Clone, Debug, Default)]
struct Expected {
    /// Stored since the last acknowledged removal, the newest last.
    versions: Vec<Version>,
    /// Stored before it. A loss of power may bring them back.
    removed: Vec<Version>,
    /// A crash happened since the newest was stored: any of them may be there.
    any: bool,
}

/// What the course has in store for the disk.
#[derive(Copy, Clone)]
struct Plan {
    seed: u64,
    has_faults: bool,
    /// Lives end with a loss of power, not only with the process.
    loses_power: bool,
}

struct World {
    plan: Plan,
    kind: &'static str,
    disk: Arc<Disk>,
    rng: Rng,
    options: DirOptions,
    expected: BTreeMap<u64, Expected>,
    next_version: u8,
    hits: u64,
    key_told: Option<u64>,
}

fn url(key: u64) -> String {
    format!("http://simulated/{key}")
}

fn len(key: u64, body_version: u8) -> u64 {
    [0, 700, 5000, 13_000, 60_000, 66_000, 150_000, 400_000]
        [((key * 31 + u64::from(body_version) * 7) % 8) as usize]
}

fn options(kind: &str, path: &Path, capacity_bytes: u64) -> DirOptions {
    let scheme = SchemeKind::named(kind).expect("a scheme");
    let mut options = DirOptions::of(scheme.defaults(), path, capacity_bytes);
    if let Some(levels) = options.own.levels_mut() {
        *levels = Levels { l1: 2, l2: 4 };
    }
    options
}

/// Something to do with a key.
#[derive(Copy, Clone, Debug)]
enum Action {
    Store { version: u8, announced: bool, gives_up: bool },
    Update { head: u8, confirmed: Version },
    Remove,
    Look,
    Maintain,
}

/// What came of it.
enum Done {
    Good,
    Found(u8, Vec<u8>),
}

impl std::fmt::Debug for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Good => f.write_str("good"),
            Self::Found(head, bytes) => write!(f, "found {head}, {} bytes", bytes.len()),
        }
    }
}

/// Does something; `None` if it failed, or nothing was found.
async fn perform(scheme: &dyn Scheme, number: u64, action: Action, context: &str) -> Option<Done> {
    let url = url(number);
    match action {
        Action::Store { version, announced, gives_up } => {
            let bytes = len(number, version);
            let record = record(&url, version);
            let mut writer = scheme.create(record, announced.then_some(bytes)).await.ok()?;
            for start in (0..bytes).step_by(50_000) {
                let end = (start + 50_000).min(bytes);
                writer.write(start, &[&body(&url, version, start, end)]).await.ok()?;
            }
            if !gives_up {
                writer.commit(Some(bytes)).await.ok()?;
            }
            Some(Done::Good)
        }
        Action::Update { head, confirmed: (confirmed, _) } => {
            let confirmed = Confirmed::of(&record(&url, confirmed));
            scheme.update(&record(&url, head), &confirmed).await.ok()?;
            Some(Done::Good)
        }
        Action::Remove => scheme.remove(&key(&url)).await.ok().map(|_| Done::Good),
        Action::Maintain => scheme.maintain().await.ok().map(|()| Done::Good),
        Action::Look => {
            let OpenObject { record: stored, mut reader } =
                scheme.open(&key(&url)).await.ok().flatten()?;
            let head = (stored.times.response_time - 1_700_000_000) as u8;
            assert_eq!(stored, record(&url, head), "{context}: head and times belong together");
            let mut bytes = vec![0; reader.body_bytes().expect("complete") as usize];
            let mut at = 0;
            while at < bytes.len() {
                at += reader.read(at as u64, &mut bytes[at..]).await.ok()?;
            }
            Some(Done::Found(head, bytes))
        }
    }
}

async fn soon<T>(context: &str, future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(STUCK, future).await;
    outcome.unwrap_or_else(|_| panic!("{context}: it waits for an event that does not come"))
}

impl World {
    fn context(&self) -> String {
        format!("{}, seed {}", self.kind, self.plan.seed)
    }

    fn version(&mut self) -> u8 {
        self.next_version = self.next_version % 250 + 1;
        self.next_version
    }

    /// Prints what happens to a key, if somebody wants to know.
    fn tell(&self, number: u64, what: impl FnOnce() -> String) {
        if self.key_told == Some(number) {
            println!("{} operations: {}", self.disk.operations(), what());
        }
    }

    /// Something to do with this key.
    fn choose(&mut self, number: u64) -> Action {
        match self.rng.below(20) {
            0..7 => {
                let announced = self.rng.below(2) == 0;
                let gives_up = self.rng.below(12) == 0;
                Action::Store { version: self.version(), announced, gives_up }
            }
            7..9 => Action::Remove,
            9 => match self.expected.entry(number).or_default().versions.last().copied() {
                Some(confirmed) => Action::Update { head: self.version(), confirmed },
                None => Action::Look,
            },
            10 => Action::Maintain,
            _ => Action::Look,
        }
    }

    /// Enters what has been done with a key. `before`: its possible values when that began.
    fn note(&mut self, number: u64, before: &Expected, action: Action, done: Option<Done>) {
        let is_good = matches!(done, Some(Done::Good));
        self.tell(number, || format!("{action:?}: {done:?}"));
        if let Some(Done::Found(head, bytes)) = done {
            return self.judge(number, before, head, &bytes);
        }
        let expected = self.expected.entry(number).or_default();
        match action {
            // An operation that failed, or was lost with the power, may be there or not.
            Action::Store { gives_up: false, version, .. } => {
                expected.any = !is_good;
                expected.versions.push((version, version));
            }
            Action::Update { head, confirmed } => {
                expected.any |= !is_good;
                expected.versions.push((head, confirmed.1));
            }
            Action::Remove if is_good => {
                expected.removed.append(&mut expected.versions);
                expected.any = false;
            }
            Action::Remove => expected.any = true,
            Action::Store { .. } | Action::Look | Action::Maintain => {}
        }
    }

    fn judge(&mut self, number: u64, before: &Expected, head: u8, bytes: &[u8]) {
        let url = url(number);
        let is_it = |(h, b): &Version| {
            *h == head
                && len(number, *b) == bytes.len() as u64
                && bytes == body(&url, *b, 0, bytes.len() as u64)
        };
        let may_return = self.plan.loses_power && self.kind != "ring";
        let now = self.expected.entry(number).or_default();
        let is_right = [before, now].into_iter().any(|expected| {
            expected.versions.last().is_some_and(is_it)
                || expected.any && expected.versions.iter().any(is_it)
                || may_return && expected.removed.iter().any(is_it)
        });
        let context = format!("{}, seed {}", self.kind, self.plan.seed);
        assert!(is_right, "{context}: {url} holds head {head}: {before:?}, {now:?}");
        self.hits += 1;
    }

    async fn look(&mut self, scheme: &dyn Scheme, number: u64) {
        let before = self.expected.entry(number).or_default().clone();
        let done = perform(scheme, number, Action::Look, &self.context()).await;
        self.note(number, &before, Action::Look, done);
    }

    /// Several things at the same time. One of them may change a key, while others read it.
    async fn act(&mut self, scheme: &dyn Scheme) {
        let mut plans: Vec<(u64, Expected, Action, Option<u64>)> = Vec::new();
        for _ in 0..3 {
            let number = self.rng.below(KEYS);
            let is_taken = plans.iter().any(|(other, ..)| *other == number);
            let action = if is_taken { Action::Look } else { self.choose(number) };
            let before = self.expected.entry(number).or_default().clone();
            let patience_ms = (self.rng.below(10) == 0).then(|| self.rng.below(20));
            plans.push((number, before, action, patience_ms));
        }
        let context = self.context();
        let begin = |at: usize| {
            let (number, _, action, patience_ms) = plans[at];
            let context = &context;
            async move {
                let done = perform(scheme, number, action, context);
                match patience_ms.map(Duration::from_millis) {
                    Some(patience) => tokio::time::timeout(patience, done).await.ok().flatten(),
                    None => soon(context, done).await,
                }
            }
        };
        let (first, second, third) = tokio::join!(begin(0), begin(1), begin(2));
        // Changes are known before what was read is judged.
        let mut ended: Vec<_> = plans.into_iter().zip([first, second, third]).collect();
        ended.sort_by_key(|((_, _, action, _), _)| matches!(action, Action::Look));
        for ((number, before, action, _), done) in ended {
            self.note(number, &before, action, done);
        }
    }

    fn set_faults(&mut self) {
        if !self.plan.has_faults {
            return;
        }
        let is_full = self.rng.below(20) == 0;
        let read_fails_ppm = [0, 2000, 60_000][self.rng.below(3) as usize];
        let write_fails_ppm = [0, 2000, 20_000][self.rng.below(3) as usize];
        let faults = Faults { read_fails_ppm, write_fails_ppm, is_full, ..NO_FAULTS };
        self.disk.set_faults(faults);
        if self.kind == "ring" && self.plan.seed.is_multiple_of(3) {
            // All that this file has is verified; removals are elsewhere.
            let faults = Faults { misdirected_ppm: 15_000, ..faults };
            self.disk.set_faults_of(&self.options.path.join("ring.data"), Some(faults));
        }
    }

    /// The directory, opened, with its index.
    async fn open(&mut self) -> Arc<dyn Scheme> {
        for attempt in 0.. {
            match self.rng.below(3 + attempt) {
                0 => self.disk.lose_power_after(1 + self.rng.below(60)),
                1 => self.disk.lose_power_after(1 + self.rng.below(3000)),
                _ => {}
            }
            let has_faults = self.plan.has_faults && self.rng.below(3) == 0;
            if has_faults {
                self.set_faults();
            }
            match crate::open(&self.options) {
                Ok(scheme) if self.is_ready(&*scheme).await => return scheme,
                Err(error) if !self.disk.is_off() && !has_faults => {
                    panic!("{}: {error}", self.context())
                }
                _ => self.crash(),
            }
        }
        unreachable!("the power does not always fail");
    }

    async fn is_ready(&self, scheme: &dyn Scheme) -> bool {
        for _ in 0..1000 {
            let _ = soon(&self.context(), scheme.maintain()).await;
            if scheme.admits(Some(10)) && scheme.stats().rebuild_percent == 100 {
                return true;
            }
            if self.disk.is_off() || scheme.stats().down {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("{}: the directory does not get ready", self.context());
    }

    fn crash(&mut self) {
        self.key_told.into_iter().for_each(|key| self.tell(key, || "crash".to_owned()));
        for expected in self.expected.values_mut() {
            expected.any = true;
        }
        self.disk.set_faults(NO_FAULTS);
        self.disk.set_faults_of(&self.options.path.join("ring.data"), None);
        if self.plan.loses_power { self.disk.power_up() } else { self.disk.restart() }
    }

    async fn live(&mut self) {
        let mut scheme = self.open().await;
        for _ in 0..LIVES {
            for _ in 0..STEPS_PER_LIFE {
                if self.disk.is_off() {
                    break;
                }
                if self.rng.below(10) == 0 {
                    self.set_faults();
                }
                self.act(&*scheme).await;
            }
            match self.rng.below(3) {
                0 => _ = scheme.close(),
                1 => self.disk.cut_power(),
                _ => {}
            }
            drop(scheme);
            self.crash();
            scheme = self.open().await;
            for number in 0..KEYS {
                self.look(&*scheme, number).await;
            }
        }
    }
}

/// Ends operations when there are any, after some time.
async fn drive(disk: Arc<Disk>, seed: u64) {
    let mut rng = Rng::new(seed ^ 0xD15C);
    loop {
        disk.wanted().await;
        tokio::time::sleep(Duration::from_millis(rng.below(5))).await;
        disk.step();
    }
}

/// Plays a course; returns the number of hits, and a trace of all that the disk did.
fn play(kind: &'static str, plan: Plan) -> (u64, u64) {
    let place = ["/dev/shm", "/tmp"].into_iter().find(|place| Path::new(place).is_dir());
    let place = tempfile::tempdir_in(place.unwrap_or(".")).expect("a directory");
    let path = place.path().join("cache");
    std::fs::create_dir(&path).expect("a directory");
    // With the smaller one there is never enough room; logs need the larger one.
    let is_log = kind == "ring" || kind == "coss";
    let capacity_bytes = if is_log || plan.seed.is_multiple_of(5) { 6 << 20 } else { 1 << 20 };
    let disk = Disk::new(plan.seed);
    let _guard = disk.enter();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
    let mut world = World {
        plan,
        kind,
        disk: Arc::clone(&disk),
        rng: Rng::new(plan.seed),
        options: options(kind, &path, capacity_bytes),
        expected: BTreeMap::new(),
        next_version: 0,
        hits: 0,
        key_told: std::env::var("HUMBOLDT_DISK_KEY").ok().and_then(|key| key.parse().ok()),
    };
    let tasks = tokio::task::LocalSet::new();
    tasks.spawn_local(drive(Arc::clone(&disk), plan.seed));
    runtime.block_on(tasks.run_until(world.live()));
    (world.hits, disk.trace())
}

fn seeds() -> Range<u64> {
    let Ok(wanted) = std::env::var("HUMBOLDT_DISK_SEEDS") else { return 0..8 };
    let number =
        |text: &str| text.parse::<u64>().expect("HUMBOLDT_DISK_SEEDS is `from..to` or one seed");
    match wanted.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => number(&wanted)..number(&wanted) + 1,
    }
}

fn simulate(kind: &'static str) {
    let mut hits = 0;
    for seed in seeds() {
        let plan =
            Plan { seed, has_faults: seed % 4 / 2 == 1, loses_power: seed.is_multiple_of(2) };
        hits += play(kind, plan).0;
    }
    let count = seeds().count() as u64;
    assert!(hits > 40 * count, "{kind}: the simulation must see something: {hits} hits");
}

#[test]
fn ring() {
    simulate("ring");
}

#[test]
fn rock() {
    simulate("rock");
}

#[test]
fn coss() {
    simulate("coss");
}

#[test]
fn ufs() {
    simulate("ufs");
}

#[test]
fn aufs() {
    simulate("aufs");
}

#[test]
fn diskd() {
    simulate("diskd");
}

#[test]
fn the_same_seed_gives_the_same_course() {
    for kind in ["ring", "rock", "coss", "ufs", "aufs", "diskd"] {
        let play = |seed| play(kind, Plan { seed, has_faults: true, loses_power: true });
        let (first, other) = (play(3), play(4));
        assert_eq!(play(3), first, "{kind}");
        assert_ne!(first.1, other.1, "{kind}");
    }
}
