//! Heads of answers in the form that is stored and passed on.

use std::borrow::Cow;

use humboldt_http::{FieldName, Fields, HopByHop, ResponseHead};

use crate::config::snapshot::Snapshot;

/// `vary_ignore_expire`: the head without an Expires that says "now" next to a Vary. Old servers
/// sent it to stop HTTP/1.0 caches, which do not know Vary.
pub(crate) fn without_void_expires<'a>(
    snapshot: &Snapshot,
    head: &'a ResponseHead,
) -> Cow<'a, ResponseHead> {
    let fields = &head.fields;
    let is_void = snapshot.config.vary_ignore_expire
        && fields.has(FieldName::Vary)
        && fields.has(FieldName::Expires)
        && fields.get(FieldName::Expires) == fields.get(FieldName::Date);
    if !is_void {
        return Cow::Borrowed(head);
    }
    let mut without = head.clone();
    without.fields.remove(FieldName::Expires);
    Cow::Owned(without)
}

/// The head in the form that this proxy passes on: with its own name in Via.
pub(crate) fn with_via(snapshot: &Snapshot, head: &ResponseHead) -> ResponseHead {
    let mut received = head.roomy_clone();
    if let Some(via) = snapshot.names.via(head.version) {
        received.fields.push(FieldName::Via, via);
    }
    received
}

/// The fields of an answer for which `is_own` returns true.
pub(crate) fn some_fields(
    head: &ResponseHead,
    is_own: impl Fn(FieldName, &[u8]) -> bool,
) -> Fields {
    let mut fields = Fields::new();
    for (_, name, value) in head.fields.iter().filter(|(id, name, _)| is_own(*id, name)) {
        fields.push_named(name, value);
    }
    fields
}

/// Whether a field of an answer is neither stored nor passed on. Such fields are hop-by-hop, or
/// made anew for each client. Rules about fields depend on the client and are applied later: see
/// [`Ruled`](crate::rules::header::Ruled).
pub(crate) fn skips_reply_field(hops: &HopByHop<'_>, id: FieldName, name: &[u8]) -> bool {
    let made_anew = matches!(
        id,
        FieldName::ContentLength
            | FieldName::TransferEncoding
            | FieldName::XCache
            | FieldName::Upgrade
    );
    made_anew || hops.is_hop(id, name)
}
