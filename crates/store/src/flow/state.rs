//! The state that writer and readers of a flow share under its lock: pages, positions, waiting
//! tasks.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Waker;

use humboldt_base::limits::PAGE_BYTES;
use humboldt_http::Fields;
use humboldt_sys::pages::Page;

use crate::body::{Body, Borrowed};
use crate::head::StoredHead;
use crate::object::Object;

use super::facts::{
    AbortReason, BATCH_BYTES, BodySlice, FlowHead, JOIN_BYTES_MAX, LAG_BYTES_MAX, Part, Progress,
    ReaderKind,
};
use super::table::Table;
use super::wake::WakeList;

/// The end of a flow.
#[derive(Clone, Debug)]
pub(super) enum Ended {
    Complete(Option<Arc<Fields>>),
    Aborted(AbortReason),
}

/// The reason for which the writer waits.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum WriterWait {
    #[default]
    Nothing,
    /// The fastest client is a whole window behind, or the slowest reader as far as it may be.
    Window,
    /// Memory is short: pages of this flow must be given back first.
    Pages,
}

#[derive(Debug)]
pub(super) struct ReaderState {
    pub(super) kind: ReaderKind,
    pub(super) position: u64,
    /// A disk writer or a client that was not waited for: its data is gone.
    pub(super) lagged: bool,
    /// Only woken for batches, see [`State::batch_ready`].
    pub(super) batch: bool,
    pub(super) waker: Option<Waker>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) head: Option<Arc<FlowHead>>,
    pub(super) interims: Vec<Arc<StoredHead>>,
    /// The address of the server, if it is a private one.
    pub(super) private_server: Option<IpAddr>,
    /// Pages from offset `base`; all full but the last.
    pages: VecDeque<Page>,
    /// The whole body, where it is in no pages.
    borrowed: Option<Borrowed>,
    base: u64,
    pub(super) written: u64,
    pub(super) ended: Option<Ended>,
    /// Nothing has been trimmed, and nothing will be.
    pub(super) whole: bool,
    /// Nothing is trimmed for a while, so that clients who arrive a little later share the fetch.
    pub(super) joinable: bool,
    /// Requests could join it when it got its head.
    pub(super) shared: bool,
    /// The disk writer is waited for.
    pub(super) write_through: bool,
    /// A detached reader leaves a hole that the next one fills, so that numbers stay valid.
    readers: Vec<Option<ReaderState>>,
    pub(super) clients: usize,
    /// Clients that have wanted it so far, in any way.
    pub(super) clients_ever: usize,
    /// Requests that wait for the copy on disk ([`ReaderKind::Parked`]), and clients that take
    /// nothing for a while ([`ReaderKind::Aside`]).
    pub(super) parked: usize,
    pub(super) waits_for: WriterWait,
    pub(super) writer_waker: Option<Waker>,
    pub(super) gone_waker: Option<Waker>,
    /// The table in which requests find it until the disk writer is done, although its own writer
    /// is.
    lingers_in: Option<Arc<Table>>,
    /// The answer, while a disk writer has it in one piece.
    pub(super) object: Option<Arc<Object>>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            head: None,
            interims: Vec::new(),
            private_server: None,
            pages: VecDeque::new(),
            borrowed: None,
            base: 0,
            written: 0,
            ended: None,
            // Before the head decides whether the body is kept, there is nothing to trim.
            whole: true,
            joinable: false,
            shared: false,
            write_through: false,
            readers: Vec::new(),
            clients: 0,
            clients_ever: 0,
            parked: 0,
            waits_for: WriterWait::Nothing,
            writer_waker: None,
            gone_waker: None,
            lingers_in: None,
            object: None,
        }
    }
}

impl State {
    pub(super) fn attach(&mut self, offset: u64, kind: ReaderKind) -> Option<usize> {
        if offset < self.base || matches!(self.ended, Some(Ended::Aborted(_))) {
            return None;
        }
        let reader =
            ReaderState { kind, position: offset, lagged: false, batch: false, waker: None };
        self.count(kind).into_iter().for_each(|count| *count += 1);
        self.clients_ever += usize::from(kind != ReaderKind::Disk);
        let hole = self.readers.iter().position(Option::is_none);
        let number = hole.unwrap_or(self.readers.len());
        match hole {
            Some(hole) => self.readers[hole] = Some(reader),
            None => self.readers.push(Some(reader)),
        }
        Some(number)
    }

    /// Returns the table that the flow is to be taken out of now.
    pub(super) fn detach(
        &mut self,
        number: usize,
        window: u64,
        wakes: &mut WakeList,
    ) -> Option<Arc<Table>> {
        let mut table = None;
        if let Some(reader) = self.readers.get_mut(number).and_then(Option::take) {
            if !reader.lagged {
                self.count(reader.kind).into_iter().for_each(|count| *count -= 1);
            }
            if self.is_deserted() {
                wakes.take(&mut self.gone_waker);
            }
            if reader.kind == ReaderKind::Disk && !self.has_disk_writer() {
                self.wake_parked(wakes);
                table = self.lingers_in.take();
                self.object = None;
            }
            self.moved(window, wakes);
        }
        table
    }

    /// A client steps aside or back. `false`: it was left behind.
    pub(super) fn turn(&mut self, number: usize, kind: ReaderKind) -> bool {
        let Some(reader) = self.reader(number) else { return false };
        let (was, is_there) = (std::mem::replace(&mut reader.kind, kind), !reader.lagged);
        if is_there {
            self.count(was).into_iter().for_each(|count| *count -= 1);
            self.count(kind).into_iter().for_each(|count| *count += 1);
        }
        is_there
    }

    fn count(&mut self, kind: ReaderKind) -> Option<&mut usize> {
        match kind {
            ReaderKind::Client => Some(&mut self.clients),
            ReaderKind::Parked | ReaderKind::Aside => Some(&mut self.parked),
            ReaderKind::Disk => None,
        }
    }

    /// The writer is done with `table`: the flow stays in it as long as a directory writes the
    /// complete body. Returns the table if it is not to stay.
    pub(super) fn linger(&mut self, table: Option<Arc<Table>>) -> Option<Arc<Table>> {
        if !self.is_coming_to_disk() {
            return table;
        }
        self.lingers_in = table;
        None
    }

    /// Whether it is complete, and a directory is still writing it.
    pub(super) fn is_coming_to_disk(&self) -> bool {
        matches!(self.ended, Some(Ended::Complete(_))) && self.has_disk_writer()
    }

    /// Whether no client wants it any more.
    pub(super) fn is_deserted(&self) -> bool {
        self.clients + self.parked == 0
    }

    fn wake_parked(&mut self, wakes: &mut WakeList) {
        for reader in
            self.readers.iter_mut().flatten().filter(|reader| reader.kind == ReaderKind::Parked)
        {
            wakes.take(&mut reader.waker);
        }
    }

    fn has_disk_writer(&self) -> bool {
        self.attached().any(|reader| reader.kind == ReaderKind::Disk)
    }

    pub(super) fn reader(&mut self, number: usize) -> Option<&mut ReaderState> {
        self.readers.get_mut(number).and_then(Option::as_mut)
    }

    /// Readers that need pages.
    fn attached(&self) -> impl Iterator<Item = &ReaderState> {
        let needs_pages =
            |reader: &&ReaderState| !reader.lagged && reader.kind != ReaderKind::Parked;
        self.readers.iter().flatten().filter(needs_pages)
    }

    /// Clients that are waited for: one that has stepped aside only if there is no other.
    fn clients(&self) -> impl Iterator<Item = &ReaderState> {
        self.attached().filter(|reader| match reader.kind {
            ReaderKind::Client => true,
            ReaderKind::Aside => self.clients == 0,
            ReaderKind::Disk | ReaderKind::Parked => false,
        })
    }

    /// Position of the fastest client, because clients set the pace; of the disk writer when no
    /// client is left. Without readers, the end.
    fn fastest(&self) -> u64 {
        let of_clients = self.clients().map(|reader| reader.position).max();
        let of_all = || self.attached().map(|reader| reader.position).max();
        of_clients.or_else(of_all).unwrap_or(self.written)
    }

    /// Position of the slowest reader; without readers, nothing is needed any more.
    fn slowest(&self) -> u64 {
        self.attached().map(|reader| reader.position).min().unwrap_or(self.written)
    }

    pub(super) fn pages_held(&self) -> usize {
        self.pages.len()
    }

    /// Bytes that the writer may append now.
    pub(super) fn room(&self, window: u64) -> u64 {
        if self.whole {
            return u64::MAX;
        }
        let slowest = self.clients().map(|reader| reader.position).min().unwrap_or(self.written);
        let by_fastest = window.saturating_sub(self.written.saturating_sub(self.fastest()));
        let by_slowest =
            LAG_BYTES_MAX.max(window).saturating_sub(self.written.saturating_sub(slowest));
        by_fastest.min(by_slowest).min(self.disk_room())
    }

    /// Whether the writer waits for this client while another one has nothing left to read: without
    /// it, the fetch would go on. Not while a disk writer that is waited for is as far behind.
    pub(super) fn holds_up(&self, number: usize) -> bool {
        let Some(reader) = self.readers.get(number).and_then(Option::as_ref) else { return false };
        let behind = self.written.saturating_sub(reader.position);
        // A page that is not full is no loss to the writer.
        let keeps_pages = reader.position / PAGE_BYTES as u64 != self.written / PAGE_BYTES as u64;
        let is_cause = match self.waits_for {
            WriterWait::Nothing => false,
            WriterWait::Window => behind >= LAG_BYTES_MAX / 2,
            WriterWait::Pages => keeps_pages,
        };
        let needs_same =
            |disk: &ReaderState| self.waits_for_disk(disk) && disk.position <= reader.position;
        is_cause
            && self.ended.is_none()
            && self.clients().any(|other| other.position >= self.written)
            && !self.attached().any(needs_same)
    }

    /// Bytes that may be appended before the disk writer would be detached, where it is waited for.
    fn disk_room(&self) -> u64 {
        let written_to = self
            .attached()
            .filter(|reader| self.waits_for_disk(reader))
            .map(|reader| reader.position);
        let position = written_to.min().unwrap_or(self.written);
        (LAG_BYTES_MAX / 2).saturating_sub(self.written.saturating_sub(position))
    }

    fn waits_for_disk(&self, reader: &ReaderState) -> bool {
        self.write_through && reader.kind == ReaderKind::Disk
    }

    /// Stops keeping the body whole.
    pub(super) fn stream_only(&mut self, wakes: &mut WakeList) {
        self.whole = false;
        self.after_growth(wakes);
    }

    /// Takes over `pages` that the writer began and counts `bytes` that it published.
    pub(super) fn grow(
        &mut self,
        pages: impl IntoIterator<Item = Page>,
        bytes: u64,
        wakes: &mut WakeList,
    ) {
        self.pages.extend(pages);
        self.written += bytes;
        self.after_growth(wakes);
    }

    /// Whether a body may be borrowed: it is at its start, and at most one client follows, which
    /// waits for nothing else.
    pub(super) fn may_borrow(&self) -> bool {
        self.written == 0 && self.readers.len() <= 1 && self.interims.is_empty()
    }

    /// The body is complete, and lies elsewhere.
    pub(super) fn borrow(&mut self, body: Borrowed, wakes: &mut WakeList) {
        self.written = body.len() as u64;
        self.borrowed = Some(body);
        self.ended.get_or_insert(Ended::Complete(None));
        self.wake_all(wakes);
    }

    /// The whole body, while it lies elsewhere.
    pub(super) fn borrowed(&self) -> Option<&Borrowed> {
        self.borrowed.as_ref()
    }

    /// Takes over pages with the body that lay elsewhere.
    pub(super) fn settle(&mut self, pages: impl IntoIterator<Item = Page>) {
        if self.borrowed.take().is_some() {
            self.pages = pages.into_iter().collect();
        }
    }

    fn after_growth(&mut self, wakes: &mut WakeList) {
        if !self.whole {
            self.leave_behind(self.written.saturating_sub(LAG_BYTES_MAX));
            self.trim();
        }
        self.wake_readers(wakes);
    }

    /// A reader before `limit` that is not waited for loses its data: a disk writer, and with it
    /// the copy, or a client that has stepped aside. A client that reads never does. A client that
    /// is left behind wants nothing of this flow any more, so it does not count.
    fn leave_behind(&mut self, limit: u64) {
        for reader in self.readers.iter_mut().flatten() {
            let is_waited_for = match reader.kind {
                ReaderKind::Client | ReaderKind::Parked => true,
                ReaderKind::Disk => self.write_through,
                ReaderKind::Aside => self.clients == 0,
            };
            if reader.position < limit && !is_waited_for && !reader.lagged {
                reader.lagged = true;
                self.parked -= usize::from(reader.kind == ReaderKind::Aside);
            }
        }
    }

    /// Memory is short: gives up the pages that this flow can spare. Returns whether pages were
    /// given back.
    pub(super) fn relieve(&mut self, wakes: &mut WakeList) -> bool {
        let before = self.pages.len();
        self.whole = false;
        self.joinable = false;
        self.trim();
        if self.pages.len() == before {
            // A copy is worth less than the pages that clients have left behind.
            let needed =
                self.clients().map(|reader| reader.position).min().unwrap_or(0).min(self.written);
            self.leave_behind(needed / PAGE_BYTES as u64 * PAGE_BYTES as u64);
            self.trim();
        }
        self.wake_readers(wakes);
        self.pages.len() < before
    }

    /// Drops the full pages that every reader has left behind and that no late client can join at:
    /// none while the beginning is less than [`JOIN_BYTES_MAX`] ago.
    fn trim(&mut self) -> bool {
        let joinable = self.base == 0 && self.written <= JOIN_BYTES_MAX && self.joinable;
        if joinable { false } else { self.trim_behind_slowest() }
    }

    fn trim_behind_slowest(&mut self) -> bool {
        let needed = self.slowest().min(self.written);
        let before = self.pages.len();
        while self.base + PAGE_BYTES as u64 <= needed && self.pages.pop_front().is_some() {
            self.base += PAGE_BYTES as u64;
        }
        self.pages.len() < before
    }

    /// A reader moved or left: trims, and wakes the writer if it can go on.
    pub(super) fn moved(&mut self, window: u64, wakes: &mut WakeList) {
        let trimmed = !self.whole && self.trim();
        let go = match self.waits_for {
            WriterWait::Nothing => false,
            // Half a window, not every byte, is worth a wake-up; but no more than there can ever
            // be.
            WriterWait::Window => self.room(window) >= window.min(LAG_BYTES_MAX / 2) / 2,
            // A client that has stepped aside may be left behind now.
            WriterWait::Pages => trimmed || self.parked > 0,
        };
        if go {
            self.waits_for = WriterWait::Nothing;
            wakes.take(&mut self.writer_waker);
        }
    }

    /// Wakes readers that wait and have something to do now.
    pub(super) fn wake_readers(&mut self, wakes: &mut WakeList) {
        for number in 0..self.readers.len() {
            let waits =
                |reader: &&ReaderState| reader.waker.is_some() && reader.kind != ReaderKind::Parked;
            let Some(reader) = self.readers[number].as_ref().filter(waits) else { continue };
            let available = self.written.saturating_sub(reader.position);
            let ready = self.ended.is_some()
                || (available > 0 && (!reader.batch || self.batch_ready(available)));
            if ready && let Some(reader) = self.reader(number) {
                wakes.take(&mut reader.waker);
            }
        }
    }

    /// Wakes everybody: head, interim response or end.
    pub(super) fn wake_all(&mut self, wakes: &mut WakeList) {
        for reader in self.readers.iter_mut().flatten() {
            wakes.take(&mut reader.waker);
        }
    }

    /// Whether `available` bytes are worth a disk writer's attention.
    pub(super) fn batch_ready(&self, available: u64) -> bool {
        available > 0
            && (self.ended.is_some()
                || self.waits_for != WriterWait::Nothing
                || (!self.whole && available >= BATCH_BYTES))
    }

    /// The state at the reader's position, `None` when it must wait.
    pub(super) fn progress(&mut self, number: usize) -> Option<Progress> {
        let written = self.written;
        let reader = self.reader(number)?;
        if reader.lagged {
            return Some(Progress::Lagged { position: reader.position });
        }
        if reader.kind == ReaderKind::Parked {
            return self.progress_on_disk(number);
        }
        let batch = reader.batch;
        let available = written.saturating_sub(reader.position);
        if available > 0 && (!batch || self.batch_ready(available)) {
            return Some(Progress::Data { available });
        }
        match &self.ended {
            Some(Ended::Complete(_)) => Some(Progress::End),
            Some(Ended::Aborted(reason)) => Some(Progress::Aborted(*reason)),
            None => None,
        }
    }

    /// The state for a request that waits for the copy on disk.
    fn progress_on_disk(&mut self, number: usize) -> Option<Progress> {
        let position = self.reader(number)?.position;
        (!self.has_disk_writer()).then_some(Progress::Lagged { position })
    }

    /// Handles to the published bytes `from..from + most`, appended to `out`. Returns how many
    /// bytes.
    pub(super) fn slices(&self, from: u64, most: u64, out: &mut Vec<BodySlice>) -> u64 {
        let to = self.written.min(from.saturating_add(most));
        if let Some(body) = &self.borrowed {
            let part = body.part(from as usize..to as usize).filter(|part| !part.is_empty());
            let bytes = part.as_ref().map_or(0, |part| part.len() as u64);
            out.extend(part.map(|part| BodySlice(Part::Borrowed(part))));
            return bytes;
        }
        let mut at = from;
        while at < to {
            let Some(offset) = at.checked_sub(self.base) else { break };
            let Some(page) = self.pages.get((offset / PAGE_BYTES as u64) as usize) else { break };
            let start = offset % PAGE_BYTES as u64;
            let end = (start + (to - at)).min(PAGE_BYTES as u64);
            let (page, start, end) = (page.clone(), start as u16, end as u16);
            out.push(BodySlice(Part::Page { page, start, end }));
            at += u64::from(end - start);
        }
        at - from
    }

    /// The body, if all of it is in pages.
    pub(super) fn body(&self) -> Option<Body> {
        (self.whole && self.borrowed.is_none()).then(|| Body::from_pages(self.pages.iter()))
    }
}
