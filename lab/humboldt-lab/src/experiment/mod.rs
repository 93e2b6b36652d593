//! `humboldt-lab peak`: one run, from an idle machine to a report and an idle machine.
//!
//! calibrate → start origins → start the subject → sample after sample: judge, change the load →
//! stop → summarise.

mod calibrate;
mod curve;
mod ground;
mod limits;
mod live;
mod manifest;
mod plan;
mod refusal;
mod sampling;

pub(crate) use calibrate::calibrate;
pub(crate) use ground::{
    CACHE_BYTES, Choice, Ground, Size, attached_proxy, check_stores, named_subject, rest,
    start_option, subject_file,
};
pub(crate) use live::Live;
pub(crate) use manifest::provenance;
pub(crate) use plan::check;
pub(crate) use plan::{fill_bytes, sample_period_s, time_max_s};
pub(crate) use sampling::OVERTIME_MAX;

use crate::Failure;
use crate::cli::PeakArgs;
use crate::fleet::protocol::RouteOrder;
use crate::fleet::{Fleet, Mission};
use crate::interrupt::Interrupt;
use crate::tls::RunTls;
use humboldt_lab_record::{Outcome, Run};
use humboldt_lab_report::{LivePage, ReportError, RunFolder};
use humboldt_lab_subjects::Mode;
use plan::Prepared;
use sampling::Sampling;
use std::net::SocketAddr;
use std::path::Path;

/// The host name that accelerators are asked for: a site that exists nowhere else.
pub(crate) const SITE: &str = "www.lab.example";

/// The displays of a run while it goes on.
pub(crate) struct Stage {
    pub(crate) live: Live,
    pub(crate) page: Option<LivePage>,
    pub(crate) folder: Option<RunFolder>,
}

impl Stage {
    /// Opens the requested displays, before anything is started. A folder that holds a run is
    /// refused.
    pub(crate) fn open(arguments: &PeakArgs) -> Result<Self, Failure> {
        Self::with_folder(arguments, RunFolder::create)
    }

    /// The same, in place of a run that was not finished.
    pub(crate) fn open_again(arguments: &PeakArgs) -> Result<Self, Failure> {
        Self::with_folder(arguments, RunFolder::begin_again)
    }

    fn with_folder(
        arguments: &PeakArgs,
        open: fn(&Path) -> Result<RunFolder, ReportError>,
    ) -> Result<Self, Failure> {
        let folder = arguments.out.as_deref().map(open).transpose().map_err(Failure::usage)?;
        let page = arguments.serve.map(LivePage::serve).transpose().map_err(Failure::usage)?;
        Ok(Self { live: Live::new(), page, folder })
    }

    /// Shows a state of the run, and keeps it.
    fn update(&mut self, run: &Run) -> Result<(), Failure> {
        self.live.update(run);
        if let Some(page) = &self.page {
            page.update(run);
        }
        self.folder.as_mut().map_or(Ok(()), |folder| folder.sample(run)).map_err(Failure::run)
    }
}

/// Carries out one run. The measurements are in the run and in the folder, whatever happens.
///
/// An `Err` means that nothing was measured; a run that failed later has the reason in its outcome.
pub(crate) fn run(
    arguments: &PeakArgs,
    stage: &mut Stage,
    interrupt: &Interrupt,
) -> Result<Run, Failure> {
    let prepared = Prepared::new(arguments)?;
    prepared.tls.as_ref().map_or(Ok(()), RunTls::keep)?;
    let mut run = prepared.run()?;
    let mut fleet = if arguments.world.agents.is_empty() {
        Fleet::local(prepared.shares.lab.clone())
    } else {
        Fleet::remote(&arguments.world.agents, &arguments.world.secret.token)
    }
    .map_err(Failure::usage)?;
    if !arguments.no_calibration {
        stage.live.step("calibrating: the laboratory against its own servers, no cache between");
        let found = calibrate(
            &mut fleet,
            &prepared.world,
            &arguments.world.origin,
            prepared.tls.as_ref(),
            interrupt,
        )?;
        stage.live.calibrated(&found);
        if found.per_s <= 0.0 {
            let busy = "the laboratory got no answers from its own servers in time: this machine is too busy";
            return Err(Failure::usage(format!("{busy} for a measurement")));
        }
        run.calibration = Some(found.per_s);
    }
    stage.live.step(&format!("starting {}", run.plan.subject));
    let origins = fleet
        .start_origins(
            &prepared.world,
            &arguments.world.origin,
            true,
            prepared.tls.as_ref().and_then(RunTls::behind_cache),
        )
        .map_err(Failure::usage)?;
    rest(&arguments.ground, interrupt);
    let size = Size {
        cache_bytes: run.plan.cache_bytes,
        instances: arguments.instances,
        origins: &origins,
        tls: prepared.tls.as_ref().map_or(Ok(None), RunTls::subject)?,
    };
    let mut ground = Ground::prepare(&prepared.choice, &arguments.ground, &size, &prepared.shares)?;
    manifest::describe(&mut run.manifest, &prepared, &ground);
    let result = measure(&prepared, &mut run, &mut fleet, &mut ground, &origins, stage, interrupt);
    if let Err(failure) = result {
        fail(&mut run, &failure, &stage.live);
    }
    stage.live.step("stopping");
    // A fleet whose agent has gone fails here again; the run has the reason already.
    let _ = fleet.stop();
    let cleared = ground.clear();
    humboldt_lab_peak::summarise(&mut run);
    finish(stage, &run)?;
    cleared.map(|()| run)
}

/// The reason of its end in a line, and further facts in full: usually the last words of the
/// subject.
fn fail(run: &mut Run, failure: &Failure, live: &Live) {
    let message = failure.to_string();
    let (line, details) = message.split_once('\n').unwrap_or((&message, ""));
    if !details.is_empty() {
        live.line(details);
        run.manifest.files.insert("last words".to_owned(), details.to_owned());
    }
    run.outcome = Outcome::Failed(line.to_owned());
}

fn measure(
    prepared: &Prepared,
    run: &mut Run,
    fleet: &mut Fleet,
    ground: &mut Ground,
    origins: &[SocketAddr],
    stage: &mut Stage,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let addresses = ground.addresses();
    let mut controller = prepared.controller(run.calibration)?;
    let mission = Mission {
        route: match ground.mode() {
            Mode::Forward => RouteOrder::Forward { proxies: addresses },
            Mode::Accelerator => {
                RouteOrder::Accelerator { addresses, host: prepared.choice.site().to_owned() }
            }
        },
        origins: origins.to_vec(),
        working_set_objects: prepared.working_set_objects,
        first_load_per_s: controller.first_load_per_s(),
        timeout_s: prepared.timeout_s,
        excuse_reload_hits: prepared.choice.excuse_reload_hits(),
        tls: prepared.tls.as_ref().map(RunTls::users),
    };
    stage.live.begin(run, controller.as_ref());
    fleet.start_robots(&mission).map_err(Failure::run)?;
    let mut sampling = Sampling::new(run, controller.first_load_per_s(), prepared);
    loop {
        let sample = sampling.next(run, fleet, ground, controller.as_mut(), interrupt)?;
        run.samples.extend(sample);
        if let Some(refusal) = refusal::of(&run.samples) {
            return Err(Failure::run(refusal));
        }
        if let Some(outcome) = sampling.end(run, interrupt) {
            run.outcome = outcome;
            break;
        }
        humboldt_lab_peak::summarise(run);
        stage.update(run)?;
    }
    ground.check()?;
    if let Some(asked_for) = prepared.curve.filter(|_| !interrupt.is_set()) {
        let sampling = &mut sampling;
        let measured = curve::measure(run, asked_for, fleet, ground, sampling, stage, interrupt);
        if let Err(failure) = measured {
            curve::left_out(run, &failure);
            // What the curve met may be met here again; the result of the run is complete.
            let _ = fleet.stop_robots();
            return Ok(());
        }
    }
    fleet.stop_robots().map_err(Failure::run)
}

fn finish(stage: &mut Stage, run: &Run) -> Result<(), Failure> {
    stage.live.end(run);
    if let Some(page) = &stage.page {
        page.update(run);
    }
    stage.folder.take().map_or(Ok(()), |folder| folder.finish(run)).map_err(Failure::run)
}
