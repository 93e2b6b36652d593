//! An array that grows a piece at a time: no moment in which it exists twice, no room for twice as
//! many.

/// Elements of a piece (512 bytes).
const PIECE: usize = 128;

/// Slot numbers by place.
#[derive(Debug, Default)]
#[allow(
    clippy::vec_box,
    reason = "a vector of arrays would be copied, and up to twice as large, when it grows"
)]
pub(crate) struct Places {
    #[expect(
        clippy::vec_box,
        reason = "growing must not move, and for a moment double, all that is there"
    )]
    pieces: Vec<Box<[u32; PIECE]>>,
    len: u32,
}

impl Places {
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn get(&self, place: u32) -> u32 {
        self.pieces[place as usize / PIECE][place as usize % PIECE]
    }

    pub(crate) fn set(&mut self, place: u32, slot: u32) {
        self.pieces[place as usize / PIECE][place as usize % PIECE] = slot;
    }

    pub(crate) fn push(&mut self, slot: u32) {
        if self.len as usize == self.pieces.len() * PIECE {
            self.pieces.push(Box::new([0; PIECE]));
        }
        self.len += 1;
        self.set(self.len - 1, slot);
    }

    /// Drops the last place. One empty piece is kept, so that a length that goes up and down
    /// allocates nothing.
    pub(crate) fn pop(&mut self) {
        self.len = self.len.saturating_sub(1);
        if self.len as usize + 2 * PIECE <= self.pieces.len() * PIECE {
            self.pieces.pop();
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.pieces.len() * size_of::<[u32; PIECE]>()
            + self.pieces.capacity() * size_of::<Box<[u32; PIECE]>>()
    }
}
