//! The memory of objects that left probation: 4 bytes an object.

/// Cells of one bucket. The oldest of a bucket makes way.
const BUCKET: usize = 4;

/// Fewest buckets of a table.
const BUCKETS_MIN: usize = 16;

/// Bits of a cell that are its tick; the others are the print.
const TICK_BITS: u32 = 12;
const TICK_MASK: u32 = (1 << TICK_BITS) - 1;

/// Ticks that a ghost is remembered: as long as it takes to remember as many as there are cells.
const TICKS_REMEMBERED: u32 = 64;

/// Fingerprints of objects that left probation, about as many as there are objects. A cell of 0 is
/// empty.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    buckets: Box<[[u32; BUCKET]]>,
    tick: u32,
    /// Remembered in this tick.
    remembered: u32,
}

impl Ghosts {
    fn place(&self, hash: u64) -> (usize, u32) {
        let bucket = (u128::from(hash) * self.buckets.len() as u128) >> 64;
        // The upper bits choose the bucket, the lower ones are the print.
        (bucket as usize, ((hash as u32) << TICK_BITS) | 1 << (TICK_BITS + 1))
    }

    /// `objects` is how many the cache holds now, and how many ghosts are worth having.
    pub(crate) fn remember(&mut self, hash: u64, objects: usize) {
        if self.buckets.len() * BUCKET < objects || self.buckets.is_empty() {
            // Growing forgets. It happens when a cache is full of smaller objects than ever before.
            let cells = objects + objects / 8;
            self.buckets = vec![[0; BUCKET]; cells.div_ceil(BUCKET).max(BUCKETS_MIN)].into();
        }
        let ((bucket, print), tick) = (self.place(hash), self.next_tick());
        let Some(cells) = self.buckets.get_mut(bucket) else { return };
        let age =
            |cell: &u32| if *cell == 0 { u32::MAX } else { tick.wrapping_sub(*cell) & TICK_MASK };
        if let Some(oldest) = cells.iter_mut().max_by_key(|cell| age(cell)) {
            *oldest = print | tick & TICK_MASK;
        }
    }

    /// Whether the object left probation not long ago. Afterwards it is forgotten.
    pub(crate) fn recall(&mut self, hash: u64) -> bool {
        let ((bucket, print), tick) = (self.place(hash), self.tick);
        let Some(cells) = self.buckets.get_mut(bucket) else { return false };
        let Some(cell) = cells.iter_mut().find(|cell| **cell & !TICK_MASK == print) else {
            return false;
        };
        let found = std::mem::take(cell);
        tick.wrapping_sub(found) & TICK_MASK <= TICKS_REMEMBERED
    }

    fn next_tick(&mut self) -> u32 {
        self.remembered += 1;
        if self.remembered as usize > self.buckets.len() * BUCKET / TICKS_REMEMBERED as usize {
            self.remembered = 0;
            self.tick = self.tick.wrapping_add(1);
        }
        self.tick
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u64) -> u64 {
        n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn ghosts_are_met_once_and_not_after_too_long() {
        let mut ghosts = Ghosts::default();
        assert!(!ghosts.recall(hash(1)));
        ghosts.remember(hash(1), 100);
        assert!(!ghosts.recall(hash(2)));
        assert!(ghosts.recall(hash(1)));
        assert!(!ghosts.recall(hash(1)));
        ghosts.remember(hash(3), 100);
        (0..1000).for_each(|n| ghosts.remember(hash(1000 + n), 100));
        assert!(!ghosts.recall(hash(3)));
    }

    #[test]
    fn most_of_as_many_as_there_are_objects_are_remembered_and_none_is_made_up() {
        let mut ghosts = Ghosts::default();
        (0..100_000).for_each(|n| ghosts.remember(hash(n), 10_000));
        let recent = (95_000..100_000).filter(|n| ghosts.recall(hash(*n))).count();
        assert!(recent > 4_700, "{recent} of 5000");
        let old = (0..80_000).filter(|n| ghosts.recall(hash(*n))).count();
        assert!(old < 50, "{old} of 80000");
        assert!(ghosts.heap_bytes() <= 10_000 * 9 / 2 + 16);
    }
}
