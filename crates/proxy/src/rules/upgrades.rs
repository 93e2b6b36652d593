//! Upgrade (RFC 9110 7.8): the protocols that a client may switch to, and the check that a 101
//! switches to one of them.

use humboldt_conf::PortMode;
use humboldt_http::{FieldName, Method, ResponseHead, websocket};

use crate::request::Request;
use crate::rules::access;
use crate::rules::permission::{self, MayConnect};

/// A value of Upgrade with the protocols that the client asks for and may use, in its order. `None`
/// if there are none, or the request has a body. Malformed names are left out. So is HTTP/2, since
/// a tunnel to it would hide requests from the access rules, and WebSocket without a key, since the
/// answer could not be checked.
pub(crate) fn offer(request: &Request) -> Option<Vec<u8>> {
    if request.has_body() {
        return None;
    }
    let mut offered = Vec::new();
    for protocol in request.head.fields.list(FieldName::Upgrade) {
        let Some(name) = well_formed(protocol) else { continue };
        let base = name.split('/').next().unwrap_or(name);
        let is_void = ["h2c", "http"].iter().any(|never| base.eq_ignore_ascii_case(never))
            || is_websocket(protocol)
                && (key(request).is_none() || request.head.method != Method::Get);
        if is_void || !matches!(permits(request, name), MayConnect::Yes) {
            continue;
        }
        if !offered.is_empty() {
            offered.extend_from_slice(b", ");
        }
        offered.extend_from_slice(protocol);
    }
    (!offered.is_empty()).then_some(offered)
}

/// Whether the request may switch to `protocol`, by `http_upgrade_request_protocols`. Without any
/// such line, only WebSocket is permitted, to clients that may open a tunnel to the server with
/// CONNECT; on a port where the proxy plays the origin, to all clients.
pub(crate) fn permits(request: &Request, protocol: &str) -> MayConnect {
    let upgrades = &request.snapshot().upgrades;
    let named = |name: &str| {
        let (base, whole) = (protocol.split('/').next().unwrap_or(protocol), name.contains('/'));
        if whole { name.eq_ignore_ascii_case(protocol) } else { name.eq_ignore_ascii_case(base) }
    };
    if upgrades.is_empty() {
        let is_forward = request.facts().port.mode == PortMode::Forward;
        return match protocol.eq_ignore_ascii_case("websocket") {
            false => MayConnect::No(None),
            true if is_forward => permission::may_connect(request),
            true => MayConnect::Yes,
        };
    }
    let is_named = upgrades.iter().any(|((name, _), _)| named(name));
    let applies =
        |name: &str| if is_named { named(name) } else { name.eq_ignore_ascii_case("OTHER") };
    let mut is_unanswered = false;
    for ((_, allow), rule) in upgrades.iter().filter(|((name, _), _)| applies(name)) {
        let said = access::says(rule, request, None);
        is_unanswered |= said.is_none();
        // Without an answer, a rule that allows does not apply, and one that denies does.
        match said.unwrap_or(!allow) {
            false => {}
            true if *allow => return MayConnect::Yes,
            true => break,
        }
    }
    if is_unanswered { MayConnect::Unanswered } else { MayConnect::No(None) }
}

/// Why a 101 does not switch to a protocol that was `offered`; `None` if it does. This does not
/// detect a server that only pretends to speak the protocol. So a client that may not open tunnels
/// may not upgrade either.
pub(crate) fn objection(
    request: &Request,
    offered: &[u8],
    head: &ResponseHead,
) -> Option<&'static str> {
    let mut chosen = head.fields.list(FieldName::Upgrade);
    let is_offered = |protocol: &[u8]| {
        humboldt_http::split_list(offered).any(|own| own.eq_ignore_ascii_case(protocol))
    };
    let Some(first) = chosen.next() else { return Some("a 101 does not say to which protocol") };
    if !is_offered(first) || !chosen.all(is_offered) {
        return Some("a 101 switches to a protocol that was not asked for");
    }
    let proof = head.fields.get_by_name(b"Sec-WebSocket-Accept");
    let is_proven = || {
        let wanted = websocket::accept_of(key(request).unwrap_or_default());
        proof == Some(wanted.as_bytes())
    };
    if head.fields.list(FieldName::Upgrade).any(is_websocket) && !is_proven() {
        return Some("a 101 does not prove that the server speaks WebSocket");
    }
    None
}

/// Whether the protocol is WebSocket of any version: rules name it without one.
fn is_websocket(protocol: &[u8]) -> bool {
    let base = protocol.split(|&byte| byte == b'/').next().unwrap_or(protocol);
    base.eq_ignore_ascii_case(b"websocket")
}

fn key(request: &Request) -> Option<&[u8]> {
    request.head.fields.get_by_name(b"Sec-WebSocket-Key").filter(|key| !key.is_empty())
}

/// The name in `name` or `name/version`, if both are tokens.
fn well_formed(protocol: &[u8]) -> Option<&str> {
    let mut parts = protocol.splitn(2, |&byte| byte == b'/');
    let is_token = |part: &[u8]| {
        let is_byte = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
        !part.is_empty() && part.iter().all(is_byte)
    };
    if !parts.all(is_token) {
        return None;
    }
    std::str::from_utf8(protocol).ok()
}

#[cfg(test)]
mod tests {
    use super::well_formed;

    #[test]
    fn protocols_are_tokens_with_or_without_a_version() {
        for good in ["websocket", "own/1", "a.b/c+d"] {
            assert_eq!(well_formed(good.as_bytes()), Some(good));
        }
        for bad in ["", "/", "own/", "/1", "a b", "a;b", "a/b/c", "\"a\"", "a\u{e4}"] {
            assert_eq!(well_formed(bad.as_bytes()), None, "{bad}");
        }
    }
}
