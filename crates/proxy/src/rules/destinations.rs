//! Names that lead to addresses which are not of the public network (`private_destinations`).
//!
//! The owner of a name decides where it leads. So it may lead into the proxy's own network,
//! although every rule about names allows it, and elsewhere a moment later (DNS rebinding). Each
//! address is judged here before it is connected to, also that of a connection that is used again,
//! and that of a fetch that is joined.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Once, OnceLock};

use humboldt_acl::{Known, RuleList, Subject, Verdict};
use humboldt_base::counters::Counter;
use humboldt_conf::{PortMode, RuleSource};
use humboldt_http::uri::{Url, host_ip};
use humboldt_net::dns::NameCache;
use humboldt_net::{is_own_address, is_private_network, special_use};

use crate::config::snapshot::Snapshot;
use crate::core::Core;
use crate::request::{Request, unmapped};
use crate::rules::denial::Refusal;
use crate::rules::notes::Before;
use crate::rules::{access, login};

/// Top-level domains that nobody else can get a name below (RFC 6762 appendix G, RFC 2606, ICANN's
/// `internal`).
const PRIVATE_TOP_DOMAINS: [&[u8]; 9] = [
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

/// The same of a domain (RFC 8375).
const PRIVATE_DOMAIN: &[u8] = b".home.arpa";

/// Most addresses of a request of which is remembered what the rules say. They are asked again
/// about further ones.
const JUDGED_MAX: usize = 32;

/// A name that nobody has.
const NOBODY: &[u8] = b"another-destination";

/// Addresses of other destinations: of both halves of each family, and one behind NAT64.
const OTHERS_V4: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), IpAddr::V4(Ipv4Addr::new(9, 9, 9, 9))];
const OTHERS_V6: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0x909, 0x909)),
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
            // Who has written a line knows.
            if why.rule.as_ref().is_some_and(|rule| Arc::ptr_eq(rule, by_default())) {
                hint(request);
            }
            Err(why)
        }
    }
}

/// Why the request may not connect to this address of its host, if so.
pub(crate) fn objection(core: &Core, request: &Request, ip: IpAddr) -> Option<Refusal> {
    let kind = kind(core, ip)?;
    let snapshot = request.snapshot();
    let is_given = is_given(core, request, ip);
    if is_given && snapshot.private_destinations.is_none() {
        return None;
    }
    let known = request.judged.borrow().iter().find(|(known, _)| *known == ip).cloned();
    let judged = match known {
        Some((_, judged)) => judged,
        None => {
            let judged = ask_rules(request, ip, is_given);
            let mut all = request.judged.borrow_mut();
            if all.len() < JUDGED_MAX {
                all.push((ip, judged.clone()));
            }
            judged
        }
    };
    let rule = judged.err()?;
    let host = String::from_utf8_lossy(request.url.host());
    Some(Refusal::of_destination(format!("{host} leads to {ip} ({kind})"), rule))
}

/// Asks the rules about an address. A rule that has let the request in is not asked again whether
/// it would: a count of connections or a helper may say something else by now.
fn ask_rules(request: &Request, ip: IpAddr, is_given: bool) -> Result<(), Option<Arc<RuleSource>>> {
    let snapshot = request.snapshot();
    // Rules about users find a login that was checked before.
    _ = login::remember(request, access::subject(request).client_ip);
    let subject = access::subject(request);
    Before::of(request).what_if(request, || {
        let check = |list, one: &Subject<'_>| match let_in_by(request, list) {
            Some(rule) if RuleList::leads_to(list, rule, one) => {
                Verdict::Allowed { rule: Some(rule) }
            }
            _ => access::check_list(list, request, one),
        };
        match is_given {
            true => by_lines(snapshot, &subject, ip, check).unwrap_or(Ok(())),
            false => judge(snapshot, &subject, ip, check),
        }
    })
}

/// The rule of this list that has let the request in.
fn let_in_by(request: &Request, list: &RuleList) -> Option<usize> {
    let snapshot = request.snapshot();
    let lists = [Some(&snapshot.http_access), snapshot.adapted_access.as_ref()];
    let place = lists.iter().position(|one| one.is_some_and(|one| std::ptr::eq(one, list)))?;
    request.let_in[place].get()
}

/// The address, if it is not of the public network, as a note for those who share the fetch from
/// there.
pub(crate) fn to_note(core: &Core, request: &Request, ip: IpAddr) -> Option<IpAddr> {
    let is_judged = || {
        let may_refuse = request.snapshot().private_destinations.is_some();
        may_refuse || !is_given(core, request, ip)
    };
    kind(core, ip).filter(|_| is_judged()).map(|_| ip)
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

/// Whether this address is open without a rule, as the owner of a name has not chosen it.
///
/// Of a client that has asked for a proxy: if no name server is asked, or only about a name of the
/// administrator's own domain. The client of an intercepted connection may have been led there by a
/// name, so that its address is open only where it could go alone: in private networks, but not on
/// the proxy's own machine. The public gets the site of an accelerator, and nothing else.
fn is_given(core: &Core, request: &Request, ip: IpAddr) -> bool {
    let (names, host) = (&core.shared.names, request.url.host());
    match request.facts().port.mode {
        PortMode::Forward => is_local(names, host, ip) || is_completed(request),
        PortMode::Accel => is_site(request),
        PortMode::Intercept | PortMode::Tproxy => {
            let name = String::from_utf8_lossy(host);
            let known = names.in_hosts_file(&name).unwrap_or_default();
            known.iter().any(|known| unmapped(*known) == unmapped(ip))
                || is_completed(request)
                || is_chosen(request, ip)
        }
    }
}

/// Whether the resolver completes the name with a domain of the file or of the system.
fn is_completed(request: &Request) -> bool {
    let (config, host) = (&request.snapshot().config, request.url.host());
    let is_bare = !host.contains(&b'.') && host_ip(host).is_none();
    is_bare && (config.append_domain.is_some() || config.dns_defnames)
}

/// Whether the client of an intercepted connection connected to this address, and could do so
/// without the proxy.
fn is_chosen(request: &Request, ip: IpAddr) -> bool {
    let original = request.facts().original.filter(|_| !request.is_rewritten_elsewhere());
    original.is_some_and(|original| unmapped(original.ip()) == unmapped(ip))
        && is_private_network(ip)
        && !is_own_address(ip)
}

/// Whether the request goes to `defaultsite`, at its port.
fn is_site(request: &Request) -> bool {
    let port = &request.facts().port;
    let site = port.defaultsite.as_deref().filter(|_| !request.is_rewritten_elsewhere());
    site.is_some_and(|site| {
        let mut own = Url::default();
        let bare = |host: &[u8]| host.strip_suffix(b".").unwrap_or(host).to_ascii_lowercase();
        own.set_parts(request.url.scheme(), site.as_bytes(), b"/").is_ok()
            && bare(own.host()) == bare(request.url.host())
            // With `vport` the client has not chosen the port.
            && (port.vport.is_some() || own.port() == request.url.port())
    })
}

/// Whether no name server is asked about this address of the host: it is a literal, `localhost`
/// (RFC 6761), or in the hosts file.
pub fn is_local(names: &NameCache, host: &[u8], ip: IpAddr) -> bool {
    if let Some(literal) = host_ip(host) {
        return unmapped(literal) == unmapped(ip);
    }
    let local = names.lookup_local(&String::from_utf8_lossy(host));
    matches!(local, Some(Ok(known)) if known.iter().any(|known| unmapped(*known) == unmapped(ip)))
}

/// Whether a name may lead to this address, which is not of the public network: `Err` has the rule
/// that says no.
///
/// A line of `private_destinations` decides first. Without one, a rule that lets the request in, or
/// sends it straight to its server, must name this destination.
pub fn judge<'s>(
    snapshot: &'s Snapshot,
    subject: &Subject<'_>,
    ip: IpAddr,
    check: impl Fn(&'s RuleList, &Subject<'_>) -> Verdict<'s>,
) -> Result<(), Option<Arc<RuleSource>>> {
    if let Some(decided) = by_lines(snapshot, subject, ip, &check) {
        return decided;
    }
    let ip = unmapped(ip);
    let address = [ip];
    let known = Known { dst_ips: Some(&address), ..subject.known };
    let subject = Subject { known, ..*subject };
    match is_named(snapshot, &subject, ip, check) {
        true => Ok(()),
        false => Err(Some(Arc::clone(by_default()))),
    }
}

/// The same by the lines of `private_destinations` alone; `None` if none applies.
pub fn by_lines<'s>(
    snapshot: &'s Snapshot,
    subject: &Subject<'_>,
    ip: IpAddr,
    check: impl Fn(&'s RuleList, &Subject<'_>) -> Verdict<'s>,
) -> Option<Result<(), Option<Arc<RuleSource>>>> {
    let list = snapshot.private_destinations.as_ref()?;
    // So that no other form of an address escapes the rules about it.
    let address = [unmapped(ip)];
    let known = Known { dst_ips: Some(&address), ..subject.known };
    match check(list, &Subject { known, ..*subject }) {
        Verdict::Allowed { rule: Some(_) } => Some(Ok(())),
        Verdict::Denied { rule: rule @ Some(_), .. } => Some(Err(list.source(rule).cloned())),
        // A rule without an answer allows nothing.
        Verdict::Needs(_) | Verdict::Challenge { .. } => Some(Err(None)),
        // No line applies.
        Verdict::Allowed { rule: None } | Verdict::Denied { rule: None, .. } => None,
    }
}

/// Whether a rule lets the request in, or sends it to its server, because of its destination.
fn is_named<'s>(
    snapshot: &'s Snapshot,
    subject: &Subject<'_>,
    ip: IpAddr,
    check: impl Fn(&'s RuleList, &Subject<'_>) -> Verdict<'s>,
) -> bool {
    let others = Elsewhere::all(subject, ip);
    let others: Vec<Subject<'_>> = others.iter().map(|other| other.subject(subject)).collect();
    let lets_in = |list: &'s RuleList| match check(list, subject) {
        Verdict::Allowed { rule } => {
            list.names_destination(rule.unwrap_or(usize::MAX), subject, &others)
        }
        _ => false,
    };
    let always = |list: &'s RuleList| match check(list, subject) {
        Verdict::Allowed { rule: Some(rule) } => list.is_about_destination(rule, subject, &others),
        _ => false,
    };
    let not_never = |list: &'s RuleList| match check(list, subject) {
        Verdict::Denied { rule: Some(rule), .. } => {
            list.is_about_destination(rule, subject, &others)
        }
        _ => false,
    };
    let access = [Some(&snapshot.http_access), snapshot.adapted_access.as_ref()];
    access.into_iter().flatten().any(lets_in)
        || snapshot.always_direct.as_ref().is_some_and(always)
        || snapshot.never_direct.as_ref().is_some_and(not_never)
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
    /// Names that anybody can have, and which a rule might match that was written for the host: a
    /// rule that matches one of them names nobody. `evil.wiki.example.net` and `wiki-evil.com` are
    /// such names, if the rule looks for `wiki` somewhere.
    fn all(subject: &Subject<'_>, ip: IpAddr) -> Vec<Self> {
        let host = subject.host.strip_suffix(b".").unwrap_or(subject.host);
        let mut hosts =
            vec![[NOBODY, b".invalid"].concat(), [host, b".", NOBODY, b".invalid"].concat()];
        if !is_private_name(host) {
            hosts.extend(Self::neighbours(host));
        }
        let addresses = if ip.is_ipv4() { OTHERS_V4 } else { OTHERS_V6 };
        let with_address = hosts.into_iter().zip(addresses.into_iter().cycle());
        let other = |(host, address): (Vec<u8>, IpAddr)| Self {
            url: with_host(subject, &host),
            host,
            address,
        };
        with_address.map(other).collect()
    }

    /// Names beside the domain of the host, below the same public suffix (such as `.com`, `.co.uk`
    /// or `.github.io`).
    fn neighbours(host: &[u8]) -> Vec<Vec<u8>> {
        let Some(domain) = psl::domain(host) else {
            // The host is a public suffix.
            return vec![[NOBODY, b".", host].concat(), [NOBODY, b"-", host].concat()];
        };
        let (domain, suffix) = (domain.as_bytes(), domain.suffix().as_bytes());
        let below = host.strip_suffix(domain).unwrap_or_default();
        let own = domain.strip_suffix(suffix).and_then(|own| own.strip_suffix(b"."));
        let own = own.unwrap_or_default();
        vec![
            [NOBODY, b".", suffix].concat(),
            [NOBODY, b"-", domain].concat(),
            [below, NOBODY, b".", suffix].concat(),
            [below, own, b"-", NOBODY, b".", suffix].concat(),
        ]
    }

    /// The same request for it.
    fn subject<'a>(&'a self, subject: &Subject<'a>) -> Subject<'a> {
        let dst_ips = Some(std::slice::from_ref(&self.address));
        let known = Known { dst_ips, ..subject.known };
        Subject { host: &self.host, url: &self.url, known, ..*subject }
    }
}

/// Whether nobody else can get a name beside this one.
fn is_private_name(host: &[u8]) -> bool {
    let top = host.rsplit(|&byte| byte == b'.').next().unwrap_or_default();
    top.len() == host.len() || PRIVATE_TOP_DOMAINS.contains(&top) || host.ends_with(PRIVATE_DOMAIN)
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

    fn subject<'a>(host: &'a [u8], url: &'a [u8]) -> Subject<'a> {
        Subject { host, url, path: b"/p", ..Subject::default() }
    }

    fn hosts_of(host: &str) -> String {
        let url = format!("http://{host}:8080/p");
        let all = Elsewhere::all(&subject(host.as_bytes(), url.as_bytes()), OTHERS_V4[0]);
        for one in &all {
            let host = String::from_utf8_lossy(&one.host);
            assert_eq!(one.url, format!("http://{host}:8080/p").as_bytes());
        }
        let hosts = all.iter().map(|one| String::from_utf8_lossy(&one.host).into_owned());
        hosts.collect::<Vec<_>>().join(" ").replace("another-destination", "X")
    }

    #[test]
    fn other_destinations_are_beside_the_host() {
        for (host, wanted) in [
            ("a.b.com", "X.invalid a.b.com.X.invalid X.com X-b.com a.X.com a.b-X.com"),
            ("b.co.uk", "X.invalid b.co.uk.X.invalid X.co.uk X-b.co.uk X.co.uk b-X.co.uk"),
            ("co.uk", "X.invalid co.uk.X.invalid X.co.uk X-co.uk"),
            ("wiki", "X.invalid wiki.X.invalid"),
            ("a.corp", "X.invalid a.corp.X.invalid"),
            ("a.home.arpa", "X.invalid a.home.arpa.X.invalid"),
        ] {
            assert_eq!(hosts_of(host), wanted);
        }
        let of = |host: &[u8], url: &[u8]| with_host(&subject(host, url), b"X");
        assert_eq!(of(b"wiki", b"wiki:443"), b"X:443");
        assert_eq!(of(b"h", b"http://h/h"), b"http://X/h");
    }

    /// Whether a list names this host at this address.
    fn names(rules: &str, host: &str, ip: &str) -> bool {
        let (config, found) = humboldt_conf::parse_str("t", &format!("http_port 1\n{rules}\n"));
        assert!(!found.has_errors(), "{}", found.render(false));
        let acls = humboldt_acl::AclSet::compile(&config.acl).unwrap();
        let list = RuleList::compile(&acls, &config.http_access, false).unwrap();
        let (url, ip) = (format!("http://{host}/p"), unmapped(ip.parse().unwrap()));
        let address = [ip];
        let known = Known { dst_ips: Some(&address), ..Known::default() };
        let subject = Subject { known, ..subject(host.as_bytes(), url.as_bytes()) };
        let others = Elsewhere::all(&subject, ip);
        let others: Vec<Subject<'_>> = others.iter().map(|other| other.subject(&subject)).collect();
        let Verdict::Allowed { rule } = list.check(&subject) else { return false };
        list.names_destination(rule.unwrap_or(usize::MAX), &subject, &others)
    }

    #[test]
    fn only_what_nobody_else_can_have_is_named() {
        let wiki = "wiki.example.com";
        for (acl, host, ip, is_named) in [
            ("dstdomain .example.com", wiki, "10.0.0.1", true),
            ("dstdomain wiki.example.com", wiki, "10.0.0.1", true),
            ("dstdomain .wiki.example.com", wiki, "10.0.0.1", true),
            ("dstdomain .com", wiki, "10.0.0.1", false),
            ("dstdomain .co.uk", "wiki.example.co.uk", "10.0.0.1", false),
            ("dstdomain .example.co.uk", "wiki.example.co.uk", "10.0.0.1", true),
            ("dstdomain .github.io", "evil.github.io", "10.0.0.1", false),
            ("dstdomain .corp", "wiki.corp", "10.0.0.1", true),
            ("dstdomain wiki", "wiki", "10.0.0.1", true),
            ("dstdom_regex ^wiki\\.", "wiki.evil.net", "10.0.0.1", false),
            ("dstdom_regex ^wiki.*\\.net$", "wiki.evil.net", "10.0.0.1", false),
            ("dstdom_regex ^wiki.*\\.net$", "wiki-evil.net", "10.0.0.1", false),
            ("dstdom_regex example\\.com$", "evilexample.com", "10.0.0.1", false),
            ("dstdom_regex \\.example\\.com$", wiki, "10.0.0.1", true),
            ("dstdom_regex (^|\\.)example\\.com$", wiki, "10.0.0.1", true),
            ("url_regex windowsupdate", "windowsupdate.evil.net", "10.0.0.1", false),
            ("url_regex ^http://wiki\\.example\\.com/", wiki, "10.0.0.1", true),
            ("url_regex ^http://wiki\\.example\\.com", wiki, "10.0.0.1", false),
            ("dst 10.0.0.0/8", wiki, "10.0.0.1", true),
            ("dst 10.0.0.0/8", wiki, "::ffff:10.0.0.1", true),
            ("dst 0.0.0.0/0", wiki, "10.0.0.1", false),
            ("dst 0.0.0.0/0", wiki, "::ffff:10.0.0.1", false),
            ("dst 0.0.0.0/1", wiki, "10.0.0.1", false),
            ("dst ::/0", wiki, "fd00::1", false),
            ("dst fd00::/8", wiki, "fd00::1", true),
            ("dst 64:ff9b::/96", wiki, "64:ff9b::a00:1", false),
        ] {
            let rules = format!("acl a {acl}\nhttp_access allow a");
            assert_eq!(names(&rules, host, ip), is_named, "{acl}: {host} {ip}");
        }
        let spared = "acl a dstdomain .example.com\nhttp_access deny !a\nhttp_access allow all";
        assert!(names(spared, wiki, "10.0.0.1"));
        let spared = "acl a dstdomain .com\nhttp_access deny !a\nhttp_access allow all";
        assert!(!names(spared, wiki, "10.0.0.1"));
    }
}
