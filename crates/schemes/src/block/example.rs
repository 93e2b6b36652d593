//! Helpers of `examples/block_io.rs`, which measures block files. Nothing else uses them.

use std::io;
use std::path::Path;
use std::sync::Arc;

use humboldt_sys::aligned::Buffer;

use super::file::{BlockFile, OpenBlock};
use super::open;
use crate::Io;

/// A file to read from.
pub struct Subject(Arc<dyn BlockFile>);

impl Subject {
    /// Opens an existing file.
    pub fn open(path: &Path, io: Io, direct: bool) -> io::Result<Self> {
        let options = OpenBlock {
            path,
            io,
            direct,
            lasting: false,
            threads: 16,
            create: false,
            read_only: true,
        };
        open(&options).map(Self)
    }

    /// Reads `buffer.len()` bytes.
    pub fn read(
        &self,
        offset: u64,
        buffer: Buffer,
    ) -> impl Future<Output = (Buffer, io::Result<usize>)> + use<> {
        self.0.read(offset, buffer)
    }

    /// Reads from the page cache, if it is there.
    pub fn read_now(&self, offset: u64, into: &mut [u8]) -> Option<io::Result<usize>> {
        self.0.read_now(offset, into)
    }
}
