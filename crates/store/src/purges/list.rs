//! Purges by tag or prefix, so arranged that those of an answer are found quickly.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use humboldt_freshness::Times;

use crate::head::StoredHead;

/// Most purges by tag or prefix that are remembered one by one. Beyond it the oldest become one
/// purge of everything that is older.
pub const PURGES_MAX: usize = 10_000;

/// Most bytes of their tags and prefixes; the same happens beyond it.
pub const PURGES_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Longest tag or prefix, in bytes.
pub const PURGE_BYTES_MAX: usize = 4096;

/// The tag or prefix of a purge. Present answers with it are gone; later ones are not affected.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Purge {
    /// Answers with this word in Surrogate-Key or Cache-Tag.
    Tag(Arc<[u8]>),
    /// Answers whose canonical URL begins with these bytes.
    Prefix(Arc<[u8]>),
}

impl Purge {
    /// A tag; `None` if it is empty, too long, or has control characters.
    pub fn tag(tag: &[u8]) -> Option<Self> {
        is_allowed(tag).then(|| Self::Tag(tag.into()))
    }

    /// A prefix, on the same conditions.
    pub fn prefix(prefix: &[u8]) -> Option<Self> {
        is_allowed(prefix).then(|| Self::Prefix(prefix.into()))
    }

    /// The tag or prefix.
    pub(super) fn bytes(&self) -> &Arc<[u8]> {
        match self {
            Self::Tag(bytes) | Self::Prefix(bytes) => bytes,
        }
    }
}

fn is_allowed(bytes: &[u8]) -> bool {
    (1..=PURGE_BYTES_MAX).contains(&bytes.len()) && !bytes.iter().any(u8::is_ascii_control)
}

/// The facts about an answer that purges ask for.
pub(super) struct Subject<'a> {
    /// The newest purge that is known not to concern it.
    pub(super) number: u64,
    pub(super) url: &'a [u8],
    /// `None` while the answer has none yet: its tags may be anything.
    pub(super) head: Option<&'a StoredHead>,
}

/// The remembered purges. Each has a number, and applies to answers that were requested under a
/// smaller one.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    /// The largest number that was given. A larger one in a record is from a list that was lost.
    pub(super) newest: u64,
    /// The first number of this list. Smaller ones, except 0, are from a list that was lost.
    pub(super) base: u64,
    /// Everything with a smaller number is purged, 0 too.
    pub(super) floor: u64,
    order: BTreeMap<u64, Purge>,
    tags: HashMap<Arc<[u8]>, u64>,
    prefixes: HashMap<Arc<[u8]>, u64>,
    /// Number of prefixes of each length.
    prefix_lengths: BTreeMap<usize, usize>,
    newest_tag: u64,
    bytes: usize,
}

impl List {
    /// Purges with their numbers, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Purge)> {
        self.order.iter().map(|(number, purge)| (*number, purge))
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Adds a purge. An older one of the same tag or prefix is superfluous; beyond the bounds the
    /// oldest become one.
    pub(super) fn add(&mut self, number: u64, purge: Purge) {
        self.newest = self.newest.max(number);
        if self.number_of(&purge).is_some_and(|known| known >= number) || number < self.floor {
            return;
        }
        self.remove(&purge);
        match &purge {
            Purge::Tag(tag) => {
                self.newest_tag = self.newest_tag.max(number);
                self.tags.insert(Arc::clone(tag), number);
            }
            Purge::Prefix(prefix) => {
                *self.prefix_lengths.entry(prefix.len()).or_default() += 1;
                self.prefixes.insert(Arc::clone(prefix), number);
            }
        }
        self.bytes += purge.bytes().len();
        self.order.insert(number, purge);
        while self.order.len() > PURGES_MAX || self.bytes > PURGES_BYTES_MAX {
            let Some((oldest, purge)) =
                self.order.first_key_value().map(|(at, purge)| (*at, purge.clone()))
            else {
                return;
            };
            self.remove(&purge);
            self.floor = self.floor.max(oldest);
        }
    }

    /// Purges everything that there is, and forgets the single purges.
    pub(super) fn purge_all(&mut self, number: u64) {
        let newest = number.max(self.newest + 1).min(Times::PURGE_NUMBER_MAX);
        *self = Self { newest, base: self.base.max(1), floor: newest, ..Self::default() };
    }

    /// A list that begins at this number, with the same purges under new ones.
    pub(super) fn begun_at(&self, base: u64) -> Self {
        Self { base, newest: base, ..Self::default() }.with_all_of(self)
    }

    /// This list joined with a written one, whose numbers stored answers have.
    pub(super) fn joined_with(&self, written: Self) -> Self {
        if self.newest == 0 { written } else { written.with_all_of(self) }
    }

    /// Adds the purges of another list. A purge that both have under the same number stays; the
    /// others get new numbers, because numbers of different lists do not compare.
    fn with_all_of(mut self, other: &Self) -> Self {
        self.newest = self.newest.max(other.newest);
        self.base = self.base.max(other.base);
        if other.floor > self.floor {
            self.purge_all(0);
        }
        for (number, purge) in other.iter() {
            if self.number_of(purge) != Some(number) {
                self.add(self.newest + 1, purge.clone());
            }
        }
        self
    }

    fn number_of(&self, purge: &Purge) -> Option<u64> {
        match purge {
            Purge::Tag(tag) => self.tags.get(tag).copied(),
            Purge::Prefix(prefix) => self.prefixes.get(prefix).copied(),
        }
    }

    fn remove(&mut self, purge: &Purge) {
        let removed = match purge {
            Purge::Tag(tag) => self.tags.remove(tag),
            Purge::Prefix(prefix) => self.prefixes.remove(prefix),
        };
        let Some(number) = removed else { return };
        self.order.remove(&number);
        self.bytes -= purge.bytes().len();
        if let Purge::Prefix(prefix) = purge
            && let Some(count) = self.prefix_lengths.get_mut(&prefix.len())
        {
            *count -= 1;
            if *count == 0 {
                self.prefix_lengths.remove(&prefix.len());
            }
        }
    }

    /// Whether there may have been purges up to this number.
    pub(super) fn are_any_up_to(&self, number: u64) -> bool {
        self.floor > 0
            || number > self.newest
            || self.order.first_key_value().is_some_and(|(first, _)| *first <= number)
    }

    /// Whether an answer is purged.
    pub(super) fn concerns(&self, subject: &Subject<'_>) -> bool {
        let number = subject.number;
        if number == self.newest {
            return false;
        }
        let is_foreign = number > self.newest || (1..self.base).contains(&number);
        is_foreign || number < self.floor || self.has_prefix(subject) || self.has_tag(subject)
    }

    fn has_prefix(&self, subject: &Subject<'_>) -> bool {
        let lengths = self.prefix_lengths.range(..=subject.url.len());
        lengths
            .filter_map(|(length, _)| subject.url.get(..*length))
            .any(|prefix| self.prefixes.get(prefix).is_some_and(|purged| *purged > subject.number))
    }

    fn has_tag(&self, subject: &Subject<'_>) -> bool {
        if self.newest_tag <= subject.number {
            return false;
        }
        let Some(head) = subject.head else { return true };
        let is_purged =
            |tag: &[u8]| self.tags.get(tag).is_some_and(|purged| *purged > subject.number);
        head.values(b"surrogate-key").flat_map(surrogate_keys).any(is_purged)
            || head.values(b"cache-tag").flat_map(cache_tags).any(is_purged)
    }
}

/// The tags in a value of Surrogate-Key: separated by white space.
pub fn surrogate_keys(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(u8::is_ascii_whitespace).filter(|tag| !tag.is_empty())
}

/// The tags in a value of Cache-Tag: separated by commas.
pub fn cache_tags(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|tag| !tag.is_empty())
}
