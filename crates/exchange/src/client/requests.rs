//! The requests of an HTTP/1 connection: heads, bodies, and the end of the connection.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use humboldt_base::counters::Counter;
use humboldt_http::h1::{self, BodyDecoder, DecodeState, EncodeError, Framing, HeadError};
use humboldt_http::{Method, RequestHead, Version};

use super::faults::{BodyFault, ClientLost};
use super::h1::{After, H1Client};
use super::socket::Socket;
use super::unreadable::Unreadable;
use crate::buffers::Input;
use crate::head::{BodyLength, BodyPart};
use crate::io::ClientSettings;

/// How long a connection that is being closed may go on sending, and how much of it is read.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 1024 * 1024;

/// Most bytes of a body that are given on at a time.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// Something that came instead of a request. The connection ends with the answer to it.
#[derive(Debug)]
pub enum Refused {
    /// A head that cannot be read.
    Head(Box<Unreadable>),
    /// A head whose rest does not come.
    Unfinished(ClientLost),
    /// A head that did not arrive in time.
    TimedOut,
}

/// The result of waiting for a request.
#[derive(Debug)]
pub(crate) enum Event {
    /// A head.
    Head,
    /// Something that is no head, or not all of one.
    Refused(Refused),
    /// The connection ends between requests.
    End,
}

/// The body of a request on its way.
pub(super) struct RequestBody {
    decoder: BodyDecoder,
    limit_bytes: Option<u64>,
}

impl H1Client {
    /// Arms the timer for an idle connection, or for the rest of a head that has begun.
    fn wait_for_next(&mut self, settings: &ClientSettings) {
        self.parsed_bytes = 0;
        let wait = if self.input.is_empty() { settings.idle } else { settings.request };
        self.socket.deadline.arm_in_line(wait);
    }

    /// Ends an exchange. Says whether the connection is there for another one.
    pub(crate) fn next(&mut self) -> bool {
        if self.after == After::Keep && !self.may_continue() {
            self.after = After::Close;
        }
        self.end_limits();
        if self.after == After::Keep {
            let settings = self.io.settings();
            self.wait_for_next(&settings);
        }
        self.after == After::Keep
    }

    /// The connection no longer waits for a request.
    pub(crate) fn leave_line(&self) {
        self.socket.deadline.leave_line();
    }

    /// The connection ends while it waits for a request.
    pub(crate) fn ended_by(&mut self, lost: ClientLost) -> Event {
        if self.input.is_empty() {
            self.after = After::Close;
            return Event::End;
        }
        self.refuse(Refused::Unfinished(lost))
    }

    /// Something is answered that is no request, and the connection ends with that.
    fn refuse(&mut self, refused: Refused) -> Event {
        self.begin_answer();
        (self.version, self.is_head) = (Version::Http11, false);
        (self.persists, self.wants_more) = (false, false);
        Event::Refused(refused)
    }

    pub(crate) fn poll_request_near(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let has_more = self.input.bytes().len() > self.parsed_bytes;
        if has_more || self.socket.stream.poll_read_ready(cx).is_ready() {
            return Poll::Ready(());
        }
        self.socket.deadline.poll_expired(cx)
    }

    /// Waits for the next head.
    pub(crate) fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
        head: &mut RequestHead,
    ) -> Poll<Event> {
        let settings = self.io.settings();
        loop {
            if let Some(event) = self.parse_kept(&settings, head) {
                return Poll::Ready(event);
            }
            match self.poll_fill(cx, &settings, head) {
                Poll::Ready(None) => {}
                Poll::Ready(Some(event)) => return Poll::Ready(event),
                Poll::Pending => {
                    ready!(self.socket.deadline.poll_expired(cx));
                    return Poll::Ready(self.timed_out());
                }
            }
        }
    }

    fn timed_out(&mut self) -> Event {
        if !self.input.is_empty() {
            return self.refuse(Refused::TimedOut);
        }
        // Nothing has come: there is nothing to wait for any longer.
        let gave_way = self.socket.deadline.gave_way();
        self.after = if gave_way { After::Over } else { After::Close };
        if gave_way {
            self.socket.stream.end_at_once();
        }
        Event::End
    }

    /// Parses earlier bytes. `None`: more must be read.
    fn parse_kept(&mut self, settings: &ClientSettings, head: &mut RequestHead) -> Option<Event> {
        let kept = self.input.bytes();
        if kept.is_empty() || !h1::may_complete_head(kept, self.parsed_bytes, &settings.limits) {
            return None;
        }
        match h1::parse_request(kept, &settings.limits, head) {
            Ok(Some(used)) => {
                self.input.consume(&self.io.read_buffers, used);
                Some(self.begin(head, settings))
            }
            Ok(None) => {
                self.parsed_bytes = kept.len();
                None
            }
            Err(error) => {
                let refused = Refused::head(error, kept);
                Some(self.refuse(refused))
            }
        }
    }

    /// Reads once, and parses straight from the read buffer where nothing was kept.
    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        settings: &ClientSettings,
        head: &mut RequestHead,
    ) -> Poll<Option<Event>> {
        let io = Rc::clone(&self.io);
        io.read_buffers.with(|buffer| {
            let read = match ready!(poll_read(&mut self.socket, cx, buffer)) {
                Ok(read) if read > 0 => read,
                _ => return Poll::Ready(Some(self.ended_by(ClientLost::Gone))),
            };
            io.count(Counter::ClientInBytes, read as u64);
            let fresh = buffer.get(..read).unwrap_or_default();
            if !self.input.is_empty() {
                self.input.append(&io.read_buffers, fresh);
                return Poll::Ready(None);
            }
            match h1::parse_request(fresh, &settings.limits, head) {
                Ok(Some(used)) => {
                    if let Some(rest) = fresh.get(used..).filter(|rest| !rest.is_empty()) {
                        self.input = Input::copied(rest);
                    }
                    Poll::Ready(Some(self.begin(head, settings)))
                }
                Ok(None) => {
                    self.input = Input::copied(fresh);
                    self.parsed_bytes = read;
                    self.socket.deadline.arm_in_line(settings.request);
                    Poll::Ready(None)
                }
                Err(error) => Poll::Ready(Some(self.refuse(Refused::head(error, fresh)))),
            }
        })
    }

    /// A head has come: an exchange begins.
    pub(super) fn begin(&mut self, head: &mut RequestHead, settings: &ClientSettings) -> Event {
        self.parsed_bytes = 0;
        self.begin_answer();
        self.version = head.version;
        self.is_head = head.method == Method::Head;
        (self.write_timeout, self.read_timeout) = (settings.write, settings.read);
        self.half_closed = settings.half_closed;
        self.wants_more = h1::keep_alive(head.version, &head.fields);
        // Bytes behind the head of CONNECT are no next request.
        self.persists = settings.persistent && head.method != Method::Connect && self.wants_more;
        let framing = match h1::request_framing(head) {
            Ok(framing) => framing,
            // Parsed heads have one.
            Err(error) => return self.refuse(Refused::head(error, b"")),
        };
        self.length = match framing {
            Framing::None | Framing::UntilClose => BodyLength::None,
            Framing::Length(bytes) => BodyLength::Known(bytes),
            Framing::Chunked => BodyLength::Unknown,
        };
        if self.length.has_body() {
            let decoder = BodyDecoder::new(framing);
            self.body = Some(Box::new(RequestBody { decoder, limit_bytes: None }));
        }
        h1::remove_named(&mut head.fields);
        Event::Head
    }

    pub(super) fn request_body(&self) -> BodyLength {
        self.length
    }

    pub(super) fn limit_request_body(&mut self, bytes: Option<u64>) {
        if let Some(body) = &mut self.body {
            body.limit_bytes = bytes;
        }
    }

    pub(super) fn expect_body(&mut self) {
        self.socket.deadline.arm(self.read_timeout);
    }

    pub(super) fn poll_body_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_out_of_time(cx)
    }

    pub(super) fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(BodyPart<'_>) -> Result<(), EncodeError>,
    ) -> Poll<Result<bool, BodyFault>> {
        if self.body.is_none() {
            return Poll::Ready(Ok(true));
        }
        if self.input.is_empty() {
            match ready!(self.poll_read_more(cx)) {
                Ok(true) => {}
                Ok(false) | Err(_) => return Poll::Ready(Err(BodyFault::Gone)),
            }
        }
        let Some(body) = self.body.as_deref_mut() else { return Poll::Ready(Ok(true)) };
        let bytes = self.input.bytes();
        let bytes = bytes.get(..bytes.len().min(BODY_BYTES_MAX)).unwrap_or_default();
        let (used, is_done) = body.decode(bytes, take)?;
        self.input.consume(&self.io.read_buffers, used);
        if is_done {
            self.body = None;
        }
        Poll::Ready(Ok(is_done))
    }

    /// Reads once behind the kept bytes; `false` when the client has closed its side.
    pub(super) fn poll_read_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let io = Rc::clone(&self.io);
        let stream = &self.socket.stream;
        loop {
            ready!(stream.poll_read_ready(cx))?;
            let read = io.read_buffers.with(|buffer| {
                let read = stream.try_read(buffer)?;
                self.input.append(&io.read_buffers, buffer.get(..read).unwrap_or_default());
                io::Result::Ok(read)
            });
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
                Ok(read) => {
                    io.count(Counter::ClientInBytes, read as u64);
                    return Poll::Ready(Ok(read > 0));
                }
            }
        }
    }

    /// Ends the connection. If everything was sent, our side is closed and a few more bytes of the
    /// client are read, so that it gets the last answer instead of a reset (RFC 9112 9.6).
    pub(crate) async fn close(mut self) {
        if self.after != After::Close {
            return;
        }
        self.socket.deadline.arm(LINGER);
        let has_ended = poll_fn(|cx| match self.socket.stream.poll_shut_down_write(cx) {
            Poll::Ready(ended) => Poll::Ready(ended.is_ok()),
            Poll::Pending => self.socket.deadline.poll_expired(cx).map(|()| false),
        });
        if !has_ended.await {
            return;
        }
        let mut read_bytes = 0;
        while read_bytes < LINGER_BYTES_MAX {
            let read = poll_fn(|cx| {
                if self.socket.deadline.poll_expired(cx).is_ready() {
                    return Poll::Ready(0);
                }
                let io = Rc::clone(&self.io);
                io.read_buffers.with(|buffer| {
                    poll_read(&mut self.socket, cx, buffer).map(|read| read.unwrap_or(0))
                })
            })
            .await;
            if read == 0 {
                return;
            }
            read_bytes += read;
        }
    }
}

impl RequestBody {
    /// Takes the body apart. Returns how many bytes were used, and whether that was its end.
    fn decode(
        &mut self,
        bytes: &[u8],
        take: &mut dyn FnMut(BodyPart<'_>) -> Result<(), EncodeError>,
    ) -> Result<(usize, bool), BodyFault> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            let decoded = self.decoder.decode(rest).map_err(BodyFault::Malformed)?;
            let data = rest.get(decoded.data.clone()).unwrap_or_default();
            // A chunk too many is refused before its data.
            if self.limit_bytes.is_some_and(|limit| self.decoder.announced_bytes() > limit) {
                return Err(BodyFault::TooLarge);
            }
            if !data.is_empty() {
                take(BodyPart::Data(data)).map_err(BodyFault::Refused)?;
            }
            used += decoded.consumed;
            if decoded.state == DecodeState::Done {
                let trailers = self.decoder.trailers();
                take(BodyPart::End(trailers.as_ref())).map_err(BodyFault::Refused)?;
                return Ok((used, true));
            }
            if used >= bytes.len() {
                return Ok((used, false));
            }
        }
    }
}

impl Refused {
    /// A head that cannot be read, with which `input` begins.
    fn head(error: HeadError, input: &[u8]) -> Self {
        Self::Head(Box::new(Unreadable::h1(error, input)))
    }
}

/// Reads once; with less work where the socket is ours alone.
fn poll_read(
    socket: &mut Rc<Socket>,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>> {
    if let Some(socket) = Rc::get_mut(socket) {
        return socket.stream.poll_read(cx, buffer);
    }
    socket.stream.poll_read_shared(cx, buffer)
}
