//! The subject and its environment: chosen, prepared, started; stopped and removed.

use super::SITE;
use crate::Failure;
use crate::cli::{GroundArgs, PeakArgs, TlsKind};
use crate::cores::Shares;
use crate::interrupt::Interrupt;
use crate::tls::Place;
use crate::units;
use humboldt_lab_record::{Manifest, Resources};
use humboldt_lab_subjects::{
    Environment, EnvironmentPlan, Host, Keeper, Mode, Running, StartPlan, SteadySpeed, StoreKind,
    SubjectFile, SubjectTls, Throttle, attach, check_disks, check_file_system, reach, start,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Cache size of a run that is not told otherwise.
pub(crate) const CACHE_BYTES: u64 = 1 << 30;

/// The subject of the measurement.
pub(crate) enum Choice {
    /// A subject that the laboratory starts.
    Started(Box<SubjectFile>),
    /// One that runs already.
    Attached { url: String, mode: Mode, pid: Option<u32> },
}

impl Choice {
    /// From the command line: a built-in name, a file, or a URL. A subject that is to be started
    /// has `cache_bytes` to store in.
    pub(crate) fn new(arguments: &PeakArgs, cache_bytes: u64) -> Result<Self, Failure> {
        if let Some(url) = &arguments.attach {
            let mode = if arguments.accelerator { Mode::Accelerator } else { Mode::Forward };
            check_scheme(url, mode, arguments.tls.tls)?;
            if let Some(option) = start_option(&arguments.ground) {
                return Err(Failure::usage(format!(
                    "{option} is about a cache that is started, and {url} runs already: leave it out"
                )));
            }
            return Ok(Self::Attached { url: url.clone(), mode, pid: arguments.pid });
        }
        check_stores(&arguments.ground, arguments.instances, cache_bytes)?;
        let name = arguments.subject.as_deref().unwrap_or_default();
        Ok(Self::Started(Box::new(subject_file(name, &arguments.ground)?)))
    }

    /// Checks what would fail only after the calibration: an attached cache accepts connections,
    /// and stores on this file system can be made.
    pub(crate) fn check_place(&self, ground: &GroundArgs, cache_bytes: u64) -> Result<(), Failure> {
        if let Self::Attached { url, .. } = self {
            return reach(url).map(drop).map_err(Failure::usage);
        }
        let Some(file_system) = ground.fs.as_deref() else { return Ok(()) };
        let host = Host::current();
        check_file_system(&host, file_system).map_err(Failure::usage)?;
        if ground.disk_speed.is_none() {
            return Ok(());
        }
        let stores = (ground.spindles, cache_bytes);
        check_disks(&host, file_system, stores, ground.device_size).map_err(Failure::usage)
    }

    /// Its name in tables.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Started(file) => file.name().to_owned(),
            Self::Attached { url, .. } => url.clone(),
        }
    }

    /// The place that users connect to.
    pub(crate) fn place(&self) -> Place<'_> {
        match self {
            Self::Started(file) => Place::Started(file),
            Self::Attached { mode, .. } => Place::Running(*mode),
        }
    }

    /// The host that an accelerator is asked for. One that runs already and has a certificate is
    /// asked for the host of its URL.
    pub(crate) fn site(&self) -> &str {
        let Self::Attached { url, .. } = self else { return SITE };
        url.strip_prefix("https://").map_or(SITE, |rest| rest.trim_end_matches('/'))
    }

    /// Whether answers to reloads may come from its store.
    pub(crate) fn excuse_reload_hits(&self) -> bool {
        match self {
            Self::Started(file) => file.excuse_reload_hits(),
            Self::Attached { .. } => false,
        }
    }
}

/// The first option that says how a cache is started: one that runs already knows nothing of it.
pub(crate) fn start_option(ground: &GroundArgs) -> Option<&'static str> {
    let given = [
        (ground.fs.is_some(), "--fs"),
        (ground.spindles > 1, "--spindles"),
        (ground.cpu_quota.is_some(), "--cpu-quota"),
        (ground.cpu_speed.is_some(), "--cpu-speed"),
        (ground.memory_limit.is_some(), "--memory-limit"),
        (ground.ground.is_some(), "--ground"),
        (ground.dirty_limit.is_some(), "--dirty-limit"),
        (ground.program.is_some(), "--program"),
        (ground.drop_caches, "--drop-caches"),
        (!ground.variables.is_empty(), "--set"),
    ];
    given.into_iter().find_map(|(is_given, option)| is_given.then_some(option))
}

/// A proxy that runs already, and accepts connections.
pub(crate) fn attached_proxy(url: &str, pid: Option<u32>) -> Result<Choice, Failure> {
    check_scheme(url, Mode::Forward, None)?;
    reach(url).map_err(Failure::usage)?;
    Ok(Choice::Attached { url: url.to_owned(), mode: Mode::Forward, pid })
}

/// An accelerator's URL and `--tls` must say the same.
fn check_scheme(url: &str, mode: Mode, tls: Option<TlsKind>) -> Result<(), Failure> {
    let is_https = url.starts_with("https://");
    if is_https && mode == Mode::Forward {
        return Err(Failure::usage(format!(
            "{url}: only an accelerator is reached by https: give --accelerator, or the http:// URL of a proxy"
        )));
    }
    match tls {
        None if is_https => Err(Failure::usage(format!(
            "{url}: give --tls accelerator, and its authority with --authority FILE"
        ))),
        Some(TlsKind::Accelerator) if !is_https => {
            Err(Failure::usage(format!("{url}: with --tls accelerator it must be an https:// URL")))
        }
        _ => Ok(()),
    }
}

/// The subject of this name, with the program that is asked for.
pub(crate) fn subject_file(name: &str, arguments: &GroundArgs) -> Result<SubjectFile, Failure> {
    let file = named_subject(name)?;
    let Some(program) = &arguments.program else { return Ok(file) };
    // The subject runs in a folder of its own.
    let program = std::path::absolute(program).map_err(Failure::usage)?;
    Ok(file.with_program(&program))
}

/// A built-in subject, or a file of the user's: `PATH` or `PATH:VARIANT`.
pub(crate) fn named_subject(name: &str) -> Result<SubjectFile, Failure> {
    if let Some(builtin) = SubjectFile::builtin(name) {
        return builtin.map_err(Failure::usage);
    }
    let (path, variant) = match name.rsplit_once(':') {
        Some((path, variant)) if !Path::new(name).exists() => (path, Some(variant)),
        _ => (name, None),
    };
    if !Path::new(path).exists() {
        return Err(Failure::usage(format!(
            "there is no subject `{name}` and no such file; `humboldt-lab subjects` lists the built-in ones"
        )));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("{path}: {error}")))?;
    SubjectFile::parse(&text, path, variant).map_err(Failure::usage)
}

/// A subject that runs, on its ground. Dropping it stops and removes both.
pub(crate) struct Ground {
    /// At least one; several are a cache together.
    instances: Vec<Instance>,
    keeper: Option<Keeper>,
}

/// One process, or one tree of them, with stores of its own.
struct Instance {
    running: Running,
    environment: Option<Environment>,
}

/// Size, number and environment of the instances.
pub(crate) struct Size<'a> {
    /// Of all instances together, in bytes.
    pub(crate) cache_bytes: u64,
    pub(crate) instances: u32,
    pub(crate) origins: &'a [SocketAddr],
    /// TLS that the cache ends.
    pub(crate) tls: Option<SubjectTls>,
}

impl Ground {
    /// Prepares the environment and starts the subject.
    pub(crate) fn prepare(
        choice: &Choice,
        arguments: &GroundArgs,
        size: &Size<'_>,
        shares: &Shares,
    ) -> Result<Self, Failure> {
        let file = match choice {
            Choice::Attached { url, mode, pid } => {
                let running = attach(url, *mode, *pid, &Host::current()).map_err(Failure::usage)?;
                return Ok(Self {
                    instances: vec![Instance { running, environment: None }],
                    keeper: None,
                });
            }
            Choice::Started(file) => file,
        };
        let plan = start_plan(arguments, size, shares)?;
        let mut environment_plan = environment_plan(arguments, size);
        let keeper = Keeper::start(keeper_command()?).map_err(Failure::run)?;
        let mut instances = Vec::new();
        for _ in 0..size.instances {
            let mut environment =
                Environment::prepare(&environment_plan, &keeper).map_err(Failure::run)?;
            if arguments.drop_caches {
                environment.drop_page_caches();
            }
            // It is the machine's, not an instance's: set once, and taken back once.
            environment_plan.dirty_bytes_max = None;
            let running = start(file, &mut environment, &plan, &keeper).map_err(Failure::run)?;
            instances.push(Instance { running, environment: Some(environment) });
        }
        Ok(Self { instances, keeper: Some(keeper) })
    }

    /// The addresses on which the instances accept connections.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.instances.iter().map(|instance| instance.running.address()).collect()
    }

    /// The mode of the clients' requests.
    pub(crate) fn mode(&self) -> Mode {
        self.instances.first().map_or(Mode::Forward, |instance| instance.running.mode())
    }

    /// Resources of all of them until now; `None` if they are not watched.
    pub(crate) fn resources(&self) -> Option<Resources> {
        self.sum(Running::resources)
    }

    /// The same without what they say about their stores: waits for nothing.
    pub(crate) fn used(&self) -> Option<Resources> {
        self.sum(Running::used)
    }

    fn sum(&self, of: fn(&Running) -> Option<Resources>) -> Option<Resources> {
        let each = self.instances.iter().map(|instance| of(&instance.running));
        each.reduce(|all, one| all.zip(one).map(|(all, one)| all.beside(&one))).flatten()
    }

    /// All processes of all of them; `None` if they are not watched.
    pub(crate) fn processes(&self) -> Option<BTreeSet<i32>> {
        self.instances.iter().map(|instance| instance.running.processes()).try_fold(
            BTreeSet::new(),
            |mut all, one| {
                all.extend(one?);
                Some(all)
            },
        )
    }

    /// Resources of all of them, once a second since the last call.
    pub(crate) fn take_history(&self) -> Vec<Resources> {
        let histories = self.instances.iter().map(|instance| instance.running.take_history());
        let beside = |all: Vec<Resources>, one: Vec<Resources>| {
            all.iter().zip(&one).map(|(all, one)| all.beside(one)).collect()
        };
        histories.reduce(beside).unwrap_or_default()
    }

    /// Whether all of them still run.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        self.instances
            .iter_mut()
            .try_for_each(|instance| instance.running.check())
            .map_err(Failure::run)
    }

    /// The manifest's facts about subject and environment; of several instances, about the first.
    pub(crate) fn describe(&self, manifest: &mut Manifest) {
        let Some(first) = self.instances.first() else { return };
        if self.instances.len() > 1 {
            manifest
                .facts
                .push(("Instances of the subject".to_owned(), self.instances.len().to_string()));
        }
        let found = humboldt_lab_subjects::manifest(
            &manifest.lab_version,
            &Host::current(),
            first.environment.as_ref(),
            &first.running,
        );
        let origin = found.provenance;
        manifest.provenance.subject = origin.subject;
        manifest.provenance.machine = origin.machine;
        manifest.provenance.stores = origin.stores;
        manifest.facts.extend(found.facts);
        manifest.files.extend(found.files);
        manifest.skipped.extend(found.skipped);
        for instance in self.instances.iter().skip(1) {
            let others = instance.running.skipped().iter().map(ToString::to_string);
            for skipped in others {
                if !manifest.skipped.contains(&skipped) {
                    manifest.skipped.push(skipped);
                }
            }
        }
    }

    /// Stops the subject and clears everything away.
    pub(crate) fn clear(self) -> Result<(), Failure> {
        let mut result = Ok(());
        for instance in self.instances {
            let stopped = instance.running.stop().map(drop).map_err(Failure::run);
            let removed =
                instance.environment.map_or(Ok(()), Environment::remove).map_err(Failure::run);
            result = result.and(stopped).and(removed);
        }
        drop(self.keeper);
        result
    }
}

/// The start of each instance: with its part of everything.
fn start_plan(
    arguments: &GroundArgs,
    size: &Size<'_>,
    shares: &Shares,
) -> Result<StartPlan, Failure> {
    let instances = u64::from(size.instances);
    Ok(StartPlan {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        origins: size.origins.to_vec(),
        mode: None,
        cache_bytes: size.cache_bytes / instances,
        memory_bytes: arguments.memory / instances,
        cores: shares.subject.clone(),
        cpu_quota: arguments.cpu_quota.map(|quota| quota / f64::from(size.instances)),
        cpu_speed: arguments.cpu_speed.map(|speed| SteadySpeed {
            speed: speed / f64::from(size.instances),
            cores_max: shares.subject.len() as f64 / f64::from(size.instances),
        }),
        memory_limit_bytes: arguments.memory_limit.map(|bytes| bytes / instances),
        words: variables(&arguments.variables)?,
        tls: size.tls.clone(),
    })
}

/// Waits before a run as long as is asked for: file systems punish creating files soon after
/// deleting many.
pub(crate) fn rest(arguments: &GroundArgs, interrupt: &Interrupt) {
    interrupt.wait_until(Instant::now() + Duration::from_secs_f64(arguments.rest), || false);
}

/// The keeper is this program, under another name of a command.
fn keeper_command() -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe().map_err(Failure::run)?);
    command.arg("keeper");
    Ok(command)
}

fn list(options: Option<&str>) -> Vec<String> {
    let words = options.unwrap_or_default().split(',').map(str::trim);
    words.filter(|word| !word.is_empty()).map(ToOwned::to_owned).collect()
}

/// Whether the stores can be divided among the instances, and are large enough.
pub(crate) fn check_stores(
    arguments: &GroundArgs,
    instances: u32,
    cache_bytes: u64,
) -> Result<(), Failure> {
    if !arguments.spindles.is_multiple_of(instances) {
        return Err(Failure::usage(format!(
            "{} stores cannot be shared out evenly among {instances} instances: choose --spindles so that they can",
            arguments.spindles
        )));
    }
    if cache_bytes / u64::from(arguments.spindles) < 1 << 20 {
        return Err(Failure::usage(format!(
            "{} on {} stores is less than 1 MB each: choose a larger --cache-size",
            units::show_bytes(cache_bytes),
            arguments.spindles
        )));
    }
    Ok(())
}

/// The environment of each instance.
fn environment_plan(arguments: &GroundArgs, size: &Size<'_>) -> EnvironmentPlan {
    let store_kind = match &arguments.fs {
        None => StoreKind::Folder(None),
        Some(fs) => StoreKind::Device {
            file_system: fs.clone(),
            size_bytes: arguments.device_size,
            mount_options: list(arguments.mount_options.as_deref()),
            disk: arguments.disk_speed,
        },
    };
    let throttle = Throttle {
        read_iops: arguments.read_iops.unwrap_or(0),
        write_iops: arguments.write_iops.unwrap_or(0),
        read_bytes_per_s: arguments.read_rate.unwrap_or(0),
        write_bytes_per_s: arguments.write_rate.unwrap_or(0),
    };
    EnvironmentPlan {
        host: Host::current(),
        parent: arguments.ground.clone(),
        keep_folder: arguments.keep,
        stores: arguments.spindles / size.instances,
        cache_bytes: size.cache_bytes / u64::from(size.instances),
        store_kind,
        throttle: (throttle != Throttle::default()).then_some(throttle),
        dirty_bytes_max: arguments.dirty_limit,
    }
}

fn variables(list: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let pairs = list.iter().map(|text| {
        let pair =
            text.split_once('=').map(|(name, value)| (name.trim().to_owned(), value.to_owned()));
        pair.ok_or_else(|| Failure::usage(format!("--set {text}: write it as NAME=VALUE")))
    });
    pairs.collect()
}
