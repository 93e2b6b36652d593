//! Waiting for an answer, or for a process of one's own.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use humboldt_runtime::mailbox;
use tokio::sync::oneshot;

use crate::no_answer::NoAnswer;
use crate::pool::Pool;
use crate::reply::Reply;
use crate::state::Seat;

/// The result of a question, for the task that waits for it. If it is dropped before, the question
/// gives its place in the queue back.
#[must_use = "a question whose future is dropped is given up"]
pub struct Asking {
    /// The place in the queue that the question may have.
    place: Option<(Arc<Pool>, u64)>,
    answer: Result<oneshot::Receiver<Result<Reply, NoAnswer>>, NoAnswer>,
}

impl Asking {
    pub(crate) fn new(
        pool: Arc<Pool>,
        number: u64,
        answer: oneshot::Receiver<Result<Reply, NoAnswer>>,
    ) -> Self {
        Self { place: Some((pool, number)), answer: Ok(answer) }
    }

    /// A question of a reserved process, which has no queue.
    pub(crate) fn reserved(answer: oneshot::Receiver<Result<Reply, NoAnswer>>) -> Self {
        Self { place: None, answer: Ok(answer) }
    }

    pub(crate) fn refused(why: NoAnswer) -> Self {
        Self { place: None, answer: Err(why) }
    }
}

impl Future for Asking {
    type Output = Result<Reply, NoAnswer>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let told = match &mut this.answer {
            Ok(answer) => receive(answer, context),
            Err(why) => Poll::Ready(Err(why.clone())),
        };
        if told.is_ready() {
            this.place = None;
        }
        told
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some((pool, number)) = self.place.take() {
            // First: what is handed to a process at this moment is given up too.
            self.answer = Err(NoAnswer::NotRunning);
            pool.give_up(number);
        }
    }
}

/// A process that only its owner asks.
pub struct Reservation {
    pool: Arc<Pool>,
    seat: Seat,
}

impl Reservation {
    /// Asks the reserved process. Only one question at a time has an answer.
    pub fn ask(&self, line: &[u8]) -> Asking {
        self.pool.ask_reserved(self.seat, line)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.pool.release(self.seat);
    }
}

/// The process of one's own, for the task that waits for it.
#[must_use = "a reservation whose future is dropped is given up"]
pub struct Reserving {
    place: Option<(Arc<Pool>, u64)>,
    answer: Result<oneshot::Receiver<Result<Seat, NoAnswer>>, NoAnswer>,
}

impl Reserving {
    pub(crate) fn new(
        pool: Arc<Pool>,
        number: u64,
        answer: oneshot::Receiver<Result<Seat, NoAnswer>>,
    ) -> Self {
        Self { place: Some((pool, number)), answer: Ok(answer) }
    }

    pub(crate) fn refused(why: NoAnswer) -> Self {
        Self { place: None, answer: Err(why) }
    }
}

impl Future for Reserving {
    type Output = Result<Reservation, NoAnswer>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let told = match &mut this.answer {
            Ok(answer) => receive(answer, context),
            Err(why) => Poll::Ready(Err(why.clone())),
        };
        told.map(|told| {
            let place = this.place.take();
            let seat = told?;
            let (pool, _) = place.ok_or(NoAnswer::NotRunning)?;
            Ok(Reservation { pool, seat })
        })
    }
}

impl Drop for Reserving {
    fn drop(&mut self) {
        let Some((pool, number)) = self.place.take() else { return };
        pool.give_up(number);
        if let Ok(answer) = &mut self.answer {
            answer.close();
            // It may have come at the last moment.
            if let Ok(Ok(seat)) = answer.try_recv() {
                pool.release(seat);
            }
        }
    }
}

/// The task is woken through the mailbox of its core.
fn receive<T>(
    receiver: &mut oneshot::Receiver<Result<T, NoAnswer>>,
    context: &Context<'_>,
) -> Poll<Result<T, NoAnswer>> {
    let waker = mailbox::waker(context);
    Pin::new(receiver)
        .poll(&mut Context::from_waker(&waker))
        .map(|told| told.unwrap_or(Err(NoAnswer::ProcessEnded)))
}
