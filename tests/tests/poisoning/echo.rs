//! A server whose answers follow from the request by a function, so that an answer shows which
//! request it was made for.

use humboldt_tests::message::{Head, Reader};
use humboldt_tests::origin::read_body;
use humboldt_tests::wait::LIMIT;
use humboldt_tests::{Client, Proxy, Response};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Request line and fields.
    pub(crate) head: Head,
    /// The body.
    pub(crate) body: String,
}

impl Seen {
    /// `method host target`: the request as the server understands it.
    pub(crate) fn identity(&self) -> String {
        let host = self.head.field("Host").unwrap_or("-");
        format!("{} {host} {}", self.head.word(0), self.head.word(1))
    }

    /// All values of a field as one list, as a server reads them.
    pub(crate) fn list(&self, name: &str) -> String {
        self.head.all(name).collect::<Vec<_>>().join(", ")
    }
}

type Answer = dyn Fn(&Seen) -> String + Send + Sync;

/// The server, and a proxy in front.
pub(crate) struct Echo {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// An answer with this status, these field lines and this body, fresh for a minute unless the lines
/// say something else.
pub(crate) fn answer(status: &str, lines: &str, body: &str) -> String {
    let fresh = if lines.contains("Cache-Control") { "" } else { "Cache-Control: max-age=60\r\n" };
    format!("HTTP/1.1 {status}\r\n{fresh}{lines}Content-Length: {}\r\n\r\n{body}", body.len())
}

impl Echo {
    /// Starts a server that answers so. It ends with the test's process.
    pub(crate) fn new(answer: impl Fn(&Seen) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let seen = Arc::new(Mutex::default());
        let (accepting, answer): (_, Arc<Answer>) = (Arc::clone(&seen), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                let (seen, answer) = (Arc::clone(&accepting), Arc::clone(&answer));
                std::thread::spawn(move || serve(&seen, &*answer, stream));
            }
        });
        Self { address, seen }
    }

    /// A server that reports the request's host and target, in an answer that is fresh for a
    /// minute.
    pub(crate) fn of_identity() -> Self {
        Self::new(|seen| answer("200 OK", "", &seen.identity()))
    }

    /// Its address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// An accelerator in front, known as `site.test`, with these options of its port.
    pub(crate) fn accelerator(&self, options: &str) -> Proxy {
        let (ip, port) = (self.address.ip(), self.address.port());
        let peer = format!("cache_peer {ip} parent {port} 0 no-query originserver name=origin\n");
        Proxy::start(&format!("accel defaultsite=site.test {options}"), &peer)
    }

    /// All requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The last request.
    pub(crate) fn last(&self) -> Seen {
        self.seen().pop().expect("a request")
    }
}

fn serve(all: &Mutex<Vec<Seen>>, answer: &Answer, mut stream: TcpStream) {
    let Ok(reading) = stream.try_clone() else { return };
    let _ = (stream.set_nodelay(true), reading.set_read_timeout(Some(3 * LIMIT)));
    let mut reader = Reader::new(reading);
    while let Ok(Some(head)) = reader.head() {
        let Ok(body) = read_body(&head, &mut reader) else { return };
        let seen = Seen { head, body: String::from_utf8_lossy(&body.bytes).into_owned() };
        all.lock().unwrap_or_else(PoisonError::into_inner).push(seen.clone());
        let mut text = answer(&seen);
        if seen.head.word(0) == "HEAD" {
            text.truncate(text.find("\r\n\r\n").map_or(text.len(), |end| end + 4));
        }
        if stream.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

/// Sends a head as it is written here (lines are ended, and the head too) and returns the answer.
/// `head` is Latin-1.
pub(crate) fn send(proxy: &Proxy, head: &str) -> Response {
    let text = format!("{}\r\n\r\n", head.replace('\n', "\r\n"));
    let bytes: Vec<u8> = text.chars().map(|c| c as u8).collect();
    let mut client: Client = proxy.client();
    let method = head.split(' ').next().unwrap_or_default();
    client.send(bytes).response_to(method)
}
