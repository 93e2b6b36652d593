//! Locks and numbers of the index of `ring`; in tests they can be those of a model.

#[cfg(test)]
pub(crate) use humboldt_model::{RwLock, WordU64 as AtomicU64};
#[cfg(not(test))]
pub(crate) use parking_lot::RwLock;
#[cfg(not(test))]
pub(crate) use std::sync::atomic::AtomicU64;
