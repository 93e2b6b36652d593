//! Wakers collected under a lock and woken after it.

use std::task::Waker;

/// Wakers kept without allocating; a flow with more waiting readers allocates.
const INLINE: usize = 4;

/// Wakers to wake once the lock is released: a woken task may run at once on another core and want
/// the same lock.
#[derive(Default)]
pub(super) struct WakeList {
    /// Filled from the front.
    first: [Option<Waker>; INLINE],
    more: Vec<Waker>,
}

impl WakeList {
    /// Takes a waker out of its place.
    pub(super) fn take(&mut self, waiting: &mut Option<Waker>) {
        let Some(waker) = waiting.take() else { return };
        match self.first.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => *slot = Some(waker),
            None => self.more.push(waker),
        }
    }

    /// Wakes them all. Most often there are none.
    #[inline]
    pub(super) fn wake(mut self) {
        for place in &mut self.first {
            let Some(waker) = place.take() else { return };
            waker.wake();
        }
        self.more.into_iter().for_each(Waker::wake);
    }
}

/// Remembers the waker of `cx`, without cloning when it is already there.
pub(super) fn remember(place: &mut Option<Waker>, cx: &std::task::Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *place = Some(cx.waker().clone()),
    }
}
