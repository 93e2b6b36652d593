//! `bench memory-mode`: the objects of a store that should be in memory too. All fetched and hit
//! ones (`memory_cache_mode always`), or, once memory is full, those with a second request
//! (`auto`)?
//!
//! Every turn requests objects of its own, so that formerly popular ones have to leave memory, and
//! about half of the requests are misses.

use super::awake::Awake;
use super::drive::{CONNECTIONS, Drive};
use super::manager::Device;
use super::report::Report;
use super::store::subjects::{RING, Site, Sizes, Stored};
use super::store::turns::BODY_BYTES;
use super::subjects::{Subject, floor};
use super::{Plan, rest, table};
use crate::Outcome;

const ROUNDS: usize = 3;

/// Requests in a turn.
const REQUESTS: u64 = 100_000;

/// Objects that a turn may ask for.
const OBJECTS: u64 = 300_000;

/// Popularity of objects: the exponent in traces of web caches.
const ZIPF: f64 = 0.9;

/// Largest part of a turn's objects that is requested at all.
const ASKED_SHARE: f64 = 0.2;

/// A tenth of the bytes that a turn stores.
const CACHE_MEM_MB: u64 = 64;

/// Bytes of an object's file on disk.
const FILE_BYTES: u64 = 16 << 10;

/// A mode with a policy.
struct Way {
    mode: &'static str,
    policy: &'static str,
    lines: &'static str,
}

macro_rules! way {
    ($mode:literal, $policy:literal) => {
        Way {
            mode: $mode,
            policy: $policy,
            lines: concat!(
                "memory_cache_mode ",
                $mode,
                "\nmemory_replacement_policy ",
                $policy,
                "\n"
            ),
        }
    };
}

const WAYS: [Way; 4] =
    [way!("always", "lru"), way!("auto", "lru"), way!("always", "s3fifo"), way!("auto", "s3fifo")];

/// The measurements of one turn.
struct Turn {
    cpu_us: f64,
    requests_per_s: f64,
    hits: f64,
    reads: f64,
    p99_ms: f64,
}

/// A running way.
struct Series<'w> {
    way: &'w Way,
    stored: Stored,
    turns: Vec<Turn>,
}

pub(super) fn run(plan: &Plan) -> Outcome {
    let rounds = plan.rounds_wanted.unwrap_or(if plan.quick { 1 } else { ROUNDS }).max(1);
    let requests = if plan.quick { REQUESTS / 10 } else { REQUESTS };
    if !plan.quick {
        rest::wait();
    }
    let origin = floor(plan, "origin", plan.load_core)?;
    let awake = Awake::hold();
    let asked = (OBJECTS as f64 * ASKED_SHARE) as u64 * (rounds as u64 + 1);
    let capacity_mb = ((asked * FILE_BYTES * 13 / 10) >> 20) + 256;
    let started = WAYS.iter().map(|way| Series::start(plan, way, capacity_mb));
    let mut all = started.collect::<Outcome<Vec<_>>>()?;
    for round in 0..=rounds as u64 {
        eprintln!("round {round} of {rounds}");
        for series in &mut all {
            let turn = series.ask(plan, &origin, requests, round * OBJECTS)?;
            series.turns.push(turn);
        }
    }
    let mut report = Report::new("memory-mode", awake.is_held());
    report.prose(&format!(
        "`ring` with `cache_mem {CACHE_MEM_MB} MB`. {rounds} rounds of {requests} requests, {CONNECTIONS} connections in a closed loop, each round for {OBJECTS} new objects \
         of 13 KiB, popular by Zipf's law with exponent {ZIPF}, after a round that fills memory. CPU time of the server with its threads for each request: median and range."
    ));
    let heading = [
        "memory_cache_mode",
        "policy",
        "CPU µs/request",
        "req/s",
        "hits",
        "reads of the store",
        "p99 ms",
    ];
    report.table(&heading, &all.iter().map(row).collect::<Vec<_>>());
    drop(all);
    rest::files_were_deleted()?;
    if plan.write { report.write() } else { Ok(()) }
}

impl<'w> Series<'w> {
    fn start(plan: &Plan, way: &'w Way, capacity_mb: u64) -> Outcome<Self> {
        let sizes = Sizes {
            cache_mem_mb: CACHE_MEM_MB,
            lines: way.lines,
            ..Sizes::new(capacity_mb, BODY_BYTES as u64)
        };
        let site = Site::make(plan, RING, sizes)?.ok_or("humboldt is not there")?;
        Ok(Self { way, stored: site.start(plan)?, turns: Vec::new() })
    }

    fn ask(&self, plan: &Plan, origin: &Subject, requests: u64, first: u64) -> Outcome<Turn> {
        let drive = Drive {
            first,
            requests,
            objects: OBJECTS,
            zipf: Some(ZIPF),
            ..Drive::new(origin.address, BODY_BYTES)
        };
        let subject = &self.stored.subject;
        let (before, cpu_before_us) = (Device::read(subject.address)?, subject.process.cpu_us()?);
        let driven = drive.run(plan, subject.name, subject.address)?;
        let cpu_us = subject.process.cpu_us()? - cpu_before_us;
        let after = Device::read(subject.address)?;
        self.stored.sync()?;
        let all = driven.requests as f64;
        Ok(Turn {
            cpu_us: cpu_us as f64 / all,
            requests_per_s: all / driven.seconds.max(1e-6),
            hits: driven.hits as f64 / all,
            reads: (after.reads - before.reads) / all,
            p99_ms: driven.p99_us as f64 / 1e3,
        })
    }
}

fn row(series: &Series<'_>) -> Vec<String> {
    // In the first turn there was room in memory.
    let turns = series.turns.get(1..).unwrap_or_default();
    let of = |figure: fn(&Turn) -> f64| turns.iter().map(figure).collect::<Vec<_>>();
    let median = |figure: fn(&Turn) -> f64| table::median(&of(figure));
    vec![
        series.way.mode.to_owned(),
        series.way.policy.to_owned(),
        table::with_range(&of(|turn| turn.cpu_us), 1),
        format!("{:.0}", median(|turn| turn.requests_per_s)),
        format!("{:.1} %", median(|turn| turn.hits) * 100.0),
        format!("{:.1} %", median(|turn| turn.reads) * 100.0),
        format!("{:.1}", median(|turn| turn.p99_ms)),
    ]
}
