//! Serving a complete object from memory, or from where it was read to: one head, one vectored
//! write, no allocation when the socket takes it whole.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use humboldt_base::counters::Counter;
use humboldt_freshness::{self as freshness, Times};
use humboldt_http::conditional;
use humboldt_http::range::{self, ByteRange, ContentRange, Resolved};
use humboldt_http::{FieldName, Method, Version};
use humboldt_logs::access::Tag;
use humboldt_store::{Held, Object, StoredHead};

use crate::client::{After, ClientConn};
use crate::core::Core;
use crate::cut::Cut;
use crate::log::{self, Outcome, Route};
use crate::request::Request;

/// Parts of a body that one write takes: 64 pages, 256 KiB.
const PARTS_MAX: usize = 64;

/// A body up to this size is copied behind its head, so that one plain `send` does: cheaper than a
/// vectored write.
const COPY_BYTES_MAX: u64 = 4096;

/// An object that is to be served, and how it came to be.
#[derive(Debug)]
pub(crate) struct HitObject {
    /// The answer.
    pub object: Held,
    /// Result code for the log.
    pub tag: Tag,
    /// Whether the object was served without asking its server; `false` after a validation.
    pub without_origin: bool,
    /// Who validated it, if this request asked for that.
    pub route: Option<Box<Route>>,
}

impl HitObject {
    /// A hit in memory.
    pub(crate) fn in_memory(object: Arc<Object>, tag: Tag) -> Self {
        Self { object: Held::Memory(object), tag, without_origin: true, route: None }
    }

    fn stored(&self) -> Stored<'_> {
        let object = &self.object;
        Stored {
            head: object.head(),
            times: object.times(),
            body_bytes: object.body_bytes(),
            tag: self.tag,
            without_origin: self.without_origin,
        }
    }
}

/// What became of a hit at the first write.
pub(crate) enum Started {
    /// Everything was sent, and logged.
    Done(After),
    /// The rest has to wait for the socket.
    Rest(Box<Sending>),
}

/// A hit whose bytes are partly sent.
pub(crate) struct Sending {
    request: Rc<Request>,
    object: Held,
    head: Vec<u8>,
    /// Bytes of `head` that are sent.
    head_sent: usize,
    /// Next byte of the body.
    at: u64,
    /// End of what is to be sent of the body.
    to: u64,
    outcome: Outcome,
    keep_alive: bool,
}

/// A complete stored answer, as far as choosing from it and telling its head go.
#[derive(Copy, Clone)]
pub(crate) struct Stored<'a> {
    /// Its head.
    pub head: &'a StoredHead,
    /// Its freshness.
    pub times: &'a Times,
    /// Length of its body.
    pub body_bytes: u64,
    /// Result code, if the whole is sent.
    pub tag: Tag,
    /// Whether it is served without asking its server.
    pub without_origin: bool,
}

/// What part of a stored answer answers the request, and with which status.
#[derive(Copy, Clone)]
pub(crate) struct Selection {
    /// The status.
    pub status: u16,
    /// What a 206 has.
    pub range: Option<ByteRange>,
    /// First byte of the body that is sent.
    pub from: u64,
    /// The byte behind the last one.
    pub to: u64,
    /// Result code.
    pub tag: Tag,
}

/// Builds the answer and writes as much of it as the socket takes.
pub(crate) fn start(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    request: Rc<Request>,
    hit: HitObject,
) -> Started {
    let stored = hit.stored();
    let selection = select(&request, &stored);
    let keep_alive = request.snapshot().keeps_alive(&request) && !core.is_draining();
    let mut head = core.take_head_buffer();
    write_head(&mut head, &request, &stored, &selection, keep_alive);
    let mut at = selection.from;
    if selection.to - at <= COPY_BYTES_MAX {
        at += copy_body(&hit.object, at, selection.to, &mut head);
    }
    let route = hit.route.map(|route| *route);
    let outcome = Outcome { route, ..Outcome::hit(selection.tag, selection.status) };
    let mut sending = Sending {
        request,
        object: hit.object,
        head,
        head_sent: 0,
        at,
        to: selection.to,
        outcome,
        keep_alive,
    };
    match sending.try_send(conn) {
        Ok(true) => Started::Done(sending.done(core, conn)),
        Ok(false) => {
            conn.deadline.arm(sending.request.snapshot().config.write_timeout);
            let needs_body = sending.at < sending.to;
            match sending.object.kept(&core.shared.cache, needs_body) {
                Ok(object) => Started::Rest(Box::new(Sending { object, ..sending })),
                Err(object) => {
                    Started::Done(Sending { object, ..sending }.failed(core, Cut::NoMemory))
                }
            }
        }
        Err(error) => Started::Done(sending.failed(core, conn.cut_by(&error))),
    }
}

/// Sends the rest of a hit.
pub(crate) async fn finish(
    core: &Rc<Core>,
    conn: &mut ClientConn,
    mut sending: Box<Sending>,
) -> After {
    loop {
        let writable = poll_fn(|cx| {
            if conn.poll_out_of_time(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            conn.stream.poll_write_ready(cx)
        })
        .await;
        let sent = writable.and_then(|()| sending.try_send(conn));
        match sent {
            Ok(true) => return sending.done(core, conn),
            Ok(false) => conn.deadline.arm(sending.request.snapshot().config.write_timeout),
            Err(error) => return sending.failed(core, conn.cut_by(&error)),
        }
    }
}

impl Sending {
    /// The request that it answers.
    pub(crate) fn request(&self) -> &Rc<Request> {
        &self.request
    }

    /// Writes until everything is sent (`true`) or the socket is full.
    fn try_send(&mut self, conn: &ClientConn) -> io::Result<bool> {
        loop {
            let head_rest = self.head.get(self.head_sent..).unwrap_or_default();
            let result = if self.at == self.to {
                if head_rest.is_empty() {
                    return Ok(true);
                }
                conn.stream.try_write(head_rest)
            } else {
                let mut parts = [IoSlice::new(&[]); PARTS_MAX];
                if let Some(first) = parts.first_mut() {
                    *first = IoSlice::new(head_rest);
                }
                let skip = usize::from(head_rest.is_empty());
                let body = parts.get_mut(1..).unwrap_or_default();
                let count = 1 + self.object.slices(self.at, self.to, body);
                conn.stream.try_write_vectored(parts.get(skip..count).unwrap_or_default())
            };
            match result {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.advance(n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    fn advance(&mut self, n: usize) {
        let of_head = n.min(self.head.len() - self.head_sent);
        self.head_sent += of_head;
        self.at += (n - of_head) as u64;
        self.outcome.bytes_out += n as u64;
    }

    fn done(self, core: &Rc<Core>, _conn: &ClientConn) -> After {
        let after = if self.keep_alive { After::Keep } else { After::Close };
        self.end(core, after)
    }

    fn failed(mut self, core: &Rc<Core>, cut: Cut) -> After {
        self.outcome.end(Some(cut));
        self.end(core, After::Abort(cut))
    }

    fn end(self, core: &Rc<Core>, after: After) -> After {
        core.count(Counter::ClientOutBytes, self.outcome.bytes_out);
        log::transaction(core, &self.request, &self.outcome, self.object.head().content_type());
        core.return_head_buffer(self.head);
        core.return_request(self.request);
        after
    }
}

/// Applies conditions and ranges (RFC 9110 13 and 14) to a complete answer.
pub(crate) fn select(request: &Request, stored: &Stored<'_>) -> Selection {
    let Stored { head, body_bytes: len, tag, .. } = *stored;
    let whole = Selection { status: head.status, range: None, from: 0, to: len, tag };
    let fields = &request.head.fields;
    let is_head = request.head.method == Method::Head;
    let bodiless = if is_head { Selection { to: 0, ..whole } } else { whole };
    if head.status != 200 {
        return bodiless;
    }
    let validators = head.validators();
    if conditional::evaluate(request.head.method, fields, validators)
        == conditional::Outcome::NotModified
    {
        let by_tag = fields.has(FieldName::IfNoneMatch);
        let tag = match tag {
            Tag::MemHit | Tag::Hit if by_tag => Tag::InmHit,
            Tag::MemHit | Tag::Hit => Tag::ImsHit,
            other => other,
        };
        return Selection { status: 304, to: 0, tag, ..bodiless };
    }
    if is_head
        || !fields.has(FieldName::Range)
        || !conditional::range_applies(fields, validators, stored.times.date)
    {
        return bodiless;
    }
    // Several ranges: the whole content is an allowed answer (RFC 9110 14.2), and `relay` makes no
    // multipart of it.
    match fields
        .get(FieldName::Range)
        .and_then(range::parse_range)
        .map(|set| range::resolve(&set, len))
    {
        Some(Resolved::Satisfiable(ranges)) => match ranges.as_slice() {
            [one] => Selection {
                status: 206,
                range: Some(*one),
                from: one.first,
                to: one.last + 1,
                ..bodiless
            },
            _ => bodiless,
        },
        Some(Resolved::Unsatisfiable) => Selection { status: 416, to: 0, ..bodiless },
        Some(Resolved::Whole) | None => bodiless,
    }
}

/// The head of a hit, with everything that is told of one: the only place where that is written.
pub(crate) fn write_head(
    out: &mut Vec<u8>,
    request: &Request,
    stored: &Stored<'_>,
    selection: &Selection,
    keep_alive: bool,
) {
    let start = out.len();
    let mut digits = itoa::Buffer::new();
    write_stored_head(out, selection.status, stored.head.bytes());
    if selection.status == 206 || selection.status == 416 {
        out.extend_from_slice(b"Content-Range: ");
        ContentRange { range: selection.range, complete_bytes: Some(stored.body_bytes) }.write(out);
        out.extend_from_slice(b"\r\n");
    }
    if selection.status != 304 && !is_bodiless_status(selection.status) {
        // HEAD gets the length that GET would have.
        let length = match selection.status {
            206 | 416 => selection.to - selection.from,
            _ => stored.body_bytes,
        };
        out.extend_from_slice(b"Content-Length: ");
        out.extend_from_slice(digits.format(length).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    if stored.without_origin {
        write_hit_fields(out, request, stored.times);
    } else {
        write_age(out, request, stored.times);
        let status = &request.snapshot().names.cache_status;
        match stored.tag {
            Tag::RefreshFailOld => status.write_failed(out, ttl(request, stored.times)),
            _ => status.write_validated(out),
        }
    }
    request.snapshot().header_rules.apply_to_reply(out, start, request);
    write_connection(out, request.head.version, keep_alive);
    out.extend_from_slice(b"\r\n");
}

/// The stored head for an answer with this status, whose own may be another.
fn write_stored_head(out: &mut Vec<u8>, status: u16, stored: &[u8]) {
    match status {
        206 => write_changed_status(out, b"206 Partial Content", stored, |_| true),
        304 => write_changed_status(out, b"304 Not Modified", stored, stays_in_304),
        416 => {
            write_changed_status(out, b"416 Range Not Satisfiable", stored, |name| name == b"Date")
        }
        _ => out.extend_from_slice(stored),
    }
}

/// Age without the end of its line.
pub(crate) fn write_age(out: &mut Vec<u8>, request: &Request, times: &Times) {
    out.extend_from_slice(b"Age: ");
    let age = freshness::age(times, request.received.secs());
    out.extend_from_slice(itoa::Buffer::new().format(age).as_bytes());
}

/// Age, X-Cache and Cache-Status of an answer from the cache.
pub(crate) fn write_hit_fields(out: &mut Vec<u8>, request: &Request, times: &Times) {
    write_age(out, request, times);
    request.snapshot().names.cache_status.write_hit(out, ttl(request, times));
}

fn ttl(request: &Request, times: &Times) -> i64 {
    freshness::ttl(times, request.received.secs())
}

/// The Connection field where the version's default is not what we do.
pub(crate) fn write_connection(out: &mut Vec<u8>, version: Version, keep_alive: bool) {
    match (version, keep_alive) {
        (Version::Http11, true) | (Version::Http10, false) => {}
        (Version::Http10, true) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        (Version::Http11, false) => out.extend_from_slice(b"Connection: close\r\n"),
    }
}

pub(crate) fn is_bodiless_status(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}

/// A status line of its own and those lines of the stored head that `keep` accepts by name.
fn write_changed_status(
    out: &mut Vec<u8>,
    status: &[u8],
    stored: &[u8],
    keep: impl Fn(&[u8]) -> bool,
) {
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status);
    out.extend_from_slice(b"\r\n");
    let mut rest = stored;
    let mut first = true;
    while let Some(end) = memchr::memchr(b'\n', rest) {
        let (line, tail) = rest.split_at(end + 1);
        rest = tail;
        let name = line.split(|&byte| byte == b':').next().unwrap_or_default();
        if !std::mem::take(&mut first) && keep(name) {
            out.extend_from_slice(line);
        }
    }
}

/// The fields that a 304 carries (RFC 9110 15.4.5), and nothing that describes the body it does not
/// have.
fn stays_in_304(name: &[u8]) -> bool {
    use FieldName as F;
    let is_body = matches!(
        F::from_bytes(name),
        F::ContentType | F::ContentEncoding | F::ContentRange | F::ContentLength
    );
    !is_body
}

fn copy_body(object: &Held, from: u64, to: u64, out: &mut Vec<u8>) -> u64 {
    let mut parts = [IoSlice::new(&[]); 4];
    let count = object.slices(from, to, &mut parts);
    let mut copied = 0;
    for part in parts.iter().take(count) {
        out.extend_from_slice(part);
        copied += part.len() as u64;
    }
    copied
}
