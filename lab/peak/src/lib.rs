//! The peak finder: which load does a cache sustain?
//!
//! Controllers are pure state machines: once per sample period they get the robots' counts and
//! answer with a [`Verdict`](humboldt_lab_record::Verdict), which holds the load from now on. They
//! have no clock and no I/O, so that a simulated subject with a known capacity can test them
//! (`examples/known_answers.rs`).
//!
//! - [`Robust`] (default): added time of hits and of misses, errors, throughput and backlog;
//!   searches, holds, tracks.
//! - [`Classic`]: mean response time against a window, ±5 % per sample, as in the runs of the book.
//! - [`Constant`]: keeps a load.
//! - [`Curve`]: afterwards, parts of the load that was found.
//!
//! [`summarise`] makes the totals and the summary of a run, at any moment of it.

mod classic;
mod constant;
mod controller;
mod curve;
mod flatness;
mod reading;
mod robust;
mod search;
mod settings;
mod steadiness;
mod stored;
mod summary;
mod words;

pub use classic::Classic;
pub use constant::Constant;
pub use controller::{Controller, LOAD_MAX_PER_S, LOAD_MIN_PER_S, Unjudged, View, decide};
pub use curve::{CURVE_SHARES, Curve};
pub use robust::Robust;
pub use settings::{
    ClassicSettings, ConstantSettings, ControllerSettings, RobustSettings, SettingsError, Window,
};
pub use summary::{samples_that_count, summarise};
