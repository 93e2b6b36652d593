//! Whether a request is for the proxy itself.

use std::net::IpAddr;

use humboldt_conf::{HttpPort, PortMode};
use humboldt_http::Target;
use humboldt_http::uri::host_ip;

use crate::config::snapshot::Snapshot;
use crate::request::{Request, unmapped};

/// Path of the manager pages.
const MANAGER_PREFIX: &[u8] = b"/squid-internal-mgr/";

/// Path of the metrics.
const METRICS_PATH: &[u8] = b"/metrics";

/// Whether the request is for the proxy itself: a manager page or the metrics.
pub(crate) fn is_internal(request: &Request) -> bool {
    page_name(request).is_some()
}

/// The name of a page of the proxy's own in a path, with the query behind it; that of the metrics
/// is empty.
pub fn page_in(path: &[u8]) -> Option<&[u8]> {
    let is_end = |rest: &&[u8]| rest.first().is_none_or(|&byte| byte == b'?');
    path.strip_prefix(MANAGER_PREFIX).or_else(|| path.strip_prefix(METRICS_PATH).filter(is_end))
}

/// The name of the requested page.
pub(crate) fn page_name(request: &Request) -> Option<&str> {
    // The rules have judged the URL of the client.
    if request.is_rewritten() {
        return None;
    }
    let path = request.url.path_and_query();
    let name = page_in(path)?;
    if !is_own(request) {
        return None;
    }
    let end = name.iter().position(|&byte| byte == b'?').unwrap_or(name.len());
    let name = std::str::from_utf8(name.get(..end)?).ok()?;
    Some(if path.starts_with(METRICS_PATH) { "metrics" } else { name })
}

/// Whether a host name is one of this proxy's for the clients of a port.
pub fn is_own_name(snapshot: &Snapshot, port: &HttpPort, host: &[u8]) -> bool {
    let is_host = |name: &str| host.eq_ignore_ascii_case(name.as_bytes());
    let (names, config) = (&snapshot.names, &snapshot.config);
    let is_alias = || config.hostname_aliases.iter().any(|name| is_host(name));
    if port.mode != PortMode::Forward {
        let mut given = [&config.visible_hostname, &config.unique_hostname].into_iter().flatten();
        let is_the_site = port.defaultsite.as_deref().is_some_and(is_host);
        return !is_the_site && (given.any(|name| is_host(name)) || is_alias());
    }
    [&*names.hostname, &*names.unique, "localhost"].into_iter().any(is_host) || is_alias()
}

/// Whether the URL names this proxy.
///
/// On a forward-proxy port, the proxy's names and address count, with the port of the connection. A
/// request with only a path came directly. It may have had another port on its way, so any port and
/// any address count for it. A foreign name never counts: a web page can make its own name lead to
/// this address (DNS rebinding).
///
/// On other ports the proxy plays the origin, and only names that the configuration gives the proxy
/// count. The machine's address, `localhost` and the site's own name (`defaultsite`) belong to the
/// site.
fn is_own(request: &Request) -> bool {
    // Who is inside of a tunnel to a server means that server.
    if request.goes_astray() || request.inside().is_some() {
        return false;
    }
    let facts = request.facts();
    let (host, has_own_port) = (request.url.host(), request.url.port() == facts.local.port());
    let is_name = || is_own_name(request.snapshot(), &facts.port, host);
    if facts.port.mode != PortMode::Forward {
        return has_own_port && is_name();
    }
    let is_direct = request.head.target == Target::Origin;
    let is_own_address = || {
        let address = host_ip(host).map(unmapped);
        let local = unmapped(facts.local.ip());
        let is_here = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified() || ip == local;
        address.is_some_and(|address| is_direct || is_here(address))
    };
    (is_direct || has_own_port) && (is_name() || is_own_address())
}
