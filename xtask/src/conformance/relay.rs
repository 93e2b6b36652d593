//! Makes a forward proxy look like the server it stands before: the suite's client asks for `/path`
//! and the proxy is asked for `http://server/path`, with the server's name as Host. Nothing else is
//! touched, in either direction.

use crate::Outcome;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest head of a request; the suite's have a few hundred bytes.
const HEAD_BYTES_MAX: u64 = 1 << 20;

/// Takes connections until it is dropped. Open ones then end with their clients.
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl Relay {
    pub(super) fn start(proxy: SocketAddr, server: SocketAddr) -> Outcome<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let relay = Self { address: listener.local_addr()?, is_over: Arc::default() };
        let is_over = Arc::clone(&relay.is_over);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                // A client or a proxy that goes away in the middle is the suite's to judge, not
                // ours.
                std::thread::spawn(move || {
                    client.and_then(|client| connection(&client, proxy, server))
                });
            }
        });
        Ok(relay)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

fn connection(client: &TcpStream, proxy: SocketAddr, server: SocketAddr) -> io::Result<()> {
    let upstream = TcpStream::connect(proxy)?;
    // Small messages in lock step: waiting for more to send would only cost time.
    client.set_nodelay(true)?;
    upstream.set_nodelay(true)?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = io::copy(&mut &upstream, &mut &*client);
            let _ = client.shutdown(Shutdown::Write);
        });
        let mut from_client = BufReader::new(client);
        let outcome = requests(&mut from_client, &mut &upstream, server);
        // Closed with bytes unread, the connection would be reset, and the client might lose an
        // answer that it has.
        let _ = io::copy(&mut from_client, &mut io::sink());
        let _ = upstream.shutdown(Shutdown::Both);
        outcome
    })
}

/// Passes on one request after the other until the client has no more.
fn requests(
    client: &mut impl BufRead,
    proxy: &mut impl Write,
    server: SocketAddr,
) -> io::Result<()> {
    while let Some((mut request, body_bytes)) = head(client, server)? {
        // In one piece, as it came: a server that answers a head at once would not wait for the
        // body.
        client.take(body_bytes).read_to_end(&mut request)?;
        proxy.write_all(&request)?;
    }
    Ok(())
}

/// The head of the next request as the proxy is to see it, and the length of its body.
fn head(client: &mut impl BufRead, server: SocketAddr) -> io::Result<Option<(Vec<u8>, u64)>> {
    let mut head = Vec::new();
    let mut body_bytes = 0;
    let mut limited = client.take(HEAD_BYTES_MAX);
    loop {
        let mut line = Vec::new();
        limited.read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            return if head.is_empty() {
                Ok(None)
            } else {
                Err(io::ErrorKind::UnexpectedEof.into())
            };
        }
        let name_bytes = line.iter().position(|byte| *byte == b':').unwrap_or(0);
        let name = line[..name_bytes].to_ascii_lowercase();
        if head.is_empty() {
            absolute(&line, server, &mut head);
        } else if name == b"host" {
            head.extend_from_slice(format!("host: {server}\r\n").as_bytes());
        } else {
            head.extend_from_slice(&line);
        }
        match &name[..] {
            b"content-length" => body_bytes = number(&line[name_bytes + 1..])?,
            // The suite's client sends none; passed on as a body of no bytes, it would hang.
            b"transfer-encoding" => return Err(io::ErrorKind::Unsupported.into()),
            _ => {}
        }
        if line == b"\r\n" {
            return Ok(Some((head, body_bytes)));
        }
    }
}

/// `GET /path HTTP/1.1` becomes `GET http://server/path HTTP/1.1`.
fn absolute(line: &[u8], server: SocketAddr, head: &mut Vec<u8>) {
    let method_bytes = line.iter().position(|byte| *byte == b' ').map_or(0, |blank| blank + 1);
    head.extend_from_slice(&line[..method_bytes]);
    head.extend_from_slice(format!("http://{server}").as_bytes());
    head.extend_from_slice(&line[method_bytes..]);
}

fn number(text: &[u8]) -> io::Result<u64> {
    let text = std::str::from_utf8(text).ok().and_then(|text| text.trim().parse().ok());
    text.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "127.0.0.1:8000";

    fn passed_on(sent: &str) -> io::Result<String> {
        let mut out = Vec::new();
        requests(&mut sent.as_bytes(), &mut out, SERVER.parse().unwrap())?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn target_and_host_become_the_servers_and_nothing_else_changes() {
        let sent = "PUT /config/1 HTTP/1.1\r\nhost: relay:1\r\nX-A:  b \r\ncontent-length: 9\r\n\r\nHost: b\r\n\
                    GET /a?b HTTP/1.1\r\nHost: relay:1\r\n\r\n";
        let expected = "PUT http://127.0.0.1:8000/config/1 HTTP/1.1\r\nhost: 127.0.0.1:8000\r\nX-A:  b \r\n\
                        content-length: 9\r\n\r\nHost: b\r\n\
                        GET http://127.0.0.1:8000/a?b HTTP/1.1\r\nhost: 127.0.0.1:8000\r\n\r\n";
        assert_eq!(passed_on(sent).unwrap(), expected);
    }

    #[test]
    fn a_request_that_stops_in_its_head_is_an_error_and_the_end_is_none() {
        assert_eq!(passed_on("").unwrap(), "");
        assert!(passed_on("GET /a HTTP/1.1\r\nHost: a\r\n").is_err());
        assert!(passed_on("POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    }

    #[test]
    fn a_connection_is_relayed_in_both_directions() {
        let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay::start(proxy.local_addr().unwrap(), SERVER.parse().unwrap()).unwrap();
        let mut client = TcpStream::connect(relay.address).unwrap();
        client.write_all(b"GET /a HTTP/1.1\r\nhost: b\r\n\r\n").unwrap();
        let (mut upstream, _) = proxy.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&upstream).read_line(&mut line).unwrap();
        assert_eq!(line, "GET http://127.0.0.1:8000/a HTTP/1.1\r\n");
        upstream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        drop(upstream);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "HTTP/1.1 204 No Content\r\n\r\n");
    }
}
