//! Processes that fail.

use super::*;

#[test]
fn a_helper_that_cannot_run_has_no_answer_and_recovers() {
    let world = World::new();
    let program = world.path("helper").display().to_string();
    let definition = Definition::new(Kind::ExternalAcl, "test", vec![program], children(2));
    let helper = world.adopt(&definition);
    assert_eq!(world.ask(&helper, "x"), Err(NoAnswer::NoProcess));
    assert_eq!(world.ask(&helper, "x"), Err(NoAnswer::NoProcess), "it rests");
    std::fs::write(world.path("helper"), format!("#!/bin/sh\n{ECHO}\n")).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(world.path("helper"), mode).expect("executable");
    world.until("it is tried again", || world.ask(&helper, "x").is_ok());
}

#[test]
fn one_that_ends_at_once_is_started_at_longer_and_longer_intervals() {
    let world = World::new();
    let one = HelperChildren { startup: 1, ..children(1) };
    let text = "echo x >> DIR/starts; [ -e DIR/good ] || exit 1; cat > /dev/null";
    let begin = Instant::now();
    let _helper = world.adopt(&world.shell(text, one));
    let starts = || std::fs::read_to_string(world.path("starts")).unwrap_or_default().len() / 2;
    world.until("the fourth start", || starts() >= 4);
    // Rests of 100, 200 and 400 ms lie between four starts.
    assert!(begin.elapsed() >= Duration::from_millis(700), "{:?}", begin.elapsed());
    world.touch("good");
    world.until("one stays", || starts() > 4 && world.active() == 1);
}

#[test]
fn a_question_whose_process_dies_is_sent_to_another_one_once() {
    let world = World::new();
    let text = "read -r line; if [ -e DIR/died ]; then echo \"OK said=$line\"; read -r line; \
                else touch DIR/died; kill -9 $$; fi";
    let helper = world.adopt(&world.shell(text, HelperChildren { idle: 2, ..children(2) }));
    let reply = world.ask(&helper, "again");
    assert_eq!(value(&reply.expect("from the second process"), "said"), "again");

    let world = World::new();
    let text = "read -r line; echo \"$line\" >> DIR/asked; exit 1";
    let helper = world.adopt(&world.shell(text, HelperChildren { startup: 5, ..children(5) }));
    world.until("all run", || world.active() == 5);
    assert_eq!(world.ask(&helper, "poison"), Err(NoAnswer::ProcessEnded));
    let asked = std::fs::read_to_string(world.path("asked")).expect("it was");
    assert_eq!(asked, "poison\npoison\n");
}

#[test]
fn a_helper_that_calls_itself_broken_is_asked_three_times() {
    let world = World::new();
    let text = "n=0; while read -r line; do n=$((n+1)); \
                if [ $n -ge $line ]; then echo \"OK n=$n\"; n=0; else echo BH message=no; fi; done";
    let helper = world.adopt(&world.shell(text, children(1)));
    assert_eq!(value(&world.ask(&helper, "3").expect("an answer"), "n"), "3");
    let reply = world.ask(&helper, "4").expect("an answer");
    assert_eq!((reply.outcome, value(&reply, "message")), (Outcome::Broken, "no".into()));
}

#[test]
fn a_process_that_is_too_slow_is_replaced() {
    let world = World::new();
    let text =
        "while read -r line; do [ \"$line\" = slow ] && exec sleep 1000; echo OK pid=$$; done";
    let definition = world.shell(text, children(1));
    let definition = Definition { timeout: Duration::from_secs(3), ..definition };
    let helper = world.adopt(&definition);
    let pid = value(&world.ask(&helper, "x").expect("an answer"), "pid");
    assert_eq!(world.ask(&helper, "slow"), Err(NoAnswer::TimedOut));
    let next = value(&world.ask(&helper, "x").expect("an answer"), "pid");
    assert_ne!(next, pid);
    let pid = pid.parse().expect("a number");
    world.until("the slow one is ended by a signal", || !is_running(pid));
    assert_eq!(world.helpers.statistics()[0].timed_out, 1);
}

#[test]
fn a_question_does_not_wait_in_the_queue_for_ever() {
    let world = World::new();
    // Each channel of its own is slow; none of them frees a place in time.
    let text = "while read -r line; do :; done";
    let long = HelperChildren { concurrency: 1, queue_size: 29, ..children(1) };
    let definition = world.shell(text, long);
    let helper = world.adopt(&Definition { timeout: Duration::from_millis(400), ..definition });
    let asking: Vec<Asking> = (0..30).map(|_| helper.ask(b"x")).collect();
    let begin = Instant::now();
    for asking in asking {
        assert!(world.wait(asking).is_err());
    }
    // One after the other they would need twelve seconds.
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
}

#[test]
fn late_answers_and_unknown_channels_are_ignored() {
    let world = World::new();
    let text = "import sys, os, time
print('99 OK said=nobody', flush=True)
print('gibberish', flush=True)
for line in sys.stdin:
    channel, text = line.split(None, 1)
    if text.strip() == 'slow':
        slow = channel
    elif text.strip() == 'wake':
        print(slow, 'OK said=late'); print(channel, 'OK said=woken')
    else:
        print(channel, 'OK said=' + text.strip())";
    let two = HelperChildren { concurrency: 2, startup: 1, ..children(1) };
    let definition = world.python(text, two);
    let helper = world.adopt(&Definition { timeout: Duration::from_secs(5), ..definition });
    assert_eq!(value(&world.ask(&helper, "a").expect("an answer"), "said"), "a");
    assert_eq!(world.ask(&helper, "slow"), Err(NoAnswer::TimedOut));
    assert_eq!(value(&world.ask(&helper, "b").expect("another channel"), "said"), "b");
    assert_eq!(value(&world.ask(&helper, "wake").expect("an answer"), "said"), "woken");
    assert_eq!(value(&world.ask(&helper, "c").expect("an answer"), "said"), "c");
    assert_eq!(world.helpers.statistics()[0].children[0].number, 1, "still the first process");
}

#[test]
fn one_that_speaks_without_being_asked_is_replaced() {
    let world = World::new();
    let text = "[ -e DIR/spoke ] || { touch DIR/spoke; echo OK; }; read -r line; echo ERR";
    let helper = world.adopt(&world.shell(text, HelperChildren { startup: 1, ..children(1) }));
    world.until("the second process", || {
        world.helpers.statistics()[0].children.iter().any(|child| child.number == 2)
    });
    let reply = world.ask(&helper, "x").expect("an answer");
    assert_eq!(reply.outcome, Outcome::Err, "not the OK that nobody asked for");
}

#[test]
fn an_endless_answer_ends_the_process() {
    let world = World::new();
    let text = "read -r line; tr '\\0' x < /dev/zero";
    let helper = world.adopt(&world.shell(text, children(1)));
    assert_eq!(world.ask(&helper, "x"), Err(NoAnswer::ProcessEnded));
    let text = "read -r line; printf 'OK\\r\\n'; cat > /dev/null";
    let helper = world.adopt(&world.shell(text, children(1)));
    assert_eq!(world.ask(&helper, "x").expect("an answer").outcome, Outcome::Ok);
}
