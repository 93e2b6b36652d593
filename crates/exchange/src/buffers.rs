//! Buffers that sockets are read into, and bytes of a server that are not used yet.

use std::cell::RefCell;

/// Size of a read buffer in bytes: the most that one read takes from a socket.
pub const READ_BYTES: usize = 64 * 1024;

/// Most read buffers a core keeps while they are not in use.
const SPARE_BUFFERS_MAX: usize = 4;

/// The read buffers of one core: as many as are in use at the same time, which is one, unless
/// answers wait between head and body.
pub struct ReadBuffers {
    spare: RefCell<Vec<Vec<u8>>>,
}

impl Default for ReadBuffers {
    /// With one buffer.
    fn default() -> Self {
        Self { spare: RefCell::new(vec![vec![0; READ_BYTES]]) }
    }
}

impl ReadBuffers {
    /// A buffer of [`READ_BYTES`] with any content; give it back with [`ReadBuffers::put`].
    pub fn take(&self) -> Vec<u8> {
        self.spare.borrow_mut().pop().unwrap_or_else(|| vec![0; READ_BYTES])
    }

    /// Keeps the buffer for the next read, or frees it where enough are kept.
    pub fn put(&self, buffer: Vec<u8>) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_BUFFERS_MAX && buffer.len() == READ_BYTES {
            spare.push(buffer);
        }
    }

    /// Runs `read` with a buffer.
    pub fn with<T>(&self, read: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut buffer = self.take();
        let result = read(&mut buffer);
        self.put(buffer);
        result
    }
}

/// Received bytes, used from the front. The bytes of one read stay in the buffer that they were
/// read into, so that the body behind a head is copied only once: to the pages of its flow.
#[derive(Debug, Default)]
pub struct Input {
    /// [`READ_BYTES`] long if it is one of the core's, otherwise as long as the received bytes.
    buffer: Vec<u8>,
    used: usize,
    filled: usize,
}

impl Input {
    /// A copy of `bytes`.
    pub fn copied(bytes: &[u8]) -> Self {
        Self { buffer: bytes.to_vec(), used: 0, filled: bytes.len() }
    }

    /// The unused bytes.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.get(self.used..self.filled).unwrap_or_default()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.used == self.filled
    }

    /// Adds the first `filled` bytes of `buffer`, which came from `buffers`.
    pub fn add(&mut self, buffers: &ReadBuffers, buffer: Vec<u8>, filled: usize) {
        if self.is_empty() {
            *self = Self { filled: filled.min(buffer.len()), buffer, used: 0 };
            return;
        }
        self.part_from(buffers);
        self.buffer.drain(..self.used);
        self.used = 0;
        self.buffer.extend_from_slice(buffer.get(..filled).unwrap_or_default());
        self.filled = self.buffer.len();
        buffers.put(buffer);
    }

    /// Adds a copy of `bytes`.
    pub fn append(&mut self, buffers: &ReadBuffers, bytes: &[u8]) {
        self.part_from(buffers);
        self.buffer.truncate(self.filled);
        self.buffer.drain(..self.used);
        self.used = 0;
        self.buffer.extend_from_slice(bytes);
        self.filled = self.buffer.len();
    }

    /// Gives the core's buffer back and keeps a copy of its contents: the missing bytes may take
    /// their time.
    pub fn part_from(&mut self, buffers: &ReadBuffers) {
        if self.buffer.len() == READ_BYTES {
            self.shrink(buffers);
        }
    }

    /// Keeps a copy of what is left, without room beside it.
    pub fn shrink(&mut self, buffers: &ReadBuffers) {
        let copy = Self::copied(self.bytes());
        buffers.put(std::mem::replace(self, copy).buffer);
    }

    /// All that is left, in a buffer of its own.
    pub fn into_bytes(mut self, buffers: &ReadBuffers) -> Vec<u8> {
        let bytes = self.bytes().to_vec();
        self.consume(buffers, usize::MAX);
        bytes
    }

    /// The first `bytes` are used. When nothing is left, the buffer goes back.
    pub fn consume(&mut self, buffers: &ReadBuffers, bytes: usize) {
        self.used = self.used.saturating_add(bytes).min(self.filled);
        if self.is_empty() {
            buffers.put(std::mem::take(self).buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(buffers: &ReadBuffers, bytes: &[u8]) -> (Vec<u8>, usize) {
        let mut buffer = buffers.take();
        buffer[..bytes.len()].copy_from_slice(bytes);
        (buffer, bytes.len())
    }

    #[test]
    fn what_came_at_once_is_not_copied() {
        let buffers = ReadBuffers::default();
        let (buffer, filled) = read(&buffers, b"head body");
        let address = buffer.as_ptr();
        let mut input = Input::default();
        input.add(&buffers, buffer, filled);
        assert_eq!((input.bytes(), input.bytes().as_ptr()), (&b"head body"[..], address));
        input.consume(&buffers, 5);
        assert_eq!(input.bytes(), b"body");
        assert!(buffers.spare.borrow().is_empty(), "the buffer is in use");
        input.consume(&buffers, 4);
        assert!(input.is_empty());
        let again = buffers.take();
        assert_eq!(again.as_ptr(), address, "the buffer is back");
    }

    #[test]
    fn what_comes_in_pieces_holds_no_buffer() {
        let buffers = ReadBuffers::default();
        let mut input = Input::default();
        for (piece, all) in
            [(&b"x he"[..], &b"he"[..]), (b"ad ", b"head "), (b"body", b"head body")]
        {
            input.part_from(&buffers);
            let (buffer, filled) = read(&buffers, piece);
            input.add(&buffers, buffer, filled);
            if all == b"he" {
                input.consume(&buffers, 2);
            }
            assert_eq!(input.bytes(), all);
        }
        assert_eq!(buffers.spare.borrow().len(), 1);
        input.consume(&buffers, usize::MAX);
        assert!(input.is_empty());
        assert_eq!(buffers.spare.borrow().len(), 1, "what is no read buffer is not kept as one");
    }

    #[test]
    fn what_was_used_is_not_kept() {
        let buffers = ReadBuffers::default();
        let mut input = Input::copied(b"he");
        for _ in 0..1000 {
            // Every read ends in the middle of a head.
            input.part_from(&buffers);
            let (buffer, filled) = read(&buffers, b"ad he");
            input.add(&buffers, buffer, filled);
            assert_eq!(input.bytes(), b"head he");
            input.consume(&buffers, 5);
        }
        assert_eq!(input.bytes(), b"he");
        assert!(input.buffer.len() < 100, "{}", input.buffer.len());
    }

    #[test]
    fn what_waits_for_long_takes_no_more_than_its_length() {
        let buffers = ReadBuffers::default();
        let mut input = Input::default();
        let (buffer, filled) = read(&buffers, b"head body");
        input.add(&buffers, buffer, filled);
        input.consume(&buffers, 5);
        input.shrink(&buffers);
        assert_eq!((input.bytes(), input.buffer.len()), (&b"body"[..], 4));
        assert_eq!(buffers.spare.borrow().len(), 1, "the read buffer is back");
        // The same of a head that came in pieces.
        let mut input = Input::copied(b"head body");
        input.consume(&buffers, 5);
        input.shrink(&buffers);
        assert_eq!((input.bytes(), input.buffer.len()), (&b"body"[..], 4));
        input.consume(&buffers, 4);
        input.shrink(&buffers);
        assert!(input.is_empty() && buffers.spare.borrow().len() == 1);
    }

    #[test]
    fn few_buffers_are_kept() {
        let buffers = ReadBuffers::default();
        let taken: Vec<_> = (0..2 * SPARE_BUFFERS_MAX).map(|_| buffers.take()).collect();
        taken.into_iter().for_each(|buffer| buffers.put(buffer));
        assert_eq!(buffers.spare.borrow().len(), SPARE_BUFFERS_MAX);
    }
}
