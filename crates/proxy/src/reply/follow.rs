//! Answers in flight, sent to the client that began the fetch or to one that joined it.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use humboldt_exchange::{ClientExchange, is_bodiless_status};
use humboldt_freshness::{Disposition, Times};
use humboldt_http::Method;
use humboldt_logs::access::Tag;
use humboldt_store::flow::Flow;
use humboldt_store::{AbortReason, FlowHead, FlowReader, Held};

use crate::config::cache_status::{Forward, Storing, Usage};
use crate::core::Core;
use crate::errors::ErrorPage;
use crate::fetch::job::{Failure, Report};
use crate::lookup::judge_age;
use crate::lookup::memory::{HitObject, variant_key};
use crate::outcome::Outcome;
use crate::reply::assemble::{self, Assembly};
use crate::reply::head::{self, Reply};
use crate::reply::hit::{self, Started};
use crate::reply::leave::Leave;
use crate::reply::stream::{Ended, Relay, cut_off};
use crate::reply::{facts, local, resume};
use crate::request::Request;
use crate::rules::{delays, destinations, reply};
use crate::storing::invalidate;
use crate::transaction::{Served, Transaction};

/// Serves a request from a fetch in flight: its own (with a `report`) or another request's.
pub(crate) fn follow(
    transaction: &mut Transaction<'_>,
    mut reader: FlowReader,
    report: Option<&Report>,
    tag: Tag,
) -> impl Future<Output = Served> {
    let came_before = reader.flow().published().is_some();
    // A block has the reader once, an async function would have its argument twice.
    async move {
        let head = match await_head(transaction, &mut reader, report.is_none()).await {
            Ok(head) => head,
            Err(Waited::ClientGone) => {
                return Served::Done(transaction.client_gone(waiting(tag, report)));
            }
            // Nothing has been sent, so this is like a miss.
            Err(Waited::LeftBehind | Waited::Aborted(AbortReason::DiskFailed)) => {
                return Served::LookAgain;
            }
            Err(Waited::Aborted(reason)) => {
                let Some(report) = report else { return give_up(transaction, reason).await };
                let outcome = Outcome::miss(report.tag_of_failure(tag), 0, Some(report.route()));
                return Served::Done(
                    local::failed(transaction, report.failure(reason), outcome).await,
                );
            }
        };
        // What is being read from a directory came before, whenever its head is there.
        let came_before = came_before || reader.flow().is_reading();
        if report.is_none()
            && (!is_ours(transaction.request, &head)
                || (came_before || has_terms(transaction.request, &head))
                    && !is_fresh(transaction.request, &head))
        {
            return Served::LookAgain;
        }
        if let Some(object) = &head.object {
            let tag =
                report.and_then(|report| report.object_tag.get()).unwrap_or(Tag::RefreshUnmodified);
            let route = report.map(|report| Box::new(report.route()));
            let object = HitObject::new(Held::Memory(Arc::clone(object)), tag);
            let object = HitObject { without_origin: false, route, ..object };
            return Served::Done(Box::pin(self::object(transaction, object)).await);
        }
        stream(transaction, reader, &head, report, tag).await
    }
}

/// Serves a request from a fetch that is for it alone.
pub(crate) async fn alone(
    transaction: &mut Transaction<'_>,
    reader: FlowReader,
    report: &Report,
    tag: Tag,
) -> Outcome {
    match follow(transaction, reader, Some(report), tag).await {
        Served::Done(outcome) => outcome,
        Served::LookAgain => {
            let outcome = Outcome::miss(tag, 0, Some(report.route()));
            local::failed(transaction, Failure::new(ErrorPage::ReadError, ""), outcome).await
        }
    }
}

/// The outcome of a request that waits for a fetch: its own (with a `report`) or another request's.
fn waiting(tag: Tag, report: Option<&Report>) -> Outcome {
    let outcome = Outcome::miss(tag, 0, report.map(Report::route));
    Outcome { collapsed: report.is_none(), ..outcome }
}

/// Ends a request whose fetch failed. It may look again if the fault was in that fetch only.
async fn give_up(transaction: &mut Transaction<'_>, reason: AbortReason) -> Served {
    let page = match reason {
        AbortReason::NotShareable | AbortReason::Cancelled => {
            return Served::LookAgain;
        }
        AbortReason::TimedOut => ErrorPage::ReadTimeout,
        AbortReason::Malformed | AbortReason::TooLarge => ErrorPage::InvalidResponse,
        AbortReason::NoMemory => ErrorPage::Internal,
        AbortReason::Truncated | AbortReason::Failed | AbortReason::DiskFailed => {
            ErrorPage::ConnectFailure
        }
    };
    let failure = Failure::new(page, "the fetch that this request had joined failed");
    let outcome = Outcome { collapsed: true, ..Outcome::local(Tag::Miss, 0) };
    Served::Done(local::failed(transaction, failure, outcome).await)
}

/// Whether a fetch that was joined by its URL is for the variant that this request selects.
fn is_ours(request: &Request, head: &FlowHead) -> bool {
    match &head.info.vary {
        Some(marker) => variant_key(request, marker) == head.info.key,
        None => true,
    }
}

/// Whether the request says how old an answer may be, and this one was received before: it is being
/// read from a directory.
fn has_terms(request: &Request, head: &FlowHead) -> bool {
    let is_older = |times: &Times| times.response_time < request.received.secs();
    !request.cc.is_empty() && head.info.times.as_ref().is_some_and(is_older)
}

/// Whether an answer that had begun to arrive when this request came is still fresh for it. A body
/// may take longer than its lifetime to arrive.
fn is_fresh(request: &Request, head: &FlowHead) -> bool {
    head.info.times.as_ref().is_none_or(|times| {
        matches!(judge_age(request, times), Disposition::Fresh | Disposition::StaleWhileRevalidate)
    })
}

/// Whether the server of a fetch is one to which this request could not go.
pub(crate) fn is_closed(core: &Core, request: &Request, flow: &Flow) -> bool {
    let private = flow.private_server();
    private.is_some_and(|ip| destinations::objection(core, request, ip).is_some())
}

enum Waited {
    ClientGone,
    /// The fetch did not wait until the rules had decided for this client, or is not for it.
    LeftBehind,
    Aborted(AbortReason),
}

/// Waits for the head, and passes interim responses on. One who has joined the fetch of another
/// gets nothing from a server to which its own request could not go.
async fn await_head(
    transaction: &mut Transaction<'_>,
    reader: &mut FlowReader,
    has_joined: bool,
) -> Result<Arc<FlowHead>, Waited> {
    let mut gone = pin!(transaction.client.gone());
    loop {
        let (head, interim) = poll_fn(|cx| {
            let head = reader.poll_head(cx);
            let interim = reader.next_interim();
            if head.is_ready() || interim.is_some() {
                return Poll::Ready((Some(head), interim));
            }
            gone.as_mut().poll(cx).map(|()| (None, None))
        })
        .await;
        let is_there = interim.is_some() || matches!(head, Some(Poll::Ready(Ok(_))));
        let (core, request) = (transaction.core, transaction.request);
        if has_joined && is_there && is_closed(core, request, reader.flow()) {
            return Err(Waited::LeftBehind);
        }
        if let Some(interim) = interim {
            match facts::gather_beside(transaction, &interim, Some(reader)).await {
                None => return Err(Waited::ClientGone),
                Some(false) => return Err(Waited::LeftBehind),
                Some(true) => {}
            }
            head::send_interim(transaction.client, transaction.request, &interim);
            if transaction.client.flush().await.is_err() {
                return Err(Waited::ClientGone);
            }
        }
        match head {
            None => return Err(Waited::ClientGone),
            Some(Poll::Ready(Ok(head))) => return Ok(head),
            Some(Poll::Ready(Err(reason))) => return Err(Waited::Aborted(reason)),
            Some(Poll::Pending) => {}
        }
    }
}

/// Why a client of HTTP/1.0 on a Unix socket does not get an answer whose length is not known.
pub(crate) const NO_END: &str = "HTTP/1.0 cannot mark the end of this answer on a Unix socket";

/// Streams a fetch to the client.
async fn stream(
    transaction: &mut Transaction<'_>,
    reader: FlowReader,
    head: &FlowHead,
    report: Option<&Report>,
    tag: Tag,
) -> Served {
    let (core, request) = (transaction.core, transaction.request);
    let mut outcome = Outcome::miss(tag, head.head.status, report.map(Report::route));
    let gathered = facts::gather_beside(transaction, &head.head, Some(&reader)).await;
    let Some(is_there) = gathered else {
        return Served::Done(transaction.client_gone(waiting(tag, report)));
    };
    let limit_bytes = match reply::check(request, &head.head, head.info.body_bytes) {
        Ok(limit_bytes) => limit_bytes,
        Err(refusal) => {
            drop(reader);
            return Served::Done(local::refused(transaction, refusal, outcome.route).await);
        }
    };
    // Who is refused does not look for the answer once more.
    if !is_there {
        return Served::LookAgain;
    }
    outcome.collapsed = report.is_none();
    let is_stored = reader.flow().is_stored();
    let (cut_head, mut reader) = match assemble::cut(core, request, head, reader) {
        Err(reader) => (None, reader),
        Ok(assembly) => match Box::pin(begun(transaction, assembly, report, tag)).await {
            Ok((head, reader)) => (Some(head), reader),
            Err(served) => return served,
        },
    };
    let received_status = cut_head.is_some().then_some(head.head.status);
    let head = cut_head.as_deref().unwrap_or(head);
    if is_endless(transaction, head) {
        drop(reader);
        let failure = Failure::new(ErrorPage::UnsupportedVersion, NO_END);
        return Served::Done(local::failed(transaction, failure, outcome).await);
    }
    outcome.status = head.head.status;
    outcome.set_head(&head.head);
    let origin = match report {
        None => Origin::Joined,
        Some(_) if tag == Tag::Hit => Origin::Disk,
        Some(report) => Origin::Fetched(report.forward, received_status, is_stored),
    };
    let own = report.map(|report| report.own_fields.take());
    let usage = usage(request, head, origin);
    let reply = Reply {
        request,
        head: &head.head,
        status: head.head.status,
        range: None,
        usage,
        own: own.as_ref(),
    };
    let pump = transaction.pump.take();
    let mut relay = Relay::begin(transaction.client, request, head, &reply, pump);
    if let Some(report) = report.filter(|report| report.is_undelayed.get()) {
        delays::apply(transaction.client, request, report.source(), &reply);
    }
    relay.limit_body(limit_bytes);
    relay.may_leave(Leave::new(core, request, head, &reader));
    let ended = relay.run(core, transaction.client, &mut reader).await;
    if ended.is_lost() {
        drop(reader);
        return from_elsewhere(transaction, head, &mut relay, outcome, ended).await;
    }
    if let (Ended::Complete, Some(flow)) = (&ended, relay.left_incomplete())
        && core.shared.cache.may_have_older(flow.epoch())
    {
        invalidate::forget_all(core, request.key).await;
    }
    Served::Done(ended_with(outcome, ended))
}

/// Whether the client could take a part of this answer for the whole: only the end of its
/// connection would end the body, and a connection that is cut off ends in the same way.
fn is_endless(transaction: &Transaction<'_>, head: &FlowHead) -> bool {
    head.info.body_bytes.is_none()
        && !is_bodiless_status(head.head.status)
        && transaction.request.head.method != Method::Head
        && !transaction.client.can_cut_off()
}

fn ended_with(mut outcome: Outcome, ended: Ended) -> Outcome {
    outcome.end(ended.cut());
    outcome
}

/// Continues an answer whose copy on disk cannot be read further.
async fn from_elsewhere(
    transaction: &mut Transaction<'_>,
    head: &FlowHead,
    relay: &mut Relay<'_>,
    outcome: Outcome,
    why: Ended,
) -> Served {
    let mut ended = Box::pin(resume::resume(transaction, head, relay, why)).await;
    if ended.is_lost() {
        if transaction.client.take_back() {
            return Served::LookAgain;
        }
        ended = cut_off(transaction.client, ended).await;
    }
    Served::Done(ended_with(outcome, ended))
}

/// How an answer in flight began, for the fields that say how the cache was used.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This request's own fetch: the reason for it; the status that the server sent, if it is not
    /// the one that is sent on; whether the answer is stored already.
    Fetched(Forward, Option<u16>, bool),
    /// The fetch of another request.
    Joined,
    /// A cache directory.
    Disk,
}

/// How the cache was used for an answer in flight.
pub(crate) fn usage(request: &Request, head: &FlowHead, origin: Origin) -> Usage {
    let times = head.info.times.as_ref();
    if let (Origin::Disk, Some(times)) = (origin, times) {
        return head::from_cache(request, times);
    }
    let (forward, status, storing) = match origin {
        Origin::Fetched(forward, status, true) => (forward, status, Storing::Done),
        Origin::Fetched(forward, status, false) => {
            let storing = if head.info.is_to_be_stored() { Storing::Begun } else { Storing::No };
            (forward, status, storing)
        }
        Origin::Joined | Origin::Disk => (Forward::UriMiss, None, Storing::No),
    };
    Usage::Forwarded {
        age_s: times.map(|times| head::age_on_arrival_s(request, times)),
        forward,
        storing,
        collapsed: origin == Origin::Joined,
        status,
    }
}

/// Serves an answer that is put together.
pub(crate) async fn assembled(
    transaction: &mut Transaction<'_>,
    assembly: Assembly,
    report: &Report,
    tag: Tag,
) -> Served {
    match begun(transaction, assembly, Some(report), tag).await {
        Ok((head, reader)) => stream(transaction, reader, &head, Some(report), tag).await,
        Err(served) => served,
    }
}

/// Starts an answer that is put together, and waits for its head.
async fn begun(
    transaction: &mut Transaction<'_>,
    assembly: Assembly,
    report: Option<&Report>,
    tag: Tag,
) -> Result<(Arc<FlowHead>, FlowReader), Served> {
    let reader = assembly.start(transaction.core, transaction.request);
    let mut reader = reader.ok_or(Served::LookAgain)?;
    match await_head(transaction, &mut reader, false).await {
        Ok(head) => Ok((head, reader)),
        Err(Waited::ClientGone) => Err(Served::Done(transaction.client_gone(waiting(tag, report)))),
        Err(Waited::LeftBehind | Waited::Aborted(_)) => Err(Served::LookAgain),
    }
}

/// Serves a complete object.
pub(crate) async fn object(transaction: &mut Transaction<'_>, object: HitObject) -> Outcome {
    let (head, body_bytes) = (object.object.head(), object.object.body_bytes());
    if facts::gather(transaction, head).await.is_none() {
        return transaction.client_gone(Outcome::miss(
            object.tag,
            0,
            object.route.map(|route| *route),
        ));
    }
    if let Err(refusal) = reply::check(transaction.request, head, Some(body_bytes)) {
        return local::refused(transaction, refusal, None).await;
    }
    if let Held::Memory(in_memory) = &object.object
        && let Some(assembly) = assemble::of_object(transaction.request, in_memory)
    {
        let report = Report::new();
        let served = Box::pin(assembled(transaction, assembly, &report, Tag::Hit));
        if let Served::Done(outcome) = served.await {
            return outcome;
        }
    }
    match hit::start(transaction, object) {
        Started::Done(outcome) => outcome,
        Started::Rest(sending) => hit::finish(transaction, sending).await,
    }
}

/// Sends bytes of a body.
pub(crate) async fn send_bytes(client: &mut ClientExchange, bytes: &[u8]) -> Ended {
    let mut sent = 0;
    while sent < bytes.len() {
        let taken = client.try_send(bytes.get(sent..).unwrap_or_default());
        let waited = match taken {
            Ok(Some(taken)) => {
                sent += taken as usize;
                Ok(())
            }
            Ok(None) => poll_fn(|cx| client.poll_writable(cx)).await,
            Err(lost) => Err(lost),
        };
        if let Err(lost) = waited {
            return Ended::ClientLost(lost);
        }
    }
    Ended::Complete
}

/// Ends an answer without trailers.
pub(crate) async fn finish(client: &mut ClientExchange) -> Ended {
    match client.finish(None) {
        Ok(()) => client.flush().await.into(),
        Err(_) => cut_off(client, Ended::Aborted(AbortReason::Truncated)).await,
    }
}
