//! Writing out, reading in, purging: the cache as a whole over directories that fail on demand.

use std::sync::atomic::Ordering::SeqCst;

use parking_lot::Mutex;

use super::*;
use crate::cache::{Arrived, Storable};
use crate::dirs::{DirConfig, Purged};
use crate::events::{StoreEvent, StoreEvents};
use crate::flow::{Fate, Keep, ReaderKind};
use crate::in_flight::Begin;
use crate::purges::Purge;
use crate::scheme::{Confirmed, RecordKind, Scheme};
use crate::settings::{CacheSettings, DirSelect, InTransit, MemoryMode};
use crate::testing::{TestScheme, block_on, info, key, pattern, some_head, some_times};

const URL: &[u8] = b"http://a.example/x";
const MIB: u64 = 1024 * 1024;

#[derive(Default)]
struct Recorder(Mutex<Vec<(StoreEventKind, Option<usize>, u64)>>);

impl StoreEvents for Recorder {
    fn event(&self, event: &StoreEvent<'_>) {
        self.0.lock().push((event.kind, event.dir, event.body_bytes));
    }
}

struct Fixture {
    cache: Arc<Cache>,
    schemes: [Arc<TestScheme>; 2],
    events: Arc<Recorder>,
}

pub(crate) const SETTINGS: CacheSettings = CacheSettings {
    cache_mem_bytes: 16 * MIB,
    memory_policy: humboldt_policy::Policy::Lru,
    memory_object_bytes_max: 512 * 1024,
    disk_object_bytes_max: 4 * MIB,
    read_ahead_bytes: 16 * 1024,
    dir_select: DirSelect::LeastLoad,
    memory_mode: MemoryMode::Auto,
    in_transit: InTransit::Auto,
};

fn fixture() -> Fixture {
    let schemes = [TestScheme::new("/one"), TestScheme::new("/two")];
    let events = Arc::new(Recorder::default());
    let dirs = configs(&schemes);
    Fixture { cache: Cache::new(SETTINGS, 1, dirs, events.clone()), schemes, events }
}

pub(crate) fn configs(schemes: &[Arc<TestScheme>]) -> Vec<DirConfig> {
    let config = |(index, scheme): (usize, &Arc<TestScheme>)| {
        let scheme = scheme.clone() as Arc<dyn Scheme>;
        DirConfig { index, scheme, object_bytes_max: u64::MAX, read_only: false }
    };
    schemes.iter().enumerate().map(config).collect()
}

impl Fixture {
    fn lead(&self) -> FlowWriter {
        match self.cache.begin_or_join(key(1), key(1), URL) {
            Begin::Lead(writer) => writer,
            Begin::Join(_) | Begin::Wait(_) => panic!("somebody else leads"),
        }
    }

    fn dir(&self, index: usize) -> Arc<Dir> {
        self.cache.dirs()[index].clone()
    }

    fn events(&self) -> Vec<(StoreEventKind, Option<usize>, u64)> {
        std::mem::take(&mut self.events.0.lock())
    }

    /// Fetches a body while it is written to the first directory.
    fn fetch(&self, content: &[u8], keep: u64) -> (Result<u64, SwapOutError>, Option<Arc<Object>>) {
        let mut writer = self.lead();
        let disk = writer.subscribe(ReaderKind::Disk).expect("at the start");
        writer.publish_head(Arc::new(some_head()), info(key(1), keep));
        std::thread::scope(|scope| {
            let swap_out =
                scope.spawn(|| block_on(self.cache.swap_out(disk, record(), self.dir(0))));
            content
                .chunks(9001)
                .for_each(|part| block_on(writer.append(part)).expect("memory is there"));
            writer.finish(None);
            let object = self
                .cache
                .store(writer, URL, None)
                .filter(|stored| stored.in_memory)
                .map(|stored| stored.object);
            (swap_out.join().expect("no panic"), object)
        })
    }

    fn open(&self) -> Option<DiskHit> {
        match block_on(self.cache.open(key(1), &key(1), URL)) {
            Lookup::Found(DiskEntry::Object(hit)) => Some(hit),
            Lookup::Found(DiskEntry::Vary(_)) => panic!("not an object"),
            Lookup::Absent | Lookup::Failed => None,
        }
    }
}

fn record() -> Record {
    let head = some_head().bytes().into();
    Record { key: key(1), kind: RecordKind::Object, url: URL.into(), head, times: some_times() }
}

#[test]
fn what_is_fetched_is_in_memory_and_on_disk() {
    let f = fixture();
    for len in [0, 1, 5000, 400_000] {
        f.schemes[1].place(record(), b"older");
        let content = pattern(0, len);
        let (written, object) = f.fetch(&content, MIB);
        assert_eq!(written.ok(), Some(len as u64));
        assert_eq!(object.map(|object| object.body_bytes()), Some(len as u64));
        assert!(matches!(f.cache.lookup(&key(1)), Some(Entry::Object(_))));
        assert_eq!(f.schemes[0].body(&key(1)), Some(content));
        assert!(f.schemes[1].body(&key(1)).is_none(), "the older answer is gone");
        assert!(f.cache.in_flight().is_empty());
        assert_eq!(f.events(), [(StoreEventKind::SwapOut, Some(0), len as u64)]);
    }
}

#[test]
fn a_large_object_streams_to_disk_and_back_without_staying_in_memory() {
    let f = fixture();
    let content = pattern(0, 3_000_000);
    let (written, object) = f.fetch(&content, 512 * 1024);
    assert_eq!((written.ok(), object.is_none()), (Some(3_000_000), true));
    assert_eq!(f.schemes[0].body(&key(1)).as_ref(), Some(&content));
    f.events();
    let (hit, writer) = (f.open().expect("it is there"), f.lead());
    let mut reader = writer.subscribe(ReaderKind::Client).expect("at the start");
    let got = std::thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let mut got = Vec::new();
            while let Progress::Data { .. } = block_on(reader.data()) {
                let mut slices = Vec::new();
                let bytes = reader.slices(&mut slices, 50_000);
                slices.iter().for_each(|slice| got.extend_from_slice(slice));
                reader.advance(bytes);
            }
            got
        });
        block_on(hit.feed(&f.cache, writer));
        reading.join().expect("no panic")
    });
    assert!(got == content);
    assert_eq!(f.events(), [(StoreEventKind::SwapIn, Some(0), 3_000_000)]);
    assert_eq!(f.cache.mem().used_bytes(), 0);
}

#[test]
fn an_aborted_fetch_writes_nothing_and_keeps_what_was_stored() {
    let f = fixture();
    f.schemes[1].place(record(), b"older");
    let mut writer = f.lead();
    let disk = writer.subscribe(ReaderKind::Disk).expect("at the start");
    writer.publish_head(Arc::new(some_head()), info(key(1), MIB));
    block_on(writer.append(b"part")).expect("memory is there");
    writer.abort(AbortReason::Truncated);
    let result = block_on(f.cache.swap_out(disk, record(), f.dir(0)));
    assert!(matches!(result, Err(SwapOutError::Aborted(AbortReason::Truncated))));
    assert_eq!(f.schemes[0].body(&key(1)), None);
    assert_eq!(f.schemes[1].body(&key(1)), Some(b"older".to_vec()));
}

#[test]
fn a_failed_write_removes_the_older_answer_everywhere() {
    for fault in 0..2 {
        let f = fixture();
        f.schemes.iter().for_each(|scheme| scheme.place(record(), b"older"));
        for faults in f.schemes.iter().map(|scheme| &scheme.faults) {
            [&faults.create, &faults.write][fault].store(true, SeqCst);
        }
        let (written, object) = f.fetch(b"newer", MIB);
        assert!(
            matches!(written, Err(SwapOutError::Scheme(SchemeError::Busy(_)))) && object.is_some()
        );
        assert!(f.schemes.iter().all(|scheme| scheme.body(&key(1)).is_none()));
        let events = f.events();
        assert!(matches!(
            events[..],
            [(StoreEventKind::SwapFail, Some(0), _), (StoreEventKind::SwapFail, Some(1), _)]
        ));
    }
}

#[test]
fn larger_than_the_maximum_is_not_written() {
    let f = fixture();
    let (written, _) = f.fetch(&pattern(0, 4 * MIB as usize + 70_000), 0);
    assert!(matches!(written, Err(SwapOutError::TooLarge)));
    assert!(f.schemes[0].body(&key(1)).is_none());
}

#[test]
fn a_purge_wins_over_a_fetch_that_began_before() {
    let f = fixture();
    let mut writer = f.lead();
    let disk = writer.subscribe(ReaderKind::Disk).expect("at the start");
    writer.publish_head(Arc::new(some_head()), info(key(1), MIB));
    block_on(writer.append(b"old news")).expect("memory is there");
    f.schemes[1].place(record(), b"older");
    assert_eq!(block_on(f.cache.purge(key(1))), Purged::Found);
    assert!(
        matches!(f.cache.begin_or_join(key(1), key(1), URL), Begin::Lead(_)),
        "nobody joins the old fetch"
    );
    writer.finish(None);
    assert!(
        !f.cache.store(writer, URL, None).is_some_and(|stored| stored.in_memory)
            && f.cache.lookup(&key(1)).is_none()
    );
    assert!(matches!(
        block_on(f.cache.swap_out(disk, record(), f.dir(0))),
        Err(SwapOutError::Purged)
    ));
    assert!(!f.cache.on_disk(&key(1)));
    assert_eq!(block_on(f.cache.purge(key(1))), Purged::Absent, "nothing is left");
}

#[test]
fn a_purge_wins_over_a_hit_that_was_being_read_in() {
    let f = fixture();
    f.schemes[0].place(record(), &pattern(0, 30_000));
    let hit = f.open().expect("it is there");
    assert_eq!(block_on(f.cache.purge(key(1))), Purged::Found);
    // The request that opened it may have it, later ones may not.
    assert!(block_on(hit.into_object(&f.cache)).is_some());
    assert!(f.cache.lookup(&key(1)).is_none());
}

#[test]
fn objects_are_read_into_memory_whole_or_not_at_all() {
    let f = fixture();
    for len in [0, 1, 2048, 2049, 4096, 10_007, 400_000] {
        let content = pattern(0, len);
        f.schemes[1].place(record(), &content);
        let hit = f.open().expect("it is there");
        assert_eq!((hit.body_bytes(), hit.is_complete()), (Some(len as u64), true));
        let object = block_on(hit.into_object(&f.cache)).expect("it verifies");
        let mut parts = [std::io::IoSlice::new(&[]); 128];
        let count = object.slices(0, u64::MAX, &mut parts);
        assert!(parts[..count].iter().flat_map(|part| part.iter().copied()).eq(content));
        assert!(matches!(f.cache.lookup(&key(1)), Some(Entry::Object(_))));
        assert_eq!(f.events(), [(StoreEventKind::SwapIn, Some(1), len as u64)]);
        f.cache.mem().remove(&key(1));
    }
    f.schemes[1].faults.read_from.store(200_000, SeqCst);
    let hit = f.open().expect("its head verifies");
    assert!(block_on(hit.into_object(&f.cache)).is_none() && f.cache.lookup(&key(1)).is_none());
    assert!(matches!(f.events()[..], [(StoreEventKind::SwapFail, Some(1), _)]));
    assert_eq!(f.cache.mem().used_bytes(), 0);
}

#[test]
fn a_body_that_stops_verifying_aborts_and_one_without_readers_stops() {
    let f = fixture();
    f.schemes[0].place(record(), &pattern(0, 300_000));
    f.schemes[0].faults.read_from.store(20_000, SeqCst);
    let writer = f.lead();
    let mut reader = writer.subscribe(ReaderKind::Client).expect("at the start");
    block_on(f.open().expect("its head verifies").feed(&f.cache, writer));
    let Progress::Data { available } = block_on(reader.data()) else { panic!("some verified") };
    assert!(available >= 20_000);
    reader.advance(available);
    assert_eq!(block_on(reader.data()), Progress::Aborted(AbortReason::DiskFailed));

    // Not even a head goes out when there is nothing behind it.
    for (from, published) in [(0, false), (1, true)] {
        f.schemes[0].faults.read_from.store(from, SeqCst);
        let writer = f.lead();
        let mut reader = writer.subscribe(ReaderKind::Client).expect("at the start");
        block_on(f.open().expect("its head verifies").feed(&f.cache, writer));
        let head = block_on(reader.head());
        assert!(
            head.is_ok() == published && (published || head.err() == Some(AbortReason::DiskFailed))
        );
    }

    let writer = f.lead();
    let flow = writer.flow().clone();
    block_on(f.open().expect("its head verifies").feed(&f.cache, writer));
    assert!(flow.reader_at(0, ReaderKind::Client).is_none() && f.cache.in_flight().is_empty());
}

#[test]
fn only_the_right_url_is_a_hit() {
    let f = fixture();
    f.schemes[0]
        .place(Record { url: b"http://evil.example/".as_slice().into(), ..record() }, b"collision");
    assert!(f.open().is_none());
    f.schemes[0].place(Record { head: b"garbage".as_slice().into(), ..record() }, b"body");
    assert!(f.open().is_none());
    f.schemes[1].place(record(), b"good");
    assert_eq!(
        f.open().map(|hit| hit.body_bytes()),
        Some(Some(4)),
        "another directory may have it"
    );
}

#[test]
fn a_purge_waits_for_commits_and_commits_do_not_follow_it() {
    let f = fixture();
    let (_, object) = f.fetch(b"body", MIB);
    let epoch = f.cache.in_flight().epoch(key(1));
    let commit = f.cache.commits.enter(&key(1));
    let mut purge = std::pin::pin!(f.cache.purge(key(1)));
    let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
    assert!(purge.as_mut().poll(context).is_pending(), "something is on its way to disk");
    drop(commit);
    block_on(purge);
    let late = f.schemes[0].create(object.expect("stored").record(), Some(0));
    let late =
        block_on(f.cache.commit(epoch, &key(1), 0, block_on(late).expect("created"), Some(0)));
    assert!(matches!(late, Err(SwapOutError::Purged)) && f.open().is_none());
}

#[test]
fn variants_are_found_after_a_restart_and_gone_after_a_purge() {
    let f = fixture();
    let epoch = f.cache.in_flight().epoch(key(1));
    let marker = f.cache.vary_marker(epoch, URL, b"accept");
    assert_eq!(
        *f.cache.vary_marker(epoch, URL, b"accept"),
        *marker,
        "the same list, the same marker"
    );
    assert_ne!(f.cache.vary_marker(epoch, URL, b"cookie").generation, marker.generation);
    block_on(f.cache.write_vary(epoch, &marker, some_times())).expect("stored");
    f.cache.mem().remove(&key(1));
    let Lookup::Found(DiskEntry::Vary(found)) = block_on(f.cache.open(key(1), &key(1), URL)) else {
        panic!("no marker")
    };
    assert_eq!(*found, *marker);
    assert!(matches!(f.cache.lookup(&key(1)), Some(Entry::Vary(_))));
    assert_eq!(block_on(f.cache.purge(key(1))), Purged::Found);
    assert!(matches!(block_on(f.cache.open(key(1), &key(1), URL)), Lookup::Absent));
    // One that was on its way comes too late, or is removed again.
    assert!(block_on(f.cache.write_vary(epoch, &marker, some_times())).is_err());
    assert!(matches!(block_on(f.cache.open(key(1), &key(1), URL)), Lookup::Absent));
    let after = f.cache.vary_marker(f.cache.in_flight().epoch(key(1)), URL, b"accept");
    assert_ne!(after.variant_key(key(1), b"x"), marker.variant_key(key(1), b"x"));
}

#[test]
fn a_marker_that_cannot_be_written_leaves_no_older_one() {
    let f = fixture();
    let epoch = f.cache.in_flight().epoch(key(1));
    let marker = f.cache.vary_marker(epoch, URL, b"accept");
    block_on(f.cache.write_vary(epoch, &marker, some_times())).expect("stored");
    f.schemes.iter().for_each(|scheme| scheme.faults.create.store(true, SeqCst));
    let newer = f.cache.vary_marker(epoch, URL, b"cookie");
    assert!(block_on(f.cache.write_vary(epoch, &newer, some_times())).is_err());
    f.cache.mem().remove(&key(1));
    // It would lead to variants that are older than those of the newer marker.
    assert!(matches!(block_on(f.cache.open(key(1), &key(1), URL)), Lookup::Absent));
}

#[test]
fn a_confirmed_answer_gets_its_new_times_everywhere() {
    let f = fixture();
    let (_, object) = f.fetch(b"body", MIB);
    let fresh = Times { lifetime_s: 999, ..some_times() };
    let epoch = f.cache.in_flight().epoch(key(1));
    let confirmed = object.expect("stored");
    let object = f.cache.refresh(epoch, &confirmed, some_head(), fresh);
    assert!(matches!(f.cache.lookup(&key(1)), Some(Entry::Object(found)) if found.times == fresh));
    block_on(f.cache.update_on_disk(epoch, &object.record(), &Confirmed::of(&confirmed.record())));
    assert_eq!(f.open().map(|hit| hit.times), Some(fresh));
    f.schemes[0].faults.update.store(true, SeqCst);
    block_on(f.cache.update_on_disk(epoch, &object.record(), &Confirmed::of(&object.record())));
    assert!(f.open().is_none(), "rather none than the old head");
}

#[test]
fn a_confirmed_head_never_meets_the_body_of_another_version() {
    let f = fixture();
    let (_, object) = f.fetch(b"body", MIB);
    let record = object.expect("stored").record();
    assert!(f.open().is_some());
    let epoch = f.cache.in_flight().epoch(key(1));
    let another = Record {
        head: b"HTTP/1.1 200 OK\r\nX-Version: another\r\n".as_slice().into(),
        ..record.clone()
    };
    block_on(f.cache.update_on_disk(epoch, &record, &Confirmed::of(&another)));
    assert!(f.open().is_none(), "what was confirmed is not what is stored");
}

#[test]
fn directories_are_chosen_by_size_load_or_turn() {
    let f = fixture();
    let chosen = |bytes| f.cache.select_dir(bytes).map(|dir| dir.index);
    f.schemes[0].load.store(500, SeqCst);
    assert_eq!([chosen(None), chosen(Some(1)), chosen(Some(4 * MIB))], [Some(1); 3]);
    f.schemes[1].body_bytes_max.store(100, SeqCst);
    assert_eq!(
        [chosen(Some(100)), chosen(Some(101)), chosen(Some(4 * MIB + 1))],
        [Some(1), Some(0), None]
    );
    let dirs = configs(&f.schemes);
    f.cache.reconfigure(CacheSettings { dir_select: DirSelect::RoundRobin, ..SETTINGS }, dirs);
    let mut turns: Vec<_> = (0..4).map(|_| chosen(Some(1))).collect();
    turns.sort_unstable();
    assert_eq!(turns, [Some(0), Some(0), Some(1), Some(1)]);
    f.cache.reconfigure(SETTINGS, Vec::new());
    assert_eq!(chosen(Some(1)), None);
}

#[test]
fn among_equally_busy_directories_the_closest_fit_then_the_most_room_wins() {
    let f = fixture();
    let reconfigure = |limits: [u64; 2], room: [u64; 2]| {
        let mut dirs = configs(&f.schemes);
        for (at, dir) in dirs.iter_mut().enumerate() {
            dir.object_bytes_max = limits[at];
            f.schemes[at].capacity_bytes.store(room[at], SeqCst);
        }
        f.cache.reconfigure(SETTINGS, dirs);
    };
    let chosen = |bytes| f.cache.select_dir(bytes).map(|dir| dir.index);
    reconfigure([u64::MAX, 1000], [MIB, 0]);
    for _ in 0..3 {
        assert_eq!(
            [chosen(Some(1000)), chosen(Some(1001)), chosen(None)],
            [Some(1), Some(0), Some(0)]
        );
    }
    // An assignment counts at once, not only when the figures are read again.
    reconfigure([u64::MAX; 2], [100, 130]);
    let turns: Vec<_> = (0..4).map(|_| chosen(Some(20)).expect("a directory")).collect();
    assert_eq!(turns, [1, 1, 0, 1]);
    for select in [DirSelect::LeastLoad, DirSelect::RoundRobin] {
        let settings = CacheSettings { dir_select: select, ..SETTINGS };
        let mut dirs = configs(&f.schemes);
        dirs[1].read_only = true;
        f.cache.reconfigure(settings, dirs);
        assert_eq!(
            [chosen(Some(1)), chosen(Some(1))],
            [Some(0); 2],
            "{select:?}: nothing new in a read-only one"
        );
        f.schemes[0].load.store(1001, SeqCst);
        f.cache.reconfigure(settings, configs(&f.schemes));
        assert_eq!([chosen(Some(1)), chosen(Some(1))], [Some(1); 2], "{select:?}: overloaded");
        f.schemes[0].load.store(0, SeqCst);
    }
}

#[test]
fn an_object_that_one_directory_refuses_goes_to_another_if_its_beginning_is_there() {
    let content = pattern(0, 300_000);
    for refuse in [0, 1] {
        let f = fixture();
        match refuse {
            0 => f.schemes[0].faults.create.store(true, SeqCst),
            _ => f.schemes[0].faults.write_bytes_max.store(100_000, SeqCst),
        }
        let (written, _) = f.fetch(&content, MIB);
        assert_eq!(written.ok(), Some(300_000));
        assert_eq!(
            (f.schemes[0].body(&key(1)), f.schemes[1].body(&key(1))),
            (None, Some(content.clone()))
        );
        let kinds: Vec<_> = f.events().iter().map(|(kind, dir, _)| (*kind, *dir)).collect();
        assert_eq!(
            kinds,
            [(StoreEventKind::SwapFail, Some(0)), (StoreEventKind::SwapOut, Some(1))]
        );
    }
    // Both refuse: each was tried once, and the former record is gone.
    let f = fixture();
    f.schemes.iter().for_each(|scheme| scheme.faults.create.store(true, SeqCst));
    f.schemes[1].place(record(), b"older");
    assert!(matches!(f.fetch(&content, MIB).0, Err(SwapOutError::Scheme(_))));
    assert_eq!(f.schemes.each_ref().map(|scheme| scheme.creates.load(SeqCst)), [1, 1]);
    assert!(f.schemes[1].body(&key(1)).is_none());
}

#[test]
fn what_a_directory_was_to_forget_while_it_was_away_does_not_come_back() {
    let f = fixture();
    for away in ["down", "not configured"] {
        f.schemes[1].place(record(), b"purged meanwhile");
        f.schemes[1].place(Record { key: key(2), ..record() }, b"stays");
        if away == "down" {
            f.schemes[1].faults.down.store(true, SeqCst);
            block_on(f.cache.maintain());
        } else {
            f.cache.reconfigure(SETTINGS, configs(&f.schemes[..1]));
        }
        assert!(f.open().is_none(), "{away}");
        let wanted = if away == "down" { Purged::Owed } else { Purged::Absent };
        assert_eq!(block_on(f.cache.purge(key(1))), wanted);
        f.schemes[1].faults.down.store(false, SeqCst);
        f.cache.reconfigure(SETTINGS, configs(&f.schemes));
        assert!(
            f.open().is_none() && !f.cache.on_disk(&key(2)),
            "{away}: nothing before its debts are paid"
        );
        block_on(f.cache.maintain());
        assert!(f.open().is_none() && f.cache.on_disk(&key(2)), "{away}");
        assert!(f.schemes[1].body(&key(1)).is_none());
    }
}

#[test]
fn a_directory_that_says_it_is_down_is_not_asked_again_before_it_says_otherwise() {
    let f = fixture();
    f.schemes[0].place(record(), b"body");
    f.dir(0).note(&SchemeError::Down);
    assert!(f.open().is_none() && !f.cache.on_disk(&key(1)));
    assert_eq!(f.cache.select_dir(Some(1)).map(|dir| dir.index), Some(1));
    block_on(f.cache.maintain());
    assert!(f.open().is_some());
}

#[test]
fn where_an_object_in_transit_is_kept_depends_on_the_policy() {
    let f = fixture();
    let keep = |in_transit, goes_to_disk| {
        f.cache.reconfigure(CacheSettings { in_transit, ..SETTINGS }, Vec::new());
        f.cache.keep_bytes_max(goes_to_disk)
    };
    assert_eq!([keep(InTransit::Auto, true), keep(InTransit::Auto, false)], [512 * 1024; 2]);
    assert_eq!([keep(InTransit::Disk, true), keep(InTransit::Disk, false)], [0, 512 * 1024]);
    assert_eq!([keep(InTransit::Memory, true), keep(InTransit::Memory, false)], [MIB, 512 * 1024]);
    // Kept whole on its way to the disk, and yet no object for memory.
    f.cache.reconfigure(
        CacheSettings { in_transit: InTransit::Memory, ..SETTINGS },
        configs(&f.schemes),
    );
    let (written, object) = f.fetch(&pattern(0, 900_000), MIB);
    assert_eq!(
        (written.ok(), object.is_none(), f.cache.lookup(&key(1)).is_none()),
        (Some(900_000), true, true)
    );
}

#[test]
fn what_becomes_of_an_answer_is_decided_by_its_length_the_directory_and_the_settings() {
    use crate::vary::VaryMarker;
    const WHOLE: u64 = 64 * 1024;
    const KEPT: u64 = 512 * 1024;
    let f = fixture();
    f.schemes.iter().for_each(|scheme| scheme.whole_bytes_max.store(WHOLE, SeqCst));
    let head = some_head();
    let fate = |settings, arrived: Arrived<'_>| {
        f.cache.reconfigure(settings, configs(&f.schemes));
        let is_storable = matches!(arrived.storable, Storable::Yes(_));
        let (info, dir) = f.cache.fate(arrived);
        assert_eq!(dir.is_some(), info.fate.goes_to_disk());
        assert_eq!(info.times.is_some(), is_storable);
        info.fate
    };
    let of_length = |body_bytes| Arrived {
        url: URL,
        head: &head,
        key: key(1),
        body_bytes,
        vary: None,
        storable: Storable::Yes(some_times()),
    };
    let known = |bytes| of_length(Some(bytes));
    let vary = || Some(Arc::new(VaryMarker::new(URL, b"accept")));
    let mode = |memory_mode| CacheSettings { memory_mode, ..SETTINGS };
    let on_disk = CacheSettings { in_transit: InTransit::Disk, ..mode(MemoryMode::Always) };
    let for_good = Fate::AsItComes(Keep::ForGood(KEPT));
    for (settings, arrived, expected) in [
        (mode(MemoryMode::Always), known(0), Fate::AtEnd),
        (mode(MemoryMode::Always), known(WHOLE), Fate::AtEnd),
        (mode(MemoryMode::Auto), known(WHOLE), Fate::AtEnd),
        (mode(MemoryMode::Disk), known(WHOLE), Fate::Lent),
        (mode(MemoryMode::Always), known(WHOLE + 1), for_good),
        (mode(MemoryMode::Always), of_length(None), for_good),
        (mode(MemoryMode::Always), Arrived { vary: vary(), ..known(1) }, for_good),
        (mode(MemoryMode::Disk), known(WHOLE + 1), Fate::AsItComes(Keep::WhileItComes(KEPT))),
        (on_disk, known(1), Fate::AsItComes(Keep::Unread)),
        (on_disk, known(0), Fate::AsItComes(Keep::Unread)),
        (SETTINGS, known(4 * MIB + 1), Fate::Memory { body_bytes_max: KEPT }),
        (SETTINGS, Arrived { storable: Storable::Outdated, ..known(1) }, Fate::Shared),
        (SETTINGS, Arrived { storable: Storable::No, ..known(1) }, Fate::Private),
    ] {
        let told = format!("{settings:?} {:?} {:?}", arrived.body_bytes, arrived.storable);
        assert_eq!(fate(settings, arrived), expected, "{told}");
    }
}

#[test]
fn a_confirmation_does_not_make_an_older_body_younger() {
    let f = fixture();
    let (_, old) = f.fetch(b"old", MIB);
    let old = old.expect("stored");
    let prefix = Purge::prefix(URL).expect("a good prefix");
    f.cache.purges().register_now(&[prefix]).expect("in memory");
    assert!(f.cache.lookup(&key(1)).is_none() && f.open().is_none(), "purged");
    // The next answer has the same head, and is confirmed before it is on disk.
    let times = Times { purge_number: f.cache.purges().newest(), ..some_times() };
    let new = old.refreshed((*old.head).clone(), times);
    let epoch = f.cache.in_flight().epoch(key(1));
    block_on(f.cache.update_on_disk(epoch, &new.record(), &Confirmed::of(&old.record())));
    assert!(f.open().is_none(), "the old body under a new number");
    // A record that was under way is not stored, and removes nothing.
    let epoch = f.cache.in_flight().epoch(key(1));
    assert!(
        block_on(f.cache.write_object(epoch, &new, f.dir(0), None)).is_ok() && f.open().is_some()
    );
    let late = block_on(f.cache.write_object(epoch, &old, f.dir(0), None));
    assert!(matches!(late, Err(SwapOutError::Purged)) && f.open().is_some());
}
