//! File operations as calls of the helper.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::call::{Call, Outcome};
use super::link::SLOT_BYTES;
use super::protocol::{Message, Op};
use super::service::Service;
use crate::overload::Turns;
use crate::tree::{
    Closer, Engine, EngineError, File, Handle, Keep, OpenFor, Operation, Pool, Unlinked, Work,
};

/// Time to finish operations under way when the directory is closed.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

/// Has the files of one directory handled by its helper.
pub(super) struct Remote {
    service: Arc<Service>,
    /// One thread for work on the log, which stays in this process.
    log: Pool,
}

impl Remote {
    pub(super) fn new(service: Service) -> Self {
        Self { service: Arc::new(service), log: Pool::new("diskd log", 1) }
    }
}

/// A message about file `number`.
fn about_file(op: Op, number: u32) -> Message {
    Message { number, ..Message::new(op) }
}

/// A message about an open file. The system's numbers of open files start again with each helper,
/// ours do not: a number of an earlier helper is unknown to the present one.
fn about_handle(op: Op, handle: &Handle, offset: u64) -> Option<Message> {
    match handle.file() {
        Some(File::Remote(handle)) => {
            Some(Message { handle: u32::try_from(*handle).ok()?, offset, ..Message::new(op) })
        }
        _ => None,
    }
}

/// Of an open file that the helper does not know, the helper has ended.
fn without_handle(outcome: Outcome) -> Outcome {
    match outcome {
        Err(EngineError::System(Errno::BADF)) => Err(EngineError::Gone),
        other => other,
    }
}

fn exactly(outcome: Outcome, len: usize) -> Outcome {
    match outcome {
        Ok(bytes) if bytes.len() != len => Err(EngineError::Short),
        other => other,
    }
}

impl Closer for Service {
    fn close(&self, file: File, keep: Keep) {
        if let File::Remote(handle) = file
            && let Ok(handle) = u32::try_from(handle)
        {
            let message = Message { handle, ..Message::new(Op::Close) };
            self.submit(Call::new(message, move |_| drop(keep)));
        }
    }
}

/// The call that opens a file; `then` gets it, or why not.
fn open(
    service: &Arc<Service>,
    op: Op,
    number: u32,
    keep: Keep,
    then: impl FnOnce(Result<Handle, EngineError>) + Send + 'static,
) -> Call {
    let handle = service.exchange.new_handle();
    let closer = Arc::clone(service);
    let opened = move |outcome: Outcome| {
        then(outcome.map(|_| Handle::new(File::Remote(handle.into()), keep, Some(closer))));
    };
    Call::new(Message { handle, ..about_file(op, number) }, opened)
}

/// Gets the outcome of a write.
type Written = Box<dyn FnOnce(Result<(), EngineError>) + Send>;

/// Writes the rest of `bytes` after `done`, a slot at a time.
fn write_rest(
    service: Arc<Service>,
    handle: Handle,
    start: u64,
    bytes: Vec<u8>,
    done: usize,
    then: Written,
) {
    let slot_bytes = SLOT_BYTES as usize;
    let part = match bytes.get(done..) {
        None | Some([]) => return then(Ok(())),
        Some(rest) => rest.get(..slot_bytes).unwrap_or(rest),
    };
    let Some(message) = about_handle(Op::Write, &handle, start.saturating_add(done as u64)) else {
        return then(Err(EngineError::Gone));
    };
    // Nearly always there is no more than this, and it need not be copied.
    let (part, rest) =
        if part.len() == bytes.len() { (bytes, Vec::new()) } else { (part.to_vec(), bytes) };
    let next = done + part.len();
    let again = Arc::clone(&service);
    let written = move |outcome: Outcome| match without_handle(outcome) {
        Ok(_) => write_rest(again, handle, start, rest, next, then),
        Err(error) => then(Err(error)),
    };
    service.submit(Call::new(message, written).writing(part));
}

impl Engine for Remote {
    fn admits(&self) -> bool {
        self.service.exchange.admits() && !self.unlinks_are_full()
    }

    fn load(&self) -> u16 {
        self.service.exchange.load()
    }

    fn turns(&self) -> Option<&Turns> {
        Some(&self.service.exchange.turns)
    }

    fn is_half_full(&self) -> bool {
        self.service.exchange.is_half_full()
    }

    fn read_file(&self, number: u32, len: usize) -> Operation<Vec<u8>> {
        if len > SLOT_BYTES as usize {
            return Operation::done(Err(Errno::INVAL.into()));
        }
        let (completer, operation) = Operation::read(None, self.service.exchange.given_up());
        let is_wanted = completer.interest();
        let read = move |outcome| completer.complete(exactly(outcome, len));
        let call = Call::new(about_file(Op::ReadFile, number), read).only_if(is_wanted);
        self.service.submit(call.reading(len, Vec::new()));
        operation
    }

    fn write_file(&self, number: u32, bytes: Vec<u8>, keep: Keep) -> Operation<()> {
        let (completer, operation) = Operation::under_way();
        if bytes.len() <= SLOT_BYTES as usize {
            let written = move |outcome: Outcome| {
                drop(keep);
                completer.complete(outcome.map(drop));
            };
            self.service
                .submit(Call::new(about_file(Op::WriteFile, number), written).writing(bytes));
            return operation;
        }
        // A head so long is rare.
        let service = Arc::clone(&self.service);
        let call = open(&self.service, Op::Create, number, keep, move |opened| match opened {
            Ok(handle) => {
                let then = move |outcome| completer.complete(outcome);
                write_rest(service, handle, 0, bytes, 0, Box::new(then));
            }
            Err(error) => completer.complete(Err(error)),
        });
        self.service.submit(call);
        operation
    }

    fn open(&self, number: u32, purpose: OpenFor, keep: Keep) -> Operation<Handle> {
        let op = match purpose {
            OpenFor::Reading => Op::OpenToRead,
            OpenFor::Creating => Op::Create,
            OpenFor::Updating => Op::OpenToUpdate,
        };
        let (completer, operation) = match purpose {
            OpenFor::Reading => Operation::read(None, self.service.exchange.given_up()),
            _ => Operation::under_way(),
        };
        let is_wanted = completer.interest();
        let call = open(&self.service, op, number, keep, move |opened| completer.complete(opened));
        // A new file is the writer's, who knows that it was begun.
        let call = if purpose == OpenFor::Reading { call.only_if(is_wanted) } else { call };
        self.service.submit(call);
        operation
    }

    fn read(
        &self,
        handle: &Handle,
        offset: u64,
        len: usize,
        buffer: Vec<u8>,
    ) -> Operation<Vec<u8>> {
        let message = about_handle(Op::Read, handle, offset).filter(|_| len <= SLOT_BYTES as usize);
        let Some(message) = message else { return Operation::done(Err(EngineError::Gone)) };
        let (completer, operation) = Operation::read(None, self.service.exchange.given_up());
        let (held, is_wanted) = (handle.clone(), completer.interest());
        let read = move |outcome| {
            drop(held);
            completer.complete(exactly(without_handle(outcome), len));
        };
        self.service.submit(Call::new(message, read).only_if(is_wanted).reading(len, buffer));
        operation
    }

    fn write(&self, handle: &Handle, offset: u64, bytes: Vec<u8>) -> Operation<Vec<u8>> {
        let (completer, operation) = Operation::under_way();
        let then = move |outcome: Result<(), EngineError>| {
            completer.complete(outcome.map(|()| Vec::new()))
        };
        write_rest(Arc::clone(&self.service), handle.clone(), offset, bytes, 0, Box::new(then));
        operation
    }

    fn unlink(&self, number: u32, then: Unlinked) {
        let unlinked = move |outcome: Outcome| then.done(outcome.map(drop));
        self.service.submit(Call::new(about_file(Op::Unlink, number), unlinked));
    }

    fn unlinks_are_full(&self) -> bool {
        !self.service.exchange.takes_unlinks()
    }

    fn later(&self, work: Work) -> Operation<()> {
        // Upkeep calls this about once a second.
        self.service.exchange.end_stalled();
        let (completer, operation) = Operation::under_way();
        self.log.write(Box::new(move || completer.complete(work())));
        operation
    }

    fn close(&self) {
        self.log.close();
        self.service.stop(DRAIN_LIMIT);
    }

    fn stop(&self) {
        self.log.stop();
        self.service.stop(Duration::ZERO);
    }
}
