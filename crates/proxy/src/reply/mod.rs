//! Sending an answer to a client.

pub(crate) mod assemble;
pub(crate) mod challenge;
pub(crate) mod facts;
pub(crate) mod follow;
pub(crate) mod from_disk;
pub(crate) mod from_parts;
pub(crate) mod head;
pub(crate) mod hit;
pub(crate) mod leave;
pub(crate) mod local;
pub(crate) mod resume;
pub(crate) mod stream;
mod template;
