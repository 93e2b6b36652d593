//! Parts of answers (RFC 9111 3.3 and 3.4), received in 206 answers, stored and listed. Parts are
//! put together only if a strong validator says that they belong to the same answer.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use humboldt_freshness as freshness;
use humboldt_http::range::{self, ContentRange};
use humboldt_http::{FieldName, ResponseHead};
use humboldt_runtime::turns;
use humboldt_store::disk::{DiskEntry, Lookup};
use humboldt_store::flow::{Flow, Writing};
use humboldt_store::{Key, NotListed, Object, PARTIAL, Part};

use crate::core::Core;
use crate::fetch::validator::{strong_validator, validator};
use crate::request::Request;
use crate::storing::freshen;

/// The bytes of an answer that a 206 has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Portion {
    /// The bytes, without the end of the range.
    pub bytes: Range<u64>,
    /// Length of the whole.
    pub complete_bytes: u64,
    /// Whether it may be put together with other parts.
    pub combinable: bool,
}

/// A part that is being stored.
pub(crate) struct NewPart {
    /// Key of the list of parts.
    pub list: Key,
    /// Its own key.
    pub key: Key,
    /// The bytes that it has.
    pub portion: Portion,
    /// The head as it was received.
    pub received: ResponseHead,
}

impl NewPart {
    /// Whether all its bytes have arrived.
    pub(crate) fn is_complete(&self, written: u64) -> bool {
        self.portion.bytes.end - self.portion.bytes.start == written
    }
}

/// The part that a 206 has, if it can be stored. `range` is the field that asked for it;
/// `body_bytes` is the length of its own body, if known.
///
/// If the last N bytes were asked for and N bytes came, the server may still name a wrong last
/// byte. Its first byte and its framing are trusted, since they framed the body, and the whole is
/// taken to end where the part ends. Such a part is never put together with others.
pub(crate) fn portion(
    head: &ResponseHead,
    range: &[u8],
    body_bytes: Option<u64>,
) -> Option<Portion> {
    let fields = &head.fields;
    if head.status != PARTIAL || fields.is_repeated(FieldName::ContentRange) {
        return None;
    }
    let said = fields.get(FieldName::ContentRange).and_then(ContentRange::parse)?;
    let (part, complete_bytes) = (said.range?, said.complete_bytes?);
    let bytes = part.first..part.last.checked_add(1)?;
    match body_bytes {
        Some(body_bytes) if body_bytes != part.byte_count() => {
            let end = bytes.start.checked_add(body_bytes)?;
            let is_what_was_asked_for = range::parse_range(range)?.suffix_bytes()
                == Some(body_bytes)
                && bytes.start > 0
                && (bytes.start + 1..bytes.end).contains(&end)
                && bytes.end == complete_bytes;
            let bytes = bytes.start..end;
            is_what_was_asked_for.then_some(Portion {
                bytes,
                complete_bytes: end,
                combinable: false,
            })
        }
        _ => Some(Portion { bytes, complete_bytes, combinable: strong_validator(head).is_some() }),
    }
}

/// Adds a stored part to its list, and writes the list to disk. Does nothing if the whole answer is
/// stored already.
pub(crate) fn add(
    core: &Rc<Core>,
    request: &Rc<Request>,
    request_time: i64,
    (flow, writing): (&Arc<Flow>, Writing),
    new: NewPart,
) {
    let cache = &core.shared.cache;
    if cache.mem().contains(&new.list) || !cache.on_disk(&new.list) {
        return list_part(core, request, request_time, (flow, writing), new);
    }
    let (core, request, flow) = (Rc::clone(core), Rc::clone(request), Arc::clone(flow));
    turns::spawn_local(async move {
        let cache = &core.shared.cache;
        match cache.open(request.key, &new.list, request.cache_url()).await {
            Lookup::Found(DiskEntry::Object(hit)) if hit.head.status == PARTIAL => {
                // The list grows in memory.
                drop(hit.into_object(cache).await);
            }
            Lookup::Found(DiskEntry::Object(hit)) => {
                let whole = validator(&hit.head.to_response_head());
                if whole.is_some_and(|own| own.is_of(&new.received)) {
                    return;
                }
            }
            _ => {}
        }
        list_part(&core, &request, request_time, (&flow, writing), new);
    });
}

fn list_part(
    core: &Rc<Core>,
    request: &Request,
    request_time: i64,
    (flow, writing): (&Flow, Writing),
    new: NewPart,
) {
    let epoch = flow.epoch();
    let NewPart { list, key, portion, received } = new;
    let part = Part { bytes: portion.bytes.clone(), key };
    let merge = |present: Option<&Object>| {
        if let Some(whole) = present.filter(|object| object.head.status != PARTIAL)
            && validator(&whole.head.to_response_head()).is_some_and(|own| own.is_of(&received))
        {
            return None;
        }
        // A whole answer of another version makes way.
        let present = present.filter(|object| object.head.status == PARTIAL);
        let stored = present.map(|object| object.head.to_response_head());
        let belongs = portion.combinable
            && stored
                .as_ref()
                .is_some_and(|stored| validator(stored).is_some_and(|own| own.is_of(&received)));
        let mut head = match stored {
            Some(stored) if belongs => freshness::update_304(&stored, &received),
            _ => received.clone(),
        };
        head.fields.remove(FieldName::ContentRange);
        // A purge of one part purges the list, so the list takes the oldest purge number.
        let listed =
            present.filter(|_| belongs).map_or(u64::MAX, |object| object.times.purge_number);
        let purge_number = flow.purge_number().min(listed);
        let (head, times) = freshen::to_store(core, request, request_time, &head, purge_number);
        Some((head, times, belongs))
    };
    let cache = &core.shared.cache;
    let url = request.cache_url();
    let core = Rc::clone(core);
    let object = match cache.add_part(epoch, list, url, portion.complete_bytes, part, merge) {
        Ok(object) => object,
        Err(NotListed::Needless) => return,
        Err(NotListed::NoRoom) => {
            turns::spawn_local(async move {
                let _writing = writing;
                core.shared.cache.remove_from_disk(&list).await;
            });
            return;
        }
    };
    let dir = cache.select_dir(Some(object.body_bytes()));
    turns::spawn_local(async move {
        let _writing = writing;
        let cache = &core.shared.cache;
        let Some(dir) = dir else {
            cache.remove_from_disk(&object.key).await;
            return;
        };
        if let Err(error) = cache.write_object(epoch, &object, dir, None).await {
            tracing::debug!("a list of parts is not written to disk: {error}");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(
        asked: &str,
        content_range: &str,
        body_bytes: Option<u64>,
    ) -> Option<(Range<u64>, u64, bool)> {
        let mut head = ResponseHead { status: PARTIAL, ..ResponseHead::default() };
        head.fields.push(FieldName::ContentRange, content_range.as_bytes());
        head.fields.push(FieldName::Etag, b"\"a\"");
        portion(&head, asked.as_bytes(), body_bytes)
            .map(|portion| (portion.bytes, portion.complete_bytes, portion.combinable))
    }

    #[test]
    fn portions() {
        let five = "bytes=0-4";
        assert_eq!(said(five, "bytes 0-4/10", Some(5)), Some((0..5, 10, true)));
        assert_eq!(said(five, "bytes 0-4/10", None), Some((0..5, 10, true)));
        assert_eq!(said(five, "bytes 0-4/10", Some(4)), None);
        assert_eq!(said(five, "bytes 0-4/10", Some(6)), None);
        assert_eq!(said(five, "bytes 5-9/10", Some(0)), None);
        assert_eq!(said(five, "bytes 0-4/*", Some(5)), None);
        assert_eq!(said(five, "bytes */10", Some(5)), None);
        assert_eq!(said(five, "lines 0-4/10", Some(5)), None);
        let mut whole = ResponseHead { status: 200, ..ResponseHead::default() };
        whole.fields.push(FieldName::ContentRange, b"bytes 0-4/10");
        assert_eq!(portion(&whole, b"bytes=0-4", Some(5)), None);
    }

    #[test]
    fn the_last_bytes_with_a_wrong_number() {
        assert_eq!(said("bytes=-5", "bytes 4-9/10", Some(5)), Some((4..9, 9, false)));
        assert_eq!(said("bytes=-5", "bytes 5-9/10", Some(5)), Some((5..10, 10, true)));
        for (asked, content_range, body_bytes) in [
            ("bytes=-6", "bytes 4-9/10", 5),
            ("bytes=4-", "bytes 4-9/10", 5),
            ("bytes=4-9", "bytes 4-9/10", 5),
            ("bytes=-5,0-1", "bytes 4-9/10", 5),
            ("bytes=-5", "bytes 0-9/10", 5),
            ("bytes=-5", "bytes 4-8/10", 4),
            ("bytes=-5", "bytes 6-9/10", 5),
            ("bytes=-0", "bytes 4-9/10", 0),
        ] {
            assert_eq!(
                said(asked, content_range, Some(body_bytes)),
                None,
                "{asked} {content_range}"
            );
        }
    }
}
