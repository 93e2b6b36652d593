//! Decides the use of an answer: it confirms a stored object, replaces it, is stored, or only
//! passes through.

use std::rc::Rc;
use std::sync::Arc;

use humboldt_conf::ForwardedFor;
use humboldt_freshness::{self as freshness, CacheControl, RefreshRule, Times};
use humboldt_http::{FieldName, Method, ResponseHead, date};
use humboldt_store::{Dir, FlowWriter, PARTIAL, next_serial};

use crate::config::snapshot::Snapshot;
use crate::core::Core;
use crate::errors::ErrorPage;
use crate::fetch::converse::Answer;
use crate::fetch::job::{Failure, Job, Stale, StaleBody};
use crate::lookup::memory::{has_own_copy, has_own_terms};
use crate::request::Request;
use crate::rules::notes::Before;
use crate::rules::{access, reply};
use crate::storing::freshen::{self, freshen};
use crate::storing::head::without_void_expires;
use crate::storing::invalidate::same_host;
use crate::storing::parts::{self, NewPart};
use crate::storing::publish::publish;

/// The use of an answer.
pub(crate) enum Verdict {
    /// The stored answer is still good, with a new head.
    Confirmed(StaleBody),
    /// The server confirmed a different answer than the stored one: ask it for the whole.
    Again,
    /// Serve the stored object if that is allowed, or this failure.
    Failed(Failure),
    /// Stream it.
    Stream {
        /// Whether it is being stored.
        stored: bool,
        /// The directory that gets the answer when it is complete; `None` if the answer is written
        /// while it arrives, or not at all.
        at_end: Option<Arc<Dir>>,
        /// Set for a part of an answer, which is listed when it is complete.
        part: Option<Box<NewPart>>,
    },
}

/// Decides the use of an answer, and publishes its head if it is to be streamed.
pub(crate) async fn decide(
    core: &Rc<Core>,
    job: &mut Job,
    answer: &mut Answer,
    writer: &mut FlowWriter,
) -> Verdict {
    let request = Rc::clone(&job.request);
    let snapshot = request.snapshot();
    let rule = snapshot.refresh_rule(request.cache_url());
    let now = core.now().secs();
    if !answer.head.fields.has(FieldName::Date) {
        // RFC 9110 6.6.1: a recipient of a message without Date adds one.
        answer.head.fields.push(FieldName::Date, &date::format(now));
    }
    let date = answer.head.fields.get(FieldName::Date).and_then(date::parse);
    let tag = answer.head.fields.get(FieldName::Etag).filter(|tag| !tag.starts_with(b"W/"));
    writer.answer(date.unwrap_or(now), tag);
    if answer.head.status == 304
        && let Some(stale) = job.stale.take()
    {
        if answer.has_faults() {
            job.in_reserve = Some(stale);
            return Verdict::Again;
        }
        return confirm(core, job, stale, answer, writer).await;
    }
    if answer.head.status == 304 && !(job.as_asked && has_own_copy(&request)) {
        let detail = "the server answered 304 to a request without a condition";
        return Verdict::Failed(Failure::new(ErrorPage::InvalidResponse, detail));
    }
    if answer.head.status == 200
        && !answer.was_repaired()
        && !answer.has_faults()
        && is_for_others(&request, answer)
        && let Some(stale) = job.to_learn_about.take()
    {
        freshen::learn_from_head(core, &request, stale, answer, writer).await;
    }
    if job.stale.as_ref().or(job.in_reserve.as_ref()).is_some_and(|stale| stale.may_serve_on_error)
        && matches!(answer.head.status, 500 | 502 | 503 | 504)
    {
        let detail = format!("the server answered {}", answer.head.status);
        return Verdict::Failed(Failure::new(ErrorPage::ReadError, detail));
    }
    let cc = CacheControl::of_response(&answer.head.fields, &snapshot.freshness.target_list);
    let mut judged = without_void_expires(snapshot, &answer.head);
    // If nobody asked for a part, a 206 is the server's error.
    let range = request.head.fields.get(FieldName::Range).filter(|_| job.as_asked);
    let portion = range.and_then(|range| parts::portion(&answer.head, range, answer.body_bytes()));
    if portion.is_some() {
        // A part may be stored if the whole may be, and it is as fresh.
        judged.to_mut().status = 200;
    }
    let times = freshness::times(answer.request_time, now, &judged, &cc, rule, &snapshot.freshness);
    let times =
        Times { purge_number: writer.flow().purge_number(), serial: next_serial(), ..times };
    // Each client's copy is asked about by itself once more.
    let limit = || reply::limit_bytes(&request, &answer.head);
    let limit_bytes = Before::of(&request).what_if(&request, limit);
    answer.limit_bytes = limit_bytes;
    // If the client's own conditions and ranges were sent, a 412 or 416 answers only those, so no
    // other client may get it.
    let is_for_all =
        !job.as_asked || matches!(answer.head.status, 200 | PARTIAL) || !has_own_terms(&request);
    let storable = job.may_store
        && is_for_all
        && !varies_by_address(snapshot, &answer.head)
        && (request.head.method != Method::Post || is_what_get_gives(&request, &answer.head))
        && access::may_use_cache(&request)
        && access::may_store_miss(&request, &answer.head)
        && !answer.is_not_to_be_stored()
        // As with Authorization of the client's own (RFC 9111 3.5).
        && (!answer.tells_user(&request) || freshness::is_shareable(&cc))
        && answer.body_bytes().is_none_or(|bytes| bytes <= answer.limit_bytes)
        && may_store(&request, &judged, &cc, rule, &times);
    let (times, portion) = if storable { (Some(times), portion) } else { (None, None) };
    publish(core, job, answer, writer, times, &cc, portion).await
}

/// Whether the answer says something about what others get, so that a stored one may learn from it
/// (RFC 9111 3.5).
fn is_for_others(request: &Request, answer: &Answer) -> bool {
    let is_own = request.head.fields.has(FieldName::Authorization) || answer.tells_user(request);
    let target_list = &request.snapshot().freshness.target_list;
    !is_own || freshness::is_shareable(&CacheControl::of_response(&answer.head.fields, target_list))
}

/// Whether the answer varies by X-Forwarded-For while this proxy adds the client's address to that
/// field. The server then saw a different field than the client sent, and it differs for each
/// client.
fn varies_by_address(snapshot: &Snapshot, head: &ResponseHead) -> bool {
    let adds_address = !matches!(
        snapshot.config.forwarded_for,
        ForwardedFor::Delete | ForwardedFor::Transparent | ForwardedFor::Off
    );
    adds_address
        && head.fields.has(FieldName::Vary)
        && head
            .fields
            .list(FieldName::Vary)
            .any(|name| name.eq_ignore_ascii_case(b"X-Forwarded-For"))
}

fn may_store(
    request: &Request,
    head: &ResponseHead,
    cc: &CacheControl,
    rule: &RefreshRule,
    times: &Times,
) -> bool {
    let snapshot = request.snapshot();
    let verdict = freshness::storability(
        request.head.method,
        &request.head,
        &request.cc,
        head,
        cc,
        &snapshot.freshness,
        rule,
        times,
    );
    verdict.is_ok()
}

/// Whether an answer to POST says that GET would bring the same (RFC 9110 9.3.3).
fn is_what_get_gives(request: &Request, head: &ResponseHead) -> bool {
    let location = head.fields.get(FieldName::ContentLocation);
    let url = location.and_then(|reference| same_host(&request.url, reference));
    url.is_some_and(|url| url.as_bytes() == request.url.as_bytes())
}

/// Handles a 304 to a condition of the proxy itself.
async fn confirm(
    core: &Rc<Core>,
    job: &mut Job,
    stale: Stale,
    answer: &Answer,
    writer: &FlowWriter,
) -> Verdict {
    let request = Rc::clone(&job.request);
    if !freshness::freshens(&stale.body.about().head.to_response_head(), &answer.head) {
        // It confirms an answer that is not stored, and says nothing about the stored one.
        job.in_reserve = Some(stale);
        return Verdict::Again;
    }
    if answer.was_repaired() || !is_for_others(&request, answer) {
        // It confirms the stored answer for this request. Its fields may belong to another answer,
        // or to one user, so they are dropped.
        return Verdict::Confirmed(stale.body);
    }
    match freshen(core, &request, stale, answer, writer).await {
        Some(body) => Verdict::Confirmed(body),
        // It is not for all any more.
        None => Verdict::Again,
    }
}
