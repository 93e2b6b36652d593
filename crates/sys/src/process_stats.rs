//! Resources that this process has used so far.

use std::fs;
use std::time::Duration;

/// Figures of the whole process. A figure that the system does not give is 0.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessStats {
    /// Memory resident now, in bytes.
    pub resident_bytes: u64,
    /// Most memory that was ever resident, in bytes.
    pub resident_max_bytes: u64,
    /// Processor time in this program.
    pub user: Duration,
    /// Processor time in the kernel on its behalf.
    pub system: Duration,
    /// Page faults that needed the disk.
    pub major_faults: u64,
    /// Page faults that did not.
    pub minor_faults: u64,
    /// Descriptors open now.
    pub open_descriptors: u64,
}

impl ProcessStats {
    /// Reads them now: two files and one system call, for pages and periodic checks.
    pub fn read() -> Self {
        let usage = usage();
        Self {
            resident_bytes: resident_bytes(),
            resident_max_bytes: to_u64(usage.ru_maxrss) * 1024,
            user: to_duration(usage.ru_utime),
            system: to_duration(usage.ru_stime),
            major_faults: to_u64(usage.ru_majflt),
            minor_faults: to_u64(usage.ru_minflt),
            open_descriptors: crate::descriptors::open_count(),
        }
    }
}

/// `/proc/self/statm`: the second number is the resident pages.
fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split_ascii_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    pages.saturating_mul(page_bytes())
}

/// Size of a page of memory, in bytes. rustix would read the auxiliary vector past callgrind, which
/// ends the program then (`cargo xtask bench instructions`).
#[allow(unsafe_code)]
pub fn page_bytes() -> u64 {
    // SAFETY: `sysconf` only returns a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    to_u64(bytes)
}

#[allow(unsafe_code)]
fn usage() -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a live local of the right type. The call fails only for a wrong
    // first argument; all-zero is valid then too.
    unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    }
}

fn to_u64(n: libc::c_long) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

fn to_duration(time: libc::timeval) -> Duration {
    let micros = u32::try_from(time.tv_usec).unwrap_or(0).min(999_999);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), micros * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_faults_grow_with_use() {
        const BYTES: usize = 32 << 20;
        let before = ProcessStats::read();
        let block = vec![7_u8; BYTES];
        let after = ProcessStats::read();
        assert!(std::hint::black_box(&block)[BYTES - 1] == 7);
        // Tests beside this one give memory back meanwhile; the maximum does not shrink.
        let grown = after.resident_bytes.max(after.resident_max_bytes);
        assert!(grown >= before.resident_bytes + BYTES as u64 / 2, "{before:?} {after:?}");
        assert!(after.resident_max_bytes >= after.resident_bytes / 2);
        assert!(after.minor_faults > before.minor_faults);
        assert!(after.user + after.system >= before.user + before.system);
        assert!(after.open_descriptors >= 3);
    }
}
