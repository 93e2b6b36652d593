//! The beginning of tasks. In a simulation their turns follow from a seed.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};
use tokio::time::Sleep;

/// How long a task that has been woken waits for its turn.
pub type Delay = fn() -> Option<Duration>;

thread_local! {
    static SIMULATED: Cell<Option<Delay>> = const { Cell::new(None) };
}

/// Makes tasks of this thread wait for their turns from now on, and makes work that blocks run on
/// this thread, so that everything follows from a seed.
// tidy: public, because the simulation uses it
pub fn simulate(delay: Delay) {
    SIMULATED.set(Some(delay));
}

/// Begins a task of this core.
pub fn spawn_local<F: Future + 'static>(future: F) -> JoinHandle<F::Output>
where
    F::Output: 'static,
{
    match SIMULATED.get() {
        None => tokio::task::spawn_local(future),
        Some(delay) => tokio::task::spawn_local(InTurn::new(future, delay)),
    }
}

/// Does work that blocks on another thread.
///
/// # Errors
/// The work panicked, or the program is ending.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    match SIMULATED.get() {
        None => tokio::task::spawn_blocking(work).await,
        Some(_) => Ok(work()),
    }
}

/// A task that is late after some of its wake-ups.
pub struct InTurn<F> {
    future: Pin<Box<F>>,
    delay: Delay,
    waits: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> InTurn<F> {
    /// `future`, whose turns are late as `delay` says.
    pub fn new(future: F, delay: Delay) -> Self {
        Self { future: Box::pin(future), delay, waits: None }
    }
}

impl<F: Future> Future for InTurn<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        if this.waits.is_none() {
            this.waits = (this.delay)().map(|delay| Box::pin(tokio::time::sleep(delay)));
        }
        if let Some(waits) = &mut this.waits {
            ready!(pin!(waits).poll(cx));
            this.waits = None;
        }
        this.future.as_mut().poll(cx)
    }
}
