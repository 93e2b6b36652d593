//! Tests of directories that fail, come late or leave.

use std::sync::atomic::Ordering::SeqCst;

use humboldt_base::clock::UnixMillis;
use humboldt_freshness::AHEAD_S_MAX;

use super::*;
use crate::cache::Cache;
use crate::disk::Lookup;
use crate::disk::tests::{SETTINGS, configs};
use crate::events::NoEvents;
use crate::scheme::{Record, RecordKind};
use crate::testing::{TestScheme, block_on, key, some_head, some_times};

const URL: &[u8] = b"http://a.example/";

fn record(number: u64, response_time: i64) -> Record {
    Record {
        key: key(number),
        kind: RecordKind::Object,
        url: URL.into(),
        head: some_head().bytes().into(),
        times: Times { response_time, ..some_times() },
    }
}

/// A directory that has an object of this key, and does not know it yet.
fn unread(number: u64) -> (Arc<Cache>, Arc<TestScheme>) {
    let scheme = TestScheme::new("/one");
    scheme.place(record(number, 1000), b"old");
    scheme.faults.unread.store(true, SeqCst);
    (Cache::new(SETTINGS, 1, configs(std::slice::from_ref(&scheme)), Arc::new(NoEvents)), scheme)
}

#[test]
fn a_directory_that_hangs_keeps_no_other_from_its_housekeeping() {
    let schemes = [TestScheme::new("/hangs"), TestScheme::new("/works")];
    let cache = Cache::new(SETTINGS, 1, configs(&schemes), Arc::new(NoEvents));
    let dirs = cache.dirs();
    let in_service = || dirs.iter().map(|dir| dir.is_in_service()).collect::<Vec<_>>();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    dirs.iter().for_each(|dir| dir.owe(key(1)));
    schemes[0].faults.removal_hangs.store(true, SeqCst);
    let mut first = pin!(cache.maintain());
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert_eq!(in_service(), [false, true]);
    // Nor does the round that does not end keep the next one.
    dirs.iter().for_each(|dir| dir.owe(key(2)));
    block_on(cache.maintain());
    assert_eq!(in_service(), [false, true]);
    schemes[0].faults.removal_hangs.store(false, SeqCst);
    block_on(first);
    block_on(cache.maintain());
    assert_eq!(in_service(), [true, true]);
}

#[test]
fn what_is_replaced_before_the_index_is_read_is_never_found() {
    let (cache, scheme) = unread(1);
    block_on(cache.remove_from_disk(&key(1)));
    assert!(scheme.body(&key(1)).is_some(), "it waits");
    scheme.faults.unread.store(false, SeqCst);
    assert!(!cache.on_disk(&key(1)), "and nobody finds it meanwhile");
    block_on(cache.maintain());
    assert!(scheme.body(&key(1)).is_none());
}

/// An error took it out of service, and the next configuration opens it again.
#[test]
fn what_is_replaced_while_a_directory_is_out_of_service_is_never_found() {
    let (cache, scheme) = unread(1);
    scheme.faults.unread.store(false, SeqCst);
    block_on(cache.maintain());
    scheme.faults.down.store(true, SeqCst);
    block_on(cache.remove_from_disk(&key(1)));
    scheme.faults.down.store(false, SeqCst);
    cache.reconfigure(SETTINGS, configs(std::slice::from_ref(&scheme)));
    assert!(scheme.body(&key(1)).is_some() && !cache.on_disk(&key(1)));
    block_on(cache.maintain());
    assert!(scheme.body(&key(1)).is_none());
}

/// More newer answers than can be remembered: nothing that was there before is found, what
/// comes later is.
#[test]
fn a_directory_that_was_out_of_service_for_long_shows_nothing_of_before() {
    let last = HIDDEN_MAX as u64;
    let find = |cache: &Cache, number| block_on(cache.open(key(number), &key(number), URL));
    for is_configured in [true, false] {
        let scheme = TestScheme::new("/one");
        let configured = || configs(std::slice::from_ref(&scheme));
        let cache = Cache::new(SETTINGS, 1, configured(), Arc::new(NoEvents));
        scheme.place(record(last, 1000), b"old");
        assert!(matches!(find(&cache, last), Lookup::Found(_)));
        scheme.faults.down.store(true, SeqCst);
        if !is_configured {
            cache.reconfigure(SETTINGS, Vec::new());
        }
        (0..=last).for_each(|number| _ = block_on(cache.remove_from_disk(&key(number))));
        scheme.faults.down.store(false, SeqCst);
        cache.reconfigure(SETTINGS, configured());
        assert!(cache.dirs()[0].is_in_service(), "it owes nothing");
        assert!(matches!(find(&cache, last), Lookup::Absent));
        scheme.place(record(last, UnixMillis::now().secs() + 2 * AHEAD_S_MAX), b"new");
        assert!(matches!(find(&cache, last), Lookup::Found(_)));
    }
}

#[test]
fn a_stop_while_the_index_is_read_leaves_nothing_that_was_replaced() {
    let (cache, scheme) = unread(1);
    block_on(cache.remove_from_disk(&key(1)));
    block_on(cache.prepare_close());
    assert!(scheme.body(&key(1)).is_none());
}

#[test]
fn more_than_can_be_hidden_is_removed_at_once() {
    let last = HIDDEN_MAX as u64;
    let (cache, scheme) = unread(last);
    for number in 0..last {
        block_on(cache.remove_from_disk(&key(number)));
    }
    assert!(scheme.body(&key(last)).is_some());
    block_on(cache.remove_from_disk(&key(last)));
    assert!(scheme.body(&key(last)).is_none());
}

#[test]
fn nobody_finds_a_directory_that_leaves_and_what_is_removed_leaves_it_too() {
    let (cache, scheme) = unread(1);
    scheme.faults.unread.store(false, SeqCst);
    assert!(cache.on_disk(&key(1)));
    let configured = || configs(std::slice::from_ref(&scheme));
    cache.reconfigure_leaving(SETTINGS, Vec::new(), configured(), Vec::new());
    assert!(
        !cache.on_disk(&key(1)) && cache.dirs().is_empty() && cache.select_dir(Some(1)).is_none()
    );
    assert_eq!(block_on(cache.purge(key(1))), Purged::Found);
    assert!(scheme.body(&key(1)).is_none());
    // Closed, and not opened again yet.
    scheme.faults.down.store(true, SeqCst);
    assert_eq!(block_on(cache.purge(key(2))), Purged::Absent);
    block_on(cache.remove_from_disk(&key(3)));
    scheme.faults.down.store(false, SeqCst);
    cache.reconfigure(SETTINGS, configured());
    let dir = cache.dirs().remove(0);
    assert!(!dir.is_in_service(), "it owes what was purged");
    block_on(cache.maintain());
    assert!(dir.is_in_service());
    assert_eq!(dir.debts.hidden.count.load(SeqCst), 0);
}

/// It went down while one removal was under way: nothing else in it is concerned.
#[test]
fn a_removal_that_fails_hides_its_key_alone() {
    let (cache, scheme) = unread(1);
    scheme.faults.unread.store(false, SeqCst);
    scheme.place(record(2, 1000), b"other");
    scheme.faults.removal_hangs.store(true, SeqCst);
    let first = key(1);
    let mut removal = pin!(cache.remove_from_disk(&first));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(removal.as_mut().poll(&mut context).is_pending());
    scheme.faults.down.store(true, SeqCst);
    scheme.faults.removal_hangs.store(false, SeqCst);
    block_on(removal);
    scheme.faults.down.store(false, SeqCst);
    cache.reconfigure(SETTINGS, configs(std::slice::from_ref(&scheme)));
    assert!(!cache.on_disk(&first));
    assert!(matches!(block_on(cache.open(key(2), &key(2), URL)), Lookup::Found(_)));
}

#[test]
fn what_is_purged_or_replaced_while_a_directory_could_not_be_opened_is_not_found_in_it() {
    let scheme = TestScheme::new("/one");
    (1..=3).for_each(|number| scheme.place(record(number, 1000), b"old"));
    let cache = Cache::new(SETTINGS, 1, Vec::new(), Arc::new(NoEvents));
    let missing = vec![scheme.path().to_owned()];
    cache.reconfigure_leaving(SETTINGS, Vec::new(), Vec::new(), missing);
    assert!(cache.has_dirs());
    block_on(cache.purge(key(1)));
    block_on(cache.remove_from_disk(&key(2)));
    cache.reconfigure(SETTINGS, configs(std::slice::from_ref(&scheme)));
    block_on(cache.maintain());
    assert!(!cache.on_disk(&key(1)) && !cache.on_disk(&key(2)) && cache.on_disk(&key(3)));
}

/// The newer answer was in its memory only, and the older one is found when it is opened again.
#[test]
fn a_directory_that_has_failed_does_not_show_what_its_newest_answers_replaced() {
    let scheme = TestScheme::new("/one");
    scheme.faults.at_once.store(true, SeqCst);
    let cache = Cache::new(SETTINGS, 1, configs(std::slice::from_ref(&scheme)), Arc::new(NoEvents));
    let dir = cache.dirs().remove(0);
    block_on(cache.remove_elsewhere(&key(1), Some(&dir)));
    cache.doubt(scheme.path());
    (1..=2).for_each(|number| scheme.place(record(number, 1000), b"old"));
    cache.reconfigure(SETTINGS, configs(std::slice::from_ref(&scheme)));
    assert!(!cache.on_disk(&key(1)) && cache.on_disk(&key(2)));
}
