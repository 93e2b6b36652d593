//! `humboldt-lab tunnel`: how fast a proxy makes tunnels (CONNECT), and how many bytes go through.
//!
//! far end → subject → set-ups → download → upload → stop and clear away → results.

mod results;

use super::bang::ground_option;
use crate::Failure;
use crate::cli::TunnelArgs;
use crate::cores::Shares;
use crate::experiment::{
    CACHE_BYTES, Choice, Ground, Size, attached_proxy, check_stores, provenance, rest, subject_file,
};
use crate::interrupt::Interrupt;
use crate::version::VERSION;
use humboldt_lab_record::Manifest;
use humboldt_lab_robots::{FarEnd, TunnelTick, Tunnels};
use humboldt_lab_subjects::{Host, Mode, machine};
use humboldt_lab_wire::raise_descriptor_limit;
use indicatif::{ProgressBar, ProgressStyle};
use results::{Measured, Results};

/// The three measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    SetUps,
    Download,
    Upload,
}

impl Part {
    const ALL: [Self; 3] = [Self::SetUps, Self::Download, Self::Upload];

    fn name(self) -> &'static str {
        match self {
            Self::SetUps => "set-ups",
            Self::Download => "download",
            Self::Upload => "upload",
        }
    }
}

/// `humboldt-lab tunnel`.
pub(crate) fn tunnel(arguments: &TunnelArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    // With few tunnels the limit does not matter; with many, the system reports it.
    let _ = raise_descriptor_limit();
    let choice = choice(arguments)?;
    let folder = arguments.out.as_deref().map(results::prepare).transpose()?;
    let lab = arguments.lab_cores.as_deref();
    let shares = Shares::new(arguments.ground.subject_cores.as_deref(), lab)?;
    // A running proxy is where it is; then only the option decides.
    let cores = match (&arguments.subject, lab) {
        (Some(_), _) => shares.lab.clone(),
        (None, lab) => lab.unwrap_or_default().to_vec(),
    };
    let far = FarEnd::start(arguments.far, cores.last().copied()).map_err(Failure::usage)?;
    rest(&arguments.ground, interrupt);
    let origins = [far.address()];
    let cache_bytes = arguments.ground.cache_size.unwrap_or(CACHE_BYTES);
    let size = Size { cache_bytes, instances: 1, origins: &origins, tls: None };
    let mut ground = Ground::prepare(&choice, &arguments.ground, &size, &shares)?;
    let mut results = Results::new(choice.name(), arguments.tunnels, manifest(&ground));
    let mut outcome = pin(&cores);
    for part in Part::ALL {
        outcome = outcome.and_then(|()| {
            let measured = measure(part, arguments, &far, &mut ground, interrupt)?;
            results.parts.push(measured);
            ground.check()?;
            if interrupt.is_set() { Err(Failure::interrupted()) } else { Ok(()) }
        });
    }
    let cleared = ground.clear();
    results.show(arguments.json)?;
    let written = folder.map_or(Ok(()), |folder| results.write(&folder));
    outcome.and_then(|()| results.verdict()).and(cleared).and(written)
}

/// The proxy, checked as far as that can be done before anything is started.
fn choice(arguments: &TunnelArgs) -> Result<Choice, Failure> {
    let Some(name) = arguments.subject.as_deref() else {
        if let Some(option) = ground_option(&arguments.ground) {
            return Err(Failure::usage(format!(
                "{option} is about a cache that is started: give --subject"
            )));
        }
        return attached_proxy(arguments.attach.as_deref().unwrap_or_default(), arguments.pid);
    };
    let file = subject_file(name, &arguments.ground)?;
    if file.mode() != Mode::Forward {
        return Err(Failure::usage(format!("{name} is an accelerator and makes no tunnels")));
    }
    check_stores(&arguments.ground, 1, arguments.ground.cache_size.unwrap_or(CACHE_BYTES))?;
    Ok(Choice::Started(Box::new(file)))
}

fn manifest(ground: &Ground) -> Manifest {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut manifest = Manifest { lab_version: VERSION.clone(), ..Manifest::default() };
    // There is no workload.
    manifest.provenance = provenance(None, None);
    manifest.provenance.machine = machine(&Host::current());
    manifest.facts.push(("command".to_owned(), format!("humboldt-lab {}", arguments.join(" "))));
    ground.describe(&mut manifest);
    manifest
}

/// Keeps this thread, which is the near end, on the laboratory's processors.
fn pin(cores: &[usize]) -> Result<(), Failure> {
    let Some(first) = cores.first() else { return Ok(()) };
    humboldt_lab_wire::pin(*first)
        .map_err(|error| Failure::run(format!("cannot use processor {first}: {error}")))
}

/// One of the measurements.
fn measure(
    part: Part,
    arguments: &TunnelArgs,
    far: &FarEnd,
    ground: &mut Ground,
    interrupt: &Interrupt,
) -> Result<Measured, Failure> {
    let proxy = ground.addresses().first().copied();
    let proxy = proxy.ok_or_else(|| Failure::run("the proxy has no address"))?;
    let each = (arguments.bytes / u64::from(arguments.tunnels)).max(1);
    let (up_bytes, down_bytes) = match part {
        Part::SetUps => (0, 1),
        Part::Download => (0, each),
        // One that says that the tunnel is open, and one that says that all was right.
        Part::Upload => (each, 2),
    };
    let plan = Tunnels {
        proxy,
        tunnels: arguments.tunnels as usize,
        up_bytes,
        down_bytes,
        renews: part == Part::SetUps,
        time_max_s: arguments.seconds,
        timeout_s: arguments.timeout,
    };
    let bar = progress_bar(part, arguments.seconds);
    let cpu_us =
        |ground: &Ground| ground.resources().map(|used| used.cpu.user_us + used.cpu.system_us);
    let before_us = cpu_us(ground);
    let mut failure = None;
    let report = plan.run(far, &mut |tick: TunnelTick| {
        bar.set_position(tick.at_us / 1_000);
        bar.set_message(progress(part, tick));
        failure = ground.check().err();
        failure.is_none() && !interrupt.is_set()
    });
    bar.finish_and_clear();
    let report = report.map_err(Failure::run)?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    let used_us = before_us.zip(cpu_us(ground)).map(|(before, after)| after.saturating_sub(before));
    Ok(Measured::new(part.name(), part == Part::SetUps, &report, used_us))
}

fn progress(part: Part, tick: TunnelTick) -> String {
    let per_us = |count: u64| count as f64 / tick.at_us.max(1) as f64;
    let rate = match part {
        Part::SetUps => format!("{:.0}/s", per_us(tick.done) * 1e6),
        Part::Download | Part::Upload => format!("{:.3} GB/s", per_us(tick.bytes) / 1e3),
    };
    format!("{rate}, {} errors", tick.faults)
}

/// A bar on a terminal, and nothing elsewhere. It shows the time that may pass.
fn progress_bar(part: Part, seconds: f64) -> ProgressBar {
    let bar = ProgressBar::new((seconds * 1e3) as u64);
    if let Ok(style) = ProgressStyle::with_template("{prefix:>8} [{bar:40}] {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(part.name());
    bar.set_draw_target(crate::output::bars());
    bar
}
