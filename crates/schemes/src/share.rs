//! The part of this process's memory that an open directory may have.
//!
//! What waits for a slow disk takes memory. On a small machine the page cache or the sockets of
//! clients need this memory. So schemes that let much wait ask for their [`Share`], and keep what
//! waits below a part of it. The directories of `aufs`, `coss` and `rock` have equal shares; `ring`
//! counts its own directories, as if there were no others.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use humboldt_runtime::turns::blocking;
use parking_lot::Mutex;

use crate::{memory, simulated};

/// Time between two looks at the memory: those that come once a second may be early.
const LOOK_INTERVAL: Duration = Duration::from_millis(900);

/// The memory of this process, in which its directories have shares.
static OF_PROCESS: LazyLock<Arc<Shared>> = LazyLock::new(Arc::default);

/// Memory that directories share.
pub(crate) struct Shared {
    /// The directories that have a share.
    directories: AtomicUsize,
    /// What they share, as it was at the last look: all memory that this process can have beyond
    /// its memory cache. Before the first look it is not short.
    whole_bytes: AtomicU64,
    looks: Looks,
}

impl Default for Shared {
    fn default() -> Self {
        let whole_bytes = AtomicU64::new(u64::MAX);
        Self { directories: AtomicUsize::new(0), whole_bytes, looks: Looks::default() }
    }
}

impl Shared {
    /// That of the directories of this process. Each unit test has its own.
    fn current() -> Arc<Self> {
        if cfg!(test) { Arc::default() } else { Arc::clone(&OF_PROCESS) }
    }

    /// Looks at the memory, unless another directory has done so in the last [`LOOK_INTERVAL`].
    fn look(&self, now: Instant) {
        self.looks.if_due(now, || self.read());
    }

    fn read(&self) {
        let Some(available_bytes) = memory::available_bytes() else { return };
        let whole_bytes = memory::room_for_buffers(available_bytes);
        self.whole_bytes.store(whole_bytes, Ordering::Relaxed);
        memory::limit_spare_buffers(whole_bytes);
    }
}

/// When the last look at the memory was.
#[derive(Default)]
struct Looks(Mutex<Option<Instant>>);

impl Looks {
    /// Looks, if the last look was long enough before; `true` if so. Who comes meanwhile waits for
    /// the look.
    fn if_due(&self, now: Instant, look: impl FnOnce()) -> bool {
        let mut last = self.0.lock();
        if last.is_some_and(|at| now.saturating_duration_since(at) < LOOK_INTERVAL) {
            return false;
        }
        look();
        *last = Some(now);
        true
    }
}

/// The memory cache of this process may take `bytes` (`cache_mem`): directories share the rest.
/// Reads a few files of the system, so that the first directory knows its part.
pub fn promise_memory(bytes: u64) {
    memory::promise(bytes);
    OF_PROCESS.read();
}

/// The share of one directory, until it leaves or is dropped.
pub(crate) struct Share {
    of: Arc<Shared>,
    /// This directory's own looks: `aufs` and `rock` see to those who wait for memory after each.
    looks: Looks,
    is_counted: AtomicBool,
    /// On a simulated disk memory is never short: the machine's does not follow from a seed.
    is_simulated: bool,
}

impl Share {
    /// The share of a directory that is being opened.
    pub(crate) fn new() -> Self {
        Self::of(Shared::current())
    }

    /// A share of this memory.
    pub(crate) fn of(shared: Arc<Shared>) -> Self {
        shared.directories.fetch_add(1, Ordering::Relaxed);
        Self {
            of: shared,
            looks: Looks::default(),
            is_counted: AtomicBool::new(true),
            is_simulated: simulated::current().is_some(),
        }
    }

    /// The directory stores nothing any more: the others have its memory.
    pub(crate) fn leave(&self) {
        if self.is_counted.swap(false, Ordering::Relaxed) {
            self.of.directories.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[cfg(test)]
    pub(crate) fn has_left(&self) -> bool {
        !self.is_counted.load(Ordering::Relaxed)
    }

    /// The bytes that this directory may have: as many as each of the others.
    pub(crate) fn part_bytes(&self) -> u64 {
        if self.is_simulated {
            return u64::MAX;
        }
        let directories = self.of.directories.load(Ordering::Relaxed).max(1) as u64;
        self.of.whole_bytes.load(Ordering::Relaxed) / directories
    }

    /// Sees to it that the memory was looked at within two seconds; `true` about once a second. It
    /// may read a few files of the system, so it must not be called on a core.
    pub(crate) fn look(&self) -> bool {
        self.look_at(Instant::now())
    }

    fn look_at(&self, now: Instant) -> bool {
        let is_time = self.is_time_to_look(now);
        if is_time {
            self.of.look(now);
        }
        is_time
    }

    /// The same from a core: another thread reads the files.
    pub(crate) async fn look_from_core(&self) -> bool {
        let now = Instant::now();
        let is_time = self.is_time_to_look(now);
        if is_time {
            let shared = Arc::clone(&self.of);
            // Should the thread fail, what was seen before holds for another second.
            let _ = blocking(move || shared.look(now)).await;
        }
        is_time
    }

    fn is_time_to_look(&self, now: Instant) -> bool {
        !self.is_simulated && self.looks.if_due(now, || ())
    }

    /// The memory to share is this much, until the next look.
    #[cfg(test)]
    pub(crate) fn set_whole(&self, bytes: u64) {
        self.of.whole_bytes.store(bytes, Ordering::Relaxed);
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

    #[test]
    fn directories_share_the_memory_until_they_leave() {
        let shared = Arc::<Shared>::default();
        let [first, second, third] = [(); 3].map(|()| Share::of(Arc::clone(&shared)));
        first.set_whole(96);
        assert_eq!([&first, &second, &third].map(Share::part_bytes), [32; 3]);
        second.leave();
        second.leave();
        assert_eq!([&first, &third].map(Share::part_bytes), [48; 2]);
        drop((second, third));
        assert_eq!(first.part_bytes(), 96);
        drop(first);
        assert_eq!(shared.directories.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn one_directory_looks_at_the_memory_for_all() {
        let shared = Arc::<Shared>::default();
        let [first, second] = [(); 2].map(|()| Share::of(Arc::clone(&shared)));
        let (start, of_a_machine) = (Instant::now(), 1..1 << 50);
        first.set_whole(0);
        assert!(first.look_at(start));
        assert!(of_a_machine.contains(&second.part_bytes()));
        first.set_whole(2);
        assert!(!first.look_at(start), "once a second");
        assert!(second.look_at(start), "it has not seen to its own yet");
        assert_eq!(second.part_bytes(), 1, "but the memory was looked at just now");
    }

    #[test]
    fn a_core_has_another_thread_look() {
        let share = Share::of(Arc::default());
        assert!(run(share.look_from_core()));
        assert!(share.part_bytes() < u64::MAX);
    }

    #[test]
    fn a_look_is_due_once_a_second() {
        let (looks, start) = (Looks::default(), Instant::now());
        let due = [0, 400, 899, 900, 1500, 1800];
        let due = due.map(|ms| looks.if_due(start + Duration::from_millis(ms), || ()));
        assert_eq!(due, [true, false, false, true, false, true]);
    }

    #[test]
    fn the_first_directory_of_a_process_knows_its_part() {
        promise_memory(0);
        let of_a_machine = 1..1 << 50;
        assert!(of_a_machine.contains(&Share::of(Arc::clone(&OF_PROCESS)).part_bytes()));
    }
}
