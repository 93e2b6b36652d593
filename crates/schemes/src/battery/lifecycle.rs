//! Starts, stops, crashes, a full directory, many threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use humboldt_store::scheme::SchemeError;
use humboldt_store::{Cache, DiskEntry, Lookup};

use super::{Bench, Seen, key, nature, put, record, run, see};
use crate::OpenError;

const SIZES: [u64; 4] = [0, 900, 13_000, 150_000];

fn fill(bench: &Bench, count: u64) {
    for i in 0..count {
        bench.put(&format!("http://fill/{i}"), 1, SIZES[i as usize % SIZES.len()]);
    }
}

fn check(bench: &Bench, count: u64) {
    for i in 0..count {
        let seen = bench.see(&format!("http://fill/{i}"));
        assert_eq!(seen, Seen::Whole(1, SIZES[i as usize % SIZES.len()]), "object {i}");
    }
}

pub(super) fn clean_restart(kind: &'static str) {
    let mut bench = Bench::new(kind);
    fill(&bench, 200);
    assert!(run(bench.scheme.remove(&key("http://fill/7"))).expect("remove"));
    bench.put("http://fill/7", 1, SIZES[3]);
    for _ in 0..3 {
        let before = bench.scheme.stats();
        bench = bench.restart_after(|_| ());
        let after = bench.scheme.stats();
        assert_eq!((after.objects, after.used_bytes), (before.objects, before.used_bytes));
        check(&bench, 200);
        assert_eq!(bench.scheme.stats().errors, 0);
    }
}

pub(super) fn restart_after_a_crash(kind: &'static str) {
    let mut bench = Bench::new(kind);
    fill(&bench, 200);
    bench.maintain(); // what is older than a call of it survives a crash
    let objects = bench.objects();
    for _ in 0..3 {
        bench = bench.crash_and(|_| ());
        assert_eq!(bench.objects(), objects);
        check(&bench, 200);
    }
    // Objects stored right before a crash are whole or gone.
    for i in 0..20 {
        bench.put(&format!("http://late/{i}"), 1, 5000);
    }
    bench = bench.crash_and(|_| ());
    for i in 0..20 {
        assert!(
            [Seen::Whole(1, 5000), Seen::Nothing].contains(&bench.see(&format!("http://late/{i}")))
        );
    }
    check(&bench, 200);
}

pub(super) fn a_purge_survives_a_crash(kind: &'static str) {
    let mut bench = Bench::new(kind);
    for i in 0..40 {
        if i % 10 == 0 {
            fill(&bench, 40);
        }
        // Without a crash before, after a flush, and after a restart.
        match i {
            10 => bench.maintain(),
            20 => bench = bench.restart_after(|_| ()),
            _ => {}
        }
        let url = format!("http://fill/{i}");
        if !bench.scheme.contains(&key(&url)) {
            // a crash may have taken objects that were not flushed
            bench.put(&url, 1, SIZES[i % SIZES.len()]);
        }
        assert!(run(bench.scheme.remove(&key(&url))).expect("remove"), "object {i}");
        bench = bench.crash_and(|_| ());
        assert_eq!(bench.see(&url), Seen::Nothing, "object {i}");
    }
}

pub(super) fn creation_is_idempotent(kind: &'static str) {
    let bench = Bench::new(kind);
    fill(&bench, 8);
    let options = bench.options.clone();
    let bench = bench.restart_after(|_| crate::create(&options).expect("again"));
    check(&bench, 8);
}

pub(super) fn one_process_at_a_time(kind: &'static str) {
    let bench = Bench::new(kind);
    assert!(matches!(crate::open(&bench.options), Err(OpenError::Locked { .. })));
    bench.put("http://a/", 1, 10);
    assert_eq!(bench.see("http://a/"), Seen::Whole(1, 10));
}

pub(super) fn closed_is_down(kind: &'static str) {
    let bench = Bench::new(kind);
    bench.put("http://a/", 1, 10);
    let mut writer = run(bench.scheme.create(record("http://b/", 1), None)).expect("create");
    bench.scheme.close().expect("close");
    assert!(!bench.scheme.admits(Some(10)));
    let _ = run(writer.write(0, &[b"abc"]));
    assert!(run(writer.commit(Some(3))).is_err(), "nothing is stored after the end");
    assert!(matches!(put(&*bench.scheme, "http://c/", 1, 10), Err(SchemeError::Down)));
    assert!(matches!(run(bench.scheme.open(&key("http://a/"))), Err(SchemeError::Down)));
    let bench = bench.crash_and(|_| ());
    assert_eq!(bench.see("http://a/"), Seen::Whole(1, 10));
    assert_eq!(bench.see("http://b/"), Seen::Nothing);
}

pub(super) fn eviction_keeps_the_water_marks(kind: &'static str) {
    const CAPACITY_BYTES: u64 = 8 << 20;
    let bench = Bench::with(kind, |options| options.capacity_bytes = CAPACITY_BYTES);
    for i in 0..2000 {
        let url = format!("http://evict/{i}");
        match put(&*bench.scheme, &url, 1, 13_000) {
            Ok(()) => {}
            // A full directory goes on storing, at the latest when it has been looked after.
            Err(SchemeError::Busy(_)) => {
                bench.maintain();
                bench.put(&url, 1, 13_000);
            }
            Err(other) => panic!("{other}"),
        }
        assert!(bench.scheme.stats().used_bytes <= CAPACITY_BYTES);
    }
    for _ in 0..20 {
        bench.maintain();
    }
    bench.settle(|stats| stats.used_bytes <= CAPACITY_BYTES * 95 / 100);
    let stats = bench.scheme.stats();
    assert!(stats.used_bytes >= CAPACITY_BYTES / 2, "eviction does not overshoot: {stats:?}");
    assert!(stats.evictions > 0 && stats.objects > 0);
    assert_eq!(bench.see("http://evict/1999"), Seen::Whole(1, 13_000), "the newest stays");
    assert_eq!(bench.see("http://evict/0"), Seen::Nothing, "the oldest goes");
    let held: u64 = (0..2000)
        .filter(|i| bench.scheme.contains(&key(&format!("http://evict/{i}"))))
        .count() as u64;
    assert_eq!(held, stats.objects);
    let large_bytes = (CAPACITY_BYTES / 4).min(nature(kind).body_bytes_max);
    bench.put("http://large/", 1, large_bytes);
    assert_eq!(bench.see("http://large/"), Seen::Whole(1, large_bytes), "many small ones made way");
    assert!(put(&*bench.scheme, "http://huge/", 1, CAPACITY_BYTES + 1).is_err());
    assert!(bench.scheme.stats().used_bytes <= CAPACITY_BYTES);
}

/// A size changed by `-k reconfigure`: closed cleanly and opened again, while requests still read
/// and write.
pub(super) fn opened_again_with_another_size(kind: &'static str) {
    let mut bench = Bench::with(kind, |options| options.capacity_bytes = 32 << 20);
    fill(&bench, 100);
    for capacity_bytes in [64 << 20, 16 << 20, 3 << 20] {
        let mut reader = run(bench.scheme.open(&key("http://fill/99"))).expect("open");
        let mut writer = run(bench.scheme.create(record("http://late/", 1), None)).expect("create");
        let _ = run(writer.write(0, &[&[7; 100_000]]));
        bench.scheme.close().expect("a clean stop");
        let before = Arc::clone(&bench.scheme);
        bench.options.capacity_bytes = capacity_bytes;
        bench.scheme = super::open(&bench.options);
        if capacity_bytes >= 16 << 20 {
            check(&bench, 100);
        }
        let _ = run(writer.write(100_000, &[&[7; 100_000]]));
        assert!(run(writer.commit(None)).is_err(), "nothing is stored in a closed directory");
        if let Some(open) = &mut reader {
            let _ = run(open.reader.read(0, &mut [0; 100]));
        }
        drop((reader, before));
        (0..20).for_each(|_| bench.maintain());
        bench.settle(|stats| stats.used_bytes <= capacity_bytes);
        assert_eq!(bench.see("http://late/"), Seen::Nothing);
        bench.put("http://new/", 1, 13_000);
        assert_eq!(bench.see("http://new/"), Seen::Whole(1, 13_000));
    }
    for i in 0..100 {
        let seen = bench.see(&format!("http://fill/{i}"));
        assert!(
            seen == Seen::Nothing || seen == Seen::Whole(1, SIZES[i % SIZES.len()]),
            "object {i}: {seen:?}"
        );
    }
}

/// Threads store, read, update and remove the same few keys; whatever is seen is whole and of one
/// version.
pub(super) fn many_threads(kind: &'static str) {
    let bench = Bench::with(kind, |options| options.capacity_bytes = 4 << 20);
    let hits = Arc::new(AtomicU64::new(0));
    let work = |thread: u64| {
        let (scheme, hits) = (Arc::clone(&bench.scheme), Arc::clone(&hits));
        std::thread::spawn(move || {
            let mut state = thread + 1;
            for _ in 0..800 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                let url = format!("http://shared/{}", (state >> 40) % 12);
                match (state >> 33) % 10 {
                    0..4 => {
                        let len = [700, 13_000, 70_000, 200_000][(state >> 50) as usize % 4];
                        let _ = put(&*scheme, &url, (state >> 56) as u8, len);
                    }
                    4 => drop(run(scheme.remove(&key(&url)))),
                    5 => drop(run(scheme.maintain())),
                    _ => match see(&*scheme, &url) {
                        Seen::Whole(..) => drop(hits.fetch_add(1, Ordering::Relaxed)),
                        Seen::Nothing | Seen::Corrupt => {}
                    },
                }
            }
        })
    };
    let threads: Vec<_> = (0..4).map(work).collect();
    for thread in threads {
        thread.join().expect("a thread saw wrong bytes");
    }
    assert!(hits.load(Ordering::Relaxed) > 100, "the test must see something");
    // Evictions come first, also those by threads of its own.
    bench.maintain();
    bench.scheme.close().expect("a clean stop");
    let before = bench.scheme.stats();
    let bench = bench.restart_after(|_| ());
    let after = bench.scheme.stats();
    assert_eq!((after.objects, after.used_bytes), (before.objects, before.used_bytes));
}

/// A store that was deleted while it was in use can be used again, though a purge has written its
/// log there meanwhile.
pub(super) fn a_purge_log_alone(kind: &'static str) {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join(crate::PURGE_LOG), "humboldt-purges 1 0 0 0\n").expect("a log");
    let path = format!("{}/", dir.path().display());
    let opened = crate::open(&super::options_of(kind, path, 64 << 20)).map(drop);
    assert!(opened.is_ok(), "{kind}: {:?}", opened.err());
    assert!(dir.path().join(crate::PURGE_LOG).exists(), "and keeps it");
}

/// The version of an object that the cache finds in its directories.
fn version(cache: &Cache, url: &str) -> Option<i64> {
    match run(cache.open(key(url), &key(url), url.as_bytes())) {
        Lookup::Found(DiskEntry::Object(hit)) => {
            Some(hit.times.response_time - record(url, 0).times.response_time)
        }
        _ => None,
    }
}

/// A newer answer has come. It goes to the directory if that takes it, and otherwise the older one
/// is to be found no more.
fn replace(cache: &Cache, bench: &Bench, url: &str) {
    match cache.select_dir(Some(5000)) {
        Some(_) => bench.put(url, 2, 5000),
        None => _ = run(cache.remove_from_disk(&key(url))),
    }
}

/// After a crash, newer answers arrive before the index has been read, or while it is: no request
/// gets the older ones any more, neither then nor after a clean stop, however early that comes.
pub(super) fn newer_answers_while_the_index_is_read(kind: &'static str) {
    const OBJECTS: u64 = 60;
    let url = |i: u64| format!("http://fill/{i}");
    let is_newer = |i: &u64| i.is_multiple_of(3);
    for stops_early in [false, true] {
        let bench = Bench::new(kind);
        fill(&bench, OBJECTS);
        bench.maintain();
        let bench = bench.crash_unread();
        let cache = bench.cache();
        (0..OBJECTS).filter(is_newer).for_each(|i| replace(&cache, &bench, &url(i)));
        let check = |cache: &Cache, when: &str| {
            for i in 0..OBJECTS {
                let (found, wrong) = (version(cache, &url(i)), if is_newer(&i) { 1 } else { 2 });
                assert_ne!(found, Some(wrong), "{kind}, object {i}, {when}");
            }
        };
        check(&cache, "before the index is read");
        if !stops_early {
            while bench.scheme.stats().rebuild_percent < 100 {
                run(cache.maintain());
                check(&cache, "while the index is read");
            }
            run(cache.maintain());
            check(&cache, "when the index is read");
            let kept = (0..OBJECTS).filter(|i| version(&cache, &url(*i)).is_some()).count() as u64;
            assert!(kept >= OBJECTS - OBJECTS.div_ceil(3), "{kind}: the others are there");
        }
        run(cache.prepare_close());
        drop(cache);
        let bench = bench.restart_after(|_| ());
        check(&bench.cache(), "after a clean restart");
    }
}

/// A store whose files are deleted while it is in use is empty at the next start, whatever it wrote
/// there until its end.
pub(super) fn deleted_while_in_use(kind: &'static str) {
    for is_clean in [true, false] {
        let bench = Bench::new(kind);
        fill(&bench, 40);
        bench.maintain();
        for entry in std::fs::read_dir(bench.path()).expect("a directory").filter_map(Result::ok) {
            let path = entry.path();
            let removed = if path.is_dir() {
                std::fs::remove_dir_all(&path)
            } else {
                std::fs::remove_file(&path)
            };
            removed.expect("our own files");
        }
        std::fs::write(bench.path().join(crate::PURGE_LOG), "humboldt-purges 1 0 0 0\n")
            .expect("a purge");
        for i in 0..20_000 {
            let url = format!("http://late/{i}");
            let stored = if i < 40 { put(&*bench.scheme, &url, 1, 5000).is_ok() } else { false };
            if stored || i % 64 == 0 {
                let _ = run(bench.scheme.remove(&key(&url)));
            }
        }
        let _ = run(bench.scheme.maintain());
        if is_clean {
            let _ = bench.scheme.close();
        }
        let bench = bench.crash_and(|_| ());
        (0..40).for_each(|i| assert_eq!(bench.see(&format!("http://fill/{i}")), Seen::Nothing));
        bench.put("http://new/", 1, 5000);
        assert_eq!(bench.see("http://new/"), Seen::Whole(1, 5000));
    }
}

/// The basis of unsafe methods: from the first poll of a removal on no index has the key, however
/// long the disk takes; while the index is being read too, as far as storing is possible then.
pub(super) fn nobody_finds_what_is_being_removed(kind: &'static str) {
    let remove = |bench: &Bench, url: &str| {
        let key = key(url);
        run(async {
            let mut removal = bench.scheme.remove(&key);
            let first = std::future::poll_fn(|cx| Poll::Ready(removal.as_mut().poll(cx))).await;
            assert!(!bench.scheme.contains(&key), "{kind}: {url}");
            match first {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => removal.await,
            }
        })
    };
    let bench = Bench::new(kind);
    fill(&bench, 40);
    (0..20).for_each(|i| assert!(remove(&bench, &format!("http://fill/{i}")).expect("removed")));
    bench.maintain();
    let bench = bench.crash_unread();
    for i in 0..20 {
        let url = format!("http://new/{i}");
        let is_stored = put(&*bench.scheme, &url, 1, 5000).is_ok();
        let was_there = remove(&bench, &url).expect("removed");
        assert!(was_there || !is_stored || nature(kind).sheds, "{kind}: {url}");
        bench.maintain();
    }
    super::wait_for_rebuild(&*bench.scheme);
    for i in 0..40 {
        let seen = bench.see(&format!("http://fill/{i}"));
        assert!(i >= 20 || seen == Seen::Nothing, "object {i}: {seen:?}");
        assert_eq!(bench.see(&format!("http://new/{i}")), Seen::Nothing);
    }
}
