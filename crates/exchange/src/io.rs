//! The state that the exchanges of one core share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use humboldt_base::counters::{Counter, Counters};
use humboldt_http::HeadLimits;
use humboldt_runtime::deadline::Deadlines;
use tokio::sync::Notify;

use crate::buffers::ReadBuffers;
use crate::pipes::Pipes;

/// Capacity above which the buffer of a head is given back instead of being kept, in bytes.
const HEAD_BUFFER_BYTES_MAX: usize = 256 * 1024;

/// Limits of connections to clients, as configured.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Bounds of request heads.
    pub limits: HeadLimits,
    /// `client_persistent_connections`.
    pub persistent: bool,
    /// Time for the first byte of the first request (`request_start_timeout`).
    pub request_start: Duration,
    /// Time for the rest of a head that has begun (`request_timeout`).
    pub request: Duration,
    /// How long a connection may be idle between requests (`client_idle_pconn_timeout`).
    pub idle: Duration,
    /// How long a client may take nothing of its answer (`write_timeout`).
    pub write: Duration,
    /// How long a client may send nothing of a body (`read_timeout`).
    pub read: Duration,
    /// How long a connection may live (`client_lifetime`).
    pub lifetime: Duration,
    /// A client that has closed its sending half may still read (`half_closed_clients`).
    pub half_closed: bool,
}

impl Default for ClientSettings {
    /// Squid's defaults.
    fn default() -> Self {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        Self {
            limits: HeadLimits::default(),
            persistent: true,
            request_start: minutes(5),
            request: minutes(5),
            idle: minutes(2),
            write: minutes(15),
            read: minutes(15),
            lifetime: minutes(24 * 60),
            half_closed: false,
        }
    }
}

/// Timers, buffers and counters of one core's exchanges.
pub struct CoreIo {
    /// Coarse timers.
    pub deadlines: Deadlines,
    /// Buffers that sockets are read into.
    pub read_buffers: ReadBuffers,
    /// Pipes for tunnels.
    pub(crate) pipes: Pipes,
    /// Wakes connections that agree on a protocol when the core starts to drain.
    pub drain: Notify,
    counters: Arc<Counters>,
    settings: RefCell<Rc<ClientSettings>>,
    head_buffer: RefCell<Vec<u8>>,
    draining: Cell<bool>,
}

impl CoreIo {
    /// Must be called on the thread that will use it, inside of its runtime.
    pub fn new(counters: Arc<Counters>, settings: ClientSettings) -> Rc<Self> {
        Rc::new(Self {
            deadlines: Deadlines::new(),
            read_buffers: ReadBuffers::default(),
            pipes: Pipes::default(),
            drain: Notify::new(),
            counters,
            settings: RefCell::new(Rc::new(settings)),
            head_buffer: RefCell::default(),
            draining: Cell::new(false),
        })
    }

    /// The core is one of this many, which share what pipes for tunnels there may be.
    pub fn share_pipes_among(&self, cores: usize) {
        self.pipes.share_among(cores);
    }

    /// Closes the pipes that no tunnel uses. Returns their number.
    pub fn close_spare_pipes(&self) -> usize {
        self.pipes.close_spare()
    }

    /// The settings in force.
    pub fn settings(&self) -> Rc<ClientSettings> {
        Rc::clone(&self.settings.borrow())
    }

    /// Replaces the settings. A request keeps those that it began with.
    pub fn reconfigure(&self, settings: ClientSettings) {
        self.settings.replace(Rc::new(settings));
    }

    /// Adds to one of the core's counters.
    pub fn count(&self, counter: Counter, n: u64) {
        self.counters.add(counter, n);
    }

    /// The core's counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether no connection is kept alive any more.
    pub fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Ends idle connections now and the others after their answer.
    pub fn start_draining(&self) {
        self.draining.set(true);
        self.drain.notify_waiters();
        // One that waits for a request waits at its deadline too.
        self.deadlines.wake_all();
    }

    /// An empty buffer to write a head in, with the capacity of an earlier one.
    pub(crate) fn take_head_buffer(&self) -> Vec<u8> {
        self.head_buffer.take()
    }

    /// Keeps the buffer's capacity for the next head.
    pub(crate) fn return_head_buffer(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() > 0 && buffer.capacity() <= HEAD_BUFFER_BYTES_MAX {
            buffer.clear();
            self.head_buffer.replace(buffer);
        }
    }
}
