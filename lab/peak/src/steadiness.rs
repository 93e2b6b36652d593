//! How steady the last quarter of a run was: the answers, and the laboratory's own work for them.

use crate::flatness::{BLOCKS, SAMPLES_MIN, wider};
use crate::summary::throughput_per_s;
use humboldt_lab_record::{Sample, Steadiness};

/// Two-sided 95 % point of Student's t distribution for `BLOCKS` − 1 degrees of freedom.
const STUDENT_95: f64 = 2.571;

/// From the means of equal parts of the good samples, as for the flatness. `None` if the parts have
/// fewer than five samples each.
pub(crate) fn of(judged: &[Sample]) -> Option<Steadiness> {
    let good: Vec<&Sample> = judged.iter().filter(|sample| !sample.is_spoiled()).collect();
    if good.len() < BLOCKS * SAMPLES_MIN {
        return None;
    }
    let edge = |part: usize| part * good.len() / BLOCKS;
    let parts = || (0..BLOCKS).filter_map(|part| good.get(edge(part)..edge(part + 1)));
    let [mut rates, mut costs_us] = [[0.0; BLOCKS]; 2];
    for (part, (rate, cost_us)) in parts().zip(rates.iter_mut().zip(&mut costs_us)) {
        *rate = throughput_per_s(part.iter().copied())?;
        *cost_us = lab_cpu_us_per_answer(part)?;
    }
    Some(Steadiness {
        throughput_half_interval: half_interval(&rates)?,
        throughput_low_per_s: lowest(&rates),
        throughput_high_per_s: highest(&rates),
        lab_cpu_low_us: lowest(&costs_us),
        lab_cpu_high_us: highest(&costs_us),
    })
}

/// Half of the 95 % interval of the mean, as a part of it.
fn half_interval(rates: &[f64; BLOCKS]) -> Option<f64> {
    let count = BLOCKS as f64;
    let mean = rates.iter().sum::<f64>() / count;
    let rests = rates.map(|rate| rate - mean);
    let squares: f64 = rests.iter().map(|rest| rest.powi(2)).sum();
    let deviation = (squares / (count - 1.0) / count).sqrt() * wider(&rests, squares);
    (mean > 0.0).then(|| STUDENT_95 * deviation / mean)
}

fn lab_cpu_us_per_answer(part: &[&Sample]) -> Option<f64> {
    let used_us: u64 = part.iter().map(|sample| sample.tally.cpu_us + sample.origin.cpu_us).sum();
    let answers: u64 = part.iter().map(|sample| sample.tally.answers()).sum();
    (answers > 0).then(|| used_us as f64 / answers as f64)
}

fn lowest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn highest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second with this many answers, and the laboratory's work for each.
    fn sample(answers: u64, cost_us: u64) -> Sample {
        let mut sample = Sample::default();
        sample.tally.period_us = 1_000_000;
        sample.tally.hits.answers = answers;
        (sample.tally.cpu_us, sample.origin.cpu_us) =
            (answers * cost_us / 2, answers * cost_us / 2);
        sample
    }

    #[test]
    fn a_steady_run_has_a_narrow_interval_and_one_with_waves_a_wide_one() {
        let steady: Vec<Sample> = (0..60).map(|at| sample(1_000 + at % 5, 40)).collect();
        let known = of(&steady).unwrap();
        assert!(known.throughput_half_interval < 0.001, "{known:?}");
        assert_eq!((known.lab_cpu_low_us, known.lab_cpu_high_us), (40.0, 40.0));
        let wavy = (0..60).map(|at| if at < 30 { sample(3_000, 40) } else { sample(2_000, 60) });
        let known = of(&wavy.collect::<Vec<_>>()).unwrap();
        assert!((0.2..2.0).contains(&known.throughput_half_interval), "{known:?}");
        let seen = (known.throughput_low_per_s, known.throughput_high_per_s);
        assert_eq!((seen, known.lab_cpu_low_us), ((2_000.0, 3_000.0), 40.0));
        assert_eq!(known.lab_cpu_high_us, 60.0);
    }

    #[test]
    fn few_samples_say_nothing_and_spoiled_ones_do_not_count() {
        let mut samples: Vec<Sample> = (0..30).map(|_| sample(1_000, 40)).collect();
        assert!(of(&samples).is_some());
        samples[7].lab_limited = Some("busy".into());
        assert_eq!(of(&samples), None);
        assert_eq!(of(&[]), None);
    }
}
