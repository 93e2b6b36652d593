//! The life of a request, from its head to its last byte. Read it from top to bottom:
//!
//! accept → read head ([`crate::serve`]) → access rules → URL ([`crate::callouts`]) → key → look up
//! → { hit | validate | join a fetch in flight | miss → choose a way → connect → send } → decide
//! storability → stream to subscribers → log
//!
//! [`admit`] has the steps that a hit in memory needs; it never waits. [`proceed`] has all other
//! steps. Each path ends with an outcome, which [`crate::transaction`] writes to access.log.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use humboldt_base::counters::Counter;
use humboldt_http::{FieldName, Method};
use humboldt_logs::access::Tag;
use humboldt_store::flow::Flow;
use humboldt_store::{Begin, FlowReader, Held, ReaderKind};

use crate::config::cache_status::Forward;
use crate::core::Core;
use crate::errors::ErrorPage;
use crate::fetch::ask::tells_user;
use crate::fetch::certificates;
use crate::fetch::job::{Job, Report, Stale, StaleBody};
use crate::fetch::pinning;
use crate::lookup::memory::{Found, HitObject, has_own_terms, look_up, needs_origin};
use crate::lookup::selection::has_several_ranges;
use crate::lookup::{disk, parts};
use crate::outcome::Outcome;
use crate::reply::follow::{self, follow};
use crate::reply::{from_disk, from_parts, local};
use crate::request::Request;
use crate::rules::denial::Refusal;
use crate::rules::own::is_internal;
use crate::rules::{access, budget, original, permission, reply, upgrades};
use crate::special::bump::{self, Verdict};
use crate::special::internal::{self, Objection};
use crate::special::{tunnel, upload};
use crate::storing::{deliver, invalidate};
use crate::transaction::{Served, Transaction};

/// Most times a request repeats its look-up after it joined a fetch that brought no answer.
const JOINS_MAX: usize = 4;

/// Longest time of one wait for a directory to write an answer that is complete.
const COMMIT_WAIT_MAX: Duration = Duration::from_secs(1);

/// The decision of [`admit`].
#[derive(Debug)]
pub(crate) enum Admission {
    /// Serve this object.
    Hit(HitObject),
    /// Serve this object if `http_reply_access` permits it, which needs a fact that is not known
    /// yet.
    UndecidedHit(HitObject),
    /// Serve this object to a request that asks for several ranges.
    Ranges(HitObject),
    /// Answer with an error.
    Refuse(ErrorPage, String),
    /// An access rule denies the request.
    Deny(Refusal),
    /// A helper is asked about the URL before anything else is decided: see [`crate::callouts`].
    CallOut,
    /// The client of an intercepted connection chose an address, which is not compared with those
    /// of the host yet.
    Unverified,
    /// An access rule needs a fact that is not known yet.
    Undecided,
    /// The access rules allow the request, but rules about its answer need the addresses of the
    /// host.
    NeedsAddresses,
    /// The same for the list `cache`, which needs a fact that is not known yet.
    UndecidedCache,
    /// The request does not use the cache: CONNECT, manager pages, PURGE, TRACE, methods other than
    /// GET and HEAD.
    Special,
    /// The request uses the cache, but memory has no answer.
    Found(Found),
}

impl From<&Verdict> for Admission {
    fn from(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Refused(refusal) => Self::Deny(refusal.clone()),
            Verdict::Failed(page, why) => Self::Refuse(*page, why.clone()),
        }
    }
}

/// The steps that never wait: access rules, key, memory.
pub(crate) fn admit(core: &Core, request: &Request) -> Admission {
    if request.snapshot().rewriting.asks_helpers() {
        return Admission::CallOut;
    }
    if original::is_unverified(request) {
        return Admission::Unverified;
    }
    match permission::check(request) {
        Poll::Ready(Ok(())) => admit_permitted(core, request),
        Poll::Ready(Err(refusal)) => Admission::Deny(refusal),
        Poll::Pending => Admission::Undecided,
    }
}

/// The steps of [`admit`] after the access rules have allowed the request.
pub(crate) fn admit_permitted(core: &Core, request: &Request) -> Admission {
    match internal::objection_to_form(request) {
        None => {}
        Some(Objection::Page(page, detail)) => return Admission::Refuse(page, detail),
        Some(Objection::Denied(refusal)) => return Admission::Deny(refusal),
    }
    if let Err(refusal) = budget::admit(core, request) {
        return Admission::Deny(refusal);
    }
    let is_internal = is_internal(request);
    if !is_internal && !access::knows_enough_for_answers(request) {
        return Admission::NeedsAddresses;
    }
    if !request.is_cachable_method() || is_internal {
        return Admission::Special;
    }
    // Also for an upgrade: without one the answer may be stored.
    let Poll::Ready(may_use_cache) = access::check_cache(request) else {
        return Admission::UndecidedCache;
    };
    if request.wants_upgrade() {
        return Admission::Special;
    }
    if !may_use_cache {
        return Admission::Found(Found {
            pass: true,
            forward: Forward::Bypass,
            ..Found::default()
        });
    }
    match look_up(core, request) {
        Ok(hit) if reply::undecided(request, hit.object.head()).is_some() => {
            Admission::UndecidedHit(hit)
        }
        // The rules are asked when the parts are put together.
        Ok(hit) if has_several_ranges(request) => Admission::Ranges(hit),
        Ok(hit) => match reply::check(request, hit.object.head(), Some(hit.object.body_bytes())) {
            Ok(_) => Admission::Hit(hit),
            Err(refusal) => Admission::Deny(refusal),
        },
        Err(found) => Admission::Found(found),
    }
}

/// The steps that may wait. The caller has this future in a box, since most requests never get
/// here. The steps that a common miss does not need are boxed once more: a future is moved as a
/// whole when it begins, and many requests may wait, so it should be small.
pub(crate) async fn proceed(
    transaction: &mut Transaction<'_>,
    mut admission: Admission,
) -> Outcome {
    let (core, request) = (transaction.core, transaction.request);
    if let Admission::Unverified = admission {
        let verifying = Box::pin(original::verify(core, request));
        admission = match transaction.while_it_stays(verifying).await {
            None => return transaction.client_gone(Outcome::local(Tag::None, 0)),
            Some(Ok(())) => admit(core, request),
            Some(Err(refusal)) => Admission::Deny(refusal),
        };
    }
    if let Admission::Undecided = admission {
        let deciding = Box::pin(permission::decide_permission(core, request));
        admission = match transaction.while_it_stays(deciding).await {
            None => return transaction.client_gone(Outcome::local(Tag::None, 0)),
            Some(Ok(())) => admit_permitted(core, request),
            Some(Err(refusal)) => Admission::Deny(refusal),
        };
    }
    if let Admission::NeedsAddresses = admission {
        let looking_up = Box::pin(access::look_up(core, request));
        if transaction.while_it_stays(looking_up).await.is_none() {
            return transaction.client_gone(Outcome::local(Tag::None, 0));
        }
        admission = admit_permitted(core, request);
    }
    if let Admission::UndecidedCache = admission {
        let deciding = Box::pin(access::decide_cache(core, request));
        if transaction.while_it_stays(deciding).await.is_none() {
            return transaction.client_gone(Outcome::local(Tag::None, 0));
        }
        admission = admit_permitted(core, request);
    }
    match admission {
        Admission::Hit(object) | Admission::UndecidedHit(object) | Admission::Ranges(object) => {
            follow::object(transaction, object).await
        }
        Admission::Refuse(page, detail) => local::error(transaction, page, &detail).await,
        Admission::Deny(refusal) if bump::shows(request, &refusal) => {
            Box::pin(bump::connect(transaction, Some(refusal))).await
        }
        Admission::Deny(refusal) => local::refused(transaction, refusal, None).await,
        // None is left after a look-up, whether it succeeded or failed. If one were, the rules
        // would have no answer, and the request must not go on.
        Admission::CallOut
        | Admission::Unverified
        | Admission::Undecided
        | Admission::NeedsAddresses
        | Admission::UndecidedCache => {
            local::refused(transaction, Refusal::without_answer(), None).await
        }
        Admission::Special => Box::pin(special(transaction)).await,
        Admission::Found(found) => from_cache_or_server(transaction, found).await,
    }
}

/// Asks `miss_access` before a server is asked.
///
/// # Errors
/// The end of a request that may not go on, or whose client has gone.
async fn may_miss(transaction: &mut Transaction<'_>, gone: Tag) -> Result<(), Outcome> {
    if transaction.request.snapshot().miss_access.is_none() {
        return Ok(());
    }
    let asking = Box::pin(permission::may_miss(transaction.core, transaction.request));
    match transaction.while_it_stays(asking).await {
        Some(Ok(())) => Ok(()),
        Some(Err(refusal)) => Err(local::refused(transaction, refusal, None).await),
        None => Err(transaction.client_gone(Outcome::local(gone, 0))),
    }
}

/// Answers a request that does not use the cache.
async fn special(transaction: &mut Transaction<'_>) -> Outcome {
    let (core, request) = (transaction.core, transaction.request);
    match transaction.while_it_stays(pin!(internal::answer(core, request))).await {
        None => return transaction.client_gone(Outcome::local(Tag::None, 0)),
        Some(Some((local, tag))) => {
            let outcome = Outcome::local(tag, local.status);
            return local::send(transaction, local, outcome).await;
        }
        Some(None) => {}
    }
    if let Some((page, detail)) = internal::objection(request) {
        return local::error(transaction, page, &detail).await;
    }
    if let Err(outcome) = may_miss(transaction, Tag::None).await {
        return outcome;
    }
    if request.head.method == Method::Connect {
        return match bump::is_asked(request) {
            true => Box::pin(bump::connect(transaction, None)).await,
            false => tunnel::connect(transaction).await,
        };
    }
    if request.wants_upgrade() {
        let preparing = access::prepare_to_switch(core, request);
        if transaction.while_it_stays(pin!(preparing)).await.is_none() {
            return transaction.client_gone(Outcome::local(Tag::Miss, 0));
        }
        if let Some(offered) = upgrades::offer(request) {
            return tunnel::upgrade(transaction, &offered).await;
        }
    }
    // Its answer may have no length, which is known only when the request has had its effect.
    if !request.head.method.is_safe() && !transaction.client.can_cut_off() {
        return local::error(transaction, ErrorPage::UnsupportedVersion, follow::NO_END).await;
    }
    if request.has_body() {
        return upload::serve(transaction).await;
    }
    pass(transaction, Tag::Miss, Forward::Method, None).await
}

/// Answers a request for which memory has no answer: from disk, from a fetch of another request, or
/// from the server.
async fn from_cache_or_server(transaction: &mut Transaction<'_>, mut found: Found) -> Outcome {
    if let Some((page, detail)) = internal::objection(transaction.request) {
        return local::error(transaction, page, &detail).await;
    }
    let mut may_be_missed = false;
    for _ in 0..JOINS_MAX {
        let (core, request) = (transaction.core, transaction.request);
        if let Some(stale) = &mut found.stale {
            stale.since.get_or_insert_with(|| Box::new(core.shared.cache.since_now(request.key)));
        }
        if found.refuse {
            return local::error(transaction, ErrorPage::OnlyIfCached, "").await;
        }
        if !found.knows_enough() && core.shared.cache.has_dirs() {
            match Box::pin(from_disk(transaction, &mut found)).await {
                Some(Served::Done(outcome)) => return outcome,
                Some(Served::LookAgain) => continue,
                None => {}
            }
        }
        if let Some(list) = found.parts.take()
            && let Served::Done(outcome) = Box::pin(from_parts::serve(transaction, &list)).await
        {
            return outcome;
        }
        if request.cc.only_if_cached() {
            found.refuse = true;
            continue;
        }
        if !may_be_missed && let Err(outcome) = may_miss(transaction, Tag::Miss).await {
            return outcome;
        }
        may_be_missed = true;
        // With the login of a connection nobody goes on alone.
        if found.serve_stale
            && !pinning::names_a_connection(request)
            && let Some(StaleBody::Memory(object)) = found.stale.as_ref().map(|stale| &stale.body)
        {
            let hit = HitObject::new(Held::Memory(Arc::clone(object)), Tag::MemHit);
            deliver::in_background(core, request, found);
            return follow::object(transaction, hit).await;
        }
        if !may_share(request, &found) {
            let (tag, why) = (found.miss_tag(), found.why());
            let to_learn_about = found.stale.take().filter(|_| request.head.method == Method::Head);
            return Box::pin(pass(transaction, tag, why, to_learn_about)).await;
        }
        if let Served::Done(outcome) = share(transaction, &mut found).await {
            return outcome;
        }
    }
    Box::pin(pass(transaction, Tag::Miss, Forward::UriMiss, None)).await
}

/// Looks in the cache directories. `None`: they have no answer.
async fn from_disk(transaction: &mut Transaction<'_>, found: &mut Found) -> Option<Served> {
    let looking = disk::look_up(transaction.core, transaction.request, found);
    let Some(stored) = transaction.while_it_stays(pin!(looking)).await else {
        let outcome = transaction.client_gone(Outcome::local(Tag::Miss, 0));
        return Some(Served::Done(outcome));
    };
    Some(match stored? {
        disk::Stored::Judged => Served::LookAgain,
        disk::Stored::Object(object) => Served::Done(follow::object(transaction, object).await),
        disk::Stored::Stream(hit) => {
            let served = Box::pin(from_disk::serve(transaction, *hit)).await;
            found.swap_failed |= matches!(served, Served::LookAgain);
            served
        }
    })
}

/// Whether other requests may share the fetch for this one. They may not if its own conditions or
/// range change the answer.
fn may_share(request: &Request, found: &Found) -> bool {
    let own_terms = has_own_terms(request)
        && !parts::is_fetched_whole(request)
        && (found.stale.is_none() || needs_origin(request));
    !found.pass
        && !own_terms
        && request.head.method == Method::Get
        && !request.cc.no_store()
        && !certificates::may_forgive(request)
        && !request.head.fields.has(FieldName::Authorization)
        && !request.facts().pin.is_for(request.url.host(), request.url.port(), request.owner())
        && !request.snapshot().peers.iter().any(|peer| tells_user(request, Some(peer)))
}

/// Leads a fetch that others may join, or joins one.
async fn share(transaction: &mut Transaction<'_>, found: &mut Found) -> Served {
    let (core, request) = (transaction.core, transaction.request);
    let cache = &core.shared.cache;
    let key = found.key.unwrap_or(request.key);
    // A client that may not have a stored answer may not have one that is being read from a
    // directory; and requests for one object by several URLs do not depend on each other's servers.
    let collapse = request.snapshot().config.collapsed_forwarding
        && !found.reload
        && found.forward != Forward::Bypass
        && request.store_id.is_none()
        && !wants_the_server(request);
    // A block, so that a request that waits for its answer keeps nothing else of this.
    let (reader, report, tag) = {
        let begun = match collapse {
            true => cache.begin_or_join(request.key, key, request.cache_url()),
            false => Begin::Lead(cache.private(request.key, key)),
        };
        match begun {
            Begin::Wait(reader) => {
                return Box::pin(after_disk(transaction, found, reader)).await;
            }
            Begin::Lead(writer) => {
                // The fetch that this request would have joined may have ended since the look-up.
                let may_hit = collapse && cache.mem().contains(&key);
                if let Some(hit) = may_hit.then(|| look_up(core, request).ok()).flatten() {
                    drop(writer);
                    return Served::Done(Box::pin(follow::object(transaction, hit)).await);
                }
                let Some(reader) = writer.subscribe(ReaderKind::Client) else {
                    return Served::LookAgain;
                };
                let report = Report::because(found.why());
                let tag = found.miss_tag();
                let stale = invalidate::unless_void(core, found.stale.take());
                deliver::start(core, Job::new(request, stale, true, &report), writer);
                (reader, Some(report), tag)
            }
            Begin::Join(reader) => {
                core.count(Counter::ClientCollapsed, 1);
                (reader, None, Tag::Miss)
            }
        }
    };
    let flow = Arc::clone(reader.flow());
    match follow(transaction, reader, report.as_deref(), tag).await {
        Served::LookAgain if report.is_some() => {
            // It may have gone on without this client, and be on disk now.
            found.skip_disk &= !flow.is_stored();
            Served::LookAgain
        }
        Served::LookAgain => Box::pin(after_join(transaction, found, &flow)).await,
        done => done,
    }
}

/// Goes on where the fetch that was joined was not for this request.
async fn after_join(transaction: &mut Transaction<'_>, found: &mut Found, flow: &Flow) -> Served {
    // Nothing that came of this fetch is for it.
    if follow::is_closed(transaction.core, transaction.request, flow) {
        return Served::Done(pass(transaction, Tag::Miss, Forward::UriMiss, None).await);
    }
    // The answer may be for another variant, or have gone on without this client.
    look_again(transaction, found).await
}

/// Serves an answer that is complete at once, if it is at hand and good enough as it is. Otherwise
/// looks again when a directory has written it.
async fn after_disk(
    transaction: &mut Transaction<'_>,
    found: &mut Found,
    mut reader: FlowReader,
) -> Served {
    if let Some(hit) = at_hand(transaction.core, transaction.request, reader.flow()) {
        drop(reader);
        return Served::Done(follow::object(transaction, hit).await);
    }
    if until_on_disk(transaction, &mut reader).await.is_none() {
        return Served::Done(transaction.client_gone(Outcome::local(Tag::Miss, 0)));
    }
    look_again(transaction, found).await
}

/// The answer that a directory is still writing.
fn at_hand(core: &Core, request: &Request, flow: &Flow) -> Option<HitObject> {
    if core.shared.cache.recall(flow) {
        core.count(Counter::MemoryStores, 1);
    }
    look_up(core, request).ok()
}

/// Repeats the look-up in memory, which may have an answer by now.
async fn look_again(transaction: &mut Transaction<'_>, found: &mut Found) -> Served {
    match look_up(transaction.core, transaction.request) {
        Ok(hit) => Served::Done(follow::object(transaction, hit).await),
        Err(newer) => {
            *found = newer;
            Served::LookAgain
        }
    }
}

/// Waits until a directory has written an answer that is complete, at most [`COMMIT_WAIT_MAX`].
/// `None`: the client has gone.
async fn until_on_disk(transaction: &Transaction<'_>, reader: &mut FlowReader) -> Option<()> {
    let patience = transaction.core.io.deadlines.slot();
    patience.arm(COMMIT_WAIT_MAX);
    let written = poll_fn(|cx| match reader.poll_data(cx) {
        Poll::Ready(_) => Poll::Ready(()),
        Poll::Pending => patience.poll_expired(cx),
    });
    transaction.while_it_stays(pin!(written)).await
}

/// Whether the client asked for a reload. A fetch in flight may have been answered by the server
/// before the client asked. So a reload never joins a fetch, even if nothing is stored yet.
fn wants_the_server(request: &Request) -> bool {
    request.cc.no_cache() && !request.snapshot().refresh_rule(request.cache_url()).ignore_reload
}

/// Fetches for this request alone, with the client's own conditions and ranges.
async fn pass(
    transaction: &mut Transaction<'_>,
    tag: Tag,
    why: Forward,
    to_learn_about: Option<Stale>,
) -> Outcome {
    let (core, request) = (transaction.core, transaction.request);
    let writer = core.shared.cache.private(request.key, request.key);
    let Some(reader) = writer.subscribe(ReaderKind::Client) else {
        return local::error(transaction, ErrorPage::Internal, "no fetch").await;
    };
    let report = Report::because(why);
    let job = Job { to_learn_about, ..Job::as_asked(request, &report) };
    deliver::start(core, job, writer);
    follow::alone(transaction, reader, &report, tag).await
}
