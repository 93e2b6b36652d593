//! The one thread of a store. It writes, reads the tables of stripes that will be overwritten, and
//! rebuilds the index.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use humboldt_base::vital::Vital;
use humboldt_runtime::mailbox::Waiting;
use humboldt_store::index::FileIndex;
use humboldt_store::scheme::SchemeError;

use super::dir::Dir;
use super::format::{
    BLOCK_BYTES, PURGES_OFFSET, STRIPE_BYTES, StripeName, TRAILER_BYTES, UNIT_BYTES,
};
use super::purges::Batch;
use super::rebuild;
use super::stripes::{Log, Unwritten, Victims};
use crate::simulated::{Background, Next};

impl Dir {
    /// Starts the worker at the first use.
    pub(super) fn start_worker(self: &Arc<Self>) -> Result<(), SchemeError> {
        if self.has_worker.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut worker = self.worker.lock();
        if worker.is_none() && !self.is_stopping() {
            *worker = Some(spawn(self).map_err(|e| self.io_error("start a thread for", e))?);
            self.has_worker.store(true, Ordering::Release);
        }
        Ok(())
    }
}

fn spawn(dir: &Arc<Dir>) -> io::Result<Background> {
    let (of_thread, of_steps) = (Arc::clone(dir), Arc::clone(dir));
    let all = move || {
        let _vital = Vital::new("the thread of a coss cache_dir");
        rebuild::run(&of_thread);
        while let Some(work) = wait_for_work(&of_thread) {
            do_work(&of_thread, work);
            // While the disk is overtaken, `maintain` waits for this thread and does not look.
            of_thread.share.look();
        }
    };
    let mut is_rebuilt = false;
    let step = move || {
        if !std::mem::replace(&mut is_rebuilt, true) {
            rebuild::run(&of_steps);
            return Next::Again;
        }
        let work = {
            let mut log = of_steps.log.lock();
            if log.is_stopped {
                return Next::Ended;
            }
            choose(&of_steps, &mut log)
        };
        let Some(work) = work else { return Next::Rest };
        do_work(&of_steps, work);
        Next::Again
    };
    dir.work.start("coss", all, step)
}

/// The next work.
enum Work {
    Purges(Batch),
    /// The oldest full stripe; `None` if all of it is on disk already.
    Full(Option<Unwritten>),
    /// The contents of a slot that will soon be overwritten.
    Victims(u32),
    /// Tables of stripes that were lost.
    Clear(Vec<StripeName>),
    /// The stripe that is being filled, for this many calls of `maintain`.
    Flush(Unwritten, u64),
}

/// Waits for something to do; `None` when the store stops.
fn wait_for_work(dir: &Dir) -> Option<Work> {
    let mut log = dir.log.lock();
    loop {
        if log.is_stopped {
            return None;
        }
        if let Some(work) = choose(dir, &mut log) {
            return Some(work);
        }
        dir.work.wait(&mut log);
    }
}

/// Removals first, because requests wait for them; then the requirements of the next stripe.
fn choose(dir: &Dir, log: &mut Log) -> Option<Work> {
    if log.purges.is_dirty()
        && let Some(batch) = log.purges.take_batch()
    {
        return Some(Work::Purges(batch));
    }
    if std::mem::take(&mut log.clears_again) {
        return Some(Work::Clear(std::mem::take(&mut log.to_clear)));
    }
    let wanted = log.wanted_victims(dir);
    if let Some(full) = log.full.front().filter(|_| wanted.is_none() || !log.victims.is_empty()) {
        return Some(Work::Full(full.unwritten(dir.id)));
    }
    if let Some(slot) = wanted {
        return Some(Work::Victims(slot));
    }
    if log.flushes_asked == log.flushes_done {
        return None;
    }
    let unwritten = log.filling.as_ref().and_then(|filling| filling.unwritten(dir.id));
    if unwritten.is_none() {
        // The part to be flushed has become a full stripe, and has been written.
        log.flushes_done = log.flushes_asked;
        log.take_waiting().into_iter().for_each(Waiting::wake);
    }
    unwritten.map(|unwritten| Work::Flush(unwritten, log.flushes_asked))
}

fn do_work(dir: &Dir, work: Work) {
    match work {
        Work::Purges(batch) => write_purges(dir, batch),
        Work::Clear(stripes) => clear_tables(dir, &stripes),
        Work::Full(None) => finish_full(dir, &Ok(())),
        Work::Full(Some(unwritten)) => {
            let written = write_stripe(dir, &unwritten, true);
            finish_full(dir, &written);
        }
        Work::Victims(slot) => {
            let victims = find_victims(dir, slot);
            finish(dir, |log| log.victims.push_back(victims));
        }
        Work::Flush(unwritten, asked) => {
            let written = write_stripe(dir, &unwritten, false);
            finish(dir, |log| {
                if written.is_ok() {
                    log.set_written(&unwritten);
                }
                log.flushes_done = asked; // if it failed, the next call tries again
            });
        }
    }
}

/// Enters the result of the oldest full stripe.
fn finish_full(dir: &Dir, written: &io::Result<()>) {
    let mut to_clear = Vec::new();
    finish(dir, |log| to_clear = log.finish_full(dir, written));
    clear_tables(dir, &to_clear);
}

/// Sees to it that no start finds these stripes, of which a part was written. Where that fails,
/// `maintain` has it tried again.
pub(super) fn clear_tables(dir: &Dir, stripes: &[StripeName]) {
    for name in stripes {
        // A younger stripe in the slot may have written a table of its own, which stays. Nobody but
        // this thread writes them.
        let is_replaced = dir.seq(name.slot) != name.seq
            && rebuild::read_table(dir, name.slot)
                .is_ok_and(|found| found.is_none_or(|table| table.seq != name.seq));
        if is_replaced {
            continue;
        }
        let end = dir.stripe_offset(name.slot) + STRIPE_BYTES as u64;
        let outcome = dir.data.write(end - TRAILER_BYTES as u64, &[0; TRAILER_BYTES]);
        match is_good(dir, "clear a table of", &outcome) {
            true => dir.set_empty(*name),
            false => dir.log.lock().to_clear.push(*name),
        }
    }
}

/// Enters the result, and wakes all tasks that wait for the worker.
fn finish(dir: &Dir, enter: impl FnOnce(&mut Log)) {
    let waiting = {
        let mut log = dir.log.lock();
        enter(&mut log);
        log.take_waiting()
    };
    waiting.into_iter().for_each(Waiting::wake);
}

fn write_purges(dir: &Dir, batch: Batch) {
    let mut written = batch
        .blocks
        .iter()
        .map(|(at, block)| dir.data.write(PURGES_OFFSET + (at * BLOCK_BYTES) as u64, &**block));
    let outcome = written.try_for_each(|written| written);
    let is_written = is_good(dir, "write the purge log of", &outcome);
    finish(dir, |log| log.purges.finish_batch(batch, is_written));
}

/// Writes removals that wait, in the middle of a longer job.
pub(super) fn write_waiting_purges(dir: &Dir) {
    let batch = {
        let mut log = dir.log.lock();
        if log.purges.is_dirty() { log.purges.take_batch() } else { None }
    };
    if let Some(batch) = batch {
        write_purges(dir, batch);
    }
}

fn is_good(dir: &Dir, operation: &str, outcome: &io::Result<()>) -> bool {
    match outcome {
        Ok(()) => dir.health.success(),
        Err(error) => {
            dir.health.failure(operation, dir.data.path.display(), error);
            if dir.health.is_down() {
                // No task may wait for an event that will not happen.
                finish(dir, |_| ());
            }
        }
    }
    outcome.is_ok()
}

/// Writes the part of a stripe that is not on disk: in one piece if nothing is and it is full.
fn write_stripe(dir: &Dir, unwritten: &Unwritten, is_full: bool) -> io::Result<()> {
    let Unwritten { buf, start, end, table, .. } = unwritten;
    let base = dir.stripe_offset(buf.name.slot);
    let table_at = STRIPE_BYTES - table.len();
    let outcome = if is_full && *start == 0 {
        buf.bytes.write()[table_at..].copy_from_slice(table);
        dir.data.write(base, &buf.bytes.read())
    } else {
        // A copy, as a core may want to write to the buffer meanwhile.
        let data = buf.bytes.read()[*start..*end].to_vec();
        let written = dir.data.write(base + *start as u64, &data);
        written.and_then(|()| dir.data.write(base + table_at as u64, table))
    };
    is_good(dir, "write a stripe of", &outcome);
    outcome
}

/// The index's entries for a slot, and perhaps some keys that it no longer has there.
fn find_victims(dir: &Dir, slot: u32) -> Victims {
    let seq = dir.seq(slot);
    if seq == 0 {
        return Victims::new();
    }
    let file = |units: u16| dir.geometry.file(slot, usize::from(units) * UNIT_BYTES);
    match rebuild::read_table(dir, slot) {
        Ok(Some(table)) if table.seq == seq && table.is_whole => {
            table.entries.iter().filter_map(|e| Some((e.key, file(e.offset_units)?))).collect()
        }
        _ => walk_index(dir, slot),
    }
}

/// The same without the table of the stripe, which does not verify: slow, but rare.
fn walk_index(dir: &Dir, slot: u32) -> Victims {
    let (mut victims, mut objects) = (Victims::new(), Vec::new());
    for shard in 0..FileIndex::SHARDS {
        objects.clear();
        dir.index.snapshot(shard, &mut objects);
        let here = objects.iter().filter(|(_, entry)| dir.geometry.locate(entry.file).0 == slot);
        victims.extend(here.map(|(key, entry)| (*key, entry.file)));
    }
    victims
}

/// Writes everything that is in memory, on the calling thread, when the worker has ended. `false`
/// if that failed.
pub(super) fn write_all(dir: &Dir) -> bool {
    let is_running = |dir: &Dir| !dir.health.is_down();
    write_waiting_purges(dir);
    while is_running(dir) {
        let Some(full) = dir.log.lock().full.front().map(|full| full.unwritten(dir.id)) else {
            break;
        };
        let written = full.map_or(Ok(()), |unwritten| write_stripe(dir, &unwritten, true));
        let to_clear = dir.log.lock().finish_full(dir, &written);
        clear_tables(dir, &to_clear);
        if written.is_err() {
            return false;
        }
    }
    let to_clear = std::mem::take(&mut dir.log.lock().to_clear);
    clear_tables(dir, &to_clear);
    let filling = dir.log.lock().filling.as_ref().and_then(|filling| filling.unwritten(dir.id));
    let is_written = filling.is_none_or(|unwritten| write_stripe(dir, &unwritten, false).is_ok());
    tracing::debug!(
        relocations = dir.counts.relocations.load(Ordering::Relaxed),
        "{}: closed",
        dir.path().display()
    );
    // A snapshot would hide a table that the next crash brings back: without one it is read, and
    // what it names can be removed.
    let log = dir.log.lock();
    is_written && is_running(dir) && log.full.is_empty() && log.to_clear.is_empty()
}
