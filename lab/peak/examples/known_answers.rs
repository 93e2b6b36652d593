//! Lets every controller search on simulated subjects of known capacity, and prints what it found.
//!
//! `cargo run -p humboldt-lab-peak --example known_answers [-- trace]`
#![allow(clippy::print_stdout, reason = "this is what it is for")]

#[path = "../tests/simulator/mod.rs"]
mod simulator;

use humboldt_lab_peak::ControllerSettings;
use simulator::{Course, Finished, Subject, run};

/// Capacity in requests per second, length of a sample in s, time scale.
const SUBJECTS: [(f64, f64, f64); 5] = [
    (137.0, 60.0, 1.0),
    (137.0, 6.0, 0.1),
    (1_000.0, 6.0, 0.1),
    (1_000.0, 1.2, 0.02),
    (20_000.0, 1.2, 0.02),
];

/// First loads, as parts of the capacity.
const FIRST_LOADS: [f64; 4] = [0.01, 0.5, 2.0, 50.0];

fn main() {
    let is_traced = std::env::args().any(|argument| argument == "trace");
    println!(
        "controller  capacity/s  sample  scale  first/C  sustained/C  throughput/C  sustained samples"
    );
    for name in ["robust", "classic"] {
        for (capacity, sample_s, time_scale) in SUBJECTS {
            for first in FIRST_LOADS {
                let finished = search(name, capacity, sample_s, time_scale, first);
                let summary = &finished.run.summary;
                let share =
                    finished.run.samples.iter().filter(|sample| sample.verdict.sustained).count();
                println!(
                    "{name:10} {capacity:11} {sample_s:6} s {time_scale:6} {first:8} {:12.4} {:13.4} {share:11} of {}",
                    finished.sustained_per_s() / capacity,
                    summary.throughput_per_s / capacity,
                    summary.samples,
                );
                if is_traced {
                    trace(&finished, capacity);
                }
            }
        }
    }
}

fn search(name: &str, capacity: f64, sample_s: f64, time_scale: f64, first: f64) -> Finished {
    let mut settings = ControllerSettings::named(name).expect("one of three");
    settings.set_first_load(capacity * first);
    let mut controller = settings.build(time_scale).expect("defaults are allowed");
    let timeout_us = (60e6 * time_scale).max(10e6) as u64;
    let subject = Subject { timeout_us, ..Subject::new(capacity) };
    let course = Course { samples: 120, period_us: (sample_s * 1e6) as u64, seed: 7 };
    run(&subject, controller.as_mut(), course)
}

fn trace(finished: &Finished, capacity: f64) {
    for (index, line) in finished.lines.iter().enumerate() {
        println!(
            "  {index:4} load/C {:8.4} answered/C {:7.4} backlog {:8} {} {:10} {}",
            line.load_per_s / capacity,
            line.answered_per_s / capacity,
            line.backlog,
            if line.sustained { "sustained" } else { "        -" },
            line.state,
            line.reason,
        );
    }
}
