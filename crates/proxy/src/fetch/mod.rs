//! Asking a server for an answer.

pub(crate) mod ask;
pub(crate) mod certificates;
mod connecting;
pub(crate) mod converse;
pub(crate) mod destination;
pub(crate) mod job;
pub(crate) mod pinning;
pub(crate) mod route;
pub(crate) mod validator;
