//! `bench instructions`: user-space instructions for each hit and each miss, counted by callgrind.
//!
//! The CPU time of two runs of one program differs by several per cent, and by more on a machine
//! that has other work. Its instructions differ by a few in a thousand, whatever else runs. They
//! leave out the kernel and the waiting for memory: `bench hit`, `bench miss`, `bench store` and
//! `bench tls` have the last word.

mod tls;

use super::drive::Drive;
use super::subjects::{self, Setting, Style, Subject};
use super::{Plan, table};
use crate::processes::free_address;
use crate::{Outcome, packages};
use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Requests that are counted.
const REQUESTS: u64 = 2000;

/// Full after some thousand objects: a counted program is slow.
const CACHE_MEM_MB: u64 = 16;

/// A store of this many MB keeps all objects of a run.
const STORE_MB: u64 = 256;

/// A counted program takes fifty times as long.
const LIMIT: Duration = Duration::from_mins(5);

/// Where callgrind writes.
const COUNTS: &str = "counts";

/// Root becomes nobody before callgrind opens its file: the program under it gives its rights up,
/// and the file could not be written in the end.
const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// Copies of many bytes are loops in all programs: Valgrind counts `rep movsb` byte by byte.
const TUNABLES: &str =
    "glibc.cpu.x86_rep_movsb_threshold=0x40000000:glibc.cpu.x86_rep_stosb_threshold=0x40000000";

struct Case {
    name: &'static str,
    body_bytes: usize,
    /// After these the first one is asked for again: with one all but the first request are hits.
    objects: u64,
    /// The scheme of a store on disk, if there is one.
    scheme: Option<&'static str>,
    /// Requests before those that are counted. Misses fill the memory first, so that replacement is
    /// part of what is counted.
    lead_in: u64,
}

const fn hit(name: &'static str, body_bytes: usize) -> Case {
    Case { name, body_bytes, objects: 1, scheme: None, lead_in: 500 }
}

const fn miss(name: &'static str, scheme: Option<&'static str>) -> Case {
    Case { name, body_bytes: 13 << 10, objects: u64::MAX, scheme, lead_in: 2000 }
}

const CASES: [Case; 4] = [
    hit("hit of 1 KiB", 1 << 10),
    hit("hit of 13 KiB", 13 << 10),
    miss("miss of 13 KiB", None),
    miss("miss of 13 KiB that ring stores", Some("ring")),
];

pub(super) fn run(plan: Plan) -> Outcome {
    packages::install_for_counts()?;
    match &plan.schemes[..] {
        [] => of_http(&plan),
        [part] if part == "tls" => tls::run(plan),
        _ => Err("instructions has one part of its own: tls".into()),
    }
}

fn of_http(plan: &Plan) -> Outcome {
    let origin = subjects::floor(plan, "origin", plan.load_core)?;
    let mut rows = Vec::new();
    for case in &CASES {
        let count = |program: &Path| {
            per_request(case.lead_in, REQUESTS, |requests| {
                counted(plan, program, origin.address, case, requests)
            })
        };
        let new = plan.humboldt.as_deref().map(count).transpose()?;
        let old = plan.old.as_deref().map(count).transpose()?;
        let ratio = new.zip(old).map(|(new, old)| new / old);
        let cell = |count: Option<f64>| count.map(|count| format!("{count:.0}"));
        let cells = [cell(new), cell(old), ratio.map(|ratio| format!("{ratio:.3}"))];
        let cells = cells.into_iter().map(Option::unwrap_or_default);
        rows.push([case.name.to_owned()].into_iter().chain(cells).collect::<Vec<_>>());
    }
    println!("\nUser-space instructions per request, one connection, {REQUESTS} requests\n");
    table::print(&["instructions", "humboldt", "old", "humboldt ÷ old"], &rows);
    Ok(())
}

/// What a run of more requests has more than one of fewer: start and end are the same.
fn per_request(lead_in: u64, requests: u64, counted: impl Fn(u64) -> Outcome<u64>) -> Outcome<f64> {
    let (short, long) = (counted(lead_in)?, counted(lead_in + requests)?);
    Ok(long.saturating_sub(short) as f64 / requests as f64)
}

/// Instructions of a whole run.
fn counted(
    plan: &Plan,
    program: &Path,
    origin: SocketAddr,
    case: &Case,
    requests: u64,
) -> Outcome<u64> {
    let folder = subjects::folder()?;
    let listen = free_address()?;
    let setting = Setting { folder: folder.path(), listen, origin, cache_mem_mb: CACHE_MEM_MB };
    let command = subjects::with_memory(program, &setting)?;
    if let Some(scheme) = case.scheme {
        add_store(folder.path(), scheme)?;
    }
    let command = under_callgrind(&command, folder.path());
    let subject =
        subjects::launch("humboldt", Style::Forward, plan.server_core, command, listen, folder)?;
    let drive = Drive {
        requests,
        objects: case.objects,
        connections: 1,
        limit: LIMIT,
        ..Drive::new(origin, case.body_bytes)
    };
    let driven = drive.run(plan, subject.name, listen)?;
    let hits_expected = if case.objects == 1 { requests - 1 } else { 0 };
    if driven.hits != hits_expected {
        return Err(format!("{} hits instead of {hits_expected}", driven.hits).into());
    }
    ended(subject)
}

/// Ends a program whose instructions are counted: callgrind writes then.
fn ended(subject: Subject) -> Outcome<u64> {
    let Subject { process, folder, .. } = subject;
    drop(process);
    let counts = fs::read_to_string(folder.path().join(COUNTS))?;
    total(&counts).ok_or_else(|| "callgrind has written no total".into())
}

/// Adds a store that has room for all objects of a run.
fn add_store(folder: &Path, scheme: &str) -> Outcome {
    let store = folder.join("store");
    fs::create_dir(&store)?;
    fs::set_permissions(&store, fs::Permissions::from_mode(0o777))?;
    let mut configuration = fs::OpenOptions::new().append(true).open(folder.join("squid.conf"))?;
    writeln!(configuration, "cache_dir {scheme} {} {STORE_MB}", store.display())?;
    Ok(())
}

fn under_callgrind(command: &Command, folder: &Path) -> Command {
    let mut words: Vec<&str> = Vec::new();
    if rustix::process::geteuid().is_root() {
        words.extend(AS_NOBODY);
    }
    words.extend(["valgrind", "--tool=callgrind"]);
    let mut counting = Command::new(words[0]);
    counting.args(&words[1..]).env("GLIBC_TUNABLES", TUNABLES);
    counting.arg(format!("--callgrind-out-file={}", folder.join(COUNTS).display()));
    counting.arg(command.get_program()).args(command.get_args());
    counting
}

/// The sum over all functions, from a file of callgrind's.
fn total(counts: &str) -> Option<u64> {
    let line = |name| counts.lines().find_map(|line| line.strip_prefix(name));
    line("totals: ").or_else(|| line("summary: "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found() {
        assert_eq!(
            total("events: Ir\nsummary: 100\n\nfn=(1) a\n3 100\n\ntotals: 100\n"),
            Some(100)
        );
        assert_eq!(total("events: Ir\nsummary: 7\n"), Some(7));
        assert_eq!(total("events: Ir\n"), None);
    }
}
