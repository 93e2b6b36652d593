//! A server that sends whatever bytes it is told to, and else its own right answer to each path.

use humboldt_tests::message::{Head, Reader};
use humboldt_tests::origin::read_body;
use humboldt_tests::wait::LIMIT;
use std::collections::HashMap;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

/// The event after the bytes of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The connection stays open, and the next request gets its answer on it.
    Keep,
    /// The connection is closed.
    Close,
    /// The connection is reset.
    Reset,
}

/// The server's reaction to one request.
#[derive(Clone)]
pub(crate) struct Act {
    /// Sent as they are.
    pub(crate) bytes: Vec<u8>,
    /// The event after them.
    pub(crate) end: End,
    /// The answer does not wait for the request's body.
    pub(crate) is_early: bool,
}

impl Act {
    /// Bytes as the answer to a request.
    pub(crate) fn new(bytes: impl AsRef<[u8]>, end: End) -> Self {
        Self { bytes: bytes.as_ref().to_vec(), end, is_early: false }
    }
}

/// A request as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Request line and fields.
    pub(crate) head: Head,
    /// On which connection, counted from 0.
    pub(crate) connection: usize,
}

#[derive(Default)]
struct State {
    acts: HashMap<String, Vec<Act>>,
    seen: Vec<Seen>,
    connections: usize,
}

/// The server. Its accepting thread ends with the test's process.
pub(crate) struct Hostile {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The body of a path's right answer.
pub(crate) fn right(path: &str) -> String {
    format!("the right answer for {path}")
}

impl Hostile {
    /// Listens on a free port of 127.0.0.1.
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let state = Arc::new(Mutex::new(State::default()));
        let accepting = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                let state = Arc::clone(&accepting);
                std::thread::spawn(move || serve(&state, stream));
            }
        });
        Self { address, state }
    }

    /// Its address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The absolute URL of a path here.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Does this once for the next request of a path; later ones get the right answer.
    pub(crate) fn once(&self, path: &str, act: Act) {
        lock(&self.state).acts.entry(path.to_owned()).or_default().push(act);
    }

    /// The requests for a path.
    pub(crate) fn seen(&self, path: &str) -> Vec<Seen> {
        lock(&self.state).seen.iter().filter(|seen| seen.head.word(1) == path).cloned().collect()
    }
}

fn serve(state: &Mutex<State>, mut stream: TcpStream) {
    let connection = {
        let mut state = lock(state);
        state.connections += 1;
        state.connections - 1
    };
    let Ok(reading) = stream.try_clone() else { return };
    let _ = stream.set_nodelay(true);
    let _ = reading.set_read_timeout(Some(3 * LIMIT));
    let mut reader = Reader::new(reading);
    while let Ok(Some(head)) = reader.head() {
        let path = head.word(1).to_owned();
        let act = {
            let mut state = lock(state);
            state.seen.push(Seen { head: head.clone(), connection });
            state.acts.get_mut(&path).filter(|acts| !acts.is_empty()).map(|acts| acts.remove(0))
        };
        let is_early = act.as_ref().is_some_and(|act| act.is_early);
        if !is_early && !read_body(&head, &mut reader).is_ok_and(|body| body.is_complete) {
            break;
        }
        let act = act.unwrap_or_else(|| good(&path, head.word(0)));
        if stream.write_all(&act.bytes).is_err() {
            break;
        }
        match act.end {
            End::Keep if is_early => {
                let _ = read_body(&head, &mut reader);
            }
            End::Keep => {}
            End::Close => break,
            End::Reset => {
                // Only an unread byte makes a close a reset with nothing but the standard library.
                reset(&stream);
                return;
            }
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// The next close of the connection is a reset.
fn reset(stream: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(std::time::Duration::ZERO));
}

fn good(path: &str, method: &str) -> Act {
    let body = right(path);
    let text = format!(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    Act::new(if method == "HEAD" { text } else { text + &body }, End::Keep)
}
