//! The far end of all tunnels: a server with a thread of its own.

use super::{Contents, Flow, HEADER_BYTES, PIECE_BYTES, TUNNELS_MAX, TURN_BYTES};
use crate::plan::RobotsError;
use crate::slab::Slab;
use humboldt_lab_record::Fault;
use humboldt_lab_tls::{Channel, Got};
use humboldt_lab_wire::{Poller, Waker, pin, thread_cpu_us};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    fault: Mutex<Option<(u64, Fault)>>,
    stop: AtomicBool,
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

    /// The first fault since the last call, with the number of its tunnel.
    pub(super) fn take_fault(&self) -> Option<(u64, Fault)> {
        self.counts.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
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
            let mut turns = std::mem::take(&mut self.unfinished);
            for event in &events {
                match event.token {
                    Poller::WAKE => {}
                    LISTENER => self.accept(),
                    token => turns.extend(self.tunnels.by_token(token)),
                }
            }
            turns.sort_unstable();
            turns.dedup();
            for slot in turns {
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
        let Ok((stream, _)) = self.listener.accept() else { return };
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
        let mut read_bytes = 0;
        loop {
            match tunnel.channel.receive(&mut self.buffer) {
                Ok(Got::Bytes(count)) => {
                    let taken = tunnel.take(&self.buffer[..count], &self.contents, &self.counts);
                    if let Err(fault) = taken {
                        let mut first =
                            self.counts.fault.lock().unwrap_or_else(PoisonError::into_inner);
                        first.get_or_insert((tunnel.number, fault));
                        return Turn::Ends;
                    }
                    read_bytes += count;
                }
                Ok(Got::NothingYet) => break,
                Ok(Got::End) | Err(_) => return Turn::Ends,
            }
            if read_bytes >= TURN_BYTES {
                return Turn::GoesOn;
            }
        }
        tunnel.send(&mut self.buffer)
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
