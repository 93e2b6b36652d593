//! Room for new objects: which may come, and which leave for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use humboldt_store::index::{FileEntry, IndexKey};
use humboldt_store::scheme::{Record, RecordKind};

use super::dir::{Dir, Replaced, file_bytes};
use super::format::WHOLE_FILE_BYTES_MAX;
use super::log::LogRecord;
use super::operation::Counted;
use crate::overload::Turns;

/// Most objects evicted at once to make room for one that is to be, or has just been, stored.
const EVICTIONS_PER_STORE: usize = 64;

/// Most objects that wait at one time until files are unlinked. Each of them holds its body in
/// memory, and all of them look again after each unlink.
pub(crate) const WAITING_FOR_ROOM_MAX: usize = 64;

impl Dir {
    /// Whether an object is not to be stored, as others are that come for the second time.
    pub(crate) fn is_turned_away(&self, record: &Record, key: IndexKey) -> bool {
        let refuses = |turns: &Turns| turns.refuses(&record.key, || self.engine.is_half_full());
        record.kind == RecordKind::Object
            && self.engine.turns().is_some_and(refuses)
            && self.index.peek(key).is_none()
    }

    /// Near the high water mark each store evicts one object, and above it more: a round of upkeep
    /// that did it for all stores of its second would hold up everything with its unlinks.
    pub(crate) fn evict_for_store(self: &Arc<Self>, has_evicted: bool) {
        if !has_evicted && self.space.is_near_high() && self.evict_one() {
            self.evicted_by_stores.fetch_add(1, Ordering::Relaxed);
        }
        for _ in 1..EVICTIONS_PER_STORE {
            if !self.space.is_above_high() || !self.evict_one() {
                break;
            }
        }
    }

    /// Counts that a file grows from `before` to `after` bytes. Objects make way for it; `false` if
    /// there is no room, and none to come, or if too many new objects wait for it.
    pub(crate) async fn make_room(self: &Arc<Self>, before: u64, after: u64) -> bool {
        let mut place = None;
        let try_now = || {
            for _ in 0..EVICTIONS_PER_STORE {
                if self.space.try_resize(before, after) {
                    return Some(true);
                }
                if self.space.will_have_room(before, after)
                    || !self.rebuild.is_done()
                    || !self.evict_one()
                {
                    break;
                }
            }
            if self.space.try_resize(before, after) {
                return Some(true);
            }
            // An evicted object gives its bytes back when it is unlinked.
            if !self.space.will_have_room(before, after) || self.is_closed() {
                return Some(false);
            }
            // An object that is being written goes on: what it has written would be lost.
            if place.is_none() && before == 0 {
                if self.waiting_for_room.load(Ordering::Relaxed) >= WAITING_FOR_ROOM_MAX {
                    self.shed();
                    return Some(false);
                }
                place = Some(Counted::new(&self.waiting_for_room));
            }
            None
        };
        self.changed.until(try_now).await
    }

    /// Evicts an object; its file is unlinked. `false` if there is none, or no place for its file.
    pub(crate) fn evict_one(self: &Arc<Self>) -> bool {
        if self.engine.unlinks_are_full() {
            return false;
        }
        let Some((key, entry, _)) = self.pop_victim() else { return false };
        self.unlink(key, entry, None);
        true
    }

    /// Takes the policy's first candidate out of the index. Its key is marked as leaving, and its
    /// removal is logged. Also whether its file may be in use by others for long.
    fn pop_victim(self: &Arc<Self>) -> Option<(IndexKey, FileEntry, bool)> {
        let (key, entry, is_in_use, wants_flush) = {
            let _evicting = self.evicting.lock();
            let (key, entry) = self.index.pop_victim()?;
            let mut state = self.lock_key(key);
            state.leaving.push(key);
            // Readers of a longer file keep it open.
            let is_in_use =
                file_bytes(entry) > WHOLE_FILE_BYTES_MAX || state.updating.contains(&key);
            (key, entry, is_in_use, self.log.append(LogRecord::Remove(key, entry.file)))
        };
        self.flush_if(wants_flush);
        self.counts.evictions.fetch_add(1, Ordering::Relaxed);
        Some((key, entry, is_in_use))
    }

    /// Evicts an object near the high water mark, whose file is then overwritten. `None` if that is
    /// not so, or if its file cannot be used again: it is unlinked.
    pub(crate) fn evict_to_reuse(self: &Arc<Self>) -> Option<Replaced> {
        if !self.rebuild.is_done() || !self.space.is_near_high() || self.is_closed() {
            return None;
        }
        let (key, entry, is_in_use) = self.pop_victim()?;
        self.evicted_by_stores.fetch_add(1, Ordering::Relaxed);
        if is_in_use {
            self.unlink(key, entry, None);
            return None;
        }
        Some(Replaced::new(self, key, entry))
    }
}
