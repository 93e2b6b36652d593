//! File descriptors: how many are allowed, and how many are open.

use std::fs;
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Assumed when the system sets no limit at all.
const UNLIMITED: u64 = 1 << 20;

/// The new limit of open descriptors.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// The limit before.
    pub before: u64,
    /// The limit now.
    pub now: u64,
}

/// Raises the limit of open descriptors to `wanted` (`max_filedescriptors`), or as far as allowed
/// when that is `None`. A `wanted` above the hard limit needs privileges: without them the hard
/// limit is taken, so compare `now`. Nothing is allocated per descriptor.
pub fn raise_limit(wanted: Option<u64>) -> io::Result<DescriptorLimit> {
    let old = getrlimit(Resource::Nofile);
    let before = old.current.unwrap_or(UNLIMITED);
    let hard = old.maximum.unwrap_or(UNLIMITED);
    let target = wanted.unwrap_or(hard);
    let set = |current: u64, maximum: u64| {
        setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: Some(maximum) })
    };
    if target > hard && set(target, target).is_ok() {
        return Ok(DescriptorLimit { before, now: target });
    }
    let now = target.min(hard);
    if now != before {
        let maximum = old.maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(now), maximum })?;
    }
    Ok(DescriptorLimit { before, now })
}

/// The limit of open descriptors now.
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(UNLIMITED)
}

/// Descriptors open now, or 0 where `/proc` is missing. Reads a directory: not for every request.
pub fn open_count() -> u64 {
    let entries = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    (entries as u64).saturating_sub(1) // the one that reads the directory
}

/// Closes all descriptors except standard input, output and error. For the beginning of a helper
/// process: code that uses other descriptors would find them closed. Without effect before Linux
/// 5.9, where a helper keeps the inherited descriptors.
#[allow(unsafe_code)]
pub fn close_all_but_standard() {
    // SAFETY: no memory is passed. The caller has not opened anything yet, so no owner of a
    // descriptor exists.
    unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_what_is_allowed() {
        let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(UNLIMITED);
        let raised = raise_limit(None).expect("raised");
        assert_eq!(raised.now, hard);
        assert_eq!(limit(), hard);
        let again = raise_limit(Some(hard - 1)).expect("set");
        assert_eq!((again.before, again.now, limit()), (hard, hard - 1, hard - 1));
        raise_limit(None).expect("raised again");
    }

    #[test]
    fn open_descriptors_are_counted() {
        let before = open_count();
        let held: Vec<_> = (0..50).map(|_| fs::File::open("/dev/null").expect("opened")).collect();
        assert!(open_count() >= before + 40, "other tests may close a few meanwhile");
        drop(held);
    }
}
