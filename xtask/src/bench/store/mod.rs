//! `bench store`: the cost of a miss that is stored on disk, and of a hit from there, for every
//! scheme, beside Squid's, and beside an older humboldt's where there is one.
//!
//! Objects of 13 KiB, and so little memory that they do not stay there. Figures only count if the
//! subject's own counters say that the misses were stored, and that the hits were read from disk.

pub(super) mod subjects;
mod tables;
pub(super) mod turns;

use super::awake::Awake;
use super::report::Report;
use super::reserve::Reserve;
use super::subjects::{Subject, floor, relay};
use super::{Plan, rest};
use crate::Outcome;
use subjects::{Kind, Site, Sizes, Stored};
use turns::{BODY_BYTES, Course, Turn};

const ROUNDS: usize = 3;

/// Requests in a turn.
const REQUESTS: u64 = 20_000;

/// Requests before a turn.
const LEAD_IN: u64 = 4_000;

/// Bytes of an object's file on disk, by which the stores are made large enough to evict nothing.
const FILE_BYTES: u64 = 16 << 10;

/// Bytes that a turn brings into the page cache: the objects, and the data around them.
const TURN_BYTES: u64 = FILE_BYTES * 9 / 8;

/// The measurements of one subject.
pub(super) struct Series {
    kind: Kind,
    misses: Vec<Turn>,
    warm: Vec<Turn>,
    cold: Vec<Turn>,
    /// Reads that were asked of the device, for each hit.
    reads_per_hit: Option<f64>,
    /// Bytes written for each byte stored.
    amplification: Option<f64>,
}

pub(super) fn run(plan: &Plan) -> Outcome {
    let rounds = plan.rounds_wanted.unwrap_or(if plan.quick { 1 } else { ROUNDS }).max(1);
    let kinds = subjects::wanted(plan)?;
    let kinds = if plan.old.is_some() { subjects::beside_old(kinds) } else { kinds };
    if !plan.quick {
        rest::wait();
    }
    let awake = Awake::hold();
    let origin = floor(plan, "origin", plan.load_core)?;
    let (requests, lead_in) =
        if plan.quick { (REQUESTS / 10, LEAD_IN / 10) } else { (REQUESTS, LEAD_IN) };
    let course = Course { origin: origin.address, requests, lead_in, is_gentle_to_diskd: true };
    let relay = relay(plan, origin.address)?;
    let objects = (rounds as u64 + 1) * course.objects();
    // Water marks evict from 90 % on, and schemes have needs of their own.
    let capacity_mb = ((objects * FILE_BYTES * 13 / 10) >> 20) + 256;
    let sizes = Sizes { squid_rock_factor: 4, ..Sizes::new(capacity_mb, BODY_BYTES as u64) };
    let mut all = Vec::new();
    for kind in kinds {
        match Site::make(plan, kind, sizes)
            .and_then(|site| site.map(|site| site.start(plan)).transpose())
        {
            Ok(stored) => all.extend(stored),
            Err(error) => println!("note: {} is left out: {error}", kind.name),
        }
    }
    let mut series: Vec<Series> = all.iter().map(|stored| Series::new(stored.kind)).collect();
    let turns = all.len() as u64 * (rounds as u64 + 2);
    let mut reserve = Reserve::new(turns * course.objects() * TURN_BYTES);
    let relayed = misses(plan, &course, rounds, (&all, &relay, &mut reserve), &mut series)?;
    hits(plan, &course, rounds, &all, &mut series)?;
    let mut report = Report::new("store", awake.is_held());
    tables::print(&mut report, &series, &relayed, rounds, &course);
    drop(all);
    rest::files_were_deleted()?;
    if plan.write { report.write() } else { Ok(()) }
}

impl Series {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            misses: Vec::new(),
            warm: Vec::new(),
            cold: Vec::new(),
            reads_per_hit: None,
            amplification: None,
        }
    }
}

/// Round 0 is not in the figures: everything is new in it. Returns the turns of the relay.
fn misses(
    plan: &Plan,
    course: &Course,
    rounds: usize,
    (all, relay, reserve): (&[Stored], &Subject, &mut Reserve),
    series: &mut [Series],
) -> Outcome<Vec<Turn>> {
    let mut relayed = Vec::new();
    for round in 0..=rounds as u64 {
        eprintln!("misses, round {round} of {rounds}");
        relayed.push(turns::relayed(plan, course, relay, round * course.objects())?);
        for (stored, series) in all.iter().zip(&mut *series) {
            reserve.release(course.objects() * TURN_BYTES);
            // The objects of the hits are completed before memory gets others to hold.
            if let (Some(turn), true) = (series.misses.last(), round == rounds as u64)
                && stored.kind.scheme != "null"
            {
                course.complete(plan, stored, first_of_hits(course, rounds), *turn)?;
            }
            series.misses.push(course.misses(plan, stored, round * course.objects())?);
        }
    }
    for (stored, series) in all.iter().zip(series) {
        if let Some(device) = turns::device(stored)? {
            series.amplification = Some(device.written_bytes / device.object_bytes);
        }
        series.misses.remove(0);
    }
    relayed.remove(0);
    Ok(relayed)
}

/// The first object of the hits: those that the turn of misses before the last one stored, because
/// memory still holds some of the last. They are requested in order, so that the cache that keeps
/// them in memory has lost them again when the next turn comes.
fn first_of_hits(course: &Course, rounds: usize) -> u64 {
    (rounds as u64 - 1) * course.objects()
}

/// Hits on disk.
fn hits(
    plan: &Plan,
    course: &Course,
    rounds: usize,
    all: &[Stored],
    series: &mut [Series],
) -> Outcome {
    let first = first_of_hits(course, rounds);
    let stores = || all.iter().enumerate().filter(|(_, stored)| stored.kind.scheme != "null");
    let before: Vec<_> = all.iter().map(turns::device).collect::<Outcome<_>>()?;
    for round in 1..=rounds {
        eprintln!("hits, round {round} of {rounds}");
        // All of them first: the stored bytes may exceed memory, and hits are not to be measured
        // while the kernel makes room.
        for (_, stored) in stores() {
            stored.make_cold()?;
        }
        for (index, stored) in stores() {
            let turn = course.hits(plan, stored, first)?;
            series[index].cold.push(turn);
        }
        for (index, stored) in stores() {
            let turn = course.hits(plan, stored, first)?;
            series[index].warm.push(turn);
        }
    }
    for (index, stored) in stores() {
        if let (Some(before), Some(after)) = (before[index], turns::device(stored)?) {
            let hits = 2 * rounds as u64 * course.all_requests_of(stored.kind.scheme);
            series[index].reads_per_hit = Some((after.reads - before.reads) / hits as f64);
        }
    }
    Ok(())
}
