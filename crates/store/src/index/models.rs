//! Every interleaving of those who look for a victim, part by part, and of those who change parts
//! (`humboldt-model`).

use std::sync::Arc;

use humboldt_model::{check, spawn};

use super::*;

/// More need minutes.
const PREEMPTIONS: usize = 2;

fn key(i: u64) -> IndexKey {
    IndexKey::from(&Key::primary(&i.to_le_bytes()))
}

fn entry(file: u32) -> FileEntry {
    FileEntry { file, size_units: 1, flags: 0 }
}

/// An index with objects `0..objects` in a few parts.
fn index_of(objects: u64) -> Arc<FileIndex> {
    let index = FileIndex::sized(Policy::Lru, 0);
    for i in 0..objects {
        assert_eq!(index.insert(key(i), entry(i as u32)), None);
    }
    Arc::new(index)
}

#[test]
fn two_who_look_for_a_victim_find_two() {
    check(PREEMPTIONS, || {
        let index = index_of(2);
        let other = {
            let index = Arc::clone(&index);
            spawn(move || index.pop_victim())
        };
        let victims =
            [index.pop_victim(), other.join()].map(|victim| victim.expect("there are two"));
        assert_ne!(victims[0], victims[1]);
        assert_eq!((index.len(), index.pop_victim()), (0, None));
    });
}

#[test]
fn a_victim_has_left_for_all_and_once() {
    check(PREEMPTIONS, || {
        let index = index_of(2);
        let moving = {
            let index = Arc::clone(&index);
            spawn(move || index.replace_if(key(0), entry(0), entry(5)))
        };
        let removing = {
            let index = Arc::clone(&index);
            spawn(move || index.remove(key(1)).is_some())
        };
        let (victim, found) = index.pop_victim().expect("one is not removed");
        let (is_moved, is_removed) = (moving.join(), removing.join());
        if victim == key(0) {
            assert_eq!(found, if is_moved { entry(5) } else { entry(0) });
        }
        assert_eq!(is_removed, victim != key(1));
        assert_eq!(index.len(), if is_removed { 0 } else { 1 });
    });
}
