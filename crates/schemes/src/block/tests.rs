//! Both ways to the device, through one set of tests.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use humboldt_base::rng::Rng;
use humboldt_sys::aligned::Buffer;
use humboldt_sys::append_buffer::{AppendBuffer, Progress};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::*;
use crate::Io;
use crate::battery::run;

/// Makes one test of each item for each way.
macro_rules! both_ways {
    ($($test:ident),+ $(,)?) => {
        mod uring {
            $(#[test]
            fn $test() {
                super::$test(crate::Io::Uring);
            })+
        }
        mod threads {
            $(#[test]
            fn $test() {
                super::$test(crate::Io::Threads);
            })+
        }
    };
}

both_ways!(
    data_comes_back,
    a_read_ends_at_the_end_of_the_file,
    appended_ranges,
    many_operations_from_many_threads,
    dropped_futures,
    more_than_can_wait_is_refused,
    reads_have_a_queue_of_their_own,
    errors_are_told,
    a_full_file_system,
    waiting_until_idle,
    a_second_runtime_on_a_thread,
    threads_that_are_no_cores,
    a_thread_ends_with_operations_under_way,
    an_end_that_begins_the_next_operation,
    the_page_cache_answers_at_once,
    sizes,
);

const PATIENCE: Duration = Duration::from_secs(20);

/// A file of its own.
struct Scratch {
    file: Arc<dyn BlockFile>,
    path: PathBuf,
    _dir: TempDir,
}

fn options(path: &Path, io: Io) -> OpenBlock<'_> {
    OpenBlock {
        path,
        io,
        direct: false,
        lasting: false,
        threads: 4,
        create: true,
        read_only: false,
    }
}

fn scratch(io: Io, direct: bool) -> Scratch {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("file");
    let file = open(&OpenBlock { direct, ..options(&path, io) }).expect("opened");
    Scratch { file, path, _dir: dir }
}

fn filled(len: usize, mark: u8) -> Buffer {
    let mut buffer = Buffer::new(len);
    buffer.fill(mark);
    buffer
}

async fn read(file: &dyn BlockFile, offset: u64, len: usize) -> Vec<u8> {
    let (buffer, result) = file.read(offset, Buffer::new(len)).await;
    buffer[..result.expect("read")].to_vec()
}

/// Begins to write bytes of this value; the receiver gets the end.
fn begin_write(
    file: &dyn BlockFile,
    offset: u64,
    len: usize,
    mark: u8,
) -> oneshot::Receiver<io::Result<()>> {
    let data = AppendBuffer::new(len);
    let mut region = data.reserve(len).expect("room");
    region.fill(mark);
    assert_eq!(region.publish(), Progress::Pending);
    let (done, end) = oneshot::channel();
    let tell = Box::new(move |result| drop(done.send(result))); // perhaps nobody waits for it
    file.write(offset, data, 0..len, tell);
    end
}

async fn write(file: &dyn BlockFile, offset: u64, len: usize, mark: u8) -> io::Result<()> {
    begin_write(file, offset, len, mark).await.expect("told")
}

fn data_comes_back(io: Io) {
    for direct in [false, true] {
        let scratch = scratch(io, direct);
        let file = &*scratch.file;
        run(async {
            // Into a registered buffer, into another of the arena, into none.
            for (offset, len, mark) in
                [(4096, 16384, 7), (1 << 20, 1 << 20, 8), (8 << 20, 3 << 20, 9)]
            {
                write(file, offset, len, mark).await.expect("written");
                assert!(read(file, offset, len).await == vec![mark; len], "{len}, direct {direct}");
            }
            assert!(read(file, 0, 4096).await == [0; 4096]);
        });
        assert!(file.wait_idle(PATIENCE));
        let bytes = std::fs::read(&scratch.path).expect("read");
        assert_eq!(bytes.len(), 11 << 20);
        assert!(bytes[..4096] == [0; 4096] && bytes[4096..20480].iter().all(|byte| *byte == 7));
    }
}

fn a_read_ends_at_the_end_of_the_file(io: Io) {
    for direct in [false, true] {
        for len in [1, 511, 512, 5000, 8192, 12_288 - 1] {
            let scratch = scratch(io, direct);
            std::fs::write(&scratch.path, vec![3; len]).expect("written");
            let bytes = run(read(&*scratch.file, 0, 16384));
            assert!(bytes == vec![3; len], "{} of {len}, direct {direct}", bytes.len());
            assert!(run(read(&*scratch.file, 16384, 4096)).is_empty());
            let mut into = Buffer::new(16384);
            assert_eq!(scratch.file.read_blocking(0, &mut into).expect("read"), len);
        }
    }
}

fn appended_ranges(io: Io) {
    for direct in [false, true] {
        let scratch = scratch(io, direct);
        let data = AppendBuffer::new(64 << 10);
        let mut marks = Vec::new();
        while let Some(mut region) = data.reserve(3000) {
            let mark = marks.len() as u8 + 1;
            region.fill(mark);
            marks.push(mark);
            assert_eq!(region.publish(), Progress::Pending);
        }
        let (sealed, progress) = data.seal();
        assert_eq!(progress, Progress::Complete);
        let (done, ended) = mpsc::channel();
        run(async {
            // Two halves, the second first.
            for range in [32768..sealed, 0..32768] {
                let done = done.clone();
                let tell = Box::new(move |result| done.send(result).expect("heard"));
                scratch.file.write(range.start as u64, Arc::clone(&data), range, tell);
            }
        });
        assert!(scratch.file.wait_idle(PATIENCE));
        assert!(ended.try_iter().filter(io::Result::is_ok).count() == 2);
        let bytes = std::fs::read(&scratch.path).expect("read");
        assert!(bytes == data.read(0..sealed).expect("complete"));
        assert!(bytes[3072 * 5..][..3000].iter().all(|byte| *byte == 6));
    }
}

fn many_operations_from_many_threads(io: Io) {
    const SLOT: usize = 8192;
    let scratch = scratch(io, true);
    thread::scope(|scope| {
        for id in 0..4_u64 {
            let file = &scratch.file;
            scope.spawn(move || run(reads_and_writes(&**file, id, SLOT)));
        }
    });
    assert!(scratch.file.wait_idle(PATIENCE));
    assert_eq!(scratch.file.in_flight(), 0);
}

/// Every thread has slots of its own between those of the others, writes all and reads all, many at
/// a time.
async fn reads_and_writes(file: &dyn BlockFile, id: u64, slot: usize) {
    let mut rng = Rng::new(id);
    let at = |index: u64| (index * 4 + id) * slot as u64;
    for round in 0..4_u64 {
        let mark = |index: u64| (1 + (index * 7 + id * 31 + round * 3) % 255) as u8;
        let writes: Vec<_> =
            (0..200).map(|index| begin_write(file, at(index), slot, mark(index))).collect();
        for write in writes {
            write.await.expect("told").expect("written");
        }
        let wanted: Vec<u64> = (0..250).map(|_| rng.below(200)).collect();
        let reads: Vec<_> =
            wanted.iter().map(|index| file.read(at(*index), Buffer::new(slot))).collect();
        for (index, read) in wanted.into_iter().zip(reads) {
            let (buffer, result) = read.await;
            assert_eq!(result.expect("read"), slot);
            assert!(buffer.iter().all(|byte| *byte == mark(index)), "slot {index} of {id}");
        }
    }
}

fn dropped_futures(io: Io) {
    let scratch = scratch(io, false);
    let file = &*scratch.file;
    run(async {
        for index in 0..100_u64 {
            drop(begin_write(file, index * 4096, 4096, 1 + index as u8));
            let read = file.read(index * 4096, filled(4096, 77));
            // Half of them are polled once.
            if index % 2 == 0 {
                tokio::select! { biased; _ = read => (), () = std::future::ready(()) => () }
            }
        }
    });
    assert!(file.wait_idle(PATIENCE));
    let bytes = std::fs::read(&scratch.path).expect("read");
    let wrong = (0..100).find(|index| bytes[index * 4096..][..4096] != [1 + *index as u8; 4096]);
    assert_eq!((bytes.len(), wrong), (100 * 4096, None), "no write is harmed");
}

fn more_than_can_wait_is_refused(io: Io) {
    let scratch = scratch(io, false);
    let file = &*scratch.file;
    let gate = Arc::new(parking_lot::Mutex::new(()));
    let closed = gate.lock();
    let bound = most_of_one_kind(io, file, &gate);
    run(async {
        let busy = file.in_flight();
        let reads: Vec<_> = (0..bound).map(|_| file.read(0, Buffer::new(1))).collect();
        let (buffer, one_more) = file.read(0, Buffer::new(7)).await;
        assert_eq!(one_more.expect_err("too many").kind(), io::ErrorKind::WouldBlock);
        assert_eq!((buffer.len(), file.in_flight()), (7, busy + bound), "the buffer comes back");
        drop(closed);
        for read in reads {
            read.await.1.expect("read");
        }
    });
    assert!(file.wait_idle(PATIENCE));
}

fn reads_have_a_queue_of_their_own(io: Io) {
    let scratch = scratch(io, false);
    let file = &*scratch.file;
    let gate = Arc::new(parking_lot::Mutex::new(()));
    let closed = gate.lock();
    let bound = most_of_one_kind(io, file, &gate);
    run(async {
        let writes: Vec<_> =
            (0..bound).map(|at| begin_write(file, at as u64 * 512, 512, 1)).collect();
        let one_more = begin_write(file, 0, 512, 1).await.expect("told");
        assert_eq!(one_more.expect_err("too many").kind(), io::ErrorKind::WouldBlock);
        let read = file.read(0, Buffer::new(512));
        drop(closed);
        read.await.1.expect("not refused");
        for write in writes {
            write.await.expect("told").expect("written");
        }
    });
    assert!(file.wait_idle(PATIENCE));
}

#[test]
fn a_write_finds_a_place_among_any_number_of_reads_and_the_other_way_round() {
    use super::uring::{ONE_KIND_MAX, waiting_here};
    let scratch = scratch(Io::Uring, false);
    let file = &*scratch.file;
    run(async {
        let reads: Vec<_> = (0..400).map(|_| file.read(0, Buffer::new(512))).collect();
        let write = begin_write(file, 0, 512, 1);
        if waiting_here() == (0, 0) {
            eprintln!("skipped: no I/O ring here");
        } else {
            assert_eq!(waiting_here(), (400 - ONE_KIND_MAX, 0), "a write is not behind all reads");
        }
        write.await.expect("told").expect("written");
        for read in reads {
            read.await.1.expect("read");
        }
    });
    assert!(file.wait_idle(PATIENCE));
}

/// The most reads, or writes, that are taken while no operation can end: until the gate opens, or,
/// in a ring, until the end of this turn, before which nothing is submitted.
fn most_of_one_kind(io: Io, file: &dyn BlockFile, gate: &Arc<parking_lot::Mutex<()>>) -> usize {
    if io == Io::Threads {
        keep_threads_busy(file, gate);
        return super::threads::QUEUED_MAX;
    }
    super::uring::ONE_KIND_MAX + super::uring::WAITING_MAX
}

/// Lets every thread of a file wait for a gate; returns when they do.
fn keep_threads_busy(file: &dyn BlockFile, gate: &Arc<parking_lot::Mutex<()>>) {
    let data = AppendBuffer::new(4096);
    let (arrived, arrivals) = mpsc::channel();
    for _ in 0..4 {
        let (gate, arrived) = (Arc::clone(gate), arrived.clone());
        let stop = move |_| {
            arrived.send(()).expect("heard");
            drop(gate.lock());
        };
        file.write(0, Arc::clone(&data), 0..0, Box::new(stop));
    }
    for _ in 0..4 {
        arrivals.recv_timeout(PATIENCE).expect("a thread");
    }
}

fn errors_are_told(io: Io) {
    let scratch = scratch(io, false);
    let file = open(&OpenBlock { read_only: true, ..options(&scratch.path, io) })
        .expect("opened for reading");
    let error = run(write(&*file, 0, 4096, 1)).expect_err("it is for reading only");
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::BADF.raw_os_error()));
    let (done, ended) = mpsc::channel();
    // Not published: refused, and no byte of it written.
    let data = AppendBuffer::new(4096);
    let tell = Box::new(move |result: io::Result<()>| done.send(result).expect("heard"));
    run(async { scratch.file.write(0, data, 0..512, tell) });
    assert!(scratch.file.wait_idle(PATIENCE));
    let error = ended.try_recv().expect("told").expect_err("not published");
    assert_eq!(
        (error.kind(), scratch.file.len().expect("a length")),
        (io::ErrorKind::InvalidInput, 0)
    );
    let missing = OpenBlock { create: false, ..options(Path::new("/nonexistent/file"), io) };
    assert_eq!(open(&missing).err().map(|error| error.kind()), Some(io::ErrorKind::NotFound));
}

fn a_full_file_system(io: Io) {
    let full = OpenBlock { create: false, ..options(Path::new("/dev/full"), io) };
    let file = open(&full).expect("opened");
    let error = run(write(&*file, 0, 4096, 1)).expect_err("it is full");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    let error = file.write_blocking(0, &[1]).expect_err("it is full");
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(run(read(&*file, 0, 4096)), [0; 4096]);
}

fn waiting_until_idle(io: Io) {
    let scratch = scratch(io, true);
    let ended = Arc::new(AtomicUsize::new(0));
    let data = AppendBuffer::new(1 << 20);
    let mut region = data.reserve(1 << 20).expect("room");
    region.fill(5);
    assert_eq!(region.publish(), Progress::Pending);
    run(async {
        for index in 0..32 {
            let ended = Arc::clone(&ended);
            let tell = Box::new(move |result: io::Result<()>| {
                result.expect("written");
                ended.fetch_add(1, Ordering::Relaxed);
            });
            scratch.file.write(index << 20, Arc::clone(&data), 0..1 << 20, tell);
        }
    });
    // On the very thread whose ring it is, with its runtime at rest.
    assert!(scratch.file.wait_idle(PATIENCE));
    assert_eq!((ended.load(Ordering::Relaxed), scratch.file.in_flight()), (32, 0));
    assert_eq!(scratch.file.len().expect("a length"), 32 << 20);
    assert_eq!(Arc::strong_count(&data), 1, "the memory is free again");
}

fn a_second_runtime_on_a_thread(io: Io) {
    let scratch = scratch(io, false);
    let runtime =
        || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (first, second) = (runtime(), runtime());
    scratch.file.write_blocking(0, &[1; 4096]).expect("written");
    // Begun in one, ended in another, and in the first one again.
    let begun = begin_in(&first, || scratch.file.read(0, Buffer::new(4096)));
    assert_eq!(second.block_on(begun).1.expect("read"), 4096);
    assert_eq!(first.block_on(read(&*scratch.file, 0, 4096)), [1; 4096]);
    let begun = begin_in(&first, || scratch.file.read(0, Buffer::new(4096)));
    drop((first, second));
    let third = runtime();
    assert_eq!(third.block_on(begun).1.expect("read"), 4096);
    assert_eq!(third.block_on(read(&*scratch.file, 0, 4096)), [1; 4096]);
}

fn begin_in<T>(runtime: &tokio::runtime::Runtime, begin: impl FnOnce() -> T) -> T {
    let _entered = runtime.enter();
    begin()
}

fn threads_that_are_no_cores(io: Io) {
    let scratch = scratch(io, false);
    let (done, ended) = mpsc::channel();
    let data = AppendBuffer::new(4096);
    assert_eq!(data.reserve(1).expect("room").publish(), Progress::Pending);
    scratch.file.write(0, data, 0..512, Box::new(move |result| done.send(result).expect("heard")));
    ended.recv_timeout(PATIENCE).expect("told").expect("written");
    assert_eq!(without_a_runtime(read(&*scratch.file, 0, 4096)).len(), 512);
    assert!(scratch.file.wait_idle(PATIENCE));
}

/// Waits for a future on this thread, by parking it.
fn without_a_runtime<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => thread::park(),
        }
    }
}

fn a_thread_ends_with_operations_under_way(io: Io) {
    let scratch = scratch(io, true);
    let file = Arc::clone(&scratch.file);
    let ended = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&ended);
    thread::spawn(move || {
        let data = AppendBuffer::new(64 << 10);
        assert_eq!(data.seal().1, Progress::Complete);
        let full = AppendBuffer::new(64 << 10);
        let mut region = full.reserve(64 << 10).expect("room");
        region.fill(6);
        assert_eq!(region.publish(), Progress::Pending);
        run(async {
            // More than the ring holds.
            for index in 0..300 {
                let told = Arc::clone(&told);
                let tell = Box::new(move |result: io::Result<()>| {
                    result.expect("written");
                    told.fetch_add(1, Ordering::Relaxed);
                });
                file.write(index << 16, Arc::clone(&full), 0..64 << 10, tell);
            }
        });
    })
    .join()
    .expect("ended");
    assert!(scratch.file.wait_idle(PATIENCE));
    assert_eq!(ended.load(Ordering::Relaxed), 300);
    assert!(std::fs::read(&scratch.path).expect("read") == vec![6; 300 << 16]);
}

fn an_end_that_begins_the_next_operation(io: Io) {
    fn chain(file: &Arc<dyn BlockFile>, left: u64, told: tokio::sync::mpsc::UnboundedSender<u64>) {
        let data = AppendBuffer::new(4096);
        assert_eq!(data.reserve(4096).expect("room").publish(), Progress::Pending);
        let again = Arc::clone(file);
        let tell = Box::new(move |result: io::Result<()>| {
            result.expect("written");
            told.send(left).expect("heard");
            if left > 0 {
                chain(&again, left - 1, told);
            }
        });
        file.write(left * 4096, data, 0..4096, tell);
    }
    let scratch = scratch(io, false);
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    run(async {
        chain(&scratch.file, 50, told);
        for expected in (0..=50).rev() {
            assert_eq!(heard.recv().await, Some(expected));
        }
    });
    assert!(scratch.file.wait_idle(PATIENCE));
}

fn the_page_cache_answers_at_once(io: Io) {
    let scratch = scratch(io, false);
    let mut into = [0; 4096];
    assert!(scratch.file.read_now(0, &mut into).is_none(), "there is nothing");
    run(write(&*scratch.file, 0, 8192, 4)).expect("written");
    assert_eq!(scratch.file.read_now(4000, &mut into).expect("cached").expect("read"), 4096);
    assert_eq!(into, [4; 4096]);
    assert!(scratch.file.read_now(4097, &mut into).is_none(), "it ends behind the end");
    let direct = open(&OpenBlock { direct: true, ..options(&scratch.path, io) }).expect("opened");
    assert!(direct.read_now(0, &mut into).is_none());
}

fn sizes(io: Io) {
    let scratch = scratch(io, true);
    let file = &*scratch.file;
    assert_eq!(file.len().expect("a length"), 0);
    file.allocate(0, 1 << 20).expect("allocated");
    assert_eq!(file.len().expect("a length"), 1 << 20);
    file.set_len(8192).expect("cut");
    file.write_blocking(4096, &filled(4096, 9)).expect("written");
    file.sync_blocking().expect("on the device");
    assert_eq!(std::fs::metadata(&scratch.path).expect("there").len(), 8192);
    let align = file.alignment_bytes();
    assert!(align.is_power_of_two() && (512..=4096).contains(&align), "{align}");
    let cached = open(&options(&scratch.path, io)).expect("opened");
    assert_eq!(cached.alignment_bytes(), 1);
}

/// On a thread where io_uring is forbidden.
fn where_it_is_forbidden<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let forbidden = thread::spawn(move || {
        humboldt_sys::uring::forbid_on_this_thread().expect("a filter");
        act()
    });
    forbidden.join().expect("no panic")
}

#[test]
fn without_io_uring_threads_do_the_work() {
    where_it_is_forbidden(|| {
        let scratch = scratch(Io::Auto, true);
        run(write(&*scratch.file, 0, 8192, 1)).expect("written");
        assert!(run(read(&*scratch.file, 0, 8192)) == [1; 8192]);
        let error = open(&options(&scratch.path, Io::Uring)).err().expect("forbidden");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("io=threads"), "{error}");
    });
}

#[test]
fn a_core_that_gets_no_ring_uses_threads() {
    let scratch = scratch(Io::Uring, true);
    let file = Arc::clone(&scratch.file);
    where_it_is_forbidden(move || {
        run(write(&*file, 0, 8192, 2)).expect("written");
        assert!(file.wait_idle(PATIENCE));
        let threads = std::fs::read_dir("/proc/self/task").expect("tasks");
        let names =
            threads.map(|task| std::fs::read_to_string(task.expect("a task").path().join("comm")));
        assert!(
            names.into_iter().any(|name| name.is_ok_and(|name| name == "block-io\n")),
            "a thread did it"
        );
    });
    assert!(run(read(&*scratch.file, 0, 8192)) == [2; 8192]);
}

#[test]
fn an_operation_that_is_given_up_is_told_and_counted() {
    let scratch = scratch(Io::Auto, false);
    let open = Arc::new(super::ticket::OpenFile::new(
        std::fs::File::open(&scratch.path).expect("opened"),
        false,
    ));
    let (done, ended) = mpsc::channel();
    let tell = Box::new(move |result: io::Result<()>| done.send(result.is_err()).expect("heard"));
    let ticket = super::ticket::Ticket::new(&open, super::ticket::Finish::Call(tell));
    assert_eq!(open.in_flight(), 1);
    drop(ticket);
    assert_eq!((ended.try_iter().collect::<Vec<_>>(), open.in_flight()), (vec![true], 0));
    let (reply, end) = tokio::sync::oneshot::channel();
    drop(super::ticket::Ticket::new(&open, super::ticket::Finish::Read(reply)));
    assert!(run(end).is_err());
}
