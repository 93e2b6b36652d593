//! Time, in microseconds, and the processors of threads.

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A point zero. Copies agree with each other, so one clock serves all threads of a process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    /// Correction of the host's time of day.
    unix_offset_us: i64,
}

impl Clock {
    /// Starts at 0 now.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with_offset(0)
    }

    /// The same, with a time of day that differs from the host's by `unix_offset_us`: hosts whose
    /// clocks differ can agree.
    #[must_use]
    pub fn start_with_offset(unix_offset_us: i64) -> Self {
        Self { start: Instant::now(), unix_offset_us }
    }

    /// µs since the start: only ever forward, never adjusted.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        whole_us(self.start.elapsed())
    }

    /// µs since 1970 by the host's clock, plus the offset: the source of dates in heads, and the
    /// time that agents on several hosts share.
    #[must_use]
    pub fn unix_us(&self) -> u64 {
        unix_us().saturating_add_signed(self.unix_offset_us)
    }
}

/// µs since 1970 as the host has it.
#[must_use]
pub fn unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, whole_us)
}

/// Pins the calling thread to one core.
///
/// # Errors
/// If there is no such core, or this process may not use it.
pub fn pin(core: usize) -> io::Result<()> {
    if core >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

/// CPU time of the calling thread, in µs.
#[must_use]
pub fn thread_cpu_us() -> u64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) =
        (u64::try_from(used.tv_sec).unwrap_or(0), u64::try_from(used.tv_nsec).unwrap_or(0));
    seconds * 1_000_000 + nanos / 1_000
}

fn whole_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_forward() {
        let clock = Clock::start();
        let (before_us, cpu_us) = (clock.now_us(), thread_cpu_us());
        while clock.now_us() < before_us + 2_000 {}
        assert!(thread_cpu_us() > cpu_us);
        let year_2024_us = 1_704_067_200_000_000;
        assert!(clock.unix_us() > year_2024_us);
        let hour_us = 3_600_000_000;
        let ahead_us = Clock::start_with_offset(hour_us).unix_us() - clock.unix_us();
        assert!(ahead_us.abs_diff(hour_us.unsigned_abs()) < 1_000_000, "{ahead_us}");
    }
}
