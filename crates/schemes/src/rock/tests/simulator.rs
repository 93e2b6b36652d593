//! Random operations, clean stops and crashes against a plain map.

use std::collections::HashMap;

use super::*;
use crate::battery::record;

const SIZES: [u64; 6] = [0, 700, 13_000, 40_000, 150_000, 1_300_000];

struct Model {
    /// Version and length of the last stored object; `None` after a purge.
    stored: HashMap<u64, Option<(u8, u64)>>,
    hits: u64,
}

impl Model {
    /// The last version or nothing, never an older or purged one. Nothing is right only after an
    /// eviction.
    fn check(&mut self, rock: &dyn Scheme, id: u64, context: &str) {
        let seen = see(rock, &url(id));
        let expected = self.stored.get(&id).copied().flatten();
        match (seen, expected) {
            (Seen::Nothing, None) => {}
            (Seen::Nothing, Some(_)) => {
                assert!(rock.stats().evictions > 0 || context.contains("small"))
            }
            (Seen::Whole(version, len), Some(last)) => {
                assert_eq!((version, len), last, "{context}: object {id}");
                self.hits += 1;
            }
            (seen, expected) => panic!("{context}: object {id}: {seen:?} instead of {expected:?}"),
        }
    }
}

fn url(id: u64) -> String {
    format!("http://sim/{id}")
}

fn simulate(seed: u64, capacity_bytes: u64, steps: u64, size: &str) -> u64 {
    let place = Place::new(capacity_bytes);
    let mut rock = place.open();
    let mut model = Model { stored: HashMap::new(), hits: 0 };
    let mut state = seed;
    let mut next = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for step in 0..steps {
        let context = format!("{size}, seed {seed}, step {step}");
        let id = next(40);
        match next(20) {
            0..8 => {
                let (version, len) = (next(100) as u8 + 1, SIZES[next(6) as usize]);
                store(&*rock, &url(id), version, len);
                model.stored.insert(id, Some((version, len)));
            }
            8..11 => {
                remove(&*rock, &url(id));
                model.stored.insert(id, None);
            }
            11 => {
                // The body keeps its version; only that the pair of head and times is whole can be
                // seen here.
                let version =
                    model.stored.get(&id).copied().flatten().map_or(0, |(version, _)| version);
                let confirmed = humboldt_store::scheme::Confirmed::of(&record(&url(id), version));
                run(rock.update(&record(&url(id), 77), &confirmed)).expect("updated");
                assert!(run(rock.remove(&key(&url(id)))).is_ok());
                model.stored.insert(id, None);
            }
            12 => run(rock.maintain()).expect("maintenance"),
            13 if next(3) == 0 => {
                if next(2) == 0 {
                    rock.close().expect("closed");
                }
                drop(rock);
                rock = if next(2) == 0 { place.open() } else { place.open_only() };
                if next(2) == 0 {
                    remove(&*rock, &url(id));
                    model.stored.insert(id, None);
                }
                wait_for_rebuild(&*rock);
            }
            _ => model.check(&*rock, id, &context),
        }
    }
    (0..40).for_each(|id| model.check(&*rock, id, size));
    assert_eq!(rock.stats().errors, 0);
    model.hits
}

#[test]
fn nothing_old_nothing_purged_and_nothing_lost() {
    let hits: u64 = (1..4).map(|seed| simulate(seed, 128 << 20, 300, "large")).sum();
    assert!(hits > 100, "{hits}");
}

#[test]
fn nothing_old_and_nothing_purged_while_there_is_never_enough_room() {
    let hits: u64 = (1..5).map(|seed| simulate(seed, 5 << 20, 300, "small")).sum();
    assert!(hits > 100, "{hits}");
}
