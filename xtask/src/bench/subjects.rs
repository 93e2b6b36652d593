//! The servers that are compared, each started with a sensible best configuration.

use super::{Plan, drive, peers};
use crate::Outcome;
use crate::processes::{Running, free_address};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// The form of a client's target.
#[derive(Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum Style {
    /// `GET http://origin/path`: a forward proxy.
    Forward,
    /// `GET /path`: an accelerator, or the origin itself.
    Direct,
}

/// A server under test.
pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) style: Style,
    pub(super) address: SocketAddr,
    pub(super) process: Running,
    /// Configuration, logs and cache; removed when the subject is dropped, which ends the process
    /// first.
    pub(super) folder: TempDir,
}

impl Subject {
    /// An access log that grows through a whole benchmark would fill the disk; the server appends
    /// from the start again.
    pub(super) fn empty_access_log(&self) -> Outcome {
        match fs::OpenOptions::new().write(true).open(self.folder.path().join("access.log")) {
            Ok(file) => Ok(file.set_len(0)?),
            Err(_) => Ok(()), // this subject writes none
        }
    }
}

/// The settings with which a subject is started.
pub(super) struct Setting<'a> {
    pub(super) folder: &'a Path,
    pub(super) listen: SocketAddr,
    pub(super) origin: SocketAddr,
    pub(super) cache_mem_mb: u64,
}

/// The command of a subject after it has written its configuration, or `None` if the program is not
/// installed.
pub(super) type Prepare = fn(&Plan, &Setting<'_>) -> Outcome<Option<Command>>;

/// Every cache that can be compared, but for an older humboldt.
const CACHES: [(&str, Style, Prepare); 5] = [
    ("humboldt", Style::Forward, humboldt),
    ("nginx", Style::Direct, peers::nginx),
    ("trafficserver", Style::Direct, peers::trafficserver),
    ("varnish", Style::Direct, peers::varnish),
    ("squid", Style::Forward, peers::squid),
];

/// An older humboldt, which takes part only where it is asked for (`--old`).
const OLD: (&str, Style, Prepare) = ("old", Style::Forward, old);

/// Humboldt for users who have logged in.
const LOGIN: (&str, Style, Prepare) = ("login", Style::Forward, login);

/// Humboldt with a list of users in its rules, if Humboldt takes part.
pub(super) fn with_login(
    plan: &Plan,
    origin: SocketAddr,
    cache_mem_mb: u64,
) -> Outcome<Option<Subject>> {
    match plan.wants("humboldt") {
        true => cache(plan, LOGIN, origin, cache_mem_mb),
        false => Ok(None),
    }
}

/// The caches of this run: the older humboldt has its turn right behind the newer one.
pub(super) fn caches(plan: &Plan) -> Vec<(&'static str, Style, Prepare)> {
    let mut caches: Vec<_> = CACHES.into_iter().filter(|(name, ..)| plan.wants(name)).collect();
    if plan.old.is_some() {
        let behind =
            caches.iter().position(|(name, ..)| *name == "humboldt").map_or(0, |index| index + 1);
        caches.insert(behind, OLD);
    }
    caches
}

/// The access rules of Squid's shipped configuration, which Humboldt and Squid are both measured
/// with.
pub(super) const DEFAULT_RULES: &str = "\
acl localnet src 0.0.0.1-0.255.255.255
acl localnet src 10.0.0.0/8
acl localnet src 100.64.0.0/10
acl localnet src 169.254.0.0/16
acl localnet src 172.16.0.0/12
acl localnet src 192.168.0.0/16
acl localnet src fc00::/7
acl localnet src fe80::/10
acl SSL_ports port 443
acl Safe_ports port 80
acl Safe_ports port 21
acl Safe_ports port 443
acl Safe_ports port 70
acl Safe_ports port 210
acl Safe_ports port 1025-65535
acl Safe_ports port 280
acl Safe_ports port 488
acl Safe_ports port 591
acl Safe_ports port 777
http_access deny !Safe_ports
http_access deny CONNECT !SSL_ports
http_access allow localhost manager
http_access deny manager
http_access allow localhost
http_access deny all
refresh_pattern ^ftp: 1440 20% 10080
refresh_pattern -i (/cgi-bin/|\\?) 0 0% 0
refresh_pattern . 0 20% 4320
";

/// The origin, or the floor: this program itself.
pub(super) fn floor(plan: &Plan, name: &'static str, core: usize) -> Outcome<Subject> {
    let listen = free_address()?;
    let mut command = Command::new(&plan.xtask);
    command.arg("floor").arg(listen.to_string());
    launch(name, Style::Direct, core, command, listen, folder()?)
}

/// The floor of a miss: this program itself.
pub(super) fn relay(plan: &Plan, origin: SocketAddr) -> Outcome<Subject> {
    let listen = free_address()?;
    let mut command = Command::new(&plan.xtask);
    command.arg("relay").arg(listen.to_string()).arg(origin.to_string());
    launch("floor", Style::Forward, plan.server_core, command, listen, folder()?)
}

/// Starts one of [`CACHES`]; `None`, and a printed line, if it is not installed or does not start.
pub(super) fn cache(
    plan: &Plan,
    (name, style, prepare): (&'static str, Style, Prepare),
    origin: SocketAddr,
    cache_mem_mb: u64,
) -> Outcome<Option<Subject>> {
    let folder = folder()?;
    let listen = free_address()?;
    let setting = Setting { folder: folder.path(), listen, origin, cache_mem_mb };
    let Some(command) = prepare(plan, &setting)? else {
        println!("note: {name} is not installed, it is left out");
        return Ok(None);
    };
    let output = folder.path().join("output");
    match launch(name, style, plan.server_core, command, listen, folder) {
        Ok(subject) => Ok(Some(subject)),
        Err(error) => {
            let text = fs::read_to_string(output).unwrap_or_default();
            println!("note: {name} is left out: {error}\n{text}");
            Ok(None)
        }
    }
}

/// Starts a prepared program and waits until it listens.
pub(super) fn launch(
    name: &'static str,
    style: Style,
    core: usize,
    mut command: Command,
    address: SocketAddr,
    folder: TempDir,
) -> Outcome<Subject> {
    let mut process = Running::pinned(name, core, &mut command, &folder.path().join("output"))?;
    if let Err(error) = process.wait_ready(address) {
        let text = fs::read_to_string(folder.path().join("output")).unwrap_or_default();
        return Err(format!("{error}\n{text}").into());
    }
    Ok(Subject { name, style, address, process, folder })
}

/// A temporary directory that servers can use which give up root's rights.
pub(super) fn folder() -> Outcome<TempDir> {
    let folder = TempDir::with_prefix("humboldt-bench-")?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
    Ok(folder)
}

fn humboldt(plan: &Plan, setting: &Setting<'_>) -> Outcome<Option<Command>> {
    plan.humboldt.as_deref().map(|program| with_memory(program, setting)).transpose()
}

fn old(plan: &Plan, setting: &Setting<'_>) -> Outcome<Option<Command>> {
    plan.old.as_deref().map(|program| with_memory(program, setting)).transpose()
}

/// The default access rules, but that clients have to log in.
fn login(plan: &Plan, setting: &Setting<'_>) -> Outcome<Option<Command>> {
    let Some(program) = plan.humboldt.as_deref() else { return Ok(None) };
    let file = setting.folder.join("passwd");
    fs::write(&file, drive::LOGIN_PASSWORDS)?;
    let program_line = format!("auth_param basic program /x/basic_ncsa_auth {}", file.display());
    let acl = "acl users proxy_auth anna bo\nhttp_access allow localhost users";
    let rules = DEFAULT_RULES.replace("http_access allow localhost\n", &format!("{acl}\n"));
    with_rules(program, setting, &format!("{program_line}\n{rules}")).map(Some)
}

/// Memory only, the default access rules, and an access log.
pub(super) fn with_memory(program: &Path, setting: &Setting<'_>) -> Outcome<Command> {
    with_rules(program, setting, DEFAULT_RULES)
}

/// The same with other access rules.
pub(super) fn with_rules(program: &Path, setting: &Setting<'_>, rules: &str) -> Outcome<Command> {
    let folder = setting.folder.display();
    let text = format!(
        "http_port {}\npid_filename {folder}/pid\ncache_mem {} MB\nmaximum_object_size_in_memory 1 MB\n\
         access_log stdio:{folder}/access.log squid\ncache_log {folder}/cache.log\n{rules}",
        setting.listen, setting.cache_mem_mb
    );
    let configuration = setting.folder.join("squid.conf");
    fs::write(&configuration, text)?;
    let mut command = Command::new(program);
    command.arg("-N").arg("-f").arg(configuration);
    Ok(command)
}
