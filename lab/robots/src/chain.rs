//! Doubly linked chains through the slots of a slab: first in, first out, and out of the middle,
//! without allocation.

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;

/// The links of all slots for one purpose; a slot is in at most one of the chains that use these
/// links.
#[derive(Debug, Default)]
pub(crate) struct Links {
    of_slots: Vec<Link>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

const LOOSE: Link = Link { before: NONE, after: NONE };

/// One chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) length: u32,
}

impl Default for Chain {
    fn default() -> Self {
        Self { first: NONE, last: NONE, length: 0 }
    }
}

impl Chain {
    pub(crate) fn push_back(&mut self, links: &mut Links, slot: u32) {
        links.reach(slot);
        links.of_slots[slot as usize] = Link { before: self.last, after: NONE };
        match self.last {
            NONE => self.first = slot,
            last => links.of_slots[last as usize].after = slot,
        }
        self.last = slot;
        self.length += 1;
    }

    pub(crate) fn push_front(&mut self, links: &mut Links, slot: u32) {
        links.reach(slot);
        links.of_slots[slot as usize] = Link { before: NONE, after: self.first };
        match self.first {
            NONE => self.last = slot,
            first => links.of_slots[first as usize].before = slot,
        }
        self.first = slot;
        self.length += 1;
    }

    /// Takes out a slot that is in this chain.
    pub(crate) fn remove(&mut self, links: &mut Links, slot: u32) {
        let link = std::mem::replace(&mut links.of_slots[slot as usize], LOOSE);
        match link.before {
            NONE => self.first = link.after,
            before => links.of_slots[before as usize].after = link.after,
        }
        match link.after {
            NONE => self.last = link.before,
            after => links.of_slots[after as usize].before = link.before,
        }
        self.length -= 1;
    }

    /// From the last to the first.
    pub(crate) fn backwards<'l>(&self, links: &'l Links) -> impl Iterator<Item = u32> + use<'l> {
        let mut slot = self.last;
        std::iter::from_fn(move || {
            let here = slot;
            if here == NONE {
                return None;
            }
            slot = links.of_slots[here as usize].before;
            Some(here)
        })
    }
}

impl Links {
    fn reach(&mut self, slot: u32) {
        if self.of_slots.len() <= slot as usize {
            self.of_slots.resize(slot as usize + 1, LOOSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_leave_from_anywhere() {
        let (mut links, mut chain) = (Links::default(), Chain::default());
        for slot in [4, 2, 9] {
            chain.push_back(&mut links, slot);
        }
        chain.push_front(&mut links, 0);
        assert_eq!(chain.backwards(&links).collect::<Vec<_>>(), [9, 2, 4, 0]);
        chain.remove(&mut links, 2);
        chain.remove(&mut links, 0);
        assert_eq!(chain.backwards(&links).collect::<Vec<_>>(), [9, 4]);
        assert_eq!((chain.first, chain.last, chain.length), (4, 9, 2));
        chain.remove(&mut links, 9);
        chain.remove(&mut links, 4);
        assert_eq!((chain.first, chain.last, chain.length), (NONE, NONE, 0));
    }
}
