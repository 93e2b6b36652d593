//! A request body on its way from the client to the server.
//!
//! Decoded and framed anew, never passed on as bytes. Nothing is read from the client while the
//! server does not take what was read before: that is all the back-pressure there is, and all that
//! is needed.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use humboldt_base::counters::Counter;
use humboldt_http::ResponseHead;
use humboldt_http::h1::{BodyDecoder, BodyEncoder, DecodeState};

use crate::client::ClientConn;
use crate::core::Core;
use crate::errors::ErrorPage;
use crate::fetch;
use crate::job::Failure;
use crate::request::Request;
use crate::server::{ServerConn, ServerError, ServerWriter};

/// Most bytes read from the client and not yet taken by the server.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Why a body stopped.
#[derive(Debug)]
pub(crate) enum PumpError {
    /// The client has gone, or sent something malformed.
    Client(Option<ErrorPage>),
    /// The server takes no more. It may have answered already.
    Server,
}

/// The state of one body.
pub(crate) struct BodyPump {
    decoder: BodyDecoder,
    encoder: BodyEncoder,
    /// While there is something to send.
    server: Option<ServerWriter>,
    /// Bytes to be sent: the head at first, then framed data.
    out: Vec<u8>,
    sent: usize,
    /// What came with the request's head has been looked at.
    begun: bool,
    /// Data bytes received.
    received_bytes: u64,
    /// `request_body_max_size`, compared with what is announced: a chunk too many is refused before
    /// its data.
    limit_bytes: Option<u64>,
    /// All was sent.
    done: bool,
    /// The server takes no more.
    stopped: bool,
}

impl BodyPump {
    /// For the body of `request`, after `head`.
    pub(crate) fn new(request: &Request, head: Vec<u8>, server: &mut ServerConn) -> Self {
        Self {
            decoder: BodyDecoder::new(request.framing),
            encoder: BodyEncoder::new(request.framing),
            server: Some(server.writer()),
            out: head,
            sent: 0,
            begun: false,
            received_bytes: 0,
            limit_bytes: request.snapshot().body_limit_bytes(),
            done: false,
            stopped: false,
        }
    }

    /// Whether the whole body was sent; otherwise the client's connection cannot be used again.
    pub(crate) fn is_done(&self) -> bool {
        self.done
    }

    /// Moves what can be moved now. `Ready` when nothing more is to be done.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        conn: &ClientConn,
    ) -> Poll<Result<(), PumpError>> {
        // What came with the head goes out with it; if it is malformed, the server sees nothing of
        // the request.
        let has_begun = std::mem::replace(&mut self.begun, true);
        let came_along = !has_begun && !conn.carry.borrow().is_empty();
        if came_along && let Poll::Ready(Err(error)) = self.poll_receive(cx, core, conn) {
            return Poll::Ready(Err(error));
        }
        loop {
            if self.done || self.stopped {
                return Poll::Ready(Ok(()));
            }
            if self.sent < self.out.len() {
                match self.poll_send(cx, core) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(_)) => {
                        self.stopped = true;
                        self.server = None;
                        return Poll::Ready(Err(PumpError::Server));
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
            self.out.clear();
            self.sent = 0;
            if self.encoder.is_finished() {
                self.done = true;
                self.server.take().into_iter().for_each(ServerWriter::all_is_sent);
                return Poll::Ready(Ok(()));
            }
            match self.poll_receive(cx, core, conn) {
                Poll::Ready(Ok(())) => {}
                other => return other,
            }
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, core: &Core) -> Poll<io::Result<()>> {
        let rest = self.out.get(self.sent..).unwrap_or_default();
        let Some(server) = &self.server else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        match server.poll_write(cx, rest) {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(n)) => {
                self.sent += n;
                core.count(Counter::ServerOutBytes, n as u64);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Takes body bytes that the client has sent and frames them for the server.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        conn: &ClientConn,
    ) -> Poll<Result<(), PumpError>> {
        let is_used_up = conn.carry.borrow().is_empty();
        if is_used_up && !self.decoder.is_done() {
            match conn.poll_read_more(cx, core) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false) | Err(_)) => {
                    return Poll::Ready(Err(PumpError::Client(None)));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        let mut carry = conn.carry.borrow_mut();
        let take = carry.len().min(BUFFER_BYTES_MAX);
        let input = carry.get(..take).unwrap_or_default();
        let bad = |_| PumpError::Client(Some(ErrorPage::InvalidRequest));
        let mut used = 0;
        loop {
            let rest = input.get(used..).unwrap_or_default();
            let decoded = match self.decoder.decode(rest).map_err(bad) {
                Ok(decoded) => decoded,
                Err(error) => return Poll::Ready(Err(error)),
            };
            let data = rest.get(decoded.data.clone()).unwrap_or_default();
            self.received_bytes += data.len() as u64;
            if self.limit_bytes.is_some_and(|limit| self.decoder.announced_bytes() > limit) {
                return Poll::Ready(Err(PumpError::Client(Some(ErrorPage::TooLarge))));
            }
            if !data.is_empty() && self.encoder.encode(data, &mut self.out).is_err() {
                return Poll::Ready(Err(PumpError::Client(Some(ErrorPage::InvalidRequest))));
            }
            used += decoded.consumed;
            if decoded.state == DecodeState::Done {
                let trailers = self.decoder.trailers();
                if self.encoder.finish(trailers.as_ref(), &mut self.out).is_err() {
                    return Poll::Ready(Err(PumpError::Client(Some(ErrorPage::InvalidRequest))));
                }
                break;
            }
            if used >= input.len() {
                break;
            }
        }
        carry.drain(..used);
        Poll::Ready(Ok(()))
    }

    /// Sends until the final head of the answer is there, passing on interim responses.
    pub(crate) async fn until_head(
        &mut self,
        core: &Rc<Core>,
        conn: &ClientConn,
        request: &Request,
        server: &mut ServerConn,
    ) -> Result<ResponseHead, Failure> {
        let limits = &request.snapshot().reply_limits;
        let mut head = ResponseHead::default();
        conn.deadline.arm(request.snapshot().config.read_timeout);
        server.start_waiting();
        let mut gone = pin!(conn.gone(request));
        loop {
            let step = poll_fn(|cx| {
                let mut progressed = false;
                if !self.done && !self.stopped {
                    let before = self.received_bytes;
                    if let Poll::Ready(Err(PumpError::Client(page))) = self.poll(cx, core, conn) {
                        return Poll::Ready(Err(page));
                    }
                    progressed = self.received_bytes != before;
                    if !self.done && conn.poll_out_of_time(cx).is_ready() {
                        return Poll::Ready(Err(Some(ErrorPage::RequestTimeout)));
                    }
                }
                // Also while the server does not take what was read, and when there is nothing more
                // to read.
                if gone.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Err(None));
                }
                if progressed {
                    // The server's time to answer counts from the last bytes it was sent.
                    server.start_waiting();
                    conn.deadline.arm(request.snapshot().config.read_timeout);
                }
                server.poll_head(cx, core, limits, &mut head).map(Ok)
            })
            .await;
            match step {
                Err(None) => return Err(Failure::client_gone()),
                Err(Some(page)) => return Err(Failure::new(page, "")),
                Ok(Err(error)) => return Err(self.explain(&error)),
                Ok(Ok(())) if head.status == 101 => {
                    return Err(Failure::new(
                        ErrorPage::InvalidResponse,
                        "the server switched protocols unasked",
                    ));
                }
                Ok(Ok(())) if head.status < 200 => {
                    if fetch::pass_interim(core, conn, request, &head).await.is_err() {
                        return Err(Failure::client_gone());
                    }
                }
                Ok(Ok(())) => return Ok(head),
            }
        }
    }

    fn explain(&self, error: &ServerError) -> Failure {
        if self.stopped && matches!(error, ServerError::ClosedEarly | ServerError::Io(_)) {
            return Failure::new(ErrorPage::WriteError, error.to_string());
        }
        Failure::from(error)
    }
}
