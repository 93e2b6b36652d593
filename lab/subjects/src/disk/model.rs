//! The time that a disk takes for a request.

use std::fmt;
use std::time::Duration;

/// From a track to its neighbour, in seconds.
const SEEK_LEAST_S: f64 = 0.001;
/// From the first track to the last, in seconds. With the root of the distance between, two random
/// places are 7.9 ms apart on average.
const SEEK_MOST_S: f64 = 0.014;
/// Half a turn at 7,200 turns a minute, in seconds: the sector comes by after as long on average.
const HALF_TURN_S: f64 = 60.0 / 7200.0 / 2.0;
/// Commands and their answers, in seconds.
const COMMAND_S: f64 = 0.0003;
/// Under the head, in bytes a second.
const BYTES_PER_S: f64 = 15e6;

/// How many times as fast as a SCSI disk of 1999 (8 GB, 7,200 turns a minute) a simulated disk is,
/// in hundredths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpeed(u32);

impl DiskSpeed {
    /// The least and the largest factor. With less, a file system is not made in time.
    pub const RANGE: std::ops::RangeInclusive<f64> = 0.1..=10_000.0;

    /// `None` if the factor is outside [`Self::RANGE`].
    #[must_use]
    pub fn times(factor: f64) -> Option<Self> {
        Self::RANGE.contains(&factor).then(|| Self((factor * 100.0).round() as u32))
    }

    pub(super) fn of_hundredths(hundredths: u32) -> Self {
        Self(hundredths)
    }

    pub(super) fn hundredths(self) -> u32 {
        self.0
    }

    /// The factor.
    #[must_use]
    pub fn factor(self) -> f64 {
        f64::from(self.0) / 100.0
    }
}

impl fmt::Display for DiskSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "disk of 1999 × {}", self.factor())
    }
}

/// What is asked of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    /// It came when the disk had nothing to do any more.
    LateWrite,
}

/// A disk of one arm.
#[derive(Debug)]
pub(super) struct Model {
    bytes: u64,
    speed: DiskSpeed,
    /// Behind the last byte that was read or written.
    position: u64,
}

impl Model {
    pub(super) fn new(bytes: u64, speed: DiskSpeed) -> Self {
        Self { bytes, speed, position: 0 }
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// How long a request takes from the end of the one before. What follows on the last one needs
    /// neither the arm nor half a turn; but for a write that comes `late`, after the end of the one
    /// before, the place has gone by. (Reads come from what the disk has read ahead.)
    pub(super) fn service(&mut self, offset: u64, bytes: u64, kind: Kind) -> Duration {
        let mut seconds = COMMAND_S + bytes as f64 / BYTES_PER_S;
        if offset == self.position {
            if kind == Kind::LateWrite {
                seconds += HALF_TURN_S;
            }
        } else {
            let distance = offset.abs_diff(self.position) as f64 / self.bytes.max(1) as f64;
            seconds += SEEK_LEAST_S + (SEEK_MOST_S - SEEK_LEAST_S) * distance.min(1.0).sqrt();
            seconds += HALF_TURN_S;
        }
        self.position = offset.saturating_add(bytes);
        Duration::from_secs_f64(seconds / self.speed.factor())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 240 << 20;

    fn model(factor: f64) -> Model {
        Model::new(BYTES, DiskSpeed::times(factor).expect("a factor"))
    }

    #[test]
    fn random_places_take_as_long_as_disks_of_that_time_took() {
        let mut disk = model(1.0);
        let mut place = 1_u64;
        let mut next = || {
            place =
                place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            (place >> 20) % (BYTES - 8192)
        };
        let seconds: f64 =
            (0..10_000).map(|_| disk.service(next(), 8192, Kind::Read).as_secs_f64()).sum::<f64>()
                / 1e4;
        // 7.9 ms for the arm, 4.2 ms for the turn, 0.3 ms for the command, 0.5 ms for the bytes.
        assert!((0.0126..0.0132).contains(&seconds), "{seconds}");
    }

    #[test]
    fn what_follows_needs_no_arm_and_a_faster_disk_is_faster_in_all() {
        let mut slow = model(1.0);
        let mut fast = model(6.0);
        for (offset, bytes) in [(4096, 65536), (4096 + 65536, 1 << 20), (0, 512)] {
            let slow = slow.service(offset, bytes, Kind::Write).as_secs_f64();
            let fast = fast.service(offset, bytes, Kind::Write).as_secs_f64();
            assert!((slow / fast - 6.0).abs() < 1e-4);
        }
        let mut disk = model(1.0);
        assert_eq!(disk.service(0, 0, Kind::Write), Duration::from_secs_f64(COMMAND_S));
        let sequential = disk.service(0, 15_000_000, Kind::Read).as_secs_f64();
        assert!((1.0..1.001).contains(&sequential), "{sequential}");
        assert!(disk.service(0, 0, Kind::Read) > Duration::from_millis(5));
        let late = disk.service(0, 0, Kind::LateWrite);
        assert_eq!(late, Duration::from_secs_f64(COMMAND_S + HALF_TURN_S));
    }

    #[test]
    fn factors_have_bounds() {
        assert_eq!(DiskSpeed::times(6.0).map(DiskSpeed::factor), Some(6.0));
        for factor in [0.0, 0.09, -1.0, f64::NAN, f64::INFINITY, 10_001.0] {
            assert_eq!(DiskSpeed::times(factor), None);
        }
    }
}
