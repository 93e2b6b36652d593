//! Response times against load: the same samples at parts of the load that is sustained.

use crate::controller::{LOAD_MAX_PER_S, LOAD_MIN_PER_S};
use crate::summary::{merged, ratio, throughput_per_s};
use crate::{Controller, SettingsError, Unjudged, View, words};
use humboldt_lab_record::{CurveStep, Sample, Tally, TimesSummary, Verdict};

/// The parts of the load of 100 %, in the order in which they are offered: the overload comes last,
/// so that its queue spoils nothing.
pub const CURVE_SHARES: [f64; 7] = [0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1];

/// After a change of load this many samples do not count.
const SETTLING_SAMPLES: u32 = 2;

/// Samples that count at each load.
const COUNTED_SAMPLES: u32 = 5;

/// After this many spoiled samples at one load the next one is offered.
const SPOILED_SAMPLES_MAX: u32 = 10;

/// The states of the verdicts: a sample after a change of load, and one that counts.
const SETTLING: &str = "settle";
const COUNTED: &str = "curve";

/// Offers one load after the other, a few good samples each.
#[derive(Clone, Debug)]
pub struct Curve {
    full_per_s: f64,
    step: usize,
    settling: u32,
    counted: u32,
    spoiled: u32,
}

impl Curve {
    /// With `full_per_s` requests per second as 100 %.
    ///
    /// # Errors
    /// If that is no load.
    pub fn new(full_per_s: f64) -> Result<Self, SettingsError> {
        if !(LOAD_MIN_PER_S..=LOAD_MAX_PER_S).contains(&full_per_s) {
            return Err(SettingsError::OutOfRange {
                name: "the load of 100 %",
                value: full_per_s,
                low: LOAD_MIN_PER_S,
                high: LOAD_MAX_PER_S,
            });
        }
        Ok(Self { full_per_s, step: 0, settling: SETTLING_SAMPLES, counted: 0, spoiled: 0 })
    }

    /// The present step, from 0; `None` when all loads were offered.
    #[must_use]
    pub fn step(&self) -> Option<usize> {
        (self.step < CURVE_SHARES.len()).then_some(self.step)
    }

    /// The figures of a step from all of its samples.
    #[must_use]
    pub fn figures(&self, step: usize, samples: &[Sample]) -> CurveStep {
        let share = CURVE_SHARES.get(step).copied().unwrap_or_default();
        let counted = || samples.iter().filter(|sample| counts(sample));
        let tally = merged(counted());
        let number = |of: &dyn Fn(&&Sample) -> bool| {
            u32::try_from(samples.iter().filter(of).count()).unwrap_or(u32::MAX)
        };
        let seconds = tally.period_us as f64 / 1e6;
        CurveStep {
            share,
            load_per_s: self.load_of(step),
            samples: number(&|sample| counts(sample)),
            spoiled: number(&|sample| sample.is_spoiled()),
            offered_per_s: if seconds > 0.0 { tally.due as f64 / seconds } else { 0.0 },
            answered_per_s: throughput_per_s(counted()).unwrap_or(0.0),
            response: TimesSummary::from(&tally.response()),
            hits: TimesSummary::from(&tally.hits.response),
            misses: TimesSummary::from(&tally.misses.response),
            hit_ratio: ratio(tally.hits.answers, tally.hits.answers + tally.misses.answers),
            faults: tally.faults_total(),
            cpu_us_per_answer: cpu_us_per_answer(samples),
        }
    }

    /// The complete steps of a curve that was measured, from all of its samples. Of percentiles
    /// only as much is known as the samples kept.
    #[must_use]
    pub fn again(full_per_s: f64, samples: &[Sample]) -> Vec<CurveStep> {
        let mut steps = Vec::new();
        let Ok(mut curve) = Self::new(full_per_s) else { return steps };
        let mut first = 0;
        for (index, sample) in samples.iter().enumerate() {
            let Some(step) = curve.step() else { break };
            if [SETTLING, COUNTED].contains(&sample.verdict.state.as_str()) {
                curve.judge(&View::default(), &sample.tally);
            } else {
                curve.pass_over(&View::default(), &sample.tally, Unjudged::Spoiled(""));
            }
            if curve.step() != Some(step) {
                let of_step = samples.get(first..=index).unwrap_or_default();
                steps.push(curve.figures(step, of_step));
                first = index + 1;
            }
        }
        steps
    }

    fn load_of(&self, step: usize) -> f64 {
        // When it is over the last load stays, so that nothing has to be asked twice.
        let share = CURVE_SHARES.get(step).or(CURVE_SHARES.last()).copied().unwrap_or(1.0);
        (self.full_per_s * share).clamp(LOAD_MIN_PER_S, LOAD_MAX_PER_S)
    }

    fn go_on_if(&mut self, is_done: bool) {
        if is_done {
            (self.settling, self.counted, self.spoiled) = (SETTLING_SAMPLES, 0, 0);
            self.step += 1;
        }
    }
}

/// Whether a sample is in the figures of its step.
fn counts(sample: &Sample) -> bool {
    !sample.is_spoiled() && !sample.verdict.unjudged
}

/// Over the samples that count and follow one another; `None` if the subject is not watched.
fn cpu_us_per_answer(samples: &[Sample]) -> Option<f64> {
    let (mut used_us, mut answers) = (0, 0);
    for pair in samples.windows(2) {
        let [before, now] = pair else { continue };
        if !counts(now) {
            continue;
        }
        let cpu_us = |sample: &Sample| sample.resources.map(|r| r.cpu.user_us + r.cpu.system_us);
        // A subject that was restarted counts from zero: then there is no difference to take.
        used_us += cpu_us(now)?.checked_sub(cpu_us(before)?)?;
        answers += now.tally.answers();
    }
    (answers > 0).then(|| used_us as f64 / answers as f64)
}

impl Controller for Curve {
    fn first_load_per_s(&self) -> f64 {
        self.load_of(0)
    }

    fn judge(&mut self, _: &View, tally: &Tally) -> Verdict {
        let (state, unjudged) = if self.settling > 0 {
            self.settling -= 1;
            (SETTLING, true)
        } else {
            self.counted += 1;
            (COUNTED, false)
        };
        self.go_on_if(self.counted >= COUNTED_SAMPLES);
        Verdict {
            next_load_per_s: self.load_of(self.step),
            sustained: !unjudged,
            unjudged,
            state: state.into(),
            reason: format!("{} answers", tally.answers()),
        }
    }

    fn pass_over(&mut self, _: &View, _: &Tally, why: Unjudged<'_>) -> Verdict {
        self.spoiled += 1;
        self.go_on_if(self.spoiled >= SPOILED_SAMPLES_MAX);
        why.verdict(self.load_of(self.step))
    }

    fn name(&self) -> &'static str {
        "curve"
    }

    fn settings(&self) -> Vec<(String, String)> {
        vec![("load of 100 %".into(), words::rate(self.full_per_s))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide;
    use humboldt_lab_record::{ProcessorTimes, Resources};

    /// A second at this load; hits take a millisecond for each 100/s.
    fn sample(load_per_s: f64, number: u64, verdict: Verdict) -> Sample {
        let mut sample = Sample { load_per_s, verdict, ..Sample::default() };
        (sample.tally.period_us, sample.tally.due) = (1_000_000, load_per_s as u64);
        (0..load_per_s as u64).for_each(|_| sample.tally.hits.add(1, load_per_s as u64 * 10, 1));
        let cpu = ProcessorTimes { user_us: number * 1_000, system_us: 0 };
        sample.resources = Some(Resources { cpu, ..Resources::default() });
        sample
    }

    #[test]
    fn every_load_gets_its_samples_and_spoiled_ones_are_repeated() {
        let mut curve = Curve::new(1_000.0).unwrap();
        let mut load_per_s = curve.first_load_per_s();
        let (mut steps, mut number, mut all) = (Vec::new(), 0, Vec::new());
        while let Some(step) = curve.step() {
            let mut samples = Vec::new();
            while curve.step() == Some(step) {
                number += 1;
                let is_spoiled = number == 4;
                let view = View { index: 9, load_per_s, ..View::default() };
                let why = is_spoiled.then_some(Unjudged::Spoiled("busy"));
                let verdict = decide(&mut curve, &view, &Tally::default(), why);
                let next_per_s = verdict.next_load_per_s;
                let mut sample = sample(load_per_s, number, verdict);
                if is_spoiled {
                    sample.lab_limited = Some("busy".into());
                    sample.tally.hits.add(1, 9_000_000, 1);
                }
                samples.push(sample);
                load_per_s = next_per_s;
            }
            steps.push(curve.figures(step, &samples));
            all.extend(samples);
        }
        assert_eq!(Curve::again(1_000.0, &all), steps);
        all.pop();
        assert_eq!(Curve::again(1_000.0, &all), steps[..6], "a part of a step is none");
        let loads: Vec<f64> = steps.iter().map(|step| step.load_per_s.round()).collect();
        assert_eq!(loads, [100.0, 250.0, 500.0, 750.0, 900.0, 1_000.0, 1_100.0]);
        assert!(steps.iter().all(|step| step.samples == COUNTED_SAMPLES), "{steps:?}");
        assert_eq!(steps.iter().map(|step| step.spoiled).collect::<Vec<_>>()[..2], [1, 0]);
        assert_eq!((steps[0].hits.count, steps[0].hits.max_ms), (500, 1.0));
        assert_eq!((steps[2].offered_per_s, steps[2].answered_per_s), (500.0, 500.0));
        assert_eq!((steps[2].misses.count, steps[2].hit_ratio), (0, 1.0));
        assert_eq!(steps[2].cpu_us_per_answer, Some(2.0), "1 ms for 500 answers");
    }

    #[test]
    fn a_load_that_is_always_spoiled_does_not_hold_it_up() {
        let mut curve = Curve::new(1_000.0).unwrap();
        for _ in 0..SPOILED_SAMPLES_MAX {
            let why = Unjudged::Disturbed("busy");
            curve.pass_over(&View::default(), &Tally::default(), why);
        }
        assert_eq!(curve.step(), Some(1));
        let none = curve.figures(0, &[]);
        assert_eq!((none.samples, none.answered_per_s, none.cpu_us_per_answer), (0, 0.0, None));
        assert!(Curve::new(f64::NAN).is_err() && Curve::new(0.0).is_err());
    }
}
