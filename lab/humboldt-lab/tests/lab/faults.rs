//! Caches that answer wrongly are found out, and a wrong answer comes with its evidence.

use crate::support::{Answer, Done, Relay, SHORT, folder, lab, run_in, shared, write};
use humboldt_lab_record::{FaultKind, Run};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// One object in a hundred answers is spoilt.
const SPOIL_EVERY: u32 = 100;

fn measure(relay: &Relay, workload: &str, time_max: &str) -> (Done, Run) {
    let out = folder();
    let words = ["peak", "--attach", &relay.url(), "--workload", workload, "--load", "300"];
    let limits =
        ["--no-calibration", "--time-scale", "0.1", "--sample", "5s", "--time-max", time_max];
    let path = out.path().to_str().expect("a plain name");
    let done = lab(words.into_iter().chain(limits).chain(["--out", path]));
    let done = done.with(0);
    (done, run_in(out.path()))
}

#[test]
fn a_flipped_byte_is_found_with_its_place_and_both_values() {
    let _machine = shared();
    let (answers, spoilt) = (AtomicU32::new(0), std::sync::Arc::new(Mutex::new(Vec::new())));
    let log = std::sync::Arc::clone(&spoilt);
    let relay = Relay::start(move |ask, answer: &mut Answer| {
        let number = answers.fetch_add(1, Ordering::Relaxed);
        if number.is_multiple_of(SPOIL_EVERY) && answer.body.len() > 700 {
            let right = answer.body[700];
            answer.body[700] = !right;
            log.lock().expect("no panic").push((ask.path.clone(), right, !right));
        }
    });
    let (done, run) = measure(&relay, "fixed-1k", "3s");
    let spoilt = spoilt.lock().expect("no panic");
    let wrong = run.total.faults.get(&FaultKind::WrongByte).copied().unwrap_or_default();
    // The last may have been on its way when the run ended.
    assert!(
        wrong > 2 && (spoilt.len() as u64).abs_diff(wrong) <= 2,
        "{} spoilt, {wrong} found",
        spoilt.len()
    );
    assert_eq!(run.summary.wrong_content, wrong);
    let sample = run.total.fault_samples.first().expect("evidence");
    let (path, right, is) =
        spoilt.iter().find(|(path, ..)| sample.url.ends_with(path)).expect("one of ours");
    assert_eq!(sample.fault.offset, Some(700), "{sample:?}");
    assert!(
        sample.fault.expected.contains(&format!("{right:02x}")),
        "{sample:?}, right is {right:02x}"
    );
    assert!(sample.fault.got.contains(&format!("{is:02x}")), "{sample:?}, sent was {is:02x}");
    assert!(
        run.samples
            .iter()
            .filter(|sample| sample.tally.faults_total() > 0)
            .all(|s| !s.verdict.sustained)
    );
    let text = &done.out;
    assert!(text.contains("wrong byte"), "{text}");
    assert!(text.contains(path.as_str()) && text.contains("700"), "{text}");
}

/// Objects that change every other second (and robots forgive three), and some that must not be
/// stored.
const SHORT_LIVED: &str = r#"
name = "short-lived"
description = "Nothing stays."
mode = "forward"
[client]
requests_per_user = "20 / s"
connections = 4
requests_per_connection = "constant(1000)"
[server]
think = "constant(0 s)"
requests_per_connection = "constant(1000)"
idle = "15 s"
[popularity]
fixed_set = 20
choice = "uniform"
[[type]]
name = "news"
mime = "text/html"
extension = "html"
share = "100 %"
size = "constant(1 KB)"
cachable = "70 %"
life_cycle = "constant(2 s)"
"#;

#[test]
fn a_cache_that_never_forgets_is_found_out() {
    let _machine = shared();
    let store: Mutex<HashMap<String, Answer>> = Mutex::default();
    let relay = Relay::start(move |ask, answer: &mut Answer| {
        let mut store = store.lock().expect("no panic");
        *answer = store.entry(ask.path.clone()).or_insert_with(|| answer.clone()).clone();
    });
    let own = folder();
    let (_, run) = measure(&relay, &write(own.path(), "short.toml", SHORT_LIVED), "9s");
    let count = |kind| run.total.faults.get(&kind).copied().unwrap_or_default();
    assert!(count(FaultKind::Stale) > 50, "{:?}", run.total.faults);
    assert!(count(FaultKind::UncachableHit) > 50, "{:?}", run.total.faults);
    let stale = run.total.fault_samples.iter().find(|sample| sample.fault.kind == FaultKind::Stale);
    let stale = stale.expect("evidence");
    assert!(!stale.fault.expected.is_empty() && !stale.fault.got.is_empty(), "{stale:?}");
}

#[test]
fn the_body_of_another_object_is_found() {
    let _machine = shared();
    let last: Mutex<Option<Answer>> = Mutex::default();
    let answers = AtomicU32::new(0);
    let relay = Relay::start(move |_, answer: &mut Answer| {
        let before = last.lock().expect("no panic").replace(answer.clone());
        if let Some(before) =
            before.filter(|_| answers.fetch_add(1, Ordering::Relaxed).is_multiple_of(SPOIL_EVERY))
        {
            answer.body = before.body;
        }
    });
    let (_, run) = measure(&relay, "fixed-1k", "3s");
    let wrong = run.total.faults.get(&FaultKind::WrongByte).copied().unwrap_or_default();
    assert!(wrong >= 2, "{:?}", run.total.faults);
}

#[test]
fn a_right_cache_has_no_faults() {
    let _machine = shared();
    let relay = Relay::start(|_, _| {});
    let (_, run) = measure(&relay, "fixed-1k", "3s");
    assert_eq!(run.total.faults_total(), 0, "{:?}", run.total.fault_samples.first());
    assert!(run.total.misses.answers > 200);
}

#[test]
fn a_cache_that_denies_everything_ends_the_run_with_what_it_says() {
    let _machine = shared();
    let relay = Relay::start(|_, answer: &mut Answer| {
        let denied = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
        (answer.head, answer.body) = (denied.as_bytes().to_vec(), Vec::new());
    });
    let out = folder();
    let path = out.path().to_str().expect("a plain name");
    let words = ["peak", "--attach", &relay.url(), "--workload", "fixed-1k", "--load", "300"];
    let more = ["--time-max", "50s", "--out", path];
    let all = || words.into_iter().chain(SHORT).chain(more);
    lab(all()).with(1).says(&["no right answer", "403", "http_access"]);
    let samples = run_in(out.path()).samples.len();
    assert!((2..=6).contains(&samples), "{samples} samples: it ends when it is no bad moment");
    lab(all()).with(2).says(&[path, "holds the result of a run"]);
}
