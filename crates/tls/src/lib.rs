//! TLS without sockets: settings of ports and of connections to servers, made from the typed
//! options of squid.conf; the choice of a certificate; verification; faults with names.
//!
//! The library is rustls. What its settings are made from are the contents of files: reading them
//! is the caller's part ([`Files`]), so that tests need none.

mod authority;
mod certificates;
mod ciphers;
mod client;
mod error;
mod fault;
mod files;
mod flight;
mod hello;
mod identity;
mod intermediates;
mod named;
mod provider;
mod records;
mod server;
mod sessions;
mod stapled;
mod system;
#[cfg(test)]
mod testing;
mod verify;

pub use authority::{
    BumpAuthority, Leaf, LeafChanges, LeafFault, LeafWish, NewAuthority, make_authority,
};
pub use certificates::certificate_facts;
pub use ciphers::cipher_name;
pub use client::ClientSide;
pub use error::{SetupError, SetupProblem};
pub use fault::{CertificateFault, Fault};
pub use files::{Files, OnDisk};
pub use flight::{FLIGHT_BYTES_MAX, ServerFlight, read_server_flight};
pub use hello::{HELLO_BYTES_MAX, SECOND_HELLO_BYTES_MAX, read_client_hello, read_second_hello};
pub use identity::Identified;
pub use records::NotTls;
pub use server::ServerSide;
pub use system::{SystemFiles, SystemRoots};

/// The only protocol that is spoken inside, by its name in ALPN (RFC 7301).
const ALPN: &[u8] = b"http/1.1";
