//! One chunk-size line (RFC 9112 7.1), byte by byte, with extensions checked and forgotten.

use super::error::BodyError;
use crate::syntax::{is_qdtext, is_token_byte, is_value_byte};

/// Longest chunk-size line in bytes, extensions and CRLF included. Signatures in extensions, as
/// some object stores use, take about 90.
pub(super) const CHUNK_LINE_BYTES_MAX: u32 = 1024;

/// Most hexadecimal digits of a chunk size after leading zeros: sizes stay below 2^60.
const CHUNK_SIZE_DIGITS_MAX: u32 = 15;

/// Reads one chunk-size line.
#[derive(Copy, Clone, Debug)]
pub(super) struct ChunkLine {
    part: Part,
    size: u64,
    /// Digits after leading zeros.
    digits: u32,
    line_bytes: u32,
}

/// The position of the next byte in the line.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Part {
    /// Before the first digit.
    Start,
    /// After at least one digit.
    Size,
    /// After white space that only a semicolon may follow.
    BeforeSemicolon,
    /// After a semicolon and optional white space.
    BeforeName,
    Name,
    /// After white space behind a name: `=` or a semicolon.
    AfterName,
    /// After `=` and optional white space.
    BeforeValue,
    Token,
    Quoted,
    QuotedPair,
    /// After a closing quote.
    AfterQuoted,
    /// After CR.
    LineFeed,
}

impl ChunkLine {
    pub(super) fn new() -> ChunkLine {
        ChunkLine { part: Part::Start, size: 0, digits: 0, line_bytes: 0 }
    }

    /// Bytes of the line read so far.
    pub(super) fn line_bytes(&self) -> u32 {
        self.line_bytes
    }

    /// Takes one byte; the chunk's size once the line is complete.
    #[inline]
    pub(super) fn step(&mut self, byte: u8) -> Result<Option<u64>, BodyError> {
        self.line_bytes += 1;
        if self.line_bytes > CHUNK_LINE_BYTES_MAX {
            return Err(BodyError::ChunkOverhead);
        }
        self.part = match (self.part, byte) {
            (Part::Start | Part::Size, _) if byte.is_ascii_hexdigit() => {
                self.add_digit(byte)?;
                Part::Size
            }
            (Part::Size, b'\r') => Part::LineFeed,
            (Part::Size, b';') => Part::BeforeName,
            (Part::Size, b' ' | b'\t') => Part::BeforeSemicolon,
            (Part::LineFeed, b'\n') => return Ok(Some(self.size)),
            (Part::Start | Part::Size | Part::LineFeed, _) => return Err(BodyError::ChunkSize),
            (part, _) => extension(part, byte).ok_or(BodyError::ChunkExtension)?,
        };
        Ok(None)
    }

    fn add_digit(&mut self, byte: u8) -> Result<(), BodyError> {
        let digit = char::from(byte).to_digit(16).ok_or(BodyError::ChunkSize)?;
        self.digits += u32::from(self.digits > 0 || digit > 0);
        if self.digits > CHUNK_SIZE_DIGITS_MAX {
            return Err(BodyError::ChunkSize);
        }
        self.size = self.size << 4 | u64::from(digit);
        Ok(())
    }
}

/// The part after `byte` within the extensions:
/// `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )`. `None` when the grammar does
/// not allow it.
fn extension(part: Part, byte: u8) -> Option<Part> {
    let is_space = matches!(byte, b' ' | b'\t');
    match part {
        Part::BeforeSemicolon if is_space => Some(Part::BeforeSemicolon),
        Part::BeforeSemicolon => (byte == b';').then_some(Part::BeforeName),
        Part::BeforeName if is_space => Some(Part::BeforeName),
        Part::BeforeName | Part::Name if is_token_byte(byte) => Some(Part::Name),
        Part::Name | Part::AfterName if byte == b'=' => Some(Part::BeforeValue),
        Part::Name if is_space => Some(Part::AfterName),
        Part::AfterName if is_space => Some(Part::AfterName),
        Part::AfterName => (byte == b';').then_some(Part::BeforeName),
        Part::BeforeValue if is_space => Some(Part::BeforeValue),
        Part::BeforeValue if byte == b'"' => Some(Part::Quoted),
        Part::BeforeValue | Part::Token if is_token_byte(byte) => Some(Part::Token),
        Part::Name | Part::Token | Part::AfterQuoted if byte == b'\r' => Some(Part::LineFeed),
        Part::Name | Part::Token | Part::AfterQuoted if byte == b';' => Some(Part::BeforeName),
        Part::Token | Part::AfterQuoted if is_space => Some(Part::BeforeSemicolon),
        Part::Quoted if byte == b'"' => Some(Part::AfterQuoted),
        Part::Quoted if byte == b'\\' => Some(Part::QuotedPair),
        Part::Quoted if is_qdtext(byte) => Some(Part::Quoted),
        Part::QuotedPair if is_value_byte(byte) => Some(Part::Quoted),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size a complete line gives; `Ok(None)` when it does not end.
    fn read(line: &[u8]) -> Result<Option<u64>, BodyError> {
        let mut reader = ChunkLine::new();
        for (at, &byte) in line.iter().enumerate() {
            if let Some(size) = reader.step(byte)? {
                assert_eq!(at + 1, line.len(), "the line ended early");
                return Ok(Some(size));
            }
        }
        Ok(None)
    }

    #[test]
    fn accepts_the_grammar() {
        let zeros = [&[b'0'; 40][..], b"5\r\n"].concat();
        let lines: [(&[u8], u64); 9] = [
            (b"0\r\n", 0),
            (b"00aF\r\n", 0xaf),
            (b"fffffffffffffff\r\n", 0x0fff_ffff_ffff_ffff),
            (&zeros, 5),
            (b"5;a\r\n", 5),
            (b"5 ;a\r\n", 5),
            (b"5;a=b;c=\"d \\\" e\"\r\n", 5),
            (b"5\t; a = \"x\" ; b=c\r\n", 5),
            (b"5;a ; b\r\n", 5),
        ];
        for (line, size) in lines {
            assert_eq!(read(line), Ok(Some(size)), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn refuses_everything_else() {
        let lines: [&[u8]; 27] = [
            b"\r\n",
            b"0x5\r\n",
            b"+5\r\n",
            b"-5\r\n",
            b" 5\r\n",
            b"5 \r\n",
            b"5g\r\n",
            b"0_5\r\n",
            b"\"5\"\r\n",
            b"5\0\r\n",
            b"5\n",
            b"5\r\r\n",
            b"5\rX",
            b";a\r\n",
            b"1000000000000000\r\n",
            b"5;\r\n",
            b"5;;a\r\n",
            b"5;a=\r\n",
            b"5;a=b \r\n",
            b"5;a=\"b\r\n",
            b"5;a=\x01\r\n",
            b"5;a\n",
            b"5;a=b\rc\r\n",
            b"5;a=\"\n",
            b"5;a=\"b\"c\r\n",
            b"5;a b\r\n",
            b"5;=b\r\n",
        ];
        for line in lines {
            assert!(read(line).is_err(), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn the_line_is_bounded() {
        let long = [b"5;".as_slice(), &[b'a'; 2000]].concat();
        assert_eq!(read(&long), Err(BodyError::ChunkOverhead));
    }
}
