//! The reading end of a flow.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use humboldt_http::Fields;

use crate::head::StoredHead;
use crate::scheme::Place;

use super::facts::{AbortReason, BodySlice, FlowHead, Part, Progress, ReaderKind};
use super::fate::Fate;
use super::state::Ended;
use super::wake::remember;
use super::{Flow, Writing};

/// Follows an object in flight from some offset on. Dropping it leaves.
#[derive(Debug)]
pub struct FlowReader {
    flow: Arc<Flow>,
    number: usize,
    position: u64,
    interims_seen: usize,
    /// Belongs to another request than the one that fetches.
    joined: bool,
    /// Of a disk writer.
    writing: Option<Writing>,
    /// The same.
    place: Option<Place>,
}

impl Flow {
    /// Attaches a reader at `offset`, which may lie ahead of the arrived bytes. `None` when that
    /// part was trimmed, or when the flow was aborted.
    pub fn reader_at(self: &Arc<Self>, offset: u64, kind: ReaderKind) -> Option<FlowReader> {
        FlowReader::attach(self, offset, kind, true)
    }

    /// Waits for the directory that writes it still, although it is complete: the next progress is
    /// [`Progress::Lagged`] when the directory is done, in one way or the other.
    pub(crate) fn waiter(self: &Arc<Self>) -> Option<FlowReader> {
        let is_coming = self.state.lock().is_coming_to_disk();
        if is_coming { FlowReader::attach(self, u64::MAX, ReaderKind::Parked, true) } else { None }
    }
}

impl FlowReader {
    pub(super) fn attach(
        flow: &Arc<Flow>,
        offset: u64,
        kind: ReaderKind,
        joined: bool,
    ) -> Option<Self> {
        let window = flow.window_bytes();
        let number = flow.with(|state, wakes| {
            let number = state.attach(offset, kind)?;
            // One that begins ahead of all others lets the writer go on.
            state.moved(window, wakes);
            Some(number)
        })?;
        Some(Self {
            flow: flow.clone(),
            number,
            position: offset,
            interims_seen: 0,
            joined,
            writing: None,
            place: None,
        })
    }

    pub(super) fn writing(mut self, writing: Writing) -> Self {
        self.writing = Some(writing);
        self
    }

    /// Held by a disk writer until nothing is left to be written or removed.
    pub(crate) fn take_writing(&mut self) -> Option<Writing> {
        self.writing.take()
    }

    /// What it reads has this place in the directory that it is for.
    pub fn hold_place(&mut self, place: Option<Place>) {
        self.place = place;
    }

    pub(crate) fn take_place(&mut self) -> Option<Place> {
        self.place.take()
    }

    /// The flow it follows.
    pub fn flow(&self) -> &Arc<Flow> {
        &self.flow
    }

    /// Waits for the head.
    ///
    /// # Errors
    /// The flow was aborted before it had one, or the answer is not for this reader.
    pub async fn head(&mut self) -> Result<Arc<FlowHead>, AbortReason> {
        poll_fn(|cx| self.poll_head(cx)).await
    }

    /// The head when it is there; see [`FlowReader::head`].
    pub fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Arc<FlowHead>, AbortReason>> {
        let mut state = self.flow.state.lock();
        if let Some(head) = &state.head {
            let refused = self.joined && head.info.fate == Fate::Private;
            return Poll::Ready(if refused {
                Err(AbortReason::NotShareable)
            } else {
                Ok(head.clone())
            });
        }
        match state.ended {
            Some(Ended::Aborted(reason)) => return Poll::Ready(Err(reason)),
            Some(Ended::Complete(_)) => return Poll::Ready(Err(AbortReason::Cancelled)),
            None => {}
        }
        if let Some(reader) = state.reader(self.number) {
            reader.batch = false;
            remember(&mut reader.waker, cx);
        }
        Poll::Pending
    }

    /// The next interim response (1xx) not seen yet. Ask after each wake-up of
    /// [`FlowReader::poll_head`], which interim responses cause too.
    pub fn next_interim(&mut self) -> Option<Arc<StoredHead>> {
        let interim = self.flow.state.lock().interims.get(self.interims_seen).cloned()?;
        self.interims_seen += 1;
        Some(interim)
    }

    /// The bytes at the current position; waits while there are none.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Progress> {
        self.poll_progress(cx, false)
    }

    /// As [`FlowReader::poll_data`], but waits until there is enough to be worth a write to a disk:
    /// the whole body while it is kept whole, otherwise [`super::BATCH_BYTES`], or whatever there
    /// is at the end or when the fetch cannot go on before something is read.
    pub fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Progress> {
        self.poll_progress(cx, true)
    }

    fn poll_progress(&mut self, cx: &mut Context<'_>, batch: bool) -> Poll<Progress> {
        let mut state = self.flow.state.lock();
        if let Some(reader) = state.reader(self.number) {
            reader.batch = batch;
        }
        if let Some(progress) = state.progress(self.number) {
            return Poll::Ready(progress);
        }
        if let Some(reader) = state.reader(self.number) {
            remember(&mut reader.waker, cx);
        }
        Poll::Pending
    }

    /// Waits for data; see [`FlowReader::poll_data`].
    pub async fn data(&mut self) -> Progress {
        poll_fn(|cx| self.poll_data(cx)).await
    }

    /// Waits for bytes that can be read.
    ///
    /// # Errors
    /// There are none: the body ends here, or will not become complete.
    pub async fn more(&mut self) -> Result<(), AbortReason> {
        match self.data().await {
            Progress::Data { .. } => Ok(()),
            Progress::End => Err(AbortReason::Truncated),
            Progress::Aborted(reason) => Err(reason),
            Progress::Lagged { .. } => Err(AbortReason::Cancelled),
        }
    }

    /// Waits for a batch; see [`FlowReader::poll_batch`].
    pub async fn batch(&mut self) -> Progress {
        poll_fn(|cx| self.poll_batch(cx)).await
    }

    /// Appends handles to up to `max_bytes` bytes at the current position to `out` and returns how
    /// many bytes that is. They can be sent without any lock; [`FlowReader::advance`] when they
    /// were.
    pub fn slices(&mut self, out: &mut Vec<BodySlice>, max_bytes: u64) -> u64 {
        self.flow.state.lock().slices(self.position, max_bytes, out)
    }

    /// For a client that does not take `slices` at once: if they are borrowed
    /// ([`super::FlowWriter::finish_borrowed`]), the body moves to pages, which are counted, and
    /// `slices` with it.
    ///
    /// # Errors
    /// [`AbortReason::NoMemory`].
    pub fn settle(&self, slices: &mut Vec<BodySlice>) -> Result<(), AbortReason> {
        if !slices.iter().any(|slice| matches!(slice.0, Part::Borrowed(_))) {
            return Ok(());
        }
        self.flow.settle()?;
        let bytes = slices.iter().map(|slice| slice.len() as u64).sum();
        slices.clear();
        self.flow.state.lock().slices(self.position, bytes, slices);
        Ok(())
    }

    /// Moves on by `bytes`, also beyond the arrived bytes (the reader then waits until its position
    /// is reached).
    pub fn advance(&mut self, bytes: u64) {
        self.position = self.position.saturating_add(bytes);
        let (number, position) = (self.number, self.position);
        let window = self.flow.window_bytes();
        self.flow.with(|state, wakes| {
            if let Some(reader) = state.reader(number) {
                reader.position = position;
            }
            state.moved(window, wakes);
        });
    }

    /// Whether the fetch waits for this client while another has nothing left to read. The client
    /// should get the rest in another way, if there is one, and stay if there is none.
    pub fn holds_up(&self) -> bool {
        self.flow.state.lock().holds_up(self.number)
    }

    /// For a client that takes nothing for a while, and can come by the answer in another way: from
    /// now on the fetch waits for it only while there is no other client.
    pub fn step_aside(&self) {
        self.turn(ReaderKind::Aside);
    }

    /// A client takes bytes again after [`FlowReader::step_aside`]. `false`: the fetch went on
    /// without it, and the bytes at its position are gone.
    #[must_use]
    pub fn step_back(&self) -> bool {
        self.turn(ReaderKind::Client)
    }

    fn turn(&self, kind: ReaderKind) -> bool {
        let window = self.flow.window_bytes();
        self.flow.with(|state, wakes| {
            let is_there = state.turn(self.number, kind);
            state.moved(window, wakes);
            is_there
        })
    }

    /// Whether other requests could join.
    pub fn is_shared(&self) -> bool {
        self.flow.state.lock().shared
    }

    /// Offset of the next byte.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Trailer fields, once the body is complete.
    pub fn trailers(&self) -> Option<Fields> {
        match &self.flow.state.lock().ended {
            Some(Ended::Complete(Some(trailers))) => Some((**trailers).clone()),
            _ => None,
        }
    }
}

impl Drop for FlowReader {
    fn drop(&mut self) {
        // Before those go on who wait for this one: they look in the directories.
        drop(self.writing.take());
        let window = self.flow.window_bytes();
        let table = self.flow.with(|state, wakes| state.detach(self.number, window, wakes));
        table.inspect(|table| table.remove(&self.flow));
    }
}
