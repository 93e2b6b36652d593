//! Known answers: what the laboratory measures is what is there.

use crate::support::{Relay, SHORT, alone, folder, lab, run_in, shared};
use humboldt_lab_origin::known::{KnownServer, Served};
use humboldt_lab_record::{Outcome, Run};
use humboldt_lab_workload::{AskKind, Stream, Workload};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};

/// How far the peak finder may be from the truth.
const ERROR_MAX: f64 = 0.03;

/// How far a hit ratio may be from that of the simulated stream: a point.
const HIT_RATIO_ERROR_MAX: f64 = 0.01;

/// Searches after which a busy machine is no excuse any more.
const TRIES: usize = 5;

/// Searches again while the laboratory itself says that it was held up, as on a busy machine: what
/// it found then is bound to be off, and it warns its users of that.
fn search_undisturbed(capacity_per_s: f64, first_per_s: f64, core: &str) -> (Run, Served) {
    for _ in 1..TRIES {
        let (run, served) = search(capacity_per_s, first_per_s, core);
        if run.samples.iter().all(|sample| sample.lab_limited.is_none()) {
            return (run, served);
        }
    }
    search(capacity_per_s, first_per_s, core)
}

/// Lets the laboratory search on a server of this capacity, from this core.
fn search(capacity_per_s: f64, first_per_s: f64, core: &str) -> (Run, Served) {
    let workload = Workload::builtin("fixed-1k").expect("it is built in").expect("it is right");
    let server = KnownServer::start(workload, 1, capacity_per_s).expect("a port and a thread");
    let (out, first) = (folder(), first_per_s.to_string());
    let url = server.url();
    let mut words =
        vec!["peak", "--attach", &url, "--workload", "fixed-1k", "--first-load", &first];
    words.extend([
        "--no-calibration",
        "--time-scale",
        "0.1",
        "--sample",
        "10s",
        "--time-max",
        "22s",
        "--tolerate-others",
        "--lab-cores",
        core,
    ]);
    words.extend(["--out", out.path().to_str().expect("a plain name")]);
    lab(words).with(0);
    (run_in(out.path()), server.stop().expect("no failure"))
}

#[test]
fn the_peak_is_found_from_below_and_from_above() {
    let _machine = alone();
    let searches = [(3000.0, 150.0, "0"), (2500.0, 7500.0, "1")];
    let searches = searches.map(|(capacity_per_s, first_per_s, core)| {
        std::thread::spawn(move || {
            (capacity_per_s, first_per_s, search_undisturbed(capacity_per_s, first_per_s, core))
        })
    });
    for search in searches {
        let (programmed_per_s, first_per_s, (run, served)) = search.join().expect("no panic");
        let found_per_s = run.summary.sustained_per_s.expect("it sustains something");
        let ratio = found_per_s / served.capacity_per_s();
        let trace: Vec<String> = run.samples.iter().map(line).collect();
        let what = format!(
            "from {first_per_s}/s: found {found_per_s:.1}/s, it served {:.1}/s ({programmed_per_s}/s programmed)",
            served.capacity_per_s()
        );
        println!("{what}: {ratio:.4}\n{}", trace.join("\n"));
        assert!((ratio - 1.0).abs() <= ERROR_MAX, "{what}:\n{}", trace.join("\n"));
        assert_eq!(run.total.faults_total(), 0, "{:?}", run.total.fault_samples.first());
    }
}

fn line(sample: &humboldt_lab_record::Sample) -> String {
    let (verdict, answered_per_s) = (&sample.verdict, sample.throughput_per_s());
    format!(
        "{:7.1} offered {answered_per_s:7.1} answered {:5} wait  {} {}: {} {}",
        sample.load_per_s,
        sample.tally.backlog,
        if verdict.sustained { "yes" } else { "no " },
        verdict.state,
        verdict.reason,
        sample.lab_limited.as_deref().unwrap_or_default()
    )
}

/// Two thirds hits, servers that do not think, and nearly every kind of request. (Whether a 200 to
/// a conditional GET is stored is a matter of taste, so there are none.)
const WORKLOAD: &str = r#"
name = "truth"
description = "Known answers."
mode = "forward"
[client]
requests_per_user = "20 / s"
connections = 4
requests_per_connection = "zipf(64)"
[server]
think = "constant(0 s)"
requests_per_connection = "zipf(64)"
idle = "15 s"
[requests]
ims_304 = "6 %"
reload = "5 %"
head = "1 %"
post = { share = "2 %", body = "exp(1 KB)" }
[popularity]
recurrence = "65 %"
working_set = "2000 objects"
choice = "uniform"
[[type]]
name = "image"
mime = "image/gif"
extension = "gif"
share = "60 %"
size = "exp(2 KB)"
cachable = "80 %"
life_cycle = "constant(30 d)"
[[type]]
name = "other"
mime = "application/x-other"
extension = "dat"
share = "40 %"
size = "exp(4 KB)"
cachable = "90 %"
life_cycle = "constant(60 d)"
"#;

/// The share of plain GETs that a cache answers which keeps everything, of the first this many.
fn simulated_hit_ratio(workload: Workload, seed: u64, plain: u64) -> f64 {
    let workload = Arc::new(workload);
    let working_set = workload.working_set_objects(1 << 30);
    let mut stream = Stream::new(Arc::clone(&workload), seed, 0, 1, working_set);
    let (mut asked, mut hits, mut stored, mut asks) = (0, 0, HashSet::new(), Vec::new());
    while asked < plain {
        asks.clear();
        stream.next_visit(&mut asks);
        for ask in &asks {
            let is_stored = stored.contains(&ask.name);
            if ask.kind == AskKind::Plain {
                asked += 1;
                hits += u64::from(is_stored);
            }
            let is_whole = matches!(ask.kind, AskKind::Plain | AskKind::Reload);
            if is_whole && workload.facts(seed, &ask.name).cachable {
                stored.insert(ask.name);
            }
        }
    }
    hits as f64 / asked as f64
}

#[test]
fn the_hit_ratio_is_that_of_the_simulated_stream() {
    let _machine = shared();
    let (ground, out) = (folder(), folder());
    let file = crate::support::write(ground.path(), "truth.toml", WORKLOAD);
    let path =
        |folder: &tempfile::TempDir| folder.path().to_str().expect("a plain name").to_owned();
    let words = ["peak", "humboldt:null", "--workload", &file, "--load", "400", "--time-max", "6s"];
    let (ground_path, out_path) = (path(&ground), path(&out));
    let more = ["--memory", "256MB", "--seed", "7", "--lab-cores", "0", "--ground", &ground_path];
    lab(words.into_iter().chain(SHORT).chain(more).chain(["--out", &out_path])).with(0);
    let run = run_in(out.path());
    let plain = run.total.hits.answers + run.total.misses.answers;
    assert!(plain > 1_000, "{plain} answers are too few");
    let measured = run.total.hits.answers as f64 / plain as f64;
    let workload = Workload::parse(WORKLOAD, "truth.toml").expect("a right workload");
    let simulated = simulated_hit_ratio(workload, 7, plain);
    println!("measured {measured:.4}, simulated {simulated:.4} of {plain}");
    assert!(
        (measured - simulated).abs() <= HIT_RATIO_ERROR_MAX,
        "measured {measured:.4}, the simulation says {simulated:.4} for {plain} plain GETs"
    );
    assert_eq!(run.outcome, Outcome::TimeUp);
    assert_eq!(run.total.faults_total(), 0, "{:?}", run.total.fault_samples.first());
}

/// What was asked for, by number of the request.
fn asked(seed: &str) -> BTreeMap<String, String> {
    let asked = Arc::new(Mutex::new(BTreeMap::new()));
    let seen = Arc::clone(&asked);
    let relay = Relay::start(move |ask, _| {
        seen.lock()
            .expect("no panic")
            .insert(ask.id.clone(), format!("{} {}", ask.method, ask.path));
    });
    let ground = folder();
    let file = crate::support::write(ground.path(), "truth.toml", WORKLOAD);
    let words =
        ["peak", "--attach", &relay.url(), "--workload", &file, "--load", "300", "--seed", seed];
    lab(words.into_iter().chain(SHORT).chain(["--time-max", "2s", "--lab-cores", "0"])).with(0);
    let asked = asked.lock().expect("no panic");
    asked.clone()
}

#[test]
fn the_same_seed_asks_for_the_same() {
    let _machine = shared();
    let (first, again, other) = (asked("11"), asked("11"), asked("12"));
    let common = first.keys().filter(|id| again.contains_key(*id)).count();
    // The end of a run is a moment, so the last requests may differ in number.
    assert!(common > 200, "only {common} requests of {} were made in both runs", first.len());
    let differing =
        first.iter().find(|(id, what)| again.get(*id).is_some_and(|other| other != *what));
    assert_eq!(differing, None);
    let same_elsewhere = first.iter().filter(|(id, what)| other.get(*id) == Some(what)).count();
    assert!(
        same_elsewhere < common / 2,
        "another seed asks for the same: {same_elsewhere} of {common}"
    );
}
