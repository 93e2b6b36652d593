//! Reading with hyper: its client for answers, its server for requests, on a connection in memory,
//! without a runtime.

use crate::reading::{End, Message, Reading, sorted};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, Version, client, server};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::error::Error as _;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Most field lines, as ours.
const FIELDS_MAX: usize = humboldt_base::limits::HEAD_FIELDS_MAX;

/// A connection whose other side sends a piece whenever it is told to, and takes everything.
#[derive(Clone)]
struct Wire(Rc<RefCell<State>>);

struct State {
    pieces: VecDeque<Vec<u8>>,
    /// Released and not read yet.
    readable: Vec<u8>,
    is_at_end: bool,
}

impl Wire {
    fn new(pieces: &[&[u8]]) -> Self {
        let pieces = pieces.iter().map(|piece| piece.to_vec()).collect();
        Self(Rc::new(RefCell::new(State { pieces, readable: Vec::new(), is_at_end: false })))
    }

    /// Sends the next piece, or the end.
    fn release(&self) {
        let state = &mut *self.0.borrow_mut();
        match state.pieces.pop_front() {
            Some(piece) => state.readable.extend(piece),
            None => state.is_at_end = true,
        }
    }

    fn is_at_end(&self) -> bool {
        self.0.borrow().is_at_end
    }
}

impl Read for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let state = &mut *self.0.borrow_mut();
        let len = state.readable.len().min(buffer.remaining());
        if len == 0 && !state.is_at_end {
            return Poll::Pending;
        }
        buffer.put_slice(&state.readable[..len]);
        state.readable.drain(..len);
        Poll::Ready(Ok(()))
    }
}

impl Write for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// No body.
struct Nothing;

impl Body for Nothing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }
}

/// The meaning of an error: the end came too early, or the bytes are malformed.
fn end_of(error: &hyper::Error) -> End {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    if error.is_incomplete_message()
        || cause.is_some_and(|cause| cause.kind() == io::ErrorKind::UnexpectedEof)
    {
        return End::CutOff;
    }
    End::Refused(cause.map_or_else(|| error.to_string(), ToString::to_string))
}

fn listed(fields: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    sorted(fields.iter().map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec())))
}

fn version(version: Version) -> &'static str {
    if version == Version::HTTP_10 { "HTTP/1.0" } else { "HTTP/1.1" }
}

/// Reads a body into the message that `of` finds.
async fn body(mut body: Incoming, of: impl Fn(&mut dyn FnMut(&mut Message))) {
    loop {
        let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let mut is_end = true;
        of(&mut |message| match &frame {
            None => message.end = End::Complete,
            Some(Err(error)) => message.end = end_of(error),
            Some(Ok(frame)) => {
                is_end = false;
                if let Some(data) = frame.data_ref() {
                    message.data.extend_from_slice(data);
                }
                if let Some(trailers) = frame.trailers_ref() {
                    message.trailers = listed(trailers);
                }
            }
        });
        if is_end {
            return;
        }
    }
}

/// Whether hyper wants to be polled again.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Polls until `work` is done, and sends a piece whenever nothing else happens. Work that is not
/// done at the end never will be.
fn run(wire: &Wire, mut work: Pin<&mut dyn Future<Output = ()>>) {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut cx = Context::from_waker(&waker);
    loop {
        // Twice, because the parts of a connection, which are polled here in turn, do not always
        // wake each other.
        woken.0.store(false, Ordering::Relaxed);
        if (0..2).any(|_| work.as_mut().poll(&mut cx).is_ready()) {
            return;
        }
        if woken.0.load(Ordering::Relaxed) {
            continue;
        }
        if wire.is_at_end() {
            return;
        }
        wire.release();
    }
}

/// The answer to a request of this method.
pub(crate) fn response(pieces: &[&[u8]], method: &str) -> Reading {
    let wire = Wire::new(pieces);
    let reading = RefCell::new(Reading { messages: Vec::new(), end: End::CutOff });
    let exchange = async {
        let mut builder = client::conn::http1::Builder::new();
        builder.max_headers(FIELDS_MAX).allow_spaces_after_header_name_in_responses(true);
        let (mut sender, connection) =
            builder.handshake(wire.clone()).await.expect("no bytes are involved");
        let request = Request::builder()
            .method(method)
            .uri("/")
            .header("host", "h")
            .body(Nothing)
            .expect("a request");
        let mut connection = pin!(connection);
        let mut is_over = false;
        let mut answer = pin!(async {
            match sender.send_request(request).await {
                Err(error) => reading.borrow_mut().end = end_of(&error),
                Ok(answer) => {
                    let start =
                        format!("{} {}", version(answer.version()), answer.status().as_u16());
                    let fields = listed(answer.headers());
                    let is_switch = answer.status().as_u16() == 101;
                    let end = if is_switch { End::Complete } else { End::CutOff };
                    let message =
                        Message { start, fields, data: Vec::new(), trailers: Vec::new(), end };
                    reading.borrow_mut().messages.push(message);
                    if !is_switch {
                        body(answer.into_body(), |with| {
                            with(&mut reading.borrow_mut().messages[0])
                        })
                        .await;
                    }
                    reading.borrow_mut().end = End::Complete;
                }
            }
        });
        poll_fn(|cx| {
            is_over = is_over || connection.as_mut().poll(cx).is_ready();
            answer.as_mut().poll(cx)
        })
        .await;
    };
    run(&wire, pin!(exchange));
    reading.into_inner()
}

/// The requests of a connection, as long as it persists.
pub(crate) fn requests(pieces: &[&[u8]]) -> Reading {
    let wire = Wire::new(pieces);
    let reading = Rc::new(RefCell::new(Reading { messages: Vec::new(), end: End::Complete }));
    let log = Rc::clone(&reading);
    let service = service_fn(move |request: Request<Incoming>| {
        let log = Rc::clone(&log);
        async move {
            let start = start(&request);
            let fields = listed(request.headers());
            let message =
                Message { start, fields, data: Vec::new(), trailers: Vec::new(), end: End::CutOff };
            let index = log.borrow().messages.len();
            log.borrow_mut().messages.push(message);
            body(request.into_body(), |with| with(&mut log.borrow_mut().messages[index])).await;
            Ok::<_, Infallible>(Response::new(Nothing))
        }
    });
    let mut builder = server::conn::http1::Builder::new();
    builder.max_headers(FIELDS_MAX).half_close(true).auto_date_header(false);
    let connection = builder.serve_connection(wire.clone(), service);
    let serving = async {
        if let Err(error) = connection.await {
            reading.borrow_mut().end = end_of(&error);
        }
    };
    run(&wire, pin!(serving));
    let reading = reading.borrow();
    reading.clone()
}

fn start(request: &Request<Incoming>) -> String {
    let uri = request.uri();
    let is_origin_form = uri.scheme().is_none() && uri.authority().is_none() && uri.path() != "*";
    let target =
        uri.path_and_query().filter(|_| is_origin_form).map_or("*", |target| target.as_str());
    format!("{} {target} {}", request.method(), version(request.version()))
}
