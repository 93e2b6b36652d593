//! Ports, addresses, names and connections.

use super::directive::{Directive, known};

macro_rules! working {
    ($next:ident $($rest:ident)* => $($done:tt)*) => {
        $next! { $($rest)* => $($done)* ["Network" {
    /// Where to listen. `accel` makes an accelerator in front of servers; `intercept` takes
    /// connections that a packet filter redirects. `unix:/path` is a Unix socket, and `socks` lets
    /// clients speak SOCKS5 ([tunnels.md](tunnels.md)). Without any line it is port 3128 of every
    /// address, as in old versions of Squid.
    http_port | ascii_port: Vec<HttpPort> = Ports(""),
        "http_port [ADDRESS:]PORT|unix:/PATH [accel|intercept] [OPTION ...]";
    /// Where to listen with TLS: for an accelerator with `accel`, otherwise for a proxy that is
    /// talked to through TLS (`curl -x https://…`). It has the options of `http_port` too. Files
    /// are read when squid.conf is; a reconfiguration reads them again. See docs/tls.md.
    https_port: Vec<HttpPort> = HttpsPorts(""),
        "https_port [ADDRESS:]PORT|unix:/PATH [accel] tls-cert=FILE [OPTION ...]";
    /// TLS to servers: of accelerators, and for absolute `https://` URLs. Servers are verified by
    /// the authorities of the system and `cafile=`. Several lines add up.
    tls_outgoing_options: TlsOutgoing = OutgoingTls(""), "tls_outgoing_options OPTION ...";
    /// Whether a request is refused with 409 whose URL and Host do not agree. On an intercepted
    /// connection, the address that the client connected to must be one of the host's, with the
    /// same port; elsewhere, Host must name the host and port of the URL. With `off`, an
    /// intercepted request that does not agree goes to the address that the client connected to,
    /// neither from nor into the cache. Rules about the host then see the name that the client
    /// wrote: with rules that allow by name, say `on`. A CONNECT that does not agree is always
    /// refused.
    host_verify_strict: bool = OnOff("off"), "host_verify_strict on|off";
    /// Whether intercepted requests go to the address that the client connected to, and to no
    /// parent, as in Squid also where `never_direct` applies. With `off`, a request goes where
    /// others go if that address is one of the host's.
    client_dst_passthru: bool = OnOff("on"), "client_dst_passthru on|off";
    /// Local address of connections to servers; the first line whose ACLs all match. A connection
    /// that is kept is only used again for requests with the same local address.
    tcp_outgoing_address: Vec<OutgoingAddress> = OutgoingAddresses(""), "tcp_outgoing_address ADDRESS [[!]ACL ...]";
    /// Type of service (DSCP) of packets to servers, from their first one on: a number whose last
    /// two bits are 0, or `default`. The first line whose ACLs all match. A connection that is kept
    /// is only used again for requests with the same type of service.
    tcp_outgoing_tos | tcp_outgoing_ds | tcp_outgoing_dscp: Vec<TosRule> = TosRules(""),
        "tcp_outgoing_tos VALUE|default [[!]ACL ...]";
    /// Netfilter mark of packets to servers, in the same way. Marks need CAP_NET_ADMIN, which is
    /// kept when the program is started as root; without it a warning says so once, and packets
    /// have no mark.
    tcp_outgoing_mark: Vec<MarkRule> = MarkRules(""), "tcp_outgoing_mark MARK [[!]ACL ...]";
    /// Type of service of packets to clients, for each answer from its head on. The first line
    /// whose ACLs all match; without one the system's own.
    clientside_tos: Vec<TosRule> = TosRules(""), "clientside_tos VALUE|default [[!]ACL ...]";
    /// Netfilter mark of packets to clients, in the same way.
    mark_client_packet | clientside_mark: Vec<MarkRule> = MarkRules(""),
        "mark_client_packet MARK [[!]ACL ...]";
    /// Netfilter mark of the connection itself (CONNMARK) when an answer begins; with a mask, the
    /// other bits stay. The kernel has to follow the connection, which it does if its packet filter
    /// has a rule about connections. A connection that a load balancer announces is not marked.
    mark_client_connection: Vec<MarkRule> = ConnectionMarkRules(""),
        "mark_client_connection MARK[/MASK] [[!]ACL ...]";
    /// Type of service (`tos`) or netfilter mark (`mark`) of packets to clients, by the source of
    /// the answer: `local-hit=` from the cache, `miss=VALUE[/MASK]` otherwise. It takes the place
    /// of `clientside_tos` and `mark_client_packet`. No other cache is asked for hits, so
    /// `sibling-hit=` and `parent-hit=` have no effect, and what a server's packets carried is not
    /// copied to the client (`disable-preserve-miss`); warnings say so.
    qos_flows: QosFlows = Flows(""), "qos_flows [tos|mark] OPTION ...";
    /// Whether connections to clients are kept for further requests.
    client_persistent_connections: bool = OnOff("on"), "client_persistent_connections on|off";
    /// Whether connections to servers are kept for further requests.
    server_persistent_connections: bool = OnOff("on"), "server_persistent_connections on|off";
    /// Keep a connection whose client has closed its sending half until the answer is sent, but not
    /// for longer than 60 seconds in which nothing comes for it (a tunnel: 10 seconds): one that
    /// has closed both halves looks the same until it is sent something. With `off` a client that
    /// has closed its sending half gets an answer only if that is there at once, as a hit from
    /// memory is. Where descriptors are scarce, such a connection is closed earlier.
    half_closed_clients: bool = OnOff("off"), "half_closed_clients on|off";
    /// Name servers to ask instead of those in /etc/resolv.conf.
    dns_nameservers: Vec<String> = Words(""), "dns_nameservers ADDRESS ...";
    /// Longest time for a look-up of a name, and before that for a place among the look-ups under
    /// way, whose number is limited for each client and zone.
    dns_timeout: Duration = Millis("30 seconds"), "dns_timeout TIME";
    /// Whether the search list of /etc/resolv.conf is applied to names without a dot. It belongs to
    /// the name servers of that file: with `dns_nameservers` there is no such list.
    dns_defnames: bool = OnOff("off"), "dns_defnames on|off";
    /// Longest time that an address is remembered, even if the name server allows more.
    positive_dns_ttl: Duration = Seconds("6 hours"), "positive_dns_ttl TIME";
    /// Time that a failed look-up is remembered.
    negative_dns_ttl: Duration = Seconds("1 minute"), "negative_dns_ttl TIME";
    /// File with names and addresses that come before the DNS.
    hosts_file: Option<String> = OptText("/etc/hosts"), "hosts_file PATH|none";
    /// Domain that is appended to host names without a dot; starts with a dot.
    append_domain: Option<String> = OptText("none"), "append_domain .DOMAIN";
    /// Number of names whose addresses are remembered.
    ipcache_size: u32 = Count("1024"), "ipcache_size NUMBER";
    /// Head start of an address family before the other one is tried, in milliseconds.
    happy_eyeballs_connect_timeout: u32 = Count("250"), "happy_eyeballs_connect_timeout MILLISECONDS";
    /// Most file descriptors to use; 0 takes the system's hard limit.
    max_filedescriptors | max_filedesc: u32 = Count("0"), "max_filedescriptors NUMBER";
        }] }
    };
}
pub(super) use working;

pub(super) const KNOWN: &[Directive] = known! { "Network":
    Unsupported("FTP is not implemented: this port is not opened") {
        "ftp_port", "ftp_port [ADDRESS:]PORT [MODE] [OPTION ...]", "Where to listen for native FTP.";
    }
    Unsupported("keys with a passphrase are refused: decrypt them once, with `openssl pkey`") {
        "sslpassword_program", "sslpassword_program COMMAND", "Program that prints the passphrase of a key.";
    }
    Ignored("TLS connections end with a notice (close_notify), unless an answer is cut off") {
        "ssl_unclean_shutdown", "ssl_unclean_shutdown on|off", "Whether TLS connections may end without a notice.";
    }
    Ignored("the system's own sizes and methods are used") {
        "tcp_recv_bufsize", "tcp_recv_bufsize SIZE", "Size of receive buffers.";
        "accept_filter", "accept_filter NAME", "Filter that delays new connections until they have data.";
        "incoming_udp_average" | "incoming_icp_average", "incoming_udp_average NUMBER", "Tuning of Squid's event loop.";
        "incoming_tcp_average" | "incoming_http_average", "incoming_tcp_average NUMBER", "Tuning of Squid's event loop.";
        "incoming_dns_average", "incoming_dns_average NUMBER", "Tuning of Squid's event loop.";
        "min_udp_poll_cnt" | "min_icp_poll_cnt", "min_udp_poll_cnt NUMBER", "Tuning of Squid's event loop.";
        "min_dns_poll_cnt", "min_dns_poll_cnt NUMBER", "Tuning of Squid's event loop.";
        "min_tcp_poll_cnt" | "min_http_poll_cnt", "min_tcp_poll_cnt NUMBER", "Tuning of Squid's event loop.";
    }
    Ignored("requests that a client sends ahead wait in memory, 64 KB of them, and are answered in sequence") {
        "pipeline_prefetch", "pipeline_prefetch NUMBER", "Requests that a client may send ahead while one is being answered.";
    }
    Ignored("attempts are spaced by `happy_eyeballs_connect_timeout` alone") {
        "happy_eyeballs_connect_gap", "happy_eyeballs_connect_gap MILLISECONDS", "Least time between attempts of the second family.";
        "happy_eyeballs_connect_limit", "happy_eyeballs_connect_limit NUMBER", "Most attempts of the second family at a time.";
    }
    Ignored("every address of a name is tried once, in an order that spreads load") {
        "connect_retries", "connect_retries NUMBER", "Further attempts to connect to an address.";
    }
    Ignored("the resolver does this by itself") {
        "dns_retransmit_interval", "dns_retransmit_interval TIME", "Time until a query is repeated.";
        "dns_packet_max", "dns_packet_max SIZE", "Largest answer accepted over UDP.";
        "dns_multicast_local", "dns_multicast_local on|off", "Whether names ending in `.local` are asked for by multicast.";
        "ignore_unknown_nameservers", "ignore_unknown_nameservers on|off", "Whether answers from other addresses are dropped.";
        "ipcache_low", "ipcache_low PERCENT", "Low-water mark of the memory for addresses.";
        "ipcache_high", "ipcache_high PERCENT", "High-water mark of the memory for addresses.";
    }
    Ignored("names of clients have their places among the `ipcache_size`") {
        "fqdncache_size", "fqdncache_size NUMBER", "Number of clients' names that are remembered.";
    }
    Ignored("host names are checked by RFC 3986, underscores allowed") {
        "check_hostnames", "check_hostnames on|off", "Whether host names are checked.";
        "allow_underscore", "allow_underscore on|off", "Whether host names may contain underscores.";
    }
    Ignored("connections are closed at the first error anyway") {
        "detect_broken_pconn", "detect_broken_pconn on|off", "Whether servers that mishandle persistent connections are recognised.";
        "persistent_connection_after_error", "persistent_connection_after_error on|off", "Whether connections stay open after HTTP errors.";
    }
    Ignored("the kernel is asked where a file has an ACL `arp` or `%>eui`, and not else") {
        "eui_lookup", "eui_lookup on|off", "Whether hardware addresses of clients are looked up.";
    }
};
