//! A raw client: sends the bytes it is told to, and reads answers without hiding anything.

use crate::message::{Head, Reader};
use crate::wait::LIMIT;
use rustix::net::sockopt::{set_socket_linger, set_socket_recv_buffer_size};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// The fields of a request to switch to WebSocket.
pub const WEB_SOCKET: [(&str, &str); 4] = [
    ("Connection", "upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// An answer as it came.
#[derive(Clone, Debug)]
pub struct Response {
    /// Status line and fields.
    pub head: Head,
    /// The payload.
    pub body: Vec<u8>,
    /// Trailer fields.
    pub trailers: Vec<(String, String)>,
    /// False if the connection ended before the body's framing said so.
    pub is_complete: bool,
    /// Informational answers that came before.
    pub interim: Vec<Head>,
}

impl Response {
    /// The status code; 0 if the status line has none.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.head.word(1).parse().unwrap_or(0)
    }

    /// The first field of that name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// `HIT` or `MISS`: the proxy's X-Cache.
    #[must_use]
    pub fn cache(&self) -> &str {
        self.field("X-Cache").and_then(|value| value.split(' ').next()).unwrap_or("no X-Cache")
    }

    /// Age in seconds.
    #[must_use]
    pub fn age(&self) -> Option<u32> {
        self.field("Age").and_then(|value| value.parse().ok())
    }

    /// Checks the status, and shows the answer if it is another one.
    ///
    /// # Panics
    /// If it is another one.
    #[must_use]
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status(), status, "{:?}\n{}", self.head, self.text());
        self
    }
}

/// One connection to a proxy or a server, which holds one descriptor.
pub struct Client {
    reader: Reader<TcpStream>,
}

impl Client {
    /// Connects, with [`LIMIT`] for every later read and write.
    ///
    /// # Panics
    /// If no server listens there.
    #[must_use]
    #[track_caller]
    pub fn to(address: SocketAddr) -> Self {
        let connected = TcpStream::connect(address)
            .unwrap_or_else(|error| panic!("connect to {address}: {error}"));
        Self::on(connected)
    }

    /// The same from an address of this machine.
    ///
    /// # Panics
    /// If no server listens there, or the address is not ours.
    #[must_use]
    #[track_caller]
    pub fn from_to(own: IpAddr, address: SocketAddr) -> Self {
        let family = if own.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket(family, SocketType::STREAM, None).expect("a socket");
        bind(&socket, &SocketAddr::new(own, 0)).unwrap_or_else(|error| panic!("{own}: {error}"));
        connect(&socket, &address).unwrap_or_else(|error| panic!("connect to {address}: {error}"));
        Self::on(socket.into())
    }

    /// The same for an address that may have no server: `None` then.
    #[must_use]
    pub fn try_to(address: SocketAddr) -> Option<Self> {
        TcpStream::connect(address).ok().map(Self::on)
    }

    /// A client for which the system keeps about this many bytes, so that the peer writes in parts.
    ///
    /// # Panics
    /// If no server listens there.
    #[must_use]
    #[track_caller]
    pub fn with_receive_buffer(address: SocketAddr, bytes: usize) -> Self {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        set_socket_recv_buffer_size(&socket, bytes).expect("a socket");
        connect(&socket, &address).unwrap_or_else(|error| panic!("connect to {address}: {error}"));
        Self::on(socket.into())
    }

    fn on(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(LIMIT)).expect("a read limit");
        stream.set_write_timeout(Some(LIMIT)).expect("a write limit");
        stream.set_nodelay(true).expect("no delay");
        Self { reader: Reader::new(stream) }
    }

    fn stream(&self) -> &TcpStream {
        self.reader.input()
    }

    /// Sends bytes. A peer that has closed already is not an error here: the answer, or its
    /// absence, tells.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let _ = self.stream().write_all(bytes.as_ref());
        self
    }

    /// Sends a request with `Host`, the given fields, and a body if it is not empty.
    pub fn request(
        &mut self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> &mut Self {
        let host = target
            .strip_prefix("http://")
            .and_then(|rest| rest.split('/').next())
            .unwrap_or("site.test");
        let mut head = format!("{method} {target} HTTP/1.1\r\n");
        if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head += &format!("Host: {host}\r\n");
        }
        for (name, value) in fields {
            head += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        self.send(format!("{head}\r\n")).send(body)
    }

    /// Ends the sending side and keeps reading.
    pub fn half_close(&mut self) -> &mut Self {
        self.stream().shutdown(Shutdown::Write).expect("a connection to half-close");
        self
    }

    /// The answer to a request other than HEAD and CONNECT.
    ///
    /// # Panics
    /// If none comes in time or the connection ends before its head.
    #[track_caller]
    pub fn response(&mut self) -> Response {
        self.response_to("GET")
    }

    /// The answer to a request of this method.
    ///
    /// # Panics
    /// If none comes in time or the connection ends before its head.
    #[track_caller]
    pub fn response_to(&mut self, method: &str) -> Response {
        self.try_response_to(method).expect("an answer, but the connection was closed")
    }

    /// The answer, or `None` if the connection is closed instead.
    ///
    /// # Panics
    /// If neither happens in time.
    #[track_caller]
    pub fn try_response_to(&mut self, method: &str) -> Option<Response> {
        let mut interim = Vec::new();
        let head = loop {
            let head = self
                .reader
                .head()
                .unwrap_or_else(|error| panic!("waiting for an answer: {error}"))?;
            let status: u16 = head.word(1).parse().unwrap_or(0);
            if (100..200).contains(&status) && status != 101 {
                interim.push(head);
            } else {
                break head;
            }
        };
        let status = head.word(1);
        let has_none = method == "HEAD"
            || matches!(status, "204" | "304" | "101")
            || (method == "CONNECT" && status.starts_with('2'));
        let is_chunked = head
            .field("Transfer-Encoding")
            .is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
        let length = head.field("Content-Length").and_then(|value| value.parse().ok());
        let body = match length {
            _ if has_none => self.reader.sized_body(0),
            _ if is_chunked => self.reader.chunked_body(),
            Some(length) => self.reader.sized_body(length),
            None => self.reader.rest(),
        };
        let body = body.unwrap_or_else(|error| panic!("reading the body of {head:?}: {error}"));
        let (bytes, trailers) = (body.bytes, body.trailers);
        Some(Response { head, body: bytes, trailers, is_complete: body.is_complete, interim })
    }

    /// The next head alone, so that a test can watch the body come in pieces with
    /// [`Client::bytes`].
    ///
    /// # Panics
    /// If none comes in time.
    #[track_caller]
    pub fn head(&mut self) -> Head {
        let head = self.reader.head().unwrap_or_else(|error| panic!("waiting for a head: {error}"));
        head.expect("a head, but the connection was closed")
    }

    /// Exactly `len` bytes.
    ///
    /// # Panics
    /// If they do not come in time.
    #[track_caller]
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let bytes = self
            .reader
            .exactly(len)
            .unwrap_or_else(|error| panic!("waiting for {len} bytes: {error}"));
        assert_eq!(
            bytes.len(),
            len,
            "the connection ended early: {:?}",
            String::from_utf8_lossy(&bytes)
        );
        bytes
    }

    /// All that comes until the peer closes or resets the connection.
    ///
    /// # Panics
    /// If the connection is still open after [`LIMIT`].
    #[track_caller]
    pub fn rest(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            match self.reader.exactly(1) {
                Ok(byte) if byte.is_empty() => return all,
                Ok(byte) => all.extend(byte),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    panic!("the connection is still open after {LIMIT:?}")
                }
                Err(_) => return all,
            }
        }
    }

    /// Whether unread bytes have arrived, or the peer has closed. Does not wait.
    ///
    /// # Panics
    /// If the socket cannot be asked.
    #[must_use]
    pub fn has_input(&self) -> bool {
        self.stream().set_nonblocking(true).expect("a socket");
        let result = self.stream().peek(&mut [0]);
        self.stream().set_nonblocking(false).expect("a socket");
        !matches!(result, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Waits for the peer to close, and returns whether it did so without sending anything more.
    ///
    /// # Panics
    /// If the connection is still open after [`LIMIT`].
    #[track_caller]
    pub fn closes(&mut self) -> bool {
        match self.reader.rest() {
            Ok(body) => body.bytes.is_empty(),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("the connection is still open after {LIMIT:?}")
            }
            Err(_) => true,
        }
    }

    /// Ends the connection with a reset, as a program that crashes may.
    ///
    /// # Panics
    /// If the socket cannot be told so.
    pub fn reset(self) {
        set_socket_linger(self.stream(), Some(Duration::ZERO)).expect("a socket");
    }

    /// Sends at most `most` bytes, as many as the sockets take now, and returns their number.
    ///
    /// # Panics
    /// If the socket cannot be asked.
    pub fn stuff(&mut self, most: usize) -> usize {
        let (piece, mut sent) = (vec![b'x'; 64 * 1024], 0);
        self.stream().set_write_timeout(Some(Duration::from_millis(50))).expect("a write limit");
        while sent < most
            && let Ok(n) = self.stream().write(&piece[..piece.len().min(most - sent)])
        {
            sent += n;
        }
        self.stream().set_write_timeout(Some(LIMIT)).expect("a write limit");
        sent
    }

    /// Stops reading and writing at once, with a reset if data is unread.
    pub fn abort(self) {
        drop(self);
    }
}
