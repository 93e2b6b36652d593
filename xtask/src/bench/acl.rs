//! `bench acl`: what long lists of ACLs cost to load, to hold in memory and to ask, beside Squid's.
//! An example of `humboldt-acl` makes the lists and asks them; here both programs load them too.
//!
//! Squid's answer to a question cannot be timed from outside: a denied request costs it a hundred
//! times as much as the question.

use super::report::Report;
use super::{programs, subjects, table};
use crate::processes::Running;
use crate::{Outcome, packages};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const KINDS: [&str; 4] = ["dstdomain", "src", "url_regex", "url_regex -i"];

const ENTRIES: [u64; 3] = [100, 10_000, 1_000_000];

/// Wanted of the longest list.
const LOAD_S_MAX: f64 = 5.0;
const QUESTION_NS_MAX: f64 = 500.0;

/// How long a program may take for a list: Squid would take hours for some.
const LIMIT: Duration = Duration::from_secs(120);

const POLL_PAUSE: Duration = Duration::from_millis(2);

/// How a program loads a configuration that has one list.
struct Load {
    seconds: f64,
    peak_mb: f64,
    is_complete: bool,
}

pub(super) fn run(quick: bool) -> Outcome {
    let lists = programs::example("humboldt-acl", "lists")?;
    let humboldt = programs::humboldt()?;
    let squid = packages::find("squid");
    let sizes = if quick { &ENTRIES[..2] } else { &ENTRIES[..] };
    let (mut asked, mut loaded) = (Vec::new(), Vec::new());
    for kind in KINDS {
        for &entries in sizes {
            eprintln!("{kind}, {entries} entries");
            let folder = subjects::folder()?;
            let list = folder.path().join("list");
            asked.push(ask(&lists, kind, entries, folder.path(), &list)?);
            let load = |program: Option<&Path>| {
                program.map(|program| load(program, kind, folder.path(), &list)).transpose()
            };
            let loads = [load(humboldt.as_deref())?, load(squid.as_deref())?];
            loaded.push(load_row(kind, entries, &loads));
        }
    }
    print(&asked, &loaded);
    Ok(())
}

fn print(asked: &[Vec<String>], loaded: &[Vec<String>]) {
    let mut report = Report::new("acl", false);
    report.prose(&format!(
        "Lists of one kind: processor seconds to read and compile, bytes of memory for each entry (the text of the list, which is \
         given back, and the compiled list), and ns of processor time of a question: median and range of rounds. Wanted: {LOAD_S_MAX} s \
         and {QUESTION_NS_MAX} ns at most."
    ));
    let heading = ["list", "entries", "load s", "read B", "compiled B", "match ns", "no match ns"];
    report.table(&[&heading[..], &["wanted"]].concat(), asked);
    report.prose(
        "The same lists loaded by `-k parse` of both programs: seconds, and the peak of resident memory in MB. What a \
         question costs Squid is not measured: a request that it denies costs it far more than the question.",
    );
    let heading = ["list", "entries", "humboldt s", "squid s", "humboldt MB", "squid MB"];
    report.table(&heading, loaded);
}

/// What the example prints about a list, which it writes to `list`.
fn ask(lists: &Path, kind: &str, entries: u64, folder: &Path, list: &Path) -> Outcome<Vec<String>> {
    let mut command = Command::new(lists);
    command.arg(kind).arg(entries.to_string()).arg(list);
    let log = folder.join("output");
    let mut running = Running::start("lists", &mut command, &log)?;
    let ended = running.wait_end(LIMIT);
    let text = fs::read_to_string(&log)?;
    if ended.as_ref().is_ok_and(|status| !status.success()) {
        return Err(format!("lists {kind} {entries}: {text}").into());
    }
    Ok(ask_row(kind, entries, &text))
}

/// One line of the table; without figures where the example had too little time.
fn ask_row(kind: &str, entries: u64, text: &str) -> Vec<String> {
    let cell = |label: &str, decimals: usize| match figures(text, label) {
        values if values.is_empty() => String::new(),
        values => table::with_range(&values, decimals),
    };
    let load = figures(text, "load_s:");
    let questions = [figures(text, "match_ns:"), figures(text, "other_ns:")];
    let is_reached = load.iter().all(|seconds| *seconds <= LOAD_S_MAX)
        && questions.iter().all(|ns| table::median(ns) <= QUESTION_NS_MAX);
    let load = if load.is_empty() {
        format!("more than {} s", LIMIT.as_secs())
    } else {
        table::with_range(&load, 3)
    };
    vec![
        kind.to_owned(),
        entries.to_string(),
        load,
        cell("read_bytes:", 0),
        cell("compiled_bytes:", 0),
        cell("match_ns:", 0),
        cell("other_ns:", 0),
        if is_reached { "reached" } else { "missed" }.to_owned(),
    ]
}

/// The numbers behind a label at the beginning of a line.
fn figures(text: &str, label: &str) -> Vec<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(label)).unwrap_or_default();
    rest.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn load_row(kind: &str, entries: u64, loads: &[Option<Load>; 2]) -> Vec<String> {
    let seconds = |load: &Option<Load>| match load {
        None => String::new(),
        Some(load) if load.is_complete => format!("{:.2}", load.seconds),
        Some(_) => format!("more than {}", LIMIT.as_secs()),
    };
    let peak = |load: &Option<Load>| load.as_ref().map(|load| format!("{:.0}", load.peak_mb));
    let [humboldt, squid] = loads;
    let peaks = [humboldt, squid].map(|load| peak(load).unwrap_or_default());
    let cells = [kind.to_owned(), entries.to_string(), seconds(humboldt), seconds(squid)];
    cells.into_iter().chain(peaks).collect()
}

/// Lets a program check a configuration that has one list.
fn load(program: &Path, kind: &str, folder: &Path, list: &Path) -> Outcome<Load> {
    let configuration = folder.join("squid.conf");
    let text = format!(
        "http_port 3128\npid_filename {folder}/pid\ncache_log {folder}/cache.log\n\
         acl listed {kind} \"{}\"\nhttp_access deny listed\nhttp_access allow localhost\n\
         http_access deny all\n",
        list.display(),
        folder = folder.display()
    );
    fs::write(&configuration, text)?;
    let mut command = Command::new(program);
    command.args(["-k", "parse", "-f"]).arg(&configuration);
    let log = folder.join("output");
    let begin = Instant::now();
    let mut running = Running::start("parser", &mut command, &log)?;
    let mut load = Load { seconds: 0.0, peak_mb: 0.0, is_complete: false };
    while !load.is_complete && begin.elapsed() < LIMIT {
        load.peak_mb = peak_mb(running.id()).unwrap_or(load.peak_mb);
        if let Ok(status) = running.wait_end(POLL_PAUSE) {
            if !status.success() {
                return Err(format!("{}: {}", program.display(), fs::read_to_string(&log)?).into());
            }
            load.is_complete = true;
        }
    }
    load.seconds = begin.elapsed().as_secs_f64();
    if !load.is_complete {
        running.kill()?;
    }
    Ok(load)
}

/// The peak of a process's resident memory so far.
fn peak_mb(process: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    kib.split_whitespace().next()?.parse::<f64>().ok().map(|kib| kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_the_figures_of_the_example() {
        let text = "load_s: 0.2 0.1 0.3\nmatch_ns: 90.0\nother_ns: 80.0\n";
        let row = ask_row("src", 100, text);
        assert_eq!(row[..3], ["src", "100", "0.200 (0.100–0.300)"]);
        assert_eq!(row[5..], ["90 (90–90)", "80 (80–80)", "reached"]);
        let row = ask_row("src", 100, "load_s: 9.0\nmatch_ns: 90.0\nother_ns: 80.0\n");
        assert_eq!(row.last().map(String::as_str), Some("missed"));
        let row = ask_row("src", 100, "");
        assert_eq!((row[2].as_str(), row[7].as_str()), ("more than 120 s", "missed"));
    }
}
