//! What is left of a connection whose task panics, or is dropped because the core ends.

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use humboldt_logs::access::AccessFormat;
use humboldt_logs::cache_log::{CacheLog, DebugLevel};
use humboldt_logs::{Destination, LogService, SinkOptions};
use humboldt_net::dns::NameCache;
use humboldt_proxy::core::Core;
use humboldt_proxy::cut::Cut;
use humboldt_proxy::shared::Shared;
use humboldt_proxy::snapshot::Snapshot;
use humboldt_proxy::{AccessLog, InternalPages, Page, serve_connection};
use humboldt_store::{Cache, CacheSettings, NoEvents};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, LocalSet};

/// Pages of which one is a fault of the program.
struct Pages;

impl InternalPages for Pages {
    fn page(&self, name: &str) -> Option<Page> {
        assert_ne!(name, "trap", "as it should");
        Some(Page { content_type: "text/plain", body: b"fine".to_vec() })
    }
}

fn shared(service: &LogService, access_log: &Path) -> Arc<Shared> {
    let (config, diagnostics) =
        humboldt_conf::parse_str("test", "http_port 3128\nhttp_access allow all\n");
    assert!(!diagnostics.has_errors());
    let cache = Cache::new(CacheSettings::SMALL, 1, Vec::new(), Arc::new(NoEvents));
    let snapshot = Snapshot::compile(config).unwrap_or_else(|_| panic!("compiles"));
    let options = SinkOptions { cores: 1, ..SinkOptions::default() };
    let sink = service.open(Destination::File(access_log.to_owned()), options).expect("a log");
    let format = AccessFormat::predefined("squid").expect("a format");
    let log = AccessLog { sink: Some(sink), format, condition: None, strip_query_terms: false };
    let shared = Shared::new(snapshot, vec![log], cache, Arc::new(NameCache::new(10)), 1);
    shared.set_internal_pages(Box::new(Pages));
    shared
}

/// Sends a request for a page on a connection of its own, which a task serves.
async fn ask(core: &Rc<Core>, listener: &TcpListener, page: &str) -> (TcpStream, JoinHandle<()>) {
    let address: SocketAddr = listener.local_addr().expect("an address");
    let mut client = TcpStream::connect(address).await.expect("a connection");
    let (stream, from) = listener.accept().await.expect("a connection");
    let port = Arc::new(core.snapshot().config.http_port[0].clone());
    let task =
        tokio::task::spawn_local(serve_connection(Rc::clone(core), stream.into(), from, port));
    let head = format!(
        "GET /squid-internal-mgr/{page} HTTP/1.1\r\nHost: localhost:{}\r\n",
        address.port()
    );
    client.write_all(head.as_bytes()).await.expect("sent");
    (client, task)
}

async fn play(shared: Arc<Shared>) {
    let core = Core::new(0, Arc::clone(&shared));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (mut client, task) = ask(&core, &listener, "trap").await;
    client.write_all(b"\r\n").await.expect("sent");
    let mut answer = Vec::new();
    _ = client.read_to_end(&mut answer).await; // a reset is as good as an end
    assert!(answer.is_empty(), "{:?}", String::from_utf8_lossy(&answer));
    assert!(task.await.is_err_and(|error| error.is_panic()));
    assert_eq!((core.connections(), shared.connections()), (0, 0));
    assert_eq!((shared.times.cuts(Cut::Panicked), shared.times.aborted()), (1, 1));
    // The others are served.
    let (mut client, task) = ask(&core, &listener, "fine").await;
    client.write_all(b"Connection: close\r\n\r\n").await.expect("sent");
    client.read_to_end(&mut answer).await.expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 200 ") && answer.ends_with(b"fine"));
    drop(client);
    task.await.expect("it ended well");
    // A task that is dropped: here, because its core ends.
    let (_client, task) = ask(&core, &listener, "fine").await;
    tokio::task::yield_now().await;
    task.abort();
    assert!(task.await.is_err_and(|error| error.is_cancelled()));
    assert_eq!((core.connections(), shared.times.cuts(Cut::ShutDown)), (0, 1));
}

#[test]
fn a_connection_whose_task_panics_leaves_the_figures_and_has_its_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("access.log");
    let service = LogService::start().expect("a log thread");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _log = CacheLog::install(DebugLevel::default()).expect("the only one");
    LocalSet::new().block_on(&runtime, play(shared(&service, &path)));
    assert_eq!(humboldt_logs::panics::count(), 1);
    assert!(service.flush(Duration::from_secs(30)));
    let log = std::fs::read_to_string(path).expect("the log");
    let words = |line: &str| {
        let words: Vec<String> = line.split_ascii_whitespace().map(str::to_owned).collect();
        format!("{} {}", words[3], words[6].rsplit('/').next().unwrap_or_default())
    };
    let lines: Vec<String> = log.lines().map(words).collect();
    assert_eq!(lines, ["NONE_NONE_ABORTED/000 trap", "NONE_NONE/200 fine"], "{log}");
}
