//! Asking the access rules about a request.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use humboldt_acl::{AclError, AclSet, RuleList, Subject, Verdict};
use humboldt_base::rng::Rng;
use humboldt_conf::{AccessRule, AclTerm};
use humboldt_http::ResponseHead;

use crate::core::Core;
use crate::denial::Refusal;
use crate::internal;
use crate::request::Request;

/// What the rules say.
#[derive(Debug)]
pub(crate) enum Access {
    /// Go on.
    Allowed,
    /// Refuse.
    Denied(Refusal),
    /// A rule about the server's address: look the name up and ask again.
    NeedsAddresses,
}

/// Checks `http_access` and `adapted_http_access`. `addresses` are the server's: `None` when not looked up, empty when that
/// failed.
pub(crate) fn check(request: &Request, addresses: Option<&[IpAddr]>) -> Access {
    let snapshot = request.snapshot();
    for list in [Some(&snapshot.http_access), snapshot.adapted_access.as_ref()].into_iter().flatten() {
        match with_subject(request, addresses, |subject| list.check(subject)) {
            Verdict::Allowed { .. } => {}
            Verdict::Denied { last_acl, .. } => {
                return Access::Denied(Refusal::of_request(snapshot.denials.find(last_acl)));
            }
            Verdict::NeedDstIps => return Access::NeedsAddresses,
        }
    }
    Access::Allowed
}

/// As [`check`], with the server's addresses looked up first.
pub(crate) async fn check_with_addresses(core: &Core, request: &Request) -> Access {
    let host = String::from_utf8_lossy(request.url.host());
    let addresses = core.resolver().lookup(&host).await;
    let addresses = addresses.as_deref().unwrap_or_default();
    check(request, Some(addresses))
}

/// Whether the client may open a tunnel to the server of its request with CONNECT. Not if that cannot be decided
/// without looking the server up.
pub(crate) fn may_connect(request: &Request) -> bool {
    let snapshot = request.snapshot();
    let own = subject(request, None);
    let host = String::from_utf8_lossy(own.host);
    let authority = match host.contains(':') {
        true => format!("[{host}]:{}", own.port),
        false => format!("{host}:{}", own.port),
    };
    let as_tunnel = Subject { method: b"CONNECT", scheme: b"", url: authority.as_bytes(), path: b"", ..own };
    [Some(&snapshot.http_access), snapshot.adapted_access.as_ref()]
        .into_iter()
        .flatten()
        .all(|list| list.check(&as_tunnel).is_allowed())
}

/// Checks `miss_access`: whether the request may go to a server.
pub(crate) fn may_miss(request: &Request) -> Result<(), Refusal> {
    let snapshot = request.snapshot();
    let Some(list) = &snapshot.miss_access else { return Ok(()) };
    match decided(list, request, None) {
        Verdict::Denied { last_acl, .. } => Err(Refusal::of_miss(snapshot.denials.find(last_acl))),
        _ => Ok(()),
    }
}

/// What a list says about an answer to the request. Rules that need the server's address are decided without it.
pub(crate) fn verdict_on_answer<'l>(
    list: &'l RuleList,
    request: &Request,
    response: &ResponseHead,
) -> Verdict<'l> {
    decided(list, request, Some(response))
}

/// Checks an optional list that allows by default.
pub(crate) fn allows(list: Option<&RuleList>, request: &Request) -> bool {
    list.is_none_or(|list| matches(list, request))
}

/// Whether a list allows the request. Rules that need the server's address are decided without it.
pub(crate) fn matches(list: &RuleList, request: &Request) -> bool {
    decided(list, request, None).is_allowed()
}

/// Whether a list allows the request, had it come from `client`.
pub(crate) fn matches_from(list: &RuleList, request: &Request, client: IpAddr) -> bool {
    let ask = |addresses| list.check(&Subject { client_ip: client, ..subject(request, addresses) });
    match ask(None) {
        Verdict::NeedDstIps => ask(Some(&[])).is_allowed(),
        known => known.is_allowed(),
    }
}

fn decided<'l>(list: &'l RuleList, request: &Request, response: Option<&ResponseHead>) -> Verdict<'l> {
    let ask = |addresses| list.check(&Subject { response, ..subject(request, addresses) });
    match ask(None) {
        Verdict::NeedDstIps => ask(Some(&[])),
        known => known,
    }
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
fn with_subject<T>(
    request: &Request,
    addresses: Option<&[IpAddr]>,
    ask: impl FnOnce(&Subject<'_>) -> T,
) -> T {
    ask(&subject(request, addresses))
}

fn subject<'a>(request: &'a Request, addresses: Option<&'a [IpAddr]>) -> Subject<'a> {
    let facts = request.facts();
    let snapshot = request.snapshot();
    let host = request.url.host();
    let indirect = request.indirect_client.filter(|_| snapshot.config.acl_uses_indirect_client);
    Subject {
        client_ip: indirect.unwrap_or_else(|| unmapped(facts.client.ip())),
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
        connections_from_client: facts.connections.as_ref().map_or(1, |count| count.get()),
        random: if snapshot.uses_random { random() } else { 0 },
        is_internal: internal::is_internal(request),
    }
}

thread_local! {
    /// One generator for each core. The standard library's hasher has its keys from the system.
    static RANDOM: RefCell<Rng> = RefCell::new(Rng::new(RandomState::new().hash_one(0_u8)));
}

/// Random bits for `random` ACLs.
pub(crate) fn random() -> u64 {
    RANDOM.with_borrow_mut(Rng::next_u64)
}

/// IPv4 clients of a socket that listens on both families.
pub(crate) fn unmapped(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// The host when it is an address; names never start with a digit-only last label or contain a colon.
pub(crate) fn host_ip(host: &[u8]) -> Option<IpAddr> {
    let last = host.last()?;
    if !last.is_ascii_digit() && !host.contains(&b':') {
        return None;
    }
    std::str::from_utf8(host).ok()?.parse().ok()
}
