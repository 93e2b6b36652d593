//! The name that a client asks for in TLS, which may be another one than that of its tunnel.

use std::rc::Rc;

use humboldt_base::bump::ClientHello;
use humboldt_http::uri::host_ip;

use crate::core::Core;
use crate::errors::ErrorPage;
use crate::outcome::{Fault, Outcome};
use crate::request::{Request, unmapped};
use crate::rules::denial::Refusal;
use crate::rules::{access, enforce, original, permission};

/// The same request to the host that the client names in TLS, if that is another one.
///
/// # Errors
/// It is no host.
pub(super) fn named(request: &Request, hello: &ClientHello) -> Result<Option<Request>, ()> {
    match hello.sni.as_deref() {
        Some(name) if name.as_bytes() != request.url.host() => {
            request.to_host(name).map(Some).ok_or(())
        }
        _ => Ok(None),
    }
}

/// Asks the rules about the name. What they have said of it belongs to the request.
pub(super) async fn judge(
    core: &Rc<Core>,
    request: &Request,
    named: &Request,
) -> Result<(), Refusal> {
    let is_strict = request.snapshot().config.host_verify_strict;
    if !agrees(core, request, named, is_strict).await && is_strict {
        return Err(Refusal::of_host());
    }
    let decided = permission::decide_permission(core, named).await;
    if let Some(rule) = named.reported.get() {
        enforce::note(request, rule.clone());
    }
    if let Some(login) = named.login.get() {
        request.login.get_or_init(|| login.clone());
    }
    match decided {
        // Inside of its tunnel a client cannot log in.
        Err(refusal) if refusal.page.asks_login() => {
            let rule = refusal.rule.clone();
            Err(Refusal::of_request(refusal.info).by(rule.as_ref()))
        }
        decided => decided,
    }
}

/// Whether the name fits the address that the client has chosen: the one that it has connected to,
/// or the one in CONNECT, where the client has looked the name up itself.
async fn agrees(core: &Rc<Core>, request: &Request, named: &Request, is_strict: bool) -> bool {
    if request.facts().original.is_some() {
        return original::compare(core, named).await;
    }
    let Some(chosen) = host_ip(request.url.host()).filter(|_| is_strict) else { return false };
    access::look_up(core, named).await;
    let addresses = named.addresses.get().and_then(|found| found.as_ref().ok());
    addresses.is_some_and(|known| known.iter().any(|ip| unmapped(*ip) == unmapped(chosen)))
}

/// The outcome of an intercepted connection, which says so where its name does not fit its address.
pub(super) fn noted(named: &Request, outcome: Outcome) -> Outcome {
    let conflict = || {
        let fault = Fault::of_page(ErrorPage::HostConflict, "host_conflict");
        named.goes_astray().then_some(fault)
    };
    Outcome { fault: outcome.fault.or_else(conflict), ..outcome }
}
