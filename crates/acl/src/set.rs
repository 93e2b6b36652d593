//! Compiling the `acl` definitions of a configuration.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use humboldt_base::xxh3::xxh3_64;
use humboldt_conf::{AclDef, AclKind, Need, NetfilterMark, is_initiator, parse_eui48, parse_eui64};

use crate::addresses::AddressSet;
use crate::annotations::{Pairs, Wanted};
use crate::domains::DomainSet;
use crate::error::{AclError, AclProblem};
use crate::externals::External;
use crate::matcher::{Acl, Matcher, MethodName, Term};
use crate::ranges::{RangeSet, parse_numbers};
use crate::regexes::RegexList;
use crate::schedule::Schedule;
use crate::tls::TlsMatcher;
use crate::users::UserSet;

/// Bound on groups (`any-of`, `all-of`) within groups.
const MAX_NESTING: usize = 16;

/// The ACLs of a configuration, by name. Names have no case.
#[derive(Debug, Default)]
pub struct AclSet {
    acls: HashMap<Box<str>, Result<Arc<Acl>, AclError>>,
    formats: Vec<String>,
    externals: Vec<External>,
}

impl AclSet {
    /// Compiles all definitions. Host names in lists of addresses are looked up here, which blocks.
    /// A definition of a kind that cannot be evaluated is kept, and is an error in
    /// [`crate::RuleList::compile`] of each list that uses it.
    ///
    /// # Errors
    /// Every definition with a value that its kind does not accept.
    pub fn compile(definitions: &[AclDef]) -> Result<Self, Vec<AclError>> {
        let by_name =
            definitions.iter().map(|definition| (folded(&definition.name), definition)).collect();
        let mut compiler =
            Compiler { by_name, done: HashMap::new(), formats: Vec::new(), externals: Vec::new() };
        for definition in definitions {
            // Its error, if any, is in `done`.
            let _ = compiler.acl(&definition.name, 0);
        }
        let mut wrong: Vec<AclError> = Vec::new();
        for definition in definitions {
            if let Some(Err(error)) = compiler.done.get(&folded(&definition.name)) {
                let unsupported = matches!(error.problem, AclProblem::Unsupported { .. });
                if !unsupported && !wrong.contains(error) {
                    wrong.push(error.clone());
                }
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let Compiler { done, formats, externals, .. } = compiler;
        Ok(Self { acls: done, formats, externals })
    }

    /// The formats of annotations (`logformat`), which [`crate::Annotated::formatted`] writes.
    pub fn formats(&self) -> &[String] {
        &self.formats
    }

    /// The ACLs `external`.
    pub fn externals(&self) -> &[External] {
        &self.externals
    }

    /// The ACL of this name, as a term of a rule.
    pub(crate) fn term(&self, name: &str, negated: bool) -> Result<Term, AclError> {
        match self.acls.get(&folded(name)) {
            Some(Ok(acl)) => Ok(Term { acl: Arc::clone(acl), negated }),
            Some(Err(error)) => Err(error.clone()),
            None => Err(undefined(name)),
        }
    }
}

fn folded(name: &str) -> Box<str> {
    name.to_ascii_lowercase().into_boxed_str()
}

fn undefined(name: &str) -> AclError {
    AclError { acl: name.to_string(), location: Default::default(), problem: AclProblem::Undefined }
}

/// Compiles definitions on demand, because groups may come before their members.
struct Compiler<'a> {
    by_name: HashMap<Box<str>, &'a AclDef>,
    done: HashMap<Box<str>, Result<Arc<Acl>, AclError>>,
    formats: Vec<String>,
    externals: Vec<External>,
}

impl Compiler<'_> {
    fn acl(&mut self, name: &str, depth: usize) -> Result<Arc<Acl>, AclError> {
        if let Some(done) = self.done.get(&folded(name)) {
            return done.clone();
        }
        let Some(definition) = self.by_name.get(&folded(name)).copied() else {
            return Err(undefined(name));
        };
        let wrong = |problem| AclError {
            acl: definition.name.clone(),
            location: definition.location.clone(),
            problem,
        };
        if depth > MAX_NESTING {
            return Err(wrong(AclProblem::Nesting));
        }
        let matcher = match definition.kind {
            AclKind::AnyOf => self.terms(&definition.values, depth).map(Matcher::AnyOf),
            AclKind::AllOf => {
                let lines = definition.values.iter().map(|line| {
                    let names: Vec<String> =
                        line.split_ascii_whitespace().map(str::to_string).collect();
                    self.terms(&names, depth)
                });
                lines
                    .collect::<Result<Vec<_>, _>>()
                    .map(|lines| Matcher::AllOf(lines.into_boxed_slice()))
            }
            kind if kind.annotates() => {
                let of_client = kind == AclKind::AnnotateClient;
                let pairs = Pairs::compile(definition, of_client, &mut self.formats);
                Ok(Matcher::Annotate(pairs))
            }
            AclKind::External => self.external(definition).map_err(wrong),
            _ => compile(definition).map_err(wrong),
        };
        let matcher = matcher.map_err(|error| match error.problem {
            AclProblem::Undefined => AclError { location: definition.location.clone(), ..error },
            _ => error,
        });
        let acl = matcher.map(|matcher| {
            let needs = needs_of(definition, &matcher);
            let name = definition.name.as_str().into();
            let wants_login = wants_login(definition);
            Arc::new(Acl { name, needs, wants_login, matcher })
        });
        // In a circle every member ends here once, with the error of the innermost.
        self.done.insert(folded(name), acl.clone());
        acl
    }

    fn external(&mut self, definition: &AclDef) -> Result<Matcher, AclProblem> {
        let (helper, arguments) = definition.values.split_first().ok_or(AclProblem::Missing)?;
        self.externals.push(External {
            acl: definition.name.as_str().into(),
            helper: helper.as_str().into(),
            arguments: arguments.into(),
        });
        let number = self.externals.len() - 1;
        Ok(Matcher::External { number, needs_user: definition.flags.needs_user })
    }

    fn terms(&mut self, names: &[String], depth: usize) -> Result<Box<[Term]>, AclError> {
        let term = |written: &String| {
            let name = written.trim_start_matches('!');
            let negated = (written.len() - name.len()) % 2 == 1;
            Ok(Term { acl: self.acl(name, depth + 1)?, negated })
        };
        names.iter().map(term).collect()
    }
}

/// The needs of an ACL or its members, each need once.
fn needs_of(definition: &AclDef, matcher: &Matcher) -> Box<[Need]> {
    let members: Vec<&Term> = match matcher {
        Matcher::AnyOf(terms) => terms.iter().collect(),
        Matcher::AllOf(lines) => lines.iter().flatten().collect(),
        _ => Vec::new(),
    };
    let of_members = members.iter().flat_map(|term| term.acl.needs.iter().copied());
    let user = definition.flags.needs_user.then_some(Need::User);
    let needs: BTreeSet<Need> =
        definition.need().into_iter().chain(user).chain(of_members).collect();
    needs.into_iter().collect()
}

/// Whether a denial that ends with an ACL of this kind asks for a login.
fn wants_login(definition: &AclDef) -> bool {
    matches!(definition.kind, AclKind::ProxyAuth | AclKind::ProxyAuthRegex)
        || definition.flags.needs_user
}

/// Compiles a definition that does not refer to others.
fn compile(definition: &AclDef) -> Result<Matcher, AclProblem> {
    let values = definition.values.as_slice();
    if values.is_empty() && needs_values(definition.kind) {
        return Err(AclProblem::Missing);
    }
    check_words(definition.kind, values)?;
    let regexes = || RegexList::compile(values);
    let request_field =
        |name: &[u8]| Ok(Matcher::RequestField { name: name.into(), regexes: regexes()? });
    Ok(match definition.kind {
        AclKind::Src => Matcher::Source(AddressSet::compile(values)?),
        AclKind::Dst => Matcher::Destination {
            addresses: AddressSet::compile(values)?,
            no_lookup: definition.flags.no_lookup,
        },
        AclKind::LocalIp => Matcher::LocalAddress(AddressSet::compile(values)?),
        AclKind::Arp => Matcher::Hardware(sorted(values, parse_eui48)?),
        AclKind::ClientConnectionMark => Matcher::ConnectionMark(marks(values)?),
        AclKind::Eui64 => Matcher::Eui64(sorted(values, parse_eui64)?),
        AclKind::SrcDomain => Matcher::ClientName(DomainSet::compile(values)?),
        AclKind::SrcDomRegex => Matcher::ClientNameRegex(regexes()?),
        AclKind::DstDomain => Matcher::Host(DomainSet::compile(values)?),
        AclKind::DstDomRegex => Matcher::HostRegex(regexes()?),
        // Its regular expressions are Squid's; they cannot tell our `/metrics` from others.
        AclKind::UrlRegex if definition.name.eq_ignore_ascii_case("manager") => {
            Matcher::Manager(regexes()?)
        }
        AclKind::UrlRegex => Matcher::Url(regexes()?),
        AclKind::UrlPathRegex => Matcher::UrlPath(regexes()?),
        AclKind::UrlLogin => Matcher::UrlLogin(regexes()?),
        AclKind::Port => Matcher::Port(numbers(values, "a port or a range of ports")?),
        AclKind::LocalPort => Matcher::LocalPort(numbers(values, "a port or a range of ports")?),
        AclKind::MyPortName => Matcher::PortName(values.into()),
        AclKind::PeerName => Matcher::PeerName(values.into()),
        AclKind::UserCert => certificate(values, false)?,
        AclKind::CaCert => certificate(values, true)?,
        AclKind::HierCode => Matcher::Hierarchy(values.into()),
        AclKind::SquidError => Matcher::Error(values.into()),
        AclKind::PeerNameRegex => Matcher::PeerNameRegex(regexes()?),
        AclKind::Method => Matcher::Method(values.iter().map(|value| method(value)).collect()),
        AclKind::Proto => Matcher::Scheme(values.iter().map(|value| scheme(value)).collect()),
        AclKind::Time => Matcher::Time(Schedule::compile(values)?),
        AclKind::Browser => request_field(b"User-Agent")?,
        AclKind::RefererRegex => request_field(b"Referer")?,
        AclKind::ReqMimeType => Matcher::RequestType(regexes()?),
        AclKind::ReqHeader => {
            let (name, regexes) = named_field(values)?;
            Matcher::RequestField { name, regexes }
        }
        AclKind::RepMimeType => Matcher::ResponseType(regexes()?),
        AclKind::RepHeader => {
            let (name, regexes) = named_field(values)?;
            Matcher::ResponseField { name, regexes }
        }
        AclKind::HttpStatus => Matcher::Status(statuses(values)?),
        AclKind::ProxyAuth => Matcher::User(UserSet::compile(values, &definition.flags)),
        AclKind::ProxyAuthRegex => Matcher::UserRegex(regexes()?),
        AclKind::ExtUser => Matcher::ExtUser(UserSet::compile(values, &definition.flags)),
        AclKind::ExtUserRegex => Matcher::ExtUserRegex(regexes()?),
        AclKind::Tag => Matcher::Tag(values.into()),
        AclKind::MaxUserIp => Matcher::UserAddresses(addresses(values)?),
        AclKind::MaxConn => Matcher::Connections(connections(values)?),
        AclKind::Random => Matcher::Random {
            number: xxh3_64(folded(&definition.name).as_bytes()),
            below: probability(values)?,
        },
        AclKind::TransactionInitiator => {
            Matcher::Always(values.iter().any(|value| is_initiator(value)))
        }
        AclKind::Has => has(values),
        AclKind::Note => Matcher::Note(Wanted::compile(definition).ok_or(AclProblem::Missing)?),
        kind => {
            if let Some(matcher) = TlsMatcher::compile(definition)? {
                return Ok(Matcher::Tls(matcher));
            }
            let reason = kind.unsupported().unwrap_or("not implemented");
            return Err(AclProblem::Unsupported { kind: kind.name(), reason });
        }
    })
}

/// An ACL without values never matches, which an empty file of values may well mean; only these
/// make no sense so.
fn needs_values(kind: AclKind) -> bool {
    matches!(
        kind,
        AclKind::ReqHeader
            | AclKind::RepHeader
            | AclKind::UserCert
            | AclKind::CaCert
            | AclKind::MaxConn
            | AclKind::MaxUserIp
            | AclKind::Random
    )
}

fn check_words(kind: AclKind, values: &[String]) -> Result<(), AclProblem> {
    let Some(words) = kind.words() else { return Ok(()) };
    match values.iter().find(|value| !words.contains(&value.as_str())) {
        Some(other) => Err(value_error(other, "a word that the type knows")),
        None => Ok(()),
    }
}

fn has(values: &[String]) -> Matcher {
    let is_named = |part| values.iter().any(|value| value == part);
    match is_named("ALE") {
        // Squid's record of a transaction for its logs, which every transaction has.
        true => Matcher::Always(true),
        false => Matcher::Has { request: is_named("request"), response: is_named("response") },
    }
}

/// An attribute of certificates, and its values.
fn certificate(values: &[String], of_issuer: bool) -> Result<Matcher, AclProblem> {
    let (attribute, values) = values.split_first().ok_or(AclProblem::Missing)?;
    let attribute = attribute.as_str().into();
    Ok(Matcher::Certificate { attribute, of_issuer, values: values.into() })
}

fn marks(values: &[String]) -> Result<Box<[NetfilterMark]>, AclProblem> {
    let parse = |value: &String| {
        NetfilterMark::parse(value).ok_or_else(|| value_error(value, "a netfilter mark"))
    };
    values.iter().map(parse).collect()
}

fn value_error(value: &str, expected: &'static str) -> AclProblem {
    AclProblem::Value { value: value.to_string(), expected }
}

fn numbers(values: &[String], expected: &'static str) -> Result<RangeSet<u16>, AclProblem> {
    let parse = |value: &String| parse_numbers(value).ok_or_else(|| value_error(value, expected));
    values.iter().map(parse).collect::<Result<_, _>>().map(RangeSet::new)
}

/// Hardware addresses, sorted.
fn sorted<T: Ord>(values: &[String], parse: fn(&str) -> Option<T>) -> Result<Box<[T]>, AclProblem> {
    let parse =
        |value: &String| parse(value).ok_or_else(|| value_error(value, "a hardware address"));
    let mut addresses = values.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    addresses.sort_unstable();
    Ok(addresses.into())
}

/// As [`numbers`], and `400-` is open-ended.
fn statuses(values: &[String]) -> Result<RangeSet<u16>, AclProblem> {
    let parse = |value: &String| {
        let open = value.strip_suffix('-').and_then(|first| Some((first.parse().ok()?, u16::MAX)));
        open.or_else(|| parse_numbers(value))
            .ok_or_else(|| value_error(value, "a status or a range of statuses"))
    };
    values.iter().map(parse).collect::<Result<_, _>>().map(RangeSet::new)
}

fn scheme(value: &str) -> Box<[u8]> {
    let lower = value.to_ascii_lowercase();
    // Squid's name for the scheme of CONNECT.
    if lower == "none" { Box::default() } else { lower.into_bytes().into() }
}

/// The methods that Squid knows. It takes them in any case, and all others only as written.
const KNOWN_METHODS: [&str; 28] = [
    "GET",
    "POST",
    "PUT",
    "HEAD",
    "CONNECT",
    "TRACE",
    "OPTIONS",
    "DELETE",
    "CHECKOUT",
    "CHECKIN",
    "UNCHECKOUT",
    "MKWORKSPACE",
    "VERSION-CONTROL",
    "REPORT",
    "UPDATE",
    "LABEL",
    "MERGE",
    "BASELINE-CONTROL",
    "MKACTIVITY",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "SEARCH",
    "PURGE",
];

fn method(value: &str) -> MethodName {
    let any_case = KNOWN_METHODS.iter().any(|known| known.eq_ignore_ascii_case(value));
    MethodName { name: value.as_bytes().into(), any_case }
}

/// Field name and expressions. Flags may stand before the name.
fn named_field(values: &[String]) -> Result<(Box<[u8]>, RegexList), AclProblem> {
    let mut expressions = values.to_vec();
    let at = expressions
        .iter()
        .position(|value| value != "-i" && value != "+i")
        .ok_or(AclProblem::Missing)?;
    let name = expressions.remove(at);
    if expressions.is_empty() {
        return Err(AclProblem::Missing);
    }
    Ok((name.into_bytes().into(), RegexList::compile(&expressions)?))
}

/// The limit of `maxconn`. As in Squid one line is meant; of several the last counts. `-s` may
/// stand before it.
fn connections(values: &[String]) -> Result<u32, AclProblem> {
    let value = values.last().ok_or(AclProblem::Missing)?;
    value.parse().map_err(|_| value_error(value, "a number of connections"))
}

/// The limit of `max_user_ip`. As in Squid one line is meant; of several the first counts.
fn addresses(values: &[String]) -> Result<u32, AclProblem> {
    let value = values.first().ok_or(AclProblem::Missing)?;
    let limit = value.parse().ok().filter(|most| *most > 0);
    limit.ok_or_else(|| value_error(value, "a number of addresses"))
}

/// The share of 2^64 that `0.25`, `1/4` or `1:3` means.
fn probability(values: &[String]) -> Result<u64, AclProblem> {
    let value = values.last().ok_or(AclProblem::Missing)?;
    let wrong = || value_error(value, "a probability such as 0.25, 1/4 or 1:3");
    let pair = |separator: char| {
        let (part, other) = value.split_once(separator)?;
        Some((part.parse::<u32>().ok()?, other.parse::<u32>().ok()?))
    };
    let share = if let Some((part, other)) = pair(':') {
        f64::from(part) / (f64::from(part) + f64::from(other))
    } else if let Some((part, whole)) = pair('/') {
        f64::from(part) / f64::from(whole)
    } else {
        value.parse().map_err(|_| wrong())?
    };
    if !(0.0..=1.0).contains(&share) {
        return Err(wrong());
    }
    // `as` saturates: 1.0 becomes the largest threshold.
    Ok((share * u64::MAX as f64) as u64)
}
