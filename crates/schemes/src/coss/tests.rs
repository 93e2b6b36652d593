//! Promises of `coss` alone: relocation, wrap-around, stripes that are lost or torn, the bounds of
//! its queues.

mod damage;
mod waiting;

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use humboldt_store::index::IndexKey;
use humboldt_store::scheme::{Scheme, SchemeError};
use tempfile::TempDir;

use super::Coss;
use super::format::{PURGES_OFFSET, TRAILER_BYTES};
use super::geometry::new_purge_bytes;
use crate::battery::{Seen, body, key, put, record, run, see, wait_for_rebuild};
use crate::coss::DirOptions;

const MIB: u64 = 1 << 20;

/// A store of `mib` MiB in a file of its own.
struct Store {
    coss: Option<Coss>,
    options: DirOptions,
    _dir: TempDir,
}

impl Store {
    fn new(mib: u64, adapt: impl FnOnce(&mut DirOptions)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut options = DirOptions::new(dir.path().join("stripes"), mib * MIB);
        options.own.overwrite_percent = 0;
        adapt(&mut options);
        let mut store = Self { coss: None, options, _dir: dir };
        store.open();
        store
    }

    fn open(&mut self) {
        let coss = Coss::open(&self.options).unwrap_or_else(|e| panic!("open: {e}"));
        wait_for_rebuild(&coss);
        self.coss = Some(coss);
    }

    fn coss(&self) -> &Coss {
        self.coss.as_ref().expect("it is open")
    }

    fn crash(&mut self) {
        self.crash_and(|_| ());
    }

    fn crash_and(&mut self, meanwhile: impl FnOnce(&Path)) {
        self.coss = None;
        meanwhile(&self.options.path);
        self.open();
    }

    fn restart_and(&mut self, meanwhile: impl FnOnce(&Path)) {
        self.coss().close().expect("a clean stop");
        self.crash_and(meanwhile);
    }

    /// Stores an object, whatever has to be waited for.
    fn put(&self, url: &str, version: u8, len: u64) {
        let start = Instant::now();
        while let Err(error) = put(self.coss(), url, version, len) {
            assert!(
                matches!(error, SchemeError::Busy(_)) && start.elapsed() < Duration::from_secs(30),
                "{error}"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn see(&self, url: &str) -> Seen {
        see(self.coss(), url)
    }

    fn remove(&self, url: &str) -> Result<bool, SchemeError> {
        run(self.coss().remove(&key(url)))
    }

    fn maintain(&self) {
        run(self.coss().maintain()).expect("maintenance");
    }

    /// Slot in which a key lies.
    fn slot(&self, url: &str) -> u32 {
        let entry = self.coss().dir.index.peek(IndexKey::from(&key(url))).expect("it is there");
        self.coss().dir.geometry.locate(entry.file).0
    }

    /// Waits until no full stripe is waiting.
    fn settle(&self) {
        wait_until("full stripes are written", || self.coss().dir.log.lock().full.is_empty());
    }

    /// Stores large objects until slot `slot` is being filled.
    fn fill_up_to(&self, slot: u32) {
        for i in 0.. {
            let now =
                self.coss().dir.log.lock().filling.as_ref().map(|filling| filling.buf.name.slot);
            if now == Some(slot) {
                return;
            }
            self.put(&format!("http://fill/{i}"), 1, 400_000);
        }
    }

    /// The start of a slot in the file.
    fn offset(&self, slot: u32) -> u64 {
        PURGES_OFFSET + new_purge_bytes(self.options.capacity_bytes) + u64::from(slot) * MIB
    }
}

/// Waits for something that the worker will do.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn url(i: u64) -> String {
    format!("http://coss/{i}")
}

fn write_at(path: &Path, offset: u64, bytes: &[u8]) {
    let file = fs::File::options().write(true).open(path).expect("the file");
    file.write_all_at(bytes, offset).expect("written");
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Stores, removes, updates, restarts and crashes, many times around the file. A look-up gives the
/// last stored object, or nothing; after a crash perhaps an older one, but never one from before a
/// removal.
#[test]
fn many_laps_agree_with_a_model() {
    for percent in [0, 50, 100] {
        let mut store = Store::new(5, |options| options.own.overwrite_percent = percent);
        let mut model: HashMap<u64, Vec<(u8, u64)>> = HashMap::new();
        let (mut state, mut hits) = (u64::from(percent) + 7, 0);
        for step in 0..2500_u64 {
            let i = next(&mut state) % 60;
            let known = model.entry(i).or_default();
            match next(&mut state) % 20 {
                0..8 => {
                    let len = [0, 600, 13_000, 90_000][next(&mut state) as usize % 4];
                    store.put(&url(i), step as u8, len);
                    known.push((step as u8, len));
                }
                8 => {
                    store.remove(&url(i)).expect("removed");
                    known.clear();
                }
                9 => store.maintain(),
                10 if step % 7 == 0 => store.restart_and(|_| ()),
                11 if step % 7 == 0 => {
                    store.crash();
                    for (i, known) in &mut model {
                        let seen = store.see(&url(*i));
                        known.retain(|(version, len)| seen == Seen::Whole(*version, *len));
                        assert!(
                            seen == Seen::Nothing || !known.is_empty(),
                            "{i} at {step}: {seen:?}"
                        );
                    }
                }
                _ => match store.see(&url(i)) {
                    Seen::Whole(version, len) => {
                        assert_eq!(known.last(), Some(&(version, len)), "{i} at {step}");
                        hits += 1;
                    }
                    seen => assert_eq!(seen, Seen::Nothing),
                },
            }
        }
        let stats = store.coss().stats();
        assert!(hits > 300 && stats.errors == 0, "{hits} {stats:?}");
    }
}

#[test]
fn hits_in_the_oldest_part_are_relocated_and_others_are_overwritten() {
    for (percent, stays) in [(0, false), (50, true), (100, true)] {
        let store = Store::new(9, |options| options.own.overwrite_percent = percent);
        assert_eq!(store.coss().dir.geometry.stripes, 8);
        store.put("http://hot/", 1, 20_000);
        store.put("http://cold/", 1, 20_000);
        for i in 0..400 {
            store.put(&url(i), 1, 100_000);
            let seen = store.see("http://hot/");
            assert!(!stays || seen == Seen::Whole(1, 20_000), "{percent} % at {i}: {seen:?}");
        }
        assert_eq!(store.see("http://cold/"), Seen::Nothing);
        assert_eq!(store.see("http://hot/") != Seen::Nothing, stays);
        // Five laps of 8 stripes: about twice a lap with 50 %, about once a stripe with 100 %.
        let relocations = store.coss().dir.counts.relocations.load(Ordering::Relaxed);
        let expected = match percent {
            0 => 0..1,
            50 => 5..20,
            _ => 25..60,
        };
        assert!(expected.contains(&relocations), "{percent} %: {relocations}");
        let stats = store.coss().stats();
        let amplification = stats.write_bytes as f64 / stats.object_bytes as f64;
        assert!(amplification < 1.15, "{percent} %: {amplification}");
    }
}

/// A process that dies keeps all stripes that were written, and the part of the last one that a
/// flush has written.
#[test]
fn a_crash_costs_the_stripes_that_were_not_written() {
    for mib in 0..5 {
        let mut store = Store::new(16, |_| ());
        for i in 0..mib * 11 + 3 {
            store.put(&url(i), 1, 100_000);
        }
        store.settle();
        let last = store.slot(&url(mib * 11 + 2));
        let slots: Vec<u32> = (0..mib * 11 + 3).map(|i| store.slot(&url(i))).collect();
        store.crash();
        for (i, slot) in slots.iter().enumerate() {
            let wanted = if *slot < last { Seen::Whole(1, 100_000) } else { Seen::Nothing };
            assert_eq!(store.see(&url(i as u64)), wanted, "object {i} in stripe {slot} of {last}");
        }
        store.put("http://flushed/", 1, 5000);
        store.maintain();
        store.put("http://lost/", 1, 5000);
        store.crash();
        assert_eq!(store.see("http://flushed/"), Seen::Whole(1, 5000));
        assert_eq!(store.see("http://lost/"), Seen::Nothing);
    }
}

#[test]
fn a_flush_writes_what_is_new_and_only_that() {
    let store = Store::new(16, |_| ());
    store.put("http://a/", 1, 50_000);
    store.maintain();
    let written = |store: &Store| store.coss().stats().write_bytes;
    let before = written(&store);
    (0..20).for_each(|_| store.maintain());
    assert_eq!(written(&store), before, "nothing new, nothing written");
    store.put("http://b/", 1, 1000);
    store.maintain();
    assert!(written(&store) - before < 4096, "{}", written(&store) - before);
}

#[test]
fn a_full_purge_log_says_so_and_recovers_with_the_next_lap() {
    let mut store = Store::new(3, |_| ());
    let room = new_purge_bytes(3 * MIB) / 32;
    for i in 0..room {
        store.put("http://again/", 1, 10);
        assert!(store.remove("http://again/").expect("there is room"), "{i}");
    }
    store.put("http://again/", 1, 10);
    assert!(matches!(store.remove("http://again/"), Err(SchemeError::Busy(_))));
    assert_eq!(store.see("http://again/"), Seen::Nothing, "gone at least until a crash");
    // The stripe in question is being replaced, but only in memory: it still matters.
    store.fill_up_to(1);
    store.settle();
    store.put("http://again/", 1, 10);
    let coss = store.coss();
    wait_until("victims are known", || !coss.dir.log.lock().victims.is_empty());
    let gate = coss.dir.data.gate.lock();
    while coss.dir.log.lock().full.is_empty() {
        assert!(poll_put(coss, "http://large/", 400_000).is_some_and(|stored| stored.is_ok()));
    }
    let again = key("http://again/");
    let outcome = coss.remove(&again).as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(outcome, Poll::Ready(Err(SchemeError::Busy(_)))), "{outcome:?}");
    drop(gate);
    (0..40).for_each(|i| store.put(&url(i), 1, 100_000));
    store.settle();
    store.put("http://again/", 1, 10);
    store.maintain();
    assert!(store.remove("http://again/").expect("there is room again"));
    store.crash();
    assert_eq!(store.see("http://again/"), Seen::Nothing);
}

#[test]
fn a_removal_while_the_index_is_rebuilt_is_not_undone() {
    let mut store = Store::new(64, |_| ());
    (0..20).for_each(|i| store.put(&url(i), 1, 100_000));
    store.maintain();
    store.coss = None;
    let coss = Coss::open(&store.options).unwrap_or_else(|e| panic!("open: {e}"));
    // The worker cannot begin: nothing is known yet.
    let held = coss.dir.job.lock();
    assert_eq!(see(&coss, &url(3)), Seen::Nothing);
    assert!(matches!(put(&coss, "http://new/", 1, 10), Err(SchemeError::Busy(_))));
    let removed = key(&url(3));
    let mut removal = coss.remove(&removed);
    assert!(removal.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(held);
    run(removal).expect("removed");
    wait_for_rebuild(&coss);
    assert_eq!(
        (see(&coss, &url(3)), see(&coss, &url(4))),
        (Seen::Nothing, Seen::Whole(1, 100_000))
    );
    drop(coss);
    store.open();
    assert_eq!((store.see(&url(3)), store.see(&url(4))), (Seen::Nothing, Seen::Whole(1, 100_000)));
}

#[test]
fn a_stripe_that_cannot_be_written_is_lost_and_nothing_else() {
    let store = Store::new(8, |_| ());
    store.put("http://good/", 1, 5000);
    store.maintain();
    store.coss().dir.data.fails.store(true, Ordering::Relaxed);
    store.put("http://late/", 1, 5000);
    store.maintain();
    assert!(
        matches!(store.remove("http://late/"), Err(SchemeError::Io { .. })),
        "it would not last"
    );
    (0..15).for_each(|i| store.put(&url(i), 1, 100_000));
    store.settle();
    assert_eq!(store.see(&url(0)), Seen::Nothing);
    assert!(store.coss().stats().errors > 0 && !store.coss().stats().down);
    store.coss().dir.data.fails.store(false, Ordering::Relaxed);
    (20..40).for_each(|i| store.put(&url(i), 1, 100_000));
    store.settle();
    assert_eq!(store.see(&url(39)), Seen::Whole(1, 100_000));
    assert!(store.remove(&url(39)).expect("written now"));
    let stats = store.coss().stats();
    let held = (0..40).filter(|i| store.coss().contains(&key(&url(*i)))).count() as u64;
    assert_eq!(stats.objects, held, "nothing is counted that is not there");
}

#[test]
fn what_was_lost_with_its_stripe_does_not_return_after_its_removal() {
    let mut store = Store::new(8, |_| ());
    store.put("http://older/", 1, 5000);
    (0..15).for_each(|i| store.put(&url(i), 1, 100_000));
    store.put("http://flushed/", 1, 5000);
    store.maintain();
    store.coss().dir.data.fails.store(true, Ordering::Relaxed);
    store.put("http://older/", 2, 5000);
    (20..40).for_each(|i| store.put(&url(i), 1, 100_000));
    store.settle();
    store.coss().dir.data.fails.store(false, Ordering::Relaxed);
    for url in ["http://older/", "http://flushed/"] {
        assert_eq!(store.see(url), Seen::Nothing, "{url}");
        store.remove(url).expect("logged");
    }
    store.crash();
    for url in ["http://older/", "http://flushed/"] {
        assert_eq!(store.see(url), Seen::Nothing, "{url}");
    }
}

#[test]
fn what_was_evicted_and_is_still_on_disk_does_not_return_after_its_removal() {
    let mut store = Store::new(4, |_| ());
    let mut next = 0;
    while store.coss().stats().evictions == 0 {
        store.put(&url(next), 1, 100_000);
        next += 1;
    }
    // Nothing has been written over them yet.
    let is_gone = |i: &u64| !store.coss().contains(&key(&url(*i)));
    let evicted: Vec<u64> = (0..next).filter(is_gone).collect();
    evicted.iter().for_each(|i| _ = store.remove(&url(*i)).expect("logged"));
    store.crash();
    for i in evicted {
        assert_eq!(store.see(&url(i)), Seen::Nothing, "{i}");
    }
}

#[test]
fn beyond_maxfullbufs_objects_are_refused_and_counted() {
    let store =
        Store::new(16, |options| (options.own.membufs, options.own.maxfullbufs) = (3, Some(2)));
    store.put("http://first/", 1, 10);
    let coss = store.coss();
    wait_until("victims are known", || coss.dir.log.lock().victims.len() == 2);
    // All have been admitted before the disk stands still.
    let admitted: Vec<_> = (0..60)
        .map(|i| {
            let mut writer = run(coss.create(record(&url(i), 1), Some(100_000))).expect("admitted");
            run(writer.write(0, &[&body(&url(i), 1, 0, 100_000)])).expect("it fits");
            writer
        })
        .collect();
    let gate = coss.dir.data.gate.lock();
    let outcomes: Vec<bool> = admitted
        .into_iter()
        .map(|writer| {
            let mut commit = writer.commit(Some(100_000));
            match commit.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => outcome.is_ok(),
                Poll::Pending => panic!("nobody waits for a disk that stands still"),
            }
        })
        .collect();
    let stored = outcomes.iter().filter(|ok| **ok).count();
    assert!((28..31).contains(&stored), "two full stripes and a third: {stored}");
    assert_eq!(coss.dir.log.lock().full.len(), 2);
    assert!(!coss.admits(Some(10)) && coss.load() == 1000);
    assert_eq!(coss.stats().shed, 60 - stored as u64);
    assert!(matches!(put(coss, "http://new/", 1, 10), Err(SchemeError::Busy("maxfullbufs"))));
    drop(gate);
    store.settle();
    store.put("http://last/", 1, 10);
    assert!(coss.admits(Some(10)) && coss.dir.memory.read().len() <= 3);
    for (i, was_stored) in outcomes.iter().enumerate() {
        assert_eq!(store.see(&url(i as u64)) != Seen::Nothing, *was_stored, "object {i}");
    }
}

/// Stores an object without waiting for the worker; `None` if it would have to, and is given up.
fn poll_put(coss: &Coss, url: &str, len: u64) -> Option<Result<(), SchemeError>> {
    let bytes = body(url, 1, 0, len);
    let mut writer = match run(coss.create(record(url, 1), Some(len))) {
        Ok(writer) => writer,
        Err(error) => return Some(Err(error)),
    };
    run(writer.write(0, &[&bytes])).expect("it fits");
    let mut commit = writer.commit(Some(len));
    match commit.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

#[test]
fn what_is_dropped_while_it_waits_leaves_nothing() {
    let store = Store::new(8, |_| ());
    let coss = store.coss();
    // The worker is held up, writing a removal. Otherwise it would fill in again the parts that are
    // taken away here.
    store.put("http://first/", 1, 600_000);
    let gate = coss.dir.data.gate.lock();
    let first = key("http://first/");
    let mut removal = coss.remove(&first);
    assert!(removal.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    wait_until("the worker has the removal", || !coss.dir.log.lock().purges.is_dirty());
    // As at the very start: nothing is known about the slots. Another stripe has to be begun for
    // this object.
    coss.dir.log.lock().victims.clear();
    let outcome = poll_put(coss, "http://dropped/", 600_000);
    assert!(outcome.is_none(), "{outcome:?}");
    drop(gate);
    assert!(run(removal).expect("removed"));
    assert_eq!(store.see("http://dropped/"), Seen::Nothing);
    store.put("http://next/", 1, 5000);
    let removed = key("http://next/");
    let mut removal = coss.remove(&removed);
    let _ = removal.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    drop(removal);
    assert_eq!(store.see("http://next/"), Seen::Nothing, "a removal that has begun is done");
    assert_eq!((coss.stats().objects, coss.stats().used_bytes), (0, 0));
    assert_eq!(coss.dir.in_hand_bytes(), 0);
}

/// Reads that take their time: the object is removed, replaced or given up meanwhile.
#[test]
fn what_happens_during_a_read_is_seen_after_it() {
    let store =
        Store::new(8, |options| (options.own.membufs, options.own.maxfullbufs) = (2, Some(1)));
    (0..6).for_each(|i| store.put(&url(i), 1, 20_000));
    store.fill_up_to(3);
    let coss = store.coss();
    coss.dir.data.is_cold.store(true, Ordering::Relaxed);
    let keys: Vec<_> = (0..6).map(|i| key(&url(i))).collect();
    let context = &mut Context::from_waker(Waker::noop());
    run(async {
        let mut open = coss.open(&keys[0]);
        assert!(open.as_mut().poll(context).is_pending());
        assert!(coss.remove(&keys[0]).await.expect("removed"));
        assert!(open.await.expect("no error").is_none(), "removed");

        let (new_head, confirmed) = (record(&url(1), 9), record(&url(1), 1));
        let confirmed = humboldt_store::scheme::Confirmed::of(&confirmed);
        let mut update = coss.update(&new_head, &confirmed);
        assert!(update.as_mut().poll(context).is_pending());
        let mut writer = coss.create(record(&url(1), 2), Some(100)).await.expect("created");
        writer.write(0, &[&body(&url(1), 2, 0, 100)]).await.expect("written");
        writer.commit(Some(100)).await.expect("stored");
        update.await.expect("no error");
        assert!(
            coss.open(&keys[1]).await.expect("no error").is_none(),
            "not the head of one, and the body of the other"
        );

        let mut open = coss.open(&keys[2]);
        assert!(open.as_mut().poll(context).is_pending());
        drop(open);
        assert!(coss.open(&keys[2]).await.expect("no error").is_some());
    });
    assert_eq!(coss.dir.in_hand_bytes(), 0);
}

#[test]
fn max_stripe_waste_refuses_objects_until_the_stripe_is_nearly_full() {
    let store = Store::new(8, |options| options.own.max_stripe_waste_bytes = Some(32 * 1024));
    store.put("http://first/", 1, 300_000);
    let refused = put(store.coss(), "http://large/", 1, 900_000);
    assert!(matches!(refused, Err(SchemeError::Busy("max-stripe-waste"))), "{refused:?}");
    assert_eq!(store.coss().stats().shed, 1);
    (0..71).for_each(|i| store.put(&url(i), 1, 10_000));
    store.put("http://large/", 1, 900_000);
    assert_eq!(
        (store.see("http://large/"), store.slot("http://large/")),
        (Seen::Whole(1, 900_000), 1)
    );
}

#[test]
fn a_larger_block_size_keeps_what_lies_at_its_blocks() {
    let mut store = Store::new(8, |options| options.own.block_bytes = Some(512));
    (0..60).for_each(|i| store.put(&url(i), 1, 600));
    store.restart_and(|_| ());
    assert_eq!(store.coss().stats().objects, 60);
    store.options.own.block_bytes = Some(4096);
    store.restart_and(|_| ());
    let objects = store.coss().stats().objects;
    assert!((1..60).contains(&objects), "{objects}");
    assert_eq!(
        (0..60).filter(|i| store.see(&url(*i)) == Seen::Whole(1, 600)).count() as u64,
        objects
    );
}

/// A block device, where this machine allows to make one.
#[test]
fn a_raw_device_is_a_store_and_a_foreign_one_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let image = dir.path().join("image");
    fs::File::create(&image).and_then(|file| file.set_len(8 * MIB)).expect("an image");
    let Some(device) = LoopDevice::new(&image) else { return };
    let options = DirOptions::new(&device.0, 8 * MIB);
    let open = || Coss::open(&options).unwrap_or_else(|e| panic!("open: {e}"));
    for is_crash in [false, true, false] {
        let coss = open();
        wait_for_rebuild(&coss);
        put(&coss, "http://device/", 1, 50_000).expect("stored");
        assert!(matches!(Coss::open(&options), Err(crate::OpenError::Locked { .. })));
        run(coss.maintain()).expect("maintenance");
        if !is_crash {
            coss.close().expect("closed");
        }
        drop(coss);
        let coss = open();
        wait_for_rebuild(&coss);
        assert_eq!(see(&coss, "http://device/"), Seen::Whole(1, 50_000));
    }
    // The part that a smaller store has cut off is still on the device, and must not come back.
    let coss = open();
    wait_for_rebuild(&coss);
    (0..50).for_each(|i| while put(&coss, &url(i), 1, 100_000).is_err() {});
    let held = (0..50).filter(|i| see(&coss, &url(*i)) != Seen::Nothing).count();
    coss.close().expect("closed");
    drop(coss);
    let smaller = DirOptions::new(&device.0, 4 * MIB);
    for (options, is_crash) in [(&smaller, false), (&options, true), (&options, false)] {
        let coss = Coss::open(options).unwrap_or_else(|e| panic!("open: {e}"));
        wait_for_rebuild(&coss);
        let left = (0..50).filter(|i| see(&coss, &url(*i)) != Seen::Nothing).count();
        assert!(left <= 30 && held >= 45, "{left} of {held}");
        if !is_crash {
            coss.close().expect("closed");
        }
    }
    let too_large = DirOptions::new(&device.0, 9 * MIB);
    assert!(matches!(Coss::open(&too_large), Err(crate::OpenError::BadOption { .. })));
    write_at(&device.0, 0, &b"a file system".repeat(1000));
    assert!(matches!(Coss::open(&options), Err(crate::OpenError::Foreign { .. })));
}

/// A loop device, detached when it is dropped.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn new(image: &Path) -> Option<Self> {
        let output = std::process::Command::new("losetup")
            .args(["-f", "--show"])
            .arg(image)
            .output()
            .ok()?;
        let name = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| Self(name.trim().into()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

#[test]
fn the_end_of_a_stripe_is_where_the_format_says() {
    let store = Store::new(8, |_| ());
    store.put("http://a/", 1, 10);
    store.maintain();
    let file = fs::File::open(&store.options.path).expect("the file");
    let mut trailer = [0; TRAILER_BYTES];
    file.read_exact_at(&mut trailer, store.offset(1) - TRAILER_BYTES as u64).expect("a read");
    assert!(trailer.starts_with(b"HUMcosST"));
    let mut start = [0; 8];
    file.read_exact_at(&mut start, store.offset(0)).expect("a read");
    assert_eq!(&start, b"HUMcosRC");
}
