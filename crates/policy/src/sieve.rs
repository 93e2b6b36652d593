//! SIEVE: one queue in order of arrival, and a hand that goes from the oldest to the newest. It
//! spares objects that were used since its last visit, and evicts the first that was not.

use crate::clock::Clock;
use crate::list::List;
use crate::{NONE, Nodes, order::SCAN_MAX};

/// The mark of an object that was used.
const USED: u8 = 1;

#[derive(Debug)]
pub(crate) struct Sieve {
    pub(crate) list: List,
    /// The hand's next slot; the oldest if none.
    hand: u32,
}

impl Default for Sieve {
    fn default() -> Self {
        Self { list: List::default(), hand: NONE }
    }
}

impl Sieve {
    pub(crate) fn admit<N: Nodes>(&mut self, nodes: &mut N, at: u32, clock: &Clock) {
        nodes.set_mark(at, 0);
        nodes.set_stamp(at, clock.now());
        self.list.push(nodes, at);
    }

    #[inline]
    pub(crate) fn touch<N: Nodes>(nodes: &mut N, at: u32) -> bool {
        nodes.set_mark(at, USED);
        false
    }

    pub(crate) fn remove<N: Nodes>(&mut self, nodes: &mut N, at: u32) {
        if self.hand == at {
            self.hand = nodes.newer(at);
        }
        self.list.remove(nodes, at);
    }

    pub(crate) fn evict<N: Nodes>(&mut self, nodes: &mut N, clock: &Clock) -> Option<u32> {
        for turn in 0.. {
            let at = self.first()?;
            let next = nodes.newer(at);
            // The newest has had no time to be used: the hand starts again before it.
            self.hand = if next == self.list.newest { NONE } else { next };
            if nodes.mark(at) != USED || turn >= SCAN_MAX {
                self.list.remove(nodes, at);
                return Some(at);
            }
            nodes.set_mark(at, 0);
            // Compared with other parts of the cache, it counts as if it had come now.
            nodes.set_stamp(at, clock.now());
        }
        None
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        if self.hand == NONE { self.list.first() } else { Some(self.hand) }
    }

    /// Those that the hand meets first come first, then the others, from the oldest on.
    pub(crate) fn for_each<N: Nodes>(&self, nodes: &N, see: &mut impl FnMut(u32)) {
        let mut at = self.hand;
        while at != NONE {
            see(at);
            at = nodes.newer(at);
        }
        let mut at = self.list.oldest;
        while at != NONE && at != self.hand {
            see(at);
            at = nodes.newer(at);
        }
    }
}
