//! Controllers against simulated subjects whose capacity is known. `--nocapture` prints what was
//! found.
#![allow(clippy::print_stdout, reason = "the caller sees what was found")]

mod simulator;

use humboldt_lab_peak::{ClassicSettings, Controller, ControllerSettings, RobustSettings};
use simulator::{Course, Finished, Subject, run};

/// How far the robust controller may be from the truth.
const ROBUST_ERROR_MAX: f64 = 0.03;

/// How far the classic one may be.
const CLASSIC_ERROR_MAX: f64 = 0.05;

fn controller(name: &str, first_per_s: f64, time_scale: f64) -> Box<dyn Controller> {
    let mut settings = ControllerSettings::named(name).expect("a name");
    settings.set_first_load(first_per_s);
    settings.build(time_scale).expect("defaults are allowed")
}

fn course(samples: u32, period_s: f64) -> Course {
    Course { samples, period_us: (period_s * 1e6) as u64, seed: 7 }
}

/// A run of samples of 1.2 s at time scale 0.02.
fn short_run(name: &str, subject: &Subject, first_per_s: f64, samples: u32) -> Finished {
    run(subject, controller(name, first_per_s, 0.02).as_mut(), course(samples, 1.2))
}

#[track_caller]
fn assert_near(what: &str, got: f64, truth: f64, error_max: f64) {
    let ratio = got / truth;
    println!("{what}: found/true {ratio:.4}");
    assert!((ratio - 1.0).abs() <= error_max, "{what}: {got:.1}, not {truth:.1} ± {error_max}");
}

#[test]
fn robust_finds_the_capacity_from_any_first_load() {
    for (capacity, period_s, time_scale) in
        [(137.0, 60.0, 1.0), (1_000.0, 6.0, 0.1), (1_000.0, 1.2, 0.02), (20_000.0, 1.2, 0.02)]
    {
        for first in [0.01, 0.5, 2.0, 50.0] {
            let mut controller = controller("robust", capacity * first, time_scale);
            let found = run(&Subject::new(capacity), controller.as_mut(), course(100, period_s));
            let what =
                format!("robust, {capacity}/s in samples of {period_s} s, from {first} × capacity");
            assert_near(&what, found.sustained_per_s(), capacity, ROBUST_ERROR_MAX);
            let throughput = found.run.summary.throughput_per_s;
            assert!(found.run.summary.samples >= 25);
            assert_near(
                &format!("{what}, throughput"),
                throughput,
                capacity,
                2.0 * ROBUST_ERROR_MAX,
            );
        }
    }
}

#[test]
fn robust_finds_a_capacity_of_five_per_second() {
    for first in [0.01, 100.0] {
        let mut controller = controller("robust", first, 1.0);
        let subject = Subject { timeout_us: 120_000_000, ..Subject::new(5.0) };
        let found = run(&subject, controller.as_mut(), course(150, 60.0));
        // 200 ms per request: with 0.75 s of patience at p95 a server is full long before it is
        // busy all the time.
        assert_near("robust, 5/s", found.sustained_per_s(), 5.0 * 0.62, 0.15);
    }
}

#[test]
fn think_times_of_misses_are_not_taken_for_a_queue() {
    let subject = Subject { hit_share: 0.55, think_us: 250_000, ..Subject::new(1_000.0) };
    for first in [10.0, 3_000.0] {
        let found = run(&subject, controller("robust", first, 0.1).as_mut(), course(100, 6.0));
        assert_near("robust, hits and misses", found.sustained_per_s(), 1_000.0, ROBUST_ERROR_MAX);
        assert!((found.run.summary.hit_ratio - 0.55).abs() < 0.01);
        assert!(found.run.summary.misses.mean_ms > 250.0);
    }
}

#[test]
fn robust_finds_a_capacity_that_is_never_the_same() {
    let subject = Subject { jitter: 0.05, ..Subject::new(1_000.0) };
    let found = short_run("robust", &subject, 100.0, 100);
    assert_near("robust, jitter", found.sustained_per_s(), 1_000.0, ROBUST_ERROR_MAX);
}

#[test]
fn samples_that_the_host_spoils_do_not_steer() {
    for spoils in [|index, _| index % 4 == 0, |index, _| (10..20).contains(&index)] {
        let subject = Subject { spoils, ..Subject::new(1_000.0) };
        let found = short_run("robust", &subject, 100.0, 160);
        assert_near("robust, spoiled samples", found.sustained_per_s(), 1_000.0, ROBUST_ERROR_MAX);
        assert_eq!(found.run.summary.limit_reached, Some(true));
    }
}

/// The laboratory cannot offer more than 600/s, and the subject could serve 1,000/s.
#[test]
fn the_laboratorys_own_limit_is_not_taken_for_the_subjects() {
    for name in ["robust", "classic"] {
        let subject = Subject { spoils: |_, load| load > 600.0, ..Subject::new(1_000.0) };
        let found = short_run(name, &subject, 100.0, 160);
        let summary = &found.run.summary;
        assert_eq!(summary.limit_reached, Some(false), "{name}");
        let sustained = found.lines.iter().filter(|line| line.sustained);
        let highest = sustained.map(|line| line.load_per_s).fold(0.0, f64::max);
        assert!((400.0..=600.0).contains(&highest), "{name}: {highest}");
        assert!(found.lines.iter().all(|line| line.load_per_s < 1_300.0), "{name}");
    }
}

#[test]
fn too_few_answers_to_judge_are_no_limit() {
    let mut settings = RobustSettings { load_max_per_s: 40.0, ..RobustSettings::default() };
    settings.first_load_per_s = 20.0;
    let mut controller = ControllerSettings::Robust(settings).build(0.02).unwrap();
    let found = run(&Subject::new(1_000.0), controller.as_mut(), course(100, 1.2));
    assert!(found.lines.iter().any(|line| line.reason.starts_with("too few answers")));
    assert_eq!(found.run.summary.limit_reached, Some(false));
}

#[test]
fn a_run_of_which_most_was_spoiled_measures_nothing() {
    let subject = Subject { spoils: |index, _| index % 4 != 0, ..Subject::new(1_000.0) };
    let found = short_run("robust", &subject, 100.0, 160);
    assert_eq!(found.run.summary.sustained_per_s, None);
}

#[test]
fn classic_ends_at_the_capacity() {
    for (capacity, period_s, time_scale) in [(137.0, 60.0, 1.0), (1_000.0, 6.0, 0.1)] {
        for first in [0.01, 0.5, 2.0, 50.0] {
            let mut controller = controller("classic", capacity * first, time_scale);
            let found = run(&Subject::new(capacity), controller.as_mut(), course(100, period_s));
            let what = format!(
                "classic, {capacity}/s in samples of {period_s} s, from {first} × capacity"
            );
            assert_near(&what, found.run.summary.throughput_per_s, capacity, CLASSIC_ERROR_MAX);
        }
    }
}

#[test]
fn classic_with_the_books_steps_ends_there_too() {
    for first in [0.5, 1.5] {
        let settings = ClassicSettings {
            first_load_per_s: 137.0 * first,
            step_accelerates: false,
            ..ClassicSettings::default()
        };
        let mut controller = ControllerSettings::Classic(settings).build(1.0).unwrap();
        let found = run(&Subject::new(137.0), controller.as_mut(), course(100, 60.0));
        let what = format!("classic, ±5 %, from {first} × capacity");
        assert_near(&what, found.run.summary.throughput_per_s, 137.0, CLASSIC_ERROR_MAX);
        for pair in found.lines.windows(2) {
            let step = pair[1].load_per_s / pair[0].load_per_s;
            assert!(
                [0.95, 1.0, 1.05].iter().any(|allowed| (step - allowed).abs() < 1e-9),
                "{step}"
            );
        }
    }
}

/// How many samples after the `from`th a load near `truth` is sustained.
fn samples_until(found: &Finished, from: usize, truth: f64) -> usize {
    let near = |load: f64| (load / truth - 1.0).abs() < 0.05;
    let reached =
        found.lines[from..].iter().position(|line| line.sustained && near(line.load_per_s));
    reached.unwrap_or_else(|| panic!("{truth}/s is never found again: {:?}", found.lines.last()))
}

#[test]
fn robust_follows_a_capacity_that_falls_by_half() {
    let subject = Subject { capacity: vec![(0.0, 1_000.0), (0.5, 500.0)], ..Subject::new(0.0) };
    for (period_s, time_scale) in [(1.2, 0.02), (12.0, 0.2)] {
        let found =
            run(&subject, controller("robust", 900.0, time_scale).as_mut(), course(100, period_s));
        let samples = samples_until(&found, 50, 500.0);
        println!("falls by half, samples of {period_s} s: found after {samples}");
        assert!(samples <= 15, "{samples}");
        assert_near("robust, after a fall", found.sustained_per_s(), 500.0, ROBUST_ERROR_MAX);
    }
}

/// `robust` finds a capacity that rises in the middle of a run.
fn follows_a_rise(what: &str, from_per_s: f64, to_per_s: f64) {
    let capacity = vec![(0.0, from_per_s), (0.4, to_per_s)];
    let subject = Subject { capacity, ..Subject::new(0.0) };
    let found = short_run("robust", &subject, 0.9 * from_per_s, 100);
    let samples = samples_until(&found, 40, to_per_s);
    println!("{what}: found after {samples}");
    assert!(samples <= 30, "{samples}");
    assert_near("robust, after a rise", found.sustained_per_s(), to_per_s, ROBUST_ERROR_MAX);
}

#[test]
fn robust_follows_a_capacity_that_doubles() {
    follows_a_rise("doubles", 500.0, 1_000.0);
}

#[test]
fn robust_climbs_again_where_the_capacity_turns_out_far_above() {
    // What disturbed the beginning was not noticed, and the first search ended far too low.
    follows_a_rise("a hundred times as much", 100.0, 10_000.0);
}

#[test]
fn a_total_stall_is_survived() {
    // The classic one has no way to drain what the stall left but to wait until a load below the
    // capacity has.
    for (name, samples_max) in [("robust", 15), ("classic", 30)] {
        let stall = vec![(0.0, 1_000.0), (0.3, 0.0), (0.33, 1_000.0)];
        let subject = Subject { capacity: stall, timeout_us: 10_000_000, ..Subject::new(0.0) };
        let found = short_run(name, &subject, 900.0, 100);
        assert!(found.lines[30..33].iter().all(|line| line.answered_per_s < 100.0));
        assert!(
            found.lines[30..33].iter().all(|line| !line.sustained),
            "{:?}",
            &found.lines[30..33]
        );
        let samples = samples_until(&found, 33, 1_000.0);
        println!("{name}, stall: found after {samples}");
        assert!(samples <= samples_max, "{name}: {samples}");
    }
}

#[test]
fn a_subject_that_dies_gets_a_trickle_and_no_endless_load() {
    let subject = Subject { capacity: vec![(0.0, 1_000.0), (0.5, 0.0)], ..Subject::new(0.0) };
    let found = short_run("robust", &subject, 900.0, 100);
    let last = found.lines.last().unwrap();
    assert!(last.load_per_s > 0.0 && last.load_per_s < 20.0, "{last:?}");
    assert_eq!(found.run.summary.sustained_per_s, None);
}

#[test]
fn errors_above_a_rate_are_a_limit() {
    let subject = Subject { errors_above: Some(600.0), ..Subject::new(1_000.0) };
    for first in [10.0, 5_000.0] {
        let found = short_run("robust", &subject, first, 150);
        assert_near(
            "robust, errors above 600/s",
            found.sustained_per_s(),
            600.0,
            CLASSIC_ERROR_MAX,
        );
        assert!(found.lines.iter().any(|line| line.reason.starts_with("errors ")));
    }
}

#[test]
fn wrong_content_is_never_sustained_and_does_not_steer() {
    let subject = Subject { wrong_every: Some(500), ..Subject::new(1_000.0) };
    let found = short_run("robust", &subject, 100.0, 100);
    assert_eq!(found.run.summary.sustained_per_s, None);
    assert_near(
        "robust, wrong content",
        found.run.summary.throughput_per_s,
        1_000.0,
        CLASSIC_ERROR_MAX,
    );
    assert!(found.lines[50].reason.starts_with("wrong content: "), "{:?}", found.lines[50]);
}

#[test]
fn an_overload_is_drained_before_the_next_level_is_judged() {
    let found = short_run("robust", &Subject::new(1_000.0), 5_000.0, 60);
    let drained = found.lines.iter().position(|line| line.state == "resume").unwrap();
    assert!(found.lines[..=drained].iter().all(|line| !line.sustained));
    assert!(found.lines[drained].backlog < 260, "{:?}", found.lines[drained]);
    assert!(found.lines[drained + 1].load_per_s < 1_000.0);
}
