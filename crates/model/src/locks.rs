//! `parking_lot`'s locks, each behind a lock of the model where there is one: the thread that
//! has that finds the other free.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::is_model;

/// A lock of the model was not the only way to the value.
const FREE: &str = "free, as the model's lock is held";

/// A lock around a value.
#[derive(Default)]
pub struct Mutex<T> {
    value: parking_lot::Mutex<T>,
    gate: Gate<loom::sync::Mutex<()>>,
}

/// Access to the value of a [`Mutex`].
pub struct MutexGuard<'a, T> {
    // Released first.
    value: parking_lot::MutexGuard<'a, T>,
    _gate: Option<loom::sync::MutexGuard<'a, ()>>,
}

/// A lock around a value that any number of threads may read.
#[derive(Default)]
pub struct RwLock<T> {
    value: parking_lot::RwLock<T>,
    gate: Gate<loom::sync::RwLock<()>>,
}

/// Shared access to the value of a [`RwLock`].
pub struct RwLockReadGuard<'a, T> {
    value: parking_lot::RwLockReadGuard<'a, T>,
    _gate: Option<loom::sync::RwLockReadGuard<'a, ()>>,
}

/// Exclusive access to the value of a [`RwLock`].
pub struct RwLockWriteGuard<'a, T> {
    value: parking_lot::RwLockWriteGuard<'a, T>,
    _gate: Option<loom::sync::RwLockWriteGuard<'a, ()>>,
}

/// A lock of the model, if this was made in one. Boxed, as tests look at the size of what has it.
struct Gate<L>(Option<Box<L>>);

impl<L: Default> Default for Gate<L> {
    fn default() -> Self {
        Self(is_model().then(Box::default))
    }
}

impl<T> Mutex<T> {
    /// A lock that is free.
    pub fn new(value: T) -> Self {
        Self { value: parking_lot::Mutex::new(value), gate: Gate::default() }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let Some(gate) = &self.gate.0 else {
            return MutexGuard { value: self.value.lock(), _gate: None };
        };
        let gate = gate.lock().expect("no panic under the lock");
        MutexGuard { value: self.value.try_lock().expect(FREE), _gate: Some(gate) }
    }
}

impl<T> RwLock<T> {
    /// A lock that is free.
    pub fn new(value: T) -> Self {
        Self { value: parking_lot::RwLock::new(value), gate: Gate::default() }
    }

    /// Waits for shared access.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let Some(gate) = &self.gate.0 else {
            return RwLockReadGuard { value: self.value.read(), _gate: None };
        };
        let gate = gate.read().expect("no panic under the lock");
        RwLockReadGuard { value: self.value.try_read().expect(FREE), _gate: Some(gate) }
    }

    /// Shared access, unless it has to be waited for.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let gate = match &self.gate.0 {
            Some(gate) => Some(gate.try_read().ok()?),
            None => None,
        };
        Some(RwLockReadGuard { value: self.value.try_read()?, _gate: gate })
    }

    /// Waits for exclusive access.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let Some(gate) = &self.gate.0 else {
            return RwLockWriteGuard { value: self.value.write(), _gate: None };
        };
        let gate = gate.write().expect("no panic under the lock");
        RwLockWriteGuard { value: self.value.try_write().expect(FREE), _gate: Some(gate) }
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

macro_rules! guards {
    ($($guard:ident),+) => {$(
        impl<T> Deref for $guard<'_, T> {
            type Target = T;

            fn deref(&self) -> &T {
                &self.value
            }
        }
    )+};
}

guards!(MutexGuard, RwLockReadGuard, RwLockWriteGuard);

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
