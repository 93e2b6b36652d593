//! A request that arrives after an answer was complete never gets an older one: single courses, the
//! order of two answers, and many threads.

mod courses;
mod threads;

use super::*;
use crate::testing::key;

fn stamp(asked: u64, answered: u64, date: i64) -> Stamp {
    Stamp { asked, answered, date, tag: 0 }
}

#[test]
fn of_two_answers_the_one_that_was_asked_for_later_is_newer_if_its_date_says_so_too() {
    use Standing::{Newest, Outdated, Unclear};
    let other = stamp(10, 20, 100);
    let rows = [
        // In sequence: independent of their fields.
        (stamp(21, 30, 0), Newest),
        (stamp(1, 9, 999), Outdated),
        // At the same time.
        (stamp(11, 30, 100), Newest),
        (stamp(11, 15, 101), Newest),
        (stamp(9, 15, 100), Outdated),
        (stamp(9, 30, 99), Outdated),
        // A Date cannot order answers within its second.
        (stamp(11, 15, 100), Unclear),
        (stamp(9, 30, 100), Unclear),
        (stamp(11, 30, 99), Unclear),
        (stamp(9, 30, 101), Unclear),
    ];
    for (one, expected) in rows {
        assert_eq!(one.beside(&other), expected, "{one:?}");
        let reverse = match expected {
            Newest => Outdated,
            Outdated => Newest,
            Unclear => Unclear,
        };
        assert_eq!(other.beside(&one), reverse, "{one:?}");
    }
}

#[test]
fn answers_with_the_same_strong_entity_tag_are_the_same_version() {
    let versions = Arc::default();
    for (tag, expected) in [("\"1\"", Standing::Newest), ("\"2\"", Standing::Outdated)] {
        let (slow, part) = (fetch(&versions), fetch(&versions));
        part.answer(5, Some(b"\"1\""));
        assert_eq!(part.announce(&[(key(1), 0)]), Standing::Newest);
        part.complete(&key(1), || ());
        slow.answer(4, Some(tag.as_bytes()));
        assert_eq!(slow.announce(&[(key(1), 0)]), expected, "{tag}");
    }
}

fn fetch(versions: &Arc<Versions>) -> Fetch {
    let fetch = Fetch::new(versions, key(1));
    fetch.begin_writing();
    fetch
}

fn is_newest(fetch: &Fetch) -> bool {
    let stamp = fetch.stamp();
    fetch.versions.while_newest(&fetch.primary, &key(1), 0, stamp.as_ref(), || ()).is_some()
}

fn finish(fetch: &Fetch, date: i64, of: u64) -> Standing {
    fetch.answer(date, None);
    let standing = fetch.announce(&[(key(of), 0)]);
    fetch.complete(&key(of), || ());
    fetch.end_writing();
    standing
}

#[test]
fn what_is_coming_makes_nothing_outdated_before_it_is_complete() {
    let versions = Arc::default();
    for is_aborted in [true, false] {
        let (slow, newer) = (fetch(&versions), fetch(&versions));
        newer.answer(5, None);
        assert_eq!(newer.announce(&[(key(1), 0)]), Standing::Newest);
        slow.answer(4, None);
        assert!(is_newest(&slow));
        if !is_aborted {
            newer.complete(&key(1), || ());
        }
        newer.end_writing();
        assert_eq!(is_newest(&slow), is_aborted);
    }
}

#[test]
fn nothing_is_remembered_of_a_url_that_nobody_fetches() {
    let versions = Arc::default();
    assert_eq!(finish(&fetch(&versions), 1, 1), Standing::Newest);
    drop(Reading::new(&versions, key(1)));
    assert!(versions.is_empty());
}

#[test]
fn an_answer_is_remembered_for_those_alone_who_were_on_their_way() {
    let versions = Arc::default();
    for others in [0, 1] {
        let _slow: Vec<Fetch> = (0..others).map(|_| fetch(&versions)).collect();
        let own = fetch(&versions);
        assert_eq!(finish(&own, 1, 1), Standing::Newest);
        let notes = versions.shard(&key(1)).get(&key(1)).map(|known| known.notes.len());
        assert_eq!(notes, Some(others));
        // A request that comes now is newer, whether something is remembered or not.
        assert!(Reading::new(&versions, key(1)).while_newest(&key(1), || ()).is_some());
        assert_eq!(finish(&fetch(&versions), 0, 1), Standing::Newest);
    }
}

#[test]
fn answers_of_one_vary_marker_stand_beside_each_other() {
    let versions = Arc::default();
    let (one, two, three) = (fetch(&versions), fetch(&versions), fetch(&versions));
    three.answer(9, None);
    assert_eq!(three.announce(&[(key(1), 7), (key(2), 0)]), Standing::Newest);
    three.complete(&key(2), || ());
    one.answer(5, None);
    assert_eq!(one.announce(&[(key(1), 7), (key(3), 0)]), Standing::Newest);
    two.answer(5, None);
    assert_eq!(two.announce(&[(key(1), 8), (key(3), 0)]), Standing::Outdated, "another marker");
}

#[test]
fn beyond_the_bound_what_was_asked_for_long_ago_is_not_stored() {
    let versions = Arc::default();
    for (answers, expected) in [(NOTES_MAX, Standing::Newest), (NOTES_MAX + 1, Standing::Outdated)]
    {
        let (slow, reading) = (fetch(&versions), Reading::new(&versions, key(1)));
        for of in 0..answers as u64 {
            assert_eq!(finish(&fetch(&versions), 1, 100 + of), Standing::Newest);
        }
        let notes = versions.shard(&key(1)).get(&key(1)).map(|known| known.notes.len());
        assert_eq!(notes, Some(NOTES_MAX));
        let is_newest = reading.while_newest(&key(1), || ()).is_some();
        assert_eq!((finish(&slow, 1, 1), is_newest), (expected, expected == Standing::Newest));
        // Later ones are as before.
        assert_eq!(finish(&fetch(&versions), 1, 1), Standing::Newest);
    }
}

#[test]
fn of_one_key_one_answer_is_remembered() {
    let versions = Arc::default();
    let slow = fetch(&versions);
    (0..10 * NOTES_MAX).for_each(|_| assert_eq!(finish(&fetch(&versions), 1, 1), Standing::Newest));
    assert_eq!(versions.shard(&key(1)).get(&key(1)).map(|known| known.notes.len()), Some(1));
    assert_eq!(finish(&slow, 0, 1), Standing::Outdated);
}
