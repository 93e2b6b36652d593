//! New head and times for a stored object: a header block and a footer appended to its file.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use humboldt_store::index::{FileEntry, IndexKey};
use humboldt_store::scheme::{Confirmed, Record, SchemeError};

use super::dir::{Dir, Permit, file_bytes, take_key};
use super::engine::OpenFor;
use super::format::{
    FOOTER_BYTES, Footer, UNIT_BYTES, encode_header, header_block_bytes, pad_for_footer,
};
use super::log::{LogRecord, now_ns};
use super::object::{Failure, OpenFile, Source, Surroundings};

/// Old header blocks may occupy this many bytes of a file, or a quarter of the stored bytes if that
/// is more.
const WASTED_BYTES_MAX: u64 = 16 * 1024;

/// The right to append to the file of a key. It lasts until the file is closed, so that no two
/// updates, one of them given up by its request, write to the same place.
struct Turn {
    dir: Arc<Dir>,
    key: IndexKey,
}

impl Turn {
    async fn take(dir: &Arc<Dir>, key: IndexKey) -> Self {
        let mark = || {
            let mut state = dir.lock_key(key);
            let is_free = !state.updating.contains(&key);
            if is_free {
                state.updating.push(key);
            }
            is_free.then_some(())
        };
        dir.changed.until(mark).await;
        Self { dir: Arc::clone(dir), key }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        take_key(&mut self.dir.lock_key(self.key).updating, self.key);
        self.dir.changed.wake_all();
    }
}

/// Replaces head and times of the object of `record.key`, if it is the confirmed one. It is removed
/// when its file has been updated too often, does not verify, or has another head.
pub(crate) async fn update(
    dir: &Arc<Dir>,
    record: &Record,
    confirmed: &Confirmed,
) -> Result<(), SchemeError> {
    dir.in_service()?;
    let key = IndexKey::from(&record.key);
    let turn = Turn::take(dir, key).await;
    let Some(entry) = dir.index.peek(key) else { return Ok(()) };
    match append(dir, (record, confirmed), turn, entry).await {
        Ok(true) => Ok(()),
        Ok(false) => dir.remove(&record.key).await.map(|_| ()),
        Err(Failure::Refused(error)) => Err(error),
        Err(failure @ (Failure::Missing | Failure::Corrupt(_))) => {
            dir.drop_bad(key, entry, failure.reason());
            Ok(())
        }
    }
}

/// `false` if the file has another version, too much waste in it, or no room for more.
async fn append(
    dir: &Arc<Dir>,
    (record, confirmed): (&Record, &Confirmed),
    turn: Turn,
    entry: FileEntry,
) -> Result<bool, Failure> {
    let failed = |operation, error| Failure::from_engine(dir, operation, entry.file, error);
    let permit = Permit::take(dir).map_err(Failure::Refused)?;
    let key = turn.key;
    let opened = dir.engine.open(entry.file, OpenFor::Updating, Arc::new((permit, turn))).await;
    let handle = opened.map_err(|error| failed("open", error))?;
    let len = file_bytes(entry);
    let source = Source::Open(OpenFile::new(dir, Arc::clone(&dir.engine), handle, entry).await?);
    let Surroundings { header, footer: old, .. } =
        Surroundings::read(&source, entry, record.key).await?;
    let Some(header_bytes) = header_block_bytes(record) else { return Ok(false) };
    if !confirmed.is(&header.record.head, &header.record.times) {
        return Ok(false);
    }
    let wasted = len - (old.table_offset + old.table_bytes());
    if wasted > WASTED_BYTES_MAX.max(old.stored_bytes / 4) {
        return Ok(false);
    }
    let mut tail = Vec::with_capacity(header_bytes + FOOTER_BYTES + UNIT_BYTES);
    let header_checksum = encode_header(record, entry.file, now_ns(), &mut tail);
    pad_for_footer(len, &mut tail);
    let footer =
        Footer { header_offset: len, header_bytes: header_bytes as u64, header_checksum, ..old };
    footer.encode(record.key, &mut tail);
    let Ok(size_units) = u32::try_from((len + tail.len() as u64) / UNIT_BYTES as u64) else {
        return Ok(false);
    };
    dir.counts.written(tail.len());
    source.append(len, tail).await?;
    dir.counts
        .object_bytes
        .fetch_add((record.url.len() + record.head.len()) as u64, Ordering::Relaxed);
    Ok(enter(dir, key, entry, FileEntry { size_units, ..entry }))
}

/// Lets the index know the new length, unless there is another object meanwhile, which is newer.
fn enter(dir: &Arc<Dir>, key: IndexKey, entry: FileEntry, updated: FileEntry) -> bool {
    let wants_flush = {
        let _order = dir.lock_key(key);
        if dir.is_closed() || !dir.index.replace_if(key, entry, updated) {
            return true;
        }
        dir.space.resize(file_bytes(entry), file_bytes(updated));
        dir.log.append(LogRecord::Add(key, updated))
    };
    dir.flush_if(wants_flush);
    true
}
