//! Checks of the interception of TLS that need the whole configuration.

use std::collections::BTreeSet;

use crate::diagnostics::Severity;
use crate::lists::List;
use crate::state::{GROUP_DEPTH_MAX, State};
use crate::table::Config;
use crate::types::{AclKind, AclTerm, BumpRule, BumpVerb, HttpPort, MissingFilter, RuleSource};
use humboldt_base::bump::{BumpAction, BumpStep};

/// Completes and checks ports and rules.
pub(crate) fn finish(config: &mut Config, state: &mut State) {
    if config.run_without.contains(&MissingFilter::SslBump) {
        run_without(config, state);
        return;
    }
    complete_old_rules(config, state);
    check_ports(config, state);
    check_outgoing(config, state);
    check_order(config, state);
    check_forgiven(config, state);
    check_steps(config, state);
    check_unsupported_protocol(config, state);
}

/// `run_without ssl_bump`: everything passes unread.
fn run_without(config: &mut Config, state: &mut State) {
    if !config.ssl_bump.is_empty() {
        let message = "`run_without ssl_bump`: the rules of `ssl_bump` are left out";
        let help = "remove `run_without ssl_bump` to have them obeyed";
        state.report_general(Severity::Warning, message, help);
    }
    config.ssl_bump.clear();
    config.http_port.iter_mut().for_each(|port| port.bump = None);
    // These have no other purpose than to let the connections through.
    for bump in config.https_port.iter_mut().filter_map(|port| port.bump.as_mut()) {
        bump.certificate = None;
    }
}

/// Behind `allow` and `deny`, the opposite of the last rule is meant, as in Squid.
fn complete_old_rules(config: &mut Config, state: &mut State) {
    let last = config.ssl_bump.last().filter(|_| state.bump_style == Some(true));
    let Some(last) = last.filter(|last| last.verb != BumpVerb::ClientFirst) else { return };
    let message = format!(
        "{}: the last rule of `ssl_bump` is `deny`, so all other connections are decrypted",
        last.source.place()
    );
    let help = "write `ssl_bump bump all` behind it, and `splice` for `deny`";
    state.report_general(Severity::Warning, &message, help);
    let text = "ssl_bump: no line applies, so the opposite of the last one holds".to_owned();
    let source = RuleSource { text, ..RuleSource::clone(&last.source) }.into();
    config.ssl_bump.push(BumpRule { verb: BumpVerb::ClientFirst, terms: Vec::new(), source });
}

fn check_ports(config: &Config, state: &mut State) {
    let ports: Vec<&HttpPort> = config.ports().filter(|port| port.bump.is_some()).collect();
    let Some(first) = ports.first() else {
        if let Some(rule) = config.ssl_bump.first() {
            let message = format!("{}: no port has `ssl-bump`", rule.source.place());
            let help = "the rules of `ssl_bump` do nothing: write `ssl-bump` behind an `http_port`";
            state.report_general(Severity::Warning, &message, help);
        }
        return;
    };
    let place = |port: &HttpPort| port.bump.as_ref().map(|bump| bump.location.to_string());
    if config.ssl_bump.is_empty() {
        let place = place(first).unwrap_or_default();
        let message = format!("{place}: a port has `ssl-bump`, and there is no rule of `ssl_bump`");
        let help = "all tunnels pass unread: write for example `ssl_bump bump all`";
        state.report_general(Severity::Warning, &message, help);
    }
    let decrypts = config.ssl_bump.iter().find(|rule| rule.verb.decrypts());
    let has_none =
        |port: &&&HttpPort| port.bump.as_ref().is_some_and(|bump| bump.certificate.is_none());
    if let (Some(rule), Some(port)) = (decrypts, ports.iter().find(has_none)) {
        let message = format!(
            "{}: this rule decrypts, and the port at {} has no certificate to do that with",
            rule.source.place(),
            place(port).unwrap_or_default(),
        );
        let help = "write `tls-cert=FILE` behind `ssl-bump`, with the certificate of an authority \
                    and its key";
        state.report_general(Severity::Error, &message, help);
    }
}

/// What is decrypted goes on to its server, encrypted again.
fn check_outgoing(config: &Config, state: &mut State) {
    let decrypts = config.ssl_bump.iter().find(|rule| rule.verb.decrypts());
    let outgoing = &config.tls_outgoing_options;
    let (Some(rule), true) = (decrypts, outgoing.is_disabled && has_bump(config)) else { return };
    // Such a parent has settings of its own.
    let may_reach = config.cache_peer.iter().any(|peer| peer.originserver && peer.tls.is_some());
    let message = format!(
        "{}: this rule decrypts, and {} has `tls_outgoing_options disable`: the servers cannot be \
         asked",
        rule.source.place(),
        outgoing.location,
    );
    let severity = if may_reach { Severity::Warning } else { Severity::Error };
    state.report_general(severity, &message, "remove one of the two lines");
}

fn has_bump(config: &Config) -> bool {
    config.ports().any(|port| port.bump.is_some())
}

/// Faults are forgiven on all ways to servers, and a certificate shows them only where a connection
/// is decrypted.
fn check_forgiven(config: &Config, state: &mut State) {
    let is_shown = has_bump(config) && config.ssl_bump.iter().any(|rule| rule.verb.decrypts());
    let mut rules = config.sslproxy_cert_error.iter();
    let Some(rule) = rules.find(|rule| rule.allow).filter(|_| !is_shown) else { return };
    let place = rule.source.as_ref().map(|source| source.place()).unwrap_or_default();
    let message = format!(
        "{place}: nothing is decrypted here, so faults of servers of `https://` URLs and of \
         accelerators are forgiven without a word to the client"
    );
    let help = "remove the line, unless that is meant";
    state.report_general(Severity::Warning, &message, help);
}

/// Lists that are asked where there are steps, if a port intercepts.
const WITH_STEPS: &[List] = &[
    List::SslBump,
    List::CertError,
    List::CertSign,
    List::CertAdapt,
    List::OnUnsupportedProtocol,
    List::HttpAccess,
    List::AdaptedHttpAccess,
    List::HttpAccessReportOnly,
    List::ReportOnly,
    List::HttpReplyAccess,
    List::AccessLog,
    List::Note,
];

/// Outside of interception it is always the first step, as in Squid.
fn check_steps(config: &Config, state: &mut State) {
    let has_steps = |list: List| match list {
        List::SslBump => true,
        _ => has_bump(config) && WITH_STEPS.contains(&list),
    };
    let used = state.used.iter().filter(|((_, list), refused)| !**refused && !has_steps(*list));
    let found: BTreeSet<(String, &str)> = used
        .filter_map(|((name, list), _)| Some((step_within(config, name, 0)?, list.name())))
        .collect();
    for (acl, list) in found {
        let message = format!(
            "{acl} is about the steps of `ssl_bump`, and {list} is asked where there are none: \
             SslBump1 always matches, and the others never do"
        );
        let help = "use it in `ssl_bump`, or in `http_access` with a port that has `ssl-bump`";
        state.report_general(Severity::Warning, &message, help);
    }
}

/// The place and the name of an `at_step`: this ACL, or a member of it.
fn step_within(config: &Config, name: &str, depth: usize) -> Option<String> {
    let acl = config.acl.iter().find(|acl| acl.name.eq_ignore_ascii_case(name))?;
    match acl.kind {
        AclKind::AtStep => Some(format!("{}: acl `{}`", acl.location, acl.name)),
        AclKind::AnyOf | AclKind::AllOf if depth < GROUP_DEPTH_MAX => {
            let mut members = acl.values.iter().flat_map(|line| line.split(' '));
            members.find_map(|one| step_within(config, one.trim_start_matches('!'), depth + 1))
        }
        _ => None,
    }
}

/// A rule for all connections and steps decides: those behind it are never asked. After `peek` at
/// two steps there is nothing left but to splice, and after `stare` but to bump.
fn check_order(config: &Config, state: &mut State) {
    let mut rules = config.ssl_bump.iter();
    let for_all = rules.find(|rule| is_for_all(config, &rule.terms));
    check_client_first(config, state);
    let Some(rule) = for_all else { return };
    let last = match rule.verb {
        BumpVerb::Do(BumpAction::Peek) => BumpAction::Splice,
        BumpVerb::Do(BumpAction::Stare) | BumpVerb::ServerFirst => BumpAction::Bump,
        _ => BumpAction::Terminate,
    };
    let can_follow = |later: &&BumpRule| match later.verb {
        // At the third step what was said at the second is left out.
        BumpVerb::Do(BumpAction::Terminate) => last != BumpAction::Terminate,
        BumpVerb::Do(action) => action == last && last != BumpAction::Terminate,
        BumpVerb::ServerFirst => last == BumpAction::Bump,
        BumpVerb::ClientFirst => false,
    };
    let Some(never) = rules.find(|later| !can_follow(later)) else { return };
    let message = format!(
        "{}: `{}` is never carried out, since `{}` above it applies at each step",
        never.source.place(),
        never.source.text,
        rule.source.text
    );
    let help = match rule.verb {
        BumpVerb::Do(BumpAction::Peek | BumpAction::Stare) => {
            "write `acl step1 at_step SslBump1`, and `step1` behind that rule"
        }
        _ => "put it above that rule, or remove it",
    };
    state.report_general(Severity::Warning, &message, help);
}

/// `client-first` is for the first step alone: a rule that takes connections on to the next one
/// takes them away from it.
fn check_client_first(config: &Config, state: &mut State) {
    let goes_on = |rule: &&BumpRule| {
        let action = rule.verb.at(BumpStep::One);
        matches!(action, Some(BumpAction::Peek | BumpAction::Stare))
            && !is_for_all(config, &rule.terms)
    };
    let mut rules = config.ssl_bump.iter();
    let Some(before) = rules.find(goes_on) else { return };
    let Some(rule) = rules.find(|rule| rule.verb == BumpVerb::ClientFirst) else { return };
    let message = format!(
        "{}: `client-first` decrypts at the first step only, so not what `{}` above it has taken to \
         the next one",
        rule.source.place(),
        before.source.text
    );
    state.report_general(Severity::Warning, &message, "write `bump` in place of `client-first`");
}

fn is_for_all(config: &Config, terms: &[AclTerm]) -> bool {
    let is_all = |name: &str| {
        let mut acls = config.acl.iter();
        acls.any(|acl| {
            acl.name.eq_ignore_ascii_case(name)
                && acl.kind == AclKind::Src
                && acl.values.iter().any(|value| value == "all")
        })
    };
    terms.iter().all(|term| !term.negated && is_all(&term.name))
}

fn check_unsupported_protocol(config: &Config, state: &mut State) {
    let Some(rule) = config.on_unsupported_protocol.iter().find(|rule| rule.tunnels) else {
        return;
    };
    if !has_bump(config) {
        let message = format!(
            "{}: this has no effect, since no port has `ssl-bump`: what is no HTTP is refused",
            rule.source.place()
        );
        let help = "it is about what comes where TLS is expected";
        state.report_general(Severity::Warning, &message, help);
    }
}

#[cfg(test)]
mod tests {
    use crate::{BumpVerb, Config, Severity, parse_str};
    use humboldt_base::bump::{BumpAction, BumpStep};

    const PORT: &str = "http_port 1 ssl-bump tls-cert=/ca.pem\n";

    fn read(text: &str) -> (Config, String, String) {
        let (config, found) = parse_str("t", &format!("http_access allow localhost\n{text}\n"));
        let render = |least| match found.iter().any(|one| one.severity >= least) {
            true => found.render_from(false, least),
            false => String::new(),
        };
        let errors = if found.has_errors() { render(Severity::Error) } else { String::new() };
        (config, errors, render(Severity::Warning))
    }

    #[test]
    fn actions_of_today_are_taken_without_a_word() {
        let rules = "acl step1 at_step SslBump1\nacl bank ssl::server_name .bank.test\n\
                     ssl_bump peek step1\nssl_bump splice bank\nssl_bump terminate !localhost\n\
                     ssl_bump stare all\nssl_bump bump all";
        let (config, errors, warnings) = read(&format!("{PORT}{rules}"));
        assert_eq!((&*errors, &*warnings), ("", ""));
        let verbs: Vec<_> = config.ssl_bump.iter().map(|rule| rule.verb).collect();
        use BumpAction::*;
        assert_eq!(verbs, [Peek, Splice, Terminate, Stare, Bump].map(BumpVerb::Do));
        let rule = &config.ssl_bump[2];
        assert!(rule.terms[0].negated && rule.source.place() == "t:7", "{}", rule.source.place());
    }

    #[test]
    fn old_words_are_taken_with_a_warning() {
        for (word, first, third) in [
            ("none", Some(BumpAction::Splice), Some(BumpAction::Splice)),
            ("client-first", Some(BumpAction::Bump), None),
            ("server-first", Some(BumpAction::Stare), Some(BumpAction::Bump)),
        ] {
            let (config, errors, warnings) = read(&format!("{PORT}ssl_bump {word} all"));
            assert_eq!(errors, "");
            assert!(warnings.contains("old word"), "{warnings}");
            let verb = config.ssl_bump[0].verb;
            assert_eq!((verb.at(BumpStep::One), verb.at(BumpStep::Three)), (first, third));
        }
        let (_, errors, _) = read(&format!("{PORT}ssl_bump bmup all"));
        assert!(errors.contains("peek, stare, splice, bump or terminate"), "{errors}");
        let (_, errors, _) = read(&format!("{PORT}ssl_bump allow all\nssl_bump bump all"));
        assert!(errors.contains("cannot be mixed"), "{errors}");
    }

    #[test]
    fn behind_allow_and_deny_the_opposite_of_the_last_is_meant() {
        let (config, errors, warnings) = read(&format!("{PORT}ssl_bump deny localhost"));
        assert_eq!((errors.as_str(), config.ssl_bump.len()), ("", 2));
        assert_eq!(config.ssl_bump[1].verb, BumpVerb::ClientFirst);
        assert!(warnings.contains("all other connections are decrypted"), "{warnings}");
        assert_eq!(read(&format!("{PORT}ssl_bump allow localhost")).0.ssl_bump.len(), 1);
    }

    #[test]
    fn ports_and_rules_belong_together() {
        let (_, errors, warnings) = read("http_port 1\nssl_bump splice all");
        assert!(errors.is_empty() && warnings.contains("no port has `ssl-bump`"), "{warnings}");
        let (_, errors, warnings) = read("http_port 1 ssl-bump tls-cert=/x");
        assert!(errors.is_empty() && warnings.contains("no rule of `ssl_bump`"), "{warnings}");
        for verb in ["peek", "splice", "terminate", "none"] {
            assert_eq!(read(&format!("http_port 1 ssl-bump\nssl_bump {verb} all")).1, "", "{verb}");
        }
        for verb in ["bump", "stare", "client-first", "server-first"] {
            let (_, errors, _) = read(&format!("http_port 1 ssl-bump\nssl_bump {verb} all"));
            assert!(errors.contains("t:3: this rule decrypts"), "{verb}: {errors}");
            assert!(errors.contains("t:2:1 has no certificate"), "{verb}: {errors}");
        }
    }

    #[test]
    fn rules_that_nothing_gets_to_are_named() {
        for (rules, wanted) in [
            ("ssl_bump peek all\nssl_bump bump all", "`ssl_bump bump all` is never carried out"),
            ("ssl_bump bump all\nssl_bump splice localhost", "splice localhost` is never"),
            ("ssl_bump stare all\nssl_bump splice all", "`ssl_bump splice all` is never"),
            ("ssl_bump peek all\nssl_bump splice all", ""),
            ("ssl_bump stare all\nssl_bump bump all", ""),
            ("ssl_bump stare all\nssl_bump terminate localhost\nssl_bump bump all", ""),
            ("ssl_bump peek !localhost\nssl_bump bump all", ""),
        ] {
            let (_, _, warnings) = read(&format!("{PORT}{rules}"));
            assert_eq!(warnings.is_empty(), wanted.is_empty(), "{rules}: {warnings}");
            assert!(warnings.contains(wanted), "{rules}: {warnings}");
        }
    }

    #[test]
    fn client_first_is_for_the_first_step() {
        let acl = "acl step1 at_step SslBump1\n";
        for (rules, is_told) in [
            ("ssl_bump peek step1\nssl_bump client-first all", true),
            ("ssl_bump server-first localhost\nssl_bump client-first all", true),
            ("ssl_bump client-first localhost\nssl_bump peek step1\nssl_bump bump all", false),
            ("ssl_bump splice localhost\nssl_bump client-first all", false),
        ] {
            let (_, errors, warnings) = read(&format!("{PORT}{acl}{rules}"));
            let found = warnings.contains("decrypts at the first step only");
            assert_eq!((&*errors, found), ("", is_told), "{rules}: {warnings}");
        }
    }

    #[test]
    fn what_is_decrypted_needs_tls_to_servers() {
        let off = "tls_outgoing_options disable\n";
        let (_, errors, _) = read(&format!("{PORT}{off}ssl_bump bump all"));
        assert!(errors.contains("t:4: this rule decrypts, and t:3:1 has"), "{errors}");
        assert_eq!(read(&format!("{PORT}{off}ssl_bump splice all")).1, "");
        assert_eq!(read(&format!("{PORT}ssl_bump bump all")).1, "");
        let parent = "cache_peer 192.0.2.1 parent 443 0 originserver tls name=a\n";
        let (_, errors, warnings) = read(&format!("{PORT}{off}{parent}ssl_bump bump all"));
        assert!(errors.is_empty() && warnings.contains("this rule decrypts"), "{warnings}");
    }

    #[test]
    fn certificates_that_servers_fail_to_send_are_named() {
        let (config, errors, warnings) =
            read("http_port 1\nsslproxy_foreign_intermediate_certs /more.pem");
        assert_eq!((&*errors, &*warnings), ("", ""));
        assert_eq!(config.sslproxy_foreign_intermediate_certs.as_deref(), Some("/more.pem"));
    }

    #[test]
    fn faults_that_are_forgiven_without_a_word_are_told() {
        let told = "without a word to the client";
        for (lines, is_told) in [
            ("http_port 1\nsslproxy_cert_error allow all", true),
            ("http_port 1 ssl-bump\nssl_bump splice all\nsslproxy_cert_error allow all", true),
            ("http_port 1\nsslproxy_cert_error deny all", false),
            (&format!("{PORT}ssl_bump bump all\nsslproxy_cert_error allow all"), false),
        ] {
            let (_, errors, warnings) = read(lines);
            assert_eq!((&*errors, warnings.contains(told)), ("", is_told), "{lines}: {warnings}");
        }
    }

    #[test]
    fn steps_are_asked_where_there_are_some() {
        let acls = "acl step1 at_step SslBump1\nacl group any-of step1\n";
        let splice = "ssl_bump splice step1\n";
        for (port, rule, wanted) in [
            ("http_port 1\n", "http_access deny step1", "http_access"),
            ("http_port 1\n", "http_access deny !group", "http_access"),
            (PORT, "http_access deny step1", ""),
            (PORT, "cache deny group", "cache"),
            (PORT, "access_log none !step1", ""),
            (PORT, "sslproxy_cert_sign signSelf step1", ""),
        ] {
            let (_, errors, warnings) = read(&format!("{port}{acls}{splice}{rule}"));
            let told =
                format!("acl `step1` is about the steps of `ssl_bump`, and {wanted} is asked");
            let is_told = warnings.contains("steps of `ssl_bump`");
            assert_eq!((&*errors, is_told), ("", !wanted.is_empty()), "{rule}: {warnings}");
            assert!(wanted.is_empty() || warnings.contains(&told), "{rule}: {warnings}");
        }
    }

    #[test]
    fn everything_passes_with_run_without() {
        let text = "https_port 2 intercept ssl-bump tls-cert=/x\nssl_bump bump all\n\
                    run_without ssl_bump";
        let (config, errors, warnings) = read(&format!("{PORT}{text}"));
        assert_eq!(errors, "");
        assert!(warnings.contains("are left out"), "{warnings}");
        assert!(config.ssl_bump.is_empty() && config.http_port[0].bump.is_none());
        let bump = config.https_port[0].bump.as_ref();
        assert!(bump.is_some_and(|bump| bump.certificate.is_none()));
    }

    #[test]
    fn what_is_no_tls_is_about_ports_that_intercept() {
        let rule = "on_unsupported_protocol tunnel all";
        assert_eq!(read(&format!("{PORT}ssl_bump splice all\n{rule}")).2, "");
        assert!(read(&format!("http_port 1\n{rule}")).2.contains("has no effect"));
        assert_eq!(read("http_port 1\non_unsupported_protocol respond all").2, "");
        let (_, errors, _) = read("http_port 1\non_unsupported_protocol tunel all");
        assert!(errors.contains("did you mean `tunnel`?"), "{errors}");
        let acl = "acl foreign squid_error ERR_PROTOCOL_UNKNOWN";
        let (_, errors, _) = read(&format!("{PORT}{acl}\non_unsupported_protocol tunnel foreign"));
        assert_eq!(errors, "");
    }
}
