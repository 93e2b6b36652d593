//! The helper: a process that does the file operations of one cache directory in sequence.
//!
//! It ends when its request queue is removed. It removes the queues itself when its standard input,
//! a pipe of the proxy's, ends: that happens however the proxy ends, also by `kill -9`, and cannot
//! be missed. So nothing of the two is left behind.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use humboldt_options::LEVEL_DIRS_MAX;
use humboldt_sys::sysv::{MessageQueue, QueueMessage, SharedMemory, remove_segment};
use humboldt_sys::{descriptors, signal_mask};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::protocol::{MESSAGE_BYTES, Message, Op, SLOTS_MAX};
use super::record;
use crate::lock::Lock;
use crate::tree::files::Tree;
use crate::tree::numbers::FILES_MAX;

/// First argument of the program that makes it a helper.
pub const HELPER_COMMAND: &str = "diskd";

/// Name of the process, as `ps` and `top` show it.
const PROCESS_NAME: &std::ffi::CStr = c"humboldt-diskd";

/// Most files that the proxy may have open by handle; the system's limit is usually lower.
const HANDLES_MAX: usize = 1 << 16;

/// Largest slot that makes sense.
const SLOT_BYTES_MAX: u32 = 1 << 24;

/// Why the helper could not work.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// It was not called as the proxy calls it.
    #[error("humboldt diskd is started by humboldt itself: {0}")]
    Usage(String),
    /// The operating system refused.
    #[error("helper of {path}: cannot {operation}: {source}")]
    Io {
        /// The operation.
        operation: &'static str,
        /// The cache directory.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// The facts that the helper needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    /// The cache directory.
    pub(super) path: PathBuf,
    pub(super) l1: u32,
    pub(super) l2: u32,
    /// Ids of the queues and of the segment.
    pub(super) request_queue: i32,
    pub(super) reply_queue: i32,
    pub(super) memory: i32,
    pub(super) slots: u32,
    pub(super) slot_bytes: u32,
}

impl Assignment {
    /// The arguments that [`Assignment::parse`] takes.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["--dir".into(), self.path.clone().into()];
        let mut add =
            |name: &str, value: i64| arguments.extend([name.into(), value.to_string().into()]);
        add("--l1", self.l1.into());
        add("--l2", self.l2.into());
        add("--request-queue", self.request_queue.into());
        add("--reply-queue", self.reply_queue.into());
        add("--shared-memory", self.memory.into());
        add("--slots", self.slots.into());
        add("--slot-bytes", self.slot_bytes.into());
        arguments
    }

    pub(super) fn parse(
        arguments: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, HelperError> {
        let mut given = HashMap::new();
        let mut arguments = arguments.into_iter();
        while let Some(name) = arguments.next() {
            let value = arguments.next().unwrap_or_default();
            given.insert(name, value);
        }
        let mut take = |name: &str| {
            given
                .remove(&OsString::from(name))
                .ok_or_else(|| HelperError::Usage(format!("{name} is missing")))
        };
        let path = PathBuf::from(take("--dir")?);
        let mut number = |name: &'static str, range: std::ops::RangeInclusive<i64>| {
            let value = take(name)?;
            let number =
                value.to_str().and_then(|text| text.parse().ok()).filter(|n| range.contains(n));
            number.ok_or_else(|| HelperError::Usage(format!("{name} {value:?} is out of range")))
        };
        let id = 0..=i64::from(i32::MAX);
        let assignment = Self {
            l1: number("--l1", 1..=LEVEL_DIRS_MAX.into())? as u32,
            l2: number("--l2", 1..=LEVEL_DIRS_MAX.into())? as u32,
            request_queue: number("--request-queue", id.clone())? as i32,
            reply_queue: number("--reply-queue", id.clone())? as i32,
            memory: number("--shared-memory", id)? as i32,
            slots: number("--slots", 1..=SLOTS_MAX.into())? as u32,
            slot_bytes: number("--slot-bytes", 1..=SLOT_BYTES_MAX.into())? as u32,
            path,
        };
        match given.keys().next() {
            Some(other) => Err(HelperError::Usage(format!("{other:?} is unknown"))),
            None => Ok(assignment),
        }
    }
}

/// Is the helper, until the proxy has gone or does not want it any more. `arguments` are those
/// after [`HELPER_COMMAND`]. Closes all descriptors but the standard ones, so nothing else may go
/// on in this process.
pub fn serve_as_helper(arguments: impl IntoIterator<Item = OsString>) -> Result<(), HelperError> {
    // The proxy decides when it ends. Signals for all of a terminal's or a service's processes must
    // not end it earlier.
    signal_mask::block_all_signals();
    descriptors::close_all_but_standard();
    let _ = rustix::thread::set_name(PROCESS_NAME); // for people only
    let assignment = Assignment::parse(arguments)?;
    let requests = MessageQueue::with_id(assignment.request_queue);
    let replies = MessageQueue::with_id(assignment.reply_queue);
    let failed =
        |operation, source| HelperError::Io { operation, path: assignment.path.clone(), source };
    let memory_id = assignment.memory;
    let watch = move || {
        // Nothing is ever written to it.
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        let _ = (requests.remove(), replies.remove(), remove_segment(memory_id));
    };
    let watch = std::thread::Builder::new().stack_size(64 * 1024).spawn(watch);
    watch.map_err(|e| failed("start a thread", e))?;
    let _lock = lock(&assignment).map_err(|e| failed("lock the record of queues", e.into()))?;
    let mut helper =
        Helper::new(&assignment).map_err(|e| failed("attach to the shared memory", e))?;
    let mut reply = Message::new(Op::Hello).encode();
    while replies.send(&reply, true).is_ok() {
        let Ok(Some(request)) = requests.receive(true) else { break };
        reply = helper.answer(request);
    }
    // Both, whichever was removed: the thread above may be between the two.
    let _ = (requests.remove(), replies.remove());
    Ok(())
}

/// While this process lives, it alone works in the directory: the next proxy waits for the lock.
fn lock(assignment: &Assignment) -> Result<Lock, Errno> {
    let file = assignment.path.join(record::FILE);
    Lock::take(rustix::fs::open(file, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

struct Helper {
    tree: Tree,
    memory: SharedMemory,
    slots: u32,
    slot_bytes: u32,
    open: HashMap<u32, OwnedFd>,
}

impl Helper {
    fn new(assignment: &Assignment) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&assignment.path, flags, Mode::empty())?;
        let bytes = assignment.slots as usize * assignment.slot_bytes as usize;
        Ok(Self {
            tree: Tree::new(root, assignment.l1, assignment.l2),
            memory: SharedMemory::attach(assignment.memory, bytes)?,
            slots: assignment.slots,
            slot_bytes: assignment.slot_bytes,
            open: HashMap::new(),
        })
    }

    /// Carries out a request. A message that is no request is answered with one that is no reply to
    /// anything.
    fn answer(&mut self, request: QueueMessage<MESSAGE_BYTES>) -> [u8; MESSAGE_BYTES] {
        let request = match request {
            QueueMessage::Text(bytes) => Message::decode(&bytes),
            QueueMessage::Short => None,
        };
        let Some(request) = request else { return [0; MESSAGE_BYTES] };
        let (status, length) = match self.perform(&request) {
            Ok(length) => (0, length),
            Err(error) => (error.raw_os_error(), 0),
        };
        Message { status, length, ..request }.encode()
    }

    fn perform(&mut self, request: &Message) -> Result<u32, Errno> {
        let is_inside = request.slot < self.slots && request.length <= self.slot_bytes;
        if request.number >= FILES_MAX || request.op.needs_slot() && !is_inside {
            return Err(Errno::INVAL);
        }
        match request.op {
            Op::Hello => return Err(Errno::INVAL),
            Op::ReadFile => return self.read(&self.tree.open(request.number)?, request),
            Op::WriteFile => return self.write(&self.tree.create(request.number)?, request),
            Op::Read => {
                return self.read(self.open.get(&request.handle).ok_or(Errno::BADF)?, request);
            }
            Op::Write => {
                return self.write(self.open.get(&request.handle).ok_or(Errno::BADF)?, request);
            }
            Op::OpenToRead | Op::OpenToUpdate | Op::Create => self.open(request)?,
            Op::Close => drop(self.open.remove(&request.handle).ok_or(Errno::BADF)?),
            Op::Unlink => self.tree.unlink(request.number)?,
        }
        Ok(0)
    }

    fn open(&mut self, request: &Message) -> Result<(), Errno> {
        if self.open.len() >= HANDLES_MAX {
            return Err(Errno::MFILE);
        }
        if self.open.contains_key(&request.handle) {
            return Err(Errno::INVAL);
        }
        let file = match request.op {
            Op::OpenToRead => self.tree.open(request.number),
            Op::OpenToUpdate => self.tree.open_for_update(request.number),
            _ => self.tree.create(request.number),
        }?;
        self.open.insert(request.handle, file);
        Ok(())
    }

    /// Reads as much as there is, up to `length`.
    fn read(&self, file: &OwnedFd, request: &Message) -> Result<u32, Errno> {
        self.transfer(request, |place, rest, offset| {
            self.memory.read_file(place, rest, file, offset)
        })
    }

    fn write(&self, file: &OwnedFd, request: &Message) -> Result<u32, Errno> {
        let written = self.transfer(request, |place, rest, offset| {
            self.memory.write_file(place, rest, file, offset)
        })?;
        if written < request.length { Err(Errno::NOSPC) } else { Ok(written) }
    }

    /// Calls `some` with where to go on in shared memory, how many bytes are left, and the offset
    /// in the file, until it does no more.
    fn transfer(
        &self,
        request: &Message,
        some: impl Fn(usize, usize, u64) -> io::Result<usize>,
    ) -> Result<u32, Errno> {
        let start = request.slot as usize * self.slot_bytes as usize;
        let length = request.length as usize;
        let mut done = 0;
        while done < length {
            let offset = request.offset.checked_add(done as u64).ok_or(Errno::INVAL)?;
            match some(start + done, length - done, offset) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            }
        }
        Ok(done as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignment() -> Assignment {
        Assignment {
            path: "/cache dir".into(),
            l1: 16,
            l2: 256,
            request_queue: 0,
            reply_queue: 7,
            memory: i32::MAX,
            slots: 94,
            slot_bytes: 81_920,
        }
    }

    #[test]
    fn arguments_survive_the_way_and_others_are_refused() {
        let wanted = assignment();
        let arguments = wanted.arguments();
        assert_eq!(Assignment::parse(arguments.clone()).expect("parsed"), wanted);
        for at in (0..arguments.len()).step_by(2) {
            let mut other = arguments.clone();
            other.drain(at..at + 2);
            let error = Assignment::parse(other).expect_err("one is missing").to_string();
            assert!(error.contains("is missing"), "{error}");
        }
        for at in (3..arguments.len()).step_by(2) {
            for value in ["-1", "99999999999", "x", ""] {
                let mut other = arguments.clone();
                other[at] = value.into();
                assert!(Assignment::parse(other).is_err(), "{at}: {value}");
            }
        }
        assert!(Assignment::parse(arguments.into_iter().chain(["--more".into()])).is_err());
        assert!(matches!(Assignment::parse([]), Err(HelperError::Usage(_))));
    }
}
