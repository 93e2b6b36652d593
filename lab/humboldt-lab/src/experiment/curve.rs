//! `--curve`: after the search, response times at parts of the load that it found.

use super::Stage;
use super::ground::Ground;
use super::sampling::Sampling;
use crate::Failure;
use crate::fleet::Fleet;
use crate::interrupt::Interrupt;
use humboldt_lab_peak::{Controller, Curve};
use humboldt_lab_record::Run;
use humboldt_lab_report::curve_line;

/// Measures the curve into the run. Without a load of 100 % the run says why there is none. After
/// an interrupt, what was measured stays.
///
/// # Errors
/// If the subject has ended, or the machine is not quiet; [`left_out`] says so in the run.
pub(super) fn measure(
    run: &mut Run,
    asked_for: Option<f64>,
    fleet: &mut Fleet,
    ground: &mut Ground,
    sampling: &mut Sampling,
    stage: &Stage,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    humboldt_lab_peak::summarise(run);
    run.curve_of_per_s = asked_for;
    let Some(full_per_s) = asked_for.or(run.summary.sustained_per_s) else {
        let why = "no load was sustained, so there is none to take parts of; give --curve-of";
        run.manifest.skipped.push(format!("the curve: {why}"));
        return Ok(());
    };
    let mut curve = Curve::new(full_per_s).map_err(Failure::run)?;
    stage.live.line(&format!("curve: parts of {full_per_s:.0} requests/s"));
    sampling.begin_curve(curve.first_load_per_s(), fleet)?;
    while let Some(step) = curve.step() {
        let first = run.curve_samples.len();
        while curve.step() == Some(step) {
            if interrupt.is_set() {
                return Ok(());
            }
            let sample = sampling.next(run, fleet, ground, &mut curve, interrupt)?;
            run.curve_samples.extend(sample);
        }
        let figures = curve.figures(step, run.curve_samples.get(first..).unwrap_or_default());
        stage.live.line(&curve_line(&figures));
        run.curve.push(figures);
    }
    ground.check()
}

/// Says in the run that the curve, or a part of it, is not known. The result of the run stays.
pub(super) fn left_out(run: &mut Run, failure: &Failure) {
    let message = failure.to_string();
    let line = message.lines().next().unwrap_or_default();
    run.manifest.skipped.push(format!("the curve, or a part of it: {line}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_lab_record::Outcome;

    #[test]
    fn a_curve_that_fails_is_a_warning_and_the_result_stays() {
        let mut run = Run { outcome: Outcome::Filled, ..Run::default() };
        left_out(&mut run, &Failure::run("the subject ended\nits last words"));
        assert_eq!(run.outcome, Outcome::Filled);
        assert_eq!(run.manifest.skipped, ["the curve, or a part of it: the subject ended"]);
    }
}
