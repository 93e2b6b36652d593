//! The writing end of a flow.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use humboldt_http::Fields;
use humboldt_sys::pages::{Page, PageMut};
use parking_lot::Mutex;

use crate::body::Borrowed;
use crate::head::StoredHead;
use crate::key::Key;
use crate::mem::PageShortage;
use crate::object::Object;
use crate::scheme::Place;

use super::state::{Ended, State, WriterWait};
use super::wake::remember;
use super::{
    AbortReason, Epoch, Fate, Flow, FlowHead, FlowInfo, FlowReader, INTERIM_HEADS_MAX, ReaderKind,
    Table, Writing,
};
use crate::versions::Standing;

/// Most pages filled before readers are told: a large piece of data reaches them in several steps.
const PAGES_PER_STEP: usize = 16;

/// The one that fetches. Dropped before [`FlowWriter::finish`], it aborts the flow.
#[derive(Debug)]
pub struct FlowWriter {
    flow: Arc<Flow>,
    /// The table in which requests can join, until the flow turns out not to be shareable or is
    /// done.
    registered: Option<Arc<Table>>,
    table: Arc<Table>,
    writing: Writing,
    /// The last page, while there is room in it.
    page: Option<PageMut>,
    written: u64,
    /// The place of the answer in its directory, until somebody else has it.
    place: Mutex<Option<Place>>,
}

/// The result of one attempt to append.
enum Step {
    Took(usize),
    Shortage(PageShortage),
}

impl FlowWriter {
    pub(crate) fn new(flow: Arc<Flow>, table: Arc<Table>, is_registered: bool) -> Self {
        let registered = is_registered.then(|| Arc::clone(&table));
        Self {
            writing: Writing::new(&flow),
            flow,
            registered,
            table,
            page: None,
            written: 0,
            place: Mutex::new(None),
        }
    }

    /// The answer has this place in the directory that it is for.
    pub fn hold_place(&self, place: Option<Place>) {
        *self.place.lock() = place;
    }

    /// Its place, for the one that hands it to the directory.
    pub fn take_place(&self) -> Option<Place> {
        self.place.lock().take()
    }

    /// The flow it writes to.
    pub fn flow(&self) -> &Arc<Flow> {
        &self.flow
    }

    /// The key under which requests join.
    pub fn key(&self) -> Key {
        self.flow.key
    }

    /// The purge epoch in which the fetch began, and where its answer stands among others.
    pub fn epoch(&self) -> Epoch {
        self.flow.epoch()
    }

    /// To be held while something is written or removed for this answer.
    pub fn writing(&self) -> Writing {
        self.writing.clone()
    }

    /// The request is sent to a server now: earlier answers to others are older.
    pub fn ask(&self) {
        self.flow.fetch.ask();
    }

    /// The answer is going to come from this private address, or from none.
    pub fn comes_from(&self, private: Option<IpAddr>) {
        self.flow.state.lock().private_server = private;
    }

    /// The final head has come, with this Date in unix seconds, and with this strong entity tag.
    pub fn answer(&self, date: i64, tag: Option<&[u8]>) {
        self.flow.fetch.answer(date, tag);
    }

    /// Makes known that the answer is coming for these keys, each with the generation of the Vary
    /// marker that is there, or with 0. If it is the newest one of all of them, no fetch that was
    /// asked for earlier is joined or stored any more.
    pub fn announce(&self, keys: &[(Key, u64)]) -> Standing {
        let standing = self.flow.fetch.announce(keys);
        if standing == Standing::Newest {
            let asked = self.flow.fetch.asked();
            keys.iter().for_each(|(key, _)| self.table.retire(key, &self.flow, asked));
        }
        standing
    }

    /// From now on no request gets an older answer: the end of the flow follows. The older one
    /// leaves memory.
    pub(crate) fn complete(&self) {
        self.complete_then(|key| drop(self.flow.tier.remove(key)));
    }

    fn complete_then(&self, remove: impl FnOnce(&Key)) {
        let fetch = self.flow.fetch();
        let (Some(head), Some(stamp)) = (self.flow.published(), fetch.stamp()) else { return };
        let key = head.info.key;
        // An answer that is not stored itself has confirmed the entry in memory.
        fetch.complete(&key, || {
            if head.info.times.is_some() {
                remove(&key);
            }
        });
        // An answer requested meanwhile may be older or newer: that is known when it is there.
        self.table.retire(&key, &self.flow, stamp.answered);
    }

    /// A reader for the request that fetches, or for the disk. Subscribe before the first byte is
    /// appended: a body that is not kept whole and has no reader is dropped. `None` when the
    /// beginning is gone.
    pub fn subscribe(&self, kind: ReaderKind) -> Option<FlowReader> {
        let reader = FlowReader::attach(&self.flow, 0, kind, false)?;
        Some(if kind == ReaderKind::Disk { reader.writing(self.writing()) } else { reader })
    }

    /// Passes on an interim response (1xx). Beyond [`INTERIM_HEADS_MAX`] they are dropped.
    pub fn interim(&mut self, head: Arc<StoredHead>) {
        self.flow.with(|state, wakes| {
            if state.interims.len() < INTERIM_HEADS_MAX {
                state.interims.push(head);
                state.wake_all(wakes);
            }
        });
    }

    /// Publishes the head of the final response. A second head is ignored.
    pub fn publish_head(&mut self, head: Arc<StoredHead>, info: FlowInfo) {
        if info.fate == Fate::Private {
            self.unregister();
        }
        let is_new = info.fate.is_new();
        if is_new && !self.flow.fetch.is_announced() {
            self.answer(info.times.map_or(0, |times| times.date), None);
            self.announce(&[(info.key, 0)]);
        }
        if let (true, Some(times)) = (is_new, &info.times) {
            self.flow.fetch.identify(&info.key, times);
        }
        let (is_kept_whole, write_through) = (info.is_kept_whole(), info.fate.goes_to_disk());
        let joinable = self.registered.is_some();
        let head = Arc::new(FlowHead { head, info, object: None });
        self.flow.with(|state, wakes| {
            if state.head.is_none() {
                state.head = Some(head);
                (state.joinable, state.shared) = (joinable, joinable);
                state.write_through = write_through;
                state.wake_all(wakes);
                if !is_kept_whole {
                    state.stream_only(wakes);
                }
            }
        });
    }

    /// The answer turned out to be a complete object: all readers get it with the head, and the
    /// flow ends.
    pub fn publish_object(mut self, object: Arc<Object>, info: FlowInfo) {
        let head = Arc::new(FlowHead { head: object.head.clone(), info, object: Some(object) });
        self.flow.with(|state, _| _ = state.head.get_or_insert(head));
        self.complete_then(|_| ());
        self.flow.with(|state, wakes| {
            state.ended.get_or_insert(Ended::Complete(None));
            state.wake_all(wakes);
        });
        self.unregister();
    }

    /// Appends all of `data`, waiting for readers where the window or memory demands it.
    ///
    /// # Errors
    /// [`AbortReason::NoMemory`]; the flow is aborted then.
    pub async fn append(&mut self, mut data: &[u8]) -> Result<(), AbortReason> {
        while !data.is_empty() {
            let took = poll_fn(|cx| self.poll_append(cx, data)).await?;
            data = data.get(took..).unwrap_or_default();
        }
        Ok(())
    }

    /// Appends as much of `data` as is possible now, at least one byte; see [`FlowWriter::append`].
    pub fn poll_append(
        &mut self,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<Result<usize, AbortReason>> {
        if data.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            let Poll::Ready((room, held)) = self.poll_room(cx, data.len()) else {
                return Poll::Pending;
            };
            let data = data.get(..room.min(data.len())).unwrap_or(data);
            match self.copy(data, held) {
                Step::Took(bytes) => return Poll::Ready(Ok(bytes)),
                Step::Shortage(PageShortage::Exhausted) => {
                    self.end(Ended::Aborted(AbortReason::NoMemory));
                    return Poll::Ready(Err(AbortReason::NoMemory));
                }
                Step::Shortage(PageShortage::Wait) => {
                    if self.poll_relief(cx, held).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    /// Bytes that can be appended now without waiting for a reader, at least 1, unless other flows
    /// are faster. The owner reads no more than this from its socket, so that no bytes are left
    /// over.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        loop {
            let Poll::Ready((room, held)) = self.poll_room(cx, 0) else { return Poll::Pending };
            let in_page = self.page.as_ref().map_or(0, PageMut::room);
            let at_hand =
                usize::try_from(self.flow.tier.page_bytes_at_hand(held)).unwrap_or(usize::MAX);
            match room.min(in_page.saturating_add(at_hand)) {
                0 if self.poll_relief(cx, held).is_pending() => return Poll::Pending,
                0 => {}
                bytes => return Poll::Ready(bytes),
            }
        }
    }

    /// Waits until something can be appended; see [`FlowWriter::poll_ready`].
    pub async fn ready(&mut self) -> usize {
        poll_fn(|cx| self.poll_ready(cx)).await
    }

    /// Bytes that the window admits (at least 1), and pages that the flow holds. With `more` bytes
    /// the body may be too long to be kept whole.
    fn poll_room(&mut self, cx: &Context<'_>, more: usize) -> Poll<(usize, usize)> {
        let window = self.flow.window_bytes();
        self.flow.with(|state, wakes| {
            if state.whole {
                let keep_bytes_max =
                    state.head.as_ref().map_or(u64::MAX, |head| head.info.keep_bytes_max());
                if state.written.saturating_add(more as u64) > keep_bytes_max {
                    state.stream_only(wakes);
                }
            }
            let room = state.room(window);
            if room == 0 {
                state.waits_for = WriterWait::Window;
                remember(&mut state.writer_waker, cx);
                // A disk writer that waits for a full batch must take the bytes that are there.
                state.wake_readers(wakes);
                return Poll::Pending;
            }
            state.waits_for = WriterWait::Nothing;
            Poll::Ready((usize::try_from(room).unwrap_or(usize::MAX), state.pages_held()))
        })
    }

    /// Fills pages outside the lock, then publishes.
    fn copy(&mut self, mut data: &[u8], held: usize) -> Step {
        let mut begun: [Option<Page>; PAGES_PER_STEP] = [const { None }; PAGES_PER_STEP];
        let mut pages = 0;
        let mut took = 0;
        let mut shortage = None;
        while !data.is_empty() {
            if self.page.is_none() {
                let Some(slot) = begun.get_mut(pages) else { break };
                match self.flow.tier.alloc_page(held + pages) {
                    Ok(page) => {
                        *slot = Some(page.share());
                        self.page = Some(page);
                        pages += 1;
                    }
                    Err(reason) => {
                        shortage = Some(reason);
                        break;
                    }
                }
            }
            let Some(page) = &mut self.page else { break };
            let bytes = page.append(data);
            data = data.get(bytes..).unwrap_or_default();
            took += bytes;
            if page.room() == 0 {
                self.page = None;
            }
        }
        if let (0, Some(shortage)) = (took, shortage) {
            return Step::Shortage(shortage);
        }
        self.written += took as u64;
        self.flow.with(|state, wakes| state.grow(begun.into_iter().flatten(), took as u64, wakes));
        Step::Took(took)
    }

    /// Memory is short and the flow has its minimum, or had it when it was asked how many pages it
    /// holds (`held`): gives pages back now, or waits until a reader lets go.
    pub(super) fn poll_relief(&mut self, cx: &Context<'_>, held: usize) -> Poll<()> {
        self.flow.with(|state, wakes| {
            // A reader may have let go since then. If it waits for more now, neither would ever
            // wake the other.
            if state.pages_held() < held || state.relieve(wakes) {
                return Poll::Ready(());
            }
            state.waits_for = WriterWait::Pages;
            remember(&mut state.writer_waker, cx);
            state.wake_readers(wakes);
            Poll::Pending
        })
    }

    /// The body is complete. Readers that have read everything see the end.
    pub fn finish(&mut self, trailers: Option<Fields>) {
        self.complete();
        self.end(Ended::Complete(trailers.map(Arc::new)));
    }

    /// Whether [`FlowWriter::finish_borrowed`] is for this flow: nothing has been appended, and at
    /// most one client follows, which waits for nothing else.
    pub fn may_borrow(&self) -> bool {
        self.flow.state.lock().may_borrow()
    }

    /// The body is complete, as was said before: it is stored, and lies in memory of the directory.
    /// A reader that follows has it there, or in pages if it has to wait
    /// ([`FlowReader::settle`]). No more requests join.
    pub fn finish_borrowed(&mut self, body: Borrowed) {
        self.unregister();
        self.written = body.len() as u64;
        let may_borrow = self.flow.with(|state, wakes| {
            let may_borrow = state.may_borrow();
            state.borrow(body, wakes);
            may_borrow
        });
        if !may_borrow {
            // A request has joined since this check. Without memory it reads the body where it is.
            _ = self.flow.settle();
        }
    }

    /// The body will not become complete. Arrived bytes stay readable, then readers see the reason.
    pub fn abort(mut self, reason: AbortReason) {
        self.end(Ended::Aborted(reason));
    }

    /// Aborts the flow unless a client wants it; returns whether it did. Asking
    /// [`FlowWriter::readers`] first, and aborting then, would cut off clients that have joined in
    /// between.
    pub fn abort_unwanted(&mut self) -> bool {
        self.abort_if(AbortReason::Cancelled, State::is_deserted)
    }

    /// Aborts a flow that is too large for the clients that began it, unless more than `leaders`
    /// have ever read it; returns whether it did.
    pub fn abort_too_large(&mut self, leaders: usize) -> bool {
        self.abort_if(AbortReason::TooLarge, |state| state.clients_ever <= leaders)
    }

    /// Asks and aborts under one lock.
    fn abort_if(&mut self, reason: AbortReason, is_to_end: impl FnOnce(&State) -> bool) -> bool {
        let is_aborted = self.flow.with(|state, wakes| {
            let is_to_end = is_to_end(state);
            if is_to_end {
                state.ended.get_or_insert(Ended::Aborted(reason));
                state.wake_all(wakes);
            }
            is_to_end
        });
        if is_aborted {
            self.unregister();
            self.page = None;
        }
        is_aborted
    }

    fn end(&mut self, how: Ended) {
        if matches!(how, Ended::Aborted(_)) {
            self.unregister();
        }
        self.page = None;
        self.flow.with(|state, wakes| {
            state.ended.get_or_insert(how);
            state.wake_all(wakes);
        });
    }

    /// Takes the flow out of the table, so that no more requests join.
    pub fn unregister(&mut self) {
        if let Some(table) = self.registered.take() {
            table.remove(&self.flow);
        }
    }

    /// Clients that want it now.
    pub fn readers(&self) -> usize {
        let state = self.flow.state.lock();
        state.clients + state.parked
    }

    /// Ready when no client wants it any more.
    pub fn poll_readers_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.flow.poll_readers_gone(cx)
    }

    /// Whether all of the body is still there, and can become an object at its end. When memory is
    /// short it cannot: a directory that was to get it in one piece has to follow from then on.
    pub fn is_whole(&self) -> bool {
        self.flow.state.lock().whole
    }

    /// Bytes of body so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The complete object, sharing the pages; `None` when the flow is not complete, was not kept
    /// whole, or is not to be stored (no times).
    pub(crate) fn object(&self, url: &[u8]) -> Option<Arc<Object>> {
        let state = self.flow.state.lock();
        let (Some(head), Some(Ended::Complete(_))) = (state.head.clone(), &state.ended) else {
            return None;
        };
        let times = head.info.times?;
        let body = state.body()?;
        drop(state);
        Some(Arc::new(Object::new(head.info.key, url.into(), head.head.clone(), times, body)))
    }
}

impl Drop for FlowWriter {
    fn drop(&mut self) {
        let table = self.registered.take();
        let table = self.flow.with(|state, wakes| {
            // Without effect after `finish` or `abort`.
            if state.ended.is_none() {
                state.ended = Some(Ended::Aborted(AbortReason::Cancelled));
                state.wake_all(wakes);
            }
            state.linger(table)
        });
        table.inspect(|table| table.remove(&self.flow));
    }
}
