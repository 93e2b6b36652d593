//! How many stores of a directory may be under way: as many as its disk can work on soon, and no
//! more than the memory has room for.
//!
//! A store holds its object in memory until it is done. On a disk that cannot keep up the queue is
//! as long as it may be, and on a machine with little memory it would leave the page cache too
//! little to serve hits from: then the disk has more to read, and takes even less. So all queues
//! together have a share of the memory, as much for each directory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::overload::{OBJECT_BYTES_ABOUT, Room};
use crate::share::Share;

/// Bytes of the first half of a directory's queue may be this part of its share of the memory.
const HALVES_SHARE: u64 = 16;

/// Lower bound of these bytes when memory is short: about 80 objects of the usual length. With
/// fewer places, objects of slow servers would keep others waiting.
pub(crate) const HALF_BYTES_LEAST: u64 = 1024 * 1024;

/// The bounds of one directory.
pub(crate) struct Bounds {
    stores_max: usize,
    /// What the directory may have of the memory.
    pub(crate) share: Arc<Share>,
}

/// The operations of a directory that store, and wait for the disk or are being done.
#[derive(Clone, Default)]
pub(crate) struct Stores {
    /// Their number.
    count: Arc<AtomicUsize>,
    /// Bytes that they store.
    bytes: Arc<AtomicU64>,
    /// How long the one that the disk began with last had waited for it, in microseconds.
    wait_us: Arc<AtomicU64>,
}

impl Stores {
    /// One more, which stores these bytes.
    pub(crate) fn begin(&self, bytes: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// One less.
    pub(crate) fn end(&self, bytes: u64) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The disk begins with one that has waited for this time.
    pub(crate) fn note_wait(&self, wait: Duration) {
        let us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        self.wait_us.store(us, Ordering::Relaxed);
    }

    /// How long the one that the disk began with last had waited.
    pub(crate) fn wait(&self) -> Duration {
        Duration::from_micros(self.wait_us.load(Ordering::Relaxed))
    }

    /// Their number.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Bounds {
    /// For a directory in which `stores_max` may be under way where memory is not short.
    pub(crate) fn new(stores_max: usize) -> Self {
        Self { stores_max, share: Arc::new(Share::new()) }
    }

    /// Whether one more store may begin.
    pub(crate) fn may_begin(&self, stores: &Stores) -> bool {
        stores.count() < self.stores_max && stores.bytes() < 2 * self.half_bytes()
    }

    /// Whether half of what may be under way is.
    pub(crate) fn is_half_full(&self, stores: &Stores) -> bool {
        stores.count() >= self.half() || stores.bytes() >= self.half_bytes()
    }

    /// How far the stores are on their way to the bound, of 1000.
    pub(crate) fn load(&self, stores: &Stores) -> u16 {
        let of = |part: u64, whole: u64| u128::from(part) * 1000 / u128::from(whole.max(1));
        let by_count = of(stores.count() as u64, self.stores_max as u64);
        let by_bytes = of(stores.bytes(), 2 * self.half_bytes());
        u16::try_from(by_count.max(by_bytes).min(1000)).unwrap_or(1000)
    }

    /// Room in the first half of the queue, in objects of the usual length.
    pub(crate) fn room(&self, stores: &Stores) -> Room {
        let half_bytes = self.half_bytes();
        let objects = |bytes: u64| bytes / OBJECT_BYTES_ABOUT;
        let half = (self.half() as u64).min(objects(half_bytes));
        let by_count = self.half().saturating_sub(stores.count()) as u64;
        let by_bytes = objects(half_bytes.saturating_sub(stores.bytes()));
        Room::beside(half - by_count.min(by_bytes).min(half), half)
    }

    /// Half of the operations that may be under way to store, however much memory there is.
    pub(crate) fn half(&self) -> usize {
        self.stores_max / 2
    }

    /// Bytes of the first half of the queue, by the memory there is.
    pub(crate) fn half_bytes(&self) -> u64 {
        (self.share.part_bytes() / HALVES_SHARE).max(HALF_BYTES_LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn stores(count: usize, bytes: u64) -> Stores {
        let stores = Stores::default();
        stores.count.store(count, Ordering::Relaxed);
        stores.bytes.store(bytes, Ordering::Relaxed);
        stores
    }

    #[test]
    fn with_memory_the_number_of_stores_bounds_and_without_their_bytes() {
        let share = Arc::new(Share::of(Arc::default()));
        let bounds = Bounds { stores_max: 640, share: Arc::clone(&share) };
        let all = |stores: &Stores| {
            (bounds.may_begin(stores), bounds.is_half_full(stores), bounds.load(stores))
        };
        for memory in [None, Some(1 << 40)] {
            memory.into_iter().for_each(|bytes| share.set_whole(bytes));
            assert_eq!(all(&stores(319, 30 * MIB)), (true, false, 498));
            assert_eq!(all(&stores(320, 30 * MIB)), (true, true, 500));
            assert_eq!(all(&stores(640, 0)), (false, true, 1000));
            assert_eq!(bounds.room(&stores(300, 30 * MIB)), Room::beside(300, 320));
        }
        share.set_whole(32 * MIB);
        assert_eq!(all(&stores(10, 2 * MIB - 1)), (true, false, 499));
        assert_eq!(all(&stores(10, 2 * MIB)), (true, true, 500));
        assert_eq!(all(&stores(10, 4 * MIB)), (false, true, 1000));
        assert_eq!(all(&stores(640, 0)), (false, true, 1000));
        // 157 objects of 13 KiB; those that are small leave as much room as their number.
        assert_eq!(bounds.room(&stores(0, 0)), Room::beside(0, 157));
        assert_eq!(bounds.room(&stores(10, MIB)), Room::beside(79, 157));
        assert_eq!(bounds.room(&stores(310, 0)), Room::beside(147, 157));
        assert_eq!(bounds.room(&stores(900, 9 * MIB)), Room::beside(157, 157));
    }
}
