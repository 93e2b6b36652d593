//! `bench idle`: memory of the process without requests, and of an idle connection.

use super::client::Client;
use super::drive::url;
use super::load::Deadline;
use super::subjects::{self, Style, Subject};
use super::{Plan, table};
use crate::processes::free_address;
use crate::{Outcome, packages};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const CONNECTIONS: usize = 10_000;
const QUICK_CONNECTIONS: usize = 1_000;

/// Descriptor limits to start with: a careful one, and the one that some container engines hand
/// out.
const SMALL_LIMIT: u64 = 1_024;
const HUGE_LIMIT: u64 = 1_048_576;

const TARGET_IDLE_MB: f64 = 12.0;
const TARGET_CONNECTION_KB: f64 = 8.0;
const TIME_LIMIT: Duration = Duration::from_secs(120);

pub(super) fn run(plan: &Plan) -> Outcome {
    let huge = raise_own_limit()?;
    let mut rows = Vec::new();
    for (name, program) in [("humboldt", plan.humboldt.clone()), ("squid", packages::find("squid"))]
    {
        let Some(program) = program.filter(|_| plan.wants(name)) else { continue };
        for limit in [SMALL_LIMIT, huge] {
            match start(plan, name, &program, limit) {
                Ok(subject) => {
                    let resident_mb = subject.process.resident_bytes()? as f64 / f64::from(1 << 20);
                    let verdict = if resident_mb <= TARGET_IDLE_MB { "within" } else { "above" };
                    rows.push(vec![
                        format!("{name}, {limit} descriptors"),
                        format!("{resident_mb:.1} MB"),
                        format!("{verdict} {TARGET_IDLE_MB} MB"),
                    ]);
                }
                Err(error) => {
                    println!("note: {name} with {limit} descriptors is left out: {error}")
                }
            }
        }
        rows.push(connections(plan, name, &program, huge)?);
    }
    println!(
        "\nIdle: default configuration, no objects; then connections that each made one request\n"
    );
    table::print(&["idle", "resident", "bound"], &rows);
    Ok(())
}

/// Both sides of 10,000 connections need descriptors; root may raise its hard limit as well.
pub(super) fn raise_own_limit() -> Outcome<u64> {
    let huge = Rlimit { current: Some(HUGE_LIMIT), maximum: Some(HUGE_LIMIT) };
    if setrlimit(Resource::Nofile, huge).is_ok() {
        return Ok(HUGE_LIMIT);
    }
    let own = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: own.maximum, maximum: own.maximum })?;
    Ok(own.maximum.unwrap_or(HUGE_LIMIT))
}

/// The default configuration but for where it listens and writes.
fn start(plan: &Plan, name: &'static str, program: &Path, descriptors: u64) -> Outcome<Subject> {
    let folder = subjects::folder()?;
    let listen = free_address()?;
    let path = folder.path().display();
    let text = format!(
        "http_port {listen}\npid_filename {path}/pid\naccess_log stdio:{path}/access.log squid\n\
         cache_log {path}/cache.log\ncoredump_dir {path}\nshutdown_lifetime 0 seconds\n{}",
        subjects::DEFAULT_RULES
    );
    let configuration: PathBuf = folder.path().join("squid.conf");
    fs::write(&configuration, text)?;
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -n {descriptors} && exec \"$0\" \"$@\""));
    command.arg(program).arg("-N").arg("-f").arg(configuration);
    subjects::launch(name, Style::Forward, plan.server_core, command, listen, folder)
}

fn connections(
    plan: &Plan,
    name: &'static str,
    program: &Path,
    descriptors: u64,
) -> Outcome<Vec<String>> {
    let origin = subjects::floor(plan, "origin", plan.load_core)?;
    let subject = start(plan, name, program, descriptors.min(4 * CONNECTIONS as u64))?;
    let count = if plan.quick { QUICK_CONNECTIONS } else { CONNECTIONS };
    let url = url(origin.address, 1024, 0);
    let deadline = Deadline::after(TIME_LIMIT);
    // One warm request, so that first-use costs of the process are not put down to connections.
    Client::connect(subject.address)?.get(&url, origin.address)?;
    let before = subject.process.resident_bytes()?;
    let mut held = Vec::with_capacity(count);
    for _ in 0..count {
        deadline.check()?;
        let mut client = Client::connect(subject.address)?;
        client.get(&url, origin.address)?;
        held.push(client);
    }
    let after = subject.process.resident_bytes()?;
    let per_connection_kb = (after.saturating_sub(before)) as f64 / count as f64 / 1024.0;
    let verdict = if per_connection_kb <= TARGET_CONNECTION_KB { "within" } else { "above" };
    Ok(vec![
        format!("{name}, each of {count} connections"),
        format!("{per_connection_kb:.2} KB"),
        format!("{verdict} {TARGET_CONNECTION_KB} KB"),
    ])
}
