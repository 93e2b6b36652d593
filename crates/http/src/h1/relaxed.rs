//! Heads of answers with line ends and folds that RFC 9112 lets a recipient take (2.2, 5.2), made
//! regular before they are parsed. Nothing is taken that would leave open where the head or the
//! body ends.

use memchr::memchr;

use super::error::HeadError;
use crate::name::FieldName;
use crate::syntax::{is_value_byte, trim_ows};

/// The head at the start of `input` with CRLF at the end of each line and folds replaced by a
/// space, and how many bytes of `input` it took; `None` when more input is needed.
///
/// # Errors
/// Errors other than line ends and folds. If the status line ends with CRLF, a bare LF ends other
/// lines, but may stand neither before nor behind a field that frames the body, nor make the empty
/// line: an LF that was smuggled into a value must not produce either. Fields that frame the body
/// cannot be folded, and a fold is not empty.
pub(super) fn regular(input: &[u8]) -> Result<Option<(Vec<u8>, usize)>, HeadError> {
    let mut out = Vec::with_capacity(input.len() + 64);
    let mut at = 0;
    let mut previous = Previous::None;
    // The ending of the status line.
    let mut with_cr = true;
    // Whether the line before has the same ending.
    let mut begins_regular = true;
    loop {
        let rest = input.get(at..).unwrap_or_default();
        let Some(end) = memchr(b'\n', rest) else { return Ok(None) };
        at += end + 1;
        let line = rest.get(..end).unwrap_or_default();
        let (line, has_cr) = line.strip_suffix(b"\r").map_or((line, false), |line| (line, true));
        if !line.iter().copied().all(is_value_byte) {
            return Err(HeadError::FieldLine);
        }
        let ends_regular = has_cr || !with_cr;
        let is_regular = ends_regular && begins_regular;
        begins_regular = ends_regular;
        match (line, previous) {
            (_, Previous::None) => {
                (with_cr, begins_regular) = (has_cr, true);
                previous = Previous::StatusLine;
            }
            ([], _) if is_regular => {
                out.extend_from_slice(b"\r\n");
                return Ok(Some((out, at)));
            }
            ([], _) => return Err(HeadError::FieldLine),
            ([b' ' | b'\t', ..], Previous::Field) if !trim_ows(line).is_empty() => {
                out.truncate(trim_ows_end(&out).len());
                out.push(b' ');
                out.extend_from_slice(trim_ows(line));
                out.extend_from_slice(b"\r\n");
                continue;
            }
            ([b' ' | b'\t', ..], _) => return Err(HeadError::FieldLine),
            _ => {
                let colon = memchr(b':', line).ok_or(HeadError::FieldLine)?;
                let name = FieldName::from_bytes(trim_ows(line.get(..colon).unwrap_or_default()));
                let frames = matches!(name, FieldName::ContentLength | FieldName::TransferEncoding);
                if frames && !is_regular {
                    return Err(HeadError::FieldLine);
                }
                previous = if frames { Previous::Framing } else { Previous::Field };
            }
        }
        out.extend_from_slice(line);
        out.extend_from_slice(b"\r\n");
    }
}

/// A line that may be continued.
#[derive(Copy, Clone)]
enum Previous {
    None,
    StatusLine,
    Field,
    /// A field that decides where the body ends.
    Framing,
}

/// `text` without its line end and the white space before that.
fn trim_ows_end(mut text: &[u8]) -> &[u8] {
    while let [rest @ .., b' ' | b'\t' | b'\r' | b'\n'] = text {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mended(input: &str) -> Result<Option<(String, usize)>, HeadError> {
        let found = regular(input.as_bytes())?;
        Ok(found.map(|(bytes, used)| (String::from_utf8(bytes).unwrap(), used)))
    }

    #[test]
    fn line_ends_and_folds_become_regular() {
        for (input, wanted) in [
            ("HTTP/1.1 200 OK\nA: b\n\n", "HTTP/1.1 200 OK\r\nA: b\r\n\r\n"),
            ("HTTP/1.1 200 OK\nA: b\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\r\n\r\n"),
            ("HTTP/1.1 200 OK\r\nA: b\nB: c\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b\r\nB: c\r\n\r\n"),
            (
                "HTTP/1.1 200 OK\r\nA: b \t\r\n\t c\r\n d\r\n\r\n",
                "HTTP/1.1 200 OK\r\nA: b c d\r\n\r\n",
            ),
            ("HTTP/1.1 200 OK\r\nA:\r\n c\r\nB:\r\n\r\n", "HTTP/1.1 200 OK\r\nA: c\r\nB:\r\n\r\n"),
            (
                "HTTP/1.1 200 OK\nContent-Length: 5\n\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            ),
        ] {
            assert_eq!(
                mended(&format!("{input}body")),
                Ok(Some((wanted.to_owned(), input.len()))),
                "{input:?}"
            );
            assert_eq!(mended(&input[..input.len() - 1]), Ok(None), "{input:?}");
        }
    }

    #[test]
    fn what_leaves_the_framing_open_is_refused() {
        for input in [
            // The end of the head, and of fields that frame, in another way than the status line.
            "HTTP/1.1 200 OK\r\nA: b\n\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n\n",
            "HTTP/1.1 200 OK\r\nA: b\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\nA: b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\n\r\n",
            // Folds of them, of nothing, and with nothing in them.
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\n A: b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n \r\n\r\n",
            // Any other error stays an error.
            "HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA\r\n\r\n",
        ] {
            assert_eq!(mended(input), Err(HeadError::FieldLine), "{input:?}");
        }
    }
}
