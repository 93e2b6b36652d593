//! A client that waits for each of its answers: for memory of held connections, and for the moment
//! of a first hit.

use crate::Outcome;
use humboldt_lab_wire::response_head;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A server that takes longer is broken, not slow.
const REPLY_LIMIT: Duration = Duration::from_secs(20);

/// A client connection that is kept between requests.
pub(super) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(super) fn connect(address: SocketAddr) -> Outcome<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_LIMIT))?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// Asks a forward proxy and reads the whole answer; returns status and body length.
    pub(super) fn get(&mut self, url: &str, host: SocketAddr) -> Outcome<(u16, usize)> {
        let request = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        self.stream.write_all(request.as_bytes())?;
        self.buffer.clear();
        let mut chunk = [0; 65_536];
        let (status, length, mut got) = loop {
            if let Some(head) = response_head(&self.buffer)? {
                let got = self.buffer.len() - head.len_bytes();
                break (head.status(), head.content_length(), got);
            }
            let len = read(&mut self.stream, &mut chunk)?;
            if len == 0 {
                return Err(format!("closed before an answer to {url}").into());
            }
            self.buffer.extend_from_slice(&chunk[..len]);
        };
        let length = usize::try_from(length.ok_or("an answer without Content-Length")?)?;
        while got < length {
            match read(&mut self.stream, &mut chunk)? {
                0 => return Err(format!("{url} ended after {got} of {length} bytes").into()),
                len => got += len,
            }
        }
        Ok((status, length))
    }

    /// Whether the last answer was a hit by its `X-Cache`.
    pub(super) fn is_hit(&self) -> bool {
        let head = response_head(&self.buffer).ok().flatten();
        let cache = head.and_then(|head| head.header("x-cache"));
        cache.is_some_and(|value| value.to_ascii_lowercase().starts_with(b"hit"))
    }
}

/// One read, begun again when a signal interrupts it.
fn read(stream: &mut TcpStream, chunk: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match stream.read(chunk) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
