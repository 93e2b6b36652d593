//! Requests in which the cache has no part.

pub(crate) mod internal;
pub(crate) mod purge;
pub(crate) mod tunnel;
pub(crate) mod unparsed;
pub(crate) mod upload;
