//! An open file, and the operations under way on it.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use humboldt_sys::aligned::Buffer;
use humboldt_sys::uring::Transfer;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::file::WriteDone;

/// An open file. It lives as long as it has users or operations under way.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: File,
    /// Whether it bypasses the page cache.
    pub(crate) direct: bool,
    in_flight: AtomicUsize,
    /// Held while `in_flight` goes to 0, so that no waiting thread misses it.
    lock: Mutex<()>,
    idle: Condvar,
}

impl OpenFile {
    pub(crate) fn new(file: File, direct: bool) -> Self {
        Self {
            file,
            direct,
            in_flight: AtomicUsize::new(0),
            lock: Mutex::default(),
            idle: Condvar::default(),
        }
    }

    /// Operations that have begun and are not done.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Waits until nothing is under way, or until `deadline`; returns whether nothing is.
    pub(crate) fn wait_idle(&self, deadline: Instant) -> bool {
        let mut guard = self.lock.lock();
        while self.in_flight() > 0 {
            if self.idle.wait_until(&mut guard, deadline).timed_out() {
                return self.in_flight() == 0;
            }
        }
        true
    }
}

/// The receiver of the end of an operation.
pub(crate) enum Finish {
    /// A future of `read`.
    Read(oneshot::Sender<(Buffer, io::Result<usize>)>),
    /// The caller of `write`.
    Call(WriteDone),
}

/// One operation under way. Whatever happens to it, its end is told exactly once.
pub(crate) struct Ticket {
    pub(crate) open: Arc<OpenFile>,
    finish: Option<Finish>,
}

impl Ticket {
    pub(crate) fn new(open: &Arc<OpenFile>, finish: Finish) -> Self {
        open.in_flight.fetch_add(1, Ordering::AcqRel);
        Self { open: Arc::clone(open), finish: Some(finish) }
    }

    /// Whether somebody still waits for it: nobody needs a read that was given up.
    pub(crate) fn is_wanted(&self) -> bool {
        !matches!(&self.finish, Some(Finish::Read(reply)) if reply.is_closed())
    }

    /// Tells the end: bytes moved, all of them for a write.
    pub(crate) fn complete(mut self, transfer: Transfer, result: io::Result<usize>) {
        match (self.finish.take(), transfer) {
            (Some(Finish::Read(reply)), Transfer::Read(buffer)) => {
                // Nobody there any more: the buffer is dropped.
                let _ = reply.send((buffer, result));
            }
            (Some(Finish::Call(done)), transfer) => {
                drop(transfer);
                done(result.map(drop));
            }
            // A future of the other kind cannot be; it would hear that its operation was given up.
            (other, _) => drop(other),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(Finish::Call(done)) = self.finish.take() {
            done(Err(given_up()));
        }
        if self.open.in_flight.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _guard = self.open.lock.lock();
            self.open.idle.notify_all();
        }
    }
}

impl std::os::fd::AsFd for Ticket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.open.file.as_fd()
    }
}

/// The error of an operation whose thread or ring went away before it began.
pub(crate) fn given_up() -> io::Error {
    io::Error::other("the operation was given up")
}

/// The error of an operation that found the queue full.
pub(crate) fn queue_full() -> io::Error {
    io::Error::new(io::ErrorKind::WouldBlock, "too many operations wait for this file")
}
