//! The servers of the benchmark of TLS: each has a plain port and one with TLS, in one process on
//! one core.

use crate::bench::subjects::{self, Style, Subject};
use crate::bench::{Plan, floor};
use crate::processes::free_address;
use crate::{Outcome, packages};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// More than the connections of any part.
const CONNECTIONS_MAX: usize = 20_000;

/// The certificate that all servers have.
pub(in crate::bench) struct Own {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
}

/// A server's two ports. The floor has a process for each.
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) plain: SocketAddr,
    pub(super) secured: SocketAddr,
    pub(super) process: Subject,
    /// The process of the plain port, if it is another one.
    pub(super) plain_process: Option<Subject>,
}

impl Server {
    /// The process that answers on one of the ports.
    pub(super) fn process(&self, is_secured: bool) -> &Subject {
        match &self.plain_process {
            Some(plain) if !is_secured => plain,
            _ => &self.process,
        }
    }
}

/// All that can take part.
pub(super) fn all(plan: &Plan, own: &Own, origin: SocketAddr) -> Outcome<Vec<Server>> {
    let mut all = vec![floor(plan, own)?];
    if let Some(program) = plan.humboldt.as_deref() {
        all.push(humboldt(plan, "humboldt", program, own, origin)?);
    }
    if let Some(program) = plan.old.as_deref() {
        all.push(humboldt(plan, "old", program, own, origin)?);
    }
    if plan.wants("nginx") {
        match packages::find("nginx") {
            Some(program) => all.push(nginx(plan, &program, own, origin)?),
            None => println!("note: nginx is not installed, it is left out"),
        }
    }
    Ok(all)
}

fn floor(plan: &Plan, own: &Own) -> Outcome<Server> {
    let secured = free_address()?;
    let command = floor_command(plan, own, secured);
    let (core, folder) = (plan.server_core, subjects::folder()?);
    let process = subjects::launch("floor", Style::Direct, core, command, secured, folder)?;
    let plain = subjects::floor(plan, "floor", core)?;
    Ok(Server { name: "floor", plain: plain.address, secured, process, plain_process: Some(plain) })
}

/// The bare server behind TLS.
pub(in crate::bench) fn floor_command(plan: &Plan, own: &Own, secured: SocketAddr) -> Command {
    let mut command = Command::new(&plan.xtask);
    command.arg("tls-floor").arg(secured.to_string()).arg(&own.certificate).arg(&own.key);
    command
}

fn humboldt(
    plan: &Plan,
    name: &'static str,
    program: &Path,
    own: &Own,
    origin: SocketAddr,
) -> Outcome<Server> {
    let (folder, plain, secured) = (subjects::folder()?, free_address()?, free_address()?);
    let command = humboldt_command(program, folder.path(), own, origin, (plain, secured))?;
    let process =
        subjects::launch(name, Style::Direct, plan.server_core, command, secured, folder)?;
    Ok(Server { name, plain, secured, process, plain_process: None })
}

/// Humboldt with a plain port and one with TLS.
pub(in crate::bench) fn humboldt_command(
    program: &Path,
    folder: &Path,
    own: &Own,
    origin: SocketAddr,
    (plain, secured): (SocketAddr, SocketAddr),
) -> Outcome<Command> {
    let (path, certificate, key) = (folder.display(), own.certificate.display(), own.key.display());
    let text = format!(
        "http_port {plain} accel defaultsite={origin}\n\
         https_port {secured} accel defaultsite={origin} tls-cert={certificate} tls-key={key}\n\
         cache_peer {} parent {} 0 no-query originserver\n\
         pid_filename {path}/pid\ncache_mem 256 MB\nmaximum_object_size_in_memory 1 MB\nworkers 1\n\
         access_log stdio:{path}/access.log squid\ncache_log {path}/cache.log\n\
         coredump_dir {path}\nshutdown_lifetime 0 seconds\nhttp_access allow all\n",
        origin.ip(),
        origin.port()
    );
    let configuration = folder.join("squid.conf");
    fs::write(&configuration, text)?;
    let mut command = Command::new(program);
    command.arg("-N").arg("-f").arg(configuration);
    Ok(command)
}

/// As in the other benchmarks, with a port that has TLS with the library's own settings.
fn nginx(plan: &Plan, program: &Path, own: &Own, origin: SocketAddr) -> Outcome<Server> {
    let (folder, plain, secured) = (subjects::folder()?, free_address()?, free_address()?);
    let (path, certificate, key) =
        (folder.path().display(), own.certificate.display(), own.key.display());
    let text = format!(
        "daemon off; master_process on; worker_processes 1; worker_rlimit_nofile {descriptors};\n\
         pid {path}/pid; error_log {path}/error.log warn;\n\
         events {{ worker_connections {CONNECTIONS_MAX}; multi_accept on; }}\n\
         http {{\n\
         access_log off; sendfile on; tcp_nodelay on; keepalive_requests 100000000;\n\
         keepalive_timeout 600;\n\
         client_body_temp_path {path}/body; proxy_temp_path {path}/temp; fastcgi_temp_path {path}/f;\n\
         uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;\n\
         open_file_cache max=100000 inactive=10m; open_file_cache_valid 10m;\n\
         proxy_cache_path {path}/cache levels=1:2 keys_zone=all:100m max_size=1g inactive=1h use_temp_path=off;\n\
         upstream origin {{ server {origin}; keepalive 128; keepalive_requests 100000000; }}\n\
         ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_protocols TLSv1.2 TLSv1.3;\n\
         ssl_session_cache shared:tls:20m;\n\
         server {{ listen {plain} backlog=4096; listen {secured} ssl backlog=4096;\n\
         location / {{ proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
         proxy_cache all; proxy_cache_key $request_uri; proxy_cache_valid 200 1h; }} }} }}\n",
        descriptors = 2 * CONNECTIONS_MAX
    );
    let configuration = folder.path().join("nginx.conf");
    fs::write(&configuration, text)?;
    let mut command = Command::new(program);
    command.arg("-p").arg(folder.path()).arg("-c").arg(configuration);
    let process =
        subjects::launch("nginx", Style::Direct, plan.server_core, command, secured, folder)?;
    Ok(Server { name: "nginx", plain, secured, process, plain_process: None })
}

/// The longest answer that the floor gives is long enough for all parts.
pub(super) const BODY_BYTES_MAX: usize = floor::MAX_BODY_BYTES;
