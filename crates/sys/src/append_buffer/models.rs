//! Every interleaving of threads that fill, seal and read a buffer, with every value that the
//! memory orders of its atomics admit (`humboldt-model`).

use humboldt_model::{Thread, check, spawn};

use super::*;

/// More need minutes.
const PREEMPTIONS: usize = 3;

/// Bytes of a part: one unit is full, one is not.
const PART_BYTES: usize = UNIT_BYTES + 88;

/// What the units of a part must be when it can be read.
fn expected(byte: u8) -> Vec<u8> {
    let mut bytes = vec![0; 2 * UNIT_BYTES];
    bytes[..PART_BYTES].fill(byte);
    bytes
}

/// Room for a part, filled but not published.
fn filled(buffer: &Arc<AppendBuffer>, byte: u8) -> Option<Region> {
    let mut region = buffer.reserve(PART_BYTES)?;
    region.fill(byte);
    Some(region)
}

/// The thread that completes the buffer can read all of it; returns whether that is so.
fn is_told(buffer: &AppendBuffer, progress: Progress) -> bool {
    let is_told = progress == Progress::Complete;
    if is_told {
        read_all(buffer);
    }
    is_told
}

fn read_all(buffer: &AppendBuffer) {
    let all = buffer.read(0..buffer.reserved()).expect("all parts are published");
    assert!(all.chunks(2 * UNIT_BYTES).all(|part| part == expected(part[0])));
}

fn told(threads: impl IntoIterator<Item = Thread<bool>>) -> usize {
    threads.into_iter().map(Thread::join).filter(|is_told| *is_told).count()
}

#[test]
fn of_those_who_fill_and_seal_one_is_told() {
    check(PREEMPTIONS, || {
        let buffer = AppendBuffer::new(8192);
        let fill = |byte| {
            let buffer = Arc::clone(&buffer);
            spawn(move || {
                filled(&buffer, byte).is_some_and(|region| is_told(&buffer, region.publish()))
            })
        };
        let others = [1, 2].map(fill);
        let sealing = buffer.seal().1;
        let sealed = usize::from(is_told(&buffer, sealing));
        if buffer.is_complete() {
            read_all(&buffer);
        }
        assert_eq!(told(others) + sealed, 1);
        assert_eq!((buffer.notice(), buffer.is_complete()), (Progress::Pending, true));
    });
}

#[test]
fn of_those_who_ask_after_a_part_was_given_up_one_is_told() {
    check(PREEMPTIONS, || {
        let buffer = AppendBuffer::new(8192);
        let ours = filled(&buffer, 1).expect("there is room");
        let other = filled(&buffer, 2).expect("there is room");
        let give_up = {
            let buffer = Arc::clone(&buffer);
            spawn(move || {
                drop(other);
                is_told(&buffer, buffer.notice())
            })
        };
        let seal = {
            let buffer = Arc::clone(&buffer);
            spawn(move || is_told(&buffer, buffer.seal().1))
        };
        let publishing = ours.publish();
        let published = usize::from(is_told(&buffer, publishing));
        assert_eq!(told([give_up, seal]) + published, 1);
    });
}

#[test]
fn what_can_be_read_is_as_it_was_published() {
    check(PREEMPTIONS, || {
        let buffer = AppendBuffer::new(8192);
        let first = filled(&buffer, 1).expect("there is room");
        let fill = {
            let buffer = Arc::clone(&buffer);
            spawn(move || filled(&buffer, 2).expect("there is room").publish())
        };
        let reading = {
            let buffer = Arc::clone(&buffer);
            spawn(move || {
                let both = buffer.read(0..4 * UNIT_BYTES);
                assert!(both.is_none_or(|bytes| bytes == [expected(1), expected(2)].concat()));
                let one = buffer.read(0..2 * UNIT_BYTES);
                assert!(one.is_none_or(|bytes| bytes == expected(1)));
                assert!(both.is_none() || one.is_some(), "what was published stays so");
            })
        };
        assert_eq!(first.publish(), Progress::Pending);
        assert_eq!(fill.join(), Progress::Pending);
        reading.join();
    });
}
