//! Requests that do not use the cache.

pub(crate) mod bump;
pub(crate) mod internal;
pub(crate) mod purge;
mod recheck;
pub(crate) mod tunnel;
pub(crate) mod unparsed;
pub(crate) mod upload;
