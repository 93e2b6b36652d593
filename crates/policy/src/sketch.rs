//! Recent frequency of each object, in at most 5 bytes an object: a count-min sketch of 4-bit
//! counters behind a doorkeeper.
//!
//! The doorkeeper, a row of bits, takes the first use of every object, so that objects with one use
//! do not fill the sketch. After five uses an object all counts are halved and the doorkeeper is
//! cleared.

/// Rows of counters; the lowest of an object's four counts.
const ROWS: usize = 4;

/// Highest count.
const COUNT_MAX: u8 = 15;

/// Counters in a row, in eighths of the number of objects.
const WIDTH_EIGHTHS: usize = 10;

/// Bits of the doorkeeper for an object.
const DOOR_BITS: usize = 8;

/// Uses for an object until everything is halved. Ten are usual; with so few counters for an
/// object, five count better.
const SAMPLE_PER_OBJECT: usize = 5;

/// Fewest objects that a sketch is made for.
const OBJECTS_MIN: usize = 64;

/// One multiplier for each row, and one for the doorkeeper.
const MULTIPLIERS: [u64; ROWS] =
    [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 0xd6e8_feb8_6659_fd93];
const DOOR_MULTIPLIER: u64 = 0xff51_afd7_ed55_8ccd;

#[derive(Debug, Default)]
pub(crate) struct Sketch {
    /// Objects that it is made for.
    objects: usize,
    /// Counters in a row; two of them share a byte.
    width: usize,
    counters: Box<[u8]>,
    door: Box<[u8]>,
    uses: usize,
}

impl Sketch {
    /// Makes it large enough for `objects`. Counts stay.
    #[inline]
    pub(crate) fn fit(&mut self, objects: usize) {
        // Doubling is put off until there are 7/5 of the objects, so that it takes at most 5 bytes
        // an object.
        while objects * 5 > self.objects * 7 {
            self.double();
        }
    }

    /// With twice the cells, each old one is split into two that begin with its count.
    #[cold]
    fn double(&mut self) {
        let objects = (self.objects * 2).max(OBJECTS_MIN);
        let width = objects * WIDTH_EIGHTHS / 8;
        let mut grown = Self {
            objects,
            width,
            counters: vec![0; ROWS * width / 2].into(),
            door: vec![0; objects * DOOR_BITS / 8].into(),
            uses: self.uses,
        };
        if self.width > 0 {
            // Cells of all rows lie one behind the other, so halving a cell's number halves its
            // column.
            (0..ROWS * width).for_each(|at| grown.set_count(at, self.count(at / 2)));
            for (bit, byte) in (0..grown.door.len() * 8).map(|bit| (bit, bit / 2)) {
                grown.door[bit / 8] |= (self.door[byte / 8] >> (byte % 8) & 1) << (bit % 8);
            }
        }
        *self = grown;
    }

    fn count(&self, at: usize) -> u8 {
        self.counters[at / 2] >> (at % 2 * 4) & 0xF
    }

    fn set_count(&mut self, at: usize, count: u8) {
        let shift = at % 2 * 4;
        let byte = &mut self.counters[at / 2];
        *byte = *byte & !(0xF << shift) | count << shift;
    }

    fn cells(&self, hash: u64) -> [usize; ROWS] {
        let width = self.width;
        std::array::from_fn(|row| row * width + spread(hash, MULTIPLIERS[row], width))
    }

    fn door_bit(&self, hash: u64) -> (usize, u8) {
        let bit = spread(hash, DOOR_MULTIPLIER, self.door.len() * 8);
        (bit / 8, 1 << (bit % 8))
    }

    /// Counts a use.
    pub(crate) fn record(&mut self, hash: u64) {
        if self.objects == 0 {
            return;
        }
        self.uses += 1;
        if self.uses >= self.objects * SAMPLE_PER_OBJECT {
            self.halve();
        }
        let (byte, bit) = self.door_bit(hash);
        if self.door[byte] & bit == 0 {
            self.door[byte] |= bit;
            return;
        }
        let cells = self.cells(hash);
        let least = cells.iter().map(|cell| self.count(*cell)).min().unwrap_or(COUNT_MAX);
        if least < COUNT_MAX {
            // Only the lowest counters grow: the others have been raised by others already.
            for cell in cells {
                if self.count(cell) == least {
                    self.set_count(cell, least + 1);
                }
            }
        }
    }

    /// Recent frequency: rarely too low, sometimes too high.
    pub(crate) fn frequency(&self, hash: u64) -> u32 {
        if self.objects == 0 {
            return 0;
        }
        let (byte, bit) = self.door_bit(hash);
        let least = self.cells(hash).iter().map(|cell| self.count(*cell)).min();
        u32::from(least.unwrap_or_default()) + u32::from(self.door[byte] & bit != 0)
    }

    fn halve(&mut self) {
        self.uses /= 2;
        self.counters.iter_mut().for_each(|pair| *pair = *pair >> 1 & 0x77);
        self.door.fill(0);
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.counters.len() + self.door.len()
    }
}

fn spread(hash: u64, multiplier: u64, cells: usize) -> usize {
    let mixed = (hash ^ hash >> 32).wrapping_mul(multiplier);
    ((u128::from(mixed) * cells as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u64) -> u64 {
        n.wrapping_add(7).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn of_1000() -> Sketch {
        let mut sketch = Sketch::default();
        sketch.fit(1000);
        sketch
    }

    #[test]
    fn it_counts_up_to_its_bound() {
        let mut sketch = of_1000();
        assert_eq!(sketch.frequency(hash(1)), 0);
        (0..3).for_each(|_| sketch.record(hash(1)));
        assert_eq!(sketch.frequency(hash(1)), 3);
        (0..100).for_each(|_| sketch.record(hash(1)));
        assert_eq!(sketch.frequency(hash(1)), 16);
    }

    #[test]
    fn what_is_popular_stands_out_among_what_is_not() {
        let mut sketch = of_1000();
        for round in 0..8 {
            (0..100).for_each(|n| sketch.record(hash(n)));
            (0..400).for_each(|n| sketch.record(hash(10_000 + round * 400 + n)));
        }
        assert!((0..100).all(|n| sketch.frequency(hash(n)) >= 8));
        let overrated = (50_000..60_000).filter(|n| sketch.frequency(hash(*n)) >= 3).count();
        assert!(overrated < 200, "{overrated} of 10000 that never came");
    }

    #[test]
    fn counts_are_halved_after_five_uses_an_object() {
        let mut sketch = of_1000();
        (0..9).for_each(|_| sketch.record(hash(1)));
        let before = sketch.frequency(hash(1));
        (0..sketch.objects as u64 * 5).for_each(|n| sketch.record(hash(2 + n % 3)));
        assert_eq!((before, sketch.frequency(hash(1))), (9, 4));
    }

    #[test]
    fn growing_keeps_counts_and_blames_nobody_else() {
        let mut sketch = Sketch::default();
        sketch.fit(100);
        (0..20).for_each(|n| (0..1 + n % 10).for_each(|_| sketch.record(hash(n))));
        let overrated = |sketch: &Sketch| {
            let share = (50_000..60_000).filter(|n| sketch.frequency(hash(*n)) >= 2).count();
            share as f64 / 10_000.0
        };
        let before = overrated(&sketch);
        (100..30_000).step_by(100).for_each(|objects| sketch.fit(objects));
        assert!((0..20).all(|n| u64::from(sketch.frequency(hash(n))) > n % 10));
        assert!(overrated(&sketch) <= before + 0.01, "{} after {before}", overrated(&sketch));
        assert!(sketch.heap_bytes() <= 30_000 * 5, "{}", sketch.heap_bytes());
    }
}
