//! `bench hit`: memory hits of three sizes, CPU per request of each cache beside that of a bare
//! server.

use super::load::{self, Sample};
use super::subjects::{self, Subject};
use super::{Plan, beside_old, drive::Drive, table};
use crate::Outcome;

const SIZES: [(usize, &str); 3] =
    [(1 << 10, "1 KiB"), (13 << 10, "13 KiB"), (100 << 10, "100 KiB")];

/// Far more than three objects need: everything must stay in memory.
const CACHE_MEM_MB: u64 = 256;

/// CPU of a memory hit over the floor's, at most.
const TARGET_RATIO: f64 = 1.35;

/// CPU of a hit of a user whose login is remembered over that of a hit without a login, at most.
const LOGIN_RATIO_MAX: f64 = 1.1;

/// CPU of the origin per hit, at most; a miss costs it at least five times as much.
pub(super) const MAX_ORIGIN_US: f64 = 1.0;

pub(super) fn run(plan: &Plan) -> Outcome {
    let origin = subjects::floor(plan, "origin", plan.load_core)?;
    let mut all = vec![subjects::floor(plan, "floor", plan.server_core)?];
    for cache in subjects::caches(plan) {
        all.extend(subjects::cache(plan, cache, origin.address, CACHE_MEM_MB)?);
    }
    all.extend(subjects::with_login(plan, origin.address, CACHE_MEM_MB)?);
    for (body_bytes, label) in SIZES {
        let load = |subject: &Subject| Drive {
            objects: 1,
            login: subject.name == "login",
            ..load::endless(subject, origin.address, body_bytes)
        };
        for subject in &all {
            // Three times, so that every cache stores the object.
            let warm = Drive { requests: 3, connections: 1, ..load(subject) };
            warm.run(plan, subject.name, subject.address)?;
        }
        let mut samples: Vec<Vec<Sample>> = all.iter().map(|_| Vec::new()).collect();
        for _ in 0..plan.rounds() {
            for (subject, samples) in all.iter().zip(&mut samples) {
                samples.push(turn(plan, subject, &origin, load(subject))?);
                subject.empty_access_log()?;
            }
        }
        println!(
            "\nMemory hits of {label}, 64 connections, {} rounds of {:?}\n",
            plan.rounds(),
            plan.turn()
        );
        print(&all, &samples);
    }
    Ok(())
}

/// One turn, which counts only if the answers came from memory: an origin that was asked would have
/// worked for it.
fn turn(plan: &Plan, subject: &Subject, origin: &Subject, load: Drive) -> Outcome<Sample> {
    let before_us = origin.process.cpu_us()?;
    let sample = load::turn(plan, subject, load)?;
    let origin_us = (origin.process.cpu_us()? - before_us) as f64 / sample.requests as f64;
    if origin_us > MAX_ORIGIN_US {
        return Err(format!(
            "{}: the origin worked {origin_us:.1} µs for each `hit`",
            subject.name
        )
        .into());
    }
    Ok(sample)
}

/// The first subject is the floor; ratios are taken round by round, so that a disturbed round
/// disturbs both sides.
fn print(all: &[Subject], samples: &[Vec<Sample>]) {
    let rows = all.iter().zip(samples).map(|(subject, own)| {
        let ratios: Vec<f64> = own
            .iter()
            .zip(&samples[0])
            .map(|(sample, floor)| sample.cpu_us_per_request() / floor.cpu_us_per_request())
            .collect();
        vec![
            subject.name.to_owned(),
            format!(
                "{:.0}",
                table::median(&own.iter().map(Sample::requests_per_s).collect::<Vec<_>>())
            ),
            table::with_range(&own.iter().map(Sample::cpu_us_per_request).collect::<Vec<_>>(), 1),
            table::with_range(&ratios, 2),
            format!(
                "{:.1}",
                table::median(
                    &own.iter().map(|sample| sample.p99_us as f64 / 1e3).collect::<Vec<_>>()
                )
            ),
            verdict(subject.name, table::median(&ratios)),
        ]
    });
    let heading =
        ["memory hit", "req/s", "CPU µs/request", "ratio to the floor", "p99 ms", "target"];
    table::print(&heading, &rows.collect::<Vec<_>>());
    beside_old::print(all, samples);
    print_login(all, samples);
}

/// The ratio of hits of users who have logged in to hits of others.
fn print_login(all: &[Subject], samples: &[Vec<Sample>]) {
    let Some(ratios) = beside_old::ratios("login", "humboldt", all, samples) else { return };
    let is_reached = table::median(&ratios) <= LOGIN_RATIO_MAX;
    println!(
        "\nwith a login ÷ without: {} (asked: ≤ {LOGIN_RATIO_MAX}): {}",
        table::with_range(&ratios, 3),
        if is_reached { "reached" } else { "missed" }
    );
}

fn verdict(name: &str, ratio: f64) -> String {
    match name {
        "humboldt" if ratio <= TARGET_RATIO => format!("≤ {TARGET_RATIO}: reached"),
        "humboldt" => format!("≤ {TARGET_RATIO}: missed"),
        _ => String::new(),
    }
}
