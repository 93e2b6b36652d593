//! Answers that are put together from stored parts; the server supplies the missing bytes.

use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use humboldt_http::range::{ByteRange, ContentRange, Resolved};
use humboldt_logs::access::Tag;
use humboldt_store::disk::{DiskEntry, Lookup};
use humboldt_store::{Entry, FlowReader, Key, Object, PartList, Piece, ReaderKind};

use crate::config::cache_status::Forward;
use crate::core::Core;
use crate::fetch::converse::{Answer, converse};
use crate::fetch::job::{Job, Report};
use crate::fetch::validator::{Validator, validator};
use crate::lookup::selection;
use crate::outcome::Outcome;
use crate::reply::assemble::{self, Assembly, Source};
use crate::reply::follow::{self, follow};
use crate::reply::{facts, local};
use crate::request::Request;
use crate::rules::{permission, reply};
use crate::storing::{deliver, parts};
use crate::transaction::{Served, Transaction};

/// Most pieces of one answer. An answer that would need more is fetched.
const PIECES_MAX: usize = 64;

/// Serves a request from stored parts; the server supplies the missing bytes.
pub(crate) async fn serve(transaction: &mut Transaction<'_>, object: &Arc<Object>) -> Served {
    match put_together(transaction, object).await {
        Some(served) => served,
        None => Served::LookAgain,
    }
}

/// `None`: the parts cannot answer the request.
async fn put_together(transaction: &mut Transaction<'_>, object: &Arc<Object>) -> Option<Served> {
    let (core, request) = (transaction.core, transaction.request);
    let mut list = PartList::of(object)?;
    let wanted = wanted(request, object, list.complete_bytes)?;
    let report = Report::because(Forward::Partial);
    let gone = |transaction: &Transaction<'_>, tag| {
        let outcome = Outcome::miss(tag, 0, Some(report.route()));
        Some(Served::Done(transaction.client_gone(outcome)))
    };
    if facts::gather(transaction, &object.head).await.is_none() {
        return gone(transaction, Tag::Hit);
    }
    if let Err(refusal) = reply::check(request, &object.head, Some(wanted.body_bytes())) {
        return Some(Served::Done(local::refused(transaction, refusal, None).await));
    }
    let wanted_bytes = wanted.all();
    let opening = open(core, request, &mut list, &wanted_bytes);
    let Some(opening) = transaction.while_it_stays(pin!(opening)).await else {
        return gone(transaction, Tag::Hit);
    };
    let (pieces, mut opened) = opening?;
    let mut tag = Tag::Hit;
    if let Some(gap) = gap(&pieces) {
        if matches!(wanted, Wanted::Several(_)) || request.cc.only_if_cached() {
            return None;
        }
        let may_miss = transaction.while_it_stays(pin!(permission::may_miss(core, request))).await;
        match may_miss {
            None => return gone(transaction, Tag::Miss),
            Some(Err(refusal)) => {
                return Some(Served::Done(local::refused(transaction, refusal, None).await));
            }
            Some(Ok(())) => {}
        }
        let fetch = fetch_gap(core, request, object, &gap, list.complete_bytes, &wanted, &report);
        let Some(fetched) = transaction.while_it_stays(pin!(fetch)).await else {
            return gone(transaction, Tag::Miss);
        };
        let reader = match fetched? {
            Fetched::Gap(reader) => reader,
            Fetched::Whole(reader) => {
                return Some(follow(transaction, reader, Some(&report), Tag::Miss).await);
            }
        };
        opened.fill(&pieces, &gap, reader);
        tag = Tag::Miss;
    }
    let assembly = opened.assemble(object, &wanted, list.complete_bytes);
    Some(follow::assembled(transaction, assembly, &report, tag).await)
}

/// The bytes that a request wants of an answer whose length is known.
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
    match selection::wanted(request, &object.head, object.times.date, complete_bytes)? {
        Resolved::Whole => Some(Wanted::Whole(complete_bytes)),
        Resolved::Unsatisfiable => None,
        Resolved::Satisfiable(ranges) => Some(match ranges.as_slice() {
            [one] => Wanted::One(*one),
            _ => Wanted::Several(ranges),
        }),
    }
}

/// The stored pieces of an answer, opened for reading. A gap has no source yet.
struct Opened {
    disk: Vec<humboldt_store::DiskHit>,
    /// The source of each piece.
    sources: Vec<Option<Source>>,
    /// The number of pieces of each wanted range.
    counts: Vec<usize>,
}

/// Opens the stored pieces of the wanted ranges. A part that has been removed is dropped from the
/// list and becomes a gap. `None` if no piece is left, or there are too many.
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
        let is_ours = *object.url == *request.cache_url();
        return is_ours.then(|| Source::Memory(object, range));
    }
    let Lookup::Found(DiskEntry::Object(mut hit)) =
        cache.open(request.key, key, request.cache_url()).await
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

/// The bytes from the first missing byte to the last one. Stored bytes between them are fetched
/// again, so that one request is enough.
fn gap(pieces: &[Piece]) -> Option<Range<u64>> {
    let mut gaps = pieces.iter().filter_map(|piece| match piece {
        Piece::Gap(bytes) => Some(bytes),
        Piece::Stored { .. } => None,
    });
    let first = gaps.next()?;
    Some(first.start..gaps.next_back().unwrap_or(first).end)
}

impl Opened {
    /// Makes the fetched bytes of the gap the source of its pieces.
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
    /// The server has a different answer by now, and sent it whole.
    Whole(FlowReader),
}

/// Fetches the missing bytes, and stores them as one more part.
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
    // Without a validator no parts can be put together. Only a request for the whole answer may go
    // on: the server may send that.
    if validator.is_none() && !(matches!(wanted, Wanted::Whole(_)) && to_the_end) {
        return None;
    }
    let last = (!to_the_end).then(|| gap.end - 1);
    let mut again = request.for_range(gap.start, last, validator.as_ref().map(|own| &*own.value));
    again.received = core.now();
    let job = Job::as_asked(&Rc::new(again), report);
    let mut writer = core.shared.cache.private(request.key, request.key);
    let answer = converse(core, &job, &mut writer).await.ok()?;
    let fetched = match &validator {
        Some(own) if is_gap(&answer, own, gap, complete_bytes) => Fetched::Gap,
        _ if answer.head.status == 200 => Fetched::Whole,
        _ => return None,
    };
    let reader = writer.subscribe(ReaderKind::Client)?;
    deliver::go_on(core, job, answer, writer);
    Some(fetched(reader))
}

fn is_gap(answer: &Answer, validator: &Validator, gap: &Range<u64>, complete_bytes: u64) -> bool {
    validator.is_of(&answer.head)
        && parts::portion(&answer.head, b"", answer.body_bytes()).is_some_and(|portion| {
            portion.bytes == *gap && portion.complete_bytes == complete_bytes && portion.combinable
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_reaches_from_the_first_missing_byte_to_the_last() {
        let stored = |bytes| Piece::Stored { key: Key(1), from: 0, bytes };
        assert_eq!(gap(&[stored(0..5)]), None);
        assert_eq!(gap(&[Piece::Gap(0..5), stored(5..9)]), Some(0..5));
        let twice = [stored(0..1), Piece::Gap(1..2), stored(2..5), Piece::Gap(5..7), stored(7..9)];
        assert_eq!(gap(&twice), Some(1..7));
    }
}
