//! A slot file that a crash has left half old and half new: whole objects or none.

use super::*;
use crate::battery::record;

const PAGE: usize = 4096;

/// A file of which some pages are new and all others old.
fn mixed(old: &[u8], new: &[u8], is_new: impl Fn(usize) -> bool) -> Vec<u8> {
    let mut bytes = old.to_vec();
    bytes.resize(new.len().max(old.len()), 0);
    for (page, part) in new.chunks(PAGE).enumerate() {
        if is_new(page) {
            bytes[page * PAGE..page * PAGE + part.len()].copy_from_slice(part);
        }
    }
    bytes
}

/// Pages in which two files differ.
fn changed(old: &[u8], new: &[u8]) -> Vec<usize> {
    let page = |bytes: &[u8], at: usize| {
        bytes.get(at * PAGE..).map(|rest| rest[..rest.len().min(PAGE)].to_vec())
    };
    (0..new.len().div_ceil(PAGE)).filter(|at| page(old, *at) != page(new, *at)).collect()
}

/// The file before and after `change`, which a crash follows.
fn before_and_after(place: &Place, change: impl FnOnce(&dyn Scheme)) -> (Vec<u8>, Vec<u8>) {
    let rock = place.open();
    let old = place.bytes();
    change(&*rock);
    crash(rock);
    (old, place.bytes())
}

/// Every single page missing, every single page there, and some random mixtures.
fn for_each_mixture(
    place: &Place,
    (old, new): &(Vec<u8>, Vec<u8>),
    mut check: impl FnMut(&dyn Scheme, usize),
) {
    let pages = changed(old, new);
    assert!(pages.len() > 1);
    let mut look = |is_new: &dyn Fn(usize) -> bool| {
        place.set_bytes(&mixed(old, new, is_new));
        let rock = place.open();
        check(&*rock, pages.iter().filter(|page| is_new(**page)).count());
    };
    for page in &pages {
        look(&|at| at != *page);
        look(&|at| at == *page);
    }
    for seed in 1..30_u64 {
        look(&|at| seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(at as u32 * 7) & 64 != 0);
    }
}

#[test]
fn torn_writes_of_a_new_object_leave_it_whole_or_not_there() {
    for len in [13_000, 40_000] {
        let place = Place::new(4 << 20);
        let files = before_and_after(&place, |rock| {
            store(rock, "http://before/", 1, 20_000);
            store(rock, "http://torn/", 1, len);
        });
        let mut whole = 0;
        for_each_mixture(&place, &files, |rock, _| {
            let seen = see(rock, "http://torn/");
            assert!([Seen::Whole(1, len), Seen::Nothing].contains(&seen), "{len}: {seen:?}");
            whole += u32::from(seen == Seen::Whole(1, len));
            store(rock, "http://more/", 1, 100_000);
            assert_eq!(
                see(rock, "http://more/"),
                Seen::Whole(1, 100_000),
                "its slots are in order"
            );
        });
        assert!(whole > 0, "with other pages missing it is whole");
    }
}

#[test]
fn torn_writes_of_a_replacement_leave_one_of_the_two() {
    let place = Place::new(4 << 20);
    let rock = place.open();
    store(&*rock, "http://torn/", 1, 30_000);
    crash(rock);
    let files = before_and_after(&place, |rock| store(rock, "http://torn/", 2, 40_000));
    let mut seen_of = [0; 3];
    for_each_mixture(&place, &files, |rock, new| match see(rock, "http://torn/") {
        Seen::Whole(1, 30_000) => seen_of[1] += 1,
        Seen::Whole(2, 40_000) => seen_of[2] += 1,
        Seen::Nothing => seen_of[0] += 1,
        other => panic!("{other:?} with {new} new pages"),
    });
    assert!(seen_of.iter().all(|times| *times > 0), "{seen_of:?}");
}

#[test]
fn torn_writes_of_a_new_head_leave_one_of_the_two_or_none() {
    for len in [9000, 60_000] {
        let place = Place::new(4 << 20);
        let rock = place.open();
        store(&*rock, "http://torn/", 1, len);
        crash(rock);
        let files = before_and_after(&place, |rock| {
            run(rock.update(
                &record("http://torn/", 90),
                &humboldt_store::scheme::Confirmed::of(&record("http://torn/", 1)),
            ))
            .expect("updated");
        });
        let mut heads = [0; 3];
        for_each_mixture(&place, &files, |rock, _| {
            run(async {
                match rock.open(&key("http://torn/")).await.expect("open") {
                    None => heads[0] += 1,
                    Some(open) if open.record == record("http://torn/", 1) => heads[1] += 1,
                    Some(open) => {
                        assert_eq!(open.record, record("http://torn/", 90));
                        heads[2] += 1;
                    }
                }
            });
        });
        assert!(heads[0] > 0 && heads[1] + heads[2] > 0, "{len}: {heads:?}");
    }
}

/// The younger object may lie before the older one or behind it.
#[test]
fn of_two_whole_objects_of_a_key_the_younger_is_found() {
    for fillers in [0, 9] {
        let place = Place::new(13 * SLOT as u64);
        let rock = place.open();
        (0..fillers).for_each(|i| store(&*rock, &format!("http://f/{i}"), 1, 9000));
        store(&*rock, "http://two/", 1, 9000);
        (0..fillers).for_each(|i| assert!(remove(&*rock, &format!("http://f/{i}"))));
        store(&*rock, "http://between/", 1, 9000);
        store(&*rock, "http://between/", 2, 9000);
        wait_for_used(&*rock, 2);
        let with_older = place.bytes();
        store(&*rock, "http://two/", 2, 9000);
        crash(rock);
        let mut both = place.bytes();
        let older = SLOT * (1 + fillers);
        assert!(
            both[older..older + 4096].iter().all(|byte| *byte == 0),
            "the older was overwritten"
        );
        both[older..older + SLOT].copy_from_slice(&with_older[older..older + SLOT]);
        place.set_bytes(&both);
        for _ in 0..2 {
            let rock = place.open();
            assert_eq!(see(&*rock, "http://two/"), Seen::Whole(2, 9000), "{fillers}");
            assert_eq!((rock.stats().objects, rock.stats().used_bytes), (2, 2 * SLOT as u64));
            assert!(
                place.bytes()[older..older + 4096].iter().all(|byte| *byte == 0),
                "overwritten again"
            );
        }
    }
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let mut place = Place::new(64 * SLOT as u64);
    let rock = place.open();
    (0..50).for_each(|i| store(&*rock, &format!("http://c/{i}"), 1, 9000));
    rock.close().expect("closed");
    drop(rock);
    place.options.capacity_bytes = 32 * SLOT as u64;
    let rock = place.open();
    assert!((20..=31).contains(&count(&*rock, "c", 50)));
    assert!(!remove(&*rock, "http://c/45"), "it lies behind the end");
    rock.close().expect("closed");
    drop(rock);
    place.options.capacity_bytes = 64 * SLOT as u64;
    crash(place.open());
    let rock = place.open();
    assert_eq!(see(&*rock, "http://c/45"), Seen::Nothing);
}

#[test]
fn a_chain_without_any_one_of_its_slots_is_no_object() {
    let place = Place::new(16 << 20);
    let len = 2_500_000;
    let rock = place.open();
    store(&*rock, "http://long/", 1, len);
    crash(rock);
    let whole = place.bytes();
    let slots = (whole.len() - SLOT).div_ceil(SLOT);
    assert!(slots > 150);
    for missing in (0..slots).step_by(13).chain([slots - 1]) {
        let mut bytes = whole.clone();
        let start = SLOT + missing * SLOT;
        let end = (start + SLOT).min(bytes.len());
        bytes[start..end].fill(0);
        place.set_bytes(&bytes);
        let rock = place.open();
        assert_eq!(see(&*rock, "http://long/"), Seen::Nothing, "slot {missing}");
        assert_eq!(rock.stats().used_bytes, 0);
    }
    place.set_bytes(&whole);
    assert_eq!(see(&*place.open(), "http://long/"), Seen::Whole(1, len));
}

#[test]
fn slots_that_were_exchanged_or_come_from_another_store_do_not_verify() {
    let place = Place::new(4 << 20);
    let rock = place.open();
    (0..6).for_each(|i| store(&*rock, &format!("http://x/{i}"), 1, 9000));
    crash(rock);
    let mut bytes = place.bytes();
    let (low, high) = bytes[SLOT..].split_at_mut(SLOT);
    low.swap_with_slice(&mut high[..SLOT]);
    let other = Place::new(4 << 20);
    let rock = other.open();
    (0..6).for_each(|i| store(&*rock, &format!("http://x/{i}"), 7, 9000));
    crash(rock);
    bytes[SLOT * 4..SLOT * 5].copy_from_slice(&other.bytes()[SLOT * 4..SLOT * 5]);
    place.set_bytes(&bytes);
    let rock = place.open();
    assert_eq!(count(&*rock, "x", 6), 3);
    assert_eq!(see(&*rock, "http://x/3"), Seen::Nothing, "the other store's");
}

#[test]
fn without_a_good_snapshot_all_slots_are_looked_at() {
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 4] = [
        ("missing", |path| fs::remove_file(path).expect("removed")),
        ("empty", |path| fs::write(path, b"").expect("written")),
        ("cut", |path| {
            let bytes = fs::read(path).expect("read");
            fs::write(path, &bytes[..bytes.len() - 9]).expect("written");
        }),
        ("one bit", |path| {
            let mut bytes = fs::read(path).expect("read");
            bytes[200] ^= 16;
            fs::write(path, bytes).expect("written");
        }),
    ];
    for (name, harm) in harms {
        let place = Place::new(4 << 20);
        let rock = place.open();
        (0..20).for_each(|i| store(&*rock, &format!("http://x/{i}"), 1, 9000 * (i % 4)));
        let before = rock.stats();
        rock.close().expect("closed");
        drop(rock);
        harm(&place.path().join(super::super::files::SNAPSHOT_FILE));
        let rock = place.open_only();
        assert!(rock.stats().rebuild_percent < 100, "{name}");
        assert!(!rock.admits(Some(1)), "free slots are not known yet");
        wait_for_rebuild(&*rock);
        let after = rock.stats();
        assert_eq!(
            (after.objects, after.used_bytes),
            (before.objects, before.used_bytes),
            "{name}"
        );
        assert_eq!(count(&*rock, "x", 20), 20);
    }
}

#[test]
fn a_snapshot_holds_for_one_start_only() {
    let place = Place::new(4 << 20);
    let rock = place.open();
    store(&*rock, "http://old/", 1, 9000);
    rock.close().expect("closed");
    drop(rock);
    let snapshot = place.path().join(super::super::files::SNAPSHOT_FILE);
    let copy = fs::read(&snapshot).expect("a snapshot");
    let rock = place.open();
    assert_eq!(rock.stats().rebuild_percent, 100);
    assert!(remove(&*rock, "http://old/"));
    store(&*rock, "http://new/", 1, 9000);
    crash(rock);
    fs::write(&snapshot, copy).expect("an old snapshot, back again");
    let rock = place.open();
    assert_eq!(see(&*rock, "http://old/"), Seen::Nothing);
    assert_eq!(see(&*rock, "http://new/"), Seen::Whole(1, 9000));
}

#[test]
fn a_slot_file_that_is_not_of_this_store_is_begun_anew() {
    let place = Place::new(4 << 20);
    let rock = place.open();
    store(&*rock, "http://a/", 1, 9000);
    rock.close().expect("closed");
    drop(rock);
    let mut bytes = place.bytes();
    bytes[..8192].fill(0x55);
    place.set_bytes(&bytes);
    let rock = place.open_only();
    assert_eq!((rock.stats().rebuild_percent, rock.stats().objects), (100, 0));
    store(&*rock, "http://b/", 1, 9000);
    crash(rock);
    let rock = place.open();
    assert_eq!(
        (see(&*rock, "http://a/"), see(&*rock, "http://b/")),
        (Seen::Nothing, Seen::Whole(1, 9000))
    );
}
