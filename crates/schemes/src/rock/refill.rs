//! Finding the stored objects: from the snapshot of a clean stop, or by a scan of all slots.
//!
//! A short snapshot is read while the directory is opened. The rest is the work of a thread of its
//! own, which the first call of `maintain` starts. Objects that are not known yet are misses. While
//! slots are scanned, new objects go to those that are known to be free; nothing is evicted.

use std::sync::Arc;

use super::device::CLOSE_PATIENCE;
use super::dir::Dir;
use super::rebuild::Job;
use super::scan;
use super::slots::{Run, Slots, Tag};
use super::snapshot::{self, Item, Snapshot};
use crate::simulated::Background;

/// A snapshot of up to this many items is read while the directory is opened (some tenths of a
/// second).
const INLINE_ITEMS_MAX: u64 = 262_144;

/// Reads the snapshot if it is short.
pub(crate) fn begin(dir: &Arc<Dir>) {
    let mut job = dir.rebuild.job.lock();
    let Some(Job::Read(number)) = &*job else { return };
    match Snapshot::open(dir, *number) {
        Some(found) if found.items > INLINE_ITEMS_MAX => {}
        Some(found) => {
            *job = None;
            if !read(dir, found) {
                *job = Some(Job::Scan);
            }
        }
        None => *job = Some(Job::Scan),
    }
}

/// Starts the thread if there is something to do.
pub(crate) fn go_on(dir: &Arc<Dir>) {
    let Some(job) = dir.rebuild.job.lock().take() else { return };
    let for_thread = Arc::clone(dir);
    let work = move || {
        let dir = &for_thread;
        let is_read = match job {
            Job::Read(number) => Snapshot::open(dir, number).is_some_and(|found| read(dir, found)),
            Job::Scan => false,
        };
        if is_read || dir.rebuild.is_stopped() {
            return;
        }
        scan_all(dir, || ());
    };
    match Background::once("rock-rebuild", work) {
        Ok(thread) => *dir.rebuild.thread.lock() = Some(thread),
        Err(error) => {
            tracing::error!("{}: cannot start the rebuild: {error}", dir.options.path.display());
        }
    }
}

/// Looks at all slots; `meanwhile` happens when it has begun.
fn scan_all(dir: &Arc<Dir>, meanwhile: impl FnOnce()) {
    *dir.rebuild.leftover.lock() = None;
    let end = scan::begin(dir);
    meanwhile();
    scan::scan(dir, end);
    if !dir.rebuild.is_stopped() {
        finish(dir);
    }
}

/// Does the whole scan on this thread, with `meanwhile` at its beginning.
#[cfg(test)]
pub(crate) fn scan_here(dir: &Arc<Dir>, meanwhile: impl FnOnce()) {
    assert!(matches!(dir.rebuild.job.lock().take(), Some(Job::Scan)));
    scan_all(dir, meanwhile);
}

fn finish(dir: &Dir) {
    snapshot::remove(dir);
    dir.rebuild.set_done(dir);
    dir.changed.notify_waiters();
    tracing::info!("{}: {} objects", dir.options.path.display(), dir.index.len());
}

/// Enters a snapshot into the index; `false` if it is not good, and the index is empty again.
fn read(dir: &Arc<Dir>, mut found: Snapshot) -> bool {
    let total = dir.slots.lock().total();
    let mut seen = vec![0_u64; total.div_ceil(64) as usize];
    let mut done = 0;
    let outcome = loop {
        if dir.rebuild.is_stopped() {
            return false;
        }
        match found.next_block() {
            Ok(items) if items.is_empty() => break Ok(()),
            Ok(items) => {
                done += items.len() as u64;
                if !items.into_iter().all(|item| enter(dir, item, &mut seen, total)) {
                    break Err("it contradicts itself".to_owned());
                }
            }
            Err(error) => break Err(error.to_string()),
        }
        dir.rebuild.set_percent(done, found.items);
    };
    if let Err(reason) = outcome {
        let path = dir.options.path.display();
        tracing::warn!(
            "{path}: the snapshot of the index is of no use ({reason}): looking at all slots"
        );
        start_again(dir, total);
        return false;
    }
    scan::free_where(dir, total, |slot| {
        seen.get(slot as usize / 64).is_some_and(|w| w >> (slot % 64) & 1 == 0)
    });
    let leftover = dir.rebuild.leftover.lock().take();
    dir.slots.lock().give_back(&leftover.unwrap_or_default());
    finish(dir);
    true
}

/// Empties index and books for a scan, which must find all slots taken, and none of them freed
/// behind its back.
fn start_again(dir: &Dir, total: u32) {
    while dir.index.pop_victim().is_some() {}
    {
        let mut slots = dir.slots.lock();
        let written_end = slots.written_end();
        *slots = Slots::taken(total);
        slots.set_written(written_end);
    }
    // From now on a purge finds nothing to do. Those before are to end before the scan begins.
    while !dir.device.settle(CLOSE_PATIENCE) && !dir.rebuild.is_stopped() {}
}

/// Enters one item; `false` if it contradicts others.
fn enter(dir: &Arc<Dir>, item: Item, seen: &mut [u64], total: u32) -> bool {
    match item {
        Item::Object(key, entry, runs) => {
            let wanted = dir.slots_of(entry);
            let runs =
                if runs.is_empty() { vec![Run { start: entry.file, len: wanted }] } else { runs };
            let len = runs.iter().map(|run| u64::from(run.len)).sum::<u64>();
            if len != u64::from(wanted) || runs.first().is_none_or(|run| run.start != entry.file) {
                return false;
            }
            if runs.iter().any(|run| u64::from(run.start) + u64::from(run.len) > u64::from(total)) {
                return true; // the directory has become smaller: its other slots are freed
            }
            for slot in runs.iter().flat_map(|run| run.start..run.start + run.len) {
                let Some(word) = seen.get_mut(slot as usize / 64) else { return false };
                if *word >> (slot % 64) & 1 == 1 {
                    return false;
                }
                *word |= 1 << (slot % 64);
            }
            dir.slots.lock().chain(&runs);
            // Every object of a snapshot is older than every purge since the start.
            let is_dead = dir.rebuild.unless_forgotten(Tag::from(key), 0, |is_forgotten| {
                if !is_forgotten {
                    dir.index.insert(key, entry);
                }
                is_forgotten
            });
            if is_dead {
                scan::overwrite(dir, entry.file);
                dir.slots.lock().give_back(&runs);
            }
            true
        }
        Item::Stale(tag, slot) => {
            let is_dead = dir.rebuild.unless_forgotten(tag, 0, |is_forgotten| {
                if !is_forgotten && slot < total {
                    dir.slots.lock().give_back_stale(slot, tag);
                }
                is_forgotten
            });
            if is_dead && slot < total {
                scan::overwrite(dir, slot);
            }
            true
        }
    }
}
