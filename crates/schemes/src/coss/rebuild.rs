//! Filling the index at the start: from the snapshot of a clean stop, or by reading the tables of
//! all stripes.

use std::collections::HashMap;
use std::io;

use humboldt_store::index::{FileEntry, IndexKey};

use super::claim;
use super::dir::{Dir, Job, JobKind};
use super::format::{
    Purge, STRIPE_BYTES, TRAILER_BYTES, TableEntry, UNIT_BYTES, decode_table, decode_trailer,
    table_bytes,
};
use super::{snapshot, worker};

/// The part of a stripe that is read first: its trailer and 510 entries.
const SCAN_BYTES: usize = 16 * 1024;

/// A snapshot up to this length is read before the start returns.
const SHORT_SNAPSHOT_BYTES: u64 = 8 << 20;

/// The part that takes no time.
pub(super) fn begin(dir: &Dir) {
    let mut slot = dir.job.lock();
    let is_short = dir.found.snapshot_bytes <= SHORT_SNAPSHOT_BYTES;
    let short = slot.take_if(|job| match job.kind {
        JobKind::Nothing => true,
        JobKind::Load => is_short,
        JobKind::Scan => false,
    });
    *slot = short.and_then(|job| step(dir, job)).or_else(|| slot.take());
}

/// Does all that remains.
pub(super) fn run(dir: &Dir) {
    let mut next = dir.job.lock().take();
    while let Some(job) = next {
        next = step(dir, job);
    }
}

/// Does one job; returns the job to do instead if it was not possible.
fn step(dir: &Dir, job: Job) -> Option<Job> {
    match job.kind {
        JobKind::Nothing => {}
        JobKind::Load => {
            if let Err(why) = snapshot::read(dir) {
                tracing::warn!(
                    "{}: index snapshot: {why}; reading all stripes",
                    dir.path().display()
                );
                snapshot::forget(dir);
                return Some(Job { kind: JobKind::Scan, ..job });
            }
        }
        JobKind::Scan => scan(dir),
    }
    if dir.is_stopping() {
        return None;
    }
    finish(dir, &job.purges);
    None
}

/// The table of a stripe on disk.
pub(super) struct Table {
    pub(super) seq: u64,
    pub(super) entries: Vec<TableEntry>,
    /// Every entry verifies.
    pub(super) is_whole: bool,
}

/// Reads the table of the stripe in `slot`; `None` if there is none.
pub(super) fn read_table(dir: &Dir, slot: u32) -> io::Result<Option<Table>> {
    let end = dir.stripe_offset(slot) + STRIPE_BYTES as u64;
    let mut bytes = vec![0; SCAN_BYTES];
    dir.data.read_blocking(end - SCAN_BYTES as u64, &mut bytes)?;
    let Some((seq, count)) = decode_trailer(&bytes, dir.id, slot) else { return Ok(None) };
    if table_bytes(count) > bytes.len() {
        bytes.resize(table_bytes(count), 0);
        dir.data.read_blocking(end - bytes.len() as u64, &mut bytes)?;
    }
    let entries = decode_table(&bytes, dir.id, seq, count);
    let is_whole = entries.len() == count;
    Ok(Some(Table { seq, entries, is_whole }))
}

/// Enters all stripes that the store had; of several records of a key the youngest counts.
fn scan(dir: &Dir) {
    let stripes = dir.found.stripes;
    let mut misplaced = Misplaced::new();
    for slot in 0..stripes {
        if dir.is_stopping() {
            return;
        }
        match read_table(dir, slot) {
            Ok(Some(table)) => enter_table(dir, slot, &table, &mut misplaced),
            Ok(None) => {}
            Err(error) => dir.health.failure("read a table of", dir.data.path.display(), &error),
        }
        worker::write_waiting_purges(dir);
        dir.set_percent(slot.into(), stripes.into());
    }
    tracing::info!(
        "{}: {} objects found in {stripes} stripes",
        dir.path().display(),
        dir.index.len()
    );
}

/// Keys of records that have no place in a store of this size and block size, with the sequence
/// number of their stripe. No older record takes their place.
type Misplaced = HashMap<IndexKey, u64>;

fn enter_table(dir: &Dir, slot: u32, table: &Table, misplaced: &mut Misplaced) {
    dir.set_seq(slot, table.seq);
    for entry in &table.entries {
        let known = dir.index.peek(entry.key);
        if known.is_some_and(|known| dir.seq(dir.geometry.locate(known.file).0) > table.seq)
            || misplaced.get(&entry.key).is_some_and(|seq| *seq > table.seq)
        {
            continue;
        }
        match dir.geometry.file(slot, usize::from(entry.offset_units) * UNIT_BYTES) {
            Some(file) => {
                dir.enter(
                    entry.key,
                    FileEntry { file, size_units: entry.size_units.into(), flags: entry.flags },
                );
            }
            None => {
                misplaced.insert(entry.key, table.seq);
                dir.left(dir.index.remove(entry.key));
            }
        }
    }
}

/// Makes the index valid, and gives the file its configured size.
fn finish(dir: &Dir, purges: &[Purge]) {
    if let Err(error) = resize(dir) {
        dir.health.failure("resize", dir.data.path.display(), &error);
        dir.health.give_up(dir.data.path.display(), "it cannot be resized");
        return;
    }
    let mut log = dir.log.lock();
    for purge in purges.iter().chain(&std::mem::take(&mut log.early)) {
        let Some(entry) = dir.index.peek(purge.key) else { continue };
        let (slot, offset) = dir.geometry.locate(entry.file);
        let place = (dir.seq(slot), offset);
        if place < (purge.seq, purge.offset_units as usize * UNIT_BYTES) {
            dir.left(dir.index.remove(purge.key));
        }
    }
    log.next.slot = next_slot(dir);
    dir.set_rebuilt();
}

/// The next slot: an empty one behind the youngest stripe, or else the slot behind it.
fn next_slot(dir: &Dir) -> u32 {
    let stripes = dir.geometry.stripes;
    let youngest =
        (0..stripes).max_by_key(|slot| dir.seq(*slot)).filter(|slot| dir.seq(*slot) != 0);
    let Some(youngest) = youngest else { return 0 };
    let mut behind = (1..=stripes).map(|i| (youngest + i) % stripes);
    behind.find(|slot| dir.seq(*slot) == 0).unwrap_or((youngest + 1) % stripes)
}

/// Gives the file the configured length. Slots that come into being must not seem to hold the
/// stripes of an earlier time.
fn resize(dir: &Dir) -> io::Result<()> {
    let now = dir.superblock();
    let len = dir.data.len()?;
    for slot in dir.found.stripes..now.stripes {
        let end = dir.stripe_offset(slot) + STRIPE_BYTES as u64;
        if end <= len {
            dir.data.write(end - TRAILER_BYTES as u64, &[0; TRAILER_BYTES])?;
        }
    }
    dir.data.set_len(now.snapshot_offset())?;
    if now.stripes != dir.found.stripes {
        claim::write_superblock(&dir.data, &now)?;
    }
    Ok(())
}
