//! The near end of all tunnels: asks the proxy for them, in the thread that measures.

use super::{Contents, FarEnd, Flow, HEADER_BYTES, PIECE_BYTES, TICK_US, TURN_BYTES};
use super::{TunnelReport, TunnelTick, Tunnels, turns};
use crate::answer::Step;
use crate::chain::{Chain, Links};
use crate::connection::Connection;
use crate::exchange::is_own_limit;
use crate::expected::{Asked, fault};
use crate::plan::RobotsError;
use crate::request::write_connect;
use crate::slab::Slab;
use humboldt_lab_record::{Fault, FaultKind};
use humboldt_lab_tls::Got;
use humboldt_lab_wire::{Clock, Poller, Ready, thread_cpu_us};
use rustix::io::Errno;
use std::time::Duration;

struct Loop<'t> {
    plan: &'t Tunnels,
    far: &'t FarEnd,
    contents: Contents,
    clock: Clock,
    poller: Poller,
    tunnels: Slab<Tunnel>,
    /// Those that are not open yet, the longest first.
    ages: Chain,
    links: Links,
    /// Tunnels that can go on without an event.
    unfinished: Vec<u32>,
    buffer: Vec<u8>,
    report: TunnelReport,
}

/// One tunnel.
struct Tunnel {
    connection: Connection,
    number: u64,
    begin_us: u64,
    /// A byte came from the far end.
    is_open: bool,
    up: Flow,
    down: Flow,
}

pub(super) fn run(
    plan: &Tunnels,
    far: &FarEnd,
    on_tick: &mut dyn FnMut(TunnelTick) -> bool,
) -> Result<TunnelReport, RobotsError> {
    let system = |source| RobotsError::System { what: "wait for sockets", source };
    let (near_cpu_us, far_cpu_us, up_bytes) = (thread_cpu_us(), far.cpu_us(), far.up_bytes());
    let mut state = Loop {
        plan,
        far,
        contents: Contents::new()?,
        clock: Clock::start(),
        poller: Poller::new().map_err(system)?,
        tunnels: Slab::default(),
        ages: Chain::default(),
        links: Links::default(),
        unfinished: Vec::new(),
        buffer: vec![0; PIECE_BYTES],
        report: TunnelReport::default(),
    };
    let (mut events, mut tick_us) = (Vec::new(), TICK_US);
    let time_max_us = (plan.time_max_s * 1e6) as u64;
    // What came of tunnels of an earlier measurement.
    drop((far.take_faults(), far.take_own_limit()));
    state.begin_all();
    while state.tunnels.len() > 0 && state.clock.now_us() < time_max_us {
        let rest_us = tick_us.min(time_max_us).saturating_sub(state.clock.now_us());
        let timeout = if state.unfinished.is_empty() {
            Duration::from_micros(rest_us)
        } else {
            Duration::ZERO
        };
        state.poller.wait_into(&mut events, Some(timeout)).map_err(system)?;
        let unfinished = std::mem::take(&mut state.unfinished);
        let ready: Vec<u32> = events.iter().filter_map(|ready| state.on_ready(*ready)).collect();
        turns(unfinished, ready.into_iter()).into_iter().for_each(|slot| state.go_on(slot));
        state.give_up_the_oldest();
        state.note_own_limit(far.take_own_limit());
        if state.report.is_in_vain() || state.report.own_limit.is_some() {
            break;
        }
        if state.clock.now_us() >= tick_us {
            tick_us = state.clock.now_us() + TICK_US;
            let faults = state.report.faults.values().sum();
            let bytes = state.report.down_bytes + far.up_bytes() - up_bytes;
            let (at_us, done) = (state.clock.now_us(), state.report.done);
            if !on_tick(TunnelTick { at_us, done, bytes, faults }) {
                break;
            }
        }
    }
    let mut report = state.report;
    report.wall_us = state.clock.now_us();
    report.up_bytes = far.up_bytes() - up_bytes;
    report.near_cpu_us = thread_cpu_us() - near_cpu_us;
    report.far_cpu_us = far.cpu_us() - far_cpu_us;
    for (number, fault) in far.take_faults() {
        report.add_fault(number, humboldt_lab_wire::unix_us(), fault);
    }
    Ok(report)
}

impl Loop<'_> {
    fn begin_all(&mut self) {
        for _ in 0..self.plan.tunnels {
            if self.report.own_limit.is_none() {
                self.begin();
            }
        }
    }

    /// Begins a tunnel. One that cannot be begun is a fault, and its place stays empty.
    fn begin(&mut self) {
        let number = self.report.begun;
        self.report.begun += 1;
        let (up, down) = self.contents.flows(number, self.plan.up_bytes, self.plan.down_bytes);
        let begin_us = self.clock.now_us();
        let connection = match Connection::open(&self.plan.proxy, 0, 0, u32::MAX) {
            Ok(connection) => connection,
            Err(error) if is_own_limit(error) => {
                self.report.begun -= 1;
                return self.note_own_limit(Some(error));
            }
            Err(error) => {
                let got = format!("{}: {error}", self.plan.proxy);
                return self
                    .note(number, fault(FaultKind::Refused, None, "a connection".into(), got));
            }
        };
        let connecting = connection.connecting;
        let slot =
            self.tunnels.insert(Tunnel { connection, number, begin_us, is_open: false, up, down });
        self.ages.push_back(&mut self.links, slot);
        let token = self.tunnels.token(slot);
        let Some(tunnel) = self.tunnels.get(slot) else { return };
        if let Err(error) = self.poller.add_stream(&tunnel.connection, token) {
            let got = error.to_string();
            self.end(slot, Err(fault(FaultKind::Refused, None, "a connection".into(), got)));
        } else if !connecting {
            self.ask(slot);
        }
    }

    /// The laboratory's own limit is not the proxy's fault: it ends the measurement.
    fn note_own_limit(&mut self, limit: Option<Errno>) {
        if let Some(limit) = limit {
            self.report.own_limit.get_or_insert_with(|| limit.to_string());
        }
    }

    fn note(&mut self, number: u64, fault: Fault) {
        // If the far end saw wrong bytes and closed, that is the cause.
        let fault = self.far.take_fault(number).unwrap_or(fault);
        self.report.add_fault(number, self.clock.unix_us(), fault);
    }

    /// Asks the proxy for the tunnel.
    fn ask(&mut self, slot: u32) {
        let Some(tunnel) = self.tunnels.get_mut(slot) else { return };
        let mut request = Vec::new();
        write_connect(true, self.far.address().to_string().as_bytes(), &mut request);
        tunnel.connection.reader.begin(Asked::Tunnel { allowed: true });
        if let Err(error) = tunnel.connection.send(&request) {
            self.end(slot, Err(lost(&error.to_string())));
        }
    }

    /// Something happened to a tunnel; the tunnel, if it is its turn for that.
    fn on_ready(&mut self, ready: Ready) -> Option<u32> {
        let slot = self.tunnels.by_token(ready.token)?;
        let tunnel = self.tunnels.get_mut(slot)?;
        if tunnel.connection.connecting {
            if !ready.writable {
                return None;
            }
            if let Err(error) = tunnel.connection.finish_connecting() {
                let got = format!("{}: {error}", self.plan.proxy);
                let fault = fault(FaultKind::Refused, None, "a connection".into(), got);
                self.end(slot, Err(fault));
            } else {
                self.ask(slot);
            }
            return None;
        }
        Some(slot)
    }

    /// Reads and sends as much as there is, and as its turn allows.
    fn go_on(&mut self, slot: u32) {
        let mut turn_bytes = 0;
        loop {
            let Some(tunnel) = self.tunnels.get_mut(slot) else { return };
            if tunnel.connection.connecting {
                // Another one, which took the place of the one that could go on.
                return;
            }
            let count = match tunnel.connection.receive(&mut self.buffer) {
                Ok(Got::Bytes(count)) => count,
                Ok(Got::NothingYet) => break,
                Ok(Got::End | Got::Cut) => {
                    return self.end(slot, Err(lost("the end of the connection")));
                }
                Err(error) => return self.end(slot, Err(lost(&error.to_string()))),
            };
            match self.take(slot, count) {
                Ok(false) => {}
                Ok(true) => return self.end(slot, Ok(())),
                Err(fault) => return self.end(slot, Err(fault)),
            }
            turn_bytes += count;
            if turn_bytes >= TURN_BYTES {
                return self.unfinished.push(slot);
            }
        }
        match self.send(slot) {
            Ok(false) => {}
            Ok(true) => self.unfinished.push(slot),
            Err(fault) => self.end(slot, Err(fault)),
        }
    }

    /// Takes bytes that were read; whether the tunnel is done.
    fn take(&mut self, slot: u32, count: usize) -> Result<bool, Fault> {
        let (now_us, clock) = (self.clock.now_us(), self.clock);
        let Some(tunnel) = self.tunnels.get_mut(slot) else { return Ok(false) };
        let bytes = &self.buffer[..count];
        if !tunnel.connection.tunnelled {
            if let Step::Done(_) = tunnel.connection.reader.feed(bytes, || clock.unix_us())? {
                tunnel.connection.tunnelled = true;
                let mut header = [0; HEADER_BYTES];
                let numbers = [tunnel.number, tunnel.up.end, tunnel.down.end];
                for (part, number) in header.chunks_mut(8).zip(numbers) {
                    part.copy_from_slice(&number.to_be_bytes());
                }
                tunnel.connection.send(&header).map_err(|error| lost(&error.to_string()))?;
            }
            return Ok(false);
        }
        tunnel.down.take(bytes)?;
        self.report.down_bytes += count as u64;
        if !std::mem::replace(&mut tunnel.is_open, true) {
            self.report.opened.record_us(now_us.saturating_sub(tunnel.begin_us));
            self.ages.remove(&mut self.links, slot);
        }
        Ok(tunnel.down.left() == 0)
    }

    /// Sends as much as there is room for; whether it could go on.
    fn send(&mut self, slot: u32) -> Result<bool, Fault> {
        let Some(tunnel) = self.tunnels.get_mut(slot) else { return Ok(false) };
        let broken = |error: humboldt_lab_tls::ChannelError| lost(&error.to_string());
        tunnel.connection.send_rest().map_err(broken)?;
        let mut sent_bytes = 0;
        while tunnel.connection.tunnelled
            && tunnel.up.left() > 0
            && tunnel.connection.has_sent_all()
        {
            let piece = tunnel.up.fill(tunnel.up.left(), &mut self.buffer);
            tunnel.connection.send(piece).map_err(broken)?;
            tunnel.up.at += piece.len() as u64;
            sent_bytes += piece.len();
            if sent_bytes >= TURN_BYTES {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn give_up_the_oldest(&mut self) {
        let timeout_us = (self.plan.timeout_s * 1e6) as u64;
        while let Some(tunnel) = self.tunnels.get(self.ages.first) {
            if tunnel.begin_us + timeout_us > self.clock.now_us() {
                return;
            }
            let expected = format!("a tunnel within {} s", self.plan.timeout_s);
            let got = match tunnel.connection.tunnelled {
                true => "no byte from the far end".to_owned(),
                false => tunnel.connection.reader.progress(),
            };
            self.end(self.ages.first, Err(fault(FaultKind::TimedOut, None, expected, got)));
        }
    }

    /// A tunnel is over; the next one may begin.
    fn end(&mut self, slot: u32, outcome: Result<(), Fault>) {
        let Some(tunnel) = self.tunnels.remove(slot) else { return };
        if !tunnel.is_open {
            self.ages.remove(&mut self.links, slot);
        }
        let number = tunnel.number;
        // Closed before the next one begins, so that there are never more than allowed.
        drop(tunnel);
        match outcome {
            Ok(()) => self.report.done += 1,
            Err(fault) => self.note(number, fault),
        }
        if self.plan.renews && !self.report.is_in_vain() && self.report.own_limit.is_none() {
            self.begin();
        }
    }
}

fn lost(got: &str) -> Fault {
    fault(FaultKind::Disconnected, None, "the bytes of the tunnel".into(), got.to_owned())
}
