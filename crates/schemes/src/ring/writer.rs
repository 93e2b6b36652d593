//! Writing objects: a small one is one record, appended when it is complete; of a large one,
//! fragments are appended as it arrives, and the record that lists them when it is complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use humboldt_store::scheme::{
    Confirmed, Extent, IoFuture, Place, Record, RecordKind, SchemeError, Writer,
};
use humboldt_store::{About, Borrowed};

use super::format::{EXTENTS_MAX, FRAGMENTS_MAX, Fragment, Kind, Plan};
use super::log::{Appended, Full};
use super::reader;
use super::store::Store;

/// How long a writer waits for a free segment, or for the device, before it gives up.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Most writers that wait at a time; further ones give up at once.
const WAITING_MAX: u32 = 256;

/// Longest body that is stored from memory at once.
pub(crate) const PUT_NOW_BYTES_MAX: u64 = 128 * 1024;

/// Writers that wait, over all rings of the process.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// An object being written.
pub(crate) struct RingWriter {
    store: Arc<Store>,
    record: Record,
    extents: Vec<Extent>,
    fragments: Vec<Fragment>,
    /// Stored bytes that are in no fragment yet.
    buffered: Vec<u8>,
    /// The memory that it has taken for that, in bytes: the capacity.
    gathered_bytes: u64,
    stored_bytes: u64,
    /// Until a part of it is in the log.
    place: Option<Place>,
}

impl RingWriter {
    /// Starts an object; `Busy` if it does not fit.
    pub(crate) fn create(
        store: &Arc<Store>,
        record: Record,
        body_bytes: Option<u64>,
    ) -> Result<Self, SchemeError> {
        store.in_service()?;
        if !store.may_store() {
            return Err(SchemeError::Busy("the index is being read"));
        }
        let options = &store.options;
        if body_bytes.is_some_and(|bytes| !(options.min_bytes..=options.max_bytes).contains(&bytes))
        {
            return Err(SchemeError::Busy("min-size or max-size"));
        }
        if body_bytes.is_some_and(|bytes| bytes > store.body_bytes_max()) {
            return Err(Full::TooLong.into());
        }
        let inline_bytes_max = store.geometry.inline_bytes_max() as u64;
        let mut writer = Self {
            store: Arc::clone(store),
            record,
            extents: Vec::new(),
            fragments: Vec::new(),
            buffered: Vec::new(),
            gathered_bytes: 0,
            stored_bytes: 0,
            place: None,
        };
        writer.make_room(body_bytes.unwrap_or(0).min(inline_bytes_max) as usize)?;
        Ok(writer)
    }

    /// Takes memory for `bytes` more than are in no fragment yet.
    fn make_room(&mut self, bytes: usize) -> Result<(), SchemeError> {
        let (len, capacity) = (self.buffered.len(), self.buffered.capacity());
        if len.saturating_add(bytes) <= capacity {
            return Ok(());
        }
        let wanted = (len + bytes).max(2 * capacity);
        let more = (wanted - capacity) as u64;
        if !self.store.log.gather(more) {
            self.store.counts.shed.fetch_add(1, Ordering::Relaxed);
            return Err(SchemeError::Busy(
                "objects being written have taken their share of memory",
            ));
        }
        self.gathered_bytes += more;
        self.buffered.reserve_exact(wanted - len);
        Ok(())
    }

    async fn append(&mut self, offset: u64, parts: &[&[u8]]) -> Result<(), SchemeError> {
        self.store.in_service()?;
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if bytes == 0 {
            return Ok(());
        }
        let end = offset.checked_add(bytes).ok_or(SchemeError::Busy("offset out of range"))?;
        if end > self.store.options.max_bytes {
            return Err(SchemeError::Busy("max-size"));
        }
        if self.stored_bytes + bytes > self.store.body_bytes_max() {
            return Err(Full::TooLong.into());
        }
        self.make_room(bytes as usize)?;
        self.extend(offset, end)?;
        self.stored_bytes += bytes;
        for part in parts {
            self.buffered.extend_from_slice(part);
        }
        while self.buffered.len() > self.store.geometry.inline_bytes_max() {
            self.write_fragment().await?;
        }
        Ok(())
    }

    /// Enters `start..end` into the extents.
    fn extend(&mut self, start: u64, end: u64) -> Result<(), SchemeError> {
        let is_full = self.extents.len() == EXTENTS_MAX;
        match self.extents.last_mut() {
            Some(last) if last.end == start => last.end = end,
            Some(last) if last.end > start => return Err(SchemeError::Busy("offsets must grow")),
            _ if is_full => return Err(SchemeError::Busy("too many extents")),
            _ => self.extents.push(Extent { start, end }),
        }
        Ok(())
    }

    async fn write_fragment(&mut self) -> Result<(), SchemeError> {
        if self.fragments.len() >= FRAGMENTS_MAX {
            return Err(Full::TooLong.into());
        }
        let bytes =
            self.store.geometry.fragment_bytes(self.fragments.len()).min(self.buffered.len());
        let plan = Plan {
            kind: Kind::Fragment,
            key: self.record.key,
            url: b"",
            head: b"",
            times: &self.record.times,
            body_bytes: None,
            extents: &[],
            fragments: &[],
            fragment_number: self.fragments.len() as u32,
            inline_bytes: bytes,
        };
        let record_bytes = plan.record_bytes().unwrap_or(0) as u32;
        let body = self.buffered.get(..bytes).unwrap_or_default();
        let Appended { place, checksum, .. } = put(&self.store, &plan, body).await?;
        self.place = None;
        self.fragments.push(Fragment {
            location: place.location,
            generation: place.generation,
            bytes: bytes as u32,
            record_bytes,
            checksum,
        });
        self.buffered.drain(..bytes);
        Ok(())
    }

    async fn finish(&mut self, body_bytes: Option<u64>) -> Result<(), SchemeError> {
        let store = &self.store;
        store.in_service()?;
        let stored_end = self.extents.last().map_or(0, |extent| extent.end);
        if body_bytes.is_some_and(|bytes| bytes < stored_end) {
            return Err(SchemeError::Busy("more was written than the length of the body"));
        }
        if body_bytes.is_some_and(|bytes| bytes < store.options.min_bytes) {
            return Err(SchemeError::Busy("min-size"));
        }
        let kind = match self.record.kind {
            RecordKind::Vary => Kind::Vary,
            RecordKind::Object if self.fragments.is_empty() => Kind::Object,
            RecordKind::Object => Kind::Large,
        };
        let plan = Plan {
            kind,
            key: self.record.key,
            url: &self.record.url,
            head: &self.record.head,
            times: &self.record.times,
            body_bytes,
            extents: &self.extents,
            fragments: &self.fragments,
            fragment_number: 0,
            inline_bytes: self.buffered.len(),
        };
        put(store, &plan, &self.buffered).await?;
        let around = (self.record.url.len() + self.record.head.len()) as u64;
        count(store, self.stored_bytes + around);
        Ok(())
    }
}

/// Stores a complete object without waiting, and says where its body can be read. `None`: there is
/// no room at the moment, or it does not fit.
pub(crate) fn put_now(store: &Arc<Store>, about: &About<'_>, body: &[&[u8]]) -> Option<Borrowed> {
    let About { key, url, head, times, body_bytes } = *about;
    let options = &store.options;
    if body_bytes > PUT_NOW_BYTES_MAX
        || !(options.min_bytes..=options.max_bytes).contains(&body_bytes)
        || !store.may_store()
    {
        return None;
    }
    let whole = [Extent { start: 0, end: body_bytes }];
    let plan = Plan {
        kind: Kind::Object,
        key,
        url,
        head: head.bytes(),
        times,
        body_bytes: Some(body_bytes),
        extents: if body_bytes == 0 { &[] } else { &whole },
        fragments: &[],
        fragment_number: 0,
        inline_bytes: body_bytes as usize,
    };
    let appended = store.put(&plan, body.iter().copied()).ok()?;
    count(store, (url.len() + head.bytes().len()) as u64 + body_bytes);
    let body_at = plan.surroundings_bytes();
    appended.lend(body_at..body_at + plan.inline_bytes)
}

/// Counts a stored object.
fn count(store: &Store, bytes: u64) {
    store.counts.writes.fetch_add(1, Ordering::Relaxed);
    store.counts.object_bytes.fetch_add(bytes, Ordering::Relaxed);
}

/// Appends a record; waits a little where there is no room at the moment.
async fn put(store: &Arc<Store>, plan: &Plan<'_>, body: &[u8]) -> Result<Appended, SchemeError> {
    let append = || store.put(plan, std::iter::once(body));
    match append() {
        Ok(appended) => return Ok(appended),
        Err(never @ (Full::TooLong | Full::Closed)) => return Err(never.into()),
        Err(Full::Segments | Full::Pending) => {}
    }
    let full = |full: Full| {
        store.counts.shed.fetch_add(1, Ordering::Relaxed);
        Err(full.into())
    };
    let Some(_turn) = Turn::take() else { return full(Full::Pending) };
    store.wake_keeper();
    let deadline = tokio::time::Instant::now() + WAIT_MAX;
    loop {
        let progress = store.progress.notified();
        let last = match append() {
            Ok(appended) => return Ok(appended),
            Err(last) => last,
        };
        store.in_service()?;
        if tokio::time::timeout_at(deadline, progress).await.is_err() {
            return full(last);
        }
    }
}

/// The right to wait.
struct Turn;

impl Turn {
    fn take() -> Option<Self> {
        let before = WAITING.fetch_add(1, Ordering::Relaxed);
        let turn = Self;
        (before < WAITING_MAX).then_some(turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// New head and times for the stored object, if it is the confirmed one: the record is appended
/// again, as a copy of the old one with the same body.
pub(crate) async fn update(
    store: &Arc<Store>,
    record: &Record,
    confirmed: &Confirmed,
) -> Result<(), SchemeError> {
    let Some((hash, entry, loaded)) = reader::find(store, &record.key).await? else {
        return Ok(());
    };
    let Some(index) = store.index.get() else { return Ok(()) };
    let old = &loaded.found.record;
    if old.kind != record.kind || !confirmed.is(&old.head, &old.times) {
        return store.remove(&record.key).await.map(|_| ());
    }
    let plan = loaded.found.plan(record);
    let updated = plan.record_bytes().ok_or(Full::TooLong).and_then(|record_bytes| {
        let job =
            super::log::Job { kind: plan.kind, hash: hash.0, record_bytes, from: entry.location };
        store.append(
            job,
            |place, out| plan.encode(place, std::iter::once(loaded.body_bytes()), out),
            |new| {
                let new = super::index::Entry { freq: entry.freq, ..new };
                index.replace_if(hash, entry.location, new);
            },
        )
    });
    match updated {
        Ok(_) => Ok(()),
        // Never the old head with new times: rather nothing.
        Err(_) => store.remove(&record.key).await.map(|_| ()),
    }
}

impl Drop for RingWriter {
    fn drop(&mut self) {
        self.store.log.give_back(self.gathered_bytes);
    }
}

impl Writer for RingWriter {
    fn write<'a>(&'a mut self, offset: u64, parts: &'a [&'a [u8]]) -> IoFuture<'a, ()> {
        Box::pin(self.append(offset, parts))
    }

    fn hold(&mut self, place: Place) {
        self.place = Some(place);
    }

    fn commit(mut self: Box<Self>, body_bytes: Option<u64>) -> IoFuture<'static, ()> {
        Box::pin(async move { self.finish(body_bytes).await })
    }
}
