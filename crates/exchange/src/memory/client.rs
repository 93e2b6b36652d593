//! A client in memory.

use std::collections::VecDeque;
use std::future::Future;
use std::io::IoSlice;
use std::rc::Rc;
use std::task::{Context, Poll};

use humboldt_http::h1::EncodeError;
use humboldt_http::{Fields, ResponseHead};

use super::{Pipe, Watched};
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
}

type Shared = Watched<State>;

/// The client of an exchange.
pub struct Client(Rc<Shared>);

/// The exchange of a [`Client`].
pub struct ClientSide {
    shared: Rc<Shared>,
    is_head: bool,
    length: BodyLength,
    left_bytes: u64,
    sent_bytes: u64,
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
        let (mut offered, mut taken) = (0_u64, 0_u64);
        let left = self.left_bytes;
        self.shared.change(|state| {
            if state.has_left {
                return Err(ClientLost::Gone);
            }
            for part in parts.iter().take(count) {
                offered += part.len() as u64;
                let take = part.len().min(state.window_bytes);
                state.window_bytes -= take;
                taken += take as u64;
                state.answer.body.extend_from_slice(part.get(..take).unwrap_or_default());
            }
            Ok(())
        })?;
        debug_assert!(offered <= left, "more than was announced");
        self.left_bytes = left.saturating_sub(taken);
        self.sent_bytes += taken;
        Ok((offered == 0 || taken > 0).then_some(taken))
    }

    pub(crate) fn try_flush(&mut self) -> Result<bool, ClientLost> {
        match self.shared.state.borrow().has_left {
            true => Err(ClientLost::Gone),
            false => Ok(true),
        }
    }

    pub(crate) fn keep_body(&mut self, body: &[u8]) -> Result<(), EncodeError> {
        if self.length == BodyLength::None {
            return Ok(());
        }
        if body.len() as u64 > self.left_bytes {
            return Err(EncodeError::TooLong);
        }
        self.left_bytes -= body.len() as u64;
        self.sent_bytes += body.len() as u64;
        self.shared.change(|state| state.answer.body.extend_from_slice(body));
        Ok(())
    }

    pub(crate) fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ClientLost>> {
        let state = self.shared.state.borrow();
        if state.has_left {
            return Poll::Ready(Err(ClientLost::Gone));
        }
        if state.window_bytes > 0 {
            return Poll::Ready(Ok(()));
        }
        self.shared.bell.listen(cx);
        Poll::Pending
    }

    pub(crate) fn is_flushed(&self) -> bool {
        true
    }

    pub(crate) fn finish(&mut self, trailers: Option<&Fields>) -> Result<(), EncodeError> {
        if matches!(self.length, BodyLength::Known(_)) && self.left_bytes > 0 {
            return Err(EncodeError::TooShort);
        }
        self.shared.change(|state| {
            state.answer.trailers = trailers.cloned();
            state.answer.end = Some(End::Whole);
        });
        Ok(())
    }

    pub(crate) fn cut_off(&mut self) -> bool {
        self.reset(ResetReason::Failed);
        false
    }

    pub(crate) fn take_back(&mut self) -> bool {
        self.shared.change(|state| {
            let is_unsent = state.answer.body.is_empty() && state.answer.end.is_none();
            if is_unsent {
                state.answer.head = None;
            }
            is_unsent
        })
    }

    pub(crate) fn reset(&mut self, _reason: ResetReason) {
        self.shared.change(|state| _ = state.answer.end.get_or_insert(End::Cut));
    }

    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    pub(crate) fn unacknowledged_bytes(&self) -> Option<usize> {
        None
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
