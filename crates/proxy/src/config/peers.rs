//! The parents that requests may be sent to.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use humboldt_acl::{AclError, AclSet, RuleList};
use humboldt_conf::{CachePeer, Config, PeerDomain, PeerKind, PeerLogin, PeerSelection};
use humboldt_logs::access::Hierarchy;
use humboldt_tls::ClientSide;

use super::conditions::compile_optional;
use super::hashing::Hashing;
use super::tls::Tls;

/// All `cache_peer`s.
pub struct Peers {
    peers: Vec<Arc<Peer>>,
    /// Groups of `sourcehash` and `carp` parents.
    by_client: Hashing,
    by_url: Hashing,
    turn: AtomicUsize,
}

/// Credentials for a peer.
#[derive(Debug)]
pub(crate) enum Login {
    /// Those of the client.
    Unchanged,
    /// Those of the client, or those that a helper has told.
    OfClient,
    /// The same; a server gets those for a proxy.
    OfClientForServer,
    /// The name of the client's user, and this text.
    NameOfUser(String),
    /// This value of Authorization or Proxy-Authorization.
    Own(String),
}

/// One `cache_peer`.
pub struct Peer {
    /// As configured.
    pub conf: CachePeer,
    /// The name in the pool of connections: a peer is a separate server, even if an origin has the
    /// same address.
    pub(crate) pool_name: String,
    /// Credentials for it (`login=`).
    pub(crate) login: Option<Login>,
    /// TLS to it.
    pub(crate) tls: Option<ClientSide>,
    /// `cache_peer_access`, when there is any.
    pub(crate) access: Option<RuleList>,
    domains: Vec<PeerDomain>,
    failures: AtomicU32,
    /// Time without requests for a peer that failed `connect-fail-limit` times in a row
    /// (`dead_peer_timeout`).
    dead_for_s: u64,
    dead_until_s: AtomicU64,
}

impl Peers {
    /// Compiles the peers and their rules.
    pub(crate) fn compile(
        acls: &AclSet,
        config: &Config,
        tls: &Tls,
    ) -> Result<Self, Vec<AclError>> {
        let mut peers = Vec::new();
        for conf in config.cache_peer.iter().filter(|peer| peer.kind == PeerKind::Parent) {
            let rules: Vec<_> = config
                .cache_peer_access
                .iter()
                .filter(|a| a.peer == conf.name)
                .map(|a| a.rule.clone())
                .collect();
            let access = compile_optional(acls, &rules, true)?;
            let domains =
                config.cache_peer_domain.iter().filter(|d| d.peer == conf.name).cloned().collect();
            peers.push(Arc::new(Peer {
                pool_name: format!("peer:{}", conf.name),
                login: conf.login.as_ref().map(Login::new),
                tls: tls.peer(&conf.name).cloned(),
                conf: conf.clone(),
                access,
                domains,
                failures: AtomicU32::new(0),
                dead_for_s: config.dead_peer_timeout.as_secs(),
                dead_until_s: AtomicU64::new(0),
            }));
        }
        let group = |selection: PeerSelection| {
            let members =
                peers.iter().enumerate().filter(move |(_, peer)| peer.conf.selection == selection);
            Hashing::new(
                members.map(|(index, peer)| (index, peer.conf.name.as_str(), peer.conf.weight)),
            )
        };
        let (by_client, by_url) = (group(PeerSelection::SourceHash), group(PeerSelection::Carp));
        Ok(Self { peers, by_client, by_url, turn: AtomicUsize::new(0) })
    }

    /// The peer with this index.
    pub(crate) fn get(&self, index: usize) -> Option<&Arc<Peer>> {
        self.peers.get(index)
    }

    /// All `cache_peer_access` lists.
    pub(crate) fn lists(&self) -> impl Iterator<Item = &RuleList> {
        self.peers.iter().filter_map(|peer| peer.access.as_ref())
    }

    /// All peers.
    pub fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().map(|peer| &**peer)
    }

    /// The parents that `takes` accepts and that are not dead at `now_s`, best first: by the
    /// client's address, by the URL, round-robin parents, then the others in the order of the file.
    pub(crate) fn parents(
        &self,
        client: IpAddr,
        url: &[u8],
        now_s: u64,
        takes: impl Fn(&Peer) -> bool,
    ) -> Vec<(usize, Hierarchy)> {
        let mut order: Vec<usize> = Vec::with_capacity(self.peers.len());
        if self.has(PeerSelection::SourceHash) {
            order.extend(self.by_client.order(client.to_string().as_bytes()));
        }
        if self.has(PeerSelection::Carp) {
            order.extend(self.by_url.order(url));
        }
        let usable = |&i: &usize| takes(&self.peers[i]) && !self.peers[i].is_dead(now_s);
        order.retain(|i| usable(i));
        let of = |wanted: PeerSelection| {
            let all = (0..self.peers.len()).filter(usable);
            all.filter(move |&i| self.peers[i].conf.selection == wanted).collect::<Vec<_>>()
        };
        order.extend(self.rotated(of(PeerSelection::RoundRobin)));
        order.extend(of(PeerSelection::InOrder));
        // `default` parents come last: they are for requests that no other parent takes.
        order.sort_by_key(|&i| self.peers[i].conf.default);
        order.into_iter().map(|i| (i, self.peers[i].hierarchy())).collect()
    }

    fn has(&self, selection: PeerSelection) -> bool {
        self.peers.iter().any(|peer| peer.conf.selection == selection)
    }

    /// Rotates `ring` to the parent whose turn it is. In each round, a parent has as many turns as
    /// its weight.
    fn rotated(&self, mut ring: Vec<usize>) -> Vec<usize> {
        let weight = |i: &usize| self.peers[*i].conf.weight as usize;
        let round: usize = ring.iter().map(weight).sum();
        if ring.len() > 1 {
            let mut turn = self.turn.fetch_add(1, Relaxed) % round.max(1);
            let first = ring.iter().position(|i| {
                let is_first = turn < weight(i);
                turn = turn.saturating_sub(weight(i));
                is_first
            });
            ring.rotate_left(first.unwrap_or(0));
        }
        ring
    }
}

impl Peer {
    /// Whether `cache_peer_domain` permits this peer for the host.
    pub(crate) fn is_for(&self, host: &[u8]) -> bool {
        let mut positive = self.domains.iter().filter(|d| !d.negated).peekable();
        let in_domains = positive.peek().is_none() || positive.any(|d| in_domain(host, &d.domain));
        let excluded = self.domains.iter().any(|d| d.negated && in_domain(host, &d.domain));
        in_domains && !excluded
    }

    fn hierarchy(&self) -> Hierarchy {
        match self.conf.selection {
            _ if self.conf.default => Hierarchy::DefaultParent,
            PeerSelection::InOrder => Hierarchy::FirstupParent,
            PeerSelection::Carp => Hierarchy::Carp,
            PeerSelection::SourceHash => Hierarchy::SourcehashParent,
            PeerSelection::RoundRobin => Hierarchy::RoundrobinParent,
        }
    }

    /// Whether it gets no requests now, after failures.
    pub fn is_dead(&self, now_s: u64) -> bool {
        self.dead_until_s.load(Relaxed) > now_s
    }

    pub(crate) fn note_failure(&self, now_s: i64) {
        let failures = self.failures.fetch_add(1, Relaxed) + 1;
        if failures >= self.conf.connect_fail_limit.max(1) {
            self.dead_until_s.store((now_s.max(0) as u64).saturating_add(self.dead_for_s), Relaxed);
            if failures == self.conf.connect_fail_limit.max(1) {
                tracing::warn!("Detected DEAD Parent: {}", self.conf.name);
            }
        }
    }

    pub(crate) fn note_success(&self) {
        if self.failures.load(Relaxed) != 0 {
            if self.failures.swap(0, Relaxed) >= self.conf.connect_fail_limit.max(1) {
                tracing::info!("Detected REVIVED Parent: {}", self.conf.name);
            }
            self.dead_until_s.store(0, Relaxed);
        }
    }
}

/// Squid's rule: `.example.com` matches the domain and all below it, `example.com` only itself.
fn in_domain(host: &[u8], domain: &str) -> bool {
    let domain = domain.to_ascii_lowercase();
    match domain.strip_prefix('.') {
        Some(bare) => host == bare.as_bytes() || host.ends_with(domain.as_bytes()),
        None => host == domain.as_bytes(),
    }
}

impl Login {
    fn new(login: &PeerLogin) -> Self {
        match login {
            PeerLogin::Unchanged => Self::Unchanged,
            PeerLogin::OfClient => Self::OfClient,
            PeerLogin::OfClientForServer => Self::OfClientForServer,
            PeerLogin::NameOfUser(text) => Self::NameOfUser(text.clone()),
            PeerLogin::Own(login) => Self::Own(basic(login.as_bytes())),
        }
    }

    /// Whether the client's own credentials go on.
    pub(crate) fn is_of_client(&self) -> bool {
        matches!(self, Self::Unchanged | Self::OfClient | Self::OfClientForServer)
    }
}

/// The value of Authorization or Proxy-Authorization with this name and password.
pub(crate) fn basic(login: &[u8]) -> String {
    format!("Basic {}", data_encoding::BASE64.encode(login))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_encoded() {
        for (login, value) in [("user:pass", "Basic dXNlcjpwYXNz"), ("a:b", "Basic YTpi")] {
            let own = Login::new(&PeerLogin::Own(login.into()));
            assert!(matches!(own, Login::Own(text) if text == value), "{login}");
        }
    }

    #[test]
    fn domains_match_as_in_squid() {
        assert!(
            in_domain(b"www.example.com", ".example.com")
                && in_domain(b"example.com", ".Example.com")
        );
        assert!(
            !in_domain(b"www.example.com", "example.com")
                && !in_domain(b"badexample.com", ".example.com")
        );
    }
}
