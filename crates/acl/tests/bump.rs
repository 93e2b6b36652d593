//! ACLs and lists about the interception of TLS.

use humboldt_acl::{AclSet, ActionList, ActionStep, Choice, Late, RuleList, Subject, Weight};
use std::rc::Rc;

use humboldt_base::bump::{BumpAction, BumpFacts, BumpStep, ClientHello, ServerIdentity};
use humboldt_conf::{BumpVerb, Config, parse_str};

fn config(text: &str) -> Config {
    let (config, found) =
        parse_str("t", &format!("http_port 1 ssl-bump tls-cert=/ca.pem\n{text}\n"));
    assert!(!found.has_errors(), "{}", found.render(false));
    config
}

fn hello(sni: Option<&str>) -> Option<ClientHello> {
    Some(ClientHello { sni: sni.map(Into::into), ..ClientHello::default() })
}

fn server(names: &[&str], faults: &[&'static str]) -> Rc<ServerIdentity> {
    Rc::new(ServerIdentity {
        names: names.iter().map(|&name| name.to_owned()).collect(),
        sha1: [7; 20],
        faults: faults.to_vec(),
        der: Box::new([1]),
        ..ServerIdentity::default()
    })
}

fn facts(step: BumpStep, connect: &str, sni: Option<&str>) -> BumpFacts {
    let hello = if step == BumpStep::One { None } else { hello(sni) };
    BumpFacts { step, hello, ..BumpFacts::new(connect) }
}

/// Whether an ACL matches.
fn matches(acl: &str, facts: Option<&BumpFacts>) -> bool {
    let config = config(&format!("acl x {acl}\nhttp_access allow x"));
    let acls = AclSet::compile(&config.acl).expect("compiles");
    let list = RuleList::compile(&acls, &config.http_access, false).expect("compiles");
    let subject = Subject { bump: facts, host: b"url.test", ..Subject::default() };
    list.check(&subject).is_allowed()
}

#[test]
fn steps_are_known_and_without_any_it_is_the_first() {
    for (step, number) in BumpStep::ALL.into_iter().zip(1..) {
        let facts = facts(step, "a.test", None);
        for value in 1..=3 {
            let matched = matches(&format!("at_step SslBump{value}"), Some(&facts));
            assert_eq!(matched, value == number, "{step:?} {value}");
        }
    }
    assert!(matches("at_step SslBump1", None) && !matches("at_step SslBump2 SslBump3", None));
    assert!(!matches("at_step GeneratingCONNECT", None));
}

#[test]
fn the_name_of_the_server_comes_from_what_is_known() {
    let first = facts(BumpStep::One, "connect.test", None);
    let second = facts(BumpStep::Two, "connect.test", Some("sni.test"));
    let nameless = facts(BumpStep::Two, "192.0.2.7", None);
    let mut third = facts(BumpStep::Three, "connect.test", Some("www.cert.test"));
    third.server = Some(server(&["*.cert.test", "other.test"], &[]));
    let hidden = facts(BumpStep::Three, "connect.test", Some("sni.test"));
    for (acl, facts, wanted) in [
        ("url.test", None, true),
        ("connect.test", Some(&first), true),
        ("url.test", Some(&first), false),
        ("sni.test", Some(&second), true),
        (".test", Some(&second), true),
        ("connect.test", Some(&second), false),
        ("192.0.2.7", Some(&nameless), true),
        ("none", Some(&nameless), true),
        ("none", Some(&second), false),
        ("none", Some(&first), false),
        // From here on the certificate counts.
        (".cert.test", Some(&third), true),
        ("other.test", Some(&third), true),
        // As in Squid, a certificate with a wildcard is for each of its names.
        ("www.cert.test", Some(&third), true),
        (".www.cert.test", Some(&third), true),
        ("www.www.cert.test", Some(&third), false),
        ("cert.test", Some(&third), false),
        ("--server-provided www.cert.test", Some(&third), true),
        ("connect.test", Some(&third), false),
        ("sni.test", Some(&hidden), true),
        ("--client-requested www.cert.test", Some(&third), true),
        ("--client-requested other.test", Some(&third), false),
        ("--client-requested sni.test", Some(&second), true),
        ("--server-provided other.test", Some(&third), true),
        ("--server-provided sni.test", Some(&second), false),
        ("--server-provided none", Some(&second), true),
        ("--consensus www.cert.test", Some(&third), true),
        ("--consensus other.test", Some(&third), false),
        ("--consensus sni.test", Some(&second), true),
    ] {
        assert_eq!(matches(&format!("ssl::server_name {acl}"), facts), wanted, "{acl} {facts:?}");
    }
    third.hello = hello(Some("sni.test"));
    assert!(!matches("ssl::server_name --consensus sni.test", Some(&third)));
    assert!(matches("ssl::server_name --consensus none", Some(&third)));
    for (acl, facts, wanted) in [
        (r"-i ^SNI\.", Some(&second), true),
        (r"^connect\.", Some(&second), false),
        (r"^none$", Some(&nameless), true),
        (r"\.cert\.test$", Some(&third), true),
        (r"^other\.", Some(&third), true),
        (r"^mail\.", Some(&third), false),
        (r"--client-requested ^sni", Some(&third), true),
    ] {
        let acl = format!("ssl::server_name_regex {acl}");
        assert_eq!(matches(&acl, facts), wanted, "{acl}");
    }
}

#[test]
fn faults_are_those_of_the_server_or_the_one_that_is_judged() {
    let mut third = facts(BumpStep::Three, "a.test", None);
    third.server = Some(server(&[], &["X509_V_ERR_CERT_HAS_EXPIRED"]));
    assert!(matches("ssl_error X509_V_ERR_CERT_HAS_EXPIRED", Some(&third)));
    assert!(matches("ssl_error ssl::certHasExpired certSelfSigned", Some(&third)));
    assert!(matches("any-of ssl::certHasExpired", Some(&third)));
    assert!(!matches("ssl_error certUntrusted", Some(&third)));
    assert!(!matches("ssl_error certHasExpired", None));
    let config = config("sslproxy_cert_error allow ssl::certUntrusted");
    let acls = AclSet::compile(&config.acl).expect("compiles");
    let list = RuleList::compile(&acls, &config.sslproxy_cert_error, false).expect("compiles");
    for (fault, wanted) in [
        ("X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY", true),
        ("X509_V_ERR_CERT_HAS_EXPIRED", false),
    ] {
        let late = Late { tls_fault: Some(fault), ..Late::NONE };
        let subject = Subject { late: &late, bump: Some(&third), ..Subject::default() };
        assert_eq!(list.check(&subject).is_allowed(), wanted, "{fault}");
    }
}

#[test]
fn a_certificate_has_a_fingerprint_that_rules_about_requests_must_know() {
    let sha1 = "07:".repeat(19) + "07";
    let acl = format!("server_cert_fingerprint -sha1 {sha1} {}", sha1.replace("07", "08"));
    let mut inside = facts(BumpStep::Three, "a.test", None);
    inside.action = Some(BumpAction::Bump);
    inside.server = Some(server(&[], &[]));
    assert!(matches(&acl, Some(&inside)));
    assert!(!matches(&acl.replace("07", "09"), Some(&inside)));
    // Decrypted without it: no rule allows, and one that denies does.
    inside.server = None;
    for (rules, wanted) in [
        ("http_access allow x", false),
        ("http_access allow !x", false),
        ("http_access deny x\nhttp_access allow all", false),
        ("http_access deny !x\nhttp_access allow all", false),
    ] {
        let config = config(&format!("acl x {acl}\n{rules}"));
        let acls = AclSet::compile(&config.acl).expect("compiles");
        let list = RuleList::compile(&acls, &config.http_access, false).expect("compiles");
        let subject = Subject { bump: Some(&inside), ..Subject::default() };
        assert_eq!(list.check(&subject).is_allowed(), wanted, "{rules}");
        let plain = Subject::default();
        assert_eq!(
            list.check(&plain).is_allowed(),
            rules.contains("allow !x") || rules.starts_with("http_access deny x")
        );
    }
}

#[test]
fn connections_with_tls_are_known() {
    let config = config("acl enc connections_encrypted\nhttp_access allow enc");
    let acls = AclSet::compile(&config.acl).expect("compiles");
    let list = RuleList::compile(&acls, &config.http_access, false).expect("compiles");
    for is_encrypted in [false, true] {
        let subject = Subject { is_encrypted, ..Subject::default() };
        assert_eq!(list.check(&subject).is_allowed(), is_encrypted);
    }
}

struct Rules {
    list: ActionList<BumpVerb>,
}

impl Rules {
    fn new(text: &str) -> Self {
        let config = config(text);
        let acls = AclSet::compile(&config.acl).expect("compiles");
        let rules = config.ssl_bump.iter();
        let rules = rules.map(|rule| (rule.verb, &*rule.terms, &rule.source));
        Self { list: ActionList::compile(&acls, rules).expect("compiles") }
    }

    fn weigh(facts: &BumpFacts) -> impl Fn(&BumpVerb) -> Option<Weight> + '_ {
        |verb| Weight::of_bump(*verb, facts.step, facts.action)
    }

    /// The action at a step, after the last one.
    fn action(&self, facts: &BumpFacts) -> Option<BumpAction> {
        let subject = Subject { bump: Some(facts), ..Subject::default() };
        match self.list.check(&subject, Self::weigh(facts)) {
            Choice::Rule(index) | Choice::Guard(index) => {
                self.list.rule(index).and_then(|(verb, _)| verb.at(facts.step))
            }
            Choice::None => None,
            Choice::Later => Some(BumpAction::in_doubt(facts.step, facts.action, true)),
            Choice::Untold => Some(BumpAction::in_doubt(facts.step, facts.action, false)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_first_rule_that_is_possible_decides() {
    let rules = Rules::new(
        "acl step1 at_step SslBump1\nacl bank ssl::server_name .bank.test\nssl_bump peek step1\n\
         ssl_bump splice bank\nssl_bump stare all\nssl_bump bump all",
    );
    let first = facts(BumpStep::One, "192.0.2.1", None);
    assert_eq!(rules.action(&first), Some(BumpAction::Peek));
    let after_peek = |sni| BumpFacts {
        action: Some(BumpAction::Peek),
        ..facts(BumpStep::Two, "192.0.2.1", Some(sni))
    };
    assert_eq!(rules.action(&after_peek("www.bank.test")), Some(BumpAction::Splice));
    assert_eq!(rules.action(&after_peek("other.test")), Some(BumpAction::Stare));
    let mut third = facts(BumpStep::Three, "192.0.2.1", Some("other.test"));
    third.action = Some(BumpAction::Stare);
    third.server = Some(server(&["www.bank.test"], &[]));
    assert_eq!(rules.action(&third), Some(BumpAction::Bump), "splice is impossible");
    third.action = Some(BumpAction::Peek);
    assert_eq!(rules.action(&third), Some(BumpAction::Splice));
    assert_eq!(Rules::new("ssl_bump peek all").action(&third), None);
    let old = Rules::new("ssl_bump server-first all");
    assert_eq!(old.action(&first), Some(BumpAction::Stare));
    third.action = Some(BumpAction::Stare);
    assert_eq!(old.action(&third), Some(BumpAction::Bump));
    assert_eq!(Rules::new("ssl_bump client-first all").action(&after_peek("a")), None);
}

#[test]
fn what_is_not_known_lets_nothing_pass() {
    let sha1 = "07:".repeat(19) + "07";
    let acl =
        format!("acl bad server_cert_fingerprint {sha1}\nacl own ssl::server_name .own.test\n");
    let rules = |text: &str| Rules::new(&format!("{acl}{text}"));
    let second = BumpFacts {
        action: Some(BumpAction::Peek),
        ..facts(BumpStep::Two, "192.0.2.1", Some("a.test"))
    };
    // Behind `!` an unknown certificate matches as in Squid, but opens no way.
    // Without another rule, the certificate is waited for.
    let peek = Some(BumpAction::Peek);
    assert_eq!(rules("ssl_bump splice !bad").action(&second), peek);
    assert_eq!(rules("acl g all-of !bad\nssl_bump splice g").action(&second), peek);
    assert_eq!(rules("ssl_bump splice !bad !own").action(&second), peek);
    let end = Some(BumpAction::Terminate);
    assert_eq!(rules("ssl_bump splice !bad\nssl_bump terminate all").action(&second), end);
    assert_eq!(rules("ssl_bump bump !bad").action(&second), Some(BumpAction::Bump));
    assert_eq!(rules("ssl_bump terminate !bad").action(&second), Some(BumpAction::Terminate));
    // It may be shown later.
    assert_eq!(
        rules("ssl_bump terminate bad\nssl_bump peek all").action(&second),
        Some(BumpAction::Peek)
    );
    let mut third = facts(BumpStep::Three, "192.0.2.1", Some("a.test"));
    third.action = Some(BumpAction::Peek);
    let guard = rules("ssl_bump terminate bad\nssl_bump splice all");
    assert_eq!(guard.action(&third), Some(BumpAction::Terminate), "it was hidden");
    let choice = |rules: &Rules, facts: &BumpFacts| {
        let subject = Subject { bump: Some(facts), ..Subject::default() };
        match rules.list.check(&subject, Rules::weigh(facts)) {
            Choice::Guard(_) => "guards",
            Choice::Rule(_) => "applies",
            _ => "",
        }
    };
    assert_eq!(choice(&guard, &third), "guards");
    // That of the name is known.
    let by_name = rules("ssl_bump terminate !own\nssl_bump splice all");
    assert_eq!(choice(&by_name, &third), "applies");
    let not_own = rules("ssl_bump terminate own bad\nssl_bump splice all");
    assert_eq!(not_own.action(&third), Some(BumpAction::Splice), "the rule is about others");
    assert_eq!(rules("ssl_bump splice !bad").action(&third), end, "hidden for good");
    third.server = Some(server(&["a.test"], &[]));
    assert_eq!(guard.action(&third), Some(BumpAction::Terminate));
    third.server = Some(Rc::new(ServerIdentity {
        sha1: [8; 20],
        ..ServerIdentity::clone(&server(&["a.test"], &[]))
    }));
    assert_eq!(guard.action(&third), Some(BumpAction::Splice));
    assert_eq!(rules("ssl_bump splice !bad").action(&third), Some(BumpAction::Splice));
}

#[test]
fn names_behind_a_negation_are_known_at_each_step() {
    let rules = Rules::new(
        "acl own ssl::server_name .own.test\nacl step1 at_step SslBump1\nssl_bump peek step1\n\
         ssl_bump terminate !own\nssl_bump splice all",
    );
    let second = |sni| BumpFacts {
        action: Some(BumpAction::Peek),
        ..facts(BumpStep::Two, "192.0.2.1", sni)
    };
    for (sni, wanted) in [
        (Some("www.own.test"), BumpAction::Splice),
        (Some("other.test"), BumpAction::Terminate),
        (None, BumpAction::Terminate),
    ] {
        assert_eq!(rules.action(&second(sni)), Some(wanted), "{sni:?}");
    }
}

#[test]
fn questions_and_logins_are_no_answers() {
    let rules = Rules::new("acl far dst 192.0.2.0/24\nssl_bump splice far");
    let first = facts(BumpStep::One, "a.test", None);
    let subject = Subject { bump: Some(&first), host: b"a.test", ..Subject::default() };
    let choice = rules.list.check(&subject, Rules::weigh(&first));
    assert!(matches!(choice, Choice::Needs(_)), "{choice:?}");
    let steps: Vec<_> = rules.list.steps(&subject, Rules::weigh(&first)).collect();
    assert!(matches!(steps.as_slice(), [(_, ActionStep::Needs(_))]), "{steps:?}");
}

#[test]
fn each_rule_says_why_it_does_not_decide() {
    let rules = Rules::new(
        "acl own ssl::server_name .own.test\nssl_bump splice own\nssl_bump peek all\n\
         ssl_bump terminate !own\nssl_bump splice all",
    );
    let mut third = facts(BumpStep::Three, "a.test", Some("b.test"));
    third.action = Some(BumpAction::Peek);
    let subject = Subject { bump: Some(&third), ..Subject::default() };
    let steps: Vec<_> =
        rules.list.steps(&subject, Rules::weigh(&third)).map(|(_, step)| step).collect();
    let differs = ActionStep::Differs { acl: "own", negated: false };
    assert_eq!(steps, [differs, ActionStep::Impossible, ActionStep::Applies]);
}

#[test]
fn a_client_without_an_address_is_terminated_rather_than_let_pass() {
    let first = facts(BumpStep::One, "a.test", None);
    for (text, wanted) in [
        ("ssl_bump splice lan", BumpAction::Terminate),
        ("ssl_bump splice !lan", BumpAction::Terminate),
        ("ssl_bump bump lan", BumpAction::Terminate),
        ("ssl_bump bump lan\nssl_bump splice all", BumpAction::Splice),
        ("ssl_bump terminate lan", BumpAction::Terminate),
    ] {
        let text = format!("acl lan src 10.0.0.0/8\n{text}");
        assert_eq!(Rules::new(&text).action(&first), Some(wanted), "{text}");
    }
    // The rule is about other servers.
    let text = "acl lan src 10.0.0.0/8\nacl other ssl::server_name b.test\nssl_bump bump lan other";
    assert_eq!(Rules::new(text).action(&first), None);
}

/// Everybody can make a certificate that has a fault, and one with a wildcard is for many hosts:
/// such a name closes a way, and opens none unless the client asks for it.
#[test]
fn a_name_that_proves_nothing_opens_no_way() {
    let untrusted: &[&'static str] = &["X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT"];
    let third = |sni: Option<&str>, name: &str, faults: &[&'static str]| {
        let mut facts = facts(BumpStep::Three, "192.0.2.1", sni);
        facts.action = Some(BumpAction::Peek);
        facts.server = Some(server(&[name], faults));
        facts
    };
    use BumpAction::{Splice, Terminate};
    for (sni, name, faults, opened, closed) in [
        // Who asks, who is certified, what `splice ok` and `terminate ok` before all others do.
        ("www.ok.test", "www.ok.test", &[][..], Splice, Terminate),
        ("www.ok.test", "www.ok.test", untrusted, Splice, Terminate),
        ("www.ok.test", "*.ok.test", &[], Splice, Terminate),
        ("evil.test", "www.ok.test", untrusted, Terminate, Terminate),
        ("evil.test", "*.ok.test", untrusted, Terminate, Terminate),
        ("www.ok.test", "evil.test", untrusted, Terminate, Terminate),
        ("evil.test", "evil.test", &[], Terminate, Splice),
        ("evil.test", "evil.test", untrusted, Terminate, Splice),
        // As in Squid one of several names is enough.
        ("evil.test", "www.ok.test", &[], Splice, Terminate),
        ("evil.ok.test", "*.ok.test", &[], Terminate, Terminate),
    ] {
        let facts = third(Some(sni), name, faults);
        for value in ["ssl::server_name www.ok.test", r"ssl::server_name_regex ^www\.ok\.test$"] {
            let is_regex_and_wildcard = value.contains('^') && name.starts_with('*');
            let acl = format!("acl ok {value}\n");
            let opening = Rules::new(&format!("{acl}ssl_bump splice ok\nssl_bump terminate all"));
            assert_eq!(opening.action(&facts), Some(opened), "{value} {sni} {name} {faults:?}");
            let closing = Rules::new(&format!("{acl}ssl_bump terminate ok\nssl_bump splice all"));
            if !is_regex_and_wildcard || sni == "www.ok.test" {
                assert_eq!(closing.action(&facts), Some(closed), "{value} {sni} {name} {faults:?}");
            }
        }
    }
    // The opposite is no proof either.
    let hides = third(Some("bad.test"), "other.test", untrusted);
    for name in ["bad.test", "--server-provided bad.test"] {
        let text = format!("acl bad ssl::server_name {name}\nssl_bump splice !bad\n");
        assert_eq!(Rules::new(&text).action(&hides), Some(Terminate), "{name}");
    }
    // Rules about requests go the same way.
    for (rule, is_allowed) in [
        ("allow bad", false),
        ("allow !bad", false),
        ("deny bad\nhttp_access allow all", false),
        ("deny !bad\nhttp_access allow all", false),
        ("deny good\nhttp_access allow all", true),
    ] {
        let text = "acl bad ssl::server_name bad.test\nacl good ssl::server_name .good.test";
        let config = config(&format!("{text}\nhttp_access {rule}"));
        let acls = AclSet::compile(&config.acl).expect("compiles");
        let list = RuleList::compile(&acls, &config.http_access, false).expect("compiles");
        let subject = Subject { bump: Some(&hides), ..Subject::default() };
        assert_eq!(list.check(&subject).is_allowed(), is_allowed, "{rule}");
    }
}
