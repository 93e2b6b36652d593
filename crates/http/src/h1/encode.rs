//! Bodies to bytes: the chunked coding, and the bookkeeping that keeps a body and its announced
//! length equal.

use super::error::EncodeError;
use super::framing::Framing;
use super::write::write_field;
use crate::fields::Fields;

/// Writes one body. For each piece of data: [`BodyEncoder::chunk_prefix`], its bytes, the data, its
/// suffix; at the end [`BodyEncoder::finish`].
#[derive(Debug)]
pub struct BodyEncoder {
    state: State,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum State {
    Length { remaining: u64 },
    Chunked,
    UntilClose,
    Finished,
}

impl BodyEncoder {
    /// An encoder for a body with this framing.
    #[must_use]
    pub fn new(framing: Framing) -> BodyEncoder {
        let state = match framing {
            Framing::None => State::Length { remaining: 0 },
            Framing::Length(remaining) => State::Length { remaining },
            Framing::Chunked => State::Chunked,
            Framing::UntilClose => State::UntilClose,
        };
        BodyEncoder { state }
    }

    /// Accounts for `len` bytes of data and returns their framing. Empty data needs none (an empty
    /// chunk would end the body).
    ///
    /// # Errors
    /// More data than the length announced, or data after the end.
    #[inline]
    pub fn chunk_prefix(&mut self, len: usize) -> Result<ChunkPrefix, EncodeError> {
        match &mut self.state {
            State::Length { remaining } => {
                *remaining = remaining.checked_sub(len as u64).ok_or(EncodeError::TooLong)?;
                Ok(ChunkPrefix::none())
            }
            State::Chunked if len > 0 => Ok(ChunkPrefix::new(len)),
            State::Finished if len > 0 => Err(EncodeError::Finished),
            State::Chunked | State::UntilClose | State::Finished => Ok(ChunkPrefix::none()),
        }
    }

    /// Appends one piece of data, framed.
    ///
    /// # Errors
    /// As [`BodyEncoder::chunk_prefix`]; nothing is appended then.
    pub fn encode(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let prefix = self.chunk_prefix(data.len())?;
        out.extend_from_slice(prefix.as_bytes());
        out.extend_from_slice(data);
        out.extend_from_slice(prefix.suffix());
        Ok(())
    }

    /// Ends the body: appends the last chunk and the trailers, if the framing has such. Trailers
    /// are left out of other framings, as RFC 9110 6.5.1 allows.
    ///
    /// # Errors
    /// The announced length was not reached; the connection must then be closed so that the
    /// recipient notices.
    pub fn finish(
        &mut self,
        trailers: Option<&Fields>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        match self.state {
            State::Length { remaining: 1.. } => return Err(EncodeError::TooShort),
            State::Chunked => {
                out.extend_from_slice(b"0\r\n");
                for (_, name, value) in trailers.into_iter().flat_map(Fields::iter) {
                    write_field(out, name, value);
                }
                out.extend_from_slice(b"\r\n");
            }
            State::Length { remaining: 0 } | State::UntilClose | State::Finished => {}
        }
        self.state = State::Finished;
        Ok(())
    }

    /// How many bytes of data may still come; `None` where only their sender knows.
    #[must_use]
    pub fn room(&self) -> Option<u64> {
        match self.state {
            State::Length { remaining } => Some(remaining),
            State::Finished => Some(0),
            State::Chunked | State::UntilClose => None,
        }
    }

    /// Whether [`BodyEncoder::finish`] has succeeded.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.state == State::Finished
    }
}

/// The framing of one piece of data: for the chunked coding the size line before and CRLF after,
/// else nothing.
#[derive(Copy, Clone, Debug)]
pub struct ChunkPrefix {
    /// Up to 16 hexadecimal digits and CRLF, right-aligned.
    bytes: [u8; ChunkPrefix::BYTES],
    start: u8,
}

impl ChunkPrefix {
    const BYTES: usize = 18;

    fn none() -> ChunkPrefix {
        ChunkPrefix { bytes: [0; ChunkPrefix::BYTES], start: ChunkPrefix::BYTES as u8 }
    }

    fn new(len: usize) -> ChunkPrefix {
        let mut prefix = ChunkPrefix::none();
        let mut rest = len;
        let mut start = ChunkPrefix::BYTES;
        for (at, place) in prefix.bytes.iter_mut().enumerate().rev() {
            *place = match at {
                17 => b'\n',
                16 => b'\r',
                _ if rest == 0 => break,
                _ => {
                    let digit = (rest & 0xf) as u8;
                    rest >>= 4;
                    if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }
                }
            };
            start = at;
        }
        prefix.start = start as u8;
        prefix
    }

    /// The bytes before the data.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(usize::from(self.start)..).unwrap_or_default()
    }

    /// The bytes after the data.
    #[inline]
    #[must_use]
    pub fn suffix(&self) -> &'static [u8] {
        if usize::from(self.start) < ChunkPrefix::BYTES { b"\r\n" } else { b"" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::FieldName;

    #[test]
    fn chunks_and_trailers() {
        let mut out = Vec::new();
        let mut encoder = BodyEncoder::new(Framing::Chunked);
        encoder.encode(b"hello", &mut out).unwrap();
        encoder.encode(b"", &mut out).unwrap();
        encoder.encode(&[b'x'; 0x1a], &mut out).unwrap();
        let mut trailers = Fields::new();
        trailers.push(FieldName::Etag, b"\"1\"");
        encoder.finish(Some(&trailers), &mut out).unwrap();
        let want = format!("5\r\nhello\r\n1a\r\n{}\r\n0\r\nETag: \"1\"\r\n\r\n", "x".repeat(0x1a));
        assert_eq!(out, want.as_bytes());
        assert_eq!(encoder.encode(b"x", &mut out), Err(EncodeError::Finished));
    }

    #[test]
    fn the_largest_size_fits() {
        assert_eq!(
            ChunkPrefix::new(usize::MAX).as_bytes(),
            format!("{:x}\r\n", usize::MAX).as_bytes()
        );
    }

    #[test]
    fn a_length_cannot_be_missed() {
        let mut out = Vec::new();
        let mut encoder = BodyEncoder::new(Framing::Length(5));
        encoder.encode(b"hel", &mut out).unwrap();
        assert_eq!(encoder.finish(None, &mut out), Err(EncodeError::TooShort));
        assert_eq!(encoder.encode(b"loo", &mut out), Err(EncodeError::TooLong));
        encoder.encode(b"lo", &mut out).unwrap();
        assert_eq!(encoder.encode(b"!", &mut out), Err(EncodeError::TooLong));
        encoder.finish(None, &mut out).unwrap();
        assert!(encoder.is_finished());
        assert_eq!(out, b"hello");
    }
}
