//! Logical time, which makes the first candidates of several orders comparable.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::Nodes;

/// Logical time and inflation, common to all parts (shards) of one cache.
#[derive(Debug, Default)]
pub struct Clock {
    now: AtomicU32,
    /// Key of the last victim of a heap policy. Keys count modulo 2^32.
    inflation: AtomicU32,
}

impl Clock {
    /// Lets time go on by one; returns the time until then.
    #[inline]
    pub fn tick(&self) -> u32 {
        self.now.fetch_add(1, Relaxed)
    }

    /// The present time, in ticks, modulo 2^32.
    #[inline]
    pub fn now(&self) -> u32 {
        self.now.load(Relaxed)
    }

    #[inline]
    pub(crate) fn inflation(&self) -> u32 {
        self.inflation.load(Relaxed)
    }

    /// Two parts may do this at once: the lower key may win, which costs a little order and nothing
    /// else.
    pub(crate) fn raise_inflation(&self, key: u32) {
        if is_less(self.inflation(), key) {
            self.inflation.store(key, Relaxed);
        }
    }
}

/// Whether key `a` comes before key `b`. Keys wrap: those that live together lie within half of the
/// circle.
pub(crate) fn is_less(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// How urgently an order wants to evict its first candidate, in a form that fits an atomic number:
/// value, presence, whether it is a key, whether it goes before all others, and how far a stamp was
/// shifted up.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rank(u64);

const IS_SOME: u64 = 1 << 32;
const IS_KEY: u64 = 1 << 33;
const IS_FIRST: u64 = 1 << 34;
const SHIFT_AT: u32 = 35;

impl Rank {
    /// Of an order without objects.
    pub const NOTHING: Self = Self(0);

    pub(crate) fn of_stamp<N: Nodes>(stamp: u32) -> Self {
        let shift = 32 - N::STAMP_BITS;
        Self(u64::from(stamp << shift) | IS_SOME | u64::from(shift) << SHIFT_AT)
    }

    pub(crate) fn of_key(key: u32) -> Self {
        Self(u64::from(key) | IS_SOME | IS_KEY)
    }

    /// Before all that are not.
    pub(crate) fn first(self) -> Self {
        Self(self.0 | IS_FIRST)
    }

    /// For an atomic.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The reverse of [`Rank::to_bits`].
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// A number that is the higher the sooner the candidate should leave; `None` without a
    /// candidate.
    pub fn urgency(self, clock: &Clock) -> Option<u64> {
        let value = self.0 as u32;
        if self.0 & IS_SOME == 0 {
            None
        } else if self.0 & IS_KEY != 0 {
            // Most keys lie above the inflation, some below it.
            Some(u64::from(clock.inflation().wrapping_sub(value) ^ 1 << 31))
        } else {
            let shift = (self.0 >> SHIFT_AT) as u32 & 31;
            let first = u64::from(self.0 & IS_FIRST != 0) << 32;
            Some(u64::from((clock.now() << shift).wrapping_sub(value)) | first)
        }
    }
}
