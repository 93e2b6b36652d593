//! `humboldt-lab verify`: the laboratory measures servers of known capacity. Each search is a
//! process of its own, as a user would start it, and so is each server.

use crate::cli::{ControllerKind, KnownServerArgs, VerifyArgs};
use crate::interrupt::Interrupt;
use crate::{Failure, output::say};
use humboldt_lab_origin::known::KnownServer;
use humboldt_lab_record::Run;
use humboldt_lab_workload::Workload;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The workload: small objects of one size, each a miss.
const WORKLOAD: &str = "fixed-1k";

/// Where a search begins, as a part of the capacity: far below and far above.
const BEGINS: [(&str, f64); 2] = [("below", 0.1), ("above", 3.0)];

/// The options of every search.
const SEARCH: [&str; 5] = ["--no-calibration", "--workload", WORKLOAD, "--fill", "1000"];

/// Requests of a sample, unless it would be too long. With 400 of them the load of a sample is 5 %
/// off by chance alone, and half of the results at 100 requests a second were more than 3 % off.
const SAMPLE_REQUESTS: f64 = 4_000.0;

/// Shortest sample, in seconds.
const SAMPLE_MIN_S: f64 = 1.0;

/// Smallest time scale.
const SCALE_MIN: f64 = 0.1;

/// How a controller searches.
struct Course {
    samples: f64,
    /// Longest sample, in seconds.
    sample_max_s: f64,
    /// Time scale × capacity. Limits of response time are scaled too, and before a slow server a
    /// queue reaches a short limit long before the server is busy all the time: with 0.75 s at 97 %
    /// of 100 requests a second.
    scaled_per_s: f64,
    /// Largest time scale.
    scale_max: f64,
}

const ROBUST: Course =
    Course { samples: 40.0, sample_max_s: 20.0, scaled_per_s: 800.0, scale_max: 8.0 };

/// It goes in small steps, and answers all that waits before the next: it needs more samples, and
/// bears shorter ones. It has one limit, of the mean.
const CLASSIC: Course =
    Course { samples: 120.0, sample_max_s: 8.0, scaled_per_s: 400.0, scale_max: 1.0 };

/// Searches run side by side as long as their servers have no more than this capacity together: so
/// they take a few per cent of the processors, which disturbs none of them.
const ABREAST_PER_S_MAX: f64 = 2_000.0;

/// Longest distance from the truth.
const ERROR_MAX: f64 = 0.03;

/// How soon the end of a search is noticed.
const LOOK: Duration = Duration::from_millis(50);

/// `humboldt-lab verify`.
pub(crate) fn verify(arguments: &VerifyArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let burners = Burners::start(arguments.burn).map_err(Failure::run)?;
    let count = arguments.capacity.len() * arguments.controller.len() * BEGINS.len();
    say!("{count} searches on servers of known capacity, {} processors busy\n", arguments.burn);
    say!("capacity  controller  from   served    found  found ÷ capacity");
    let mut results = Results::default();
    for &capacity_per_s in &arguments.capacity {
        let searches = searches(capacity_per_s, &arguments.controller);
        let abreast = (ABREAST_PER_S_MAX / capacity_per_s).max(1.0) as usize;
        for some in searches.chunks(abreast) {
            for (search, found) in side_by_side(some, interrupt) {
                results.take(search, &found?);
            }
        }
    }
    drop(burners);
    conclude(arguments, results.worst, results.unknown, count)
}

/// All searches for one capacity, in the order of the table.
fn searches(capacity_per_s: f64, controllers: &[ControllerKind]) -> Vec<Search> {
    let of_controller = |&controller| {
        BEGINS.map(|(side, share)| Search { capacity_per_s, controller, side, share })
    };
    controllers.iter().flat_map(of_controller).collect()
}

/// Runs these searches at the same time.
fn side_by_side(
    searches: &[Search],
    interrupt: &Interrupt,
) -> Vec<(Search, Result<Found, Failure>)> {
    std::thread::scope(|scope| {
        let begin = |search: &Search| {
            let search = *search;
            (search, scope.spawn(move || search.run(interrupt)))
        };
        let running: Vec<_> = searches.iter().map(begin).collect();
        let panicked = |_| Err(Failure::run("a search panicked"));
        running
            .into_iter()
            .map(|(search, run)| (search, run.join().unwrap_or_else(panicked)))
            .collect()
    })
}

/// What the searches have found until now.
#[derive(Default)]
struct Results {
    /// Greatest distance from the truth.
    worst: Option<f64>,
    /// Searches without a result.
    unknown: usize,
}

impl Results {
    /// Prints and counts a result.
    fn take(&mut self, search: Search, found: &Found) {
        let row = Row { search, served_per_s: found.served_per_s };
        let Some(found_per_s) = found.run.summary.sustained_per_s else {
            self.unknown += 1;
            return row.say_unknown(&found.run);
        };
        let error = (found_per_s / search.capacity_per_s - 1.0).abs();
        self.worst = Some(self.worst.unwrap_or_default().max(error));
        row.say_found(found_per_s, found.run.summary.limit_reached);
    }
}

fn conclude(
    arguments: &VerifyArgs,
    worst: Option<f64>,
    unknown: usize,
    searches: usize,
) -> Result<(), Failure> {
    say!("\n{}", not_measured(unknown, searches));
    let most = 100.0 * ERROR_MAX;
    if let Some(worst) = worst {
        say!("farthest from the truth: {:.1} % (at most {most:.0} %)", 100.0 * worst);
    }
    match worst {
        Some(worst) if worst > ERROR_MAX => {
            Err(Failure::run("a result is farther from the truth than it may be"))
        }
        // No result is no error where the machine is kept busy on purpose.
        _ if unknown > 0 && arguments.burn == 0 => {
            Err(Failure::run(format_args!("{unknown} searches have no result")))
        }
        _ => Ok(()),
    }
}

fn not_measured(unknown: usize, searches: usize) -> String {
    format!("{unknown} of {searches} not measured")
}

/// One search.
#[derive(Copy, Clone)]
struct Search {
    capacity_per_s: f64,
    controller: ControllerKind,
    /// From below or from above.
    side: &'static str,
    /// First load ÷ capacity.
    share: f64,
}

/// What a search found, and the capacity that the server had.
struct Found {
    run: Run,
    served_per_s: f64,
}

impl Search {
    fn run(&self, interrupt: &Interrupt) -> Result<Found, Failure> {
        let out = tempfile::tempdir().map_err(Failure::run)?;
        let mut server = Server::start(self.capacity_per_s).map_err(Failure::run)?;
        let folder = out.path().join("run");
        let mut search = self.command(&server, &folder).spawn().map_err(Failure::run)?;
        while search.try_wait().map_err(Failure::run)?.is_none() {
            if interrupt.is_set() {
                // It has got the signal too, if that came from the terminal.
                _ = search.kill();
                _ = search.wait();
                return Err(Failure::interrupted());
            }
            std::thread::sleep(LOOK);
        }
        let said = read_all(search.stderr.take());
        let run = humboldt_lab_report::read_run(&folder)
            .map_err(|_| Failure::run(format_args!("the search failed: {}", said.trim())))?;
        Ok(Found { run, served_per_s: server.stop().map_err(Failure::run)? })
    }

    fn command(&self, server: &Server, folder: &Path) -> Command {
        let course = match self.controller {
            ControllerKind::Robust => ROBUST,
            ControllerKind::Classic => CLASSIC,
        };
        let sample_s =
            (SAMPLE_REQUESTS / self.capacity_per_s).clamp(SAMPLE_MIN_S, course.sample_max_s);
        let scale = (course.scaled_per_s / self.capacity_per_s).clamp(SCALE_MIN, course.scale_max);
        let mut command = Command::new("/proc/self/exe");
        command.args(["peak", "--attach", &server.url, "--pid", &server.child.id().to_string()]);
        command.args(["--controller", name(self.controller)]).args(SEARCH);
        command.args(["--time-scale", &scale.to_string()]);
        command.args(["--sample", &format!("{}s", sample_s / scale)]);
        command.args(["--time-max", &format!("{}s", sample_s * course.samples)]);
        command.args(["--first-load", &format!("{}", self.capacity_per_s * self.share)]);
        command.arg("--out").arg(folder).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }
}

fn name(controller: ControllerKind) -> &'static str {
    match controller {
        ControllerKind::Robust => "robust",
        ControllerKind::Classic => "classic",
    }
}

/// A row of the table.
struct Row {
    search: Search,
    served_per_s: f64,
}

impl Row {
    fn begin(&self) -> String {
        let Search { capacity_per_s, controller, side, .. } = &self.search;
        let served = format!("{:.0}", self.served_per_s);
        format!("{capacity_per_s:>8}  {:<10}  {:<5}  {served:>6}", name(*controller), side)
    }

    fn say_found(&self, found_per_s: f64, limit_reached: Option<bool>) {
        let ratio = found_per_s / self.search.capacity_per_s;
        let remark = if limit_reached == Some(true) { "" } else { "  (a lower bound)" };
        say!("{}  {found_per_s:>7.1}  {ratio:.3}{remark}", self.begin());
    }

    fn say_unknown(&self, run: &Run) {
        let why = run.summary.lab_limited.as_deref().unwrap_or("no load was sustained");
        say!("{}  not measured: {why}", self.begin());
    }
}

/// A server as a process of its own. It ends when its standard input does.
struct Server {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    url: String,
}

impl Server {
    fn start(capacity_per_s: f64) -> std::io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["known-server", &capacity_per_s.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let none = || std::io::Error::other("the server of known capacity says nothing");
        let mut out = BufReader::new(child.stdout.take().ok_or_else(none)?);
        let mut url = String::new();
        out.read_line(&mut url)?;
        Ok(Self { child, out, url: url.trim().to_owned() })
    }

    /// Ends it; returns the capacity that it had.
    fn stop(&mut self) -> std::io::Result<f64> {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.out.read_to_string(&mut said)?;
        self.child.wait()?;
        said.trim()
            .parse()
            .map_err(|_| std::io::Error::other("the server of known capacity failed"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn read_all(from: Option<impl Read>) -> String {
    let mut text = String::new();
    if let Some(mut from) = from {
        _ = from.read_to_string(&mut text);
    }
    text
}

/// Threads that keep processors busy, until this is dropped.
struct Burners {
    is_over: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Burners {
    fn start(count: usize) -> std::io::Result<Self> {
        let mut burners = Self { is_over: Arc::default(), threads: Vec::new() };
        for _ in 0..count {
            let is_over = Arc::clone(&burners.is_over);
            let burn = move || {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            burners.threads.push(std::thread::Builder::new().name("burner".into()).spawn(burn)?);
        }
        Ok(burners)
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| _ = thread.join());
    }
}

/// `humboldt-lab known-server`: the server of a search, until its standard input ends.
pub(crate) fn known_server(
    arguments: &KnownServerArgs,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let workload = Workload::builtin(WORKLOAD).ok_or_else(|| Failure::run("no workload"))?;
    let workload = workload.map_err(Failure::run)?;
    let server = KnownServer::start(workload, 1, arguments.capacity_per_s).map_err(Failure::run)?;
    say!("{}", server.url());
    let ends = std::thread::spawn(|| _ = std::io::stdin().lock().read_to_end(&mut Vec::new()));
    while !interrupt.is_set() && !ends.is_finished() {
        interrupt.wait_until(Instant::now() + LOOK, || ends.is_finished());
    }
    say!("{}", server.stop().map_err(Failure::run)?.capacity_per_s());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_counted() {
        assert_eq!(not_measured(2, 12), "2 of 12 not measured");
    }
}
