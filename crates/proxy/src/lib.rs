//! The request pipeline: from an accepted connection to a logged answer.
//!
//! Start reading at [`pipeline`]: it is the life of a request, step by step. [`client`] is the
//! HTTP/1 side towards clients, [`fetch`] the side towards servers; [`snapshot`] is the compiled
//! configuration they share.

pub mod client;
pub mod core;
pub mod cut;
pub mod errors;
pub mod shared;
pub mod snapshot;
mod swap_out;

mod access;
mod answer;
mod assemble;
mod body;
mod cache_status;
mod client_counts;
mod denial;
mod disk;
mod fetch;
mod forward;
mod hashing;
mod header_rules;
mod hit;
mod indirect;
mod input;
mod internal;
mod job;
mod leave;
mod log;
mod memory;
mod partial;
mod peers;
mod pipeline;
mod purge;
mod reach;
mod refresh;
mod relay;
mod reply;
mod request;
mod resume;
mod server;
mod switch;
mod tunnel;
mod unparsed;
mod url_pattern;

pub use client::serve_connection;
pub use internal::{InternalPages, Page, closes_page};
pub use log::AccessLog;
