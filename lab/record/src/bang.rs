//! The results of banging a list of URLs at a proxy.

use crate::{FaultKind, FaultSample, Handshakes, Histogram, Manifest, Resources};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A finished (or interrupted) bang: a list of URLs, asked for as fast as a number of connections
/// allows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BangRun {
    /// [`RUN_FORMAT`](crate::RUN_FORMAT).
    pub format: u32,
    /// Unix time of its start in seconds.
    pub started_s: u64,
    /// Name or address of the subject.
    pub subject: String,
    /// Text that distinguishes this bang from others of the same subject. May be empty.
    pub variant: String,
    /// The owner's text: the part of `variant` that is not about passes.
    pub setting: String,
    /// The cache's state before: `empty` or `full`; empty text if that is not known.
    pub cache: String,
    /// The source of the URLs: the name of a workload, "standard input".
    pub urls: String,
    /// Requests that are under way at the same time, at most.
    pub connections_max: u32,
    /// Further settings, as a table for people: name → value with unit.
    pub settings: Vec<(String, String)>,
    /// From the first request to the last answer, in µs.
    pub elapsed_us: u64,
    /// Requests begun. Those that are neither answers nor faults were under way when it was
    /// stopped.
    pub requests: u64,
    /// Complete answers that are not faults.
    pub answers: u64,
    /// Of them, those that were verified byte by byte: the laboratory's own objects.
    pub verified: u64,
    /// Of the verified ones, those that came from a store.
    pub hits: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// Handshakes of TLS.
    pub handshakes: Handshakes,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Wrong answers by kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// The first of them, with evidence.
    pub fault_samples: Vec<FaultSample>,
    /// From the moment a connection was begun to the last byte of the answer.
    pub service: Histogram,
    /// The course of it, one entry a second.
    pub seconds: Vec<BangSecond>,
    /// The subject's resources, once a second. Empty if it was not watched.
    pub resources: Vec<Resources>,
    /// Its machine and software.
    pub manifest: Manifest,
}

/// One second of a bang.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BangSecond {
    /// End of the second, in seconds since the start.
    pub at_s: f64,
    /// Complete answers in it.
    pub answers: u64,
    /// Bytes of their bodies.
    pub body_bytes: u64,
    /// Wrong answers in it.
    pub faults: u64,
    /// Requests under way at its end.
    pub open: u32,
}

impl BangRun {
    /// Answers per second over the whole time; 0 if there was no time.
    #[must_use]
    pub fn rate_per_s(&self) -> f64 {
        crate::run::per_second(self.answers, self.elapsed_us)
    }
}
