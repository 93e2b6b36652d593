//! Heads of requests that cannot be read.

use humboldt_http::METHOD_BYTES_MAX;
use humboldt_http::h1::HeadError;

/// A head that cannot be read, as far as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The status that answers it.
    pub status: u16,
    /// The reason in words.
    pub reason: String,
    /// The method, as far as it arrived.
    pub method: Vec<u8>,
    /// The target, if the request line could be read.
    pub target: Option<Vec<u8>>,
}

impl Unreadable {
    /// The head of HTTP/1 with which `input` begins.
    pub(super) fn h1(error: HeadError, input: &[u8]) -> Self {
        let start =
            input.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(input.len());
        let line = input.get(start..).unwrap_or_default();
        let is_token =
            |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        let method_bytes =
            line.iter().take_while(|byte| is_token(byte)).take(METHOD_BYTES_MAX + 1).count();
        let method = line.get(..method_bytes).filter(|method| method.len() <= METHOD_BYTES_MAX);
        let mut words = line.split(|byte| matches!(byte, b' ' | b'\r' | b'\n'));
        Self {
            status: error.status(),
            reason: error.to_string(),
            method: method.unwrap_or_default().to_vec(),
            target: words.nth(1).filter(|_| is_behind_the_line(error)).map(<[u8]>::to_vec),
        }
    }
}

/// Whether the error is behind the words of the request line.
fn is_behind_the_line(error: HeadError) -> bool {
    matches!(
        error,
        HeadError::FieldLine
            | HeadError::Target
            | HeadError::Version
            | HeadError::Host
            | HeadError::ContentLength
            | HeadError::TransferEncoding
            | HeadError::AmbiguousLength
            | HeadError::UnexpectedContent
            | HeadError::Expectation
            | HeadError::UnknownCoding
            | HeadError::TooManyFields
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_of_a_head_is_told() {
        use HeadError as E;
        let long = [b'A'; METHOD_BYTES_MAX + 1];
        for (error, input, status, method, target) in [
            (E::RequestLine, &b"\x16\x03\x01\r\n"[..], 400, "", None),
            (E::RequestLine, b"HELLO\r\n\r\n", 400, "HELLO", None),
            (E::RequestLine, b"G@T / HTTP/1.1\r\n", 400, "G", None),
            (E::TargetTooLong, b"GET http://a/aaaa", 414, "GET", None),
            (E::TooLarge, b"\r\nGET http://a/ HTTP/1.1\r\nX: a", 431, "GET", None),
            (E::FieldLine, b"GET http://a/ HTTP/1.1\r\nX Y: a\r\n", 400, "GET", Some("http://a/")),
            (E::TooManyFields, b"GET /x HTTP/1.1\r\n", 431, "GET", Some("/x")),
            (E::Version, b"GET http://a/ HTTP/2.5\r\n\r\n", 505, "GET", Some("http://a/")),
            (E::Target, b"GET http:// HTTP/1.1\r\n\r\n", 400, "GET", Some("http://")),
            (E::MethodTooLong, &long, 501, "", None),
        ] {
            let wanted = Unreadable {
                status,
                reason: error.to_string(),
                method: method.into(),
                target: target.map(Into::into),
            };
            assert_eq!(Unreadable::h1(error, input), wanted);
        }
    }
}
