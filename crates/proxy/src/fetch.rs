//! Getting an answer from a server into a flow: choose a way → connect → send → read the head →
//! decide storability → stream.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use humboldt_base::counters::Counter;
use humboldt_conf::RelaxedParser;
use humboldt_http::h1::{BodyDecoder, Framing, HopByHop};
use humboldt_http::{FieldName, Method, ResponseHead};
use humboldt_logs::access::{Hierarchy, Tag};
use humboldt_store::flow::Flow;
use humboldt_store::mem::FLOW_BYTES_GUARANTEED;
use humboldt_store::{AbortReason, Dir, FlowReader, FlowWriter, ReaderKind, StoredHead};

use crate::body::BodyPump;
use crate::cache_status::Forward;
use crate::client::{After, ClientConn};
use crate::core::Core;
use crate::errors::ErrorPage;
use crate::forward;
use crate::job::{Failure, Job, Report, StaleBody};
use crate::log::{self, Outcome};
use crate::memory::Found;
use crate::peers::{self, Way};
use crate::pipeline;
use crate::reach::{self, Reached};
use crate::refresh::{self, Verdict};
use crate::relay::Relay;
use crate::request::Request;
use crate::server::{self, ServerConn, ServerError};
use crate::swap_out;
use crate::{answer, partial, purge, relay, reply};

/// An answer whose head is there.
pub(crate) struct Answer {
    server: ServerConn,
    key: Reached,
    /// The head.
    pub head: ResponseHead,
    decoder: BodyDecoder,
    /// Length of the body, where known.
    pub body_bytes: Option<u64>,
    /// When the request was sent, unix seconds.
    pub request_time: i64,
    /// How many bytes of it may be passed on (`reply_body_max_size`).
    pub limit_bytes: u64,
    /// Whether the connection can serve another request afterwards.
    reusable: bool,
    /// Whether its head had to be repaired (`relaxed_header_parser`).
    pub(crate) was_repaired: bool,
}

/// Refreshes a stale object while it is being served.
pub(crate) fn in_background(core: &Rc<Core>, request: &Rc<Request>, found: Found) {
    let key = found.key.unwrap_or(request.key);
    let humboldt_store::Begin::Lead(writer) =
        core.shared.cache.begin_or_join(request.key, key, request.url.as_bytes())
    else {
        return;
    };
    let job = Job::new(request, purge::unless_purged(core, found.stale), true, &Report::new());
    start(core, Job { in_background: true, ..job }, writer);
}

/// Fetches into `writer`, as a task of its own.
pub(crate) fn start(core: &Rc<Core>, job: Job, writer: FlowWriter) {
    // Kilobytes, which would be moved again and again otherwise.
    tokio::task::spawn_local(Box::pin(run(Rc::clone(core), job, writer)));
}

async fn run(core: Rc<Core>, mut job: Job, mut writer: FlowWriter) {
    // Before there is a head, there is nothing that `quick_abort` could find worth finishing.
    let watched = (!job.in_background).then(|| Arc::clone(writer.flow()));
    let conversed = while_wanted(watched, pin!(converse(&core, &job, &mut writer))).await;
    match conversed {
        Some(Ok(answer)) => {
            refresh::invalidate(&core, &job, &answer.head).await;
            deliver(&core, &mut job, answer, writer).await;
        }
        Some(Err(failure)) => Box::pin(fail(&core, &mut job, failure, writer)).await,
        None => writer.abort(AbortReason::Cancelled),
    }
    core.return_request(job.request);
}

/// What `work` for a flow gives; `None` when the last client that read it leaves before. Without a
/// flow nobody needs to wait for it. Work that is large should be pinned by the caller: what is
/// moved in here has its place twice.
pub(crate) async fn while_wanted<T>(
    flow: Option<Arc<Flow>>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending
            if flow.as_ref().is_some_and(|flow| flow.poll_readers_gone(cx).is_ready()) =>
        {
            Poll::Ready(None)
        }
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Ends a flow without an answer from the server: with the stored one if that is allowed (RFC 9111
/// 4.2.4).
async fn fail(core: &Core, job: &mut Job, failure: Failure, writer: FlowWriter) {
    core.count(Counter::ServerErrors, 1);
    job.report.set_validating(job.stale.is_some());
    let stored =
        job.stale.take().or_else(|| job.in_reserve.take()).or_else(|| job.to_learn_about.take());
    if let Some(stale) = purge::unless_purged(core, stored).filter(|stale| stale.may_serve_on_error)
    {
        job.report.set_object_tag(Tag::RefreshFailOld);
        return serve_stored(core, stale.body, writer).await;
    }
    let reason = failure.reason();
    job.report.fail(failure);
    writer.abort(reason);
}

/// Gives those who wait the stored answer.
async fn serve_stored(core: &Core, body: StaleBody, writer: FlowWriter) {
    match body {
        StaleBody::Memory(object) => {
            let info = refresh::object_info(&object);
            writer.publish_object(object, info);
        }
        StaleBody::Disk(hit) => hit.feed(&core.shared.cache, writer).await,
    }
}

/// Sends the request, by as many ways as it takes, and reads the final head.
pub(crate) async fn converse(
    core: &Rc<Core>,
    job: &Job,
    writer: &mut FlowWriter,
) -> Result<Box<Answer>, Failure> {
    let request = &*job.request;
    let config = &request.snapshot().config;
    let deadline = core.deadlines.slot();
    deadline.arm(config.forward_timeout.max(config.read_timeout));
    deadline.guard(pin!(attempt_all(core, job, writer))).await.unwrap_or_else(|_elapsed| {
        Err(Failure::new(ErrorPage::ForwardTimeout, "no answer within forward_timeout"))
    })
}

async fn attempt_all(
    core: &Rc<Core>,
    job: &Job,
    writer: &mut FlowWriter,
) -> Result<Box<Answer>, Failure> {
    let request = &*job.request;
    let mut last = Failure::new(ErrorPage::NoForward, "no server or parent may be used");
    let mut tries = request.snapshot().config.forward_max_tries.max(1);
    for way in peers::ways(core, request).await {
        // A pooled connection may turn out to be dead: then the same way again, with a new one.
        for reuse in [request.is_retriable(), false] {
            if tries == 0 {
                return Err(last);
            }
            tries -= 1;
            let reached = match reach::reach(core, request, &way, reuse).await {
                Ok(reached) => reached,
                Err(failure) => {
                    note_failed_way(job, &way, &failure, request);
                    last = failure;
                    break;
                }
            };
            note_way(job, &way, Some(reached.0.peer), request);
            let reused = reached.0.reused;
            match ask(core, job, reached, writer).await {
                Ok(answer) => return Ok(answer),
                Err(error) if reused && is_dead_connection(&error) && request.is_retriable() => {
                    core.count(Counter::ServerRetries, 1);
                    last = Failure::from(&error);
                }
                Err(error) => return Err(Failure::from(&error)),
            }
        }
    }
    Err(last)
}

fn is_dead_connection(error: &ServerError) -> bool {
    matches!(error, ServerError::ClosedEarly | ServerError::Io(_))
}

/// Notes a way that led nowhere. Where no connection was tried, nobody was asked.
pub(crate) fn note_failed_way(job: &Job, way: &Way, failure: &Failure, request: &Request) {
    if matches!(failure.page, ErrorPage::ConnectFailure | ErrorPage::ConnectTimeout) {
        note_way(job, way, None, request);
    }
}

pub(crate) fn note_way(
    job: &Job,
    way: &Way,
    peer: Option<std::net::SocketAddr>,
    request: &Request,
) {
    let host = String::from_utf8_lossy(request.url.host());
    match way {
        Way::Direct => job.report.set_route(Hierarchy::Direct, peer, &host),
        Way::Peer(index, hierarchy) => {
            let name = request.snapshot().peers.get(*index).map_or("", |peer| &peer.conf.name);
            job.report.set_route(*hierarchy, peer, name);
        }
    }
}

/// One request without a body on one connection, up to the final head.
async fn ask(
    core: &Rc<Core>,
    job: &Job,
    (mut server, reached): (ServerConn, Reached),
    writer: &mut FlowWriter,
) -> Result<Box<Answer>, ServerError> {
    let mut bytes = core.take_head_buffer();
    forward::write_head(&mut bytes, &job.request, &job.manner(&reached));
    writer.ask();
    let sent = server.send(core, &bytes).await;
    core.return_head_buffer(bytes);
    sent?;
    core.count(Counter::ServerRequests, 1);
    let request_time = core.now().secs();
    server.start_waiting();
    let limits = &job.request.snapshot().reply_limits;
    let mut head = ResponseHead::default();
    loop {
        server.head(core, limits, &mut head).await?;
        if !is_interim(&head)? {
            job.report.set_status(head.status);
            return Answer::new(server, reached, head, &job.request, request_time);
        }
        writer.interim(Arc::new(interim_head(&head)));
    }
}

/// Whether a head announces another. A 101 that nobody asked for is an error.
fn is_interim(head: &ResponseHead) -> Result<bool, ServerError> {
    match head.status {
        101 => Err(ServerError::Head(humboldt_http::h1::HeadError::StatusLine)),
        100..=199 => Ok(true),
        _ => Ok(false),
    }
}

fn interim_head(head: &ResponseHead) -> StoredHead {
    let hops = HopByHop::of(&head.fields);
    StoredHead::from_response(head, |id, name| hops.is_hop(id, name))
}

impl Answer {
    /// Boxed, as it is handed on often, and half a kilobyte.
    pub(crate) fn new(
        server: ServerConn,
        key: Reached,
        head: ResponseHead,
        request: &Request,
        request_time: i64,
    ) -> Result<Box<Self>, ServerError> {
        let relaxed = request.snapshot().config.relaxed_header_parser;
        let framing = server::framing(&head, request.head.method, relaxed != RelaxedParser::Off)?;
        let has_two_lengths = head.fields.has(FieldName::TransferEncoding)
            && head.fields.has(FieldName::ContentLength);
        let was_repaired = head.repaired || has_two_lengths && framing == Framing::Chunked;
        if was_repaired && relaxed == RelaxedParser::Warn {
            tracing::warn!(
                "{}: the answer's head is not as RFC 9112 wants it: repaired",
                String::from_utf8_lossy(request.shown_url())
            );
        }
        let persists = humboldt_http::h1::keep_alive(head.version, &head.fields);
        let body_bytes = match framing {
            Framing::None => bodiless_length(&head, request),
            Framing::Length(length) => Some(length),
            _ => None,
        };
        // A server that announces a body with a status that has none may send one (RFC 9110
        // 15.3.5).
        let announces_void_body = head.status == 204
            && (head.fields.has(FieldName::TransferEncoding)
                || head.fields.get(FieldName::ContentLength).is_some_and(|length| length != b"0"));
        let reusable = persists
            && !was_repaired
            && !announces_void_body
            && framing != Framing::UntilClose
            && request.snapshot().config.server_persistent_connections;
        let decoder = BodyDecoder::new(framing);
        let limit_bytes = reply::UNLIMITED;
        Ok(Box::new(Self {
            server,
            key,
            decoder,
            head,
            body_bytes,
            request_time,
            limit_bytes,
            reusable,
            was_repaired,
        }))
    }
}

/// The length to announce for an answer without a body: what GET would give, for HEAD; nothing
/// unless it was said.
fn bodiless_length(head: &ResponseHead, request: &Request) -> Option<u64> {
    // Beside a transfer coding the length means nothing (RFC 9112 6.3).
    let has_coding = head.fields.has(FieldName::TransferEncoding);
    let announced = head.fields.get(FieldName::ContentLength).filter(|_| !has_coding);
    match request.head.method {
        Method::Head => announced.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok()),
        _ => Some(0),
    }
}

/// Decides what becomes of an answer, then streams it into the flow.
pub(crate) async fn deliver(
    core: &Rc<Core>,
    job: &mut Job,
    mut answer: Box<Answer>,
    mut writer: FlowWriter,
) {
    let (stored, at_end, part) = match refresh::decide(core, job, &mut answer, &mut writer).await {
        Verdict::Confirmed(body) => {
            answer.keep(core);
            return Box::pin(serve_stored(core, body, writer)).await;
        }
        Verdict::Again => {
            answer.keep(core);
            return Box::pin(again(core, job, writer)).await;
        }
        Verdict::Failed(failure) => return Box::pin(fail(core, job, failure, writer)).await,
        Verdict::Stream { stored, at_end, part } => (stored, at_end, part),
    };
    if let (Some(dir), None) = (&at_end, &part)
        && let Some(body) = answer.whole_body()
        && swap_out::store_lending(core, job, &mut writer, dir, body).await
    {
        drop(writer);
        return answer.keep_after_whole_body(core);
    }
    let mut at_end = AtEnd::new(at_end, &answer, &writer);
    match receive(core, job, &mut answer, &mut writer, stored, &mut at_end).await {
        Ok(()) => {
            writer.finish(answer.decoder.trailers());
            at_end.follow_if_short(core, job, &writer);
            if stored {
                let (flow, written, writing) =
                    (Arc::clone(writer.flow()), writer.written(), writer.writing());
                swap_out::store(core, job, writer, at_end.dir.take()).await;
                if let Some(part) = part.filter(|part| part.is_complete(written)) {
                    partial::add(core, &job.request, answer.request_time, (&flow, writing), *part);
                }
            }
            answer.keep(core);
        }
        Err(reason) => writer.abort(reason),
    }
}

/// A directory that gets an answer in one piece when it is complete, or as it arrives if memory
/// turns out to be too short for that.
struct AtEnd {
    dir: Option<Arc<Dir>>,
    /// Keeps what has arrived until the directory has it; not for what a flow may hold in any case.
    reader: Option<FlowReader>,
}

impl AtEnd {
    fn new(dir: Option<Arc<Dir>>, answer: &Answer, writer: &FlowWriter) -> Self {
        let may_be_short = answer.body_bytes.is_none_or(|bytes| bytes > FLOW_BYTES_GUARANTEED);
        let reader =
            dir.as_ref().filter(|_| may_be_short).and_then(|_| writer.subscribe(ReaderKind::Disk));
        Self { dir, reader }
    }

    /// Lets the directory follow from now on if the body cannot be kept whole.
    fn follow_if_short(&mut self, core: &Rc<Core>, job: &Job, writer: &FlowWriter) {
        if self.reader.is_none() || writer.is_whole() {
            return;
        }
        let head = writer.flow().published();
        let record = head.and_then(|head| head.record(job.request.url.as_bytes()));
        if let (Some(dir), Some(reader), Some(record)) =
            (self.dir.take(), self.reader.take(), record)
        {
            swap_out::swap_out(core, dir, reader, record, None);
        }
    }
}

/// Fetches without a condition what could not be validated. The stored answer, which nothing is
/// known about, may still cover for an error.
async fn again(core: &Rc<Core>, job: &mut Job, mut writer: FlowWriter) {
    match converse(core, job, &mut writer).await {
        Ok(answer) => deliver(core, job, answer, writer).await,
        Err(failure) => fail(core, job, failure, writer).await,
    }
}

/// Streams the body. Stops early when nobody wants it any more and `quick_abort` does not say
/// otherwise.
async fn receive(
    core: &Rc<Core>,
    job: &Job,
    answer: &mut Answer,
    writer: &mut FlowWriter,
    stored: bool,
    at_end: &mut AtEnd,
) -> Result<(), AbortReason> {
    enum Step {
        Nobody,
        Body(Result<bool, ServerError>),
    }
    let mut watch = true;
    loop {
        let step = poll_fn(|cx| {
            if watch && writer.poll_readers_gone(cx).is_ready() {
                return Poll::Ready(Step::Nobody);
            }
            let received = answer.server.poll_body(cx, core, &mut answer.decoder, writer);
            at_end.follow_if_short(core, job, writer);
            received.map(Step::Body)
        })
        .await;
        match step {
            Step::Body(Ok(_))
                if answer.body_bytes.is_none() && writer.written() > answer.limit_bytes =>
            {
                return Err(AbortReason::TooLarge);
            }
            Step::Body(Ok(true)) => return Ok(()),
            Step::Body(Ok(false)) => {}
            Step::Body(Err(error)) => return Err(error.abort_reason()),
            Step::Nobody if stored && goes_on_alone(job, answer, writer.written()) => watch = false,
            Step::Nobody if writer.abort_unwanted() => return Err(AbortReason::Cancelled),
            Step::Nobody => {} // somebody has joined since
        }
    }
}

/// `quick_abort_min`, `quick_abort_max`, `quick_abort_pct`: whether a fetch is finished although
/// its clients have left.
fn goes_on_alone(job: &Job, answer: &Answer, received: u64) -> bool {
    let config = &job.request.snapshot().config;
    let Some(min) = config.quick_abort_min else { return true };
    let Some(total) = answer.body_bytes else { return false };
    let left = total.saturating_sub(received);
    if left <= min {
        return true;
    }
    if config.quick_abort_max.is_some_and(|max| left > max) {
        return false;
    }
    received.saturating_mul(100) >= total.saturating_mul(u64::from(config.quick_abort_pct))
}

impl Answer {
    /// The body, if it has a length and all of it has been received.
    fn whole_body(&self) -> Option<&[u8]> {
        let body_bytes =
            self.body_bytes.filter(|&bytes| bytes == self.decoder.announced_bytes())?;
        self.server.received(usize::try_from(body_bytes).ok()?)
    }

    /// Gives the connection back, if it can be used again, when [`Answer::whole_body`] has been
    /// used.
    fn keep_after_whole_body(mut self: Box<Self>, core: &Core) {
        if self.server.skip_body(core, &mut self.decoder).is_ok() {
            self.keep(core);
        }
    }

    /// Gives the connection back, if it can be used again.
    fn keep(self: Box<Self>, core: &Core) {
        if self.reusable && self.decoder.is_done() {
            self.server.keep(core, &self.key.server());
        }
    }

    /// Whether it came from a peer whose answers are not to be stored (`proxy-only`), or had to be
    /// repaired: what one client can live with is not for all.
    pub(crate) fn is_not_to_be_stored(&self) -> bool {
        self.key.proxy_only || self.was_repaired
    }
}

/// A request with a body: read from the client and sent on while the answer is awaited and relayed.
pub(crate) async fn with_body(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: Rc<Request>,
) -> After {
    let report = Report::because(Forward::Method);
    let mut job = match request.head.method {
        Method::Post => Job::as_asked(&request, &report),
        _ => Job::new(&request, None, false, &report),
    };
    job.purge_number = core.shared.cache.purges().newest();
    match send_with_body(core, conn, &job).await {
        Ok((answer, pump)) => relay_with_body(core, conn, job, answer, Some(pump)).await,
        Err(failure) if failure.is_client_gone() => {
            answer::gone(core, conn, &request, Tag::Miss, Some(&report))
        }
        Err(failure) => {
            core.count(Counter::ServerErrors, 1);
            // What the client did wrong has nothing to do with the cache.
            let tag = if failure.page.status() < 500 { Tag::None } else { Tag::Miss };
            match answer::failed(core, conn, &request, failure, (tag, Some(report.route()))).await {
                After::Keep => After::Close,
                after => after,
            }
        }
    }
}

/// Connects, then sends head and body until the final head of the answer is there. A body cannot be
/// sent twice: only connecting is tried again.
async fn send_with_body(
    core: &Rc<Core>,
    conn: &ClientConn,
    job: &Job,
) -> Result<(Box<Answer>, Box<BodyPump>), Failure> {
    let request = &*job.request;
    let mut last = Failure::new(ErrorPage::NoForward, "no server or parent may be used");
    let Some(ways) = conn.while_it_stays(request, peers::ways(core, request)).await else {
        return Err(Failure::client_gone());
    };
    for way in ways {
        let reached = conn.while_it_stays(request, reach::reach(core, request, &way, false)).await;
        match reached.unwrap_or_else(|| Err(Failure::client_gone())) {
            Err(failure) if failure.is_client_gone() => return Err(failure),
            Err(failure) => {
                note_failed_way(job, &way, &failure, request);
                last = failure;
            }
            Ok((mut server, reached)) => {
                note_way(job, &way, Some(server.peer), request);
                let mut bytes = Vec::with_capacity(1024);
                forward::write_head(&mut bytes, request, &job.manner(&reached));
                let mut pump = Box::new(BodyPump::new(request, bytes, &mut server));
                let request_time = core.now().secs();
                core.count(Counter::ServerRequests, 1);
                let head = pump.until_head(core, conn, request, &mut server).await?;
                job.report.set_status(head.status);
                let answer = Answer::new(server, reached, head, request, request_time)
                    .map_err(|error| Failure::from(&error))?;
                return Ok((answer, pump));
            }
        }
    }
    Err(last)
}

/// Relays an answer to the one request it is for, whose body may still be on its way. It comes from
/// a task of its own: a client that leaves does not wait for what becomes of the answer.
pub(crate) async fn relay_with_body(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    mut job: Job,
    answer: Box<Answer>,
    pump: Option<Box<BodyPump>>,
) -> After {
    let (request, report) = (Rc::clone(&job.request), Rc::clone(&job.report));
    let tag = if request.head.method == Method::Connect { Tag::Tunnel } else { Tag::Miss };
    let private = || core.shared.cache.private(request.key, request.key);
    let writer = refresh::invalidate(core, &job, &answer.head).await.unwrap_or_else(private);
    let Some(mut reader) = writer.subscribe(ReaderKind::Client) else {
        return answer::error(core, conn, &request, ErrorPage::Internal, "no fetch").await;
    };
    let its_core = Rc::clone(core);
    let delivery = async move { deliver(&its_core, &mut job, answer, writer).await };
    tokio::task::spawn_local(Box::pin(delivery));
    let head = match conn.while_it_stays(&request, reader.head()).await {
        None => return answer::gone(core, conn, &request, tag, Some(&report)),
        Some(Ok(head)) => head,
        Some(Err(reason)) => {
            let way = (tag, Some(report.route()));
            return match answer::failed(core, conn, &request, report.failure(reason), way).await {
                After::Keep => After::Close,
                after => after,
            };
        }
    };
    let mut outcome = Outcome::miss(tag, head.head.status, Some(report.route()));
    let limit_bytes = match reply::check(&request, &head.head, head.info.body_bytes) {
        Ok(limit_bytes) => limit_bytes,
        Err(refusal) => {
            drop(reader);
            return answer::refused(core, conn, &request, refusal, outcome.route).await;
        }
    };
    let origin = pipeline::Origin::Fetched(report.forward(), None, reader.flow().is_stored());
    let mut fields = pipeline::answer_fields(&request, &head, origin);
    fields.extend_from_slice(&report.own_fields());
    let mut relay = Relay::with_pump(core, &request, &head, &fields, pump);
    relay.limit_body(limit_bytes);
    let ended = relay.run(conn, &mut reader, &mut outcome).await;
    drop(reader);
    let cut = ended.cut(conn);
    outcome.end(cut);
    log::transaction(core, &request, &outcome, head.head.content_type());
    relay.after(cut)
}

/// Passes an interim response on.
pub(crate) async fn pass_interim(
    core: &Rc<Core>,
    conn: &ClientConn,
    request: &Request,
    head: &ResponseHead,
) -> std::io::Result<()> {
    relay::interim(core, conn, request, &interim_head(head)).await
}
