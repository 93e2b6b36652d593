//! What a client may have seen of a tunnel.

use std::cell::RefCell;
use std::rc::Rc;

use crate::bump::Tunnels;
use crate::bump::client::Judged;
use crate::bump::hello::Manner;
use crate::bump::keys::Flaw;
use crate::bump::line::Record;
use crate::bump::rules::{Facts, Fate};
use crate::bump::speech::Reply;
use crate::world::World;

/// Bytes at the beginning of a tunnel that no other tunnel begins with: they go beyond the random
/// number of a first message.
const OWN_BYTES: usize = 48;

/// What a client has seen.
pub(super) struct Seen {
    pub(super) id: u64,
    pub(super) facts: Facts,
    pub(super) manner: Manner,
    /// The rules in force when it began, and when it ended.
    first_rules: usize,
    pub(super) last_rules: usize,
    began_ms: i64,
    /// The status of the answer to CONNECT.
    pub(super) status: Option<u16>,
    /// What went through the tunnel.
    pub(super) record: Rc<RefCell<Record>>,
    /// The certificate.
    pub(super) judged: Option<Judged>,
    pub(super) has_agreed: bool,
    pub(super) has_left: bool,
    pub(super) ends_in_order: bool,
    /// Requests in it that were answered.
    pub(super) ids: Vec<u64>,
    pub(super) replies: Vec<(usize, Reply)>,
}

impl Tunnels {
    /// The number of the rules in force.
    pub(super) fn rules_now(&self) -> usize {
        self.rules.borrow().len() - 1
    }
}

impl Seen {
    pub(super) fn new(id: u64, facts: Facts, manner: Manner, rules: usize, began_ms: i64) -> Self {
        Self {
            id,
            facts,
            manner,
            first_rules: rules,
            last_rules: rules,
            began_ms,
            status: None,
            record: Rc::default(),
            judged: None,
            has_agreed: false,
            has_left: false,
            ends_in_order: false,
            ids: Vec::new(),
            replies: Vec::new(),
        }
    }

    /// For the course: nothing that depends on the bytes of TLS.
    pub(super) fn summary(&self) -> String {
        let statuses: Vec<u16> = self.replies.iter().map(|(_, reply)| reply.status).collect();
        let is_valid = self.judged.as_ref().map(|judged| judged.is_valid);
        let in_order = self.ends_in_order;
        format!("status {:?}, valid {is_valid:?}, answers {statuses:?}, {in_order}", self.status)
    }

    /// Compares it with what may be.
    pub(super) fn check(&self, world: &World, tunnels: &Tunnels) {
        let fates = self.fates(tunnels);
        let found = self.judge(world, tunnels, &fates);
        if let Err(what) = found {
            let (id, facts) = (self.id, self.facts);
            world.site.wrong(format!("tunnel {id} {facts:?}, which may be {fates:?}: {what}"));
        }
    }

    fn fates(&self, tunnels: &Tunnels) -> Vec<Fate> {
        let rules = tunnels.rules.borrow();
        let in_force = &rules[self.first_rules..=self.last_rules];
        in_force.iter().flat_map(|rules| rules.fates(&tunnels.plan, self.facts)).collect()
    }

    /// Whether anything that it needs was out of order.
    fn had_trouble(&self, tunnels: &Tunnels) -> bool {
        [self.facts.connect, self.facts.named]
            .iter()
            .any(|host| tunnels.hosts[*host].had_trouble_since(self.began_ms))
    }

    fn judge(&self, world: &World, tunnels: &Tunnels, fates: &[Fate]) -> Result<(), String> {
        let may_be = |fate: Fate| fates.contains(&fate);
        let is_closed = fates.iter().any(|fate| matches!(fate, Fate::Closed { .. }));
        let totals = &world.site.totals;
        let has_excuse = self.has_left || self.had_trouble(tunnels);
        match self.status {
            Some(200) => {}
            None if self.has_left || may_be(Fate::Closed { after_peek: false }) => return Ok(()),
            None => return Err("CONNECT has no answer".into()),
            Some(403) if may_be(Fate::Refused) => {
                totals.add("tunnels refused", 1);
                return Ok(());
            }
            // A rule about addresses needs the name.
            Some(500..) if has_excuse && (may_be(Fate::Spliced) || world.plan.egress) => {
                return Ok(());
            }
            Some(status) => return Err(format!("CONNECT is answered {status}")),
        }
        let record = self.record.borrow();
        let passed = self.passed(tunnels, &record)?;
        if let Some(passed) = &passed {
            let may_pass = may_be(Fate::Spliced) || may_be(Fate::Closed { after_peek: true });
            if !may_pass {
                return Err("its bytes have gone to the server".into());
            }
            if !record.received.is_empty() {
                return match may_be(Fate::Spliced) {
                    true => self.spliced(world, tunnels, &record, &passed.borrow()),
                    false => Err("the server's bytes have come, and it was to be closed".into()),
                };
            }
        }
        if record.received.is_empty() {
            let is_quiet = self.facts.is_garbage || has_excuse || is_closed;
            let is_quiet = is_quiet || record.sent.is_empty();
            totals.add("tunnels closed without a byte", 1);
            return if is_quiet { Ok(()) } else { Err("it was closed without a byte".into()) };
        }
        if self.facts.is_garbage {
            // An alert of TLS is an answer to garbage.
            let is_decrypted = may_be(Fate::Bumped) || may_be(Fate::Page);
            return if is_decrypted { Ok(()) } else { Err("garbage is answered".into()) };
        }
        if !may_be(Fate::Bumped) && !may_be(Fate::Page) {
            return Err("somebody answers who is not the server".into());
        }
        self.bumped(world, tunnels, fates)
    }

    /// The connection to a server to which the bytes of this tunnel have gone.
    fn passed(
        &self,
        tunnels: &Tunnels,
        record: &Record,
    ) -> Result<Option<Rc<RefCell<Record>>>, String> {
        let own = record.sent.get(..OWN_BYTES);
        let records = tunnels.records.borrow();
        // A server that speaks first may have less.
        let is_first = |other: &Record| {
            record.sent.starts_with(&other.received)
                && !record.received.is_empty()
                && other.sent.starts_with(&record.received)
        };
        let mut passed = records.iter().filter(|other| {
            let other = other.borrow();
            own.is_some_and(|own| other.received.starts_with(own)) || is_first(&other)
        });
        let first = passed.next().cloned();
        match passed.next() {
            Some(_) => Err("its bytes have gone to two servers".into()),
            None => Ok(first),
        }
    }

    /// Every byte of a tunnel that passes unread is its own.
    fn spliced(
        &self,
        world: &World,
        tunnels: &Tunnels,
        near: &Record,
        far: &Record,
    ) -> Result<(), String> {
        if !near.sent.starts_with(&far.received) {
            return Err("the server got other bytes than were sent".into());
        }
        if !far.sent.starts_with(&near.received) {
            return Err("the client got other bytes than were sent".into());
        }
        world.site.totals.add("tunnels spliced", 1);
        let is_whole = near.received.len() == far.sent.len();
        if self.ends_in_order && !is_whole {
            return Err("its end came before its last bytes".into());
        }
        let host = &tunnels.hosts[self.facts.connect];
        let judged = self.judged.as_ref();
        if judged.is_some_and(|judged| judged.der != host.certificate.der) {
            return Err("another certificate than the server's".into());
        }
        for (path, reply) in &self.replies {
            let fault = reply.differs_from(host.body(*path));
            if reply.status != 200 || fault.is_some() {
                return Err(format!("status {}: {fault:?}", reply.status));
            }
        }
        let has_excuse = self.has_left || self.had_trouble(tunnels) || self.facts.is_garbage;
        let is_refused = judged.is_some_and(|judged| !judged.is_valid) && !self.has_agreed;
        let all = self.replies.len() as u64 == self.manner.requests;
        if !(has_excuse || is_refused || all && self.ends_in_order) {
            return Err("it has ended early".into());
        }
        Ok(())
    }

    /// What is inside of a tunnel that is decrypted.
    fn bumped(&self, world: &World, tunnels: &Tunnels, fates: &[Fate]) -> Result<(), String> {
        let host = &tunnels.hosts[self.facts.named];
        let totals = &world.site.totals;
        totals.add("tunnels bumped", 1);
        self.ids.iter().for_each(|id| world.site.begins(*id));
        let has_trouble = self.had_trouble(tunnels);
        let is_flawed = host.certificate.flaw != Flaw::None;
        let Some(judged) = &self.judged else {
            let has_excuse = self.has_left;
            return if has_excuse { Ok(()) } else { Err("no handshake".into()) };
        };
        if tunnels.hosts.iter().any(|host| host.certificate.der == judged.der) {
            return Err("a server's certificate without the server".into());
        }
        if !judged.is_valid && !is_flawed {
            return Err("a certificate that fails, for a server whose own is good".into());
        }
        let is_page = !fates.contains(&Fate::Bumped);
        for (path, reply) in &self.replies {
            let Reply { status, .. } = *reply;
            if status != 200 {
                // Requests inside have the newest rules.
                let is_denied = || status == 403 && self.is_denied(tunnels);
                let is_allowed =
                    is_flawed || has_trouble || fates.contains(&Fate::Page) || is_denied();
                let is_page = (400..600).contains(&status);
                if !is_allowed || !is_page {
                    return Err(format!("an answer {status} without a reason"));
                }
                totals.add("pages in tunnels", 1);
                continue;
            }
            if is_page {
                return Err("the server's answer, and it was refused".into());
            }
            if let Some(fault) = reply.differs_from(host.body(*path)) {
                return Err(fault);
            }
            if !reply.is_whole && !self.has_left && !has_trouble {
                let (has, of) = (reply.body.len(), reply.bytes);
                return Err(format!("{has} bytes of {of} of an answer"));
            }
            totals.add("answers in tunnels", 1);
            if is_flawed {
                self.forgiven(tunnels, judged)?;
                totals.add("faults forgiven", 1);
            }
        }
        let has_excuse = self.has_left || has_trouble || is_flawed;
        let ends = self.replies.last().is_some_and(|(_, reply)| reply.closes);
        let all = self.replies.len() as u64 == self.manner.requests || ends;
        if self.has_agreed && !has_excuse && !all {
            return Err("it has ended early".into());
        }
        if !self.has_agreed && judged.is_valid && !self.has_left {
            return Err("no agreement".into());
        }
        Ok(())
    }

    /// Whether rules that were in force refuse what is inside.
    fn is_denied(&self, tunnels: &Tunnels) -> bool {
        let rules = tunnels.rules.borrow();
        let mut in_force = rules[self.first_rules..=self.last_rules].iter();
        in_force.any(|rules| rules.deny(self.facts.named))
    }

    /// Whether an answer of a server with a bad certificate may come with this one.
    fn forgiven(&self, tunnels: &Tunnels, judged: &Judged) -> Result<(), String> {
        let rules = tunnels.rules.borrow();
        let mut in_force = rules[self.first_rules..=self.last_rules].iter();
        if !in_force.any(|rules| rules.forgive(self.facts.named)) {
            return Err("an answer of a server whose certificate is bad".into());
        }
        if judged.is_valid {
            return Err("a good certificate for a server whose own is bad".into());
        }
        Ok(())
    }
}
