//! Requests whose heads could not be read: their answers, and their names in access.log. The names
//! are Squid's, so that tools for its logs find them.

use std::rc::Rc;

use humboldt_base::counters::Counter;
use humboldt_exchange::Refused;
use humboldt_http::h1::HeadError;
use humboldt_http::{METHOD_BYTES_MAX, Target, Version};
use humboldt_logs::access::Tag;

use crate::core::Core;
use crate::errors::ErrorPage;
use crate::outcome::Outcome;
use crate::reply::local;
use crate::request::{ConnFacts, Request};
use crate::transaction::Transaction;

/// The URL of a head that ended early.
const UNFINISHED: &[u8] = b"error:transaction-end-before-headers";

/// The URL of a request line that cannot be read.
const INVALID: &[u8] = b"error:invalid-request";

/// The URL of a head that is too long.
const TOO_LARGE: &[u8] = b"error:request-too-large";

/// A request in place of one that could not be read. Access rules may be asked about it, since logs
/// have conditions.
pub(crate) fn request(core: &Core, facts: &Rc<ConnFacts>, refused: &Refused) -> Request {
    let mut request = Request::new(facts, &core.snapshot());
    request.received = core.now();
    match refused {
        Refused::Head(error, input) => {
            let unread = Unread::new(*error, input);
            let target = unread.target_for_the_log(page_for(*error).status());
            request.head.set_line(&unread.method, target, Target::Origin, Version::Http11);
        }
        Refused::Unfinished(_) | Refused::TimedOut => {
            request.head.set_line(b"", UNFINISHED, Target::Origin, Version::Http11);
        }
    }
    request
}

/// Answers the request, if the client may still read the answer.
pub(crate) async fn answer(transaction: &mut Transaction<'_>, refused: Refused) -> Outcome {
    let (page, detail) = match refused {
        Refused::Head(error, _) => (page_for(error), error.to_string()),
        Refused::TimedOut => (ErrorPage::RequestTimeout, String::new()),
        Refused::Unfinished(lost) => {
            return Outcome::local(Tag::None, 0).without_answer(lost.into());
        }
    };
    transaction.core.count(Counter::ClientErrors, 1);
    // The page does not repeat the unreadable bytes.
    let local = local::error_page(transaction.core, b"", page, &detail, false);
    let outcome = Outcome::local(Tag::None, page.status());
    local::send(transaction, local, outcome).await
}

/// The page that answers a refused head.
fn page_for(error: HeadError) -> ErrorPage {
    match error.status() {
        414 => ErrorPage::UriTooLong,
        417 => ErrorPage::ExpectationFailed,
        431 => ErrorPage::HeadTooLarge,
        501 => ErrorPage::UnsupportedMethod,
        505 => ErrorPage::UnsupportedVersion,
        _ => ErrorPage::InvalidRequest,
    }
}

/// The facts about a refused head that the log needs.
struct Unread {
    /// The method, as far as it arrived.
    method: Vec<u8>,
    /// The target, if the request line could be read.
    target: Option<Vec<u8>>,
}

impl Unread {
    /// Takes the facts for the log from `input`.
    fn new(error: HeadError, input: &[u8]) -> Self {
        let start =
            input.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(input.len());
        let line = input.get(start..).unwrap_or_default();
        let is_token =
            |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        let method_bytes =
            line.iter().take_while(|byte| is_token(byte)).take(METHOD_BYTES_MAX + 1).count();
        let method = line.get(..method_bytes).filter(|method| method.len() <= METHOD_BYTES_MAX);
        let has_line = matches!(
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
        );
        let words = || line.split(|byte| matches!(byte, b' ' | b'\r' | b'\n'));
        let target = if has_line { words().nth(1).map(<[u8]>::to_vec) } else { None };
        Self { method: method.unwrap_or_default().to_vec(), target }
    }

    /// The text in place of its URL, if it is answered with `status`.
    fn target_for_the_log(&self, status: u16) -> &[u8] {
        match &self.target {
            Some(target) => target,
            None if matches!(status, 414 | 431) => TOO_LARGE,
            None => INVALID,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(error: HeadError, input: &[u8], status: u16) -> String {
        let refused = Unread::new(error, input);
        let (method, target) = (&refused.method, refused.target_for_the_log(status));
        format!("{} {}", String::from_utf8_lossy(method), String::from_utf8_lossy(target))
    }

    #[test]
    fn what_was_read_of_a_head_is_told_as_squid_tells_it() {
        use HeadError as E;
        for (error, input, status, wanted) in [
            (E::RequestLine, &b"\x16\x03\x01\r\n"[..], 400, " error:invalid-request"),
            (E::RequestLine, b"HELLO\r\n\r\n", 400, "HELLO error:invalid-request"),
            (E::RequestLine, b"G@T / HTTP/1.1\r\n", 400, "G error:invalid-request"),
            (E::TargetTooLong, b"GET http://a/aaaa", 414, "GET error:request-too-large"),
            (
                E::TooLarge,
                b"\r\nGET http://a/ HTTP/1.1\r\nX: a",
                431,
                "GET error:request-too-large",
            ),
            (E::FieldLine, b"GET http://a/ HTTP/1.1\r\nX Y: a\r\n\r\n", 400, "GET http://a/"),
            (E::TooManyFields, b"GET /x HTTP/1.1\r\n", 431, "GET /x"),
            (E::Version, b"GET http://a/ HTTP/2.5\r\n\r\n", 505, "GET http://a/"),
            (E::Target, b"GET http:// HTTP/1.1\r\n\r\n", 400, "GET http://"),
            (E::MethodTooLong, &[b'A'; 99], 400, " error:invalid-request"),
        ] {
            assert_eq!(logged(error, input, status), wanted);
        }
    }
}
