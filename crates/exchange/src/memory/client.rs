//! A client in memory.

use std::collections::VecDeque;
use std::future::Future;
use std::io::IoSlice;
use std::rc::Rc;
use std::task::{Context, Poll};

use humboldt_http::h1::EncodeError;
use humboldt_http::{Fields, ResponseHead};
use humboldt_net::watched::Watched;

use super::pipe::Pipe;
use crate::client::{BodyFault, ClientExchange, ClientLost, ResetReason};
use crate::head::{BodyLength, BodyPart, BodySlices, ReplyHead, collect};
use crate::is_bodiless_status;
use crate::tunnel::TunnelEnd;

/// The answer as far as a client has it.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Interim heads.
    pub interims: Vec<ResponseHead>,
    /// The head.
    pub head: Option<ResponseHead>,
    /// The length that was said with it.
    pub length: Option<u64>,
    /// The body so far.
    pub body: Vec<u8>,
    /// The trailers.
    pub trailers: Option<Fields>,
    /// Its end.
    pub end: Option<End>,
}

/// The end of an answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All of it has come.
    Whole,
    /// It was cut off.
    Cut,
    /// It has become a tunnel.
    Tunnel,
}

#[derive(Default)]
struct State {
    answer: Answer,
    /// Bytes that the client takes before it has to read.
    window_bytes: usize,
    has_left: bool,
    body: VecDeque<Option<Vec<u8>>>,
    /// The length of the request's body.
    body_length: Option<BodyLength>,
    limit_bytes: Option<u64>,
    received_bytes: u64,
    tunnel: Option<Pipe>,
    /// The part of a write that the client takes; `None`: as much as its window has room for.
    parts: Option<Parts>,
}

/// Maps the length of one write to the number of bytes that the client takes, 0 for none now.
type Parts = Box<dyn FnMut(usize) -> usize>;

type Shared = Watched<State>;

impl State {
    /// Takes as much of a body as its window has room for, at most `most_bytes`.
    fn take(&mut self, body: &[IoSlice<'_>], mut most_bytes: usize) -> u64 {
        let mut taken = 0;
        for part in body {
            let take = part.len().min(self.window_bytes).min(most_bytes);
            self.window_bytes -= take;
            most_bytes -= take;
            taken += take as u64;
            self.answer.body.extend_from_slice(part.get(..take).unwrap_or_default());
        }
        taken
    }

    fn end(&mut self, trailers: Option<Fields>) {
        self.answer.trailers = trailers;
        self.answer.end = Some(End::Whole);
    }
}

/// The client of an exchange.
pub struct Client(Rc<Shared>);

/// The exchange of a [`Client`].
pub struct ClientSide {
    shared: Rc<Shared>,
    is_head: bool,
    length: BodyLength,
    left_bytes: u64,
    sent_bytes: u64,
    kept: Kept,
    /// The client took none of a write although its window has room.
    is_full: bool,
}

/// Bytes that have to go out before any others, if the client [takes parts](Client::take_parts).
#[derive(Default)]
struct Kept {
    /// Bytes of heads. They take no room in the window.
    head_bytes: usize,
    body: Vec<u8>,
    /// The end of the body, with its trailers.
    end: Option<Option<Fields>>,
    /// Some of the head is out.
    has_begun: bool,
}

impl Kept {
    /// Of heads, in bytes: any number will do, as they are not written out.
    const HEAD: usize = 300;
    /// Of the end of a body.
    const END: usize = 5;
    /// A body up to this size is kept behind the bytes that are kept already, as HTTP/1 does it.
    const COPY_BYTES_MAX: usize = 4096;

    fn bytes(&self) -> usize {
        self.head_bytes + self.body.len() + if self.end.is_some() { Self::END } else { 0 }
    }
}

/// An exchange for one request, and its client, which takes `window_bytes` of the answer before it
/// has to [read](Client::read). `length` is that of the request's body.
pub fn client(is_head: bool, length: BodyLength, window_bytes: usize) -> (ClientExchange, Client) {
    let shared = Rc::<Shared>::default();
    shared.change(|state| {
        state.window_bytes = window_bytes;
        state.body_length = Some(length);
    });
    let side = ClientSide {
        shared: Rc::clone(&shared),
        is_head,
        length: BodyLength::None,
        left_bytes: 0,
        sent_bytes: 0,
        kept: Kept::default(),
        is_full: false,
    };
    (ClientExchange::Memory(side), Client(shared))
}

impl Client {
    /// Sends a part of the request's body.
    // tidy: public, because tests use it
    pub fn send_body(&self, bytes: &[u8]) {
        self.0.change(|state| state.body.push_back(Some(bytes.to_vec())));
    }

    /// Ends the request's body.
    // tidy: public, because tests use it
    pub fn end_body(&self) {
        self.0.change(|state| state.body.push_back(None));
    }

    /// Makes room for more bytes of the answer.
    pub fn read(&self, bytes: usize) {
        self.0.change(|state| state.window_bytes = state.window_bytes.saturating_add(bytes));
    }

    /// From now on `parts` decides how many bytes each write takes; its argument is the length of
    /// the write. So a write can end within a slice or within the head, or take nothing. Heads,
    /// ends and kept bytes then count like bytes of the body.
    // tidy: public, because the simulation uses it
    pub fn take_parts(&self, parts: impl FnMut(usize) -> usize + 'static) {
        self.0.change(|state| state.parts = Some(Box::new(parts)));
    }

    /// Goes away.
    pub fn leave(&self) {
        self.0.change(|state| state.has_left = true);
    }

    /// The answer so far.
    pub fn answer(&self) -> Answer {
        self.0.state.borrow().answer.clone()
    }

    /// The end of the answer, if it has come.
    // tidy: public, because the simulation uses it
    pub fn answer_end(&self) -> Option<End> {
        self.0.state.borrow().answer.end
    }

    /// Bytes of the body that have come.
    // tidy: public, because the simulation uses it
    pub fn answer_bytes(&self) -> usize {
        self.0.state.borrow().answer.body.len()
    }

    /// Waits for the head.
    pub async fn head(&self) -> ResponseHead {
        self.0.bell.until(|| self.0.state.borrow().answer.head.clone()).await
    }

    /// Waits until this much of the body has come, or the answer has ended.
    pub async fn body(&self, bytes: usize) -> Vec<u8> {
        let look = || {
            let state = self.0.state.borrow();
            let answer = &state.answer;
            (answer.body.len() >= bytes || answer.end.is_some()).then(|| answer.body.clone())
        };
        self.0.bell.until(look).await
    }

    /// Waits for the end.
    pub async fn end(&self) -> Answer {
        let look = || self.0.state.borrow().answer.end.map(|_| self.answer());
        self.0.bell.until(look).await
    }

    /// Its end of the tunnel, once there is one.
    pub async fn tunnel(&self) -> Pipe {
        self.0.bell.until(|| self.0.state.borrow_mut().tunnel.take()).await
    }
}

/// As the operations of the same names of [`ClientExchange`].
impl ClientSide {
    pub(crate) fn request_body(&self) -> BodyLength {
        self.shared.state.borrow().body_length.unwrap_or(BodyLength::None)
    }

    pub(crate) fn limit_request_body(&mut self, bytes: Option<u64>) {
        self.shared.state.borrow_mut().limit_bytes = bytes;
    }

    pub(crate) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(BodyPart<'_>) -> Result<(), EncodeError>,
    ) -> Poll<Result<bool, BodyFault>> {
        let part = {
            let mut state = self.shared.state.borrow_mut();
            if state.has_left {
                return Poll::Ready(Err(BodyFault::Gone));
            }
            if state.body_length.is_none_or(|length| !length.has_body()) {
                return Poll::Ready(Ok(true));
            }
            let Some(part) = state.body.pop_front() else {
                self.shared.bell.listen(cx);
                return Poll::Pending;
            };
            state.received_bytes += part.as_ref().map_or(0, |bytes| bytes.len() as u64);
            if state.limit_bytes.is_some_and(|limit| state.received_bytes > limit) {
                return Poll::Ready(Err(BodyFault::TooLarge));
            }
            if part.is_none() {
                state.body_length = None;
            }
            part
        };
        let taken = match &part {
            Some(bytes) => take(BodyPart::Data(bytes)),
            None => take(BodyPart::End(None)),
        };
        Poll::Ready(taken.map(|()| part.is_none()).map_err(BodyFault::Refused))
    }

    pub(crate) fn expect_body(&mut self) {}

    pub(crate) fn poll_body_late(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    pub(crate) fn send_interim(&mut self, head: &impl ReplyHead) {
        self.shared.change(|state| state.answer.interims.push(collect(head)));
        self.keep_head();
    }

    /// Whether the client takes writes in parts.
    fn has_parts(&self) -> bool {
        self.shared.state.borrow().parts.is_some()
    }

    fn keep_head(&mut self) {
        if self.has_parts() {
            self.kept.head_bytes += Kept::HEAD;
        }
    }

    pub(crate) fn send_head(&mut self, head: &impl ReplyHead, length: BodyLength) {
        let has_body = !self.is_head && !is_bodiless_status(head.status());
        self.length = if has_body { length } else { BodyLength::None };
        self.left_bytes = match self.length {
            BodyLength::Known(bytes) => bytes,
            BodyLength::None => 0,
            BodyLength::Unknown => u64::MAX,
        };
        self.shared.change(|state| {
            state.answer.head = Some(collect(head));
            state.answer.length = match length {
                BodyLength::Known(bytes) => Some(bytes),
                BodyLength::None | BodyLength::Unknown => None,
            };
        });
        self.kept.has_begun = false;
        self.keep_head();
    }

    pub(crate) fn send_tunnel_head(&mut self, head: &impl ReplyHead, _upgrade: Option<&[u8]>) {
        self.shared.change(|state| state.answer.head = Some(collect(head)));
    }

    pub(crate) fn try_send<B: BodySlices + ?Sized>(
        &mut self,
        body: &B,
    ) -> Result<Option<u64>, ClientLost> {
        let mut parts = [IoSlice::new(&[]); 64];
        let count = body.slices(u64::MAX, &mut parts);
        let parts = parts.get(..count).unwrap_or_default();
        let offered: usize = parts.iter().map(|part| part.len()).sum();
        if self.shared.state.borrow().has_left {
            return Err(ClientLost::Gone);
        }
        debug_assert!(offered as u64 <= self.left_bytes, "more than was announced");
        if offered == 0 {
            return Ok(Some(0));
        }
        if offered <= Kept::COPY_BYTES_MAX && self.kept.bytes() > 0 {
            parts.iter().for_each(|part| self.kept.body.extend_from_slice(part));
            self.note_taken(offered as u64);
            return Ok(Some(offered as u64));
        }
        loop {
            let Some(most_bytes) = self.write(offered) else { return Ok(None) };
            let taken = self.shared.change(|state| state.take(parts, most_bytes));
            self.note_taken(taken);
            // After a write of kept bytes alone there is another one, as nobody may think that
            // there was none of the body.
            if taken > 0 {
                return Ok(Some(taken));
            }
            if !self.has_parts() || self.shared.state.borrow().window_bytes == 0 {
                return Ok(None);
            }
        }
    }

    fn note_taken(&mut self, bytes: u64) {
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
        self.sent_bytes += bytes;
    }

    /// Writes the kept bytes, with `offered` bytes of the body behind them. Returns the number of
    /// body bytes that the client may take; `None` if it takes nothing now.
    fn write(&mut self, offered: usize) -> Option<usize> {
        let kept = &mut self.kept;
        let mut state = self.shared.state.borrow_mut();
        let Some(parts) = &mut state.parts else { return Some(offered) };
        let all_bytes = kept.bytes() + offered;
        let mut left = parts(all_bytes).min(all_bytes);
        self.is_full = left == 0 && all_bytes > 0;
        if self.is_full {
            return None;
        }
        let head_bytes = left.min(kept.head_bytes);
        kept.has_begun |= head_bytes > 0;
        kept.head_bytes -= head_bytes;
        left -= head_bytes;
        let body_bytes = left.min(kept.body.len());
        state.answer.body.extend(kept.body.drain(..body_bytes));
        left -= body_bytes;
        if left >= Kept::END
            && let Some(trailers) = kept.end.take()
        {
            state.end(trailers);
        }
        drop(state);
        self.shared.bell.ring();
        Some(left)
    }

    pub(crate) fn try_flush(&mut self) -> Result<bool, ClientLost> {
        loop {
            if self.shared.state.borrow().has_left {
                return Err(ClientLost::Gone);
            }
            if self.is_flushed() {
                return Ok(true);
            }
            if self.write(0).is_none() {
                return Ok(false);
            }
        }
    }

    pub(crate) fn keep_body(&mut self, body: &[u8]) -> Result<(), EncodeError> {
        if self.length == BodyLength::None {
            return Ok(());
        }
        if body.len() as u64 > self.left_bytes {
            return Err(EncodeError::TooLong);
        }
        self.note_taken(body.len() as u64);
        if self.has_parts() {
            self.kept.body.extend_from_slice(body);
            return Ok(());
        }
        self.shared.change(|state| state.answer.body.extend_from_slice(body));
        Ok(())
    }

    pub(crate) fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientLost>> {
        let state = self.shared.state.borrow();
        if state.has_left {
            return Poll::Ready(Err(ClientLost::Gone));
        }
        if std::mem::take(&mut self.is_full) {
            // It has room again a turn later.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if state.window_bytes > 0 || self.kept.bytes() > 0 {
            return Poll::Ready(Ok(()));
        }
        self.shared.bell.listen(cx);
        Poll::Pending
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.kept.bytes() == 0
    }

    pub(crate) fn finish(&mut self, trailers: Option<&Fields>) -> Result<(), EncodeError> {
        if matches!(self.length, BodyLength::Known(_)) && self.left_bytes > 0 {
            return Err(EncodeError::TooShort);
        }
        if self.has_parts() {
            self.kept.end = Some(trailers.cloned());
            return Ok(());
        }
        self.shared.change(|state| state.end(trailers.cloned()));
        Ok(())
    }

    pub(crate) fn cut_off(&mut self) -> bool {
        self.reset(ResetReason::Failed);
        false
    }

    pub(crate) fn take_back(&mut self) -> bool {
        let has_begun = self.kept.has_begun;
        let is_unsent = self.shared.change(|state| {
            let is_empty = state.answer.body.is_empty() && state.answer.end.is_none();
            let is_unsent = is_empty && !has_begun;
            if is_unsent {
                state.answer.head = None;
            }
            is_unsent
        });
        if is_unsent {
            self.kept = Kept::default();
        }
        is_unsent
    }

    pub(crate) fn reset(&mut self, _reason: ResetReason) {
        self.kept = Kept::default();
        self.shared.change(|state| _ = state.answer.end.get_or_insert(End::Cut));
    }

    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// None: bytes that the client took have arrived.
    pub(crate) fn is_held_back(&self) -> bool {
        false
    }

    pub(crate) fn unacknowledged_bytes(&self) -> Option<usize> {
        Some(0)
    }

    pub(crate) fn is_over_lifetime(&self) -> bool {
        false
    }

    pub(crate) fn gone(&self) -> impl Future<Output = ()> + use<> {
        let shared = Rc::clone(&self.shared);
        async move { shared.bell.until(|| shared.state.borrow().has_left.then_some(())).await }
    }

    pub(crate) fn tunnel(&mut self) -> TunnelEnd {
        let (ours, theirs) = Pipe::pair();
        self.shared.change(|state| {
            state.answer.end = Some(End::Tunnel);
            state.tunnel = Some(theirs);
        });
        TunnelEnd::memory(ours)
    }
}

/// An exchange that is dropped before its answer has ended is cut off.
impl Drop for ClientSide {
    fn drop(&mut self) {
        self.reset(ResetReason::Failed);
    }
}
