//! The whole proxy under a seed: clients, servers, names, disks and time are simulated, and all
//! that happens follows from one number. An oracle knows what each request may get.
//!
//! `cargo xtask simulate` runs it, and [docs/design/simulation.md](../../docs/design/simulation.md)
//! describes it.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program talks on its terminal"
)]

mod bodies;
mod bump;
mod chance;
mod client;
mod clock;
mod course;
mod operator;
mod oracle;
mod origin;
mod plan;
mod runner;
mod site;
mod stores;
mod totals;
mod trace;
mod world;

use std::process::ExitCode;

use clap::Parser;

/// Runs the whole proxy in memory, with simulated clients, servers, names, disks and time. All that
/// happens follows from a seed, and an oracle knows what each request may get. Prints the seeds
/// that fail, and ends with exit code 1 if there are any.
#[derive(Parser)]
#[command(name = "humboldt-simulation")]
struct Arguments {
    /// How many seeds to run
    #[arg(long, default_value_t = 500)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many processes at a time; as many as there are processors if it is not given
    #[arg(long)]
    jobs: Option<usize>,
    /// End with the first seed that fails
    #[arg(long)]
    stop: bool,
    /// Run this seed alone
    #[arg(long)]
    seed: Option<u64>,
    /// Show each event of that seed on standard error
    #[arg(long, requires = "seed")]
    show: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let is_well = match arguments.seed {
        Some(seed) => one(seed, arguments.show),
        None => many(&arguments),
    };
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one seed; whether all was right.
fn one(seed: u64, show: bool) -> bool {
    if show {
        trace::show();
    }
    let site = course::run(seed);
    let (events, hash) = trace::sum();
    site.totals.add("events", events);
    println!("seed {seed}: the hash of its course is {hash:016x}");
    println!("{}{}", runner::SEEN, site.totals.line());
    let faults = site.faults();
    faults.iter().for_each(|fault| println!("WRONG: {fault}"));
    faults.is_empty()
}

/// Runs many seeds; whether all was right.
fn many(arguments: &Arguments) -> bool {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.unwrap_or_else(processors);
    let seeds = arguments.from..arguments.from.saturating_add(arguments.seeds);
    let outcome = runner::run(seeds, jobs, arguments.stop);
    println!("{}", outcome.totals.line());
    let failed = &outcome.failed;
    if let Some((first, _)) = failed.first() {
        println!("{} seeds failed; cargo xtask simulate --seed {first} --show", failed.len());
        return false;
    }
    println!("{} seeds, and nothing was wrong", outcome.totals.get("seeds"));
    true
}
