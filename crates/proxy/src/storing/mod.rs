//! What becomes of an answer on its way from its server.

pub(crate) mod decide;
pub(crate) mod deliver;
pub(crate) mod freshen;
pub(crate) mod head;
pub(crate) mod invalidate;
pub(crate) mod parts;
pub(crate) mod publish;
pub(crate) mod store;
