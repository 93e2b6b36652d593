//! `humboldt-lab run FILE.toml`: a matrix of runs, one folder each, resumable.
//!
//! Every key of the file is an option of `humboldt-lab peak` or `bang`, so that there is one list
//! of options and one parser.

mod cells;
mod file;
mod kept;
mod places;
mod plan;
mod progress;

use super::bang;
use crate::cli::{PeakArgs, RunArgs};
use crate::experiment::{self, Stage};
use crate::interrupt::Interrupt;
use crate::{Failure, output::say, units};
use cells::{Cell, Cells, Task};
use file::Scale;
use humboldt_lab_record::{Outcome, Run};
use humboldt_lab_report as report;
use humboldt_lab_subjects::{Host, OnlyLaboratory};
use plan::show;
use progress::{Done, Progress};
use std::time::{Duration, Instant};

/// About the time that a run takes besides its load, in seconds.
const START_AND_STOP_S: f64 = 15.0;

/// The folder of a trial, within that of the experiment: its runs must not pass for measurements.
const TRIAL_FOLDER: &str = "trial";

/// A run may take so many times as long as it is expected to before a session is longer than it was
/// to be.
const LONGER_THAN_EXPECTED: f64 = 1.25;

/// `humboldt-lab run`.
pub(crate) fn matrix(arguments: &RunArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let scale = Scale { full: arguments.full, cross: arguments.cross, trial: arguments.trial };
    let file = file::read(&arguments.file, scale)?;
    let out = arguments.out.clone().unwrap_or_else(|| arguments.file.with_extension(""));
    let out = if arguments.trial { out.join(TRIAL_FOLDER) } else { out };
    let Cells { cells, pairs } = cells::cells(&file, &arguments.file, &out)?;
    for cell in &cells {
        let checked = match &cell.task {
            Task::Peak(peak) => experiment::check(peak),
            Task::Bang(bang) => bang::check(bang),
        };
        checked.map_err(|failure| {
            Failure::usage(format!("{}: {}: {failure}", arguments.file.display(), cell.label))
        })?;
    }
    let rest_s = file.rest.as_deref().map_or(Ok(0.0), units::seconds).map_err(Failure::usage)?;
    let session = Session::begin(arguments, &file)?;
    let requires = |cell: &Cell| matches!(&cell.task, Task::Peak(peak) if !peak.require.is_empty());
    if cells.iter().any(requires) {
        return Err(Failure::usage("`require` is for `humboldt-lab peak`, not for an experiment"));
    }
    if arguments.dry_run {
        show(&cells, &out, rest_s, &session, &file.pieces);
        return Ok(());
    }
    // Before the first run, not after hours of others.
    cells.iter().try_for_each(|cell| kept::finished(cell, arguments).map(drop))?;
    let _only = only_laboratory(&cells)?;
    let kind = match file.command {
        file::Kind::Peak => report::Kind::Peak,
        file::Kind::Bang => report::Kind::Bang,
    };
    let experiment = report::Experiment::new(&file.title, kind, file.beside_published, pairs);
    let mut progress = Progress::new(&out, experiment);
    let (mut left_to_later, mut is_over, mut piece) = (0, false, None);
    for (index, cell) in cells.iter().enumerate() {
        if let Some(done) = kept::finished(cell, arguments)? {
            progress.keep(done, cell);
            continue;
        }
        // The first run is made in any case: no session is without progress.
        if progress.measured() > 0 && piece == cell.piece {
            is_over |= !session.has_time_for(cell);
        }
        if is_over || (progress.measured() > 0 && piece != cell.piece) {
            left_to_later += 1;
            continue;
        }
        piece = cell.piece;
        let left = progress.left(cells.len() - index);
        say!("\n=== run {} of {}: {}{left}", index + 1, cells.len(), cell.label);
        let start = Instant::now();
        let done = one(cell, arguments, interrupt)?;
        if done.is_interrupted() || interrupt.is_set() {
            return Err(Failure::interrupted());
        }
        progress.add(done, cell, start.elapsed());
        progress.write_page()?;
        if rest_s > 0.0 && index + 1 < cells.len() {
            interrupt.wait_until(Instant::now() + Duration::from_secs_f64(rest_s), || false);
        }
    }
    progress.write_page()?;
    if let Some(publish) = &arguments.publish {
        progress.publish(publish)?;
    }
    say!("\n{} runs: {}", cells.len() - left_to_later, out.join("index.html").display());
    if left_to_later > 0 {
        return Err(Failure::unfinished(format!(
            "{left_to_later} of {} runs are left to a later session: run the same command again",
            cells.len()
        )));
    }
    match progress.failed() {
        0 => Ok(()),
        failed => {
            Err(Failure::run(format!("{failed} of {} runs failed; see the page", cells.len())))
        }
    }
}

/// Until the end, if any run needs it: beside another laboratory all of them would fail.
fn only_laboratory(cells: &[Cell]) -> Result<Option<OnlyLaboratory>, Failure> {
    let needs = cells.iter().any(|cell| match &cell.task {
        Task::Peak(peak) => peak.ground.dirty_limit.is_some(),
        Task::Bang(bang) => bang.ground.dirty_limit.is_some(),
    });
    if needs { OnlyLaboratory::new(&Host::current()).map_err(Failure::run) } else { Ok(None) }
}

/// The time in which runs may begin: a large experiment is carried out in pieces.
struct Session {
    begun: Instant,
    limit_s: Option<f64>,
}

impl Session {
    /// The command line comes before the file.
    fn begin(arguments: &RunArgs, file: &file::File) -> Result<Self, Failure> {
        let of_file =
            file.session.as_deref().map(units::seconds).transpose().map_err(Failure::usage)?;
        Ok(Self { begun: Instant::now(), limit_s: arguments.session.or(of_file) })
    }

    /// Whether a run may begin.
    fn has_time_for(&self, cell: &Cell) -> bool {
        let needed_s = needed_s(cell);
        self.limit_s.is_none_or(|limit_s| self.begun.elapsed().as_secs_f64() + needed_s <= limit_s)
    }
}

/// The time that a run is given: as long as it may take at most or, if something is known about it,
/// a quarter more than it is expected to take, whichever is less. Without either it has no end.
fn needed_s(cell: &Cell) -> f64 {
    let longest_s = limit_s(cell).map_or(f64::INFINITY, |limit_s| limit_s + START_AND_STOP_S);
    match plan::expected_s(cell, 0.0) {
        Some(expected_s) => longest_s.min(expected_s * LONGER_THAN_EXPECTED),
        None => longest_s,
    }
}

/// The longest duration of a run's load, if it has a limit.
fn limit_s(cell: &Cell) -> Option<f64> {
    match &cell.task {
        Task::Peak(peak) => experiment::time_max_s(peak),
        Task::Bang(bang) => Some(bang.time_max),
    }
}

/// One run; a failure is a result too, and does not stop the others.
fn one(cell: &Cell, arguments: &RunArgs, interrupt: &Interrupt) -> Result<Done, Failure> {
    let attempt = || match &cell.task {
        Task::Peak(peak) => {
            let peak = PeakArgs {
                out: Some(cell.folder.clone()),
                serve: arguments.serve,
                ..(**peak).clone()
            };
            experiment::run(&peak, &mut Stage::open_again(&peak)?, interrupt)
                .map(|run| Done::Peak(Box::new(run)))
        }
        Task::Bang(bang) => {
            let bang = crate::cli::BangArgs { out: Some(cell.folder.clone()), ..(**bang).clone() };
            bang::run(&bang, interrupt).map(Done::Bang)
        }
    };
    match attempt() {
        Err(failure) if failure.code() != 130 => {
            say!("failed: {failure}");
            keep_failure(cell, &failure)
        }
        result => result,
    }
}

/// A run that could not be carried out, as it is kept.
fn keep_failure(cell: &Cell, failure: &Failure) -> Result<Done, Failure> {
    match &cell.task {
        Task::Peak(peak) => {
            let mut run = Run { outcome: Outcome::Failed(failure.to_string()), ..Run::default() };
            run.format = humboldt_lab_record::RUN_FORMAT;
            run.plan.subject = peak.subject.clone().unwrap_or_default();
            run.plan.variant = cell.label.clone();
            run.manifest.provenance.run_command.clone_from(&peak.as_command);
            report::write_run(&cell.folder, &run).map_err(Failure::run)?;
            Ok(Done::Peak(Box::new(run)))
        }
        // It has no result, so it is tried again when the experiment is resumed.
        Task::Bang(_) => Ok(Done::Bang(Vec::new())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_run_is_given_the_time_that_is_known_of_it() {
        let needed = |common: &str, expected: &str| {
            let text = format!(
                "title = 'T'\n[common]\ncache-size = '100MB'\ntime-scale = 0.05\n{common}\n\
                 [[run]]\nsubject = 'squid:ufs'\n{expected}"
            );
            let file = file::parse(&text, Scale::default()).unwrap();
            let cells = cells::cells(&file, Path::new("t.toml"), Path::new("out")).unwrap().cells;
            needed_s(&cells[0])
        };
        let expected = "[[expected]]\nanswers = 100\n";
        let fills_s = f64::from(2 * 100 * 1024 * 1024) / 300_000.0;
        let a_quarter_more_s = (fills_s + START_AND_STOP_S) * LONGER_THAN_EXPECTED;
        assert!((needed("", expected) - a_quarter_more_s).abs() < 0.1, "no limit, but known");
        assert_eq!(needed("time-max = '710s'", expected), 710.0 + START_AND_STOP_S);
        assert_eq!(needed("time-max = '50s'", ""), 50.0 + START_AND_STOP_S);
        assert_eq!(needed("", ""), f64::INFINITY);
    }
}
