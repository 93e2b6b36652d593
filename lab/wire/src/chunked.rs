//! The chunked coding, taken off without copying.

use std::ops::Range;
use thiserror::Error;

/// Longest extensions of one chunk, and longest trailer fields: no message needs more.
const ASIDE_BYTES_MAX: usize = 8 * 1024;

/// Why bytes are not chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChunkError {
    /// Not hex digits, none at all, or more than a `u64` holds.
    #[error("a chunk's size is not a hexadecimal number below 2^64")]
    Size,
    /// A line or a chunk does not end in CR LF.
    #[error("a chunk or its size does not end in CR LF")]
    LineEnd,
    /// A control byte in an extension or trailer.
    #[error("a chunk extension or trailer has a control byte")]
    Control,
    /// An extension or the trailers are longer than 8 KiB.
    #[error("chunk extensions or trailers are longer than 8 KiB")]
    TooLong,
}

/// The result of one call of [`Chunked::feed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fed {
    /// This many bytes were used. Fewer than were given: call again with the rest (unless `done`).
    pub consumed: usize,
    /// Of them, these are the body's. Often empty.
    pub data: Range<usize>,
    /// The body is complete. Bytes after `consumed` belong to the next message.
    pub done: bool,
}

/// Takes the chunked coding off a body, in whatever pieces it arrives.
#[derive(Clone, Debug, Default)]
pub struct Chunked {
    state: State,
    /// Size of the chunk so far, or the rest of it, in bytes.
    left_bytes: u64,
    aside_bytes: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before the first digit of a size.
    #[default]
    SizeBegin,
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the beginning of a line after the last chunk.
    TrailerBegin,
    Trailer,
    TrailerLf,
    EndLf,
    Done,
}

impl Chunked {
    /// Before the first byte of a body.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on with the next bytes of the body, up to the end of one piece of data at most.
    ///
    /// # Errors
    ///
    /// [`ChunkError`]: these bytes are not chunks. Every later call is meaningless.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Fed, ChunkError> {
        for (at, &byte) in bytes.iter().enumerate() {
            match self.state {
                State::Data => return Ok(self.take_data(bytes, at)),
                State::Done => return Ok(Fed { consumed: at, data: at..at, done: true }),
                _ => self.step(byte)?,
            }
        }
        let end = bytes.len();
        Ok(Fed { consumed: end, data: end..end, done: self.state == State::Done })
    }

    fn take_data(&mut self, bytes: &[u8], at: usize) -> Fed {
        let there = bytes.len() - at;
        let taken = usize::try_from(self.left_bytes).map_or(there, |left| left.min(there));
        self.left_bytes -= taken as u64;
        if self.left_bytes == 0 {
            self.state = State::DataCr;
        }
        Fed { consumed: at + taken, data: at..at + taken, done: false }
    }

    fn step(&mut self, byte: u8) -> Result<(), ChunkError> {
        self.state = match (self.state, byte) {
            (State::SizeBegin | State::Size, _) if byte.is_ascii_hexdigit() => {
                self.add_digit(byte)?
            }
            (State::Size, b'\r') | (State::Extension, b'\r') => State::SizeLf,
            (State::Size, b';') => State::Extension,
            (State::SizeBegin | State::Size, _) => return Err(ChunkError::Size),
            (State::Extension, _) => self.pass_aside(byte, State::Extension)?,
            (State::SizeLf, b'\n') => self.begin_chunk(),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::SizeBegin,
            (State::TrailerBegin, b'\r') => State::EndLf,
            (State::Trailer, b'\r') => State::TrailerLf,
            (State::TrailerBegin | State::Trailer, _) => self.pass_aside(byte, State::Trailer)?,
            (State::TrailerLf, b'\n') => State::TrailerBegin,
            (State::EndLf, b'\n') => State::Done,
            _ => return Err(ChunkError::LineEnd),
        };
        Ok(())
    }

    fn add_digit(&mut self, byte: u8) -> Result<State, ChunkError> {
        let digit = char::from(byte).to_digit(16).ok_or(ChunkError::Size)?;
        let size_bytes = self.left_bytes.checked_mul(16).ok_or(ChunkError::Size)?;
        self.left_bytes = size_bytes + u64::from(digit);
        Ok(State::Size)
    }

    fn begin_chunk(&mut self) -> State {
        self.aside_bytes = 0;
        if self.left_bytes == 0 { State::TrailerBegin } else { State::Data }
    }

    fn pass_aside(&mut self, byte: u8, state: State) -> Result<State, ChunkError> {
        self.aside_bytes += 1;
        if self.aside_bytes > ASIDE_BYTES_MAX {
            return Err(ChunkError::TooLong);
        }
        if byte == b'\n' {
            return Err(ChunkError::LineEnd);
        }
        if (byte < b' ' && byte != b'\t') || byte == 0x7f {
            return Err(ChunkError::Control);
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The body, how many bytes it took, and whether it ended.
    fn decode(bytes: &[u8], piece_bytes: usize) -> Result<(Vec<u8>, usize, bool), ChunkError> {
        let (mut decoder, mut body, mut used) = (Chunked::new(), Vec::new(), 0);
        for piece in bytes.chunks(piece_bytes.max(1)) {
            let mut rest = piece;
            while !rest.is_empty() {
                let fed = decoder.feed(rest)?;
                body.extend_from_slice(&rest[fed.data]);
                used += fed.consumed;
                rest = &rest[fed.consumed..];
                if fed.done {
                    return Ok((body, used, true));
                }
            }
        }
        Ok((body, used, false))
    }

    #[test]
    fn chunks_extensions_and_trailers_are_taken_off() {
        let bytes = b"5\r\nhello\r\n00A;name=\"v\"\r\n, 23456789\r\n0\r\nA: b\r\nC: d\r\n\r\nGET";
        for piece_bytes in 1..=bytes.len() {
            let (body, used, done) = decode(bytes, piece_bytes).unwrap();
            assert_eq!((&body[..], used, done), (&b"hello, 23456789"[..], bytes.len() - 3, true));
        }
        assert_eq!(decode(b"0\r\n\r\n", 9).unwrap(), (Vec::new(), 5, true));
        assert_eq!(decode(b"3\r\nab", 9).unwrap(), (b"ab".to_vec(), 5, false));
    }

    #[test]
    fn what_is_ambiguous_is_an_error() {
        let cases: [(&[u8], ChunkError); 11] = [
            (b"\r\n", ChunkError::Size),
            (b"g\r\n", ChunkError::Size),
            (b"+1\r\n", ChunkError::Size),
            (b"0x1\r\n", ChunkError::Size),
            (b"1 \r\n", ChunkError::Size),
            (b"10000000000000000\r\n", ChunkError::Size),
            (b"1\n", ChunkError::Size),
            (b"1\r\nab", ChunkError::LineEnd),
            (b"1;a\n", ChunkError::LineEnd),
            (b"0\r\n\n", ChunkError::LineEnd),
            (b"0\r\nA: \x01\r\n", ChunkError::Control),
        ];
        for (bytes, error) in cases {
            assert_eq!(decode(bytes, 99), Err(error), "{bytes:?}");
        }
        let long = format!("1;{}", "a".repeat(ASIDE_BYTES_MAX + 1));
        assert_eq!(decode(long.as_bytes(), 99), Err(ChunkError::TooLong));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference_and_nothing_panics(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
            noise in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
            piece_bytes in 1_usize..50,
        ) {
            let mut bytes = Vec::new();
            for chunk in &chunks {
                bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
            if let Some((index, byte)) = noise {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            } else {
                prop_assert_eq!(decode(&bytes, piece_bytes).unwrap(), (chunks.concat(), bytes.len(), true));
            }
            prop_assert_eq!(decode(&bytes, piece_bytes), decode(&bytes, usize::MAX));
        }
    }
}
