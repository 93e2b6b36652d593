//! A removed object stays removed, and an older one never comes back in the place of a younger.

use std::task::Poll;

use super::*;
use crate::rock::chain::Chain;
use crate::rock::refill;
use crate::rock::slots::Tag;
use crate::rock::update::put_back;
use humboldt_store::index::IndexKey;

const SMALL: u64 = 64 * SLOT as u64;

#[test]
fn what_has_been_evicted_is_purged_for_good() {
    for is_clean in [false, true] {
        let place = Place::new(SMALL);
        let mut rock = place.open();
        (0..70).for_each(|i| store(&*rock, &format!("http://e/{i}"), 1, 9000));
        let gone = (0..70).map(|i| format!("http://e/{i}")).filter(|url| !rock.contains(&key(url)));
        let gone: Vec<String> = gone.collect();
        assert!(gone.len() >= 5);
        if is_clean {
            rock.close().expect("closed");
            drop(rock);
            rock = place.open();
        }
        // Some of the evicted ones are still on disk; whether or not, they are gone for good.
        gone.iter().for_each(|url| assert!(!remove(&*rock, url)));
        crash(rock);
        let rock = place.open();
        gone.iter()
            .for_each(|url| assert_eq!(see(&*rock, url), Seen::Nothing, "{url}, clean {is_clean}"));
    }
}

#[test]
fn an_evicted_object_may_come_back_after_a_crash_while_nobody_has_purged_it() {
    let place = Place::new(SMALL);
    let rock = place.open();
    (0..60).for_each(|i| store(&*rock, &format!("http://e/{i}"), 1, 9000));
    run(rock.maintain()).expect("maintenance");
    assert!(rock.stats().objects < 60);
    crash(rock);
    // The table of stale slots exists for this: otherwise the test above would prove nothing.
    let rock = place.bare();
    refill::scan_here(&rock.dir, || ());
    assert_eq!(rock.stats().objects, 60);
}

#[test]
fn an_older_version_does_not_come_back_when_the_younger_is_evicted() {
    let place = Place::new(SMALL);
    for replaced_directly in [true, false] {
        let rock = place.open();
        store(&*rock, "http://v/", 1, 9000);
        if !replaced_directly {
            (0..80).for_each(|i| store(&*rock, &format!("http://push/{i}"), 1, 3 * 9000));
            assert!(!rock.contains(&key("http://v/")));
        }
        store(&*rock, "http://v/", 2, 9000);
        (0..400).for_each(|i| store(&*rock, &format!("http://fill/{i}"), 1, 9000));
        assert!(!rock.contains(&key("http://v/")));
        crash(rock);
        let rock = place.open();
        assert!([Seen::Nothing, Seen::Whole(2, 9000)].contains(&see(&*rock, "http://v/")));
        rock.close().expect("closed");
    }
}

#[test]
fn an_update_that_a_younger_object_has_overtaken_leaves_nothing_that_could_come_back() {
    [false, true].into_iter().for_each(overtaken_update);
}

fn overtaken_update(is_evicted: bool) {
    let place = Place::new(8 << 20);
    let rock = place.bare();
    let (url, index_key) = ("http://a/", IndexKey::from(&key("http://a/")));
    store(&rock, url, 1, 5000);
    let dir = &rock.dir;
    // As an update does while it writes.
    let entry = dir.index.remove(index_key).expect("stored");
    dir.slots.lock().add_stale(Tag::from(index_key), entry.file);
    store(&rock, url, 2, 5000);
    // The younger one is there, or has been evicted already.
    let younger = if is_evicted { dir.index.remove(index_key) } else { None };
    if let Some(younger) = younger {
        dir.retire(&mut dir.slots.lock(), index_key, younger);
    }
    put_back(dir, index_key, entry, true);
    wait_for_used(&rock, u64::from(!is_evicted));
    let left: Vec<u32> = younger.iter().map(|younger| younger.file).collect();
    assert_eq!(dir.slots.lock().stale_of(Tag::from(index_key)), left);
    assert!(!dir.slots.lock().is_overtaken(entry.file), "forgotten");
    let at = dir.device.geometry.offset(entry.file) as usize;
    drop(rock);
    assert!(place.bytes()[at..at + 512].iter().all(|byte| *byte == 0), "it is overwritten");
    assert_eq!(see(&*place.open(), url), Seen::Whole(2, 5000));
}

#[test]
fn what_is_left_of_an_evicted_object_is_overwritten_when_its_key_is_stored_anew() {
    let place = Place::new(SMALL);
    let rock = place.bare();
    let tag = Tag::from(IndexKey::from(&key("http://v/")));
    store(&rock, "http://v/", 1, 9000);
    (0..62).for_each(|i| store(&rock, &format!("http://fill/{i}"), 1, 9000));
    assert!(!rock.contains(&key("http://v/")) && !rock.dir.slots.lock().stale_of(tag).is_empty());
    store(&rock, "http://v/", 2, 9000);
    rock.dir.device.file.wait_idle(std::time::Duration::from_secs(10));
    assert_eq!(rock.dir.slots.lock().stale_of(tag), []);
}

#[test]
fn a_stale_slot_counts_until_its_new_content_has_been_written() {
    let place = Place::new(SMALL);
    let rock = place.bare();
    let tag = Tag::from(IndexKey::from(&key("http://old/")));
    rock.dir.slots.lock().take_exactly(0);
    rock.dir.slots.lock().give_back_stale(0, tag);
    let pass = rock.dir.device.pass().expect("open");
    for _ in 0..2 {
        let chain = Chain::new(&rock.dir, IndexKey::from(&key("http://new/")));
        chain.append(&rock.dir.take(&pass, 63).expect("all of it"));
        assert_eq!(rock.dir.slots.lock().stale_of(tag), [0], "nothing is written yet");
        drop(chain);
        assert_eq!(rock.dir.slots.lock().stale_of(tag), [0], "nor will it be");
        assert_eq!(rock.stats().used_bytes, 0);
    }
}

#[test]
fn replacing_costs_one_small_write_more() {
    let place = Place::new(SMALL);
    let rock = place.open();
    store(&*rock, "http://v/", 1, 9000);
    for round in 0..100 {
        let before = rock.stats();
        store(&*rock, "http://v/", 2, 9000);
        wait_for_used(&*rock, 1);
        let after = rock.stats();
        assert_eq!(after.write_ops - before.write_ops, 2, "round {round}");
        assert_eq!(after.write_bytes - before.write_bytes, 12_288 + 4096);
    }
}

#[test]
fn purges_before_and_during_a_scan_hold_also_through_a_crash() {
    let place = Place::new(4 << 20);
    let rock = place.open();
    (0..20).for_each(|i| store(&*rock, &format!("http://p/{i}"), 1, 9000 + (i % 3) * 20_000));
    crash(rock);
    let rock = place.open_only();
    assert!(!remove(&*rock, "http://p/3"), "not known yet");
    crash(rock); // before the scan has begun
    let rock = place.open_only();
    assert!(!remove(&*rock, "http://p/4"));
    assert!(!remove(&*rock, "http://p/5"));
    run(rock.maintain()).expect("the scan begins");
    remove(&*rock, "http://p/6");
    crash(rock); // somewhere in it
    let rock = place.open();
    let check = |rock: &dyn Scheme| {
        (3..7).for_each(|i| {
            assert_eq!(see(rock, &format!("http://p/{i}")), Seen::Nothing, "object {i}")
        });
        assert_eq!(count(rock, "p", 20), 16);
    };
    check(&*rock);
    store(&*rock, "http://p/4", 2, 5000);
    crash(rock);
    let rock = place.open();
    assert_eq!(see(&*rock, "http://p/4"), Seen::Whole(2, 5000), "stored anew after the purge");
    assert!(remove(&*rock, "http://p/4"));
    check(&*rock);
    crash(rock);
    check(&*place.open());
}

#[test]
fn what_is_stored_or_purged_during_a_scan_wins_over_what_it_finds() {
    let place = Place::new(SMALL);
    let rock = place.open();
    (0..30).for_each(|i| store(&*rock, &format!("http://s/{i}"), 1, 9000));
    crash(rock);
    let rock = place.bare();
    refill::scan_here(&rock.dir, || {
        store(&rock, "http://s/7", 2, 13_000);
        assert!(!remove(&rock, "http://s/8"));
        store(&rock, "http://s/9", 2, 13_000);
        assert!(remove(&rock, "http://s/9"));
        assert!(!remove(&rock, "http://s/10"));
        store(&rock, "http://s/10", 3, 700);
    });
    let check = |rock: &dyn Scheme| {
        let seen: Vec<Seen> = (7..12).map(|i| see(rock, &format!("http://s/{i}"))).collect();
        let expected = [
            Seen::Whole(2, 13_000),
            Seen::Nothing,
            Seen::Nothing,
            Seen::Whole(3, 700),
            Seen::Whole(1, 9000),
        ];
        assert_eq!(seen, expected);
        assert_eq!((rock.stats().objects, rock.stats().used_bytes), (28, 28 * SLOT as u64));
    };
    check(&rock);
    drop(rock);
    check(&*place.open());
}

#[test]
fn removals_during_a_scan_are_bounded() {
    let place = Place::new(SMALL);
    let rock = place.open();
    store(&*rock, "http://a/", 1, 100);
    crash(rock);
    let rock = place.bare();
    rock.dir.rebuild.pretend_log_is_full();
    let refused = run(rock.remove(&key("http://a/")));
    assert!(matches!(refused, Err(humboldt_store::scheme::SchemeError::Busy(_))));
    wait_for_rebuild(&rock);
    assert!(remove(&rock, "http://a/"));
}

#[test]
fn a_purge_waits_for_what_is_being_written() {
    let place = Place::new(SMALL);
    let rock = place.bare();
    let tag = Tag::from(IndexKey::from(&key("http://w/")));
    // A write of this key is under way in slot 5, as far as the books say.
    let taken = rock.dir.slots.lock().take_exactly(5);
    assert!(taken.is_some());
    rock.dir.slots.lock().add_stale(tag, 5);
    let purge = async {
        let removed = rock.remove(&key("http://w/")).await.expect("removed");
        assert!(rock.dir.slots.lock().stale_of(tag).is_empty(), "not before the write has ended");
        removed
    };
    let end_of_write = async {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        rock.dir.slots.lock().give_back_stale(5, tag);
        rock.dir.changed.notify_waiters();
    };
    run(async {
        let (removed, ()) = tokio::join!(purge, end_of_write);
        assert!(!removed);
    });
    assert_eq!(rock.stats().used_bytes, 0);
}

/// The log of removals during a scan is on the disk: no removal waits for that with the object
/// still to be found.
#[test]
fn what_is_removed_during_a_scan_is_gone_before_that_is_logged() {
    let place = Place::new(SMALL);
    let rock = place.open();
    store(&*rock, "http://s/1", 1, 9000);
    crash(rock);
    let rock = place.bare();
    refill::scan_here(&rock.dir, || {
        store(&rock, "http://s/2", 1, 9000);
        let wanted = key("http://s/2");
        assert!(rock.contains(&wanted));
        run(async {
            let mut removal = rock.remove(&wanted);
            let first = std::future::poll_fn(|cx| Poll::Ready(removal.as_mut().poll(cx))).await;
            assert!(!rock.contains(&wanted));
            let was_there = if let Poll::Ready(outcome) = first { outcome } else { removal.await };
            assert!(was_there.expect("removed"));
        });
    });
    assert_eq!(
        (see(&rock, "http://s/1"), see(&rock, "http://s/2")),
        (Seen::Whole(1, 9000), Seen::Nothing)
    );
}
