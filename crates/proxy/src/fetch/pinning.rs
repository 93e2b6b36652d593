//! Logins of clients at servers with schemes that log connections in: the connection to the server
//! is [pinned](crate::pin) to the client's, or such logins are not possible at all.

use humboldt_conf::{ConnectionAuth, PortMode};
use humboldt_http::{FieldName, ResponseHead};

use crate::fetch::ask::may_pass;
use crate::fetch::destination::Destination;
use crate::request::Request;
use crate::rules::login;

/// By this field a proxy says that it ties connections together (RFC 4559 6).
const SUPPORT: &[u8] = b"Session-Based-Authentication";

/// Whether the client sends what logs a connection to a server in.
pub(crate) fn names_a_connection(request: &Request) -> bool {
    let mut values = request.head.fields.get_all(FieldName::Authorization);
    values.any(|value| !may_pass(value) && !login::is_step(request, value))
}

/// Whether the client logs the connection in that this request goes by.
pub(crate) fn logs_connection_in(request: &Request, to: &Destination) -> bool {
    names_a_connection(request) && is_possible(request, to)
}

/// Whether such logins are possible by this way: otherwise neither the offer of the server nor the
/// credentials of the client go on.
pub(crate) fn is_possible(request: &Request, to: &Destination) -> bool {
    let peer = to.peer.as_ref().filter(|_| !to.is_tunnel());
    let peer = peer.map(|peer| peer.conf.connection_auth);
    !request.facts().port.hides_connection_auth && peer != Some(ConnectionAuth::Off)
}

/// Removes the offers that are of no use to the client from an answer. With others the client is
/// told that this proxy keeps the connection.
pub(crate) fn see_offers(request: &Request, to: &Destination, head: &mut ResponseHead) {
    if head.fields.get_all(FieldName::WwwAuthenticate).all(may_pass) {
        return;
    }
    if !is_possible(request, to) || !is_tied_behind(request, to, head) {
        let values = head.fields.get_all(FieldName::WwwAuthenticate);
        let others: Vec<_> = values.filter(|value| may_pass(value)).map(<[u8]>::to_vec).collect();
        head.fields.remove(FieldName::WwwAuthenticate);
        for value in others {
            head.fields.push(FieldName::WwwAuthenticate, &value);
        }
        return;
    }
    head.fields.remove_by_name(b"Proxy-Support");
    // The field is for the next hop. That of the hop before must not take ours away.
    unname(head, b"Proxy-Support");
    // A client inside of a tunnel knows no proxy.
    if request.facts().port.mode == PortMode::Forward && request.inside().is_none() {
        head.fields.push_named(b"Proxy-Support", SUPPORT);
    }
}

/// Takes a name out of Connection.
fn unname(head: &mut ResponseHead, name: &[u8]) {
    let words: Vec<Vec<u8>> = head.fields.list(FieldName::Connection).map(<[u8]>::to_vec).collect();
    head.fields.remove(FieldName::Connection);
    for word in words.iter().filter(|word| !word.eq_ignore_ascii_case(name)) {
        head.fields.push(FieldName::Connection, word);
    }
}

/// Whether a proxy on this way ties connections together.
fn is_tied_behind(request: &Request, to: &Destination, head: &ResponseHead) -> bool {
    let peer = to.peer.as_ref().filter(|_| !to.is_tunnel());
    let Some(peer) = peer.map(|peer| &peer.conf) else { return true };
    let says_so = || {
        let fields = head.fields.iter();
        let mut support = fields.filter(|(_, name, _)| name.eq_ignore_ascii_case(b"Proxy-Support"));
        support.any(|(.., value)| {
            value
                .split(|byte| *byte == b',')
                .any(|word| word.trim_ascii().eq_ignore_ascii_case(SUPPORT))
        })
    };
    peer.connection_auth == ConnectionAuth::On
        || peer.originserver
        || request.facts().pin.leads_to(&to.server(request), request.owner())
        || says_so()
}
