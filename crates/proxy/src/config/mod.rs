//! The configuration in the form in which requests use it: tables, which know no request. What they
//! say about one is asked in [`rules`](crate::rules).

pub(crate) mod cache_status;
pub(crate) mod conditions;
pub(crate) mod denials;
mod hashing;
pub(crate) mod header_rules;
pub(crate) mod names;
pub(crate) mod peers;
pub(crate) mod reply_rules;
pub mod snapshot;
mod url_pattern;
