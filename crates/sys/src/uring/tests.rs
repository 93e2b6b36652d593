//! Rings on their own, without a reactor.

use std::fs::File;
use std::os::fd::OwnedFd;

use super::*;

fn file() -> File {
    tempfile::tempfile().expect("a file")
}

fn filled(len: usize, mark: u8) -> Buffer {
    let mut buffer = Buffer::new(len);
    buffer.fill(mark);
    buffer
}

/// A write of published bytes.
fn write(len: usize, mark: u8) -> Transfer {
    let data = AppendBuffer::new(len);
    if let Some(mut region) = data.reserve(len) {
        region.fill(mark);
        let _ = region.publish();
    }
    Transfer::Append(data, 0..len)
}

/// The next operation that ends.
fn next<T: AsFd>(ring: &mut Ring<T>) -> Completion<T> {
    loop {
        if let Some(ended) = ring.complete() {
            return ended;
        }
        assert!(ring.in_flight() > 0, "nothing is under way");
        ring.wait(Duration::from_secs(1)).expect("waited");
    }
}

#[test]
fn what_is_written_is_read_again() {
    probe().expect("io_uring");
    let file = file();
    let mut ring = Ring::new().expect("a ring");
    for len in [0, 1, 4096, 100_000, 3 << 20] {
        ring.push(&file, 0, write(len, len as u8 | 1)).expect("room");
        assert_eq!(next(&mut ring).2.expect("written"), len);
        ring.push(&file, 0, Transfer::Read(filled(len, 0))).expect("room");
        let (_, transfer, result) = next(&mut ring);
        assert_eq!(result.expect("read"), len);
        let Transfer::Read(buffer) = transfer else { panic!("a read was asked for") };
        assert!(buffer.len() == len && buffer.iter().all(|byte| *byte == len as u8 | 1));
    }
    assert_eq!(ring.in_flight(), 0);
}

#[test]
fn a_full_ring_gives_back_what_it_cannot_take() {
    let file = file();
    let mut ring = Ring::new().expect("a ring");
    for index in 0..RING_DEPTH {
        ring.push(&file, index as u64 * 4096, write(4096, index as u8)).expect("room");
    }
    let (_, back) = ring.push(&file, 0, Transfer::Read(Buffer::new(77))).expect_err("no room");
    assert!(matches!(back, Transfer::Read(buffer) if buffer.len() == 77));
    assert!(ring.has_unsubmitted() && ring.in_flight() == RING_DEPTH);
    for _ in 0..RING_DEPTH {
        next(&mut ring).2.expect("written");
    }
    assert!(!ring.has_unsubmitted() && ring.in_flight() == 0);
    assert_eq!(file.metadata().expect("there").len(), RING_DEPTH as u64 * 4096);
}

#[test]
fn unpublished_bytes_are_refused() {
    let file = file();
    let mut ring = Ring::new().expect("a ring");
    let data = AppendBuffer::new(4096);
    let region = data.reserve(600).expect("room");
    ring.push(&file, 0, Transfer::Append(Arc::clone(&data), 0..1024)).expect("room");
    assert_eq!(ring.in_flight(), 1);
    assert_eq!(next(&mut ring).2.expect_err("refused").kind(), io::ErrorKind::InvalidInput);
    drop(region);
    ring.push(&file, 0, Transfer::Append(data, 0..1024)).expect("room");
    assert_eq!(next(&mut ring).2.expect("written"), 1024);
}

#[test]
fn a_dropped_ring_waits_for_the_kernel() {
    let file = file();
    let mut ring = Ring::new().expect("a ring");
    for index in 0..32 {
        ring.push(&file, index << 20, write(1 << 20, 5)).expect("room");
        ring.push(&file, index << 20, Transfer::Read(Buffer::new(1 << 20))).expect("room");
    }
    drop(ring);
    assert_eq!(file.metadata().expect("there").len(), 32 << 20);
    let arena = aligned::home().expect("an arena");
    assert_eq!(Arc::strong_count(&arena), 2, "all buffers are back");
}

/// Whether a thread of this process sleeps.
fn sleeps(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S')))
}

#[test]
fn a_dropped_ring_sleeps_while_it_waits_though_something_has_ended() {
    use std::io::Write;
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let (say, told) = std::sync::mpsc::channel();
    let dropping = std::thread::spawn(move || {
        let mut ring = Ring::new().expect("a ring");
        let pipe = OwnedFd::from(reader);
        ring.push(pipe.try_clone().expect("one more"), 0, Transfer::Read(Buffer::new(4096)))
            .expect("room");
        ring.submit().expect("submitted");
        let refused = Err(io::ErrorKind::WouldBlock.into());
        ring.ready.push_back((pipe, Transfer::Read(Buffer::new(4096)), refused));
        say.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("heard");
        drop(ring);
    });
    let thread = told.recv().expect("a thread");
    let start = Instant::now();
    let mut has_slept = false;
    while !has_slept && start.elapsed() < Duration::from_secs(10) {
        has_slept = sleeps(thread);
        std::thread::sleep(Duration::from_millis(1));
    }
    writer.write_all(&[1; 4096]).expect("written");
    dropping.join().expect("no panic");
    assert!(has_slept, "it asked again and again");
}

#[test]
fn forbidden_is_told() {
    let told = std::thread::spawn(|| {
        forbid_on_this_thread().expect("a filter");
        (probe(), Ring::<File>::new().map(drop))
    });
    let (probed, made) = told.join().expect("no panic");
    assert_eq!(probed.expect_err("forbidden").kind(), io::ErrorKind::PermissionDenied);
    assert_eq!(made.expect_err("forbidden").kind(), io::ErrorKind::PermissionDenied);
}

/// Bytes that differ everywhere.
fn counted(len: usize) -> Vec<u8> {
    (0..len as u32).flat_map(|at| [at as u8, (at >> 8) as u8 ^ 0x5a]).take(len).collect()
}

#[test]
fn a_transfer_in_pieces_goes_on_where_it_stopped() {
    // A pipe accepts and returns only a part of a transfer.
    for len in [100_000, 3 << 20] {
        let (source, mut feed) = io::pipe().expect("a pipe");
        let mut ring = Ring::new().expect("a ring");
        let expected = counted(len);
        ring.push(source.as_fd(), 0, Transfer::Read(Buffer::new(len))).expect("room");
        ring.submit().expect("submitted");
        let bytes = expected.clone();
        let feeder =
            std::thread::spawn(move || io::Write::write_all(&mut feed, &bytes).expect("fed"));
        let (_, transfer, result) = next(&mut ring);
        assert_eq!(result.expect("read"), len);
        assert!(matches!(transfer, Transfer::Read(buffer) if *buffer == *expected));
        feeder.join().expect("fed");
        let data = AppendBuffer::new(len);
        let mut region = data.reserve(len).expect("room");
        region.copy_from_slice(&expected);
        assert_eq!(region.publish(), crate::append_buffer::Progress::Pending);
        let (mut drain, sink) = io::pipe().expect("a pipe");
        let mut ring = Ring::new().expect("a ring");
        ring.push(&sink, 0, Transfer::Append(data, 0..len)).expect("room");
        ring.submit().expect("submitted");
        let mut seen = vec![0; len];
        let drained = std::thread::spawn(move || {
            io::Read::read_exact(&mut drain, &mut seen).expect("drained");
            seen
        });
        assert_eq!(next(&mut ring).2.expect("written"), len);
        assert!(drained.join().expect("drained") == expected);
    }
}

fn operation(transfer: Transfer) -> Operation<()> {
    let len = transfer.len().expect("bytes");
    Operation { tag: (), transfer, offset: 0, len, done: 0, retries: 0 }
}

fn errno(errno: Errno) -> i32 {
    -errno.raw_os_error()
}

#[test]
fn what_is_left_of_a_short_transfer_is_done() {
    let mut read = operation(Transfer::Read(Buffer::new(8192)));
    assert!(read.advance(4096).is_none());
    assert!(read.advance(errno(Errno::INTR)).is_none());
    assert_eq!(read.advance(4096).expect("the end").expect("read"), 8192);
    let mut write = operation(write(8192, 1));
    assert!(write.advance(100).is_none());
    assert_eq!(
        write.advance(0).expect("the end").expect_err("no more room").kind(),
        io::ErrorKind::WriteZero
    );
}

#[test]
fn a_file_ends_where_reads_say_so() {
    let mut read = operation(Transfer::Read(Buffer::new(8192)));
    assert!(read.advance(100).is_none());
    assert_eq!(read.advance(0).expect("the end").expect("read"), 100);
    // The same with direct I/O, which refuses to read the next byte.
    let mut direct = operation(Transfer::Read(Buffer::new(8192)));
    assert!(direct.advance(100).is_none());
    assert_eq!(direct.advance(errno(Errno::INVAL)).expect("the end").expect("read"), 100);
    let mut refused = operation(Transfer::Read(Buffer::new(8192)));
    assert!(refused.advance(errno(Errno::INVAL)).expect("the end").is_err());
}

#[test]
fn trying_again_has_an_end() {
    let mut read = operation(Transfer::Read(Buffer::new(512)));
    let ends =
        (0..=RETRIES_MAX).filter_map(|_| read.advance(errno(Errno::AGAIN))).collect::<Vec<_>>();
    assert!(matches!(ends.as_slice(), [Err(error)] if error.kind() == io::ErrorKind::WouldBlock));
}
