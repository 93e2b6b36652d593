//! Bodies that are put together in pages of the memory tier.

use humboldt_base::limits::PAGE_BYTES;
use humboldt_sys::pages::{Page, PageMut};

use crate::body::{Body, tail_bytes};
use crate::mem::MemTier;

impl Body {
    /// A copy in pages; `None` when memory is short.
    pub(crate) fn in_pages(tier: &MemTier, bytes: &[u8]) -> Option<Self> {
        let mut builder = BodyBuilder::new(tier, bytes.len());
        builder.append(bytes)?;
        Some(builder.finish())
    }
}

/// A body of known length that grows. It takes no more memory on the way than at its end: while
/// memory is full to the last object, one page more would cost another object its place.
pub(crate) struct BodyBuilder<'a> {
    tier: &'a MemTier,
    /// The part of the following bytes that belongs into pages.
    paged_bytes_left: usize,
    pages: Vec<Page>,
    page: Option<PageMut>,
    tail: Vec<u8>,
}

impl<'a> BodyBuilder<'a> {
    /// For `whole` bytes.
    pub(crate) fn new(tier: &'a MemTier, whole: usize) -> Self {
        let tail_bytes = tail_bytes(whole);
        let paged_bytes_left = whole - tail_bytes;
        let pages = Vec::with_capacity(paged_bytes_left.div_ceil(PAGE_BYTES));
        Self { tier, paged_bytes_left, pages, page: None, tail: Vec::with_capacity(tail_bytes) }
    }

    /// `None` when memory is short.
    pub(crate) fn append(&mut self, data: &[u8]) -> Option<()> {
        let (mut paged, tail) = data.split_at(data.len().min(self.paged_bytes_left));
        self.paged_bytes_left -= paged.len();
        while !paged.is_empty() {
            let mut current = match self.page.take() {
                Some(page) => page,
                None => self.tier.alloc_page(0).ok()?,
            };
            let took = current.append(paged);
            paged = paged.get(took..)?;
            if current.room() == 0 {
                self.pages.push(current.share())
            } else {
                self.page = Some(current)
            }
        }
        self.tail.extend_from_slice(tail);
        Some(())
    }

    pub(crate) fn finish(mut self) -> Body {
        self.pages.extend(self.page.map(|page| page.share()));
        Body::of(self.pages.into_boxed_slice(), self.tail.into_boxed_slice())
    }
}
