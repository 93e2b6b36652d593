//! Waiting for several things at the same time.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// Waits until all have ended. Each begins with the first poll: one that hangs keeps no other from
/// beginning.
pub(crate) async fn all(futures: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>) {
    all_then(futures, || ()).await;
}

/// The same; `then` is called each time when all that have not ended have been polled.
pub(crate) async fn all_then(
    mut futures: Vec<Pin<Box<dyn Future<Output = ()> + '_>>>,
    mut then: impl FnMut(),
) {
    poll_fn(|cx| {
        futures.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        then();
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
