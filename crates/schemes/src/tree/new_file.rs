//! A file that is being written: its number, its bytes, and their release if it is never committed.
//!
//! It is shared between the writer and every operation on the file, so that number and bytes are
//! given back when the last of them has ended, however many futures were dropped before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use humboldt_store::index::IndexKey;
use humboldt_store::scheme::SchemeError;

use super::dir::Dir;

/// A new file.
pub(crate) struct NewFile {
    dir: Arc<Dir>,
    key: IndexKey,
    number: u32,
    /// Length that is counted as used.
    counted_bytes: AtomicU64,
    /// It may exist on disk.
    is_begun: AtomicBool,
    /// It will not be committed; its key is marked as leaving.
    is_abandoned: AtomicBool,
    is_committed: AtomicBool,
}

impl NewFile {
    /// Takes a number for an object of `key`, and room for `file_bytes` of it. Objects make way.
    pub(crate) async fn new(
        dir: &Arc<Dir>,
        key: IndexKey,
        file_bytes: u64,
    ) -> Result<Arc<Self>, SchemeError> {
        if !dir.make_room(0, file_bytes).await {
            return Err(SchemeError::Busy("directory is full"));
        }
        let number = dir.numbers().take();
        let Some(number) = number else {
            dir.space.resize(file_bytes, 0);
            return Err(SchemeError::Busy("no file numbers left"));
        };
        Ok(Arc::new(Self {
            dir: Arc::clone(dir),
            key,
            number,
            counted_bytes: AtomicU64::new(file_bytes),
            is_begun: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
            is_committed: AtomicBool::new(false),
        }))
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Length that is counted as used.
    pub(crate) fn counted_bytes(&self) -> u64 {
        self.counted_bytes.load(Ordering::Relaxed)
    }

    /// Makes sure that `file_bytes` are counted.
    pub(crate) async fn grow_to(&self, file_bytes: u64) -> Result<(), SchemeError> {
        let counted = self.counted_bytes.load(Ordering::Relaxed);
        if file_bytes > counted {
            if !self.dir.make_room(counted, file_bytes).await {
                return Err(SchemeError::Busy("directory is full"));
            }
            self.counted_bytes.store(file_bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The file has exactly `file_bytes` in the end.
    pub(crate) fn set_length(&self, file_bytes: u64) {
        let counted = self.counted_bytes.swap(file_bytes, Ordering::Relaxed);
        self.dir.space.resize(counted, file_bytes);
    }

    /// From now on it may exist on disk.
    pub(crate) fn begin(&self) {
        self.is_begun.store(true, Ordering::Relaxed);
    }

    /// It was refused before anything was done: it does not exist.
    pub(crate) fn not_begun(&self) {
        self.is_begun.store(false, Ordering::Relaxed);
    }

    /// It will not be committed any more. Operations on it may still be under way: a removal of the
    /// key waits for their end, because the file may be complete then.
    pub(crate) fn abandon(&self) {
        let is_committed = self.is_committed.load(Ordering::Relaxed);
        if !is_committed && self.is_begun.load(Ordering::Relaxed) {
            self.dir.lock_key(self.key).leaving.push(self.key);
            self.is_abandoned.store(true, Ordering::Relaxed);
        }
    }

    /// It is in the index: number and bytes are the index entry's.
    pub(crate) fn commit(&self) {
        self.is_committed.store(true, Ordering::Relaxed);
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        let (dir, counted) = (&self.dir, self.counted_bytes.load(Ordering::Relaxed));
        if self.is_committed.load(Ordering::Relaxed) {
            return;
        }
        if self.is_abandoned.load(Ordering::Relaxed) {
            dir.unlink_file(self.key, self.number, counted, None);
        } else if !dir.is_closed() {
            dir.space.resize(counted, 0);
            dir.numbers().give_back(self.number);
            dir.room_has_changed();
        }
    }
}
