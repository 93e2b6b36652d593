//! Processors: how many may be used.

use std::thread;

/// Processors this process may use: its affinity mask and its control group's quota count. At least 1.
pub fn usable() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// From now on the calling thread interrupts no other when it is woken (`SCHED_BATCH`): for threads that work through queues beside
/// the cores. A core that hands out an operation goes on with its turn instead of being put aside for each of them, and the thread
/// then finds several to do. It gets its share of the processors as before. Systems that refuse are as good as without.
#[allow(unsafe_code)]
pub fn work_in_batches() {
    // The only priority there is for it.
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread, and `parameters` lives until the call returns.
    _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
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
            work_in_batches();
            policy()
        });
        assert_eq!(changed.join().expect("joined"), libc::SCHED_BATCH);
        assert_eq!(policy(), before, "other threads are as they were");
    }
}
