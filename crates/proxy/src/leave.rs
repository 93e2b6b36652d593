//! A client that holds up a fetch it shares: how it goes on without it, and without losing or mixing a byte.
//!
//! Clients of one fetch are at most [`LAG_BYTES_MAX`](humboldt_store::flow::LAG_BYTES_MAX) apart, or less where memory is
//! short, so that a slow one can hold up all others. Whoever does so for half of a [`LOOK_EVERY`] looks for the rest elsewhere,
//! in this order:
//!
//! 1. in the complete copy on disk;
//! 2. from the server by a range request, where a strong validator says that the answer is the same;
//! 3. in the copy on disk that is being written, when it is complete;
//! 4. from the server, all of it once more: what the client has is skipped if it is the same to the last bit, so that the client has the new
//!    answer whole.
//!
//! It stays with the fetch until it has found something, and for good where there is nothing: the others wait for it.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use humboldt_base::limits::PAGE_BYTES;
use humboldt_base::xxh3::Xxh3;
use humboldt_http::FieldName;
use humboldt_net::deadline::DeadlineSlot;
use humboldt_store::mem::FLOW_PAGES_GUARANTEED;
use humboldt_store::{BodySlice, FlowHead, FlowReader, Progress, ReaderKind, StoredHead};

use crate::access;
use crate::core::Core;
use crate::fetch;
use crate::job::{Job, Report};
use crate::request::Request;
use crate::resume;

/// How often a client that does not take all at once is asked whether it holds up others. It does if they waited for it half of
/// the time.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Bytes compared at a time.
const STEP_BYTES: u64 = 256 * 1024;

type Search<T> = Pin<Box<dyn Future<Output = Option<T>>>>;

/// What a client of a shared fetch remembers, so that it can leave.
pub(crate) struct Leave {
    core: Rc<Core>,
    request: Rc<Request>,
    head: Arc<FlowHead>,
    /// Hash of what was taken from the fetch so far, all of which the client gets.
    taken: Xxh3,
    /// What the client gets begins at the one offset, and what was not taken yet at the other.
    start: u64,
    position: u64,
    /// Whether its reader may wait for the copy on disk.
    may_park: bool,
    /// Armed from the first time that the client did not take all.
    timer: Option<DeadlineSlot>,
    /// Since when it has been watched how long others wait.
    watched_since: Instant,
    /// How long they have waited since then.
    held_up: Duration,
    waits_since: Option<Instant>,
    stage: Stage,
}

enum Stage {
    /// It stays.
    Stays,
    /// Looks on disk and for a range, from this byte on.
    Searching(Search<FlowReader>, u64),
    /// Waits for the head of the answer to the same request.
    Asking(Search<FlowReader>),
    /// Compares that answer with what the client has.
    Comparing(FlowReader, Box<Xxh3>),
    /// It has left, or cannot.
    Over,
}

impl Leave {
    /// For a client that is going to read this answer from the reader's position on. `None` where nobody can be held up: the fetch
    /// is not shared, or so short that it waits for nobody.
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
            may_park: true,
            timer: None,
            watched_since: Instant::now(),
            held_up: Duration::ZERO,
            waits_since: None,
            stage: Stage::Stays,
        }))
    }

    /// For a client whose answer is put together from this one: its reader does not wait for the disk.
    pub(crate) fn without_disk(mut self: Box<Self>) -> Box<Self> {
        self.may_park = false;
        self
    }

    /// Notes what the client is going to get next.
    pub(crate) fn take(&mut self, slices: &[BodySlice]) {
        for slice in slices {
            self.taken.update(slice);
            self.position += slice.len() as u64;
        }
    }

    /// The client does not take more now.
    pub(crate) fn begin_wait(&mut self) {
        self.waits_since.get_or_insert_with(Instant::now);
        if self.timer.is_none() {
            (self.watched_since, self.held_up) = (Instant::now(), Duration::ZERO);
            let timer = self.core.deadlines.slot();
            timer.arm(LOOK_EVERY);
            self.timer = Some(timer);
        }
    }

    /// It takes more.
    pub(crate) fn end_wait(&mut self, reader: &FlowReader) {
        let Some(since) = self.waits_since.take() else { return };
        if reader.holds_up() {
            self.held_up += since.elapsed();
        }
    }

    /// Ready when the client has left the fetch: `reader`, which was at what it [took](Leave::take) last or before, begins behind that now.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, reader: &mut FlowReader) -> Poll<()> {
        loop {
            match &mut self.stage {
                Stage::Over => return Poll::Pending,
                Stage::Stays => {
                    ready!(self.poll_held_up(cx, reader));
                    let search = Box::pin(resume::rest(
                        Rc::clone(&self.core),
                        Rc::clone(&self.request),
                        Arc::clone(&self.head),
                        self.position,
                    ));
                    self.stage = Stage::Searching(search, self.position);
                }
                Stage::Searching(search, from) => {
                    let found = ready!(search.as_mut().poll(cx));
                    let skipped = self.position - *from;
                    self.stage = Stage::Over;
                    if let Some(mut rest) = found {
                        rest.advance(skipped);
                        *reader = rest;
                        return Poll::Ready(());
                    }
                    if self.may_park && self.is_coming_to_disk() && reader.park(self.position) {
                        return Poll::Ready(());
                    }
                    self.ask_again();
                }
                Stage::Asking(_) | Stage::Comparing(..) => {
                    let Some(rest) = ready!(self.poll_again(cx)) else { return Poll::Pending };
                    *reader = rest;
                    return Poll::Ready(());
                }
            }
        }
    }

    /// Ready when others have waited for this client half of the time.
    fn poll_held_up(&mut self, cx: &mut Context<'_>, reader: &FlowReader) -> Poll<()> {
        let Some(timer) = &self.timer else { return Poll::Pending };
        while timer.poll_expired(cx).is_ready() {
            let now = Instant::now();
            if let Some(since) = &mut self.waits_since {
                if reader.holds_up() {
                    self.held_up += now - *since;
                }
                *since = now;
            }
            let watched = now - self.watched_since;
            let held_up = std::mem::take(&mut self.held_up);
            self.watched_since = now;
            timer.arm(LOOK_EVERY);
            if held_up * 2 >= watched {
                return Poll::Ready(());
            }
        }
        Poll::Pending
    }

    /// Whether a directory may be expected to have the answer when it is complete.
    fn is_coming_to_disk(&self) -> bool {
        let bytes_max = self.core.shared.cache.disk_object_bytes_max();
        self.head.info.body_bytes.is_some_and(|bytes| bytes <= bytes_max)
    }

    /// Begins to fetch the answer once more.
    pub(crate) fn ask_again(&mut self) {
        let again = again(Rc::clone(&self.core), Rc::clone(&self.request), Arc::clone(&self.head));
        self.stage = Stage::Asking(Box::pin(again));
    }

    /// The rest of the answer that was [asked for again](Leave::ask_again), once it has turned out to begin with what the client has.
    /// `None`: it is another one.
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
            Stage::Comparing(reader, hash) if found && hash.digest() == self.taken.digest() => Some(reader),
            _ => None,
        })
    }
}

/// The answer to the same request, fetched for this client alone. `None` when it is not what its head tells of the other.
async fn again(core: Rc<Core>, request: Rc<Request>, head: Arc<FlowHead>) -> Option<FlowReader> {
    // Who was served from disk was not asked this yet.
    access::may_miss(&core, &request).await.ok()?;
    let writer = core.shared.cache.private(request.key, request.key);
    let mut reader = writer.subscribe(ReaderKind::Client)?;
    let job = Job { as_asked: false, ..Job::new(&request, None, false, &Report::new()) };
    fetch::start(&core, job, writer);
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
