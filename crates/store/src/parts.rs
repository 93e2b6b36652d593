//! The value under the key of an answer of which only parts are stored: the list of these parts.
//!
//! Each part of a body (a 206 answer, RFC 9110 15.3.7) is an object of its own under a key of its
//! own, with the bytes of the part as its body. The list that leads to them is an object too: its
//! status is 206, its head has the fields that all parts share, and its body is
//! [`PartList::to_bytes`]. So parts and lists live and die in memory and in any directory like
//! everything else, and with the list goes the way to the parts.

use std::ops::Range;
use std::sync::Arc;

use humboldt_freshness::Times;

use crate::body::Body;
use crate::cache::Cache;
use crate::flow::Epoch;
use crate::head::StoredHead;
use crate::key::Key;
use crate::mem::Entry;
use crate::object::Object;
use crate::vary::next_generation;

/// Status of a list, and of each part.
pub const PARTIAL: u16 = 206;

/// Most parts of one answer; of more, the first one in the list gives way.
const PARTS_MAX: usize = 256;

/// First byte of the serialised form.
const FORM: u8 = 1;

/// Bytes of one part in the serialised form: where it begins and ends, and its key.
const PART_BYTES: usize = 32;

/// Bytes before the parts: the form, and the length of the whole body.
const FRONT_BYTES: usize = 9;

/// One stored part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which bytes of the whole body, the last one excluded.
    pub bytes: Range<u64>,
    /// Under which key.
    pub key: Key,
}

/// A stretch of the body, and where to get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// From a stored part: these bytes of the whole body, which begin so far behind the part's own
    /// first byte.
    Stored {
        /// The part's key.
        key: Key,
        /// Offset in the part.
        from: u64,
        /// Which bytes of the whole body.
        bytes: Range<u64>,
    },
    /// Not stored.
    Gap(Range<u64>),
}

/// The parts of one answer, by their first byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartList {
    /// Length of the whole body.
    pub complete_bytes: u64,
    parts: Vec<Part>,
}

impl PartList {
    /// A list without parts.
    pub fn new(complete_bytes: u64) -> Self {
        Self { complete_bytes, parts: Vec::new() }
    }

    /// The list that an object holds; `None` if it is another object.
    pub fn of(object: &Object) -> Option<Self> {
        if object.head.status != PARTIAL {
            return None;
        }
        Self::from_bytes(&object.parts().collect::<Vec<_>>().concat())
    }

    /// Adds a part and drops those that it makes superfluous. A part outside of the body is not
    /// added.
    pub fn add(&mut self, part: Part) {
        if part.bytes.is_empty() || part.bytes.end > self.complete_bytes {
            return;
        }
        self.parts
            .retain(|old| old.bytes.start < part.bytes.start || old.bytes.end > part.bytes.end);
        if self.parts.len() >= PARTS_MAX {
            self.parts.remove(0);
        }
        let at = self.parts.partition_point(|old| old.bytes.start < part.bytes.start);
        self.parts.insert(at, part);
    }

    /// Drops a part that turned out not to be there any more; whether it was in the list.
    pub fn forget(&mut self, key: &Key) -> bool {
        let before = self.parts.len();
        self.parts.retain(|part| part.key != *key);
        before != self.parts.len()
    }

    /// Cuts `wanted` into pieces, in order: at each byte the stored part that reaches farthest.
    pub fn pieces(&self, wanted: Range<u64>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut at = wanted.start;
        while at < wanted.end {
            let here = self.parts.iter().filter(|part| part.bytes.contains(&at));
            if let Some(part) = here.max_by_key(|part| part.bytes.end) {
                let end = part.bytes.end.min(wanted.end);
                pieces.push(Piece::Stored {
                    key: part.key,
                    from: at - part.bytes.start,
                    bytes: at..end,
                });
                at = end;
            } else {
                let next = self.parts.iter().map(|part| part.bytes.start).find(|&start| start > at);
                let end = next.unwrap_or(wanted.end).min(wanted.end);
                pieces.push(Piece::Gap(at..end));
                at = end;
            }
        }
        pieces
    }

    /// The serialised form; numbers are little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(FRONT_BYTES + self.parts.len() * PART_BYTES);
        bytes.push(FORM);
        bytes.extend_from_slice(&self.complete_bytes.to_le_bytes());
        for part in &self.parts {
            bytes.extend_from_slice(&part.bytes.start.to_le_bytes());
            bytes.extend_from_slice(&part.bytes.end.to_le_bytes());
            bytes.extend_from_slice(&part.key.0.to_le_bytes());
        }
        bytes
    }

    /// Reads the serialised form; `None` if it is not one.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (form, rest) = bytes.split_first()?;
        let (complete_bytes, rest) = rest.split_first_chunk::<8>()?;
        let (parts, rest) = rest.as_chunks::<PART_BYTES>();
        if *form != FORM || !rest.is_empty() || parts.len() > PARTS_MAX {
            return None;
        }
        let mut list = Self::new(u64::from_le_bytes(*complete_bytes));
        for part in parts {
            let (start, rest) = part.split_first_chunk::<8>()?;
            let (end, key) = rest.split_first_chunk::<8>()?;
            let bytes = u64::from_le_bytes(*start)..u64::from_le_bytes(*end);
            let key = Key(u128::from_le_bytes(*key.first_chunk::<16>()?));
            let is_sound = !bytes.is_empty() && bytes.end <= list.complete_bytes;
            let is_next = list.parts.last().is_none_or(|last| last.bytes.start <= bytes.start);
            if !is_sound || !is_next {
                return None;
            }
            list.parts.push(Part { bytes, key });
        }
        Some(list)
    }
}

impl Part {
    /// A key that no part of any answer has had.
    pub fn new_key(list: Key) -> Key {
        list.variant(&next_generation().to_le_bytes())
    }
}

/// Why a part is not listed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum NotListed {
    /// The whole of the same answer is there, or a newer answer.
    Needless,
    /// Memory is short, or the URL has been purged since: older answers have left memory, and are
    /// still to be removed from directories.
    NoRoom,
}

impl Cache {
    /// Adds a part that has been stored to the list under `list`, in memory. `merge` gets the
    /// present object, a list or a whole answer, if there is one. It returns the head and times of
    /// the new list, and whether the listed parts belong to the same answer as this one; otherwise
    /// a new list begins. It returns `None` if the whole of the same answer is there. Returns the
    /// new list for [`Cache::write_object`].
    ///
    /// # Errors
    /// [`NotListed`].
    pub fn add_part(
        &self,
        epoch: Epoch,
        list: Key,
        url: &[u8],
        complete_bytes: u64,
        part: Part,
        merge: impl FnOnce(Option<&Object>) -> Option<(StoredHead, Times, bool)>,
    ) -> Result<Arc<Object>, NotListed> {
        let _turn = self.lists.lock();
        let present = match self.lookup(&list) {
            Some(Entry::Object(object)) if *object.url == *url => Some(object),
            Some(Entry::Object(_)) => return Err(NotListed::Needless),
            _ => None,
        };
        let (head, times, belongs) = merge(present.as_deref()).ok_or(NotListed::Needless)?;
        let known = present.and_then(|object| PartList::of(&object)).filter(|_| belongs);
        let mut parts = known
            .filter(|known| known.complete_bytes == complete_bytes)
            .unwrap_or_else(|| PartList::new(complete_bytes));
        parts.add(part);
        let insert = |body| {
            let object = Arc::new(Object::new(list, url.into(), Arc::new(head), times, body));
            let entry = Entry::Object(object.clone());
            self.insert_current(epoch, list, entry).then_some(object)
        };
        match Body::in_pages(self.tier(), &parts.to_bytes()).and_then(insert) {
            Some(object) => Ok(object),
            None if self.is_newest(epoch, &list) => {
                // Somebody has this part. What is there is older.
                self.remove_older(epoch, &list);
                Err(NotListed::NoRoom)
            }
            None => Err(NotListed::Needless),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::key;

    fn list(parts: &[(u64, u64)]) -> PartList {
        let mut list = PartList::new(100);
        for (number, (start, end)) in (0..).zip(parts) {
            list.add(Part { bytes: *start..*end, key: key(number) });
        }
        list
    }

    #[test]
    fn pieces_and_gaps_alternate() {
        let list = list(&[(10, 20), (15, 30), (50, 60)]);
        let stored = |number, from, bytes| Piece::Stored { key: key(number), from, bytes };
        let all = [
            Piece::Gap(0..10),
            stored(0, 0, 10..20),
            stored(1, 5, 20..30),
            Piece::Gap(30..50),
            stored(2, 0, 50..60),
            Piece::Gap(60..100),
        ];
        assert_eq!(list.pieces(0..100), all);
        assert_eq!(list.pieces(16..25), [stored(1, 1, 16..25)]);
        assert_eq!(list.pieces(55..58), [stored(2, 5, 55..58)]);
        assert_eq!(list.pieces(70..71), [Piece::Gap(70..71)]);
        assert_eq!(list.pieces(70..70), []);
    }

    #[test]
    fn superfluous_parts_go_and_the_rest_stays() {
        let mut list = list(&[(10, 20), (0, 5), (8, 25), (8, 25), (30, 101), (7, 7)]);
        assert_eq!(
            list.parts.iter().map(|part| part.bytes.clone()).collect::<Vec<_>>(),
            [0..5, 8..25]
        );
        assert_eq!(list.parts[1].key, key(3));
        assert!(list.forget(&key(3)) && !list.forget(&key(3)));
        for number in 0..PARTS_MAX as u64 + 10 {
            let mut long = PartList::new(u64::MAX);
            long.add(Part { bytes: number..number + 1, key: key(number) });
            list.complete_bytes = u64::MAX;
            list.add(long.parts.remove(0));
        }
        assert_eq!(list.parts.len(), PARTS_MAX);
    }

    #[test]
    fn damaged_forms_are_refused() {
        let good = list(&[(0, 10), (20, 30)]).to_bytes();
        assert!(PartList::from_bytes(&good).is_some());
        for len in 0..good.len() {
            let is_front = (len >= FRONT_BYTES) && (len - FRONT_BYTES).is_multiple_of(PART_BYTES);
            assert_eq!(PartList::from_bytes(&good[..len]).is_some(), is_front, "{len}");
        }
        let mut swapped = good[..FRONT_BYTES].to_vec();
        swapped.extend_from_slice(&good[FRONT_BYTES + PART_BYTES..]);
        swapped.extend_from_slice(&good[FRONT_BYTES..FRONT_BYTES + PART_BYTES]);
        assert_eq!(PartList::from_bytes(&swapped), None);
    }

    proptest! {
        #[test]
        fn every_wanted_byte_is_in_one_piece(
            parts in proptest::collection::vec((0u64..90, 1u64..30), 0..20),
            from in 0u64..100,
            len in 0u64..100,
        ) {
            let parts: Vec<_> = parts.into_iter().map(|(start, len)| (start, (start + len).min(100))).collect();
            let list = list(&parts);
            prop_assert_eq!(PartList::from_bytes(&list.to_bytes()), Some(list.clone()));
            let wanted = from..(from + len).min(100);
            let mut at = wanted.start;
            for piece in list.pieces(wanted.clone()) {
                let (bytes, is_stored) = match piece {
                    Piece::Stored { key: of, from, bytes } => {
                        let part = list.parts.iter().find(|part| part.key == of).expect("in the list");
                        prop_assert!(part.bytes.start + from == bytes.start && bytes.end <= part.bytes.end);
                        (bytes, true)
                    }
                    Piece::Gap(bytes) => (bytes, false),
                };
                prop_assert!(bytes.start == at && !bytes.is_empty());
                for byte in bytes.clone() {
                    prop_assert_eq!(parts.iter().any(|(start, end)| (*start..*end).contains(&byte)), is_stored);
                }
                at = bytes.end;
            }
            prop_assert_eq!(at, wanted.end.max(wanted.start));
        }
    }
}
