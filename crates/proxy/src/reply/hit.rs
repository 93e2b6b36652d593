//! Sends a complete object that is in memory, or was read into it. If the client takes it whole,
//! that is one head and one vectored write, without an allocation.

use std::future::poll_fn;
use std::io::IoSlice;

use humboldt_exchange::{BodyLength, BodySlices, ClientLost, is_bodiless_status};
use humboldt_freshness::Times;
use humboldt_logs::access::Tag;
use humboldt_store::{Held, StoredHead};

use crate::config::cache_status::Usage;
use crate::cut::Cut;
use crate::lookup::memory::HitObject;
use crate::lookup::selection::{Selection, select};
use crate::outcome::{Content, Outcome};
use crate::reply::head::{self, Reply};
use crate::request::Request;
use crate::transaction::Transaction;

/// Largest body that is copied behind its head. Both go out by one plain `send`, which is cheaper
/// than a vectored write.
const COPY_BYTES_MAX: u64 = 4096;

/// The result of the first write of a hit.
pub(crate) enum Started {
    /// Everything was sent, or the connection cannot take any more.
    Done(Outcome),
    /// The rest must wait until the client takes more.
    Rest(Box<Sending>),
}

/// A hit whose bytes are partly sent.
pub(crate) struct Sending {
    object: Held,
    /// The next byte of the body to send.
    at: u64,
    /// The end of the part of the body to send.
    to: u64,
    outcome: Outcome,
}

/// The facts about a complete stored answer by which its part is selected and its head is written.
#[derive(Copy, Clone)]
pub(crate) struct Stored<'a> {
    /// Its head.
    pub head: &'a StoredHead,
    /// Its freshness.
    pub times: &'a Times,
    /// Length of its body.
    pub body_bytes: u64,
    /// Result code for the whole answer.
    pub tag: Tag,
    /// Whether it is served without asking its server.
    pub without_origin: bool,
}

impl<'a> Stored<'a> {
    /// The head for a client, and the length of the body that follows.
    pub(crate) fn reply(
        &self,
        request: &'a Request,
        selection: &Selection,
    ) -> (Reply<'a>, BodyLength) {
        let usage = match self.tag {
            _ if self.without_origin => head::from_cache(request, self.times),
            Tag::RefreshFailOld => Usage::Failed {
                age_s: head::age_s(request, self.times),
                ttl_s: head::ttl_s(request, self.times),
            },
            _ => Usage::Validated { age_s: head::age_on_arrival_s(request, self.times) },
        };
        let has_range = matches!(selection.status, 206 | 416);
        let range = has_range.then_some((selection.range, self.body_bytes));
        let reply =
            Reply { request, head: self.head, status: selection.status, range, usage, own: None };
        let length = match selection.status {
            304 => BodyLength::None,
            status if is_bodiless_status(status) => BodyLength::None,
            206 | 416 => BodyLength::Known(selection.to - selection.from),
            // HEAD gets the length of the body that GET would get.
            _ => BodyLength::Known(self.body_bytes),
        };
        (reply, length)
    }
}

/// The facts about `hit` by which its part is selected and its head is written.
fn stored(hit: &HitObject) -> Stored<'_> {
    let object = &hit.object;
    Stored {
        head: object.head(),
        times: object.times(),
        body_bytes: object.body_bytes(),
        tag: hit.tag,
        without_origin: hit.without_origin,
    }
}

/// Begins the answer and sends as much of it as the client takes.
pub(crate) fn start(transaction: &mut Transaction<'_>, hit: HitObject) -> Started {
    let request = &**transaction.request;
    let stored = stored(&hit);
    let selection = select(request, stored.head, stored.times.date, stored.body_bytes, hit.tag);
    let (reply, length) = stored.reply(request, &selection);
    head::send(transaction.client, request, &reply, reply.usage, length);
    let route = hit.route.map(|route| *route);
    let outcome = Outcome { route, ..Outcome::hit(selection.tag, selection.status) };
    let mut sending = Sending { object: hit.object, at: selection.from, to: selection.to, outcome };
    sending.keep_small(transaction);
    match sending.try_send(transaction) {
        Ok(true) => Started::Done(sending.end(None)),
        Ok(false) => {
            let needs_body = sending.at < sending.to;
            match sending.object.kept(&transaction.core.shared.cache, needs_body) {
                Ok(object) => Started::Rest(Box::new(Sending { object, ..sending })),
                Err(object) => {
                    Started::Done(Sending { object, ..sending }.end(Some(Cut::NoMemory)))
                }
            }
        }
        Err(lost) => Started::Done(sending.end(Some(lost.into()))),
    }
}

/// Sends the rest of a hit.
pub(crate) async fn finish(
    transaction: &mut Transaction<'_>,
    mut sending: Box<Sending>,
) -> Outcome {
    loop {
        let writable = poll_fn(|cx| transaction.client.poll_writable(cx)).await;
        match writable.and_then(|()| sending.try_send(transaction)) {
            Ok(true) => return sending.end(None),
            Ok(false) => {}
            Err(lost) => return sending.end(Some(lost.into())),
        }
    }
}

/// The part of a body that has not been sent.
struct Rest<'a> {
    object: &'a Held,
    at: u64,
    to: u64,
}

impl BodySlices for Rest<'_> {
    fn slices<'s>(&'s self, most_bytes: u64, out: &mut [IoSlice<'s>]) -> usize {
        self.object.slices(self.at, self.to.min(self.at.saturating_add(most_bytes)), out)
    }
}

impl Sending {
    /// Keeps a small body back, so that it goes out together with its head.
    fn keep_small(&mut self, transaction: &mut Transaction<'_>) {
        if self.to - self.at > COPY_BYTES_MAX {
            return;
        }
        let mut parts = [IoSlice::new(&[]); 4];
        let count = self.object.slices(self.at, self.to, &mut parts);
        for part in parts.iter().take(count) {
            if transaction.client.keep_body(part).is_ok() {
                self.at += part.len() as u64;
            }
        }
    }

    /// Sends until everything is out (`true`) or the client takes no more for now.
    fn try_send(&mut self, transaction: &mut Transaction<'_>) -> Result<bool, ClientLost> {
        let client = &mut *transaction.client;
        while self.at < self.to {
            match client.try_send(&Rest { object: &self.object, at: self.at, to: self.to })? {
                // Bytes are missing: the body must not end before its announced length.
                Some(0) => return Err(ClientLost::Gone),
                Some(bytes) => self.at += bytes,
                None => return Ok(false),
            }
        }
        // The whole announced body was sent.
        client.finish(None).map_err(|_| ClientLost::Gone)?;
        client.try_flush()
    }

    fn end(self, cut: Option<Cut>) -> Outcome {
        let mut outcome = Outcome { content: Content::Held(self.object), ..self.outcome };
        outcome.end(cut);
        outcome
    }
}
