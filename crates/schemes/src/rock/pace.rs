//! The rate at which the disk may be written to (`max-swap-rate=`), and the expected duration
//! (`swap-timeout=`).
//!
//! Both are arithmetic on a time that is an argument: no clock, no sleep.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A write that would have to wait longer for its turn is not made.
pub(crate) const RATE_WAIT_MAX: Duration = Duration::from_secs(1);

/// After idleness, this much of a second's writes may be made at once.
const BURST: Duration = Duration::from_millis(100);

/// The measured time is a mean in which the newest operation weighs 1/16.
const MEAN_WEIGHT: u64 = 16;

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Admits this many writes a second.
pub(crate) struct Rate {
    ns_per_write: u64,
    /// When the next write is due, in nanoseconds.
    next_ns: AtomicU64,
}

impl Rate {
    /// At most `per_second`, which is not 0.
    pub(crate) fn new(per_second: u32) -> Self {
        let ns_per_write = 1_000_000_000 / u64::from(per_second.max(1));
        Self { ns_per_write: ns_per_write.max(1), next_ns: AtomicU64::new(0) }
    }

    /// Takes a turn: how long to wait for it; `None` if that would be too long, and no turn is
    /// taken.
    pub(crate) fn turn(&self, now_ns: u64) -> Option<Duration> {
        let earliest = now_ns.saturating_sub(ns(BURST));
        let step = |next: u64| {
            let mine = next.max(earliest);
            (mine.saturating_sub(now_ns) <= ns(RATE_WAIT_MAX)).then_some(mine + self.ns_per_write)
        };
        let before = self.next_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step).ok()?;
        Some(Duration::from_nanos(before.max(earliest).saturating_sub(now_ns)))
    }

    /// Counts `writes` more that were made without waiting; later ones wait for them.
    pub(crate) fn charge(&self, writes: u64) {
        self.next_ns.fetch_add(self.ns_per_write.saturating_mul(writes), Ordering::Relaxed);
    }
}

/// Measures how long the disk takes.
#[derive(Default)]
pub(crate) struct Pace {
    in_flight: AtomicU64,
    /// Mean time of one operation, with the others that were under way at the same time taken out.
    service_ns: AtomicU64,
}

/// An operation under way.
#[derive(Copy, Clone)]
pub(crate) struct Started {
    at_ns: u64,
    queue: u64,
}

impl Pace {
    /// Operations under way.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn start(&self, now_ns: u64) -> Started {
        Started { at_ns: now_ns, queue: self.in_flight.fetch_add(1, Ordering::Relaxed) + 1 }
    }

    pub(crate) fn finish(&self, started: Started, now_ns: u64) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        let sample = now_ns.saturating_sub(started.at_ns) / started.queue.max(1);
        let mean = self.service_ns.load(Ordering::Relaxed);
        let new = if mean == 0 { sample } else { mean - mean / MEAN_WEIGHT + sample / MEAN_WEIGHT };
        self.service_ns.store(new, Ordering::Relaxed);
    }

    /// Expected duration of an operation that starts now. With no operation under way there is
    /// nothing to wait for, so that a slow disk is tried again.
    pub(crate) fn expected(&self) -> Duration {
        match self.in_flight() {
            0 => Duration::ZERO,
            queue => Duration::from_nanos(
                self.service_ns.load(Ordering::Relaxed).saturating_mul(queue + 1),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn turns_are_evenly_spread_and_too_long_a_queue_is_refused() {
        let rate = Rate::new(100);
        let now = 50 * SECOND;
        let waits: Vec<Option<u64>> =
            (0..200).map(|_| rate.turn(now).map(|wait| wait.as_millis() as u64)).collect();
        assert_eq!(
            waits[..13],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 20].map(Some),
            "a burst, then every 10 ms"
        );
        let granted = waits.iter().filter(|wait| wait.is_some()).count();
        assert_eq!(
            (granted, waits[110], waits[111]),
            (111, Some(1000), None),
            "a second is the most to wait"
        );
        assert_eq!(
            rate.turn(now + SECOND),
            Some(Duration::from_millis(10)),
            "refusals took no turn"
        );
        rate.charge(50);
        assert_eq!(rate.turn(now + SECOND), Some(Duration::from_millis(520)));
    }

    #[test]
    fn a_long_run_keeps_to_the_rate() {
        let rate = Rate::new(250);
        let (start, mut now) = (SECOND, SECOND);
        for _ in 0..2500 {
            now += ns(rate.turn(now).expect("one at a time waits no long"));
        }
        let seconds = (now - start) as f64 / SECOND as f64;
        assert!((9.8..=10.0).contains(&seconds), "2500 writes took {seconds} s");
    }

    #[test]
    fn the_time_to_come_is_service_time_times_queue() {
        let pace = Pace::default();
        assert_eq!(pace.expected(), Duration::ZERO);
        let started = pace.start(SECOND);
        pace.finish(started, SECOND + 8_000_000);
        assert_eq!(pace.expected(), Duration::ZERO, "idle: try it");
        let held: Vec<Started> = (0..4).map(|_| pace.start(2 * SECOND)).collect();
        assert_eq!(pace.expected(), Duration::from_millis(40));
        // Four that ran together took 8 ms each: 2 ms of the disk's time for the last of them.
        held.into_iter().for_each(|started| pace.finish(started, 2 * SECOND + 8_000_000));
        pace.start(3 * SECOND);
        assert!((Duration::from_millis(10)..Duration::from_millis(16)).contains(&pace.expected()));
    }
}
