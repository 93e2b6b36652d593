//! From an object in flight to a client: the head, then pages as they arrive, in whatever framing
//! the client understands.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use humboldt_base::counters::Counter;
use humboldt_http::h1::{BodyEncoder, Framing};
use humboldt_http::{Method, Version};
use humboldt_store::{AbortReason, BodySlice, FlowHead, FlowReader, Progress, StoredHead};

use crate::answer;
use crate::body::{BodyPump, PumpError};
use crate::client::{After, ClientConn};
use crate::core::Core;
use crate::cut::Cut;
use crate::hit::{is_bodiless_status, write_connection};
use crate::leave::{HELD_UP, Leave};
use crate::log::Outcome;
use crate::reply;
use crate::request::Request;

/// Most bytes handed to one write.
const WRITE_BYTES_MAX: u64 = 256 * 1024;

/// Most parts of one vectored write: pages, and what stands around them.
const PARTS_MAX: usize = 80;

/// How the transfer to a client ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The client has the whole answer.
    Complete,
    /// The client has gone, or its connection has lived too long.
    ClientGone,
    /// The client takes nothing.
    ClientStalled,
    /// The answer did not become complete.
    Aborted(AbortReason),
    /// The client took nothing while others waited for it.
    HeldUp,
}

impl Ended {
    /// Whether the rest may be had in another way.
    pub(crate) fn is_lost(self) -> bool {
        matches!(self, Self::Aborted(AbortReason::DiskFailed))
    }

    /// Why the connection is cut off; `None` where the client has everything.
    pub(crate) fn cut(self, conn: &ClientConn) -> Option<Cut> {
        match self {
            Self::Complete => None,
            Self::ClientGone => Some(conn.cut_by_client()),
            Self::ClientStalled => Some(conn.cut_by(&io::ErrorKind::TimedOut.into())),
            Self::Aborted(reason) => Some(reason.into()),
            Self::HeldUp => Some(conn.cut_by(&HELD_UP.into())),
        }
    }
}

impl From<io::Result<()>> for Ended {
    /// How it ends with what writing to the client came to.
    fn from(written: io::Result<()>) -> Self {
        match written.map_err(|error| error.kind()) {
            Ok(()) => Self::Complete,
            Err(io::ErrorKind::TimedOut) => Self::ClientStalled,
            Err(HELD_UP) => Self::HeldUp,
            Err(io::ErrorKind::OutOfMemory) => Self::Aborted(AbortReason::NoMemory),
            Err(_) => Self::ClientGone,
        }
    }
}

/// One answer on its way to a client.
pub(crate) struct Relay<'a> {
    core: &'a Rc<Core>,
    request: &'a Request,
    /// The head that is sent.
    head: Arc<StoredHead>,
    encoder: BodyEncoder,
    sends_body: bool,
    framing: Framing,
    keep_alive: bool,
    /// Bytes to send before anything else: the head, the end of a chunk.
    pending: Vec<u8>,
    slices: Vec<BodySlice>,
    /// How many more bytes of the body may be sent (`reply_body_max_size`).
    body_bytes_left: u64,
    /// Bytes of the body that were taken from the reader, all of which the client gets.
    body_bytes_taken: u64,
    /// How to go on without the fetch, where that is shared.
    leave: Option<Box<Leave>>,
    /// The request's body, where it is still on its way.
    pump: Option<Box<BodyPump>>,
}

impl<'a> Relay<'a> {
    /// Prepares head and framing for `head`. `fields` are those that say how the cache was used.
    pub(crate) fn new(
        core: &'a Rc<Core>,
        request: &'a Request,
        head: &FlowHead,
        fields: &[u8],
    ) -> Self {
        Self::with_pump(core, request, head, fields, None)
    }

    /// As [`Relay::new`], for a request whose body may still be on its way: then the connection
    /// ends with the answer, and the answer says so.
    pub(crate) fn with_pump(
        core: &'a Rc<Core>,
        request: &'a Request,
        head: &FlowHead,
        fields: &[u8],
        pump: Option<Box<BodyPump>>,
    ) -> Self {
        let is_head = request.head.method == Method::Head;
        let status = head.head.status;
        let sends_body = !is_head && !is_bodiless_status(status);
        let framing = match (head.info.body_bytes, request.head.version) {
            _ if !sends_body => Framing::None,
            (Some(body_bytes), _) => Framing::Length(body_bytes),
            (None, Version::Http11) => Framing::Chunked,
            (None, Version::Http10) => Framing::UntilClose,
        };
        let keep_alive = request.snapshot().keeps_alive(request)
            && framing != Framing::UntilClose
            // What follows a CONNECT that was refused may be meant for the tunnel.
            && request.head.method != Method::Connect
            && !core.is_draining()
            && pump.as_deref().is_none_or(BodyPump::is_done);
        let mut pending = Vec::with_capacity(head.head.bytes().len() + 256);
        pending.extend_from_slice(head.head.bytes());
        match head.info.body_bytes {
            // HEAD gets the length that GET would have, where it is known.
            Some(body_bytes) if !is_bodiless_status(status) => {
                pending.extend_from_slice(b"Content-Length: ");
                pending.extend_from_slice(itoa::Buffer::new().format(body_bytes).as_bytes());
                pending.extend_from_slice(b"\r\n");
            }
            _ if framing == Framing::Chunked => {
                pending.extend_from_slice(b"Transfer-Encoding: chunked\r\n")
            }
            _ => {}
        }
        pending.extend_from_slice(fields);
        request.snapshot().header_rules.apply_to_reply(&mut pending, 0, request);
        write_connection(&mut pending, request.head.version, keep_alive);
        pending.extend_from_slice(b"\r\n");
        let encoder = BodyEncoder::new(framing);
        Self {
            core,
            request,
            head: Arc::clone(&head.head),
            encoder,
            sends_body,
            framing,
            keep_alive,
            pending,
            slices: Vec::new(),
            body_bytes_left: reply::UNLIMITED,
            body_bytes_taken: 0,
            leave: None,
            pump,
        }
    }

    /// Cuts the answer off before its body gets longer than this.
    pub(crate) fn limit_body(&mut self, bytes: u64) {
        self.body_bytes_left = bytes;
    }

    /// Lets the client leave a fetch that it shares.
    pub(crate) fn may_leave(&mut self, leave: Option<Box<Leave>>) {
        self.leave = leave;
    }

    /// Bytes of the body that the client has when a run has ended without an error of its
    /// connection.
    pub(crate) fn body_bytes_taken(&self) -> u64 {
        self.body_bytes_taken
    }

    /// The rest from the server, which is asked for the whole answer. `None` when it is not the
    /// same one.
    pub(crate) async fn once_more(&mut self) -> Option<FlowReader> {
        let leave = self.leave.as_mut()?;
        leave.ask_again();
        poll_fn(|cx| leave.poll_again(cx)).await
    }

    /// What becomes of the connection after the answer, or where it was cut off.
    pub(crate) fn after(&self, cut: Option<Cut>) -> After {
        match cut {
            None if self.keep_alive => After::Keep,
            None => After::Close,
            Some(cut) => After::Abort(cut),
        }
    }

    /// Sends the answer from the reader's position to its end. Where it ends lost, the caller tries
    /// in another way, or [cuts it off](Relay::cut_off).
    pub(crate) async fn run(
        &mut self,
        conn: &ClientConn,
        reader: &mut FlowReader,
        outcome: &mut Outcome,
    ) -> Ended {
        if !self.sends_body {
            return self.flush(conn, outcome).await.into();
        }
        loop {
            let progress = match self.next_progress(conn, reader).await {
                Some(progress) => progress,
                None if self.pending.is_empty() => return Ended::ClientGone,
                None => {
                    // Nothing has arrived yet: the head goes out alone.
                    let nothing = Some((&mut *reader, &mut Vec::new()));
                    match Ended::from(self.send_parts(conn, nothing, b"", outcome).await.map(drop))
                    {
                        Ended::Complete => continue,
                        ended => return ended,
                    }
                }
            };
            if conn.lifetime.is_expired() {
                return self.cut_off(conn, outcome, Ended::ClientGone).await;
            }
            match progress {
                Progress::Data { .. } if self.body_bytes_left == 0 => {
                    return self
                        .cut_off(conn, outcome, Ended::Aborted(AbortReason::TooLarge))
                        .await;
                }
                Progress::Data { .. } => {
                    match Ended::from(self.send_data(conn, reader, outcome).await) {
                        Ended::Complete => {}
                        ended => return ended,
                    }
                }
                Progress::End => return self.finish(conn, reader, outcome).await,
                Progress::Aborted(reason) => {
                    return match Ended::Aborted(reason) {
                        lost if lost.is_lost() => lost,
                        ended => self.cut_off(conn, outcome, ended).await,
                    };
                }
                // No client is left behind: only disk writers are.
                Progress::Lagged { .. } => {
                    return self
                        .cut_off(conn, outcome, Ended::Aborted(AbortReason::Cancelled))
                        .await;
                }
            }
        }
    }

    /// The next thing to do. `None`: the client has gone, or there is a head to send while nothing
    /// else has arrived.
    async fn next_progress(
        &mut self,
        conn: &ClientConn,
        reader: &mut FlowReader,
    ) -> Option<Progress> {
        let mut gone = pin!(conn.gone(self.request));
        poll_fn(|cx| {
            // It may have begun to look for the rest when it was slower.
            if let Some(leave) = &mut self.leave {
                _ = leave.poll(cx, reader, None);
            }
            if let Poll::Ready(progress) = reader.poll_data(cx) {
                return Poll::Ready(Some(progress));
            }
            if !self.pending.is_empty() {
                return Poll::Ready(None);
            }
            if let Some(pump) = self.pump.as_mut().filter(|pump| !pump.is_done())
                && let Poll::Ready(Err(PumpError::Client(_))) = pump.poll(cx, self.core, conn)
            {
                return Poll::Ready(None);
            }
            gone.as_mut().poll(cx).map(|()| None)
        })
        .await
    }

    /// Waits until the client takes more, and lets the request body go on meanwhile: a client may
    /// send all of its body before it reads. A client that holds up others leaves the fetch
    /// meanwhile, if it can: `true` then, and `reader` begins behind what was taken. It is an error
    /// if it takes nothing meanwhile.
    async fn writable(
        &mut self,
        conn: &ClientConn,
        mut reader: Option<&mut FlowReader>,
    ) -> io::Result<bool> {
        conn.deadline.arm(self.request.snapshot().config.write_timeout);
        if let (Some(leave), Some(_)) = (&mut self.leave, &reader) {
            leave.begin_wait();
        }
        let mut has_left = false;
        let result = poll_fn(|cx| {
            if let (Some(leave), Some(reader)) = (&mut self.leave, &mut reader) {
                match leave.poll(cx, reader, Some(&conn.stream)) {
                    Poll::Ready(Ok(())) => has_left = true,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {}
                }
            }
            if let Some(pump) = &mut self.pump {
                // Its failure shows when the answer is sent.
                _ = pump.poll(cx, self.core, conn);
            }
            if conn.poll_out_of_time(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            conn.stream.poll_write_ready(cx)
        })
        .await;
        conn.deadline.disarm();
        if let (Some(leave), Some(reader)) = (&mut self.leave, &reader) {
            leave.end_wait(reader);
        }
        result.map(|()| has_left)
    }

    async fn send_data(
        &mut self,
        conn: &ClientConn,
        reader: &mut FlowReader,
        outcome: &mut Outcome,
    ) -> io::Result<()> {
        self.slices.clear();
        let len =
            reader.slices(&mut self.slices, WRITE_BYTES_MAX.min(self.body_bytes_left)) as usize;
        self.body_bytes_left -= len as u64;
        self.body_bytes_taken += len as u64;
        if let Some(leave) = &mut self.leave {
            leave.take(&self.slices);
        }
        let prefix = self.encoder.chunk_prefix(len).map_err(|_| io::ErrorKind::InvalidData)?;
        self.pending.extend_from_slice(prefix.as_bytes());
        let mut slices = std::mem::take(&mut self.slices);
        let result =
            self.send_parts(conn, Some((reader, &mut slices)), prefix.suffix(), outcome).await;
        self.slices = slices;
        self.slices.clear();
        // Whoever has left the fetch goes on behind these bytes.
        if !result? {
            reader.advance(len as u64);
        }
        Ok(())
    }

    /// Sends what is pending, then parts of a body that this reader gave, then `suffix`. Says
    /// whether the client has left the fetch on the way: the reader is behind these parts then.
    async fn send_parts(
        &mut self,
        conn: &ClientConn,
        mut body: Option<(&mut FlowReader, &mut Vec<BodySlice>)>,
        suffix: &[u8],
        outcome: &mut Outcome,
    ) -> io::Result<bool> {
        let pending = std::mem::take(&mut self.pending);
        let body_bytes: usize =
            body.iter().flat_map(|(_, slices)| slices.iter()).map(|slice| slice.len()).sum();
        let total = pending.len() + body_bytes + suffix.len();
        let (mut sent, mut has_left) = (0, false);
        while sent < total {
            let written = {
                let mut parts = [IoSlice::new(&[]); PARTS_MAX];
                let slices =
                    body.iter().flat_map(|(_, slices)| slices.iter().map(|slice| &**slice));
                let all = std::iter::once(&pending[..]).chain(slices).chain([suffix]);
                let count = fill_parts(&mut parts, all, sent);
                conn.stream.try_write_vectored(parts.get(..count).unwrap_or_default())
            };
            match written {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    sent += n;
                    outcome.bytes_out += n as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if let Some((reader, slices)) = &mut body
                        && !has_left
                    {
                        reader.settle(slices).map_err(|_| io::ErrorKind::OutOfMemory)?;
                    }
                    let reader = body.as_mut().map(|(reader, _)| &mut **reader);
                    has_left |= self.writable(conn, reader).await?;
                }
                Err(error) => return Err(error),
            }
        }
        self.core.count(Counter::ClientOutBytes, total as u64);
        self.pending = pending;
        self.pending.clear();
        Ok(has_left)
    }

    async fn flush(&mut self, conn: &ClientConn, outcome: &mut Outcome) -> io::Result<()> {
        self.send_parts(conn, None, b"", outcome).await.map(drop)
    }

    async fn finish(
        &mut self,
        conn: &ClientConn,
        reader: &FlowReader,
        outcome: &mut Outcome,
    ) -> Ended {
        let mut trailers = reader.trailers();
        if let Some(trailers) = &mut trailers {
            self.request.snapshot().header_rules.apply_to_trailers(
                trailers,
                &self.head,
                self.request,
            );
        }
        if self.encoder.finish(trailers.as_ref(), &mut self.pending).is_err() {
            return self.cut_off(conn, outcome, Ended::Aborted(AbortReason::Truncated)).await;
        }
        self.flush(conn, outcome).await.into()
    }

    /// Ends an answer that is not complete so that the client notices: the head (if it is still
    /// here) and a body that lacks its end. Where only the end of the connection ends the body, the
    /// connection is reset.
    pub(crate) async fn cut_off(
        &mut self,
        conn: &ClientConn,
        outcome: &mut Outcome,
        ended: Ended,
    ) -> Ended {
        if self.framing == Framing::UntilClose {
            _ = humboldt_sys::tcp::reset_on_close(&conn.stream);
        } else {
            _ = self.flush(conn, outcome).await;
        }
        ended
    }
}

/// Fills `parts` with what of `all` lies behind the first `skip` bytes; returns how many parts.
fn fill_parts<'b>(
    parts: &mut [IoSlice<'b>],
    all: impl Iterator<Item = &'b [u8]>,
    mut skip: usize,
) -> usize {
    let mut count = 0;
    for part in all {
        if skip >= part.len() {
            skip -= part.len();
            continue;
        }
        let Some(slot) = parts.get_mut(count) else { break };
        *slot = IoSlice::new(part.get(skip..).unwrap_or_default());
        skip = 0;
        count += 1;
    }
    count
}

/// Passes an interim response (1xx) on; HTTP/1.0 clients do not know them (RFC 9110 15.2).
pub(crate) async fn interim(
    core: &Rc<Core>,
    conn: &ClientConn,
    request: &Request,
    head: &StoredHead,
) -> io::Result<()> {
    if request.head.version == Version::Http10 {
        return Ok(());
    }
    let mut bytes = head.bytes().to_vec();
    request.snapshot().header_rules.apply_to_reply(&mut bytes, 0, request);
    bytes.extend_from_slice(b"\r\n");
    answer::write_all(conn, core, &bytes).await
}
