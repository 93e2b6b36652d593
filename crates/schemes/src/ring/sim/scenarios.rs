//! Courses of events that chance would seldom bring about.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};

use humboldt_store::scheme::{Reader, Record};
use humboldt_store::{About, StoredHead};

use super::{
    SEGMENT_BYTES, SEGMENTS, SimFile, World, body, key, len, open, open_with, put, record, runtime,
    url,
};
use crate::block::BlockFile;
use crate::ring::format::{Place, UNIT_BYTES, set_place};
use crate::ring::index::{Entry, RingIndex};
use crate::ring::purges::{Purges, Removal};
use crate::ring::reader;
use crate::ring::store::Store;
use crate::ring::writer;

#[test]
fn a_crash_long_after_a_checkpoint_loses_nothing_and_brings_nothing_back() {
    let runtime = runtime();
    let _context = runtime.enter();
    let mut world = World::new(1);
    let mut stored = 0;
    let mut store_one = |world: &mut World| {
        world.store_object(stored);
        stored += 1;
        // Objects that are requested again are copied out of segments that are reclaimed.
        (stored.saturating_sub(120)..stored).step_by(29).for_each(|number| world.look(number));
        stored
    };
    while world.store.segments.free() > world.store.segments.free_wanted() {
        store_one(&mut world);
    }
    let generations = |store: &Store| -> Vec<u64> {
        (0..u64::from(SEGMENTS)).map(|number| store.segments.generation(number)).collect()
    };
    assert!(world.store.checkpoint());
    // All others are interrupted.
    world.checkpoints_find_room(false);
    let (checkpoint, known) =
        (world.store.checkpoint.load(Ordering::Acquire), generations(&world.store));
    let used_again = |store: &Store| {
        let now = generations(store);
        known.iter().zip(&now).filter(|(before, now)| **before != 0 && before != now).count()
    };
    while used_again(&world.store) < 6 {
        store_one(&mut world);
    }
    let last = store_one(&mut world);
    world.store.flush();
    while world.pump() {}
    assert_eq!(
        world.store.checkpoint.load(Ordering::Acquire),
        checkpoint,
        "everything is behind it"
    );

    let readable = |world: &World| -> Vec<u64> {
        let opens = |number: &u64| {
            let opened = world.run(reader::open(&world.store, &key(&url(*number))));
            opened.expect("no need to wait").expect("no error").is_some()
        };
        (0..last).filter(opens).collect()
    };
    let (before, objects) = (readable(&world), world.store.index.get().map(RingIndex::len));
    assert!(before.len() > 20 && before.len() < last as usize, "{} of {last}", before.len());
    world.checkpoints_find_room(true);
    world.restart();
    assert_eq!(world.store.index.get().map(RingIndex::len), objects);
    assert_eq!(readable(&world), before);
    assert_eq!(world.store.health.errors(), 0);
}

#[test]
fn a_store_whose_checkpoints_are_lost_begins_empty_once() {
    let runtime = runtime();
    let _context = runtime.enter();
    let mut world = World::new(1);
    let restart = |world: &mut World| {
        world.store.flush();
        while world.pump() {}
        world.restart();
        world.store.index.get().map_or(0, RingIndex::len)
    };
    let fill = |world: &mut World| {
        (0..20).for_each(|number| world.store_object(number));
        (20..300).for_each(|number| world.remove(number));
        assert!(world.store.checkpoint());
    };
    (0..4).for_each(|_| fill(&mut world));
    let objects = restart(&mut world);
    assert!(objects > 10);
    for file in &world.files[1..3] {
        file.set_len(0).expect("there is power");
    }
    assert_eq!(restart(&mut world), 0);
    for _ in 0..3 {
        fill(&mut world);
        assert!(restart(&mut world) > 10);
    }
}

/// A new ring that holds one object, which has been used once and is on the disk; its number and
/// its entry.
fn with_one_object() -> (World, u64, Entry) {
    let mut world = World::new(1);
    let number = loop {
        let number = store_of(&mut world, 0, 13_000);
        world.look(number);
        // Some are given up.
        if entry(&world, number).is_some() {
            break number;
        }
    };
    world.store.flush();
    while world.pump() {}
    let entry = entry(&world, number).expect("still there");
    assert_eq!(entry.freq, 1);
    (world, number, entry)
}

/// Stores an object of this length under this number, or a higher one that it is the length for.
fn store_of(world: &mut World, number: u64, bytes: u64) -> u64 {
    let version = world.next_version % 250 + 1;
    let number = (number..).find(|number| len(*number, version) == bytes).expect("one in eight");
    world.store_object(number);
    number
}

fn entry(world: &World, number: u64) -> Option<Entry> {
    world.store.index.get()?.get(world.store.hash(&key(&url(number))))
}

/// Stores others, of these lengths in turn, until the record at `location` has been overwritten.
fn push_out(world: &mut World, location: u64, lengths: &[u64]) {
    let segment = location * UNIT_BYTES / SEGMENT_BYTES;
    let generation = world.store.segments.generation(segment);
    let mut next = 1000;
    while world.store.segments.generation(segment) == generation {
        for bytes in lengths {
            next = store_of(world, next, *bytes) + 1;
        }
        world.pump();
    }
}

#[test]
fn what_is_in_demand_is_copied_whichever_way_its_segment_is_emptied() {
    let runtime = runtime();
    let _context = runtime.enter();
    // With parts of large objects beside it, a segment is emptied by its footer.
    for lengths in [&[5000][..], &[5000, 150_000]] {
        let (mut world, number, before) = with_one_object();
        push_out(&mut world, before.location, lengths);
        let after = entry(&world, number).expect("it was in demand");
        assert!(after.location != before.location && after.freq == 0, "{before:?} {after:?}");
        let hits = world.hits;
        world.look(number);
        assert_eq!(world.hits, hits + 1);
        // The copy has been used again. Unused, it goes next time.
        push_out(&mut world, after.location, lengths);
        let again = entry(&world, number).expect("it was in demand");
        push_out(&mut world, again.location, lengths);
        assert_eq!(entry(&world, number), None);
    }
}

#[test]
fn what_cannot_be_copied_leaves_the_index_with_its_segment() {
    let runtime = runtime();
    let _context = runtime.enter();
    for lengths in [&[5000][..], &[5000, 150_000]] {
        let (mut world, number, before) = with_one_object();
        let at = (before.location * UNIT_BYTES) as usize;
        put(&mut world.files[0].state.lock().now, at, &[0; 512]);
        push_out(&mut world, before.location, lengths);
        assert_eq!(entry(&world, number), None);
    }
}

/// Objects that lie beside one another on the disk, each of which has been used once.
fn in_demand(world: &mut World) -> Vec<(u64, Entry)> {
    let mut next = 0;
    let numbers: Vec<u64> = (0..10)
        .map(|_| {
            let number = store_of(world, next, 13_000);
            world.look(number);
            next = number + 1;
            number
        })
        .collect();
    world.store.flush();
    while world.pump() {}
    let found = numbers.into_iter().filter_map(|number| Some((number, entry(world, number)?)));
    let found: Vec<(u64, Entry)> = found.collect();
    assert!(found.len() > 5 && found.iter().all(|(_, entry)| entry.freq == 1), "{found:?}");
    found
}

/// Of each object, whether it has been copied; and how many reads that took.
fn copied_of(world: &mut World, before: &[(u64, Entry)], lengths: &[u64]) -> (Vec<bool>, u64) {
    let reads = world.store.stats().read_ops;
    push_out(world, before[0].1.location, lengths);
    let reads = world.store.stats().read_ops - reads;
    let is_copied = |(number, old): &(u64, Entry)| {
        entry(world, *number).is_some_and(|new| {
            assert_ne!(new.location, old.location);
            true
        })
    };
    (before.iter().map(is_copied).collect(), reads)
}

#[test]
fn objects_in_demand_are_read_together_and_an_unreadable_one_costs_no_other() {
    let runtime = runtime();
    let _context = runtime.enter();
    for lengths in [&[5000][..], &[5000, 150_000]] {
        let mut world = World::new(1);
        let before = in_demand(&mut world);
        let (copied, reads) = copied_of(&mut world, &before, lengths);
        assert!(copied.iter().all(|is_copied| *is_copied), "{copied:?}");
        // By a footer the fragments of others are read too.
        if lengths.len() == 1 {
            assert!(reads < before.len() as u64 / 2, "{reads} reads of {}", before.len());
        }

        let mut world = World::new(1);
        let before = in_demand(&mut world);
        // A block that no other record shares.
        let bad = (before[2].1.location * UNIT_BYTES + 4096).next_multiple_of(4096);
        *world.files[0].unreadable.lock() = bad..bad + 1;
        let (copied, _) = copied_of(&mut world, &before, lengths);
        let lost: Vec<usize> = (0..copied.len()).filter(|place| !copied[*place]).collect();
        assert_eq!(lost, [2]);
    }
}

#[test]
fn what_the_page_cache_has_is_copied_from_there_if_it_verifies() {
    let runtime = runtime();
    let _context = runtime.enter();
    for is_stale in [false, true] {
        let mut world = World::new(1);
        let cached = SimFile::new(&world.power, false, false);
        world.store = open_with(&world.files, &cached).expect("there is power");
        world.store.uses_page_cache.store(false, Ordering::Relaxed);
        let before = in_demand(&mut world);
        let contents = world.files[0].state.lock().now.clone();
        put(&mut cached.state.lock().now, 0, &contents);
        if is_stale {
            // What lay at each place a generation before: another object.
            let others = before.iter().cycle().skip(1);
            for ((_, entry), (_, other)) in before.iter().zip(others) {
                let loaded = reader::load_blocking(&world.store, *other).expect("readable");
                let mut record = loaded.record_bytes().expect("in memory").to_vec();
                let of_other = loaded.found.place;
                let generation = of_other.generation - 1;
                let place = Place { location: entry.location, generation, ..of_other };
                set_place(&mut record[..loaded.found.bytes()], place);
                let at = (entry.location * UNIT_BYTES) as usize;
                put(&mut cached.state.lock().now, at, &record);
            }
        } else {
            // Only the page cache has it.
            put(&mut world.files[0].state.lock().now, 0, &vec![0; contents.len()]);
        }
        world.store.is_all_cached.store(true, Ordering::Relaxed);
        let (copied, _) = copied_of(&mut world, &before, &[5000]);
        assert!(copied.iter().all(|is_copied| *is_copied), "{is_stale}: {copied:?}");
    }
}

/// Removing an object that was never stored costs neither a block of the log nor a checkpoint; one
/// that was stored is logged once.
#[test]
fn the_removal_of_what_recovery_cannot_find_is_not_logged() {
    let runtime = runtime();
    let _context = runtime.enter();
    let mut world = World::new(1);
    let number = store_of(&mut world, 0, 5000);
    let remove =
        |key: &_| world.run(world.store.remove(key)).expect("no need to wait").expect("service");
    let checkpoint = world.store.checkpoint.load(Ordering::Acquire);
    for never in 0..3000 {
        assert!(!remove(&key(&format!("http://never.example/{never}"))));
        world.store.keep_house();
    }
    assert_eq!(world.store.purges.blocks(), 0);
    assert_eq!(world.store.checkpoint.load(Ordering::Acquire), checkpoint);
    assert!(remove(&key(&url(number))));
    assert!(!remove(&key(&url(number))));
    assert_eq!(world.store.purges.blocks(), 1);
    // An entry that left the index without a line in the log may be found again.
    world.store.doubts.count();
    assert!(!remove(&key(&url(number))));
    assert_eq!(world.store.purges.blocks(), 2);
    assert!(world.store.checkpoint(), "it settles that");
    assert!(!remove(&key(&url(number))));
    assert_eq!(world.store.purges.blocks(), 2);
}

/// Two cores remove the same keys. Whichever does not find one any more has not removed it before
/// the other one has logged that.
#[test]
fn no_removal_is_acknowledged_before_one_of_the_key_is_on_the_disk() {
    const KEYS: u64 = 4000;
    let runtime = runtime();
    let _context = runtime.enter();
    let (world, _, entry) = with_one_object();
    let store = &world.store;
    let index = store.index.get().expect("read");
    let mut keys: Vec<_> =
        (0..KEYS).map(|number| key(&format!("http://both.example/{number}"))).collect();
    // Without those that are one to the index.
    keys.retain(|key| index.insert(store.hash(key), entry).replaced.is_none());
    assert!(keys.len() as u64 > KEYS * 9 / 10 && !store.doubts.are_any());
    let (barrier, too_early) = (Barrier::new(2), AtomicU64::new(0));
    let before = store.purges.blocks();
    let remove = || {
        let mut context = Context::from_waker(Waker::noop());
        barrier.wait();
        for (removed, key) in (1..).zip(&keys) {
            let mut removal = pin!(store.remove(key));
            let outcome = loop {
                match removal.as_mut().poll(&mut context) {
                    Poll::Ready(outcome) => break outcome,
                    Poll::Pending => std::hint::spin_loop(),
                }
            };
            // Each of the keys has a block of its own.
            let is_logged = outcome.is_ok() && store.purges.blocks() - before >= removed;
            too_early.fetch_add(u64::from(!is_logged), Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| _ = [(); 2].map(|()| scope.spawn(remove)));
    assert_eq!(too_early.into_inner(), 0);
}

#[test]
fn a_log_that_refuses_a_removal_is_left_for_the_other_one() {
    let runtime = runtime();
    let _context = runtime.enter();
    let mut world = World::new(1);
    let number = store_of(&mut world, 0, 5000);
    let remove =
        |world: &World| world.run(world.store.remove(&key(&url(number)))).expect("no need to wait");
    let find_room = |world: &World, log: usize, is_there: bool| {
        world.files[3 + log].is_full.store(!is_there, Ordering::Relaxed);
    };
    let active = (world.store.checkpoint.load(Ordering::Acquire) % 2) as usize;
    find_room(&world, active, false);
    remove(&world).expect_err("no room");
    world.store.keep_house();
    remove(&world).expect("the other file has room");

    // When both are full, checkpoints are not written all the time.
    (0..2).for_each(|log| find_room(&world, log, false));
    let checkpoint = world.store.checkpoint.load(Ordering::Acquire);
    for _ in 0..50 {
        world.store.doubts.count(); // the key is not there any more, and nothing would be logged
        remove(&world).expect_err("no room");
        world.store.keep_house();
    }
    assert!(world.store.checkpoint.load(Ordering::Acquire) <= checkpoint + 1);
    (0..2).for_each(|log| find_room(&world, log, true));
    for _ in 0..8 {
        world.pump();
    }
    remove(&world).expect("there is room");
}

#[test]
fn a_checkpoint_that_fails_is_not_tried_again_at_once() {
    let runtime = runtime();
    let _context = runtime.enter();
    let mut world = World::new(1);
    world.checkpoints_find_room(false);
    let mut next = 0;
    while !world.store.segments.wants_checkpoint() {
        next = store_of(&mut world, next, 60_000) + 1;
    }
    let tries = |world: &World| {
        let before = world.store.health.errors();
        (0..100).for_each(|_| world.store.keep_house());
        world.store.health.errors() - before
    };
    assert!(tries(&world) <= 1);
    // The more often it failed, the less often.
    let errors = world.store.health.errors();
    (0..1000).for_each(|_| _ = world.pump());
    let errors = world.store.health.errors() - errors;
    assert!((10..30).contains(&errors), "{errors}");
    world.checkpoints_find_room(true);
    (0..65).for_each(|_| _ = world.pump());
    assert!(!world.store.segments.wants_checkpoint());
}

#[test]
fn a_segment_that_cannot_be_read_costs_what_was_written_to_it_since_the_checkpoint() {
    let runtime = runtime();
    let _context = runtime.enter();
    for at in [0, SEGMENT_BYTES - 4096] {
        let mut world = World::new(1);
        let mut next = 0;
        while world.store.segments.used() < 5 {
            next = store_of(&mut world, next, 5000) + 1;
        }
        world.store.finish();
        while world.pump() {}
        let lies_in = |world: &World, segment: u64| {
            let locations = (0..next).filter_map(|number| entry(world, number));
            locations.filter(|entry| entry.location * UNIT_BYTES / SEGMENT_BYTES == segment).count()
                as u64
        };
        let (all, there) = (world.store.index.get().map_or(0, RingIndex::len), lies_in(&world, 2));
        assert!(there > 10 && all > 4 * there, "{there} of {all}");
        let at = 2 * SEGMENT_BYTES + at;
        *world.files[0].unreadable.lock() = at..at + 1;
        world.restart();
        assert_eq!(world.store.index.get().map(RingIndex::len), Some(all - there));
        assert_eq!((lies_in(&world, 2), world.store.health.errors()), (0, 1));
    }
}

#[test]
fn a_store_that_begins_empty_finds_nothing_of_a_time_when_the_clock_was_ahead() {
    let runtime = runtime();
    let _context = runtime.enter();
    let mut world = World::new(1);
    let ahead = world.store.first_generation() + (1 << 50);
    world.store.segments.restore(&[], ahead);
    world.store.log.restore(ahead);
    let fill = |world: &mut World, numbers: std::ops::Range<u64>| {
        numbers.for_each(|number| world.store_object(number));
        world.store.finish();
        while world.pump() {}
        world.files[0].sync_blocking().expect("there is power");
    };
    fill(&mut world, 0..60);
    world.files[1..].iter().for_each(|file| file.set_len(0).expect("there is power"));
    world.store = open(&world.files).expect("there is power");
    fill(&mut world, 1000..1005);
    let objects = world.store.index.get().map(RingIndex::len);
    for _ in 0..2 {
        world.store = open(&world.files).expect("there is power");
        assert_eq!(world.store.index.get().map(RingIndex::len), objects);
    }
}

#[test]
fn a_log_whose_beginning_could_not_be_read_at_the_start_is_read_again() {
    let power = World::new(1).power;
    let [first, second] = [(); 2].map(|()| SimFile::new(&power, true, false));
    let runtime = runtime();
    let start = |number| {
        Arc::new(
            Purges::new(
                77,
                [Arc::clone(&first) as _, Arc::clone(&second) as _],
                number,
                Arc::default(),
            )
            .expect("a log"),
        )
    };
    let turn = |purges: &Arc<Purges>, number, hash| {
        purges.prepare(number).expect("readable");
        purges.switch(number);
        let removal = Removal::Key { hash, sequence: 1 };
        runtime.block_on(purges.log(&[removal])).expect("there is room");
    };
    let before = start(0);
    (1..=4).for_each(|number| turn(&before, number, number));
    // Checkpoint 4 is complete. The other file's operations of turn 3 cannot be read for a moment,
    // and the next checkpoint is not completed.
    *second.unreadable.lock() = 0..1;
    let again = start(4);
    *second.unreadable.lock() = 0..0;
    turn(&again, 5, 50);
    let removed = |purges: &Purges| -> Vec<_> {
        let removals = purges.read(4).expect("readable").removals.into_iter();
        removals.filter(|removal| matches!(removal, Removal::Key { hash: 50.., .. })).collect()
    };
    assert_eq!(removed(&again).len(), 1);
    let last = start(4);
    [51, 52].into_iter().for_each(|hash| turn(&last, 5, hash));
    assert_eq!(removed(&last).len(), 3);
}

/// A large object, with parts in several segments, and a reader that has begun to read it.
fn begun_to_read(world: &mut World) -> (String, u8, Box<dyn Reader>) {
    let number = loop {
        let number = store_of(world, 0, 400_000);
        if entry(world, number).is_some() {
            break number;
        }
    };
    let (url, version) = (url(number), world.next_version);
    world.store.flush();
    while world.pump() {}
    let opened = world.run(reader::open(&world.store, &key(&url))).expect("no need to wait");
    let mut reader = opened.expect("no error").expect("there").reader;
    let mut bytes = [0; 1000];
    let read = world.run(reader.read(0, &mut bytes)).expect("no need to wait").expect("read");
    assert!(bytes[..read] == body(&url, version, 0, read as u64));
    (url, version, reader)
}

/// Reads to the end of the body; returns how far it came, if not there.
fn read_on(world: &World, url: &str, version: u8, reader: &mut dyn Reader) -> Result<(), u64> {
    let total = reader.body_bytes().expect("complete");
    let (mut at, mut bytes) = (1000, vec![0; 30_000]);
    while at < total {
        let read = world.run(reader.read(at, &mut bytes)).expect("no need to wait");
        let read = read.map_err(|_| at)?;
        assert!(bytes[..read] == body(url, version, at, at + read as u64), "wrong bytes at {at}");
        at += read as u64;
    }
    Ok(())
}

#[test]
fn what_is_being_read_can_be_read_to_its_end_whatever_happens_to_the_object() {
    let runtime = runtime();
    let _context = runtime.enter();
    let mut world = World::new(1);
    let (url, version, mut reader) = begun_to_read(&mut world);
    assert!(world.run(world.store.remove(&key(&url))).expect("no need to wait").expect("removed"));
    // The ring turns.
    let turned = |world: &World| world.store.segments.newest_generation();
    let before = turned(&world);
    let mut next = 1000;
    while turned(&world) < before + 3 * u64::from(SEGMENTS) {
        next = store_of(&mut world, next, 60_000) + 1;
        world.pump();
    }
    assert_eq!(read_on(&world, &url, version, &mut *reader), Ok(()));
    let held = world.store.segments.used();
    drop(reader);
    assert!(world.store.segments.used() < held, "free again");
    assert_eq!(world.store.health.errors(), 0);
}

#[test]
fn what_is_borrowed_outlives_its_segment() {
    let runtime = runtime();
    let _context = runtime.enter();
    let mut world = World::new(1);
    let content = body("http://lent/", 7, 0, 30_000);
    let Record { key: name, url, head, times, .. } = record("http://lent/", 7);
    let head = StoredHead::from_bytes(head).expect("a head");
    let about = About { key: name, url: &url, head: &head, times: &times, body_bytes: 30_000 };
    let all = writer::put_now(&world.store, &about, &[&content]).expect("room");
    let part = all.part(10_000..10_100).expect("inside");
    assert!(all.part(29_000..30_001).is_none());
    let entry = world.store.index.get().and_then(|index| index.get(world.store.hash(&name)));
    let segment = entry.expect("stored").location * UNIT_BYTES / SEGMENT_BYTES;
    let generation = world.store.segments.generation(segment);
    drop(all);
    let mut next = 1000;
    while world.store.segments.generation(segment) == generation {
        next = store_of(&mut world, next, 60_000) + 1;
        world.pump();
    }
    // Buffers of the same size are used again, but not this one.
    assert!(*part == content[10_000..10_100]);
    drop(world);
    assert!(*part == content[10_000..10_100]);
}

#[test]
fn readers_hold_a_part_of_the_ring_at_most() {
    let runtime = runtime();
    let _context = runtime.enter();
    let mut world = World::new(1);
    let mut readers: Vec<_> = (0..6).map(|_| begun_to_read(&mut world)).collect();
    let mut next = 1000;
    let before = world.store.segments.newest_generation();
    while world.store.segments.newest_generation() < before + 3 * u64::from(SEGMENTS) {
        next = store_of(&mut world, next, 60_000) + 1;
        world.pump();
    }
    let read_on = |(url, version, reader): &mut (String, u8, Box<dyn Reader>)| {
        read_on(&world, url, *version, &mut **reader).is_ok()
    };
    let complete = readers.iter_mut().map(read_on).filter(|is_complete| *is_complete).count();
    assert!((1..6).contains(&complete), "{complete} of 6");
    assert_eq!(world.store.health.errors(), 0, "nothing is wrong with the directory");
}

#[test]
fn an_object_of_which_a_crash_has_taken_a_part_is_not_found() {
    let runtime = runtime();
    let _context = runtime.enter();
    let mut world = World::new(1);
    let (url, _, reader) = begun_to_read(&mut world);
    drop(reader);
    let hash = world.store.hash(&key(&url));
    let entry = world.store.index.get().and_then(|index| index.get(hash)).expect("there");
    let loaded = reader::load_blocking(&world.store, entry).expect("readable");
    let at = (loaded.found.fragments[2].location * UNIT_BYTES) as usize;
    // This write was lost; that of the record, which came later, was not.
    put(&mut world.files[0].state.lock().now, at, &[0; 4096]);
    world.restart();
    let opened = world.run(reader::open(&world.store, &key(&url))).expect("no need to wait");
    assert!(opened.expect("no error").is_none());
}
