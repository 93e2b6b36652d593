//! Flows under many threads, short memory and every order of events.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use humboldt_base::limits::PAGE_BYTES;
use humboldt_base::rng::Rng;
use humboldt_http::{FieldName, Fields};

use super::*;
use crate::in_flight::{Begin, InFlight};
use crate::testing::{Wakes, block_on, info, key, object_of, pattern, some_head, tier};

const MIB: u64 = 1024 * 1024;

fn table(cache_mem_bytes: u64) -> (Arc<MemTier>, Arc<InFlight>) {
    let tier = tier(cache_mem_bytes);
    (tier.clone(), InFlight::new(tier, 0, Arc::default()))
}

fn lead(table: &Arc<InFlight>, n: u64) -> FlowWriter {
    match table.begin_or_join(key(n), key(n), b"") {
        Begin::Lead(writer) => writer,
        Begin::Join(_) | Begin::Wait(_) => panic!("somebody else leads"),
    }
}

fn join(table: &Arc<InFlight>, n: u64) -> FlowReader {
    match table.begin_or_join(key(n), key(n), b"") {
        Begin::Lead(_) | Begin::Wait(_) => panic!("nobody leads"),
        Begin::Join(reader) => reader,
    }
}

/// Reads at most `most` bytes that are there now.
fn take(reader: &mut FlowReader, most: u64) -> Vec<u8> {
    let mut slices = Vec::new();
    let bytes = reader.slices(&mut slices, most);
    reader.advance(bytes);
    let taken: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
    assert_eq!(taken.len() as u64, bytes);
    taken
}

/// Follows a flow to its end in pieces of random size.
async fn follow(mut reader: FlowReader, mut rng: Rng, piece: u64) -> (Vec<u8>, Progress) {
    let mut got = pattern(0, reader.position() as usize);
    loop {
        match reader.data().await {
            // More may have arrived since.
            Progress::Data { available: 1.. } => {
                let part = take(&mut reader, 1 + rng.below(piece));
                assert!(!part.is_empty());
                got.extend(part);
            }
            end => return (got, end),
        }
    }
}

#[test]
fn readers_on_many_threads_see_exactly_the_bytes() {
    for (keep, len) in [(u64::MAX, 600_000), (0, 3_000_000)] {
        let (tier, table) = table(64 * MIB);
        let mut writer = lead(&table, 1);
        let mut readers = vec![writer.subscribe(ReaderKind::Client).expect("at the start")];
        readers.extend((0..3).map(|_| join(&table, 1)));
        readers.push(writer.subscribe(ReaderKind::Disk).expect("at the start"));
        readers.push(writer.flow().reader_at(100_001, ReaderKind::Client).expect("ahead"));
        let content = pattern(0, len);
        std::thread::scope(|scope| {
            for (number, reader) in readers.into_iter().enumerate() {
                let content = &content;
                scope.spawn(move || {
                    let (got, end) =
                        block_on(follow(reader, Rng::new(number as u64), 1 << (8 + 2 * number)));
                    assert_eq!(end, Progress::End);
                    assert!(got == *content, "reader {number}");
                });
            }
            scope.spawn(|| {
                let mut rng = Rng::new(99);
                writer.publish_head(Arc::new(some_head()), info(key(1), keep));
                let mut rest = &content[..];
                while !rest.is_empty() {
                    let (part, after) =
                        rest.split_at(rest.len().min(1 + rng.below(100_000) as usize));
                    block_on(writer.append(part)).expect("memory is there");
                    rest = after;
                }
                writer.finish(None);
                drop(writer);
            });
        });
        assert_eq!((tier.used_bytes(), table.len()), (0, 0));
    }
}

#[test]
fn a_single_reader_bounds_the_writer_and_pages_are_trimmed() {
    let (tier, table) = table(64 * MIB);
    let mut writer = table.private(key(1), key(1));
    let mut reader = writer.subscribe(ReaderKind::Client).expect("at the start");
    writer.publish_head(Arc::new(some_head()), info(key(1), 0));
    let (wakes, data) = (Wakes::new(), pattern(0, 200_000));
    let mut written = 0;
    while let Poll::Ready(took) = wakes.poll(|cx| writer.poll_append(cx, &data[written..])) {
        written += took.expect("memory is there");
    }
    assert_eq!(written as u64, WINDOW_BYTES_MIN);
    // Half a window must be free before the writer is woken.
    take(&mut reader, WINDOW_BYTES_MIN / 2 - 1);
    assert_eq!(wakes.take(), 0);
    take(&mut reader, 1);
    assert_eq!(wakes.take(), 1);
    assert!(tier.used_bytes() <= WINDOW_BYTES_MIN / 2 + PAGE_BYTES as u64);
    assert!(wakes.poll(|cx| writer.poll_append(cx, &data[written..])).is_ready());
    assert!(writer.flow().reader_at(0, ReaderKind::Client).is_none(), "the first bytes are gone");
}

#[test]
fn a_shared_body_can_be_joined_until_too_much_of_it_has_gone_by() {
    let (tier, table) = table(64 * MIB);
    let mut writer = lead(&table, 1);
    let mut reader = writer.subscribe(ReaderKind::Client).expect("at the start");
    writer.publish_head(Arc::new(some_head()), info(key(1), 0));
    let data = vec![7; 64 * 1024];
    while writer.written() + data.len() as u64 <= JOIN_BYTES_MAX {
        block_on(writer.append(&data)).expect("memory is there");
        take(&mut reader, u64::MAX);
    }
    assert!(!table.begin_or_join(key(1), key(1), b"").is_lead(), "everything is still there");
    block_on(writer.append(&data)).expect("memory is there");
    take(&mut reader, u64::MAX);
    assert!(table.begin_or_join(key(1), key(1), b"").is_lead(), "the first bytes are gone");
    assert!(tier.used_bytes() <= 2 * WINDOW_BYTES_MIN);
}

impl Begin {
    fn is_lead(&self) -> bool {
        matches!(self, Begin::Lead(_))
    }
}

#[test]
fn a_reader_that_lets_go_before_the_writer_waits_is_not_waited_for() {
    let (_, table) = table(0);
    let mut writer = lead(&table, 1);
    let mut reader = writer.subscribe(ReaderKind::Client).expect("at the start");
    writer.publish_head(Arc::new(some_head()), info(key(1), u64::MAX));
    let (wakes, held) = (Wakes::new(), crate::mem::FLOW_PAGES_GUARANTEED);
    for _ in 0..2 {
        block_on(writer.append(&pattern(0, held * PAGE_BYTES))).expect("the minimum");
        assert!(wakes.poll(|cx| writer.poll_append(cx, b"more")).is_pending());
        take(&mut reader, u64::MAX);
    }
    block_on(writer.append(&pattern(0, held * PAGE_BYTES))).expect("the minimum");
    // Here the writer has seen how many pages there are, and is refused another one.
    take(&mut reader, u64::MAX);
    assert!(wakes.poll(|cx| writer.poll_relief(cx, held)).is_ready());
}

#[test]
fn a_writer_knows_how_much_it_can_append_without_waiting() {
    // Half of it is for bodies in flight.
    let (_, table) = table(16 * PAGE_BYTES as u64);
    let mut writer = lead(&table, 1);
    let mut reader = writer.subscribe(ReaderKind::Client).expect("at the start");
    writer.publish_head(Arc::new(some_head()), info(key(1), u64::MAX));
    let wakes = Wakes::new();
    let mut other = lead(&table, 2);
    let _reader_of_other = other.subscribe(ReaderKind::Client).expect("at the start");
    block_on(other.append(&pattern(0, 6 * PAGE_BYTES))).expect("within the share");
    let mut written = 0;
    for _ in 0..3 {
        while let Poll::Ready(bytes) = wakes.poll(|cx| writer.poll_ready(cx)) {
            assert!(bytes > 0 && written + bytes <= 16 * PAGE_BYTES, "{bytes}");
            let took = wakes.poll(|cx| writer.poll_append(cx, &pattern(written, written + bytes)));
            assert_eq!(took, Poll::Ready(Ok(bytes)), "all of it");
            written += bytes;
        }
        assert_eq!(written % PAGE_BYTES, 0, "what it may have in any case");
        assert!(
            written - reader.position() as usize >= crate::mem::FLOW_PAGES_GUARANTEED * PAGE_BYTES
        );
        wakes.take();
        take(&mut reader, PAGE_BYTES as u64);
        assert_eq!(wakes.take(), 1, "a page is free again");
    }
}

#[test]
fn flows_share_a_budget_of_nothing_and_all_complete() {
    let (_, table) = table(0);
    std::thread::scope(|scope| {
        for n in 0..6 {
            let table = &table;
            scope.spawn(move || {
                let mut writer = lead(table, n);
                let reader = writer.subscribe(ReaderKind::Client).expect("at the start");
                let content = pattern(0, 200_000);
                let following = scope.spawn(move || block_on(follow(reader, Rng::new(n), 30_000)));
                writer.publish_head(Arc::new(some_head()), info(key(n), u64::MAX));
                content
                    .chunks(7001)
                    .for_each(|part| block_on(writer.append(part)).expect("memory is there"));
                writer.finish(None);
                let (got, end) = following.join().expect("no panic");
                assert!(got == content && end == Progress::End);
            });
        }
    });
}

#[test]
fn a_kept_flow_becomes_an_object_and_late_readers_start_at_the_beginning() {
    let (tier, table) = table(64 * MIB);
    for len in [0, 1, 2000, 13_000, 40_960] {
        let mut writer = lead(&table, 1);
        writer.publish_head(Arc::new(some_head()), info(key(1), 50_000));
        let content = pattern(0, len);
        block_on(writer.append(&content)).expect("memory is there");
        let mut late = join(&table, 1);
        writer.finish(None);
        let object = writer.object(b"http://a/").expect("it was kept whole");
        drop(writer);
        assert_eq!(
            (object.body_bytes(), object.key, &*object.url),
            (len as u64, key(1), &b"http://a/"[..])
        );
        assert_eq!(take(&mut late, u64::MAX), content);
        assert_eq!(block_on(late.data()), Progress::End);
        drop(late);
        assert_eq!(tier.used_bytes(), object.page_bytes());
        drop(object);
        assert_eq!(tier.used_bytes(), 0);
    }
}

#[test]
fn what_must_not_be_stored_is_no_object() {
    let (_, table) = table(64 * MIB);
    let without_times = FlowInfo { times: None, fate: Fate::Private, ..info(key(1), MIB) };
    let too_long = FlowInfo { body_bytes: Some(MIB + 1), ..info(key(1), MIB) };
    for info in [without_times, too_long, info(key(1), 0)] {
        let mut writer = lead(&table, 1);
        writer.publish_head(Arc::new(some_head()), info);
        block_on(writer.append(b"x")).expect("memory is there");
        writer.finish(None);
        assert!(writer.object(b"http://a/").is_none());
    }
    let mut writer = lead(&table, 1);
    writer.publish_head(Arc::new(some_head()), info(key(1), MIB));
    block_on(writer.append(b"x")).expect("memory is there");
    assert!(writer.object(b"http://a/").is_none(), "not finished");
}

#[test]
fn an_abort_is_never_taken_for_the_end() {
    let (_, table) = table(64 * MIB);
    let mut writer = lead(&table, 1);
    let mut reader = writer.subscribe(ReaderKind::Client).expect("at the start");
    let mut headless = join(&table, 1);
    let wakes = Wakes::new();
    assert!(wakes.poll(|cx| headless.poll_head(cx)).is_pending());
    block_on(writer.append(b"part")).expect("memory is there");
    drop(writer);
    assert_eq!(wakes.take(), 1);
    assert_eq!(block_on(headless.head()).err(), Some(AbortReason::Cancelled));
    assert_eq!(block_on(reader.data()), Progress::Data { available: 4 });
    assert_eq!(take(&mut reader, 9), b"part");
    assert_eq!(block_on(reader.data()), Progress::Aborted(AbortReason::Cancelled));
    assert!(reader.flow().reader_at(0, ReaderKind::Client).is_none());
    let mut writer = lead(&table, 1);
    let mut reader = writer.subscribe(ReaderKind::Client).expect("at the start");
    writer.finish(None);
    writer.abort(AbortReason::Truncated);
    assert_eq!(block_on(reader.data()), Progress::End, "the first word counts");
}

#[test]
fn an_answer_for_one_is_refused_to_those_who_joined() {
    let (_, table) = table(64 * MIB);
    let mut writer = lead(&table, 1);
    let mut own = writer.subscribe(ReaderKind::Client).expect("at the start");
    let mut joined = join(&table, 1);
    writer.publish_head(Arc::new(some_head()), FlowInfo { fate: Fate::Private, ..info(key(1), 0) });
    assert!(block_on(own.head()).is_ok());
    assert_eq!(block_on(joined.head()).err(), Some(AbortReason::NotShareable));
    assert!(table.is_empty(), "no more requests join");
}

#[test]
fn interim_heads_trailers_and_complete_objects_reach_readers() {
    let (_, table) = table(64 * MIB);
    let mut writer = lead(&table, 1);
    let mut reader = writer.subscribe(ReaderKind::Client).expect("at the start");
    let wakes = Wakes::new();
    assert!(wakes.poll(|cx| reader.poll_head(cx)).is_pending());
    (0..INTERIM_HEADS_MAX + 3).for_each(|_| writer.interim(Arc::new(some_head())));
    assert_eq!(wakes.take(), 1);
    assert_eq!(std::iter::from_fn(|| reader.next_interim()).count(), INTERIM_HEADS_MAX);
    writer.publish_head(Arc::new(some_head()), info(key(1), 0));
    let mut trailers = Fields::new();
    trailers.push(FieldName::Etag, b"\"t\"");
    writer.finish(Some(trailers));
    assert_eq!(block_on(reader.data()), Progress::End);
    assert_eq!(
        reader.trailers().and_then(|t| t.get(FieldName::Etag).map(<[u8]>::to_vec)),
        Some(b"\"t\"".to_vec())
    );
    drop(writer);

    let writer = lead(&table, 2);
    let mut reader = join(&table, 2);
    writer.publish_object(object_of(key(2), Default::default()), info(key(2), 0));
    let head = block_on(reader.head()).expect("published");
    assert_eq!(head.object.as_ref().map(|object| object.key), Some(key(2)));
    assert!(table.is_empty());
}

#[test]
fn the_writer_learns_when_the_last_client_leaves() {
    let (_, table) = table(64 * MIB);
    let writer = lead(&table, 1);
    let first = writer.subscribe(ReaderKind::Client).expect("at the start");
    let disk = writer.subscribe(ReaderKind::Disk).expect("at the start");
    let second = join(&table, 1);
    let wakes = Wakes::new();
    assert!(wakes.poll(|cx| writer.poll_readers_gone(cx)).is_pending());
    drop(first);
    assert_eq!((writer.readers(), wakes.take()), (1, 0));
    drop(second);
    assert_eq!((writer.readers(), wakes.take()), (0, 1));
    block_on(poll_fn(|cx| writer.poll_readers_gone(cx)));
    drop(disk);
}

#[test]
fn a_flow_that_somebody_has_joined_is_not_given_up_as_unwanted() {
    let (tier, table) = table(64 * MIB);
    let mut writer = lead(&table, 1);
    drop(writer.subscribe(ReaderKind::Client).expect("at the start"));
    writer.publish_head(Arc::new(some_head()), info(key(1), 0));
    let wakes = Wakes::new();
    assert!(wakes.poll(|cx| writer.poll_readers_gone(cx)).is_ready());
    // Now the fetch is about to be given up.
    let late = join(&table, 1);
    assert!(!writer.abort_unwanted());
    block_on(writer.append(&pattern(0, 5000))).expect("memory is there");
    writer.finish(None);
    let (got, end) = block_on(follow(late, Rng::new(1), 1000));
    assert!(got == pattern(0, 5000) && end == Progress::End);
    drop(writer);
    let mut unwanted = lead(&table, 1);
    assert!(unwanted.abort_unwanted());
    assert_eq!(table.len(), 0);
    assert!(unwanted.flow().reader_at(0, ReaderKind::Client).is_none(), "nobody joins any more");
    drop(unwanted);
    assert_eq!(tier.used_bytes(), 0);
}

#[test]
fn a_flow_that_others_have_joined_is_not_cut_off_as_too_large_for_its_leader() {
    let (_tier, table) = table(64 * MIB);
    let mut writer = lead(&table, 1);
    let leader = writer.subscribe(ReaderKind::Client).expect("at the start");
    drop(join(&table, 1));
    assert!(!writer.abort_too_large(1), "it may come back");
    drop((leader, writer));
    let mut alone = lead(&table, 2);
    let leader = alone.subscribe(ReaderKind::Client).expect("at the start");
    assert!(alone.abort_too_large(1));
    assert!(alone.flow().reader_at(0, ReaderKind::Client).is_none(), "nobody joins any more");
    assert_eq!(table.len(), 0, "the next request begins another one");
    drop(leader);
}

#[test]
fn a_disk_writer_is_woken_for_batches_and_when_the_writer_is_stuck() {
    let (_, table) = table(64 * MIB);
    let wakes = Wakes::new();
    for keep in [MIB, 0] {
        let mut writer = lead(&table, 1);
        let mut disk = writer.subscribe(ReaderKind::Disk).expect("at the start");
        writer.publish_head(Arc::new(some_head()), info(key(1), keep));
        assert!(wakes.poll(|cx| disk.poll_batch(cx)).is_pending());
        let less = pattern(0, BATCH_BYTES as usize - 1);
        block_on(writer.append(&less)).expect("memory is there");
        assert_eq!(wakes.take(), 0);
        block_on(writer.append(b"!")).expect("memory is there");
        if keep == 0 {
            assert_eq!(wakes.take(), 1, "a batch");
            assert!(wakes.poll(|cx| disk.poll_batch(cx)).is_ready());
            assert_eq!(take(&mut disk, 10_000).len(), 10_000);
            assert!(wakes.poll(|cx| disk.poll_batch(cx)).is_pending(), "less than a batch is left");
            block_on(writer.append(&pattern(0, 9_000))).expect("room for it");
            assert!(wakes.poll(|cx| writer.poll_append(cx, &pattern(0, 90_000))).is_ready());
            assert!(wakes.poll(|cx| writer.poll_append(cx, b"!")).is_pending());
            assert!(wakes.poll(|cx| disk.poll_batch(cx)).is_ready(), "the writer is stuck");
        } else {
            assert_eq!(wakes.take(), 0, "kept whole: written at the end");
            writer.finish(None);
            assert_eq!(wakes.take(), 1);
        }
    }
}

#[test]
fn a_disk_writer_that_is_waited_for_is_never_detached() {
    for write_through in [true, false] {
        let (_, table) = table(64 * MIB);
        let mut writer = lead(&table, 1);
        let mut client = writer.subscribe(ReaderKind::Client).expect("at the start");
        let mut disk = writer.subscribe(ReaderKind::Disk).expect("at the start");
        let fate = if write_through { Fate::AsItComes(Keep::Unread) } else { Fate::Shared };
        let head = FlowInfo { fate, ..info(key(1), 0) };
        writer.publish_head(Arc::new(some_head()), head);
        let (wakes, data) = (Wakes::new(), pattern(0, 60_000));
        let mut written = 0;
        while written < 2 * LAG_BYTES_MAX {
            let Poll::Ready(took) = wakes.poll(|cx| writer.poll_append(cx, &data)) else { break };
            written += took.expect("memory is there") as u64;
            client.advance(written - client.position());
        }
        if !write_through {
            assert!(
                written >= 2 * LAG_BYTES_MAX
                    && matches!(block_on(disk.batch()), Progress::Lagged { .. })
            );
            continue;
        }
        assert_eq!(written, LAG_BYTES_MAX / 2, "the writer waits for the disk");
        assert!(
            matches!(block_on(disk.batch()), Progress::Data { .. }),
            "and it takes what there is"
        );
        assert_eq!(wakes.take(), 0);
        disk.advance(1 << 20);
        assert_eq!(wakes.take(), 1, "the writer goes on");
    }
}

mod lent;
mod shared;

mod model {
    //! A flow against a model of it: any order of operations, polled by hand.

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Op {
        Attach { offset: u64, disk: bool },
        Append(usize),
        Read { which: usize, most: u64 },
        Wait { which: usize, batch: bool },
        Leave { which: usize },
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            1 => (0..200_000_u64, any::<bool>()).prop_map(|(offset, disk)| Op::Attach { offset, disk }),
            5 => (1..60_000_usize).prop_map(Op::Append),
            5 => (0..6_usize, 1..60_000_u64).prop_map(|(which, most)| Op::Read { which, most }),
            4 => (0..6_usize, any::<bool>()).prop_map(|(which, batch)| Op::Wait { which, batch }),
            1 => (0..6_usize).prop_map(|which| Op::Leave { which }),
        ]
    }

    struct Follower {
        kind: ReaderKind,
        reader: FlowReader,
        wakes: Arc<Wakes>,
        waits: bool,
    }

    struct Model {
        tier: Arc<MemTier>,
        writer: FlowWriter,
        wakes: Arc<Wakes>,
        stuck: bool,
        keep: u64,
        whole: bool,
        followers: Vec<Follower>,
        content: Vec<u8>,
    }

    impl Model {
        fn run(&mut self, op: Op) {
            match op {
                Op::Attach { offset, disk } if self.followers.len() < 6 => {
                    let kind = if disk { ReaderKind::Disk } else { ReaderKind::Client };
                    let reader = self.writer.flow().reader_at(offset, kind);
                    assert!(reader.is_some() || !self.whole, "a whole flow can be joined anywhere");
                    let join =
                        |reader| Follower { kind, reader, wakes: Wakes::new(), waits: false };
                    self.followers.extend(reader.map(join));
                }
                Op::Attach { .. } => {}
                Op::Append(bytes) => self.append(bytes),
                Op::Read { which, most } => self.read(which, most),
                Op::Wait { which, batch } => self.wait(which, batch),
                Op::Leave { which } => {
                    if which < self.followers.len() {
                        self.followers.swap_remove(which);
                    }
                }
            }
            self.check();
        }

        fn append(&mut self, bytes: usize) {
            let written = self.content.len();
            let data = pattern(written, written + bytes);
            self.whole &= (written + bytes) as u64 <= self.keep;
            match self.wakes.poll(|cx| self.writer.poll_append(cx, &data)) {
                Poll::Ready(took) => {
                    let took = took.expect("memory is there");
                    assert!(took > 0);
                    self.content.extend(&data[..took]);
                    self.stuck = false;
                }
                Poll::Pending => {
                    let fastest = self.fastest().expect("without readers nothing blocks");
                    assert!(fastest + WINDOW_BYTES_MIN <= written as u64);
                    self.stuck = true;
                    self.wakes.take();
                }
            }
            assert_eq!(self.writer.written(), self.content.len() as u64);
        }

        fn read(&mut self, which: usize, most: u64) {
            let Some(follower) = self.followers.get_mut(which) else { return };
            let from = follower.reader.position() as usize;
            let to = self.content.len().min(from + most as usize);
            assert_eq!(
                take(&mut follower.reader, most),
                self.content.get(from..to).unwrap_or_default()
            );
            follower.waits = false;
        }

        fn wait(&mut self, which: usize, batch: bool) {
            let Some(follower) = self.followers.get_mut(which) else { return };
            let available = (self.content.len() as u64).saturating_sub(follower.reader.position());
            let reader = &mut follower.reader;
            let progress = follower
                .wakes
                .poll(|cx| if batch { reader.poll_batch(cx) } else { reader.poll_data(cx) });
            match progress {
                Poll::Ready(progress) => {
                    assert_eq!(progress, Progress::Data { available });
                    assert!(available > 0);
                }
                Poll::Pending => assert!(available == 0 || batch && !(self.stuck && available > 0)),
            }
            follower.wakes.take();
            follower.waits = progress.is_pending() && !batch;
        }

        /// Position of the fastest client, or of the disk writer where there is no client.
        fn fastest(&self) -> Option<u64> {
            let of = |wanted| {
                let all = self.followers.iter().filter(move |follower| follower.kind == wanted);
                all.map(|follower| follower.reader.position()).max()
            };
            of(ReaderKind::Client).or(of(ReaderKind::Disk))
        }

        fn check(&mut self) {
            let written = self.content.len() as u64;
            for follower in &mut self.followers {
                if follower.waits && written > follower.reader.position() {
                    assert_eq!(follower.wakes.take(), 1, "a reader that waits is woken once");
                    follower.waits = false;
                }
            }
            let fastest = self.fastest().unwrap_or(written);
            if self.stuck && fastest + WINDOW_BYTES_MIN / 2 >= written {
                assert_eq!(self.wakes.take(), 1, "a writer that waits is woken once");
                self.stuck = false;
            }
            let slowest =
                self.followers.iter().map(|f| f.reader.position()).min().unwrap_or(written);
            let needed = if self.whole { 0 } else { slowest.min(written) };
            assert!(self.tier.used_bytes() < written - needed + 2 * PAGE_BYTES as u64, "trimmed");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn agrees(keep in prop_oneof![Just(0), 0..150_000_u64], ops in prop::collection::vec(op(), 1..80)) {
            let (tier, table) = table(64 * MIB);
            let mut writer = table.private(key(1), key(1));
            writer.publish_head(Arc::new(some_head()), info(key(1), keep));
            let wakes = Wakes::new();
            let (followers, content) = (Vec::new(), Vec::new());
            let mut model = Model { tier, writer, wakes, stuck: false, keep, whole: keep > 0, followers, content };
            ops.into_iter().for_each(|op| model.run(op));
            model.writer.finish(None);
            for follower in &mut model.followers {
                let from = follower.reader.position() as usize;
                let rest = take(&mut follower.reader, u64::MAX);
                prop_assert_eq!(&rest[..], model.content.get(from..).unwrap_or_default());
                prop_assert_eq!(block_on(follower.reader.data()), Progress::End);
            }
            model.followers.clear();
            drop(model.writer);
            prop_assert_eq!(model.tier.used_bytes(), 0);
        }
    }
}
