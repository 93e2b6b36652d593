//! Taking a cache that is already running.

use crate::environment::io;
use crate::processes::{Stat, Tree};
use crate::resources::{Meter, Watch};
use crate::running::{Attached, Running};
use crate::{Host, Mode, Skipped, SubjectError, provenance};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Time for one attempt to reach it.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(2);

/// The address of a cache that is already running, which accepts connections. `url` is
/// `http://HOST:PORT`, `HOST:PORT`, or `https://HOST:PORT` of an accelerator.
///
/// # Errors
/// If it is no such URL, or connections are refused there.
pub fn reach(url: &str) -> Result<SocketAddr, SubjectError> {
    let wrong = |what: String| SubjectError::Environment(format!("{url}: {what}"));
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let authority = rest.unwrap_or(url).trim_end_matches('/');
    let mut addresses = authority.to_socket_addrs().map_err(|error| {
        wrong(format!("not an address such as http://127.0.0.1:3128 ({error})"))
    })?;
    let address = addresses.next().ok_or_else(|| wrong("this name has no address".to_owned()))?;
    TcpStream::connect_timeout(&address, ATTEMPT_WITHIN).map_err(|error| {
        wrong(format!("nobody accepts connections there ({error}): start the cache first"))
    })?;
    Ok(address)
}

/// Takes a cache that is already running: nothing is started or stopped. `url` is as for
/// [`reach`].
///
/// # Errors
/// If connections are refused there, or there is no such process.
pub fn attach(
    url: &str,
    mode: Mode,
    pid: Option<u32>,
    host: &Host,
) -> Result<Running, SubjectError> {
    let address = reach(url)?;
    let mut running = Running {
        name: "attach".to_owned(),
        address,
        mode,
        started: None,
        attached: None,
        watch: None,
        stored: None,
        logs: Vec::new(),
        files: BTreeMap::new(),
        facts: vec![("Subject".to_owned(), format!("a running cache at {url}"))],
        build: None,
        skipped: Vec::new(),
    };
    let Some(pid) = pid else {
        running
            .skipped
            .push(Skipped::new("resources of the subject", "its process number was not given"));
        return Ok(running);
    };
    let no_process = || SubjectError::Environment(format!("{url}: there is no process {pid}"));
    let number = i32::try_from(pid).map_err(|_| no_process())?;
    // The program of the process itself, also if its file was replaced since it was started.
    running.build = Some(provenance::build_of_process(&host.proc.join(number.to_string())));
    let process = Stat::read(&host.proc, number).ok_or_else(no_process)?;
    let tree = Tree::of(&host.proc, number).ok_or_else(no_process)?;
    let watch = Watch::start(Meter::new(host, tree, Vec::new()), |_| {});
    running.watch = Some(watch.map_err(io("start a thread to watch", &host.proc))?);
    running.attached = Some(Attached { proc: host.proc.clone(), process });
    Ok(running)
}
