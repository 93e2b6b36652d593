//! Stripes that are torn, old, cut off or flipped; snapshots that do not verify.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use humboldt_store::scheme::Scheme;

use super::{MIB, Store, next, url, wait_until, write_at};
use crate::battery::Seen;
use crate::coss::format::{STRIPE_BYTES, StripeName};
use crate::coss::worker::clear_tables;

/// Half of a stripe is from before: by a clean stop and by a crash, only its own objects are
/// missed.
#[test]
fn a_torn_stripe_costs_only_its_own_objects() {
    for is_clean in [false, true] {
        for (start, end) in [(0, STRIPE_BYTES / 2), (STRIPE_BYTES / 2, STRIPE_BYTES)] {
            let mut store = Store::new(8, |_| ());
            (0..40).for_each(|i| store.put(&url(i), 1, 100_000));
            store.settle();
            let slots: Vec<u32> = (0..40).map(|i| store.slot(&url(i))).collect();
            let at = store.offset(1) + start as u64;
            let harm = |path: &Path| write_at(path, at, &vec![0; end - start]);
            match is_clean {
                true => store.restart_and(harm),
                false => {
                    store.maintain();
                    store.crash_and(harm);
                }
            }
            let mut missed = 0;
            for (i, slot) in slots.iter().enumerate() {
                let seen = store.see(&url(i as u64));
                missed += u64::from(seen != Seen::Whole(1, 100_000));
                assert!(*slot == 1 || seen == Seen::Whole(1, 100_000), "object {i}: {seen:?}");
            }
            assert!((4..=10).contains(&missed), "{missed}");
            (100..200).for_each(|i| store.put(&url(i), 1, 100_000));
            assert_eq!(store.see(&url(199)), Seen::Whole(1, 100_000));
        }
    }
}

/// The data of a stripe was written over an old one, its table was not: the old table must bring
/// back nothing wrong.
#[test]
fn an_old_table_over_new_data_finds_nothing() {
    let mut store = Store::new(4, |_| ());
    let stripes = store.coss().dir.geometry.stripes;
    // All records have the same length, and each key lies at the same place of the same slot in
    // each lap.
    let per_stripe = 10;
    let lap = |store: &Store, version| {
        (0..per_stripe * u64::from(stripes)).for_each(|i| store.put(&url(i), version, 100_000));
        store.settle();
        store.maintain();
    };
    lap(&store, 1);
    assert_eq!((store.slot(&url(0)), store.slot(&url(per_stripe))), (0, 1));
    let tail_at = store.offset(0) + (STRIPE_BYTES - 4096) as u64;
    let file = fs::File::open(&store.options.path).expect("the file");
    let mut tail = [0; 4096];
    file.read_exact_at(&mut tail, tail_at).expect("a read");
    lap(&store, 1);
    assert_eq!(store.slot(&url(0)), 0);
    store.crash_and(|path| write_at(path, tail_at, &tail));
    assert_eq!(
        store.see(&url(0)),
        Seen::Corrupt,
        "a record of a later time does not count for an older one"
    );
    assert_eq!(store.see(&url(0)), Seen::Nothing);
    assert_eq!(store.see(&url(per_stripe)), Seen::Whole(1, 100_000));
}

#[test]
fn no_flipped_bit_is_served() {
    // Each start begins a stripe: there are enough of them.
    let mut store = Store::new(40, |_| ());
    (0..12).for_each(|i| store.put(&url(i), 1, 40_000));
    store.maintain();
    let (mut state, mut missed) = (5, 0);
    for round in 0..30 {
        let used = store.offset(store.coss().dir.log.lock().next.slot);
        store.crash_and(|path| {
            let file = fs::File::options().read(true).write(true).open(path).expect("the file");
            for _ in 0..4 + round * 4 {
                let at = next(&mut state) % used;
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).expect("a read");
                byte[0] ^= 1 << (next(&mut state) % 8);
                file.write_all_at(&byte, at).expect("a write");
            }
        });
        for i in 0..12 {
            let seen = store.see(&url(i)); // panics at a wrong byte
            if seen != Seen::Whole(1, 40_000) {
                store.put(&url(i), 1, 40_000);
                missed += 1;
            }
        }
        store.maintain();
        assert_eq!(store.see(&url(round % 12)), Seen::Whole(1, 40_000));
    }
    assert!(missed > 10, "the test must hit something: {missed}");
}

#[test]
fn a_bad_or_missing_snapshot_means_a_scan() {
    let mut store = Store::new(16, |_| ());
    (0..200).for_each(|i| store.put(&url(i), 1, 9000));
    store.remove(&url(5)).expect("removed");
    let at = store.offset(store.coss().dir.geometry.stripes);
    let all = |store: &Store, but: u64| {
        for i in (0..200).filter(|i| *i != but) {
            assert_eq!(store.see(&url(i)), Seen::Whole(1, 9000), "object {i}");
        }
        assert_eq!(store.see(&url(but)), Seen::Nothing);
        assert_eq!(store.coss().stats().objects, 199);
    };
    let reads = |store: &Store| store.coss().stats().read_ops;
    store.restart_and(|_| ());
    let with_snapshot = reads(&store);
    assert!(with_snapshot < 10, "no stripe is read: {with_snapshot}");
    all(&store, 5);
    for harm_at in [at + 3, at + 9, at + 2000] {
        store.restart_and(|path| write_at(path, harm_at, &[0x5A; 3]));
        assert!(reads(&store) >= 15, "all stripes are read");
        all(&store, 5);
    }
    // Two stripes full of tiny objects have more of them than the snapshot has room for.
    let mut store = Store::new(3, |_| ());
    (0..3000).for_each(|i| store.put(&url(i), 1, 10));
    let objects = store.coss().stats().objects;
    store.restart_and(|_| ());
    assert_eq!(store.coss().stats().objects, objects);
    assert_eq!(store.see(&url(2999)), Seen::Whole(1, 10));
}

/// Stripes that a smaller store has cut off do not come back when it grows again, even if it
/// crashes.
#[test]
fn what_was_cut_off_stays_away() {
    for is_crash in [false, true] {
        let mut store = Store::new(16, |_| ());
        (0..120).for_each(|i| store.put(&url(i), 1, 100_000));
        store.maintain();
        let slots: Vec<u32> = (0..120).map(|i| store.slot(&url(i))).collect();
        let mut again = |mib: u64| {
            store.options.capacity_bytes = mib * MIB;
            if is_crash {
                store.crash();
            } else {
                store.restart_and(|_| ());
            }
            (0..120).map(|i| store.see(&url(i)) != Seen::Nothing).collect::<Vec<_>>()
        };
        let inside: Vec<bool> = slots.iter().map(|slot| *slot < 6).collect();
        assert_eq!(again(7), inside);
        assert_eq!(again(16), inside);
        assert_eq!(again(20), inside);
    }
}

/// The youngest record of a key lies where the store no longer reaches: no older one takes its
/// place.
#[test]
fn an_older_record_does_not_stand_in_for_one_that_was_cut_off() {
    let mut store = Store::new(16, |_| ());
    store.put("http://twice/", 1, 1000);
    store.fill_up_to(10);
    store.put("http://twice/", 2, 1000);
    store.maintain();
    store.options.capacity_bytes = 7 * MIB;
    store.crash();
    assert_eq!(store.see("http://twice/"), Seen::Nothing);
}

/// The table of a stripe is gone while its objects are in the index: they are evicted nevertheless.
#[test]
fn a_stripe_without_a_table_is_evicted_whole() {
    let store = Store::new(8, |_| ());
    (0..60).for_each(|i| store.put(&url(i), 1, 100_000));
    store.settle();
    wait_until("victims are known", || store.coss().dir.log.lock().victims.len() == 4);
    for slot in 0..3 {
        write_at(&store.options.path, store.offset(slot) + (STRIPE_BYTES - 200) as u64, &[0; 200]);
    }
    // Parts of these slots that have been read already do not count.
    store.coss().dir.log.lock().victims.clear();
    (100..150).for_each(|i| store.put(&url(i), 1, 100_000));
    store.settle();
    let held =
        (0..150).filter(|i| store.coss().contains(&crate::battery::key(&url(*i)))).count() as u64;
    let whole = (0..150).filter(|i| store.see(&url(*i)) == Seen::Whole(1, 100_000)).count() as u64;
    assert_eq!((whole, store.coss().stats().errors), (held, 0));
}

#[test]
fn an_answer_without_a_place_in_larger_blocks_gives_way_to_no_older_one() {
    let mut store = Store::new(8, |options| options.own.block_bytes = Some(512));
    let last = store.coss().dir.geometry.stripes - 1;
    store.fill_up_to(last);
    (0..60).for_each(|i| store.put(&url(i), 1, 600));
    store.fill_up_to(0);
    (0..60).for_each(|i| store.put(&url(i), 2, 600));
    store.fill_up_to(2);
    store.settle();
    assert_eq!(store.slot(&url(0)), 0);
    store.options.own.block_bytes = Some(4096);
    store.crash();
    let seen = (0..60).map(|i| store.see(&url(i)));
    let (newer, older) = seen.fold((0, 0), |(newer, older), seen| match seen {
        Seen::Whole(2, _) => (newer + 1, older),
        Seen::Whole(1, _) => (newer, older + 1),
        _ => (newer, older),
    });
    assert!((1..60).contains(&newer) && older == 0, "{newer} newer, {older} older");
}

#[test]
fn what_lay_behind_the_end_of_a_full_disk_does_not_come_back() {
    let mut store = Store::new(8, |_| ());
    store.fill_up_to(4);
    store.settle();
    store.put("http://old/", 1, 1000);
    store.maintain();
    assert_eq!(store.slot("http://old/"), 4);
    let dir = &store.coss().dir;
    let to_clear = dir.log.lock().end_at(dir, 4);
    let slots: Vec<u32> = to_clear.iter().map(|name| name.slot).collect();
    assert_eq!(slots, [4], "a part of it had been written");
    dir.data.fails.store(true, Ordering::Relaxed);
    clear_tables(dir, &to_clear);
    assert_ne!(dir.seq(4), 0, "a removal has to know of it");
    dir.data.fails.store(false, Ordering::Relaxed);
    store.maintain();
    wait_until("it is cleared", || dir.seq(4) == 0);
    assert_eq!(store.see("http://old/"), Seen::Nothing);
    store.put("http://old/", 2, 1000);
    for i in 0..60 {
        store.put(&url(i), 1, 100_000);
        assert!(store.slot(&url(i)) < 4);
    }
    store.settle();
    let held = (0..60).filter(|i| store.see(&url(*i)) == Seen::Whole(1, 100_000)).count();
    assert!((25..45).contains(&held), "four stripes have room for 40: {held}");
    assert_eq!(store.see("http://old/"), Seen::Nothing, "evicted");
    store.crash();
    assert_eq!(store.see("http://old/"), Seen::Nothing, "nor the older one");
}

#[test]
fn a_late_clearing_spares_the_younger_stripe_in_its_slot() {
    let mut store = Store::new(8, |_| ());
    store.put("http://young/", 1, 1000);
    store.settle();
    store.maintain();
    let (dir, slot) = (&store.coss().dir, store.slot("http://young/"));
    clear_tables(dir, &[StripeName { seq: dir.seq(slot) - 1, slot }]);
    store.crash();
    assert_eq!(store.see("http://young/"), Seen::Whole(1, 1000));
}
