//! The bounds of a flow, and the facts about it that its users see: head, progress, slices of the
//! body, the reason of an early end.

use std::sync::Arc;

use humboldt_freshness::Times;
use humboldt_sys::pages::Page;

use super::fate::Fate;
use crate::body::Borrowed;
use crate::head::StoredHead;
use crate::key::Key;
use crate::object::{About, Object};
use crate::scheme::{Record, RecordKind};
use crate::vary::VaryMarker;

/// Most bytes between the writer and the slowest client; `read_ahead_gap` may raise it. The writer
/// waits then. A disk writer that is not waited for loses its copy instead.
pub const LAG_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// Until this many bytes of a shareable body have arrived, none of it is trimmed (unless memory is
/// short), and clients can still join at its first byte. Half of the allowed lag of a reader, so
/// that a late client can catch up.
pub const JOIN_BYTES_MAX: u64 = LAG_BYTES_MAX / 2;

/// Least distance that a writer may run ahead of the fastest reader, in bytes; `read_ahead_gap`
/// raises it.
pub const WINDOW_BYTES_MIN: u64 = 64 * 1024;

/// A disk writer is woken when this many bytes wait for it, or at the end.
pub const BATCH_BYTES: u64 = 64 * 1024;

/// Most interim responses (1xx) kept for one flow; later ones are dropped, as RFC 9110 15.2 allows.
pub const INTERIM_HEADS_MAX: usize = 16;

/// Why an answer did not become complete.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AbortReason {
    /// The fetcher went away, or gave up because no client was waiting (`quick_abort`).
    #[error("the transfer was cancelled")]
    Cancelled,
    /// The answer must not be given to anyone but the request that fetched it: fetch for yourself.
    #[error("the answer is not shareable")]
    NotShareable,
    /// No memory for even one page.
    #[error("out of memory for bodies in flight")]
    NoMemory,
    /// The server was too slow.
    #[error("timed out")]
    TimedOut,
    /// The connection to the server ended before the message did.
    #[error("the message was truncated")]
    Truncated,
    /// The server's bytes were not a valid message.
    #[error("the message was malformed")]
    Malformed,
    /// A limit of the configuration was exceeded.
    #[error("the message was too large")]
    TooLarge,
    /// The server could not be reached, or reading from it failed.
    #[error("reading failed")]
    Failed,
    /// A directory's record cannot be read, or does not verify.
    #[error("reading from the disk failed")]
    DiskFailed,
}

/// The facts about an answer when its head is there.
#[derive(Clone, Debug)]
pub struct FlowInfo {
    /// The key under which it would be stored: of the variant where answers vary. A joined request
    /// compares it with the key it computes for itself.
    pub key: Key,
    /// Length of the body when it is known.
    pub body_bytes: Option<u64>,
    /// Its fate. Only the module `cache::decide` makes one.
    pub(crate) fate: Fate,
    /// Freshness; `None` when it is not to be stored.
    pub times: Option<Times>,
    /// The fields by which the answer varies, for joined requests to compare.
    pub vary: Option<Arc<VaryMarker>>,
}

/// The head of an answer in flight.
#[derive(Clone, Debug)]
pub struct FlowHead {
    /// The response head.
    pub head: Arc<StoredHead>,
    /// The facts about it.
    pub info: FlowInfo,
    /// Set when the answer turned out to be a complete object (read from disk, or confirmed by a
    /// 304): serve this; the flow itself has no data.
    pub object: Option<Arc<Object>>,
}

impl FlowHead {
    /// The stored facts of an answer with a body of this length; `None` if it will not be stored.
    pub fn about<'a>(&'a self, url: &'a [u8], body_bytes: u64) -> Option<About<'a>> {
        let times = self.info.times.as_ref()?;
        Some(About { key: self.info.key, url, head: &self.head, times, body_bytes })
    }

    /// The record of a directory without the body; `None` if the answer will not be stored.
    pub fn record(&self, url: &[u8]) -> Option<Record> {
        let times = self.info.times?;
        let head = self.head.bytes().into();
        Some(Record { key: self.info.key, kind: RecordKind::Object, url: url.into(), head, times })
    }
}

/// The kind of a reader.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ReaderKind {
    /// A client: counted by [`super::FlowWriter::readers`].
    Client,
    /// A disk writer: it holds pages like a client, but alone it is no reason to go on fetching.
    Disk,
    /// A request that waits until the directory is done with the copy on disk
    /// ([`super::Flow::waiter`]): it reads nothing, and holds no pages.
    Parked,
    /// A client that takes nothing for a while ([`super::FlowReader::step_aside`]). While there are
    /// other clients it is not waited for, and may be left behind.
    Aside,
}

/// The state at a reader's position.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// This many bytes can be read now.
    Data {
        /// At least 1.
        available: u64,
    },
    /// The body is complete and read to its end.
    End,
    /// No more will come, and the body is not complete.
    Aborted(AbortReason),
    /// A disk writer that was too slow, or a client that had stepped aside: its data is gone. Or
    /// one that waited for the copy on disk: the directory is done. Never a client that reads.
    Lagged {
        /// Offset of the first byte that was not read; means nothing to one that waited for the
        /// copy.
        position: u64,
    },
}

/// A part of a body in flight; valid as long as it is held, whatever happens to the flow.
#[derive(Clone, Debug)]
pub struct BodySlice(pub(super) Part);

#[derive(Clone, Debug)]
pub(super) enum Part {
    Page {
        page: Page,
        start: u16,
        end: u16,
    },
    /// See [`super::FlowWriter::finish_borrowed`].
    Borrowed(Borrowed),
}

impl std::ops::Deref for BodySlice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Part::Page { page, start, end } => {
                page.bytes().get(usize::from(*start)..usize::from(*end)).unwrap_or_default()
            }
            Part::Borrowed(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for BodySlice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}
