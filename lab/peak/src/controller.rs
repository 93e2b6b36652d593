//! The common parts of all controllers.

use humboldt_lab_record::{Tally, Verdict};

/// No load is ever below this, in requests per second: the smallest that may be asked for.
pub const LOAD_MIN_PER_S: f64 = 0.01;

/// Highest load, in requests per second: ten times the rate that any machine tried so far could
/// send.
pub const LOAD_MAX_PER_S: f64 = 1e7;

/// A search never goes below this many requests per sample: from fewer nothing can be learned, so a
/// load that sank further would never be judged good again.
const FLOOR_REQUESTS_PER_SAMPLE: f64 = 10.0;

/// The facts about a sample besides the tally.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct View {
    /// Number of the sample, from 0.
    pub index: u32,
    /// The load that was offered, in requests per second. It may be less than the controller asked
    /// for.
    pub load_per_s: f64,
    /// Whether the cache is being filled, as opposed to measured.
    pub filling: bool,
    /// Fill ÷ cache size at the sample's end.
    pub fill_ratio: f64,
}

/// This many samples at the beginning say nothing: connections, caches of the system and the
/// subject's own tables are made then.
pub(crate) const WARM_UP_SAMPLES: u32 = 2;

/// Why a sample says nothing about the subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unjudged<'a> {
    /// It is one of the first.
    WarmUp,
    /// Others had the processors, in this way: at any load the sample would have been spoiled.
    Disturbed(&'a str),
    /// The laboratory spoiled it, in this way: it may not be able to offer this load.
    Spoiled(&'a str),
}

impl Unjudged<'_> {
    /// The state of the controller.
    pub(crate) fn state(self) -> &'static str {
        match self {
            Self::WarmUp => "warm up",
            Self::Disturbed(_) | Self::Spoiled(_) => "repeat",
        }
    }

    /// The verdict.
    pub(crate) fn verdict(self, next_load_per_s: f64) -> Verdict {
        let reason = match self {
            Self::WarmUp => "the first samples are not judged",
            Self::Disturbed(why) | Self::Spoiled(why) => why,
        };
        Verdict {
            next_load_per_s,
            sustained: false,
            unjudged: true,
            state: self.state().into(),
            reason: reason.into(),
        }
    }
}

/// Judges a sample, or passes over one that says nothing about the subject: the first ones, and
/// those with another reason.
pub fn decide(
    controller: &mut dyn Controller,
    view: &View,
    tally: &Tally,
    unjudged: Option<Unjudged<'_>>,
) -> Verdict {
    match unjudged {
        Some(why) => controller.pass_over(view, tally, why),
        None if view.index < WARM_UP_SAMPLES => controller.pass_over(view, tally, Unjudged::WarmUp),
        None => controller.judge(view, tally),
    }
}

/// Decides after every sample which load comes next.
pub trait Controller: Send {
    /// The load of the first sample, in requests per second.
    fn first_load_per_s(&self) -> f64;

    /// Judges a sample. The next load is always finite and between [`LOAD_MIN_PER_S`] and
    /// [`LOAD_MAX_PER_S`].
    fn judge(&mut self, view: &View, tally: &Tally) -> Verdict;

    /// Passes over a sample that says nothing about the subject. The load is offered once more; it
    /// is lowered only if sample after sample is spoiled, since the laboratory may not be able to
    /// offer it.
    fn pass_over(&mut self, view: &View, tally: &Tally, why: Unjudged<'_>) -> Verdict;

    /// `robust`, `classic` or `constant`.
    fn name(&self) -> &'static str;

    /// Its settings, as a table for people: name → value with unit, times as scaled.
    fn settings(&self) -> Vec<(String, String)>;
}

/// After this many spoiled samples in a row a lower load is tried.
pub(crate) const SPOILED_MAX: u32 = 3;

/// The bounds within which a search moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    floor_per_s: f64,
    max_per_s: f64,
}

impl Bounds {
    /// For samples of this length and loads up to `max_per_s`.
    pub(crate) fn new(period_us: u64, max_per_s: f64) -> Self {
        let floor_per_s = if period_us == 0 {
            LOAD_MIN_PER_S
        } else {
            (FLOOR_REQUESTS_PER_SAMPLE * 1e6 / period_us as f64).max(LOAD_MIN_PER_S)
        };
        Self { floor_per_s: floor_per_s.min(max_per_s), max_per_s }
    }

    /// The nearest allowed load; the floor for a value that is no number.
    pub(crate) fn clamp(&self, load_per_s: f64) -> f64 {
        if load_per_s.is_nan() {
            return self.floor_per_s;
        }
        load_per_s.clamp(self.floor_per_s, self.max_per_s)
    }

    /// Whether the load cannot be raised any more.
    pub(crate) fn is_top(&self, load_per_s: f64) -> bool {
        load_per_s >= self.max_per_s
    }
}

/// The load that a view names, or `otherwise` if that is no load.
pub(crate) fn offered_or(view: &View, otherwise: f64) -> f64 {
    if view.load_per_s.is_finite() && view.load_per_s > 0.0 { view.load_per_s } else { otherwise }
}
