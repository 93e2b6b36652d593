//! Lines of a head: the common part of requests and answers.
//!
//! A head is read line by line, each line as soon as it is complete, so that an error shows as
//! early as it can, and so that it makes no difference in which pieces the bytes arrive.

use crate::body::Framing;
use memchr::memchr;
use thiserror::Error;

/// A head is at most this long, with its last empty line. Squid and nginx allow 64 KiB and 32 KiB.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Why bytes are not a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HeadError {
    /// No end within [`HEAD_BYTES_MAX`].
    #[error("the head is longer than 64 KiB")]
    TooLong,
    /// A line ends in LF alone, or has CR in its midst.
    #[error("a line of the head does not end in CR LF, or has a CR in its midst")]
    LineEnd,
    /// The first line is not method, target and version, or version, status and reason.
    #[error("the first line is not that of HTTP/1")]
    FirstLine,
    /// The version is neither HTTP/1.0 nor HTTP/1.1.
    #[error("the version is neither HTTP/1.0 nor HTTP/1.1")]
    Version,
    /// A line without colon, an empty name, a space in or after the name.
    #[error("a header field has no proper name before its colon")]
    FieldName,
    /// A line that begins with a space continues the line before; that has been abolished.
    #[error("a header field is folded over several lines")]
    Folded,
    /// A control byte in a value.
    #[error("a header field's value has a control byte")]
    FieldValue,
    /// Not a number, or two different ones.
    #[error("Content-Length is not one number")]
    ContentLength,
    /// Anything but `chunked` alone, or together with Content-Length, or in HTTP/1.0.
    #[error(
        "Transfer-Encoding is not `chunked` alone, or has Content-Length beside it, or is in HTTP/1.0"
    )]
    TransferEncoding,
}

/// The fields of a head, in order: name and value, the value without spaces around it.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    /// Lines that were checked already, each with its CR LF.
    lines: &'a [u8],
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let end = memchr(b'\n', self.lines)?;
        let (line, rest) = (self.lines.get(..end.checked_sub(1)?)?, self.lines.get(end + 1..)?);
        self.lines = rest;
        let colon = memchr(b':', line)?;
        Some((&line[..colon], trim(&line[colon + 1..])))
    }
}

/// A head's first line and fields, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a, First> {
    pub(crate) first: First,
    pub(crate) headers: Headers<'a>,
    pub(crate) framing: Framing,
    pub(crate) len_bytes: usize,
}

/// Reads a head whose first line `read_first` understands. `None`: more bytes are needed.
pub(crate) fn read<'a, First>(
    bytes: &'a [u8],
    read_first: impl FnOnce(&'a [u8]) -> Result<First, HeadError>,
) -> Result<Option<Parts<'a, First>>, HeadError> {
    let window = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    let unfinished =
        || if bytes.len() >= HEAD_BYTES_MAX { Err(HeadError::TooLong) } else { Ok(None) };
    let Some((line, begin)) = next_line(window, 0)? else { return unfinished() };
    let first = read_first(line)?;
    let mut framing = Framing::default();
    let mut at = begin;
    loop {
        let Some((line, next)) = next_line(window, at)? else { return unfinished() };
        if line.is_empty() {
            let headers = Headers { lines: &window[begin..at] };
            return Ok(Some(Parts { first, headers, framing, len_bytes: next }));
        }
        let (name, value) = field(line)?;
        framing.note(name, value)?;
        at = next;
    }
}

/// The line that begins at `at`, without its CR LF, and where the next one begins.
#[inline]
fn next_line(bytes: &[u8], at: usize) -> Result<Option<(&[u8], usize)>, HeadError> {
    let rest = &bytes[at..];
    let Some(end) = memchr(b'\n', rest) else { return Ok(None) };
    match rest[..end].split_last() {
        Some((b'\r', line)) => Ok(Some((line, at + end + 1))),
        _ => Err(HeadError::LineEnd),
    }
}

/// A field's name and value, both checked.
#[inline]
fn field(line: &[u8]) -> Result<(&[u8], &[u8]), HeadError> {
    let Some(colon) = line.iter().position(|byte| !is_token_byte(*byte)) else {
        return Err(HeadError::FieldName);
    };
    if line[colon] != b':' || colon == 0 {
        let folded = colon == 0 && matches!(line[0], b' ' | b'\t');
        return Err(if folded { HeadError::Folded } else { HeadError::FieldName });
    }
    let value = &line[colon + 1..];
    check_text(value)?;
    Ok((&line[..colon], trim(value)))
}

/// Text has no control bytes but tabs.
#[inline]
pub(crate) fn check_text(text: &[u8]) -> Result<(), HeadError> {
    // Without a branch per byte, so that the compiler looks at many bytes at once.
    let bad = text
        .iter()
        .fold(false, |bad, &byte| bad | ((byte < b' ') & (byte != b'\t')) | (byte == 0x7f));
    if !bad {
        return Ok(());
    }
    Err(if text.contains(&b'\r') { HeadError::LineEnd } else { HeadError::FieldValue })
}

/// Whether a comma-separated list names a token, in any case.
pub(crate) fn is_token_in_list(list: &[u8], token: &[u8]) -> bool {
    list.split(|byte| *byte == b',').any(|item| trim(item).eq_ignore_ascii_case(token))
}

pub(crate) fn is_token_byte(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let others = b"!#$%&'*+-.^_`|~";
    let mut index = 0;
    while index < others.len() {
        table[others[index] as usize] = true;
        index += 1;
    }
    table
};

fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// The minor version of `HTTP/1.0` and `HTTP/1.1`.
pub(crate) fn minor_version(text: &[u8]) -> Result<u8, HeadError> {
    match text {
        b"HTTP/1.1" => Ok(1),
        b"HTTP/1.0" => Ok(0),
        _ if text.starts_with(b"HTTP/") => Err(HeadError::Version),
        _ => Err(HeadError::FirstLine),
    }
}
