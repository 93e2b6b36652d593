//! Locks and atomics of this crate. In tests, atomics can be those of a model.

#[cfg(test)]
pub(crate) use humboldt_model::AtomicU64;
#[cfg(not(miri))]
pub(crate) use parking_lot::Mutex;
#[cfg(not(test))]
pub(crate) use std::sync::atomic::AtomicU64;

/// The lock for the interpreter that checks unsafe code: it refuses the system call of the other
/// one.
#[cfg(miri)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

#[cfg(miri)]
pub(crate) type MutexGuard<'a, T> = std::sync::MutexGuard<'a, T>;
#[cfg(not(miri))]
pub(crate) type MutexGuard<'a, T> = parking_lot::MutexGuard<'a, T>;

#[cfg(miri)]
impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
