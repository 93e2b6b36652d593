//! The floor: one thread, epoll, one read and one `writev` per request, and nothing that a cache
//! would add.
//!
//! It answers every `GET /BYTES/anything`, also in absolute form, with that many bytes and the nine
//! header lines that answers usually have. The same program is the origin of the benchmarks; its
//! answers may be cached for an hour. The laboratory's own origin does more for a request: it makes
//! each body from its URL, chooses versions, and keeps timers for links and idle connections.

use crate::Outcome;
use humboldt_lab_wire::{Poller, Ready, http_date, request_head};
use std::collections::HashMap;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest body; all bodies are slices of one buffer.
pub(super) const MAX_BODY_BYTES: usize = 4 << 20;

/// A request of the load generators is far shorter; a longer one is refused by closing.
pub(super) const MAX_REQUEST_BYTES: usize = 4096;

/// Its token; connections have small ones.
pub(super) const LISTENER: u64 = Poller::WAKE - 1;

struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    /// The answer being written: its body's length, and how much of head and body the kernel has
    /// taken.
    sending: Option<(usize, usize)>,
}

/// Serves until it is killed.
pub(crate) fn run(listen: SocketAddr) -> Outcome {
    let listener = TcpListener::bind(listen)?;
    listener.set_nonblocking(true)?;
    let mut poller = Poller::new()?;
    poller.add_listener(&listener, LISTENER)?;
    let mut server = Server { connections: Vec::new(), free: Vec::new(), answers: Answers::new() };
    let mut events = Vec::new();
    loop {
        poller.wait_into(&mut events, None)?;
        server.answers.refresh();
        for event in &events {
            match event.token {
                LISTENER => server.accept(&poller, &listener)?,
                _ => server.serve(*event),
            }
        }
    }
}

struct Server {
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    answers: Answers,
}

impl Server {
    fn accept(&mut self, poller: &Poller, listener: &TcpListener) -> Outcome {
        loop {
            let stream = match listener.accept() {
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
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            poller.add_stream(&stream, slot as u64)?;
            let input = Vec::with_capacity(MAX_REQUEST_BYTES);
            self.connections[slot] = Some(Connection { stream, input, sending: None });
        }
    }

    /// Dropping a connection closes its socket, which takes it out of the poller.
    fn serve(&mut self, event: Ready) {
        let slot = event.token as usize;
        let Some(connection) = self.connections.get_mut(slot).and_then(Option::as_mut) else {
            return;
        };
        if connection.progress(&mut self.answers, event.closed).is_err() {
            self.connections[slot] = None;
            self.free.push(slot);
        }
    }
}

impl Connection {
    /// Answers and reads until the kernel has nothing more. An error means: close.
    fn progress(&mut self, answers: &mut Answers, is_closed: bool) -> std::io::Result<()> {
        let mut chunk = [0; MAX_REQUEST_BYTES];
        while self.answer(answers)? {
            match self.stream.read(&mut chunk) {
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

    /// Answers all requests that are there; false while the socket is full.
    fn answer(&mut self, answers: &mut Answers) -> std::io::Result<bool> {
        loop {
            if let Some((body_bytes, sent)) = self.sending {
                self.sending = write(&mut self.stream, answers, body_bytes, sent)?;
                if self.sending.is_some() {
                    return Ok(false);
                }
            }
            let head = request_head(&self.input).map_err(|_| ErrorKind::InvalidData)?;
            let Some(head) = head else {
                let is_full = self.input.len() > MAX_REQUEST_BYTES;
                return if is_full { Err(ErrorKind::InvalidData.into()) } else { Ok(true) };
            };
            let body_bytes = requested_bytes(head.target()).ok_or(ErrorKind::InvalidData)?;
            let len_bytes = head.len_bytes();
            self.input.drain(..len_bytes);
            self.sending = Some((body_bytes, 0));
        }
    }
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
pub(super) fn requested_bytes(target: &[u8]) -> Option<usize> {
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
    now_s: u64,
    heads: HashMap<usize, Vec<u8>>,
    body: Vec<u8>,
}

impl Answers {
    pub(super) fn new() -> Self {
        // Text without a short period, so that no client gains by compressing or comparing it.
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let body = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            b'a' + ((state >> 40) % 26) as u8
        });
        Self { now_s: 0, heads: HashMap::new(), body: body.take(MAX_BODY_BYTES).collect() }
    }

    pub(super) fn refresh(&mut self) {
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
