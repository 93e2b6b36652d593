//! Sample after sample: wait, count, judge, change the load.

use super::ground::Ground;
use super::limits;
use crate::Failure;
use crate::fleet::Fleet;
use crate::interrupt::Interrupt;
use humboldt_lab_peak::{Controller, View};
use humboldt_lab_record::{Outcome, Run, Sample};
use std::time::{Duration, Instant};

/// A cache that has been filled once is being measured; before, it is being filled.
const FILLED: f64 = 1.0;

/// How often a waiting laboratory checks whether the subject is still alive.
const ALIVE_PAUSE: Duration = Duration::from_millis(500);

/// A sample may be a little shorter than planned when the run ends; one that is much shorter is
/// left out.
const SHORT_SAMPLE: f64 = 0.5;

/// The state between samples.
pub(super) struct Sampling {
    start: Instant,
    /// Begin of the present period.
    begun: Instant,
    sample_s: f64,
    load_per_s: f64,
    fill_bytes: u64,
    index: u32,
}

impl Sampling {
    /// The load has just begun.
    pub(super) fn new(run: &Run, load_per_s: f64) -> Self {
        let now = Instant::now();
        Self {
            start: now,
            begun: now,
            sample_s: run.plan.sample_s,
            load_per_s,
            fill_bytes: 0,
            index: 0,
        }
    }

    /// Waits for the end of the period; returns the sample, or nothing if the period was cut short.
    pub(super) fn next(
        &mut self,
        run: &Run,
        fleet: &mut Fleet,
        ground: &mut Ground,
        controller: &mut dyn Controller,
        interrupt: &Interrupt,
    ) -> Result<Option<Sample>, Failure> {
        self.wait(run, ground, interrupt)?;
        let (mut tally, mut origin) = fleet.sample().map_err(Failure::run)?;
        self.begun = Instant::now();
        self.fill_bytes += tally.fill_bytes;
        if (tally.period_us as f64) < self.sample_s * 1e6 * SHORT_SAMPLE {
            return Ok(None);
        }
        let fill_ratio = self.fill_bytes as f64 / run.plan.cache_bytes.max(1) as f64;
        let view = View {
            index: self.index,
            load_per_s: self.load_per_s,
            filling: fill_ratio < FILLED,
            fill_ratio,
        };
        let verdict = controller.judge(&view, &tally);
        let lab_limited =
            limits::of_sample(&tally, &origin, run.calibration).map(|limit| limit.to_string());
        let load_per_s = std::mem::replace(&mut self.load_per_s, verdict.next_load_per_s);
        fleet.set_load(self.load_per_s).map_err(Failure::run)?;
        tally.compact();
        origin.lag.compact();
        let sample = Sample {
            index: self.index,
            at_s: self.start.elapsed().as_secs_f64(),
            load_per_s,
            fill_ratio,
            tally,
            origin,
            resources: ground.resources(),
            verdict,
            lab_limited,
        };
        self.index += 1;
        Ok(Some(sample))
    }

    /// Until the period's end, the run's end, a signal, or the subject's death.
    fn wait(&self, run: &Run, ground: &mut Ground, interrupt: &Interrupt) -> Result<(), Failure> {
        // From the begin of this period, not from that of the run: after a stall of more than a
        // period the next would otherwise be over before it has begun, and so would all that
        // follow.
        let mut end = self.begun + Duration::from_secs_f64(self.sample_s);
        if let Some(time_max_s) = run.plan.goal.time_max_s {
            end = end.min(self.start + Duration::from_secs_f64(time_max_s));
        }
        while Instant::now() < end && !interrupt.is_set() {
            ground.check()?;
            interrupt.wait_until(end.min(Instant::now() + ALIVE_PAUSE), || false);
        }
        Ok(())
    }

    /// The end of the run, if it is over.
    pub(super) fn end(&self, run: &Run, interrupt: &Interrupt) -> Option<Outcome> {
        let fill_ratio = self.fill_bytes as f64 / run.plan.cache_bytes.max(1) as f64;
        if fill_ratio >= run.plan.goal.fill_ratio {
            return Some(Outcome::Filled);
        }
        if interrupt.is_set() {
            return Some(Outcome::Interrupted);
        }
        let is_late = |limit_s: f64| self.start.elapsed().as_secs_f64() >= limit_s;
        run.plan.goal.time_max_s.is_some_and(is_late).then_some(Outcome::TimeUp)
    }
}
