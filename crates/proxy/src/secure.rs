//! Connections to servers with TLS.
//!
//! A host may have several addresses, and behind one of them TLS may be broken. So a handshake that
//! fails is tried with the next address, as a connection is that is refused. Two answers are final:
//! a certificate that is not accepted, as another address with another certificate would hide an
//! attack or a mistake, and a name that no certificate can have.

use std::net::IpAddr;
use std::time::Duration;

use humboldt_net::Stream;
use humboldt_net::connect::{self, ATTEMPTS_MAX, ConnectError, ConnectOptions, Connected};
use humboldt_net::tls;
use humboldt_runtime::turns;
use humboldt_tls::{ClientSide, Fault};
use tokio::time::{Instant, timeout};

use crate::core::Core;

/// A server that TLS is spoken with.
#[derive(Copy, Clone)]
pub(crate) struct Secure<'a> {
    /// The settings.
    pub(crate) side: &'a ClientSide,
    /// The host whose certificate it must have, unless the settings name another one.
    pub(crate) host: &'a [u8],
}

impl Secure<'_> {
    /// Connects to one of the addresses, and agrees with the server there. All of it together has
    /// the time of `options`; a handshake that another address could follow has half of what is
    /// left.
    pub(crate) async fn connect(
        self,
        core: &Core,
        addresses: &[IpAddr],
        port: u16,
        options: &ConnectOptions,
    ) -> Result<Connected, ConnectError> {
        let deadline = Instant::now() + options.timeout;
        if let Some(authorities) = self.side.unread_authorities() {
            // If the program is ending, the connection does without.
            _ = turns::blocking(move || drop(authorities.read().clone())).await;
        }
        let mut others = addresses.to_vec();
        let mut failed = None;
        for _ in 0..ATTEMPTS_MAX {
            let timeout = deadline.saturating_duration_since(Instant::now());
            let options = ConnectOptions { timeout, ..options.clone() };
            let connecting = || connect::connect(&others, port, &options);
            let connected = match core.with_room(connecting, connect::is_short).await {
                Ok(connected) => connected,
                Err(error) => return Err(failed.unwrap_or(error)),
            };
            others.retain(|ip| *ip != connected.peer.ip());
            let left = deadline.saturating_duration_since(Instant::now());
            let is_last = others.is_empty();
            match self.shake_hands(connected.stream, if is_last { left } else { left / 2 }).await {
                Ok(stream) => return Ok(Connected { stream, ..connected }),
                Err(fault) if is_last || is_final(&fault) => return Err(fault.into()),
                Err(fault) => {
                    tracing::debug!("no TLS with {}: {fault}", connected.peer);
                    failed.get_or_insert(fault.into());
                }
            }
        }
        Err(failed.unwrap_or(ConnectError::NoAddress))
    }

    async fn shake_hands(self, stream: Stream, time: Duration) -> Result<Stream, Fault> {
        let shaking = Box::pin(tls::connect(stream, self.side, self.host));
        timeout(time, shaking).await.unwrap_or(Err(Fault::TimedOut))
    }
}

/// Whether no other address is asked.
fn is_final(fault: &Fault) -> bool {
    matches!(fault, Fault::Certificate(_) | Fault::NoName)
}
