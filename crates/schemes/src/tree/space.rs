//! Room in a directory: bytes in use, water marks, full disks.

use crate::{DirOptions, Levels};
use std::sync::atomic::{AtomicU64, Ordering};

/// After the disk was full, the directory gets back 1/1024 of its size with each call of
/// `maintain`.
const RECOVERY_SHARE: u64 = 1024;

/// Bytes in use and how many there may be.
pub(crate) struct Space {
    used_bytes: AtomicU64,
    /// The part of them that is in files which are to be unlinked.
    leaving_bytes: AtomicU64,
    configured_bytes: u64,
    /// Usable size: less than configured for some time after the disk was found full.
    usable_bytes: AtomicU64,
    low_pct: u64,
    high_pct: u64,
    /// Unit of allocation of the file system.
    fs_block_bytes: u64,
}

impl Space {
    /// `fs_block_bytes` is at least 1.
    pub(crate) fn new(options: &DirOptions<Levels>, fs_block_bytes: u64) -> Self {
        Self {
            used_bytes: AtomicU64::new(0),
            leaving_bytes: AtomicU64::new(0),
            configured_bytes: options.capacity_bytes,
            usable_bytes: AtomicU64::new(options.capacity_bytes),
            low_pct: u64::from(options.swap_low_pct),
            high_pct: u64::from(options.swap_high_pct),
            fs_block_bytes: fs_block_bytes.max(1),
        }
    }

    /// Bytes that may still be used.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.usable().saturating_sub(self.used_bytes())
    }

    /// Bytes occupied by a file of `file_bytes`.
    pub(crate) fn occupied_bytes(&self, file_bytes: u64) -> u64 {
        file_bytes.div_ceil(self.fs_block_bytes).saturating_mul(self.fs_block_bytes)
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Counts a file that grew from `before` to `after` bytes, or shrank.
    pub(crate) fn resize(&self, before: u64, after: u64) {
        let (before, after) = (self.occupied_bytes(before), self.occupied_bytes(after));
        if after >= before {
            self.used_bytes.fetch_add(after - before, Ordering::Relaxed);
        } else {
            let shrink = |used: u64| Some(used.saturating_sub(before - after));
            let _ = self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, shrink);
        }
    }

    /// Counts a file that grows from `before` to `after` bytes, if use stays below the maximum.
    pub(crate) fn try_resize(&self, before: u64, after: u64) -> bool {
        let (before, after) = (self.occupied_bytes(before), self.occupied_bytes(after));
        let Some(more) = after.checked_sub(before).filter(|more| *more > 0) else {
            self.resize(before, after);
            return true;
        };
        let usable = self.usable();
        let grow = |used: u64| used.checked_add(more).filter(|sum| *sum <= usable);
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow).is_ok()
    }

    /// A file of `file_bytes` is to be unlinked. Its bytes are in use until that is done.
    pub(crate) fn is_leaving(&self, file_bytes: u64) {
        self.leaving_bytes.fetch_add(self.occupied_bytes(file_bytes), Ordering::Relaxed);
    }

    /// A file that was to be unlinked is, or could not be.
    pub(crate) fn has_left(&self, file_bytes: u64) {
        self.leaving_bytes.fetch_sub(self.occupied_bytes(file_bytes), Ordering::Relaxed);
    }

    /// Bytes that will be in use when all files are unlinked that are to be.
    fn lasting_bytes(&self) -> u64 {
        self.used_bytes().saturating_sub(self.leaving_bytes.load(Ordering::Relaxed))
    }

    /// Whether a file may grow from `before` to `after` bytes once all leaving files have left.
    pub(crate) fn will_have_room(&self, before: u64, after: u64) -> bool {
        let more = self.occupied_bytes(after).saturating_sub(self.occupied_bytes(before));
        self.lasting_bytes().saturating_add(more) <= self.usable()
    }

    /// Whether a file of `file_bytes` more would stay below the maximum.
    pub(crate) fn has_room(&self, file_bytes: u64) -> bool {
        self.used_bytes().saturating_add(self.occupied_bytes(file_bytes)) <= self.usable()
    }

    /// Whether an object of `file_bytes` may be begun: use is not over the maximum, and all the
    /// rest could make way for it, little by little as it arrives.
    pub(crate) fn admits(&self, file_bytes: u64) -> bool {
        self.has_room(0) && self.occupied_bytes(file_bytes) <= share(self.usable(), self.high_pct)
    }

    /// Whether the high water mark is exceeded, not counting leaving files.
    pub(crate) fn is_above_high(&self) -> bool {
        self.lasting_bytes() > share(self.usable(), self.high_pct)
    }

    /// Whether three quarters of the way from the low to the high water mark are exceeded, not
    /// counting leaving files.
    pub(crate) fn is_near_high(&self) -> bool {
        let (low, high) = (share(self.usable(), self.low_pct), share(self.usable(), self.high_pct));
        self.lasting_bytes() > low + high.saturating_sub(low) / 4 * 3
    }

    /// Whether the low water mark is exceeded, not counting leaving files.
    pub(crate) fn is_above_low(&self) -> bool {
        self.lasting_bytes() > share(self.usable(), self.low_pct)
    }

    /// Most objects that one round of eviction removes: Squid's 300 f + 20, where f is the position
    /// of the use between the low and the high water mark (more than 1 above it).
    pub(crate) fn eviction_quota(&self) -> u64 {
        let (low, high) = (share(self.usable(), self.low_pct), share(self.usable(), self.high_pct));
        let above = u128::from(self.lasting_bytes().saturating_sub(low));
        let span = u128::from(high.saturating_sub(low).max(1));
        u64::try_from(300 * above / span).unwrap_or(u64::MAX).saturating_add(20)
    }

    /// The disk is full, with less in the directory than configured: go on with the present size.
    /// `refused_bytes` of it are counted for the file that found no room.
    pub(crate) fn disk_is_full(&self, refused_bytes: u64) {
        let there = self.used_bytes().saturating_sub(self.occupied_bytes(refused_bytes));
        self.usable_bytes.fetch_min(there, Ordering::Relaxed);
    }

    /// Gives back, little by little, the room that [`Space::disk_is_full`] took.
    pub(crate) fn recover(&self) {
        let usable = self.usable();
        if usable < self.configured_bytes {
            let more = usable.saturating_add(self.configured_bytes / RECOVERY_SHARE + 1);
            self.usable_bytes.store(more.min(self.configured_bytes), Ordering::Relaxed);
        }
    }

    fn usable(&self) -> u64 {
        self.usable_bytes.load(Ordering::Relaxed)
    }
}

fn share(bytes: u64, percent: u64) -> u64 {
    bytes / 100 * percent + bytes % 100 * percent / 100
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::DirOptions;

    fn space() -> Space {
        Space::new(&DirOptions::new("/x", 1_000_000), 1000)
    }

    #[test]
    fn bytes_are_counted_in_blocks_of_the_file_system() {
        let space = space();
        space.resize(0, 1);
        space.resize(0, 1001);
        assert_eq!(space.used_bytes(), 3000);
        space.resize(1001, 1999);
        assert_eq!(space.used_bytes(), 3000);
        space.resize(1999, 0);
        space.resize(1, 0);
        space.resize(1, 0);
        assert_eq!(space.used_bytes(), 0);
    }

    #[test]
    fn water_marks_and_squids_quota() {
        let space = space();
        space.resize(0, 900_000);
        assert!(!space.is_above_low() && space.eviction_quota() == 20);
        space.resize(0, 50_000);
        assert!(space.is_above_low() && !space.is_above_high());
        assert_eq!(space.eviction_quota(), 320);
        space.resize(0, 50_000);
        assert!(space.is_above_high() && space.eviction_quota() == 620);
        assert!(!space.has_room(1) && space.has_room(0));
        assert!(space.admits(950_000) && !space.admits(950_001));
        space.resize(0, 1);
        assert!(!space.admits(1));
    }

    #[test]
    fn what_is_leaving_is_in_use_until_it_has_left() {
        let space = space();
        assert!(space.try_resize(0, 960_000) && !space.try_resize(960_000, 1_000_001));
        assert!(space.is_above_high());
        space.is_leaving(60_000);
        assert!(!space.is_above_high() && !space.is_above_low() && space.eviction_quota() == 20);
        assert!(space.will_have_room(0, 100_000) && !space.try_resize(0, 100_000));
        assert_eq!(space.used_bytes(), 960_000);
        space.has_left(60_000);
        space.resize(60_000, 0);
        assert!(space.try_resize(0, 100_000) && space.used_bytes() == 1_000_000);
        assert!(
            space.try_resize(100_000, 5) && space.used_bytes() == 901_000,
            "to shrink is always allowed"
        );
    }

    #[test]
    fn a_full_disk_shrinks_the_directory_for_a_while() {
        let space = space();
        space.resize(0, 500_000);
        space.disk_is_full(0);
        assert!(space.is_above_high() && !space.has_room(1));
        (0..2000).for_each(|_| space.recover());
        assert!(space.has_room(500_000) && !space.has_room(500_001));
    }

    #[test]
    fn what_found_no_room_on_a_full_disk_is_no_room_for_others() {
        let space = space();
        space.resize(0, 500_000);
        space.disk_is_full(100_000);
        space.resize(100_000, 0);
        assert!(space.has_room(0) && !space.has_room(1));
    }
}
