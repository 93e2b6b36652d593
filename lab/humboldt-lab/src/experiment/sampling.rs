//! Sample after sample: wait, count, judge, change the load.

use super::ground::Ground;
use super::limits::{self, Limit};
use super::plan::Prepared;
use crate::Failure;
use crate::fleet::Fleet;
use crate::interrupt::Interrupt;
use humboldt_lab_peak::{Controller, Unjudged, View, decide, samples_that_count};
use humboldt_lab_record::{Outcome, Resources, Run, Sample};
use humboldt_lab_subjects::HostLoad;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A cache that has been filled once is being measured; before, it is being filled.
const FILLED: f64 = 1.0;

/// A run that has filled the cache as planned goes on for more samples, but not longer than this
/// many times the time until then.
pub(crate) const OVERTIME_MAX: u32 = 4;

/// After this many disturbed samples in a row, lower loads are tried; and then the run ends.
const DISTURBED_BRIEFLY: u32 = 6;
const DISTURBED_MAX: u32 = 100;

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
    samples_wanted: usize,
    load_per_s: f64,
    fill_bytes: u64,
    /// How long it took to fill the cache as planned.
    filled_after: Option<Duration>,
    index: u32,
    host: HostLoad,
    /// Whether samples count although others were busy.
    tolerates_others: bool,
    /// Whether users and servers of the laboratory are processes of their own.
    has_agents: bool,
    /// The subject's resources at the last sample.
    resources: Option<Resources>,
    /// Disturbed samples in a row.
    disturbed: u32,
    /// Whether the search is over: then the time of the run is, too.
    is_after_search: bool,
}

impl Sampling {
    /// The load has just begun.
    pub(super) fn new(run: &Run, load_per_s: f64, prepared: &Prepared) -> Self {
        let now = Instant::now();
        Self {
            start: now,
            begun: now,
            sample_s: run.plan.sample_s,
            samples_wanted: prepared.samples_wanted,
            load_per_s,
            fill_bytes: 0,
            filled_after: None,
            index: 0,
            host: HostLoad::new(PathBuf::from("/proc"), prepared.shares.all()),
            tolerates_others: prepared.tolerates_others,
            has_agents: prepared.has_agents,
            resources: None,
            disturbed: 0,
            is_after_search: false,
        }
    }

    /// The search is over; from now on this load is offered, whatever the time.
    pub(super) fn begin_curve(
        &mut self,
        load_per_s: f64,
        fleet: &mut Fleet,
    ) -> Result<(), Failure> {
        (self.is_after_search, self.load_per_s) = (true, load_per_s);
        fleet.set_load(load_per_s).map_err(Failure::run)
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
        let ours = ground.processes().filter(|_| !self.has_agents);
        let taken = self.host.look(ours.as_ref());
        let matters = taken.filter(|_| !self.tolerates_others);
        let limit = self
            .slowness(ground.used())
            .filter(|_| !self.tolerates_others)
            .or_else(|| limits::of_sample(&tally, &origin, run.calibration, matters));
        let lab_limited = limit.map(|limit| limit.to_string());
        let is_disturbed = limit.is_some_and(Limit::is_of_machine);
        self.disturbed = if is_disturbed { self.disturbed + 1 } else { 0 };
        if self.disturbed >= DISTURBED_MAX {
            return Err(Failure::run(format!(
                "this machine is not quiet, or too slow: {} in {DISTURBED_MAX} samples in a row; end other work, ask for a smaller --cpu-speed, or use --tolerate-others",
                lab_limited.unwrap_or_default()
            )));
        }
        // What goes on for long may come with this load.
        let is_passing = self.disturbed <= DISTURBED_BRIEFLY;
        let unjudged = lab_limited.as_deref().map(|why| match is_disturbed && is_passing {
            true => Unjudged::Disturbed(why),
            false => Unjudged::Spoiled(why),
        });
        let verdict = decide(controller, &view, &tally, unjudged);
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
            steal: taken.map(|taken| taken.steal),
            foreign: taken.filter(|_| ours.is_some()).map(|taken| taken.foreign),
            lab_limited,
        };
        self.index += 1;
        Ok(Some(sample))
    }

    /// Whether the subject missed a part of its processor since the last sample.
    fn slowness(&mut self, now: Option<Resources>) -> Option<Limit> {
        let now = now?;
        let before = self.resources.replace(now).unwrap_or_default();
        limits::of_speed(&before, &now)
    }

    /// Until the period's end, the run's end, a signal, or the subject's death.
    fn wait(&self, run: &Run, ground: &mut Ground, interrupt: &Interrupt) -> Result<(), Failure> {
        // From the begin of this period, not from that of the run: after a stall of more than a
        // period the next would otherwise be over before it has begun, and so would all that
        // follow.
        let mut end = self.begun + Duration::from_secs_f64(self.sample_s);
        if let Some(time_max_s) = run.plan.goal.time_max_s.filter(|_| !self.is_after_search) {
            end = end.min(self.start + Duration::from_secs_f64(time_max_s));
        }
        while Instant::now() < end && !interrupt.is_set() {
            ground.check()?;
            interrupt.wait_until(end.min(Instant::now() + ALIVE_PAUSE), || false);
        }
        Ok(())
    }

    /// The end of the run, if it is over.
    pub(super) fn end(&mut self, run: &Run, interrupt: &Interrupt) -> Option<Outcome> {
        let fill_ratio = self.fill_bytes as f64 / run.plan.cache_bytes.max(1) as f64;
        if fill_ratio >= run.plan.goal.fill_ratio {
            let elapsed = self.start.elapsed();
            let filled_after = *self.filled_after.get_or_insert(elapsed);
            let is_enough = samples_that_count(&run.samples) >= self.samples_wanted;
            if is_enough || elapsed >= filled_after * OVERTIME_MAX {
                return Some(Outcome::Filled);
            }
        }
        if interrupt.is_set() {
            return Some(Outcome::Interrupted);
        }
        let is_late = |limit_s: f64| self.start.elapsed().as_secs_f64() >= limit_s;
        let is_filled = self.filled_after.is_some();
        let outcome = if is_filled { Outcome::Filled } else { Outcome::TimeUp };
        run.plan.goal.time_max_s.is_some_and(is_late).then_some(outcome)
    }
}
