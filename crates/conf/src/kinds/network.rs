//! Listening ports and local addresses.

use std::net::IpAddr;

use super::Kind;
use super::access::read_terms;
use super::options::{self, OptionRow, rows};
use super::ports_tls;
use super::unix_port;
use crate::diagnostics::Problem;
use crate::line::{Line, Token};
use crate::table::Status;
use crate::types::{
    ForwardedFor, HttpPort, OutgoingAddress, PortMode, RelaxedParser, Socks, TcpKeepalive,
    UriWhitespace,
};

/// `http_port` lines.
pub(crate) struct Ports;
/// `https_port` lines.
pub(crate) struct HttpsPorts;
/// `tcp_outgoing_address` lines.
pub(crate) struct OutgoingAddresses;
/// `forwarded_for`
pub(crate) struct ForwardedForKind;
/// A [`RelaxedParser`].
pub(crate) struct RelaxedParserKind;
/// A [`UriWhitespace`].
pub(crate) struct UriWhitespaceKind;

/// The options of ports of both kinds, in the order of the reference.
pub(super) const OPTIONS: &[OptionRow] = rows! {
    Status::Works => {
        "accel" "", "The port of an accelerator in front of servers.";
        "intercept" "", "Connections that the packet filter of this machine redirects (NAT). One that it has not redirected is closed.";
        "transparent" "", "Old name of `intercept`.";
        "tproxy" "", "Connections that the packet filter hands over without changing their addresses (TPROXY). Servers see the client's own address where `spoof_client_ip` allows.";
        "name" "=NAME", "Name for `myportname`; the text before the options by default.";
        "defaultsite" "=HOST", "Accelerator: host for requests that name none.";
        "vhost" "", "Accelerator: the Host field counts, as it does anyway. Implies `accel`.";
        "no-vhost" "", "Accelerator: all requests are for `defaultsite`.";
        "vport" "[=PORT]", "Accelerator: URLs have this port, or that of the line, instead of the one in the Host field.";
        "protocol" "=http|https", "Accelerator: the scheme of the URLs.";
        "allow-direct" "", "Accelerator: requests may go to the host that they name.";
        "require-proxy-header" "", "Connections begin with a header of the PROXY protocol, version 1 or 2, and come from those whom `proxy_protocol_access` allows. Others are closed.";
        "ignore-cc" "", "Cache-Control of requests is ignored.";
        "ipv4" "", "The wildcard address means IPv4 only.";
        "tcpkeepalive" "[=IDLE,INTERVAL,TIMEOUT]", "TCP keepalive probes, in seconds.";
        "connection-auth" "[=on|off]", "Whether clients may log in at servers with NTLM, Negotiate and Kerberos, which log connections in: the connection to the server then belongs to that of the client. `off` hides the offer of servers; `on` by default.";
        "no-connection-auth" "", "Old form of `connection-auth=off`.";
        "socks" "[=only]", "Clients may speak SOCKS5 (RFC 1928) as well as HTTP, or with `only` nothing else. Their requests are `CONNECT` to rules and logs.";
        "mode" "=OCTAL", "Unix socket: rights of the file, 660 by default. Who may write to it may connect.";
        "user" "=NAME", "Unix socket: owner of the file; the user that the program runs as by default.";
        "group" "=NAME", "Unix socket: group of the file, in the same way.";
        "worker-queues" "", "Each thread has a queue of its own, as it has anyway; a Unix socket has one.";
    }
    Status::Ignored("Age is sent, and Date and Expires stay those of the server") => {
        "act-as-origin" "", "Accelerator: hits have new Date and Expires fields and no Age.";
    }
    Status::Ignored("path MTU discovery is left to the system") => {
        "disable-pmtu-discovery" "=off|transparent|always", "Whether packets may be fragmented.";
    }
    Status::Ignored("it is an option of `ftp_port`") => {
        "ftp-track-dirs" "", "FTP directories are tracked.";
    }
};

impl Kind for Ports {
    type Out = Vec<HttpPort>;
    const NAME: &'static str = "port";

    fn apply(out: &mut Vec<HttpPort>, line: &mut Line<'_>) -> Result<(), Problem> {
        let spec = line.expect("a port")?;
        let mut port = read_spec(&spec)?;
        ports_tls::plain(&mut port, line)?;
        add(out, port, &spec, line)
    }
}

impl Kind for HttpsPorts {
    type Out = Vec<HttpPort>;
    const NAME: &'static str = "port";

    fn apply(out: &mut Vec<HttpPort>, line: &mut Line<'_>) -> Result<(), Problem> {
        let spec = line.expect("a port")?;
        let mut port = HttpPort { protocol: "https", is_https: true, ..read_spec(&spec)? };
        ports_tls::secure(&mut port, line)?;
        add(out, port, &spec, line)
    }
}

/// Takes an option that has nothing to do with TLS.
pub(super) fn plain_option(port: &mut HttpPort, token: &Token) -> Result<(), Problem> {
    let (name, value) = options::split(token);
    let is_taken = mode_option(port, token, name)?
        || unix_port::option(port, token, name, value)?
        || accel_option(port, token, name, value)?;
    match is_taken {
        true => Ok(()),
        false => other_option(port, token, name, value),
    }
}

/// Takes a port, unless another one listens at its place.
fn add(
    out: &mut Vec<HttpPort>,
    port: HttpPort,
    spec: &Token,
    line: &mut Line<'_>,
) -> Result<(), Problem> {
    if port.requires_proxy_header && port.mode.is_intercepted() {
        let message = "a redirected connection has no header of the PROXY protocol";
        return Err(spec.error(message).with_help("give each a port of its own"));
    }
    unix_port::check(spec, &port)?;
    if port.socks != Socks::No && port.mode != PortMode::Forward {
        let message = "`socks` is for clients that know the proxy";
        return Err(spec.error(message).with_help("give them a port without another mode"));
    }
    let path = port.unix.as_ref().map(|unix| unix.path.clone());
    let place = (port.addr, port.host.clone(), port.port, path);
    if line.state.ports.contains(&place) {
        // As in Squid, where only the first can be opened.
        let message = format!("port {} is already listened on: this line is ignored", spec.text);
        line.warn(spec, message, None);
        return Ok(());
    }
    line.state.ports.push(place);
    out.push(port);
    Ok(())
}

/// Reads `port`, `address:port`, `[v6]:port`, `host:port` or `unix:/path`.
fn read_spec(spec: &Token) -> Result<HttpPort, Problem> {
    let text = spec.text.as_str();
    let mut port = HttpPort { name: text.to_owned(), protocol: "http", ..HttpPort::default() };
    if let Some(path) = text.strip_prefix("unix:") {
        port.unix = Some(unix_port::read_path(spec, path)?);
        return Ok(port);
    }
    let number = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, number) = rest.split_once("]:").ok_or_else(|| {
                spec.error(format!("`{text}` is not an address and port")).with_help(SPEC_HELP)
            })?;
            let address: IpAddr = address.parse().map_err(|_| {
                spec.error(format!("`{address}` is not an IPv6 address")).with_help(SPEC_HELP)
            })?;
            port.addr = Some(address);
            number
        }
        None => match text.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => {
                return Err(spec
                    .error("an IPv6 address must stand in brackets")
                    .with_help(SPEC_HELP));
            }
            Some(("" | "*", number)) => number,
            Some((host, number)) => {
                match host.parse::<IpAddr>() {
                    Ok(address) => port.addr = Some(address),
                    Err(_) => {
                        check_host(spec, host)?;
                        port.host = Some(host.to_owned());
                        port.defaultsite = Some(host.to_owned());
                    }
                }
                number
            }
            None => text,
        },
    };
    port.port = match number.parse() {
        Ok(number @ 1..) => number,
        _ => {
            let why = format!("`{number}` is not a port from 1 to 65535");
            return Err(spec.error(why).with_help(SPEC_HELP));
        }
    };
    Ok(port)
}

const SPEC_HELP: &str = "write 3128, 127.0.0.1:3128, [::1]:3128, host:3128 or unix:/path";

fn check_host(spec: &Token, host: &str) -> Result<(), Problem> {
    let plausible = host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    let numeric = host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if plausible && !numeric {
        return Ok(());
    }
    Err(spec.error(format!("`{host}` is neither an address nor a host name")).with_help(SPEC_HELP))
}

/// Takes an option that sets the mode; false when it is another one.
fn mode_option(port: &mut HttpPort, token: &Token, name: &str) -> Result<bool, Problem> {
    let mode = match name {
        "accel" | "vhost" => PortMode::Accel,
        "intercept" | "transparent" => PortMode::Intercept,
        "tproxy" => PortMode::Tproxy,
        _ => return Ok(false),
    };
    if port.mode != PortMode::Forward && port.mode != mode {
        return Err(
            token.error(format!("`{name}` cannot be combined with another mode on the same port"))
        );
    }
    port.mode = mode;
    port.vhost = mode == PortMode::Accel;
    Ok(true)
}

/// Takes an option of accelerator ports; false when it is another one.
fn accel_option(
    port: &mut HttpPort,
    token: &Token,
    name: &str,
    value: Option<&str>,
) -> Result<bool, Problem> {
    if !matches!(name, "defaultsite" | "no-vhost" | "vport" | "protocol" | "allow-direct") {
        return Ok(false);
    }
    if port.mode != PortMode::Accel {
        return Err(token.error(format!("`{name}` needs `accel` in front of it")));
    }
    match (name, value) {
        ("defaultsite", Some(site)) if !site.is_empty() => port.defaultsite = Some(site.to_owned()),
        ("no-vhost", None) => port.vhost = false,
        ("vport", None) => port.vport = Some(0),
        ("vport", Some(number)) => {
            port.vport =
                Some(number.parse().map_err(|_| token.error(format!("`{number}` is not a port")))?);
        }
        ("protocol", Some(protocol)) => port.protocol = read_protocol(token, protocol)?,
        ("allow-direct", None) => port.allow_direct = true,
        _ => return Err(token.error(format!("`{}` has no such value", token.text))),
    }
    Ok(true)
}

fn read_protocol(token: &Token, protocol: &str) -> Result<&'static str, Problem> {
    match protocol.to_ascii_uppercase().as_str() {
        "HTTP" | "HTTP/1.1" => Ok("http"),
        "HTTPS" | "HTTPS/1.1" => Ok("https"),
        _ => Err(token
            .error(format!("`{protocol}` is not a protocol of accelerators"))
            .with_help("http or https")),
    }
}

fn other_option(
    port: &mut HttpPort,
    token: &Token,
    name: &str,
    value: Option<&str>,
) -> Result<(), Problem> {
    match (name, value) {
        ("socks", None) => port.socks = Socks::Too,
        ("socks", Some("only")) => port.socks = Socks::Only,
        ("socks", _) => {
            let problem = token.error(format!("`{}` has no such value", token.text));
            return Err(problem.with_help("write socks or socks=only"));
        }
        ("ignore-cc", _) => port.ignore_cc = true,
        ("require-proxy-header", _) => port.requires_proxy_header = true,
        ("name", Some("")) => return Err(token.error("the name is missing")),
        ("name", Some(name)) => name.clone_into(&mut port.name),
        ("ipv4", _) if matches!(port.addr, Some(IpAddr::V6(_))) => {
            return Err(token.error("an IPv6 address cannot be used for IPv4 only"));
        }
        ("ipv4", _) => port.ipv4_only = true,
        ("connection-auth", None | Some("on")) => port.hides_connection_auth = false,
        ("connection-auth", Some("off")) | ("no-connection-auth", None) => {
            port.hides_connection_auth = true;
        }
        ("connection-auth" | "no-connection-auth", _) => {
            return Err(token.error(format!("`{}` has no such value", token.text)));
        }
        ("tcpkeepalive", value) => port.tcpkeepalive = Some(read_keepalive(token, value)?),
        // Options that only confirm the behaviour.
        _ => {}
    }
    Ok(())
}

/// `idle,interval,timeout`, each in seconds and optional from the right.
fn read_keepalive(token: &Token, value: Option<&str>) -> Result<TcpKeepalive, Problem> {
    let mut seconds = [0_u32; 3];
    for (index, part) in value.unwrap_or("0").split(',').enumerate() {
        let parsed = part
            .parse()
            .map_err(|_| token.error(format!("`{part}` is not a number of seconds")))?;
        let slot = seconds
            .get_mut(index)
            .ok_or_else(|| token.error("at most idle, interval and timeout"))?;
        *slot = parsed;
    }
    let [idle_s, interval_s, timeout_s] = seconds;
    Ok(TcpKeepalive { idle_s, interval_s, timeout_s })
}

impl Kind for OutgoingAddresses {
    type Out = Vec<OutgoingAddress>;
    const NAME: &'static str = "address and ACLs";

    fn apply(out: &mut Vec<OutgoingAddress>, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("an address")?;
        let bare = token.text.trim_start_matches('[').trim_end_matches(']');
        let addr =
            bare.parse().map_err(|_| token.error(format!("`{}` is not an address", token.text)))?;
        out.push(OutgoingAddress { addr, terms: read_terms(line)? });
        Ok(())
    }
}

impl Kind for RelaxedParserKind {
    type Out = RelaxedParser;
    const NAME: &'static str = "`on`, `warn` or `off`";

    fn apply(out: &mut RelaxedParser, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a value")?;
        *out = match token.text.as_str() {
            "on" => RelaxedParser::On,
            "warn" => RelaxedParser::Warn,
            "off" => RelaxedParser::Off,
            other => return Err(token.error(format!("`{other}` is not one of {}", Self::NAME))),
        };
        Ok(())
    }
}

impl Kind for ForwardedForKind {
    type Out = ForwardedFor;
    const NAME: &'static str = "`on`, `off`, `transparent`, `truncate` or `delete`";

    fn apply(out: &mut ForwardedFor, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a value")?;
        *out = match token.text.as_str() {
            "on" => ForwardedFor::On,
            "off" => ForwardedFor::Off,
            "transparent" => ForwardedFor::Transparent,
            "truncate" => ForwardedFor::Truncate,
            "delete" => ForwardedFor::Delete,
            other => return Err(token.error(format!("`{other}` is not one of {}", Self::NAME))),
        };
        Ok(())
    }
}

impl Kind for UriWhitespaceKind {
    type Out = UriWhitespace;
    const NAME: &'static str = "`strip`, `deny`, `encode` or `chop`";

    fn apply(out: &mut UriWhitespace, line: &mut Line<'_>) -> Result<(), Problem> {
        let token = line.expect("a treatment")?;
        *out = match token.text.as_str() {
            "deny" => UriWhitespace::Deny,
            "strip" => UriWhitespace::Strip,
            "encode" => UriWhitespace::Encode,
            "chop" => UriWhitespace::Chop,
            "allow" => {
                line.warn(
                    &token,
                    "`allow` is read as `encode`: no request is sent on with it",
                    None,
                );
                UriWhitespace::Encode
            }
            other => return Err(token.error(format!("`{other}` is not one of {}", Self::NAME))),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::types::{HttpPort, PortMode, Socks, TcpKeepalive};
    use crate::{Severity, parse_str};

    fn port(text: &str) -> Result<HttpPort, String> {
        let (config, found) = parse_str("t", &format!("http_port {text}\n"));
        if found.has_errors() {
            Err(found.render_from(false, Severity::Error))
        } else {
            Ok(config.http_port[0].clone())
        }
    }

    #[test]
    fn addresses_and_ports() {
        let any = port("3128").expect("port");
        assert_eq!(
            (any.addr, any.port, any.mode, any.name.as_str()),
            (None, 3128, PortMode::Forward, "3128")
        );
        assert_eq!(port("127.0.0.1:3128").expect("v4").addr, Some([127, 0, 0, 1].into()));
        assert!(port("[::1]:3128").expect("v6").addr.is_some_and(|a| a.is_ipv6()));
        let host = port("cache.example.com:80 accel").expect("host");
        assert_eq!((host.host.as_deref(), host.addr), (Some("cache.example.com"), None));
        for bad in [
            "",
            "0",
            "65536",
            "::1:3128",
            "[::1]",
            "[x]:1",
            "1.2.3.400:80",
            "a/b:80",
            "3128x",
            "-1",
        ] {
            assert!(port(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn accelerator_options() {
        let text = "80 accel defaultsite=www.example.com no-vhost vport=8080 protocol=HTTPS allow-direct \
                    ignore-cc name=front";
        let p = port(text).expect("parses");
        assert_eq!(
            (p.mode, p.vhost, p.vport, p.protocol),
            (PortMode::Accel, false, Some(8080), "https")
        );
        assert_eq!((p.defaultsite.as_deref(), p.name.as_str()), (Some("www.example.com"), "front"));
        assert!(p.allow_direct && p.ignore_cc);
        assert!(port("80 accel").expect("accel").vhost);
        assert!(port("80 defaultsite=x").is_err());
        assert!(port("80 accel intercept").is_err());
    }

    #[test]
    fn other_options() {
        let p = port("80 tcpkeepalive=60,30,3").expect("parses");
        assert_eq!(p.tcpkeepalive, Some(TcpKeepalive { idle_s: 60, interval_s: 30, timeout_s: 3 }));
        assert!(port("80 tcpkeepalive=1,2,3,4").is_err());
        assert!(port("80 acel").expect_err("typo").contains("did you mean `accel`?"));
        assert!(port("80 require-proxy-header").expect("parses").requires_proxy_header);
        assert_eq!(port("80 tproxy").expect("parses").mode, PortMode::Tproxy);
        assert!(port("80 tproxy intercept").is_err());
        for option in ["intercept", "transparent"] {
            let port = port(&format!("80 {option} name=a")).expect("parses");
            assert_eq!((port.mode, &*port.name), (PortMode::Intercept, "a"));
        }
        assert!(port("80 intercept defaultsite=x").is_err() && port("80 intercept accel").is_err());
        let (config, found) =
            parse_str("t", "http_port 80 ssl-bump cert=/x tls-dh=/y\nhttp_access allow all\n");
        assert_eq!((config.http_port.len(), found.count(Severity::Warning)), (1, 2));
        let (config, found) =
            parse_str("t", "http_port 80 cert=/x options=ALL\nhttp_access allow localhost\n");
        assert_eq!((config.http_port.len(), found.count(Severity::Warning)), (1, 2));
    }

    #[test]
    fn socks() {
        assert_eq!(port("1080").expect("parses").socks, Socks::No);
        assert_eq!(port("1080 socks").expect("parses").socks, Socks::Too);
        assert_eq!(port("unix:/run/x socks=only").expect("parses").socks, Socks::Only);
        for bad in ["1080 socks=4", "1080 accel socks", "1080 socks intercept"] {
            assert!(port(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_option_is_read_ignored_with_a_warning_or_refused_as_the_table_says() {
        let example = |name: &str| match name {
            "protocol" => "=http",
            "socks" => "=only",
            "disable-pmtu-discovery" | "connection-auth" | "generate-host-certificates" => "=off",
            _ => "=2",
        };
        let line = |option: &str| match option.split('=').next() {
            Some("intercept" | "transparent" | "tproxy" | "socks") => {
                format!("http_port 80 {option}")
            }
            Some("mode" | "user" | "group") => format!("http_port unix:/run/x {option}"),
            Some("ssl-bump" | "sslBump") => format!("ssl_bump splice all\nhttp_port 80 {option}"),
            Some("generate-host-certificates" | "dynamic_cert_mem_cache_size") => {
                format!("ssl_bump splice all\nhttp_port 80 ssl-bump tls-cert=/x {option}")
            }
            _ => format!("http_port 80 accel {option}"),
        };
        super::super::options::tests::check_rows(
            super::OPTIONS.iter().chain(super::ports_tls::BUMP),
            line,
            example,
        );
        let secure = |option: &str| match option.split_once('=') {
            Some(("tls-cert" | "cert", _)) => format!("https_port 80 {option}"),
            _ => format!("https_port 80 tls-cert=/x clientca=/x {option}"),
        };
        let example = |name: &str| match name.trim_start_matches("tls-") {
            "min-version" => "=1.3",
            "version" => "=1",
            "options" => "=NO_TICKET",
            "cipher" => "=HIGH",
            "flags" | "sslflags" => "=NO_SESSION_REUSE",
            "default-ca" | "generate-host-certificates" => "=off",
            _ => "=/x",
        };
        super::super::options::tests::check_rows(super::ports_tls::SECURE, secure, example);
    }

    #[test]
    fn the_same_port_twice_is_opened_once() {
        let (config, found) =
            parse_str("t", "http_port 80 name=a\nhttp_port 80 name=b\nhttp_access allow all\n");
        assert_eq!((found.has_errors(), found.count(Severity::Warning)), (false, 1));
        assert_eq!((config.http_port.len(), config.http_port[0].name.as_str()), (1, "a"));
        assert!(!parse_str("t", "http_port 127.0.0.1:80\nhttp_port [::1]:80\n").1.has_errors());
    }

    #[test]
    fn an_https_port_has_its_certificates() {
        let parse = |line: &str| parse_str("t", &format!("http_access allow all\n{line}\n"));
        let (config, found) = parse(
            "https_port 443 accel defaultsite=a tls-cert=/a tls-key=/k cert=/b tls-ocsp=/o clientca=/c \
             sslflags=CONDITIONAL_AUTH crlfile=/r cafile=/d options=CIPHER_SERVER_PREFERENCE",
        );
        assert!(!found.has_errors(), "{}", found.render(false));
        let port = &config.https_port[0];
        assert_eq!((port.protocol, port.mode), ("https", PortMode::Accel));
        let tls = port.tls.as_ref().expect("TLS");
        let files: Vec<_> = tls.certificates.iter().map(|pair| pair.key.as_deref()).collect();
        assert_eq!(files, [Some("/k"), None]);
        assert_eq!(tls.stapled, [(1, "/o".to_owned())]);
        let clients = tls.clients.as_ref().expect("clients");
        assert_eq!(clients.authorities, ["/d"]);
        assert!(clients.is_optional && !clients.trusts_system && tls.settings.prefers_own_order);
        assert!(config.http_port.is_empty(), "no other port is opened");
        for (line, wanted) in [
            ("https_port 443", "needs a certificate"),
            ("https_port 443 tls-key=/k", "belongs to the certificate"),
            ("https_port 443 tls-ocsp=/o tls-cert=/c", "is for a certificate"),
            ("https_port 443 tls-cert=/c version=3", "broken"),
            ("https_port 443 tls-cert=/c tls-domain=x", "not an option"),
            ("https_port 443 tls-cert=/c sslflags=DONT_VERIFY_PEER", "not a flag"),
        ] {
            let text = parse(line).1.render_from(false, Severity::Error);
            assert!(text.contains(wanted), "{line}: {text}");
        }
    }
}
