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

/// The load of 100 %: the one that was asked for, or the sustained one, or the highest that was
/// held.
fn full_per_s(run: &Run, asked_for: Option<f64>) -> Option<f64> {
    let held = run.summary.held.first().map(|held| held.load_per_s);
    asked_for.or(run.summary.sustained_per_s).or(held)
}

/// Measures the curve into the run. Without a load of 100 %, or when the machine is not quiet, the
/// run says why there is none, or only a part. After an interrupt, what was measured stays.
///
/// # Errors
/// If the subject has ended.
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
    let Some(full_per_s) = full_per_s(run, asked_for) else {
        let why = "no load was sustained, so there is none to take parts of; give --curve-of";
        run.manifest.skipped.push(format!("the curve: {why}"));
        return Ok(());
    };
    let mut curve = Curve::new(full_per_s).map_err(Failure::run)?;
    stage.live.line(&format!("curve: parts of {full_per_s:.0} requests/s"));
    sampling.begin_curve(curve.first_load_per_s(), fleet)?;
    while let Some(step) = curve.step() {
        let mut samples = Vec::new();
        while curve.step() == Some(step) {
            if interrupt.is_set() {
                return Ok(());
            }
            match sampling.next(run, fleet, ground, &mut curve, interrupt) {
                Ok(sample) => samples.extend(sample),
                Err(failure) => {
                    ground.check()?;
                    run.manifest.skipped.push(format!("a part of the curve: {failure}"));
                    return Ok(());
                }
            }
        }
        let figures = curve.figures(step, &samples);
        stage.live.line(&curve_line(&figures));
        run.curve.push(figures);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_lab_record::Held;

    #[test]
    fn a_hundred_per_cent_is_what_is_asked_for_or_was_sustained_or_held() {
        let mut run = Run::default();
        assert_eq!(full_per_s(&run, None), None);
        run.summary.held.push(Held { load_per_s: 500.0, ..Held::default() });
        assert_eq!(full_per_s(&run, None), Some(500.0));
        run.summary.sustained_per_s = Some(400.0);
        assert_eq!(full_per_s(&run, None), Some(400.0));
        assert_eq!(full_per_s(&run, Some(70.0)), Some(70.0));
    }
}
