//! One compiled ACL, and whether it matches.

use std::net::IpAddr;
use std::sync::Arc;

use humboldt_base::rng::Rng;
use humboldt_conf::{Need, NetfilterMark};
use humboldt_http::{FieldName, Fields};

use crate::addresses::AddressSet;
use crate::annotations::{Pairs, Wanted};
use crate::decode::{with_decoded, with_lower_case};
use crate::domains::DomainSet;
use crate::question::{Login, Question};
use crate::ranges::RangeSet;
use crate::regexes::RegexList;
use crate::schedule::Schedule;
use crate::subject::Subject;
use crate::tls::{Answer, Seen, TlsMatcher};
use crate::users::UserSet;

/// The result of a test.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Match<'a> {
    Yes,
    No,
    /// Only the answer to this question can tell, and it is not known.
    Needs(Question<'a>),
    /// Nothing can tell, for this ACL: the client has no address. No rule allows because of it,
    /// also behind `!`, and a `deny` refuses.
    Never(&'a str),
    /// This ACL asks for a login, and the client has none: the list ends here.
    Challenge(&'a str),
}

impl From<bool> for Match<'_> {
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
    /// Facts that it, or a member, may need before it can decide; each need once.
    pub(crate) needs: Box<[Need]>,
    /// A denial that ends with it asks the client for a login, as in Squid.
    pub(crate) wants_login: bool,
    pub(crate) matcher: Matcher,
}

/// The ACL that was checked last; of a group the member. As in Squid, it selects the answer for a
/// client that is denied, also where no rule matched.
pub(crate) type Last<'a> = Option<&'a Acl>;

/// An ACL in a rule or group, perhaps negated.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub(crate) acl: Arc<Acl>,
    pub(crate) negated: bool,
}

impl Term {
    #[inline]
    pub(crate) fn check<'a>(&'a self, subject: &Subject<'_>, last: &mut Last<'a>) -> Match<'a> {
        match (self.acl.check(subject, last), self.negated) {
            (Match::Yes, true) => Match::No,
            (Match::No, true) => Match::Yes,
            (result, _) => result,
        }
    }
}

/// All of `terms` match. The first that does not decides, or asks: those behind it are not tested.
#[inline]
pub(crate) fn all<'a>(terms: &'a [Term], subject: &Subject<'_>, last: &mut Last<'a>) -> Match<'a> {
    terms
        .iter()
        .map(|term| term.check(subject, last))
        .find(|result| !matches!(result, Match::Yes))
        .unwrap_or(Match::Yes)
}

/// A method in a rule.
#[derive(Debug)]
pub(crate) struct MethodName {
    pub(crate) name: Box<[u8]>,
    /// Also in other case: a `deny` of POST must hold for `post`, which a server may take for it.
    pub(crate) any_case: bool,
}

impl MethodName {
    fn is(&self, method: &[u8]) -> bool {
        *self.name == *method || self.any_case && self.name.eq_ignore_ascii_case(method)
    }
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
    /// EUI-48, sorted.
    Hardware(Box<[[u8; 6]]>),
    /// Netfilter marks.
    ConnectionMark(Box<[NetfilterMark]>),
    /// EUI-64, sorted.
    Eui64(Box<[[u8; 8]]>),
    ClientName(DomainSet),
    ClientNameRegex(RegexList),
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
    /// An attribute of the client's certificate has one of these values.
    Certificate {
        attribute: Box<str>,
        of_issuer: bool,
        values: Box<[String]>,
    },
    /// Names of `cache_peer`.
    PeerName(Box<[String]>),
    PeerNameRegex(RegexList),
    /// Codes of ways.
    Hierarchy(Box<[String]>),
    /// Codes of errors.
    Error(Box<[String]>),
    Method(Box<[MethodName]>),
    /// Lower-case schemes; the one of CONNECT is empty.
    Scheme(Box<[Box<[u8]>]>),
    Time(Schedule),
    RequestType(RegexList),
    ResponseType(RegexList),
    RequestField {
        name: Box<[u8]>,
        regexes: RegexList,
    },
    ResponseField {
        name: Box<[u8]>,
        regexes: RegexList,
    },
    Status(RangeSet<u16>),
    User(UserSet),
    UserRegex(RegexList),
    /// The user comes from more addresses than this.
    UserAddresses(u32),
    /// More connections than this.
    Connections(u32),
    /// One of these is there.
    Has {
        request: bool,
        response: bool,
    },
    /// The same for every transaction.
    Always(bool),
    Random {
        /// Another one for each name, and the same in each configuration.
        number: u64,
        /// The bits drawn for it are below this.
        below: u64,
    },
    /// The answer of a helper.
    External {
        /// Its number in [`crate::AclSet::externals`].
        number: usize,
        needs_user: bool,
    },
    ExtUser(UserSet),
    ExtUserRegex(RegexList),
    /// Tags.
    Tag(Box<[String]>),
    Annotate(Pairs),
    Note(Wanted),
    /// The interception of TLS.
    Tls(TlsMatcher),
    AnyOf(Box<[Term]>),
    /// Alternative lines, all terms of one of which must match.
    AllOf(Box<[Box<[Term]>]>),
}

impl Acl {
    /// Whether the subject matches. Unknown facts do not match, as in Squid, except those that a
    /// question can provide, or has failed to provide.
    // One line for each kind.
    #[allow(clippy::too_many_lines)]
    pub(crate) fn check<'a>(&'a self, subject: &Subject<'_>, last: &mut Last<'a>) -> Match<'a> {
        *last = Some(self);
        let matched = match &self.matcher {
            Matcher::Source(addresses) => match subject.client() {
                Some(client) => addresses.contains(client),
                None => return self.without_address(addresses),
            },
            Matcher::Destination { addresses, no_lookup } => {
                let question = Question::DstIps { acl: &self.name };
                return destination(addresses, *no_lookup, subject)
                    .map_or(Match::Needs(question), Match::from);
            }
            Matcher::LocalAddress(addresses) => match subject.local() {
                Some(local) => addresses.contains(local),
                None => return self.without_address(addresses),
            },
            Matcher::Hardware(addresses) => {
                let question = Question::Hardware { acl: &self.name };
                return hardware(addresses, subject).map_or(Match::Needs(question), Match::from);
            }
            Matcher::ConnectionMark(marks) => match subject.known.mark {
                Some(known) => marks.iter().any(|mark| mark.matches(known)),
                None => return Match::Needs(Question::Mark { acl: &self.name }),
            },
            Matcher::Eui64(identifiers) => eui64(subject.client_ip)
                .is_some_and(|identifier| identifiers.binary_search(&identifier).is_ok()),
            Matcher::ClientName(domains) => {
                return self.client_name(subject, |name| {
                    with_lower_case(name.as_bytes(), |lower| domains.contains(lower))
                });
            }
            Matcher::ClientNameRegex(regexes) => {
                return self.client_name(subject, |name| regexes.is_match(name.as_bytes()));
            }
            Matcher::Host(domains) => domains.contains(subject.host),
            Matcher::HostRegex(regexes) => regexes.is_match_of_host(subject.host),
            Matcher::Url(regexes) => with_decoded(subject.url, |url| regexes.is_match(url)),
            Matcher::Manager(regexes) => {
                subject.is_internal || with_decoded(subject.url, |url| regexes.is_match(url))
            }
            Matcher::UrlPath(regexes) => {
                !subject.path.is_empty()
                    && with_decoded(subject.path, |path| regexes.is_match(path))
            }
            Matcher::UrlLogin(regexes) => login(subject.url)
                .is_some_and(|login| with_decoded(login, |login| regexes.is_match(login))),
            Matcher::Port(ports) => ports.contains(subject.port),
            Matcher::LocalPort(ports) => ports.contains(subject.local_port),
            Matcher::PortName(names) => is_among(names, subject.port_name),
            Matcher::Certificate { attribute, of_issuer, values } => {
                let name = subject.certificate.map(|certificate| match of_issuer {
                    true => &certificate.issuer,
                    false => &certificate.subject,
                });
                is_among(values, name.and_then(|name| name.value(attribute)))
            }
            Matcher::PeerName(names) => is_among(names, subject.late.peer_name),
            Matcher::PeerNameRegex(regexes) => {
                subject.late.peer_name.is_some_and(|name| regexes.is_match(name.as_bytes()))
            }
            Matcher::Hierarchy(codes) => is_among(codes, subject.late.hierarchy),
            Matcher::Error(codes) => is_among(codes, subject.late.error),
            Matcher::Method(methods) => methods.iter().any(|method| method.is(subject.method)),
            Matcher::Scheme(schemes) => {
                schemes.iter().any(|scheme| scheme.eq_ignore_ascii_case(subject.scheme))
            }
            Matcher::Time(schedule) => schedule.is_open(subject.now, subject.local_offset_s),
            Matcher::RequestType(regexes) => type_matches(request_fields(subject), regexes),
            Matcher::ResponseType(regexes) => type_matches(response_fields(subject), regexes),
            Matcher::RequestField { name, regexes } => {
                field_matches(request_fields(subject), name, regexes)
            }
            Matcher::ResponseField { name, regexes } => {
                field_matches(response_fields(subject), name, regexes)
            }
            Matcher::Status(statuses) => {
                subject.response.is_some_and(|response| statuses.contains(response.status))
            }
            Matcher::User(users) => return self.user(subject, |name| users.contains(name)),
            Matcher::UserRegex(regexes) => {
                return self.user(subject, |name| regexes.is_match(name.as_bytes()));
            }
            Matcher::UserAddresses(most) => {
                return self.user(subject, |_| subject.known.user_addresses > *most);
            }
            Matcher::Connections(limit) => subject.connections_from_client > *limit,
            Matcher::Has { request, response } => {
                *request && subject.request.is_some() || *response && subject.response.is_some()
            }
            Matcher::Always(matched) => *matched,
            Matcher::Random { number, below } => draw(subject, *number) < *below,
            Matcher::External { number, needs_user } => {
                return self.external(*number, *needs_user, subject);
            }
            Matcher::ExtUser(users) => subject.told.is_some_and(|told| {
                told.ext_user(&mut |user| users.contains(&String::from_utf8_lossy(user)))
            }),
            Matcher::ExtUserRegex(regexes) => {
                subject.told.is_some_and(|told| told.ext_user(&mut |user| regexes.is_match(user)))
            }
            Matcher::Tag(tags) => subject.told.is_some_and(|told| {
                told.tag(&mut |tag| tags.iter().any(|one| one.as_bytes() == tag))
            }),
            Matcher::Annotate(pairs) => {
                if let Some(annotated) = subject.annotated {
                    pairs.write(annotated);
                }
                true
            }
            Matcher::Note(wanted) => match subject.annotated {
                Some(annotated) => return wanted.check(annotated, &self.name),
                None => false,
            },
            Matcher::Tls(matcher) => match matcher.check(&seen(subject)) {
                Answer::Known(matched) => matched,
                Answer::Unknown => subject.late.unknown_matches,
                Answer::Never => return Match::Never(&self.name),
            },
            Matcher::AnyOf(terms) => {
                return any(terms.iter().map(|term| term.check(subject, last)));
            }
            Matcher::AllOf(lines) => {
                return any(lines.iter().map(|terms| all(terms, subject, last)));
            }
        };
        matched.into()
    }

    /// Whether an end of a Unix socket is in the set: it is if all are, or those without address.
    #[cold]
    fn without_address(&self, addresses: &AddressSet) -> Match<'_> {
        match addresses.all || addresses.none {
            true => Match::Yes,
            false => Match::Never(&self.name),
        }
    }

    /// Whether the client's name passes the test.
    fn client_name(&self, subject: &Subject<'_>, test: impl FnOnce(&str) -> bool) -> Match<'_> {
        if subject.client().is_none() {
            return Match::Never(&self.name);
        }
        match subject.known.client_name {
            Some(name) => test(name).into(),
            None => Match::Needs(Question::ClientName { acl: &self.name }),
        }
    }

    /// Asks for the answer of the helper. As in Squid, a question that names a user needs a login
    /// first.
    pub(crate) fn external(
        &self,
        number: usize,
        needs_user: bool,
        subject: &Subject<'_>,
    ) -> Match<'_> {
        if needs_user {
            match subject.known.login {
                Some(Login::User(_)) => {}
                Some(Login::Missing) => return Match::Challenge(&self.name),
                None => return Match::Needs(Question::User { acl: &self.name }),
            }
        }
        let answer = subject.told.and_then(|told| told.external(number, subject));
        answer.map_or(Match::Needs(Question::Helper { acl: &self.name, number }), Match::from)
    }

    /// Whether the client's user passes the test. As in Squid, `-` is nobody.
    fn user(&self, subject: &Subject<'_>, test: impl FnOnce(&str) -> bool) -> Match<'_> {
        match subject.known.login {
            Some(Login::User(name)) => (name != "-" && test(name)).into(),
            Some(Login::Missing) => Match::Challenge(&self.name),
            None => Match::Needs(Question::User { acl: &self.name }),
        }
    }
}

fn is_among(values: &[String], one: Option<&str>) -> bool {
    one.is_some_and(|one| values.iter().any(|value| value == one))
}

/// Random bits for the ACL of this number. Without any of the subject none are below a threshold.
fn draw(subject: &Subject<'_>, number: u64) -> u64 {
    subject.random.map_or(u64::MAX, |seed| Rng::new(seed ^ number).next_u64())
}

/// One of the results is yes. A question decides where nothing before it matched.
fn any<'a>(results: impl Iterator<Item = Match<'a>>) -> Match<'a> {
    let mut otherwise = Match::No;
    for result in results {
        match result {
            Match::No => {}
            Match::Never(_) => otherwise = result,
            decided => return decided,
        }
    }
    otherwise
}

/// Whether an address of the host is in the set; `None` if the decision needs addresses that are
/// not known.
fn destination(addresses: &AddressSet, no_lookup: bool, subject: &Subject<'_>) -> Option<bool> {
    match (subject.host_ip(), subject.known.dst_ips) {
        (Some(address), _) => Some(addresses.contains(address)),
        (None, _) if no_lookup => Some(false),
        (None, Some([])) if addresses.none => Some(true),
        // A host whose addresses cannot be found may have any.
        (None, Some([]) | None) => None,
        (None, Some(known)) => Some(known.iter().any(|address| addresses.contains(*address))),
    }
}

/// Whether the client's hardware address is in the sorted set; `None` if it is not known. Only a
/// client with IPv4 can have one.
fn hardware(addresses: &[[u8; 6]], subject: &Subject<'_>) -> Option<bool> {
    if subject.client_ip.to_canonical().is_ipv6() {
        return Some(false);
    }
    let known = subject.known.hardware?;
    Some(known.is_some_and(|address| addresses.binary_search(&address).is_ok()))
}

/// The EUI-64 from which a unique local address was made (RFC 4193, RFC 4291 appendix A), as it
/// stands in the address.
fn eui64(client: IpAddr) -> Option<[u8; 8]> {
    let IpAddr::V6(ip) = client else { return None };
    let identifier = (ip.to_bits() as u64).to_be_bytes();
    let is_made_of_eui48 = identifier[3..5] == [0xff, 0xfe];
    (ip.is_unique_local() && is_made_of_eui48).then_some(identifier)
}

fn request_fields<'a>(subject: &Subject<'a>) -> Option<&'a Fields> {
    subject.request.map(|request| &request.fields)
}

fn response_fields<'a>(subject: &Subject<'a>) -> Option<&'a Fields> {
    subject.response.map(|response| &response.fields)
}

/// The first line of `Content-Type`. A message without one has an empty type, as in Squid: `^$`
/// finds it.
fn type_matches(fields: Option<&Fields>, regexes: &RegexList) -> bool {
    fields.is_some_and(|fields| {
        regexes.is_match(fields.get(FieldName::ContentType).unwrap_or_default())
    })
}

/// What ACLs about the interception of TLS see.
fn seen<'a>(subject: &Subject<'a>) -> Seen<'a> {
    let Subject { bump, host, late, is_encrypted, .. } = *subject;
    Seen { bump, host, fault: late.tls_fault, is_encrypted }
}

/// Several lines of a field count as one, joined with commas (RFC 9110 section 5.3). As in Squid,
/// there is no comma behind empty lines.
fn field_matches(fields: Option<&Fields>, name: &[u8], regexes: &RegexList) -> bool {
    let Some(fields) = fields else { return false };
    let mut values = fields.get_all_by_name(name);
    match (values.next(), values.next()) {
        (None, _) => false,
        (Some(only), None) => regexes.is_match(only),
        (Some(first), Some(second)) => {
            let mut joined = first.to_vec();
            for value in std::iter::once(second).chain(values) {
                if !joined.is_empty() {
                    joined.extend_from_slice(b", ");
                }
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
