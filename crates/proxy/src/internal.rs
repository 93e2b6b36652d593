//! Requests that the proxy answers itself, and requests that it will not forward: manager pages, PURGE, TRACE and OPTIONS
//! at the end of their way, loops.

use std::rc::Rc;

use humboldt_conf::PortMode;
use humboldt_http::{FieldName, Method, Target};
use humboldt_logs::access::Tag;

use crate::answer::Local;
use crate::core::Core;
use crate::denial::Refusal;
use crate::errors::ErrorPage;
use crate::forward::forwards_left;
use crate::pipeline::Admission;
use crate::purge;
use crate::request::Request;

/// Path under which the manager pages are.
const MANAGER_PREFIX: &[u8] = b"/squid-internal-mgr/";

/// Path of the metrics.
const METRICS_PATH: &[u8] = b"/metrics";

/// A page of the proxy's own.
pub struct Page {
    /// Media type.
    pub content_type: &'static str,
    /// The page.
    pub body: Vec<u8>,
}

/// Who makes the proxy's own pages.
pub trait InternalPages: Send + Sync {
    /// The page called `name` (`info`, `counters`, `metrics`, …); `None` when there is none.
    fn page(&self, name: &str) -> Option<Page>;
}

/// Whether the request is for the proxy itself: a manager page, or `/metrics` on one of its own addresses.
pub(crate) fn is_internal(request: &Request) -> bool {
    page_name(request).is_some()
}

/// The name of the page asked for.
fn page_name(request: &Request) -> Option<&str> {
    let path = request.url.path_and_query();
    let own = request.head.target == Target::Origin && request.facts().port.mode != PortMode::Accel
        || is_own_name(request);
    if !own {
        return None;
    }
    let name = match path.strip_prefix(MANAGER_PREFIX) {
        Some(name) => name,
        None if path == METRICS_PATH => b"metrics",
        None => return None,
    };
    let end = name.iter().position(|&byte| byte == b'?').unwrap_or(name.len());
    std::str::from_utf8(name.get(..end)?).ok()
}

/// Whether the URL names this proxy: its host name or its address, with the port it listens on.
fn is_own_name(request: &Request) -> bool {
    let facts = request.facts();
    let host = request.url.host();
    if request.url.port() != facts.local.port() {
        return false;
    }
    let (names, aliases) = (&request.snapshot().names, &request.snapshot().config.hostname_aliases);
    let is_name = host.eq_ignore_ascii_case(names.hostname.as_bytes())
        || host.eq_ignore_ascii_case(names.unique.as_bytes())
        || aliases.iter().any(|alias| host.eq_ignore_ascii_case(alias.as_bytes()))
        || host == b"localhost";
    let own_ip = crate::access::unmapped(facts.local.ip());
    is_name || std::str::from_utf8(host).is_ok_and(|host| host.parse() == Ok(own_ip))
}

/// An answer of our own, with its result code; `None` for requests that are not for the proxy itself.
pub(crate) async fn answer(core: &Rc<Core>, request: &Request) -> Option<(Local, Tag)> {
    if let Some(name) = page_name(request) {
        return Some((manager_page(core, request, name), Tag::None));
    }
    if request.head.method == Method::Purge {
        return Some((purge::answer(core, request).await, Tag::None));
    }
    if forwards_left(request) == Some(0) {
        return Some((last_hop(request), Tag::None));
    }
    None
}

fn manager_page(core: &Core, request: &Request, name: &str) -> Local {
    if !matches!(request.head.method, Method::Get | Method::Head) {
        return crate::answer::error_answer(core, request, ErrorPage::MethodNotAllowed, "");
    }
    match core.shared.internal_pages().and_then(|pages| pages.page(name)) {
        Some(page) => Local {
            status: 200,
            fields: format!("Content-Type: {}\r\nCache-Control: no-store\r\n", page.content_type)
                .into_bytes(),
            body: page.body,
        },
        None => crate::answer::error_answer(core, request, ErrorPage::NotFound, ""),
    }
}

/// A TRACE or OPTIONS request that may go no further (RFC 9110 7.6.2).
fn last_hop(request: &Request) -> Local {
    if request.head.method == Method::Options {
        let fields = b"Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE, CONNECT\r\n".to_vec();
        return Local { status: 200, fields, body: Vec::new() };
    }
    // RFC 9110 9.3.8: the request as received, without what is nobody else's business.
    let mut body = Vec::new();
    humboldt_http::h1::write_request_line(
        &mut body,
        request.head.method_bytes(),
        request.head.target_bytes(),
        request.head.version,
    );
    for (id, name, value) in request.head.fields.iter() {
        if !matches!(id, FieldName::Authorization | FieldName::ProxyAuthorization | FieldName::Cookie) {
            humboldt_http::h1::write_field(&mut body, name, value);
        }
    }
    body.extend_from_slice(b"\r\n");
    Local { status: 200, fields: b"Content-Type: message/http\r\n".to_vec(), body }
}

/// Requests that no rule can make right: for another server than this one and without saying which, as servers get them; and PURGE where
/// no ACL names that method, as in Squid.
pub(crate) fn objection_to_form(request: &Request) -> Option<Admission> {
    if request.head.method == Method::Purge && !request.snapshot().purge_is_enabled {
        return Some(Admission::Deny(Refusal::of_request(None)));
    }
    let is_forward = request.facts().port.mode == PortMode::Forward;
    let names_no_server = request.head.target == Target::Origin && is_forward && !is_internal(request);
    let detail = "a proxy is asked for whole URLs";
    names_no_server.then(|| Admission::Refuse(ErrorPage::InvalidUrl, detail.into()))
}

/// Why a request is not forwarded, if so.
pub(crate) fn objection(request: &Request) -> Option<(ErrorPage, String)> {
    if request.head.method == Method::Trace && request.has_body() {
        return Some((ErrorPage::InvalidRequest, "TRACE has no body".into()));
    }
    if has_been_here(request) {
        return Some((ErrorPage::ForwardLoop, String::new()));
    }
    let limit = request.snapshot().body_limit_bytes();
    if let (humboldt_http::h1::Framing::Length(length), Some(limit)) = (request.framing, limit)
        && length > limit
    {
        return Some((ErrorPage::TooLarge, format!("request_body_max_size is {limit} bytes")));
    }
    None
}

/// Whether Via names us already.
fn has_been_here(request: &Request) -> bool {
    let unique = request.snapshot().names.unique.as_bytes();
    request.head.fields.list(FieldName::Via).any(|hop| {
        let mut words = hop.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
        let is_ours = words.nth(1).is_some_and(|host| host.eq_ignore_ascii_case(unique));
        is_ours && memchr::memmem::find(hop, b"(humboldt").is_some()
    })
}
