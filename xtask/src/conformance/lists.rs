//! The expectations for Humboldt: the tests that pass, reasons why the others do not, and a reason
//! for each answer to a question that HTTP leaves open. The results of a run are compared with all
//! three.

use super::subjects::Mode;
use super::suite::Edition;
use super::verdict::{Answer, Answers, Kind, Test, Verdict, Verdicts};
use crate::{Outcome, workspace};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

const FOLDER: &str = "tests/conformance";

/// Reasons for tests that do not pass, and for the answers to questions.
const FAILS: &str = "fails.txt";
const CHECKS: &str = "checks.txt";

/// The tests that pass, and in which modes.
pub(super) type Passes = BTreeMap<String, BTreeSet<Mode>>;

/// Humboldt's expected answer to a question, with its reason.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Check {
    pub(super) answer: String,
    pub(super) reason: String,
}

#[derive(Default)]
pub(super) struct Lists {
    pub(super) passes: Passes,
    pub(super) fails: BTreeMap<String, String>,
    pub(super) checks: BTreeMap<String, Check>,
}

impl Lists {
    pub(super) fn read(edition: Edition) -> Outcome<Self> {
        let text = |name: &str| {
            let path = path(name);
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        Ok(Self {
            passes: parse_passes(&text(passes_file(edition))?)?,
            fails: of_edition(parse_fails(&text(FAILS)?)?, edition),
            checks: of_edition(parse_checks(&text(CHECKS)?)?, edition),
        })
    }

    /// Why a test does not pass: a line of its own, or one for all tests whose names begin like it.
    pub(super) fn why_it_fails(&self, id: &str) -> Option<&str> {
        let is_of_group = |(key, _): &(&String, _)| {
            key.strip_suffix('*').is_some_and(|begin| id.starts_with(begin))
        };
        let reason = self
            .fails
            .get(id)
            .or_else(|| self.fails.iter().find(is_of_group).map(|(_, reason)| reason));
        reason.map(String::as_str)
    }
}

/// Writes the list of tests that pass now.
pub(super) fn bless(edition: Edition, passes: &Passes) -> Outcome {
    let mut text = format!(
        "# Tests of the suite's {} that pass, and in which modes; written by `cargo xtask conformance --bless`.\n",
        edition.word()
    );
    for (id, modes) in passes {
        let modes: Vec<&str> = modes.iter().map(|mode| mode.word()).collect();
        writeln!(text, "{id} {}", modes.join(" "))?;
    }
    Ok(fs::write(path(passes_file(edition)), text)?)
}

fn passes_file(edition: Edition) -> &'static str {
    match edition {
        Edition::Release => "pass-release.txt",
        Edition::Checkout => "pass-checkout.txt",
    }
}

fn path(name: &str) -> PathBuf {
    workspace::root().join(FOLDER).join(name)
}

/// Keeps the lines for this edition: lines of `id`, and lines of `id@edition`, which come first.
fn of_edition<T>(lines: BTreeMap<String, T>, edition: Edition) -> BTreeMap<String, T> {
    let (special, mut common): (BTreeMap<_, _>, BTreeMap<_, _>) =
        lines.into_iter().partition(|(key, _)| key.contains('@'));
    for (key, value) in special {
        if let Some((id, word)) = key.split_once('@')
            && word == edition.word()
        {
            common.insert(id.to_owned(), value);
        }
    }
    common
}

/// Lines that say something: neither empty nor a comment.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn parse_passes(text: &str) -> Outcome<Passes> {
    let mut passes = Passes::new();
    for line in lines(text) {
        let mut words = line.split_whitespace();
        let id = words.next().unwrap_or_default();
        let mode = |word: &str| {
            Mode::ALL
                .into_iter()
                .find(|mode| mode.word() == word)
                .ok_or(format!("`{line}`: what is {word}?"))
        };
        let modes = words.map(mode).collect::<Result<_, _>>()?;
        add(&mut passes, id, modes)?;
    }
    Ok(passes)
}

/// Lines of `id: reason`.
fn parse_fails(text: &str) -> Outcome<BTreeMap<String, String>> {
    let mut fails = BTreeMap::new();
    for line in lines(text) {
        let (id, reason) = line.split_once(": ").ok_or(format!("`{line}` is not `id: reason`"))?;
        add(&mut fails, id, reason.trim().to_owned())?;
    }
    Ok(fails)
}

/// Lines of `id: answer: reason`.
fn parse_checks(text: &str) -> Outcome<BTreeMap<String, Check>> {
    let mut checks = BTreeMap::new();
    for line in lines(text) {
        let mut parts = line.splitn(3, ": ");
        let (Some(id), Some(answer), Some(reason)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(format!("`{line}` is not `id: answer: reason`").into());
        };
        if !["yes", "no", UNTOLD].contains(&answer) {
            return Err(format!("{id}: the answer is yes, no or {UNTOLD}, not {answer}").into());
        }
        add(
            &mut checks,
            id,
            Check { answer: answer.to_owned(), reason: reason.trim().to_owned() },
        )?;
    }
    Ok(checks)
}

fn add<T>(map: &mut BTreeMap<String, T>, id: &str, value: T) -> Outcome {
    match map.insert(id.to_owned(), value) {
        None => Ok(()),
        Some(_) => Err(format!("{id} is listed twice").into()),
    }
}

/// The answer to a question that another test's failure leaves open.
pub(super) const UNTOLD: &str = "untold";

/// A verdict on a question, as a word.
pub(super) fn answer_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Yes => "yes",
        Verdict::No => "no",
        _ => UNTOLD,
    }
}

/// The required and optimal tests that pass in each mode.
pub(super) fn passes<'a>(runs: impl IntoIterator<Item = (Mode, &'a Verdicts)>) -> Passes {
    let mut passes = Passes::new();
    for (mode, verdicts) in runs {
        for (id, _) in verdicts.iter().filter(|(_, verdict)| **verdict == Verdict::Pass) {
            passes.entry(id.clone()).or_default().insert(mode);
        }
    }
    passes
}

/// One difference between a run and the expectations.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Finding {
    pub(super) id: String,
    pub(super) text: String,
    /// Whether the command fails for it.
    pub(super) is_failure: bool,
}

/// Compares a run of Humboldt with the expectations.
pub(super) fn compare(
    tests: &[Test],
    mode: Mode,
    answers: &Answers,
    verdicts: &Verdicts,
    lists: &Lists,
) -> Vec<Finding> {
    tests.iter().filter_map(|test| compare_one(test, mode, answers, verdicts, lists)).collect()
}

fn compare_one(
    test: &Test,
    mode: Mode,
    answers: &Answers,
    verdicts: &Verdicts,
    lists: &Lists,
) -> Option<Finding> {
    let verdict = verdicts.get(&test.id).copied().unwrap_or(Verdict::Untested);
    let said = explain(test, verdict, answers, verdicts);
    let finding = |is_failure: bool, text: String| {
        Some(Finding {
            id: test.id.clone(),
            text: format!("{text}\n      {}", test.name),
            is_failure,
        })
    };
    if test.kind == Kind::Check {
        let answer = answer_word(verdict);
        return match lists.checks.get(&test.id) {
            None => {
                finding(true, format!("the answer is {answer}, and {CHECKS} has no reason for it"))
            }
            Some(check) if check.answer != answer => finding(
                true,
                format!("the answer is {answer}, {CHECKS} says {}: {said}", check.answer),
            ),
            Some(_) => None,
        };
    }
    let is_listed = lists.passes.get(&test.id).is_some_and(|modes| modes.contains(&mode));
    match (verdict == Verdict::Pass, is_listed) {
        (true, true) => None,
        (true, false) => finding(false, "passes and is not listed; --bless lists it".to_owned()),
        (false, true) => finding(true, format!("passed before: {said}")),
        (false, false) if lists.why_it_fails(&test.id).is_some() => None,
        (false, false) => finding(true, format!("{said}; {FAILS} has no reason for it")),
    }
}

/// The suite's message about a test, or the reason why there is none.
pub(super) fn explain(
    test: &Test,
    verdict: Verdict,
    answers: &Answers,
    verdicts: &Verdicts,
) -> String {
    if verdict == Verdict::DependencyFail {
        let fails = |id: &&String| !matches!(verdicts.get(*id), Some(Verdict::Pass | Verdict::Yes));
        let names: Vec<&str> = test.depends_on.iter().filter(fails).map(String::as_str).collect();
        return format!("depends on {}", names.join(", "));
    }
    match answers.get(&test.id) {
        Some(Answer::Held) => "the suite is content".to_owned(),
        Some(Answer::Broken { class, message }) => format!("{class}: {message}"),
        None => "it was not run".to_owned(),
    }
}

/// Lines that a change of the suite or of Humboldt has left behind.
pub(super) fn leftovers(tests: &[Test], passes_now: &Passes, lists: &Lists) -> Vec<Finding> {
    let is_known = |id: &String| tests.iter().any(|test| test.id == *id);
    let unknown = lists.passes.keys().filter(|id| !is_known(id)).map(|id| Finding {
        id: id.clone(),
        text: "is listed as passing, and the suite has no such test".to_owned(),
        is_failure: true,
    });
    let is_outdated =
        |id: &&String| passes_now.get(*id).is_some_and(|modes| modes.len() == Mode::ALL.len());
    let outdated = lists.fails.keys().filter(is_outdated).map(|id| Finding {
        id: id.clone(),
        text: format!("passes in both modes; {FAILS} still says why it does not"),
        is_failure: false,
    });
    unknown.chain(outdated).collect()
}

/// Tests that a second run may judge differently: tests about time can fail on a busy machine.
///
/// With expectations these are the failures; without any, all that is not a clear success or
/// answer.
pub(super) fn to_repeat(
    tests: &[Test],
    verdicts: &Verdicts,
    unexpected: Option<&[Finding]>,
) -> Vec<String> {
    let is_doubtful = |test: &&Test| match unexpected {
        Some(findings) => {
            findings.iter().any(|finding| finding.is_failure && finding.id == test.id)
        }
        None => !matches!(verdicts.get(&test.id), Some(Verdict::Pass | Verdict::Yes | Verdict::No)),
    };
    let mut open: Vec<&Test> = tests.iter().filter(is_doubtful).collect();
    let mut wanted: BTreeSet<&str> = open.iter().map(|test| test.id.as_str()).collect();
    // A test may have failed because of its dependencies.
    while let Some(test) = open.pop() {
        for other in tests.iter().filter(|other| test.depends_on.contains(&other.id)) {
            let is_settled = matches!(verdicts.get(&other.id), Some(Verdict::Pass | Verdict::Yes));
            if !is_settled && wanted.insert(&other.id) {
                open.push(other);
            }
        }
    }
    wanted.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::super::verdict::{tests::test, verdicts};
    use super::*;

    fn broken() -> Answer {
        Answer::Broken { class: "Assertion".into(), message: "Response 2 comes from cache".into() }
    }

    fn lists(passes: &str, fails: &str, checks: &str) -> Lists {
        Lists {
            passes: parse_passes(passes).unwrap(),
            fails: parse_fails(fails).unwrap(),
            checks: parse_checks(checks).unwrap(),
        }
    }

    /// The findings of a run that has nothing wrong with `held`, and something with `failed`.
    fn findings(tests: &[Test], failed: &[&str], lists: &Lists) -> Vec<(String, bool)> {
        let answer = |test: &Test| {
            (test.id.clone(), if failed.contains(&&*test.id) { broken() } else { Answer::Held })
        };
        let answers = tests.iter().map(answer).collect();
        let verdicts = verdicts(tests, &answers);
        let found = compare(tests, Mode::Forward, &answers, &verdicts, lists);
        found.into_iter().map(|finding| (finding.id, finding.is_failure)).collect()
    }

    #[test]
    fn a_listed_test_that_fails_is_a_failure_and_a_new_one_that_passes_is_not() {
        let tests = ["held", "lost", "won", "other-mode"].map(|id| test(id, Kind::Required, &[]));
        let lists =
            lists("held forward\nlost accelerator forward\nother-mode accelerator\n", "", "");
        let found = findings(&tests, &["lost"], &lists);
        assert_eq!(
            found,
            [
                ("lost".to_owned(), true),
                ("won".to_owned(), false),
                ("other-mode".to_owned(), false)
            ]
        );
    }

    #[test]
    fn a_test_that_does_not_pass_needs_a_reason() {
        let tests = ["why", "because"].map(|id| test(id, Kind::Optimal, &[]));
        let lists = lists("", "because: Nobody needs it.", "");
        assert_eq!(findings(&tests, &["why", "because"], &lists), [("why".to_owned(), true)]);
    }

    #[test]
    fn every_answer_must_be_the_one_that_is_written_down() {
        let tests = ["as-written", "turned", "new"].map(|id| test(id, Kind::Check, &[]));
        let lists = lists("", "", "as-written: no: So be it.\nturned: yes: It was: once.\n");
        let failed = ["as-written", "turned"];
        assert_eq!(
            findings(&tests, &failed, &lists),
            [("turned".to_owned(), true), ("new".to_owned(), true)]
        );
        assert_eq!(lists.checks["turned"].reason, "It was: once.");
    }

    #[test]
    fn a_question_that_another_test_leaves_open_is_untold() {
        let tests = [test("base", Kind::Required, &[]), test("question", Kind::Check, &["base"])];
        let lists = lists("", "base: Not done.", "question: untold: The base is missing.");
        assert_eq!(findings(&tests, &["base"], &lists), []);
        assert_eq!(
            findings(&tests, &[], &lists),
            [("base".to_owned(), false), ("question".to_owned(), true)]
        );
    }

    #[test]
    fn what_is_repeated_brings_its_dependencies() {
        let tests = [
            test("far", Kind::Required, &[]),
            test("near", Kind::Required, &["far"]),
            test("listed", Kind::Required, &["near"]),
            test("known-bad", Kind::Required, &[]),
        ];
        let answers = Answers::from([
            ("far".into(), broken()),
            ("near".into(), Answer::Held),
            ("listed".into(), Answer::Held),
            ("known-bad".into(), broken()),
        ]);
        let found = verdicts(&tests, &answers);
        let findings = compare(
            &tests[2..3],
            Mode::Forward,
            &answers,
            &found,
            &lists("listed forward", "", ""),
        );
        assert_eq!(to_repeat(&tests, &found, Some(&findings)), ["far", "listed", "near"]);
        assert_eq!(to_repeat(&tests, &found, None), ["far", "known-bad", "listed", "near"]);
        let unexpected_yes = [Finding { id: "far".into(), text: String::new(), is_failure: true }];
        let all_held = tests.iter().map(|test| (test.id.clone(), Verdict::Pass)).collect();
        assert_eq!(to_repeat(&tests, &all_held, Some(&unexpected_yes)), ["far"]);
    }

    #[test]
    fn lines_that_say_nothing_any_more_are_found() {
        let tests = [test("here", Kind::Required, &[])];
        let lists = lists("here forward\ngone forward\n", "here: It was hard.", "");
        let both = parse_passes("here accelerator forward").unwrap();
        let found: Vec<_> =
            leftovers(&tests, &both, &lists).into_iter().map(|f| (f.id, f.is_failure)).collect();
        assert_eq!(found, [("gone".to_owned(), true), ("here".to_owned(), false)]);
        assert_eq!(leftovers(&tests, &lists.passes, &lists).len(), 1);
    }

    #[test]
    fn a_line_may_be_for_one_edition_or_for_a_group() {
        let text =
            "a: For both.\nb@release: Old.\nb: New.\nc@repository: There.\nd-*: All of them.\n";
        let read = |edition| Lists {
            fails: of_edition(parse_fails(text).unwrap(), edition),
            ..Lists::default()
        };
        let why = |edition| {
            ["a", "b", "c", "d-1", "e"].map(|id| read(edition).why_it_fails(id).map(str::to_owned))
        };
        let some = |text: &str| Some(text.to_owned());
        let release = [some("For both."), some("Old."), None, some("All of them."), None];
        assert_eq!(why(Edition::Release), release);
        let repository =
            [some("For both."), some("New."), some("There."), some("All of them."), None];
        assert_eq!(why(Edition::Checkout), repository);
    }

    #[test]
    fn a_list_with_nonsense_in_it_is_refused() {
        assert!(parse_passes("a sideways").is_err());
        assert!(parse_passes("a forward\na forward").is_err());
        assert!(parse_fails("a because").is_err());
        assert!(parse_checks("a: maybe: who knows").is_err());
        assert!(parse_checks("# a comment\n\na: yes: Of course.").is_ok());
    }
}
