//! One operation for the helper, and the use of its outcome.

use humboldt_sys::sysv::SharedMemory;

use super::link::SLOT_BYTES;
use super::protocol::{Message, Op};
use crate::tree::EngineError;

/// The bytes that were read (none for all but reading).
pub(super) type Outcome = Result<Vec<u8>, EngineError>;

/// The use of the outcome.
type Then = Box<dyn FnOnce(Outcome) + Send>;

/// An operation.
pub(super) struct Call {
    pub(super) request: Message,
    /// The bytes to write, or room for the bytes to read.
    bytes: Vec<u8>,
    then: Option<Then>,
    /// Whether a task waits for the outcome; `None`: it is to be done in any case.
    is_wanted: Option<Box<dyn Fn() -> bool + Send>>,
}

impl Call {
    /// An operation whose outcome goes to `then`, on the thread that knows it first.
    pub(super) fn new(request: Message, then: impl FnOnce(Outcome) + Send + 'static) -> Self {
        Self { request, bytes: Vec::new(), then: Some(Box::new(then)), is_wanted: None }
    }

    /// It need not be begun when nobody waits for it any more.
    pub(super) fn only_if(mut self, is_wanted: Box<dyn Fn() -> bool + Send>) -> Self {
        self.is_wanted = Some(is_wanted);
        self
    }

    /// Whether it is still to be done.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.as_ref().is_none_or(|is_wanted| is_wanted())
    }

    /// Reads `length` bytes, at most [`SLOT_BYTES`], into memory of `buffer`.
    pub(super) fn reading(mut self, length: usize, mut buffer: Vec<u8>) -> Self {
        debug_assert!(length <= SLOT_BYTES as usize);
        buffer.clear();
        buffer.reserve_exact(length);
        self.request.length = length as u32;
        self.bytes = buffer;
        self
    }

    /// Writes `bytes`, at most [`SLOT_BYTES`].
    pub(super) fn writing(mut self, bytes: Vec<u8>) -> Self {
        debug_assert!(bytes.len() <= SLOT_BYTES as usize);
        self.request.length = bytes.len() as u32;
        self.bytes = bytes;
        self
    }

    pub(super) fn op(&self) -> Op {
        self.request.op
    }

    /// Whether it begins a new operation, and so can be refused when there is too much work.
    pub(super) fn begins(&self) -> bool {
        use Op::*;
        matches!(self.op(), ReadFile | WriteFile | OpenToRead | OpenToUpdate | Create)
    }

    /// Whether it begins to store.
    pub(super) fn stores(&self) -> bool {
        matches!(self.op(), Op::WriteFile | Op::OpenToUpdate | Op::Create)
    }

    /// The bytes for the slot.
    pub(super) fn take_outgoing(&mut self) -> Option<Vec<u8>> {
        matches!(self.op(), Op::Write | Op::WriteFile).then(|| std::mem::take(&mut self.bytes))
    }

    /// Takes the read bytes out of the slot.
    pub(super) fn take_bytes(&mut self, memory: &SharedMemory, slot: u32, length: u32) -> Outcome {
        let mut bytes = std::mem::take(&mut self.bytes);
        if matches!(self.op(), Op::Read | Op::ReadFile) {
            let start = slot as usize * SLOT_BYTES as usize;
            let copied = memory.copy_out(start, length as usize, &mut bytes);
            copied.map_err(|_| EngineError::Gone)?; // slots are inside
        }
        Ok(bytes)
    }

    /// Hands the outcome to the waiting task.
    pub(super) fn finish(mut self, outcome: Outcome) {
        if let Some(then) = self.then.take() {
            then(outcome);
        }
    }
}
