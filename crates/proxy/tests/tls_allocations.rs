//! A hit from memory over TLS allocates nothing but what the library does: a buffer for each record
//! that is sent.
//!
//! Counted on the thread of a core, beside a bare server of the library that exchanges the same
//! bytes with the same client, which has a thread of its own.

use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use humboldt_conf::Config;
use humboldt_exchange::memory;
use humboldt_http::h1::parse_response;
use humboldt_http::{HeadLimits, ResponseHead};
use humboldt_net::dns::NameCache;
use humboldt_proxy::core::Core;
use humboldt_proxy::serve_connection;
use humboldt_proxy::shared::Shared;
use humboldt_proxy::snapshot::Snapshot;
use humboldt_store::{Cache, CacheSettings, NoEvents};
use humboldt_tls::{OnDisk, ServerSide};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

/// Hits that are counted, and as many before them.
const HITS: usize = 200;

/// Bodies of one record and of two.
const SIZES_BYTES: [usize; 2] = [1 << 10, 20 << 10];

/// A configuration with a port that has TLS, and clients for it.
fn secured(folder: &tempfile::TempDir) -> (Config, Arc<ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).expect("a certificate");
    let file = folder.path().join("own.pem");
    std::fs::write(&file, made.cert.pem() + &made.signing_key.serialize_pem()).expect("a file");
    let text = format!(
        "https_port 3129 tls-cert={} tls-options=NO_TICKET\nhttp_access allow all\n",
        file.display()
    );
    let (config, diagnostics) = humboldt_conf::parse_str("test", &text);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::clone(made.cert.der())).expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    (config, Arc::new(client))
}

/// A client on a thread: it asks as often as it is told, and says when it has all answers, with the
/// length of the last one.
fn client(
    address: SocketAddr,
    config: Arc<ClientConfig>,
    request: String,
    body: usize,
) -> mpsc::Sender<(usize, oneshot::Sender<usize>)> {
    let (orders, received) = mpsc::channel::<(usize, oneshot::Sender<usize>)>();
    thread::spawn(move || {
        let name = ServerName::try_from("a.test").expect("a name");
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_nodelay(true).expect("a socket");
        let session = ClientConnection::new(config, name).expect("a session");
        let mut stream = StreamOwned::new(session, stream);
        let mut buffer = vec![0; 64 << 10];
        for (count, done) in received {
            let mut last = 0;
            for _ in 0..count {
                stream.write_all(request.as_bytes()).expect("sent");
                let mut read_bytes = 0;
                loop {
                    read_bytes += stream.read(&mut buffer[read_bytes..]).expect("an answer");
                    let text = &buffer[..read_bytes];
                    let end = text.windows(4).position(|end| end == b"\r\n\r\n");
                    if end.is_some_and(|at| read_bytes == at + 4 + body) {
                        break;
                    }
                }
                last = read_bytes;
            }
            done.send(last).expect("the test waits");
        }
    });
    orders
}

/// How much this thread allocates for hits, and how long an answer is.
fn of_hits(
    config: &Config,
    client_side: &Arc<ClientConfig>,
    request: &str,
    body: usize,
) -> (u64, usize) {
    let cache = Cache::new(CacheSettings::SMALL, 1, Vec::new(), Arc::new(NoEvents));
    let snapshot = Snapshot::compile(config.clone()).unwrap_or_else(|_| panic!("compiles"));
    let shared = Shared::new(snapshot, Vec::new(), cache, Arc::new(NameCache::new(10)), 1);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = Rc::new(LocalSet::new());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let orders = client(address, Arc::clone(client_side), request.to_owned(), body);
    local.block_on(&runtime, async {
        let core = Core::new(0, Arc::clone(&shared));
        core.use_network(Box::new(move |peer| {
            let (exchange, server) = memory::server(peer);
            tokio::task::spawn_local(async move {
                _ = server.asked().await;
                let head = format!(
                    "HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Length: {body}\r\n\r\n"
                );
                let mut answer = ResponseHead::default();
                let parsed = parse_response(head.as_bytes(), &HeadLimits::default(), &mut answer);
                assert_eq!(parsed, Ok(Some(head.len())));
                server.send_head(answer);
                server.send_body(&vec![b'x'; body]);
                server.end(None);
                server.given_up().await;
            });
            Ok(exchange)
        }));
        let (stream, from) = listener.accept().expect("a connection");
        stream.set_nonblocking(true).expect("a socket");
        let stream = tokio::net::TcpStream::from_std(stream).expect("a stream");
        let port = Arc::new(core.snapshot().config.https_port[0].clone());
        tokio::task::spawn_local(serve_connection(core, stream.into(), from, port));
    });
    let ask = |count| {
        let (done, told) = oneshot::channel();
        orders.send((count, done)).expect("a client");
        local.block_on(&runtime, told).expect("answers")
    };
    ask(HITS);
    let none = allocation_counter::measure(|| _ = ask(0)).count_total;
    let mut bytes = 0;
    let counted = allocation_counter::measure(|| bytes = ask(HITS)).count_total;
    (counted - none, bytes)
}

/// The same for a bare server that sends answers of this length.
fn of_library(
    config: &Arc<ServerConfig>,
    client_side: &Arc<ClientConfig>,
    request: &str,
    body: usize,
    answer_bytes: usize,
) -> u64 {
    let mut head = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
    head.resize(answer_bytes - body - 4, b'x');
    head.extend(b"\r\n\r\n");
    let content = vec![b'x'; body];
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let orders = client(address, Arc::clone(client_side), request.to_owned(), body);
    let (done, _told) = oneshot::channel();
    orders.send((2 * HITS, done)).expect("a client");
    let session = ServerConnection::new(Arc::clone(config)).expect("a session");
    let (stream, _) = listener.accept().expect("a connection");
    stream.set_nodelay(true).expect("a socket");
    let mut stream = StreamOwned::new(session, stream);
    let mut buffer = vec![0; 4096];
    let mut answer = |count| {
        for _ in 0..count {
            let mut read_bytes = 0;
            while !buffer[..read_bytes].ends_with(b"\r\n\r\n") {
                read_bytes += stream.read(&mut buffer[read_bytes..]).expect("a request");
            }
            let parts = [IoSlice::new(&head), IoSlice::new(&content)];
            let sent = stream.conn.writer().write_vectored(&parts).expect("taken");
            assert_eq!(sent, answer_bytes);
            stream.flush().expect("sent");
        }
    };
    answer(HITS);
    allocation_counter::measure(|| answer(HITS)).count_total
}

#[test]
fn a_hit_over_tls_allocates_nothing_but_what_the_library_does() {
    let folder = tempfile::tempdir().expect("a directory");
    let (config, client_side) = secured(&folder);
    let port = config.https_port[0].tls.as_ref().expect("TLS");
    let server = ServerSide::new(port, &OnDisk::default()).expect("settings").config();
    for body in SIZES_BYTES {
        let request = format!("GET http://192.0.2.1/{body} HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n");
        let (hits, answer_bytes) = of_hits(&config, &client_side, &request, body);
        let library = of_library(&server, &client_side, &request, body, answer_bytes);
        assert!(library >= HITS as u64, "the count sees what the library allocates: {library}");
        assert!(hits <= library, "{body} bytes: {hits} allocations, {library} of the library");
    }
}
