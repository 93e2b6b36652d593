//! Listeners, DNS, connecting, connection pools.
//!
//! Everything here knows sockets and time but no HTTP: a request is none of its business. Types
//! that live on one core are `Rc` inside and not `Send`; what cores share ([`dns::NameCache`])
//! says so.

pub mod connect;
pub mod dns;
pub mod listener;
mod own_address;
pub mod pool;
mod port_owner;

pub use own_address::is_own_address;
