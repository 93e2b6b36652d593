//! Answers of which only parts are stored (RFC 9111 3.3 and 3.4): parts that servers sent are kept,
//! ranges are served from what is there, and what is missing in between is fetched. Parts are only
//! put together when a strong validator says that they belong to the same answer.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use humboldt_freshness::{self as freshness, Disposition};
use humboldt_http::range::{self, ByteRange, ContentRange, Resolved};
use humboldt_http::{FieldName, ResponseHead};
use humboldt_logs::access::Tag;
use humboldt_store::disk::{DiskEntry, Lookup};
use humboldt_store::flow::{Flow, Writing};
use humboldt_store::{Entry, FlowReader, Key, Object, PARTIAL, Part, PartList, Piece, ReaderKind};

use crate::access;
use crate::answer;
use crate::assemble::{self, Assembly, Source};
use crate::cache_status::Forward;
use crate::client::{After, ClientConn};
use crate::core::Core;
use crate::fetch::{self, Answer};
use crate::job::{Job, Report};
use crate::memory::{self, Found};
use crate::pipeline;
use crate::refresh;
use crate::reply;
use crate::request::Request;
use crate::resume::strong_validator;

/// Most pieces that one answer is put together from; an answer of more is fetched.
const PIECES_MAX: usize = 64;

/// Which bytes of an answer a 206 has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Portion {
    /// These, the last one excluded.
    pub bytes: Range<u64>,
    /// Length of the whole.
    pub complete_bytes: u64,
    /// Whether it may be put together with others.
    pub combinable: bool,
}

/// A part that is being stored.
pub(crate) struct NewPart {
    /// Key of the list that will lead to it.
    pub list: Key,
    /// Its own key.
    pub key: Key,
    /// Which bytes it has.
    pub portion: Portion,
    /// The head as it was received.
    pub received: ResponseHead,
}

impl NewPart {
    /// Whether all its bytes have come.
    pub(crate) fn is_complete(&self, written: u64) -> bool {
        self.portion.bytes.end - self.portion.bytes.start == written
    }
}

/// What a 206 has, if that can be stored. `range` is the field that asked for it, `body_bytes` the
/// length of its own body, where known.
///
/// Where the last bytes were asked for and just as many came, the server may say a wrong number for
/// the last one all the same. Its first byte and its framing are believed, since the body was
/// framed by them; the whole ends where the part ends. Such a part stays alone.
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

/// Puts a part that has been stored on the list, and the list on disk. Nothing happens where the
/// whole is there already.
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
    tokio::task::spawn_local(async move {
        let cache = &core.shared.cache;
        match cache.open(request.key, &new.list, request.url.as_bytes()).await {
            Lookup::Found(DiskEntry::Object(hit)) if hit.head.status == PARTIAL => {
                // From memory it gets longer.
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
        // A purge that concerns one part concerns the list.
        let listed =
            present.filter(|_| belongs).map_or(u64::MAX, |object| object.times.purge_number);
        let purge_number = flow.purge_number().min(listed);
        let (head, times) = refresh::to_store(core, request, request_time, &head, purge_number);
        (head, times, belongs)
    };
    let cache = &core.shared.cache;
    let url = request.url.as_bytes();
    let Some(object) = cache.add_part(epoch, list, url, portion.complete_bytes, part, merge) else {
        return;
    };
    let dir = cache.select_dir(Some(object.body_bytes()));
    let core = Rc::clone(core);
    tokio::task::spawn_local(async move {
        let _writing = writing;
        let cache = &core.shared.cache;
        let Some(dir) = dir else {
            cache.remove_from_disk(&object.key).await;
            return;
        };
        if let Err(error) = cache.write_object(epoch, &object, dir).await {
            tracing::debug!("a list of parts is not written to disk: {error}");
        }
    });
}

/// By what two answers are known to be the same to the last byte.
struct Validator {
    name: FieldName,
    value: Vec<u8>,
}

impl Validator {
    fn is_of(&self, head: &ResponseHead) -> bool {
        strong_validator(head) == Some(self.name) && head.fields.get(self.name) == Some(&self.value)
    }
}

fn validator(head: &ResponseHead) -> Option<Validator> {
    let name = strong_validator(head)?;
    Some(Validator { name, value: head.fields.get(name)?.to_vec() })
}

/// Whether the whole answer is fetched for a request that asks for a range of it
/// (`range_offset_limit`).
pub(crate) fn is_fetched_whole(request: &Request) -> bool {
    let fields = &request.head.fields;
    if !fields.has(FieldName::Range)
        || memory::has_own_copy(request)
        || memory::needs_origin(request)
    {
        return false;
    }
    let rules = request.snapshot().range_offset_limits.iter();
    match rules
        .map(|(limit, condition)| (limit, access::matches(condition, request)))
        .find(|rule| rule.1)
    {
        None | Some((Some(0), _)) => false,
        Some((None, _)) => true,
        Some((Some(limit_bytes), _)) => {
            let set = fields.get(FieldName::Range).and_then(range::parse_range);
            set.and_then(|set| set.first_byte()).is_some_and(|first| first <= *limit_bytes)
        }
    }
}

/// What a list of parts means for a request. Only fresh ones count: anything else is fetched as if
/// there were none, and what comes may join the list then.
pub(crate) fn judge(request: &Request, key: Key, object: Arc<Object>) -> Found {
    let snapshot = request.snapshot();
    let rule = || snapshot.refresh_rule(request.url.as_bytes());
    let found = Found { key: Some(key), ..Found::default() };
    match freshness::judge(
        &object.times,
        &request.cc,
        &snapshot.freshness,
        rule,
        request.received.secs(),
    ) {
        Disposition::Fresh => Found { parts: Some(object), ..found },
        Disposition::Refetch => Found { reload: true, ..found },
        Disposition::GatewayTimeout => Found { refuse: true, ..found },
        Disposition::StaleWhileRevalidate | Disposition::Revalidate { .. } => {
            Found { skip_disk: true, forward: Forward::Stale, ..found }
        }
    }
}

/// Serves a request from stored parts, with what is missing from the server. `None`: not possible,
/// nothing was sent.
pub(crate) async fn serve(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: &Rc<Request>,
    object: &Arc<Object>,
) -> Option<After> {
    let mut list = PartList::of(object)?;
    let wanted = wanted(request, object, list.complete_bytes)?;
    if let Err(refusal) = reply::check(request, &object.head, Some(wanted.body_bytes())) {
        return Some(answer::refused(core, conn, request, refusal, None).await);
    }
    let report = Report::because(Forward::Partial);
    let wanted_bytes = wanted.all();
    let opening = conn.while_it_stays(request, open(core, request, &mut list, &wanted_bytes)).await;
    let Some(opening) = opening else {
        return Some(answer::gone(core, conn, request, Tag::Hit, None));
    };
    let (pieces, mut opened) = opening?;
    let mut tag = Tag::Hit;
    if let Some(gap) = gap(&pieces) {
        if matches!(wanted, Wanted::Several(_)) {
            return None;
        }
        if request.cc.only_if_cached() {
            return None;
        }
        let may_miss = conn.while_it_stays(request, access::may_miss(core, request)).await;
        let Some(may_miss) = may_miss else {
            return Some(answer::gone(core, conn, request, Tag::Miss, None));
        };
        if let Err(refusal) = may_miss {
            return Some(answer::refused(core, conn, request, refusal, None).await);
        }
        let fetch = fetch_gap(core, request, object, &gap, list.complete_bytes, &wanted, &report);
        let Some(fetched) = conn.while_it_stays(request, fetch).await else {
            return Some(answer::gone(core, conn, request, Tag::Miss, Some(&report)));
        };
        let reader = match fetched? {
            Fetched::Gap(reader) => reader,
            Fetched::Whole(reader) => {
                return pipeline::follow(core, conn, request, reader, Some(&report), Tag::Miss)
                    .await;
            }
        };
        opened.fill(&pieces, &gap, reader);
        tag = Tag::Miss;
    }
    let assembly = opened.assemble(object, &wanted, list.complete_bytes);
    pipeline::serve_assembled(core, conn, request, assembly, &report, tag).await
}

/// What a request wants of an answer whose length is known.
enum Wanted {
    Whole(u64),
    One(ByteRange),
    Several(Vec<ByteRange>),
}

impl Wanted {
    /// All bytes of it, range after range.
    fn all(&self) -> Vec<Range<u64>> {
        let bytes = |one: &ByteRange| one.first..one.last + 1;
        match self {
            Self::Whole(complete_bytes) => std::iter::once(0..*complete_bytes).collect(),
            Self::One(one) => std::iter::once(bytes(one)).collect(),
            Self::Several(several) => several.iter().map(bytes).collect(),
        }
    }

    fn body_bytes(&self) -> u64 {
        self.all().iter().map(|range| range.end - range.start).sum()
    }
}

fn wanted(request: &Request, object: &Object, complete_bytes: u64) -> Option<Wanted> {
    if complete_bytes == 0 {
        return None;
    }
    match assemble::wanted(request, &object.head, object.times.date, complete_bytes)? {
        Resolved::Whole => Some(Wanted::Whole(complete_bytes)),
        Resolved::Unsatisfiable => None,
        Resolved::Satisfiable(ranges) => Some(match ranges.as_slice() {
            [one] => Wanted::One(*one),
            _ => Wanted::Several(ranges),
        }),
    }
}

/// The stored pieces of an answer, opened. A gap has no source yet.
struct Opened {
    disk: Vec<humboldt_store::DiskHit>,
    /// For each piece.
    sources: Vec<Option<Source>>,
    /// For each wanted range, how many pieces it has.
    counts: Vec<usize>,
}

/// Opens what is stored of the wanted ranges. A part that is not there any more is dropped from the
/// list, and becomes a gap. `None` when nothing is there, or too many pieces.
async fn open(
    core: &Rc<Core>,
    request: &Request,
    list: &mut PartList,
    wanted: &[Range<u64>],
) -> Option<(Vec<Piece>, Opened)> {
    'anew: loop {
        let each: Vec<Vec<Piece>> = wanted.iter().map(|range| list.pieces(range.clone())).collect();
        let counts = each.iter().map(Vec::len).collect();
        let pieces: Vec<Piece> = each.into_iter().flatten().collect();
        if pieces.len() > PIECES_MAX || pieces.iter().all(|piece| matches!(piece, Piece::Gap(_))) {
            return None;
        }
        let mut opened =
            Opened { disk: Vec::new(), sources: Vec::with_capacity(pieces.len()), counts };
        for piece in &pieces {
            let Piece::Stored { key, from, bytes } = piece else {
                opened.sources.push(None);
                continue;
            };
            let range = *from..*from + (bytes.end - bytes.start);
            match open_part(core, request, key, range, &mut opened.disk).await {
                Some(source) => opened.sources.push(Some(source)),
                None => {
                    list.forget(key);
                    continue 'anew;
                }
            }
        }
        return Some((pieces, opened));
    }
}

async fn open_part(
    core: &Rc<Core>,
    request: &Request,
    key: &Key,
    range: Range<u64>,
    disk: &mut Vec<humboldt_store::DiskHit>,
) -> Option<Source> {
    let cache = &core.shared.cache;
    let has = |len: u64| (range.end <= len).then_some(());
    if let Some(Entry::Object(object)) = cache.lookup(key) {
        has(object.body_bytes())?;
        let is_ours = *object.url == *request.url.as_bytes();
        return is_ours.then(|| Source::Memory(object, range));
    }
    let Lookup::Found(DiskEntry::Object(mut hit)) =
        cache.open(request.key, key, request.url.as_bytes()).await
    else {
        return None;
    };
    let body_bytes = hit.body_bytes().filter(|_| hit.is_complete())?;
    has(body_bytes)?;
    if body_bytes <= cache.memory_object_bytes_max() && hit.reserve(cache, true) {
        return hit.into_object(cache).await.map(|object| Source::Memory(object, range));
    }
    disk.push(hit);
    Some(Source::Disk(disk.len() - 1, range))
}

/// From the first missing byte to the last one; what is stored between them is fetched again.
fn gap(pieces: &[Piece]) -> Option<Range<u64>> {
    let mut gaps = pieces.iter().filter_map(|piece| match piece {
        Piece::Gap(bytes) => Some(bytes),
        Piece::Stored { .. } => None,
    });
    let first = gaps.next()?;
    Some(first.start..gaps.next_back().unwrap_or(first).end)
}

impl Opened {
    /// Puts what was fetched for the gap into its place.
    fn fill(&mut self, pieces: &[Piece], gap: &Range<u64>, reader: FlowReader) {
        let mut reader = Some(reader);
        for (piece, source) in pieces.iter().zip(&mut self.sources) {
            let (Piece::Gap(bytes) | Piece::Stored { bytes, .. }) = piece;
            if bytes.start >= gap.start && bytes.end <= gap.end {
                *source =
                    reader.take().map(|reader| Source::Flow(reader, 0..gap.end - gap.start, None));
            }
        }
    }

    fn assemble(self, object: &Object, wanted: &Wanted, complete_bytes: u64) -> Assembly {
        let received = object.head.to_response_head();
        let of = |range: &ByteRange| ContentRange {
            range: Some(*range),
            complete_bytes: Some(complete_bytes),
        };
        let (head, sources) = match wanted {
            Wanted::Whole(_) => {
                (assemble::head_of(received, None), self.sources.into_iter().flatten().collect())
            }
            Wanted::One(one) => (
                assemble::head_of(received, Some(of(one))),
                self.sources.into_iter().flatten().collect(),
            ),
            Wanted::Several(ranges) => {
                let mut rest = self.sources.into_iter().flatten();
                let mut counts = self.counts.into_iter();
                assemble::multipart(received, ranges, complete_bytes, |_| {
                    rest.by_ref().take(counts.next().unwrap_or(0)).collect()
                })
            }
        };
        Assembly { head, times: Some(object.times), key: object.key, disk: self.disk, sources }
    }
}

enum Fetched {
    /// Exactly the bytes that were missing.
    Gap(FlowReader),
    /// The server has another answer by now, and sent it whole.
    Whole(FlowReader),
}

/// Fetches what is missing, and stores it as one more part.
async fn fetch_gap(
    core: &Rc<Core>,
    request: &Rc<Request>,
    object: &Object,
    gap: &Range<u64>,
    complete_bytes: u64,
    wanted: &Wanted,
    report: &Rc<Report>,
) -> Option<Fetched> {
    let validator = validator(&object.head.to_response_head());
    let to_the_end = gap.end == complete_bytes;
    // Without a validator no parts can be put together; but a server may answer with the whole.
    if validator.is_none() && !(matches!(wanted, Wanted::Whole(_)) && to_the_end) {
        return None;
    }
    let last = (!to_the_end).then(|| gap.end - 1);
    let mut again = request.for_range(gap.start, last, validator.as_ref().map(|own| &*own.value));
    again.received = core.now();
    let mut job = Job::as_asked(&Rc::new(again), report);
    let mut writer = core.shared.cache.private(request.key, request.key);
    let answer = fetch::converse(core, &job, &mut writer).await.ok()?;
    let fetched = match &validator {
        Some(own) if is_gap(&answer, own, gap, complete_bytes) => Fetched::Gap,
        _ if answer.head.status == 200 => Fetched::Whole,
        _ => return None,
    };
    let reader = writer.subscribe(ReaderKind::Client)?;
    let core = Rc::clone(core);
    tokio::task::spawn_local(async move { fetch::deliver(&core, &mut job, answer, writer).await });
    Some(fetched(reader))
}

fn is_gap(answer: &Answer, validator: &Validator, gap: &Range<u64>, complete_bytes: u64) -> bool {
    validator.is_of(&answer.head)
        && portion(&answer.head, b"", answer.body_bytes).is_some_and(|portion| {
            portion.bytes == *gap && portion.complete_bytes == complete_bytes && portion.combinable
        })
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

    #[test]
    fn a_gap_reaches_from_the_first_missing_byte_to_the_last() {
        let stored = |bytes| Piece::Stored { key: Key(1), from: 0, bytes };
        assert_eq!(gap(&[stored(0..5)]), None);
        assert_eq!(gap(&[Piece::Gap(0..5), stored(5..9)]), Some(0..5));
        let twice = [stored(0..1), Piece::Gap(1..2), stored(2..5), Piece::Gap(5..7), stored(7..9)];
        assert_eq!(gap(&twice), Some(1..7));
    }
}
