//! Reading objects: one read for a record, one for each fragment of a large object. Everything is
//! verified before it is given out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use humboldt_store::Key;
use humboldt_store::scheme::{Extent, IoFuture, OpenObject, Reader, SchemeError};
use humboldt_sys::aligned::Buffer;
use humboldt_sys::append_buffer::AppendBuffer;

use super::format::{
    BLOCK_BYTES, Corrupt, Fragment, HEADER_BYTES, Kind, Surroundings, UNIT_BYTES, claimed,
};
use super::index::{Entry, Hash64};
use super::store::{Store, read_data, span};

/// How often an open starts again because the object was moved or replaced while it was being read.
const OPEN_TRIES: usize = 8;

/// Why an object cannot be read.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It does not verify.
    Corrupt(Corrupt),
    /// The device, or a bound of ours, is in the way.
    Refused(SchemeError),
}

impl From<Corrupt> for Failure {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt)
    }
}

/// A verified record in memory.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) found: Surroundings,
    buffer: Buffer,
    /// Start of the record in the buffer.
    at: usize,
    /// Where its bytes of the body begin.
    body_at: usize,
}

impl Loaded {
    fn verify(buffer: Buffer, at: usize, location: u64, generation: u64) -> Result<Self, Corrupt> {
        let found = Surroundings::decode(buffer.get(at..).unwrap_or_default())?;
        if found.place.location != location || found.place.generation != generation {
            return Err(Corrupt("record of another place"));
        }
        let body_at = at + found.bytes();
        let loaded = Self { found, buffer, at, body_at };
        let body = loaded.body().ok_or(Corrupt("record is short"))?;
        for (number, block) in body.chunks(BLOCK_BYTES).enumerate() {
            loaded.found.verify_block(number, block)?;
        }
        Ok(loaded)
    }

    /// The bytes of the body in this record.
    fn body(&self) -> Option<&[u8]> {
        self.buffer.get(self.body_at..self.body_at + self.found.inline_bytes)
    }

    /// The same; empty if there are none.
    pub(crate) fn body_bytes(&self) -> &[u8] {
        self.body().unwrap_or_default()
    }

    /// The whole record.
    pub(crate) fn record_bytes(&self) -> Option<&[u8]> {
        self.buffer.get(self.at..self.body_at + self.found.inline_bytes)
    }
}

/// The record at `location` as it waits in memory for the device; `None` if it does not.
fn from_memory(store: &Store, location: u64) -> Option<Buffer> {
    store.log.read_pending(location * UNIT_BYTES, |data: &AppendBuffer, at| {
        let (lengths, ..) = claimed(data.read(at..at + HEADER_BYTES)?)?;
        let record = data.read(at..at + lengths.record_bytes)?;
        let mut buffer = Buffer::new(record.len());
        buffer.copy_from_slice(record);
        Some(buffer)
    })
}

/// Reads and verifies the record of at most `bytes` bytes at `location`, which must be of this
/// generation.
async fn load(
    store: &Store,
    location: u64,
    generation: u64,
    bytes: u64,
) -> Result<Loaded, Failure> {
    if let Some(buffer) = from_memory(store, location) {
        return Ok(Loaded::verify(buffer, 0, location, generation)?);
    }
    let (start, length) = span(store, location, bytes);
    let mut buffer = Buffer::new(length);
    let read = match store.read_now(start, &mut buffer) {
        Some(outcome) => outcome,
        None => {
            let (filled, outcome) = store.file_for_reads().read(start, buffer).await;
            buffer = filled;
            outcome
        }
    };
    let read = read.map_err(|error| Failure::Refused(store.failed("read", &error)))?;
    store.counts.read(read as u64);
    buffer.set_len(read);
    Ok(Loaded::verify(buffer, (location * UNIT_BYTES - start) as usize, location, generation)?)
}

/// The same for the keeper: on its thread.
pub(crate) fn load_blocking(store: &Store, entry: Entry) -> Result<Loaded, Failure> {
    let generation = store.generation_at(entry.location);
    load_place_blocking(store, entry.location, generation, entry.length.bytes_max())
}

fn load_place_blocking(
    store: &Store,
    location: u64,
    generation: u64,
    bytes: u64,
) -> Result<Loaded, Failure> {
    if let Some(buffer) = from_memory(store, location) {
        return Ok(Loaded::verify(buffer, 0, location, generation)?);
    }
    let (start, length) = span(store, location, bytes);
    let buffer = read_data(store, start, length)
        .map_err(|error| Failure::Refused(store.failed("read", &error)))?;
    let at = (location * UNIT_BYTES - start) as usize;
    Ok(Loaded::verify(buffer, at, location, generation)?)
}

/// Reads and verifies the record of `key`, if there is one; returns its place.
pub(crate) async fn find(
    store: &Arc<Store>,
    key: &Key,
) -> Result<Option<(Hash64, Entry, Loaded)>, SchemeError> {
    store.in_service()?;
    let hash = store.hash(key);
    let Some(index) = store.index.get() else { return Ok(None) };
    for _ in 0..OPEN_TRIES {
        let Some(entry) = index.get(hash) else { return Ok(None) };
        let generation = store.generation_at(entry.location);
        let corrupt = match load(store, entry.location, generation, entry.length.bytes_max()).await
        {
            Ok(loaded) => {
                store.health.success();
                let is_it = loaded.found.record.key == *key && loaded.found.kind != Kind::Fragment;
                return Ok(is_it.then_some((hash, entry, loaded)));
            }
            Err(Failure::Refused(error)) => {
                if matches!(error, SchemeError::Busy(_)) {
                    store.counts.shed.fetch_add(1, Ordering::Relaxed);
                    store.counts.shed_hits.fetch_add(1, Ordering::Relaxed);
                }
                return Err(error);
            }
            Err(Failure::Corrupt(corrupt)) => corrupt,
        };
        store.in_service()?;
        if index.get(hash).is_some_and(|now| now.location == entry.location)
            && store.generation_at(entry.location) == generation
        {
            store.drop_bad(hash, entry.location, corrupt);
            return Err(corrupt.into());
        }
    }
    Err(SchemeError::Busy("the object keeps changing"))
}

/// Opens the object of `key`.
pub(crate) async fn open(store: &Arc<Store>, key: &Key) -> Result<Option<OpenObject>, SchemeError> {
    let Some((hash, entry, mut loaded)) = find(store, key).await? else { return Ok(None) };
    let Some(index) = store.index.get() else { return Ok(None) };
    // It is being reclaimed; or a crash has left an object of which a part was reclaimed.
    let Some(held) = Held::take(store, &loaded.found.fragments) else {
        store.drop_unlogged(index, hash, entry.location);
        return Ok(None);
    };
    index.bump(hash, entry.location);
    store.counts.reads.fetch_add(1, Ordering::Relaxed);
    let mut starts = Vec::with_capacity(loaded.found.fragments.len());
    let mut at = 0_u64;
    for fragment in &loaded.found.fragments {
        starts.push(at);
        at += u64::from(fragment.bytes);
    }
    let record = loaded.found.record.take();
    let reader = RingReader {
        store: Arc::clone(store),
        hash,
        entry,
        loaded,
        starts,
        inline_start: at,
        fragment: None,
        _held: held,
    };
    Ok(Some(OpenObject { record, reader: Box::new(reader) }))
}

/// An open object: its record is in memory, verified; its fragments are read one by one.
struct RingReader {
    store: Arc<Store>,
    hash: Hash64,
    entry: Entry,
    loaded: Loaded,
    /// Start of each fragment among the stored bytes.
    starts: Vec<u64>,
    /// Start of the bytes in the record itself.
    inline_start: u64,
    fragment: Option<(usize, Loaded)>,
    _held: Held,
}

/// Segments that are not overwritten while an object in them is being read (see
/// [`segments`](super::segments)).
struct Held {
    store: Arc<Store>,
    generations: Vec<u64>,
}

impl Held {
    /// Those of these fragments; `None` if one of them is not there any more.
    fn take(store: &Arc<Store>, fragments: &[Fragment]) -> Option<Self> {
        let mut generations: Vec<u64> =
            fragments.iter().map(|fragment| fragment.generation).collect();
        generations.dedup();
        let is_there =
            |fragment: &Fragment| store.generation_at(fragment.location) == fragment.generation;
        let are_held = generations.is_empty() || store.segments.hold(&generations);
        let held = are_held.then(|| Self { store: Arc::clone(store), generations });
        held.filter(|_| fragments.iter().all(is_there))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.generations.is_empty() && self.store.segments.release(&self.generations) {
            self.store.progress.notify_waiters();
        }
    }
}

impl RingReader {
    /// The place of offset `at` of the body among the stored bytes, and the number of bytes that
    /// follow it in its extent.
    fn locate(&self, at: u64) -> Option<(u64, u64)> {
        let mut stored = 0;
        for extent in &self.loaded.found.extents {
            if (extent.start..extent.end).contains(&at) {
                return Some((stored + (at - extent.start), extent.end - at));
            }
            stored += extent.end - extent.start;
        }
        None
    }

    async fn read_some(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Failure> {
        let Some((at, in_extent)) = self.locate(offset) else { return Ok(0) };
        let (start, body) = if at >= self.inline_start {
            (self.inline_start, self.loaded.body())
        } else {
            let number = self.starts.partition_point(|start| *start <= at).saturating_sub(1);
            let start = self.starts.get(number).copied().unwrap_or(0);
            (start, self.fragment(number).await?.body())
        };
        let rest = usize::try_from(at - start)
            .ok()
            .and_then(|from| body?.get(from..))
            .ok_or(Corrupt("lengths"))?;
        let bytes = rest.len().min(buf.len()).min(usize::try_from(in_extent).unwrap_or(usize::MAX));
        let (Some(to), Some(from)) = (buf.get_mut(..bytes), rest.get(..bytes)) else {
            return Ok(0);
        };
        to.copy_from_slice(from);
        Ok(bytes)
    }

    async fn fragment(&mut self, number: usize) -> Result<&Loaded, Failure> {
        if self.fragment.as_ref().is_none_or(|(held, _)| *held != number) {
            self.fragment = None;
            let fragment = *self.loaded.found.fragments.get(number).ok_or(Corrupt("lengths"))?;
            let loaded = self.load_fragment(number, fragment).await?;
            self.fragment = Some((number, loaded));
        }
        self.fragment.as_ref().map(|(_, loaded)| loaded).ok_or(Corrupt("lengths").into())
    }

    async fn load_fragment(&self, number: usize, fragment: Fragment) -> Result<Loaded, Failure> {
        let Fragment { location, generation, record_bytes, .. } = fragment;
        let loaded = load(&self.store, location, generation, record_bytes.into()).await;
        // Too much waited for readers: nothing is wrong with the directory.
        if self.store.generation_at(location) != generation {
            return Err(Failure::Refused(SchemeError::Busy("its place is needed")));
        }
        let loaded = loaded?;
        if is_fragment(&loaded, number, &fragment, &self.loaded) {
            Ok(loaded)
        } else {
            Err(Corrupt("another fragment").into())
        }
    }
}

/// Whether a record is this fragment of an object.
fn is_fragment(loaded: &Loaded, number: usize, fragment: &Fragment, object: &Loaded) -> bool {
    loaded.found.kind == Kind::Fragment
        && loaded.found.checksum == fragment.checksum
        && loaded.found.record.key == object.found.record.key
        && loaded.found.fragment_number as usize == number
        && loaded.found.inline_bytes == fragment.bytes as usize
}

/// Whether all fragments of an object that begin at a location that `is_in_doubt` are there, and
/// verify. For the keeper: on its thread.
pub(crate) fn has_fragments(
    store: &Store,
    entry: Entry,
    is_in_doubt: impl Fn(u64) -> bool,
) -> bool {
    // Without its record it is a miss anyway.
    let Ok(object) = load_blocking(store, entry) else { return true };
    let mut fragments = object.found.fragments.iter().enumerate();
    fragments.all(|(number, fragment)| {
        let Fragment { location, generation, record_bytes, .. } = *fragment;
        !is_in_doubt(location)
            || load_place_blocking(store, location, generation, record_bytes.into())
                .is_ok_and(|loaded| is_fragment(&loaded, number, fragment, &object))
    })
}

impl Reader for RingReader {
    fn body_bytes(&self) -> Option<u64> {
        self.loaded.found.body_bytes
    }

    fn extents(&self) -> &[Extent] {
        &self.loaded.found.extents
    }

    fn at_hand(&self, offset: u64) -> &[u8] {
        if self.inline_start > 0 {
            return &[];
        }
        let Some((at, in_extent)) = self.locate(offset) else { return &[] };
        let rest = usize::try_from(at)
            .ok()
            .and_then(|from| self.loaded.body()?.get(from..))
            .unwrap_or_default();
        let bytes = rest.len().min(usize::try_from(in_extent).unwrap_or(usize::MAX));
        rest.get(..bytes).unwrap_or_default()
    }

    fn read<'a>(&'a mut self, offset: u64, buf: &'a mut [u8]) -> IoFuture<'a, usize> {
        Box::pin(async move {
            if self.inline_start > 0 {
                self.store.in_service()?;
            }
            match self.read_some(offset, buf).await {
                Ok(bytes) => Ok(bytes),
                Err(Failure::Refused(error)) => Err(error),
                Err(Failure::Corrupt(corrupt)) => {
                    self.store.drop_bad(self.hash, self.entry.location, corrupt);
                    Err(corrupt.into())
                }
            }
        })
    }
}
