//! The differences that are meant, one case of each: docs/squid-differences.md has the reasons.

use crate::requests::{Case, Verdict};
use crate::sets::{Acl, AclLine, Rule, RuleSet, Term};

/// A set of rules with a request, and the status of Squid's answer and of ours.
pub(crate) type Meant = (RuleSet, Vec<Case>, (u16, u16));

/// One case of each difference.
pub(crate) fn all() -> Vec<Meant> {
    let (v4, v6) = ("127.0.0.1", "::1");
    let plain = "http://a.example.com/";
    vec![
        (allow("src", &["ipv4"]), ask(v4, "GET", plain), (403, 200)),
        (allow("src", &["127.0.0.0/0"]), ask(v4, "GET", plain), (403, 200)),
        (allow("src", &["ipv6"]), ask(v6, "GET", plain), (403, 200)),
        (allow("src", &["::/0"]), ask(v6, "GET", plain), (403, 200)),
        (allow("src", &["::1", "all"]), ask(v4, "GET", plain), (403, 200)),
        (
            allow("dstdomain", &["-n", "2001:db8::1"]),
            ask(v4, "GET", "http://[2001:db8::1]/"),
            (403, 200),
        ),
        (RuleSet::default(), ask(v4, "GET", "http://user:pass@a.example.com/"), (200, 400)),
        (denied_reply(), ask(v4, "POST", "ftp://a.example.com/"), (403, 501)),
        (redirect("http://where.test/"), ask(v4, "get", plain), (302, 307)),
    ]
}

/// Whether a difference is as it is written down.
pub(crate) fn is_as_meant((theirs, ours): &(Verdict, Verdict), meant: (u16, u16)) -> bool {
    (theirs.status, ours.status) == meant
}

fn ask(client: &str, method: &str, target: &str) -> Vec<Case> {
    let client = client.parse().expect("an address");
    let fields = vec![("Host".to_owned(), "x".to_owned())];
    let (method, target) = (method.to_owned(), target.to_owned());
    vec![Case { client, local: client, method, target, fields, twice: false }]
}

/// Allows what one ACL matches, and denies all else.
fn allow(kind: &'static str, values: &[&str]) -> RuleSet {
    let values = values.iter().map(ToString::to_string).collect();
    let line = AclLine { values, ..AclLine::default() };
    let first = Term { acl: 0, negated: false };
    RuleSet {
        acls: vec![Acl { kind, lines: vec![line] }],
        rules: vec![rule("http_access", true, vec![first]), rule("http_access", false, Vec::new())],
        ..RuleSet::default()
    }
}

fn rule(list: &'static str, allow: bool, terms: Vec<Term>) -> Rule {
    Rule { list, allow, terms }
}

fn denied_reply() -> RuleSet {
    let rules = vec![rule("http_reply_access", false, Vec::new())];
    RuleSet { rules, ..RuleSet::default() }
}

/// Denies everything with this answer.
fn redirect(page: &str) -> RuleSet {
    let mut set = allow("src", &["all"]);
    set.rules[0].allow = false;
    RuleSet { deny_infos: vec![(page.to_owned(), 0)], ..set }
}
