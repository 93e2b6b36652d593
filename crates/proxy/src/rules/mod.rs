//! Applies the rules of the configuration to one request.

pub(crate) mod access;
pub(crate) mod codes;
pub(crate) mod denial;
pub(crate) mod format;
pub(crate) mod header;
pub(crate) mod indirect;
pub(crate) mod notes;
pub(crate) mod own;
pub(crate) mod reply;
pub(crate) mod upgrades;
