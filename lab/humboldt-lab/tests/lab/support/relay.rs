//! A forward proxy that stores nothing and does to every answer what a test wants.

use humboldt_lab_wire::{BodyLength, request_head, response_head};
use humboldt_lab_workload::protocol::REQUEST_ID;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;

/// Threads hold little more than a head and a small body.
const STACK_BYTES: usize = 256 << 10;

/// A request as the proxy gets it.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: String,
    /// Without scheme and server.
    pub(crate) path: String,
    /// Number of the request, as the robots gave it.
    pub(crate) id: String,
}

/// An answer of the origin, to be spoilt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

type Deed = dyn Fn(&Ask, &mut Answer) + Send + Sync;

/// The running proxy. Its threads end when the robots go.
pub(crate) struct Relay {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Relay {
    /// Relays, and lets `deed` delay or change every answer before it is sent.
    pub(crate) fn start(deed: impl Fn(&Ask, &mut Answer) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let stop = Arc::new(AtomicBool::new(false));
        let (is_over, deed): (_, Arc<Deed>) = (Arc::clone(&stop), Arc::new(deed));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let deed = Arc::clone(&deed);
                let serving = Builder::new().stack_size(STACK_BYTES).spawn(move || {
                    // A robot that goes away in the middle is none of our business.
                    let _ = serve(client, deed.as_ref());
                });
                serving.expect("a thread");
            }
        });
        Self { address, stop }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes the listener's thread.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut client: TcpStream, deed: &Deed) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    let mut origin: Option<(String, TcpStream)> = None;
    let mut pending = Vec::new();
    loop {
        let Some((head, body, ask, server)) = read_request(&mut client, &mut pending)? else {
            return Ok(());
        };
        let request = [head, body].concat();
        let (mut answer, keeps) = fetch(&mut origin, &server, &request, &ask.method)?;
        if !keeps {
            origin = None;
        }
        deed(&ask, &mut answer);
        client.write_all(&[answer.head, answer.body].concat())?;
    }
}

type Request = (Vec<u8>, Vec<u8>, Ask, String);

/// The next request, its target changed to what an origin gets, and its server.
fn read_request(client: &mut TcpStream, pending: &mut Vec<u8>) -> std::io::Result<Option<Request>> {
    loop {
        let wrong = |what: &str| std::io::Error::new(ErrorKind::InvalidData, what.to_owned());
        if let Some(head) = request_head(pending).map_err(|_| wrong("no HTTP"))? {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let target = text(head.target());
            let rest = target.strip_prefix("http://").ok_or_else(|| wrong("no forward request"))?;
            let (server, path) = rest.split_once('/').ok_or_else(|| wrong("no path"))?;
            let ask = Ask {
                method: text(head.method()),
                path: format!("/{path}"),
                id: text(head.header(REQUEST_ID).unwrap_or_default()),
            };
            let length_bytes = head.len_bytes();
            let body_bytes = match head.body_length() {
                BodyLength::Length(bytes) => usize::try_from(bytes).expect("small bodies"),
                _ => 0,
            };
            let changed =
                text(&pending[..length_bytes]).replacen(&target, &ask.path, 1).into_bytes();
            while pending.len() < length_bytes + body_bytes {
                if !read_more(client, pending)? {
                    return Ok(None);
                }
            }
            let body = pending[length_bytes..length_bytes + body_bytes].to_vec();
            let server = server.to_owned();
            pending.drain(..length_bytes + body_bytes);
            return Ok(Some((changed, body, ask, server)));
        }
        if !read_more(client, pending)? {
            return Ok(None);
        }
    }
}

/// The origin's answer, and whether its connection can be used again.
fn fetch(
    origin: &mut Option<(String, TcpStream)>,
    server: &str,
    request: &[u8],
    method: &str,
) -> std::io::Result<(Answer, bool)> {
    if let Some((_, stream)) = origin.as_mut().filter(|(of, _)| of == server)
        && let Ok(Some(answer)) = ask(stream, request, method)
    {
        return Ok(answer);
    }
    // None yet, or one that the origin has closed in the meantime.
    let stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    let (_, stream) = origin.insert((server.to_owned(), stream));
    ask(stream, request, method)?.ok_or_else(|| ErrorKind::UnexpectedEof.into())
}

fn ask(
    stream: &mut TcpStream,
    request: &[u8],
    method: &str,
) -> std::io::Result<Option<(Answer, bool)>> {
    stream.write_all(request)?;
    let mut got = Vec::new();
    loop {
        if let Ok(Some(head)) = response_head(&got) {
            let (length_bytes, keeps) = (head.len_bytes(), head.keep_alive());
            let body_bytes = match head.body_length(method.as_bytes()) {
                BodyLength::Length(bytes) => usize::try_from(bytes).expect("small bodies"),
                BodyLength::None => 0,
                other => panic!("the laboratory's origin announces lengths, not {other:?}"),
            };
            while got.len() < length_bytes + body_bytes {
                if !read_more(stream, &mut got)? {
                    return Ok(None);
                }
            }
            let body = got.split_off(length_bytes);
            return Ok(Some((Answer { head: got, body }, keeps)));
        }
        if !read_more(stream, &mut got)? {
            return Ok(None);
        }
    }
}

/// Reads what there is; whether there was anything.
fn read_more(stream: &mut TcpStream, into: &mut Vec<u8>) -> std::io::Result<bool> {
    let mut buffer = [0; 16 << 10];
    let count = stream.read(&mut buffer)?;
    into.extend_from_slice(&buffer[..count]);
    Ok(count > 0)
}
