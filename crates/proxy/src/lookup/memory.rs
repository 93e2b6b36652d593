//! Looks a request up in memory: the result is an answer, or the way to get one.

use std::sync::Arc;

use humboldt_freshness::{self as freshness, Disposition, languages, vary};
use humboldt_http::{FieldName, Method};
use humboldt_logs::access::Tag;
use humboldt_store::{Entry, Held, Key, Object, PARTIAL, VaryMarker};

use crate::config::cache_status::Forward;
use crate::core::Core;
use crate::fetch::job::Stale;
use crate::lookup::judge_age;
use crate::lookup::parts;
use crate::outcome::RouteTaken;
use crate::request::Request;
use crate::rules::{access, header};

/// After an answer that could not be stored, requests for its URL do not wait for each other's
/// fetches for this time, in seconds.
pub(crate) const HIT_FOR_MISS_S: i64 = 30;

/// An object to serve, and its origin.
#[derive(Debug)]
pub(crate) struct HitObject {
    /// The answer.
    pub object: Held,
    /// Result code for the log.
    pub tag: Tag,
    /// Whether the object was served without asking its server; `false` after a validation.
    pub without_origin: bool,
    /// The server that validated it, if this request asked for that.
    pub route: Option<Box<RouteTaken>>,
}

impl HitObject {
    /// An answer of the cache itself.
    pub(crate) fn new(object: Held, tag: Tag) -> Self {
        Self { object, tag, without_origin: true, route: None }
    }
}

/// The result of a look-up for a request that memory cannot answer.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The key of the answer: of the variant, if one is known.
    pub key: Option<Key>,
    /// A stored answer that needs validation.
    pub stale: Option<Stale>,
    /// The stored answer may be served while it is validated.
    pub serve_stale: bool,
    /// The client asked for a reload: skip stored answers, and do not wait for other requests.
    pub reload: bool,
    /// The last answer could not be stored: fetch without waiting for other requests.
    pub pass: bool,
    /// The client accepts only a stored answer, and none may be served.
    pub refuse: bool,
    /// The answer was on disk but could not be read.
    pub swap_failed: bool,
    /// A list of stored parts that are fresh.
    pub parts: Option<Arc<Object>>,
    /// Nothing on disk is usable.
    pub skip_disk: bool,
    /// Why the request is sent on, if it is.
    pub forward: Forward,
}

impl Found {
    /// `send_hit` denies the stored answer: the request is served as if there were none.
    pub(crate) fn passed_over() -> Self {
        Self { skip_disk: true, forward: Forward::Bypass, ..Self::default() }
    }

    /// Whether a look-up on disk could not change anything.
    pub(crate) fn knows_enough(&self) -> bool {
        let Self { pass, reload, swap_failed, skip_disk, stale, parts, .. } = self;
        *pass || *reload || *swap_failed || *skip_disk || stale.is_some() || parts.is_some()
    }

    /// Why the request is sent on.
    pub(crate) fn why(&self) -> Forward {
        match self {
            _ if self.reload => Forward::Request,
            _ if self.stale.is_some() => Forward::Stale,
            _ => self.forward,
        }
    }

    /// Result code of an answer from the server.
    pub(crate) fn miss_tag(&self) -> Tag {
        match self {
            _ if self.reload => Tag::ClientRefreshMiss,
            _ if self.stale.is_some() => Tag::RefreshModified,
            _ if self.swap_failed => Tag::SwapfailMiss,
            _ => Tag::Miss,
        }
    }
}

/// Looks a request up in memory.
pub(crate) fn look_up(core: &Core, request: &Request) -> Result<HitObject, Found> {
    let mut key = request.key;
    let cache = &core.shared.cache;
    let mut entry = cache.lookup(&key);
    let mut forward = Forward::UriMiss;
    if let Some(Entry::Vary(marker)) = &entry {
        if *marker.url != *request.cache_url() {
            return Err(Found { pass: true, ..Found::default() });
        }
        key = variant_key(request, marker);
        let variant = cache.lookup(&key);
        if variant.is_none()
            && let Some((other, object)) = other_in_language(core, request, marker)
        {
            return judge(request, other, object);
        }
        entry = variant;
        forward = Forward::VaryMiss;
    }
    match entry {
        Some(Entry::Object(object)) => judge(request, key, object),
        Some(Entry::HitForMiss { until }) if is_marked(until, request.received.secs()) => {
            Err(Found { key: Some(key), pass: true, forward, ..Found::default() })
        }
        _ => Err(Found { key: Some(key), forward, ..Found::default() }),
    }
}

/// Whether a mark that is valid `until` then is valid now. If it lasts too long, it was made while
/// the clock was ahead, and is ignored.
fn is_marked(until: i64, now: i64) -> bool {
    (1..=HIT_FOR_MISS_S).contains(&until.saturating_sub(now))
}

/// The key of the variant that `request` selects.
pub(crate) fn variant_key(request: &Request, marker: &VaryMarker) -> Key {
    let mut parts = Vec::new();
    if let Some(spec) = vary::Spec::from_bytes(&marker.fields) {
        spec.append_key(&header::as_asked(request), &mut parts);
    }
    marker.variant_key(request.key, &parts)
}

/// A stored variant in the language that this request prefers, although a request with other
/// languages selected it.
fn other_in_language(
    core: &Core,
    request: &Request,
    marker: &VaryMarker,
) -> Option<(Key, Arc<Object>)> {
    let fields = header::as_asked(request);
    let language = languages::favourite(&fields)?;
    let cache = &core.shared.cache;
    let Some(Entry::SeeAlso(key)) = cache.lookup(&language_key(request, marker, language)?) else {
        return None;
    };
    let Some(Entry::Object(object)) = cache.lookup(&key) else { return None };
    // The variant under that key may have been replaced since.
    let head = object.head.to_response_head();
    let is_right =
        languages::of_answer(&head.fields).is_some_and(|own| own.eq_ignore_ascii_case(language));
    is_right.then_some((key, object))
}

/// The key of variants in this language, for requests that agree in all other fields; `None` if the
/// answer does not vary by language.
pub(crate) fn language_key(request: &Request, marker: &VaryMarker, language: &[u8]) -> Option<Key> {
    let mut parts = Vec::new();
    let spec = vary::Spec::from_bytes(&marker.fields)?;
    let matters = spec.append_language_key(&header::as_asked(request), language, &mut parts);
    matters.then(|| marker.variant_key(request.key, &parts))
}

/// Whether a stored object answers the request now.
fn judge(request: &Request, key: Key, object: Arc<Object>) -> Result<HitObject, Found> {
    if *object.url != *request.cache_url() {
        return Err(Found { pass: true, ..Found::default() });
    }
    if needs_origin(request) {
        return Err(Found { pass: true, forward: Forward::Request, ..Found::default() });
    }
    if !access::may_send_hit(request, &object.head) {
        return Err(Found { key: Some(key), ..Found::passed_over() });
    }
    if object.head.status == PARTIAL {
        return Err(parts::judge(request, key, object));
    }
    let found = Found { key: Some(key), ..Found::default() };
    match judge_age(request, &object.times) {
        Disposition::Fresh => {
            let negative = object.times.flags.contains(freshness::TimesFlags::NEGATIVE);
            let tag = if negative { Tag::NegativeHit } else { Tag::MemHit };
            Ok(HitObject::new(Held::Memory(object), tag))
        }
        Disposition::StaleWhileRevalidate => {
            Err(Found { stale: Some(Stale::in_memory(object, true)), serve_stale: true, ..found })
        }
        Disposition::Revalidate { may_serve_stale_on_error } => {
            Err(Found { stale: Some(Stale::in_memory(object, may_serve_stale_on_error)), ..found })
        }
        Disposition::Refetch => {
            // HEAD fetches no body, but its answer may update the stored one.
            let stale =
                (request.head.method == Method::Head).then(|| Stale::in_memory(object, false));
            Err(Found { reload: true, stale, ..found })
        }
        Disposition::GatewayTimeout => Err(Found { refuse: true, ..found }),
    }
}

/// Whether the request has conditions that only the origin server may judge (RFC 9111 4.3.2).
pub(crate) fn needs_origin(request: &Request) -> bool {
    request.head.fields.has(FieldName::IfMatch)
        || request.head.fields.has(FieldName::IfUnmodifiedSince)
}

/// Whether the request asks for less than the whole answer.
pub(crate) fn has_own_terms(request: &Request) -> bool {
    needs_origin(request) || has_own_copy(request) || request.head.fields.has(FieldName::Range)
}

/// Whether the client has a copy and asks whether that is still good.
pub(crate) fn has_own_copy(request: &Request) -> bool {
    let fields = &request.head.fields;
    fields.has(FieldName::IfNoneMatch) || fields.has(FieldName::IfModifiedSince)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_from_before_a_clock_was_set_back_does_not_count() {
        let made = 1_000_000;
        let until = made + HIT_FOR_MISS_S;
        assert!(is_marked(until, made) && is_marked(until, until - 1));
        assert!(!is_marked(until, until), "it is over");
        assert!(!is_marked(until, made - 1), "made while the clock was ahead");
        assert!(!is_marked(i64::MAX, i64::MIN));
    }
}
