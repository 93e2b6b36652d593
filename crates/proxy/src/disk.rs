//! Answers that are on disk: small ones move to memory and are served from there, large ones are streamed through a flow that
//! others can join, and a range of a large one is read by itself.

use std::rc::Rc;

use humboldt_base::counters::Counter;
use humboldt_freshness::{self as freshness, Disposition};
use humboldt_http::conditional::{self, Validators};
use humboldt_http::range::{self, ByteRange, ContentRange, Resolved};
use humboldt_http::{FieldName, Method};
use humboldt_logs::access::Tag;
use humboldt_store::disk::{DiskEntry, DiskHit};
use humboldt_store::{AbortReason, Begin, Entry, ReaderKind};

use crate::answer;
use crate::client::{After, ClientConn};
use crate::core::Core;
use crate::fetch::{Report, Stale, StaleBody};
use crate::hit::{self, HitObject, write_connection};
use crate::log::{self, Outcome};
use crate::pipeline::{self, Found};
use crate::relay::Ended;
use crate::reply;
use crate::request::Request;

/// Bytes read from disk at a time for a range.
const READ_BYTES: usize = 64 * 1024;

/// What was found on disk.
pub(crate) enum Stored {
    /// Serve this.
    Object(HitObject),
    /// Too large for memory: stream it.
    Stream(Box<DiskHit>),
    /// Something that cannot be served as it is: `Found` says what to do.
    Judged,
}

/// Looks a request up in the cache directories. `None`: not there.
pub(crate) async fn look_up(core: &Rc<Core>, request: &Rc<Request>, found: &mut Found) -> Option<Stored> {
    let cache = &core.shared.cache;
    let mut key = found.key?;
    // A Vary marker leads to a second look-up, never to a third.
    for _ in 0..2 {
        if !cache.on_disk(&key) {
            return None;
        }
        let Some(entry) = cache.open(request.key, &key, request.url.as_bytes()).await else {
            core.count(Counter::SwapInErrors, 1);
            return None;
        };
        match entry {
            DiskEntry::Object(hit) => return Some(judge(core, request, hit, found).await),
            DiskEntry::Vary(marker) => {
                key = pipeline::variant_key(request, &marker);
                found.key = Some(key);
                if let Some(Entry::Object(_)) = cache.lookup(&key) {
                    return pipeline::look_up_again(core, request, found);
                }
            }
        }
    }
    None
}

/// Decides what to do with an answer on disk.
async fn judge(core: &Rc<Core>, request: &Rc<Request>, hit: DiskHit, found: &mut Found) -> Stored {
    let snapshot = request.snapshot();
    if !hit.is_complete() || pipeline::needs_origin(request) {
        found.pass = true;
        return Stored::Judged;
    }
    let rule = || snapshot.refresh_rule(request.url.as_bytes());
    let disposition =
        freshness::judge(&hit.times, &request.cc, &snapshot.freshness, rule, request.received.secs());
    let body_bytes = hit.body_bytes().unwrap_or(0);
    let small = body_bytes <= core.shared.cache.memory_object_bytes_max();
    core.count(Counter::SwapIns, 1);
    core.count(Counter::SwapInBytes, body_bytes);
    match disposition {
        Disposition::Refetch => found.reload = true,
        Disposition::GatewayTimeout => found.refuse = true,
        Disposition::Fresh if small => match hit.into_object(&core.shared.cache).await {
            Some(object) => {
                return Stored::Object(HitObject { object, tag: Tag::Hit, without_origin: true });
            }
            None => core.count(Counter::SwapInErrors, 1),
        },
        Disposition::Fresh => return Stored::Stream(Box::new(hit)),
        Disposition::StaleWhileRevalidate | Disposition::Revalidate { .. } => {
            found.serve_stale = small && disposition == Disposition::StaleWhileRevalidate;
            let may_serve_on_error = match disposition {
                Disposition::Revalidate { may_serve_stale_on_error } => may_serve_stale_on_error,
                _ => true,
            };
            found.stale = stale(core, hit, small).await.map(|body| Stale { body, may_serve_on_error });
            found.serve_stale &= found.stale.is_some();
            found.swap_failed = found.stale.is_none();
        }
    }
    Stored::Judged
}

async fn stale(core: &Rc<Core>, hit: DiskHit, small: bool) -> Option<StaleBody> {
    match small {
        true => hit.into_object(&core.shared.cache).await.map(StaleBody::Memory),
        false => Some(StaleBody::Disk(Box::new(hit))),
    }
}

/// Serves a fresh answer that is too large for memory.
pub(crate) async fn serve(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: Rc<Request>,
    hit: DiskHit,
) -> After {
    let validators = Validators { etag: hit.head.etag(), last_modified: hit.head.last_modified };
    let fields = &request.head.fields;
    let conditional = conditional::evaluate(request.head.method, fields, validators);
    let wants_part =
        fields.has(FieldName::Range) && conditional::range_applies(fields, validators, hit.times.date);
    if request.head.method == Method::Head || conditional == conditional::Outcome::NotModified || wants_part {
        return serve_alone(core, conn, request, hit, conditional == conditional::Outcome::NotModified).await;
    }
    let begun = core.shared.cache.begin_or_join(request.key, hit.key);
    let reader = match begun {
        Begin::Join(reader) => reader,
        Begin::Lead(writer) => {
            let Some(reader) = writer.subscribe(ReaderKind::Client) else { return After::Abort };
            let core = Rc::clone(core);
            tokio::task::spawn_local(async move { hit.feed(&core.shared.cache, writer, 0).await });
            reader
        }
    };
    let report = Report::new();
    match pipeline::follow(core, conn, &request, reader, Some(&report), Tag::Hit).await {
        Some(after) => after,
        None => After::Abort,
    }
}

/// Serves a head, a 304, or a part, without reading the rest.
async fn serve_alone(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: Rc<Request>,
    mut hit: DiskHit,
    not_modified: bool,
) -> After {
    let len = hit.body_bytes().unwrap_or(0);
    if let Err(refusal) = reply::check(&request, &hit.head, Some(len)) {
        return answer::refused(core, conn, &request, refusal, None).await;
    }
    let wanted = request.head.fields.get(FieldName::Range).and_then(range::parse_range);
    let resolved = wanted.map(|set| range::resolve(&set, len));
    let is_head = request.head.method == Method::Head;
    let (status, part) = match resolved {
        _ if not_modified => (304, None),
        _ if is_head => (200, None),
        Some(Resolved::Satisfiable(ranges)) if ranges.len() == 1 => (206, ranges.first().copied()),
        Some(Resolved::Unsatisfiable) => (416, None),
        _ => (200, len.checked_sub(1).map(|last| ByteRange { first: 0, last })),
    };
    let keep_alive = request.snapshot().keeps_alive(&request) && !core.is_draining();
    let head = part_head(&request, &hit, status, part, len, keep_alive);
    let tag = if status == 304 { Tag::ImsHit } else { Tag::Hit };
    let mut outcome = Outcome::hit(tag, status);
    let mut ended = match answer::write_all(conn, core, &head).await {
        Ok(()) => Ended::Complete,
        Err(_) => Ended::ClientGone,
    };
    outcome.bytes_out = head.len() as u64;
    if let (Some(part), false, Ended::Complete) = (part, is_head, ended) {
        ended = send_part(core, conn, &mut hit, part, &mut outcome).await;
    }
    outcome.aborted = ended != Ended::Complete;
    log::transaction(core, &request, &outcome, hit.head.content_type());
    match ended {
        Ended::Complete if keep_alive => After::Keep,
        Ended::Complete => After::Close,
        _ => After::Abort,
    }
}

fn part_head(
    request: &Request,
    hit: &DiskHit,
    status: u16,
    part: Option<ByteRange>,
    len: u64,
    keep_alive: bool,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(hit.head.bytes().len() + 256);
    hit::write_stored_head(&mut out, status, hit.head.bytes());
    if status == 206 || status == 416 {
        out.extend_from_slice(b"Content-Range: ");
        ContentRange { range: part.filter(|_| status == 206), complete_bytes: Some(len) }.write(&mut out);
        out.extend_from_slice(b"\r\n");
    }
    let length = match status {
        416 => 0,
        206 => part.map_or(0, |part| part.byte_count()),
        _ => len,
    };
    if status != 304 {
        humboldt_http::h1::write_field(
            &mut out,
            b"Content-Length",
            itoa::Buffer::new().format(length).as_bytes(),
        );
    }
    hit::write_hit_fields(&mut out, request, &hit.times);
    write_connection(&mut out, request.head.version, keep_alive);
    out.extend_from_slice(b"\r\n");
    out
}

/// Sends bytes of a stored body, verified before they are sent.
async fn send_part(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    hit: &mut DiskHit,
    part: ByteRange,
    outcome: &mut Outcome,
) -> Ended {
    let mut buffer = vec![0; READ_BYTES];
    let mut at = part.first;
    while at <= part.last {
        let want = usize::try_from(part.last - at + 1).unwrap_or(READ_BYTES).min(READ_BYTES);
        let Some(space) = buffer.get_mut(..want) else { return Ended::ClientGone };
        let got = match hit.read(at, space).await {
            Ok(got) if got > 0 => got,
            _ => {
                core.count(Counter::SwapInErrors, 1);
                return Ended::Aborted(AbortReason::Failed);
            }
        };
        let data = buffer.get(..got.min(want)).unwrap_or_default();
        if answer::write_all(conn, core, data).await.is_err() {
            return Ended::ClientGone;
        }
        at += data.len() as u64;
        outcome.bytes_out += data.len() as u64;
    }
    Ended::Complete
}
