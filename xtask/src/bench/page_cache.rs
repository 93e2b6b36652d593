//! `bench page-cache`: should `ring` go past the page cache, with a memory tier of its own, or
//! through it?
//!
//! The memory of a machine can be given to `cache_mem` or left to the page cache. Both ways get the
//! same: with a limit, as in a container, it is less than a third of the stored bytes; without,
//! there is room for everything.

use super::awake::Awake;
use super::memory_limit::MemoryLimit;
use super::report::Report;
use super::store::subjects::{CACHE_MEM_MB, RING, Site, Sizes, Stored};
use super::store::turns::{self, BODY_BYTES, Course, Turn};
use super::subjects::{Subject, floor};
use super::{Plan, drive::Drive, table};
use crate::Outcome;
use std::time::Duration;

const ROUNDS: usize = 3;

/// Objects that are stored: 780 MB.
const OBJECTS: u64 = 60_000;

/// Requests in a turn.
const REQUESTS: u64 = 40_000;

/// Popularity of objects: the exponent in traces of web caches.
const ZIPF: f64 = 0.9;

/// Memory of the container: a third of the stored bytes.
const LIMIT_MB: u64 = 256;

/// The part of it for `cache_mem`: the rest is the program's own.
const TIER_MB: u64 = 160;

/// One way to use memory.
struct Way {
    name: &'static str,
    options: &'static str,
    cache_mem_mb: u64,
}

const WAYS: [Way; 8] = [
    Way { name: "auto, next to no tier", options: "page-cache=auto", cache_mem_mb: CACHE_MEM_MB },
    Way { name: "auto, and the tier", options: "page-cache=auto", cache_mem_mb: TIER_MB },
    Way { name: "past it, next to no tier", options: "page-cache=off", cache_mem_mb: CACHE_MEM_MB },
    Way {
        name: "past it, all memory is the tier's",
        options: "page-cache=off",
        cache_mem_mb: TIER_MB,
    },
    Way {
        name: "reads through it, next to no tier",
        options: "page-cache=reads",
        cache_mem_mb: CACHE_MEM_MB,
    },
    Way {
        name: "reads through it, and the tier",
        options: "page-cache=reads",
        cache_mem_mb: TIER_MB,
    },
    Way {
        name: "through it, next to no tier",
        options: "page-cache=on",
        cache_mem_mb: CACHE_MEM_MB,
    },
    Way { name: "through it, and the tier", options: "page-cache=on", cache_mem_mb: TIER_MB },
];

/// A running setting, and its measurements.
struct Series<'w> {
    way: &'w Way,
    stored: Stored,
    misses: Vec<Turn>,
    hits: Vec<Turn>,
    /// Ends after the process that it holds.
    _limit: Option<MemoryLimit>,
}

pub(super) fn run(plan: &Plan) -> Outcome {
    let rounds = plan.rounds_wanted.unwrap_or(if plan.quick { 1 } else { ROUNDS }).max(1);
    let origin = floor(plan, "origin", plan.load_core)?;
    let awake = Awake::hold();
    let mut report = Report::new("page-cache", awake.is_held());
    report.prose(&format!(
        "`ring` bypassing the page cache (`O_DIRECT`) and using it. {OBJECTS} objects of 13 KiB are stored, then {rounds} rounds of {REQUESTS} \
         requests for them, popular by Zipf's law with exponent {ZIPF}. CPU time of the server with its threads for each request: median and \
         range, without the work of the kernel's own threads that write back. Little memory: a control group of {LIMIT_MB} MB, which holds \
         the page cache too; `cache_mem` is {CACHE_MEM_MB} MB or {TIER_MB} MB."
    ));
    for (heading, limit_mb) in [("much memory", None), ("little memory", Some(LIMIT_MB))] {
        match measure(plan, &origin, rounds, limit_mb) {
            Ok(all) => report.table(
                &[
                    heading,
                    "miss, stored",
                    "req/s",
                    "hit",
                    "req/s",
                    "read from the store",
                    "p99 ms of hits",
                ],
                &all.iter().map(row).collect::<Vec<_>>(),
            ),
            Err(error) => report.prose(&format!("{heading}: not measured: {error}")),
        }
    }
    if plan.write { report.write() } else { Ok(()) }
}

fn measure(
    plan: &Plan,
    origin: &Subject,
    rounds: usize,
    limit_mb: Option<u64>,
) -> Outcome<Vec<Series<'static>>> {
    let course = Course {
        origin: origin.address,
        requests: if plan.quick { OBJECTS / 10 } else { OBJECTS },
        lead_in: 0,
        is_gentle_to_diskd: false,
    };
    let mut all =
        WAYS.iter().map(|way| Series::start(plan, way, limit_mb)).collect::<Outcome<Vec<_>>>()?;
    for series in &mut all {
        series.misses.push(course.misses(plan, &series.stored, 0)?);
        series.ask(plan, course)?; // what is popular gets into memory
    }
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        for series in &mut all {
            let turn = series.ask(plan, course)?;
            series.hits.push(turn);
        }
    }
    Ok(all)
}

impl<'w> Series<'w> {
    fn start(plan: &Plan, way: &'w Way, limit_mb: Option<u64>) -> Outcome<Self> {
        let sizes = Sizes {
            cache_mem_mb: way.cache_mem_mb,
            options: way.options,
            ..Sizes::new((OBJECTS * 16) >> 10, BODY_BYTES as u64)
        };
        let site = Site::make(plan, RING, sizes)?.ok_or("humboldt is not there")?;
        let stored = site.start(plan)?;
        let limit = limit_mb
            .map(|mb| MemoryLimit::new(&stored.subject.address.port().to_string(), mb << 20));
        let limit = limit.transpose()?;
        if let Some(limit) = &limit {
            limit.hold(stored.subject.process.id())?;
        }
        Ok(Self { way, stored, misses: Vec::new(), hits: Vec::new(), _limit: limit })
    }

    fn ask(&self, plan: &Plan, course: Course) -> Outcome<Turn> {
        let drive = Drive {
            requests: REQUESTS.min(course.requests),
            objects: course.requests,
            zipf: Some(ZIPF),
            ..Drive::new(course.origin, BODY_BYTES)
        };
        turns::measured(plan, &self.stored, drive, Duration::ZERO, |before, after, _| {
            after.ins - before.ins
        })
    }
}

fn row(series: &Series<'_>) -> Vec<String> {
    let of =
        |turns: &[Turn], figure: fn(&Turn) -> f64| turns.iter().map(figure).collect::<Vec<_>>();
    let median = |turns: &[Turn], figure: fn(&Turn) -> f64| table::median(&of(turns, figure));
    let cpu = |turns: &[Turn]| table::with_range(&of(turns, |turn| turn.cpu_us), 1);
    vec![
        series.way.name.to_owned(),
        format!("{} µs", cpu(&series.misses)),
        format!("{:.0}", median(&series.misses, |turn| turn.requests_per_s)),
        format!("{} µs", cpu(&series.hits)),
        format!("{:.0}", median(&series.hits, |turn| turn.requests_per_s)),
        format!("{:.0} %", median(&series.hits, |turn| turn.share) * 100.0),
        format!("{:.1}", median(&series.hits, |turn| turn.p99_ms)),
    ]
}
