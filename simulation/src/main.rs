//! The whole proxy under a seed: clients, servers, names, disks and time are simulated, and everything
//! that happens follows from one number. An oracle knows what each request may get.
//!
//! `cargo xtask simulate` runs it. Each seed is a process of its own, so that a hang or an abort is
//! the failure of one seed, and so that a seed does the same alone as among others.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program talks on its terminal"
)]

mod bodies;
mod chance;
mod client;
mod clock;
mod operator;
mod oracle;
mod origin;
mod plan;
mod site;
mod stores;
mod trace;
mod world;

use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use clap::Parser;
use humboldt_schemes::simulated::{Disk, Faults};
use tokio::task::LocalSet;

use crate::chance::Chance;
use crate::plan::Plan;
use crate::site::Site;
use crate::world::{Ends, Log, World};

#[derive(Parser)]
struct Arguments {
    /// The seed to run
    #[arg(long)]
    seed: u64,
    /// Show each event on standard error
    #[arg(long)]
    show: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.show {
        trace::show();
    }
    let faults = run(arguments.seed);
    let (events, hash) = trace::sum();
    println!("seed {}: {events} events, {hash:016x}", arguments.seed);
    for fault in &faults {
        println!("seed {}: {fault}", arguments.seed);
    }
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// In memory, if possible.
fn folder() -> tempfile::TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory.or_else(|_| tempfile::tempdir()).expect("a directory")
}

/// What is left of a life.
fn end(plan: &Plan, site: &Site, disk: &Arc<Disk>, ends: Ends) {
    if ends == Ends::InACrash && plan.loses_power {
        disk.cut_power();
        disk.power_up();
        site.is_torn.set(true);
    } else {
        disk.restart();
    }
    disk.set_faults(Faults::default());
    // What a directory owes for newer answers is in memory only.
    if ends == Ends::InACrash || plan.disk_fails || plan.dirs.is_empty() {
        site.resources.iter().for_each(site::Resource::crashed);
    }
}

/// Runs a seed; returns what went wrong.
fn run(seed: u64) -> Vec<String> {
    let plan = Rc::new(Plan::new(seed));
    let site = Rc::new(Site::new(plan.resources, &mut Chance::new(seed, 4)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let _context = runtime.enter();
    clock::start();
    chance::set_turns(seed, plan.late_per_mille);
    trace::line(|| format!("{plan:?}"));
    let folder = folder();
    let disk = Disk::new(seed);
    let _disk = disk.enter();
    for life in 0..plan.lives {
        let log = Log { folder: folder.path() };
        let tasks = LocalSet::new();
        let world = {
            let _tasks = tasks.enter();
            World::new(&plan, &site, life, &log, &disk)
        };
        let ends = tasks.block_on(&runtime, async { world.live().await });
        trace::line(|| format!("the life ends: {ends:?}"));
        drop(tasks);
        world.check_log(&log);
        let has_all_dirs = world.has_all_dirs();
        drop(world);
        end(&plan, &site, &disk, ends);
        // What a directory owes that is away is in memory only.
        if !has_all_dirs {
            site.resources.iter().for_each(site::Resource::crashed);
        }
    }
    site.faults()
}
