//! The proxies of the benchmark of interception: Humboldt, the older one, and Squid, each on one
//! core with the same access rules, the same authority and the same way to the origin.

use super::Files;
use crate::bench::Plan;
use crate::bench::drive::DECRYPTED_DOMAIN;
use crate::bench::subjects::{self, DEFAULT_RULES, Style, Subject};
use crate::processes::free_address;
use crate::{Outcome, packages};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder into which `squid-openssl` was unpacked.
const VARIABLE: &str = "HUMBOLDT_SQUID_OPENSSL";

/// How to get it.
const ADVICE: &str = "apt-get download squid-openssl && dpkg -x squid-openssl_*.deb DIR, then \
                      HUMBOLDT_SQUID_OPENSSL=DIR";

/// Memory for objects: all new ones of a run.
const MEMORY_MB: u64 = 256;

/// Memory for certificates, as much as both have without an option.
const LEAVES_MB: u64 = 4;

/// Squid's helpers, all of which are there from the start.
const HELPERS: u32 = 8;

/// What the proxies do with a tunnel.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// It is decrypted at once; what is asked inside comes from the memory, or from a parent.
    Bump,
    /// The same, with a new connection to the parent for each request.
    BumpAnew,
    /// The server is looked at first, for each tunnel anew.
    Stare,
}

impl Mode {
    /// The rules of `ssl_bump`, and the way to the origin.
    fn lines(self, files: &Files, origin: SocketAddr) -> String {
        let authority = files.authority.display();
        match self {
            // A parent, so that no name is looked up, and its connection can be used again: what
            // is left is what the tunnel costs.
            Self::Bump | Self::BumpAnew => format!(
                "ssl_bump bump all\nnever_direct allow all\nserver_persistent_connections {}\n\
                 cache_peer {} parent {} 0 no-query originserver name=origin tls \
                 tls-cafile={authority} ssldomain=origin.{DECRYPTED_DOMAIN}\n",
                if self == Self::Bump { "on" } else { "off" },
                origin.ip(),
                origin.port()
            ),
            Self::Stare => format!(
                "acl first at_step SslBump1\nacl second at_step SslBump2\n\
                 ssl_bump stare first\nssl_bump stare second\nssl_bump bump all\n\
                 always_direct allow all\nhosts_file {}\n\
                 tls_outgoing_options cafile={authority}\n",
                files.hosts.display()
            ),
        }
    }

    /// Rules that only Humboldt needs.
    fn own_lines(self) -> &'static str {
        match self {
            Self::Bump | Self::BumpAnew => "",
            Self::Stare => "private_destinations allow all\n",
        }
    }
}

/// Squid with OpenSSL: its program, and the one that makes certificates for it.
pub(super) struct Squid {
    program: PathBuf,
    maker: PathBuf,
}

impl Squid {
    /// The one that was unpacked, or one that is installed.
    pub(super) fn find() -> Outcome<Option<Self>> {
        if let Some(folder) = std::env::var_os(VARIABLE).map(PathBuf::from) {
            let squid = Self::in_folder(&folder);
            if !(squid.program.is_file() && squid.maker.is_file()) {
                let folder = folder.display();
                return Err(format!("{VARIABLE}: {folder} has no squid-openssl; {ADVICE}").into());
            }
            return Ok(Some(squid));
        }
        let squid = Self::in_folder(Path::new("/"));
        let installed = packages::find("squid").filter(|_| squid.maker.is_file());
        let has_openssl = |program: &PathBuf| {
            let options = Command::new(program).arg("-v").output();
            options
                .is_ok_and(|text| String::from_utf8_lossy(&text.stdout).contains("--with-openssl"))
        };
        let found = installed.filter(has_openssl).map(|program| Self { program, ..squid });
        if found.is_none() {
            println!("note: there is no Squid with OpenSSL, it is left out; get it so: {ADVICE}");
        }
        Ok(found)
    }

    fn in_folder(folder: &Path) -> Self {
        Self {
            program: folder.join("usr/sbin/squid"),
            maker: folder.join("usr/lib/squid/security_file_certgen"),
        }
    }
}

/// All that take part in a mode.
pub(super) fn all(
    plan: &Plan,
    mode: Mode,
    files: &Files,
    squid: Option<&Squid>,
    origin: SocketAddr,
) -> Outcome<Vec<Subject>> {
    let mut all = Vec::new();
    for (name, program) in [("humboldt", &plan.humboldt), ("old", &plan.old)] {
        if let Some(program) = program {
            all.push(humboldt(plan, (name, program), mode, files, origin)?);
        }
    }
    if let Some(squid) = squid.filter(|_| plan.wants("squid")) {
        all.push(beside(plan, squid, mode, files, origin)?);
    }
    Ok(all)
}

fn humboldt(
    plan: &Plan,
    (name, program): (&'static str, &Path),
    mode: Mode,
    files: &Files,
    origin: SocketAddr,
) -> Outcome<Subject> {
    let (folder, listen) = (subjects::folder()?, free_address()?);
    let path = folder.path().display();
    let text = format!(
        "{}{}access_log stdio:{path}/access.log squid\n",
        common(folder.path(), listen, mode, files, origin),
        mode.own_lines()
    );
    let configuration = folder.path().join("squid.conf");
    fs::write(&configuration, text)?;
    let mut command = Command::new(program);
    command.arg("-N").arg("-f").arg(configuration);
    subjects::launch(name, Style::Forward, plan.server_core, command, listen, folder)
}

/// Squid writes no log, as in the other benchmarks. It and its helpers share the core. The helpers
/// keep no certificates on disk, which would cost them more for each new one.
fn beside(
    plan: &Plan,
    squid: &Squid,
    mode: Mode,
    files: &Files,
    origin: SocketAddr,
) -> Outcome<Subject> {
    let (folder, listen) = (subjects::folder()?, free_address()?);
    let text = format!(
        "{}access_log none\npinger_enable off\nsslcrtd_program {}\n\
         sslcrtd_children {HELPERS} startup={HELPERS} idle=1\n",
        common(folder.path(), listen, mode, files, origin),
        squid.maker.display()
    );
    let configuration = folder.path().join("squid.conf");
    fs::write(&configuration, text)?;
    let mut command = Command::new(&squid.program);
    // Squids of the same name share segments of memory.
    let service = format!("bench{}", listen.port());
    command.arg("-N").arg("-n").arg(service).arg("-f").arg(configuration);
    subjects::launch("squid", Style::Forward, plan.server_core, command, listen, folder)
}

/// What all have in common.
fn common(
    folder: &Path,
    listen: SocketAddr,
    mode: Mode,
    files: &Files,
    origin: SocketAddr,
) -> String {
    let (path, port) = (folder.display(), origin.port());
    format!(
        "http_port {listen} ssl-bump tls-cert={} tls-key={} generate-host-certificates=on \
         dynamic_cert_mem_cache_size={LEAVES_MB}MB\n\
         {}pid_filename {path}/pid\ncache_mem {MEMORY_MB} MB\nmaximum_object_size_in_memory 1 MB\n\
         cache_log {path}/cache.log\ncoredump_dir {path}\nshutdown_lifetime 0 seconds\nworkers 1\n\
         acl SSL_ports port {port}\n{DEFAULT_RULES}",
        files.authority.display(),
        files.authority_key.display(),
        mode.lines(files, origin)
    )
}
