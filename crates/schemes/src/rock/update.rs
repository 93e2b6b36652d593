//! New head and times for a stored object: its first slot is written again, in its place.
//!
//! Meanwhile the object is not in the index but among the stale ones: a reader misses it, a purge
//! waits for it. A write that is torn by a crash does not verify: a miss.

use std::sync::Arc;

use humboldt_store::index::{FileEntry, IndexKey};
use humboldt_store::scheme::{Confirmed, Record, SchemeError};
use humboldt_sys::append_buffer::AppendBuffer;
use tokio::sync::oneshot;

use super::device::Failure;
use super::dir::Dir;
use super::format::{self, Corrupt, META_BYTES, Meta, SLOT_HEADER_BYTES, Shape, SlotHeader};
use super::purge;
use super::reader;
use super::slots::Tag;
use crate::block::replied;

/// How often it is tried again because the object changed meanwhile; then the object is removed.
const TRIES: usize = 4;

/// A first slot with the new record in it.
struct NewSlot {
    data: Arc<AppendBuffer>,
    entry: FileEntry,
}

/// The result of one try.
enum Tried {
    Done,
    /// There is no room for the longer head, or the stored answer is not the one that was
    /// confirmed.
    Impossible,
    /// Something else has changed the object.
    Changed,
}

/// The work to be done.
struct Update<'a> {
    record: &'a Record,
    confirmed: &'a Confirmed,
}

/// Replaces head and times of the object of `record.key`, if it is the confirmed one. It is removed
/// when the new head does not fit, and when it is another version.
pub(crate) async fn update(
    dir: &Arc<Dir>,
    record: &Record,
    confirmed: &Confirmed,
) -> Result<(), SchemeError> {
    dir.device.in_service()?;
    let key = IndexKey::from(&record.key);
    let update = Update { record, confirmed };
    for _ in 0..TRIES {
        let (entry, changes) = {
            let changes = dir.lock_key(key);
            let Some(entry) = dir.index.peek(key) else { return Ok(()) };
            (entry, *changes)
        };
        match try_update(dir, &update, key, entry, changes).await {
            Ok(Tried::Done) => return Ok(()),
            Ok(Tried::Impossible) => break,
            Ok(Tried::Changed) => {}
            Err(Failure::Refused(error)) => return Err(error),
            Err(Failure::Corrupt(corrupt)) => dir.drop_bad(key, entry, corrupt),
        }
    }
    purge::remove(dir, &record.key).await.map(drop)
}

async fn try_update(
    dir: &Arc<Dir>,
    update: &Update<'_>,
    key: IndexKey,
    entry: FileEntry,
    changes: u64,
) -> Result<Tried, Failure> {
    dir.device.check_timeout()?;
    let (header, payload) = reader::first_slot(dir, entry).await?;
    if header.key != update.record.key || header.position != 0 {
        return Err(Corrupt("slot of another object").into());
    }
    let Some(new) = new_slot(dir, update, entry, header, &payload)? else {
        return Ok(Tried::Impossible);
    };
    dir.device.wait_for_turn().await?;
    let Some(written) = submit(dir, key, entry, changes, new)? else { return Ok(Tried::Changed) };
    replied(&*dir.device.file, written).await.unwrap_or(Err(SchemeError::Down))?;
    Ok(Tried::Done)
}

/// The first slot with the new record, sealed; `None` if it does not fit, or is not for the stored
/// object.
fn new_slot(
    dir: &Dir,
    update: &Update<'_>,
    entry: FileEntry,
    header: SlotHeader,
    payload: &[u8],
) -> Result<Option<NewSlot>, Failure> {
    let geometry = dir.device.geometry;
    let old = Meta::decode(payload)?;
    let record = update.record;
    if !old.head(payload).is_some_and(|head| update.confirmed.is(head, &old.times)) {
        return Ok(None);
    }
    let Some(body) = payload.get(old.record_bytes() as usize..) else { return Ok(None) };
    let Some(record_bytes) = format::record_bytes(record) else { return Ok(None) };
    let payload_bytes = record_bytes + body.len();
    if payload_bytes > geometry.payload_bytes_max() {
        return Ok(None);
    }
    let meta = Meta {
        kind: record.kind,
        times: record.times,
        url_bytes: record.url.len() as u32,
        head_bytes: record.head.len() as u32,
        ..old
    };
    let shape =
        Shape { geometry, first_bytes: payload_bytes as u64, stream_bytes: meta.stream_bytes() };
    let (Some(slots), Some(size_units)) = (shape.slots(), shape.size_units()) else {
        return Ok(None);
    };
    if slots != header.chain {
        return Err(Corrupt("length of the chain").into());
    }
    let len = geometry.disk_bytes(payload_bytes);
    let data = AppendBuffer::new(len);
    let Some(mut region) = data.reserve(len) else { return Ok(None) };
    region.fill(0);
    let mut at = SLOT_HEADER_BYTES;
    for part in [&meta.encode()[..META_BYTES], &record.url, &record.head, body] {
        if let Some(place) = region.get_mut(at..at + part.len()) {
            place.copy_from_slice(part);
        }
        at += part.len();
    }
    geometry.seal(
        entry.file,
        &SlotHeader { payload_bytes: payload_bytes as u32, ..header },
        &mut region,
    );
    let _ = region.publish();
    Ok(Some(NewSlot { data, entry: FileEntry { size_units, ..entry } }))
}

/// Takes the object out of the index and writes the slot; it returns when that is done. `None` if
/// it is not the same object any more.
fn submit(
    dir: &Arc<Dir>,
    key: IndexKey,
    entry: FileEntry,
    changes: u64,
    new: NewSlot,
) -> Result<Option<oneshot::Receiver<Result<(), SchemeError>>>, SchemeError> {
    let pass = dir.device.pass()?;
    {
        let mut now = dir.lock_key(key);
        // Held from the look to the removal, so that no eviction comes between unseen by a purge.
        let mut slots = dir.slots.lock();
        if *now != changes || dir.index.peek(key) != Some(entry) {
            return Ok(None);
        }
        dir.index.remove_if(key, entry.file);
        *now += 1;
        slots.add_stale(Tag::from(key), entry.file);
    }
    let (reply, written) = oneshot::channel();
    let for_end = Arc::clone(dir);
    let len = new.data.reserved();
    dir.device.write(
        &pass,
        dir.device.geometry.offset(entry.file),
        &new.data,
        0..len,
        move |outcome| {
            put_back(&for_end, key, new.entry, outcome.is_ok());
            let _ = reply.send(outcome); // who asked may have gone
        },
    );
    Ok(Some(written))
}

/// The object is in the index again, unless it could not be written. If a younger one has been
/// stored meanwhile it is overwritten: or else it could come back when the younger one has been
/// evicted.
pub(super) fn put_back(dir: &Arc<Dir>, key: IndexKey, entry: FileEntry, is_written: bool) {
    let tag = Tag::from(key);
    let replaced = {
        let mut changes = dir.lock_key(key);
        *changes += 1;
        let mut slots = dir.slots.lock();
        let is_overtaken = slots.is_overtaken(entry.file) || dir.index.peek(key).is_some();
        match () {
            () if is_overtaken => Some(slots.runs(entry.file, dir.slots_of(entry))),
            () if is_written => {
                dir.index.insert(key, entry);
                slots.forget_stale(tag, entry.file);
                None
            }
            () => {
                dir.retire(&mut slots, key, entry);
                None
            }
        }
    };
    if let Some(runs) = replaced {
        purge::discard(dir, tag, entry.file, runs);
    }
    dir.changed.notify_waiters();
}
