//! Requests and connections: the connection of each request, and the use of its answer.

use crate::answer::{Answer, Step};
use crate::asks::Pending;
use crate::chain::NONE;
use crate::connection::{Connection, Loss};
use crate::counts::Took;
use crate::expected::{Asked, AskedObject};
use crate::plan::{TlsWay, scheme};
use crate::request::{Manner, write_connect, write_request, write_url};
use crate::secure;
use crate::world::World;
use humboldt_lab_record::{Fault, FaultKind, FaultSample};
use humboldt_lab_tls::{Got, Handshake};
use humboldt_lab_wire::Ready;
use humboldt_lab_workload::{Ask, AskKind, Facts};
use rustix::io::Errno;

impl World {
    /// Gives connections to all waiting requests for which there is room.
    pub(crate) fn serve_all(&mut self) {
        while let Some(robot) = self.crowd.next_to_serve() {
            self.serve(robot);
        }
    }

    /// Gives connections to this user's requests, in order, as long as there are any.
    pub(crate) fn serve(&mut self, robot: u32) {
        while let Some(slot) = self.crowd.first_waiting(robot) {
            let Some(pending) = self.asks.get(slot) else { return };
            let target = self.shared.target_of(&pending.ask);
            // A request that was lost on a connection that was being closed goes on a new one.
            let may_reuse = !pending.retried && !self.shared.needs_new_connection(&pending.ask);
            let on_target = |c: &u32| self.connections.get(*c).is_some_and(|c| c.target == target);
            let idle = self.crowd.idle(robot).find(on_target).filter(|_| may_reuse);
            if let Some(connection) = idle {
                self.crowd.remove_idle(robot, connection);
                self.crowd.stop_waiting(robot, slot);
                self.put_on(connection, slot);
                self.send(connection);
            } else if self.make_room(robot) {
                self.crowd.stop_waiting(robot, slot);
                if !self.open(robot, target, slot) {
                    return;
                }
            } else {
                return;
            }
        }
    }

    /// Whether this user may open one more connection; closes an idle one for it if necessary.
    fn make_room(&mut self, robot: u32) -> bool {
        let plan = &self.shared.plan;
        let per_robot =
            plan.workload.connections_per_robot().max(1) as usize * self.shared.targets.len();
        if self.crowd.open(robot) as usize >= per_robot {
            let Some(idle) = self.crowd.idle(robot).last() else { return false };
            self.close_idle(idle);
        }
        if self.connections.len() >= self.shared.connections_max {
            let Some(idle) = self.crowd.longest_idle() else {
                self.crowd.starve(robot);
                return false;
            };
            self.close_idle(idle);
        }
        true
    }

    /// Opens a connection for a request; false if this host has no room for one, so that the
    /// request goes on waiting.
    fn open(&mut self, robot: u32, target: usize, slot: u32) -> bool {
        self.connections_made += 1;
        let luck =
            self.shared.plan.seed ^ self.connections_made.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let uses = self.shared.plan.workload.client_uses(luck).max(1);
        let opened = Connection::open(&self.shared.targets[target], robot, target, uses);
        let connection = match opened {
            Ok(connection) => self.connections.insert(connection),
            // The laboratory's own limit is not the server's fault: an idle connection, or the next
            // to close, makes room.
            Err(error) if is_own_limit(error) && self.connections.len() > 0 => {
                self.crowd.starve(robot);
                self.crowd.wait_again(robot, slot);
                if let Some(idle) = self.crowd.longest_idle() {
                    self.close_idle(idle);
                }
                return false;
            }
            Err(error) => {
                self.refuse(slot, target, error);
                return true;
            }
        };
        self.counts.tally.connects += 1;
        self.crowd.add_connection(robot);
        self.put_on(connection, slot);
        let token = self.connections.token(connection);
        let Some(state) = self.connections.get(connection) else { return true };
        let (watched, connecting) = (self.poller.add_stream(state, token), state.connecting);
        if let Err(error) = watched {
            self.fail(connection, refused(&error.to_string()));
        } else if !connecting {
            self.send(connection);
        }
        true
    }

    /// From here on the request waits for others than this thread, so here its lag is known.
    fn put_on(&mut self, connection: u32, slot: u32) {
        let now_us = self.clock.now_us();
        let Some(state) = self.connections.get_mut(connection) else { return };
        let Some(pending) = self.asks.get_mut(slot) else { return };
        state.ask = slot;
        pending.connection = connection;
        if !pending.waited {
            let late_us = now_us.saturating_sub(pending.due_us + self.send_delay_us);
            self.counts.tally.lag.record_us(late_us);
        }
    }

    /// Sends the request that a connection has, or what must come before it.
    fn send(&mut self, connection: u32) {
        if let Err(error) = self.secure(connection) {
            return self.fail(connection, secure::fault(error.to_string()));
        }
        let sent_unix_us = self.clock.unix_us();
        let Some(state) = self.connections.get_mut(connection) else { return };
        let Some(pending) = self.asks.get(state.ask) else { return };
        let (shared, ask) = (&self.shared, &pending.ask);
        let plan = &shared.plan;
        let origin = &shared.origin_names[ask.name.origin_index(shared.origin_names.len())];
        self.out.clear();
        match shared.tunnel_for(ask) {
            Some(allowed) if !state.tunnelled => {
                write_connect(allowed, origin, &mut self.out);
                state.reader.begin(Asked::Tunnel { allowed });
            }
            _ => {
                let facts = plan.workload.facts(plan.seed, &ask.name);
                let manner = Manner { route: &plan.route, origin, tunnelled: state.tunnelled };
                write_request(&plan.workload, manner, ask, &facts, sent_unix_us, &mut self.out);
                state.reader.begin(Asked::Object(AskedObject {
                    ask: *ask,
                    facts,
                    tunnelled: state.tunnelled && shared.way() != Some(TlsWay::Intercept),
                    sent_unix_us,
                    excuse_reload_hits: plan.excuse_reload_hits,
                }));
            }
        }
        // A tunnel that carries requests is none itself.
        let is_request = state.tunnelled || !shared.has_tunnels();
        state.uses_left = state.uses_left.saturating_sub(u32::from(is_request));
        let sent = state.send(&self.out);
        self.counts.tally.sent += u64::from(self.asks.note_sent(state.ask));
        if let Err(error) = sent {
            self.lost(connection, Loss::Broken(error));
        }
    }

    /// Something happened to a connection.
    pub(crate) fn on_ready(&mut self, ready: Ready) {
        let Some(connection) = self.connections.by_token(ready.token) else { return };
        let Some(state) = self.connections.get_mut(connection) else { return };
        if state.connecting {
            if !ready.writable {
                return;
            }
            if let Err(error) = state.finish_connecting() {
                let fault = refused(&format!("{}: {error}", self.target_name(connection)));
                return self.fail(connection, fault);
            }
            self.send(connection);
        } else if ready.writable
            && !state.has_sent_all()
            && let Err(error) = state.send_rest()
        {
            return self.lost(connection, Loss::Broken(error));
        }
        if ready.readable {
            self.receive(connection, ready.closed);
        }
    }

    /// Reads until there is nothing more, or the answer is complete.
    fn receive(&mut self, connection: u32, closed: bool) {
        loop {
            let Some(state) = self.connections.get_mut(connection) else { return };
            let received = state.receive(&mut self.buffer);
            if let Some(handshake) = state.take_handshake() {
                self.counts.tally.handshakes.add(handshake == Handshake::Resumed);
            }
            let count = match received {
                Ok(Got::Bytes(count)) => count,
                Ok(Got::NothingYet) => return,
                Ok(Got::End) => return self.lost(connection, Loss::Ended),
                Ok(Got::Cut) => return self.lost(connection, Loss::Cut),
                Err(error) => return self.lost(connection, Loss::Broken(error)),
            };
            let drained = state.has_drained(count, self.buffer.len());
            let bytes = &self.buffer[..count];
            if state.ask == NONE {
                let fault = state.reader.surplus(bytes);
                return self.close_talkative(connection, fault);
            }
            let clock = &self.clock;
            match state.reader.feed(bytes, || clock.unix_us()) {
                Err(fault) => return self.fail(connection, fault),
                Ok(Step::Done(answer)) => return self.answered(connection, answer, closed),
                Ok(Step::More) if self.wants_to_abort(connection) => return self.abort(connection),
                Ok(Step::More) => {}
            }
            if drained && !closed {
                return;
            }
        }
    }

    fn wants_to_abort(&self, connection: u32) -> bool {
        let Some(state) = self.connections.get(connection) else { return false };
        let aborts = self.asks.get(state.ask).is_some_and(|pending| pending.ask.abort);
        aborts && state.reader.is_past_half()
    }

    fn abort(&mut self, connection: u32) {
        self.counts.tally.aborted += 1;
        self.forget_ask(connection);
        self.close(connection);
    }

    /// The answer is complete and right.
    fn answered(&mut self, connection: u32, answer: Answer, closed: bool) {
        let Some(state) = self.connections.get_mut(connection) else { return };
        let Some(pending) = self.asks.get(state.ask) else { return };
        let is_tunnel = matches!(pending.ask.kind, AskKind::Connect { .. });
        if pending.ask.abort && (state.tunnelled || !self.shared.has_tunnels()) {
            return self.abort(connection);
        }
        let wants_tunnel = self.shared.tunnel_for(&pending.ask).is_some();
        if wants_tunnel && !state.tunnelled && (200..300).contains(&answer.status) {
            state.tunnelled = true;
            return self.send(connection);
        }
        state.answers += 1;
        let may_stay = answer.keep_alive && !closed && !is_tunnel && state.has_sent_all();
        let (robot, used_up, facts) = (state.robot, state.uses_left == 0, state.reader.facts());
        if let Some(pending) = self.forget_ask(connection) {
            self.count_answer(&pending, facts, answer);
        }
        if may_stay && !used_up && !self.crowd.is_surplus(robot) {
            self.crowd.put_idle(robot, connection);
        } else {
            self.close(connection);
        }
    }

    /// The connection is gone. The consequence depends on the progress of the answer.
    fn lost(&mut self, connection: u32, loss: Loss) {
        let Some(state) = self.connections.get_mut(connection) else { return };
        if state.ask == NONE {
            return self.close_idle(connection);
        }
        let (slot, robot) = (state.ask, state.robot);
        let is_used_again = state.answers > 0 && (!state.tunnelled || state.is_tls());
        let race = is_used_again && state.reader.is_untouched();
        if let Some(pending) = self.asks.get_mut(slot).filter(|pending| race && !pending.retried) {
            // RFC 9112, 9.3.1: the server closed an idle connection while the request was on its
            // way.
            (pending.retried, pending.waited) = (true, true);
            pending.connection = NONE;
            self.crowd.wait_in_front(robot, slot);
            return self.close(connection);
        }
        match loss.outcome(&mut state.reader) {
            Ok(answer) => self.answered(connection, answer, true),
            Err(fault) => self.fail(connection, fault),
        }
    }

    /// A request has been due for too long.
    pub(crate) fn give_up(&mut self, slot: u32) {
        let Some(pending) = self.asks.get(slot) else { return };
        let expected = format!("an answer within {} s", self.shared.plan.timeout_s);
        let connection = pending.connection;
        let got = match self.connections.get(connection) {
            None => "never sent: no connection was free".into(),
            Some(state) if state.connecting => "not connected".into(),
            Some(state) => state.reader.progress(),
        };
        let fault = Fault { kind: FaultKind::TimedOut, offset: None, expected, got };
        if connection == NONE {
            self.crowd.stop_waiting(pending.robot, slot);
            if let Some(pending) = self.asks.remove(slot) {
                self.record_fault(&pending.ask, fault);
            }
        } else {
            self.fail(connection, fault);
        }
    }

    fn refuse(&mut self, slot: u32, target: usize, error: Errno) {
        let fault = refused(&format!("{}: {error}", self.shared.targets[target]));
        if let Some(pending) = self.asks.remove(slot) {
            self.record_fault(&pending.ask, fault);
        }
    }

    /// A connection's request came to a bad end, and the connection with it.
    fn fail(&mut self, connection: u32, fault: Fault) {
        if let Some(pending) = self.forget_ask(connection) {
            self.record_fault(&pending.ask, fault);
        }
        self.close(connection);
    }

    /// Takes the request off a connection and out of the backlog.
    fn forget_ask(&mut self, connection: u32) -> Option<Pending> {
        let state = self.connections.get_mut(connection)?;
        self.asks.remove(std::mem::replace(&mut state.ask, NONE))
    }

    /// Closes a connection that is not in the list of idle ones.
    fn close(&mut self, connection: u32) {
        if let Some(state) = self.connections.remove(connection) {
            self.crowd.remove_connection(state.robot);
        }
    }

    /// Closes an idle connection.
    pub(crate) fn close_idle(&mut self, connection: u32) {
        if let Some(robot) = self.connections.get(connection).map(|state| state.robot) {
            self.crowd.remove_idle(robot, connection);
            self.close(connection);
        }
    }

    /// Closes an idle connection on which bytes came.
    fn close_talkative(&mut self, connection: u32, fault: Option<Fault>) {
        let asked = self.connections.get(connection).and_then(|state| state.reader.asked_object());
        if let (Some(fault), Some(ask)) = (fault, asked) {
            self.record_fault(&ask, fault);
        }
        self.close_idle(connection);
    }

    fn target_name(&self, connection: u32) -> String {
        let target = self
            .connections
            .get(connection)
            .and_then(|state| self.shared.targets.get(state.target));
        target.map(ToString::to_string).unwrap_or_default()
    }

    pub(crate) fn record_fault(&mut self, ask: &Ask, fault: Fault) {
        let origin =
            &self.shared.origin_names[ask.name.origin_index(self.shared.origin_names.len())];
        let mut url = Vec::new();
        let plan = &self.shared.plan;
        write_url(&plan.workload, scheme(plan.tls.as_ref()), origin, ask, &mut url);
        let url = String::from_utf8_lossy(&url).into_owned();
        self.counts.tally.add_fault(FaultSample { at_us: self.clock.unix_us(), url, fault });
    }

    fn count_answer(&mut self, pending: &Pending, facts: Option<Facts>, answer: Answer) {
        let (shared, ask, now_us) = (&self.shared, &pending.ask, self.clock.now_us());
        let plan = &shared.plan;
        let took = Took::new(shared, ask.id, &answer, now_us.saturating_sub(pending.due_us));
        let facts = facts.unwrap_or_else(|| plan.workload.facts(plan.seed, &ask.name));
        self.counts.add_answer(ask, &facts, &answer, took);
    }
}

/// Too few descriptors, ports or buffers here.
pub(crate) fn is_own_limit(error: Errno) -> bool {
    matches!(
        error,
        Errno::MFILE | Errno::NFILE | Errno::ADDRNOTAVAIL | Errno::NOBUFS | Errno::NOMEM
    )
}

fn refused(got: &str) -> Fault {
    Fault {
        kind: FaultKind::Refused,
        offset: None,
        expected: "a connection".into(),
        got: got.into(),
    }
}
