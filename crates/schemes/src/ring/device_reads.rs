//! How long a device takes for a read, as the kernel counts it. Unlike a time that this process
//! measures, it has no part of the processor's.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::{major, minor};

/// Where the kernel tells the work of each device, by its number.
const DEVICES: &str = "/sys/dev/block";

/// Reads are slow when they take longer than this, in microseconds ...
const SLOW_US: u64 = 2000;

/// ... until they take less than this.
const SLOW_STILL_US: u64 = 1000;

/// The mean of fewer reads says little.
const READS_LEAST: u64 = 64;

/// Reads of a device, since the start of the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reads {
    count: u64,
    /// What all of them took together, waiting in the queue included, in milliseconds.
    ms: u64,
}

/// The reads of the device that a file is on.
pub(crate) struct DeviceReads {
    /// `None` if the file system has no device, or several.
    stat: Option<PathBuf>,
    seen: Mutex<Seen>,
}

/// Of the last look.
#[derive(Debug, Default)]
struct Seen {
    reads: Option<Reads>,
    are_slow: bool,
}

impl DeviceReads {
    /// Of the device of this file or folder.
    pub(crate) fn of(path: &Path) -> Self {
        let device = path.metadata().ok().map(|metadata| metadata.dev());
        let stat = device.map(|number| {
            Path::new(DEVICES).join(format!("{}:{}/stat", major(number), minor(number)))
        });
        Self { stat: stat.filter(|stat| stat.exists()), seen: Mutex::default() }
    }

    /// Whether a read takes long, as far as the system tells. If there have been few since the last
    /// time, it is as it was.
    pub(crate) fn are_slow(&self) -> bool {
        let text = self.stat.as_ref().and_then(|stat| fs::read_to_string(stat).ok());
        let now = text.as_deref().and_then(parse);
        self.seen.lock().look(now)
    }
}

impl Seen {
    fn look(&mut self, now: Option<Reads>) -> bool {
        let (Some(now), Some(before)) = (now, self.reads) else {
            *self = Self { reads: now, are_slow: false };
            return false;
        };
        let Some(count) = now.count.checked_sub(before.count) else {
            *self = Self::default(); // another device has its number
            return false;
        };
        if count >= READS_LEAST {
            // The kernel's sum begins anew after 49 days of reading.
            let took_ms = u64::from((now.ms as u32).wrapping_sub(before.ms as u32));
            let mean_us = took_ms * 1000 / count;
            let is_long = mean_us > if self.are_slow { SLOW_STILL_US } else { SLOW_US };
            *self = Self { reads: Some(now), are_slow: is_long };
        }
        self.are_slow
    }
}

/// The kernel's `Documentation/block/stat.rst`: reads, merged ones, sectors, milliseconds.
fn parse(stat: &str) -> Option<Reads> {
    let mut numbers = stat.split_ascii_whitespace().map(str::parse::<u64>);
    let (count, ms) = (numbers.next()?.ok()?, numbers.nth(2)?.ok()?);
    Some(Reads { count, ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counts_are_read() {
        let reads = parse("  1200  7 96000  5400  80 0 640 12 0 99 99\n");
        assert_eq!(reads, Some(Reads { count: 1200, ms: 5400 }));
        assert_eq!(parse("1200 7"), None);
        assert_eq!(parse("a b c d"), None);
    }

    #[test]
    fn a_device_is_slow_as_long_as_its_reads_are() {
        let mut seen = Seen::default();
        let mut look = |count, ms| seen.look(Some(Reads { count, ms }));
        assert!(!look(1000, 9000), "nothing is known yet");
        assert!(!look(1100, 9150), "1.5 ms");
        assert!(look(1200, 9450), "3 ms");
        assert!(look(1210, 9450), "too few");
        assert!(look(1300, 9600), "1.5 ms");
        assert!(!look(1400, 9690), "0.9 ms");
        assert!(!look(1500, 9840), "1.5 ms");
        assert!(look(1600, 10_840));
        assert!(!look(5, 0), "another device");
        assert!(!look(10, 0) && !look(500, 490), "known again, and fast");
        assert!(look(600, 1490));
        assert!(look(700, u64::from(u32::MAX)), "it began anew");
        assert!(look(800, 999), "10 ms");
        assert!(!seen.look(None), "the system tells no more");
    }

    #[test]
    fn a_file_without_a_device_has_no_slow_one() {
        for path in ["/proc/self/status", "/is/not/there"] {
            let reads = DeviceReads::of(Path::new(path));
            assert!(reads.stat.is_none() && !reads.are_slow());
        }
    }
}
