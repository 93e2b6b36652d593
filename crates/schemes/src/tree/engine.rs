//! The execution of file operations: the only difference between `ufs`, `aufs` and `diskd`.
//!
//! An engine knows files by number, and nothing of keys, index or log. All calls return at once.
//! Numbers, bytes and permits that belong to an operation travel with it as its [`Keep`], so that
//! they are free again when the operation has ended, not when its caller stopped waiting.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::dir::Unlinked;
pub(crate) use super::operation::EngineError;
use super::operation::Operation;
use crate::overload::Turns;

/// Values that must not be dropped while an operation is under way, or a file is open. Dropping
/// them may call the engine: do not hold a lock then.
pub(crate) type Keep = Arc<dyn Send + Sync>;

/// Work that may block and has nothing to do with object files: log, eviction.
pub(crate) type Work = Box<dyn FnOnce() -> Result<(), EngineError> + Send>;

/// The purpose of opening a file.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum OpenFor {
    /// To be read.
    Reading,
    /// A new file, to be written. One that a crash left behind makes way.
    Creating,
    /// To be read and appended to.
    Updating,
}

/// An open file. Its clones share it; when the last one is dropped, the file is closed, without
/// waiting.
#[derive(Clone)]
pub(crate) struct Handle(Arc<Opened>);

/// A file opened by an engine.
pub(crate) enum File {
    /// A descriptor of this process.
    Local(OwnedFd),
    /// Something that only the engine understands.
    Remote(u64),
}

/// Closes files for an engine for which closing is an operation.
pub(crate) trait Closer: Send + Sync {
    /// Closes `file`, without waiting, and drops `keep` when that is done.
    fn close(&self, file: File, keep: Keep);
}

struct Opened {
    file: Option<File>,
    keep: Option<Keep>,
    closer: Option<Arc<dyn Closer>>,
}

impl Handle {
    /// An open file. Without a `closer` it is closed with the drop of its last clone.
    pub(crate) fn new(file: File, keep: Keep, closer: Option<Arc<dyn Closer>>) -> Self {
        Self(Arc::new(Opened { file: Some(file), keep: Some(keep), closer }))
    }

    /// The open file.
    pub(crate) fn file(&self) -> Option<&File> {
        self.0.file.as_ref()
    }

    /// Its descriptor, if it is one of this process.
    pub(crate) fn local(&self) -> Result<BorrowedFd<'_>, EngineError> {
        match &self.0.file {
            Some(File::Local(fd)) => Ok(fd.as_fd()),
            _ => Err(EngineError::Gone),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let (Some(closer), Some(file), Some(keep)) =
            (&self.closer, self.file.take(), self.keep.take())
        {
            closer.close(file, keep);
        }
    }
}

/// Does file operations for a directory. Shared by all cores, called on any thread.
///
/// [`EngineError::Shed`] is an answer to operations that begin something: `read_file`,
/// `write_file`, `open`. Later operations of the same object get it only when the engine's last
/// bound is reached: the object's file stays as it is.
pub(crate) trait Engine: Send + Sync {
    /// Whether everything is done at once, blocking the caller.
    fn blocks(&self) -> bool {
        false
    }

    /// Whether a new object may be begun now.
    fn admits(&self) -> bool;

    /// Its load, 0 to 1000.
    fn load(&self) -> u16;

    /// Those who wait for their turn to store; `None` if nobody ever does.
    fn turns(&self) -> Option<&Turns> {
        None
    }

    /// Whether so much is to be stored that others should wait.
    fn is_half_full(&self) -> bool {
        false
    }

    /// Opens file `number`, reads `len` bytes from its start, closes it. `len` is at most
    /// `WHOLE_FILE_BYTES_MAX`.
    fn read_file(&self, number: u32, len: usize) -> Operation<Vec<u8>>;

    /// Creates file `number` with these bytes, as [`OpenFor::Creating`] does. Drops `keep` when
    /// that has ended.
    fn write_file(&self, number: u32, bytes: Vec<u8>, keep: Keep) -> Operation<()>;

    /// The same, if everything is done at once anyway.
    fn write_file_now(&self, _number: u32, _bytes: &[u8]) -> Option<Result<(), EngineError>> {
        None
    }

    /// Opens file `number`. Drops `keep` when it has been closed, or could not be opened.
    fn open(&self, number: u32, purpose: OpenFor, keep: Keep) -> Operation<Handle>;

    /// Reads exactly `len` bytes at `offset`, at most a block, into memory of `buffer`, whose
    /// contents are lost.
    fn read(&self, handle: &Handle, offset: u64, len: usize, buffer: Vec<u8>)
    -> Operation<Vec<u8>>;

    /// Reads as [`Engine::read`] into the memory of the caller, if everything is done at once
    /// anyway.
    fn read_into(
        &self,
        handle: &Handle,
        offset: u64,
        bytes: &mut [u8],
    ) -> Option<Result<(), EngineError>> {
        let _ = (handle, offset, bytes);
        None
    }

    /// Writes all of `bytes` at `offset`; gives their memory back, empty.
    fn write(&self, handle: &Handle, offset: u64, bytes: Vec<u8>) -> Operation<Vec<u8>>;

    /// Unlinks file `number`, which may be missing, and reports to `then`. Never refused for want
    /// of room: eviction asks [`Engine::unlinks_are_full`] before.
    fn unlink(&self, number: u32, then: Unlinked);

    /// Whether enough files wait to be unlinked that no more should be added for the sake of room.
    fn unlinks_are_full(&self) -> bool {
        false
    }

    /// Does `work` where it may block, also when no task waits for it.
    fn later(&self, work: Work) -> Operation<()>;

    /// Begins nothing any more and waits until all that was begun has ended. Afterwards no file is
    /// touched.
    fn close(&self);

    /// The same, but waiting operations are discarded: the nearest thing to a crash.
    fn stop(&self);
}
