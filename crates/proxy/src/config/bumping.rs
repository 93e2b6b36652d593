//! The rules about the interception of TLS, compiled.

use std::sync::Arc;

use humboldt_acl::{AclError, AclSet, ActionList, RuleList};
use humboldt_base::bump::SignAs;
use humboldt_conf::{AccessRule, AclTerm, BumpVerb, CertAdapt, Config, RuleSource};

/// A rule with an action of its own: the action, the ACLs, the line.
type Rule<'r, A> = (A, &'r [AclTerm], &'r Arc<RuleSource>);

fn list<'r, R, A>(
    acls: &AclSet,
    rules: &'r [R],
    take: impl Fn(&'r R) -> Rule<'r, A>,
) -> Result<ActionList<A>, Vec<AclError>> {
    ActionList::compile(acls, rules.iter().map(take))
}

/// `ssl_bump`
pub(super) fn ssl_bump(
    acls: &AclSet,
    config: &Config,
) -> Result<ActionList<BumpVerb>, Vec<AclError>> {
    list(acls, &config.ssl_bump, |rule| (rule.verb, &rule.terms, &rule.source))
}

/// `sslproxy_cert_sign`
pub(super) fn cert_sign(
    acls: &AclSet,
    config: &Config,
) -> Result<ActionList<SignAs>, Vec<AclError>> {
    list(acls, &config.sslproxy_cert_sign, |rule| (rule.sign, &rule.terms, &rule.source))
}

/// `sslproxy_cert_adapt`
pub(super) fn cert_adapt(
    acls: &AclSet,
    config: &Config,
) -> Result<ActionList<CertAdapt>, Vec<AclError>> {
    list(acls, &config.sslproxy_cert_adapt, |rule| (rule.adapt.clone(), &rule.terms, &rule.source))
}

/// `on_unsupported_protocol`: whether bytes that are no TLS pass unread.
pub(super) fn unsupported_protocol(
    acls: &AclSet,
    config: &Config,
) -> Result<ActionList<bool>, Vec<AclError>> {
    list(acls, &config.on_unsupported_protocol, |rule| (rule.tunnels, &rule.terms, &rule.source))
}

/// `sslproxy_cert_error`, if it may forgive something: only a rule that allows does. Unlike in
/// Squid, a last one that denies does not mean that all others are allowed.
pub(super) fn cert_error(
    acls: &AclSet,
    config: &Config,
) -> Result<Option<RuleList>, Vec<AclError>> {
    let mut rules = config.sslproxy_cert_error.clone();
    let may_forgive = rules.iter().any(|rule| rule.allow);
    rules.push(AccessRule { allow: false, terms: Vec::new(), source: None });
    let list = RuleList::compile(acls, &rules, false)?;
    Ok(may_forgive.then_some(list))
}

#[cfg(test)]
mod tests {
    use humboldt_acl::{Late, Subject};
    use humboldt_conf::parse_str;

    use super::*;

    fn forgives(rules: &str, fault: &str) -> bool {
        let (config, found) = parse_str("t", &format!("http_port 1\n{rules}\n"));
        assert!(!found.has_errors(), "{}", found.render(false));
        let acls = AclSet::compile(&config.acl).expect("compiles");
        let Some(list) = cert_error(&acls, &config).expect("compiles") else {
            assert!(!rules.contains("allow"), "{rules}");
            return false;
        };
        assert!(rules.contains("allow"), "nobody has to look at servers for {rules}");
        let late = Late { tls_fault: Some(fault), ..Late::NONE };
        list.check(&Subject { late: &late, host: b"a.test", ..Subject::default() }).is_allowed()
    }

    #[test]
    fn only_a_rule_that_allows_forgives() {
        let expired = "X509_V_ERR_CERT_HAS_EXPIRED";
        for (rules, wanted) in [
            ("sslproxy_cert_error allow all", true),
            ("sslproxy_cert_error deny all", false),
            ("sslproxy_cert_error allow ssl::certHasExpired", true),
            ("sslproxy_cert_error allow ssl::certSelfSigned", false),
            ("sslproxy_cert_error deny ssl::certSelfSigned", false),
            ("acl own dstdomain a.test\nsslproxy_cert_error allow own ssl::certHasExpired", true),
            ("acl own dstdomain b.test\nsslproxy_cert_error allow own", false),
            ("sslproxy_cert_error allow !ssl::certSelfSigned", true),
            ("sslproxy_cert_error deny ssl::certSelfSigned\nsslproxy_cert_error allow all", true),
            ("", false),
        ] {
            assert_eq!(forgives(rules, expired), wanted, "{rules}");
        }
    }
}
