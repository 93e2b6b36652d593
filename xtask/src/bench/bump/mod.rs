//! `bench bump`: connections that a proxy decrypts (`ssl_bump`), beside Squid built with OpenSSL.
//!
//! Each connection is a CONNECT, a handshake with the certificate that the proxy has made, and one
//! request of 1 KiB inside. CPU is that of the proxy with all its helpers, on one core. Both sign
//! with the same authority, whose key is of P-256; clients offer TLS 1.3 with AES-128 and X25519
//! only, and resume nothing.
//!
//! - A certificate that is there: all connections are for one server, and the request is a hit in
//!   memory.
//! - A new one: each connection is for a server that nobody has asked for before. The request is a
//!   miss, which the origin answers as a parent with TLS: no name is looked up. Both make a new
//!   connection to the parent for each request (`server_persistent_connections off`), so both do
//!   the same work, and the origin counts that they do.
//! - The same as it is without that line: Humboldt uses its connection to the parent again; Squid
//!   makes a new one all the same. Nothing is asked of this, as the work differs.
//! - The server is looked at first (`stare`): both connect to it for each tunnel, and the
//!   certificate, made after the server's, is there. Nothing is asked of this.

mod proxies;

use super::counts::Counts;
use super::drive::{DECRYPTED_DOMAIN, Decrypted, Drive, Secured};
use super::hit::MAX_ORIGIN_US;
use super::load::{self, Sample};
use super::subjects::{self, Style, Subject};
use super::{Plan, table};
use crate::Outcome;
use crate::processes::free_address;
use humboldt_lab_tls::Authority;
use proxies::{Mode, Squid};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Connections of a second of CPU over Squid's, at least.
const FOUND_RATIO_MIN: f64 = 2.0;
const MADE_RATIO_MIN: f64 = 4.0;

const BODY_BYTES: usize = 1024;

/// With more of them Squid, which makes a hundred certificates a second, is late in short turns.
const CONNECTIONS: usize = 16;

/// Names of one turn are far from those of the next.
const NAMES_OF_TURN: u64 = 100_000_000;

/// What connections are for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    Found,
    MadeAnew,
    Made,
    Looked,
}

impl Load {
    const ALL: [Self; 4] = [Self::Found, Self::MadeAnew, Self::Made, Self::Looked];

    fn title(self) -> &'static str {
        match self {
            Self::Found => "a certificate that is there, a hit in memory (`bump` at once)",
            Self::MadeAnew => {
                "a new certificate, a miss on a new connection to a parent (`bump` at once)"
            }
            Self::Made => {
                "a new certificate, a miss on any connection to a parent (`bump` at once)"
            }
            Self::Looked => "the server looked at first, a hit in memory (`stare`, then `bump`)",
        }
    }

    fn mode(self) -> Mode {
        match self {
            Self::Found | Self::Made => Mode::Bump,
            Self::MadeAnew => Mode::BumpAnew,
            Self::Looked => Mode::Stare,
        }
    }

    fn ratio_min(self) -> Option<f64> {
        match self {
            Self::Found => Some(FOUND_RATIO_MIN),
            Self::MadeAnew => Some(MADE_RATIO_MIN),
            Self::Made | Self::Looked => None,
        }
    }

    /// Whether this many requests of a load make so much work for the origin.
    fn check(self, requests: u64, origin: Counts) -> Result<(), String> {
        let asks = matches!(self, Self::Made | Self::MadeAnew);
        if asks && origin.requests < requests {
            return Err(format!("the origin saw {} of {requests} `misses`", origin.requests));
        }
        if self == Self::MadeAnew && origin.connections < requests {
            let connections = origin.connections;
            return Err(format!("{connections} connections to the parent for {requests} requests"));
        }
        Ok(())
    }

    /// Requests that begin with this turn's names.
    fn drive(self, plan: &Plan, origin: &Subject, turn: u64) -> Drive {
        let (decrypted, objects, first) = match self {
            Self::Found | Self::Looked => (Decrypted::One, 1, 0),
            Self::Made | Self::MadeAnew => (Decrypted::Each, u64::MAX, turn * NAMES_OF_TURN),
        };
        debug_assert!(plan.authority.is_some());
        let tls = Some(Secured { resumes: false });
        let own = Drive::new(origin.address, BODY_BYTES);
        Drive {
            decrypted: Some(decrypted),
            objects,
            first,
            connections: CONNECTIONS,
            tls,
            keep_alive: false,
            ..own
        }
    }
}

/// Files that all use.
struct Files {
    /// The authority of the proxies, and of the origin's certificate.
    authority: PathBuf,
    authority_key: PathBuf,
    /// The origin's own.
    certificate: PathBuf,
    key: PathBuf,
    /// The address of the one server that is looked at.
    hosts: PathBuf,
    /// What the origin has done.
    counts: PathBuf,
}

/// The floor of TLS, on the core of the load.
struct Origin {
    subject: Subject,
    counts: PathBuf,
}

pub(super) fn run(mut plan: Plan) -> Outcome {
    let folder = subjects::folder()?;
    let files = files(folder.path())?;
    plan.authority = Some(files.authority.clone());
    let plan = &plan;
    let squid = if plan.wants("squid") { Squid::find()? } else { None };
    let origin = origin(plan, &files)?;
    for mode in [Mode::Bump, Mode::BumpAnew, Mode::Stare] {
        let all = proxies::all(plan, mode, &files, squid.as_ref(), origin.subject.address)?;
        for load in Load::ALL.into_iter().filter(|load| load.mode() == mode) {
            let samples = turns(plan, &all, &origin, load)?;
            print(plan, &all, &samples, load);
        }
    }
    Ok(())
}

fn files(folder: &Path) -> Outcome<Files> {
    let authority = Authority::new("benchmark")?;
    let names = ["127.0.0.1".to_owned(), format!("*.{DECRYPTED_DOMAIN}")];
    let identity = authority.issue(&names)?;
    let write = |name: &str, text: &str| -> Outcome<PathBuf> {
        let path = folder.join(name);
        fs::write(&path, text)?;
        // Servers read it again when they have given up root's rights.
        fs::set_permissions(&path, Permissions::from_mode(0o644))?;
        Ok(path)
    };
    Ok(Files {
        authority: write("authority.pem", authority.certificate_pem())?,
        authority_key: write("authority.key", authority.key_pem())?,
        certificate: write("own.pem", &identity.certificate_pem)?,
        key: write("own.key", &identity.key_pem)?,
        counts: folder.join("counts"),
        hosts: write("hosts", &format!("127.0.0.1 one.{DECRYPTED_DOMAIN}\n"))?,
    })
}

fn origin(plan: &Plan, files: &Files) -> Outcome<Origin> {
    let listen = free_address()?;
    let mut command = Command::new(&plan.xtask);
    command.arg("tls-floor").arg(listen.to_string()).arg(&files.certificate).arg(&files.key);
    command.arg("--counts").arg(&files.counts);
    let (core, folder) = (plan.load_core, subjects::folder()?);
    let subject = subjects::launch("origin", Style::Direct, core, command, listen, folder)?;
    Ok(Origin { subject, counts: files.counts.clone() })
}

/// A turn, and the origin's CPU for each connection.
struct Turn {
    sample: Sample,
    origin_us: f64,
}

/// All in turn, several times. The turns are by subject.
fn turns(plan: &Plan, all: &[Subject], origin: &Origin, load: Load) -> Outcome<Vec<Vec<Turn>>> {
    // Three times, so that every cache stores the object.
    for subject in all {
        let drive = load.drive(plan, &origin.subject, 0);
        let warm = Drive { requests: 3, connections: 1, ..drive };
        warm.run(plan, subject.name, subject.address)?;
    }
    let mut turns: Vec<Vec<Turn>> = all.iter().map(|_| Vec::new()).collect();
    for round in 0..plan.rounds_wanted.unwrap_or(plan.rounds()) {
        for (subject, turns) in all.iter().zip(&mut turns) {
            let drive = load.drive(plan, &origin.subject, round as u64 + 1);
            turns.push(turn(plan, subject, origin, (load, drive))?);
            subject.empty_access_log()?;
        }
    }
    Ok(turns)
}

fn turn(
    plan: &Plan,
    subject: &Subject,
    origin: &Origin,
    (load, drive): (Load, Drive),
) -> Outcome<Turn> {
    let process = &origin.subject.process;
    let (before, before_us) = (Counts::read(&origin.counts)?, process.cpu_us()?);
    let sample = load::turn(plan, subject, drive)?;
    let origin_us = (process.cpu_us()? - before_us) as f64 / sample.requests as f64;
    let name = subject.name;
    load.check(sample.requests, Counts::read(&origin.counts)?.since(before))
        .map_err(|what| format!("{name}: {what}"))?;
    if load == Load::Found && origin_us > MAX_ORIGIN_US {
        return Err(format!("{name}: the origin worked {origin_us:.1} µs for each `hit`").into());
    }
    if sample.full < sample.requests {
        let (requests, full) = (sample.requests, sample.full);
        return Err(format!("{name}: {requests} requests with {full} full handshakes").into());
    }
    Ok(Turn { sample, origin_us })
}

fn cpu_us(turns: &[Turn]) -> Vec<f64> {
    turns.iter().map(|turn| turn.sample.cpu_us_per_request()).collect()
}

fn print(plan: &Plan, all: &[Subject], turns: &[Vec<Turn>], load: Load) {
    println!(
        "\nConnections that are decrypted: {}; {} rounds of {:?}\n",
        load.title(),
        plan.rounds_wanted.unwrap_or(plan.rounds()),
        plan.turn()
    );
    let of = |name: &str| {
        let at = all.iter().position(|subject| subject.name == name)?;
        turns.get(at).map(|turns| cpu_us(turns))
    };
    let rival = of("squid");
    let beside = |own: &[f64]| -> Option<Vec<f64>> {
        Some(rival.as_ref()?.iter().zip(own).map(|(rival, own)| rival / own).collect())
    };
    let rows = all.iter().zip(turns).map(|(subject, turns)| {
        let own = cpu_us(turns);
        let per_s: Vec<f64> = own.iter().map(|cpu_us| 1e6 / cpu_us).collect();
        let origin_us: Vec<f64> = turns.iter().map(|turn| turn.origin_us).collect();
        vec![
            subject.name.to_owned(),
            table::with_range(&own, 1),
            table::with_range(&per_s, 0),
            beside(&own).map_or_else(String::new, |ratios| table::with_range(&ratios, 2)),
            table::with_range(&origin_us, 1),
        ]
    });
    let heading = ["connection", "CPU µs", "in a CPU second", "÷ squid's", "origin µs"];
    table::print(&heading, &rows.collect::<Vec<_>>());
    let ratios = of("humboldt").and_then(|own| beside(&own));
    if let (Some(ratios), Some(least)) = (ratios, load.ratio_min()) {
        let verdict = if table::median(&ratios) >= least { "reached" } else { "missed" };
        let ratios = table::with_range(&ratios, 2);
        println!("\nconnections of a CPU second ÷ Squid's: {ratios} (asked: ≥ {least}): {verdict}");
    }
    if let (Some(old), Some(new)) = (of("old"), of("humboldt")) {
        let ratios: Vec<f64> = new.iter().zip(&old).map(|(new, old)| new / old).collect();
        println!("\nCPU, humboldt ÷ old: {}", table::with_range(&ratios, 3));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_without_the_work_that_it_is_about_fails() {
        let origin = |connections, requests| Counts { connections, requests };
        for (load, right) in [
            (Load::Found, [true, true, true]),
            (Load::Looked, [true, true, true]),
            (Load::Made, [false, true, true]),
            (Load::MadeAnew, [false, false, true]),
        ] {
            let is_right = [origin(10, 9), origin(1, 10), origin(11, 12)]
                .map(|origin| load.check(10, origin).is_ok());
            assert_eq!(is_right, right, "{}", load.title());
        }
    }

    #[test]
    fn the_verdicts_are_about_the_same_work_in_both() {
        assert_eq!(Load::MadeAnew.ratio_min(), Some(MADE_RATIO_MIN));
        assert_eq!(Load::Made.ratio_min(), None);
    }
}
