//! Tasks that wait until something about the directory has changed.

use std::future::poll_fn;
use std::task::{Context, Poll};

use parking_lot::Mutex;

use humboldt_runtime::mailbox::Waiting;

/// Waiting tasks, as many as there are waiting requests.
#[derive(Default)]
pub(crate) struct Waiters(Mutex<List>);

#[derive(Default)]
struct List {
    next: u64,
    waiting: Vec<(u64, Waiting)>,
}

/// The place of one task in the list; leaves it when dropped.
struct Place<'a> {
    waiters: &'a Waiters,
    number: u64,
}

impl Waiters {
    /// Something has changed: all look again.
    pub(crate) fn wake_all(&self) {
        let waiting = std::mem::take(&mut self.0.lock().waiting);
        waiting.into_iter().for_each(|(_, waiting)| waiting.wake());
    }

    /// Waits until `condition` gives something. It is asked now and after each
    /// [`Waiters::wake_all`].
    pub(crate) async fn until<T>(&self, mut condition: impl FnMut() -> Option<T>) -> T {
        if let Some(output) = condition() {
            return output;
        }
        let number = {
            let mut list = self.0.lock();
            list.next += 1;
            list.next
        };
        let place = Place { waiters: self, number };
        poll_fn(|context| {
            place.take(context);
            condition().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.0.lock().waiting.len()
    }
}

impl Place<'_> {
    fn take(&self, context: &Context<'_>) {
        let mut list = self.waiters.0.lock();
        match list.waiting.iter_mut().find(|(number, _)| *number == self.number) {
            Some((_, known)) if known.is_of(context) => {}
            Some((_, known)) => *known = Waiting::of(context),
            None => list.waiting.push((self.number, Waiting::of(context))),
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.waiters.0.lock().waiting.retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::task::Waker;

    #[test]
    fn those_who_wait_look_again_and_leave_nothing_behind() {
        let waiters = Waiters::default();
        let value = Cell::new(0);
        let mut first = Box::pin(waiters.until(|| (value.get() > 0).then(|| value.get())));
        let mut second = Box::pin(waiters.until(|| (value.get() > 1).then(|| value.get())));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!((first.as_mut().poll(&mut context), waiters.waiting()), (Poll::Pending, 1));
        assert_eq!(
            (first.as_mut().poll(&mut context), waiters.waiting()),
            (Poll::Pending, 1),
            "once only"
        );
        assert_eq!(second.as_mut().poll(&mut context), Poll::Pending);
        value.set(1);
        waiters.wake_all();
        assert_eq!(first.as_mut().poll(&mut context), Poll::Ready(1));
        assert_eq!((second.as_mut().poll(&mut context), waiters.waiting()), (Poll::Pending, 1));
        drop(second);
        assert_eq!(waiters.waiting(), 0);
    }
}
