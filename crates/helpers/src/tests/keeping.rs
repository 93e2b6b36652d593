//! Kept answers.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use super::*;
use crate::{Answers, Keeping};

const KEEPING: Keeping = Keeping { ok: LONG, err: LONG, grace_percent: 0, entries_max: 100 };

/// Says how often it was asked.
const COUNT: &str = "n=0; while read x; do n=$((n+1)); case $x in no*) echo ERR n=$n;; \
                     bad*) echo BH n=$n;; *) echo OK n=$n;; esac; done";

fn ask(world: &World, answers: &Answers, helper: &Helper, question: &str) -> String {
    let told = world.wait(answers.ask(helper, question.as_bytes()));
    told.map_or_else(|why| why.to_string(), |reply| value(&reply, "n"))
}

fn kept(answers: &Answers, question: &str) -> Option<(String, bool)> {
    answers.find(question.as_bytes()).map(|(reply, is_due)| (value(&reply, "n"), is_due))
}

#[test]
fn answers_are_kept_for_their_time() {
    let world = World::new();
    let helper = world.adopt(&world.shell(COUNT, children(1)));
    let answers = Answers::new(Keeping { err: Duration::ZERO, ..KEEPING });
    assert_eq!(ask(&world, &answers, &helper, "yes"), "1");
    assert_eq!(kept(&answers, "yes"), Some(("1".into(), false)));
    assert_eq!(ask(&world, &answers, &helper, "no"), "2");
    assert_eq!(kept(&answers, "no"), None);
    let brief = Answers::new(Keeping { ok: Duration::from_millis(1), ..KEEPING });
    assert_eq!(ask(&world, &brief, &helper, "yes"), "3");
    world.until("it has expired", || kept(&brief, "yes").is_none());
    let graceful = Answers::new(Keeping { grace_percent: 100, ..KEEPING });
    assert_eq!(ask(&world, &graceful, &helper, "yes"), "4");
    assert_eq!(kept(&graceful, "yes"), Some(("4".into(), true)), "it is time for another one");
    assert_eq!(ask(&world, &graceful, &helper, "yes"), "5");
    assert_eq!(kept(&graceful, "yes").map(|(n, _)| n), Some("5".into()));
}

#[test]
fn what_is_no_answer_is_not_kept_and_makes_forget() {
    let world = World::new();
    let broken = "while read x; do if test -e DIR/broken; then echo BH; else echo OK n=1; fi; done";
    let helper = world.adopt(&world.shell(broken, children(1)));
    let answers = Answers::new(KEEPING);
    assert_eq!(ask(&world, &answers, &helper, "x"), "1");
    world.touch("broken");
    assert!(ask(&world, &answers, &helper, "x").contains("broken"));
    assert_eq!(kept(&answers, "x"), None);
    assert!(answers.is_empty());
}

#[test]
fn only_as_many_as_the_bound_are_kept_and_used_ones_longer() {
    let world = World::new();
    let helper = world.adopt(&world.shell(COUNT, children(1)));
    let answers = Answers::new(Keeping { entries_max: 10, ..KEEPING });
    for number in 0..50 {
        ask(&world, &answers, &helper, &format!("q{number}"));
        assert!(kept(&answers, "q0").is_some(), "it is used all the time");
        assert!(answers.len() <= 10);
    }
    assert!(kept(&answers, "q1").is_none() && kept(&answers, "q49").is_some());
}

#[test]
fn equal_questions_are_asked_once_and_another_asks_if_the_first_leaves() {
    let world = World::new();
    let helper = world.adopt(&world.shell(GATED, children(1)));
    let answers = Arc::new(Answers::new(Keeping { ok: Duration::ZERO, ..KEEPING }));
    let mut asking: Vec<_> = (0..3).map(|_| Box::pin(answers.ask(&helper, b"x"))).collect();
    world.wait(poll_fn(|context| {
        for one in &mut asking {
            assert!(one.as_mut().poll(context).is_pending());
        }
        Poll::Ready(())
    }));
    world.until("it is asked", || world.helpers.statistics()[0].requests == 1);
    drop(asking.remove(0));
    world.touch("gate");
    for one in asking {
        assert!(world.wait(one).is_ok());
    }
    assert_eq!(world.helpers.statistics()[0].requests, 2, "the first, and one for the others");
}
