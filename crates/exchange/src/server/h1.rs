//! The HTTP/1 side towards servers: one connection, one exchange at a time.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use humboldt_base::counters::Counter;
use humboldt_http::h1::{
    self, BodyDecoder, BodyEncoder, BodyError, DecodeState, EncodeError, Framing, HeadError,
};
use humboldt_http::{FieldName, Fields, HeadLimits, Method, ResponseHead, Version};
use humboldt_net::Stream;
use humboldt_net::connect::Connected;
use humboldt_runtime::deadline::DeadlineSlot;
use humboldt_store::FlowWriter;

use super::answer::{Announced, ServerError};
use crate::buffers::{Input, READ_BYTES};
use crate::client::lines::Lines;
use crate::head::{AskHead, AskLine, BodyLength, BodyPart};
use crate::io::CoreIo;
use crate::tunnel::TunnelEnd;

/// Most bytes a head in pieces may take beyond the configured limit before it is refused; one
/// read's worth.
const HEAD_SLACK_BYTES: usize = READ_BYTES;

/// A connection to a server, in the middle of an exchange.
pub struct H1Server {
    io: Rc<CoreIo>,
    /// Shared with the sender of a request body, if there is one.
    stream: Rc<Stream>,
    /// Whether all of the request was sent, if it has a sender of its own.
    is_all_sent: Option<Rc<Cell<bool>>>,
    peer: SocketAddr,
    was_reused: bool,
    /// Received and not used yet.
    input: Input,
    /// Length of the part of `input` that has been parsed and found to be an incomplete head.
    parsed_bytes: usize,
    decoder: BodyDecoder,
    /// The value of [`Announced::body_bytes`] for a body that follows.
    length: Option<u64>,
    /// Body data that the flow had no room for.
    unsent: Vec<u8>,
    deadline: DeadlineSlot,
    read_timeout: Duration,
    /// Nothing is read until readers of the flow let go of something.
    waits_for_readers: bool,
    /// Both sides want the connection to go on.
    persists: bool,
    /// The request asks for another protocol.
    may_switch: bool,
    received_bytes: u64,
}

/// The result of feeding received bytes to a flow.
enum Fed {
    /// The body is complete.
    Done,
    /// More is needed.
    More,
}

impl H1Server {
    pub(super) fn new(
        io: &Rc<CoreIo>,
        connected: Connected,
        was_reused: bool,
        read_timeout: Duration,
    ) -> Self {
        Self {
            deadline: io.deadlines.slot(),
            io: Rc::clone(io),
            stream: Rc::new(connected.stream),
            is_all_sent: None,
            peer: connected.peer,
            was_reused,
            input: Input::default(),
            parsed_bytes: 0,
            decoder: BodyDecoder::new(Framing::None),
            length: None,
            unsent: Vec::new(),
            read_timeout,
            waits_for_readers: false,
            persists: true,
            may_switch: false,
            received_bytes: 0,
        }
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(super) fn local(&self) -> Option<SocketAddr> {
        self.stream.local_addr().ok()
    }

    pub(super) fn was_reused(&self) -> bool {
        self.was_reused
    }

    /// A connection on which nothing is left unread, and nothing unsent: after half a request that
    /// the server answered early, the next one would be taken for the rest of it.
    pub(super) fn into_idle(self) -> Option<Connected> {
        let is_all_sent = self.is_all_sent.as_ref().is_none_or(|is_all_sent| is_all_sent.get());
        let is_used_up = self.input.is_empty() && self.unsent.is_empty();
        if !self.persists || !self.decoder.is_done() || !is_all_sent || !is_used_up {
            return None;
        }
        let stream = Rc::try_unwrap(self.stream).ok()?;
        Some(Connected { stream, peer: self.peer })
    }

    pub(super) fn into_connection(self) -> Option<Connected> {
        let stream = Rc::try_unwrap(self.stream).ok().filter(|_| self.input.is_empty())?;
        Some(Connected { stream, peer: self.peer })
    }

    pub(super) fn into_tunnel(self) -> TunnelEnd {
        TunnelEnd::server(self.stream, self.input.into_bytes(&self.io.read_buffers))
    }

    pub(super) fn begin_upload(&mut self, head: &impl AskHead) -> H1Upload {
        let is_all_sent = Rc::new(Cell::new(false));
        self.is_all_sent = Some(Rc::clone(&is_all_sent));
        (self.persists, self.may_switch) = (head.persists(), head.upgrade().is_some());
        let mut out = Vec::with_capacity(1024);
        write_head(&mut out, head);
        let framing = framing_of(head.length());
        self.io.count(Counter::ServerRequests, 1);
        H1Upload {
            io: Rc::clone(&self.io),
            stream: Rc::clone(&self.stream),
            encoder: BodyEncoder::new(framing),
            out,
            sent: 0,
            is_all_sent,
        }
    }

    pub(super) async fn ask(&mut self, head: &impl AskHead) -> Result<(), ServerError> {
        (self.persists, self.may_switch) = (head.persists(), head.upgrade().is_some());
        let mut bytes = self.io.take_head_buffer();
        write_head(&mut bytes, head);
        self.deadline.arm(self.read_timeout);
        let sent = self.send(&bytes).await;
        self.io.count(Counter::ServerOutBytes, bytes.len() as u64);
        self.io.return_head_buffer(bytes);
        sent?;
        self.io.count(Counter::ServerRequests, 1);
        self.start_waiting();
        Ok(())
    }

    async fn send(&self, mut bytes: &[u8]) -> Result<(), ServerError> {
        poll_fn(|cx| match self.stream.poll_write_all(cx, &mut bytes) {
            Poll::Ready(Err(error)) if is_gone(&error) => {
                Poll::Ready(Err(ServerError::ClosedEarly))
            }
            Poll::Ready(result) => Poll::Ready(result.map_err(ServerError::from)),
            Poll::Pending => self.poll_late(cx),
        })
        .await
    }

    fn poll_late<T>(&self, cx: &mut Context<'_>) -> Poll<Result<T, ServerError>> {
        self.deadline.poll_expired(cx).map(|()| Err(ServerError::TimedOut))
    }

    pub(super) fn start_waiting(&self) {
        self.deadline.arm(self.read_timeout);
    }

    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        limits: &HeadLimits,
        most_bytes: usize,
        out: &mut ResponseHead,
    ) -> Poll<Result<(), ServerError>> {
        let io = Rc::clone(&self.io);
        loop {
            if self.parse(limits, out)? {
                return Poll::Ready(Ok(()));
            }
            self.input.part_from(&io.read_buffers);
            let mut buffer = io.read_buffers.take();
            let most = most_bytes.min(buffer.len());
            let received =
                poll_read(&mut self.stream, cx, buffer.get_mut(..most).unwrap_or_default());
            match received {
                Poll::Ready(Ok(read)) if read > 0 => self.input.add(&io.read_buffers, buffer, read),
                _ => io.read_buffers.put(buffer),
            }
            match received {
                Poll::Ready(Ok(0)) if self.received_bytes == 0 => {
                    return Poll::Ready(Err(ServerError::ClosedEarly));
                }
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(BodyError::Truncated.into())),
                Poll::Ready(Ok(n)) => self.count_received(n),
                Poll::Ready(Err(error)) if is_gone(&error) && self.received_bytes == 0 => {
                    return Poll::Ready(Err(ServerError::ClosedEarly));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => return self.poll_late(cx),
            }
        }
    }

    /// Parses a head from received bytes. `false`: more are needed.
    fn parse(&mut self, limits: &HeadLimits, out: &mut ResponseHead) -> Result<bool, ServerError> {
        let received = self.input.bytes();
        if received.is_empty() || !h1::may_complete_head(received, self.parsed_bytes, limits) {
            return Ok(false);
        }
        if let Some(used) = h1::parse_response(received, limits, out)? {
            self.input.consume(&self.io.read_buffers, used);
            self.parsed_bytes = 0;
            return if out.status == 101 && !self.may_switch {
                Err(ServerError::Switched)
            } else {
                Ok(true)
            };
        }
        self.parsed_bytes = received.len();
        if self.parsed_bytes > limits.max_head_bytes + HEAD_SLACK_BYTES {
            return Err(HeadError::TooLarge.into());
        }
        Ok(false)
    }

    fn count_received(&mut self, n: usize) {
        self.received_bytes += n as u64;
        self.io.count(Counter::ServerInBytes, n as u64);
    }

    pub(super) fn begin_body(
        &mut self,
        head: &ResponseHead,
        method: Method,
        relaxed: bool,
    ) -> Result<Announced, ServerError> {
        let framing = match h1::response_framing(head, &method) {
            Err(HeadError::AmbiguousLength) if relaxed && h1::chunked_overrides_length(head) => {
                Framing::Chunked
            }
            framing => framing?,
        };
        let has_two_lengths = head.fields.has(FieldName::TransferEncoding)
            && head.fields.has(FieldName::ContentLength);
        let was_repaired = head.repaired || has_two_lengths && framing == Framing::Chunked;
        // A server that announces a body with a status that has none may send one (RFC 9110
        // 15.3.5).
        let announces_void_body = head.status == 204
            && (head.fields.has(FieldName::TransferEncoding)
                || head.fields.get(FieldName::ContentLength).is_some_and(|length| length != b"0"));
        self.persists &= h1::keep_alive(head.version, &head.fields)
            && !was_repaired
            && !announces_void_body
            && framing != Framing::UntilClose;
        self.decoder = BodyDecoder::new(framing);
        let body_bytes = match framing {
            Framing::None => bodiless_length(head, method),
            Framing::Length(length) => Some(length),
            Framing::Chunked | Framing::UntilClose => None,
        };
        self.length = body_bytes.filter(|_| !matches!(framing, Framing::None));
        Ok(Announced { body_bytes, was_repaired })
    }

    pub(super) fn whole_body(&self) -> Option<&[u8]> {
        let body_bytes = usize::try_from(self.length?).ok()?;
        self.input.bytes().get(..body_bytes).filter(|_| self.unsent.is_empty())
    }

    pub(super) fn skip_whole_body(&mut self) -> Result<(), ServerError> {
        let used = self.decoder.decode(self.input.bytes())?.consumed;
        self.input.consume(&self.io.read_buffers, used);
        Ok(())
    }

    pub(super) fn keep_small(&mut self) -> u64 {
        self.input.shrink(&self.io.read_buffers);
        self.input.bytes().len() as u64
    }

    pub(super) fn trailers(&mut self) -> Option<Fields> {
        self.decoder.trailers()
    }

    pub(super) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut FlowWriter,
    ) -> Poll<Result<bool, ServerError>> {
        ready!(self.poll_unsent(cx, writer))?;
        let io = Rc::clone(&self.io);
        if !self.input.is_empty() || self.decoder.is_done() {
            let mut input = std::mem::take(&mut self.input);
            let (used, fed) = self.feed(cx, input.bytes(), writer)?;
            input.consume(&io.read_buffers, used);
            // The rest waits for readers, or is of no use.
            input.part_from(&io.read_buffers);
            self.input = input;
            return Poll::Ready(Ok(matches!(fed, Fed::Done)));
        }
        let room = ready!(self.poll_room(cx, writer));
        let step = io.read_buffers.with(|buffer| {
            let most = room.min(buffer.len());
            let buffer = buffer.get_mut(..most).unwrap_or_default();
            let read = ready!(poll_read(&mut self.stream, cx, buffer))?;
            let input = buffer.get(..read).unwrap_or_default();
            if input.is_empty() {
                let ended = self.decoder.on_eof();
                return Poll::Ready(ended.map(|()| true).map_err(ServerError::from));
            }
            self.count_received(input.len());
            let (used, fed) = match self.feed(cx, input, writer) {
                Ok(step) => step,
                Err(error) => return Poll::Ready(Err(error)),
            };
            self.input = Input::copied(input.get(used..).unwrap_or_default());
            Poll::Ready(Ok(matches!(fed, Fed::Done)))
        });
        match step {
            Poll::Ready(result) => {
                self.start_waiting();
                Poll::Ready(result)
            }
            Poll::Pending => self.poll_late(cx),
        }
    }

    /// Bytes of body for which the flow has room. Bytes read beyond that would lie here, uncounted,
    /// until its readers read.
    fn poll_room(&mut self, cx: &mut Context<'_>, writer: &mut FlowWriter) -> Poll<usize> {
        let room = writer.poll_ready(cx);
        if room.is_pending() {
            self.waits_for_readers = true;
        } else if std::mem::take(&mut self.waits_for_readers) {
            // That was not the server's fault: its time starts again.
            self.start_waiting();
        }
        room
    }

    /// Hands over the rest of an earlier read; `Pending` while the flow has no room.
    fn poll_unsent(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut FlowWriter,
    ) -> Poll<Result<(), ServerError>> {
        while !self.unsent.is_empty() {
            let took = ready!(writer.poll_append(cx, &self.unsent))?;
            self.unsent.drain(..took);
            // Waiting for readers is not the server's fault: its time starts again.
            self.start_waiting();
        }
        Poll::Ready(Ok(()))
    }

    /// Decodes `input` and appends its data; bytes that the flow does not take are kept in
    /// `unsent`.
    fn feed(
        &mut self,
        cx: &mut Context<'_>,
        input: &[u8],
        writer: &mut FlowWriter,
    ) -> Result<(usize, Fed), ServerError> {
        let mut used = 0;
        loop {
            let rest = input.get(used..).unwrap_or_default();
            let decoded = self.decoder.decode(rest)?;
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

/// The length to announce for an answer without a body: for HEAD that of a GET; none unless the
/// server named it.
fn bodiless_length(head: &ResponseHead, method: Method) -> Option<u64> {
    // Beside a transfer coding the length means nothing (RFC 9112 6.3).
    let has_coding = head.fields.has(FieldName::TransferEncoding);
    let announced = head.fields.get(FieldName::ContentLength).filter(|_| !has_coding);
    match method {
        Method::Head => announced.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok()),
        _ => Some(0),
    }
}

fn write_head(out: &mut Vec<u8>, head: &impl AskHead) {
    let AskLine { method, url, host, to_proxy, asterisk } = head.line();
    let is_connect = method == b"CONNECT";
    let target = match (to_proxy || is_connect, asterisk) {
        (true, true) => url.as_bytes().strip_suffix(b"/").unwrap_or(url.as_bytes()),
        (true, false) => url.as_bytes(),
        (false, true) => b"*",
        (false, false) => url.path_and_query(),
    };
    h1::write_request_line(out, method, target, Version::Http11);
    h1::write_field(out, b"Host", host);
    head.write(&mut Lines(out));
    match head.length() {
        BodyLength::None => {}
        BodyLength::Known(length) => {
            h1::write_field(out, b"Content-Length", itoa::Buffer::new().format(length).as_bytes())
        }
        BodyLength::Unknown => h1::write_field(out, b"Transfer-Encoding", b"chunked"),
    }
    match head.upgrade() {
        Some(protocols) => {
            h1::write_field(out, b"Connection", b"Upgrade");
            h1::write_field(out, b"Upgrade", protocols);
        }
        None if !head.persists() => h1::write_field(out, b"Connection", b"close"),
        None => {}
    }
    h1::write_end(out);
}

fn framing_of(length: BodyLength) -> Framing {
    match length {
        BodyLength::None => Framing::None,
        BodyLength::Known(bytes) => Framing::Length(bytes),
        BodyLength::Unknown => Framing::Chunked,
    }
}

/// Reads once; with less work where the stream is ours alone.
fn poll_read(
    stream: &mut Rc<Stream>,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>> {
    if let Some(stream) = Rc::get_mut(stream) {
        return stream.poll_read(cx, buffer);
    }
    stream.poll_read_shared(cx, buffer)
}

/// The sending side of a connection, with the body of a request.
pub struct H1Upload {
    io: Rc<CoreIo>,
    stream: Rc<Stream>,
    encoder: BodyEncoder,
    /// Bytes to be sent: the head at first, then framed data.
    out: Vec<u8>,
    sent: usize,
    is_all_sent: Rc<Cell<bool>>,
}

impl H1Upload {
    pub(super) fn push(&mut self, part: BodyPart<'_>) -> Result<(), EncodeError> {
        match part {
            BodyPart::Data(data) => self.encoder.encode(data, &mut self.out),
            BodyPart::End(trailers) => self.encoder.finish(trailers, &mut self.out),
        }
    }

    pub(super) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut rest = self.out.get(self.sent..).unwrap_or_default();
        let sending = self.stream.poll_write_all(cx, &mut rest);
        let written = self.out.len() - self.sent - rest.len();
        self.sent += written;
        self.io.count(Counter::ServerOutBytes, written as u64);
        ready!(sending)?;
        self.out.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    pub(super) fn is_finished(&self) -> bool {
        self.encoder.is_finished()
    }

    pub(super) fn all_is_sent(self) {
        self.is_all_sent.set(true);
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::WriteZero
            // A session of TLS that was not ended.
            | io::ErrorKind::UnexpectedEof
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use humboldt_http::{FieldSink, Url};

    use crate::io::ClientSettings;

    use super::*;

    struct Ask(Url);

    impl AskHead for Ask {
        fn line(&self) -> AskLine<'_> {
            let (to_proxy, asterisk) = (false, false);
            AskLine { method: b"POST", url: &self.0, host: b"a.test", to_proxy, asterisk }
        }

        fn length(&self) -> BodyLength {
            BodyLength::Known(40)
        }

        fn write<S: FieldSink>(&self, _: &mut S) {}
    }

    async fn server(io: &Rc<CoreIo>) -> H1Server {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let peer = listener.local_addr().expect("an address");
        let stream = tokio::net::TcpStream::connect(peer).await.expect("connected").into();
        H1Server::new(io, Connected { stream, peer }, false, Duration::from_secs(60))
    }

    #[test]
    fn a_connection_with_half_a_request_is_not_used_again_whoever_has_let_go_of_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        tokio::task::LocalSet::new().block_on(&runtime.expect("a runtime"), async {
            let io = CoreIo::new(Arc::default(), ClientSettings::default());
            let mut url = Url::default();
            url.set_absolute(b"http://a.test/").expect("a URL");
            let ask = Ask(url);
            assert!(server(&io).await.into_idle().is_some());
            let mut half = server(&io).await;
            drop(half.begin_upload(&ask));
            assert!(half.into_idle().is_none());
            let mut whole = server(&io).await;
            whole.begin_upload(&ask).all_is_sent();
            assert!(whole.into_idle().is_some());
            let mut on_its_way = server(&io).await;
            let _upload = on_its_way.begin_upload(&ask);
            assert!(on_its_way.into_idle().is_none());
        });
    }
}
