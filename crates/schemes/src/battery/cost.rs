//! What a store costs when the directory is full, beside one into an empty directory: counted in
//! operations and bytes of the disk, which are the same on each machine.

use humboldt_store::scheme::SchemeStats;

use super::Bench;

const CAPACITY_BYTES: u64 = 64 << 20;
const BODY_BYTES: u64 = 13_000;

/// About half of the capacity.
const STORES: u64 = 2000;

/// Stores between two rounds of upkeep, which come once a second.
const STORES_A_SECOND: u64 = 500;

/// What a full directory may do in addition, for each object: `coss` reads the table of the stripe
/// that it overwrites next, `ring` writes checkpoints and segments that are not full.
const MORE: Cost = Cost { reads: 0.05, writes: 0.05, read_bytes: 700.0, written_bytes: 250.0 };

/// Operations and bytes for each object stored.
#[derive(Copy, Clone, Debug)]
struct Cost {
    reads: f64,
    writes: f64,
    read_bytes: f64,
    written_bytes: f64,
}

fn store(bench: &Bench, from: u64, count: u64) -> Cost {
    let before = bench.scheme.stats();
    for i in from..from + count {
        bench.put(&format!("http://cost/{i}"), 1, BODY_BYTES);
        if i % STORES_A_SECOND == STORES_A_SECOND - 1 {
            bench.maintain();
        }
    }
    let after = bench.scheme.stats();
    let each = |of: fn(&SchemeStats) -> u64| (of(&after) - of(&before)) as f64 / count as f64;
    Cost {
        reads: each(|stats| stats.read_ops),
        writes: each(|stats| stats.write_ops),
        read_bytes: each(|stats| stats.read_bytes),
        written_bytes: each(|stats| stats.write_bytes),
    }
}

pub(super) fn a_full_directory_costs_as_much_as_an_empty_one(kind: &'static str) {
    let bench = Bench::with(kind, |options| options.capacity_bytes = CAPACITY_BYTES);
    let empty = store(&bench, 0, STORES);
    let mut next = STORES;
    while bench.scheme.stats().evictions < 2 * CAPACITY_BYTES / BODY_BYTES {
        store(&bench, next, STORES_A_SECOND);
        next += STORES_A_SECOND;
    }
    let full = store(&bench, next, STORES);
    println!("{kind}: empty {empty:.3?}, full {full:.3?}");
    let is_at_most = |of: fn(&Cost) -> f64| of(&full) <= of(&empty) + of(&MORE);
    assert!(is_at_most(|cost| cost.reads), "{empty:?} {full:?}");
    assert!(is_at_most(|cost| cost.writes), "{empty:?} {full:?}");
    assert!(is_at_most(|cost| cost.read_bytes), "{empty:?} {full:?}");
    assert!(is_at_most(|cost| cost.written_bytes), "{empty:?} {full:?}");
}
