//! Every interleaving of threads that change one shard with those that look into it and count uses,
//! for which the lock is shared (`humboldt-model`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use humboldt_model::{Thread, WordBool, check, spawn};

use super::*;

/// More need minutes.
const PREEMPTIONS: usize = 3;

/// Key `n`. They differ in the first bits of their tags, by which a table that grows splits them.
fn hash(n: usize) -> Hash64 {
    Hash64((n as u64) << (32 + 14))
}

fn unused(location: u64) -> Entry {
    Entry { freq: 0, ..entry(location) }
}

/// A shard whose first table, of one bucket, holds these keys. It doubles when there are more, as
/// far as `slots_max` allows.
fn index_of(keys: usize, slots_max: u64) -> Arc<RingIndex> {
    let mut index = RingIndex::of_tables(vec![Table::new(1)], 0);
    index.shard_slots_wanted = slots_max;
    for n in 0..keys {
        assert_eq!(index.insert(hash(n), unused(n as u64)), nothing());
    }
    Arc::new(index)
}

#[test]
fn no_use_is_lost_while_the_table_grows() {
    check(PREEMPTIONS, || {
        let index = index_of(BUCKET_SLOTS, 4 * BUCKET_SLOTS as u64);
        let bump = || {
            let index = Arc::clone(&index);
            spawn(move || index.bump(hash(1), 1))
        };
        let others = [bump(), bump()];
        assert_eq!(index.insert(hash(BUCKET_SLOTS), unused(100)), nothing());
        others.into_iter().for_each(Thread::join);
        assert_eq!(index.get(hash(1)), Some(Entry { freq: 2, ..unused(1) }));
        assert!((0..=BUCKET_SLOTS).all(|n| index.get(hash(n)).is_some()));
    });
}

#[test]
fn a_look_up_finds_what_is_there_while_the_table_grows() {
    check(PREEMPTIONS, || {
        let index = index_of(BUCKET_SLOTS, 4 * BUCKET_SLOTS as u64);
        let find = |n: usize| {
            let index = Arc::clone(&index);
            spawn(move || {
                assert_eq!(index.get(hash(n)), Some(unused(n as u64)));
                index.get(hash(BUCKET_SLOTS)).is_none_or(|found| found == unused(100))
            })
        };
        let others = [find(0), find(7)];
        assert_eq!(index.insert(hash(BUCKET_SLOTS), unused(100)), nothing());
        assert_eq!(others.map(Thread::join), [true; 2]);
    });
}

#[test]
fn a_use_of_the_old_place_does_not_count_for_the_new_one() {
    check(PREEMPTIONS, || {
        let index = index_of(1, 8);
        let bump = |location| {
            let index = Arc::clone(&index);
            spawn(move || index.bump(hash(0), location))
        };
        let others = [bump(0), bump(50)];
        assert!(index.replace_if(hash(0), 0, unused(50)));
        others.into_iter().for_each(Thread::join);
        let found = index.get(hash(0)).expect("nobody removes it");
        assert!(found.freq <= 1, "{found:?}");
        assert_eq!(Entry { freq: 0, ..found }, unused(50));
        index.bump(hash(0), 0);
        assert_eq!(index.get(hash(0)), Some(found));
    });
}

#[test]
fn a_removed_object_does_not_come_back_with_a_use() {
    check(PREEMPTIONS, || {
        let index = index_of(1, 8);
        let bump = || {
            let index = Arc::clone(&index);
            spawn(move || index.bump(hash(0), 0))
        };
        let others = [bump(), bump()];
        assert!(index.remove_if(hash(0), 0));
        others.into_iter().for_each(Thread::join);
        assert_eq!((index.get(hash(0)), index.len()), (None, 0));
    });
}

#[test]
fn whoever_misses_an_object_knows_why() {
    check(PREEMPTIONS, || {
        // It may not grow: one of the eight is dropped for the ninth. One more is removed.
        let index = index_of(BUCKET_SLOTS, 0);
        let is_told = Arc::new(WordBool::new(false));
        let other = {
            let (index, is_told) = (Arc::clone(&index), Arc::clone(&is_told));
            spawn(move || {
                let found = (0..BUCKET_SLOTS).filter(|n| index.get(hash(*n)).is_some()).count();
                assert!(found == BUCKET_SLOTS || is_told.load(Ordering::SeqCst));
            })
        };
        let removing = {
            let (index, is_told) = (Arc::clone(&index), Arc::clone(&is_told));
            spawn(move || {
                index.remove_if_telling(hash(3), 3, || is_told.store(true, Ordering::SeqCst));
            })
        };
        let tell = || is_told.store(true, Ordering::SeqCst);
        index.insert_telling(hash(BUCKET_SLOTS), unused(100), tell);
        other.join();
        removing.join();
    });
}
