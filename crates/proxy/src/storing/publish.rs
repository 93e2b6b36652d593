//! Publishes the head of an answer that is streamed, and begins to store the answer.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use humboldt_freshness::vary::{self, Vary};
use humboldt_freshness::{CacheControl, Times, languages};
use humboldt_http::{FieldName, HopByHop, Method, ResponseHead};
use humboldt_store::scheme::{IoFuture, Place};
use humboldt_store::{
    Arrived, Entry, Fate, FlowWriter, Key, PARTIAL, Part, ReaderKind, Storable, StoredHead,
    VaryMarker,
};

use crate::core::Core;
use crate::fetch::converse::Answer;
use crate::fetch::job::Job;
use crate::lookup::memory::{self, HIT_FOR_MISS_S};
use crate::request::Request;
use crate::rules::access;
use crate::storing::decide::Verdict;
use crate::storing::deliver::while_wanted;
use crate::storing::freshen::{announce, record};
use crate::storing::head::{skips_reply_field, some_fields, with_via};
use crate::storing::invalidate::forget_all;
use crate::storing::parts::{NewPart, Portion};
use crate::storing::store;

/// Publishes the head under the key of its variant, and may start to write the object to disk.
pub(crate) async fn publish(
    core: &Rc<Core>,
    job: &Job,
    answer: &mut Answer,
    writer: &mut FlowWriter,
    times: Option<Times>,
    cc: &CacheControl,
    portion: Option<Portion>,
) -> Verdict {
    let request = &*job.request;
    let snapshot = request.snapshot();
    let (cache, hops) = (&core.shared.cache, HopByHop::of(&answer.head.fields));
    let received = || with_via(snapshot, &answer.head);
    let is_skipped = |id, name: &[u8]| skips_reply_field(&hops, id, name);
    let has_own = times.is_some() && cc.withheld_fields().next().is_some();
    let is_own =
        |name: &[u8]| has_own && cc.withheld_fields().any(|own| name.eq_ignore_ascii_case(own));
    let via = snapshot.names.via(answer.head.version);
    let head = Arc::new(StoredHead::with_via(&answer.head, via, |id, name| {
        is_skipped(id, name) || is_own(name) || (times.is_some() && id == FieldName::Age)
    }));
    if has_own {
        let own_fields = some_fields(&received(), |id, name| {
            id != FieldName::Age && is_own(name) && !is_skipped(id, name)
        });
        job.report.own_fields.replace(own_fields);
    }
    let (mut key, marker) = match times {
        Some(_) => variant(core, request, writer, &answer.head),
        None => (request.key, None),
    };
    let part = portion.map(|portion| {
        let list = key;
        key = Part::new_key(list);
        Box::new(NewPart { list, key, portion, received: received() })
    });
    let keys = claims(request, key, marker.as_deref(), part.as_deref());
    // An answer from before a purge that names it is older than those from after it.
    let is_purged = times.is_some_and(|times| cache.is_purged(&times, request.cache_url(), &head));
    let storable = match times {
        None => Storable::No,
        Some(_) if is_purged || !announce(core, request, writer, &keys).await => Storable::Outdated,
        Some(times) => Storable::Yes(times),
    };
    let (url, body_bytes, vary) = (request.cache_url(), answer.body_bytes(), marker.clone());
    let (info, dir) = cache.fate(Arrived { url, head: &head, key, body_bytes, vary, storable });
    let fate = info.fate();
    if let Some(turn) = dir.as_ref().and_then(|dir| dir.scheme.turn(body_bytes)) {
        writer.hold_place(wait_for_turn(core, job, answer, writer, turn).await);
    }
    writer.publish_head(Arc::clone(&head), info);
    let Storable::Yes(times) = storable else {
        forget(core, job, answer, writer, storable == Storable::Outdated).await;
        return Verdict::Stream { stored: false, at_end: None, part: None };
    };
    match dir {
        Some(dir) if matches!(fate, Fate::AtEnd | Fate::Lent) => {
            Verdict::Stream { stored: true, at_end: Some(dir), part }
        }
        Some(dir) => {
            if let Some(mut reader) = writer.subscribe(ReaderKind::Disk) {
                reader.hold_place(writer.take_place());
                let marker = marker.map(|marker| (marker, writer.writing()));
                store::swap_out(core, dir, reader, record(key, url, &head, times), marker);
            }
            Verdict::Stream { stored: true, at_end: None, part }
        }
        None => Verdict::Stream { stored: true, at_end: None, part },
    }
}

/// The place of an object in the queue of its directory; `None` if there is none in time: it goes
/// on without. Its clients wait for the head meanwhile; if all of them leave, nobody waits.
async fn wait_for_turn(
    core: &Core,
    job: &Job,
    answer: &mut Answer,
    writer: &FlowWriter,
    mut turn: IoFuture<'_, Place>,
) -> Option<Place> {
    if let Poll::Ready(place) = poll_fn(|cx| Poll::Ready(turn.as_mut().poll(cx))).await {
        return place.ok();
    }
    // Many may wait: each holds what has come of its body, and no read buffer.
    let held = core.shared.cache.mem().hold(answer.server.keep_small());
    let watched = (!job.in_background).then(|| Arc::clone(writer.flow()));
    let place = while_wanted(watched, turn).await;
    drop(held);
    // It was not the server that took so long.
    answer.server.start_waiting();
    place?.ok()
}

/// The keys whose stored entries this answer replaces.
fn claims(
    request: &Request,
    key: Key,
    marker: Option<&VaryMarker>,
    part: Option<&NewPart>,
) -> Vec<(Key, u64)> {
    let marked = marker.map(|marker| (request.key, marker.generation));
    [Some((key, 0)), marked, part.map(|part| (part.list, 0))].into_iter().flatten().collect()
}

/// The key under which an answer is stored, and the marker of the fields by which it varies.
fn variant(
    core: &Core,
    request: &Request,
    writer: &FlowWriter,
    head: &ResponseHead,
) -> (Key, Option<Arc<VaryMarker>>) {
    let Vary::On(spec) = vary::of(&head.fields) else { return (request.key, None) };
    let cache = &core.shared.cache;
    let marker = cache.vary_marker(writer.epoch(), request.cache_url(), spec.as_bytes());
    let key = memory::variant_key(request, &marker);
    if let Some(language) = languages::of_answer(&head.fields)
        && let Some(in_language) = memory::language_key(request, &marker, language)
    {
        cache.insert_current(writer.epoch(), in_language, Entry::SeeAlso(key));
    }
    (key, Some(marker))
}

/// Handles an answer that is not stored: the stored answers of its URL are older and were not good
/// enough.
async fn forget(core: &Core, job: &Job, answer: &Answer, writer: &FlowWriter, is_outdated: bool) {
    let request = &*job.request;
    // An answer to a client's own conditions says nothing about the whole, unless it is the whole
    // or a part. Nor do a server error, since the server may confirm the stored answer later, and
    // the answer of a proxy that asks for credentials.
    let status = answer.head.status;
    let was_stored = job.stale.is_some() || job.in_reserve.is_some();
    let is_own_part = job.as_asked && status == PARTIAL;
    let says_nothing = job.as_asked && status != 200 && !is_own_part
        || was_stored && status >= 500
        || status == 407;
    // Nor does the answer to a request that forbids to store it.
    let may_be_stored = job.may_store
        && request.head.method == Method::Get
        && !request.cc.no_store()
        && access::may_use_cache(request);
    if !may_be_stored || says_nothing || is_outdated {
        return;
    }
    let cache = &core.shared.cache;
    let epoch = writer.epoch();
    if !was_stored && is_other_variant(core, request, answer, writer) {
        return;
    }
    if was_stored || status < 500 && cache.may_have_older(epoch) {
        forget_all(core, request.key).await;
    } else if !is_own_part && !cache.mem().contains(&request.key) {
        let until = request.received.secs() + HIT_FOR_MISS_S;
        cache.insert_current(epoch, request.key, Entry::HitForMiss { until });
    }
}

/// Whether the answer is of another variant than the stored ones of its URL, which are kept then: a
/// page with `Vary: Cookie` may be private for users with an account, and the same for all others.
/// `false` while something else of the URL is under way, of which the variant is not known.
fn is_other_variant(core: &Core, request: &Request, answer: &Answer, writer: &FlowWriter) -> bool {
    let cache = &core.shared.cache;
    // First: what is under way may be stored at any moment, and is not under way then.
    if !cache.is_alone(writer.epoch()) {
        return false;
    }
    let Some(Entry::Vary(marker)) = cache.lookup(&request.key) else { return false };
    let Vary::On(spec) = vary::of(&answer.head.fields) else { return false };
    // Clients with different preferences share a variant in a language, whatever their keys.
    let is_by_language = spec.names().any(|name| name == b"accept-language");
    let variant = memory::variant_key(request, &marker);
    *spec.as_bytes() == *marker.fields
        && !is_by_language
        && cache.is_new_variant(&request.key, &marker, &variant)
}
