//! The head of an answer for one client.

use humboldt_exchange::{BodyLength, ClientExchange, ReplyHead, ReplySink, reason};
use humboldt_freshness::{self as freshness, Times};
use humboldt_http::range::ByteRange;
use humboldt_http::{FieldName, FieldSink, Fields};
use humboldt_store::StoredHead;

use crate::config::cache_status::Usage;
use crate::request::Request;
use crate::rules::header::{self, Ruled};
use crate::rules::{delays, marks, reply};

/// An answer, stored or in flight, in the form that one client gets.
#[derive(Copy, Clone)]
pub(crate) struct Reply<'a> {
    /// The request that it answers.
    pub request: &'a Request,
    /// The head as its server sent it.
    pub head: &'a StoredHead,
    /// The status that is sent: its own, 206, 304 or 416.
    pub status: u16,
    /// The values of Content-Range, for a 206 or a 416.
    pub range: Option<(Option<ByteRange>, u64)>,
    /// How the cache was used.
    pub usage: Usage,
    /// Fields for this client alone.
    pub own: Option<&'a Fields>,
}

/// Begins an answer, with the rules about header fields and marks applied. `usage` says how the
/// cache was used.
pub(crate) fn send(
    client: &mut ClientExchange,
    request: &Request,
    head: &impl ReplyHead,
    usage: Usage,
    length: BodyLength,
) {
    marks::apply(client, request, usage);
    delays::apply(client, request, usage.into(), head);
    match header::concern_answers(request) {
        false => client.send_head(head, length),
        true => client.send_head(&Ruled { head, request, length }, length),
    }
}

/// Passes an interim answer on, unless the rules object.
pub(crate) fn send_interim(client: &mut ClientExchange, request: &Request, head: &StoredHead) {
    if request.snapshot().reply_rules.is_some()
        && reply::check_interim(request, &head.to_response_head()).is_err()
    {
        return;
    }
    client.send_interim(&Ruled { head, request, length: BodyLength::None });
}

/// Age of the answer in seconds.
pub(crate) fn age_s(request: &Request, times: &Times) -> u32 {
    freshness::age(times, request.judged_at_s(times))
}

/// The same of an answer that has come, or been confirmed, for this very request: perhaps long
/// after the request, if its server was slow.
pub(crate) fn age_on_arrival_s(request: &Request, times: &Times) -> u32 {
    freshness::age(times, request.received.secs().max(times.response_time))
}

/// Seconds of freshness that are left.
pub(crate) fn ttl_s(request: &Request, times: &Times) -> i64 {
    freshness::ttl(times, request.judged_at_s(times))
}

/// The usage of an answer that the cache has served whole.
pub(crate) fn from_cache(request: &Request, times: &Times) -> Usage {
    Usage::Hit { age_s: age_s(request, times), ttl_s: ttl_s(request, times) }
}

impl ReplyHead for Reply<'_> {
    fn status(&self) -> u16 {
        self.status
    }

    fn write<S: ReplySink>(&self, sink: &mut S) {
        if self.status == self.head.status {
            sink.stored(self.head);
        } else {
            self.write_changed(sink);
        }
        if let Some((range, complete_bytes)) = self.range {
            write_range(sink, range, complete_bytes);
        }
        if self.status == 401 && self.has_support() {
            sink.field(b"Connection", b"Proxy-Support");
        }
        self.request.snapshot().names.cache_status.write(sink, self.usage);
        for (_, name, value) in self.own.into_iter().flat_map(Fields::iter) {
            sink.field(name, value);
        }
    }
}

/// Writes Content-Range without an allocation.
fn write_range(sink: &mut impl FieldSink, range: Option<ByteRange>, complete_bytes: u64) {
    let (mut first, mut last, mut complete) =
        (itoa::Buffer::new(), itoa::Buffer::new(), itoa::Buffer::new());
    let complete = complete.format(complete_bytes).as_bytes();
    match range {
        Some(part) => {
            let (first, last) = (first.format(part.first), last.format(part.last));
            let parts = [b"bytes ", first.as_bytes(), b"-", last.as_bytes(), b"/", complete];
            sink.parts(b"Content-Range", &parts);
        }
        None => sink.parts(b"Content-Range", &[b"bytes */", complete]),
    }
}

impl Reply<'_> {
    /// Whether the next hop is told that this proxy ties connections together (RFC 4559 6).
    fn has_support(&self) -> bool {
        self.head.fields().any(|(name, _)| name.eq_ignore_ascii_case(b"Proxy-Support"))
    }

    /// Writes another status than the stored one, with the stored fields that belong to it.
    fn write_changed<S: ReplySink>(&self, sink: &mut S) {
        sink.status(self.status, reason(self.status).as_bytes());
        let stays: fn(&[u8]) -> bool = match self.status {
            206 => |_| true,
            304 => stays_in_304,
            _ => |name| name == b"Date",
        };
        for (name, value) in self.head.fields().filter(|(name, _)| stays(name)) {
            sink.field(name, value);
        }
    }
}

/// Whether a field is in a 304 (RFC 9110 15.4.5): none that describes the body, which a 304 lacks.
fn stays_in_304(name: &[u8]) -> bool {
    use FieldName as F;
    !matches!(
        F::from_bytes(name),
        F::ContentType | F::ContentEncoding | F::ContentRange | F::ContentLength
    )
}
