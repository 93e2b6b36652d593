//! Prints the bytes of memory per object of the file schemes' index as it grows to four million objects.
#![allow(clippy::print_stdout)] // its purpose

use humboldt_store::Key;
use humboldt_store::index::{FileEntry, FileIndex, IndexKey};

fn main() {
    let index = FileIndex::new();
    let (mut worst, mut report_at) = (0.0_f64, 125_000_u64);
    for i in 1..=4_000_000_u64 {
        let key = IndexKey::from(&Key::primary(&i.to_le_bytes()));
        index.insert(key, FileEntry { file: i as u32, size_units: 26, flags: 0 });
        if i >= 100_000 && i % 10_000 == 0 {
            worst = worst.max(index.memory_bytes() as f64 / i as f64);
        }
        if i == report_at {
            println!("{i} objects: {:.1} bytes each", index.memory_bytes() as f64 / i as f64);
            report_at *= 2;
        }
    }
    println!("worst from 100,000 objects on: {worst:.1} bytes each");
}
