//! TLS of the laboratory's users and servers.
//!
//! An [`Authority`] is made at the start of a run and signs the certificates of the run's servers.
//! A [`Channel`] is a socket without waiting, with TLS or without; without it, a call costs no more
//! than that of the socket. Only HTTP/1.1 is offered (ALPN `http/1.1`).
//!
//! The protocol itself is `rustls`. The program that is measured has a library of its own, so an
//! error of one end does not cancel out at the other.

mod authority;
mod channel;
mod trust;

pub use authority::{Authority, Identity, ServerTls};
pub use channel::{Channel, ChannelError, Got, Handshake};
pub use trust::{Trust, Users};

use thiserror::Error;

/// The only protocol that both ends speak inside TLS.
const ALPN: &[u8] = b"http/1.1";

/// Why there is no TLS.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A certificate or a key cannot be made.
    #[error("TLS: cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// A certificate, a key or a setting is not accepted.
    #[error("TLS: {0}")]
    Config(#[from] rustls::Error),
    /// A text has no certificate or key of the expected form.
    #[error("TLS: {what}; give certificates in PEM form (-----BEGIN CERTIFICATE-----)")]
    Pem {
        /// What is wrong.
        what: String,
    },
    /// No certificate can be for such a name.
    #[error("TLS: `{0}` is no name of a server; give a host name or an IP address")]
    Name(String),
}
