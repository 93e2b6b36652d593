//! Prints the bytes of memory per object of the file schemes' index, for every policy: while it
//! grows to ten million objects, and while a million come and as many are evicted.
#![allow(clippy::print_stdout, reason = "prints its result")]

use humboldt_store::index::{FileEntry, FileIndex, IndexKey};
use humboldt_store::{Key, Policy};

/// Objects in the end.
const OBJECTS: u64 = 10_000_000;
/// From here on the worst moment counts.
const FROM_OBJECTS: u64 = 1_000_000;
/// Objects that come when it is full.
const CHURN: u64 = 1_000_000;

fn main() {
    println!("{:<12} {:>16} {:>8} {:>8}", "bytes each", "worst from 1e6 on", "at 1e7", "churning");
    for policy in Policy::ALL {
        let index = FileIndex::new(policy);
        let per_object = || index.memory_bytes() as f64 / index.len() as f64;
        let mut worst = 0.0_f64;
        for i in 1..=OBJECTS {
            insert(&index, i);
            if i % 3 == 0 {
                index.get(key(i / 2));
            }
            if i >= FROM_OBJECTS && i % 20_000 == 0 {
                worst = worst.max(per_object());
            }
        }
        let full = per_object();
        for i in OBJECTS..OBJECTS + CHURN {
            index.pop_victim();
            insert(&index, i);
            index.get(key(i / 3));
        }
        println!("{:<12} {worst:>17.1} {full:>8.1} {:>8.1}", policy.name(), per_object());
    }
}

fn key(i: u64) -> IndexKey {
    IndexKey::from(&Key::primary(&i.to_le_bytes()))
}

fn insert(index: &FileIndex, i: u64) {
    index.insert(key(i), FileEntry { file: i as u32, size_units: 1 + (i % 64) as u32, flags: 0 });
}
