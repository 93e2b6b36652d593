//! Other caches.

use super::directive::{Directive, known};

macro_rules! working {
    ($next:ident $($rest:ident)* => $($done:tt)*) => {
        $next! { $($rest)* => $($done)* ["Peers" {
    /// Another cache or, with `originserver`, a server behind this accelerator. Only parents are
    /// asked; siblings and multicast groups need queries between caches, which are not implemented.
    cache_peer | cache_host: Vec<CachePeer> = Peers(""),
        "cache_peer HOST parent|sibling|multicast HTTP-PORT ICP-PORT [OPTION ...]";
    /// Which requests a peer may get. All when there is no rule for it.
    cache_peer_access: Vec<PeerAccess> = PeerRules(""), "cache_peer_access NAME allow|deny [!]ACL ...";
    /// Domains for which a peer is used (or, with `!`, not used). The old form of
    /// `cache_peer_access`.
    cache_peer_domain | cache_host_domain: Vec<PeerDomain> = PeerDomains(""), "cache_peer_domain NAME [!]DOMAIN ...";
    /// Requests that cannot be cached go directly to the server rather than to a parent.
    nonhierarchical_direct: bool = OnOff("on"), "nonhierarchical_direct on|off";
    /// Try the server before the parents.
    prefer_direct: bool = OnOff("off"), "prefer_direct on|off";
    /// Port of UDP on which other caches ask with ICP, version 2, whether an object is here; 0 is
    /// none. An object counts that a request could have without asking a server, in memory or on
    /// disk. Peers of this proxy are not asked.
    icp_port | udp_port: u16 = UdpPort("0"), "icp_port PORT";
    /// Who may ask with ICP. Nobody without a rule.
    icp_access: Vec<AccessRule> = Rules(""), "icp_access allow|deny [!]ACL ...";
    /// Whether a stale object counts as a hit for those who ask with ICP.
    icp_hit_stale: bool = OnOff("off"), "icp_hit_stale on|off";
    /// Whether queries with ICP have lines in access.log.
    log_icp_queries: bool = OnOff("on"), "log_icp_queries on|off";
    /// Address on which queries with ICP come.
    udp_incoming_address: Option<IpAddr> = AnyAddress("any_addr"), "udp_incoming_address ADDRESS|any_addr";
    /// How long a peer is not used after connecting to it has failed `connect-fail-limit` times in
    /// a row.
    dead_peer_timeout: Duration = Seconds("10 seconds"), "dead_peer_timeout TIME";
        }] }
    };
}
pub(super) use working;

pub(super) const KNOWN: &[Directive] = known! { "Peers":
    Unsupported("queries between caches (ICP, HTCP, digests) are not implemented yet") {
        "neighbor_type_domain", "neighbor_type_domain NAME TYPE DOMAIN ...", "Changes the kind of a peer for some domains.";
        "htcp_port", "htcp_port PORT", "Where to listen for HTCP; 0 for not at all.";
        "udp_outgoing_address", "udp_outgoing_address ADDRESS", "Address to send queries from.";
        "icp_query_timeout", "icp_query_timeout MILLISECONDS", "How long replies are waited for; 0 adapts.";
        "maximum_icp_query_timeout", "maximum_icp_query_timeout MILLISECONDS", "Upper bound of the adapted time.";
        "minimum_icp_query_timeout", "minimum_icp_query_timeout MILLISECONDS", "Lower bound of the adapted time.";
        "background_ping_rate", "background_ping_rate TIME", "How often a peer with `background-ping` is asked.";
        "mcast_groups", "mcast_groups ADDRESS ...", "Multicast groups to join for queries.";
        "mcast_icp_query_timeout", "mcast_icp_query_timeout MILLISECONDS", "How long replies to multicast queries are counted.";
        "digest_generation", "digest_generation on|off", "Whether a digest of the cache is offered to peers.";
        "digest_bits_per_entry", "digest_bits_per_entry NUMBER", "Size of the digest.";
        "digest_rebuild_period", "digest_rebuild_period TIME", "How often the digest is rebuilt.";
        "digest_rewrite_period", "digest_rewrite_period TIME", "How often the digest is written.";
        "digest_swapout_chunk_size", "digest_swapout_chunk_size SIZE", "Bytes of the digest written at a time.";
        "digest_rebuild_chunk_percentage", "digest_rebuild_chunk_percentage PERCENT", "Part of the index scanned at a time.";
        "cache_miss_revalidate", "cache_miss_revalidate on|off", "Whether a client's conditional request is passed on when the object is not stored.";
    }
    Ignored("there is no HTCP here, so nobody can ask with it") {
        "htcp_access", "htcp_access allow|deny [!]ACL ...", "Who may ask with HTCP.";
        "htcp_clr_access", "htcp_clr_access allow|deny [!]ACL ...", "Who may purge with HTCP.";
    }
    Unsupported("distances to servers are not measured") {
        "minimum_direct_hops", "minimum_direct_hops NUMBER", "Servers nearer than this are contacted directly.";
        "minimum_direct_rtt", "minimum_direct_rtt MILLISECONDS", "Servers faster than this are contacted directly.";
        "netdb_low", "netdb_low NUMBER", "Low-water mark of the table of distances.";
        "netdb_high", "netdb_high NUMBER", "High-water mark of the table of distances.";
        "netdb_ping_period", "netdb_ping_period TIME", "Least time between measurements of a network.";
        "netdb_filename", "netdb_filename PATH", "File for the table of distances.";
        "query_icmp", "query_icmp on|off", "Whether peers are asked for their distances.";
        "test_reachability", "test_reachability on|off", "Whether ICP misses say that a server cannot be reached.";
        "pinger_program", "pinger_program PATH", "Helper that measures distances.";
        "pinger_enable", "pinger_enable on|off", "Whether that helper is started.";
    }
};
