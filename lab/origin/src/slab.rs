//! Places for connections. A place is used again, with its buffers; its number plus its generation
//! never is.

use crate::connection::Connection;

/// Largest slot number: tokens have 32 bits for it.
const SLOT_BITS: u32 = 32;

/// Generations wrap around here, so that the two topmost bits of a token are free for other kinds.
const GENERATION_MASK: u32 = (1 << 30) - 1;

#[derive(Debug, Default)]
pub(crate) struct Slab {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    connection: Connection,
    is_open: bool,
}

impl Slab {
    /// Number of taken places.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes a place: its token, and the closed connection in it.
    pub(crate) fn open(&mut self) -> (u64, &mut Connection) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.is_open = true;
        ((u64::from(slot.generation) << SLOT_BITS) | u64::from(index), &mut slot.connection)
    }

    /// The connection of a token, unless it is closed already.
    pub(crate) fn get(&mut self, token: u64) -> Option<&mut Connection> {
        let slot = self.slots.get_mut((token as u32) as usize)?;
        let is_same = slot.is_open && u64::from(slot.generation) == token >> SLOT_BITS;
        is_same.then_some(&mut slot.connection)
    }

    /// Gives a place back. Later events and timers of the token are ignored.
    pub(crate) fn close(&mut self, token: u64) {
        let Some(connection) = self.get(token) else { return };
        connection.recycle();
        let index = token as u32;
        let slot = &mut self.slots[index as usize];
        slot.is_open = false;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        self.free.push(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_token_is_nobodys() {
        let mut slab = Slab::default();
        let (first, _) = slab.open();
        let (second, _) = slab.open();
        assert_ne!(first, second);
        slab.close(first);
        slab.close(first);
        assert_eq!(
            (slab.len(), slab.get(first).is_some(), slab.get(second).is_some()),
            (1, false, true)
        );
        let (third, _) = slab.open();
        assert_eq!(third as u32, first as u32, "the place is used again");
        assert!(slab.get(first).is_none() && slab.get(third).is_some());
    }
}
