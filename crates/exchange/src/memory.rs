//! Exchanges in memory, for tests and simulations: a client and a server without sockets.
//!
//! [`client`] gives an exchange and the [`Client`] whose it is; [`server`] an exchange and the
//! [`Server`] that is asked. Both sides live on one thread. Whatever a socket can do to a proxy has
//! its counterpart: clients that leave, or take nothing; servers that answer early, late, in parts,
//! or not to the end.

mod client;
mod pipe;
mod server;

pub use client::{Answer, Client, ClientSide, End, client};
pub use pipe::Pipe;
pub use server::{Asked, Server, ServerSide, UploadSide, server};
