//! Requests of intercepted connections. They name their server twice: by the address that the
//! client connected to, and by their URL.
//!
//! Any page can make a browser send a foreign Host (CVE-2009-0801). So the name alone never decides
//! where a request goes, nor under which URL its answer is stored.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use humboldt_base::counters::Counter;
use humboldt_http::uri::{default_port, host_ip, split_authority};
use humboldt_http::{FieldName, Method, Target};
use humboldt_net::dns::Answer;

use crate::core::Core;
use crate::request::{Request, unmapped};
use crate::rules::access;
use crate::rules::denial::Refusal;

/// Whether [`verify`] comes next.
pub(crate) fn is_unverified(request: &Request) -> bool {
    request.facts().original.is_some() && request.is_verified.get().is_none()
}

/// Looks up the addresses of the URL's host, and notes whether the one that the client chose is
/// among them, with the port of the URL. From then on the addresses of the request are those that
/// it may go to.
///
/// # Errors
/// The request does not agree, and is refused.
pub(crate) async fn verify(core: &Core, request: &Request) -> Result<(), Refusal> {
    if compare(core, request).await {
        return Ok(());
    }
    let is_refused = request.snapshot().config.host_verify_strict
        || matches!(request.head.method, Method::Connect | Method::Purge);
    if is_refused { Err(Refusal::of_host()) } else { Ok(()) }
}

/// Looks up the addresses of the host of a tunnel, and notes whether the one that the client chose
/// is among them, as [`verify`] does: without, the tunnel leads to that address all the same, and
/// the host counts for nothing.
pub(crate) async fn compare(core: &Core, request: &Request) -> bool {
    let Some(original) = request.facts().original else { return true };
    let addresses = addresses_of_host(core, request).await;
    let agrees = request.url.port() == original.port() && has(&addresses, original);
    let is_verified = *request.is_verified.get_or_init(|| agrees);
    let destination = request.original_destination();
    request.addresses.get_or_init(|| match destination {
        Some(original) => Ok(Arc::new([unmapped(original.ip())])),
        None => addresses,
    });
    if !is_verified {
        core.count(Counter::ClientHostConflicts, 1);
    }
    is_verified
}

async fn addresses_of_host(core: &Core, request: &Request) -> Answer {
    let host = request.url.host();
    match host_ip(host) {
        Some(ip) => Ok(Arc::new([ip])),
        None => core.look_up(&String::from_utf8_lossy(host), access::asker(request)).await,
    }
}

fn has(addresses: &Answer, original: SocketAddr) -> bool {
    let wanted = unmapped(original.ip());
    addresses.as_ref().is_ok_and(|known| known.iter().any(|ip: &IpAddr| unmapped(*ip) == wanted))
}

/// Whether Host names the host and port of a URL that the request line has whole
/// (`host_verify_strict`). A Host without a value does not count.
pub(crate) fn host_agrees(request: &Request) -> bool {
    let is_whole = matches!(request.head.target, Target::Absolute | Target::Authority);
    let host = request.head.fields.get(FieldName::Host).filter(|host| !host.is_empty());
    let Some(host) = host.filter(|_| is_whole) else { return true };
    // Clients write Host of CONNECT with and without the port.
    let default = match request.head.target {
        Target::Authority => Some(request.url.port()),
        _ => default_port(request.url.scheme()),
    };
    split_authority(host).is_some_and(|named| {
        named.host.eq_ignore_ascii_case(request.url.host())
            && named.port.or(default) == Some(request.url.port())
    })
}
