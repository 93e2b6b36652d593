//! What limits the pace of a client: buckets for all its connection, and for one answer.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use humboldt_base::token_bucket::TokenBucket;

use super::gone::gone;
use super::socket::Socket;
use crate::pace::Pace;

/// See the module's text.
pub(super) struct Limits {
    /// Those of the connection.
    connection: Vec<Arc<TokenBucket>>,
    /// All of them.
    pub(super) pace: Pace,
    has_answer: bool,
    /// Ends when the client leaves, during a wait for the pace.
    gone: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Limits {
    /// For all that is sent on a connection; `None` without a bucket.
    pub(super) fn of_connection(connection: Vec<Arc<TokenBucket>>) -> Option<Box<Self>> {
        let pace = Pace::new(connection.clone())?;
        Some(Box::new(Self { connection, pace, has_answer: false, gone: None }))
    }

    /// Adds buckets for one answer.
    pub(super) fn of_answer(
        limits: Option<Box<Self>>,
        mut answer: Vec<Arc<TokenBucket>>,
    ) -> Option<Box<Self>> {
        if answer.is_empty() {
            return limits.and_then(Self::end_answer);
        }
        let connection = limits.map_or(Vec::new(), |limits| limits.connection);
        answer.extend(connection.iter().cloned());
        let pace = Pace::new(answer)?;
        Some(Box::new(Self { connection, pace, has_answer: true, gone: None }))
    }

    /// Without those of the answer, which has ended.
    pub(super) fn end_answer(limits: Box<Self>) -> Option<Box<Self>> {
        match limits.has_answer {
            true => Self::of_connection(limits.connection),
            false => Some(limits),
        }
    }

    /// Waits until more may be sent.
    ///
    /// # Errors
    /// The client has gone, or its connection has lived too long.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        socket: &Rc<Socket>,
        half_closed: bool,
    ) -> Poll<Result<(), ()>> {
        if self.pace.poll(cx).is_ready() {
            self.gone = None;
            return Poll::Ready(Ok(()));
        }
        let leaves =
            self.gone.get_or_insert_with(|| Box::pin(gone(Rc::clone(socket), half_closed)));
        leaves.as_mut().poll(cx).map(Err)
    }
}
