//! Whether a published page is what the figures beside it say: everything is made again, and
//! compared cell by cell.

use crate::compare::index_names;
use crate::csv::{self, rows};
use crate::document::{INDEX, Made};
use crate::experiment::{EXPERIMENT_JSON, Experiment, Results};
use crate::{ReportError, bang};
use humboldt_lab_record::{BangRun, BangSecond, Run};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

/// As many differences of one file are listed.
const LISTED_MAX: usize = 5;

/// As many characters of a cell are shown.
const CHARS_MAX: usize = 80;

/// As many seconds of a bang are kept.
const BANG_SECONDS_MAX: u64 = 100_000;

/// Columns of samples.csv that a run cannot have once it was stored: percentiles over all classes,
/// of which it keeps those of each class.
const NOT_KEPT: [&str; 3] = ["response_p50_ms", "response_p95_ms", "response_p99_ms"];

/// A place at which a published file differs from what the figures say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The file, below the folder.
    pub file: String,
    /// Its line, from 1; 0 for the whole file.
    pub row: usize,
    /// The name of the column, or its number from 1 where it has no name.
    pub column: String,
    /// The published text.
    pub published: String,
    /// What the figures say.
    pub recomputed: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, row, column, published, recomputed } = self;
        if *row == 0 {
            return write!(f, "{file}: {published}; {recomputed}");
        }
        write!(
            f,
            "{file}, row {row}, column {column}: published is `{}`, the figures say `{}`",
            short(published),
            short(recomputed)
        )
    }
}

fn short(text: &str) -> String {
    crate::format::plain(text, CHARS_MAX)
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Recomputed {
    /// The experiment.
    pub experiment: Experiment,
    /// Its results, as they were read.
    pub results: Results,
    /// The number of files that were compared.
    pub files: usize,
    /// All differences, at most five of one file.
    pub differences: Vec<Difference>,
}

/// Makes everything in a published folder again from the runs in it, and compares. The figures of
/// each run's summary.json are taken as they are: the caller checks them by its samples.
///
/// # Errors
/// If the folder has no experiment.json, or something cannot be read.
pub fn recompute(dir: &Path) -> Result<Recomputed, ReportError> {
    let experiment = Experiment::read(dir)?;
    let results = experiment.results(dir)?;
    let made = experiment.made(&results)?;
    let mut files = made.len();
    let mut differences = Vec::new();
    for (name, text) in &made {
        differences.extend(compared(name, &read(dir, name)?, text));
    }
    differences.extend(left_over(dir, &made)?);
    match &results {
        Results::Peaks(runs) => {
            for (folder, run) in experiment.folders.iter().zip(runs) {
                let name = format!("{folder}/samples.csv");
                differences.extend(samples(&name, &read(dir, &name)?, run));
                files += 1;
            }
        }
        Results::Bangs(bangs) => {
            for (folder, bang) in experiment.folders.iter().zip(bangs) {
                let name = format!("{folder}/seconds.csv");
                differences.extend(compared(&name, &read(dir, &name)?, &bang::seconds(bang)));
                differences.extend(sums(&format!("{folder}/summary.json"), bang));
                files += 1;
            }
        }
    }
    Ok(Recomputed { experiment, results, files, differences })
}

/// A file's text; nothing if there is no such file, which differs from any text.
fn read(dir: &Path, name: &str) -> Result<String, ReportError> {
    let path = dir.join(name);
    match fs::read_to_string(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(ReportError::read(path, error))
        }
        text => Ok(text.unwrap_or_default()),
    }
}

/// Drawings and tables in the folder that no figures say anything about.
fn left_over(dir: &Path, made: &[Made]) -> Result<Vec<Difference>, ReportError> {
    let made: BTreeSet<&str> = made.iter().map(|(name, _)| name.as_str()).collect();
    let entries = fs::read_dir(dir).map_err(|error| ReportError::read(dir, error))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_of_page = |name: &String| {
        name.starts_with(INDEX) && name.ends_with(".svg") || index_names().contains(&name.as_str())
    };
    let mut left: Vec<String> =
        names.filter(is_of_page).filter(|name| !made.contains(name.as_str())).collect();
    left.sort();
    Ok(left
        .into_iter()
        .map(|file| Difference {
            file,
            row: 0,
            column: String::new(),
            published: "is of an earlier page".to_owned(),
            recomputed: format!("{EXPERIMENT_JSON} has nothing for it: remove it"),
        })
        .collect())
}

/// The differences of two texts, line by line: of CSV and of tables in Markdown cell by cell.
fn compared(file: &str, published: &str, made: &str) -> Vec<Difference> {
    if published == made {
        return Vec::new();
    }
    if published.is_empty() {
        return vec![Difference {
            file: file.to_owned(),
            row: 0,
            column: String::new(),
            published: "is not there".to_owned(),
            recomputed: "publish the experiment again".to_owned(),
        }];
    }
    if file.ends_with(".csv") {
        return cells(file, &rows(published), &rows(made), &[]);
    }
    let split = |text: &str| -> Vec<Vec<String>> { text.lines().map(markdown_cells).collect() };
    cells(file, &split(published), &split(made), &[])
}

/// The cells of a line of a table in Markdown; any other line is one cell.
fn markdown_cells(line: &str) -> Vec<String> {
    match line.strip_prefix("| ").and_then(|line| line.strip_suffix(" |")) {
        Some(row) => row.split(" | ").map(ToOwned::to_owned).collect(),
        None => vec![line.to_owned()],
    }
}

/// The differences of two tables, without these columns. The first line of CSV names the columns.
fn cells(
    file: &str,
    published: &[Vec<String>],
    made: &[Vec<String>],
    without: &[&str],
) -> Vec<Difference> {
    let header = published.first().filter(|_| file.ends_with(".csv"));
    let name = |place: usize| {
        let name = header.and_then(|header| header.get(place));
        name.cloned().unwrap_or_else(|| (place + 1).to_string())
    };
    let none = Vec::new();
    let lines = (0..published.len().max(made.len())).flat_map(|line| {
        let (old, new) = (published.get(line).unwrap_or(&none), made.get(line).unwrap_or(&none));
        (0..old.len().max(new.len())).filter_map(move |place| {
            let cell = |of: &Vec<String>| of.get(place).cloned().unwrap_or_default();
            let (old, new) = (cell(old), cell(new));
            (old != new).then_some((line, place, old, new))
        })
    });
    lines
        .map(|(line, place, old, new)| Difference {
            file: file.to_owned(),
            row: line + 1,
            column: name(place),
            published: old,
            recomputed: new,
        })
        .filter(|difference| !without.contains(&difference.column.as_str()))
        .take(LISTED_MAX)
        .collect()
}

/// The differences of a samples.csv from the samples of its run.
fn samples(file: &str, published: &str, run: &Run) -> Vec<Difference> {
    if published.is_empty() {
        return compared(file, published, "samples");
    }
    let lines = run.samples.iter().map(csv::sample_line);
    let made: String = std::iter::once(csv::samples_header()).chain(lines).collect();
    let published = rows(published);
    cells(file, &published, &with_columns(&published, &rows(&made)), &NOT_KEPT)
}

/// `made` with the columns of `published`, which an earlier laboratory may have written: it knew
/// fewer. A column that is not known any more is empty.
fn with_columns(published: &[Vec<String>], made: &[Vec<String>]) -> Vec<Vec<String>> {
    let (Some(wanted), Some(known)) = (published.first(), made.first()) else {
        return made.to_vec();
    };
    let places: Vec<Option<usize>> =
        wanted.iter().map(|name| known.iter().position(|other| other == name)).collect();
    let cell = |row: &Vec<String>, place: &Option<usize>| {
        place.and_then(|place| row.get(place)).cloned().unwrap_or_default()
    };
    made.iter().map(|row| places.iter().map(|place| cell(row, place)).collect()).collect()
}

/// The totals of a bang that are not what its seconds and its distribution say. The part of a
/// second at its end is in the totals only, so they may be more.
fn sums(file: &str, bang: &BangRun) -> Vec<Difference> {
    let sum = |of: fn(&BangSecond) -> u64| bang.seconds.iter().map(of).sum::<u64>();
    let whole_seconds = bang.elapsed_us / 1_000_000;
    let faults = bang.faults.values().sum();
    let most = [
        ("answers", bang.answers, sum(|second| second.answers)),
        ("body_bytes", bang.body_bytes, sum(|second| second.body_bytes)),
        ("faults", faults, sum(|second| second.faults)),
    ];
    let wrong = most.into_iter().map(|(name, total, least)| (name, total, total.max(least)));
    let mut all: Vec<(&str, u64, u64)> = wrong.collect();
    all.push(("answers", bang.answers, bang.service.count()));
    // The last answer is in the second after the whole ones at the latest; others may follow in
    // which nothing came. The course of very long bangs ends before they do.
    let seconds = bang.seconds.len() as u64;
    let is_busy = |second: &BangSecond| second.answers + second.faults > 0;
    let busy = bang.seconds.iter().rposition(is_busy).unwrap_or(0) as u64;
    if seconds < BANG_SECONDS_MAX {
        all.push(("elapsed_us, in s", whole_seconds, whole_seconds.clamp(busy, seconds)));
    }
    all.into_iter()
        .filter(|(_, published, made)| published != made)
        .map(|(column, published, made)| Difference {
            file: file.to_owned(),
            row: 1,
            column: column.to_owned(),
            published: published.to_string(),
            recomputed: made.to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests;
