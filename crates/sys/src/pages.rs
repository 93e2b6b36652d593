//! Pages of memory for bodies: 4 KiB each, counted, reused while still warm.
//!
//! A first touch of a fresh page costs more than reading the object that goes into it, so a freed
//! page is the next one handed out (LIFO, one magazine per thread), and pages that were never used
//! are faulted in by the batch. Pages come from anonymous mappings of 2 MiB that are reserved
//! without being committed: an idle pool costs nothing, and a page never moves. All mappings but
//! the first ask the system for a huge page: bodies are written to memory that was not used for
//! long, and then most of the cost is that of finding addresses in the page table.
//!
//! A page has **one writer and any number of readers**. The writer ([`PageMut`]) only appends and
//! then publishes the new length; readers ([`Page`]) see the published prefix, which never changes
//! again. When the last handle is gone, the page returns to the pool.

#![allow(
    unsafe_code,
    reason = "pages are shared between one writer and many readers, and mapped by hand"
)]

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use humboldt_base::limits::PAGE_BYTES;

use crate::mapping;
use crate::sync::Mutex;

mod free;

use free::FreePages;

/// Pages of one mapping: 2 MiB.
const SLAB_PAGES: usize = 512;

/// Magazines of free pages. Threads beyond this number share them, which costs contention, nothing
/// else.
const MAGAZINES: usize = 64;

/// Most free pages in one magazine. Beyond it half of them move to the common list.
const MAGAZINE_PAGES_MAX: usize = 64;

/// Pages that were never used and are faulted in together.
const FRESH_BATCH: usize = 16;

/// One pool handle in [`Inner::census`]; live pages are counted in the lower half.
const ONE_HANDLE: u64 = 1 << 32;

/// A pool of pages. Clones are handles to the same pool.
///
/// The mappings are given back when the last handle and the last page are gone.
pub struct PagePool {
    inner: NonNull<Inner>,
}

/// Side table entry of one page.
struct Header {
    /// Handles to the page; 0 while it is free.
    refs: AtomicU32,
    /// Bytes that readers may see.
    published: AtomicU32,
    data: NonNull<u8>,
    pool: NonNull<Inner>,
}

struct Inner {
    /// Live pages (lower 32 bits) and pool handles (upper 32 bits). At 0 the pool is destroyed.
    census: AtomicU64,
    limit_pages: AtomicU64,
    /// The type documents the order of its locks.
    free: FreePages<Mutex<Vec<FreePage>>, Mutex<Common>>,
}

#[derive(Default)]
struct Common {
    slabs: Vec<Slab>,
    free: Vec<FreePage>,
    /// Pages of the newest slab that were used at least once.
    fresh_from: usize,
}

/// A page without references.
struct FreePage(NonNull<Header>);

/// One mapping and the headers of its pages.
struct Slab {
    base: NonNull<u8>,
    headers: NonNull<[Header]>,
}

// SAFETY: the holder of the value owns the free page; header and data are plain memory of the pool.
unsafe impl Send for FreePage {}
// SAFETY: a slab is only a pair of owned allocations; it is used under the lock of `Common`.
unsafe impl Send for Slab {}
// SAFETY: everything in `Inner` behind the pointer is atomic or behind a lock.
unsafe impl Send for PagePool {}
// SAFETY: as above.
unsafe impl Sync for PagePool {}

impl PagePool {
    /// A pool that hands out at most `limit_pages` pages at a time. Nothing is mapped yet.
    pub fn new(limit_pages: u64) -> Self {
        let inner = Box::new(Inner {
            census: AtomicU64::new(ONE_HANDLE),
            limit_pages: AtomicU64::new(limit_pages.min(u64::from(u32::MAX / 2))),
            free: FreePages::new(MAGAZINES, Common::default()),
        });
        Self { inner: NonNull::from(Box::leak(inner)) }
    }

    fn inner(&self) -> &Inner {
        // SAFETY: the census counts this handle, so the pool has not been destroyed.
        unsafe { self.inner.as_ref() }
    }

    /// An empty page, or `None` at the limit or when the system has no memory.
    pub fn alloc(&self) -> Option<PageMut> {
        let inner = self.inner();
        let before = inner.census.fetch_add(1, Ordering::Relaxed);
        let page = if live_pages(before) < inner.limit_pages.load(Ordering::Relaxed) {
            self.take_free()
        } else {
            None
        };
        let Some(FreePage(header)) = page else {
            // Cannot reach 0: this handle is still counted.
            inner.census.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        // SAFETY: headers live as long as the pool, and a free page has no other handle.
        let fields = unsafe { header.as_ref() };
        fields.published.store(0, Ordering::Relaxed);
        fields.refs.store(1, Ordering::Relaxed);
        Some(PageMut { page: Page { header } })
    }

    /// Pages in use now.
    pub fn in_use(&self) -> u64 {
        live_pages(self.inner().census.load(Ordering::Relaxed))
    }

    /// Most pages at a time.
    pub fn limit(&self) -> u64 {
        self.inner().limit_pages.load(Ordering::Relaxed)
    }

    /// Changes the limit. Pages in use beyond a lower limit stay valid; see
    /// [`PagePool::release_free`] for the others.
    pub fn set_limit(&self, limit_pages: u64) {
        self.inner().limit_pages.store(limit_pages.min(u64::from(u32::MAX / 2)), Ordering::Relaxed);
    }

    /// Gives the memory of all free pages back to the system; returns how many bytes. The pages
    /// stay usable and are faulted in again on demand. For when the limit shrinks, not for every
    /// day.
    pub fn release_free(&self) -> u64 {
        self.inner().free.gather(|common: &mut Common| {
            // The kernel would fill a huge page up again as soon as one page in it is used.
            for slab in &common.slabs {
                mapping::stay_small(slab.base, SLAB_PAGES * PAGE_BYTES);
            }
            let free = &mut common.free;
            // Highest address first, so that the lowest is handed out next.
            free.sort_unstable_by_key(|page| std::cmp::Reverse(page.data()));
            for run in free.chunk_by(|high, low| {
                low.data().as_ptr().wrapping_add(PAGE_BYTES) == high.data().as_ptr()
            }) {
                if let Some(lowest) = run.last() {
                    mapping::forget(lowest.data(), run.len() * PAGE_BYTES);
                }
            }
            (free.len() * PAGE_BYTES) as u64
        })
    }

    fn take_free(&self) -> Option<FreePage> {
        let mut fresh = None;
        let page = self.inner().free.take(magazine_of_thread(), |common| {
            fresh = common.carve(self.inner);
            fresh.is_some()
        });
        // Without a lock: at the first touch of a huge page the kernel clears 2 MiB.
        if let Some((start, bytes)) = fresh {
            mapping::fault_in(start, bytes);
        }
        page
    }
}

impl Clone for PagePool {
    fn clone(&self) -> Self {
        self.inner().census.fetch_add(ONE_HANDLE, Ordering::Relaxed);
        Self { inner: self.inner }
    }
}

impl Drop for PagePool {
    fn drop(&mut self) {
        // SAFETY: this handle is counted until this very call.
        unsafe { leave(self.inner, ONE_HANDLE) }
    }
}

impl fmt::Debug for PagePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PagePool")
            .field("in_use", &self.in_use())
            .field("limit", &self.limit())
            .finish()
    }
}

fn live_pages(census: u64) -> u64 {
    census & (ONE_HANDLE - 1)
}

/// Takes `weight` from the census, and destroys the pool when the census is empty.
///
/// # Safety
/// `weight` must be counted in the census on behalf of the caller, who must not use the pool
/// afterwards.
unsafe fn leave(pool: NonNull<Inner>, weight: u64) {
    // SAFETY: the caller is still counted.
    let before = unsafe { pool.as_ref() }.census.fetch_sub(weight, Ordering::Release);
    if before == weight {
        fence(Ordering::Acquire);
        // SAFETY: made by `Box::leak` in `PagePool::new`; neither handle nor page is left, so this
        // is the only use.
        drop(unsafe { Box::from_raw(pool.as_ptr()) });
    }
}

/// The magazine of the current thread: threads take turns when they first ask.
fn magazine_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % MAGAZINES);
    // A thread that is being torn down still may drop pages.
    MINE.try_with(|mine| *mine).unwrap_or(0)
}

impl FreePage {
    fn data(&self) -> NonNull<u8> {
        // SAFETY: headers live as long as the pool, and so does every list of free pages.
        unsafe { self.0.as_ref() }.data
    }
}

impl free::Common<FreePage> for Common {
    fn free(&mut self) -> &mut Vec<FreePage> {
        &mut self.free
    }
}

impl Common {
    /// Moves a batch of never used pages to the free list, from a new mapping if need be. Returns
    /// where they begin, and their bytes.
    fn carve(&mut self, pool: NonNull<Inner>) -> Option<(NonNull<u8>, usize)> {
        if self.slabs.is_empty() || self.fresh_from == SLAB_PAGES {
            let slab = Slab::map(pool, !self.slabs.is_empty())?;
            self.slabs.push(slab);
            self.fresh_from = 0;
        }
        let slab = self.slabs.last()?;
        let batch = FRESH_BATCH.min(SLAB_PAGES - self.fresh_from);
        for index in (self.fresh_from..self.fresh_from + batch).rev() {
            self.free.push(FreePage(slab.header(index)));
        }
        self.fresh_from += batch;
        self.free.last().map(|first| (first.data(), batch * PAGE_BYTES))
    }
}

impl Slab {
    /// A mapping of small pages or of one huge page.
    fn map(pool: NonNull<Inner>, is_huge: bool) -> Option<Self> {
        let map = if is_huge { mapping::map_huge } else { mapping::map };
        let base = map(SLAB_PAGES * PAGE_BYTES)?;
        let headers: Box<[Header]> = (0..SLAB_PAGES)
            .map(|index| Header {
                refs: AtomicU32::new(0),
                published: AtomicU32::new(0),
                // SAFETY: `index * PAGE_BYTES` is inside the mapping just made.
                data: unsafe { base.add(index * PAGE_BYTES) },
                pool,
            })
            .collect();
        Some(Self { base, headers: NonNull::from(Box::leak(headers)) })
    }

    fn header(&self, index: usize) -> NonNull<Header> {
        assert!(index < SLAB_PAGES);
        // SAFETY: inside the allocation of `SLAB_PAGES` headers.
        unsafe { self.headers.cast::<Header>().add(index) }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        mapping::unmap(self.base, SLAB_PAGES * PAGE_BYTES);
        // SAFETY: made by `Box::leak` in `map`; slabs are dropped with the pool, when no page is
        // left.
        drop(unsafe { Box::from_raw(self.headers.as_ptr()) });
    }
}

/// A handle to a page for reading. Cloning counts one up, dropping one down.
pub struct Page {
    header: NonNull<Header>,
}

// SAFETY: the published bytes are immutable and the rest of the header is atomic.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    fn header(&self) -> &Header {
        // SAFETY: the page is counted in the census while it has a handle, so the pool and its
        // headers live.
        unsafe { self.header.as_ref() }
    }

    /// The bytes published so far, at most [`PAGE_BYTES`]. A later call may see more, never other
    /// bytes.
    pub fn bytes(&self) -> &[u8] {
        let published = self.header().published.load(Ordering::Acquire) as usize;
        // SAFETY: `published <= PAGE_BYTES` bytes were initialised before they were published; the
        // writer never touches them again while the page has handles, and `self` is one.
        unsafe { std::slice::from_raw_parts(self.header().data.as_ptr(), published) }
    }
}

impl Deref for Page {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes()
    }
}

impl Clone for Page {
    fn clone(&self) -> Self {
        let before = self.header().refs.fetch_add(1, Ordering::Relaxed);
        // Handles would have to be leaked four thousand million times.
        assert!(before < u32::MAX / 2, "too many handles to a page");
        Self { header: self.header }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if self.header().refs.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        let pool = self.header().pool;
        {
            // SAFETY: the census counts this page until `leave` below.
            let inner = unsafe { pool.as_ref() };
            inner.free.put(magazine_of_thread(), FreePage(self.header));
        }
        // SAFETY: the page was counted when it was handed out; nothing of the pool is used after
        // this.
        unsafe { leave(pool, 1) }
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Page({} bytes)", self.bytes().len())
    }
}

/// The one handle through which a page is written.
#[derive(Debug)]
pub struct PageMut {
    page: Page,
}

impl PageMut {
    /// Another handle for readers.
    pub fn share(&self) -> Page {
        self.page.clone()
    }

    /// Bytes published so far.
    pub fn len(&self) -> usize {
        // Only this handle changes it.
        self.page.header().published.load(Ordering::Relaxed) as usize
    }

    /// Whether nothing has been published.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that can still be appended.
    pub fn room(&self) -> usize {
        PAGE_BYTES - self.len()
    }

    /// The unpublished rest of the page, with unspecified content; publish the filled bytes with
    /// [`PageMut::publish`].
    pub fn spare_mut(&mut self) -> &mut [u8] {
        let len = self.len();
        // SAFETY: mapped memory is initialised (zero or older content); readers only touch bytes
        // before `len`, and `&mut self` is the only writer.
        unsafe {
            let start = self.page.header().data.as_ptr().add(len);
            std::slice::from_raw_parts_mut(start, PAGE_BYTES - len)
        }
    }

    /// Publishes the first `filled` bytes of [`PageMut::spare_mut`].
    ///
    /// # Panics
    /// If that is more than the room.
    pub fn publish(&mut self, filled: usize) {
        let len = self.len();
        assert!(filled <= PAGE_BYTES - len, "published more than a page holds");
        self.page.header().published.store((len + filled) as u32, Ordering::Release);
    }

    /// Copies as much of `data` as there is room for and publishes it; returns how much.
    pub fn append(&mut self, data: &[u8]) -> usize {
        let take = data.len().min(self.room());
        self.spare_mut()[..take].copy_from_slice(&data[..take]);
        self.publish(take);
        take
    }
}

#[cfg(test)]
mod tests;
