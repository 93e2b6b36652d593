//! Every interleaving of one writer and two readers (`humboldt-model`): each waiting task is woken,
//! and every byte arrives. A wake-up that is lost leaves its task waiting for ever.

use std::future::poll_fn;
use std::sync::{Arc, LazyLock};
use std::task::Poll;

use humboldt_base::limits::PAGE_BYTES;
use humboldt_model::{Thread, block_on, check, spawn};

use super::*;
use crate::in_flight::InFlight;
use crate::testing::{info, key, pattern, some_head, tier};

/// More need minutes.
const PREEMPTIONS: usize = 2;

const PLENTY: u64 = 64 << 20;

/// Of a share this small no page is left: a flow has those that it is guaranteed.
const SHORT: u64 = 2;

/// What the writer of a model appends, in one piece.
const BODY_BYTES: usize = 2 * WINDOW_BYTES_MIN as usize + PAGE_BYTES;

/// The same where memory is short.
const SHORT_BODY_BYTES: usize = (crate::mem::FLOW_PAGES_GUARANTEED + 2) * PAGE_BYTES;

static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| pattern(0, BODY_BYTES));

/// Runs `course` with a flow that is read as it comes. Table and memory are not of the model.
fn explore(cache_mem_bytes: u64, course: impl Fn(FlowWriter) + Send + Sync + 'static) {
    let table = InFlight::new(tier(cache_mem_bytes), 0, Arc::default());
    check(PREEMPTIONS, move || course(table.private(key(1), key(1))));
}

fn append_all(mut writer: FlowWriter, fate: Fate, bytes: usize) {
    writer.publish_head(Arc::new(some_head()), FlowInfo { fate, ..info(key(1), 0) });
    block_on(writer.append(&CONTENT[..bytes])).expect("memory is there");
    writer.finish(None);
}

/// Reads to the end; returns how many bytes there were.
fn follow(mut reader: FlowReader, is_batch: bool) -> (u64, Progress) {
    block_on(reader.head()).expect("a head");
    loop {
        let progress = if is_batch { block_on(reader.batch()) } else { block_on(reader.data()) };
        let Progress::Data { available } = progress else { return (reader.position(), progress) };
        let mut slices = Vec::new();
        let from = reader.position();
        assert_eq!(reader.slices(&mut slices, available), available);
        let first = slices.first().and_then(|slice| slice.first()).copied();
        assert_eq!(first, Some(CONTENT[from as usize]));
        drop(slices);
        reader.advance(available);
    }
}

fn following(reader: FlowReader, is_batch: bool) -> Thread<(u64, Progress)> {
    spawn(move || follow(reader, is_batch))
}

fn two_clients(cache_mem_bytes: u64, bytes: usize) {
    explore(cache_mem_bytes, move |writer| {
        let readers = [ReaderKind::Client; 2].map(|kind| writer.subscribe(kind).expect("a start"));
        let readers = readers.map(|reader| following(reader, false));
        append_all(writer, Fate::Shared, bytes);
        assert_eq!(readers.map(Thread::join), [(bytes as u64, Progress::End); 2]);
    });
}

#[test]
fn a_writer_waits_for_the_window_of_two_clients() {
    two_clients(PLENTY, BODY_BYTES);
}

#[test]
fn a_writer_waits_for_the_pages_of_two_clients() {
    two_clients(SHORT, SHORT_BODY_BYTES);
}

fn client_and_directory(cache_mem_bytes: u64, bytes: usize) {
    explore(cache_mem_bytes, move |writer| {
        let readers = [ReaderKind::Client, ReaderKind::Disk].map(|kind| {
            let reader = writer.subscribe(kind).expect("a start");
            following(reader, kind == ReaderKind::Disk)
        });
        append_all(writer, Fate::AsItComes(Keep::Unread), bytes);
        assert_eq!(readers.map(Thread::join), [(bytes as u64, Progress::End); 2]);
    });
}

#[test]
fn a_writer_waits_for_the_window_of_a_client_and_a_directory() {
    client_and_directory(PLENTY, BODY_BYTES);
}

#[test]
fn a_directory_that_waits_for_a_batch_takes_less_when_memory_is_short() {
    client_and_directory(SHORT, SHORT_BODY_BYTES);
}

/// Appends until the end, or until nobody follows any more; returns whether that is so.
fn append_while_wanted(writer: &mut FlowWriter, bytes: usize) -> bool {
    writer.publish_head(Arc::new(some_head()), info(key(1), 0));
    while (writer.written() as usize) < bytes {
        let is_wanted = block_on(poll_fn(|cx| {
            if writer.poll_readers_gone(cx).is_ready() {
                return Poll::Ready(false);
            }
            let rest = &CONTENT[writer.written() as usize..bytes];
            writer.poll_append(cx, rest).map(|appended| appended.is_ok())
        }));
        if !is_wanted {
            return false;
        }
    }
    true
}

fn readers_leave(cache_mem_bytes: u64, bytes: usize) {
    explore(cache_mem_bytes, move |mut writer| {
        let readers = [ReaderKind::Client; 2].map(|kind| writer.subscribe(kind).expect("a start"));
        let [mut one, two] = readers;
        let one = spawn(move || {
            let progress = block_on(one.data());
            assert!(matches!(progress, Progress::Data { .. }), "{progress:?}");
        });
        let two = spawn(move || drop(two));
        let is_whole = append_while_wanted(&mut writer, bytes);
        assert!(!is_whole || bytes <= WINDOW_BYTES_MIN as usize, "somebody must have read");
        one.join();
        two.join();
        assert!(writer.abort_unwanted());
    });
}

#[test]
fn a_writer_that_waits_for_the_window_learns_that_the_last_reader_has_left() {
    readers_leave(PLENTY, BODY_BYTES);
}

#[test]
fn a_writer_that_waits_for_pages_learns_that_the_last_reader_has_left() {
    readers_leave(SHORT, SHORT_BODY_BYTES);
}

#[test]
fn a_writer_that_waits_for_something_else_learns_that_the_last_reader_has_left() {
    explore(PLENTY, |writer| {
        let readers = [ReaderKind::Client; 2].map(|kind| writer.subscribe(kind).expect("a start"));
        let readers = readers.map(|reader| spawn(move || drop(reader)));
        block_on(poll_fn(|cx| writer.poll_readers_gone(cx)));
        readers.into_iter().for_each(Thread::join);
    });
}

#[test]
fn a_writer_that_waits_for_pages_goes_on_when_the_slower_reader_leaves() {
    explore(SHORT, |writer| {
        let readers = [ReaderKind::Client; 2].map(|kind| writer.subscribe(kind).expect("a start"));
        let [one, two] = readers;
        let (one, two) = (following(one, false), spawn(move || drop(two)));
        append_all(writer, Fate::Shared, SHORT_BODY_BYTES);
        assert_eq!(one.join(), (SHORT_BODY_BYTES as u64, Progress::End));
        two.join();
    });
}

#[test]
fn whoever_joins_while_the_last_reader_leaves_gets_all_of_it_or_a_reason() {
    explore(PLENTY, |mut writer| {
        let first = writer.subscribe(ReaderKind::Client).expect("a start");
        let leaving = spawn(move || drop(first));
        let flow = Arc::clone(writer.flow());
        let joining = spawn(move || {
            let reader = flow.reader_at(0, ReaderKind::Client);
            reader.map(|mut reader| {
                block_on(reader.head()).map(|_| {
                    let followed = follow(reader, false);
                    assert_eq!(followed, (PAGE_BYTES as u64, Progress::End));
                })
            })
        });
        let is_unwanted = writer.abort_unwanted();
        if !is_unwanted {
            append_all(writer, Fate::Shared, PAGE_BYTES);
        }
        leaving.join();
        let joined = joining.join();
        assert!(!is_unwanted || joined.is_none(), "a client that has joined is not cut off");
    });
}
