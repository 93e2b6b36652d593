//! One operation that the helper is to do, and who waits for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use humboldt_sys::sysv::SharedMemory;
use parking_lot::Mutex;
use rustix::io::Errno;

use super::link::SLOT_BYTES;
use super::protocol::{Message, Op};

/// Why an operation was not done.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The system refused.
    Errno(Errno),
    /// There is too much to do, or nobody to do it.
    Busy(&'static str),
    /// The directory has been closed.
    Closed,
}

/// The bytes that were read (none for all but reading).
pub(super) type Outcome = Result<Vec<u8>, Failure>;

/// What happens with the outcome.
type Then = Box<dyn FnOnce(Outcome) + Send>;

/// An operation.
pub(super) struct Call {
    pub(super) request: Message,
    /// What is to be written, or room for what is to be read.
    bytes: Vec<u8>,
    then: Option<Then>,
}

impl Call {
    /// An operation without bytes, whose outcome goes to `then`.
    pub(super) fn new(request: Message, then: impl FnOnce(Outcome) + Send + 'static) -> Self {
        Self { request, bytes: Vec::new(), then: Some(Box::new(then)) }
    }

    /// Reads `length` bytes, at most [`SLOT_BYTES`].
    pub(super) fn reading(request: Message, length: usize) -> (Self, Wait) {
        debug_assert!(length <= SLOT_BYTES as usize);
        let (mut call, wait) = Self::waiting(Message { length: length as u32, ..request });
        call.bytes = Vec::with_capacity(length);
        (call, wait)
    }

    /// Writes `bytes`, at most [`SLOT_BYTES`].
    pub(super) fn writing(request: Message, bytes: Vec<u8>) -> (Self, Wait) {
        debug_assert!(bytes.len() <= SLOT_BYTES as usize);
        let (mut call, wait) = Self::waiting(Message { length: bytes.len() as u32, ..request });
        call.bytes = bytes;
        (call, wait)
    }

    /// An operation, and a future of its outcome. Without the future it is done all the same.
    pub(super) fn waiting(request: Message) -> (Self, Wait) {
        let ticket = Arc::new(Mutex::new(Ticket::default()));
        let wait = Wait(Arc::clone(&ticket));
        let then = move |outcome| {
            let mut ticket = ticket.lock();
            ticket.outcome = Some(outcome);
            let waker = ticket.waker.take();
            drop(ticket);
            waker.into_iter().for_each(Waker::wake);
        };
        (Self::new(request, then), wait)
    }

    pub(super) fn op(&self) -> Op {
        self.request.op
    }

    /// Whether it begins something, so that it can be refused when there is too much to do already.
    pub(super) fn begins(&self) -> bool {
        use Op::*;
        matches!(self.op(), ReadFile | WriteFile | OpenToRead | OpenToUpdate | Create)
    }

    /// What has to go into the slot.
    pub(super) fn take_outgoing(&mut self) -> Option<Vec<u8>> {
        matches!(self.op(), Op::Write | Op::WriteFile).then(|| std::mem::take(&mut self.bytes))
    }

    /// Takes what was read out of the slot.
    pub(super) fn take_bytes(&mut self, memory: &SharedMemory, slot: u32, length: u32) -> Outcome {
        let mut bytes = std::mem::take(&mut self.bytes);
        if matches!(self.op(), Op::Read | Op::ReadFile) {
            let start = slot as usize * SLOT_BYTES as usize;
            let copied = memory.copy_out(start, length as usize, &mut bytes);
            copied.map_err(|_| Failure::Busy("a slot outside the shared memory"))?;
        }
        Ok(bytes)
    }

    /// Tells who waits.
    pub(super) fn finish(mut self, outcome: Outcome) {
        if let Some(then) = self.then.take() {
            then(outcome);
        }
    }
}

#[derive(Default)]
struct Ticket {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

/// Waits for the outcome of a call.
pub(super) struct Wait(Arc<Mutex<Ticket>>);

impl Future for Wait {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut ticket = self.0.lock();
        match ticket.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                match &mut ticket.waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}
