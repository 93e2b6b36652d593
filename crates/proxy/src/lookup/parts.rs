//! Answers of which only parts are stored (RFC 9111 3.3 and 3.4): decides whether a list of parts
//! may answer a request.

use std::sync::Arc;

use humboldt_freshness::Disposition;
use humboldt_http::{FieldName, range};
use humboldt_store::{Key, Object};

use crate::config::cache_status::Forward;
use crate::lookup::judge_age;
use crate::lookup::memory::{self, Found};
use crate::request::Request;
use crate::rules::access;

/// Whether the whole answer is fetched although the request asks for a range
/// (`range_offset_limit`).
pub(crate) fn is_fetched_whole(request: &Request) -> bool {
    let fields = &request.head.fields;
    if !fields.has(FieldName::Range)
        || memory::has_own_copy(request)
        || memory::needs_origin(request)
    {
        return false;
    }
    let rules = request.snapshot().range_offset_limits.iter();
    match rules
        .map(|(limit, condition)| (limit, access::matches(condition, request)))
        .find(|rule| rule.1)
    {
        None | Some((Some(0), _)) => false,
        Some((None, _)) => true,
        Some((Some(limit_bytes), _)) => {
            let set = fields.get(FieldName::Range).and_then(range::parse_range);
            set.and_then(|set| set.first_byte()).is_some_and(|first| first <= *limit_bytes)
        }
    }
}

/// Decides whether a list of parts may answer a request. Only a fresh list counts. Otherwise the
/// request is fetched as if there were no parts, and the new part may join the list.
pub(crate) fn judge(request: &Request, key: Key, object: Arc<Object>) -> Found {
    let found = Found { key: Some(key), ..Found::default() };
    match judge_age(request, &object.times) {
        Disposition::Fresh => Found { parts: Some(object), ..found },
        Disposition::Refetch => Found { reload: true, ..found },
        Disposition::GatewayTimeout => Found { refuse: true, ..found },
        Disposition::StaleWhileRevalidate | Disposition::Revalidate { .. } => {
            Found { skip_disk: true, forward: Forward::Stale, ..found }
        }
    }
}
