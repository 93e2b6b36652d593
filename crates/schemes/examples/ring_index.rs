//! Measures the index of `ring` with ten million objects, or as many as the argument says: memory,
//! time, checkpoint.
//!
//! `cargo run --release -p humboldt-schemes --example ring_index`. Resident memory is that of a
//! fresh process with the system's allocator. The file schemes' index has a program of its own,
//! `index_memory` of `humboldt-store`.
#![allow(clippy::print_stdout)] // its purpose

// The index is none of the crate's public items, and is compiled from its source here.
#[allow(dead_code, unused_imports)]
#[path = "../src/ring/index/mod.rs"]
mod index;
#[allow(dead_code)]
#[path = "../src/ring/length.rs"]
mod length;
#[path = "../src/sync.rs"]
mod sync;

use std::hint::black_box;
use std::time::{Duration, Instant};

use index::{Entry, Hash64, RingIndex};
use length::LengthClass;

fn main() {
    let objects = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(10_000_000);
    let resident_before = resident_bytes();
    let index = RingIndex::new(objects, 16 * objects);
    let took = time(|| fill(&index, 0..objects));
    println!("insert:     {:6.0} ns", nanos_each(took, objects));
    print_memory(&index, resident_bytes().saturating_sub(resident_before));
    print_lookups(&index, objects);
    print_checkpoint(&index, objects);
    print_growth(&index, objects);
    print_full((objects / 10).max(1));
}

/// Bijective, so that no two keys are equal (the last step of splitmix64).
fn hash(i: u64) -> Hash64 {
    let mut z = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    Hash64(z ^ z >> 31)
}

/// Keys in an order in which no two neighbours are near each other.
fn shuffled(i: u64, objects: u64) -> u64 {
    i.wrapping_mul(0x5851_F42D_4C95_7F2D) % objects
}

fn entry(i: u64) -> Entry {
    Entry { location: i, length: LengthClass::from_bits(i as u8), freq: 0, kind: 1 }
}

fn fill(index: &RingIndex, objects: std::ops::Range<u64>) {
    for i in objects {
        index.insert(hash(i), entry(i));
    }
}

fn print_memory(index: &RingIndex, resident: u64) {
    let objects = index.len() as f64;
    println!("objects:    {objects} in {} shards", index.shards());
    println!("occupancy:  {:6.2} %", index.occupancy() * 100.0);
    println!("memory:     {:6.2} bytes an object", index.memory_bytes() as f64 / objects);
    println!("resident:   {:6.2} bytes an object", resident as f64 / objects);
}

fn print_lookups(index: &RingIndex, objects: u64) {
    let mut found = 0_u64;
    let mut look = |offset: u64| {
        found = 0;
        time(|| {
            for i in 0..objects {
                found += u64::from(index.get(hash(shuffled(i, objects) + offset)).is_some());
            }
        })
    };
    let hits = look(0);
    let misses = look(objects);
    println!("get, hit:   {:6.0} ns", nanos_each(hits, objects));
    println!("get, miss:  {:6.0} ns ({:.1} of 100,000 found)", nanos_each(misses, objects), {
        found as f64 * 100_000.0 / objects as f64
    });
    let bumps = time(|| {
        for i in (0..objects).map(|i| shuffled(i, objects)) {
            index.bump(hash(i), i);
        }
    });
    println!("bump:       {:6.0} ns", nanos_each(bumps, objects));
    let churn = time(|| {
        for i in (0..objects).map(|i| shuffled(i, objects)) {
            index.remove(hash(i));
            index.insert(hash(i), entry(i));
        }
    });
    println!("remove and insert: {:.0} ns", nanos_each(churn, objects));
    let pass = time(|| {
        black_box(index.sweep(|location| location >= objects, |_| false));
    });
    println!("sweep:      {:6.1} ns an object, {:.2} ms a shard", nanos_each(pass, objects), {
        pass.as_secs_f64() * 1e3 / index.shards() as f64
    });
}

fn print_checkpoint(index: &RingIndex, objects: u64) {
    let mut images = Vec::new();
    let written = time(|| {
        images = (0..index.shards()).map(|shard| image(index, shard)).collect();
    });
    let bytes: usize = images.iter().map(Vec::len).sum();
    println!("checkpoint: {:6.2} bytes an object", bytes as f64 / objects as f64);
    println!("write:      {:6.0} ms", written.as_secs_f64() * 1e3);
    let mut images = images.into_iter();
    let read = time(|| {
        let read = RingIndex::from_shards(0, 16 * objects, || Ok(images.next()));
        assert_eq!(
            read.ok().map(|read| read.len()),
            Some(index.len()),
            "the checkpoint is another index"
        );
    });
    println!("read:       {:6.0} ms", read.as_secs_f64() * 1e3);
}

fn image(index: &RingIndex, shard: usize) -> Vec<u8> {
    let mut image = Vec::new();
    index.write_shard(shard, 0, &mut image);
    image
}

/// Three times as many objects as were expected.
fn print_growth(index: &RingIndex, objects: u64) {
    let (mut longest, mut worst) = (Duration::ZERO, 0.0_f64);
    for i in objects..3 * objects {
        longest = longest.max(time(|| {
            index.insert(hash(i), entry(i));
        }));
        if i % (objects / 100).max(1) == 0 {
            worst = worst.max(index.memory_bytes() as f64 / index.len() as f64);
        }
    }
    println!(
        "up to {} objects: at most {worst:.2} bytes each, longest insertion {:.2} ms",
        3 * objects,
        { longest.as_secs_f64() * 1e3 }
    );
}

/// Twice as many objects as it may grow for.
fn print_full(objects: u64) {
    let index = RingIndex::new(objects, objects);
    fill(&index, 0..objects);
    let took = time(|| fill(&index, objects..2 * objects));
    println!("insert into a full index: {:.0} ns, occupancy {:.2} %", nanos_each(took, objects), {
        index.occupancy() * 100.0
    });
}

fn time(what: impl FnOnce()) -> Duration {
    let start = Instant::now();
    what();
    start.elapsed()
}

fn nanos_each(took: Duration, times: u64) -> f64 {
    took.as_nanos() as f64 / times as f64
}

/// Resident memory of this process.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
