//! Applies delay pools to answers and connections.

use std::net::SocketAddr;
use std::sync::Arc;

use humboldt_acl::RuleList;
use humboldt_base::token_bucket::TokenBucket;
use humboldt_conf::HttpPort;
use humboldt_exchange::{ClientExchange, ReplyHead, collect};
use humboldt_http::ResponseHead;

use crate::config::cache_status::Usage;
use crate::config::delays::Client;
use crate::config::snapshot::Snapshot;
use crate::request::{Request, unmapped};
use crate::rules::{access, balancer};

/// The source of the bytes of an answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A server: `delay_pools` slow it down.
    Server,
    /// The cache, this proxy itself, or a parent with `no-delay`.
    Elsewhere,
}

impl From<Usage> for Source {
    fn from(usage: Usage) -> Self {
        match usage {
            Usage::Forwarded { .. } => Self::Server,
            Usage::Hit { .. } | Usage::Validated { .. } | Usage::Failed { .. } | Usage::Local => {
                Self::Elsewhere
            }
        }
    }
}

/// Limits the pace of an answer that begins.
pub(crate) fn apply(
    client: &mut ClientExchange,
    request: &Request,
    source: Source,
    head: &impl ReplyHead,
) {
    let snapshot = request.snapshot();
    if !snapshot.delays.concern_answers {
        return;
    }
    // A hit asks no rules of `delay_pools`.
    let delays = &snapshot.delays;
    let asks =
        source == Source::Server && !delays.pools.is_empty() || !delays.named_rules.is_empty();
    let answer = (asks && snapshot.rules_ask_answers).then(|| collect(head));
    client.limit_answer(buckets(request, source, answer.as_ref()));
}

/// Limits the pace of the bytes that a client gets through a tunnel.
pub(crate) fn apply_to_tunnel(client: &mut ClientExchange, request: &Request, source: Source) {
    if request.snapshot().delays.concern_answers {
        client.limit_answer(buckets(request, source, None));
    }
}

fn buckets(
    request: &Request,
    source: Source,
    answer: Option<&ResponseHead>,
) -> Vec<Arc<TokenBucket>> {
    let delays = &request.snapshot().delays;
    let says = |list: &RuleList| access::says(list, request, answer);
    let mut buckets = Vec::new();
    if source == Source::Server
        && let Some(pool) = delays.pools.iter().find(|pool| says(&pool.rules) == Some(true))
    {
        let told = request.helped.facts();
        buckets = pool.buckets_of(Client {
            ip: client_ip(request),
            user: request.owner().user,
            tag: told.as_ref().and_then(|facts| facts.tag.as_deref()),
        });
    }
    let rule = delays.named_rules.iter().find(|(_, list)| says(list) == Some(true));
    if let Some(((index, true), _)) = rule
        && let Some(pool) = delays.named.get(*index)
    {
        buckets.extend(pool.buckets());
    }
    buckets
}

/// The address by which a client is in its buckets.
fn client_ip(request: &Request) -> std::net::IpAddr {
    match request.snapshot().config.delay_pool_uses_indirect_client {
        true => request.end_client(),
        false => unmapped(request.client_ip()),
    }
}

/// The bucket that limits all that is sent on a connection, if one does.
pub(crate) fn of_connection(
    snapshot: &Snapshot,
    port: &HttpPort,
    client: SocketAddr,
    local: SocketAddr,
) -> Vec<Arc<TokenBucket>> {
    let mut pools = snapshot.delays.clients.iter();
    let pool = pools.find(|pool| balancer::may(&pool.rules, port, client, local));
    pool.map(|pool| pool.bucket_of(unmapped(client.ip()))).into_iter().collect()
}
