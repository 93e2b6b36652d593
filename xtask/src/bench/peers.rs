//! Configurations of the caches that Humboldt is compared with: each as fast as its manual
//! promises, without logs.

use super::Plan;
use super::subjects::{DEFAULT_RULES, Setting};
use crate::{Outcome, packages};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Debian's configuration of Traffic Server.
const TRAFFICSERVER_SHIPPED: &str = "/etc/trafficserver";

/// Bytes that nginx and Traffic Server may use on disk; far more than a benchmark's working set.
const DISK_MB: u64 = 4096;

/// `proxy_cache` with open files kept, `sendfile`, and connections to the origin kept.
pub(super) fn nginx(_: &Plan, setting: &Setting<'_>) -> Outcome<Option<Command>> {
    let Some(program) = packages::find("nginx") else { return Ok(None) };
    let (folder, listen, origin) = (setting.folder.display(), setting.listen, setting.origin);
    let text = format!(
        "daemon off; master_process on; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log warn;\n\
         events {{ worker_connections 4096; multi_accept on; }}\n\
         http {{\n\
         access_log off; sendfile on; tcp_nodelay on; keepalive_requests 100000000;\n\
         client_body_temp_path {folder}/body; proxy_temp_path {folder}/temp; fastcgi_temp_path {folder}/f;\n\
         uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n\
         open_file_cache max=100000 inactive=10m; open_file_cache_valid 10m;\n\
         proxy_cache_path {folder}/cache levels=1:2 keys_zone=all:100m max_size={DISK_MB}m inactive=1h use_temp_path=off;\n\
         upstream origin {{ server {origin}; keepalive 128; keepalive_requests 100000000; }}\n\
         server {{ listen {listen} backlog=4096;\n\
         location / {{ proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
         proxy_cache all; proxy_cache_valid 200 1h; }} }} }}\n"
    );
    let configuration = setting.folder.join("nginx.conf");
    fs::write(&configuration, text)?;
    let mut command = Command::new(program);
    command.arg("-p").arg(setting.folder).arg("-c").arg(configuration);
    Ok(Some(command))
}

/// Memory only, Squid's own access rules, no log.
pub(super) fn squid(_: &Plan, setting: &Setting<'_>) -> Outcome<Option<Command>> {
    squid_with_rules(setting, DEFAULT_RULES)
}

/// The same with other access rules.
pub(super) fn squid_with_rules(setting: &Setting<'_>, rules: &str) -> Outcome<Option<Command>> {
    let Some(program) = packages::find("squid") else { return Ok(None) };
    let folder = setting.folder.display();
    let text = format!(
        "http_port {}\npid_filename {folder}/pid\ncache_mem {} MB\nmaximum_object_size_in_memory 1 MB\n\
         access_log none\ncache_log {folder}/cache.log\ncoredump_dir {folder}\nshutdown_lifetime 0 seconds\n{rules}",
        setting.listen, setting.cache_mem_mb
    );
    let configuration = setting.folder.join("squid.conf");
    fs::write(&configuration, text)?;
    let mut command = Command::new(program);
    // A service name of its own, because Squids of the same name share segments of memory.
    command
        .arg("-N")
        .arg("-n")
        .arg(format!("bench{}", setting.listen.port()))
        .arg("-f")
        .arg(configuration);
    Ok(Some(command))
}

/// Memory store, no grace or keep so that churn is plain replacement.
pub(super) fn varnish(_: &Plan, setting: &Setting<'_>) -> Outcome<Option<Command>> {
    let Some(program) = packages::find("varnishd") else { return Ok(None) };
    let text = format!(
        "vcl 4.1;\nbackend default {{ .host = \"{}\"; .port = \"{}\"; }}\n",
        setting.origin.ip(),
        setting.origin.port()
    );
    let vcl = setting.folder.join("default.vcl");
    fs::write(&vcl, text)?;
    let mut command = Command::new(program);
    command
        .arg("-F")
        .arg("-n")
        .arg(setting.folder.join("work"))
        .arg("-a")
        .arg(setting.listen.to_string());
    command
        .arg("-f")
        .arg(vcl)
        .arg("-s")
        .arg(format!("malloc,{}m", setting.cache_mem_mb))
        .args(["-T", "none"]);
    Ok(Some(command))
}

/// One event thread, a disk store as it insists on one, and a memory cache in front.
pub(super) fn trafficserver(_: &Plan, setting: &Setting<'_>) -> Outcome<Option<Command>> {
    let Some(program) =
        packages::find("traffic_server").filter(|_| Path::new(TRAFFICSERVER_SHIPPED).is_dir())
    else {
        return Ok(None);
    };
    let folder = setting.folder;
    let records = format!(
        "CONFIG proxy.config.http.server_ports STRING {}:ip-in={}\n\
         CONFIG proxy.config.exec_thread.autoconfig INT 0\n\
         CONFIG proxy.config.exec_thread.limit INT 1\n\
         CONFIG proxy.config.accept_threads INT 0\n\
         CONFIG proxy.config.task_threads INT 1\n\
         CONFIG proxy.config.cache.threads_per_disk INT 2\n\
         CONFIG proxy.config.cache.ram_cache.size INT {}M\n\
         CONFIG proxy.config.cache.ram_cache_cutoff INT 1M\n\
         CONFIG proxy.config.http.keep_alive_no_activity_timeout_in INT 600\n\
         CONFIG proxy.config.log.logging_enabled INT 0\n\
         CONFIG proxy.config.admin.user_id STRING #-1\n",
        setting.listen.port(),
        setting.listen.ip(),
        setting.cache_mem_mb
    );
    let map = format!("map / http://{}/\n", setting.origin);
    trafficserver_layout(folder, &records, &map, DISK_MB)?;
    let mut command = Command::new(program);
    command.env("TS_RUNROOT", folder).current_dir(folder);
    Ok(Some(command))
}

/// The folders and files that Traffic Server wants, below one folder: Debian's own files, except
/// for these.
pub(crate) fn trafficserver_layout(
    folder: &Path,
    records: &str,
    map: &str,
    disk_mb: u64,
) -> Outcome {
    for name in ["etc", "run", "log", "store"] {
        fs::create_dir(folder.join(name))?;
    }
    for entry in fs::read_dir(TRAFFICSERVER_SHIPPED)?
        .filter_map(Result::ok)
        .filter(|entry| entry.path().is_file())
    {
        fs::copy(entry.path(), folder.join("etc").join(entry.file_name()))?;
    }
    let path = folder.display();
    let layout = format!(
        "prefix: /usr\nexec_prefix: /usr\nbindir: /usr/bin\nsbindir: /usr/sbin\nsysconfdir: {path}/etc\n\
         datadir: {path}/store\nincludedir: /usr/include\nlibdir: /usr/lib/trafficserver\n\
         libexecdir: /usr/lib/trafficserver/modules\nlocalstatedir: {path}\nruntimedir: {path}/run\n\
         logdir: {path}/log\ncachedir: {path}/store\n"
    );
    fs::write(folder.join("runroot.yaml"), layout)?;
    fs::write(folder.join("etc/records.config"), records)?;
    fs::write(folder.join("etc/remap.config"), map)?;
    Ok(fs::write(folder.join("etc/storage.config"), format!("{path}/store {disk_mb}M\n"))?)
}
