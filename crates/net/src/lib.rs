//! Connections (TCP, Unix sockets, TLS), listeners, DNS, connecting, connection pools.
//!
//! This crate knows sockets and time but no HTTP and no requests. Types that live on one core are
//! `Rc` inside and not `Send`; types that cores share ([`dns::NameCache`]) document that.

pub mod connect;
pub mod dns;
pub mod icp;
pub mod listener;
pub mod marks;
pub mod memory;
mod own_address;
pub mod pool;
mod port_owner;
pub mod proxy_header;
mod special_use;
mod splice;
mod stream;
pub mod tls;
pub mod unix_socket;
pub mod watched;

pub use own_address::is_own_address;
pub use special_use::{is_private_network, special_use};
pub use stream::Stream;
