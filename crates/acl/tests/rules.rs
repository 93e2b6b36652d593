//! Definitions and rules as a configuration has them, checked against subjects.

use std::cell::RefCell;
use std::net::IpAddr;

use humboldt_acl::{
    AclError, AclProblem, AclSet, Annotated, Known, Late, Question, RuleList, Subject, Verdict,
};
use humboldt_base::notes::{NOTES_BYTES_MAX, Notes};
use humboldt_base::rng::Rng;
use humboldt_conf::{AclDef, AclFlags, AclKind, Location, Need};
use proptest::prelude::*;
use text::{access_rules, definitions};

#[path = "rules/messages.rs"]
mod messages;
#[path = "rules/no_address.rs"]
mod no_address;
#[path = "rules/text.rs"]
mod text;

/// Squid's predefined ACLs and the ones of its sample configuration.
const SAMPLE: &str = "
acl all src all
acl manager url_regex -i ^cache_object:// +i ^[^:]+://[^/]+/squid-internal-mgr/
acl localhost src 127.0.0.1/32 ::1
acl to_localhost dst 127.0.0.0/8 0.0.0.0/32 ::1/128 ::/128
acl CONNECT method CONNECT
acl localnet src 10.0.0.0/8 192.168.0.0/16 fc00::/7
acl SSL_ports port 443
acl Safe_ports port 80 21 443 70 210 1025-65535 280 488 591 777
";

const SAMPLE_RULES: &str = "
deny !Safe_ports
deny CONNECT !SSL_ports
allow localhost manager
deny manager
allow localnet
allow localhost
deny all
";

fn list(acls: &str, rules: &str) -> RuleList {
    let acls = AclSet::compile(&definitions(acls)).expect("sound definitions");
    RuleList::compile(&acls, &access_rules(rules), false).expect("sound rules")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Addresses that were looked up.
fn ips(found: &[IpAddr]) -> Known<'_> {
    Known { dst_ips: Some(found), ..Known::default() }
}

fn asks(acl: &str) -> Verdict<'_> {
    Verdict::Needs(Question::DstIps { acl })
}

/// A fingerprint of SHA-1.
const FINGERPRINT: &str = "00:01:02:03:04:05:06:07:08:09:0A:0B:0C:0D:0E:0F:10:11:12:13";

/// A GET for `http://www.example.com/a` from 10.0.0.1.
fn subject() -> Subject<'static> {
    Subject {
        client_ip: ip("10.0.0.1"),
        local_ip: ip("10.0.0.254"),
        local_port: 3128,
        port_name: Some("inner"),
        certificate: None,
        bump: None,
        is_encrypted: false,
        method: b"GET",
        scheme: b"http",
        host: b"www.example.com",
        original_ip: None,
        port: 80,
        url: b"http://www.example.com/a",
        path: b"/a",
        request: None,
        response: None,
        known: Known::default(),
        late: &Late::NONE,
        told: None,
        annotated: None,
        now: 946_857_600, // Monday, 00:00 UTC
        local_offset_s: 0,
        connections_from_client: 1,
        random: Some(2), // between 1/4 and 1/2 for the ACL that is asked
        is_internal: false,
    }
}

fn matches(acl: &str, subject: &Subject<'_>) -> bool {
    list(&format!("acl x {acl}"), "allow x").check(subject).is_allowed()
}

#[test]
fn the_sample_rules() {
    let list = list(SAMPLE, SAMPLE_RULES);
    let get = subject();
    let connect = Subject {
        method: b"CONNECT",
        scheme: b"",
        url: b"www.example.com:443",
        path: b"",
        port: 443,
        ..get
    };
    let manager = Subject { url: b"http://proxy:3128/squid-internal-mgr/info", port: 3128, ..get };
    let denied =
        |rule, acl| Verdict::Denied { rule: Some(rule), last_acl: Some(acl), wants_login: false };
    let rows = [
        (get, Verdict::Allowed { rule: Some(4) }),
        (Subject { client_ip: ip("::1"), ..get }, Verdict::Allowed { rule: Some(5) }),
        (Subject { client_ip: ip("::ffff:127.0.0.1"), ..get }, Verdict::Allowed { rule: Some(5) }),
        (Subject { client_ip: ip("8.8.8.8"), ..get }, denied(6, "all")),
        (Subject { port: 25, ..get }, denied(0, "Safe_ports")),
        (Subject { port: 1024, ..get }, denied(0, "Safe_ports")),
        (connect, Verdict::Allowed { rule: Some(4) }),
        (Subject { port: 8443, ..connect }, denied(1, "SSL_ports")),
        (manager, denied(3, "manager")),
        (Subject { client_ip: ip("127.0.0.1"), ..manager }, Verdict::Allowed { rule: Some(2) }),
        (
            Subject { url: b"http://proxy/squid%2dinternal-mgr/info", ..manager },
            denied(3, "manager"),
        ),
        (
            Subject { url: b"http://proxy/metrics", is_internal: true, ..manager },
            denied(3, "manager"),
        ),
        (Subject { url: b"CACHE_object://proxy/", ..manager }, denied(3, "manager")),
        (
            Subject { url: b"http://proxy/x/squid-internal-mgr/", ..manager },
            Verdict::Allowed { rule: Some(4) },
        ),
    ];
    for (subject, want) in rows {
        assert_eq!(list.check(&subject), want, "{subject:?}");
    }
}

#[test]
fn the_built_in_configuration() {
    let text = humboldt_conf::builtin_text(std::path::Path::new("/nowhere"));
    let (config, diagnostics) = humboldt_conf::parse_str("built-in", &text);
    assert!(!diagnostics.has_errors());
    let acls = AclSet::compile(&config.acl).expect("sound definitions");
    let list = RuleList::compile(&acls, &config.http_access, false).expect("sound rules");
    let away = Subject { client_ip: ip("8.8.8.8"), known: ips(&[]), ..subject() };
    let home = Subject { client_ip: ip("127.0.0.1"), ..away };
    assert!(list.check(&home).is_allowed());
    assert!(!list.check(&away).is_allowed());
    assert!(!list.check(&Subject { port: 25, ..home }).is_allowed());
    let manager = list.check(&Subject {
        url: b"http://proxy:3128/squid-internal-mgr/info",
        port: 3128,
        ..away
    });
    assert!(matches!(manager, Verdict::Denied { last_acl: Some("manager"), .. }), "{manager:?}");
}

#[test]
fn without_a_match_the_opposite_of_the_last_rule_holds() {
    let other = Subject { client_ip: ip("8.8.8.8"), ..subject() };
    let none = Verdict::Denied { rule: None, last_acl: Some("localnet"), wants_login: false };
    assert_eq!(list(SAMPLE, "allow localnet").check(&other), none);
    assert_eq!(list(SAMPLE, "deny localnet").check(&other), Verdict::Allowed { rule: None });
    assert_eq!(list(SAMPLE, "deny manager\nallow localnet").check(&other), none);
    let acls = AclSet::compile(&[]).expect("nothing");
    for default_allow in [true, false] {
        let empty = RuleList::compile(&acls, &[], default_allow).expect("nothing");
        assert!(empty.is_empty());
        assert_eq!(empty.check(&other).is_allowed(), default_allow);
    }
}

#[test]
fn every_kind() {
    let get = subject();
    let rows = [
        ("src 10.0.0.0/8", true),
        ("src 11.0.0.0/8", false),
        ("localip 10.0.0.254", true),
        ("localport 3128", true),
        ("localport 3129", false),
        ("myportname inner", true),
        ("myportname outer", false),
        ("dstdomain .example.com", true),
        ("dstdomain example.com", false),
        ("dstdom_regex ^www\\.", true),
        ("dstdom_regex -i EXAMPLE", true),
        ("dstdom_regex EXAMPLE", false),
        ("url_regex ^http://www", true),
        ("url_regex ^https://", false),
        ("urlpath_regex ^/a$", true),
        ("urlpath_regex www", false),
        ("urllogin .", false),
        ("port 80-90", true),
        ("port 81", false),
        ("method get", true),
        ("method POST HEAD", false),
        ("proto HTTP", true),
        ("proto FTP", false),
        ("time M", true),
        ("time TWHFAS", false),
        ("time M 00:00-01:00", true),
        ("maxconn 0", true),
        ("maxconn 1", false),
        ("random 1/2", true),
        ("random 0.2", false),
        ("random 1:2", true),
        ("random 1:3", false),
        ("transaction_initiator client", true),
        ("transaction_initiator all", true),
        ("transaction_initiator icp client", true),
        ("transaction_initiator internal certificate-fetching", false),
        ("has ALE", true),
        ("has request", false),
        ("has response", false),
        ("browser .", false),
        ("http_status 200", false),
    ];
    for (acl, want) in rows {
        assert_eq!(matches(acl, &get), want, "{acl}");
    }
    assert!(matches("urllogin ^ann:", &Subject { url: b"ftp://ann:x@host/@b", ..get }));
    assert!(!matches("urllogin b", &Subject { url: b"ftp://host/@b", ..get }));
    assert!(!matches("urlpath_regex .*", &Subject { path: b"", ..get }));
    for (value, method, want) in [
        ("post", &b"POST"[..], true),
        ("POST", b"post", true),
        ("PROPfind", b"PROPFIND", true),
        ("Foo", b"Foo", true),
        ("Foo", b"FOO", false),
    ] {
        assert_eq!(
            matches(&format!("method {value}"), &Subject { method, ..get }),
            want,
            "{value}"
        );
    }
    assert!(matches("proto NONE", &Subject { scheme: b"", ..get }));
    let v6 = Subject { host: b"2001:db8::1", ..get };
    assert!(matches(r"dstdom_regex ^\[2001:.*1\]$", &v6));
    assert!(!matches("dstdom_regex 1$", &v6));
}

#[test]
fn random_acls_of_a_list_are_independent_and_draw_the_same_when_asked_again() {
    let acls = "acl a random 1/2\nacl b random 1/2";
    let both = ["a b", "a !b", "!a b", "!a !b"].map(|terms| list(acls, &format!("allow {terms}")));
    let mut times = [0; 4];
    for seed in 0..400 {
        let subject = Subject { random: Some(Rng::new(seed).next_u64()), ..subject() };
        let ask = || both.each_ref().map(|list| list.check(&subject).is_allowed());
        assert_eq!(ask(), ask(), "{seed}");
        for (times, is_so) in times.iter_mut().zip(ask()) {
            *times += usize::from(is_so);
        }
    }
    assert_eq!(times.iter().sum::<usize>(), 400);
    assert!(times.iter().all(|times| (70..130).contains(times)), "{times:?}");
    let without = Subject { random: None, ..subject() };
    assert!(both[3].check(&without).is_allowed(), "none matches");
}

#[test]
fn destinations_are_looked_up_only_when_they_matter() {
    let acls = "acl bad dst 192.0.2.0/24\nacl here src 10.0.0.0/8\nacl quiet dst -n 192.0.2.0/24\nacl lost dst none";
    let rules = list(acls, "deny !here\ndeny bad\nallow here");
    let get = subject();
    assert_eq!(rules.check(&get), asks("bad"));
    assert!(!rules.check(&Subject { client_ip: ip("8.8.8.8"), ..get }).is_allowed());
    let (good, evil) = ([ip("203.0.113.1")], [ip("203.0.113.1"), ip("192.0.2.7")]);
    assert!(rules.check(&Subject { known: ips(&good), ..get }).is_allowed());
    assert_eq!(rules.check(&Subject { known: ips(&[]), ..get }), asks("bad"), "a failed look-up");
    assert!(!rules.check(&Subject { known: ips(&evil), ..get }).is_allowed());
    for (address, is_allowed) in [("192.0.2.1", false), ("192.0.3.1", true)] {
        let original_ip = Some(ip(address));
        for subject in [
            Subject { original_ip, ..get },
            Subject { original_ip, host: b"192.0.2.1", ..get },
            Subject { host: address.as_bytes(), ..get },
        ] {
            assert_eq!(rules.check(&subject).is_allowed(), is_allowed, "{address}");
        }
    }
    assert_eq!(list(acls, "allow !bad").check(&get), asks("bad"), "negation does not hide it");
    assert!(list(acls, "allow !quiet").check(&get).is_allowed());
    assert_eq!(list(acls, "allow !bad").check(&Subject { known: ips(&[]), ..get }), asks("bad"));
    assert!(list(acls, "allow lost").check(&Subject { known: ips(&[]), ..get }).is_allowed());
    assert!(!list(acls, "allow lost").check(&Subject { known: ips(&good), ..get }).is_allowed());
}

#[test]
fn a_hardware_address_that_is_not_known_decides_nothing() {
    let acls = "acl own arp 00:11:22:33:44:55 00:00:00:00:00:01";
    let own = Known { hardware: Some(Some([0, 0x11, 0x22, 0x33, 0x44, 0x55])), ..Known::default() };
    let other = Known { hardware: Some(Some([2; 6])), ..Known::default() };
    let far = Known { hardware: Some(None), ..Known::default() };
    let asks = Verdict::Needs(Question::Hardware { acl: "own" });
    for (rules, wanted) in
        [("allow own", [true, false, false]), ("allow !own", [false, true, true])]
    {
        let rules = list(acls, rules);
        for (known, wanted) in [own, other, far].into_iter().zip(wanted) {
            let verdict = rules.check(&Subject { known, ..subject() });
            assert_eq!(verdict.is_allowed(), wanted, "{known:?}");
            assert!(!matches!(verdict, Verdict::Needs(_)));
        }
        assert_eq!(rules.check(&subject()), asks, "neither as it is nor negated");
    }
    let six = Subject { client_ip: ip("fd00::1"), ..subject() };
    assert!(list(acls, "allow !own").check(&six).is_allowed(), "IPv6 has none");
    let mapped = Subject { client_ip: ip("::ffff:10.0.0.1"), ..subject() };
    assert_eq!(list(acls, "allow own").check(&mapped), asks);
}

#[test]
fn the_name_of_a_client_decides_when_it_is_known() {
    let named =
        |client_name| Subject { known: Known { client_name, ..Known::default() }, ..subject() };
    for (acl, name, wanted) in [
        ("srcdomain .inside.test", "pc1.inside.test", true),
        ("srcdomain .inside.test", "PC1.Inside.test", true),
        ("srcdomain inside.test", "pc1.inside.test", false),
        ("srcdomain .inside.test", "none", false),
        ("srcdomain .inside.test none", "none", true),
        ("srcdom_regex ^pc[0-9]", "pc1.inside.test", true),
        ("srcdom_regex ^pc[0-9]", "PC1.inside.test", false),
        ("srcdom_regex -i ^pc[0-9]", "PC1.inside.test", true),
        ("srcdom_regex ^none$", "none", true),
    ] {
        assert_eq!(matches(acl, &named(Some(name))), wanted, "{acl} {name}");
        let asks = Verdict::Needs(Question::ClientName { acl: "x" });
        for rules in ["allow x", "allow !x", "deny x"] {
            assert_eq!(list(&format!("acl x {acl}"), rules).check(&named(None)), asks, "{acl}");
        }
    }
}

#[test]
fn the_parent_of_a_connection_is_known_by_its_name() {
    let late = Late { peer_name: Some("up1"), ..Late::NONE };
    for (acl, wanted) in [
        ("peername up1", true),
        ("peername up UP1", false),
        ("peername_regex ^up", true),
        ("peername_regex ^UP", false),
    ] {
        assert_eq!(matches(acl, &Subject { late: &late, ..subject() }), wanted, "{acl}");
        assert!(!matches(acl, &subject()), "{acl} without a parent");
    }
}

#[test]
fn logs_know_the_way_and_the_error() {
    let late = Late { hierarchy: Some("CARP"), error: Some("ERR_DNS_FAIL"), ..Late::NONE };
    for (acl, wanted) in [
        ("hier_code HIER_DIRECT CARP", true),
        ("hier_code HIER_DIRECT", false),
        ("squid_error ERR_CONNECT_FAIL ERR_DNS_FAIL", true),
        ("squid_error ERR_CONNECT_FAIL", false),
    ] {
        assert_eq!(matches(acl, &Subject { late: &late, ..subject() }), wanted, "{acl}");
        assert!(!matches(acl, &subject()), "{acl} while nothing is known");
    }
    assert!(!compile_errors("acl x hier_code DIRECT").is_empty());
    assert!(!compile_errors("acl x squid_error DNS_FAIL").is_empty());
}

#[test]
fn an_eui64_is_read_from_the_address() {
    let acl = "eui64 02:11:22:ff:fe:33:44:55 00:1a:2b:3c:4d:5e";
    for (client, wanted) in [
        ("fd00::211:22ff:fe33:4455", true),
        ("fc00:0:0:7:211:22ff:fe33:4455", true),
        ("fd00::1a:2bff:fe3c:4d5e", true),
        ("fd00::211:22ff:fe33:4456", false),
        ("2001:db8::211:22ff:fe33:4455", false),
        ("fe80::211:22ff:fe33:4455", false),
        ("fd00::211:2233:4455:6677", false),
        ("10.0.0.1", false),
    ] {
        assert_eq!(
            matches(acl, &Subject { client_ip: ip(client), ..subject() }),
            wanted,
            "{client}"
        );
    }
}

#[test]
fn a_list_says_what_it_may_need() {
    let acls = "acl far dst 192.0.2.0/24\nacl quiet dst -n 192.0.2.0/24\nacl near src 10.0.0.0/8\n\
                acl group any-of near far\nacl both all-of near group\nacl first any-of far near\n\
                acl one all-of !far";
    for (rules, wanted) in [
        ("allow near", false),
        ("allow first", true),
        ("allow near !one", true),
        ("allow quiet", false),
        ("deny near !far", true),
        ("deny quiet\nallow both", true),
    ] {
        let list = list(acls, rules);
        for need in Need::ALL {
            assert_eq!(list.may_need(need), wanted && need == Need::DstIps, "{rules} {need:?}");
        }
    }
}

/// A transaction with more notes than are kept.
struct TooMany;

impl Annotated for TooMany {
    fn notes(&self) -> &RefCell<Notes> {
        let mut notes = Notes::NONE;
        notes.add("too long", &[0; NOTES_BYTES_MAX]);
        Box::leak(Box::new(RefCell::new(notes)))
    }

    fn client_notes(&self) -> &RefCell<Notes> {
        self.notes()
    }

    fn formatted(&self, _: usize) -> Vec<u8> {
        Vec::new()
    }
}

/// A list that does not announce what it asks would be asked without the answer.
#[test]
fn only_kinds_with_a_need_ask_and_they_ask_for_just_that() {
    for kind in AclKind::ALL.iter().filter(|kind| kind.unsupported().is_none()) {
        let value = match kind {
            AclKind::Src | AclKind::Dst | AclKind::LocalIp => "192.0.2.1",
            AclKind::Time => "A",
            AclKind::ReqHeader | AclKind::RepHeader => "X-A a",
            AclKind::Random => "0.5",
            AclKind::TransactionInitiator => "client",
            AclKind::Has => "request",
            AclKind::HierCode => "HIER_DIRECT",
            AclKind::SquidError => "ERR_DNS_FAIL",
            AclKind::Arp | AclKind::Eui64 => "00:11:22:33:44:55",
            AclKind::SslError => "certUntrusted",
            AclKind::ServerCertFingerprint => FINGERPRINT,
            AclKind::AtStep => "SslBump2",
            AclKind::AnyOf | AclKind::AllOf => "member",
            _ => "1",
        };
        let acls = format!("acl member port 1\nacl x {} {value}", kind.name());
        let list = list(&acls, "allow x");
        let asking = Subject {
            client_ip: ip("192.0.2.9"),
            host: b"host.test",
            annotated: Some(&TooMany),
            ..Subject::default()
        };
        let asked = match list.check(&asking) {
            Verdict::Needs(question) => Some(question.need()),
            _ => None,
        };
        assert_eq!(asked, kind.need(), "{}", kind.name());
        assert!(Need::ALL.iter().all(|need| list.may_need(*need) == (asked == Some(*need))));
    }
}

#[test]
fn a_question_is_asked_only_where_all_before_it_match_and_decides_there() {
    let acls = "acl far dst 192.0.2.0/24\nacl other dst 198.51.100.0/24\nacl web port 80\nacl tls port 443\n\
                acl post method POST\nacl any any-of tls far web\nacl both all-of web far post";
    let get = subject();
    let far = [ip("192.0.2.7")];
    let near = [ip("203.0.113.1")];
    let denied = |rule, last_acl| Verdict::Denied { rule, last_acl, wants_login: false };
    let allowed = |rule| Verdict::Allowed { rule };
    // Without addresses, with one in the set, with one that is not, and where the look-up failed.
    let rows = [
        ("deny tls far\nallow web", [allowed(Some(1)); 4]),
        (
            "deny web far\nallow web",
            [asks("far"), denied(Some(0), Some("far")), allowed(Some(1)), asks("far")],
        ),
        ("deny far tls\nallow web", [asks("far"), allowed(Some(1)), allowed(Some(1)), asks("far")]),
        (
            "deny far post\nallow other",
            [asks("far"), denied(None, Some("other")), denied(None, Some("other")), asks("far")],
        ),
        ("deny tls\nallow web\ndeny far", [allowed(Some(1)); 4]),
        ("deny !web !far\nallow all", [allowed(Some(1)); 4]),
        (
            "deny web !far\nallow all",
            [asks("far"), allowed(Some(1)), denied(Some(0), Some("far")), asks("far")],
        ),
        (
            "deny any",
            [asks("far"), denied(Some(0), Some("far")), denied(Some(0), Some("web")), asks("far")],
        ),
        ("deny tls any\nallow all", [allowed(Some(1)); 4]),
        ("deny both\nallow all", [asks("far"), allowed(Some(1)), allowed(Some(1)), asks("far")]),
    ];
    for (rules, wanted) in rows {
        let list = list(&format!("{acls}\nacl all src all"), rules);
        let known = [Known::default(), ips(&far), ips(&near), ips(&[])];
        for (known, wanted) in known.into_iter().zip(wanted) {
            assert_eq!(list.check(&Subject { known, ..get }), wanted, "{rules} {known:?}");
        }
    }
}

#[test]
fn a_subject_of_which_nothing_is_known_matches_nothing_but_everything() {
    let nothing = Subject::default();
    for kind in AclKind::ALL.iter().filter(|kind| kind.unsupported().is_none()) {
        let acl = match kind {
            AclKind::Src | AclKind::LocalIp => format!("acl x {} 10.0.0.0/8", kind.name()),
            AclKind::MaxConn => "acl x maxconn 0".to_owned(),
            AclKind::Random => "acl x random 1.0".to_owned(),
            AclKind::TransactionInitiator => "acl x transaction_initiator icp".to_owned(),
            AclKind::Has => "acl x has request".to_owned(),
            AclKind::HierCode => "acl x hier_code HIER_NONE".to_owned(),
            AclKind::SquidError => "acl x squid_error ERR_DNS_FAIL".to_owned(),
            AclKind::Eui64 => "acl x eui64 00:00:00:ff:fe:00:00:00".to_owned(),
            AclKind::Arp => "acl x arp 00:00:00:00:00:00".to_owned(),
            AclKind::Time | AclKind::Dst | AclKind::AnyOf | AclKind::AllOf => continue,
            // They always match.
            AclKind::AnnotateTransaction | AclKind::AnnotateClient => continue,
            AclKind::ReqHeader | AclKind::RepHeader => format!("acl x {} X-A a", kind.name()),
            AclKind::SslError => "acl x ssl_error certUntrusted".to_owned(),
            AclKind::ServerCertFingerprint => format!("acl x {} {FINGERPRINT}", kind.name()),
            // The first step is also that of what is not intercepted.
            AclKind::AtStep => "acl x at_step SslBump2".to_owned(),
            _ => format!("acl x {} 1", kind.name()),
        };
        assert!(!list(&acl, "allow x").check(&nothing).is_allowed(), "{acl}");
    }
    assert!(list("acl all src all", "allow all").check(&nothing).is_allowed());
}

#[test]
fn groups() {
    let acls = "acl either any-of a b\nacl both all-of a !b\nacl both all-of c\nacl a port 80\nacl b method POST\n\
                acl c port 90\nacl far dst 192.0.2.1\nacl mixed any-of a far";
    let get = subject();
    let rows = [
        ("allow either", get, true),
        ("allow both", get, true),
        ("allow both", Subject { method: b"POST", ..get }, false),
        ("allow both", Subject { method: b"POST", port: 90, ..get }, true),
        ("allow either", Subject { port: 81, ..get }, false),
        ("allow EITHER !Both", Subject { method: b"POST", ..get }, true),
        ("allow mixed", get, true),
    ];
    for (rules, subject, want) in rows {
        assert_eq!(list(acls, rules).check(&subject).is_allowed(), want, "{rules} {subject:?}");
    }
    assert_eq!(list(acls, "allow mixed").check(&Subject { port: 81, ..get }), asks("far"));
}

fn compile_errors(text: &str) -> Vec<AclError> {
    AclSet::compile(&definitions(text)).err().unwrap_or_default()
}

#[test]
fn wrong_definitions_are_listed_with_their_place() {
    let errors = compile_errors(
        "acl a src 10.0.0.300\nacl ok port 80\nacl b port x\nacl c url_regex [\nacl d time Q\nacl e random 2\n\
         acl f any-of a nothing\nacl g req_header X\nacl h maxconn many\nacl i http_status x\n\
         acl j transaction_initiator Client",
    );
    let names: Vec<&str> = errors.iter().map(|error| error.acl.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "d", "e", "g", "h", "i", "j"]);
    assert_eq!(
        errors[1].to_string(),
        "squid.conf:2:5: acl b: `x` is not a port or a range of ports"
    );
    let missing = compile_errors("acl f any-of nothing");
    assert_eq!(missing[0].to_string(), "squid.conf:0:5: acl nothing: not defined");
    assert!(!compile_errors("acl x arp 00:11:22:33:44").is_empty());
    assert!(!compile_errors("acl x eui64 00:11:22:33:44:55:66").is_empty());
    assert_eq!(compile_errors("acl x maxconn")[0].problem, AclProblem::Missing);
}

#[test]
fn circles_and_depth_are_refused() {
    let circle = compile_errors("acl a any-of b\nacl b all-of a");
    assert!(circle.iter().all(|error| error.problem == AclProblem::Nesting) && !circle.is_empty());
    let mut deep: Vec<String> = (0..40).map(|n| format!("acl g{n} any-of g{}", n + 1)).collect();
    deep.push("acl g40 port 80".into());
    assert!(!compile_errors(&deep.join("\n")).is_empty());
    // Members that are defined, and so compiled, first are no burden.
    deep.reverse();
    assert!(compile_errors(&deep.join("\n")).is_empty());
}

#[test]
fn what_cannot_be_evaluated_is_an_error_only_where_it_is_used() {
    let text = format!("{SAMPLE}acl users ident REQUIRED\nacl staff any-of users localhost");
    let acls = AclSet::compile(&definitions(&text)).expect("unused, so no error");
    assert!(RuleList::compile(&acls, &access_rules(SAMPLE_RULES), false).is_ok());
    for rules in ["allow users", "deny !users", "allow staff", "allow localhost !USERS"] {
        let errors = RuleList::compile(&acls, &access_rules(rules), false).expect_err(rules);
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].acl, "users");
        assert!(matches!(errors[0].problem, AclProblem::Unsupported { kind: "ident", .. }));
    }
    let unknown =
        RuleList::compile(&acls, &access_rules("allow nobody"), false).expect_err("unknown");
    assert_eq!(unknown[0].problem, AclProblem::Undefined);
}

proptest! {
    #[test]
    fn arbitrary_values_are_harmless(
        kind in proptest::sample::select(AclKind::ALL),
        // No letters beyond those of days and hexadecimal: host names would be looked up.
        values in proptest::collection::vec("[0-9:./\\-]{0,12}|[\\[\\]\\\\(){}*+?|^$a-f{]{0,12}", 0..4),
        url in "[ -~]{0,40}",
    ) {
        let values: Vec<String> = if matches!(kind, AclKind::Src | AclKind::Dst | AclKind::LocalIp) {
            values.into_iter().filter(|value| !value.contains(|c: char| c.is_ascii_alphabetic())).collect()
        } else {
            values
        };
        let definition = AclDef {
            name: "x".into(),
            kind,
            flags: AclFlags::default(),
            values,
            annotations: Vec::new(),
            location: Location::default(),
        };
        if let Ok(acls) = AclSet::compile(&[definition])
            && let Ok(list) = RuleList::compile(&acls, &access_rules("allow x"), false)
        {
            let strange = Subject { url: url.as_bytes(), path: url.as_bytes(), host: url.as_bytes(), ..subject() };
            list.check(&strange);
        }
    }
}
