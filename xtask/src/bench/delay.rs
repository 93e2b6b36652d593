//! `bench delay`: the bytes that clients of delay pools get in ten seconds, beside Squid.

use super::drive::url;
use super::subjects::{self, Style, Subject};
use super::{Plan, floor, table};
use crate::processes::free_address;
use crate::{Outcome, packages};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// How long the clients read. The parameters of the pools are about this time.
const SECONDS: u64 = 10;

/// A pool, and its clients.
struct Scenario {
    name: &'static str,
    /// Lines of squid.conf.
    pool: &'static str,
    clients: usize,
    /// The same URL for all clients, so that they share a fetch.
    is_shared: bool,
    /// Bytes that one client should get in a second.
    rate: u64,
    /// Bytes in the bucket at first, for each client.
    level: u64,
}

const SCENARIOS: [Scenario; 6] = [
    Scenario {
        name: "class 1, one client",
        pool: "delay_pools 1\ndelay_class 1 1\ndelay_parameters 1 100000/100000\n\
               delay_access 1 allow all",
        clients: 1,
        is_shared: false,
        rate: 100_000,
        level: 50_000,
    },
    Scenario {
        name: "class 1, ten clients of one bucket",
        pool: "delay_pools 1\ndelay_class 1 1\ndelay_parameters 1 400000/400000\n\
               delay_access 1 allow all",
        clients: 10,
        is_shared: false,
        rate: 40_000,
        level: 20_000,
    },
    Scenario {
        name: "class 1, ten clients of one bucket and one URL",
        pool: "delay_pools 1\ndelay_class 1 1\ndelay_parameters 1 400000/400000\n\
               delay_access 1 allow all\ncollapsed_forwarding on",
        clients: 10,
        is_shared: true,
        rate: 40_000,
        level: 20_000,
    },
    Scenario {
        name: "class 1, a small bucket",
        pool: "delay_pools 1\ndelay_class 1 1\ndelay_parameters 1 200000/20000\n\
               delay_access 1 allow all",
        clients: 1,
        is_shared: false,
        rate: 200_000,
        level: 10_000,
    },
    Scenario {
        name: "class 3, one client, the individual limit counts",
        pool: "delay_pools 1\ndelay_class 1 3\n\
               delay_parameters 1 1000000/1000000 500000/500000 64000/64000\ndelay_access 1 allow all",
        clients: 1,
        is_shared: false,
        rate: 64_000,
        level: 32_000,
    },
    Scenario {
        name: "client pool, four connections of one client",
        pool: "client_delay_pools 1\nclient_delay_parameters 1 200000 200000\n\
               client_delay_access 1 allow all",
        clients: 4,
        is_shared: false,
        rate: 50_000,
        level: 25_000,
    },
];

pub(super) fn run(plan: &Plan) -> Outcome {
    let origin = subjects::floor(plan, "origin", plan.load_core)?;
    let programs = [("humboldt", plan.humboldt.clone()), ("squid", packages::find("squid"))];
    let mut rows = Vec::new();
    for scenario in &SCENARIOS {
        for (name, program) in &programs {
            let Some(program) = program.as_deref().filter(|_| plan.wants(name)) else { continue };
            let subject = start(plan, name, program, scenario)?;
            let got = read_all(&subject, origin.address, scenario)?;
            rows.push(row(name, scenario, &got));
        }
    }
    println!(
        "\nBytes that each client of a delay pool got in {SECONDS} s, beside what the pool allows \
         (its level at first, and {SECONDS} s of its rate)\n"
    );
    table::print(
        &["pool", "program", "KB for all", "allowed", "difference", "least and most of a client"],
        &rows,
    );
    Ok(())
}

fn row(name: &str, scenario: &Scenario, got: &[u64]) -> Vec<String> {
    let allowed = (scenario.level + SECONDS * scenario.rate) * scenario.clients as u64;
    let all: u64 = got.iter().sum();
    let kb = |bytes: u64| format!("{:.0}", bytes as f64 / 1000.0);
    let (least, most) = (got.iter().min(), got.iter().max());
    vec![
        scenario.name.to_owned(),
        name.to_owned(),
        kb(all),
        kb(allowed),
        format!("{:+.1} %", 100.0 * (all as f64 / allowed as f64 - 1.0)),
        format!("{} – {}", kb(*least.unwrap_or(&0)), kb(*most.unwrap_or(&0))),
    ]
}

fn start(plan: &Plan, name: &'static str, program: &Path, scenario: &Scenario) -> Outcome<Subject> {
    let folder = subjects::folder()?;
    let listen = free_address()?;
    let path = folder.path().display();
    let text = format!(
        "http_port {listen}\npid_filename {path}/pid\naccess_log none\ncache_log {path}/cache.log\n\
         coredump_dir {path}\nshutdown_lifetime 0 seconds\ncache_mem 64 MB\n{}\nhttp_access allow all\n",
        scenario.pool
    );
    let configuration = folder.path().join("squid.conf");
    fs::write(&configuration, text)?;
    let mut command = Command::new(program);
    command.arg("-N").arg("-f").arg(configuration);
    if name == "squid" {
        // Squids of the same name share segments of memory.
        command.arg("-n").arg(format!("bench{}", listen.port()));
    }
    subjects::launch(name, Style::Forward, plan.server_core, command, listen, folder)
}

/// The bytes that each client gets.
fn read_all(subject: &Subject, origin: SocketAddr, scenario: &Scenario) -> Outcome<Vec<u64>> {
    let clients = 0..scenario.clients as u64;
    let begin = |client: u64| {
        let number = if scenario.is_shared { 0 } else { client };
        let url = url(origin, floor::MAX_BODY_BYTES, number);
        let address = subject.address;
        thread::spawn(move || read(address, &url, origin).map_err(|error| error.to_string()))
    };
    let threads: Vec<_> = clients.map(begin).collect();
    let mut got = Vec::new();
    for thread in threads {
        got.push(thread.join().map_err(|_| "a client panicked")??);
    }
    Ok(got)
}

fn read(address: SocketAddr, url: &str, host: SocketAddr) -> std::io::Result<u64> {
    let mut stream = TcpStream::connect(address)?;
    let end = Instant::now() + Duration::from_secs(SECONDS);
    write!(stream, "GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n")?;
    let (mut buffer, mut bytes) = (vec![0; 65_536], 0);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(bytes);
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(bytes),
            Ok(read) => bytes += read as u64,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(bytes);
            }
            Err(error) => return Err(error),
        }
    }
}
