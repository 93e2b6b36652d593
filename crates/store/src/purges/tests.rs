//! Numbers, bounds, and the contents of a log after every possible event.

use std::fs;

use humboldt_http::{ResponseHead, Version};
use tempfile::TempDir;

use super::*;
use crate::body::Body;
use crate::key::Key;
use crate::testing::some_times;

const URL: &[u8] = b"http://a.example/dir/x";

fn tag(tag: &str) -> Purge {
    Purge::tag(tag.as_bytes()).expect("a good tag")
}

fn prefix(prefix: &str) -> Purge {
    Purge::prefix(prefix.as_bytes()).expect("a good prefix")
}

fn head(field: &str, value: &str) -> Arc<StoredHead> {
    let mut head = ResponseHead::default();
    head.set_line(Version::Http11, 200, b"OK");
    head.fields.push_named(field.as_bytes(), value.as_bytes());
    Arc::new(StoredHead::from_response(&head, |_, _| false))
}

/// An object with the tags `a` and `b` that was asked for at this number.
fn object(purge_number: u64) -> Object {
    let times = Times { purge_number, ..some_times() };
    Object::new(Key::primary(URL), URL.into(), head("Surrogate-Key", "a b"), times, Body::default())
}

fn purges_in(folder: &TempDir) -> Purges {
    let purges = Purges::default();
    purges.keep_in(places(folder)).expect("a log");
    purges
}

/// The state that another process would find if this one was killed now.
fn after_a_crash(before: &TempDir) -> Purges {
    let folder = folder();
    fs::copy(before.path().join("log"), folder.path().join("log")).expect("a log");
    purges_in(&folder)
}

fn places(folder: &TempDir) -> Option<PurgePlaces> {
    Some(PurgePlaces { log: folder.path().join("log"), former: Vec::new() })
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

fn concerns(purges: &Purges, number: u64) -> bool {
    let object = object(number);
    purges.concerns(&object.times, &object.url, &object.head)
}

#[test]
fn a_purge_concerns_what_was_asked_for_before_it() {
    let purges = Purges::default();
    for (purge, is_concerned) in [
        (tag("a"), true),
        (tag("b"), true),
        (tag("c"), false),
        (tag("A"), false),
        (prefix("http://a.example/dir/"), true),
        (prefix("http://a.example/dir/x"), true),
        (prefix("http://a.example/dir/xy"), false),
        (prefix("http://a.example/dix"), false),
    ] {
        let before = purges.newest();
        let (old, new) = (object(before), object(before + 1));
        assert!(!purges.has_purged(&old));
        purges.register_now(std::slice::from_ref(&purge)).expect("in memory");
        assert_eq!(purges.newest(), before + 1);
        for _ in 0..2 {
            assert_eq!(purges.has_purged(&old), is_concerned, "{purge:?}");
            assert!(!purges.has_purged(&new), "{purge:?}");
        }
        assert_eq!(concerns(&purges, before), is_concerned, "{purge:?}");
    }
}

#[test]
fn an_object_is_looked_at_once_for_each_purge() {
    let purges = Purges::default();
    let object = object(0);
    purges.register_now(&[tag("x"), tag("y")]).expect("in memory");
    assert_eq!(object.clean_to(), 0);
    assert!(!purges.has_purged(&object));
    assert_eq!(object.clean_to(), 2);
    purges.register_now(&[tag("z"), tag("a")]).expect("in memory");
    assert!(purges.has_purged(&object) && object.clean_to() == 2);
    let confirmed = object.refreshed((*object.head).clone(), object.times);
    assert!(purges.has_purged(&confirmed), "a new head of the same body");
}

#[test]
fn tags_are_read_from_both_fields_as_each_writes_them() {
    let purges = Purges::default();
    purges.register_now(&[tag("a"), tag("b c")]).expect("in memory");
    let times = some_times();
    for (field, value, is_purged) in [
        ("Surrogate-Key", "x  a\ty", true),
        ("surrogate-key", "a", true),
        ("Surrogate-Key", "a,x", false),
        ("Surrogate-Key", "b c", false),
        ("Cache-Tag", "x, b c ,y", true),
        ("Cache-Tag", "a", true),
        ("Cache-Tag", "x a", false),
        ("Cache-Tags", "a", false),
        ("X-Cache-Tag", "a", false),
    ] {
        assert_eq!(
            purges.concerns(&times, URL, &head(field, value)),
            is_purged,
            "{field}: {value}"
        );
    }
}

#[test]
fn beyond_the_bound_the_oldest_purges_become_one_of_everything_older() {
    let purges = Purges::default();
    let all: Vec<_> = (0..PURGES_MAX).map(|n| tag(&format!("t{n}"))).collect();
    purges.register_now(&all).expect("in memory");
    assert!(!concerns(&purges, 0), "each is known");
    purges.register_now(&[tag("one more"), tag("t5")]).expect("in memory");
    // The first one has gone; the sixth one is the newest now.
    assert!(concerns(&purges, 0));
    assert!((1..20).all(|number| !concerns(&purges, number)));
    let list = purges.list.read();
    assert_eq!((list.len(), list.floor), (PURGES_MAX, 1));
    drop(list);
    let long: Vec<_> = (0..2_000).map(|n| tag(&format!("{n:04000}"))).collect();
    purges.register_now(&long).expect("in memory");
    let list = purges.list.read();
    assert!(list.len() < 1_100 && list.floor > PURGES_MAX as u64, "{} {}", list.len(), list.floor);
    assert_eq!(
        list.iter().map(|(_, purge)| purge.bytes().len()).sum::<usize>() / 4_000,
        list.len()
    );
}

#[test]
fn nonsense_is_no_tag() {
    assert!(
        Purge::tag(b"").is_none()
            && Purge::tag(b"a\nb").is_none()
            && Purge::prefix(b"\0").is_none()
    );
    assert!(Purge::tag(&[b'x'; PURGE_BYTES_MAX]).is_some());
    assert!(Purge::tag(&[b'x'; PURGE_BYTES_MAX + 1]).is_none());
}

#[test]
fn a_log_brings_everything_back() {
    let folder = folder();
    let purges = purges_in(&folder);
    let begun = purges.newest();
    assert!(begun > 1 << 44, "numbers begin at the clock");
    purges
        .register_now(&[tag("a"), prefix("http://a.example/d"), tag("caf\u{e9} x")])
        .expect("a log");
    purges.register_now(&[tag("a")]).expect("a log");
    drop(purges);
    let again = purges_in(&folder);
    assert_eq!(again.newest(), begun + 4);
    assert!((begun..begun + 4).all(|number| concerns(&again, number)), "tag or prefix");
    assert!(!concerns(&again, begun + 4));
    let all: Vec<_> =
        again.list.read().iter().map(|(number, purge)| (number - begun, purge.clone())).collect();
    assert_eq!(all, [(2, prefix("http://a.example/d")), (3, tag("caf\u{e9} x")), (4, tag("a"))]);
    again.register_now(&[tag("b")]).expect("a log");
    assert_eq!(after_a_crash(&folder).newest(), begun + 5);
}

#[test]
fn a_log_that_is_written_anew_says_the_same() {
    let folder = folder();
    let purges = purges_in(&folder);
    let begun = purges.newest();
    for round in 0..3 {
        let all: Vec<_> = (0..700).map(|n| tag(&format!("t{}", n % 10))).collect();
        purges.register_now(&all).expect("a log");
        let lines = fs::read_to_string(folder.path().join("log")).expect("text").lines().count();
        assert!(lines <= 1 + 10 + 1024, "{lines} lines in round {round}");
    }
    let again = after_a_crash(&folder);
    assert_eq!((purges.newest(), again.newest()), (begun + 2_100, begun + 2_100));
    assert_eq!(again.list.read().len(), 10);
}

#[test]
fn the_bound_holds_in_the_log_too() {
    let folder = folder();
    let purges = purges_in(&folder);
    let begun = purges.newest();
    let all: Vec<_> = (0..PURGES_MAX + 100).map(|n| tag(&format!("t{n}"))).collect();
    all.chunks(500).for_each(|some| purges.register_now(some).expect("a log"));
    for purges in [&purges, &after_a_crash(&folder), &after_a_crash(&folder)] {
        assert!(
            concerns(purges, 0) && concerns(purges, begun + 99) && !concerns(purges, begun + 100)
        );
    }
}

#[test]
fn a_torn_end_is_dropped_and_damage_purges_everything() {
    let folder = folder();
    let path = folder.path().join("log");
    let purges = purges_in(&folder);
    let begun = purges.newest();
    purges.register_now(&[tag("x"), tag("y")]).expect("a log");
    drop(purges);
    let whole = fs::read(&path).expect("a log");
    let last_line =
        whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').expect("lines") + 1;
    let torn = [&whole[..], b"0123456789abcdef tag 17"].concat();
    for length in last_line..torn.len() {
        fs::write(&path, &torn[..length]).expect("written");
        let purges = purges_in(&folder);
        let known = if length < whole.len() { 1 } else { 2 };
        assert_eq!((purges.newest(), concerns(&purges, begun)), (begun + known, false), "{length}");
    }
    let header = whole.iter().position(|byte| *byte == b'\n').expect("a header") + 1;
    for at in [0, 5, 20, header - 1, header + 3, header + 25] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&path, &damaged).expect("written");
        let purges = purges_in(&folder);
        assert!((0..3).all(|n| concerns(&purges, begun + n)) && concerns(&purges, 0), "byte {at}");
        assert!(!concerns(&purges, purges.newest()) && purges.newest() > begun + 2);
        assert!(concerns(&after_a_crash(&folder), begun + 2), "also after another start");
    }
}

#[test]
fn what_belongs_to_a_log_that_was_lost_is_purged_for_ever() {
    let folder = folder();
    let lost = purges_in(&folder);
    lost.register_now(&[tag("x")]).expect("a log");
    let number = lost.newest();
    drop(lost);
    fs::remove_file(folder.path().join("log")).expect("it was there");
    // At least another second: as if time had passed.
    let next = Purges::default();
    next.replace(List::default().begun_at(number + NUMBERS_PER_SECOND));
    next.keep_in(places(&folder)).expect("a log");
    drop(next);
    let next = purges_in(&folder);
    assert!(concerns(&next, number) && concerns(&next, number - 1));
    assert!(!concerns(&next, 0), "from before there were such purges");
    assert!(concerns(&next, next.newest() + 1), "a number that nobody has given");
    let some: Vec<_> = (0..100).map(|n| tag(&format!("t{n}"))).collect();
    next.register_now(&some).expect("a log");
    assert!(concerns(&next, number));
}

#[test]
fn a_log_that_is_removed_meanwhile_is_written_again() {
    let folder = folder();
    let purges = purges_in(&folder);
    let begun = purges.newest();
    purges.register_now(&[tag("a")]).expect("a log");
    fs::remove_file(folder.path().join("log")).expect("it was there");
    purges.register_now(&[tag("x")]).expect("a log");
    assert!(concerns(&after_a_crash(&folder), begun));
}

#[test]
fn nothing_is_purged_that_cannot_be_written_down() {
    let folder = folder();
    let missing = folder.path().join("missing");
    let purges = Purges::default();
    let places = Some(PurgePlaces { log: missing.join("log"), former: Vec::new() });
    let error = purges.keep_in(places.clone()).expect_err("no such directory").to_string();
    assert!(error.contains("missing/log: ") && error.contains("purge_log"), "{error}");
    let stored = object(purges.newest());
    assert!(purges.register_now(&[tag("a")]).is_err());
    assert!(!purges.has_purged(&stored) && !concerns(&purges, 0));
    fs::create_dir(&missing).expect("a directory");
    purges.register_now(&[tag("a")]).expect("now there is a place");
    assert!(purges.has_purged(&stored) && concerns(&purges, 0));
    drop(purges);
    let again = Purges::default();
    again.keep_in(places).expect("a log");
    assert!(concerns(&again, 0));
}

#[test]
fn a_log_is_for_one_process() {
    let folder = folder();
    let purges = purges_in(&folder);
    purges.register_now(&[tag("a")]).expect("a log");
    let other = Purges::default();
    let error = other.keep_in(places(&folder)).expect_err("locked").to_string();
    assert!(error.contains("in use by another process"), "{error}");
    assert!(other.register_now(&[tag("b")]).is_err());
    purges.register_now(&[tag("c")]).expect("still ours");
    drop(purges);
    other.register_now(&[tag("b")]).expect("free now");
    assert_eq!(other.list.read().len(), 3);
}

#[test]
fn purges_move_with_their_log_and_join_what_is_there() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let keep = |purges: &Purges, log: &str, former: &[&str]| {
        let former = former.iter().map(|name| path(name)).collect();
        purges.keep_in(Some(PurgePlaces { log: path(log), former })).expect("a log");
    };
    // In memory only at first, then with a directory.
    let purges = Purges::default();
    purges.register_now(&[tag("m")]).expect("in memory");
    keep(&purges, "one", &[]);
    purges.register_now(&[tag("a")]).expect("a log");
    let number = purges.newest();
    keep(&purges, "two", &[]);
    assert!(!path("one").exists(), "taken over");
    purges.register_now(&[tag("x")]).expect("a log");
    drop(purges);
    // Another first directory after a restart, and an older log in it.
    let older = Purges::default();
    keep(&older, "three", &[]);
    older.register_now(&[prefix("http://a.example/dir/")]).expect("a log");
    drop(older);
    let purges = Purges::default();
    keep(&purges, "three", &["two", "none"]);
    assert!(!path("two").exists());
    assert_eq!(purges.list.read().len(), 4);
    assert!(concerns(&purges, number) && concerns(&purges, number - 1));
    assert!(!concerns(&purges, purges.newest()));
    keep(&purges, "three", &[]);
    purges.keep_in(None).expect("nothing to do");
    purges.register_now(&[tag("y")]).expect("a log");
    drop(purges);
    let purges = Purges::default();
    keep(&purges, "three", &[]);
    assert_eq!(purges.list.read().len(), 5);
}

#[test]
fn the_last_number_is_the_last() {
    let folder = folder();
    let last = Purges::default();
    let list = List::default().begun_at(Times::PURGE_NUMBER_MAX - 1);
    Log::create(&folder.path().join("log"), &list).expect("written");
    last.keep_in(places(&folder)).expect("a log");
    let stored = object(last.newest());
    assert!(matches!(last.register_now(&[tag("a"), tag("b")]), Err(PurgeError::Exhausted)));
    assert!(!last.has_purged(&stored));
    last.register_now(&[tag("a")]).expect("the last one");
    assert!(last.has_purged(&stored));
    assert!(matches!(last.register_now(&[tag("a")]), Err(PurgeError::Exhausted)));
}
