//! The hook for panics, in a process of its own: it is there once for all threads.

use std::time::Duration;

use humboldt_logs::cache_log::{CacheLog, DebugLevel};
use humboldt_logs::{Destination, LogService, SinkOptions, panics};

/// Panics when it is shown, which is in the middle of a message.
struct Trap;

impl std::fmt::Debug for Trap {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("the trap")
    }
}

fn in_thread(name: &str, work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().name(name.into()).spawn(work).expect("a thread");
    assert!(thread.join().is_err(), "{name} should have panicked");
}

#[test]
fn each_panic_is_one_line_of_the_log_and_counted() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("cache.log");
    let log = CacheLog::install(DebugLevel::default()).expect("the only one");
    let service = LogService::start().expect("a log thread");
    let sink =
        service.open(Destination::File(path.clone()), SinkOptions::default()).expect("a log");
    log.attach(Some(sink), None);
    assert_eq!(panics::count(), 0);
    in_thread("first", || panic!("two\nlines"));
    in_thread("second", || std::panic::panic_any(5));
    in_thread("third", || tracing::error!(target: "humboldt", "{:?}", Trap));
    assert_eq!(panics::count(), 3);
    assert!(service.flush(Duration::from_secs(30)));
    let text = std::fs::read_to_string(path).expect("the log");
    let lines: Vec<&str> =
        text.lines().filter_map(|line| line.split_once("| ")).map(|line| line.1).collect();
    assert_eq!(lines.len(), 3, "{text}");
    for (line, thread, why) in [
        (lines[0], "first", ": two%0Alines"),
        (lines[1], "second", ": no reason given"),
        (lines[2], "third", ": the trap"),
    ] {
        let begin = format!("ERROR: a fault of the program: thread {thread}");
        assert!(line.starts_with(&begin) && line.ends_with(why), "{line}");
        assert!(line.contains(" panicked at ") && line.contains("panics.rs:"), "{line}");
    }
}
