//! Answers on disk that are too large for memory. They are read through a flow that other requests
//! can join, or only the wanted part is read.

use std::pin::pin;
use std::rc::Rc;

use humboldt_base::counters::Counter;
use humboldt_http::Method;
use humboldt_http::range::ByteRange;
use humboldt_logs::access::Tag;
use humboldt_runtime::turns;
use humboldt_store::disk::DiskHit;
use humboldt_store::{AbortReason, Begin, FlowHead, FlowReader, FlowWriter, ReaderKind};

use crate::core::Core;
use crate::fetch::job::Report;
use crate::lookup::selection::{Selection, select, several_ranges};
use crate::outcome::Outcome;
use crate::reply::follow::{self, follow};
use crate::reply::hit::Stored;
use crate::reply::stream::{Ended, cut_off};
use crate::reply::{assemble, facts, head, local, resume};
use crate::rules::{budget, reply};
use crate::transaction::{Served, Transaction};

/// Bytes read from disk at a time for a range.
const READ_BYTES: usize = 64 * 1024;

/// Serves a fresh answer that is too large for memory.
pub(crate) async fn serve(transaction: &mut Transaction<'_>, hit: DiskHit) -> Served {
    let (core, request) = (transaction.core, transaction.request);
    let body_bytes = hit.body_bytes().unwrap_or(0);
    if let Some(ranges) = several_ranges(request, &hit.head, hit.times.date, body_bytes) {
        let assembly = assemble::of_disk(hit, &ranges);
        return follow::assembled(transaction, assembly, &Report::new(), Tag::Hit).await;
    }
    // Before it joins or begins a flow, which would be held up.
    if facts::gather(transaction, &hit.head).await.is_none() {
        return Served::Done(transaction.client_gone(Outcome::hit(Tag::Hit, 0)));
    }
    if let Err(refusal) = reply::check(request, &hit.head, hit.body_bytes()) {
        return Served::Done(local::refused(transaction, refusal, None).await);
    }
    let selection = select(request, &hit.head, hit.times.date, body_bytes, Tag::Hit);
    if request.head.method == Method::Head || selection.status != hit.head.status {
        return serve_alone(transaction, hit, selection).await;
    }
    let cache = &core.shared.cache;
    let key = hit.key;
    let reader = match cache.begin_or_join(request.key, key, &hit.url) {
        Begin::Join(reader) if reader.flow().is_reading() => {
            drop(hit); // its memory is counted, and the flow has its own
            Some(reader)
        }
        // Another client has its answer validated, or anew. The server may take long, or fail; as
        // long as it has not answered, this one is as good as it was.
        Begin::Join(reader) if reader.flow().published().is_none() && !hit.is_void(cache) => {
            feed(core, hit, cache.private(request.key, key))
        }
        // A newer answer is on its way. This one is good enough if that one is for somebody else.
        Begin::Join(reader) => {
            core.count(Counter::ClientCollapsed, 1);
            match follow(transaction, reader, None, Tag::Miss).await {
                Served::LookAgain if !hit.is_void(cache) => {
                    feed(core, hit, cache.private(request.key, key))
                }
                served => return served,
            }
        }
        // The answer is on disk, and a newer one is being written.
        Begin::Wait(_) => feed(core, hit, cache.private(request.key, key)),
        Begin::Lead(writer) => {
            // Before the look: what becomes complete from now on retires a flow that reads.
            writer.flow().note_reading();
            // A request that joins would take this answer for as new as the flow.
            if hit.is_void(cache) { None } else { feed(core, hit, writer) }
        }
    };
    let Some(reader) = reader else { return Served::LookAgain };
    let served = follow(transaction, reader, Some(&Report::new()), Tag::Hit).await;
    if matches!(served, Served::LookAgain) {
        core.count(Counter::SwapInErrors, 1);
    }
    served
}

/// Reads a body into a flow and returns its first reader.
fn feed(core: &Rc<Core>, hit: DiskHit, writer: FlowWriter) -> Option<FlowReader> {
    let reader = writer.subscribe(ReaderKind::Client)?;
    let core = Rc::clone(core);
    turns::spawn_local(async move { hit.feed(&core.shared.cache, writer).await });
    Some(reader)
}

/// Serves a head, a 304, a 416, or a part, without reading the rest.
async fn serve_alone(
    transaction: &mut Transaction<'_>,
    mut hit: DiskHit,
    selection: Selection,
) -> Served {
    let (core, request) = (transaction.core, transaction.request);
    let mut outcome = Outcome::hit(selection.tag, selection.status);
    outcome.set_head(&hit.head);
    let mut buffer = Vec::new();
    if let Some(part) = selection.range {
        match transaction.while_it_stays(pin!(read_some(core, &mut hit, part, &mut buffer))).await {
            None => return Served::Done(transaction.client_gone(outcome.unsent())),
            Some(None) => return Served::LookAgain,
            Some(Some(())) => {}
        }
    }
    let stored = Stored {
        head: &hit.head,
        times: &hit.times,
        body_bytes: hit.body_bytes().unwrap_or(0),
        tag: Tag::Hit,
        without_origin: true,
    };
    let (reply, length) = stored.reply(request, &selection);
    head::send(transaction.client, request, &reply, reply.usage, length);
    let ended = match selection.range {
        Some(part) => send_part(transaction, &mut hit, part, buffer).await,
        None => Ended::Complete,
    };
    let ended = match ended {
        Ended::Complete => follow::finish(transaction.client).await,
        ended => ended,
    };
    outcome.end(ended.cut());
    Served::Done(outcome)
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

/// Sends bytes of a stored body. They are verified before they are sent; `buffer` has the beginning
/// of `part`. Bytes that cannot be read come from the server, if it has the same answer.
async fn send_part(
    transaction: &mut Transaction<'_>,
    hit: &mut DiskHit,
    mut part: ByteRange,
    mut buffer: Vec<u8>,
) -> Ended {
    loop {
        match follow::send_bytes(transaction.client, &buffer).await {
            Ended::Complete => {}
            ended => return ended,
        }
        let bytes = buffer.len() as u64;
        let may_go_on = budget::take_bytes(transaction.core, transaction.request, bytes);
        part.first += bytes;
        if part.first > part.last {
            return Ended::Complete;
        }
        if !may_go_on {
            return cut_off(transaction.client, Ended::OverBudget).await;
        }
        let reading = read_some(transaction.core, hit, part, &mut buffer);
        let read = transaction.while_it_stays(pin!(reading)).await;
        match read {
            None => return Ended::ClientLost(transaction.client.lost()),
            Some(Some(())) => {}
            Some(None) => return rest_from_server(transaction, hit, part).await,
        }
    }
}

async fn rest_from_server(
    transaction: &mut Transaction<'_>,
    hit: &DiskHit,
    part: ByteRange,
) -> Ended {
    let head = FlowHead { head: hit.head.clone(), info: hit.info(), object: None };
    let rest = resume::from_server(transaction.core, transaction.request, &head, part.first);
    let mut reader = match transaction.while_it_stays(pin!(rest)).await {
        None => return Ended::ClientLost(transaction.client.lost()),
        Some(None) => {
            return cut_off(transaction.client, Ended::Aborted(AbortReason::DiskFailed)).await;
        }
        Some(Some(reader)) => reader,
    };
    let (mut left, mut slices) = (part.byte_count(), Vec::new());
    while left > 0 {
        match transaction.while_it_stays(pin!(reader.more())).await {
            None => return Ended::ClientLost(transaction.client.lost()),
            Some(Err(reason)) => {
                return cut_off(transaction.client, Ended::Aborted(reason)).await;
            }
            Some(Ok(())) => {}
        }
        let bytes = reader.slices(&mut slices, left.min(READ_BYTES as u64));
        for slice in slices.drain(..) {
            match follow::send_bytes(transaction.client, &slice).await {
                Ended::Complete => {}
                ended => return ended,
            }
        }
        reader.advance(bytes);
        left -= bytes;
        if !budget::take_bytes(transaction.core, transaction.request, bytes) && left > 0 {
            return cut_off(transaction.client, Ended::OverBudget).await;
        }
    }
    Ended::Complete
}
