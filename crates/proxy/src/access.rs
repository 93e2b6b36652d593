//! Asking the access rules about a request.

use humboldt_acl::{AclError, AclSet, RuleList, Subject, Verdict};
use humboldt_conf::{AccessRule, AclTerm};
use std::net::IpAddr;

use crate::core::Core;
use crate::request::Request;

/// What the rules say.
#[derive(Debug)]
pub(crate) enum Access {
    /// Go on.
    Allowed,
    /// Refuse; the text names the rule.
    Denied(String),
    /// A rule about the server's address: look the name up and ask again.
    NeedsAddresses,
}

/// Checks `http_access`. `addresses` are the server's: `None` when not looked up, empty when that failed.
pub(crate) fn check(request: &Request, addresses: Option<&[IpAddr]>) -> Access {
    let snapshot = request.snapshot();
    match with_subject(request, addresses, |subject| snapshot.http_access.check(subject)) {
        Verdict::Allowed { .. } => Access::Allowed,
        Verdict::Denied { .. } => Access::Denied(String::new()),
        Verdict::NeedDstIps => Access::NeedsAddresses,
    }
}

/// As [`check`], with the server's addresses looked up first.
pub(crate) async fn check_with_addresses(core: &Core, request: &Request) -> Access {
    let host = String::from_utf8_lossy(request.url.host());
    let addresses = core.resolver().lookup(&host).await;
    let addresses = addresses.as_deref().unwrap_or_default();
    check(request, Some(addresses))
}

/// Checks an optional list that allows by default.
pub(crate) fn allows(list: Option<&RuleList>, request: &Request) -> bool {
    list.is_none_or(|list| matches(list, request))
}

/// Whether a list allows the request. Rules that need the server's address are decided without it.
pub(crate) fn matches(list: &RuleList, request: &Request) -> bool {
    let known = with_subject(request, None, |subject| list.check(subject));
    let verdict = match known {
        Verdict::NeedDstIps => with_subject(request, Some(&[]), |subject| list.check(subject)),
        decided => decided,
    };
    matches!(verdict, Verdict::Allowed { .. })
}

/// Whether answers to this request may be stored and served from the store (`cache`).
pub(crate) fn may_use_cache(request: &Request) -> bool {
    allows(request.snapshot().cache.as_ref(), request)
}

/// A list that allows exactly what matches all `terms`.
pub(crate) fn compile_condition(acls: &AclSet, terms: &[AclTerm]) -> Result<RuleList, Vec<AclError>> {
    RuleList::compile(acls, &[AccessRule { allow: true, terms: terms.to_vec() }], false)
}

/// Describes the request to the rules.
pub(crate) fn with_subject<T>(
    request: &Request,
    addresses: Option<&[IpAddr]>,
    ask: impl FnOnce(&Subject<'_>) -> T,
) -> T {
    let facts = request.facts();
    let host = request.url.host();
    ask(&Subject {
        client_ip: unmapped(facts.client.ip()),
        local_ip: unmapped(facts.local.ip()),
        local_port: facts.local.port(),
        port_name: Some(&facts.port.name),
        method: request.head.method_bytes(),
        scheme: request.url.scheme(),
        host,
        host_ip: host_ip(host),
        port: request.url.port(),
        url: request.url.as_bytes(),
        path: request.url.path_and_query(),
        request: Some(&request.head),
        response: None,
        dst_ips: addresses,
        now: request.received.secs(),
        local_offset_s: humboldt_sys::local_time::utc_offset_s(request.received.secs()),
        connections_from_client: 1,
        random: request.received.0 as u64,
        notes: &[],
    })
}

/// IPv4 clients of a socket that listens on both families.
pub(crate) fn unmapped(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// The host when it is an address; names never start with a digit-only last label or contain a colon.
fn host_ip(host: &[u8]) -> Option<IpAddr> {
    let last = host.last()?;
    if !last.is_ascii_digit() && !host.contains(&b':') {
        return None;
    }
    std::str::from_utf8(host).ok()?.parse().ok()
}
