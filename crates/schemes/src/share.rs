//! The part of this process's memory that is an open directory's.
//!
//! What waits for a slow disk takes memory, which on a small machine the page cache or the sockets
//! of clients would need. So schemes that let much wait bound it by their part. Directories of all
//! schemes that have a [`Share`] have equal parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use humboldt_runtime::turns::blocking;
use parking_lot::Mutex;

use crate::{memory, simulated};

/// Time between two looks at the memory: those that come once a second may be early.
const LOOK_INTERVAL: Duration = Duration::from_millis(900);

/// The directories of this process that have a share.
static DIRECTORIES: AtomicUsize = AtomicUsize::new(0);

/// Memory that this process can have beyond its memory cache, as it was at the last look. Before
/// the first look it is not short.
static ROOM_BYTES: AtomicU64 = AtomicU64::new(u64::MAX);

/// The share of one directory, until it leaves or is dropped.
pub(crate) struct Share {
    room_bytes: AtomicU64,
    looked: Mutex<Option<Instant>>,
    directories: &'static AtomicUsize,
    is_counted: AtomicBool,
    is_simulated: bool,
}

impl Share {
    /// Of a directory that is being opened.
    pub(crate) fn new() -> Self {
        let share = Self::beside(&DIRECTORIES);
        if !share.is_simulated {
            share.fit_into(ROOM_BYTES.load(Ordering::Relaxed));
        }
        share
    }

    /// The same, counted among these directories. Memory is not short.
    pub(crate) fn beside(directories: &'static AtomicUsize) -> Self {
        directories.fetch_add(1, Ordering::Relaxed);
        Self {
            room_bytes: AtomicU64::new(u64::MAX),
            looked: Mutex::default(),
            directories,
            is_counted: AtomicBool::new(true),
            is_simulated: simulated::current().is_some(),
        }
    }

    /// The directory stores nothing any more: the others have its memory.
    pub(crate) fn leave(&self) {
        if self.is_counted.swap(false, Ordering::Relaxed) {
            self.directories.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[cfg(test)]
    pub(crate) fn has_left(&self) -> bool {
        !self.is_counted.load(Ordering::Relaxed)
    }

    /// Bytes of it.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.room_bytes.load(Ordering::Relaxed)
    }

    /// Looks at the memory, if that was not done within about a second; `true` if it has. It reads
    /// a few files of the system, so no core calls it.
    pub(crate) fn look(&self) -> bool {
        self.is_time_to_look(Instant::now()) && self.read()
    }

    /// The same from a core: another thread reads the files.
    pub(crate) async fn look_from_core(self: &Arc<Self>) -> bool {
        if !self.is_time_to_look(Instant::now()) {
            return false;
        }
        let share = Arc::clone(self);
        blocking(move || share.read()).await.unwrap_or(false)
    }

    fn read(&self) -> bool {
        let Some(available_bytes) = memory::available_bytes() else { return false };
        let room_bytes = memory::room_for_buffers(available_bytes);
        ROOM_BYTES.store(room_bytes, Ordering::Relaxed);
        memory::limit_spare_buffers(room_bytes);
        self.fit_into(room_bytes);
        true
    }

    /// Never on a simulated disk: the machine's memory does not follow from a seed.
    fn is_time_to_look(&self, now: Instant) -> bool {
        if self.is_simulated {
            return false;
        }
        // If it is locked, another thread is about to look.
        let Some(mut looked) = self.looked.try_lock() else { return false };
        if looked.is_some_and(|at| now.saturating_duration_since(at) < LOOK_INTERVAL) {
            return false;
        }
        *looked = Some(now);
        true
    }

    /// This process can have this much memory beyond its memory cache.
    pub(crate) fn fit_into(&self, room_bytes: u64) {
        let directories = self.directories.load(Ordering::Relaxed).max(1) as u64;
        self.room_bytes.store(room_bytes / directories, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::battery::run;

    fn counter() -> &'static AtomicUsize {
        Box::leak(Box::default())
    }

    #[test]
    fn directories_share_the_memory_until_they_leave() {
        let all = counter();
        let [first, second, third] = [(); 3].map(|()| Share::beside(all));
        assert_eq!(first.room_bytes(), u64::MAX);
        first.fit_into(96);
        assert_eq!(first.room_bytes(), 32);
        second.leave();
        second.leave();
        first.fit_into(96);
        assert_eq!(first.room_bytes(), 48);
        drop((second, third));
        first.fit_into(96);
        assert_eq!(first.room_bytes(), 96);
        drop(first);
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_memory_of_this_machine_is_looked_at_once_a_second() {
        let share = Arc::new(Share::beside(counter()));
        assert!(run(share.look_from_core()));
        let of_a_machine = 1..1 << 50;
        assert!(of_a_machine.contains(&share.room_bytes()));
        let next = Share::new().room_bytes();
        assert!(next < of_a_machine.end, "what was seen last holds from the start");
        let share = Share::beside(counter());
        let start = Instant::now();
        let looks = [0, 400, 899, 900, 1500, 1800];
        let looks = looks.map(|ms| share.is_time_to_look(start + Duration::from_millis(ms)));
        assert_eq!(looks, [true, false, false, true, false, true]);
    }
}
