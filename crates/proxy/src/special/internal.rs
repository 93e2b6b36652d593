//! Requests that the proxy answers itself, or refuses to forward: manager pages, PURGE, TRACE and
//! OPTIONS at their last hop, loops.

use std::rc::Rc;

use humboldt_conf::PortMode;
use humboldt_exchange::{BodyLength, as_message};
use humboldt_http::{FieldName, Fields, Method, Target};
use humboldt_logs::access::Tag;

use crate::core::Core;
use crate::errors::ErrorPage;
use crate::fetch::ask::forwards_left;
use crate::reply::local::{Local, error_answer};
use crate::request::Request;
use crate::rules::denial::Refusal;
use crate::rules::own::{is_internal, page_name};
use crate::shared::closes_page;
use crate::special::purge;

/// The proxy's own answer with its result code; `None` if the request is not for the proxy itself.
pub(crate) async fn answer(core: &Rc<Core>, request: &Rc<Request>) -> Option<(Local, Tag)> {
    if let Some(name) = page_name(request) {
        // A page must not be fetched through this proxy, because the rules would then see the proxy
        // as the client.
        let page = match has_been_here(request) {
            true => error_answer(core, request, ErrorPage::ForwardLoop, ""),
            false => manager_page(core, request, name),
        };
        return Some((page, Tag::None));
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
        return error_answer(core, request, ErrorPage::MethodNotAllowed, "");
    }
    if closes_page(&request.snapshot().config, name) {
        return error_answer(core, request, ErrorPage::AccessDenied, "");
    }
    match core.shared.internal_pages().and_then(|pages| pages.page(name)) {
        Some(page) => Local::page(200, page.content_type, page.body),
        None => error_answer(core, request, ErrorPage::NotFound, ""),
    }
}

/// Answers a TRACE or OPTIONS request that may go no further (RFC 9110 7.6.2).
fn last_hop(request: &Request) -> Local {
    if request.head.method == Method::Options {
        let methods = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE, CONNECT";
        let mut fields = Fields::new();
        fields.push_named(b"Allow", methods);
        return Local { status: 200, fields, ..Local::default() };
    }
    // RFC 9110 9.3.8: the request as received, without its secrets.
    let is_secret = |id| {
        matches!(id, FieldName::Authorization | FieldName::ProxyAuthorization | FieldName::Cookie)
    };
    let body = as_message(&request.head, is_secret);
    let mut fields = Fields::new();
    fields.push(FieldName::ContentType, b"message/http");
    Local { status: 200, fields, body, fault: None, error: None }
}

/// Why a request is refused, whatever the rules say.
#[derive(Debug)]
pub(crate) enum Objection {
    /// With this page, for this reason.
    Page(ErrorPage, String),
    /// As if a rule denied it.
    Denied(Refusal),
}

/// Refuses requests that no rule can permit: PURGE if no ACL names that method, as in Squid; the
/// preface of HTTP/2; and, on a forward-proxy port, a request that does not name its server.
pub(crate) fn objection_to_form(request: &Request) -> Option<Objection> {
    if request.head.method == Method::Purge && !request.snapshot().purge_is_enabled {
        return Some(Objection::Denied(Refusal::of_request(None)));
    }
    // The preface of HTTP/2 has this method but is no request (RFC 9113 11.5). A server that knows
    // it would change protocols.
    if request.head.method == Method::Other && request.head.method_bytes() == b"PRI" {
        return Some(Objection::Page(
            ErrorPage::MethodNotAllowed,
            "PRI begins a connection of HTTP/2".into(),
        ));
    }
    let facts = request.facts();
    let is_forward = facts.port.mode == PortMode::Forward && facts.inside.is_none();
    let names_no_server =
        request.head.target == Target::Origin && is_forward && !is_internal(request);
    let detail = "a proxy is asked for whole URLs";
    names_no_server.then(|| Objection::Page(ErrorPage::InvalidUrl, detail.into()))
}

/// FTP knows three methods of HTTP only; OPTIONS and TRACE are about the way to the server. As in
/// Squid, no list is asked about a request with another method.
pub(crate) fn fits_its_scheme(request: &Request) -> bool {
    const FITTING: [&[u8]; 6] = [b"GET", b"HEAD", b"PUT", b"OPTIONS", b"TRACE", b"PURGE"];
    let method = request.head.method_bytes();
    request.url.scheme() != b"ftp" || FITTING.iter().any(|one| method.eq_ignore_ascii_case(one))
}

/// Why a request is not forwarded; `None` if it is.
pub(crate) fn objection(request: &Request) -> Option<(ErrorPage, String)> {
    if request.head.method == Method::Trace && request.has_body() {
        return Some((ErrorPage::InvalidRequest, "TRACE has no body".into()));
    }
    if has_been_here(request) {
        return Some((ErrorPage::ForwardLoop, String::new()));
    }
    let limit = request.snapshot().body_limit_bytes();
    if let (BodyLength::Known(length), Some(limit)) = (request.body, limit)
        && length > limit
    {
        return Some((ErrorPage::TooLarge, format!("request_body_max_size is {limit} bytes")));
    }
    None
}

/// Whether Via already has this proxy's name.
fn has_been_here(request: &Request) -> bool {
    let unique = request.snapshot().names.unique.as_bytes();
    request.head.fields.list(FieldName::Via).any(|hop| {
        let mut words =
            hop.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
        let is_ours = words.nth(1).is_some_and(|host| host.eq_ignore_ascii_case(unique));
        is_ours && memchr::memmem::find(hop, b"(humboldt").is_some()
    })
}
