//! What the peak finder sees of a server that is not always there.

use crate::support::{LIMIT, Relay, SHORT, folder, lab, run_in, shared};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How long the server stalls: six samples.
const STALL: Duration = Duration::from_secs(3);

/// It stalls after this many requests.
const BEFORE: u32 = 400;

/// Stops everybody once.
#[derive(Default)]
struct Gate {
    passed: Mutex<u32>,
    opened: Condvar,
    is_open: Mutex<bool>,
}

impl Gate {
    /// The one who comes last opens it again, after the stall; all who come in the meantime wait.
    fn pass(&self) {
        let number = {
            let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
            *passed += 1;
            *passed
        };
        if number < BEFORE {
            return;
        }
        if number == BEFORE {
            std::thread::sleep(STALL);
            *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.opened.notify_all();
        }
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = self.opened.wait_timeout_while(is_open, LIMIT, |is_open| !*is_open);
        assert!(!waiting.expect("no panic").1.timed_out(), "nobody opened the gate");
    }
}

#[test]
fn a_stall_is_seen_and_does_not_slow_the_users() {
    let _machine = shared();
    let gate = Arc::new(Gate::default());
    let relay = Relay::start(move |_, _| gate.pass());
    let out = folder();
    let words = ["peak", "--attach", &relay.url(), "--workload", "fixed-1k", "--load", "200"];
    let limits = ["--no-calibration", "--time-scale", "0.1", "--sample", "5s", "--time-max", "9s"];
    lab(words
        .into_iter()
        .chain(limits)
        .chain(["--out", out.path().to_str().expect("a plain name")]))
    .with(0);
    let run = run_in(out.path());
    let stalled: Vec<_> = run.samples.iter().filter(|sample| sample.tally.backlog > 50).collect();
    assert!(stalled.len() >= 3, "the stall lasts six samples: {:?}", backlogs(&run.samples));
    // Open loop: a request that is due is due, stall or not.
    for part in [run.samples.iter().collect(), stalled] {
        let due: u64 = part.iter().map(|sample| sample.tally.due).sum();
        let period_us: u64 = part.iter().map(|sample| sample.tally.period_us).sum();
        let due_per_s = due as f64 * 1e6 / period_us as f64;
        assert!((120.0..280.0).contains(&due_per_s), "{due_per_s:.0}/s in {} samples", part.len());
    }
    // Requests that were due when it began waited for all of it, and half of them for more than
    // half of it.
    let response = run.total.response();
    let (longest_us, shortest_us) = (response.max_us(), STALL.as_micros() as u64 * 9 / 10);
    assert!(longest_us >= shortest_us, "the longest answer took {longest_us} µs");
    let late =
        run.samples.iter().find(|sample| sample.tally.response().percentile_us(50.0) > 500_000);
    assert!(late.is_some(), "no sample's median shows the stall");
    // The table says the same.
    let table = std::fs::read_to_string(out.path().join("samples.csv")).expect("samples");
    let column =
        table.lines().next().and_then(|line| line.split(',').position(|name| name == "backlog"));
    let column = column.expect("a column of backlogs");
    let written: Vec<u64> = table
        .lines()
        .skip(1)
        .filter_map(|line| line.split(',').nth(column)?.parse().ok())
        .collect();
    assert_eq!(written, backlogs(&run.samples));
}

fn backlogs(samples: &[humboldt_lab_record::Sample]) -> Vec<u64> {
    samples.iter().map(|sample| sample.tally.backlog).collect()
}

#[test]
fn a_report_that_has_no_place_gets_a_new_folder_and_only_if_something_was_measured() {
    let _machine = shared();
    let words =
        ["peak", "humboldt:null", "--workload", "fixed-1k", "--load", "100", "--time-max", "2s"];
    let done = lab(words.into_iter().chain(SHORT)).with(0);
    assert!(done.out.contains("report: humboldt-null-1/report.html"), "{done:?}");
    assert!(run_in(&done.home().join("humboldt-null-1")).total.answers() > 0);
    let done = lab(["peak", "--no-calibration", "--attach", "http://127.0.0.1:1"]).with(2);
    assert_eq!(std::fs::read_dir(done.home()).expect("a folder").count(), 0, "{done:?}");
}

#[test]
fn options_of_a_cache_that_is_started_are_refused_with_one_that_runs() {
    for (option, value) in [("--cpu-quota", "0.5"), ("--set", "threads=2"), ("--spindles", "2")] {
        let words = ["peak", "--no-calibration", "--attach", "http://127.0.0.1:1", option, value];
        let done = lab(words).with(2);
        assert!(done.err.contains(option) && done.err.contains("runs already"), "{done:?}");
    }
}

#[test]
fn a_curve_has_every_part_of_the_load_and_is_no_part_of_the_run() {
    let _machine = shared();
    let relay = Relay::start(|_, _| ());
    let out = folder();
    let words = ["peak", "--attach", &relay.url(), "--workload", "fixed-1k", "--load", "50"];
    let limits = ["--no-calibration", "--time-scale", "0.1", "--sample", "3s", "--time-max", "2s"];
    let curve = ["--curve", "--curve-of", "200", "--tolerate-others"];
    let place = ["--out", out.path().to_str().expect("a plain name")];
    let done = lab(words.into_iter().chain(limits).chain(curve).chain(place)).with(0);
    let run = run_in(out.path());
    assert!(run.samples.iter().all(|sample| sample.load_per_s == 50.0), "only the run's samples");
    let loads: Vec<f64> = run.curve.iter().map(|step| step.load_per_s.round()).collect();
    assert_eq!(loads, [20.0, 50.0, 100.0, 150.0, 180.0, 200.0, 220.0]);
    for step in &run.curve {
        assert!(step.samples + step.spoiled > 0, "{step:?}");
        let answers = step.hits.count + step.misses.count;
        assert_eq!(answers > 0, step.samples > 0, "{step:?}");
        assert_eq!(step.hits.count, 0, "the relay stores nothing: {step:?}");
    }
    assert!(done.out.contains("110.0 %  offered"), "{done:?}");
    let page = std::fs::read_to_string(out.path().join("report.html")).expect("a page");
    assert!(page.contains("Response times against load"));
    assert!(!run.curve_samples.is_empty() && run.curve_of_per_s == Some(200.0));
    let too_much = ["peak", "--attach", "http://127.0.0.1:1", "--curve", "--curve-of", "2e7"];
    lab(too_much).with(2).says(&["--curve-of", "100 %"]);
}
