//! Answers that are on disk: small ones are served from where they were read to, or from memory,
//! large ones through a flow that others can join, and a range of a large one is read by itself.

use std::rc::Rc;

use humboldt_base::counters::Counter;
use humboldt_freshness::{self as freshness, Disposition};
use humboldt_http::Method;
use humboldt_http::range::ByteRange;
use humboldt_logs::access::Tag;
use humboldt_store::disk::{DiskEntry, DiskHit, Lookup};
use humboldt_store::{
    AbortReason, Begin, Entry, FlowHead, FlowReader, FlowWriter, Held, PARTIAL, Progress,
    ReaderKind,
};

use crate::answer;
use crate::cache_status::Forward;
use crate::client::{After, ClientConn};
use crate::core::Core;
use crate::hit::{self, HitObject, Selection};
use crate::job::{Report, Stale, StaleBody};
use crate::log::{self, Outcome};
use crate::memory::{self, Found};
use crate::pipeline;
use crate::relay::Ended;
use crate::reply;
use crate::request::Request;
use crate::resume;
use crate::{assemble, partial};

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
pub(crate) async fn look_up(
    core: &Rc<Core>,
    request: &Rc<Request>,
    found: &mut Found,
) -> Option<Stored> {
    let cache = &core.shared.cache;
    let mut key = found.key?;
    // A Vary marker leads to a second look-up, never to a third.
    for _ in 0..2 {
        let entry = match cache.open(request.key, &key, request.url.as_bytes()).await {
            Lookup::Absent => return None,
            Lookup::Found(entry) => entry,
            Lookup::Failed => {
                core.count(Counter::SwapInErrors, 1);
                found.swap_failed = true;
                return None;
            }
        };
        match entry {
            DiskEntry::Object(hit) => return Some(judge(core, request, hit, found).await),
            DiskEntry::Vary(marker) => {
                key = memory::variant_key(request, &marker);
                found.key = Some(key);
                found.forward = Forward::VaryMiss;
                if let Some(Entry::Object(_)) = cache.lookup(&key) {
                    return memory::look_up_again(core, request, found);
                }
            }
        }
    }
    None
}

/// Decides what to do with an answer on disk.
async fn judge(
    core: &Rc<Core>,
    request: &Rc<Request>,
    mut hit: DiskHit,
    found: &mut Found,
) -> Stored {
    let snapshot = request.snapshot();
    if hit.head.status == PARTIAL {
        match hit.into_object(&core.shared.cache).await {
            Some(list) => *found = partial::judge(request, list.key, list),
            None => found.swap_failed = true,
        }
        return Stored::Judged;
    }
    if !hit.is_complete() || memory::needs_origin(request) {
        (found.pass, found.forward) = (true, Forward::Request);
        return Stored::Judged;
    }
    let rule = || snapshot.refresh_rule(request.url.as_bytes());
    let disposition = freshness::judge(
        &hit.times,
        &request.cc,
        &snapshot.freshness,
        rule,
        request.received.secs(),
    );
    let body_bytes = hit.body_bytes().unwrap_or(0);
    let needs_pages = disposition != Disposition::Fresh || assemble::has_several_ranges(request);
    // What memory has no room for on its way is streamed as a larger one is.
    let small = body_bytes <= core.shared.cache.memory_object_bytes_max()
        && hit.reserve(&core.shared.cache, needs_pages);
    core.count(Counter::SwapIns, 1);
    core.count(Counter::SwapInBytes, body_bytes);
    match disposition {
        Disposition::Refetch => found.reload = true,
        Disposition::GatewayTimeout => found.refuse = true,
        Disposition::Fresh if small => match hold(core, request, hit).await {
            Some(object) => {
                return Stored::Object(HitObject {
                    object,
                    tag: Tag::Hit,
                    without_origin: true,
                    route: None,
                });
            }
            None => {
                core.count(Counter::SwapInErrors, 1);
                found.swap_failed = true;
            }
        },
        Disposition::Fresh => return Stored::Stream(Box::new(hit)),
        Disposition::StaleWhileRevalidate | Disposition::Revalidate { .. } => {
            found.serve_stale = small && disposition == Disposition::StaleWhileRevalidate;
            let may_serve_on_error = match disposition {
                Disposition::Revalidate { may_serve_stale_on_error } => may_serve_stale_on_error,
                _ => true,
            };
            found.stale =
                stale(core, hit, small).await.map(|body| Stale { body, may_serve_on_error });
            found.serve_stale &= found.stale.is_some();
            found.swap_failed = found.stale.is_none();
        }
    }
    Stored::Judged
}

/// The whole answer. `None`: it cannot be read, or memory is short.
async fn hold(core: &Core, request: &Request, hit: DiskHit) -> Option<Held> {
    let cache = &core.shared.cache;
    // Several ranges are put together from what is in memory.
    match assemble::has_several_ranges(request) {
        true => hit.into_object(cache).await.map(Held::Memory),
        false => hit.hold(cache).await,
    }
}

async fn stale(core: &Rc<Core>, hit: DiskHit, small: bool) -> Option<StaleBody> {
    match small {
        true => hit.into_object(&core.shared.cache).await.map(StaleBody::Memory),
        false => Some(StaleBody::Disk(Box::new(hit))),
    }
}

/// Serves a fresh answer that is too large for memory. `None`: it could not be read, nothing was
/// sent.
pub(crate) async fn serve(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: &Rc<Request>,
    hit: DiskHit,
) -> Option<After> {
    let body_bytes = hit.body_bytes().unwrap_or(0);
    if let Some(ranges) = assemble::several_ranges(request, &hit.head, &hit.times, body_bytes) {
        let assembly = assemble::of_disk(hit, &ranges);
        return pipeline::serve_assembled(core, conn, request, assembly, &Report::new(), Tag::Hit)
            .await;
    }
    let selection = hit::select(request, &stored(&hit));
    if request.head.method == Method::Head || selection.status != hit.head.status {
        return serve_alone(core, conn, request, hit, selection).await;
    }
    let cache = &core.shared.cache;
    let key = hit.key;
    let begun = cache.begin_or_join(request.key, key, &hit.url);
    let reader = match begun {
        Begin::Join(reader) => reader,
        // It is on disk, and is being written anew.
        Begin::Wait(_) => feed(core, hit, cache.private(request.key, key))?,
        // Whoever joins from now on takes it for as new as the flow.
        Begin::Lead(_) if hit.is_outdated() || cache.is_purged(&hit.times, &hit.url, &hit.head) => {
            return None;
        }
        Begin::Lead(writer) => feed(core, hit, writer)?,
    };
    let report = Report::new();
    let after = pipeline::follow(core, conn, request, reader, Some(&report), Tag::Hit).await;
    if after.is_none() {
        core.count(Counter::SwapInErrors, 1);
    }
    after
}

/// Reads a body into a flow, whose first reader this is.
fn feed(core: &Rc<Core>, hit: DiskHit, writer: FlowWriter) -> Option<FlowReader> {
    let reader = writer.subscribe(ReaderKind::Client)?;
    let core = Rc::clone(core);
    tokio::task::spawn_local(async move { hit.feed(&core.shared.cache, writer).await });
    Some(reader)
}

/// The answer, as far as choosing from it and telling its head go.
fn stored(hit: &DiskHit) -> hit::Stored<'_> {
    hit::Stored {
        head: &hit.head,
        times: &hit.times,
        body_bytes: hit.body_bytes().unwrap_or(0),
        tag: Tag::Hit,
        without_origin: true,
    }
}

/// Serves a head, a 304, a 416, or a part, without reading the rest. `None`: it could not be read,
/// nothing was sent.
async fn serve_alone(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: &Rc<Request>,
    mut hit: DiskHit,
    selection: Selection,
) -> Option<After> {
    if let Err(refusal) = reply::check(request, &hit.head, hit.body_bytes()) {
        return Some(answer::refused(core, conn, request, refusal, None).await);
    }
    let keep_alive = request.snapshot().keeps_alive(request) && !core.is_draining();
    let mut buffer = Vec::new();
    if let Some(part) = selection.range {
        match conn.while_it_stays(request, read_some(core, &mut hit, part, &mut buffer)).await {
            None => return Some(answer::gone(core, conn, request, selection.tag, None)),
            Some(read) => read?,
        }
    }
    let mut head = Vec::with_capacity(hit.head.bytes().len() + 256);
    hit::write_head(&mut head, request, &stored(&hit), &selection, keep_alive);
    let mut outcome = Outcome::hit(selection.tag, selection.status);
    let mut ended = Ended::from(answer::write_all(conn, core, &head).await);
    outcome.bytes_out = head.len() as u64;
    if let (Some(part), Ended::Complete) = (selection.range, ended) {
        ended = send_part(core, conn, request, &mut hit, (part, buffer), &mut outcome).await;
    }
    let cut = ended.cut(conn);
    outcome.end(cut);
    log::transaction(core, request, &outcome, hit.head.content_type());
    Some(match cut {
        None if keep_alive => After::Keep,
        None => After::Close,
        Some(cut) => After::Abort(cut),
    })
}

/// Reads the beginning of `part` into `buffer`: at least one verified byte.
async fn read_some(
    core: &Core,
    hit: &mut DiskHit,
    part: ByteRange,
    buffer: &mut Vec<u8>,
) -> Option<()> {
    let want = usize::try_from(part.byte_count()).unwrap_or(READ_BYTES).min(READ_BYTES);
    buffer.resize(want, 0);
    match hit.read(part.first, buffer).await {
        Ok(got) if got > 0 => {
            buffer.truncate(got);
            Some(())
        }
        _ => {
            core.count(Counter::SwapInErrors, 1);
            None
        }
    }
}

/// Sends bytes of a stored body, verified before they are sent; `begun` is the part and what was
/// read of it. What cannot be read comes from the server, if it has the same answer.
async fn send_part(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: &Rc<Request>,
    hit: &mut DiskHit,
    begun: (ByteRange, Vec<u8>),
    outcome: &mut Outcome,
) -> Ended {
    let (mut part, mut buffer) = begun;
    loop {
        match Ended::from(answer::write_all(conn, core, &buffer).await) {
            Ended::Complete => {}
            ended => return ended,
        }
        part.first += buffer.len() as u64;
        outcome.bytes_out += buffer.len() as u64;
        if part.first > part.last {
            return Ended::Complete;
        }
        match conn.while_it_stays(request, read_some(core, hit, part, &mut buffer)).await {
            None => return Ended::ClientGone,
            Some(Some(())) => {}
            Some(None) => return rest_from_server(core, conn, request, (hit, part), outcome).await,
        }
    }
}

async fn rest_from_server(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: &Rc<Request>,
    (hit, part): (&DiskHit, ByteRange),
    outcome: &mut Outcome,
) -> Ended {
    let head = FlowHead { head: hit.head.clone(), info: hit.info(), object: None };
    let rest = resume::from_server(core, request, &head, part.first);
    let mut reader = match conn.while_it_stays(request, rest).await {
        None => return Ended::ClientGone,
        Some(None) => return Ended::Aborted(AbortReason::DiskFailed),
        Some(Some(reader)) => reader,
    };
    let (mut left, mut slices) = (part.byte_count(), Vec::new());
    while left > 0 {
        match conn.while_it_stays(request, reader.data()).await {
            None => return Ended::ClientGone,
            Some(Progress::Data { .. }) => {}
            Some(Progress::End) => return Ended::Aborted(AbortReason::Truncated),
            Some(Progress::Aborted(reason)) => return Ended::Aborted(reason),
            Some(Progress::Lagged { .. }) => return Ended::Aborted(AbortReason::Cancelled),
        }
        let bytes = reader.slices(&mut slices, left.min(READ_BYTES as u64));
        for slice in slices.drain(..) {
            match Ended::from(answer::write_all(conn, core, &slice).await) {
                Ended::Complete => {}
                ended => return ended,
            }
        }
        reader.advance(bytes);
        outcome.bytes_out += bytes;
        left -= bytes;
    }
    Ended::Complete
}
