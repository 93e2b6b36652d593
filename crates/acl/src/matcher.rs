//! One compiled ACL, and whether it matches.

use std::sync::Arc;

use humboldt_http::Fields;

use crate::addresses::AddressSet;
use crate::decode::with_decoded;
use crate::domains::DomainSet;
use crate::ranges::RangeSet;
use crate::regexes::RegexList;
use crate::schedule::Schedule;
use crate::subject::Subject;

/// What a test says.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    Yes,
    No,
    /// Only the addresses of the destination can tell, and they are not known.
    NeedDstIps,
}

impl From<bool> for Match {
    #[inline]
    fn from(matched: bool) -> Self {
        if matched { Self::Yes } else { Self::No }
    }
}

/// A compiled ACL.
#[derive(Debug)]
pub(crate) struct Acl {
    /// Name as first written.
    pub(crate) name: Box<str>,
    pub(crate) matcher: Matcher,
}

/// An ACL in a rule or group, perhaps negated.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub(crate) acl: Arc<Acl>,
    pub(crate) negated: bool,
}

impl Term {
    #[inline]
    pub(crate) fn check(&self, subject: &Subject<'_>) -> Match {
        match (self.acl.matcher.check(subject), self.negated) {
            (Match::Yes, true) => Match::No,
            (Match::No, true) => Match::Yes,
            (result, _) => result,
        }
    }
}

/// All of `terms` match. The first that does not decides.
#[inline]
pub(crate) fn all(terms: &[Term], subject: &Subject<'_>) -> Match {
    terms
        .iter()
        .map(|term| term.check(subject))
        .find(|result| *result != Match::Yes)
        .unwrap_or(Match::Yes)
}

/// The test of each kind.
#[derive(Debug)]
pub(crate) enum Matcher {
    Source(AddressSet),
    Destination {
        addresses: AddressSet,
        /// `-n`: a name does not match rather than being looked up.
        no_lookup: bool,
    },
    LocalAddress(AddressSet),
    Host(DomainSet),
    HostRegex(RegexList),
    Url(RegexList),
    /// The predefined `manager`: pages of the proxy's own, and URLs that these match.
    Manager(RegexList),
    UrlPath(RegexList),
    UrlLogin(RegexList),
    Port(RangeSet<u16>),
    LocalPort(RangeSet<u16>),
    /// Names of `http_port`.
    PortName(Box<[String]>),
    Method(Box<[Box<[u8]>]>),
    /// Lower-case schemes.
    Scheme(Box<[Box<[u8]>]>),
    Time(Schedule),
    RequestField {
        name: Box<[u8]>,
        regexes: RegexList,
    },
    ResponseField {
        name: Box<[u8]>,
        regexes: RegexList,
    },
    Status(RangeSet<u16>),
    /// More connections than this.
    Connections(u32),
    /// Random bits below this.
    Random(u64),
    AnyOf(Box<[Term]>),
    /// Alternative lines, all terms of one of which must match.
    AllOf(Box<[Box<[Term]>]>),
}

impl Matcher {
    /// Whether addresses of a destination may be needed to tell.
    pub(crate) fn asks_addresses(&self) -> bool {
        let any = |terms: &[Term]| terms.iter().any(|term| term.acl.matcher.asks_addresses());
        match self {
            Self::Destination { no_lookup, .. } => !no_lookup,
            Self::AnyOf(terms) => any(terms),
            Self::AllOf(lines) => lines.iter().any(|terms| any(terms)),
            _ => false,
        }
    }

    /// Whether the subject matches. What is not known about it does not match, as in Squid, but for
    /// addresses that cannot be found.
    pub(crate) fn check(&self, subject: &Subject<'_>) -> Match {
        let matched = match self {
            Self::Source(addresses) => addresses.contains(subject.client_ip),
            Self::Destination { addresses, no_lookup } => {
                return destination(addresses, *no_lookup, subject);
            }
            Self::LocalAddress(addresses) => addresses.contains(subject.local_ip),
            Self::Host(domains) => domains.contains(subject.host),
            Self::HostRegex(regexes) => regexes.is_match(subject.host),
            Self::Url(regexes) => with_decoded(subject.url, |url| regexes.is_match(url)),
            Self::Manager(regexes) => {
                subject.is_internal || with_decoded(subject.url, |url| regexes.is_match(url))
            }
            Self::UrlPath(regexes) => {
                !subject.path.is_empty()
                    && with_decoded(subject.path, |path| regexes.is_match(path))
            }
            Self::UrlLogin(regexes) => login(subject.url)
                .is_some_and(|login| with_decoded(login, |login| regexes.is_match(login))),
            Self::Port(ports) => ports.contains(subject.port),
            Self::LocalPort(ports) => ports.contains(subject.local_port),
            Self::PortName(names) => {
                subject.port_name.is_some_and(|name| names.iter().any(|known| known == name))
            }
            Self::Method(methods) => methods.iter().any(|method| method.as_ref() == subject.method),
            Self::Scheme(schemes) => {
                schemes.iter().any(|scheme| scheme.eq_ignore_ascii_case(subject.scheme))
            }
            Self::Time(schedule) => schedule.is_open(subject.now, subject.local_offset_s),
            Self::RequestField { name, regexes } => {
                subject.request.is_some_and(|request| field_matches(&request.fields, name, regexes))
            }
            Self::ResponseField { name, regexes } => subject
                .response
                .is_some_and(|response| field_matches(&response.fields, name, regexes)),
            Self::Status(statuses) => {
                subject.response.is_some_and(|response| statuses.contains(response.status))
            }
            Self::Connections(limit) => subject.connections_from_client > *limit,
            Self::Random(threshold) => subject.random < *threshold,
            Self::AnyOf(terms) => return any(terms.iter().map(|term| term.check(subject))),
            Self::AllOf(lines) => return any(lines.iter().map(|terms| all(terms, subject))),
        };
        matched.into()
    }
}

/// One of the results is yes. A missing address decides where nothing before it matched.
fn any(mut results: impl Iterator<Item = Match>) -> Match {
    results.find(|result| *result != Match::No).unwrap_or(Match::No)
}

fn destination(addresses: &AddressSet, no_lookup: bool, subject: &Subject<'_>) -> Match {
    match (subject.host_ip, subject.dst_ips) {
        (Some(address), _) => addresses.contains(address).into(),
        (None, _) if no_lookup => Match::No,
        (None, Some([])) if addresses.none => Match::Yes,
        // A host whose addresses cannot be found may have any.
        (None, Some([])) => Match::NeedDstIps,
        (None, Some(known)) => known.iter().any(|address| addresses.contains(*address)).into(),
        (None, None) => Match::NeedDstIps,
    }
}

/// Several lines of a field count as one, joined with commas (RFC 9110 section 5.3).
fn field_matches(fields: &Fields, name: &[u8], regexes: &RegexList) -> bool {
    let mut values = fields.get_all_by_name(name);
    match (values.next(), values.next()) {
        (None, _) => false,
        (Some(only), None) => regexes.is_match(only),
        (Some(first), Some(second)) => {
            let mut joined = first.to_vec();
            for value in std::iter::once(second).chain(values) {
                joined.extend_from_slice(b", ");
                joined.extend_from_slice(value);
            }
            regexes.is_match(&joined)
        }
    }
}

/// The userinfo of a URL.
fn login(url: &[u8]) -> Option<&[u8]> {
    let start = memchr::memmem::find(url, b"://")? + 3;
    let authority = url.get(start..)?.split(|byte| matches!(byte, b'/' | b'?' | b'#')).next()?;
    memchr::memrchr(b'@', authority).and_then(|at| authority.get(..at))
}
