//! A connection to whoever is to answer: from the pool, or new.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use humboldt_base::counters::Counter;
use humboldt_conf::{CachePeer, HttpPort};
use humboldt_net::connect::{ConnectOptions, Connected};
use humboldt_net::dns::Asker;
use humboldt_net::pool::{Local, ServerRef};

use crate::access;
use crate::core::Core;
use crate::errors::ErrorPage;
use crate::job::Failure;
use crate::peers::{Peer, Way};
use crate::request::Request;
use crate::server::ServerConn;

/// Where a connection leads, and how to talk there.
pub(crate) struct Reached {
    host: Box<str>,
    port: u16,
    /// From where.
    local: Local,
    /// A proxy: absolute-form targets.
    pub is_proxy: bool,
    /// `forceddomain=`.
    pub forced_host: Option<Box<str>>,
    /// `login=`.
    pub login: Option<Box<str>>,
    /// `proxy-only`: what comes from there is not stored.
    pub proxy_only: bool,
}

impl Reached {
    /// How the pool files the connection.
    pub(crate) fn server(&self) -> ServerRef<'_> {
        ServerRef { host: &self.host, port: self.port, local: self.local }
    }

    fn direct(request: &Request) -> Self {
        let host = String::from_utf8_lossy(request.url.host()).into();
        Self {
            host,
            port: request.url.port(),
            local: local(request),
            is_proxy: false,
            forced_host: None,
            login: None,
            proxy_only: false,
        }
    }

    fn peer(peer: &Peer, request: &Request) -> Self {
        let conf: &CachePeer = &peer.conf;
        Self {
            // A peer is a server of its own even where an origin has the same address.
            host: format!("peer:{}", conf.name).into(),
            port: conf.http_port,
            local: local(request),
            is_proxy: !conf.originserver,
            forced_host: conf.forceddomain.as_deref().map(Into::into),
            login: peer.login.as_deref().map(Into::into),
            proxy_only: conf.proxy_only,
        }
    }
}

/// Connects by one way; takes a pooled connection if `reuse` allows it.
pub(crate) async fn reach(
    core: &Core,
    request: &Request,
    way: &Way,
    reuse: bool,
) -> Result<(ServerConn, Reached), Failure> {
    let snapshot = request.snapshot();
    let config = &snapshot.config;
    let (reached, peer) = match way {
        Way::Direct => {
            if request.url.scheme() != b"http" && !request.url.scheme().is_empty() {
                return Err(Failure::new(ErrorPage::UnsupportedScheme, ""));
            }
            (Reached::direct(request), None)
        }
        Way::Peer(index, _) => {
            let peer =
                snapshot.peers.get(*index).ok_or_else(|| Failure::new(ErrorPage::NoForward, ""))?;
            (Reached::peer(peer, request), Some(peer))
        }
    };
    // To a name that leads elsewhere now, or for others only, there may be connections still.
    let may_use =
        |connected: &Connected| peer.is_some() || access::may_reuse(request, connected.peer.ip());
    if reuse && let Some(connected) = core.pool.checkout(&reached.server(), may_use) {
        core.count(Counter::ServerReuses, 1);
        return Ok((ServerConn::new(core, connected, true, config.read_timeout), reached));
    }
    let addresses = match peer {
        Some(peer) => core.look_up(&peer.conf.host, Asker::Proxy).await,
        None => access::reachable(core, request).await,
    };
    let timeout = match peer {
        Some(peer) => peer.conf.connect_timeout.unwrap_or(config.peer_connect_timeout),
        None => config.connect_timeout,
    };
    let result = match addresses {
        Ok(addresses) => connect_to(core, request, &addresses, &reached, timeout).await,
        Err(error) => Err(Failure::new(ErrorPage::DnsFailure, error.to_string())),
    };
    if let Some(peer) = peer {
        match &result {
            Ok(_) => peer.note_success(),
            Err(_) => peer.note_failure(request.received.secs()),
        }
    }
    let connected = result?;
    core.count(Counter::ServerConnections, 1);
    Ok((ServerConn::new(core, connected, false, config.read_timeout), reached))
}

/// The addresses that connections for this request come from (`tcp_outgoing_address`): the best of
/// each family.
fn local(request: &Request) -> Local {
    let (mut v4, mut v6): (Option<Ipv4Addr>, Option<Ipv6Addr>) = (None, None);
    for outgoing in request.snapshot().outgoing_addresses(request) {
        match outgoing {
            IpAddr::V4(ip) => v4 = v4.or(Some(ip)),
            IpAddr::V6(ip) => v6 = v6.or(Some(ip)),
        }
    }
    Local { v4, v6 }
}

/// Connects to one of the addresses.
async fn connect_to(
    core: &Core,
    request: &Request,
    addresses: &[IpAddr],
    reached: &Reached,
    timeout: Duration,
) -> Result<Connected, Failure> {
    let others: Vec<IpAddr> = addresses
        .iter()
        .copied()
        .filter(|&ip| !leads_to_ourselves(request, ip, reached.port))
        .collect();
    if others.is_empty() && !addresses.is_empty() {
        return Err(Failure::new(ErrorPage::ForwardLoop, "the address is this proxy's own"));
    }
    let head_start_ms = request.snapshot().config.happy_eyeballs_connect_timeout;
    let options = ConnectOptions {
        timeout,
        stagger: Duration::from_millis(head_start_ms.into()),
        local_v4: reached.local.v4,
        local_v6: reached.local.v6,
    };
    core.connect(&others, reached.port, &options).await.map_err(|error| Failure::from(&error))
}

/// Whether a connection to `ip` would be one to a port of this proxy. There the proxy would be the
/// client, with rights that its own client may not have; and most requests would go round for ever.
fn leads_to_ourselves(request: &Request, ip: IpAddr, port: u16) -> bool {
    let facts = request.facts();
    let target = destination(ip);
    let listens_at = |own: &HttpPort| match own.addr.map(access::unmapped) {
        Some(own) if !own.is_unspecified() => own == target,
        // Where a name leads was found out when the port was opened; any address of the machine may
        // be it.
        _ => humboldt_net::is_own_address(target),
    };
    let is_this_one = (access::unmapped(facts.local.ip()), facts.local.port()) == (target, port);
    let ports = &request.snapshot().config.http_port;
    is_this_one || ports.iter().any(|own| own.port == port && listens_at(own))
}

/// The address that a connection to `ip` comes to: the unspecified one means this machine.
fn destination(ip: IpAddr) -> IpAddr {
    match access::unmapped(ip) {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}
