//! What the connection inside of a tunnel begins with.

use std::rc::Rc;

use humboldt_base::bump::ServerIdentity;
use humboldt_net::connect::Connected;
use humboldt_tls::ServerSide;

use crate::budgets::TunnelPlace;
use crate::bumped::Inside;
use crate::errors::ErrorPage;
use crate::fetch::destination::Destination;
use crate::request::Request;
use crate::rules::denial::Refusal;
use crate::transaction::Unlogged;

/// A connection that is about to go on inside of its tunnel.
pub(crate) struct HandOver {
    /// The certificate that the client gets, and the settings that go with it.
    pub(crate) side: ServerSide,
    /// What the client has sent already.
    pub(crate) early: Vec<u8>,
    /// What is known there.
    pub(crate) inside: Inside,
    /// The line of CONNECT in access.log, which says how the handshake has ended.
    pub(crate) line: Unlogged,
    /// A connection to the server that nobody else may use.
    pub(crate) own: Option<Own>,
    /// Its place among the tunnels of its client (`client_budget`).
    pub(crate) place: Option<TunnelPlace>,
}

/// A connection to a server that nobody else may use.
pub(crate) struct Own {
    /// The request that has made it.
    pub(crate) looking: Rc<Request>,
    /// Where it leads.
    pub(crate) to: Destination,
    /// The connection.
    pub(crate) connected: Connected,
    /// The server's certificate, which may have faults that were forgiven.
    pub(crate) seen: Option<Rc<ServerIdentity>>,
    /// What comes from there is for this client alone. Otherwise only the connection is.
    pub(crate) is_pinned: bool,
}

/// Why nothing that is asked inside of a tunnel is done.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// A rule refuses.
    Refused(Refusal),
    /// There is no server, or none that can be trusted: the page, and the reason in words.
    Failed(ErrorPage, String),
}
