//! Finding the stored objects: from the snapshot of a clean stop, or by a scan of all slots.
//!
//! A short snapshot is read while the directory is opened. The rest is the work of a thread of its
//! own, which the first call of `maintain` starts. Objects that are not known yet are misses. While
//! slots are scanned, new objects go to those that are known to be free; nothing is evicted.
//!
//! **Purges meanwhile** are remembered by 32 bits of their keys together with the id that the next
//! object will get, in memory and in a small log: objects of that key with a smaller id that the
//! rebuild finds are overwritten. When the rebuild is done, the log is not needed any more.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use humboldt_base::xxh3::xxh3_64_with_seed;
use humboldt_store::scheme::SchemeError;
use humboldt_sys::append_buffer::AppendBuffer;
use parking_lot::Mutex;
use rustix::fs::AtFlags;
use tokio::sync::oneshot;

use super::dir::Dir;
use super::format::{u32_at, u64_at};
use super::layout::PURGE_FILE;
use super::scan;
use super::slots::{Run, Slots, Tag};
use super::snapshot::{self, Item, Snapshot};
use crate::block::BlockFile;
use crate::simulated::{Background, plain};

/// A snapshot of up to this many items is read while the directory is opened (some tenths of a
/// second).
const INLINE_ITEMS_MAX: u64 = 262_144;

/// Purges remembered during a rebuild; beyond it, further ones are refused.
const FORGOTTEN_MAX: usize = 1 << 20;

/// Slots that are given free under one lock.
const FREE_BATCH: u32 = 64 * 1024;

const PURGE_BYTES: usize = 32;

const READING: u8 = 0;
const SCANNING: u8 = 1;
const DONE: u8 = 2;

/// The work to be done.
pub(crate) enum Job {
    /// Read this snapshot, if it is there.
    Read(u64),
    /// Look at all slots.
    Scan,
}

/// State of the rebuild.
pub(crate) struct Rebuild {
    phase: AtomicU8,
    percent: AtomicU8,
    is_stopped: AtomicBool,
    /// Purged tags, with the id below which their objects are dead.
    forgotten: Mutex<HashMap<Tag, u64>>,
    job: Mutex<Option<Job>>,
    thread: Mutex<Option<Background>>,
    log: Option<Arc<dyn BlockFile>>,
    log_records: AtomicU64,
    /// Slots that were purged while the snapshot was being read; they are freed when it has been
    /// read.
    leftover: Mutex<Option<Vec<Run>>>,
}

fn encode_purge(tag: Tag, ids_end: u64, store_id: u64) -> [u8; PURGE_BYTES] {
    let mut bytes = [0; PURGE_BYTES];
    bytes[..4].copy_from_slice(&tag.bits().to_le_bytes());
    bytes[8..16].copy_from_slice(&ids_end.to_le_bytes());
    let sum = xxh3_64_with_seed(&bytes[..24], store_id);
    bytes[24..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode_purge(bytes: &[u8], store_id: u64) -> Option<(Tag, u64)> {
    let is_good = xxh3_64_with_seed(bytes.get(..24)?, store_id) == u64_at(bytes, 24);
    is_good.then(|| Some((Tag::from_bits(u32_at(bytes, 0))?, u64_at(bytes, 8)))).flatten()
}

impl Rebuild {
    /// Nothing to do: the store is new.
    pub(crate) fn done() -> Self {
        Self {
            phase: AtomicU8::new(DONE),
            percent: AtomicU8::new(100),
            is_stopped: AtomicBool::new(false),
            forgotten: Mutex::default(),
            job: Mutex::new(None),
            thread: Mutex::new(None),
            log: None,
            log_records: AtomicU64::new(0),
            leftover: Mutex::new(None),
        }
    }

    /// A rebuild to be made; `log` is the open log of purges, which may have some of an earlier
    /// attempt.
    pub(crate) fn new(job: Job, log: Arc<dyn BlockFile>, store_id: u64) -> std::io::Result<Self> {
        let len =
            usize::try_from(log.len()?).unwrap_or(usize::MAX).min(FORGOTTEN_MAX * PURGE_BYTES);
        let mut bytes = vec![0; len];
        let read = log.read_blocking(0, &mut bytes)?;
        let records = bytes.get(..read).unwrap_or_default().chunks(PURGE_BYTES);
        let log_records = records.len() as u64;
        let mut forgotten: HashMap<Tag, u64> = HashMap::new();
        for (tag, ids_end) in records.filter_map(|bytes| decode_purge(bytes, store_id)) {
            let known = forgotten.entry(tag).or_default();
            *known = ids_end.max(*known);
        }
        Ok(Self {
            phase: AtomicU8::new(READING),
            percent: AtomicU8::new(0),
            forgotten: Mutex::new(forgotten),
            job: Mutex::new(Some(job)),
            log: Some(log),
            log_records: AtomicU64::new(log_records),
            leftover: Mutex::new(Some(Vec::new())),
            ..Self::done()
        })
    }

    pub(crate) fn is_done(&self) -> bool {
        self.phase.load(Ordering::Acquire) == DONE
    }

    /// Whether some free slots are known.
    pub(crate) fn may_store(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= SCANNING
    }

    pub(crate) fn set_scanning(&self) {
        self.phase.store(SCANNING, Ordering::Release);
    }

    /// Progress: 100 when all is done.
    pub(crate) fn percent(&self) -> u8 {
        if self.is_done() { 100 } else { self.percent.load(Ordering::Relaxed).min(99) }
    }

    pub(crate) fn set_percent(&self, done: u64, of: u64) {
        let percent = done.saturating_mul(100) / of.max(1);
        self.percent.store(percent.min(99) as u8, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Does `enter` with the answer to: has this object been purged? No purge of it comes in
    /// between; no disk is used.
    pub(crate) fn unless_forgotten<T>(
        &self,
        tag: Tag,
        id: u64,
        enter: impl FnOnce(bool) -> T,
    ) -> T {
        let forgotten = self.forgotten.lock();
        enter(forgotten.get(&tag).is_some_and(|ids_end| id < *ids_end))
    }

    /// Makes sure that the rebuild finds no older object with this tag; after a crash too when the
    /// returned value has been [`Rebuild::logged`].
    pub(crate) fn forget(&self, dir: &Dir, tag: Tag) -> Result<Option<Logging>, SchemeError> {
        let Some(log) = self.log.as_ref().filter(|_| !self.is_done()) else { return Ok(None) };
        let _pass = dir.device.pass()?;
        let mut forgotten = self.forgotten.lock();
        if self.is_done() {
            return Ok(None);
        }
        let record = self.log_records.load(Ordering::Relaxed);
        if record >= FORGOTTEN_MAX as u64 {
            return Err(SchemeError::Busy("too many removals during the rebuild"));
        }
        self.log_records.store(record + 1, Ordering::Relaxed);
        let ids_end = dir.ids_end();
        forgotten.insert(tag, ids_end);
        let bytes = encode_purge(tag, ids_end, dir.device.geometry.store_id);
        Ok(Some(append(&**log, record * PURGE_BYTES as u64, &bytes)))
    }

    /// Waits until forgotten keys are in the log. `false`: there was nothing to wait for.
    pub(crate) async fn logged(dir: &Dir, logging: Option<Logging>) -> Result<bool, SchemeError> {
        let Some(written) = logging else { return Ok(false) };
        let outcome = written.await.unwrap_or_else(|_| Err(std::io::Error::other("given up")));
        dir.device.judge("log a purge beside", outcome)?;
        Ok(true)
    }

    /// Stops the thread, if there is one, and waits for its end.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the rebuild of a cache_dir failed");
        }
        if let Some(log) = &self.log {
            log.wait_idle(super::CLOSE_PATIENCE);
        }
    }

    /// Makes the next purge one too many.
    #[cfg(test)]
    pub(crate) fn pretend_log_is_full(&self) {
        self.log_records.store(FORGOTTEN_MAX as u64, Ordering::Relaxed);
    }

    /// Gives back slots that were purged, if the time has come.
    pub(crate) fn give_back(&self, slots: &Mutex<Slots>, runs: &[Run]) {
        match &mut *self.leftover.lock() {
            Some(leftover) => leftover.extend_from_slice(runs),
            None => slots.lock().give_back(runs),
        }
    }

    fn set_done(&self, dir: &Dir) {
        let mut forgotten = self.forgotten.lock();
        *forgotten = HashMap::new();
        self.phase.store(DONE, Ordering::Release);
        // A purge that is under way into the log is not lost: its object is in the index, stale or
        // gone.
        let _ = plain::may_change(&dir.root, PURGE_FILE)
            .and_then(|()| rustix::fs::unlinkat(&dir.root, PURGE_FILE, AtFlags::empty()));
    }
}

/// A line on its way to the log.
pub(crate) type Logging = oneshot::Receiver<std::io::Result<()>>;

fn append(log: &dyn BlockFile, offset: u64, bytes: &[u8]) -> Logging {
    let (reply, written) = oneshot::channel();
    let data = AppendBuffer::new(bytes.len());
    if let Some(mut region) = data.reserve(bytes.len()) {
        region.copy_from_slice(bytes);
        let _ = region.publish();
    }
    let done = Box::new(move |outcome| drop(reply.send(outcome)));
    log.write(offset, data, 0..bytes.len(), done);
    written
}

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
    free_where(dir, total, |slot| {
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
    *dir.slots.lock() = Slots::taken(total);
    // From now on a purge finds nothing to do. Those before are to end before the scan begins.
    while !dir.device.settle(super::CLOSE_PATIENCE) && !dir.rebuild.is_stopped() {}
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

/// Gives free, in batches, the slots for which `is_free`.
pub(crate) fn free_where(dir: &Dir, total: u32, mut is_free: impl FnMut(u32) -> bool) {
    let mut at = 0;
    while at < total {
        let end = at.saturating_add(FREE_BATCH).min(total);
        let mut slots = dir.slots.lock();
        for slot in (at..end).filter(|slot| is_free(*slot)) {
            slots.give_back(&[Run { start: slot, len: 1 }]);
        }
        drop(slots);
        at = end;
    }
}
