//! A list of requests, worked through by the laboratory's banger: in a closed loop, or at a highest
//! rate. It is a process of its own on the load's core.
//!
//! Every answer is checked for its status and its length, and hits are counted by `X-Cache`, so
//! that a figure for hits is one for hits. Bytes are not compared: the servers of these benchmarks
//! are to be the slower side.

use super::Plan;
use super::subjects::Style;
use crate::Outcome;
use humboldt_lab_robots::{
    Bang, BangEvent, BangRecord, BangTarget, HitMark, Route, TlsWay, UserTls,
};
use humboldt_lab_tls::Trust;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// As many as the published figures of this project use.
pub(super) const CONNECTIONS: usize = 64;

/// A list that takes longer is broken, not slow.
const LIMIT: Duration = Duration::from_secs(120);

/// Wrong answers in a row before the server is taken for gone.
const FAILURES_MAX: u64 = 100;

/// A prime, so that every rank has an object of its own as long as their number is no multiple of
/// it.
const SCATTER: u64 = 1_000_003;

/// A hit of Humboldt, and of Squid.
const HIT_MARK: HitMark = HitMark { field: "x-cache", begin: "HIT" };

/// The only line of a password file, with a hash that is made to be slow.
pub(super) const LOGIN_PASSWORDS: &str =
    "anna:$2y$10$W6la79xGpjTnpNT1P/0L9eQk/AyTphxbvcem4pun.7qF7c.6R08m.\n";

/// Its name and password.
const LOGIN_FIELD: &str = "Proxy-Authorization: Basic YW5uYTpzZWNyZXQ=\r\n";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Address of the server
    to: SocketAddr,
    /// The list, as JSON
    drive: String,
    /// A file with the authority of servers that speak TLS
    #[arg(long)]
    authority: Option<PathBuf>,
}

/// The URL of an object.
pub(super) fn url(host: SocketAddr, body_bytes: usize, number: u64) -> String {
    format!("http://{host}/{body_bytes}/{number}")
}

/// How a load speaks TLS.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Secured {
    /// Each connection takes up the session of the one before it.
    pub(super) resumes: bool,
}

/// The domain of servers behind a proxy that decrypts.
pub(super) const DECRYPTED_DOMAIN: &str = "bench.test";

/// The servers of the tunnels that a proxy decrypts.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Decrypted {
    /// All tunnels lead to one server.
    One,
    /// Each request is for a server that nobody has asked for before.
    Each,
}

/// A list of requests to work through.
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Drive {
    /// The origin.
    pub(super) host: SocketAddr,
    pub(super) style: Style,
    pub(super) body_bytes: usize,
    /// Number of the first object.
    pub(super) first: u64,
    pub(super) requests: u64,
    /// After the last one, the first is asked for again.
    pub(super) objects: u64,
    /// Exponent of Zipf's law; `None` for one object after the other.
    pub(super) zipf: Option<f64>,
    /// Each has one request at a time.
    pub(super) connections: usize,
    /// Highest rate; `None` for the next request as soon as a connection is free.
    pub(super) requests_per_s: Option<f64>,
    /// Each request has the credentials of [`LOGIN_PASSWORDS`].
    pub(super) login: bool,
    /// TLS, with a server that the plan's authority has signed a certificate for.
    pub(super) tls: Option<Secured>,
    /// TLS is spoken in tunnels through a proxy, which decrypts them.
    pub(super) decrypted: Option<Decrypted>,
    /// Connections are used again.
    pub(super) keep_alive: bool,
    pub(super) limit: Duration,
}

/// The result.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Driven {
    /// Right answers.
    pub(super) requests: u64,
    pub(super) seconds: f64,
    pub(super) errors: u64,
    pub(super) hits: u64,
    pub(super) p99_us: u64,
    /// Handshakes of TLS with certificates, and those that took up a session.
    pub(super) full: u64,
    pub(super) resumed: u64,
}

impl Drive {
    /// One object after the other, all different, through a forward proxy in a closed loop; without
    /// end but for the time limit.
    pub(super) fn new(host: SocketAddr, body_bytes: usize) -> Self {
        Self {
            host,
            style: Style::Forward,
            body_bytes,
            first: 0,
            requests: u64::MAX,
            objects: u64::MAX,
            zipf: None,
            connections: CONNECTIONS,
            requests_per_s: None,
            login: false,
            tls: None,
            decrypted: None,
            keep_alive: true,
            limit: LIMIT,
        }
    }

    /// Starts the load on its core.
    pub(super) fn start(&self, plan: &Plan, to: SocketAddr) -> Outcome<Child> {
        let mut command = Command::new("taskset");
        command.arg("-c").arg(plan.load_core.to_string()).arg(&plan.xtask).arg("drive");
        command.arg(to.to_string()).arg(serde_json::to_string(self)?);
        if let Some(authority) = &plan.authority {
            command.arg("--authority").arg(authority);
        }
        Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?)
    }

    /// Works until the list or the time is at its end.
    pub(super) fn ask(&self, plan: &Plan, to: SocketAddr) -> Outcome<Driven> {
        let output = self.start(plan, to)?.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(serde_json::from_str(&text).map_err(|error| format!("the load: {error}: {text}"))?)
    }

    /// Works through the list; an error if not all was answered as it should be.
    pub(super) fn run(&self, plan: &Plan, name: &str, to: SocketAddr) -> Outcome<Driven> {
        let driven = self.ask(plan, to).map_err(|error| format!("{name}: {error}"))?;
        if driven.errors > 0 || driven.requests < self.requests {
            return Err(format!(
                "{name}: {} of {} requests answered in {:.1} s, {} errors",
                driven.requests, self.requests, driven.seconds, driven.errors
            )
            .into());
        }
        Ok(driven)
    }

    /// The load itself.
    fn work(&self, to: SocketAddr, authority: Option<&Path>) -> Outcome<Driven> {
        let mut bang = self.bang(to);
        if let Some(tls) = self.tls {
            let pem = std::fs::read_to_string(authority.ok_or("TLS without an authority")?)?;
            let trust = Trust::with_one_cipher(&pem, tls.resumes)?;
            let way = if self.decrypted.is_some() { TlsWay::Intercept } else { TlsWay::Hop };
            bang.tls = Some(UserTls { way, trust });
        }
        let mut order = Order::new(self);
        let numbers = (0..self.requests).map(|asked| self.first + order.nth(asked));
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let target =
            |number| format!("{scheme}://{}/{}/{number}", self.server(number), self.body_bytes);
        let targets = numbers.map(|number| BangTarget::Url(target(number)));
        let (mut errors, mut errors_in_row, mut lasted_us) = (0, 0, 0);
        let report = bang.run_watched(targets, &mut |event| match event {
            BangEvent::Ended(record) => {
                let is_error = !self.is_right(record);
                errors += u64::from(is_error);
                errors_in_row = if is_error { errors_in_row + 1 } else { 0 };
                errors_in_row < FAILURES_MAX
            }
            BangEvent::Tick { at_us, .. } => {
                lasted_us = at_us;
                u128::from(at_us) < self.limit.as_micros()
            }
        })?;
        let faults: u64 = report.faults.values().sum();
        Ok(Driven {
            requests: report.answers + faults - errors,
            // A server that stands still has no last answer at the end.
            seconds: report.wall_us.max(lasted_us) as f64 / 1e6,
            errors,
            hits: report.hits,
            p99_us: report.service.percentile_us(99.0),
            full: report.handshakes.full,
            resumed: report.handshakes.resumed,
        })
    }

    /// Its settings, without its list.
    pub(super) fn bang(&self, to: SocketAddr) -> Bang {
        let route = match self.style {
            Style::Forward => Route::Forward { proxies: vec![to] },
            Style::Direct => {
                Route::Accelerator { addresses: vec![to], host: self.host.to_string() }
            }
        };
        Bang {
            connections_max: self.connections,
            timeout_s: self.limit.as_secs_f64(),
            keep_alive: self.keep_alive,
            requests_per_s_max: self.requests_per_s,
            url_fields: if self.login { LOGIN_FIELD } else { "" },
            hit_mark: Some(HIT_MARK),
            ..Bang::new(route)
        }
    }

    /// Host and port of an object.
    fn server(&self, number: u64) -> String {
        let port = self.host.port();
        match self.decrypted {
            None => self.host.to_string(),
            Some(Decrypted::One) => format!("one.{DECRYPTED_DOMAIN}:{port}"),
            Some(Decrypted::Each) => format!("n{number}.{DECRYPTED_DOMAIN}:{port}"),
        }
    }

    fn is_right(&self, record: &BangRecord<'_>) -> bool {
        record.status == Some(200) && record.body_bytes == self.body_bytes as u64
    }
}

/// `cargo xtask drive`.
pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let drive: Drive = serde_json::from_str(&arguments.drive)?;
    let driven = drive.work(arguments.to, arguments.authority.as_deref())?;
    println!("{}", serde_json::to_string(&driven)?);
    Ok(())
}

/// Which object is asked for next, counted from the first one.
pub(super) enum Order {
    InTurn {
        objects: u64,
    },
    /// The shares of the objects up to each one, ascending to 1, and where the random numbers are.
    Zipf {
        shares: Vec<f64>,
        state: u64,
    },
}

impl Order {
    fn new(drive: &Drive) -> Self {
        let objects = drive.objects.max(1);
        match drive.zipf {
            None => Self::InTurn { objects },
            // Every turn asks for other objects, and those of two subjects in a turn for the same
            // ones.
            Some(exponent) => Self::zipf(objects, exponent, drive.first ^ drive.requests),
        }
    }

    /// By Zipf's law with this exponent.
    pub(super) fn zipf(objects: u64, exponent: f64, seed: u64) -> Self {
        let mut sum = 0.0;
        let mut shares: Vec<f64> = (1..=objects)
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        shares.iter_mut().for_each(|share| *share /= sum);
        Self::Zipf { shares, state: seed }
    }

    pub(super) fn nth(&mut self, asked: u64) -> u64 {
        match self {
            Self::InTurn { objects } => asked % *objects,
            Self::Zipf { shares, state } => {
                // SplitMix64.
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut bits = *state;
                bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                let at = ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
                let rank =
                    shares.partition_point(|share| *share <= at).min(shares.len() - 1) as u64;
                // Neighbours in popularity are not neighbours on disk.
                rank.wrapping_mul(SCATTER) % shares.len() as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A server that answers each request on its own connection thread with `answer`.
    fn server(answer: &'static [u8]) -> SocketAddr {
        server_until(answer, u64::MAX)
    }

    /// One that stands still after this many answers on a connection.
    fn server_until(answer: &'static [u8], answers: u64) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut chunk = [0; 4096];
                    let mut left = answers;
                    while stream.read(&mut chunk).is_ok_and(|len| len > 0) {
                        if left > 0 {
                            stream.write_all(answer).unwrap();
                        }
                        left = left.saturating_sub(1);
                    }
                });
            }
        });
        address
    }

    fn drive(to: SocketAddr, requests: u64) -> Driven {
        Drive { requests, connections: 4, ..Drive::new(to, 5) }.work(to, None).unwrap()
    }

    #[test]
    fn every_request_is_asked_once_and_hits_are_counted() {
        let to =
            server(b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r\nX-Cache: HIT from a\r\n\r\nabcde");
        let driven = drive(to, 50);
        assert_eq!((driven.requests, driven.errors, driven.hits), (50, 0, 50));
    }

    #[test]
    fn servers_behind_a_proxy_that_decrypts_have_names() {
        let drive = Drive::new(SocketAddr::from(([127, 0, 0, 1], 7)), 5);
        let server = |decrypted| Drive { decrypted, ..drive }.server(3);
        assert_eq!(server(None), "127.0.0.1:7");
        assert_eq!(server(Some(Decrypted::One)), "one.bench.test:7");
        assert_eq!(server(Some(Decrypted::Each)), "n3.bench.test:7");
    }

    #[test]
    fn other_lengths_and_other_statuses_are_errors() {
        for answer in [
            &b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef"[..],
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nabcde",
        ] {
            let driven = drive(server(answer), 8);
            assert_eq!((driven.requests, driven.errors, driven.hits), (0, 8, 0));
        }
    }

    #[test]
    fn a_server_that_is_gone_ends_the_load() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let driven = drive(free, 1_000_000);
        assert_eq!((driven.requests, driven.errors), (0, FAILURES_MAX));
    }

    #[test]
    fn the_time_limit_ends_a_list_without_end() {
        let to = server(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde");
        let limit = Duration::from_secs(2);
        let driven = Drive { limit, ..Drive::new(to, 5) }.work(to, None).unwrap();
        assert!(driven.requests > 0 && driven.errors == 0 && driven.seconds >= 1.9, "{driven:?}");
    }

    #[test]
    fn a_standstill_counts_as_time() {
        let to = server_until(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde", 1);
        let limit = Duration::from_secs(3);
        let driven = Drive { limit, connections: 4, ..Drive::new(to, 5) }.work(to, None).unwrap();
        assert!(driven.requests >= 4 && driven.seconds >= 2.9, "{driven:?}");
    }

    #[test]
    fn zipf_asks_for_all_objects_and_for_few_of_them_often() {
        let to = SocketAddr::from(([127, 0, 0, 1], 1));
        let mut order = Order::new(&Drive { objects: 100, zipf: Some(1.0), ..Drive::new(to, 5) });
        let mut seen = [0_u64; 100];
        (0..10_000).for_each(|asked| seen[order.nth(asked) as usize] += 1);
        // 1/H(100) is 0.193.
        assert!(seen.iter().all(|times| *times > 0));
        assert!((1800..2050).contains(seen.iter().max().unwrap()), "{seen:?}");
    }
}
