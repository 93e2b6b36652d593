//! `bench miss`: every request is for a new cachable object of 13 KiB, fetched and stored in
//! memory. Beside it a relay that looks at nothing: its cost is part of a miss in every proxy that
//! reads and writes.

use super::load::{self, Sample};
use super::subjects::{self, Subject};
use super::{Plan, beside_old, drive::Drive, table};
use crate::Outcome;

const BODY_BYTES: usize = 13 << 10;

/// Full after a few thousand objects, so that replacement is part of the measurement.
const CACHE_MEM_MB: u64 = 64;

/// Squid's CPU per miss over Humboldt's, at least.
const TARGET_RATIO: f64 = 3.0;

/// Every turn of every subject gets its own range of names.
const NAMES_PER_TURN: u64 = 1_000_000_000;

pub(super) fn run(plan: &Plan) -> Outcome {
    let origin = subjects::floor(plan, "origin", plan.load_core)?;
    let mut all = vec![subjects::relay(plan, origin.address)?];
    for cache in subjects::caches(plan) {
        all.extend(subjects::cache(plan, cache, origin.address, CACHE_MEM_MB)?);
    }
    let mut samples: Vec<Vec<Sample>> = all.iter().map(|_| Vec::new()).collect();
    // Round 0 fills the caches and is not counted.
    for round in 0..=plan.rounds() {
        for (subject, samples) in all.iter().zip(&mut samples) {
            let first = round as u64 * NAMES_PER_TURN;
            let load = load::endless(subject, origin.address, BODY_BYTES);
            let sample = load::turn(plan, subject, Drive { first, ..load })?;
            subject.empty_access_log()?;
            if round > 0 {
                samples.push(sample);
            }
        }
    }
    println!(
        "\nMisses of 13 KiB, cachable, 64 connections, {} rounds of {:?}\n",
        plan.rounds(),
        plan.turn()
    );
    print(&all, &samples);
    Ok(())
}

fn print(all: &[Subject], samples: &[Vec<Sample>]) {
    let cpu_us = |own: &[Sample]| own.iter().map(Sample::cpu_us_per_request).collect::<Vec<_>>();
    let squid =
        all.iter().position(|subject| subject.name == "squid").map(|index| cpu_us(&samples[index]));
    let rows = all.iter().zip(samples).map(|(subject, own)| {
        let own_us = cpu_us(own);
        let ratios: Option<Vec<f64>> = squid
            .as_ref()
            .map(|squid| squid.iter().zip(&own_us).map(|(theirs, ours)| theirs / ours).collect());
        vec![
            subject.name.to_owned(),
            format!(
                "{:.0}",
                table::median(&own.iter().map(Sample::requests_per_s).collect::<Vec<_>>())
            ),
            table::with_range(&own_us, 1),
            ratios.as_ref().map(|ratios| table::with_range(ratios, 2)).unwrap_or_default(),
            verdict(subject.name, ratios.as_deref()),
        ]
    });
    let heading = ["miss", "req/s", "CPU µs/request", "Squid's CPU over it", "target"];
    table::print(&heading, &rows.collect::<Vec<_>>());
    beside_old::print(all, samples);
}

fn verdict(name: &str, ratios: Option<&[f64]>) -> String {
    let Some(ratio) = ratios.map(table::median).filter(|_| name == "humboldt") else {
        return String::new();
    };
    format!("≥ {TARGET_RATIO:.0}: {}", if ratio >= TARGET_RATIO { "reached" } else { "missed" })
}
