//! A list of due moments.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Moments in order, each with a key of the caller's. None can be taken back: a caller that does
/// not want a moment any more ignores its key when it comes, and keeps at most a few per connection
/// or visit, which bounds the heap.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    heap: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Timers {
    /// Remembers a moment, in µs of the caller's clock.
    pub fn push(&mut self, due_us: u64, key: u64) {
        self.heap.push(Reverse((due_us, key)));
    }

    /// The earliest moment, if there is any: how long to wait.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((due_us, _))| *due_us)
    }

    /// Takes the earliest moment if it has come: (due, key). Of equal moments, the smaller key
    /// first.
    pub fn pop_due(&mut self, now_us: u64) -> Option<(u64, u64)> {
        if self.next_due()? > now_us {
            return None;
        }
        self.heap.pop().map(|Reverse(moment)| moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_come_in_order_and_not_early() {
        let mut timers = Timers::default();
        for (due_us, key) in [(30, 3), (10, 9), (10, 1), (20, 2)] {
            timers.push(due_us, key);
        }
        assert_eq!((timers.next_due(), timers.pop_due(9)), (Some(10), None));
        let got: Vec<_> = std::iter::from_fn(|| timers.pop_due(20)).collect();
        assert_eq!(got, [(10, 1), (10, 9), (20, 2)]);
        assert_eq!(timers.next_due(), Some(30));
    }
}
