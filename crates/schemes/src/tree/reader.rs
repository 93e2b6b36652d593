//! Reading objects.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use humboldt_store::Key;
use humboldt_store::index::{FileEntry, IndexKey};
use humboldt_store::scheme::{Extent, IoFuture, OpenObject, Reader, SchemeError};

use super::dir::Dir;
use super::format::{BLOCK_BYTES, Corrupt};
use super::object::{self, Failure, OpenFile, Source, Surroundings};

/// How often an open starts again because the object was replaced while it was being read.
const OPEN_TRIES: usize = 8;

/// Opens the object of `key`.
pub(crate) async fn open(dir: &Arc<Dir>, key: &Key) -> Result<Option<OpenObject>, SchemeError> {
    dir.in_service()?;
    let index_key = IndexKey::from(key);
    for _ in 0..OPEN_TRIES {
        let Some(entry) = dir.index.get(index_key) else { return Ok(None) };
        let failure = match TreeReader::open(dir, key, entry).await {
            Ok(mut reader) => {
                dir.health.success();
                dir.counts.reads.fetch_add(1, Ordering::Relaxed);
                let record = reader.found.header.record.take();
                return Ok(Some(OpenObject { record, reader: Box::new(reader) }));
            }
            Err(Failure::Refused(error)) => return Err(error),
            Err(failure) => failure,
        };
        if dir.index.peek(index_key) != Some(entry) {
            continue;
        }
        dir.drop_bad(index_key, entry, failure.reason());
        return match failure {
            Failure::Corrupt(corrupt) => Err(corrupt.into()),
            _ => Ok(None),
        };
    }
    Err(SchemeError::Busy("the object keeps changing"))
}

/// An open object. A short one is in memory, verified; of a long one the file is open, and each
/// block is verified when it is read.
struct TreeReader {
    dir: Arc<Dir>,
    entry: FileEntry,
    source: Source,
    found: Surroundings,
    /// A verified block of a long object, for reads that are smaller than a block.
    block: Vec<u8>,
    block_number: u64,
}

impl TreeReader {
    async fn open(dir: &Arc<Dir>, key: &Key, entry: FileEntry) -> Result<Self, Failure> {
        let source = Source::open(dir, entry).await?;
        let found = Surroundings::read(&source, entry, *key).await?;
        if let Source::Whole(whole) = &source {
            for block in 0..u64::from(found.footer.blocks) {
                let offset = found.footer.data_offset + block * BLOCK_BYTES as u64;
                found
                    .verify_block(block, object::part(whole, offset, found.block_bytes(block))?)?;
            }
        }
        Ok(Self {
            dir: Arc::clone(dir),
            entry,
            source,
            found,
            block: Vec::new(),
            block_number: u64::MAX,
        })
    }

    /// Copies from a short object, which has been verified.
    fn copy_some(&self, whole: &[u8], offset: u64, buf: &mut [u8]) -> Result<usize, Failure> {
        let Some((at, in_extent)) = self.found.table.locate(offset) else { return Ok(0) };
        let bytes = usize::try_from(in_extent).unwrap_or(usize::MAX).min(buf.len());
        buf[..bytes].copy_from_slice(object::part(
            whole,
            self.found.footer.data_offset + at,
            bytes,
        )?);
        Ok(bytes)
    }

    async fn read_some(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Failure> {
        let Self { found, block, block_number, .. } = self;
        let Source::Open(file) = &self.source else { return Ok(0) };
        let Some((at, in_extent)) = found.table.locate(offset) else { return Ok(0) };
        let (number, in_block) = (at / BLOCK_BYTES as u64, (at % BLOCK_BYTES as u64) as usize);
        let block_bytes = found.block_bytes(number);
        let usable = usize::try_from(in_extent).unwrap_or(usize::MAX).min(block_bytes - in_block);
        let block_offset = found.footer.data_offset + number * BLOCK_BYTES as u64;
        if in_block == 0
            && usable == block_bytes
            && *block_number != number
            && let Some(whole) = buf.get_mut(..block_bytes)
            && let Some(outcome) = file.read_into(block_offset, whole)
        {
            outcome?;
            found.verify_block(number, whole)?;
            return Ok(block_bytes);
        }
        if *block_number != number {
            *block_number = u64::MAX;
            *block = read_block(file, block_offset, block_bytes, std::mem::take(block)).await?;
            found.verify_block(number, block)?;
            *block_number = number;
        }
        let bytes = usable.min(buf.len());
        let verified = block.get(in_block..in_block + bytes).ok_or(Corrupt("length of a block"))?;
        buf[..bytes].copy_from_slice(verified);
        Ok(bytes)
    }

    fn failed(&self, failure: Failure) -> SchemeError {
        match failure {
            Failure::Refused(error) => error,
            Failure::Corrupt(corrupt) => {
                self.dir.drop_bad(
                    IndexKey::from(&self.found.header.record.key),
                    self.entry,
                    corrupt.0,
                );
                corrupt.into()
            }
            Failure::Missing => SchemeError::Corrupt("file is missing"),
        }
    }
}

async fn read_block(
    file: &OpenFile,
    offset: u64,
    len: usize,
    buffer: Vec<u8>,
) -> Result<Vec<u8>, Failure> {
    let bytes = file.read(offset, len, buffer).await?;
    if bytes.len() == len { Ok(bytes) } else { Err(Corrupt("length of a block").into()) }
}

impl Reader for TreeReader {
    fn body_bytes(&self) -> Option<u64> {
        self.found.footer.body_bytes
    }

    fn extents(&self) -> &[Extent] {
        &self.found.table.extents
    }

    fn read<'a>(&'a mut self, offset: u64, buf: &'a mut [u8]) -> IoFuture<'a, usize> {
        if let Source::Whole(whole) = &self.source {
            let outcome = self.copy_some(whole, offset, buf);
            return Box::pin(ready(outcome.map_err(|failure| self.failed(failure))));
        }
        Box::pin(async move {
            let outcome = self.read_some(offset, buf).await;
            outcome.map_err(|failure| self.failed(failure))
        })
    }

    fn at_hand(&self, offset: u64) -> &[u8] {
        let Source::Whole(whole) = &self.source else { return &[] };
        let Some((at, in_extent)) = self.found.table.locate(offset) else { return &[] };
        let bytes = usize::try_from(in_extent).unwrap_or(usize::MAX);
        object::part(whole, self.found.footer.data_offset + at, bytes).unwrap_or_default()
    }
}
