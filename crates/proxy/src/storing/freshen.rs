//! Stored answers with heads that their servers have brought up to date.

use std::rc::Rc;
use std::sync::Arc;

use humboldt_freshness::{self as freshness, CacheControl, Times};
use humboldt_http::{FieldName, HopByHop, ResponseHead};
use humboldt_store::scheme::{Confirmed, Record, RecordKind};
use humboldt_store::{
    Fate, FlowInfo, FlowWriter, Key, Object, PARTIAL, Standing, StoredHead, next_serial,
};

use crate::core::Core;
use crate::fetch::converse::Answer;
use crate::fetch::job::{Stale, StaleBody};
use crate::request::Request;
use crate::storing::head::{skips_reply_field, without_void_expires};
use crate::storing::invalidate::forget_all;

/// What a 200 to HEAD says about the stored answer to GET (RFC 9111 4.3.5): the same validator
/// makes it fresh again, a difference in validators or length makes it void. Without a validator
/// nothing is known.
pub(crate) async fn learn_from_head(
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
    let length = answer.head.fields.get(FieldName::ContentLength).and(answer.body_bytes());
    let has_other_length =
        length.is_some() && stale.body_bytes().is_some() && length != stale.body_bytes();
    if validators.into_iter().any(differs) || has_other_length {
        forget_all(core, request.key).await;
    } else if validators.into_iter().any(|name| answer.head.fields.has(name)) {
        freshen(core, request, stale, answer, writer).await;
    }
}

/// The stored answer with a head that the server has brought up to date, wherever it is stored.
pub(crate) async fn freshen(
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

/// What a flow says about an object that is served as it is.
pub(crate) fn object_info(object: &Object) -> FlowInfo {
    FlowInfo {
        key: object.key,
        body_bytes: Some(object.body_bytes()),
        fate: Fate::Shared,
        times: Some(object.times),
        vary: None,
    }
}
