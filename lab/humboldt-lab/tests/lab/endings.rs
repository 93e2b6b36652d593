//! However a run ends: one clear line, what was measured is kept, nothing is left running or
//! mounted.

use crate::support::{
    DirtyLimit, FullDisk, Lab, LimitBefore, SHORT, Traces, alone, folder, is_root, lab, run_in,
    shared, until,
};
use humboldt_lab_record::Outcome;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain name")
}

/// A run of Humboldt at a constant load that goes on until something ends it.
fn start_endless(subject: &str, ground: &Path, out: &Path, more: &[&str]) -> Lab {
    start(subject, ground, out, &[&["--time-max", "50s"], more].concat())
}

fn start(subject: &str, ground: &Path, out: &Path, more: &[&str]) -> Lab {
    let words = ["peak", subject, "--workload", "fixed-1k", "--load", "100", "--fill", "1000"];
    let folders = ["--ground", text(ground), "--out", text(out), "--cache-size", "40MB"];
    let folders_in_store = subject.contains(':').then_some(["--set", "l1_l2=4 16"]);
    let words =
        words.into_iter().chain(SHORT).chain(folders).chain(folders_in_store.into_iter().flatten());
    Lab::start(words.chain(more.iter().copied()))
}

/// Two instances under load, each with a device of its own, while the whole machine writes back
/// from this many MB on.
#[track_caller]
fn run_two(ground: &Path, out: &Path, limit_mb: u64) -> (Lab, Traces) {
    let limit = format!("{limit_mb}MB");
    let more = ["--instances", "2", "--spindles", "2", "--fs", "ext2", "--dirty-limit", &limit];
    let mut run = start_endless("humboldt:ufs", ground, out, &more);
    run.until_sampled(out);
    let mut traces = Traces::of(ground);
    traces.note(&run.descendants());
    assert_eq!(DirtyLimit::now(), DirtyLimit::Bytes(limit_mb << 20));
    let left = traces.left();
    for kind in ["folder", "mount", "loop device"] {
        let count = left.iter().filter(|trace| trace.starts_with(kind)).count();
        assert_eq!(count, 2, "{kind}, one for each instance: {left:#?}");
    }
    (run, traces)
}

/// Where the instances on this ground listen, as their configurations say.
fn instances(ground: &Path) -> Vec<String> {
    let folders = std::fs::read_dir(ground).expect("the ground").flatten();
    let address = |folder: std::fs::DirEntry| {
        let text = std::fs::read_to_string(folder.path().join("run/squid.conf")).ok()?;
        text.lines().find_map(|line| line.strip_prefix("http_port ").map(ToOwned::to_owned))
    };
    folders.filter_map(address).collect()
}

/// How many requests an instance has passed on to the servers so far. Those for its own pages are
/// not among them.
fn passed_on(address: &str) -> u64 {
    let page = crate::support::get(&format!("http://{address}/squid-internal-mgr/counters"));
    let count =
        page.lines().find_map(|line| line.strip_prefix("server.http.requests = ")?.parse().ok());
    count.unwrap_or_else(|| panic!("no count of requests: {page}"))
}

/// The process of this name among those of a run.
fn process(lab: &Lab, name: &str) -> Option<u32> {
    lab.descendants().into_iter().find(|pid| crate::support::name(*pid) == name)
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process");
    kill_process(pid, Signal::KILL).expect("it runs");
}

#[test]
fn nobody_there_is_said_at_once() {
    let _machine = shared();
    let done = lab(["peak", "--attach", "http://127.0.0.1:1", "--no-calibration"]).with(2);
    done.says(&["http://127.0.0.1:1", "start the cache first"]);
    lab(["peak", "--attach", "not a url", "--no-calibration"]).with(2).says(&["not a url"]);
}

#[test]
fn a_subject_that_dies_ends_the_run_and_what_was_measured_is_kept() {
    let _machine = shared();
    let (ground, out) = (folder(), folder());
    let mut run = start_endless("humboldt:ufs", ground.path(), out.path(), &[]);
    run.until_sampled(out.path());
    let mut traces = Traces::of(ground.path());
    traces.note(&run.descendants());
    kill(process(&run, "humboldt").expect("humboldt runs"));
    let done = run.end().with(1);
    done.says(&["humboldt:ufs", "SIGKILL"]);
    // What the subject said at last helps those who look for the cause.
    assert!(done.out.contains("cache.log"), "{}", done.out);
    traces.assert_none();
    let run = run_in(out.path());
    assert!(!run.samples.is_empty());
    assert!(run.summary.throughput_per_s > 10.0, "{:?}", run.summary);
    assert!(
        matches!(&run.outcome, Outcome::Failed(why) if why.contains("SIGKILL") && why.lines().count() == 1),
        "{:?}",
        run.outcome
    );
    assert!(out.path().join("report.html").exists());
}

#[test]
fn ctrl_c_ends_the_run_in_order_and_keeps_the_report() {
    let _machine = shared();
    let (ground, out) = (folder(), folder());
    let mut run = start_endless("humboldt:null", ground.path(), out.path(), &[]);
    run.until_sampled(out.path());
    let mut traces = Traces::of(ground.path());
    traces.note(&run.descendants());
    run.signal(Signal::INT);
    let done = run.end().with(130);
    assert_eq!(done.complaint(), "interrupted");
    traces.assert_none();
    let run = run_in(out.path());
    assert_eq!(run.outcome, Outcome::Interrupted);
    assert!(!run.samples.is_empty());
    assert!(done.out.contains("humboldt:null"), "{}", done.out);
}

#[test]
fn a_laboratory_that_is_killed_leaves_nothing() {
    let _machine = shared();
    if !is_root("a file system of its own for the cache") {
        return;
    }
    let (ground, out) = (folder(), folder());
    // Squid with diskd leaves most: processes, message queues, shared memory, a mount, a loop
    // device.
    let mut run = start_endless("squid:diskd", ground.path(), out.path(), &["--fs", "ext2"]);
    run.until_sampled(out.path());
    let mut traces = Traces::of(ground.path());
    traces.note(&run.descendants());
    let before = traces.left();
    for kind in ["process", "mount", "loop device", "in the kernel", "folder"] {
        assert!(
            before.iter().any(|trace| trace.starts_with(kind)),
            "no {kind} while it runs: {before:#?}"
        );
    }
    run.signal(Signal::KILL);
    assert_eq!(run.end().code, None);
    traces.until_none();
}

#[test]
fn instances_share_the_load_and_the_dirty_limit_is_taken_back() {
    /// Of a hundred in a second, half of them for each.
    const ENOUGH: u64 = 20;
    let _machine = alone();
    if !is_root("a limit for the whole machine") {
        return;
    }
    let before = LimitBefore::note();
    let limit_mb = before.another_mb();
    let (ground, out) = (folder(), folder());
    let (run, traces) = run_two(ground.path(), out.path(), limit_mb);
    let other = folder();
    let second = ["peak", "humboldt:null", "--no-calibration", "--dirty-limit", "32MB"];
    let second = second.into_iter().chain(["--out", text(other.path())]);
    lab(second).with(1).says(&["another laboratory", "vm.dirty_bytes"]);
    let addresses = instances(ground.path());
    assert_eq!(addresses.len(), 2, "{addresses:?}");
    for address in &addresses {
        until("requests to every instance", || (passed_on(address) >= ENOUGH).then_some(()));
    }
    run.signal(Signal::INT);
    run.end().with(130);
    // Several that each set it and take it back would leave what the last one found: the limit of
    // another.
    before.assert_back();
    traces.assert_none();
    let run = run_in(out.path());
    assert_eq!(run.outcome, Outcome::Interrupted);
    let facts = &run.manifest.facts;
    for (name, value) in [
        ("Instances of the subject", "2".to_owned()),
        ("Writers wait from", format!("{limit_mb} MB not written back yet")),
    ] {
        assert!(facts.contains(&(name.to_owned(), value)), "{name}: {facts:#?}");
    }
}

/// The cache and the laboratory wait for its disks in calls that nothing ends.
#[test]
fn a_laboratory_that_is_killed_takes_its_simulated_disks_back() {
    let _machine = shared();
    if !is_root("a simulated disk") {
        return;
    }
    if !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: a kernel without FUSE has no simulated disk");
        return;
    }
    let mounts = |traces: &Traces| {
        traces.left().into_iter().filter(|trace| trace.starts_with("mount")).count()
    };
    // While it serves, and while the laboratory waits for its own preparations.
    for is_sampled in [true, false] {
        let (ground, out) = (folder(), folder());
        let speed = if is_sampled { "20" } else { "0.5" };
        let more = ["--fs", "ext2", "--spindles", "2", "--disk-speed", speed, "--drop-caches"];
        let mut run = start_endless("squid:aufs", ground.path(), out.path(), &more);
        let mut traces = Traces::of(ground.path());
        // Each store's file system, and the disk below.
        if is_sampled {
            run.until_sampled(out.path());
            assert_eq!(mounts(&traces), 4);
        } else {
            until("the stores", || (mounts(&traces) == 4).then_some(()));
        }
        traces.note(&run.descendants());
        run.signal(Signal::KILL);
        assert_eq!(run.end().code, None);
        traces.until_none();
    }
}

#[test]
fn a_laboratory_that_is_killed_takes_the_dirty_limit_back() {
    let _machine = alone();
    if !is_root("a limit for the whole machine") {
        return;
    }
    let before = LimitBefore::note();
    let (ground, out) = (folder(), folder());
    let (run, traces) = run_two(ground.path(), out.path(), before.another_mb());
    run.signal(Signal::KILL);
    assert_eq!(run.end().code, None);
    // The keeper is among the traces: when it is gone, it has undone what it could.
    traces.until_none();
    before.assert_back();
}

#[test]
fn stores_that_cannot_be_shared_out_are_refused() {
    let _machine = shared();
    let done = lab(["peak", "humboldt:null", "--no-calibration", "--instances", "2"]).with(2);
    done.says(&["2 instances", "--spindles"]);
    let small = [
        "bang",
        "--generate",
        "300",
        "--subject",
        "humboldt:ufs",
        "--spindles",
        "16",
        "--cache-size",
        "8MB",
    ];
    lab(small).with(2).says(&["8 MB on 16 stores", "--cache-size"]);
}

#[test]
fn too_small_a_ground_is_refused() {
    let _machine = shared();
    if !is_root("a small disk") {
        return;
    }
    let disk = FullDisk::of(20 << 20);
    let out = folder();
    let words = [
        "peak",
        "humboldt:ufs",
        "--no-calibration",
        "--ground",
        text(disk.path()),
        "--cache-size",
        "1GB",
    ];
    let done = lab(words.into_iter().chain(["--out", text(out.path())])).with(1);
    done.says(&[text(disk.path())]);
    Traces::of(disk.path()).assert_none();
}

#[test]
fn a_full_disk_under_the_report_is_named() {
    let _machine = shared();
    if !is_root("a small disk") {
        return;
    }
    let disk = FullDisk::of(24 << 10);
    let (ground, out) = (folder(), disk.path().join("out"));
    let run = start("humboldt:null", ground.path(), &out, &["--time-max", "2s"]);
    let done = run.end().with(1);
    done.says(&["the disk is full", text(&out)]);
    // What was measured is at least on the terminal.
    assert!(done.out.contains("humboldt:null under fixed-1k"), "{}", done.out);
    Traces::of(ground.path()).assert_none();
}

#[test]
fn the_store_of_a_cache_may_fill_its_disk() {
    let _machine = shared();
    if !is_root("a small disk") {
        return;
    }
    // A store is refused that does not fit; this one fits, until someone else takes the room.
    let disk = FullDisk::of(64 << 20);
    let out = folder();
    let mut run = start("humboldt:ufs", disk.path(), out.path(), &["--time-max", "4s"]);
    run.until_sampled(out.path());
    std::fs::write(disk.path().join("greedy"), vec![0_u8; 128 << 20])
        .expect_err("no room for so much");
    let done = run.end();
    assert!(matches!(done.code, Some(0 | 1)), "{done:#?}");
    std::fs::remove_file(disk.path().join("greedy")).expect("ours");
    Traces::of(disk.path()).assert_none();
    assert!(!run_in(out.path()).samples.is_empty());
}

#[test]
fn the_growing_report_can_be_read_in_a_browser() {
    let _machine = shared();
    let (ground, out) = (folder(), folder());
    let mut run =
        start_endless("humboldt:null", ground.path(), out.path(), &["--serve", "127.0.0.1:0"]);
    let line = run.until_says("the growing report: http://");
    let url = line.split(": ").nth(1).expect("a URL").to_owned();
    run.until_sampled(out.path());
    let page = until("a page with the run", || {
        let page = crate::support::get(&url);
        page.contains("humboldt:null").then_some(page)
    });
    assert!(page.starts_with("HTTP/1.1 200"), "{}", &page[..page.len().min(200)]);
    run.signal(Signal::TERM);
    run.end().with(130);
}

#[test]
fn a_laboratory_that_stood_still_goes_on_measuring() {
    /// Several periods of half a second.
    const STALL: std::time::Duration = std::time::Duration::from_secs(2);
    let _machine = shared();
    let (ground, out) = (folder(), folder());
    let mut run = start_endless("humboldt:null", ground.path(), out.path(), &[]);
    run.until_sampled(out.path());
    run.signal(Signal::STOP);
    std::thread::sleep(STALL);
    let lines = || {
        std::fs::read_to_string(out.path().join("samples.csv"))
            .map_or(0, |text| text.lines().count())
    };
    let before = lines();
    run.signal(Signal::CONT);
    until("samples after the stall", || (lines() > before + 3).then_some(()));
    run.signal(Signal::INT);
    run.end().with(130);
    let samples = run_in(out.path()).samples;
    // Nothing is lost: every answer is in a sample.
    let measured_us: u64 = samples.iter().map(|sample| sample.tally.period_us).sum();
    let last_s = samples.last().expect("samples").at_s;
    assert!(measured_us as f64 / 1e6 > last_s * 0.9, "{measured_us} of {last_s}");
}
