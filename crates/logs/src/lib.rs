//! access.log, store.log and cache.log: writers that never block a request.
//!
//! A core appends whole lines to a buffer of its own ([`LineSink`]); one background thread writes
//! all buffers of all files ([`LogService`]), and each helper program or receiver in the network
//! has a thread of its own. When one cannot keep up, lines are dropped and counted.

pub mod access;
pub mod cache_log;
mod destination;
mod line_sink;
mod output;
pub mod panics;
mod patience;
mod service;
pub mod store_log;
mod target;
mod text;

pub use destination::{Destination, DestinationError};
pub use line_sink::{BUFFER_BYTES_MAX, LineSink, OnDropped, SinkOptions};
pub use service::LogService;
