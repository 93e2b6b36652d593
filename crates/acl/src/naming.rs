//! Whether a rule applies because it names the destination.
//!
//! `acl wiki dstdomain wiki.example` does; `acl images url_regex \.png$` does not, as it matches
//! the same path anywhere, and nor does `acl web dst 0.0.0.0/0`.

use crate::matcher::{Acl, Match, Matcher, Term, all};
use crate::subject::Subject;

/// Whether one of the terms, all of which match the subject, names its destination. One behind `!`
/// names those that are not meant.
pub(crate) fn is_any(terms: &[Term], subject: &Subject<'_>, others: &[Subject<'_>]) -> bool {
    terms.iter().any(|term| !term.negated && names(&term.acl, subject, others))
}

/// Whether the rule does not apply to the subject only because one term behind `!` names its
/// destination: it applies to all others.
pub(crate) fn spares(terms: &[Term], subject: &Subject<'_>, others: &[Subject<'_>]) -> bool {
    terms.iter().enumerate().any(|(place, term)| {
        let mut rest = terms.iter().enumerate().filter(|(other, _)| *other != place);
        term.negated
            && names(&term.acl, subject, others)
            && rest.all(|(_, term)| term.check(subject, &mut None) == Match::Yes)
    })
}

/// Whether the ACL is about the destination, matches that of the subject, and none of the others.
fn names(acl: &Acl, subject: &Subject<'_>, others: &[Subject<'_>]) -> bool {
    let is_met = |subject: &Subject<'_>| acl.check(subject, &mut None) == Match::Yes;
    match &acl.matcher {
        Matcher::Destination { .. }
        | Matcher::Host(_)
        | Matcher::HostRegex(_)
        | Matcher::Url(_) => is_met(subject) && !others.iter().any(is_met),
        // The first member that matches decides.
        Matcher::AnyOf(terms) => {
            let first = terms.iter().find(|term| term.check(subject, &mut None) == Match::Yes);
            first.is_some_and(|term| is_any(std::slice::from_ref(term), subject, others))
        }
        Matcher::AllOf(lines) => {
            let first = lines.iter().find(|line| all(line, subject, &mut None) == Match::Yes);
            first.is_some_and(|line| is_any(line, subject, others))
        }
        _ => false,
    }
}

/// Whether those of the terms match the subject that are about the destination.
pub(crate) fn all_hold(terms: &[Term], subject: &Subject<'_>) -> bool {
    let holds = |term: &Term| term.check(subject, &mut None) == Match::Yes;
    terms.iter().all(|term| !is_about_destination(term) || holds(term))
}

/// Whether some of the terms are about the destination, and none of those says that it is not that
/// of the subject. What cannot be told may be so.
pub(crate) fn may_concern(terms: &[Term], subject: &Subject<'_>) -> bool {
    let mut about = terms.iter().filter(|term| is_about_destination(term)).peekable();
    about.peek().is_some() && about.all(|term| term.check(subject, &mut None) != Match::No)
}

/// Whether the term, or a member of its group, is about the destination.
fn is_about_destination(term: &Term) -> bool {
    match &term.acl.matcher {
        Matcher::Destination { .. }
        | Matcher::Host(_)
        | Matcher::HostRegex(_)
        | Matcher::Url(_) => true,
        Matcher::AnyOf(terms) => terms.iter().any(is_about_destination),
        Matcher::AllOf(lines) => lines.iter().flatten().any(is_about_destination),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use humboldt_conf::parse_str;

    use crate::{AclSet, Known, RuleList, Subject, Verdict};

    /// Whether the list allows `wiki.corp.example` at 10.0.0.7 because of a rule that names it.
    fn is_named(rules: &str) -> bool {
        let (config, found) = parse_str("t", &format!("http_port 1\n{rules}\n"));
        assert!(!found.has_errors(), "{}", found.render(false));
        let acls = AclSet::compile(&config.acl).unwrap();
        let list = RuleList::compile(&acls, &config.http_access, false).unwrap();
        let (here, there): ([IpAddr; 1], [IpAddr; 1]) =
            (["10.0.0.7".parse().unwrap()], ["198.51.100.1".parse().unwrap()]);
        let subject = Subject {
            host: b"wiki.corp.example",
            url: b"http://wiki.corp.example/a.png",
            method: b"GET",
            known: Known { dst_ips: Some(&here), ..Known::default() },
            ..Subject::default()
        };
        let other = Subject {
            host: b"elsewhere.invalid",
            url: b"http://elsewhere.invalid/a.png",
            known: Known { dst_ips: Some(&there), ..Known::default() },
            ..subject
        };
        match list.check(&subject) {
            Verdict::Allowed { rule } => {
                list.names_destination(rule.unwrap_or(usize::MAX), &subject, &[other])
            }
            _ => false,
        }
    }

    #[test]
    fn a_rule_names_the_destination_if_it_would_not_hold_for_another() {
        for acl in [
            "acl a dstdomain .corp.example",
            "acl a dstdomain wiki.corp.example other.example",
            "acl a dstdom_regex ^wiki\\.",
            "acl a dst 10.0.0.0/8",
            "acl a url_regex ^http://wiki\\.corp\\.example/",
            "acl w dstdomain .corp.example\nacl a any-of CONNECT w",
            "acl w dstdomain .corp.example\nacl a all-of all w",
        ] {
            assert!(is_named(&format!("{acl}\nhttp_access allow a")), "{acl}");
            assert!(is_named(&format!("{acl}\nhttp_access allow all a")), "{acl}");
        }
    }

    #[test]
    fn what_holds_everywhere_names_nothing() {
        for acl in [
            "acl a src all",
            "acl a dst all",
            "acl a dst 0.0.0.0/0",
            "acl a dstdom_regex .",
            "acl a url_regex -i \\.png$",
            "acl a url_regex ^http:",
            "acl a method GET",
            "acl w dstdomain .corp.example\nacl a any-of all w",
            "acl b dstdomain .invalid\nacl a all-of !b",
            "acl b dstdomain .invalid\nacl n any-of !b\nacl a any-of n",
        ] {
            assert!(!is_named(&format!("{acl}\nhttp_access allow a")), "{acl}");
        }
        assert!(!is_named("acl b dstdomain .invalid\nhttp_access allow !b"));
        assert!(!is_named("acl b dst 198.51.100.0/24\nhttp_access allow !b"));
        assert!(!is_named("acl b dstdomain .other\nhttp_access deny b"), "nothing applies");
    }

    /// Whether this rule of `http_access` leads to an address of wiki.corp.example.
    fn leads_to(rules: &str, index: usize) -> bool {
        let (config, found) = parse_str("t", rules);
        assert!(!found.has_errors(), "{}", found.render(false));
        let acls = AclSet::compile(&config.acl).unwrap();
        let list = RuleList::compile(&acls, &config.http_access, false).unwrap();
        let here: [IpAddr; 1] = ["10.0.0.7".parse().unwrap()];
        let known = Known { dst_ips: Some(&here), ..Known::default() };
        let subject = Subject { host: b"wiki.corp.example", known, ..Subject::default() };
        list.leads_to(index, &subject)
    }

    #[test]
    fn of_a_rule_that_has_let_a_request_in_only_its_destinations_are_asked_again() {
        let acls = "acl a dst 10.0.0.0/8\nacl b dst 10.1.0.0/16\nacl many maxconn 5\n\
                    acl g any-of many b\nacl w dstdomain .corp.example\n";
        for (rule, leads) in [
            ("allow a", true),
            ("allow w a", true),
            ("allow many a", true),
            ("allow all", true),
            ("allow a !b", true),
            ("allow a b", false),
            ("allow a !w", false),
            ("allow a g", false),
            ("deny a", false),
        ] {
            let rules = format!("http_port 1\n{acls}http_access {rule}\n");
            assert_eq!(leads_to(&rules, 0), leads, "{rule}");
            assert!(!leads_to(&rules, 1), "no such rule");
        }
    }

    #[test]
    fn earlier_lines_that_deny_have_their_say_about_another_address() {
        let acls = "acl office src 192.0.2.0/24\nacl inner dst 10.0.0.0/8\n\
                    acl other dst 10.1.0.0/16\nacl many maxconn 5\n\
                    acl wiki dstdomain .corp.example\nacl mail dstdomain .mail.example\n\
                    acl g any-of mail inner\nacl pair all-of wiki inner\n\
                    acl crowd all-of many inner\n";
        for (earlier, leads) in [
            ("deny !office inner", false),
            ("deny inner", false),
            ("deny many inner", false),
            ("deny !other", false),
            ("deny g", false),
            ("deny pair", false),
            // The group as a whole does not match, and the list would say the same.
            ("deny crowd", true),
            ("deny wiki inner", false),
            ("deny other", true),
            ("deny !inner", true),
            ("deny mail inner", true),
            ("deny many", true),
            ("deny !office", true),
            ("allow office inner", true),
        ] {
            let rules = format!(
                "http_port 1\n{acls}http_access {earlier}\nhttp_access deny other\n\
                 http_access allow wiki\nhttp_access deny inner\n"
            );
            assert_eq!(leads_to(&rules, 2), leads, "{earlier}");
        }
    }

    #[test]
    fn a_list_that_denies_all_others_names_those_that_it_spares() {
        let own = "acl own dstdomain .corp.example\nacl all_methods method GET POST\n";
        for rules in [
            "http_access deny !own\nhttp_access allow all",
            "http_access deny all_methods !own\nhttp_access allow all",
            "http_access deny !own",
            "acl g any-of own\nhttp_access deny !g\nhttp_access allow all",
        ] {
            assert!(is_named(&format!("{own}{rules}")), "{rules}");
        }
        for rules in [
            "acl post method POST\nhttp_access deny post !own\nhttp_access allow all",
            "http_access allow all\nhttp_access deny !own",
            "acl b dstdomain .other\nhttp_access deny b !own\nhttp_access allow all",
            "acl p urlpath_regex a\nhttp_access deny !p\nhttp_access allow all",
            "acl every dstdom_regex .\nhttp_access deny !every\nhttp_access allow all",
        ] {
            assert!(!is_named(&format!("{own}{rules}")), "{rules}");
        }
    }
}
