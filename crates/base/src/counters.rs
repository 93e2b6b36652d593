//! Every counter of the program, from one table.
//!
//! Each core owns one [`Counters`]: it alone adds, with relaxed atomics that never share a cache
//! line with another core's; readers sum over all cores. Manager pages and `/metrics` are generated
//! from [`Counter::ALL`], so a counter exists everywhere or nowhere.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal;)+) => {
        /// One counter: an index into [`Counters`].
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Counter { $($(#[doc = $doc])+ $variant,)+ }

        impl Counter {
            /// All counters, in the order of their declaration.
            pub const ALL: &[Counter] = &[$(Counter::$variant,)+];

            /// The name under which `/metrics` exports it, without the `humboldt_` prefix. Names
            /// end in `_total` for counts and `_bytes_total` for bytes.
            pub fn name(self) -> &'static str {
                match self { $(Counter::$variant => $name,)+ }
            }

            /// The meaning of the counter, in one line.
            pub fn help(self) -> &'static str {
                match self { $(Counter::$variant => concat!($($doc,)+).trim_ascii(),)+ }
            }
        }
    };
}

counters! {
    /// Client connections accepted.
    ClientConnections = "client_connections_total";
    /// Client connections closed because descriptors were scarce: idle ones, the oldest first.
    ClientsGivenWay = "client_connections_given_way_total";
    /// Client connections closed because their address had `client_ip_max_connections` already.
    ClientsTurnedAway = "client_connections_turned_away_total";
    /// Connections of clients that agreed on TLS.
    TlsHandshakes = "client_tls_handshakes_total";
    /// Of these, connections that went on with the session of an earlier one.
    TlsResumed = "client_tls_resumed_total";
    /// Connections of clients to ports with TLS that did not agree on it.
    TlsFailures = "client_tls_failures_total";
    /// Handshakes that were closed because newer ones needed their places.
    TlsGivenWay = "client_tls_given_way_total";
    /// Certificates made for servers whose connections were decrypted.
    BumpLeavesMade = "bump_certificates_made_total";
    /// Decrypted connections whose certificate was there already.
    BumpLeavesFound = "bump_certificates_found_total";
    /// Certificates that waited until their client might have another one.
    BumpLeavesWaited = "bump_certificates_waited_total";
    /// Decrypted connections whose client got a certificate that shows faults of the server's.
    BumpFaultsShown = "bump_certificates_with_faults_total";
    /// Connections to be intercepted whose first bytes were no TLS, or TLS that breaks its rules.
    BumpNotTls = "bump_not_tls_total";
    /// Requests received from clients.
    ClientRequests = "client_http_requests_total";
    /// Requests answered from the cache (any kind of hit).
    ClientHits = "client_http_hits_total";
    /// Requests answered from memory.
    ClientMemoryHits = "client_http_memory_hits_total";
    /// Requests that joined a fetch in flight.
    ClientCollapsed = "client_http_collapsed_total";
    /// Requests that went on without the fetch that they shared, as their clients held up others.
    ClientLeftFetch = "client_http_left_fetch_total";
    /// Intercepted requests whose address is not known to be one of their Host.
    ClientHostConflicts = "client_http_host_conflicts_total";
    /// Requests answered with an error made by the proxy.
    ClientErrors = "client_http_errors_total";
    /// Requests refused by the access rules.
    ClientDenied = "client_http_denied_total";
    /// Requests that rules would have refused, if that were not only reported.
    ClientReported = "client_http_refusals_reported_total";
    /// Requests refused because their clients were over budget (`client_budget`).
    ClientOverBudget = "client_http_over_budget_total";
    /// Requests refused because the names of their hosts lead to private addresses
    /// (`private_destinations`), also those of the proxy itself, to refresh what is stored.
    ClientPrivateDestinations = "client_http_private_destinations_total";
    /// Bytes received from clients.
    ClientInBytes = "client_http_in_bytes_total";
    /// Bytes sent to clients.
    ClientOutBytes = "client_http_out_bytes_total";
    /// Bytes sent to clients as part of hits.
    ClientHitOutBytes = "client_http_hit_out_bytes_total";
    /// Requests sent to servers.
    ServerRequests = "server_http_requests_total";
    /// Requests to servers that failed.
    ServerErrors = "server_http_errors_total";
    /// Connections opened to servers.
    ServerConnections = "server_connections_total";
    /// Requests sent on a pooled server connection.
    ServerReuses = "server_connection_reuses_total";
    /// Requests sent again: a pooled connection was dead, or another way may bring an answer.
    ServerRetries = "server_retries_total";
    /// Bytes received from servers.
    ServerInBytes = "server_http_in_bytes_total";
    /// Bytes sent to servers.
    ServerOutBytes = "server_http_out_bytes_total";
    /// Bytes relayed through CONNECT and upgraded tunnels, both ways.
    TunnelBytes = "tunnel_bytes_total";
    /// Those of them that the kernel has moved without a copy (splice).
    TunnelSplicedBytes = "tunnel_spliced_bytes_total";
    /// Tunnels opened.
    Tunnels = "tunnels_total";
    /// DNS look-ups answered from the name cache.
    DnsHits = "dns_cache_hits_total";
    /// DNS look-ups sent to a resolver.
    DnsMisses = "dns_cache_misses_total";
    /// DNS look-ups that failed.
    DnsErrors = "dns_errors_total";
    /// Objects stored in memory.
    MemoryStores = "memory_stores_total";
    /// Objects evicted from memory to make room.
    MemoryEvictions = "memory_evictions_total";
    /// Objects written to a cache directory.
    SwapOuts = "swap_outs_total";
    /// Bytes written to cache directories.
    SwapOutBytes = "swap_out_bytes_total";
    /// Writes to a cache directory that failed.
    SwapOutErrors = "swap_out_errors_total";
    /// Objects read from a cache directory.
    SwapIns = "swap_ins_total";
    /// Bytes read from cache directories.
    SwapInBytes = "swap_in_bytes_total";
    /// Reads from a cache directory that failed or did not verify: each was answered as a miss.
    SwapInErrors = "swap_in_errors_total";
    /// Objects removed from cache directories to make room.
    SwapEvictions = "swap_evictions_total";
    /// Objects removed by purges and invalidations.
    Purges = "purges_total";
    /// Tags that were purged.
    TagPurges = "tag_purges_total";
    /// Prefixes of URLs that were purged.
    PrefixPurges = "prefix_purges_total";
    /// Lines of the access log that were dropped because its writer could not keep up.
    AccessLogDropped = "access_log_dropped_total";
    /// Faults of the program: each has a line about a panic in cache.log.
    Panics = "panics_total";
}

/// The counters of one core. Aligned so that two cores never write to the same cache line.
#[repr(align(128))]
#[derive(Debug)]
pub struct Counters([AtomicU64; Counter::ALL.len()]);

impl Default for Counters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Counters {
    /// Adds `n`. Only the owning core may call this (a plain load and store, no locked
    /// instruction).
    pub fn add(&self, counter: Counter, n: u64) {
        let cell = &self.0[counter as usize];
        cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The value now.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize].load(Relaxed)
    }
}

/// Sums one counter over several cores.
pub fn sum<'a>(cores: impl IntoIterator<Item = &'a Counters>, counter: Counter) -> u64 {
    cores.into_iter().map(|core| core.get(counter)).fold(0, u64::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_over_cores() {
        let (a, b) = (Counters::default(), Counters::default());
        a.add(Counter::ClientHits, 2);
        b.add(Counter::ClientHits, 3);
        assert_eq!(sum([&a, &b], Counter::ClientHits), 5);
        assert_eq!(sum([&a, &b], Counter::ClientErrors), 0);
    }

    #[test]
    fn names_are_unique_and_follow_the_convention() {
        let mut names: Vec<_> = Counter::ALL.iter().map(|c| c.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Counter::ALL.len());
        assert!(names.iter().all(|n| n.ends_with("_total")));
        assert!(Counter::ALL.iter().all(|c| c.help().ends_with('.')));
    }
}
