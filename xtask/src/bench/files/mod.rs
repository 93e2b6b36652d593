//! `bench files`: the schemes with a file for each object beside a bare loop of the same file
//! operations, on a slow device, while the tree fills and when it is full.
//!
//! The device is a loop device with ext4 that the laboratory makes and limits. Each course begins
//! with a new file system. The program has the same requests in a closed loop of many clients: with
//! `overload=wait` they wait for the disk, so that its rate is the disk's; with `overload=shed` the
//! rate is that of the processor, and the hits are fewer.

pub(crate) mod bare;

use super::drive::{CONNECTIONS, Drive};
use super::manager::{Swaps, wait_rebuilt};
use super::report::Report;
use super::subjects::{Style, floor};
use super::{Plan, table};
use crate::Outcome;
use bare::{Loop, Slice};
use humboldt_lab_subjects::{
    Environment, EnvironmentPlan, Host, Keeper, StartPlan, StoreKind, SubjectFile, Throttle, start,
};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

const ROUNDS: usize = 3;

/// Operations a second that the device allows, of each kind.
const IOPS: u64 = 400;

/// Writers wait as soon as so much is not on the device.
const DIRTY_BYTES_MAX: u64 = 8 << 20;

const CAPACITY_BYTES: u64 = 48 << 20;

const BODY_BYTES: usize = 13 << 10;

/// The file of such an object: header, body, table and footer.
const FILE_BYTES: usize = BODY_BYTES + 1024;

/// A part of the store that the program keeps free, so that the bare loop does too.
const FULL_PERCENT: u64 = 94;

/// Different objects, and how popular they are: more than half of the requests are hits.
const OBJECTS: u64 = 20_000;
const ZIPF: f64 = 0.8;

/// Next to no memory: hits come from the store, or from the page cache.
const MEMORY_BYTES: u64 = 2 << 20;

/// Stores of a course, in objects of a full store: the tree fills, turns over, and is measured.
const FILLS: u64 = 3;

/// A course that takes longer ends there.
const COURSE_LIMIT: Duration = Duration::from_secs(120);

/// Requests in a slice.
const SLICE: u64 = 1_000;

/// What the program is wanted to reach of the bare loop on a full tree.
const TARGET_RATIO: f64 = 0.8;

/// Threads of the bare loop beside each scheme, as many as the scheme has for its files.
const SCHEMES: [(&str, usize); 3] = [("ufs", 1), ("aufs", 16), ("diskd", 1)];

/// Something that has its course.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runner {
    Bare { threads: usize, reuses: bool },
    Program { scheme: &'static str, overload: Option<&'static str>, is_old: bool },
}

/// The figures of a course: while the tree fills, and when it is full.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Figures {
    requests_per_s: [f64; 2],
    hit_percent: [f64; 2],
    /// Stored objects at the end, in full stores.
    fills: f64,
}

pub(super) fn run(plan: &Plan) -> Outcome {
    let mut command = Command::new(&plan.xtask);
    command.arg("keeper");
    let keeper = Keeper::start(command)?;
    let origin = floor(plan, "origin", plan.load_core)?;
    let rounds = plan.rounds_wanted.unwrap_or(if plan.quick { 1 } else { ROUNDS }).max(1);
    let mut report = Report::new("files", false);
    report.prose(&format!(
        "Objects of 13 KiB on ext4 (noatime), on a loop device that allows {IOPS} reads and {IOPS} writes a second; writers \
         wait from {} MB that are not on the device. Store of {} MB; {OBJECTS} objects, popular by Zipf's law with exponent \
         {ZIPF}. Median of {rounds} rounds, and range. Filling: until the store is full; full: after as much again has been \
         stored. The bare loop does the creates, writes, reads and unlinks of such a store, with as many threads as the scheme has for \
         its files; or it overwrites the files of objects that leave, as the program does. {CONNECTIONS} clients in a closed loop.",
        DIRTY_BYTES_MAX >> 20,
        CAPACITY_BYTES >> 20
    ));
    let mut rows = Vec::new();
    for (scheme, threads) in SCHEMES {
        if !plan.schemes.is_empty() && !plan.schemes.iter().any(|name| name == scheme) {
            continue;
        }
        let runners = runners(plan, scheme, threads);
        let mut figures = vec![Vec::new(); runners.len()];
        for round in 0..rounds {
            for (runner, figures) in runners.iter().zip(&mut figures) {
                let course = run_course(plan, &keeper, origin.address, *runner, round as u64)?;
                println!("{} {course:?}", runner.name());
                figures.push(course);
            }
        }
        let bare = figures[0].clone();
        rows.extend(
            runners.iter().zip(&figures).map(|(runner, figures)| row(*runner, figures, &bare)),
        );
    }
    let heading = [
        "",
        "filling, req/s",
        "full, req/s",
        "full ÷ filling",
        "hits, full",
        "hits/s, full",
        "full ÷ bare",
        "wanted",
    ];
    report.table(&heading, &rows);
    if plan.write { report.write() } else { Ok(()) }
}

fn runners(plan: &Plan, scheme: &'static str, threads: usize) -> Vec<Runner> {
    let program = |overload, is_old| Runner::Program { scheme, overload, is_old };
    let bare = |reuses| Runner::Bare { threads, reuses };
    let mut runners = vec![bare(false), bare(true)];
    match scheme {
        "ufs" => runners.push(program(None, false)),
        _ => runners.extend([program(Some("wait"), false), program(Some("shed"), false)]),
    }
    runners.extend(plan.old.is_some().then(|| program(None, true)));
    runners
}

impl Runner {
    fn name(self) -> String {
        match self {
            Self::Bare { threads, reuses } => {
                let threads = if threads == 1 { "1 thread" } else { &format!("{threads} threads") };
                let files = if reuses { ", files overwritten" } else { "" };
                format!("bare loop, {threads}{files}")
            }
            Self::Program { scheme, is_old: true, .. } => format!("old {scheme}"),
            Self::Program { scheme, overload: None, .. } => scheme.to_owned(),
            Self::Program { scheme, overload: Some(overload), .. } => {
                format!("{scheme}, overload={overload}")
            }
        }
    }
}

/// Objects of a full store.
fn files_max() -> u64 {
    CAPACITY_BYTES * FULL_PERCENT / 100 / (FILE_BYTES as u64)
}

/// One course on a new file system.
fn run_course(
    plan: &Plan,
    keeper: &Keeper,
    origin: SocketAddr,
    runner: Runner,
    seed: u64,
) -> Outcome<Figures> {
    let environment = EnvironmentPlan {
        host: Host::current(),
        parent: None,
        keep_folder: false,
        stores: 1,
        cache_bytes: CAPACITY_BYTES,
        store_kind: StoreKind::Device {
            file_system: "ext4".to_owned(),
            size_bytes: None,
            mount_options: vec!["noatime".to_owned()],
            disk: None,
        },
        throttle: Some(Throttle { read_iops: IOPS, write_iops: IOPS, ..Throttle::default() }),
        dirty_bytes_max: Some(DIRTY_BYTES_MAX),
    };
    let mut environment = Environment::prepare(&environment, keeper)?;
    if let Some(skipped) = environment.skipped().first() {
        return Err(format!("{}: {}", skipped.what, skipped.reason).into());
    }
    let slices = match runner {
        Runner::Bare { threads, reuses } => {
            bare_course(plan, &environment, (threads, reuses), seed)?
        }
        Runner::Program { scheme, overload, is_old } => {
            let program = if is_old { &plan.old } else { &plan.humboldt };
            let program = program.as_deref().ok_or("humboldt is not there")?;
            let options = overload.map(|overload| format!("overload={overload}"));
            let file = SubjectFile::builtin(&format!("humboldt:{scheme}"))
                .ok_or("no such scheme")??
                .with_program(program);
            let words = options.map(|options| ("options".to_owned(), options));
            let start_plan = StartPlan {
                address: SocketAddr::from(([127, 0, 0, 1], 0)),
                origins: vec![origin],
                mode: None,
                cache_bytes: CAPACITY_BYTES,
                memory_bytes: MEMORY_BYTES,
                cores: vec![plan.server_core],
                cpu_quota: None,
                cpu_speed: None,
                memory_limit_bytes: None,
                words: words.into_iter().collect::<BTreeMap<_, _>>(),
                tls: None,
            };
            let running = start(&file, &mut environment, &start_plan, keeper)?;
            wait_rebuilt(running.address(), COURSE_LIMIT)?;
            let slices = program_course(plan, running.address(), origin, seed);
            running.stop()?;
            slices?
        }
    };
    environment.remove()?;
    Ok(figures(&slices))
}

fn bare_course(
    plan: &Plan,
    environment: &Environment,
    (threads, reuses): (usize, bool),
    seed: u64,
) -> Outcome<Vec<Slice>> {
    let folder = environment.stores().into_iter().next().ok_or("no store")?;
    let course = Loop {
        folder,
        threads,
        file_bytes: FILE_BYTES,
        files_max: files_max() as usize,
        objects: OBJECTS,
        zipf: ZIPF,
        seed,
        reuses,
        stores: FILLS * files_max(),
        limit: COURSE_LIMIT,
        slice: SLICE,
    };
    let mut command = Command::new("taskset");
    command.arg("-c").arg(plan.server_core.to_string()).arg(&plan.xtask).arg("bare-files");
    command.arg(serde_json::to_string(&course)?);
    let output = environment.limited(&command).output()?;
    if !output.status.success() {
        return Err(format!("the bare loop: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn program_course(
    plan: &Plan,
    address: SocketAddr,
    origin: SocketAddr,
    seed: u64,
) -> Outcome<Vec<Slice>> {
    let end = Instant::now() + COURSE_LIMIT;
    let mut slices = Vec::new();
    while Instant::now() < end {
        // Another number of requests has another order of objects.
        let requests = SLICE + slices.len() as u64 % SLICE + seed;
        let drive = Drive {
            style: Style::Forward,
            requests,
            objects: OBJECTS,
            zipf: Some(ZIPF),
            ..Drive::new(origin, BODY_BYTES)
        };
        let driven = drive.run(plan, "humboldt", address)?;
        let stored = Swaps::read(address)?.outs;
        slices.push(Slice {
            seconds: driven.seconds,
            requests: driven.requests,
            hits: driven.hits,
            stored,
        });
        if stored >= FILLS * files_max() {
            break;
        }
    }
    Ok(slices)
}

/// The slices before the first fill, and those behind the second, put together.
fn figures(slices: &[Slice]) -> Figures {
    let stored = slices.last().map_or(0, |slice| slice.stored);
    let sum = |from: u64, to: u64| {
        let mut sum = Slice::default();
        let mut before = 0;
        for slice in slices {
            if before >= from && slice.stored <= to {
                sum.seconds += slice.seconds;
                sum.requests += slice.requests;
                sum.hits += slice.hits;
            }
            before = slice.stored;
        }
        sum
    };
    let windows = [sum(0, files_max()), sum(2 * files_max(), u64::MAX)];
    Figures {
        requests_per_s: windows.map(|window| window.requests as f64 / window.seconds),
        hit_percent: windows.map(|window| window.hits as f64 * 100.0 / window.requests as f64),
        fills: stored as f64 / files_max() as f64,
    }
}

fn row(runner: Runner, figures: &[Figures], bare: &[Figures]) -> Vec<String> {
    let of = |value: fn(&Figures) -> f64| figures.iter().map(value).collect::<Vec<_>>();
    let full = of(|figures| figures.requests_per_s[1]);
    let ratios: Vec<f64> = figures
        .iter()
        .zip(bare)
        .map(|(own, bare)| own.requests_per_s[1] / bare.requests_per_s[1])
        .collect();
    let is_judged =
        matches!(runner, Runner::Program { overload: None | Some("wait"), is_old: false, .. });
    let verdict = match table::median(&ratios) {
        _ if !is_judged => String::new(),
        ratio if ratio.is_nan() => "never full".to_owned(),
        ratio if ratio >= TARGET_RATIO => format!("≥ {TARGET_RATIO}: reached"),
        _ => format!("≥ {TARGET_RATIO}: missed"),
    };
    vec![
        runner.name(),
        table::with_range(&of(|figures| figures.requests_per_s[0]), 0),
        table::with_range(&full, 0),
        table::with_range(&of(|figures| figures.requests_per_s[1] / figures.requests_per_s[0]), 2),
        format!("{:.1} %", table::median(&of(|figures| figures.hit_percent[1]))),
        table::with_range(&of(|f| f.requests_per_s[1] * f.hit_percent[1] / 100.0), 0),
        if figures == bare { String::new() } else { table::with_range(&ratios, 2) },
        verdict,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(stored: u64, seconds: f64) -> Slice {
        Slice { seconds, requests: 1000, hits: 500, stored }
    }

    #[test]
    fn a_filling_tree_and_a_full_one_are_held_apart() {
        let full = files_max();
        let slices =
            [slice(full / 2, 1.0), slice(full, 1.0), slice(2 * full, 9.0), slice(3 * full, 4.0)];
        let figures = figures(&slices);
        assert_eq!(figures.requests_per_s, [1000.0, 250.0]);
        assert_eq!((figures.hit_percent, figures.fills), ([50.0, 50.0], 3.0));
    }

    #[test]
    fn what_was_never_full_is_not_judged() {
        let runner = Runner::Program { scheme: "ufs", overload: None, is_old: false };
        let verdict = |own: &[Slice], bare: &[Slice]| {
            row(runner, &[figures(own)], &[figures(bare)]).pop().unwrap()
        };
        let full = files_max();
        let reaches = |seconds| [slice(full, 1.0), slice(2 * full, 1.0), slice(3 * full, seconds)];
        assert_eq!(verdict(&reaches(1.2), &reaches(1.0)), "≥ 0.8: reached");
        assert_eq!(verdict(&reaches(1.3), &reaches(1.0)), "≥ 0.8: missed");
        assert_eq!(verdict(&reaches(1.3)[..2], &reaches(1.0)), "never full");
    }
}
