//! The request pipeline: from an accepted connection to a logged answer.
//!
//! Start reading at [`pipeline`]: it is the life of a request, step by step, and every step is a
//! folder. [`serve`] has the connections of clients, [`transaction`] one request and its line in
//! access.log; [`config::snapshot`] is the compiled configuration that all share.
//!
//! An answer travels down this list, and no file imports one of a folder further down:
//!
//! 1. [`config`]: the configuration as tables;
//! 2. [`rules`]: what it says about one request;
//! 3. [`fetch`]: asking a server; it knows no client;
//! 4. [`lookup`]: what is stored of an answer; it sends nothing;
//! 5. [`storing`]: what becomes of an answer that comes;
//! 6. [`reply`]: sending an answer;
//! 7. [`special`]: requests in which the cache has no part.

pub mod config;
pub mod core;
pub mod cut;
pub mod errors;
pub mod shared;

mod client_counts;
mod fetch;
mod lookup;
mod outcome;
mod pipeline;
mod reply;
mod request;
mod rules;
mod serve;
mod special;
mod storing;
mod transaction;

pub use config::snapshot;
pub use outcome::AccessLog;
pub use serve::serve_connection;
pub use shared::{InternalPages, Page, closes_page};
