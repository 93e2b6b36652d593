//! The tests that every storage scheme must pass. A scheme joins with one line:
//! `battery!(name, "name");`.
//!
//! They do not know the files of a scheme: to damage a store, they damage every file of it. Bodies
//! carry a pattern made from URL, version and offset, so that a byte that is wrong, stale or of
//! another object is seen at once.

mod cost;
mod damage;
mod lifecycle;
mod objects;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use humboldt_freshness::{Times, TimesFlags};
use humboldt_store::scheme::{
    OpenObject, Record, RecordKind, Scheme, SchemeError, SchemeStats, Writer,
};
use humboldt_store::{
    Cache, CacheSettings, DirConfig, DirSelect, InTransit, Key, MemoryMode, NoEvents, Policy,
};
use tempfile::TempDir;

use crate::{DirOptions, Levels, SchemeKind};

/// Makes one test of each item of the battery.
macro_rules! battery {
    ($module:ident, $kind:literal: $($part:ident :: $test:ident),+ $(,)?) => {
        mod $module {
            $(#[test]
            fn $test() {
                super::$part::$test($kind);
            })+
        }
    };
    ($module:ident, $kind:literal) => {
        battery!($module, $kind:
            objects::sizes_around_every_boundary, objects::stored_at_once, objects::ranges, objects::partial_objects,
            objects::a_reader_that_has_let_go, objects::overwriting_a_key, objects::removing, objects::replaced_while_being_read,
            objects::uncommitted_is_invisible, objects::vary_lists, objects::new_head_after_a_304,
            objects::a_confirmed_head_never_meets_another_body, objects::many_updates, objects::size_limits, objects::wrong_use_is_refused,
            lifecycle::clean_restart, lifecycle::restart_after_a_crash, lifecycle::a_purge_survives_a_crash,
            lifecycle::creation_is_idempotent, lifecycle::one_process_at_a_time, lifecycle::closed_is_down,
            lifecycle::eviction_keeps_the_water_marks, lifecycle::many_threads,
            lifecycle::opened_again_with_another_size, lifecycle::a_purge_log_alone,
            lifecycle::newer_answers_while_the_index_is_read, lifecycle::deleted_while_in_use,
            lifecycle::nobody_finds_what_is_being_removed,
            damage::flipped_bits, damage::truncated_files, damage::zeroed_tails, damage::exchanged_files,
            damage::deleted_files,
        );
    };
}

battery!(coss, "coss");
battery!(aufs, "aufs");
battery!(diskd, "diskd");
battery!(ufs, "ufs");
battery!(rock, "rock");
battery!(ring, "ring");

battery!(cost_of_coss, "coss": cost::a_full_directory_costs_as_much_as_an_empty_one);
battery!(cost_of_rock, "rock": cost::a_full_directory_costs_as_much_as_an_empty_one);
battery!(cost_of_ring, "ring": cost::a_full_directory_costs_as_much_as_an_empty_one);

/// Size of the directories under test, unless the size is tested.
const CAPACITY_BYTES: u64 = 256 << 20;

/// How long a rebuild may take before a test gives up.
const REBUILD_DEADLINE: Duration = Duration::from_secs(60);

/// How long a scheme may refuse objects because it is busy before a test gives up.
const BUSY_DEADLINE: Duration = Duration::from_secs(30);

/// Abilities that a kind of scheme lacks by its nature. Tests ask for them instead of being
/// loosened for all.
struct Nature {
    /// Longest body that it stores: in `coss`, an object lies inside of one stripe.
    body_bytes_max: u64,
    /// It refuses objects while its buffers wait for the disk, and takes them when it is asked
    /// again.
    sheds: bool,
    /// It stores bodies of up to this length at once, and lends them; `None` if it does not.
    at_once_bytes_max: Option<u64>,
    /// It writes a log: room is given back when the log comes round, not when an object is removed
    /// or given up.
    is_log: bool,
}

fn nature(kind: &str) -> Nature {
    let usual =
        Nature { body_bytes_max: u64::MAX, sheds: false, at_once_bytes_max: None, is_log: false };
    match kind {
        "coss" => Nature {
            body_bytes_max: (1 << 20) - 64 * 1024,
            sheds: true,
            at_once_bytes_max: Some(131_072),
            is_log: true,
        },
        "ring" => Nature { at_once_bytes_max: Some(131_072), is_log: true, ..usual },
        "ufs" => Nature { at_once_bytes_max: Some(65_536), ..usual },
        _ => usual,
    }
}
/// Time for work in the background (closing and unlinking files) before a test gives up.
const SETTLING_DEADLINE: Duration = Duration::from_secs(20);

/// A scheme on a directory of its own.
struct Bench {
    scheme: Arc<dyn Scheme>,
    options: DirOptions,
    kind: &'static str,
    _dir: Option<Arc<TempDir>>,
}

impl Bench {
    fn new(kind: &'static str) -> Self {
        Self::with(kind, |_| ())
    }

    fn with(kind: &'static str, adapt: impl FnOnce(&mut DirOptions)) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut options = options_of(kind, dir.path(), CAPACITY_BYTES);
        if let Some(levels) = options.own.levels_mut() {
            *levels = Levels { l1: 2, l2: 4 };
        }
        adapt(&mut options);
        let scheme = open(&options);
        Self { scheme, options, kind, _dir: Some(Arc::new(dir)) }
    }

    fn path(&self) -> &Path {
        &self.options.path
    }

    /// A clean stop, something done to the files, a start.
    fn restart_after(self, meanwhile: impl FnOnce(&Path)) -> Self {
        self.scheme.close().expect("a clean stop");
        self.crash_and(meanwhile)
    }

    /// The end of the process, something done to the files, a start.
    fn crash_and(self, meanwhile: impl FnOnce(&Path)) -> Self {
        let Self { scheme, options, kind, _dir } = self;
        drop(scheme);
        meanwhile(&options.path);
        let scheme = open(&options);
        Self { scheme, options, kind, _dir }
    }

    /// The end of the process and a start that has not read the index.
    fn crash_unread(self) -> Self {
        let Self { scheme, options, kind, _dir } = self;
        drop(scheme);
        let scheme = crate::open(&options).unwrap_or_else(|e| panic!("open: {e}"));
        Self { scheme, options, kind, _dir }
    }

    /// A cache over this directory alone, which keeps nothing in memory.
    fn cache(&self) -> Arc<Cache> {
        let settings = CacheSettings {
            cache_mem_bytes: 1 << 20,
            memory_policy: Policy::Lru,
            memory_mode: MemoryMode::Network,
            memory_object_bytes_max: 0,
            disk_object_bytes_max: u64::MAX,
            read_ahead_bytes: 16 * 1024,
            dir_select: DirSelect::LeastLoad,
            in_transit: InTransit::Auto,
        };
        let scheme = Arc::clone(&self.scheme);
        let dir = DirConfig { index: 0, scheme, object_bytes_max: u64::MAX, read_only: false };
        Cache::new(settings, 1, vec![dir], Arc::new(NoEvents))
    }

    fn put(&self, url: &str, version: u8, len: u64) {
        let start = Instant::now();
        // A log is busy while its disk stands still: not more often than a few times.
        let mut left: u32 = if nature(self.kind).is_log { 3 } else { 0 };
        loop {
            match put(&*self.scheme, url, version, len) {
                Ok(()) => return,
                Err(SchemeError::Busy(_))
                    if (nature(self.kind).sheds || left > 0) && start.elapsed() < BUSY_DEADLINE =>
                {
                    left = left.saturating_sub(1);
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("storing {url}: {error}"),
            }
        }
    }

    fn see(&self, url: &str) -> Seen {
        see(&*self.scheme, url)
    }

    fn maintain(&self) {
        run(self.scheme.maintain()).expect("maintenance");
    }

    /// Waits until the figures are as they must be when all that goes on in the background has
    /// ended.
    fn settle(&self, condition: impl Fn(&SchemeStats) -> bool) {
        settle(&*self.scheme, condition);
    }

    fn objects(&self) -> u64 {
        self.scheme.stats().objects
    }
}

/// Waits until the figures are as they must be when all that goes on in the background has ended.
pub(crate) fn settle(scheme: &dyn Scheme, condition: impl Fn(&SchemeStats) -> bool) {
    let start = Instant::now();
    while !condition(&scheme.stats()) {
        assert!(start.elapsed() < SETTLING_DEADLINE, "does not settle: {:?}", scheme.stats());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A scheme as it is where nothing is written.
fn options_of(kind: &str, path: impl Into<PathBuf>, capacity_bytes: u64) -> DirOptions {
    let scheme = SchemeKind::named(kind).expect("a scheme");
    DirOptions::of(scheme.defaults(), path, capacity_bytes)
}

/// Opens a directory and waits until the rebuild is done.
pub(crate) fn open(options: &DirOptions) -> Arc<dyn Scheme> {
    let scheme = crate::open(options).unwrap_or_else(|e| panic!("open: {e}"));
    wait_for_rebuild(&*scheme);
    scheme
}

/// Drives the rebuild to its end.
pub(crate) fn wait_for_rebuild(scheme: &dyn Scheme) {
    let start = Instant::now();
    while scheme.stats().rebuild_percent < 100 {
        run(scheme.maintain()).expect("maintenance");
        assert!(start.elapsed() < REBUILD_DEADLINE, "the rebuild does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
}

thread_local! {
    /// A core has one runtime for as long as it lives.
    static CORE: (tokio::runtime::Runtime, tokio::task::LocalSet) = (
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"),
        tokio::task::LocalSet::new(),
    );
}

/// Runs a future as a core of the proxy would.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    CORE.with(|(runtime, tasks)| tasks.block_on(runtime, future))
}

pub(crate) fn key(url: &str) -> Key {
    Key::primary(url.as_bytes())
}

/// A record whose head and times tell its version.
pub(crate) fn record(url: &str, version: u8) -> Record {
    let head = format!(
        "HTTP/1.1 200 OK\r\nETag: \"{version}\"\r\nX-Filler: {}\r\n",
        "x".repeat(version.into())
    );
    let times = Times {
        response_time: 1_700_000_000 + i64::from(version),
        date: 1_700_000_000,
        last_modified: Times::UNKNOWN,
        initial_age_s: 0,
        lifetime_s: 3600,
        swr_s: 0,
        sie_s: 0,
        flags: TimesFlags::HAS_VALIDATOR,
        purge_number: 0,
        serial: 0,
    };
    let head = head.into_bytes().into();
    Record { key: key(url), kind: RecordKind::Object, url: url.as_bytes().into(), head, times }
}

/// The byte at `offset` of a body; not periodic in any power of two.
fn pattern(seed: u64, offset: u64) -> u8 {
    let word = (offset / 8).wrapping_add(seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    ((word ^ word >> 29) >> (8 * (offset % 8))) as u8
}

fn seed(url: &str, version: u8) -> u64 {
    key(url).low64() ^ u64::from(version).rotate_left(40)
}

/// Bytes `start..end` of the body of version `version` of `url`.
pub(crate) fn body(url: &str, version: u8, start: u64, end: u64) -> Vec<u8> {
    let seed = seed(url, version);
    (start..end).map(|offset| pattern(seed, offset)).collect()
}

/// Writes `start..end` of a body in parts like those that arrive from a network.
async fn write_range(
    writer: &mut dyn Writer,
    url: &str,
    version: u8,
    start: u64,
    end: u64,
) -> Result<(), SchemeError> {
    let bytes = body(url, version, start, end);
    let mut offset = start;
    for piece in bytes.chunks(50_000) {
        let parts: Vec<&[u8]> = piece.chunks(4096).collect();
        writer.write(offset, &parts).await?;
        offset += piece.len() as u64;
    }
    Ok(())
}

/// Stores a complete object.
pub(crate) fn put(
    scheme: &dyn Scheme,
    url: &str,
    version: u8,
    len: u64,
) -> Result<(), SchemeError> {
    run(async {
        let mut writer = scheme.create(record(url, version), Some(len)).await?;
        write_range(&mut *writer, url, version, 0, len).await?;
        writer.commit(Some(len)).await
    })
}

/// The value of a key. Wrong bytes are not among the possibilities: they end the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// All of this version, with this length.
    Whole(u8, u64),
    /// Nothing.
    Nothing,
    /// Something that did not verify.
    Corrupt,
}

/// Version of an object that `record` has made.
fn version_of(record: &Record) -> u8 {
    u8::try_from(record.times.response_time - 1_700_000_000).expect("times as written")
}

/// Reads an object whole and checks every byte.
pub(crate) fn see(scheme: &dyn Scheme, url: &str) -> Seen {
    run(async {
        match scheme.open(&key(url)).await {
            Ok(Some(mut open)) => read_whole(&mut open, url, 30_000).await,
            Ok(None) => Seen::Nothing,
            Err(SchemeError::Corrupt(_)) => Seen::Corrupt,
            Err(other) => panic!("reading {url}: {other}"),
        }
    })
}

async fn read_whole(open: &mut OpenObject, url: &str, step: usize) -> Seen {
    let OpenObject { record: stored, reader } = open;
    let version = version_of(stored);
    assert_eq!(*stored, record(url, version), "head and times belong together");
    let len = reader.body_bytes().expect("a complete object");
    let mut buf = vec![0; step];
    let mut offset = 0;
    while offset < len {
        let at_hand = reader.at_hand(offset);
        assert!(
            at_hand == body(url, version, offset, offset + at_hand.len() as u64),
            "{url} at hand at {offset}"
        );
        match reader.read(offset, &mut buf).await {
            Ok(0) => panic!("{url} ends at {offset} of {len}"),
            Ok(read) => {
                assert!(
                    buf[..read] == body(url, version, offset, offset + read as u64),
                    "{url} at {offset}"
                );
                offset += read as u64;
            }
            Err(SchemeError::Corrupt(_)) => return Seen::Corrupt,
            Err(other) => panic!("reading {url} at {offset}: {other}"),
        }
    }
    assert_eq!(reader.read(len, &mut buf).await.expect("reading behind the end"), 0);
    assert!(reader.at_hand(len).is_empty());
    Seen::Whole(version, len)
}
