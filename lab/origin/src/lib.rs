//! The simulated origin servers: everything that a workload's URLs can be asked, answered as a far
//! away, thinking server would.
//!
//! Nothing is stored: size, type, age and every byte of an answer follow from its URL and the seed.
//! Each thread has its own epoll loop and its own listeners on all addresses (`SO_REUSEPORT`), and
//! shares nothing with the others.
//!
//! ```text
//! start ── bind ── thread: poll ─┬─ accept
//!   │                            ├─ connection: head → (body) → wait (think time, link) →
//!   │                            │  send, paced by the link
//!   ├─ sample, stop ── command ──┤
//!                                └─ timers: due answers, next window of the link, idle connections
//! ```

mod answer;
mod connection;
pub mod known;
mod listen;
mod outbox;
mod range;
mod request;
mod service;
mod slab;
mod thread;

use humboldt_lab_record::OriginTally;
use humboldt_lab_tls::{Authority, Identity, TlsError};
use humboldt_lab_wire::{Poller, Waker, raise_descriptor_limit};
use humboldt_lab_workload::Workload;
use service::Service;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use thiserror::Error;
use thread::Command;

/// Most connections of one thread, if the limit of descriptors allows as many. Together with a few
/// kilobytes for each this bounds the memory.
const CONNECTIONS_PER_THREAD_MAX: usize = 65_536;

/// More threads than this are a mistake in the plan.
const THREADS_MAX: usize = 256;

/// The settings of the origin servers.
#[derive(Clone, Debug)]
pub struct OriginPlan {
    /// The answer to each URL.
    pub workload: Arc<Workload>,
    /// All facts and bytes follow from it; robots must have the same.
    pub seed: u64,
    /// Think times, link and idle time are multiplied by this; the 60 s in which a new connection
    /// may bring its first request are not.
    pub time_scale: f64,
    /// Addresses to listen on: each is a server of its own. Port 0 means any.
    pub listen: Vec<SocketAddr>,
    /// Number of threads, 1 to 256.
    pub threads: usize,
    /// Cores that the threads are pinned to, in turn. Empty: not pinned.
    pub cores: Vec<usize>,
    /// Whether to wait for the workload's think time before an answer. The link is simulated in any
    /// case.
    pub think: bool,
    /// Share of whole answers that go out in chunks, without Content-Length: 0 to 1, chosen by URL.
    pub chunked_share: f64,
    /// Correction of this host's time of day to that of all agents, in µs.
    pub clock_offset_us: i64,
    /// Speak TLS, with a certificate for all addresses that this authority signs. `None`: plain
    /// HTTP.
    pub tls: Option<Authority>,
}

impl OriginPlan {
    /// One thread on any port of the loopback address, with the workload's think times; set the
    /// rest as needed.
    #[must_use]
    pub fn new(workload: Arc<Workload>, seed: u64) -> Self {
        Self {
            workload,
            seed,
            time_scale: 1.0,
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            threads: 1,
            cores: Vec::new(),
            think: true,
            chunked_share: 0.0,
            clock_offset_us: 0,
            tls: None,
        }
    }
}

/// Why there are no origin servers.
#[derive(Debug, Error)]
pub enum OriginError {
    /// An address cannot be bound.
    #[error(
        "origin: cannot listen on {address}: {source}; choose another with --origin ADDRESS:PORT"
    )]
    Listen {
        /// The address as planned.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// The plan cannot be meant.
    #[error("origin: {0}")]
    Plan(&'static str),
    /// There is no certificate for the addresses.
    #[error("origin: {0}")]
    Tls(#[from] TlsError),
    /// A thread or its poller cannot be had.
    #[error(
        "origin: cannot start a thread: {0}; close other programs or allow more processes and descriptors"
    )]
    Thread(io::Error),
    /// A thread cannot be pinned.
    #[error(
        "origin: cannot pin a thread to core {core}: {source}; choose one that this host has and allows"
    )]
    Pin {
        /// The core as planned.
        core: usize,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Running origin servers. Dropped without [`stop`](Self::stop), they end as well.
#[derive(Debug)]
pub struct Origin {
    addresses: Vec<SocketAddr>,
    threads: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    commands: Sender<Command>,
    waker: Waker,
    join: JoinHandle<OriginTally>,
}

impl Origin {
    /// Binds all addresses and starts the threads. When it returns, connections are accepted.
    ///
    /// Raises the process' soft limit of open descriptors to the hard one, and takes at most half
    /// of it.
    ///
    /// # Errors
    ///
    /// [`OriginError`]: an address in use, a plan that cannot be meant, a core that does not exist.
    pub fn start(plan: OriginPlan) -> Result<Self, OriginError> {
        check(&plan)?;
        let descriptors = usize::try_from(raise_descriptor_limit()).unwrap_or(usize::MAX);
        let connections_max = (descriptors / 2 / plan.threads).clamp(1, CONNECTIONS_PER_THREAD_MAX);
        let (addresses, listeners) = listen::bind_all(&plan.listen, plan.threads)?;
        let issue = |authority| certificate(authority, &addresses)?.server();
        let tls = plan.tls.as_ref().map(issue).transpose()?;
        let mut origin = Self { addresses, threads: Vec::with_capacity(plan.threads) };
        for (index, listeners) in listeners.into_iter().enumerate() {
            let service = Service::new(&plan, tls.clone());
            let core = plan.cores.get(index % plan.cores.len().max(1)).copied();
            origin.threads.push(start_thread(index, core, service, listeners, connections_max)?);
        }
        Ok(origin)
    }

    /// The addresses, with their real ports, in the order of the plan.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The counts since the last call (or the start), of all threads together. Waits until each has
    /// finished its present turn: less than a millisecond, normally.
    #[must_use]
    pub fn sample(&self) -> OriginTally {
        let mut sum = OriginTally::default();
        let asked: Vec<_> = self.threads.iter().map(Running::ask_for_sample).collect();
        for tally in asked.iter().filter_map(|answer| answer.recv().ok()) {
            sum.merge_parallel(&tally);
        }
        sum
    }

    /// Ends all connections and threads, and returns the counts since the last sample.
    pub fn stop(mut self) -> OriginTally {
        self.end()
    }

    fn end(&mut self) -> OriginTally {
        self.threads.iter().for_each(|thread| thread.tell(Command::Stop));
        let mut sum = OriginTally::default();
        for thread in self.threads.drain(..) {
            // A thread that panicked has told why already; the others' figures are still worth
            // having.
            if let Ok(tally) = thread.join.join() {
                sum.merge_parallel(&tally);
            }
        }
        sum
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.end();
    }
}

impl Running {
    fn tell(&self, command: Command) {
        // Fails only if the thread has ended, and then there is no receiver.
        if self.commands.send(command).is_ok() {
            self.waker.wake();
        }
    }

    fn ask_for_sample(&self) -> std::sync::mpsc::Receiver<OriginTally> {
        let (answer, receiver): (SyncSender<OriginTally>, _) = sync_channel(1);
        self.tell(Command::Sample(answer));
        receiver
    }
}

/// A certificate for all addresses on which the servers can be asked.
fn certificate(authority: &Authority, addresses: &[SocketAddr]) -> Result<Identity, TlsError> {
    let mut names: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
    names.push("localhost".to_owned());
    names.sort();
    names.dedup();
    authority.issue(&names)
}

fn check(plan: &OriginPlan) -> Result<(), OriginError> {
    let problem = if plan.listen.is_empty() {
        "there is no address to listen on; name at least one"
    } else if plan.threads == 0 || plan.threads > THREADS_MAX {
        "the number of threads must be between 1 and 256"
    } else if !(plan.time_scale.is_finite() && plan.time_scale > 0.0) {
        "the time scale must be greater than 0"
    } else if !(0.0..=1.0).contains(&plan.chunked_share) {
        "the share of chunked answers must be between 0 and 1"
    } else {
        return Ok(());
    };
    Err(OriginError::Plan(problem))
}

fn start_thread(
    index: usize,
    core: Option<usize>,
    service: Service,
    listeners: Vec<std::net::TcpListener>,
    connections_max: usize,
) -> Result<Running, OriginError> {
    let poller = Poller::new().map_err(OriginError::Thread)?;
    let waker = poller.waker();
    let (commands, receiver) = channel();
    let thread = thread::Thread::new(index, poller, receiver, service, listeners, connections_max)
        .map_err(OriginError::Thread)?;
    let (pinned, outcome) = sync_channel(1);
    let body = move || {
        let done = core.map_or(Ok(()), humboldt_lab_wire::pin);
        let is_pinned = done.is_ok();
        let _ = pinned.send(done);
        if is_pinned { thread.run() } else { OriginTally::default() }
    };
    let name = format!("origin-{index}");
    let join = std::thread::Builder::new().name(name).spawn(body).map_err(OriginError::Thread)?;
    if let Ok(Err(source)) = outcome.recv() {
        return Err(OriginError::Pin { core: core.unwrap_or_default(), source });
    }
    Ok(Running { commands, waker, join })
}
