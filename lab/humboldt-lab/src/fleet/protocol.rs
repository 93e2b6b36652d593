//! The laboratory's orders to its parties, and their replies: one JSON object per line.

use humboldt_lab_record::{OriginTally, Tally};
use humboldt_lab_tls::Authority;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Both sides must speak the same.
pub(crate) const FORMAT: u32 = 3;

/// A longer line is not ours. Histograms of a sample are some hundred KB at most.
pub(crate) const LINE_BYTES_MAX: u64 = 64 << 20;

/// From the laboratory to a party. Each gets exactly one [`Reply`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// The first line of a connection.
    Hello { format: u32, token: String },
    /// Asks for the time.
    Clock,
    /// Start the origin servers.
    Origins(Box<OriginOrder>),
    /// Start the users.
    Robots(Box<RobotOrder>),
    /// Change the load: requests per second of this party.
    Load(f64),
    /// Asks for the counts since the last sample.
    Sample,
    /// Stop the users, keep the origins.
    StopRobots,
    /// Stop everything.
    Stop,
}

/// From a party to the laboratory.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    /// To `Hello`: the party's version, and the processors it may use.
    Hello { lab_version: String, cores: usize },
    /// To `Clock`: Unix time in µs.
    Clock { unix_us: u64 },
    /// To `Origins`: where they listen.
    Origins { addresses: Vec<SocketAddr> },
    /// To `Robots`, `Load`, `StopRobots`, `Stop`.
    Done,
    /// To `Sample`.
    Sample { robots: Box<Tally>, origins: Box<OriginTally> },
    /// To any order: one line with the reason.
    Failed { message: String },
}

/// A workload with the changes of the command line, so that every party has the same one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WorldOrder {
    /// Name of the file, for messages.
    pub(crate) name: String,
    /// Its text.
    pub(crate) text: String,
    /// Lines of an access.log to replay instead.
    pub(crate) replay: Option<std::path::PathBuf>,
    /// Latency in µs and loss between cache and servers, if they differ from the file.
    pub(crate) server_link: (Option<u64>, Option<f64>),
    /// Latency in µs and loss between users and cache, if they differ from the file.
    pub(crate) client_link: (Option<u64>, Option<f64>),
    /// All choices follow from it.
    pub(crate) seed: u64,
    /// Multiplies times.
    pub(crate) time_scale: f64,
}

/// The settings of origins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OriginOrder {
    pub(crate) world: WorldOrder,
    /// Addresses to listen on; an agent uses its own.
    pub(crate) listen: Vec<SocketAddr>,
    /// Whether servers wait for their think time before they answer.
    pub(crate) think: bool,
    /// Correction of the party's clock to the laboratory's, in µs.
    pub(crate) clock_offset_us: i64,
    /// TLS, with certificates that this authority signs.
    pub(crate) tls: Option<Authority>,
}

/// TLS as users speak it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TlsOrder {
    pub(crate) way: WayOrder,
    /// The authorities that they trust, in PEM form.
    pub(crate) trusted_pem: String,
    /// Whether they go on with sessions of earlier connections.
    pub(crate) resume: bool,
}

/// With whom users speak TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WayOrder {
    Hop,
    Tunnel,
    Intercept,
}

/// The settings of robots.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RobotOrder {
    pub(crate) route: RouteOrder,
    /// The origins of all parties.
    pub(crate) origins: Vec<SocketAddr>,
    /// The first world of this party.
    pub(crate) first_world: u32,
    /// Worlds of all parties together.
    pub(crate) worlds: u32,
    /// Threads of this party: one world each.
    pub(crate) threads: usize,
    /// Of all worlds together.
    pub(crate) working_set_objects: u64,
    /// Requests per second of this party.
    pub(crate) load_per_s: f64,
    /// An answer that takes longer is given up.
    pub(crate) timeout_s: f64,
    /// Hits after reloads are this cache's habit.
    pub(crate) excuse_reload_hits: bool,
    /// TLS; `None`: plain HTTP.
    pub(crate) tls: Option<TlsOrder>,
}

/// The way from robots to the cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RouteOrder {
    Forward { proxies: Vec<SocketAddr> },
    Accelerator { addresses: Vec<SocketAddr>, host: String },
    Direct,
}
