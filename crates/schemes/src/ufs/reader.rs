//! Reading objects.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use humboldt_store::Key;
use humboldt_store::index::{FileEntry, IndexKey};
use humboldt_store::scheme::{Extent, IoFuture, Reader, Record, SchemeError};

use super::dir::Dir;
use super::format::{BLOCK_BYTES, Corrupt};
use super::object::{Failure, Source, Surroundings};

/// How often an open starts again because the object was replaced while it was being read.
const OPEN_TRIES: usize = 8;

/// Opens the object of `key`.
pub(crate) fn open(dir: &Arc<Dir>, key: &Key) -> Result<Option<Box<dyn Reader>>, SchemeError> {
    dir.in_service()?;
    let index_key = IndexKey::from(key);
    for _ in 0..OPEN_TRIES {
        let Some(entry) = dir.index.get(index_key) else { return Ok(None) };
        let failure = match UfsReader::open(dir, key, entry) {
            Ok(reader) => {
                dir.health.success();
                dir.counts.reads.fetch_add(1, Ordering::Relaxed);
                return Ok(Some(Box::new(reader)));
            }
            Err(Failure::Refused(error)) => return Err(error),
            Err(failure) => failure,
        };
        if dir.index.peek(index_key) != Some(entry) {
            continue;
        }
        dir.drop_bad(index_key, entry);
        return match failure {
            Failure::Corrupt(corrupt) => Err(corrupt.into()),
            _ => Ok(None),
        };
    }
    Err(SchemeError::Busy("the object keeps changing"))
}

/// An open object. A short one is in memory, verified; of a long one the file is open, and each block is verified
/// when it is read.
struct UfsReader {
    dir: Arc<Dir>,
    entry: FileEntry,
    source: Source,
    found: Surroundings,
    /// A verified block of a long object, for reads that are smaller than a block.
    block: Vec<u8>,
    block_number: u64,
}

impl UfsReader {
    fn open(dir: &Arc<Dir>, key: &Key, entry: FileEntry) -> Result<Self, Failure> {
        let source = Source::open(dir, entry)?;
        let found = Surroundings::read(&source, entry, *key)?;
        if let Source::Whole(_) = source {
            for block in 0..u64::from(found.footer.blocks) {
                let offset = found.footer.data_offset + block * BLOCK_BYTES as u64;
                found.verify_block(block, &source.bytes(offset, found.block_bytes(block))?)?;
            }
        }
        Ok(Self { dir: Arc::clone(dir), entry, source, found, block: Vec::new(), block_number: u64::MAX })
    }

    fn read_some(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Failure> {
        let Some((at, in_extent)) = self.found.table.locate(offset) else { return Ok(0) };
        if let Source::Whole(_) = self.source {
            let bytes = usize::try_from(in_extent).unwrap_or(usize::MAX).min(buf.len());
            self.source.read(self.found.footer.data_offset + at, &mut buf[..bytes])?;
            return Ok(bytes);
        }
        let (block, in_block) = (at / BLOCK_BYTES as u64, (at % BLOCK_BYTES as u64) as usize);
        let block_bytes = self.found.block_bytes(block);
        let usable = usize::try_from(in_extent).unwrap_or(usize::MAX).min(block_bytes - in_block);
        let block_offset = self.found.footer.data_offset + block * BLOCK_BYTES as u64;
        if in_block == 0 && usable == block_bytes && buf.len() >= block_bytes && self.block_number != block {
            self.source.read(block_offset, &mut buf[..block_bytes])?;
            self.found.verify_block(block, &buf[..block_bytes])?;
            return Ok(block_bytes);
        }
        if self.block_number != block {
            self.block_number = u64::MAX;
            self.block.resize(block_bytes, 0);
            self.source.read(block_offset, &mut self.block)?;
            self.found.verify_block(block, &self.block)?;
            self.block_number = block;
        }
        let bytes = usable.min(buf.len());
        let verified = self.block.get(in_block..in_block + bytes).ok_or(Corrupt("length of a block"))?;
        buf[..bytes].copy_from_slice(verified);
        Ok(bytes)
    }
}

impl Reader for UfsReader {
    fn record(&self) -> &Record {
        &self.found.header.record
    }

    fn body_bytes(&self) -> Option<u64> {
        self.found.footer.body_bytes
    }

    fn extents(&self) -> &[Extent] {
        &self.found.table.extents
    }

    fn read<'a>(&'a mut self, offset: u64, buf: &'a mut [u8]) -> IoFuture<'a, usize> {
        let outcome = self.read_some(offset, buf).map_err(|failure| match failure {
            Failure::Refused(error) => error,
            Failure::Corrupt(corrupt) => {
                self.dir.drop_bad(IndexKey::from(&self.record().key), self.entry);
                corrupt.into()
            }
            Failure::Missing => SchemeError::Corrupt("file is missing"),
        });
        Box::pin(ready(outcome))
    }
}
