//! Writing objects.
//!
//! A block of 64 KiB is collected, with the header block in front of the first and the table behind
//! the last, and written when more comes or the object is committed. So a small object costs one
//! operation, begun when it is complete; one that is given up before leaves no trace.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use humboldt_store::index::{FileEntry, IndexKey};
use humboldt_store::scheme::{Extent, IoFuture, Place, Record, SchemeError, Writer};
use humboldt_store::{About, Borrowed};
use rustix::io::Errno;

use super::dir::{Dir, Permit};
use super::engine::{EngineError, Handle, OpenFor};
use super::format::{
    self, BLOCK_BYTES, EXTENTS_MAX, FOOTER_BYTES, Footer, HEADER_BYTES, Table, UNIT_BYTES,
    encode_header,
};
use super::log::now_ns;
use super::new_file::NewFile;
use super::object;
use super::operation::at_once;

/// Room in the buffer for table, padding and footer of a small object.
const TAIL_BYTES: usize = UNIT_BYTES + FOOTER_BYTES + 64;

/// An object being written.
pub(crate) struct TreeWriter {
    dir: Arc<Dir>,
    record: Record,
    file: Arc<NewFile>,
    /// Open once the first block is full; counts against `max_open_disk_fds`.
    handle: Option<Handle>,
    /// Until the engine counts it.
    place: Option<Place>,
    header_bytes: u64,
    header_checksum: u64,
    /// The unwritten part: the header block if nothing is written, and the current block.
    buffer: Vec<u8>,
    /// Start of the current block in the buffer.
    block_start: usize,
    written_bytes: u64,
    stored_bytes: u64,
    table: Table,
    /// A write failed, or was not waited for.
    is_torn: bool,
}

impl TreeWriter {
    /// Starts an object; `Busy` if it does not fit.
    pub(crate) async fn create(
        dir: &Arc<Dir>,
        record: Record,
        body_bytes: Option<u64>,
    ) -> Result<Self, SchemeError> {
        dir.in_service()?;
        if !dir.rebuild.may_store() {
            return Err(SchemeError::Busy("the swap log is being read"));
        }
        let header_bytes = format::header_block_bytes(&record)
            .ok_or(SchemeError::Busy("head or URL is too long"))?;
        let options = &dir.options;
        let fits =
            body_bytes.is_none_or(|bytes| (options.min_bytes..=options.max_bytes).contains(&bytes));
        if !fits {
            return Err(SchemeError::Busy("min-size or max-size"));
        }
        let key = IndexKey::from(&record.key);
        if !dir.engine.admits() || dir.is_turned_away(&record, key) {
            return Err(dir.shed());
        }
        let file_bytes = body_bytes.unwrap_or(0).saturating_add((header_bytes + TAIL_BYTES) as u64);
        if !dir.space.admits(file_bytes) {
            return Err(SchemeError::Busy("directory is full"));
        }
        // Room for a long object is made block by block.
        let file = NewFile::new(dir, key, file_bytes.min(BLOCK_BYTES as u64)).await?;
        let block_bytes = body_bytes.unwrap_or(0).min(BLOCK_BYTES as u64) as usize;
        let mut buffer =
            Vec::with_capacity(header_bytes.max(HEADER_BYTES) + block_bytes + TAIL_BYTES);
        let header_checksum = encode_header(&record, file.number(), now_ns(), &mut buffer);
        Ok(Self {
            dir: Arc::clone(dir),
            record,
            file,
            handle: None,
            place: None,
            header_bytes: header_bytes as u64,
            header_checksum,
            block_start: buffer.len(),
            buffer,
            written_bytes: 0,
            stored_bytes: 0,
            table: Table::default(),
            is_torn: false,
        })
    }

    /// Enters `parts` at `offset` into the extents; returns how many bytes they are.
    fn begin_write(&mut self, offset: u64, parts: &[&[u8]]) -> Result<usize, SchemeError> {
        self.dir.in_service()?;
        if self.is_torn {
            return Err(SchemeError::Busy("a write before has failed"));
        }
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes == 0 {
            return Ok(0);
        }
        let end =
            offset.checked_add(bytes as u64).ok_or(SchemeError::Busy("offset out of range"))?;
        if end > self.dir.options.max_bytes {
            return Err(SchemeError::Busy("max-size"));
        }
        self.extend(offset, end)?;
        self.stored_bytes += bytes as u64;
        Ok(bytes)
    }

    /// Enters `start..end` into the extents.
    fn extend(&mut self, start: u64, end: u64) -> Result<(), SchemeError> {
        let extents = &mut self.table.extents;
        let is_full = extents.len() == EXTENTS_MAX;
        match extents.last_mut() {
            Some(last) if last.end == start => last.end = end,
            Some(last) if last.end > start => return Err(SchemeError::Busy("offsets must grow")),
            _ if is_full => return Err(SchemeError::Busy("too many extents")),
            _ => extents.push(Extent { start, end }),
        }
        Ok(())
    }

    /// Bytes that still go into the current block.
    fn room_in_block(&self) -> usize {
        BLOCK_BYTES - (self.buffer.len() - self.block_start)
    }

    async fn append(&mut self, parts: &[&[u8]]) -> Result<(), SchemeError> {
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                if self.room_in_block() == 0 {
                    self.finish_block();
                    self.file.grow_to(self.written_bytes + self.buffer.len() as u64).await?;
                    self.write_buffer().await?;
                }
                let (now, later) = rest.split_at(rest.len().min(self.room_in_block()));
                self.buffer.extend_from_slice(now);
                rest = later;
            }
        }
        Ok(())
    }

    fn finish_block(&mut self) {
        let block = &self.buffer[self.block_start..];
        if !block.is_empty() {
            self.table.block_checksums.push(format::checksum(block));
            self.block_start = self.buffer.len();
        }
    }

    /// Writes the buffer to the file, which stays open.
    async fn write_buffer(&mut self) -> Result<(), SchemeError> {
        let was_torn = std::mem::replace(&mut self.is_torn, true);
        let handle = match &self.handle {
            Some(handle) => handle.clone(),
            None => {
                let keep = Arc::new((Permit::take(&self.dir)?, Arc::clone(&self.file)));
                self.file.begin();
                let opening = self.dir.engine.open(self.file.number(), OpenFor::Creating, keep);
                self.place = None;
                let handle = opening.await.map_err(|error| self.first_failed("create", error))?;
                self.handle.insert(handle).clone()
            }
        };
        let bytes = std::mem::take(&mut self.buffer);
        let len = bytes.len();
        self.dir.counts.written(len);
        let outcome = self.dir.engine.write(&handle, self.written_bytes, bytes).await;
        self.buffer = outcome.map_err(|error| self.failed("write", error))?;
        self.buffer.clear();
        self.block_start = 0;
        self.written_bytes += len as u64;
        self.is_torn = was_torn;
        Ok(())
    }

    /// Writes a file that is in the buffer as a whole.
    async fn write_whole(&mut self) -> Result<(), SchemeError> {
        self.is_torn = true;
        let len = self.buffer.len();
        self.file.begin();
        self.dir.counts.written(len);
        let (engine, number) = (&self.dir.engine, self.file.number());
        let outcome = match engine.write_file_now(number, &self.buffer) {
            Some(outcome) => outcome,
            None => {
                let keep = Arc::clone(&self.file);
                let writing = engine.write_file(number, std::mem::take(&mut self.buffer), keep);
                self.place = None;
                writing.await
            }
        };
        outcome.map_err(|error| self.first_failed("write", error))?;
        self.written_bytes = len as u64;
        Ok(())
    }

    /// The operation that makes the file has failed. If it was shed there is no file.
    fn first_failed(&self, operation: &str, error: EngineError) -> SchemeError {
        if error == EngineError::Shed {
            self.file.not_begun();
        }
        self.failed(operation, error)
    }

    fn failed(&self, operation: &str, error: EngineError) -> SchemeError {
        if matches!(error, EngineError::System(Errno::NOSPC | Errno::DQUOT)) {
            // Earlier writes had room.
            let refused_bytes = self.file.counted_bytes().saturating_sub(self.written_bytes);
            self.dir.space.disk_is_full(refused_bytes);
        }
        self.dir.failed(operation, self.file.number(), error)
    }

    /// Completes the buffer with table, padding and footer.
    fn seal(&mut self, body_bytes: Option<u64>) -> Result<(), SchemeError> {
        self.dir.in_service()?;
        if self.is_torn {
            return Err(SchemeError::Busy("a write before has failed"));
        }
        let stored_end = self.table.extents.last().map_or(0, |extent| extent.end);
        if body_bytes.is_some_and(|bytes| bytes < stored_end) {
            return Err(SchemeError::Busy("more was written than the length of the body"));
        }
        if body_bytes.is_some_and(|bytes| bytes < self.dir.options.min_bytes) {
            return Err(SchemeError::Busy("min-size"));
        }
        self.finish_block();
        let table_offset = self.written_bytes + self.buffer.len() as u64;
        // A small object has room for it since the beginning.
        self.buffer.reserve_exact(self.table.encoded_bytes() + UNIT_BYTES + FOOTER_BYTES);
        let table_checksum = self.table.encode(&mut self.buffer);
        let footer = Footer {
            header_offset: 0,
            header_bytes: self.header_bytes,
            header_checksum: self.header_checksum,
            data_offset: self.header_bytes,
            stored_bytes: self.stored_bytes,
            body_bytes,
            table_offset,
            table_checksum,
            extents: self.table.extents.len() as u32,
            blocks: self.table.block_checksums.len() as u32,
        };
        format::pad_for_footer(self.written_bytes, &mut self.buffer);
        footer.encode(self.record.key, &mut self.buffer);
        Ok(())
    }

    /// Makes the object findable. An engine that blocks leaves a file of one piece in the buffer.
    async fn finish(&mut self, body_bytes: Option<u64>) -> Result<(), SchemeError> {
        self.seal(body_bytes)?;
        let file_bytes = self.written_bytes + self.buffer.len() as u64;
        self.file.grow_to(file_bytes).await?;
        self.file.set_length(file_bytes);
        if self.handle.is_none() {
            self.write_whole().await?;
        } else {
            self.write_buffer().await?;
        }
        self.handle = None;
        let size_units = u32::try_from(self.written_bytes / UNIT_BYTES as u64)
            .map_err(|_| SchemeError::Busy("file is too long"))?;
        let flags = object::flags(&self.record, &self.table, body_bytes);
        let entry = FileEntry { file: self.file.number(), size_units, flags };
        self.dir.publish(IndexKey::from(&self.record.key), entry)?;
        self.file.commit();
        let text_bytes = (self.record.url.len() + self.record.head.len()) as u64;
        self.dir.counts.object_bytes.fetch_add(text_bytes + self.stored_bytes, Ordering::Relaxed);
        self.dir.health.success();
        Ok(())
    }
}

/// Stores a complete object with an engine that blocks, and lends the file as it was put together.
/// `None`: it does not fit, and nothing is left of it.
pub(crate) fn put_now(dir: &Arc<Dir>, about: &About<'_>, body: &[&[u8]]) -> Option<Borrowed> {
    let body_bytes = about.body_bytes;
    if body_bytes > BLOCK_BYTES as u64 {
        return None;
    }
    let stored = async {
        let mut writer = TreeWriter::create(dir, about.record(), Some(body_bytes)).await?;
        let start = writer.block_start;
        writer.write(0, body).await?;
        writer.finish(Some(body_bytes)).await?;
        Ok::<_, SchemeError>((std::mem::take(&mut writer.buffer), start))
    };
    let (file, start) = at_once(stored)?.ok()?;
    Borrowed::new(Arc::new(file), start..start + body_bytes as usize)
}

impl Drop for TreeWriter {
    fn drop(&mut self) {
        self.file.abandon();
    }
}

impl Writer for TreeWriter {
    fn write<'a>(&'a mut self, offset: u64, parts: &'a [&'a [u8]]) -> IoFuture<'a, ()> {
        match self.begin_write(offset, parts) {
            Err(error) => Box::pin(ready(Err(error))),
            Ok(bytes) if bytes <= self.room_in_block() => {
                parts.iter().for_each(|part| self.buffer.extend_from_slice(part));
                Box::pin(ready(Ok(())))
            }
            Ok(_) => Box::pin(async move {
                // A future that is dropped here leaves an unknown part of the bytes behind.
                self.is_torn = true;
                self.append(parts).await?;
                self.is_torn = false;
                Ok(())
            }),
        }
    }

    fn hold(&mut self, place: Place) {
        self.place = Some(place);
    }

    fn commit(mut self: Box<Self>, body_bytes: Option<u64>) -> IoFuture<'static, ()> {
        Box::pin(async move { self.finish(body_bytes).await })
    }
}
