//! Connections to servers with TLS.
//!
//! A host may have several addresses, and behind one of them TLS may be broken. So a handshake that
//! fails is tried with the next address, as a connection is that is refused. Two answers are final:
//! a certificate that is not accepted, as another address with another certificate would hide an
//! attack or a mistake, and a name that no certificate can have. So is a server without a version
//! or cipher in common: that is a matter of its settings, which its addresses share. Other faults
//! often are too, so what follows the first one is short.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use humboldt_base::bump::ServerIdentity;
use humboldt_net::Stream;
use humboldt_net::connect::{ConnectError, ConnectOptions, Connected};
use humboldt_net::tls;
use humboldt_runtime::turns;
use humboldt_tls::{CertificateFault, ClientSide, Fault};
use tokio::time::{Instant, timeout};

use crate::core::Core;

/// Longest time for further addresses behind the first fault of a handshake.
const AFTER_FAULT_MAX: Duration = Duration::from_secs(5);

/// Most connections for further addresses behind the first fault of a handshake.
const CONNECTIONS_AFTER_FAULT_MAX: usize = 2;

const SLOW_AUTHORITIES: &str = "the authorities that the system trusts could not be read in time";

/// A server that TLS is spoken with.
#[derive(Copy, Clone)]
pub(crate) struct Secure<'a> {
    /// The settings.
    pub(crate) side: &'a ClientSide,
    /// The host whose certificate it must have, unless the settings name another one.
    pub(crate) host: &'a [u8],
    /// The faults of its certificate are told, for rules to judge.
    pub(crate) is_lenient: bool,
}

/// The certificate of a server, for rules to judge. Nothing may be sent to the server before.
pub(crate) struct Seen {
    /// For rules and logs.
    pub(crate) server: Rc<ServerIdentity>,
    /// The faults, in the order of `server.faults`.
    pub(crate) faults: Vec<CertificateFault>,
}

/// Reads the authorities that servers are verified by, if nobody has. A core does not wait for that
/// with all that it does, and only one of its requests reads them.
///
/// # Errors
/// It takes longer than `time`.
pub(crate) async fn read_authorities(
    core: &Core,
    side: &ClientSide,
    time: Duration,
) -> io::Result<()> {
    if side.unprepared().is_none() {
        return Ok(());
    }
    let reading = Box::pin(async {
        let _alone = core.authorities_reader.lock().await;
        if let Some(prepare) = side.unprepared() {
            // If the program is ending, the connection does without.
            _ = turns::blocking(prepare).await;
        }
    });
    timeout(time, reading).await.map_err(|_late| io::Error::other(SLOW_AUTHORITIES))
}

impl Secure<'_> {
    /// Connects to one of the addresses, and agrees with the server there. All of it together has
    /// the time of `options`; a handshake that another address could follow has half of what is
    /// left. The authorities of the system, which are read before the first handshake, have as much
    /// time for themselves.
    pub(crate) async fn connect(
        self,
        core: &Core,
        addresses: &[IpAddr],
        port: u16,
        options: &ConnectOptions,
    ) -> Result<(Connected, Option<Seen>), ConnectError> {
        read_authorities(core, self.side, options.timeout).await?;
        let mut deadline = Instant::now() + options.timeout;
        let mut others = addresses.to_vec();
        let mut failed = None;
        for _ in 0..=CONNECTIONS_AFTER_FAULT_MAX {
            let timeout = deadline.saturating_duration_since(Instant::now());
            let options = ConnectOptions { timeout, ..options.clone() };
            let connected = match core.dial(&others, port, &options).await {
                Ok(connected) => connected,
                Err(error) => return Err(failed.unwrap_or(error)),
            };
            others.retain(|ip| *ip != connected.peer.ip());
            let left = deadline.saturating_duration_since(Instant::now());
            let is_last = others.is_empty();
            match self.shake_hands(connected.stream, if is_last { left } else { left / 2 }).await {
                Ok((stream, seen)) => return Ok((Connected { stream, ..connected }, seen)),
                Err(fault) if is_last || is_final(&fault) => return Err(fault.into()),
                Err(fault) => {
                    tracing::debug!("no TLS with {}: {fault}", connected.peer);
                    failed.get_or_insert_with(|| {
                        deadline = deadline.min(Instant::now() + AFTER_FAULT_MAX);
                        fault.into()
                    });
                }
            }
        }
        Err(failed.unwrap_or(ConnectError::NoAddress))
    }

    async fn shake_hands(
        self,
        stream: Stream,
        time: Duration,
    ) -> Result<(Stream, Option<Seen>), Fault> {
        timeout(time, Box::pin(self.over(stream))).await.unwrap_or(Err(Fault::TimedOut))
    }

    /// Speaks TLS over a connection. The authorities have been read ([`read_authorities`]).
    pub(crate) async fn over(self, stream: Stream) -> Result<(Stream, Option<Seen>), Fault> {
        if !self.is_lenient {
            return Ok((tls::connect(stream, self.side, self.host).await?, None));
        }
        let judged = tls::connect_lenient(stream, self.side, self.host).await?;
        Ok((judged.stream, Some(Seen { server: judged.server, faults: judged.faults })))
    }
}

/// Alerts about the certificate that we have shown, or have not.
const OF_OUR_CERTIFICATE: [&str; 8] = [
    "bad certificate",
    "unsupported certificate",
    "certificate revoked",
    "certificate expired",
    "certificate unknown",
    "unknown ca",
    "access denied",
    "certificate required",
];

/// Whether no other address is asked.
fn is_final(fault: &Fault) -> bool {
    match fault {
        Fault::Certificate(_) | Fault::NoName | Fault::NothingInCommon(_) => true,
        // It is our own certificate that is refused, which is the same one everywhere.
        Fault::Alert(alert) => OF_OUR_CERTIFICATE.contains(&alert.as_str()),
        _ => false,
    }
}
