//! The floor: one thread, epoll, one read and one `writev` per request, and nothing that a cache
//! would add.
//!
//! It answers every `GET /BYTES/anything`, also in absolute form, with that many bytes and the nine
//! header lines that answers usually have. The same program is the origin of the benchmarks; its
//! answers may be cached for an hour. It waits by way of `mio`, as Valgrind does not know the call
//! of the laboratory's poller. The laboratory's own origin does more for a request: it makes each
//! body from its URL, chooses versions, and keeps timers for links and idle connections.

use super::counts::Counts;
use crate::Outcome;
use humboldt_lab_wire::{Poller, http_date, request_head};
use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Registry, Token};
use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest body; all bodies are slices of one buffer.
pub(super) const MAX_BODY_BYTES: usize = 4 << 20;

/// A request of the load generators is far shorter; a longer one is refused by closing.
const MAX_REQUEST_BYTES: usize = 4096;

/// Bytes that one read takes at most.
const CHUNK_BYTES: usize = 4 * MAX_REQUEST_BYTES;

/// The listener's token; connections have small ones.
const LISTENER: Token = Token(usize::MAX - 1);

/// Events taken at a time.
const EVENTS_MAX: usize = 512;

/// A connection of a floor.
pub(super) trait Connection: Sized {
    /// Answers and reads until the kernel has nothing more, by way of `chunk`. An error means:
    /// close.
    fn progress(
        &mut self,
        answers: &mut Answers,
        chunk: &mut [u8],
        is_closed: bool,
    ) -> std::io::Result<()>;
}

struct Plain {
    stream: TcpStream,
    input: Vec<u8>,
    /// The answer being written: its body's length, and how much of head and body the kernel has
    /// taken.
    sending: Option<(usize, usize)>,
}

/// Serves until it is killed.
pub(crate) fn run(listen: SocketAddr) -> Outcome {
    serve(listen, None, |stream| {
        let input = Vec::with_capacity(MAX_REQUEST_BYTES);
        Ok(Plain { stream, input, sending: None })
    })
}

/// The same for connections that are made by `make`; they may be counted in a file.
pub(super) fn serve<C: Connection>(
    listen: SocketAddr,
    counts: Option<&File>,
    make: impl Fn(TcpStream) -> Outcome<C>,
) -> Outcome {
    let mut listener = TcpListener::bind(listen)?;
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut server = Server {
        make,
        connections: Vec::new(),
        free: Vec::new(),
        answers: Answers::new(),
        chunk: vec![0; CHUNK_BYTES],
    };
    let mut events = Events::with_capacity(EVENTS_MAX);
    loop {
        if let Some(file) = counts {
            server.answers.counts.write(file)?;
        }
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            result => result?,
        }
        server.answers.refresh();
        for event in &events {
            match event.token() {
                LISTENER => server.accept(poll.registry(), &listener)?,
                _ => server.serve(event),
            }
        }
    }
}

struct Server<C, M> {
    make: M,
    connections: Vec<Option<C>>,
    free: Vec<usize>,
    answers: Answers,
    chunk: Vec<u8>,
}

impl<C: Connection, M: Fn(TcpStream) -> Outcome<C>> Server<C, M> {
    fn accept(&mut self, registry: &Registry, listener: &TcpListener) -> Outcome {
        loop {
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                    ) =>
                {
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            stream.set_nodelay(true)?;
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let interest = Interest::READABLE | Interest::WRITABLE;
            registry.register(&mut stream, Token(slot), interest)?;
            self.connections[slot] = Some((self.make)(stream)?);
            self.answers.counts.connections += 1;
        }
    }

    /// Dropping a connection closes its socket, which takes it out of the poller.
    fn serve(&mut self, event: &Event) {
        let Token(slot) = event.token();
        let Some(connection) = self.connections.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        if connection.progress(&mut self.answers, &mut self.chunk, event.is_read_closed()).is_err()
        {
            self.connections[slot] = None;
            self.free.push(slot);
        }
    }
}

impl Connection for Plain {
    fn progress(
        &mut self,
        answers: &mut Answers,
        chunk: &mut [u8],
        is_closed: bool,
    ) -> std::io::Result<()> {
        while self.answer(answers)? {
            match self.stream.read(chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => {
                    self.input.extend_from_slice(&chunk[..len]);
                    if Poller::drained(len, chunk.len()) && !is_closed {
                        return self.answer(answers).map(|_| ());
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Plain {
    /// Answers all requests that are there; false while the socket is full.
    fn answer(&mut self, answers: &mut Answers) -> std::io::Result<bool> {
        loop {
            if let Some((body_bytes, sent)) = self.sending {
                self.sending = write(&mut self.stream, answers, body_bytes, sent)?;
                if self.sending.is_some() {
                    return Ok(false);
                }
            }
            match next_request(&mut self.input)? {
                Some(body_bytes) => {
                    answers.counts.requests += 1;
                    self.sending = Some((body_bytes, 0));
                }
                None => return Ok(true),
            }
        }
    }
}

/// Takes the next request out of `input`, if it is whole: the length of the body that it asks for.
pub(super) fn next_request(input: &mut Vec<u8>) -> std::io::Result<Option<usize>> {
    let Some(head) = request_head(input).map_err(|_| ErrorKind::InvalidData)? else {
        let is_full = input.len() > MAX_REQUEST_BYTES;
        return if is_full { Err(ErrorKind::InvalidData.into()) } else { Ok(None) };
    };
    let body_bytes = requested_bytes(head.target()).ok_or(ErrorKind::InvalidData)?;
    let len_bytes = head.len_bytes();
    input.drain(..len_bytes);
    Ok(Some(body_bytes))
}

/// Writes from offset `sent` of head and body; returns the rest when the socket is full.
fn write(
    stream: &mut TcpStream,
    answers: &mut Answers,
    body_bytes: usize,
    mut sent: usize,
) -> std::io::Result<Option<(usize, usize)>> {
    let (head, body) = answers.get(body_bytes);
    while sent < head.len() + body.len() {
        let head_left = &head[sent.min(head.len())..];
        let body_left = &body[sent.saturating_sub(head.len())..];
        match stream.write_vectored(&[IoSlice::new(head_left), IoSlice::new(body_left)]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(len) => sent += len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Ok(Some((body_bytes, sent)));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The first path segment as a number, in origin form and in absolute form.
fn requested_bytes(target: &[u8]) -> Option<usize> {
    let path = match target.strip_prefix(b"http://") {
        Some(rest) => &rest[rest.iter().position(|&byte| byte == b'/')?..],
        None => target,
    };
    let digits = path.get(1..)?.split(|&b| b == b'/').next()?;
    let bytes: usize = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (bytes <= MAX_BODY_BYTES).then_some(bytes)
}

/// Heads by body length, rebuilt when the second changes, and the one buffer of all bodies.
pub(super) struct Answers {
    pub(super) counts: Counts,
    now_s: u64,
    heads: HashMap<usize, Vec<u8>>,
    body: Vec<u8>,
}

impl Answers {
    fn new() -> Self {
        // Text without a short period, so that no client gains by compressing or comparing it.
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let body = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            b'a' + ((state >> 40) % 26) as u8
        });
        let body = body.take(MAX_BODY_BYTES).collect();
        Self { counts: Counts::default(), now_s: 0, heads: HashMap::new(), body }
    }

    fn refresh(&mut self) {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if now_s != self.now_s {
            self.now_s = now_s;
            self.heads.clear();
        }
    }

    pub(super) fn get(&mut self, body_bytes: usize) -> (&[u8], &[u8]) {
        let now_s = self.now_s;
        let head = self.heads.entry(body_bytes).or_insert_with(|| head(body_bytes, now_s));
        (head, &self.body[..body_bytes])
    }
}

fn head(body_bytes: usize, now_s: u64) -> Vec<u8> {
    let mut head = b"HTTP/1.1 200 OK\r\nDate: ".to_vec();
    http_date(now_s, &mut head);
    let fields = format!(
        "\r\nServer: floor\r\nContent-Type: text/plain\r\nContent-Length: {body_bytes}\r\n\
         ETag: \"{body_bytes:x}\"\r\nCache-Control: max-age=3600\r\nAccept-Ranges: none\r\n\
         Connection: keep-alive\r\nLast-Modified: "
    );
    head.extend_from_slice(fields.as_bytes());
    http_date(now_s - now_s % Duration::from_hours(24).as_secs(), &mut head);
    head.extend_from_slice(b"\r\n\r\n");
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_read_from_both_forms_of_target() {
        assert_eq!(requested_bytes(b"/1024/x"), Some(1024));
        assert_eq!(requested_bytes(b"http://a:1/7/x"), Some(7));
        assert_eq!(requested_bytes(b"/x"), None);
        assert_eq!(requested_bytes(b"/99999999999"), None);
    }
}
