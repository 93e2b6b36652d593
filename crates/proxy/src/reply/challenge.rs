//! The fields that ask a client for a login, and what becomes of its connection: with Negotiate and
//! NTLM the login goes on with the next request of the same connection.

use humboldt_conf::AuthScheme;
use humboldt_exchange::{BodyLength, ClientExchange, ReplyHead, ReplySink, reason};
use humboldt_http::{FieldName, Fields};
use humboldt_logins::Handshake;

use crate::request::Request;
use crate::rules::{access, login};
use crate::transaction::Transaction;

/// Longest body of a request that is read and dropped, so that the login can go on behind it. With
/// a longer one the connection ends, and the login with it.
const DROPPED_BODY_BYTES_MAX: u64 = 1024 * 1024;

/// Reads the body of a request that is a step of a login.
pub(crate) async fn make_way(transaction: &mut Transaction<'_>) {
    let request = transaction.request;
    let goes_on = matches!(login::handshake(request), Some(Handshake::Next { .. }));
    let is_too_long =
        matches!(request.body, BodyLength::Known(bytes) if bytes > DROPPED_BODY_BYTES_MAX);
    if !goes_on || !request.has_body() || is_too_long {
        return;
    }
    let client = &mut *transaction.client;
    if request.head.fields.has(FieldName::Expect) {
        client.send_interim(&Continue);
        if client.flush().await.is_err() {
            return;
        }
    }
    // Without its end the connection is closed, as behind every answer that comes early.
    client.drop_body(DROPPED_BODY_BYTES_MAX).await;
}

/// A login that has failed ends the connection, whatever the refusal looks like.
pub(crate) fn close_behind_failure(client: &mut ClientExchange, request: &Request) {
    if matches!(login::handshake(request), Some(Handshake::Failed { .. })) {
        client.close_behind();
    }
}

/// Adds the fields that go with a status that asks for a login.
pub(crate) fn add(
    client: &mut ClientExchange,
    request: &Request,
    status: u16,
    fields: &mut Fields,
) {
    let name = match status {
        _ if login::field(request).is_none() => return,
        407 => FieldName::ProxyAuthenticate,
        401 => FieldName::WwwAuthenticate,
        _ => return,
    };
    let Some(configured) = &request.snapshot().logins else { return };
    let checked = request.login.get().and_then(|login| login.as_ref().ok());
    let mut push = |scheme: AuthScheme| {
        let value = configured.logins.challenge(scheme, checked, request.received);
        value.into_iter().for_each(|value| fields.push(name, value.as_bytes()));
    };
    let handshake = login::handshake(request);
    let mut may_begin = true;
    if let Some(Handshake::Next { scheme, .. }) = handshake {
        if client.keep_open() {
            request.facts().login.tell();
            return push(*scheme);
        }
        // As in Squid: there is no second step on a connection that ends.
        request.facts().login.forget();
        may_begin = false;
    }
    let (mut begins, mut closes) = (false, matches!(handshake, Some(Handshake::Failed { .. })));
    let list = configured.offers.iter().find(|(_, list)| access::matches(list, request));
    for scheme in configured.logins.offered(list.map(|(schemes, _)| &schemes[..])) {
        let is_of_request = matches!(scheme, AuthScheme::Basic | AuthScheme::Digest);
        if may_begin || is_of_request {
            begins |= !is_of_request;
            closes |= handshake.is_none() && configured.logins.closes(scheme);
            push(scheme);
        }
    }
    if closes {
        client.close_behind();
    } else if begins && request.snapshot().config.client_persistent_connections {
        // Also behind CONNECT: the client need not connect again for its first step.
        client.keep_open();
    }
}

/// The interim answer to `Expect: 100-continue`.
struct Continue;

impl ReplyHead for Continue {
    fn status(&self) -> u16 {
        100
    }

    fn write<S: ReplySink>(&self, sink: &mut S) {
        sink.status(100, reason(100).as_bytes());
    }
}
