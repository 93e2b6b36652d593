//! A workload for tests, and origins that serve it.

use humboldt_lab_origin::{Origin, OriginPlan};
use humboldt_lab_record::OriginTally;
use humboldt_lab_workload::{Facts, ObjectName, Workload};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const SEED: u64 = 4711;
pub(crate) const PAGE_BYTES: u64 = 5_000;
pub(crate) const BIG_BYTES: u64 = 3_000_000;

/// Kinds, by their index in the file.
pub(crate) const PAGE: u8 = 0;
pub(crate) const PRIVATE: u8 = 1;
pub(crate) const BIG: u8 = 2;

/// What tests vary.
#[derive(Clone, Copy)]
pub(crate) struct World {
    pub(crate) think: &'static str,
    pub(crate) uses: &'static str,
    pub(crate) idle: &'static str,
    pub(crate) delay: &'static str,
    pub(crate) time_scale: f64,
    pub(crate) chunked_share: f64,
    pub(crate) threads: usize,
    pub(crate) listen: usize,
}

impl Default for World {
    fn default() -> Self {
        Self {
            think: "constant(0 s)",
            uses: "constant(1000000)",
            idle: "1 min",
            delay: "0 ms",
            time_scale: 1.0,
            chunked_share: 0.0,
            threads: 1,
            listen: 1,
        }
    }
}

impl World {
    pub(crate) fn workload(&self) -> Arc<Workload> {
        let Self { think, uses, idle, delay, .. } = self;
        let text = format!(
            r#"
name = "test"
description = "for tests"
mode = "forward"
[client]
requests_per_user = "10 / s"
connections = 4
requests_per_connection = "constant(1000000)"
[server]
think = "{think}"
requests_per_connection = "{uses}"
idle = "{idle}"
delay = "{delay}"
[popularity]
fixed_set = 1000
choice = "uniform"
[[type]]
name = "page"
mime = "text/html"
extension = "html"
share = "50 %"
size = "constant({PAGE_BYTES} B)"
cachable = "100 %"
life_cycle = "constant(1 y)"
[[type]]
name = "private"
mime = "image/gif"
extension = "gif"
share = "40 %"
size = "constant({PAGE_BYTES} B)"
cachable = "0 %"
life_cycle = "constant(1 y)"
[[type]]
name = "big"
mime = "application/octet-stream"
extension = "bin"
share = "10 %"
size = "constant({BIG_BYTES} B)"
cachable = "100 %"
life_cycle = "constant(1 y)"
"#
        );
        Arc::new(Workload::parse(&text, "test.toml").unwrap())
    }

    pub(crate) fn plan(&self) -> OriginPlan {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        OriginPlan {
            time_scale: self.time_scale,
            listen: vec![any; self.listen],
            threads: self.threads,
            chunked_share: self.chunked_share,
            ..OriginPlan::new(self.workload(), SEED)
        }
    }

    pub(crate) fn start(&self) -> Running {
        let plan = self.plan();
        let workload = Arc::clone(&plan.workload);
        Running { origin: Origin::start(plan).unwrap(), workload }
    }
}

/// An origin with its workload.
pub(crate) struct Running {
    pub(crate) origin: Origin,
    pub(crate) workload: Arc<Workload>,
}

impl Running {
    pub(crate) fn address(&self) -> SocketAddr {
        self.origin.addresses()[0]
    }

    pub(crate) fn facts(&self, name: ObjectName) -> Facts {
        self.workload.facts(SEED, &name)
    }

    pub(crate) fn path(&self, name: ObjectName) -> String {
        let mut path = Vec::new();
        name.write_path(&self.workload, &mut path);
        String::from_utf8(path).unwrap()
    }

    /// Takes samples until their sum is as wanted.
    pub(crate) fn sample_until(&self, wanted: impl Fn(&OriginTally) -> bool) -> OriginTally {
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut sum = self.origin.sample();
        while !wanted(&sum) {
            let OriginTally { requests, connects, connections, .. } = sum;
            assert!(
                Instant::now() < deadline,
                "never as wanted: {requests} requests, {connects} connects, {connections} connections"
            );
            std::thread::sleep(Duration::from_millis(2));
            sum.merge_later(&self.origin.sample());
        }
        sum
    }
}

pub(crate) fn page(number: u64) -> ObjectName {
    ObjectName { world: 0, kind: PAGE, number, size: None }
}

pub(crate) fn of_kind(kind: u8, number: u64) -> ObjectName {
    ObjectName { world: 0, kind, number, size: None }
}
