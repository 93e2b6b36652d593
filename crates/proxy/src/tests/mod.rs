//! The pipeline with clients and servers in memory, on a clock that stands still until everybody
//! waits: what is told here repeats exactly, and takes no time.

mod answers;
mod ending;
mod failing;
mod leaving;
mod uploads;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use humboldt_base::clock::{self, UnixMillis};
use humboldt_exchange::memory::{self, Answer, Client, End, Server};
use humboldt_exchange::{BodyLength, answer};
use humboldt_http::h1::{self, Framing};
use humboldt_http::{FieldName, Fields, HeadLimits, RequestHead, ResponseHead};
use humboldt_logs::access::AccessFormat;
use humboldt_logs::{Destination, LogService, SinkOptions};
use humboldt_net::connect::ConnectError;
use humboldt_net::dns::NameCache;
use humboldt_store::{Cache, CacheSettings, NoEvents};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::{Instant, timeout};

use crate::AccessLog;
use crate::config::snapshot::Snapshot;
use crate::core::Core;
use crate::cut::Cut;
use crate::serve::{Connection, Ends};
use crate::shared::Shared;

/// The server that most stories are about.
const SITE: &str = "http://192.0.2.1";

/// Longest time of a story, by its own clock.
const STORY: Duration = Duration::from_secs(3600);

/// The time on the wall clock at the beginning of a story in which it passes.
const BEGIN_MS: i64 = 1_800_000_000_000;

thread_local! {
    static PASSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// What a client takes that reads as fast as it can.
const OPEN_BYTES: usize = usize::MAX;

/// A proxy of one core, its only client connection, and all servers that it may ask.
struct World {
    connection: Rc<Connection>,
    shared: Arc<Shared>,
    /// Servers in the order in which connections were opened to them.
    connected: RefCell<mpsc::UnboundedReceiver<(SocketAddr, Server)>>,
    /// Addresses at which nobody listens.
    closed: Rc<RefCell<HashSet<SocketAddr>>>,
    logs: LogService,
    dir: tempfile::TempDir,
}

/// Plays a story under a configuration that allows what `rules` do not deny.
fn play(rules: &str, story: impl AsyncFnOnce(&World)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        let world = World::new(rules);
        timeout(STORY, story(&world)).await.expect("the story ends");
    });
}

impl World {
    fn new(rules: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let logs = LogService::start().expect("a log thread");
        let options = SinkOptions { cores: 1, ..SinkOptions::default() };
        let destination = Destination::File(dir.path().join("access.log"));
        let log = AccessLog {
            sink: Some(logs.open(destination, options).expect("a log")),
            format: AccessFormat::predefined("squid").expect("a format"),
            condition: None,
            strip_query_terms: false,
        };
        let text = format!("http_port 3128\n{rules}\nhttp_access allow all\n");
        let (config, diagnostics) = humboldt_conf::parse_str("test", &text);
        assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
        let port = Arc::new(config.http_port[0].clone());
        let snapshot = Snapshot::compile(config).unwrap_or_else(|_| panic!("compiles"));
        let names = Arc::new(NameCache::new(10));
        let shared = Shared::new(snapshot, vec![log], cache(), names, 1);
        let core = Core::new(0, Arc::clone(&shared));
        let (client, local) = ("198.51.100.1:4000".parse(), "198.51.100.9:3128".parse());
        let (client, local) = (client.expect("an address"), local.expect("an address"));
        let ends = Ends::direct(client, local);
        let connection = Rc::new(Connection::new(&core, ends, port));
        let (connects, connected) = mpsc::unbounded_channel();
        let closed = Rc::<RefCell<HashSet<SocketAddr>>>::default();
        let closed_for_all = Rc::clone(&closed);
        core.use_network(Box::new(move |peer| {
            if closed_for_all.borrow().contains(&peer) {
                return Err(ConnectError::Refused(peer));
            }
            let (exchange, server) = memory::server(peer);
            connects.send((peer, server)).expect("the world is there");
            Ok(exchange)
        }));
        Self { connection, shared, connected: connected.into(), closed, logs, dir }
    }

    /// A request for `path` of the [site](SITE) by a client that reads as fast as it can.
    fn get(&self, path: &str) -> Asking {
        self.ask(&format!("GET {SITE}{path} HTTP/1.1\r\n"), OPEN_BYTES)
    }

    /// A request: its line and its fields. The client takes `window_bytes` before it has to read.
    fn ask(&self, text: &str, window_bytes: usize) -> Asking {
        let mut head = RequestHead::default();
        let text = format!("{text}Host: 192.0.2.1\r\n\r\n");
        let parsed = h1::parse_request(text.as_bytes(), &HeadLimits::default(), &mut head);
        assert_eq!(parsed, Ok(Some(text.len())), "{text}");
        let length = match h1::request_framing(&head) {
            Ok(Framing::Length(bytes)) => BodyLength::Known(bytes),
            Ok(Framing::Chunked) => BodyLength::Unknown,
            _ => BodyLength::None,
        };
        h1::remove_named(&mut head.fields);
        let is_head = head.method == humboldt_http::Method::Head;
        let (mut exchange, client) = memory::client(is_head, length, window_bytes);
        let connection = Rc::clone(&self.connection);
        let task = tokio::task::spawn_local(async move {
            answer(&*connection, &mut exchange, head).await;
        });
        Asking { client, task }
    }

    /// The next server that is connected to, and its address.
    async fn reached(&self) -> (SocketAddr, Server) {
        let reached = poll_fn(|cx| self.connected.borrow_mut().poll_recv(cx)).await;
        reached.expect("the network is there")
    }

    /// The next server that is connected to.
    async fn server(&self) -> Server {
        self.reached().await.1
    }

    /// The next server that is connected to is asked, and its connection ends without an answer.
    /// Returns its address.
    async fn fails_unanswered(&self) -> SocketAddr {
        let (peer, server) = self.reached().await;
        server.asked().await;
        server.fail();
        peer
    }

    /// Whether no server was connected to beside those that the story has met.
    fn asks_no_more(&self) -> bool {
        self.connected.borrow_mut().try_recv().is_err()
    }

    /// Lets time pass on the wall clock.
    fn pass(&self, time: Duration) {
        PASSED.set(PASSED.get() + time);
        clock::simulate(|| UnixMillis(BEGIN_MS + PASSED.get().as_millis() as i64));
    }

    /// Nobody listens at this address.
    fn close(&self, address: &str) {
        self.closed.borrow_mut().insert(address.parse().expect("an address"));
    }

    /// Reasons for which connections were cut off, and how many for each.
    fn cuts(&self) -> Vec<(&'static str, u64)> {
        let cuts = Cut::ALL.iter().map(|&cut| (cut.name(), self.shared.times.cuts(cut)));
        cuts.filter(|(_, count)| *count > 0).collect()
    }

    /// The lines of access.log: result code, status, method and how the server was chosen.
    fn lines(&self) -> Vec<String> {
        assert!(self.logs.flush(Duration::from_secs(60)));
        let log = std::fs::read_to_string(self.dir.path().join("access.log")).expect("a log");
        let words = |line: &str| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            format!("{} {} {}", words[3], words[5], words[8])
        };
        log.lines().map(words).collect()
    }
}

fn cache() -> Arc<Cache> {
    let settings = CacheSettings {
        cache_mem_bytes: 8 << 20,
        memory_object_bytes_max: 1 << 20,
        ..CacheSettings::SMALL
    };
    Cache::new(settings, 1, Vec::new(), Arc::new(NoEvents))
}

/// A client whose request is being answered.
struct Asking {
    client: Client,
    task: JoinHandle<()>,
}

impl Asking {
    /// The answer, when everything about it is over.
    async fn over(self) -> Answer {
        self.task.await.expect("no panic");
        self.client.answer()
    }

    /// The same, of an answer that has to come whole.
    async fn whole(self) -> Answer {
        let answer = self.over().await;
        assert_eq!(answer.end, Some(End::Whole), "{answer:?}");
        answer
    }
}

/// Status and body.
fn short(answer: &Answer) -> (u16, &[u8]) {
    (answer.head.as_ref().map_or(0, |head| head.status), &answer.body)
}

/// A head: its status and fields, each with its line end.
fn head(status: u16, fields: &str) -> ResponseHead {
    let text = format!("HTTP/1.1 {status} Text\r\n{fields}\r\n");
    let mut head = ResponseHead::default();
    let parsed = h1::parse_response(text.as_bytes(), &HeadLimits::default(), &mut head);
    assert_eq!(parsed, Ok(Some(text.len())), "{text}");
    head
}

/// Answers with a body that may be stored for a minute, and an entity tag.
fn say(server: &Server, body: &[u8]) {
    let fields =
        format!("Content-Length: {}\r\nCache-Control: max-age=60\r\nETag: \"1\"\r\n", body.len());
    server.send_head(head(200, &fields));
    server.send_body(body);
    server.end(None);
}

/// Stores "hello" for `/a`, with the entity tag "1": it is to be validated each time.
async fn store_to_validate(world: &World) {
    store_as(world, "max-age=0").await;
}

/// Stores "hello" for `/a`, with the entity tag "1" and this `Cache-Control`.
async fn store_as(world: &World, cache_control: &str) {
    let asking = world.get("/a");
    let server = world.server().await;
    let fields = format!("Cache-Control: {cache_control}\r\nETag: \"1\"\r\nContent-Length: 5\r\n");
    server.send_head(head(200, &fields));
    server.send_body(b"hello");
    server.end(None);
    asking.whole().await;
}

/// Bytes that tell where they belong.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 251 + at) as u8).collect()
}

fn value(fields: &Fields, name: FieldName) -> Option<String> {
    fields.get(name).map(|value| String::from_utf8_lossy(value).into_owned())
}

/// Asserts that a server is left alone within a second.
async fn given_up_soon(server: &Server) {
    let start = Instant::now();
    server.given_up().await;
    assert!(start.elapsed() <= Duration::from_secs(1), "{:?}", start.elapsed());
}
