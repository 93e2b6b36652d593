//! Brings an answer from its server into a flow: fetches it, decides its use, streams and stores
//! it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use humboldt_base::counters::Counter;
use humboldt_logs::access::Tag;
use humboldt_runtime::turns;
use humboldt_store::flow::Flow;
use humboldt_store::mem::FLOW_BYTES_GUARANTEED;
use humboldt_store::{AbortReason, Dir, FlowReader, FlowWriter, ReaderKind};

use crate::core::Core;
use crate::fetch::converse::{Answer, converse};
use crate::fetch::job::{Failure, Job, Report, Stale, StaleBody};
use crate::lookup::memory::Found;
use crate::request::Request;
use crate::storing::decide::{self, Verdict};
use crate::storing::{freshen, invalidate, parts, store};

/// Refreshes a stale object while it is being served.
pub(crate) fn in_background(core: &Rc<Core>, request: &Rc<Request>, found: Found) {
    let key = found.key.unwrap_or(request.key);
    let humboldt_store::Begin::Lead(writer) =
        core.shared.cache.begin_or_join(request.key, key, request.cache_url())
    else {
        return;
    };
    let job = Job::new(request, invalidate::unless_void(core, found.stale), true, &Report::new());
    start(core, Job { in_background: true, ..job }, writer);
}

/// Fetches into `writer`, as a task of its own.
pub(crate) fn start(core: &Rc<Core>, mut job: Job, writer: FlowWriter) {
    let core = Rc::clone(core);
    // A block has the job once, an async function would have its argument twice.
    let task = async move {
        fetch(&core, &mut job, writer).await;
        core.return_request(job.request);
    };
    // Boxed, since the future has kilobytes, which would otherwise be moved several times.
    turns::spawn_local(Box::pin(task));
}

/// Brings an answer whose head has come into `writer`, as a task of its own: a client that leaves
/// need not wait for its end.
pub(crate) fn go_on(core: &Rc<Core>, mut job: Job, answer: Box<Answer>, writer: FlowWriter) {
    let core = Rc::clone(core);
    let task = async move { deliver(&core, &mut job, answer, writer).await };
    turns::spawn_local(Box::pin(task));
}

async fn fetch(core: &Rc<Core>, job: &mut Job, mut writer: FlowWriter) {
    // Without a head, `quick_abort` has no reason to finish the fetch.
    let watched = (!job.in_background).then(|| Arc::clone(writer.flow()));
    let conversed = while_wanted(watched, pin!(converse(core, job, &mut writer))).await;
    match conversed {
        Some(Ok(answer)) => {
            invalidate::after_unsafe_method(core, job, &answer).await;
            deliver(core, job, answer, writer).await;
        }
        Some(Err(failure)) => Box::pin(fail(core, job, failure, writer)).await,
        None => writer.abort(AbortReason::Cancelled),
    }
}

/// The result of `work` for a flow; `None` if the last client that read the flow leaves first.
/// Without a flow, `work` always continues to its end. The caller pins the work, because a future
/// that is moved in here would take its space twice.
pub(crate) async fn while_wanted<T>(
    flow: Option<Arc<Flow>>,
    work: impl Future<Output = T> + Unpin,
) -> Option<T> {
    let mut work = work;
    poll_fn(|cx| match Pin::new(&mut work).poll(cx) {
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

/// Ends a flow to which the server gave no answer: with the stored answer if that is allowed (RFC
/// 9111 4.2.4), otherwise with the failure.
async fn fail(core: &Core, job: &mut Job, failure: Failure, writer: FlowWriter) {
    core.count(Counter::ServerErrors, 1);
    job.report.is_validation.set(job.stale.is_some());
    let stored =
        job.stale.take().or_else(|| job.in_reserve.take()).or_else(|| job.to_learn_about.take());
    // A refusal is no fault of the server.
    let may_be_stale = |stale: &Stale| stale.may_serve_on_error && failure.refusal.is_none();
    if let Some(stale) = invalidate::unless_void(core, stored).filter(may_be_stale) {
        job.report.object_tag.set(Some(Tag::RefreshFailOld));
        return serve_stored(core, stale.body, writer).await;
    }
    let reason = failure.reason();
    job.report.failure.replace(Some(failure));
    writer.abort(reason);
}

/// Sends the stored answer to the clients that wait.
async fn serve_stored(core: &Core, body: StaleBody, writer: FlowWriter) {
    match body {
        StaleBody::Memory(object) => {
            let info = freshen::object_info(&object);
            writer.publish_object(object, info);
        }
        StaleBody::Disk(hit) => hit.feed(&core.shared.cache, writer).await,
    }
}

/// Decides the use of an answer, then streams it into the flow.
async fn deliver(core: &Rc<Core>, job: &mut Job, mut answer: Box<Answer>, mut writer: FlowWriter) {
    let (stored, at_end, part) = match decide::decide(core, job, &mut answer, &mut writer).await {
        Verdict::Confirmed(body) => {
            answer.keep(core, &job.request);
            return Box::pin(serve_stored(core, body, writer)).await;
        }
        Verdict::Again => {
            answer.keep(core, &job.request);
            // Without a condition now. Nothing is known about the stored answer any more, but it
            // may still be served if the server fails.
            return Box::pin(fetch(core, job, writer)).await;
        }
        Verdict::Failed(failure) => return Box::pin(fail(core, job, failure, writer)).await,
        Verdict::Stream { stored, at_end, part } => (stored, at_end, part),
    };
    if let (Some(dir), None) = (&at_end, &part)
        && !answer.is_pinned
        && let Some(body) = answer.server.whole_body()
        && store::store_lending(core, job, &mut writer, dir, body).await
    {
        drop(writer);
        return answer.keep_after_whole_body(core, &job.request);
    }
    let mut at_end = AtEnd::new(at_end, &answer, &writer);
    match receive(core, job, &mut answer, &mut writer, stored, &mut at_end).await {
        Ok(()) => {
            writer.finish(answer.server.trailers());
            let request_time = answer.request_time;
            // Before anything is waited for: the client's next request may be for this connection.
            answer.keep(core, &job.request);
            at_end.follow_if_short(core, job, &writer);
            if stored {
                let (flow, written, writing) =
                    (Arc::clone(writer.flow()), writer.written(), writer.writing());
                store::store(core, job, writer, at_end.dir.take()).await;
                if let Some(part) = part.filter(|part| part.is_complete(written)) {
                    parts::add(core, &job.request, request_time, (&flow, writing), *part);
                }
            }
        }
        Err(reason) => writer.abort(reason),
    }
}

/// A directory that gets an answer in one piece when it is complete. If memory turns out to be too
/// short for that, it gets the answer as it arrives.
struct AtEnd {
    dir: Option<Arc<Dir>>,
    /// Keeps the received bytes until the directory has them. Not needed for a body so short that a
    /// flow may hold it in any case.
    reader: Option<FlowReader>,
}

impl AtEnd {
    fn new(dir: Option<Arc<Dir>>, answer: &Answer, writer: &FlowWriter) -> Self {
        let may_be_short = answer.body_bytes().is_none_or(|bytes| bytes > FLOW_BYTES_GUARANTEED);
        let reader =
            dir.as_ref().filter(|_| may_be_short).and_then(|_| writer.subscribe(ReaderKind::Disk));
        Self { dir, reader }
    }

    /// Makes the directory follow the flow from now on if the body cannot be kept whole.
    fn follow_if_short(&mut self, core: &Rc<Core>, job: &Job, writer: &FlowWriter) {
        if self.reader.is_none() || writer.is_whole() {
            return;
        }
        let head = writer.flow().published();
        let record = head.and_then(|head| head.record(job.request.cache_url()));
        if let (Some(dir), Some(mut reader), Some(record)) =
            (self.dir.take(), self.reader.take(), record)
        {
            reader.hold_place(writer.take_place());
            store::swap_out(core, dir, reader, record, None);
        }
    }
}

/// Streams the body. Stops early if no client wants it any more, unless `quick_abort` lets the
/// fetch continue.
async fn receive(
    core: &Rc<Core>,
    job: &Job,
    answer: &mut Answer,
    writer: &mut FlowWriter,
    stored: bool,
    at_end: &mut AtEnd,
) -> Result<(), AbortReason> {
    // A refresh goes on without clients, who got the stale answer, as long as it can be stored.
    let mut watch = !(job.in_background && stored);
    let cache = &core.shared.cache;
    let stored_bytes_max = cache.memory_object_bytes_max().max(cache.disk_object_bytes_max());
    let leaders = usize::from(!job.in_background);
    let may_be_longer = answer.body_bytes().is_some() || job.in_background && stored;
    let mut limit_bytes = if may_be_longer { u64::MAX } else { answer.limit_bytes };
    loop {
        // `None`: no client wants the body any more.
        let received = poll_fn(|cx| {
            if watch && writer.poll_readers_gone(cx).is_ready() {
                return Poll::Ready(None);
            }
            let received = answer.server.poll_body(cx, writer);
            at_end.follow_if_short(core, job, writer);
            received.map(Some)
        })
        .await;
        match received {
            Some(Ok(is_end)) => {
                if writer.written() > limit_bytes {
                    // Others that have joined get as much as their own limits allow.
                    if !stored || writer.abort_too_large(leaders) {
                        return Err(AbortReason::TooLarge);
                    }
                    limit_bytes = u64::MAX;
                }
                if is_end {
                    return Ok(());
                }
                watch |= writer.written() > stored_bytes_max;
            }
            Some(Err(error)) => return Err(error.abort_reason()),
            None if stored
                && writer.written() <= stored_bytes_max
                && goes_on_alone(job, answer, writer.written()) =>
            {
                watch = false;
            }
            None if writer.abort_unwanted() => return Err(AbortReason::Cancelled),
            // A client has joined since.
            None => {}
        }
    }
}

/// `quick_abort_min`, `quick_abort_max`, `quick_abort_pct`: whether a fetch is finished although
/// its clients have left.
fn goes_on_alone(job: &Job, answer: &Answer, received: u64) -> bool {
    let config = &job.request.snapshot().config;
    let Some(min) = config.quick_abort_min else { return true };
    let Some(total) = answer.body_bytes() else { return false };
    let left = total.saturating_sub(received);
    if left <= min {
        return true;
    }
    if config.quick_abort_max.is_some_and(|max| left > max) {
        return false;
    }
    received.saturating_mul(100) >= total.saturating_mul(u64::from(config.quick_abort_pct))
}
