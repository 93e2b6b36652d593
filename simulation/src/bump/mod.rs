//! Tunnels with TLS on a port that intercepts them (`ssl_bump`): clients, servers with their
//! certificates, the rules of the moment, and what each tunnel may become of them.
//!
//! Here HTTP/1 and TLS are real, on both sides, over connections in memory. Bytes of TLS follow
//! from the system's randomness. Nothing that happens depends on them, so a course repeats.

mod check;
mod client;
mod hello;
mod keys;
mod line;
mod rules;
mod server;
mod speech;

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;

use humboldt_net::connect::ConnectError;
use humboldt_net::memory::MemoryStream;
use humboldt_proxy::core::{Connecting, Core};

use crate::bodies::{Body, mix};
use crate::chance::Chance;
use crate::clock;
use crate::plan::Plan;
use crate::site::Site;
use crate::trace;

pub(crate) use client::run;
use keys::{Certificate, Keys};
use line::{Line, Record};
use rules::Rules;

/// The port of servers with TLS.
const PORT: u16 = 443;

/// The last byte of the address of the first server.
const FIRST_ADDRESS: u8 = 100;

/// Lengths of the resources of each server.
const LENGTHS: [u64; 5] = [0, 700, 13_000, 140_000, 400_000];

/// What a seed has of tunnels.
#[derive(Clone, Debug)]
pub(crate) struct BumpPlan {
    /// How many servers there are.
    pub(crate) hosts: usize,
    pub(crate) clients: u64,
    /// Of each client.
    pub(crate) tunnels: u64,
    /// How often a server fails, in a thousand connections.
    fails_per_mille: u64,
    /// How often a client's first message is none, in a thousand tunnels.
    garbage_per_mille: u64,
    /// How often a client leaves at some point, in a thousand tunnels.
    leaves_per_mille: u64,
    /// How often it asks for another name in TLS than in CONNECT, in a thousand tunnels.
    strays_per_mille: u64,
    /// Whether what is no TLS passes.
    passes_others: bool,
    /// Whether rules forgive faults of certificates.
    forgives: bool,
    /// Whether rules refuse some servers.
    denies: bool,
}

impl BumpPlan {
    /// One seed in six has tunnels.
    pub(crate) fn new(seed: u64) -> Option<Self> {
        let chance = &mut Chance::new(seed, 6);
        chance.per_mille(167).then(|| Self {
            hosts: chance.one(&[2, 4, 8]),
            clients: chance.one(&[1, 3, 5]),
            tunnels: chance.one(&[5, 10, 20]),
            fails_per_mille: chance.one(&[0, 0, 50, 300]),
            garbage_per_mille: chance.one(&[0, 50, 200]),
            leaves_per_mille: chance.one(&[0, 50, 300]),
            strays_per_mille: chance.one(&[0, 100, 300]),
            passes_others: chance.per_mille(300),
            forgives: chance.per_mille(400),
            denies: chance.per_mille(300),
        })
    }
}

/// A server of a life.
pub(crate) struct Host {
    number: usize,
    name: String,
    certificate: Certificate,
    /// When it, its name or the way to it was last out of order, in ms since the beginning.
    trouble_ms: Cell<i64>,
    /// How many connections, or look-ups, are out of order now.
    troubled: Cell<u32>,
}

impl Host {
    /// It is out of order now: what waits for it may fail.
    fn is_in_trouble(&self) {
        self.trouble_ms.set(clock::elapsed_ms());
    }

    fn had_trouble_since(&self, ms: i64) -> bool {
        self.troubled.get() > 0 || self.trouble_ms.get() >= ms
    }

    fn body(&self, path: usize) -> Body {
        let identity = mix(mix(self.number as u64 + 7_000) ^ path as u64);
        Body { identity, bytes: LENGTHS[path % LENGTHS.len()] }
    }
}

/// All of a life that has to do with tunnels.
pub(crate) struct Tunnels {
    plan: BumpPlan,
    keys: Keys,
    hosts: Vec<Host>,
    /// All rules that were in force, the newest last.
    rules: RefCell<Vec<Rules>>,
    /// What went over the connections to servers.
    records: RefCell<Vec<Rc<RefCell<Record>>>>,
    /// Connections to servers that are served.
    serving: Cell<usize>,
    chance: RefCell<Chance>,
}

impl Tunnels {
    pub(crate) fn new(seed: u64, plan: &BumpPlan, life: u64, root: &Path) -> Rc<Self> {
        let mut chance = Chance::new(seed, 20_000 + life);
        let keys = Keys::new();
        keys.write(root);
        let host = |number: usize| {
            let name = format!("s{number}.sim");
            Host {
                number,
                certificate: keys
                    .certificate(&name, &mut Chance::new(seed, 30_000 + number as u64)),
                name,
                trouble_ms: Cell::new(-1),
                troubled: Cell::new(0),
            }
        };
        let hosts = (0..plan.hosts).map(host).collect();
        let rules = vec![Rules::new(plan, &mut chance)];
        Rc::new(Self {
            plan: plan.clone(),
            keys,
            hosts,
            rules: rules.into(),
            records: RefCell::default(),
            serving: Cell::new(0),
            chance: chance.into(),
        })
    }

    /// The configuration of the moment.
    pub(crate) fn lines(&self, root: &Path) -> (String, String) {
        let rules = self.rules.borrow();
        rules.last().map(|rules| rules.lines(&self.plan, root)).unwrap_or_default()
    }

    /// Other rules come into force.
    pub(crate) fn change_rules(&self) {
        let rules = Rules::new(&self.plan, &mut self.chance.borrow_mut());
        trace::line(|| format!("rules of tunnels: {rules:?}"));
        self.rules.borrow_mut().push(rules);
    }

    fn host_at(&self, address: IpAddr) -> Option<&Host> {
        let IpAddr::V4(address) = address else { return None };
        self.hosts.get(usize::from(address.octets()[3].checked_sub(FIRST_ADDRESS)?))
    }

    /// The address of a host with TLS.
    pub(crate) fn address_of(&self, name: &str) -> Option<Ipv4Addr> {
        let host = self.hosts.iter().find(|host| host.name == name)?;
        Some(Ipv4Addr::new(192, 0, 2, FIRST_ADDRESS + host.number as u8))
    }

    /// Its name has no answer.
    pub(crate) fn name_fails(&self, name: &str) {
        if let Some(host) = self.hosts.iter().find(|host| host.name == name) {
            host.is_in_trouble();
        }
    }

    /// Gives a core the way to the servers.
    pub(crate) fn connect(self: &Rc<Self>, core: &Core, site: &Rc<Site>, plan: &Rc<Plan>) {
        let (tunnels, site, plan) = (Rc::clone(self), Rc::clone(site), Rc::clone(plan));
        core.use_wires(Box::new(move |peer| {
            tunnels.host_at(peer.ip()).filter(|_| peer.port() == PORT)?;
            let (tunnels, site, plan) = (Rc::clone(&tunnels), Rc::clone(&site), Rc::clone(&plan));
            let connecting: Connecting =
                Box::pin(async move { tunnels.wire_to(peer, &site, &plan).await });
            Some(connecting)
        }));
    }

    async fn wire_to(
        self: &Rc<Self>,
        peer: SocketAddr,
        site: &Rc<Site>,
        plan: &Rc<Plan>,
    ) -> Result<humboldt_net::Stream, ConnectError> {
        let mut own = Chance::new(self.chance.borrow_mut().below(u64::MAX), 3);
        let host = self.host_at(peer.ip()).ok_or(ConnectError::NoAddress)?;
        tokio::time::sleep(own.delay(plan.server_ms.min(2_000))).await;
        if own.per_mille(self.plan.fails_per_mille / 4) {
            host.is_in_trouble();
            return Err(ConnectError::Refused(peer));
        }
        let ours = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 254).into(), 40_000);
        let (near, far) = MemoryStream::pair(ours, peer)?;
        let line = Line::new(far.into());
        self.records.borrow_mut().push(line.record());
        self.serving.set(self.serving.get() + 1);
        let (tunnels, site, plan) = (Rc::clone(self), Rc::clone(site), Rc::clone(plan));
        let number = host.number;
        tokio::task::spawn_local(async move {
            server::serve(&tunnels, &site, &plan, number, line, own).await;
            tunnels.serving.set(tunnels.serving.get() - 1);
        });
        Ok(near.into())
    }

    /// What is left of the tunnels when their clients have gone.
    pub(crate) fn check_end(&self, cores: &[Rc<Core>]) -> Result<(), String> {
        let connections: usize = cores.iter().map(|core| core.connections()).sum();
        let handshakes: usize = cores.iter().map(|core| core.handshakes()).sum();
        let report = cores.first().map(|core| core.shared.budgets.report(usize::MAX));
        let places: u32 = report.iter().flatten().map(|account| account.tunnels).sum();
        let serving = self.serving.get();
        if connections + handshakes + serving + places as usize > 0 {
            return Err(format!(
                "left at the end: {connections} connections, {handshakes} handshakes, {serving} \
                 connections to servers, {places} tunnels in budgets"
            ));
        }
        Ok(())
    }
}
