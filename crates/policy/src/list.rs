//! A doubly linked list through slots.

use crate::{NONE, Nodes};

/// A list, from its newest slot to its oldest, and the bytes in it.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) newest: u32,
    pub(crate) oldest: u32,
    pub(crate) bytes: u64,
}

impl Default for List {
    fn default() -> Self {
        Self { newest: NONE, oldest: NONE, bytes: 0 }
    }
}

impl List {
    #[inline]
    pub(crate) fn push<N: Nodes>(&mut self, nodes: &mut N, at: u32) {
        self.bytes += nodes.cost_bytes(at);
        self.link(nodes, at);
    }

    #[inline]
    pub(crate) fn remove<N: Nodes>(&mut self, nodes: &mut N, at: u32) {
        self.bytes = self.bytes.saturating_sub(nodes.cost_bytes(at));
        self.unlink(nodes, at);
    }

    /// Makes `at`, which is in the list, its newest.
    #[inline]
    pub(crate) fn renew<N: Nodes>(&mut self, nodes: &mut N, at: u32) {
        if self.newest != at {
            self.unlink(nodes, at);
            self.link(nodes, at);
        }
    }

    #[inline]
    fn link<N: Nodes>(&mut self, nodes: &mut N, at: u32) {
        let newest = self.newest;
        nodes.set_newer(at, NONE);
        nodes.set_older(at, newest);
        match newest {
            NONE => self.oldest = at,
            newest => nodes.set_newer(newest, at),
        }
        self.newest = at;
    }

    #[inline]
    fn unlink<N: Nodes>(&mut self, nodes: &mut N, at: u32) {
        let (newer, older) = (nodes.newer(at), nodes.older(at));
        match newer {
            NONE => self.newest = older,
            newer => nodes.set_older(newer, older),
        }
        match older {
            NONE => self.oldest = newer,
            older => nodes.set_newer(older, newer),
        }
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// All slots, the oldest first.
    pub(crate) fn for_each<N: Nodes>(&self, nodes: &N, mut see: impl FnMut(u32)) {
        let mut at = self.oldest;
        while at != NONE {
            see(at);
            at = nodes.newer(at);
        }
    }
}
