//! The banger's loop: as many requests at a time as there are connections, until there are no more
//! targets.

use super::pace::Pace;
use super::target::{Prepared, Preparer};
use super::{Bang, BangEvent, BangRecord, BangReport, BangTarget, TICK_US};
use crate::answer::{Answer, Step};
use crate::chain::{Chain, Links};
use crate::connection::{Connection, Loss};
use crate::expected::{Asked, fault};
use crate::plan::{RobotsError, TlsWay};
use crate::secure;
use crate::slab::Slab;
use humboldt_lab_record::{Fault, FaultKind};
use humboldt_lab_tls::{Got, Handshake, Users};
use humboldt_lab_wire::{Clock, Poller, Ready};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::time::Duration;

const READ_BYTES: usize = 256 * 1024;

/// How soon an idle connection looks again for targets.
const NOT_YET_PAUSE_US: u64 = 5_000;

struct Loop<'b, Targets> {
    bang: &'b Bang,
    targets: Targets,
    preparer: Preparer<'b>,
    clock: Clock,
    poller: Poller,
    busy: Slab<Busy>,
    /// Connections that wait for their next request, the longest first.
    resting: VecDeque<u32>,
    pace: Option<Pace>,
    /// Those under way, the longest first: all have the same time limit.
    ages: Chain,
    links: Links,
    buffer: Vec<u8>,
    /// The connections' memories of TLS.
    users: Option<Users>,
    report: BangReport,
    on_event: &'b mut dyn FnMut(BangEvent<'_>) -> bool,
    /// When time was last told.
    tick_us: u64,
    /// There was no target, but there may be one later.
    waiting: bool,
    stopped: bool,
}

/// One connection with its request.
struct Busy {
    connection: Connection,
    prepared: Prepared,
    begin_us: u64,
    /// It is answered, and its connection waits for the next one.
    rests: bool,
}

pub(super) fn run(
    bang: &Bang,
    targets: impl Iterator<Item = BangTarget>,
    on_event: &mut dyn FnMut(BangEvent<'_>) -> bool,
) -> Result<BangReport, RobotsError> {
    let system = |source| RobotsError::System { what: "wait for sockets", source };
    let poller = Poller::new().map_err(system)?;
    let mut state = Loop {
        bang,
        targets,
        preparer: Preparer::new(bang),
        clock: Clock::start(),
        poller,
        busy: Slab::default(),
        resting: VecDeque::new(),
        pace: bang.requests_per_s_max.map(Pace::new),
        ages: Chain::default(),
        links: Links::default(),
        buffer: vec![0; READ_BYTES],
        users: bang.tls.as_ref().map(|tls| tls.trust.users()),
        report: BangReport::default(),
        on_event,
        tick_us: 0,
        waiting: false,
        stopped: false,
    };
    let mut events = Vec::new();
    loop {
        state.begin_all();
        if state.stopped || (state.under_way() == 0 && !state.waiting) {
            return Ok(state.report);
        }
        let timeout = state.until_due();
        state.poller.wait_into(&mut events, Some(timeout)).map_err(system)?;
        events.iter().for_each(|ready| state.on_ready(*ready));
        state.give_up_the_oldest();
        state.tick();
    }
}

impl<Targets: Iterator<Item = BangTarget>> Loop<'_, Targets> {
    fn timeout_us(&self) -> u64 {
        (self.bang.timeout_s * 1e6) as u64
    }

    fn until_give_up(&self) -> Option<Duration> {
        let oldest = self.busy.get(self.ages.first)?;
        let at_us = oldest.begin_us + self.timeout_us();
        Some(Duration::from_micros(at_us.saturating_sub(self.clock.now_us())))
    }

    /// Until something is to be done even if no socket is ready.
    fn until_due(&self) -> Duration {
        let tick_us = (self.tick_us + TICK_US).saturating_sub(self.clock.now_us());
        let next_us = match self.until_next_us() {
            0 => NOT_YET_PAUSE_US,
            until_us => until_us,
        };
        let due_us = if self.waiting { tick_us.min(next_us) } else { tick_us };
        let due = Duration::from_micros(due_us);
        self.until_give_up().map_or(due, |give_up| give_up.min(due))
    }

    /// Until the pace allows the next request.
    fn until_next_us(&self) -> u64 {
        self.pace.as_ref().map_or(0, |pace| pace.until_next_us(self.clock.now_us()))
    }

    fn under_way(&self) -> usize {
        self.busy.len() - self.resting.len()
    }

    fn tick(&mut self) {
        let at_us = self.clock.now_us();
        if at_us >= self.tick_us + TICK_US {
            self.tick_us = at_us;
            let open = u32::try_from(self.under_way()).unwrap_or(u32::MAX);
            self.stopped |= !(self.on_event)(BangEvent::Tick { at_us, open });
        }
    }

    fn begin_all(&mut self) {
        self.waiting = false;
        while !self.stopped && self.under_way() < self.bang.connections_max {
            let Some(prepared) = self.next_prepared() else { return };
            match self.resting.pop_front() {
                Some(slot) => self.go_on(slot, prepared),
                None => self.begin(prepared, self.clock.now_us()),
            }
        }
    }

    /// The next request, if there is one and it is time for it.
    fn next_prepared(&mut self) -> Option<Prepared> {
        if self.until_next_us() > 0 {
            self.waiting = true;
            return None;
        }
        loop {
            let target = self.targets.next()?;
            if target == BangTarget::NotYet {
                self.waiting = true;
                return None;
            }
            match self.preparer.prepare(target, self.clock.unix_us()) {
                Ok(prepared) => {
                    self.report.requests += 1;
                    if let Some(pace) = &mut self.pace {
                        pace.begin(self.clock.now_us());
                    }
                    return Some(prepared);
                }
                Err(why) => {
                    self.report.unusable += 1;
                    self.report.first_unusable.get_or_insert(why);
                }
            }
        }
    }

    fn begin(&mut self, prepared: Prepared, begin_us: u64) {
        let connection = match Connection::open(&prepared.address, 0, 0, u32::MAX) {
            Ok(connection) => connection,
            Err(error) => {
                let fault = refused(&prepared, error);
                let verified = prepared.is_verified();
                return self.record(&prepared.url, verified, begin_us, Err(fault));
            }
        };
        let slot = self.busy.insert(Busy { connection, prepared, begin_us, rests: false });
        self.ages.push_back(&mut self.links, slot);
        let token = self.busy.token(slot);
        let Some(busy) = self.busy.get(slot) else { return };
        let (watched, connecting) =
            (self.poller.add_stream(&busy.connection, token), busy.connection.connecting);
        if let Err(error) = watched {
            let got = error.to_string();
            self.finish(slot, Err(fault(FaultKind::Refused, None, "a connection".into(), got)));
        } else if !connecting {
            self.send(slot);
        }
    }

    /// Sends the request, or first that for its tunnel.
    fn send(&mut self, slot: u32) {
        let Some(busy) = self.busy.get_mut(slot) else { return };
        let Busy { connection, prepared, .. } = busy;
        let way = self.bang.tls.as_ref().map(|tls| tls.way);
        let needs_tunnel = way.is_some_and(TlsWay::has_tunnels) && !connection.tunnelled;
        let sent = if needs_tunnel {
            connection.reader.begin(Asked::Tunnel { allowed: true });
            connection.send(&prepared.connect())
        } else {
            if let Some(users) = self.users.as_mut().filter(|_| !connection.is_tls()) {
                let name = prepared.tls_name(&self.bang.route);
                if let Err(error) = connection.begin_tls(users, slot, &name) {
                    return self.finish(slot, Err(secure::fault(error.to_string())));
                }
            }
            connection.reader.begin(prepared.asked);
            connection.send(&prepared.bytes)
        };
        if let Err(error) = sent {
            self.lost(slot, Loss::Broken(error));
        }
    }

    /// The proxy has made the tunnel: TLS begins in it.
    fn go_into_tunnel(&mut self, slot: u32) {
        let Some(busy) = self.busy.get_mut(slot) else { return };
        busy.connection.tunnelled = true;
        self.send(slot);
    }

    fn on_ready(&mut self, ready: Ready) {
        let Some(slot) = self.busy.by_token(ready.token) else { return };
        let Some(busy) = self.busy.get_mut(slot) else { return };
        if busy.rests {
            if ready.readable {
                self.hear_unasked(slot);
            }
            return;
        }
        if busy.connection.connecting {
            if !ready.writable {
                return;
            }
            if let Err(error) = busy.connection.finish_connecting() {
                let fault = refused(&busy.prepared, error);
                return self.finish(slot, Err(fault));
            }
            self.send(slot);
        } else if ready.writable
            && !busy.connection.has_sent_all()
            && let Err(error) = busy.connection.send_rest()
        {
            return self.lost(slot, Loss::Broken(error));
        }
        if ready.readable {
            self.receive(slot, ready.closed);
        }
    }

    /// Nothing was asked on a connection that rests: this is its end, or a fault of the answer
    /// before.
    fn hear_unasked(&mut self, slot: u32) {
        let Some(busy) = self.busy.get_mut(slot) else { return };
        let fault = match busy.connection.receive(&mut self.buffer) {
            Ok(Got::NothingYet) => return,
            Ok(Got::Bytes(count)) => busy.connection.reader.surplus(&self.buffer[..count]),
            Ok(Got::End | Got::Cut) | Err(_) => None,
        };
        self.resting.retain(|other| *other != slot);
        if let (Some(fault), Some(busy)) = (fault, self.busy.remove(slot)) {
            let verified = busy.prepared.is_verified();
            self.record(&busy.prepared.url, verified, busy.begin_us, Err(fault));
        }
    }

    fn receive(&mut self, slot: u32, closed: bool) {
        loop {
            let Some(busy) = self.busy.get_mut(slot) else { return };
            let received = busy.connection.receive(&mut self.buffer);
            if let Some(handshake) = busy.connection.take_handshake() {
                self.report.handshakes.add(handshake == Handshake::Resumed);
            }
            let count = match received {
                Ok(Got::Bytes(count)) => count,
                Ok(Got::NothingYet) => return,
                Ok(Got::End) => return self.lost(slot, Loss::Ended),
                Ok(Got::Cut) => return self.lost(slot, Loss::Cut),
                Err(error) => return self.lost(slot, Loss::Broken(error)),
            };
            let drained = busy.connection.has_drained(count, self.buffer.len());
            let is_tunnel = busy.connection.reader.is_for_tunnel();
            let clock = &self.clock;
            match busy.connection.reader.feed(&self.buffer[..count], || clock.unix_us()) {
                Err(fault) => return self.finish(slot, Err(fault)),
                Ok(Step::Done(_)) if is_tunnel => return self.go_into_tunnel(slot),
                Ok(Step::Done(answer)) => {
                    let keep_alive = answer.keep_alive && !closed;
                    return self.finish(slot, Ok(Answer { keep_alive, ..answer }));
                }
                Ok(Step::More) => {}
            }
            if drained && !closed {
                return;
            }
        }
    }

    /// The connection ended. A request on a used connection that was just being closed goes again
    /// on a new one.
    fn lost(&mut self, slot: u32, loss: Loss) {
        let Some(busy) = self.busy.get_mut(slot) else { return };
        if busy.connection.answers > 0 && busy.connection.reader.is_untouched() {
            let Some(busy) = self.take(slot) else { return };
            return self.begin(busy.prepared, busy.begin_us);
        }
        let outcome = loss.outcome(&mut busy.connection.reader);
        self.finish(slot, outcome);
    }

    fn give_up_the_oldest(&mut self) {
        while self.until_give_up() == Some(Duration::ZERO) {
            let slot = self.ages.first;
            let Some(busy) = self.busy.get(slot) else { return };
            let expected = format!("an answer within {} s", self.bang.timeout_s);
            let got = busy.connection.reader.progress();
            self.finish(slot, Err(fault(FaultKind::TimedOut, None, expected, got)));
        }
    }

    fn take(&mut self, slot: u32) -> Option<Busy> {
        let busy = self.busy.remove(slot)?;
        self.ages.remove(&mut self.links, slot);
        Some(busy)
    }

    /// The request is over. Its connection goes on with the next one, or is closed.
    fn finish(&mut self, slot: u32, outcome: Result<Answer, Fault>) {
        let may_stay =
            self.bang.keep_alive && outcome.as_ref().is_ok_and(|answer| answer.keep_alive);
        let Some(busy) = self.busy.get_mut(slot) else { return };
        let stays = may_stay && busy.connection.has_sent_all();
        let (verified, begin_us) = (busy.prepared.is_verified(), busy.begin_us);
        let url = std::mem::take(&mut busy.prepared.url);
        self.ages.remove(&mut self.links, slot);
        if !stays {
            // Closed before the next one begins, so that there are never more than allowed.
            self.busy.remove(slot);
        }
        self.record(&url, verified, begin_us, outcome);
        if !stays || self.stopped {
            return;
        }
        match self.next_prepared() {
            Some(next) => self.go_on(slot, next),
            None => self.rest(slot, url),
        }
    }

    /// The connection waits for its next request. The last one was for `url`.
    fn rest(&mut self, slot: u32, url: String) {
        let Some(busy) = self.busy.get_mut(slot) else { return };
        busy.rests = true;
        busy.prepared.url = url;
        self.resting.push_back(slot);
    }

    fn go_on(&mut self, slot: u32, next: Prepared) {
        let now_us = self.clock.now_us();
        let Some(busy) = self.busy.get_mut(slot) else { return };
        let is_elsewhere = busy.prepared.authority != next.authority;
        if busy.prepared.address != next.address || (busy.connection.is_tls() && is_elsewhere) {
            self.busy.remove(slot);
            return self.begin(next, now_us);
        }
        busy.connection.answers += 1;
        (busy.begin_us, busy.rests) = (now_us, false);
        busy.prepared = next;
        self.ages.push_back(&mut self.links, slot);
        self.send(slot);
    }

    fn record(&mut self, url: &str, verified: bool, begin_us: u64, outcome: Result<Answer, Fault>) {
        let service_us = self.clock.now_us().saturating_sub(begin_us);
        let tells_hits = verified || self.bang.hit_mark.is_some();
        let answer = outcome.as_ref().ok();
        let record = BangRecord {
            url,
            begin_us,
            service_us,
            status: answer.map(|answer| answer.status),
            body_bytes: answer.map_or(0, |answer| answer.body_bytes),
            hit: answer.filter(|_| tells_hits).map(|answer| !answer.from_origin),
            verified,
            fault: outcome.as_ref().err(),
        };
        self.report.add(&record, self.clock.unix_us());
        self.stopped |= !(self.on_event)(BangEvent::Ended(&record));
    }
}

fn refused(prepared: &Prepared, error: Errno) -> Fault {
    fault(FaultKind::Refused, None, "a connection".into(), format!("{}: {error}", prepared.address))
}
