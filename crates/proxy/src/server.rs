//! The HTTP/1 side towards servers: one connection, one exchange at a time.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use humboldt_base::counters::Counter;
use humboldt_http::h1::{
    self, BodyDecoder, BodyError, DecodeState, Framing, HeadError, HeadLimits,
};
use humboldt_http::{Method, ResponseHead};
use humboldt_net::connect::Connected;
use humboldt_net::pool::ServerRef;
use humboldt_runtime::deadline::DeadlineSlot;
use humboldt_store::mem::FLOW_BYTES_GUARANTEED;
use humboldt_store::{AbortReason, FlowWriter};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

use crate::core::Core;
use crate::input::{Input, READ_BYTES};

/// Most bytes a head in pieces may take beyond the configured limit before it is refused; one
/// read's worth.
const HEAD_SLACK_BYTES: usize = READ_BYTES;

/// Most bytes of one read where memory in flight is short.
const SMALL_READ_BYTES: usize = FLOW_BYTES_GUARANTEED as usize;

/// Why an exchange with a server failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerError {
    /// The connection failed before any byte of an answer: a pooled connection may simply have
    /// died.
    #[error("the connection closed without an answer")]
    ClosedEarly,
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// No answer, or no progress, in time.
    #[error("no answer in time")]
    TimedOut,
    /// The head is malformed, ambiguous or too large.
    #[error("invalid answer: {0}")]
    Head(#[from] HeadError),
    /// The body is malformed or shorter than announced.
    #[error("invalid body: {0}")]
    Body(#[from] BodyError),
    /// Memory for bodies in flight is exhausted, or the flow was ended.
    #[error("{0}")]
    Flow(#[from] AbortReason),
}

impl ServerError {
    /// What those who wait for the answer are told when it fails in the middle.
    pub(crate) fn abort_reason(&self) -> AbortReason {
        match self {
            Self::ClosedEarly | Self::Body(BodyError::Truncated) => AbortReason::Truncated,
            Self::Io(_) => AbortReason::Failed,
            Self::TimedOut => AbortReason::TimedOut,
            Self::Head(_) | Self::Body(_) => AbortReason::Malformed,
            Self::Flow(reason) => *reason,
        }
    }
}

/// A connection to a server, in the middle of an exchange.
pub(crate) struct ServerConn {
    /// Shared with the writer of a request body, if there is one.
    stream: Rc<TcpStream>,
    /// Whether all of the request was sent, where that has a writer of its own.
    is_all_sent: Option<Rc<Cell<bool>>>,
    /// The address it leads to.
    pub peer: SocketAddr,
    /// Whether it has served another request before.
    pub reused: bool,
    /// Received and not used yet.
    input: Input,
    /// How much of `input` has been parsed and found to be an incomplete head.
    parsed_bytes: usize,
    /// Body data that the flow had no room for.
    unsent: Vec<u8>,
    deadline: DeadlineSlot,
    read_timeout: Duration,
    /// Nothing is read until readers of the flow let go of something.
    waits_for_readers: bool,
    /// Bytes of the answer received.
    pub received_bytes: u64,
}

/// What came of feeding received bytes to a flow.
enum Fed {
    /// The body is complete.
    Done,
    /// More is needed.
    More,
}

impl ServerConn {
    /// Takes over a connection.
    pub(crate) fn new(
        core: &Core,
        connected: Connected,
        reused: bool,
        read_timeout: Duration,
    ) -> Self {
        Self {
            stream: Rc::new(connected.stream),
            is_all_sent: None,
            peer: connected.peer,
            reused,
            input: Input::default(),
            parsed_bytes: 0,
            unsent: Vec::new(),
            deadline: core.deadlines.slot(),
            read_timeout,
            waits_for_readers: false,
            received_bytes: 0,
        }
    }

    /// Gives the connection to the pool. Only after a complete exchange.
    pub(crate) fn keep(self, core: &Core, key: &ServerRef<'_>) {
        if let Some(idle) = self.into_idle() {
            core.pool.checkin(key, idle);
        }
    }

    /// A connection on which nothing is left unread, and nothing unsent: after half a request that
    /// the server answered early, the next one would be taken for the rest of it.
    fn into_idle(self) -> Option<Connected> {
        let is_all_sent = self.is_all_sent.as_ref().is_none_or(|is_all_sent| is_all_sent.get());
        if !is_all_sent || !self.input.is_empty() || !self.unsent.is_empty() {
            return None;
        }
        let stream = Rc::try_unwrap(self.stream).ok()?;
        Some(Connected { stream, peer: self.peer })
    }

    /// The socket, and what was received beyond the head: for tunnels.
    pub(crate) fn into_parts(self) -> (Rc<TcpStream>, Vec<u8>) {
        (self.stream, self.input.bytes().to_vec())
    }

    /// The sending side, for a request whose body is sent while the answer is read.
    pub(crate) fn writer(&mut self) -> ServerWriter {
        let is_all_sent = Rc::new(Cell::new(false));
        self.is_all_sent = Some(Rc::clone(&is_all_sent));
        ServerWriter { stream: Rc::clone(&self.stream), is_all_sent }
    }

    /// Sends all of `bytes`.
    pub(crate) async fn send(&self, core: &Core, mut bytes: &[u8]) -> Result<(), ServerError> {
        core.count(Counter::ServerOutBytes, bytes.len() as u64);
        self.deadline.arm(self.read_timeout);
        while !bytes.is_empty() {
            match self.stream.try_write(bytes) {
                Ok(0) => return Err(ServerError::ClosedEarly),
                Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| {
                        self.poll_deadline(cx, |cx| {
                            self.stream.poll_write_ready(cx).map_err(ServerError::from)
                        })
                    })
                    .await?;
                }
                Err(error) if is_gone(&error) => return Err(ServerError::ClosedEarly),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn poll_deadline<T>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<Result<T, ServerError>>,
    ) -> Poll<Result<T, ServerError>> {
        if let Poll::Ready(result) = poll(cx) {
            return Poll::Ready(result);
        }
        self.deadline.poll_expired(cx).map(|()| Err(ServerError::TimedOut))
    }

    /// Restarts the clock for the answer: it counts from the moment the request was sent.
    pub(crate) fn start_waiting(&self) {
        self.deadline.arm(self.read_timeout);
    }

    /// Reads the next response head, interim ones included.
    pub(crate) async fn head(
        &mut self,
        core: &Core,
        limits: &HeadLimits,
        out: &mut ResponseHead,
    ) -> Result<(), ServerError> {
        poll_fn(|cx| self.poll_head(cx, core, limits, out)).await
    }

    /// See [`ServerConn::head`].
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        limits: &HeadLimits,
        out: &mut ResponseHead,
    ) -> Poll<Result<(), ServerError>> {
        loop {
            if !self.input.is_empty()
                && h1::may_complete_head(self.input.bytes(), self.parsed_bytes, limits)
            {
                if let Some(used) = h1::parse_response(self.input.bytes(), limits, out)? {
                    self.input.consume(&core.read_buffers, used);
                    self.parsed_bytes = 0;
                    return Poll::Ready(Ok(()));
                }
                self.parsed_bytes = self.input.bytes().len();
                if self.parsed_bytes > limits.max_head_bytes + HEAD_SLACK_BYTES {
                    return Poll::Ready(Err(HeadError::TooLarge.into()));
                }
            }
            self.input.part_from(&core.read_buffers);
            let mut buffer = core.read_buffers.take();
            let most = head_read_bytes(core).min(buffer.len());
            let received =
                poll_read(&mut self.stream, cx, buffer.get_mut(..most).unwrap_or_default());
            match received {
                Poll::Ready(Ok(read)) if read > 0 => {
                    self.input.add(&core.read_buffers, buffer, read)
                }
                _ => core.read_buffers.put(buffer),
            }
            match received {
                Poll::Ready(Ok(0)) if self.received_bytes == 0 => {
                    return Poll::Ready(Err(ServerError::ClosedEarly));
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(BodyError::Truncated.into())),
                Poll::Ready(Ok(n)) => self.count_received(core, n),
                Poll::Ready(Err(error)) if is_gone(&error) && self.received_bytes == 0 => {
                    return Poll::Ready(Err(ServerError::ClosedEarly));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => {
                    return self.deadline.poll_expired(cx).map(|()| Err(ServerError::TimedOut));
                }
            }
        }
    }

    fn count_received(&mut self, core: &Core, n: usize) {
        self.received_bytes += n as u64;
        core.count(Counter::ServerInBytes, n as u64);
    }

    /// The next `bytes`, if they have been received already and nothing else waits to be used.
    pub(crate) fn received(&self, bytes: usize) -> Option<&[u8]> {
        self.input.bytes().get(..bytes).filter(|_| self.unsent.is_empty())
    }

    /// Uses up as much of a body as [`ServerConn::received`] gave.
    pub(crate) fn skip_body(
        &mut self,
        core: &Core,
        decoder: &mut BodyDecoder,
    ) -> Result<(), ServerError> {
        let used = decoder.decode(self.input.bytes())?.consumed;
        self.input.consume(&core.read_buffers, used);
        Ok(())
    }

    /// Receives body data into the flow: `Ready(Ok(true))` when the body is complete,
    /// `Ready(Ok(false))` after progress.
    pub(crate) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        core: &Core,
        decoder: &mut BodyDecoder,
        writer: &mut FlowWriter,
    ) -> Poll<Result<bool, ServerError>> {
        ready!(self.poll_unsent(cx, writer))?;
        if !self.input.is_empty() || decoder.is_done() {
            let mut input = std::mem::take(&mut self.input);
            let (used, fed) = self.feed(cx, input.bytes(), decoder, writer)?;
            input.consume(&core.read_buffers, used);
            // What is left waits for readers, or is of no use.
            input.part_from(&core.read_buffers);
            self.input = input;
            return Poll::Ready(Ok(matches!(fed, Fed::Done)));
        }
        let room = ready!(self.poll_room(cx, writer));
        let step = core.read_buffers.with(|buffer| {
            let most = room.min(buffer.len());
            let read = ready!(poll_read(
                &mut self.stream,
                cx,
                buffer.get_mut(..most).unwrap_or_default()
            ))?;
            let input = buffer.get(..read).unwrap_or_default();
            if input.is_empty() {
                return Poll::Ready(decoder.on_eof().map(|()| true).map_err(ServerError::from));
            }
            self.count_received(core, input.len());
            let (used, fed) = match self.feed(cx, input, decoder, writer) {
                Ok(step) => step,
                Err(error) => return Poll::Ready(Err(error)),
            };
            self.input = Input::copied(input.get(used..).unwrap_or_default());
            Poll::Ready(Ok(matches!(fed, Fed::Done)))
        });
        match step {
            Poll::Ready(result) => {
                self.deadline.arm(self.read_timeout);
                Poll::Ready(result)
            }
            Poll::Pending => self.deadline.poll_expired(cx).map(|()| Err(ServerError::TimedOut)),
        }
    }

    /// How many bytes of body the flow has room for. What would be read beyond that would lie here,
    /// uncounted, until its readers read.
    fn poll_room(&mut self, cx: &mut Context<'_>, writer: &mut FlowWriter) -> Poll<usize> {
        let room = writer.poll_ready(cx);
        if room.is_pending() {
            self.waits_for_readers = true;
        } else if std::mem::take(&mut self.waits_for_readers) {
            // That was not the server's fault: its time starts anew.
            self.deadline.arm(self.read_timeout);
        }
        room
    }

    /// Hands over what an earlier read left; `Pending` while the flow has no room.
    fn poll_unsent(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut FlowWriter,
    ) -> Poll<Result<(), ServerError>> {
        while !self.unsent.is_empty() {
            let took = ready!(writer.poll_append(cx, &self.unsent))?;
            self.unsent.drain(..took);
            // Waiting for readers is not the server's fault: its time starts anew.
            self.deadline.arm(self.read_timeout);
        }
        Poll::Ready(Ok(()))
    }

    /// Decodes `input` and appends its data; what the flow does not take is kept in `unsent`.
    fn feed(
        &mut self,
        cx: &mut Context<'_>,
        input: &[u8],
        decoder: &mut BodyDecoder,
        writer: &mut FlowWriter,
    ) -> Result<(usize, Fed), ServerError> {
        let mut used = 0;
        loop {
            let rest = input.get(used..).unwrap_or_default();
            let decoded = decoder.decode(rest)?;
            let mut data = rest.get(decoded.data.clone()).unwrap_or_default();
            used += decoded.consumed;
            while !data.is_empty() {
                match writer.poll_append(cx, data) {
                    Poll::Ready(took) => data = data.get(took?..).unwrap_or_default(),
                    Poll::Pending => {
                        self.unsent.extend_from_slice(data);
                        return Ok((used, Fed::More));
                    }
                }
            }
            if decoded.state == DecodeState::Done {
                return Ok((used, Fed::Done));
            }
            if used >= input.len() {
                return Ok((used, Fed::More));
            }
        }
    }
}

/// Most bytes of one read of a head, and of the body behind it: where what is in flight has its
/// share, no more than each flow has pages for in any case.
fn head_read_bytes(core: &Core) -> usize {
    match core.shared.cache.mem().has_in_flight_room(READ_BYTES as u64) {
        true => READ_BYTES,
        false => SMALL_READ_BYTES,
    }
}

/// A response head with its framing, or why it cannot be trusted.
pub(crate) fn framing(
    head: &ResponseHead,
    method: Method,
    relaxed: bool,
) -> Result<Framing, ServerError> {
    match h1::response_framing(head, &method) {
        Err(HeadError::AmbiguousLength) if relaxed && h1::chunked_overrides_length(head) => {
            Ok(Framing::Chunked)
        }
        framing => Ok(framing?),
    }
}

/// Reads once. With the socket to ourselves a short read tells tokio that there is no more, which
/// saves a system call.
fn poll_read(
    stream: &mut Rc<TcpStream>,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>> {
    if let Some(stream) = Rc::get_mut(stream) {
        let mut read = ReadBuf::new(buffer);
        ready!(Pin::new(stream).poll_read(cx, &mut read))?;
        return Poll::Ready(Ok(read.filled().len()));
    }
    loop {
        ready!(stream.poll_read_ready(cx))?;
        match stream.try_read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return Poll::Ready(result),
        }
    }
}

/// The sending side of a connection.
pub(crate) struct ServerWriter {
    stream: Rc<TcpStream>,
    is_all_sent: Rc<Cell<bool>>,
}

impl ServerWriter {
    /// The request is on its way to its last byte: the connection may serve another one.
    pub(crate) fn all_is_sent(self) {
        self.is_all_sent.set(true);
    }

    /// Writes some of `bytes`.
    pub(crate) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.stream.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.stream.poll_write_ready(cx))?
                }
                result => return Poll::Ready(result),
            }
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted
    )
}

#[cfg(test)]
mod tests {
    use humboldt_runtime::deadline::Deadlines;

    use super::*;

    async fn connection() -> ServerConn {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let peer = listener.local_addr().expect("an address");
        ServerConn {
            stream: Rc::new(TcpStream::connect(peer).await.expect("connected")),
            is_all_sent: None,
            peer,
            reused: false,
            input: Input::default(),
            parsed_bytes: 0,
            unsent: Vec::new(),
            deadline: Deadlines::new().slot(),
            read_timeout: Duration::from_secs(60),
            received_bytes: 0,
            waits_for_readers: false,
        }
    }

    #[test]
    fn a_connection_with_half_a_request_is_not_used_again_whoever_has_let_go_of_it() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async {
            assert!(connection().await.into_idle().is_some());
            let mut half = connection().await;
            drop(half.writer());
            assert!(half.into_idle().is_none());
            let mut whole = connection().await;
            whole.writer().all_is_sent();
            assert!(whole.into_idle().is_some());
            let mut on_its_way = connection().await;
            let _writer = on_its_way.writer();
            assert!(on_its_way.into_idle().is_none());
        });
    }
}
