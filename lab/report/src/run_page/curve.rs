//! Response times against load: the table and the plot of `--curve`.

use crate::document::{Figure, Section};
use crate::format::{NOTHING, count, milliseconds, number, percent, rough};
use crate::plot::{Axis, Line, Plot, Size};
use crate::table::Table;
use humboldt_lab_record::{CurveStep, Run, TimesSummary};

/// The section; none if no curve was measured.
pub(super) fn section(run: &Run) -> Option<Section> {
    (!run.curve.is_empty()).then(|| Section {
        short: true,
        tables: vec![table(run)],
        figures: vec![figure(&run.curve)],
        ..Section::new("Response times against load")
    })
}

fn table(run: &Run) -> Table {
    let columns = [
        "of the load",
        "#offered/s",
        "#answers/s",
        "#mean response",
        "#p50, hits",
        "#p95, hits",
        "#p99, hits",
        "#p50, misses",
        "#p95, misses",
        "#p99, misses",
        "#hit ratio",
        "#CPU µs/answer",
        "#errors",
        "#samples",
    ];
    let mut table = Table::new("Response times at parts of the load", &columns);
    for step in &run.curve {
        let ms = |times: &TimesSummary, of: f64| {
            if times.count > 0 { milliseconds(of) } else { NOTHING.to_owned() }
        };
        let (hits, misses) = (&step.hits, &step.misses);
        let spoiled =
            if step.spoiled > 0 { format!(" ({} spoiled)", step.spoiled) } else { String::new() };
        table.row([
            percent(step.share),
            rough(step.offered_per_s),
            rough(step.answered_per_s),
            ms(&step.response, step.response.mean_ms),
            ms(hits, hits.p50_ms),
            ms(hits, hits.p95_ms),
            ms(hits, hits.p99_ms),
            ms(misses, misses.p50_ms),
            ms(misses, misses.p95_ms),
            ms(misses, misses.p99_ms),
            percent(step.hit_ratio),
            step.cpu_us_per_answer.map_or(NOTHING.to_owned(), rough),
            count(step.faults),
            format!("{}{spoiled}", step.samples),
        ]);
    }
    table.note(&note(run))
}

/// The cache's age, and the origin of the load of 100 %.
fn note(run: &Run) -> String {
    let fill = run.samples.last().map_or(0.0, |sample| sample.fill_ratio);
    let full = match run.curve_of_per_s {
        Some(per_s) => format!("was asked for: --curve-of {}", rough(per_s)),
        None => "is the sustained one".to_owned(),
    };
    format!(
        "Measured after the run, at fill ratio {} of {}. The load of 100 % {full}. Spoiled samples \
         were repeated.",
        number(fill, 2),
        number(run.plan.goal.fill_ratio, 2)
    )
}

fn figure(curve: &[CurveStep]) -> Figure {
    let line = |name: &str, look: usize, of: fn(&CurveStep) -> (&TimesSummary, f64)| {
        let point = |step: &CurveStep| {
            let (times, ms) = of(step);
            (step.load_per_s, if times.count > 0 { ms } else { f64::NAN })
        };
        Line::straight(name, look, curve.iter().map(point).collect())
    };
    let caption = "Logarithmic. Misses contain the origin's think time.";
    let plot = Plot {
        title: "Response times against load".to_owned(),
        description: "Mean, median, 95th and 99th percentile of hits and of misses at each load."
            .to_owned(),
        size: Size::Whole,
        x: Axis::linear("offered load, requests/s").tight(),
        y: Axis::log("response time, ms"),
        lines: vec![
            line("p99 of misses", 5, |step| (&step.misses, step.misses.p99_ms)),
            line("p95 of misses", 4, |step| (&step.misses, step.misses.p95_ms)),
            line("p50 of misses", 3, |step| (&step.misses, step.misses.p50_ms)),
            line("p99 of hits", 2, |step| (&step.hits, step.hits.p99_ms)),
            line("p95 of hits", 1, |step| (&step.hits, step.hits.p95_ms)),
            line("p50 of hits", 0, |step| (&step.hits, step.hits.p50_ms)),
            line("mean of all", 6, |step| (&step.response, step.response.mean_ms)),
        ],
        bands: Vec::new(),
        rules: Vec::new(),
    };
    Figure::draw("curve", caption, &plot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_says_at_which_age_and_of_which_load() {
        let mut run = Run::default();
        run.plan.goal.fill_ratio = 2.0;
        run.samples.push(humboldt_lab_record::Sample { fill_ratio: 0.4, ..Default::default() });
        let words = note(&run);
        assert!(words.contains("at fill ratio 0.40 of 2.00."), "{words}");
        assert!(words.contains("The load of 100 % is the sustained one."), "{words}");
        run.curve_of_per_s = Some(70.0);
        assert!(note(&run).contains("was asked for: --curve-of 70.0."), "{}", note(&run));
    }

    #[test]
    fn a_curve_has_a_row_and_a_point_for_each_load() {
        let step = |share: f64| {
            let times = TimesSummary { count: 9, p99_ms: 100.0 * share, ..TimesSummary::default() };
            CurveStep { share, load_per_s: 1_000.0 * share, hits: times, ..CurveStep::default() }
        };
        let run = Run { curve: vec![step(0.5), step(1.0)], ..Run::default() };
        let section = section(&run).expect("a curve");
        let rows = &section.tables[0].rows;
        assert_eq!((rows.len(), rows[0][0].as_str(), rows[1][6].as_str()), (2, "50.0 %", "100 ms"));
        assert_eq!(rows[0][7], NOTHING, "there were no misses");
        assert!(section.figures[0].svg.contains("p99 of hits"));
        assert!(super::section(&Run::default()).is_none());
    }
}
