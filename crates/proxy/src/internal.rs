//! Requests that the proxy answers itself, and requests that it will not forward: manager pages,
//! PURGE, TRACE and OPTIONS at the end of their way, loops.

use std::net::IpAddr;
use std::rc::Rc;

use humboldt_conf::{Config, PortMode};
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

/// Whether the request is for the proxy itself: a manager page, or its metrics.
pub(crate) fn is_internal(request: &Request) -> bool {
    page_name(request).is_some()
}

/// The name of the page asked for.
fn page_name(request: &Request) -> Option<&str> {
    let path = request.url.path_and_query();
    let name = match path.strip_prefix(MANAGER_PREFIX) {
        Some(name) => name,
        None => path
            .strip_prefix(METRICS_PATH)
            .filter(|rest| rest.first().is_none_or(|&byte| byte == b'?'))?,
    };
    if !is_own(request) {
        return None;
    }
    let end = name.iter().position(|&byte| byte == b'?').unwrap_or(name.len());
    let name = std::str::from_utf8(name.get(..end)?).ok()?;
    Some(if path.starts_with(METRICS_PATH) { "metrics" } else { name })
}

/// Whether the URL names this proxy.
///
/// To whom it is known as a proxy it answers by its names and its address, with the port that it
/// listens on; a request that has no more than a path came directly, so it may have been another
/// port on the way, and any address will do. A name that is not ours never does: a page can make
/// its own name lead here (DNS rebinding).
///
/// Where it plays the origin, only names that the configuration gives it are ours: what a site has
/// under the machine's address, `localhost` or its own name (`defaultsite`) belongs to the site.
fn is_own(request: &Request) -> bool {
    let facts = request.facts();
    let (host, has_own_port) = (request.url.host(), request.url.port() == facts.local.port());
    let is_host = |name: &str| host.eq_ignore_ascii_case(name.as_bytes());
    let snapshot = request.snapshot();
    let (names, config) = (&snapshot.names, &snapshot.config);
    let is_alias = || config.hostname_aliases.iter().any(|name| is_host(name));
    if facts.port.mode != PortMode::Forward {
        let mut given = [&config.visible_hostname, &config.unique_hostname].into_iter().flatten();
        let is_the_site = facts.port.defaultsite.as_deref().is_some_and(is_host);
        return has_own_port && !is_the_site && (given.any(|name| is_host(name)) || is_alias());
    }
    let is_direct = request.head.target == Target::Origin;
    let is_name =
        || [&*names.hostname, &*names.unique, "localhost"].into_iter().any(is_host) || is_alias();
    let is_own_address = || {
        let address = crate::access::host_ip(host).map(crate::access::unmapped);
        let local = crate::access::unmapped(facts.local.ip());
        let is_here = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified() || ip == local;
        address.is_some_and(|address| is_direct || is_here(address))
    };
    (is_direct || has_own_port) && (is_name() || is_own_address())
}

/// An answer of our own, with its result code; `None` for requests that are not for the proxy
/// itself.
pub(crate) async fn answer(core: &Rc<Core>, request: &Rc<Request>) -> Option<(Local, Tag)> {
    if let Some(name) = page_name(request) {
        // Nobody gets a page by asking this proxy to fetch it: the rules would see the proxy as the
        // client.
        let page = match has_been_here(request) {
            true => crate::answer::error_answer(core, request, ErrorPage::ForwardLoop, ""),
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

/// Whether nobody gets a page (`cachemgr_passwd`).
pub fn closes_page(config: &Config, name: &str) -> bool {
    // The directory of the pages itself is their index.
    let name = if name.is_empty() { "index" } else { name };
    let mut lines = config.cachemgr_passwd.iter();
    let line = lines.find(|line| line.pages.iter().any(|page| page == name || page == "all"));
    line.is_some_and(|line| !line.is_open)
}

fn manager_page(core: &Core, request: &Request, name: &str) -> Local {
    if !matches!(request.head.method, Method::Get | Method::Head) {
        return crate::answer::error_answer(core, request, ErrorPage::MethodNotAllowed, "");
    }
    if closes_page(&request.snapshot().config, name) {
        return crate::answer::error_answer(core, request, ErrorPage::AccessDenied, "");
    }
    match core.shared.internal_pages().and_then(|pages| pages.page(name)) {
        Some(page) => Local {
            status: 200,
            fields: format!("Content-Type: {}\r\nCache-Control: no-store\r\n", page.content_type)
                .into_bytes(),
            body: page.body,
            fault: None,
        },
        None => crate::answer::error_answer(core, request, ErrorPage::NotFound, ""),
    }
}

/// A TRACE or OPTIONS request that may go no further (RFC 9110 7.6.2).
fn last_hop(request: &Request) -> Local {
    if request.head.method == Method::Options {
        let fields =
            b"Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE, CONNECT\r\n".to_vec();
        return Local { status: 200, fields, ..Local::default() };
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
        if !matches!(
            id,
            FieldName::Authorization | FieldName::ProxyAuthorization | FieldName::Cookie
        ) {
            humboldt_http::h1::write_field(&mut body, name, value);
        }
    }
    body.extend_from_slice(b"\r\n");
    Local { status: 200, fields: b"Content-Type: message/http\r\n".to_vec(), body, fault: None }
}

/// Requests that no rule can make right: for another server than this one and without saying which,
/// as servers get them; and PURGE where no ACL names that method, as in Squid.
pub(crate) fn objection_to_form(request: &Request) -> Option<Admission> {
    if request.head.method == Method::Purge && !request.snapshot().purge_is_enabled {
        return Some(Admission::Deny(Refusal::of_request(None)));
    }
    // The method of the preface of HTTP/2, which is no request (RFC 9113 11.5): a server that knows
    // it would change protocols.
    if request.head.method == Method::Other && request.head.method_bytes() == b"PRI" {
        return Some(Admission::Refuse(
            ErrorPage::MethodNotAllowed,
            "PRI begins a connection of HTTP/2".into(),
        ));
    }
    let is_forward = request.facts().port.mode == PortMode::Forward;
    let names_no_server =
        request.head.target == Target::Origin && is_forward && !is_internal(request);
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
        let mut words =
            hop.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
        let is_ours = words.nth(1).is_some_and(|host| host.eq_ignore_ascii_case(unique));
        is_ours && memchr::memmem::find(hop, b"(humboldt").is_some()
    })
}
