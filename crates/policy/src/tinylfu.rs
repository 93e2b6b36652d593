//! W-TinyLFU: newcomers wait in a small window. An object that leaves the window gets a place in
//! the main part only if it has more requests than the objects that would have to leave for it.
//!
//! The main part is a segmented LRU list: a second use leads from probation to protection.

use crate::Nodes;
use crate::clock::Clock;
use crate::list::List;
use crate::sketch::Sketch;

/// Share of the bytes that the window should hold: one part in this many.
const WINDOW_PART: u64 = 100;

/// Protection holds at most 4 of 5 parts of the main part's bytes.
const PROTECTED_PARTS: u64 = 4;
const MAIN_PARTS: u64 = 5;

/// Most objects that one use moves from protection back to probation.
const DEMOTIONS_MAX: usize = 16;

/// A window of this many times its share is far too large.
const WINDOW_TIMES_MAX: u64 = 4;

/// Most objects that one newcomer moves out of a window that is far too large.
const OVERFLOW_MAX: usize = 2;

/// Most victims that a candidate is weighed against.
const VICTIMS_MAX: usize = 8;

/// Marks: where an object is.
const WINDOW: u8 = 0;
const PROBATION: u8 = 1;
const PROTECTED: u8 = 2;

#[derive(Debug, Default)]
pub(crate) struct TinyLfu {
    window: List,
    probation: List,
    protected: List,
    sketch: Sketch,
    objects: usize,
    /// Whether any object had to leave so far.
    has_evicted: bool,
}

impl TinyLfu {
    pub(crate) fn admit<N: Nodes>(&mut self, nodes: &mut N, at: u32, clock: &Clock) {
        self.objects += 1;
        self.sketch.fit(self.objects);
        self.sketch.record(nodes.hash(at));
        nodes.set_stamp(at, clock.now());
        nodes.set_mark(at, WINDOW);
        self.window.push(nodes, at);
        // While no object has to leave, the way to the main part is free.
        let times = if self.has_evicted { WINDOW_TIMES_MAX } else { 1 };
        for _ in 0..OVERFLOW_MAX {
            if self.is_window_over(nodes, times) {
                self.pass_window(nodes);
            }
        }
    }

    #[inline(never)]
    pub(crate) fn touch<N: Nodes>(&mut self, nodes: &mut N, at: u32, clock: &Clock) -> bool {
        let was_first = self.first(nodes) == Some(at);
        self.sketch.record(nodes.hash(at));
        let now = clock.now();
        let before = nodes.stamp(at);
        nodes.set_stamp(at, now);
        match nodes.mark(at) {
            PROBATION => {
                self.probation.remove(nodes, at);
                nodes.set_mark(at, PROTECTED);
                self.protected.push(nodes, at);
                self.demote(nodes);
            }
            // Nothing was stored since its last move: moving it again would change nothing that
            // matters.
            _ if before == now => {}
            PROTECTED => self.protected.renew(nodes, at),
            _ => self.window.renew(nodes, at),
        }
        was_first
    }

    fn demote<N: Nodes>(&mut self, nodes: &mut N) {
        for _ in 0..DEMOTIONS_MAX {
            let main_bytes = self.probation.bytes + self.protected.bytes;
            if self.protected.bytes * MAIN_PARTS <= main_bytes * PROTECTED_PARTS {
                break;
            }
            let Some(at) = self.protected.first() else { break };
            self.protected.remove(nodes, at);
            nodes.set_mark(at, PROBATION);
            self.probation.push(nodes, at);
        }
    }

    pub(crate) fn list_of(&mut self, mark: u8) -> &mut List {
        match mark {
            PROTECTED => &mut self.protected,
            PROBATION => &mut self.probation,
            _ => &mut self.window,
        }
    }

    pub(crate) fn remove<N: Nodes>(&mut self, nodes: &mut N, at: u32) {
        self.list_of(nodes.mark(at)).remove(nodes, at);
        self.objects -= 1;
    }

    pub(crate) fn evict<N: Nodes>(&mut self, nodes: &mut N) -> Option<u32> {
        self.has_evicted = true;
        let mut victim = self.first(nodes)?;
        if nodes.mark(victim) == WINDOW
            && let Some(loser) = self.main_first()
            && self.is_worth_more(nodes, victim, loser)
        {
            self.pass_window(nodes);
            victim = loser;
        }
        self.remove(nodes, victim);
        Some(victim)
    }

    /// Whether the candidate was used more often than all the objects together whose room it needs.
    fn is_worth_more<N: Nodes>(&self, nodes: &N, candidate: u32, first_victim: u32) -> bool {
        let worth = self.sketch.frequency(nodes.hash(candidate));
        let (mut bytes, mut at, mut sum) = (0, first_victim, 0);
        for _ in 0..VICTIMS_MAX {
            sum += self.sketch.frequency(nodes.hash(at));
            bytes += nodes.cost_bytes(at);
            at = nodes.newer(at);
            if sum >= worth {
                return false;
            }
            if bytes >= nodes.cost_bytes(candidate) || at == crate::NONE {
                break;
            }
        }
        true
    }

    fn pass_window<N: Nodes>(&mut self, nodes: &mut N) {
        if let Some(at) = self.window.first() {
            self.window.remove(nodes, at);
            nodes.set_mark(at, PROBATION);
            self.probation.push(nodes, at);
        }
    }

    /// Whether an object of the window has to be weighed against the main part.
    pub(crate) fn is_window_full<N: Nodes>(&self, nodes: &N) -> bool {
        self.is_window_over(nodes, 1)
    }

    /// Whether the window holds more than `times` its share, and more than `times` objects.
    fn is_window_over<N: Nodes>(&self, nodes: &N, times: u64) -> bool {
        let all = self.window.bytes + self.probation.bytes + self.protected.bytes;
        let objects = (0..=times).try_fold(self.window.newest, |at, _| {
            if at == crate::NONE { None } else { Some(nodes.older(at)) }
        });
        self.window.bytes * WINDOW_PART > all * times && objects.is_some()
    }

    fn main_first(&self) -> Option<u32> {
        self.probation.first().or(self.protected.first())
    }

    pub(crate) fn first<N: Nodes>(&self, nodes: &N) -> Option<u32> {
        if self.is_window_over(nodes, 1) {
            self.window.first()
        } else {
            self.main_first().or(self.window.first())
        }
    }

    pub(crate) fn for_each<N: Nodes>(&self, nodes: &N, see: &mut impl FnMut(u32)) {
        self.probation.for_each(nodes, &mut *see);
        self.protected.for_each(nodes, &mut *see);
        self.window.for_each(nodes, see);
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.sketch.heap_bytes()
    }
}
