//! The path of an answer from its server to memory, disk and clients.

pub(crate) mod decide;
pub(crate) mod deliver;
pub(crate) mod freshen;
pub(crate) mod head;
pub(crate) mod invalidate;
pub(crate) mod parts;
pub(crate) mod publish;
pub(crate) mod store;
