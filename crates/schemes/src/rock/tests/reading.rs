//! Number of reads and writes, and readers whose slots are used by others meanwhile.

use humboldt_store::scheme::SchemeError;

use super::*;
use crate::battery::{body, record, settle};
use crate::health::DISK_FULL;

#[test]
fn an_object_is_written_with_one_write_and_read_with_one_read() {
    let place = Place::new(64 << 20);
    let rock = place.open();
    for len in [0, 900, 13_000, 16_000, 100_000, 1 << 20] {
        let url = format!("http://one/{len}");
        let before = rock.stats();
        store(&*rock, &url, 1, len);
        let written = rock.stats();
        assert_eq!(written.write_ops - before.write_ops, 1, "{len}");
        assert_eq!(see(&*rock, &url), Seen::Whole(1, len));
        assert_eq!(rock.stats().read_ops - written.read_ops, 1, "{len}");
        let stored = written.object_bytes - before.object_bytes;
        assert!(stored > len && stored < len + 1000, "{stored}");
        let overhead = written.write_bytes - before.write_bytes - stored;
        assert!(
            overhead < 4096 + 80 * (1 + len / SLOT as u64) + 200,
            "{overhead} bytes more for {len}"
        );
    }
}

#[test]
fn write_amplification_of_13_kib_objects_is_small() {
    let place = Place::new(8 << 20);
    let rock = place.open();
    (0..2000).for_each(|i| store(&*rock, &format!("http://a/{i}"), 1, 13_000));
    let stats = rock.stats();
    assert!(stats.evictions > 1000);
    let amplification = stats.write_bytes as f64 / stats.object_bytes as f64;
    assert!(amplification < 1.3, "{amplification}");
}

#[test]
fn objects_that_are_collected_are_bounded_by_their_bytes() {
    let place = Place::new(256 << 20);
    let rock = place.open();
    let create = |i| run(rock.create(record(&format!("http://a/{i}"), 1), Some(900_000))).ok();
    let collect = |i| {
        let mut writer = create(i)?;
        run(writer.write(0, &[&[0; 880_000]])).ok().map(|()| writer)
    };
    let writers: Vec<_> = (0..100).map_while(collect).collect();
    assert!((20..30).contains(&writers.len()), "24 MiB: {}", writers.len());
    assert_eq!(rock.stats().shed, 1);
    (0..30).for_each(|i| store(&*rock, &format!("http://small/{i}"), 1, 100_000));
    let begun: Vec<_> = (0..100).map_while(create).collect();
    assert!((35..70).contains(&begun.len()), "32 MiB: {}", begun.len());
    drop((writers, begun));
    // They are counted until they are written, and no longer.
    (0..60).for_each(|i| store(&*rock, &format!("http://b/{i}"), 1, 900_000));
}

#[test]
fn upkeep_looks_at_the_memory_until_the_directory_is_closed() {
    let place = Place::new(64 << 20);
    let rock = place.bare();
    let share = Arc::clone(&rock.dir.device.bounds.share);
    share.set_whole(0);
    settle(&rock, |_| {
        run(rock.maintain()).expect("maintenance");
        share.part_bytes() > 0
    });
    assert!(!share.has_left());
    rock.close().expect("closed");
    assert!(share.has_left());
}

#[test]
fn a_full_disk_is_used_as_far_as_it_has_room() {
    let place = Place::new(64 << 20);
    let rock = place.bare();
    let fill = |name: &str, of: u64| {
        (0..of).for_each(|i| store(&rock, &format!("http://{name}/{i}"), 1, 9000));
    };
    let slots_of_file = || (place.bytes().len() / SLOT) as u64;
    fill("first", 100);
    rock.dir.note_failure(&SchemeError::Busy(DISK_FULL));
    fill("second", 150);
    assert!((99..=101).contains(&slots_of_file()), "{}", slots_of_file());
    let objects = rock.stats().objects;
    assert!((90..=100).contains(&objects) && count(&rock, "second", 150) == objects, "{objects}");
    // Little by little it tries again.
    for _ in 0..10 {
        run(rock.maintain()).expect("maintenance");
    }
    fill("third", 150);
    assert!((120..160).contains(&slots_of_file()), "{}", slots_of_file());
    rock.close().expect("closed");
    drop(rock);
    let rock = place.bare();
    wait_for_rebuild(&rock);
    rock.dir.note_failure(&SchemeError::Busy(DISK_FULL));
    let before = slots_of_file();
    (0..150).for_each(|i| store(&rock, &format!("http://fourth/{i}"), 1, 9000));
    assert_eq!(slots_of_file(), before, "a start knows what the file has");
}

#[test]
fn a_reader_that_has_let_go_reads_the_same() {
    let place = Place::new(8 << 20);
    let rock = place.open();
    for len in [9_000, 40_000, 900_000, 1_500_000] {
        let url = format!("http://a/{len}");
        store(&*rock, &url, 1, len);
        let mut reader = run(rock.open(&key(&url))).expect("no error").expect("stored").reader;
        let kept = reader.memory_bytes();
        reader.let_go();
        let left = reader.memory_bytes();
        assert!(left <= SLOT as u64 && left <= kept, "{len}: {left} of {kept}");
        remove(&*rock, &url);
        // All slots are used again meanwhile.
        (0..600).for_each(|i| store(&*rock, &format!("http://other/{len}/{i}"), 1, 9000));
        let (mut read, mut buf) = (Vec::new(), vec![0; 20_000]);
        while (read.len() as u64) < len {
            let got = run(reader.read(read.len() as u64, &mut buf)).expect("it is held");
            assert!(got > 0 && reader.memory_bytes() == left);
            read.extend_from_slice(&buf[..got]);
        }
        assert!(read == body(&url, 1, 0, len), "{len}");
    }
}

/// A directory in which every other slot is free.
fn with_holes(place: &Place, singles: u64) -> Arc<dyn Scheme> {
    let rock = place.open();
    (0..singles).for_each(|i| store(&*rock, &format!("http://single/{i}"), 1, 9000));
    assert_eq!(rock.stats().used_bytes, singles * SLOT as u64);
    (0..singles).step_by(2).for_each(|i| assert!(remove(&*rock, &format!("http://single/{i}"))));
    rock
}

#[test]
fn a_chain_in_pieces_is_whole_after_every_kind_of_start() {
    let place = Place::new(40 * SLOT as u64);
    let mut rock = with_holes(&place, 36);
    for (len, reads) in [(150_000, 10), (60_000, 4)] {
        let url = format!("http://pieces/{len}");
        let before = rock.stats();
        store(&*rock, &url, 1, len);
        let written = rock.stats();
        assert_eq!(see(&*rock, &url), Seen::Whole(1, len));
        let stats = rock.stats();
        let (writes, reads_made) =
            (written.write_ops - before.write_ops, stats.read_ops - written.read_ops);
        assert_eq!(writes, reads_made, "as many reads as runs");
        assert!(reads_made >= reads - 3 && reads_made <= reads, "{reads_made} reads");
    }
    for is_clean in [true, false, true] {
        if is_clean {
            rock.close().expect("closed");
        }
        let before = rock.stats();
        drop(rock);
        rock = place.open();
        let after = rock.stats();
        assert_eq!(
            (after.objects, after.used_bytes),
            (before.objects, before.used_bytes),
            "{is_clean}"
        );
        assert_eq!(see(&*rock, "http://pieces/150000"), Seen::Whole(1, 150_000));
        assert_eq!(see(&*rock, "http://pieces/60000"), Seen::Whole(1, 60_000));
        assert_eq!((count(&*rock, "single", 36), rock.stats().errors), (18, 0));
    }
}

#[test]
fn every_slot_size_works() {
    for slot_bytes in [4096, 4608, 5120, 65_536, 1 << 20] {
        let mut place = Place::new(64 << 20);
        place.options.own.slot_bytes = slot_bytes;
        let mut rock = place.open();
        let sizes = [0, 1, 3500, 4000, 5000, 70_000, 1_100_000, 3_000_000];
        sizes.iter().for_each(|len| store(&*rock, &format!("http://s/{len}"), 1, *len));
        for round in 0..3 {
            for len in sizes {
                let url = format!("http://s/{len}");
                assert_eq!(
                    see(&*rock, &url),
                    Seen::Whole(1, len),
                    "slot size {slot_bytes}, round {round}"
                );
            }
            if round == 0 {
                rock.close().expect("closed");
            }
            drop(rock);
            rock = place.open();
        }
        assert_eq!(rock.stats().errors, 0);
    }
}

/// A long URL and a long head: the record is in several slots.
#[test]
fn a_record_longer_than_a_slot() {
    let mut place = Place::new(16 << 20);
    place.options.own.slot_bytes = 4096;
    let url = format!("http://long/{}", "x".repeat(20_000));
    let mut rock = place.open();
    for len in [0, 10, 5000, 2_000_000] {
        for version in [1, 200] {
            store(&*rock, &url, version, len);
            assert_eq!(see(&*rock, &url), Seen::Whole(version, len));
        }
        drop(rock);
        rock = place.open();
        assert_eq!(see(&*rock, &url), Seen::Whole(200, len));
        // There is no room for another head in the first slot: removed, which is allowed.
        run(rock
            .update(&record(&url, 3), &humboldt_store::scheme::Confirmed::of(&record(&url, 200))))
        .expect("updated");
        assert_eq!(see(&*rock, &url), Seen::Nothing);
    }
}

#[test]
fn slots_used_again_under_a_reader_are_never_taken_for_its_own() {
    const LEN: u64 = 3_000_000;
    let place = Place::new(10 << 20);
    let rock = place.open();
    for round in 0..4_u64 {
        let url = format!("http://victim/{round}");
        store(&*rock, &url, 1, LEN);
        run(async {
            let mut open = rock.open(&key(&url)).await.expect("open").expect("there");
            let mut buf = vec![0; 50_000];
            let read = open.reader.read(0, &mut buf).await.expect("a read");
            assert!(buf[..read] == body(&url, 1, 0, read as u64));
            assert!(rock.remove(&key(&url)).await.expect("removed"));
            // Others fill the whole directory, several times.
            for i in 0..3 {
                let other = format!("http://other/{round}/{i}");
                let mut writer = rock.create(record(&other, 2), Some(LEN)).await.expect("create");
                let bytes = body(&other, 2, 0, LEN);
                writer.write(0, &[&bytes]).await.expect("write");
                writer.commit(Some(LEN)).await.expect("commit");
            }
            let mut corrupt = 0;
            for offset in (0..LEN).step_by(40_000) {
                match open.reader.read(offset, &mut buf).await {
                    Ok(read) => assert!(buf[..read] == body(&url, 1, offset, offset + read as u64)),
                    Err(SchemeError::Corrupt(_)) => corrupt += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            assert!(corrupt > 30, "most of it is gone");
        });
        assert_eq!(rock.stats().errors, 0, "nothing is wrong with the directory");
        assert_eq!(see(&*rock, &format!("http://other/{round}/2")), Seen::Whole(2, LEN));
    }
}

#[test]
fn what_is_being_read_can_be_read_to_its_end_whatever_happens_to_the_object() {
    const LEN: u64 = 2_000_000;
    let place = Place::new(10 << 20);
    let rock = place.open();
    for (round, what) in ["removed", "replaced", "evicted"].into_iter().enumerate() {
        let url = format!("http://victim/{what}");
        store(&*rock, &url, 1, LEN);
        run(async {
            let mut reader = rock.open(&key(&url)).await.expect("open").expect("there").reader;
            let mut buf = vec![0; 50_000];
            let read = reader.read(0, &mut buf).await.expect("a read");
            assert!(buf[..read] == body(&url, 1, 0, read as u64));
            match what {
                "removed" => assert!(rock.remove(&key(&url)).await.expect("removed")),
                "replaced" => write(&*rock, &url, 3, LEN).await,
                _ => {}
            }
            // Others fill the whole directory, several times.
            for i in 0..15 {
                write(&*rock, &format!("http://other/{round}/{i}"), 2, LEN).await;
            }
            assert!(rock.open(&key(&url)).await.expect("open").is_none(), "{what}: it has left");
            let mut at = read as u64;
            while at < LEN {
                let read = reader.read(at, &mut buf).await.expect("a read");
                assert!(buf[..read] == body(&url, 1, at, at + read as u64), "{what}");
                at += read as u64;
            }
            let used = rock.stats().used_bytes;
            drop(reader);
            assert!(rock.stats().used_bytes + LEN * 9 / 10 < used, "{what}: the slots are free");
        });
    }
    assert_eq!(rock.stats().errors, 0);
}

async fn write(rock: &dyn Scheme, url: &str, version: u8, len: u64) {
    let mut writer = rock.create(record(url, version), Some(len)).await.expect("create");
    writer.write(0, &[&body(url, version, 0, len)]).await.expect("write");
    writer.commit(Some(len)).await.expect("commit");
}

/// The worst that can happen under a reader: the very same slots at the same places in a chain, of
/// another key, or of another object of the same key.
#[test]
fn the_same_slots_with_another_object_do_not_verify() {
    const LEN: u64 = 3_000_000;
    let place = Place::new(16 << 20);
    crash(place.open());
    let empty = place.bytes();
    let file_with = |url: &str, version: u8, ids_before: u32| {
        place.set_bytes(&empty);
        let rock = place.open();
        for _ in 0..ids_before {
            drop(run(rock.create(record("http://x/", 1), None)).expect("an id is used"));
        }
        store(&*rock, url, version, LEN);
        crash(rock);
        place.bytes()
    };
    let mine = file_with("http://a/", 1, 0);
    for theirs in [file_with("http://b/", 1, 0), file_with("http://a/", 2, 1)] {
        assert_eq!(mine.len(), theirs.len());
        place.set_bytes(&mine);
        let rock = place.open();
        run(async {
            let mut open = rock.open(&key("http://a/")).await.expect("open").expect("there");
            let mut buf = vec![0; 50_000];
            open.reader.read(0, &mut buf).await.expect("its own");
            place.set_bytes(&theirs);
            assert!(matches!(
                open.reader.read(2_000_000, &mut buf).await,
                Err(SchemeError::Corrupt(_))
            ));
        });
        crash(rock);
        // And in a scan: the first slot of one, the rest of the other.
        let first =
            (0..mine.len() / SLOT).rfind(|at| mine[at * SLOT + 32..at * SLOT + 36] == [0; 4]);
        let first = first.expect("position 0") * SLOT;
        let mut mixed = theirs.clone();
        mixed[first..first + SLOT].copy_from_slice(&mine[first..first + SLOT]);
        place.set_bytes(&mixed);
        let rock = place.open();
        assert_eq!((rock.stats().objects, rock.stats().used_bytes, rock.stats().errors), (0, 0, 0));
    }
}

#[test]
fn a_part_of_a_long_object_is_read_without_the_rest() {
    let place = Place::new(64 << 20);
    let rock = place.open();
    store(&*rock, "http://long/", 1, 30_000_000);
    let before = rock.stats().read_bytes;
    run(async {
        let mut open = rock.open(&key("http://long/")).await.expect("open").expect("there");
        let mut buf = vec![0; 70_000];
        let mut at = 20_000_000;
        while at < 20_100_000 {
            let read = open.reader.read(at, &mut buf).await.expect("a read");
            assert!(buf[..read] == body("http://long/", 1, at, at + read as u64));
            at += read as u64;
        }
    });
    let read = rock.stats().read_bytes - before;
    assert!(read < 600_000, "{read} bytes read for 100,000");
}

#[test]
fn what_is_dropped_in_the_middle_leaves_nothing_behind() {
    let place = Place::new(16 << 20);
    let rock = place.open();
    store(&*rock, "http://kept/", 1, 5000);
    let used = rock.stats().used_bytes;
    for len in [3000, 200_000, 5_000_000_usize] {
        run(async {
            let bytes = body("http://gone/", 1, 0, len as u64);
            for polls in 0..4 {
                let mut writer =
                    rock.create(record("http://gone/", 1), None).await.expect("create");
                {
                    let parts = [&bytes[..]];
                    let mut write = writer.write(0, &parts);
                    for _ in 0..polls {
                        if poll_once(&mut write).await {
                            break;
                        }
                    }
                }
                drop(writer);
            }
        });
    }
    run(async {
        // A commit that is given up is made or not; a later one of the same key counts in any case.
        let mut writer = rock.create(record("http://late/", 1), Some(700)).await.expect("create");
        writer.write(0, &[&body("http://late/", 1, 0, 700)]).await.expect("write");
        let mut commit = writer.commit(Some(700));
        let _ = poll_once(&mut commit).await;
        drop(commit);
    });
    store(&*rock, "http://late/", 2, 700);
    wait_for_used(&*rock, used / SLOT as u64 + 1);
    rock.close().expect("closed");
    drop(rock);
    let rock = place.open();
    assert_eq!(see(&*rock, "http://gone/"), Seen::Nothing);
    assert_eq!(see(&*rock, "http://late/"), Seen::Whole(2, 700));
    assert_eq!(rock.stats().used_bytes, used + SLOT as u64);
}

/// Polls a future once; returns whether it is done.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_ready())
    })
    .await
}

#[test]
fn no_more_writes_than_the_rate_allows() {
    let mut place = Place::new(64 << 20);
    place.options.own.max_swap_rate = Some(50);
    let rock = place.open();
    let mut commits_s = 0.0;
    let outcomes = run(async {
        let mut commits = Vec::new();
        let start = std::time::Instant::now();
        for i in 0..100 {
            let url = format!("http://rate/{i}");
            let mut writer = rock.create(record(&url, 1), Some(100)).await.expect("create");
            writer.write(0, &[&body(&url, 1, 0, 100)]).await.expect("write");
            commits.push(tokio::task::spawn_local(writer.commit(Some(100))));
        }
        // As long as nobody waits, none of them is asked for its turn.
        tokio::task::yield_now().await;
        commits_s = start.elapsed().as_secs_f64();
        let mut outcomes = Vec::new();
        for commit in commits {
            outcomes.push(commit.await.expect("no panic"));
        }
        outcomes
    });
    let stored = outcomes.iter().filter(|outcome| outcome.is_ok()).count() as u64;
    let refused =
        outcomes.iter().filter(|o| matches!(o, Err(SchemeError::Busy("max-swap-rate")))).count()
            as u64;
    // A burst of a tenth of a second, the writes that may wait a second, and those of the time
    // between the first and the last.
    let most = 62 + (50.0 * commits_s) as u64;
    assert!(
        (50..=most).contains(&stored) && stored + refused == 100,
        "{stored} stored, {refused} refused"
    );
    let stats = rock.stats();
    assert_eq!(
        (stats.shed, stats.objects, stats.used_bytes),
        (refused, stored, stored * SLOT as u64)
    );
    assert_eq!(count(&*rock, "rate", 100), stored);
}
