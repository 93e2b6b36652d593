//! Reads and writes of buffers through io_uring.
//!
//! A [`Ring`] owns the memory of an operation until the kernel is done with it, even if the caller
//! has gone. It is used by one thread, neither blocks (except in [`Ring::wait`]) nor spawns
//! anything, and completes transfers that were interrupted or cut short.

#![allow(
    unsafe_code,
    reason = "the kernel reads and writes memory behind the back of the compiler"
)]

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::io::Errno;

use crate::aligned::{self, Arena, Buffer, FIXED_BYTES};
use crate::append_buffer::AppendBuffer;

/// Most operations under way in one ring.
pub const RING_DEPTH: usize = 128;

/// How often the kernel may answer "try again" for one operation before that becomes its error.
const RETRIES_MAX: u8 = 100;

/// Most bytes of one request to the kernel. A longer operation takes several.
const REQUEST_BYTES_MAX: usize = 1 << 30;

/// Direct I/O moves multiples of at least this, except at the end of a file.
const SECTOR_BYTES: usize = 512;

/// How long a ring that is dropped waits for the kernel. The memory of operations that are still
/// under way then is never freed.
const DROP_WAIT: Duration = Duration::from_secs(30);

/// Buffers of an operation. They belong to it until it is done.
#[derive(Debug)]
pub enum Transfer {
    /// Fills the buffer from the file.
    Read(Buffer),
    /// Writes this range of published bytes.
    Append(Arc<AppendBuffer>, Range<usize>),
}

impl Transfer {
    /// Bytes to be moved, if they may be.
    fn len(&self) -> Option<usize> {
        match self {
            Self::Read(buffer) => Some(buffer.len()),
            Self::Append(data, range) => data.read(range.clone()).map(<[u8]>::len),
        }
    }
}

/// The error of writing a range that is not published as a whole.
pub fn unpublished() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "this range of the append buffer is not published")
}

/// Whether this thread may use io_uring, and the kernel has all required operations. The error has
/// the reason.
pub fn probe() -> io::Result<()> {
    let ring = setup(2)?;
    if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel is older than 5.11"));
    }
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::ReadFixed::CODE];
    if !needed.iter().all(|code| probe.is_supported(*code)) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring has no reads and writes"));
    }
    Ok(())
}

/// Forbids this thread, for the rest of its life, to make rings, in the way that containers do
/// (seccomp, `EPERM`).
// tidy: public, because tests of other crates see with it what happens where io_uring is forbidden
#[doc(hidden)]
pub fn forbid_on_this_thread() -> io::Result<()> {
    let instruction =
        |code: u32, yes, no, k| libc::sock_filter { code: code as u16, jt: yes, jf: no, k };
    let mut filter = [
        // A filter's first word is the number of the system call.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            libc::SYS_io_uring_setup as u32,
        ),
        instruction(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: plain numbers, and a filter that lives until the call returns; the kernel copies it.
    let results = unsafe {
        [
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program),
        ]
    };
    if results == [0, 0] { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The best ring that this kernel has.
fn setup(entries: u32) -> io::Result<IoUring> {
    // From 5.19 the end of an operation does not interrupt this thread, but waits for its next
    // system call. Putting it off still further (`DEFER_TASKRUN`, with an eventfd for the reactor)
    // made no difference that could be measured.
    match IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().dontfork().build(entries) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
            IoUring::builder().dontfork().build(entries)
        }
        other => other,
    }
}

/// The end of an operation: its owner, its memory, and the bytes moved (all of them, for a write).
pub type Completion<T> = (T, Transfer, io::Result<usize>);

/// One thread's io_uring. `T` identifies the owner of an operation, and its file.
pub struct Ring<T> {
    ring: IoUring,
    slots: Vec<Option<Operation<T>>>,
    free: Vec<u16>,
    /// Ends that the kernel had no part in.
    ready: VecDeque<Completion<T>>,
    /// The arena whose first part is registered with the kernel. It must outlive the ring, and is
    /// behind it here.
    arena: Option<Arc<Arena>>,
}

/// An operation that the kernel has, or will have with the next submission.
struct Operation<T> {
    tag: T,
    transfer: Transfer,
    offset: u64,
    /// Bytes to be moved, and how many have been.
    len: usize,
    done: usize,
    retries: u8,
}

impl<T: AsFd> Ring<T> {
    /// A ring for this thread. Its first buffers are registered with the kernel if the limit on
    /// locked memory (`RLIMIT_MEMLOCK`) lets them; that saves time, nothing depends on it.
    pub fn new() -> io::Result<Self> {
        let ring = setup(RING_DEPTH as u32)?;
        if !ring.params().is_feature_ext_arg() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let arena = aligned::home().filter(|arena| register(&ring, arena).is_ok());
        let slots = std::iter::repeat_with(|| None).take(RING_DEPTH).collect();
        let free = (0..RING_DEPTH as u16).rev().collect();
        Ok(Self { ring, slots, free, ready: VecDeque::new(), arena })
    }

    /// A descriptor that becomes readable when there are completions.
    pub fn readiness(&self) -> io::Result<OwnedFd> {
        // SAFETY: the descriptor is open as long as the ring lives.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }.try_clone_to_owned()
    }

    /// Operations under way, [`RING_DEPTH`] at most.
    pub fn in_flight(&self) -> usize {
        RING_DEPTH - self.free.len() + self.ready.len()
    }

    /// Begins an operation with the next [`Ring::submit`]. Gives it back when the ring is full.
    pub fn push(&mut self, tag: T, offset: u64, transfer: Transfer) -> Result<(), (T, Transfer)> {
        let Some(slot) = self.free.pop() else { return Err((tag, transfer)) };
        let Some(len) = transfer.len() else {
            self.free.push(slot);
            self.ready.push_back((tag, transfer, Err(unpublished())));
            return Ok(());
        };
        self.slots[usize::from(slot)] =
            Some(Operation { tag, transfer, offset, len, done: 0, retries: 0 });
        self.queue(slot);
        Ok(())
    }

    /// Queues the rest of the operation in a slot.
    fn queue(&mut self, slot: u16) {
        let Some(operation) = &self.slots[usize::from(slot)] else { return };
        let entry = operation.entry(self.arena.as_ref()).user_data(u64::from(slot));
        // SAFETY: the operation's memory stays where it is until its completion: `slots` owns it,
        // and a ring that is dropped waits for the kernel or gives the memory up.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // There are as many entries as slots, so there is room. Should there be none, that is this
        // operation's end.
        if pushed.is_err()
            && let Some(operation) = self.slots[usize::from(slot)].take()
        {
            self.free.push(slot);
            let full = io::ErrorKind::WouldBlock.into();
            self.ready.push_back((operation.tag, operation.transfer, Err(full)));
        }
    }

    /// Whether the kernel has not taken all pushed operations yet.
    pub fn has_unsubmitted(&mut self) -> bool {
        !self.ring.submission().is_empty()
    }

    /// Takes an operation that has ended. `None`: no other has, so far.
    pub fn complete(&mut self) -> Option<Completion<T>> {
        if let Some(ready) = self.ready.pop_front() {
            return Some(ready);
        }
        loop {
            let entry = self.ring.completion().next()?;
            let slot = entry.user_data() as u16;
            let Some(operation) = self.slots.get_mut(usize::from(slot)).and_then(Option::as_mut)
            else {
                continue;
            };
            let Some(result) = operation.advance(entry.result()) else {
                self.queue(slot);
                continue;
            };
            let Some(operation) = self.slots[usize::from(slot)].take() else { continue };
            self.free.push(slot);
            return Some((operation.tag, operation.transfer, result));
        }
    }
}

impl<T> Ring<T> {
    /// Hands the pushed operations to the kernel with one system call, and lets it do deferred
    /// work.
    pub fn submit(&mut self) -> io::Result<()> {
        loop {
            let queue = self.ring.submission();
            let queued = queue.len();
            if queued == 0 && !queue.taskrun() && !queue.cq_overflow() {
                return Ok(());
            }
            drop(queue);
            let taken = harmless(self.ring.submit())?;
            // The kernel stops behind a request that it refuses, but goes on with the next when
            // asked again.
            if taken == 0 || taken == queued {
                return Ok(());
            }
        }
    }

    /// Submits, and blocks this thread until an operation has ended or the time is over.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.submit()?;
        if !self.ready.is_empty() || !self.ring.completion().is_empty() {
            return Ok(());
        }
        let timespec = types::Timespec::from(timeout);
        let arguments = types::SubmitArgs::new().timespec(&timespec);
        harmless(self.ring.submitter().submit_with_args(1, &arguments)).map(drop)
    }
}

/// A signal arrived, the time is over, or the kernel is short of some resource. Pushed operations
/// stay for the next call.
fn harmless(entered: io::Result<usize>) -> io::Result<usize> {
    entered.or_else(|error| match Errno::from_io_error(&error) {
        Some(Errno::INTR | Errno::TIME | Errno::AGAIN | Errno::BUSY) => Ok(0),
        _ => Err(error),
    })
}

impl<T> Operation<T> {
    /// The request for the rest of the operation.
    fn entry(&self, arena: Option<&Arc<Arena>>) -> squeue::Entry
    where
        T: AsFd,
    {
        let fd = types::Fd(self.tag.as_fd().as_raw_fd());
        let len = (self.len - self.done).min(REQUEST_BYTES_MAX) as u32;
        let at = self.offset + self.done as u64;
        let is_fixed = |buffer: &Buffer| arena.is_some_and(|arena| buffer.is_fixed_in(arena));
        match &self.transfer {
            Transfer::Read(buffer) => {
                let start = buffer.start().as_ptr().wrapping_add(self.done);
                if is_fixed(buffer) {
                    opcode::ReadFixed::new(fd, start, len, 0).offset(at).build()
                } else {
                    opcode::Read::new(fd, start, len).offset(at).build()
                }
            }
            Transfer::Append(data, range) => {
                let bytes = data.read(range.clone()).unwrap_or_default();
                let start = bytes.as_ptr().wrapping_add(self.done);
                opcode::Write::new(fd, start, len).offset(at).build()
            }
        }
    }

    /// Evaluates the kernel's result. Returns the end of the operation, or `None` when a part is
    /// left to do.
    fn advance(&mut self, result: i32) -> Option<io::Result<usize>> {
        let is_read = matches!(self.transfer, Transfer::Read(_));
        let Ok(moved) = usize::try_from(result) else {
            return match Errno::from_raw_os_error(-result) {
                Errno::INTR | Errno::AGAIN if self.retries < RETRIES_MAX => {
                    self.retries += 1;
                    None
                }
                // Direct I/O cannot read beyond an end of the file within a sector. Nothing follows
                // such an end.
                Errno::INVAL if is_read && !self.done.is_multiple_of(SECTOR_BYTES) => {
                    Some(Ok(self.done))
                }
                errno => Some(Err(errno.into())),
            };
        };
        self.done += moved;
        if self.done >= self.len || (is_read && moved == 0) {
            Some(Ok(self.done))
        } else if moved == 0 {
            Some(Err(io::ErrorKind::WriteZero.into()))
        } else {
            None
        }
    }
}

/// Lets the kernel pin the first part of the arena once, instead of with every operation.
fn register(ring: &IoUring, arena: &Arena) -> io::Result<()> {
    let part = libc::iovec { iov_base: arena.base().as_ptr().cast(), iov_len: FIXED_BYTES };
    // SAFETY: the arena is mapped, and the ring holds a reference to it that it drops after its
    // descriptor.
    unsafe { ring.submitter().register_buffers(&[part]) }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        let deadline = Instant::now() + DROP_WAIT;
        // No caller waits for these; and while one of them is left, a wait would return at once.
        self.ready.clear();
        let mut left = self.slots.iter().flatten().count();
        while left > 0 && Instant::now() < deadline && self.wait(Duration::from_millis(100)).is_ok()
        {
            // The rest of a short transfer is dropped.
            left = left.saturating_sub(self.ring.completion().count());
        }
        if left > 0 {
            // The kernel may still write there.
            std::mem::forget(std::mem::take(&mut self.slots));
            std::mem::forget(self.arena.take());
        }
    }
}

#[cfg(test)]
mod tests;
