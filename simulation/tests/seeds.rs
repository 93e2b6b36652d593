//! The seeds of the normal suite, in the program that `cargo xtask simulate` runs.

use std::process::{Command, Output};

/// Seeds of the normal suite. Any number of others: `cargo xtask simulate --seeds N --from M`.
const SEEDS: u64 = 500;

/// Seeds that once failed. What a seed does changes with the simulation, so each of these defects
/// also has a test of its own where it was, or a planted mistake.
const ONCE_FAILED: [u64; 21] = [
    19, 31, 42, 176, 275, 299, 337, 501, 591, 644, 1311, 1348, 2250, 4586, 5534, 200_204, 201_597,
    1422, 300_926, 400_789, 500_264,
];

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_humboldt-simulation"));
    command.args(arguments).output().expect("the simulation runs")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The count of this name in the line with all of them.
fn count(text: &str, name: &str) -> u64 {
    let mut parts = text.lines().flat_map(|line| line.split(", "));
    let part = parts.find_map(|part| part.strip_suffix(name)?.trim().parse().ok());
    part.unwrap_or_else(|| panic!("{name} in {text}"))
}

#[test]
fn nothing_is_wrong_under_any_seed() {
    let output = run(&["--seeds", &SEEDS.to_string()]);
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    // It has seen something.
    for (name, least) in [
        ("requests", 100_000),
        ("hits", 20_000),
        ("parts", 2_000),
        ("purges", 5_000),
        ("confirmations", 1_000),
        ("shared fetches", 1_000),
        ("reloads", 2_000),
        ("clients that left", 500),
        ("clients that take parts", 20_000),
        ("clients that left their fetch", 20),
        ("clients cut off as others waited", 5),
        ("early answers", 300),
        ("losses of power", 50),
        ("ends of the process", 50),
        ("operations of disks", 100_000),
        ("tunnels", 2_000),
        ("tunnels spliced", 500),
        ("tunnels bumped", 500),
        ("tunnels closed without a byte", 200),
        ("tunnels refused", 20),
        ("answers in tunnels", 500),
        ("pages in tunnels", 200),
        ("faults forgiven", 20),
        ("servers with TLS that fail", 100),
    ] {
        assert!(count(&text, name) >= least, "{name}: {text}");
    }
}

#[test]
fn nothing_is_wrong_under_seeds_that_once_failed() {
    for seed in ONCE_FAILED {
        let output = run(&["--seed", &seed.to_string()]);
        assert!(output.status.success(), "{}", text(&output));
    }
}

#[test]
fn a_seed_repeats_exactly() {
    for seed in 0..30 {
        let run = || text(&run(&["--seed", &seed.to_string()]));
        assert_eq!(run(), run(), "seed {seed}");
    }
}
