//! Several runs beside one another: shared plots, repeats with confidence intervals, the published
//! results.

mod ages;
mod groups;
mod pairs;
mod published;
mod statistics;

use crate::ReportError;
use crate::csv::field;
use crate::document::{Document, Figure, Section, Warning};
use crate::folder::write_whole;
use crate::format::{NOTHING, bytes, date_time, milliseconds, number, percent, plain, rough};
use crate::plot::{Axis, LOOKS, Line, Plot, Size};
use crate::run_page;
use crate::table::Table;
use ages::Ages;
use groups::{Group, common_conditions, groups};
use humboldt_lab_record::{Histogram, Run, Sample};
pub use pairs::{Claim, Pairs, Side, Step};
pub(crate) use published::novm;
pub(crate) use statistics::Repeats;
use std::fs;
use std::path::Path;

/// Longest text of the conditions that all runs have in common, in characters.
const CONDITIONS_CHARS_MAX: usize = 300;

/// As many runs are named in a warning that they share.
const NAMED_MAX: usize = 12;

/// Writes compare.html, compare.md with its drawings, and compare.csv into a folder: runs on shared
/// plots, sorted by throughput, and repeats with confidence intervals. Other files in the folder
/// stay.
///
/// # Errors
/// If there are no runs, or something cannot be written.
pub fn compare(dir: &Path, runs: &[Run]) -> Result<(), ReportError> {
    let document = document("Comparison", runs);
    write_comparison(dir, "compare", &document, runs)?;
    write_html(dir, "compare", &document)
}

/// Writes index.html, index.md with its drawings, and index.csv into the folder of an experiment:
/// the same for all of its runs, under a title, with links to their reports, and with claims.csv
/// and steps.csv if they are compared for that. `folders` are names of folders below `dir`, one for
/// each run. Without them the pages are for a repository, which keeps no HTML: index.html is left
/// out. Other files in the folder stay.
///
/// # Errors
/// If there are no runs, or something cannot be written.
pub fn matrix_page(
    dir: &Path,
    title: &str,
    runs: &[Run],
    folders: Option<&[String]>,
    pairs: &Pairs,
) -> Result<(), ReportError> {
    let mut document = document(title, runs);
    if !pairs.is_empty() {
        document.sections.insert(0, pairs.section(runs));
    }
    if let Some(folders) = folders {
        document.sections.push(Section::of_reports("The report of each run", folders));
    }
    write_comparison(dir, "index", &document, runs)?;
    if folders.is_some() {
        write_html(dir, "index", &document)?;
    }
    if !pairs.claims.is_empty() {
        write_whole(&dir.join("claims.csv"), pairs.claims_csv(runs).as_bytes())?;
    }
    if !pairs.steps.is_empty() {
        write_whole(&dir.join("steps.csv"), pairs.steps_csv(runs).as_bytes())?;
    }
    Ok(())
}

fn write_comparison(
    dir: &Path,
    name: &str,
    document: &Document,
    runs: &[Run],
) -> Result<(), ReportError> {
    if runs.is_empty() {
        return Err(ReportError::NoRuns);
    }
    fs::create_dir_all(dir).map_err(|error| ReportError::write(dir, error))?;
    write_whole(&dir.join(format!("{name}.csv")), csv(runs).as_bytes())?;
    write_markdown(dir, name, document)
}

/// A page in Markdown, with its drawings.
pub(crate) fn write_markdown(
    dir: &Path,
    name: &str,
    document: &Document,
) -> Result<(), ReportError> {
    for (file, drawing) in document.drawings(name) {
        write_whole(&dir.join(file), drawing.as_bytes())?;
    }
    write_whole(&dir.join(format!("{name}.md")), document.illustrated_markdown(name).as_bytes())
}

/// The same page in HTML.
pub(crate) fn write_html(dir: &Path, name: &str, document: &Document) -> Result<(), ReportError> {
    write_whole(&dir.join(format!("{name}.html")), document.html().as_bytes())
}

pub(crate) fn document(title: &str, runs: &[Run]) -> Document {
    let groups = groups(runs);
    let ours: Vec<(String, f64)> = best_of_subjects(&groups);
    let mut result = Section {
        short: true,
        tables: vec![throughput_table(&groups), times_table(&groups)],
        ..Section::new("Sorted by throughput")
    };
    result.tables.extend(published::ratios(&ours));
    let plots = Section {
        text: shown(&groups),
        figures: figures(&groups),
        ..Section::new("Beside one another")
    };
    let single = Section { tables: vec![runs_table(&groups)], ..Section::new("Every run") };
    Document {
        title: title.to_owned(),
        subtitle: subtitle(runs, &groups),
        lead: lead(runs, &groups),
        warnings: warnings(runs, &groups),
        sections: vec![result, plots, single, published::section()],
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

fn best_of_subjects(groups: &[Group<'_>]) -> Vec<(String, f64)> {
    let mut best: Vec<(String, f64)> = Vec::new();
    // Sorted by throughput, so the first of a subject is its best.
    for group in groups {
        let subject = &group.first().plan.subject;
        if !best.iter().any(|(name, _)| name == subject) {
            best.push((subject.clone(), group.throughput.mean));
        }
    }
    best
}

/// The extremes, if nothing speaks against comparing them: they have the same ages, and no grave
/// warning.
fn lead(runs: &[Run], groups: &[Group<'_>]) -> String {
    let objection = warnings(runs, groups).into_iter().find(|warning| warning.grave);
    if let Some(objection) = objection {
        return format!("No comparison in a sentence: {}.", objection.heading);
    }
    let (Some(first), Some(last)) = (groups.first(), groups.last()) else { return String::new() };
    let fastest = format!("{} answers {} requests/s", first.name, rough(first.throughput.mean));
    if groups.len() == 1 || last.throughput.mean <= 0.0 {
        return format!("{fastest}.");
    }
    let ratio = number(first.throughput.mean / last.throughput.mean, 2);
    format!("{fastest}, {ratio} times as many as {} ({}).", last.name, rough(last.throughput.mean))
}

fn warnings(runs: &[Run], groups: &[Group<'_>]) -> Vec<Warning> {
    let mut found = Vec::new();
    let mut differs = |what: &str, of: fn(&Run) -> String| {
        let mut values: Vec<String> = runs.iter().map(of).collect();
        values.sort();
        values.dedup();
        if values.len() > 1 {
            found.push(Warning {
                grave: true,
                heading: format!("Not comparable: the {what} differs"),
                text: format!("The runs have {}.", values.join(", ")),
            });
        }
    };
    differs("workload", |run| run.plan.workload.clone());
    differs("time scale", |run| run.plan.time_scale.to_string());
    differs("cache size", |run| bytes(run.plan.cache_bytes as f64));
    differs("controller", |run| run.plan.controller.clone());
    found.extend(ages_differ(groups));
    found.extend(warnings_of_runs(groups));
    for group in groups {
        if group.throughput.is_unsteady() {
            found.push(Warning {
                grave: false,
                heading: format!("{}: repeats differ", group.name),
                text: format!(
                    "The slowest and the fastest of {} repeats differ by {} of the mean; more repeats are needed.",
                    group.throughput.count,
                    percent(group.throughput.spread.unwrap_or_default())
                ),
            });
        }
    }
    found.sort_by_key(|warning| !warning.grave);
    found
}

/// Said if the last quarters of two settings do not overlap.
fn ages_differ(groups: &[Group<'_>]) -> Option<Warning> {
    let of_groups = groups.iter().filter_map(|group| {
        Ages::common(group.runs.iter().copied()).map(|ages| (ages, group.name.as_str()))
    });
    let (youngest, young) = of_groups.clone().min_by(|a, b| a.0.to.total_cmp(&b.0.to))?;
    let (oldest, old) = of_groups.max_by(|a, b| a.0.from.total_cmp(&b.0.from))?;
    (oldest.from > youngest.to).then(|| Warning {
        grave: true,
        heading: "Not comparable: the caches have different ages".to_owned(),
        text: format!(
            "{young} was measured at fill ratio {}, {old} at {}. A cache that is not full yet is faster; the plots show \
             which were faster at the same fill ratio.",
            youngest.words(),
            oldest.words()
        ),
    })
}

/// Grave warnings of single runs. A warning that several have in common stands once.
fn warnings_of_runs(groups: &[Group<'_>]) -> Vec<Warning> {
    let mut found: Vec<(Warning, Vec<&str>)> = Vec::new();
    for group in groups {
        for warning in group
            .runs
            .iter()
            .flat_map(|run| run_page::warnings(run))
            .filter(|warning| warning.grave)
        {
            let known = found.iter_mut().find(|(other, _)| other.heading == warning.heading);
            match known {
                Some((_, names)) => names.push(&group.name),
                None => found.push((warning, vec![&group.name])),
            }
        }
    }
    let together = |(warning, mut names): (Warning, Vec<&str>)| {
        if let [name] = names[..] {
            return Warning { heading: format!("{name}: {}", warning.heading), ..warning };
        }
        names.dedup();
        let more = names.len().saturating_sub(NAMED_MAX);
        names.truncate(NAMED_MAX);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        Warning {
            text: format!("{}{more}. The report of each says more.", names.join("; ")),
            ..warning
        }
    };
    found.into_iter().map(together).collect()
}

fn throughput_table(groups: &[Group<'_>]) -> Table {
    let columns = [
        "subject",
        "#runs",
        "#answers/s",
        "#± 95 %",
        "#deviation",
        "#spread",
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
    let mut table = Table::new("Throughput in the last quarter", &columns);
    for group in groups {
        let throughput = group.throughput;
        let unsteady = if throughput.is_unsteady() { " (!)" } else { "" };
        let faults: u64 = group.runs.iter().map(|run| run.summary.faults).sum();
        table.row([
            group.name.clone(),
            throughput.count.to_string(),
            rough(throughput.mean),
            throughput.interval.map_or(NOTHING.to_owned(), rough),
            throughput.deviation.map_or(NOTHING.to_owned(), rough),
            throughput
                .spread
                .map_or(NOTHING.to_owned(), |spread| format!("{}{unsteady}", percent(spread))),
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
        ]);
    }
    table.note(
        "± 95 %: half the width of the confidence interval of the mean (Student's t). Spread: slowest to fastest repeat, \
         in per cent of the mean; (!) marks more than 5 %. Saved: bytes that hits did not cost the servers. Fill: the ages \
         that all repeats have in common. Rows of different ages say nothing about each other.",
    )
}

/// A count of the last quarter, per second.
fn per_s(run: &Run, count: u64) -> f64 {
    count as f64 * 1e6 / run.last_quarter.period_us as f64
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
            run_page::flatness_of(group.runs.iter().map(|run| run.summary.flatness)),
        ]);
    }
    table.note(
        "Means over the repeats. Stored: what the stores held at the end, ÷ cache size. Written: \
         bytes that the disks wrote for each byte stored. Flatness: slope of answers/s from fill \
         0.5 to 2.0, in per cent of the mean per unit of fill; of one run with its 95 % interval, \
         of repeats with their range.",
    )
}

/// A ratio, or the word for none.
fn known(ratio: Option<f64>) -> String {
    ratio.map_or("not known".to_owned(), |ratio| number(ratio, 2))
}

fn runs_table(groups: &[Group<'_>]) -> Table {
    let columns = [
        "subject",
        "started",
        "#seed",
        "#answers/s",
        "#mean response",
        "#hit ratio",
        "#fill",
        "outcome",
    ];
    let mut table = Table::new("Every run, sorted by throughput", &columns);
    for group in groups {
        for run in &group.runs {
            table.row([
                group.name.clone(),
                date_time(run.started_s),
                run.plan.seed.to_string(),
                rough(run.summary.throughput_per_s),
                milliseconds(run.summary.response.mean_ms),
                percent(run.summary.hit_ratio),
                number(run.samples.last().map_or(0.0, |sample| sample.fill_ratio), 2),
                groups::outcome(run),
            ]);
        }
    }
    table
}

fn shown(groups: &[Group<'_>]) -> String {
    let mut text = String::new();
    if groups.iter().any(|group| group.runs.len() > 1) {
        text.push_str("Of repeats, the one with the median throughput is drawn. ");
    }
    if groups.len() > LOOKS {
        text.push_str(&format!(
            "{LOOKS} are drawn at a time, the fastest first, so that the lines can be told apart; but for throughput, only these."
        ));
    }
    text
}

fn figures(groups: &[Group<'_>]) -> Vec<Figure> {
    let drawn: Vec<(&str, &Run)> =
        groups.iter().take(LOOKS).map(|group| (group.name.as_str(), group.median())).collect();
    let over_fill = |id, title, y, value: fn(&Sample) -> f64, caption| {
        let line = |(look, (name, run)): (usize, &(&str, &Run))| {
            Line::straight(name, look, run_page::over_fill(run, value))
        };
        let lines = drawn.iter().enumerate().map(line).collect();
        let x = Axis::linear("fill ratio (bytes filled ÷ cache size)").tight();
        overlay(id, title, x, y, lines, caption)
    };
    let distribution = |id, title, of: fn(&Run) -> &Histogram| {
        let line = |(look, (name, run)): (usize, &(&str, &Run))| {
            Line::straight(name, look, run_page::cumulative(of(run)))
        };
        let lines = drawn.iter().enumerate().map(line).collect();
        let y = Axis::linear("% of answers").at_least(0.0, 100.0);
        overlay(
            id,
            title,
            Axis::log("time, ms"),
            y,
            lines,
            "So many per cent of the answers took at most so long.",
        )
    };
    let mut figures = traces(groups);
    figures.extend([
        over_fill(
            "response",
            "Mean response time against fill ratio",
            Axis::linear("mean response time, ms"),
            run_page::mean_response_ms,
            "Of all answers, the origin's think time included.",
        ),
        distribution("hitscdf", "Response times of hits, last quarter", |run| {
            &run.last_quarter.hits.response
        }),
        distribution("missescdf", "Response times of misses, last quarter", |run| {
            &run.last_quarter.misses.response
        }),
        over_fill(
            "hitratio",
            "Hit ratio against fill ratio",
            Axis::linear("% of plain answers").at_least(0.0, 60.0),
            |sample| 100.0 * sample.hit_ratio(),
            "Hits in per cent of answers to plain GETs.",
        ),
    ]);
    figures
}

/// Throughput over fill of all, a few at a time.
fn traces(groups: &[Group<'_>]) -> Vec<Figure> {
    let trace = |(number, some): (usize, &[Group<'_>])| {
        let line = |(look, group): (usize, &Group<'_>)| {
            let points = run_page::over_fill(group.median(), Sample::throughput_per_s);
            Line::straight(&group.name, look, points)
        };
        let title = match number {
            0 => "Throughput against fill ratio".to_owned(),
            _ => format!("Throughput against fill ratio, {} and on", number * LOOKS + 1),
        };
        let x = Axis::linear("fill ratio (bytes filled ÷ cache size)").tight();
        let caption = "At fill ratio 1 a cache that stored everything is full and begins to replace. Fill counts the bytes \
                       that could be stored: one that stores less is not full there.";
        let lines = some.iter().enumerate().map(line).collect();
        overlay(&format!("trace{number}"), &title, x, Axis::linear("answers/s"), lines, caption)
    };
    groups.chunks(LOOKS).enumerate().map(trace).collect()
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
         limit_reached,hits_per_s,saved_bytes_per_s,flatness,flatness_low,flatness_high,stored_ratio,\
         written_per_stored,written_per_offered,resident_bytes_per_object\n",
    );
    for run in runs {
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
