//! Lengths of records in seven bits.
//!
//! The index has to know how much to read for a hit, and not more exactly than a read needs it:
//! lengths are rounded up to sectors of 512 bytes, and above eight sectors to one of eight steps an
//! octave. So no more than an eighth is read in vain, and 128 classes reach from one sector to
//! [`RECORD_BYTES_MAX`]. Each of the 128 values is a valid class.

/// Unit of lengths and of locations, in bytes.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// Bits of a class.
pub(crate) const CLASS_BITS: u32 = 7;

/// The longest record that has a class: 128 MiB.
pub(crate) const RECORD_BYTES_MAX: u64 = LengthClass(LengthClass::LAST).bytes_max();

/// Steps an octave, and lengths in sectors that are exact.
const STEPS: u64 = 8;

/// The length of a record, rounded up by at most an eighth of its sectors.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LengthClass(u8);

impl LengthClass {
    const LAST: u8 = (1 << CLASS_BITS) - 1;

    /// The class of a record of `bytes`; `None` for more than [`RECORD_BYTES_MAX`]. An empty one
    /// counts as a sector.
    pub(crate) fn of_bytes(bytes: u64) -> Option<Self> {
        let sectors = bytes.div_ceil(SECTOR_BYTES).max(1);
        if sectors <= STEPS {
            return Some(Self(sectors as u8 - 1));
        }
        if bytes > RECORD_BYTES_MAX {
            return None;
        }
        // With `octave` the last sector's number is `STEPS..2 * STEPS` steps of 2^octave sectors.
        let last = sectors - 1;
        let octave = last.ilog2() - STEPS.ilog2();
        let step = (last >> octave) - STEPS;
        Some(Self((STEPS * u64::from(octave + 1) + step) as u8))
    }

    /// The longest record of this class in bytes: as much is read for it. A multiple of
    /// [`SECTOR_BYTES`].
    pub(crate) const fn bytes_max(self) -> u64 {
        let class = self.0 as u64;
        let sectors = match class / STEPS {
            0 => class + 1,
            octave => (STEPS + class % STEPS + 1) << (octave - 1),
        };
        sectors * SECTOR_BYTES
    }

    /// The class as a number below 2^[`CLASS_BITS`]. Longer records have larger numbers.
    pub(crate) fn to_bits(self) -> u8 {
        self.0
    }

    /// The reverse of [`LengthClass::to_bits`]; higher bits are ignored.
    pub(crate) fn from_bits(bits: u8) -> Self {
        Self(bits & Self::LAST)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_lengths_are_exact_and_the_ends_are_where_they_are_said_to_be() {
        for sectors in 1..=STEPS {
            let class = LengthClass::of_bytes(sectors * SECTOR_BYTES).expect("a class");
            assert_eq!(class.bytes_max(), sectors * SECTOR_BYTES);
        }
        assert_eq!(LengthClass::of_bytes(0), LengthClass::of_bytes(512));
        assert_eq!(LengthClass::of_bytes(0).map(LengthClass::to_bits), Some(0));
        assert_eq!(RECORD_BYTES_MAX, 128 << 20);
        assert_eq!(LengthClass::of_bytes(RECORD_BYTES_MAX).map(LengthClass::to_bits), Some(127));
        assert_eq!(LengthClass::of_bytes(RECORD_BYTES_MAX + 1), None);
        assert_eq!(LengthClass::of_bytes(u64::MAX), None);
    }

    #[test]
    fn every_class_holds_the_lengths_from_behind_the_one_before_to_its_own_end() {
        let mut behind_last = 0;
        for bits in 0..128 {
            let class = LengthClass::from_bits(bits);
            assert_eq!(class.to_bits(), bits);
            assert_eq!(LengthClass::from_bits(bits | 0x80), class);
            assert!(class.bytes_max() > behind_last);
            assert_eq!(LengthClass::of_bytes(behind_last + 1), Some(class));
            assert_eq!(LengthClass::of_bytes(class.bytes_max()), Some(class));
            behind_last = class.bytes_max();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn an_eighth_is_the_most_that_is_read_in_vain(bytes in 0..=RECORD_BYTES_MAX) {
            let rounded = LengthClass::of_bytes(bytes).expect("a class").bytes_max();
            let needed = bytes.max(1).next_multiple_of(SECTOR_BYTES);
            prop_assert!(rounded >= needed && rounded.is_multiple_of(SECTOR_BYTES));
            prop_assert!((rounded - needed) * STEPS <= needed, "{needed} became {rounded}");
        }
    }
}
