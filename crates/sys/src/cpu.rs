//! Processors: how many may be used.

use std::thread;

/// Processors this process may use: its affinity mask and its control group's quota count. At least
/// 1.
pub fn usable() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// From now on, waking the calling thread interrupts no other thread (`SCHED_BATCH`). This is for
/// threads that work through queues beside the cores. A core that hands out an operation continues
/// its turn instead of being interrupted for each of them, and the thread then finds several
/// operations. The thread has its share of the processors as before, and so have threads that it
/// starts. If the policy is not the usual one, an administrator has chosen it, and it stays.
/// Returns whether the policy is set; if the system refuses, only speed is lost.
#[allow(unsafe_code)]
pub fn work_in_batches() -> bool {
    // The only priority there is for it.
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread, and `parameters` lives until the call returns.
    unsafe {
        libc::sched_getscheduler(0) == libc::SCHED_OTHER
            && libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(unsafe_code)]
    fn a_thread_of_its_own_works_in_batches() {
        let policy = || {
            // SAFETY: reads a number; 0 is the calling thread.
            unsafe { libc::sched_getscheduler(0) }
        };
        let before = policy();
        let changed = thread::spawn(move || {
            let is_so = work_in_batches();
            assert!(!work_in_batches(), "another policy stays");
            (is_so, policy())
        });
        let changed = changed.join().expect("joined");
        assert!(matches!(changed, (true, libc::SCHED_BATCH) | (false, _)), "{changed:?}");
        assert_eq!(policy(), before, "other threads are as they were");
    }
}
