//! The engine with real child processes.

mod failing;
mod keeping;
mod leaving;
mod reserving;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use humboldt_conf::HelperChildren;
use tempfile::TempDir;

use crate::{Asking, Definition, Helper, Helpers, Kind, NoAnswer, Outcome, Overload, Reply};

/// Nothing here takes that long, unless it is lost.
const LONG: Duration = Duration::from_secs(20);

/// A core with helpers, and a directory for their scripts.
struct World {
    core: tokio::runtime::Runtime,
    helpers: Helpers,
    dir: TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        self.helpers.end();
    }
}

impl World {
    fn new() -> Self {
        let core =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a core");
        Self { core, helpers: Helpers::default(), dir: tempfile::tempdir().expect("a directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A helper in the shell; `DIR` is the test's directory.
    fn shell(&self, text: &str, children: HelperChildren) -> Definition {
        self.program(&["/bin/sh", "-c"], text, children)
    }

    fn python(&self, text: &str, children: HelperChildren) -> Definition {
        self.program(&["python3", "-u", "-c"], text, children)
    }

    fn program(&self, command: &[&str], text: &str, children: HelperChildren) -> Definition {
        let text = text.replace("DIR", &self.dir.path().display().to_string());
        let command = command.iter().copied().chain([text.as_str()]);
        let command = command.map(str::to_owned).collect();
        let definition = Definition::new(Kind::ExternalAcl, "test", command, children);
        Definition { timeout: LONG, overload: Overload::Refuse, ..definition }
    }

    fn adopt(&self, definition: &Definition) -> Helper {
        self.helpers.adopt(vec![definition.clone()]).expect("a thread").remove(0)
    }

    fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        let limited = async { tokio::time::timeout(LONG, work).await };
        self.core.block_on(limited).expect("in time")
    }

    fn ask(&self, helper: &Helper, line: &str) -> Result<Reply, NoAnswer> {
        self.wait(helper.ask(line.as_bytes()))
    }

    /// Waits until `holds`, and fails when it never does.
    fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !holds() {
            assert!(begin.elapsed() < LONG, "never: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn touch(&self, name: &str) {
        std::fs::write(self.path(name), "").expect("written");
    }

    fn pids(&self) -> Vec<u32> {
        let all = self.helpers.statistics();
        all.iter().flat_map(|one| &one.children).map(|child| child.pid).collect()
    }

    fn active(&self) -> usize {
        self.helpers.statistics().iter().map(|one| one.active).sum()
    }

    fn queue(&self) -> usize {
        self.helpers.statistics().iter().map(|one| one.queue).sum()
    }
}

fn is_running(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn children(max: u32) -> HelperChildren {
    HelperChildren::new(max)
}

fn value(reply: &Reply, key: &str) -> String {
    String::from_utf8_lossy(reply.get(key).unwrap_or_default()).into_owned()
}

/// Answers each line with itself and the number of its process.
const ECHO: &str = "while read -r line; do echo \"OK pid=$$ said=$line\"; done";

/// Answers when the file `gate` is there.
const GATED: &str = "while read -r line; do while [ ! -e DIR/gate ]; do sleep 0.01; done; \
                     echo \"OK pid=$$ said=$line\"; done";

#[test]
fn a_question_is_answered_and_the_process_stays() {
    let world = World::new();
    let helper = world.adopt(&world.shell(ECHO, children(5)));
    assert_eq!(world.active(), 0, "the first question starts the first process");
    let first = world.ask(&helper, "one").expect("an answer");
    let second = world.ask(&helper, "two%20words").expect("an answer");
    assert_eq!((first.outcome, second.outcome), (Outcome::Ok, Outcome::Ok));
    assert_eq!([value(&first, "said"), value(&second, "said")], ["one", "two words"]);
    assert_eq!(value(&first, "pid"), value(&second, "pid"));
    let figures = world.helpers.statistics().remove(0);
    assert_eq!((figures.active, figures.requests, figures.replies), (1, 2, 2));
    assert_eq!(figures.children[0].pid.to_string(), value(&first, "pid"));
    assert!(is_running(figures.children[0].pid));
}

#[test]
fn as_many_processes_run_from_the_start_as_startup_says() {
    let world = World::new();
    let three = HelperChildren { startup: 3, ..children(5) };
    let _helper = world.adopt(&world.shell(ECHO, three));
    world.until("three processes", || world.active() == 3);
}

#[test]
fn more_processes_are_started_while_all_are_busy() {
    let world = World::new();
    let helper = world.adopt(&world.shell(GATED, children(3)));
    let asking: Vec<Asking> = (0..5).map(|n| helper.ask(n.to_string().as_bytes())).collect();
    world.until("three are busy and two wait", || world.active() == 3 && world.queue() == 2);
    world.touch("gate");
    let mut pids = Vec::new();
    for (n, asking) in asking.into_iter().enumerate() {
        let reply = world.wait(asking).expect("an answer");
        assert_eq!(value(&reply, "said"), n.to_string());
        pids.push(value(&reply, "pid"));
    }
    pids.sort();
    pids.dedup();
    assert_eq!(pids.len(), 3, "all of them had something to do");
}

#[test]
fn channels_may_be_answered_in_any_order() {
    let world = World::new();
    let reversed = "import sys
while True:
    lines = [sys.stdin.readline().split(None, 1) for _ in range(3)]
    for channel, text in reversed(lines): print(channel, 'OK said=' + text.strip())";
    let many = HelperChildren { concurrency: 10, ..children(1) };
    let helper = world.adopt(&world.python(reversed, many));
    for _ in 0..2 {
        let asking: Vec<Asking> = (0..3).map(|n| helper.ask(n.to_string().as_bytes())).collect();
        for (n, asking) in asking.into_iter().enumerate() {
            assert_eq!(value(&world.wait(asking).expect("an answer"), "said"), n.to_string());
        }
    }
}

#[test]
fn a_full_queue_refuses_and_a_client_that_leaves_makes_room() {
    let world = World::new();
    let small = HelperChildren { queue_size: 2, ..children(1) };
    let helper = world.adopt(&world.shell(GATED, small));
    let first = helper.ask(b"first");
    world.until("the first is being answered", || {
        world.helpers.statistics()[0].children.iter().any(|child| child.requests == 1)
    });
    let second = helper.ask(b"second");
    let third = helper.ask(b"third");
    assert_eq!(world.queue(), 2);
    assert_eq!(world.ask(&helper, "fourth"), Err(NoAnswer::Overloaded));
    drop(second);
    assert_eq!(world.queue(), 1, "its client has left");
    let fifth = helper.ask(b"fifth");
    assert_eq!(world.ask(&helper, "sixth"), Err(NoAnswer::Overloaded));
    world.touch("gate");
    for (asking, said) in [(first, "first"), (third, "third"), (fifth, "fifth")] {
        assert_eq!(value(&world.wait(asking).expect("an answer"), "said"), said);
    }
}

#[test]
fn a_tolerated_overload_makes_questions_wait_up_to_a_bound() {
    let world = World::new();
    let none = HelperChildren { queue_size: 0, ..children(1) };
    let definition = Definition { overload: Overload::Tolerate, ..world.shell(GATED, none) };
    let helper = world.adopt(&definition);
    let first = helper.ask(b"first");
    world.until("it is being answered", || {
        world.helpers.statistics()[0].children.iter().any(|child| child.requests == 1)
    });
    let bound = crate::state::QUESTIONS_WAITING_MAX;
    let waiting: Vec<Asking> = (0..bound).map(|_| helper.ask(b"more")).collect();
    assert_eq!(world.queue(), bound);
    assert_eq!(world.ask(&helper, "too many"), Err(NoAnswer::Overloaded));
    drop(waiting);
    assert_eq!(world.queue(), 0);
    world.touch("gate");
    assert!(world.wait(first).is_ok());
}

#[test]
fn what_is_no_single_line_is_not_sent() {
    let world = World::new();
    let helper = world.adopt(&world.shell(ECHO, children(1)));
    let longest = "x".repeat(crate::pool::QUESTION_BYTES_MAX);
    for wrong in ["a\nb", "a\rb", "a\0b", &format!("{longest}x")] {
        assert_eq!(world.ask(&helper, wrong), Err(NoAnswer::Unsendable));
    }
    let said = "y".repeat(crate::child::ANSWER_BYTES_MAX / 2);
    let reply = world.ask(&helper, &said).expect("an answer");
    assert_eq!(value(&reply, "said"), said);
}

/// Debian's own program for tests of rewriters.
#[test]
fn a_helper_of_squid_is_understood() {
    let program = "/usr/lib/squid/ext_file_userip_acl";
    if !Path::new(program).exists() {
        return;
    }
    let world = World::new();
    std::fs::write(world.path("users"), "10.0.0.0/255.0.0.0 anna\n").expect("written");
    let path = world.path("users").display().to_string();
    let command = vec![program.to_owned(), "-f".to_owned(), path];
    let many = HelperChildren { concurrency: 0, ..children(1) };
    let helper = world.adopt(&Definition::new(Kind::ExternalAcl, "userip", command, many));
    let ask = |line| world.ask(&helper, line).expect("an answer").outcome;
    assert_eq!(ask("10.1.2.3 anna"), Outcome::Ok);
    assert_eq!(ask("11.1.2.3 anna"), Outcome::Err);
}
