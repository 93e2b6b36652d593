//! Squid's heap policies: the object with the lowest key leaves.
//!
//! GDSF: key = inflation + uses / size. LFUDA: key = inflation + uses. Inflation is the key of the
//! last victim, so that an object that was popular long ago does not stay for ever. Among equal
//! keys the one that was not used for longest leaves (Squid's "tie").
//!
//! A key is a whole number of 32 bits that wraps: uses count up to [`MARK_MAX`], and the unit of
//! GDSF is such that one use of 512 bytes weighs 65,536 and one use of 4 MB weighs 8.

use crate::clock::{Clock, is_less};
use crate::places::Places;
use crate::{MARK_MAX, Nodes, age};

/// Weight of one use of one byte, for GDSF.
const GDSF_UNIT: u64 = 1 << 25;

/// Smaller objects weigh as this one, in bytes: keys stay within a quarter of their circle.
const GDSF_BYTES_MIN: u64 = 64;

/// Children of a place.
const ARITY: u32 = 4;

/// The formula from uses to a key.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    Gdsf,
    Lfuda,
}

/// A heap of slots, the lowest key first. A slot's first link is its place, the second its key.
#[derive(Debug)]
pub(crate) struct Heap {
    weight: Weight,
    places: Places,
}

impl Heap {
    pub(crate) fn new(weight: Weight) -> Self {
        Self { weight, places: Places::default() }
    }

    pub(crate) fn admit<N: Nodes>(&mut self, nodes: &mut N, at: u32, clock: &Clock) {
        nodes.set_mark(at, 1);
        nodes.set_stamp(at, clock.now());
        nodes.set_older(at, self.key(nodes, at, clock));
        self.places.push(at);
        self.rise(nodes, at, self.places.len() - 1, clock.now());
    }

    #[inline(never)]
    pub(crate) fn touch<N: Nodes>(&mut self, nodes: &mut N, at: u32, clock: &Clock) -> bool {
        let was_first = self.first() == Some(at);
        nodes.set_mark(at, nodes.mark(at).saturating_add(1).min(MARK_MAX));
        nodes.set_stamp(at, clock.now());
        nodes.set_older(at, self.key(nodes, at, clock));
        // Nearly always downwards; a file that has grown may have lost weight.
        let place = nodes.newer(at);
        self.rise(nodes, at, place, clock.now());
        let place = nodes.newer(at);
        self.sink(nodes, at, place, clock.now());
        was_first
    }

    pub(crate) fn remove<N: Nodes>(&mut self, nodes: &mut N, at: u32, now: u32) {
        let place = nodes.newer(at);
        let last = self.places.get(self.places.len() - 1);
        self.places.pop();
        if last != at {
            self.put(nodes, last, place);
            self.rise(nodes, last, place, now);
            let place = nodes.newer(last);
            self.sink(nodes, last, place, now);
        }
    }

    pub(crate) fn evict<N: Nodes>(&mut self, nodes: &mut N, clock: &Clock) -> Option<u32> {
        let at = self.first()?;
        clock.raise_inflation(nodes.older(at));
        self.remove(nodes, at, clock.now());
        Some(at)
    }

    pub(crate) fn first(&self) -> Option<u32> {
        (self.places.len() > 0).then(|| self.places.get(0))
    }

    /// All slots, the lowest key first.
    pub(crate) fn sorted<N: Nodes>(&self, nodes: &N, now: u32) -> Vec<u32> {
        let mut all: Vec<u32> =
            (0..self.places.len()).map(|place| self.places.get(place)).collect();
        // Keys wrap, so they are compared by their distance from the lowest one: a total order,
        // whatever they are.
        let lowest = all.first().map_or(0, |first| nodes.older(*first));
        all.sort_by_key(|at| {
            (nodes.older(*at).wrapping_sub(lowest), u32::MAX - age(nodes, *at, now))
        });
        all
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.places.heap_bytes()
    }

    fn key<N: Nodes>(&self, nodes: &N, at: u32, clock: &Clock) -> u32 {
        let uses = u64::from(nodes.mark(at));
        let weight = match self.weight {
            Weight::Lfuda => uses,
            Weight::Gdsf => (uses * GDSF_UNIT / nodes.cost_bytes(at).max(GDSF_BYTES_MIN)).max(1),
        };
        clock.inflation().wrapping_add(weight as u32)
    }

    fn comes_before<N: Nodes>(nodes: &N, a: u32, b: u32, now: u32) -> bool {
        let (key_a, key_b) = (nodes.older(a), nodes.older(b));
        if key_a == key_b { age(nodes, a, now) > age(nodes, b, now) } else { is_less(key_a, key_b) }
    }

    fn put<N: Nodes>(&mut self, nodes: &mut N, at: u32, place: u32) {
        self.places.set(place, at);
        nodes.set_newer(at, place);
    }

    fn rise<N: Nodes>(&mut self, nodes: &mut N, at: u32, mut place: u32, now: u32) {
        while place > 0 {
            let parent = (place - 1) / ARITY;
            let above = self.places.get(parent);
            if !Self::comes_before(nodes, at, above, now) {
                break;
            }
            self.put(nodes, above, place);
            place = parent;
        }
        self.put(nodes, at, place);
    }

    fn sink<N: Nodes>(&mut self, nodes: &mut N, at: u32, mut place: u32, now: u32) {
        let len = u64::from(self.places.len());
        loop {
            let first_child = u64::from(place) * u64::from(ARITY) + 1;
            let children = first_child..len.min(first_child + u64::from(ARITY));
            let before = |a: u32, b: u32| {
                if Self::comes_before(nodes, self.places.get(b), self.places.get(a), now) {
                    b
                } else {
                    a
                }
            };
            let Some(least) = children.map(|child| child as u32).reduce(before) else { break };
            let below = self.places.get(least);
            if !Self::comes_before(nodes, below, at, now) {
                break;
            }
            self.put(nodes, below, place);
            place = least;
        }
        self.put(nodes, at, place);
    }
}
