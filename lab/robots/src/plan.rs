//! The plan of robots, checked before anything is started.

use humboldt_lab_tls::Trust;
use humboldt_lab_workload::Workload;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Most requests of all robots together that are due and unanswered. 1 M of them take about 200 MB;
/// a server that is this far behind has lost.
pub const BACKLOG_MAX: usize = 1 << 20;

/// How long a busy thread's events are bundled, in µs, unless the plan has another value. A sleep
/// and its end cost as much as a request itself, so that one for every event would double the cost
/// of the load.
pub const BUNDLE_US: u64 = 250;

/// Longest bundle: a longer delay would be no measurement.
const BUNDLE_US_MAX: u64 = 10_000;

/// Threads beyond this are a slip of the hand.
const THREADS_MAX: usize = 256;

/// The way from requests to their origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Through a proxy: absolute-form targets, CONNECT for tunnels.
    Forward {
        /// Its addresses. Of several, a URL always goes to the same one, as with a PAC file.
        proxies: Vec<SocketAddr>,
    },
    /// To an accelerator that knows its origins itself: origin-form targets.
    Accelerator {
        /// Its addresses. Of several, a URL always goes to the same one.
        addresses: Vec<SocketAddr>,
        /// The `Host` of every request.
        host: String,
    },
    /// To the origins, without a cache: the laboratory's own rate. Tunnels become plain requests,
    /// because there is no proxy to allow or deny them.
    Direct,
}

/// The end of TLS on the way from users to origins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsWay {
    /// The server that users connect to: an accelerator, or an origin.
    Hop,
    /// The origin, inside a tunnel (CONNECT) through the proxy.
    Tunnel,
    /// The proxy, inside what it calls a tunnel: it reads and may store what it passes on.
    Intercept,
}

impl TlsWay {
    /// Whether users ask for tunnels.
    #[must_use]
    pub fn has_tunnels(self) -> bool {
        self != Self::Hop
    }
}

/// TLS as users speak it.
#[derive(Clone, Debug)]
pub struct UserTls {
    /// With whom.
    pub way: TlsWay,
    /// The authorities that must have signed the other end's certificate.
    pub trust: Trust,
}

/// The scheme of the users' URLs.
pub(crate) fn scheme(tls: Option<&UserTls>) -> &'static str {
    if tls.is_some() { "https" } else { "http" }
}

/// Whether TLS can be spoken on this route.
pub(crate) fn check_tls(route: &Route, tls: Option<&UserTls>) -> Result<(), RobotsError> {
    let is_forward = matches!(route, Route::Forward { .. });
    match tls {
        Some(tls) if tls.way.has_tunnels() && !is_forward => Err(RobotsError::Plan(
            "only a forward proxy makes tunnels; choose TLS to the accelerator".into(),
        )),
        Some(tls) if !tls.way.has_tunnels() && is_forward => Err(RobotsError::Plan(
            "TLS ends at an accelerator, but this is a forward proxy; choose a tunnel".into(),
        )),
        _ => Ok(()),
    }
}

/// Everything that simulated users need to know.
#[derive(Clone, Debug)]
pub struct RobotsPlan {
    /// The workload.
    pub workload: Arc<Workload>,
    /// Two runs with the same seed, worlds and working set ask for the same URLs in the same order.
    pub seed: u64,
    /// The number of the first world here; more than 0 if several agents share the work.
    pub first_world: u32,
    /// Worlds of all agents together.
    pub worlds: u32,
    /// Threads, each of which is one world.
    pub threads: usize,
    /// The cores to pin them to, in turn; empty: not pinned.
    pub cores: Vec<usize>,
    /// The way from requests to their origins.
    pub route: Route,
    /// The addresses of the origins, in the order in which all parties know them.
    pub origins: Vec<SocketAddr>,
    /// Think times, delays of links and the pace of each user are multiplied by this; the load is
    /// not.
    pub time_scale: f64,
    /// Whether the origins wait for the workload's think times; only then are these subtracted from
    /// the added time.
    pub think: bool,
    /// The working set, in objects of all worlds together.
    pub working_set_objects: u64,
    /// Requests per second of all threads here together, until `Robots::set_load`.
    pub first_load_per_s: f64,
    /// Most connections here at a time; beyond it requests wait.
    pub connections_max: usize,
    /// A request that has been due for this long without a complete answer is given up. Real
    /// seconds, not scaled.
    pub timeout_s: f64,
    /// Hits after reloads are this cache's declared habit, and not faults.
    pub excuse_reload_hits: bool,
    /// A thread with a load of 4,000 requests/s or more looks at its sockets and clock only so
    /// often, in µs; 0: always at once. Requests go out later by half of it on average, and answers
    /// are seen later by as much: both are part of the response times, and the former of the lag.
    pub bundle_us: u64,
    /// Most requests that are due and unanswered, of all threads here together; a further one is a
    /// fault at once. At most [`BACKLOG_MAX`].
    pub backlog_max: usize,
    /// Correction of this host's time of day to that of all agents, in µs.
    pub clock_offset_us: i64,
    /// TLS; `None`: plain HTTP.
    pub tls: Option<UserTls>,
}

impl RobotsPlan {
    /// A plan for one thread, one world, unscaled time, and 1 request/s; set the rest as needed.
    #[must_use]
    pub fn new(workload: Arc<Workload>, seed: u64, route: Route, origins: Vec<SocketAddr>) -> Self {
        Self {
            workload,
            seed,
            first_world: 0,
            worlds: 1,
            threads: 1,
            cores: Vec::new(),
            route,
            origins,
            time_scale: 1.0,
            think: true,
            working_set_objects: 10_000,
            first_load_per_s: 1.0,
            connections_max: 10_000,
            timeout_s: 60.0,
            excuse_reload_hits: false,
            bundle_us: BUNDLE_US,
            backlog_max: BACKLOG_MAX,
            clock_offset_us: 0,
            tls: None,
        }
    }

    /// Whether the plan can be carried out at all.
    pub(crate) fn check(&self) -> Result<(), RobotsError> {
        check_tls(&self.route, self.tls.as_ref())?;
        let refuse = |why: String| Err(RobotsError::Plan(why));
        if self.origins.is_empty() {
            return refuse("there is no origin to ask; give at least one address".into());
        }
        if self.threads == 0 || self.threads > THREADS_MAX {
            return refuse(format!("{} threads; give 1 to {THREADS_MAX}", self.threads));
        }
        let last_world = u64::from(self.first_world) + self.threads as u64;
        if last_world > u64::from(self.worlds) {
            return refuse(format!(
                "{last_world} worlds are used here, but all agents have {}",
                self.worlds
            ));
        }
        if !(self.time_scale > 0.0 && self.time_scale.is_finite()) {
            return refuse(format!("the time scale is {}; it must be above 0", self.time_scale));
        }
        if !(self.first_load_per_s >= 0.0 && self.first_load_per_s.is_finite()) {
            return refuse(format!(
                "the load is {} requests/s; it must be 0 or more",
                self.first_load_per_s
            ));
        }
        if !(self.timeout_s > 0.0 && self.timeout_s.is_finite()) {
            return refuse(format!("the time limit is {} s; it must be above 0", self.timeout_s));
        }
        if self.connections_max < self.threads {
            return refuse(format!(
                "{} connections for {} threads; raise the limit of open files (ulimit -n)",
                self.connections_max, self.threads
            ));
        }
        if self.bundle_us > BUNDLE_US_MAX {
            return refuse(format!(
                "bundles of {} µs; give at most {BUNDLE_US_MAX}",
                self.bundle_us
            ));
        }
        if self.backlog_max < self.threads || self.backlog_max > BACKLOG_MAX {
            return refuse(format!(
                "a backlog of {}; give 1 per thread to {BACKLOG_MAX}",
                self.backlog_max
            ));
        }
        Ok(())
    }
}

/// Why robots could not start.
#[derive(Debug, thiserror::Error)]
pub enum RobotsError {
    /// The plan contradicts itself.
    #[error("robots: {0}")]
    Plan(String),
    /// The system refused a thread, an epoll instance or a core.
    #[error("robots: cannot {what}: {source}")]
    System {
        /// The attempted operation.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}
