//! `humboldt-lab run FILE.toml`: a matrix of runs, one folder each, resumable.
//!
//! Every key of the file is an option of `humboldt-lab peak`, so that there is one list of options and one parser.

use crate::cli::{Cli, Command, PeakArgs, RunArgs};
use crate::experiment::{self, Stage};
use crate::interrupt::Interrupt;
use crate::{Failure, output::say, units};
use clap::Parser;
use humboldt_lab_record::{Outcome, Run};
use humboldt_lab_report as report;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use toml::{Table, Value};

/// More runs than anyone waits for.
const RUNS_MAX: usize = 10_000;

/// An experiment file is written by people: larger is a mistake.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// An experiment file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    /// Heading of the page.
    title: String,
    /// What it is about; shown nowhere else.
    #[serde(default, rename = "description")]
    _description: String,
    /// How often every combination runs.
    #[serde(default = "once")]
    repeats: u32,
    /// Pause between runs.
    #[serde(default)]
    rest: Option<String>,
    /// Options of all runs.
    #[serde(default)]
    common: Table,
    /// Options with a list of values: every combination runs.
    #[serde(default)]
    axes: Table,
    /// Combinations that do not run: those that have all of these values.
    #[serde(default)]
    exclude: Vec<Table>,
    /// Further runs, each with options of its own over the common ones.
    #[serde(default)]
    run: Vec<Table>,
}

fn once() -> u32 {
    1
}

/// One run of the matrix.
struct Cell {
    folder: PathBuf,
    label: String,
    arguments: PeakArgs,
}

/// `humboldt-lab run`.
pub(crate) fn matrix(arguments: &RunArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let file = read(&arguments.file)?;
    let out = arguments.out.clone().unwrap_or_else(|| arguments.file.with_extension(""));
    let cells = cells(&file, &arguments.file, &out)?;
    for cell in &cells {
        let checked = experiment::check(&cell.arguments);
        checked.map_err(|failure| {
            Failure::usage(format!("{}: {}: {failure}", arguments.file.display(), cell.label))
        })?;
    }
    let rest_s = file.rest.as_deref().map_or(Ok(0.0), units::seconds).map_err(Failure::usage)?;
    if arguments.dry_run {
        show(&cells, &out, rest_s);
        return Ok(());
    }
    let mut progress = Progress::new(cells.len());
    for (index, cell) in cells.iter().enumerate() {
        if let Some(run) = finished(&cell.folder, arguments.retry_failed) {
            progress.keep(run, cell);
            continue;
        }
        say!(
            "\n=== run {} of {}: {}{}",
            index + 1,
            cells.len(),
            cell.label,
            progress.left(cells.len() - index)
        );
        let start = Instant::now();
        let run = one(cell, arguments, interrupt)?;
        if run.outcome == Outcome::Interrupted || interrupt.is_set() {
            return Err(Failure::interrupted());
        }
        progress.add(run, cell, start.elapsed());
        progress.write_page(&out, &file.title)?;
        if rest_s > 0.0 && index + 1 < cells.len() {
            interrupt.wait_until(Instant::now() + Duration::from_secs_f64(rest_s), || false);
        }
    }
    progress.write_page(&out, &file.title)?;
    say!("\n{} runs: {}", progress.runs.len(), out.join("index.html").display());
    let failed = progress.runs.iter().filter(|run| matches!(run.outcome, Outcome::Failed(_))).count();
    if failed > 0 {
        return Err(Failure::run(format!("{failed} of {} runs failed; see the page", progress.runs.len())));
    }
    Ok(())
}

/// What would run, and how long it takes at most.
fn show(cells: &[Cell], out: &Path, rest_s: f64) {
    cells.iter().for_each(|cell| say!("{}", cell.label));
    let limits: Option<Vec<f64>> = cells.iter().map(|cell| experiment::time_max_s(&cell.arguments)).collect();
    let time = match limits {
        Some(limits) => {
            let load_s: f64 = limits.iter().sum();
            let rests_s = rest_s * cells.len().saturating_sub(1) as f64;
            format!("at most {} of load and rests", units::show_seconds(load_s + rests_s))
        }
        None => "as long as filling takes, since not all have a time-max".to_owned(),
    };
    say!(
        "{} runs in {}: {time}; calibration, start and stop take some 15 s each",
        cells.len(),
        out.display()
    );
}

/// One run; a failure is a result too, and does not stop the others.
fn one(cell: &Cell, arguments: &RunArgs, interrupt: &Interrupt) -> Result<Run, Failure> {
    let mut peak = cell.arguments.clone();
    peak.out = Some(cell.folder.clone());
    peak.serve = arguments.serve;
    let mut stage = Stage::open(&peak)?;
    match experiment::run(&peak, &mut stage, interrupt) {
        Ok(run) => Ok(run),
        Err(failure) if failure.code() == 130 => Err(failure),
        Err(failure) => {
            say!("failed: {failure}");
            let mut run = Run { outcome: Outcome::Failed(failure.to_string()), ..Run::default() };
            run.format = humboldt_lab_record::RUN_FORMAT;
            run.plan.subject = peak.subject.clone().unwrap_or_default();
            run.plan.variant = cell.label.clone();
            report::write_run(&cell.folder, &run).map_err(Failure::run)?;
            Ok(run)
        }
    }
}

/// A run of an earlier session that need not be repeated.
fn finished(folder: &Path, retry_failed: bool) -> Option<Run> {
    let run = report::read_run(folder).ok()?;
    match run.outcome {
        Outcome::Filled | Outcome::TimeUp => Some(run),
        Outcome::Failed(_) if !retry_failed => Some(run),
        _ => None,
    }
}

/// How long it takes, from the runs so far.
struct Progress {
    runs: Vec<Run>,
    folders: Vec<String>,
    measured: u32,
    took: Duration,
}

impl Progress {
    fn new(count: usize) -> Self {
        Self {
            runs: Vec::with_capacity(count),
            folders: Vec::with_capacity(count),
            measured: 0,
            took: Duration::ZERO,
        }
    }

    fn keep(&mut self, run: Run, cell: &Cell) {
        self.runs.push(run);
        self.folders.extend(cell.folder.file_name().map(|name| name.to_string_lossy().into_owned()));
    }

    fn write_page(&self, out: &Path, title: &str) -> Result<(), Failure> {
        report::matrix_page(out, title, &self.runs, &self.folders).map_err(Failure::run)
    }

    fn add(&mut self, run: Run, cell: &Cell, took: Duration) {
        self.keep(run, cell);
        self.measured += 1;
        self.took += took;
    }

    fn left(&self, runs: usize) -> String {
        if self.measured == 0 {
            return String::new();
        }
        let each_s = self.took.as_secs_f64() / f64::from(self.measured);
        format!(" (about {} left)", units::show_seconds(each_s * runs as f64))
    }
}

fn read(path: &Path) -> Result<File, Failure> {
    let say_where = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", path.display()));
    if path.metadata().map_err(|error| say_where(&error))?.len() > FILE_BYTES_MAX {
        return Err(say_where(&"longer than 1 MB, this is no experiment file"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| say_where(&error))?;
    let file: File = toml::from_str(&text).map_err(|error| say_where(&one_line(&error, &text)))?;
    if file.repeats == 0 || (file.axes.is_empty() && file.run.is_empty()) {
        return Err(say_where(&"nothing to run: give [axes] or [[run]], and repeats of 1 or more"));
    }
    Ok(file)
}

/// Where in the file, and what.
fn one_line(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().lines().map(str::trim).collect::<Vec<_>>().join("; ");
    let before = error.span().and_then(|span| text.get(..span.start));
    before.map_or(message.clone(), |before| format!("line {}: {message}", before.matches('\n').count() + 1))
}

/// All runs in the order in which they are done: repeats outermost, so that an interrupted matrix has every row.
fn cells(file: &File, path: &Path, out: &Path) -> Result<Vec<Cell>, Failure> {
    let mut combinations = product(&file.axes, path)?;
    combinations.retain(|options| !file.exclude.iter().any(|excluded| includes(options, excluded)));
    combinations.extend(file.run.iter().cloned());
    let mut cells = Vec::new();
    let mut folders = BTreeSet::new();
    for repeat in 1..=file.repeats {
        for options in &combinations {
            let cell = cell(file, options, repeat, path, out)?;
            if !folders.insert(cell.folder.clone()) {
                return Err(Failure::usage(format!("{}: `{}` is there twice", path.display(), cell.label)));
            }
            cells.push(cell);
        }
    }
    Ok(cells)
}

/// Every combination of the axes' values.
fn product(axes: &Table, path: &Path) -> Result<Vec<Table>, Failure> {
    let mut all = if axes.is_empty() { Vec::new() } else { vec![Table::new()] };
    for (name, values) in axes {
        let values = values.as_array().filter(|values| !values.is_empty()).ok_or_else(|| {
            Failure::usage(format!("{}: axes.{name} must be a list of values", path.display()))
        })?;
        let mut longer = Vec::new();
        for table in &all {
            for value in values {
                let mut table = table.clone();
                table.insert(name.clone(), value.clone());
                longer.push(table);
            }
        }
        if longer.len() > RUNS_MAX {
            return Err(Failure::usage(format!("{}: more than {RUNS_MAX} runs", path.display())));
        }
        all = longer;
    }
    Ok(all)
}

fn includes(options: &Table, excluded: &Table) -> bool {
    excluded.iter().all(|(name, value)| options.get(name) == Some(value))
}

fn cell(file: &File, options: &Table, repeat: u32, path: &Path, out: &Path) -> Result<Cell, Failure> {
    let mut all = file.common.clone();
    all.extend(options.iter().map(|(name, value)| (name.clone(), value.clone())));
    let label: Vec<String> = options.values().map(plain).filter(|value| !value.is_empty()).collect();
    let mut label = label.join(" ");
    if file.repeats > 1 {
        label = format!("{label} #{repeat}");
        // Repeats see other URLs and other moments, or they would repeat the accident too.
        let seed = all.get("seed").and_then(Value::as_integer).unwrap_or(1) + i64::from(repeat) - 1;
        all.insert("seed".to_owned(), Value::Integer(seed));
    }
    let words = command_line(&all);
    let cli = Cli::try_parse_from(words).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        Failure::usage(format!("{}: {label}: {first}", path.display()))
    })?;
    let Command::Peak(arguments) = cli.command else {
        return Err(Failure::usage(format!("{}: {label}: not a run", path.display())));
    };
    Ok(Cell { folder: out.join(folder_name(&label)), label, arguments: *arguments })
}

/// The same as on the command line: `peak SUBJECT --name=value …`. An empty value or `false` leaves an option out.
fn command_line(options: &Table) -> Vec<String> {
    let mut words = vec!["humboldt-lab".to_owned(), "peak".to_owned()];
    for (name, value) in options {
        match value {
            Value::String(subject) if name == "subject" => words.push(subject.clone()),
            Value::Boolean(true) => words.push(format!("--{name}")),
            Value::Boolean(false) => {}
            Value::String(text) if text.is_empty() => {}
            Value::Array(values) => {
                words.extend(values.iter().map(|value| format!("--{name}={}", plain(value))))
            }
            value => words.push(format!("--{name}={}", plain(value))),
        }
    }
    words
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

fn folder_name(label: &str) -> String {
    let name: String = label
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '-' })
        .collect();
    let name = name.trim_matches(['-', '.']);
    if name.is_empty() { "run".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells_of(text: &str) -> Result<Vec<Cell>, Failure> {
        cells(&toml::from_str(text).unwrap(), Path::new("test.toml"), Path::new("out"))
    }

    #[test]
    fn every_combination_runs_but_the_excluded() {
        let text = "title = 'T'\nrepeats = 2\n[common]\nquick = true\n[axes]\nfs = ['ext4', 'xfs']\n\
                    subject = ['squid:ufs', 'squid:aufs']\n[[exclude]]\nfs = 'xfs'\nsubject = 'squid:aufs'\n\
                    [[run]]\nsubject = 'squid:rock'\n";
        let cells = cells_of(text).unwrap();
        assert_eq!(cells.len(), 8);
        assert_eq!(cells[0].label, "ext4 squid:ufs #1");
        assert_eq!(cells[0].folder, Path::new("out/ext4-squid-ufs--1"));
        assert!(cells.iter().all(|cell| cell.arguments.quick));
        assert_eq!((cells[0].arguments.world.seed, cells[7].arguments.world.seed), (1, 2));
    }

    #[test]
    fn mistakes_are_named() {
        let message = |text: &str| cells_of(text).err().unwrap().to_string();
        let unknown = "title = 'T'\n[axes]\nsubject = ['squid:ufs']\n[common]\nfilesystem = 'xfs'\n";
        assert!(message(unknown).contains("--filesystem"), "{}", message(unknown));
        let twice = "title = 'T'\n[[run]]\nsubject = 'nginx'\n[[run]]\nsubject = 'nginx'\n";
        assert!(message(twice).contains("twice"));
        assert!(message("title = 'T'\n[axes]\nsubject = 'nginx'\n").contains("must be a list"));
    }
}
