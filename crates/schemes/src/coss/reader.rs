//! Reading objects: the whole record with one read, verified before anything is answered.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use humboldt_store::Key;
use humboldt_store::index::{FileEntry, IndexKey};
use humboldt_store::scheme::{
    Confirmed, Extent, IoFuture, OpenObject, Reader, Record, SchemeError,
};
use humboldt_sys::aligned::Buffer;

use super::dir::{Dir, Hold};
use super::format::{STRIPE_BYTES, UNIT_BYTES};
use super::record::{self, Decoded};
use super::stripes::{Condition, Step};

/// How often an operation starts again because the object moved while it was being read.
const TRIES: usize = 8;

/// A record of up to this length is written again when its head changes; longer ones are removed.
const UPDATED_BYTES_MAX: usize = 64 * 1024;

/// An open object, all of it in memory.
struct CossReader {
    found: Decoded,
    _hold: Hold,
}

/// A verified record, and where it was found.
struct Fetched {
    found: Decoded,
    entry: FileEntry,
    hold: Hold,
}

/// Opens the object of `key`.
pub(super) async fn open(dir: &Arc<Dir>, key: &Key) -> Result<Option<OpenObject>, SchemeError> {
    let Some(Fetched { mut found, entry, hold }) = fetch(dir, key).await? else { return Ok(None) };
    dir.relocate(IndexKey::from(key), entry, &found);
    dir.counts.reads.fetch_add(1, Ordering::Relaxed);
    let record = found.record.take();
    Ok(Some(OpenObject { record, reader: Box::new(CossReader { found, _hold: hold }) }))
}

/// Finds and verifies the record of `key`.
async fn fetch(dir: &Arc<Dir>, key: &Key) -> Result<Option<Fetched>, SchemeError> {
    dir.in_service()?;
    let index_key = IndexKey::from(key);
    for _ in 0..TRIES {
        let entry = dir.index.peek(index_key).filter(|_| dir.is_rebuilt());
        let Some(entry) = entry else { return Ok(None) };
        let hold = Hold::to_read(dir, u64::from(entry.size_units) * UNIT_BYTES as u64)?;
        let (slot, _) = dir.geometry.locate(entry.file);
        let seq = dir.seq(slot);
        let bytes = read(dir, entry).await.map_err(|error| read_error(dir, error))?;
        dir.in_service()?;
        let found = record::decode(bytes, *key, seq, dir.id);
        // A removal, or an overwriting of the stripe, takes the key out of the index first.
        let now = dir.index.peek(index_key);
        match found {
            Ok(_) if now.is_none() => return Ok(None),
            Ok(found) => return Ok(Some(Fetched { found, entry, hold })),
            Err(why) if now == Some(entry) && dir.seq(slot) == seq => {
                dir.drop_bad(index_key, entry, why);
                return Err(SchemeError::Corrupt(why));
            }
            Err(_) => {}
        }
    }
    Err(SchemeError::Busy("the object keeps changing"))
}

fn read_error(dir: &Dir, error: io::Error) -> SchemeError {
    if error.kind() == io::ErrorKind::WouldBlock {
        dir.counts.shed_hits.fetch_add(1, Ordering::Relaxed);
        return dir.shed("too many reads");
    }
    dir.health.failure("read", dir.data.path.display(), &error);
    dir.io_error("read", error)
}

/// The bytes of a record: from memory if its stripe is there, else with one read.
async fn read(dir: &Dir, entry: FileEntry) -> io::Result<Buffer> {
    let (slot, offset) = dir.geometry.locate(entry.file);
    let len = (entry.size_units as usize * UNIT_BYTES).min(STRIPE_BYTES - offset);
    let in_memory = dir.memory.read().get(&slot).map(Arc::clone);
    if let Some(stripe) = in_memory {
        let mut buffer = Buffer::new(len);
        buffer.copy_from_slice(&stripe.bytes.read()[offset..offset + len]);
        return Ok(buffer);
    }
    let bytes = dir.data.read(dir.stripe_offset(slot) + offset as u64, len).await?;
    dir.health.success();
    Ok(bytes)
}

/// Replaces head and times of the stored object if it is the confirmed one, or removes it.
pub(super) async fn update(
    dir: &Arc<Dir>,
    record: &Record,
    confirmed: &Confirmed,
) -> Result<(), SchemeError> {
    for _ in 0..TRIES {
        let fetched = match fetch(dir, &record.key).await {
            Ok(Some(fetched)) => fetched,
            Ok(None) | Err(SchemeError::Corrupt(_)) => break,
            Err(SchemeError::Down) => return Err(SchemeError::Down),
            Err(_) => break,
        };
        let Fetched { found, entry, hold: _hold } = fetched;
        let is_small = entry.size_units as usize * UNIT_BYTES <= UPDATED_BYTES_MAX;
        let old = &found.record;
        let is_same =
            old.url == record.url && old.kind == record.kind && confirmed.is(&old.head, &old.times);
        let Some(object) = (is_small && is_same).then(|| found.with(record, dir.id)).flatten()
        else {
            break;
        };
        let key = IndexKey::from(&record.key);
        match dir.store(key, object, Condition::IfStill(entry)).await? {
            Step::Appended => return Ok(()),
            Step::Changed => {}
            Step::Refused(_) | Step::Wait => break,
        }
    }
    dir.remove(&record.key).await.map(drop)
}

impl Reader for CossReader {
    fn body_bytes(&self) -> Option<u64> {
        self.found.body_bytes
    }

    fn extents(&self) -> &[Extent] {
        &self.found.extents
    }

    fn read<'a>(&'a mut self, offset: u64, buf: &'a mut [u8]) -> IoFuture<'a, usize> {
        let bytes = self.found.body_at(offset);
        let len = bytes.len().min(buf.len());
        buf[..len].copy_from_slice(&bytes[..len]);
        Box::pin(std::future::ready(Ok(len)))
    }

    fn at_hand(&self, offset: u64) -> &[u8] {
        self.found.body_at(offset)
    }
}
