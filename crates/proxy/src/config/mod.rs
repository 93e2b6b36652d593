//! The configuration as tables that know no request. [`rules`](crate::rules) applies them to one.

pub mod budgets;
mod bumping;
pub(crate) mod cache_status;
pub(crate) mod conditions;
pub mod delays;
pub(crate) mod denials;
pub mod error;
pub(crate) mod externals;
mod hashing;
pub(crate) mod header_rules;
pub(crate) mod helpers;
pub(crate) mod logins;
pub(crate) mod marks;
pub(crate) mod names;
pub(crate) mod note_rules;
pub(crate) mod pages;
pub(crate) mod peers;
pub(crate) mod quoting;
pub(crate) mod reply_rules;
pub(crate) mod rewriting;
pub mod rule_counts;
pub mod snapshot;
pub(crate) mod tls;
mod url_pattern;
