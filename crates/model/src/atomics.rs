//! Atomics.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::is_model;

type Plain = std::sync::atomic::AtomicU64;
type Modelled = loom::sync::atomic::AtomicU64;

/// A number that threads share. In a model a load may give any value that its memory order admits.
#[derive(Debug)]
pub struct AtomicU64(Number);

#[derive(Debug)]
enum Number {
    Plain(Plain),
    Modelled(Modelled),
}

macro_rules! both {
    ($self:ident, $number:ident => $operation:expr) => {
        match &$self.0 {
            Number::Plain($number) => $operation,
            Number::Modelled($number) => $operation,
        }
    };
}

impl AtomicU64 {
    /// A number.
    pub fn new(value: u64) -> Self {
        Self(if is_model() {
            Number::Modelled(Modelled::new(value))
        } else {
            Number::Plain(Plain::new(value))
        })
    }

    /// Reads it.
    pub fn load(&self, order: Ordering) -> u64 {
        both!(self, number => number.load(order))
    }

    /// Subtracts; returns what there was.
    pub fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        both!(self, number => number.fetch_sub(value, order))
    }

    /// Sets bits; returns what there was.
    pub fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
        both!(self, number => number.fetch_or(value, order))
    }

    /// Replaces it by what `change` makes of it, if anything; returns what there was.
    ///
    /// # Errors
    /// What there is.
    pub fn fetch_update(
        &self,
        set: Ordering,
        fetch: Ordering,
        change: impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        both!(self, number => number.fetch_update(set, fetch, change))
    }
}

thread_local! {
    /// What every use of a [`WordU64`] uses as well.
    static STEPS: RefCell<Option<Arc<Modelled>>> = const { RefCell::new(None) };
}

/// A course begins.
pub(crate) fn begin() {
    STEPS.set(Some(Arc::new(Modelled::new(0))));
}

/// A course has ended.
pub(crate) fn end() {
    STEPS.set(None);
}

/// A moment at which another thread may come next.
fn step() {
    if is_model() {
        let steps = STEPS.with_borrow(Option::clone);
        steps.inspect(|steps| _ = steps.fetch_add(1, Ordering::SeqCst));
    }
}

macro_rules! words {
    ($($word:ident, $plain:ident, $value:ty;)+) => {$(
        /// A value no longer than in the program. In a model, other threads may come between any
        /// two changes and before each read, which gives the newest value.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $word(std::sync::atomic::$plain);

        impl $word {
            /// A value.
            pub fn new(value: $value) -> Self {
                Self(std::sync::atomic::$plain::new(value))
            }

            /// Reads it.
            pub fn load(&self, order: Ordering) -> $value {
                step();
                self.0.load(order)
            }

            /// Changes it.
            pub fn store(&self, value: $value, order: Ordering) {
                step();
                self.0.store(value, order);
            }
        }
    )+};
}

words! {
    WordBool, AtomicBool, bool;
    WordU32, AtomicU32, u32;
    WordU64, AtomicU64, u64;
    WordUsize, AtomicUsize, usize;
}

macro_rules! numbers {
    ($($word:ident, $value:ty;)+) => {$(
        impl $word {
            /// Adds; returns what there was.
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_add(value, order)
            }

            /// Subtracts; returns what there was.
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                step();
                self.0.fetch_sub(value, order)
            }
        }
    )+};
}

numbers! {
    WordU32, u32;
    WordU64, u64;
    WordUsize, usize;
}

impl WordU64 {
    /// Where nobody else can use it.
    pub fn get_mut(&mut self) -> &mut u64 {
        self.0.get_mut()
    }

    /// Replaces it by what `change` makes of it, if anything; returns what there was.
    ///
    /// # Errors
    /// What there is.
    pub fn fetch_update(
        &self,
        set: Ordering,
        fetch: Ordering,
        mut change: impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        let mut old = self.load(fetch);
        while let Some(new) = change(old) {
            step();
            match self.0.compare_exchange(old, new, set, fetch) {
                Ok(old) => return Ok(old),
                Err(found) => old = found,
            }
        }
        Err(old)
    }
}
