//! Marks of packets and connections that the rules want.

use std::sync::Once;

use humboldt_acl::RuleList;
use humboldt_exchange::ClientExchange;
use humboldt_net::marks::PacketMarks;
use humboldt_sys::conntrack;

use crate::config::cache_status::Usage;
use crate::request::Request;
use crate::rules::access;

/// The marks of packets to this parent, or to the origin.
pub(crate) fn towards_server(request: &Request, peer: Option<&str>) -> PacketMarks {
    let marks = &request.snapshot().marks;
    let applies = |list: &RuleList| access::matches_towards(list, request, peer);
    PacketMarks {
        tos: first(&marks.server_tos, applies).unwrap_or_default(),
        mark: first(&marks.server_mark, applies).unwrap_or_default(),
    }
}

/// Marks the packets of an answer, and the connection to its client.
pub(crate) fn apply(client: &mut ClientExchange, request: &Request, usage: Usage) {
    if request.snapshot().marks.concern_clients {
        client.mark_packets(towards_client(request, usage));
        mark_connection(request);
    }
}

fn towards_client(request: &Request, usage: Usage) -> PacketMarks {
    let marks = &request.snapshot().marks;
    let applies = |list: &RuleList| access::matches(list, request);
    let is_hit =
        matches!(usage, Usage::Hit { .. } | Usage::Validated { .. } | Usage::Failed { .. });
    let by_source = |flows: humboldt_conf::QosMarks| match is_hit {
        true => flows.local_hit,
        false => flows.miss,
    };
    PacketMarks {
        tos: match marks.flows.tos {
            // The values of the configuration have eight bits.
            Some(flows) => u8::try_from(by_source(flows)).unwrap_or_default(),
            None => first(&marks.client_tos, applies).unwrap_or_default(),
        },
        mark: match marks.flows.mark {
            Some(flows) => by_source(flows),
            None => first(&marks.client_mark, applies).unwrap_or_default(),
        },
    }
}

/// The value of the first rule that applies.
fn first<T: Copy>(rules: &[(T, RuleList)], applies: impl Fn(&RuleList) -> bool) -> Option<T> {
    rules.iter().find(|(_, list)| applies(list)).map(|(value, _)| *value)
}

/// `mark_client_connection`
fn mark_connection(request: &Request) {
    let rules = &request.snapshot().marks.connection;
    let facts = request.facts();
    let Some(wanted) = first(rules, |list| access::matches(list, request)) else { return };
    let changed = (|| {
        let (client, server) = facts.ends()?;
        let before = facts.netfilter_mark()?;
        let mark = wanted.apply(before);
        if mark != before {
            conntrack::set_mark(client, server, mark).ok()?;
        }
        facts.mark.set(Some(Some(mark)));
        Some(())
    })();
    if changed.is_none() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            tracing::warn!(
                "mark_client_connection: the connection of a client could not be marked; the packet \
                 filter has to follow connections, and this program needs CAP_NET_ADMIN"
            );
        });
    }
}
