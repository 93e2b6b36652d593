//! Which file numbers are taken: one bit each.
//!
//! Numbers are given out in ascending order, round and round, so that a number rests as long as
//! possible before it is used again, and that files written together lie in one directory.

/// Most files in one directory.
pub(crate) const FILES_MAX: u32 = 1 << 28;

/// The bitmap grows by this many words.
const GROW_WORDS: usize = 8;

/// It grows when fewer than one number in this many is free, so that the search for one stays
/// short.
const FREE_ONE_IN: usize = 16;

/// The set of taken file numbers.
#[derive(Clone, Default)]
pub(crate) struct Numbers {
    words: Vec<u64>,
    taken: usize,
    /// Word where the search for a free number goes on.
    cursor: usize,
}

impl Numbers {
    /// Takes a free number; `None` when all [`FILES_MAX`] are taken.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let free = self.words.len() * 64 - self.taken;
        if free * FREE_ONE_IN <= self.words.len() * 64 && self.words.len() < FILES_MAX as usize / 64
        {
            self.cursor = self.words.len();
            self.words.resize(self.words.len() + GROW_WORDS, 0);
        } else if free == 0 {
            return None;
        }
        let words = self.words.len();
        let at =
            (0..words).map(|i| (self.cursor + i) % words).find(|at| self.words[*at] != u64::MAX)?;
        self.cursor = at;
        let bit = self.words[at].trailing_ones();
        self.words[at] |= 1 << bit;
        self.taken += 1;
        Some(at as u32 * 64 + bit)
    }

    /// Takes exactly `number`; `false` when it is taken already or out of range.
    pub(crate) fn take_exactly(&mut self, number: u32) -> bool {
        if number >= FILES_MAX {
            return false;
        }
        let (at, bit) = (number as usize / 64, number % 64);
        if at >= self.words.len() {
            self.words.resize((at + 1).next_multiple_of(GROW_WORDS), 0);
        }
        let was_free = self.words[at] >> bit & 1 == 0;
        self.words[at] |= 1 << bit;
        self.taken += usize::from(was_free);
        was_free
    }

    /// Gives a number back. Nothing happens if it is not taken.
    pub(crate) fn give_back(&mut self, number: u32) {
        let (at, bit) = (number as usize / 64, number % 64);
        if let Some(word) = self.words.get_mut(at)
            && *word >> bit & 1 == 1
        {
            *word &= !(1 << bit);
            self.taken -= 1;
        }
    }

    /// All taken numbers, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        let words = self.words.iter().enumerate();
        words.flat_map(|(at, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at as u32 * 64 + bit)
        })
    }

    /// Number of taken ones.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Bytes of memory in use.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn numbers_are_dense_distinct_and_rest_before_they_return() {
        let mut numbers = Numbers::default();
        let first: Vec<u32> = (0..1000).map_while(|_| numbers.take()).collect();
        assert_eq!(first.iter().collect::<HashSet<_>>().len(), 1000);
        assert!(first.iter().all(|n| *n < 1100), "dense: at most one in sixteen is left out");
        numbers.give_back(5);
        numbers.give_back(5);
        assert_eq!(numbers.taken(), 999);
        assert_ne!(numbers.take(), Some(5), "the one given back last is not the next");
        let mut oldest = first.iter().skip(100);
        let churn = |_| {
            oldest.next().into_iter().for_each(|n| numbers.give_back(*n));
            numbers.take() == Some(5)
        };
        assert!((0..800).any(churn), "but it returns");
    }

    #[test]
    fn single_numbers_can_be_taken_and_listed() {
        let mut numbers = Numbers::default();
        assert!(numbers.take_exactly(70_000) && numbers.take_exactly(3));
        assert!(!numbers.take_exactly(3) && !numbers.take_exactly(FILES_MAX));
        assert_eq!(numbers.iter().collect::<Vec<_>>(), [3, 70_000]);
        numbers.give_back(FILES_MAX);
        assert_eq!(numbers.taken(), 2);
    }
}
