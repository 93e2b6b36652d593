//! `cache_peer` and the directives that refer to peers.

use std::time::Duration;

use super::Kind;
use super::access::read_rule;
use super::options::{self, OptionRow, rows};
use super::tls::{Side, TlsReader};
use crate::diagnostics::Problem;
use crate::line::{Line, Token};
use crate::suggest::suggest;
use crate::table::Status;
use crate::types::{
    CachePeer, ConnectionAuth, PeerAccess, PeerDomain, PeerKind, PeerLogin, PeerSelection,
};

/// `cache_peer` lines.
pub(crate) struct Peers;
/// `PEER allow|deny ACL…`
pub(crate) struct PeerRules;
/// `PEER [!]DOMAIN…`
pub(crate) struct PeerDomains;

const NO_QUERIES: Status =
    Status::Ignored("queries between caches (ICP, HTCP, digests) are not implemented");

/// The options, in the order of the reference.
pub(super) const OPTIONS: &[OptionRow] = rows! {
    Status::Works => {
        "originserver" "", "It is a server, not a proxy: requests have the form that servers want.";
        "name" "=NAME", "Name for other directives and the log; the host when not given.";
        "default" "", "Parent of last resort: tried after all others.";
        "round-robin" "", "Such parents take turns, each as often as its `weight` says.";
        "weighted-round-robin" "", "The same here: response times are not measured.";
        "carp" "", "The URL decides, by Squid's CARP: each parent has its share of the URLs, as large as its `weight`.";
        "sourcehash" "", "The address of the client decides, in the same way.";
        "weight" "=N", "Share of such parents, at least 1, which is the default.";
        "login" "=USER:PASSWORD|*:PASSWORD|PASS|PASSTHRU|PROXYPASS", "Credentials, percent-encoded; with `*` the name of the user who has logged in, `-` for nobody. With `PASS` and `PASSTHRU` those that the client sends go on as they are, except NTLM, Negotiate and Kerberos; without, neither Proxy-Authorization does nor an Authorization with which the client has logged in here. With `PASS` and `PROXYPASS` `user=` and `password=` of a helper of `external_acl_type` take the place of credentials that the client does not send. `PROXYPASS` also sends Basic credentials for this proxy to an `originserver` as Authorization.";
        "forceddomain" "=HOST", "Host field of requests to it.";
        "proxy-only" "", "Its answers are not stored.";
        "connect-timeout" "=SECONDS", "Longest time to connect to it; `peer_connect_timeout` when not given.";
        "connect-fail-limit" "=N", "Failures in a row after which it is left alone for `dead_peer_timeout`; 10.";
        "no-query" "", "It is asked nothing before a request: so far none is.";
        "no-digest" "", "Its digest is not fetched: so far none is.";
        "no-netdb-exchange" "", "No distances are fetched from it: so far none are.";
        "no-delay" "", "Pools of `delay_pools` do not slow its answers down, for the request that fetches them.";
        "connection-auth" "[=on|off|auto]", "Whether clients may log in at servers behind it with NTLM, Negotiate and Kerberos, which log connections in. `auto`, the default: with `originserver`, or where it says so itself with `Proxy-Support: Session-Based-Authentication`.";
        "no-tproxy" "", "It sees this proxy's address also for clients of `tproxy` ports.";
        "tls" "", "TLS to it; any option of TLS implies it. Its certificate is verified as `tls_outgoing_options` says of servers, by the options of this line alone.";
        "ssl" "", "Old name of `tls`.";
        "tls-cert" "=FILE", "Our own certificate, and its chain, if it asks for one.";
        "tls-key" "=FILE", "Its key, if that is not in the same file.";
        "tls-min-version" "=1.N", "Oldest version: 1.2 or 1.3.";
        "tls-options" "=LIST", "As `options` of `tls_outgoing_options`; so are the following.";
        "tls-cipher" "=LIST", "Ciphers of TLS 1.2.";
        "tls-cafile" "=FILE", "Authorities beside those of the system.";
        "tls-capath" "=DIR", "The same, one a file.";
        "tls-crlfile" "=FILE", "Certificates that are revoked.";
        "tls-flags" "=LIST", "`DONT_VERIFY_PEER`, `DONT_VERIFY_DOMAIN` and others.";
        "tls-default-ca" "[=off]", "Whether the authorities of the system count.";
        "tls-domain" "=NAME", "Name that its certificate must have; that of the host when not given.";
        "tls-no-npn" "", "No NPN: it is so in any case.";
        "sslcert" "=FILE", "Old name of `tls-cert`; so it is with the following.";
        "sslkey" "=FILE", "See `tls-key`.";
        "sslversion" "=N", "1 for all versions, 6 for TLS 1.2 only.";
        "ssloptions" "=LIST", "See `tls-options`.";
        "sslcipher" "=LIST", "See `tls-cipher`.";
        "sslcafile" "=FILE", "See `tls-cafile`.";
        "sslcapath" "=DIR", "See `tls-capath`.";
        "sslcrlfile" "=FILE", "See `tls-crlfile`.";
        "sslflags" "=LIST", "See `tls-flags`.";
        "ssldomain" "=NAME", "See `tls-domain`.";
    }
    Status::Ignored("the name of the user chooses no parent: they are tried in the order of the file") => {
        "userhash" "", "The name of the user decides.";
    }
    Status::Ignored("the whole URL decides") => {
        "carp-key" "=scheme,host,port,path,params", "The part of the URL that decides.";
    }
    Status::Ignored("connections to a peer are not counted") => {
        "max-conn" "=N", "Most connections to it at a time.";
    }
    Status::Ignored("connections are opened when a request needs one, and kept idle then") => {
        "standby" "=N", "Idle connections that are kept open.";
    }
    Status::Ignored("siblings are not asked for anything") => {
        "allow-miss" "", "Requests to a sibling may miss there.";
    }
    Status::Ignored("the field Front-End-Https is not sent") => {
        "front-end-https" "[=on|off|auto]", "Tells Outlook Web Access that TLS ends here.";
    }
    Status::Ignored("Kerberos towards peers is not implemented") => {
        "auth-no-keytab" "", "Kerberos credentials do not come from a keytab.";
    }
    NO_QUERIES => {
        "background-ping" "", "Queries only now and then.";
        "basetime" "=MS", "Time that is taken off its response times.";
        "closest-only" "", "Only queries that say that it is the closest count.";
        "ttl" "=N", "Multicast hops.";
        "multicast-responder" "", "It answers to multicast queries.";
        "multicast-siblings" "", "So do siblings.";
        "htcp" "[=OPTION,...]", "Queries with HTCP instead of ICP.";
        "htcp-no-clr" "", "No CLR requests by HTCP.";
        "htcp-no-purge-clr" "", "No CLR requests for purges.";
        "htcp-only-clr" "", "Only CLR requests.";
        "htcp-forward-clr" "", "CLR requests are passed on.";
        "htcp-oldsquid" "", "The HTCP of Squid 2.5.";
        "digest-url" "=URL", "Where its digest is.";
    }
};

impl Kind for Peers {
    type Out = Vec<CachePeer>;
    const NAME: &'static str = "peer";

    fn apply(out: &mut Vec<CachePeer>, line: &mut Line<'_>) -> Result<(), Problem> {
        let host = line.expect("the peer's host")?;
        let kind = read_kind(line)?;
        let http_port = read_port(line, 1)?;
        let icp_port = read_port(line, 0)?;
        let mut peer = CachePeer {
            host: host.text.clone(),
            kind,
            http_port,
            name: host.text.clone(),
            originserver: false,
            default: false,
            selection: PeerSelection::InOrder,
            weight: 1,
            login: None,
            no_tproxy: false,
            no_delay: false,
            forceddomain: None,
            connect_timeout: None,
            connect_fail_limit: 10,
            proxy_only: false,
            connection_auth: ConnectionAuth::Auto,
            tls: None,
        };
        let location = line.location(&host);
        let mut tls: Option<TlsReader> = None;
        let mut may_query = icp_port != 0;
        while let Some(token) = line.next()? {
            may_query &= token.text != "no-query";
            if !options::is_wanted(OPTIONS, &token, line)? {
                continue;
            }
            let (name, value) = options::split(&token);
            match tls_name(name) {
                Some("") => _ = tls.get_or_insert_default(),
                Some(bare) => {
                    let reader = tls.get_or_insert_default();
                    reader.option(Side::Server, bare, value, &token, line)?;
                }
                None => read_option(&mut peer, &token)?,
            }
        }
        peer.tls = match tls {
            Some(reader) => Some(Box::new(reader.outgoing(line, location)?)),
            None => None,
        };
        if kind != PeerKind::Parent {
            let why = "only parents are asked so far: queries between caches are not implemented";
            line.warn(&host, format!("this peer is never used: {why}"), None);
        } else if may_query {
            let message = "it is asked nothing by ICP before a request, as with `no-query`";
            line.note(&host, message, None);
        }
        if line.state.peers.contains(&peer.name) {
            let problem = host.error(format!("a peer named `{}` exists already", peer.name));
            return Err(problem.with_help("give this one another name with `name=`"));
        }
        line.state.peers.push(peer.name.clone());
        out.push(peer);
        Ok(())
    }
}

/// The name of an option of TLS without `tls-` or `ssl`; empty for `tls` itself.
fn tls_name(name: &str) -> Option<&str> {
    match name {
        "tls" => Some(""),
        _ => name.strip_prefix("tls-").or_else(|| name.strip_prefix("ssl")),
    }
}

fn read_kind(line: &mut Line<'_>) -> Result<PeerKind, Problem> {
    let token = line.expect("`parent` or `sibling`")?;
    match token.text.to_ascii_lowercase().as_str() {
        "parent" => Ok(PeerKind::Parent),
        "sibling" | "neighbor" | "neighbour" => Ok(PeerKind::Sibling),
        "multicast" => Ok(PeerKind::Multicast),
        other => {
            Err(token
                .error(format!("expected `parent`, `sibling` or `multicast`, found `{other}`")))
        }
    }
}

fn read_port(line: &mut Line<'_>, least: u16) -> Result<u16, Problem> {
    let token = line.expect("a port (HTTP, then ICP, 0 for none)")?;
    match token.text.parse::<u16>() {
        Ok(port) if port >= least => Ok(port),
        _ => Err(token.error(format!("`{}` is not a port from {least} to 65535", token.text))),
    }
}

fn read_option(peer: &mut CachePeer, token: &Token) -> Result<(), Problem> {
    let (name, value) = options::split(token);
    let value = value.unwrap_or("");
    if value.is_empty() && token.text.ends_with('=') {
        return Err(token.error(format!("the value of `{name}` is missing")));
    }
    match name {
        "proxy-only" => peer.proxy_only = true,
        "no-tproxy" => peer.no_tproxy = true,
        "no-delay" => peer.no_delay = true,
        "default" => peer.default = true,
        "connection-auth" => {
            peer.connection_auth = match value {
                "" | "on" => ConnectionAuth::On,
                "off" => ConnectionAuth::Off,
                "auto" => ConnectionAuth::Auto,
                _ => return Err(token.error(format!("`{}` has no such value", token.text))),
            }
        }
        "originserver" => peer.originserver = true,
        "round-robin" | "weighted-round-robin" => peer.selection = PeerSelection::RoundRobin,
        "carp" | "sourcehash" if peer.kind != PeerKind::Parent => {
            return Err(token.error(format!("`{name}` needs a parent")));
        }
        "carp" => peer.selection = PeerSelection::Carp,
        "sourcehash" => peer.selection = PeerSelection::SourceHash,
        "weight" => peer.weight = number(token, value)?.max(1),
        "login" => peer.login = Some(read_login(token, value)?),
        "forceddomain" => peer.forceddomain = Some(value.to_owned()),
        "name" => value.clone_into(&mut peer.name),
        "connect-timeout" => {
            peer.connect_timeout = Some(Duration::from_secs(number(token, value)?.into()));
        }
        "connect-fail-limit" => peer.connect_fail_limit = number(token, value)?.max(1),
        // Options that only confirm the behaviour.
        _ => {}
    }
    Ok(())
}

fn read_login(token: &Token, value: &str) -> Result<PeerLogin, Problem> {
    match value {
        "PASS" => return Ok(PeerLogin::OfClient),
        "PASSTHRU" => return Ok(PeerLogin::Unchanged),
        "PROXYPASS" => return Ok(PeerLogin::OfClientForServer),
        _ => {}
    }
    let login = percent_decode(value);
    match login.strip_prefix('*') {
        Some(text) if text.starts_with(':') => Ok(PeerLogin::NameOfUser(text.to_owned())),
        None if login.contains(':') => Ok(PeerLogin::Own(login)),
        _ => Err(token.error(format!("`login={value}` is not supported")).with_help(
            "write `login=USER:PASSWORD`, `login=*:PASSWORD`, `login=PASS`, `login=PASSTHRU` or \
             `login=PROXYPASS`",
        )),
    }
}

fn number(token: &Token, value: &str) -> Result<u32, Problem> {
    value.parse().map_err(|_| token.error(format!("`{value}` is not a whole number")))
}

/// Undoes `%XX`; anything else stays. Bytes that are not UTF-8 are replaced.
fn percent_decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let pair = after.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        match pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(decoded) if byte == b'%' => {
                out.push(decoded);
                rest = after.get(2..).unwrap_or(&[]);
            }
            _ => {
                out.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

impl Kind for PeerRules {
    type Out = Vec<PeerAccess>;
    const NAME: &'static str = "peer and access rules";

    fn apply(out: &mut Vec<PeerAccess>, line: &mut Line<'_>) -> Result<(), Problem> {
        let peer = read_peer_name(line)?;
        out.push(PeerAccess { peer, rule: read_rule(line)? });
        Ok(())
    }
}

impl Kind for PeerDomains {
    type Out = Vec<PeerDomain>;
    const NAME: &'static str = "peer and domains";

    fn apply(out: &mut Vec<PeerDomain>, line: &mut Line<'_>) -> Result<(), Problem> {
        let peer = read_peer_name(line)?;
        let before = out.len();
        while let Some(token) = line.next()? {
            let domain = token.text.trim_start_matches('!');
            out.push(PeerDomain {
                peer: peer.clone(),
                domain: domain.to_owned(),
                negated: domain.len() < token.text.len(),
            });
        }
        if out.len() == before { Err(line.missing("a domain")) } else { Ok(()) }
    }
}

fn read_peer_name(line: &mut Line<'_>) -> Result<String, Problem> {
    let token = line.expect("the name of a peer")?;
    if line.state.peers.contains(&token.text) {
        return Ok(token.text);
    }
    let problem = token.error(format!("no `cache_peer` above is named `{}`", token.text));
    Err(match suggest(&token.text, line.state.peers.iter().map(String::as_str)) {
        Some(name) => problem.with_help(format!("did you mean `{name}`?")),
        None => problem,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Severity, parse_str};

    fn parse(text: &str) -> Result<Config, String> {
        let (config, found) = parse_str("t", &format!("http_port 1\n{text}\n"));
        if found.has_errors() { Err(found.render_from(false, Severity::Error)) } else { Ok(config) }
    }

    #[test]
    fn a_peer_with_options_and_rules() {
        let text = "cache_peer 10.0.0.2 parent 8080 0 no-query originserver round-robin weight=3 name=back \
                    login=a:b%40c forceddomain=x.example connect-timeout=5 default # note\n\
                    cache_peer_access back deny CONNECT\ncache_peer_domain back .example.com !.example.net\n\
                    cache_peer 10.0.0.3 sibling 3128 3130 proxy-only login=PASS";
        let config = parse(text).expect("parses");
        let peer = &config.cache_peer[0];
        assert_eq!((peer.kind, peer.http_port), (PeerKind::Parent, 8080));
        assert_eq!(peer.name, "back");
        assert_eq!(peer.login, Some(PeerLogin::Own("a:b@c".into())));
        assert!(peer.originserver && peer.default);
        assert_eq!((peer.selection, peer.weight), (PeerSelection::RoundRobin, 3));
        assert_eq!(peer.connect_timeout, Some(Duration::from_secs(5)));
        assert!(!config.cache_peer_access[0].rule.allow);
        assert_eq!(config.cache_peer_domain.len(), 2);
        assert!(config.cache_peer_domain[1].negated && config.cache_peer[1].proxy_only);
        assert_eq!(config.cache_peer[1].login, Some(PeerLogin::OfClient));
    }

    #[test]
    fn credentials_can_be_those_of_the_client() {
        for (text, wanted) in [
            ("PASSTHRU", PeerLogin::Unchanged),
            ("PROXYPASS", PeerLogin::OfClientForServer),
            ("*:a%20b", PeerLogin::NameOfUser(":a b".into())),
        ] {
            let config = parse(&format!("cache_peer a parent 80 0 login={text}"));
            assert_eq!(config.expect("parses").cache_peer[0].login, Some(wanted), "{text}");
        }
    }

    #[test]
    fn mistakes_are_refused() {
        for bad in [
            "cache_peer a parent 0 0",
            "cache_peer a parnt 80 0",
            "cache_peer a parent 80",
            "cache_peer a parent 80 0 orignserver",
            "cache_peer a parent 80 0\ncache_peer a parent 81 0",
            "cache_peer a sibling 80 0 carp",
            "cache_peer a parent 443 0 sslkey=/x",
            "cache_peer a parent 443 0 sslversion=3",
            "cache_peer a parent 443 0 tls-no-such",
            "cache_peer a parent 80 0 login=*",
            "cache_peer a parent 80 0 login=NEGOTIATE",
            "cache_peer a parent 80 0 weight",
            "cache_peer a parent 80 0 name=",
            "cache_peer a parent 80 0 default=1",
            "cache_peer_access nobody allow all",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_option_is_read_ignored_with_a_warning_or_refused_as_the_table_says() {
        let example = |name: &str| match name {
            "name" | "forceddomain" => "=x",
            "login" => "=a:b",
            "connection-auth" => "=auto",
            "tls-min-version" => "=1.2",
            "tls-default-ca" => "=off",
            "tls-options" | "ssloptions" => "=NO_SSLv3",
            "tls-cipher" | "sslcipher" => "=HIGH",
            "tls-flags" | "sslflags" => "=NO_DEFAULT_CA",
            "sslversion" => "=1",
            _ => "=2",
        };
        let line = |option: &str| {
            let before = if option.contains("key=") { "tls-cert=/x" } else { "" };
            format!("http_port 1\ncache_peer a parent 80 0 {before} {option}")
        };
        options::tests::check_rows(OPTIONS, line, example);
    }

    #[test]
    fn any_option_of_tls_means_tls() {
        let tls = |options: &str| {
            let config = parse(&format!("cache_peer a parent 443 0 {options}")).expect("parses");
            config.cache_peer[0].tls.clone()
        };
        assert_eq!(tls("originserver"), None);
        assert!(tls("ssl").is_some_and(|tls| tls.trusts_system && tls.name.is_none()));
        let old = tls("sslcert=/c sslkey=/k ssldomain=x sslcafile=/a").expect("TLS");
        let new = tls("tls tls-cert=/c tls-key=/k tls-domain=x tls-cafile=/a").expect("TLS");
        assert_eq!(old, new);
        assert_eq!((old.name.as_deref(), old.authorities.len()), (Some("x"), 1));
    }

    #[test]
    fn a_peer_that_is_never_used_is_a_warning() {
        let warnings = |line: &str| {
            let (_, found) =
                parse_str("t", &format!("http_port 1\nhttp_access allow all\n{line}\n"));
            found.count(Severity::Warning)
        };
        assert_eq!(warnings("cache_peer a sibling 80 3130 proxy-only"), 1);
        assert_eq!(warnings("cache_peer a parent 80 3130"), 0);
    }

    #[test]
    fn percent_decoding_keeps_what_is_no_code() {
        assert_eq!(percent_decode("a%20b%zz%4"), "a b%zz%4");
    }
}
