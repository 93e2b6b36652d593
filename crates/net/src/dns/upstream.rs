//! Asking name servers, through `hickory-resolver`. It does the protocol; caching and the rest are
//! ours.

use std::future::Future;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError as HickoryDnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};

use super::answer::DnsError;
use super::options::DnsOptions;

/// Most addresses taken from one answer.
const ADDRESSES_MAX: usize = 64;

/// Waiting time for the other address family after one has answered (RFC 8305 section 3 recommends
/// 50 ms; longer here, because the answer is cached and shared). Tests want both, however late.
const SECOND_FAMILY_WAIT: Duration = Duration::from_millis(if cfg!(test) { 5_000 } else { 250 });

/// Repetitions of a question are bounded by `dns_timeout`, and by this.
const ATTEMPTS_MAX: u64 = 10;

/// The first name of an address and how long it holds.
type FoundName = Result<(Arc<str>, Duration), DnsError>;

/// Addresses of one answer and how long they hold.
type Found = Result<(Vec<IpAddr>, Duration), DnsError>;

pub(super) struct Upstream {
    resolver: Result<TokioResolver, Arc<str>>,
    timeout: Duration,
    search: bool,
    /// Stands for a defect.
    #[cfg(test)]
    pub(super) panics: bool,
}

impl Upstream {
    pub(super) fn new(options: &DnsOptions) -> Self {
        let resolver = build(options).map_err(|error| Arc::from(error.to_string()));
        Self {
            resolver,
            timeout: options.timeout,
            search: options.search,
            #[cfg(test)]
            panics: false,
        }
    }

    pub(super) fn unavailable_reason(&self) -> Option<&str> {
        self.resolver.as_ref().err().map(|why| &**why)
    }

    #[cfg(test)]
    pub(super) fn unusable(why: &str) -> Self {
        Self { resolver: Err(why.into()), timeout: Duration::ZERO, search: false, panics: false }
    }

    /// Asks for IPv6 and IPv4 addresses at the same time; IPv6 ones come first.
    pub(super) async fn addresses(&self, name: &str) -> Found {
        #[cfg(test)]
        assert!(!self.panics, "a defect");
        let resolver =
            self.resolver.as_ref().map_err(|why| DnsError::Unavailable(Arc::clone(why)))?;
        let mut full = Name::from_ascii(name).map_err(|_| DnsError::InvalidName)?;
        // Only a name that is not complete is tried with the search list.
        full.set_fqdn(!self.search || name.contains('.'));
        let (name_v6, name_v4) = (full.clone(), full);
        let v6 = async { collect(resolver.lookup(name_v6, RecordType::AAAA).await) };
        let v4 = async { collect(resolver.lookup(name_v4, RecordType::A).await) };
        match tokio::time::timeout(self.timeout, both_families(v6, v4)).await {
            Ok(found) => found,
            Err(_) => Err(DnsError::Timeout),
        }
    }

    /// Asks for the name that a reverse name stands for.
    pub(super) async fn name(&self, reverse: &str) -> FoundName {
        let resolver =
            self.resolver.as_ref().map_err(|why| DnsError::Unavailable(Arc::clone(why)))?;
        let mut full = Name::from_ascii(reverse).map_err(|_| DnsError::InvalidName)?;
        full.set_fqdn(true);
        let asking = resolver.lookup(full, RecordType::PTR);
        match tokio::time::timeout(self.timeout, asking).await {
            Ok(result) => first_name(result),
            Err(_) => Err(DnsError::Timeout),
        }
    }
}

fn build(options: &DnsOptions) -> Result<TokioResolver, NetError> {
    let mut builder = if options.nameservers.is_empty() {
        TokioResolver::builder_tokio()?
    } else {
        let servers = options.nameservers.iter().map(|addr| {
            let mut server = NameServerConfig::udp_and_tcp(addr.ip());
            server.connections.iter_mut().for_each(|connection| connection.port = addr.port());
            server
        });
        let config = ResolverConfig::from_name_servers(servers.collect());
        TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
    };
    tune(builder.options_mut(), options);
    builder.build()
}

fn tune(hickory: &mut ResolverOpts, options: &DnsOptions) {
    hickory.timeout = options.retransmit.min(options.timeout);
    let per_try_ms = hickory.timeout.as_millis().max(1);
    let tries = u64::try_from(options.timeout.as_millis() / per_try_ms).unwrap_or(ATTEMPTS_MAX);
    hickory.attempts = tries.clamp(1, ATTEMPTS_MAX) as usize;
    hickory.cache_size = 0;
    hickory.use_hosts_file = ResolveHosts::Never;
}

/// Waits for both answers, but not long for the second one when the first has addresses.
async fn both_families(v6: impl Future<Output = Found>, v4: impl Future<Output = Found>) -> Found {
    let (mut v6, mut v4) = (pin!(v6), pin!(v4));
    let (v6_found, v4_found) = tokio::select! {
        found = &mut v6 => { let other = second(&found, v4).await; (Some(found), other) }
        found = &mut v4 => { let other = second(&found, v6).await; (other, Some(found)) }
    };
    match (v6_found, v4_found) {
        (Some(Ok((mut first, ttl_a))), Some(Ok((second, ttl_b)))) => {
            first.extend(second);
            Ok((first, ttl_a.min(ttl_b)))
        }
        (Some(Ok(found)), _) | (_, Some(Ok(found))) => Ok(found),
        (Some(Err(a)), Some(Err(b))) => Err(more_telling(a, b)),
        (Some(Err(error)), None) | (None, Some(Err(error))) => Err(error),
        (None, None) => Err(DnsError::Timeout),
    }
}

async fn second(first: &Found, other: impl Future<Output = Found>) -> Option<Found> {
    match first {
        Ok(_) => tokio::time::timeout(SECOND_FAMILY_WAIT, other).await.ok(),
        Err(_) => Some(other.await),
    }
}

/// The failure that tells more about the name: a server failure for one family must not turn into
/// "the name has no address" because the other family has none.
fn more_telling(a: DnsError, b: DnsError) -> DnsError {
    fn rank(error: &DnsError) -> u8 {
        match error {
            DnsError::NoSuchName => 4,
            DnsError::NoDescriptor => 3,
            DnsError::Timeout => 2,
            DnsError::Empty => 0,
            _ => 1,
        }
    }
    if rank(&b) > rank(&a) { b } else { a }
}

fn collect(result: Result<Lookup, NetError>) -> Found {
    let lookup = result.map_err(explain)?;
    let mut addresses = Vec::new();
    let mut ttl_s = u32::MAX;
    for record in lookup.answers() {
        let ip = match &record.data {
            RData::A(a) => IpAddr::V4(a.0),
            RData::AAAA(aaaa) => IpAddr::V6(aaaa.0),
            _ => continue,
        };
        ttl_s = ttl_s.min(record.ttl);
        if addresses.len() < ADDRESSES_MAX {
            addresses.push(ip);
        }
    }
    if addresses.is_empty() {
        return Err(DnsError::Empty);
    }
    Ok((addresses, Duration::from_secs(ttl_s.into())))
}

fn first_name(result: Result<Lookup, NetError>) -> FoundName {
    let lookup = result.map_err(|error| match is_referral(&error) {
        true => DnsError::ServFail("the server refers to others".into()),
        false => explain(error),
    })?;
    let mut first = None;
    let mut ttl_s = u32::MAX;
    for record in lookup.answers() {
        let RData::PTR(name) = &record.data else { continue };
        let name = name.0.to_ascii();
        let name = name.strip_suffix('.').unwrap_or(&name);
        // As Squid, which takes neither for a name.
        if name.is_empty() || name.contains(' ') {
            continue;
        }
        ttl_s = ttl_s.min(record.ttl);
        first.get_or_insert_with(|| Arc::from(name));
    }
    Ok((first.ok_or(DnsError::Empty)?, Duration::from_secs(ttl_s.into())))
}

/// A server that does not ask for us only says who knows: that is no "there is none".
fn is_referral(error: &NetError) -> bool {
    let NetError::Dns(HickoryDnsError::NoRecordsFound(none)) = error else { return false };
    none.response_code == ResponseCode::NoError && none.ns.is_some() && none.soa.is_none()
}

fn explain(error: NetError) -> DnsError {
    let code = match &error {
        NetError::Timeout => return DnsError::Timeout,
        NetError::Dns(HickoryDnsError::NoRecordsFound(none)) => none.response_code,
        NetError::Dns(HickoryDnsError::ResponseCode(code)) => *code,
        NetError::Io(error) if crate::connect::is_shortage(error) => return DnsError::NoDescriptor,
        _ => return DnsError::ServFail(error.to_string().into()),
    };
    match code {
        ResponseCode::NXDomain => DnsError::NoSuchName,
        ResponseCode::NoError => DnsError::Empty,
        code => DnsError::ServFail(code.to_str().into()),
    }
}
