//! An object in flight: a list of pages with one writer and any number of readers, on any core.
//!
//! The fetcher of an answer appends to a [`FlowWriter`]; clients, collapsed requests and the disk
//! writer each follow with a [`FlowReader`]. Rules:
//!
//! - While the answer may become an object in memory (`keep_bytes_max`), nothing is trimmed: a
//!   reader can join at any time and starts at the first byte.
//! - Otherwise pages are trimmed behind the slowest reader. The writer runs at most a window ahead
//!   of the *fastest* client (or of the disk writer, when no client is left) and at most
//!   [`LAG_BYTES_MAX`] ahead of the *slowest* one; while memory is short it waits until pages come
//!   back. Bytes that a client has yet to read are never taken from it.
//! - A client that has stepped aside ([`FlowReader::step_aside`]) takes nothing, and can come by
//!   the answer in another way. It is waited for only if there is no other client, and left behind
//!   like a disk writer.
//! - A client that the writer waits for, while another has nothing left to read, is asked
//!   ([`FlowReader::holds_up`]) to get the rest in another way. It stays as long as it has found
//!   none, and its task may end it if it takes nothing at all.
//! - A writer that goes away without finishing aborts the flow: no reader takes a part for the
//!   whole.

mod facts;
mod fate;
mod reader;
mod state;
mod table;
mod wake;
mod writer;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use humboldt_base::limits::PAGE_BYTES;

use crate::key::Key;
use crate::mem::{MemTier, Reserved};
use crate::object::Object;
use crate::sync::Mutex;
use crate::versions::{Fetch, Stamp};

pub use facts::{
    AbortReason, BATCH_BYTES, BodySlice, FlowHead, FlowInfo, INTERIM_HEADS_MAX, JOIN_BYTES_MAX,
    LAG_BYTES_MAX, Progress, ReaderKind, WINDOW_BYTES_MIN,
};
pub use fate::{Fate, Keep};
pub use reader::FlowReader;
use state::State;
pub(crate) use table::Table;
use wake::{WakeList, remember};
pub use writer::FlowWriter;

/// The shared part of an object in flight.
#[derive(Debug)]
pub struct Flow {
    /// Under which key requests join it.
    key: Key,
    /// The purge epoch of its URL when the fetch began.
    epoch: Epoch,
    /// The newest purge by tag or prefix at that time.
    purge_number: u64,
    /// The place of its answer among those of its URL.
    fetch: Fetch,
    state: Mutex<State>,
    /// Least distance of the writer from the fastest reader.
    window_bytes: AtomicU64,
    /// Later requests find it now.
    is_stored: AtomicBool,
    /// It is read from a directory.
    is_reading: AtomicBool,
    /// Memory reserved for a borrowed body. Kept after the body has moved to pages, so that no more
    /// is borrowed meanwhile.
    reserved: Mutex<Option<Reserved>>,
    tier: Arc<MemTier>,
}

/// A URL and how often anything under its hash had been purged at some time: an answer fetched
/// before a purge must not be stored after it. Of a flow whose answer is there it also tells which
/// of two answers is the newer one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    pub(crate) primary: Key,
    pub(crate) purges: [u32; 2],
    pub(crate) stamp: Option<Stamp>,
}

/// Held while a record is written or removed for the answer of a flow. Until all of these are gone,
/// a complete answer is not looked for in directories: they may still have an older one.
#[derive(Debug)]
pub struct Writing(Arc<Flow>);

impl Writing {
    fn new(flow: &Arc<Flow>) -> Self {
        flow.fetch.begin_writing();
        Self(Arc::clone(flow))
    }
}

impl Clone for Writing {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.fetch.end_writing();
    }
}

impl Epoch {
    /// The URL's own key.
    pub fn primary(&self) -> Key {
        self.primary
    }
}

impl Flow {
    pub(crate) fn new(
        key: Key,
        epoch: Epoch,
        purge_number: u64,
        fetch: Fetch,
        window_bytes: u64,
        tier: Arc<MemTier>,
    ) -> Arc<Self> {
        let window_bytes = AtomicU64::new(window_bytes.max(WINDOW_BYTES_MIN));
        let (is_stored, is_reading) = (AtomicBool::new(false), AtomicBool::new(false));
        let (state, reserved) = (Mutex::default(), Mutex::default());
        Arc::new(Self {
            key,
            epoch,
            purge_number,
            fetch,
            state,
            window_bytes,
            is_stored,
            is_reading,
            reserved,
            tier,
        })
    }

    /// Under which key requests join it.
    pub fn key(&self) -> Key {
        self.key
    }

    /// The purge epoch in which the fetch began, and where its answer stands among others.
    pub fn epoch(&self) -> Epoch {
        Epoch { stamp: self.fetch.stamp(), ..self.epoch }
    }

    pub(crate) fn fetch(&self) -> &Fetch {
        &self.fetch
    }

    /// Whether it was requested before this time, or is a copy of a stored answer, whose head may
    /// still be on its way.
    pub(crate) fn is_from_before(&self, time: u64) -> bool {
        let is_copy = || self.state.lock().head.is_some() && !self.fetch.is_announced();
        self.fetch.asked() < time || self.is_reading() || is_copy()
    }

    /// The newest purge by tag or prefix when the fetch began.
    pub fn purge_number(&self) -> u64 {
        self.purge_number
    }

    /// Whether the answer has been stored: in memory, or visible in a directory. `false` while that
    /// is unknown.
    pub fn is_stored(&self) -> bool {
        self.is_stored.load(Relaxed)
    }

    /// Whether all of its body has arrived.
    pub fn is_complete(&self) -> bool {
        matches!(self.state.lock().ended, Some(state::Ended::Complete(_)))
    }

    /// Whether it is a stored answer that is being read from a directory.
    pub fn is_reading(&self) -> bool {
        self.is_reading.load(Relaxed)
    }

    /// It is a stored answer from now on, as [`Flow::is_reading`] says.
    pub fn note_reading(&self) {
        self.is_reading.store(true, Relaxed);
    }

    pub(crate) fn note_stored(&self) {
        self.is_stored.store(true, Relaxed);
    }

    /// A directory writes the answer in one piece from now on: until it has, it is at hand.
    pub(crate) fn note_object(&self, object: &Arc<Object>) {
        let mut state = self.state.lock();
        state.object = state.is_coming_to_disk().then(|| Arc::clone(object));
    }

    /// The answer, while a directory writes it in one piece.
    pub(crate) fn object(&self) -> Option<Arc<Object>> {
        self.state.lock().object.clone()
    }

    pub(crate) fn reserve(&self, reserved: Reserved) {
        *self.reserved.lock() = Some(reserved);
    }

    /// The response head and the facts published with it, when they are there.
    pub fn published(&self) -> Option<Arc<FlowHead>> {
        self.state.lock().head.clone()
    }

    /// The address of the server, if it is a private one: not everybody may go there.
    pub fn private_server(&self) -> Option<IpAddr> {
        self.state.lock().private_server
    }

    /// Ready when no client wants it any more. For the one task that writes, also while something
    /// else has the [`FlowWriter`].
    pub fn poll_readers_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.is_deserted() {
            return Poll::Ready(());
        }
        remember(&mut state.gone_waker, cx);
        Poll::Pending
    }

    /// Length of the body where it is known, otherwise how much of it has arrived.
    pub(crate) fn body_bytes_at_least(&self) -> u64 {
        let state = self.state.lock();
        let announced = state.head.as_ref().and_then(|head| head.info.body_bytes);
        announced.unwrap_or(0).max(state.written)
    }

    /// Moves a borrowed body to pages.
    fn settle(&self) -> Result<(), AbortReason> {
        let Some(borrowed) = self.state.lock().borrowed().cloned() else { return Ok(()) };
        let mut pages = Vec::with_capacity(borrowed.len().div_ceil(PAGE_BYTES));
        for bytes in borrowed.chunks(PAGE_BYTES) {
            // As for a flow that has none: it cannot wait for readers, of whom there is one.
            let mut page = self.tier.alloc_page(0).map_err(|_| AbortReason::NoMemory)?;
            page.append(bytes);
            pages.push(page.share());
        }
        self.state.lock().settle(pages);
        Ok(())
    }

    fn window_bytes(&self) -> u64 {
        self.window_bytes.load(Relaxed)
    }

    /// Runs `change` under the lock and wakes whom it named after the lock is released.
    fn with<R>(&self, change: impl FnOnce(&mut State, &mut WakeList) -> R) -> R {
        let mut wakes = WakeList::default();
        let result = change(&mut self.state.lock(), &mut wakes);
        wakes.wake();
        result
    }
}

#[cfg(test)]
mod models;
#[cfg(test)]
mod tests;
