//! Processors: how many may be used, and binding a thread to one.

use std::io;
use std::thread;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Processors this process may use: its affinity mask and its control group's quota count. At least 1.
pub fn usable() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Binds the calling thread to the `nth` of the processors it may use (counted from 0, wrapping around), so
/// that its caches stay warm.
pub fn pin_current_thread(nth: usize) -> io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let Some(cpu) = allowed.get(nth % allowed.len().max(1)) else {
        return Err(io::Error::other("no processor is allowed"));
    };
    let mut one = CpuSet::new();
    one.set(*cpu);
    Ok(sched_setaffinity(None, &one)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_may_use_one_processor() {
        assert!(usable() >= 1);
        let count = thread::spawn(|| {
            pin_current_thread(usize::MAX).expect("pinned");
            sched_getaffinity(None).expect("affinity").count()
        });
        assert_eq!(count.join().expect("joined"), 1);
    }
}
