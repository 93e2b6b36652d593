//! Reads and writes of buffers, through io_uring.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::aligned::Buffer;
use crate::append_buffer::AppendBuffer;

/// What is moved. It belongs to the operation until that is done.
#[derive(Debug)]
pub enum Transfer {
    /// Fills the buffer from the file.
    Read(Buffer),
    /// Writes the buffer.
    Write(Buffer),
    /// Writes this range of published bytes.
    Append(Arc<AppendBuffer>, Range<usize>),
}

/// The error of writing a range that is not published as a whole.
pub fn unpublished() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "this range of the append buffer is not published")
}
