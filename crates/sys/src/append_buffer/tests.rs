//! Buffers that many threads fill.

use std::sync::atomic::AtomicUsize;
use std::thread;

use humboldt_base::rng::Rng;

use super::*;

fn fill(buffer: &Arc<AppendBuffer>, bytes: &[u8]) -> Progress {
    let mut region = buffer.reserve(bytes.len()).expect("room");
    region.copy_from_slice(bytes);
    region.publish()
}

#[test]
fn a_region_is_readable_when_published_and_not_before() {
    let buffer = AppendBuffer::new(8192);
    let mut first = buffer.reserve(700).expect("room");
    let second = buffer.reserve(100).expect("room");
    assert_eq!(
        (first.offset(), first.len(), second.offset(), buffer.reserved()),
        (0, 700, 1024, 1536)
    );
    first.fill(1);
    assert!(buffer.read(0..1).is_none());
    assert_eq!(first.publish(), Progress::Pending);
    assert_eq!(buffer.read(0..1024), Some([[1_u8; 700].as_slice(), &[0; 324]].concat().as_slice()));
    assert!(buffer.read(1000..1025).is_none(), "a part of it is not published");
    drop(second);
    assert_eq!(buffer.read(1000..1536), Some([0; 536].as_slice()));
    assert!(buffer.read(1536..1537).is_none(), "nobody has been given it");
    assert_eq!(buffer.read(1024..1024), Some([].as_slice()));
    let backwards = Range { start: 2, end: 1 };
    assert!(buffer.read(backwards).is_none() && buffer.read(8192..8193).is_none());
}

#[test]
fn room_ends_and_a_smaller_piece_may_still_fit() {
    let buffer = AppendBuffer::new(5000);
    assert_eq!(buffer.capacity(), 8192);
    assert!(buffer.reserve(8193).is_none() && buffer.reserve(0).is_none());
    assert_eq!(fill(&buffer, &[1; 7681]), Progress::Pending);
    assert!(buffer.reserve(1).is_none());
    let (len, progress) = buffer.seal();
    assert_eq!((len, progress, buffer.is_complete()), (8192, Progress::Complete, true));
}

#[test]
fn sealing_pads_to_whole_blocks_and_ends_reservations() {
    let buffer = AppendBuffer::new(1 << 20);
    assert_eq!(fill(&buffer, &[5; 4600]), Progress::Pending);
    let open = buffer.reserve(10).expect("room");
    assert_eq!(buffer.seal(), (8192, Progress::Pending));
    assert_eq!((buffer.seal().0, buffer.is_complete(), buffer.reserved()), (8192, false, 8192));
    assert!(buffer.reserve(1).is_none());
    assert_eq!(open.publish(), Progress::Complete);
    assert_eq!((buffer.notice(), buffer.is_complete()), (Progress::Pending, true));
    let all = buffer.read(0..8192).expect("complete");
    assert_eq!((&all[..4600], &all[5120 + 10..]), (&[5; 4600][..], &[0; 8192 - 5130][..]));
    assert!(buffer.read(0..8193).is_none());
}

#[test]
fn an_empty_buffer_is_complete_when_sealed() {
    let buffer = AppendBuffer::new(4096);
    assert_eq!((buffer.is_complete(), buffer.notice()), (false, Progress::Pending));
    assert_eq!(buffer.seal(), (0, Progress::Complete));
    assert_eq!((buffer.is_complete(), buffer.seal()), (true, (0, Progress::Pending)));
}

#[test]
fn a_dropped_region_is_zero_and_completion_waits_to_be_noticed() {
    let buffer = AppendBuffer::new(4096);
    let mut region = buffer.reserve(600).expect("room");
    region.fill(9);
    assert_eq!(buffer.seal(), (4096, Progress::Pending));
    drop(region);
    assert_eq!(buffer.read(0..4096), Some([0; 4096].as_slice()));
    assert_eq!((buffer.notice(), buffer.notice()), (Progress::Complete, Progress::Pending));
    let abandoned = AppendBuffer::new(4096);
    let region = abandoned.reserve(1).expect("room");
    assert_eq!(abandoned.seal().1, Progress::Pending);
    assert_eq!((region.abandon(), abandoned.notice()), (Progress::Complete, Progress::Pending));
}

/// Threads fill, publish, abandon and drop at random while one seals and one reads. All published
/// bytes are right, and completion is reported exactly once.
#[test]
fn many_threads() {
    for seed in 0..if cfg!(miri) { 3 } else { 200 } {
        let buffer = AppendBuffer::new(64 << 10);
        let heard = AtomicUsize::new(0);
        let hear = |progress: Progress| {
            heard.fetch_add(usize::from(progress == Progress::Complete), Ordering::Relaxed);
        };
        let regions = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for id in 0..3 {
                let (buffer, regions) = (&buffer, &regions);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed * 8 + id);
                    while let Some(mut region) = buffer.reserve(1 + rng.below(3000) as usize) {
                        let (mark, start, len) =
                            (1 + rng.below(255) as u8, region.offset(), region.len());
                        region.fill(mark);
                        let mark = match rng.below(8) {
                            0 => {
                                hear(region.abandon());
                                0
                            }
                            1 => {
                                drop(region);
                                hear(buffer.notice());
                                0
                            }
                            _ => {
                                hear(region.publish());
                                mark
                            }
                        };
                        let now = buffer.read(start..start + len).expect("done");
                        assert!(now.iter().all(|byte| *byte == mark));
                        regions.lock().push((start, len, mark));
                    }
                });
            }
            scope.spawn(|| {
                let mut rng = Rng::new(seed);
                while buffer.reserved() < rng.below(64 << 10) as usize {
                    thread::yield_now();
                }
                hear(buffer.seal().1);
            });
        });
        assert!(buffer.is_complete());
        assert_eq!(heard.into_inner(), 1, "seed {seed}");
        let mut expected = vec![0; buffer.reserved()];
        for (start, len, mark) in regions.into_inner() {
            expected[start..start + len].fill(mark);
        }
        assert!(buffer.read(0..buffer.reserved()).expect("complete") == expected, "seed {seed}");
    }
}

#[test]
fn memory_is_used_again_within_a_bound() {
    // A size of its own, since other tests run beside this one.
    let capacity = (5 << 20) - ALIGN_BYTES;
    let first = AppendBuffer::new(capacity);
    assert_eq!(fill(&first, &[3; 100]), Progress::Pending);
    let address = first.at(0) as usize;
    drop(first);
    // A little more fits as well.
    let again = AppendBuffer::new(capacity + ALIGN_BYTES);
    assert_eq!((again.at(0) as usize, again.reserved()), (address, 0));
    assert_eq!(again.capacity(), capacity + ALIGN_BYTES);
    assert!(again.reserve(capacity + ALIGN_BYTES + 1).is_none(), "its memory is longer");
    assert!(again.read(0..1).is_none(), "old content is out of reach");
    drop((again, (0..8).map(|_| AppendBuffer::new(capacity)).collect::<Vec<_>>()));
    assert!(SPARE.lock().iter().map(Buffer::capacity).sum::<usize>() <= SPARE_BYTES_MAX);
    limit_spare(7 << 20);
    assert!(
        SPARE.lock().iter().map(Buffer::capacity).sum::<usize>() <= 7 << 20,
        "given back at once"
    );
    drop((0..8).map(|_| AppendBuffer::new(capacity)).collect::<Vec<_>>());
    assert!(
        SPARE.lock().iter().map(Buffer::capacity).sum::<usize>() <= 7 << 20,
        "and not kept later"
    );
    limit_spare(usize::MAX);
    assert_eq!(SPARE_BYTES.load(Ordering::Relaxed), SPARE_BYTES_MAX);
}
