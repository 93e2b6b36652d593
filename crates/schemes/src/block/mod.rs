//! Files and block devices that are read and written in blocks, without blocking a core: the ground
//! of `ring` and `rock`.
//!
//! An operation begins when it is asked for. Its memory belongs to it until it is done, so that a
//! future may be dropped at any time: the operation then ends by itself and its buffer goes back to
//! where it came from.
//!
//! There are two ways to the device. **io_uring**, one ring for each core, shared by all files
//! (`uring.rs`); and **threads** of each file that make blocking calls (`threads.rs`), where
//! io_uring is forbidden, and for threads that are not cores.

#![cfg_attr(
    not(test),
    allow(dead_code, reason = "owned writes and the alignment are asked for by tests only")
)]

mod disk;
pub mod example;
mod file;
mod luck;
mod simulated;
#[cfg(test)]
mod tests;
mod threads;
mod ticket;
mod uring;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use humboldt_runtime::mailbox;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;

#[cfg(test)]
pub(crate) use file::WriteDone;
pub(crate) use file::{BlockFile, OpenBlock, ReadFuture};
pub(crate) use luck::Luck;

/// What the end of a write on `file` replies. A thread's reply comes by the mailbox of this core:
/// otherwise it would wait long on a busy one.
pub(crate) async fn replied<T>(
    file: &dyn BlockFile,
    mut reply: oneshot::Receiver<T>,
) -> Result<T, RecvError> {
    let is_from_thread = file.ends_on_threads();
    poll_fn(move |cx| poll_reply(is_from_thread, &mut reply, cx)).await
}

/// A ring's end is heard of on the core itself, that of a thread is not.
fn poll_reply<T>(
    is_from_thread: bool,
    reply: &mut oneshot::Receiver<T>,
    cx: &mut Context<'_>,
) -> Poll<Result<T, RecvError>> {
    let from_thread = is_from_thread.then(|| mailbox::waker(cx));
    let mut context = Context::from_waker(from_thread.as_ref().unwrap_or(cx.waker()));
    Pin::new(reply).poll(&mut context)
}

/// Opens a file or device. No thread is started yet, and no ring made.
pub(crate) fn open(options: &OpenBlock<'_>) -> io::Result<Arc<dyn BlockFile>> {
    match crate::simulated::current() {
        Some(disk) => simulated::open(&disk, options),
        None => disk::open(options),
    }
}
