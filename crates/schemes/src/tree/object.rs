//! Reading and verifying the parts around the body in an object file.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use humboldt_store::Key;
use humboldt_store::index::FileEntry;
use humboldt_store::scheme::{Record, RecordKind, SchemeError};
use rustix::io::Errno;

use super::dir::{Dir, FLAG_PARTIAL, FLAG_VARY, Permit, file_bytes};
use super::engine::{Engine, EngineError, File, Handle, OpenFor};
use super::files;
use super::format::{
    self, BLOCK_BYTES, Corrupt, FOOTER_BYTES, Footer, HEADER_BYTES, Header, Table, UNIT_BYTES,
    WHOLE_FILE_BYTES_MAX,
};
use super::operation::at_once;

/// The end of a longer file, with the footer and usually the table, that is read at once.
const TAIL_BYTES: u64 = 4096;

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

impl Failure {
    /// The engine's error for file `number`. The reason why an object is dropped.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Corrupt(corrupt) => corrupt.0,
            Self::Missing | Self::Refused(_) => "file is missing",
        }
    }

    pub(crate) fn from_engine(dir: &Dir, operation: &str, number: u32, error: EngineError) -> Self {
        match error {
            EngineError::System(Errno::NOENT) => Self::Missing,
            EngineError::Short => Corrupt("file is short").into(),
            error => {
                if error == EngineError::Shed {
                    dir.counts.shed_hits.fetch_add(1, Ordering::Relaxed);
                }
                Self::Refused(dir.failed(operation, number, error))
            }
        }
    }
}

/// The source of an object's bytes.
pub(crate) enum Source {
    /// The whole file in memory.
    Whole(Vec<u8>),
    /// An open file.
    Open(OpenFile),
}

/// An open file and its last bytes, which are read first.
pub(crate) struct OpenFile {
    dir: Arc<Dir>,
    engine: Arc<dyn Engine>,
    handle: Handle,
    number: u32,
    tail: Vec<u8>,
    tail_offset: u64,
}

impl OpenFile {
    pub(crate) async fn new(
        dir: &Arc<Dir>,
        engine: Arc<dyn Engine>,
        handle: Handle,
        entry: FileEntry,
    ) -> Result<Self, Failure> {
        let len = file_bytes(entry);
        let tail_bytes = len.min(TAIL_BYTES);
        let mut file = Self {
            dir: Arc::clone(dir),
            engine,
            handle,
            number: entry.file,
            tail: Vec::new(),
            tail_offset: len - tail_bytes,
        };
        file.tail = file.read(file.tail_offset, tail_bytes as usize, Vec::new()).await?;
        Ok(file)
    }

    /// Reads exactly `len` bytes, in memory of `buffer`; a file that ends before is corrupt.
    pub(crate) async fn read(
        &self,
        offset: u64,
        len: usize,
        buffer: Vec<u8>,
    ) -> Result<Vec<u8>, Failure> {
        let outcome = self.engine.read(&self.handle, offset, len, buffer).await;
        self.dir.counts.read(len);
        outcome.map_err(|error| Failure::from_engine(&self.dir, "read", self.number, error))
    }

    /// Fills `bytes`, if the engine does everything at once anyway.
    pub(crate) fn read_into(&self, offset: u64, bytes: &mut [u8]) -> Option<Result<(), Failure>> {
        let outcome = self.engine.read_into(&self.handle, offset, bytes)?;
        self.dir.counts.read(bytes.len());
        Some(outcome.map_err(|error| Failure::from_engine(&self.dir, "read", self.number, error)))
    }
}

impl Source {
    /// Opens the file of `entry`, and reads it if it is short.
    pub(crate) async fn open(dir: &Arc<Dir>, entry: FileEntry) -> Result<Self, Failure> {
        let len = file_bytes(entry);
        if len > WHOLE_FILE_BYTES_MAX {
            // Rare, and with more state than short files need.
            return Box::pin(Self::open_long(dir, entry)).await;
        }
        let outcome = dir.engine.read_file(entry.file, len as usize).await;
        dir.counts.read(len as usize);
        let whole =
            outcome.map_err(|error| Failure::from_engine(dir, "read", entry.file, error))?;
        Ok(Self::Whole(whole))
    }

    async fn open_long(dir: &Arc<Dir>, entry: FileEntry) -> Result<Self, Failure> {
        let permit = Permit::take(dir).map_err(Failure::Refused)?;
        let opened = dir.engine.open(entry.file, OpenFor::Reading, Arc::new(permit)).await;
        let handle =
            opened.map_err(|error| Failure::from_engine(dir, "open", entry.file, error))?;
        Ok(Self::Open(OpenFile::new(dir, Arc::clone(&dir.engine), handle, entry).await?))
    }

    /// Writes behind the end of an open file, which is at `offset`.
    pub(crate) async fn append(&self, offset: u64, bytes: Vec<u8>) -> Result<(), Failure> {
        let Self::Open(file) = self else {
            return Err(Failure::Refused(SchemeError::Busy("the file is not open")));
        };
        let outcome = file.engine.write(&file.handle, offset, bytes).await;
        outcome
            .map(drop)
            .map_err(|error| Failure::from_engine(&file.dir, "update", file.number, error))
    }

    /// `len` bytes at `offset`; `len` has been checked against a bound.
    pub(crate) async fn bytes(&self, offset: u64, len: usize) -> Result<Cow<'_, [u8]>, Failure> {
        match self {
            Self::Whole(whole) => Ok(Cow::Borrowed(part(whole, offset, len)?)),
            Self::Open(file) => {
                if let Some(in_tail) = offset.checked_sub(file.tail_offset) {
                    return Ok(Cow::Borrowed(part(&file.tail, in_tail, len)?));
                }
                let mut bytes = Vec::with_capacity(len);
                while bytes.len() < len {
                    let step = (len - bytes.len()).min(BLOCK_BYTES);
                    bytes.extend(file.read(offset + bytes.len() as u64, step, Vec::new()).await?);
                }
                Ok(Cow::Owned(bytes))
            }
        }
    }
}

/// Bytes `offset..offset + len` of `whole`, which is in memory.
pub(crate) fn part(whole: &[u8], offset: u64, len: usize) -> Result<&[u8], Corrupt> {
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
    pub(crate) async fn read(source: &Source, entry: FileEntry, key: Key) -> Result<Self, Failure> {
        let len = file_bytes(entry);
        let offset = len.checked_sub(FOOTER_BYTES as u64).ok_or(Corrupt("file is short"))?;
        let bytes = source.bytes(offset, FOOTER_BYTES).await?;
        let bytes = bytes.first_chunk().ok_or(Corrupt("file is short"))?;
        let footer = Footer::decode(bytes, key, len)?;
        let block = source.bytes(footer.header_offset, footer.header_bytes as usize).await?;
        let header = format::decode_header(&block, footer.header_checksum)?;
        if header.record.key != key || header.file != entry.file {
            return Err(Corrupt("header of another file").into());
        }
        let table_bytes =
            usize::try_from(footer.table_bytes()).map_err(|_| Corrupt("length of the table"))?;
        let table = Table::decode(&source.bytes(footer.table_offset, table_bytes).await?, &footer)?;
        Ok(Self { header, footer, table })
    }

    /// Length of block `block` of the stored bytes.
    pub(crate) fn block_bytes(&self, block: u64) -> usize {
        let start = block.saturating_mul(BLOCK_BYTES as u64);
        self.footer.stored_bytes.saturating_sub(start).min(BLOCK_BYTES as u64) as usize
    }

    /// Checks `bytes` against the checksum of block `block`.
    pub(crate) fn verify_block(&self, block: u64, bytes: &[u8]) -> Result<(), Corrupt> {
        let expected =
            usize::try_from(block).ok().and_then(|at| self.table.block_checksums.get(at));
        if expected != Some(&format::checksum(bytes)) {
            return Err(Corrupt("checksum of the body"));
        }
        Ok(())
    }
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

/// Reads file `number`, of which nothing is known, on a thread that may block: its surroundings are
/// verified, its body is not.
pub(crate) fn examine(dir: &Arc<Dir>, number: u32) -> Result<(Header, FileEntry), Failure> {
    let failed = |error: Errno| Failure::from_engine(dir, "examine", number, error.into());
    let fd = dir.tree.open(number).map_err(failed)?;
    let len = u64::try_from(rustix::fs::fstat(&fd).map_err(failed)?.st_size).unwrap_or(0);
    let size_units =
        u32::try_from(len / UNIT_BYTES as u64).map_err(|_| Corrupt("file is too long"))?;
    if !len.is_multiple_of(UNIT_BYTES as u64) {
        return Err(Corrupt("length of the file").into());
    }
    let mut first = [0; HEADER_BYTES];
    if !files::read_exact_at(&fd, &mut first, 0).map_err(failed)? {
        return Err(Corrupt("file is short").into());
    }
    dir.counts.read(HEADER_BYTES);
    let key = format::claimed_key(&first)?;
    let mut entry = FileEntry { file: number, size_units, flags: 0 };
    let found = at_once(async {
        let handle = Handle::new(File::Local(fd), Arc::new(()), None);
        let file =
            OpenFile::new(dir, Arc::clone(&dir.blocking) as Arc<dyn Engine>, handle, entry).await?;
        Surroundings::read(&Source::Open(file), entry, key).await
    });
    let found =
        found.unwrap_or(Err(Failure::Refused(SchemeError::Busy("the engine does not block"))))?;
    entry.flags = flags(&found.header.record, &found.table, found.footer.body_bytes);
    Ok((found.header, entry))
}
