//! A run of the laboratory, as data.
//!
//! Robots and origins count into [`Tally`] and [`OriginTally`]; once per sample period the peak
//! finder takes them, judges them, and appends a [`Sample`] to the [`Run`]; at the end the run gets
//! its [`Summary`]. Everything here can be merged (threads, agents) and written as JSON (a run's
//! folder, the line protocol between agents).

mod bang;
mod curve;
mod fault;
mod histogram;
mod manifest;
mod provenance;
mod run;
mod tally;

pub use bang::{BangRun, BangSecond};
pub use curve::CurveStep;
pub use fault::{Fault, FaultKind, FaultSample};
pub use histogram::Histogram;
pub use manifest::{Manifest, ProcessorTimes, Resources};
pub use provenance::{Build, Machine, Provenance, StoreGround};
pub use run::{
    AT_LOAD_MAX, Flatness, Goal, Held, LAST_QUARTER, Outcome, Plan, RUN_FORMAT, Run,
    SPOILED_SHARE_MAX, Sample, Steadiness, Summary, TimesSummary, Verdict,
};
pub use tally::{Class, Handshakes, KindTally, OriginTally, Tally};
