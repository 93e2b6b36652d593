//! The tested caches, each with the plainest configuration that makes it cache: the tests are about
//! defaults.

use super::relay::Relay;
use super::suite::Suite;
use crate::bench::peers;
use crate::processes::{Running, free_address};
use crate::{Outcome, packages, workspace};
use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The place of a cache between client and server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Mode {
    /// In front of one server, which it is configured with.
    Accelerator,
    /// Asked for whatever the client names.
    Forward,
}

impl Mode {
    pub(super) const ALL: [Self; 2] = [Self::Accelerator, Self::Forward];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Accelerator => "accelerator",
            Self::Forward => "forward",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.word())
    }
}

/// A program that caches.
pub(super) struct Cache {
    /// As on the command line.
    pub(super) name: &'static str,
    /// As in the page.
    pub(super) title: &'static str,
    program: &'static str,
    version_option: &'static str,
    prepare: Prepare,
}

/// Writes the configuration and returns the command that starts the program with it.
type Prepare = fn(&Path, &Setting<'_>) -> Outcome<Command>;

/// The settings with which a cache is started.
struct Setting<'a> {
    folder: &'a Path,
    listen: SocketAddr,
    origin: SocketAddr,
    mode: Mode,
}

const fn cache(
    name: &'static str,
    title: &'static str,
    (program, version_option): (&'static str, &'static str),
    prepare: Prepare,
) -> Cache {
    Cache { name, title, program, version_option, prepare }
}

const HUMBOLDT: Cache = cache("humboldt", "Humboldt", ("humboldt", "-v"), humboldt);
const SQUID: Cache = cache("squid", "Squid", ("squid", "-v"), squid);
const NGINX: Cache = cache("nginx", "nginx", ("nginx", "-v"), nginx);
const VARNISH: Cache = cache("varnish", "Varnish", ("varnishd", "-V"), varnish);
const TRAFFIC_SERVER: Cache =
    cache("trafficserver", "Traffic Server", ("traffic_server", "-V"), trafficserver);

/// A cache in one mode.
#[derive(Clone, Copy)]
pub(super) struct Subject {
    pub(super) cache: &'static Cache,
    pub(super) mode: Mode,
}

/// Everything that can be tested; nginx and Varnish are accelerators only.
pub(super) const ALL: [Subject; 8] = [
    Subject { cache: &HUMBOLDT, mode: Mode::Accelerator },
    Subject { cache: &HUMBOLDT, mode: Mode::Forward },
    Subject { cache: &SQUID, mode: Mode::Accelerator },
    Subject { cache: &SQUID, mode: Mode::Forward },
    Subject { cache: &NGINX, mode: Mode::Accelerator },
    Subject { cache: &VARNISH, mode: Mode::Accelerator },
    Subject { cache: &TRAFFIC_SERVER, mode: Mode::Accelerator },
    Subject { cache: &TRAFFIC_SERVER, mode: Mode::Forward },
];

impl Subject {
    pub(super) fn is_ours(&self) -> bool {
        self.cache.name == HUMBOLDT.name
    }

    /// The program's file, or `None` if it is not installed.
    pub(super) fn program(&self, humboldt: &Path) -> Option<PathBuf> {
        if self.is_ours() {
            Some(humboldt.to_path_buf())
        } else {
            packages::find(self.cache.program)
        }
    }

    /// The version in the program's own words.
    pub(super) fn version(&self, program: &Path) -> Outcome<String> {
        let output = Command::new(program).arg(self.cache.version_option).output()?;
        let said = [output.stdout, output.stderr].concat();
        Ok(version_in(&String::from_utf8_lossy(&said)).unwrap_or("?").to_owned())
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({})", self.cache.title, self.mode)
    }
}

/// The first number with dots in it.
fn version_in(text: &str) -> Option<&str> {
    let numbers =
        text.split(|c: char| !c.is_ascii_digit() && c != '.').map(|part| part.trim_matches('.'));
    numbers.into_iter().find(|part| part.contains('.'))
}

/// A cache with a server of the suite behind it; all of it ends when this is dropped.
pub(super) struct Stand {
    /// The address for requests of the suite's client.
    pub(super) base: SocketAddr,
    _relay: Option<Relay>,
    _cache: Running,
    _server: Running,
    /// Removed last.
    pub(super) folder: TempDir,
}

impl Stand {
    pub(super) fn start(suite: &Suite, subject: &Subject, program: &Path) -> Outcome<Self> {
        let folder = TempDir::with_prefix("humboldt-conformance-")?;
        // For servers that give up root's rights.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777))?;
        let (server, origin) = suite.start_server(folder.path())?;
        let listen = free_address()?;
        let setting = Setting { folder: folder.path(), listen, origin, mode: subject.mode };
        let mut command = (subject.cache.prepare)(program, &setting)?;
        let log = folder.path().join("output");
        let mut cache = Running::start(subject.cache.title, &mut command, &log)?;
        if let Err(error) = cache.wait_ready(listen) {
            return Err(format!("{error}\n{}", fs::read_to_string(log).unwrap_or_default()).into());
        }
        let relay = match subject.mode {
            Mode::Accelerator => None,
            Mode::Forward => Some(Relay::start(listen, origin)?),
        };
        let base = relay.as_ref().map_or(listen, |relay| relay.address);
        Ok(Self { base, _relay: relay, _cache: cache, _server: server, folder })
    }
}

/// The program to test: that of `HUMBOLDT_BIN`, or one that cargo builds now.
pub(super) fn humboldt_program() -> Outcome<PathBuf> {
    if let Some(path) = std::env::var_os("HUMBOLDT_BIN") {
        return Ok(std::path::absolute(path)?);
    }
    let root = workspace::root();
    let mut build = Command::new(workspace::cargo());
    build.args(["build", "--quiet", "--package", "humboldt"]).current_dir(&root);
    if !build.status()?.success() {
        return Err("humboldt does not build".into());
    }
    Ok(workspace::target_dir(&root)?.join("debug/humboldt"))
}

/// The same configuration for Squid and Humboldt.
fn squid_conf(setting: &Setting<'_>) -> Outcome<PathBuf> {
    let Setting { listen, origin, .. } = setting;
    let folder = setting.folder.display();
    let stand = match setting.mode {
        Mode::Forward => format!("http_port {listen}\n"),
        Mode::Accelerator => format!(
            "http_port {listen} accel defaultsite={origin} no-vhost\n\
             cache_peer {} parent {} 0 no-query no-digest originserver name=suite\n\
             cache_peer_access suite allow all\n",
            origin.ip(),
            origin.port()
        ),
    };
    let text = format!(
        "{stand}http_access allow all\ncache_mem 64 MB\nshutdown_lifetime 0 seconds\npid_filename {folder}/pid\n\
         access_log stdio:{folder}/access.log squid\ncache_log {folder}/cache.log\ncoredump_dir {folder}\n"
    );
    let configuration = setting.folder.join("squid.conf");
    fs::write(&configuration, text)?;
    Ok(configuration)
}

fn humboldt(program: &Path, setting: &Setting<'_>) -> Outcome<Command> {
    let mut command = Command::new(program);
    command.arg("-N").arg("-f").arg(squid_conf(setting)?);
    Ok(command)
}

fn squid(program: &Path, setting: &Setting<'_>) -> Outcome<Command> {
    let mut command = Command::new(program);
    // A service name of its own, because Squids of the same name share segments of memory.
    command.arg("-N").arg("-n").arg(format!("conformance{}", setting.listen.port()));
    command.arg("-f").arg(squid_conf(setting)?);
    Ok(command)
}

fn nginx(program: &Path, setting: &Setting<'_>) -> Outcome<Command> {
    let Setting { listen, origin, .. } = setting;
    let folder = setting.folder.display();
    let text = format!(
        "daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;\n\
         events {{ worker_connections 2048; }}\n\
         http {{\n\
         access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/temp;\n\
         fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n\
         proxy_cache_path {folder}/cache levels=1:2 keys_zone=suite:8m max_size=100m inactive=1h;\n\
         server {{ listen {listen};\n\
         location / {{ proxy_pass http://{origin}; proxy_http_version 1.1; proxy_cache suite; proxy_cache_revalidate on; }}\n\
         }} }}\n"
    );
    let configuration = setting.folder.join("nginx.conf");
    fs::write(&configuration, text)?;
    let mut command = Command::new(program);
    command.arg("-p").arg(setting.folder).arg("-c").arg(configuration);
    Ok(command)
}

/// As the suite's authors run it: without these parameters it keeps answers that do not say that
/// they may be kept, and most tests depend on a cache that does not.
fn varnish(program: &Path, setting: &Setting<'_>) -> Outcome<Command> {
    let (ip, port) = (setting.origin.ip(), setting.origin.port());
    let vcl = setting.folder.join("default.vcl");
    fs::write(
        &vcl,
        format!("vcl 4.1;\nbackend default {{ .host = \"{ip}\"; .port = \"{port}\"; }}\n"),
    )?;
    let mut command = Command::new(program);
    command
        .arg("-F")
        .arg("-n")
        .arg(setting.folder.join("work"))
        .arg("-a")
        .arg(setting.listen.to_string());
    command.arg("-f").arg(vcl).args(["-s", "malloc,64m", "-T", "none"]);
    for parameter in ["default_ttl=0", "default_grace=0", "default_keep=3600"] {
        command.args(["-p", parameter]);
    }
    Ok(command)
}

fn trafficserver(program: &Path, setting: &Setting<'_>) -> Outcome<Command> {
    let Setting { listen, origin, .. } = setting;
    let (must_be_mapped, map) = match setting.mode {
        Mode::Accelerator => (1, format!("map / http://{origin}/\n")),
        Mode::Forward => (0, String::new()),
    };
    let records = format!(
        "CONFIG proxy.config.http.server_ports STRING {}:ip-in={}\n\
         CONFIG proxy.config.url_remap.remap_required INT {must_be_mapped}\n\
         CONFIG proxy.config.reverse_proxy.enabled INT {must_be_mapped}\n\
         CONFIG proxy.config.log.logging_enabled INT 0\n\
         CONFIG proxy.config.admin.user_id STRING #-1\n",
        listen.port(),
        listen.ip()
    );
    peers::trafficserver_layout(setting.folder, &records, &map, 256)?;
    let mut command = Command::new(program);
    command.env("TS_RUNROOT", setting.folder).current_dir(setting.folder);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_what_programs_say() {
        assert_eq!(version_in("Squid Cache: Version 5.7\nService Name: squid"), Some("5.7"));
        assert_eq!(version_in("nginx version: nginx/1.22.1"), Some("1.22.1"));
        assert_eq!(version_in("varnishd (varnish-7.1.1 revision 7cee1c)"), Some("7.1.1"));
        assert_eq!(version_in("no numbers. 7"), None);
    }
}
