//! Heads of answers.

use crate::body::{BodyLength, first};
use crate::head::{HeadError, Headers, Parts, check_text, minor_version, read};

/// The head of an answer, checked. It borrows the bytes that it was read from.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    parts: Parts<'a, FirstLine>,
}

#[derive(Clone, Copy, Debug)]
struct FirstLine {
    minor: u8,
    status: u16,
}

/// Reads the head of an answer from the beginning of `bytes`. `None`: it is not complete yet; read
/// more and ask again.
///
/// # Errors
///
/// [`HeadError`]: these bytes, whatever follows them, are not the head of an answer.
pub fn response_head(bytes: &[u8]) -> Result<Option<ResponseHead<'_>>, HeadError> {
    let Some(parts) = read(bytes, first_line)? else { return Ok(None) };
    parts.framing.check(parts.first.minor)?;
    Ok(Some(ResponseHead { parts }))
}

impl<'a> ResponseHead<'a> {
    /// Bytes of the head, with its last empty line: where the body begins.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.parts.len_bytes
    }

    /// The status, 100 to 599. After a 1xx (but 101) another head follows.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.parts.first.status
    }

    /// 0 or 1, as in HTTP/1.0 and HTTP/1.1.
    #[must_use]
    pub fn minor_version(&self) -> u8 {
        self.parts.first.minor
    }

    /// The first value of a field, by name in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        first(self.parts.headers, name.as_bytes())
    }

    /// All fields in order.
    #[must_use]
    pub fn headers(&self) -> Headers<'a> {
        self.parts.headers
    }

    /// Whether the server lets the connection be used again. A body until close rules that out as
    /// well.
    #[must_use]
    pub fn keep_alive(&self) -> bool {
        self.parts.framing.keeps_alive(self.parts.first.minor)
    }

    /// The rule for the end of the body, in an answer to a request of this method: HEAD and CONNECT
    /// have their own rules.
    #[must_use]
    pub fn body_length(&self, method: &[u8]) -> BodyLength {
        let status = self.status();
        let tunnel = method == b"CONNECT" && (200..300).contains(&status);
        if tunnel || method == b"HEAD" || status < 200 || status == 204 || status == 304 {
            return BodyLength::None;
        }
        self.parts.framing.announced().unwrap_or(BodyLength::UntilClose)
    }

    /// The length that the head announces, which an answer to HEAD and a 304 have without a body.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.parts.framing.content_length
    }
}

fn first_line(line: &[u8]) -> Result<FirstLine, HeadError> {
    let (version, rest) = line.split_at_checked(8).ok_or(HeadError::FirstLine)?;
    let minor = minor_version(version)?;
    let [b' ', a @ b'1'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9', reason @ ..] = rest else {
        return Err(HeadError::FirstLine);
    };
    // A reason may be empty, and some leave out the space before it: that means the same to
    // everyone.
    if !matches!(reason, [] | [b' ', ..]) {
        return Err(HeadError::FirstLine);
    }
    check_text(reason)?;
    let digit = |byte: &u8| u16::from(byte - b'0');
    Ok(FirstLine { minor, status: digit(a) * 100 + digit(b) * 10 + digit(c) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> ResponseHead<'_> {
        response_head(text.as_bytes()).expect(text).expect(text)
    }

    #[test]
    fn an_answer_is_taken_apart() {
        let head = parsed("HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nAge: 7\r\n\r\n");
        assert_eq!((head.status(), head.minor_version(), head.keep_alive()), (206, 1, true));
        assert_eq!((head.header("age"), head.content_length()), (Some(&b"7"[..]), Some(5)));
        assert_eq!((head.headers().count(), head.len_bytes()), (2, 59));
        for first in ["HTTP/1.1 200", "HTTP/1.0 200 ", "HTTP/1.1 200 caf\u{e9} ok"] {
            assert_eq!(parsed(&format!("{first}\r\n\r\n")).status(), 200);
        }
    }

    #[test]
    fn the_bodys_end_depends_on_method_status_and_fields() {
        let length = "Content-Length: 5\r\n";
        let cases = [
            ("200 OK", length, "GET", BodyLength::Length(5)),
            ("200 OK", "Transfer-Encoding: chunked\r\n", "GET", BodyLength::Chunked),
            ("200 OK", "", "GET", BodyLength::UntilClose),
            ("200 OK", length, "HEAD", BodyLength::None),
            ("200 OK", "", "CONNECT", BodyLength::None),
            ("403 No", length, "CONNECT", BodyLength::Length(5)),
            ("304 Not Modified", length, "GET", BodyLength::None),
            ("204 No Content", "", "GET", BodyLength::None),
            ("100 Continue", "", "POST", BodyLength::None),
        ];
        for (status, fields, method, body) in cases {
            let text = format!("HTTP/1.1 {status}\r\n{fields}\r\n");
            assert_eq!(
                parsed(&text).body_length(method.as_bytes()),
                body,
                "{status} {method} {fields}"
            );
        }
    }

    #[test]
    fn what_is_ambiguous_is_an_error() {
        let cases = [
            ("HTTP/1.1 20 OK", HeadError::FirstLine),
            ("HTTP/1.1 2000 OK", HeadError::FirstLine),
            ("HTTP/1.1 600 OK", HeadError::FirstLine),
            ("HTTP/1.1  200 OK", HeadError::FirstLine),
            ("HTTP/2.0 200 OK", HeadError::Version),
            ("ICY 200 OK", HeadError::FirstLine),
            ("HTTP/1.1 200 \x07", HeadError::FieldValue),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6", HeadError::ContentLength),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
                HeadError::TransferEncoding,
            ),
            ("HTTP/1.1 200 OK\r\nA b: c", HeadError::FieldName),
        ];
        for (text, error) in cases {
            assert_eq!(
                response_head(format!("{text}\r\n\r\n").as_bytes()).expect_err(text),
                error,
                "{text}"
            );
        }
        assert!(response_head(b"HTTP/1.1 200 OK\r\n").unwrap().is_none());
    }
}
