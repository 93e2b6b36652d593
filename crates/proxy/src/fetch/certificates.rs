//! Certificates of servers whose faults rules may forgive (`sslproxy_cert_error`).
//!
//! A connection with a fault that was forgiven serves the client alone for whose request it was
//! made, and nothing that comes from it is stored.

use std::rc::Rc;

use humboldt_base::bump::ServerIdentity;
use humboldt_tls::Fault;

use crate::fetch::job::Failure;
use crate::request::Request;
use crate::rules::bump::forgives;
use crate::secure::Seen;

/// Whether rules judge the certificate of the server of a request.
pub(crate) fn judges(request: &Request) -> bool {
    request.looks_at_server || may_forgive(request)
}

/// Whether a fault may be forgiven. Then nobody else shares the fetch.
pub(crate) fn may_forgive(request: &Request) -> bool {
    let shown = request.inside().is_none_or(|inside| inside.shows_faults());
    request.snapshot().cert_error.is_some() && request.is_secure() && shown
}

/// Whether the rules still forgive what they have forgiven.
pub(super) fn is_forgiven(request: &Request, server: &Rc<ServerIdentity>) -> bool {
    let mut faults = server.faults.iter();
    faults.all(|fault| is_shown(request, server, fault) && forgives(request, server, fault))
}

/// Whether the client knows of the fault: it has been shown a certificate that was made after this
/// very one, as another one may be somebody else's. A client that is shown none knows what the
/// rules know.
fn is_shown(request: &Request, server: &ServerIdentity, fault: &str) -> bool {
    request.inside().is_none_or(|inside| {
        let shown = inside.facts.server.as_ref();
        shown.is_some_and(|shown| shown.sha1 == server.sha1 && shown.faults.contains(&fault))
    })
}

/// Asks the rules about each fault.
///
/// # Errors
/// One is not forgiven.
pub(super) fn judge(request: &Request, host: &[u8], seen: &Seen) -> Result<(), Failure> {
    let named = seen.faults.iter().zip(&seen.server.faults);
    for (fault, name) in named {
        if !is_shown(request, &seen.server, name) || !forgives(request, &seen.server, name) {
            let failure = Failure::of_tls(host, &Fault::Certificate(fault.clone()));
            // Inside of a tunnel the client may have been shown another certificate: it is to ask
            // for this server's.
            let server = Some(Rc::clone(&seen.server));
            return Err(Failure { server, is_of_connection: true, ..failure });
        }
    }
    Ok(())
}
