//! The report in a browser while the run goes on: a server of its own, small, on the loopback by
//! default.

use crate::ReportError;
use crate::document::Document;
use crate::run_page;
use humboldt_lab_record::Run;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Browsers that are answered at the same time; further ones are turned away.
const CONNECTIONS_MAX: usize = 8;
/// A longer request head is not a browser's.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// A browser that takes longer for its request or for the answer is cut off.
const PATIENCE: Duration = Duration::from_secs(5);

/// The shown document, and the number of its state.
#[derive(Debug, Default)]
struct Shown {
    version: u64,
    title: String,
    main: Arc<str>,
}

#[derive(Debug, Default)]
struct Shared {
    shown: Mutex<Shown>,
    stop: AtomicBool,
    connections: AtomicUsize,
}

impl Shared {
    fn shown(&self) -> std::sync::MutexGuard<'_, Shown> {
        // The state is replaced as a whole, so that of a thread that panicked is as good as any.
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The report in a browser, growing while the run goes on. Dropping it ends the server.
#[derive(Debug)]
pub struct LivePage {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: Option<JoinHandle<()>>,
}

impl LivePage {
    /// Serves the page at this address; port 0 takes any that is free. Everybody who can reach the
    /// address can read the page, configuration files included: use the loopback on a shared
    /// machine.
    ///
    /// # Errors
    /// If the address is in use, not of this machine, or not allowed.
    pub fn serve(address: SocketAddr) -> Result<Self, ReportError> {
        let failed = |error| ReportError::Serve { address, error };
        let listener = TcpListener::bind(address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared::default());
        "Waiting for the first sample".clone_into(&mut shared.shown().title);
        shared.shown().main = "<p class=\"lead\">Waiting for the first sample …</p>".into();
        let of_server = Arc::clone(&shared);
        let server = thread::Builder::new()
            .name("live page".to_owned())
            .spawn(move || accept(&listener, &of_server));
        Ok(Self { address, shared, server: Some(server.map_err(failed)?) })
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Shows this state of the run from now on. The page is drawn here, in the caller's thread.
    pub fn update(&self, run: &Run) {
        let document = run_page::document(run);
        let main: Arc<str> = document.main_html().into();
        let mut shown = self.shared.shown();
        *shown = Shown { version: shown.version + 1, title: document.title, main };
    }
}

impl Drop for LivePage {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // Wakes the server from its accept.
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        let woken = TcpStream::connect_timeout(&SocketAddr::new(ip, self.address.port()), PATIENCE);
        if let (Ok(_), Some(server)) = (woken, self.server.take()) {
            // It ends with a panic at worst, and then there is nothing left to end.
            let _ = server.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // No descriptors, for instance: it may pass.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if shared.connections.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            shared.connections.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let of_thread = Arc::clone(shared);
        let answering = thread::Builder::new().name("live answer".to_owned()).spawn(move || {
            // A browser that went away needs no answer.
            let _ = converse(stream, &of_thread);
            of_thread.connections.fetch_sub(1, Ordering::AcqRel);
        });
        if answering.is_err() {
            shared.connections.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Reads one request and answers it.
fn converse(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let mut part = [0; 2048];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || request.len() >= REQUEST_BYTES_MAX {
            return write_answer(
                &mut stream,
                "400 Bad Request",
                "",
                "not a request\n",
                "text/plain",
            );
        }
        stream.set_read_timeout(Some(left))?;
        let length = stream.read(&mut part)?;
        if length == 0 {
            return Ok(());
        }
        request.extend_from_slice(part.get(..length).unwrap_or_default());
    }
    respond(&mut stream, &String::from_utf8_lossy(&request), shared)
}

fn respond(stream: &mut TcpStream, request: &str, shared: &Shared) -> io::Result<()> {
    let mut lines = request.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if method != "GET" {
        return write_answer(
            stream,
            "405 Method Not Allowed",
            "Allow: GET\r\n",
            "only GET\n",
            "text/plain",
        );
    }
    let (version, title, main) = {
        let shown = shared.shown();
        (shown.version, shown.title.clone(), Arc::clone(&shown.main))
    };
    // Runs that follow each other on one address have different tags: their pages differ in length
    // or version.
    let tag = format!("\"{version}-{}\"", main.len());
    let known = lines
        .filter_map(|line| line.split_once(':'))
        .any(|(name, value)| name.eq_ignore_ascii_case("if-none-match") && value.trim() == tag);
    let etag = format!("ETag: {tag}\r\n");
    match path {
        "/main" if known => write_answer(stream, "304 Not Modified", &etag, "", "text/html"),
        "/main" => write_answer(stream, "200 OK", &etag, &main, "text/html"),
        "/" => write_answer(stream, "200 OK", "", &Document::live_html(&title, &main), "text/html"),
        _ => write_answer(stream, "404 Not Found", "", "only / is here\n", "text/plain"),
    }
}

fn write_answer(
    stream: &mut TcpStream,
    status: &str,
    more: &str,
    body: &str,
    kind: &str,
) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nContent-Security-Policy: default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'\r\n{more}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_page, synthetic};

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE * 2)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn page() -> LivePage {
        LivePage::serve((Ipv4Addr::LOCALHOST, 0).into()).unwrap()
    }

    #[test]
    fn the_page_grows() {
        let live = page();
        let first = ask(live.address(), "GET / HTTP/1.1\r\n\r\n");
        assert!(first.contains("Waiting for the first sample"), "{first}");
        live.update(&synthetic("squid:aufs", 100.0, 5));
        let main = ask(live.address(), "GET /main HTTP/1.1\r\n\r\n");
        assert!(main.starts_with("HTTP/1.1 200") && main.contains("squid:aufs"), "{main}");
        let tag = main.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap();
        let again =
            ask(live.address(), &format!("GET /main HTTP/1.1\r\nif-none-match: {tag}\r\n\r\n"));
        assert!(again.starts_with("HTTP/1.1 304") && again.ends_with("\r\n\r\n"), "{again}");
        live.update(&synthetic("squid:aufs", 100.0, 6));
        let news =
            ask(live.address(), &format!("GET /main HTTP/1.1\r\nIf-None-Match: {tag}\r\n\r\n"));
        assert!(news.starts_with("HTTP/1.1 200"), "{news}");
        let whole = ask(live.address(), "GET / HTTP/1.1\r\n\r\n");
        assert_page(whole.split_once("\r\n\r\n").unwrap().1);
    }

    #[test]
    fn strange_requests_are_refused_and_bounded() {
        let live = page();
        assert!(ask(live.address(), "POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(
            ask(live.address(), "GET /etc/passwd HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404")
        );
        let endless = "x".repeat(REQUEST_BYTES_MAX);
        assert!(ask(live.address(), &endless).starts_with("HTTP/1.1 400"));
        let silent: Vec<TcpStream> =
            (0..CONNECTIONS_MAX).map(|_| TcpStream::connect(live.address()).unwrap()).collect();
        let mut refused = TcpStream::connect(live.address()).unwrap();
        refused.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(refused.read(&mut [0; 10]).unwrap_or(0), 0);
        drop(silent);
    }

    #[test]
    fn an_address_in_use_is_one_clear_line_and_a_dropped_page_frees_it() {
        let live = page();
        let address = live.address();
        let error = LivePage::serve(address).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("{address}: the live page cannot be served there: ")),
            "{error}"
        );
        assert!(
            error.ends_with("choose another address or port") && !error.contains('\n'),
            "{error}"
        );
        drop(live);
        assert!(TcpStream::connect(address).is_err());
    }
}
