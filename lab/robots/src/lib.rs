//! The simulated users of the laboratory: open-loop load, and every answer verified to its last
//! byte.
//!
//! [`Robots`] send the requests of a workload at the moments of a Poisson process, independently of
//! the server: a stalled server gets as many requests as a fast one, and their waiting counts.
//! [`Bang`] is the other kind of load: a fixed number of connections, each sending its next request
//! as soon as it was answered.
//!
//! One thread is one [`world`]: its own stream of URLs, its own users, connections, epoll loop and
//! counters. From the socket upwards: `connection` (bytes out and in), `answer` (expected bytes),
//! `exchange` (turns on connections), `world` (due times), `robots` (all threads together).

mod answer;
mod arrivals;
mod asks;
mod bang;
mod chain;
mod connection;
mod counts;
mod crowd;
mod exchange;
mod expected;
mod plan;
mod request;
mod robots;
mod secure;
mod slab;
mod tunnels;
mod world;

pub use bang::{
    BANG_CONNECTIONS, Bang, BangEvent, BangOrder, BangRecord, BangReport, BangTarget, BangWorld,
    SHUFFLED_MAX,
};
pub use expected::HitMark;
pub use plan::{BACKLOG_MAX, BUNDLE_US, RobotsError, RobotsPlan, Route, TlsWay, UserTls};
pub use robots::Robots;
pub use tunnels::{FarEnd, TUNNELS_MAX, TunnelReport, TunnelTick, Tunnels};
