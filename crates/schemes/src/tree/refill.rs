//! Finding the stored objects: reading the swap log, and looking at the files if it is incomplete.
//!
//! A short log is read while the directory is opened. The rest is the work of a thread of its own,
//! which never blocks a core, and which the first call of `maintain` starts.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use humboldt_store::index::{FileEntry, FileIndex, IndexKey};
use rustix::io::Errno;

use super::dir::{Dir, file_bytes};
use super::files;
use super::log::{HEADER_BYTES, LogRecord, NO_FILE, RECORD_BYTES};
use super::numbers::Numbers;
use super::object::{self, Failure};
use super::rebuild::{Job, ReadLog, SEARCHING};
use crate::simulated::Background;

/// Records that are read and entered at once.
const BATCH_RECORDS: usize = 8192;

/// Reads the log if it is short.
pub(crate) fn begin(dir: &Arc<Dir>) {
    let mut job = dir.rebuild.job.lock();
    if let Some(Job::ReadLog(log)) =
        job.take_if(|job| matches!(job, Job::ReadLog(log) if log.is_short()))
    {
        *job = read_log(dir, log);
    }
}

/// Starts the thread if there is something to do.
pub(crate) fn go_on(dir: &Arc<Dir>) {
    let Some(first) = dir.rebuild.job.lock().take() else { return };
    let for_thread = Arc::clone(dir);
    let work = move || {
        let mut job = Some(first);
        while let Some(current) = job {
            job = run(&for_thread, current);
        }
    };
    match Background::once("rebuild", work) {
        Ok(thread) => *dir.rebuild.thread.lock() = Some(thread),
        Err(error) => {
            tracing::error!("{}: cannot start the rebuild: {error}", dir.options.path.display());
        }
    }
}

fn run(dir: &Arc<Dir>, job: Job) -> Option<Job> {
    match job {
        Job::ReadLog(log) => return read_log(dir, log),
        Job::Search => search(dir),
        Job::UnlinkStrays => unlink_strays(dir),
    }
    None
}

/// Enters the log into the index; returns the next work.
fn read_log(dir: &Arc<Dir>, log: ReadLog) -> Option<Job> {
    let valid_bytes = match enter_records(dir, &log) {
        Ok(bytes) => bytes,
        Err(error) => {
            tracing::warn!("{}: reading swap.state: {error}", dir.options.path.display());
            HEADER_BYTES as u64
        }
    };
    if dir.rebuild.is_stopped() {
        return None;
    }
    let has_bad_record = log.len.saturating_sub(valid_bytes) >= RECORD_BYTES as u64;
    let has_conflict = !take_numbers(dir);
    if has_bad_record {
        cut_log(dir, valid_bytes);
    }
    if has_bad_record || has_conflict || !log.header.is_complete {
        tracing::warn!(
            "{}: swap.state is incomplete, looking for files",
            dir.options.path.display()
        );
        return Some(Job::Search);
    }
    dir.rebuild.set_done();
    dir.rebuild.may_have_strays.store(!log.is_clean, Ordering::Release);
    (!log.is_clean).then_some(Job::UnlinkStrays)
}

/// Reads records up to the first one that is incomplete or does not verify; returns how far it
/// came.
fn enter_records(dir: &Dir, log: &ReadLog) -> Result<u64, Errno> {
    let mut at = HEADER_BYTES as u64;
    let mut bytes = vec![0; BATCH_RECORDS * RECORD_BYTES];
    let mut removed = HashSet::new();
    'log: while at < log.len && !dir.rebuild.is_stopped() {
        let left = usize::try_from(log.len - at).unwrap_or(usize::MAX).min(bytes.len());
        let batch = &mut bytes[..left / RECORD_BYTES * RECORD_BYTES];
        if batch.is_empty() || !files::read_exact_at(&log.file, batch, at)? {
            break;
        }
        dir.counts.read(batch.len());
        let (records, _) = batch.as_chunks::<RECORD_BYTES>();
        let forgotten = dir.rebuild.forgotten.lock();
        for bytes in records {
            let Some(record) = LogRecord::decode(bytes, log.header.generation) else { break 'log };
            enter(dir, record, &forgotten);
            if let LogRecord::Remove(key, file) = record
                && (file == NO_FILE || !log.header.is_complete)
            {
                removed.insert(key);
            }
            at += RECORD_BYTES as u64;
        }
        drop(forgotten);
        dir.rebuild.set_percent(at, log.len);
    }
    // An object removed during an interrupted search must not be found by the next one, nor one
    // that was removed while its file was not known.
    dir.rebuild.forgotten.lock().extend(removed);
    Ok(at)
}

fn enter(dir: &Dir, record: LogRecord, forgotten: &HashSet<IndexKey>) {
    match record {
        LogRecord::Add(key, entry) => {
            if !forgotten.contains(&key) {
                let old = dir.index.insert(key, entry);
                dir.space.resize(old.map_or(0, file_bytes), file_bytes(entry));
            }
        }
        LogRecord::Remove(key, file) => {
            let removed = if file == NO_FILE {
                dir.index.remove(key)
            } else {
                dir.index.remove_if(key, file)
            };
            dir.space.resize(removed.map_or(0, file_bytes), 0);
        }
    }
}

/// Marks the file numbers of the index as taken; `false` if two keys had the same one, and one was
/// dropped.
fn take_numbers(dir: &Dir) -> bool {
    let mut has_conflict = false;
    let mut objects = Vec::new();
    for shard in 0..FileIndex::SHARDS {
        objects.clear();
        dir.index.snapshot(shard, &mut objects);
        for (key, entry) in &objects {
            if !dir.numbers().take_exactly(entry.file)
                && dir.index.remove_if(*key, entry.file).is_some()
            {
                has_conflict = true;
                dir.space.resize(file_bytes(*entry), 0);
            }
        }
    }
    !has_conflict
}

/// Cuts bad records off the log; the removals since it was opened, which lie behind them, are
/// appended again.
fn cut_log(dir: &Dir, valid_bytes: u64) {
    let forgotten = dir.rebuild.forgotten.lock();
    let root = dir.tree.root();
    if let Err(error) = dir.log.declare_incomplete(valid_bytes) {
        dir.failed("cut swap.state before", 0, error);
    }
    let mut removed: Vec<IndexKey> = forgotten.iter().copied().collect();
    removed.sort_unstable_by_key(|key| key.to_bytes());
    for key in removed {
        dir.log.append(LogRecord::Remove(key, NO_FILE));
    }
    if let Err(error) = dir.log.flush(root) {
        dir.failed("write swap.state before", 0, error);
    }
}

/// Calls `visit` with every object file in the tree. Says whether it has come to its end.
fn for_each_file(dir: &Dir, mut visit: impl FnMut(u32)) -> bool {
    let (l1, l2) = dir.tree.levels();
    let mut is_whole = true;
    for d1 in 0..l1 {
        for d2 in 0..l2 {
            if dir.rebuild.is_stopped() {
                return false;
            }
            if let Err(error) = dir.tree.list(d1, d2, &mut visit) {
                dir.failed("list the directory of", (d1 * l2 + d2) * l2, error);
                is_whole = false;
            }
        }
    }
    is_whole
}

fn unlink_strays(dir: &Dir) {
    let is_whole = for_each_file(dir, |number| {
        let is_stray = dir.numbers().take_exactly(number);
        if is_stray {
            discard(dir, number);
        }
    });
    dir.rebuild.may_have_strays.store(!is_whole, Ordering::Release);
}

/// Unlinks a file whose number has been taken, and gives the number back.
fn discard(dir: &Dir, number: u32) {
    match dir.tree.unlink(number) {
        Ok(()) => dir.numbers().give_back(number),
        Err(error) => {
            dir.rebuild.left_a_stray();
            dir.failed("unlink", number, error);
        }
    }
}

fn search(dir: &Arc<Dir>) {
    let mut strays = Numbers::default();
    let is_whole = for_each_file(dir, |number| {
        if dir.numbers().take_exactly(number) {
            strays.take_exactly(number);
        }
    });
    if dir.rebuild.is_stopped() {
        return;
    }
    dir.rebuild.phase.store(SEARCHING, Ordering::Release);
    let total = strays.taken() as u64;
    for (done, number) in strays.iter().enumerate() {
        if dir.rebuild.is_stopped() {
            return;
        }
        look_at(dir, number);
        dir.rebuild.set_percent(done as u64, total);
    }
    while let Ok(false) = dir.log.rewrite_some(dir.tree.root(), &dir.index, usize::MAX, false) {}
    dir.rebuild.set_done();
    dir.rebuild.may_have_strays.store(!is_whole, Ordering::Release);
    tracing::info!("{}: {} objects found", dir.options.path.display(), dir.index.len());
}

/// Keeps file `number` if it verifies and its key is not known, or known with an older file.
fn look_at(dir: &Arc<Dir>, number: u32) {
    let (header, entry) = match object::examine(dir, number) {
        Ok(found) => found,
        Err(Failure::Refused(_)) => return dir.rebuild.left_a_stray(),
        Err(Failure::Missing | Failure::Corrupt(_)) => return discard(dir, number),
    };
    let key = IndexKey::from(&header.record.key);
    loop {
        // Files are not looked at under a lock: cores wait for it.
        let known = dir.index.peek(key);
        let has_newer = known.is_some_and(|known| is_newer(dir, known, header.stamp_ns));
        let forgotten = dir.rebuild.forgotten.lock();
        let mut state = dir.lock_key(key);
        if dir.index.peek(key) != known {
            continue;
        }
        if has_newer || forgotten.contains(&key) {
            drop((state, forgotten));
            return discard(dir, number);
        }
        dir.space.resize(0, file_bytes(entry));
        let replaced = dir.index.insert(key, entry);
        if replaced.is_some() {
            state.leaving.push(key);
        }
        drop((state, forgotten));
        if let Some(older) = replaced {
            dir.unlink(key, older, None);
        }
        return;
    }
}

/// Whether the file of `known` verifies and is not older than `stamp_ns`.
fn is_newer(dir: &Arc<Dir>, known: FileEntry, stamp_ns: u64) -> bool {
    object::examine(dir, known.file).is_ok_and(|(header, _)| header.stamp_ns >= stamp_ns)
}
