//! Numbers that follow from a seed, and the turns of tasks.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use humboldt_base::rng::Rng;

/// A stream of chances. Each actor has one of its own.
#[derive(Clone, Debug)]
pub(crate) struct Chance(Rng);

impl Chance {
    /// The stream of `actor` under a seed.
    pub(crate) fn new(seed: u64, actor: u64) -> Self {
        let mut mixed = Rng::new(seed ^ actor.wrapping_mul(0xa076_1d64_78bd_642f));
        Self(Rng::new(mixed.next_u64()))
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// True this many times in a thousand.
    pub(crate) fn per_mille(&mut self, of_thousand: u64) -> bool {
        self.below(1000) < of_thousand
    }

    /// One of these.
    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// Mostly short, sometimes long: 0 ms to `most_ms`.
    pub(crate) fn delay(&mut self, most_ms: u64) -> Duration {
        let bound = self.one(&[1, 3, 30, most_ms]).min(most_ms);
        Duration::from_millis(self.below(bound + 1))
    }

    /// One of these, as often as its weight says.
    pub(crate) fn weighted<T: Copy>(&mut self, of: &[(u64, T)]) -> T {
        let mut at = self.below(of.iter().map(|(weight, _)| weight).sum());
        for (weight, what) in of {
            match at.checked_sub(*weight) {
                Some(left) => at = left,
                None => return *what,
            }
        }
        of[0].1
    }
}

thread_local! {
    static TURNS: RefCell<Chance> = RefCell::new(Chance::new(0, 0));
    static LATE_PER_MILLE: Cell<u64> = const { Cell::new(0) };
}

/// Longest time that a task waits for its turn.
const LATE_MS: u64 = 20;

/// Lets tasks of this thread have their turns late, so often in a thousand.
pub(crate) fn set_turns(seed: u64, late_per_mille: u64) {
    TURNS.replace(Chance::new(seed, 1));
    LATE_PER_MILLE.set(late_per_mille);
    humboldt_runtime::turns::simulate(turn);
    humboldt_base::rng::simulate(seed);
}

fn turn() -> Option<Duration> {
    TURNS.with_borrow_mut(|turns| {
        let is_late = turns.per_mille(LATE_PER_MILLE.get());
        is_late.then(|| Duration::from_millis(turns.below(LATE_MS)))
    })
}
