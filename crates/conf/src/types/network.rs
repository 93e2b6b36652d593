//! Ports, peers and addresses.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::{AccessRule, AclTerm, BumpPort, TlsOutgoing, TlsPort};

/// The kind of traffic on a listening port.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum PortMode {
    /// Clients know that they talk to a proxy.
    #[default]
    Forward,
    /// `accel`: clients believe this is the origin.
    Accel,
    /// `intercept`: clients believe that they talk to the origin, and a packet filter sends their
    /// connections here.
    Intercept,
    /// `tproxy`: the same, and the connections keep their addresses on both sides.
    Tproxy,
}

impl PortMode {
    /// Clients believe that they talk to the origin.
    pub fn is_intercepted(self) -> bool {
        matches!(self, Self::Intercept | Self::Tproxy)
    }
}

/// `tcpkeepalive=idle,interval,timeout`, in seconds; 0 leaves the system's value.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpKeepalive {
    /// Idle time before the first probe.
    pub idle_s: u32,
    /// Time between probes.
    pub interval_s: u32,
    /// Time until the connection is given up.
    pub timeout_s: u32,
}

/// The place of a port that is a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixPlace {
    /// The file.
    pub path: PathBuf,
    /// `mode=`: the rights of the file. Who may write to it may connect.
    pub mode: u32,
    /// `user=`: its owner, by name or number; the user that the program runs as by default.
    pub user: Option<String>,
    /// `group=`
    pub group: Option<String>,
}

impl UnixPlace {
    /// `mode=` by default.
    pub const MODE: u32 = 0o660;
}

/// `socks`: whether clients of a port may speak SOCKS5.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Socks {
    /// HTTP alone.
    #[default]
    No,
    /// SOCKS5 or HTTP: the first byte of a connection tells.
    Too,
    /// SOCKS5 alone.
    Only,
}

/// One `http_port` or `https_port`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpPort {
    /// A Unix socket instead of an address and a port.
    pub unix: Option<UnixPlace>,
    /// Whether clients may speak SOCKS5.
    pub socks: Socks,
    /// Address to listen on; `None` for all of them (or for those of `host`, when that is set).
    pub addr: Option<IpAddr>,
    /// Host name given instead of an address, to be resolved at start.
    pub host: Option<String>,
    /// TCP port; 0 only for a Unix socket.
    pub port: u16,
    /// Kind of traffic.
    pub mode: PortMode,
    /// `name=`; the text of the port specification when not given. For `myportname`.
    pub name: String,
    /// Accelerator: host for requests without a usable Host field.
    pub defaultsite: Option<String>,
    /// Accelerator: use the Host field (`no-vhost` switches it off).
    pub vhost: bool,
    /// Accelerator: port to use instead of the Host field's; `Some(0)` means the port of this line.
    pub vport: Option<u16>,
    /// Accelerator: `protocol=`, the scheme of the URLs that are built: `http` or `https`.
    pub protocol: &'static str,
    /// Accelerator: requests may go directly to the host they name.
    pub allow_direct: bool,
    /// `require-proxy-header`: connections begin with a header of the PROXY protocol.
    pub requires_proxy_header: bool,
    /// Cache-Control of requests is ignored.
    pub ignore_cc: bool,
    /// `ipv4`: the wildcard address means IPv4 only.
    pub ipv4_only: bool,
    /// TCP keepalive probes.
    pub tcpkeepalive: Option<TcpKeepalive>,
    /// `connection-auth=off`: clients do not hear of servers that log connections in.
    pub hides_connection_auth: bool,
    /// TLS, for an `https_port` that ends it.
    pub tls: Option<Box<TlsPort>>,
    /// `ssl-bump`: TLS that passes is intercepted, as `ssl_bump` says: in tunnels, and on an
    /// intercepted `https_port` in the connections themselves.
    pub bump: Option<Box<BumpPort>>,
    /// The line is an `https_port`: what connects there speaks TLS first.
    pub is_https: bool,
}

impl HttpPort {
    /// Whether the connections themselves are intercepted as `ssl_bump` says. Those of an
    /// `http_port` begin with a request, also where a packet filter has sent them: there only
    /// tunnels are.
    pub fn intercepts_connections(&self) -> bool {
        self.is_https && self.mode.is_intercepted() && self.bump.is_some()
    }
}

impl crate::Config {
    /// All ports, with TLS and without.
    pub fn ports(&self) -> impl Iterator<Item = &HttpPort> {
        self.http_port.iter().chain(&self.https_port)
    }
}

/// Kind of a `cache_peer`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum PeerKind {
    /// May fetch misses.
    Parent,
    /// Only asked for hits.
    Sibling,
    /// A group address for queries.
    Multicast,
}

/// The way in which a parent gets its share of requests.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum PeerSelection {
    /// In the order of the file.
    #[default]
    InOrder,
    /// `round-robin`, `weighted-round-robin`
    RoundRobin,
    /// `carp`
    Carp,
    /// `sourcehash`
    SourceHash,
}

/// `login=` of a `cache_peer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerLogin {
    /// `PASSTHRU`: the credentials of the client go on.
    Unchanged,
    /// `PASS`: so do they; where there are none, those that a helper of `external_acl_type` has
    /// told.
    OfClient,
    /// `PROXYPASS`: the same, and those for a proxy go to an `originserver` as those for a server.
    OfClientForServer,
    /// `*TEXT`: the name of the client's user, and this text, which begins with a colon.
    NameOfUser(String),
    /// `user:password`, percent-decoded.
    Own(String),
}

/// One `cache_peer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachePeer {
    /// Host name or address.
    pub host: String,
    /// Parent, sibling or multicast.
    pub kind: PeerKind,
    /// Port for HTTP, never 0.
    pub http_port: u16,
    /// `name=`; the host when not given. Unique.
    pub name: String,
    /// `originserver`: talk to it as to an origin (origin-form requests).
    pub originserver: bool,
    /// `default`: parent of last resort.
    pub default: bool,
    /// Round robin, hashing or plain order.
    pub selection: PeerSelection,
    /// `weight=`, at least 1.
    pub weight: u32,
    /// `login=`.
    pub login: Option<PeerLogin>,
    /// `no-tproxy`: it sees this proxy's address, never a client's.
    pub no_tproxy: bool,
    /// Delay pools do not slow its answers down.
    pub no_delay: bool,
    /// `forceddomain=`: the Host field sent to it.
    pub forceddomain: Option<String>,
    /// `connect-timeout=`.
    pub connect_timeout: Option<Duration>,
    /// `connect-fail-limit=`: failures after which it counts as dead, at least 1.
    pub connect_fail_limit: u32,
    /// `proxy-only`: do not store its answers.
    pub proxy_only: bool,
    /// `connection-auth=`.
    pub connection_auth: ConnectionAuth,
    /// TLS to it.
    pub tls: Option<Box<TlsOutgoing>>,
}

/// Whether servers behind a peer may log connections in (`connection-auth=`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum ConnectionAuth {
    /// The peer is a server, or says that it ties such connections together.
    #[default]
    Auto,
    /// They may.
    On,
    /// They may not.
    Off,
}

/// One `cache_peer_access` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAccess {
    /// Name of the peer.
    pub peer: String,
    /// Whether matching requests may use it.
    pub rule: AccessRule,
}

/// One domain of a `cache_peer_domain` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerDomain {
    /// Name of the peer.
    pub peer: String,
    /// `.example.com` or `host.example.com`.
    pub domain: String,
    /// True for `!domain`: the peer is not used for it.
    pub negated: bool,
}

/// One `tcp_outgoing_address` line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingAddress {
    /// The local address of connections to servers.
    pub addr: IpAddr,
    /// All must match; empty matches everything.
    pub terms: Vec<AclTerm>,
}

/// Treatment of answers whose heads have certain errors (`relaxed_header_parser`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum RelaxedParser {
    /// They are repaired.
    #[default]
    On,
    /// They are repaired, and each is a line in cache.log.
    Warn,
    /// They are refused.
    Off,
}

/// Treatment of white space in request targets (`uri_whitespace`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum UriWhitespace {
    /// The request is refused.
    #[default]
    Deny,
    /// It is left out.
    Strip,
    /// It is percent-encoded.
    Encode,
    /// The target ends before it.
    Chop,
}

/// Treatment of X-Forwarded-For (`forwarded_for`).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum ForwardedFor {
    /// The client's address is appended.
    #[default]
    On,
    /// `unknown` is appended.
    Off,
    /// The field is left as it came.
    Transparent,
    /// The field is removed.
    Delete,
    /// The field is replaced by the client's address alone.
    Truncate,
}
