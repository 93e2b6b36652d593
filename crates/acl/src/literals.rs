//! Long lists of texts, one of which must occur in another text, such as a URL.
//!
//! The texts are sorted, and those that begin with another one are left out. So the only one that
//! can stand at a place is the last that is not greater than the rest there: one binary search. For
//! nearly all places a filter says before that no text has this beginning.

use crate::decode::with_lower_case;
use crate::error::AclProblem;
use crate::ranges::SAMPLED;

/// Longest text; longer ones stay expressions.
pub(crate) const LITERAL_BYTES_MAX: usize = 1024;

/// Most bytes of all texts of one list: a text's place has 32 bits.
const LITERALS_BYTES_MAX: usize = 1 << 30;

/// Bytes of the beginnings that are compared as numbers. A text belongs to the first of these that
/// is not longer than itself.
const HEADS_BYTES: [usize; 3] = [8, 4, 1];

/// Bits of the filter for each text. Three of them are set, so that one beginning in two hundred
/// passes that no text has.
const FILTER_BITS: usize = 16;

/// Texts of a list.
#[derive(Debug, Default)]
pub(crate) struct Literals {
    exact: Vec<Class>,
    /// In lower case, for lower-case text.
    any_case: Vec<Class>,
}

/// Texts with beginnings of the same length.
#[derive(Debug)]
struct Class {
    head_bytes: usize,
    filter: Filter,
    texts: Vec<u8>,
    entries: Vec<Entry>,
    /// Heads of some of the entries.
    samples: Vec<u64>,
}

#[derive(Copy, Clone, Debug)]
struct Entry {
    /// The first bytes as a number, in the order of the texts.
    head: u64,
    start: u32,
    length: u16,
}

impl Literals {
    /// Compiles texts, none of them empty, each with whether its case does not matter.
    ///
    /// # Errors
    /// More texts than a list has room for.
    pub(crate) fn compile(texts: Vec<(String, bool)>) -> Result<Self, AclProblem> {
        Self::within(texts, LITERALS_BYTES_MAX)
    }

    fn within(texts: Vec<(String, bool)>, bytes_max: usize) -> Result<Self, AclProblem> {
        if texts.iter().map(|(text, _)| text.len()).sum::<usize>() > bytes_max {
            return Err(AclProblem::TooLarge { what: "literal expressions", bytes_max });
        }
        let (any_case, exact): (Vec<_>, Vec<_>) =
            texts.into_iter().partition(|(_, any_case)| *any_case);
        let exact = exact.into_iter().map(|(text, _)| text);
        let any_case = any_case.into_iter().map(|(mut text, _)| {
            text.make_ascii_lowercase();
            text
        });
        Ok(Self { exact: classes(exact), any_case: classes(any_case) })
    }

    /// Whether one of them occurs in `text`.
    pub(crate) fn occur_in(&self, text: &[u8]) -> bool {
        let any = |classes: &[Class], text: &[u8]| classes.iter().any(|class| class.occurs(text));
        any(&self.exact, text)
            || (!self.any_case.is_empty()
                && with_lower_case(text, |lower| any(&self.any_case, lower)))
    }
}

/// The texts in classes that are not empty.
fn classes(texts: impl Iterator<Item = String>) -> Vec<Class> {
    let mut sorted: [Vec<(u64, String)>; HEADS_BYTES.len()] = Default::default();
    for text in texts {
        let fitting = HEADS_BYTES.iter().zip(&mut sorted).find(|(bytes, _)| **bytes <= text.len());
        if let Some((bytes, class)) = fitting {
            class.push((head(text.as_bytes().get(..*bytes).unwrap_or_default()), text));
        }
    }
    let classes = HEADS_BYTES.iter().zip(sorted).filter(|(_, texts)| !texts.is_empty());
    classes.map(|(bytes, texts)| Class::new(*bytes, texts)).collect()
}

/// The bytes as a number, the first one highest.
fn head(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Class {
    fn new(head_bytes: usize, mut sorted: Vec<(u64, String)>) -> Self {
        sorted.sort_unstable();
        let mut class = Self {
            head_bytes,
            filter: Filter::new(sorted.len()),
            texts: Vec::with_capacity(sorted.iter().map(|(_, text)| text.len()).sum()),
            entries: Vec::with_capacity(sorted.len()),
            samples: Vec::new(),
        };
        for (head, text) in sorted {
            let last = class.entries.last();
            if last.is_some_and(|last| text.as_bytes().starts_with(class.text(last))) {
                continue;
            }
            // The callers see to both bounds.
            let (Ok(start), Ok(length)) =
                (u32::try_from(class.texts.len()), u16::try_from(text.len()))
            else {
                continue;
            };
            class.texts.extend_from_slice(text.as_bytes());
            class.entries.push(Entry { head, start, length });
            class.filter.insert(head);
        }
        class.texts.shrink_to_fit();
        class.entries.shrink_to_fit();
        class.samples = class.entries.iter().step_by(SAMPLED).map(|entry| entry.head).collect();
        class
    }

    fn occurs(&self, text: &[u8]) -> bool {
        let Some((lead, rest)) = text.split_at_checked(self.head_bytes - 1) else { return false };
        let mask = u64::MAX >> (64 - 8 * self.head_bytes);
        let mut head = head(lead);
        rest.iter().enumerate().any(|(at, byte)| {
            head = (head << 8 | u64::from(*byte)) & mask;
            self.filter.admits(head) && self.begins(head, text.get(at..).unwrap_or_default())
        })
    }

    /// Whether `rest`, which has this head, begins with one of the texts.
    fn begins(&self, head: u64, rest: &[u8]) -> bool {
        let is_before =
            |entry: &Entry| entry.head < head || (entry.head == head && self.text(entry) <= rest);
        let first = self.samples.partition_point(|sample| *sample < head);
        let behind = self.samples.partition_point(|sample| *sample <= head);
        let begin = first.saturating_sub(1) * SAMPLED;
        let end = (behind * SAMPLED).min(self.entries.len());
        let entries = self.entries.get(begin..end).unwrap_or_default();
        let after = begin + entries.partition_point(is_before);
        let entry = after.checked_sub(1).and_then(|at| self.entries.get(at));
        entry.is_some_and(|entry| rest.starts_with(self.text(entry)))
    }

    fn text(&self, entry: &Entry) -> &[u8] {
        let start = entry.start as usize;
        self.texts.get(start..start + usize::from(entry.length)).unwrap_or_default()
    }
}

/// A Bloom filter of heads that needs one access to memory: all bits of a head are in one word.
#[derive(Debug)]
struct Filter(Box<[u64]>);

impl Filter {
    fn new(heads: usize) -> Self {
        let words = (heads * FILTER_BITS).div_ceil(64).next_power_of_two();
        Self(vec![0; words].into_boxed_slice())
    }

    fn insert(&mut self, head: u64) {
        let (at, bits) = self.place(head);
        if let Some(word) = self.0.get_mut(at) {
            *word |= bits;
        }
    }

    #[inline]
    fn admits(&self, head: u64) -> bool {
        let (at, bits) = self.place(head);
        self.0.get(at).is_some_and(|word| word & bits == bits)
    }

    /// The word of a head, and its bits there.
    #[inline]
    fn place(&self, head: u64) -> (usize, u64) {
        let product = u128::from(head ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        let mixed = (product >> 64) as u64 ^ product as u64;
        let bits = 1 << (mixed & 63) | 1 << (mixed >> 6 & 63) | 1 << (mixed >> 12 & 63);
        ((mixed >> 18) as usize & (self.0.len() - 1), bits)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn literals(texts: &[&str], any_case: bool) -> Literals {
        let texts = texts.iter().map(|text| (text.to_string(), any_case)).collect();
        Literals::compile(texts).unwrap()
    }

    proptest! {
        #[test]
        fn they_occur_where_one_of_them_does(
            texts in prop::collection::vec(("[abA]{1,12}", any::<bool>()), 0..30),
            asked in prop::collection::vec("[abAB]{0,30}", 1..30),
        ) {
            let literals = Literals::compile(texts.clone()).unwrap();
            for text in asked {
                let lower = text.to_ascii_lowercase();
                let expected = texts.iter().any(|(literal, any_case)| match any_case {
                    true => lower.contains(&literal.to_ascii_lowercase()),
                    false => text.contains(literal),
                });
                prop_assert_eq!(literals.occur_in(text.as_bytes()), expected, "{:?} {}", texts, text);
            }
        }
    }

    #[test]
    fn each_length_is_found_at_each_place() {
        for length in 1..20 {
            let text: String = ('b'..'z').take(length).collect();
            for literals in [literals(&[&text, "zzzz"], false), literals(&[&text, "ZZZZ"], true)] {
                for before in 0..20 {
                    let place = format!("{}{text}{}", "a".repeat(before), "a".repeat(before % 3));
                    assert!(literals.occur_in(place.as_bytes()), "{text} {place}");
                    let cut = place.replace('b', "x");
                    assert!(!literals.occur_in(cut.as_bytes()), "{text} {cut}");
                }
                assert!(!literals.occur_in(b""));
            }
        }
    }

    #[test]
    fn each_of_many_is_found() {
        for (before, heads) in [("", 1000), ("shared/head/", 1000), ("x", 7)] {
            let texts: Vec<String> =
                (0..heads * 3).map(|n| format!("{before}{:04}/{n:05}", n % heads)).collect();
            let literals = Literals::compile(texts.iter().cloned().map(|t| (t, false)).collect());
            let literals = literals.unwrap();
            for text in &texts {
                assert!(literals.occur_in(format!("http://{text}").as_bytes()), "{text}");
                let cut = text.get(..text.len() - 1).unwrap_or_default();
                assert!(!literals.occur_in(format!("http://{cut}x").as_bytes()), "{cut}");
            }
        }
    }

    #[test]
    fn those_that_another_one_begins_are_left_out() {
        let literals = literals(&["abcdefgh", "abcdefghi", "abcdefgh", "abcdefgi"], false);
        assert_eq!(literals.exact[0].entries.len(), 2);
    }

    #[test]
    fn too_many_bytes_are_an_error() {
        let texts = || vec![("abc".to_string(), false), ("de".to_string(), true)];
        assert!(Literals::within(texts(), 5).is_ok());
        let error = Literals::within(texts(), 4).unwrap_err();
        assert_eq!(error, AclProblem::TooLarge { what: "literal expressions", bytes_max: 4 });
    }
}
