//! `bench tunnel`: CPU of a bulk tunnel beside a relay that only splices, CPU of making a tunnel
//! beside HAProxy in TCP mode, CPU of small messages, and the memory of a tunnel.

pub(crate) mod load;
pub(crate) mod relay;
mod report;

use super::subjects::{self, DEFAULT_RULES, Prepare, Setting, Style, Subject};
use super::{Plan, idle, peers};
use crate::processes::free_address;
use crate::{Outcome, packages};
use load::{Tunnels, Way};
use std::fs;
use std::net::SocketAddr;
use std::process::Command;

/// Capacity of the pipes of the bare relay: the same as Humboldt's.
const PIPE_BYTES: usize = 256 << 10;

/// Tunnels at the same time that carry much.
const BULK_TUNNELS: u64 = 8;

/// Tunnels that are made at the same time.
const MAKERS: u64 = 16;

/// Tunnels whose memory is measured.
const HELD_TUNNELS: usize = 1_000;

/// `cache_mem` of the proxies, which has nothing to do here.
const MEMORY_MB: u64 = 16;

/// A measurement in which every subject has its turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// 1 byte in each of many tunnels.
    SetUps,
    /// Many bytes in few tunnels.
    Bulk,
    /// One byte there, one byte back, again and again.
    Talk,
}

impl Part {
    const ALL: [Self; 3] = [Self::Bulk, Self::SetUps, Self::Talk];

    fn tunnels(self, plan: &Plan, way: Way, far: SocketAddr) -> Tunnels {
        let share = if plan.quick { 10 } else { 1 };
        let (threads, tunnels, bytes) = match self {
            Self::SetUps => (MAKERS, 4_000 / share, 1),
            Self::Bulk => (BULK_TUNNELS, BULK_TUNNELS, (1 << 30) / share),
            Self::Talk => (MAKERS, MAKERS, 5_000 / share),
        };
        Tunnels { way, far, threads, tunnels, bytes, one_by_one: self == Self::Talk }
    }
}

/// CPU and rate of one turn.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    /// CPU for each GB, each tunnel or each message, in µs.
    pub(super) cpu_us: f64,
    /// GB, tunnels or messages a second.
    pub(super) rate: f64,
}

/// A subject, and how it is asked.
pub(super) struct Runner {
    pub(super) subject: Subject,
    way: Way,
}

/// The memory of one tunnel, in KB.
pub(super) struct Memory {
    pub(super) idle_kb: f64,
    /// While bytes go through all of them, with the pages that its pipes may hold.
    pub(super) active_kb: f64,
}

pub(super) fn run(plan: &Plan) -> Outcome {
    idle::raise_own_limit()?;
    let far = far(plan)?;
    let runners = runners(plan, far.address)?;
    let mut turns: Vec<[Vec<Turn>; 3]> = runners.iter().map(|_| Default::default()).collect();
    // Round 0 warms up and is not counted.
    for round in 0..=plan.rounds_wanted.unwrap_or(plan.rounds()) {
        for (runner, turns) in runners.iter().zip(&mut turns) {
            for (part, turns) in Part::ALL.into_iter().zip(turns) {
                let turn = turn(plan, part, runner, far.address)?;
                if round > 0 {
                    turns.push(turn);
                }
            }
            runner.subject.empty_access_log()?;
        }
    }
    report::print(&runners, &turns);
    let mut memory = Vec::new();
    for runner in &runners {
        memory.push(held(runner, far.address)?);
    }
    report::print_memory(&runners, &memory);
    Ok(())
}

fn turn(plan: &Plan, part: Part, runner: &Runner, far: SocketAddr) -> Outcome<Turn> {
    let process = &runner.subject.process;
    let name = runner.subject.name;
    let tunnels = part.tunnels(plan, runner.way, far);
    let before_us = process.cpu_us()?;
    let carried =
        tunnels.ask(plan, runner.subject.address).map_err(|error| format!("{name}: {error}"))?;
    let cpu_us = (process.cpu_us()? - before_us) as f64;
    let count = match part {
        Part::SetUps => tunnels.tunnels as f64,
        Part::Bulk => carried.bytes as f64 / 1e9,
        Part::Talk => carried.bytes as f64,
    };
    Ok(Turn { cpu_us: cpu_us / count, rate: count / carried.seconds })
}

/// The memory of tunnels that are held open, first without bytes and then with some on their way.
fn held(runner: &Runner, far: SocketAddr) -> Outcome<Memory> {
    let count = HELD_TUNNELS;
    let process = &runner.subject.process;
    let before = process.resident_bytes()?;
    let mut held = Vec::new();
    for _ in 0..count {
        held.push(load::open(runner.way, runner.subject.address, far)?);
    }
    // A relay may not have connected to the far end yet: the answer to a byte says that it has.
    for stream in &mut held {
        load::echo(stream)?;
    }
    let kb = |bytes: u64| bytes as f64 / 1024.0 / count as f64;
    let idle_kb = kb(process.resident_bytes()?.saturating_sub(before));
    drop(held);
    let active = load::stalled(runner.way, runner.subject.address, far, count)?;
    let pipes = fs::read_dir(format!("/proc/{}/fd", process.id()))?
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter(|link| link.to_string_lossy().starts_with("pipe:"))
        .count() as u64
        / 2;
    let resident = process.resident_bytes()?.saturating_sub(before);
    drop(active);
    Ok(Memory { idle_kb, active_kb: kb(resident + pipes * PIPE_BYTES as u64) })
}

/// The far end of all tunnels: this program itself.
fn far(plan: &Plan) -> Outcome<Subject> {
    let listen = free_address()?;
    let mut command = Command::new(&plan.xtask);
    command.arg("tunnel-far").arg(listen.to_string());
    subjects::launch("far end", Style::Direct, plan.load_core, command, listen, subjects::folder()?)
}

/// Humboldt, the older one and Squid, with the default access rules, but that a tunnel may lead to
/// any port.
const PROXIES: [(&str, Style, Prepare); 3] = [
    ("humboldt", Style::Forward, humboldt),
    ("old", Style::Forward, old),
    ("squid", Style::Forward, |_, setting| peers::squid_with_rules(setting, &rules())),
];

fn rules() -> String {
    format!("acl SSL_ports port 1-65535\n{DEFAULT_RULES}")
}

fn humboldt(plan: &Plan, setting: &Setting<'_>) -> Outcome<Option<Command>> {
    let program = plan.humboldt.as_deref();
    program.map(|program| subjects::with_rules(program, setting, &rules())).transpose()
}

fn old(plan: &Plan, setting: &Setting<'_>) -> Outcome<Option<Command>> {
    let program = plan.old.as_deref();
    program.map(|program| subjects::with_rules(program, setting, &rules())).transpose()
}

fn runners(plan: &Plan, far: SocketAddr) -> Outcome<Vec<Runner>> {
    let mut runners = vec![Runner { subject: bare(plan, far)?, way: Way::Relay }];
    let is_wanted = |name: &str| match name {
        "old" => plan.old.is_some(),
        name => plan.wants(name),
    };
    for proxy in PROXIES.into_iter().filter(|(name, ..)| is_wanted(name)) {
        let subject = subjects::cache(plan, proxy, far, MEMORY_MB)?;
        runners.extend(subject.map(|subject| Runner { subject, way: Way::Proxy }));
    }
    if plan.wants("haproxy") {
        let subject = haproxy(plan, far)?;
        runners.extend(subject.map(|subject| Runner { subject, way: Way::Relay }));
    }
    Ok(runners)
}

fn bare(plan: &Plan, far: SocketAddr) -> Outcome<Subject> {
    let listen = free_address()?;
    let mut command = Command::new(&plan.xtask);
    command.arg("splice-relay").arg(listen.to_string()).arg(far.to_string());
    command.arg(PIPE_BYTES.to_string());
    subjects::launch("floor", Style::Direct, plan.server_core, command, listen, subjects::folder()?)
}

/// HAProxy in TCP mode on one thread, which splices where it can.
fn haproxy(plan: &Plan, far: SocketAddr) -> Outcome<Option<Subject>> {
    let Some(program) = packages::find("haproxy") else {
        println!("note: haproxy is not installed, it is left out");
        return Ok(None);
    };
    let (folder, listen) = (subjects::folder()?, free_address()?);
    let configuration = folder.path().join("haproxy.cfg");
    let text = format!(
        "global\n maxconn 4000\n nbthread 1\ndefaults\n mode tcp\n timeout connect 5s\n \
         timeout client 1h\n timeout server 1h\n option splice-auto\n\
         listen all\n bind {listen}\n server far {far}\n"
    );
    fs::write(&configuration, text)?;
    let mut command = Command::new(program);
    command.arg("-db").arg("-f").arg(configuration);
    subjects::launch("haproxy", Style::Direct, plan.server_core, command, listen, folder).map(Some)
}
