//! The lock of the mailbox; in tests it can be one of a model.

#[cfg(test)]
pub(crate) use humboldt_model::Mutex;
#[cfg(not(test))]
pub(crate) use parking_lot::Mutex;
