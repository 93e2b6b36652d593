//! The data file or device: reads and writes, counted.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use humboldt_sys::aligned::Buffer;

use crate::block::BlockFile;

/// Most reads under way for each thread: Squid's measure of too much.
const READS_PER_THREAD: usize = 20;

/// Longer reads are not tried on the core, even if all is in the page cache: copying takes too
/// long.
const READ_NOW_BYTES_MAX: usize = 256 * 1024;

/// An open data file. Shared by all threads.
pub(super) struct DataFile {
    file: Arc<dyn BlockFile>,
    /// For messages.
    pub(super) path: PathBuf,
    /// A device has the size that it has.
    pub(super) is_device: bool,
    reads_max: usize,
    pub(super) read_ops: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    pub(super) write_ops: AtomicU64,
    pub(super) write_bytes: AtomicU64,
    /// Control of writes by a test: they fail while `fails`, and wait while the lock is held.
    #[cfg(test)]
    pub(super) fails: std::sync::atomic::AtomicBool,
    #[cfg(test)]
    pub(super) gate: parking_lot::Mutex<()>,
    /// Reads of cores find nothing in the page cache, for tests.
    #[cfg(test)]
    pub(super) is_cold: std::sync::atomic::AtomicBool,
}

impl DataFile {
    pub(super) fn new(
        file: Arc<dyn BlockFile>,
        path: PathBuf,
        is_device: bool,
        threads: u32,
    ) -> Self {
        Self {
            file,
            path,
            is_device,
            reads_max: threads.max(1) as usize * READS_PER_THREAD,
            read_ops: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            write_ops: AtomicU64::new(0),
            write_bytes: AtomicU64::new(0),
            #[cfg(test)]
            fails: false.into(),
            #[cfg(test)]
            gate: parking_lot::Mutex::new(()),
            #[cfg(test)]
            is_cold: false.into(),
        }
    }

    fn count_read(&self, bytes: usize) {
        self.read_ops.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Reads on this thread; bytes behind the end of the file are zero.
    pub(super) fn read_blocking(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let read = self.file.read_blocking(offset, bytes)?;
        self.count_read(read);
        bytes.iter_mut().skip(read).for_each(|byte| *byte = 0);
        Ok(())
    }

    /// Reads `len` bytes for a core: from the page cache if they are there, else on a thread or
    /// ring. Where the file ends before, the buffer does.
    pub(super) async fn read(&self, offset: u64, len: usize) -> io::Result<Buffer> {
        let mut buffer = Buffer::new(len);
        if len <= READ_NOW_BYTES_MAX
            && self.may_read_now()
            && let Some(Ok(_)) = self.file.read_now(offset, &mut buffer)
        {
            self.count_read(len);
            return Ok(buffer);
        }
        let is_full = || self.file.in_flight() >= self.reads_max;
        if is_full() {
            self.file.forget_unwanted();
        }
        if is_full() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let (mut buffer, read) = self.file.read(offset, buffer).await;
        let read = read?;
        self.count_read(read);
        buffer.set_len(read.min(len));
        Ok(buffer)
    }

    #[cfg(not(test))]
    fn may_read_now(&self) -> bool {
        true
    }

    #[cfg(test)]
    fn may_read_now(&self) -> bool {
        !self.is_cold.load(Ordering::Relaxed)
    }

    /// Reads under way, 0 to 1000 and more.
    pub(super) fn load(&self) -> usize {
        self.file.in_flight() * 1000 / self.reads_max
    }

    /// Writes all of `bytes` on this thread.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        drop(self.gate.lock());
        #[cfg(test)]
        if self.fails.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.write_blocking(offset, bytes)?;
        self.write_ops.fetch_add(1, Ordering::Relaxed);
        self.write_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Length of the file, or size of the device.
    pub(super) fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    /// Makes a file this long; nothing happens to a device.
    pub(super) fn set_len(&self, bytes: u64) -> io::Result<()> {
        if self.is_device { Ok(()) } else { self.file.set_len(bytes) }
    }

    /// Waits until everything written is on the device.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_blocking()
    }
}
