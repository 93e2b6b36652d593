//! Writing objects.
//!
//! A block of 64 KiB is collected, with the header block in front of the first and the table behind the last, and written
//! when more comes or the object is committed. So a small object costs three system calls, made when it is complete; one
//! that is given up before leaves no trace.

use std::future::ready;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use humboldt_store::index::{FileEntry, IndexKey};
use humboldt_store::scheme::{Extent, IoFuture, Record, SchemeError, Writer};

use super::dir::Dir;
use super::files;
use super::format::{
    self, BLOCK_BYTES, EXTENTS_MAX, FOOTER_BYTES, Footer, HEADER_BYTES, Table, UNIT_BYTES, encode_header,
};
use super::log::now_ns;
use super::object;

/// Room in the buffer for table, padding and footer of a small object.
const TAIL_BYTES: usize = UNIT_BYTES + FOOTER_BYTES + 64;

/// An object being written.
pub(crate) struct UfsWriter {
    dir: Arc<Dir>,
    record: Record,
    file: u32,
    /// Open once the first block is full; counts against `max_open_disk_fds`.
    fd: Option<OwnedFd>,
    header_bytes: u64,
    header_checksum: u64,
    /// What is not written yet: the header block if nothing is, and the current block.
    buffer: Vec<u8>,
    /// Where the current block starts in the buffer.
    block_start: usize,
    written_bytes: u64,
    stored_bytes: u64,
    table: Table,
    is_committed: bool,
}

impl UfsWriter {
    /// Starts an object; `Busy` if it does not fit.
    pub(crate) fn create(
        dir: &Arc<Dir>,
        record: Record,
        body_bytes: Option<u64>,
    ) -> Result<Self, SchemeError> {
        dir.in_service()?;
        if !dir.rebuild.may_store() {
            return Err(SchemeError::Busy("the swap log is being read"));
        }
        let header_bytes =
            format::header_block_bytes(&record).ok_or(SchemeError::Busy("head or URL is too long"))?;
        let options = &dir.options;
        let fits = body_bytes.is_none_or(|bytes| (options.min_bytes..=options.max_bytes).contains(&bytes));
        if !fits {
            return Err(SchemeError::Busy("min-size or max-size"));
        }
        let file_bytes = body_bytes.unwrap_or(0).saturating_add(header_bytes as u64);
        // Room for a long object is made block by block.
        let has_room = dir.make_room(file_bytes.min(BLOCK_BYTES as u64)) && dir.space.admits(file_bytes);
        if !has_room {
            return Err(SchemeError::Busy("directory is full"));
        }
        let file = dir.numbers().take().ok_or(SchemeError::Busy("no file numbers left"))?;
        let block_bytes = body_bytes.unwrap_or(0).min(BLOCK_BYTES as u64) as usize;
        let mut buffer = Vec::with_capacity(header_bytes.max(HEADER_BYTES) + block_bytes + TAIL_BYTES);
        let header_checksum = encode_header(&record, file, now_ns(), &mut buffer);
        Ok(Self {
            dir: Arc::clone(dir),
            record,
            file,
            fd: None,
            header_bytes: header_bytes as u64,
            header_checksum,
            block_start: buffer.len(),
            buffer,
            written_bytes: 0,
            stored_bytes: 0,
            table: Table::default(),
            is_committed: false,
        })
    }

    fn append(&mut self, offset: u64, parts: &[&[u8]]) -> Result<(), SchemeError> {
        self.dir.in_service()?;
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes == 0 {
            return Ok(());
        }
        let end = offset.checked_add(bytes as u64).ok_or(SchemeError::Busy("offset out of range"))?;
        if end > self.dir.options.max_bytes {
            return Err(SchemeError::Busy("max-size"));
        }
        self.extend(offset, end)?;
        for part in parts {
            let mut rest = *part;
            while !rest.is_empty() {
                if self.buffer.len() - self.block_start == BLOCK_BYTES {
                    self.finish_block();
                    self.write_buffer(false)?;
                }
                let room = BLOCK_BYTES - (self.buffer.len() - self.block_start);
                let (now, later) = rest.split_at(rest.len().min(room));
                self.buffer.extend_from_slice(now);
                rest = later;
            }
        }
        self.stored_bytes += bytes as u64;
        Ok(())
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

    fn finish_block(&mut self) {
        let block = &self.buffer[self.block_start..];
        if !block.is_empty() {
            self.table.block_checksums.push(format::checksum(block));
            self.block_start = self.buffer.len();
        }
    }

    /// Writes the buffer; `is_last` if no more will follow, so that the file need not stay open.
    fn write_buffer(&mut self, is_last: bool) -> Result<(), SchemeError> {
        let after = self.written_bytes + self.buffer.len() as u64;
        if !is_last && !self.dir.make_room(self.buffer.len() as u64) {
            return Err(SchemeError::Busy("directory is full"));
        }
        let fd = match self.fd.take() {
            Some(fd) => fd,
            None => {
                self.dir.count_open_file()?;
                let created = self.dir.tree.create(self.file);
                created.map_err(|error| {
                    self.dir.count_closed_file();
                    self.dir.failed("create", self.file, error)
                })?
            }
        };
        let outcome = files::write_all_at(&fd, &self.buffer, self.written_bytes);
        self.fd = Some(fd);
        outcome.map_err(|error| self.dir.failed("write", self.file, error))?;
        self.dir.space.resize(self.written_bytes, after);
        self.written_bytes = after;
        self.buffer.clear();
        self.block_start = 0;
        Ok(())
    }

    fn finish(&mut self, body_bytes: Option<u64>) -> Result<(), SchemeError> {
        self.dir.in_service()?;
        let stored_end = self.table.extents.last().map_or(0, |extent| extent.end);
        if body_bytes.is_some_and(|bytes| bytes < stored_end) {
            return Err(SchemeError::Busy("more was written than the length of the body"));
        }
        if body_bytes.is_some_and(|bytes| bytes < self.dir.options.min_bytes) {
            return Err(SchemeError::Busy("min-size"));
        }
        self.finish_block();
        let table_offset = self.written_bytes + self.buffer.len() as u64;
        self.buffer.reserve_exact(self.table.encoded_bytes() + TAIL_BYTES);
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
        self.write_buffer(true)?;
        self.close_file();
        let size_units = u32::try_from(self.written_bytes / UNIT_BYTES as u64)
            .map_err(|_| SchemeError::Busy("file is too long"))?;
        let flags = object::flags(&self.record, &self.table, body_bytes);
        self.is_committed = true;
        let entry = FileEntry { file: self.file, size_units, flags };
        self.dir.publish(IndexKey::from(&self.record.key), entry);
        self.dir.health.success();
        Ok(())
    }

    fn close_file(&mut self) {
        if self.fd.take().is_some() {
            self.dir.count_closed_file();
        }
    }
}

impl Drop for UfsWriter {
    fn drop(&mut self) {
        let was_created = self.fd.is_some() || self.written_bytes > 0;
        self.close_file();
        if self.is_committed {
            return;
        }
        if self.dir.in_service().is_err() {
            // The number may belong to an object of another instance by now.
            return;
        }
        if was_created && let Err(error) = self.dir.tree.unlink(self.file) {
            self.dir.failed("unlink", self.file, error);
            return;
        }
        self.dir.space.resize(self.written_bytes, 0);
        self.dir.numbers().give_back(self.file);
    }
}

impl Writer for UfsWriter {
    fn write<'a>(&'a mut self, offset: u64, parts: &'a [&'a [u8]]) -> IoFuture<'a, ()> {
        Box::pin(ready(self.append(offset, parts)))
    }

    fn commit(mut self: Box<Self>, body_bytes: Option<u64>) -> IoFuture<'static, ()> {
        Box::pin(ready(self.finish(body_bytes)))
    }
}
