//! `bench restart`: how long after its start a cache answers from its disk, with millions of
//! objects there.
//!
//! Humboldt's stores are built by an example of `humboldt-schemes`, through the same interface as
//! the proxy's; Squid's by Squid itself, of as many objects as that takes seconds. The files are
//! taken out of the page cache before each start.

use super::client::Client;
use super::drive::{Drive, url};
use super::load::Deadline;
use super::report::Report;
use super::store::subjects::{Family, Kind, Site, Sizes, make_cold, sync, wait_for_line, wanted};
use super::subjects::floor;
use super::{Plan, manager, programs, rest};
use crate::Outcome;
use crate::processes::Running;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Objects of `ring`, unless the command has another number.
pub(super) const RING_OBJECTS: u64 = 10_000_000;

/// Objects of all others: a file for each, or a slot of 16 KiB, of ten million is too much for a
/// benchmark.
const FEW_OBJECTS: u64 = 100_000;

/// Small, because the number of objects matters: with URL, head and header a record of 1 KiB in
/// `ring`.
const BODY_BYTES: usize = 512;
const RECORD_BYTES: u64 = 1024 + 32;
const SLOT_BYTES: u64 = 16 << 10;

/// Seconds to the first hit, at most, with ten million objects.
const CLEAN_LIMIT_S: f64 = 1.0;
const KILLED_LIMIT_S: f64 = 5.0;

/// Known objects that are asked for when the index is complete.
const SAMPLE: u64 = 1_000;

const START_LIMIT: Duration = Duration::from_secs(300);
const POLL_PAUSE: Duration = Duration::from_millis(2);

/// How long new objects are stored before the process is killed.
const LOAD_TIME: Duration = Duration::from_secs(3);

/// The observations of one start; times are seconds since the program was executed.
struct Start {
    kind: Kind,
    how: &'static str,
    objects: u64,
    first_answer_s: f64,
    misses: u64,
    slowest_miss_ms: f64,
    first_hit_s: f64,
    complete_s: f64,
    found: u64,
}

pub(super) fn run(plan: &Plan, ring_objects: u64) -> Outcome {
    let (ring_objects, few_objects) = if plan.quick {
        (ring_objects.min(FEW_OBJECTS), FEW_OBJECTS / 10)
    } else {
        (ring_objects, FEW_OBJECTS)
    };
    let kinds = kinds(plan)?;
    if !plan.quick {
        rest::wait();
    }
    let origin = floor(plan, "origin", plan.load_core)?;
    let mut starts = Vec::new();
    for kind in kinds {
        let is_ring = kind.scheme == "ring";
        let objects = if is_ring { ring_objects } else { few_objects };
        let object_bytes = if is_ring { RECORD_BYTES } else { SLOT_BYTES };
        let capacity_mb = ((objects * object_bytes * 13 / 10) >> 20) + 256;
        let sizes = Sizes::new(capacity_mb, 1024);
        let Some(site) = Site::make(plan, kind, sizes)? else { continue };
        let measured = Measured { plan, site: &site, origin: origin.address, objects };
        match measured.starts(capacity_mb) {
            Ok(measured) => starts.extend(measured),
            Err(error) => println!("note: {} is left out: {error}", kind.name),
        }
    }
    rest::files_were_deleted()?;
    let mut report = Report::new("restart", false);
    print(&mut report, &starts);
    if plan.write { report.write() } else { Ok(()) }
}

/// `ring` and two more, and Squid's, unless others are asked for.
fn kinds(plan: &Plan) -> Outcome<Vec<Kind>> {
    let is_default =
        |kind: &Kind| !plan.schemes.is_empty() || ["ring", "ufs", "rock"].contains(&kind.scheme);
    Ok(wanted(plan)?.into_iter().filter(|kind| kind.scheme != "null" && is_default(kind)).collect())
}

struct Measured<'a> {
    plan: &'a Plan,
    site: &'a Site,
    origin: SocketAddr,
    objects: u64,
}

impl Measured<'_> {
    fn starts(&self, capacity_mb: u64) -> Outcome<Vec<Start>> {
        match self.site.kind.family {
            Family::Humboldt | Family::Old => {
                self.build(capacity_mb)?;
                // The builder's stop is not the proxy's.
                let running = self.launch()?;
                self.wait_complete()?;
                drop(running);
                let (clean, mut running) = self.start("clean stop")?;
                self.kill_under_load(&mut running)?;
                drop(running);
                let (killed, running) = self.start("kill -9 under load")?;
                drop(running);
                Ok(vec![clean, killed])
            }
            Family::Squid => {
                let running = self.launch()?;
                self.wait_complete()?;
                self.fill()?;
                drop(running);
                let (clean, running) = self.start("clean stop")?;
                drop(running);
                Ok(vec![clean])
            }
        }
    }

    /// Builds the store with an example, and gives the files to whom the proxy will be.
    fn build(&self, capacity_mb: u64) -> Outcome {
        let start = Instant::now();
        let store = self.site.store();
        let owner = fs::metadata(first_file(&store)?.unwrap_or_else(|| store.clone()))?;
        let status = Command::new(programs::example("humboldt-schemes", "build_store")?)
            .arg(self.site.kind.scheme)
            .arg(&store)
            .args([capacity_mb, self.objects, BODY_BYTES as u64].map(|number| number.to_string()))
            .arg(format!("http://{}/{BODY_BYTES}/", self.origin))
            .stdin(Stdio::null())
            .status()?;
        if !status.success() {
            return Err(format!("build_store: {status}").into());
        }
        if rustix::process::geteuid().is_root() {
            give(&store, owner.uid(), owner.gid())?;
        }
        sync(&store)?;
        println!(
            "note: {}: {} objects built in {:.0} s",
            self.site.kind.name,
            self.objects,
            start.elapsed().as_secs_f64()
        );
        Ok(())
    }

    fn drive(&self, first: u64, requests: u64, limit: Duration) -> Drive {
        Drive { first, requests, limit, ..Drive::new(self.origin, BODY_BYTES) }
    }

    /// All objects, through the cache itself.
    fn fill(&self) -> Outcome {
        let drive = self.drive(0, self.objects, START_LIMIT);
        drive.run(self.plan, self.site.kind.name, self.site.address())?;
        sync(&self.site.store())
    }

    fn launch(&self) -> Outcome<Running> {
        // Earlier lines would be taken for those of this start.
        match fs::OpenOptions::new().write(true).open(self.cache_log()) {
            Ok(log) => log.set_len(0)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let output = self.site.folder.path().join("output");
        let mut running = Running::pinned(
            self.site.kind.name,
            self.plan.server_core,
            &mut self.site.server(),
            &output,
        )?;
        running.wait_ready(self.site.address())?;
        Ok(running)
    }

    fn cache_log(&self) -> PathBuf {
        self.site.folder.path().join("cache.log")
    }

    fn wait_complete(&self) -> Outcome {
        match self.site.kind.family {
            Family::Humboldt | Family::Old => {
                manager::wait_rebuilt(self.site.address(), START_LIMIT)
            }
            Family::Squid => {
                wait_for_line(&self.cache_log(), "Finished rebuilding storage", START_LIMIT)
            }
        }
    }

    /// Starts it and asks for one known object after the other.
    fn start(&self, how: &'static str) -> Outcome<(Start, Running)> {
        make_cold(&self.site.store())?;
        let deadline = Deadline::after(START_LIMIT);
        let begun = Instant::now();
        let running = self.launch()?;
        while TcpStream::connect(self.site.address()).is_err() {
            deadline.check()?;
            std::thread::sleep(POLL_PAUSE);
        }
        let mut start = Start {
            kind: self.site.kind,
            how,
            objects: self.objects,
            first_answer_s: 0.0,
            misses: 0,
            slowest_miss_ms: 0.0,
            first_hit_s: 0.0,
            complete_s: 0.0,
            found: 0,
        };
        let mut client = Client::connect(self.site.address())?;
        for number in 0.. {
            deadline.check()?;
            let asked = Instant::now();
            let is_hit = self.ask(&mut client, number)?;
            if number == 0 {
                start.first_answer_s = begun.elapsed().as_secs_f64();
            }
            if is_hit {
                start.first_hit_s = begun.elapsed().as_secs_f64();
                break;
            }
            start.misses += 1;
            start.slowest_miss_ms = start.slowest_miss_ms.max(asked.elapsed().as_secs_f64() * 1e3);
            std::thread::sleep(POLL_PAUSE);
        }
        self.wait_complete()?;
        start.complete_s = begun.elapsed().as_secs_f64();
        for number in 0..SAMPLE {
            start.found += u64::from(self.ask(&mut client, u64::MAX / 2 + number)?);
        }
        Ok((start, running))
    }

    /// Whether a known object is a hit. Numbers in a row belong to objects that are far from each
    /// other.
    fn ask(&self, client: &mut Client, number: u64) -> Outcome<bool> {
        let object = spread(number) % self.objects;
        let url = url(self.origin, BODY_BYTES, object);
        let answer = client.get(&url, self.origin)?;
        if answer != (200, BODY_BYTES) {
            return Err(format!("{}: {url}: {answer:?}", self.site.kind.name).into());
        }
        Ok(client.is_hit())
    }

    /// Kills it while new objects come in.
    fn kill_under_load(&self, running: &mut Running) -> Outcome {
        let drive = self.drive(self.objects, 1 << 24, 2 * LOAD_TIME);
        let mut load = drive.start(self.plan, self.site.address())?;
        std::thread::sleep(LOAD_TIME);
        running.kill()?;
        load.wait()?;
        Ok(())
    }
}

/// Splitmix64.
fn spread(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

fn first_file(folder: &Path) -> Outcome<Option<PathBuf>> {
    let files = fs::read_dir(folder)?.filter_map(Result::ok).map(|entry| entry.path());
    Ok(files.into_iter().find(|path| path.is_file()))
}

/// Gives a folder and all that is in it to a user.
fn give(folder: &Path, uid: u32, gid: u32) -> Outcome {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        lchown(entry.path(), Some(uid), Some(gid))?;
        if entry.file_type()?.is_dir() {
            give(&entry.path(), uid, gid)?;
        }
    }
    Ok(())
}

fn print(report: &mut Report, starts: &[Start]) {
    report.prose(&format!(
        "Seconds from the start of the program, objects of {BODY_BYTES} bytes, files not in the page cache. Known objects are \
         requested in sequence; until the first hit each is fetched from its origin. At the end {SAMPLE} known objects are requested."
    ));
    let rows: Vec<Vec<String>> = starts.iter().map(row).collect();
    let heading = [
        "start after",
        "objects",
        "first answer s",
        "first hit s",
        "misses served before it",
        "slowest of them ms",
        "index complete s",
        "found",
        "wanted",
    ];
    report.table(&heading, &rows);
    let mut ratios = Vec::new();
    for squid in starts.iter().filter(|start| start.kind.family == Family::Squid) {
        let ours = starts
            .iter()
            .filter(|start| start.kind.family == Family::Humboldt && start.how == squid.how);
        for ours in ours.filter(|ours| ["ring", squid.kind.scheme].contains(&ours.kind.scheme)) {
            let each_us = |start: &Start| start.complete_s * 1e6 / start.objects as f64;
            ratios.push(vec![
                format!("{} ÷ {}", squid.kind.name, ours.kind.name),
                format!("{:.2}", each_us(squid)),
                format!("{:.2}", each_us(ours)),
                format!("{:.0}", each_us(squid) / each_us(ours)),
            ]);
        }
    }
    if !ratios.is_empty() {
        report.table(&["index complete, µs an object", "Squid", "Humboldt", "ratio"], &ratios);
    }
}

fn row(start: &Start) -> Vec<String> {
    let bound_s = if start.how == "clean stop" { CLEAN_LIMIT_S } else { KILLED_LIMIT_S };
    let verdict = match start.kind.scheme {
        "ring" if start.objects < RING_OBJECTS => format!("< {bound_s} with {RING_OBJECTS}"),
        "ring" if start.first_hit_s < bound_s => format!("< {bound_s}: reached"),
        "ring" => format!("< {bound_s}: missed"),
        _ => String::new(),
    };
    vec![
        format!("{}: {}", start.kind.name, start.how),
        start.objects.to_string(),
        format!("{:.3}", start.first_answer_s),
        format!("{:.3}", start.first_hit_s),
        start.misses.to_string(),
        format!("{:.1}", start.slowest_miss_ms),
        format!("{:.3}", start.complete_s),
        format!("{:.1} %", start.found as f64 * 100.0 / SAMPLE as f64),
        verdict,
    ]
}

#[cfg(test)]
mod tests {
    use super::super::store::subjects::KINDS;
    use super::*;

    #[test]
    fn the_bound_is_for_ten_million_objects() {
        let start = |how, objects, first_hit_s| Start {
            kind: KINDS[6],
            how,
            objects,
            first_answer_s: 0.0,
            misses: 0,
            slowest_miss_ms: 0.0,
            first_hit_s,
            complete_s: 0.0,
            found: 0,
        };
        let verdict = |start: Start| row(&start).pop().unwrap();
        assert_eq!(verdict(start("clean stop", RING_OBJECTS, 0.9)), "< 1: reached");
        assert_eq!(verdict(start("clean stop", RING_OBJECTS, 1.1)), "< 1: missed");
        assert_eq!(verdict(start("kill -9 under load", RING_OBJECTS, 4.9)), "< 5: reached");
        assert_eq!(verdict(start("clean stop", 1000, 0.1)), "< 1 with 10000000");
    }
}
