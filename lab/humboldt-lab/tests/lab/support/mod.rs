//! What all tests need: the program, folders, a proxy of known behaviour, and eyes for what a run
//! leaves behind.

mod dirty;
mod folder;
mod machine;
mod process;
mod relay;
mod traces;

pub(crate) use dirty::{DirtyLimit, LimitBefore};
pub(crate) use folder::{FullDisk, folder, is_root, write};
pub(crate) use machine::{alone, shared};
pub(crate) use process::{Done, Lab, lab, until};
pub(crate) use relay::{Answer, Relay};
pub(crate) use traces::{Traces, name};

use humboldt_lab_record::Run;
use std::path::Path;
use std::time::Duration;

/// Nothing here takes longer, even on a busy machine, unless it is broken.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The options of a run that is only to be short: half a second per sample, no calibration.
pub(crate) const SHORT: [&str; 5] = ["--no-calibration", "--time-scale", "0.1", "--sample", "5s"];

/// What `summary.json` holds.
pub(crate) fn run_in(out: &Path) -> Run {
    humboldt_lab_report::read_run(out).expect("a report that can be read")
}

/// The whole answer to a GET.
pub(crate) fn get(url: &str) -> String {
    use std::io::{Read, Write};
    let rest = url.trim_start_matches("http://");
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut stream = std::net::TcpStream::connect(authority).expect("it listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}
