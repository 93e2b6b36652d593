//! Options of name look-ups.

use std::net::SocketAddr;
use std::time::Duration;

/// Options of name look-ups.
#[derive(Clone, Debug)]
pub struct DnsOptions {
    /// Name servers (`dns_nameservers`); when empty, those of `/etc/resolv.conf`.
    pub nameservers: Vec<SocketAddr>,
    /// Longest wait for one name (`dns_timeout`).
    pub timeout: Duration,
    /// Wait before a question is repeated (`dns_retransmit_interval`).
    pub retransmit: Duration,
    /// Appended to names without a dot (`append_domain`, begins with a dot).
    pub append_domain: Option<String>,
    /// Names without a dot are looked up in the domains of `/etc/resolv.conf` first, where its
    /// servers are asked (`dns_defnames`).
    pub search: bool,
    /// Longest time an answer is kept, whatever its TTL (`positive_dns_ttl`).
    pub positive_ttl: Duration,
    /// Time a failure is kept; also the shortest time an answer is kept, as in Squid
    /// (`negative_dns_ttl`).
    pub negative_ttl: Duration,
}

impl Default for DnsOptions {
    /// Squid's defaults: the system's servers, 30 s, every 5 s, 6 hours, 1 minute.
    fn default() -> Self {
        Self {
            nameservers: Vec::new(),
            timeout: Duration::from_secs(30),
            retransmit: Duration::from_secs(5),
            append_domain: None,
            search: false,
            positive_ttl: Duration::from_secs(6 * 3600),
            negative_ttl: Duration::from_secs(60),
        }
    }
}
