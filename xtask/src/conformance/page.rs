//! `docs/conformance.md`, made of the results of a run.

use super::Run;
use super::lists::Lists;
use super::subjects::Mode;
use super::suite::Suite;
use super::verdict::{Kind, Test, Verdict};
use crate::Outcome;
use crate::prose::wrapped;
use std::fmt::Write;

/// Relative to the root of the checkout.
pub(super) const PAGE: &str = "docs/conformance.md";

const INTRODUCTION: &str = "\
# Conformance

<!-- Made by `cargo xtask conformance --write`; do not edit. The reasons are in tests/conformance. -->

This page shows the results of the public tests of HTTP caches \
([cache-tests.fyi](https://cache-tests.fyi/)) for Humboldt, and for other caches as Debian 12 packages \
them. The suite has a client and a server, and each test decides what the server answers. The cache stands \
between them. Each cache has the plainest configuration with which it caches: the tests are about its \
defaults, and a few more lines of configuration would change some of these results. Humboldt and Squid \
have the same `squid.conf`. Varnish is configured not to keep answers without a lifetime, as the suite's \
authors do, because most tests depend on that.

- **Accelerator**: the cache has the suite's server as its origin, and is asked for paths.
- **Forward**: the cache is a proxy. The suite's client cannot use proxies, so a relay in front of the \
cache turns each `/path` into `http://server/path` and passes on everything else unchanged.

```
cargo xtask conformance                      # the suite's release against Humboldt, as continuous integration does it
cargo xtask conformance --suite DIR --peers --write      # a checkout of the suite, all caches, and this page
cargo xtask conformance --only freshness-max-age         # one test, with all that is sent and received
```

A test that fails is repeated once, because some tests depend on seconds. The tests that must pass are \
listed in [tests/conformance](../tests/conformance): a change that makes a listed test fail is not merged.
";

pub(super) fn page(suite: &Suite, runs: &[Run], lists: &Lists) -> Outcome<String> {
    let mut page = INTRODUCTION.to_owned();
    numbers(&mut page, suite, runs)?;
    failures(&mut page, suite, runs, lists)?;
    questions(&mut page, suite, lists)?;
    groups(&mut page, suite, runs)?;
    Ok(wrapped(&page))
}

fn numbers(page: &mut String, suite: &Suite, runs: &[Run]) -> Outcome {
    let all = |kind| suite.tests.iter().filter(|test| test.kind == kind).count();
    let (required, optimal, checks) = (all(Kind::Required), all(Kind::Optimal), all(Kind::Check));
    writeln!(
        page,
        "\n## In numbers\n\n\
         This is {}. It has {} tests for proxies: {required} **required** ones test rules of HTTP, {optimal} **optimal** ones test \
         good caching, and {checks} **ask** what the cache does where HTTP leaves the choice. The table counts the tests that pass.\n\n\
         cache | version | mode | required, of {required} | optimal, of {optimal} | asked: yes, no, untold\n\
         --- | --- | --- | ---: | ---: | ---:",
        suite.title,
        suite.tests.len(),
    )?;
    for run in runs {
        let passed = |kind| run.count(suite, kind, Verdict::Pass);
        let (yes, no) = (
            run.count(suite, Kind::Check, Verdict::Yes),
            run.count(suite, Kind::Check, Verdict::No),
        );
        writeln!(
            page,
            "{} | {} | {} | {} | {} | {yes}, {no}, {}",
            run.subject.cache.title,
            run.version,
            run.subject.mode,
            passed(Kind::Required),
            passed(Kind::Optimal),
            checks - yes - no
        )?;
    }
    Ok(())
}

fn failures(page: &mut String, suite: &Suite, runs: &[Run], lists: &Lists) -> Outcome {
    let ours: Vec<&Run> = runs.iter().filter(|run| run.subject.is_ours()).collect();
    writeln!(
        page,
        "\n## What does not pass with Humboldt, and why\n\ntest | kind | mode | why\n--- | --- | --- | ---"
    )?;
    for test in suite.tests.iter().filter(|test| test.kind != Kind::Check) {
        let failed = ours.iter().filter(|run| run.verdicts.get(&test.id) != Some(&Verdict::Pass));
        let modes: Vec<&str> = failed.map(|run| run.subject.mode.word()).collect();
        if modes.is_empty() {
            continue;
        }
        let modes = if modes.len() == ours.len() { "both".to_owned() } else { modes.join(", ") };
        let kind = if test.kind == Kind::Required { "required" } else { "optimal" };
        let reason = lists.why_it_fails(&test.id).unwrap_or("?");
        writeln!(page, "{} | {kind} | {modes} | {}", link(&test.id), cell(reason))?;
    }
    Ok(())
}

fn questions(page: &mut String, suite: &Suite, lists: &Lists) -> Outcome {
    writeln!(
        page,
        "\n## What HTTP leaves open, and what Humboldt does\n\n\
         The answers are the same in both modes; the links lead to the questions. The answers of the other caches are in the tables \
         below. Sections are of RFC 9111 unless another document is named. An answer is untold where the suite cannot tell.\n\n\
         question | Humboldt | why\n--- | --- | ---"
    )?;
    for test in suite.tests.iter().filter(|test| test.kind == Kind::Check) {
        let Some(check) = lists.checks.get(&test.id) else { continue };
        writeln!(page, "{} | {} | {}", link(&test.id), check.answer, cell(&check.reason))?;
    }
    Ok(())
}

fn groups(page: &mut String, suite: &Suite, runs: &[Run]) -> Outcome {
    writeln!(
        page,
        "\n## Every test\n\n\
         ✓ passes, ✗ fails (required), ○ fails (optimal). `·` is untold: a test that it depends on fails, or the requests before \
         the tested one had other results than the test needs. Questions are answered with yes or no. A is the accelerator, F the \
         forward proxy."
    )?;
    let mut group = "";
    for test in &suite.tests {
        if test.group != group {
            group = &test.group;
            let heads =
                runs.iter().map(|run| format!(" | {} {}", run.subject.cache.title, letter(run)));
            writeln!(page, "\n### {group}\n\ntest{}", heads.collect::<String>())?;
            writeln!(page, "---{}", " | :---:".repeat(runs.len()))?;
        }
        let marks = runs.iter().map(|run| format!(" | {}", mark(test, run)));
        writeln!(page, "`{}`{}", test.id, marks.collect::<String>())?;
    }
    Ok(())
}

fn letter(run: &Run) -> char {
    match run.subject.mode {
        Mode::Accelerator => 'A',
        Mode::Forward => 'F',
    }
}

fn mark(test: &Test, run: &Run) -> &'static str {
    match run.verdicts.get(&test.id).copied().unwrap_or(Verdict::Untested) {
        Verdict::Pass => "✓",
        Verdict::Fail => "✗",
        Verdict::OptionalFail => "○",
        Verdict::Yes => "yes",
        Verdict::No => "no",
        Verdict::SetupFail
        | Verdict::HarnessFail
        | Verdict::DependencyFail
        | Verdict::Retry
        | Verdict::Untested => "·",
    }
}

/// A test's name, and its page on the suite's site.
fn link(id: &str) -> String {
    format!("[`{id}`](https://cache-tests.fyi/?id={id})")
}

/// Text that may stand in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
