//! Locks and atomics of what is shared by cores; in tests they can be those of a model.

#[cfg(test)]
pub(crate) use humboldt_model::{
    Mutex, MutexGuard, WordBool as AtomicBool, WordU32 as AtomicU32, WordU64 as AtomicU64,
    WordUsize as AtomicUsize,
};
#[cfg(not(test))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(not(test))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
