//! Belady's rule: the object that is asked for again last makes way, and the new one is among those
//! to choose from.
//!
//! With equal sizes this is MIN: no policy has more hits. With other sizes finding the optimum is
//! hard (NP-hard, for bytes and for objects), and the same rule, which evicts until there is room,
//! is merely very good.

use std::collections::BinaryHeap;

use super::spool::{NEVER, Step};

/// Heap entries of objects that are not in the cache are removed when there are more of them than
/// of the others, and more than this.
const STALE_MAX: usize = 4096;

/// A cache that knows the future.
pub(super) struct Optimum {
    capacity_bytes: u64,
    used_bytes: u64,
    /// The next request for an object that is in the cache, and its size there; [`NEVER`] for one
    /// that is not.
    cached: Vec<(u32, u32)>,
    objects: usize,
    /// The next request and the object; those that are no longer true stay for a while.
    heap: BinaryHeap<(u32, u32)>,
    /// Those that would have to make way for the present object.
    victims: Vec<(u32, u32)>,
}

impl Optimum {
    pub(super) fn new(capacity_bytes: u64, objects: u64) -> Self {
        Self {
            capacity_bytes,
            used_bytes: 0,
            cached: vec![(NEVER, 0); objects as usize],
            objects: 0,
            heap: BinaryHeap::new(),
            victims: Vec::new(),
        }
    }

    /// Whether the request is a hit.
    pub(super) fn request(&mut self, step: Step) -> bool {
        let Some(cached) = self.cached.get_mut(step.object as usize) else { return false };
        if cached.0 != NEVER {
            cached.0 = step.next;
            if step.next == NEVER {
                // Nobody asks for it again.
                self.used_bytes -= u64::from(cached.1);
                self.objects -= 1;
            } else {
                self.push(step.next, step.object);
            }
            return true;
        }
        let fits = u64::from(step.bytes) <= self.capacity_bytes;
        if step.next != NEVER && fits && self.make_room(step) {
            self.used_bytes += u64::from(step.bytes);
            self.objects += 1;
            if let Some(cached) = self.cached.get_mut(step.object as usize) {
                *cached = (step.next, step.bytes);
            }
            self.push(step.next, step.object);
        }
        false
    }

    /// Evicts those that are asked for later than the new one, until it has room; none if that is
    /// not enough.
    fn make_room(&mut self, step: Step) -> bool {
        let mut free_bytes = self.capacity_bytes - self.used_bytes;
        while free_bytes < u64::from(step.bytes) {
            let Some(&(next, object)) = self.heap.peek() else { break };
            let cached = self.cached.get(object as usize).copied().unwrap_or((NEVER, 0));
            if cached.0 != next {
                self.heap.pop();
                continue;
            }
            if next <= step.next {
                break;
            }
            self.heap.pop();
            free_bytes += u64::from(cached.1);
            self.victims.push((next, object));
        }
        let is_enough = free_bytes >= u64::from(step.bytes);
        for (next, object) in self.victims.drain(..) {
            if !is_enough {
                self.heap.push((next, object));
            } else if let Some(cached) = self.cached.get_mut(object as usize) {
                self.used_bytes -= u64::from(cached.1);
                self.objects -= 1;
                cached.0 = NEVER;
            }
        }
        is_enough
    }

    fn push(&mut self, next: u32, object: u32) {
        if self.heap.len() > 2 * self.objects + STALE_MAX {
            let cached = &self.cached;
            self.heap.retain(|(next, object)| {
                cached.get(*object as usize).is_some_and(|c| c.0 == *next)
            });
        }
        self.heap.push((next, object));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The requests that are hits, for objects of these sizes.
    fn hits(capacity_bytes: u64, requests: &[(u32, u32)]) -> Vec<bool> {
        let mut optimum = Optimum::new(capacity_bytes, 1000);
        let next = |at: usize| {
            let rest = requests.iter().skip(at + 1);
            rest.clone()
                .position(|(object, _)| *object == requests[at].0)
                .map_or(NEVER, |n| (at + 1 + n) as u32)
        };
        let all = requests.iter().enumerate();
        all.map(|(at, (object, bytes))| {
            optimum.request(Step { object: *object, bytes: *bytes, next: next(at) })
        })
        .collect()
    }

    #[test]
    fn beladys_example() {
        // The textbook, which has to store everything, has 11 hits with three places. Who may store
        // nothing has one more.
        let objects = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1];
        let requests: Vec<(u32, u32)> = objects.iter().map(|object| (*object, 1)).collect();
        assert_eq!(hits(3, &requests).iter().filter(|hit| **hit).count(), 12);
    }

    #[test]
    fn a_large_object_makes_room_only_for_what_is_asked_for_sooner() {
        // 1 and 2 are asked for before the large one again: it is not stored, and they stay.
        assert_eq!(
            hits(10, &[(1, 5), (2, 5), (3, 8), (1, 5), (2, 5), (3, 8)]),
            [false, false, false, true, true, false]
        );
        // Here it is asked for first.
        assert_eq!(
            hits(10, &[(1, 5), (2, 5), (3, 8), (3, 8), (1, 5)]),
            [false, false, false, true, false]
        );
        assert_eq!(hits(10, &[(3, 11), (3, 11)]), [false, false]);
    }

    #[test]
    fn it_is_as_good_as_the_best_of_all_choices() {
        // Every choice of kept objects, tried out: the state is the set of cached objects.
        let best = |capacity: usize, requests: &[u32]| {
            let mut states = std::collections::HashMap::from([(0_u32, 0_usize)]);
            for object in requests {
                let mut after = std::collections::HashMap::new();
                for (set, hits) in &states {
                    let hits = hits + usize::from(set & 1 << object != 0);
                    let all = set | 1 << object;
                    for kept in 0_u32..64 {
                        if kept & !all == 0 && kept.count_ones() as usize <= capacity {
                            let best = after.entry(kept).or_insert(0);
                            *best = hits.max(*best);
                        }
                    }
                }
                states = after;
            }
            states.into_values().max().unwrap_or_default()
        };
        let mut state = 5_u64;
        for round in 0..200 {
            let mut draw = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as u32
            };
            let requests: Vec<u32> = (0..16).map(|_| draw() % 6).collect();
            let sized: Vec<(u32, u32)> = requests.iter().map(|object| (*object, 1)).collect();
            let capacity = 1 + round % 4;
            let found = hits(capacity as u64, &sized).iter().filter(|hit| **hit).count();
            assert_eq!(found, best(capacity, &requests), "{capacity} {requests:?}");
        }
    }

    #[test]
    fn the_heap_is_bounded_by_what_is_cached() {
        let mut optimum = Optimum::new(10, 10);
        for n in 0..1_000_000_u32 {
            optimum.request(Step { object: n % 10, bytes: 1, next: n + 10 });
        }
        assert!(optimum.heap.len() <= 2 * 10 + STALE_MAX + 1);
    }
}
