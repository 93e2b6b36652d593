//! A hit from memory allocates nothing, once its core has its buffers.
//!
//! Counted on the only thread of a core and its client, over real sockets: by the line of
//! access.log too, but not by the thread that writes it.

use std::sync::Arc;
use std::time::Duration;

use humboldt_exchange::memory;
use humboldt_http::h1::parse_response;
use humboldt_http::{HeadLimits, ResponseHead};
use humboldt_logs::access::{AccessFormat, Tag};
use humboldt_logs::{Destination, LineSink, LogService, SinkOptions};
use humboldt_net::dns::NameCache;
use humboldt_proxy::core::Core;
use humboldt_proxy::shared::Shared;
use humboldt_proxy::snapshot::Snapshot;
use humboldt_proxy::{AccessLog, serve_connection};
use humboldt_store::{Cache, CacheSettings, NoEvents};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{LocalOptions, LocalRuntime};

/// Hits that are counted.
const HITS: u64 = 200;

/// Hits that are counted where their lines are longer.
const HITS_IN_JSON: u64 = HITS / 5;

/// Hits before, in which buffers get their usual size.
const WARM_UP_HITS: u64 = HITS;

/// More bytes than the lines of the hits that are counted, and so few that the thread that writes
/// them keeps a buffer of twice the size.
const LINES_BYTES: usize = 150 * HITS as usize;

const SIZES_BYTES: [usize; 2] = [1 << 10, 13 << 10];

fn shared(sink: &Arc<LineSink>, rules: &str, format: &str) -> Arc<Shared> {
    let (config, diagnostics) =
        humboldt_conf::parse_str("test", &format!("http_port 3128\n{rules}"));
    assert!(!diagnostics.has_errors());
    let cache = Cache::new(CacheSettings::SMALL, 1, Vec::new(), Arc::new(NoEvents));
    let snapshot = Snapshot::compile(config).unwrap_or_else(|_| panic!("compiles"));
    let format = AccessFormat::predefined(format).expect("a format");
    let log = AccessLog {
        sink: Some(Arc::clone(sink)),
        format,
        condition: None,
        strip_query_terms: false,
    };
    Shared::new(snapshot, vec![log], cache, Arc::new(NameCache::new(10)), 1)
}

/// A core whose servers answer `GET /123` with 123 bytes, and a connection to it.
async fn connect(shared: &Arc<Shared>) -> TcpStream {
    let core = Core::new(0, Arc::clone(shared));
    core.use_network(Box::new(|peer| {
        let (exchange, server) = memory::server(peer);
        tokio::task::spawn_local(async move {
            let url = String::from_utf8(server.asked().await.url).expect("text");
            let bytes: usize = url.rsplit('/').next().expect("a path").parse().expect("a number");
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nETag: \"1\"\r\n\
                 Cache-Control: max-age=3600\r\nContent-Length: {bytes}\r\n\r\n"
            );
            let mut answer = ResponseHead::default();
            let parsed = parse_response(head.as_bytes(), &HeadLimits::default(), &mut answer);
            assert_eq!(parsed, Ok(Some(head.len())));
            server.send_head(answer);
            server.send_body(&vec![b'x'; bytes]);
            server.end(None);
            server.given_up().await;
        });
        Ok(exchange)
    }));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let client = TcpStream::connect(address).await.expect("a connection");
    let (stream, from) = listener.accept().await.expect("a connection");
    let port = Arc::new(core.snapshot().config.http_port[0].clone());
    tokio::task::spawn_local(serve_connection(core, stream.into(), from, port));
    client
}

/// Asks `count` times for an object, and reads its answers into `buffer`.
async fn ask(client: &mut TcpStream, request: &[u8], body: usize, count: u64, buffer: &mut [u8]) {
    for _ in 0..count {
        client.write_all(request).await.expect("sent");
        let mut read_bytes = 0;
        loop {
            let read = client.read(&mut buffer[read_bytes..]).await.expect("an answer");
            assert_ne!(read, 0, "an early end");
            read_bytes += read;
            let head_end = buffer[..read_bytes].windows(4).position(|end| end == b"\r\n\r\n");
            let answer_bytes = head_end.map(|at| at + 4 + body);
            assert!(answer_bytes.is_none_or(|bytes| read_bytes <= bytes), "too much");
            if answer_bytes == Some(read_bytes) {
                break;
            }
        }
        assert!(buffer.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }
}

/// Gives the buffer of the log's lines its size, and the one that the writing thread puts in its
/// place: how many lines come before that is a matter of time.
fn enlarge_buffers(service: &LogService, sink: &LineSink) {
    assert!(service.flush(Duration::from_secs(60)));
    for _ in 0..2 {
        sink.append(0, |lines| lines.resize(lines.len() + LINES_BYTES, b'-'));
        assert!(service.flush(Duration::from_secs(60)));
    }
}

/// How much is allocated while `count` hits are served.
fn allocations(
    runtime: &LocalRuntime,
    client: &mut TcpStream,
    request: &[u8],
    body: usize,
    count: u64,
) -> u64 {
    let mut buffer = vec![0; 64 << 10];
    let counted = allocation_counter::measure(|| {
        runtime.block_on(ask(client, request, body, count, &mut buffer));
    });
    counted.count_total
}

#[test]
fn a_hit_from_memory_allocates_nothing() {
    count_hits("http_access allow all\n", "", "squid");
}

/// Nor does its line in JSON.
#[test]
fn a_hit_that_is_logged_in_json_allocates_nothing() {
    let fields = "User-Agent: a \"b\" \u{e9}\r\n";
    count_hits_of("http_access allow all\n", fields, "json", HITS_IN_JSON);
}

/// Delay pools are about what servers send.
#[test]
fn a_hit_allocates_nothing_although_there_are_delay_pools() {
    let pools = "delay_pools 1\ndelay_class 1 1\ndelay_parameters 1 100000000/100000000\n\
                 delay_access 1 allow all\n";
    count_hits(&format!("{pools}http_access allow all\n"), "", "squid");
}

/// The first request has its password checked, on a thread; then its credentials are remembered.
#[test]
fn a_hit_with_a_login_that_is_remembered_allocates_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("passwd");
    // The password is `secret`.
    std::fs::write(&file, "anna:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n").expect("a password file");
    let program = format!("auth_param basic program /x/basic_ncsa_auth {}", file.display());
    let rules = "acl staff proxy_auth anna bo\nhttp_access allow staff\nhttp_access deny all\n";
    count_hits(
        &format!("{program}\n{rules}"),
        "Proxy-Authorization: Basic YW5uYTpzZWNyZXQ=\r\n",
        "squid",
    );
}

#[test]
fn a_hit_within_a_budget_allocates_nothing() {
    let limits = "requests=1000000/s bytes=1TB/day tunnels=5";
    let rules = "acl here src 127.0.0.1\nhttp_access allow all\n";
    count_hits(
        &format!("{rules}client_budget none !here\nclient_budget {limits} here\n"),
        "",
        "squid",
    );
}

/// Counts what hits allocate under these rules, for requests with these fields.
fn count_hits(rules: &str, fields: &str, format: &str) {
    count_hits_of(rules, fields, format, HITS);
}

fn count_hits_of(rules: &str, fields: &str, format: &str, count: u64) {
    let dir = tempfile::tempdir().expect("a directory");
    let service = LogService::start().expect("a log thread");
    let options = SinkOptions { cores: 1, ..SinkOptions::default() };
    let destination = Destination::File(dir.path().join("access.log"));
    let sink = service.open(destination, options).expect("a log");
    let shared = shared(&sink, rules, format);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .expect("a runtime");
    let mut client = runtime.block_on(connect(&shared));
    let core = &runtime;
    let mut hits = 0;
    for body in SIZES_BYTES {
        let request =
            format!("GET http://192.0.2.1/{body} HTTP/1.1\r\nHost: 192.0.2.1\r\n{fields}\r\n");
        allocations(core, &mut client, request.as_bytes(), body, WARM_UP_HITS);
        enlarge_buffers(&service, &sink);
        let none = allocations(core, &mut client, request.as_bytes(), body, 0);
        let counted = allocations(core, &mut client, request.as_bytes(), body, count);
        assert_eq!(counted, none, "{count} hits of {body} bytes");
        hits += WARM_UP_HITS + count - 1;
        assert_eq!(shared.times.results(Tag::MemHit).requests, hits);
    }
    // The count can see what is allocated: a miss of one more object.
    let request = format!("GET http://192.0.2.1/10 HTTP/1.1\r\nHost: 192.0.2.1\r\n{fields}\r\n");
    assert!(allocations(core, &mut client, request.as_bytes(), 10, 1) > 0);
}
