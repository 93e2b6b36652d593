//! Accesses to the memory of a buffer, which tests can have a model check. In the program this is
//! nothing at all.

use std::ops::Range;

#[cfg(not(test))]
#[derive(Debug)]
pub(super) struct Watch;

#[cfg(not(test))]
impl Watch {
    pub(super) fn new(_units: usize) -> Self {
        Self
    }

    #[inline]
    pub(super) fn reads(&self, _bytes: Range<usize>) {}

    #[inline]
    pub(super) fn writes(&self, _bytes: Range<usize>) {}
}

#[cfg(test)]
pub(super) use modelled::Watch;

#[cfg(test)]
mod modelled {
    use loom::cell::UnsafeCell;

    use super::super::UNIT_BYTES;
    use super::Range;

    /// Says whether accesses to a unit are in order.
    struct Unit(UnsafeCell<()>);

    // SAFETY: there is nothing in it, and to find accesses of several threads is its purpose.
    unsafe impl Send for Unit {}
    // SAFETY: as above.
    unsafe impl Sync for Unit {}

    /// One for each unit, in a model.
    pub(crate) struct Watch(Option<Box<[Unit]>>);

    impl Watch {
        pub(crate) fn new(units: usize) -> Self {
            let unit = |_| Unit(UnsafeCell::new(()));
            Self(humboldt_model::is_model().then(|| (0..units).map(unit).collect()))
        }

        fn of(&self, bytes: Range<usize>) -> &[Unit] {
            let Some(units) = &self.0 else { return &[] };
            &units[bytes.start / UNIT_BYTES..bytes.end.div_ceil(UNIT_BYTES)]
        }

        /// Other threads may read the bytes as well, but not write them.
        pub(crate) fn reads(&self, bytes: Range<usize>) {
            self.of(bytes).iter().for_each(|unit| unit.0.with(|_| ()));
        }

        /// No other thread may read or write the bytes.
        pub(crate) fn writes(&self, bytes: Range<usize>) {
            self.of(bytes).iter().for_each(|unit| unit.0.with_mut(|_| ()));
        }
    }
}
