//! How many operations of a directory may be under way: as many as its threads can work on soon,
//! and no more stores than the memory has room for.
//!
//! A store holds its object in memory until it is done. On a disk that cannot keep up the queue is
//! as long as it may be, and on a machine with little memory it would leave the page cache too
//! little to serve hits from: then the disk has more to read, and takes even less. So all queues
//! together have a share of the memory, as much for each directory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::memory;
use crate::overload::OBJECT_BYTES_ABOUT;

/// Operations that store may be under way for each thread, before others are turned away. From half
/// of it on, Squid's bound, objects wait or are turned away that come for the first time.
pub(super) const STORES_PER_THREAD: usize = 40;

/// The same where memory is short: one is being done, and one waits.
pub(super) const STORES_PER_THREAD_LEAST: usize = 2;

/// Operations that may be under way, or done and not taken, for each thread, before nothing is
/// stored.
pub(super) const OUTCOMES_TO_STORE_PER_THREAD: usize = 60;

/// The same, before nothing is read: hits outlast stores.
pub(super) const OUTCOMES_PER_THREAD: usize = 80;

/// The first halves of all directories' queues take this part of the memory that this process can
/// have beyond its memory cache.
const HALVES_SHARE: u64 = 16;

/// Time between two looks at the memory.
const MEMORY_INTERVAL: Duration = Duration::from_secs(1);

/// Directories of this process. They share its memory.
static DIRECTORIES: AtomicUsize = AtomicUsize::new(0);

/// The bounds of one directory.
pub(super) struct Bounds {
    threads_max: usize,
    /// Operations that store.
    stores_max: AtomicUsize,
    looked: Mutex<Option<Instant>>,
}

impl Bounds {
    /// For a directory with this many threads, until the first look at the memory.
    pub(super) fn new(threads_max: usize) -> Self {
        DIRECTORIES.fetch_add(1, Ordering::Relaxed);
        let stores_max = AtomicUsize::new(threads_max * STORES_PER_THREAD);
        Self { threads_max, stores_max, looked: Mutex::default() }
    }

    /// Operations that store, before others are turned away.
    pub(super) fn stores_max(&self) -> usize {
        self.stores_max.load(Ordering::Relaxed)
    }

    /// Half of them.
    pub(super) fn half(&self) -> usize {
        self.stores_max() / 2
    }

    /// The same, however much memory there is.
    pub(super) fn half_most(&self) -> usize {
        self.threads_max * STORES_PER_THREAD / 2
    }

    /// Operations, before nothing is stored.
    pub(super) fn outcomes_to_store_max(&self) -> usize {
        self.threads_max * OUTCOMES_TO_STORE_PER_THREAD
    }

    /// Operations, before nothing is read.
    pub(super) fn outcomes_max(&self) -> usize {
        self.threads_max * OUTCOMES_PER_THREAD
    }

    /// Looks at the memory, if that was not done within the last second. It reads a few files of
    /// the system, so a thread of the directory calls it.
    pub(super) fn look_at_memory(&self) {
        {
            // Whoever comes meanwhile finds that somebody has looked.
            let Some(mut looked) = self.looked.try_lock() else { return };
            if looked.is_some_and(|at| at.elapsed() < MEMORY_INTERVAL) {
                return;
            }
            *looked = Some(Instant::now());
        }
        if let Some(available_bytes) = memory::available_bytes() {
            let room_bytes = memory::room_for_buffers(available_bytes);
            self.fit_into(room_bytes, DIRECTORIES.load(Ordering::Relaxed));
        }
    }

    /// This process can have this much memory beyond its memory cache, for so many directories.
    pub(super) fn fit_into(&self, room_bytes: u64, directories: usize) {
        let stores_max = stores_max(self.threads_max, room_bytes, directories);
        self.stores_max.store(stores_max, Ordering::Relaxed);
    }
}

impl Drop for Bounds {
    fn drop(&mut self) {
        DIRECTORIES.fetch_sub(1, Ordering::Relaxed);
    }
}

fn stores_max(threads_max: usize, room_bytes: u64, directories: usize) -> usize {
    let half_bytes = room_bytes / HALVES_SHARE / directories.max(1) as u64;
    let half = usize::try_from(half_bytes / OBJECT_BYTES_ABOUT).unwrap_or(usize::MAX);
    let least = threads_max * STORES_PER_THREAD_LEAST;
    half.saturating_mul(2).clamp(least, threads_max * STORES_PER_THREAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_take_their_share_of_the_memory_but_have_enough_for_each_thread() {
        let mib = |mib: u64| mib << 20;
        // 44 MiB for three directories: 938 KiB for each half.
        assert_eq!(stores_max(16, mib(44), 3), 2 * 72);
        assert_eq!(stores_max(16, mib(44), 1), 2 * 216);
        assert_eq!(stores_max(16, mib(2), 3), 2 * 16);
        assert_eq!(stores_max(16, 0, 0), 2 * 16);
        for mib_of_memory in [256, 1024, 1 << 43] {
            assert_eq!(stores_max(16, mib(mib_of_memory), 3), 16 * STORES_PER_THREAD);
        }
    }

    #[test]
    fn a_look_at_this_machine_leaves_what_each_thread_needs() {
        let bounds = Bounds::new(4);
        assert_eq!((bounds.stores_max(), bounds.half()), (160, 80));
        bounds.fit_into(0, 1);
        assert_eq!((bounds.stores_max(), bounds.half()), (8, 4));
        bounds.look_at_memory();
        let stores_max = bounds.stores_max();
        assert!(stores_max > 8, "{stores_max}");
        // Not again within the second.
        bounds.fit_into(0, 1);
        bounds.look_at_memory();
        assert_eq!(bounds.stores_max(), 8);
    }
}
