//! Playing a scenario against a running proxy.

use crate::compose::Sender;
use crate::expect;
use crate::script::{Act, Action, Party, Scenario, Side, Start, Step, Wanted};
use crate::stage::Stage;
use crate::text::Context;
use crate::wires::{Wire, Wires};
use std::collections::{BTreeSet, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

/// The name that an accelerator has for its clients.
const SITE: &str = "site.test";

/// A scenario on its way.
pub(crate) struct Player<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) stage: Stage<'a>,
    pub(crate) wires: Wires,
    pub(crate) context: Context,
    host: String,
    /// Which connection a party uses now.
    pub(crate) connections: HashMap<(Side, String), usize>,
    /// Lines of access.log that a step has claimed.
    pub(crate) logged: BTreeSet<usize>,
    /// The same of store.log.
    pub(crate) stored: BTreeSet<usize>,
}

/// Plays it to its end or to the first step that fails, which is reported as `path:line: what`,
/// with the transcript.
pub(crate) fn play(scenario: &Scenario, wires: Wires, stage: Stage<'_>) -> Result<(), String> {
    let now_s =
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs().cast_signed());
    let origin = wires.origin().to_string();
    let host = if scenario.is_accelerator { SITE.to_owned() } else { origin.clone() };
    let mut player = Player {
        scenario,
        stage,
        wires,
        context: Context { origin, now_s },
        host,
        connections: HashMap::new(),
        logged: BTreeSet::new(),
        stored: BTreeSet::new(),
    };
    for step in &scenario.steps {
        player.step(step).map_err(|wrong| player.failure(step.line, &wrong))?;
    }
    let last = scenario.steps.last().map_or(1, |step| step.line);
    player.nothing_left().map_err(|wrong| player.failure(last, &format!("at the end, {wrong}")))
}

impl Player<'_> {
    fn failure(&self, line: usize, wrong: &str) -> String {
        let mut text = format!("{}:{line}: {wrong}\n", self.scenario.path);
        text += &format!("  ({})\n{}", self.scenario.title, self.wires.transcript.text());
        for wire in self.wires.all.iter().filter(|wire| !wire.input.is_empty()) {
            let side = if wire.side == Side::Client { "client" } else { "origin" };
            text += &format!("  {side} has in addition:\n");
            for line in wire.input.split_inclusive(|&byte| byte == b'\n').take(20) {
                text += &format!("      {}\n", crate::transcript::shown(line));
            }
        }
        text
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match &step.action {
            Action::Wire { party, act } => self.act(party, act),
            Action::OriginNotAsked => self.origin_not_asked(),
            Action::OriginStops => self.wires.stop_listening(),
            Action::OriginStarts => self.wires.listen(),
            Action::Restart => {
                self.wires.transcript.say("proxy restarts");
                self.stage.restart()
            }
            Action::Kill => {
                self.wires.transcript.say("proxy is killed");
                self.stage.kill()
            }
            Action::Logged(words) => self.logged(words),
            Action::Stored(path) => self.stored(path),
        }
    }

    fn act(&mut self, party: &Party, act: &Act) -> Result<(), String> {
        let sender = Sender {
            context: &self.context,
            host: &self.host,
            is_accelerator: self.scenario.is_accelerator,
        };
        match act {
            Act::Send(message) => {
                let bytes = sender.message(message);
                let method = match &message.start {
                    Start::Request { method, .. } => Some(method.clone()),
                    Start::Status { .. } => None,
                };
                self.send(party, &bytes, method)
            }
            Act::SendMore(pieces) => {
                let bytes = sender.pieces(pieces);
                let index = self.wire(party)?;
                self.send_on(index, party, &bytes)
            }
            Act::SendRaw(texts) => {
                let bytes = expect::expand_all(texts, &self.context);
                self.send(party, &bytes, None)
            }
            Act::Get(expected) => self.get(party, expected, true),
            Act::GetHead(expected) => self.get(party, expected, false),
            Act::GetBody(texts) => self.get_body(party, texts),
            Act::GetRaw(texts) => self.get_raw(party, texts),
            Act::GetEnd(wanted) => self.get_end(party, wanted),
            Act::GetCut => self.get_end(party, &[Wanted::Cut]),
            Act::GetClose => self.get_close(party),
            Act::Close => self.with_wire(party, "closes", Wire::close),
            Act::HalfClose => self.with_wire(party, "half-closes", Wire::half_close),
            Act::Reset => self.with_wire(party, "resets", Wire::reset),
        }
    }

    fn with_wire(
        &mut self,
        party: &Party,
        verb: &str,
        change: impl Fn(&mut Wire),
    ) -> Result<(), String> {
        let index = self.wire(party)?;
        self.wires.transcript.note(party, verb, b"");
        change(&mut self.wires.all[index]);
        self.wires.pump().map(|_| ())
    }

    /// Sends a whole message or the beginning of one. A client without a usable connection opens
    /// one.
    fn send(&mut self, party: &Party, bytes: &[u8], method: Option<String>) -> Result<(), String> {
        self.wires.pump()?;
        let known = self.connections.get(&key(party)).copied();
        let index = match (party.side, known) {
            (Side::Client, Some(index)) if self.wires.all[index].is_usable() => index,
            (Side::Client, _) => {
                let index = self.wires.connect(self.stage.address())?;
                self.connections.insert(key(party), index);
                index
            }
            (Side::Origin, _) => self.wire(party)?,
        };
        let wire = &mut self.wires.all[index];
        wire.methods.extend(method);
        if wire.side == Side::Client {
            wire.body = None;
        }
        self.send_on(index, party, bytes)
    }

    fn send_on(&mut self, index: usize, party: &Party, bytes: &[u8]) -> Result<(), String> {
        self.wires.transcript.note(party, "sends", bytes);
        self.wires.all[index].send(bytes);
        self.wires.pump().map(|_| ())
    }

    /// The connection of a party that has one.
    pub(crate) fn wire(&self, party: &Party) -> Result<usize, String> {
        self.connections.get(&key(party)).copied().ok_or_else(|| match party.side {
            Side::Client => "this client has not sent anything yet".to_owned(),
            Side::Origin => "the origin has not got a request under this name yet".to_owned(),
        })
    }
}

pub(crate) fn key(party: &Party) -> (Side, String) {
    (party.side, party.label.clone())
}
