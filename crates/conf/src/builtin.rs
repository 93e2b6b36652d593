//! The configuration of plain `humboldt`, without a file.

use std::path::Path;

use crate::diagnostics::Diagnostics;
use crate::table::Config;

/// The folder of the store, below that of the built-in configuration.
pub const BUILTIN_STORE: &str = "ring";

/// The text of the built-in configuration: a proxy for this machine alone, with its store, logs and
/// process number below `dir`. IPv6 is listened on where it exists.
pub fn builtin_text(dir: &Path) -> String {
    let v6 = if has_ipv6_loopback() { "http_port [::1]:3128\n" } else { "" };
    let path = |name: &str| quote(&dir.join(name).to_string_lossy());
    let (store, access_log, pid) = (path(BUILTIN_STORE), path("access.log"), path("humboldt.pid"));
    format!(
        "# The built-in configuration of humboldt: for this machine only.
http_port 127.0.0.1:3128
{v6}
acl SSL_ports port 443
acl Safe_ports port 80 443 1025-65535
http_access deny !Safe_ports
http_access deny CONNECT !SSL_ports
http_access allow localhost manager
http_access deny manager
http_access allow localhost
http_access deny all

cache_mem 256 MB
maximum_object_size 1 GB

refresh_pattern -i (/cgi-bin/|\\?) 0 0% 0
refresh_pattern . 0 20% 4320

cache_log /dev/stderr
cache_store_log none

# These may have blanks in them.
configuration_includes_quoted_values on
cache_dir ring {store} 1024
access_log {access_log} squid
pid_filename {pid}
configuration_includes_quoted_values off
"
    )
}

impl Config {
    /// The built-in configuration, read from [`builtin_text`].
    pub fn builtin(dir: &Path) -> (Config, Diagnostics) {
        crate::parse_str("built-in configuration", &builtin_text(dir))
    }
}

/// A quoted value of squid.conf.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Can sockets be bound to `::1` here?
fn has_ipv6_loopback() -> bool {
    std::net::UdpSocket::bind((std::net::Ipv6Addr::LOCALHOST, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_parses_without_a_word_said_about_it() {
        for dir in ["/home/a/.cache/humboldt", "/home/with blank/\"x\"\\"] {
            let (config, found) = Config::builtin(Path::new(dir));
            assert_eq!(found.render(false), "");
            assert_eq!(config.cache_dir[0].path, Path::new(dir).join(BUILTIN_STORE));
            assert_eq!(config.cache_dir[0].size_bytes, 1 << 30);
            assert!(
                config
                    .http_port
                    .iter()
                    .all(|port| port.addr.is_some_and(|addr| addr.is_loopback()))
            );
            assert_eq!(config.http_access.len(), 6);
            assert_eq!(config.cache_mem, 256 << 20);
            assert!(
                config.access_log[0].place.as_ref().is_some_and(|place| place.starts_with(dir))
            );
        }
    }
}
