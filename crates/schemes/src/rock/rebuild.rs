//! The state of finding the stored objects (`refill.rs`), for those who store and remove meanwhile.
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

use super::device::CLOSE_PATIENCE;
use super::dir::Dir;
use super::files::PURGE_FILE;
use super::format::{u32_at, u64_at};
use super::slots::{Run, Slots, Tag};
use crate::block::BlockFile;
use crate::simulated::{Background, plain};

/// Purges remembered during a rebuild; beyond it, further ones are refused.
const FORGOTTEN_MAX: usize = 1 << 20;

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
    pub(super) job: Mutex<Option<Job>>,
    pub(super) thread: Mutex<Option<Background>>,
    log: Option<Arc<dyn BlockFile>>,
    log_records: AtomicU64,
    /// Slots that were purged while the snapshot was being read; they are freed when it has been
    /// read.
    pub(super) leftover: Mutex<Option<Vec<Run>>>,
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
            log.wait_idle(CLOSE_PATIENCE);
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

    pub(super) fn set_done(&self, dir: &Dir) {
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
