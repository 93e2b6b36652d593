//! `bench full`: is a store that has gone round as fast as one that has just been made?
//!
//! Misses only, which is the hardest case: every object is stored, and in the full store every
//! object evicts another. The empty store is a new one in every round; none is deleted before the
//! end, because deleting would slow down the next turns.

use super::report::Report;
use super::store::subjects::{Family, KINDS, Kind, Site, Sizes, Stored, wanted};
use super::store::turns::{BODY_BYTES, Course, Turn};
use super::subjects::floor;
use super::{Plan, rest, table};
use crate::Outcome;

const ROUNDS: usize = 15;
const CAPACITY_MB: u64 = 1024;

/// Requests in a turn: less than the capacity, so that an empty store does not become full in it.
const REQUESTS: u64 = 40_000;

/// Requests before a turn, of every store: the measured process is neither new nor cold from the
/// others' turns.
const LEAD_IN: u64 = 4_000;

/// Bytes written before the store is taken for full, in capacities.
const FILL_RATIO: u64 = 2;

/// Least throughput of the full store over that of the empty one. The cost of storing has a bound
/// of its own in `bench store`.
const TARGET_RATIO: f64 = 0.97;

/// Numbers of objects of the full store begin here, so that no other asks the origin for the same
/// ones.
const FIRST_OF_FULL: u64 = 1_000_000_000;

/// Turns of the same round beside each other.
#[derive(Default)]
struct Rounds {
    empty: Vec<Turn>,
    full: Vec<Turn>,
    none: Vec<Turn>,
}

pub(super) fn run(plan: &Plan) -> Outcome {
    let kinds = kinds(plan)?;
    if !plan.quick {
        rest::wait();
    }
    let origin = floor(plan, "origin", plan.load_core)?;
    let rounds = plan.rounds_wanted.unwrap_or(if plan.quick { 1 } else { ROUNDS }).max(1);
    let scale = if plan.quick { 10 } else { 1 };
    let (capacity_mb, requests, lead_in) = (CAPACITY_MB / scale, REQUESTS / scale, LEAD_IN / scale);
    let course = Course { origin: origin.address, requests, lead_in, is_gentle_to_diskd: false };
    let mut rows = Vec::new();
    let mut kept = Vec::new();
    for kind in kinds {
        match measure(plan, kind, course, capacity_mb, rounds, &mut kept) {
            Ok(measured) => rows.push(row(kind, &measured)),
            Err(error) => println!("note: {} is left out: {error}", kind.name),
        }
    }
    let mut report = Report::new("full", false);
    report.prose(&format!(
        "Throughput of misses of 13 KiB that are stored in {capacity_mb} MB, 64 connections, closed loop: an empty store, one into which \
         {FILL_RATIO} × its size has been written, and none; {rounds} rounds of {requests} requests in turns; {lead_in} requests before each round are \
         not counted. If the core is not busy, the load generator was the bottleneck; then compare CPU time."
    ));
    let heading = [
        "store",
        "empty, req/s",
        "full, req/s",
        "full ÷ empty",
        "full ÷ null",
        "CPU, empty ÷ full",
        "core busy",
        "wanted",
    ];
    report.table(&heading, &rows);
    drop(kept);
    rest::files_were_deleted()?;
    if plan.write { report.write() } else { Ok(()) }
}

/// `ring`, unless others are asked for.
fn kinds(plan: &Plan) -> Outcome<Vec<Kind>> {
    let is_default = |kind: &Kind| !plan.schemes.is_empty() || kind.scheme == "ring";
    let kinds = wanted(plan)?
        .into_iter()
        .filter(|kind| kind.family == Family::Humboldt && kind.scheme != "null");
    Ok(kinds.filter(is_default).collect())
}

fn started(plan: &Plan, kind: Kind, capacity_mb: u64) -> Outcome<Stored> {
    let sizes = Sizes::new(capacity_mb, BODY_BYTES as u64);
    Site::make(plan, kind, sizes)?.ok_or("humboldt is not there")?.start(plan)
}

fn measure(
    plan: &Plan,
    kind: Kind,
    course: Course,
    capacity_mb: u64,
    rounds: usize,
    kept: &mut Vec<Stored>,
) -> Outcome<Rounds> {
    let full = started(plan, kind, capacity_mb)?;
    let none = started(plan, KINDS[0], capacity_mb)?;
    let mut first = FIRST_OF_FULL;
    while (first - FIRST_OF_FULL) * BODY_BYTES as u64 <= FILL_RATIO * (capacity_mb << 20) {
        course.misses(plan, &full, first)?;
        first += course.objects();
    }
    let mut measured = Rounds::default();
    for round in 0..rounds as u64 {
        let empty = started(plan, kind, capacity_mb)?;
        let of_round = round * course.objects();
        let mut turns = [
            (&empty, 0, &mut measured.empty),
            (&full, first + of_round, &mut measured.full),
            (&none, of_round, &mut measured.none),
        ];
        // Nobody always comes after the same one.
        turns.rotate_left(round as usize % 3);
        for (stored, first, turns) in turns {
            turns.push(course.misses(plan, stored, first)?);
        }
        kept.push(empty);
    }
    kept.extend([full, none]);
    Ok(measured)
}

fn row(kind: Kind, measured: &Rounds) -> Vec<String> {
    let Rounds { empty, full, none } = measured;
    let rate = |turns: &[Turn]| turns.iter().map(|turn| turn.requests_per_s).collect::<Vec<_>>();
    let over = |upper: &[f64], lower: &[f64]| -> Vec<f64> {
        upper.iter().zip(lower).map(|(upper, lower)| upper / lower).collect()
    };
    let cpu = |turns: &[Turn]| turns.iter().map(|turn| turn.cpu_us).collect::<Vec<_>>();
    let busy: Vec<f64> = full.iter().map(|turn| turn.cpu_us * turn.requests_per_s / 1e4).collect();
    let of_empty = over(&rate(full), &rate(empty));
    let of_none = over(&rate(full), &rate(none));
    let verdict = match table::median(&of_empty) {
        _ if !empty.iter().chain(full).all(Turn::counts) => {
            "refused: not all was stored".to_owned()
        }
        ratio if ratio >= TARGET_RATIO => format!("≥ {TARGET_RATIO}: reached"),
        _ => format!("≥ {TARGET_RATIO}: missed"),
    };
    vec![
        kind.name.to_owned(),
        format!("{:.0}", table::median(&rate(empty))),
        format!("{:.0}", table::median(&rate(full))),
        table::with_range(&of_empty, 2),
        table::with_range(&of_none, 2),
        table::with_range(&over(&cpu(empty), &cpu(full)), 2),
        format!("{:.0} %", table::median(&busy).min(100.0)),
        verdict,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(requests_per_s: f64, share: f64) -> Vec<Turn> {
        vec![Turn { cpu_us: 20.0, requests_per_s, p99_ms: 1.0, share }; 3]
    }

    #[test]
    fn the_full_store_is_held_against_the_empty_one() {
        let verdict = |empty, full, none, share| {
            let measured = Rounds {
                empty: turns(empty, 1.0),
                full: turns(full, share),
                none: turns(none, 1.0),
            };
            row(KINDS[6], &measured).pop().unwrap()
        };
        assert_eq!(verdict(100.0, 98.0, 120.0, 1.0), "≥ 0.97: reached");
        assert_eq!(verdict(100.0, 96.0, 90.0, 1.0), "≥ 0.97: missed");
        assert_eq!(verdict(100.0, 99.0, 100.0, 0.5), "refused: not all was stored");
    }
}
