//! The meaning of the suite's answers: a test can fail because another one did, or because its
//! preparation failed.
//!
//! The rules are the suite's own (`determineTestResult`), so that our counts are those of its
//! pages.

use crate::Outcome;
use serde_json::Value;
use std::collections::BTreeMap;

/// The demand of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// HTTP demands it.
    Required,
    /// HTTP allows less, a good cache does it.
    Optimal,
    /// A question without a wrong answer.
    Check,
}

/// One test, as the suite describes it.
#[derive(Clone, Debug)]
pub(super) struct Test {
    pub(super) id: String,
    /// The heading that the suite puts it under.
    pub(super) group: String,
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Tests without which this one has no meaning.
    pub(super) depends_on: Vec<String>,
}

/// The suite client's answer for one test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Held,
    Broken { class: String, message: String },
}

/// The meaning of a test, given its kind and its dependencies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Pass,
    /// A required test that fails.
    Fail,
    /// An optimal test that fails.
    OptionalFail,
    Yes,
    No,
    /// The requests before the one in question did not go as they must.
    SetupFail,
    /// The client gave up waiting.
    HarnessFail,
    /// A test that this one depends on does not pass.
    DependencyFail,
    /// A request reached the server twice.
    Retry,
    Untested,
}

pub(super) type Answers = BTreeMap<String, Answer>;
pub(super) type Verdicts = BTreeMap<String, Verdict>;

/// Reads the list that the driver writes.
pub(super) fn read_tests(list: &Value) -> Outcome<Vec<Test>> {
    list.as_array().ok_or("the list of tests is no list")?.iter().map(read_test).collect()
}

fn read_test(test: &Value) -> Outcome<Test> {
    let text = |key: &str| {
        test[key].as_str().map(str::to_owned).ok_or(format!("a test has no {key}: {test}"))
    };
    let kind = match text("kind")?.as_str() {
        "required" => Kind::Required,
        "optimal" => Kind::Optimal,
        "check" => Kind::Check,
        other => return Err(format!("a test is of the unknown kind {other}").into()),
    };
    let depends_on = test["depends_on"].as_array().into_iter().flatten();
    let depends_on = depends_on.filter_map(Value::as_str).map(str::to_owned).collect();
    Ok(Test { id: text("id")?, group: text("group")?, name: text("name")?, kind, depends_on })
}

/// Reads the results of the suite's client: `true`, or the kind of failure and a message.
pub(super) fn read_answers(results: &Value) -> Outcome<Answers> {
    let results = results.as_object().ok_or("the results are no object")?;
    let read = |(id, result): (&String, &Value)| {
        let part = |index: usize| result[index].as_str().unwrap_or_default().to_owned();
        let answer = match result {
            Value::Bool(true) => Answer::Held,
            _ => Answer::Broken { class: part(0), message: part(1) },
        };
        (id.clone(), answer)
    };
    Ok(results.iter().map(read).collect())
}

/// The verdict on every test.
pub(super) fn verdicts(tests: &[Test], answers: &Answers) -> Verdicts {
    let by_id: BTreeMap<&str, &Test> = tests.iter().map(|test| (test.id.as_str(), test)).collect();
    let judge = |test: &Test| (test.id.clone(), verdict(&by_id, test, answers, tests.len()));
    tests.iter().map(judge).collect()
}

/// `depth` ends a circle of dependencies, which the suite does not have today.
fn verdict(by_id: &BTreeMap<&str, &Test>, test: &Test, answers: &Answers, depth: usize) -> Verdict {
    let Some(answer) = answers.get(&test.id) else { return Verdict::Untested };
    let holds = |id: &String| {
        let verdict = by_id.get(id.as_str()).map(|test| verdict(by_id, test, answers, depth - 1));
        matches!(verdict, Some(Verdict::Pass | Verdict::Yes))
    };
    if depth == 0 || !test.depends_on.iter().all(holds) {
        return Verdict::DependencyFail;
    }
    match (answer, test.kind) {
        (Answer::Broken { class, message }, _) if class == "Setup" => {
            if message == "retry" {
                Verdict::Retry
            } else {
                Verdict::SetupFail
            }
        }
        (Answer::Broken { class, .. }, _) if class == "AbortError" => Verdict::HarnessFail,
        (Answer::Held, Kind::Required | Kind::Optimal) => Verdict::Pass,
        (Answer::Held, Kind::Check) => Verdict::Yes,
        (Answer::Broken { .. }, Kind::Required) => Verdict::Fail,
        (Answer::Broken { .. }, Kind::Optimal) => Verdict::OptionalFail,
        (Answer::Broken { .. }, Kind::Check) => Verdict::No,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::conformance) fn test(id: &str, kind: Kind, depends_on: &[&str]) -> Test {
        Test {
            id: id.into(),
            group: "Group".into(),
            name: format!("Does {id}?"),
            kind,
            depends_on: depends_on.iter().map(|id| (*id).to_owned()).collect(),
        }
    }

    fn broken(class: &str, message: &str) -> Answer {
        Answer::Broken { class: class.into(), message: message.into() }
    }

    fn verdict_on(kind: Kind, answer: Answer) -> Verdict {
        verdicts(&[test("a", kind, &[])], &Answers::from([("a".into(), answer)]))["a"]
    }

    #[test]
    fn the_same_answer_means_different_things_for_different_kinds() {
        let kinds = [Kind::Required, Kind::Optimal, Kind::Check];
        assert_eq!(
            kinds.map(|kind| verdict_on(kind, Answer::Held)),
            [Verdict::Pass, Verdict::Pass, Verdict::Yes]
        );
        let failed =
            kinds.map(|kind| verdict_on(kind, broken("Assertion", "Response 2 comes from cache")));
        assert_eq!(failed, [Verdict::Fail, Verdict::OptionalFail, Verdict::No]);
    }

    #[test]
    fn what_went_wrong_before_the_question_says_nothing_about_it() {
        for kind in [Kind::Required, Kind::Optimal, Kind::Check] {
            assert_eq!(
                verdict_on(kind, broken("Setup", "Response 1 status is 500, not 200")),
                Verdict::SetupFail
            );
            assert_eq!(verdict_on(kind, broken("Setup", "retry")), Verdict::Retry);
            assert_eq!(verdict_on(kind, broken("AbortError", "")), Verdict::HarnessFail);
        }
    }

    #[test]
    fn a_test_needs_all_that_it_depends_on() {
        let tests = [
            test("base", Kind::Required, &[]),
            test("check", Kind::Check, &["base"]),
            test("on-both", Kind::Optimal, &["base", "check"]),
        ];
        let mut answers: Answers =
            ["base", "check", "on-both"].map(|id| (id.to_owned(), Answer::Held)).into();
        assert_eq!(verdicts(&tests, &answers)["on-both"], Verdict::Pass);

        answers.insert("check".into(), broken("Assertion", ""));
        assert_eq!(verdicts(&tests, &answers)["on-both"], Verdict::DependencyFail);

        // Dependencies of dependencies count as well.
        answers.insert("check".into(), Answer::Held);
        answers.insert("base".into(), broken("Setup", ""));
        let found = verdicts(&tests, &answers);
        assert_eq!(
            (found["base"], found["check"], found["on-both"]),
            (Verdict::SetupFail, Verdict::DependencyFail, Verdict::DependencyFail)
        );
    }

    #[test]
    fn a_test_that_is_missing_or_depends_on_itself_does_not_pass() {
        let tests = [
            test("not-run", Kind::Required, &[]),
            test("on-not-run", Kind::Required, &["not-run"]),
            test("on-nothing-known", Kind::Required, &["elsewhere"]),
            test("circle", Kind::Required, &["circle"]),
        ];
        let answers = ["on-not-run", "on-nothing-known", "circle"]
            .map(|id| (id.to_owned(), Answer::Held))
            .into();
        let found = verdicts(&tests, &answers);
        assert_eq!(found["not-run"], Verdict::Untested);
        for id in ["on-not-run", "on-nothing-known", "circle"] {
            assert_eq!(found[id], Verdict::DependencyFail, "{id}");
        }
    }

    #[test]
    fn what_the_driver_writes_is_read() {
        let list = r#"[{"id":"a","group":"G","name":"N","kind":"optimal","depends_on":["b"]}]"#;
        let tests = read_tests(&serde_json::from_str(list).unwrap()).unwrap();
        assert_eq!((tests[0].kind, &tests[0].depends_on[0][..]), (Kind::Optimal, "b"));
        assert!(
            read_tests(
                &serde_json::from_str(r#"[{"id":"a","group":"G","name":"N","kind":"new"}]"#)
                    .unwrap()
            )
            .is_err()
        );

        let results = r#"{"a": true, "b": ["Assertion", "no"]}"#;
        let answers = read_answers(&serde_json::from_str(results).unwrap()).unwrap();
        assert_eq!(answers["a"], Answer::Held);
        assert_eq!(answers["b"], broken("Assertion", "no"));
    }
}
