//! Several runs beside one another: shared plots, repeats with confidence intervals, the published
//! results.

mod ages;
mod groups;
mod lead;
mod pairs;
mod published;
mod repeats;
mod sheets;
mod statistics;
mod warnings;

use crate::ReportError;
use crate::csv::field;
use crate::document::{Document, Figure, INDEX, Made, Section};
use crate::folder::write_whole;
use crate::format::{NOTHING, bytes, date_time, milliseconds, number, percent, plain, rough};
use crate::plot::{Axis, LOOKS, Line, Plot, Size};
use crate::provenance;
use crate::run_page::{self, per_s};
use crate::table::Table;
use ages::Ages;
use groups::{Group, common_conditions, groups};
use humboldt_lab_record::{Histogram, Run, Sample};
pub use pairs::{Claim, Pairs, Side, Step};
pub(crate) use published::novm;
pub(crate) use repeats::{REPEAT_COLUMNS, REPEAT_NOTE, repeats_drawn};
pub(crate) use statistics::Repeats;
use std::fs;
use std::path::Path;

/// Longest text of the conditions that all runs have in common, in characters.
const CONDITIONS_CHARS_MAX: usize = 300;

const CLAIMS_CSV: &str = "claims.csv";
const STEPS_CSV: &str = "steps.csv";

/// Writes compare.html, compare.md with its drawings, and compare.csv into a folder: runs on shared
/// plots, sorted by throughput, and repeats with confidence intervals. Other files in the folder
/// stay.
///
/// # Errors
/// If there are no runs, or something cannot be written.
pub fn compare(dir: &Path, runs: &[Run]) -> Result<(), ReportError> {
    if runs.is_empty() {
        return Err(ReportError::NoRuns);
    }
    fs::create_dir_all(dir).map_err(|error| ReportError::write(dir, error))?;
    let document = document("Comparison", runs, true);
    let mut made = document.files("compare");
    made.push(("compare.csv".to_owned(), csv(runs)));
    for (name, text) in made {
        write_whole(&dir.join(name), text.as_bytes())?;
    }
    write_whole(&dir.join("compare.html"), document.html().as_bytes())
}

/// The page of an experiment with the files that belong to it: the same for all of its runs, under
/// a title, with links to their reports, and with claims.csv and steps.csv if they are compared for
/// that.
pub(crate) fn peak_page(
    title: &str,
    runs: &[Run],
    pairs: &Pairs,
    beside_published: bool,
    reports: Section,
) -> (Document, Vec<Made>) {
    let mut document = document(title, runs, beside_published);
    if !pairs.is_empty() {
        document.sections.insert(0, pairs.section(runs));
    }
    document.sections.push(reports);
    let mut made = document.files(INDEX);
    made.push((format!("{INDEX}.csv"), csv(runs)));
    if !pairs.claims.is_empty() {
        made.push((CLAIMS_CSV.to_owned(), pairs.claims_csv(runs)));
    }
    if !pairs.steps.is_empty() {
        made.push((STEPS_CSV.to_owned(), pairs.steps_csv(runs)));
    }
    (document, made)
}

/// The tables that the page of an experiment may have beside it.
pub(crate) fn index_names() -> [&'static str; 2] {
    [CLAIMS_CSV, STEPS_CSV]
}

/// `beside_published`: whether the rows have counterparts among the schemes that the book compares.
pub(crate) fn document(title: &str, runs: &[Run], beside_published: bool) -> Document {
    let groups = groups(runs);
    let mut result = Section {
        short: true,
        tables: vec![lead::table(&groups), throughput_table(&groups), times_table(&groups)],
        ..Section::new("Sorted by throughput")
    };
    if beside_published {
        result.tables.extend(published::ratios(&groups));
    }
    let plots = Section {
        text: shown(&groups),
        figures: figures(&groups),
        ..Section::new("Beside one another")
    };
    let single = Section {
        short: true,
        tables: vec![runs_table(&groups), warnings::table(&groups)],
        ..Section::new("Every run")
    };
    let origin = provenance::of_many(runs.iter().map(|run| &run.manifest));
    Document {
        title: title.to_owned(),
        subtitle: subtitle(runs, &groups),
        lead: lead::lead(&groups, &warnings::not_comparable(runs)),
        warnings: warnings::warnings(runs, &groups),
        sections: vec![result, plots, single, origin, published::section()],
    }
}

fn subtitle(runs: &[Run], groups: &[Group<'_>]) -> String {
    let count = format!("{} runs of {} settings", runs.len(), groups.len());
    let common = common_conditions(runs).join(", ");
    if common.is_empty() {
        count
    } else {
        format!("{count} · {}", plain(&common, CONDITIONS_CHARS_MAX))
    }
}

fn throughput_table(groups: &[Group<'_>]) -> Table {
    let own = [
        "#sustained/s",
        "#mean response",
        "#hits/s",
        "#saved",
        "#hit ratio",
        "#byte hit ratio",
        "fill",
        "#errors",
        "",
    ];
    let columns = [&["subject", "#runs", "#answers/s"][..], &REPEAT_COLUMNS, &own].concat();
    let mut table = Table::new("Throughput in the last quarter", &columns);
    for group in groups {
        let throughput = group.throughput;
        let faults: u64 = group.runs.iter().map(|run| run.summary.faults).sum();
        let first = [group.name.clone(), throughput.count.to_string(), rough(throughput.mean)];
        let own = [
            group
                .mean_of(|run| run.summary.sustained_per_s.unwrap_or(f64::NAN))
                .map_or(NOTHING.to_owned(), rough),
            group
                .mean_of(|run| run.summary.response.mean_ms)
                .map_or(NOTHING.to_owned(), milliseconds),
            group
                .mean_of(|run| per_s(run, run.last_quarter.hits.answers))
                .map_or(NOTHING.to_owned(), rough),
            group
                .mean_of(|run| per_s(run, run.last_quarter.hits.body_bytes))
                .map_or(NOTHING.to_owned(), |saved| format!("{}/s", bytes(saved))),
            group.mean_of(|run| run.summary.hit_ratio).map_or(NOTHING.to_owned(), percent),
            group.mean_of(|run| run.summary.byte_hit_ratio).map_or(NOTHING.to_owned(), percent),
            Ages::common(group.runs.iter().copied()).map_or(NOTHING.to_owned(), Ages::words),
            faults.to_string(),
            group.marks(),
        ];
        table.row(first.into_iter().chain(throughput.cells()).chain(own));
    }
    table.note(&format!(
        "{REPEAT_NOTE} Saved: bytes that hits did not cost the servers. Fill: the ages that all repeats have in common. \
         Rows of different ages say nothing about each other.",
    ))
    .without_empty_columns()
}

fn times_table(groups: &[Group<'_>]) -> Table {
    let columns = [
        "subject",
        "#mean response",
        "#p95, hits",
        "#p95, misses",
        "#p95 added, hits",
        "#p95 added, misses",
        "#CPU µs/answer",
        "#memory",
        "#stored",
        "#written/stored",
        "#flatness",
    ];
    let mut table = Table::new("Response times and resources in the last quarter", &columns);
    for group in groups {
        let ms = |of: fn(&Run) -> f64| group.mean_of(of).map_or(NOTHING.to_owned(), milliseconds);
        let resident =
            |run: &Run| run.summary.resident_bytes_max.map_or(f64::NAN, |bytes| bytes as f64);
        let cpu = |run: &Run| run.summary.cpu_us_per_answer.unwrap_or(f64::NAN);
        table.row([
            group.name.clone(),
            ms(|run| run.summary.response.mean_ms),
            ms(|run| run.summary.hits.p95_ms),
            ms(|run| run.summary.misses.p95_ms),
            ms(|run| run.summary.hits_added.p95_ms),
            ms(|run| run.summary.misses_added.p95_ms),
            group.mean_of(cpu).map_or(NOTHING.to_owned(), rough),
            group.mean_of(resident).map_or(NOTHING.to_owned(), bytes),
            known(group.mean_of(|run| run.summary.stored_ratio.unwrap_or(f64::NAN))),
            known(group.mean_of(|run| run.summary.written_per_stored.unwrap_or(f64::NAN))),
            group.flatness(),
        ]);
    }
    table.note(
        "Means over the repeats. Stored: what the stores held at the end, ÷ cache size. Written: \
         bytes that the disks wrote for each byte stored. Flatness: slope of answers/s from fill \
         0.5 to 2.0, in per cent of the mean per unit of fill, of the repeats with a result; \
         with the 95 % interval of their mean (Student's t), if there are several.",
    )
}

/// A ratio, or the word for none.
fn known(ratio: Option<f64>) -> String {
    ratio.map_or("not known".to_owned(), |ratio| number(ratio, 2))
}

fn runs_table(groups: &[Group<'_>]) -> Table {
    let columns = [
        "#order",
        "subject",
        "started",
        "#seed",
        "#answers/s",
        "#mean response",
        "#hit ratio",
        "#fill",
        "#steal",
        "outcome",
    ];
    let mut table = Table::new("Every run, in the order in which they were made", &columns);
    let mut all: Vec<(&Group<'_>, &Run)> =
        groups.iter().flat_map(|group| group.runs.iter().map(move |run| (group, *run))).collect();
    all.sort_by_key(|(_, run)| run.started_s);
    for (index, (group, run)) in all.into_iter().enumerate() {
        table.row([
            (index + 1).to_string(),
            group.name.clone(),
            date_time(run.started_s),
            run.plan.seed.to_string(),
            rough(run.summary.throughput_per_s),
            milliseconds(run.summary.response.mean_ms),
            percent(run.summary.hit_ratio),
            number(run.samples.last().map_or(0.0, |sample| sample.fill_ratio), 2),
            provenance::steal_words(run),
            groups::outcome(run),
        ]);
    }
    table.note(
        "Figures of the last quarter. Steal: the share of the run's processors that the host of the virtual machine took.",
    )
}

fn shown(groups: &[Group<'_>]) -> String {
    let mut text = String::new();
    if groups.iter().any(|group| group.runs.len() > 1) {
        text.push_str(&repeats_drawn("throughput"));
    }
    if groups.len() > LOOKS {
        text.push_str(&format!(
            "The settings are divided by family or scheme, with the same axes in every drawing. The distributions show \
             the {LOOKS} fastest settings only."
        ));
    }
    text
}

/// The runs of a setting, the median first.
fn median_first<'a>(group: &Group<'a>) -> impl Iterator<Item = &'a Run> {
    let median = group.median();
    let others = group.runs.clone().into_iter().filter(move |run| !std::ptr::eq(*run, median));
    std::iter::once(median).chain(others)
}

fn figures(groups: &[Group<'_>]) -> Vec<Figure> {
    let distribution = |id, title, of: fn(&Run) -> &Histogram| {
        let line = |(look, group): (usize, &Group<'_>)| {
            Line::straight(&group.name, look, run_page::cumulative(of(group.median())))
        };
        let lines = groups.iter().take(LOOKS).enumerate().map(line).collect();
        let y = Axis::linear("% of answers").at_least(0.0, 100.0);
        let caption = "The share of the answers that took no longer than a time.";
        overlay(id, title, Axis::log("time, ms"), y, lines, caption)
    };
    let mut figures = over_fill(
        groups,
        "trace",
        "Throughput against fill ratio",
        &Axis::linear("answers/s"),
        Sample::throughput_per_s,
        "At fill ratio 1 a cache that stored everything is full and begins to replace. Fill counts the bytes that could \
         be stored: a cache that stores less is not full there.",
    );
    figures.extend(over_fill(
        groups,
        "response",
        "Mean response time against fill ratio",
        &Axis::linear("mean response time, ms"),
        run_page::mean_response_ms,
        "Of all answers, with the servers' think time.",
    ));
    figures.push(distribution("hitscdf", "Response times of hits, last quarter", |run| {
        &run.last_quarter.hits.response
    }));
    figures.push(distribution("missescdf", "Response times of misses, last quarter", |run| {
        &run.last_quarter.misses.response
    }));
    figures.extend(over_fill(
        groups,
        "hitratio",
        "Hit ratio against fill ratio",
        &Axis::linear("% of plain answers").at_least(0.0, 60.0),
        |sample| 100.0 * sample.hit_ratio(),
        "Hits in per cent of answers to plain GETs.",
    ));
    figures
}

/// One value of all runs over the fill ratio: a drawing for each sheet, all with the same axes.
fn over_fill(
    groups: &[Group<'_>],
    id: &str,
    title: &str,
    y: &Axis,
    value: fn(&Sample) -> f64,
    caption: &str,
) -> Vec<Figure> {
    let all = groups.iter().flat_map(|group| &group.runs);
    let points: Vec<(f64, f64)> = all.flat_map(|run| run_page::over_fill(run, value)).collect();
    let x = Axis::linear("fill ratio (bytes filled ÷ cache size)").tight();
    let x = x.reaching(points.iter().map(|point| point.0));
    let y = y.clone().reaching(points.iter().map(|point| point.1));
    let draw = |(number, sheet): (usize, sheets::Sheet<'_>)| {
        let lines = sheet.groups.iter().enumerate().flat_map(|(look, group)| {
            let repeats = median_first(group).map(|run| run_page::over_fill(run, value));
            Line::repeats(&group.name, look, repeats)
        });
        let title = match sheet.name.as_str() {
            "" => title.to_owned(),
            name => format!("{title}: {name}"),
        };
        overlay(&format!("{id}{number}"), &title, x.clone(), y.clone(), lines.collect(), caption)
    };
    sheets::sheets(groups).into_iter().enumerate().map(draw).collect()
}

/// Several lines in one drawing, with a word about it.
pub(crate) fn overlay(
    id: &str,
    title: &str,
    x: Axis,
    y: Axis,
    lines: Vec<Line>,
    caption: &str,
) -> Figure {
    let plot = Plot {
        title: title.to_owned(),
        description: caption.to_owned(),
        size: Size::Whole,
        x,
        y,
        lines,
        bands: Vec::new(),
        rules: Vec::new(),
    };
    Figure::draw(id, caption, &plot)
}

/// One line per run, with all figures of its summary.
fn csv(runs: &[Run]) -> String {
    let mut out = String::from(
        "subject,variant,workload,controller,time_scale,cache_bytes,seed,started_s,outcome,from_fill_ratio,to_fill_ratio,\
         throughput_per_s,sustained_per_s,response_mean_ms,response_p95_ms,hits_p50_ms,hits_p95_ms,hits_p99_ms,\
         misses_p50_ms,misses_p95_ms,misses_p99_ms,hits_added_p95_ms,misses_added_p95_ms,hit_ratio,byte_hit_ratio,\
         offered_hit_ratio,ideal_hit_ratio,faults,wrong_content,cpu_us_per_answer,resident_bytes_max,lab_limited_share,\
         limit_reached,hits_per_s,saved_bytes_per_s,steal_mean,steal_max,common_from_fill_ratio,common_to_fill_ratio,\
         common_per_s,common_hit_ratio,common_limit_reached,flatness,flatness_low,flatness_high,stored_ratio,\
         written_per_stored,written_per_offered,resident_bytes_per_object\n",
    );
    let common = lead::common_ages(&groups(runs));
    for run in runs {
        let (steal_mean, steal_max) = provenance::steal(run).unwrap_or((f64::NAN, f64::NAN));
        let ages = common.filter(|_| pairs::has_result(run));
        let at_common = ages.and_then(|ages| ages.rates(run)).unwrap_or((f64::NAN, f64::NAN));
        let limit_reached =
            ages.filter(|_| at_common.0 > 0.0).and_then(|ages| ages.limit_reached(run));
        let (plan, summary) = (&run.plan, &run.summary);
        let texts = [&plan.subject, &plan.variant, &plan.workload, &plan.controller]
            .map(|text| field(text));
        let whole = [plan.cache_bytes, plan.seed, run.started_s].map(|value| value.to_string());
        let measured = [
            summary.from_fill_ratio,
            summary.to_fill_ratio,
            summary.throughput_per_s,
            summary.sustained_per_s.unwrap_or(f64::NAN),
            summary.response.mean_ms,
            summary.response.p95_ms,
            summary.hits.p50_ms,
            summary.hits.p95_ms,
            summary.hits.p99_ms,
            summary.misses.p50_ms,
            summary.misses.p95_ms,
            summary.misses.p99_ms,
            summary.hits_added.p95_ms,
            summary.misses_added.p95_ms,
            summary.hit_ratio,
            summary.byte_hit_ratio,
            summary.offered_hit_ratio,
            plan.ideal_hit_ratio,
            summary.faults as f64,
            summary.wrong_content as f64,
            summary.cpu_us_per_answer.unwrap_or(f64::NAN),
            summary.resident_bytes_max.map_or(f64::NAN, |bytes| bytes as f64),
            summary.lab_limited_share,
            summary.limit_reached.map_or(f64::NAN, |is_reached| f64::from(u8::from(is_reached))),
            per_s(run, run.last_quarter.hits.answers),
            per_s(run, run.last_quarter.hits.body_bytes),
            steal_mean,
            steal_max,
            ages.map_or(f64::NAN, |ages| ages.from),
            ages.map_or(f64::NAN, |ages| ages.to),
            at_common.0,
            at_common.1,
            limit_reached.map_or(f64::NAN, |is_reached| f64::from(u8::from(is_reached))),
            summary.flatness.map_or(f64::NAN, |flatness| flatness.slope),
            summary.flatness.map_or(f64::NAN, |flatness| flatness.low),
            summary.flatness.map_or(f64::NAN, |flatness| flatness.high),
            summary.stored_ratio.unwrap_or(f64::NAN),
            summary.written_per_stored.unwrap_or(f64::NAN),
            summary.written_per_offered.unwrap_or(f64::NAN),
            summary.resident_bytes_per_object.unwrap_or(f64::NAN),
        ];
        let measured =
            measured.map(|value| if value.is_finite() { value.to_string() } else { String::new() });
        out.push_str(&format!(
            "{},{},{},{},{}\n",
            texts.join(","),
            plan.time_scale,
            whole.join(","),
            field(&groups::outcome(run)),
            measured.join(",")
        ));
    }
    out
}

#[cfg(test)]
mod tests;
