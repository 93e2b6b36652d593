//! The engine that does everything at once, on the thread that asks: that of `ufs`, and of the
//! rebuild's own thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::dir::Unlinked;
use super::engine::{Engine, EngineError, File, Handle, Keep, OpenFor, Work};
use super::files::{self, Tree};
use super::operation::Operation;

/// Squid's constant: blocking I/O is always nearly as busy as can be, so that any other scheme is
/// preferred.
const LOAD: u16 = 999;

/// In the count of operations under way: nothing may begin any more.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// Time between two looks of `close` at operations of other cores.
const CLOSE_POLL: Duration = Duration::from_millis(1);

/// The engine.
pub(crate) struct Blocking {
    tree: Arc<Tree>,
    /// Operations under way on all cores, and [`CLOSED`].
    under_way: AtomicUsize,
}

impl Blocking {
    pub(crate) fn new(tree: Arc<Tree>) -> Self {
        Self { tree, under_way: AtomicUsize::new(0) }
    }

    fn during<T>(
        &self,
        operation: impl FnOnce(&Tree) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let is_open = self.under_way.fetch_add(1, Ordering::AcqRel) & CLOSED == 0;
        let outcome = if is_open { operation(&self.tree) } else { Err(EngineError::Gone) };
        self.under_way.fetch_sub(1, Ordering::Release);
        outcome
    }
}

/// Opens file `number`, reads `len` bytes, closes it.
pub(crate) fn read_file(tree: &Tree, number: u32, len: usize) -> Result<Vec<u8>, EngineError> {
    let file = tree.open(number)?;
    files::read_whole(&file, len)?.ok_or(EngineError::Short)
}

/// Creates file `number` with these bytes.
pub(crate) fn write_file(tree: &Tree, number: u32, bytes: &[u8]) -> Result<(), EngineError> {
    Ok(files::write_all_at(tree.create(number)?, bytes, 0)?)
}

/// Opens file `number` as a descriptor.
pub(crate) fn open(tree: &Tree, number: u32, purpose: OpenFor) -> Result<File, EngineError> {
    let file = match purpose {
        OpenFor::Reading => tree.open(number),
        OpenFor::Creating => tree.create(number),
        OpenFor::Updating => tree.open_for_update(number),
    };
    Ok(File::Local(file?))
}

/// Fills `bytes` from an open file.
pub(crate) fn read_at(handle: &Handle, offset: u64, bytes: &mut [u8]) -> Result<(), EngineError> {
    match files::read_exact_at(handle.local()?, bytes, offset)? {
        true => Ok(()),
        false => Err(EngineError::Short),
    }
}

/// Reads `len` bytes of an open file into memory of `buffer`.
pub(crate) fn read_buffer(
    handle: &Handle,
    offset: u64,
    len: usize,
    mut buffer: Vec<u8>,
) -> Result<Vec<u8>, EngineError> {
    buffer.resize(len, 0);
    read_at(handle, offset, &mut buffer)?;
    Ok(buffer)
}

/// Writes `bytes` to an open file; gives their memory back.
pub(crate) fn write_buffer(
    handle: &Handle,
    offset: u64,
    mut bytes: Vec<u8>,
) -> Result<Vec<u8>, EngineError> {
    files::write_all_at(handle.local()?, &bytes, offset)?;
    bytes.clear();
    Ok(bytes)
}

impl Engine for Blocking {
    fn blocks(&self) -> bool {
        true
    }

    fn admits(&self) -> bool {
        true
    }

    fn load(&self) -> u16 {
        LOAD
    }

    fn read_file(&self, number: u32, len: usize) -> Operation<Vec<u8>> {
        Operation::done(self.during(|tree| read_file(tree, number, len)))
    }

    fn write_file(&self, number: u32, bytes: Vec<u8>, keep: Keep) -> Operation<()> {
        let outcome = self.during(|tree| write_file(tree, number, &bytes));
        drop(keep);
        Operation::done(outcome)
    }

    fn write_file_now(&self, number: u32, bytes: &[u8]) -> Option<Result<(), EngineError>> {
        Some(self.during(|tree| write_file(tree, number, bytes)))
    }

    fn open(&self, number: u32, purpose: OpenFor, keep: Keep) -> Operation<Handle> {
        let file = self.during(|tree| open(tree, number, purpose));
        Operation::done(file.map(|file| Handle::new(file, keep, None)))
    }

    fn read(
        &self,
        handle: &Handle,
        offset: u64,
        len: usize,
        buffer: Vec<u8>,
    ) -> Operation<Vec<u8>> {
        Operation::done(self.during(|_| read_buffer(handle, offset, len, buffer)))
    }

    fn read_into(
        &self,
        handle: &Handle,
        offset: u64,
        bytes: &mut [u8],
    ) -> Option<Result<(), EngineError>> {
        Some(self.during(|_| read_at(handle, offset, bytes)))
    }

    fn write(&self, handle: &Handle, offset: u64, bytes: Vec<u8>) -> Operation<Vec<u8>> {
        Operation::done(self.during(|_| write_buffer(handle, offset, bytes)))
    }

    fn unlink(&self, number: u32, then: Unlinked) {
        then.done(self.during(|tree| Ok(tree.unlink(number)?)));
    }

    fn later(&self, work: Work) -> Operation<()> {
        Operation::done(self.during(|_| work()))
    }

    fn close(&self) {
        let mut left = self.under_way.fetch_or(CLOSED, Ordering::AcqRel) & !CLOSED;
        while left != 0 {
            std::thread::sleep(CLOSE_POLL);
            left = self.under_way.load(Ordering::Acquire) & !CLOSED;
        }
    }

    fn stop(&self) {
        self.close();
    }
}
