//! The index against a plain map.

use super::super::slot::FREQ_MAX;
use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// An index, and its expected contents.
struct Pair {
    index: RingIndex,
    model: HashMap<Identity, Entry>,
    inserted: u64,
}

impl Pair {
    fn new(expected: u64, max: u64) -> Self {
        Self { index: RingIndex::new(expected, max), model: HashMap::new(), inserted: 0 }
    }

    /// Does one of six things to both, and compares the results.
    fn step(&mut self, what: u8, hash: Hash64) {
        let id = identity(&self.index, hash);
        let known = self.model.get(&id).copied();
        match what % 8 {
            0..=2 => self.insert(id, hash),
            3 => {
                assert_eq!(self.index.remove(hash), known);
                self.model.remove(&id);
            }
            4 => {
                let old = known.map_or(1, |known| known.location);
                let new = self.next_entry();
                assert_eq!(self.index.replace_if(hash, old, new), known.is_some());
                assert!(!self.index.replace_if(hash, old, new));
                known.map(|_| self.model.insert(id, new));
            }
            5 => {
                let location = known.map_or(1, |known| known.location);
                assert!(!self.index.remove_if(hash, location + 1));
                assert_eq!(self.index.remove_if(hash, location), known.is_some());
                self.model.remove(&id);
            }
            6 => {
                let location = known.map_or(1, |known| known.location);
                self.index.bump(hash, location);
                self.model
                    .entry(id)
                    .and_modify(|entry| entry.freq = (entry.freq + 1).min(FREQ_MAX));
            }
            _ => assert_eq!(self.index.get(hash), known),
        }
    }

    fn insert(&mut self, id: Identity, hash: Hash64) {
        let new = self.next_entry();
        let Inserted { replaced, dropped } = self.index.insert(hash, new);
        assert_eq!(replaced, self.model.insert(id, new));
        if let Some(gone) = dropped {
            assert_ne!(gone, new);
            let before = self.model.len();
            self.model.retain(|_, entry| *entry != gone);
            assert_eq!(self.model.len(), before - 1);
        }
    }

    /// Locations are unique, and never neighbours.
    fn next_entry(&mut self) -> Entry {
        self.inserted += 1;
        entry(2 * self.inserted + 1)
    }

    fn compare(&self) {
        assert_eq!(self.index.len(), self.model.len() as u64);
        let mut all = Vec::new();
        self.index.sweep(
            |_| true,
            |entry| {
                all.push(*entry);
                true
            },
        );
        all.sort_unstable_by_key(|entry| entry.location);
        let mut expected: Vec<Entry> = self.model.values().copied().collect();
        expected.sort_unstable_by_key(|entry| entry.location);
        assert_eq!(all, expected);
    }
}

#[test]
fn agrees_with_a_plain_map_while_it_grows() {
    let mut pair = Pair::new(1000, 100_000);
    let random = &mut Random(6);
    let keys: Vec<Hash64> = (0..150_000).map(|_| random.hash()).collect();
    for step in 0..800_000 {
        // Ever more keys take part, so that the index is filled again and again.
        let known = keys.len() * (step + 1_000) / 801_000;
        let bits = random.next();
        pair.step(bits as u8, keys[(bits >> 8) as usize % known]);
        if step % 100_000 == 0 {
            pair.compare();
        }
    }
    pair.compare();
    assert!(pair.index.shards.iter().all(|shard| shard.0.read().doublings >= 3));
}

/// A key out of few: in one of two shards, with one of 64 tags, in one of eight places.
fn near_key() -> impl Strategy<Value = Hash64> {
    (0..2_u64, 0..64_u64, 0..8_u64)
        .prop_map(|(s, tag, spread)| Hash64(s << 52 | tag << 44 | spread << 29))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_plain_map_where_keys_collide_and_objects_are_dropped(
        steps in proptest::collection::vec((any::<u8>(), near_key()), 1..2000),
        objects_max in 0..100_000_u64,
    ) {
        let mut pair = Pair::new(0, objects_max);
        for (what, hash) in steps {
            pair.step(what, hash);
        }
        pair.compare();
    }
}
