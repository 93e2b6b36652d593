//! Anonymous memory of the system.
//!
//! The caller owns what it maps, and says itself when nothing refers to it any more.

#![allow(unsafe_code, reason = "mapping memory by hand is the purpose of this module")]

pub(crate) use system::{fault_in, forget, map, unmap};

#[cfg(not(miri))]
mod system {
    use std::ptr::{NonNull, null_mut};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    /// Zeroed memory that is not touched yet; `None` when there is no room.
    pub(crate) fn map(bytes: usize) -> Option<NonNull<u8>> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: no address is asked for, so no existing mapping is replaced.
        let start =
            unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags) }.ok()?;
        NonNull::new(start.cast())
    }

    /// Gives a whole mapping back.
    pub(crate) fn unmap(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller owns the mapping and nothing refers to it any more.
        // A failure leaks address space, which nobody could do anything about.
        let _ = unsafe { munmap(start.as_ptr().cast(), bytes) };
    }

    /// Touches pages of a mapping, so that nobody has to later.
    pub(crate) fn fault_in(start: NonNull<u8>, bytes: usize) {
        // SAFETY: keeps content as it is. Older kernels (before 5.14) refuse, then each page faults by itself.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite) };
    }

    /// Gives the memory of free pages back; they read as zero afterwards.
    pub(crate) fn forget(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the pages are free, so nobody relies on their content; they read as zero afterwards.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
    }
}

/// The same from the allocator, for the interpreter that checks the unsafe code of this crate.
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

    pub(crate) fn unmap(start: NonNull<u8>, bytes: usize) {
        if let Some(layout) = layout(bytes) {
            // SAFETY: allocated in `map` with the same layout.
            unsafe { dealloc(start.as_ptr(), layout) }
        }
    }

    pub(crate) fn fault_in(_: NonNull<u8>, _: usize) {}

    pub(crate) fn forget(_: NonNull<u8>, _: usize) {}
}
