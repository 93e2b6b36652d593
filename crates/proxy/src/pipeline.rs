//! The life of a request, from its head to its last byte. Read it from top to bottom:
//!
//! accept → read head ([`crate::client`]) → access rules → key → look up → { hit | validate | join
//! a fetch in flight | miss → choose a peer → connect → send } → decide storability → stream to
//! subscribers → log
//!
//! [`admit`] is what a hit in memory needs and never waits; [`proceed`] is everything else.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use humboldt_base::counters::Counter;
use humboldt_http::{FieldName, Method};
use humboldt_logs::access::Tag;
use humboldt_store::{AbortReason, Begin, FlowHead, FlowReader, Held};

use crate::access::{self, Access};
use crate::answer;
use crate::assemble::Assembly;
use crate::cache_status::{Forward, Storing};
use crate::client::{After, ClientConn};
use crate::core::Core;
use crate::denial::Refusal;
use crate::errors::ErrorPage;
use crate::fetch;
use crate::hit::{self, HitObject, Started};
use crate::job::{Failure, Job, Report, Stale, StaleBody};
use crate::leave::Leave;
use crate::log::{self, Outcome};
use crate::memory::{Found, has_own_terms, look_up, needs_origin, variant_key};
use crate::relay::{self, Relay};
use crate::request::Request;
use crate::{assemble, disk, internal, partial, purge, reply, resume, switch, tunnel};

/// Most times a request looks for its answer again after a fetch that it had joined came to
/// nothing.
const JOINS_MAX: usize = 4;

/// Longest time that a request waits each time for a directory to write what is complete.
const COMMIT_WAIT_MAX: Duration = Duration::from_secs(1);

/// What [`admit`] decides.
#[derive(Debug)]
pub(crate) enum Admission {
    /// Serve this object.
    Hit(HitObject),
    /// Serve this object to a request that asks for several ranges.
    Ranges(HitObject),
    /// Answer with an error.
    Refuse(ErrorPage, String),
    /// A rule denies it.
    Deny(Refusal),
    /// An access rule has to know something first.
    Undecided,
    /// It may go on; the rules that will be asked about its answer need the addresses of the host.
    NeedsAddresses,
    /// Not for the cache: CONNECT, manager pages, PURGE, TRACE, methods other than GET and HEAD.
    Special,
    /// For the cache, but not answered from memory.
    Found(Found),
}

/// The steps that never wait: access rules, key, memory.
pub(crate) fn admit(core: &Core, request: &Request) -> Admission {
    match access::check(request) {
        Access::Allowed => {}
        Access::Denied(refusal) => return Admission::Deny(refusal),
        Access::Undecided => return Admission::Undecided,
    }
    admit_permitted(core, request)
}

/// What follows when the access rules have allowed the request.
fn admit_permitted(core: &Core, request: &Request) -> Admission {
    if let Some(objection) = internal::objection_to_form(request) {
        return objection;
    }
    let is_internal = internal::is_internal(request);
    if !is_internal && !access::knows_enough_for_answers(request) {
        return Admission::NeedsAddresses;
    }
    if !request.is_cachable_method() || is_internal || request.wants_upgrade() {
        return Admission::Special;
    }
    if !access::may_use_cache(request) {
        return Admission::Found(Found {
            pass: true,
            forward: Forward::Bypass,
            ..Found::default()
        });
    }
    match look_up(core, request) {
        Ok(hit) => match reply::check(request, hit.object.head(), Some(hit.object.body_bytes())) {
            Ok(_) if assemble::has_several_ranges(request) => Admission::Ranges(hit),
            Ok(_) => Admission::Hit(hit),
            Err(refusal) => Admission::Deny(refusal),
        },
        Err(found) => Admission::Found(found),
    }
}

/// The steps that may wait. Boxed by the caller: most requests never get here. What a common miss
/// does not need is boxed again, as all of a future is moved when it begins.
pub(crate) async fn proceed(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: Rc<Request>,
    mut admission: Admission,
) -> After {
    if let Admission::Undecided = admission {
        let decided =
            conn.while_it_stays(&request, access::decide_permission(core, &request)).await;
        admission = match decided {
            None => return answer::gone(core, conn, &request, Tag::None, None),
            Some(Ok(())) => admit_permitted(core, &request),
            Some(Err(refusal)) => Admission::Deny(refusal),
        };
    }
    if let Admission::NeedsAddresses = admission {
        let looked_up = conn.while_it_stays(&request, pin!(access::look_up(core, &request))).await;
        if looked_up.is_none() {
            return answer::gone(core, conn, &request, Tag::None, None);
        }
        admission = admit_permitted(core, &request);
    }
    match admission {
        Admission::Hit(object) | Admission::Ranges(object) => {
            serve_object(core, conn, request, object).await
        }
        Admission::Refuse(page, detail) => answer::error(core, conn, &request, page, &detail).await,
        Admission::Deny(refusal) => answer::refused(core, conn, &request, refusal, None).await,
        // Not after a look-up, good or bad; and without an answer of the rules nothing goes on.
        Admission::Undecided | Admission::NeedsAddresses => {
            answer::refused(core, conn, &request, Refusal::without_answer(), None).await
        }
        Admission::Special => Box::pin(special(core, conn, request)).await,
        Admission::Found(found) => from_cache_or_server(core, conn, request, found).await,
    }
}

/// What the cache has no part in.
async fn special(core: &Rc<Core>, conn: &mut ClientConn, request: Rc<Request>) -> After {
    let Some(local) = conn.while_it_stays(&request, internal::answer(core, &request)).await else {
        return answer::gone(core, conn, &request, Tag::None, None);
    };
    if let Some(local) = local {
        let outcome = Outcome::local(local.1, local.0.status);
        return answer::send(core, conn, &request, local.0, outcome).await;
    }
    if let Some((page, detail)) = internal::objection(&request) {
        return answer::error(core, conn, &request, page, &detail).await;
    }
    let may_miss = conn.while_it_stays(&request, access::may_miss(core, &request)).await;
    let Some(may_miss) = may_miss else {
        return answer::gone(core, conn, &request, Tag::None, None);
    };
    if let Err(refusal) = may_miss {
        return answer::refused(core, conn, &request, refusal, None).await;
    }
    if request.head.method == Method::Connect {
        return tunnel::connect(core, conn, request).await;
    }
    if request.wants_upgrade() {
        let prepared =
            conn.while_it_stays(&request, access::prepare_to_switch(core, &request)).await;
        if prepared.is_none() {
            return answer::gone(core, conn, &request, Tag::Miss, None);
        }
        if let Some(offered) = switch::offer(&request) {
            return tunnel::upgrade(core, conn, request, &offered).await;
        }
    }
    if request.has_body() {
        return fetch::with_body(core, conn, request).await;
    }
    pass(core, conn, request, Tag::Miss, Forward::Method, None).await
}

/// A request for the cache that memory did not answer: disk, others' fetches, or the server.
async fn from_cache_or_server(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: Rc<Request>,
    mut found: Found,
) -> After {
    if let Some((page, detail)) = internal::objection(&request) {
        return answer::error(core, conn, &request, page, &detail).await;
    }
    for _ in 0..JOINS_MAX {
        if found.refuse {
            return answer::error(core, conn, &request, ErrorPage::OnlyIfCached, "").await;
        }
        let mut stored = None;
        if !found.knows_enough() {
            let looked_up = conn
                .while_it_stays(&request, pin!(disk::look_up(core, &request, &mut found)))
                .await;
            let Some(there) = looked_up else {
                return answer::gone(core, conn, &request, Tag::Miss, None);
            };
            stored = there;
        }
        if let Some(stored) = stored {
            match stored {
                disk::Stored::Object(object) => {
                    return serve_object(core, conn, request, object).await;
                }
                disk::Stored::Stream(hit) => {
                    match Box::pin(disk::serve(core, conn, &request, *hit)).await {
                        Some(after) => return after,
                        None => {
                            found.swap_failed = true;
                            continue;
                        }
                    }
                }
                disk::Stored::Judged => continue,
            }
        }
        if let Some(list) = found.parts.take()
            && let Some(after) = Box::pin(partial::serve(core, conn, &request, &list)).await
        {
            return after;
        }
        if request.cc.only_if_cached() {
            found.refuse = true;
            continue;
        }
        let may_miss = conn.while_it_stays(&request, pin!(access::may_miss(core, &request))).await;
        let Some(may_miss) = may_miss else {
            return answer::gone(core, conn, &request, Tag::Miss, None);
        };
        if let Err(refusal) = may_miss {
            return answer::refused(core, conn, &request, refusal, None).await;
        }
        if found.serve_stale
            && let Some(StaleBody::Memory(object)) = found.stale.as_ref().map(|stale| &stale.body)
        {
            let hit = HitObject::in_memory(Arc::clone(object), Tag::MemHit);
            fetch::in_background(core, &request, found);
            return serve_object(core, conn, request, hit).await;
        }
        if !may_share(&request, &found) {
            let (tag, why) = (found.miss_tag(), found.why());
            let to_learn_about = found.stale.take().filter(|_| request.head.method == Method::Head);
            return pass(core, conn, request, tag, why, to_learn_about).await;
        }
        match share(core, conn, &request, &mut found).await {
            Some(after) => return after,
            None => continue,
        }
    }
    pass(core, conn, request, Tag::Miss, Forward::UriMiss, None).await
}

/// Whether the fetch for this request may serve others too: not when its own conditions or range
/// change the answer.
fn may_share(request: &Request, found: &Found) -> bool {
    let own_terms = has_own_terms(request)
        && !partial::is_fetched_whole(request)
        && (found.stale.is_none() || needs_origin(request));
    !found.pass
        && !own_terms
        && request.head.method == Method::Get
        && !request.cc.no_store()
        && !request.head.fields.has(FieldName::Authorization)
}

/// Leads a fetch that others may join, or joins one. `None`: it came to nothing for this request;
/// look again.
async fn share(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: &Rc<Request>,
    found: &mut Found,
) -> Option<After> {
    let cache = &core.shared.cache;
    let key = found.key.unwrap_or(request.key);
    let collapse = request.snapshot().config.collapsed_forwarding
        && !found.reload
        && !wants_the_server(request);
    let begun = match collapse {
        true => cache.begin_or_join(request.key, key, request.url.as_bytes()),
        false => Begin::Lead(cache.private(request.key, key)),
    };
    match begun {
        Begin::Wait(mut reader) => {
            if until_on_disk(core, conn, request, &mut reader).await.is_none() {
                return Some(answer::gone(core, conn, request, Tag::Miss, None));
            }
            look_again(core, conn, request, found).await
        }
        Begin::Lead(writer) => {
            let reader = writer.subscribe(humboldt_store::ReaderKind::Client)?;
            let report = Report::because(found.why());
            let tag = found.miss_tag();
            let stale = purge::unless_purged(core, found.stale.take());
            let job = Job::new(request, stale, true, &report);
            fetch::start(core, job, writer);
            Some(follow(core, conn, request, reader, Some(&report), tag).await?)
        }
        Begin::Join(reader) => {
            core.count(Counter::ClientCollapsed, 1);
            let after = follow(core, conn, request, reader, None, Tag::Miss).await;
            // What was in flight may not be for us.
            if after.is_none() { look_again(core, conn, request, found).await } else { after }
        }
    }
}

/// Memory may know more by now.
async fn look_again(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: &Rc<Request>,
    found: &mut Found,
) -> Option<After> {
    match look_up(core, request) {
        Ok(hit) => Some(serve_object(core, conn, Rc::clone(request), hit).await),
        Err(newer) => {
            *found = newer;
            None
        }
    }
}

/// Waits until a directory has written what is complete, though not long. `None`: the client has
/// gone.
async fn until_on_disk(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: &Request,
    reader: &mut FlowReader,
) -> Option<()> {
    let patience = core.deadlines.slot();
    patience.arm(COMMIT_WAIT_MAX);
    let written = std::future::poll_fn(|cx| match reader.poll_data(cx) {
        std::task::Poll::Ready(_) => std::task::Poll::Ready(()),
        std::task::Poll::Pending => patience.poll_expired(cx),
    });
    conn.while_it_stays(request, written).await
}

/// Whether the client asked for a reload. What is in flight may have left the server before it
/// asked, so it waits for no one else's fetch, also where nothing is stored yet.
fn wants_the_server(request: &Request) -> bool {
    request.cc.no_cache() && !request.snapshot().refresh_rule(request.url.as_bytes()).ignore_reload
}

/// Fetches for this request alone, as it asks.
async fn pass(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: Rc<Request>,
    tag: Tag,
    why: Forward,
    to_learn_about: Option<Stale>,
) -> After {
    let writer = core.shared.cache.private(request.key, request.key);
    let Some(reader) = writer.subscribe(humboldt_store::ReaderKind::Client) else {
        return answer::error(core, conn, &request, ErrorPage::Internal, "no fetch").await;
    };
    let report = Report::because(why);
    let job = Job { to_learn_about, ..Job::as_asked(&request, &report) };
    fetch::start(core, job, writer);
    match follow(core, conn, &request, reader, Some(&report), tag).await {
        Some(after) => after,
        None => {
            let failure = Failure::new(ErrorPage::ReadError, "");
            answer::failed(core, conn, &request, failure, (tag, Some(report.route()))).await
        }
    }
}

/// Serves a request from a fetch in flight, its own (`report`) or another's. `None`: look again.
pub(crate) async fn follow(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: &Rc<Request>,
    mut reader: FlowReader,
    report: Option<&Rc<Report>>,
    tag: Tag,
) -> Option<After> {
    let head = match await_head(core, conn, request, &mut reader).await {
        Ok(head) => head,
        Err(Waited::ClientGone) => {
            return Some(answer::gone_waiting(core, conn, request, tag, report));
        }
        // Nothing has been sent: as good as a miss.
        Err(Waited::Aborted(AbortReason::DiskFailed | AbortReason::Outdated)) => return None,
        Err(Waited::Aborted(reason)) => {
            let Some(report) = report else { return give_up(core, conn, request, reason).await };
            let failure = report.failure(reason);
            let way = (report.tag_of_failure(tag), Some(report.route()));
            return Some(answer::failed(core, conn, request, failure, way).await);
        }
    };
    if report.is_none() && !is_ours(request, &head) {
        return None;
    }
    if let Some(object) = &head.object {
        let tag = report.map_or(Tag::RefreshUnmodified, |report| report.object_tag());
        let route = report.map(|report| Box::new(report.route()));
        let object = HitObject::in_memory(Arc::clone(object), tag);
        let object = HitObject { without_origin: false, route, ..object };
        return Some(serve_object(core, conn, Rc::clone(request), object).await);
    }
    stream(core, conn, request, reader, &head, report, tag).await
}

/// A joined fetch failed. Another try of our own is due when only that fetch was at fault.
async fn give_up(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: &Rc<Request>,
    reason: AbortReason,
) -> Option<After> {
    let page = match reason {
        AbortReason::NotShareable | AbortReason::Cancelled | AbortReason::Outdated => return None,
        AbortReason::TimedOut => ErrorPage::ReadTimeout,
        AbortReason::Malformed | AbortReason::TooLarge => ErrorPage::InvalidResponse,
        AbortReason::NoMemory => ErrorPage::Internal,
        AbortReason::Truncated | AbortReason::Failed | AbortReason::DiskFailed => {
            ErrorPage::ConnectFailure
        }
    };
    let failure = Failure::new(page, "the fetch that this request had joined failed");
    Some(
        answer::failed_with(
            core,
            conn,
            request,
            failure,
            Outcome { collapsed: true, ..Outcome::local(Tag::Miss, 0) },
        )
        .await,
    )
}

/// Whether a fetch that was joined by URL turns out to be for the variant that this request
/// selects.
fn is_ours(request: &Request, head: &FlowHead) -> bool {
    match &head.info.vary {
        Some(marker) => variant_key(request, marker) == head.info.key,
        None => true,
    }
}

enum Waited {
    ClientGone,
    Aborted(AbortReason),
}

/// Waits for the head, passing on interim responses.
async fn await_head(
    core: &Rc<Core>,
    conn: &ClientConn,
    request: &Request,
    reader: &mut FlowReader,
) -> Result<Arc<FlowHead>, Waited> {
    let mut gone = pin!(conn.gone(request));
    loop {
        let (head, interim) = std::future::poll_fn(|cx| {
            let head = reader.poll_head(cx);
            let interim = reader.next_interim();
            if head.is_ready() || interim.is_some() {
                return std::task::Poll::Ready((Some(head), interim));
            }
            gone.as_mut().poll(cx).map(|()| (None, None))
        })
        .await;
        if let Some(interim) = interim
            && relay::interim(core, conn, request, &interim).await.is_err()
        {
            return Err(Waited::ClientGone);
        }
        match head {
            None => return Err(Waited::ClientGone),
            Some(std::task::Poll::Ready(Ok(head))) => return Ok(head),
            Some(std::task::Poll::Ready(Err(reason))) => return Err(Waited::Aborted(reason)),
            Some(std::task::Poll::Pending) => {}
        }
    }
}

/// Streams a fetch to the client, and logs it. `None`: it cannot be read any more, and nothing was
/// sent: look again.
async fn stream(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: &Rc<Request>,
    reader: FlowReader,
    head: &FlowHead,
    report: Option<&Rc<Report>>,
    tag: Tag,
) -> Option<After> {
    let mut outcome = Outcome::miss(tag, head.head.status, report.map(|report| report.route()));
    let limit_bytes = match reply::check(request, &head.head, head.info.body_bytes) {
        Ok(limit_bytes) => limit_bytes,
        Err(refusal) => {
            drop(reader);
            return Some(answer::refused(core, conn, request, refusal, outcome.route).await);
        }
    };
    outcome.collapsed = report.is_none();
    let is_stored = reader.flow().is_stored();
    let (cut_head, mut reader) = match assemble::cut(core, request, head, reader) {
        Err(reader) => (None, reader),
        Ok(assembly) => {
            let mut reader = assembly.start(core, request)?;
            match await_head(core, conn, request, &mut reader).await {
                Ok(head) => (Some(head), reader),
                Err(Waited::ClientGone) => {
                    return Some(answer::gone_waiting(core, conn, request, tag, report));
                }
                Err(Waited::Aborted(_)) => return None,
            }
        }
    };
    let received_status = cut_head.is_some().then_some(head.head.status);
    let head = cut_head.as_deref().unwrap_or(head);
    outcome.status = head.head.status;
    let origin = match report {
        None => Origin::Joined,
        Some(_) if tag == Tag::Hit => Origin::Disk,
        Some(report) => Origin::Fetched(report.forward(), received_status, is_stored),
    };
    let mut fields = answer_fields(request, head, origin);
    fields.extend_from_slice(&report.map(|report| report.own_fields()).unwrap_or_default());
    let mut relay = Relay::new(core, request, head, &fields);
    relay.limit_body(limit_bytes);
    relay.may_leave(Leave::new(core, request, head, &reader));
    let mut ended = relay.run(conn, &mut reader, &mut outcome).await;
    if ended.is_lost() {
        drop(reader);
        ended =
            Box::pin(resume::resume(core, conn, request, head, &mut relay, &mut outcome, ended))
                .await;
        if ended.is_lost() && outcome.bytes_out == 0 {
            return None;
        }
        if ended.is_lost() {
            ended = relay.cut_off(conn, &mut outcome, ended).await;
        }
    }
    let cut = ended.cut(conn);
    outcome.end(cut);
    log::transaction(core, request, &outcome, head.head.content_type());
    Some(relay.after(cut))
}

/// How an answer in flight came to be in flight, for the fields that say how the cache was used.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This request's own fetch, for this reason, and with which status it came if not with the one
    /// that is sent. The last says whether it has been stored already.
    Fetched(Forward, Option<u16>, bool),
    /// Another request's fetch.
    Joined,
    /// A cache directory.
    Disk,
}

/// The fields that say how the cache was used for an answer in flight.
pub(crate) fn answer_fields(request: &Request, head: &FlowHead, origin: Origin) -> Vec<u8> {
    let mut fields = Vec::with_capacity(128);
    let times = head.info.times.as_ref();
    if let (Origin::Disk, Some(times)) = (origin, times) {
        hit::write_hit_fields(&mut fields, request, times);
    } else {
        if let Some(times) = times {
            hit::write_age(&mut fields, request, times);
            fields.extend_from_slice(b"\r\n");
        }
        let (forward, status, storing) = match origin {
            Origin::Fetched(forward, status, true) => (forward, status, Storing::Done),
            Origin::Fetched(forward, status, false) => {
                let storing =
                    if head.info.is_to_be_stored() { Storing::Begun } else { Storing::No };
                (forward, status, storing)
            }
            Origin::Joined | Origin::Disk => (Forward::UriMiss, None, Storing::No),
        };
        let collapsed = origin == Origin::Joined;
        let names = &request.snapshot().names;
        names.cache_status.write_forwarded(&mut fields, forward, storing, collapsed, status);
    }
    fields
}

/// Serves an answer that is put together. `None`: it could not be begun, and nothing was sent.
pub(crate) async fn serve_assembled(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: &Rc<Request>,
    assembly: Assembly,
    report: &Rc<Report>,
    tag: Tag,
) -> Option<After> {
    let mut reader = assembly.start(core, request)?;
    match await_head(core, conn, request, &mut reader).await {
        Ok(head) => stream(core, conn, request, reader, &head, Some(report), tag).await,
        Err(Waited::ClientGone) => Some(answer::gone(core, conn, request, tag, Some(report))),
        Err(Waited::Aborted(_)) => None,
    }
}

/// Serves a complete object.
async fn serve_object(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: Rc<Request>,
    object: HitObject,
) -> After {
    if let Err(refusal) =
        reply::check(&request, object.object.head(), Some(object.object.body_bytes()))
    {
        return answer::refused(core, conn, &request, refusal, None).await;
    }
    if let Held::Memory(in_memory) = &object.object
        && let Some(assembly) = assemble::of_object(&request, in_memory)
    {
        let report = Report::new();
        let served = serve_assembled(core, conn, &request, assembly, &report, Tag::Hit);
        if let Some(after) = Box::pin(served).await {
            return after;
        }
    }
    match hit::start(core, conn, request, object) {
        Started::Done(after) => after,
        Started::Rest(sending) => hit::finish(core, conn, sending).await,
    }
}
