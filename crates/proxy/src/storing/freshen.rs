//! Stored answers whose heads are updated by newer answers of their servers.

use std::rc::Rc;
use std::sync::Arc;

use humboldt_freshness::{self as freshness, CacheControl, Times};
use humboldt_http::{FieldName, HopByHop, ResponseHead};
use humboldt_runtime::turns;
use humboldt_store::scheme::{Confirmed, Record, RecordKind};
use humboldt_store::{
    About, FlowInfo, FlowWriter, Key, Object, PARTIAL, Standing, StoredHead, next_serial,
};

use crate::core::Core;
use crate::fetch::converse::Answer;
use crate::fetch::job::{Stale, StaleBody};
use crate::request::Request;
use crate::storing::head::{skips_reply_field, without_void_expires};
use crate::storing::invalidate::forget_all;

/// Applies a 200 to HEAD to the stored answer to GET (RFC 9111 4.3.5). The same validator makes it
/// fresh again; a different validator or length makes it void. Without a validator nothing changes.
pub(crate) async fn learn_from_head(
    core: &Rc<Core>,
    request: &Request,
    stale: Stale,
    answer: &Answer,
    writer: &FlowWriter,
) {
    let about = stale.body.about();
    let stored = about.head.to_response_head();
    let validators = [FieldName::Etag, FieldName::LastModified];
    let differs = |name: FieldName| {
        answer.head.fields.get(name).is_some_and(|value| stored.fields.get(name) != Some(value))
    };
    let length = answer.head.fields.get(FieldName::ContentLength).and(answer.body_bytes());
    let has_other_length = length.is_some_and(|length| length != about.body_bytes);
    if validators.into_iter().any(differs) || has_other_length {
        forget_all(core, request.key).await;
    } else if validators.into_iter().any(|name| answer.head.fields.has(name)) {
        freshen(core, request, stale, answer, writer).await;
    }
}

/// The stored answer with a head that the server has updated, in memory or on disk. `None`: the
/// update says that it must not be stored, and nothing of its URL is stored any more.
pub(crate) async fn freshen(
    core: &Rc<Core>,
    request: &Request,
    stale: Stale,
    answer: &Answer,
    writer: &FlowWriter,
) -> Option<StaleBody> {
    let About { key, head, times, .. } = stale.body.about();
    let updated = freshness::update_304(&head.to_response_head(), &answer.head);
    if !may_stay(request, &updated) {
        forget_all(core, request.key).await;
        return None;
    }
    // If a newer answer has come, only the clients that wait get this one.
    let is_newest = announce(core, request, writer, &[(key, 0)]).await;
    // The body is as old as before, so it keeps its purge number: an earlier purge stays in force.
    let purge_number = times.purge_number;
    let (head, times) = to_store(core, request, answer.request_time, &updated, purge_number);
    let (body, confirmed) = match stale.body {
        StaleBody::Memory(old) => {
            let object = core.shared.cache.refresh(writer.epoch(), &old, head, times);
            (StaleBody::Memory(object), Confirmed::new(&old.head, &old.times))
        }
        StaleBody::Disk(mut hit) => {
            let confirmed = Confirmed::new(&hit.head, &hit.times);
            (hit.head, hit.times) = (Arc::new(head), times);
            (StaleBody::Disk(hit), confirmed)
        }
    };
    if is_newest && core.shared.cache.on_disk(&key) {
        let about = body.about();
        update_on_disk(core, writer, record(key, about.url, about.head, times), confirmed);
    }
    Some(body)
}

/// Whether an answer with this head may stay stored.
fn may_stay(request: &Request, head: &ResponseHead) -> bool {
    let snapshot = request.snapshot();
    let cc = CacheControl::of_response(&head.fields, &snapshot.freshness.target_list);
    let rule = snapshot.refresh_rule(request.cache_url());
    freshness::may_stay(&cc, &snapshot.freshness, rule).is_ok()
}

/// The head to store, and its freshness, for a head that was put together here.
pub(crate) fn to_store(
    core: &Core,
    request: &Request,
    request_time: i64,
    head: &ResponseHead,
    purge_number: u64,
) -> (StoredHead, Times) {
    let snapshot = request.snapshot();
    let cc = CacheControl::of_response(&head.fields, &snapshot.freshness.target_list);
    let rule = snapshot.refresh_rule(request.cache_url());
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

/// Updates the record on disk in the background.
fn update_on_disk(core: &Rc<Core>, writer: &FlowWriter, record: Record, confirmed: Confirmed) {
    let cache = Arc::clone(&core.shared.cache);
    let (flow, writing) = (Arc::clone(writer.flow()), writer.writing());
    turns::spawn_local(async move {
        cache.update_on_disk(flow.epoch(), &record, &confirmed).await;
        drop(writing);
    });
}

/// Announces an answer that will be stored, or that confirms a stored one. Another answer may have
/// been on its way at the same time. If nobody can say which is newer, nothing of the URL is kept.
/// Returns whether this answer is the newest.
pub(crate) async fn announce(
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

pub(crate) fn record(key: Key, url: &[u8], head: &StoredHead, times: Times) -> Record {
    Record { key, kind: RecordKind::Object, url: url.into(), head: head.bytes().into(), times }
}

/// The facts that a flow publishes about an object that is served unchanged.
pub(crate) fn object_info(object: &Object) -> FlowInfo {
    FlowInfo::of_stored(object.key, Some(object.body_bytes()), object.times)
}
