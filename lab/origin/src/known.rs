//! A forward proxy of known capacity, to check the laboratory with: one server, first come, first
//! served, a fixed time for each request (M/D/1 under Poisson arrivals). It makes the answers
//! itself, so that nothing but its programme takes time.

use humboldt_lab_wire::{Poller, Ready, http_date, request_head};
use humboldt_lab_workload::protocol::REQUEST_ID;
use humboldt_lab_workload::{ObjectName, Workload};
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const LISTENER: u64 = 0;

/// Most clients at a time; further ones are turned away.
const CLIENTS_MAX: usize = 10_000;

/// Most bytes of a request that has not come whole. A client that sends more is turned away.
const HALF_REQUEST_BYTES_MAX: usize = 64 << 10;

/// Shorter stretches of work say more about how soon a thread wakes than about the server.
const STRETCH_REQUESTS_MIN: u32 = 20;

/// Work done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    requests: u32,
    /// Time during which requests waited.
    busy: Duration,
}

impl Served {
    /// The capacity as it was: requests per second in which some waited, 0 if none did. A machine
    /// that keeps the server from working makes it lower than the programmed one.
    #[must_use]
    pub fn capacity_per_s(&self) -> f64 {
        if self.busy.is_zero() {
            return 0.0;
        }
        f64::from(self.requests) / self.busy.as_secs_f64()
    }
}

/// A running proxy of known capacity.
#[derive(Debug)]
pub struct KnownServer {
    address: SocketAddr,
    waker: humboldt_lab_wire::Waker,
    worker: JoinHandle<io::Result<Served>>,
}

impl KnownServer {
    /// Starts one on any port of the loopback address. Its answers are those of the origin servers
    /// of this workload and seed.
    ///
    /// # Errors
    /// No socket, no thread.
    pub fn start(workload: Workload, seed: u64, capacity_per_s: f64) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let poller = Poller::new()?;
        poller.add_listener(&listener, LISTENER)?;
        let waker = poller.waker();
        let mut work = Work {
            poller,
            listener,
            clients: HashMap::new(),
            next_token: LISTENER + 1,
            queue: VecDeque::new(),
            service: Duration::from_secs_f64(1.0 / capacity_per_s),
            free_at: Instant::now(),
            busy_since: Instant::now(),
            stretch: 0,
            served: Served::default(),
            workload,
            seed,
        };
        let worker = std::thread::Builder::new().name("known".into()).spawn(move || work.run())?;
        Ok(Self { address, waker, worker })
    }

    /// Its URL, as a proxy.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends it.
    ///
    /// # Errors
    /// It had ended by itself, because a system call failed.
    pub fn stop(self) -> io::Result<Served> {
        self.waker.wake();
        self.worker.join().unwrap_or_else(|_| Err(io::Error::other("the server panicked")))
    }
}

struct Client {
    stream: TcpStream,
    pending: Vec<u8>,
}

struct Work {
    poller: Poller,
    listener: TcpListener,
    clients: HashMap<u64, Client>,
    next_token: u64,
    /// Who waits, the one that is served first: when the request came, whose it is, the answer.
    queue: VecDeque<(Instant, u64, Vec<u8>)>,
    service: Duration,
    /// When the one before was done, by the programme.
    free_at: Instant,
    /// Since when somebody has been waiting all the time, and how many were served since then.
    busy_since: Instant,
    stretch: u32,
    served: Served,
    workload: Workload,
    seed: u64,
}

impl Work {
    fn run(&mut self) -> io::Result<Served> {
        let mut ready = Vec::new();
        loop {
            let next = self.queue.front().map(|(came, ..)| self.end_of(*came));
            let wait = next.map(|end| end.saturating_duration_since(Instant::now()));
            self.poller.wait_into(&mut ready, wait)?;
            if ready.iter().any(|ready| ready.token == Poller::WAKE) {
                return Ok(self.served);
            }
            for ready in &ready {
                self.take(ready)?;
            }
            self.serve();
        }
    }

    /// A request begins when it came, or when the one before it was done. What wakes too late does
    /// not move the programme, so the lateness of this thread does not add up.
    fn end_of(&self, came: Instant) -> Instant {
        came.max(self.free_at) + self.service
    }

    fn serve(&mut self) {
        while let Some((came, ..)) = self.queue.front() {
            let end = self.end_of(*came);
            if end > Instant::now() {
                return;
            }
            self.free_at = end;
            let Some((_, token, answer)) = self.queue.pop_front() else { return };
            self.stretch += 1;
            if self.queue.is_empty() && self.stretch >= STRETCH_REQUESTS_MIN {
                self.served.requests += self.stretch;
                self.served.busy += self.busy_since.elapsed();
            }
            // Robots that give up go away.
            if let Some(client) = self.clients.get_mut(&token) {
                let _ = client.stream.write_all(&answer);
            }
        }
    }

    fn take(&mut self, ready: &Ready) -> io::Result<()> {
        if ready.token == LISTENER {
            return self.accept();
        }
        let Some(client) =
            self.clients.get_mut(&ready.token).filter(|_| ready.readable || ready.closed)
        else {
            return Ok(());
        };
        let is_open = client.read();
        let pending = std::mem::take(&mut client.pending);
        let left = self.queue_requests(ready.token, &pending);
        let stays = is_open && left.is_some_and(|left| left.len() <= HALF_REQUEST_BYTES_MAX);
        match self.clients.get_mut(&ready.token).filter(|_| stays) {
            Some(client) => client.pending = left.unwrap_or_default().to_vec(),
            None => drop(self.clients.remove(&ready.token)),
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.clients.len() >= CLIENTS_MAX {
                continue;
            }
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            self.poller.add_stream(&stream, self.next_token)?;
            self.clients.insert(self.next_token, Client { stream, pending: Vec::new() });
            self.next_token += 1;
        }
        Ok(())
    }

    /// Queues the requests that have come whole, and returns the rest. `None`: one of them is not
    /// from the laboratory's users.
    fn queue_requests<'a>(&mut self, token: u64, mut bytes: &'a [u8]) -> Option<&'a [u8]> {
        while let Some(head) = request_head(bytes).ok()? {
            let target = String::from_utf8_lossy(head.target()).into_owned();
            let id =
                String::from_utf8_lossy(head.header(REQUEST_ID).unwrap_or_default()).into_owned();
            let answer = self.answer(&target, &id)?;
            let now = Instant::now();
            if self.queue.is_empty() {
                (self.busy_since, self.stretch) = (now, 0);
            }
            self.queue.push_back((now, token, answer));
            bytes = &bytes[head.len_bytes()..];
        }
        Some(bytes)
    }

    /// The origin's answer: each is a miss. `None`: it is no object of the workload.
    fn answer(&self, target: &str, id: &str) -> Option<Vec<u8>> {
        let path = target.find("/l/").map_or("", |start| &target[start..]);
        let name = ObjectName::parse(path.as_bytes())?;
        let facts = self.workload.facts(self.seed, &name);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let version = facts.version_at(unix.as_micros() as u64);
        let mut answer = b"HTTP/1.1 200 OK\r\nETag: ".to_vec();
        Workload::etag(&facts, version.number, &mut answer);
        for (name, unix_s) in
            [("Last-Modified", version.modified_s), ("Expires", version.expires_s)]
        {
            answer.extend_from_slice(format!("\r\n{name}: ").as_bytes());
            http_date(unix_s, &mut answer);
        }
        let length =
            format!("\r\n{REQUEST_ID}: {id}\r\nContent-Length: {}\r\n\r\n", facts.size_bytes);
        answer.extend_from_slice(length.as_bytes());
        let body = answer.len();
        answer.resize(body + facts.size_bytes as usize, 0);
        facts.body(version.number).fill(0, &mut answer[body..]);
        Some(answer)
    }
}

impl Client {
    /// Reads what there is; whether more may come.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 16 << 10];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => self.pending.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
    }
}
