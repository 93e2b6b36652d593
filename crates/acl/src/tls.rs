//! ACLs about the interception of TLS.

use std::net::IpAddr;

use humboldt_base::bump::{BumpAction, BumpFacts, BumpStep, ServerIdentity};
use humboldt_conf::{AclDef, AclKind, ServerNameFrom, tls_error_names};

use crate::domains::DomainSet;
use crate::error::AclProblem;
use crate::regexes::RegexList;

/// The name of a server that has none, as in Squid.
const NAMELESS: &str = "none";

/// What such ACLs see of a subject.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) bump: Option<&'a BumpFacts>,
    /// Host of the URL.
    pub(crate) host: &'a [u8],
    /// The one fault that is being judged.
    pub(crate) fault: Option<&'a str>,
    /// The client's connection is one with TLS.
    pub(crate) is_encrypted: bool,
}

/// The test of an ACL about the interception of TLS.
#[derive(Debug)]
pub(crate) enum TlsMatcher {
    /// One of these steps.
    AtStep(Box<[BumpStep]>),
    /// The name of the server.
    ServerName(Names, ServerNameFrom),
    /// One of these faults.
    Fault(Box<[&'static str]>),
    /// SHA-1 of the server's certificate, sorted.
    Fingerprint(Box<[[u8; 20]]>),
    /// The client's connection is one with TLS.
    Encrypted,
}

#[derive(Debug)]
pub(crate) enum Names {
    /// Beside them, the domains directly above.
    Domains(DomainSet, DomainSet),
    Regexes(RegexList),
}

impl Names {
    fn contain(&self, name: &str) -> bool {
        match self {
            Self::Domains(domains, _) => domains.contains(name.as_bytes()),
            Self::Regexes(regexes) => regexes.is_match_of_host(name.as_bytes()),
        }
    }

    /// Whether a name with a wildcard in front stands for one of these, among others.
    fn may_contain(&self, pattern: &str) -> bool {
        match (self, pattern.strip_prefix("*.")) {
            (Self::Domains(_, above), Some(domain)) => above.contains(domain.as_bytes()),
            _ => false,
        }
    }
}

/// The result of a test.
pub(crate) enum Answer {
    Known(bool),
    /// The certificate of the server is not known: not yet, or not here.
    Unknown,
    /// Nothing can tell: the connection was decrypted without it, or what it says proves nothing.
    Never,
}

impl TlsMatcher {
    /// Compiles a definition of these kinds; `None`: it is of another one.
    pub(crate) fn compile(definition: &AclDef) -> Result<Option<Self>, AclProblem> {
        let values = definition.values.as_slice();
        let from = definition.flags.server_name;
        Ok(Some(match definition.kind {
            AclKind::AtStep => Self::AtStep(steps(values)),
            AclKind::SslServerName => {
                let domains = DomainSet::compile(values)?;
                Self::ServerName(Names::Domains(domains, DomainSet::above(values)?), from)
            }
            AclKind::SslServerNameRegex => {
                Self::ServerName(Names::Regexes(RegexList::compile(values)?), from)
            }
            AclKind::SslError => Self::Fault(faults(values)?),
            AclKind::ServerCertFingerprint => Self::Fingerprint(fingerprints(values)?),
            AclKind::ConnectionsEncrypted => Self::Encrypted,
            _ => return Ok(None),
        }))
    }

    pub(crate) fn check(&self, seen: &Seen<'_>) -> Answer {
        let server = seen.bump.and_then(|facts| facts.server.as_deref());
        match self {
            Self::AtStep(steps) => {
                let now = seen.bump.map_or(BumpStep::One, |facts| facts.step);
                Answer::Known(steps.contains(&now))
            }
            Self::ServerName(names, from) => server_name(names, *from, seen),
            // One that was hidden, as with TLS 1.3 to all but the client, may have any.
            Self::Fault(wanted) => match (seen.fault, judged(server)) {
                (Some(fault), _) => Answer::Known(wanted.contains(&fault)),
                (None, Some(server)) => {
                    Answer::Known(server.faults.iter().any(|fault| wanted.contains(fault)))
                }
                // Faults are judged when the server is connected to (`sslproxy_cert_error`).
                (None, None) if is_decrypted(seen) => Answer::Known(false),
                (None, None) => Answer::Unknown,
            },
            Self::Fingerprint(wanted) => match shown(server) {
                Some(server) => Answer::Known(wanted.binary_search(&server.sha1).is_ok()),
                None if is_decrypted(seen) => Answer::Never,
                None => Answer::Unknown,
            },
            Self::Encrypted => Answer::Known(seen.is_encrypted),
        }
    }
}

/// Whether the subject is a request inside of a connection that was decrypted.
fn is_decrypted(seen: &Seen<'_>) -> bool {
    seen.bump.is_some_and(|facts| facts.action == Some(BumpAction::Bump))
}

/// The server, if it has shown a certificate that could be read.
fn shown(server: Option<&ServerIdentity>) -> Option<&ServerIdentity> {
    server.filter(|server| !server.der.is_empty())
}

/// The server, if it was judged.
fn judged(server: Option<&ServerIdentity>) -> Option<&ServerIdentity> {
    server.filter(|server| !server.der.is_empty() || !server.faults.is_empty())
}

/// Whether the server has one of the names.
fn server_name(names: &Names, from: ServerNameFrom, seen: &Seen<'_>) -> Answer {
    let server = shown(seen.bump.and_then(|facts| facts.server.as_deref()));
    match (from, server) {
        (ServerNameFrom::Client, _) | (ServerNameFrom::Any | ServerNameFrom::Consensus, None) => {
            Answer::Known(asks_for(names, seen))
        }
        // Squid's answer. A rule that lets something pass has none, see `ActionList`.
        (ServerNameFrom::Server, None) => match names.contain(NAMELESS) {
            true => Answer::Known(true),
            false => Answer::Unknown,
        },
        (ServerNameFrom::Consensus, Some(server)) => match covered(server, seen) {
            Some(name) => Answer::Known(names.contain(name)),
            None => Answer::Known(names.contain(NAMELESS)),
        },
        (ServerNameFrom::Any, Some(server)) => match certified(names, server, seen) {
            Certified::Surely => Answer::Known(true),
            // The client's name and the server's: only together they are a proof.
            Certified::Perhaps if asks_for(names, seen) => Answer::Known(true),
            Certified::Not if !asks_for(names, seen) => Answer::Known(false),
            Certified::Perhaps | Certified::Not => Answer::Never,
        },
        (ServerNameFrom::Server, Some(server)) => match certified(names, server, seen) {
            Certified::Surely => Answer::Known(true),
            Certified::Perhaps => Answer::Never,
            Certified::Not if server.faults.is_empty() => Answer::Known(false),
            Certified::Not => Answer::Unknown,
        },
    }
}

/// What a certificate says about a set of names.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Certified {
    /// It is valid, and for one of them.
    Surely,
    /// It is for one of them, but anybody can make it so (it has a fault), or it is for others as
    /// well (a wildcard).
    Perhaps,
    /// It is for none of them.
    Not,
}

fn certified(names: &Names, server: &ServerIdentity, seen: &Seen<'_>) -> Certified {
    let has = |test: &dyn Fn(&str) -> bool| server.names.iter().any(|name| test(name));
    let is_sure = || {
        // Of the many names of a wildcard, the server has the one that the client has verified.
        let of_client = || covered(server, seen).is_some_and(|name| names.contain(name));
        has(&|name| names.contain(name)) || of_client()
    };
    let may_be = || has(&|name| names.contain(name) || names.may_contain(name));
    match server.faults.is_empty() {
        true if is_sure() => Certified::Surely,
        _ if may_be() => Certified::Perhaps,
        _ => Certified::Not,
    }
}

/// The name that the client asks for, if the certificate is for it.
fn covered<'a>(server: &ServerIdentity, seen: &Seen<'a>) -> Option<&'a str> {
    requested(seen).filter(|name| server.names.iter().any(|pattern| covers(pattern, name)))
}

/// Whether the client asks for one of the names.
fn asks_for(names: &Names, seen: &Seen<'_>) -> bool {
    match requested(seen) {
        // An address is no name: those that ask for `none` mean it too.
        Some(name) if name.parse::<IpAddr>().is_ok() => {
            names.contain(name) || names.contain(NAMELESS)
        }
        Some(name) => names.contain(name),
        None => names.contain(NAMELESS),
    }
}

/// The name that the client asks for: in the TLS, or else with CONNECT, or in its URL.
fn requested<'a>(seen: &Seen<'a>) -> Option<&'a str> {
    let of_tls = seen.bump.and_then(|facts: &BumpFacts| facts.sni());
    let of_connect = || seen.bump.map(|facts| &*facts.connect_host);
    let of_url = || std::str::from_utf8(seen.host).ok();
    of_tls.or_else(of_connect).or_else(of_url).filter(|name| !name.is_empty())
}

/// Whether a name of a certificate, perhaps with a wildcard in front, is for this host.
fn covers(pattern: &str, host: &str) -> bool {
    match pattern.strip_prefix("*.") {
        Some(domain) => host.split_once('.').is_some_and(|(_, above)| above == domain),
        None => pattern == host,
    }
}

/// `GeneratingCONNECT` never is: what goes to parents asks no rules of its own.
fn steps(values: &[String]) -> Box<[BumpStep]> {
    let named = |step: &BumpStep| values.iter().any(|value| value == step.name());
    BumpStep::ALL.into_iter().filter(named).collect()
}

fn faults(values: &[String]) -> Result<Box<[&'static str]>, AclProblem> {
    let mut all = Vec::new();
    for value in values {
        let expected = "the name of a fault of certificates";
        let names = tls_error_names(value)
            .ok_or_else(|| AclProblem::Value { value: value.clone(), expected })?;
        all.extend(names);
    }
    Ok(all.into())
}

fn fingerprints(values: &[String]) -> Result<Box<[[u8; 20]]>, AclProblem> {
    let parse = |value: &String| {
        let expected = "a fingerprint: 20 bytes in hexadecimal with colons";
        humboldt_conf::parse_fingerprint(value)
            .ok_or_else(|| AclProblem::Value { value: value.clone(), expected })
    };
    let mut all = values.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    all.sort_unstable();
    Ok(all.into())
}
