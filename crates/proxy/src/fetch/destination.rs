//! The destination of a connection to a server, and the form of requests to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use humboldt_conf::CachePeer;
use humboldt_net::pool::{Local, ServerRef};

use crate::config::peers::Peer;
use crate::request::Request;
use crate::rules::access;

/// The destination of a connection, and the form of requests to it.
pub(crate) struct Destination {
    host: Box<str>,
    pub port: u16,
    /// Our own address on the connection.
    pub local: Local,
    /// It is a proxy: targets have absolute form.
    pub is_proxy: bool,
    /// `forceddomain=`.
    pub forced_host: Option<Box<str>>,
    /// `login=`.
    pub login: Option<Box<str>>,
    /// `proxy-only`: answers of this peer are not stored.
    pub proxy_only: bool,
}

impl Destination {
    /// The key under which the pool keeps the connection.
    pub(crate) fn server(&self) -> ServerRef<'_> {
        ServerRef { host: &self.host, port: self.port, local: self.local }
    }

    pub(crate) fn direct(request: &Request) -> Self {
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

    pub(crate) fn peer(peer: &Peer, request: &Request) -> Self {
        let conf: &CachePeer = &peer.conf;
        Self {
            // A peer is a separate server, even if an origin has the same address.
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

/// Our own addresses for connections of this request (`tcp_outgoing_address`): the best one of each
/// family.
fn local(request: &Request) -> Local {
    let (mut v4, mut v6): (Option<Ipv4Addr>, Option<Ipv6Addr>) = (None, None);
    let rules = request.snapshot().outgoing.iter();
    for (ip, _) in rules.filter(|(_, condition)| access::matches(condition, request)) {
        match ip {
            IpAddr::V4(ip) => v4 = v4.or(Some(*ip)),
            IpAddr::V6(ip) => v6 = v6.or(Some(*ip)),
        }
    }
    Local { v4, v6 }
}
