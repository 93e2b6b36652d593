//! Selects the part of a complete answer that a request gets (RFC 9110 13 and 14).

use humboldt_http::conditional;
use humboldt_http::range::{self, ByteRange, Resolved};
use humboldt_http::{FieldName, Method};
use humboldt_logs::access::Tag;
use humboldt_store::StoredHead;

use crate::request::Request;

/// The part of a stored answer that a request gets, and the status.
#[derive(Copy, Clone)]
pub(crate) struct Selection {
    /// The status.
    pub status: u16,
    /// The bytes of a 206.
    pub range: Option<ByteRange>,
    /// First byte of the body that is sent.
    pub from: u64,
    /// The end of the body that is sent: one past its last byte.
    pub to: u64,
    /// Result code.
    pub tag: Tag,
}

/// Applies conditions and ranges to a complete answer with `body_bytes` and `date`. `tag` is the
/// result code for the whole answer.
pub(crate) fn select(
    request: &Request,
    head: &StoredHead,
    date: i64,
    body_bytes: u64,
    tag: Tag,
) -> Selection {
    let whole = Selection { status: head.status, range: None, from: 0, to: body_bytes, tag };
    let fields = &request.head.fields;
    let is_head = request.head.method == Method::Head;
    let bodiless = if is_head { Selection { to: 0, ..whole } } else { whole };
    if head.status != 200 {
        return bodiless;
    }
    let validators = head.validators();
    if conditional::evaluate(request.head.method, fields, validators)
        == conditional::Outcome::NotModified
    {
        let by_tag = fields.has(FieldName::IfNoneMatch);
        let tag = match tag {
            Tag::MemHit | Tag::Hit if by_tag => Tag::InmHit,
            Tag::MemHit | Tag::Hit => Tag::ImsHit,
            other => other,
        };
        return Selection { status: 304, to: 0, tag, ..bodiless };
    }
    if is_head || !fields.has(FieldName::Range) {
        return bodiless;
    }
    // For several ranges, the whole content is an allowed answer (RFC 9110 14.2). Callers that can
    // make a multipart answer have checked for several ranges before.
    match requested(request, head, date, body_bytes) {
        Resolved::Satisfiable(ranges) => match ranges.as_slice() {
            [one] => Selection {
                status: 206,
                range: Some(*one),
                from: one.first,
                to: one.last + 1,
                ..bodiless
            },
            _ => bodiless,
        },
        Resolved::Unsatisfiable => Selection { status: 416, to: 0, ..bodiless },
        Resolved::Whole => bodiless,
    }
}

/// The ranges of a body of `body_bytes` that the request asks for.
fn requested(request: &Request, head: &StoredHead, date: i64, body_bytes: u64) -> Resolved {
    let fields = &request.head.fields;
    let set = fields.get(FieldName::Range).and_then(range::parse_range);
    let set = set.filter(|_| conditional::range_applies(fields, head.validators(), date));
    set.map_or(Resolved::Whole, |set| range::resolve(&set, body_bytes))
}

/// The part that a request wants of an answer to GET with this head, `date` and `body_bytes`.
/// `None` if its method or conditions want something else.
pub(crate) fn wanted(
    request: &Request,
    head: &StoredHead,
    date: i64,
    body_bytes: u64,
) -> Option<Resolved> {
    let (fields, validators) = (&request.head.fields, head.validators());
    let is_plain = request.head.method == Method::Get
        && conditional::evaluate(Method::Get, fields, validators) == conditional::Outcome::Proceed;
    is_plain.then(|| requested(request, head, date, body_bytes))
}

/// The ranges that a request wants of a complete 200 answer of `body_bytes`. `None` if it gets the
/// whole answer, or something else.
pub(crate) fn wanted_ranges(
    request: &Request,
    head: &StoredHead,
    date: i64,
    body_bytes: u64,
) -> Option<Vec<ByteRange>> {
    if !request.head.fields.has(FieldName::Range) || head.status != 200 {
        return None;
    }
    match wanted(request, head, date, body_bytes)? {
        Resolved::Satisfiable(ranges) => Some(ranges),
        Resolved::Unsatisfiable | Resolved::Whole => None,
    }
}

/// Whether a request may ask for several ranges.
pub(crate) fn has_several_ranges(request: &Request) -> bool {
    let fields = &request.head.fields;
    fields.has(FieldName::Range)
        && fields.get(FieldName::Range).is_some_and(|value| value.contains(&b','))
}

/// The ranges that a request wants of a complete answer, if several; `None` for all other requests.
pub(crate) fn several_ranges(
    request: &Request,
    head: &StoredHead,
    date: i64,
    body_bytes: u64,
) -> Option<Vec<ByteRange>> {
    if !has_several_ranges(request) {
        return None;
    }
    wanted_ranges(request, head, date, body_bytes).filter(|ranges| ranges.len() > 1)
}
