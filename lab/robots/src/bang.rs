//! The banger: a fixed number of connections, each asking for the next URL as soon as it was
//! answered.
//!
//! This is the closed loop of tcp-banger2. It finds the rate at which a list of URLs can be
//! fetched. It does not show the waiting times of users, because a slow server gets fewer requests;
//! use [`Robots`](crate::Robots) for that.

mod pace;
mod run;
mod target;

use crate::expected::HitMark;
use crate::plan::{RobotsError, Route, UserTls, check_tls};
use crate::request::COMMON_FIELDS;
use humboldt_lab_record::{Fault, FaultKind, FaultSample, Handshakes, Histogram};
use humboldt_lab_workload::{Ask, Workload};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// URLs that are shuffled must all be in memory. 10 M of them take about 1 GB.
pub const SHUFFLED_MAX: usize = 10_000_000;

/// As many connections as tcp-banger2 made.
pub const BANG_CONNECTIONS: usize = 63;

/// More connections than this have no ports.
const CONNECTIONS_MAX: usize = 28_000;

/// Wrong answers that are kept with their evidence; all are counted.
const FAULT_SAMPLES_MAX: usize = 100;

/// How often a run reports the passing of time, in µs.
const TICK_US: u64 = 100_000;

/// The next target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BangTarget {
    /// An `http://` URL, or `https://` with TLS. If it names an object of the plan's workload, its
    /// answer is verified; otherwise only counted.
    Url(String),
    /// A request of the plan's workload; its moment is ignored.
    Ask(Ask),
    /// None yet, but there may be later: the banger goes on with requests under way and soon looks
    /// again.
    NotYet,
}

/// In which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BangOrder {
    /// As they come; any number of them.
    AsGiven,
    /// In an order that the seed decides; at most [`SHUFFLED_MAX`].
    Shuffled {
        /// The same seed gives the same order.
        seed: u64,
    },
}

/// The laboratory's own world, whose answers can be verified.
#[derive(Clone, Debug)]
pub struct BangWorld {
    /// The objects.
    pub workload: Arc<Workload>,
    /// The seed that the origins have as well.
    pub seed: u64,
    /// The addresses of the origins.
    pub origins: Vec<SocketAddr>,
}

/// The settings of a bang.
#[derive(Clone, Debug)]
pub struct Bang {
    /// In which order.
    pub order: BangOrder,
    /// Connections at a time.
    pub connections_max: usize,
    /// The way from requests to their servers.
    pub route: Route,
    /// A request without a complete answer is given up after this long, in s.
    pub timeout_s: f64,
    /// Use connections again, instead of a new one for every request.
    pub keep_alive: bool,
    /// Requests in a second, at most; `None`: the next one as soon as one was answered.
    pub requests_per_s_max: Option<f64>,
    /// The laboratory's own world, if there is one.
    pub world: Option<BangWorld>,
    /// TLS; `None`: plain HTTP. Each connection remembers its sessions, as a user's browser does.
    pub tls: Option<UserTls>,
    /// Fields of requests for plain URLs, besides `Host`, each with its end of line.
    pub url_fields: &'static str,
    /// How answers for plain URLs tell that a store gave them; `None`: it is not known.
    pub hit_mark: Option<HitMark>,
}

impl Bang {
    /// As tcp-banger2 did it: in the order given, at most 63 connections, a new one for every
    /// request; give up after 60 s.
    #[must_use]
    pub fn new(route: Route) -> Self {
        Self {
            order: BangOrder::AsGiven,
            connections_max: BANG_CONNECTIONS,
            route,
            timeout_s: 60.0,
            keep_alive: false,
            requests_per_s_max: None,
            world: None,
            tls: None,
            url_fields: COMMON_FIELDS,
            hit_mark: None,
        }
    }

    /// Asks for all targets, one time each, and returns when all are answered or given up.
    /// `on_record` sees every request at its end, in the order of their ends; with `false` it ends
    /// the run early, without waiting for answers.
    ///
    /// # Errors
    ///
    /// The settings contradict themselves, there are too many URLs to be shuffled, or the system
    /// refuses a descriptor.
    pub fn run(
        &self,
        targets: impl Iterator<Item = BangTarget>,
        on_record: &mut dyn FnMut(&BangRecord<'_>) -> bool,
    ) -> Result<BangReport, RobotsError> {
        self.run_watched(targets, &mut |event| match event {
            BangEvent::Ended(record) => on_record(record),
            BangEvent::Tick { .. } => true,
        })
    }

    /// Like [`run`](Self::run), and `on_event` also hears ten times a second that time goes by:
    /// with `false` it ends a run even while no server answers.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_watched(
        &self,
        targets: impl Iterator<Item = BangTarget>,
        on_event: &mut dyn FnMut(BangEvent<'_>) -> bool,
    ) -> Result<BangReport, RobotsError> {
        self.check()?;
        match self.order {
            BangOrder::AsGiven => run::run(self, targets, on_event),
            BangOrder::Shuffled { seed } => {
                run::run(self, shuffled(targets, seed)?.into_iter(), on_event)
            }
        }
    }

    fn check(&self) -> Result<(), RobotsError> {
        check_tls(&self.route, self.tls.as_ref())?;
        let refuse = |why: String| Err(RobotsError::Plan(why));
        if self.connections_max == 0 || self.connections_max > CONNECTIONS_MAX {
            return refuse(format!(
                "{} connections; give 1 to {CONNECTIONS_MAX}",
                self.connections_max
            ));
        }
        if !(self.timeout_s > 0.0 && self.timeout_s.is_finite()) {
            return refuse(format!("the time limit is {} s; it must be above 0", self.timeout_s));
        }
        if self.requests_per_s_max.is_some_and(|rate| !(rate > 0.0 && rate.is_finite())) {
            return refuse("the highest rate must be above 0 requests a second".into());
        }
        if self.world.as_ref().is_some_and(|world| world.origins.is_empty()) {
            return refuse(
                "the laboratory's world has no origin; give at least one address".into(),
            );
        }
        Ok(())
    }
}

fn shuffled(
    targets: impl Iterator<Item = BangTarget>,
    seed: u64,
) -> Result<Vec<BangTarget>, RobotsError> {
    use rand::SeedableRng;
    use rand::seq::SliceRandom;
    let asked_for = targets.filter(|target| *target != BangTarget::NotYet);
    let mut all: Vec<_> = asked_for.take(SHUFFLED_MAX + 1).collect();
    if all.len() > SHUFFLED_MAX {
        let why =
            format!("more than {SHUFFLED_MAX} URLs cannot be shuffled; give them in their order");
        return Err(RobotsError::Plan(why));
    }
    all.shuffle(&mut rand::rngs::StdRng::seed_from_u64(seed));
    Ok(all)
}

/// The events of a run.
#[derive(Clone, Copy, Debug)]
pub enum BangEvent<'r> {
    /// A request is at its end.
    Ended(&'r BangRecord<'r>),
    /// Time goes by.
    Tick {
        /// Since the begin of the run, in µs.
        at_us: u64,
        /// Requests under way.
        open: u32,
    },
}

/// One request at its end.
#[derive(Clone, Debug)]
pub struct BangRecord<'r> {
    /// The requested URL.
    pub url: &'r str,
    /// When its connection was begun, in µs since the begin of the run.
    pub begin_us: u64,
    /// From then to its last byte, or to its end, in µs.
    pub service_us: u64,
    /// Status of a complete answer.
    pub status: Option<u16>,
    /// Bytes of the answer's body.
    pub body_bytes: u64,
    /// Whether a store answered; known of the laboratory's own objects, and of others by their
    /// [`HitMark`].
    pub hit: Option<bool>,
    /// Whether the answer was verified byte by byte.
    pub verified: bool,
    /// Why there is no right answer.
    pub fault: Option<&'r Fault>,
}

/// A whole run.
#[derive(Clone, Debug, Default)]
pub struct BangReport {
    /// Requests begun.
    pub requests: u64,
    /// Complete answers, of any status, without fault.
    pub answers: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// Of them, answers that a store gave, as far as that is known.
    pub hits: u64,
    /// Of them, answers that were verified byte by byte.
    pub verified: u64,
    /// Handshakes of TLS.
    pub handshakes: Handshakes,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Service times of all answers.
    pub service: Histogram,
    /// From the first connection to the last answer, in µs.
    pub wall_us: u64,
    /// Requests without a right answer, by kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// The first of them, with evidence.
    pub fault_samples: Vec<FaultSample>,
    /// Targets that cannot be asked for (no URL of this scheme, a name that does not resolve), and
    /// were passed over.
    pub unusable: u64,
    /// The first of them.
    pub first_unusable: Option<String>,
}

impl BangReport {
    fn add(&mut self, record: &BangRecord<'_>, at_unix_us: u64) {
        self.wall_us = self.wall_us.max(record.begin_us + record.service_us);
        if let Some(fault) = record.fault {
            *self.faults.entry(fault.kind).or_default() += 1;
            if self.fault_samples.len() < FAULT_SAMPLES_MAX {
                let (url, fault) = (record.url.to_string(), fault.clone());
                self.fault_samples.push(FaultSample { at_us: at_unix_us, url, fault });
            }
            return;
        }
        self.answers += 1;
        self.body_bytes += record.body_bytes;
        self.hits += u64::from(record.hit == Some(true));
        self.verified += u64::from(record.verified);
        if let Some(status) = record.status {
            *self.statuses.entry(status).or_default() += 1;
        }
        self.service.record_us(record.service_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::{Duration, Instant};

    #[test]
    fn a_run_can_be_ended_while_no_server_answers() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let mut bang = Bang::new(Route::Direct);
        bang.connections_max = 3;
        let (begin, mut ticks) = (Instant::now(), Vec::new());
        let report = bang.run_watched(std::iter::repeat(BangTarget::Url(url)), &mut |event| {
            let BangEvent::Tick { at_us, open } = event else { panic!("{event:?}") };
            ticks.push((at_us, open));
            ticks.len() < 2
        });
        let report = report.unwrap();
        assert_eq!((report.requests, report.answers, report.faults.len()), (3, 0, 0));
        assert!(ticks[0].0 >= TICK_US && ticks[1].0 >= ticks[0].0 + TICK_US, "{ticks:?}");
        assert!(ticks.iter().all(|(_, open)| *open == 3), "{ticks:?}");
        assert!(begin.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn targets_may_come_late() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", server.local_addr().unwrap());
        let answers = std::thread::spawn(move || {
            for _ in 0..2 {
                let mut stream = server.accept().unwrap().0;
                let _ = stream.read(&mut [0; 1024]).unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            }
        });
        let target = || BangTarget::Url(url.clone());
        let nothing = || std::iter::repeat_n(BangTarget::NotYet, 5);
        let targets =
            nothing().chain([target()]).chain(nothing()).chain([target()]).chain(nothing());
        let report = Bang::new(Route::Direct).run(targets, &mut |_| true).unwrap();
        assert_eq!((report.requests, report.answers, report.unusable), (2, 2, 0));
        answers.join().unwrap();
    }

    /// Answers everything with `answer`; sends the number of each connection's requests when it
    /// ends.
    fn server(answer: &'static [u8]) -> (SocketAddr, Receiver<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (ended, counts) = channel();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let ended = ended.clone();
                std::thread::spawn(move || {
                    let mut count = 0;
                    while stream.read(&mut [0; 1024]).is_ok_and(|len| len > 0) {
                        count += 1;
                        stream.write_all(answer).unwrap();
                    }
                    let _ = ended.send(count);
                });
            }
        });
        (address, counts)
    }

    #[test]
    fn connections_rest_while_a_rate_makes_them_wait() {
        let (address, counts) = server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let mut bang = Bang::new(Route::Direct);
        bang.connections_max = 4;
        bang.keep_alive = true;
        bang.requests_per_s_max = Some(200.0);
        let (begin, url) = (Instant::now(), format!("http://{address}/"));
        let targets = (0..41).map(|_| BangTarget::Url(url.clone()));
        let report = bang.run(targets, &mut |_| true).unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(190), "{:?}", begin.elapsed());
        assert_eq!((report.requests, report.answers, report.faults.len()), (41, 41, 0));
        let mut counted = Vec::new();
        while counted.iter().sum::<usize>() < 41 {
            counted.push(counts.recv_timeout(Duration::from_secs(20)).unwrap());
        }
        assert!(counted.len() <= 4, "requests of each connection: {counted:?}");
    }

    #[test]
    fn a_field_tells_the_hits_among_plain_urls() {
        let answer = b"HTTP/1.1 200 OK\r\nX-Cache: HIT from a\r\nContent-Length: 2\r\n\r\nok";
        let (address, _) = server(answer);
        let hits = |begin| {
            let mut bang = Bang::new(Route::Direct);
            bang.hit_mark = Some(HitMark { field: "x-cache", begin });
            let target = BangTarget::Url(format!("http://{address}/"));
            let report = bang.run(std::iter::once(target), &mut |_| true).unwrap();
            assert_eq!((report.answers, report.verified), (1, 0));
            report.hits
        };
        assert_eq!((hits("HIT"), hits("MISS")), (1, 0));
    }
}
