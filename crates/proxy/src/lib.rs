//! The request pipeline: from an accepted connection to a logged answer.
//!
//! Start reading at [`pipeline`]: it shows the life of a request step by step, and each step is a
//! folder. [`serve`] has the connections of clients, [`transaction`] one request and its line in
//! access.log; [`config::snapshot`] is the compiled configuration that all requests share.
//!
//! An answer travels down this list. No file imports from a folder further down:
//!
//! 1. [`config`]: the configuration as tables;
//! 2. [`rules`]: applies the tables to one request;
//! 3. [`fetch`]: asks a server; it knows no client;
//! 4. [`lookup`]: looks up stored answers; it sends nothing;
//! 5. [`storing`]: decides whether an answer is stored, and stores it;
//! 6. [`reply`]: sends an answer;
//! 7. [`special`]: requests that do not use the cache.

pub mod config;
pub mod core;
pub mod cut;
pub mod errors;
pub mod shared;

pub mod budgets;

mod bumped;
mod callouts;
mod client_counts;
mod demands;
mod fetch;
mod handshake;
mod helped;
mod leaf_turns;
mod lookup;
mod open_tunnel;
mod outcome;
mod pin;
mod pipeline;
mod queries;
mod reply;
mod request;
mod rules;
mod secure;
mod serve;
mod special;
mod storing;
#[cfg(test)]
mod tests;
mod transaction;

pub use config::error::CompileError;
pub use config::{delays, snapshot};
pub use outcome::AccessLog;
pub use queries::answer_queries;
pub use rules::destinations;
pub use rules::own::{is_own_name, page_in as own_page_in};
pub use serve::{answer_one, serve_connection};
pub use shared::{InternalPages, Page, closes_page};
