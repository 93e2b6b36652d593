//! Response times at parts of the load that a subject sustains.

use crate::TimesSummary;
use serde::{Deserialize, Serialize};

/// One load of a curve of response times against load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CurveStep {
    /// Part of the load of 100 %: 0.1 to 1.1.
    pub share: f64,
    /// The load that was to be offered, in requests per second.
    pub load_per_s: f64,
    /// Number of samples whose figures these are.
    pub samples: u32,
    /// Number of samples that the laboratory or its machine spoiled: they were repeated.
    pub spoiled: u32,
    /// Requests that came due, per second.
    pub offered_per_s: f64,
    /// Right answers per second.
    pub answered_per_s: f64,
    /// Response times of all answers.
    pub response: TimesSummary,
    /// Of hits.
    pub hits: TimesSummary,
    /// Of misses.
    pub misses: TimesSummary,
    /// Hits ÷ answers to plain GETs.
    pub hit_ratio: f64,
    /// Wrong answers.
    pub faults: u64,
    /// CPU time of the subject per answer in µs, if it was watched.
    pub cpu_us_per_answer: Option<f64>,
}
