//! The interface of a file or block device, and the options for opening one.

use std::future::Future;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use humboldt_sys::aligned::Buffer;
use humboldt_sys::append_buffer::AppendBuffer;

use crate::Io;

/// Alignment that direct I/O needs where the system does not tell.
pub(crate) const DIRECT_ALIGN_BYTES: usize = 4096;

/// Options for opening a file.
#[derive(Clone, Debug)]
pub(crate) struct OpenBlock<'a> {
    /// File or block device.
    pub path: &'a Path,
    /// Which way to the device.
    pub io: Io,
    /// Past the page cache (`O_DIRECT`). Where the file system refuses, it is opened without, and a
    /// line is logged.
    pub direct: bool,
    /// A write that has ended is on the device, not only in the page cache (`O_DSYNC`).
    pub lasting: bool,
    /// Most threads that make blocking calls for this file, at least 1; they start when they are
    /// needed.
    pub threads: u32,
    /// Create the file if it is not there.
    pub create: bool,
    /// Open for reading only.
    pub read_only: bool,
}

/// The end of an operation, and its buffer back.
pub(crate) type Ended<R> = Pin<Box<dyn Future<Output = (Buffer, io::Result<R>)>>>;

/// The end of a read: how many bytes of the buffer were read.
pub(crate) type ReadFuture = Ended<usize>;

/// Called at the end of [`BlockFile::write`].
pub(crate) type WriteDone = Box<dyn FnOnce(io::Result<()>) + Send>;

/// A file or block device that is read and written in blocks. Shared by all cores.
///
/// With direct I/O, offsets, lengths and memory must be multiples of
/// [`BlockFile::alignment_bytes`]; the system refuses others. Only operations that were interrupted
/// or cut short are retried. When too many operations are waiting, one ends with
/// [`io::ErrorKind::WouldBlock`].
///
/// Dropping a file does not cancel operations under way: call [`BlockFile::wait_idle`] before the
/// same file is opened again.
pub(crate) trait BlockFile: Send + Sync {
    /// Reads `buffer.len()` bytes at `offset`. Fewer only at the end of the file.
    fn read(&self, offset: u64, buffer: Buffer) -> ReadFuture;

    /// Fills `into` from the page cache if all of it is there. `None`: it would have to wait, or
    /// ends behind the end of the file, or the file is used past the page cache.
    fn read_now(&self, offset: u64, into: &mut [u8]) -> Option<io::Result<usize>>;

    /// Writes the published bytes `range` of `data`: whole, or an error. `done` is called exactly
    /// once, on any thread, perhaps before this returns; it must not block.
    fn write(&self, offset: u64, data: Arc<AppendBuffer>, range: Range<usize>, done: WriteDone);

    /// Reads like [`BlockFile::read`], on this thread.
    fn read_blocking(&self, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Writes all of `data`, on this thread.
    fn write_blocking(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Waits until all writes are on the device (`fdatasync`).
    fn sync_blocking(&self) -> io::Result<()>;

    /// Size in bytes, of a device too.
    fn len(&self) -> io::Result<u64>;

    /// Makes the file this long. Devices refuse.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Sees to it that the file system has room for this range. Where it cannot tell, this does
    /// nothing.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Offsets and lengths must be multiples of this; 1 when the page cache is used.
    fn alignment_bytes(&self) -> usize;

    /// Whether threads of this file tell the end of an operation, and not the core that began it.
    fn ends_on_threads(&self) -> bool {
        false
    }

    /// Operations that have begun and are not done.
    fn in_flight(&self) -> usize;

    /// Reads whose futures were dropped, and which only wait, are not under way any more.
    fn forget_unwanted(&self) {}

    /// Blocks this thread until nothing of this file is under way, and every `done` has been
    /// called. `false`: something still is after `timeout`. From a core it drives that core's ring
    /// meanwhile.
    fn wait_idle(&self, timeout: Duration) -> bool;
}
