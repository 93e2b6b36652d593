//! Asking the processor for memory before it is needed.

#![allow(unsafe_code, reason = "the instruction takes a pointer")]

/// Lets the processor fetch the cache line at `place` while it goes on. Nothing waits for it; where
/// there is no such instruction, nothing happens.
#[inline]
pub fn prefetch<T>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: part of every x86-64; reads nothing that anybody can see, and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}
