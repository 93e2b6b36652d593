//! Several threads at a time.

use std::collections::HashSet;
use std::sync::Barrier;

use super::*;

const THREADS: u64 = 4;
const KEYS: usize = 10_000;

/// Keys that the index can tell from each other, some for each thread.
fn distinct_keys(index: &RingIndex) -> Vec<Vec<Hash64>> {
    let (random, mut known) = (&mut Random(7), HashSet::new());
    let distinct = std::iter::repeat_with(|| random.hash())
        .filter(|hash| known.insert(identity(index, *hash)));
    let all: Vec<Hash64> = distinct.take(KEYS * THREADS as usize).collect();
    all.chunks(KEYS).map(<[Hash64]>::to_vec).collect()
}

/// Inserts, replaces, bumps and removes its own keys, and knows at any time which must be there.
fn work(index: &RingIndex, keys: &[Hash64], thread: u64, rounds: u64) {
    let own = |round: u64, i: usize| Entry {
        freq: 0,
        ..entry((round * KEYS as u64 + i as u64) * THREADS + thread)
    };
    for round in 1..=rounds {
        for (i, hash) in keys.iter().enumerate() {
            let (before, now) = (own(round - 1, i), own(round, i));
            match (round, i % 3) {
                (1, _) => assert_eq!(index.insert(*hash, now), nothing()),
                (_, 0) => {
                    assert_eq!(
                        index.insert(*hash, now).replaced.map(|e| e.location),
                        Some(before.location)
                    )
                }
                (_, 1) => assert!(index.replace_if(*hash, before.location, now)),
                _ => {
                    assert!(index.remove_if(*hash, before.location));
                    assert_eq!((index.get(*hash), index.insert(*hash, now)), (None, nothing()));
                }
            }
            index.bump(*hash, before.location);
            index.bump(*hash, now.location);
            let other = keys[(i * 7 + 1) % (i + 1)];
            assert!(index.get(other).is_some_and(|entry| entry.location % THREADS == thread));
        }
        for (i, hash) in keys.iter().enumerate() {
            assert_eq!(index.get(*hash), Some(Entry { freq: 1, ..own(round, i) }));
        }
    }
}

#[test]
fn no_thread_loses_a_key_while_others_change_grow_and_copy_the_index() {
    // Few objects at first, so that shards grow under way.
    let index = RingIndex::new(400, 50_000);
    let keys = distinct_keys(&index);
    let barrier = Barrier::new(THREADS as usize + 1);
    std::thread::scope(|scope| {
        for (thread, keys) in (0_u64..).zip(&keys) {
            let (index, barrier) = (&index, &barrier);
            scope.spawn(move || {
                barrier.wait();
                work(index, keys, thread, 10);
            });
        }
        barrier.wait();
        let mut image = Vec::new();
        for shard in (0..index.shards()).cycle().take(2000) {
            image.clear();
            index.write_shard(shard, 0, &mut image);
            assert_eq!(image_bytes(&image), Some(image.len() as u64));
            assert_eq!(index.sweep(|_| true, |entry| entry.kind != 0), 0);
        }
    });
    assert_eq!(index.len(), KEYS as u64 * THREADS);
    assert!(index.shards.iter().all(|shard| shard.0.read().doublings > 0));
}

#[test]
fn every_use_is_counted_once() {
    let index = RingIndex::new(10, 10);
    let barrier = Barrier::new(2);
    for round in 0..2000 {
        let hash = Hash64(round);
        index.insert(hash, Entry { freq: 0, ..entry(round) });
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    barrier.wait();
                    index.bump(hash, round);
                });
            }
        });
        assert_eq!(index.remove(hash).map(|entry| entry.freq), Some(2));
    }
}
