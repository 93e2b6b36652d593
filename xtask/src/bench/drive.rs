//! An exact number of requests, in a closed loop or at a fixed rate: `wrk` works for a time, this
//! works through a list.
//!
//! One thread, one loop. Every answer is checked for its status, its length and `X-Cache`, so
//! that a figure for hits is one for hits.

use super::Plan;
use crate::Outcome;
use humboldt_lab_wire::{Poller, response_head};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for answers before the time limit is checked.
const WAIT: Duration = Duration::from_millis(50);

/// A prime, so that every rank has an object of its own as long as their number is no multiple of
/// it.
const SCATTER: u64 = 1_000_003;

/// With a rate, this much of a stall is made up for at once.
const CATCH_UP_MAX: Duration = Duration::from_millis(10);

/// Failed connections in a row before the server is taken for gone.
const FAILURES_MAX: u32 = 100;

#[derive(clap::Args, Clone)]
pub(crate) struct Arguments {
    /// Address of the cache
    to: SocketAddr,
    /// Host of the requests, which is the origin
    host: SocketAddr,
    /// Bytes of every body
    #[arg(long)]
    body_bytes: usize,
    /// Number of the first object
    #[arg(long)]
    first: u64,
    /// Requests in all
    #[arg(long)]
    requests: u64,
    /// Objects; after the last one, the first is asked for again
    #[arg(long)]
    objects: u64,
    /// Request objects in random order, popular by Zipf's law with this exponent, instead of in
    /// sequence
    #[arg(long)]
    zipf: Option<f64>,
    /// Connections, each with one request at a time
    #[arg(long)]
    connections: usize,
    /// Ask so often a second at most, instead of as soon as a connection is free
    #[arg(long)]
    requests_per_s: Option<u32>,
    /// End after this many seconds
    #[arg(long)]
    limit_s: u64,
}

/// The target of an object in a forward proxy.
pub(super) fn target(host: SocketAddr, body_bytes: usize, number: u64) -> String {
    format!("http://{host}/{body_bytes}/{number}")
}

/// A list of requests to work through.
#[derive(Clone, Copy)]
pub(super) struct Drive {
    pub(super) host: SocketAddr,
    pub(super) body_bytes: usize,
    pub(super) first: u64,
    pub(super) requests: u64,
    pub(super) objects: u64,
    /// Exponent of Zipf's law; `None` for one object after the other.
    pub(super) zipf: Option<f64>,
    pub(super) connections: usize,
    /// Highest rate; `None` for the next request as soon as a connection is free.
    pub(super) requests_per_s: Option<u32>,
    pub(super) limit: Duration,
}

/// The result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Driven {
    pub(super) requests: u64,
    pub(super) seconds: f64,
    pub(super) errors: u64,
    pub(super) hits: u64,
    pub(super) p99_us: u64,
}

impl Drive {
    /// Starts the load on its core.
    pub(super) fn start(&self, plan: &Plan, to: SocketAddr) -> Outcome<Child> {
        let mut command = Command::new("taskset");
        command.arg("-c").arg(plan.load_core.to_string()).arg(&plan.xtask).arg("drive");
        command.arg(to.to_string()).arg(self.host.to_string());
        let numbers = [
            ("--body-bytes", self.body_bytes as u64),
            ("--first", self.first),
            ("--requests", self.requests),
            ("--objects", self.objects),
            ("--connections", self.connections as u64),
            ("--limit-s", self.limit.as_secs()),
        ];
        for (name, number) in numbers {
            command.arg(name).arg(number.to_string());
        }
        if let Some(rate) = self.requests_per_s {
            command.arg("--requests-per-s").arg(rate.to_string());
        }
        if let Some(exponent) = self.zipf {
            command.arg("--zipf").arg(exponent.to_string());
        }
        Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?)
    }

    /// Works through the list; an error if not all was answered as it should be.
    pub(super) fn run(&self, plan: &Plan, name: &str, to: SocketAddr) -> Outcome<Driven> {
        let output = self.start(plan, to)?.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let driven = parse(&text).ok_or_else(|| format!("{name}: the load says: {text}"))?;
        if driven.errors > 0 || driven.requests < self.requests {
            return Err(format!(
                "{name}: {} of {} requests answered in {:.1} s, {} errors",
                driven.requests, self.requests, driven.seconds, driven.errors
            )
            .into());
        }
        Ok(driven)
    }
}

fn parse(text: &str) -> Option<Driven> {
    let line = text.lines().find_map(|line| line.strip_prefix("driven "))?;
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [requests, duration_us, errors, hits, p99_us] = numbers.try_into().ok()?;
    Some(Driven { requests, seconds: duration_us as f64 / 1e6, errors, hits, p99_us })
}

/// The load itself: `cargo xtask drive`.
pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let mut load = Load::new(arguments.clone())?;
    let start = Instant::now();
    load.work(start)?;
    let duration_us = start.elapsed().as_micros();
    load.times_us.sort_unstable();
    let p99 = load.times_us.get(load.times_us.len() * 99 / 100).copied().unwrap_or(0);
    println!("driven {} {duration_us} {} {} {p99}", load.times_us.len(), load.errors, load.hits);
    Ok(())
}

struct Load {
    arguments: Arguments,
    poller: Poller,
    connections: Vec<Option<Connection>>,
    /// Connections that wait for the time of the next request, the one that has waited longest in
    /// front.
    resting: VecDeque<usize>,
    /// When the next request may be asked, from the start.
    due: Duration,
    order: Order,
    asked: u64,
    errors: u64,
    hits: u64,
    failures_in_row: u32,
    times_us: Vec<u32>,
    chunk: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    head: Vec<u8>,
    /// Bytes of the body that are still to come, once the head is there.
    left: Option<usize>,
    /// The last head says that the answer is a hit.
    is_hit: bool,
    sent: Instant,
}

/// Which object is asked for next, counted from the first one.
enum Order {
    InTurn {
        objects: u64,
    },
    /// The shares of the objects up to each one, ascending to 1, and where the random numbers are.
    Zipf {
        shares: Vec<f64>,
        state: u64,
    },
}

impl Order {
    fn new(arguments: &Arguments) -> Self {
        let objects = arguments.objects.max(1);
        let Some(exponent) = arguments.zipf else { return Self::InTurn { objects } };
        let mut sum = 0.0;
        let mut shares: Vec<f64> = (1..=objects)
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        shares.iter_mut().for_each(|share| *share /= sum);
        // Every turn asks for other objects, and those of two subjects in a turn for the same ones.
        Self::Zipf { shares, state: arguments.first ^ arguments.requests }
    }

    fn nth(&mut self, asked: u64) -> u64 {
        match self {
            Self::InTurn { objects } => asked % *objects,
            Self::Zipf { shares, state } => {
                // SplitMix64.
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut bits = *state;
                bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                let at = ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
                let rank =
                    shares.partition_point(|share| *share <= at).min(shares.len() - 1) as u64;
                // Neighbours in popularity are not neighbours on disk.
                rank.wrapping_mul(SCATTER) % shares.len() as u64
            }
        }
    }
}

impl Load {
    fn new(arguments: Arguments) -> Outcome<Self> {
        let poller = Poller::new()?;
        let connections = (0..arguments.connections).map(|_| None).collect();
        let times_us = Vec::with_capacity(usize::try_from(arguments.requests)?);
        let chunk = vec![0; 256 * 1024];
        let order = Order::new(&arguments);
        Ok(Self {
            arguments,
            poller,
            connections,
            resting: VecDeque::new(),
            due: Duration::ZERO,
            order,
            asked: 0,
            errors: 0,
            hits: 0,
            failures_in_row: 0,
            times_us,
            chunk,
        })
    }

    fn work(&mut self, start: Instant) -> Outcome {
        let limit = Duration::from_secs(self.arguments.limit_s);
        for slot in 0..self.connections.len() {
            self.connect(slot)?;
        }
        let mut events = Vec::new();
        while start.elapsed() < limit {
            let wait = self.ask_what_is_due(start)?;
            if self.connections.iter().all(Option::is_none) {
                break;
            }
            self.poller.wait_into(&mut events, Some(wait))?;
            for event in &events {
                self.serve(usize::try_from(event.token)?)?;
            }
        }
        Ok(())
    }

    /// Asks on connections that rest, as far as it is time; returns how long to wait for answers.
    fn ask_what_is_due(&mut self, start: Instant) -> Outcome<Duration> {
        let Some(rate) = self.arguments.requests_per_s else { return Ok(WAIT) };
        while let Some(&slot) = self.resting.front() {
            let now = start.elapsed();
            if let Some(left) = self.due.checked_sub(now).filter(|left| !left.is_zero()) {
                return Ok(left.min(WAIT));
            }
            self.due = (self.due + Duration::from_secs(1) / rate.max(1))
                .max(now.saturating_sub(CATCH_UP_MAX));
            self.resting.pop_front();
            self.ask_next(slot)?;
        }
        Ok(WAIT)
    }

    /// Connects and asks; a connection that has nothing to ask is not made.
    fn connect(&mut self, slot: usize) -> Outcome {
        self.connections[slot] = None;
        while self.asked < self.arguments.requests && self.failures_in_row < FAILURES_MAX {
            if let Ok(connection) = self.connected(slot) {
                self.connections[slot] = Some(connection);
                return Ok(());
            }
            self.failed();
        }
        Ok(())
    }

    fn connected(&mut self, slot: usize) -> Outcome<Connection> {
        let stream = TcpStream::connect(self.arguments.to)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        self.poller.add_stream(&stream, slot as u64)?;
        let (head, left, sent) = (Vec::new(), None, Instant::now());
        let mut connection = Connection { stream, head, left, is_hit: false, sent };
        let request = self.next_request();
        connection.ask(&request)?;
        Ok(connection)
    }

    fn next_request(&mut self) -> String {
        let Arguments { host, body_bytes, first, .. } = self.arguments;
        let number = first + self.order.nth(self.asked);
        self.asked += 1;
        format!("GET {} HTTP/1.1\r\nHost: {host}\r\n\r\n", target(host, body_bytes, number))
    }

    fn failed(&mut self) {
        self.errors += 1;
        self.failures_in_row += 1;
    }

    /// Reads the available bytes, and requests the next object when the answer is complete.
    fn serve(&mut self, slot: usize) -> Outcome {
        let Some(connection) = self.connections[slot].as_mut() else { return Ok(()) };
        match connection.read(&mut self.chunk, self.arguments.body_bytes) {
            Ok(None) => Ok(()),
            Ok(Some(is_hit)) => {
                self.hits += u64::from(is_hit);
                self.failures_in_row = 0;
                let taken_us =
                    u32::try_from(connection.sent.elapsed().as_micros()).unwrap_or(u32::MAX);
                self.times_us.push(taken_us);
                if self.arguments.requests_per_s.is_some() && self.asked < self.arguments.requests {
                    self.resting.push_back(slot);
                    return Ok(());
                }
                self.ask_next(slot)
            }
            Err(_) => {
                self.resting.retain(|other| *other != slot);
                self.failed();
                self.connect(slot)
            }
        }
    }

    /// Asks for the next object, or closes the connection if that was all.
    fn ask_next(&mut self, slot: usize) -> Outcome {
        if self.asked >= self.arguments.requests {
            self.connections[slot] = None;
            return Ok(());
        }
        let request = self.next_request();
        let asked = self.connections[slot].as_mut().map(|connection| connection.ask(&request));
        if let Some(Err(_)) = asked {
            self.failed();
            self.connect(slot)?;
        }
        Ok(())
    }
}

impl Connection {
    /// A request is far shorter than the kernel's buffer.
    fn ask(&mut self, request: &str) -> std::io::Result<()> {
        (self.left, self.sent) = (None, Instant::now());
        self.head.clear();
        self.stream.write_all(request.as_bytes())
    }

    /// `Some` when the answer is complete: whether it was a hit. An error for anything but a 200 of
    /// the right length.
    fn read(&mut self, chunk: &mut [u8], body_bytes: usize) -> std::io::Result<Option<bool>> {
        loop {
            let len = match self.stream.read(chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let of_body = match self.left {
                Some(_) => len,
                None => match self.take_head(&chunk[..len], body_bytes)? {
                    Some(of_body) => of_body,
                    None => continue,
                },
            };
            let left = self.left.unwrap_or(0).checked_sub(of_body).ok_or(ErrorKind::InvalidData)?;
            self.left = Some(left);
            if left == 0 {
                return Ok(Some(self.is_hit));
            }
        }
    }

    /// Once the head is there: how much of the body came with it.
    fn take_head(&mut self, bytes: &[u8], body_bytes: usize) -> std::io::Result<Option<usize>> {
        self.head.extend_from_slice(bytes);
        let head = response_head(&self.head).map_err(|_| ErrorKind::InvalidData)?;
        let Some(head) = head else { return Ok(None) };
        if head.status() != 200 || head.content_length() != Some(body_bytes as u64) {
            return Err(ErrorKind::InvalidData.into());
        }
        self.is_hit = head.header("x-cache").is_some_and(|value| value.starts_with(b"HIT"));
        self.left = Some(body_bytes);
        Ok(Some(self.head.len() - head.len_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A server that answers each request on its own connection thread with `answer`.
    fn server(answer: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut chunk = [0; 4096];
                    while stream.read(&mut chunk).is_ok_and(|len| len > 0) {
                        // In two parts, so that a head is cut.
                        stream.write_all(&answer[..20]).unwrap();
                        stream.write_all(&answer[20..]).unwrap();
                    }
                });
            }
        });
        address
    }

    fn load(to: SocketAddr, requests: u64) -> Load {
        let arguments = Arguments {
            to,
            host: to,
            body_bytes: 5,
            first: 10,
            requests,
            objects: 3,
            zipf: None,
            connections: 4,
            requests_per_s: None,
            limit_s: 10,
        };
        work(arguments)
    }

    fn work(arguments: Arguments) -> Load {
        let mut load = Load::new(arguments).unwrap();
        load.work(Instant::now()).unwrap();
        load
    }

    #[test]
    fn a_rate_is_kept_by_waiting_and_every_request_is_asked() {
        let to = server(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde");
        let arguments = Arguments { requests_per_s: Some(200), ..load(to, 0).arguments };
        let start = Instant::now();
        let load = work(Arguments { requests: 61, ..arguments });
        assert_eq!((load.times_us.len(), load.asked, load.errors), (61, 61, 0));
        // Four are asked at once, and the last one 56 intervals behind the fifth.
        assert!(start.elapsed() >= Duration::from_millis(280), "{:?}", start.elapsed());
    }

    #[test]
    fn every_request_is_asked_once_and_hits_are_counted() {
        let to =
            server(b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r\nX-Cache: HIT from a\r\n\r\nabcde");
        let load = load(to, 50);
        assert_eq!((load.times_us.len(), load.asked, load.errors, load.hits), (50, 50, 0, 50));
    }

    #[test]
    fn other_lengths_and_other_statuses_are_errors() {
        let long = load(server(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef"), 8);
        assert_eq!((long.times_us.len(), long.errors), (0, 8));
        let missing = load(server(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nabcde"), 8);
        assert_eq!((missing.times_us.len(), missing.errors), (0, 8));
    }

    #[test]
    fn a_server_that_is_gone_ends_the_load() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let load = load(free, 1_000_000);
        assert_eq!((load.times_us.len(), load.errors), (0, u64::from(FAILURES_MAX)));
    }

    #[test]
    fn zipf_asks_for_all_objects_and_for_few_of_them_often() {
        let to = SocketAddr::from(([127, 0, 0, 1], 1));
        let arguments = Arguments {
            to,
            host: to,
            body_bytes: 5,
            first: 0,
            requests: 1,
            objects: 100,
            zipf: Some(1.0),
            connections: 1,
            requests_per_s: None,
            limit_s: 1,
        };
        let mut order = Order::new(&arguments);
        let mut seen = [0_u64; 100];
        (0..10_000).for_each(|asked| seen[order.nth(asked) as usize] += 1);
        // 1/H(100) is 0.193.
        assert!(seen.iter().all(|times| *times > 0));
        assert!((1800..2050).contains(seen.iter().max().unwrap()), "{seen:?}");
    }

    #[test]
    fn the_line_is_read_back() {
        let driven = parse("driven 100 2000000 1 90 950\n").unwrap();
        assert_eq!(
            driven,
            Driven { requests: 100, seconds: 2.0, errors: 1, hits: 90, p99_us: 950 }
        );
        assert_eq!(parse("driven 1 2\n"), None);
    }
}
