//! ACLs about users: questions, and the ends of lists that ask for a login.

use humboldt_acl::{AclSet, Known, Login, Question, RuleList, Subject, Verdict};
use humboldt_conf::{AccessRule, AclDef, AclFlags, AclKind, AclTerm, Location};

/// One definition: name, type, words.
fn define(name: &str, kind: &str, words: &[&str]) -> AclDef {
    let every_user = words.first() == Some(&"REQUIRED");
    let values = words.iter().filter(|word| **word != "REQUIRED").map(ToString::to_string);
    AclDef {
        name: name.into(),
        kind: AclKind::from_name(kind).expect("a kind"),
        flags: AclFlags { every_user, ..AclFlags::default() },
        annotations: Vec::new(),
        values: values.collect(),
        location: Location::default(),
    }
}

fn list(rules: &str) -> RuleList {
    let acls = [
        define("all", "src", &["all"]),
        define("post", "method", &["POST"]),
        define("users", "proxy_auth", &["REQUIRED"]),
        define("staff", "proxy_auth", &["anna", "bo"]),
        define("admins", "proxy_auth_regex", &["-i", "^adm"]),
        define("either", "any-of", &["post", "staff"]),
        define("both", "all-of", &["users staff"]),
        define("mixed", "any-of", &["staff", "post"]),
    ];
    let acls = AclSet::compile(&acls).expect("definitions");
    let rules = rules.split(" / ").map(|rule| {
        let (action, terms) = rule.split_once(' ').expect("a rule");
        let terms = terms.split(' ').map(|term| AclTerm {
            name: term.trim_start_matches('!').into(),
            negated: term.starts_with('!'),
        });
        AccessRule { allow: action == "allow", terms: terms.collect(), source: None }
    });
    RuleList::compile(&acls, &rules.collect::<Vec<_>>(), false).expect("rules")
}

fn with(login: Option<Login<'_>>) -> Subject<'_> {
    Subject { method: b"GET", known: Known { login, ..Known::default() }, ..Subject::default() }
}

#[test]
fn a_list_asks_for_the_user_where_it_comes_to_the_acl() {
    for (rules, asks) in [
        ("allow users", Some("users")),
        ("allow post users / deny all", None),
        ("deny !staff", Some("staff")),
        ("allow either", Some("staff")),
        ("allow all / deny users", None),
        ("deny admins", Some("admins")),
    ] {
        let verdict = match list(rules).check(&with(None)) {
            Verdict::Needs(Question::User { acl }) => Some(acl.to_owned()),
            _ => None,
        };
        assert_eq!(verdict.as_deref(), asks, "{rules}");
    }
}

/// As in Squid: it does not matter whether a later rule would allow the request.
#[test]
fn without_a_login_the_list_ends_at_the_first_acl_that_asks() {
    for (rules, acl, rule) in [
        ("allow users / allow all", "users", 0),
        ("deny !users / allow all", "users", 0),
        ("deny staff / allow all", "staff", 0),
        ("allow !either / allow all", "staff", 0),
        ("deny both / allow all", "users", 0),
        ("allow post / deny post / allow users / deny all", "users", 2),
    ] {
        let list = list(rules);
        let verdict = list.check(&with(Some(Login::Missing)));
        assert_eq!(verdict, Verdict::Challenge { acl, rule }, "{rules}");
    }
    assert!(list("allow all / deny users").check(&with(Some(Login::Missing))).is_allowed());
}

#[test]
fn users_match_by_name() {
    for (user, rules, allowed) in [
        ("anna", "allow staff", true),
        ("Anna", "allow staff", false),
        ("eve", "allow staff", false),
        ("eve", "allow users", true),
        ("eve", "deny !staff / allow all", false),
        ("bo", "deny !staff / allow all", true),
        ("ADMIN", "allow admins", true),
        ("bo", "allow admins", false),
        ("bo", "allow both", true),
        // Squid's name for nobody.
        ("-", "allow users", false),
    ] {
        let verdict = list(rules).check(&with(Some(Login::User(user)))).is_allowed();
        assert_eq!(verdict, allowed, "{user}: {rules}");
    }
}

/// As in Squid: the ACL that was tested last decides whether a denial asks for another login.
#[test]
fn a_denial_that_ends_with_an_acl_about_users_asks_for_another_login() {
    for (rules, login) in [
        ("deny !staff", Some("staff")),
        ("deny !staff all", None),
        ("deny all !staff", Some("staff")),
        ("deny users", Some("users")),
        ("allow staff", Some("staff")),
        ("allow staff all", Some("staff")),
        ("allow all staff", Some("staff")),
        ("allow users post", None),
        ("allow staff / deny all", None),
        ("deny !either", Some("staff")),
        ("deny !mixed", None),
        ("deny !both", Some("staff")),
        ("allow mixed", None),
    ] {
        let list = list(rules);
        match list.check(&with(Some(Login::User("eve")))) {
            Verdict::Denied { last_acl, wants_login, .. } => {
                assert_eq!(last_acl.filter(|_| wants_login), login, "{rules}");
            }
            other => panic!("{rules}: {other:?}"),
        }
    }
}
