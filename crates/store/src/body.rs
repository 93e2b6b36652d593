//! The body of an answer: in pages of the cache, or borrowed from where a scheme has it.
//!
//! A body that lies in a buffer of a scheme is not copied for a client who takes it at once: it is
//! *borrowed*. What is borrowed may keep much more memory than its own, and nobody else finds it.
//! So it moves to pages, where it is counted, as soon as somebody has to wait
//! ([`Body::in_pages`]).

use std::fmt;
use std::io::IoSlice;
use std::ops::{Deref, Range};
use std::sync::Arc;

use humboldt_base::limits::PAGE_BYTES;
use humboldt_sys::pages::Page;

/// A last page that holds at most this many bytes is copied to an allocation of its size: a body of
/// up to 2 KiB has no page at all.
const TAIL_BYTES_MAX: usize = PAGE_BYTES / 2;

/// A complete body.
#[derive(Clone, Debug)]
pub enum Body {
    /// In pages of the cache, for as many clients as there are.
    Pages(Paged),
    /// In memory of a scheme, for one client that has not had to wait.
    Borrowed(Borrowed),
}

/// A body in pages, all full but perhaps the last, then perhaps an allocation of exact size.
#[derive(Clone, Debug, Default)]
pub struct Paged {
    pages: Box<[Page]>,
    tail: Box<[u8]>,
    len: u64,
}

/// Memory of a scheme in which bodies lie that are borrowed.
pub trait Lender: Send + Sync {
    /// A part that was lent: it does not change any more. Empty if there is no such part.
    fn lent(&self, part: Range<usize>) -> &[u8];
}

impl Lender for Vec<u8> {
    fn lent(&self, part: Range<usize>) -> &[u8] {
        self.get(part).unwrap_or_default()
    }
}

/// Bytes in memory of a scheme, which stays as long as they do.
#[derive(Clone)]
pub struct Borrowed {
    lender: Arc<dyn Lender>,
    part: Range<usize>,
}

impl Borrowed {
    /// This part of the lender's memory. `None` if the lender does not have all of it.
    pub fn new(lender: Arc<dyn Lender>, part: Range<usize>) -> Option<Self> {
        let is_whole = part.start <= part.end && lender.lent(part.clone()).len() == part.len();
        is_whole.then_some(Self { lender, part })
    }

    /// A part of it; `None` beyond its end.
    #[must_use]
    pub fn part(&self, part: Range<usize>) -> Option<Self> {
        let is_inside = part.start <= part.end && part.end <= self.part.len();
        let start = self.part.start;
        is_inside.then(|| Self {
            lender: Arc::clone(&self.lender),
            part: start + part.start..start + part.end,
        })
    }
}

impl Deref for Borrowed {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.lender.lent(self.part.clone())
    }
}

impl fmt::Debug for Borrowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Borrowed").field("part", &self.part).finish_non_exhaustive()
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::Pages(Paged::default())
    }
}

impl Body {
    /// Shares pages of which all but the last are full. A last page that is mostly empty is copied.
    pub(crate) fn from_pages<'a>(
        pages: impl DoubleEndedIterator<Item = &'a Page> + ExactSizeIterator + Clone,
    ) -> Self {
        debug_assert!(pages.clone().rev().skip(1).all(|page| page.len() == PAGE_BYTES));
        let len = pages.clone().map(|page| page.len() as u64).sum();
        let short = pages.clone().next_back().filter(|last| last.len() <= TAIL_BYTES_MAX);
        let whole = pages.len() - usize::from(short.is_some());
        Self::Pages(Paged {
            pages: pages.take(whole).cloned().collect(),
            tail: short.map_or_else(Box::default, |last| last.bytes().into()),
            len,
        })
    }

    /// Takes over pages that are full, but perhaps the last, and the bytes behind them.
    pub(crate) fn of(pages: Box<[Page]>, tail: Box<[u8]>) -> Self {
        let paged_bytes: usize = pages.iter().map(|page| page.len()).sum();
        let len = (paged_bytes + tail.len()) as u64;
        Self::Pages(Paged { pages, tail, len })
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Pages(paged) => paged.len,
            Self::Borrowed(borrowed) => borrowed.part.len() as u64,
        }
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its pages; none while it is borrowed.
    pub(crate) fn pages(&self) -> &[Page] {
        match self {
            Self::Pages(paged) => &paged.pages,
            Self::Borrowed(_) => &[],
        }
    }

    /// Length of its end in an allocation of its own.
    pub(crate) fn tail_bytes(&self) -> usize {
        match self {
            Self::Pages(paged) => paged.tail.len(),
            Self::Borrowed(_) => 0,
        }
    }

    /// All of it, in parts that lie together, none of them empty.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let last = match self {
            Self::Pages(paged) => &*paged.tail,
            Self::Borrowed(borrowed) => borrowed,
        };
        let pages = self.pages().iter().map(Page::bytes);
        pages.chain(std::iter::once(last)).filter(|part| !part.is_empty())
    }

    /// Bytes `from..to` (cut at its end) as parts for a vectored write, as many as fit into `out`.
    /// Returns the number of parts.
    pub fn slices<'a>(&'a self, from: u64, to: u64, out: &mut [IoSlice<'a>]) -> usize {
        let to = to.min(self.len());
        let mut at = from;
        let mut count = 0;
        for slot in out {
            let Some(part) = self.part_at(at, to) else { break };
            at += part.len() as u64;
            *slot = IoSlice::new(part);
            count += 1;
        }
        count
    }

    /// The contiguous bytes from `at`, which end at `to` at the latest; `None` from `to` on.
    fn part_at(&self, at: u64, to: u64) -> Option<&[u8]> {
        let most = usize::try_from(to.checked_sub(at)?).ok()?;
        let part = match self {
            Self::Pages(paged) => paged.part_from(at)?,
            Self::Borrowed(borrowed) => borrowed.get(usize::try_from(at).ok()?..)?,
        };
        let part = &part[..part.len().min(most)];
        (!part.is_empty()).then_some(part)
    }
}

impl Paged {
    /// The rest of the page that `at` lies in.
    fn part_from(&self, at: u64) -> Option<&[u8]> {
        let index = usize::try_from(at / PAGE_BYTES as u64).ok()?;
        let within = (at % PAGE_BYTES as u64) as usize;
        match self.pages.get(index) {
            Some(page) => page.bytes().get(within..),
            None => self.tail.get(within..),
        }
    }
}

/// Length of the body's end in an allocation of its own.
pub(crate) fn tail_bytes(body_bytes: usize) -> usize {
    Some(body_bytes % PAGE_BYTES).filter(|&rest| rest <= TAIL_BYTES_MAX).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use humboldt_sys::pages::PagePool;

    use super::*;
    use crate::testing::{body_of, borrowed, pattern};

    fn read(body: &Body, from: u64, to: u64) -> Vec<u8> {
        let mut out = [IoSlice::new(&[]); 64];
        let count = body.slices(from, to, &mut out);
        out[..count].iter().flat_map(|part| part.iter().copied()).collect()
    }

    #[test]
    fn more_than_the_lender_has_is_not_borrowed() {
        let lender: Arc<dyn Lender> = Arc::new(vec![1_u8, 2, 3]);
        let borrow = |part| Borrowed::new(Arc::clone(&lender), part);
        assert_eq!(borrow(1..3).as_deref(), Some(&[2, 3][..]));
        assert!(
            [0..4, 3..5, usize::MAX - 1..usize::MAX].into_iter().all(|part| borrow(part).is_none())
        );
        let all = borrow(0..3).expect("all of it");
        assert_eq!(all.part(1..2).as_deref(), Some(&[2][..]));
        assert!(all.part(1..4).is_none());
    }

    #[test]
    fn ranges_come_back_whatever_the_size_and_wherever_it_lies() {
        let pool = PagePool::new(100);
        for len in [0, 1, 2047, 2048, 2049, 4095, 4096, 4097, 6144, 6145, 8192, 40_000] {
            let content = pattern(0, len);
            for body in [body_of(&pool, &content), Body::Borrowed(borrowed(&content))] {
                assert_eq!(body.len(), len as u64);
                assert_eq!(body.is_empty(), len == 0);
                assert_eq!(body.parts().collect::<Vec<_>>().concat(), content);
                for (from, to) in [
                    (0, len),
                    (0, len + 9),
                    (1, len),
                    (len / 2, len),
                    (4096, 4097),
                    (len, len),
                    (3, 2),
                ] {
                    let expected = content.get(from..to.min(len)).unwrap_or_default();
                    assert_eq!(
                        read(&body, from as u64, to as u64),
                        expected,
                        "{from}..{to} of {len}"
                    );
                }
                assert_eq!(read(&body, u64::MAX, u64::MAX), b"");
            }
        }
    }

    #[test]
    fn small_bodies_and_mostly_empty_last_pages_hold_no_page() {
        let pool = PagePool::new(100);
        let held = |len: usize| {
            let body = body_of(&pool, &pattern(0, len));
            assert_eq!(body.pages().len() as u64, pool.in_use());
            pool.in_use()
        };
        assert_eq!((held(1), held(2048), held(2049), held(4096)), (0, 0, 1, 1));
        assert_eq!((held(4096 + 2048), held(4096 + 2049)), (1, 2));
    }

    #[test]
    fn fewer_slots_than_parts_give_the_first_parts() {
        let pool = PagePool::new(100);
        let content = pattern(0, 3 * PAGE_BYTES);
        let body = body_of(&pool, &content);
        let mut out = [IoSlice::new(&[]); 2];
        assert_eq!(body.slices(100, u64::MAX, &mut out), 2);
        assert_eq!((&*out[0], &*out[1]), (&content[100..4096], &content[4096..8192]));
    }

    #[test]
    fn a_part_of_what_is_borrowed_ends_with_it() {
        let content = pattern(0, 1000);
        let all = borrowed(&content);
        let part = all.part(100..300).expect("inside");
        assert_eq!((&*part, &*part.part(50..50).expect("empty")), (&content[100..300], &[][..]));
        assert_eq!(&*part.part(150..200).expect("its end"), &content[250..300]);
        assert!(part.part(150..201).is_none() && all.part(0..1001).is_none());
    }
}
