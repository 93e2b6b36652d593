//! A complete answer in memory.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use humboldt_base::limits::PAGE_BYTES;
use humboldt_freshness::Times;
use humboldt_sys::pages::Page;

use crate::body::{Body, tail_bytes};
use crate::head::StoredHead;
use crate::key::Key;

/// Memory of one object besides its bytes: reference counts, allocator, index.
const ENTRY_OVERHEAD_BYTES: u64 = 160;

/// A complete, immutable answer. A 304 makes a new object that shares the body (see
/// [`Object::refreshed`]).
#[derive(Debug)]
pub struct Object {
    /// Its key.
    pub key: Key,
    /// The URL, compared on every hit since a key is only a hash.
    pub url: Box<[u8]>,
    /// The response head.
    pub head: Arc<StoredHead>,
    /// Freshness.
    pub times: Times,
    /// The body.
    pub body: Body,
    /// The newest purge by tag or prefix that is known not to concern it.
    clean_to: AtomicU64,
}

/// A complete answer without its body.
#[derive(Copy, Clone, Debug)]
pub struct About<'a> {
    /// Its key.
    pub key: Key,
    /// The URL.
    pub url: &'a [u8],
    /// The response head.
    pub head: &'a StoredHead,
    /// Freshness.
    pub times: &'a Times,
    /// Length of the body in bytes.
    pub body_bytes: u64,
}

impl About<'_> {
    /// Memory that it would take, pages included.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let body_bytes = usize::try_from(self.body_bytes).unwrap_or(usize::MAX);
        memory_bytes(self.url.len(), self.head.bytes().len(), body_bytes)
    }
}

impl Object {
    /// An object.
    pub fn new(key: Key, url: Box<[u8]>, head: Arc<StoredHead>, times: Times, body: Body) -> Self {
        Self { key, url, head, times, body, clean_to: AtomicU64::new(times.purge_number) }
    }

    /// See [`crate::purges`].
    #[inline]
    pub(crate) fn clean_to(&self) -> u64 {
        self.clean_to.load(Relaxed)
    }

    /// See [`crate::purges`].
    pub(crate) fn set_clean_to(&self, purge_number: u64) {
        self.clean_to.store(purge_number, Relaxed);
    }

    /// Length of the body in bytes.
    pub fn body_bytes(&self) -> u64 {
        self.body.len()
    }

    /// The same answer after a successful validation: new head and times, the body's pages shared.
    pub fn refreshed(&self, head: StoredHead, times: Times) -> Self {
        Self::new(self.key, self.url.clone(), Arc::new(head), times, self.body.clone())
    }

    /// The same answer with its body elsewhere.
    pub(crate) fn with_body(self, body: Body) -> Self {
        Self { body, ..self }
    }

    /// Its description.
    pub fn about(&self) -> About<'_> {
        let Self { key, url, head, times, .. } = self;
        About { key: *key, url, head, times, body_bytes: self.body_bytes() }
    }

    /// Bytes `from..to` of the body (cut at its end) as parts for a vectored write, as many as fit
    /// into `out`. Returns the number of parts.
    pub fn slices<'a>(&'a self, from: u64, to: u64, out: &mut [IoSlice<'a>]) -> usize {
        self.body.slices(from, to, out)
    }

    /// The whole body, in parts that lie together, none of them empty.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.body.parts()
    }

    /// Memory held besides pages, as the allocator rounds it, bookkeeping included.
    pub fn boxed_bytes(&self) -> u64 {
        let (pages, tail_bytes) = (self.body.pages().len(), self.body.tail_bytes());
        boxed_bytes(self.url.len(), self.head.bytes().len(), tail_bytes, pages)
    }

    /// Memory held in pages.
    pub fn page_bytes(&self) -> u64 {
        (self.body.pages().len() * PAGE_BYTES) as u64
    }
}

/// Memory that an object takes with a body that was read in one piece, pages included.
pub(crate) fn memory_bytes(url_bytes: usize, head_bytes: usize, body_bytes: usize) -> u64 {
    let tail_bytes = tail_bytes(body_bytes);
    let pages = (body_bytes - tail_bytes).div_ceil(PAGE_BYTES);
    boxed_bytes(url_bytes, head_bytes, tail_bytes, pages) + (pages * PAGE_BYTES) as u64
}

fn boxed_bytes(url_bytes: usize, head_bytes: usize, tail_bytes: usize, pages: usize) -> u64 {
    ENTRY_OVERHEAD_BYTES
        + allocated_bytes(size_of::<Object>())
        + allocated_bytes(size_of::<StoredHead>() + 16)
        + allocated_bytes(url_bytes)
        + allocated_bytes(head_bytes)
        + allocated_bytes(tail_bytes)
        + allocated_bytes(pages * size_of::<Page>())
}

/// Bytes that an allocation of `len` really takes: size classes with four steps to each doubling,
/// as jemalloc's.
pub(crate) fn allocated_bytes(len: usize) -> u64 {
    let len = len as u64;
    match len {
        0 => 0,
        1..=128 => len.next_multiple_of(16),
        _ => len.next_multiple_of(len.next_power_of_two() / 8),
    }
}

#[cfg(test)]
mod tests {
    use humboldt_sys::pages::PagePool;

    use super::*;
    use crate::testing::{body_of, key, object_of, pattern, some_head, some_times};

    #[test]
    fn allocations_are_rounded_up_to_classes() {
        let rounded: Vec<_> = [0, 1, 16, 17, 128, 129, 160, 161, 320, 321, 1024, 1025, 2048, 2049]
            .map(allocated_bytes)
            .into();
        assert_eq!(rounded, [0, 16, 16, 32, 128, 160, 160, 192, 320, 384, 1024, 1280, 2048, 2560]);
    }

    #[test]
    fn what_an_object_takes_is_known_before_it_is_there() {
        let pool = PagePool::new(100);
        for len in [0, 1, 2048, 2049, 4096, 4097, 6144, 6145, 13_312, 40_000] {
            let object = object_of(key(1), body_of(&pool, &pattern(0, len)));
            let told = memory_bytes(object.url.len(), object.head.bytes().len(), len);
            assert_eq!(told, object.boxed_bytes() + object.page_bytes(), "{len}");
        }
    }

    #[test]
    fn a_refreshed_object_shares_its_pages() {
        let pool = PagePool::new(100);
        let object = object_of(key(1), body_of(&pool, &pattern(0, 9000)));
        let held = pool.in_use();
        let fresh = object.refreshed(some_head(), Times { lifetime_s: 99, ..some_times() });
        assert_eq!(
            (pool.in_use(), fresh.times.lifetime_s, object.times.lifetime_s),
            (held, 99, 60)
        );
        drop(object);
        assert_eq!(fresh.parts().collect::<Vec<_>>().concat(), pattern(0, 9000));
    }
}
