//! The subject and what it runs on: chosen, prepared, started; stopped and cleared away.

use crate::Failure;
use crate::cli::{GroundArgs, PeakArgs};
use crate::cores::Shares;
use crate::interrupt::Interrupt;
use crate::units;
use humboldt_lab_record::Manifest;
use humboldt_lab_subjects::{
    Environment, EnvironmentPlan, Host, Keeper, Mode, Running, StartPlan, StoreKind, SubjectFile, Throttle,
    attach, start,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Cache size of a run that is not told otherwise.
pub(crate) const CACHE_BYTES: u64 = 1 << 30;

/// What is to be measured.
pub(crate) enum Choice {
    /// A subject that the laboratory starts.
    Started(Box<SubjectFile>),
    /// One that runs already.
    Attached { url: String, mode: Mode, pid: Option<u32> },
}

impl Choice {
    /// From the command line: a built-in name, a file, or a URL.
    pub(crate) fn new(arguments: &PeakArgs) -> Result<Self, Failure> {
        if let Some(url) = &arguments.attach {
            let mode = if arguments.accelerator { Mode::Accelerator } else { Mode::Forward };
            return Ok(Self::Attached { url: url.clone(), mode, pid: arguments.pid });
        }
        let name = arguments.subject.as_deref().unwrap_or_default();
        let file = subject_file(name)?;
        Ok(Self::Started(Box::new(file)))
    }

    /// Its name in tables.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Started(file) => file.name().to_owned(),
            Self::Attached { url, .. } => url.clone(),
        }
    }

    /// Whether answers to reloads may come from its store.
    pub(crate) fn excuse_reload_hits(&self) -> bool {
        match self {
            Self::Started(file) => file.excuse_reload_hits(),
            Self::Attached { .. } => false,
        }
    }
}

/// A built-in subject, or a file of the user's: `PATH` or `PATH:VARIANT`.
pub(crate) fn subject_file(name: &str) -> Result<SubjectFile, Failure> {
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
    let text = std::fs::read_to_string(path).map_err(|error| Failure::usage(format!("{path}: {error}")))?;
    SubjectFile::parse(&text, path, variant).map_err(Failure::usage)
}

/// A subject that runs, on its ground. Dropping it stops and removes both.
pub(crate) struct Ground {
    pub(crate) running: Running,
    environment: Option<Environment>,
    keeper: Option<Keeper>,
}

impl Ground {
    /// Prepares the environment and starts the subject.
    pub(crate) fn prepare(
        choice: &Choice,
        arguments: &GroundArgs,
        cache_bytes: u64,
        origins: &[SocketAddr],
        shares: &Shares,
    ) -> Result<Self, Failure> {
        let host = Host::current();
        let file = match choice {
            Choice::Attached { url, mode, pid } => {
                let running = attach(url, *mode, *pid, &host).map_err(Failure::usage)?;
                return Ok(Self { running, environment: None, keeper: None });
            }
            Choice::Started(file) => file,
        };
        let words = variables(&arguments.variables)?;
        let keeper = Keeper::start(keeper_command()?).map_err(Failure::run)?;
        let plan = environment_plan(arguments, host, cache_bytes)?;
        let mut environment = Environment::prepare(&plan, &keeper).map_err(Failure::run)?;
        if arguments.drop_caches {
            environment.drop_page_caches();
        }
        let plan = StartPlan {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            origins: origins.to_vec(),
            mode: None,
            cache_bytes,
            memory_bytes: arguments.memory,
            cores: shares.subject.clone(),
            cpu_quota: arguments.cpu_quota,
            words,
        };
        let running = start(file, &mut environment, &plan, &keeper).map_err(Failure::run)?;
        Ok(Self { running, environment: Some(environment), keeper: Some(keeper) })
    }

    /// What the manifest says about subject and environment.
    pub(crate) fn describe(&self, manifest: &mut Manifest) {
        let found = humboldt_lab_subjects::manifest(
            &manifest.lab_version,
            &Host::current(),
            self.environment.as_ref(),
            &self.running,
        );
        manifest.facts.extend(found.facts);
        manifest.files.extend(found.files);
        manifest.skipped.extend(found.skipped);
    }

    /// Stops the subject and clears everything away.
    pub(crate) fn clear(self) -> Result<(), Failure> {
        let stopped = self.running.stop().map(drop).map_err(Failure::run);
        let removed = self.environment.map_or(Ok(()), Environment::remove).map_err(Failure::run);
        drop(self.keeper);
        stopped.and(removed)
    }
}

/// Waits before a run as long as is asked for: file systems punish creating files soon after deleting many.
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

fn environment_plan(
    arguments: &GroundArgs,
    host: Host,
    cache_bytes: u64,
) -> Result<EnvironmentPlan, Failure> {
    let store_kind = match &arguments.fs {
        None => StoreKind::Folder(None),
        Some(fs) => StoreKind::Device {
            file_system: fs.clone(),
            size_bytes: None,
            mount_options: list(arguments.mount_options.as_deref()),
        },
    };
    let throttle = Throttle {
        read_iops: arguments.read_iops.unwrap_or(0),
        write_iops: arguments.write_iops.unwrap_or(0),
        read_bytes_per_s: arguments.read_rate.unwrap_or(0),
        write_bytes_per_s: arguments.write_rate.unwrap_or(0),
    };
    if cache_bytes / u64::from(arguments.spindles) < 1 << 20 {
        return Err(Failure::usage(format!(
            "{} on {} stores is less than 1 MB each: choose a larger --cache-size",
            units::show_bytes(cache_bytes),
            arguments.spindles
        )));
    }
    Ok(EnvironmentPlan {
        host,
        parent: arguments.ground.clone(),
        keep_folder: arguments.keep,
        stores: arguments.spindles,
        cache_bytes,
        store_kind,
        throttle: (throttle != Throttle::default()).then_some(throttle),
    })
}

fn variables(list: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let pairs = list.iter().map(|text| {
        let pair = text.split_once('=').map(|(name, value)| (name.trim().to_owned(), value.to_owned()));
        pair.ok_or_else(|| Failure::usage(format!("--set {text}: write it as NAME=VALUE")))
    });
    pairs.collect()
}
