//! Reconfiguration, and the end.

use super::*;

#[test]
fn each_reconfiguration_starts_new_processes() {
    let world = World::new();
    let definition = world.shell(ECHO, children(2));
    let first = world.adopt(&definition);
    let pid = value(&world.ask(&first, "x").expect("an answer"), "pid");
    let second = world.adopt(&definition);
    assert_ne!(value(&world.ask(&second, "x").expect("an answer"), "pid"), pid);
}

#[test]
fn a_replaced_helper_answers_the_last_requests_and_ends() {
    let world = World::new();
    let old = world.adopt(&world.shell(GATED, children(1)));
    let (asking, waiting) = (old.ask(b"old"), old.ask(b"waiting"));
    world.until("it is asked", || world.pids().len() == 1);
    let pid = world.pids()[0];
    let new = world.adopt(&world.shell(ECHO, children(1)));
    assert_eq!(value(&world.ask(&new, "new").expect("an answer"), "said"), "new");
    assert!(is_running(pid), "it still has questions");
    world.touch("gate");
    assert_eq!(value(&world.wait(asking).expect("an answer"), "said"), "old");
    assert_eq!(value(&world.wait(waiting).expect("an answer"), "said"), "waiting");
    world.until("the old process has ended", || !is_running(pid));
    let late = world.ask(&old, "late").expect("a request with the old configuration");
    let pid = value(&late, "pid").parse().expect("a number");
    world.until("that process too", || !is_running(pid));
    drop(old);
    world.until("its figures are gone", || world.helpers.statistics().len() == 1);
    assert!(world.ask(&new, "x").is_ok());
}

#[test]
fn a_helper_that_nobody_can_ask_ends() {
    let world = World::new();
    let helper = world.adopt(&world.shell(ECHO, children(1)));
    world.ask(&helper, "x").expect("an answer");
    let pid = world.pids()[0];
    drop(helper);
    world.until("it has ended", || !is_running(pid));
}

#[test]
fn no_process_is_left_at_the_end() {
    let world = World::new();
    let stubborn = "trap '' TERM; while :; do sleep 0.05; done";
    let mute = "exec > /dev/null; exec sleep 1000";
    let one = HelperChildren { startup: 1, ..children(1) };
    let definitions = [ECHO, GATED, stubborn, mute].map(|text| world.shell(text, one.clone()));
    let helpers = world.helpers.adopt(definitions.to_vec()).expect("a thread");
    let asking = helpers[1].ask(b"never");
    world.until("the question is there", || {
        world.helpers.statistics().iter().any(|one| one.requests == 1)
    });
    // One of them may be replaced soon, as it is mute.
    world.until("all run", || world.pids().len() >= 4);
    let pids = world.pids();
    world.helpers.end();
    assert!(!pids.iter().any(|pid| is_running(*pid)), "{pids:?}");
    assert!(matches!(world.wait(asking), Err(NoAnswer::ProcessEnded | NoAnswer::NotRunning)));
    assert_eq!(world.ask(&helpers[0], "x"), Err(NoAnswer::NotRunning));
    let after = world.adopt(&definitions[0]);
    assert_eq!(world.ask(&after, "x"), Err(NoAnswer::NotRunning));
}
