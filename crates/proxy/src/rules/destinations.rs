//! Names that lead to addresses which are not of the public network (`private_destinations`).
//!
//! The owner of a name decides where it leads. So it may lead into the proxy's own network,
//! although every rule about names allows it, and elsewhere a moment later (DNS rebinding). Each
//! address is judged here before it is connected to, also that of a connection that is used again,
//! and that of a fetch that is joined.

use std::net::IpAddr;
use std::sync::{Arc, Once, OnceLock};

use humboldt_acl::{Known, RuleList, Subject, Verdict};
use humboldt_base::counters::Counter;
use humboldt_conf::{PortMode, RuleSource};
use humboldt_net::dns::NameCache;
use humboldt_net::{is_own_address, special_use};

use crate::config::snapshot::Snapshot;
use crate::core::Core;
use crate::request::{Request, host_ip, unmapped};
use crate::rules::access;
use crate::rules::denial::Refusal;
use crate::rules::notes::Before;

/// Top-level domains that nobody else can get a name below (RFC 6762 appendix G, RFC 8375, RFC
/// 2606, ICANN's `internal`).
const PRIVATE_TOP_DOMAINS: [&[u8]; 10] = [
    b"arpa",
    b"corp",
    b"home",
    b"internal",
    b"intranet",
    b"lan",
    b"local",
    b"localdomain",
    b"private",
    b"test",
];

/// Addresses of other destinations, of both families.
const OTHERS: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1)),
    IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// Of these addresses of the request's host, those that it may connect to; without any, the
/// refusal.
pub(crate) fn permitted(
    core: &Core,
    request: &Request,
    addresses: Arc<[IpAddr]>,
) -> Result<Arc<[IpAddr]>, Refusal> {
    let mut refusal = None;
    let mut may_go = |ip: &IpAddr| match objection(core, request, *ip) {
        None => true,
        Some(why) => {
            refusal.get_or_insert(why);
            false
        }
    };
    // Most hosts have public addresses only.
    let left: Vec<IpAddr> = addresses.iter().copied().filter(&mut may_go).collect();
    match refusal {
        None => Ok(addresses),
        Some(_) if !left.is_empty() => Ok(left.into()),
        Some(why) => {
            core.count(Counter::ClientPrivateDestinations, 1);
            hint(request);
            Err(why)
        }
    }
}

/// Why the request may not connect to this address of its host, if so.
pub(crate) fn objection(core: &Core, request: &Request, ip: IpAddr) -> Option<Refusal> {
    if host_ip(request.url.host()).is_some() {
        return None;
    }
    let kind = kind(core, ip)?;
    if is_given(core, request, ip) {
        return None;
    }
    let (snapshot, subject) = (request.snapshot(), access::subject(request));
    let judged = Before::of(request).what_if(request, || {
        judge(snapshot, &subject, ip, |list, one| access::check_list(list, request, one))
    });
    let rule = judged.err()?;
    let host = String::from_utf8_lossy(request.url.host());
    Some(Refusal::of_destination(format!("{host} leads to {ip} ({kind})"), rule))
}

/// The address, if it is not of the public network, as a note for those who share the fetch from
/// there.
pub(crate) fn to_note(core: &Core, request: &Request, ip: IpAddr) -> Option<IpAddr> {
    let is_name = host_ip(request.url.host()).is_none();
    is_name.then(|| kind(core, ip)).flatten().map(|_| ip)
}

/// The kind of an address that is not of the public network, in words.
fn kind(core: &Core, ip: IpAddr) -> Option<&'static str> {
    // In a simulation no address is one of this machine.
    let is_own = || !core.has_names_in_memory() && is_own_address(ip);
    special_use(ip).or_else(|| is_own().then_some("this proxy's machine"))
}

/// The same outside of a core.
pub fn kind_of_destination(ip: IpAddr) -> Option<&'static str> {
    special_use(ip).or_else(|| is_own_address(ip).then_some("this proxy's machine"))
}

/// Whether nobody but the administrator and the client has chosen this address: the URL has it, or
/// is that of an accelerator's own site; the hosts file has it; or the client of an intercepted
/// connection connected to it.
fn is_given(core: &Core, request: &Request, ip: IpAddr) -> bool {
    let host = request.url.host();
    if is_local(&core.shared.names, host, ip) {
        return true;
    }
    let facts = request.facts();
    let is_chosen =
        || facts.original.is_some_and(|original| unmapped(original.ip()) == unmapped(ip));
    let site = facts.port.defaultsite.as_deref().filter(|_| facts.port.mode == PortMode::Accel);
    let is_site = || site.is_some_and(|site| is_host_of(site, host));
    !request.is_rewritten_elsewhere() && (is_site() || is_chosen())
}

/// Whether a host is that of `defaultsite`, which may have a port.
fn is_host_of(site: &str, host: &[u8]) -> bool {
    let name = humboldt_http::uri::split_authority(site.as_bytes());
    name.is_some_and(|name| name.host.eq_ignore_ascii_case(host))
}

/// Whether no name server is asked about this address of the host: it is a literal, `localhost`
/// (RFC 6761), or in the hosts file.
pub fn is_local(names: &NameCache, host: &[u8], ip: IpAddr) -> bool {
    let local = names.lookup_local(&String::from_utf8_lossy(host));
    matches!(local, Some(Ok(known)) if known.iter().any(|known| unmapped(*known) == unmapped(ip)))
}

/// Whether a name may lead to this address, which is not of the public network: `Err` has the rule
/// that says no.
///
/// A line of `private_destinations` decides first. Without one, a rule that lets the request in
/// must name this destination.
pub fn judge<'s>(
    snapshot: &'s Snapshot,
    subject: &Subject<'_>,
    ip: IpAddr,
    check: impl Fn(&'s RuleList, &Subject<'_>) -> Verdict<'s>,
) -> Result<(), Option<Arc<RuleSource>>> {
    let address = [ip];
    let known = Known { dst_ips: Some(&address), ..subject.known };
    let subject = Subject { known, ..*subject };
    if let Some(list) = &snapshot.private_destinations {
        match check(list, &subject) {
            Verdict::Allowed { rule: Some(_) } => return Ok(()),
            Verdict::Denied { rule: rule @ Some(_), .. } => return Err(list.source(rule).cloned()),
            // A rule without an answer allows nothing.
            Verdict::Needs(_) | Verdict::Challenge { .. } => return Err(None),
            // No line applies.
            Verdict::Allowed { rule: None } | Verdict::Denied { rule: None, .. } => {}
        }
    }
    let lists = [Some(&snapshot.http_access), snapshot.adapted_access.as_ref()];
    let others = Elsewhere::all(&subject, ip);
    let others: Vec<Subject<'_>> = others.iter().map(|other| other.subject(&subject)).collect();
    let names = |list: &'s RuleList| match check(list, &subject) {
        Verdict::Allowed { rule: Some(rule) } => list.names_destination(rule, &subject, &others),
        _ => false,
    };
    match lists.into_iter().flatten().any(names) {
        true => Ok(()),
        false => Err(Some(Arc::clone(by_default()))),
    }
}

/// The rule if no line says otherwise.
fn by_default() -> &'static Arc<RuleSource> {
    static RULE: OnceLock<Arc<RuleSource>> = OnceLock::new();
    RULE.get_or_init(|| {
        let text = "private_destinations, which opens it by \"allow\" (by default names lead to \
                    public addresses only)";
        let (text, file) = (text.to_owned(), "private_destinations".to_owned());
        Arc::new(RuleSource { text, file, line: 0 })
    })
}

/// Another destination, which a rule does not name if it names that of a request.
struct Elsewhere {
    host: Vec<u8>,
    url: Vec<u8>,
    address: IpAddr,
}

impl Elsewhere {
    /// A name below a top-level domain that is not there, and one below the domain of the host, if
    /// anybody can get one there: a rule that names the whole domain names nobody.
    fn all(subject: &Subject<'_>, ip: IpAddr) -> Vec<Self> {
        let dot = subject.host.iter().rposition(|&byte| byte == b'.');
        let top = dot.and_then(|dot| subject.host.get(dot + 1..));
        let top = top.filter(|top| !PRIVATE_TOP_DOMAINS.contains(top) && !top.is_empty());
        let tops = [Some(&b"invalid"[..]), top];
        let [v4, v6] = OTHERS;
        let address = if ip.is_ipv4() { v4 } else { v6 };
        let other = |top: &[u8]| {
            let host = [&b"another-destination."[..], top].concat();
            Self { url: with_host(subject, &host), host, address }
        };
        tops.into_iter().flatten().map(other).collect()
    }

    /// The same request for it.
    fn subject<'a>(&'a self, subject: &Subject<'a>) -> Subject<'a> {
        let dst_ips = Some(std::slice::from_ref(&self.address));
        let known = Known { dst_ips, ..subject.known };
        Subject { host: &self.host, url: &self.url, known, ..*subject }
    }
}

/// The URL of the subject with another host.
fn with_host(subject: &Subject<'_>, host: &[u8]) -> Vec<u8> {
    let start = memchr::memmem::find(subject.url, b"://").map_or(0, |at| at + 3);
    let (before, rest) = subject.url.split_at_checked(start).unwrap_or_default();
    match memchr::memmem::find(rest, subject.host) {
        Some(at) => {
            let behind = rest.get(at + subject.host.len()..).unwrap_or_default();
            [before, host, behind].concat()
        }
        None => [before, host, subject.path].concat(),
    }
}

/// Says in cache.log once that there is such a rule.
fn hint(request: &Request) {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        tracing::warn!(
            "{}: refused, as this name leads to an address that is not public. Name such hosts in \
             an http_access rule, or open them with private_destinations (docs/refusals.md). This \
             is said once",
            String::from_utf8_lossy(request.url.host()).escape_debug()
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts_of(host: &[u8], url: &[u8]) -> Vec<(String, String)> {
        let subject = Subject { host, url, path: b"/p", ..Subject::default() };
        let all = Elsewhere::all(&subject, OTHERS[0]);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        all.iter().map(|one| (text(&one.host), text(&one.url))).collect()
    }

    #[test]
    fn other_destinations_have_other_names_and_the_same_rest() {
        let own = |top: &str, url: &str| {
            let host = format!("another-destination.{top}");
            (host.clone(), url.replace('@', &host))
        };
        assert_eq!(
            hosts_of(b"a.com", b"http://a.com:8080/p"),
            [own("invalid", "http://@:8080/p"), own("com", "http://@:8080/p")]
        );
        assert_eq!(hosts_of(b"wiki", b"wiki:443"), [own("invalid", "@:443")]);
        assert_eq!(hosts_of(b"a.corp", b"a.corp:443"), [own("invalid", "@:443")]);
        assert_eq!(hosts_of(b"h", b"http://h/h"), [own("invalid", "http://@/h")]);
    }
}
