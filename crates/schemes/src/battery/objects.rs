//! One object at a time: reads return the written bytes.

use humboldt_store::scheme::{Extent, Record, RecordKind, SchemeError};
use humboldt_store::{About, Borrowed, StoredHead};

use super::{Bench, Seen, body, key, nature, put, read_whole, record, run, write_range};

const SIZES: [u64; 14] =
    [0, 1, 511, 512, 4095, 4096, 4097, 13_000, 65_535, 65_536, 65_537, 131_072, 1 << 20, 10 << 20];

pub(super) fn sizes_around_every_boundary(kind: &'static str) {
    let bench = Bench::new(kind);
    for len in SIZES.into_iter().filter(|len| bench.scheme.admits(Some(*len))) {
        let url = format!("http://size/{len}");
        bench.put(&url, 1, len);
        assert_eq!(bench.see(&url), Seen::Whole(1, len));
        assert!(bench.scheme.contains(&key(&url)));
        for step in [1 << 16, 1 << 20] {
            let seen = run(async {
                let mut open = bench.scheme.open(&key(&url)).await.expect("open").expect("there");
                read_whole(&mut open, &url, step).await
            });
            assert_eq!(seen, Seen::Whole(1, len));
        }
    }
    assert_eq!(bench.scheme.stats().errors, 0);
    assert_eq!(bench.see("http://size/none"), Seen::Nothing);
}

pub(super) fn stored_at_once(kind: &'static str) {
    let bench = Bench::new(kind);
    // Whatever a scheme does not do before it is needed is there then.
    bench.put("http://once/first", 1, 1);
    let lent: Vec<_> = [0, 1, 511, 512, 4096, 13_000, 65_536, 131_072]
        .into_iter()
        .flat_map(|len| [(len, 1), (len, 2)])
        .filter_map(|(len, version)| {
            let url = format!("http://once/{len}");
            let body = body(&url, version, 0, len);
            let Some(lent) = put_at_once(&bench, &url, version, &body) else {
                let at_once_bytes_max = nature(kind).at_once_bytes_max;
                assert!(at_once_bytes_max.is_none_or(|most| len > most), "{len} bytes");
                assert!(!bench.scheme.contains(&key(&url)), "nothing has happened");
                return None;
            };
            assert_eq!(bench.see(&url), Seen::Whole(version, len));
            Some((lent, body))
        })
        .collect();
    assert_eq!(lent.is_empty(), nature(kind).at_once_bytes_max.is_none());
    // More than buffers and their spare memory hold: what is lent stays as it is.
    for number in 0..40 {
        bench.put(&format!("http://once/more/{number}"), 1, 900_000);
    }
    bench.maintain();
    assert!(lent.iter().all(|(lent, body)| **lent == **body));
    let refused = Bench::with(kind, |options| options.max_bytes = 10_000);
    let (url, body) = ("http://once/large", body("http://once/large", 1, 0, 10_001));
    assert!(put_at_once(&refused, url, 1, &body).is_none() && !refused.scheme.contains(&key(url)));
}

/// In parts like those that arrive from a network.
fn put_at_once(bench: &Bench, url: &str, version: u8, body: &[u8]) -> Option<Borrowed> {
    let Record { key, url, head, times, .. } = record(url, version);
    let head = StoredHead::from_bytes(head).expect("a head");
    let about = About { key, url: &url, head: &head, times: &times, body_bytes: body.len() as u64 };
    bench.scheme.put(&about, &body.chunks(4096).collect::<Vec<_>>())
}

pub(super) fn ranges(kind: &'static str) {
    let bench = Bench::new(kind);
    for len in [10_000, 300_000] {
        let url = format!("http://range/{len}");
        bench.put(&url, 1, len);
        run(async {
            let open = bench.scheme.open(&key(&url)).await.expect("open");
            let mut reader = open.expect("there").reader;
            assert_eq!(reader.extents(), [Extent { start: 0, end: len }]);
            // A hit on a small object is sent from there.
            assert!(len > 10_000 || reader.at_hand(0) == body(&url, 1, 0, len));
            for (offset, wanted) in
                [(len - 1, 1), (5, 4096), (len / 2, 1), (0, 70_000), (len - 9, 9), (65_530, 12)]
            {
                let mut buf = vec![0; wanted];
                let read = reader.read(offset, &mut buf).await.expect("a read");
                let end = (offset + read as u64).min(len);
                assert!(offset >= len || read > 0);
                assert_eq!(buf[..read], body(&url, 1, offset, end.max(offset)));
            }
        });
    }
}

pub(super) fn a_reader_that_has_let_go(kind: &'static str) {
    let lens = [0, 10_000, 300_000, 900_000, 1 << 20, 10 << 20];
    let mut bench = Bench::new(kind);
    // In memory on its way to the disk, and on the disk.
    for is_restarted in [false, true] {
        for len in lens.into_iter().filter(|len| bench.scheme.admits(Some(*len))) {
            bench.put(&format!("http://slow/{len}"), 1, len);
        }
        if is_restarted {
            bench = bench.restart_after(|_| ());
        }
        for len in lens.into_iter().filter(|len| bench.scheme.admits(Some(*len))) {
            let url = format!("http://slow/{len}");
            run(async {
                let open = bench.scheme.open(&key(&url)).await.expect("open");
                let mut reader = open.expect("there").reader;
                let (mut buf, mut at) = (vec![0; 16_384], 0);
                while at < len {
                    // Also in the middle.
                    if at >= len / 3 {
                        reader.let_go();
                        assert!(reader.memory_bytes() <= 64 * 1024);
                    }
                    let read = reader.read(at, &mut buf).await.expect("a read");
                    assert!(read > 0 && buf[..read] == body(&url, 1, at, at + read as u64));
                    at += read as u64;
                }
                assert_eq!(reader.read(len, &mut buf).await.expect("the end"), 0);
                assert_eq!(reader.extents().len(), usize::from(len > 0));
            });
        }
    }
    assert_eq!(bench.scheme.stats().errors, 0);
}

pub(super) fn partial_objects(kind: &'static str) {
    let bench = Bench::new(kind);
    let ranges = [(100_u64, 5000_u64), (5001, 5002), (70_000, 300_000)];
    for total in [Some(400_000), None] {
        let url = format!("http://partial/{total:?}");
        run(async {
            let mut writer = bench.scheme.create(record(&url, 1), None).await.expect("create");
            for (start, end) in ranges {
                write_range(&mut *writer, &url, 1, start, end).await.expect("write");
            }
            writer.commit(total).await.expect("commit");
        });
    }
    let bench = bench.restart_after(|_| ());
    for total in [Some(400_000), None] {
        let url = format!("http://partial/{total:?}");
        run(async {
            let open = bench.scheme.open(&key(&url)).await.expect("open");
            let mut reader = open.expect("there").reader;
            assert_eq!(reader.body_bytes(), total);
            assert_eq!(reader.extents(), ranges.map(|(start, end)| Extent { start, end }));
            let mut buf = vec![0; 10_000];
            for hole in [0, 99, 5000, 5002, 69_999, 300_000, u64::MAX] {
                assert_eq!(reader.read(hole, &mut buf).await.expect("a read"), 0, "at {hole}");
                assert!(reader.at_hand(hole).is_empty(), "at {hole}");
            }
            for (start, end) in ranges {
                let mut offset = start;
                while offset < end {
                    let read = reader.read(offset, &mut buf).await.expect("a read") as u64;
                    assert!(read > 0 && offset + read <= end);
                    let at_hand = reader.at_hand(offset);
                    assert!(offset + at_hand.len() as u64 <= end);
                    assert!(at_hand == body(&url, 1, offset, offset + at_hand.len() as u64));
                    assert!(buf[..read as usize] == body(&url, 1, offset, offset + read));
                    offset += read;
                }
            }
        });
    }
}

pub(super) fn overwriting_a_key(kind: &'static str) {
    let bench = Bench::new(kind);
    let url = "http://over/";
    for (version, len) in [(1, 5000), (2, 200_000), (3, 10)] {
        bench.put(url, version, len);
        assert_eq!(bench.see(url), Seen::Whole(version, len));
        assert_eq!(bench.objects(), 1);
    }
    let bench = bench.restart_after(|_| ());
    assert_eq!(bench.see(url), Seen::Whole(3, 10));
}

pub(super) fn removing(kind: &'static str) {
    let bench = Bench::new(kind);
    bench.put("http://a/", 1, 5000);
    bench.put("http://b/", 1, 5000);
    assert!(run(bench.scheme.remove(&key("http://a/"))).expect("remove"));
    assert!(!run(bench.scheme.remove(&key("http://a/"))).expect("remove"));
    assert_eq!(bench.see("http://a/"), Seen::Nothing);
    assert!(!bench.scheme.contains(&key("http://a/")));
    assert_eq!(bench.see("http://b/"), Seen::Whole(1, 5000));
    assert_eq!(bench.objects(), 1);
}

pub(super) fn replaced_while_being_read(kind: &'static str) {
    let bench = Bench::new(kind);
    for len in [6000, 500_000] {
        let url = format!("http://moving/{len}");
        bench.put(&url, 1, len);
        run(async {
            let mut old = bench.scheme.open(&key(&url)).await.expect("open").expect("there");
            let mut first = [0; 100];
            let read = old.reader.read(0, &mut first).await.expect("a read");
            assert_eq!(first[..read], body(&url, 1, 0, read as u64));
            let mut writer = bench.scheme.create(record(&url, 2), Some(len)).await.expect("create");
            write_range(&mut *writer, &url, 2, 0, len).await.expect("write");
            writer.commit(Some(len)).await.expect("commit");
            // `read_whole` accepts the old bytes or Corrupt, nothing else.
            assert!(
                [Seen::Whole(1, len), Seen::Corrupt]
                    .contains(&read_whole(&mut old, &url, 9999).await)
            );
        });
        assert_eq!(
            bench.see(&url),
            Seen::Whole(2, len),
            "the new one is not harmed by the old reader"
        );
    }
}

pub(super) fn uncommitted_is_invisible(kind: &'static str) {
    let bench = Bench::new(kind);
    bench.put("http://kept/0", 1, 3000);
    let used = bench.scheme.stats().used_bytes;
    let announced = nature(kind).body_bytes_max.min(1 << 20);
    for len in [0, 3000, 500_000] {
        for url in ["http://never/", "http://kept/0"] {
            run(async {
                let mut writer =
                    bench.scheme.create(record(url, 2), Some(announced)).await.expect("create");
                write_range(&mut *writer, url, 2, 0, len).await.expect("write");
            });
        }
        assert_eq!(bench.see("http://never/"), Seen::Nothing);
        assert_eq!(bench.see("http://kept/0"), Seen::Whole(1, 3000));
    }
    let is_log = nature(kind).is_log;
    bench.settle(|stats| {
        (stats.objects, stats.open_files) == (1, 0) && (is_log || stats.used_bytes == used)
    });
    let bench = bench.restart_after(|_| ());
    assert_eq!(bench.see("http://never/"), Seen::Nothing);
}

pub(super) fn vary_lists(kind: &'static str) {
    let bench = Bench::new(kind);
    let list = Record {
        kind: RecordKind::Vary,
        head: b"accept-encoding,accept-language".as_slice().into(),
        ..record("http://vary/", 1)
    };
    run(async {
        let writer = bench.scheme.create(list.clone(), Some(0)).await.expect("create");
        writer.commit(Some(0)).await.expect("commit");
    });
    let bench = bench.restart_after(|_| ());
    run(async {
        let open = bench.scheme.open(&list.key).await.expect("open").expect("there");
        assert_eq!(open.record, list);
        let reader = open.reader;
        assert!(reader.extents().is_empty() && reader.body_bytes() == Some(0));
    });
}

/// Either the object has the new head and times, or it is gone.
fn check_updated(bench: &Bench, url: &str, version: u8, body_version: u8, len: u64) {
    run(async {
        let Some(mut open) = bench.scheme.open(&key(url)).await.expect("open") else { return };
        assert_eq!(open.record, record(url, version));
        let mut buf = vec![0; 1000];
        let read = open.reader.read(len / 2, &mut buf).await.expect("a read") as u64;
        assert!(read > 0);
        assert_eq!(buf[..read as usize], body(url, body_version, len / 2, len / 2 + read));
    });
}

pub(super) fn new_head_after_a_304(kind: &'static str) {
    let bench = Bench::new(kind);
    let sizes = [500, 13_000, 400_000];
    for len in sizes {
        let url = format!("http://update/{len}");
        bench.put(&url, 1, len);
        for (old, version) in [(1, 200), (200, 3), (3, 90)] {
            run(bench.scheme.update(
                &record(&url, version),
                &humboldt_store::scheme::Confirmed::of(&record(&url, old)),
            ))
            .expect("update");
            check_updated(&bench, &url, version, 1, len);
        }
    }
    let none = record("http://update/none", 5);
    run(bench.scheme.update(&none, &humboldt_store::scheme::Confirmed::of(&none)))
        .expect("nothing to update is no error");
    assert_eq!(bench.see("http://update/none"), Seen::Nothing);
    let bench = bench.restart_after(|_| ());
    sizes
        .into_iter()
        .for_each(|len| check_updated(&bench, &format!("http://update/{len}"), 90, 1, len));
    bench.maintain();
    let bench = bench.crash_and(|_| ());
    sizes
        .into_iter()
        .for_each(|len| check_updated(&bench, &format!("http://update/{len}"), 90, 1, len));
}

pub(super) fn a_confirmed_head_never_meets_another_body(kind: &'static str) {
    let bench = Bench::new(kind);
    for len in [500, 13_000, 400_000] {
        let url = format!("http://confirmed/{len}");
        bench.put(&url, 1, len);
        bench.put(&url, 2, len);
        run(bench
            .scheme
            .update(&record(&url, 3), &humboldt_store::scheme::Confirmed::of(&record(&url, 1))))
        .expect("no error");
        assert_eq!(bench.see(&url), Seen::Nothing, "{len}");
    }
    let bench = bench.crash_and(|_| ());
    for len in [500, 13_000, 400_000] {
        assert_eq!(
            bench.see(&format!("http://confirmed/{len}")),
            Seen::Nothing,
            "{len} after a crash"
        );
    }
}

pub(super) fn many_updates(kind: &'static str) {
    let bench = Bench::new(kind);
    bench.put("http://update/", 0, 1000);
    for round in 0..300_u32 {
        let [old, version] = [round, round + 1].map(|n| record("http://update/", (n % 250) as u8));
        run(bench.scheme.update(&version, &humboldt_store::scheme::Confirmed::of(&old)))
            .expect("update");
        let version = ((round + 1) % 250) as u8;
        check_updated(&bench, "http://update/", version, 0, 1000);
    }
    let used = bench.scheme.stats().used_bytes;
    assert!(
        used <= 256 * 1024 || nature(kind).is_log,
        "updates must not fill the disk: {used} bytes for one object of 1000"
    );
}

pub(super) fn size_limits(kind: &'static str) {
    let bench =
        Bench::with(kind, |options| (options.min_bytes, options.max_bytes) = (1000, 90_000));
    let admits: Vec<u64> = [0, 999, 1000, 90_000, 90_001, u64::MAX]
        .into_iter()
        .filter(|len| bench.scheme.admits(Some(*len)))
        .collect();
    assert_eq!(admits, [1000, 90_000]);
    for len in [999, 90_001] {
        assert!(matches!(put(&*bench.scheme, "http://limit/", 1, len), Err(SchemeError::Busy(_))));
    }
    for (len, is_stored) in [(999, false), (1000, true), (90_000, true), (90_001, false)] {
        let url = format!("http://unknown/{len}");
        let outcome = run(async {
            let mut writer = bench.scheme.create(record(&url, 1), None).await?;
            write_range(&mut *writer, &url, 1, 0, len).await?;
            writer.commit(Some(len)).await
        });
        assert!(outcome.is_ok() == is_stored || outcome.is_err(), "{len}");
        assert!(is_stored || bench.see(&url) == Seen::Nothing);
    }
    assert!(Bench::new(kind).scheme.admits(Some(1)));
}

pub(super) fn wrong_use_is_refused(kind: &'static str) {
    let bench = Bench::new(kind);
    run(async {
        let mut writer =
            bench.scheme.create(record("http://wrong/", 1), None).await.expect("create");
        writer.write(100, &[b"abc"]).await.expect("write");
        assert!(writer.write(102, &[b"abc"]).await.is_err(), "offsets only grow");
        drop(writer);
        let mut writer =
            bench.scheme.create(record("http://wrong/", 1), None).await.expect("create");
        writer.write(0, &[b"abc"]).await.expect("write");
        assert!(writer.commit(Some(2)).await.is_err(), "longer than it says");
        let mut writer =
            bench.scheme.create(record("http://wrong/", 1), None).await.expect("create");
        assert!(writer.write(u64::MAX, &[b"abc"]).await.is_err());
    });
    assert_eq!(bench.see("http://wrong/"), Seen::Nothing);
    assert_eq!(bench.objects(), 0);
}
