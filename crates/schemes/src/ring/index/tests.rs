//! Tests of the index as a whole.

mod checkpoint;
mod model;
mod models;
mod threads;

use super::super::length::LengthClass;
use super::slot::{FREQ_MAX, KIND_MAX};
use super::table::Table;
use super::*;

/// Pseudo-random numbers (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn hash(&mut self) -> Hash64 {
        Hash64(self.next())
    }
}

/// An entry whose fields all follow from its location.
fn entry(location: u64) -> Entry {
    let bits = location.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    Entry {
        location: location % LOCATION_END,
        length: LengthClass::from_bits(bits as u8),
        freq: (bits >> 8) as u8 & FREQ_MAX,
        kind: (bits >> 10) as u8 % KIND_MAX + 1,
    }
}

/// The facts about a key in the index: shard, tag, and the pair of buckets before any growth.
type Identity = (u64, u32, [u32; 2]);

fn identity(index: &RingIndex, hash: Hash64) -> Identity {
    let shard = (hash.0 >> 52) % index.shards() as u64;
    let Place { tag, .. } = hash.place();
    let mut buckets = Table::new(index.shards[0].0.read().base).both_buckets(hash.place());
    buckets.sort_unstable();
    (shard, tag, buckets)
}

fn nothing() -> Inserted {
    Inserted::default()
}

#[test]
fn conditional_changes_look_at_what_is_there_now() {
    let index = RingIndex::new(100, 100);
    let hash = Hash64(0xFEED_BEEF_0000_1234);
    assert_eq!(index.insert(hash, entry(5)), nothing());
    assert!(!index.remove_if(hash, 6));
    assert!(!index.replace_if(hash, 6, entry(7)));
    assert!(index.replace_if(hash, 5, entry(7)));
    assert_eq!((index.get(hash), index.len()), (Some(entry(7)), 1));
    assert!(index.remove_if(hash, 7));
    assert!(!index.remove_if(hash, 7) && !index.replace_if(hash, 7, entry(8)));
    assert_eq!((index.get(hash), index.remove(hash), index.len()), (None, None, 0));
}

/// A leaving object is reported while no look-up can run.
#[test]
fn who_misses_an_object_has_been_told() {
    let index = RingIndex::new(10, 10);
    let told = std::cell::Cell::new(0);
    let tell = |hash: Hash64| {
        assert!(index.shard(hash).try_read().is_none());
        told.set(told.get() + 1);
    };
    let mut dropped = 0;
    for i in 0..2000 {
        // All in one shard.
        let hash = Hash64(i << 32 | i);
        dropped += u32::from(index.insert_telling(hash, entry(i), || tell(hash)).dropped.is_some());
        assert_eq!(told.get(), dropped);
    }
    assert!(dropped > 100);
    let (hash, last) = (Hash64(1999 << 32 | 1999), entry(1999).location);
    assert!(!index.remove_if_telling(hash, last + 1, || tell(hash)));
    assert_eq!(told.get(), dropped);
    assert!(index.remove_if_telling(hash, last, || tell(hash)));
    assert!(!index.remove_if_telling(hash, last, || tell(hash)));
    assert_eq!(told.get(), dropped + 1);
}

#[test]
fn uses_are_counted_where_the_object_still_is() {
    let index = RingIndex::new(100, 100);
    let hash = Hash64(77);
    index.bump(hash, 5);
    index.insert(hash, Entry { freq: 0, ..entry(5) });
    for freq in [1, 2, 3, 3] {
        index.bump(hash, 6);
        index.bump(hash, 5);
        assert_eq!(index.get(hash), Some(Entry { freq, ..entry(5) }));
    }
}

/// Inserts until the table grows; returns how full it was then.
fn occupancy_when_it_grows(table: &mut Table, random: &mut Random) -> f64 {
    let (doublings, slots) = (table.doublings, table.slots());
    loop {
        let before = table.objects;
        let inserted = table.insert(random.hash().place(), entry(before), u64::MAX, || ());
        assert_eq!(inserted.dropped, None);
        if table.doublings > doublings {
            return before as f64 / slots as f64;
        }
    }
}

#[test]
fn a_table_is_full_to_98_percent_before_it_grows_and_later_to_95() {
    let random = &mut Random(1);
    for base in [500, 2000, 10_000] {
        let mut table = Table::new(base);
        let full: Vec<f64> = (0..3).map(|_| occupancy_when_it_grows(&mut table, random)).collect();
        assert!(
            full[0] >= 0.98 && full.iter().all(|full| *full >= 0.95),
            "{base} buckets: {full:?}"
        );
    }
}

#[test]
fn doubling_loses_and_changes_nothing() {
    let random = &mut Random(2);
    let mut table = Table::new(1000);
    let mut places = Vec::new();
    while table.objects < 7500 {
        let place = random.hash().place();
        if table.find(place).is_none() {
            assert_eq!(table.insert(place, entry(places.len() as u64), 0, || ()), nothing());
            places.push(place);
        }
    }
    for doublings in 1..=DOUBLINGS_MAX {
        table.double();
        assert_eq!((table.doublings, table.objects), (doublings, 7500));
        for (i, place) in places.iter().enumerate() {
            assert_eq!(table.find(*place).map(|(_, slot)| slot.entry()), Some(entry(i as u64)));
        }
    }
    assert!(!table.may_double());
    assert!(Table::new(1 << 21).may_double() && !Table::new((1 << 21) + 1).may_double());
}

#[test]
fn an_index_for_a_million_objects_takes_them_without_growing_in_9_bytes_each() {
    for objects in [10_000, 300_000, 1_000_000] {
        let index = RingIndex::new(objects, 8 * objects);
        let random = &mut Random(objects);
        for i in 0..objects {
            assert_eq!(index.insert(random.hash(), entry(i)).dropped, None);
        }
        assert!(index.shards.iter().all(|shard| shard.0.read().doublings == 0));
        if objects == 1_000_000 {
            let bytes = index.memory_bytes() as f64 / index.len() as f64;
            assert!(bytes <= 9.0 && index.occupancy() >= 0.85, "{bytes} {}", index.occupancy());
        }
    }
}

#[test]
fn at_its_bound_the_index_drops_the_least_used_of_the_candidates_and_grows_no_more() {
    let index = RingIndex::new(1000, 20_000);
    let random = &mut Random(3);
    let slots: u64 =
        index.shards.iter().map(|_| slots_for(20_000, index.shards.len() as u64)).sum();
    let mut dropped = 0;
    for i in 0..100_000 {
        let hash = random.hash();
        let lowest = {
            let table = index.shard(hash).read();
            let both = table.both_buckets(hash.place());
            let slots =
                both.iter().filter_map(|b| table.buckets.get(*b as usize)).flat_map(Bucket::slots);
            slots.map(Slot::freq).min()
        };
        if let Some(gone) = index.insert(hash, Entry { freq: (i % 4) as u8, ..entry(i) }).dropped {
            assert!(index.len() >= 20_000, "dropped with {} objects", index.len());
            assert_eq!(Some(gone.freq), lowest);
            dropped += 1;
        }
    }
    assert!(index.len() < 2 * slots && index.memory_bytes() < 2 * 8 * slots + 64 * 200);
    assert!(dropped > 50_000, "{dropped}");
}

#[test]
fn among_equals_the_newest_is_not_always_the_one_that_is_dropped() {
    let index = RingIndex::new(10_000, 10_000);
    let random = &mut Random(10);
    for i in 0..60_000 {
        index.insert(random.hash(), Entry { freq: 0, ..entry(i) });
    }
    let filled = index.len();
    let old = index.sweep(|location| location < 20_000, |_| false);
    assert!(old < filled / 10, "{old} of {filled} have seen three or four times as many come");
}

#[test]
fn a_sweep_asks_about_every_object_once() {
    let index = RingIndex::new(1000, 100_000);
    let random = &mut Random(4);
    let hashes: Vec<Hash64> = (0..20_000).map(|_| random.hash()).collect();
    let replaced =
        hashes.iter().enumerate().filter_map(|(i, h)| index.insert(*h, entry(i as u64)).replaced);
    let replaced: Vec<Entry> = replaced.collect();
    let mut seen = vec![0; hashes.len()];
    let removed = index.sweep(
        |_| true,
        |entry| {
            seen[entry.location as usize] += 1;
            entry.location % 3 != 0
        },
    );
    assert_eq!(seen.iter().sum::<usize>() + replaced.len(), hashes.len());
    assert!(seen.iter().all(|times| *times <= 1));
    assert_eq!(removed + index.len(), (hashes.len() - replaced.len()) as u64);
    for (i, hash) in hashes.iter().enumerate().filter(|(i, _)| seen[*i] == 1) {
        assert_eq!(index.get(*hash).is_some(), i % 3 != 0);
    }
}

#[test]
fn keys_that_are_not_there_are_found_as_often_as_theory_says() {
    // An absent key meets all the slots of its two buckets; with each it agrees in 18 bits by
    // chance, or in as many fewer as the table has doubled.
    for (doublings, lookups) in [(0, 4_000_000_u32), (3, 1_000_000)] {
        let objects = 200_000;
        let index = RingIndex::new(objects >> doublings, objects);
        let random = &mut Random(5);
        for i in 0..objects {
            index.insert(random.hash(), entry(i));
        }
        let grown: Vec<u8> = index.shards.iter().map(|shard| shard.0.read().doublings).collect();
        assert!(grown.iter().all(|grown| *grown == doublings), "{grown:?}");
        let found = (0..lookups).filter(|_| index.get(random.hash()).is_some()).count() as f64;
        let slots_met = 16.0 * index.occupancy();
        let expected = f64::from(lookups) * slots_met / f64::from(1 << (18 - doublings));
        assert!((found - expected).abs() < 5.0 * expected.sqrt(), "{found} instead of {expected}");
    }
}
