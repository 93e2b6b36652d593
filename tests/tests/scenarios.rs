//! Plays every `tests/scenarios/**/*.hbt`; `docs/scenarios.md` describes the language.
//!
//! `HUMBOLDT_SCENARIO=part` plays those whose path has `part` in it.
#![allow(clippy::print_stderr, reason = "shown with --nocapture and when a test fails")]

#[path = "scenarios/compose.rs"]
mod compose;
#[path = "scenarios/expect.rs"]
mod expect;
#[path = "scenarios/message.rs"]
mod message;
#[path = "scenarios/parse.rs"]
mod parse;
#[path = "scenarios/play.rs"]
mod play;
#[path = "scenarios/read.rs"]
mod read;
#[path = "scenarios/script.rs"]
mod script;
#[path = "scenarios/stage.rs"]
mod stage;
#[path = "scenarios/text.rs"]
mod text;
#[path = "scenarios/transcript.rs"]
mod transcript;
#[path = "scenarios/wires.rs"]
mod wires;

use humboldt_tests::Proxy;
use script::Scenario;
use stage::Stage;
use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};
use wires::Wires;

/// Most of a scenario's time is the proxy's, or waiting.
const THREADS: usize = 16;

#[test]
fn every_scenario_holds() {
    let start = Instant::now();
    let wanted = std::env::var("HUMBOLDT_SCENARIO").unwrap_or_default();
    let (scenarios, mut failures) = read_all(&wanted);
    assert!(
        !scenarios.is_empty() || !failures.is_empty(),
        "no scenario's path has `{wanted}` in it"
    );
    let results = play_all(&scenarios);
    let mut known = 0;
    let mut slowest = (Duration::ZERO, "");
    for (scenario, result) in scenarios.iter().zip(results) {
        slowest = slowest.max((result.took, &scenario.path));
        match (&scenario.known, result.outcome) {
            (None, Ok(())) => {}
            (None, Err(failure)) => failures.push(failure),
            (Some(reason), Err(failure)) => {
                eprintln!("known: {reason}\n  {}", failure.lines().next().unwrap_or_default());
                known += 1;
            }
            (Some(reason), Ok(())) => failures.push(format!(
                "{}: this holds now: remove the line `known: {reason}`\n",
                scenario.path
            )),
        }
    }
    eprintln!(
        "{} scenarios, {known} known not to hold, {} failed; {:.1} s, the longest {:.1} s ({})",
        scenarios.len(),
        failures.len(),
        start.elapsed().as_secs_f32(),
        slowest.0.as_secs_f32(),
        slowest.1
    );
    assert!(
        failures.is_empty(),
        "{} of {} scenarios failed:\n\n{}",
        failures.len(),
        scenarios.len(),
        failures.join("\n")
    );
}

/// The scenarios whose path contains `part`, and the faults of unreadable ones.
fn read_all(part: &str) -> (Vec<Scenario>, Vec<String>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    find(&root.join("scenarios"), &mut paths);
    paths.sort();
    let mut scenarios = Vec::new();
    let mut failures = Vec::new();
    for path in paths {
        let below = path.strip_prefix(root).unwrap_or(&path);
        let name = Path::new("tests").join(below).display().to_string();
        if !name.contains(part) {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        match parse::parse(&name, &source) {
            Ok(scenario) => scenarios.push(scenario),
            Err(failure) => failures.push(failure),
        }
    }
    (scenarios, failures)
}

fn find(folder: &Path, paths: &mut Vec<PathBuf>) {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        if path.is_dir() {
            find(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "hbt") {
            paths.push(path);
        }
    }
}

struct Played {
    outcome: Result<(), String>,
    took: Duration,
}

/// Plays them side by side, in any order; the results are in theirs.
fn play_all(scenarios: &[Scenario]) -> Vec<Played> {
    // One proxy for each configuration that several may share, started by the first that needs it.
    let mut users: BTreeMap<&str, usize> = BTreeMap::new();
    for scenario in scenarios.iter().filter(|scenario| scenario.can_share()) {
        *users.entry(&scenario.config).or_default() += 1;
    }
    let shared: BTreeMap<&str, OnceLock<Proxy>> = users
        .into_iter()
        .filter(|(_, count)| *count > 1)
        .map(|(config, _)| (config, OnceLock::new()))
        .collect();
    // Those that take seconds begin first: disks that are written at the end, and waiting in vain.
    let mut order: Vec<usize> = (0..scenarios.len()).collect();
    order.sort_by_key(|&index| {
        scenarios
            .get(index)
            .is_some_and(|scenario| scenario.stores() == 0 && scenario.known.is_none())
    });
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Played>>> = scenarios.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..THREADS.min(scenarios.len()) {
            scope.spawn(|| {
                while let Some(&index) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (Some(scenario), Some(result)) = (scenarios.get(index), results.get(index))
                    else {
                        break;
                    };
                    let start = Instant::now();
                    let outcome = catch_unwind(AssertUnwindSafe(|| play_one(scenario, &shared)))
                        .unwrap_or_else(|panic| {
                            Err(format!("{}: {}\n", scenario.path, reason(&*panic)))
                        });
                    let played = Played { outcome, took: start.elapsed() };
                    *result.lock().expect("nobody panics here") = Some(played);
                }
            });
        }
    });
    results
        .into_iter()
        .filter_map(|played| played.into_inner().expect("nobody panics here"))
        .collect()
}

fn play_one(scenario: &Scenario, shared: &BTreeMap<&str, OnceLock<Proxy>>) -> Result<(), String> {
    let wires = Wires::new().map_err(|error| format!("{}: {error}\n", scenario.path))?;
    let stage = match shared.get(scenario.config.as_str()).filter(|_| scenario.can_share()) {
        Some(proxy) => Stage::Shared(proxy.get_or_init(|| Proxy::forward(&scenario.config))),
        None => Stage::own(scenario, wires.origin()),
    };
    play::play(scenario, wires, stage)
}

/// The message of a panic.
fn reason(panic: &dyn std::any::Any) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
