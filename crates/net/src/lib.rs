//! Per-core runtime, listeners, deadlines, DNS, connecting, connection pools.
//!
//! Everything here knows sockets and time but no HTTP: a request is none of its business. Types
//! that live on one core are `Rc` inside and not `Send`; what cores share ([`dns::NameCache`],
//! [`broadcast::Broadcast`]) says so.

pub mod broadcast;
pub mod connect;
pub mod deadline;
pub mod dns;
pub mod listener;
mod own_address;
pub mod pool;
mod port_owner;
pub mod runtime;

pub use own_address::is_own_address;
