//! The far end of all tunnels: a server with a thread of its own.

use super::{Contents, Flow, HEADER_BYTES, PIECE_BYTES, TUNNELS_MAX, TURN_BYTES, turns};
use crate::exchange::is_own_limit;
use crate::plan::RobotsError;
use crate::slab::Slab;
use humboldt_lab_record::Fault;
use humboldt_lab_tls::{Channel, Got};
use humboldt_lab_wire::{Poller, Waker, pin, thread_cpu_us};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The token of the listener: no slot has it.
const LISTENER: u64 = 1 << 63;

/// The counts that both threads see.
#[derive(Debug, Default)]
struct Counts {
    up_bytes: AtomicU64,
    cpu_us: AtomicU64,
    /// By number of the tunnel, until the near end asks.
    faults: Mutex<BTreeMap<u64, Fault>>,
    /// The system's number for the limit of this host that was met, or 0.
    own_limit: AtomicI32,
    stop: AtomicBool,
}

impl Counts {
    fn note(&self, number: u64, fault: Fault) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        // The near end takes those of its tunnels. Others come of damaged headers.
        if faults.len() < TUNNELS_MAX * 2 {
            faults.entry(number).or_insert(fault);
        }
    }
}

/// The running far end. Dropping it ends it.
#[derive(Debug)]
pub struct FarEnd {
    address: SocketAddr,
    counts: Arc<Counts>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl FarEnd {
    /// Listens, on any port with port 0; `core`: pins its thread there.
    ///
    /// # Errors
    ///
    /// The address is in use, or the system refuses a descriptor or a thread.
    pub fn start(listen: SocketAddr, core: Option<usize>) -> Result<Self, RobotsError> {
        let system = |source| RobotsError::System { what: "start the far end", source };
        let listener = TcpListener::bind(listen).map_err(system)?;
        listener.set_nonblocking(true).map_err(system)?;
        let address = listener.local_addr().map_err(system)?;
        let poller = Poller::new().map_err(system)?;
        poller.add_listener(&listener, LISTENER).map_err(system)?;
        let (waker, counts) = (poller.waker(), Arc::new(Counts::default()));
        let mut server = Server {
            poller,
            listener,
            contents: Contents::new()?,
            tunnels: Slab::default(),
            unfinished: Vec::new(),
            buffer: vec![0; PIECE_BYTES],
            counts: Arc::clone(&counts),
        };
        let body = move || {
            if let Some(core) = core {
                // Where it runs is a matter of speed only.
                let _ = pin(core);
            }
            server.run();
        };
        let builder = std::thread::Builder::new().name("far-end".to_owned());
        let thread = Some(builder.spawn(body).map_err(system)?);
        Ok(Self { address, counts, waker, thread })
    }

    /// The address for CONNECT.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Right bytes that came up so far.
    pub(super) fn up_bytes(&self) -> u64 {
        self.counts.up_bytes.load(Ordering::Relaxed)
    }

    /// CPU time of its thread so far, in µs.
    pub(super) fn cpu_us(&self) -> u64 {
        self.counts.cpu_us.load(Ordering::Relaxed)
    }

    /// What was wrong in this tunnel, once. It is known before the tunnel is closed for it.
    pub(super) fn take_fault(&self, number: u64) -> Option<Fault> {
        self.counts.faults.lock().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    /// All faults that nobody asked for, with the numbers of their tunnels.
    pub(super) fn take_faults(&self) -> BTreeMap<u64, Fault> {
        std::mem::take(&mut self.counts.faults.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The limit of this host that was met since the last call.
    pub(super) fn take_own_limit(&self) -> Option<Errno> {
        let number = self.counts.own_limit.swap(0, Ordering::Relaxed);
        (number != 0).then(|| Errno::from_raw_os_error(number))
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        self.counts.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // If it panicked, it has told why.
            let _ = thread.join();
        }
    }
}

struct Server {
    poller: Poller,
    listener: TcpListener,
    contents: Contents,
    tunnels: Slab<Tunnel>,
    /// Tunnels that can go on without an event.
    unfinished: Vec<u32>,
    buffer: Vec<u8>,
    counts: Arc<Counts>,
}

/// One tunnel.
struct Tunnel {
    channel: Channel,
    number: u64,
    header: Vec<u8>,
    /// Up and down, when the header is here.
    flows: Option<(Flow, Flow)>,
}

/// What a turn of a tunnel leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Waits,
    GoesOn,
    Ends,
}

impl Server {
    fn run(&mut self) {
        let mut events = Vec::new();
        while !self.counts.stop.load(Ordering::Relaxed) {
            let timeout = (!self.unfinished.is_empty()).then_some(Duration::ZERO);
            if self.poller.wait_into(&mut events, timeout).is_err() {
                return;
            }
            if events.iter().any(|event| event.token == LISTENER) {
                self.accept();
            }
            let ready = events.iter().filter_map(|event| self.tunnels.by_token(event.token));
            for slot in turns(std::mem::take(&mut self.unfinished), ready) {
                match self.turn(slot) {
                    Turn::Waits => {}
                    Turn::GoesOn => self.unfinished.push(slot),
                    Turn::Ends => drop(self.tunnels.remove(slot)),
                }
            }
            self.counts.cpu_us.store(thread_cpu_us(), Ordering::Relaxed);
        }
    }

    fn accept(&mut self) {
        // One at a time: the listener tells again if there are more. Beyond the limit they are
        // accepted and closed, so that the near end learns of it.
        let stream = match self.listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                let limit = Errno::from_io_error(&error).filter(|error| is_own_limit(*error));
                if let Some(limit) = limit {
                    self.counts.own_limit.store(limit.raw_os_error(), Ordering::Relaxed);
                }
                return;
            }
        };
        if stream.set_nonblocking(true).is_err() || self.tunnels.len() >= TUNNELS_MAX * 2 {
            return;
        }
        // A last small piece must not wait for an acknowledgement.
        let _ = stream.set_nodelay(true);
        let channel = Channel::plain(stream.into());
        let slot =
            self.tunnels.insert(Tunnel { channel, number: 0, header: Vec::new(), flows: None });
        let token = self.tunnels.token(slot);
        let is_watched = self
            .tunnels
            .get(slot)
            .is_some_and(|tunnel| self.poller.add_stream(&tunnel.channel, token).is_ok());
        if !is_watched {
            self.tunnels.remove(slot);
        }
    }

    fn turn(&mut self, slot: u32) -> Turn {
        let Some(tunnel) = self.tunnels.get_mut(slot) else { return Turn::Waits };
        let (mut read_bytes, mut rest) = (0, Turn::Waits);
        while rest == Turn::Waits {
            match tunnel.channel.receive(&mut self.buffer) {
                Ok(Got::Bytes(count)) => {
                    let taken = tunnel.take(&self.buffer[..count], &self.contents, &self.counts);
                    if let Err(fault) = taken {
                        self.counts.note(tunnel.number, fault);
                        return Turn::Ends;
                    }
                    read_bytes += count;
                }
                Ok(Got::NothingYet) => break,
                Ok(Got::End | Got::Cut) | Err(_) => return Turn::Ends,
            }
            if read_bytes >= TURN_BYTES {
                rest = Turn::GoesOn;
            }
        }
        // Also if there is more to read: the near end waits for the first byte of an upload.
        match tunnel.send(&mut self.buffer) {
            Turn::Waits => rest,
            turn => turn,
        }
    }
}

impl Tunnel {
    fn take(
        &mut self,
        mut bytes: &[u8],
        contents: &Contents,
        counts: &Counts,
    ) -> Result<(), Fault> {
        if self.flows.is_none() {
            let missing = (HEADER_BYTES - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            if self.header.len() < HEADER_BYTES {
                return Ok(());
            }
            let part = |index: usize| {
                let bytes = &self.header[8 * index..8 * index + 8];
                bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
            };
            self.number = part(0);
            self.flows = Some(contents.flows(self.number, part(1), part(2)));
        }
        let Some((up, _)) = &mut self.flows else { return Ok(()) };
        up.take(bytes)?;
        counts.up_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn send(&mut self, buffer: &mut [u8]) -> Turn {
        let Some((up, down)) = &mut self.flows else { return Turn::Waits };
        let mut sent_bytes = 0;
        // The last byte says that all bytes up were right.
        let kept_back = u64::from(up.left() > 0);
        while down.left() > kept_back {
            let piece = down.fill(down.left() - kept_back, buffer);
            let Ok(sent) = self.channel.send(piece) else { return Turn::Ends };
            down.at += sent as u64;
            sent_bytes += sent;
            if sent == 0 {
                return Turn::Waits;
            }
            if sent_bytes >= TURN_BYTES {
                return Turn::GoesOn;
            }
        }
        Turn::Waits
    }
}
