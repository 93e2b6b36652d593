//! Requests whose heads could not be read: their answers, and their names in access.log. The names
//! are Squid's, so that tools for its logs find them.

use std::rc::Rc;

use humboldt_base::counters::Counter;
use humboldt_exchange::{Refused, Unreadable};
use humboldt_http::{Target, Version};
use humboldt_logs::access::Tag;

use crate::core::Core;
use crate::errors::ErrorPage;
use crate::outcome::Outcome;
use crate::reply::local::{self, About};
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
    request.number = core.next_number();
    request.take_client_notes();
    match refused {
        Refused::Head(unread) => {
            let target = url_for_the_log(unread);
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
        Refused::Head(unread) => (page_for(unread.status), unread.reason),
        Refused::TimedOut => (ErrorPage::RequestTimeout, String::new()),
        Refused::Unfinished(lost) => {
            return Outcome::local(Tag::None, 0).without_answer(lost.into());
        }
    };
    transaction.core.count(Counter::ClientErrors, 1);
    // The page does not repeat the unreadable bytes.
    let about = About::new(b"", &detail);
    let local = local::error_page(transaction.core, transaction.request, page, &about);
    let outcome = Outcome::local(Tag::None, page.status());
    local::send(transaction, local, outcome).await
}

/// The page that answers a refused head.
fn page_for(status: u16) -> ErrorPage {
    match status {
        414 => ErrorPage::UriTooLong,
        417 => ErrorPage::ExpectationFailed,
        431 => ErrorPage::HeadTooLarge,
        501 => ErrorPage::UnsupportedMethod,
        505 => ErrorPage::UnsupportedVersion,
        _ => ErrorPage::InvalidRequest,
    }
}

/// The text in place of its URL.
fn url_for_the_log(unread: &Unreadable) -> &[u8] {
    match &unread.target {
        Some(target) => target,
        None if matches!(unread.status, 414 | 431) => TOO_LARGE,
        None => INVALID,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_in_the_log_is_what_was_read_or_the_error_as_squid_names_it() {
        for (status, target, wanted) in [
            (400, None, INVALID),
            (501, None, INVALID),
            (414, None, TOO_LARGE),
            (431, None, TOO_LARGE),
            (431, Some("/x"), b"/x"),
            (505, Some("http://a/"), b"http://a/"),
        ] {
            let target = target.map(|target: &str| target.into());
            let unread =
                Unreadable { status, reason: String::new(), method: b"GET".to_vec(), target };
            assert_eq!(url_for_the_log(&unread), wanted);
        }
    }
}
