//! A scriptable origin server: a real TCP server whose every answer the test decides.

use crate::message::{Body, Head, Reader};
use crate::wait::{LIMIT, start, until};
use std::collections::HashMap;
use std::io::{Result, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

/// A request as the origin received it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Request line and fields.
    pub head: Head,
    /// The payload.
    pub body: Body,
}

impl Request {
    /// GET, POST and so on.
    #[must_use]
    pub fn method(&self) -> &str {
        self.head.word(0)
    }

    /// The request target as it was sent.
    #[must_use]
    pub fn target(&self) -> &str {
        self.head.word(1)
    }

    /// The first field of that name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }
}

/// One canned answer.
#[derive(Clone)]
pub struct Reply {
    status: String,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    raw: Option<Vec<u8>>,
}

impl Reply {
    /// 200 with a body.
    #[must_use]
    pub fn ok(body: impl AsRef<[u8]>) -> Self {
        Self::status("200 OK", body)
    }

    /// Any status, such as `404 Not Found`, with a body.
    #[must_use]
    pub fn status(status: &str, body: impl AsRef<[u8]>) -> Self {
        Self {
            status: status.to_owned(),
            fields: Vec::new(),
            body: body.as_ref().to_vec(),
            raw: None,
        }
    }

    /// These bytes and then a closed connection, whatever they mean.
    #[must_use]
    pub fn raw(bytes: impl AsRef<[u8]>) -> Self {
        Self { raw: Some(bytes.as_ref().to_vec()), ..Self::ok("") }
    }

    /// With one more field.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// An answer that may be stored and is fresh for `max_age_s`.
    #[must_use]
    pub fn cachable(self, max_age_s: u32) -> Self {
        self.with("Cache-Control", &format!("max-age={max_age_s}"))
    }

    /// The answer's bytes: with Date, and Content-Length unless the status has no body. A request
    /// whose If-None-Match names this answer's ETag gets 304.
    fn bytes(&self, request: &Request) -> Vec<u8> {
        let etag = self
            .fields
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("etag"))
            .map(|(_, value)| value.as_str());
        let is_unchanged = etag.is_some() && request.field("If-None-Match") == etag;
        let status = if is_unchanged { "304 Not Modified" } else { &self.status };
        let mut text = format!("HTTP/1.1 {status}\r\n");
        let has_date = self.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("date"));
        if !has_date {
            text += &format!("Date: {}\r\n", http_date(0));
        }
        for (name, value) in &self.fields {
            text += &format!("{name}: {value}\r\n");
        }
        let has_no_body = ["1", "204", "304"].iter().any(|prefix| status.starts_with(prefix));
        if !has_no_body {
            text += &format!("Content-Length: {}\r\n", self.body.len());
        }
        let mut bytes = (text + "\r\n").into_bytes();
        if !has_no_body && request.method() != "HEAD" {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

/// The connection to which a handler writes its answer.
pub struct Wire {
    stream: TcpStream,
    /// The reader that has taken the request, for tunnels and for bodies that a handler reads
    /// itself.
    pub reader: Reader<TcpStream>,
}

impl Wire {
    /// Sends bytes; a client that has gone is not the origin's trouble.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Sends bytes, and returns whether the client still takes them.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Closes both directions.
    pub fn close(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Answers a request by hand. It is called with the head alone, before any body is read.
pub type Handler = dyn Fn(&Head, &mut Wire) + Send + Sync;

#[derive(Clone)]
enum Script {
    /// In this order; the last one again and again.
    Replies(Vec<Reply>),
    Handler(Arc<Handler>),
}

#[derive(Default)]
struct State {
    scripts: HashMap<String, Script>,
    requests: Vec<Request>,
    /// Received bytes of every connection, also of those that sent no whole request.
    received: Vec<Vec<u8>>,
}

struct Shared {
    state: Mutex<State>,
    connections: AtomicUsize,
    stopping: AtomicBool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The server; dropping it stops it from accepting.
pub struct Origin {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Default for Origin {
    fn default() -> Self {
        Self::new()
    }
}

impl Origin {
    /// Listens on a free port of 127.0.0.1.
    #[must_use]
    pub fn new() -> Self {
        Self::at_address("127.0.0.1:0")
    }

    /// Listens on a given address.
    ///
    /// # Panics
    /// If that is not possible.
    #[must_use]
    pub fn at_address(address: &str) -> Self {
        Self::on_listener(
            TcpListener::bind(address)
                .unwrap_or_else(|error| panic!("origin at {address}: {error}")),
        )
    }

    /// Answers connections of a socket that listens already.
    ///
    /// # Panics
    /// If the socket has no address.
    #[must_use]
    pub fn on_listener(listener: TcpListener) -> Self {
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            connections: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                if accepting.stopping.load(Ordering::Relaxed) {
                    break;
                }
                accepting.connections.fetch_add(1, Ordering::Relaxed);
                let shared = Arc::clone(&accepting);
                std::thread::spawn(move || serve(&shared, stream));
            }
        });
        Self { address, shared }
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The absolute URL of a path here.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Answers a path with one reply from now on.
    pub fn on(&self, path: &str, reply: Reply) {
        self.on_each(path, vec![reply]);
    }

    /// Answers a path with these replies in turn; the last one is repeated.
    pub fn on_each(&self, path: &str, replies: Vec<Reply>) {
        self.shared.state().scripts.insert(path.to_owned(), Script::Replies(replies));
    }

    /// Answers a path by hand; the connection is closed when the handler returns.
    pub fn handle(&self, path: &str, handler: impl Fn(&Head, &mut Wire) + Send + Sync + 'static) {
        self.shared.state().scripts.insert(path.to_owned(), Script::Handler(Arc::new(handler)));
    }

    /// The requests for a path, in order.
    #[must_use]
    pub fn requests(&self, path: &str) -> Vec<Request> {
        let state = self.shared.state();
        state.requests.iter().filter(|request| path_of(request.target()) == path).cloned().collect()
    }

    /// Number of requests for a path.
    #[must_use]
    pub fn count(&self, path: &str) -> usize {
        self.requests(path).len()
    }

    /// The last request for a path.
    ///
    /// # Panics
    /// If there was none.
    #[must_use]
    #[track_caller]
    pub fn last(&self, path: &str) -> Request {
        self.requests(path).pop().unwrap_or_else(|| panic!("the origin was never asked for {path}"))
    }

    /// Waits until a path was asked for so often.
    ///
    /// # Panics
    /// After [`LIMIT`].
    pub fn wait_for(&self, path: &str, count: usize) {
        until(&format!("request {count} for {path} at the origin"), || {
            (self.count(path) >= count).then_some(())
        });
    }

    /// Number of accepted connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Whether any byte has arrived that belongs to something other than a complete request.
    #[must_use]
    pub fn received(&self) -> Vec<u8> {
        self.shared.state().received.concat()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address); // wakes the accepting thread
    }
}

/// Targets come in origin form from a proxy and in absolute form from a client of a peer.
fn path_of(target: &str) -> &str {
    let rest = target.strip_prefix("http://").unwrap_or(target);
    if rest.len() == target.len() { target } else { rest.find('/').map_or("/", |at| &rest[at..]) }
}

fn serve(shared: &Shared, stream: TcpStream) {
    let slot = {
        let mut state = shared.state();
        state.received.push(Vec::new());
        state.received.len() - 1
    };
    let Ok(reading) = stream.try_clone() else { return };
    let _ = stream.set_nodelay(true);
    // Longer than a client waits: a proxy may keep its connection between two requests of one test.
    let _ = reading.set_read_timeout(Some(3 * LIMIT));
    let mut wire = Wire { stream, reader: Reader::new(reading) };
    loop {
        let goes_on = exchange(shared, &mut wire).unwrap_or(false);
        shared.state().received[slot] = wire.reader.received().to_vec();
        if !goes_on {
            break;
        }
    }
    wire.close();
}

/// One request and its answer; false if the connection is over.
fn exchange(shared: &Shared, wire: &mut Wire) -> Result<bool> {
    let Some(head) = wire.reader.head()? else { return Ok(false) };
    let path = path_of(head.word(1)).to_owned();
    let script = shared.state().scripts.get(&path).cloned();
    if let Some(Script::Handler(handler)) = script {
        shared.state().requests.push(Request { head: head.clone(), body: Body::default() });
        handler(&head, wire);
        return Ok(false);
    }
    if head.field("Expect").is_some() {
        wire.send("HTTP/1.1 100 Continue\r\n\r\n");
    }
    let body = read_body(&head, &mut wire.reader)?;
    if !body.is_complete {
        return Ok(false);
    }
    let request = Request { head, body };
    let replies = match script {
        Some(Script::Replies(replies)) => replies,
        _ => vec![Reply::status("404 Not Found", "no such page")],
    };
    let earlier = {
        let mut state = shared.state();
        let earlier =
            state.requests.iter().filter(|earlier| path_of(earlier.target()) == path).count();
        state.requests.push(request.clone());
        earlier
    };
    let Some(reply) = replies.get(earlier.min(replies.len().saturating_sub(1))) else {
        return Ok(false);
    };
    wire.send(reply.raw.clone().unwrap_or_else(|| reply.bytes(&request)));
    let closes =
        request.field("Connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    Ok(reply.raw.is_none() && !closes)
}

/// The body of a request, by its framing.
///
/// # Errors
/// Those of the socket, and chunk sizes that are no numbers.
pub fn read_body(head: &Head, reader: &mut Reader<TcpStream>) -> Result<Body> {
    if head.field("Transfer-Encoding").is_some() {
        return reader.chunked_body();
    }
    reader
        .sized_body(head.field("Content-Length").and_then(|value| value.parse().ok()).unwrap_or(0))
}

/// The date in the standard's format, `offset_s` seconds from now.
///
/// # Panics
/// If the `date` program is missing.
#[must_use]
pub fn http_date(offset_s: i64) -> String {
    let now_s =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs().cast_signed());
    let mut date = Command::new("date");
    date.env("LC_ALL", "C").args([
        "-u",
        "-d",
        &format!("@{}", now_s + offset_s),
        "+%a, %d %b %Y %H:%M:%S GMT",
    ]);
    let output = start(date.stdout(Stdio::piped()))
        .and_then(Child::wait_with_output)
        .expect("the date program");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
