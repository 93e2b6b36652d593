//! The answers of an HTTP/1 connection.
//!
//! One connection has one exchange after the other, and this type is both. An idle connection costs
//! little: reading goes through the core's own buffer, and only bytes that belong to a later
//! request, or to a head that is not complete yet, are kept with the connection.

use std::io::{self, IoSlice};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use humboldt_base::counters::Counter;
use humboldt_base::token_bucket::TokenBucket;
use humboldt_http::h1::{self, BodyEncoder, EncodeError, Framing};
use humboldt_http::{Fields, Version};
use humboldt_net::Stream;
use humboldt_net::marks::PacketMarks;

use super::carrier::{Carrier, Kept};
use super::faults::{ClientLost, ResetReason};
use super::limits::Limits;
use super::lines::Lines;
use super::requests::RequestBody;
use super::socket::Socket;
use crate::buffers::Input;
use crate::head::{BodyLength, BodySlices, ReplyHead};
use crate::io::CoreIo;
use crate::is_bodiless_status;
use crate::tunnel::TunnelEnd;

/// Most parts of one vectored write: the kept bytes, up to 256 KiB in pages, the end of a chunk.
const PARTS_MAX: usize = 66;

/// Places for the parts of most writes: to fill all [`PARTS_MAX`] costs more than the rest of a
/// small write.
const FEW_PARTS: usize = 8;

/// A rest of a body up to this size is copied behind its head, so that one plain `send` does:
/// cheaper than a vectored write. In bytes.
const COPY_BYTES_MAX: usize = 4096;

/// Beyond this many kept bytes, nothing is copied behind them.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Most bytes of a body that are taken from buckets at a time.
const PACED_BYTES_MAX: u64 = 256 * 1024;

/// Whether a connection goes on after an answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// The next request may come.
    Keep,
    /// Everything was sent: close, after reading for a moment, so that the client sees the answer.
    Close,
    /// Both sides have said all, as at the end of a tunnel: close.
    Over,
    /// Its bytes are those of another protocol from now on: see [`Carrier`].
    HandedOver,
    /// Cut off: the answer is incomplete, and the client must notice.
    Abort,
}

/// The frame of a chunk that was begun.
#[derive(Copy, Clone, Debug, Default)]
struct Piece {
    /// Bytes of its data that are to come.
    left: usize,
    suffix: &'static [u8],
}

/// A connection of HTTP/1, and the exchange that is going on.
pub struct H1Client {
    pub(super) io: Rc<CoreIo>,
    pub(super) socket: Rc<Socket>,
    /// Bytes read beyond the used ones: an incomplete head, or the rest of one read behind it.
    /// Nothing more is read until an answer is out.
    pub(super) input: Input,
    /// Length of the part of `input` that has been parsed and found incomplete: a head that
    /// trickles in is not parsed at every byte.
    pub(super) parsed_bytes: usize,
    pub(super) write_timeout: Duration,
    pub(super) read_timeout: Duration,
    pub(super) half_closed: bool,
    /// Of the request.
    pub(super) version: Version,
    /// The request is one for a head without a body.
    pub(super) is_head: bool,
    /// The request lets the connection go on, and so do the settings.
    pub(super) persists: bool,
    /// The client itself wants it to go on.
    pub(super) wants_more: bool,
    /// The request's body, as long as it was not read to its end.
    pub(super) body: Option<Box<RequestBody>>,
    /// The length of the request's body.
    pub(super) length: BodyLength,
    /// The fate of the connection.
    pub(super) after: After,
    /// The kept bytes, and the length of their sent part.
    out: Vec<u8>,
    out_sent: usize,
    framing: Framing,
    encoder: BodyEncoder,
    piece: Piece,
    sent_bytes: u64,
    /// Those before the head, of interim heads, once there is one.
    sent_before_head: Option<u64>,
    /// The deadline runs for the client to take something.
    waits: bool,
    /// Marks of the packets that are sent.
    pub(super) marks: PacketMarks,
    /// What limits the pace of the client, if anything does.
    limits: Option<Box<Limits>>,
}

/// The result of a write.
enum Sent {
    /// This many bytes of the body; 0 of an empty one.
    Body(u64),
    /// Kept bytes only, and perhaps not all of them.
    Kept,
    /// The socket takes nothing now.
    Nothing,
}

impl H1Client {
    /// Takes over an accepted connection.
    pub(crate) fn new(io: &Rc<CoreIo>, stream: Stream) -> Self {
        let lifetime = io.deadlines.slot();
        lifetime.arm(io.settings().lifetime);
        let kept = Kept { lifetime, marks: PacketMarks::default() };
        Self::on(io, Carrier { stream, kept })
    }

    /// Goes on with a connection that was another one before.
    pub(crate) fn on(io: &Rc<CoreIo>, carrier: Carrier) -> Self {
        let settings = io.settings();
        let Carrier { stream, kept: Kept { lifetime, marks } } = carrier;
        let socket = Socket { stream, deadline: io.deadlines.slot(), lifetime };
        socket.deadline.arm_in_line(settings.request_start);
        Self {
            io: Rc::clone(io),
            socket: Rc::new(socket),
            input: Input::default(),
            parsed_bytes: 0,
            write_timeout: settings.write,
            read_timeout: settings.read,
            half_closed: settings.half_closed,
            version: Version::Http11,
            is_head: false,
            persists: false,
            wants_more: false,
            body: None,
            length: BodyLength::None,
            after: After::Abort,
            out: Vec::new(),
            out_sent: 0,
            framing: Framing::None,
            encoder: BodyEncoder::new(Framing::None),
            piece: Piece::default(),
            sent_bytes: 0,
            sent_before_head: None,
            waits: false,
            marks,
            limits: None,
        }
    }

    /// Limits the pace of all that is sent on the connection.
    pub(crate) fn limit_connection(&mut self, buckets: Vec<Arc<TokenBucket>>) {
        self.limits = Limits::of_connection(buckets);
    }

    /// Limits the pace of the answer that begins, too.
    pub(super) fn limit_answer(&mut self, buckets: Vec<Arc<TokenBucket>>) {
        self.limits = Limits::of_answer(self.limits.take(), buckets);
    }

    /// How many of `most` bytes may be sent now.
    fn allowance(&mut self, most: u64) -> u64 {
        match &mut self.limits {
            None => most,
            Some(limits) => limits.pace.allowance(most),
        }
    }

    /// Gives back what the client was allowed to be sent and does not take.
    fn give_allowance_back(&mut self) {
        if let Some(limits) = &mut self.limits {
            limits.pace.give_back();
        }
    }

    /// The buckets of the answer are without use for the next one, and none keeps bytes for a
    /// connection that is idle.
    pub(super) fn end_limits(&mut self) {
        self.limits = self.limits.take().and_then(Limits::end_answer);
        self.give_allowance_back();
    }

    /// Forgets the answer before.
    pub(super) fn begin_answer(&mut self) {
        self.end_limits();
        self.after = After::Abort;
        (self.body, self.length) = (None, BodyLength::None);
        (self.sent_bytes, self.sent_before_head) = (0, None);
        self.framing = Framing::None;
        self.waits = false;
    }

    pub(super) fn mark_packets(&mut self, marks: PacketMarks) {
        marks.set(&self.socket.stream, self.marks);
        self.marks = marks;
    }

    /// Whether another request may come on this connection.
    pub(super) fn may_continue(&self) -> bool {
        !self.io.is_draining() && !self.socket.lifetime.is_expired()
    }

    pub(super) fn keep_open(&mut self) -> bool {
        // Behind the head of CONNECT, what is there already may be meant for a tunnel.
        self.persists = self.wants_more && (self.persists || self.input.is_empty());
        self.persists && self.body.is_none() && self.may_continue()
    }

    /// The last chunk ends a body in HTTP/1.1, and the end of the connection in HTTP/1.0.
    pub(super) fn can_cut_off(&self) -> bool {
        self.version != Version::Http10 || self.socket.stream.has_reset()
    }

    pub(super) fn close_behind(&mut self) {
        self.persists = false;
    }

    pub(super) fn send_interim(&mut self, head: &impl ReplyHead) {
        if self.version != Version::Http10 {
            self.make_out();
            head.write(&mut Lines(&mut self.out));
            h1::write_end(&mut self.out);
        }
    }

    pub(super) fn send_head(&mut self, head: &impl ReplyHead, length: BodyLength) {
        self.sent_before_head = Some(self.sent_bytes);
        self.make_out();
        head.write(&mut Lines(&mut self.out));
        self.framing = self.write_framing(head.status(), length);
        let keep = self.persists
            && self.framing != Framing::UntilClose
            && self.body.is_none()
            && !self.io.is_draining();
        self.after = if keep { After::Keep } else { After::Close };
        match (self.version, keep) {
            (Version::Http10, true) => h1::write_field(&mut self.out, b"Connection", b"keep-alive"),
            (Version::Http10, false) | (_, true) => {}
            (_, false) => h1::write_field(&mut self.out, b"Connection", b"close"),
        }
        h1::write_end(&mut self.out);
        self.encoder = BodyEncoder::new(self.framing);
        self.piece = Piece::default();
    }

    /// Writes the fields that frame the body. To HEAD the length is told that GET would have.
    fn write_framing(&mut self, status: u16, length: BodyLength) -> Framing {
        let is_bodiless = is_bodiless_status(status);
        let has_body = !self.is_head && !is_bodiless;
        match length {
            BodyLength::Known(bytes) => {
                if !is_bodiless {
                    self.out.extend_from_slice(b"Content-Length: ");
                    self.out.extend_from_slice(itoa::Buffer::new().format(bytes).as_bytes());
                    self.out.extend_from_slice(b"\r\n");
                }
                if has_body { Framing::Length(bytes) } else { Framing::None }
            }
            BodyLength::Unknown if has_body && self.version == Version::Http10 => {
                Framing::UntilClose
            }
            BodyLength::Unknown if has_body => {
                h1::write_field(&mut self.out, b"Transfer-Encoding", b"chunked");
                Framing::Chunked
            }
            BodyLength::Unknown | BodyLength::None => Framing::None,
        }
    }

    pub(super) fn send_tunnel_head(&mut self, head: &impl ReplyHead, upgrade: Option<&[u8]>) {
        self.sent_before_head = Some(self.sent_bytes);
        self.make_out();
        head.write(&mut Lines(&mut self.out));
        if let Some(protocols) = upgrade {
            h1::write_field(&mut self.out, b"Connection", b"Upgrade");
            h1::write_field(&mut self.out, b"Upgrade", protocols);
        }
        h1::write_end(&mut self.out);
        self.after = After::Over;
    }

    /// Begins, and ends, an answer that is not one of HTTP.
    pub(super) fn send_bytes(&mut self, bytes: &[u8], after: After) {
        self.sent_before_head = Some(self.sent_bytes);
        self.make_out();
        self.out.extend_from_slice(bytes);
        self.framing = Framing::None;
        self.encoder = BodyEncoder::new(Framing::None);
        self.piece = Piece::default();
        self.after = after;
    }

    pub(super) fn try_send<B: BodySlices + ?Sized>(
        &mut self,
        body: &B,
    ) -> Result<Option<u64>, ClientLost> {
        loop {
            // With a limit, much that is kept must not go out in one piece.
            if self.limits.is_some()
                && self.out.len() - self.out_sent > COPY_BYTES_MAX
                && !self.try_flush()?
            {
                return Ok(None);
            }
            match self.send_some(body)? {
                // All that was taken was kept bytes. That none of the body was must not look as if
                // there was none: the caller would go on behind it.
                Sent::Kept => {}
                Sent::Body(bytes) => return Ok(Some(bytes)),
                Sent::Nothing => return Ok(None),
            }
        }
    }

    /// Sends kept bytes and some of the body, with one write at most.
    fn send_some<B: BodySlices + ?Sized>(&mut self, body: &B) -> Result<Sent, ClientLost> {
        self.send_parts::<FEW_PARTS, B>(body)
    }

    /// The same with this many places, or with [`PARTS_MAX`] if these are not enough.
    fn send_parts<const PLACES: usize, B: BodySlices + ?Sized>(
        &mut self,
        body: &B,
    ) -> Result<Sent, ClientLost> {
        let most_bytes = if self.piece.left > 0 { self.piece.left as u64 } else { u64::MAX };
        let mut parts = [IoSlice::new(&[]); PLACES];
        let (mut count, mut offered) = slices(body, most_bytes, &mut parts);
        if offered == 0 {
            return Ok(Sent::Body(0));
        }
        if PLACES < PARTS_MAX && count + 2 == PLACES {
            return self.send_parts::<PARTS_MAX, B>(body);
        }
        if self.limits.is_some() {
            // No more is taken from the buckets than there is to send.
            let kept_bytes = (self.out.len() - self.out_sent) as u64;
            let wanted = (offered as u64).min(PACED_BYTES_MAX);
            let allowed = self.allowance(kept_bytes + wanted);
            if allowed == 0 {
                return Ok(Sent::Nothing);
            }
            let allowed = allowed.saturating_sub(kept_bytes).max(1).min(most_bytes);
            (count, offered) = slices(body, allowed, &mut parts);
        }
        self.frame(offered).map_err(|_| ClientLost::Gone)?;
        let kept_bytes = self.out.len() - self.out_sent;
        let may_keep = (1..=KEPT_BYTES_MAX).contains(&kept_bytes);
        if offered <= COPY_BYTES_MAX && may_keep {
            parts.iter().skip(1).take(count).for_each(|part| self.out.extend_from_slice(part));
            let suffix = self.account(offered);
            self.out.extend_from_slice(suffix);
            return Ok(Sent::Body(offered as u64));
        }
        // The kept bytes, the body, and the end of the piece if the piece ends here.
        let kept = self.out.get(self.out_sent..).unwrap_or_default();
        if let Some(place) = parts.first_mut() {
            *place = IoSlice::new(kept);
        }
        let mut end = count + 1;
        if self.piece.left == offered
            && let Some(place) = parts.get_mut(end)
        {
            *place = IoSlice::new(self.piece.suffix);
            end += 1;
        }
        let parts = parts.get(usize::from(kept.is_empty())..end).unwrap_or_default();
        match self.socket.stream.try_write_vectored(parts) {
            Ok(0) => Err(self.lost_by(io::ErrorKind::WriteZero)),
            Ok(written) => match self.advance(written, offered) {
                0 => Ok(Sent::Kept),
                taken => Ok(Sent::Body(taken)),
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.give_allowance_back();
                Ok(Sent::Nothing)
            }
            Err(error) => Err(self.lost_by(error.kind())),
        }
    }

    pub(super) fn try_flush(&mut self) -> Result<bool, ClientLost> {
        while self.keeps_something() {
            let kept_bytes = (self.out.len() - self.out_sent) as u64;
            let most = usize::try_from(self.allowance(kept_bytes)).unwrap_or(usize::MAX);
            if most == 0 {
                return Ok(false);
            }
            let kept = self.out.get(self.out_sent..).unwrap_or_default();
            let kept = kept.get(..most).unwrap_or(kept);
            match self.socket.stream.try_write(kept) {
                Ok(0) => return Err(self.lost_by(io::ErrorKind::WriteZero)),
                Ok(written) => _ = self.advance(written, 0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.give_allowance_back();
                    return Ok(false);
                }
                Err(error) => return Err(self.lost_by(error.kind())),
            }
        }
        Ok(self.is_flushed())
    }

    /// Begins a piece where none was begun.
    fn frame(&mut self, offered: usize) -> Result<(), EncodeError> {
        let room = match self.framing {
            Framing::Chunked if self.piece.left == 0 => {
                let prefix = self.encoder.chunk_prefix(offered)?;
                self.make_out();
                self.out.extend_from_slice(prefix.as_bytes());
                self.piece = Piece { left: offered, suffix: prefix.suffix() };
                return Ok(());
            }
            Framing::Chunked => Some(self.piece.left as u64),
            _ => self.encoder.room(),
        };
        match room {
            Some(room) if offered as u64 > room => Err(EncodeError::TooLong),
            _ => Ok(()),
        }
    }

    /// Notes the `written` bytes of one write. Returns the number of body bytes among them.
    fn advance(&mut self, written: usize, offered: usize) -> u64 {
        self.waits = false;
        self.sent_bytes += written as u64;
        if let Some(limits) = &mut self.limits {
            limits.pace.spend(written as u64);
        }
        self.io.count(Counter::ClientOutBytes, written as u64);
        let of_kept = written.min(self.out.len() - self.out_sent);
        self.out_sent += of_kept;
        if !self.keeps_something() {
            self.give_out_back();
        }
        let of_body = (written - of_kept).min(offered);
        if of_body > 0 {
            let suffix = self.account(of_body);
            let rest = suffix.get(written - of_kept - of_body..).unwrap_or_default();
            if !rest.is_empty() {
                self.make_out();
                self.out.extend_from_slice(rest);
            }
        }
        of_body as u64
    }

    /// Subtracts bytes of the body from the announced ones. Returns the end of the piece if it has
    /// come.
    fn account(&mut self, bytes: usize) -> &'static [u8] {
        if self.piece.left > 0 {
            self.piece.left -= bytes.min(self.piece.left);
            return if self.piece.left == 0 { std::mem::take(&mut self.piece).suffix } else { b"" };
        }
        // There is room for them: that was looked at before.
        _ = self.encoder.chunk_prefix(bytes);
        b""
    }

    pub(super) fn keep_body(&mut self, body: &[u8]) -> Result<(), EncodeError> {
        if self.framing == Framing::None {
            return Ok(());
        }
        self.make_out();
        self.encoder.encode(body, &mut self.out)
    }

    pub(super) fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientLost>> {
        if let Some(limits) = self.limits.as_mut().filter(|limits| limits.pace.is_waiting()) {
            // Nobody waits for the client, so its time to take something does not run.
            self.waits = false;
            self.socket.deadline.disarm();
            let waited = ready!(limits.poll(cx, &self.socket, self.half_closed));
            return Poll::Ready(waited.map_err(|()| self.lost_by(io::ErrorKind::NotConnected)));
        }
        if !self.waits {
            self.waits = true;
            self.socket.deadline.arm(self.write_timeout);
        }
        if self.poll_out_of_time(cx).is_ready() {
            return Poll::Ready(Err(self.lost_by(io::ErrorKind::TimedOut)));
        }
        let writable = ready!(self.socket.stream.poll_write_ready(cx));
        self.waits = false;
        self.socket.deadline.disarm();
        Poll::Ready(writable.map_err(|error| self.lost_by(error.kind())))
    }

    /// Ready when the present wait has taken too long, or the connection has lived too long.
    pub(super) fn poll_out_of_time(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self.socket.lifetime.poll_expired(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => self.socket.deadline.poll_expired(cx),
        }
    }

    /// The reason of the client's loss for this error of a write.
    fn lost_by(&self, error: io::ErrorKind) -> ClientLost {
        match error {
            _ if self.is_over_lifetime() => ClientLost::Lifetime,
            io::ErrorKind::TimedOut => ClientLost::Stalled,
            _ => ClientLost::Gone,
        }
    }

    pub(super) fn is_flushed(&self) -> bool {
        !self.keeps_something() && !self.socket.stream.has_unsent()
    }

    /// Whether bytes are kept that the stream has not taken.
    fn keeps_something(&self) -> bool {
        self.out_sent < self.out.len()
    }

    pub(super) fn finish(&mut self, trailers: Option<&Fields>) -> Result<(), EncodeError> {
        if self.framing == Framing::Chunked {
            self.make_out();
        }
        let ended = self.encoder.finish(trailers, &mut self.out);
        if ended.is_err() {
            self.after = After::Abort;
        }
        ended
    }

    /// Returns whether the kept bytes should still go out: not if the connection is reset.
    pub(super) fn cut_off(&mut self) -> bool {
        self.reset(ResetReason::Failed);
        self.framing != Framing::UntilClose
    }

    pub(super) fn take_back(&mut self) -> bool {
        let is_unsent = self.out_sent == 0 && self.sent_bytes() == 0;
        if is_unsent {
            self.after = After::Abort;
            self.out.clear();
            self.give_out_back();
        }
        is_unsent
    }

    /// HTTP/1 has no place for a reason.
    pub(super) fn reset(&mut self, _reason: ResetReason) {
        self.after = After::Abort;
        self.reset_if_endless();
    }

    /// If only the end of the connection ends a body that is incomplete, the connection is reset:
    /// the client must not take a part for the whole.
    fn reset_if_endless(&self) {
        if self.framing == Framing::UntilClose && !self.encoder.is_finished() {
            _ = self.socket.stream.reset_on_close();
        }
    }

    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_before_head.map_or(0, |before| self.sent_bytes - before)
    }

    pub(super) fn is_held_back(&self) -> bool {
        self.limits.as_ref().is_some_and(|limits| limits.pace.is_waiting())
    }

    pub(super) fn unacknowledged_bytes(&self) -> Option<usize> {
        // A client that a limit holds up takes all that it is sent.
        if self.is_held_back() {
            return None;
        }
        self.socket.stream.unacknowledged_bytes().ok()
    }

    pub(super) fn is_over_lifetime(&self) -> bool {
        self.socket.lifetime.is_expired()
    }

    pub(super) fn tunnel(&mut self) -> TunnelEnd {
        self.after = After::Over;
        let early = self.take_early();
        let pace = self.limits.take().map(|limits| limits.pace);
        TunnelEnd::client(Rc::clone(&self.socket), early, pace)
    }

    /// A buffer for kept bytes.
    fn make_out(&mut self) {
        if self.out.capacity() == 0 {
            self.out = self.io.take_head_buffer();
        }
    }

    fn give_out_back(&mut self) {
        self.out_sent = 0;
        self.io.return_head_buffer(std::mem::take(&mut self.out));
    }
}

/// Puts parts of the body behind the place for kept bytes: how many parts, and of how many bytes.
fn slices<'a, B: BodySlices + ?Sized>(
    body: &'a B,
    most_bytes: u64,
    parts: &mut [IoSlice<'a>],
) -> (usize, usize) {
    let count = match parts {
        [_, places @ .., _] => body.slices(most_bytes, places),
        _ => 0,
    };
    (count, parts.iter().skip(1).take(count).map(|part| part.len()).sum())
}

impl Drop for H1Client {
    fn drop(&mut self) {
        self.reset_if_endless();
    }
}
