//! Courses in which an older answer could return, over directories that the test controls.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, Waker};

use humboldt_freshness::Times;

use crate::cache::Cache;
use crate::dirs::{Dir, DirConfig};
use crate::disk::{DiskEntry, DiskHit, Lookup, SwapOutError};
use crate::events::NoEvents;
use crate::flow::{Fate, FlowInfo, FlowReader, FlowWriter, Keep, ReaderKind};
use crate::in_flight::Begin;
use crate::mem::Entry;
use crate::object::{About, Object};
use crate::parts::{NotListed, Part};
use crate::purges::Purge;
use crate::scheme::{Confirmed, Record, RecordKind};
use crate::settings::{CacheSettings, DirSelect, InTransit, MemoryMode};
use crate::testing::{TestScheme, block_on, info, key, pattern, some_head, some_times};
use crate::vary::VaryMarker;
use crate::versions::Standing;

const URL: &[u8] = b"http://a.example/x";
const KEEP: u64 = 64 * 1024;
const FOR_GOOD: Fate = Fate::AsItComes(Keep::ForGood(KEEP));

const SETTINGS: CacheSettings = CacheSettings {
    cache_mem_bytes: 1 << 20,
    memory_policy: humboldt_policy::Policy::Lru,
    memory_object_bytes_max: KEEP,
    disk_object_bytes_max: 1 << 20,
    read_ahead_bytes: 16 * 1024,
    dir_select: DirSelect::LeastLoad,
    memory_mode: MemoryMode::Auto,
    in_transit: InTransit::Auto,
};

struct World {
    cache: Arc<Cache>,
    schemes: [Arc<TestScheme>; 2],
}

fn configs(schemes: &[Arc<TestScheme>]) -> Vec<DirConfig> {
    let config = |(index, scheme): (usize, &Arc<TestScheme>)| DirConfig {
        index,
        scheme: scheme.clone(),
        object_bytes_max: u64::MAX,
        read_only: false,
    };
    schemes.iter().enumerate().map(config).collect()
}

fn world() -> World {
    let schemes = [TestScheme::new("/a"), TestScheme::new("/b")];
    World { cache: Cache::new(SETTINGS, 1, configs(&schemes), Arc::new(NoEvents)), schemes }
}

/// Bytes that tell their version.
fn body(version: u8) -> Vec<u8> {
    let mut body = pattern(0, 5000);
    body[0] = version;
    body
}

/// As if it had been received `version` seconds after 1000.
fn times(version: u8) -> Times {
    let second = 1000 + i64::from(version);
    Times { response_time: second, date: second, ..some_times() }
}

fn record(version: u8) -> Record {
    let head = some_head().bytes().into();
    Record { key: key(1), kind: RecordKind::Object, url: URL.into(), head, times: times(version) }
}

fn version_of(object: &Object) -> u8 {
    object.parts().next().and_then(|part| part.first().copied()).expect("a body")
}

impl World {
    fn dir(&self, index: usize) -> Arc<Dir> {
        self.cache.dirs()[index].clone()
    }

    fn all_at_once(&self) {
        self.schemes.iter().for_each(|scheme| scheme.faults.at_once.store(true, SeqCst));
    }

    /// A fetch that no other request joins, as for a reload.
    fn reload(&self) -> (FlowWriter, FlowReader) {
        let writer = self.cache.private(key(1), key(1));
        let reader = writer.subscribe(ReaderKind::Client).expect("at the start");
        (writer, reader)
    }

    fn publish(&self, writer: &mut FlowWriter, version: u8, fate: Fate) {
        let times = Some(times(version));
        let info = FlowInfo { times, fate, ..info(writer.key(), KEEP) };
        writer.publish_head(Arc::new(some_head()), info);
    }

    /// From the head on: to memory and, if it takes it at once, to a directory. Says whether it is
    /// there.
    fn finish(&self, mut writer: FlowWriter, version: u8, dir: Option<usize>) -> (bool, bool) {
        self.publish(&mut writer, version, FOR_GOOD);
        self.finish_published(writer, version, dir)
    }

    fn finish_published(
        &self,
        mut writer: FlowWriter,
        version: u8,
        dir: Option<usize>,
    ) -> (bool, bool) {
        block_on(writer.append(&body(version))).expect("memory is there");
        writer.finish(None);
        let (epoch, _writing) = (writer.epoch(), writer.writing());
        let dir = dir.map(|dir| self.dir(dir));
        let stored = self.cache.store(writer, URL, dir.as_deref()).expect("kept whole");
        if let (Some(dir), true) = (&dir, stored.on_disk) {
            _ = block_on(self.cache.finish_write(epoch, &stored.object.about(), dir));
        }
        (stored.in_memory, stored.on_disk)
    }

    fn open(&self) -> Option<DiskHit> {
        match block_on(self.cache.open(key(1), &key(1), URL)) {
            Lookup::Found(DiskEntry::Object(hit)) => Some(hit),
            _ => None,
        }
    }

    fn in_memory(&self) -> Option<u8> {
        match self.cache.lookup(&key(1)) {
            Some(Entry::Object(object)) => Some(version_of(&object)),
            _ => None,
        }
    }

    fn on_disk(&self) -> Option<u8> {
        let mut byte = [0];
        block_on(self.open()?.read(0, &mut byte)).expect("it verifies");
        Some(byte[0])
    }
}

#[test]
fn an_older_answer_in_another_directory_does_not_come_back_to_memory() {
    for at_hand in [false, true] {
        let w = world();
        w.schemes.iter().for_each(|scheme| scheme.faults.at_hand.store(at_hand, SeqCst));
        w.schemes[1].faults.at_once.store(true, SeqCst);
        w.schemes[0].place(record(1), &body(1));
        let older = w.open().expect("it is there");
        let (mut writer, _reader) = w.reload();
        w.publish(&mut writer, 2, Fate::Lent);
        let head = w.cache.store_lending(&mut writer, URL, &w.dir(1), &body(2)).expect("lent");
        let about = head.about(URL, 5000).expect("stored");
        block_on(w.cache.finish_write(writer.epoch(), &about, &w.dir(1))).expect("written");
        drop(writer);
        w.cache.mem().remove(&key(1));
        let older = block_on(older.hold(&w.cache)).expect("its client gets it");
        assert!(older.kept(&w.cache, true).is_ok());
        assert_eq!((w.in_memory(), w.on_disk()), (None, Some(2)), "{at_hand}");
    }
}

#[test]
fn an_older_answer_of_a_directory_that_was_down_loses_after_a_restart() {
    for newer_is_in in [0, 1] {
        let mut w = world();
        let older_is_in = 1 - newer_is_in;
        w.all_at_once();
        w.schemes[older_is_in].place(record(1), &body(1));
        w.schemes[older_is_in].faults.down.store(true, SeqCst);
        block_on(w.cache.maintain());
        let (writer, _reader) = w.reload();
        assert_eq!(w.finish(writer, 2, Some(newer_is_in)), (true, true));
        w.schemes[older_is_in].faults.down.store(false, SeqCst);
        w.cache = Cache::new(SETTINGS, 1, configs(&w.schemes), Arc::new(NoEvents));
        assert_eq!(w.on_disk(), Some(2), "{newer_is_in}");
        assert!(w.schemes[older_is_in].body(&key(1)).is_none(), "the loser is gone");
    }
}

#[test]
fn of_records_that_nobody_can_put_in_order_none_is_used() {
    let skewed = Times { date: 900, ..times(2) };
    for (one, other) in [(times(1), times(1)), (times(1), skewed), (skewed, times(1))] {
        let w = world();
        w.schemes[0].place(Record { times: one, ..record(1) }, &body(1));
        w.schemes[1].place(Record { times: other, ..record(1) }, &body(2));
        assert!(w.open().is_none(), "{one:?} {other:?}");
        assert!(w.schemes.iter().all(|scheme| scheme.body(&key(1)).is_none()));
    }
    // An answer requested after a purge by tag or prefix is newer than one requested before it.
    let w = world();
    let elsewhere = Purge::prefix(b"http://b.example/").expect("a good prefix");
    w.cache.purges().register_now(&[elsewhere]).expect("in memory");
    w.schemes[0]
        .place(Record { times: Times { purge_number: 1, ..skewed }, ..record(1) }, &body(2));
    w.schemes[1].place(record(3), &body(1));
    assert_eq!(w.on_disk(), Some(2));
}

#[test]
fn an_older_answer_is_not_read_between_the_end_of_a_fetch_and_the_end_of_its_writing() {
    let w = world();
    w.schemes[0].place(record(1), &body(1));
    let early = w.open().expect("it is there");
    let (mut writer, _reader) = w.reload();
    // Too large for memory.
    w.cache.reconfigure(
        CacheSettings { memory_object_bytes_max: 10, ..SETTINGS },
        configs(&w.schemes),
    );
    w.publish(&mut writer, 2, FOR_GOOD);
    let disk = writer.subscribe(ReaderKind::Disk).expect("at the start");
    block_on(writer.append(&body(2))).expect("memory is there");
    assert_eq!(w.on_disk(), Some(1), "nobody has the newer one yet");
    writer.finish(None);
    assert!(w.cache.store(writer, URL, None).is_some_and(|stored| !stored.in_memory));
    assert!(w.open().is_none(), "its client has the newer one");
    w.cache.reconfigure(SETTINGS, configs(&w.schemes));
    assert!(block_on(early.into_object(&w.cache)).is_some());
    assert_eq!(w.in_memory(), None, "what was opened before does not get to memory");
    block_on(w.cache.swap_out(disk, record(2), w.dir(1))).expect("written");
    assert_eq!(w.on_disk(), Some(2));
}

#[test]
fn an_older_vary_marker_does_not_take_a_newer_object_out_of_memory() {
    let w = world();
    let older = || Entry::Vary(Arc::new(VaryMarker::new(URL, b"accept")));
    let since = w.cache.since_now(key(1));
    let (writer, _reader) = w.reload();
    w.finish(writer, 2, None);
    assert!(!w.cache.put_read(&since, key(1), older()));
    assert_eq!(w.in_memory(), Some(2));
    w.cache.mem().remove(&key(1));
    assert!(!w.cache.put_read(&since, key(1), older()), "also when memory has lost it meanwhile");
}

#[test]
fn a_slow_fetch_does_not_take_the_place_of_a_reload_that_was_asked_for_later() {
    for (is_head_late, at_once) in [(true, true), (true, false), (false, true), (false, false)] {
        let w = world();
        w.schemes.iter().for_each(|scheme| scheme.faults.at_once.store(at_once, SeqCst));
        let Begin::Lead(mut slow) = w.cache.begin_or_join(key(1), key(1), URL) else {
            panic!("alone")
        };
        let _slow_reader = slow.subscribe(ReaderKind::Client).expect("at the start");
        if !is_head_late {
            w.publish(&mut slow, 1, FOR_GOOD);
        }
        let (writer, _reader) = w.reload();
        assert_eq!(w.finish(writer, 2, Some(0)), (true, at_once));
        let lead = w.cache.begin_or_join(key(1), key(1), URL);
        assert!(matches!(lead, Begin::Lead(_)), "the older one is not joined");
        drop(lead);
        if is_head_late {
            w.publish(&mut slow, 1, FOR_GOOD);
        }
        assert_eq!(
            w.finish_published(slow, 1, Some(1)),
            (false, false),
            "late head: {is_head_late}"
        );
        assert_eq!((w.in_memory(), w.on_disk()), (Some(2), at_once.then_some(2)));
        // Nor where memory knows nothing of the newer one any more.
        let (mut slow, _slow_reader) = w.reload();
        let disk = slow.subscribe(ReaderKind::Disk).expect("at the start");
        let (writer, _reader) = w.reload();
        w.finish(writer, 4, Some(0));
        w.cache.mem().remove(&key(1));
        w.publish(&mut slow, 3, FOR_GOOD);
        assert_eq!(w.finish_published(slow, 3, Some(1)), (false, false));
        let outcome = block_on(w.cache.swap_out(disk, record(3), w.dir(1)));
        assert!(matches!(outcome, Err(SwapOutError::Outdated)), "{outcome:?}");
        assert_eq!(w.on_disk(), at_once.then_some(4));
    }
}

#[test]
fn of_a_slow_fetch_and_a_reload_with_an_earlier_date_none_is_the_newer_one() {
    let w = world();
    let (slow, _slow_reader) = w.reload();
    let (writer, _reader) = w.reload();
    w.finish(writer, 2, None);
    slow.answer(1003, None);
    assert_eq!(slow.announce(&[(key(1), 0)]), Standing::Unclear);
    assert_eq!(w.finish(slow, 3, None), (false, false), "only its client gets it");
}

#[test]
fn an_answer_that_is_given_up_keeps_no_older_one_from_being_stored() {
    let w = world();
    let (slow, _slow_reader) = w.reload();
    let (mut writer, _reader) = w.reload();
    w.publish(&mut writer, 2, FOR_GOOD);
    drop(writer);
    assert_eq!(w.finish(slow, 1, None), (true, false));
    assert_eq!(w.in_memory(), Some(1));
}

#[test]
fn an_older_answer_leaves_memory_before_a_client_has_the_newer_one() {
    let w = world();
    let (writer, _reader) = w.reload();
    w.finish(writer, 1, None);
    let (mut writer, _reader) = w.reload();
    w.publish(&mut writer, 2, FOR_GOOD);
    block_on(writer.append(&body(2))).expect("memory is there");
    assert_eq!(w.in_memory(), Some(1));
    writer.finish(None);
    assert_eq!(
        w.in_memory(),
        None,
        "the client has the newer one, and nothing has been stored yet"
    );
}

#[test]
fn a_commit_that_comes_late_is_not_read_after_a_newer_answer() {
    let w = world();
    let (mut slow, _slow_reader) = w.reload();
    w.publish(&mut slow, 1, FOR_GOOD);
    assert!(w.cache.begin_commit(slow.epoch(), &key(1)), "on its way");
    w.schemes[1].faults.at_once.store(true, SeqCst);
    let (writer, _reader) = w.reload();
    assert_eq!(w.finish(writer, 2, Some(1)), (true, false), "the newer one does not overtake it");
    w.cache.mem().remove(&key(1));
    w.schemes[0].place(record(1), &body(1)); // now it is there
    assert!(w.open().is_none(), "rather none than the older one");
    let (head, times) = (some_head(), times(1));
    let about = About { key: key(1), url: URL, head: &head, times: &times, body_bytes: 5000 };
    assert!(block_on(w.cache.finish_write(slow.epoch(), &about, &w.dir(0))).is_err());
    drop(slow);
    assert_eq!(w.on_disk(), None);
    let (writer, _reader) = w.reload();
    assert_eq!(w.finish(writer, 3, Some(1)), (true, true), "nothing is on its way any more");
}

#[test]
fn a_confirmation_does_not_bring_back_what_a_reload_has_replaced() {
    let w = world();
    let (writer, _reader) = w.reload();
    w.finish(writer, 1, None);
    let Some(Entry::Object(old)) = w.cache.lookup(&key(1)) else { panic!("stored") };
    let (validation, _validation_reader) = w.reload();
    let (writer, _reader) = w.reload();
    w.finish(writer, 2, None);
    validation.answer(1001, None);
    assert_eq!(validation.announce(&[(key(1), 0)]), Standing::Outdated);
    w.cache.refresh(validation.epoch(), &old, some_head(), times(3));
    assert_eq!(w.in_memory(), Some(2));
}

#[test]
fn of_two_answers_of_one_second_with_equal_heads_only_the_confirmed_one_is_refreshed() {
    for (serial, is_same) in [(1, true), (2, false)] {
        let w = world();
        let stored = Record { times: Times { serial: 1, ..times(1) }, ..record(1) };
        w.schemes[0].place(stored.clone(), &body(1));
        let confirmed = Record { times: Times { serial, ..stored.times }, ..stored.clone() };
        let fresh = Record { times: Times { lifetime_s: 999, ..times(5) }, ..stored };
        let epoch = w.cache.in_flight().epoch(key(1));
        block_on(w.cache.update_on_disk(epoch, &fresh, &Confirmed::of(&confirmed)));
        let lifetime = w.open().map(|hit| hit.times.lifetime_s);
        assert_eq!(lifetime, is_same.then_some(999));
    }
}

#[test]
fn a_vary_marker_is_written_once() {
    let w = world();
    let epoch = w.cache.in_flight().epoch(key(1));
    let marker = |fields: &[u8]| w.cache.vary_marker(epoch, URL, fields);
    let is_to_be_written = |fields: &[u8]| w.cache.is_to_be_written(epoch, &marker(fields));
    assert!(is_to_be_written(b"accept"));
    block_on(w.cache.write_vary(epoch, &marker(b"accept"), some_times())).expect("written");
    assert!(!is_to_be_written(b"accept"));
    w.cache.mem().remove(&key(1));
    assert!(matches!(
        block_on(w.cache.open(key(1), &key(1), URL)),
        Lookup::Found(DiskEntry::Vary(_))
    ));
    assert!(!is_to_be_written(b"accept"), "as it was read");
    w.schemes.iter().for_each(|scheme| scheme.stored.lock().clear());
    assert!(is_to_be_written(b"accept"), "lost");
    assert!(is_to_be_written(b"cookie"), "another one");
}

/// The result of a single poll.
fn poll_once<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_variant_that_comes_slowly_holds_up_no_marker_and_no_purge() {
    for is_same_marker in [true, false] {
        let w = world();
        let marker = Arc::new(VaryMarker::new(URL, b"accept"));
        let other = Arc::new(VaryMarker::new(URL, b"cookie"));
        let other = if is_same_marker { &marker } else { &other };
        let mut slow_ones = Vec::new();
        for (of, marker) in [(2, &marker), (3, other), (4, &marker)] {
            let (writer, reader) = w.reload();
            writer.answer(1000, None);
            assert_eq!(
                writer.announce(&[(key(of), 0), (key(1), marker.generation)]),
                Standing::Newest
            );
            let written = poll_once(pin!(w.cache.write_vary(writer.epoch(), marker, some_times())));
            assert!(matches!(written, Poll::Ready(Ok(()))), "{of}: {written:?}");
            slow_ones.push((writer, reader));
        }
        assert!(poll_once(pin!(w.cache.purge(key(1)))).is_ready());
        assert!(!w.cache.on_disk(&key(1)));
    }
}

#[test]
fn a_marker_is_not_outdated_by_another_answer_of_the_same_marker() {
    let w = world();
    let marker = VaryMarker::new(URL, b"accept");
    let (older, _older_reader) = w.reload();
    let (newer, _newer_reader) = w.reload();
    older.answer(1000, None);
    newer.answer(1000, None);
    for (of, writer) in [(2, &older), (3, &newer)] {
        assert_eq!(writer.announce(&[(key(of), 0), (key(1), marker.generation)]), Standing::Newest);
    }
    newer.complete();
    block_on(w.cache.write_vary(older.epoch(), &marker, some_times())).expect("it says the same");
    drop((older, newer));
    assert!(w.cache.on_disk(&key(1)));
}

#[test]
fn a_purge_waits_for_no_commit_that_waits_for_its_turn() {
    let w = world();
    let (mut slow, _slow_reader) = w.reload();
    w.publish(&mut slow, 1, FOR_GOOD);
    assert!(w.cache.begin_commit(slow.epoch(), &key(1)), "on its way");
    let (mut writer, _reader) = w.reload();
    w.publish(&mut writer, 2, FOR_GOOD);
    block_on(writer.append(&body(2))).expect("memory is there");
    writer.finish(None);
    let (epoch, writing) = (writer.epoch(), writer.writing());
    let stored = w.cache.store(writer, URL, None).expect("kept whole");
    let mut written = pin!(w.cache.write_object(epoch, &stored.object, w.dir(0), None));
    assert!(poll_once(written.as_mut()).is_pending(), "after the older one");
    assert!(poll_once(pin!(w.cache.purge(key(1)))).is_ready());
    drop(slow);
    assert!(matches!(block_on(written), Err(SwapOutError::Purged)));
    drop(writing);
    assert_eq!((w.in_memory(), w.on_disk()), (None, None));
}

#[test]
fn what_is_outdated_is_not_written_on_while_its_body_comes() {
    let w = world();
    let mut slow = w.cache.private(key(1), key(1));
    let disk = slow.subscribe(ReaderKind::Disk).expect("at the start");
    let streamed =
        FlowInfo { times: Some(times(1)), fate: Fate::AsItComes(Keep::Unread), ..info(key(1), 0) };
    slow.publish_head(Arc::new(some_head()), streamed);
    let batch = pattern(0, crate::flow::BATCH_BYTES as usize);
    block_on(slow.append(&batch)).expect("memory is there");
    let mut written = pin!(w.cache.swap_out(disk, record(1), w.dir(0)));
    assert!(poll_once(written.as_mut()).is_pending(), "more is to come");
    w.all_at_once();
    let (writer, _reader) = w.reload();
    assert_eq!(w.finish(writer, 2, Some(1)), (true, true), "it waits for nobody");
    assert!(poll_once(pin!(slow.append(&batch))).is_ready());
    let outcome = poll_once(written);
    assert!(matches!(outcome, Poll::Ready(Err(SwapOutError::Outdated))), "{outcome:?}");
    assert_eq!(w.on_disk(), Some(2));
}

#[test]
fn a_part_that_is_not_listed_because_of_a_purge_still_takes_the_place_of_an_older_whole() {
    let w = world();
    let (part, _reader) = w.reload();
    block_on(w.cache.purge(key(1)));
    let (whole, _reader) = w.reload();
    whole.answer(1000, None);
    assert_eq!(whole.announce(&[(key(1), 0)]), Standing::Newest);
    assert_eq!(w.finish(whole, 1, None), (true, false));
    // It was begun before the purge, and asked for after the whole answer had come.
    part.ask();
    part.answer(1001, None);
    assert_eq!(part.announce(&[(key(2), 0), (key(1), 0)]), Standing::Newest);
    let of_whole = Part { bytes: 0..5, key: key(2) };
    let merge = |_: Option<&Object>| Some((some_head(), some_times(), false));
    let listed = w.cache.add_part(part.epoch(), key(1), URL, 10, of_whole, merge);
    assert!(matches!(listed, Err(NotListed::NoRoom)));
    assert!(w.cache.lookup(&key(1)).is_none());
}

#[test]
fn an_older_answer_that_comes_after_a_refusal_goes_when_the_newer_one_is_complete() {
    let w = world();
    w.all_at_once();
    let (older, _older_reader) = w.reload();
    let mut newer = w.cache.private(key(1), key(1));
    let disk = newer.subscribe(ReaderKind::Disk).expect("at the start");
    newer.answer(1002, None);
    assert_eq!(newer.announce(&[(key(1), 0)]), Standing::Newest);
    let streamed =
        FlowInfo { times: Some(times(2)), fate: Fate::AsItComes(Keep::Unread), ..info(key(1), 0) };
    newer.publish_head(Arc::new(some_head()), streamed);
    let batch = pattern(0, crate::flow::BATCH_BYTES as usize);
    block_on(newer.append(&batch)).expect("memory is there");
    let refuse = |is_refused| {
        w.schemes.iter().for_each(|scheme| scheme.faults.create.store(is_refused, SeqCst));
    };
    refuse(true);
    let mut written = pin!(w.cache.swap_out(disk, record(2), w.dir(0)));
    assert!(poll_once(written.as_mut()).is_pending(), "until it is complete");
    refuse(false);
    assert_eq!(w.finish(older, 1, Some(1)), (true, true), "the newer one may never be complete");
    assert!(w.cache.on_disk(&key(1)));
    newer.finish(None);
    assert!(matches!(block_on(written), Err(SwapOutError::Scheme(_))));
    assert!(!w.cache.on_disk(&key(1)));
}

#[test]
fn a_reading_without_a_head_yet_is_not_joined_after_a_newer_answer_is_complete() {
    let w = world();
    let (newer, _reader) = w.reload();
    newer.answer(1002, None);
    assert_eq!(newer.announce(&[(key(1), 0)]), Standing::Newest);
    let Begin::Lead(reading) = w.cache.begin_or_join(key(1), key(1), URL) else {
        panic!("nothing to join");
    };
    reading.flow().note_reading();
    assert!(w.finish(newer, 2, None).0);
    let joined = w.cache.begin_or_join(key(1), key(1), URL);
    assert!(matches!(joined, Begin::Lead(_)), "what is read is older");
    drop(reading);
}
