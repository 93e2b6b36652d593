//! Caches that are given the same requests.

use std::time::Duration;

use humboldt_policy::Policy;
use humboldt_policy::model::ModelCache;
use rustix::time::{ClockId, clock_gettime};

use super::optimum::Optimum;
use super::spool::Step;

/// The policy of a cache.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Chooser {
    Policy(Policy),
    /// Belady's rule; `exact` if all sizes are equal.
    Optimum {
        exact: bool,
    },
}

impl Chooser {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Policy(policy) => policy.name(),
            Self::Optimum { exact: true } => "MIN",
            Self::Optimum { exact: false } => "furthest first",
        }
    }
}

enum Cache {
    Model(Box<ModelCache>),
    Optimum(Optimum),
}

/// One cache and its score.
pub(super) struct Contestant {
    pub(super) chooser: Chooser,
    pub(super) size_label: String,
    pub(super) capacity_bytes: u64,
    cache: Cache,
    requests: u64,
    hits: u64,
    bytes: u64,
    hit_bytes: u64,
    spent: Duration,
}

impl Contestant {
    /// `objects`: how many different ones the trace has; only the optimum needs to know.
    pub(super) fn new(
        chooser: Chooser,
        size_label: String,
        capacity_bytes: u64,
        objects: u64,
    ) -> Self {
        let cache = match chooser {
            Chooser::Policy(policy) => {
                Cache::Model(Box::new(ModelCache::new(policy, capacity_bytes)))
            }
            Chooser::Optimum { .. } => Cache::Optimum(Optimum::new(capacity_bytes, objects)),
        };
        Self {
            chooser,
            size_label,
            capacity_bytes,
            cache,
            requests: 0,
            hits: 0,
            bytes: 0,
            hit_bytes: 0,
            spent: Duration::ZERO,
        }
    }

    /// Serves requests by id.
    pub(super) fn serve(&mut self, requests: &[(u64, u32)]) {
        let start = cpu_time();
        if let Cache::Model(cache) = &mut self.cache {
            for (id, bytes) in requests {
                if cache.request(*id, *bytes) {
                    self.hits += 1;
                    self.hit_bytes += u64::from(*bytes);
                }
            }
        }
        self.spent += cpu_time().saturating_sub(start);
        self.requests += requests.len() as u64;
        self.bytes += requests.iter().map(|(_, bytes)| u64::from(*bytes)).sum::<u64>();
    }

    /// Serves requests whose future is known.
    pub(super) fn serve_steps(&mut self, steps: &[Step]) {
        let start = cpu_time();
        for step in steps {
            let is_hit = match &mut self.cache {
                Cache::Model(cache) => cache.request(step.object.into(), step.bytes),
                Cache::Optimum(optimum) => optimum.request(*step),
            };
            if is_hit {
                self.hits += 1;
                self.hit_bytes += u64::from(step.bytes);
            }
        }
        self.spent += cpu_time().saturating_sub(start);
        self.requests += steps.len() as u64;
        self.bytes += steps.iter().map(|step| u64::from(step.bytes)).sum::<u64>();
    }

    /// Requests served.
    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    /// Bytes asked for.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn hits(&self) -> u64 {
        self.hits
    }

    pub(super) fn hit_bytes(&self) -> u64 {
        self.hit_bytes
    }

    pub(super) fn object_hit_ratio(&self) -> f64 {
        self.hits as f64 / self.requests.max(1) as f64
    }

    pub(super) fn byte_hit_ratio(&self) -> f64 {
        self.hit_bytes as f64 / self.bytes.max(1) as f64
    }

    /// Processor time, so that other programs on the machine do not count.
    pub(super) fn ns_per_request(&self) -> f64 {
        self.spent.as_nanos() as f64 / self.requests.max(1) as f64
    }
}

/// Processor time of this thread.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}
