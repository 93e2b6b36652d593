//! Wall-clock readings in the units the rest of the program uses.
//!
//! Pure crates never call this: they take `now` as an argument. The proxy reads the clock once per
//! request and hands the value down.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

/// A clock of a simulation.
pub type Source = fn() -> UnixMillis;

thread_local! {
    static SIMULATED: Cell<Option<Source>> = const { Cell::new(None) };
}

/// Replaces the clock of this thread, so that a simulation decides what time it is.
// tidy: public, because the simulation uses it
pub fn simulate(source: Source) {
    SIMULATED.set(Some(source));
}

/// A moment of wall-clock time, in milliseconds since the Unix epoch.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixMillis(pub i64);

impl UnixMillis {
    /// The current time. A clock before 1970 reads as 0.
    pub fn now() -> Self {
        if let Some(simulated) = SIMULATED.get() {
            return simulated();
        }
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }

    /// Whole seconds since the Unix epoch, as HTTP dates count them.
    pub fn secs(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// The millisecond within its second, 0 to 999.
    pub fn millis_of_sec(self) -> u32 {
        self.0.rem_euclid(1000) as u32
    }

    /// Milliseconds from `earlier` to `self`; 0 when the clock went backwards.
    pub fn since_ms(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_into_seconds_and_milliseconds() {
        let t = UnixMillis(1_700_000_000_123);
        assert_eq!((t.secs(), t.millis_of_sec()), (1_700_000_000, 123));
        assert_eq!(UnixMillis(-1).secs(), -1);
        assert_eq!(UnixMillis(-1).millis_of_sec(), 999);
    }

    #[test]
    fn a_clock_that_goes_backwards_gives_no_negative_duration() {
        assert_eq!(UnixMillis(5).since_ms(UnixMillis(9)), 0);
        assert_eq!(UnixMillis(9).since_ms(UnixMillis(5)), 4);
    }
}
