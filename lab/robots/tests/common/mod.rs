//! A server that answers as an origin does, unless the test makes it do otherwise, and helpers to
//! wait for robots.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test program uses a part, and no one else reads it"
)]
#![allow(clippy::unwrap_used, reason = "clippy does not know that helpers of tests are tests")]

use humboldt_lab_record::{FaultKind, FaultSample, Tally};
use humboldt_lab_robots::{Robots, RobotsPlan, Route};
use humboldt_lab_wire::http_date;
use humboldt_lab_workload::{Facts, ObjectName, Version, Workload};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub const SEED: u64 = 4711;

/// Nothing here takes longer, even on a busy machine.
pub const SOON: Duration = Duration::from_secs(20);

pub fn workload(name: &str) -> Arc<Workload> {
    Arc::new(Workload::builtin(name).expect("it is built in").expect("it is right"))
}

/// A plan for one world against one server.
pub fn plan(name: &str, address: SocketAddr, per_s: f64) -> RobotsPlan {
    let mut plan = RobotsPlan::new(workload(name), SEED, Route::Direct, vec![address]);
    plan.first_load_per_s = per_s;
    plan.working_set_objects = 1_000;
    plan.connections_max = 200;
    plan
}

/// Adds up samples until they are as wanted.
pub fn run_until(robots: &Robots, mut enough: impl FnMut(&Tally) -> bool) -> Tally {
    let (deadline, mut sum) = (Instant::now() + SOON, Tally::default());
    loop {
        sum.merge_later(&robots.sample());
        if enough(&sum) {
            return sum;
        }
        assert!(Instant::now() < deadline, "this never came: {sum:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs until there is a fault of this kind, and gives it.
pub fn first_fault(plan: RobotsPlan, kind: FaultKind) -> FaultSample {
    let robots = Robots::start(plan).unwrap();
    let tally = run_until(&robots, |tally| tally.faults.contains_key(&kind));
    let found = tally.fault_samples.iter().find(|sample| sample.fault.kind == kind);
    found.expect("the first faults are kept").clone()
}

pub fn unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}

/// A request as the server sees it.
pub struct Seen {
    pub number: u64,
    pub method: String,
    pub target: String,
    pub head: String,
    pub name: Option<ObjectName>,
    pub id: String,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(have, _)| have.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// An answer in parts, so that a test can spoil one of them.
#[derive(Clone)]
pub struct Reply {
    pub status: String,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub facts: Facts,
}

impl Reply {
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.fields.retain(|(have, _)| have != name);
        self.fields.push((name.to_string(), value.into()));
    }

    pub fn remove(&mut self, name: &str) {
        self.fields.retain(|(have, _)| have != name);
    }

    /// Becomes this version of its object.
    pub fn become_version(&mut self, version: Version) {
        self.body.resize(self.facts.size_bytes as usize, 0);
        self.facts.body(version.number).fill(0, &mut self.body);
        let mut etag = Vec::new();
        Workload::etag(&self.facts, version.number, &mut etag);
        self.set("ETag", String::from_utf8(etag).unwrap());
        self.set("Last-Modified", date(version.modified_s));
        self.set("Expires", date(version.expires_s));
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = format!("HTTP/1.1 {}\r\n", self.status).into_bytes();
        for (name, value) in &self.fields {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

fn date(unix_s: u64) -> String {
    let mut text = Vec::new();
    http_date(unix_s, &mut text);
    String::from_utf8(text).unwrap()
}

/// What becomes of a request.
pub enum Deed {
    /// These bytes, and the connection stays.
    Say(Vec<u8>),
    /// These bytes, and the connection is closed.
    SayAndClose(Vec<u8>),
    /// Nothing, for as long as the server lives.
    Silence,
}

/// A server of one thread per connection.
pub struct Server {
    pub address: SocketAddr,
    /// Id and target of every request.
    pub seen: Arc<Mutex<Vec<String>>>,
    ended: Arc<AtomicBool>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

impl Server {
    /// `deed` gets the right answer, and says what happens instead.
    pub fn start(
        workload: Arc<Workload>,
        deed: impl Fn(&Seen, Reply) -> Deed + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, ended) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (deed, number) = (Arc::new(deed), Arc::new(AtomicU64::new(0)));
        let server = Self { address, seen: Arc::clone(&seen), ended: Arc::clone(&ended) };
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let (workload, deed, number) =
                    (Arc::clone(&workload), Arc::clone(&deed), Arc::clone(&number));
                let (seen, ended) = (Arc::clone(&seen), Arc::clone(&ended));
                thread::spawn(move || serve(stream, &workload, &*deed, &number, &seen, &ended));
            }
        });
        server
    }
}

fn serve(
    mut stream: TcpStream,
    workload: &Workload,
    deed: &dyn Fn(&Seen, Reply) -> Deed,
    number: &AtomicU64,
    seen: &Mutex<Vec<String>>,
    ended: &AtomicBool,
) {
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut pending = Vec::new();
    while let Some(head) = read_head(&mut stream, &mut pending, ended) {
        let mut first = head.split(' ');
        let (method, target) =
            (first.next().unwrap().to_string(), first.next().unwrap().to_string());
        let path = target
            .strip_prefix("http://")
            .map_or(target.as_str(), |rest| &rest[rest.find('/').unwrap()..]);
        let name = ObjectName::parse(path.as_bytes());
        let number = number.fetch_add(1, Ordering::Relaxed);
        let mut request = Seen { number, method, target, head, name, id: String::new() };
        request.id = request.header("Lab-Request").unwrap_or_default().to_string();
        skip_body(&mut stream, &mut pending, &request);
        seen.lock().unwrap().push(format!("{} {}", request.id, request.target));
        let name = name.unwrap_or(ObjectName { world: 0, kind: 0, number: 0, size: Some(0) });
        let reply = right_reply(workload, &name, &request);
        let outcome = match deed(&request, reply) {
            Deed::Say(bytes) => stream.write_all(&bytes),
            Deed::SayAndClose(bytes) => {
                let _ = stream.write_all(&bytes);
                return;
            }
            Deed::Silence => Ok(()),
        };
        if outcome.is_err() {
            return;
        }
    }
}

fn right_reply(workload: &Workload, name: &ObjectName, request: &Seen) -> Reply {
    let facts = workload.facts(SEED, name);
    let mut reply = Reply { status: "200 OK".into(), fields: Vec::new(), body: Vec::new(), facts };
    let version = facts.version_at(unix_us());
    reply.become_version(version);
    reply.set("Content-Length", facts.size_bytes.to_string());
    reply.set("Lab-Request", request.id.clone());
    if request.method == "HEAD" {
        reply.body.clear();
    }
    if request.header("If-Modified-Since") == Some(&date(version.modified_s)) {
        reply.status = "304 Not Modified".into();
        reply.body.clear();
        reply.remove("Content-Length");
    }
    if let Some(range) = request.header("Range").and_then(|range| range.strip_prefix("bytes=")) {
        let (first, last) = range.split_once('-').unwrap();
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        reply.body = reply.body[first..=last].to_vec();
        reply.status = "206 Partial Content".into();
        reply.set("Content-Length", reply.body.len().to_string());
        reply.set("Content-Range", format!("bytes {first}-{last}/{}", facts.size_bytes));
    }
    reply
}

fn read_head(stream: &mut TcpStream, pending: &mut Vec<u8>, ended: &AtomicBool) -> Option<String> {
    loop {
        if let Some(end) = pending.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = pending.drain(..end + 4).collect();
            return Some(String::from_utf8(head).unwrap());
        }
        read_more(stream, pending, ended)?;
    }
}

fn skip_body(stream: &mut TcpStream, pending: &mut Vec<u8>, request: &Seen) {
    let length: usize =
        request.header("Content-Length").map_or(0, |length| length.parse().unwrap());
    let never = AtomicBool::new(false);
    while pending.len() < length && read_more(stream, pending, &never).is_some() {}
    pending.drain(..length.min(pending.len()));
}

fn read_more(stream: &mut TcpStream, pending: &mut Vec<u8>, ended: &AtomicBool) -> Option<()> {
    let mut buffer = [0; 16 * 1024];
    match stream.read(&mut buffer) {
        Ok(0) => None,
        Ok(count) => {
            pending.extend_from_slice(&buffer[..count]);
            Some(())
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            (!ended.load(Ordering::Relaxed)).then_some(())
        }
        Err(_) => None,
    }
}
