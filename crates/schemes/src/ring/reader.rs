//! Reading objects: one read for a record, one for each fragment of a large object. Everything is
//! verified before it is given out.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use humboldt_store::Key;
use humboldt_store::scheme::{Extent, IoFuture, OpenObject, Reader, SchemeError};
use humboldt_sys::aligned::Buffer;
use humboldt_sys::append_buffer::AppendBuffer;

use super::format::{
    BLOCK_BYTES, Corrupt, Fragment, HEADER_BYTES, Kind, Place, Surroundings, UNIT_BYTES, claimed,
};
use super::index::{Entry, Hash64};
use super::store::{Store, read_data, span};

/// What surrounds the body of a fragment is shorter: it has no URL, no head and at most 16 blocks.
const FRONT_BYTES: usize = 4096;

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
    /// `None` when its memory has been given up.
    buffer: Option<Buffer>,
    /// Start of the record in the buffer.
    at: usize,
    /// Where its bytes of the body begin.
    body_at: usize,
}

impl Loaded {
    /// The record at `at` of the buffer, if it verifies and is the one of this place.
    pub(crate) fn verify(
        buffer: Buffer,
        at: usize,
        location: u64,
        generation: u64,
    ) -> Result<Self, Corrupt> {
        let found = Surroundings::decode(buffer.get(at..).unwrap_or_default())?;
        if found.place.location != location || found.place.generation != generation {
            return Err(Corrupt("record of another place"));
        }
        let body_at = at + found.bytes();
        let loaded = Self { found, buffer: Some(buffer), at, body_at };
        let body = loaded.body().ok_or(Corrupt("record is short"))?;
        for (number, block) in body.chunks(BLOCK_BYTES).enumerate() {
            loaded.found.verify_block(number, block)?;
        }
        Ok(loaded)
    }

    /// The bytes of the body in this record.
    fn body(&self) -> Option<&[u8]> {
        self.buffer.as_ref()?.get(self.body_at..self.body_at + self.found.inline_bytes)
    }

    /// Bytes of memory.
    fn memory_bytes(&self) -> u64 {
        self.buffer.as_ref().map_or(0, |buffer| buffer.len() as u64)
    }

    /// The same; empty if there are none.
    pub(crate) fn body_bytes(&self) -> &[u8] {
        self.body().unwrap_or_default()
    }

    /// The whole record.
    pub(crate) fn record_bytes(&self) -> Option<&[u8]> {
        self.buffer.as_ref()?.get(self.at..self.body_at + self.found.inline_bytes)
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
    let offset = location * UNIT_BYTES;
    let (buffer, at) = read_span(store, offset, bytes).await?;
    Ok(Loaded::verify(buffer, at, location, generation)?)
}

/// Reads `bytes` bytes at `offset` of the data from the device, and what shares its blocks; returns
/// also where they begin.
async fn read_span(store: &Store, offset: u64, bytes: u64) -> Result<(Buffer, usize), Failure> {
    let (start, length) = span(store, offset, bytes);
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
    Ok((buffer, (offset - start) as usize))
}

/// A part of a record in memory; nothing is verified.
struct Part {
    buffer: Buffer,
    at: usize,
    bytes: usize,
}

impl Part {
    /// Reads bytes `from..from + bytes` of the record at `location`.
    async fn read(
        store: &Store,
        location: u64,
        from: usize,
        bytes: usize,
    ) -> Result<Self, Failure> {
        let pending = store.log.read_pending(location * UNIT_BYTES, |data, at| {
            let found = data.read(at + from..at + from + bytes)?;
            let mut buffer = Buffer::new(found.len());
            buffer.copy_from_slice(found);
            Some(buffer)
        });
        let (buffer, at) = match pending {
            Some(buffer) => (buffer, 0),
            None => read_span(store, location * UNIT_BYTES + from as u64, bytes as u64).await?,
        };
        Ok(Self { buffer, at, bytes })
    }

    /// As many of the bytes as there are.
    fn bytes(&self) -> &[u8] {
        let end = (self.at + self.bytes).min(self.buffer.len());
        self.buffer.get(self.at..end).unwrap_or_default()
    }
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
    let (start, length) = span(store, location * UNIT_BYTES, bytes);
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
        front: None,
        held,
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
    /// The fragment that was read last.
    fragment: Option<(usize, Loaded)>,
    /// The same without its body.
    front: Option<(usize, Surroundings)>,
    held: Held,
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

    /// Holds one more; `false` if it is not there any more.
    fn add(&mut self, generation: u64) -> bool {
        let is_held = self.store.segments.hold(&[generation]);
        self.generations.extend(is_held.then_some(generation));
        is_held
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
        if self.is_thrifty() {
            let bytes = buf.len().min(usize::try_from(in_extent).unwrap_or(usize::MAX));
            return self.read_in_block(at, buf.get_mut(..bytes).unwrap_or_default()).await;
        }
        let (start, body) = if at >= self.inline_start {
            (self.inline_start, self.loaded.body())
        } else {
            let (number, start) = self.fragment_at(at);
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

    /// Whether it keeps no part of the body: each read reads a block of it.
    fn is_thrifty(&self) -> bool {
        self.loaded.buffer.is_none()
    }

    /// The fragment that has byte `at` of the stored ones: its number and its start.
    fn fragment_at(&self, at: u64) -> (usize, u64) {
        let number = self.starts.partition_point(|start| *start <= at).saturating_sub(1);
        (number, self.starts.get(number).copied().unwrap_or(0))
    }

    /// Reads bytes of a single block, at `at` of the stored ones, and keeps nothing of it.
    async fn read_in_block(&mut self, at: u64, buf: &mut [u8]) -> Result<usize, Failure> {
        let start = if at >= self.inline_start {
            self.inline_start
        } else {
            let (number, start) = self.fragment_at(at);
            self.read_front(number).await?;
            start
        };
        let (found, body_at) = match &self.front {
            Some((_, found)) if at < self.inline_start => (found, found.bytes()),
            // URL and head have been taken from it.
            _ => (&self.loaded.found, self.loaded.body_at - self.loaded.at),
        };
        let in_body = usize::try_from(at - start).map_err(|_| Corrupt("lengths"))?;
        let block = self.block(found, body_at, in_body / BLOCK_BYTES).await?;
        let rest = block.bytes().get(in_body % BLOCK_BYTES..).unwrap_or_default();
        let bytes = rest.len().min(buf.len());
        let (Some(to), Some(from)) = (buf.get_mut(..bytes), rest.get(..bytes)) else {
            return Ok(0);
        };
        to.copy_from_slice(from);
        if bytes == 0 { Err(Corrupt("lengths").into()) } else { Ok(bytes) }
    }

    /// Reads and verifies a block of the body, which begins at byte `body_at` of its record.
    async fn block(
        &self,
        found: &Surroundings,
        body_at: usize,
        number: usize,
    ) -> Result<Part, Failure> {
        let from = number * BLOCK_BYTES;
        let bytes = found.inline_bytes.saturating_sub(from).min(BLOCK_BYTES);
        let Place { location, generation, .. } = found.place;
        let block = Part::read(&self.store, location, body_at + from, bytes).await;
        self.is_held(location, generation)?;
        let block = block?;
        found.verify_block(number, block.bytes())?;
        Ok(block)
    }

    /// Sees to it that `front` is that of this fragment.
    async fn read_front(&mut self, number: usize) -> Result<(), Failure> {
        if self.front.as_ref().is_some_and(|(held, _)| *held == number) {
            return Ok(());
        }
        let fragment = *self.loaded.found.fragments.get(number).ok_or(Corrupt("lengths"))?;
        let Fragment { location, generation, record_bytes, .. } = fragment;
        let bytes = FRONT_BYTES.min(record_bytes as usize);
        let front = Part::read(&self.store, location, 0, bytes).await;
        self.is_held(location, generation)?;
        let found = Surroundings::decode(front?.bytes())?;
        let is_there = found.place.location == location && found.place.generation == generation;
        if !is_there || !is_fragment(&found, number, &fragment, &self.loaded.found) {
            return Err(Corrupt("another fragment").into());
        }
        self.front = Some((number, found));
        Ok(())
    }

    /// `Busy` if too much waited for readers: nothing is wrong with the directory.
    fn is_held(&self, location: u64, generation: u64) -> Result<(), Failure> {
        if self.store.generation_at(location) != generation {
            return Err(Failure::Refused(SchemeError::Busy("its place is needed")));
        }
        Ok(())
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
        self.is_held(location, generation)?;
        let loaded = loaded?;
        if is_fragment(&loaded.found, number, &fragment, &self.loaded.found) {
            Ok(loaded)
        } else {
            Err(Corrupt("another fragment").into())
        }
    }
}

/// Whether a record is this fragment of an object.
fn is_fragment(
    found: &Surroundings,
    number: usize,
    fragment: &Fragment,
    object: &Surroundings,
) -> bool {
    found.kind == Kind::Fragment
        && found.checksum == fragment.checksum
        && found.record.key == object.record.key
        && found.fragment_number as usize == number
        && found.inline_bytes == fragment.bytes as usize
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
                .is_ok_and(|loaded| is_fragment(&loaded.found, number, fragment, &object.found))
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

    fn memory_bytes(&self) -> u64 {
        let fragments = self.loaded.found.fragments.iter();
        let longest = fragments.map(|fragment| u64::from(fragment.record_bytes)).max();
        let of_fragment = longest.filter(|_| !self.is_thrifty()).unwrap_or(0);
        self.loaded.memory_bytes() + of_fragment
    }

    fn let_go(&mut self) {
        // The record is read again only if its place is not used for something else meanwhile.
        if self.is_thrifty() || !self.held.add(self.loaded.found.place.generation) {
            return;
        }
        self.loaded.buffer = None;
        self.fragment = None;
    }

    fn read<'a>(&'a mut self, offset: u64, buf: &'a mut [u8]) -> IoFuture<'a, usize> {
        Box::pin(async move {
            if self.inline_start > 0 || self.is_thrifty() {
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
