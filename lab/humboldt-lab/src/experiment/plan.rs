//! The plan of a run, from the command line: checked as a whole before anything is started.

use super::ground::{CACHE_BYTES, Choice};
use crate::cli::{ControllerKind, PeakArgs, SearchArgs};
use crate::cores::Shares;
use crate::fleet::protocol::WorldOrder;
use crate::fleet::world;
use crate::tls::{RunTls, Servers};
use crate::version::VERSION;
use crate::{Failure, units, wording};
use humboldt_lab_peak::{
    ClassicSettings, ConstantSettings, Controller, ControllerSettings, Curve, RobustSettings,
};
use humboldt_lab_record::{Goal, Manifest, Plan, RUN_FORMAT, Run};
use humboldt_lab_workload::Workload;
use std::sync::Arc;

/// `--quick`: small enough for three minutes, large enough to fill twice.
const QUICK_CACHE_BYTES: u64 = 384 << 20;
const QUICK_TIME_SCALE: f64 = 0.03;
const QUICK_TIME_MAX_S: f64 = 155.0;

/// Length of a sample before scaling. Shorter ones give a quick run enough of them.
const SAMPLE_S: f64 = 60.0;
const QUICK_SAMPLE_S: f64 = 20.0;

/// A run goes on after the cache has been filled as planned until its last quarter has this many
/// good samples. Those of a quick run are short, and the capacity of a cache differs from one
/// second to the next: with twenty of them the results of three runs were 10 % apart.
const SAMPLES_WANTED: usize = 20;
const QUICK_SAMPLES_WANTED: usize = 60;

/// Requests of the stream from which the ideal hit ratio is computed.
const IDEAL_REQUESTS: u64 = 300_000;

/// Shorter samples hold too few answers to judge.
const SAMPLE_MIN_S: f64 = 0.2;

/// The first load, unless the first sample would then hold too few answers to judge.
const FIRST_LOAD_PER_S: f64 = 100.0;
const FIRST_SAMPLE_REQUESTS: f64 = 400.0;

/// Longer runs are a slip of the hand: a hundred days.
const TIME_MAX_S: f64 = 8.64e6;

/// Everything that is known before something is started.
pub(super) struct Prepared {
    pub(super) choice: Choice,
    pub(super) world: WorldOrder,
    pub(super) workload: Arc<Workload>,
    pub(super) shares: Shares,
    pub(super) working_set_objects: u64,
    pub(super) timeout_s: f64,
    /// How many good samples the last quarter has before a run ends, if the time allows.
    pub(super) samples_wanted: usize,
    /// Whether users and servers of the laboratory are processes of their own.
    pub(super) has_agents: bool,
    /// Whether samples count although others were busy.
    pub(super) tolerates_others: bool,
    /// The same options as a command line, if they are those of an experiment file.
    pub(super) as_command: Option<String>,
    /// TLS; `None`: plain HTTP.
    pub(super) tls: Option<RunTls>,
    /// Whether a curve is measured, and with which load as 100 %, if that is given.
    pub(super) curve: Option<Option<f64>>,
    settings: ControllerSettings,
    load_max_per_s: Option<f64>,
    plan: Plan,
}

impl Prepared {
    /// Checks everything that can be checked.
    pub(super) fn new(arguments: &PeakArgs) -> Result<Self, Failure> {
        let cache_bytes = cache_bytes(arguments);
        let choice = Choice::new(arguments, cache_bytes)?;
        let tls = RunTls::new(&arguments.tls, choice.place(), Servers::Own)?;
        choice.check_place(&arguments.ground, cache_bytes)?;
        let time_scale = if arguments.quick { QUICK_TIME_SCALE } else { world::TIME_SCALE };
        let world = world::order(&arguments.world, time_scale)?;
        let workload = Arc::new(world::load(&world).map_err(Failure::usage)?);
        let shares = Shares::new(
            arguments.ground.subject_cores.as_deref(),
            arguments.world.lab_cores.as_deref(),
        )?;
        let sample_s = sample_s(arguments, world.time_scale);
        if !(SAMPLE_MIN_S..=86_400.0).contains(&sample_s) {
            return Err(Failure::usage(format!(
                "samples of {sample_s:.3} s (--sample × --time-scale): choose between {SAMPLE_MIN_S} s and a day"
            )));
        }
        let settings = settings(&arguments.search, sample_s);
        let controller = settings.build(world.time_scale).map_err(Failure::usage)?;
        let working_set_objects = workload.working_set_objects(cache_bytes);
        let ideal = workload.ideal(world.seed, IDEAL_REQUESTS, working_set_objects);
        let plan = Plan {
            subject: choice.name(),
            variant: variant(arguments),
            workload: workload.name().to_owned(),
            workload_text: workload.text().to_owned(),
            controller: controller.name().to_owned(),
            settings: controller.settings(),
            seed: world.seed,
            time_scale: world.time_scale,
            cache_bytes,
            goal: Goal {
                fill_ratio: arguments.search.fill,
                time_max_s: Some(time_max_s(arguments).unwrap_or(TIME_MAX_S)),
            },
            sample_s,
            ideal_hit_ratio: ideal.offered_plain,
        };
        Ok(Self {
            choice,
            workload,
            shares,
            working_set_objects,
            timeout_s: arguments.world.timeout,
            samples_wanted: if arguments.quick { QUICK_SAMPLES_WANTED } else { SAMPLES_WANTED },
            tls,
            has_agents: !arguments.world.agents.is_empty(),
            tolerates_others: arguments.search.tolerate_others,
            as_command: arguments.as_command.clone(),
            curve: arguments.search.curve.then_some(arguments.search.curve_of),
            settings,
            load_max_per_s: arguments.search.load_max,
            plan,
            world,
        })
    }

    /// A run that has not begun.
    pub(super) fn run(&self) -> Result<Run, Failure> {
        Ok(Run {
            format: RUN_FORMAT,
            started_s: humboldt_lab_wire::unix_us() / 1_000_000,
            plan: self.plan.clone(),
            manifest: Manifest { lab_version: VERSION.clone(), ..Manifest::default() },
            ..Run::default()
        })
    }

    /// A fresh controller. It does not search beyond the laboratory's own highest rate, if that is
    /// known: there it would only learn how an overloaded laboratory behaves.
    pub(super) fn controller(
        &self,
        calibration: Option<f64>,
    ) -> Result<Box<dyn Controller>, Failure> {
        let mut settings = self.settings.clone();
        if let Some(capacity_per_s) = calibration.filter(|per_s| *per_s > 0.0) {
            settings.set_load_max(capacity_per_s.min(self.load_max_per_s.unwrap_or(f64::MAX)));
        }
        settings.build(self.world.time_scale).map_err(Failure::usage)
    }
}

/// Whether a run could be begun, as far as that can be checked quickly: a mistake in the last run
/// of a matrix must not show after hours of others.
pub(crate) fn check(arguments: &PeakArgs) -> Result<(), Failure> {
    check_curve(arguments)?;
    let choice = Choice::new(arguments, cache_bytes(arguments))?;
    RunTls::new(&arguments.tls, choice.place(), Servers::Own)?;
    let world = world::order(&arguments.world, world::TIME_SCALE)?;
    // A log may take minutes to read.
    if world.replay.is_none() {
        world::load(&world).map_err(Failure::usage)?;
    }
    Shares::new(arguments.ground.subject_cores.as_deref(), arguments.world.lab_cores.as_deref())?;
    let sample_s = sample_s(arguments, world.time_scale);
    settings(&arguments.search, sample_s).build(world.time_scale).map_err(Failure::usage).map(drop)
}

/// Whether a curve can be measured at parts of the load that was given for it.
fn check_curve(arguments: &PeakArgs) -> Result<(), Failure> {
    let Some(full_per_s) = arguments.search.curve_of else { return Ok(()) };
    let curve = Curve::new(full_per_s);
    curve.map(drop).map_err(|error| Failure::usage(format!("--curve-of: {error}")))
}

/// Length of a sample in seconds, as scaled.
fn sample_s(arguments: &PeakArgs, time_scale: f64) -> f64 {
    let usual = if arguments.quick { QUICK_SAMPLE_S } else { SAMPLE_S };
    arguments.search.sample.unwrap_or(usual) * time_scale
}

/// The length of a sample, in seconds, where nothing is wrong with the options.
pub(crate) fn sample_period_s(arguments: &PeakArgs) -> f64 {
    let usual = if arguments.quick { QUICK_TIME_SCALE } else { world::TIME_SCALE };
    sample_s(arguments, arguments.world.time_scale.unwrap_or(usual))
}

/// Size of the subject's store, in bytes.
fn cache_bytes(arguments: &PeakArgs) -> u64 {
    let usual = if arguments.quick { QUICK_CACHE_BYTES } else { CACHE_BYTES };
    arguments.ground.cache_size.unwrap_or(usual)
}

/// Bytes that a run fills until its end.
pub(crate) fn fill_bytes(arguments: &PeakArgs) -> u64 {
    (cache_bytes(arguments) as f64 * arguments.search.fill) as u64
}

/// After how many seconds of load a run ends whatever the fill; `None` if it is not limited.
pub(crate) fn time_max_s(arguments: &PeakArgs) -> Option<f64> {
    arguments.search.time_max.or(arguments.quick.then_some(QUICK_TIME_MAX_S))
}

/// The caller's text, or the differences from the usual environment.
fn variant(arguments: &PeakArgs) -> String {
    if !arguments.variant.is_empty() {
        return arguments.variant.clone();
    }
    let ground = &arguments.ground;
    let mut words = Vec::new();
    words.extend(ground.fs.clone());
    words.extend(ground.mount_options.clone().filter(|options| !options.is_empty()));
    if ground.spindles > 1 {
        words.push(format!("{} stores", ground.spindles));
    }
    if arguments.instances > 1 {
        words.push(format!("{} instances", arguments.instances));
    }
    words.extend(ground.cpu_quota.map(|quota| format!("{quota} CPU")));
    words.extend(ground.cpu_speed.map(|speed| format!("CPU speed {speed}")));
    let memory = ground.memory_limit;
    words.extend(memory.map(|bytes| format!("memory limit {}", units::show_bytes(bytes))));
    words.extend(ground.disk_speed.map(|speed| speed.to_string()));
    words.extend(ground.read_iops.map(|iops| format!("{iops} reads/s")));
    words.extend(ground.write_iops.map(|iops| format!("{iops} writes/s")));
    words.extend(ground.read_rate.map(|rate| format!("reads {}/s", units::show_bytes(rate))));
    words.extend(ground.write_rate.map(|rate| format!("writes {}/s", units::show_bytes(rate))));
    words.extend(ground.variables.iter().map(|variable| wording::variable(variable)));
    words.join(", ")
}

fn settings(search: &SearchArgs, sample_s: f64) -> ControllerSettings {
    let mut settings = match (search.load, search.controller) {
        (Some(_), _) => ControllerSettings::Constant(ConstantSettings::default()),
        (None, ControllerKind::Robust) => ControllerSettings::Robust(robust(search)),
        (None, ControllerKind::Classic) => ControllerSettings::Classic(classic(search)),
    };
    let first_load_per_s =
        search.first_load.unwrap_or((FIRST_SAMPLE_REQUESTS / sample_s).max(FIRST_LOAD_PER_S));
    settings.set_first_load(search.load.unwrap_or(first_load_per_s));
    if let Some(load_max_per_s) = search.load_max {
        settings.set_load_max(load_max_per_s);
    }
    settings
}

fn robust(search: &SearchArgs) -> RobustSettings {
    let defaults = RobustSettings::default();
    RobustSettings {
        percentile: search.percentile,
        hits_added_ms: search.hit_limit.map_or(defaults.hits_added_ms, |limit_s| limit_s * 1e3),
        misses_added_ms: search
            .miss_limit
            .map_or(defaults.misses_added_ms, |limit_s| limit_s * 1e3),
        ..defaults
    }
}

fn classic(search: &SearchArgs) -> ClassicSettings {
    let mut settings = ClassicSettings::default();
    // A limit that is given holds throughout; else the book's apply, which differ while the cache
    // is being filled.
    for window in [&mut settings.measuring, &mut settings.filling] {
        window.min_s = search.rptm_min.unwrap_or(window.min_s);
        window.max_s = search.rptm_max.unwrap_or(window.max_s);
    }
    settings.step_accelerates = !search.even_steps;
    settings
}
