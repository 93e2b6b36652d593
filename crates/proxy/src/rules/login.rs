//! Logins of clients: who a client is, as the ACLs about users ask.

use std::net::IpAddr;

use humboldt_acl::Login as Known;
use humboldt_conf::PortMode;
use humboldt_http::{FieldName, Fields};
use humboldt_logins::{Checked, Failure, Login};

use crate::config::logins::ConfiguredLogins;
use crate::errors::ErrorPage;
use crate::request::Request;
use crate::rules::format;

/// The login as ACLs see it; `None` if it has not been checked, or could not be.
pub(crate) fn known(request: &Request) -> Option<Known<'_>> {
    let checked = request.login.get()?.as_ref().ok()?;
    Some(match checked {
        Checked::User { user, .. } => Known::User(user.name()),
        Checked::Missing { .. } => Known::Missing,
    })
}

/// The name of the user who has logged in.
pub(crate) fn user(request: &Request) -> Option<&str> {
    match known(request)? {
        Known::User(name) => Some(name),
        Known::Missing => None,
    }
}

/// The number of addresses from which the user has come lately; 0 if nobody has asked.
pub(crate) fn addresses(request: &Request) -> u32 {
    match request.login.get() {
        Some(Ok(Checked::User { addresses, .. })) => *addresses,
        _ => 0,
    }
}

/// The field in which the client sends its credentials. Where the client takes the proxy for the
/// server, it sends those for a server. `None` where it knows nothing of the proxy: what it sends
/// is meant for somebody else, and it cannot be asked.
fn field(request: &Request) -> Option<FieldName> {
    match request.facts().port.mode {
        PortMode::Forward => Some(FieldName::ProxyAuthorization),
        PortMode::Accel => Some(FieldName::Authorization),
        PortMode::Intercept | PortMode::Tproxy => None,
    }
}

/// The value of this field.
fn credentials(request: &Request) -> Option<&[u8]> {
    request.head.fields.get(field(request)?)
}

/// Whether Authorization is a login here, not at the server. Browsers send it for all of a site,
/// also for what no rule about users is asked.
pub(crate) fn uses_authorization(request: &Request) -> bool {
    request.snapshot().logins.is_some() && field(request) == Some(FieldName::Authorization)
}

/// Finds the login without waiting, for the client as rules see it. `false`: the credentials have
/// to be checked.
pub(crate) fn remember(request: &Request, client: IpAddr) -> bool {
    if request.login.get().is_some() {
        return true;
    }
    let value = credentials(request);
    let found = match (&request.snapshot().logins, value) {
        (Some(configured), Some(value)) => {
            let extras = extras(request, configured);
            let login =
                Login { value, method: request.head.method_bytes(), extras: &extras, client };
            configured.logins.remembered(login, request.received)
        }
        // Without a way to log in no rule asks.
        (_, None) | (None, _) => Some(Checked::nobody()),
    };
    let is_known = found.is_some();
    if let Some(login) = found {
        note(request, Ok(login));
    }
    is_known
}

/// Checks the credentials of the request, once. `asker` is the client that waits.
pub(crate) async fn check(request: &Request, client: IpAddr, asker: IpAddr) {
    if remember(request, client) {
        return;
    }
    let snapshot = request.snapshot();
    let value = credentials(request);
    if let (Some(configured), Some(value)) = (&snapshot.logins, value) {
        let extras = extras(request, configured);
        let login = Login { value, method: request.head.method_bytes(), extras: &extras, client };
        let running = configured.running(&snapshot.helpers);
        note(request, configured.logins.check(login, asker, running).await);
    }
}

/// The value of `key_extras`; empty without it.
fn extras(request: &Request, configured: &ConfiguredLogins) -> Vec<u8> {
    configured.key_extras.as_ref().map_or(Vec::new(), |extras| format::early(extras, request))
}

fn note(request: &Request, login: Result<Checked, Failure>) {
    request.login.get_or_init(|| login);
    annotate(request);
}

/// Puts what a helper program has told about the login among the annotations of the request.
pub(crate) fn annotate(request: &Request) {
    if let Some(Ok(login)) = request.login.get() {
        login.told().annotate(&mut request.notes.borrow_mut());
    }
}

/// The page that asks the client for a login, or refuses where it cannot be asked.
pub(crate) fn page(request: &Request) -> ErrorPage {
    match request.facts().port.mode {
        PortMode::Forward => ErrorPage::ProxyLoginRequired,
        PortMode::Accel => ErrorPage::LoginRequired,
        PortMode::Intercept | PortMode::Tproxy => ErrorPage::AccessDenied,
    }
}

/// Adds the fields that go with a status that asks for a login.
pub(crate) fn challenge(request: &Request, status: u16, fields: &mut Fields) {
    let name = match status {
        _ if field(request).is_none() => return,
        407 => FieldName::ProxyAuthenticate,
        401 => FieldName::WwwAuthenticate,
        _ => return,
    };
    if let Some(configured) = &request.snapshot().logins {
        let is_stale =
            matches!(request.login.get(), Some(Ok(Checked::Missing { is_stale: true, .. })));
        for value in configured.logins.challenges(is_stale, request.received) {
            fields.push(name, value.as_bytes());
        }
    }
}
