//! How the body of a message is delimited (RFC 9112 6).

use super::error::HeadError;
use crate::fields::Fields;
use crate::head::{RequestHead, ResponseHead};
use crate::method::{Method, Version};
use crate::name::FieldName;
use crate::syntax::{is_token, parse_digits};

/// Largest `Content-Length`: the largest signed 64-bit number, because other programs count with
/// those.
const CONTENT_LENGTH_MAX: u64 = i64::MAX as u64;

/// The rule for the end of a body.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Framing {
    /// There is no body.
    None,
    /// Exactly this many bytes.
    Length(u64),
    /// The chunked coding.
    Chunked,
    /// Everything until the connection closes; responses only.
    UntilClose,
}

/// The framing of a request. [`parse_request`](super::parse_request) has checked it already, so a
/// parsed head never fails here.
///
/// # Errors
/// As the refusals of RFC 9112 6.3: both length fields, `Transfer-Encoding` in HTTP/1.0 or other
/// than a single `chunked`, `Content-Length` that is repeated, a list, or not a number.
#[inline]
pub fn request_framing(head: &RequestHead) -> Result<Framing, HeadError> {
    let fields = &head.fields;
    if fields.has(FieldName::TransferEncoding) {
        transfer_encoding(head.version, fields)?;
        return Ok(Framing::Chunked);
    }
    match fields.get(FieldName::ContentLength) {
        None => Ok(Framing::None),
        Some(_) if fields.is_repeated(FieldName::ContentLength) => Err(HeadError::ContentLength),
        Some(value) => content_length(value).map(Framing::Length),
    }
}

/// The framing of a response to a request with `request_method` (RFC 9112 6.3). A successful answer
/// to CONNECT has no body: a tunnel follows.
///
/// # Errors
/// As for requests, except that `Content-Length` may be repeated with identical values, which RFC
/// 9110 8.6 lets a recipient read as one. The writer must then send a single one.
pub fn response_framing(
    head: &ResponseHead,
    request_method: &Method,
) -> Result<Framing, HeadError> {
    let fields = &head.fields;
    let bodiless = matches!(head.status, 100..=199 | 204 | 304)
        || *request_method == Method::Head
        || (*request_method == Method::Connect && matches!(head.status, 200..=299));
    if bodiless {
        return Ok(Framing::None);
    }
    if fields.has(FieldName::TransferEncoding) {
        transfer_encoding(head.version, fields)?;
        return Ok(Framing::Chunked);
    }
    let mut lines = fields.get_all(FieldName::ContentLength);
    let Some(first) = lines.next() else { return Ok(Framing::UntilClose) };
    if lines.any(|line| line != first) {
        return Err(HeadError::ContentLength);
    }
    match first.iter().position(|&byte| byte == b',') {
        None => content_length(first).map(Framing::Length),
        Some(_) => identical_elements(first).map(Framing::Length),
    }
}

/// Whether an answer that [`response_framing`] refuses for its two lengths is framed by its only
/// coding, `chunked`, which overrides Content-Length (RFC 9112 6.3). The caller must not use the
/// connection again, and must not pass the length on.
#[must_use]
pub fn chunked_overrides_length(head: &ResponseHead) -> bool {
    let fields = &head.fields;
    let is_chunked = |value: &[u8]| value.eq_ignore_ascii_case(b"chunked");
    head.version == Version::Http11
        && !fields.is_repeated(FieldName::TransferEncoding)
        && fields.get(FieldName::TransferEncoding).is_some_and(is_chunked)
        && fields.has(FieldName::ContentLength)
        && fields.get_all(FieldName::ContentLength).all(|value| content_length(value).is_ok())
}

/// The one value of a list like `5, 5`.
fn identical_elements(value: &[u8]) -> Result<u64, HeadError> {
    let mut elements = value.split(|&byte| byte == b',').map(crate::syntax::trim_ows);
    let first = elements.next().unwrap_or_default();
    if elements.any(|element| element != first) {
        return Err(HeadError::ContentLength);
    }
    content_length(first)
}

/// One `Content-Length` value: digits only, leading zeros allowed (RFC 9110 8.6).
fn content_length(value: &[u8]) -> Result<u64, HeadError> {
    parse_digits(value).filter(|&bytes| bytes <= CONTENT_LENGTH_MAX).ok_or(HeadError::ContentLength)
}

/// Accepts exactly one `Transfer-Encoding: chunked` without `Content-Length` in HTTP/1.1. Anything
/// else is classed: 501 for a coding before the final `chunked`, 400 for the rest.
fn transfer_encoding(version: Version, fields: &Fields) -> Result<(), HeadError> {
    if version == Version::Http10 || fields.has(FieldName::ContentLength) {
        return Err(HeadError::AmbiguousLength);
    }
    let value = fields.get(FieldName::TransferEncoding).unwrap_or_default();
    if value.eq_ignore_ascii_case(b"chunked") && !fields.is_repeated(FieldName::TransferEncoding) {
        return Ok(());
    }
    let mut chunked = 0;
    let mut well_formed = true;
    let mut last_is_chunked = false;
    for coding in fields.list(FieldName::TransferEncoding) {
        last_is_chunked = coding.eq_ignore_ascii_case(b"chunked");
        chunked += usize::from(last_is_chunked);
        well_formed &= is_token(coding.split(|&byte| byte == b';').next().unwrap_or_default());
    }
    let only_chunked = fields.list(FieldName::TransferEncoding).count() == chunked;
    if well_formed && last_is_chunked && chunked == 1 && !only_chunked {
        Err(HeadError::UnknownCoding)
    } else {
        Err(HeadError::TransferEncoding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(version: Version, status: u16, lines: &[(&str, &str)]) -> ResponseHead {
        let mut head = ResponseHead { version, status, ..ResponseHead::default() };
        for (name, value) in lines {
            head.fields.push_named(name.as_bytes(), value.as_bytes());
        }
        head
    }

    fn framing(status: u16, method: Method, lines: &[(&str, &str)]) -> Result<Framing, HeadError> {
        response_framing(&response(Version::Http11, status, lines), &method)
    }

    #[test]
    fn responses_without_body() {
        let length = [("Content-Length", "9")];
        for (status, method) in [
            (204, Method::Get),
            (304, Method::Get),
            (103, Method::Get),
            (200, Method::Head),
            (200, Method::Connect),
        ] {
            assert_eq!(framing(status, method, &length), Ok(Framing::None));
        }
        assert_eq!(framing(407, Method::Connect, &length), Ok(Framing::Length(9)));
    }

    #[test]
    fn responses_with_body() {
        assert_eq!(framing(200, Method::Get, &[]), Ok(Framing::UntilClose));
        assert_eq!(
            framing(200, Method::Get, &[("Transfer-Encoding", "Chunked")]),
            Ok(Framing::Chunked)
        );
        let twice = [("Content-Length", "5"), ("Content-Length", "5")];
        assert_eq!(framing(200, Method::Get, &twice), Ok(Framing::Length(5)));
        assert_eq!(
            framing(200, Method::Get, &[("Content-Length", "5, 5")]),
            Ok(Framing::Length(5))
        );
    }

    #[test]
    fn responses_refused() {
        let ambiguous = Err(HeadError::AmbiguousLength);
        let both = [("Transfer-Encoding", "chunked"), ("Content-Length", "5")];
        assert_eq!(framing(200, Method::Get, &both), ambiguous);
        assert!(chunked_overrides_length(&response(Version::Http11, 200, &both)));
        for lines in [
            [("Transfer-Encoding", "gzip, chunked"), ("Content-Length", "5")],
            [("Transfer-Encoding", "chunked"), ("Content-Length", "x")],
            [("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "chunked")],
            [("Transfer-Encoding", "chunked"), ("X-Other", "5")],
        ] {
            assert!(
                !chunked_overrides_length(&response(Version::Http11, 200, &lines)),
                "{lines:?}"
            );
        }
        assert!(!chunked_overrides_length(&response(Version::Http10, 200, &both)));
        let old = response(Version::Http10, 200, &[("Transfer-Encoding", "chunked")]);
        assert_eq!(response_framing(&old, &Method::Get), ambiguous);
        for value in ["5, 6", "5,", "-1", "9223372036854775808", ""] {
            assert_eq!(
                framing(200, Method::Get, &[("Content-Length", value)]),
                Err(HeadError::ContentLength)
            );
        }
        let differ = [("Content-Length", "5"), ("Content-Length", "05")];
        assert_eq!(framing(200, Method::Get, &differ), Err(HeadError::ContentLength));
        let unknown = [("Transfer-Encoding", "gzip, chunked")];
        assert_eq!(framing(200, Method::Get, &unknown), Err(HeadError::UnknownCoding));
    }
}
