//! Applies the rules of the configuration to one request.

pub(crate) mod access;
pub(crate) mod balancer;
pub(crate) mod budget;
pub(crate) mod bump;
pub(crate) mod codes;
pub(crate) mod decision;
pub(crate) mod delays;
pub(crate) mod denial;
pub mod destinations;
pub(crate) mod enforce;
pub(crate) mod external;
pub(crate) mod format;
pub(crate) mod header;
pub(crate) mod indirect;
pub(crate) mod login;
pub(crate) mod marks;
pub(crate) mod notes;
pub(crate) mod original;
pub(crate) mod own;
pub(crate) mod permission;
pub(crate) mod reply;
pub(crate) mod rewriting;
pub(crate) mod upgrades;
