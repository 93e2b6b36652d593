//! One run, several compared, and the laboratory by itself.

use crate::cli::{CalibrateArgs, CompareArgs, PeakArgs};
use crate::cores::Shares;
use crate::experiment::{self, Stage};
use crate::fleet::{Fleet, world};
use crate::interrupt::Interrupt;
use crate::require::{Checked, Requirement};
use crate::{Failure, output::say};
use humboldt_lab_record::{Outcome, Run};
use humboldt_lab_report as report;
use std::path::{Path, PathBuf};

/// Reports of one subject without a name of their own in one folder.
const FOLDERS_MAX: u32 = 9_999;

/// `humboldt-lab peak`.
pub(crate) fn peak(arguments: &PeakArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    experiment::check(arguments)?;
    let is_new = arguments.out.is_none();
    let out = out_folder(arguments)?;
    let arguments = PeakArgs { out: Some(out.clone()), ..arguments.clone() };
    let mut stage = Stage::open(&arguments)?;
    if let Some(page) = &stage.page {
        say!("the growing report: http://{}/", page.address());
    }
    let run = experiment::run(&arguments, &mut stage, interrupt).inspect_err(|_| {
        // Nothing was measured, so the folder that was made for it holds nothing but headings.
        if is_new {
            let _ = std::fs::remove_dir_all(&out);
        }
    })?;
    say!("report: {}", out.join("report.html").display());
    let unmet = unmet(&run, &arguments.require);
    match run.outcome {
        Outcome::Failed(message) => Err(Failure::run(message)),
        Outcome::Interrupted => Err(Failure::interrupted()),
        _ if unmet > 0 => Err(Failure::run(format!(
            "{unmet} of {} requirements are not met",
            arguments.require.len()
        ))),
        Outcome::Running | Outcome::Filled | Outcome::TimeUp => Ok(()),
    }
}

/// Shows each requirement with its figure; returns how many are not met.
fn unmet(run: &Run, requirements: &[Requirement]) -> usize {
    let objection = report::objection(run);
    let checked = requirements.iter().map(|one| one.check(run, objection.as_deref()));
    let checked: Vec<Checked> = checked.collect();
    checked.iter().for_each(|one| say!("{one}"));
    checked.iter().filter(|one| !one.is_met).count()
}

/// The place of the report: the given one, or a new folder, `squid-aufs-1`, `squid-aufs-2`, …
fn out_folder(arguments: &PeakArgs) -> Result<PathBuf, Failure> {
    if let Some(out) = &arguments.out {
        return Ok(out.clone());
    }
    let name: String = arguments
        .subject
        .as_deref()
        .and_then(|subject| Path::new(subject).file_name()?.to_str())
        .unwrap_or("attached")
        .replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let free = (1..=FOLDERS_MAX)
        .map(|number| PathBuf::from(format!("{name}-{number}")))
        .find(|path| !path.exists());
    free.ok_or_else(|| {
        Failure::usage(format!("{name}-1 to {name}-{FOLDERS_MAX} are there already: use --out DIR"))
    })
}

/// `humboldt-lab compare`.
pub(crate) fn compare(arguments: &CompareArgs) -> Result<(), Failure> {
    let runs =
        arguments.runs.iter().map(|path| report::read_run(path)).collect::<Result<Vec<_>, _>>();
    report::compare(&arguments.out, &runs.map_err(Failure::usage)?).map_err(Failure::run)?;
    say!("comparison: {}", arguments.out.join("compare.html").display());
    Ok(())
}

/// `humboldt-lab calibrate`.
pub(crate) fn calibrate(arguments: &CalibrateArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let arguments = &arguments.world;
    let world = world::order(arguments, world::TIME_SCALE)?;
    world::load(&world).map_err(Failure::usage)?;
    let shares = Shares::new(None, arguments.lab_cores.as_deref())?;
    let fleet = if arguments.agents.is_empty() {
        Fleet::local(shares.lab.clone())
    } else {
        Fleet::remote(&arguments.agents, &arguments.secret.token)
    };
    let found = experiment::calibrate(
        &mut fleet.map_err(Failure::usage)?,
        &world,
        &arguments.origin,
        None,
        interrupt,
    )?;
    let ended = found.limit.unwrap_or("nothing stopped it");
    say!("workload           {}", world.name);
    say!("processors         {:?}", shares.lab);
    say!("answers per second {:.0}  (at the next step: {ended})", found.per_s);
    say!("user's CPU time    {:.2} µs per request, every byte verified", found.robots_us);
    say!("server's CPU time  {:.2} µs per answer", found.origin_us);
    Ok(())
}
