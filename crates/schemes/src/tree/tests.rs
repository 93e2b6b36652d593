//! Promises of the file schemes alone: searching for files, the swap log, stray files, full and
//! failing disks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use humboldt_store::index::{FileEntry, FileIndex, IndexKey};
use humboldt_store::scheme::{Scheme, SchemeError};
use rustix::fs::{Mode, OFlags};
use tempfile::TempDir;

use super::log::{self, LogRecord, SwapLog};
use super::rebuild::{self, Rebuild};
use super::{Blocking, Dir, ReadLog, layout};
use crate::battery::{Seen, key, put, record, run, see, wait_for_rebuild};
use crate::tree::DirOptions;
use crate::{Levels, SchemeOptions};

const LEN: u64 = 5000;
const OBJECTS: u64 = 50;

pub(super) fn options(path: &Path) -> DirOptions {
    DirOptions { own: Levels { l1: 2, l2: 4 }, ..DirOptions::new(path, 64 << 20) }
}

fn open(path: &Path) -> Arc<dyn Scheme> {
    crate::open(&options(path).map(SchemeOptions::Ufs)).unwrap_or_else(|e| panic!("open: {e}"))
}

fn url(i: u64) -> String {
    format!("http://ufs/{i}")
}

/// A directory with objects, cleanly closed.
fn filled() -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let ufs = open(dir.path());
    (0..OBJECTS).for_each(|i| put(&*ufs, &url(i), 1, LEN).expect("stored"));
    ufs.close().expect("closed");
    dir
}

fn seen_whole(ufs: &dyn Scheme) -> u64 {
    (0..OBJECTS).filter(|i| see(ufs, &url(*i)) == Seen::Whole(1, LEN)).count() as u64
}

pub(super) fn object_files(path: &Path) -> Vec<PathBuf> {
    let list =
        |path: PathBuf| fs::read_dir(path).expect("a listing").map(|e| e.expect("an entry").path());
    let levels = list(path.to_owned()).filter(|p| p.is_dir()).flat_map(list);
    let mut files: Vec<_> = levels.flat_map(list).collect();
    files.sort();
    files
}

/// Waits for something that a thread of the scheme will do.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The removal of a file that no record names, and that has not been unlinked yet, outlasts a crash
/// that damages the log.
#[test]
fn a_removed_object_whose_record_was_lost_is_not_found_by_a_later_search() {
    use std::io::Write;
    let dir = filled();
    let ufs = open(dir.path());
    put(&*ufs, "http://stray/", 1, LEN).expect("stored");
    drop(ufs); // the record was still in memory
    let ufs = open(dir.path());
    assert_eq!(see(&*ufs, "http://stray/"), Seen::Nothing);
    assert!(!run(ufs.remove(&key("http://stray/"))).expect("removed"));
    drop(ufs);
    let log = fs::File::options().append(true).open(dir.path().join(log::FILE));
    log.expect("the log").write_all(&[0x5A; log::RECORD_BYTES]).expect("damaged");
    let ufs = open(dir.path());
    wait_for_rebuild(&*ufs);
    assert_eq!((see(&*ufs, "http://stray/"), seen_whole(&*ufs)), (Seen::Nothing, OBJECTS));
}

#[test]
fn without_a_good_log_the_files_are_found() {
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 4] = [
        ("missing", |log| fs::remove_file(log).expect("removed")),
        ("garbage", |log| fs::write(log, vec![0x5A; 5000]).expect("written")),
        ("empty", |log| fs::write(log, b"").expect("written")),
        ("a bad record in the middle", |log| {
            let mut bytes = fs::read(log).expect("read");
            bytes[64 + 32 * 20 + 9] ^= 4;
            fs::write(log, bytes).expect("written");
        }),
    ];
    for (name, harm) in harms {
        let dir = filled();
        harm(&dir.path().join(log::FILE));
        let ufs = open(dir.path());
        assert!(!ufs.admits(Some(LEN)), "{name}: free numbers are not known yet");
        assert!(matches!(put(&*ufs, "http://new/", 1, LEN), Err(SchemeError::Busy(_))));
        wait_for_rebuild(&*ufs);
        assert_eq!(seen_whole(&*ufs), OBJECTS, "{name}");
        assert_eq!(ufs.stats().used_bytes, OBJECTS * 8192, "{name}");
        put(&*ufs, "http://new/", 1, LEN).expect("stored");
        drop(ufs);
        let ufs = open(dir.path());
        assert_eq!(ufs.stats().rebuild_percent, 100, "{name}: the log is complete again");
        assert_eq!(seen_whole(&*ufs), OBJECTS, "{name}");
    }
}

#[test]
fn a_torn_last_record_costs_nothing_else() {
    let dir = filled();
    let path = dir.path().join(log::FILE);
    let mut bytes = fs::read(&path).expect("read");
    bytes.extend_from_slice(&[7; 20]);
    fs::write(&path, bytes).expect("written");
    let ufs = open(dir.path());
    assert_eq!((ufs.stats().rebuild_percent, seen_whole(&*ufs)), (100, OBJECTS));
    assert!(run(ufs.remove(&key(&url(0)))).expect("removed"));
    drop(ufs);
    let ufs = open(dir.path());
    assert_eq!((ufs.stats().rebuild_percent, seen_whole(&*ufs)), (100, OBJECTS - 1));
}

#[test]
fn a_purge_before_during_and_after_a_search_is_never_undone() {
    let dir = filled();
    fs::remove_file(dir.path().join(log::FILE)).expect("removed");
    let ufs = open(dir.path());
    assert!(!run(ufs.remove(&key(&url(3)))).expect("removed"), "not known yet");
    drop(ufs); // a crash before the search has begun
    let ufs = open(dir.path());
    run(ufs.remove(&key(&url(4)))).expect("removed");
    run(ufs.maintain()).expect("maintenance"); // the search begins
    run(ufs.remove(&key(&url(5)))).expect("removed");
    drop(ufs); // a crash somewhere in the search
    let ufs = open(dir.path());
    wait_for_rebuild(&*ufs);
    run(ufs.remove(&key(&url(6)))).expect("removed");
    let check = |ufs: &dyn Scheme| {
        (3..7).for_each(|i| assert_eq!(see(ufs, &url(i)), Seen::Nothing, "object {i}"));
        assert_eq!(seen_whole(ufs), OBJECTS - 4);
    };
    check(&*ufs);
    drop(ufs);
    check(&*open(dir.path()));
    wait_until("purged files are gone", || object_files(dir.path()).len() as u64 == OBJECTS - 4);
}

#[test]
fn of_two_files_of_a_key_the_newer_one_is_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let ufs = open(dir.path());
    put(&*ufs, &url(0), 1, LEN).expect("stored");
    let old = object_files(dir.path()).pop().expect("a file");
    let old_bytes = fs::read(&old).expect("read");
    put(&*ufs, &url(0), 2, LEN).expect("stored");
    ufs.close().expect("closed");
    drop(ufs);
    fs::write(&old, old_bytes).expect("written");
    fs::remove_file(dir.path().join(log::FILE)).expect("removed");
    let ufs = open(dir.path());
    wait_for_rebuild(&*ufs);
    assert_eq!((see(&*ufs, &url(0)), ufs.stats().objects), (Seen::Whole(2, LEN), 1));
    assert_eq!(object_files(dir.path()).len(), 1);
}

#[test]
fn strays_of_a_crash_are_unlinked_and_other_files_left_alone() {
    let dir = filled();
    let before = object_files(dir.path());
    fs::remove_file(dir.path().join("swap.state.last-clean")).expect("removed");
    fs::copy(&before[0], dir.path().join("01/03/0000007F")).expect("copied");
    fs::write(dir.path().join("00/00/00000FE0"), b"half an object").expect("written");
    fs::write(dir.path().join("00/00/readme"), b"not ours").expect("written");
    let ufs = open(dir.path());
    run(ufs.maintain()).expect("maintenance");
    wait_until("strays are gone", || object_files(dir.path()).len() == before.len() + 1);
    assert!(dir.path().join("00/00/readme").exists());
    assert_eq!(seen_whole(&*ufs), OBJECTS);
}

#[test]
fn a_file_reused_by_another_key_is_a_miss() {
    let dir = filled();
    let files = object_files(dir.path());
    fs::copy(&files[1], &files[0]).expect("copied");
    let ufs = open(dir.path());
    assert_eq!(seen_whole(&*ufs), OBJECTS - 1);
    assert_eq!(ufs.stats().objects, OBJECTS - 1);
}

#[test]
fn file_numbers_are_used_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let ufs = crate::ufs::open(&options(dir.path())).expect("open");
    for i in 0..1200 {
        put(&ufs, &url(i % 2), 1, 10).expect("stored");
        if i % 3 == 0 {
            run(ufs.remove(&key(&url(i % 2)))).expect("removed");
        }
    }
    assert_eq!(ufs.dir.numbers().taken(), object_files(dir.path()).len());
    assert!(
        ufs.dir.index.peek(IndexKey::from(&key(&url(1)))).is_some_and(|entry| entry.file < 1000)
    );
}

#[test]
fn a_missing_subdirectory_appears_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let ufs = open(dir.path());
    fs::remove_dir(dir.path().join("00/00")).expect("removed");
    put(&*ufs, &url(0), 1, LEN).expect("stored");
    assert_eq!(see(&*ufs, &url(0)), Seen::Whole(1, LEN));
}

#[test]
fn a_failing_disk_takes_the_directory_down() {
    let dir = tempfile::tempdir().expect("a directory");
    let ufs = open(dir.path());
    fs::remove_dir_all(dir.path().join("00")).expect("removed");
    fs::write(dir.path().join("00"), b"a file where a directory should be").expect("written");
    for _ in 0..crate::health::ERRORS_TO_DOWN {
        assert!(!ufs.stats().down);
        assert!(matches!(put(&*ufs, &url(0), 1, LEN), Err(SchemeError::Io { .. })));
    }
    assert!(ufs.stats().down && !ufs.admits(Some(LEN)));
    assert!(matches!(put(&*ufs, &url(0), 1, LEN), Err(SchemeError::Down)));
}

#[test]
fn open_files_are_bounded() {
    let dir = tempfile::tempdir().expect("a directory");
    let ufs = crate::open(
        &DirOptions { max_open_files: 1, ..options(dir.path()) }.map(SchemeOptions::Ufs),
    )
    .expect("open");
    put(&*ufs, &url(0), 1, 1 << 20).expect("stored");
    put(&*ufs, &url(1), 1, LEN).expect("stored");
    let key = key(&url(0));
    let reader = run(ufs.open(&key)).expect("open").expect("there");
    assert_eq!(ufs.stats().open_files, 1);
    assert!(matches!(run(ufs.open(&key)), Err(SchemeError::Busy(_))));
    assert!(matches!(put(&*ufs, &url(2), 1, 1 << 20), Err(SchemeError::Busy(_))));
    assert_eq!(see(&*ufs, &url(1)), Seen::Whole(1, LEN), "a short file is not kept open");
    drop(reader);
    assert_eq!((see(&*ufs, &url(0)), ufs.stats().open_files), (Seen::Whole(1, 1 << 20), 0));
}

/// A file system of its own, unmounted at the end.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// `None` where mounting is not allowed.
    fn new(bytes: u64) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(dir.path())
            .stderr(std::process::Stdio::null())
            .status();
        mount.is_ok_and(|status| status.success()).then_some(Self(dir))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_stops_storing_and_the_service_goes_on() {
    let Some(disk) = SmallDisk::new(2 << 20) else {
        println!("not run: mounting a tmpfs needs root");
        return;
    };
    let ufs = open(disk.0.path());
    let (mut stored, mut refused) = (0, 0);
    for i in 0..1000 {
        match put(&*ufs, &url(i), 1, 13_000) {
            Ok(()) => {
                stored += 1;
                assert_eq!(see(&*ufs, &url(i)), Seen::Whole(1, 13_000));
            }
            Err(SchemeError::Busy(_)) => refused += 1,
            Err(other) => panic!("{other}"),
        }
        if i % 50 == 0 {
            run(ufs.maintain()).expect("maintenance");
        }
    }
    let stats = ufs.stats();
    assert!(
        refused > 0 && stored > 500 && stats.evictions > 0 && !stats.down,
        "{stored} stored, {stats:?}"
    );
    ufs.close().expect("closed");
    drop(ufs);
    let ufs = open(disk.0.path());
    assert_eq!(ufs.stats().objects, stats.objects);
}

#[test]
fn a_long_log_is_read_in_the_background_and_purges_meanwhile_count() {
    const RECORDS: u32 = 300_000;
    let dir = tempfile::tempdir().expect("a directory");
    drop(open(dir.path()));
    let root = rustix::fs::open(dir.path(), OFlags::RDONLY, Mode::empty()).expect("the directory");
    let log = SwapLog::create(&root, true).expect("a log");
    for i in 0..RECORDS {
        let entry = FileEntry { file: i, size_units: 1, flags: 0 };
        log.append(LogRecord::Add(IndexKey::from(&key(&url(i.into()))), entry));
        if i % 10_000 == 0 {
            log.flush(&root).expect("written");
        }
    }
    log.flush(&root).expect("written");
    let ufs = open(dir.path());
    assert!(ufs.stats().rebuild_percent < 100 && !ufs.admits(Some(1)));
    assert!(!run(ufs.remove(&key(&url(9)))).expect("removed"));
    wait_for_rebuild(&*ufs);
    assert_eq!(ufs.stats().objects, u64::from(RECORDS) - 1);
    assert!(!ufs.contains(&key(&url(9))) && ufs.contains(&key(&url(10))));
    drop(ufs);
    let ufs = open(dir.path());
    wait_for_rebuild(&*ufs);
    assert!(!ufs.contains(&key(&url(9))));
}

/// A directory without a thread or objects, to look at its parts.
fn bare(path: &Path) -> Arc<Dir> {
    let claimed = layout::claim(&options(path)).expect("claimed");
    let log = SwapLog::create(claimed.tree.root(), true).expect("a log");
    assembled(options(path), claimed, log, Rebuild::new(None))
}

fn assembled(
    options: DirOptions,
    claimed: layout::Claimed,
    log: SwapLog,
    rebuild: Rebuild,
) -> Arc<Dir> {
    let tree = Arc::new(claimed.tree);
    let engine = Arc::new(Blocking::new(Arc::clone(&tree)));
    Arc::new(Dir::new(options, tree, engine, claimed.lock, log, rebuild, 4096))
}

pub(super) fn contents(index: &FileIndex) -> Vec<(IndexKey, FileEntry)> {
    let mut all = Vec::new();
    (0..FileIndex::SHARDS).for_each(|shard| index.snapshot(shard, &mut all));
    all
}

#[test]
fn a_log_rewritten_while_the_index_changes_says_the_same_as_the_index() {
    let path = tempfile::tempdir().expect("a directory");
    let dir = bare(path.path());
    let root = dir.tree.root();
    let mut state = 5_u64;
    let mut change = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(77);
        let key = IndexKey::from(&key(&url((state >> 40) % 700)));
        if state >> 33 & 3 == 0 {
            if let Some(entry) = dir.index.remove(key) {
                dir.log.append(LogRecord::Remove(key, entry.file));
                dir.numbers().give_back(entry.file);
            }
            return;
        }
        let file = dir.numbers().take().expect("a number");
        let entry = FileEntry { file, size_units: (state >> 50) as u32 + 1, flags: 0 };
        let old = dir.index.insert(key, entry);
        if dir.log.append(LogRecord::Add(key, entry)) && file.is_multiple_of(64) {
            dir.log.flush(root).expect("written");
        }
        old.into_iter().for_each(|old| dir.numbers().give_back(old.file));
    };
    // Many changes meanwhile, and few, which are taken over in one step.
    for budget in [20, 50] {
        (0..90_000).for_each(|_| change());
        assert!(dir.log.wants_rewrite(dir.index.len()), "the log is far longer than the index");
        let mut steps = 0;
        while !dir.log.rewrite_some(root, &dir.index, budget, false).expect("rewriting") {
            (0..50).for_each(|_| change());
            assert!(dir.log.wants_rewrite(dir.index.len()), "until it is complete");
            steps += 1;
        }
        assert!(steps > 4 && !dir.log.wants_rewrite(dir.index.len()));
    }
    (0..100).for_each(|_| change());
    dir.log.flush(root).expect("written");
    let found = log::find(root).expect("readable").expect("ours");
    assert!(found.len < 40_000 * 32, "it is shorter now");
    let job = rebuild::Job::ReadLog(ReadLog::new(&found).expect("a descriptor"));
    let other_path = tempfile::tempdir().expect("a directory");
    let claimed = layout::claim(&options(other_path.path())).expect("claimed");
    let log = SwapLog::create(claimed.tree.root(), true).expect("a log");
    let other = assembled(options(other_path.path()), claimed, log, Rebuild::new(Some(job)));
    super::refill::begin(&other);
    let by_key =
        |dir: &Dir| contents(&dir.index).into_iter().collect::<std::collections::HashMap<_, _>>();
    assert_eq!(by_key(&other), by_key(&dir));
    assert!(other.rebuild.is_done(), "no conflicts");
}

#[test]
fn least_recently_used_order_survives_a_clean_stop() {
    let path = tempfile::tempdir().expect("a directory");
    let ufs = crate::ufs::open(&options(path.path())).expect("open");
    (0..OBJECTS).for_each(|i| put(&ufs, &url(i), 1, 10).expect("stored"));
    (0..OBJECTS).step_by(3).for_each(|i| assert_eq!(see(&ufs, &url(i)), Seen::Whole(1, 10)));
    let before = contents(&ufs.dir.index);
    ufs.close().expect("closed");
    drop(ufs);
    let ufs = crate::ufs::open(&options(path.path())).expect("open");
    assert_eq!(contents(&ufs.dir.index), before);
}

#[test]
fn a_small_object_is_one_file_of_the_expected_length() {
    let path = tempfile::tempdir().expect("a directory");
    let ufs = open(path.path());
    put(&*ufs, &url(0), 1, 13_000).expect("stored");
    let record = record(&url(0), 1);
    let parts = 128 + record.url.len() + record.head.len() + 13_000 + 16 + 8 + 96;
    let file = object_files(path.path()).pop().expect("a file");
    assert_eq!(file.metadata().expect("metadata").len(), parts.next_multiple_of(512) as u64);
    assert!(file.ends_with("00/00/00000000"));
}

/// Fewer stores a second than Squid's rule evicts in one round.
#[test]
fn evictions_are_spread_over_stores_however_few_there_are() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = DirOptions { capacity_bytes: 8 << 20, ..options(dir.path()) };
    let ufs = crate::open(&options.map(SchemeOptions::Ufs)).expect("open");
    wait_for_rebuild(&*ufs);
    let mut number = 0;
    for second in 0..60 {
        for _ in 0..30 {
            let before = ufs.stats().evictions;
            put(&*ufs, &url(number), 1, 13_000).expect("stored");
            number += 1;
            assert!(ufs.stats().evictions - before <= 1, "second {second}");
        }
        let before = ufs.stats().evictions;
        run(ufs.maintain()).expect("upkeep");
        assert!(ufs.stats().evictions - before <= 16, "second {second}");
    }
    let stats = ufs.stats();
    let low = (8 << 20) / 100 * 90;
    assert!(stats.evictions > 1000 && stats.used_bytes <= (8 << 20) / 100 * 95, "{stats:?}");
    assert!(stats.used_bytes > low + 2 * 16384, "as many come as would leave: {stats:?}");
    // A directory to which little comes goes to the low mark, and one to which nothing comes.
    for _ in 0..10 {
        put(&*ufs, &url(number), 1, 13_000).expect("stored");
        number += 1;
        run(ufs.maintain()).expect("upkeep");
    }
    assert!(ufs.stats().used_bytes <= low + 16384, "{:?}", ufs.stats());
    (0..2).for_each(|_| run(ufs.maintain()).expect("upkeep"));
    assert!(ufs.stats().used_bytes <= low, "{:?}", ufs.stats());
}
