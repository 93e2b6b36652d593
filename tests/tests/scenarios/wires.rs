//! The sockets of one scenario, all served by the one thread that plays it.
//!
//! Bytes sent over loopback can be read at once, so that "the origin is not asked" is a fact and
//! not a hope. Arriving bytes are read at once, and waiting ones are sent as they fit, so that the
//! script's order never blocks.

use crate::message::Body;
use crate::script::Side;
use crate::transcript::Transcript;
use humboldt_tests::wait::{LIMIT, free_listener, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_linger;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A wait is in vain if nothing has moved for this long while an unexpected message is there.
const IN_VAIN: Duration = Duration::from_secs(3);

const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// The way in which the proxy ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Closed,
    Reset,
}

/// The step after everything has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Nothing,
    HalfClose,
    Close,
}

/// A connection.
pub(crate) struct Wire {
    pub(crate) side: Side,
    /// `None` once this end has closed it.
    stream: Option<TcpStream>,
    /// Received bytes that no step has read.
    pub(crate) input: Vec<u8>,
    output: Vec<u8>,
    then: Then,
    pub(crate) end: Option<End>,
    /// A body of which only the beginning has been looked at.
    pub(crate) body: Option<Body>,
    /// Methods of a client's requests that have no answer yet.
    pub(crate) methods: VecDeque<String>,
    /// Whether the last message announced that it was the last.
    pub(crate) is_last: bool,
}

impl Wire {
    fn new(side: Side, stream: TcpStream) -> Result<Self, String> {
        let prepared = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        prepared.map_err(|error| format!("preparing a socket: {error}"))?;
        Ok(Self {
            side,
            stream: Some(stream),
            input: Vec::new(),
            output: Vec::new(),
            then: Then::Nothing,
            end: None,
            body: None,
            methods: VecDeque::new(),
            is_last: false,
        })
    }

    /// Whether another request can be sent on it.
    pub(crate) fn is_usable(&self) -> bool {
        self.end.is_none() && !self.is_given_up() && !self.is_last
    }

    /// Whether this end has closed it.
    pub(crate) fn is_given_up(&self) -> bool {
        self.stream.is_none() || self.then == Then::Close
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    pub(crate) fn half_close(&mut self) {
        self.then = Then::HalfClose;
    }

    pub(crate) fn close(&mut self) {
        self.then = Then::Close;
    }

    /// Ends the connection with RST.
    pub(crate) fn reset(&mut self) {
        if let Some(stream) = self.stream.take() {
            let _ = set_socket_linger(&stream, Some(Duration::ZERO));
        }
    }

    /// Reads and writes as much as possible now; true if anything moved.
    fn pump(&mut self) -> bool {
        let mut has_moved = self.write();
        let mut buffer = [0; 64 * 1024];
        while let Some(stream) = self.stream.as_mut().filter(|_| self.end.is_none()) {
            match stream.read(&mut buffer) {
                Ok(0) => self.end = Some(End::Closed),
                Ok(len) => self.input.extend_from_slice(&buffer[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.end = Some(End::Reset),
            }
            has_moved = true;
        }
        has_moved
    }

    fn write(&mut self) -> bool {
        let mut has_moved = false;
        while let Some(stream) = self.stream.as_mut().filter(|_| !self.output.is_empty()) {
            match stream.write(&self.output) {
                Ok(len) => {
                    self.output.drain(..len);
                    has_moved = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return has_moved,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A party that does not read any more is seen to close; the script may expect that.
                Err(_) => self.output.clear(),
            }
        }
        match self.then {
            Then::Nothing => {}
            Then::HalfClose => {
                let _ = self.stream.as_ref().map(|stream| stream.shutdown(Shutdown::Write));
                self.then = Then::Nothing;
            }
            Then::Close => self.stream = None,
        }
        has_moved
    }

    fn interest(&self) -> PollFlags {
        let reads = if self.end.is_none() { PollFlags::IN } else { PollFlags::empty() };
        let writes = if self.output.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        reads | writes
    }
}

/// All sockets of a scenario.
pub(crate) struct Wires {
    /// The origin's address while it runs.
    origin: SocketAddr,
    listener: Option<TcpListener>,
    /// Also those that are over, so that nothing they brought is overlooked.
    pub(crate) all: Vec<Wire>,
    pub(crate) transcript: Transcript,
}

impl Wires {
    /// With an origin that listens on a port of its own.
    pub(crate) fn new() -> Result<Self, String> {
        let listener = free_listener();
        let told = |error| format!("the origin's listener: {error}");
        listener.set_nonblocking(true).map_err(told)?;
        let origin = listener.local_addr().map_err(told)?;
        Ok(Self {
            origin,
            listener: Some(listener),
            all: Vec::new(),
            transcript: Transcript::default(),
        })
    }

    /// The origin's address.
    pub(crate) fn origin(&self) -> SocketAddr {
        self.origin
    }

    /// From now on the origin can be reached.
    pub(crate) fn listen(&mut self) -> Result<(), String> {
        self.transcript.say("origin starts");
        let listener = TcpListener::bind(self.origin)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| format!("the origin cannot listen at {}: {error}", self.origin))?;
        self.listener = Some(listener);
        Ok(())
    }

    /// From now on the origin cannot be reached.
    pub(crate) fn stop_listening(&mut self) -> Result<(), String> {
        self.transcript.say("origin stops");
        self.pump()?;
        self.listener = None;
        for wire in self.all.iter_mut().filter(|wire| wire.side == Side::Origin) {
            wire.close();
        }
        self.pump()?;
        // A proxy that another thread was about to start holds the port until that proxy's own
        // program runs.
        until("the origin's port to be given up", || {
            TcpStream::connect(self.origin).is_err().then_some(())
        });
        Ok(())
    }

    /// A new client connection.
    pub(crate) fn connect(&mut self, proxy: SocketAddr) -> Result<usize, String> {
        let stream = TcpStream::connect(proxy)
            .map_err(|error| format!("connecting to the proxy: {error}"))?;
        self.all.push(Wire::new(Side::Client, stream)?);
        Ok(self.all.len() - 1)
    }

    /// Moves as much as possible without waiting; true if anything moved.
    pub(crate) fn pump(&mut self) -> Result<bool, String> {
        let mut has_moved = false;
        while let Some(listener) = &self.listener {
            match listener.accept() {
                Ok((stream, _)) => self.all.push(Wire::new(Side::Origin, stream)?),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("accepting a connection at the origin: {error}")),
            }
            has_moved = true;
        }
        for wire in &mut self.all {
            has_moved |= wire.pump();
        }
        Ok(has_moved)
    }

    /// Waits until there is an answer. An error of `ask` ends the waiting at once.
    pub(crate) fn until<T>(
        &mut self,
        what: &str,
        mut ask: impl FnMut(&mut Self) -> Result<Option<T>, String>,
    ) -> Result<T, String> {
        let start = Instant::now();
        let mut last_moved = start;
        loop {
            if self.pump()? {
                last_moved = Instant::now();
            }
            if let Some(answer) = ask(self)? {
                return Ok(answer);
            }
            let is_in_vain = last_moved.elapsed() > IN_VAIN && self.left_over().is_some();
            if is_in_vain || start.elapsed() > LIMIT {
                let instead =
                    self.left_over().map_or_else(String::new, |rest| format!("; instead, {rest}"));
                return Err(format!("waited for {what}{instead}"));
            }
            self.sleep_until_ready();
        }
    }

    fn sleep_until_ready(&self) {
        let mut wanted: Vec<PollFd<'_>> =
            self.listener.iter().map(|listener| PollFd::new(listener, PollFlags::IN)).collect();
        for wire in &self.all {
            if let Some(stream) = wire.stream.as_ref().filter(|_| !wire.interest().is_empty()) {
                wanted.push(PollFd::from_borrowed_fd(stream.as_fd(), wire.interest()));
            }
        }
        let _ = poll(&mut wanted, Some(&TICK));
    }

    /// Something that has arrived and that no step has asked for.
    pub(crate) fn left_over(&self) -> Option<String> {
        self.all.iter().find_map(|wire| {
            if wire.is_given_up() || wire.body.is_some() || wire.input.is_empty() {
                return None;
            }
            let line = wire.input.split(|&byte| byte == b'\r').next().unwrap_or_default();
            let line = String::from_utf8_lossy(&line[..line.len().min(200)]);
            Some(match wire.side {
                Side::Client => format!("a client got what no step asks for: {line}"),
                Side::Origin => format!("the origin was asked: {line}"),
            })
        })
    }
}
