//! New head and times for a stored object: a header block and a footer appended to its file.

use std::sync::Arc;

use humboldt_store::index::{FileEntry, IndexKey};
use humboldt_store::scheme::{Record, SchemeError};
use rustix::io::Errno;

use super::dir::{Dir, file_bytes};
use super::files;
use super::format::{
    Corrupt, FOOTER_BYTES, Footer, UNIT_BYTES, encode_header, header_block_bytes, pad_for_footer,
};
use super::log::{LogRecord, now_ns};
use super::object::Failure;

/// Old header blocks may occupy this many bytes of a file, or a quarter of what is stored if that is more.
const WASTED_BYTES_MAX: u64 = 16 * 1024;

/// Replaces head and times of the object of `record.key`, if there is one. It is removed when its file has been updated
/// too often, or does not verify.
pub(crate) fn update(dir: &Arc<Dir>, record: &Record) -> Result<(), SchemeError> {
    dir.in_service()?;
    let key = IndexKey::from(&record.key);
    let (entry, outcome) = {
        let _order = dir.lock_key(key);
        let Some(entry) = dir.index.peek(key) else { return Ok(()) };
        (entry, append(dir, record, key, entry))
    };
    match outcome {
        Ok(true) => Ok(()),
        Ok(false) => dir.remove(&record.key).map(|_| ()),
        Err(Failure::Refused(error)) => Err(error),
        Err(Failure::Missing | Failure::Corrupt(_)) => {
            dir.drop_bad(key, entry);
            Ok(())
        }
    }
}

/// `false` if there is too much waste in the file, or no room for more.
fn append(dir: &Dir, record: &Record, key: IndexKey, entry: FileEntry) -> Result<bool, Failure> {
    let refused = |operation, error| Failure::Refused(dir.failed(operation, entry.file, error));
    let fd = match dir.tree.open_for_update(entry.file) {
        Err(Errno::NOENT) => return Err(Failure::Missing),
        other => other.map_err(|error| refused("open", error))?,
    };
    let len = file_bytes(entry);
    let mut bytes = [0; FOOTER_BYTES];
    let footer_offset = len.checked_sub(FOOTER_BYTES as u64).ok_or(Corrupt("file is short"))?;
    if !files::read_exact_at(&fd, &mut bytes, footer_offset).map_err(|error| refused("read", error))? {
        return Err(Corrupt("file is short").into());
    }
    let old = Footer::decode(&bytes, record.key, len)?;
    let Some(header_bytes) = header_block_bytes(record) else { return Ok(false) };
    let wasted = len - (old.table_offset + old.table_bytes());
    if wasted > WASTED_BYTES_MAX.max(old.stored_bytes / 4) {
        return Ok(false);
    }
    let mut tail = Vec::with_capacity(header_bytes + FOOTER_BYTES + UNIT_BYTES);
    let header_checksum = encode_header(record, entry.file, now_ns(), &mut tail);
    pad_for_footer(len, &mut tail);
    let footer = Footer { header_offset: len, header_bytes: header_bytes as u64, header_checksum, ..old };
    footer.encode(record.key, &mut tail);
    let Ok(size_units) = u32::try_from((len + tail.len() as u64) / UNIT_BYTES as u64) else {
        return Ok(false);
    };
    files::write_all_at(&fd, &tail, len).map_err(|error| refused("update", error))?;
    let updated = FileEntry { size_units, ..entry };
    if dir.index.replace_if(key, entry, updated) {
        dir.space.resize(len, file_bytes(updated));
        dir.log.append(dir.tree.root(), LogRecord::Add(key, updated));
    }
    Ok(true)
}
