//! Between flows and cache directories: objects written out while they arrive, and read back in.

mod held;
mod lending;
mod records;

use std::sync::Arc;

use humboldt_freshness::Times;

use crate::body::Body;
use crate::body_builder::BodyBuilder;
use crate::cache::Cache;
use crate::dirs::Dir;
use crate::events::StoreEventKind;
use crate::flow::{
    AbortReason, Epoch, Flow, FlowInfo, FlowReader, FlowWriter, Progress, ReaderKind,
};
use crate::head::StoredHead;
use crate::key::Key;
use crate::mem::{Entry, FLOW_BYTES_GUARANTEED, Reserved};
use crate::object::{About, Object};
use crate::scheme::{PUT_PARTS_MAX, Place, Reader, Record, SchemeError, Writer};
use crate::since::Since;
use crate::vary::VaryMarker;
use crate::versions::Shown;

pub use held::Held;
pub(crate) use records::remove_own;
use records::{Opened, Records};

/// Most bytes handed to a directory in one write.
const WRITE_BYTES_MAX: u64 = 256 * 1024;

/// Bytes asked of a directory in one read: the unit of the schemes' checksums.
const READ_BYTES: usize = 64 * 1024;

/// The same when the share of bodies in flight is spent: the guaranteed minimum of each transfer.
const SMALL_READ_BYTES: usize = FLOW_BYTES_GUARANTEED as usize;

/// Why an object was not written to a directory. Nothing of it is left there.
#[derive(Debug, thiserror::Error)]
pub enum SwapOutError {
    /// The transfer was aborted.
    #[error("not complete: {0}")]
    Aborted(#[from] AbortReason),
    /// The disk is slower than the clients, and memory did not suffice to wait for it.
    #[error("the disk cannot keep up")]
    Lagged,
    /// Larger than `maximum_object_size`.
    #[error("larger than maximum_object_size")]
    TooLarge,
    /// The URL was purged meanwhile.
    #[error("purged while it was written")]
    Purged,
    /// A newer answer has arrived meanwhile. Parts of it that are stored stay.
    #[error("a newer answer has come")]
    Outdated,
    /// The directory failed or was busy.
    #[error(transparent)]
    Scheme(#[from] SchemeError),
}

/// A directory's record under a key.
pub enum DiskEntry {
    /// An answer.
    Object(DiskHit),
    /// Answers vary: look up the variant's key. Now in memory too.
    Vary(Arc<VaryMarker>),
}

/// The result of a look into the directories.
pub enum Lookup {
    /// No directory has it.
    Absent,
    /// It is there.
    Found(DiskEntry),
    /// It is, or was, there, and cannot be read: damaged, or its directory is too busy or out of
    /// service. A miss.
    Failed,
}

/// A stored answer, opened: head and times are there, the body is still to be read.
pub struct DiskHit {
    /// Its key.
    pub key: Key,
    /// Its URL, the one asked for.
    pub url: Box<[u8]>,
    /// The response head.
    pub head: Arc<StoredHead>,
    /// Freshness.
    pub times: Times,
    dir: Arc<Dir>,
    opened: Box<Since>,
    reader: Box<dyn Reader>,
    /// See [`DiskHit::reserve`].
    reserved: Option<Reserved>,
    /// See [`DiskHit::count_memory`].
    kept: Option<Reserved>,
}

impl Cache {
    /// Follows a flow into a directory and makes the object visible there when the body is
    /// complete. `reader` must begin at the first byte. If that directory fails, or the object
    /// turns out too large for it, another that takes it gets it, provided that the beginning is
    /// still in memory. A record of this key in any other directory is removed; if writing fails,
    /// in all. Returns the bytes of the body.
    ///
    /// # Errors
    /// [`SwapOutError`]; it is for the log, the transfer to clients is not affected.
    pub async fn swap_out(
        &self,
        mut reader: FlowReader,
        record: Record,
        mut dir: Arc<Dir>,
    ) -> Result<u64, SwapOutError> {
        let mut tried = Vec::new();
        let _writing = reader.take_writing();
        let mut place = reader.take_place();
        loop {
            let error = match self.write_all(&mut reader, &record, &dir, place.take()).await {
                Ok(body_bytes) => {
                    reader.flow().note_stored();
                    self.tell(StoreEventKind::SwapOut, Some(dir.index), &record, body_bytes);
                    self.remove_elsewhere(&record.key, Some(&dir)).await;
                    // The marker of a variant may take longer.
                    drop(self.committing(reader.flow().epoch(), record.key));
                    return Ok(body_bytes);
                }
                Err(error) => error,
            };
            if let SwapOutError::Scheme(error) = &error {
                dir.note(error);
                self.tell(StoreEventKind::SwapFail, Some(dir.index), &record, reader.position());
                tried.push(dir);
                if let Some((next, from_start)) = self.another(&reader, &tried) {
                    (dir, reader) = (next, from_start);
                    continue;
                }
            }
            // An aborted fetch leaves stored answers alone. After any other fetch a newer answer
            // exists, and an older one must not return once memory has forgotten the newer. An
            // answer that was purged by tag or prefix leaves them alone too: a stored one may be
            // newer.
            let says_nothing = matches!(error, SwapOutError::Aborted(_) | SwapOutError::Outdated);
            let may_be_newer = self.is_record_purged(&record)
                && !self.is_superseded(reader.flow().epoch(), &record.key);
            if !says_nothing && !may_be_newer {
                self.remove_from_disk(&record.key).await;
                let flow = Arc::clone(reader.flow());
                drop(reader);
                self.remove_what_comes_late(&flow, &record.key).await;
            }
            return Err(error);
        }
    }

    /// Until an answer that no directory takes is complete, an older one that comes slowly may
    /// still be written. Then it is outdated, too.
    async fn remove_what_comes_late(&self, flow: &Arc<Flow>, key: &Key) {
        let Some(mut end) = flow.reader_at(u64::MAX, ReaderKind::Disk) else { return };
        let is_complete = matches!(end.data().await, Progress::End);
        let (epoch, flights) = (flow.epoch(), self.in_flight());
        if is_complete && flights.is_current(epoch) && self.is_newest(epoch, key) {
            self.remove_from_disk(key).await;
        }
    }

    /// Writes an object that is complete in memory, and could not be stored at once. It may have a
    /// place in the directory. If that fails, another that takes it gets it.
    ///
    /// # Errors
    /// [`SwapOutError`], for the log.
    pub async fn write_object(
        &self,
        epoch: Epoch,
        object: &Object,
        mut dir: Arc<Dir>,
        mut place: Option<Place>,
    ) -> Result<u64, SwapOutError> {
        if self.is_purged(&object.times, &object.url, &object.head) {
            if self.is_superseded(epoch, &object.key) {
                self.remove_from_disk(&object.key).await;
            }
            return Err(SwapOutError::Purged);
        }
        if !self.is_newest(epoch, &object.key) {
            return Err(SwapOutError::Outdated);
        }
        let mut tried = Vec::new();
        loop {
            let Err(error) = self.write_whole(epoch, object, &dir, place.take()).await else {
                return self.finish_write(epoch, &object.about(), &dir).await;
            };
            if let SwapOutError::Outdated = error {
                return Err(error);
            }
            if let SwapOutError::Scheme(error) = &error {
                dir.note(error);
                self.tell(StoreEventKind::SwapFail, Some(dir.index), &object.record(), 0);
                tried.push(dir);
                if let Some(next) = self.select_other(Some(object.body_bytes()), &tried) {
                    dir = next;
                    continue;
                }
            }
            self.remove_from_disk(&object.key).await;
            return Err(error);
        }
    }

    async fn write_whole(
        &self,
        epoch: Epoch,
        object: &Object,
        dir: &Dir,
        place: Option<Place>,
    ) -> Result<(), SwapOutError> {
        let body_bytes = object.body_bytes();
        let mut writer = dir.scheme.create(object.record(), Some(body_bytes)).await?;
        place.into_iter().for_each(|place| writer.hold(place));
        let (mut at, parts) = (0, object.parts().collect::<Vec<_>>());
        for batch in parts.chunks(PUT_PARTS_MAX) {
            writer.write(at, batch).await?;
            at += batch.iter().map(|part| part.len() as u64).sum::<u64>();
        }
        self.commit(epoch, &object.key, 0, writer, Some(body_bytes)).await
    }

    /// The steps after a complete object was stored: it is reported, and records in other
    /// directories are removed. A purge that arrived meanwhile removes it.
    ///
    /// # Errors
    /// [`SwapOutError::Purged`], [`SwapOutError::Outdated`].
    pub async fn finish_write(
        &self,
        epoch: Epoch,
        about: &About<'_>,
        dir: &Arc<Dir>,
    ) -> Result<u64, SwapOutError> {
        if !self.in_flight().is_current(epoch) {
            self.remove_from_disk(&about.key).await;
            return Err(SwapOutError::Purged);
        }
        if !self.is_newest(epoch, &about.key) {
            remove_own(dir, &about.key, about.times).await;
            return Err(SwapOutError::Outdated);
        }
        tell_swap(StoreEventKind::SwapOut, self, dir, about);
        self.remove_elsewhere(&about.key, Some(dir)).await;
        Ok(about.body_bytes)
    }

    /// Another directory for an object that those in `tried` refused, and a reader that begins at
    /// its first byte.
    fn another(&self, reader: &FlowReader, tried: &[Arc<Dir>]) -> Option<(Arc<Dir>, FlowReader)> {
        let known_bytes = reader.flow().body_bytes_at_least();
        let dir = self.select_other(Some(known_bytes), tried)?;
        let from_start = reader.flow().reader_at(0, ReaderKind::Disk)?;
        Some((dir, from_start))
    }

    async fn write_all(
        &self,
        reader: &mut FlowReader,
        record: &Record,
        dir: &Arc<Dir>,
        mut place: Option<Place>,
    ) -> Result<u64, SwapOutError> {
        let announced = reader.head().await?.info.body_bytes;
        let epoch = reader.flow().epoch();
        let mut writer: Option<Box<dyn Writer>> = None;
        loop {
            let progress = reader.batch().await;
            if reader.position() > self.disk_object_bytes_max() {
                return Err(SwapOutError::TooLarge);
            }
            // Its body may come as slowly as its slowest client reads.
            if matches!(progress, Progress::Data { .. }) && !self.is_newest(epoch, &record.key) {
                return Err(SwapOutError::Outdated);
            }
            let writer = match &mut writer {
                Some(writer) => writer,
                // Not before there is something to write: many a fetch is aborted early.
                none => match progress {
                    Progress::Data { .. } | Progress::End => {
                        let mut writer = dir.scheme.create(record.clone(), announced).await?;
                        place.take().into_iter().for_each(|place| writer.hold(place));
                        none.insert(writer)
                    }
                    Progress::Aborted(reason) => return Err(reason.into()),
                    Progress::Lagged { .. } => return Err(SwapOutError::Lagged),
                },
            };
            match progress {
                Progress::Data { .. } => write_batch(reader, writer).await?,
                Progress::Aborted(reason) => return Err(reason.into()),
                Progress::Lagged { .. } => return Err(SwapOutError::Lagged),
                Progress::End => break,
            }
        }
        let body_bytes = reader.position();
        if self.is_record_purged(record) {
            return Err(SwapOutError::Purged);
        }
        if let Some(writer) = writer {
            self.commit(epoch, &record.key, 0, writer, Some(body_bytes)).await?;
        }
        if !self.in_flight().is_current(epoch) {
            return Err(SwapOutError::Purged);
        }
        if !self.is_newest(epoch, &record.key) {
            remove_own(dir, &record.key, &record.times).await;
            return Err(SwapOutError::Outdated);
        }
        Ok(body_bytes)
    }

    /// Opens the directories' record under `key`, if it belongs to `url`: the newest record, if
    /// several directories have one. A record that does not verify is a miss. While a complete
    /// newer answer has not reached all places, every record is a miss.
    pub async fn open(&self, primary: Key, key: &Key, url: &[u8]) -> Lookup {
        let Some(mut holder) = self.holder(key, 0) else { return Lookup::Absent };
        let reading = self.in_flight().read(primary);
        let shown = self.in_flight().versions().shown(&primary, key);
        if shown == Shown::Nothing {
            return Lookup::Absent;
        }
        let epoch = self.in_flight().epoch(primary);
        let mut has_failed = false;
        let mut found = Records::default();
        loop {
            let (at, dir) = holder;
            match dir.scheme.open(key).await {
                Ok(Some(open)) if open.record.key == *key && *open.record.url == *url => {
                    match Opened::new(open, dir) {
                        // It stays where it is until it is replaced or evicted: it is as old
                        // tomorrow, and after a crash.
                        Some(opened) if self.is_opened_purged(&opened) => {}
                        Some(opened) if !shown.has(&opened.times) => {}
                        // It goes as others that are outdated.
                        Some(opened) if opened.dir.hides(&opened.times) => {
                            found.outdated.push(opened.dir);
                        }
                        Some(opened) => found.add(opened),
                        None => has_failed = true,
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%key, path = %dir.scheme.path().display(), %error, "not opened");
                    dir.note(&error);
                    self.tell_failure(*key, url, &dir);
                    has_failed = true;
                }
            }
            match self.holder(key, at + 1) {
                Some(next) => holder = next,
                None => break,
            }
        }
        if !reading.is_outdated(key) {
            for dir in &found.outdated {
                dir.forget(key).await;
            }
        }
        match found.newest {
            Some(opened) => Lookup::Found(self.take_entry(opened, Since { epoch, reading })),
            None if has_failed => Lookup::Failed,
            None => Lookup::Absent,
        }
    }

    fn is_opened_purged(&self, opened: &Opened) -> bool {
        let Opened { head, times, url, .. } = opened;
        matches!(head, Ok(head) if self.is_purged(times, url, head))
    }

    fn take_entry(&self, opened: Opened, since: Since) -> DiskEntry {
        let Opened { key, url, times, head, reader, dir } = opened;
        match head {
            Ok(head) => {
                let (opened, reserved) = (Box::new(since), None);
                DiskEntry::Object(DiskHit {
                    key,
                    url,
                    head,
                    times,
                    dir,
                    opened,
                    reader,
                    reserved,
                    kept: None,
                })
            }
            Err(marker) => {
                self.put_read(&since, key, Entry::Vary(marker.clone()));
                DiskEntry::Vary(marker)
            }
        }
    }

    fn tell_failure(&self, key: Key, url: &[u8], dir: &Dir) {
        self.events().event(&crate::events::StoreEvent {
            kind: StoreEventKind::SwapFail,
            dir: Some(dir.index),
            key,
            url,
            status: 0,
            times: None,
            content_type: b"",
            body_bytes: 0,
        });
    }
}

/// Writes the arrived bytes, up to [`WRITE_BYTES_MAX`].
async fn write_batch(
    reader: &mut FlowReader,
    writer: &mut Box<dyn Writer>,
) -> Result<(), SchemeError> {
    let mut slices = Vec::new();
    let bytes = reader.slices(&mut slices, WRITE_BYTES_MAX);
    let parts: Vec<&[u8]> = slices.iter().map(|slice| &**slice).collect();
    writer.write(reader.position(), &parts).await?;
    drop(slices);
    reader.advance(bytes);
    Ok(())
}

impl DiskHit {
    /// Length of the body, if it is known.
    pub fn body_bytes(&self) -> Option<u64> {
        self.reader.body_bytes()
    }

    /// Whether the whole body is stored.
    pub fn is_complete(&self) -> bool {
        match (self.reader.body_bytes(), self.reader.extents()) {
            (Some(0), _) => true,
            (Some(body_bytes), [extent]) => extent.start == 0 && extent.end == body_bytes,
            _ => false,
        }
    }

    /// Counts the memory that the open object keeps, or has it given up when there is no room for
    /// it: the client for whom it is read, or a server that is asked about it first, may be slow.
    /// To be called when it is known that the body will not be read at once.
    pub fn count_memory(&mut self, cache: &Cache) {
        let bytes = self.reader.memory_bytes();
        if bytes == 0 || self.kept.is_some() {
            return;
        }
        self.kept = cache.tier().reserve(bytes, 0);
        if self.kept.is_none() {
            self.reader.let_go();
        }
    }

    /// Reads verified bytes at `offset`, as for a range of a large object: at least one, 0 outside
    /// of the stored bytes.
    ///
    /// # Errors
    /// As for the directory. Answer with a truncated body, never with other bytes.
    pub async fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, SchemeError> {
        let result = self.reader.read(offset, buf).await;
        result.inspect_err(|error| self.dir.note(error))
    }

    /// Reads the whole body into memory and stores the object there, unless it was purged
    /// meanwhile. `None` when it does not verify, is not complete, or memory is short: a miss. For
    /// bodies up to [`Cache::memory_object_bytes_max`].
    pub async fn into_object(mut self, cache: &Cache) -> Option<Arc<Object>> {
        let body_bytes = self.body_bytes().filter(|_| self.is_complete())?;
        let Some(body) = self.read_body(cache, body_bytes).await else {
            cache.tell_failure(self.key, &self.url, &self.dir);
            return None;
        };
        self.tell(StoreEventKind::SwapIn, cache, body_bytes);
        let object = Arc::new(Object::new(self.key, self.url, self.head, self.times, body));
        cache.insert_read(&self.opened, &object);
        Some(object)
    }

    async fn read_body(&mut self, cache: &Cache, body_bytes: u64) -> Option<Body> {
        let whole = usize::try_from(body_bytes).ok()?;
        let mut builder = BodyBuilder::new(cache.tier(), whole);
        let mut reserved = self.reserved.take();
        let mut buffer = Vec::new();
        let mut offset = 0;
        while offset < body_bytes {
            let want = usize::try_from(body_bytes - offset).ok()?.min(READ_BYTES);
            let at_hand = self.reader.at_hand(offset);
            let data = match at_hand.get(..want.min(at_hand.len())) {
                Some(data) if !data.is_empty() => data,
                _ => {
                    buffer.resize(READ_BYTES.min(whole), 0);
                    let got = self.reader.read(offset, buffer.get_mut(..want)?).await.ok()?;
                    buffer.get(..got.min(want)).filter(|data| !data.is_empty())?
                }
            };
            let bytes = data.len() as u64;
            offset += bytes;
            builder.append(data)?;
            reserved.iter_mut().for_each(|reserved| reserved.use_up(bytes));
        }
        Some(builder.finish())
    }

    /// Whether it is void: since it was opened, a newer answer has become complete, or it has been
    /// purged. To be asked when a flow of it can be joined.
    pub fn is_void(&self, cache: &Cache) -> bool {
        cache.is_void(&self.opened, &self.key)
            || cache.is_purged(&self.times, &self.url, &self.head)
    }

    /// When it was opened, for the object that is made of it.
    pub fn since(&self) -> Since {
        self.opened.again()
    }

    /// The flow information of this answer; nothing of it is kept in memory.
    pub fn info(&self) -> FlowInfo {
        FlowInfo::of_stored(self.key, self.body_bytes(), self.times)
    }

    /// Feeds the body to a flow, whose head is published here, until it is complete, no reader is
    /// left, or bytes do not verify. In the last case the flow is aborted, before it has a head if
    /// not even the first bytes can be read. Subscribe to the flow before this call: nobody can
    /// join a flow that begins behind the first byte.
    pub async fn feed(mut self, cache: &Cache, mut writer: FlowWriter) {
        let Some(body_bytes) = self.body_bytes().filter(|_| self.is_complete()) else {
            return writer.abort(AbortReason::Failed);
        };
        let info = self.info();
        self.count_memory(cache);
        // While a client does not read, the buffer holds the bytes that have no page.
        let buffered = cache.tier().reserve(READ_BYTES as u64, 0);
        let mut buffer = vec![0; if buffered.is_some() { READ_BYTES } else { SMALL_READ_BYTES }];
        let mut at = 0;
        let mut is_published = false;
        while at < body_bytes {
            if writer.abort_unwanted() {
                return;
            }
            let mut want = usize::try_from(body_bytes - at).unwrap_or(READ_BYTES).min(buffer.len());
            if buffered.is_none() {
                want = want.min(writer.ready().await);
            }
            let Some(space) = buffer.get_mut(..want) else { return };
            let got = match self.reader.read(at, space).await {
                Ok(got) if got > 0 => got,
                failed => {
                    failed.err().inspect(|error| self.dir.note(error));
                    cache.tell_failure(self.key, &self.url, &self.dir);
                    return writer.abort(AbortReason::DiskFailed);
                }
            };
            // The head goes out with the first bytes: an object that cannot be read at all is a
            // miss.
            if !std::mem::replace(&mut is_published, true) {
                writer.publish_head(self.head.clone(), info.clone());
            }
            at += got as u64;
            if writer.append(buffer.get(..got).unwrap_or_default()).await.is_err() {
                return;
            }
        }
        if !is_published {
            writer.publish_head(self.head.clone(), info);
        }
        writer.finish(None);
        self.tell(StoreEventKind::SwapIn, cache, body_bytes);
    }
}

fn tell_swap(kind: StoreEventKind, cache: &Cache, dir: &Dir, about: &About<'_>) {
    cache.events().event(&crate::events::StoreEvent {
        kind,
        dir: Some(dir.index),
        key: about.key,
        url: about.url,
        status: about.head.status,
        times: Some(about.times),
        content_type: about.head.content_type().unwrap_or_default(),
        body_bytes: about.body_bytes,
    });
}

#[cfg(test)]
pub(crate) mod tests;
