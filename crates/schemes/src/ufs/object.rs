//! Reading and verifying what surrounds the body in an object file.

use std::borrow::Cow;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use humboldt_store::Key;
use humboldt_store::index::FileEntry;
use humboldt_store::scheme::{Record, RecordKind, SchemeError};
use rustix::io::Errno;

use super::dir::{Dir, FLAG_PARTIAL, FLAG_VARY, file_bytes};
use super::files;
use super::format::{
    self, BLOCK_BYTES, Corrupt, FOOTER_BYTES, Footer, HEADER_BYTES, Header, Table, UNIT_BYTES,
};

/// Files up to this length are read with one system call, and no descriptor is kept.
pub(crate) const WHOLE_FILE_BYTES_MAX: u64 = BLOCK_BYTES as u64 + 16 * 1024;

/// Why an object cannot be read.
pub(crate) enum Failure {
    /// There is no such file.
    Missing,
    /// It does not verify.
    Corrupt(Corrupt),
    /// The operating system, or a bound of ours, is in the way.
    Refused(SchemeError),
}

impl From<Corrupt> for Failure {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt)
    }
}

/// Where the bytes of an object come from.
pub(crate) enum Source {
    /// The whole file in memory.
    Whole(Vec<u8>),
    /// An open file.
    Open(OpenFile),
}

/// An open file that counts against `max_open_disk_fds`.
pub(crate) struct OpenFile {
    dir: Arc<Dir>,
    fd: OwnedFd,
    number: u32,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.dir.count_closed_file();
    }
}

impl OpenFile {
    /// Reads exactly `bytes`; a file that ends before is corrupt.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        match files::read_exact_at(&self.fd, bytes, offset) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Corrupt("file is short").into()),
            Err(error) => Err(Failure::Refused(self.dir.failed("read", self.number, error))),
        }
    }
}

impl Source {
    /// Opens the file of `entry`, and reads it if it is short.
    pub(crate) fn open(dir: &Arc<Dir>, entry: FileEntry) -> Result<Self, Failure> {
        let refused = |operation, error| Failure::Refused(dir.failed(operation, entry.file, error));
        let fd = match dir.tree.open(entry.file) {
            Err(Errno::NOENT) => return Err(Failure::Missing),
            other => other.map_err(|error| refused("open", error))?,
        };
        let len = file_bytes(entry);
        if len > WHOLE_FILE_BYTES_MAX {
            dir.count_open_file().map_err(Failure::Refused)?;
            return Ok(Self::Open(OpenFile { dir: Arc::clone(dir), fd, number: entry.file }));
        }
        let whole = files::read_whole(&fd, len as usize).map_err(|error| refused("read", error))?;
        Ok(Self::Whole(whole.ok_or(Corrupt("file is short"))?))
    }

    /// Fills `bytes` from `offset`.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        match self {
            Self::Open(file) => file.read(offset, bytes),
            Self::Whole(whole) => {
                bytes.copy_from_slice(part(whole, offset, bytes.len())?);
                Ok(())
            }
        }
    }

    /// `len` bytes at `offset`; `len` has been checked against a bound.
    pub(crate) fn bytes(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>, Failure> {
        match self {
            Self::Whole(whole) => Ok(Cow::Borrowed(part(whole, offset, len)?)),
            Self::Open(file) => {
                let mut bytes = vec![0; len];
                file.read(offset, &mut bytes)?;
                Ok(Cow::Owned(bytes))
            }
        }
    }
}

fn part(whole: &[u8], offset: u64, len: usize) -> Result<&[u8], Corrupt> {
    let start = usize::try_from(offset).map_err(|_| Corrupt("file is short"))?;
    let end = start.checked_add(len).ok_or(Corrupt("file is short"))?;
    whole.get(start..end).ok_or(Corrupt("file is short"))
}

/// The verified surroundings of a body.
pub(crate) struct Surroundings {
    pub(crate) header: Header,
    pub(crate) footer: Footer,
    pub(crate) table: Table,
}

impl Surroundings {
    /// Reads and verifies the surroundings in a file that should be that of `key`.
    pub(crate) fn read(source: &Source, entry: FileEntry, key: Key) -> Result<Self, Failure> {
        let footer = read_footer(source, file_bytes(entry), key)?;
        let block = source.bytes(footer.header_offset, footer.header_bytes as usize)?;
        let header = format::decode_header(&block, footer.header_checksum)?;
        if header.record.key != key || header.file != entry.file {
            return Err(Corrupt("header of another file").into());
        }
        let table_bytes =
            usize::try_from(footer.table_bytes()).map_err(|_| Corrupt("length of the table"))?;
        let table = Table::decode(&source.bytes(footer.table_offset, table_bytes)?, &footer)?;
        Ok(Self { header, footer, table })
    }

    /// Length of block `block` of the stored bytes.
    pub(crate) fn block_bytes(&self, block: u64) -> usize {
        let start = block.saturating_mul(BLOCK_BYTES as u64);
        self.footer.stored_bytes.saturating_sub(start).min(BLOCK_BYTES as u64) as usize
    }

    /// Checks `bytes` against the checksum of block `block`.
    pub(crate) fn verify_block(&self, block: u64, bytes: &[u8]) -> Result<(), Corrupt> {
        let expected = usize::try_from(block).ok().and_then(|at| self.table.block_checksums.get(at));
        if expected != Some(&format::checksum(bytes)) {
            return Err(Corrupt("checksum of the body"));
        }
        Ok(())
    }
}

/// Reads the footer of a file that is `len` bytes long.
pub(crate) fn read_footer(source: &Source, len: u64, key: Key) -> Result<Footer, Failure> {
    let offset = len.checked_sub(FOOTER_BYTES as u64).ok_or(Corrupt("file is short"))?;
    let mut bytes = [0; FOOTER_BYTES];
    source.read(offset, &mut bytes)?;
    Ok(Footer::decode(&bytes, key, len)?)
}

/// Flags that the index keeps for an object.
pub(crate) fn flags(record: &Record, table: &Table, body_bytes: Option<u64>) -> u8 {
    let is_complete = match (table.extents.as_slice(), body_bytes) {
        ([], Some(0)) => true,
        ([only], Some(len)) => only.start == 0 && only.end == len,
        _ => false,
    };
    let vary = if record.kind == RecordKind::Vary { FLAG_VARY } else { 0 };
    vary | if is_complete { 0 } else { FLAG_PARTIAL }
}

/// Reads file `number`, of which nothing is known: its surroundings are verified, its body is not.
pub(crate) fn examine(dir: &Arc<Dir>, number: u32) -> Result<(Header, FileEntry), Failure> {
    let refused = |error| Failure::Refused(dir.failed("examine", number, error));
    let fd = dir.tree.open(number).map_err(refused)?;
    let len = u64::try_from(rustix::fs::fstat(&fd).map_err(refused)?.st_size).unwrap_or(0);
    let size_units = u32::try_from(len / UNIT_BYTES as u64).map_err(|_| Corrupt("file is too long"))?;
    if !len.is_multiple_of(UNIT_BYTES as u64) {
        return Err(Corrupt("length of the file").into());
    }
    let mut first = [0; HEADER_BYTES];
    if !files::read_exact_at(&fd, &mut first, 0).map_err(refused)? {
        return Err(Corrupt("file is short").into());
    }
    let key = format::claimed_key(&first)?;
    let mut entry = FileEntry { file: number, size_units, flags: 0 };
    dir.count_open_file().map_err(Failure::Refused)?;
    let source = Source::Open(OpenFile { dir: Arc::clone(dir), fd, number });
    let found = Surroundings::read(&source, entry, key)?;
    entry.flags = flags(&found.header.record, &found.table, found.footer.body_bytes);
    Ok((found.header, entry))
}
