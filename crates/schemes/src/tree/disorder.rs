//! The rules of `dir` under an engine that ends operations in any order, fails, and is not waited
//! for.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use humboldt_store::index::IndexKey;
use humboldt_store::scheme::{OpenObject, Scheme, SchemeError};

use super::testing::{Dice, Faults, Scripted, Task, finish};
use super::tests::{contents, object_files, options};
use super::{TreeScheme, dir, evict};
use crate::SchemeOptions;
use crate::battery::{Seen, body, key, open, record, see};
use crate::tree::DirOptions;

const KEYS: usize = 6;
/// Versions of bodies and their heads. An update gives a body a head beyond them.
const VERSIONS: u8 = 90;
/// Not enough for all: objects are evicted.
const CAPACITY_BYTES: u64 = 450 << 10;
const LENGTHS: [u64; 5] = [0, 900, 13_000, 70_000, 200_000];

/// The facts about one key.
#[derive(Default)]
struct Known {
    /// Stores under way.
    stores: Cell<usize>,
    /// Stores ever begun: one that is begun during a removal may win.
    begun: Cell<u64>,
    /// Removed, and not stored since.
    is_gone: Cell<bool>,
}

fn small(path: &Path) -> DirOptions {
    DirOptions { capacity_bytes: CAPACITY_BYTES, ..options(path) }
}

struct World {
    scheme: TreeScheme,
    engine: Arc<Scripted>,
    known: [Known; KEYS],
    version: Cell<u8>,
    hits: Cell<u64>,
}

fn url(i: usize) -> String {
    format!("http://disorder/{i}")
}

/// A store that is counted while it is under way, given up or not.
struct Counted<'a>(&'a Cell<usize>);

impl<'a> Counted<'a> {
    fn new(cell: &'a Cell<usize>) -> Self {
        cell.set(cell.get() + 1);
        Self(cell)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl World {
    fn new(path: &Path, seed: u64, faults: Faults) -> Self {
        let engine = RefCell::new(None);
        let scheme = TreeScheme::open("test", &small(path), |tree| {
            engine.borrow_mut().insert(Arc::new(Scripted::new(tree, seed, faults))).clone()
        });
        let engine = engine.into_inner().expect("made");
        Self {
            scheme: scheme.expect("open"),
            engine,
            known: Default::default(),
            version: Cell::new(0),
            hits: Cell::new(0),
        }
    }

    async fn store(&self, i: usize, len: u64) -> Result<(), SchemeError> {
        let known = &self.known[i];
        let _counted = Counted::new(&known.stores);
        known.begun.set(known.begun.get() + 1);
        known.is_gone.set(false);
        let version = self.version.get() % VERSIONS + 1;
        self.version.set(version);
        let mut writer = self.scheme.create(record(&url(i), version), Some(len)).await?;
        let bytes = body(&url(i), version, 0, len);
        for (at, piece) in bytes.chunks(50_000).enumerate() {
            writer.write(at as u64 * 50_000, &[piece]).await?;
        }
        writer.commit(Some(len)).await
    }

    /// A read is right, or an error.
    async fn read(&self, i: usize) -> Result<Option<u8>, SchemeError> {
        let key = key(&url(i));
        let was_gone = self.known[i].is_gone.get();
        let Some(OpenObject { record: stored, mut reader }) = self.scheme.open(&key).await? else {
            return Ok(None);
        };
        assert!(!was_gone || !self.known[i].is_gone.get(), "{} was removed", url(i));
        let stored = stored.head;
        let version =
            (1..=200).find(|v| *record(&url(i), *v).head == *stored).expect("a head of ours");
        let len = reader.body_bytes().expect("complete");
        let (mut offset, mut buf) = (0, vec![0; 40_000]);
        while offset < len {
            let read = reader.read(offset, &mut buf).await? as u64;
            assert!(read > 0);
            let matches =
                |v: &u8, end| buf[..(end - offset) as usize] == body(&url(i), *v, offset, end);
            let mut alike = (1..=VERSIONS).filter(|v| matches(v, offset + read.min(16)));
            let is_right = alike.any(|v| matches(&v, offset + read));
            assert!(is_right, "{} at {offset}", url(i));
            offset += read;
        }
        self.hits.set(self.hits.get() + 1);
        Ok(Some(version))
    }

    async fn remove(&self, i: usize) {
        let known = &self.known[i];
        let before = (known.stores.get(), known.begun.get());
        let is_removed = self.scheme.remove(&key(&url(i))).await.is_ok();
        if is_removed && before == (0, known.begun.get()) {
            known.is_gone.set(true);
        }
    }

    /// Confirms the stored object; it may be another one by the time the answer is known.
    async fn update(&self, i: usize, version: u8) {
        let Ok(Some(open)) = self.scheme.open(&key(&url(i))).await else { return };
        let confirmed = humboldt_store::scheme::Confirmed::of(&open.record);
        drop(open);
        drop(self.scheme.update(&record(&url(i), version), &confirmed).await);
    }

    async fn act(&self, what: usize, i: usize, len: u64) {
        match what {
            0..4 => drop(self.store(i, len).await),
            4..6 => self.remove(i).await,
            6 => self.update(i, VERSIONS + 1 + len as u8 % 100).await,
            7 => drop(self.scheme.maintain().await),
            _ => drop(self.read(i).await),
        }
    }
}

/// The course of a test.
#[derive(Copy, Clone)]
struct Plan {
    actions: usize,
    /// How many of 40 times the engine completes an operation.
    pace: usize,
    /// Ends with everything under way, instead of waiting for it.
    is_cut: bool,
}

impl Plan {
    fn new(seed: u64, actions: usize) -> Self {
        Self { actions, pace: 1 + seed as usize % 8, is_cut: false }
    }
}

/// Tasks come and go; every one that is not dropped comes to its end.
fn churn(world: &World, dice: &mut Dice, plan: Plan) {
    let mut tasks: Vec<Task<'_>> = Vec::new();
    let mut left = plan.actions;
    while left > 0 || (!tasks.is_empty() && !plan.is_cut) {
        let throw = dice.below(40);
        if throw < plan.pace {
            world.engine.step();
        } else if throw < 18 && left > 0 && tasks.len() < 8 {
            left -= 1;
            let (what, i) = (dice.below(11), dice.below(KEYS));
            let len = LENGTHS[dice.below(LENGTHS.len())] + dice.below(100) as u64;
            tasks.push(Task::new(world.act(what, i, len)));
        } else if throw < 20 && !tasks.is_empty() {
            let at = dice.below(tasks.len());
            drop(tasks.swap_remove(at));
        } else if !tasks.is_empty() {
            let first = dice.below(tasks.len());
            tasks.rotate_left(first);
            let has_moved =
                tasks.iter_mut().any(|task| task.poll().is_some()) || world.engine.step();
            assert!(has_moved, "all tasks wait, and nothing is under way");
            tasks.retain(|task| !task.has_ended());
        }
    }
}

/// When everything has ended, nothing is left over.
fn check_books(world: &World, can_unlink_fail: bool) {
    world.engine.calm_down();
    let dir = &world.scheme.dir;
    let stats = world.scheme.stats();
    assert_eq!((stats.open_files, dir.changed.waiting()), (0, 0));
    for i in 0..KEYS {
        let state = dir.lock_key(IndexKey::from(&key(&url(i))));
        assert!(state.leaving.is_empty() && state.updating.is_empty(), "{} is never free", url(i));
    }
    let mut indexed: Vec<u32> = contents(&dir.index).iter().map(|(_, entry)| entry.file).collect();
    indexed.sort_unstable();
    let on_disk: Vec<u32> = object_files(&dir.options.path)
        .iter()
        .map(|path| {
            u32::from_str_radix(&path.file_name().expect("a name").to_string_lossy(), 16)
                .expect("hex")
        })
        .collect();
    let taken: Vec<u32> = dir.numbers().iter().collect();
    let used: u64 = contents(&dir.index)
        .iter()
        .map(|(_, entry)| dir.space.occupied_bytes(dir::file_bytes(*entry)))
        .sum();
    if can_unlink_fail {
        assert!(indexed.iter().all(|number| taken.contains(number)));
        assert!(on_disk.iter().all(|number| taken.contains(number)), "a file whose number is free");
        assert!(stats.used_bytes >= used);
    } else {
        for (i, known) in world.known.iter().enumerate() {
            let is_there = world.scheme.contains(&key(&url(i)));
            assert!(!is_there || !known.is_gone.get());
            let read = finish(&world.engine, world.read(i));
            assert_eq!(
                read.expect("nothing in the index is bad").is_some(),
                is_there,
                "{}",
                url(i)
            );
        }
        assert_eq!(taken, indexed, "numbers in use are those of objects");
        assert!(
            on_disk.iter().all(|number| indexed.contains(number)),
            "no file but those of objects"
        );
        assert_eq!(stats.used_bytes, used);
    }
}

/// Removed keys are gone, whatever a crash left behind and whatever the log has.
fn check_after_a_crash(world: World) {
    let World { scheme, engine, known, .. } = world;
    let path = scheme.dir.options.path.clone();
    drop((scheme, engine));
    for is_log_lost in [false, true] {
        if is_log_lost {
            fs::remove_file(path.join("swap.state")).expect("removed");
        }
        let scheme = open(&small(&path).map(SchemeOptions::Ufs));
        for (i, known) in known.iter().enumerate() {
            let seen = match crate::battery::run(scheme.open(&key(&url(i)))) {
                Ok(Some(open)) => Some(open.record.url),
                Ok(None) | Err(SchemeError::Corrupt(_)) => None,
                Err(other) => panic!("{other}"),
            };
            assert!(
                seen.is_none() || !known.is_gone.get(),
                "{} is back, log lost: {is_log_lost}",
                url(i)
            );
        }
    }
}

fn seeds() -> std::ops::Range<u64> {
    let wanted = std::env::var("HUMBOLDT_SEEDS").ok().and_then(|text| text.parse().ok());
    0..wanted.unwrap_or(12)
}

#[test]
fn in_any_order_and_given_up_anywhere_nothing_leaks() {
    let (mut hits, mut evictions) = (0, 0);
    for seed in seeds() {
        let path = tempfile::tempdir().expect("a directory");
        let world = World::new(path.path(), seed, Faults::default());
        churn(&world, &mut Dice(seed), Plan::new(seed, 150));
        check_books(&world, false);
        hits += world.hits.get();
        evictions += world.scheme.stats().evictions;
        check_after_a_crash(world);
    }
    assert!(
        hits > 20 && evictions > 10,
        "the test must see something: {hits} hits, {evictions} evictions"
    );
}

#[test]
fn failing_operations_leak_nothing() {
    for seed in seeds() {
        let path = tempfile::tempdir().expect("a directory");
        let faults = Faults { io_pct: 6, shed_pct: 5, unlink_pct: 0 };
        let world = World::new(path.path(), seed, faults);
        churn(&world, &mut Dice(seed ^ 99), Plan::new(seed, 150));
        check_books(&world, false);
        check_after_a_crash(world);
    }
}

#[test]
fn what_cannot_be_unlinked_keeps_its_number() {
    for seed in seeds() {
        let path = tempfile::tempdir().expect("a directory");
        let world = World::new(path.path(), seed, Faults { unlink_pct: 10, ..Faults::default() });
        churn(&world, &mut Dice(seed ^ 7), Plan::new(seed, 150));
        check_books(&world, true);
    }
}

#[test]
fn a_crash_in_the_middle_brings_no_removed_key_back() {
    for seed in 0..5 * seeds().end {
        let path = tempfile::tempdir().expect("a directory");
        let world = World::new(path.path(), seed, Faults::default());
        churn(&world, &mut Dice(seed ^ 1234), Plan { is_cut: true, ..Plan::new(seed, 60) });
        // Operations that were not waited for are discarded.
        check_after_a_crash(world);
    }
}

#[test]
fn a_clean_stop_with_everything_under_way_leaves_what_is_in_the_index() {
    for seed in seeds() {
        let path = tempfile::tempdir().expect("a directory");
        let world = World::new(path.path(), seed, Faults::default());
        let mut writer =
            finish(&world.engine, world.scheme.create(record("http://late/", 1), None))
                .expect("create");
        finish(&world.engine, writer.write(0, &[&[7; 100_000]])).expect("written");
        let brief = finish(&world.engine, world.scheme.create(record("http://late/", 2), Some(0)))
            .expect("create");
        churn(&world, &mut Dice(seed ^ 4321), Plan { is_cut: true, ..Plan::new(seed, 50) });
        let outcome = Cell::new(None);
        let mut commit = Task::new(async { outcome.set(Some(brief.commit(Some(0)).await)) });
        assert_eq!(commit.poll(), Some(false), "its file is being written");
        world.scheme.close().expect("closed");
        assert_eq!(commit.poll(), Some(true), "the write ended while it was closed");
        assert!(matches!(outcome.take(), Some(Err(SchemeError::Down))));
        drop(commit);
        assert!(finish(&world.engine, writer.commit(None)).is_err());
        let objects = contents(&world.scheme.dir.index).len();
        assert_eq!(object_files(path.path()).len(), objects, "no file but those of objects");
        drop(world);
        let scheme = open(&small(path.path()).map(SchemeOptions::Ufs));
        assert_eq!(scheme.stats().objects, objects as u64);
        assert_eq!(see(&*scheme, "http://late/"), Seen::Nothing);
    }
}

#[test]
fn updates_of_one_object_take_turns_also_when_one_is_given_up() {
    let mut seen = [0; 2];
    for seed in 0..100 {
        let path = tempfile::tempdir().expect("a directory");
        let world = World::new(path.path(), seed, Faults::default());
        finish(&world.engine, world.store(0, 5000)).expect("stored");
        let (first, second) = (record(&url(0), 190), record(&url(0), 120));
        let stored = humboldt_store::scheme::Confirmed::of(&record(&url(0), 1));
        let mut tasks = vec![
            Task::new(async { drop(world.scheme.update(&first, &stored).await) }),
            Task::new(async { world.scheme.update(&second, &stored).await.expect("updated") }),
        ];
        let mut dice = Dice(seed);
        let mut moves_left = dice.below(20);
        while tasks.iter().any(|task| !task.has_ended()) {
            if moves_left == 0 {
                tasks.remove(0); // given up, or done
            }
            moves_left = moves_left.wrapping_sub(1);
            let can_poll = |task: &mut Task<'_>| !task.has_ended() && task.poll().is_some();
            assert!(
                tasks.iter_mut().any(can_poll) || world.engine.step(),
                "they wait for each other"
            );
        }
        drop(tasks);
        world.engine.calm_down();
        let version = finish(&world.engine, world.read(0)).expect("whole");
        // It confirms the object that the first has replaced, if that was not given up.
        assert!(matches!(version, Some(120) | None), "the second came last: {version:?}");
        seen[usize::from(version.is_some())] += 1;
        check_books(&world, false);
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

/// Files that are evicted and not yet unlinked leave room for a bounded number of waiting objects.
#[test]
fn few_wait_for_room_and_others_are_not_stored() {
    let path = tempfile::tempdir().expect("a directory");
    let world = World::new(path.path(), 0, Faults::default());
    let mut begun = finish(&world.engine, world.scheme.create(record(&url(6), 1), None))
        .expect("there is room");
    for i in 0..5 {
        finish(&world.engine, world.store(i, 70_000)).expect("stored");
    }
    let mut context = Context::from_waker(Waker::noop());
    let (mut writers, mut waiting) = (Vec::new(), Vec::new());
    let mut is_refused = false;
    for _ in 0..2 * evict::WAITING_FOR_ROOM_MAX {
        let mut create = world.scheme.create(record(&url(5), 1), Some(13_000));
        match create.as_mut().poll(&mut context) {
            Poll::Pending => waiting.push(create),
            Poll::Ready(Ok(writer)) => writers.push(writer),
            Poll::Ready(Err(error)) => {
                is_refused = matches!(error, SchemeError::Busy(_));
                break;
            }
        }
    }
    assert!(is_refused);
    assert_eq!((waiting.len(), world.scheme.stats().shed), (evict::WAITING_FOR_ROOM_MAX, 1));
    let parts: &[&[u8]] = &[&[7; 70_000]];
    let mut write = begun.write(0, parts);
    assert!(write.as_mut().poll(&mut context).is_pending(), "what was begun is not given up");
    drop(write);
    drop(begun);
    waiting.truncate(1);
    let mut one_more = world.scheme.create(record(&url(5), 1), Some(13_000));
    assert!(one_more.as_mut().poll(&mut context).is_pending(), "those that gave up left a place");
    writers.clear();
    world.engine.calm_down();
    assert!(matches!(one_more.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
    drop((waiting, one_more));
    check_books(&world, false);
}
