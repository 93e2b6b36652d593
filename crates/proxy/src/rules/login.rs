//! Logins of clients: who a client is, as the ACLs about users ask.

use std::net::IpAddr;

use humboldt_acl::Login as Known;
use humboldt_conf::{AuthScheme, PortMode};
use humboldt_http::FieldName;
use humboldt_logins::{Checked, Failure, Handshake, Login};

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
pub(crate) fn field(request: &Request) -> Option<FieldName> {
    if request.inside().is_some() {
        return None;
    }
    match request.facts().port.mode {
        PortMode::Forward => Some(FieldName::ProxyAuthorization),
        PortMode::Accel => Some(FieldName::Authorization),
        PortMode::Intercept | PortMode::Tproxy => None,
    }
}

/// The request that has the credentials. Inside of a tunnel it is the one for the tunnel: the
/// client cannot be asked again.
fn asked(request: &Request) -> &Request {
    request.inside().map_or(request, |inside| &inside.connect)
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

/// Whether this value of Authorization is a step of a login here, which is of no use to anybody
/// else.
pub(crate) fn is_step(request: &Request, value: &[u8]) -> bool {
    let logins = request.snapshot().logins.as_ref().filter(|_| uses_authorization(request));
    let scheme = logins.and_then(|configured| configured.logins.scheme_of(value));
    matches!(scheme, Some(AuthScheme::Negotiate | AuthScheme::Ntlm))
}

/// Finds the login without waiting, for the client as rules see it. `false`: the credentials have
/// to be checked.
pub(crate) fn remember(request: &Request, client: IpAddr) -> bool {
    if request.login.get().is_some() {
        return true;
    }
    let asked = asked(request);
    let found = match &request.snapshot().logins {
        Some(configured) if field(asked).is_some() => {
            taken_over(request, configured).or_else(|| {
                let extras = extras(asked, configured);
                configured.logins.remembered(login_of(asked, &extras, client), request.received)
            })
        }
        // Without a way to log in no rule asks.
        _ => Some(Checked::nobody()),
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
    let (snapshot, asked) = (request.snapshot(), asked(request));
    if let Some(configured) = &snapshot.logins {
        let extras = extras(asked, configured);
        let running = configured.running(&snapshot.helpers);
        let login = login_of(asked, &extras, client);
        let checked = configured.logins.check(login, asker, running).await;
        if let (true, Ok(login)) = (request.inside().is_some(), &checked) {
            asked.login.get_or_init(|| Ok(login.clone()));
        }
        note(request, checked);
    }
}

/// The user of a request inside of a tunnel is who has asked for the tunnel. A password is checked
/// again when its time is over, with the rules in force; the proof of another scheme is good for
/// one check, which counts as long as there is the scheme.
fn taken_over(request: &Request, configured: &ConfiguredLogins) -> Option<Checked> {
    let connect = &request.inside()?.connect;
    let scheme = configured.logins.scheme_of(credentials(connect)?)?;
    let known = connect.login.get().filter(|_| scheme != AuthScheme::Basic)?;
    known.as_ref().ok().cloned()
}

fn login_of<'r>(request: &'r Request, extras: &'r [u8], client: IpAddr) -> Login<'r> {
    let (value, method) = (credentials(request), request.head.method_bytes());
    let (owner, connection) = (request.end_client(), &request.facts().login);
    Login { value, method, extras, client, owner, connection }
}

/// The value of `key_extras` of the scheme in use; empty without it.
fn extras(request: &Request, configured: &ConfiguredLogins) -> Vec<u8> {
    let value = credentials(request);
    let format = value.and_then(|value| configured.extras_of(value));
    format.map_or(Vec::new(), |extras| format::early(extras, request))
}

/// What a program has for the client that leads a handshake with it.
pub(crate) fn handshake(request: &Request) -> Option<&Handshake> {
    match request.login.get()? {
        Ok(Checked::Missing { handshake, .. }) => handshake.as_ref(),
        Ok(Checked::User { .. }) | Err(_) => None,
    }
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
    if request.inside().is_some() {
        return ErrorPage::AccessDenied;
    }
    match request.facts().port.mode {
        PortMode::Forward => ErrorPage::ProxyLoginRequired,
        PortMode::Accel => ErrorPage::LoginRequired,
        PortMode::Intercept | PortMode::Tproxy => ErrorPage::AccessDenied,
    }
}
