//! A client that holds up a fetch it shares: how it continues without the fetch, and without losing
//! or mixing a byte.
//!
//! Clients of one fetch are at most [`LAG_BYTES_MAX`](humboldt_store::flow::LAG_BYTES_MAX) apart,
//! or less if memory is short. So a slow client can hold up all others. A client that does so for
//! half of a [`LOOK_EVERY`] searches for the rest of the answer elsewhere, in this order:
//!
//! 1. from the server by a range request, if a strong validator says that the answer is the same;
//! 2. from the server by a request for the whole answer. The bytes that the client has are skipped
//!    if they are the same (by an unkeyed 64-bit hash), so the client has the new answer whole.
//!
//! The client stays with the fetch, and keeps its pages, until it has found the rest. The copy on
//! disk is not used: a newer answer may replace it before it is complete. If no search succeeds,
//! the others keep waiting for this client as long as it takes bytes. If it takes none for
//! [`HELD_UP_MAX`] while they wait, it is cut off. So is a client that a delay pool holds back,
//! even if it takes some: the others are not slowed down by a limit that is not theirs.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use humboldt_base::counters::Counter;
use humboldt_base::limits::PAGE_BYTES;
use humboldt_base::xxh3::Xxh3;
use humboldt_exchange::ClientExchange;
use humboldt_http::FieldName;
use humboldt_runtime::deadline::DeadlineSlot;
use humboldt_store::mem::FLOW_PAGES_GUARANTEED;
use humboldt_store::{BodySlice, Flow, FlowHead, FlowReader, Progress, ReaderKind, StoredHead};
use tokio::time::Instant;

use crate::core::Core;
use crate::fetch::job::{Job, Report};
use crate::reply::resume;
use crate::request::Request;
use crate::rules::permission;
use crate::storing::deliver;

/// Interval of the check whether a client that does not take all bytes at once holds up others. It
/// does if they waited for it half of the time.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Two limits. Others wait this long for a client that takes no bytes at all; then it is cut off.
/// And a search for the rest may take this long to bring a head: a server that answers one request
/// at a time does not answer before the shared fetch continues.
const HELD_UP_MAX: Duration = Duration::from_secs(15);

/// A search for the rest is dropped when nobody has waited for the client for this time.
const UNNEEDED_MAX: Duration = Duration::from_secs(5);

/// Most searches for one client. Each of them is a request to the server.
const SEARCHES_MAX: u32 = 4;

/// A client that must be cut off, because it held up others.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldUp;

/// Bytes compared in one step.
const STEP_BYTES: u64 = 256 * 1024;

type Search<T> = Pin<Box<dyn Future<Output = Option<T>>>>;

/// The state that lets a client leave a shared fetch.
pub(crate) struct Leave {
    core: Rc<Core>,
    request: Rc<Request>,
    head: Arc<FlowHead>,
    /// Hash of all bytes taken from the fetch so far. The client gets all of them.
    taken: Xxh3,
    /// Offset of the first byte that the client gets, and of the next one to take from the fetch.
    start: u64,
    position: u64,
    /// Armed when the client first did not take all bytes.
    timer: Option<DeadlineSlot>,
    /// Start of the period in which the waits of others are measured.
    watched_since: Instant,
    /// How long others have waited in that period.
    held_up: Duration,
    waits_since: Option<Instant>,
    /// Since when the client has taken no bytes while others waited for it.
    idle_since: Option<Instant>,
    /// Since when others have waited for the client, which a delay pool holds back and which cannot
    /// leave.
    held_back_since: Option<Instant>,
    /// Bytes that its connection had not taken at the last check.
    unacknowledged: Option<usize>,
    /// The last time that it was seen to hold up others.
    needed_at: Instant,
    /// Searches that may still begin, and the start of the last one.
    searches_left: u32,
    search_began: Instant,
    stage: Stage,
    /// The fetch that the client has left.
    left: Option<Arc<Flow>>,
}

enum Stage {
    /// The client stays with the fetch.
    Stays,
    /// Asks the server for the range from this byte on.
    Searching(Search<FlowReader>, u64),
    /// Waits for the head of a new answer to the same request.
    Asking(Search<FlowReader>),
    /// Compares that answer with the bytes that the client has.
    Comparing(FlowReader, Box<Xxh3>),
    /// The client has left the fetch.
    Over,
}

impl Leave {
    /// For a client that reads this answer from the reader's position on. `None` if it cannot hold
    /// up anyone: the fetch is not shared, or so short that it waits for no reader.
    pub(crate) fn new(
        core: &Rc<Core>,
        request: &Rc<Request>,
        head: &FlowHead,
        reader: &FlowReader,
    ) -> Option<Box<Self>> {
        let never_waits = |bytes: u64| bytes <= (FLOW_PAGES_GUARANTEED * PAGE_BYTES) as u64;
        if head.info.body_bytes.is_some_and(never_waits) || !reader.is_shared() {
            return None;
        }
        Some(Box::new(Self {
            core: Rc::clone(core),
            request: Rc::clone(request),
            head: Arc::new(head.clone()),
            taken: Xxh3::new(),
            start: reader.position(),
            position: reader.position(),
            timer: None,
            watched_since: Instant::now(),
            held_up: Duration::ZERO,
            waits_since: None,
            idle_since: None,
            held_back_since: None,
            unacknowledged: None,
            needed_at: Instant::now(),
            searches_left: SEARCHES_MAX,
            search_began: Instant::now(),
            stage: Stage::Stays,
            left: None,
        }))
    }

    /// The fetch that the client has left, if its answer is not complete. A client that got all of
    /// the answer all the same has a newer one than those that are stored.
    pub(crate) fn left_incomplete(&self) -> Option<&Flow> {
        self.left.as_deref().filter(|flow| !flow.is_complete())
    }

    /// Notes the bytes that the client gets next.
    pub(crate) fn take(&mut self, slices: &[BodySlice]) {
        for slice in slices {
            self.taken.update(slice);
            self.position += slice.len() as u64;
        }
    }

    /// Notes that the client takes no more bytes for now.
    pub(crate) fn begin_wait(&mut self) {
        self.waits_since.get_or_insert_with(Instant::now);
        if self.timer.is_none() {
            (self.watched_since, self.held_up) = (Instant::now(), Duration::ZERO);
            let timer = self.core.io.deadlines.slot();
            timer.arm(LOOK_EVERY);
            self.timer = Some(timer);
        }
    }

    /// Notes that the client takes bytes again.
    pub(crate) fn end_wait(&mut self, reader: &FlowReader) {
        let Some(since) = self.waits_since.take() else { return };
        self.idle_since = None;
        if reader.holds_up() {
            self.held_up += since.elapsed();
            self.needed_at = Instant::now();
        }
    }

    /// Ready when the client has left the fetch. `reader` was at most as far as the bytes that were
    /// [taken](Leave::take) last; it now continues behind them. `client` is the client that has not
    /// taken all bytes; `None` if it is not known, or waits for nothing.
    ///
    /// # Errors
    /// [`HeldUp`]: others have waited for [`HELD_UP_MAX`] for a client that has taken no bytes, or
    /// that a delay pool holds back.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut FlowReader,
        client: Option<&ClientExchange>,
    ) -> Poll<Result<(), HeldUp>> {
        if matches!(self.stage, Stage::Over) {
            return Poll::Pending;
        }
        let holds_up = self.look(cx, reader, client);
        let is_too_long = |since: Instant| since.elapsed() >= HELD_UP_MAX;
        if self.idle_since.is_some_and(is_too_long) || self.held_back_since.is_some_and(is_too_long)
        {
            return Poll::Ready(Err(HeldUp));
        }
        self.drop_search();
        if holds_up && matches!(self.stage, Stage::Stays) && self.searches_left > 0 {
            self.searches_left -= 1;
            self.search_began = Instant::now();
            let (core, request) = (Rc::clone(&self.core), Rc::clone(&self.request));
            let (head, position) = (Arc::clone(&self.head), self.position);
            let search = async move { resume::from_server(&core, &request, &head, position).await };
            self.stage = Stage::Searching(Box::pin(search), position);
        }
        let Some(rest) = ready!(self.poll_search(cx)) else { return Poll::Pending };
        self.left = Some(Arc::clone(reader.flow()));
        *reader = rest;
        self.core.count(Counter::ClientLeftFetch, 1);
        Poll::Ready(Ok(()))
    }

    /// The rest, once the search has ended. `None`: it found none.
    fn poll_search(&mut self, cx: &mut Context<'_>) -> Poll<Option<FlowReader>> {
        if let Stage::Searching(search, from) = &mut self.stage {
            let skipped = self.position - *from;
            if let Some(mut rest) = ready!(search.as_mut().poll(cx)) {
                rest.advance(skipped);
                self.stage = Stage::Over;
                return Poll::Ready(Some(rest));
            }
            self.ask_again();
        }
        if matches!(self.stage, Stage::Stays) {
            return Poll::Pending;
        }
        let rest = ready!(self.poll_again(cx));
        if rest.is_none() {
            // A different answer, or none for this client: another search would end the same.
            (self.stage, self.searches_left) = (Stage::Stays, 0);
        }
        Poll::Ready(rest)
    }

    /// Drops a search that has brought no head for too long, or that nobody needs any more. Another
    /// search may begin later.
    fn drop_search(&mut self) {
        let is_over = match self.stage {
            Stage::Searching(..) | Stage::Asking(_) => self.search_began.elapsed() >= HELD_UP_MAX,
            _ => false,
        };
        if is_over || self.needed_at.elapsed() >= UNNEEDED_MAX {
            self.stage = Stage::Stays;
        }
    }

    /// Checks once in each [`LOOK_EVERY`] whether others wait. Returns whether they have waited for
    /// this client half of the time.
    fn look(
        &mut self,
        cx: &mut Context<'_>,
        reader: &FlowReader,
        client: Option<&ClientExchange>,
    ) -> bool {
        let mut half_of_it = false;
        let Some(timer) = &self.timer else { return false };
        while timer.poll_expired(cx).is_ready() {
            let (now, holds_up) = (Instant::now(), reader.holds_up());
            if holds_up {
                self.needed_at = now;
            }
            if let Some(since) = &mut self.waits_since {
                if holds_up {
                    self.held_up += now - *since;
                }
                *since = now;
            }
            let rest = client.and_then(ClientExchange::unacknowledged_bytes);
            let takes_nothing =
                rest.is_some() && rest == self.unacknowledged && self.waits_since.is_some();
            self.unacknowledged = rest;
            self.idle_since = self.idle_since.or(Some(now)).filter(|_| takes_nothing && holds_up);
            let must_stay = self.searches_left == 0 && matches!(self.stage, Stage::Stays);
            match client {
                _ if !must_stay || !holds_up => self.held_back_since = None,
                Some(client) if client.is_held_back() => {
                    _ = self.held_back_since.get_or_insert(now)
                }
                Some(_) => self.held_back_since = None,
                None => {}
            }
            let watched = now - self.watched_since;
            let held_up = std::mem::take(&mut self.held_up);
            self.watched_since = now;
            timer.arm(LOOK_EVERY);
            half_of_it |= held_up * 2 >= watched;
        }
        half_of_it
    }

    /// Starts another fetch of the whole answer.
    pub(crate) fn ask_again(&mut self) {
        let again = again(Rc::clone(&self.core), Rc::clone(&self.request), Arc::clone(&self.head));
        self.stage = Stage::Asking(Box::pin(again));
    }

    /// The rest of the answer that was [asked for again](Leave::ask_again), once its beginning
    /// equals the bytes that the client has. `None`: it is a different answer.
    pub(crate) fn poll_again(&mut self, cx: &mut Context<'_>) -> Poll<Option<FlowReader>> {
        let found = loop {
            match &mut self.stage {
                Stage::Asking(search) => match ready!(search.as_mut().poll(cx)) {
                    Some(mut reader) => {
                        reader.advance(self.start);
                        self.stage = Stage::Comparing(reader, Box::default());
                    }
                    None => break false,
                },
                Stage::Comparing(reader, _) if reader.position() == self.position => break true,
                Stage::Comparing(reader, hash) => match ready!(reader.poll_data(cx)) {
                    Progress::Data { .. } => {
                        let mut slices = Vec::new();
                        let most = STEP_BYTES.min(self.position - reader.position());
                        let bytes = reader.slices(&mut slices, most);
                        slices.iter().for_each(|slice| hash.update(slice));
                        reader.advance(bytes);
                    }
                    Progress::End | Progress::Aborted(_) | Progress::Lagged { .. } => break false,
                },
                _ => break false,
            }
        };
        Poll::Ready(match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Comparing(reader, hash) if found && hash.digest() == self.taken.digest() => {
                Some(reader)
            }
            _ => None,
        })
    }
}

/// A new answer to the same request, fetched for this client alone. `None` if its head describes a
/// different body than `head` does.
async fn again(core: Rc<Core>, request: Rc<Request>, head: Arc<FlowHead>) -> Option<FlowReader> {
    // A client that is served from disk has not passed `miss_access` yet.
    permission::may_miss(&core, &request).await.ok()?;
    let writer = core.shared.cache.private(request.key, request.key);
    let mut reader = writer.subscribe(ReaderKind::Client)?;
    let job = Job { as_asked: false, ..Job::new(&request, None, false, &Report::new()) };
    deliver::start(&core, job, writer);
    let found = reader.head().await.ok()?;
    let is_same = found.object.is_none()
        && found.info.body_bytes == head.info.body_bytes
        && represents_same(&found.head, &head.head);
    is_same.then_some(reader)
}

/// Whether two heads say the same about the body that follows (RFC 9110 8).
fn represents_same(one: &StoredHead, other: &StoredHead) -> bool {
    let (ones, others) = (one.to_response_head(), other.to_response_head());
    let of = |head: &humboldt_http::ResponseHead| {
        let about_body = |id: FieldName, name: &[u8]| {
            matches!(id, FieldName::Etag | FieldName::LastModified)
                || name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"content-"))
                || name.eq_ignore_ascii_case(b"digest")
                || name.eq_ignore_ascii_case(b"repr-digest")
        };
        let fields = head.fields.iter().filter(|(id, name, _)| about_body(*id, name));
        let mut all: Vec<_> =
            fields.map(|(_, name, value)| (name.to_ascii_lowercase(), value.to_vec())).collect();
        all.sort();
        all
    };
    one.status == other.status && of(&ones) == of(&others)
}
