//! What is stored that may answer a request.

pub(crate) mod disk;
pub(crate) mod memory;
pub(crate) mod parts;
pub(crate) mod selection;
