//! A state that the tasks of a thread can wait for: the ground of all that is in memory, for tests
//! and simulations.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// Wakes all tasks that wait for a change.
#[derive(Default)]
pub struct Bell(RefCell<Vec<Waker>>);

impl Bell {
    /// Wakes the task when the bell rings.
    pub fn listen(&self, cx: &Context<'_>) {
        let mut wakers = self.0.borrow_mut();
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            wakers.push(cx.waker().clone());
        }
    }

    /// Wakes all that listen.
    pub fn ring(&self) {
        let wakers = std::mem::take(&mut *self.0.borrow_mut());
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits until `look` finds something.
    pub async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        poll_fn(|cx| match look() {
            Some(found) => Poll::Ready(found),
            None => {
                self.listen(cx);
                Poll::Pending
            }
        })
        .await
    }
}

/// A state that both sides see, and a bell that rings when it changes.
#[derive(Default)]
pub struct Watched<S> {
    /// The state.
    pub state: RefCell<S>,
    /// Rings when it changes.
    pub bell: Bell,
}

impl<S> Watched<S> {
    /// Changes the state, and rings.
    pub fn change<T>(&self, change: impl FnOnce(&mut S) -> T) -> T {
        let result = change(&mut self.state.borrow_mut());
        self.bell.ring();
        result
    }
}
