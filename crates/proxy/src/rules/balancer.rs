//! Lists that are asked about a connection, before there is a request: `proxy_protocol_access` (the
//! load balancers that are believed when they tell a client's address), `client_delay_access`.

use std::net::SocketAddr;

use humboldt_acl::{Known, RuleList, Subject};
use humboldt_base::clock::UnixMillis;
use humboldt_conf::{HttpPort, Need};
use humboldt_sys::conntrack;

use crate::config::snapshot::Snapshot;
use crate::request::unmapped;
use crate::rules::access;

/// Whether a connection from `peer` to `local` may begin with a header of the PROXY protocol.
/// `false` if the list has no answer.
pub(crate) fn may_announce(
    snapshot: &Snapshot,
    port: &HttpPort,
    peer: SocketAddr,
    local: SocketAddr,
) -> bool {
    may(&snapshot.proxy_protocol_access, port, peer, local)
}

/// Whether a list allows a connection from `peer` to `local`; `false` if it has no answer.
pub(crate) fn may(list: &RuleList, port: &HttpPort, peer: SocketAddr, local: SocketAddr) -> bool {
    let now = UnixMillis::now().secs();
    let mut subject = Subject {
        client_ip: unmapped(peer.ip()),
        local_ip: unmapped(local.ip()),
        local_port: local.port(),
        port_name: Some(&port.name),
        now,
        local_offset_s: humboldt_sys::local_time::utc_offset_s(now),
        random: Some(access::random()),
        ..Subject::default()
    };
    if list.may_need(Need::Hardware) {
        subject.known = Known { hardware: access::hardware(&subject), ..subject.known };
    }
    if list.may_need(Need::Mark) {
        let (client, server) = (unmapped(peer.ip()), unmapped(local.ip()));
        let (client, server) = ((client, peer.port()).into(), (server, local.port()).into());
        subject.known = Known { mark: conntrack::mark(client, server).ok(), ..subject.known };
    }
    list.check(&subject).is_allowed()
}
