//! Runs many seeds, each as a process of its own: a hang or an abort is the failure of one seed,
//! and a seed does the same alone as among others.

use std::io::{IsTerminal, Read};
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::totals::Totals;

/// Longest time that one seed may take. The slowest take a few seconds.
const SEED_MAX: Duration = Duration::from_secs(120);

/// Time between two looks at a process.
const LOOK: Duration = Duration::from_millis(2);

/// The begin of the line with what a seed has seen.
pub(crate) const SEEN: &str = "seen: ";

/// What came of all seeds.
pub(crate) struct Outcome {
    pub(crate) totals: Totals,
    /// Seeds that failed, and why, in their order.
    pub(crate) failed: Vec<(u64, String)>,
}

/// Runs `seeds` in as many processes at a time. Stops early after the first failure, if that is
/// wanted.
pub(crate) fn run(seeds: Range<u64>, jobs: usize, stops_early: bool) -> Outcome {
    let bar = progress(seeds.end - seeds.start);
    let next = AtomicU64::new(seeds.start);
    let end = AtomicU64::new(seeds.end);
    let outcome = Mutex::new(Outcome { totals: Totals::default(), failed: Vec::new() });
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= end.load(Ordering::SeqCst) {
                        return;
                    }
                    let (seen, failure) = one(seed);
                    bar.inc(1);
                    let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
                    outcome.totals.add_line(&seen);
                    outcome.totals.add("seeds", 1);
                    if let Some(failure) = failure {
                        bar.suspend(|| println!("seed {seed} FAILED: {failure}"));
                        outcome.failed.push((seed, failure));
                        if stops_early {
                            end.fetch_min(seed, Ordering::SeqCst);
                        }
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcome.failed.sort();
    outcome
}

/// A bar on a terminal.
fn progress(seeds: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} seeds, {eta} left");
    ProgressBar::new(seeds).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// What one seed has seen, and why it failed.
fn one(seed: u64) -> (String, Option<String>) {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return (String::new(), Some(error.to_string())),
    };
    let mut command = Command::new(program);
    command.args(["--seed", &seed.to_string()]).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let (text, ends) = match child {
        Ok(child) => watch(child),
        Err(error) => return (String::new(), Some(error.to_string())),
    };
    let seen = text.lines().find_map(|line| line.strip_prefix(SEEN)).unwrap_or_default();
    let why = match ends {
        Ends::Well => return (seen.to_owned(), None),
        Ends::Late => format!("it does not end within {} s", SEED_MAX.as_secs()),
        Ends::Ill => {
            let is_reason = |line: &&str| line.contains("panicked") || line.starts_with("WRONG");
            let mut lines = text.lines().filter(is_reason);
            lines.next().unwrap_or("it was aborted").to_owned()
        }
    };
    (seen.to_owned(), Some(why))
}

enum Ends {
    Well,
    Ill,
    Late,
}

/// What a process says, and how it ends.
fn watch(mut child: Child) -> (String, Ends) {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        let read = |pipe: Option<Box<dyn Read + Send>>| {
            let mut text = String::new();
            if let Some(mut pipe) = pipe {
                _ = pipe.read_to_string(&mut text);
            }
            text
        };
        let out = out.map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
        let err = err.map(|pipe| Box::new(pipe) as Box<dyn Read + Send>);
        let out = scope.spawn(move || read(out));
        let err = scope.spawn(move || read(err));
        let ends = wait(&mut child);
        let text = |pipe: thread::ScopedJoinHandle<'_, String>| pipe.join().unwrap_or_default();
        (text(out) + &text(err), ends)
    })
}

fn wait(child: &mut Child) -> Ends {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ends::Well,
            Ok(Some(_)) | Err(_) => return Ends::Ill,
            Ok(None) if begin.elapsed() < SEED_MAX => thread::sleep(LOOK),
            Ok(None) => {
                _ = child.kill();
                _ = child.wait();
                return Ends::Late;
            }
        }
    }
}
