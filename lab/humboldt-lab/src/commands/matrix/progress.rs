//! The finished part of a matrix, and the page that shows it.

use super::cells::{Cell, Task};
use crate::commands::bang;
use crate::{Failure, units};
use humboldt_lab_record::{BangRun, Outcome, Run};
use humboldt_lab_report::{Experiment, Kind, Results};
use std::path::Path;
use std::time::Duration;

/// The result of a run.
pub(super) enum Done {
    Peak(Box<Run>),
    /// Each pass; none if it failed.
    Bang(Vec<BangRun>),
}

impl Done {
    pub(super) fn is_interrupted(&self) -> bool {
        matches!(self, Self::Peak(run) if run.outcome == Outcome::Interrupted)
    }

    fn has_failed(&self) -> bool {
        match self {
            Self::Peak(run) => matches!(run.outcome, Outcome::Failed(_)),
            Self::Bang(passes) => passes.is_empty(),
        }
    }
}

/// The runs so far, and how long they took.
pub(super) struct Progress<'a> {
    out: &'a Path,
    experiment: Experiment,
    results: Results,
    failed: usize,
    measured: u32,
    took: Duration,
}

impl<'a> Progress<'a> {
    /// Of an experiment without runs; `out` is its folder.
    pub(super) fn new(out: &'a Path, experiment: Experiment) -> Self {
        let results = match experiment.kind {
            Kind::Peak => Results::Peaks(Vec::new()),
            Kind::Bang => Results::Bangs(Vec::new()),
        };
        Self { out, experiment, results, failed: 0, measured: 0, took: Duration::ZERO }
    }

    /// A run of an earlier session.
    pub(super) fn keep(&mut self, done: Done, cell: &Cell) {
        self.failed += usize::from(done.has_failed());
        let folders = match (&cell.task, &done) {
            (Task::Bang(arguments), Done::Bang(passes)) => {
                let folders = bang::pass_folders(arguments, &cell.folder).unwrap_or_default();
                folders.into_iter().take(passes.len()).collect()
            }
            _ => vec![cell.folder.clone()],
        };
        let below = |folder: std::path::PathBuf| {
            folder.strip_prefix(self.out).map(|folder| folder.to_string_lossy().into_owned()).ok()
        };
        self.experiment.folders.extend(folders.into_iter().filter_map(below));
        match (&mut self.results, done) {
            (Results::Peaks(runs), Done::Peak(run)) => runs.push(*run),
            (Results::Bangs(bangs), Done::Bang(passes)) => bangs.extend(passes),
            // An experiment has runs of one kind.
            (Results::Peaks(_), Done::Bang(_)) | (Results::Bangs(_), Done::Peak(_)) => {}
        }
    }

    /// A run of this session.
    pub(super) fn add(&mut self, done: Done, cell: &Cell, took: Duration) {
        self.keep(done, cell);
        self.measured += 1;
        self.took += took;
    }

    /// Number of runs of this session.
    pub(super) fn measured(&self) -> u32 {
        self.measured
    }

    /// Number of failed runs.
    pub(super) fn failed(&self) -> usize {
        self.failed
    }

    /// Writes the page, as far as there is anything to show.
    pub(super) fn write_page(&self) -> Result<(), Failure> {
        if self.results.is_empty() {
            return Ok(());
        }
        self.experiment.write_page(self.out, &self.results).map_err(Failure::run)
    }

    /// Writes the page for a repository, with the files that its figures come from.
    pub(super) fn publish(&self, folder: &Path) -> Result<(), Failure> {
        if self.results.is_empty() {
            return Ok(());
        }
        self.experiment.publish(self.out, folder).map_err(Failure::run)
    }

    /// Duration of the remaining runs, estimated from the finished ones.
    pub(super) fn left(&self, runs: usize) -> String {
        if self.measured == 0 {
            return String::new();
        }
        let each_s = self.took.as_secs_f64() / f64::from(self.measured);
        format!(" (about {} left)", units::show_seconds(each_s * runs as f64))
    }
}
