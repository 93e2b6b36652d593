//! Heads of requests.

use crate::body::{BodyLength, first};
use crate::head::{HeadError, Headers, Parts, is_token_byte, minor_version, read};
use memchr::memchr;

/// The head of a request, checked. It borrows the bytes that it was read from.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    parts: Parts<'a, FirstLine<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct FirstLine<'a> {
    method: &'a [u8],
    target: &'a [u8],
    minor: u8,
}

/// Reads the head of a request from the beginning of `bytes`. `None`: it is not complete yet; read
/// more and ask again.
///
/// # Errors
///
/// [`HeadError`]: these bytes, whatever follows them, are not the head of a request.
pub fn request_head(bytes: &[u8]) -> Result<Option<RequestHead<'_>>, HeadError> {
    let Some(parts) = read(bytes, first_line)? else { return Ok(None) };
    parts.framing.check(parts.first.minor)?;
    Ok(Some(RequestHead { parts }))
}

impl<'a> RequestHead<'a> {
    /// Bytes of the head, with its last empty line: where the body begins.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.parts.len_bytes
    }

    /// The method, as sent: methods are case-sensitive.
    #[must_use]
    pub fn method(&self) -> &'a [u8] {
        self.parts.first.method
    }

    /// The target, as sent: a path, a whole URL, `host:port` or `*`.
    #[must_use]
    pub fn target(&self) -> &'a [u8] {
        self.parts.first.target
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

    /// Whether the client wants to use the connection again.
    #[must_use]
    pub fn keep_alive(&self) -> bool {
        self.parts.framing.keeps_alive(self.parts.first.minor)
    }

    /// The rule for the end of the body. Never [`BodyLength::UntilClose`].
    #[must_use]
    pub fn body_length(&self) -> BodyLength {
        self.parts.framing.announced().unwrap_or(BodyLength::None)
    }
}

fn first_line(line: &[u8]) -> Result<FirstLine<'_>, HeadError> {
    let method_end = memchr(b' ', line).ok_or(HeadError::FirstLine)?;
    let (method, rest) = (&line[..method_end], &line[method_end + 1..]);
    let target_end = memchr(b' ', rest).ok_or(HeadError::FirstLine)?;
    let (target, version) = (&rest[..target_end], &rest[target_end + 1..]);
    let proper_method = !method.is_empty() && method.iter().all(|byte| is_token_byte(*byte));
    // Visible bytes only; bytes above ASCII come from careless clients and mean the same to
    // everyone.
    let proper_target = !target.is_empty()
        && target.iter().fold(true, |good, &byte| good & (byte > b' ') & (byte != 0x7f));
    if !proper_method || !proper_target {
        return Err(HeadError::FirstLine);
    }
    Ok(FirstLine { method, target, minor: minor_version(version)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error_of(head: &str) -> HeadError {
        request_head(head.as_bytes()).expect_err(head)
    }

    #[test]
    fn a_request_is_taken_apart() {
        let bytes =
            b"GET http://a/b?c HTTP/1.1\r\nHost: a\r\nX:\r\nLab-Request: \t 0f \t\r\n\r\nrest";
        let head = request_head(bytes).unwrap().unwrap();
        assert_eq!(&bytes[head.len_bytes()..], b"rest");
        assert_eq!((head.method(), head.target()), (&b"GET"[..], &b"http://a/b?c"[..]));
        assert_eq!((head.minor_version(), head.keep_alive()), (1, true));
        assert_eq!(head.body_length(), BodyLength::None);
        assert_eq!(head.header("LAB-request"), Some(&b"0f"[..]));
        assert_eq!((head.header("x"), head.header("y")), (Some(&b""[..]), None));
        assert_eq!(head.headers().count(), 3);
    }

    #[test]
    fn framing_and_persistence_follow_version_and_fields() {
        let cases = [
            ("HTTP/1.1\r\nContent-Length: 7", true, BodyLength::Length(7)),
            ("HTTP/1.1\r\nContent-Length: 7\r\ncontent-length:7", true, BodyLength::Length(7)),
            ("HTTP/1.1\r\nTransfer-Encoding: Chunked", true, BodyLength::Chunked),
            ("HTTP/1.1\r\nConnection: te, Close", false, BodyLength::None),
            ("HTTP/1.0\r\nA: b", false, BodyLength::None),
            ("HTTP/1.0\r\nConnection: Keep-Alive", true, BodyLength::None),
        ];
        for (tail, keep_alive, body) in cases {
            let text = format!("POST / {tail}\r\n\r\n");
            let head = request_head(text.as_bytes()).unwrap().unwrap();
            assert_eq!((head.keep_alive(), head.body_length()), (keep_alive, body), "{tail}");
        }
    }

    #[test]
    fn what_is_ambiguous_is_an_error() {
        let cases = [
            ("GET / HTTP/1.1\nHost: a\r\n\r\n", HeadError::LineEnd),
            ("GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", HeadError::LineEnd),
            ("\r\nGET / HTTP/1.1\r\n\r\n", HeadError::FirstLine),
            ("GET  / HTTP/1.1\r\n\r\n", HeadError::FirstLine),
            ("GET / HTTP/1.1 \r\n\r\n", HeadError::Version),
            ("GET /\r\n\r\n", HeadError::FirstLine),
            ("G(T / HTTP/1.1\r\n\r\n", HeadError::FirstLine),
            ("GET /\x01 HTTP/1.1\r\n\r\n", HeadError::FirstLine),
            ("GET / HTTP/2.0\r\n\r\n", HeadError::Version),
            ("GET / http/1.1\r\n\r\n", HeadError::FirstLine),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", HeadError::FieldName),
            ("GET / HTTP/1.1\r\n: a\r\n\r\n", HeadError::FieldName),
            ("GET / HTTP/1.1\r\nHost\r\n\r\n", HeadError::FieldName),
            ("GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", HeadError::Folded),
            ("GET / HTTP/1.1\r\nA: b\x00\r\n\r\n", HeadError::FieldValue),
            (
                "GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                HeadError::ContentLength,
            ),
            ("GET / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n", HeadError::ContentLength),
            ("GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", HeadError::ContentLength),
            ("GET / HTTP/1.1\r\nContent-Length: \r\n\r\n", HeadError::ContentLength),
            (
                "GET / HTTP/1.1\r\nContent-Length: 18446744073709551616\r\n\r\n",
                HeadError::ContentLength,
            ),
            (
                "GET / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
                HeadError::TransferEncoding,
            ),
            (
                "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
                HeadError::TransferEncoding,
            ),
            ("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", HeadError::TransferEncoding),
        ];
        for (head, error) in cases {
            assert_eq!(error_of(head), error, "{head:?}");
        }
    }

    #[test]
    fn a_head_has_a_longest_length() {
        let fixed = b"GET / HTTP/1.1\r\nA: \r\n\r\n".len();
        let of_length =
            |bytes: usize| format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "b".repeat(bytes - fixed));
        let longest = of_length(crate::HEAD_BYTES_MAX);
        assert_eq!(
            request_head(longest.as_bytes()).unwrap().unwrap().len_bytes(),
            crate::HEAD_BYTES_MAX
        );
        assert!(request_head(&longest.as_bytes()[..longest.len() - 1]).unwrap().is_none());
        let longer = of_length(crate::HEAD_BYTES_MAX + 1);
        assert_eq!(error_of(&longer), HeadError::TooLong);
        assert_eq!(error_of(&longer[..crate::HEAD_BYTES_MAX]), HeadError::TooLong);
    }

    /// Bytes that are often nearly a head.
    fn nearly_head() -> impl Strategy<Value = Vec<u8>> {
        let pieces = prop::sample::select(vec![
            &b"GET / HTTP/1.1"[..],
            b"\r\n",
            b"\n",
            b"\r",
            b": ",
            b" ",
            b"Content-Length",
            b"Transfer-Encoding",
            b"chunked",
            b"17",
            b"\x00",
            b"A: b\r\n",
        ]);
        let anything = prop::collection::vec(any::<u8>(), 0..4);
        let piece = prop_oneof![8 => pieces.prop_map(<[u8]>::to_vec), 1 => anything];
        prop::collection::vec(piece, 0..16)
            .prop_map(|pieces| [b"GET / HTTP/1.1\r\n".to_vec(), pieces.concat()].concat())
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference_and_nothing_panics(bytes in nearly_head()) {
            let outcome = |bytes: &[u8]| request_head(bytes).map(|head| head.map(|head| head.len_bytes()));
            let whole = outcome(&bytes);
            for end in 0..bytes.len() {
                let part = outcome(&bytes[..end]);
                let complete_before = matches!(whole, Ok(Some(length)) if length <= end);
                // A part tells the same as the whole, or that it needs more, which it may not if
                // the head is complete.
                prop_assert!(part == whole || (part == Ok(None) && !complete_before), "{end}: {part:?} {whole:?}");
            }
        }
    }
}
