//! Requests that are due and not answered: the backlog.

use crate::chain::{Chain, Links, NONE};
use crate::slab::Slab;
use humboldt_lab_workload::Ask;

/// One request from the moment it is due to its answer or its end.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) ask: Ask,
    /// When the user wanted it, in µs of the world's clock. Everything is measured from here.
    pub(crate) due_us: u64,
    pub(crate) robot: u32,
    /// The connection that it is on, or [`NONE`] while it waits.
    pub(crate) connection: u32,
    /// Its bytes went to the kernel at least once.
    pub(crate) sent: bool,
    /// It found no connection at once, so it does not show the laboratory's own lag.
    pub(crate) waited: bool,
    /// It was sent on a connection that the server was just closing, and goes again on a new one.
    pub(crate) retried: bool,
}

impl Pending {
    pub(crate) fn new(ask: Ask, due_us: u64, robot: u32) -> Self {
        Self { ask, due_us, robot, connection: NONE, sent: false, waited: false, retried: false }
    }
}

/// All of them, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    slots: Slab<Pending>,
    /// By age. They come in the order in which they are due, so the first has waited longest.
    ages: Chain,
    links: Links,
    in_flight: usize,
}

impl Asks {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Those that were not sent yet.
    pub(crate) fn waiting(&self) -> usize {
        self.slots.len() - self.in_flight
    }

    pub(crate) fn oldest(&self) -> Option<(u32, &Pending)> {
        self.slots.get(self.ages.first).map(|pending| (self.ages.first, pending))
    }

    pub(crate) fn insert(&mut self, pending: Pending) -> u32 {
        let slot = self.slots.insert(pending);
        self.ages.push_back(&mut self.links, slot);
        slot
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<Pending> {
        let pending = self.slots.remove(slot)?;
        self.ages.remove(&mut self.links, slot);
        self.in_flight -= usize::from(pending.sent);
        Some(pending)
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Pending> {
        self.slots.get(slot)
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Pending> {
        self.slots.get_mut(slot)
    }

    /// Notes that it was sent; true if for the first time.
    pub(crate) fn note_sent(&mut self, slot: u32) -> bool {
        let Some(pending) = self.slots.get_mut(slot) else { return false };
        let first = !pending.sent;
        pending.sent = true;
        self.in_flight += usize::from(first);
        first
    }
}
