//! `cache_peer` and what refers to peers.

use std::time::Duration;

use super::Kind;
use super::access::read_rule;
use crate::line::{Line, Problem, Token};
use crate::suggest::suggest;
use crate::types::{CachePeer, PeerAccess, PeerDomain, PeerKind, PeerSelection};

/// `cache_peer` lines.
pub(crate) struct Peers;
/// `PEER allow|deny ACL…`
pub(crate) struct PeerRules;
/// `PEER [!]DOMAIN…`
pub(crate) struct PeerDomains;

/// Options that are known and have no effect yet. Those that end in `=` take a value.
const OPTIONS_WITHOUT_EFFECT: [&str; 24] = [
    "background-ping",
    "no-digest",
    "no-tproxy",
    "multicast-responder",
    "multicast-siblings",
    "basetime=",
    "closest-only",
    "ttl=",
    "htcp",
    "htcp=",
    "htcp-no-clr",
    "htcp-no-purge-clr",
    "htcp-only-clr",
    "htcp-forward-clr",
    "htcp-oldsquid",
    "no-netdb-exchange",
    "no-delay",
    "auth-no-keytab",
    "digest-url=",
    "front-end-https",
    "front-end-https=",
    "connection-auth",
    "connection-auth=",
    "carp-key=",
];

const OPTIONS: [&str; 18] = [
    "proxy-only",
    "no-query",
    "default",
    "round-robin",
    "weighted-round-robin",
    "weight",
    "carp",
    "userhash",
    "sourcehash",
    "login",
    "connect-timeout",
    "connect-fail-limit",
    "allow-miss",
    "max-conn",
    "standby",
    "originserver",
    "name",
    "forceddomain",
];

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
            icp_port,
            name: host.text.clone(),
            originserver: false,
            no_query: icp_port == 0,
            default: false,
            selection: PeerSelection::InOrder,
            weight: 1,
            login: None,
            forceddomain: None,
            connect_timeout: None,
            connect_fail_limit: 10,
            max_conn: None,
            standby: 0,
            proxy_only: false,
            allow_miss: false,
            other: Vec::new(),
        };
        while let Some(token) = line.next()? {
            read_option(&mut peer, &token, line)?;
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

fn read_kind(line: &mut Line<'_>) -> Result<PeerKind, Problem> {
    let token = line.expect("`parent` or `sibling`")?;
    match token.text.to_ascii_lowercase().as_str() {
        "parent" => Ok(PeerKind::Parent),
        "sibling" | "neighbor" | "neighbour" => Ok(PeerKind::Sibling),
        "multicast" => Ok(PeerKind::Multicast),
        other => Err(token.error(format!("expected `parent`, `sibling` or `multicast`, found `{other}`"))),
    }
}

fn read_port(line: &mut Line<'_>, least: u16) -> Result<u16, Problem> {
    let token = line.expect("a port (HTTP, then ICP, 0 for none)")?;
    match token.text.parse::<u16>() {
        Ok(port) if port >= least => Ok(port),
        _ => Err(token.error(format!("`{}` is not a port from {least} to 65535", token.text))),
    }
}

fn read_option(peer: &mut CachePeer, token: &Token, line: &mut Line<'_>) -> Result<(), Problem> {
    let (name, value) = match token.text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (token.text.as_str(), None),
    };
    match (name, value) {
        ("proxy-only", None) => peer.proxy_only = true,
        ("no-query", None) => peer.no_query = true,
        ("default", None) => peer.default = true,
        ("allow-miss", None) => peer.allow_miss = true,
        ("originserver", None) => peer.originserver = true,
        ("round-robin", None) => peer.selection = PeerSelection::RoundRobin,
        ("weighted-round-robin", None) => peer.selection = PeerSelection::WeightedRoundRobin,
        ("carp" | "userhash" | "sourcehash", None) => read_hashing(peer, token, line)?,
        ("weight", Some(value)) => peer.weight = number(token, value)?.max(1),
        ("login", Some(value)) if !value.is_empty() => peer.login = Some(percent_decode(value)),
        ("forceddomain", Some(value)) if !value.is_empty() => peer.forceddomain = Some(value.to_owned()),
        ("name", Some(value)) if !value.is_empty() => value.clone_into(&mut peer.name),
        ("connect-timeout", Some(value)) => {
            peer.connect_timeout = Some(Duration::from_secs(number(token, value)?.into()));
        }
        ("connect-fail-limit", Some(value)) => peer.connect_fail_limit = number(token, value)?.max(1),
        ("max-conn", Some(value)) => peer.max_conn = Some(number(token, value)?).filter(|n| *n > 0),
        ("standby", Some(value)) => peer.standby = number(token, value)?,
        _ => return other_option(peer, token, name, value.is_some(), line),
    }
    Ok(())
}

/// Hashing needs a parent. `carp` and its siblings are known, and taken as plain order until they exist.
fn read_hashing(peer: &mut CachePeer, token: &Token, line: &mut Line<'_>) -> Result<(), Problem> {
    if peer.kind != PeerKind::Parent {
        return Err(token.error(format!("`{}` needs a parent", token.text)));
    }
    peer.selection = match token.text.as_str() {
        "carp" => PeerSelection::Carp,
        "userhash" => PeerSelection::UserHash,
        _ => PeerSelection::SourceHash,
    };
    let message =
        format!("`{}` is not implemented yet: parents are tried in the order of the file", token.text);
    line.warn(token, message, None);
    Ok(())
}

fn other_option(
    peer: &mut CachePeer,
    token: &Token,
    name: &str,
    has_value: bool,
    line: &mut Line<'_>,
) -> Result<(), Problem> {
    if name == "ssl" || name == "tls" || name.starts_with("tls-") || name.starts_with("ssl") {
        let problem = token.error("TLS to peers is not implemented yet");
        return Err(problem.with_help("the peer would be sent plain text instead"));
    }
    let full = if has_value { format!("{name}=") } else { name.to_owned() };
    if OPTIONS_WITHOUT_EFFECT.contains(&full.as_str()) {
        line.note(token, format!("`{name}` has no effect yet"), None);
        peer.other.push(token.text.clone());
        return Ok(());
    }
    let problem = token.error(format!("`{}` is not an option of `cache_peer`", token.text));
    Err(match suggest(name, OPTIONS) {
        Some(option) if option != name => problem.with_help(format!("did you mean `{option}`?")),
        _ => problem,
    })
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
                    login=a:b%40c forceddomain=x.example max-conn=10 connect-timeout=5 default # note\n\
                    cache_peer_access back deny CONNECT\ncache_peer_domain back .example.com !.example.net\n\
                    cache_peer 10.0.0.3 sibling 3128 3130 proxy-only";
        let config = parse(text).expect("parses");
        let peer = &config.cache_peer[0];
        assert_eq!((peer.kind, peer.http_port, peer.icp_port), (PeerKind::Parent, 8080, 0));
        assert_eq!((peer.name.as_str(), peer.login.as_deref()), ("back", Some("a:b@c")));
        assert!(peer.originserver && peer.default && peer.no_query);
        assert_eq!((peer.selection, peer.weight, peer.max_conn), (PeerSelection::RoundRobin, 3, Some(10)));
        assert_eq!(peer.connect_timeout, Some(Duration::from_secs(5)));
        assert!(!config.cache_peer_access[0].rule.allow);
        assert_eq!(config.cache_peer_domain.len(), 2);
        assert!(config.cache_peer_domain[1].negated && config.cache_peer[1].proxy_only);
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
            "cache_peer a parent 443 0 tls",
            "cache_peer_access nobody allow all",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn percent_decoding_keeps_what_is_no_code() {
        assert_eq!(percent_decode("a%20b%zz%4"), "a b%zz%4");
    }
}
