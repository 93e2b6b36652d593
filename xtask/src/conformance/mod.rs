//! `cargo xtask conformance`: the public tests of HTTP caches (cache-tests.fyi), run against
//! Humboldt as an accelerator and as a forward proxy, compared with the expectations of the
//! repository, and written down.
//!
//! The suite brings a server, whose answers each test decides, and a client; the cache stands
//! between them. Everything is on loopback, on free ports, in temporary directories.

mod lists;
mod page;
mod relay;
mod subjects;
mod suite;
mod verdict;

use crate::{Outcome, packages, workspace};
use lists::{Finding, Lists};
use std::fs;
use std::path::{Path, PathBuf};
use subjects::{Stand, Subject};
use suite::{Suite, Wish};
use verdict::{Answers, Kind, Verdict, Verdicts};

/// Runs at the same time: they mostly wait, and a wait for time should not be a wait for a
/// processor.
const RUNS_AT_ONCE: usize = 2;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A checkout of the suite's repository, with its dependencies, instead of the release
    #[arg(long, value_name = "DIR")]
    suite: Option<PathBuf>,
    /// The commit of that checkout, for the page, where git does not know it
    #[arg(long, value_name = "COMMIT", requires = "suite")]
    revision: Option<String>,
    /// Test Squid, nginx, Varnish and Traffic Server as well, if they are installed
    #[arg(long)]
    peers: bool,
    /// Subjects, separated by commas: humboldt,squid,nginx,varnish,trafficserver
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    subject: Vec<String>,
    /// Run one test, and show all bytes sent and received
    #[arg(long, value_name = "ID", conflicts_with_all = ["write", "bless"])]
    only: Option<String>,
    /// Put the results into docs/conformance.md
    #[arg(long)]
    write: bool,
    /// Make the tests that pass now the list that later runs are compared with
    #[arg(long)]
    bless: bool,
}

/// The results of the suite for one cache.
struct Run {
    subject: Subject,
    version: String,
    answers: Answers,
    verdicts: Verdicts,
}

impl Run {
    fn count(&self, suite: &Suite, kind: Kind, wanted: Verdict) -> usize {
        let tests = suite.tests.iter().filter(|test| test.kind == kind);
        tests.filter(|test| self.verdicts.get(&test.id) == Some(&wanted)).count()
    }
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    packages::install_for_conformance(arguments.peers)?;
    let subjects = chosen(arguments)?;
    let suite = match &arguments.suite {
        Some(folder) => Suite::checkout(folder, arguments.revision.as_deref())?,
        None => Suite::release()?,
    };
    let needs_ours = subjects.iter().any(Subject::is_ours);
    let humboldt = if needs_ours { subjects::humboldt_program()? } else { PathBuf::new() };
    if let Some(id) = &arguments.only {
        return subjects.iter().try_for_each(|subject| show(&suite, subject, &humboldt, id));
    }
    if (arguments.write || arguments.bless) && !needs_ours {
        return Err(
            "--write and --bless are about Humboldt, which is not among the subjects".into()
        );
    }
    // Without expectations, so that a second chance is the same for all.
    let is_judging = !arguments.write && !arguments.bless;
    let runs = run_all(&suite, &subjects, &humboldt, is_judging)?;
    if arguments.bless {
        lists::bless(suite.edition, &passes_now(&runs))?;
    }
    let lists = Lists::read(suite.edition)?;
    let outcome = judge(&suite, &runs, &lists);
    if arguments.write {
        fs::write(workspace::root().join(page::PAGE), page::page(&suite, &runs, &lists)?)?;
        println!("conformance: {} is written", page::PAGE);
    }
    let text = outcome?;
    if !text.is_empty() {
        println!("conformance: {text}: as expected");
    }
    Ok(())
}

/// The part of `cargo xtask test`: the release against Humboldt, in both modes.
///
/// Without Node or a registry it is left out, except for continuous integration.
pub(crate) fn check(humboldt: &Path) -> Outcome<String> {
    let suite = match Suite::release() {
        Ok(suite) => suite,
        Err(error) if std::env::var_os("CI").is_none_or(|value| value.is_empty()) => {
            println!("note: the conformance suite is left out: {error}");
            return Ok(format!("left out: {error}"));
        }
        Err(error) => return Err(error),
    };
    let ours: Vec<Subject> = subjects::ALL.into_iter().filter(Subject::is_ours).collect();
    let runs = run_all(&suite, &ours, humboldt, true)?;
    judge(&suite, &runs, &Lists::read(suite.edition)?)
}

fn chosen(arguments: &Arguments) -> Outcome<Vec<Subject>> {
    let is_known =
        |name: &&String| subjects::ALL.iter().any(|subject| subject.cache.name == **name);
    if let Some(name) = arguments.subject.iter().find(|name| !is_known(name)) {
        return Err(format!("there is no subject {name}").into());
    }
    let is_wanted = |subject: &Subject| match &arguments.subject[..] {
        [] => arguments.peers || subject.is_ours(),
        names => names.iter().any(|name| name == subject.cache.name),
    };
    Ok(subjects::ALL.into_iter().filter(is_wanted).collect())
}

/// Runs one test with the suite's own record of the bytes sent and received.
fn show(suite: &Suite, subject: &Subject, humboldt: &Path, id: &str) -> Outcome {
    let test = suite
        .tests
        .iter()
        .find(|test| test.id == id)
        .ok_or(format!("the suite has no test {id}"))?;
    let Some(program) = subject.program(humboldt) else {
        left_out(subject);
        return Ok(());
    };
    let stand = Stand::start(suite, subject, &program)?;
    let ids = [id.to_owned()];
    let answers =
        suite.run(stand.folder.path(), stand.base, &Wish { ids: Some(&ids), dump: true })?;
    println!("== {subject}: {}", test.name);
    print!("{}", fs::read_to_string(suite::client_log(stand.folder.path()))?);
    print!("{}", fs::read_to_string(suite::server_log(stand.folder.path()))?);
    // Of itself, without its dependencies.
    let alone = verdict::Test { depends_on: Vec::new(), ..test.clone() };
    let verdicts = verdict::verdicts(std::slice::from_ref(&alone), &answers);
    println!(
        "== {subject}: {id}: {:?}: {}\n",
        verdicts[id],
        lists::explain(&alone, verdicts[id], &answers, &verdicts)
    );
    Ok(())
}

fn left_out(subject: &Subject) {
    println!("note: {} is not installed, it is left out", subject.cache.title);
}

fn run_all(
    suite: &Suite,
    subjects: &[Subject],
    humboldt: &Path,
    is_judging: bool,
) -> Outcome<Vec<Run>> {
    println!("conformance: {}, {} tests", suite.title, suite.tests.len());
    let lists = if is_judging { Some(Lists::read(suite.edition)?) } else { None };
    let mut runs = Vec::new();
    for subjects in subjects.chunks(RUNS_AT_ONCE) {
        let mut stands = Vec::new();
        // One after the other, so that each finds a free port.
        for subject in subjects {
            match subject.program(humboldt) {
                Some(program) => {
                    stands.push((
                        subject,
                        subject.version(&program)?,
                        Stand::start(suite, subject, &program)?,
                    ));
                }
                None => left_out(subject),
            }
        }
        let results: Vec<Result<Run, String>> = std::thread::scope(|scope| {
            let threads: Vec<_> = stands
                .iter()
                .map(|(subject, version, stand)| {
                    let lists = lists.as_ref().filter(|_| subject.is_ours());
                    // The error is made text here because it cannot leave its thread.
                    scope.spawn(move || {
                        run_one(suite, subject, version, stand, lists)
                            .map_err(|error| format!("{subject}: {error}"))
                    })
                })
                .collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            ended.map(|run| run.unwrap_or_else(|_| Err("a run panicked".to_owned()))).collect()
        });
        for run in results {
            let run = run?;
            summarise(suite, &run);
            runs.push(run);
        }
    }
    Ok(runs)
}

/// A whole run, and a second one of the doubtful tests.
fn run_one(
    suite: &Suite,
    subject: &Subject,
    version: &str,
    stand: &Stand,
    lists: Option<&Lists>,
) -> Outcome<Run> {
    let scratch = stand.folder.path();
    let first = suite.run(scratch, stand.base, &Wish { ids: None, dump: false })?;
    let before = verdict::verdicts(&suite.tests, &first);
    let found =
        lists.map(|lists| lists::compare(&suite.tests, subject.mode, &first, &before, lists));
    let repeated = lists::to_repeat(&suite.tests, &before, found.as_deref());
    let mut answers = first.clone();
    if !repeated.is_empty() {
        println!(
            "{subject}: a second run of what did not go as expected: {} of the tests",
            repeated.len()
        );
        answers.extend(suite.run(
            scratch,
            stand.base,
            &Wish { ids: Some(&repeated), dump: false },
        )?);
    }
    let verdicts = verdict::verdicts(&suite.tests, &answers);
    for test in suite.tests.iter().filter(|test| before.get(&test.id) != verdicts.get(&test.id)) {
        let said = lists::explain(test, before[&test.id], &first, &before);
        println!("{subject}: {}: the second run differs; the first: {said}", test.id);
    }
    Ok(Run { subject: *subject, version: version.to_owned(), answers, verdicts })
}

fn summarise(suite: &Suite, run: &Run) {
    let counts = [(Kind::Required, "required"), (Kind::Optimal, "optimal")].map(|(kind, word)| {
        let all = suite.tests.iter().filter(|test| test.kind == kind).count();
        format!("{} of {all} {word}", run.count(suite, kind, Verdict::Pass))
    });
    println!(
        "{}, version {}: {} tests pass, {} questions answered yes, {} no",
        run.subject,
        run.version,
        counts.join(" and "),
        run.count(suite, Kind::Check, Verdict::Yes),
        run.count(suite, Kind::Check, Verdict::No)
    );
}

fn passes_now(runs: &[Run]) -> lists::Passes {
    let ours = runs.iter().filter(|run| run.subject.is_ours());
    lists::passes(ours.map(|run| (run.subject.mode, &run.verdicts)))
}

/// Prints the differences between Humboldt and the lists, and fails if there are any.
fn judge(suite: &Suite, runs: &[Run], lists: &Lists) -> Outcome<String> {
    let ours: Vec<&Run> = runs.iter().filter(|run| run.subject.is_ours()).collect();
    let mut findings: Vec<(String, Finding)> = Vec::new();
    for run in &ours {
        let found =
            lists::compare(&suite.tests, run.subject.mode, &run.answers, &run.verdicts, lists);
        findings.extend(found.into_iter().map(|finding| (run.subject.mode.to_string(), finding)));
    }
    if !ours.is_empty() {
        let left = lists::leftovers(&suite.tests, &passes_now(runs), lists);
        findings.extend(left.into_iter().map(|finding| ("lists".to_owned(), finding)));
    }
    for (place, Finding { id, text, is_failure }) in &findings {
        println!("  {} {place}: {id}: {text}", if *is_failure { "FAILED" } else { "note" });
    }
    let failures = findings.iter().filter(|(_, finding)| finding.is_failure).count();
    if failures > 0 {
        return Err(format!("{failures} results are not as expected").into());
    }
    let passed = |run: &&Run| {
        let count = |kind| run.count(suite, kind, Verdict::Pass);
        format!(
            "{}: {} required, {} optimal",
            run.subject.mode,
            count(Kind::Required),
            count(Kind::Optimal)
        )
    };
    Ok(ours.iter().map(passed).collect::<Vec<_>>().join("; "))
}
