//! Anonymous memory of the system.
//!
//! The caller owns the mapped memory, and says when nothing refers to it any more.

#![allow(unsafe_code, reason = "mapping memory by hand is the purpose of this module")]

pub(crate) use system::{fault_in, forget, map, map_huge, stay_small, unmap};

/// Length of a huge page, where pages have 4 KiB.
pub(crate) const HUGE_BYTES: usize = 2 << 20;

#[cfg(not(miri))]
mod system {
    use std::ptr::{NonNull, null_mut};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::HUGE_BYTES;

    /// Zeroed memory that is not touched yet; `None` when there is no room.
    pub(crate) fn map(bytes: usize) -> Option<NonNull<u8>> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: no address is asked for, so no existing mapping is replaced.
        let start =
            unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }
                .ok()?;
        NonNull::new(start.cast())
    }

    /// As [`map`], in huge pages, if the system has them and grants them on request. `bytes` is a
    /// multiple of [`HUGE_BYTES`]. The kernel finds the memory of a huge page in one step instead
    /// of five hundred; touching one byte of it allocates the whole page.
    pub(crate) fn map_huge(bytes: usize) -> Option<NonNull<u8>> {
        let kept = map_aligned(bytes)?;
        // SAFETY: changes only how memory is mapped, before it is used. Systems without huge pages
        // refuse.
        let _ = unsafe { madvise(kept.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        Some(kept)
    }

    /// A mapping that begins at a multiple of [`HUGE_BYTES`]. Below one of that kind the next lies
    /// right beside it, so that the system keeps them as one: it bounds the number of mappings.
    fn map_aligned(bytes: usize) -> Option<NonNull<u8>> {
        let first = map(bytes)?;
        if first.as_ptr().addr().is_multiple_of(HUGE_BYTES) {
            return Some(first);
        }
        unmap(first, bytes);
        let start = map(bytes.checked_add(HUGE_BYTES)?)?;
        let before = start.as_ptr().align_offset(HUGE_BYTES).min(HUGE_BYTES);
        // SAFETY: `before + bytes` bytes of the mapping lie before it.
        let (kept, end) = unsafe { (start.add(before), start.add(before + bytes)) };
        for (rest, bytes) in [(start, before), (end, HUGE_BYTES - before)] {
            if bytes > 0 {
                unmap(rest, bytes);
            }
        }
        Some(kept)
    }

    /// Takes the request for huge pages back. Those that are there stay until a part of them is
    /// given back.
    pub(crate) fn stay_small(start: NonNull<u8>, bytes: usize) {
        // SAFETY: changes only how memory is mapped.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxNoHugepage) };
    }

    /// Gives a mapping back, or whole pages at its start or its end.
    pub(crate) fn unmap(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller owns the pages and nothing refers to them any more. A failure leaks
        // address space, for which there is no remedy.
        let _ = unsafe { munmap(start.as_ptr().cast(), bytes) };
    }

    /// Touches pages of a mapping now, so that later accesses need not.
    pub(crate) fn fault_in(start: NonNull<u8>, bytes: usize) {
        // SAFETY: keeps content as it is. Older kernels (before 5.14) refuse, then each page faults
        // by itself.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite) };
    }

    /// Gives the memory of free pages back; they read as zero afterwards.
    pub(crate) fn forget(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the pages are free, so no code relies on their content; they read as zero
        // afterwards.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
    }
}

/// The same functions on the allocator, aligned to pages only, for the interpreter that checks the
/// unsafe code of this crate.
#[cfg(miri)]
mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes, humboldt_base::limits::PAGE_BYTES).ok()
    }

    pub(crate) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: the size is not zero.
        NonNull::new(unsafe { alloc_zeroed(layout(bytes)?) })
    }

    pub(crate) fn map_huge(bytes: usize) -> Option<NonNull<u8>> {
        map(bytes)
    }

    pub(crate) fn unmap(start: NonNull<u8>, bytes: usize) {
        if let Some(layout) = layout(bytes) {
            // SAFETY: allocated in `map` with the same layout.
            unsafe { dealloc(start.as_ptr(), layout) }
        }
    }

    pub(crate) fn fault_in(_: NonNull<u8>, _: usize) {}

    pub(crate) fn forget(_: NonNull<u8>, _: usize) {}

    pub(crate) fn stay_small(_: NonNull<u8>, _: usize) {}
}
