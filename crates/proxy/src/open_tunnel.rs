//! A tunnel that is open, and has not moved a byte yet.

use humboldt_exchange::TunnelEnd;

use crate::budgets::TunnelPlace;

/// What is needed to serve it. The steps that have opened it are over: their memory is given back
/// before bytes move, as tunnels are many and live for long.
pub(crate) struct OpenTunnel {
    /// The server's end.
    pub(crate) server: TunnelEnd,
    /// The protocols that it switched to, if Upgrade has opened it.
    pub(crate) protocols: Option<Vec<u8>>,
    /// Its place in the client's budget, which ends with it.
    pub(crate) place: Option<TunnelPlace>,
}
