//! The search for the highest load that is sustained, from readings alone.
//!
//! It climbs by doubling while a load is sustained clearly, halves the distance once it has been
//! too high, and ends in small steps: a load is accepted after a hold, raised by a step, and taken
//! back when the higher one fails. Steps shrink while it goes back and forth and grow while it goes
//! on in one direction, so it follows a capacity that changes. After an overload it offers little
//! until the queue of the overload is gone.

use humboldt_lab_record::AT_LOAD_MAX;

use crate::Unjudged;
use crate::controller::{Bounds, SPOILED_MAX};
use crate::reading::{Finding, Reading};

/// A clearly sustained load is multiplied by this.
const CLIMB_FACTOR: f64 = 2.0;

/// One that was sustained, but not clearly, by this.
const CAUTIOUS_CLIMB_FACTOR: f64 = 1.3;

/// With too few answers to judge, a load is raised only if this many times the load is not known to
/// be too much.
const FAR_FACTOR: f64 = 4.0;

/// After this many steps up in a row a clearly sustained sample is accepted without a hold.
const STRIDE_UPS: u32 = 2;

/// After this many of them the peak is far away (with the default step 2.4 times the load at
/// their beginning was sustained), and the search climbs by doubling again.
const CLIMB_UPS: u32 = 8;

/// Loads that differ by less than this factor are near enough to go on in steps.
const NEAR_FACTOR: f64 = 1.08;

/// If not even the first load is sustained, the next is at least this part of it.
const FALL_MAX: f64 = 1.0 / 64.0;

/// This part of the capacity under overload is tried first.
const TRY_SHARE: f64 = 0.98;

/// Steps up grow to at most this share of the load.
const STEP_UP_MAX: f64 = 0.16;

/// Steps down to at most this.
const STEP_DOWN_MAX: f64 = 0.5;

/// Steps shrink to this part of the set one.
const STEP_PART_MIN: f64 = 0.25;

/// A search that fell to this part of where its fall began does not creep back in steps: it climbs.
const FALLEN_SHARE: f64 = 0.6;

/// While draining, the load is between these parts of the subject's capacity.
const DRAIN_SHARES: (f64, f64) = (0.15, 0.9);

/// A queue is to be gone after this part of a sample.
const DRAIN_PERIOD_SHARE: f64 = 0.9;

/// A queue that is not below this part of its length a sample ago is not being drained.
const DRAIN_PROGRESS_MAX: f64 = 0.9;

/// After this many samples draining ends with any queue, and the search goes on from half the load.
const DRAIN_SAMPLES_MAX: u32 = 50;

/// A load that the laboratory cannot offer is tried again after this many good samples: its host
/// may have become quieter.
const CEILING_SAMPLES: u32 = 20;

/// The longest such wait.
const CEILING_SAMPLES_MAX: u32 = 320;

/// The state below such a load.
pub(crate) const UNDER_CEILING: &str = "below the laboratory's limit";

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Move {
    pub(crate) load_per_s: f64,
    pub(crate) state: &'static str,
    /// Whether the sample that led here was only there to drain a queue.
    pub(crate) was_drain: bool,
}

#[derive(Clone, Debug)]
enum Mode {
    /// Far from the peak, as far as is known: the highest load that was sustained and the lowest
    /// that was not.
    Climb { sustained: Option<f64>, failed: Option<f64> },
    /// Near it.
    Step,
}

#[derive(Clone, Debug)]
struct Drain {
    load_per_s: f64,
    excess: f64,
    samples: u32,
}

/// The state of a search.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    step_set: f64,
    hold_samples: u32,
    mode: Mode,
    /// The load that is being tried, or will be after draining.
    level: f64,
    believed: Option<f64>,
    step: f64,
    /// Sustained samples in a row at this level.
    good: u32,
    /// Whether the accepted level has failed once.
    is_doubted: bool,
    ups: u32,
    downs: u32,
    /// The start of a series of steps down.
    fell_from: Option<f64>,
    drain: Option<Drain>,
    /// Spoiled samples in a row.
    spoiled: u32,
    ceiling: Option<Ceiling>,
}

/// A load at which the laboratory spoiled sample after sample.
#[derive(Clone, Copy, Debug)]
struct Ceiling {
    load_per_s: f64,
    /// After this many good samples it is tried again.
    samples_left: u32,
    /// How many it were at the beginning.
    samples_waited: u32,
}

impl Search {
    /// Begins at `first_per_s`, with steps of `step` × load.
    pub(crate) fn new(first_per_s: f64, step: f64, hold_samples: u32) -> Self {
        Self {
            step_set: step,
            hold_samples,
            mode: Mode::Climb { sustained: None, failed: None },
            level: first_per_s,
            believed: None,
            step,
            good: 0,
            is_doubted: false,
            ups: 0,
            downs: 0,
            fell_from: None,
            drain: None,
            spoiled: 0,
            ceiling: None,
        }
    }

    /// The load that is being tried.
    pub(crate) fn level(&self) -> f64 {
        self.level
    }

    /// Makes the next move after a sample of `period_us` at `load_per_s`.
    pub(crate) fn next(
        &mut self,
        load_per_s: f64,
        reading: &Reading,
        bounds: &Bounds,
        period_us: u64,
    ) -> Move {
        if let Some(drain) = self.drain.take() {
            return self.go_on_draining(drain, reading, bounds);
        }
        self.spoiled = 0;
        self.level = load_per_s;
        let state = match (&self.mode, reading.finding) {
            (Mode::Climb { failed, .. }, Finding::TooFew)
                if failed.is_none_or(|failed| failed > self.level * FAR_FACTOR) =>
            {
                self.level *= CLIMB_FACTOR;
                "climb"
            }
            (_, Finding::TooFew) => "extend",
            (Mode::Climb { failed, .. }, Finding::Sustained { clearly }) => {
                let failed = *failed;
                self.climb(failed, clearly, bounds.is_top(load_per_s))
            }
            (Mode::Climb { sustained, .. }, Finding::Overloaded) => {
                let sustained = *sustained;
                self.fall(sustained, reading)
            }
            (Mode::Step, Finding::Sustained { clearly }) => self.hold_or_raise(clearly, bounds),
            (Mode::Step, Finding::Overloaded) => self.doubt_or_lower(reading),
        };
        let is_good = matches!(reading.finding, Finding::Sustained { .. });
        let is_kept = is_good && self.keep_below_ceiling(load_per_s);
        let state = if is_kept { UNDER_CEILING } else { state };
        self.level = bounds.clamp(self.level);
        if reading.finding == Finding::Overloaded && reading.is_burdened {
            return self.begin_draining(reading, bounds, period_us);
        }
        Move { load_per_s: self.level, state, was_drain: false }
    }

    /// Makes the next move after a sample that says nothing: the same load, or a lower one if the
    /// laboratory spoiled it again and again.
    pub(crate) fn pass_over(
        &mut self,
        load_per_s: f64,
        reading: &Reading,
        why: Unjudged<'_>,
        bounds: &Bounds,
        period_us: u64,
    ) -> Move {
        if let Some(drain) = self.drain.take() {
            return self.go_on_draining(drain, reading, bounds);
        }
        self.level = load_per_s;
        let mut state = why.state();
        if let Unjudged::Spoiled(_) = why {
            self.spoiled += 1;
            if self.spoiled >= SPOILED_MAX {
                state = self.retreat();
            }
            self.level = bounds.clamp(self.level);
        }
        if reading.is_burdened {
            return self.begin_draining(reading, bounds, period_us);
        }
        Move { load_per_s: self.level, state, was_drain: false }
    }

    /// Gives up a load that the laboratory cannot offer as it should.
    fn retreat(&mut self) -> &'static str {
        self.spoiled = 0;
        let known = match &self.mode {
            Mode::Climb { sustained, .. } => *sustained,
            Mode::Step => self.believed,
        };
        // Each time that it fails again, it is tried later.
        let waited = self.ceiling.map_or(0, |ceiling| 2 * ceiling.samples_waited);
        let samples = waited.clamp(CEILING_SAMPLES, CEILING_SAMPLES_MAX);
        self.ceiling = Some(Ceiling {
            load_per_s: self.level,
            samples_left: samples,
            samples_waited: samples,
        });
        (self.good, self.ups, self.downs, self.is_doubted) = (0, 0, 0, false);
        if let Some(known) = known.filter(|known| *known < self.level) {
            self.level = known;
            return "retreat";
        }
        // At a load that was held before, the laboratory or its host has become worse.
        self.level /= 2.0;
        self.believed = None;
        if let Mode::Climb { sustained, .. } = &mut self.mode {
            *sustained = None;
        }
        "retreat"
    }

    /// Keeps a load that was raised from `before`, which was sustained, below the ceiling, or at it
    /// when it is time to try it again. Returns whether it had to.
    fn keep_below_ceiling(&mut self, before: f64) -> bool {
        let Some(ceiling) = &mut self.ceiling else { return false };
        if before >= ceiling.load_per_s {
            self.ceiling = None;
            return false;
        }
        ceiling.samples_left = ceiling.samples_left.saturating_sub(1);
        if ceiling.samples_left == 0 {
            self.level = self.level.min(ceiling.load_per_s);
            return false;
        }
        let is_too_high = self.level > before && self.level >= ceiling.load_per_s;
        if is_too_high {
            let is_near = before * NEAR_FACTOR >= ceiling.load_per_s;
            self.level = if is_near { before } else { (before * ceiling.load_per_s).sqrt() };
        }
        is_too_high
    }

    fn climb(&mut self, failed: Option<f64>, clearly: bool, is_top: bool) -> &'static str {
        let is_near = failed.is_some_and(|failed| failed < self.level * NEAR_FACTOR);
        if is_near || is_top || (failed.is_some() && !clearly) {
            return self.enter_steps(1);
        }
        self.mode = Mode::Climb { sustained: Some(self.level), failed };
        // As long as no load has failed, one slow sample (a cold start, a neighbour) does not mean
        // that the peak is near.
        let factor = if clearly { CLIMB_FACTOR } else { CAUTIOUS_CLIMB_FACTOR };
        self.level = failed.map_or(self.level * factor, |failed| (self.level * failed).sqrt());
        "climb"
    }

    fn fall(&mut self, sustained: Option<f64>, reading: &Reading) -> &'static str {
        let mut failed = self.level;
        if let Some(sustained) = sustained.filter(|_| reading.is_burdened) {
            // A subject that was busy all the time has shown its capacity: no need to try far above
            // it.
            failed = failed.min((reading.answered_per_s / TRY_SHARE).max(sustained));
        }
        match sustained {
            Some(sustained) if failed < sustained * NEAR_FACTOR => {
                self.level = sustained;
                self.enter_steps(0)
            }
            Some(sustained) => {
                self.mode = Mode::Climb { sustained: Some(sustained), failed: Some(failed) };
                self.level = (sustained * failed).sqrt();
                "back off"
            }
            None => {
                self.mode = Mode::Climb { sustained: None, failed: Some(failed) };
                let can_do = reading.answered_per_s * TRY_SHARE;
                // A subject that answers nearly all requests and is too slow or wrong has not shown
                // its capacity.
                let is_known = reading.is_burdened || can_do < failed / 2.0;
                self.level =
                    if is_known { can_do.clamp(failed * FALL_MAX, failed) } else { failed / 2.0 };
                "back off"
            }
        }
    }

    fn enter_steps(&mut self, good: u32) -> &'static str {
        self.mode = Mode::Step;
        self.believed = None;
        self.step = self.step_set;
        self.good = good;
        self.is_doubted = false;
        (self.ups, self.downs) = (0, 0);
        self.fell_from = None;
        "hold"
    }

    fn hold_or_raise(&mut self, clearly: bool, bounds: &Bounds) -> &'static str {
        self.is_doubted = false;
        self.good += 1;
        let is_striding = clearly && self.ups >= STRIDE_UPS;
        if self.good < self.hold_samples && !is_striding {
            return "hold";
        }
        self.believed = Some(self.level);
        self.fell_from = None;
        self.downs = 0;
        if bounds.is_top(self.level) {
            return AT_LOAD_MAX;
        }
        self.ups += 1;
        if clearly && self.ups > CLIMB_UPS {
            return self.climb(None, clearly, false);
        }
        if self.ups > 1 {
            self.step = (self.step * 2.0).min(STEP_UP_MAX.max(self.step_set));
        }
        self.good = 0;
        self.level *= 1.0 + self.step;
        "step up"
    }

    fn doubt_or_lower(&mut self, reading: &Reading) -> &'static str {
        self.good = 0;
        self.ups = 0;
        match self.believed {
            Some(believed) if self.level > believed => {
                self.level = believed;
                self.step = (self.step / 2.0).max(self.step_set * STEP_PART_MIN);
                self.is_doubted = false;
                "step back"
            }
            Some(_) if !self.is_doubted => {
                self.is_doubted = true;
                "repeat"
            }
            _ => self.lower(reading),
        }
    }

    fn lower(&mut self, reading: &Reading) -> &'static str {
        let from = *self.fell_from.get_or_insert(self.level);
        let amount = (self.step_set * 2_f64.powi(self.downs.min(16) as i32)).min(STEP_DOWN_MAX);
        let mut lower = self.level * (1.0 - amount);
        if reading.is_burdened {
            // A subject that was busy all the time has shown its capacity.
            lower = lower.min(reading.answered_per_s * TRY_SHARE).max(self.level * STEP_DOWN_MAX);
        }
        self.level = lower;
        self.downs += 1;
        self.believed = None;
        self.is_doubted = false;
        self.step = self.step_set;
        if self.level < from * FALLEN_SHARE {
            self.mode = Mode::Climb { sustained: None, failed: Some(from) };
            self.fell_from = None;
        }
        "step down"
    }

    fn begin_draining(&mut self, reading: &Reading, bounds: &Bounds, period_us: u64) -> Move {
        let can_do = if reading.answered_per_s > 0.0 {
            reading.answered_per_s.min(self.level)
        } else {
            self.level * DRAIN_SHARES.0
        };
        let drain_s = (period_us as f64 / 1e6 * DRAIN_PERIOD_SHARE).max(1e-6);
        let load_per_s = (can_do - reading.excess / drain_s)
            .clamp(can_do * DRAIN_SHARES.0, can_do * DRAIN_SHARES.1);
        let load_per_s = bounds.clamp(load_per_s);
        self.drain = Some(Drain { load_per_s, excess: reading.excess, samples: 0 });
        Move { load_per_s, state: "drain", was_drain: false }
    }

    fn go_on_draining(&mut self, before: Drain, reading: &Reading, bounds: &Bounds) -> Move {
        if !reading.is_burdened {
            return Move { load_per_s: self.level, state: "resume", was_drain: true };
        }
        if before.samples >= DRAIN_SAMPLES_MAX {
            self.level = bounds.clamp(self.level / 2.0);
            return Move { load_per_s: self.level, state: "resume", was_drain: true };
        }
        let is_sinking = reading.excess < before.excess * DRAIN_PROGRESS_MAX;
        let load_per_s =
            if is_sinking { before.load_per_s } else { bounds.clamp(before.load_per_s / 2.0) };
        self.drain =
            Some(Drain { load_per_s, excess: reading.excess, samples: before.samples + 1 });
        Move { load_per_s, state: "drain", was_drain: true }
    }
}
