//! Everything that follows from the files of runs: whether a published page is what they say, and
//! the pages of single runs.

use crate::cli::{RecomputeArgs, ReportArgs};
use crate::{Failure, output::say};
use humboldt_lab_peak::Curve;
use humboldt_lab_record::{CurveStep, Run, Summary, Tally, TimesSummary};
use humboldt_lab_report::{
    self as report, Difference, Experiment, Recomputed, ReportError, Results,
};
use serde_json::Value;
use std::path::Path;

/// Figures that differ by less than this share are equal: sums of fractions may be added up in
/// another order.
const SAME: f64 = 1e-9;

/// `humboldt-lab recompute`.
pub(crate) fn recompute(arguments: &RecomputeArgs) -> Result<(), Failure> {
    let (mut wrong, mut without_samples) = (0, Vec::new());
    for dir in &arguments.dirs {
        let experiment = match Experiment::read(dir) {
            // The others are computed all the same.
            Err(ReportError::WithoutSamples(_)) if dir.is_dir() => {
                without_samples.push(dir.display().to_string());
                continue;
            }
            read => read.map_err(Failure::usage)?,
        };
        if arguments.write {
            experiment.write_again(dir).map_err(Failure::run)?;
            say!("{}: written again", dir.display());
        }
        let found = report::recompute(dir).map_err(Failure::usage)?;
        let differences = all_differences(&found);
        for difference in &differences {
            say!("{}/{difference}", dir.display());
        }
        wrong += usize::from(!differences.is_empty());
        if differences.is_empty() {
            let runs = found.experiment.folders.len();
            say!("{}: {} files are what {runs} runs say", dir.display(), found.files);
        }
    }
    let without = match without_samples.as_slice() {
        [] => String::new(),
        folders => format!("published without samples: {}", folders.join(", ")),
    };
    match wrong {
        0 if without.is_empty() => Ok(()),
        0 => Err(Failure::usage(without)),
        _ => Err(Failure::run(format!(
            "{wrong} of {} pages are not what their figures say; `humboldt-lab recompute --write DIR` makes them again",
            arguments.dirs.len()
        ))),
    }
}

/// Those of the page, and those of each run's summary from its samples.
fn all_differences(found: &Recomputed) -> Vec<Difference> {
    let mut all = found.differences.clone();
    if let Results::Peaks(runs) = &found.results {
        for (folder, run) in found.experiment.folders.iter().zip(runs) {
            all.extend(of_summary(&format!("{folder}/summary.json"), run));
        }
    }
    all
}

/// The differences of a run's summary from what its samples say.
fn of_summary(file: &str, run: &Run) -> Vec<Difference> {
    let mut again = run.clone();
    humboldt_lab_peak::summarise(&mut again);
    let mut found = Vec::new();
    let mut compare =
        |part: &str, kept: Value, made: Value| differ(file, part, &kept, &made, &mut found);
    let json = |summary: &Summary| serde_json::to_value(summary).unwrap_or_default();
    // A run that failed before its first sample has no headline.
    let made = match run.samples.is_empty() {
        true => again.summary,
        false => with_whole_histograms(again.summary, run),
    };
    compare("summary", json(&run.summary), json(&made));
    compare("curve", curve(&run.curve), curve(&curve_again(run)));
    compare("total", counts(&run.total), counts(&again.total));
    compare("last_quarter", counts(&run.last_quarter), counts(&again.last_quarter));
    found
}

/// A sample keeps a few points of its distributions, the last quarter keeps its own whole: their
/// percentiles come from there. Count, mean and maximum come from the samples.
fn with_whole_histograms(again: Summary, run: &Run) -> Summary {
    let last = &run.last_quarter;
    let both = |samples: TimesSummary, whole: TimesSummary| TimesSummary {
        count: samples.count,
        mean_ms: samples.mean_ms,
        max_ms: samples.max_ms,
        ..whole
    };
    Summary {
        response: both(again.response, TimesSummary::from(&last.response())),
        hits: both(again.hits, TimesSummary::from(&last.hits.response)),
        misses: both(again.misses, TimesSummary::from(&last.misses.response)),
        hits_added: both(again.hits_added, TimesSummary::from(&last.hits.added)),
        misses_added: both(again.misses_added, TimesSummary::from(&last.misses.added)),
        ..again
    }
}

/// The curve from its samples and its load of 100 %.
fn curve_again(run: &Run) -> Vec<CurveStep> {
    let full_per_s = run.curve_of_per_s.or(run.summary.sustained_per_s);
    full_per_s.map_or_else(Vec::new, |per_s| Curve::again(per_s, &run.curve_samples))
}

/// A curve without its percentiles, of which samples keep only a few points.
fn curve(steps: &[CurveStep]) -> Value {
    let plain = |times: TimesSummary| TimesSummary {
        count: times.count,
        mean_ms: times.mean_ms,
        max_ms: times.max_ms,
        ..TimesSummary::default()
    };
    let steps: Vec<CurveStep> = steps
        .iter()
        .map(|step| CurveStep {
            response: plain(step.response),
            hits: plain(step.hits),
            misses: plain(step.misses),
            ..step.clone()
        })
        .collect();
    serde_json::to_value(steps).unwrap_or_default()
}

/// What was counted, without distributions and evidence.
fn counts(tally: &Tally) -> Value {
    let mut json = serde_json::to_value(tally).unwrap_or_default();
    if let Value::Object(parts) = &mut json {
        parts.remove("fault_samples");
        parts.remove("lag");
        for class in ["hits", "misses", "others"] {
            if let Some(Value::Object(class)) = parts.get_mut(class) {
                class.remove("response");
                class.remove("added");
            }
        }
    }
    json
}

/// Adds every place below `part` at which two values differ.
fn differ(file: &str, part: &str, kept: &Value, made: &Value, found: &mut Vec<Difference>) {
    let nothing = Value::Null;
    match (kept, made) {
        (Value::Object(kept), Value::Object(made)) => {
            for name in kept.keys().chain(made.keys().filter(|name| !kept.contains_key(*name))) {
                let part = format!("{part}.{name}");
                let value = |of: &serde_json::Map<String, Value>| of.get(name).cloned();
                let (kept, made) =
                    (value(kept).unwrap_or_default(), value(made).unwrap_or_default());
                differ(file, &part, &kept, &made, found);
            }
        }
        (Value::Array(kept), Value::Array(made)) => {
            for index in 0..kept.len().max(made.len()) {
                let (kept, made) = (kept.get(index), made.get(index));
                let part = format!("{part}[{index}]");
                differ(file, &part, kept.unwrap_or(&nothing), made.unwrap_or(&nothing), found);
            }
        }
        _ if is_same(kept, made) => {}
        _ => found.push(Difference {
            file: file.to_owned(),
            row: 1,
            column: part.to_owned(),
            published: kept.to_string(),
            recomputed: made.to_string(),
        }),
    }
}

fn is_same(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => (one - other).abs() <= SAME * one.abs().max(other.abs()),
        _ => one == other,
    }
}

/// `humboldt-lab report`.
pub(crate) fn pages(arguments: &ReportArgs) -> Result<(), Failure> {
    for path in &arguments.runs {
        let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
        let page = folder.join("report.html");
        report::write_report(path, &page).map_err(Failure::usage)?;
        say!("report: {}", page.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use humboldt_lab_record::{Held, Sample};

    /// A run of twenty seconds.
    fn run() -> Run {
        let mut run = Run::default();
        for index in 1..=20u32 {
            let mut sample = Sample { fill_ratio: f64::from(index) / 10.0, ..Sample::default() };
            sample.tally.period_us = 1_000_000;
            (0..u64::from(100 + index)).for_each(|ms| sample.tally.misses.add(1, ms * 1000, ms));
            run.samples.push(sample);
        }
        humboldt_lab_peak::summarise(&mut run);
        run
    }

    fn columns(run: &Run) -> Vec<String> {
        of_summary("summary.json", run).into_iter().map(|difference| difference.column).collect()
    }

    #[test]
    fn a_summary_is_what_its_samples_say() {
        let run = run();
        assert_eq!(columns(&run), [""; 0]);
        let mut touched = run.clone();
        touched.summary.throughput_per_s *= 1.01;
        touched.summary.hits.p95_ms = 3.0;
        touched.summary.held.push(Held::default());
        let found = columns(&touched);
        assert_eq!(found, ["summary.held[0]", "summary.hits.p95_ms", "summary.throughput_per_s"]);
    }

    #[test]
    fn a_headline_without_samples_is_invented() {
        let mut run = Run::default();
        humboldt_lab_peak::summarise(&mut run);
        assert_eq!(columns(&run), [""; 0], "it failed before its first sample");
        (run.summary.throughput_per_s, run.summary.hits.p95_ms) = (5_000.0, 2.0);
        let invented = ["summary.hits.p95_ms", "summary.throughput_per_s"];
        assert_eq!(columns(&run), invented);
    }

    #[test]
    fn a_curve_is_what_its_samples_say() {
        let mut run = run();
        run.curve_of_per_s = Some(1_000.0);
        for index in 0..14u32 {
            let mut sample = Sample { index, ..Sample::default() };
            sample.verdict.state = if index % 7 < 2 { "settle" } else { "curve" }.into();
            sample.verdict.unjudged = index % 7 < 2;
            sample.tally.period_us = 1_000_000;
            (0..10).for_each(|ms| sample.tally.hits.add(1, ms * 1000, ms));
            run.curve_samples.push(sample);
        }
        run.curve = curve_again(&run);
        assert_eq!((columns(&run), run.curve.len()), (Vec::new(), 2));
        run.curve[1].answered_per_s += 1.0;
        assert_eq!(columns(&run), ["curve[1].answered_per_s"]);
        run.curve_samples.clear();
        assert_eq!(columns(&run), ["curve[0]", "curve[1]"]);
    }

    #[test]
    fn a_sample_that_was_taken_away_is_missed() {
        let mut run = run();
        run.samples.remove(3);
        assert!(columns(&run).iter().any(|column| column == "total.misses.answers"));
        run.samples.pop();
        assert!(columns(&run).iter().any(|column| column == "summary.throughput_per_s"));
    }
}
