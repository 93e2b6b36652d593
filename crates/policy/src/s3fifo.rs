//! S3-FIFO: an object that is not requested again leaves after a tenth of the cache has gone by,
//! and takes no room from others.

use crate::clock::Clock;
use crate::ghosts::Ghosts;
use crate::list::List;
use crate::{Nodes, order::SCAN_MAX};

/// Share of the bytes that probation may hold: one part in this many.
const SMALL_PART: u64 = 10;

/// Highest count of uses.
const USES_MAX: u8 = 3;

/// Uses on probation that lead to the main queue.
const USES_TO_PASS: u8 = 1;

/// Bits of the mark: the count, and which queue.
const USES: u8 = 3;
const IN_MAIN: u8 = 4;

#[derive(Debug, Default)]
pub(crate) struct S3Fifo {
    small: List,
    main: List,
    ghosts: Ghosts,
    objects: usize,
}

impl S3Fifo {
    pub(crate) fn admit<N: Nodes>(&mut self, nodes: &mut N, at: u32, clock: &Clock) {
        let is_back = self.ghosts.recall(nodes.hash(at));
        nodes.set_mark(at, if is_back { IN_MAIN } else { 0 });
        nodes.set_stamp(at, clock.now());
        let list = if is_back { &mut self.main } else { &mut self.small };
        list.push(nodes, at);
        self.objects += 1;
    }

    #[inline]
    pub(crate) fn touch<N: Nodes>(nodes: &mut N, at: u32) -> bool {
        let mark = nodes.mark(at);
        if mark & USES < USES_MAX {
            nodes.set_mark(at, mark + 1);
        }
        false
    }

    pub(crate) fn list_of(&mut self, mark: u8) -> &mut List {
        if mark & IN_MAIN == 0 { &mut self.small } else { &mut self.main }
    }

    pub(crate) fn remove<N: Nodes>(&mut self, nodes: &mut N, at: u32) {
        self.list_of(nodes.mark(at)).remove(nodes, at);
        self.objects -= 1;
    }

    pub(crate) fn evict<N: Nodes>(&mut self, nodes: &mut N, clock: &Clock) -> Option<u32> {
        for turn in 0.. {
            let at = self.first()?;
            let mark = nodes.mark(at);
            let is_small = mark & IN_MAIN == 0;
            let spared = mark & USES >= if is_small { USES_TO_PASS } else { 1 };
            if !spared || turn >= SCAN_MAX {
                self.remove(nodes, at);
                if is_small {
                    self.ghosts.remember(nodes.hash(at), self.objects);
                }
                return Some(at);
            }
            self.list_of(mark).remove(nodes, at);
            nodes.set_mark(at, IN_MAIN | if is_small { 0 } else { (mark & USES) - 1 });
            nodes.set_stamp(at, clock.now());
            self.main.push(nodes, at);
        }
        None
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        let is_small_full = self.small.bytes * SMALL_PART > self.small.bytes + self.main.bytes;
        if is_small_full { self.small.first() } else { self.main.first().or(self.small.first()) }
    }

    pub(crate) fn for_each<N: Nodes>(&self, nodes: &N, see: &mut impl FnMut(u32)) {
        self.small.for_each(nodes, &mut *see);
        self.main.for_each(nodes, see);
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.ghosts.heap_bytes()
    }
}
