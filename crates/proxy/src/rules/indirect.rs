//! `follow_x_forwarded_for`: finds the client behind proxies that are trusted to name it.

use std::net::{IpAddr, SocketAddr};

use humboldt_acl::RuleList;
use humboldt_http::FieldName;

use crate::request::{Request, unmapped};
use crate::rules::access;

/// Most addresses of X-Forwarded-For that are followed, as in Squid. The rest is ignored.
const HOPS_MAX: usize = 64;

/// Walks X-Forwarded-For from its end, as long as `trusted` allows the address before. `None`: the
/// client is the peer of the connection, because it is not trusted or names no readable address.
pub(crate) fn client(trusted: &RuleList, request: &Request) -> Option<IpAddr> {
    let hops: Vec<&[u8]> = request.head.fields.list(FieldName::XForwardedFor).collect();
    let mut found = None;
    for hop in hops.iter().rev().take(HOPS_MAX) {
        let teller = found.unwrap_or_else(|| unmapped(request.facts().client.ip()));
        if !access::matches_from(trusted, request, teller) {
            break;
        }
        let Some(named) = address(hop) else { break };
        found = Some(named);
    }
    found
}

/// An address, with or without brackets and port, since some proxies write them.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let ip = bare.parse().or_else(|_| text.parse::<SocketAddr>().map(|addr| addr.ip())).ok()?;
    // A client without an address is one on a Unix socket.
    Some(unmapped(ip)).filter(|ip| !ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_proxies_write_them() {
        for (text, wanted) in [
            ("192.0.2.1", Some("192.0.2.1")),
            ("192.0.2.1:8080", Some("192.0.2.1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("[2001:db8::1]:80", Some("2001:db8::1")),
            ("::ffff:192.0.2.1", Some("192.0.2.1")),
            ("unknown", None),
            ("", None),
            ("192.0.2.300", None),
            ("0.0.0.0", None),
            ("[::]:80", None),
            ("::ffff:0.0.0.0", None),
        ] {
            assert_eq!(address(text.as_bytes()), wanted.and_then(|ip| ip.parse().ok()), "{text}");
        }
    }
}
