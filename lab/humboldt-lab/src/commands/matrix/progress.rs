//! The finished part of a matrix, and the page that shows it.

use super::cells::{Cell, Task};
use crate::commands::bang;
use crate::{Failure, units};
use humboldt_lab_record::{BangRun, Outcome, Run};
use humboldt_lab_report::{self as report, Pairs};
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
    title: &'a str,
    pairs: Pairs,
    peaks: Vec<Run>,
    bangs: Vec<BangRun>,
    /// Of the reports, below `out`.
    folders: Vec<String>,
    failed: usize,
    measured: u32,
    took: Duration,
}

impl<'a> Progress<'a> {
    pub(super) fn new(out: &'a Path, title: &'a str, pairs: Pairs) -> Self {
        Self {
            out,
            title,
            pairs,
            peaks: Vec::new(),
            bangs: Vec::new(),
            folders: Vec::new(),
            failed: 0,
            measured: 0,
            took: Duration::ZERO,
        }
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
        self.folders.extend(folders.into_iter().filter_map(below));
        match done {
            Done::Peak(run) => self.peaks.push(*run),
            Done::Bang(passes) => self.bangs.extend(passes),
        }
    }

    /// A run of this session.
    pub(super) fn add(&mut self, done: Done, cell: &Cell, took: Duration) {
        self.keep(done, cell);
        self.measured += 1;
        self.took += took;
    }

    /// Number of failed runs.
    pub(super) fn failed(&self) -> usize {
        self.failed
    }

    /// Writes the page, as far as there is anything to show.
    pub(super) fn write_page(&self) -> Result<(), Failure> {
        self.write_to(self.out, Some(&self.folders))
    }

    /// Writes the page for a repository, without HTML and without links to reports.
    pub(super) fn publish(&self, folder: &Path) -> Result<(), Failure> {
        self.write_to(folder, None)
    }

    fn write_to(&self, folder: &Path, reports: Option<&[String]>) -> Result<(), Failure> {
        let written = if !self.peaks.is_empty() {
            report::matrix_page(folder, self.title, &self.peaks, reports, &self.pairs)
        } else if !self.bangs.is_empty() {
            report::bang_matrix_page(folder, self.title, &self.bangs, reports)
        } else {
            Ok(())
        };
        written.map_err(Failure::run)
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
