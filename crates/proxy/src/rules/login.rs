//! Logins of clients: who a client is, as the ACLs about users ask.

use std::net::IpAddr;

use humboldt_acl::Login;
use humboldt_conf::PortMode;
use humboldt_http::{FieldName, Fields};
use humboldt_logins::Checked;

use crate::errors::ErrorPage;
use crate::request::Request;

/// The login as ACLs see it; `None` if it has not been checked, or could not be.
pub(crate) fn known(request: &Request) -> Option<Login<'_>> {
    let checked = request.login.get()?.as_ref().ok()?;
    Some(match checked {
        Checked::User { user, .. } => Login::User(user.name()),
        Checked::Missing { .. } => Login::Missing,
    })
}

/// The number of addresses from which the user has come lately; 0 if nobody has asked.
pub(crate) fn addresses(request: &Request) -> u32 {
    match request.login.get() {
        Some(Ok(Checked::User { addresses, .. })) => *addresses,
        _ => 0,
    }
}

/// The field in which the client sends its credentials. Where the client takes the proxy for the
/// server, it sends those for a server.
fn field(request: &Request) -> FieldName {
    match request.facts().port.mode {
        PortMode::Forward => FieldName::ProxyAuthorization,
        PortMode::Accel => FieldName::Authorization,
    }
}

/// Finds the login without waiting, for the client as rules see it. `false`: the credentials have
/// to be checked.
pub(crate) fn remember(request: &Request, client: IpAddr) -> bool {
    if request.login.get().is_some() {
        return true;
    }
    let found = match &request.snapshot().logins {
        Some(logins) => {
            let value = request.head.fields.get(field(request));
            logins.remembered(value, client, request.received)
        }
        // No rule asks then.
        None => Some(Checked::Missing { name: None }),
    };
    let is_known = found.is_some();
    if let Some(login) = found {
        request.login.get_or_init(|| Ok(login));
    }
    is_known
}

/// Checks the credentials of the request, once. `asker` is the client that waits.
pub(crate) async fn check(request: &Request, client: IpAddr, asker: IpAddr) {
    if remember(request, client) {
        return;
    }
    let value = request.head.fields.get(field(request));
    if let (Some(logins), Some(value)) = (&request.snapshot().logins, value) {
        let checked = logins.check(value, client, asker).await;
        request.login.get_or_init(|| checked);
    }
}

/// The page that asks the client for a login.
pub(crate) fn page(request: &Request) -> ErrorPage {
    match request.facts().port.mode {
        PortMode::Forward => ErrorPage::ProxyLoginRequired,
        PortMode::Accel => ErrorPage::LoginRequired,
    }
}

/// Adds the field that goes with a status that asks for a login.
pub(crate) fn challenge(request: &Request, status: u16, fields: &mut Fields) {
    let name = match status {
        407 => FieldName::ProxyAuthenticate,
        401 => FieldName::WwwAuthenticate,
        _ => return,
    };
    if let Some(logins) = &request.snapshot().logins {
        fields.push(name, logins.challenge().as_bytes());
    }
}
