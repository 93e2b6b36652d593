//! `bench instructions tls`: what TLS adds to a hit, beside what it adds to a bare server with the
//! same library.
//!
//! Valgrind knows AES-NI and AVX2, but not AVX-512, and tells the programs so: the cipher takes the
//! same instructions in all of them, but more than on a processor that has more.

use super::{LIMIT, ended, per_request, under_callgrind};
use crate::Outcome;
use crate::bench::drive::{Drive, Secured};
use crate::bench::subjects::{self, Style};
use crate::bench::tls::servers::{self, Own};
use crate::bench::tls::{EXTRA_RATIO_MAX, SIZES, certificate};
use crate::bench::{Plan, table};
use crate::processes::free_address;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// Requests before those that are counted.
const LEAD_IN: u64 = 200;

/// Requests that are counted, for each of [`SIZES`]: the more the less a hit takes.
const REQUESTS: [u64; SIZES.len()] = [10_000, 4000, 1000];

/// How often each run is made. Its least count is taken: what a program does by the clock, such as
/// looking at deadlines, comes on top, and so does what the library needs to gather randomness.
const REPEATS: usize = 2;

/// A server, and how it is started.
struct Server<'a> {
    name: &'static str,
    /// `None`: the floor.
    program: Option<&'a Path>,
}

pub(super) fn run(mut plan: Plan) -> Outcome {
    let folder = subjects::folder()?;
    let (own, authority) = certificate(folder.path())?;
    plan.authority = Some(authority);
    let origin = subjects::floor(&plan, "origin", plan.load_core)?;
    let servers = [
        Some(Server { name: "floor", program: None }),
        plan.humboldt.as_deref().map(|program| Server { name: "humboldt", program: Some(program) }),
        plan.old.as_deref().map(|program| Server { name: "old", program: Some(program) }),
    ];
    let (mut rows, mut verdicts) = (Vec::new(), Vec::new());
    for ((body_bytes, label, _), requests) in SIZES.into_iter().zip(REQUESTS) {
        let mut of_floor = None;
        for server in servers.iter().flatten() {
            let cost = |is_secured| {
                per_request(LEAD_IN, requests, |requests| {
                    let load = Load { body_bytes, is_secured, requests };
                    let once = |_| counted(&plan, server, &own, origin.address, &load);
                    let counts: Vec<u64> = (0..repeats(&plan)).map(once).collect::<Outcome<_>>()?;
                    counts.into_iter().min().ok_or_else(|| "nothing was counted".into())
                })
            };
            let (plain, secured) = (cost(false)?, cost(true)?);
            let extra = secured - plain;
            let ratio = extra / *of_floor.get_or_insert(extra);
            rows.push(vec![
                label.to_owned(),
                server.name.to_owned(),
                format!("{plain:.0}"),
                format!("{secured:.0}"),
                format!("{extra:.0}"),
                format!("{ratio:.3}"),
            ]);
            if server.name == "humboldt" {
                let verdict = if ratio <= EXTRA_RATIO_MAX { "reached" } else { "missed" };
                verdicts.push(format!(
                    "{label}: extra over the floor's: {ratio:.2} (asked: ≤ {EXTRA_RATIO_MAX}): \
                     {verdict}"
                ));
            }
        }
    }
    println!(
        "\nUser-space instructions of a hit, TLS 1.3, AES-128, one connection, the least of {} runs\n",
        repeats(&plan)
    );
    table::print(&["hit", "server", "plain", "TLS", "extra", "extra ÷ floor's"], &rows);
    for verdict in verdicts {
        println!("\n{verdict}");
    }
    Ok(())
}

/// What a server is asked for.
struct Load {
    body_bytes: usize,
    is_secured: bool,
    requests: u64,
}

fn repeats(plan: &Plan) -> usize {
    if plan.quick { 1 } else { REPEATS }
}

/// Instructions of a whole run.
fn counted(
    plan: &Plan,
    server: &Server<'_>,
    own: &Own,
    origin: SocketAddr,
    &Load { body_bytes, is_secured, requests }: &Load,
) -> Outcome<u64> {
    let folder = subjects::folder()?;
    let (plain, secured) = (free_address()?, free_address()?);
    let listen = if is_secured { secured } else { plain };
    let command = match server.program {
        Some(program) => {
            servers::humboldt_command(program, folder.path(), own, origin, (plain, secured))?
        }
        None if is_secured => servers::floor_command(plan, own, secured),
        None => {
            let mut command = Command::new(&plan.xtask);
            command.arg("floor").arg(plain.to_string());
            command
        }
    };
    let command = under_callgrind(&command, folder.path());
    let core = plan.server_core;
    let subject = subjects::launch(server.name, Style::Direct, core, command, listen, folder)?;
    let drive = Drive {
        requests,
        objects: 1,
        connections: 1,
        limit: LIMIT,
        style: Style::Direct,
        tls: is_secured.then_some(Secured { resumes: false }),
        ..Drive::new(origin, body_bytes)
    };
    let driven = drive.run(plan, subject.name, listen)?;
    let hits_expected = if server.program.is_some() { requests - 1 } else { 0 };
    if driven.hits != hits_expected {
        return Err(format!("{} hits instead of {hits_expected}", driven.hits).into());
    }
    ended(subject)
}
