//! From the command line to a running service.

use std::path::Path;
use std::sync::Arc;

use humboldt_admin::AdminPages;
use humboldt_conf::{AclKind, Config, PortMode, Severity};
use humboldt_logs::LogService;
use humboldt_logs::cache_log::{CacheLog, DebugLevel};
use humboldt_net::listener::ListenError;
use humboldt_proxy::shared::Shared;
use humboldt_sys::pid_file::{PidError, PidFile};
use humboldt_sys::privileges::{self, PrivilegeError};
use humboldt_sys::{cpu, daemon, descriptors, signal_mask};
use tokio::sync::Mutex;

use crate::cli::{Cli, Command};
use crate::command;
use crate::configuration::{self, Loaded, Source, debug_level};
use crate::control::Control;
use crate::disks::{self, Opened};
use crate::error::StartError;
use crate::log_files::{self, StoreLog};
use crate::ports::{PortError, Ports};
use crate::serve::{self, Service};
use crate::tls_files;

/// Carries out the command line.
pub(crate) fn run(cli: &Cli) -> Result<(), StartError> {
    let source = Source::of(cli)?;
    let Some(cache_log) = CacheLog::install(DebugLevel::default()) else { return Ok(()) };
    let parse_only = cli.command == Some(Command::Parse);
    if let Some(command) = cli.command.filter(|command| command.needs_settings_only()) {
        // A file of TLS that cannot be read is no reason not to find the process.
        let (config, _) = source.parse(cli, Severity::Warning)?;
        cache_log.set_level(debug_level(cli, &config));
        return command::send(command, config.pid_filename.as_deref());
    }
    let least = if parse_only { Severity::Note } else { Severity::Warning };
    let loaded = source.load(cli, least, None)?;
    cache_log.set_level(debug_level(cli, &loaded.snapshot.config));
    if let Some(command) = cli.command {
        if parse_only {
            say(&loaded.report);
            return Ok(());
        }
        return command::send(command, loaded.snapshot.config.pid_filename.as_deref());
    }
    say(&loaded.report);
    if let Source::BuiltIn(dir) = &source {
        configuration::create_private_dir(dir)
            .map_err(StartError::system(format!("create {}", dir.display())))?;
    }
    if cli.create_stores {
        return create_stores(&loaded.snapshot.config, &source);
    }
    serve(cli, source, loaded, cache_log)
}

fn create_stores(config: &Config, source: &Source) -> Result<(), StartError> {
    prepare_dirs(config, source)?;
    drop_privileges(config, source)?;
    for path in humboldt_stores::create(config)? {
        say(&format!("{} is ready\n", path.display()));
    }
    Ok(())
}

/// The service from binding its ports to its end.
fn serve(cli: &Cli, source: Source, loaded: Loaded, cache_log: CacheLog) -> Result<(), StartError> {
    // A signal may arrive as soon as the port is open, before the thread that obeys it: it waits
    // until then.
    signal_mask::block_control_signals();
    let snapshot = loaded.snapshot;
    let config = &snapshot.config;
    raise_descriptor_limit(config);
    let cores = if config.workers == 0 { cpu::usable() } else { config.workers as usize };
    let ports = Ports::open(config, cores, owner(config, &source)?);
    let ports = ports.map_err(|error| match error {
        PortError::Listen(error @ ListenError::InUse { .. }) if source.is_built_in() => {
            StartError::BuiltInPort(error)
        }
        error => error.into(),
    })?;
    if ports.describe().is_empty() {
        return Err(StartError::NoPort);
    }
    let foreground = cli.foreground || source.is_built_in();
    if !foreground {
        daemon::daemonize().map_err(StartError::system("go into the background"))?;
    }
    let _pid_file = create_pid_file(config.pid_filename.as_deref())?;
    prepare_dirs(config, &source)?;
    drop_privileges(config, &source)?;
    let logs = LogService::start().map_err(StartError::system("start the log thread"))?;
    attach_cache_log(&cache_log, &logs, config, cli, foreground);
    tls_files::warn_of_unreadable(config);
    let store_log = Arc::new(StoreLog::default());
    store_log.reopen(&logs, config, cores);
    let mut control = Control::new()?;
    let Opened { stores, cache, names } =
        match disks::open(&mut control, &snapshot, &store_log, cores)? {
            Ok(opened) => opened,
            Err(end) => {
                serve::end_logs(&logs, &cache_log, &Ok(end.word()));
                return Ok(());
            }
        };
    let access_logs = log_files::open_access_logs(&logs, &snapshot, cores);
    let shared = Shared::new(Arc::clone(&snapshot), access_logs, cache, names, cores);
    let starting = snapshot.helpers.start(&shared.helpers);
    starting.map_err(StartError::system("start the thread of the helper programs"))?;
    let admin = AdminPages::new(&shared);
    shared.set_internal_pages(Box::new(admin.clone()));
    if source.is_built_in() {
        say(&welcome(&ports, &source));
    }
    tracing::info!(
        "Humboldt {} on {cores} cores, listening on {}",
        crate::version::version(),
        ports.describe().join(" ")
    );
    let service = Service {
        cli: cli.clone(),
        source,
        shared,
        ports: Arc::new(ports),
        stores: Arc::new(Mutex::new(stores)),
        store_log,
        logs,
        cache_log,
        admin,
    };
    serve::run(service, control)
}

fn raise_descriptor_limit(config: &Config) {
    let wanted = Some(u64::from(config.max_filedescriptors)).filter(|&wanted| wanted > 0);
    match descriptors::raise_limit(wanted) {
        Ok(limit) if wanted.is_some_and(|wanted| limit.now < wanted) => {
            tracing::warn!("max_filedescriptors: the system allows {} only", limit.now);
        }
        Ok(_) => {}
        Err(error) => tracing::warn!("the limit of open files stays as it is: {error}"),
    }
}

/// Holds the pid file. Another process that runs with it is fatal; a directory that cannot be
/// written to, as in a container, is not.
fn create_pid_file(path: Option<&str>) -> Result<Option<PidFile>, StartError> {
    let Some(path) = path else { return Ok(None) };
    match PidFile::create(Path::new(path)) {
        Ok(file) => Ok(Some(file)),
        Err(error @ PidError::Running { .. }) => Err(error.into()),
        Err(error) => {
            tracing::warn!("no pid file, so -k commands will not find this process: {error}");
            Ok(None)
        }
    }
}

/// Makes cache directories belong to the user that will use them, where only root can.
fn prepare_dirs(config: &Config, source: &Source) -> Result<(), StartError> {
    let Some(user) = target_user(config, source) else { return Ok(()) };
    let identity = privileges::find(user, target_group(config, user))?;
    for dir in config.cache_dir.iter().filter(|dir| !dir.path.exists() && dir.size_bytes > 0) {
        let Some(folder) = humboldt_stores::folder(dir).filter(|folder| !folder.exists()) else {
            continue;
        };
        let what = format!("create {}", folder.display());
        configuration::create_private_dir(folder).map_err(StartError::system(what.clone()))?;
        std::os::unix::fs::chown(folder, Some(identity.uid), Some(identity.gid))
            .map_err(StartError::system(what))?;
    }
    Ok(())
}

/// The user to become. The built-in configuration runs as the user who starts it.
fn target_user<'a>(config: &'a Config, source: &Source) -> Option<&'a str> {
    let user = config.cache_effective_user.as_deref()?;
    (privileges::is_root() && !source.is_built_in()).then_some(user)
}

/// The user to become, with its group, if a Unix socket may belong to it.
fn owner(config: &Config, source: &Source) -> Result<Option<(u32, u32)>, StartError> {
    let has_files = config.ports().any(|port| port.unix.is_some());
    let user = target_user(config, source).filter(|_| has_files);
    let Some(user) = user else { return Ok(None) };
    let identity = privileges::find(user, target_group(config, user))?;
    Ok(Some((identity.uid, identity.gid)))
}

/// `cache_effective_group`. A group that this system does not have (`nobody` is called `nogroup` on
/// some) is replaced by the user's own groups, which have no more rights.
fn target_group<'a>(config: &'a Config, user: &str) -> Option<&'a str> {
    let group = config.cache_effective_group.as_deref()?;
    match privileges::find(user, Some(group)) {
        Err(PrivilegeError::NoSuchGroup(_)) => {
            tracing::warn!(
                "cache_effective_group: there is no group {group}; the groups of {user} are used"
            );
            None
        }
        _ => Some(group),
    }
}

fn drop_privileges(config: &Config, source: &Source) -> Result<(), StartError> {
    if let Some(user) = target_user(config, source) {
        privileges::drop_to(user, target_group(config, user), needs_net_admin(config))?;
    }
    Ok(())
}

/// Whether the program connects from the addresses of clients, or sets or reads netfilter marks.
fn needs_net_admin(config: &Config) -> bool {
    config.ports().any(|port| port.mode == PortMode::Tproxy)
        || !config.tcp_outgoing_mark.is_empty()
        || !config.mark_client_packet.is_empty()
        || !config.mark_client_connection.is_empty()
        || config.qos_flows.mark.is_some()
        || config.acl.iter().any(|acl| acl.kind == AclKind::ClientConnectionMark)
}

/// Sends cache.log to its file, and to standard error in the foreground or with `-d`.
fn attach_cache_log(
    cache_log: &CacheLog,
    logs: &LogService,
    config: &Config,
    cli: &Cli,
    foreground: bool,
) {
    let place = config.cache_log.as_deref().unwrap_or("none");
    let options = || log_files::usual_options(config, 0);
    let file = log_files::open(logs, place, config, options());
    let on_stderr = (foreground || cli.debug_stderr.is_some())
        && !matches!(place, "/dev/stderr" | "stdio:/dev/stderr");
    let stderr =
        if on_stderr { log_files::open(logs, "/dev/stderr", config, options()) } else { None };
    cache_log.attach(file, stderr);
}

/// A few lines for a person who has just started it.
fn welcome(ports: &Ports, source: &Source) -> String {
    let Source::BuiltIn(dir) = source else { return String::new() };
    let places = ports.describe();
    let first = places.first().cloned().unwrap_or_default();
    format!(
        "Humboldt {} is a caching proxy for this machine, listening on {}.\n\
         It caches in memory and in {}.\n\n\
         Try it:      curl -s -i -x {first} http://example.com/ | grep X-Cache\n\
         \x20            twice: MISS is from the server, HIT from the cache\n\
         Use it:      export http_proxy=http://{first}\n\
         Watch it:    tail -f {}\n\
         Look inside: curl http://{first}/squid-internal-mgr/info\n\
         Stop it:     Ctrl-C\n\n",
        env!("CARGO_PKG_VERSION"),
        places.join(" and "),
        dir.join(humboldt_conf::BUILTIN_STORE).display(),
        dir.join("access.log").display(),
    )
}

/// Speaks to the person at the terminal.
#[allow(clippy::print_stderr)]
pub(crate) fn say(text: &str) {
    if !text.is_empty() {
        eprint!("{text}");
    }
}
