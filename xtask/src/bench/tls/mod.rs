//! `bench tls`: hits, handshakes and idle connections with TLS, beside nginx and a bare server with
//! the same library.
//!
//! All have the same certificate, with a key on P-256; clients offer TLS 1.3 with AES-128 and
//! X25519 only. So all encrypt with the same cipher, and the rest is theirs.

pub(crate) mod floor;
mod idle;
pub(super) mod servers;

use super::drive::{Drive, Secured};
use super::hit::MAX_ORIGIN_US;
use super::load::{self, Sample};
use super::subjects::{self, Style, Subject};
use super::{Plan, table};
use crate::Outcome;
use humboldt_lab_tls::Authority;
use servers::{Own, Server};
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Sizes of hits, with the CPU of a hit over nginx's, at most.
pub(super) const SIZES: [(usize, &str, f64); 3] =
    [(1 << 10, "1 KiB", 0.8), (13 << 10, "13 KiB", 0.8), (100 << 10, "100 KiB", 1.0)];

/// What TLS adds to a hit over what it adds to the floor, at most.
pub(super) const EXTRA_RATIO_MAX: f64 = 1.1;

/// Handshakes of a second of CPU over nginx's, at least.
const FULL_RATIO_MIN: f64 = 0.9;
const RESUMED_RATIO_MIN: f64 = 1.2;

/// The share of connections that must have the handshake that is measured; the first of each client
/// is a full one.
const SHARE_MIN: f64 = 0.95;

/// One request after the other on each connection, or a connection for each.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    Hits { is_secured: bool, body_bytes: usize },
    Handshakes { resumes: bool },
}

pub(super) fn run(mut plan: Plan) -> Outcome {
    let folder = subjects::folder()?;
    let (own, authority) = certificate(folder.path())?;
    plan.authority = Some(authority.clone());
    let plan = &plan;
    let origin = subjects::floor(plan, "origin", plan.load_core)?;
    let all = servers::all(plan, &own, origin.address)?;
    for (body_bytes, label, ratio_max) in SIZES {
        let hits = |is_secured| Load::Hits { is_secured, body_bytes };
        let samples = turns(plan, &all, &origin, &[hits(false), hits(true)])?;
        if let [plain, secured] = &samples[..] {
            print_hits(plan, &all, (plain, secured), label, ratio_max);
        }
    }
    for (resumes, label, ratio_min) in
        [(false, "Full", FULL_RATIO_MIN), (true, "Resumed", RESUMED_RATIO_MIN)]
    {
        for samples in turns(plan, &all, &origin, &[Load::Handshakes { resumes }])? {
            print_handshakes(plan, &all, &samples, label, ratio_min);
        }
    }
    idle::run(plan, &all, &authority, origin.address)
}

/// A certificate for this machine, and the file with its authority.
pub(super) fn certificate(folder: &Path) -> Outcome<(Own, std::path::PathBuf)> {
    let authority = Authority::new("benchmark")?;
    let identity = authority.issue(&["127.0.0.1".to_owned()])?;
    let write = |name: &str, text: &str| -> Outcome<std::path::PathBuf> {
        let path = folder.join(name);
        fs::write(&path, text)?;
        // Servers read it again when they have given up root's rights.
        fs::set_permissions(&path, Permissions::from_mode(0o644))?;
        Ok(path)
    };
    let own = Own {
        certificate: write("own.pem", &identity.certificate_pem)?,
        key: write("own.key", &identity.key_pem)?,
    };
    Ok((own, write("authority.pem", authority.certificate_pem())?))
}

/// All servers in turn, several times, each with one load after the other. The samples are by load
/// and server.
fn turns(
    plan: &Plan,
    all: &[Server],
    origin: &Subject,
    loads: &[Load],
) -> Outcome<Vec<Vec<Vec<Sample>>>> {
    for (server, load) in all.iter().flat_map(|server| loads.iter().map(move |load| (server, load)))
    {
        // Three times, so that every cache stores the object.
        let (address, drive) = drive(server, origin.address, *load);
        let warm = Drive { requests: 3, connections: 1, ..drive };
        warm.run(plan, server.name, address)?;
    }
    let none = || all.iter().map(|_| Vec::new()).collect::<Vec<_>>();
    let mut samples: Vec<Vec<Vec<Sample>>> = loads.iter().map(|_| none()).collect();
    for _ in 0..plan.rounds() {
        for (at, server) in all.iter().enumerate() {
            for (load, samples) in loads.iter().zip(&mut samples) {
                samples[at].push(turn(plan, server, origin, *load)?);
                server.process.empty_access_log()?;
            }
        }
    }
    Ok(samples)
}

fn drive(server: &Server, origin: SocketAddr, load: Load) -> (SocketAddr, Drive) {
    let (address, body_bytes, tls, keep_alive) = match load {
        Load::Hits { is_secured: false, body_bytes } => (server.plain, body_bytes, None, true),
        Load::Hits { is_secured: true, body_bytes } => {
            (server.secured, body_bytes, Some(Secured { resumes: false }), true)
        }
        Load::Handshakes { resumes } => (server.secured, 1024, Some(Secured { resumes }), false),
    };
    debug_assert!(body_bytes <= servers::BODY_BYTES_MAX);
    let own = Drive::new(origin, body_bytes);
    (address, Drive { objects: 1, style: Style::Direct, tls, keep_alive, ..own })
}

fn turn(plan: &Plan, server: &Server, origin: &Subject, load: Load) -> Outcome<Sample> {
    let (address, drive) = drive(server, origin.address, load);
    let before_us = origin.process.cpu_us()?;
    let is_secured = drive.tls.is_some();
    let subject: &Subject = server.process(is_secured);
    let sample = load::turn_at(plan, subject, address, drive)?;
    let origin_us = (origin.process.cpu_us()? - before_us) as f64 / sample.requests as f64;
    if origin_us > MAX_ORIGIN_US {
        let name = server.name;
        return Err(format!("{name}: the origin worked {origin_us:.1} µs for each `hit`").into());
    }
    if let Load::Handshakes { resumes } = load {
        let wanted = if resumes { sample.resumed } else { sample.full };
        if (wanted as f64) < SHARE_MIN * sample.requests as f64 {
            return Err(format!(
                "{}: {} requests with {} full handshakes and {} resumed ones",
                server.name, sample.requests, sample.full, sample.resumed
            )
            .into());
        }
    }
    Ok(sample)
}

fn cpu(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(Sample::cpu_us_per_request).collect()
}

/// What a server's figures are compared with, round by round.
fn ratios(one: &[f64], other: &[f64]) -> Vec<f64> {
    one.iter().zip(other).map(|(one, other)| one / other).collect()
}

fn of<'s>(all: &[Server], samples: &'s [Vec<Sample>], name: &str) -> Option<&'s [Sample]> {
    let at = all.iter().position(|server| server.name == name)?;
    samples.get(at).map(Vec::as_slice)
}

/// The part of a hit that TLS adds, round by round.
fn extra(plain: &[Sample], secured: &[Sample]) -> Vec<f64> {
    cpu(secured).iter().zip(cpu(plain)).map(|(secured, plain)| secured - plain).collect()
}

fn print_hits(
    plan: &Plan,
    all: &[Server],
    (plain, secured): (&[Vec<Sample>], &[Vec<Sample>]),
    label: &str,
    ratio_max: f64,
) {
    println!(
        "\nHits of {label} with TLS 1.3, AES-128, 64 connections, {} rounds of {:?}\n",
        plan.rounds(),
        plan.turn()
    );
    let floor = match (of(all, plain, "floor"), of(all, secured, "floor")) {
        (Some(plain), Some(secured)) => extra(plain, secured),
        _ => Vec::new(),
    };
    let rival = of(all, secured, "nginx").map(cpu);
    let mut verdicts = Vec::new();
    let rows = all.iter().zip(plain.iter().zip(secured)).map(|(server, (plain, secured))| {
        let (own, extra) = (cpu(secured), extra(plain, secured));
        let beside_floor = ratios(&extra, &floor);
        let beside_rival = rival.as_ref().map(|rival| ratios(&own, rival));
        if server.name == "humboldt" {
            verdicts.push(("extra over the floor's", beside_floor.clone(), EXTRA_RATIO_MAX));
            verdicts.extend(beside_rival.clone().map(|ratios| ("over nginx's", ratios, ratio_max)));
        }
        vec![
            server.name.to_owned(),
            table::with_range(&cpu(plain), 1),
            table::with_range(&own, 1),
            table::with_range(&extra, 1),
            table::with_range(&beside_floor, 2),
            beside_rival.map_or_else(String::new, |ratios| table::with_range(&ratios, 2)),
        ]
    });
    let rows: Vec<_> = rows.collect();
    table::print(
        &["hit", "plain µs", "TLS µs", "extra µs", "extra ÷ floor's", "TLS ÷ nginx's"],
        &rows,
    );
    for (what, ratios, most) in verdicts {
        let verdict = if table::median(&ratios) <= most { "reached" } else { "missed" };
        println!("\n{what}: {} (asked: ≤ {most}): {verdict}", table::with_range(&ratios, 2));
    }
}

fn print_handshakes(
    plan: &Plan,
    all: &[Server],
    samples: &[Vec<Sample>],
    label: &str,
    ratio_min: f64,
) {
    println!(
        "\n{label} handshakes (P-256, X25519), each with a request of 1 KiB, {} rounds of {:?}\n",
        plan.rounds(),
        plan.turn()
    );
    let per_s = |samples: &[Sample]| -> Vec<f64> {
        cpu(samples).iter().map(|cpu_us| 1e6 / cpu_us).collect()
    };
    let rival = of(all, samples, "nginx").map(per_s);
    let rows = all.iter().zip(samples).map(|(server, own)| {
        let beside_rival = rival.as_ref().map(|rival| ratios(&per_s(own), rival));
        let verdict = match (&beside_rival, server.name) {
            (Some(ratios), "humboldt") if table::median(ratios) >= ratio_min => {
                format!("≥ {ratio_min}: reached")
            }
            (Some(_), "humboldt") => format!("≥ {ratio_min}: missed"),
            _ => String::new(),
        };
        vec![
            server.name.to_owned(),
            table::with_range(&cpu(own), 1),
            table::with_range(&per_s(own), 0),
            beside_rival.map_or_else(String::new, |ratios| table::with_range(&ratios, 2)),
            verdict,
        ]
    });
    let heading = ["connection", "CPU µs", "in a CPU second", "÷ nginx's", "target"];
    table::print(&heading, &rows.collect::<Vec<_>>());
}
