//! `bench idle`: memory of the process without requests, of an idle connection, and of a request
//! that waits for its server.

use super::client::Client;
use super::drive::url;
use super::load::Deadline;
use super::subjects::{self, Style, Subject};
use super::{Plan, table};
use crate::processes::free_address;
use crate::{Outcome, packages};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

const CONNECTIONS: usize = 10_000;
const QUICK_CONNECTIONS: usize = 1_000;

/// Descriptor limits to start with: a careful one, and the one that some container engines hand
/// out.
const SMALL_LIMIT: u64 = 1_024;
const HUGE_LIMIT: u64 = 1_048_576;

/// Requests that wait at the same time, each for an object of its own.
const WAITING: usize = 5_000;
const QUICK_WAITING: usize = 500;

const TARGET_IDLE_MB: f64 = 12.0;
const TARGET_CONNECTION_KB: f64 = 8.0;
const TIME_LIMIT: Duration = Duration::from_secs(120);

pub(super) fn run(plan: &Plan) -> Outcome {
    let huge = raise_own_limit()?;
    let mut rows = Vec::new();
    let programs = [
        ("humboldt", plan.humboldt.clone()),
        ("old", plan.old.clone()),
        ("squid", packages::find("squid")),
    ];
    for (name, program) in programs {
        let wanted = name == "old" || plan.wants(name);
        let Some(program) = program.filter(|_| wanted) else { continue };
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
        rows.push(waiting(plan, name, &program, huge)?);
    }
    println!(
        "\nIdle: default configuration, no objects; then connections that each made one request;\n\
         then requests that wait for their server, with two connections each\n"
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
    let per_connection_kb = each_kb(before, after, count);
    let verdict = if per_connection_kb <= TARGET_CONNECTION_KB { "within" } else { "above" };
    Ok(vec![
        format!("{name}, each of {count} connections"),
        format!("{per_connection_kb:.2} KB"),
        format!("{verdict} {TARGET_CONNECTION_KB} KB"),
    ])
}

/// What each of `count` took of the bytes between two looks at resident memory.
pub(super) fn each_kb(before: u64, after: u64, count: usize) -> f64 {
    after.saturating_sub(before) as f64 / count as f64 / 1024.0
}

/// The memory of a request whose server does not answer, its two connections included.
fn waiting(
    plan: &Plan,
    name: &'static str,
    program: &Path,
    descriptors: u64,
) -> Outcome<Vec<String>> {
    let count = if plan.quick { QUICK_WAITING } else { WAITING };
    let mut silent = Silent::start(1 + count)?;
    let subject = start(plan, name, program, descriptors.min(4 * CONNECTIONS as u64))?;
    let mut held = vec![silent.ask(subject.address, 0)?];
    silent.wait_for(1)?;
    let before = subject.process.resident_bytes()?;
    for object in 1..=count {
        held.push(silent.ask(subject.address, object)?);
    }
    silent.wait_for(1 + count)?;
    let after = subject.process.resident_bytes()?;
    let kb = each_kb(before, after, count);
    let row = format!("{name}, each of {count} that wait");
    Ok(vec![row, format!("{kb:.2} KB"), String::new()])
}

/// A server that reads requests and answers none.
struct Silent {
    address: SocketAddr,
    asked: mpsc::Receiver<TcpStream>,
    held: Vec<TcpStream>,
}

impl Silent {
    /// A server for this many requests, each on a connection of its own.
    fn start(count: usize) -> Outcome<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let (tell, asked) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(count) {
                let Ok(mut stream) = stream else { return };
                // A head is small, and comes in one piece.
                let is_request = stream.set_read_timeout(Some(TIME_LIMIT)).is_ok()
                    && stream.read(&mut [0; 4096]).is_ok_and(|len| len > 0);
                if !is_request || tell.send(stream).is_err() {
                    return;
                }
            }
        });
        Ok(Self { address, asked, held: Vec::new() })
    }

    /// A connection by which the proxy was asked for an object.
    fn ask(&self, proxy: SocketAddr, object: usize) -> Outcome<TcpStream> {
        let mut stream = TcpStream::connect(proxy)?;
        let host = self.address;
        let head = format!("GET http://{host}/{object} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        Ok(stream)
    }

    /// Waits until this many requests have come.
    fn wait_for(&mut self, count: usize) -> Outcome {
        while self.held.len() < count {
            let asked = self.asked.recv_timeout(TIME_LIMIT);
            self.held.push(asked.map_err(|_| "a request did not reach its server")?);
        }
        Ok(())
    }
}
