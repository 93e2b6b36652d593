//! The swap log: which file holds which key, appended as the index changes. See
//! `docs/formats/ufs.md`.
//!
//! A failing write never stops the cache: a stale record finds no file, or one that is as valid as
//! when it was written; and a removal waits until the file is gone. Appending only touches memory.
//! Writing may block, and is done where that is allowed. If records had to be discarded, the log is
//! unlinked, and rewritten as soon as that works.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use humboldt_base::xxh3::{xxh3_64, xxh3_64_with_seed};
use humboldt_store::index::{FileEntry, FileIndex, IndexKey};
use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::files;

/// Name of the log.
pub(crate) const FILE: &str = "swap.state";
const FILE_NEW: &str = "swap.state.new";
const FILE_CLEAN: &str = "swap.state.last-clean";

pub(crate) const HEADER_BYTES: usize = 64;
pub(crate) const RECORD_BYTES: usize = 32;
const CLEAN_BYTES: usize = 24;

/// Records are collected up to this many bytes before they are written.
const BUFFER_BYTES: usize = 32 * 1024;
/// When writing fails, records are kept up to this many bytes; beyond it the log is given up, and
/// rewritten.
const BUFFER_BYTES_MAX: usize = 1024 * 1024;
/// The log is rewritten when it has this many records beyond twice the objects.
const REWRITE_SLACK_RECORDS: u64 = 65_536;
/// Most changes that are encoded while appending tasks wait, at the switch to a rewritten log.
const SWITCH_RECORDS_MAX: usize = 1024;
/// Changes remembered while the log is being rewritten; at the bound, the rewrite is put off.
const PENDING_RECORDS_MAX: usize = 1024 * 1024;

const MAGIC: &[u8; 16] = b"HumboldtSwapLog\0";
const VERSION: u32 = 1;

/// File number in a removal of a key whose file is not known.
pub(crate) const NO_FILE: u32 = u32::MAX;

/// Whether these first bytes of a log are Squid's: a record that announces version 1 or 2.
pub(crate) fn is_squids(start: &[u8]) -> bool {
    let version = start.get(4..8).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    start.first() == Some(&3) && matches!(version, Some(1 | 2))
}

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    if let Some(now) = crate::simulated::now_ns() {
        return now;
    }
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
}

/// One change of the index.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogRecord {
    /// The object of this key is now this.
    Add(IndexKey, FileEntry),
    /// The object of this key is gone, if it was in this file or [`NO_FILE`] is given.
    Remove(IndexKey, u32),
}

impl LogRecord {
    fn encode(self, generation: u64, out: &mut Vec<u8>) {
        let (op, key, entry) = match self {
            Self::Add(key, entry) => (1, key, entry),
            Self::Remove(key, file) => (2, key, FileEntry { file, size_units: 0, flags: 0 }),
        };
        let mut bytes = [0; RECORD_BYTES];
        (bytes[0], bytes[1]) = (op, entry.flags);
        bytes[4..8].copy_from_slice(&entry.file.to_le_bytes());
        bytes[8..20].copy_from_slice(&key.to_bytes());
        bytes[20..24].copy_from_slice(&entry.size_units.to_le_bytes());
        let sum = xxh3_64_with_seed(&bytes[..24], generation);
        bytes[24..].copy_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&bytes);
    }

    /// `None` if the record does not verify.
    pub(crate) fn decode(bytes: &[u8; RECORD_BYTES], generation: u64) -> Option<Self> {
        let (content, sum) = bytes.split_first_chunk::<24>()?;
        if xxh3_64_with_seed(content, generation).to_le_bytes() != sum {
            return None;
        }
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let mut key = [0; IndexKey::BYTES];
        key.copy_from_slice(&bytes[8..20]);
        let (key, file) = (IndexKey::from_bytes(key), word(4));
        match bytes[0] {
            1 => Some(Self::Add(key, FileEntry { file, size_units: word(20), flags: bytes[1] })),
            2 => Some(Self::Remove(key, file)),
            _ => None,
        }
    }
}

/// Header of a log.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogHeader {
    pub(crate) generation: u64,
    /// The log is complete; otherwise files must be searched for.
    pub(crate) is_complete: bool,
}

impl LogHeader {
    fn new(is_complete: bool) -> Self {
        Self { generation: now_ns(), is_complete }
    }

    fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..16].copy_from_slice(MAGIC);
        bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
        bytes[20..24].copy_from_slice(&(RECORD_BYTES as u32).to_le_bytes());
        bytes[24..32].copy_from_slice(&self.generation.to_le_bytes());
        bytes[32..36].copy_from_slice(&u32::from(self.is_complete).to_le_bytes());
        let sum = xxh3_64(&bytes[..56]);
        bytes[56..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let is_ours = &bytes[..16] == MAGIC
            && bytes[16..20] == VERSION.to_le_bytes()
            && bytes[20..24] == (RECORD_BYTES as u32).to_le_bytes()
            && bytes[56..] == xxh3_64(&bytes[..56]).to_le_bytes();
        let (_, rest) = bytes.split_first_chunk::<24>()?;
        let generation = u64::from_le_bytes(*rest.first_chunk::<8>()?);
        is_ours.then_some(Self { generation, is_complete: bytes[32] == 1 })
    }
}

/// A log that was found at the start.
pub(crate) struct FoundLog {
    pub(crate) file: OwnedFd,
    pub(crate) header: LogHeader,
    /// Length in bytes, an incomplete last record included.
    pub(crate) len: u64,
    /// The last stop was clean.
    pub(crate) is_clean: bool,
}

/// Opens the log of the directory; `None` if there is none that is ours. The mark of a clean stop
/// is taken away.
pub(crate) fn find(root: &OwnedFd) -> Result<Option<FoundLog>, Errno> {
    let clean = read_clean(root)?;
    match files::unlink_at(root, FILE_CLEAN) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(other) => return Err(other),
    }
    let file = match files::open_at(root, FILE, OFlags::RDWR) {
        Err(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    let mut bytes = [0; HEADER_BYTES];
    if !files::read_exact_at(&file, &mut bytes, 0)? {
        return Ok(None);
    }
    let len = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
    Ok(LogHeader::decode(&bytes).map(|header| {
        let is_clean = header.is_complete && clean == Some((header.generation, len));
        FoundLog { file, header, len, is_clean }
    }))
}

/// Generation and length in the mark of a clean stop.
fn read_clean(root: &OwnedFd) -> Result<Option<(u64, u64)>, Errno> {
    let file = match files::open_at(root, FILE_CLEAN, OFlags::RDONLY) {
        Err(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    let mut words = [[0; 8]; CLEAN_BYTES / 8];
    let is_whole = files::read_exact_at(&file, words.as_flattened_mut(), 0)?;
    let [generation, len, sum] = words.map(u64::from_le_bytes);
    let is_valid = is_whole && xxh3_64(words[..2].as_flattened()) == sum;
    Ok(is_valid.then_some((generation, len)))
}

/// Whether this is a log, or the mark of a clean stop, by a directory that had been deleted while
/// it was in use.
pub(crate) fn is_leftover(root: &OwnedFd, name: &str) -> bool {
    let header_of = |name: &str| {
        let file = files::open_at(root, name, OFlags::RDONLY).ok()?;
        let mut bytes = [0; HEADER_BYTES];
        files::read_exact_at(&file, &mut bytes, 0)
            .ok()?
            .then(|| LogHeader::decode(&bytes))
            .flatten()
    };
    match name {
        FILE | FILE_NEW => header_of(name).is_some(),
        FILE_CLEAN => read_clean(root).is_ok_and(|mark| mark.is_some()),
        _ => false,
    }
}

/// Removes files that [`is_leftover`] recognises: their objects are gone.
pub(crate) fn remove_leftovers(root: &OwnedFd) -> Result<(), Errno> {
    for name in [FILE, FILE_NEW, FILE_CLEAN] {
        match files::unlink_at(root, name) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

/// Begins a log file.
fn begin(root: &OwnedFd, name: &str, header: LogHeader) -> Result<OwnedFd, Errno> {
    let file = files::open_at(root, name, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)?;
    files::write_all_at(&file, &header.encode(), 0)?;
    Ok(file)
}

/// The log in use. Shared by all cores.
pub(crate) struct SwapLog {
    /// Taken first.
    rewrite: Mutex<Option<Rewrite>>,
    /// Held while bytes are written.
    file: Mutex<LogFile>,
    /// Never held while bytes are written.
    appender: Mutex<Appender>,
    write_ops: AtomicU64,
    write_bytes: AtomicU64,
}

struct LogFile {
    file: OwnedFd,
    header: LogHeader,
    /// Bytes written.
    len: u64,
}

/// The part of a log that is in memory.
struct Appender {
    generation: u64,
    /// [`LogHeader::is_complete`] of the file.
    is_complete: bool,
    /// Length of the file, without a write under way.
    len: u64,
    buffer: Vec<u8>,
    /// Records were thrown away: the file is of no use, and the log must be rewritten.
    is_broken: bool,
    /// The directory is closed: nothing is written any more.
    is_sealed: bool,
    /// Changes since a rewrite began.
    pending: Option<Vec<LogRecord>>,
    /// A failed rewrite is not tried again before the log is this long.
    rewrite_not_before_records: u64,
}

/// A log being rewritten, a part of the index at a time.
struct Rewrite {
    file: OwnedFd,
    header: LogHeader,
    len: u64,
    next_shard: usize,
}

impl SwapLog {
    /// Begins an empty log.
    pub(crate) fn create(root: &OwnedFd, is_complete: bool) -> Result<Self, Errno> {
        let header = LogHeader::new(is_complete);
        Ok(Self::at_end_of(begin(root, FILE, header)?, header, HEADER_BYTES as u64))
    }

    /// Goes on with a log behind its last whole record.
    pub(crate) fn resume(file: OwnedFd, header: LogHeader, len: u64) -> Self {
        let records = len.saturating_sub(HEADER_BYTES as u64) / RECORD_BYTES as u64;
        Self::at_end_of(file, header, HEADER_BYTES as u64 + records * RECORD_BYTES as u64)
    }

    fn at_end_of(file: OwnedFd, header: LogHeader, len: u64) -> Self {
        let appender = Appender {
            generation: header.generation,
            is_complete: header.is_complete,
            len,
            buffer: Vec::new(),
            is_broken: false,
            is_sealed: false,
            pending: None,
            rewrite_not_before_records: 0,
        };
        Self {
            rewrite: Mutex::new(None),
            file: Mutex::new(LogFile { file, header, len }),
            appender: Mutex::new(appender),
            write_ops: AtomicU64::new(0),
            write_bytes: AtomicU64::new(0),
        }
    }

    /// Appends a record in memory, and returns whether there are enough to be written soon. The
    /// rest waits for the next call of `maintain`: a crash loses the objects of a second, whose
    /// files no record names. A file that is gone, or belongs to another object now, is a miss
    /// whatever the log has.
    pub(crate) fn append(&self, record: LogRecord) -> bool {
        let mut appender = self.appender.lock();
        appender.append(record);
        appender.buffer.len() >= BUFFER_BYTES
    }

    /// Writes the waiting records. May block; appending tasks do not wait for it.
    pub(crate) fn flush(&self, root: &OwnedFd) -> Result<(), Errno> {
        let mut file = self.file.lock();
        let mut bytes = {
            let mut appender = self.appender.lock();
            if appender.is_broken {
                appender.buffer.clear();
                let _ = files::unlink_at(root, FILE);
                return Err(Errno::IO);
            }
            std::mem::take(&mut appender.buffer)
        };
        if bytes.is_empty() {
            return Ok(());
        }
        let outcome = files::write_all_at(&file.file, &bytes, file.len);
        let mut appender = self.appender.lock();
        if let Err(error) = outcome {
            bytes.append(&mut appender.buffer);
            appender.buffer = bytes;
            appender.limit();
            return Err(error);
        }
        file.len += bytes.len() as u64;
        appender.len = file.len;
        self.count(bytes.len());
        if appender.buffer.is_empty() && bytes.capacity() <= 2 * BUFFER_BYTES {
            bytes.clear();
            appender.buffer = bytes; // its memory is used again
        }
        Ok(())
    }

    /// Nothing is written from now on: the file may be that of another instance soon.
    pub(crate) fn seal(&self) {
        let _file = self.file.lock();
        let mut appender = self.appender.lock();
        appender.is_sealed = true;
        appender.buffer = Vec::new();
        appender.pending = None;
    }

    /// Writes, and bytes written, since the start.
    pub(crate) fn written(&self) -> (u64, u64) {
        (self.write_ops.load(Ordering::Relaxed), self.write_bytes.load(Ordering::Relaxed))
    }

    fn count(&self, bytes: usize) {
        self.write_ops.fetch_add(1, Ordering::Relaxed);
        self.write_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Cuts the log to `len` bytes and declares it incomplete: files must be searched for, now or
    /// at the next start.
    pub(crate) fn declare_incomplete(&self, len: u64) -> Result<(), Errno> {
        let mut file = self.file.lock();
        file.header.is_complete = false;
        file.len = len;
        {
            let mut appender = self.appender.lock();
            (appender.is_complete, appender.len) = (false, len);
        }
        files::write_all_at(&file.file, &file.header.encode(), 0)?;
        files::set_len(&file.file, len)
    }

    /// Whether the log, now that no rebuild is going on, is too long, broken or incomplete; or is
    /// being rewritten.
    pub(crate) fn wants_rewrite(&self, objects: usize) -> bool {
        let appender = self.appender.lock();
        let records = appender.records();
        let is_long = records > 2 * objects as u64 + REWRITE_SLACK_RECORDS;
        appender.pending.is_some()
            || appender.is_broken
            || !appender.is_complete
            || (is_long && records >= appender.rewrite_not_before_records)
    }

    /// Rewrites at least `budget` objects' records to the new log; `true` when that is complete and
    /// in use.
    pub(crate) fn rewrite_some(
        &self,
        root: &OwnedFd,
        index: &FileIndex,
        budget: usize,
        is_last: bool,
    ) -> Result<bool, Errno> {
        let mut rewrite = self.rewrite.lock();
        let outcome = self.rewrite_step(root, index, budget, is_last, &mut rewrite);
        if outcome.is_err() {
            *rewrite = None;
            let mut appender = self.appender.lock();
            appender.pending = None;
            appender.rewrite_not_before_records = appender.records() + REWRITE_SLACK_RECORDS;
            let _ = files::unlink_at(root, FILE_NEW);
        }
        outcome
    }

    fn rewrite_step(
        &self,
        root: &OwnedFd,
        index: &FileIndex,
        budget: usize,
        is_last: bool,
        slot: &mut Option<Rewrite>,
    ) -> Result<bool, Errno> {
        let mut rewrite = match slot.take() {
            Some(begun) => begun,
            None => {
                let header = LogHeader::new(true);
                let file = begin(root, FILE_NEW, header)?;
                self.appender.lock().pending = Some(Vec::new());
                Rewrite { file, header, len: HEADER_BYTES as u64, next_shard: 0 }
            }
        };
        let (mut done, mut objects, mut bytes) = (0, Vec::new(), Vec::new());
        while rewrite.next_shard < FileIndex::SHARDS && done < budget {
            objects.clear();
            bytes.clear();
            index.snapshot(rewrite.next_shard, &mut objects);
            for (key, entry) in &objects {
                LogRecord::Add(*key, *entry).encode(rewrite.header.generation, &mut bytes);
            }
            self.write_rewritten(&mut rewrite, &bytes)?;
            rewrite.next_shard += 1;
            done += objects.len();
        }
        if rewrite.next_shard < FileIndex::SHARDS {
            *slot = Some(rewrite);
            return Ok(false);
        }
        self.adopt(root, rewrite, is_last)?;
        Ok(true)
    }

    fn write_rewritten(&self, rewrite: &mut Rewrite, bytes: &[u8]) -> Result<(), Errno> {
        files::write_all_at(&rewrite.file, bytes, rewrite.len)?;
        rewrite.len += bytes.len() as u64;
        self.count(bytes.len());
        Ok(())
    }

    /// Puts a rewritten log in the place of the present one, with the changes since it was begun.
    fn adopt(&self, root: &OwnedFd, mut rewrite: Rewrite, is_last: bool) -> Result<(), Errno> {
        let mut file = self.file.lock();
        let generation = rewrite.header.generation;
        let encode = |records: Vec<LogRecord>| {
            let mut bytes = Vec::with_capacity(records.len() * RECORD_BYTES);
            records.iter().for_each(|record| record.encode(generation, &mut bytes));
            bytes
        };
        // Most of the changes are written while others go on to append.
        let rest = loop {
            let many = {
                let mut appender = self.appender.lock();
                let pending = appender.pending.take().unwrap_or_default();
                if pending.len() >= PENDING_RECORDS_MAX {
                    return Err(Errno::NOBUFS);
                }
                if pending.len() <= SWITCH_RECORDS_MAX {
                    appender.generation = generation;
                    appender.buffer.clear(); // all of it is among the pending
                    appender.is_broken = false;
                    break pending;
                }
                appender.pending = Some(Vec::new());
                pending
            };
            self.write_rewritten(&mut rewrite, &encode(many))?;
        };
        let outcome = self.write_rewritten(&mut rewrite, &encode(rest)).and_then(|()| {
            if is_last {
                files::sync(&rewrite.file)?;
            }
            files::rename_at(root, FILE_NEW, FILE)
        });
        let mut appender = self.appender.lock();
        if let Err(error) = outcome {
            appender.is_broken = true; // what comes next is in the new generation
            let _ = files::unlink_at(root, FILE);
            return Err(error);
        }
        (appender.len, appender.is_complete) = (rewrite.len, rewrite.header.is_complete);
        appender.rewrite_not_before_records = 0;
        *file = LogFile { file: rewrite.file, header: rewrite.header, len: rewrite.len };
        Ok(())
    }

    /// Leaves the mark of a clean stop. To be called when the log has just been rewritten.
    pub(crate) fn mark_clean(&self, root: &OwnedFd) -> Result<(), Errno> {
        self.flush(root)?;
        let log = self.file.lock();
        let mut words = [log.header.generation.to_le_bytes(), log.len.to_le_bytes(), [0; 8]];
        words[2] = xxh3_64(words[..2].as_flattened()).to_le_bytes();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let file = files::open_at(root, FILE_CLEAN, flags)?;
        files::write_all_at(&file, words.as_flattened(), 0)
    }
}

impl Appender {
    fn records(&self) -> u64 {
        (self.len + self.buffer.len() as u64).saturating_sub(HEADER_BYTES as u64)
            / RECORD_BYTES as u64
    }

    fn append(&mut self, record: LogRecord) {
        if self.is_sealed {
            return;
        }
        if let Some(pending) =
            self.pending.as_mut().filter(|pending| pending.len() < PENDING_RECORDS_MAX)
        {
            pending.push(record);
        }
        if !self.is_broken {
            record.encode(self.generation, &mut self.buffer);
            self.limit();
        }
    }

    /// Gives the log up when too much of it cannot be written. The file is unlinked by the next
    /// flush.
    fn limit(&mut self) {
        if self.buffer.len() > BUFFER_BYTES_MAX {
            tracing::warn!("swap log given up after a write error; it will be rewritten");
            self.is_broken = true;
            self.buffer = Vec::new();
        }
    }
}
