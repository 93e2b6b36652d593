//! Whether a request is for the proxy itself.

use std::net::IpAddr;

use humboldt_conf::PortMode;
use humboldt_http::Target;

use crate::request::{Request, host_ip, unmapped};

/// Path under which the manager pages are.
const MANAGER_PREFIX: &[u8] = b"/squid-internal-mgr/";

/// Path of the metrics.
const METRICS_PATH: &[u8] = b"/metrics";

/// Whether the request is for the proxy itself: a manager page, or its metrics.
pub(crate) fn is_internal(request: &Request) -> bool {
    page_name(request).is_some()
}

/// The name of the page asked for.
pub(crate) fn page_name(request: &Request) -> Option<&str> {
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
        let address = host_ip(host).map(unmapped);
        let local = unmapped(facts.local.ip());
        let is_here = |ip: IpAddr| ip.is_loopback() || ip.is_unspecified() || ip == local;
        address.is_some_and(|address| is_direct || is_here(address))
    };
    (is_direct || has_own_port) && (is_name() || is_own_address())
}
