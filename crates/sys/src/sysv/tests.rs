use std::fs::File;
use std::io::{ErrorKind, Write};
use std::time::Duration;

use super::*;

/// A key that differs between processes and tests.
fn key(number: u32) -> IpcKey {
    IpcKey::new(std::process::id().wrapping_mul(16).wrapping_add(number))
}

/// Removes a queue at the end of its test, also of one that fails.
struct Guard(MessageQueue);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.remove();
    }
}

fn queue(number: u32) -> Guard {
    Guard(MessageQueue::create(key(number)).expect("a queue"))
}

#[test]
fn keys_of_ours_are_recognised() {
    let key = IpcKey::new(0xFFAB_CDEF);
    assert_eq!(key.number(), 0x48AB_CDEF);
    assert_eq!(IpcKey::from_number(0x48AB_CDEF), Some(key));
    assert_eq!(IpcKey::from_number(0x49AB_CDEF), None);
    assert_eq!(IpcKey::from_number(0), None, "the key of all private ones");
}

#[test]
fn messages_come_in_order_and_a_full_queue_says_so() {
    let guard = queue(1);
    let queue = guard.0;
    assert_eq!(queue.receive::<40>(false).expect("a look"), None);
    let room = queue.info().expect("info").capacity_bytes / 40;
    for number in 0..room {
        assert!(queue.send(&[number as u8; 40], false).expect("sent"));
    }
    assert!(!queue.send(&[0; 40], false).expect("refused"), "full");
    assert_eq!(queue.info().expect("info").messages, room);
    assert_eq!(queue.info().expect("info").last_sender, std::process::id() as i32);
    for number in 0..room {
        assert_eq!(
            queue.receive(true).expect("received"),
            Some(QueueMessage::Text([number as u8; 40]))
        );
    }
    assert_eq!(queue.receive::<40>(false).expect("a look"), None);
}

#[test]
fn messages_of_other_lengths_do_no_harm() {
    let guard = queue(2);
    let queue = guard.0;
    queue.send(&[1; 7], false).expect("sent");
    queue.send(&[2; 100], false).expect("sent");
    queue.send(&[3; 40], false).expect("sent");
    assert_eq!(queue.receive::<40>(true).expect("received"), Some(QueueMessage::Short));
    assert_eq!(queue.receive(true).expect("received"), Some(QueueMessage::Text([2; 40])));
    assert_eq!(queue.receive(true).expect("received"), Some(QueueMessage::Text([3; 40])));
}

#[test]
fn a_queue_is_found_until_it_is_removed_and_who_waits_is_woken() {
    let guard = queue(3);
    let queue = guard.0;
    assert_eq!(MessageQueue::create(key(3)).map_err(|e| e.kind()), Err(ErrorKind::AlreadyExists));
    assert_eq!(MessageQueue::find(key(3)), Some(queue));
    assert!(queue.is_own() && MessageQueue::with_id(queue.id()) == queue);
    let waiting = std::thread::spawn(move || queue.receive::<40>(true));
    std::thread::sleep(Duration::from_millis(20)); // either order is right
    queue.remove().expect("removed");
    let error = waiting.join().expect("joined").expect_err("no message");
    assert!([Some(libc::EIDRM), Some(libc::EINVAL)].contains(&error.raw_os_error()), "{error}");
    assert!(MessageQueue::find(key(3)).is_none() && queue.info().is_err() && !queue.is_own());
    assert!(queue.send(&[0; 40], false).is_err());
}

#[test]
fn the_capacity_of_a_queue_can_be_lowered() {
    let guard = queue(4);
    guard.0.set_capacity(400).expect("lowered");
    assert_eq!(guard.0.info().expect("info").capacity_bytes, 400);
}

#[test]
fn bytes_go_in_and_out_and_never_beyond_the_end() {
    let memory = SharedMemory::create(key(5), 10_000).expect("a segment");
    assert_eq!(find_segment(key(5)), Some(memory.id()));
    let other = SharedMemory::attach(memory.id(), 10_000).expect("attached again");
    assert!(SharedMemory::attach(memory.id(), 10_001).is_err(), "too short");
    memory.remove_when_detached().expect("marked");
    memory.copy_in(9_997, b"abc").expect("fits");
    let mut out = b"x".to_vec();
    other.copy_out(9_996, 4, &mut out).expect("inside");
    assert_eq!(out, b"x\0abc");
    for (offset, len) in [(9_998, 3), (10_001, 0), (usize::MAX, 1), (1, usize::MAX)] {
        assert!(other.copy_out(offset, len, &mut out).is_err());
        assert!(other.read_file(offset, len, std::io::stdin(), 0).is_err());
        assert!(other.write_file(offset, len, std::io::stdin(), 0).is_err());
    }
    assert!(memory.copy_in(9_998, b"abc").is_err());
    assert_eq!(out.len(), 5);
}

#[test]
fn a_segment_goes_with_the_last_who_has_it() {
    let memory = SharedMemory::create(key(6), 100).expect("a segment");
    let id = memory.id();
    let other = SharedMemory::attach(id, 100).expect("attached again");
    let info = segment_info(id).expect("info");
    assert_eq!((info.creator, info.attached), (std::process::id() as i32, 2));
    memory.remove_when_detached().expect("marked");
    assert_eq!(find_segment(key(6)), None, "its key is free");
    drop(memory);
    assert_eq!(segment_info(id).expect("still there").attached, 1);
    drop(other);
    assert!(segment_info(id).is_err());
}

#[test]
fn files_are_read_into_a_segment_and_written_from_it() {
    let memory = SharedMemory::create(key(7), 4096).expect("a segment");
    memory.remove_when_detached().expect("marked");
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(b"0123456789").expect("written");
    assert_eq!(memory.read_file(100, 50, &file, 4).expect("read"), 6);
    assert_eq!(memory.read_file(100, 50, &file, 10).expect("read"), 0);
    assert_eq!(memory.write_file(101, 2, &file, 20).expect("written"), 2);
    assert_eq!(memory.read_file(0, 50, &file, 20).expect("read"), 2);
    let mut out = Vec::new();
    memory.copy_out(0, 2, &mut out).expect("inside");
    assert_eq!(out, b"56");
    assert!(
        memory.write_file(0, 1, File::open("/dev/null").expect("opened"), 0).is_err(),
        "not for writing"
    );
}
