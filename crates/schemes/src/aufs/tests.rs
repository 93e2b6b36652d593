//! Promises of `aufs` alone: refusals, and directories shared with `ufs`.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use humboldt_store::scheme::{IoFuture, Scheme, SchemeError};

use super::{
    Aufs, Bounds, NAME, OUTCOMES_PER_THREAD, OUTCOMES_TO_STORE_PER_THREAD, STORE_WAIT_MAX,
    STORES_PER_THREAD,
};
use crate::battery::{Seen, body, key, open, put, record, run, see, settle};
use crate::bounds::HALF_BYTES_LEAST;
use crate::tree::{Engine, TreeScheme};
use crate::{AufsOptions, DirOptions, Levels, OpenError, Overload, SchemeOptions};

fn options(path: &Path, threads: u32) -> DirOptions<AufsOptions> {
    let own = AufsOptions { levels: Levels { l1: 2, l2: 4 }, threads, ..AufsOptions::default() };
    DirOptions::of(own, path, 64 << 20)
}

/// Opens it as a directory of `aufs`, or of `ufs`.
fn open_as(name: &str, path: &Path) -> Arc<dyn Scheme> {
    let options = options(path, 2);
    open(&match name {
        NAME => options.map(SchemeOptions::Aufs),
        _ => options.map(|own| SchemeOptions::Ufs(own.levels)),
    })
}

fn url(i: usize) -> String {
    format!("http://aufs/{i}")
}

fn poll<T>(future: &mut IoFuture<'_, T>) -> Poll<Result<T, SchemeError>> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Keeps the only thread of a directory busy until it is dropped.
fn hold(aufs: &TreeScheme) -> mpsc::Sender<()> {
    let (release, has_started) = hold_later(aufs);
    has_started.recv().expect("it runs");
    release
}

/// The same from the time on when this chore begins, which the second value says.
fn hold_later(aufs: &TreeScheme) -> (mpsc::Sender<()>, mpsc::Receiver<()>) {
    let (release, held) = mpsc::channel();
    let (started, has_started) = mpsc::channel();
    drop(aufs.engine().later(Box::new(move || {
        started.send(()).expect("the test listens");
        let _ = held.recv();
        Ok(())
    })));
    (release, has_started)
}

#[test]
fn beyond_the_bound_nothing_is_stored_and_hits_and_removals_go_on() {
    let path = tempfile::tempdir().expect("a directory");
    let aufs = super::open(&options(path.path(), 1)).expect("open");
    put(&aufs, &url(0), 1, 5000).expect("stored");
    put(&aufs, &url(1), 1, 5000).expect("stored");
    let mut large = run(aufs.create(record(&url(2), 1), None)).expect("create");
    run(large.write(0, &[&[7; 100_000]])).expect("written");
    let create = |at| run(aufs.create(record(&url(at), 1), Some(10))).expect("create");
    let mut stores: Vec<_> =
        (0..=STORES_PER_THREAD).map(|at| create(10 + at).commit(None)).collect();
    settle(&aufs, |_| aufs.load() == 0);

    let held = hold(&aufs);
    let one_too_many = stores.pop();
    assert!(stores.iter_mut().all(|store| poll(store).is_pending()));
    assert_eq!(aufs.load(), 1000);
    let create = aufs.create(record(&url(4), 1), Some(10));
    assert!(matches!(poll(&mut { create }), Poll::Ready(Err(SchemeError::Busy(_)))));
    let outcome = poll(&mut one_too_many.expect("a store"));
    assert!(matches!(outcome, Poll::Ready(Err(SchemeError::Busy(_)))));
    assert_eq!(aufs.stats().shed, 2);
    let key0 = key(&url(0));
    let mut hit = aufs.open(&key0);
    assert!(poll(&mut hit).is_pending(), "a hit is not turned away");
    let bytes = [7; 100_000];
    let parts: [&[u8]; 1] = [&bytes];
    let mut write = large.write(100_000, &parts);
    assert!(poll(&mut write).is_pending(), "what has been begun goes on");
    let key1 = key(&url(1));
    let mut remove = aufs.remove(&key1);
    assert!(poll(&mut remove).is_pending(), "the file is still there");
    assert!(!aufs.contains(&key1));
    drop(held);
    assert!(run(hit).expect("read").is_some());
    assert!(run(remove).expect("removed"));
    stores.into_iter().for_each(|store| run(store).expect("stored"));
    run(write).expect("written");
    run(large.commit(None)).expect("stored");
    assert_eq!((aufs.stats().objects, aufs.stats().shed), (2 + STORES_PER_THREAD as u64, 2));
    settle(&aufs, |stats| stats.open_files == 0 && aufs.load() == 0);
}

/// Opens a directory of one thread in a process that has next to no memory, until its thread looks
/// at that of this machine.
fn open_in_short_memory(path: &Path, overload: Overload) -> (TreeScheme, Arc<Bounds>) {
    let (options, bounds) = (options(path, 1), OnceLock::new());
    let engine = |tree| {
        let aufs = Aufs::new(tree, 1, overload, options.capacity_bytes);
        aufs.bounds.share.set_whole(0);
        assert!(bounds.set(Arc::clone(&aufs.bounds)).is_ok());
        Arc::new(aufs) as Arc<dyn Engine>
    };
    let aufs = TreeScheme::open(NAME, &options.map(|own| own.levels), engine).expect("open");
    (aufs, bounds.into_inner().expect("opened"))
}

/// An object of 60 KB that is about to be stored.
fn large(aufs: &TreeScheme, at: usize) -> IoFuture<'static, ()> {
    let mut writer = run(aufs.create(record(&url(at), 1), Some(60_000))).expect("create");
    run(writer.write(0, &[&[7; 60_000]])).expect("taken");
    writer.commit(None)
}

/// Number of objects of 60 KB that fill half of the queue where memory is short. Each has less than
/// 1 KB besides.
const HALF_OF_LARGE: usize = HALF_BYTES_LEAST as usize / 60_000 + 1;

/// The same for all of it.
const ALL_OF_LARGE: usize = 2 * HALF_BYTES_LEAST as usize / 60_000 + 1;

const _: () = assert!(ALL_OF_LARGE < STORES_PER_THREAD, "their bytes bound, not their number");

#[test]
fn where_memory_is_short_fewer_stores_wait_for_a_thread() {
    let path = tempfile::tempdir().expect("a directory");
    let (aufs, bounds) = open_in_short_memory(path.path(), Overload::Shed);
    let mut stores: Vec<_> = (0..=ALL_OF_LARGE).map(|at| large(&aufs, at)).collect();
    let held = hold(&aufs);
    let one_too_many = stores.pop();
    assert!(stores.iter_mut().all(|store| poll(store).is_pending()));
    assert_eq!(aufs.load(), 1000);
    let outcome = poll(&mut one_too_many.expect("a store"));
    assert!(matches!(outcome, Poll::Ready(Err(SchemeError::Busy(_)))));
    drop(held);
    stores.into_iter().for_each(|store| run(store).expect("stored"));
    // The thread has looked at the memory of this machine since.
    settle(&aufs, |_| aufs.load() == 0 && bounds.half_bytes() > HALF_BYTES_LEAST);
}

/// The thread does a chore after each store.
#[test]
fn while_stores_wait_too_long_what_comes_first_is_turned_away() {
    let path = tempfile::tempdir().expect("a directory");
    let aufs = super::open(&options(path.path(), 1)).expect("open");
    put(&aufs, &url(0), 1, 5000).expect("stored");
    settle(&aufs, |_| aufs.load() == 0);
    let create = |at| run(aufs.create(record(&url(at), 1), Some(10)));
    let store = |at| create(at).expect("not turned away").commit(None);

    let held = hold(&aufs);
    let (held_again, is_held_again) = hold_later(&aufs);
    let mut stores: Vec<_> = (1..=3).map(store).collect();
    assert!(stores.iter_mut().all(|store| poll(store).is_pending()));
    let since = Instant::now();
    while since.elapsed() <= STORE_WAIT_MAX {
        std::thread::yield_now();
    }
    drop(held);
    is_held_again.recv().expect("it runs after the first store");
    assert!(create(11).is_err() && create(11).is_ok(), "the second time it is wanted");
    assert_eq!(aufs.stats().shed, 1);
    stores.push(create(0).expect("it is stored already").commit(None));
    drop(held_again);
    stores.into_iter().for_each(|store| run(store).expect("stored"));
    settle(&aufs, |_| aufs.load() == 0);
    assert!(create(12).is_ok(), "nothing waits any more");
}

#[test]
fn a_store_is_enough_for_a_look_at_the_memory() {
    let path = tempfile::tempdir().expect("a directory");
    let (aufs, bounds) = open_in_short_memory(path.path(), Overload::Shed);
    assert_eq!(bounds.half_bytes(), HALF_BYTES_LEAST);
    run(large(&aufs, 0)).expect("stored");
    settle(&aufs, |_| bounds.half_bytes() > HALF_BYTES_LEAST);
}

#[test]
fn with_wait_a_new_object_gets_its_turn_when_there_is_more_memory() {
    let path = tempfile::tempdir().expect("a directory");
    let (aufs, bounds) = open_in_short_memory(path.path(), Overload::Wait);
    let turns = aufs.engine().turns().expect("turns");
    turns.be_patient();
    let mut stores: Vec<_> = (0..HALF_OF_LARGE).map(|at| large(&aufs, at)).collect();
    let held = hold(&aufs);
    assert!(stores.iter_mut().all(|store| poll(store).is_pending()));
    let mut turn = aufs.turn(None).expect("a turn");
    assert!(run(async { poll(&mut turn).is_pending() }), "half of the room is taken");
    bounds.share.set_whole(1 << 40);
    turns.look();
    run(turn).expect("a turn");
    drop(held);
    stores.into_iter().for_each(|store| run(store).expect("stored"));
    assert_eq!((aufs.stats().waits, aufs.stats().shed), (1, 0));
}

#[test]
fn with_wait_a_new_object_gets_its_turn_when_a_store_ends() {
    let path = tempfile::tempdir().expect("a directory");
    let mut options = options(path.path(), 1);
    let aufs = patient(&mut options);
    let create = |at| run(aufs.create(record(&url(at), 1), Some(10))).expect("create");
    let mut stores: Vec<_> = (0..STORES_PER_THREAD / 2).map(|at| create(at).commit(None)).collect();
    let held = hold(&aufs);
    assert!(stores.iter_mut().all(|store| poll(store).is_pending()));
    let mut turn = aufs.turn(None).expect("a turn");
    assert!(run(async { poll(&mut turn).is_pending() }), "half of the room is taken");
    drop(held);
    run(turn).expect("a turn");
    stores.into_iter().for_each(|store| run(store).expect("stored"));
    let stats = aufs.stats();
    assert_eq!((stats.waits, stats.shed), (1, 0));
}

#[test]
fn with_wait_no_more_are_let_in_than_find_room_however_many_begin_at_once() {
    let path = tempfile::tempdir().expect("a directory");
    let mut options = options(path.path(), 1);
    let aufs = patient(&mut options);
    let (all, half) = (60, STORES_PER_THREAD / 2);
    let held = hold(&aufs);
    run(async {
        let turns: Vec<_> = (0..all).map(|_| aufs.turn(Some(10)).expect("a turn")).collect();
        let mut most = 0;
        let stores = turns.into_iter().enumerate().map(|(at, turn)| {
            let aufs = &aufs;
            Box::pin(async move {
                let place = turn.await.expect("a place");
                let mut writer = aufs.create(record(&url(at), 1), Some(10)).await.expect("create");
                writer.hold(place);
                writer.commit(None).await.expect("stored");
            })
        });
        let mut stores: Vec<_> = stores.collect();
        let mut held = Some(held);
        while !stores.is_empty() {
            let mut context = Context::from_waker(Waker::noop());
            stores.retain_mut(|store| store.as_mut().poll(&mut context).is_pending());
            most = most.max(aufs.load());
            held.take_if(|_| most > 0);
            tokio::task::yield_now().await;
        }
        assert_eq!(most, 500, "half of the bound");
    });
    let stats = aufs.stats();
    assert_eq!((stats.objects, stats.shed, stats.waits), (all as u64, 0, (all - half) as u64));
}

/// Opens a directory with `overload=wait`, in which nobody's time is up.
fn patient(options: &mut DirOptions<AufsOptions>) -> TreeScheme {
    options.own.overload = Overload::Wait;
    let aufs = super::open(options).expect("open");
    aufs.engine().turns().expect("turns").be_patient();
    aufs
}

#[test]
fn with_wait_nobody_is_let_in_while_look_ups_take_all() {
    let path = tempfile::tempdir().expect("a directory");
    let aufs = patient(&mut options(path.path(), 1));
    put(&aufs, &url(0), 1, 5000).expect("stored");
    settle(&aufs, |_| aufs.load() == 0);
    let (held, key) = (hold(&aufs), key(&url(0)));
    run(async {
        let mut opens: Vec<_> =
            (0..OUTCOMES_TO_STORE_PER_THREAD).map(|_| aufs.open(&key)).collect();
        assert!(opens.iter_mut().all(|open| poll(open).is_pending()));
        let mut turns: Vec<_> = (0..30).map(|_| aufs.turn(None).expect("a turn")).collect();
        assert!(turns.iter_mut().all(|turn| poll(turn).is_pending()), "nothing would be stored");
        drop(held);
        for open in opens {
            assert!(open.await.expect("read").is_some());
        }
        let half = STORES_PER_THREAD / 2;
        let places: Vec<_> = turns.iter_mut().map(poll).filter(Poll::is_ready).collect();
        assert_eq!(places.len(), half, "as many as find room");
    });
}

#[test]
fn with_wait_nobody_is_let_in_while_too_many_files_wait_to_be_unlinked() {
    let path = tempfile::tempdir().expect("a directory");
    let aufs = patient(&mut options(path.path(), 1));
    let held = hold(&aufs);
    for _ in 1..super::CHORES_MAX {
        drop(aufs.engine().later(Box::new(|| Ok(()))));
    }
    assert!(aufs.engine().unlinks_are_full());
    run(async {
        let mut turn = aufs.turn(None).expect("a turn");
        assert!(poll(&mut turn).is_pending());
        drop(held);
        turn.await.expect("a place");
    });
}

/// Objects that wait until others are unlinked are few.
#[test]
fn with_wait_no_more_are_let_in_than_find_room_in_a_full_directory() {
    let path = tempfile::tempdir().expect("a directory");
    let mut options = options(path.path(), 4);
    options.capacity_bytes = 2 << 20;
    let aufs = patient(&mut options);
    (0..200).for_each(|at| put(&aufs, &url(at), 1, 13_000).expect("stored"));
    settle(&aufs, |_| aufs.load() == 0);
    let mut held: Vec<_> = (0..3).map(|_| hold(&aufs)).collect();
    run(async {
        let turns: Vec<_> = (0..80).map(|_| aufs.turn(None).expect("a turn")).collect();
        let bytes = [7; 13_000];
        let stores = turns.into_iter().enumerate().map(|(at, turn)| -> IoFuture<'_, ()> {
            let (aufs, bytes) = (&aufs, &bytes);
            Box::pin(async move {
                let place = turn.await?;
                let mut writer = aufs.create(record(&url(1000 + at), 1), Some(13_000)).await?;
                writer.hold(place);
                writer.write(0, &[bytes]).await?;
                writer.commit(None).await
            })
        });
        let mut stores: Vec<_> = stores.collect();
        let ends: Vec<_> = stores.iter_mut().map(poll).filter(Poll::is_ready).collect();
        assert_eq!(ends.len(), 0, "nothing is refused");
        held.clear();
        for store in stores {
            store.await.expect("stored");
        }
    });
    assert_eq!(aufs.stats().shed, 0);
}

#[test]
fn with_wait_a_hit_that_takes_too_long_is_a_miss() {
    let path = tempfile::tempdir().expect("a directory");
    let mut options = options(path.path(), 1);
    options.own.overload = Overload::Wait;
    let aufs = super::open(&options).expect("open");
    put(&aufs, &url(0), 1, 5000).expect("stored");
    let held = hold(&aufs);
    assert!(matches!(run(aufs.open(&key(&url(0)))), Err(SchemeError::Busy(_))));
    drop(held);
    let stats = aufs.stats();
    assert_eq!((stats.shed, stats.shed_hits), (1, 1));
    assert!(run(aufs.open(&key(&url(0)))).expect("read").is_some(), "it is still there");
}

#[test]
fn stores_are_turned_away_before_hits() {
    let path = tempfile::tempdir().expect("a directory");
    let aufs = super::open(&options(path.path(), 1)).expect("open");
    put(&aufs, &url(0), 1, 5000).expect("stored");
    let writer = run(aufs.create(record(&url(1), 1), Some(10))).expect("create");
    let (held, key) = (hold(&aufs), key(&url(0)));
    let mut opens: Vec<_> = (0..OUTCOMES_TO_STORE_PER_THREAD).map(|_| aufs.open(&key)).collect();
    assert!(opens.iter_mut().all(|open| poll(open).is_pending()));
    assert!(matches!(poll(&mut writer.commit(None)), Poll::Ready(Err(SchemeError::Busy(_)))));
    let mut more: Vec<_> =
        (OUTCOMES_TO_STORE_PER_THREAD..OUTCOMES_PER_THREAD).map(|_| aufs.open(&key)).collect();
    assert!(more.iter_mut().all(|open| poll(open).is_pending()));
    assert!(matches!(poll(&mut aufs.open(&key)), Poll::Ready(Err(SchemeError::Busy(_)))));
    drop(held);
    assert!(opens.into_iter().chain(more).all(|open| run(open).expect("read").is_some()));
}

#[test]
fn look_ups_that_were_given_up_keep_nobody_from_theirs() {
    let path = tempfile::tempdir().expect("a directory");
    let aufs = super::open(&options(path.path(), 1)).expect("open");
    put(&aufs, &url(0), 1, 5000).expect("stored");
    settle(&aufs, |_| aufs.load() == 0);
    let (held, key) = (hold(&aufs), key(&url(0)));
    let before = aufs.stats().read_ops;
    for _ in 0..10 * OUTCOMES_PER_THREAD {
        assert!(poll(&mut aufs.open(&key)).is_pending(), "the client leaves");
    }
    let mut last = aufs.open(&key);
    assert!(poll(&mut last).is_pending());
    drop(held);
    assert!(run(last).expect("read").is_some());
    assert_eq!((aufs.stats().shed_hits, aufs.stats().read_ops - before), (0, 1));
}

#[test]
fn files_that_were_read_are_closed_while_stores_wait() {
    let path = tempfile::tempdir().expect("a directory");
    let aufs = super::open(&options(path.path(), 4)).expect("open");
    put(&aufs, &url(0), 1, 200_000).expect("stored");
    settle(&aufs, |stats| stats.open_files == 0);
    let held: Vec<_> = (0..3).map(|_| hold(&aufs)).collect();
    let hit = run(aufs.open(&key(&url(0)))).expect("read").expect("a hit");
    assert_eq!(aufs.stats().open_files, 1);
    drop(hit);
    settle(&aufs, |stats| stats.open_files == 0);
    drop(held);
}

/// Writes that wait for the disk.
#[test]
fn hits_do_not_wait_for_stores() {
    let path = tempfile::tempdir().expect("a directory");
    let aufs = super::open(&options(path.path(), 4)).expect("open");
    put(&aufs, &url(0), 1, 5000).expect("stored");
    let held: Vec<_> = (0..3).map(|_| hold(&aufs)).collect();
    let writer = run(aufs.create(record(&url(1), 1), Some(10))).expect("create");
    let mut store = writer.commit(None);
    assert!(poll(&mut store).is_pending());
    assert!(run(aufs.open(&key(&url(0)))).expect("read").is_some());
    assert!(poll(&mut store).is_pending(), "as many threads write as may");
    drop(held);
    run(store).expect("stored");
}

#[test]
fn too_many_files_to_be_unlinked_stop_storing_and_evicting() {
    let path = tempfile::tempdir().expect("a directory");
    let aufs = super::open(&options(path.path(), 1)).expect("open");
    let held = hold(&aufs);
    for _ in 0..super::CHORES_MAX {
        drop(aufs.engine().later(Box::new(|| Ok(()))));
    }
    assert!(aufs.engine().unlinks_are_full() && !aufs.engine().admits());
    assert!(matches!(put(&aufs, &url(0), 1, 10), Err(SchemeError::Busy(_))));
    drop(held);
    settle(&aufs, |_| aufs.engine().admits());
    put(&aufs, &url(0), 1, 10).expect("stored");
}

/// Has the only thread do `count` chores, one after another; between two of them it reads.
fn do_chores(aufs: &TreeScheme, count: usize) {
    (0..count).for_each(|_| run(aufs.engine().later(Box::new(|| Ok(())))).expect("done"));
}

/// An outcome that no task fetches takes memory like an operation under way.
#[test]
fn outcomes_that_nobody_takes_are_bounded() {
    let path = tempfile::tempdir().expect("a directory");
    let aufs = super::open(&options(path.path(), 1)).expect("open");
    put(&aufs, &url(0), 1, 5000).expect("stored");
    settle(&aufs, |_| aufs.load() == 0);
    let key = key(&url(0));
    let held = hold(&aufs);
    let mut opens: Vec<_> = (0..OUTCOMES_PER_THREAD).map(|_| aufs.open(&key)).collect();
    assert!(opens.iter_mut().all(|open| poll(open).is_pending()));
    drop(held);
    do_chores(&aufs, OUTCOMES_PER_THREAD);
    assert!(
        matches!(poll(&mut aufs.open(&key)), Poll::Ready(Err(SchemeError::Busy(_)))),
        "all are done"
    );
    drop(opens.pop());
    let one_more = aufs.open(&key);
    opens.push(one_more);
    assert!(opens.into_iter().all(|open| run(open).expect("read").is_some()));
    put(&aufs, &url(1), 1, 5000).expect("stored");
}

/// A future that is dropped while a thread works for it.
#[test]
fn stores_given_up_anywhere_leave_nothing() {
    let path = tempfile::tempdir().expect("a directory");
    let aufs = super::open(&options(path.path(), 4)).expect("open");
    put(&aufs, &url(0), 1, 5000).expect("stored");
    let used_bytes = aufs.stats().used_bytes;
    let bytes = body(&url(1), 1, 0, 200_000);
    for round in 0..200_usize {
        let polls = round % 9;
        let len = [3000, 200_000][round % 2];
        let mut store: IoFuture<'_, ()> = Box::pin(async {
            let mut writer = aufs.create(record(&url(1), 1), Some(len)).await?;
            writer.write(0, &[&bytes[..len as usize]]).await?;
            writer.commit(Some(len + 1)).await
        });
        let is_done = (0..polls).any(|_| {
            std::thread::yield_now();
            poll(&mut store).is_ready()
        });
        drop(store);
        if is_done {
            run(aufs.remove(&key(&url(1)))).expect("removed");
        }
    }
    settle(&aufs, |stats| {
        (stats.objects, stats.used_bytes, stats.open_files) == (1, used_bytes, 0)
    });
    aufs.close().expect("closed");
    assert_eq!(object_files(path.path()).len(), 1);
}

fn object_files(path: &Path) -> Vec<PathBuf> {
    let list = |path: PathBuf| {
        std::fs::read_dir(path).expect("a listing").map(|e| e.expect("an entry").path())
    };
    let levels = list(path.to_owned()).filter(|p| p.is_dir()).flat_map(list);
    levels.flat_map(list).collect()
}

#[test]
fn a_directory_of_one_is_a_directory_of_the_other() {
    let path = tempfile::tempdir().expect("a directory");
    for (round, name) in ["ufs", NAME, "ufs", NAME].into_iter().enumerate() {
        let scheme = open_as(name, path.path());
        for i in 0..10 * round {
            assert_eq!(see(&*scheme, &url(i)), Seen::Whole(1, 100 * i as u64), "{name}");
        }
        (10 * round..10 * round + 10)
            .for_each(|i| put(&*scheme, &url(i), 1, 100 * i as u64).expect("stored"));
        scheme.close().expect("closed");
        assert_eq!(scheme.name(), name);
    }
}

#[test]
fn threads_out_of_range_are_refused() {
    let path = tempfile::tempdir().expect("a directory");
    for threads in [0, 257, u32::MAX] {
        let outcome = crate::open(&options(path.path(), threads).map(SchemeOptions::Aufs));
        assert!(matches!(outcome, Err(OpenError::BadOption { .. })));
    }
}

#[test]
fn figures_of_operations_are_those_of_what_was_done() {
    for name in ["ufs", NAME] {
        let path = tempfile::tempdir().expect("a directory");
        let scheme = open_as(name, path.path());
        put(&*scheme, &url(0), 1, 13_000).expect("stored");
        run(scheme.maintain()).expect("maintenance");
        let record = record(&url(0), 1);
        let object_bytes = (record.url.len() + record.head.len()) as u64 + 13_000;
        let stats = scheme.stats();
        let file_bytes = object_files(path.path())[0].metadata().expect("a file").len();
        assert_eq!(stats.object_bytes, object_bytes);
        assert_eq!(
            (stats.write_ops, stats.write_bytes),
            (2, file_bytes + 32),
            "{name}: one object, one record"
        );
        let before = stats.read_ops;
        assert_eq!(see(&*scheme, &url(0)), Seen::Whole(1, 13_000));
        let stats = scheme.stats();
        assert_eq!((stats.read_ops - before, stats.reads), (1, 1));
        assert_eq!(stats.read_bytes, file_bytes);
    }
}
