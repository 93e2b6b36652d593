//! Listening ports that are Unix sockets.

use crate::diagnostics::Problem;
use crate::line::Token;
use crate::types::{HttpPort, UnixPlace};

/// Longest path of a Unix socket, in bytes: the system allows 107, of which some are for the name
/// under which the socket is made.
const UNIX_PATH_BYTES_MAX: usize = 100;

/// Reads what follows `unix:`.
pub(super) fn read_path(spec: &Token, path: &str) -> Result<UnixPlace, Problem> {
    let problem = match path {
        "" | "/" => "the path of the Unix socket is missing".to_owned(),
        path if !path.starts_with('/') => {
            format!("`{path}` is not a whole path, which begins with `/`")
        }
        path if path.len() > UNIX_PATH_BYTES_MAX => {
            format!("a path of {} bytes is too long: {UNIX_PATH_BYTES_MAX} at most", path.len())
        }
        path if path.ends_with('/') => format!("`{path}` is a directory"),
        path => {
            let (user, group) = (None, None);
            return Ok(UnixPlace { path: path.into(), mode: UnixPlace::MODE, user, group });
        }
    };
    Err(spec.error(problem).with_help("write unix:/run/humboldt/proxy.sock"))
}

/// Takes an option of Unix sockets; false when it is another one.
pub(super) fn option(
    port: &mut HttpPort,
    token: &Token,
    name: &str,
    value: Option<&str>,
) -> Result<bool, Problem> {
    if !matches!(name, "mode" | "user" | "group") {
        return Ok(false);
    }
    let Some(unix) = &mut port.unix else {
        return Err(token.error(format!("`{name}` is for ports that begin with `unix:`")));
    };
    let value = value.filter(|value| !value.is_empty());
    let value = value.ok_or_else(|| token.error(format!("the value of `{name}` is missing")))?;
    match name {
        "mode" => {
            let mode = u32::from_str_radix(value, 8).ok().filter(|mode| *mode <= 0o777);
            let problem = format!("`{value}` is not a mode from 0 to 777");
            unix.mode = mode.ok_or_else(|| token.error(problem).with_help("write mode=660"))?;
        }
        "user" => unix.user = Some(value.to_owned()),
        _ => unix.group = Some(value.to_owned()),
    }
    Ok(true)
}

/// What a port has no use for that is a file.
pub(super) fn check(spec: &Token, port: &HttpPort) -> Result<(), Problem> {
    let useless = match port {
        HttpPort { unix: None, .. } => return Ok(()),
        port if port.mode.is_intercepted() => "a packet filter, which sends nothing there",
        HttpPort { ipv4_only: true, .. } => "`ipv4`",
        HttpPort { tcpkeepalive: Some(_), .. } => "`tcpkeepalive`",
        HttpPort { vport: Some(0), .. } => "`vport` without a number: it has none itself",
        _ => return Ok(()),
    };
    Err(spec.error(format!("a Unix socket has no use for {useless}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Severity, parse_str};

    fn port(text: &str) -> Result<HttpPort, String> {
        let (config, found) = parse_str("t", &format!("http_port {text}\n"));
        match found.has_errors() {
            true => Err(found.render_from(false, Severity::Error)),
            false => Ok(config.http_port[0].clone()),
        }
    }

    #[test]
    fn unix_sockets() {
        let p = port("unix:/run/x.sock mode=600 user=anna group=7 name=agents").expect("parses");
        let unix = p.unix.expect("a path");
        assert_eq!((unix.path.to_str(), unix.mode), (Some("/run/x.sock"), 0o600));
        assert_eq!((unix.user.as_deref(), unix.group.as_deref()), (Some("anna"), Some("7")));
        assert_eq!((p.port, p.addr, p.name.as_str()), (0, None, "agents"));
        let plain = port("unix:/run/x.sock").expect("parses");
        assert_eq!((plain.unix.expect("a path").mode, &*plain.name), (0o660, "unix:/run/x.sock"));
        assert!(port("unix:/run/x accel defaultsite=a vport=80 require-proxy-header").is_ok());
        let long = format!("unix:/{}", "x".repeat(UNIX_PATH_BYTES_MAX));
        for bad in [
            "unix:",
            "unix:/",
            "unix:x",
            "unix:/run/",
            &long,
            "unix:/run/x mode=888",
            "unix:/run/x mode=7777",
            "unix:/run/x user=",
            "unix:/run/x intercept",
            "unix:/run/x tproxy",
            "unix:/run/x ipv4",
            "unix:/run/x tcpkeepalive",
            "unix:/run/x accel vport",
            "3128 mode=600",
            "3128 user=anna",
        ] {
            assert!(port(bad).is_err(), "{bad}");
        }
        let (config, found) =
            parse_str("t", "http_port unix:/a\nhttp_port unix:/b\nhttp_access allow all\n");
        assert_eq!((config.http_port.len(), found.count(Severity::Warning)), (2, 0));
        let (config, found) =
            parse_str("t", "http_port unix:/a\nhttp_port unix:/a\nhttp_access allow all\n");
        assert_eq!((config.http_port.len(), found.count(Severity::Warning)), (1, 1));
    }
}
