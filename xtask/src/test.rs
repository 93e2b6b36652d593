//! `cargo xtask test`: every check and every test, in one command, on a fresh machine.

use crate::{Outcome, conformance, packages, results, tidy, workspace};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Do not look for missing Debian packages
    #[arg(long)]
    no_install: bool,
}

/// The line of the closing summary for one step.
struct Step {
    name: &'static str,
    took: Duration,
    outcome: Outcome<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let root = workspace::root();
    let mut steps = Vec::new();
    if !arguments.no_install {
        steps.push(step("packages", || packages::install_for_tests().map(|()| String::new())));
        stop_at_failure(&steps)?;
    }
    steps.push(step("tools", || components().map(|()| String::new())));
    stop_at_failure(&steps)?;
    steps.push(step("format", || cargo(&root, &["fmt", "--all", "--check"])));
    let lints = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    steps.push(step("clippy", || cargo(&root, &lints)));
    steps.push(step("tidy", || tidy::run().map(|()| String::new())));
    steps.push(step("results", results::check));
    steps.push(step("recompute", results::recompute));
    steps.push(step("build", || cargo(&root, &["build", "--package", "humboldt"])));
    steps.push(step("tests", || tests(&root)));
    steps.push(step("conformance", || conformance::check(&built_humboldt(&root)?)));
    summary(&steps)
}

fn step(name: &'static str, work: impl FnOnce() -> Outcome<String>) -> Step {
    println!("== {name}");
    let start = Instant::now();
    let outcome = work();
    let took = start.elapsed();
    let word = if outcome.is_ok() { "done" } else { "FAILED" };
    println!("== {name}: {word} after {:.1} s", took.as_secs_f64());
    Step { name, took, outcome }
}

/// Without the tools, every later step would fail for the same reason.
fn stop_at_failure(steps: &[Step]) -> Outcome {
    if steps.last().is_some_and(|step| step.outcome.is_err()) { summary(steps) } else { Ok(()) }
}

/// A minimal installation of Rust lacks rustfmt and clippy.
fn components() -> Outcome {
    for (command, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        let found = Command::new(workspace::cargo())
            .args([command, "--version"])
            .output()?
            .status
            .success();
        if found {
            continue;
        }
        let message = format!("cargo {command} is missing: install the Rust component {component}");
        let added = Command::new("rustup").args(["component", "add", component]).status();
        if !added.map_err(|_| message.clone())?.success() {
            return Err(message.into());
        }
    }
    Ok(())
}

fn cargo(root: &Path, arguments: &[&str]) -> Outcome<String> {
    let status = cargo_command(root, arguments).status()?;
    if status.success() {
        Ok(String::new())
    } else {
        Err(format!("`cargo {}` failed", arguments.join(" ")).into())
    }
}

fn cargo_command(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(workspace::cargo());
    command.args(arguments).current_dir(root).env("CARGO_TERM_PROGRESS_WHEN", "never");
    command
}

/// The program that the step `build` has made.
fn built_humboldt(root: &Path) -> Outcome<PathBuf> {
    Ok(workspace::target_dir(root)?.join("debug/humboldt"))
}

/// Runs all tests, shows their lines as they come, and counts.
fn tests(root: &Path) -> Outcome<String> {
    let mut child = cargo_command(root, &["test", "--workspace", "--no-fail-fast"])
        .env("HUMBOLDT_BIN", built_humboldt(root)?)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut counts = Counts::default();
    let output = child.stdout.take().ok_or("no output")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        counts.add(&line);
    }
    let status = child.wait()?;
    let text =
        format!("{} passed, {} failed, {} ignored", counts.passed, counts.failed, counts.ignored);
    if status.success() && counts.failed == 0 {
        return Ok(text);
    }
    let failures = counts.failures.join("\n").replace('\n', "\n    ");
    Err(if failures.is_empty() { text } else { format!("{text}:\n    {failures}") }.into())
}

/// Lines of the message of a failed test that the summary repeats.
const MESSAGE_LINES: usize = 6;
/// Characters of each.
const MESSAGE_WIDTH: usize = 300;

#[derive(Default, PartialEq, Debug)]
struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// The names of tests that failed, each with the first lines of its message.
    failures: Vec<String>,
    /// The failure whose message comes now, and the lines that it may still have.
    message: Option<(usize, usize)>,
}

impl Counts {
    /// Reads `test NAME ... FAILED` and `test result: ok. 3 passed; 0 failed; 1 ignored; …`, and
    /// of `---- NAME stdout ----` the message of the panic. A log of all tests is long, and is
    /// often kept without its middle: so the summary at its end has the messages too.
    fn add(&mut self, line: &str) {
        if let Some(name) =
            line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.failures.push(name.to_owned());
        }
        self.add_message(line);
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let words: Vec<&str> = result.split([' ', ';']).collect();
        for pair in words.windows(2) {
            let Ok(count) = pair[0].parse::<u64>() else { continue };
            match pair[1] {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.ignored += count,
                _ => {}
            }
        }
    }

    fn add_message(&mut self, line: &str) {
        let title = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(name) = title {
            // The last of that name: other test programs may have had one.
            let at = self.failures.iter().rposition(|failure| failure == name);
            self.message = at.map(|at| (at, MESSAGE_LINES));
            return;
        }
        let Some((at, left)) = &mut self.message else { return };
        let begins = *left < MESSAGE_LINES || line.contains(" panicked at ");
        let ends = ["stack backtrace:", "note: "].iter().any(|end| line.starts_with(end))
            || line == "failures:";
        if begins && !ends && !line.is_empty() {
            let shown: String = line.chars().take(MESSAGE_WIDTH).collect();
            self.failures[*at] += &format!("\n  {shown}");
            *left -= 1;
        }
        if ends || *left == 0 {
            self.message = None;
        }
    }
}

fn summary(steps: &[Step]) -> Outcome {
    println!("\nsummary");
    for step in steps {
        let seconds = step.took.as_secs_f64();
        match &step.outcome {
            Ok(text) => println!("  ok      {:<11} {seconds:>6.1} s  {text}", step.name),
            Err(error) => println!("  FAILED  {:<11} {seconds:>6.1} s  {error}", step.name),
        }
    }
    let failed = steps.iter().filter(|step| step.outcome.is_err()).count();
    if failed > 0 {
        return Err(format!("{failed} of {} steps failed", steps.len()).into());
    }
    println!("everything passed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_test_programs_add_up() {
        let mut counts = Counts::default();
        counts.add(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        );
        counts.add("test a::b ... FAILED");
        counts
            .add("test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out");
        let failures = vec!["a::b".into()];
        assert_eq!(counts, Counts { passed: 15, failed: 1, ignored: 1, failures, message: None });
    }

    #[test]
    fn the_message_of_a_failed_test_comes_into_the_summary() {
        let mut counts = Counts::default();
        let output = "\
test a ... FAILED
test b ... FAILED
test c ... FAILED

failures:

---- a stdout ----
curl said something

thread 'a' (12) panicked at tests/a.rs:3:5:
assertion `left == right` failed: nothing was sent
  left: 1
 right: 2
stack backtrace:
   0: __rustc::rust_begin_unwind

---- b stdout ----

thread 'b' panicked at tests/b.rs:7:1:
1
2
3
4
5
6
7

---- c stdout ----

thread 'c' panicked at tests/c.rs:7:1:
once

failures:
    a
    b
    c
";
        output.lines().for_each(|line| counts.add(line));
        let a = "a\n  thread 'a' (12) panicked at tests/a.rs:3:5:\n  \
                 assertion `left == right` failed: nothing was sent\n    left: 1\n   right: 2";
        let b = "b\n  thread 'b' panicked at tests/b.rs:7:1:\n  1\n  2\n  3\n  4\n  5";
        let c = "c\n  thread 'c' panicked at tests/c.rs:7:1:\n  once";
        assert_eq!(counts.failures, [a, b, c]);
    }
}
