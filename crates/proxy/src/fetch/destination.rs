//! The destination of a connection to a server.

use std::hash::Hasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use humboldt_base::rng;
use humboldt_conf::{CachePeer, PortMode};
use humboldt_net::connect::Connected;
use humboldt_net::pool::{Local, ServerRef};
use humboldt_tls::ClientSide;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::config::peers::{Login, Peer};
use crate::core::Core;
use crate::fetch::ask;
use crate::request::{Request, unmapped};
use crate::rules::{access, marks};

/// The destination of a connection for a request.
pub(crate) struct Destination {
    /// The parent; `None`: the host that the URL names.
    pub peer: Option<Arc<Peer>>,
    /// Our own address on the connection.
    pub local: Local,
    /// The tunnel through the parent: what is confidential goes to its server in one.
    tunnel: Option<Tunnel>,
}

/// A tunnel that a parent opens to a server.
struct Tunnel {
    /// Its name, as pools know it.
    name: Box<[u8]>,
    /// The parent opens it by credentials that it takes once, such as those of Digest: it is for
    /// the client's connection that has brought them.
    is_for_one: bool,
}

thread_local! {
    /// The key of the hashes of credentials in the names of tunnels. Pools are the core's own too.
    static SECRET: (u64, u64) = (rng::secret(), rng::secret());
}

impl Destination {
    pub(crate) fn new(request: &Request, peer: Option<&Arc<Peer>>) -> Self {
        let name = peer.map(|peer| &*peer.conf.name);
        let local = match spoofed(request, peer.map(|peer| &**peer)) {
            Some(client) => client,
            None => local(request, name),
        };
        let marks = marks::towards_server(request, name);
        let is_tunnel = |peer: &&Arc<Peer>| request.is_confidential() && !peer.conf.originserver;
        let tunnel = peer.filter(is_tunnel).map(|peer| Tunnel::new(request, peer));
        Self { peer: peer.cloned(), local: Local { marks, ..local }, tunnel }
    }

    /// Whether what is sent to a parent goes through a tunnel to the server.
    pub(crate) fn is_tunnel(&self) -> bool {
        self.tunnel.is_some()
    }

    /// Whether what must not be read on the way can go there.
    pub(crate) fn is_safe_for(&self, request: &Request) -> bool {
        !request.is_confidential() || self.tls(request).is_some()
    }

    /// The server, as the pool knows it.
    pub(crate) fn server<'a>(&'a self, request: &'a Request) -> ServerRef<'a> {
        let (host, port) = match &self.peer {
            Some(peer) => {
                let parent: &CachePeer = &peer.conf;
                let tunnel = self.tunnel.as_ref().map(|tunnel| &*tunnel.name);
                (tunnel.unwrap_or(peer.pool_name.as_bytes()), parent.http_port)
            }
            None => {
                let original = request.original_destination();
                let port = original.map_or_else(|| request.url.port(), |original| original.port());
                (request.url.host(), port)
            }
        };
        let tls = self.tls(request).map_or(0, ClientSide::number);
        ServerRef { host, port, tls, local: self.local }
    }

    /// The settings of TLS with who answers the request, if there has to be any.
    pub(crate) fn tls<'a>(&'a self, request: &'a Request) -> Option<&'a ClientSide> {
        match &self.peer {
            Some(peer) if !self.is_tunnel() => peer.tls.as_ref(),
            _ if request.is_secure() => request.snapshot().tls.outgoing(),
            _ => None,
        }
    }

    /// The settings of TLS with the parent, if there has to be any, around a tunnel.
    pub(crate) fn tls_of_parent(&self) -> Option<&ClientSide> {
        self.peer.as_ref()?.tls.as_ref()
    }

    /// The host that its certificate is for, unless the settings name another one.
    pub(crate) fn certified_host<'a>(&'a self, request: &'a Request) -> &'a [u8] {
        match &self.peer {
            Some(peer) if !self.is_tunnel() => peer.conf.host.as_bytes(),
            _ => request.url.host(),
        }
    }

    /// Whether the client's credentials for a proxy go there.
    pub(crate) fn passes_logins(&self) -> bool {
        self.is_proxy() && self.login().is_some_and(Login::is_of_client)
    }

    /// Whether who answers is a proxy.
    pub(crate) fn is_proxy(&self) -> bool {
        let is_proxy = self.peer.as_ref().is_some_and(|peer| !peer.conf.originserver);
        is_proxy && !self.is_tunnel()
    }

    /// `login=` of the parent, if the parent answers.
    pub(crate) fn login(&self) -> Option<&Login> {
        self.login_of_parent().filter(|_| !self.is_tunnel())
    }

    /// The same where it opens a tunnel.
    pub(crate) fn login_of_parent(&self) -> Option<&Login> {
        self.peer.as_ref()?.login.as_ref()
    }

    /// Whether only the client may use the connection whose connection has asked for it.
    pub(crate) fn is_for_one(&self) -> bool {
        self.tunnel.as_ref().is_some_and(|tunnel| tunnel.is_for_one)
    }

    /// Keeps a connection for all requests that may use it.
    pub(crate) fn keep(&self, core: &Core, request: &Request, connected: Connected) {
        let server = self.server(request);
        match (self.is_for_one(), request.inside()) {
            (false, _) => core.pool.checkin(&server, connected),
            (true, Some(inside)) => inside.keep(&server, connected),
            (true, None) => {}
        }
    }

    /// A connection that was kept.
    pub(crate) fn kept(
        &self,
        core: &Core,
        request: &Request,
        may_use: impl Fn(&Connected) -> bool,
    ) -> Option<Connected> {
        let server = self.server(request);
        match self.is_for_one() {
            false => core.pool.checkout(&server, may_use),
            true => request.inside()?.kept(&server, may_use),
        }
    }
}

impl Tunnel {
    /// Its name has the settings of TLS with the parent, and the credentials by which the parent
    /// opens it, as it may not open it for others: a hash of them, since names stay for a while.
    fn new(request: &Request, peer: &Peer) -> Self {
        let port = request.url.port().to_string();
        let tls = peer.tls.as_ref().map_or(0, ClientSide::number).to_string();
        let login = ask::tunnel_login(request, peer.login.as_ref());
        let name = peer.pool_name.as_bytes();
        // No host has a space.
        let parts = [name, request.url.host(), port.as_bytes(), tls.as_bytes(), &hashed(&login)];
        let is_for_one = !login.is_empty() && !ask::is_basic(&login);
        Self { name: parts.join(&b' ').into_boxed_slice(), is_for_one }
    }
}

/// A hash of credentials that nobody can go back from, or find others for.
fn hashed(login: &[u8]) -> [u8; 16] {
    let (first, second) = SECRET.with(|secret| *secret);
    let mut hasher = SipHasher24::new_with_keys(first, second);
    hasher.write(login);
    hasher.finish128().as_bytes()
}

/// The client's address, if the server is to see that (`tproxy`, `spoof_client_ip`).
fn spoofed(request: &Request, peer: Option<&Peer>) -> Option<Local> {
    let snapshot = request.snapshot();
    let shows_client = request.facts().port.mode == PortMode::Tproxy
        && !peer.is_some_and(|peer| peer.conf.no_tproxy)
        && access::matches(&snapshot.spoof_client_ip, request);
    let indirect = request.indirect_client.filter(|_| snapshot.config.tproxy_uses_indirect_client);
    let client = shows_client.then(|| unmapped(indirect.unwrap_or_else(|| request.client_ip())))?;
    Some(match client {
        IpAddr::V4(ip) => Local { v4: Some(ip), is_foreign: true, ..Local::default() },
        IpAddr::V6(ip) => Local { v6: Some(ip), is_foreign: true, ..Local::default() },
    })
}

/// Our own addresses for connections of this request to this parent, or to the origin
/// (`tcp_outgoing_address`): the best one of each family.
fn local(request: &Request, peer: Option<&str>) -> Local {
    let (mut v4, mut v6): (Option<Ipv4Addr>, Option<Ipv6Addr>) = (None, None);
    let rules = request.snapshot().outgoing.iter();
    let matching = rules.filter(|(_, list)| access::matches_towards(list, request, peer));
    for (ip, _) in matching {
        match ip {
            IpAddr::V4(ip) => v4 = v4.or(Some(*ip)),
            IpAddr::V6(ip) => v6 = v6.or(Some(*ip)),
        }
    }
    Local { v4, v6, ..Local::default() }
}
