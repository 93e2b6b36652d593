//! Bodies from bytes.

use std::ops::Range;

use super::chunk::ChunkLine;
use super::error::BodyError;
use super::framing::Framing;
use crate::fields::Fields;
use crate::name::FieldName;
use crate::syntax::{is_token, is_value_byte, trim_ows};

/// Longest trailer section in bytes.
pub const TRAILER_BYTES_MAX: usize = 16 * 1024;

/// Most trailer fields.
pub const TRAILER_FIELDS_MAX: usize = 64;

/// Most bytes of chunk framing in a body, beyond [`CHUNK_ALLOWANCE_BYTES`] a chunk and twice its
/// data. Without this bound a sender could keep a connection busy with extensions and no content.
const CHUNK_OVERHEAD_BYTES_MAX: u64 = 16 * 1024;

/// Framing bytes of a chunk that never count as overhead.
const CHUNK_ALLOWANCE_BYTES: u64 = 16;

/// Takes the body of one message apart; holds no data itself.
#[derive(Debug)]
pub struct BodyDecoder {
    state: State,
    /// Length of the body as far as it has been announced.
    announced_bytes: u64,
    /// Framing bytes out of proportion so far.
    overhead_bytes: u64,
    /// The trailer line being read.
    line: Vec<u8>,
    trailer_bytes: usize,
    trailer_count: usize,
    trailers: Option<Fields>,
}

#[derive(Copy, Clone, Debug)]
enum State {
    Length {
        remaining: u64,
    },
    UntilClose,
    ChunkSize(ChunkLine),
    ChunkData {
        remaining: u64,
    },
    /// Before the CR after chunk data.
    ChunkCr,
    /// Before the LF after chunk data.
    ChunkLf,
    Trailer,
    Done,
    Failed(BodyError),
}

/// Whether a body has ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum DecodeState {
    /// Call again with the rest of the input, or with more.
    More,
    /// The body is complete; bytes after the consumed ones belong to the next message.
    Done,
}

/// The outcome of one step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decoded {
    /// Bytes of the input used up, framing and data.
    pub consumed: usize,
    /// Position of the body's data in the input; possibly empty, always before `consumed`.
    pub data: Range<usize>,
    /// Whether the body has ended.
    pub state: DecodeState,
}

impl BodyDecoder {
    /// A decoder for a body with this framing.
    #[must_use]
    pub fn new(framing: Framing) -> BodyDecoder {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(remaining) => State::Length { remaining },
            Framing::Chunked => State::ChunkSize(ChunkLine::new()),
            Framing::UntilClose => State::UntilClose,
        };
        let announced_bytes = if let Framing::Length(length) = framing { length } else { 0 };
        BodyDecoder {
            state,
            announced_bytes,
            overhead_bytes: 0,
            line: Vec::new(),
            trailer_bytes: 0,
            trailer_count: 0,
            trailers: None,
        }
    }

    /// Reads framing and at most one run of data from the start of `input`. Unless the body is
    /// done, some of a non-empty input is consumed; call again with the rest until it is used up or
    /// the body is done.
    ///
    /// # Errors
    /// Malformed chunks or trailers. The message cannot be completed and the connection must be
    /// closed; each further call fails alike.
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, BodyError> {
        let result = self.advance(input);
        if let Err(error) = result {
            self.state = State::Failed(error);
        }
        result
    }

    /// The trailers of a chunked body that is done, or `None` when it had none. Fields about
    /// framing, routing, credentials, caching and the content's form are left out, as RFC 9110
    /// 6.5.1 demands.
    pub fn trailers(&mut self) -> Option<Fields> {
        if self.is_done() { self.trailers.take() } else { None }
    }

    /// The meaning of the connection's end here: the end of a body that lasts until then, else
    /// truncation.
    ///
    /// # Errors
    /// [`BodyError::Truncated`] when more was to come, or the error that stopped decoding.
    pub fn on_eof(&self) -> Result<(), BodyError> {
        match self.state {
            State::Done | State::UntilClose => Ok(()),
            State::Failed(error) => Err(error),
            _ => Err(BodyError::Truncated),
        }
    }

    /// Least length of the body, known before its data: its length, or the sum of the chunk sizes
    /// read so far. 0 for a body that lasts until the connection closes.
    #[must_use]
    pub fn announced_bytes(&self) -> u64 {
        self.announced_bytes
    }

    /// Whether the body is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    fn advance(&mut self, input: &[u8]) -> Result<Decoded, BodyError> {
        let mut at = 0;
        loop {
            match self.state {
                State::Done => return Ok(step(at, at..at, DecodeState::Done)),
                State::Failed(error) => return Err(error),
                _ if at == input.len() => return Ok(step(at, at..at, DecodeState::More)),
                State::UntilClose => {
                    return Ok(step(input.len(), at..input.len(), DecodeState::More));
                }
                State::Length { remaining } => {
                    let (end, remaining) = take(at, input.len(), remaining);
                    self.state =
                        if remaining == 0 { State::Done } else { State::Length { remaining } };
                    return Ok(step(end, at..end, self.progress()));
                }
                State::ChunkData { remaining } => {
                    let (end, remaining) = take(at, input.len(), remaining);
                    self.state = if remaining == 0 {
                        State::ChunkCr
                    } else {
                        State::ChunkData { remaining }
                    };
                    return Ok(step(end, at..end, DecodeState::More));
                }
                State::ChunkSize(line) => at = self.read_size(line, input, at)?,
                State::ChunkCr => at = self.expect(input, at, b'\r', State::ChunkLf)?,
                State::ChunkLf => {
                    at = self.expect(input, at, b'\n', State::ChunkSize(ChunkLine::new()))?
                }
                State::Trailer => at = self.read_trailer(input, at)?,
            }
        }
    }

    fn progress(&self) -> DecodeState {
        if self.is_done() { DecodeState::Done } else { DecodeState::More }
    }

    /// Reads a chunk-size line as far as the input goes; returns the next position.
    fn read_size(
        &mut self,
        mut line: ChunkLine,
        input: &[u8],
        mut at: usize,
    ) -> Result<usize, BodyError> {
        while let Some(&byte) = input.get(at) {
            at += 1;
            if let Some(size) = line.step(byte)? {
                self.account(u64::from(line.line_bytes()), size)?;
                self.announced_bytes = self.announced_bytes.saturating_add(size);
                self.state =
                    if size == 0 { State::Trailer } else { State::ChunkData { remaining: size } };
                return Ok(at);
            }
        }
        self.state = State::ChunkSize(line);
        Ok(at)
    }

    /// Adds a chunk's framing to the overhead, minus the part that its data allows.
    fn account(&mut self, line_bytes: u64, size: u64) -> Result<(), BodyError> {
        let allowed = CHUNK_ALLOWANCE_BYTES.saturating_add(size.saturating_mul(2));
        self.overhead_bytes = (self.overhead_bytes + line_bytes).saturating_sub(allowed);
        if self.overhead_bytes > CHUNK_OVERHEAD_BYTES_MAX {
            return Err(BodyError::ChunkOverhead);
        }
        Ok(())
    }

    fn expect(
        &mut self,
        input: &[u8],
        at: usize,
        byte: u8,
        then: State,
    ) -> Result<usize, BodyError> {
        if input.get(at) != Some(&byte) {
            return Err(BodyError::ChunkEnd);
        }
        self.state = then;
        Ok(at + 1)
    }

    /// Reads the trailer section as far as the input goes; returns the next position.
    fn read_trailer(&mut self, input: &[u8], mut at: usize) -> Result<usize, BodyError> {
        while let Some(&byte) = input.get(at) {
            at += 1;
            self.trailer_bytes += 1;
            if self.trailer_bytes > TRAILER_BYTES_MAX {
                return Err(BodyError::TrailerTooLarge);
            }
            let after_cr = self.line.last() == Some(&b'\r');
            if after_cr != (byte == b'\n') {
                return Err(BodyError::Trailer);
            }
            if !after_cr {
                self.line.push(byte);
            } else if self.line.len() == 1 {
                self.line = Vec::new();
                self.state = State::Done;
                return Ok(at);
            } else {
                self.add_trailer()?;
                self.line.clear();
            }
        }
        Ok(at)
    }

    /// Checks the line just read, which ends with CR, and keeps its field if trailers may carry it.
    fn add_trailer(&mut self) -> Result<(), BodyError> {
        let colon = self.line.iter().position(|&byte| byte == b':').ok_or(BodyError::Trailer)?;
        let (name, rest) = self.line.split_at_checked(colon).ok_or(BodyError::Trailer)?;
        let [_, value @ .., _] = rest else { return Err(BodyError::Trailer) };
        if !is_token(name) || !value.iter().copied().all(is_value_byte) {
            return Err(BodyError::Trailer);
        }
        self.trailer_count += 1;
        if self.trailer_count > TRAILER_FIELDS_MAX {
            return Err(BodyError::TrailerTooLarge);
        }
        // Only a name without a meaning to any hop, or one allowed by its own definition, may come
        // late.
        if matches!(FieldName::from_bytes(name), FieldName::Other | FieldName::Etag) {
            self.trailers.get_or_insert_default().push_named(name, trim_ows(value));
        }
        Ok(())
    }
}

/// Shorthand for one outcome.
fn step(consumed: usize, data: Range<usize>, state: DecodeState) -> Decoded {
    Decoded { consumed, data, state }
}

/// The end of a run of at most `remaining` bytes from `at` in an input of `len` bytes, and the
/// remaining length.
fn take(at: usize, len: usize, remaining: u64) -> (usize, u64) {
    let available = len - at;
    let taken = usize::try_from(remaining).map_or(available, |remaining| remaining.min(available));
    (at + taken, remaining - taken as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes the whole input: data, bytes left over, decoder.
    fn run(framing: Framing, input: &[u8]) -> Result<(Vec<u8>, usize, BodyDecoder), BodyError> {
        let mut decoder = BodyDecoder::new(framing);
        let mut data = Vec::new();
        let mut at = 0;
        loop {
            let step = decoder.decode(&input[at..])?;
            data.extend_from_slice(&input[at..][step.data.clone()]);
            at += step.consumed;
            if step.state == DecodeState::Done || at == input.len() {
                return Ok((data, input.len() - at, decoder));
            }
        }
    }

    #[test]
    fn a_length_ends_exactly() {
        let (data, rest, decoder) = run(Framing::Length(5), b"helloGET /").unwrap();
        assert_eq!((data.as_slice(), rest, decoder.is_done()), (&b"hello"[..], 5, true));
        let (data, _, decoder) = run(Framing::Length(5), b"hel").unwrap();
        assert_eq!(data.as_slice(), b"hel");
        assert_eq!(decoder.on_eof(), Err(BodyError::Truncated));
        let (data, rest, _) = run(Framing::None, b"next").unwrap();
        assert_eq!((data.len(), rest), (0, 4));
    }

    #[test]
    fn until_close_ends_with_the_connection() {
        let (data, _, decoder) = run(Framing::UntilClose, b"all of it").unwrap();
        assert_eq!(data, b"all of it");
        assert!(!decoder.is_done());
        assert_eq!(decoder.on_eof(), Ok(()));
    }

    #[test]
    fn chunks_with_trailers() {
        let input =
            b"5\r\nhello\r\n1;x=\"y\"\r\n!\r\n0\r\nX-Sum:  7 \r\nHost: evil\r\nETag: \"a\"\r\n\r\nGET";
        let (data, rest, mut decoder) = run(Framing::Chunked, input).unwrap();
        assert_eq!((data.as_slice(), rest), (&b"hello!"[..], 3));
        let trailers = decoder.trailers().unwrap();
        assert_eq!(trailers.get_by_name(b"x-sum"), Some(&b"7"[..]));
        assert!(trailers.has(FieldName::Etag) && !trailers.has(FieldName::Host));
        assert!(run(Framing::Chunked, b"0\r\n\r\n").unwrap().2.trailers().is_none());
    }

    #[test]
    fn malformed_chunks_and_trailers_are_refused() {
        let bodies: [(&[u8], BodyError); 16] = [
            (b"5\r\nhello0\r\n\r\n", BodyError::ChunkEnd),
            (b"5\r\nhelloXX0\r\n\r\n", BodyError::ChunkEnd),
            (b"5\r\nhello\n0\r\n\r\n", BodyError::ChunkEnd),
            (b"3\r\nhello\r\n0\r\n\r\n", BodyError::ChunkEnd),
            (b"5\r\nhello\r\n\r\n0\r\n\r\n", BodyError::ChunkSize),
            (b"Z\r\n", BodyError::ChunkSize),
            (b"10000000000000005\r\nhello", BodyError::ChunkSize),
            (b"5;a=\"\r\nhello", BodyError::ChunkExtension),
            (b"0\r\nX: 1\n\r\n", BodyError::Trailer),
            (b"0\r\n\n", BodyError::Trailer),
            (b"0\r\n\rX", BodyError::Trailer),
            (b"0\r\nX\r\n\r\n", BodyError::Trailer),
            (b"0\r\nX : 1\r\n\r\n", BodyError::Trailer),
            (b"0\r\nX: 1\r\n 2\r\n\r\n", BodyError::Trailer),
            (b"0\r\nX: \0\r\n\r\n", BodyError::Trailer),
            (b"0\r\n: x\r\n\r\n", BodyError::Trailer),
        ];
        for (body, error) in bodies {
            assert_eq!(
                run(Framing::Chunked, body).map(|_| ()),
                Err(error),
                "{}",
                body.escape_ascii()
            );
        }
    }

    #[test]
    fn a_body_is_announced_before_it_comes() {
        assert_eq!(BodyDecoder::new(Framing::Length(7)).announced_bytes(), 7);
        let mut decoder = BodyDecoder::new(Framing::Chunked);
        for (input, announced_bytes) in
            [("5\r", 0), ("\n", 5), ("hello\r\nf", 5), ("ff\r\n", 0x1004)]
        {
            let mut rest = input.as_bytes();
            while !rest.is_empty() {
                rest = &rest[decoder.decode(rest).unwrap().consumed..];
            }
            assert_eq!(decoder.announced_bytes(), announced_bytes, "{input:?}");
        }
        let (_, _, decoder) = run(Framing::Chunked, &b"fffffffffffffff\r\nx"[..]).unwrap();
        assert_eq!(decoder.announced_bytes(), (1 << 60) - 1);
    }

    #[test]
    fn a_failure_is_final() {
        let mut decoder = BodyDecoder::new(Framing::Chunked);
        assert_eq!(decoder.decode(b"x"), Err(BodyError::ChunkSize));
        assert_eq!(decoder.decode(b"0\r\n\r\n"), Err(BodyError::ChunkSize));
        assert_eq!(decoder.on_eof(), Err(BodyError::ChunkSize));
        assert!(!decoder.is_done());
    }

    #[test]
    fn trailers_and_overhead_are_bounded() {
        let many = [b"0\r\n".as_slice(), &b"a: b\r\n".repeat(TRAILER_FIELDS_MAX + 1)].concat();
        assert_eq!(run(Framing::Chunked, &many).map(|_| ()), Err(BodyError::TrailerTooLarge));
        let long = [b"0\r\na: ".as_slice(), &vec![b'x'; TRAILER_BYTES_MAX]].concat();
        assert_eq!(run(Framing::Chunked, &long).map(|_| ()), Err(BodyError::TrailerTooLarge));
        let padded = format!("1;a={}\r\nx\r\n", "y".repeat(500)).repeat(40);
        assert_eq!(
            run(Framing::Chunked, padded.as_bytes()).map(|_| ()),
            Err(BodyError::ChunkOverhead)
        );
        let tiny = b"1\r\nx\r\n".repeat(100_000);
        assert_eq!(run(Framing::Chunked, &tiny).unwrap().0.len(), 100_000);
    }
}
