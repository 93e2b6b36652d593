//! Room for new objects: which may come, and which leave for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use humboldt_store::index::IndexKey;
use humboldt_store::scheme::{Record, RecordKind};

use super::dir::Dir;
use super::format::BLOCK_BYTES;
use super::log::LogRecord;
use super::operation::Counted;
use crate::overload::Turns;

/// Most objects evicted at once to make room for one that is to be, or has just been, stored.
const EVICTIONS_PER_STORE: usize = 64;

/// Most objects that wait at one time until files are unlinked. Each of them holds its body in
/// memory, and all of them look again after each unlink.
pub(crate) const WAITING_FOR_ROOM_MAX: usize = 64;

/// An object that waits until files are unlinked. With its end others may have their turn.
struct WaitsForRoom<'a> {
    dir: &'a Dir,
    counted: Option<Counted>,
}

impl Drop for WaitsForRoom<'_> {
    fn drop(&mut self) {
        self.counted = None;
        self.dir.look_at_the_line();
    }
}

impl Dir {
    /// Lets no more objects in than find room in the directory, or may wait for it
    /// (`overload=wait`). None of them needs more than a block at first. One that waits counts here
    /// and has its place too, so about half of [`WAITING_FOR_ROOM_MAX`] are let in: the others are
    /// for those who go on without a place, as their time is up.
    pub(super) fn limit_turns(&self) {
        let (space, waiting) = (Arc::clone(&self.space), Arc::clone(&self.waiting_for_room));
        let limit = move || {
            let may_wait = WAITING_FOR_ROOM_MAX.saturating_sub(waiting.load(Ordering::Relaxed));
            space.free_bytes() / BLOCK_BYTES as u64 + may_wait as u64
        };
        if let Some(turns) = self.engine.turns() {
            turns.limit(limit);
        }
    }

    /// There may be more room than before.
    pub(super) fn room_has_changed(&self) {
        self.changed.wake_all();
        self.look_at_the_line();
    }

    fn look_at_the_line(&self) {
        if let Some(turns) = self.engine.turns() {
            turns.look();
        }
    }

    /// Whether an object is not to be stored, as others are that come for the second time.
    pub(crate) fn is_turned_away(&self, record: &Record, key: IndexKey) -> bool {
        let refuses = |turns: &Turns| turns.refuses(&record.key, || self.engine.is_half_full());
        record.kind == RecordKind::Object
            && self.engine.turns().is_some_and(refuses)
            && self.index.peek(key).is_none()
    }

    /// Near the high water mark each store evicts one object, and above it more: a round of upkeep
    /// that did it for all stores of its second would hold up everything with its unlinks.
    pub(crate) fn evict_for_store(self: &Arc<Self>) {
        if self.space.is_near_high() {
            self.evict_one();
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
                let counted = Some(Counted::new(&self.waiting_for_room));
                place = Some(WaitsForRoom { dir: self, counted });
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
        let (key, entry, wants_flush) = {
            let _evicting = self.evicting.lock();
            let Some((key, entry)) = self.index.pop_victim() else { return false };
            let mut state = self.lock_key(key);
            state.leaving.push(key);
            (key, entry, self.log.append(LogRecord::Remove(key, entry.file)))
        };
        self.flush_if(wants_flush);
        self.unlink(key, entry, None);
        self.counts.evictions.fetch_add(1, Ordering::Relaxed);
        true
    }
}
