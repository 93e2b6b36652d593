//! Receivers of lines that are stuck, or go away.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use humboldt_logs::{Destination, LineSink, LogService, OnDropped, SinkOptions};

const LIMIT: Duration = Duration::from_secs(30);

fn until(what: &str, mut check: impl FnMut() -> bool) {
    let start = Instant::now();
    while !check() {
        assert!(start.elapsed() < LIMIT, "{what}: never");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A program that reads nothing and does not end when asked to; it writes its number to a file.
fn stuck_program(folder: &Path) -> (PathBuf, impl Fn() -> Vec<u32>) {
    let (program, pids) = (folder.join("stuck"), folder.join("pids"));
    let text = format!(
        "#!/bin/sh\ntrap '' TERM\necho $$ >> {}\nwhile :; do sleep 1; done\n",
        pids.display()
    );
    // Written by another process: one that another test just starts would hold a file that this one
    // writes, and a file that is open for writing cannot be executed.
    let write = "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"";
    let written = Command::new("/bin/sh").args(["-c", write, "sh", &text]).arg(&program).status();
    assert!(written.expect("a shell").success());
    let numbers = move || {
        let text = fs::read_to_string(&pids).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    (program, numbers)
}

/// Neither running nor a zombie.
fn is_gone(pid: u32) -> bool {
    !Path::new(&format!("/proc/{pid}")).exists()
}

/// Options that count lost lines.
fn counting() -> (SinkOptions, Arc<AtomicU64>) {
    let lost = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&lost);
    let on_dropped: OnDropped = Arc::new(move |lines| {
        counter.fetch_add(lines, Ordering::SeqCst);
    });
    (SinkOptions { cores: 1, on_dropped: Some(on_dropped), ..SinkOptions::default() }, lost)
}

/// A service with one log, to this program, and the number of its lost lines.
fn log_to(program: PathBuf) -> (LogService, Arc<LineSink>, Arc<AtomicU64>) {
    let (options, lost) = counting();
    let service = LogService::start().expect("a log thread");
    let destination = Destination::Program { program, place: "p".into() };
    let sink = service.open(destination, options).expect("a log");
    (service, sink, lost)
}

/// More than a pipe holds.
fn fill(sink: &LineSink) -> u64 {
    let line = [b'x'; 999];
    (0..400).for_each(|_| sink.append(0, |out| out.extend_from_slice(&line)));
    400
}

#[test]
fn a_stuck_program_does_not_hold_up_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (program, pids) = stuck_program(folder.path());
    let (service, sink, lost) = log_to(program);
    until("a program", || !pids().is_empty());
    let sent = fill(&sink);
    let start = Instant::now();
    drop(service);
    assert!(start.elapsed() < Duration::from_secs(12), "{:?}", start.elapsed());
    until("the end of the programs", || pids().into_iter().all(is_gone));
    assert!(lost.load(Ordering::SeqCst) > sent / 2);
}

#[test]
fn a_stuck_program_of_a_log_that_is_removed_ends_with_its_thread() {
    let folder = tempfile::tempdir().unwrap();
    let (program, pids) = stuck_program(folder.path());
    let (_service, sink, lost) = log_to(program);
    until("a program", || !pids().is_empty());
    fill(&sink);
    let weak = Arc::downgrade(&sink);
    drop(sink);
    until("the end of the log", || weak.upgrade().is_none());
    until("the end of the programs", || pids().into_iter().all(is_gone));
    assert!(lost.load(Ordering::SeqCst) > 0);
}

fn first_line(stream: &TcpStream) -> String {
    stream.set_read_timeout(Some(LIMIT)).expect("a line");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("a line");
    line
}

#[test]
fn a_receiver_that_has_closed_loses_no_line() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let service = LogService::start().unwrap();
    let place = listener.local_addr().unwrap().to_string();
    let sink = service.open(Destination::Tcp(place), SinkOptions::default()).unwrap();
    for line in ["one\n", "two\n", "three\n"] {
        sink.append(0, |out| out.extend_from_slice(line.as_bytes()));
        let mut stream = listener.accept().unwrap().0;
        assert_eq!(first_line(&stream), line);
        stream.write_all(b"something that hides the end").unwrap();
    }
}

#[test]
fn lines_of_a_removed_log_wait_for_a_receiver_and_are_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let service = LogService::start().unwrap();
    let removed = || {
        let (options, lost) = counting();
        let sink = service.open(Destination::Tcp(address.to_string()), options).unwrap();
        sink.append(0, |out| out.extend_from_slice(b"one"));
        sink.append(0, |out| out.extend_from_slice(b"two"));
        assert!(service.flush(LIMIT));
        lost
    };
    let lost = removed();
    until("the count", || lost.load(Ordering::SeqCst) == 2);
    let lost = removed();
    let listener = TcpListener::bind(address).unwrap();
    assert_eq!(first_line(&listener.accept().unwrap().0), "one\n");
    assert_eq!(lost.load(Ordering::SeqCst), 0);
}
