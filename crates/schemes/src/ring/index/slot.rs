//! One object in eight bytes.
//!
//! bits | field
//! --- | ---
//! 61..64 | kind, 0 in an empty slot
//! 59..61 | frequency
//! 52..59 | class of the length
//! 34..52 | tag: bits of the key's hash
//! 0..34 | location in sectors

use super::super::length::{CLASS_BITS, LengthClass};

/// Bits of a tag.
pub(super) const TAG_BITS: u32 = 18;

const LOCATION_BITS: u32 = 34;
const FREQ_BITS: u32 = 2;
const LENGTH_SHIFT: u32 = LOCATION_BITS + TAG_BITS;
const FREQ_SHIFT: u32 = LENGTH_SHIFT + CLASS_BITS;
const KIND_SHIFT: u32 = FREQ_SHIFT + FREQ_BITS;

/// Locations are below this many sectors: 8 TiB.
pub(crate) const LOCATION_END: u64 = 1 << LOCATION_BITS;

/// The highest frequency.
pub(crate) const FREQ_MAX: u8 = (1 << FREQ_BITS) - 1;

/// The highest kind; the lowest is 1.
pub(crate) const KIND_MAX: u8 = 7;

/// The facts about one object in the index.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Start of its record, in sectors of 512 bytes, below [`LOCATION_END`].
    pub(crate) location: u64,
    /// Length of the record.
    pub(crate) length: LengthClass,
    /// Number of its uses, as far as that matters, 0 to [`FREQ_MAX`].
    pub(crate) freq: u8,
    /// For the scheme's use, 1 to [`KIND_MAX`].
    pub(crate) kind: u8,
}

/// An [`Entry`] and its tag, or nothing.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Slot(pub(super) u64);

impl Slot {
    pub(super) const EMPTY: Self = Self(0);

    /// A number out of its range is a mistake of the scheme; here it becomes one within it, and the
    /// record that is found there does not verify.
    pub(super) fn new(tag: u32, entry: Entry) -> Self {
        debug_assert!(entry.location < LOCATION_END && entry.freq <= FREQ_MAX, "{entry:?}");
        debug_assert!(
            (1..=KIND_MAX).contains(&entry.kind) && tag < 1 << TAG_BITS,
            "{entry:?} {tag}"
        );
        let fields = [
            (u64::from(entry.kind.clamp(1, KIND_MAX)), KIND_SHIFT),
            (u64::from(entry.freq.min(FREQ_MAX)), FREQ_SHIFT),
            (u64::from(entry.length.to_bits()), LENGTH_SHIFT),
            (u64::from(tag), LOCATION_BITS),
            (entry.location % LOCATION_END, 0),
        ];
        Self(fields.into_iter().fold(0, |slot, (field, shift)| slot | (field << shift)))
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 >> KIND_SHIFT == 0
    }

    /// Whether there is an object, with this tag.
    pub(super) fn has(self, tag: u32) -> bool {
        self.tag() == tag && !self.is_empty()
    }

    pub(super) fn tag(self) -> u32 {
        (self.0 >> LOCATION_BITS) as u32 % (1 << TAG_BITS)
    }

    pub(super) fn location(self) -> u64 {
        self.0 % LOCATION_END
    }

    pub(super) fn freq(self) -> u8 {
        (self.0 >> FREQ_SHIFT) as u8 & FREQ_MAX
    }

    /// The same object, used once more; `None` at the highest count.
    pub(super) fn bumped(self) -> Option<Self> {
        (self.freq() < FREQ_MAX).then(|| Self(self.0 + (1 << FREQ_SHIFT)))
    }

    pub(super) fn entry(self) -> Entry {
        Entry {
            location: self.location(),
            length: LengthClass::from_bits((self.0 >> LENGTH_SHIFT) as u8),
            freq: self.freq(),
            kind: (self.0 >> KIND_SHIFT) as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_keeps_its_lowest_and_highest_value_beside_the_others() {
        for bits in 0..1_u32 << 5 {
            let pick =
                |bit: u32, low: u64, high: u64| if bits >> bit & 1 == 0 { low } else { high };
            let entry = Entry {
                location: pick(0, 0, LOCATION_END - 1),
                length: LengthClass::from_bits(pick(1, 0, 127) as u8),
                freq: pick(2, 0, FREQ_MAX.into()) as u8,
                kind: pick(3, 1, KIND_MAX.into()) as u8,
            };
            let tag = pick(4, 0, (1 << TAG_BITS) - 1) as u32;
            let slot = Slot::new(tag, entry);
            assert_eq!((slot.entry(), slot.tag(), slot.is_empty()), (entry, tag, false));
            assert!(slot.has(tag) && !slot.has(tag ^ 1));
        }
        assert!(Slot::EMPTY.is_empty() && !Slot::EMPTY.has(0));
    }

    #[test]
    fn frequency_stops_at_its_highest_value_and_touches_nothing_else() {
        let entry =
            Entry { location: 5, length: LengthClass::from_bits(127), freq: 0, kind: KIND_MAX };
        let mut slot = Slot::new(9, entry);
        for freq in 1..=FREQ_MAX {
            slot = slot.bumped().expect("below the highest");
            assert_eq!((slot.entry(), slot.tag()), (Entry { freq, ..entry }, 9));
        }
        assert_eq!(slot.bumped(), None);
    }
}
