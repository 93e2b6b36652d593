//! What becomes of an answer: it confirms a stored object, replaces it, is stored, or only passes
//! through.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use humboldt_base::counters::Counter;
use humboldt_conf::ForwardedFor;
use humboldt_freshness::vary::{self, Vary};
use humboldt_freshness::{self as freshness, CacheControl, RefreshRule, Times, languages};
use humboldt_http::h1::{HopByHop, write_field};
use humboldt_http::{FieldName, Method, ResponseHead, Url, date};
use humboldt_logs::access::Tag;
use humboldt_store::scheme::{Confirmed, Record, RecordKind};
use humboldt_store::{
    About, Dir, Entry, FlowInfo, FlowWriter, Key, Object, PARTIAL, Part, ReaderKind, Standing,
    StoredHead, VaryMarker, Voiding, next_serial,
};

use crate::access;
use crate::core::Core;
use crate::errors::ErrorPage;
use crate::fetch::Answer;
use crate::job::{Failure, Job, Stale, StaleBody};
use crate::memory::{self, HIT_FOR_MISS_S, has_own_copy, has_own_terms};
use crate::partial::{self, NewPart, Portion};
use crate::reply;
use crate::request::Request;
use crate::snapshot::{Snapshot, skips_reply_field};
use crate::swap_out;

/// What becomes of an answer.
pub(crate) enum Verdict {
    /// The stored answer is still good, with a new head.
    Confirmed(StaleBody),
    /// The server confirmed another answer than the stored one: it is to be asked for the whole.
    Again,
    /// Serve the stored object if that is allowed, or this failure.
    Failed(Failure),
    /// Stream it.
    Stream {
        /// Whether it is being stored.
        stored: bool,
        /// The directory that gets it when it is complete, if none is being written meanwhile.
        at_end: Option<Arc<Dir>>,
        /// It is a part of an answer, to be listed when it is complete.
        part: Option<Box<NewPart>>,
    },
}

/// Decides, and publishes the head of an answer that is to be streamed.
pub(crate) async fn decide(
    core: &Rc<Core>,
    job: &mut Job,
    answer: &mut Answer,
    writer: &mut FlowWriter,
) -> Verdict {
    let request = Rc::clone(&job.request);
    let snapshot = request.snapshot();
    let rule = snapshot.refresh_rule(request.url.as_bytes());
    let now = core.now().secs();
    if !answer.head.fields.has(FieldName::Date) {
        // RFC 9110 6.6.1: who receives a message without Date adds one.
        answer.head.fields.push(FieldName::Date, &date::format(now));
    }
    let date = answer.head.fields.get(FieldName::Date).and_then(date::parse);
    let tag = answer.head.fields.get(FieldName::Etag).filter(|tag| !tag.starts_with(b"W/"));
    writer.answer(date.unwrap_or(now), tag);
    if answer.head.status == 304
        && let Some(stale) = job.stale.take()
    {
        return confirm(core, job, stale, answer, writer).await;
    }
    if answer.head.status == 304 && !(job.as_asked && has_own_copy(&request)) {
        let detail = "the server answered 304 to a request without a condition";
        return Verdict::Failed(Failure::new(ErrorPage::InvalidResponse, detail));
    }
    if answer.head.status == 200
        && !answer.was_repaired
        && let Some(stale) = job.to_learn_about.take()
    {
        learn_from_head(core, &request, stale, answer, writer).await;
    }
    if job.stale.as_ref().or(job.in_reserve.as_ref()).is_some_and(|stale| stale.may_serve_on_error)
        && matches!(answer.head.status, 500 | 502 | 503 | 504)
    {
        let detail = format!("the server answered {}", answer.head.status);
        return Verdict::Failed(Failure::new(ErrorPage::ReadError, detail));
    }
    let cc = CacheControl::of_response(&answer.head.fields, &snapshot.freshness.target_list);
    let mut judged = without_void_expires(snapshot, &answer.head);
    // A part that nobody asked for is an error of the server's.
    let range = request.head.fields.get(FieldName::Range).filter(|_| job.as_asked);
    let portion = range.and_then(|range| partial::portion(&answer.head, range, answer.body_bytes));
    if portion.is_some() {
        // A part may be stored where the whole may be, and is as fresh.
        judged.to_mut().status = 200;
    }
    let times = freshness::times(answer.request_time, now, &judged, &cc, rule, &snapshot.freshness);
    let times =
        Times { purge_number: writer.flow().purge_number(), serial: next_serial(), ..times };
    answer.limit_bytes = reply::limit_bytes(&request, &answer.head);
    // To conditions and ranges of the client's own, 412 and 416 are answers that nobody else is to
    // get.
    let is_for_all =
        !job.as_asked || matches!(answer.head.status, 200 | PARTIAL) || !has_own_terms(&request);
    let storable = job.may_store
        && is_for_all
        && !varies_by_address(snapshot, &answer.head)
        && (request.head.method != Method::Post || is_what_get_gives(&request, &answer.head))
        && access::may_use_cache(&request)
        && !answer.is_not_to_be_stored()
        && answer.body_bytes.is_none_or(|bytes| bytes <= answer.limit_bytes)
        && may_store(&request, &judged, &cc, rule, &times);
    let (times, portion) = if storable { (Some(times), portion) } else { (None, None) };
    publish(core, job, answer, writer, times, &cc, portion).await
}

/// Whether the answer depends on X-Forwarded-For where this proxy adds the client's address to it:
/// the server saw another field than the client sent, and no other client's is the same.
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

/// `vary_ignore_expire`: the head without an Expires that says "now" next to a Vary. Old servers
/// sent it for the sake of HTTP/1.0 caches, which know no Vary.
fn without_void_expires<'a>(snapshot: &Snapshot, head: &'a ResponseHead) -> Cow<'a, ResponseHead> {
    let fields = &head.fields;
    let is_void = snapshot.config.vary_ignore_expire
        && fields.has(FieldName::Vary)
        && fields.has(FieldName::Expires)
        && fields.get(FieldName::Expires) == fields.get(FieldName::Date);
    if !is_void {
        return Cow::Borrowed(head);
    }
    let mut without = head.clone();
    without.fields.remove(FieldName::Expires);
    Cow::Owned(without)
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

/// A 304 to our own condition.
async fn confirm(
    core: &Rc<Core>,
    job: &mut Job,
    stale: Stale,
    answer: &Answer,
    writer: &FlowWriter,
) -> Verdict {
    let request = Rc::clone(&job.request);
    if !freshness::freshens(&stale.head().to_response_head(), &answer.head) {
        // It confirms something that we do not have, and says nothing about ours.
        job.in_reserve = Some(stale);
        return Verdict::Again;
    }
    job.report.set_object_tag(Tag::RefreshUnmodified);
    if answer.was_repaired {
        // It confirms for this request; its fields may be another's, and are for nobody.
        return Verdict::Confirmed(stale.body);
    }
    Verdict::Confirmed(freshen(core, &request, stale, answer, writer).await)
}

/// What a 200 to HEAD says about the stored answer to GET (RFC 9111 4.3.5): the same validator
/// makes it fresh again, a difference in validators or length makes it void. Without a validator
/// nothing is known.
async fn learn_from_head(
    core: &Rc<Core>,
    request: &Request,
    stale: Stale,
    answer: &Answer,
    writer: &FlowWriter,
) {
    let stored = stale.head().to_response_head();
    let validators = [FieldName::Etag, FieldName::LastModified];
    let differs = |name: FieldName| {
        answer.head.fields.get(name).is_some_and(|value| stored.fields.get(name) != Some(value))
    };
    let length = answer.head.fields.get(FieldName::ContentLength).and(answer.body_bytes);
    let has_other_length =
        length.is_some() && stale.body_bytes().is_some() && length != stale.body_bytes();
    if validators.into_iter().any(differs) || has_other_length {
        forget_all(core, request.key).await;
    } else if validators.into_iter().any(|name| answer.head.fields.has(name)) {
        freshen(core, request, stale, answer, writer).await;
    }
}

/// The stored answer with a head that the server has brought up to date, wherever it is stored.
async fn freshen(
    core: &Rc<Core>,
    request: &Request,
    stale: Stale,
    answer: &Answer,
    writer: &FlowWriter,
) -> StaleBody {
    let key = match &stale.body {
        StaleBody::Memory(object) => object.key,
        StaleBody::Disk(hit) => hit.key,
    };
    // Where a newer answer has come, this one is only for those who wait for it.
    let is_newest = announce(core, request, writer, &[(key, 0)]).await;
    let updated = freshness::update_304(&stale.head().to_response_head(), &answer.head);
    // The body is as old as it was: a purge that came before is not undone.
    let purge_number = stale.times().purge_number;
    let (head, times) = to_store(core, request, answer.request_time, &updated, purge_number);
    match stale.body {
        StaleBody::Memory(confirmed) => {
            let object = core.shared.cache.refresh(writer.epoch(), &confirmed, head, times);
            if is_newest {
                let record = record(object.key, &object.url, &object.head, times);
                update_on_disk(
                    core,
                    writer,
                    record,
                    Confirmed::new(&confirmed.head, &confirmed.times),
                );
            }
            StaleBody::Memory(object)
        }
        StaleBody::Disk(mut hit) => {
            let confirmed = Confirmed::new(&hit.head, &hit.times);
            (hit.head, hit.times) = (Arc::new(head), times);
            if is_newest {
                update_on_disk(
                    core,
                    writer,
                    record(hit.key, &hit.url, &hit.head, times),
                    confirmed,
                );
            }
            StaleBody::Disk(hit)
        }
    }
}

/// What is stored of a head that was put together here, and how fresh it is.
pub(crate) fn to_store(
    core: &Core,
    request: &Request,
    request_time: i64,
    head: &ResponseHead,
    purge_number: u64,
) -> (StoredHead, Times) {
    let snapshot = request.snapshot();
    let cc = CacheControl::of_response(&head.fields, &snapshot.freshness.target_list);
    let rule = snapshot.refresh_rule(request.url.as_bytes());
    let mut judged = without_void_expires(snapshot, head);
    if head.status == PARTIAL {
        judged.to_mut().status = 200; // a part is as fresh as the whole
    }
    let now = core.now().secs();
    let times = freshness::times(request_time, now, &judged, &cc, rule, &snapshot.freshness);
    let hops = HopByHop::of(&head.fields);
    let stored = StoredHead::from_response(head, |id, name| {
        id == FieldName::Age
            || cc.withheld_fields().any(|own| name.eq_ignore_ascii_case(own))
            || skips_reply_field(&hops, id, name)
    });
    (stored, Times { purge_number, serial: next_serial(), ..times })
}

/// Brings the record on disk up to date, without anybody waiting for it.
fn update_on_disk(core: &Rc<Core>, writer: &FlowWriter, record: Record, confirmed: Confirmed) {
    if core.shared.cache.on_disk(&record.key) {
        let cache = Arc::clone(&core.shared.cache);
        let flow = Arc::clone(writer.flow());
        tokio::task::spawn_local(async move {
            cache.update_on_disk(flow.epoch(), &record, &confirmed).await
        });
    }
}

/// Makes an answer known that is going to be stored, or that confirms a stored one. Nothing of the
/// URL is kept where nobody can say whether another answer, that was on its way at the same time,
/// is newer. Returns whether this is the newest one.
async fn announce(
    core: &Core,
    request: &Request,
    writer: &FlowWriter,
    keys: &[(Key, u64)],
) -> bool {
    let standing = writer.announce(keys);
    if standing == Standing::Unclear {
        forget_all(core, request.key).await;
    }
    standing == Standing::Newest
}

fn record(key: Key, url: &[u8], head: &StoredHead, times: Times) -> Record {
    Record { key, kind: RecordKind::Object, url: url.into(), head: head.bytes().into(), times }
}

/// What a flow says about an object that is served as it is.
pub(crate) fn object_info(object: &Object) -> FlowInfo {
    FlowInfo {
        key: object.key,
        body_bytes: Some(object.body_bytes()),
        shareable: true,
        keep_bytes_max: 0,
        write_through: false,
        disk_only: false,
        times: Some(object.times),
        vary: None,
    }
}

/// After a successful unsafe method the stored answers of the URL, and of what Location and
/// Content-Location name on the same host, are void (RFC 9111 4.4). The flow is for the answer
/// itself, which may be stored in their place.
pub(crate) async fn invalidate(core: &Core, job: &Job, head: &ResponseHead) -> Option<FlowWriter> {
    let request = &*job.request;
    if !freshness::invalidates(request.head.method, head.status) {
        return None;
    }
    core.count(Counter::Purges, 1);
    for name in [FieldName::Location, FieldName::ContentLocation] {
        let Some(reference) = head.fields.get(name) else { continue };
        if let Some(url) = same_host(&request.url, reference) {
            let key = Key::primary(url.as_bytes());
            remove_behind(core, core.shared.cache.void(key)).await;
        }
    }
    let (writer, voiding) = core.shared.cache.void_for(request.key, job.purge_number);
    remove_behind(core, voiding).await;
    Some(writer)
}

/// What is stored of a URL turned out to be of no use. Nobody gets it any more.
async fn forget_all(core: &Core, key: Key) {
    remove_behind(core, core.shared.cache.void(key)).await;
}

/// Takes what is void out of all indexes now, and off the disks behind the answer: no answer waits
/// for a disk.
pub(crate) async fn remove_behind(core: &Core, voiding: Voiding) {
    let cache = Arc::clone(&core.shared.cache);
    // Without a budget of turns, as the first poll must do its part.
    let removal = tokio::task::unconstrained(async move { cache.remove_void(voiding).await });
    let mut removal = Box::pin(removal);
    let is_pending =
        std::future::poll_fn(|cx| Poll::Ready(removal.as_mut().poll(cx).is_pending())).await;
    if is_pending {
        tokio::task::spawn_local(removal);
    }
}

/// Whether an answer to POST says that GET would give the same (RFC 9110 9.3.3).
fn is_what_get_gives(request: &Request, head: &ResponseHead) -> bool {
    let location = head.fields.get(FieldName::ContentLocation);
    let url = location.and_then(|reference| same_host(&request.url, reference));
    url.is_some_and(|url| url.as_bytes() == request.url.as_bytes())
}

/// The URL that `reference` means, if it is on the same host.
fn same_host(base: &Url, reference: &[u8]) -> Option<Url> {
    let mut url = Url::default();
    if reference.starts_with(b"/") && !reference.starts_with(b"//") {
        url.set_parts(base.scheme(), base.authority(), reference).ok()?;
    } else {
        url.set_absolute(reference).ok()?;
    }
    (url.authority() == base.authority() && url.scheme() == base.scheme()).then_some(url)
}

/// The head as this proxy passes it on: with itself in Via.
fn with_via(snapshot: &Snapshot, head: &ResponseHead) -> ResponseHead {
    let via = snapshot.names.via(head.version);
    let mut received = head.roomy_clone();
    if let Some(via) = via.strip_prefix(b"Via: ").and_then(|via| via.strip_suffix(b"\r\n")) {
        received.fields.push(FieldName::Via, via);
    }
    received
}

/// The lines of those fields that are for the client that asked alone.
fn own_lines(head: &ResponseHead, is_own: impl Fn(FieldName, &[u8]) -> bool) -> Vec<u8> {
    let mut lines = Vec::new();
    for (_, name, value) in head.fields.iter().filter(|(id, name, _)| is_own(*id, name)) {
        write_field(&mut lines, name, value);
    }
    lines
}

/// Publishes the head, under the key of its variant, and starts to write the object to disk.
async fn publish(
    core: &Rc<Core>,
    job: &Job,
    answer: &Answer,
    writer: &mut FlowWriter,
    times: Option<Times>,
    cc: &CacheControl,
    portion: Option<Portion>,
) -> Verdict {
    let request = &*job.request;
    let snapshot = request.snapshot();
    let (cache, hops) = (&core.shared.cache, HopByHop::of(&answer.head.fields));
    let received = with_via(snapshot, &answer.head);
    let is_skipped = |id, name: &[u8]| skips_reply_field(&hops, id, name);
    let has_own = times.is_some() && cc.withheld_fields().next().is_some();
    let is_own =
        |name: &[u8]| has_own && cc.withheld_fields().any(|own| name.eq_ignore_ascii_case(own));
    let head = Arc::new(StoredHead::from_response(&received, |id, name| {
        is_skipped(id, name) || is_own(name) || (times.is_some() && id == FieldName::Age)
    }));
    let own_fields = match has_own {
        true => own_lines(&received, |id, name| {
            id != FieldName::Age && is_own(name) && !is_skipped(id, name)
        }),
        false => Vec::new(),
    };
    job.report.set_own_fields(own_fields);
    let (mut key, marker) = match times {
        Some(_) => variant(core, request, writer, &answer.head),
        None => (request.key, None),
    };
    let part = portion.map(|portion| {
        let list = key;
        key = Part::new_key(list);
        Box::new(NewPart { list, key, portion, received })
    });
    let is_storable = times.is_some();
    let keys = claims(request, key, marker.as_deref(), part.as_deref());
    let is_outdated = is_storable && !announce(core, request, writer, &keys).await;
    let (times, part) = if is_outdated { (None, None) } else { (times, part) };
    let dir = times.and_then(|_| cache.select_dir(answer.body_bytes));
    let keep_bytes_max = if times.is_some() { cache.keep_bytes_max(dir.is_some()) } else { 0 };
    let is_whole_at_end = dir.as_ref().is_some_and(|dir| {
        let bytes_max = dir.scheme.whole_bytes_max().min(keep_bytes_max);
        marker.is_none() && answer.body_bytes.is_some_and(|bytes| bytes <= bytes_max)
    });
    let disk_only = times.is_some_and(|times| {
        let (url, body_bytes) = (request.url.as_bytes(), answer.body_bytes.unwrap_or(0));
        let about = About { key, url, head: &head, times: &times, body_bytes };
        dir.is_some() && cache.is_disk_only(&about, is_whole_at_end)
    });
    let info = FlowInfo {
        key,
        body_bytes: answer.body_bytes,
        shareable: is_storable,
        keep_bytes_max,
        write_through: dir.is_some(),
        disk_only,
        times,
        vary: marker.clone(),
    };
    writer.publish_head(Arc::clone(&head), info);
    let Some(times) = times else {
        forget(core, job, answer, writer, is_outdated).await;
        return Verdict::Stream { stored: false, at_end: None, part: None };
    };
    match dir {
        Some(dir) if is_whole_at_end => Verdict::Stream { stored: true, at_end: Some(dir), part },
        Some(dir) => {
            if let Some(reader) = writer.subscribe(ReaderKind::Disk) {
                let marker = marker.map(|marker| (marker, writer.writing()));
                swap_out::swap_out(
                    core,
                    dir,
                    reader,
                    record(key, request.url.as_bytes(), &head, times),
                    marker,
                );
            }
            Verdict::Stream { stored: true, at_end: None, part }
        }
        None => Verdict::Stream { stored: true, at_end: None, part },
    }
}

/// What an answer takes the place of.
fn claims(
    request: &Request,
    key: Key,
    marker: Option<&VaryMarker>,
    part: Option<&NewPart>,
) -> Vec<(Key, u64)> {
    let marked = marker.map(|marker| (request.key, marker.generation));
    [Some((key, 0)), marked, part.map(|part| (part.list, 0))].into_iter().flatten().collect()
}

/// The key under which an answer is stored, and what it varies by.
fn variant(
    core: &Core,
    request: &Request,
    writer: &FlowWriter,
    head: &ResponseHead,
) -> (Key, Option<Arc<VaryMarker>>) {
    let Vary::On(spec) = vary::of(&head.fields) else { return (request.key, None) };
    let cache = &core.shared.cache;
    let marker = cache.vary_marker(writer.epoch(), request.url.as_bytes(), spec.as_bytes());
    let key = memory::variant_key(request, &marker);
    if let Some(language) = languages::of_answer(&head.fields)
        && let Some(in_language) = memory::language_key(request, &marker, language)
    {
        cache.insert_current(writer.epoch(), in_language, Entry::SeeAlso(key));
    }
    (key, Some(marker))
}

/// An answer that is not stored: what is stored of its URL is older and was found wanting.
async fn forget(core: &Core, job: &Job, answer: &Answer, writer: &FlowWriter, is_outdated: bool) {
    let request = &*job.request;
    // An answer to the client's own conditions says nothing about the whole, and a server in
    // trouble nothing about what is stored: it may confirm it later.
    let status = answer.head.status;
    let was_stored = job.stale.is_some() || job.in_reserve.is_some();
    let says_nothing = job.as_asked && status != 200 || was_stored && status >= 500;
    let may_be_stored =
        job.may_store && request.head.method == Method::Get && access::may_use_cache(request);
    if !may_be_stored || says_nothing || is_outdated {
        return;
    }
    let cache = &core.shared.cache;
    let epoch = writer.epoch();
    if was_stored || !job.as_asked && status < 500 && cache.may_have_older(epoch) {
        forget_all(core, request.key).await;
    } else if !cache.mem().contains(&request.key) {
        let until = request.received.secs() + HIT_FOR_MISS_S;
        cache.insert_current(epoch, request.key, Entry::HitForMiss { until });
    }
}
